"""The gemm probe's measurement in the form that the checks use; absent and malformed values stay distinct."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gpuprep import catalogue
from gpuprep.catalogue.boards import MASKED
from gpuprep.checks import conditions
from gpuprep.performance.gemm_shapes import show
from gpuprep.records import Missing
from gpuprep.records.evidence import Figure
from gpuprep.records.evidence.gemm import Gemm, GemmGpu, Product
from gpuprep.records.evidence.shared import NamedGpu

# A burst ends when it is steady to 1 % or its time is over: under a power cap the clock moves within it, up to 16 % on
# an H200 (measured). Up to STEADY its median is taken as it is; up to WILD it counts where the spread cannot turn the
# verdict.
STEADY_PERCENT, WILD_PERCENT = 5.0, 30.0


@dataclass(frozen=True)
class Gpu:
    """One GPU of the measurement."""

    index: int
    pci_device_id: str
    facts: catalogue.Board | None
    measured: GemmGpu
    gemms: tuple[Product, ...]
    unreadable: int = 0  # entries among the products that are none
    published: bool = False  # figures from elsewhere, of which only the speed is known

    @property
    def uuid(self) -> str:
        return self.measured.uuid

    @property
    def subject(self) -> str:
        return f"gpu {self.index}"

    @property
    def name(self) -> str:
        """The board's name; for a GPU that the catalogue lacks, the name in the measurement."""
        if self.facts:
            return self.facts.name
        if self.pci_device_id in MASKED and self.measured.name:
            return self.measured.name
        ids = f"10de:{self.pci_device_id or '?'}"
        return f"{self.measured.name} ({ids})" if self.measured.name else f"the GPU {ids}"

    def is_like(self, other: Gpu) -> bool:
        """Whether both are the same board, so that their speeds can be compared."""
        boards = [gpu.facts.key if gpu.facts else "" for gpu in (self, other)]
        named = [gpu.measured.name if gpu.facts is None else "" for gpu in (self, other)]
        return self.pci_device_id == other.pci_device_id and boards[0] == boards[1] and named[0] == named[1]

    def kinds(self) -> list[tuple[str, str]]:
        """(data type, accumulator) in the measured order; the accumulator is "fp16" or "" for the usual one."""
        return list(dict.fromkeys(kind_of(gemm) for gemm in self.gemms))

    def of_kind(self, kind: tuple[str, str]) -> list[Product]:
        return [gemm for gemm in self.gemms if kind_of(gemm) == kind]

    def best(self, kind: tuple[str, str]) -> Product | None:
        """The fastest product whose figure can be judged."""
        return max(self.usable(kind), key=lambda gemm: speed(gemm.tflops), default=None)

    def usable(self, kind: tuple[str, str]) -> list[Product]:
        return [gemm for gemm in self.of_kind(kind) if why_unusable(gemm, published=self.published) is None]


def by_measurement(gpu: NamedGpu) -> catalogue.Board | None:
    """The board according to the measurement alone."""
    return catalogue.board_in(None, gpu)


def gpus(values: Gemm, board: Callable[[NamedGpu], catalogue.Board | None] = by_measurement) -> list[Gpu]:
    """The readable GPUs in the measured order. `board` looks up a GPU in the catalogue."""
    return [
        _gpu(entry, position, bool(values.published), board(entry))
        for position, entry in enumerate(values.gpus)
        if not isinstance(entry, Missing)
    ]


def _gpu(entry: GemmGpu, position: int, published: bool, board: catalogue.Board | None) -> Gpu:
    readable = tuple(product for product in entry.gemms if not isinstance(product, Missing))
    return Gpu(
        index=position if entry.index is None else entry.index,
        pci_device_id=entry.pci_device_id.lower(),
        facts=board,
        measured=entry,
        gemms=readable,
        unreadable=len(entry.gemms) - len(readable),
        published=published,
    )


def kind_of(gemm: Product) -> tuple[str, str]:
    return gemm.dtype, "fp16" if (gemm.dtype, gemm.accumulate) == ("fp16", "fp16") else ""


def prop(kind: tuple[str, str]) -> str:
    """The finding's property: "gemm_fp16", "gemm_fp16_accumulate_fp16"."""
    return f"gemm_{kind[0]}_accumulate_{kind[1]}" if kind[1] else f"gemm_{kind[0]}"


def speed(tflops: Figure) -> float:
    """The speed; 0 if it is not recorded."""
    return 0.0 if isinstance(tflops, Missing) else tflops


def why_unusable(gemm: Product, *, published: bool = False) -> str | None:
    """Why this figure cannot be judged; None if it can."""
    if gemm.error:
        return gemm.error
    if None in (gemm.m, gemm.n, gemm.k):
        return "its shape is not recorded"
    if speed(gemm.tflops) <= 0:
        return "its speed is not recorded"
    spread = gemm.rel_stdev_percent
    if isinstance(spread, Missing):
        return None if published else "how steady it was is not recorded"
    if not 0 <= spread <= WILD_PERCENT:
        return f"it varied by {spread:.1f} %, more than {WILD_PERCENT:g} %"
    return None


def spread(gpu: Gpu, kind: tuple[str, str], shape: str) -> float:
    """Variation of this product in per cent; 0 if it was steady enough or unknown."""
    readings = [gemm.rel_stdev_percent for gemm in gpu.of_kind(kind) if shape_of(gemm) == shape]
    return max((r for r in readings if not isinstance(r, Missing) and r > STEADY_PERCENT), default=0.0)


def turning(gemm: Product, percent: float, limit: float) -> str:
    """Why a figure of `percent` may be on either side of `limit`, because it varied too much; "" if it is clear."""
    spread = gemm.rel_stdev_percent
    if isinstance(spread, Missing) or spread <= STEADY_PERCENT:
        return ""
    low, high = percent * (1 - spread / 100), percent * (1 + spread / 100)
    return f"it varied by {spread:.1f} %, so {limit:g} % is within its spread" if low < limit <= high else ""


def shape_of(gemm: Product) -> str:
    if gemm.m is None or gemm.n is None or gemm.k is None:
        return "x".join("?" if side is None else str(side) for side in (gemm.m, gemm.n, gemm.k))
    return show((gemm.m, gemm.n, gemm.k))


def masks(gemm: Product) -> list[int | None]:
    """Event reasons of the burst and of the sustained load; None if not read."""
    read = [gemm.event_reasons]
    if gemm.sustained is not None:
        read.append(gemm.sustained if isinstance(gemm.sustained, Missing) else gemm.sustained.event_reasons)
    return [conditions.mask(reasons) for reasons in read]
