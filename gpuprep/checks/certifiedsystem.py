"""Is what surrounds the GPUs what was certified: kernel, packages, libraries, files, units, PATH, pins? Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from gpuprep.checks import aptpins, modprobe
from gpuprep.checks.certified import Certified, spoken
from gpuprep.checks.common import show, skip
from gpuprep.records import NOT_READ, AptFacts, Finding, Missing, Snapshot, Status
from gpuprep.wanted import Wanted

# Names of the packages of a snapshot (onhost/packages.py) ► whose they are.
TOOLKIT = re.compile(
    r"cuda|cudnn|libaccinj|libcu(blas|dart|dnn|fft|file|inj|pti|rand|solver|sparse)|libnpp"
    r"|libnv(blas|fatbin|jitlink|jpeg|ptxcompiler|rtc|toolsext|vm)|nvidia-(cuda|profiler|visual)"
)
DRIVER = re.compile(
    r"nvidia|libnvidia|libcuda|libnv|firmware-nvidia|glx-alternative-nvidia|xserver-xorg-video-nvidia|kmod-nvidia|xorg-x11"
)
# File that gpuprep writes ► the checks of the profile that look at it, too. Settings and module options are compared
# by what they mean and not by their text.
FILES = {
    "/etc/systemd/system/gpuprep-tune.service": ("gpuprep-tune.",),
    "/etc/udev/rules.d/60-gpuprep-tune.rules": ("gpuprep-tune.",),
    "/etc/systemd/system/nvidia-persistenced.service.d/gpuprep.conf": ("nvidia-persistenced.",),
    "/etc/profile.d/gpuprep.sh": ("login_shell.",),
    "/etc/systemd/system.conf.d/gpuprep.conf": ("systemd_service.",),
    "/etc/ld.so.conf.d/gpuprep.conf": ("cudnn.", "cuda."),
    "/etc/modprobe.d/gpuprep-nouveau.conf": ("nouveau.",),
    "/etc/environment": ("non_login_shell.",),
    "/etc/ld.so.preload": (),
}
# Of a file that is everybody's, the lines that decide which toolkit a program gets.
ENVIRONMENT = re.compile(r"(export\s+)?(PATH|CUDA_\w+|LD_\w+)\s*=")
UNITS = ("nvidia-persistenced.service", "gpuprep-tune.service", "nvidia-fabricmanager.service")
WAYS = {
    "login_shell": "a login shell", "non_login_shell": "a non-login shell", "systemd_service": "a systemd service",
}  # fmt: skip
# A library's name begins with ► what speaks of it already.
LIBRARIES = (
    ("libcuda.so", ("libcuda.so.1.loader", "driver.library_version", "driver.version")),
    ("libnvcuvid.so", ("libnvcuvid.so.1.loader", "driver.library_version", "driver.version")),
    ("libnvidia-encode.so", ("libnvidia-encode.so.1.loader", "driver.library_version", "driver.version")),
    ("libnvidia-ml.so", ("driver.library_version", "driver.version")),
    ("libcudnn", ("cudnn.library", "cudnn.version")),
    ("libcupti", ("cuda.cupti", "cuda.version")),
    ("", ("cuda.libraries", "cuda.version")),
)


def findings(wanted: Wanted, snapshot: Snapshot, certified: Certified) -> list[Finding]:
    packages = [_packages("driver", snapshot, certified), _packages("cuda", snapshot, certified)]
    return [
        _system(snapshot, certified),
        _kernel(snapshot, certified),
        *packages,
        _libraries(snapshot, certified, packages),
        _contents(snapshot, certified, packages),
        _files(snapshot, certified),
        _units(snapshot, certified),
        _tools(snapshot, certified),
        _module_options(snapshot, certified),
        *_pins(wanted, snapshot, certified),
    ]


def _not_compared(subject: str, prop: str) -> Finding:
    reason = "the certified run was made by a gpuprep that did not read it yet: validate again"
    return skip(subject, prop, expected="as certified", actual="not compared", reason=reason)


def _system(snapshot: Snapshot, certified: Certified) -> Finding:
    was, now = certified.facts.os, snapshot.os
    same = (was.id, was.version_id) == (now.id, now.version_id)
    differences = [] if same else [f"the system was {was.pretty_name}, is {now.pretty_name}"]
    return certified.same("host", "system", differences, now.pretty_name)


def _kernel(snapshot: Snapshot, certified: Certified) -> Finding:
    """A driver that was built for another kernel is as good, says driver.dkms; it was not measured, says this."""
    was, now = certified.facts.kernel.running, snapshot.kernel.running
    differences = [] if was == now else [f"the kernel was {was}, is {now}"]
    said = ("kernel.headers", "driver.version", "driver.dkms")
    remedy = "gpuprep validate certifies the machine with the kernel that runs now"
    return certified.same("kernel", "running", differences, now, said=said, remedy=remedy, status=Status.WARN)


def _packages(subject: str, snapshot: Snapshot, certified: Certified) -> Finding:
    """Every package of the driver or the toolkit that was there: the profile knows a branch and the main ones."""
    differences, count = [], 0
    for name, package in sorted(certified.facts.packages.items()):
        if _whose(name) != subject:
            continue
        count += 1
        now = snapshot.packages.get(name)
        if now is None or now.version != package.version:
            is_now = f"is {now.version}" if now else "is not installed"
            differences.append(f"{name} was {package.version}, {is_now}")
    said = (f"{subject}.version", f"{subject}.packages", "driver.flavour")
    return certified.same(subject, "package_versions", _few(differences), f"{count} packages", said=said)


def _whose(name: str) -> str:
    return "cuda" if TOOLKIT.match(name) and name != "libcuda1" else "driver" if DRIVER.match(name) else ""


def _few(differences: Sequence[str], most: int = 5) -> list[str]:
    """A new version of a driver is thirty packages: the first of them are enough."""
    more = len(differences) - most
    return [*differences[:most], f"{more} more"] if more > 0 else list(differences)


def _grave(differences: Iterable[tuple[str, Sequence[str]]], certified: Certified) -> tuple[list[str], list[str]]:
    """(what nobody else says, what somebody says already) of (difference, keys that would say it)."""
    ours: list[str] = []
    theirs: list[str] = []
    for text, keys in differences:
        (theirs if spoken(certified.by_profile, *keys) else ours).append(text)
    return ours, theirs


def _one(
    subject: str,
    prop: str,
    differences: Sequence[tuple[str, Sequence[str]]],
    certified: Certified,
    shown: str,
    *,
    remedy: str,
    why: str = "",
) -> Finding:
    """Of differences that each have their own other speakers."""
    ours, theirs = _grave(differences, certified)
    if theirs and not ours:
        reason = f"other findings say it: {'; '.join(theirs)}"
        return skip(subject, prop, expected="as certified", actual="differs", reason=reason)
    return certified.same(subject, prop, _few(ours), shown, why=why, remedy=remedy)


def _libraries(snapshot: Snapshot, certified: Certified, packages: Sequence[Finding]) -> Finding:
    """Which file a program gets for each name. Another version of a package brings other files: it is named there."""
    differences: list[tuple[str, Sequence[str]]] = []
    was, now = certified.facts.libraries, snapshot.libraries
    for name, before in sorted(was.items()):
        path = now.get(name)
        if not isinstance(before, str) or path == before:
            continue
        if isinstance(path, Missing):
            return certified.missing("libraries", "paths", path, what=f"where the loader finds {name}")
        said = next(keys for begin, keys in LIBRARIES if name.startswith(begin))
        if _follows(said, packages):
            continue
        differences.append((f"{name} was {before}, is {show(path)}", said))
    remedy = "see /etc/ld.so.conf.d, LD_LIBRARY_PATH and what was installed last; then run ldconfig"
    return _one("libraries", "paths", differences, certified, f"{len(was)} libraries", remedy=remedy)


def _follows(said: Sequence[str], packages: Sequence[Finding]) -> bool:
    """Packages of the same part have other versions, and their finding says so."""
    changed = {finding.subject for finding in packages if finding.status is not Status.PASS}
    return any(key.partition(".")[0] in changed for key in said)


def _contents(snapshot: Snapshot, certified: Certified, packages: Sequence[Finding]) -> Finding:
    was, now = certified.facts.digests, snapshot.digests
    if isinstance(was, Missing):
        return _not_compared("libraries", "contents")
    if isinstance(now, Missing):
        what = "what is in the installed libraries"
        return certified.missing("libraries", "contents", now, said=["agent.version"], what=what)
    differences: list[tuple[str, Sequence[str]]] = []
    for path, digest in sorted(was.items()):
        is_now = now.get(path)
        if isinstance(digest, Missing) or is_now == digest or (is_now is None and _moved(path, snapshot, certified)):
            continue
        if isinstance(is_now, Missing):
            return certified.missing("libraries", "contents", is_now, what=path)
        said = _speakers(path)
        if not _follows(said, packages):
            differences.append((f"{path} is gone" if is_now is None else f"the content of {path} is another", said))
    why = "no package has another version, so it was replaced or damaged"
    remedy = "install the package that has it again (dpkg -S FILE names it): apt-get install --reinstall PACKAGE"
    return _one("libraries", "contents", differences, certified, f"{len(was)} files", why=why, remedy=remedy)


def _moved(path: str, snapshot: Snapshot, certified: Certified) -> bool:
    """A file that programs do not get any more: libraries.paths, shells.tools or kernel.running tell of another one."""
    was = certified.facts
    other_kernel = "/modules/" in path and f"/{snapshot.kernel.running}/" not in path
    return other_kernel or path in was.libraries.values() or path.rpartition("/")[2] == "nvcc"


def _speakers(path: str) -> Sequence[str]:
    name = path.rpartition("/")[2]
    if "/modules/" in path:
        return ("driver.version", "driver.dkms")
    if name.startswith("nvidia-"):  # nvidia-smi, nvidia-persistenced
        return ("driver.version",)
    if name.startswith("libcudnn"):
        return ("cudnn.files", "cudnn.library", "cudnn.version")
    return next(keys for begin, keys in LIBRARIES if name.startswith(begin))


def _files(snapshot: Snapshot, certified: Certified) -> Finding:
    differences: list[tuple[str, Sequence[str]]] = []
    compared = [path for path in FILES if path in certified.facts.files]
    for path in compared:
        before, now = certified.facts.files[path], snapshot.files.get(path)
        if isinstance(before, Missing):
            continue
        if isinstance(now, Missing):
            return certified.missing("files", "managed", now, said=FILES[path], what=path)
        if _meant(path, before) != _meant(path, now):
            how = "is gone" if now is None else "was not there" if before is None else "was changed"
            differences.append((f"{path} {how}", FILES[path]))
    remedy = "gpuprep provision --deep writes its files again; take out what others added"
    return _one("files", "managed", differences, certified, f"{len(compared)} files", remedy=remedy)


def _meant(path: str, text: str | None) -> list[str]:
    """The lines that mean something: neither comments nor empty ones. No file means what an empty one does."""
    lines = [line.strip() for line in (text or "").splitlines()]
    lines = [line for line in lines if line and not line.startswith(("#", "//"))]
    return [line for line in lines if ENVIRONMENT.match(line)] if path == "/etc/environment" else lines


def _units(snapshot: Snapshot, certified: Certified) -> Finding:
    """Who else tells systemd how a unit is started: drop-ins that were added, and what comes of all of them."""
    differences: list[tuple[str, Sequence[str]]] = []
    compared = 0
    for unit in UNITS:
        was, now = certified.facts.units.get(unit), snapshot.units.get(unit)
        if was is None or not was.files or now is None:
            continue
        compared += 1
        added = [path for path in now.files if path not in was.files]
        gone = [path for path in was.files if path not in now.files]
        said = (f"{unit.removesuffix('.service')}.",)
        differences += [(f"{unit}: {path} was added", said) for path in added]
        differences += [(f"{unit}: {path} is gone", said) for path in gone]
        if now.command != was.command and not added and not gone:
            differences.append((f"{unit} was started as `{was.command}`, is as `{now.command}`", said))
    if not compared:
        return _not_compared("units", "definition")
    remedy = "systemctl cat UNIT shows its files; take out what was added, then systemctl daemon-reload"
    return _one("units", "definition", differences, certified, f"{compared} units", remedy=remedy)


def _tools(snapshot: Snapshot, certified: Certified) -> Finding:
    differences: list[tuple[str, Sequence[str]]] = []
    for way, words in WAYS.items():
        was: Mapping[str, object] = getattr(certified.facts.shells, way)
        now: Mapping[str, object] = getattr(snapshot.shells, way)
        for tool, before in was.items():
            path = now.get(tool)
            said = (f"{way}.", "cuda." if tool == "nvcc" else "ffmpeg.")
            if isinstance(before, Missing) or path == before:
                continue
            if isinstance(path, Missing):
                return certified.missing("shells", "tools", path, said=said, what=f"which {tool} {words} finds")
            differences.append((f"{words} found {show(before)} as {tool}, finds {show(path)}", said))
    remedy = "see PATH in /etc/environment, /etc/profile.d and the shell's own files"
    return _one("shells", "tools", differences, certified, "the same nvcc and ffmpeg", remedy=remedy)


def _module_options(snapshot: Snapshot, certified: Certified) -> Finding:
    """Every option of NVIDIA's modules, whichever file gives it."""
    was, now = certified.facts.modprobe, snapshot.modprobe
    if isinstance(was, Missing) or now == NOT_READ:
        return _not_compared("driver", "module_options")
    if isinstance(now, Missing):
        return certified.missing(
            "driver", "module_options", now, said=["driver.module_allowed"], what="modprobe's configuration"
        )  # fmt: skip
    before, today = modprobe.options(was), modprobe.options(now)
    differences = []
    for module in sorted({*before, *today}):
        mine, theirs = before.get(module, {}), today.get(module, {})
        for key in sorted({*mine, *theirs}):
            (value, _), (is_now, file) = mine.get(key, ("not set", "")), theirs.get(key, ("not set", ""))
            if value != is_now:
                differences.append(f"{module} {key} was {value}, is {is_now}" + (f" ({file})" if file else ""))
    return certified.same(
        "driver", "module_options", differences, f"{sum(map(len, today.values()))} options",
        said=["driver.modprobe_options"], remedy="put the files of /etc/modprobe.d back as they were",
    )  # fmt: skip


def _pins(wanted: Wanted, snapshot: Snapshot, certified: Certified) -> list[Finding]:
    """Nothing on systems without apt."""
    was, now = certified.facts.apt, snapshot.apt
    if now is None or not isinstance(now, AptFacts):
        return []  # apt.preferences says what could not be read
    if not isinstance(was, AptFacts):
        return [_not_compared("apt", "pins_certified")]
    added = [pin for pin in now.pins if pin not in was.pins and aptpins.touched(pin, wanted, snapshot)]
    gone = [pin for pin in was.pins if pin not in now.pins and aptpins.touched(pin, wanted, snapshot)]
    differences = [f"a pin of {pin.packages} to {pin.pin} was added ({pin.file})" for pin in added]
    differences += [f"the pin of {pin.packages} to {pin.pin} is gone ({pin.file})" for pin in gone]
    why = "it decides which versions of the driver or the toolkit apt would install"
    said = ["apt.pins", "apt.preferences"]
    return [certified.same("apt", "pins_certified", differences, f"{len(now.pins)} pins", said=said, why=why)]
