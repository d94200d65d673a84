"""Filters of the driver role: pure functions over what package managers print."""

from __future__ import annotations

import base64
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from ansible_collections.gpuprep.gpu.plugins.module_utils.packagenames import (
    followed,
    matches,
    of_branch,
    prebuilt,
    upstream,
)


def driver_installed(installed: Mapping[str, str], packages: Sequence[str], wish: str) -> str:
    """The one driver version that all of `packages` are installed in and that fits the wish; "" if there is none."""
    versions = {upstream(installed.get(package, "")) for package in packages}
    version = versions.pop() if len(versions) == 1 else ""
    return version if matches(version, wish) else ""


def driver_offered(madison: Iterable[str], packages: Sequence[str], wish: str) -> dict[str, str]:
    """The newest offer of one and the same driver version for all of `packages`: name ► package version.

    `madison` are the lines of `apt-cache madison`, newest first for each package, or dnf's in the same form. An archive
    may carry a newer version of some packages only (Debian 12 security has libraries and proprietary modules, but no open modules, at
    535.309): then the newest version that all of them have is the one. Empty when there is none.
    """
    offers: dict[str, dict[str, str]] = {package: {} for package in packages}
    for line in madison:
        package, version = (field.strip() for field in line.split("|")[:2])
        if package in offers and matches(upstream(version), wish):
            offers[package].setdefault(upstream(version), version)
    common = set.intersection(*(set(by_version) for by_version in offers.values()))
    if not common:
        return {}
    newest = max(common, key=lambda version: [int(part) for part in version.split(".")])
    return {package: by_version[newest] for package, by_version in offers.items()}


def driver_names(sources: Mapping[str, Mapping[str, Any]], libraries: str = "compute") -> list[str]:
    """Every package of a driver that these sources know, of all branches and flavours.

    Those for displays only where they are wanted: on another machine they are a desktop's, and somebody else's.
    """
    names = set()
    for source in sources.values():
        for branch in (*source.get("by_branch", {}), "0"):  # "0": names of branches without an entry
            data = of_branch(source, branch)
            kinds = ("kernel_packages", "prebuilt_packages")
            lists = [names for kind in kinds for names in data.get(kind, {}).values()]
            lists += [data[kind] for kind in ("library_packages", "tool_packages", "fabric_packages")]
            lists.append(data.get("full_packages", []) if libraries == "full" else [])
            names.update(name for found in lists for name in found)
    return sorted(names)


def driver_prebuilt_names(forms: Iterable[str], metas: Iterable[str], kernel: str) -> list[str]:
    """Packages with prebuilt modules: "linux-modules-nvidia-580-server-{kernel}" for each flavour that is followed."""
    return list(prebuilt(forms, followed(kernel, metas)))


def driver_prebuilt_left(present: Iterable[str], forms: Sequence[str]) -> list[str]:
    """Packages with prebuilt modules of another branch or flavour than these forms; without forms all of them."""
    kind = re.compile(r"linux-(modules|objects|signatures)-nvidia-")
    begins = [form.partition("{kernel}")[0] for form in forms]
    begins += [begin.replace("linux-modules-", "linux-objects-") for begin in begins]
    own = [re.compile(re.escape(begin) + "(?!open-)") for begin in begins]
    own += [re.compile("linux-signatures-")] if forms else []
    return [name for name in present if kind.match(name) and not any(form.match(name) for form in own)]


def driver_removals(simulation: Iterable[str]) -> list[str]:
    """Packages that `apt-get --simulate` says it would remove."""
    return [line.split()[1] for line in simulation if line.startswith(("Remv ", "Purg "))]


def driver_apt_held(simulation: Iterable[str]) -> list[str]:
    """Packages on hold that `apt-get --simulate` says it would change: the indented lines below that heading."""
    held, below = [], False
    for line in simulation:
        below = line.startswith("  ") if below else line == "The following held packages will be changed:"
        if below and line.startswith("  "):
            held += line.split()
    return held


def _dnf_rows(said: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """(heading, words) of each row of the table of `dnf --assumeno`: "NAME ARCH VERSION REPOSITORY SIZE".

    A long name stands alone, and the rest is on the next line.
    """
    heading, alone = "", ""
    for line in said:
        if line and not line.startswith(" "):
            heading, alone = line if line.endswith(":") else "", ""
        elif heading and (words := line.split()):
            if re.match(r" [A-Za-z0-9]", line):
                alone = words[0] if len(words) == 1 else ""
                yield heading, words
            elif alone:
                yield heading, [alone, *words]
                alone = ""


def driver_dnf_removals(said: Iterable[str]) -> list[str]:
    """Packages that `dnf --assumeno` says it would remove: the names below its headings "Removing..." of the table."""
    rows = _dnf_rows(said)
    return list(dict.fromkeys(words[0] for heading, words in rows if heading.startswith("Removing")))


def driver_locks_in_the_way(said: Iterable[str], locks: Sequence[str]) -> list[str]:
    """Those lines of dnf's versionlock.list that the transaction of `dnf --assumeno` does not keep to.

    A lock "dkms-0:3.0.13-1.el9.*" lets no other version of that package in; "!dkms-..." keeps that one version out. What
    is locked shall not be removed either.
    """
    rows = [(heading, words) for heading, words in _dnf_rows(said) if len(words) >= 3]
    return [lock for lock in locks if any(_breaks(lock, heading, *words[:3]) for heading, words in rows)]


def _breaks(lock: str, heading: str, name: str, arch: str, version: str) -> bool:
    epoch, _, rest = version.rpartition(":")
    names = (name, f"{name}-{rest}", f"{name}-{epoch or 0}:{rest}")
    matches = any(fnmatchcase(form, lock.lstrip("!")) for plain in names for form in (plain, f"{plain}.{arch}"))
    if heading.startswith("Removing"):
        return matches and not lock.startswith("!")
    locked_name = re.sub(r"-(?:[0-9]+:)?[^-]+-[^-]+$", "", lock)
    return matches if lock.startswith("!") else not matches and fnmatchcase(name, locked_name)


def driver_old_firmware(installed: Mapping[str, str], packages: Sequence[str], version: str) -> list[str]:
    """Firmware that another driver brought: Ubuntu's packages have the driver's version in their names."""
    firmware = [name for name in installed if name.startswith("nvidia-firmware-") and name not in packages]
    return sorted(name for name in firmware if upstream(installed[name]) != version)


def driver_lost(before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    """Which of the packages that were installed are gone, half installed or of another version: name ► version then."""
    return {name: version for name, version in before.items() if now.get(name) != version}


def driver_moves(policy: Iterable[str]) -> list[str]:
    """Installed packages for which `apt-cache policy` has another candidate: "NAME from 1 to 2"."""
    moving, name, installed = [], "", ""
    for line in policy:
        word, _, value = line.strip().partition(":")
        if not line.startswith(" ") and line.endswith(":"):
            name = word
        elif word == "Installed":
            installed = value.strip()
        elif word == "Candidate" and installed not in ("(none)", value.strip()):
            moving.append(f"{name} from {installed} to {value.strip()}")
    return moving


def driver_armored(key: str) -> str:
    """A key in base64 as apt reads it from a file .asc (RFC 4880, 6.2), with its checksum."""
    content, checksum = base64.b64decode(key, validate=True), 0xB704CE
    for byte in content:
        checksum ^= byte << 16
        for _ in range(8):
            checksum = checksum << 1 ^ (0x1864CFB if checksum & 0x800000 else 0)
    lines = textwrap.wrap(base64.b64encode(content).decode(), 64)
    end = base64.b64encode((checksum & 0xFFFFFF).to_bytes(3, "big")).decode()
    head, foot = (f"-----{word} PGP PUBLIC KEY BLOCK-----" for word in ("BEGIN", "END"))
    return "\n".join([head, "", *lines, f"={end}", foot, ""])


class FilterModule:
    def filters(self) -> dict[str, object]:
        return {
            "driver_fits": matches,
            "driver_apt_held": driver_apt_held,
            "driver_armored": driver_armored,
            "driver_dnf_removals": driver_dnf_removals,
            "driver_installed": driver_installed,
            "driver_locks_in_the_way": driver_locks_in_the_way,
            "driver_lost": driver_lost,
            "driver_moves": driver_moves,
            "driver_names": driver_names,
            "driver_of_branch": of_branch,
            "driver_old_firmware": driver_old_firmware,
            "driver_offered": driver_offered,
            "driver_prebuilt_left": driver_prebuilt_left,
            "driver_prebuilt_names": driver_prebuilt_names,
            "driver_removals": driver_removals,
            "driver_upstream": upstream,
        }
