"""Which kernel modules does one host get: built on the host by DKMS, or prebuilt and signed by Canonical?

Canonical builds modules for its own kernels, by flavour (generic, aws, gcp, azure), and signs them with a key that
these kernels trust. So Secure Boot accepts them, and neither headers nor a compiler are needed.
"""

from __future__ import annotations

from gpuprep import catalogue
from gpuprep.catalogue import OsRelease
from gpuprep.catalogue.packagenames import followed, kernel_flavour
from gpuprep.catalogue.roles import prebuilt_packages
from gpuprep.desired.host_rules import certificate, place
from gpuprep.desired.nearest import Nearest
from gpuprep.desired.profile import Profile
from gpuprep.desired.profile_rules import Refusal, listed, refuse
from gpuprep.records import Missing, Snapshot

AUTO, DKMS, PREBUILT = "auto", "dkms", "prebuilt"


def chosen(profile: Profile, snapshot: Snapshot, release: OsRelease | None, driver: str | None) -> str:
    """ "dkms" or "prebuilt". auto means DKMS, unless Secure Boot would refuse its modules and prebuilt ones exist."""
    if profile.driver.modules != AUTO:
        return profile.driver.modules
    refused = snapshot.kernel.secure_boot is True and profile.driver.signing is None and not _dkms_loads(snapshot)
    return PREBUILT if refused and offered(profile, snapshot, release, driver) else DKMS


def offered(profile: Profile, snapshot: Snapshot, release: OsRelease | None, driver: str | None) -> bool:
    """Whether the profile's source has prebuilt modules of this driver's branch for the running kernel's flavour."""
    if release is None or driver is None or not kernel_flavour(snapshot.kernel.running):
        return False
    return str(catalogue.branch(driver)) in release.sources[profile.driver.source].prebuilt


def packages(profile: Profile, snapshot: Snapshot, release: OsRelease, flavour: str, driver: str) -> tuple[str, ...]:
    """The packages that bring the prebuilt modules of every kernel that the machine follows."""
    if not release.sources[profile.driver.source].prebuilt:  # refused by itself
        return ()
    kernels = followed(snapshot.kernel.running, snapshot.packages)
    return prebuilt_packages(release, profile.driver.source, flavour, driver, kernels)


def refusals(here: Nearest, release: OsRelease | None, driver: str | None) -> list[Refusal]:
    """Refusals of prebuilt modules, if the profile asks for them."""
    profile, kernel = here.profile, here.snapshot.kernel.running
    if profile.driver.modules != PREBUILT or release is None:
        return []
    source = release.sources[profile.driver.source]
    where = place(release, profile.driver.source)
    if not source.prebuilt:
        having = [name for name in here.sources_with_prebuilt() if name != profile.driver.source]
        ways = ["dkms, or auto", *(way for name in having for way in here.way_to(name))]
        reason = f"the catalogue has no prebuilt kernel modules in {where}"
        return [refuse("driver.modules", reason, ", or ".join(ways))]
    if driver is not None and str(catalogue.branch(driver)) not in source.prebuilt:
        reason = (
            f"the catalogue has prebuilt kernel modules of branch {listed(source.prebuilt)} in {where}, not of {driver}"
        )
        fitting = [branch for branch in source.prebuilt if here.suits(int(branch))]
        works = "dkms, or auto" + (f", or driver.version: {listed(fitting)}" if fitting else "")
        return [refuse("driver.modules", reason, works)]
    if not kernel_flavour(kernel):
        reason = f"prebuilt kernel modules are for {release.title}'s own kernels, and {kernel} is none of these"
        return [refuse("driver.modules", reason, "dkms, or auto, or a kernel of the system (linux-image-generic)")]
    return []


def _dkms_loads(snapshot: Snapshot) -> bool:
    """Whether DKMS modules can be loaded with Secure Boot on: their key is enrolled, or such a module is loaded."""
    facts, path = snapshot.signatures, certificate(None, snapshot)
    known = () if isinstance(facts, Missing) else facts.certificates
    if any(entry.path == path and entry.enrolled is True for entry in known):
        return True
    driver = snapshot.driver
    built = any(entry.kernel == snapshot.kernel.running and entry.module.startswith("nvidia") for entry in driver.dkms)
    return built and catalogue.is_version(driver.loaded_version)
