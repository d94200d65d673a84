"""Kineto traces of several ranks of one job, made so that every answer is known. Times in µs from the job's start."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

EPOCH_NS = 1_790_857_026_000_000_000
STEP = 10_000.0
COMPUTE, SIDE, NETWORK = 7, 9, 20  # streams


@dataclass
class RankTrace:
    """One rank's file. `clock_us` is what its clock shows too much."""

    rank: int
    world_size: int = 2
    clock_us: float = 0.0
    backend: str = "nccl"
    events: list[dict[str, Any]] = field(default_factory=list)
    launched: int = 0

    def step(self, number: int, start: float, length: float = STEP) -> None:
        self.range("user_annotation", f"ProfilerStep#{number}", start, length)

    def kernel(self, name: str, launch: float, start: float, end: float, stream: int = COMPUTE) -> None:
        self.launched += 1
        self.range("cuda_runtime", "cudaLaunchKernel", launch, 5.0, correlation=self.launched)
        self._add("kernel", name, 0, stream, start, end - start, device=self.rank, stream=stream,
                  correlation=self.launched, grid=[1, 1, 1], block=[32, 1, 1])  # fmt: skip

    def collective(
        self, launch: float, start: float, end: float, *, name: str = "allreduce", elements: int = 1_000_000,
        ranks: tuple[int, ...] | None = None, sequence: int | None = None, told: bool = True,
        kernel: str = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    ) -> None:  # fmt: skip
        members = ranks or tuple(range(self.world_size))
        if told:
            more = {} if sequence is None else {"Seq": sequence}
            self.range("cpu_op", "record_param_comms", launch - 1, 20.0, **{
                "Collective name": name, "In msg nelems": elements, "Out msg nelems": elements, "dtype": "Float",
                "Group size": len(members), "Process Group Name": str(members[0]),
                "Process Group Ranks": str(list(members)), **more,
            })  # fmt: skip
        self.kernel(kernel, launch, start, end, NETWORK)

    def range(self, category: str, name: str, start: float, length: float, **arguments: Any) -> None:
        self._add(category, name, 100 + self.rank, 100 + self.rank, start, length, **arguments)

    def _add(self, category: str, name: str, pid: int, tid: int, start: float, length: float, **args: Any) -> None:
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid,
             "ts": round(start + self.clock_us, 3), "dur": round(length, 3), "args": args}
        )  # fmt: skip

    def write(self, folder: Path, name: str = "") -> Path:
        path = folder / (name or f"rank{self.rank}.json")
        gpu = {"id": self.rank, "name": "NVIDIA H100 80GB HBM3", "computeMajor": 9, "computeMinor": 0, "numSms": 132}
        content: dict[str, Any] = {"schemaVersion": 1, "deviceProperties": [gpu]}
        if self.world_size:
            content["distributedInfo"] = {
                "backend": self.backend, "rank": self.rank, "world_size": self.world_size
            }  # fmt: skip
        content |= {"baseTimeNanoseconds": EPOCH_NS, "traceEvents": self.events, "traceName": path.name}
        path.write_text(json.dumps(content))
        return path


# How much longer each rank's own work takes: rank 2 enters the all-reduce 800 µs after rank 1, which is there second.
EXTRA = (0.0, 100.0, 900.0)


def job(steps: int = 3, *, clocks: tuple[float, ...] = (0.0, 0.0, 0.0), numbered: bool = True) -> list[RankTrace]:
    """Three ranks. In each step: own work, an all-reduce that all leave together, and work beside its last 500 µs.

    The all-reduce starts at 3010, 3110 and 3910 µs of the step and ends at 5000; the work beside it is 4500 to 6000.
    """
    ranks = [RankTrace(rank, 3, clock) for rank, clock in enumerate(clocks)]
    for rank, extra in zip(ranks, EXTRA, strict=True):
        for number in range(steps):
            start = 1000.0 + number * STEP
            rank.step(number, start)
            rank.kernel("own_work", start + 10, start + 20, start + 3000 + extra)
            rank.collective(
                start + 100, start + 3010 + extra, start + 5000, sequence=number + 1 if numbered else None
            )  # fmt: skip
            rank.kernel("work_beside", start + 200, start + 4500, start + 6000, SIDE)
    return ranks
