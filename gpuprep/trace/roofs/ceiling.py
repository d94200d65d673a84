"""Which roof an op has: the catalogue's peak at its data type, or what a record of the machine measured. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Union

from gpuprep.catalogue import Board, parse
from gpuprep.performance import roofline
from gpuprep.performance.roofline import Roof
from gpuprep.records import Missing, RunRecord, Source
from gpuprep.records.evidence import measured as decoded
from gpuprep.records.evidence.gemm import Gemm, GemmGpu, Product
from gpuprep.trace.profile import UsesTensorCores
from gpuprep.trace.work.proof import ABOVE, proves

MeasuredRoofs = Mapping[str, tuple[float, str]]  # data type ► TFLOPS and where they are from


def dtype_of(given: str, board: Board, uses: UsesTensorCores, tflops: float) -> tuple[str, str]:
    """(data type of the roof, what is not sure about it). FP32 on Tensor Cores is TF32: the kernels' names tell.

    Where they do not, a speed that CUDA cores cannot reach does. `tflops` 0: it proves nothing, as of a convolution.
    """
    if given != "fp32" or parse(board.model.compute_capability) < parse("8.0"):
        return given, ""
    if uses is UsesTensorCores.NO:
        return "fp32", ""
    if uses is UsesTensorCores.YES or proves(board, given, tflops):
        return "tf32", ""
    return "tf32", "the kernels' names do not tell whether this was TF32 or FP32"


def peak(board: Board, dtype: str) -> Union[Roof, Missing]:
    return roofline.roof(board, dtype) if dtype else Missing("not_recorded", "the profile does not tell the data type")


def impossible(tflops: float, roof: Roof) -> bool:
    """More than the peak is not a fast kernel, but a wrong figure."""
    return tflops > ABOVE * roof.tflops


def measured(record: RunRecord | None, gpu_names: Collection[str]) -> MeasuredRoofs:
    """The fastest product of each data type that the record has of these GPUs. `gpu_names`: those that worked."""
    fastest: dict[str, tuple[float, str]] = {}
    for result in record.measurements if record else ():
        values = decoded(Gemm, result.values) if result.probe == "gemm" else None
        if record is None or values is None or isinstance(values, Missing):
            continue
        simulated = " (simulated)" if result.source is Source.SIMULATED else ""
        for gemm in _products(values, gpu_names):
            best = fastest.get(gemm.dtype, (0.0, ""))[0]
            if not isinstance(gemm.tflops, Missing) and gemm.tflops > best:
                fastest[gemm.dtype] = (float(gemm.tflops), f"record {record.run_id}{simulated}")
    return fastest


def _products(values: Gemm, gpu_names: Collection[str]) -> list[Product]:
    """Of GPUs with such a name; of all where the profile names none."""
    gpus = [gpu for gpu in values.gpus if isinstance(gpu, GemmGpu) and (not gpu_names or gpu.name in gpu_names)]
    return [gemm for gpu in gpus for gemm in gpu.gemms if isinstance(gemm, Product)]
