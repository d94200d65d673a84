"""Why an op is below its roof, in words: those of `gpuprep validate` for single products, else what is known. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from gpuprep.catalogue import Board, productmodel
from gpuprep.performance import attribution, roofline
from gpuprep.performance.roofline import Roof
from gpuprep.records import Missing
from gpuprep.records.evidence.gemm import Algorithm, Product
from gpuprep.trace.document import OpLine
from gpuprep.trace.profile import UsesTensorCores
from gpuprep.trace.roofs import faster
from gpuprep.trace.roofs.kernels import OpKernels
from gpuprep.trace.work.flops import Work

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
    less = "Winograd or FFT: it calculates less than is counted" if case.kernels.calculates_less else ""
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
