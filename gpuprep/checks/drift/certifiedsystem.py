"""Is the system as certified: kernel, packages, libraries, files, units, PATH, pins?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gpuprep.agent import host_paths
from gpuprep.agent.facts.managed import FABRIC_MANAGER, PERSISTENCED, TUNE
from gpuprep.agent.facts.packagefiles import whose
from gpuprep.checks import byhand
from gpuprep.checks.common import show, skip
from gpuprep.checks.drift.certified import AGAIN, CERTIFY, MEANT, Certified, Difference, Unread
from gpuprep.checks.installed import aptpins, driver
from gpuprep.desired.state import Wanted
from gpuprep.records import NOT_READ, AptFacts, Finding, Missing, OptStr, Package, Snapshot, Status
from gpuprep.untrusted.plaintext import command, one_line

MOST = 5  # differences that a finding names
# File that gpuprep writes ► the profile's checks that report that the file or its content is missing. Settings and
# module options are compared by their meaning, not their text.
FILES = {
    host_paths.TUNE_UNIT: ("gpuprep-tune.enabled",),
    host_paths.TUNE_RULE: ("gpuprep-tune.driver_reload",),
    host_paths.PERSISTENCE_DROP_IN: ("nvidia-persistenced.mode_at_boot",),
    host_paths.LOGIN_ENVIRONMENT: ("login_shell.environment",),
    host_paths.SERVICE_ENVIRONMENT: ("systemd_service.environment",),
    host_paths.LOADER_LIST: ("cudnn.library",),
    host_paths.NOUVEAU_BLACKLIST: ("nouveau.blacklist",),
    host_paths.ENVIRONMENT: ("non_login_shell.environment",),
    host_paths.HOLDS: tuple(f"{subject}.unattended_upgrades" for subject in ("driver", "cuda", "containers")),
    host_paths.PIN: ("driver.pinned",),
    host_paths.CUDA_PIN: ("cuda.pinned",),
    host_paths.PRELOAD: (),
}
# The step of `provision` whose role writes the whole file.
STEPS = {
    host_paths.TUNE_UNIT: "tuning",
    host_paths.TUNE_RULE: "tuning",
    host_paths.PERSISTENCE_DROP_IN: "tuning",
    host_paths.LOGIN_ENVIRONMENT: "cuda",
    host_paths.SERVICE_ENVIRONMENT: "cuda",
    host_paths.LOADER_LIST: "cudnn",
    host_paths.NOUVEAU_BLACKLIST: "driver",
    host_paths.HOLDS: "driver,cuda",
    host_paths.PIN: "driver",
    host_paths.CUDA_PIN: "cuda",
}
# What the finding must name if it does not name the file.
NAMED = {host_paths.TUNE_UNIT: "gpuprep-tune.service is not installed", host_paths.LOADER_LIST: ""}
# Only these lines of a file that others write too: they decide which toolkit a program gets.
ENVIRONMENT = re.compile(r"(export\s+)?(PATH|CUDA_\w+|LD_\w+)\s*=")
# A snapshot without an entry does not mean that the thing is gone: another gpuprep version looks for other things.
NOT_LOOKED_FOR = Missing("not_read", "the agent did not look for it")
PINNED = ("apt.preferences", "driver.pinned", "cuda.pinned")  # checks that report a missing pin
UNITS = (PERSISTENCED, TUNE, FABRIC_MANAGER)
WAYS = {
    "login_shell": "a login shell", "non_login_shell": "a non-login shell", "systemd_service": "a systemd service",
}  # fmt: skip
# A file's name begins with ► the packages that contain it: Debian's, then those of Ubuntu, NVIDIA's archive and Fedora.
DRIVER_RPM = r"nvidia-driver(-cuda)?-libs|xorg-x11-drv-nvidia(-cuda)?-libs"
MODULES = r"nvidia-(open-)?(kernel-(dkms|open|source)|dkms)|kmod-nvidia"
OWNERS = (
    ("libcuda.so", rf"libcuda1|libnvidia-compute|{DRIVER_RPM}"),
    ("libnvcuvid.so", rf"libnvcuvid|libnvidia-decode|{DRIVER_RPM}"),
    ("libnvidia-encode.so", rf"libnvidia-encode|{DRIVER_RPM}"),
    ("libnvidia-ml.so", rf"libnvidia-(ml|compute)|{DRIVER_RPM}"),
    ("nvidia-smi", r"nvidia-smi|nvidia-utils|nvidia-driver-cuda$|xorg-x11-drv-nvidia-cuda$"),
    ("nvidia-persistenced", r"nvidia-persistenced|nvidia-compute-utils"),
    ("libcublasLt.so", r"libcublas(lt|-)"),
    ("libcublas.so", r"libcublas(?!lt)"),
    ("libcudart.so", r"libcudart|cuda-cudart"),
    ("libcupti.so", r"libcupti|cuda-cupti"),
    ("libnvJitLink.so", r"libnvjitlink"),
    ("libnvrtc", r"libnvrtc|cuda-nvrtc"),
    ("libcudnn", r"libcudnn|cudnn|nvidia-cudnn"),
    ("nvcc", r"nvidia-cuda-toolkit$|cuda-nvcc"),
)
NOT_RUN = re.compile(r"-(dev|devel|doc)(-|$)")  # packages without a file that a program gets
OF_DRIVER = ("libcuda.so", "libnvcuvid.so", "libnvidia-")
MODE = {"--persistence-mode", "--no-persistence-mode"}
NOT_LOADED = ("masked", "masked-runtime", "not-found")


def findings(wanted: Wanted, snapshot: Snapshot, certified: Certified) -> list[Finding]:
    changed = _changed(snapshot, certified)
    return [
        _system(snapshot, certified),
        _kernel(snapshot, certified),
        _packages("driver", wanted.driver.packages, snapshot.driver.module_version, changed, snapshot, certified),
        _packages("cuda", wanted.cuda.packages, snapshot.cuda.nvcc_version, changed, snapshot, certified),
        _libraries(snapshot, certified, changed),
        _contents(snapshot, certified, changed),
        _files(snapshot, certified),
        _units(snapshot, certified),
        _tools(snapshot, certified),
        _module_options(snapshot, certified),
        *_pins(wanted, snapshot, certified),
    ]


def _not_compared(subject: str, prop: str) -> Finding:
    reason = "the certified run is from an older gpuprep, which did not read this: validate again"
    return skip(subject, prop, expected="as certified", actual="not compared", reason=reason)


def _system(snapshot: Snapshot, certified: Certified) -> Finding:
    was, now = certified.facts.os, snapshot.os
    same = (was.id, was.version_id) == (now.id, now.version_id)
    differences = [] if same else [f"the system was {was.pretty_name}, is {now.pretty_name}"]
    return certified.difference("host", "system", differences, now.pretty_name)


def _kernel(snapshot: Snapshot, certified: Certified) -> Finding:
    """WARN for another kernel: driver.dkms checks the driver, but no measurement was made with this kernel."""
    was, now = certified.facts.kernel.running, snapshot.kernel.running
    reported_by = ("kernel.headers", "driver.version", "driver.dkms", "driver.prebuilt")
    differences = [] if was == now else [Difference(f"the kernel was {was}, is {now}", reported_by, now)]
    remedy = "`gpuprep validate HOST --profile PROFILE` certifies the machine with the kernel that runs now"
    return certified.judged("kernel", "running", differences, now, remedy=remedy, status=Status.WARN)


def _changed(snapshot: Snapshot, certified: Certified) -> list[str]:
    """Names of packages of the driver and the toolkit that have another version or are gone."""
    was, now = certified.facts.packages, snapshot.packages
    mine = [name for name in sorted(was) if whose(name)]
    return [name for name in mine if name not in now or now[name].version != was[name].version]


def _packages(
    subject: str, main: Sequence[str], version: OptStr, changed: Sequence[str], snapshot: Snapshot, certified: Certified
) -> Finding:
    """Compare all certified packages of the driver or the toolkit; the profile checks only the branch and `main`.

    SUBJECT.version reports all of them if its version changed, or if no package is left.
    """
    was, now = certified.facts.packages, snapshot.packages
    mine = [name for name in was if whose(name) == subject]
    came = any(
        name in now and isinstance(version, str) and _is_of(version, now[name]) for name in main if name in changed
    )
    whole = came or (version is None and not any(name in now for name in main))
    differences = []
    for name in (name for name in changed if name in mine):
        is_now = f"is {now[name].version}" if name in now else "is not installed"
        reported_by, naming = ((f"{subject}.version",), "") if whole else ((f"{subject}.packages",), name)
        differences.append(Difference(f"{name} was {was[name].version}, {is_now}", reported_by, naming, name))

    def remedy(names: Sequence[str]) -> str:
        before = {name: was[name] for name in names}
        return f"if the change was not intended: {byhand.installed_again(snapshot, before, same=False)}; {MEANT}"

    return certified.judged(
        subject, "package_versions", differences, f"{len(mine)} packages", remedy=remedy, most=MOST
    )  # fmt: skip


def _is_of(version: str, package: Package) -> bool:
    """Whether the package has this upstream version: 1:550.163.01-2 has 550.163.01."""
    upstream = package.version.rpartition(":")[2]
    return re.match(rf"{re.escape(version)}(?=[-~]|$)", upstream) is not None


def _libraries(snapshot: Snapshot, certified: Certified, changed: Sequence[str]) -> Finding:
    """Compare the file that a program gets for each library. Changes by a new package version are reported there."""
    differences, unread = [], []
    was, now = certified.facts.libraries, snapshot.libraries
    for name, before in sorted(was.items()):
        # The agent lists what the loader knows of a stem; "libcudnn.so" alone means that it knows no version of it.
        stem = f"{name.partition('.so')[0]}.so"
        path = now.get(name, None if any(other.startswith(stem) for other in now) else NOT_LOOKED_FOR)
        if not isinstance(before, str) or path == before:
            continue
        if isinstance(path, Missing):
            unread.append(Unread(f"where the loader finds {name}", path))
        elif not ((path is None or _folder(path) == _folder(before)) and _follows(name, changed)):
            differences.append(_other_library(name, before, path, snapshot))

    def remedy(paths: Sequence[str]) -> str:
        see = "see /etc/ld.so.conf.d, LD_LIBRARY_PATH and what was installed last; then `sudo ldconfig`"
        return byhand.off_the_loader(snapshot, paths) or see

    return certified.judged(
        "libraries", "paths", differences, f"{len(was)} libraries", unread=unread, remedy=remedy, most=MOST
    )  # fmt: skip


def _other_library(name: str, before: str, path: str | None, snapshot: Snapshot) -> Difference:
    text = f"{name} was {before}, is {show(path)}"
    cudnn, driver = snapshot.cudnn.library_path, snapshot.driver
    if name.startswith("libcudnn") and (path is None or (isinstance(cudnn, str) and _folder(cudnn) == _folder(path))):
        return Difference(text, ("cudnn.library", "cudnn.version"), about=path or "")
    if path is None:
        nothing = driver.module_version is None and driver.library_version is None
        cupti = ["cuda.cupti"] if name.startswith("libcupti") else []
        return Difference(text, (f"{name}.loader", *cupti, *(["driver.version"] if nothing else [])))
    if name.startswith(OF_DRIVER):
        versions = {f".so.{version}" for version in (driver.library_version, driver.module_version)}
        speaks = path.endswith(tuple(versions))
        versions_say = ("driver.library_version", "driver.version") if speaks else ()
        return Difference(text, (f"{name}.driver", *versions_say), about=path)
    return Difference(text, ("cuda.libraries",), path, path)


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _follows(path: str, changed: Sequence[str]) -> bool:
    """Whether the package of this file has another version, which package_versions reports."""
    name = path.rpartition("/")[2]
    owners = MODULES if "/modules/" in path else next((by for begin, by in OWNERS if name.startswith(begin)), None)
    return owners is not None and any(re.match(owners, package) and not NOT_RUN.search(package) for package in changed)


def _contents(snapshot: Snapshot, certified: Certified, changed: Sequence[str]) -> Finding:
    was, now = certified.facts.digests, snapshot.digests
    if isinstance(was, Missing):
        return _not_compared("libraries", "contents")
    if isinstance(now, Missing):
        what = "what is in the installed libraries"
        return certified.missing("libraries", "contents", now, reported_by=["agent.version"], what=what)
    differences, unread = [], []
    for path, digest in sorted(was.items()):
        is_now = now.get(path)
        if isinstance(digest, Missing) or is_now == digest or (is_now is None and _moved(path, snapshot, certified)):
            continue
        if isinstance(is_now, Missing):
            unread.append(Unread(path, is_now))
        elif not _follows(path, changed):
            text = f"{path} is gone" if is_now is None else f"the content of {path} has changed"
            differences.append(Difference(text, _speakers(path, snapshot), about=path))
    why = "its package has the same version as before, so the file was replaced or damaged"
    return certified.judged(
        "libraries", "contents", differences, f"{len(was)} files", unread=unread, why=why, most=MOST,
        remedy=lambda paths: _from_its_package(paths, snapshot, certified),
    )  # fmt: skip


def _from_its_package(paths: Sequence[str], snapshot: Snapshot, certified: Certified) -> str:
    """How to restore the files: from their packages, or from DKMS, which built the files that no package owns."""
    packages: dict[str, Package] = {}
    commands, others = [], []
    for path in paths:
        owner = snapshot.owners.get(path) or certified.facts.owners.get(path)
        kernel = path.partition("/modules/")[2].partition("/")[0]
        built = [one for one in snapshot.driver.dkms if one.kernel == kernel and one.module.startswith("nvidia")]
        if isinstance(owner, str) and owner in snapshot.packages:
            packages[owner] = snapshot.packages[owner]
        elif built and not owner:
            of = (f"{built[0].module}/{built[0].version}", "-k", kernel)
            # Not --force: it builds the module again, and no two builds have the same bytes.
            steps = (f"`{command('sudo', 'dkms', verb, *of)}`" for verb in ("uninstall", "install"))
            commands.append(f"{', then '.join(steps)}; if DKMS has rebuilt the module since then: {CERTIFY}")
        else:
            others.append(path)
    if packages:
        commands.insert(0, byhand.installed_again(snapshot, packages, same=True))
    if others:
        commands.append(f"put back what was there before: {'; '.join(byhand.owned(snapshot, path) for path in others)}")
    return "; ".join(dict.fromkeys(commands)) or AGAIN


def _moved(path: str, snapshot: Snapshot, certified: Certified) -> bool:
    """Whether programs get a different file now: libraries.paths, shells.tools or kernel.running reports that."""
    was = certified.facts
    other_kernel = "/modules/" in path and f"/{snapshot.kernel.running}/" not in path
    other_nvcc = path.rpartition("/")[2] == "nvcc" and snapshot.cuda.nvcc_path != was.cuda.nvcc_path
    return other_kernel or path in was.libraries.values() or other_nvcc


def _speakers(path: str, snapshot: Snapshot) -> Sequence[str]:
    """Keys of the checks that report this file."""
    name = path.rpartition("/")[2]
    damaged = {} if isinstance(snapshot.package_files, Missing) else snapshot.package_files
    for package, said in damaged.items():
        if any(one.startswith(f"{path} ") for one in said):
            return (f"{whose(package)}.files",)
    if "/modules/" in path:
        return ("driver.version", "driver.dkms", "driver.prebuilt") if snapshot.driver.module_version is None else ()
    return ("cudnn.files",) if name.startswith("libcudnn") else ("cuda.version",) if name == "nvcc" else ()


def _files(snapshot: Snapshot, certified: Certified) -> Finding:
    """Compare managed files. The profile's checks report lines that are gone, but not lines that were added."""
    differences, unread = [], []
    compared = [path for path in FILES if path in certified.facts.files]
    for path in compared:
        before, now = certified.facts.files[path], snapshot.files.get(path, NOT_LOOKED_FOR)
        if isinstance(before, Missing):
            continue
        if isinstance(now, Missing):
            unread.append(Unread(path, now, FILES[path]))
            continue
        was, is_now = _settings(path, before), _settings(path, now)
        if was != is_now:
            how = "is gone" if now is None else "was not there" if before is None else "was changed"
            reported_by = FILES[path] if set(is_now) <= set(was) else ()
            step = _as_it_was(path, was, is_now, snapshot)
            differences.append(Difference(f"{path} {how}", reported_by, NAMED.get(path, path), step))
    return certified.judged(
        "files", "managed", differences, f"{len(compared)} files", unread=unread, remedy="; ".join, most=MOST
    )  # fmt: skip


def _as_it_was(path: str, was: Sequence[str], is_now: Sequence[str], snapshot: Snapshot) -> str:
    """How to restore the lines of a managed file: its role writes the whole file, unless others write to it, too."""
    if path in STEPS:
        return f"`gpuprep provision HOST --profile PROFILE --only {STEPS[path]} --deep` writes {path} again"
    steps = [byhand.without(snapshot, path, line) for line in is_now if line not in was]
    steps += [f"write the line `{one_line(line)}` into {path} again" for line in was if line not in is_now]
    return "; ".join(steps)


def _settings(path: str, text: str | None) -> list[str]:
    """The lines that have an effect: no comments, no empty lines. A missing file counts as an empty file."""
    lines = [line.strip() for line in (text or "").splitlines()]
    lines = [line for line in lines if line and not line.startswith(("#", "//"))]
    if path != host_paths.ENVIRONMENT:
        return lines
    # The last line with a name counts, at any place: the role appends a missing line at the end.
    last = {line.partition("=")[0]: line for line in lines if ENVIRONMENT.match(line)}
    return [last[name] for name in sorted(last)]


def _units(snapshot: Snapshot, certified: Certified) -> Finding:
    """Compare how units start: their drop-in files, and the resulting command."""
    differences: list[Difference] = []
    compared = 0
    for unit in UNITS:
        was, now = certified.facts.units.get(unit), snapshot.units.get(unit)
        if was is None or not was.files or now is None:
            continue
        compared += 1
        changes = {path: "was added" for path in now.files if path not in was.files}
        added = set(changes)
        changes |= {path: "is gone" for path in was.files if path not in now.files}
        subject = unit.removesuffix(".service")
        loaded = now.enabled not in NOT_LOADED  # otherwise systemd knows no files of the unit, or different ones
        reported_by = (f"{subject}.mode_at_boot" if loaded else f"{subject}.enabled",)
        for path, how in changes.items():
            about = path if path in added else ""
            differences.append(Difference(f"{unit}: {path} {how}", reported_by, path if loaded else "", about))
        if now.command != was.command and not changes:
            text = f"{unit} was started with `{was.command}`, now with `{now.command}`"
            the_mode = {*was.command.split()} ^ {*now.command.split()} <= MODE
            differences.append(Difference(text, reported_by if the_mode or not loaded else ()))
    if not compared:
        return _not_compared("units", "definition")

    def remedy(paths: Sequence[str]) -> str:
        return byhand.drop_in_aside(snapshot, paths)

    return certified.judged("units", "definition", differences, f"{compared} units", remedy=remedy, most=MOST)


def _tools(snapshot: Snapshot, certified: Certified) -> Finding:
    differences, unread = [], []
    for way, words in WAYS.items():
        was: Mapping[str, OptStr] = getattr(certified.facts.shells, way)
        now: Mapping[str, OptStr] = getattr(snapshot.shells, way)
        for tool, before in was.items():
            path = now.get(tool, NOT_LOOKED_FOR)
            reported_by = [f"{way}.{tool}"]
            if isinstance(before, Missing) or path == before:
                continue
            if isinstance(path, Missing):
                unread.append(Unread(f"which {tool} {words} finds", path, reported_by))
                continue
            if tool == "nvcc" and path is None and snapshot.cuda.nvcc_path is None:
                reported_by.append("cuda.version")  # no nvcc is left at all
            if tool == "ffmpeg" and path == snapshot.codec.ffmpeg_path:
                reported_by.append("ffmpeg.path")  # that check reports this file
            step = "see PATH in /etc/environment, /etc/profile.d and the shell's own files"
            if path is not None and before is not None:
                step = byhand.in_the_way(snapshot, path, before.rpartition("/")[0])
            text = f"{words} found {show(before)} as {tool}, now finds {show(path)}"
            differences.append(Difference(text, reported_by, about=step))
    shown = "the same nvcc and ffmpeg"
    return certified.judged("shells", "tools", differences, shown, unread=unread, remedy="; ".join, most=MOST)


def _module_options(snapshot: Snapshot, certified: Certified) -> Finding:
    """Compare every option of NVIDIA's modules, from any file."""
    was, now = certified.facts.modprobe, snapshot.modprobe
    if isinstance(was, Missing) or now == NOT_READ:
        return _not_compared("driver", "module_options")
    if isinstance(now, Missing):
        return certified.missing(
            "driver", "module_options", now, reported_by=["driver.module_allowed"], what="modprobe's configuration"
        )  # fmt: skip
    before, today = driver.modprobe_options(was), driver.modprobe_options(now)
    differences = []
    for module in sorted({*before, *today}):
        mine, theirs = before.get(module, {}), today.get(module, {})
        for key in sorted({*mine, *theirs}):
            (value, _), (is_now, file) = mine.get(key, ("not set", "")), theirs.get(key, ("not set", ""))
            if value != is_now:
                text = f"{module} {key} was {value}, is {is_now}" + (f" ({file})" if file else "")
                line, old = driver.modprobe_line(now, module, key), driver.modprobe_line(was, module, key)
                step = ""
                if line is not None and line != old:
                    step = byhand.option_out(snapshot, line, key)
                elif old is not None:
                    step = (
                        f"write the line `{one_line(old.text or ' '.join(old.words))}` into {one_line(old.file)} again"
                    )
                differences.append(Difference(text, ["driver.modprobe_options"], key, step))
    return certified.judged(
        "driver", "module_options", differences, f"{sum(map(len, today.values()))} options",
        remedy="; ".join,
    )  # fmt: skip


def _pins(wanted: Wanted, snapshot: Snapshot, certified: Certified) -> list[Finding]:
    """Compare apt's pins; [] on systems without apt."""
    was, now = certified.facts.apt, snapshot.apt
    if now is None or not isinstance(now, AptFacts):
        return []  # apt.preferences says what could not be read
    if not isinstance(was, AptFacts):
        return [_not_compared("apt", "pins_certified")]
    added = [pin for pin in now.pins if pin not in was.pins and aptpins.touched(pin, wanted, snapshot)]
    removed = [pin for pin in was.pins if pin not in now.pins and aptpins.touched(pin, wanted, snapshot)]
    differences = [
        Difference(
            f"a pin of {pin.packages} to {pin.pin} was added ({pin.file})", ["apt.pins"], aptpins.described(pin),
            aptpins.taken_out(snapshot, pin),
        )
        for pin in added
    ]  # fmt: skip
    differences += [  # the pin was removed, or apt can no longer read it
        Difference(
            f"the pin of {pin.packages} to {pin.pin} is gone ({pin.file})", PINNED, pin.file,
            f"write the stanza `Package: {one_line(pin.packages)}`, `Pin: {one_line(pin.pin)}`, `Pin-Priority:"
            f" {pin.priority}` into {one_line(pin.file)} again",
        )
        for pin in removed
    ]  # fmt: skip
    why = "it decides which versions of the driver or the toolkit apt would install"
    return [certified.judged("apt", "pins_certified", differences, f"{len(now.pins)} pins", why=why, remedy="; ".join)]
