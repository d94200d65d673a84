"""Counters since the last check: memory errors, PCIe replays, seconds with lowered clocks. Pure.

Counters start at 0 when the driver is loaded. If a counter is smaller than before, it started again: all of it is new.
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuprep.catalogue.health import limit
from gpuprep.catalogue.xids import RESET
from gpuprep.checks.common import skip
from gpuprep.checks.drift.certified import spoken
from gpuprep.checks.earlier import LEAST_SECONDS, elapsed
from gpuprep.checks.earlier import grown as growth
from gpuprep.checks.health.healthwords import CALL, COOLING, RMA, SUPPLY
from gpuprep.records import (
    EccErrors,
    Finding,
    GpuFacts,
    Missing,
    PcieLink,
    RetiredPages,
    Snapshot,
    Status,
    Throttled,
)

EXPECTED = "nothing new"
# Found only where something is new; nothing new is one `since_last_check`.
ONLY_WHERE_NEW = ("uncorrected_errors", "corrected_errors", "pcie_replays", "pages_retired", "throttled")
# Less than this is not worth a word: a driver counts moments, and users were woken by "0.0 s" (NVIDIA/DCGM#242).
SECONDS = 1.0
WEEK_SECONDS = 7 * 86400.0
MEMORY = f"{RESET}; if they come again: {CALL}"
# Counter of Throttled ► how severe, what it was, what to do. The power cap is normal life (a T4 lives at its 70 W).
HELD_DOWN = (
    ("hw_thermal", Status.FAIL, "the hardware's thermal slowdown", COOLING),
    ("power_brake", Status.FAIL, "the power brake (the machine's power supply asks for less)", SUPPLY),
    ("sw_thermal", Status.WARN, "heat", COOLING),
)
SHOWN = (("sw_power_cap", "power cap"), ("sync_boost", "sync boost"))


def findings(snapshot: Snapshot, previous: Snapshot, at: str, by_profile: Sequence[Finding]) -> list[Finding]:
    """One PASS for each GPU, or a finding for each problem. `at`: when the last check was made."""
    now, before = snapshot.gpus, previous.gpus
    if isinstance(now, Missing) or isinstance(before, Missing):
        return []  # gpu N.settings and gpus.identity say why
    was = {gpu.uuid: gpu for gpu in before if gpu.uuid}
    same_boot = snapshot.kernel.boot_id == previous.kernel.boot_id
    seconds = elapsed(previous, snapshot) or LEAST_SECONDS
    findings = []
    for gpu in now:
        if not gpu.uuid:
            continue
        subject = f"gpu {gpu.index}"
        if gpu.uuid not in was:
            reason = f"this GPU was not there at the previous check ({at})"
            findings.append(skip(subject, "since_last_check", expected=EXPECTED, actual="not compared", reason=reason))
            continue
        findings += _gpu(subject, was[gpu.uuid], gpu, same_boot, seconds, at, by_profile)
    return findings


def _gpu(
    subject: str, was: GpuFacts, now: GpuFacts, same_boot: bool, seconds: float, at: str,
    by_profile: Sequence[Finding],
) -> list[Finding]:  # fmt: skip
    findings = [
        *_memory(subject, was.ecc_errors, now.ecc_errors, same_boot, at, by_profile),
        *_pages(subject, was.retired_pages, now.retired_pages, seconds, at, by_profile),
        *_replays(subject, was.pcie, now.pcie, same_boot, seconds, at, by_profile),
        *_held_down(subject, was.throttled, now.throttled, same_boot, at, by_profile),
    ]
    if any(finding.status is not Status.SKIP for finding in findings):
        return findings
    shown = _capped(was, now, same_boot)
    return [
        *findings,
        Finding(subject, "since_last_check", Status.PASS, EXPECTED, shown, f"the previous check was at {at}"),
    ]


def _memory(
    subject: str, was: EccErrors | Missing, now: EccErrors | Missing, same_boot: bool, at: str,
    by_profile: Sequence[Finding],
) -> list[Finding]:  # fmt: skip
    """New memory errors: the larger growth of both counters, because a reset clears the volatile counter only."""
    if isinstance(was, Missing) or isinstance(now, Missing):
        return []
    findings = []
    for prop, status, kind, pairs, why in (
        (
            "uncorrected_errors", Status.FAIL, "uncorrected",
            ((was.uncorrected_volatile, now.uncorrected_volatile, same_boot),
             (was.uncorrected_aggregate, now.uncorrected_aggregate, True)),
            "results that were computed meanwhile may be wrong",
        ),
        (
            "corrected_errors", Status.WARN, "corrected",
            ((was.corrected_volatile, now.corrected_volatile, same_boot),
             (was.corrected_aggregate, now.corrected_aggregate, True)),
            "nothing was lost; many of them are a sign that uncorrectable errors will follow",
        ),
    ):  # fmt: skip
        grown = max((value for pair in pairs if (value := growth(*pair)) is not None), default=0.0)
        elsewhere = spoken(by_profile, f"{subject}.ecc_errors", status=status)
        if grown > 0 and elsewhere is None:
            text = f"{grown:g} {kind} memory errors more"
            findings.append(Finding(subject, prop, status, EXPECTED, text, f"{text} since {at}: {why}", MEMORY))
        elif grown > 0 and elsewhere is not None:
            reason = f"{elsewhere.key} reports it:  {grown:g} {kind} more since {at}"
            findings.append(skip(subject, prop, expected=EXPECTED, actual=f"{grown:g} more", reason=reason))
    return findings


def _pages(
    subject: str, was: RetiredPages | Missing, now: RetiredPages | Missing, seconds: float, at: str,
    by_profile: Sequence[Finding],
) -> list[Finding]:  # fmt: skip
    """DCGM's rule for a board with many retired pages: a finding for two more within a week."""
    if isinstance(was, Missing) or isinstance(now, Missing) or isinstance(now.double_bit, Missing):
        return []
    grown = growth(was.double_bit, now.double_bit, True)
    if grown is None or grown <= limit("retired_in_a_week") or seconds > WEEK_SECONDS:
        return []
    if now.double_bit <= limit("retired_after_double_bit") or spoken(by_profile, f"{subject}.retired_pages"):
        return []
    text = f"{grown:g} pages retired after double-bit errors"
    why = f"{text} since {at}, {now.double_bit} in all: the memory wears out"
    return [Finding(subject, "pages_retired", Status.FAIL, EXPECTED, text, why, RMA)]


def _replays(
    subject: str, was: PcieLink | Missing, now: PcieLink | Missing, same_boot: bool, seconds: float, at: str,
    by_profile: Sequence[Finding],
) -> list[Finding]:  # fmt: skip
    """PCIe replays as a rate: a few packets per night are normal."""
    if isinstance(was, Missing) or isinstance(now, Missing):
        return []
    grown, most = growth(was.replays, now.replays, same_boot), limit("pcie_replays_per_minute")
    if not grown or 60 * grown / seconds <= most:
        return []
    text = f"{grown:g} PCIe packets sent again"
    elsewhere = spoken(by_profile, f"{subject}.pcie_errors")
    if elsewhere is not None:
        reason = f"{elsewhere.key} reports it:  {text} since {at}"
        return [skip(subject, "pcie_replays", expected=EXPECTED, actual=text, reason=reason)]
    why = f"{text} since {at}, {60 * grown / seconds:.0f} a minute: the link has errors, which cost speed"
    remedy = "if it goes on, show the provider this report: slot, riser or cable; dmesg may say more (AER)"
    return [Finding(subject, "pcie_replays", Status.WARN, EXPECTED, text, why, remedy)]


def _held_down(
    subject: str, was: Throttled | Missing, now: Throttled | Missing, same_boot: bool, at: str,
    by_profile: Sequence[Finding],
) -> list[Finding]:  # fmt: skip
    """A finding for the worst reason of lowered clocks since then; slowdown_now reports the present reason."""
    if isinstance(was, Missing) or isinstance(now, Missing):
        return []
    held = []
    for name, status, cause, remedy in HELD_DOWN:
        seconds = growth(getattr(was, name), getattr(now, name), same_boot)
        if seconds is not None and seconds >= SECONDS:
            held.append((status, f"{seconds:.1f} s by {cause}", remedy))
    if not held:
        return []
    text = ", ".join(sentence for _, sentence, _ in held)
    elsewhere = spoken(by_profile, f"{subject}.slowdown_now", f"{subject}.held_down", status=held[0][0])
    if elsewhere is not None:
        reason = f"{elsewhere.key} reports it:  {text} since {at}"
        return [skip(subject, "throttled", expected=EXPECTED, actual=text, reason=reason)]
    why = f"the clocks were held down for {text} since {at}"
    return [Finding(subject, "throttled", held[0][0], EXPECTED, text, why, held[0][2])]


def _capped(was: GpuFacts, now: GpuFacts, same_boot: bool) -> str:
    """ "nothing new", with new seconds under the power cap and repeated PCIe packets, which are no fault."""
    parts = []
    if isinstance(was.throttled, Throttled) and isinstance(now.throttled, Throttled):
        for name, words in SHOWN:
            seconds = growth(getattr(was.throttled, name), getattr(now.throttled, name), same_boot)
            if seconds:
                parts.append(f"{words} {seconds:.0f} s")
    if isinstance(was.pcie, PcieLink) and isinstance(now.pcie, PcieLink):
        packets = growth(was.pcie.replays, now.pcie.replays, same_boot)
        if packets:
            parts.append(f"{packets:g} PCIe packets sent again")
    return "nothing new" + (f" ({', '.join(parts)})" if parts else "")
