"""Why is an op below its roof? In words, from its kernels and its sizes."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from gpuprep.catalogue import Board, productmodel
from gpuprep.performance import attribution, roofline
from gpuprep.performance.roofline import Roof
from gpuprep.records import Missing
from gpuprep.records.evidence.gemm import Algorithm, Product
from gpuprep.trace.document import OpLine
from gpuprep.trace.profile import KernelRow, Profile, UsesTensorCores
from gpuprep.trace.roofs import faster
from gpuprep.trace.work.flops import Work


@dataclass(frozen=True)
class OpKernels:
    """Kernels by GPU time, the longest first, with nanoseconds. Memory operations are not among them."""

    rows: tuple[tuple[KernelRow, int], ...] = ()
    calls: int = 0

    @property
    def main(self) -> KernelRow | None:
        return self.rows[0][0] if self.rows else None

    @property
    def uses_tensor_cores(self) -> UsesTensorCores:
        """Yes where a kernel does, unknown where one might; no where none does, or there is none."""
        answers = {row.tensor_cores for row, _ in self.rows}
        for answer in (UsesTensorCores.YES, UsesTensorCores.UNKNOWN):
            if answer in answers:
                return answer
        return UsesTensorCores.NO

    @property
    def calculates_less(self) -> bool:
        """Winograd's algorithm and FFT multiply less often than a convolution is counted."""
        return any(FEWER.search(row.name) for row, _ in self.rows)

    @property
    def beside(self) -> tuple[float, str]:
        """(share of the time, name) of kernels that only prepare or end the work."""
        if len(self.rows) < 2:
            return 0.0, ""
        whole = sum(ns for _, ns in self.rows)
        rest = [
            (ns, row.name)
            for row, ns in self.rows
            if row.rule in HELPERS or (row.rule == COPIES[0] and COPIES[1] in row.name)
        ]
        return (sum(ns for ns, _ in rest) / whole, max(rest)[1]) if rest and whole else (0.0, "")


FEWER = re.compile(r"winograd|fft", re.IGNORECASE)
HELPERS = ("helper-of-gemm", "layout", "flash-helper")  # rules of work/kernels.yml
COPIES = ("torch-native", "elementwise_kernel")  # PyTorch's copies, conversions and additions; a rule, and in the name


def kernels_of_ops(profile: Profile, start: int, stop: int) -> dict[int, OpKernels]:
    """By op, of iterations `start` to `stop`, both included."""
    cells = profile.cells
    memory = np.array([row.memory for row in profile.kernels], bool)
    inside = (cells.iteration >= start) & (cells.iteration <= stop)
    if len(memory):
        inside &= ~memory[cells.kernel]
    op, kernel = cells.op[inside].astype(np.int64), cells.kernel[inside].astype(np.int64)
    pairs, of = np.unique(op * max(1, len(memory)) + kernel, return_inverse=True)
    total = np.bincount(of, weights=cells.total[inside], minlength=len(pairs))
    calls = np.bincount(of, weights=cells.calls[inside], minlength=len(pairs))
    rows_by_op: dict[int, list[tuple[KernelRow, int]]] = {}
    counts: dict[int, int] = {}
    for pair, ns, count in zip(pairs.tolist(), total.tolist(), calls.tolist(), strict=True):
        own, which = divmod(pair, len(memory))
        rows_by_op.setdefault(own, []).append((profile.kernels[which], int(ns)))
        counts[own] = counts.get(own, 0) + int(count)
    return {
        own: OpKernels(tuple(sorted(rows, key=lambda row: -row[1])), counts[own]) for own, rows in rows_by_op.items()
    }


# Rows and columns of a tile, as cuBLAS, CUTLASS, XMMA and nvjet write them in a kernel's name. cuBLAS takes the
# columns of PyTorch's result for rows.
TILE = re.compile(r"(?:gemm\w{0,80}?_|tilesize|nvjet_(?:sm\d+_)?[a-z]+_)(\d{2,3})x(\d{2,3})(?!\d)")
UNKNOWN_TILE = Missing("not_recorded", "the kernel's name has no tile")
MUCH_BESIDE = 0.1
MOST = 1.0  # of the roof that tiles and waves leave


@dataclass(frozen=True)
class Case:
    op: OpLine
    work: Work
    board: Board
    dtype: str
    peak: Roof
    kernels: OpKernels
    tflops: float
    misaligned: tuple[tuple[str, int], ...]


def impossible(case: Case) -> str:
    unit = roofline.speed_unit(case.dtype)
    return (
        f"not possible: {case.tflops:.0f} {unit}, and a {case.board.name} calculates at most {case.peak.tflops:.0f} in "
        f"{case.dtype.upper()}. The times, the shapes or the data type in the profile are wrong."
    )


def words(case: Case) -> str:
    explained = _product(case) if case.work.kind == "product" else ""
    less = "Winograd or FFT: it needs fewer operations than are counted" if case.kernels.calculates_less else ""
    parts = [explained or _plain(case), less, _units(case), _beside(case)]
    return "; ".join(part for part in parts if part)


def _product(case: Case) -> str:
    """Tiles, waves and alignment, as `validate` explains them; "" for several products in one call."""
    work = case.work
    if work.batch != 1 or work.times != 1:
        return ""
    rows = "".join(name for name, _ in work.rows)
    product = Product(
        dtype=case.dtype, m=work.m, n=work.n, k=work.k, tflops=case.tflops, algorithm=_algorithm(case.kernels)
    )
    explanation = attribution.explain(product, case.board, rows=rows)
    if isinstance(explanation, Missing):
        return ""
    if explanation.factor("kernel").value > MOST and not isinstance(product.algorithm, Missing):
        # More than tiles and waves allow: the kernel cuts k into parts, which its name does not tell.
        explanation = attribution.explain(replace(product, algorithm=UNKNOWN_TILE), case.board, rows=rows)
    return "" if isinstance(explanation, Missing) else explanation.words


def _algorithm(kernels: OpKernels) -> Algorithm | Missing:
    """The tile that the kernel's name has."""
    match = TILE.search(kernels.main.name[:1000]) if kernels.main else None
    if match is None:
        return UNKNOWN_TILE
    return Algorithm(tile_m=int(match[2]), tile_n=int(match[1]))


def _plain(case: Case) -> str:
    reasons = [f"{case.tflops:.0f} of {case.peak.tflops:.0f} {roofline.speed_unit(case.dtype)}"]
    if case.work.kind == "attention":
        return "; ".join((*reasons, *_attention(case)))
    operation, memory = faster.operation(case.work), roofline.bandwidth(case.board)
    if operation is not None and not isinstance(memory, Missing):
        density, ridge = operation.intensity(case.dtype), roofline.ridge(case.peak.tflops, memory)
        if density < ridge:
            reasons.append(f"memory decides: {density:.0f} operations a byte, and this GPU needs {ridge:.0f}")
    if case.misaligned:
        sizes = " and ".join(f"{name} {size}" for name, size in case.misaligned)
        many = "are no multiples" if len(case.misaligned) > 1 else "is no multiple"
        reasons.append(f"{sizes} {many} of 16 bytes")
    return "; ".join(reasons)


def _attention(case: Case) -> list[str]:
    reasons = []
    if case.work.needed < 1:
        reasons.append(f"counted are the {100 * case.work.needed:.0f} % of the scores that the causal mask leaves")
    known = productmodel.attention_share(case.board.model.architecture) if case.dtype in ("fp16", "bf16") else None
    if known:
        reasons.append(f"fused kernels reach about {100 * known[0]:.0f} % of the roof on this architecture")
    return reasons


def _units(case: Case) -> str:
    """What the kernels' names say of the units, where it is not what the roof expects."""
    if not case.kernels.rows or case.kernels.uses_tensor_cores is not UsesTensorCores.NO:
        return ""
    if case.peak.unit.startswith("tensor_"):
        return "its kernels use no Tensor Cores"
    as_tf32 = roofline.roof(case.board, "tf32") if case.dtype == "fp32" else Missing("", "")
    return f"on CUDA cores: as TF32 the roof is {as_tf32.tflops:.0f} TFLOPS" if isinstance(as_tf32, Roof) else ""


def _beside(case: Case) -> str:
    share, name = case.kernels.beside
    if share < MUCH_BESIDE:
        return ""
    short = name if len(name) <= 60 else name[:59] + "…"
    return f"{100 * share:.0f} % of its time is in kernels that prepare or end it, such as {short}"
