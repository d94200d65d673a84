"""Profiles written by hand as rows: what readers would have made of a file."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpuprep.trace.columns import (
    NONE,
    Arguments,
    Calls,
    Device,
    Format,
    GpuEvents,
    GpuKind,
    MemoryEvents,
    OpKind,
    Ops,
    Thread,
    Trace,
)


@dataclass
class Gpu:
    name: str
    start: int
    end: int
    correlation: int = NONE
    kind: GpuKind = GpuKind.KERNEL
    device: int = 0
    stream: int = 7
    process: int = 0
    external: int = NONE
    node: int = NONE


@dataclass
class Call:
    start: int
    end: int
    correlation: int
    thread: int = 0
    process: int = 0
    name: str = "cudaLaunchKernel"


@dataclass
class Op:
    name: str
    start: int
    end: int
    thread: int = 0
    kind: OpKind = OpKind.OP
    external: int = NONE
    process: int = 0
    sequence: int = NONE
    arguments: Arguments | None = None


@dataclass
class Hand:
    gpu: Sequence[Gpu] = ()
    calls: Sequence[Call] = ()
    ops: Sequence[Op] = ()
    backward: Sequence[tuple[int, int]] = ()
    devices: Sequence[Device] = (Device(0, "NVIDIA A100-SXM4-40GB", "8.0", 108, 42_000_000_000),)
    notes: dict[str, int] = field(default_factory=dict)

    def trace(self) -> Trace:
        names: dict[str, int] = {}
        arguments: list[Arguments] = []
        on_cpu: list[Call | Op] = [*self.calls, *self.ops]
        threads = 1 + max([each.thread for each in on_cpu], default=0)
        processes = 1 + max([each.process for each in (*on_cpu, *self.gpu)], default=0)

        def name(text: str) -> int:
            return names.setdefault(text, len(names))

        def number(given: Arguments | None) -> int:
            if given is None:
                return NONE
            if given not in arguments:
                arguments.append(given)
            return arguments.index(given)

        gpu, calls, ops = self.gpu, self.calls, self.ops
        rows = len(gpu)
        nothing = np.full(rows, NONE, np.int64)
        return Trace(
            file="hand.json",
            format=Format.KINETO,
            generation="G4",
            size=1,
            zero_ns=0,
            names=names,  # type: ignore[arg-type]  # a list at the end
            processes=[str(number) for number in range(processes)],
            threads=[Thread(0, str(number)) for number in range(threads)],
            devices=list(self.devices),
            gpu=GpuEvents(
                start=_ints(each.start for each in gpu),
                end=_ints(each.end for each in gpu),
                kind=_ints((each.kind for each in gpu), np.uint8),
                name=_ints((name(each.name) for each in gpu), np.int32),
                device=_ints((each.device for each in gpu), np.int32),
                stream=_ints(each.stream for each in gpu),
                process=_ints((each.process for each in gpu), np.int32),
                correlation=_ints(each.correlation for each in gpu),
                external=_ints(each.external for each in gpu),
                bytes=nothing,
                grid=np.full((rows, 3), NONE, np.int32),
                block=np.full((rows, 3), NONE, np.int32),
                registers=nothing.astype(np.int32),
                shared=nothing.astype(np.int32),
                blocks_per_sm=np.full(rows, np.nan, np.float32),
                occupancy=np.full(rows, np.nan, np.float32),
                graph_node=_ints(each.node for each in gpu),
            ),
            calls=Calls(
                start=_ints(each.start for each in calls),
                end=_ints(each.end for each in calls),
                name=_ints((name(each.name) for each in calls), np.int32),
                thread=_ints((each.thread for each in calls), np.int32),
                process=_ints((each.process for each in calls), np.int32),
                correlation=_ints(each.correlation for each in calls),
                external=np.full(len(calls), NONE, np.int64),
            ),
            ops=Ops(
                start=_ints(each.start for each in ops),
                end=_ints(each.end for each in ops),
                kind=_ints((each.kind for each in ops), np.uint8),
                name=_ints((name(each.name) for each in ops), np.int32),
                thread=_ints((each.thread for each in ops), np.int32),
                process=_ints((each.process for each in ops), np.int32),
                external=_ints(each.external for each in ops),
                sequence=_ints(each.sequence for each in ops),
                forward_thread=np.full(len(ops), NONE, np.int64),
                arguments=_ints((number(each.arguments) for each in ops), np.int32),
            ),
            memory=MemoryEvents(*[np.zeros(0, np.int64)] * 5),
            arguments=arguments,
            backward_of=np.array(list(self.backward), np.int32).reshape(-1, 2),
            notes=dict(self.notes),
        )


def trace(*rows: Gpu | Call | Op, backward: Sequence[tuple[int, int]] = (), **more: Any) -> Trace:
    """Of rows in any order; `backward`: pairs of positions among the ops."""
    made = Hand(
        gpu=[row for row in rows if isinstance(row, Gpu)],
        calls=[row for row in rows if isinstance(row, Call)],
        ops=[row for row in rows if isinstance(row, Op)],
        backward=backward,
        **more,
    ).trace()
    made.names = list(made.names)
    return made


def step(number: int, start: int, end: int) -> Op:
    return Op(f"ProfilerStep#{number}", start, end, kind=OpKind.ANNOTATION)


def launched(name: str, at: int, start: int, end: int, correlation: int, *, thread: int = 0, **more: Any) -> list[Any]:
    """A kernel and the call that launched it at a time."""
    return [Call(at, at + 1, correlation, thread), Gpu(name, start, end, correlation, **more)]


def _ints(values: Any, kind: Any = np.int64) -> Any:
    return np.array(list(values), kind)


def many(kernels: int, steps: int, pairs: int = 400) -> Trace:
    """A profile of `kernels` kernels, two ops each, with times that no pattern tells."""
    chance = np.random.default_rng(7)
    each = kernels // steps
    kernels = each * steps
    work = np.maximum(chance.lognormal(8.5, 1, kernels), 800).astype(np.int64)
    gap = chance.integers(500, 3000, kernels)
    start = np.cumsum(work + gap) - work
    launch = start - chance.integers(4000, 90_000, kernels)
    launch = np.maximum.accumulate(launch) + np.arange(kernels)  # one thread
    width = np.diff(launch, append=launch[-1] + 20_000)
    pair = np.tile(chance.integers(0, pairs, each), steps)  # an op and its kernel
    kind, op = pair % 300, pair * 7 % 500
    names = [f"ampere_sgemm_{number}x64_tn" for number in range(300)]
    names += [f"aten::op{number}" for number in range(500)] + ["cudaLaunchKernel"]
    names += [f"ProfilerStep#{step}" for step in range(steps)]
    none, zero = np.full(kernels, NONE, np.int64), np.zeros(kernels, np.int32)
    ids = np.arange(1, kernels + 1)
    gpu = GpuEvents(
        start, start + work, zero.astype(np.uint8), kind.astype(np.int32), zero, zero + 7, zero, ids, none, none,
        np.repeat([[64, 1, 1]], kernels, 0), np.repeat([[128, 1, 1]], kernels, 0), zero + 32, zero,
        np.zeros(kernels), np.zeros(kernels), none,
    )  # fmt: skip
    calls = Calls(launch + width // 4, launch + width // 2, zero + 800, zero, zero, ids, none)
    border = launch[::each]
    begin = np.concatenate((launch, launch + width // 8, border - 1))
    end = np.concatenate((launch + width - 1, launch + width * 3 // 4, np.append(border[1:] - 2, launch[-1] + 30_000)))
    named = np.concatenate((op + 300, (op + 7) % 500 + 300, np.arange(steps) + 801)).astype(np.int32)
    rows = len(begin)
    what = np.concatenate((np.zeros(2 * kernels), np.ones(steps))).astype(np.uint8)
    nothing = np.full(rows, NONE, np.int64)
    flat = np.zeros(rows, np.int32)
    ops = Ops(begin, end, what, named, flat, flat, nothing, nothing, nothing, flat + NONE)
    memory = MemoryEvents(*(np.zeros(0, np.int64) for _ in dataclasses.fields(MemoryEvents)))
    return Trace(
        "many.json", Format.KINETO, "G4", 0, 0, names, ["1"], [Thread(0, "thread 1")], [Device(0, "GPU", "8.0", 108)],
        gpu, calls, ops, memory, [Arguments()], np.zeros((0, 2), np.int32),
    )  # fmt: skip
