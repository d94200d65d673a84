"""Which driver or CUDA could this machine have instead of the refused one? Every answer can be had there. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuprep import catalogue
from gpuprep.catalogue import Archive, Limits, Model, OsRelease
from gpuprep.desired.profile import Profile
from gpuprep.desired.profile_rules import OPEN, PROPRIETARY, listed
from gpuprep.records import Snapshot

ANOTHER_SYSTEM = "another release of the operating system"


def release_for(snapshot: Snapshot) -> OsRelease | None:
    """What the host's OS release offers to this host: beside an NVSwitch only drivers that have a Fabric Manager."""
    release = catalogue.archive(snapshot.os.id, snapshot.os.version_id)
    if release is None or not snapshot.nvswitches:
        return release
    sources = {
        name: dataclasses.replace(offer, drivers=tuple(driver for driver in offer.drivers if driver.fabric_manager))
        for name, offer in release.sources.items()
    }
    return dataclasses.replace(release, sources=sources)


@dataclass(frozen=True)
class Nearest:
    """`profile` has a concrete driver.source; `models` are those of the host's GPUs."""

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

    def flavours(self) -> set[str]:
        """Of these the profile's, if it is one of them."""
        return self.common_flavours() & {self.profile.driver.flavour} or self.common_flavours()

    def suits(self, branch: int) -> bool:
        """Do all GPUs of the host work with this branch?"""
        return all(limits.minimum_branch <= branch <= (limits.maximum_branch or branch) for limits in self.limits())

    def branches(self, source: str) -> list[int]:
        """Branches of this source that the host can have, newest first."""
        offer = self._offers().get(source)
        if offer is None or (self.snapshot.nvswitches and not self._has_fabric_manager(source)):
            return []
        served = (driver for driver in offer.drivers if self.flavours() & set(driver.modules))
        found = dict.fromkeys(catalogue.branch(driver.version) for driver in served)
        return [branch for branch in found if self.suits(branch)]

    def driver(self, wanted: str) -> str:
        """What to put in driver.version or driver.source for a wish that cannot be, in words; the nearest first."""
        ways = []
        if here := self.branches(self.source):
            near = sorted(here, key=lambda branch: abs(branch - _branch(wanted, here[0])))
            ways = [f"branch {listed(map(str, near))}", *(["auto"] if self._auto_suits(self.source, here) else [])]
        offers = self._offers()
        others = [name for name in offers if name != self.source and self.branches(name)]
        exact = [name for name in others if self._has(offers[name], wanted, self.branches(name))]
        ways += [f"driver.source: {name}" for name in exact]
        return ", or ".join(ways or self.other_sources())

    def other_sources(self) -> list[str]:
        """The other sources of this release with what the host can have of them; never empty."""
        found = []
        for name in self._offers():
            here = self.branches(name)
            if name != self.source and here:
                auto = ["auto"] if self._auto_suits(name, here) else []
                found.append(f"driver.source: {name} with driver.version: {listed([*auto, *map(str, here)])}")
        return found or [ANOTHER_SYSTEM]

    def cuda(self, wish: str = "auto") -> str:
        """What to put in cuda.version or driver.source for a wish that cannot be, in words; the nearest first."""
        wanted = None if wish in ("auto", "none") else wish
        offers, ways = self._offers(), []
        here = self._toolkits(self.source, wanted)
        if here:
            auto = offers[self.source].cuda[0] in here
            ways = [listed(here), *(["auto"] if auto else [])]
        driver = self.profile.driver.version
        served = self.source in offers and self._has(offers[self.source], driver, self.branches(self.source))
        for name in offers:
            there = self._toolkits(name, wanted) if name != self.source else []
            if not there or (served and not self._has(offers[name], driver, self.branches(name))):
                continue
            if wanted in there:
                ways.append(f"driver.source: {name}")
            elif not here or (wanted and _major(there[0]) == _major(wanted) != _major(here[0])):
                ways.append(f"driver.source: {name} with cuda.version: {there[0]}")
        return ", or ".join(ways or ["cuda.version: none"])

    def _toolkits(self, source: str, wanted: str | None) -> list[str]:
        """CUDA versions of this source that the GPUs and the wished driver can use, the nearest to `wanted` first."""
        branches, driver = self.branches(source), self.profile.driver.version
        if not branches:
            return []
        offer = self._offers()[source]
        known = driver != "auto" and self._has(offer, driver, branches)
        branch = catalogue.branch(driver) if known else branches[0]
        found = [
            version
            for version in offer.cuda
            if all(_within(version, limits) for limits in self.limits())
            and (catalogue.cuda_minimum_branch(version) or 0) <= branch
        ]
        return found if wanted is None else sorted(found, key=lambda version: _distance(version, wanted))

    def _offers(self) -> Mapping[str, Archive]:
        return self.release.sources if self.release is not None else {}

    def _auto_suits(self, source: str, branches: Sequence[int]) -> bool:
        offer = self._offers()[source]
        return catalogue.branch(offer.auto or offer.drivers[0].version) in branches

    def _has_fabric_manager(self, source: str) -> bool:
        return catalogue.has_fabric_manager(self.snapshot.os.id, source)

    @staticmethod
    def _has(offer: Archive, wanted: str, branches: Sequence[int]) -> bool:
        return wanted == "auto" or any(
            catalogue.matches(driver.version, wanted) and catalogue.branch(driver.version) in branches
            for driver in offer.drivers
        )


def _branch(wanted: str, otherwise: int) -> int:
    return otherwise if wanted == "auto" else catalogue.branch(wanted)


def _within(version: str, limits: Limits) -> bool:
    have, last = catalogue.parse(version), limits.maximum_cuda
    return catalogue.parse(limits.minimum_cuda) <= have and (not last or have <= catalogue.parse(last))


def _major(version: str) -> int:
    return catalogue.parse(version)[0]


def _distance(version: str, wanted: str) -> tuple[int, int]:
    """Another major version is farther than any minor one."""
    (major, minor), (wished_major, wished_minor) = ((*catalogue.parse(v), 0)[:2] for v in (version, wanted))
    return abs(major - wished_major), abs(minor - wished_minor) if major == wished_major else 0
