"""How often does a GPU's PCIe link repeat packets? Judged as a rate: the total of a year says nothing."""

from __future__ import annotations

from gpuprep.catalogue.health import limit
from gpuprep.checks.common import NOT_TOLD, RENTED, YOURS
from gpuprep.checks.floors import apart
from gpuprep.checks.health.shared import (
    Earlier,
    Problem,
    checked_reading,
    counted,
    first_missing,
    grown,
    judged,
    refused,
    worst,
)
from gpuprep.records import Finding, GpuFacts, Missing, PcieErrors, PcieLink, Status

WHAT = "the errors of the PCIe link"
REMEDY = f"{RENTED}; {YOURS}check slot, riser and cable (dmesg may say more: AER), then call the server's maker"


def finding(subject: str, gpu: GpuFacts, uptime_seconds: float, earlier: Earlier | None) -> Finding | None:
    """gpu N.pcie_errors: the rate since the earlier reading, else since the machine's start.

    If the driver was loaded later than that, the true rate is higher, never lower.
    """
    most = limit("pcie_replays_per_minute")
    expected = f"at most {most:g} packets a minute sent again"
    errors = gpu.pcie_errors if isinstance(gpu.pcie_errors, PcieErrors) else None
    fatal = checked_reading(errors.fatal, "pcie_errors", "fatal errors of the link") if errors else 0
    broken = not isinstance(fatal, Missing) and fatal > 0
    if isinstance(gpu.pcie, Missing) and broken:
        return judged(subject, "pcie_errors", _fatal(fatal), expected, "packets sent again: not known")
    if isinstance(gpu.pcie, Missing):
        reading = first_missing(gpu.pcie, gpu.pcie_errors) or gpu.pcie
        return refused(subject, "pcie_errors", reading, expected, what=WHAT, absent=NOT_TOLD)
    count = checked_reading(gpu.pcie.replays, "replays", "packets sent again")
    failed = gpu.pcie_errors if isinstance(gpu.pcie_errors, Missing) else fatal
    wrong = first_missing(count, failed)
    if isinstance(count, Missing) or (wrong is not None and wrong.reason not in (*NOT_TOLD, "not_read")):
        assert wrong is not None
        return refused(subject, "pcie_errors", wrong, expected, what=WHAT)
    then = earlier.gpu.pcie if earlier and isinstance(earlier.gpu.pcie, PcieLink) else None
    more, seconds, since = count, uptime_seconds, "since the start"
    if earlier and then and (growth := grown(then.replays, count, earlier.same_boot)) is not None:
        more, seconds, since = growth, earlier.seconds, "since the previous reading"
    problems: list[Problem] = []
    rate = 60 * more / max(seconds, 60.0)
    if rate > most:
        a_minute = apart(rate, most, 0)[0]
        why = f"{counted(more, 'packet')} had to be sent again {since}, {a_minute} a minute: the link has errors"
        problems.append((Status.WARN, why, REMEDY))
    problems += [_fatal(fatal)] if broken else []
    shown = f"{more:.0f} sent again {since}" + (f", {apart(rate, most, 1)[0]} a minute" if more else "")
    return judged(subject, "pcie_errors", worst(problems), expected, shown)


def _fatal(count: float | Missing) -> Problem:
    assert not isinstance(count, Missing)
    return (Status.WARN, f"the link had {counted(count, 'fatal error')} since the driver was loaded", REMEDY)
