"""Drift of many hosts at once: the page, its order, its formats, and the exit code."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import junitparser
import pages
import pytest
from commandline import Shell
from fakehost import Script
from fleethosts import LOST, PASSED, lost, passed, unsure, warned
from nightlymachine import Machine, PlayedHost
from nightmetrics import FINDINGS, drifted, families, series
from records_for_tests import SNAPSHOT
from scriptedhosts import gpuprep as run
from scriptedhosts import script

from gpuprep import errors, records, reports
from gpuprep.agent import host_paths
from gpuprep.store import Store
from gpuprep.workflows import runs

__all__ = ["run", "script"]  # fixtures
FLEET = [passed("gpu-10"), passed("gpu-09"), warned("gpu-05"), unsure("gpu-04"), drifted("gpu-03"), lost()]


def rows(page: str) -> list[list[str]]:
    lines = page.splitlines()
    head = next(place for place, line in enumerate(lines) if line.startswith("HOST"))
    return [line.split() for line in lines[head + 1 : lines.index("", head)]]


def test_a_row_a_host_the_worst_first() -> None:
    page = pages.fleet(*FLEET)
    assert [row[:2] for row in rows(page)] == [
        ["gpu-02", "UNKNOWN"], ["gpu-03", "FAIL"], ["gpu-04", "UNKNOWN"], ["gpu-05", "WARN"], ["gpu-09", "PASS"],
        ["gpu-10", "PASS"],
    ]  # fmt: skip
    run = FLEET[4].run_id
    assert rows(page)[1] == ["gpu-03", "FAIL", "2026-11-19", run, "gpu", "0.application_clocks"]
    assert "refuses" in " ".join(rows(page)[0])
    assert "(gpu-02)" in page
    assert "refuses connections" in page.partition("What did not pass")[2]
    assert page.splitlines()[-1] == "2 PASS, 1 WARN, 1 FAIL, 2 UNKNOWN of 6"


def test_details_of_what_did_not_pass_and_nothing_of_what_did() -> None:
    table, _, details = pages.fleet(*FLEET).partition("\n\n")
    assert "gpu-09" in table
    assert "gpu-09" not in details
    assert "loaded_version" not in details.replace(" ", "_")
    for said in ("5001, 585", "8 lanes (expected 16 lanes)", "is sshd running there"):
        assert said in details


@pytest.mark.parametrize("width", [60, 80, 100])
def test_the_page_fits_its_width(width: int) -> None:
    long = [*FLEET, drifted("gpu-node-0042.cluster-of-the-west.example.org", status=records.Status.FAIL)]
    many = tuple(dataclasses.replace(FINDINGS[0], subject=f"gpu {index}") for index in range(8))
    page = pages.fleet(*long, drifted("gpu-77", many), width=width)
    assert max(len(line) for line in page.splitlines() if ": gpuprep " not in line) <= width
    assert "gpu-node-0042.cluster-of-the-west.example.org" in page
    assert re.search(r"^gpu-77[^#]*? \+\d$", page, re.M), "as many findings as fit, and how many more there are"


def test_waived_findings_are_counted_in_the_row_of_a_host_that_passed() -> None:
    host = drifted("gpu-06", (FINDINGS[1], *PASSED), records.Status.PASS)
    page = pages.fleet(host)
    assert rows(page) == [["gpu-06", "PASS", "1", "waived"]]
    assert page.splitlines()[-1] == "1 PASS of 1"


def test_simulated_hosts_are_named() -> None:
    simulated = [dataclasses.replace(one, source=records.Source.SIMULATED) for one in FLEET]
    assert pages.fleet(*simulated).startswith("SIMULATED: the GPU of this machine")
    mixed = pages.fleet(simulated[4], *FLEET[:4])
    assert mixed.startswith("SIMULATED: the GPUs of 1 of these hosts")
    assert re.search(r"^gpu-05 \(simulated\) +WARN|^gpu-03 \(simulated\) +FAIL", mixed, re.M)
    for style in reports.RECORDS:
        assert "simulated" in reports.render_fleet(simulated, style, 1).lower()
        assert "simulated" not in reports.render_fleet(
            [dataclasses.replace(one, after=SNAPSHOT) for one in FLEET[:2]], "text", 0
        )


def test_every_format_is_one_document_of_all_hosts() -> None:
    document = json.loads(reports.render_fleet(FLEET, "json", 3))
    assert document["exit_code"] == 3
    assert len(document["runs"]) == 6
    suites = junitparser.JUnitXml.fromstring(reports.render_fleet(FLEET, "junit", 3).encode())
    assert [suite.hostname for suite in suites][:2] == ["gpu-02", "gpu-03"]
    assert (suites.failures, suites.errors, suites.tests) == (1, 2, sum(suite.tests for suite in suites))
    metrics = reports.render_fleet(FLEET, "prometheus", 3)
    assert len({one.labels["host"] for one in series(metrics, "gpuprep_drift_verdict")}) == 6
    assert len([line for line in metrics.splitlines() if line.startswith("# TYPE")]) == len(families(metrics))
    page = reports.render_fleet(FLEET, "markdown", 3)
    assert page.startswith("# gpuprep drift: 2 PASS, 1 WARN, 1 FAIL, 2 UNKNOWN of 6\n")
    assert re.findall(r"^## (\S+)", page, re.M) == ["gpu-02", "gpu-03", "gpu-04", "gpu-05"]
    assert page.count("| gpu-09 |") == 1


# ---------------------------------------------------------------- the command


@pytest.fixture
def inventory(tmp_path: Path) -> str:
    file = tmp_path / "hosts.ini"
    file.write_text("[here]\n" + "".join(f"gpu-{n:02d} ansible_connection=local\n" for n in range(1, 5)) + "[none]\n")
    return str(file)


# Where the test is not about inventories: Ansible's own programs, which read them, take longer than all the rest.
HOSTS = ("gpu-01", "gpu-02", "gpu-03", "gpu-04")


def sweep(run: Shell, *words: str) -> tuple[int, str, str]:
    return run("drift", "-i", *words)


def test_without_a_pattern_the_whole_inventory_is_checked(run: Shell, inventory: str) -> None:
    code, out, _ = sweep(run, inventory, "--profile", "t4", "-q")
    assert sorted(row[0] for row in rows(out)) == ["gpu-01", "gpu-02", "gpu-03", "gpu-04"]
    assert out.splitlines()[-1].endswith(" of 4")
    assert code in (0, 1, 3)
    _, out, _ = sweep(run, inventory, "gpu-03", "--profile", "t4", "-q")
    assert [row[0] for row in rows(out)] == ["gpu-03"], "one host of an inventory is a row, too"


def test_a_host_that_is_not_reached_is_a_row_and_the_others_go_on(
    run: Shell,
    script: Script,
) -> None:
    script.connecting["gpu-02"] = errors.HostUnreachable("gpu-02: no answer", "is it up?", where="gpu-02")
    code, out, err = run("drift", *HOSTS, "--profile", "t4", "--forks", "1", "-q")
    assert code == 3
    assert rows(out)[0][:2] == ["gpu-02", "UNKNOWN"]
    assert len(rows(out)) == 4
    assert "no answer" not in err, "the page says it once"


@pytest.mark.parametrize("style", ["json", "junit", "prometheus", "markdown", "html"])
def test_the_formats_of_the_command(run: Shell, style: str) -> None:
    _, out, _ = run("drift", *HOSTS, "--profile", "t4", "-q", "--format", style)
    start = {"json": "{", "junit": "<?xml", "prometheus": "# HELP gpuprep_drift_info", "markdown": "# gpuprep drift: "}
    start["html"] = "<!doctype html>"
    assert out.startswith(start[style])
    assert all(f"gpu-0{n}" in out for n in range(1, 5))
    _, one, _ = run("drift", "here.example", "--profile", "t4", "-q", "--format", style)
    assert one.startswith(start[style])


@pytest.mark.parametrize("words", [["--fix"], ["--deep"], ["--probe", "quick"], ["--profile", "t4"]])
def test_last_is_not_mixed_with_a_check(run: Shell, inventory: str, words: Sequence[str]) -> None:
    code, _, err = sweep(run, inventory, "--last", *words)
    assert code == 2
    assert f"--last and {words[0]} exclude each other" in err
    code, _, err = sweep(run, inventory, "--now", *words)
    assert (code, f"--now and {words[0]} exclude each other" in err) == (2, True)
    code, _, err = sweep(run, inventory, "--profile", "t4", "--when-busy", "go")
    assert (code, "--when-busy is for --fix, which is not given" in err) == (2, True)


def test_last_asks_the_hosts_and_needs_no_profile(
    run: Shell,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def host(target: Any, **options: Any) -> PlayedHost:
        kept = {"gpu-03": drifted}.get(target.name, passed)(target.name)
        said = Machine(files={host_paths.DRIFT_LAST: records.to_json(kept)})
        if target.name == "gpu-02":
            said.script.connecting[target.name] = errors.HostUnreachable(LOST, where=target.name)
        return PlayedHost(said, target, options)

    monkeypatch.setattr(runs, "Host", host)
    code, out, _ = run("drift", *HOSTS, "--last", "-q")
    assert code == 3
    assert [row[:2] for row in rows(out)][:2] == [["gpu-02", "UNKNOWN"], ["gpu-03", "FAIL"]]
    assert out.splitlines()[-1] == "2 PASS, 1 FAIL, 1 UNKNOWN of 4"


def test_the_inventory_names_the_profile_of_each_host_and_an_option_counts_more(run: Shell, tmp_path: Path) -> None:
    mixed = (
        "all:\n  vars: {ansible_connection: local}\n  hosts: {gpu-01: {gpu_profile: t4}, gpu-02: {gpu_profile: a100}"
    )
    file = tmp_path / "hosts.yml"
    file.write_text(mixed + "}\n")
    _, out, _ = sweep(run, str(file), "-q", "--json")
    profiles = {
        one["host"]: (one["profile"]["name"], one["options"]["asked"]["profile"]) for one in json.loads(out)["runs"]
    }
    assert profiles == {"gpu-01": ("t4", "t4"), "gpu-02": ("a100", "a100")}
    _, out, _ = sweep(run, str(file), "-q")
    offered = [line for line in out.splitlines() if line.startswith(("To repair it: ", "After that, check again: "))]
    assert not any("gpu-01" in line and "gpu-02" in line and "--profile" in line for line in offered), offered
    _, out, _ = sweep(run, str(file), "-q", "--json", "--profile", "v100")
    assert {one["profile"]["name"] for one in json.loads(out)["runs"]} == {"v100"}
    file.write_text(mixed + ", gpu-03: {}}\n")
    code, _, err = sweep(run, str(file))
    assert code == 2
    assert "gpu-03 of" in err
    assert "no gpu_profile, and --profile is not given" in err
    file.write_text(mixed + ", gpu-03: {gpu_profile: t5}}\n")
    code, _, err = sweep(run, str(file))
    assert code == 2
    assert "host gpu-03: gpu_profile: " in err


def test_the_hosts_of_an_earlier_command_that_failed_are_chosen(run: Shell, script: Script) -> None:
    script.connecting["gpu-02"] = errors.HostUnreachable("gpu-02: no answer", "is it up?", where="gpu-02")
    _, out, _ = run("drift", *HOSTS, "--profile", "t4", "-q", "--json")
    failed = sorted(one["host"] for one in json.loads(out)["runs"] if one["exit_code"])
    script.connecting.clear()
    _, out, _ = run("drift", "--batch", "last", "--failed", "--profile", "t4", "-q", "--json")
    assert sorted(one["host"] for one in json.loads(out)["runs"]) == failed
    code, _, err = run("drift", "--failed", "--profile", "t4")
    assert code == 2
    assert "--failed needs --batch" in err


def test_what_is_older_than_keep_days_goes_at_the_end_of_a_command_on_that_host(run: Shell, tmp_path: Path) -> None:
    run("drift", *HOSTS, "--profile", "t4", "-q")
    with contextlib.closing(Store.open(None)) as store:
        of_now = {each.run_id for each in store.runs()}
        for number in range(40):
            for host in (HOSTS[0], "of-nobody"):
                old = drifted(host, PASSED, records.Status.PASS)
                moment = f"2025-01-01T00:00:{number:02d}+00:00"
                store.append(dataclasses.replace(old, run_id=f"{host}-{number}", started_at=moment, ended_at=moment))
    (tmp_path / "config/gpuprep").mkdir(parents=True)
    (tmp_path / "config/gpuprep/config.yml").write_text("keep_days: 365\n")
    assert "runs from before" in run("drift", HOSTS[0], "--profile", "t4")[2]
    with contextlib.closing(Store.open(None)) as store:
        left = [each.run_id for each in store.runs(limit=1000)]
    assert of_now <= set(left)
    assert (sum(HOSTS[0] in one for one in left), sum("of-nobody" in one for one in left)) == (28, 40)
