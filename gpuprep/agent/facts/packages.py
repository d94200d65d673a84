"""Reads installed packages and holds from the package manager. Each family of systems is a row of data."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
from pathlib import Path
from typing import Dict, Iterable, List, Sequence, Tuple, Union

from gpuprep.agent.facts import packagefiles, packagestate, parse
from gpuprep.agent.facts.digests import Digests
from gpuprep.agent.facts.packagestate import RED_HAT
from gpuprep.agent.facts.shells import which
from gpuprep.agent.programs import children
from gpuprep.agent.programs.run import SEARCH_PATH, ReadingFailed, read_text, run
from gpuprep.records import Bool, Missing, OptStr, Package, PackageManagerFacts

# Installed packages of these families are in every snapshot; a profile may ask for more by name.
CUDA_FAMILIES = (
    "cuda*", "cudnn*", "libcuda*", "libcudnn*", "libcublas*", "libcufft*", "libcufile*", "libcuinj*", "libcupti*",
    "libcurand*", "libcusolver*", "libcusparse*", "libnpp*", "libnv*", "libaccinj*", "nvidia*", "libnvidia*",
)  # fmt: skip
DEBIAN_FAMILIES = (
    *CUDA_FAMILIES, "xserver-xorg-video-nvidia*", "firmware-nvidia*", "glx-alternative-nvidia", "libegl-nvidia*",
    "libgl1-nvidia*", "libgles-nvidia*", "libglx-nvidia*",
    "linux-image-*", "linux-headers-*", "linux-modules-nvidia-*", "dkms", "unattended-upgrades",
)  # fmt: skip
RPM_FAMILIES = (
    *CUDA_FAMILIES, "kmod-nvidia*", "xorg-x11-drv-nvidia*", "kernel", "kernel-core", "kernel-devel*",
    "kernel-headers", "kernel6*", "dkms", "dnf-automatic",
)  # fmt: skip
VERSIONLOCK_FILES = ("/etc/dnf/plugins/versionlock.list", "/etc/yum/pluginconf.d/versionlock.list")
# Where dnf may be configured to obey no plugin, or not this one: (file, section, key).
VERSIONLOCK_SWITCHES = (
    ("/etc/dnf/dnf.conf", "main", "plugins"),
    ("/etc/dnf/plugins/versionlock.conf", "main", "enabled"),
)
APT_LISTS = Path("/var/lib/apt/lists")
# A question leaves no trace: apt would write 80 MB into its cache.
WITHOUT_CACHE = ("-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache=")
DNF_CACHE = Path("/var/cache/dnf")
MOST_OWNED = 300  # files that a snapshot asks about
RPM_OWNER = ("rpm", "-qf", "--qf", "%{NAME}\\n")  # a file of no package: a sentence


def uses_apt() -> bool:
    """Whether the system uses apt. dpkg alone is no proof: Red Hat's systems may have it as a tool."""
    return which("dpkg-query", SEARCH_PATH) is not None and not RED_HAT.exists()


def installed(asked: Sequence[str]) -> Dict[str, Package]:
    """Installed packages, with their holds, of the families of interest and of `asked`, with one call."""
    if uses_apt():
        # dpkg-query ends with 1 when one of the patterns fits nothing
        text = run(["dpkg-query", "-W", "-f", parse.DPKG_FORMAT, *DEBIAN_FAMILIES, *asked], accept=(0, 1))
        return parse.dpkg(_needed(text))
    text = run(["rpm", "-qa", "--qf", parse.RPM_FORMAT, *RPM_FAMILIES, *asked])
    return parse.rpm(_needed(text), _locks())


def manager() -> Union[PackageManagerFacts, Missing]:
    """Unfinished package states, and which program works with the packages now."""
    rpm = not uses_apt()
    answer = run(packagestate.RPM_QUERY if rpm else packagestate.DPKG_QUERY)
    if isinstance(answer, Missing):
        return answer
    try:
        holders: Union[Dict[str, str], Missing] = packagestate.holders()
    except OSError as error:
        holders = Missing("no_permission", str(error))
    journal = () if rpm else tuple(packagestate.journal())
    own = tuple(packagestate.ours(rpm=rpm))
    return PackageManagerFacts(packagestate.unfinished(answer, rpm=rpm), journal, holders, own)


def files(names: Iterable[str], digests: Digests) -> Union[Dict[str, Tuple[str, ...]], Missing]:
    """Package of the driver or CUDA ─► which of its files are gone or changed, and which packages it lacks; without
    packages that are whole.
    """
    mine, rpm = [name for name in names if packagefiles.whose(name)], not uses_apt()
    try:
        wrong = packagefiles.wrong(mine, rpm=rpm, digest=digests.of)
        for name, need in packagefiles.absent(mine, rpm=rpm):
            wrong.setdefault(name, []).append(f"{need}, {packagefiles.ABSENT}")
    except PermissionError as error:
        return Missing("no_permission", str(error))
    except (OSError, subprocess.SubprocessError, packagefiles.TooSlow) as error:
        return Missing("command_failed", str(error))
    return {name: tuple(said) for name, said in wrong.items()}


def _locks() -> str:
    """The lines of dnf's versionlock; "" if dnf is configured to ignore them."""
    if any(_is_off(*switch) for switch in VERSIONLOCK_SWITCHES):
        return ""
    return "\n".join(lock for lock in (read_text(path) for path in VERSIONLOCK_FILES) if isinstance(lock, str))


def held_absent() -> List[str]:
    """Packages that are held and not installed, so that nobody can install them. Raises ReadingFailed."""
    if uses_apt():
        # Without "*" dpkg-query leaves out what is not there.
        text = _needed(run(["dpkg-query", "-W", "-f", "${db:Status-Abbrev}\\t${Package}\\n", "*"]))
        rows = [line.partition("\t") for line in text.splitlines()]
        return sorted({name for state, _, name in rows if state[:1] == "h" and state[1:2] != "i"})
    locked = sorted({found[1] for found in re.finditer(r"(?m)^!?([A-Za-z0-9][\w.+-]*)-\d+:", _locks())})
    there = _needed(run(["rpm", "-q", "--qf", "%{NAME}\\n", *locked], accept=range(256))).split() if locked else []
    return [name for name in locked if name not in there]


def _is_off(path: str, section: str, key: str) -> bool:
    """Whether a file of dnf's settings turns `key` off; an unreadable file does not, because dnf ignores it."""
    text = read_text(path)
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text if isinstance(text, str) else "")
    except configparser.Error:
        return False
    return parser.get(section, key, fallback="1").strip().lower() in ("0", "no", "false", "off")


def owners(paths: Iterable[str]) -> Dict[str, OptStr]:
    """Path ─► the package that has it; None: a file of no package. Also of a file that is gone, where dpkg knows it."""
    asked = sorted({path for path in paths if path.startswith("/")})[:MOST_OWNED]
    if not asked:
        return {}
    if not uses_apt():
        return _owners_rpm(asked)
    # A merged /usr: dpkg knows a file by the name that its package has, /lib/x or /usr/lib/x.
    names = {path: (path, path[len("/usr") :] if path.startswith("/usr/") else f"/usr{path}") for path in asked}
    text = run(["dpkg-query", "-S", *(name for both in names.values() for name in both)], accept=(0, 1))
    if isinstance(text, Missing):
        return dict.fromkeys(asked, text)
    owned = parse.dpkg_owners(text)
    return {path: next((owned[name] for name in both if name in owned), None) for path, both in names.items()}


def _owners_rpm(paths: List[str]) -> Dict[str, OptStr]:
    """With one call where each path gets one line, else with one call for each: a file may be of two packages."""
    there = [path for path in paths if os.path.lexists(path)]
    owned: Dict[str, OptStr] = dict.fromkeys(paths)
    text = run([*RPM_OWNER, *there], accept=range(256)) if there else ""
    if isinstance(text, Missing):
        return dict.fromkeys(paths, text)
    answers = text.splitlines()
    if len(answers) != len(there):
        each = [run([*RPM_OWNER, path], accept=range(256)) for path in there]
        answers = [one.partition("\n")[0] if isinstance(one, str) else " " for one in each]
    for place, path in enumerate(there):
        owned[path] = None if " " in answers[place] else answers[place]
    return owned


def _needed(text: Union[str, Missing]) -> str:
    """The text; raises ReadingFailed for Missing, because an empty list would mean "nothing installed"."""
    if isinstance(text, Missing):
        raise ReadingFailed(f"{packagestate.NO_ANSWER}: {text.detail}")
    return text


def headers_available(kernel: str) -> Bool:
    """Whether the package manager offers the headers of `kernel`; Missing if it has no package lists."""
    if uses_apt():
        if not any(APT_LISTS.glob("*_Packages*")):
            return Missing("not_installed", "the package lists have not been fetched yet (apt-get update)")
        text = run(["apt-cache", *WITHOUT_CACHE, "policy", f"linux-headers-{kernel}"], timeout=60)
        return text if isinstance(text, Missing) else _has_candidate(text)
    try:
        text = _asked_dnf("repoquery", "--available", headers_package(kernel))
    except OSError as error:
        return Missing("command_failed", str(error))
    return text if isinstance(text, Missing) else kernel.rpartition(".")[0] in text


def _asked_dnf(*words: str) -> Union[str, Missing]:
    """What dnf says of its lists, without its logs and locks."""
    with children.scratch("dnf") as folder:
        for path in DNF_CACHE.glob("*"):
            (folder / path.name).symlink_to(path)
        own = (f"--setopt=cachedir={folder}", f"--setopt=logdir={folder}/log")
        return run(["dnf", "-C", "-q", *own, *words], timeout=60)


def headers_package(kernel: str) -> str:
    """Name of the rpm package that DKMS needs for a kernel. On Amazon Linux it includes the series from 6.12 on."""
    series = ".".join(kernel.split(".")[:2])
    return f"kernel{series if '.amzn' in kernel and series != '6.1' else ''}-devel-{kernel}"


def _has_candidate(policy: str) -> bool:
    words = policy.split("Candidate:", 1)
    return len(words) == 2 and words[1].split()[0] != "(none)"
