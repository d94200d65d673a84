"""What the cudnn probe measured: convolutions, and the library that calculated them. docs/records.md, cudnn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from gpuprep.records.evidence import NOT_RECORDED, Error, Figure, Word
from gpuprep.records.evidence.shared import Library, NamedGpu, Probe


@dataclass(frozen=True)
class Convolution:
    """`max_relative_error` is against FP64 on the host."""

    dtype: Word = "?"
    layout: str = ""
    shape: str = ""  # "32x64x56x56 * 64x64x3x3": NxCxHxW * KxCxRxS
    microseconds: Figure = NOT_RECORDED
    tflops: Figure = NOT_RECORDED
    max_relative_error: Figure = NOT_RECORDED
    error_tolerance: Figure = NOT_RECORDED
    error: Error = ""


@dataclass(frozen=True)
class Cudnn:
    quick: Optional[bool] = None  # None: a record made before it was recorded
    libraries: tuple[Library, ...] = ()
    gpu: Optional[NamedGpu] = None
    convolutions: tuple[Convolution, ...] = ()


# Medians of thousands of short convolutions: one program that starts beside them moves none.
PROBE = Probe("cudnn", Cudnn, 20, "cudnn", "convolutions through cuDNN", shares_turn=True)
