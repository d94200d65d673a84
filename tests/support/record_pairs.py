"""Records the project's own traces on a real GPU: small trainings with one fault each, and the same without it.

    python3 tests/support/record_pairs.py OUTDIR --budget 130

Writes OUTDIR/traces.tar (of each case NAME.json.gz and NAME.json.gz.gpuprep.json) and OUTDIR/manifest.json after every
case, so that what is done is kept when time runs out. First all cases are timed without a profiler, then they are
profiled: a profiler that has run once slows down what is timed after it. Needs PyTorch and nothing else; changes no
setting of the GPU.
A trial without a GPU, which only shows that the script works: --device cpu --tiny.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import importlib
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BEGAN = time.monotonic()  # importing torch takes long, and counts
# One compiling process: starting a pool of them takes longer than our few kernels.
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

import torch  # noqa: E402
from record_cases import Case, Group, Step  # noqa: E402
from record_models import Mlp, Scale  # noqa: E402
from torch.profiler import ProfilerActivity, profile, schedule  # noqa: E402

WARM_UP = 2
ROUNDS = 5
ROUND_SECONDS = 0.12
LARGEST_TAR = 14_000_000
# What is kept for the two ranks, which run last.
RANKS_SECONDS = 20.0


def say(words: str) -> None:
    print(f"{time.monotonic() - BEGAN:6.1f} s  {words}", file=sys.stderr, flush=True)


@dataclass
class Machine:
    scale: Scale

    @property
    def cuda(self) -> bool:
        return self.scale.device.type == "cuda"

    def wait(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()


class Loop:
    """Runs steps. The CPU is at most one step ahead of the GPU, as where the last step's loss is shown."""

    def __init__(self, machine: Machine, step: Step) -> None:
        self.machine, self.step = machine, step
        self.last: Any = None

    def once(self) -> None:
        self.step()
        if not self.machine.cuda:
            return
        event = torch.cuda.Event()
        event.record()
        if self.last is not None:
            self.last.synchronize()
        self.last = event

    def timed(self, steps: int) -> float:
        """Milliseconds a step."""
        self.machine.wait()
        start = time.perf_counter()
        for _ in range(steps):
            self.once()
        self.machine.wait()
        return (time.perf_counter() - start) * 1000 / steps


@dataclass
class Ready:
    """A case that is built and timed, and waits for its profile."""

    case: Case
    loop: Loop
    warm_up: int
    times: list[float] = field(default_factory=list)
    steps: int = 0


def allow_tf32(case: Case) -> None:
    torch.backends.cuda.matmul.allow_tf32 = case.tf32
    torch.backends.cudnn.allow_tf32 = case.tf32


class Recorder:
    def __init__(self, machine: Machine, target: Path, budget: float, groups: tuple[Group, ...], rounds: int) -> None:
        self.machine, self.target, self.budget, self.groups, self.rounds = machine, target, budget, groups, rounds
        self.manifest: dict[str, Any] = {
            "recorded_at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "machine": describe(machine),
            "settings": {
                "warm_up": WARM_UP,
                "rounds": rounds,
                "cudnn.benchmark": torch.backends.cudnn.benchmark,
                "cpu_ahead": "at most one step",
                "tiny": machine.scale.tiny,
            },
            "cases": {},
            "pairs": [],
            "left_out": {},
        }
        self.folder = Path(tempfile.mkdtemp(prefix="record-"))
        target.mkdir(parents=True, exist_ok=True)
        self.packed = 0
        (target / "traces.tar").unlink(missing_ok=True)

    def left(self) -> float:
        return self.budget - (time.monotonic() - BEGAN)

    def leave_out(self, name: str, why: str) -> None:
        say(f"{name}: left out: {why}")
        self.manifest["left_out"][name] = why

    def failed(self, name: str) -> None:
        traceback.print_exc()
        self.leave_out(name, traceback.format_exc(limit=0).strip().splitlines()[-1][:300])

    def build(self, case: Case, warm_up: int) -> Ready | None:
        if case.cuda_only and not self.machine.cuda:
            self.leave_out(case.name, "needs a GPU")
            return None
        try:
            allow_tf32(case)
            torch.manual_seed(1)
            ready = Ready(case, Loop(self.machine, case.build(self.machine.scale)), warm_up)
            ready.loop.timed(warm_up)
            once = ready.loop.timed(2)
        except Exception:  # noqa: BLE001  # one case that fails must not cost the others
            self.failed(case.name)
            return None
        ready.steps = max(2, min(60, int(ROUND_SECONDS * 1000 / max(once, 0.01))))
        return ready

    def time_group(self, group: Group) -> list[Ready]:
        cases = [ready for ready in (self.build(case, group.warm_up) for case in group.cases) if ready]
        turns = [cases] * self.rounds if group.in_turns else [[ready] * self.rounds for ready in cases]
        for turn in turns:
            for ready in turn:
                allow_tf32(ready.case)
                ready.times.append(ready.loop.timed(ready.steps))
        for ready in cases:
            self.manifest["cases"][ready.case.name] = {
                "step_ms": {
                    "median": round(statistics.median(ready.times), 4),
                    "lowest": round(min(ready.times), 4),
                    "highest": round(max(ready.times), 4),
                    "rounds": self.rounds,
                    "steps_a_round": ready.steps,
                },
                "tf32": ready.case.tf32,
            }
            say(f"{ready.case.name}: {statistics.median(ready.times):.3f} ms a step")
        self.save()
        return cases

    def profile(self, ready: Ready) -> None:
        case, loop = ready.case, ready.loop
        raw = self.folder / f"{case.name}.json"
        entry = self.manifest["cases"][case.name]
        allow_tf32(case)
        loop.timed(ready.warm_up)
        entry["profiled_step_ms"] = round(
            profiled(self.machine, loop, raw, case.active, entry, stacks=case.stacks, memory=case.memory,
                     averages=case.averages), 4)  # fmt: skip
        if case.flops:
            entry["flops_a_step"] = counted_flops(loop)
        entry |= {
            "active_steps": case.active,
            "record_shapes": True,
            "with_stack": case.stacks,
            "profile_memory": case.memory,
        }
        self.pack(case.name, raw, entry)

    def pack(self, name: str, raw: Path, entry: dict[str, Any]) -> None:
        packed = self.folder / f"{name}.json.gz"
        with gzip.GzipFile(packed, "wb", compresslevel=6, mtime=0) as file:
            file.write(nameless(raw.read_bytes(), f"{name}.json", [str(self.folder), str(self.target)]))
        size = packed.stat().st_size
        if self.packed + size > LARGEST_TAR:
            self.leave_out(name, f"its trace of {size} bytes does not fit into traces.tar")
            return
        with tarfile.open(self.target / "traces.tar", "a") as tar:
            tar.add(packed, f"{name}.json.gz")
            tar.add(self.beside(name, entry), f"{name}.json.gz.gpuprep.json")
        self.packed += size
        entry |= {"file": f"{name}.json.gz", "bytes": size}
        say(f"{name}: profiled, {size / 1000:.0f} kB, {entry.get('profiled_step_ms', 0):.3f} ms a step")
        self.save()

    def beside(self, name: str, entry: dict[str, Any]) -> Path:
        """What `gpuprep trace record` writes beside a trace: how long a step takes without the profiler."""
        path = self.folder / f"{name}.json.gz.gpuprep.json"
        noted = {"schema_version": 1, "machine": {}, "step_ms_without_profiler": [entry["step_ms"]["median"]]}
        path.write_text(json.dumps(noted) + "\n")
        return path

    def save(self) -> None:
        cases = self.manifest["cases"]
        self.manifest["pairs"] = [
            {
                "before": pair.before,
                "after": pair.after,
                "rule": pair.rule,
                "change": pair.change,
                "gain_ms": gain(cases, pair.before, pair.after, lambda case: case["step_ms"]["median"]),
                "profiled_gain_ms": gain(cases, pair.before, pair.after, lambda case: case.get("profiled_step_ms")),
            }
            for group in self.groups
            for pair in group.pairs
            if pair.before in cases and pair.after in cases
        ]
        self.manifest["seconds"] = round(time.monotonic() - BEGAN, 1)
        new = self.target / "manifest.json.new"
        new.write_text(json.dumps(self.manifest, indent=1) + "\n")
        new.replace(self.target / "manifest.json")


def gain(cases: dict[str, Any], before: str, after: str, of: Any) -> float | None:
    first, second = of(cases[before]), of(cases[after])
    return None if first is None or second is None else round(first - second, 4)


def describe(machine: Machine) -> dict[str, Any]:
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cpu_cores": os.cpu_count(),
        "cpu": "",
    }
    cpus = Path("/proc/cpuinfo")
    if cpus.is_file() and (model := re.search(r"model name\s*:\s*(.+)", cpus.read_text())):
        found["cpu"] = model[1]
    if machine.cuda:
        gpu = torch.cuda.get_device_properties(0)
        found |= {
            "gpu": gpu.name,
            "compute_capability": f"{gpu.major}.{gpu.minor}",
            "sms": gpu.multi_processor_count,
            "memory_bytes": gpu.total_memory,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),
        }
        fields = "driver_version,power.limit,clocks.max.sm,pcie.link.gen.max,pcie.link.width.max,persistence_mode"
        try:
            asked = ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader", "-i", "0"]
            told = subprocess.run(asked, capture_output=True, text=True, timeout=10, check=True).stdout
            found["nvidia_smi"] = dict(zip(fields.split(","), [part.strip() for part in told.split(",")], strict=False))
        except (OSError, subprocess.SubprocessError) as error:
            found["nvidia_smi"] = str(error)[:200]
    return found


def nameless(trace: bytes, name: str, folders: list[str]) -> bytes:
    """The trace without the folders of the machine that recorded it."""
    trace = re.sub(rb'("traceName":\s*)"[^"]*"', b'\\1"' + name.encode() + b'"', trace)
    trace = re.sub(rb"/tmp/torchinductor_[^/\"]*", b"torchinductor", trace)
    here = [str(Path(__file__).parent), str(Path.cwd()), str(Path(torch.__file__).parent.parent), sys.prefix]
    for folder in sorted({*folders, *here, sys.base_prefix, str(Path.home())}, key=len, reverse=True):
        if len(folder) > 4:  # never "/" or "/usr"
            trace = trace.replace(folder.rstrip("/").encode() + b"/", b"")
    return trace


def profiled(
    machine: Machine, loop: Loop, raw: Path, active: int, entry: dict[str, Any],
    *, stacks: bool = False, memory: bool = False, averages: bool = False,
) -> float:  # fmt: skip
    """Profiles `active` steps into `raw`. Milliseconds a step, with the profiler."""

    def keep(prof: Any) -> None:
        prof.export_chrome_trace(str(raw))
        if averages:
            entry["key_averages"] = [averaged(row) for row in prof.key_averages()]

    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if machine.cuda else [])
    plan = schedule(wait=0, warmup=WARM_UP, active=active, repeat=1)
    milliseconds = 0.0
    with profile(
        activities=activities, schedule=plan, on_trace_ready=keep,
        record_shapes=True, with_stack=stacks, profile_memory=memory, with_flops=averages,
    ) as prof:  # fmt: skip
        for step in range(WARM_UP + active):
            if step == WARM_UP:
                start = time.perf_counter()
            loop.once()
            if step == WARM_UP - 1:
                machine.wait()
            if step == WARM_UP + active - 1:
                machine.wait()
                milliseconds = (time.perf_counter() - start) * 1000 / active
            prof.step()
    return milliseconds


def averaged(row: Any) -> dict[str, Any]:
    return {
        "name": row.key,
        "calls": row.count,
        "cpu_us": round(row.cpu_time_total, 3),
        "self_cpu_us": round(row.self_cpu_time_total, 3),
        "device_us": round(row.device_time_total, 3),
        "self_device_us": round(row.self_device_time_total, 3),
        "flops": row.flops or 0,
    }


def counted_flops(loop: Loop) -> dict[str, int]:
    """Floating-point operations of one step by op, as torch's own counter has them."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        loop.once()
    return {str(op): int(count) for op, count in counter.get_flop_counts()["Global"].items()}


class Ranks:
    """Two processes of one job on the one GPU, joined by gloo."""

    def __init__(self, folder: Path, scale: Scale) -> None:
        self.folder = folder
        options = ["--device", str(scale.device)] + (["--tiny"] if scale.tiny else [])
        environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
        self.processes = [
            subprocess.Popen(
                [sys.executable, __file__, str(folder), *options, "--rank", str(rank)],
                stdout=subprocess.PIPE, env=environment, text=True,
            )
            for rank in range(2)
        ]  # fmt: skip

    def finish(self, seconds: float) -> list[dict[str, Any]]:
        end = time.monotonic() + seconds
        return [
            json.loads(process.communicate(timeout=max(1.0, end - time.monotonic()))[0].strip().splitlines()[-1])
            for process in self.processes
        ]

    def stop(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()


def one_rank(rank: int, folder: Path, machine: Machine) -> None:
    """A rank of two. Rank 1 has twice the rows, so rank 0 waits for it."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    torch.manual_seed(rank)
    scale = machine.scale
    width = scale.of(1024, 16)
    model = torch.nn.parallel.DistributedDataParallel(Mlp(depth=scale.of(6, 2), width=width).to(scale.device))
    x = torch.randn(scale.of(4096, 8) * (1 + rank), width, device=scale.device)

    def step() -> None:
        model.zero_grad()
        model(x).square().mean().backward()

    loop = Loop(machine, step)
    loop.timed(3)
    entry: dict[str, Any] = {"step_ms": {"median": round(loop.timed(10), 4), "rounds": 1, "steps_a_round": 10}}
    raw = folder / f"ddp-gloo-rank{rank}.json"
    entry["profiled_step_ms"] = round(profiled(machine, loop, raw, 3, entry), 4)
    torch.distributed.destroy_process_group()
    print(json.dumps(entry))


def record(recorder: Recorder, only: set[str], with_ranks: bool, before_only: bool) -> None:
    groups = [group for group in recorder.groups if not only or only & {case.name for case in group.cases}]
    ready: list[Ready] = []
    # Timing may use a good half of the time: profiles take about as long.
    for group in groups:
        names = ", ".join(case.name for case in group.cases)
        if recorder.left() - group.seconds - RANKS_SECONDS < 0.35 * recorder.budget:
            recorder.leave_out(names, "no time left to measure it")
            continue
        try:
            ready += recorder.time_group(group)
        except Exception:  # noqa: BLE001  # as in build
            recorder.failed(names)
    before = {pair.before for group in groups for pair in group.pairs}
    for one in ready:
        if before_only and one.case.name not in before:
            continue
        if recorder.left() < (RANKS_SECONDS if with_ranks else 3):
            recorder.leave_out(one.case.name, "no time left to profile it")
            continue
        try:
            recorder.profile(one)
        except Exception:  # noqa: BLE001  # as in build
            recorder.failed(one.case.name)
    if with_ranks:
        record_ranks(recorder)
    recorder.save()


def record_ranks(recorder: Recorder) -> None:
    """Last: two more processes that start would slow down what is profiled beside them."""
    ranks = Ranks(recorder.folder, recorder.machine.scale)
    try:
        for rank, entry in enumerate(ranks.finish(max(5.0, recorder.left()))):
            name = f"ddp-gloo-rank{rank}"
            recorder.manifest["cases"][name] = entry | {"rule": "not-nccl", "job": "ddp-gloo", "rank": rank}
            recorder.pack(name, recorder.folder / f"{name}.json", recorder.manifest["cases"][name])
    except Exception:  # noqa: BLE001  # as in build
        recorder.failed("ddp-gloo")
    finally:
        ranks.stop()


def main() -> int:
    parser = argparse.ArgumentParser(description="Records the project's own traces.")
    parser.add_argument("target", type=Path)
    parser.add_argument("--budget", type=float, default=130.0, metavar="SECONDS")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small models: only shows that the script works")
    parser.add_argument("--cases", default="record_cases", metavar="MODULE", help="beside this file, with GROUPS")
    parser.add_argument("--before-only", action="store_true", help="profile only what is before a change")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N")
    parser.add_argument("--only", default="", metavar="CASE,CASE", help="the groups of these cases, or ddp-gloo")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    machine = Machine(Scale(torch.device(options.device), options.tiny))
    if options.rank is not None:
        one_rank(options.rank, options.target, machine)
        return 0
    say(f"torch {torch.__version__} is there")
    groups = importlib.import_module(options.cases).GROUPS
    recorder = Recorder(machine, options.target, options.budget, groups, options.rounds)
    only = set(filter(None, options.only.split(",")))
    with_ranks = "ddp-gloo" in only or (not only and options.cases == "record_cases")
    record(recorder, only, with_ranks, options.before_only)
    done = recorder.manifest
    say(f"{sum('file' in case for case in done['cases'].values())} traces, {recorder.packed / 1e6:.1f} MB")
    for pair in done["pairs"]:
        print(f"{pair['rule']:12} {pair['before']:>18} -> {pair['after']:<26} gains {pair['gain_ms']} ms a step")
    # Threads of data loaders and compilers may hold a normal end up.
    sys.stdout.flush()
    os._exit(0 if not any("Error" in why for why in done["left_out"].values()) else 1)


if __name__ == "__main__":
    sys.exit(main())
