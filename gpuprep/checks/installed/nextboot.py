"""The next boot: what the boot loader starts, whether the GPU works there, and what is left if that kernel fails.

A next boot that would lose the GPU is FAIL today, and no finding then advises a restart before it is repaired.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence

from gpuprep import catalogue
from gpuprep.agent.facts import nextboot
from gpuprep.checks.common import check, none_of, provision, unknown
from gpuprep.desired.modules import PREBUILT
from gpuprep.desired.profile_rules import OPEN
from gpuprep.desired.state import Wanted
from gpuprep.records import NOT_READ, BootFacts, BootFault, Finding, Missing, Snapshot, Status
from gpuprep.records.findings import PROBLEMS
from gpuprep.untrusted.plaintext import one_line

ROLE = "gpu_driver"
REBOOT = re.compile(r"\breboot\b(?! before)")
# Findings on the next boot: while one of them is FAIL, a restart loses the GPU or the machine.
LOSING = (
    "kernel.boot_entry", "driver.next_boot_module", "driver.next_boot_options", "driver.next_boot_file",
    "driver.next_boot_flavour", "driver.initramfs", "driver.signature_next_boot", "nouveau.initramfs",
    "nouveau.blacklist", "driver.module_allowed",
)  # fmt: skip
# kind ► the finding that it belongs to, and what that finding expects
FINDINGS = {
    **dict.fromkeys(nextboot.BOOTS, ("kernel", "boot_entry", "kernel and initramfs are there")),
    nextboot.BLOCKED: ("driver", "next_boot_options", "may be loaded"),
    nextboot.UNLISTED: ("driver", "next_boot_file", "can be loaded"),
    nextboot.BROKEN: ("driver", "next_boot_file", "can be loaded"),
    nextboot.FOREIGN: ("driver", "next_boot_file", "can be loaded"),
}


def findings(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    """Findings on the entry and the files of the next boot; [] in an older record, and without a known kernel."""
    boot = snapshot.kernel.boot
    if not isinstance(boot, BootFacts):
        unread = isinstance(boot, Missing) and boot != NOT_READ and not isinstance(snapshot.kernel.next_boot, Missing)
        found = of_machine(snapshot)
        if unread and isinstance(boot, Missing):  # else kernel.next_boot says what could not be understood
            return [unknown("kernel", "boot_entry", boot, expected=FINDINGS[nextboot.IMAGE_GONE][2]), *found]
        return found
    return [*of_machine(snapshot), *_flavour(wanted, snapshot), *_fallback(wanted, snapshot, boot)]


def of_machine(snapshot: Snapshot) -> list[Finding]:
    """The findings that ask for no profile: the entry, the files that it needs, and the initramfs."""
    boot = snapshot.kernel.boot
    if not isinstance(boot, BootFacts):
        return _initramfs(snapshot)
    found: dict[tuple[str, str, str], list[BootFault]] = {("kernel", "boot_entry", FINDINGS["image_gone"][2]): []}
    for fault in boot.faults:
        if fault.kind in FINDINGS:
            found.setdefault(FINDINGS[fault.kind], []).append(fault)
    return [*(_of_faults(snapshot, boot, key, faults) for key, faults in found.items()), *_initramfs(snapshot)]


def _of_faults(snapshot: Snapshot, boot: BootFacts, key: tuple[str, str, str], faults: Sequence[BootFault]) -> Finding:
    subject, prop, expected = key
    kernel = str(snapshot.kernel.next_boot)
    apt, name = snapshot.apt is not None, dkms(snapshot)
    said = [nextboot.said(_plain(fault), kernel, apt=apt, dkms=name, loader=boot.loader) for fault in faults]
    sentences = "; ".join(dict.fromkeys(sentence for sentence, _ in said))
    commands = "; ".join(dict.fromkeys(f"`{command}`" for _, command in said if command))
    if not faults:
        start = f"{kernel}, by {boot.setting}"
        return Finding(subject, prop, Status.PASS, expected, start)
    repaired = any(fault.kind in (nextboot.UNLISTED, nextboot.BROKEN, nextboot.FOREIGN) for fault in faults)
    remedy = commands or provision(ROLE)
    return none_of(
        subject, prop, [f"{fault.kind.replace('_', ' ')}: {one_line(fault.what)}" for fault in faults],
        expected=expected, why=f"{sentences} (what decides: {boot.setting})", role=ROLE if repaired else "",
        remedy=f"before any restart: {remedy}",
    )  # fmt: skip


def _plain(fault: BootFault) -> nextboot.Fault:
    """What a command may name: a path or an option of ordinary letters."""
    return nextboot.Fault(fault.kind, one_line(fault.what, 200))


def dkms(snapshot: Snapshot) -> str:
    """ "nvidia-current/550.163.01": the module of the installed driver as DKMS names it; "" without one."""
    version = snapshot.driver.library_version
    version = version if isinstance(version, str) else snapshot.driver.module_version
    names = [m.module for m in snapshot.driver.dkms if m.module.startswith("nvidia") and m.version == version]
    return f"{names[0]}/{version}" if names else ""


def _flavour(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    """FAIL if the module for the next kernel is of the other flavour; [] for the running kernel, driver.flavour's."""
    kernel, actual = snapshot.kernel, snapshot.driver.module_next_boot_flavour
    if kernel.next_boot == kernel.running or actual is None or actual == NOT_READ:
        return []
    models = [catalogue.models()[gpu.model] for gpu in wanted.gpus if gpu.model]
    lost = actual == OPEN and any(OPEN not in catalogue.limits(m.architecture).module_flavours for m in models)
    why = f"kernel {kernel.next_boot}, which the next boot starts, has {actual} modules: " + (
        "a GPU before Turing does not work with open ones" if lost else "the machine would run another driver"
    )
    ok, remedy = actual == wanted.driver.flavour, f"{provision(ROLE)}, before any restart"
    return [
        check(
            "driver", "next_boot_flavour", actual, ok, expected=wanted.driver.flavour, why=why, role=ROLE, remedy=remedy
        )
    ]


def _initramfs(snapshot: Snapshot) -> list[Finding]:
    """FAIL if the initramfs has an older module than the disk: it is loaded, and the libraries do not fit it."""
    stale, kernel = snapshot.driver.initramfs_stale, str(snapshot.kernel.next_boot)
    if stale == NOT_READ or stale is None:
        return []
    if isinstance(stale, Missing):
        what = f"whether the initramfs of kernel {kernel} has an older driver"
        return [unknown("driver", "initramfs", stale, expected="no older driver", what=what)]
    why = (
        f"the initramfs of kernel {kernel}, which the next boot starts, has an older module of the driver"
        f" ({one_line(stale)}) than the disk: programs would fail after a restart"
    )
    quoted = nextboot.quoted(kernel)
    again = (
        f"sudo update-initramfs -u -k {quoted}"
        if snapshot.apt is not None
        else f"sudo dracut --force {nextboot.initramfs(kernel)} {quoted}"
    )
    return [
        check(
            "driver", "initramfs", stale, False, expected="no older driver", why=why, role=ROLE,
            remedy=f"before any restart: `{again}`",
        )
    ]  # fmt: skip


def _fallback(wanted: Wanted, snapshot: Snapshot, boot: BootFacts) -> list[Finding]:
    """WARN if the kernel that is left when the next one fails has no driver, or another one."""
    kernel, driver = snapshot.kernel, snapshot.driver
    here, actual = driver.module_version, driver.module_fallback_version
    if not isinstance(boot.fallback, str) or boot.fallback in (kernel.next_boot, kernel.running):
        return []  # driver.version and driver.dkms say what the running kernel has
    if not isinstance(here, str):
        return []
    expected = here
    if isinstance(actual, Missing):
        what = f"the module for kernel {boot.fallback}"
        return [] if actual == NOT_READ else [
            unknown("driver", "fallback_module", actual, expected=expected, what=what)
        ]  # fmt: skip
    if actual == here:
        return [Finding("driver", "fallback_module", Status.PASS, expected, actual)]
    name = dkms(snapshot)
    remedy = f"install the driver's modules for it (`apt-cache search linux-modules-nvidia {boot.fallback}`)"
    if name and wanted.driver.modules != PREBUILT:
        remedy = f"`{nextboot.build(boot.fallback, name, apt=snapshot.apt is not None, headers=False)}`"
    why = (
        f"kernel {boot.fallback}, which is left if the next boot's fails, has"
        f" {f'NVIDIA module {actual}' if actual else 'no NVIDIA module'}: the GPU does not work there"
    )
    return [Finding("driver", "fallback_module", Status.WARN, expected, actual or "none", why, remedy)]


def restart_last(findings: Sequence[Finding]) -> list[Finding]:
    """The findings; where the next boot loses the GPU, none of them advises a restart before that is repaired."""
    lost = [finding for finding in findings if finding.key in LOSING and finding.status is Status.FAIL]
    if not lost:
        return list(findings)
    first = f"do not restart before {', '.join(dict.fromkeys(finding.key for finding in lost))} is repaired"
    return [
        dataclasses.replace(finding, remedy=_after(first, finding.remedy))
        if finding.status in PROBLEMS and finding not in lost and (finding.reboot or REBOOT.search(finding.remedy))
        else finding
        for finding in findings
    ]


def _after(first: str, remedy: str) -> str:
    return first if not remedy or remedy.startswith("reboot") else f"{first}; then {remedy}"
