"""What `drift --fix` repairs: settings, units, links, holds, pins, and the module for the kernel of the next boot (with
that kernel's headers); no other package, never a reboot.

plan(wanted, snapshot, findings)    findings ─► Planned fixes, each a command that a user could type. Pure
offered(wanted, snapshot, findings) findings that say whether --fix repairs them, or what prevents that. Pure
apply(host, planned)                run one as root ─► a Fix for each finding that it is for
seen(fixes, before, after)          the same fixes, with what the checks found before and afterwards. Pure

TABLE lists all findings that --fix repairs, and the commands. Everything else (a package that is missing, a driver, a
reboot, ECC, MIG, other files that a role writes) is not repaired; the finding's remedy says what to do. A waived
setting stays as it is: a command that would also change a waived setting is not run.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from gpuprep import catalogue
from gpuprep.agent.facts.managed import FABRIC_MANAGER, PERSISTENCED, TUNE
from gpuprep.agent.facts.nextboot import is_release
from gpuprep.agent.facts.packagefiles import ABSENT, whose
from gpuprep.agent.facts.packagestate import MARK
from gpuprep.agent.host_paths import AGENT_PROGRAM, CDI, CUDA_PIN, HEADERS_LINK, HOLDS, LOADER_LIST, PIN, PROGRAM_LINKS
from gpuprep.catalogue.roles import cuda_pin_text, driver_pin_text, loader_list_text
from gpuprep.checks.installed import nextboot
from gpuprep.desired.modules import PREBUILT
from gpuprep.desired.state import Wanted
from gpuprep.records import Finding, Fix, Missing, Snapshot, Status
from gpuprep.records.findings import PROBLEMS
from gpuprep.remote import Host

TIMEOUT_SECONDS = 3600.0  # packages of CUDA are gigabytes
LAST_CHARACTERS = 300
PROGRAMS = ("ffmpeg", "ffprobe")
SOURCES = "/usr/src/"


@dataclass(frozen=True)
class Planned:
    findings: tuple[str, ...]  # keys of the findings that it is for
    what: str  # "turn persistence mode on"
    command: str  # for the host's /bin/sh, as root
    disturbs: bool = False  # programs on the GPUs


@dataclass(frozen=True)
class Row:
    """Findings by the patterns of their keys, and the command that repairs them: "" if this host cannot have it.

    The command runs only if none of `findings` and `touches` is waived, and if `applies` passes.
    """

    findings: tuple[str, ...]
    what: str
    command: Callable[[Wanted, Snapshot], str]
    touches: tuple[str, ...] = ()  # further findings that the command may change
    applies: str = ""  # the finding on the file that the command applies
    disturbs: bool = False  # it changes GPUs, or files of the driver, while programs use them


def plan(wanted: Wanted, snapshot: Snapshot, findings: Sequence[Finding]) -> list[Planned]:
    """The fixes in the order in which they must run; a command for several findings appears once."""
    return [planned for planned, forbidden in _possible(wanted, snapshot, findings) if not forbidden]


def offered(
    wanted: Wanted, snapshot: Snapshot, findings: Sequence[Finding], *, fixing: bool = False
) -> tuple[Finding, ...]:
    """Findings that say whether --fix repairs them, or what prevents that. `fixing`: --fix was given, so no offer."""
    remedies: dict[str, str] = {}
    for planned, forbidden in _possible(wanted, snapshot, findings):
        if forbidden:
            word = (
                "`gpuprep drift HOST --profile PROFILE --fix` does not repair it, because its command would also "
                f"change {forbidden}"
            )
        else:
            word = "" if fixing else "`gpuprep drift HOST --profile PROFILE --fix` puts it back"
        remedies |= dict.fromkeys(planned.findings, word)
    return tuple(
        dataclasses.replace(finding, remedy="; or: ".join(filter(None, [remedies[finding.key], finding.remedy])))
        if finding.status is Status.FAIL and remedies.get(finding.key)
        else finding
        for finding in findings
    )


def _possible(wanted: Wanted, snapshot: Snapshot, findings: Sequence[Finding]) -> Iterator[tuple[Planned, str]]:
    """Each command that would repair a failure, and what forbids the command: "gpu 0.power_limit, which is WAIVED"; ""
    if nothing does. If no role can repair a finding (another file is in the way), no command here can.
    """
    if not wanted.installs:  # gpuprep installed nothing on this host, so it repairs nothing
        return
    for row in TABLE:
        keys = tuple(
            finding.key
            for finding in findings
            if finding.status is Status.FAIL and finding.role and _fits(finding.key, row.findings)
        )
        command = row.command(wanted, snapshot) if keys else ""
        if command:
            yield Planned(keys, row.what, command, row.disturbs), _forbidden(row, command, findings)


def _forbidden(row: Row, command: str, findings: Sequence[Finding]) -> str:
    unmasked = (TUNE_ENABLED,) if f"unmask {TUNE}" in command else ()
    touched = (*row.findings, *row.touches, *unmasked)
    blockers = [
        finding
        for finding in findings
        # Without a role it is of something that the profile leaves alone, and so does the command: MIG, ECC.
        if (finding.status is Status.WAIVED and finding.role and _fits(finding.key, touched))
        or (finding.status is not Status.PASS and finding.key == row.applies)
    ]
    if not blockers:
        return ""
    more = f" (and {len(blockers) - 1} more of that kind)" if len(blockers) > 1 else ""
    return f"{blockers[0].key}, which is {blockers[0].status.value}{more}"


def _fits(key: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(key, pattern) for pattern in patterns)


def apply(host: Host, planned: Planned) -> list[Fix]:
    """Run the command as root. A Fix for each of its findings, with its exit code. Raises what Host.run raises."""
    done = host.run(planned.command, become=True, timeout=TIMEOUT_SECONDS)
    output = "" if done.exit_code == 0 else (done.stderr or done.stdout).strip()[-LAST_CHARACTERS:]
    return [Fix(key, planned.what, planned.command, done.exit_code, output) for key in planned.findings]


def seen(fixes: Sequence[Fix], before: Sequence[Finding], after: Sequence[Finding]) -> tuple[Fix, ...]:
    """The same fixes with what the checks measured before and after; "" if a finding does not exist there."""
    was, now = ({finding.key: finding for finding in findings} for findings in (before, after))
    return tuple(
        dataclasses.replace(
            fix,
            before=was[fix.finding].actual if fix.finding in was else "",
            after=now[fix.finding].actual if fix.finding in now else "",
            stays=fix.finding in now and now[fix.finding].status in PROBLEMS,
        )
        for fix in fixes
    )


# ---------------------------------------------------------------- the commands


def _hold_driver(wanted: Wanted, snapshot: Snapshot) -> str:
    return _hold(wanted.driver.packages if wanted.driver.hold else (), snapshot)


def _hold_cuda(wanted: Wanted, snapshot: Snapshot) -> str:
    return _hold(wanted.cuda.packages if wanted.cuda.hold else (), snapshot)


def _hold_containers(wanted: Wanted, snapshot: Snapshot) -> str:
    return _hold(wanted.containers.packages if wanted.containers.hold else (), snapshot)


def _specification(wanted: Wanted, _: Snapshot) -> str:
    if wanted.containers.toolkit == "none":
        return ""
    return f"nvidia-ctk cdi generate --format=json --output={CDI}"


def _hold(names: Sequence[str], snapshot: Snapshot) -> str:
    free = [shlex.quote(name) for name in names if name in snapshot.packages and not snapshot.packages[name].held]
    if not free:
        return ""
    if snapshot.apt is not None:
        return f"apt-mark hold {' '.join(free)}"
    # A lock of another version of a package would stay beside the new lock, and hold neither.
    locks = f"dnf -q -C versionlock delete {' '.join(free)}; dnf -q -C versionlock add {' '.join(free)}"
    obeyed = f"{{ dnf -q versionlock --help >/dev/null || {{ echo {shlex.quote(NO_LOCKS)} >&2; false; }}; }}"
    return f"{obeyed} && {{ {locks}; }}"


def _again(subject: str) -> Callable[[Wanted, Snapshot], str]:
    """A function that returns the command that installs packages again whose files are gone or changed; "" if one has
    a module's sources: its script builds the module, for which the role prepares DKMS. Also if a package is not there.
    """

    def command(_: Wanted, snapshot: Snapshot) -> str:
        found = {} if isinstance(snapshot.package_files, Missing) else snapshot.package_files
        broken = [name for name in sorted(found) if whose(name) == subject and name in snapshot.packages]
        if not broken or any(
            said.startswith(SOURCES) or said.endswith(ABSENT) for name in broken for said in found[name]
        ):
            return ""
        if snapshot.apt is None:
            names = " ".join(map(shlex.quote, broken))
            options = f"--comment={MARK} --disableplugin=versionlock --setopt=*.module_hotfixes=true"
            return f"dnf -y {options} reinstall {names}"
        names = " ".join(shlex.quote(f"{name}={snapshot.packages[name].version}") for name in broken)
        options = "--reinstall --no-install-recommends --allow-change-held-packages --no-remove"
        locking = f"-o DPkg::Lock::Timeout=600 -o {MARK}"
        again = f"DEBIAN_FRONTEND=noninteractive apt-get -y {locking} install {options} {names}"
        held = " ".join(shlex.quote(name) for name in broken if snapshot.packages[name].held)
        if not held:
            return again
        # apt releases holds on what it may change, even if it then fails. No `exit`: it would end the shell of a user
        # who types this.
        return f"{again}; failed=$?; apt-mark hold {held} && (exit $failed)"

    return command


def _stream(wanted: Wanted, _: Snapshot) -> str:
    if not wanted.driver.stream:
        return ""
    module = f"nvidia-driver:{wanted.driver.stream}"
    return f"dnf -q -y --setopt=module_stream_switch=true module enable {shlex.quote(module)}"


def _driver_pin(wanted: Wanted, snapshot: Snapshot) -> str:
    """The command that pins the installed driver, as the role does; "" if that is not the wanted driver."""
    here = catalogue.host_version(snapshot.driver.module_version)
    if not isinstance(here, str) or not catalogue.matches(here, wanted.driver.version):
        return ""
    return _written(PIN, driver_pin_text(here))


def _cuda_pin(wanted: Wanted, _: Snapshot) -> str:
    return _written(CUDA_PIN, cuda_pin_text(wanted.cuda.pinned, wanted.cuda.pin)) if wanted.cuda.pin else ""


def _module(wanted: Wanted, snapshot: Snapshot) -> str:
    """The command that builds DKMS's module for the kernel of the next boot, with its headers if they are missing; ""
    without DKMS's source of the installed driver. What it built the checks look at: DKMS hides failures behind 0.
    """
    kernel, name = snapshot.kernel.next_boot, nextboot.dkms(snapshot)
    if not isinstance(kernel, str) or not is_release(kernel) or not name or wanted.driver.modules == PREBUILT:
        return ""
    release = shlex.quote(kernel)
    built = f"dkms install --force {shlex.quote(name)} -k {release} && depmod {release}"
    if snapshot.kernel.headers_next_boot is not False:
        return built
    if snapshot.apt is None:
        return f"dnf -y install 'kernel-devel-uname-r = '{release} && {built}"  # Amazon's package has another name
    options = "-y -o DPkg::Lock::Timeout=600 --no-install-recommends --no-remove"
    return f"DEBIAN_FRONTEND=noninteractive apt-get {options} install linux-headers-{release} && {built}"


def _initramfs(_: Wanted, snapshot: Snapshot) -> str:
    kernel = snapshot.kernel.next_boot
    if not isinstance(kernel, str) or not is_release(kernel):
        return ""
    release = shlex.quote(kernel)
    if snapshot.apt is None:
        return f"dracut --force /boot/initramfs-{release}.img {release}"
    return f"update-initramfs -u -k {release}"


def _blacklist(wanted: Wanted, snapshot: Snapshot) -> str:
    """The command that writes the blacklist; "" if the file is right: then another file of apt overrides it."""
    text = blacklist_text(wanted)
    return "" if snapshot.files.get(HOLDS) == text else _written(HOLDS, text)


def blacklist_text(wanted: Wanted) -> str:
    """The blacklist of unattended upgrades as all roles write it: one block per role, in the order of the roles."""
    blocks = {
        "the driver packages": wanted.driver.packages if wanted.driver.hold else (),
        "the CUDA toolkit": wanted.cuda.packages if wanted.cuda.hold else (),
        "the container toolkit": wanted.containers.packages if wanted.containers.hold else (),
    }
    return "".join(_block(title, names) for title, names in blocks.items() if names)


def _block(title: str, names: Sequence[str]) -> str:
    patterns = [f'  "^{name.replace(".", "[.]").replace("+", "[+]")}$";' for name in names]
    lines = [f"// BEGIN gpuprep: {title}", "Unattended-Upgrade::Package-Blacklist {", *patterns, "};"]
    return "\n".join([*lines, f"// END gpuprep: {title}", ""])


def _written(path: str, text: str) -> str:
    """The command that writes a file completely or not at all; apt ignores the dot file that is written first."""
    folder, _, name = path.rpartition("/")
    new = f"{folder}/.{name}.new"
    lines = " ".join(shlex.quote(line) for line in text.splitlines())
    return f"(umask 022 && printf '%s\\n' {lines} >{new} && mv -fT {new} {path})"


def _unit(name: str, verb: str) -> Callable[[Wanted, Snapshot], str]:
    """A function that returns `systemctl VERB NAME`, with unmask before it if needed; "" if the host lacks the unit."""

    def command(_: Wanted, snapshot: Snapshot) -> str:
        unit = snapshot.units.get(name)
        if unit is None or unit.enabled == "not-found":
            return ""
        unmask = f"systemctl unmask {name} && " if unit.enabled.startswith("masked") else ""
        return f"{unmask}systemctl {verb} {name}"

    return command


def _ffmpeg(wanted: Wanted, snapshot: Snapshot) -> str:
    if wanted.codec.ffmpeg == "none":
        return ""
    folder = wanted.ffmpeg_directory
    if not _built(folder, snapshot):
        return ""
    current = f"{wanted.codec.prefix}/ffmpeg/current"
    programs = {f"{PROGRAM_LINKS}/{name}": f"{current}/bin/{name}" for name in PROGRAMS}
    return f"{_whole(folder)} && {_links({current: folder.rpartition('/')[2], **programs})}"


def _headers(wanted: Wanted, snapshot: Snapshot) -> str:
    if wanted.codec.ffmpeg == "none":
        return ""
    folder = wanted.headers_directory
    if not _built(folder, snapshot):
        return ""
    return f"{_whole(folder)} && {_links({HEADERS_LINK: f'{folder}/lib/pkgconfig/ffnvcodec.pc'})}"


def _cudnn(wanted: Wanted, snapshot: Snapshot) -> str:
    if wanted.cudnn.version == "none":
        return ""
    folder = wanted.cudnn_directory
    if not _built(folder, snapshot):
        return ""
    current = f"{wanted.cudnn.prefix}/current"
    text = loader_list_text(wanted.cudnn.prefix)
    listed = "" if snapshot.files.get(LOADER_LIST) == text else f" && {_written(LOADER_LIST, text)}"
    return f"{_whole(folder)} && {_links({current: folder.rpartition('/')[2]})}{listed} && ldconfig"


def _loader_cache(wanted: Wanted, snapshot: Snapshot) -> str:
    """ldconfig, if a library is present and not listed; it cannot restore a missing one."""
    helps = isinstance(snapshot.unlisted, Missing) or snapshot.unlisted
    return "ldconfig" if helps and wanted.cuda.version != "none" else ""


def _built(folder: str, snapshot: Snapshot) -> bool:
    """Whether the wanted build is on the host; if not, only the role can build it."""
    has_agent = isinstance(snapshot.agent_installed_version, str)  # its program looks at the build first
    return has_agent and (isinstance(snapshot.built, Missing) or folder in snapshot.built)


def _whole(folder: str) -> str:
    """The command that fails unless `folder` has exactly the files of its manifest; run before a link to it is made."""
    return f"{AGENT_PROGRAM} whole {shlex.quote(folder)}"


# An existing file that is no link belongs to somebody: it moves to the first free name. mv -n may skip it and still
# succeed.
KEEP_BESIDE = (
    'keep_beside() { kept=$1.before-gpuprep; n=0; while [ -e "$kept" ] || [ -L "$kept" ]; do n=$((n + 1));'
    ' kept=$1.before-gpuprep.$n; done; mv -nT "$1" "$kept" && [ ! -e "$1" ]; }'
)
PUT_LINK = (
    'put_link() { if [ -e "$1" ] && [ ! -L "$1" ]; then keep_beside "$1"; fi'
    ' && ln -sfT "$2" "$1.new" && mv -fT "$1.new" "$1"; }'
)


def _links(targets: dict[str, str]) -> str:
    """The command that makes each link (path ► target) in one step; a foreign file at its place is kept beside it."""
    calls = [f"put_link {shlex.quote(path)} {shlex.quote(target)}" for path, target in targets.items()]
    return " && ".join([KEEP_BESIDE, PUT_LINK, *calls])


NO_LOCKS = (
    "dnf obeys no locks: its plugin versionlock (python3-dnf-plugin-versionlock) is not installed, or is turned off by"
    " plugins=0 in /etc/dnf/dnf.conf or enabled=0 in /etc/dnf/plugins/versionlock.conf; put that right, then run this"
    " again"
)
KEPT = "(a file of somebody else there is kept beside it)"
SETTINGS, TUNE_ENABLED = "gpuprep-tune.settings", "gpuprep-tune.enabled"
TUNED = (
    "gpu *.persistence_mode", "gpu *.clocks", "gpu *.power_limit", "gpu *.compute_mode", "gpu *.mig_instances",
)  # fmt: skip
MODES = ("gpu *.ecc", "gpu *.mig")
CUDNN = ("cudnn.library", "cudnn.version", "cudnn.header")
LOADED = ("cuda.cupti", "lib*.loader")

# In the order in which they run: units before what they apply, links before the loader's cache.
TABLE = (
    Row(("driver.pinned",), "keep apt to this version of the driver again", _driver_pin),
    Row(("driver.files",), "install the driver's damaged packages again", _again("driver"), disturbs=True),
    Row(("cuda.files",), "install CUDA's damaged packages again", _again("cuda")),
    Row(
        ("driver.next_boot_module", "driver.next_boot_file"),
        "build the driver's module for the kernel of the next boot",
        _module,
        touches=("driver.signature_next_boot",),
    ),
    Row(("driver.initramfs",), "renew the initramfs of the next boot", _initramfs),
    Row(("driver.stream",), "enable the driver's stream of packages again", _stream),
    Row(("driver.held",), "hold the driver's packages again", _hold_driver),
    Row(("*.unattended_upgrades",), "keep unattended upgrades off again", _blacklist),
    Row(("cuda.pinned",), "keep apt to this version of the toolkit again", _cuda_pin),
    Row(("cuda.held",), "hold the packages of CUDA again", _hold_cuda),
    Row(("containers.held",), "hold the container toolkit's packages again", _hold_containers),
    Row(
        ("containers.devices", "containers.specification"),
        "describe this machine's GPUs and driver for containers again",
        _specification,
    ),
    Row(
        ("nvidia-persistenced.enabled", "nvidia-persistenced.active"),
        "start the persistence daemon, now and at every boot",
        _unit(PERSISTENCED, "enable --now"),
        touches=("gpuprep-tune.active", *TUNED, *MODES, "gpu *.settings", SETTINGS),  # it starts gpuprep-tune, too
        disturbs=True,
    ),
    Row(
        ("driver.fabric_manager",),
        "start Fabric Manager, now and at every boot",
        _unit(FABRIC_MANAGER, "enable --now"),
    ),
    Row((TUNE_ENABLED,), "set the GPUs at every boot", _unit(TUNE, "enable")),
    Row(
        ("gpuprep-tune.active", *TUNED),
        "set persistence, clocks, power limit, compute mode and MIG instances",
        _unit(TUNE, "restart"),  # its own command, through the unit, which is then known to have run
        touches=(*MODES, "gpu *.settings"),
        applies=SETTINGS,
        disturbs=True,
    ),
    Row(
        ("ffmpeg.path", "ffmpeg.version", "ffmpeg.build", "ffprobe.path"),
        f"link ffmpeg and ffprobe to the wanted build {KEPT}",
        _ffmpeg,
    ),
    Row(
        ("nv-codec-headers.version",),
        f"link ffnvcodec.pc to the wanted headers {KEPT}",
        _headers,
    ),
    Row(
        CUDNN,
        f"link cuDNN to the wanted version {KEPT}, and tell the loader",
        _cudnn,
        touches=(*LOADED, "libraries.paths"),
    ),
    Row(LOADED, "rebuild the loader's cache", _loader_cache, touches=(*CUDNN, "libraries.paths")),
)
