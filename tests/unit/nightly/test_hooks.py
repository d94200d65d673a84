"""What the schedulers are told of the last check, and what is done to the node, by the contracts of Slurm and NPD.

scontrol is a stand-in here; it answers in the words of Slurm 24.11.5, captured in a simulated VM with Debian's
slurmctld and slurmd. tests/machines/test_schedulers.py has the real one.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import stat
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import amount
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nightsfortests import SCONTROL_SECONDS, a_plan, asked, drift_program, scontrol_of, this_machine, write_plan
from places import ROOT
from records_for_tests import FINDINGS, SNAPSHOT, record

from gpuprep import records

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=timezone.utc)
NIGHT = timedelta(hours=24)
NPD_LENGTH = 80  # max_output_length of node-problem-detector
SLURM_LENGTH = 200  # its accounting keeps 255 bytes of a reason
PASSED = FINDINGS[0]
# Captured from `scontrol show node`, Slurm 24.11.5; {state} and {reason} vary.
SHOWN = """NodeName=n1 Arch=x86_64 CoresPerSocket=1 
   CPUAlloc=0 CPUEfctv=1 CPUTot=1 CPULoad=1.14
   NodeAddr=n1 NodeHostName=n1 Version=24.11.5
   OS=Linux 6.12.117+deb13-cloud-amd64 #1 SMP PREEMPT_DYNAMIC @0 
   State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=all 
   BootTime=2026-11-21T10:59:50 SlurmdStartTime=2026-11-21T11:42:44
   CurrentWatts=0 AveWatts=0
   
{reason}
"""  # noqa: W291, W293


def failed(*keys: str, status: records.Status = records.Status.FAIL) -> tuple[records.Finding, ...]:
    """Findings of these keys, and one that passed."""
    parts = (key.partition(".") for key in keys)
    return (*(records.Finding(subject, name, status, "a", "b") for subject, _, name in parts), PASSED)


def result(
    status: records.Status = records.Status.PASS, found: tuple[records.Finding, ...] = (PASSED,), **changes: Any
) -> dict[str, Any]:
    """A check of this machine that ended five hours ago."""
    return {
        "command": "drift",
        "source": records.Source.MEASURED,
        "measurements": (),
        "ended_at": (NOW - timedelta(hours=5)).isoformat(timespec="seconds"),
        "after": dataclasses.replace(SNAPSHOT, hostname=os.uname().nodename),
        "verdict": records.Verdict(status, f"{status.value}: profile t4", found),
        **changes,
    }


@pytest.fixture
def last(tmp_path: Path) -> Path:
    return tmp_path / "last.json"


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    return tmp_path / "drift.json"


def write(last: Path, **fields: Any) -> None:
    last.write_text(records.to_json(record(**fields)))


def line_of(last: Path, plan: Path | None = None) -> str:
    """What Slurm is told, in full."""
    return asked("slurm", "--no-drain", now=NOW, last=last, plan=plan or last.with_name("no-plan.json"))[1]


def short(last: Path) -> str:
    """What node-problem-detector is told."""
    return asked("npd", now=NOW, last=last, plan=last.with_name("no-plan.json"))[1]


def status_of(last: Path, plan: Path | None = None) -> records.Status:
    return records.Status(re.split("[: ]", line_of(last, plan))[1])


# ---------------------------------------------------------------- what the last result says


@pytest.mark.parametrize(
    "status", [records.Status.PASS, records.Status.WARN, records.Status.FAIL, records.Status.UNKNOWN]
)
def test_the_verdict_of_the_last_check_is_the_answer(status: records.Status, last: Path) -> None:
    write(last, **result(status, failed("gpu 0.ecc", status=status)))
    assert status_of(last) is status


def test_a_line_names_what_failed_and_nothing_else(last: Path) -> None:
    found = (*failed("gpu 0.ecc", "driver.loaded_version"), *failed("gpu 0.clocks", status=records.Status.WAIVED))
    write(last, **result(records.Status.FAIL, found))
    assert short(last) == "gpuprep FAIL: gpu 0.ecc, driver.loaded_version"


def test_a_pass_says_which_check_it_was(last: Path) -> None:
    write(last, **result())
    assert short(last) == "gpuprep PASS: profile t4, checked 2026-11-21 07:00 UTC"


@pytest.mark.parametrize("probe", [False, True])
def test_a_simulated_result_says_so(probe: bool, last: Path, slurm: FakeSlurm) -> None:
    some = record().measurements if probe else ()
    write(last, **result(records.Status.FAIL, failed("gpu 0.ecc"), source=records.Source.SIMULATED, measurements=some))
    assert short(last) == "gpuprep FAIL (simulated): gpu 0.ecc"
    asked("slurm", now=NOW, last=last, plan=last)
    assert slurm.changes() == ["update NodeName=n1 State=DRAIN Reason=gpuprep: (simulated) gpu 0.ecc"]


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (
            {"verdict": None, "error": "NVML did not answer\nwhat to do: look"},
            "came to no verdict: NVML did not answer",
        ),
        ({"verdict": None}, "came to no verdict"),
        ({"error": "cut off"}, "came to no verdict: cut off"),
        ({"after": None}, "came without facts"),
        ({"after": dataclasses.replace(SNAPSHOT, hostname="other")}, "of another machine, other"),
        (
            {"verdict": records.Verdict(records.Status.UNKNOWN, "UNKNOWN: nothing was checked", ())},
            "nothing was checked",
        ),
        ({"verdict": records.Verdict(records.Status.SKIP, "", ())}, "ended with SKIP"),
        ({"ended_at": "2026-11-21T07:00:00"}, "want a moment"),
        ({"ended_at": "yesterday"}, "want a moment"),
        ({"ended_at": "0001-01-01T00:00:00+14:00"}, "want a moment"),
    ],
)
def test_a_result_that_cannot_answer_is_unknown(fields: dict[str, Any], why: str, last: Path) -> None:
    write(last, **{**result(), **fields})
    assert status_of(last) is records.Status.UNKNOWN
    assert why in line_of(last)


def test_a_failure_with_an_error_besides_is_still_a_failure(last: Path) -> None:
    write(last, **result(records.Status.FAIL, failed("gpu 0.ecc"), error="a metric could not be written"))
    assert status_of(last) is records.Status.FAIL


@pytest.mark.parametrize(
    "text", ["", "{", "null", "[]", "{}", "[" * 100_000, '{"verdict": {"status": "PASS"}}', "\x00\x01"]
)
def test_a_damaged_result_is_unknown(text: str, last: Path) -> None:
    last.write_text(text)
    assert status_of(last) is records.Status.UNKNOWN
    assert "counts as absent" in line_of(last)


def test_a_result_torn_anywhere_is_never_a_pass(last: Path) -> None:
    write(last, **result())
    whole = last.read_bytes()
    for length in range(0, len(whole), 7 if amount.ALL else 97):
        last.write_bytes(whole[:length])
        assert status_of(last) is records.Status.UNKNOWN, length


@given(st.binary(max_size=200))
def test_a_result_of_any_bytes_is_never_a_pass(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    last = tmp_path_factory.getbasetemp() / "any.json"
    last.write_bytes(content)
    assert status_of(last) is records.Status.UNKNOWN


def test_no_result_yet_is_unknown_and_fits_the_line(last: Path) -> None:
    assert line_of(last) == f"gpuprep UNKNOWN: no nightly check yet (no {last})"
    usual = "gpuprep UNKNOWN: no nightly check yet (no /var/lib/gpuprep/drift/last.json)"
    assert len(usual) <= NPD_LENGTH
    assert short(last) == f"gpuprep UNKNOWN: no nightly check yet (no {last})"[:NPD_LENGTH]


def test_a_folder_in_place_of_the_result_is_unknown(last: Path) -> None:
    last.mkdir()
    assert status_of(last) is records.Status.UNKNOWN


# ---------------------------------------------------------------- how old it may be


@pytest.mark.parametrize(
    ("age", "minutes", "status"),
    [
        (timedelta(minutes=1), 30, records.Status.PASS),
        (NIGHT, 30, records.Status.PASS),
        (
            2 * NIGHT + timedelta(minutes=89),
            30,
            records.Status.PASS,
        ),  # the second night is late by its delay and an hour
        (2 * NIGHT + timedelta(minutes=91), 30, records.Status.UNKNOWN),
        (2 * NIGHT + timedelta(minutes=91), 60, records.Status.PASS),
        (2 * NIGHT + timedelta(minutes=59), None, records.Status.PASS),
        (2 * NIGHT + timedelta(minutes=61), None, records.Status.UNKNOWN),
        (400 * NIGHT, 30, records.Status.UNKNOWN),
        (timedelta(minutes=-4), 30, records.Status.PASS),
        (timedelta(minutes=-6), 30, records.Status.UNKNOWN),  # from later than now
    ],
)
def test_one_night_may_be_missed_and_not_two(
    age: timedelta, minutes: int | None, status: records.Status, last: Path, plan: Path
) -> None:
    write(last, **result(ended_at=(NOW - age).isoformat()))
    if minutes is not None:
        plan.write_text(json.dumps({"drift": {"random_delay_minutes": minutes}}))
    assert status_of(last, plan) is status


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"drift": 1}', '{"drift": {"random_delay_minutes": null}}', "[" * 100_000,
             '{"drift": {"random_delay_minutes": 1e999}}', '{"drift": {"random_delay_minutes": -90}}']
)  # fmt: skip
def test_a_plan_that_cannot_be_read_adds_no_delay(text: str, last: Path, plan: Path) -> None:
    plan.write_text(text)
    assert oldest(last, plan) == 2 * NIGHT + timedelta(hours=1)


def test_the_delay_is_that_of_the_plan_as_schedule_writes_it(last: Path, plan: Path) -> None:
    wish = dataclasses.replace(a_plan().drift, random_delay_minutes=77)
    write_plan(plan, a_plan(drift=wish))
    assert oldest(last, plan) == 2 * NIGHT + timedelta(hours=1, minutes=77)


def oldest(last: Path, plan: Path) -> timedelta:
    """How old a result may be, to the minute."""
    young, old = timedelta(), 4 * NIGHT
    while old - young > timedelta(seconds=1):
        age = young + (old - young) / 2
        write(last, **result(ended_at=(NOW - age).isoformat()))
        young, old = (age, old) if status_of(last, plan) is records.Status.PASS else (young, age)
    return timedelta(minutes=round(young / timedelta(minutes=1)))


# ---------------------------------------------------------------- whose it is


def test_in_a_pod_the_hosts_own_name_or_boot_tells(last: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    this_machine(monkeypatch, tmp_path / "hostname", tmp_path / "boot_id")
    kernel = dataclasses.replace(SNAPSHOT.kernel, boot_id="b-1")
    write(last, **result(after=dataclasses.replace(SNAPSHOT, hostname="node-7", kernel=kernel)))
    assert status_of(last) is records.Status.UNKNOWN
    (tmp_path / "hostname").write_text("node-7\n")
    assert status_of(last) is records.Status.PASS
    (tmp_path / "hostname").write_text("debian\n")
    (tmp_path / "boot_id").write_text("b-2\n")
    assert status_of(last) is records.Status.UNKNOWN
    (tmp_path / "boot_id").write_text("b-1\n")
    assert status_of(last) is records.Status.PASS


# ---------------------------------------------------------------- the line


@given(
    st.lists(st.text(max_size=60), max_size=30),
    st.sampled_from([records.Status.PASS, records.Status.WARN, records.Status.FAIL, records.Status.UNKNOWN]),
    st.booleans(),
)
def test_a_line_is_one_line_of_ascii_and_fits(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], status: records.Status, simulated: bool
) -> None:
    last = tmp_path_factory.getbasetemp() / "named.json"
    found = tuple(records.Finding("gpu", name, status, "a", "b") for name in names)
    source = records.Source.SIMULATED if simulated else records.Source.MEASURED
    write(last, **result(status, (*found, PASSED), source=source))
    for line, length in ((short(last), NPD_LENGTH), (line_of(last), SLURM_LENGTH)):
        assert len(line.encode()) <= length
        assert re.fullmatch(r"[ -~]+", line)
        assert not set("\"'`\\") & set(line)
        assert line.startswith(f"gpuprep {status.value}{' (simulated)' if simulated else ''}: ")


def test_a_line_names_as_many_as_fit_and_counts_the_rest(last: Path) -> None:
    write(last, **result(records.Status.FAIL, failed(*(f"gpu {n}.persistence_mode" for n in range(8)))))
    assert short(last) == "gpuprep FAIL: gpu 0.persistence_mode, gpu 1.persistence_mode and 6 more"


# ---------------------------------------------------------------- node-problem-detector


@pytest.mark.parametrize(
    ("status", "code"),
    [(records.Status.PASS, 0), (records.Status.WARN, 0), (records.Status.FAIL, 1), (records.Status.UNKNOWN, 2)],
)
def test_npd_has_its_own_exit_codes(status: records.Status, code: int, last: Path, plan: Path) -> None:
    write(last, **result(status, failed("gpu 0.ecc", status=status)))
    ended, line = asked("npd", now=NOW, last=last, plan=plan)
    assert (ended, line.startswith(f"gpuprep {status.value}: ")) == (code, True)


def npd_config() -> dict[str, Any]:
    """The example of docs/schedulers.md, which people copy."""
    page = (ROOT / "docs" / "schedulers.md").read_text()
    (block,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    return dict(json.loads(block))


def test_the_documented_npd_config_has_only_fields_that_npd_knows() -> None:
    """Fields by docs/custom_plugin_monitor.md and pkg/custompluginmonitor/types of node-problem-detector 0.8.12 to
    1.35: Go's decoder ignores others, so that a misspelt one has no effect.
    """
    config = npd_config()
    assert set(config) <= {"plugin", "pluginConfig", "source", "metricsReporting", "conditions", "rules"}
    assert config["plugin"] == "custom"
    settings = config["pluginConfig"]
    assert set(settings) <= {
        "invoke_interval", "timeout", "max_output_length", "concurrency",
        "enable_message_change_based_condition_update",
    }  # fmt: skip
    assert settings["max_output_length"] == NPD_LENGTH
    known = {condition["type"] for condition in config["conditions"]}
    assert all(set(condition) == {"type", "reason", "message"} for condition in config["conditions"])
    for rule in config["rules"]:
        assert set(rule) <= {"type", "condition", "reason", "path", "args", "timeout"}
        assert rule["type"] == "permanent"
        assert rule["condition"] in known
        assert seconds(rule["timeout"]) <= seconds(settings["timeout"]) < seconds(settings["invoke_interval"])
    assert [rule["path"] for rule in config["rules"]] == ["/usr/local/bin/gpuprep-drift"]


def seconds(duration: str) -> int:
    """Of Go's "30s" or "5m"."""
    return int(duration[:-1]) * {"s": 1, "m": 60}[duration[-1]]


@pytest.mark.parametrize(
    ("content", "code", "said"),
    [(None, 2, "gpuprep UNKNOWN: "), ("{", 2, "gpuprep UNKNOWN: "), ("FAIL", 1, "gpuprep FAIL: gpu 0.ecc")],
)
def test_run_as_npd_runs_it(content: str | None, code: int, said: str, tmp_path: Path) -> None:
    """As plugin.go does: path and arguments, no stdin; stdout trimmed and cut; the exit code."""
    last = tmp_path / "last.json"
    if content == "FAIL":
        now = datetime.now(timezone.utc).isoformat()
        write(last, **result(records.Status.FAIL, failed("gpu 0.ecc"), ended_at=now))
    elif content is not None:
        last.write_text(content)
    (rule,) = npd_config()["rules"]
    program = tmp_path / "gpuprep-drift"
    drift_program(program, sys.executable, last)
    done = subprocess.run(
        [str(program), *rule["args"]],
        stdin=subprocess.DEVNULL, capture_output=True, env={"PYTHONPATH": os.pathsep.join(sys.path)}, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (code, b"")
    message = done.stdout.strip()
    assert message.decode().startswith(said)
    assert message == message[:NPD_LENGTH]
    assert b"\n" not in message


def test_the_hooks_load_nothing_that_judges_or_measures() -> None:
    """They run every few minutes on every node."""
    code = "import sys; from gpuprep.nightly import __main__ as drift; drift.main(['npd']); print(*sys.modules)"
    loaded = subprocess.check_output([sys.executable, "-c", code], cwd=ROOT, text=True).split()
    heavy = {"yaml", "pynvml", "prometheus_client", "sqlalchemy", "click", "gpuprep.checks", "gpuprep.desired.state",
             "gpuprep.catalogue", "gpuprep.agent.gpu.nvml"}  # fmt: skip
    assert not heavy & set(loaded)


# ---------------------------------------------------------------- Slurm


SCONTROL = """#!/bin/sh
# A stand-in for scontrol: keeps one node's state and reason in two files, and what it was asked in a third.
cd {folder}
echo "$*" >> asked
case "$1" in
  show) [ "$3" = n1 ] || {{ echo "Node $3 not found"; exit 1; }}; cat node ;;
  update) [ -e refuse ] && {{ echo "slurm_update error: Access/permission denied" >&2; exit 1; }}
    exit 0 ;;
esac
"""


class FakeSlurm:
    """The node n1 as slurmctld would show it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "scontrol"
        program.write_text(SCONTROL.format(folder=folder))
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        self.node("IDLE")

    def node(self, state: str, reason: str = "") -> None:
        shown = f"   Reason={reason} [root@2026-11-21T11:42:46]" if reason else ""
        (self.folder / "node").write_text(SHOWN.format(state=state, reason=shown))

    def asked(self) -> list[str]:
        log = self.folder / "asked"
        return log.read_text().splitlines() if log.exists() else []

    def changes(self) -> list[str]:
        return [line for line in self.asked() if not line.startswith("show")]


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    folder = tmp_path / "slurm"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    return FakeSlurm(folder)


@pytest.fixture
def say(last: Path, plan: Path) -> Any:
    """Run `gpuprep-drift slurm` after a check that ended with `status`: (exit code, its one line)."""

    def run(status: records.Status, *options: str, keys: tuple[str, ...] = ("gpu 0.ecc",)) -> tuple[int, str]:
        found = (PASSED,) if status is records.Status.PASS else failed(*keys, status=status)
        write(last, **result(status, found))
        return asked("slurm", *options, now=NOW, last=last, plan=plan)

    return run


def test_a_node_that_drifted_is_drained(slurm: FakeSlurm, say: Any) -> None:
    assert say(records.Status.FAIL) == (1, "gpuprep FAIL: gpu 0.ecc; n1 drained")
    assert slurm.asked() == ["show node n1", "update NodeName=n1 State=DRAIN Reason=gpuprep: gpu 0.ecc"]


@pytest.mark.parametrize("state", ["IDLE+DRAIN", "MIXED+DRAIN", "DOWN*+DRAIN", "ALLOCATED+DRAIN+MAINTENANCE"])
def test_a_node_that_is_drained_is_not_drained_again(state: str, slurm: FakeSlurm, say: Any) -> None:
    slurm.node(state, "gpuprep: gpu 0.ecc")
    assert say(records.Status.FAIL) == (1, "gpuprep FAIL: gpu 0.ecc; n1 is drained already")
    assert slurm.changes() == []


def test_a_drain_by_hand_is_left_as_it_is(slurm: FakeSlurm, say: Any) -> None:
    slurm.node("IDLE+DRAIN", "fan [rack 4]")
    assert say(records.Status.FAIL) == (1, "gpuprep FAIL: gpu 0.ecc; n1 is drained already: fan [rack 4]")
    code, line = say(records.Status.PASS, "--resume")
    assert code == 0
    assert line.endswith("; n1 stays drained, not by gpuprep: fan [rack 4]")
    assert slurm.changes() == []


def test_our_reason_follows_what_fails(slurm: FakeSlurm, say: Any) -> None:
    slurm.node("IDLE+DRAIN", "gpuprep: gpu 0.ecc")
    say(records.Status.FAIL, keys=("gpu 0.ecc", "gpu 1.ecc"))
    assert slurm.changes() == ["update NodeName=n1 Reason=gpuprep: gpu 0.ecc, gpu 1.ecc"]


@pytest.mark.parametrize("state", ["IDLE", "MIXED", "ALLOCATED", "DOWN*", "IDLE+NOT_RESPONDING", "IDLE+PLANNED"])
def test_a_node_in_any_other_state_is_drained(state: str, slurm: FakeSlurm, say: Any) -> None:
    slurm.node(state)
    say(records.Status.FAIL)
    assert len(slurm.changes()) == 1


@pytest.mark.parametrize("status", [records.Status.PASS, records.Status.WARN])
def test_resume_undrains_what_gpuprep_drained(status: records.Status, slurm: FakeSlurm, say: Any) -> None:
    """And takes its reason away, so that a later drain by Slurm itself does not look like ours."""
    slurm.node("IDLE+DRAIN", "gpuprep: gpu 0.ecc")
    code, line = say(status, "--resume")
    assert code == 0
    assert line.endswith("; n1 undrained")
    assert slurm.changes() == ["update NodeName=n1 State=UNDRAIN Reason=undrained by gpuprep"]


def test_a_pass_without_resume_asks_slurm_nothing(slurm: FakeSlurm, say: Any) -> None:
    slurm.node("IDLE+DRAIN", "gpuprep: gpu 0.ecc")
    assert say(records.Status.PASS)[0] == 0
    assert slurm.asked() == []


@pytest.mark.parametrize("options", [(), ("--resume",)])
def test_unknown_changes_nothing(options: tuple[str, ...], slurm: FakeSlurm, say: Any) -> None:
    slurm.node("IDLE+DRAIN", "gpuprep: gpu 0.ecc")
    assert say(records.Status.UNKNOWN, *options) == (3, "gpuprep UNKNOWN: gpu 0.ecc")
    assert slurm.asked() == []


def test_drain_unknown_drains_and_says_why(slurm: FakeSlurm, say: Any) -> None:
    assert say(records.Status.UNKNOWN, "--drain-unknown") == (3, "gpuprep UNKNOWN: gpu 0.ecc; n1 drained")
    assert slurm.changes() == ["update NodeName=n1 State=DRAIN Reason=gpuprep: UNKNOWN: gpu 0.ecc"]


@pytest.mark.parametrize("status", [records.Status.PASS, records.Status.FAIL, records.Status.UNKNOWN])
def test_no_drain_only_reports(status: records.Status, slurm: FakeSlurm, say: Any) -> None:
    assert "; " not in say(status, "--no-drain")[1]
    assert slurm.asked() == []


@pytest.mark.parametrize("options", [("--no-drain", "--resume"), ("--no-drain", "--drain-unknown"), ("--wat",), ("x",)])
def test_options_that_contradict_are_refused_before_anything(
    options: tuple[str, ...], slurm: FakeSlurm, last: Path, plan: Path
) -> None:
    write(last, **result(records.Status.FAIL, failed("gpu 0.ecc")))
    with pytest.raises(SystemExit) as ended:
        asked("slurm", *options, now=NOW, last=last, plan=plan)
    assert ended.value.code == 2
    assert slurm.asked() == []


def test_a_drain_that_slurm_refuses_is_told(slurm: FakeSlurm, say: Any) -> None:
    (slurm.folder / "refuse").touch()
    code, line = say(records.Status.FAIL)
    assert code == 1
    assert line == "gpuprep FAIL: gpu 0.ecc; scontrol update failed: slurm_update error: Access/permission denied"


def test_a_node_that_slurm_does_not_know_is_told(slurm: FakeSlurm, say: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "other")
    assert say(records.Status.PASS, "--resume")[0] == 3
    assert say(records.Status.FAIL) == (1, "gpuprep FAIL: gpu 0.ecc; scontrol show failed: Node other not found")
    assert slurm.changes() == []


def test_without_a_path_scontrol_is_looked_for_where_slurm_is_installed(
    slurm: FakeSlurm, say: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """slurmd gives HealthCheckProgram an environment without PATH."""
    monkeypatch.delenv("PATH")
    scontrol_of(monkeypatch, slurm.folder)
    assert say(records.Status.FAIL)[1].endswith("; n1 drained")
    scontrol_of(monkeypatch)
    assert say(records.Status.FAIL)[1].endswith("; scontrol not found; a wrapper script may set PATH")


def test_a_slurm_that_hangs_is_given_up(slurm: FakeSlurm, say: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    scontrol_of(monkeypatch, patience=0.2)
    (slurm.folder / "scontrol").write_text("#!/bin/sh\nexec sleep infinity\n")
    code, line = say(records.Status.FAIL)
    assert code == 1
    assert "gave no answer" in line


def test_two_calls_of_scontrol_fit_into_slurmds_minute() -> None:
    assert 2 * SCONTROL_SECONDS < 60


def test_outside_slurmd_the_short_host_name_is_the_node(
    slurm: FakeSlurm, say: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SLURMD_NODENAME")
    say(records.Status.FAIL)
    assert slurm.asked() == [f"show node {os.uname().nodename.partition('.')[0]}"]


def test_a_reason_with_brackets_and_an_answer_without_a_state(slurm: FakeSlurm, say: Any) -> None:
    slurm.node("IDLE+DRAIN", "gpuprep: a [b]")
    say(records.Status.FAIL, keys=("gpu 0.ecc",))
    assert slurm.changes() == ["update NodeName=n1 Reason=gpuprep: gpu 0.ecc"], "the reason was ours"
    (slurm.folder / "node").write_text("nothing")
    assert say(records.Status.FAIL) == (1, "gpuprep FAIL: gpu 0.ecc; scontrol shows no state of n1: nothing")


def test_facts_that_are_missing_do_not_matter(last: Path) -> None:
    gone = dataclasses.replace(SNAPSHOT, hostname=os.uname().nodename, gpus=records.Missing("gpu_is_lost"))
    write(last, **result(records.Status.FAIL, failed("gpu 0.ecc"), after=gone))
    assert status_of(last) is records.Status.FAIL
