"""Counters since the last check: memory errors, PCIe replays, seconds with lowered clocks.

Counters start at 0 when the driver is loaded. If a counter is smaller than before, it started again: all of it is new.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuprep.catalogue.health import limit
from gpuprep.catalogue.xids import RESET
from gpuprep.checks.common import skip
from gpuprep.checks.drift.certified import spoken
from gpuprep.checks.health.shared import CALL, LEAST_SECONDS, RMA, elapsed
from gpuprep.checks.health.shared import grown as growth
from gpuprep.checks.health.temperature import CAUSES
from gpuprep.records import Finding, GpuFacts, Missing, Snapshot, Status

EXPECTED = "nothing new"
# Found only if something is new; if not, there is one `since_last_check`.
ONLY_WHERE_NEW = ("uncorrected_errors", "corrected_errors", "pcie_replays", "pages_retired", "throttled")
# Less than this is not reported: a driver counts very short times, and users were woken by "0.0 s" (NVIDIA/DCGM#242).
SECONDS = 1.0
WEEK_SECONDS = 7 * 86400.0
MEMORY = f"{RESET}; if they come again: {CALL}"
ECC_KINDS = (
    ("uncorrected", Status.FAIL, "results that were computed meanwhile may be wrong"),
    ("corrected", Status.WARN, "nothing was lost; many of them are a sign that uncorrectable errors will come"),
)
# What is no fault: the power cap is normal life (a T4 lives at its 70 W).
SHOWN = (("sw_power_cap", "power cap"), ("sync_boost", "sync boost"))


@dataclass(frozen=True)
class _Gpu:
    """A GPU since the last check."""

    subject: str
    was: GpuFacts
    now: GpuFacts
    same_boot: bool
    seconds: float  # between the two checks
    at: str  # when the last check was made
    by_profile: Sequence[Finding]

    def grown(self, group: str, counter: str) -> float | None:
        """The growth of a counter of a group; None if one of the two checks could not read it."""
        was, now = (getattr(getattr(gpu, group), counter, None) for gpu in (self.was, self.now))
        return growth(was, now, self.same_boot)

    def new(self, prop: str, status: Status, text: str, why: str, remedy: str, *keys: str) -> list[Finding]:
        """The finding; SKIP if the profile's check of one of `keys` reports the same."""
        elsewhere = spoken(self.by_profile, *(f"{self.subject}.{key}" for key in keys), status=status)
        if elsewhere is None:
            return [Finding(self.subject, prop, status, EXPECTED, text, why, remedy)]
        reason = f"{elsewhere.key} reports it:  {text} since {self.at}"
        return [skip(self.subject, prop, expected=EXPECTED, actual=text, reason=reason)]

    def findings(self) -> list[Finding]:
        findings = [*self._memory(), *self._pages(), *self._replays(), *self._held_down()]
        if any(finding.status is not Status.SKIP for finding in findings):
            return findings
        reason = f"the previous check was at {self.at}"
        return [*findings, Finding(self.subject, "since_last_check", Status.PASS, EXPECTED, self._normal(), reason)]

    def _memory(self) -> list[Finding]:
        """New memory errors: the larger growth of both counters, because a reset clears the volatile counter only."""
        was, now = self.was.ecc_errors, self.now.ecc_errors
        if isinstance(was, Missing) or isinstance(now, Missing):
            return []
        findings = []
        for kind, status, why in (
            ("uncorrected", Status.FAIL, "results that were computed meanwhile may be wrong"),
            (
                "corrected",
                Status.WARN,
                "nothing was lost; many of them are a sign that uncorrectable errors will come",
            ),
        ):
            pairs = (("volatile", self.same_boot), ("aggregate", True))
            grown = [growth(getattr(was, f"{kind}_{of}"), getattr(now, f"{kind}_{of}"), same) for of, same in pairs]
            most, prop = max((value for value in grown if value is not None), default=0.0), f"{kind}_errors"
            elsewhere = spoken(self.by_profile, f"{self.subject}.ecc_errors", status=status)
            if most > 0 and elsewhere is None:
                text = f"{most:g} more {kind} memory errors"
                reason = f"{text} since {self.at}: {why}"
                findings.append(Finding(self.subject, prop, status, EXPECTED, text, reason, MEMORY))
            elif most > 0 and elsewhere is not None:
                reason = f"{elsewhere.key} reports it:  {most:g} {kind} more since {self.at}"
                findings.append(skip(self.subject, prop, expected=EXPECTED, actual=f"{most:g} more", reason=reason))
        return findings

    def _pages(self) -> list[Finding]:
        """DCGM's rule for a board with many retired pages: a finding for two more within a week."""
        was, now = self.was.retired_pages, self.now.retired_pages
        if isinstance(was, Missing) or isinstance(now, Missing) or isinstance(now.double_bit, Missing):
            return []
        grown = growth(was.double_bit, now.double_bit, True)
        if grown is None or grown <= limit("retired_in_a_week") or self.seconds > WEEK_SECONDS:
            return []
        told = spoken(self.by_profile, f"{self.subject}.retired_pages")
        if now.double_bit <= limit("retired_after_double_bit") or told:
            return []
        text = f"{grown:g} pages retired after double-bit errors"
        why = f"{text} since {self.at}, {now.double_bit} in all: the memory wears out"
        return [Finding(self.subject, "pages_retired", Status.FAIL, EXPECTED, text, why, RMA)]

    def _replays(self) -> list[Finding]:
        """PCIe replays as a rate: a few packets per night are normal."""
        grown, most = self.grown("pcie", "replays"), limit("pcie_replays_per_minute")
        if not grown or 60 * grown / self.seconds <= most:
            return []
        text = f"{grown:g} PCIe packets sent again"
        why = f"{text} since {self.at}, {60 * grown / self.seconds:.0f} a minute: the link has errors, which cost speed"
        remedy = "if it goes on, show the provider this report: slot, riser or cable; dmesg may say more (AER)"
        return self.new("pcie_replays", Status.WARN, text, why, remedy, "pcie_errors")

    def _held_down(self) -> list[Finding]:
        """A finding for the worst reason of lowered clocks since then; slowdown_now reports the present reason."""
        held = []
        for name, status, cause, remedy, _ in CAUSES:
            seconds = self.grown("throttled", name)
            if seconds is not None and seconds >= SECONDS:
                held.append((status, f"{seconds:.1f} s by {cause}", remedy))
        if not held:
            return []
        status, _, remedy = held[0]
        text = ", ".join(sentence for _, sentence, _ in held)
        why = f"the clocks were lowered for {text} since {self.at}"
        return self.new("throttled", status, text, why, remedy, "slowdown_now", "held_down")

    def _normal(self) -> str:
        """ "nothing new", with new seconds under the power cap and repeated PCIe packets, which are no fault."""
        parts = [f"{words} {held:.0f} s" for name, words in SHOWN if (held := self.grown("throttled", name))]
        packets = self.grown("pcie", "replays")
        parts += [f"{packets:g} PCIe packets sent again"] if packets else []
        return "nothing new" + (f" ({', '.join(parts)})" if parts else "")


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
        findings += _Gpu(subject, was[gpu.uuid], gpu, same_boot, seconds, at, by_profile).findings()
    return findings
