"""Three hosts of a fleet are hostile: the fleet keeps its page, its documents and its metrics in every format."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import amount
import pytest
from commandline import Shell, own_folders
from fakehost import FakeHost, Script
from hostilefleet import FACTS, GOOD, HOSTILE, NIGHT, SAID, TWENTY, changed, verdicts
from nightlymachine import NOW

from gpuprep import records, remote
from gpuprep.agent import host_paths
from gpuprep.workflows import runs, schedule_state

FOUR = (*HOSTILE, "gpu-01")  # where one format is enough
FORMATS = ("text", "json", "html", "markdown", "junit", "prometheus")


class FleetHost(FakeHost):
    """Tells of its facts and of its last night; three of them in the words of an attack."""

    said: Callable[[dict[str, Any]], str] = staticmethod(json.dumps)

    def __init__(self, target: remote.Target, **options: Any) -> None:
        super().__init__(Script(snapshots=[dataclasses.replace(GOOD, hostname=target.name)]), target, options)

    def run(self, command: str, *, stdin: bytes = b"", **_: Any) -> remote.CommandResult:
        tell = type(self).said if self.name in HOSTILE else json.dumps
        if stdin:
            return remote.CommandResult(0, tell({**FACTS, "hostname": self.name}), "")
        assert command.endswith(schedule_state.READ)
        mark = command.partition("'")[2].partition("'")[0]
        number = self.name.removeprefix("gpu-")
        night = tell({**NIGHT, "run_id": f"20261121-0231{number}-0a1b2", "host": self.name})
        told = {host_paths.DRIFT_LAST: night, "hostname": "t4", "boot": "b", "now": NOW, "timer": ""}
        return remote.CommandResult(0, "".join(f"\n{mark} {name}\n{text}\n" for name, text in told.items()), "")


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    own_folders(monkeypatch, tmp_path)
    monkeypatch.setattr(runs, "Host", FleetHost)

    def check(
        said: Callable[[dict[str, Any]], str], style: str, *words: str, names: Sequence[str] = FOUR
    ) -> tuple[int, str, str]:
        FleetHost.said = staticmethod(said)
        return Shell(capsys)("drift", *names, "-q", "--forks", "4", "--format", style, *words)

    return check


IN_LAST = ("a page of HTML", "bulk", "a date that is none")
WORDS = {"now": ("--profile", "t4"), "last": ("--last",)}


@pytest.mark.parametrize(
    ("attack", "when"),
    [amount.case((attack, when), when == "now" or attack in IN_LAST) for attack in SAID for when in WORDS],
)
def test_three_rows_are_unknown_and_the_others_good(fleet: Callable[..., Any], attack: str, when: str) -> None:
    code, page, err = fleet(SAID[attack], "json", *WORDS[when])
    found = verdicts("json", page)
    assert code == 3
    assert set(found) == set(FOUR)
    assert {host for host, verdict in found.items() if verdict == "UNKNOWN"} == set(HOSTILE), err
    assert {found[host] for host in found if host not in HOSTILE} == {"PASS"}


@pytest.mark.parametrize(
    ("style", "when"),
    [amount.case((style, when), when == "now" or style == "text") for style in FORMATS for when in WORDS],
)
def test_every_format_has_all_twenty(fleet: Callable[..., Any], style: str, when: str) -> None:
    def said(told: dict[str, Any]) -> str:
        name = str(told.get("host") or told.get("hostname"))
        return SAID[("depth", "a date that is none", "bulk")[HOSTILE.index(name)]](told)

    code, page, _ = fleet(said, style, *WORDS[when], names=TWENTY)
    assert code == 3
    assert all(name in page for name in TWENTY)
    if style == "prometheus":
        found = verdicts(style, page)
        assert {name: "PASS" for name in TWENTY if name not in HOSTILE}.items() <= found.items()
        assert {found.get(name, "UNKNOWN") for name in HOSTILE} == {"UNKNOWN"}
    if style in ("text", "markdown"):
        found = verdicts(style, page)
        assert sorted(host for host, verdict in found.items() if verdict == "UNKNOWN") == sorted(HOSTILE)
        assert "17 PASS, 3 UNKNOWN of 20" in page


ODD: dict[str, tuple[str, Any]] = {
    "half a pair as host name": ("hostname", "\ud800"),
    "a driver's version that is none": ("driver.loaded_version", "x.y"),
    "a version of 5000 digits": ("driver.loaded_version", "9" * 5000),
    "a version with an escape": ("driver.nvml_version", "550\x1b[2J"),
    "a toolkit's version that is none": ("cuda.nvcc_version", "{{ 7*7 }}"),
    "a cuDNN of no version": ("cudnn.version", "\u202e1.2"),
    "an FFmpeg of no version": ("codec.ffmpeg_version", "\0"),
    "power that is no number": ("gpus.0.power_watts", float("nan")),
    "memory without end": ("gpus.0.memory_total_mib", 2**63),
    "a clock below nothing": ("gpus.0.graphics_clock_mhz", -(2**62)),
    "a provenance of something else": ("provenance", {"\ud800": [float("inf")]}),
    "a tuning file that is none": ("files./etc/gpuprep/tuning\x2ejson", "[" * 100_000),
    "an operating system of another planet": ("os.version_id", "../../../etc"),
}  # fmt: skip


@pytest.mark.parametrize("attack", amount.third(ODD))
def test_facts_that_are_odd_hide_no_other_host(fleet: Callable[..., Any], attack: str) -> None:
    path, value = ODD[attack]
    say = (
        changed
        if "/" not in path
        else lambda told, *_: json.dumps({**told, "files": {**told["files"], "/etc/gpuprep/tuning.json": value}})
    )
    code, page, _ = fleet(lambda told: say(told, path, value), "json", "--profile", "t4")
    found = verdicts("json", page)
    assert set(found) == set(FOUR)
    assert {found[host] for host in found if host not in HOSTILE} == {"PASS"}
    assert code in (0, 1, 3)
    json.loads(page, parse_constant=pytest.fail)


def test_an_error_inside_gpuprep_is_one_hosts_and_is_kept_in_full(fleet: Callable[..., Any], tmp_path: Path) -> None:
    def broken(told: dict[str, Any]) -> str:
        errors = {"gpu-03": RecursionError("deep"), "gpu-07": MemoryError(), "gpu-20": KeyError("\x1b[2J")}
        raise errors[told["hostname"]]

    code, page, _ = fleet(broken, "json", "--profile", "t4")
    found = {run["host"]: run["error"] for run in json.loads(page)["runs"]}
    assert code == 3
    assert {host for host, error in found.items() if error} == set(HOSTILE)
    logs = list((tmp_path / "state/gpuprep/errors").iterdir())
    assert len(logs) == 3
    assert {log.stat().st_mode & 0o777 for log in logs} == {0o600}
    assert all("Traceback" in log.read_text() for log in logs)
    assert all("\x1b" not in log.read_text() for log in logs)


REFUSALS = (OverflowError("int too large"), UnicodeEncodeError("utf-8", "\ud800", 0, 1, "x"), RecursionError("deep"),
            ValueError("no"), MemoryError())  # fmt: skip


@pytest.mark.parametrize("error", amount.few(REFUSALS, 2), ids=lambda error: type(error).__name__)
def test_a_record_that_no_store_takes_is_that_hosts_error(
    fleet: Callable[..., Any], error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpuprep.store import Store

    append = Store.append_new

    def refusing(store: Store, made: records.RunRecord, *words: Any) -> bool:
        if made.host in HOSTILE and made.after is not None:
            raise error
        return append(store, made, *words)

    monkeypatch.setattr(Store, "append_new", refusing)
    code, page, _ = fleet(json.dumps, "json", "--profile", "t4")
    found = verdicts("json", page)
    assert code == 3
    assert {host for host, verdict in found.items() if verdict == "UNKNOWN"} == set(HOSTILE)
    assert set(found) == set(FOUR)
