"""gpuprep trace record: a program runs unchanged under a profiler, with its own output, signals and exit code."""

from __future__ import annotations

import atexit
import gzip
import importlib.util
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import tracesteps
from records_for_tests import record as host_record
from traceserver import GPUPREP

from gpuprep.store import Store

SECRET = "hunter2-must-never-be-shown"
TRAIN = """
import os, sys, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(int(sys.argv[1])):
    optimizer.zero_grad()
    loss = model(torch.ones(32, 64)).square().mean()
    loss.backward()
    optimizer.step()
print("loss", round(loss.item(), 4))
sys.exit(int(sys.argv[2]))
"""
Run = Callable[..., subprocess.CompletedProcess[str]]


def python_with_torch() -> str:
    """A Python of this machine that has PyTorch; gpuprep's own has none."""
    for python in (sys.executable, "/usr/bin/python3"):
        if shutil.which(python):
            # To import it takes seconds, of each worker that reads this file.
            look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
            if subprocess.run([python, "-c", look], capture_output=True, check=False).returncode == 0:
                return python
    return ""


TORCH = python_with_torch()
needs_torch = pytest.mark.skipif(not TORCH, reason="PyTorch is not installed (Debian: python3-torch)")


def environment(tmp_path: Path) -> dict[str, str]:
    mine = {f"XDG_{name}_HOME": str(tmp_path / name) for name in ("STATE", "CACHE", "CONFIG")}
    return {**os.environ, **mine, "API_TOKEN": SECRET}


@pytest.fixture
def gpuprep(tmp_path: Path) -> Run:
    (tmp_path / "train.py").write_text(TRAIN)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*GPUPREP, "trace", "record", "-o", str(tmp_path / "out"), *words],
            env=environment(tmp_path), cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip

    return run


def events(path: Path) -> list[dict[str, Any]]:
    """Of a trace; a PyTorch that was built without Kineto writes a bare list."""
    found = json.loads(gzip.decompress(path.read_bytes()))
    listed: list[dict[str, Any]] = found if isinstance(found, list) else found["traceEvents"]
    return listed


def steps(path: Path) -> list[str]:
    return sorted({event["name"] for event in events(path) if str(event.get("name", "")).startswith("ProfilerStep#")})


@needs_torch
@pytest.mark.parametrize("code", [0, 7])
def test_a_program_is_recorded_and_nothing_of_it_changes(gpuprep: Run, tmp_path: Path, code: int) -> None:
    plain = subprocess.run(
        [TORCH, str(tmp_path / "train.py"), "20", str(code)], capture_output=True, text=True, check=False
    )
    done = gpuprep("--", TORCH, "train.py", "20", str(code))
    assert (done.returncode, done.stdout) == (code, plain.stdout)
    trace = tmp_path / "out" / "train.pt.trace.json.gz"
    assert len(steps(trace)) == 5
    found = {kind: [event for event in events(trace) if event["name"].startswith(kind)]
             for kind in ("ProfilerStep#", "Optimizer.step#")}  # fmt: skip
    ends = [event["ts"] + event["dur"] for event in found["ProfilerStep#"]]
    # A step ends behind the optimizer's range, never inside.
    assert not any(event["ts"] < end < event["ts"] + event["dur"] for event in found["Optimizer.step#"] for end in ends)
    assert len(found["Optimizer.step#"]) == 5
    assert f"gpuprep trace report {trace}" in done.stderr
    told = tracesteps.beside(trace)
    assert told.machine["Framework"].startswith("PyTorch ")
    assert told.machine["Python"]


@needs_torch
def test_nothing_of_the_environment_is_written_down(gpuprep: Run, tmp_path: Path) -> None:
    assert gpuprep("--stacks", "--memory", "--", TORCH, "train.py", "12", "0").returncode == 0
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert len(files) == 2
    for path in files:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        assert SECRET.encode() not in data, path


@needs_torch
@pytest.mark.parametrize(
    ("words", "ran", "recorded"),
    [
        (("--wait", "0", "--warmup", "1", "--active", "2"), "9", 2),
        (("--steps-from", "forward", "--wait", "1", "--warmup", "1", "--active", "3"), "9", 3),
        (("--steps-from", "torch.nn.functional:relu", "--wait", "0", "--warmup", "1", "--active", "2"), "9", 2),
        (("--steps-from", "none"), "3", 0),
        (("--wait", "1", "--warmup", "1", "--active", "50"), "8", 6),  # it ended earlier: what there is is kept
    ],
)
def test_what_a_step_is_and_how_many_are_recorded(
    gpuprep: Run, tmp_path: Path, words: tuple[str, ...], ran: str, recorded: int
) -> None:
    done = gpuprep(*words, "--", TORCH, "train.py", ran, "0")
    assert done.returncode == 0, done.stderr
    trace = tmp_path / "out" / "train.pt.trace.json.gz"
    assert len(steps(trace)) == recorded
    assert any(event["name"] == "aten::addmm" for event in events(trace))


@needs_torch
@pytest.mark.parametrize(
    ("program", "said"),
    [
        (("train.py", "4", "0"), "it ended after 4 steps, before the recording began"),
        (("-c", "import torch"), "no step ended"),
        (("-c", "print(1)"), "no Python of the program imported torch"),
        (("-I", "-c", "import torch"), "no Python of the program imported torch"),
    ],
)
def test_why_nothing_was_recorded(gpuprep: Run, program: tuple[str, ...], said: str) -> None:
    done = gpuprep("--", TORCH, *program)
    assert done.returncode == 3
    assert said in done.stderr


@needs_torch
def test_each_rank_writes_a_trace_of_its_own(gpuprep: Run, tmp_path: Path) -> None:
    launcher = "for rank in 0 1; do RANK=$rank $0 train.py 12 0 & done; wait"
    assert gpuprep("--", "sh", "-c", launcher, TORCH).returncode == 0
    found = sorted(path.name for path in (tmp_path / "out").glob("*.gz"))
    assert found == ["rank0000.pt.trace.json.gz", "rank0001.pt.trace.json.gz"]


@needs_torch
def test_a_profiler_that_fails_does_not_disturb_the_program(gpuprep: Run, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "import torch.profiler\n"
        "def broken(*_, **__):\n    raise OSError('no room')\n"
        "torch.profiler.profile.export_chrome_trace = broken\n" + TRAIN
    )
    done = gpuprep("--", TORCH, "own.py", "20", "0")
    assert done.stdout.startswith("loss ")
    assert done.returncode == 3
    assert "OSError: no room" in done.stderr


def test_a_sitecustomize_of_the_user_still_runs(gpuprep: Run, tmp_path: Path) -> None:
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text("import sys\nsys.stdout.write('theirs\\n')\n")
    code = f"import os; os.environ['PYTHONPATH'] += ':{folder}'; os.execvp('python3', ['python3', '-c', 'print(1)'])"
    assert gpuprep("--", "/usr/bin/python3", "-S", "-c", code).stdout == "theirs\n1\n"


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--", "/nowhere/python"), 2, "/nowhere/python cannot be started"),
        (("--steps-from", "sometimes", "--", "true"), 2, "--steps-from sometimes"),
        (("--steps-from", "__main__:step", "--", "true"), 2, "cannot be watched"),
        (("--with", "nsys", "--", "true"), 2, "nsys is not installed"),
        ((), 2, "Missing argument"),
    ],
)
def test_wrong_usage(gpuprep: Run, words: tuple[str, ...], code: int, said: str) -> None:
    done = gpuprep(*words)
    assert done.returncode == code
    assert said in done.stderr


@pytest.mark.parametrize(
    ("program", "code"), [(("sh", "-c", "kill -TERM $$"), 143), (("sh", "-c", "kill -KILL $$"), 137), (("false",), 1)]
)
def test_how_the_program_ended_is_how_gpuprep_ends(gpuprep: Run, program: tuple[str, ...], code: int) -> None:
    assert gpuprep("--", *program).returncode == code


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])
def test_signals_reach_the_program_once(tmp_path: Path, number: signal.Signals) -> None:
    script = tmp_path / "waits.py"
    script.write_text(
        "import signal, sys, time\n"
        "got = []\n"
        f"signal.signal({int(number)}, lambda *_: got.append(1))\n"
        "print('ready', flush=True)\n"
        "while not got:\n    time.sleep(0.01)\n"
        "time.sleep(0.3)\n"
        "print('got', len(got))\n"
        "sys.exit(42)\n"
    )
    running = subprocess.Popen(
        [*GPUPREP, "trace", "record", "-o", str(tmp_path / "out"), "--", "/usr/bin/python3", str(script)],
        env=environment(tmp_path), stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    running.send_signal(number)
    out, _ = running.communicate(timeout=300)
    assert (running.returncode, out) == (42, "got 1\n")


# ---------------------------------------------------------------- Nsight Systems


def export(path: Path) -> None:
    """As nsys export writes it, as far as the environment goes."""
    connection = sqlite3.connect(path)
    with connection:
        connection.execute(
            "CREATE TABLE TARGET_INFO_SYSTEM_ENV (devStateName TEXT, name TEXT, nameEnum INT, value TEXT)"
        )
        rows = [("Local (CLI)", "Hostname", 619, "gpu1"), ("Local (CLI)", "DeviceEnvironment", 610, f"API={SECRET}")]
        connection.executemany("INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (?, ?, ?, ?)", rows)
    connection.close()


def test_nsys_is_asked_and_its_report_is_exported(tmp_path: Path) -> None:
    """With a stand-in for nsys, which is not on this machine: it runs the program and writes what nsys would.

    Notes that stand beside the export already stay; the record of the machine joins them.
    """
    export(tmp_path / "made.sqlite")
    assert SECRET.encode() in (tmp_path / "made.sqlite").read_bytes()
    made, url = host_record(), f"sqlite:///{tmp_path}/runs.db"
    store = Store.open(url)
    store.append(made)
    store.close()
    tools = tmp_path / "tools"
    tools.mkdir()
    stand_in = tools / "nsys"
    stand_in.write_text(
        '#!/bin/sh\necho "$@" >> $0.log\n'
        'for word in "$@"; do case $word in --output=*) out=${word#--output=};; esac; done\n'
        'notes=\'{"schema_version": 1, "machine": {"Python": "3.11"}}\'\n'
        f'if [ $1 = export ]; then cp {tmp_path}/made.sqlite "$out"; echo "$notes" > "$out.gpuprep.json"; exit; fi\n'
        'while [ "$1" != -- ]; do shift; done; shift; "$@"; code=$?\n'
        'env > "$out"; exit $code\n'
    )
    stand_in.chmod(0o755)
    done = subprocess.run(
        [*GPUPREP, "trace", "record", "--with", "nsys", "--record", made.run_id, "-o", str(tmp_path / "out"), "--",
         "sh", "-c", "echo hi; exit 5"],
        env={**environment(tmp_path), "PATH": f"{tools}:{os.environ['PATH']}", "GPUPREP_STORE": url},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (5, "hi\n")
    files = sorted((tmp_path / "out").iterdir())
    assert [path.name for path in files] == ["sh.nsys.sqlite", "sh.nsys.sqlite.gpuprep.json"], (
        "the report itself holds the environment"
    )
    assert SECRET.encode() not in files[0].read_bytes() + files[1].read_bytes()
    connection = sqlite3.connect(files[0])
    assert connection.execute("SELECT name FROM TARGET_INFO_SYSTEM_ENV").fetchall() == [("Hostname",)]
    connection.close()
    told = tracesteps.beside(files[0])
    assert told.machine == {"Python": "3.11"}
    assert told.record is not None
    assert told.record.run_id == made.run_id
    asked = (tools / "nsys.log").read_text()
    assert "--pytorch=autograd-shapes-nvtx" in asked
    assert "export --type=sqlite" in asked


# ---------------------------------------------------------------- what stands beside a trace


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"machine": [1]}', '{"machine": {"a": {}}, "record": {"x": 1}}', "\0"]
)
def test_damaged_notes_are_no_notes(tmp_path: Path, text: str) -> None:
    trace = tmp_path / "a.json"
    trace.with_name("a.json.gpuprep.json").write_text(text)
    told = tracesteps.beside(trace)
    assert (told.machine, told.record) == ({}, None)


class FakeEvent:
    """On a stream on which a step takes 5 ms."""

    clock = 0.0

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        FakeEvent.clock += 5.0
        self.at = FakeEvent.clock

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, then: FakeEvent) -> float:
        return then.at - self.at


class FakeCuda:
    Event = FakeEvent
    initialized = True
    capturing = False

    def is_initialized(self) -> bool:
        return self.initialized

    def is_current_stream_capturing(self) -> bool:
        return self.capturing


@pytest.fixture
def recorder(tmp_path: Path) -> Any:
    """The one inside of a program, with a GPU that tells times."""
    path = str(resources.files("gpuprep.trace.recording").joinpath("inside/sitecustomize.py"))
    spec = importlib.util.spec_from_file_location("recorder_inside", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.Recorder({"wait": 3, "warmup": 1, "active": 1, "told": str(tmp_path)})
    atexit.unregister(made.leave)
    made.torch = type("torch", (), {"cuda": FakeCuda()})
    return made


def test_steps_before_the_profile_are_timed_on_the_gpu(recorder: Any) -> None:
    for _ in range(4):
        recorder.mark()
    assert recorder.timed() == [5.0, 5.0, 5.0]


@pytest.mark.parametrize("without", ["initialized", "capturing"])
def test_without_a_gpu_and_inside_a_graph_no_step_is_timed(recorder: Any, without: str) -> None:
    setattr(recorder.torch.cuda, without, without == "capturing")
    recorder.mark()
    recorder.mark()
    assert recorder.timed() == []


def test_a_gpu_that_tells_no_times_costs_no_trace(recorder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> float:
        raise RuntimeError("both events must be on one device")

    recorder.mark()
    recorder.mark()
    monkeypatch.setattr(FakeEvent, "elapsed_time", broken)
    assert recorder.timed() == []
    monkeypatch.setattr(FakeEvent, "record", broken)
    recorder.mark()


@pytest.mark.parametrize(
    ("times", "ns"),
    [
        ([4.0, 9.0, 5.0], 5_000_000.0),  # the median: one step may be slower
        ([2.5], 2_500_000.0),
        ([], None),
        ({}, None),
        ([4.0, "5"], None),
        ([4.0, -1.0], None),
        ([4.0, 0.0], None),
        ([4.0, True, None], None),
        ([1e300], None),
        ([float("inf")], None),
        ([float("nan")], None),
        ([1.0] * 5000, None),
    ],
)
def test_how_long_a_step_takes_without_the_profiler(tmp_path: Path, times: object, ns: float | None) -> None:
    trace = tmp_path / "a.json"
    trace.with_name("a.json.gpuprep.json").write_text(json.dumps({"machine": {}, "step_ms_without_profiler": times}))
    assert tracesteps.beside(trace).timed_step_ns == ns
