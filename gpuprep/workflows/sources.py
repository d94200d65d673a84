"""Can the sources of a plan be reached, before its first step? Each is tried from where it will be fetched.

The controller fetches FFmpeg's and the headers' tarballs; the host, packages and wheels. A source that cannot be
reached, is not signed or lacks the wanted version refuses the plan: found in the middle, it leaves a machine half made.
"""

from __future__ import annotations

import re
import shlex
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuprep import catalogue, doctor
from gpuprep.agent.facts.packagefiles import whose
from gpuprep.agent.facts.packages import headers_package
from gpuprep.catalogue import roles
from gpuprep.catalogue.agent import COLLECTION, role_folder
from gpuprep.catalogue.packagenames import ARCHITECTURES
from gpuprep.codecbuild import sources as tarballs
from gpuprep.desired.modules import DKMS
from gpuprep.desired.profile_rules import refuse
from gpuprep.desired.state import Wanted
from gpuprep.errors import GpuprepError, NoPrivilege, PlanRefused
from gpuprep.paths import cache_dir, config_dir
from gpuprep.records import Finding, Missing, Plan, RunRecord, Snapshot
from gpuprep.records.findings import DONE
from gpuprep.remote import Host
from gpuprep.remote.archives import Answer, Question, Repository, ask
from gpuprep.workflows.runs import ProfileRun

# ---------------------------------------------------------------- variables of a run for the roles


# A mirror's name ─► the role variable that holds the URL of what it mirrors.
MIRRORED = {"ffmpeg": "gpu_codec_ffmpeg_url", "nv_codec_headers": "gpu_codec_headers_url"}
# The same for whole repositories.
WHOLE = {
    "nvidia": "gpu_driver_nvidia_url",
    "epel": "gpu_driver_epel_url",
    "rocky_vault": "gpu_preflight_vault_url",
    "almalinux_vault": "gpu_preflight_almalinux_vault_url",
    "container_toolkit": "gpu_containers_url",
}
# The file with the key that signs a mirror.
KEYS = {"nvidia_key": "gpu_driver_nvidia_key", "container_toolkit_key": "gpu_containers_key"}


def run_variables(run: ProfileRun, roles: Mapping[str, Any]) -> dict[str, Any]:
    """`roles` (of plan.role_variables) with the variables that this run adds. The local machine is never rebooted."""
    may_reboot = run.options.reboot and not run.target.local
    certified = run.certified()
    return {
        **roles,
        **mirrored(roles, mirrors_of(run)),
        "gpu_codec_artifact_dir": str(cache_dir() / "artifacts"),
        # From the settings alone, and set even where they name nobody: an inventory cannot widen them, nor a host.
        "gpu_codec_trusted_builders": list(run.options.builds.trusted),
        "gpu_codec_allowed_signers": run.options.builds.signers,
        # The HOST as it was given. Ansible's name of it is another: sim:a and sim-a would be one.
        "gpu_codec_builder": run.target.name,
        "gpu_preflight_allow_reboot": may_reboot,
        "gpu_driver_allow_reboot": may_reboot,
        "gpu_driver_when_busy": run.options.in_role,
        "gpu_driver_certified_run": certified.run_id if certified else "",
        "gpu_driver_certified_driver": _driver(certified),
        "gpuprep_host": run.target.name,  # for commands that messages name
        "gpuprep_run_id": run.run_id,
        "gpuprep_profile": run.profile.name,
        "gpuprep_profile_sha256": run.profile.sha256,
    }


def _driver(certified: RunRecord | None) -> str:
    version = certified.after.driver.loaded_version if certified and certified.after else None
    return version if isinstance(version, str) else ""


def mirrors_of(run: ProfileRun) -> dict[str, str]:
    """The user's mirrors, and of a simulated machine those of its own archive that the user did not name."""
    ours = run.options.mirrors
    own = {name: url for name, url in run.target.mirrors.items() if name.removesuffix("_key") not in ours}
    return {**own, **ours}


def mirrored(roles: Mapping[str, Any], mirrors: Mapping[str, str]) -> dict[str, str]:
    """URLs of sources taken from mirrors: the mirror's prefix and upstream's file name, or the whole repository."""
    urls = {}
    for name, variable in MIRRORED.items():
        if name in mirrors and variable in roles:
            urls[variable] = f"{mirrors[name].rstrip('/')}/{str(roles[variable]).rpartition('/')[2]}"
    for name, variable in WHOLE.items():
        if name in mirrors:
            urls[variable] = mirrors[name].rstrip("/")
    return urls | {variable: mirrors[name] for name, variable in KEYS.items() if name in mirrors}


# ---------------------------------------------------------------- whether the sources are there


TARBALLS = {"nv-codec-headers": "nv_codec_headers", "ffmpeg": "ffmpeg"}  # subject of a finding ► kind
VAULTS = {"rocky": "rocky_vault", "almalinux": "almalinux_vault"}  # system ► the setting of its vault's address
HINT = "nothing was changed on the host; correct what is named, then run again"
_fetching = threading.Lock()  # several hosts need the same files


@dataclass(frozen=True)
class _Wish:
    """Packages that one step installs from one place."""

    title: str
    packages: tuple[str, ...]
    version: str = ""  # that the first of them, with `together` all of them, must be offered in
    together: bool = False
    mirror: str = ""  # the setting that names the repository; "": the host's own sources
    uri: str = ""
    either: bool = False  # one of the packages is enough
    instead: str = ""  # another way than a source that has them


def check(
    run: ProfileRun, host: Host, wanted: Wanted, facts: Snapshot, plan: Plan, findings: Sequence[Finding]
) -> tuple[str, ...]:
    """Notes on what could not be tried. Raises PlanRefused with everything that is lacking; HostError."""
    steps = {step.role for step in plan.steps}
    release = catalogue.archive_of(facts.os)
    if not steps or release is None:
        return ()
    run.stage("trying the sources of packages and tarballs")
    mirrors = mirrors_of(run)
    lacking = [*_tarballs(run, wanted, findings, mirrors)] if "gpu_codec" in steps else []
    wishes = [*_wishes(wanted, facts, release, steps, mirrors)]
    question = _question(wanted, facts, release, steps, wishes, mirrors)
    notes: tuple[str, ...] = ()
    if question.packages or question.wheels:
        try:
            answer = ask(host, question)
            lacking += _lacking(answer, question, wishes, release)
            wheels = [name for name in answer.untried if name in question.wheels]
            notes = tuple(f"not tried: {what}" for what in answer.untried if what not in wheels)
            if wheels:
                notes += (f"not tried, as the host has no pip yet: {', '.join(wheels)} in the Python index",)
        except NoPrivilege as error:
            notes = (f"the sources of packages were not tried, which needs root on the host: {error.what}",)
    if lacking:
        raise PlanRefused(lacking, HINT, where=run.target.name)
    return notes


def _tarballs(
    run: ProfileRun, wanted: Wanted, findings: Sequence[Finding], mirrors: Mapping[str, str]
) -> Iterator[str]:
    to_do = {finding.subject for finding in findings if finding.role == "gpu_codec" and finding.status not in DONE}
    versions = {"ffmpeg": wanted.codec.ffmpeg, "nv_codec_headers": wanted.codec.headers}
    artifacts = cache_dir() / "artifacts"
    for subject, kind in TARBALLS.items():
        built = kind == "ffmpeg" and (artifacts / f"builds/{wanted.build_key}.tar.xz").exists()
        if subject not in to_do or built:
            continue
        try:
            with _fetching:
                tarballs.tarball(kind, versions[kind], mirrors, run.stage, folder=artifacts / "sources")
        except GpuprepError as error:
            works = (
                f"a place that has the file, in {config_dir() / 'config.yml'} on this controller: `mirrors: {{{kind}:"
                f" file:///srv/mirror}}` (a folder) or a URL; or `--skip codec`"
            )
            yield str(refuse(f"mirrors.{kind}", error.what, works))


def _wishes(
    wanted: Wanted, facts: Snapshot, release: catalogue.OsRelease, steps: set[str], mirrors: Mapping[str, str]
) -> Iterator[_Wish]:
    there, driver, cuda = facts.packages, wanted.driver, wanted.cuda
    is_nvidia = driver.source == "nvidia"
    place = ("nvidia", _nvidia_uri(release, mirrors)) if is_nvidia else ("", "")
    by_package = release.rpm and not is_nvidia  # a package of the system adds the repository
    if "gpu_driver" in steps:
        tools = roles.driver_tools(release, driver.source, driver.version)
        parts = tuple(name for name in driver.packages if name not in tools)
        fits = [
            catalogue.matches(catalogue.upstream(there[name].version), driver.version)
            for name in parts
            if name in there
        ]
        absent = _absent(driver.packages, facts)
        if by_package and (absent or not all(fits)):
            yield _Wish("the repository of NVIDIA's packages", (roles.release_package(release),))
        elif absent or not all(fits):
            yield _Wish(f"driver {driver.version}", parts, driver.version, True, *place)
            yield _Wish("the driver's tools", tools, "", False, *place)
        if not by_package and (names := _absent(driver.prebuilt, facts)):
            instead = "" if facts.kernel.secure_boot else "; or driver.modules: dkms"
            yield _Wish("prebuilt kernel modules", names, instead=instead)
    if "gpu_cuda" in steps and not by_package and (names := _absent(cuda.packages, facts)):
        yield _Wish(f"CUDA {cuda.version}", names, "" if is_nvidia else cuda.version, False, *place)
        yield _Wish("what nvcc compiles with", roles.cuda_compiler(release, driver.source, cuda.version))
    if "gpu_containers" in steps and (names := _absent(wanted.containers.packages, facts)):
        uri = _container_uri(release, mirrors)
        toolkit = wanted.containers.toolkit
        yield _Wish(f"container toolkit {toolkit}", names, toolkit, True, "container_toolkit", uri)
    if release.rpm and "gpu_driver" in steps and driver.modules == DKMS:
        if "dkms" not in there:
            yield _Wish("the driver's tools", ("dkms",))
        if facts.kernel.headers_running is not True:
            kernels = [name for name in (facts.kernel.running, facts.kernel.next_boot) if isinstance(name, str)]
            yield _Wish("kernel headers", tuple(dict.fromkeys(map(headers_package, kernels))), either=True)
    if "gpu_codec" in steps:
        names = roles.codec_build_packages(release, wanted.codec.libraries, npp=wanted.codec.npp)
        yield _Wish("what builds FFmpeg", names)
    if "gpu_extras" in steps and (names := _absent(wanted.extras.packages, facts)):
        yield _Wish("the extras", names)


def _absent(names: Sequence[str], facts: Snapshot) -> tuple[str, ...]:
    return tuple(name for name in names if name not in facts.packages)


def _nvidia_base(mirrors: Mapping[str, str]) -> str:
    return (mirrors.get("nvidia") or roles.upstream("gpu_driver", "gpu_driver_nvidia_url")).rstrip("/") + "/"


def _nvidia_uri(release: catalogue.OsRelease, mirrors: Mapping[str, str]) -> str:
    return f"{_nvidia_base(mirrors)}{catalogue.nvidia_path(release)}/"


def _container_uri(release: catalogue.OsRelease, mirrors: Mapping[str, str]) -> str:
    base = mirrors.get("container_toolkit") or roles.upstream("gpu_containers", "gpu_containers_url")
    kind = "rpm" if release.rpm else "deb"
    return f"{base.rstrip('/')}/{kind}/{ARCHITECTURES[release.architecture][kind]}/"


def _question(
    wanted: Wanted,
    facts: Snapshot,
    release: catalogue.OsRelease,
    steps: set[str],
    wishes: Sequence[_Wish],
    mirrors: Mapping[str, str],
) -> Question:
    own_file = "{}" if release.rpm else "{}.sources"
    keyring, sha256 = ("", "") if release.rpm else roles.keyring(release)
    keys = {
        "nvidia": mirrors.get("nvidia_key") or ("" if release.rpm or keyring else str(roles.repository_key(release))),
        "container_toolkit": mirrors.get("container_toolkit_key")
        or str(role_folder("gpu_containers") / "files" / roles.upstream("gpu_containers", "gpu_containers_key")),
    }
    names = {"nvidia": "gpuprep-nvidia", "container_toolkit": "gpuprep-container-toolkit"}
    # apt refuses two entries of one archive with different keys: somebody's own entry is the one that is tried.
    listed = () if isinstance(facts.nvidia_repositories, Missing) else facts.nvidia_repositories
    has_own = any(not Path(entry.file).name.startswith("gpuprep-") for entry in listed)
    key_file, fingerprint = (keyring, sha256) if keyring else roles.rpm_key(release)
    base = _nvidia_base(mirrors)
    repositories = [
        Repository(
            uri,
            _text(keys[mirror]) if keys[mirror] else f"{base if keyring else uri}{key_file}",
            own_file.format(names[mirror]),
            mirror,
            "" if keys[mirror] else fingerprint,
            lists=not release.rpm or mirror != "nvidia",
        )
        for mirror, uri in dict.fromkeys((wish.mirror, wish.uri) for wish in wishes if wish.mirror)
        if not (mirror == "nvidia" and has_own)
    ]
    asked = tuple(dict.fromkeys(name for wish in wishes for name in wish.packages))
    place, minor = VAULTS.get(facts.os.id), re.search(r"\.el(\d+)_(\d+)", facts.kernel.running)
    vault = ""
    if place and minor and headers_package(facts.kernel.running) in asked:
        base = mirrors.get(place) or roles.upstream("gpu_preflight", WHOLE[place])
        vault = roles.vault(release, base, f"{minor[1]}.{minor[2]}")
    epel = ""
    if release.rpm and facts.os.id != "amzn" and "dkms" in asked:
        base = mirrors.get("epel") or roles.upstream("gpu_driver", "gpu_driver_epel_url")
        latest = f"{base.rstrip('/')}/epel-release-latest-{facts.os.version_id.split('.')[0]}.noarch.rpm"
        epel = latest if facts.os.id == "rhel" else "epel-release"
    wheels = {}
    for role, library, version in (
        ("gpu_cudnn", "cudnn", wanted.cudnn.version),
        ("gpu_nccl", "nccl", wanted.nccl.version),
    ):
        if role in steps and version != "none":
            wheels[f"nvidia-{library}-cu{wanted.cuda.major}"] = version
    components = () if release.rpm or wanted.driver.source == "nvidia" else roles.driver_components(release)
    reader = _text(str(COLLECTION / "plugins/module_utils/aptsources.py")) if components else ""
    return Question(
        tuple(repositories), asked, components, facts.os.codename, reader, wheels,
        versions={name: wish.version if wish.together or name == wish.packages[0] else ""
                  for wish in wishes for name in wish.packages},
        own=tuple(name for name in {*asked, *facts.packages} if whose(name) == "driver"),
        epel=epel,
        vault=vault,
        off=roles.codec_repositories(release) if "gpu_codec" in steps else "",
        off_packages=roles.codec_build_packages(release, wanted.codec.libraries, npp=wanted.codec.npp),
    )  # fmt: skip


def _text(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


def _lacking(
    answer: Answer, question: Question, wishes: Sequence[_Wish], release: catalogue.OsRelease
) -> Iterator[str]:
    manager = "dnf" if release.rpm else "apt"
    known, unread = doctor.cause("\n".join(answer.said), manager), list[str]()
    settings = config_dir() / "config.yml"
    for wish in wishes:
        why = _refusal(wish, answer.offers)
        if not why or ("epel" in answer.lacking and wish.packages == ("dkms",)):
            continue
        near = [line for line in answer.said if wish.uri and wish.uri.rstrip("/") in line] or answer.said
        said = f" ({manager} says: {near[0]})" if near else ""
        if wish.mirror:
            reason = f"{wish.title}: {wish.uri} {why}, tried from this host{said}"
            works = f"a mirror that this host reaches and that has it: mirrors.{wish.mirror} in {settings}"
            if not near and wish.version:
                works = f"a version that is offered, or {works}"
            yield str(refuse(f"mirrors.{wish.mirror}", reason, works))
        else:
            again = "sudo dnf makecache" if release.rpm else "sudo apt-get update"
            reason = f"{wish.title}: this host's package archive {why}{said}"
            works = f"sources that have it: `{again}` on the host shows what fails there{wish.instead}"
            if known:  # the lists could not be read: the packages are there, as far as anybody knows
                unread.append(wish.title)
                continue
            yield str(refuse("host.sources", reason, works))
    if unread:
        reason = (
            f"{', '.join(unread)}: {manager} cannot read this host's package archive ({manager} says: {answer.said[0]})"
        )
        yield str(refuse("host.sources", reason, known))
    for name, why in answer.lacking.items():
        if name in question.wheels:
            works = (
                "an index that this host reaches: `index-url` in the section `[global]` of /etc/pip.conf on the host"
            )
            yield str(refuse("host.sources", f"the Python index, tried from this host: {why}", works))
        elif name == "epel" and "://" not in question.epel:
            works = "the system's own repositories switched on: `dnf repolist --all` on the host shows which are off"
            yield str(refuse("host.sources", f"EPEL, which has DKMS: {why}", works))
        else:
            works = f"a mirror that this host reaches, as mirrors.{name} in {settings} (docs/mirrors.md)"
            if name == "nvidia":
                works += "; if another key signs it, name that in mirrors.nvidia_key"
            yield str(refuse(f"mirrors.{name}", f"tried from this host: {why}", works))
    if answer.held:
        names = ", ".join(answer.held)
        release_it = "dnf versionlock delete" if release.rpm else "apt-mark unhold"
        words = shlex.join(line.lstrip("!") for line in answer.held)
        reason = f"somebody holds {names}, which the packages of this plan would change"
        if release.rpm:
            reason = f"a lock of dnf keeps away what this plan installs: {names}"
        yield str(refuse("host.packages", reason, f"`sudo {release_it} {words}`, if it may change; then run again"))


def _refusal(wish: _Wish, offers: Mapping[str, Sequence[str]]) -> str:
    """Why the packages of a wish cannot be installed, as "... lack X"; "" if they can."""
    absent = [name for name in wish.packages if not offers.get(name)]
    if absent and not (wish.either and len(absent) < len(wish.packages)):
        more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
        return f"has no {', '.join(absent[:3])}{more}"
    if not wish.version:
        return ""
    asked = wish.packages if wish.together else wish.packages[:1]
    versions = [{catalogue.upstream(version) for version in offers[name]} for name in asked]
    if any(catalogue.matches(version, wish.version) for version in set.intersection(*versions)):
        return ""
    offered = ", ".join(sorted(set.intersection(*versions))[-6:]) or "no version that all parts have"
    return f"has no {wish.version} of {asked[0]}{' with all its parts' if wish.together else ''}; it has {offered}"
