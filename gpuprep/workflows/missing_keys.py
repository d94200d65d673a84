"""Which keys of measurements are missing, and where? "measurements[0].values.gpus[0].gemms[1].tflops".

Only for the reader: the checks decide what a missing key means, so this module never changes a verdict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

MOST = 40  # keys that are listed
# By probe: what a verdict needs, also of `published` figures; then what it needs of others. "a|b": one of them.
ALWAYS: Mapping[str, Sequence[str]] = {
    "gemm": (
        "gpus[].pci_device_id",
        "gpus[].gemms[].dtype",
        "gpus[].gemms[].m",
        "gpus[].gemms[].n",
        "gpus[].gemms[].k",
        "gpus[].gemms[].tflops",
    ),
    "bandwidth": (
        "gpus[].pci_device_id",
        "gpus[].copy_gb_per_s|read_gb_per_s|triad_gb_per_s|write_gb_per_s|h2d_gb_per_s|d2h_gb_per_s",
    ),
    "throughput": ("series[].kind", "series[].codec", "series[].outcome", "series[].steps[].fps"),
}
UNLESS_PUBLISHED: Mapping[str, Sequence[str]] = {
    "gemm": (
        "libraries", "toolkit.version", "toolkit.library_dirs", "gpus[].other_processes",
        "gpus[].gemms[].rel_stdev_percent", "gpus[].gemms[].event_reasons", "gpus[].gemms[].exact|max_relative_error",
    ),
    "bandwidth": (
        "gpus[].copy_gb_per_s", "gpus[].h2d_gb_per_s", "gpus[].d2h_gb_per_s", "gpus[].other_processes",
        "gpus[].event_reasons", "gpus[].memory_clock_mhz", "gpus[].pcie",
    ),
    "throughput": (
        "gpus[].other_processes", "series[].width", "series[].height", "series[].steps[].sessions",
        "series[].steps[].died", "series[].steps[].frames", "series[].steps[].seconds",
        "series[].steps[].video_clock_mhz",
    ),
}  # fmt: skip


def missing(measurements: Sequence[tuple[str, Any]]) -> list[str]:
    """The missing keys of `measurements`, which are (probe, values), in the order of the file; at most MOST."""
    keys: list[str] = []
    for index, (probe, values) in enumerate(measurements):
        if not isinstance(values, Mapping) or "missing" in values:
            continue
        paths = [*ALWAYS.get(probe, ()), *(() if values.get("published") else UNLESS_PUBLISHED.get(probe, ()))]
        for path in paths:
            for key in _missing(values, path.split("."), f"measurements[{index}].values"):
                if key not in keys:
                    keys.append(key)
                if len(keys) >= MOST:
                    return keys
    return keys


def _missing(value: Any, path: Sequence[str], where: str) -> Iterator[str]:
    if not isinstance(value, Mapping) or value.get("error") or "missing" in value:
        return  # it says itself why there is nothing
    if value.get("outcome") not in (None, "completed"):
        return  # the same, of a series that was not measured
    step, rest = path[0], path[1:]
    names = step.removesuffix("[]").split("|")
    if all(value.get(name) is None for name in names):
        yield f"{where}.{' or '.join(names)}"
        return
    inner = value[names[0]] if rest or step.endswith("[]") else None
    if step.endswith("[]"):
        if not isinstance(inner, list) or not inner:
            yield f"{where}.{names[0]}[0]"
            return
        for index, element in enumerate(inner):
            yield from _missing(element, rest, f"{where}.{names[0]}[{index}]")
    elif rest:
        yield from _missing(inner, rest, f"{where}.{names[0]}")
