"""The driver: is it the same version and flavour everywhere? Also its options in modprobe's files, and holds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gpuprep import catalogue
from gpuprep.agent.facts.apt import BLACKLIST
from gpuprep.agent.facts.managed import FABRIC_MANAGER
from gpuprep.agent.facts.modprobe import keeps_out, keeps_out_nouveau
from gpuprep.agent.facts.packagefiles import whose
from gpuprep.agent.host_paths import DRIVER_STREAM, HOLDS, MODULE_OPTIONS, NOUVEAU_BLACKLIST, PIN
from gpuprep.agent.rollback import saved as kept
from gpuprep.checks import byhand
from gpuprep.checks.common import PROVISION, check, none_of, provision, skip, small_file, unknown
from gpuprep.checks.installed import signatures
from gpuprep.desired.host_rules import entry_off, uninstall
from gpuprep.desired.modules import PREBUILT
from gpuprep.desired.profile_rules import OPEN
from gpuprep.desired.state import Wanted
from gpuprep.records import NOT_READ, AptFacts, BootFacts, Finding, Missing, ModprobeLine, OptStr, Snapshot, Status
from gpuprep.untrusted.plaintext import command

ROLE = "gpu_driver"
ROLLBACK = "gpuprep rollback HOST"

LAGGING = (
    "`gpuprep provision HOST --profile PROFILE --only driver`; modules for a new kernel may come some days later: do"
    " not reboot before, or take modules of DKMS (`driver.modules: dkms`, or another `driver.source`)"
)
UVM = re.compile(r"[-_]uvm\.ko(\.(gz|xz|zst))?\Z")
COUNTERS_OPTION = "NVreg_RestrictProfilingToAdminUsers"
COUNTERS = {True: "profilers of ordinary users cannot read them", False: "every user can read what others' jobs do"}


def findings(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    """All findings on the driver; without a driver only those that are not a consequence of that."""
    driver_findings = [
        _version(wanted, snapshot),
        *_nouveau(snapshot),
        *_repository(snapshot),
        *_runfile(snapshot),
        *_change(snapshot),
        _options(wanted, snapshot),
        *module_blocked(snapshot),
    ]
    if _absent(wanted, snapshot):
        return driver_findings
    driver_findings += _packages(wanted, snapshot)
    driver_findings += _modules(wanted, snapshot)
    driver_findings += signatures.findings(wanted, snapshot)
    if snapshot.driver.loaded_version is not None:  # where none is loaded, driver.loaded says so
        driver_findings += [_nvml(snapshot), counters(wanted, snapshot)]
    if snapshot.nvswitches:
        driver_findings.append(_fabric_manager(snapshot))
    return driver_findings


def _runfile(snapshot: Snapshot) -> list[Finding]:
    """FAIL where NVIDIA's .run file installed a driver beside the packages; else nothing."""
    path = snapshot.driver.runfile
    if path is None:
        return []
    why = "a driver was installed by NVIDIA's .run file: it and the packages replace each other's files"
    remedy = f"{uninstall(path)}, then reboot, then `{PROVISION}`, which restores the package files that it replaced"
    return [check("driver", "runfile", path, False, expected="none", why=why, remedy=remedy)]


def _change(snapshot: Snapshot) -> list[Finding]:
    """FAIL for a change of the driver that failed or was undone, UNKNOWN for one that is open; else nothing."""
    change = snapshot.driver_change
    if change is None or (isinstance(change, Missing) and change.reason == "not_read"):
        return []
    expected = "no change that is open or was undone"
    if isinstance(change, Missing):
        return [
            unknown("driver", "change", change, expected=expected, what="the journal of the last change of the driver")
        ]
    new = f"driver {change.wanted or 'of the change'}"
    if change.status == kept.PENDING:
        why = f"the change to {new} began on {change.began[:10]}, and nobody has seen it work yet"
        remedy = f"`{PROVISION}` goes on with it"
        if change.before:
            remedy = "restart the machine: the host then looks at its driver by itself"
        reboot = bool(change.before)
        return [Finding("driver", "change", Status.UNKNOWN, expected, change.status, why, remedy, reboot=reboot)]
    cause = f": {change.cause}" if change.cause else ""
    if change.status == kept.BACK:
        why = f"{new} was rolled back by the host itself on {change.ended[:10]}{cause}"
        remedy = f"driver {change.before} works; to end this: `{PROVISION}` with a driver that works here"
        return [check("driver", "change", change.status, False, expected=expected, why=why, remedy=remedy, role=ROLE)]
    error = f"; going back to driver {change.before} failed: {change.error}" if change.error else ""
    why = f"{new} does not work after its restart{cause}{error}"
    return [check("driver", "change", change.status, False, expected=expected, why=why, remedy=f"`{ROLLBACK}`")]


def _modules(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    """Findings on the modules for the running and the next kernel; only one if the running kernel has no module."""
    driver, kernel = snapshot.driver, snapshot.kernel
    if driver.module_version is not None:
        module_findings = [_flavour(wanted, snapshot), _origin(wanted, snapshot), _next_boot(wanted, snapshot)]
        return [*module_findings, *_uvm(wanted, snapshot), _loaded(snapshot), _library(snapshot)]
    module_findings = [_origin(wanted, snapshot)]
    if kernel.next_boot != kernel.running:
        module_findings.append(_next_boot(wanted, snapshot))
    return module_findings


def _absent(wanted: Wanted, snapshot: Snapshot) -> bool:
    driver = snapshot.driver
    nothing = driver.module_version is None and driver.loaded_version is None and driver.library_version is None
    return nothing and not any(name in snapshot.packages for name in wanted.driver.packages)


def _version(wanted: Wanted, snapshot: Snapshot) -> Finding:
    actual = catalogue.host_version(snapshot.driver.module_version)
    ok = isinstance(actual, str) and catalogue.matches(actual, wanted.driver.version)
    if _absent(wanted, snapshot):
        why = "no NVIDIA driver is installed: no program can use the GPU"
    elif actual is None:
        why = (
            f"there is no NVIDIA kernel module for the running kernel {snapshot.kernel.running}: the GPU cannot be used"
        )
    else:
        why = (
            f"driver {actual} is installed: its speed, its fixes and the CUDA it can run are not those "
            f"of {wanted.driver.version}"
        )
    return check("driver", "version", actual, ok, expected=wanted.driver.version, why=why, role=ROLE)


def _packages(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    absent = [name for name in wanted.driver.packages if name not in snapshot.packages]
    shown = f"not installed: {', '.join(absent)}" if absent else "all installed"
    why = f"parts of the driver are missing, and programs that need them fail: {', '.join(absent)}"
    package_findings = [
        check("driver", "packages", len(absent), not absent, expected="all installed", shown=shown, why=why, role=ROLE)
    ]
    return (
        package_findings
        + files("driver", snapshot, ROLE)
        + holds("driver", wanted.driver.packages, wanted.driver.hold, snapshot, ROLE)
        + _pinned(wanted, snapshot)
        + _stream(wanted, snapshot)
    )


def holds(
    subject: str, names: tuple[str, ...], hold: bool, snapshot: Snapshot, role: str, *, emptied: bool = True
) -> list[Finding]:
    """Whether the installed packages among `names` are held, and all are kept from unattended upgrades; SKIP if the
    profile asks for no hold. `emptied`: also whether another file empties the whole list, which one subject reports.
    """
    if not hold:
        return [skip(subject, "held", expected="as it is", actual="not checked", reason="the profile asks for no hold")]
    free = [name for name in names if name in snapshot.packages and not snapshot.packages[name].held]
    shown = f"not held: {', '.join(free)}" if free else "all held"
    why = f"the next upgrade may change these, and jobs fail until a reboot: {', '.join(free)}"
    held = check(subject, "held", len(free), not free, expected="all held", shown=shown, why=why, role=role)
    return [held, *_blacklist(subject, names, snapshot, role, emptied)]


def files(subject: str, snapshot: Snapshot, role: str) -> list[Finding]:
    """Whether the files of the packages of "driver" or "cuda" are as they were installed; [] in an older record."""
    found = snapshot.package_files
    if found == NOT_READ:
        return []
    expected = "as installed"
    if isinstance(found, Missing):
        what = f"whether the files of the {subject} packages are as installed"
        return [unknown(subject, "files", found, expected=expected, role=role, what=what)]
    mine = {name: said for name, said in found.items() if whose(name) == subject}
    named = [f"{one} (package {name})" for name, said in mine.items() for one in said]
    why = "packages are not as they were installed, and programs that need them fail or behave differently"
    return [none_of(subject, "files", named, expected=expected, why=why, role=role)]


def pin(
    subject: str, snapshot: Snapshot, path: str, version: str, expected: str, why: str, role: str,
    *, any_version: bool = False,
) -> Finding:  # fmt: skip
    """Whether a file of apt's preferences pins to the expected version. `version` is the pattern of that version."""
    text: object = small_file(snapshot, path)
    match = re.search(rf"(?m)^Pin: version {version}$", text) if isinstance(text, str) else None
    return check(
        subject,
        "pinned",
        text,
        match is not None and (any_version or match[1] == expected),
        expected=f"to {expected}",
        shown=f"to {match[1]}" if match else f"no pin in {path}",
        why=f"{why}: " + (f"the pin in {path} is to {match[1]}" if match else f"{path} has no pin"),
        role=role,
    )


REPLACES = {
    "driver": "parts of the driver under the loaded module",
    "cuda": "parts of the toolkit by those of another version",
    "containers": "the container toolkit",
}


def _blacklist(subject: str, names: tuple[str, ...], snapshot: Snapshot, role: str, emptied: bool) -> list[Finding]:
    """Whether unattended upgrades leave the packages alone; [] without apt: dnf-automatic obeys the locks of dnf."""
    if snapshot.apt is None:
        return []
    text: object = small_file(snapshot, HOLDS)
    blocks = (
        re.findall(rf"^\s*{BLACKLIST} {{(.*?)^\s*}};", text, re.MULTILINE | re.DOTALL) if isinstance(text, str) else []
    )
    patterns = [pattern for block in blocks for pattern in re.findall(r'^\s*"([^"]+)";', block, re.MULTILINE)]
    free = [name for name in names if not _blacklisted(name, patterns)]
    lacks = f"{HOLDS} does not name"
    # our own file is right; is it also right with all of apt's files together?
    if not free and emptied and isinstance(snapshot.apt, AptFacts):
        text = snapshot.apt.blacklist
        patterns = [] if isinstance(text, Missing) else list(text)
        free = [name for name in names if not _blacklisted(name, patterns)]
        lacks = "another file of /etc/apt/apt.conf.d undoes the list for"
    expected, ours = f"{subject} excluded", lacks.startswith(HOLDS)
    shown = f"{lacks} {', '.join(free)}" if free else expected
    why = f"unattended upgrades may replace {REPLACES[subject]}: {', '.join(free)}"
    role, remedy = (role, "") if ours else ("", _undoing(snapshot))
    return [
        check(
            subject, "unattended_upgrades", text, not free, expected=expected, shown=shown, why=why, role=role,
            remedy=remedy,
        )
    ]  # fmt: skip


def _undoing(snapshot: Snapshot) -> str:
    """What to remove from other files of apt: files that are read after ours and clear the list."""
    lines = () if isinstance(snapshot.config_lines, Missing) else snapshot.config_lines
    clearing = [line for line in lines if BLACKLIST in line.line and line.line.lower().startswith("#clear")]
    return "; ".join(byhand.without(snapshot, line.file, line.line) for line in clearing) or (
        f"`apt-config dump {BLACKLIST}` shows the list; the file of /etc/apt/apt.conf.d that empties it is read after"
        f" {HOLDS}"
    )


def _pinned(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    """Whether packages are pinned that have one name for all branches in NVIDIA's repository."""
    if wanted.driver.source != "nvidia" or snapshot.apt is None:
        return []
    here = catalogue.host_version(snapshot.driver.module_version)
    why = "apt may take parts of the driver from another branch of NVIDIA's repository"
    expected = str(here or wanted.driver.version)
    return [pin("driver", snapshot, PIN, r"([0-9.]{1,40})-\*", expected, why, ROLE, any_version=here is None)]


def _stream(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    """On systems with dnf: whether the right stream of NVIDIA's repository is enabled; [] without streams."""
    wish = wanted.driver.stream
    if not wish or snapshot.apt is not None:
        return []
    text: object = small_file(snapshot, DRIVER_STREAM)
    here = enabled_stream(text) if isinstance(text, str) else ""
    shown = here or "none enabled"
    why = (
        f"dnf has {f'stream {here}' if here else 'no stream'} of the module nvidia-driver enabled: it hides the"
        " driver's packages, or takes them from another branch"
    )
    return [check("driver", "stream", text, here == wish, expected=wish, shown=shown, why=why, role=ROLE)]


def enabled_stream(text: str) -> str:
    """The enabled stream of one of dnf's module files; "" if none is."""
    fields = dict(line.strip().partition("=")[::2] for line in text.splitlines())
    return fields.get("stream", "") if fields.get("state") == "enabled" else ""


def _blacklisted(name: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern matches `name`: the entries of Package-Blacklist are regular expressions."""
    for pattern in patterns:
        try:
            if re.match(pattern, name):
                return True
        except re.error:  # another program's entry, not a valid pattern: apt would ignore it, too
            continue
    return False


def _nouveau(snapshot: Snapshot) -> list[Finding]:
    loaded = snapshot.driver.nouveau_loaded
    lines = snapshot.modprobe
    if lines == NOT_READ:  # an older record has only our own file
        text: object = small_file(snapshot, NOUVEAU_BLACKLIST)
        ok = isinstance(text, str) and re.search(r"^\s*blacklist\s+nouveau\b", text, re.MULTILINE) is not None
    else:
        text = lines
        ok = not isinstance(lines, Missing) and keeps_out_nouveau(lines)
    why = "nouveau is loaded and holds the GPU: NVIDIA's module cannot take it"
    now = check("nouveau", "loaded", loaded, not loaded, expected="no", why=why, role=ROLE)
    shown = "blacklisted" if ok else "not blacklisted in any file that modprobe reads"
    why = "nouveau is not blacklisted: it may take the GPU at the next boot"
    later = check("nouveau", "blacklist", text, ok, expected="blacklisted", shown=shown, why=why, role=ROLE)
    return [now, later, *_nouveau_in_initramfs(snapshot)]


def _nouveau_in_initramfs(snapshot: Snapshot) -> list[Finding]:
    """Whether the next boot's initramfs loads nouveau before the disk's blacklist can be read; [] if it has none."""
    loads = snapshot.driver.nouveau_in_initramfs
    if loads is None or loads == NOT_READ:
        return []
    shown = "loaded without a blacklist" if loads is True else "kept out"
    why = (
        f"the initramfs of kernel {snapshot.kernel.next_boot} has nouveau and no blacklist of it: nouveau takes the "
        "GPU at the next boot"
    )
    return [check("nouveau", "initramfs", loads, loads is False, expected="kept out", shown=shown, why=why, role=ROLE)]


def _repository(snapshot: Snapshot) -> list[Finding]:
    """Whether what is installed from NVIDIA's repository is checked by its signature; [] without such an entry."""
    entries = snapshot.nvidia_repositories
    if isinstance(entries, Missing):
        return [] if entries == NOT_READ else [unknown("driver", "repository", entries, expected="signatures checked")]
    if not entries:
        return []
    wrong = [entry for entry in entries if entry.unverified]
    ours = all(entry.file.rpartition("/")[2].startswith("gpuprep-") for entry in wrong)
    off = ", ".join(dict.fromkeys(entry_off(entry.file) for entry in wrong))
    return [
        none_of(
            "driver",
            "repository",
            [f"{entry.unverified} for {entry.file}" for entry in wrong],
            expected="signatures checked",
            why="what comes from NVIDIA's repository is installed as root without a check of its signature",
            role=ROLE if ours else "",
            remedy="" if ours else f"{off}; then `{PROVISION} --only driver`",
        )
    ]


def _options(wanted: Wanted, snapshot: Snapshot) -> Finding:
    text = small_file(snapshot, MODULE_OPTIONS)
    options = module_options(text) if isinstance(text, str) else {}
    restrict = "0" if wanted.tuning.profiling_counters == "open" else "1"
    wrong = []
    if options.get(COUNTERS_OPTION) != restrict:
        wrong.append(f"{COUNTERS_OPTION}={restrict}")
    firmware = options.get("NVreg_EnableGpuFirmware")
    if not wanted.driver.gpu_firmware and firmware != "0":
        wrong.append("NVreg_EnableGpuFirmware=0")
    if wanted.driver.gpu_firmware and firmware == "0":
        wrong.append("no NVreg_EnableGpuFirmware=0")
    place, by_hand = MODULE_OPTIONS, ""
    if not wrong:
        others = overriding_options(snapshot, {
            COUNTERS_OPTION: restrict,
            "NVreg_EnableGpuFirmware": None if wanted.driver.gpu_firmware else "0",
        })  # fmt: skip
        wrong, place = [wish for wish, _, _ in others], ", ".join(dict.fromkeys(file for _, file, _ in others))
        by_hand = "; ".join(dict.fromkeys(out for _, _, out in others))
    return check(
        "driver",
        "modprobe_options",
        text,
        not wrong,
        expected="as wanted",
        shown="as wanted" if not wrong else f"lacks {', '.join(wrong)}",
        why=f"the next boot loads the driver without {', '.join(wrong)} ({place})",
        role="" if by_hand else ROLE,  # the role writes its own file alone
        remedy=by_hand,
    )


def module_options(text: str) -> dict[str, str]:
    """Options in lines `options nvidia KEY=VALUE ...` of a modprobe.d file; on Debian also of nvidia-current."""
    options: dict[str, str] = {}
    for line in text.splitlines():
        words = line.split("#")[0].split()
        if len(words) > 2 and words[0] == "options" and re.fullmatch(r"nvidia([-_]current)?([-_]open)?", words[1]):
            for key, _, value in (word.partition("=") for word in words[2:]):
                options[key] = value
    return options


def _flavour(wanted: Wanted, snapshot: Snapshot) -> Finding:
    actual = snapshot.driver.module_flavour
    why = (
        f"the installed kernel modules are {actual or 'absent'}: some GPUs and features work with "
        f"{wanted.driver.flavour} modules only"
    )
    if wanted.driver.flavour != OPEN and actual == OPEN:
        why += ": a GPU before Turing does not work with open ones" if _volta(wanted) else ""
    ok = actual == wanted.driver.flavour
    return check("driver", "flavour", actual, ok, expected=wanted.driver.flavour, why=why, role=ROLE)


def _volta(wanted: Wanted) -> bool:
    models = [catalogue.models()[gpu.model] for gpu in wanted.gpus if gpu.model]
    return any(OPEN not in catalogue.limits(model.architecture).module_flavours for model in models)


def _origin(wanted: Wanted, snapshot: Snapshot) -> Finding:
    return _prebuilt(wanted, snapshot) if wanted.driver.modules == PREBUILT else _dkms(snapshot)


def _prebuilt(wanted: Wanted, snapshot: Snapshot) -> Finding:
    """Whether the packages with prebuilt modules are installed, and no DKMS module, which modprobe would prefer."""
    running, expected = snapshot.kernel.running, f"installed for {snapshot.kernel.running}"
    if isinstance(snapshot.driver.module_version, Missing):
        reading = snapshot.driver.module_version
        return unknown("driver", "prebuilt", reading, expected=expected, role=ROLE)
    absent = [name for name in wanted.driver.prebuilt if name not in snapshot.packages]
    built = [m for m in snapshot.driver.dkms if m.kernel == running and m.module.startswith("nvidia")]
    shown = ", ".join(f"{m.module}/{m.version} of DKMS" for m in built) or "installed"
    why = f"DKMS has a module of its own for the running kernel {running}, which is loaded instead of the prebuilt one"
    if absent:
        shown = f"not installed: {', '.join(absent)}"
        why = f"the packages that bring prebuilt modules for each kernel are missing: {', '.join(absent)}"
    elif not wanted.driver.prebuilt or snapshot.driver.module_version is None:
        shown = f"no module for {running}"
        why = f"the running kernel {running} has no prebuilt module of the driver"
    ok = shown == "installed"
    return check("driver", "prebuilt", shown, ok, expected=expected, shown=shown, why=why, role=ROLE)


def _dkms(snapshot: Snapshot) -> Finding:
    """Whether DKMS has built the modules. Package scripts may hide a failed build behind exit code 0."""
    running = snapshot.kernel.running
    if isinstance(snapshot.driver.module_version, Missing):
        reading = snapshot.driver.module_version
        return unknown("driver", "dkms", reading, expected=f"installed for {running}", role=ROLE)
    states = [m for m in snapshot.driver.dkms if m.kernel == running and m.module.startswith("nvidia")]
    version = snapshot.driver.module_version
    ok = any(m.state.startswith("installed") and (m.version == version or version is None) for m in states)
    shown = ", ".join(f"{m.module}/{m.version} {m.state}" for m in states) or "nothing for this kernel"
    why = (
        f"DKMS has no module of the driver for the running kernel {running} ({shown}): the GPU cannot be used after "
        "the driver is loaded again"
    )
    return check("driver", "dkms", shown, ok, expected=f"installed for {running}", why=why, role=ROLE)


def _uvm(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    """Whether the module that CUDA needs lies beside the main one, for the running kernel and the next; [] in an older
    record. Another finding reports a kernel without any module.
    """
    if isinstance(snapshot.signatures, Missing):
        return []
    files: dict[str, list[str]] = {}
    for module in snapshot.signatures.modules:
        files.setdefault(module.kernel, []).append(module.path)
    lacking = [kernel for kernel, paths in files.items() if not any(map(UVM.search, paths))]
    if not files:
        return []
    brought = [
        byhand.reinstalled(snapshot, name)
        for name in snapshot.packages
        if wanted.driver.modules == PREBUILT
        and name.startswith("linux-modules-nvidia-")
        and name.endswith(tuple(lacking))
    ]
    return [
        none_of(
            "driver",
            "uvm_module",
            [f"none for kernel {kernel}" for kernel in lacking],
            expected="for each kernel",
            why="the module nvidia-uvm is missing: after a reboot, CUDA does not start",
            role="" if brought else ROLE,
            remedy="; ".join(brought),
        )
    ]


def _next_boot(wanted: Wanted, snapshot: Snapshot) -> Finding:
    actual, here, kernel = snapshot.driver.module_next_boot_version, snapshot.driver.module_version, snapshot.kernel
    if isinstance(kernel.next_boot, Missing):
        return unknown("driver", "next_boot_module", kernel.next_boot, expected=str(here), role=ROLE)
    if isinstance(here, Missing):
        return unknown("driver", "next_boot_module", here, expected="the installed version", role=ROLE)
    remedy = LAGGING if wanted.driver.modules == PREBUILT else f"{provision(ROLE)}, before any reboot"
    image = f"/boot/vmlinuz-{kernel.next_boot}"
    # No archive has headers for a kernel that no package owns, so the role cannot build for it.
    foreign = kernel.headers_next_boot is False and snapshot.owners.get(image, "") is None
    if foreign:
        remedy = (
            f"{byhand.owned(snapshot, image)}: `{command('sudo', 'mv', image, '/root/')}` and renew the boot loader's"
            " menu (update-grub) to boot the running kernel; or install the headers of that kernel first"
        )
    return check(
        "driver",
        "next_boot_module",
        actual,
        isinstance(actual, str) and (actual == here or here is None),
        expected=here or "a module",
        why=_without_module(wanted, snapshot),
        role="" if foreign else ROLE,
        remedy=remedy,
    )


def _without_module(wanted: Wanted, snapshot: Snapshot) -> str:
    """What a reboot into the next boot's kernel would do: the only finding that says so."""
    driver, kernel = snapshot.driver, snapshot.kernel
    headers = wanted.driver.modules != PREBUILT and kernel.headers_next_boot is False
    if isinstance(driver.module_next_boot_version, str):
        has, then = f"NVIDIA module {driver.module_next_boot_version}", "programs would fail"
    else:
        has, then = (
            "no NVIDIA module" + (" and no headers to build one with" if headers else ""),
            "the GPU would be gone",
        )
    decides = f" ({kernel.boot.setting})" if isinstance(kernel.boot, BootFacts) and kernel.boot.loader != "none" else ""
    return f"kernel {kernel.next_boot}, which the next boot starts{decides}, has {has}: {then} after a reboot"


def _loaded(snapshot: Snapshot) -> Finding:
    driver = snapshot.driver
    loaded, installed = driver.loaded_version, driver.module_version
    for reading in (loaded, installed, driver.loaded_flavour, driver.module_flavour):
        if isinstance(reading, Missing):
            return unknown("driver", "loaded", reading, expected="the installed driver", role=ROLE)
    same_flavour = driver.loaded_flavour == driver.module_flavour
    why = "the driver is installed and not loaded: no program can use the GPU until a reboot loads it"
    if isinstance(loaded, str) and loaded != installed:
        why = f"driver {loaded} is loaded and {installed or 'none'} is installed: new programs fail until a reboot"
    elif isinstance(loaded, str):
        why = (
            f"{driver.loaded_flavour} modules are loaded and {driver.module_flavour} modules are "
            "installed: the next boot runs another driver"
        )
    ok = isinstance(loaded, str) and loaded == installed and same_flavour
    return check(
        "driver", "loaded", loaded, ok, expected=str(installed or "a driver"), why=why, role=ROLE,
        reboot=installed is not None,
    )  # fmt: skip


def _library(snapshot: Snapshot) -> Finding:
    actual, module = snapshot.driver.library_version, snapshot.driver.module_version
    why = (
        f"the library is {actual or 'absent'} and the kernel module is {module or 'absent'}: CUDA "
        "programs fail until both are of one version"
    )
    return _as_the_module("library_version", actual, module, why)


def _nvml(snapshot: Snapshot) -> Finding:
    actual, module = snapshot.driver.nvml_version, snapshot.driver.module_version
    why = (
        f"NVML says driver {actual or 'none'}, and the installed module is {module or 'none'}: "
        "nvidia-smi and monitoring fail"
    )
    return _as_the_module("nvml_version", actual, module, why, what="the driver version in NVML")


def _as_the_module(prop: str, actual: OptStr, module: OptStr, why: str, what: str = "") -> Finding:
    """A version that must equal the installed module's; `what` names it if it cannot be read."""
    if isinstance(module, Missing):
        return unknown("driver", prop, module, expected="the module's version", role=ROLE)
    expected = module or "the module's version"
    if isinstance(actual, Missing):
        return unknown("driver", prop, actual, expected=expected, role=ROLE, what=what)
    ok = isinstance(actual, str) and actual == module
    return check("driver", prop, actual, ok, expected=expected, why=why, role=ROLE)


def counters(wanted: Wanted, snapshot: Snapshot) -> Finding:
    reading = snapshot.driver.counters_restricted
    actual, wish = None if reading is None else "restricted" if reading else "open", wanted.tuning.profiling_counters
    others = overriding_options(snapshot, {COUNTERS_OPTION: "0" if wish == "open" else "1"})
    by_hand = "; ".join(dict.fromkeys(out for _, _, out in others))  # the role writes its own file alone
    why = f"the profiling counters are {actual}: {COUNTERS[wish == 'open']}; the module has to be loaded again"
    role, remedy = ("", f"{by_hand}; then reboot") if by_hand else (ROLE, "")
    return check(
        "driver", "profiling_counters", reading, actual == wish, expected=wish, shown=actual, why=why, role=role,
        remedy=remedy, reboot=bool(by_hand),
    )  # fmt: skip


def _fabric_manager(snapshot: Snapshot) -> Finding:
    unit = snapshot.units.get(FABRIC_MANAGER)
    actual = f"{unit.enabled}, {unit.active}" if unit else Missing("not_installed", FABRIC_MANAGER)
    ok = actual == "enabled, active"
    why = "the GPUs are behind NVSwitches and Fabric Manager does not run: CUDA ends with error 802"
    return check("driver", "fabric_manager", actual, ok, expected="enabled, active", why=why, role=ROLE)


# ---------------------------------------------------------------- modprobe's files


def modprobe_options(lines: Sequence[ModprobeLine]) -> dict[str, dict[str, tuple[str, str]]]:
    """Module ─► option ─► (value, file that sets it last), for NVIDIA's modules; later lines override earlier ones."""
    by_module: dict[str, dict[str, tuple[str, str]]] = {}
    for line in lines:
        if line.words[0] == "options" and line.words[1] != "nouveau":
            pairs = (word.partition("=") for word in line.words[2:])
            mine = by_module.setdefault(line.words[1], {})
            mine.update({key: (value.strip("\"'"), line.file) for key, _, value in pairs})
    return by_module


def overriding_options(snapshot: Snapshot, wishes: Mapping[str, str | None]) -> list[tuple[str, str, str]]:
    """(wish, file with another value, what to do) for each overridden wish. `wishes`: option ─► value; None: anything
    but "0".
    """
    if isinstance(snapshot.modprobe, Missing):
        return []
    wrong = []
    for module, mine in modprobe_options(snapshot.modprobe).items():
        for key, wish in wishes.items():
            value, file = mine.get(key, (wish or "", ""))
            if (wish is None and value == "0") or (wish is not None and value != wish):
                line = modprobe_line(snapshot.modprobe, module, key)
                out = byhand.option_out(snapshot, line, key) if line else ""
                wrong.append((f"{key}={wish}" if wish is not None else f"no {key}=0", file, out))
    return list(dict.fromkeys(wrong))


def modprobe_line(lines: Sequence[ModprobeLine], module: str, key: str) -> ModprobeLine | None:
    """The line that sets an option of a module last."""
    for line in reversed(lines):
        if line.words[:2] == ("options", module) and any(word.partition("=")[0] == key for word in line.words[2:]):
            return line
    return None


def module_blocked(snapshot: Snapshot) -> list[Finding]:
    """FAIL for lines that keep the driver's module from being loaded; [] if the record lacks them."""
    lines = snapshot.modprobe
    if isinstance(lines, Missing):
        what = "modprobe's configuration"
        return (
            []
            if lines == NOT_READ
            else [unknown("driver", "module_allowed", lines, expected="may be loaded", what=what)]
        )
    against = [line for line in lines if line.words[1] != "nouveau" and keeps_out(line)]
    wrong = [f"{' '.join(line.words)} ({line.file})" for line in against]
    why = "modprobe is configured not to load the driver's module: the GPU cannot be used after the next boot"
    remedy = "; ".join(dict.fromkeys(byhand.option_out(snapshot, line) for line in against))
    return [none_of("driver", "module_allowed", wrong, expected="may be loaded", why=why, remedy=remedy)]
