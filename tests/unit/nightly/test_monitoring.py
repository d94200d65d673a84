"""The alert rules and the dashboard: by promtool, and against the metrics that there really are."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import hints
import pytest
import yaml
from commandline import Shell
from nightmetrics import METRICS, drifted, for_prometheus, text_of
from places import TESTS
from prometheus_client.parser import text_string_to_metric_families
from prometheusprograms import Programs, programs

from gpuprep.nightly import metrics

RULES = [rule for group in yaml.safe_load(for_prometheus("rules"))["groups"] for rule in group["rules"]]
DASHBOARD = json.loads(for_prometheus("dashboard"))
# A name that stands in an expression; a label is followed by = or a comparison, or stands in by(), on() or ignoring().
NAME = re.compile(r"\bgpuprep_[a-z0-9_]+\b")
HOURS, DAYS = (TESTS / "monitoring" / f"gpuprep.rules.{name}.yml" for name in ("test", "days.test"))


@pytest.fixture(scope="session")
def promtool(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return programs(tmp_path_factory.mktemp("prometheus"))


ONE_DOWNLOAD = pytest.mark.xdist_group("promtool")  # by one worker


def names(text: str) -> set[str]:
    return set(NAME.findall(text))


def expressions() -> list[str]:
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def test_every_metric_that_is_named_exists() -> None:
    queries = [
        variable["query"]["query"] for variable in DASHBOARD["templating"]["list"] if variable["type"] == "query"
    ]
    named = names(for_prometheus("rules")) | names(" ".join([*expressions(), *queries]))
    assert len(named) > 15
    assert named <= METRICS.keys()


def test_every_label_that_is_named_exists() -> None:
    known = {label for labels in METRICS.values() for label in labels} | {"instance", "job"}
    matched = set(
        re.findall(r"(\w+)\s*(?:=~|!=|!~|=(?!=))\s*\\?[\"%]", " ".join([*expressions(), for_prometheus("rules")]))
    )
    grouped = re.findall(r"\b(?:by|on|ignoring|without)\s*\(([^)]*)\)", " ".join(expressions()))
    shown = set(re.findall(r"\$labels\.(\w+)", for_prometheus("rules")))
    listed = {label.strip() for group in grouped for label in group.split(",")}
    assert {"host", "profile", "status", "subject", "property"} <= matched | listed | shown
    assert matched | listed | shown <= known


def test_alerts_name_the_host_and_the_command_to_run() -> None:
    assert {rule["alert"] for rule in RULES} >= {
        "GpuDrift", "GpuDriftUnknown", "GpuDriftStale", "GpuDriftMissing", "GpuDriftWaiverExpired",
    }  # fmt: skip
    for rule in RULES:
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert re.fullmatch(r"\d+[mh]", rule["for"])
        words = rule["annotations"]
        assert "gpuprep drift" in words["description"]
        if "absent(" not in rule["expr"]:
            assert "$labels.host" in words["summary"]


def test_the_commands_of_an_alert_have_inventory_and_profile_as_they_were_typed() -> None:
    asked = {"inventory": "/srv/our fleet.yml", "profile": "/srv/site.yml"}
    typed = dataclasses.replace(drifted(), options={"asked": asked})
    (info,) = [family for family in text_string_to_metric_families(metrics.render([typed])) if "info" in family.name]
    labels = info.samples[0].labels
    assert labels["check"] == "gpuprep drift -i '/srv/our fleet.yml' gpu-01 --profile /srv/site.yml"
    assert labels["last"] == "gpuprep drift last -i '/srv/our fleet.yml' gpu-01"
    assert labels["schedule"] == "gpuprep drift schedule -i '/srv/our fleet.yml' gpu-01 --profile /srv/site.yml"
    safe = set(re.findall(r'=~\\"(gpuprep [^"]*)\\"', for_prometheus("rules")))
    assert len(safe) == 1
    for name, more in (("check", ""), ("check", " --fix"), ("last", ""), ("schedule", " --at 02:30")):
        assert hints.problem(labels[name] + more) == ""
        assert re.fullmatch(safe.copy().pop().replace("%%", "%"), labels[name])


def test_the_dashboard_is_one_that_grafana_takes() -> None:
    assert DASHBOARD["uid"] == "gpuprep-drift"
    assert DASHBOARD["schemaVersion"] >= 36
    assert "id" not in DASHBOARD, "an id of one Grafana is another dashboard in the next"
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert variables.keys() == {"datasource", "host", "profile"}
    panels: list[dict[str, Any]] = DASHBOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        assert panel["type"] in ("stat", "table", "timeseries", "state-timeline")
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert panel["description"].endswith(".")
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in cells) < 24
        assert not cells & taken, f"{panel['title']} lies on another panel"
        taken |= cells
    for expression in expressions():
        assert 'host=~"$host"' in expression
        assert expression.count("(") == expression.count(")")


@ONE_DOWNLOAD
def test_promtool_takes_the_rules_and_their_tests_pass(promtool: Programs, tmp_path: Path) -> None:
    (tmp_path / "gpuprep.rules.yml").write_text(for_prometheus("rules"))
    for file in (HOURS, DAYS):
        shutil.copy(file, tmp_path)
    for words in (["check", "rules", "gpuprep.rules.yml"], ["test", "rules", HOURS.name, DAYS.name]):
        done = subprocess.run([promtool.promtool, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.machines
@ONE_DOWNLOAD
def test_a_rule_that_never_fires_does_not_pass_its_tests(promtool: Programs, tmp_path: Path) -> None:
    """The tests of the rules can fail."""
    spoiled = for_prometheus("rules").replace("26 * 3600", "2600 * 3600")
    (tmp_path / "gpuprep.rules.yml").write_text(spoiled)
    shutil.copy(HOURS, tmp_path)
    words = [promtool.promtool, "test", "rules", HOURS.name]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "GpuDriftStale" in done.stdout + done.stderr


@ONE_DOWNLOAD
def test_promtool_takes_the_metrics(promtool: Programs) -> None:
    """Names, units and HELP by Prometheus' own linter."""
    text = text_of(drifted("a"), drifted("b"))
    done = subprocess.run(
        [promtool.promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("name", ["rules", "dashboard"])
def test_the_command_prints_them(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shell = Shell(capsys)
    assert shell("monitoring", name) == (0, for_prometheus(name), "")
    assert shell("monitoring", name, "--output", str(tmp_path / "file"))[0] == 0
    assert (tmp_path / "file").read_text() == for_prometheus(name)
    assert shell("monitoring", name, "--output", str(tmp_path / "no" / "file"))[0] == 2
