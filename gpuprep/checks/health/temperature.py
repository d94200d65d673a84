"""Is a GPU, or its memory, near the temperature at which it slows down, and does something hold its clocks down?

The limits are NVML's if it has them, else the catalogue's. Boards from Ada and Hopper on report margins (T.Limit):
degrees left until the nearest slowdown.
"""

from __future__ import annotations

from gpuprep.catalogue import Board
from gpuprep.catalogue.health import limit
from gpuprep.checks import conditions
from gpuprep.checks.common import NOT_TOLD, skip
from gpuprep.checks.floors import percents
from gpuprep.checks.health.shared import (
    COOLING,
    SUPPLY,
    Earlier,
    Problem,
    checked_reading,
    first_missing,
    grown,
    judged,
    refused,
    worst,
)
from gpuprep.performance.clock_events import HW_SLOWDOWN, HW_THERMAL, IDLE, POWER_BRAKE, SW_THERMAL, named
from gpuprep.records import NOT_READ, Finding, GpuFacts, Missing, Status, Temperatures, Throttled, Utilization

NONE = Temperatures(NOT_READ, NOT_READ, NOT_READ, NOT_READ, NOT_READ, NOT_READ, NOT_READ)
DEGREES = "°C"
AGAIN = "measure again; nvidia-smi -q -d TEMPERATURE shows all of them; a newer driver may read it right"
LIMITS = "the temperature at which it slows down"


def findings(subject: str, gpu: GpuFacts, board: Board | None, *, rested: bool) -> list[Finding | None]:
    """gpu N.temperature and gpu N.memory_temperature. `rested`: nothing was measured just before."""
    return [of_gpu(subject, gpu, board, rested=rested), of_memory(subject, gpu, board)]


def of_gpu(subject: str, gpu: GpuFacts, board: Board | None, *, rested: bool) -> Finding | None:
    read = gpu.temperatures if isinstance(gpu.temperatures, Temperatures) else NONE
    near = limit("degrees_before_slowdown")
    degrees = checked_reading(gpu.temperature_c, "temperature_c", "temperature of the GPU")
    expected = f"more than {near:g} degrees below the slowdown"
    if isinstance(degrees, Missing):
        return refused(subject, "temperature", degrees, expected, absent=())
    if isinstance(gpu.temperatures, Missing) and gpu.temperatures.reason not in (*NOT_TOLD, "not_read"):
        return refused(subject, "temperature", gpu.temperatures, expected, what=LIMITS)
    slowdown = _limit(gpu.slowdown_temperature_c, "slowdown temperature", board, "slowdown")
    margin = checked_reading(read.margin, "margin_c", "margin to the slowdown (T.Limit)")
    at = checked_reading(read.slowdown_margin, "slowdown_margin_c", "margin at which the hardware slows down")
    wrong = first_missing(slowdown, margin, at)
    if wrong is not None and wrong.reason == "impossible":
        return refused(subject, "temperature", wrong, expected)
    by_degrees = None if isinstance(slowdown, Missing) else slowdown - degrees
    by_margin = None if isinstance(margin, Missing) else margin - (0 if isinstance(at, Missing) else at)
    left = [distance for distance in (by_degrees, by_margin) if distance is not None]
    if not left:
        known = gpu.slowdown_temperature_c if gpu.temperatures == NOT_READ else read.margin
        return refused(
            subject, "temperature", known if isinstance(known, Missing) else NOT_READ, expected, absent=(),
            what=LIMITS,
        )  # fmt: skip
    shutdown = _limit(read.shutdown, "shutdown temperature", board, "shutdown")
    if not isinstance(shutdown, Missing) and (why := _beyond_shutdown(degrees, slowdown, shutdown)):
        return Finding(subject, "temperature", Status.UNKNOWN, expected, f"{degrees:g} {DEGREES}", why, AGAIN)
    shown = f"{degrees:g} {DEGREES}, {min(left):g} below the slowdown"
    if min(left) <= near and _slowed_by_heat(gpu):
        reason = f"{subject}.slowdown_now reports it:  the clocks are lowered by heat"
        return skip(subject, "temperature", expected=expected, actual=shown, reason=reason)
    hot = _contradiction(by_degrees, by_margin) or _near(min(left), degrees, near)
    at_rest = None if hot or not rested else _hot_at_rest(gpu, degrees)
    return judged(subject, "temperature", hot or at_rest, expected, shown)


def of_memory(subject: str, gpu: GpuFacts, board: Board | None) -> Finding | None:
    """gpu N.memory_temperature; None for memory without a sensor: the driver returns an error or 0."""
    read = gpu.temperatures if isinstance(gpu.temperatures, Temperatures) else NONE
    if read.memory == 0:
        return None
    degrees = checked_reading(read.memory, "temperature_c", "temperature of the memory")
    expected = "below the memory's highest temperature"
    if isinstance(degrees, Missing):
        return refused(subject, "memory_temperature", degrees, expected, absent=NOT_TOLD)
    highest = _limit(read.memory_max_operating, "highest temperature of the memory", board, "memory_max_operating")
    if isinstance(highest, Missing):
        if highest.reason == "impossible":
            return refused(subject, "memory_temperature", highest, expected)
        note = "neither the driver nor the catalogue says how hot it may be"
        return judged(subject, "memory_temperature", None, "known", f"{degrees:g} {DEGREES}", note)
    shown, problem = f"{degrees:g} of {highest:g} {DEGREES}", None
    if degrees >= highest:
        why = f"the memory has {degrees:g} {DEGREES}; from {highest:g} {DEGREES} on the driver slows the GPU down"
        problem = (Status.FAIL if degrees > highest else Status.WARN, why, COOLING)
    return judged(subject, "memory_temperature", problem, expected, shown)


def _limit(read: int | Missing, what: str, board: Board | None, name: str) -> float | Missing:
    """The driver's limit, else the catalogue's. The driver returns 0 for a limit that the board does not have."""
    if not isinstance(read, Missing) and read != 0:
        return checked_reading(read, "limit_c", what)
    known = (board.temperatures_c or {}).get(name) if board else None
    return known if known is not None else Missing("not_in_catalogue", what)


def _beyond_shutdown(degrees: float, slowdown: float | Missing, shutdown: float) -> str:
    """Why the readings contradict each other; "" if they do not."""
    if degrees > shutdown + conditions.SENSORS_DIFFER_C:
        return f"the GPU is said to have {degrees:g} {DEGREES}, and switches itself off at {shutdown:g}"
    if not isinstance(slowdown, Missing) and slowdown > shutdown:
        return f"the GPU is said to slow down at {slowdown:g} {DEGREES}, and to switch itself off at {shutdown:g}"
    return ""


def _near(left: float, degrees: float, near: float) -> Problem | None:
    if left <= 0:
        why = f"the GPU has {degrees:g} {DEGREES}: at this temperature the hardware slows it down"
        return (Status.FAIL, why, COOLING)
    if left <= near:
        why = f"the GPU has {degrees:g} {DEGREES}: {left:g} degrees more, and the hardware slows it down"
        return (Status.WARN, why, COOLING)
    return None


def _contradiction(by_degrees: float | None, by_margin: float | None) -> Problem | None:
    """A problem if temperature and margin differ widely (they may refer to different limits): then neither counts."""
    if by_degrees is None or by_margin is None or min(by_degrees, by_margin) > limit("degrees_before_slowdown"):
        return None
    if abs(by_degrees - by_margin) <= limit("margins_differ_by_c"):
        return None
    why = (
        f"the readings contradict each other: by its temperature {by_degrees:g} degrees are left until the slowdown,"
        f" by the driver's margin {by_margin:g}, and nothing is slowed down by heat"
    )
    return Status.UNKNOWN, why, AGAIN


def _slowed_by_heat(gpu: GpuFacts) -> bool:
    return not isinstance(gpu.event_reasons, Missing) and bool(gpu.event_reasons & (HW_THERMAL | SW_THERMAL))


def _hot_at_rest(gpu: GpuFacts, degrees: float) -> Problem | None:
    """A problem if an idle GPU is hot; else None."""
    most = limit("idle_temperature_c")
    used = gpu.utilization if isinstance(gpu.utilization, Utilization) else None
    idle = not isinstance(gpu.event_reasons, Missing) and bool(gpu.event_reasons & IDLE)
    if not idle or gpu.processes != () or used is None or used.gpu != 0 or degrees < most:
        return None
    why = f"the GPU is idle and has {degrees:g} {DEGREES}; a cooled GPU at rest stays below {most:g} {DEGREES}"
    return worst([(Status.WARN, why, COOLING)])


# ---------------------------------------------------------------- slowdowns

GRAVE, LIGHT = HW_THERMAL | POWER_BRAKE | HW_SLOWDOWN, SW_THERMAL
HELD_DOWN = "the time with lowered clocks"
AGAINST = {HW_THERMAL: COOLING, POWER_BRAKE: SUPPLY, HW_SLOWDOWN: f"{COOLING}; {SUPPLY}", SW_THERMAL: COOLING}
# Counter ► how severe, what it was, what to do, the reason that shows it at this moment.
CAUSES = (
    ("hw_thermal", Status.FAIL, "the hardware's thermal slowdown", COOLING, HW_THERMAL),
    ("power_brake", Status.FAIL, "the power brake (the machine's power supply asks for less)", SUPPLY, POWER_BRAKE),
    ("sw_thermal", Status.WARN, "heat", COOLING, SW_THERMAL),
)


def slowdowns(subject: str, gpu: GpuFacts, uptime_seconds: float, earlier: Earlier | None) -> list[Finding | None]:
    """gpu N.slowdown_now and gpu N.held_down."""
    return [slowdown_now(subject, gpu), held_down(subject, gpu, uptime_seconds, earlier)]


def slowdown_now(subject: str, gpu: GpuFacts) -> Finding | None:
    """The present slowdown, also of an idle GPU: a hardware fault lowers the clocks at rest, too."""
    expected = "none by heat or hardware"
    mask = checked_reading(gpu.event_reasons, "event_reasons", "event reasons")
    if isinstance(mask, Missing):
        return refused(subject, "slowdown_now", mask, expected)
    held = named(int(mask) & (GRAVE | LIGHT))
    shown = ", ".join(reason.name for reason in held) or "none"
    degrees = "" if isinstance(gpu.temperature_c, Missing) else f" at {gpu.temperature_c} °C"
    problem = None
    if held:
        status = Status.FAIL if int(mask) & GRAVE else Status.WARN
        problem = (status, f"the clocks are lowered by {held[0].cause}{degrees}", AGAINST[held[0].bit])
    return judged(subject, "slowdown_now", problem, expected, shown)


def held_down(subject: str, gpu: GpuFacts, uptime_seconds: float, earlier: Earlier | None) -> Finding | None:
    """Slowdowns as a share of the time since the earlier reading, else since the machine's start.

    If the driver was loaded later than that, the true share is higher, never lower.
    """
    times, most = gpu.throttled, limit("held_down_percent")
    expected = f"under {most:g} % of the time by heat or hardware"
    if isinstance(times, Missing):
        return refused(subject, "held_down", times, expected, what=HELD_DOWN, absent=NOT_TOLD)
    then = earlier.gpu.throttled if earlier and isinstance(earlier.gpu.throttled, Throttled) else None
    mask = 0 if isinstance(gpu.event_reasons, Missing) else gpu.event_reasons
    problems: list[Problem] = []
    causes, unread = [], []
    for name, status, cause, remedy, bit in CAUSES:
        total = checked_reading(getattr(times, name), "seconds", f"seconds of clocks lowered by {name}")
        unread.append(total)
        if isinstance(total, Missing):
            continue
        held: float | None = total
        seconds, since, least = uptime_seconds, "since the start", limit("held_down_seconds")
        if earlier and then:
            held, seconds = grown(getattr(then, name), total, earlier.same_boot), earlier.seconds
            since, least = "since the previous reading", 1.0
        elif status is Status.FAIL:
            status = Status.WARN  # it may be long ago
        if not held or seconds <= 0 or held < 1:
            continue
        causes.append(f"{cause} {held:.0f} s")
        percent = min(100.0, 100 * held / seconds)
        if percent >= most and held >= least and not mask & bit:  # slowdown_now says what still does
            share = percents(percent, most)[0]
            why = f"the clocks were lowered by {cause} for {held:.0f} s of {seconds:.0f} s {since} ({share} %)"
            problems.append((status, why, remedy))
    missing = first_missing(*unread)
    unknown = (
        None if missing is None else refused(subject, "held_down", missing, expected, what=HELD_DOWN, absent=NOT_TOLD)
    )
    if unknown is not None and not any(status is Status.FAIL for status, _, _ in problems):
        return unknown
    return judged(subject, "held_down", worst(problems), expected, ", ".join(causes) or "not at all")
