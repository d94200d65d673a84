"""The nightly check: real children that answer with prepared facts, and this machine itself, which has no GPU."""

from __future__ import annotations

import configparser
import contextlib
import dataclasses
import fcntl
import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TextIO

import pytest
from builders import as_measured, with_parts
from nightsfortests import (
    ANSWERS,
    WISH,
    Agent,
    a_plan,
    agent_of,
    answering,
    asked,
    certified,
    facts,
    gpus_of,
    installed_package,
    probes,
    read_json,
    result,
    this_machine,
    write_plan,
)
from places import ROOT
from waiting import until

from gpuprep import checks, records
from gpuprep.agent import host_paths
from gpuprep.desired import profile
from gpuprep.nightly import last, nightlyplan, results, run, units
from gpuprep.records import baseline, ids

METRICS_FILE = "gpuprep.prom"
QUICK = dataclasses.replace(WISH, probe="quick")


@dataclasses.dataclass
class Night:
    exit_code: int
    record: records.RunRecord
    line: str

    @property
    def not_passed(self) -> list[str]:
        assert self.record.verdict is not None
        return [
            f.key for f in self.record.verdict.findings if f.status not in (records.Status.PASS, records.Status.SKIP)
        ]

    def finding(self, key: str) -> records.Finding:
        assert self.record.verdict is not None
        (found,) = [finding for finding in self.record.verdict.findings if finding.key == key]
        return found


class Nights:
    """A host that checks itself as often as it is asked to."""

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.results = folder / "drift"
        self._capfd = capfd

    def night(self, agent: Agent, plan: nightlyplan.NightlyPlan | None = None, expected: int | None = None) -> Night:
        file = write_plan(self.folder / "drift.json", plan or a_plan())
        self._capfd.readouterr()
        code = run.main(file, self.results, agent)
        out, err = self._capfd.readouterr()
        assert out.count("\n") == 1, f"one line in the journal, not: {out}"
        assert err == ""
        record = records.from_json(records.RunRecord, (self.results / "last.json").read_text())
        assert (record.exit_code, record.run_id in out) == (code, True)
        assert (self.results / "results" / f"{record.run_id}.json").exists()
        assert expected is None or code == expected, out
        return Night(code, record, out)

    def agent(self, snapshot: records.Snapshot | None, *measured: str) -> Agent:
        return answering(self.folder / f"agent-{os.urandom(4).hex()}", snapshot, probes(*measured))


@pytest.fixture(autouse=True)
def no_controller(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Another test may hold the real lock of this machine."""
    lock = tmp_path / "gpuprep.lock"
    monkeypatch.setattr(run, "CONTROLLERS_LOCK", lock)
    return lock


@pytest.fixture
def host(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> Nights:
    return Nights(tmp_path, capfd)


OFF = {"persistence_mode": False}


def test_a_machine_as_it_was_certified_passes(host: Nights) -> None:
    night = host.night(host.agent(facts()), expected=0)
    assert night.not_passed == []
    record = night.record
    assert (record.command, record.host, record.source) == ("drift", "gpu-1.example.org", records.Source.SIMULATED)
    assert record.profile == a_plan().profile
    assert record.drift is not None
    assert (record.drift.on_host, record.drift.certified_run) == (True, certified().run_id)
    assert night.line.startswith("gpuprep drift: PASS: profile t4, ")


def test_a_difference_is_found_dated_and_cleared(host: Nights) -> None:
    first = host.night(host.agent(facts()), expected=0)
    second = host.night(host.agent(facts(**OFF)), expected=1)
    assert second.not_passed == ["gpu 0.persistence_mode"]
    assert second.finding("gpu 0.persistence_mode").since == second.record.started_at
    assert second.record.drift is not None
    assert second.record.drift.previous_run == first.record.run_id
    third = host.night(host.agent(facts(**OFF)), expected=1)
    assert third.finding("gpu 0.persistence_mode").since == second.record.started_at
    assert host.night(host.agent(facts()), expected=0).not_passed == []


def test_a_difference_from_the_certified_run_that_was_gone_for_a_night_is_new(
    host: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is found only where something differs: a night without it looked all the same."""
    wide, lame = {"pcie": records.PcieLink(1, 16, 3, 16, 3, 0)}, {"pcie": records.PcieLink(1, 4, 3, 16, 3, 0)}
    record = dataclasses.replace(certified(), after=facts(**wide))
    plan = a_plan(certified=nightlyplan.certified_part(record))

    def night(day: int, gpu: dict[str, Any], code: int) -> Night:
        monkeypatch.setattr(run, "now", lambda: f"2026-11-{day:02d}T02:30:00+00:00")
        return host.night(host.agent(facts(**gpu)), plan, expected=code)

    night(1, wide, 0)
    first = night(2, lame, 1)
    assert (first.not_passed, first.finding("gpu 0.pcie").since[:10]) == (["gpu 0.pcie"], "2026-11-02")
    assert night(5, lame, 1).finding("gpu 0.pcie").since[:10] == "2026-11-02", "nights were missed"
    repaired = night(6, wide, 0)
    assert repaired.record.drift is not None
    assert repaired.record.drift.unseen == ()
    assert night(7, lame, 1).finding("gpu 0.pcie").since[:10] == "2026-11-07"
    assert plan.certified is not None
    assert plan.certified.history is None


def test_a_machine_made_from_the_image_of_another_has_no_dates_of_that_one(host: Nights) -> None:
    host.night(host.agent(facts(**OFF)), expected=1)
    clone = facts(uuid="GPU-clone", **OFF)
    kernel = dataclasses.replace(clone.kernel, boot_id="boot-clone")
    night = host.night(host.agent(dataclasses.replace(clone, hostname="clone", kernel=kernel)), expected=1)
    assert {"gpus.identity", "gpu 0.persistence_mode"} <= set(night.not_passed)
    assert night.finding("gpu 0.persistence_mode").since == night.record.started_at
    assert night.record.drift is not None
    assert night.record.drift.previous_run == ""


def test_a_waiver_of_the_plan_holds_on_the_host(host: Nights) -> None:
    waiver = profile.Waiver("gpu *.persistence_mode", "gpu-1.*", "ticket 7", "2999-12-31")
    night = host.night(host.agent(facts(**OFF)), a_plan(waivers=(waiver,)), expected=0)
    assert night.finding("gpu 0.persistence_mode").status is records.Status.WAIVED
    elsewhere = dataclasses.replace(waiver, hosts="gpu-2.*")
    host.night(host.agent(facts(**OFF)), a_plan(waivers=(elsewhere,)), expected=1)


# ---------------------------------------------------------------- a GPU that is gone


def lost() -> records.GpuFacts:
    (gpu,) = gpus_of(dataclasses.replace(certified(), after=facts()))
    gone = records.Missing("gpu_is_lost", "GPU is lost")
    names = {field.name for field in dataclasses.fields(records.GpuFacts)} - {"index", "uuid", "name", "pci_address"}
    readings: dict[str, Any] = {name: gone for name in names - {"pci_device_id", "power"}}
    power = dataclasses.replace(gpu.power, current_watts=gone, default_watts=gone, min_watts=gone, max_watts=gone)
    return dataclasses.replace(gpu, uuid="", name="", power=power, **readings)


VANISHED: dict[str, dict[str, Any]] = {
    "off the PCI bus, NVML has none": {"pci_gpus": (), "gpus": ()},
    "off the PCI bus, the driver did not load": {
        "pci_gpus": (),
        "gpus": records.Missing("driver_not_loaded", "NVML: Driver Not Loaded"),
    },
    "on the bus, not for NVML": {"gpus": ()},
    "on the bus, NVML does not answer": {"gpus": records.Missing("command_failed", "NVML: Unknown Error")},
    "fallen off while the driver ran": {"gpus": (lost(),)},
}


@pytest.mark.parametrize("case", VANISHED)
@pytest.mark.parametrize("known", ["certified", "nothing certified"])
@pytest.mark.parametrize("probe", ["none", "quick"])
def test_a_gpu_that_vanished_is_never_a_pass(host: Nights, case: str, known: str, probe: str) -> None:
    plan = a_plan(drift=dataclasses.replace(WISH, probe=probe))
    if known == "nothing certified":
        plan = dataclasses.replace(plan, certified=None)
    night = host.night(host.agent(dataclasses.replace(facts(), **VANISHED[case]), "gemm", "bandwidth"), plan)
    assert night.exit_code in (1, 3)
    assert night.record.error is None
    said = [night.finding(key) for key in night.not_passed]
    assert any("gpu" in f"{finding.key} {finding.reason}".lower() for finding in said), said
    assert night.record.measurements == () or case.startswith("fallen")


# ---------------------------------------------------------------- the quick probe


def test_the_quick_probe_is_made_where_the_gpu_is_free(host: Nights) -> None:
    night = host.night(host.agent(facts(), "gemm", "bandwidth"), a_plan(drift=QUICK))
    assert [result.probe for result in night.record.measurements] == ["gemm", "bandwidth"]
    assert night.record.drift is not None
    assert (night.record.drift.probe, night.record.drift.probe_skipped) == ("quick", "")
    assert night.record.verdict is not None
    assert any("gemm" in finding.key for finding in night.record.verdict.findings)


def test_no_probe_beside_another_process(host: Nights) -> None:
    busy = BUSY
    night = host.night(host.agent(busy), a_plan(drift=QUICK), expected=0)
    assert night.record.measurements == ()
    assert night.record.drift is not None
    assert night.record.drift.probe_skipped == "in use by ffmpeg (pid 4711) on gpu 0"
    assert night.finding("speed.quick_probe").status is records.Status.SKIP


BUSY = facts(processes=(records.ProcessOnGpu(4711, "ffmpeg", 300),))


def noted(night: Night) -> tuple[str, str]:
    """Since when it is asked to measure, and when it last did."""
    assert night.record.drift is not None
    return night.record.drift.probe_asked_since, night.record.drift.probe_measured_at


def test_nights_that_do_not_measure_keep_when_it_was_measured_last(
    host: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through nights with a busy GPU, with no facts, with one result kept, and with a result that is damaged."""
    days = iter(range(2, 29))

    def night(agent: Agent, plan: nightlyplan.NightlyPlan) -> Night:
        moment = f"2026-10-{next(days):02}T02:30:00+00:00"
        monkeypatch.setattr(run, "now", lambda: moment)
        return host.night(agent, plan)

    quick, measuring = a_plan(drift=dataclasses.replace(QUICK, keep=1)), host.agent(facts(), "gemm", "bandwidth")
    assert noted(night(host.agent(BUSY), quick)) == ("2026-10-02T02:30:00+00:00", "")
    assert noted(night(host.agent(facts(), "gemm"), quick)) == ("2026-10-02T02:30:00+00:00", ""), "half is not measured"
    measured = ("2026-10-02T02:30:00+00:00", "2026-10-04T02:30:00+00:00")
    assert noted(night(measuring, quick)) == measured
    for agent in (host.agent(BUSY), host.agent(None), host.agent(BUSY)):
        assert noted(night(agent, quick)) == measured
    (host.results / "last.json").write_text("torn")
    assert noted(night(host.agent(BUSY), quick)) == measured
    assert noted(night(measuring, quick)) == (measured[0], "2026-10-09T02:30:00+00:00")
    assert noted(night(host.agent(facts()), a_plan())) == ("", ""), "it is not asked to"
    assert noted(night(host.agent(BUSY), quick)) == ("2026-10-11T02:30:00+00:00", "")


@pytest.mark.parametrize("spoiled", ["2999-01-01T00:00:00+00:00", "yesterday", ""])
def test_what_is_no_moment_or_of_a_time_to_come_is_forgotten(host: Nights, spoiled: str) -> None:
    """A clock that was wrong for one night must not hide for years that nothing is measured."""
    night = after(host, facts(), spoiled, spoiled)
    assert noted(night) == (night.record.ended_at, "")


def test_what_another_machine_measured_is_not_ours(host: Nights) -> None:
    monday, tuesday = "2026-11-16T02:30:00+00:00", "2026-11-17T02:30:00+00:00"
    kernel = dataclasses.replace(facts().kernel, boot_id="another boot")
    elsewhere = dataclasses.replace(facts(), hostname="another", kernel=kernel)
    night = after(host, elsewhere, monday, tuesday)
    assert noted(night) == (night.record.ended_at, "")
    assert noted(after(host, facts(), monday, tuesday)) == (monday, tuesday)
    assert noted(after(host, None, monday, tuesday)) == (monday, tuesday), "an older result says nothing of its machine"


def after(host: Nights, machine: records.Snapshot | None, asked_since: str, measured_at: str) -> Night:
    """A night with a busy GPU after one of that machine that noted these moments."""
    drift = records.DriftFacts(probe_asked_since=asked_since, probe_measured_at=measured_at)
    with results.Results(host.results).lock():
        before = result(after=machine, drift=drift, run_id=ids.new_run_id())
        results.Results(host.results).keep(before, 60)
    return host.night(host.agent(BUSY), a_plan(drift=QUICK))


def test_a_profile_without_cuda_is_asked_for_no_speed(host: Nights) -> None:
    """Its night is SKIP for good, and nobody is to be told every week that it was not measured."""
    plan = a_plan(drift=QUICK)
    plan = dataclasses.replace(plan, wanted=with_parts(plan.wanted, cuda={"version": "none"}))
    assert noted(host.night(host.agent(facts()), plan)) == ("", "")


def test_the_metrics_say_when_the_speed_was_measured(host: Nights, tmp_path: Path) -> None:
    plan = a_plan(drift=dataclasses.replace(QUICK, textfile_directory=str(tmp_path)))
    metrics = tmp_path / METRICS_FILE
    host.night(host.agent(BUSY), plan)
    assert "gpuprep_drift_probe_asked_since_timestamp_seconds{" in metrics.read_text()
    assert "gpuprep_drift_probe_last_measured_timestamp_seconds" not in metrics.read_text()
    for agent in (host.agent(facts(), "gemm", "bandwidth"), host.agent(BUSY)):
        host.night(agent, plan)
        assert "gpuprep_drift_probe_last_measured_timestamp_seconds{" in metrics.read_text()
    host.night(host.agent(facts()), a_plan(drift=dataclasses.replace(WISH, textfile_directory=str(tmp_path))))
    assert "_probe_" not in metrics.read_text()
    assert 'gpuprep_drift_random_delay_seconds{host="gpu-1.example.org"' in metrics.read_text()


def test_no_probe_where_nobody_can_tell_who_uses_the_gpu(host: Nights) -> None:
    silent = facts(processes=records.Missing("no_permission", "Insufficient Permissions"))
    night = host.night(host.agent(silent), a_plan(drift=QUICK), expected=3)
    assert night.record.measurements == ()
    assert night.finding("speed.quick_probe").status is records.Status.UNKNOWN


def test_a_process_that_comes_between_two_probes_ends_the_measuring(host: Nights, tmp_path: Path) -> None:
    """The agent's second answer shows a process."""
    folder = tmp_path / "agent"
    answering(folder, facts(), probes("gemm", "bandwidth"))
    answering(folder / "later", facts(processes=(records.ProcessOnGpu(4711, "train.py", 300),)))
    second = 'cat >/dev/null; cat "$0/$1${2:+-$2}.json"; [ "$1" = facts ] || cp "$0/later/facts.json" "$0"'
    night = host.night(agent_of(second, folder), a_plan(drift=QUICK))
    assert [result.probe for result in night.record.measurements] == ["gemm"]
    assert night.record.drift is not None
    assert night.record.drift.probe_skipped == "in use by train.py (pid 4711) on gpu 0"


def test_a_probe_that_breaks_is_missing_evidence(host: Nights) -> None:
    night = host.night(host.agent(facts(), "bandwidth"), a_plan(drift=QUICK))
    (gemm, bandwidth) = night.record.measurements
    assert isinstance(gemm.values, records.Missing)
    assert "ended with exit code 1" in gemm.values.detail
    assert isinstance(bandwidth.values, dict)
    assert night.exit_code in (1, 3)
    assert any(key.startswith("gemm") or "gemm" in key for key in night.not_passed)


def test_figures_are_compared_with_the_plans_baseline(host: Nights) -> None:
    """Of measured GPUs only: a simulated one has no past worth comparing."""
    measured = tuple(map(as_measured, probes("bandwidth", "gemm")))
    (bandwidth,) = [one for one in measured if one.probe == "bandwidth"]
    assert isinstance(bandwidth.values, dict)
    (gpu,) = bandwidth.values["gpus"]
    snapshot = dataclasses.replace(facts(uuid=gpu["uuid"]), source=records.Source.MEASURED)
    twice = {
        key: {
            name: baseline.BaselineFigure(2 * value, "a-run", "2026-11-01T00:00:00+00:00")
            for name, value in figures.items()
        }
        for key, figures in checks.comparable(snapshot, measured).items()
    }
    plan = a_plan(drift=QUICK, baseline=nightlyplan.entries(twice))
    night = host.night(answering(host.folder / "agent", snapshot, measured), plan, expected=1)
    assert {"gpu 0.bandwidth_history", "gpu 0.gemm_history"} <= set(night.not_passed)
    assert night.record.drift is not None
    assert {one.now / one.before for one in night.record.drift.compared} == {0.5}


def without_baseline() -> tuple[records.Snapshot, tuple[records.ProbeResult, ...]]:
    """What a real GPU answers; WARN where nothing is known of its speed."""
    snapshot = dataclasses.replace(facts(), source=records.Source.MEASURED)
    return snapshot, tuple(map(as_measured, probes("bandwidth", "gemm")))


def test_a_night_whose_plan_has_no_baseline_says_so(host: Nights) -> None:
    night = host.night(answering(host.folder / "agent", *without_baseline()), a_plan(drift=QUICK), expected=0)
    assert sorted(night.not_passed) == ["gpu 0.bandwidth_history", "gpu 0.gemm_history"]
    assert night.finding("gpu 0.gemm_history").status is records.Status.WARN
    simulated = host.night(host.agent(facts(), "gemm", "bandwidth"), a_plan(drift=QUICK), expected=0)
    assert (simulated.not_passed, simulated.finding("speed.history").status) == ([], records.Status.SKIP)


# ---------------------------------------------------------------- nights without evidence


@pytest.mark.parametrize(
    ("program", "said"),
    [
        ("exit 3", "facts ended with exit code 3; its output: nothing"),
        ("echo Traceback >&2; echo no driver >&2; exit 1", "its output: Traceback | no driver"),
        ("kill -SEGV $$", "facts ended with signal 11"),
        ("echo hello", "answered no Snapshot"),
        ("printf '[%.0s' $(seq 9999)", "answered no Snapshot"),
        ("exec sleep infinity", "facts took longer than 0.3 s"),
        ("sleep infinity & sleep infinity", "facts took longer than 0.3 s"),
    ],
)
def test_a_night_without_facts_leaves_a_result(host: Nights, program: str, said: str) -> None:
    night = host.night(agent_of(program, patience=0.3 if "sleep" in program else 600.0), expected=3)
    assert night.record.verdict is None
    assert said in (night.record.error or "")
    assert night.line.startswith("gpuprep drift: UNKNOWN: gpuprep-agent facts ")


def test_an_agent_that_is_not_there(host: Nights) -> None:
    night = host.night(Agent(["/nowhere/python"]), expected=3)
    assert "cannot be started" in (night.record.error or "")


def test_a_night_without_evidence_does_not_reset_since(host: Nights) -> None:
    first = host.night(host.agent(facts(**OFF)), expected=1)
    host.night(host.agent(None), expected=3)
    third = host.night(host.agent(facts(**OFF)), expected=1)
    assert third.finding("gpu 0.persistence_mode").since == first.record.started_at
    assert third.record.drift is not None
    assert third.record.drift.previous_run == first.record.run_id


def test_an_error_inside_of_gpuprep_leaves_a_result(host: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr("gpuprep.checks.judgement.judge", broken)
    night = host.night(host.agent(facts()), expected=3)
    assert (night.record.error or "").startswith("an error inside gpuprep while judging: KeyError: 'x' (test_night_run")


def test_while_the_controller_changes_the_machine_nothing_is_compared(host: Nights, no_controller: Path) -> None:
    no_controller.touch(0o600)
    with no_controller.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        night = host.night(host.agent(facts()), expected=3)
    assert "gpuprep changes this machine now" in (night.record.error or "")
    host.night(host.agent(facts()), expected=0)


def night_of(folder: Path, first: str = "") -> subprocess.Popen[str]:
    """A check as a process of its own, whose agent is agent.sh in `folder`; `first` is what it does before."""
    script = (
        "import sys; from pathlib import Path\n"
        "from gpuprep.nightly import run; from gpuprep.nightly.run import Agent\n"
        "folder = Path(sys.argv[1]); run.CONTROLLERS_LOCK = folder / 'none'\n"
        "sys.exit(run.main(folder / 'drift.json', folder / 'drift', Agent(['sh', str(folder / 'agent.sh')])))\n"
    )
    return subprocess.Popen([sys.executable, "-c", first + script, str(folder)], stdout=subprocess.PIPE, text=True)


def test_a_check_that_is_told_to_end_says_so(tmp_path: Path) -> None:
    """systemd's TERM, at a shutdown for example."""
    write_plan(tmp_path / "drift.json", a_plan())
    (tmp_path / "agent.sh").write_text(f": > {tmp_path}/asked; exec sleep infinity")
    with night_of(tmp_path, "from gpuprep.agent.programs import children; children.watch()\n") as process:
        until(lambda: (tmp_path / "asked").exists() or process.poll() is not None, "nothing was asked for", 600)
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        said = process.stdout.read()
    assert process.returncode == 128 + signal.SIGTERM
    assert said.count("\n") == 1
    assert "the check was told to end (exit code 143) while reading facts" in said
    assert read_json(tmp_path / "drift" / "last.json")["exit_code"] == 3


# ---------------------------------------------------------------- before a night begins


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "is not there: no nightly check is scheduled on this host"),
        ("", "cannot be used: not JSON"),
        ('{"host": "gpu-1"}', "cannot be used: NightlyPlan.profile: missing"),
        ("[" * 100_000, "cannot be used: "),
    ],
)
def test_without_a_plan_there_is_one_clear_line_and_nothing_changes(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], content: str | None, said: str
) -> None:
    plan = tmp_path / "drift.json"
    if content is not None:
        plan.write_text(content)
    assert run.main(plan, tmp_path / "drift") == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert said in err
    assert "what to do: run `gpuprep drift schedule HOST" in err
    assert not (tmp_path / "drift").exists()


# ---------------------------------------------------------------- what else a night leaves


def test_metrics_are_written_where_the_folder_is(host: Nights, tmp_path: Path) -> None:
    folder = tmp_path / "textfile"
    plan = a_plan(drift=dataclasses.replace(WISH, textfile_directory=str(folder)))
    assert "metrics" not in host.night(host.agent(facts()), plan, expected=0).line
    folder.mkdir()
    (folder / f".{METRICS_FILE}.0a1b.part").write_text("torn")
    night = host.night(host.agent(facts()), plan, expected=0)
    assert [path.name for path in folder.iterdir()] == [METRICS_FILE]
    assert night.record.run_id in (folder / METRICS_FILE).read_text()


def test_metrics_that_fail_do_not_cost_the_result(host: Nights, tmp_path: Path) -> None:
    (tmp_path / "textfile" / METRICS_FILE).mkdir(parents=True)
    plan = a_plan(drift=dataclasses.replace(WISH, textfile_directory=str(tmp_path / "textfile")))
    night = host.night(host.agent(facts()), plan, expected=0)
    assert "; no metrics: " in night.line


@pytest.mark.parametrize("gpu", [{}, OFF])
def test_a_result_that_cannot_be_kept_is_told_and_is_no_success(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], gpu: dict[str, Any]
) -> None:
    told = tmp_path / "told"
    wish = dataclasses.replace(WISH, notify=profile.NotifyWish("", "", f"cat > {told}"))
    plan = write_plan(tmp_path / "drift.json", a_plan(drift=wish))
    (tmp_path / "drift" / "last.json").mkdir(parents=True)
    assert run.main(plan, tmp_path / "drift", answering(tmp_path / "agent", facts(**gpu))) == 3
    out, _ = capfd.readouterr()
    assert "last.json counts as absent: " in out
    assert "; the result is not kept: " in out
    assert told.exists() == bool(gpu)
    assert not gpu or read_json(told)["verdict"] == "FAIL"


def on_a_full_disk(folder: Path, words: str) -> subprocess.CompletedProcess[str]:
    """`words` in a program that can make files and write nothing into them: write(2) fails, as on a full disk."""
    script = (
        "import resource, signal, sys; from pathlib import Path; from gpuprep.nightly import run\n"
        "from gpuprep.nightly.run import Agent; folder = Path(sys.argv[1]); run.CONTROLLERS_LOCK = folder / 'none'\n"
        f"agent = Agent(['sh', '-c', {ANSWERS!r}, str(folder / 'agent')])\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        f"sys.exit({words})\n"
    )
    # Coverage, too, could not write its file, and would say so among what is read here.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    command = [sys.executable, "-c", script, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_on_a_full_disk_a_change_is_told_and_yesterdays_pass_is_nobodys_answer(host: Nights, tmp_path: Path) -> None:
    told = tmp_path / "told"
    command = f"""grep -q '"verdict": "FAIL", "previous": "PASS"' && mkdir {told}"""  # which takes no room
    wish = dataclasses.replace(WISH, notify=profile.NotifyWish("", "", command))
    first = host.night(answering(tmp_path / "agent", facts()), a_plan(drift=wish), expected=0)
    (host.results / "results" / f"{first.record.run_id}.json").unlink()  # killed before it filed its result
    answering(tmp_path / "agent", facts(**OFF))
    done = on_a_full_disk(tmp_path, "run.main(folder / 'drift.json', folder / 'drift', agent)")
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout.count("\n") == 1
    for said in (
        "drift: FAIL",
        "; the result is not kept: ",
        "the results of the previous run are damaged: ",
        "; command notified",
        "may be sent again",
    ):
        assert said in done.stdout
    assert told.is_dir()
    assert sorted(path.name for path in host.results.rglob("*")) == ["lock", "results", "state.json"]
    now = datetime.now(timezone.utc)
    assert asked("npd", now=now, last=host.results / "last.json", plan=tmp_path / "drift.json")[0] == 2


def test_where_the_newest_result_is_not_kept_the_one_before_is_shown_and_not_believed(
    host: Nights, capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "hostname").write_text("gpu-1\n")
    this_machine(monkeypatch, tmp_path / "hostname", tmp_path / "none")
    night = host.night(host.agent(facts()), expected=0)
    assert last.main(host.results) == 0
    (host.results / "last.json").unlink()
    assert last.main(host.results) == 3
    out, err = capfd.readouterr()
    assert "the newest result could not be kept" in err
    assert night.record.run_id in out


def test_a_change_is_told_and_the_journal_says_so(host: Nights, tmp_path: Path) -> None:
    told = tmp_path / "told"
    wish = profile.DriftWish("02:30", 30, "none", 60, "", profile.NotifyWish("", "", f"cat >> {told}; echo >> {told}"))
    for snapshot, said in ((facts(), ""), (facts(**OFF), "; command notified"), (facts(**OFF), "")):
        assert host.night(host.agent(snapshot), a_plan(drift=wish)).line.rstrip().endswith(f"){said}")
    (line,) = told.read_text().splitlines()
    assert json.loads(line)["previous"] == "PASS"


def test_a_run_that_was_killed_after_its_result_is_still_told(host: Nights, tmp_path: Path) -> None:
    told = tmp_path / "told"
    plan = a_plan(drift=dataclasses.replace(WISH, notify=profile.NotifyWish("", "", f"cat >> {told}; echo >> {told}")))
    host.night(host.agent(facts()), plan, expected=0)
    with results.Results(host.results).lock():
        results.Results(host.results).keep(result(records.Status.FAIL, run_id=ids.new_run_id()), 60)
    host.night(host.agent(facts()), plan, expected=0)
    verdicts = [json.loads(line)["verdict"] for line in told.read_text().splitlines()]
    assert verdicts == ["FAIL", "PASS"]


def test_the_journal_gets_a_priority(host: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where systemd says that its journal is what we write to."""
    place = os.fstat(sys.stdout.fileno())
    slow, measuring = answering(host.folder / "slow", *without_baseline()), a_plan(drift=QUICK)
    as_ever, off, silent = host.agent(facts()), host.agent(facts(**OFF)), host.agent(None)
    monkeypatch.setenv("JOURNAL_STREAM", f"{place.st_dev}:{place.st_ino}")
    for agent, plan, mark in ((as_ever, None, 6), (slow, measuring, 4), (off, None, 3), (silent, None, 3)):
        assert host.night(agent, plan).line.startswith(f"<{mark}>gpuprep drift: ")
    monkeypatch.setenv("JOURNAL_STREAM", "1:2")
    assert host.night(host.agent(facts())).line.startswith("gpuprep drift: ")


# ---------------------------------------------------------------- the program itself


def drift_program(*words: str, package: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """The program of the package below a folder, and of no other."""
    start = (
        "import runpy, sys; sys.path.insert(0, sys.argv.pop(1))\n"
        "runpy.run_module('gpuprep.nightly', run_name='__main__', alter_sys=True)\n"
    )
    command = [sys.executable, "-I", "-c", start, str(package), *words]
    return subprocess.run(command, capture_output=True, text=True, cwd="/", check=False)


def test_a_machine_without_a_gpu_checks_itself_with_what_is_installed_there(tmp_path: Path) -> None:
    """This machine: the whole program, its real agent and no mercy; of gpuprep only the parts that travel."""
    installed_package(tmp_path)
    plan = write_plan(tmp_path / "drift.json", a_plan(drift=QUICK))
    where = ["--results", str(tmp_path / "drift")]
    assert drift_program("last", *where, package=tmp_path).returncode == 3
    done = drift_program("run", "--plan", str(plan), *where, package=tmp_path)
    assert done.returncode in (1, 3), done.stderr
    assert done.stdout.count("\n") == 1
    record = records.from_json(records.RunRecord, (tmp_path / "drift" / "last.json").read_text())
    assert record.error is None
    assert record.drift is not None
    assert record.drift.probe_skipped
    shown = drift_program("last", *where, package=tmp_path)
    assert shown.returncode == done.returncode
    assert "speed not measured: " in shown.stdout
    shown = drift_program("last", "--json", *where, package=tmp_path)
    assert json.loads(shown.stdout)["run_id"] == record.run_id


def gate_of(path: Path, reader: subprocess.Popen[str]) -> TextIO:
    """The pipe, opened when that program reads it. One that ended before it came so far fails the test."""
    found: list[int] = []

    def opens() -> bool:
        with contextlib.suppress(OSError):  # nobody reads it yet
            found.append(os.open(path, os.O_WRONLY | os.O_NONBLOCK))
        return bool(found) or reader.poll() is not None

    until(opens, "nobody reads the pipe", 600)
    assert found, f"ended with {reader.returncode}"
    return os.fdopen(found[0], "w")


def test_two_at_once(tmp_path: Path) -> None:
    """The second says so and touches nothing."""
    plan = write_plan(tmp_path / "drift.json", a_plan())
    os.mkfifo(tmp_path / "gate")
    (tmp_path / "agent.sh").write_text(f"cat >/dev/null; cat {tmp_path}/gate")
    with night_of(tmp_path) as first:
        with gate_of(tmp_path / "gate", first) as gate:
            second = drift_program("run", "--plan", str(plan), "--results", str(tmp_path / "drift"))
            assert sorted(path.name for path in (tmp_path / "drift").iterdir()) == ["lock", "results"]
            gate.write("no facts\n")
        assert first.stdout is not None
        assert "UNKNOWN" in first.stdout.read()
    assert (first.returncode, second.returncode) == (3, 3)
    assert second.stdout == ""
    assert f"a check of this host is at work already (process {first.pid})" in second.stderr
    assert len(list((tmp_path / "drift" / "results").iterdir())) == 1


def test_a_difference_is_told_from_a_crash(tmp_path: Path) -> None:
    """A Python that cannot start the program ends with 1: systemd must not take that for a check that did its work."""
    unit = configparser.ConfigParser(strict=False)
    unit.read_string(units.files(WISH)[host_paths.DRIFT_SERVICE_FILE])
    program, *words = unit["Service"]["ExecStart"].split()
    good = {0, int(unit["Service"]["SuccessExitStatus"])}
    assert program == host_paths.DRIFT_PROGRAM
    gone = dataclasses.replace(facts(), gpus=())
    (tmp_path / "facts.json").write_text(records.to_json(gone))
    plan = write_plan(tmp_path / "drift.json", a_plan())
    where = ["--plan", str(plan), "--results", str(tmp_path / "drift")]
    start = (
        "import sys; from pathlib import Path; from gpuprep.nightly import __main__, run\n"
        f"run.CONTROLLERS_LOCK = Path({str(tmp_path / 'none')!r})\n"
        f"run.Agent.__init__.__defaults__ = (('sh', '-c', 'cat >/dev/null; cat {tmp_path}/facts.json'), 600.0)\n"
        "sys.exit(__main__.main(sys.argv[1:]))\n"
    )

    def ends(*argv: str) -> int:
        return subprocess.run([sys.executable, "-c", start, *argv], stdout=subprocess.DEVNULL, check=False).returncode

    assert (ends("run", *where), ends(*words, *where)) == (1, 10)
    assert 10 in good
    broken = subprocess.run([sys.executable, "-I", "-m", "gpuprep_is_not_here"], capture_output=True, check=False)
    assert broken.returncode not in good
    (tmp_path / "drift" / "lock").unlink()
    (tmp_path / "drift" / "lock").mkdir()
    assert ends(*words, *where) == 3
    assert 3 not in good


@pytest.mark.parametrize(
    ("words", "broken", "code", "said"),
    [
        (["run"], "gpuprep.nightly.run", 3, "Error: an error inside gpuprep: ModuleNotFoundError: "),
        (["run", "--service"], "yaml", 3, "Error: an error inside gpuprep: ModuleNotFoundError: "),
        (["last"], "gpuprep.nightly.last", 3, "Error: an error inside gpuprep: ModuleNotFoundError: "),
        (["slurm"], "gpuprep.records", 3, "Error: an error inside gpuprep: ModuleNotFoundError: "),
        (["npd"], "gpuprep.records", 2, "gpuprep UNKNOWN: an error inside gpuprep: ModuleNotFoundError: "),
    ],
)
def test_a_program_that_is_broken_says_so_in_a_line(words: list[str], broken: str, code: int, said: str) -> None:
    start = (
        f"import sys; sys.modules[{broken!r}] = None\n"
        "from gpuprep.nightly import __main__\n"
        "sys.exit(__main__.main(sys.argv[1:]))\n"
    )
    done = subprocess.run([sys.executable, "-c", start, *words], capture_output=True, text=True, check=False)
    assert done.returncode == code
    (line,) = (done.stdout + done.stderr).splitlines()
    assert line.startswith(said)
    assert ("what to do: `gpuprep provision` renews the agent" in line) == (words != ["npd"])
    if words == ["npd"]:
        assert (done.stdout, len(line)) == (f"{line}\n", 80)


@pytest.mark.parametrize("words", [[], ["nonsense"], ["last", "--plan", "x"]])
def test_a_wrong_command_line(words: list[str]) -> None:
    assert drift_program(*words).returncode == 2


def test_the_nights_service_waits_until_gpuprep_has_changed_the_machine(
    host: Nights, no_controller: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    no_controller.touch(0o600)
    plan = write_plan(host.folder / "drift.json", a_plan())
    with no_controller.open() as held, ThreadPoolExecutor(1) as other:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert run.main(plan, host.results, host.agent(facts()), patience=0.01) == 3, "not for ever"
        assert "gpuprep changes this machine now" in capfd.readouterr().out
        inode = f":{no_controller.stat().st_ino} "

        def let_go() -> None:
            while not any("->" in line and inode in line for line in Path("/proc/locks").read_text().splitlines()):
                os.sched_yield()
            fcntl.flock(held, fcntl.LOCK_UN)

        ended = other.submit(let_go)
        assert run.main(plan, host.results, host.agent(facts()), patience=3600) == 0
        ended.result()
