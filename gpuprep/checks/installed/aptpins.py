"""Pins: can apt read them, and do they leave the held versions alone? Nothing on systems without apt."""

from __future__ import annotations

import fnmatch
import re

from gpuprep.checks import byhand
from gpuprep.checks.common import check, unknown
from gpuprep.desired.state import Wanted
from gpuprep.records import NOT_READ, AptFacts, AptPin, Finding, Missing, Snapshot, Status
from gpuprep.untrusted.plaintext import one_line


def findings(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    apt = snapshot.apt
    if apt is None or apt == NOT_READ:
        return []
    if isinstance(apt, Missing):
        return [unknown("apt", "preferences", apt, expected="well-formed", what="apt's preferences")]
    moving = [pin for pin in apt.pins if (names := touched(pin, wanted, snapshot)) and _moves(pin, names, snapshot)]
    away = [described(pin) for pin in moving]
    expected = "none that moves a held version"
    shown = "; ".join(away) or "none that moves a held version"
    why = f"because of a pin, apt would install versions other than the held ones: {'; '.join(away)}"
    remedy = "; ".join(dict.fromkeys(taken_out(snapshot, pin) for pin in moving))
    return [
        _preferences(snapshot, apt),
        check("apt", "pins", len(away), not away, expected=expected, shown=shown, why=why, remedy=remedy),
    ]


def described(pin: AptPin) -> str:
    return f"{pin.packages} to {pin.pin} ({pin.file})"


def taken_out(snapshot: Snapshot, pin: AptPin) -> str:
    """How to remove a pin that gpuprep did not make."""
    return f"remove the stanza `Package: {one_line(pin.packages)}` from {byhand.owned(snapshot, pin.file)}"


def touched(pin: AptPin, wanted: Wanted, snapshot: Snapshot) -> list[str]:
    """Installed packages of the driver and the toolkit that match the pin."""
    names = [name for name in (*wanted.driver.packages, *wanted.cuda.packages) if name in snapshot.packages]
    return [name for name in names if any(_means(word, name) for word in pin.packages.split())]


def _means(word: str, name: str) -> bool:
    if len(word) > 1 and word.startswith("/") and word.endswith("/"):
        try:
            return re.search(word[1:-1], name) is not None
        except re.error:
            return False
    return fnmatch.fnmatchcase(name, word.removeprefix("src:").partition(":")[0])


def _moves(pin: AptPin, names: list[str], snapshot: Snapshot) -> bool:
    """Whether the pin makes another version than the installed version the candidate."""
    kind, _, version = pin.pin.partition(" ")
    if kind != "version" or int(pin.priority) <= 0:
        return False
    return any(not fnmatch.fnmatchcase(snapshot.packages[name].version, version.strip()) for name in names)


def _preferences(snapshot: Snapshot, apt: AptFacts) -> Finding:
    files = dict.fromkeys(complaint.partition(": ")[0] for complaint in (*apt.malformed, *apt.passed_over))
    named = "; ".join(byhand.owned(snapshot, file) for file in files)
    expected, advice = "well-formed", f"correct or remove it; apt_preferences(5) says how a stanza looks: {named}"
    if apt.malformed:
        complaints = "; ".join(apt.malformed)
        why = f"apt cannot read its preferences and may refuse to do anything: {complaints}"
        return Finding("apt", "preferences", Status.FAIL, expected, complaints, why, advice)
    if apt.passed_over:
        complaints = "; ".join(apt.passed_over)
        return Finding(
            "apt", "preferences", Status.WARN, expected, complaints, f"pins that have no effect: {complaints}", advice
        )
    return Finding("apt", "preferences", Status.PASS, expected, expected)
