"""Programs that train, as a clock of the CPU and one of each stream: what a profiler would have written of them.

p = Program()
for _ in p.steps(3):
    with p.range("Optimizer.step#SGD.step"):
        p.op("aten::add_", Kernel("vectorized_elementwise_kernel", 5_000))
    p.wait("cudaStreamSynchronize")
p.opened(tmp_path).document.advice          the recommendations
p.step_ns                                   from step to step, as it truly was

A kernel begins LATENCY after its launch, or when its stream is free. Times are ns.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from synthetic import Kineto

from gpuprep.trace.opening import Opened, Wish, open_trace
from gpuprep.trace.opening.machine import SIDECAR

LATENCY = 5_000
H100 = {
    "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85_000_000_000, "computeMajor": 9, "computeMinor": 0,
    "numSms": 132,
}  # fmt: skip
# Of the CPU, before and behind a call inside an op.
BEFORE, CALL, BEHIND = 5_000, 4_000, 3_000
PRODUCT_FP32 = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4"
PRODUCT_TF32 = "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_stage3_warpsize2x2x1_tensor16x8x8"
PRODUCT_BF16 = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_TNT"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, Array<char*, 3> >"


@dataclass(frozen=True)
class Kernel:
    name: str
    ns: int
    stream: int = 7
    kind: str = "kernel"
    size: int = 4096  # bytes of a copy
    grid: tuple[int, int, int] = (4096, 1, 1)
    call: str = "cudaLaunchKernel"
    blocks: bool = False  # the call returns when the copy is done
    device: int = 0


class Program:
    def __init__(self, **top: Any) -> None:
        self.trace = Kineto("G4", top={"deviceProperties": [H100], "distributedInfo": {}, **top})
        self.now = 1_000_000
        self.free: dict[tuple[int, int], int] = {}
        self.starts: list[int] = []
        self.count = 0

    def steps(self, count: int) -> Iterator[int]:
        for step in range(count):
            begun = self.now
            self.starts.append(begun)
            yield step
            self.trace.annotation(f"ProfilerStep#{step}", begun, self.now - begun)
            self.now += 2_000
        self.starts.append(self.now)
        self.count = count

    @property
    def step_ns(self) -> float:
        """From the first step to the last: of the CPU, or of the GPU where that is behind."""
        last = max([self.now, *self.free.values()])
        return (last - self.starts[0]) / self.count

    @contextmanager
    def range(self, name: str, before: int = 2_000, behind: int = 2_000) -> Iterator[None]:
        begun = self.now
        self.now += before
        yield
        self.now += behind
        self.trace.annotation(name, begun, self.now - begun)

    @contextmanager
    def inside(self, name: str, **more: Any) -> Iterator[None]:
        """An op with other ops in it."""
        begun = self.now
        self.now += 1_000
        yield
        self.now += 1_000
        self.trace.op(name, begun, self.now - begun, **more)

    def op(self, name: str, *kernels: Kernel, cpu: int = 0, **more: Any) -> None:
        """`cpu`: its work besides launching. more: shapes, dtypes, args, tid."""
        begun = self.now
        self.now += cpu
        launches = []
        for kernel in kernels:
            self.now += BEFORE
            launches.append((kernel, self.now))
            self.now = self._launched(kernel, self.now, more.get("tid"))
        self.now += BEHIND
        self.trace.op(name, begun, self.now - begun, **more)

    def _launched(self, kernel: Kernel, at: int, tid: Any = None) -> int:
        lane = (kernel.device, kernel.stream)
        start = max(at + LATENCY, self.free.get(lane, 0))
        self.free[lane] = start + kernel.ns
        until = start + kernel.ns + 3_000 if kernel.blocks else at + CALL
        details = {"grid": list(kernel.grid)} if kernel.kind == "kernel" else {"bytes": kernel.size}
        self.trace.launch(
            at, kernel.name, start, kernel.ns, stream=kernel.stream, kind=kernel.kind, call_dur=until - at,
            call=kernel.call if kernel.kind == "kernel" else "cudaMemcpyAsync", args=details, tid=tid,
            device=kernel.device,
        )  # fmt: skip
        return until

    def wait(self, call: str = "cudaStreamSynchronize") -> None:
        begun = self.now
        self.now = max(self.now + 2_000, max(self.free.values(), default=0) + 4_000)
        self.call(call, begun, self.now - begun)

    def call(self, name: str, at: int, ns: int) -> None:
        self.trace.correlation += 1
        self.trace.event("cuda_runtime", name, at, ns, args={"cbid": 1, "correlation": self.trace.correlation})

    def opened(self, folder: Path, wish: Wish | None = None, *, timed: bool = False) -> Opened:
        """`timed`: with a note beside it of how long a step takes without the profiler. Here it takes the same."""
        path = self.trace.write(folder / "program.json")
        if timed:
            beside = path.with_name(f"{path.name}{SIDECAR}")
            beside.write_text(json.dumps({"machine": {}, "step_ms_without_profiler": [self.step_ns / 1e6]}))
        return open_trace(path, wish or Wish())
