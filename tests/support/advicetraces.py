"""Traces from which one recommendation follows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from programs import PRODUCT_BF16, Kernel, Program

from gpuprep.trace.document import Advice

MM: dict[str, Any] = {"shapes": [[4096, 4096], [4096, 4096]], "dtypes": ["float", "float"]}


HALF: dict[str, Any] = {"shapes": [[4096, 4096], [4096, 4096]], "dtypes": ["c10::BFloat16", "c10::BFloat16"]}


HTOD = "Memcpy HtoD (Pageable -> Device)"


PINNED = "Memcpy HtoD (Pinned -> Device)"


LOADER0 = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


LOADER = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"


NCCL = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def product(p: Program, kernel: str = PRODUCT_BF16, ns: int = 200_000, many: int = 10, **more: Any) -> None:
    """Work that keeps the GPU busy."""
    for _ in range(many):
        p.op("aten::mm", Kernel(kernel, ns), **(more or HALF))


def loading(name: str, ns: int) -> Callable[[], Program]:
    def made() -> Program:
        p = Program()
        for _ in p.steps(4):
            with p.range(name, before=ns):
                pass
            product(p)
            p.wait()
        return p

    return made


def copies(name: str, blocks: bool, stream: int = 7) -> Callable[[], Program]:
    def made() -> Program:
        p = Program()
        for _ in p.steps(3):
            copy = Kernel(name, 6_000_000, stream, "gpu_memcpy", size=64 * 2**20, blocks=blocks)
            p.op("aten::copy_", copy, shapes=[[16, 2**20]], dtypes=["float"])
            product(p, many=20)
        return p

    return made


def allocating(inside: bool) -> Callable[[], Program]:
    def made() -> Program:
        p = Program()
        for step in p.steps(4):
            for _ in range(4):
                product(p, many=2)
                if inside or not step:
                    p.call("cudaMalloc", p.now, 300_000)
                    p.now += 305_000
        return p

    return made


def said(program: Program, folder: Path) -> dict[str, Advice]:
    return {one.rule: one for one in program.opened(folder).document.advice}
