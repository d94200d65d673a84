"""Collectives of NCCL over all GPUs (docs/records.md, nccl): is every result correct, and as fast as the links allow?

Published figures (`published` names the source) contain only speeds; checks about a host are then SKIP.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuprep.agent.compute import ncclplan
from gpuprep.catalogue import Board
from gpuprep.checks import conditions, links
from gpuprep.checks.common import known, skip, unknown
from gpuprep.checks.evidence import Evidence, absent_gpus, duplicate_gpus
from gpuprep.checks.installed import libraries
from gpuprep.checks.judges.nccl import speed, ways
from gpuprep.checks.judges.nccl.ways import Way, way
from gpuprep.performance import clock_events
from gpuprep.performance.clock_events import IDLE
from gpuprep.records import Finding, Missing, Status
from gpuprep.records.evidence.bandwidth import Bandwidth, Pcie
from gpuprep.records.evidence.nccl import Nccl, NcclGpu, Point

EXPECTED = "collectives over all GPUs"
AGAIN = "measure again"
MEASURE = (
    "see that NCCL is installed (nccl.version in the profile; `gpuprep provision HOST "
    "--profile PROFILE --only nccl` installs it), then measure again"
)
LINKS = (
    "look at NVLink (nvidia-smi nvlink -s and -e, Xid 74 in the kernel's log) and at Fabric Manager, then measure again"
)
WRONG = "do not calculate on these GPUs; ask for another machine, and show the provider this report"
# Reasons that lower clocks because of a fault of the machine, not its load.
HARMFUL = clock_events.HW_THERMAL | clock_events.POWER_BRAKE | clock_events.HW_SLOWDOWN | clock_events.SW_THERMAL
MEMORY_SHARE = 4  # a GPU with this many times a buffer has room for it, unless others use it
NAMED = 4
NO_WORD = Point().operation  # of a figure that does not say which collective it is


def findings(evidence: Evidence) -> list[Finding]:
    values = evidence.of(Nccl, "nccl")
    if isinstance(values, Missing):
        if values.reason == "not_installed" and evidence.wanted.nccl.version == "none":
            why = f"the profile asks for no NCCL (nccl.version), and there is none to measure: {values.detail}"
            return [skip("nccl", "measured", expected=EXPECTED, actual="not measured", reason=why)]
        return [unknown("nccl", "measured", values, expected=EXPECTED, remedy=MEASURE)]
    gpus = [gpu for gpu in values.gpus if not isinstance(gpu, Missing)]
    if not gpus:
        nothing = Missing("not_recorded", "no GPU is listed")
        return [unknown("nccl", "measured", nothing, expected=EXPECTED, remedy=AGAIN)]
    gpu_findings = [] if values.published else absent_gpus(evidence, "nccl", gpus, len(values.gpus) - len(gpus))
    if len(values.gpus) < 2 and not values.points:
        why = "it needs two GPUs, and this machine has one"
        return [*gpu_findings, skip("nccl", "measured", expected=EXPECTED, actual="one GPU", reason=why)]
    return [*gpu_findings, *_several(evidence, values, gpus)]


def _several(evidence: Evidence, values: Nccl, gpus: Sequence[NcclGpu]) -> list[Finding]:
    points = [point for point in values.points if not isinstance(point, Missing)]
    ranks, busy = len(gpus), _busy(values, gpus)
    nccl_findings = [*_ended(values), *_nameless(points), *_others(points), *_sizes(evidence, values, gpus, points)]
    if ranks < 2:
        why = "there are figures of collectives, but only one GPU is listed: the record lacks the other GPUs"
        return [*nccl_findings, Finding("nccl", "gpus", Status.UNKNOWN, "two GPUs or more", "one", why, AGAIN)]
    several = duplicate_gpus("nccl", gpus)
    taken = Missing("not_recorded", several[0].reason) if several else way(evidence, values, gpus)
    nccl_findings += speed.findings(values, taken, points, ranks, busy)
    if values.published:
        why = f"figures that were published ({values.published}): nothing is known about the host"
        nccl_findings.append(skip("nccl", "host", expected="of this host", actual="published", reason=why))
        return [*nccl_findings, *_results(values, points, ranks)]
    nccl_findings += [*several, *_links(taken), *readings(evidence, values, gpus, taken)]
    over_pcie = not isinstance(taken, Missing) and taken.kind == "pcie"
    if over_pcie and isinstance(evidence.of(Bandwidth, "bandwidth"), Missing):
        nccl_findings += narrow_links(evidence, gpus)
    nccl_findings += [*libraries.nccl_loaded(evidence, values)]
    return [*nccl_findings, *_results(values, points, ranks), *speed.latency(points, ranks, busy), *_clocks(gpus),
            *_heat(evidence, gpus)]  # fmt: skip


def _ended(values: Nccl) -> list[Finding]:
    """UNKNOWN if NCCL hung or returned an error: links or software may be faulty."""
    warned = f"; NCCL says: {values.warnings[-1]}" if values.warnings else ""
    if values.stopped:
        waited = values.stopped.seconds
        seconds = "" if isinstance(waited, Missing) else f" in {waited:.0f} s"
        why = f"NCCL gave no answer{seconds} while {values.stopped.doing or 'it ran'}{warned}"
        return [Finding("nccl", "answers", Status.UNKNOWN, EXPECTED, "no answer", why, LINKS)]
    if values.error:
        why = f"NCCL failed: {values.error}{warned}"
        return [Finding("nccl", "answers", Status.UNKNOWN, EXPECTED, "failed", why, LINKS)]
    return []


def _nameless(points: Sequence[Point]) -> list[Finding]:
    """UNKNOWN if figures do not say of which collective, or of which size, they are."""
    lacking = {
        "collective": [point for point in points if point.operation == NO_WORD],
        "size": [point for point in points if point.bytes is None],
    }
    nameless = [f"the {what} of {len(some)} of {len(points)} figures is" for what, some in lacking.items() if some]
    if not nameless:
        return []
    why = f"not recorded: {', and '.join(nameless)}"
    return [Finding("nccl", "points", Status.UNKNOWN, "collective and size of each figure", "not recorded", why, AGAIN)]


def _others(points: Sequence[Point]) -> list[Finding]:
    """UNKNOWN for collectives that gpuprep has no floor for."""
    others = sorted({point.operation for point in points} - {*ncclplan.OPERATIONS, NO_WORD})
    if not others:
        return []
    known, shown = ", ".join(ncclplan.OPERATIONS), ", ".join(others[:NAMED])
    why = f"gpuprep knows no floor of {shown}: its figures are not judged"
    return [Finding("nccl", "collectives", Status.UNKNOWN, known, shown, why, "compare it with a healthy machine's")]


def _links(taken: Way | Missing) -> list[Finding]:
    """FAIL if a GPU has fewer NVLinks up than it has to the switches; if all are down, the speeds report it."""
    if isinstance(taken, Missing) or not 0 < taken.up < taken.wired:
        return []
    expected, shown = f"{taken.wired} NVLinks up on each GPU", f"{taken.up}"
    why = f"{taken.up} of {taken.wired} NVLinks of a GPU are up"
    return [Finding("nccl", "nvlinks", Status.FAIL, expected, shown, why, speed.LINKS)]


def _sizes(evidence: Evidence, values: Nccl, gpus: Sequence[NcclGpu], points: Sequence[Point]) -> list[Finding]:
    """UNKNOWN if a collective or a size is absent; a record's own limit counts only if memory explains it."""
    if values.published and points:
        return []
    ranks = max(len(gpus), 1)
    least = _room(evidence, gpus)
    most = min(values.most_bytes or 0, ncclplan.SIZES[-1])
    measured = {(point.operation, point.bytes) for point in points}
    wanted = [
        (operation, ncclplan.fitted(operation, size, ranks))
        for operation in ncclplan.OPERATIONS
        for size in ncclplan.sizes(bool(values.quick), max(most, least))
    ]
    unmeasured = [
        f"{operation} of {ncclplan.words(size)}" for operation, size in wanted if (operation, size) not in measured
    ]
    unreadable = len(values.points) - len(points)
    if not unmeasured and not unreadable:
        return []
    more = f" and {len(unmeasured) - NAMED} more" if len(unmeasured) > NAMED else ""
    missing = f"{', '.join(unmeasured[:NAMED])}{more}" if unmeasured else "an entry that is not a figure"
    why = f"not measured: {missing}"
    shown = f"{len(wanted) - len(unmeasured)} of {len(wanted)} measured"
    return [Finding("nccl", "sizes", Status.UNKNOWN, f"{len(wanted)} collectives and sizes", shown, why, AGAIN)]


def _room(evidence: Evidence, gpus: Sequence[NcclGpu]) -> int:
    """Bytes that certainly fit into the smallest GPU, by the catalogue; 0 if unknown."""
    sizes = [board.memory_mib if (board := evidence.board(gpu)) else None for gpu in gpus]
    known = [size for size in sizes if size]
    return min(ncclplan.SIZES[-1], min(known) * ncclplan.MIB // MEMORY_SHARE) if len(known) == len(sizes) else 0


def _busy(values: Nccl, gpus: Sequence[NcclGpu]) -> str:
    """Why no speed counts (another process used a GPU); "" if none did."""
    for gpu in gpus:
        others = gpu.other_processes
        if isinstance(others, Missing):
            if values.published and others.reason == "not_recorded":
                continue
            return f"whether another process used gpu {gpu.index} could not be read"
        if others:
            names = conditions.shown_processes([process for process in others if not isinstance(process, Missing)][:3])
            return f"another process used gpu {gpu.index} meanwhile: {names or 'its name could not be read'}"
    return ""


def _results(values: Nccl, points: Sequence[Point], ranks: int) -> list[Finding]:
    """One finding on all results: every element on every GPU was compared with the correct value."""
    wrong, untold, partly, checked = [], [], [], 0
    for point in points:
        if point.operation == NO_WORD or point.bytes is None:
            continue  # nccl.points tells of them
        name = f"{point.operation} of {ncclplan.words(point.bytes)}"
        every = ncclplan.results(point.operation, point.bytes, ranks)
        if not isinstance(point.wrong, Missing) and point.wrong > 0:
            compared = "" if isinstance(point.checked, Missing) else f" of {point.checked}"
            wrong.append(f"{name} ({point.wrong}{compared} elements)")
        elif isinstance(point.wrong, Missing) or isinstance(point.checked, Missing) or point.wrong < 0:
            untold.append(name)
        elif point.checked != every:
            partly.append(f"{name} ({point.checked} of {every} elements)")
        else:
            checked += point.checked
    expected = "exact in every element"
    if wrong:
        why = f"wrong results on GPUs that work together: {', '.join(wrong[:NAMED])}"
        return [Finding("nccl", "results", Status.FAIL, expected, f"{len(wrong)} wrong", why, WRONG)]
    if values.published or not points:
        return []  # published speeds may lack whether the results were compared
    if untold:
        why = f"whether the result is right is not recorded: {', '.join(untold[:NAMED])}"
        return [Finding("nccl", "results", Status.UNKNOWN, expected, f"{len(untold)} not compared", why, AGAIN)]
    if partly:
        why = f"not every element of the result was compared: {', '.join(partly[:NAMED])}"
        return [Finding("nccl", "results", Status.UNKNOWN, expected, f"{len(partly)} not whole", why, AGAIN)]
    return [Finding("nccl", "results", Status.PASS, expected, f"{len(points)} collectives, {checked} elements")]


def _heat(evidence: Evidence, gpus: Sequence[NcclGpu]) -> list[Finding]:
    read = [(gpu, (gpu.temperature_c, conditions.mask(gpu.event_reasons))) for gpu in gpus]
    return [
        hot
        for gpu, reading in read
        for hot in conditions.heat(f"gpu {gpu.index}", "nccl_temperature", evidence.board(gpu), [reading])
    ]


def _clocks(gpus: Sequence[NcclGpu]) -> list[Finding]:
    """A finding for each GPU with clocks lowered by a fault, or with unread event reasons."""
    findings = []
    for gpu in gpus:
        subject, expected, mask = f"gpu {gpu.index}", "no slowdown while NCCL runs", conditions.mask(gpu.event_reasons)
        if mask is None:
            read = gpu.event_reasons
            reading = read if isinstance(read, Missing) else Missing("unparsable", f"{read:g}")
            what = f"the clock event reasons of {subject} while NCCL ran"
            findings.append(unknown(subject, "nccl_clocks", reading, expected=expected, what=what, remedy=AGAIN))
        elif mask & HARMFUL:
            names = ", ".join(reason.name for reason in clock_events.named(mask & HARMFUL))
            why = f"{names} while NCCL ran: something lowers the clocks of {subject}"
            remedy = "see its temperature, its fans and the power supply; show the provider this report"
            findings.append(Finding(subject, "nccl_clocks", Status.WARN, expected, names, why, remedy))
    return findings


def parts(measurement: Nccl) -> Iterator[str]:
    """Each collective and size, once for each GPU that took part, because fewer GPUs are less coverage."""
    points = {
        f"{point.operation} of {ncclplan.words(point.bytes)}"
        for point in measurement.points
        if not isinstance(point, Missing) and point.bytes and not isinstance(point.busbw_gb_per_s, Missing)
    }
    for _ in measurement.gpus:
        yield from sorted(points)


# ---------------------------------------------------------------- readings beside the speeds

CLOCK_SLACK = 1.05  # of the boost clock
IDLE_CLOCK = 0.4  # of the boost
OVER_LINKS = ("P2P", "NVLS")  # NCCL's names for paths over NVLink


def readings(evidence: Evidence, values: Nccl, gpus: Sequence[NcclGpu], way: ways.Way | Missing) -> list[Finding]:
    """UNKNOWN for each GPU with an impossible reading, and if NCCL does not use NVLinks that are up."""
    gpu_findings = []
    for gpu in gpus:
        wrong = list(_impossible(gpu, evidence.board(gpu)))
        if wrong:
            why = f"no GPU has {', '.join(wrong[:3])}: so the measurement or its record is damaged"
            gpu_findings.append(
                Finding(f"gpu {gpu.index}", "nccl_readings", Status.UNKNOWN, "possible figures", wrong[0], why, AGAIN)
            )
    return [*gpu_findings, *_unused_links(values, way)]


def _impossible(gpu: NcclGpu, board: Board | None) -> Iterator[str]:
    boost = board.boost_mhz if board and not board.model.free_clocks else None
    most = boost * CLOCK_SLACK if boost else conditions.ANY_CLOCK_MHZ
    clock, watts, degrees = known(gpu.graphics_clock_mhz), known(gpu.power_watts), known(gpu.temperature_c)
    if clock is not None and not 0 < clock <= most:
        yield f"a clock of {clock:g} MHz"
    own = board.boost_mhz if board else None
    # The highest clock during the run: copies keep a GPU at its boost clock, and what lowers it has a reason.
    if clock is not None and own and 0 < clock < IDLE_CLOCK * own and conditions.mask(gpu.event_reasons) in (0, IDLE):
        yield f"a clock of {clock:g} MHz while it copies, which is the clock of an idle GPU"
    limit = board.power_watts if board else None
    if watts is not None and (watts <= 0 or (limit and watts > conditions.POWER_PEAK * limit)):
        yield f"a power of {watts:g} W"
    if degrees is not None and conditions.no_temperature(degrees, board):
        yield f"a temperature of {degrees:g} °C"
    link = gpu.pcie if isinstance(gpu.pcie, Pcie) else Pcie()
    highest = (links.Way(link.max_generation, link.max_width), links.Way(link.device_generation, link.device_width))
    yield from links.impossible(links.Way(link.generation, link.width), highest, links.generation_of(board))


def narrow_links(evidence: Evidence, gpus: Sequence[NcclGpu]) -> list[Finding]:
    """FAIL for a PCIe link at half of the maximum of GPU and slot. The bandwidth probe checks it more precisely."""
    link_findings = []
    for gpu in gpus:
        link = gpu.pcie if isinstance(gpu.pcie, Pcie) else Pcie()
        board = evidence.board(gpu)
        now, most = (
            links.capped(links.Way(*generation_and_width), board)
            for generation_and_width in ((link.generation, link.width), (link.max_generation, link.max_width))
        )
        carries, could = now.gb_per_s, most.gb_per_s
        if carries and could and carries <= links.HALF * could:
            shown = f"generation {now.generation} x{now.width}"
            why = f"the PCIe link ran at {carries:.1f} of {could:.1f} GB/s while NCCL ran ({shown})"
            expected = f"generation {most.generation} x{most.width}"
            link_findings.append(
                Finding(f"gpu {gpu.index}", "nccl_pcie_link", Status.FAIL, expected, shown, why, links.RESEAT)
            )
    return link_findings


def _unused_links(values: Nccl, way: ways.Way | Missing) -> list[Finding]:
    names = [transport.name for transport in values.chosen.transports] if values.chosen else []
    if isinstance(way, Missing) or way.kind not in ("switch", "direct"):
        return []
    if not any(names) or any(name.startswith(OVER_LINKS) for name in names):
        return []
    shown = ", ".join(names[:3])
    why = (
        f"according to its log NCCL uses {shown:.80}, and {way.words} are up: it does not use them, or the record "
        "is damaged"
    )
    remedy = "see the NCCL_ variables that are set (NCCL_P2P_DISABLE, NCCL_P2P_LEVEL) and /etc/nccl.conf"
    return [Finding("nccl", "transports", Status.UNKNOWN, "over NVLink", f"{shown:.80}", why, remedy)]
