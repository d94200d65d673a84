"""Does heat or the power supply lower a GPU's clocks: at this moment, and as a share of the time?

The power cap is normal (a T4 works at its 70 W). The probes report what slows a GPU down under load.
"""

from __future__ import annotations

from gpuprep.catalogue.health import limit
from gpuprep.checks.common import NOT_TOLD
from gpuprep.checks.earlier import Earlier, grown
from gpuprep.checks.floors import percents
from gpuprep.checks.health.healthwords import (
    COOLING,
    SUPPLY,
    Problem,
    checked_reading,
    first_missing,
    judged,
    refused,
    worst,
)
from gpuprep.performance.clock_events import HW_SLOWDOWN, HW_THERMAL, POWER_BRAKE, SW_THERMAL, named
from gpuprep.records import Finding, GpuFacts, Missing, Status, Throttled

GRAVE, LIGHT = HW_THERMAL | POWER_BRAKE | HW_SLOWDOWN, SW_THERMAL
WHAT = "the time with the clocks held down"
REMEDIES = {HW_THERMAL: COOLING, POWER_BRAKE: SUPPLY, HW_SLOWDOWN: f"{COOLING}; {SUPPLY}", SW_THERMAL: COOLING}
# Counter ► how severe, what it was, what to do, the reason that shows it at this moment.
TIMES = (
    ("hw_thermal", Status.FAIL, "the hardware's thermal slowdown", COOLING, HW_THERMAL),
    ("power_brake", Status.FAIL, "the power brake (the machine's power supply asks for less)", SUPPLY, POWER_BRAKE),
    ("sw_thermal", Status.WARN, "heat", COOLING, SW_THERMAL),
)


def findings(subject: str, gpu: GpuFacts, uptime_seconds: float, earlier: Earlier | None) -> list[Finding | None]:
    """gpu N.slowdown_now and gpu N.held_down."""
    return [now(subject, gpu), held_down(subject, gpu, uptime_seconds, earlier)]


def now(subject: str, gpu: GpuFacts) -> Finding | None:
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
        problem = (status, f"the clocks are held down by {held[0].cause}{degrees}", REMEDIES[held[0].bit])
    return judged(subject, "slowdown_now", problem, expected, shown)


def held_down(subject: str, gpu: GpuFacts, uptime_seconds: float, earlier: Earlier | None) -> Finding | None:
    """Slowdowns as a share of the time since the earlier reading, else since the machine's start.

    If the driver was loaded later than that, the true share is higher, never lower.
    """
    times, most = gpu.throttled, limit("held_down_percent")
    expected = f"under {most:g} % of the time by heat or hardware"
    if isinstance(times, Missing):
        return refused(subject, "held_down", times, expected, what=WHAT, absent=NOT_TOLD)
    then = earlier.gpu.throttled if earlier and isinstance(earlier.gpu.throttled, Throttled) else None
    mask = 0 if isinstance(gpu.event_reasons, Missing) else gpu.event_reasons
    problems: list[Problem] = []
    causes, unread = [], []
    for name, status, cause, remedy, bit in TIMES:
        total = checked_reading(getattr(times, name), "seconds", f"seconds held down by {name}")
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
            why = f"the clocks were held down by {cause} for {held:.0f} s of {seconds:.0f} s {since} ({share} %)"
            problems.append((status, why, remedy))
    missing = first_missing(*unread)
    unknown = None if missing is None else refused(subject, "held_down", missing, expected, what=WHAT, absent=NOT_TOLD)
    if unknown is not None and not any(status is Status.FAIL for status, _, _ in problems):
        return unknown
    return judged(subject, "held_down", worst(problems), expected, ", ".join(causes) or "not at all")
