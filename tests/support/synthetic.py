"""Kineto traces with known answers: times are whole nanoseconds, so that every sum and union is exact.

trace = Kineto("G4")
step = trace.annotation("ProfilerStep#0", 0, 1_000_000)
trace.op("aten::mm", 10_000, 50_000, shapes=[[4, 8], [8, 2]], dtypes=["float", "float"])
trace.launch(20_000, "sgemm", 40_000, 7_000)            a call inside the op, and its kernel
trace.write(folder / "rank0.json.gz")
trace.kernel_time(0), trace.busy(0), trace.span(0)      what is true of device 0, in ns
"""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Of each generation: 1970 or baseTimeNanoseconds is where times count from; G1 and G2 have whole µs.
EPOCH_NS = 1_712_170_295_123_456_000
BASE_NS = 1_711_964_646_000_000_000
_CATEGORIES_G1 = {
    "cpu_op": "Operator",
    "user_annotation": "Operator",
    "cuda_runtime": "Runtime",
    "kernel": "Kernel",
    "gpu_memcpy": "Memcpy",
    "gpu_memset": "Memset",
}
_FLOWS = {"G1": "async", "G2": "async_cpu_to_gpu", "G3": "ac2g", "G4": "ac2g"}
_TIME = re.compile(r'"@(-?\d+(?:\.\d+)?)@"')


@dataclass
class GpuEvent:
    start: int
    end: int
    device: int
    stream: int
    kind: str
    name: str


@dataclass
class Kineto:
    generation: str = "G4"
    pid: Any = 4711
    tid: Any = 4711
    zero: int = EPOCH_NS  # of the times given below, ns since 1970
    events: list[dict[str, Any]] = field(default_factory=list)
    gpu: list[GpuEvent] = field(default_factory=list)
    top: dict[str, Any] = field(default_factory=dict)
    correlation: int = 100
    external: int = 0

    def __post_init__(self) -> None:
        self.top = {
            "schemaVersion": 1,
            "deviceProperties": [
                {"id": number, "name": "Test GPU 80GB", "totalGlobalMem": 85_000_000_000, "computeMajor": 8,
                 "computeMinor": 0, "numSms": 108}
                for number in range(2)
            ],
            "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2},
            "cuda_runtime_version": 12040,
            **self.top,
        }  # fmt: skip

    def time(self, ns: int) -> str:
        """As the generation writes it; a mark that text() takes away, since a double cannot hold all of them."""
        absolute = self.zero + ns
        if self.generation in ("G1", "G2"):
            assert absolute % 1000 == 0, "this generation has whole µs"
            return f"@{absolute // 1000}@"
        since = absolute - (BASE_NS if self.generation == "G4" else 0)
        return f"@{since // 1000}.{since % 1000:03}@"

    def length(self, ns: int) -> str:
        if self.generation in ("G1", "G2"):
            return f"@{ns // 1000}@"
        return f"@{ns // 1000}.{ns % 1000:03}@"

    def event(
        self,
        category: str,
        name: str,
        start: int,
        dur: int,
        *,
        pid: Any = None,
        tid: Any = None,
        args: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """An event of any category; keys of `args` as in the file."""
        if self.generation == "G1":
            category = _CATEGORIES_G1.get(category, category)
        found = {
            "ph": "X", "cat": category, "name": name, "pid": self.pid if pid is None else pid,
            "tid": self.tid if tid is None else tid, "ts": self.time(start), "dur": self.length(dur),
            "args": args or {},
        }  # fmt: skip
        self.events.append(found)
        return found

    def op(
        self,
        name: str,
        start: int,
        dur: int,
        *,
        tid: Any = None,
        shapes: list[Any] | None = None,
        dtypes: list[str] | None = None,
        args: dict[str, Any] | None = None,
    ) -> int:
        """An operator; its external id."""
        self.external += 1
        details: dict[str, Any] = {} if shapes is None else {"Input Dims": shapes}
        if dtypes is not None:
            details["Input type"] = dtypes
        tid = self.tid if tid is None else tid
        if self.generation == "G1":
            tid = str(tid)
        self.event("cpu_op", name, start, dur, tid=tid, args={self._external: self.external, **details, **(args or {})})
        return self.external

    def annotation(self, name: str, start: int, dur: int, *, tid: Any = None) -> None:
        self.external += 1
        tid = self.tid if tid is None else tid
        tid = str(tid) if self.generation == "G1" else tid
        self.event("user_annotation", name, start, dur, tid=tid, args={self._external: self.external})

    def python(self, name: str, start: int, dur: int, *, tid: Any = None, args: dict[str, Any] | None = None) -> None:
        self.event(
            "python_function",
            name,
            start,
            dur,
            tid=tid,
            args={"Python id": 1, "Python parent id": None, **(args or {})},
        )

    def launch(
        self,
        at: int | None,
        name: str,
        start: int,
        dur: int,
        *,
        call: str = "cudaLaunchKernel",
        call_dur: int = 3000,
        tid: Any = None,
        device: int = 0,
        stream: int = 7,
        kind: str = "kernel",
        correlation: int | None = None,
        args: dict[str, Any] | None = None,
    ) -> int:
        """A GPU event and the call at `at` that launched it (None: launched before the recording); its correlation.

        `correlation` of an earlier launch: one call with several kernels, as of a CUDA graph.
        """
        tid = self.tid if tid is None else tid
        again = correlation is not None
        if correlation is None:
            self.correlation += 1
            correlation = self.correlation
        external = correlation if self.generation == "G2" else self.external
        ids = {self._external: external, "correlation": correlation}
        if at is not None and not again:
            where = str(tid) if self.generation == "G1" else tid
            self.event("cuda_runtime", call, at, call_dur, tid=where, args={"cbid": 211, **ids})
            self._flow("s", correlation, tid=tid, pid=self.pid, at=at)
        details: dict[str, Any] = {"device": device, "context": 1, "stream": stream, **ids}
        if kind == "kernel":
            details |= {
                "queued": 0, "registers per thread": 32, "shared memory": 1024, "blocks per SM": 1.5,
                "warps per SM": 12.0, "grid": [162, 1, 1], "block": [256, 1, 1], "est. achieved occupancy %": 19,
            }  # fmt: skip
        else:
            details["bytes"] = 4096
        row = f"stream {stream}" if self.generation == "G1" else stream
        self.event(kind, name, start, dur, pid=device, tid=row, args=details | (args or {}))
        self._flow("f", correlation, tid=row, pid=device, at=start)
        self.gpu.append(GpuEvent(start, start + dur, device, stream, kind, name))
        return correlation

    def memory(self, at: int, size: int, allocated: int, reserved: int, device: int = 0) -> None:
        """What the allocator did; below 0: freed. Device −1 is the CPU."""
        self.events.append(
            {
                "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": self.pid, "tid": self.tid,
                "ts": self.time(at),
                "args": {
                    "Total Reserved": reserved, "Total Allocated": allocated, "Bytes": size, "Addr": 1,
                    "Device Id": device, "Device Type": 0 if device < 0 else 1,
                },
            }
        )  # fmt: skip

    def backward(self, number: int, forward_at: int, backward_at: int, backward_tid: Any) -> None:
        """A flow from the forward op that starts at `forward_at` to the backward op on another thread."""
        self._flow("s", number, tid=self.tid, pid=self.pid, at=forward_at, category="fwdbwd")
        self._flow("f", number, tid=backward_tid, pid=self.pid, at=backward_at, category="fwdbwd")

    def _flow(self, phase: str, number: int, *, tid: Any, pid: Any, at: int, category: str = "") -> None:
        category = category or _FLOWS[self.generation]
        flow = {
            "ph": phase,
            "id": number,
            "pid": pid,
            "tid": tid,
            "ts": self.time(at),
            "cat": category,
            "name": category,
        }
        self.events.append({**flow, "bp": "e"} if phase == "f" else flow)

    @property
    def _external(self) -> str:
        return "external id" if self.generation == "G1" else "External id"

    # What is true of it.

    def of(self, device: int, kind: str = "") -> list[GpuEvent]:
        return [event for event in self.gpu if event.device == device and kind in ("", event.kind)]

    def kernel_time(self, device: int) -> int:
        return sum(event.end - event.start for event in self.of(device, "kernel"))

    def span(self, device: int) -> int:
        events = self.of(device)
        return max(event.end for event in events) - min(event.start for event in events)

    def busy(self, device: int) -> int:
        """Length of the union, by sweeping over sorted events."""
        return union([(event.start, event.end) for event in self.of(device)])

    # As a file.

    def document(self) -> dict[str, Any]:
        """In the order in which the generation's profiler writes it: G4 has the base of its times behind the events."""
        document: dict[str, Any] = {**self.top, "traceEvents": self.events, "traceName": "/tmp/trace.json"}
        if self.generation in ("G3", "G4"):
            document["displayTimeUnit"] = "ms"
        if self.generation == "G4":
            document["baseTimeNanoseconds"] = BASE_NS
        return document

    def text(self, *, indent: int | None = None, document: Any = None) -> str:
        found = self.document() if document is None else document
        return _TIME.sub(r"\1", json.dumps(found, indent=indent, ensure_ascii=False))

    def write(self, path: Path, *, indent: int | None = None, document: Any = None) -> Path:
        data = self.text(indent=indent, document=document).encode("utf-8", "surrogatepass")
        path.write_bytes(gzip.compress(data, 1) if path.name.endswith(".gz") else data)
        return path


def union(intervals: list[tuple[int, int]]) -> int:
    total, until = 0, None
    for start, end in sorted(intervals):
        if until is None or start > until:
            total, until = total + end - start, end
        elif end > until:
            total, until = total + end - until, end
    return total


def training(generation: str = "G4", steps: int = 3, layers: int = 4) -> Kineto:
    """A small training: each step has forward and backward products, a copy to the GPU and an optimizer's kernel.

    Every kernel's launch lies inside an op. Two streams overlap; the step's last kernel ends after the step.
    """
    trace = Kineto(generation)
    width = 1_000_000
    for step in range(steps):
        zero = step * width
        trace.annotation(f"ProfilerStep#{step}", zero, width - 10_000)
        trace.op("aten::copy_", zero + 5_000, 30_000, shapes=[[8, 16]], dtypes=["float"])
        trace.launch(
            zero + 6_000, "Memcpy HtoD (Pageable -> Device)", zero + 12_000, 20_000, call="cudaMemcpyAsync",
            call_dur=27_000, kind="gpu_memcpy",
        )  # fmt: skip
        for layer in range(layers):
            at = zero + 50_000 + layer * 60_000
            trace.op("aten::linear", at, 50_000, shapes=[[8, 16], [16, 16]], dtypes=["float", "float"])
            trace.op(
                "aten::addmm", at + 5_000, 40_000, shapes=[[16], [8, 16], [16, 16]], dtypes=["float"] * 3,
                args={"Sequence number": step * 100 + layer},
            )  # fmt: skip
            trace.launch(at + 20_000, "ampere_sgemm_128x64_tn", at + 30_000, 25_000, stream=7 + layer % 2)
        for layer in range(layers):
            at = zero + 400_000 + layer * 60_000
            trace.op(
                "autograd::engine::evaluate_function: AddmmBackward0", at, 50_000, tid=4799,
                args={"Sequence number": step * 100 + layers - 1 - layer, "Fwd thread id": 1},
            )  # fmt: skip
            trace.op("aten::mm", at + 6_000, 30_000, tid=4799, shapes=[[8, 16], [16, 16]], dtypes=["float", "float"])
            trace.launch(at + 10_000, "ampere_sgemm_64x64_nn", at + 30_000, 33_000, tid=4799)
            forward = zero + 50_000 + (layers - 1 - layer) * 60_000 + 5_000
            trace.backward(step * 1000 + layer, forward, at, 4799)
        trace.op("aten::_foreach_add_", zero + 900_000, 40_000)
        trace.launch(zero + 910_000, "multi_tensor_apply_kernel", zero + 960_000, 60_000)
    return trace
