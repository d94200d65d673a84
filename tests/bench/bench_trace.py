"""Reading a large PyTorch trace: gpuprep's reader beside Meta's Holistic Trace Analysis, in one run.

    python tests/bench/bench_trace.py

The trace is made by repetition: the events of the largest of GPUPREP_PUBLIC_TRACES, else of a generated one, until
the file has 380 MB. HTA (HolisticTraceAnalysis or traceinsight of PyPI) is no dependency of gpuprep: it is taken from
the Python that GPUPREP_BENCH_HTA names, else from this one; where it is not installed, the part says so and is passed
over. Each loads the file in a process of its own; seconds are of the load alone, memory is the peak of its processes.
"""

from __future__ import annotations

import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ratios import Ratio

TESTS = Path(__file__).resolve().parents[1]
SIZE = 380_000_000
ROUNDS = 3
FASTER = 1 / 15
LEANER = 1 / 4
_MEASURE = """
import json, os, resource, sys, time
{before}
begin, cpu = time.perf_counter(), os.times()
{load}
seconds, used = time.perf_counter() - begin, os.times()
peak = sum(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
print(json.dumps({{"seconds": seconds, "cpu": sum(used[:4]) - sum(cpu[:4]), "mib": peak / 1024}}))
"""
OURS = _MEASURE.format(
    before="from pathlib import Path; from gpuprep.trace.reading import read", load="read(Path(sys.argv[1]))"
)
THEIRS = _MEASURE.format(
    before="import logging; logging.disable(); from hta.trace_analysis import TraceAnalysis",
    load="TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=os.path.dirname(sys.argv[1]))",
)


def trace() -> Iterator[Ratio]:
    python = os.environ.get("GPUPREP_BENCH_HTA") or sys.executable
    if subprocess.run([python, "-c", "import hta"], capture_output=True, check=False).returncode:
        print("trace: Holistic Trace Analysis is not installed (GPUPREP_BENCH_HTA names a Python with it): passed over")
        return
    with tempfile.TemporaryDirectory(prefix="gpuprep-bench-") as name:
        path = Path(name) / "rank0.json"
        _repeat(path)
        theirs = _measured(python, THEIRS, path)
        rounds = [_measured(sys.executable, OURS, path) for _ in range(ROUNDS)]
        ours = {key: statistics.median(found[key] for found in rounds) for key in theirs}
        load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
        size = path.stat().st_size
    print(f"trace: {size / 1e6:.0f} MB; load of the machine {load}; {os.cpu_count()} processors")
    yield Ratio("reading a large trace / HTA", ours["seconds"], theirs["seconds"], FASTER)
    yield Ratio("memory of reading a large trace / HTA", ours["mib"], theirs["mib"], LEANER, "MiB")
    print(f"CPU of it, all processes: {ours['cpu']:.2f} s / {theirs['cpu']:.2f} s")


def _measured(python: str, script: str, path: Path) -> dict[str, float]:
    done = subprocess.run([python, "-c", script, str(path)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{script}: exit {done.returncode}\n{done.stderr[-3000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _repeat(path: Path) -> None:
    """The events of one trace again and again, at the same times: what is read is no less for that."""
    text = _one()
    begin = text.index(b"[", text.index(b'"traceEvents"')) + 1
    end = text.rindex(b"}", 0, text.rindex(b"]")) + 1
    events = text[begin:end]
    with path.open("wb") as file:
        file.write(text[:end])
        for _ in range(SIZE // len(events)):
            file.write(b",")
            file.write(events)
        file.write(text[end:])


def _one() -> bytes:
    public = os.environ.get("GPUPREP_PUBLIC_TRACES", "")
    found = [path for path in Path(public).glob("*.json.gz")] if public else []
    if found:
        return max((gzip.decompress(path.read_bytes()) for path in found), key=len)
    sys.path.insert(0, str(TESTS / "support"))
    from synthetic import training

    return training("G4", steps=300, layers=20).text(indent=2).encode()


if __name__ == "__main__":
    for ratio in trace():
        print(ratio)
