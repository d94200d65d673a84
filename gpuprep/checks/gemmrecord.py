"""The gemm probe's measurement as its judges read it; absent and ill-formed values are told apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuprep import catalogue
from gpuprep.performance.gemm_shapes import show
from gpuprep.performance.roofline import number, whole
from gpuprep.records import Missing

# A burst ends when it is steady to 1 % or its time is over: under a power cap the clock moves within it, up to 16 % on
# an H200 (measured). Up to STEADY its median is taken as it is; up to WILD it counts where the spread cannot turn the
# verdict.
STEADY_PERCENT, WILD_PERCENT = 5.0, 30.0


@dataclass(frozen=True)
class Gpu:
    """One GPU of the measurement."""

    index: int
    uuid: str
    pci_device_id: str
    facts: catalogue.Gpu | None
    values: Mapping[str, Any]
    gemms: tuple[Mapping[str, Any], ...]
    unreadable: int = 0  # entries among the products that are none
    published: bool = False  # figures from elsewhere, of which only the speed is known

    @property
    def subject(self) -> str:
        return f"gpu {self.index}"

    @property
    def name(self) -> str:
        return self.facts.name if self.facts else f"the GPU 10de:{self.pci_device_id or '?'}"

    def kinds(self) -> list[tuple[str, str]]:
        """(data type, "fp16" where it is also added in FP16) in the order in which they were measured."""
        return list(dict.fromkeys(kind_of(gemm) for gemm in self.gemms))

    def of_kind(self, kind: tuple[str, str]) -> list[Mapping[str, Any]]:
        return [gemm for gemm in self.gemms if kind_of(gemm) == kind]

    def best(self, kind: tuple[str, str]) -> Mapping[str, Any] | None:
        """The fastest product that was measured soundly."""
        return max(self.sound(kind), key=speed, default=None)

    def sound(self, kind: tuple[str, str]) -> list[Mapping[str, Any]]:
        return [gemm for gemm in self.of_kind(kind) if unsound(gemm, published=self.published) is None]

    def by_shape(self, kind: tuple[str, str]) -> dict[str, float]:
        return {shape_of(gemm): speed(gemm) for gemm in self.sound(kind)}


def gpus(values: Mapping[str, Any]) -> list[Gpu]:
    listed = values.get("gpus")
    entries = listed if isinstance(listed, (list, tuple)) else []
    said = is_published(values)
    return [_gpu(entry, position, said) for position, entry in enumerate(entries) if isinstance(entry, Mapping)]


def is_published(values: Mapping[str, Any]) -> bool:
    """Figures that someone published: `published` says who. No probe writes it."""
    return isinstance(values.get("published"), str) and bool(values["published"])


def _gpu(entry: Mapping[str, Any], position: int, published: bool) -> Gpu:
    index, uuid, device = entry.get("index"), entry.get("uuid"), entry.get("pci_device_id")
    listed = entry.get("gemms")
    products = listed if isinstance(listed, (list, tuple)) else []
    readable = tuple(product for product in products if isinstance(product, Mapping) and product)
    return Gpu(
        index=index if isinstance(index, int) and not isinstance(index, bool) else position,
        uuid=uuid if isinstance(uuid, str) else "",
        pci_device_id=device.lower() if isinstance(device, str) else "",
        facts=catalogue.gpu(device) if isinstance(device, str) else None,
        values=entry,
        gemms=readable,
        unreadable=len(products) - len(readable),
        published=published,
    )


def kind_of(gemm: Mapping[str, Any]) -> tuple[str, str]:
    dtype, accumulate = str(gemm.get("dtype")), str(gemm.get("accumulate"))
    return dtype, "fp16" if (dtype, accumulate) == ("fp16", "fp16") else ""


def prop(kind: tuple[str, str]) -> str:
    """The finding's property: "gemm_fp16", "gemm_fp16_accumulate_fp16"."""
    return f"gemm_{kind[0]}_accumulate_{kind[1]}" if kind[1] else f"gemm_{kind[0]}"


def unit(dtype: str) -> str:
    return "TOPS" if dtype == "int8" else "TFLOPS"


def speed(gemm: Mapping[str, Any]) -> float:
    value = number(gemm, "tflops")
    return 0.0 if isinstance(value, Missing) else value


def error_of(values: Mapping[str, Any]) -> str:
    """What went wrong; "" where nothing did."""
    error = values.get("error")
    if isinstance(error, Mapping) and "missing" in error:
        return f"{error['missing']}: {error.get('detail', '')}".rstrip(": ")
    return error if isinstance(error, str) else "" if error is None else f"an error that is no text: {error!r:.60}"


def unsound(gemm: Mapping[str, Any], *, published: bool = False) -> str | None:
    """Why this figure cannot be judged; None where it can."""
    if error := error_of(gemm):
        return error
    shape = [whole(gemm, key) for key in ("m", "n", "k")]
    if None in shape:
        return "its shape is not recorded"
    if speed(gemm) <= 0:
        return "its speed is not recorded"
    spread = number(gemm, "rel_stdev_percent")
    if isinstance(spread, Missing):
        return None if published else "how steady it was is not recorded"
    if not 0 <= spread <= WILD_PERCENT:
        return f"it varied by {spread:.1f} %, more than {WILD_PERCENT:g} %"
    return None


def spread(gpu: Gpu, kind: tuple[str, str], shape: str) -> float:
    """By how many per cent this product varied; 0 where it was steady enough, or nothing is known of it."""
    readings = [number(gemm, "rel_stdev_percent") for gemm in gpu.of_kind(kind) if shape_of(gemm) == shape]
    return max((r for r in readings if not isinstance(r, Missing) and r > STEADY_PERCENT), default=0.0)


def turning(gemm: Mapping[str, Any], percent: float, limit: float) -> str:
    """Why a figure of `percent` cannot be told from `limit`: it varied too much for that; "" where it can."""
    spread = number(gemm, "rel_stdev_percent")
    if isinstance(spread, Missing) or spread <= STEADY_PERCENT:
        return ""
    low, high = percent * (1 - spread / 100), percent * (1 + spread / 100)
    return f"it varied by {spread:.1f} %, so {limit:g} % is within its spread" if low < limit <= high else ""


def shape_of(gemm: Mapping[str, Any]) -> str:
    m, n, k = (whole(gemm, key) or 0 for key in ("m", "n", "k"))
    return show((m, n, k))


def masks(gemm: Mapping[str, Any]) -> list[int | None]:
    """Event reasons of the burst and of the sustained load; None where they were not read."""
    lasting = gemm.get("sustained")
    parts: Sequence[Mapping[str, Any]] = (gemm, lasting) if isinstance(lasting, Mapping) else (gemm,)
    found = [number(part, "event_reasons") for part in parts]
    return [None if isinstance(mask, Missing) or mask < 0 else int(mask) for mask in found]
