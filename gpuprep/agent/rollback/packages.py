"""The package managers, as far as the way back needs them: what is installed, files of packages, going back offline.

Both install the kept files alone: no source is read, so no network is needed and nothing newer comes.
"""

from __future__ import annotations

import fnmatch
import re
import shutil
from pathlib import Path
from typing import Dict, List, Mapping, Sequence, Union

from gpuprep.agent.rollback.commands import HOUR, MINUTE, Ended, run
from gpuprep.agent.rollback.saved import NAME

CACHE = Path("/var/cache/apt/archives")


class Failed(Exception):
    """A step of the package manager failed; the text says why."""


class Apt:
    # Without any source; the lists and the cache of the real sources stay as they are.
    OFFLINE = (
        "-o", "Dir::Etc::sourcelist=/dev/null", "-o", "Dir::Etc::sourceparts=/dev/null",
        "-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=",
    )  # fmt: skip
    # GPUprep::Step is no setting of apt's: by it a step that was broken off is known as gpuprep's own, and by the Part
    # what was there before (agent/facts/ledger.py).
    WORDS = (
        "apt-get", "-y", "-o", "DPkg::Lock::Timeout=900", "-o", "GPUprep::Step=1", "-o", "GPUprep::Part=before",
        "-o", "APT::Sandbox::User=root",
        "-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold",
    )  # fmt: skip
    GONE = ("not-installed", "config-files")

    def installed(self, names: Sequence[str]) -> Dict[str, str]:
        """Name ► version of what is installed whole, of `names`, which may be patterns."""
        return {name: version for name, (status, version) in self._rows(names).items() if status == "installed"}

    def present(self, names: Sequence[str]) -> Dict[str, str]:
        """Name ► version of what is on the disk, be it half."""
        return {name: version for name, (status, version) in self._rows(names).items() if status not in self.GONE}

    def half(self, names: Sequence[str]) -> List[str]:
        """What a step that was broken off left neither installed nor removed."""
        return sorted(self.present(names).keys() - self.installed(names).keys())

    def _rows(self, names: Sequence[str]) -> "Dict[str, tuple[str, str]]":
        form = "${db:Status-Status}\t${Package}\t${Version}\n"
        out = run(["dpkg-query", "--show", f"--showformat={form}", *names], limit=2 * MINUTE).out if names else ""
        rows = [line.split("\t") for line in out.splitlines() if line.count("\t") == 2]
        return {name: (status, version) for status, name, version in rows if NAME.fullmatch(name)}

    def held(self, names: Sequence[str]) -> List[str]:
        return sorted(set(run(["apt-mark", "showhold"], limit=2 * MINUTE).out.split()) & set(names))

    def fetch(self, packages: Mapping[str, str], folder: Path) -> None:
        """Put the files of these versions into `folder`: from apt's cache, else from the archive."""
        for name, version in packages.items():
            cached = sorted(CACHE.glob(f"{name}_{version.replace(':', '%3a')}_*.deb"))
            if not any(self._is(path, name, version) and shutil.copy(path, folder) for path in cached):
                self._download(name, version, folder)

    def _download(self, name: str, version: str, folder: Path) -> None:
        words = [
            *self.WORDS,
            "-o",
            "Acquire::http::Timeout=20",
            "-o",
            "Acquire::https::Timeout=20",
            "-o",
            "Acquire::Retries=1",
        ]
        run(
            ["sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", str(folder), *words, "download", f"{name}={version}"],
            limit=HOUR / 2,
        )

    def files(self, folder: Path, packages: Mapping[str, str]) -> Dict[str, Path]:
        """Name ► file in `folder`, of those that are what they should be."""
        found = {}
        for path in sorted(folder.glob("*.deb")):
            name = path.name.partition("_")[0]
            if name in packages and self._is(path, name, packages[name]):
                found[name] = path
        return found

    def _is(self, path: Path, name: str, version: str) -> bool:
        said = run(["dpkg-deb", "--field", str(path), "Package", "Version"], limit=MINUTE)
        whole = ["sh", "-c", 'exec dpkg-deb --fsys-tarfile "$1" >/dev/null', "sh", str(path)]
        named = said.code == 0 and said.out.split() == ["Package:", name, "Version:", version]
        return named and run(whole, limit=HOUR / 2).code == 0

    def bytes_needed(self, packages: Mapping[str, str]) -> int:
        """At most: a package is smaller than what it installs."""
        out = run(["dpkg-query", "--show", "--showformat=${Installed-Size}\n", *packages], limit=2 * MINUTE).out
        return sum(int(line) for line in out.split() if line.isdigit()) * 1024

    def removals(self, lost: Mapping[str, Path], gone: Sequence[str]) -> List[str]:
        """What restore() would remove; empty where apt cannot tell, as after a step that was broken off."""
        said = run([*self._install(lost, gone), "--simulate"], limit=HOUR / 2)
        return re.findall(r"^(?:Remv|Purg) ([^\s:]+)", said.out, re.MULTILINE) if said.code == 0 else []

    def _install(self, lost: Mapping[str, Path], gone: Sequence[str]) -> List[str]:
        return [
            *self.WORDS, *self.OFFLINE, "install", "--no-install-recommends", "--allow-downgrades",
            "--allow-change-held-packages", "--reinstall", *map(str, lost.values()), *(f"{name}-" for name in gone),
        ]  # fmt: skip

    def restore(self, lost: Mapping[str, Path], gone: Sequence[str], kept: Mapping[str, str]) -> None:
        """Install `lost` (name ► file), remove `gone`. Raises Failed."""
        run(["dpkg", "--triggers-only", "--pending"], limit=HOUR / 2)  # it takes in what a killed dpkg noted
        self._clear_the_half(lost, gone)
        done = run(self._install(lost, gone), limit=HOUR)
        if done.code != 0:
            done = self._with_dpkg(lost, gone)
        if self.installed(list(kept)) != dict(kept) or self.present(gone):
            raise Failed(f"apt-get: {done.why}" if done.code else "apt-get left other packages than those of before")

    def _clear_the_half(self, lost: Mapping[str, Path], gone: Sequence[str]) -> None:
        """apt refuses every step while a package has to be unpacked again whose file it does not know."""
        form = "${Package} ${db:Status-Eflag}\n"
        out = run(["dpkg-query", "--show", f"--showformat={form}", *gone, *lost], limit=2 * MINUTE).out
        for name in [line.split()[0] for line in out.splitlines() if line.endswith(" reinstreq")]:
            force = ["--force-remove-reinstreq", "--force-depends", "--force-remove-protected"]
            if name in gone:
                run(["dpkg", *force, "--remove", name], limit=HOUR / 2)

    def _with_dpkg(self, lost: Mapping[str, Path], gone: Sequence[str]) -> Ended:
        """Where apt finds no way through what a broken step left: dpkg asks for no order."""
        there = self.present(gone)
        if there:
            run(["dpkg", "--force-depends", "--force-remove-reinstreq", "--remove", *there], limit=HOUR)
        force = [
            "--force-depends",
            "--force-downgrade",
            "--force-conflicts",
            "--force-confdef",
            "--force-confold",
            "--force-hold",
        ]
        words = [str(path) for path in lost.values()]
        return run(["dpkg", *force, "--install", *words], limit=HOUR) if words else Ended(0, "", "")

    def hold(self, held: Sequence[str], names: Sequence[str]) -> None:
        """Hold `held`, and of `names` nothing else. Raises Failed."""
        now = self.held(names)
        for verb, which in (("unhold", set(now) - set(held)), ("hold", set(held) - set(now))):
            done = run(["apt-mark", verb, *sorted(which)], limit=5 * MINUTE) if which else None
            if done is not None and done.code:
                raise Failed(f"apt-mark {verb}: {done.why}")


class Dnf:
    WORDS = (
        "dnf", "-y", "--comment=GPUprep::Step=1 GPUprep::Part=before", "--allowerasing",
        "--setopt=install_weak_deps=False", "--setopt=*.module_hotfixes=true", "--setopt=localpkg_gpgcheck=False",
        "--disableplugin=versionlock", "--disablerepo=*",
    )  # fmt: skip
    FORM = "%{NAME}\t%{EPOCHNUM}:%{VERSION}-%{RELEASE}\n"

    def installed(self, names: Sequence[str]) -> Dict[str, str]:
        """Name ► version; of a package that is there twice, what an interrupted step left, both versions."""
        out = run(["rpm", "-qa", "--qf", self.FORM, *names], limit=2 * MINUTE).out if names else ""
        found: Dict[str, str] = {}
        for name, version in sorted(line.split("\t") for line in out.splitlines() if line.count("\t") == 1):
            if NAME.fullmatch(name):
                found[name] = f"{found[name]} {version}" if name in found else version
        return found

    def present(self, names: Sequence[str]) -> Dict[str, str]:
        return self.installed(names)

    def half(self, names: Sequence[str]) -> List[str]:
        return [name for name, versions in self.installed(names).items() if " " in versions]

    def held(self, names: Sequence[str]) -> List[str]:  # noqa: ARG002
        return []  # the list of locks is a file, which is kept whole

    def fetch(self, packages: Mapping[str, str], folder: Path) -> None:
        words = ["dnf", "-y", "--setopt=*.module_hotfixes=true", "--disableplugin=versionlock", "--setopt=timeout=20"]
        exact = [f"{name}-{version}" for name, version in packages.items()]
        run([*words, "download", f"--destdir={folder}", *exact], limit=HOUR / 2)
        left = [f"{name}-{version}" for name, version in packages.items() if name not in self.files(folder, packages)]
        for one in left:  # one that the archive no longer has keeps dnf from fetching the others
            run([*words, "download", f"--destdir={folder}", one], limit=HOUR / 2)

    def files(self, folder: Path, packages: Mapping[str, str]) -> Dict[str, Path]:
        found = {}
        for path in sorted(folder.glob("*.rpm")):
            said = run(["rpm", "-qp", "--nosignature", "--qf", self.FORM, str(path)], limit=MINUTE)
            name, _, version = said.out.strip().partition("\t")
            whole = run(["rpm", "--checksig", "--nosignature", str(path)], limit=HOUR / 2).code == 0
            if whole and packages.get(name, "") == version:
                found[name] = path
        return found

    def bytes_needed(self, packages: Mapping[str, str]) -> int:
        out = run(["rpm", "-q", "--qf", "%{LONGSIZE}\n", *packages], limit=2 * MINUTE).out
        return sum(int(line) for line in out.split() if line.isdigit())

    def removals(self, lost: Mapping[str, Path], gone: Sequence[str]) -> List[str]:
        """The packages that need what would go."""
        words = ["rpm", "-U", "--test", "--oldpackage", "--replacepkgs", *map(str, lost.values())]
        said = run(words, limit=HOUR / 2).errors if lost else ""
        said += run(["rpm", "-e", "--test", *gone], limit=HOUR / 2).errors if gone else ""
        return re.findall(r"is needed by \(installed\) (\S+)-[^-\s]+-[^-\s]+$", said, re.MULTILINE)

    def restore(self, lost: Mapping[str, Path], gone: Sequence[str], kept: Mapping[str, str]) -> None:
        run(["rpm", "--rebuilddb"], limit=HOUR / 2)  # a killed rpm leaves locks and a damaged index
        for name, versions in self.installed(list(kept)).items():
            for version in versions.split() if " " in versions else []:
                if version != kept[name]:
                    run(["rpm", "-e", "--nodeps", "--noscripts", f"{name}-{version.partition(':')[2]}"], limit=HOUR / 2)
        done = Ended(0, "", "")
        if lost:
            done = run([*self.WORDS, "install", *map(str, lost.values())], limit=HOUR)
        there = self.present(gone)
        if there:
            run([*self.WORDS, "remove", "--noautoremove", *there], limit=HOUR)
        if self.installed(list(kept)) != dict(kept) or self.present(gone):
            done = self._with_rpm(lost, gone)
        if self.installed(list(kept)) != dict(kept) or self.present(gone):
            raise Failed(f"dnf: {done.why}" if done.code else "dnf left other packages than those of before")

    def _with_rpm(self, lost: Mapping[str, Path], gone: Sequence[str]) -> Ended:
        """Where dnf finds no way: rpm asks for no repository and no stream."""
        there = self.present(gone)
        if there:
            run(["rpm", "-e", "--nodeps", *there], limit=HOUR)
        words = ["rpm", "-U", "--oldpackage", "--replacepkgs", "--replacefiles", "--nodeps"]
        return run([*words, *(str(path) for path in lost.values())], limit=HOUR) if lost else Ended(0, "", "")

    def hold(self, held: Sequence[str], names: Sequence[str]) -> None:
        """The list of locks is a file, which is kept whole."""


Manager = Union[Apt, Dnf]


def manager() -> Manager:
    return Dnf() if Path("/etc/system-release").exists() else Apt()


def of_drivers(found: Mapping[str, str], names: Sequence[str], parts: str, drivers: Sequence[str]) -> Dict[str, str]:
    """Of packages (name ► version) those of a driver: known by name, or of its version and named as drivers' parts are.

    What a part needs in its own version has no other sign: it changes with the driver, though no role names it. An
    empty driver, of a machine that had none, is in no version.
    """
    form = re.compile(parts)
    return {
        name: version
        for name, version in found.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in names)
        or (form.match(name) and any(driver and driver in version for driver in drivers))
    }
