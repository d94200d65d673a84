"""Which kernel modules does one host get: built on the host by DKMS, or prebuilt and signed by the system's maker?

Canonical builds modules for its own kernels, by flavour (generic, aws, gcp, azure), and signs them with a key that
these kernels trust. So Secure Boot accepts them, and neither headers nor a compiler are needed. AlmaLinux does the same
for version 10, in a source that has no modules for DKMS.
"""

from __future__ import annotations

import dataclasses

from gpuprep import catalogue
from gpuprep.catalogue import Archive, OsRelease
from gpuprep.catalogue.packagenames import followed, kernel_flavour
from gpuprep.catalogue.roles import prebuilt_packages
from gpuprep.desired.host_rules import board_at, certificate, nvidia_gpus, place
from gpuprep.desired.nearest import Nearest
from gpuprep.desired.profile import Profile
from gpuprep.desired.profile_rules import OPEN, PROPRIETARY, Refusal, listed, refuse
from gpuprep.records import Missing, Snapshot
from gpuprep.untrusted.plaintext import command, one_line

AUTO, DKMS, PREBUILT = "auto", "dkms", "prebuilt"
FLAVOURS = (OPEN, PROPRIETARY)
MOST_NAMED = 5  # modules of somebody else


def with_source(profile: Profile, snapshot: Snapshot) -> Profile:
    """The profile with `driver.source: auto` replaced: by the system's archive if it has a driver, else by nvidia.

    Where Secure Boot would refuse what DKMS builds: by the source with signed modules, if it has what is wished.
    """
    if profile.driver.source != AUTO:
        return profile
    release = catalogue.archive_of(snapshot.os)
    names = [*release.sources] if release else ["distribution"]
    if release and profile.driver.modules != DKMS and _dkms_refused(profile, snapshot):
        boards = filter(None, (board_at(snapshot, device) for device in nvidia_gpus(snapshot)))
        common = set(FLAVOURS).intersection(*(catalogue.limits(b.model.architecture).module_flavours for b in boards))
        wanted = common & {profile.driver.flavour} if profile.driver.flavour != AUTO else common
        names.sort(key=lambda name: not _has_signed(release.sources[name], wanted, profile.driver.version))
    return dataclasses.replace(profile, driver=dataclasses.replace(profile.driver, source=names[0]))


def _has_signed(source: Archive, flavours: set[str], version: str) -> bool:
    fitting = (d for d in source.drivers if version == AUTO or catalogue.matches(d.version, version))
    return not source.dkms and any(flavours & set(driver.modules) for driver in fitting)


def chosen(profile: Profile, snapshot: Snapshot, release: OsRelease | None, driver: str | None) -> str:
    """ "dkms" or "prebuilt". auto means DKMS, unless Secure Boot would refuse its modules and prebuilt ones exist."""
    if release and not release.sources[profile.driver.source].dkms:
        return PREBUILT
    if profile.driver.modules != AUTO:
        return profile.driver.modules
    refused = _dkms_refused(profile, snapshot)
    return PREBUILT if refused and offered(profile, snapshot, release, driver) else DKMS


def not_built(snapshot: Snapshot) -> tuple[str, ...]:
    """A sentence on each module of somebody else that DKMS has and has not built for the running kernel.

    Whether it can be built shows only when DKMS tries, and that is in the middle of the step of the driver.
    """
    running = snapshot.kernel.running
    others = [entry for entry in snapshot.driver.dkms if not entry.module.startswith("nvidia")]
    built = {(entry.module, entry.version) for entry in others if entry.kernel == running}
    names = dict.fromkeys((entry.module, entry.version) for entry in others)
    sentences = []
    for name in [f"{module}/{version}" for module, version in names if (module, version) not in built][:MOST_NAMED]:
        tries = command("sudo", "dkms", "build", "-k", running, about=name)
        removes = command("sudo", "dkms", "remove", "--all", about=name)
        sentences.append(
            f"DKMS has {one_line(name, 120)}, which is no module of NVIDIA's and not built for {one_line(running, 120)}"
            f": if it cannot be built, packages of kernel headers fail, and the driver with them. `{tries}` tries it"
            f" (it needs the headers); without it: `{removes}`"
        )
    return tuple(sentences)


def _dkms_refused(profile: Profile, snapshot: Snapshot) -> bool:
    """Whether Secure Boot would refuse the modules that DKMS builds."""
    return snapshot.kernel.secure_boot is True and profile.driver.signing is None and not _dkms_loads(snapshot)


def offered(profile: Profile, snapshot: Snapshot, release: OsRelease | None, driver: str | None) -> bool:
    """Whether the profile's source has prebuilt modules of this driver's branch for the running kernel's flavour."""
    if release is None or driver is None:
        return False
    source = release.sources[profile.driver.source]
    of_kernel = bool(kernel_flavour(snapshot.kernel.running)) or not source.dkms
    return of_kernel and str(catalogue.branch(driver)) in source.prebuilt


def packages(profile: Profile, snapshot: Snapshot, release: OsRelease, flavour: str, driver: str) -> tuple[str, ...]:
    """The packages that bring the prebuilt modules of every kernel that the machine follows."""
    if not release.sources[profile.driver.source].prebuilt:  # refused by itself
        return ()
    kernels = followed(snapshot.kernel.running, snapshot.packages)
    return prebuilt_packages(release, profile.driver.source, flavour, driver, kernels)


def refusals(here: Nearest, release: OsRelease | None, driver: str | None) -> list[Refusal]:
    """Refusals of prebuilt modules, if the profile asks for them; of others where there are none."""
    profile, kernel = here.profile, here.snapshot.kernel.running
    if release is None:
        return []
    source = release.sources[profile.driver.source]
    where = place(release, profile.driver.source)
    if not source.dkms:
        signing, reason = profile.driver.signing, f"the kernel modules in {where} are built and signed there"
        elsewhere = [*here.other_sources(listing=False)]
        wrong = [refuse("driver.modules", reason, ", or ".join(["prebuilt, or auto", *elsewhere]))]
        unsigned = [refuse("driver.signing", reason, ", or ".join(["signing: null", *elsewhere]))]
        return (wrong if profile.driver.modules == DKMS else []) + (unsigned if signing is not None else [])
    if profile.driver.modules != PREBUILT:
        return []
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
