"""Figures as people read them."""

from __future__ import annotations

from collections.abc import Sequence

from gpuprep.trace.document import TraceDocument

NOT_TOLD = "n/a"
MOST_RANKS = 12  # in words


def milliseconds(us: float | None) -> str:
    """Four significant digits: "487.5", "3.204", "0.0123"."""
    if us is None:
        return NOT_TOLD
    ms = us / 1000
    for least, digits in ((1000, 0), (100, 1), (10, 2), (0.1, 3)):
        if abs(ms) >= least:
            return f"{ms:,.{digits}f}"
    return f"{ms:.4f}" if ms else "0"


def percent(value: float | None) -> str:
    return NOT_TOLD if value is None else f"{value:.1f} %"


def share(part: float, whole: float) -> str:
    return percent(100 * part / whole if whole else None)


def cell(value: str | int | float | None, unit: str) -> str:
    """A cell of a sheet for people; times in ms."""
    if value is None:
        return NOT_TOLD
    if isinstance(value, str):
        return value
    if unit == "us":
        return milliseconds(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.1f}" if unit == "%" else f"{value:,.4g}"


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def ranks_in_words(ranks: Sequence[int]) -> str:
    """ "rank 3", "ranks 0 to 7", "ranks 0, 2, 3"; long lists are cut."""
    numbers = sorted(set(ranks))
    if len(numbers) == 1:
        return f"rank {numbers[0]}"
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"ranks {numbers[0]} to {numbers[-1]}"
    more = f" and {len(numbers) - MOST_RANKS} more" if len(numbers) > MOST_RANKS else ""
    return f"ranks {', '.join(map(str, numbers[:MOST_RANKS]))}{more}"


def gpus(document: TraceDocument) -> str:
    """The names of those that worked: "NVIDIA H200 (9.0)", "2 x NVIDIA H200 (9.0)"."""
    named: dict[str, int] = {}
    worked = [device for device in document.file.devices if device.kernels or device.memory_operations]
    for device in worked or document.file.devices:
        name = device.name or "a GPU without a name"
        name += f" ({device.compute_capability})" if device.compute_capability else ""
        named[name] = named.get(name, 0) + 1
    return ", ".join(f"{often} x {name}" if often > 1 else name for name, often in named.items()) or "no GPU"
