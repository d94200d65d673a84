"""Kernels and their headers: can the driver be built for the running kernel and for the next boot's?"""

from __future__ import annotations

from gpuprep.checks import byhand
from gpuprep.checks.common import check, unknown
from gpuprep.desired.modules import PREBUILT
from gpuprep.desired.state import Wanted
from gpuprep.records import Bool, Finding, Missing, Snapshot, Status

ROLE = "gpu_driver"


def findings(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    """Findings on kernels and headers; without headers for prebuilt modules, which need none."""
    if wanted.driver.modules == PREBUILT:
        return [] if lacks_driver(snapshot) else [_waiting(snapshot)]
    kernel = snapshot.kernel
    why = f"the headers of the running kernel {kernel.running} are not installed: DKMS cannot build the driver for it"
    kernel_findings = [_headers(snapshot, "headers", kernel.running, kernel.headers_running, why)]
    if lacks_driver(snapshot):  # driver.next_boot_module alone says what that means, and what comes before a reboot
        return kernel_findings
    if isinstance(kernel.next_boot, str) and kernel.next_boot != kernel.running:
        why = (
            f"the headers of {kernel.next_boot}, which the next boot starts, are not installed: DKMS cannot build a "
            "driver for it"
        )
        following = kernel.headers_next_boot
        kernel_findings.append(_headers(snapshot, "headers_next_boot", kernel.next_boot, following, why))
    return [*kernel_findings, _waiting(snapshot)]


def lacks_driver(snapshot: Snapshot) -> bool:
    """Whether the next boot starts a kernel that is known to have none, or another, of the running kernel's driver."""
    kernel, here, following = snapshot.kernel, snapshot.driver.module_version, snapshot.driver.module_next_boot_version
    if kernel.next_boot in (kernel.running, None) or isinstance(kernel.next_boot, Missing):
        return False
    return isinstance(here, str) and not isinstance(following, Missing) and following != here


def _headers(snapshot: Snapshot, prop: str, kernel: str, installed: Bool, why: str) -> Finding:
    shown, package = "installed" if installed else "absent", f"linux-headers-{kernel}"
    # The package is installed, so the role has nothing to install: a file or a link of it was taken away.
    again = byhand.reinstalled(snapshot, package) if installed is False and package in snapshot.packages else ""
    return check(
        "kernel", prop, installed, installed is True, expected="installed", shown=shown, why=why,
        role="" if again else ROLE, remedy=again,
    )  # fmt: skip


def _waiting(snapshot: Snapshot) -> Finding:
    """WARN for a newer kernel that waits for a reboot, FAIL before the driver is built: then the reboot comes first."""
    kernel, driver = snapshot.kernel, snapshot.driver
    if isinstance(kernel.next_boot, Missing):
        return unknown("kernel", "next_boot", kernel.next_boot, expected=kernel.running)
    following = kernel.next_boot or kernel.running
    if following == kernel.running:
        return Finding("kernel", "next_boot", Status.PASS, kernel.running, following)
    if isinstance(driver.module_version, Missing):
        return unknown("kernel", "next_boot", driver.module_version, expected=kernel.running, role=ROLE)
    if driver.module_version is not None:
        reason = f"kernel {following} waits for a reboot: until then its security fixes have no effect"
        advice = "reboot when it suits you"
        return Finding("kernel", "next_boot", Status.WARN, kernel.running, following, reason, advice, reboot=True)
    reason = f"kernel {following} waits for a reboot, which comes first: the driver is then built for it"
    return check("kernel", "next_boot", following, False, expected=kernel.running, why=reason, role=ROLE, reboot=True)
