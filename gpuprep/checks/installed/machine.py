"""The agent, provenance, extras, the mounted disk, and kernels with their headers."""

from __future__ import annotations

import dataclasses

from gpuprep.agent.facts import parse
from gpuprep.agent.facts.packagefiles import whose
from gpuprep.agent.facts.packagestate import of_others
from gpuprep.agent.host_paths import PROVENANCE
from gpuprep.checks import byhand
from gpuprep.checks.common import check, none_of, unknown
from gpuprep.desired.host_rules import CLOCK_REFUSED_SECONDS, SET_CLOCK, clock_off, configure_packages
from gpuprep.desired.modules import PREBUILT
from gpuprep.desired.state import Wanted
from gpuprep.records import NOT_READ, Bool, BootFacts, Finding, Missing, Snapshot, Status

AGENT_ROLE, EXTRAS_ROLE = "gpu_agent", "gpu_extras"


def agent(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    installed = snapshot.agent_installed_version
    provenance = snapshot.provenance
    why = "gpuprep's agent is not installed: nothing would set the clocks at boot"
    if isinstance(installed, str):
        why = (
            f"gpuprep's agent is of version {installed}: its probes and settings are not those of "
            f"{wanted.agent.version}"
        )
    ok = installed == wanted.agent.version
    version = check("agent", "version", installed, ok, expected=wanted.agent.version, why=why, role=AGENT_ROLE)
    ok, shown = isinstance(provenance, dict) and bool(provenance), "present" if provenance else "absent"
    why, role = f"who installed what, when and from where is not recorded ({PROVENANCE})", AGENT_ROLE
    file = check("provenance", "file", provenance, ok, expected="present", shown=shown, why=why, role=role)
    return [*_libraries(wanted, snapshot), version, file]


def _libraries(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    """Whether the agent has the pinned libraries of the probes; [] without an agent, which agent.version reports."""
    if not isinstance(snapshot.agent_installed_version, str):
        return []
    pins, there = wanted.agent.libraries, snapshot.agent_libraries
    if unread := next((reading for name in pins if isinstance(reading := there.get(name), Missing)), None):
        return [unknown("agent", "libraries", unread, expected="the versions wanted", role=AGENT_ROLE)]
    wrong = [f"{name} {there.get(name) or 'absent'}" for name, version in pins.items() if there.get(name) != version]
    named = ", ".join(f"{name} {version}" for name, version in pins.items() if there.get(name) != version)
    return [
        check(
            "agent", "libraries", len(wrong), not wrong, expected=f"{len(pins)} libraries of the versions wanted",
            shown=", ".join(wrong) or "all there", role=AGENT_ROLE,
            why=f"probes cannot measure without these libraries in the agent's environment: {named}",
        )
    ]  # fmt: skip


def extras(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    findings = [_command(name, snapshot) for name in wanted.extras.commands]
    findings += [_module(name, snapshot) for name in wanted.extras.python_modules]
    absent = [name for name in wanted.extras.packages if name not in snapshot.packages]
    if wanted.extras.packages:
        expected = "all installed"
        shown = f"not installed: {', '.join(absent)}" if absent else expected
        why, count = f"users miss packages that the profile promises: {', '.join(absent)}", len(absent)
        findings.append(
            check("extras", "packages", count, not absent, expected=expected, shown=shown, why=why, role=EXTRAS_ROLE)
        )
    return findings + _mount(wanted, snapshot)


def _command(name: str, snapshot: Snapshot) -> Finding:
    path = snapshot.commands.get(name, Missing("command_failed", f"{name} was not looked for"))
    why = f"users miss a command that the profile promises: {name} is not on the PATH"
    owner = snapshot.owners.get(f"/usr/bin/{name}") if path is None else None
    # Its package is installed, so the role would install nothing: one of its files was deleted.
    again = byhand.reinstalled(snapshot, owner) if isinstance(owner, str) else ""
    role = "" if again else EXTRAS_ROLE
    return check(
        "extras", name, path, isinstance(path, str), expected="on the PATH", why=why, role=role, remedy=again
    )  # fmt: skip


def _module(name: str, snapshot: Snapshot) -> Finding:
    version = snapshot.python_modules.get(name, Missing("command_failed", f"{name} was not looked for"))
    why = f"programs that import {name} fail: the system's python3 has no such module"
    ok = isinstance(version, str)
    return check("extras", f"python {name}", version, ok, expected="importable", why=why, role=EXTRAS_ROLE)


def _mount(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    """Whether the disk is mounted; compares path and file system, because a device may be given by UUID or label."""
    wish = wanted.mount
    if wish is None:
        return []
    there = next((m for m in snapshot.mounts if m.path == wish.path), None)
    named = wish.device.startswith("/dev/")
    ok = there is not None and there.fstype == wish.fstype and (not named or there.device == wish.device)
    shown = f"{there.device} ({there.fstype})" if there else "nothing mounted"
    expected = f"{wish.device} ({wish.fstype}) on {wish.path}"
    why = f"{wish.path} has {shown} instead of {wish.device} ({wish.fstype}): data go to another disk"
    return [check("extras", "mount", shown, ok, expected=expected, why=why, role=EXTRAS_ROLE)]


def packages_finished(snapshot: Snapshot) -> list[Finding]:
    """Whether the package manager finished its last work; [] in older records, and while somebody works with
    packages.
    """
    there = snapshot.package_manager
    if there == NOT_READ:
        return []
    expected = "nothing left half done"
    if isinstance(there, Missing):
        return [
            unknown("packages", "finished", there, expected=expected, what="what the package manager left half done")
        ]
    if not isinstance(there.holders, Missing) and there.holders:
        return []
    others = of_others(there.unfinished, there.ours)
    named = [f"{name} is {wrong}" for name, wrong in (others or there.unfinished).items()]
    named += [f"unfinished work in {path}" for path in there.journal]
    own = bool(there.ours) and not others
    by_hand = configure_packages(snapshot) if snapshot.apt is not None else "`sudo dnf remove --duplicates`"
    toolkit = any(whose(name) == "cuda" for name in there.unfinished)
    return [
        none_of(
            "packages",
            "finished",
            named,
            expected=expected,
            why=f"{'gpuprep' if own else 'the package manager'} was interrupted; each later step fails because of that",
            role=("gpu_cuda" if toolkit else "gpu_driver") if own else "",
            remedy="" if own else f"{by_hand}, which says why if it fails",
        )
    ]


def clock(snapshot: Snapshot) -> list[Finding]:
    """Whether host and controller have the same time; [] if no controller read the facts (at night, older records)."""
    if snapshot.clock_ahead_seconds == NOT_READ:
        return []
    off = clock_off(snapshot)
    found = check(
        "host", "clock", snapshot.clock_ahead_seconds, not off, expected="the time of this computer",
        shown=off or "the time of this computer", remedy=f"set it: {SET_CLOCK}",
        why=f"{off}: archives, certificates and signatures may be refused, and all dates of this host are wrong",
    )  # fmt: skip
    grave = found.status is not Status.FAIL or clock_off(snapshot, CLOCK_REFUSED_SECONDS)
    return [found if grave else dataclasses.replace(found, status=Status.WARN)]


# ---------------------------------------------------------------- kernels and their headers

DRIVER_ROLE = "gpu_driver"


def kernels(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    """Findings on kernels and headers; without headers for prebuilt modules, which need none."""
    if wanted.driver.modules == PREBUILT:
        return [] if lacks_driver(snapshot) else [_waiting_kernel(snapshot)]
    kernel = snapshot.kernel
    why = f"the headers of the running kernel {kernel.running} are not installed: DKMS cannot build the driver for it"
    kernel_findings = [_kernel_headers(snapshot, "headers", kernel.running, kernel.headers_running, why)]
    if lacks_driver(snapshot):  # only driver.next_boot_module says what that means, and what to do before a reboot
        return kernel_findings
    if isinstance(kernel.next_boot, str) and kernel.next_boot != kernel.running:
        why = (
            f"the headers of {kernel.next_boot}, which the next boot starts, are not installed: DKMS cannot build a "
            "driver for it"
        )
        following = kernel.headers_next_boot
        kernel_findings.append(_kernel_headers(snapshot, "headers_next_boot", kernel.next_boot, following, why))
    return [*kernel_findings, _waiting_kernel(snapshot)]


def lacks_driver(snapshot: Snapshot) -> bool:
    """Whether the next boot's kernel is known to have no driver, or another version than the running kernel's."""
    kernel, here, following = snapshot.kernel, snapshot.driver.module_version, snapshot.driver.module_next_boot_version
    if kernel.next_boot in (kernel.running, None) or isinstance(kernel.next_boot, Missing):
        return False
    return isinstance(here, str) and not isinstance(following, Missing) and following != here


def _kernel_headers(snapshot: Snapshot, prop: str, kernel: str, installed: Bool, why: str) -> Finding:
    shown, package = "installed" if installed else "absent", f"linux-headers-{kernel}"
    # The package is installed, so the role would install nothing: one of its files or links was deleted.
    again = byhand.reinstalled(snapshot, package) if installed is False and package in snapshot.packages else ""
    return check(
        "kernel", prop, installed, installed is True, expected="installed", shown=shown, why=why,
        role="" if again else DRIVER_ROLE, remedy=again,
    )  # fmt: skip


def _waiting_kernel(snapshot: Snapshot) -> Finding:
    """WARN for a newer kernel that waits for a reboot, FAIL before the driver is built: then the reboot comes first."""
    kernel, driver = snapshot.kernel, snapshot.driver
    if isinstance(kernel.next_boot, Missing):
        return unknown("kernel", "next_boot", kernel.next_boot, expected=kernel.running)
    following = kernel.next_boot or kernel.running
    if following == kernel.running:
        return Finding("kernel", "next_boot", Status.PASS, kernel.running, following)
    if isinstance(driver.module_version, Missing):
        return unknown("kernel", "next_boot", driver.module_version, expected=kernel.running, role=DRIVER_ROLE)
    if driver.module_version is not None:
        reason = f"kernel {following} waits for a reboot: until then its security fixes have no effect"
        if parse.debian_order(following) < parse.debian_order(kernel.running):
            decides = f" ({kernel.boot.setting})" if isinstance(kernel.boot, BootFacts) else ""
            reason = f"the next boot starts kernel {following}, which is older than the running one{decides}"
        advice = "reboot when it suits you"
        return Finding("kernel", "next_boot", Status.WARN, kernel.running, following, reason, advice, reboot=True)
    reason = f"kernel {following} waits for a reboot, which comes first: the driver is then built for it"
    return check(
        "kernel", "next_boot", following, False, expected=kernel.running, why=reason, role=DRIVER_ROLE, reboot=True
    )
