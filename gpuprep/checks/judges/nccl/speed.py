"""Are NCCL's collectives as fast as the links between the GPUs allow, in every size?"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from gpuprep.agent.compute import ncclplan
from gpuprep.agent.compute.ncclplan import LARGE, MEDIUM, SMALL
from gpuprep.catalogue import topologies as catalogue
from gpuprep.checks.common import known, unknown, why_missing
from gpuprep.checks.floors import FAIL_SHARE, apart, figure, percents
from gpuprep.checks.judges.nccl.ways import Way
from gpuprep.records import Finding, Missing, Status
from gpuprep.records.evidence.nccl import Nccl, Point

AGAIN = "measure again"
MEDIUM_SHARE = 0.7  # of the floor, from MEDIUM to LARGE: on healthy machines 128 MiB reach 75 to 100 % of what 4 GiB do
INCREDIBLE = 1.03
ROUNDED = 0.03  # by which speed, size and duration of one point may contradict each other
# A message may not take much longer than a larger one. NCCL changes its protocol between sizes, which costs a little.
STEP_SHARE, STEP_MICROSECONDS = 1.5, 20.0
DIP_SHARE = 0.75  # of the speed of smaller messages: the same change
# Microseconds, and those for each GPU, because one thread starts them all. Two H200 take 17 to 24.
SLOW_LATENCY, SLOW_LATENCY_EACH = 40.0, 20.0
LINKS = (
    "see the kernel's log for Xid 74 (NVLink), nvidia-smi nvlink -e and the state of Fabric Manager; the copies from"
    " GPU to GPU (probe bandwidth) tell which link it is; show the provider this report"
)
OVER_PCIE = (
    "see nvidia-smi topo -m, and that the BIOS has the IOMMU and ACS off for direct access (in a VM: ask the provider);"
    " keep work on neighbouring GPUs"
)


@dataclass(frozen=True)
class _Judged:
    """A point and its floors. `need` and `fault` are GB/s."""

    point: Point
    busbw: float
    need: float
    fault: float

    @property
    def share(self) -> float:
        return self.busbw / self.need


def findings(values: Nccl, way: Way | Missing, points: Sequence[Point], ranks: int, busy: str) -> list[Finding]:
    """A finding for each measured collective. `busy`: why no speed counts; "" if nothing disturbed it."""
    present = list(dict.fromkeys(point.operation for point in points if point.operation in ncclplan.OPERATIONS))
    findings = []
    for operation in present:
        own = [point for point in points if point.operation == operation]
        findings.append(_speed(values, way, operation, own, ranks, busy))
        findings += _steps(operation, own) if not values.published else []
    return findings


def _speed(values: Nccl, way: Way | Missing, operation: str, points: Sequence[Point], ranks: int, busy: str) -> Finding:
    missing = f"the speed of {operation}"
    for point in points:
        if wrong := contradiction(point, ranks):
            return Finding(
                "nccl", operation, Status.UNKNOWN, "figures that fit together", "contradictory", wrong, AGAIN
            )
    if not values.published and (untold := _untold(points)):  # the size without figures may be the slow one
        nothing = Missing("not_recorded", f"{', '.join(untold[:3])}: no duration or no bus bandwidth")
        return unknown("nccl", operation, nothing, expected="each size measured", what=missing, remedy=AGAIN)
    large = [
        (point, busbw) for point in points if _sent(point, ranks) >= MEDIUM and (busbw := known(point.busbw_gb_per_s))
    ]
    if not large:
        nothing = Missing("not_recorded", f"no bus bandwidth where each GPU sends {ncclplan.words(MEDIUM)} or more")
        return unknown("nccl", operation, nothing, expected="a large message", what=missing, remedy=AGAIN)
    best, fastest = max(large, key=lambda one: one[1])
    if isinstance(way, Missing):
        shown = f"{figure(fastest)} GB/s bus bandwidth at {ncclplan.words(best.bytes or 0)}"
        why = f"the possible speed is not known: {way.detail or why_missing(way)}"
        remedy = "compare it with a healthy machine's" if way.reason == "not_in_catalogue" else AGAIN
        return Finding("nccl", operation, Status.UNKNOWN, "a floor", shown, why, remedy)
    floor = _floor(values, way, operation, ranks)
    judged = [_judged(point, busbw, ranks, floor, way) for point, busbw in large]
    worst = min(judged, key=lambda one: one.share)
    need = percents(100 * worst.busbw / way.carries, 100 * worst.need / way.carries)[1]  # a smaller message needs less
    expected = f"≥ {need} % of {figure(way.carries)} GB/s ({way.words}; {floor.source})"
    most = INCREDIBLE * way.at_most * _above_links(values, way, operation, ranks)
    if fastest > most:
        why = (
            f"{figure(fastest)} GB/s of bus bandwidth at {ncclplan.words(best.bytes or 0)} are more than {way.words}"
            f" carry ({figure(way.at_most)} GB/s): the measurement, the number of GPUs or the catalogue is wrong"
        )
        return Finding("nccl", operation, Status.UNKNOWN, expected, f"{figure(fastest)} GB/s", why, AGAIN)
    shown = _shown(worst, way)
    if busy:
        return Finding("nccl", operation, Status.UNKNOWN, expected, shown, busy, "stop it, then measure again")
    if floor.borrowed and worst.fault <= worst.busbw < worst.need:
        why = (
            f"of {operation} on {ranks} GPUs no figure is known; this one reaches {shown}, and all_reduce's floor "
            f"is {need} %"
        )
        return Finding("nccl", operation, Status.UNKNOWN, expected, shown, why, "compare it with a healthy machine's")
    return _against(values, way, operation, worst, expected, shown)


def _against(values: Nccl, way: Way, operation: str, worst: _Judged, expected: str, shown: str) -> Finding:
    size = ncclplan.words(worst.point.bytes or 0)
    busbw, need = apart(worst.busbw, worst.need)
    sentence = (
        f"{operation} of {size} reaches {busbw} GB/s of bus bandwidth, and {way.words} carry {figure(way.carries)}"
    )
    remedy = OVER_PCIE if way.kind == "pcie" else LINKS
    if way.unused_nvlinks:
        why = f"none of the {way.unused_nvlinks} NVLinks is up: {sentence}"
        remedy = "see that Fabric Manager runs; ask the provider whether this size of machine has NVLink"
        status = Status.WARN if worst.busbw >= worst.fault else Status.FAIL
        return Finding("nccl", operation, status, expected, shown, why, remedy)
    if worst.share >= 1 - 1e-9:
        return Finding("nccl", operation, Status.PASS, expected, shown)
    why = f"{sentence}; at this size a healthy machine reaches {need}{_settings(values)}"
    return Finding(
        "nccl", operation, Status.WARN if worst.busbw >= worst.fault else Status.FAIL, expected, shown, why, remedy
    )


def _settings(values: Nccl) -> str:
    """NCCL's transports and environment variables, which may be the cause, as text; "" if unknown."""
    settings = []
    if values.chosen and values.chosen.transports:
        settings.append("NCCL uses " + ", ".join(transport.name for transport in values.chosen.transports[:3]))
    settings += [f"{variable.name} is set to {variable.value}" for variable in values.environment[:5]]
    return f" ({'; '.join(settings)})" if settings else ""


def _floor(values: Nccl, way: Way, operation: str, ranks: int) -> catalogue.NcclFloor:
    return catalogue.floor(
        "multicast" if _multicast(values, way, operation) else way.kind, way.compute_capability, operation, ranks
    )


def _multicast(values: Nccl, way: Way, operation: str) -> bool:
    """Whether the switches do the addition (NVLS), according to NCCL's log."""
    used = bool(values.chosen and values.chosen.nvls_channels)
    return used and way.kind == "switch" and operation == "all_reduce"


def _above_links(values: Nccl, way: Way, operation: str, ranks: int) -> float:
    """By how much the bus bandwidth may exceed the links. With multicast each GPU sends its buffer only once, so the
    formula gives up to 2(n-1)/n of the links' speed; else 1.

    From Hopper on, multicast counts as used unless the record shows that it was not.
    """
    channels = values.chosen.nvls_channels if values.chosen else None
    may = channels is None or channels > 0
    able = way.kind == "switch" and operation == "all_reduce" and float(way.compute_capability) >= 9
    return ncclplan.bus_factor(operation, ranks) if may and able else 1.0


def _sent(point: Point, ranks: int) -> float:
    """Bytes that one GPU sends, slightly more: sizes are rounded down so that the ranks share them evenly."""
    return ncclplan.sent(point.operation, point.bytes or 0, ranks) * (1 + ROUNDED)


def _judged(point: Point, busbw: float, ranks: int, floor: catalogue.NcclFloor, way: Way) -> _Judged:
    share = 1.0 if _sent(point, ranks) >= LARGE else MEDIUM_SHARE
    need = share * floor.percent / 100 * way.carries
    fault = FAIL_SHARE * need if floor.least is None else share * floor.least / 100 * way.carries
    return _Judged(point, busbw, need, fault)


def _shown(worst: _Judged, way: Way) -> str:
    percent = percents(100 * worst.busbw / way.carries, 100 * worst.need / way.carries)[0]
    return f"{figure(worst.busbw)} GB/s bus bandwidth at {ncclplan.words(worst.point.bytes or 0)}, {percent} %"


def _untold(points: Sequence[Point]) -> list[str]:
    """Sizes that lack a figure which the probe writes for each size."""
    return [
        ncclplan.words(point.bytes or 0)
        for point in points
        if isinstance(point.microseconds, Missing) or isinstance(point.busbw_gb_per_s, Missing)
    ]


def contradiction(point: Point, ranks: int) -> str:
    """Why this point is impossible; "" if it is possible."""
    name = f"{point.operation} of {ncclplan.words(point.bytes or 0)}"
    taken, bus, alg = point.microseconds, point.busbw_gb_per_s, point.algbw_gb_per_s
    for what, reading in (("duration", taken), ("bus bandwidth", bus), ("algorithm bandwidth", alg)):
        if isinstance(reading, Missing):
            if reading.reason == "unparsable":
                return f"the {what} of {name} is no number ({reading.detail})"
        elif reading <= 0:
            return f"the {what} of {name} is {reading:g}"
    factor = ncclplan.bus_factor(point.operation, ranks)
    if not isinstance(bus, Missing) and not isinstance(alg, Missing) and _differ(bus, alg * factor):
        return f"{name}: a bus bandwidth of {bus:g} and an algorithm bandwidth of {alg:g} GB/s do not fit {ranks} GPUs"
    if not isinstance(bus, Missing) and not isinstance(taken, Missing) and point.bytes:
        _, implied = ncclplan.speeds(point.operation, point.bytes, ranks, taken / 1e6)
        if _differ(bus, implied):
            return f"{name} in {taken:g} µs would be {implied:.3g} GB/s of bus bandwidth, and {bus:g} is recorded"
    return ""


def _differ(one: float, other: float) -> bool:
    return abs(one - other) > ROUNDED * max(abs(one), abs(other))


def _steps(operation: str, points: Sequence[Point]) -> list[Finding]:
    """WARN if a message takes much longer than a larger one, or has a much lower speed than a smaller one."""
    timed = sorted(
        (point.bytes, point.microseconds)
        for point in points
        if point.bytes and not isinstance(point.microseconds, Missing) and point.microseconds > 0
    )
    slow = []
    for place, (size, taken) in enumerate(timed):
        least = min((later for _, later in timed[place + 1 :]), default=taken)
        fastest = max((before / at for before, at in timed[:place]), default=0.0)
        if taken > STEP_SHARE * least + STEP_MICROSECONDS:
            slow.append(f"{ncclplan.words(size)} takes {taken:.0f} µs, and a larger message {least:.0f}")
        elif size / taken < DIP_SHARE * fastest:
            percent = 100 * size / taken / fastest
            slow.append(f"{ncclplan.words(size)} is moved at {percent:.0f} % of the speed of a smaller message")
    if not slow:
        return []
    why = f"{operation}: {'; '.join(slow[:3])}"
    remedy = f"{AGAIN}; if it stays, see what else the machine does, and the NCCL_ variables that are set"
    return [Finding("nccl", f"{operation}_sizes", Status.WARN, "larger takes longer", "slower in between", why, remedy)]


def latency(points: Sequence[Point], ranks: int, busy: str) -> list[Finding]:
    """The finding on the median time of messages up to 8 KiB, which depends on CPU and driver, not on the links."""
    medians = []
    for operation in ncclplan.OPERATIONS:
        own = [
            point.microseconds for point in points if point.operation == operation and 0 < (point.bytes or 0) <= SMALL
        ]
        read = [taken for taken in own if not isinstance(taken, Missing) and taken > 0]
        if not read:
            continue
        medians.append((statistics.median(read), operation))
    if not medians:
        nothing = Missing("not_recorded", f"no duration of a message up to {ncclplan.words(SMALL)}")
        return [unknown("nccl", "latency", nothing, expected="measured", what="the latency", remedy=AGAIN)]
    slowest, operation = max(medians)
    limit = SLOW_LATENCY + SLOW_LATENCY_EACH * ranks
    expected = f"at most {limit:.0f} µs for a small message on {ranks} GPUs"
    shown = ", ".join(f"{name} {apart(taken, limit, 0)[0]} µs" for taken, name in medians)
    if busy:
        return [Finding("nccl", "latency", Status.UNKNOWN, expected, shown, busy, "stop it, then measure again")]
    if slowest <= limit:
        return [Finding("nccl", "latency", Status.PASS, expected, shown)]
    taken = apart(slowest, limit, 0)[0]
    why = f"a small {operation} takes {taken} µs: the CPU or the driver is busy or slow, not the links"
    remedy = "see the load of the CPUs, and that persistence mode is on (`gpuprep tune HOST --profile PROFILE` sets it)"
    return [Finding("nccl", "latency", Status.WARN, expected, shown, why, remedy)]
