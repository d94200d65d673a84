"""What `drift --fix` puts back: settings, units, links and holds; never a package, never a reboot.

plan(wanted, snapshot, findings)    findings ─► Planned fixes, each a command a person could type. Pure
offered(wanted, snapshot, findings) findings, with what to do where --fix would put them back. Pure
apply(host, planned)                run one as root ─► a Fix for each finding that it is for
seen(fixes, before, after)          the same fixes, with what the checks found before and afterwards. Pure

TABLE is all there is: which findings, and the command. What is not in it (packages, a driver, a reboot, ECC, MIG, files
that a role writes) is left, and each finding says itself what to do.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from gpuprep.host import Host
from gpuprep.records import Finding, Fix, Snapshot, Status
from gpuprep.wanted import Wanted

TIMEOUT_SECONDS = 120.0
LAST_CHARACTERS = 300
PERSISTENCED, TUNE, FABRIC = "nvidia-persistenced.service", "gpuprep-tune.service", "nvidia-fabricmanager.service"
AGENT = "/usr/local/bin/gpuprep-agent"
PATH_LINKS = "/usr/local/bin"
PKG_CONFIG_LINK = "/usr/local/lib/pkgconfig/ffnvcodec.pc"
PROGRAMS = ("ffmpeg", "ffprobe")


@dataclass(frozen=True)
class Planned:
    findings: tuple[str, ...]  # keys of the findings that it is for
    what: str  # "turn persistence mode on"
    command: str  # for the host's /bin/sh, as root


@dataclass(frozen=True)
class Row:
    """Findings by the patterns of their keys, and the command: "" where it cannot be on this host."""

    findings: tuple[str, ...]
    what: str
    command: Callable[[Wanted, Snapshot], str]


def plan(wanted: Wanted, snapshot: Snapshot, findings: Sequence[Finding]) -> list[Planned]:
    """In the order in which they must run; one command that serves several findings is there once."""
    if not wanted.installs:  # nothing on this host is gpuprep's to put back
        return []
    failed = [finding.key for finding in findings if finding.status is Status.FAIL]
    found = []
    for row in TABLE:
        keys = tuple(key for key in failed if any(fnmatchcase(key, pattern) for pattern in row.findings))
        command = row.command(wanted, snapshot) if keys else ""
        not_ours = row.command is _apply_settings and "gpuprep-tune.settings" in failed  # what it would apply
        if command and not not_ours:
            found.append(Planned(keys, row.what, command))
    return found


def offered(wanted: Wanted, snapshot: Snapshot, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    served = {key for one in plan(wanted, snapshot, findings) for key in one.findings}
    return tuple(
        dataclasses.replace(finding, remedy=f"gpuprep drift --fix puts it back; or: {finding.remedy}")
        if finding.key in served and finding.status is Status.FAIL
        else finding
        for finding in findings
    )


def apply(host: Host, planned: Planned) -> list[Fix]:
    """Raises what Host.run raises; a command that fails is a Fix that says so."""
    done = host.run(planned.command, become=True, timeout=TIMEOUT_SECONDS)
    said = "" if done.exit_code == 0 else (done.stderr or done.stdout).strip()[-LAST_CHARACTERS:]
    return [Fix(key, planned.what, planned.command, done.exit_code, said) for key in planned.findings]


def seen(fixes: Sequence[Fix], before: Sequence[Finding], after: Sequence[Finding]) -> tuple[Fix, ...]:
    """A finding that is no longer made says "" afterwards."""
    was, now = ({finding.key: finding.actual for finding in found} for found in (before, after))
    return tuple(
        dataclasses.replace(fix, before=was.get(fix.finding, ""), after=now.get(fix.finding, "")) for fix in fixes
    )


# ---------------------------------------------------------------- the commands


def _hold(wanted: Wanted, snapshot: Snapshot) -> str:
    names = (
        *(wanted.driver_packages if wanted.driver_hold else ()),
        *(wanted.cuda_packages if wanted.cuda_hold else ()),
    )
    free = [name for name in names if name in snapshot.packages and not snapshot.packages[name].held]
    return f"apt-mark hold {' '.join(free)}" if free else ""


def _unit(name: str, verb: str) -> Callable[[Wanted, Snapshot], str]:
    """`verb` on a unit that the host has; one that somebody masked is unmasked first."""

    def command(_: Wanted, snapshot: Snapshot) -> str:
        unit = snapshot.units.get(name)
        if unit is None or unit.enabled == "not-found":
            return ""
        unmask = f"systemctl unmask {name} && " if unit.enabled.startswith("masked") else ""
        return f"{unmask}systemctl {verb} {name}"

    return command


def _ffmpeg(wanted: Wanted, _: Snapshot) -> str:
    if wanted.ffmpeg_version == "none":
        return ""
    folder = wanted.ffmpeg_directory
    current = f"{wanted.codec_prefix}/ffmpeg/current"
    links = [_link(current, folder.rpartition("/")[2])]
    links += [_link(f"{PATH_LINKS}/{name}", f"{current}/bin/{name}") for name in PROGRAMS]
    return " && ".join([_whole(folder), *links])


def _headers(wanted: Wanted, _: Snapshot) -> str:
    if wanted.ffmpeg_version == "none":
        return ""
    folder = f"{wanted.codec_prefix}/nv-codec-headers/{wanted.headers_version}"
    return f"{_whole(folder)} && {_link(PKG_CONFIG_LINK, f'{folder}/lib/pkgconfig/ffnvcodec.pc')}"


def _cudnn(wanted: Wanted, _: Snapshot) -> str:
    if wanted.cudnn_version == "none":
        return ""
    folder = wanted.cudnn_directory
    current = f"{wanted.cudnn_prefix}/current"
    return f"{_whole(folder)} && {_link(current, folder.rpartition('/')[2])} && ldconfig"


def _loader_cache(wanted: Wanted, _: Snapshot) -> str:
    return "" if wanted.cuda_version == "none" else "ldconfig"


def _apply_settings(wanted: Wanted, snapshot: Snapshot) -> str:
    """The unit's own command, through the unit, which is then known to have run."""
    return _unit(TUNE, "restart")(wanted, snapshot)


def _whole(folder: str) -> str:
    """Nothing is linked to a folder that is not there, or not as its manifest says."""
    return f"{AGENT} whole {shlex.quote(folder)}"


def _link(path: str, target: str) -> str:
    """Made or moved in one step; a file of somebody else in its place is kept beside it, as the roles do."""
    path, target = shlex.quote(path), shlex.quote(target)
    keep = f"{{ [ -L {path} ] || [ ! -e {path} ] || mv {path} {path}.before-gpuprep; }}"
    return f"{keep} && ln -sfn {target} {path}.new && mv -fT {path}.new {path}"


# In the order in which they run: units before what they apply, links before the loader's cache.
TABLE = (
    Row(("driver.held", "cuda.held"), "hold the packages again", _hold),
    Row(
        ("nvidia-persistenced.enabled", "nvidia-persistenced.active"),
        "start the persistence daemon, now and at every boot",
        _unit(PERSISTENCED, "enable --now"),
    ),
    Row(("driver.fabric_manager",), "start Fabric Manager, now and at every boot", _unit(FABRIC, "enable --now")),
    Row(("gpuprep-tune.enabled",), "set the GPUs at every boot", _unit(TUNE, "enable")),
    Row(
        (
            "gpuprep-tune.active",
            "gpu *.persistence_mode",
            "gpu *.clocks",
            "gpu *.power_limit",
            "gpu *.compute_mode",
        ),
        "set persistence, clocks, power limit and compute mode",
        _apply_settings,
    ),
    Row(("ffmpeg.path", "ffmpeg.version", "ffmpeg.build"), "link ffmpeg and ffprobe to the wanted build", _ffmpeg),
    Row(("nv-codec-headers.version",), "link ffnvcodec.pc to the wanted headers", _headers),
    Row(
        ("cudnn.library", "cudnn.version", "cudnn.header"),
        "link cuDNN to the wanted version, and tell the loader",
        _cudnn,
    ),
    Row(("cuda.cupti", "lib*.loader"), "rebuild the loader's cache", _loader_cache),
)
