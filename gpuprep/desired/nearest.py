"""Which driver or CUDA could this machine have instead of a refused one? Every answer can be installed there."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gpuprep import catalogue
from gpuprep.catalogue import Archive, ArchiveDriver, Limits, Model, OsRelease
from gpuprep.catalogue.roles import names_cuda_by_version, names_of_branch
from gpuprep.desired.profile import Profile
from gpuprep.desired.profile_rules import OPEN, PROPRIETARY, above, listed
from gpuprep.records import Snapshot

ANOTHER_SYSTEM = "another release of the operating system"
# What a way to another source of packages may change besides, the least first.
CHANGES = (
    (), ("version",), ("cudnn",), ("cuda",), ("version", "cudnn"), ("version", "cuda"), ("cuda", "cudnn"),
    ("version", "cuda", "cudnn"),
)  # fmt: skip
KEYS = {"version": "driver.version", "cuda": "cuda.version", "cudnn": "cudnn.version"}


def release_for(snapshot: Snapshot) -> OsRelease | None:
    """What the host's OS release offers; on a host with NVSwitches only drivers that have a Fabric Manager."""
    release = catalogue.archive_of(snapshot.os)
    if release is None or not snapshot.nvswitches:
        return release
    sources = {
        name: dataclasses.replace(offer, drivers=tuple(driver for driver in offer.drivers if driver.fabric_manager))
        for name, offer in release.sources.items()
    }
    return dataclasses.replace(release, sources=sources)


@dataclass(frozen=True)
class Wishes:
    """The profile's versions of the parts that must fit each other; "none" for a part that it leaves out."""

    version: str
    cuda: str
    cudnn: str


@dataclass(frozen=True)
class Nearest:
    """Finds alternatives for one host. `profile` has a concrete driver.source; `models` are the models of its GPUs."""

    profile: Profile
    snapshot: Snapshot
    models: Sequence[Model]

    @property
    def release(self) -> OsRelease | None:
        return release_for(self.snapshot)

    @property
    def source(self) -> str:
        return self.profile.driver.source

    def limits(self) -> list[Limits]:
        return [catalogue.limits(model.architecture) for model in self.models]

    def common_flavours(self) -> set[str]:
        """Kernel modules that all GPUs work with."""
        return {OPEN, PROPRIETARY}.intersection(*(limits.module_flavours for limits in self.limits()))

    def unlisted_driver(self, source: str, wanted: str) -> ArchiveDriver | None:
        """An exact version that the catalogue lacks, if it knows the names of its packages: accepted without a check.

        The catalogue has what a source offered on one day; a live source may have more.
        """
        offer = self._offers().get(source)
        if offer is None or wanted.count(".") < 1 or str(catalogue.branch(wanted)) in offer.unsuited:
            return None
        release = catalogue.archive_of(self.snapshot.os)
        if release is None or any(driver.version == wanted for driver in release.sources[source].drivers):
            return None  # it is listed: without Fabric Manager, which this host needs
        branch = catalogue.branch(wanted)
        alike = [driver for driver in offer.drivers if catalogue.branch(driver.version) == branch]
        alike = alike or self._named_alike(release, source, branch)
        return next((dataclasses.replace(driver, version=wanted) for driver in alike), None)

    def _named_alike(self, release: OsRelease, source: str, branch: int) -> list[ArchiveDriver]:
        """Drivers whose packages are called as those of a branch that the catalogue lacks; [] if that is not known.

        Names change from one branch on; a module stream without a branch in its name has the newest branch alone. A
        system's own archive gets no further branch.
        """
        if source != "nvidia":
            return []
        names, drivers = names_of_branch(release, source, branch), self._offers()[source].drivers
        same = [d for d in drivers if names_of_branch(release, source, catalogue.branch(d.version)) == names]
        others = [catalogue.branch(driver.version) for driver in drivers if driver not in same]
        oldest = min((catalogue.branch(driver.version) for driver in same), default=0)
        least = max(others) + 1 if others and "streams" not in names else oldest
        return same if branch >= least else []

    def takes_cuda(self, source: str, version: str) -> bool:
        """Whether a source has this toolkit: by the catalogue, or unchecked if package names have the version."""
        offer = self._offers().get(source)
        if self.release is None or offer is None:
            return False
        if version in offer.cuda or not re.fullmatch(r"[0-9]+\.[0-9]+", version):
            return version in offer.cuda
        oldest = min(_major(listed_version) for listed_version in offer.cuda)  # older ones were not made for the system
        return _major(version) >= oldest and names_cuda_by_version(self.release, source)

    def flavours(self) -> set[str]:
        """The profile's flavour if all GPUs work with it, else all common flavours."""
        return self.common_flavours() & {self.profile.driver.flavour} or self.common_flavours()

    def suits(self, branch: int) -> bool:
        """Do all GPUs of the host work with this branch?"""
        return all(limits.minimum_branch <= branch <= (limits.maximum_branch or branch) for limits in self.limits())

    def branches(self, source: str) -> list[int]:
        """Driver branches of this source that the host can have, newest first."""
        return list(dict.fromkeys(catalogue.branch(driver.version) for driver in self._drivers(source)))

    def fitting(self, branches: Sequence[int]) -> list[int]:
        """Those of `branches` that fit the rest of the profile; `branches` are of the profile's source."""
        return [branch for branch in branches if self._fits(self.source, self._wishes(version=str(branch)))]

    def driver(self, wanted: str) -> str:
        """Values for driver.version or driver.source in place of the impossible `wanted`, in words; nearest first."""
        ways = []
        if here := self.branches(self.source):
            near = sorted(here, key=lambda branch: abs(branch - _branch(wanted, here[0])))
            fitting = self.fitting(near) or near
            auto = self._auto_suits(self.source) and self._fits(self.source, self._wishes(version="auto"))
            ways = [f"branch {listed(map(str, fitting))}", *(["auto"] if auto else [])]
        having = [name for name in self._others() if self.has(name, wanted)]
        ways += filter(None, (self._way(name, self._wishes(version=wanted), listing=False) for name in having))
        return ", or ".join(ways or self.other_sources())

    def other_sources(self, *, listing: bool = True) -> list[str]:
        """The other sources of this release, each with the drivers that the host can have from it; never empty."""
        ways = (self._way(name, self._wishes(), listing=listing) for name in self._others())
        return list(filter(None, ways)) or [ANOTHER_SYSTEM]

    def sources_with_prebuilt(self) -> list[str]:
        """Sources of this release that have prebuilt kernel modules."""
        return [name for name, offer in self._offers().items() if offer.prebuilt]

    def way_to(self, name: str) -> list[str]:
        """The change to the source `name`, with the fewest other changes; [] if the source has nothing that fits."""
        return list(filter(None, [self._way(name, self._wishes(), listing=False)]))

    def cuda(self, wish: str = "auto") -> str:
        """Values for cuda.version or driver.source in place of the impossible `wish`, in words; nearest first."""
        wanted = None if wish in ("auto", "none") else wish
        ways = []
        here = self._toolkits(self.source, wanted)
        fitting = [version for version in here if self._has_wheel(self.profile.cudnn.version, str(_major(version)))]
        if fitting:
            auto = self._offers()[self.source].cuda[0] in fitting
            ways = [listed(fitting), *(["auto"] if auto else [])]
        elif here:
            wheel = next(iter(self.cudnn(str(_major(here[0])))), "none")
            ways = [f"{here[0]} with cudnn.version: {wheel}"]
        driver = self.profile.driver.version
        served = self.has(self.source, driver)
        for name in self._others():
            there = self._toolkits(name, wanted)
            if not there or (served and not self.has(name, driver)):
                continue
            nearer = wanted and _major(there[0]) == _major(wanted) != _major(here[0]) if here else True
            if wanted in there or nearer:
                way = self._way(name, self._wishes(cuda=there[0]), listing=False, exact_cuda=wanted not in there)
                ways += filter(None, [way])
        return ", or ".join(ways or ["cuda.version: none"])

    def _others(self) -> list[str]:
        return [name for name in self._offers() if name != self.source and self.branches(name)]

    def _wishes(self, **changed: str) -> Wishes:
        profile = self.profile
        wishes = Wishes(profile.driver.version, profile.cuda.version, profile.cudnn.version)
        return dataclasses.replace(wishes, **changed)

    def _way(self, name: str, wishes: Wishes, *, listing: bool, exact_cuda: bool = False) -> str:
        """The change to the source `name` in words, with the fewest other changes that make it fit; "" if nothing fits.

        `listing`: name every driver that fits. `exact_cuda`: the toolkit of `wishes` differs from the profile's.
        """
        extra_keys = ("cuda",) if exact_cuda else ()
        for keys in ((("version",),) if listing else ()) + CHANGES:
            if exact_cuda and "cuda" in keys:
                continue
            alternatives = [changed for changed in self._changed(name, wishes, keys) if self._fits(name, changed)]
            if not alternatives:
                continue
            values = {key: [getattr(alternatives[0], key)] for key in KEYS if key in (*keys, *extra_keys)}
            if listing and keys == ("version",):
                values["version"] = [changed.version for changed in alternatives]
            parts = [f"{KEYS[key]}: {listed(value)}" for key, value in values.items()]
            return f"driver.source: {name}" + (f" with {' and '.join(parts)}" if parts else "")
        return ""

    def _changed(self, name: str, wishes: Wishes, keys: Sequence[str]) -> Iterator[Wishes]:
        """`wishes` with all possible other values of `keys`, the best first."""
        branches = list(map(str, self.branches(name)))
        auto = ["auto"] if self._auto_suits(name) else []
        versions = [*auto, *branches] if "version" in keys else [wishes.version]
        toolkits = self._toolkits(name, None) if "cuda" in keys else [wishes.cuda]
        wheels = [*catalogue.cudnn_checksums(), "none"] if "cudnn" in keys else [wishes.cudnn]
        for version in versions:
            for cuda in toolkits:
                for cudnn in wheels:
                    yield Wishes(version, cuda, cudnn)

    def _fits(self, source: str, wishes: Wishes) -> bool:
        """Whether driver, toolkit and cuDNN fit each other. Versions that are not offered are refused elsewhere."""
        driver = self._chosen(source, wishes.version)
        if driver is None:
            return False
        if wishes.cuda == "none":
            return True
        offered = self._offers()[source].cuda
        toolkit = offered[0] if wishes.cuda == "auto" else wishes.cuda
        if not self.takes_cuda(source, toolkit):
            return source == self.source  # refused by itself there
        runs = (catalogue.cuda_minimum_branch(toolkit) or 0) <= catalogue.branch(driver)
        usable = all(_within(toolkit, limits) for limits in self.limits())
        return usable and runs and self._has_wheel(wishes.cudnn, str(_major(toolkit)))

    def _chosen(self, source: str, wish: str) -> str | None:
        """The version that `wish` selects from the drivers of a source; None if no driver matches."""
        auto = self._offers()[source].auto or None
        wanted = auto if wish == "auto" else wish
        every = self._drivers(source)
        listed_version = next(
            (d.version for d in every if wanted is None or catalogue.matches(d.version, wanted)), None
        )
        unlisted = self.unlisted_driver(source, wanted) if wanted is not None and listed_version is None else None
        suits = unlisted is not None and self.suits(catalogue.branch(unlisted.version))
        return unlisted.version if unlisted is not None and suits else listed_version

    def cudnn(self, cuda_major: str) -> list[str]:
        """The versions of cuDNN for this CUDA that the host can have; the first is what `auto` takes."""
        architecture, last = self.snapshot.os.architecture, self._last_cudnn()
        return [
            version
            for version, majors in catalogue.cudnn_checksums().items()
            if architecture in majors.get(cuda_major, {}) and not any(above(version, limit) for limit in last)
        ]

    def _last_cudnn(self) -> list[str]:
        return [limits.maximum_cudnn for limits in self.limits() if limits.maximum_cudnn]

    def _has_wheel(self, cudnn: str, cuda_major: str) -> bool:
        if cudnn == "auto":
            return bool(self.cudnn(cuda_major))
        if cudnn == "none" or any(above(cudnn, limit) for limit in self._last_cudnn()):
            return True  # that one is refused by itself
        return cudnn in self.cudnn(cuda_major)

    def _drivers(self, source: str) -> list[ArchiveDriver]:
        """Drivers of this source that the host can have, newest first."""
        offer = self._offers().get(source)
        if offer is None or (self.snapshot.nvswitches and not self._has_fabric_manager(source)):
            return []
        served = (driver for driver in offer.drivers if self.flavours() & set(driver.modules))
        return [driver for driver in served if self.suits(catalogue.branch(driver.version))]

    def _toolkits(self, source: str, wanted: str | None) -> list[str]:
        """CUDA versions of this source that the GPUs and the wished driver can use, the nearest to `wanted` first."""
        branches, driver = self.branches(source), self.profile.driver.version
        if not branches:
            return []
        offer = self._offers()[source]
        chosen = None if driver == "auto" else self._chosen(source, driver)
        branch = catalogue.branch(chosen) if chosen else branches[0]
        versions = [
            version
            for version in offer.cuda
            if all(_within(version, limits) for limits in self.limits())
            and (catalogue.cuda_minimum_branch(version) or 0) <= branch
        ]
        return versions if wanted is None else sorted(versions, key=lambda version: _distance(version, wanted))

    def _offers(self) -> Mapping[str, Archive]:
        return self.release.sources if self.release is not None else {}

    def _auto_suits(self, source: str) -> bool:
        return self._chosen(source, "auto") is not None

    def _has_fabric_manager(self, source: str) -> bool:
        return catalogue.has_fabric_manager(self.snapshot.os.id, source)

    def has(self, source: str, wanted: str) -> bool:
        """Whether this source has the driver `wanted` for the host."""
        drivers = self._drivers(source)
        return bool(drivers) and (wanted == "auto" or any(catalogue.matches(d.version, wanted) for d in drivers))


def _branch(wanted: str, otherwise: int) -> int:
    return otherwise if wanted == "auto" else catalogue.branch(wanted)


def _within(version: str, limits: Limits) -> bool:
    have, last = catalogue.parse(version), limits.maximum_cuda
    return catalogue.parse(limits.minimum_cuda) <= have and (not last or have <= catalogue.parse(last))


def _major(version: str) -> int:
    return catalogue.parse(version)[0]


def _distance(version: str, wanted: str) -> tuple[int, int]:
    """Sort key: another major version is farther away than any minor version."""
    (major, minor), (wished_major, wished_minor) = ((*catalogue.parse(v), 0)[:2] for v in (version, wanted))
    return abs(major - wished_major), abs(minor - wished_minor) if major == wished_major else 0
