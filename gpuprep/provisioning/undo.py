"""What was before × what is now ─► what `unprovision` takes back, what it keeps and what it cannot know. Pure.

State is what agent/facts/ledger.py sends. It comes from the host, so each part is checked for its kind before it is
used, and only paths of the ledger's tables are ever changed.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuprep.agent.facts import ledger
from gpuprep.agent.facts.packagefiles import whose
from gpuprep.agent.host_paths import ENVIRONMENT, HOLDS, LEDGER, MODULE_OPTIONS
from gpuprep.errors import HostError
from gpuprep.records import Plan, Step
from gpuprep.records.recorded_options import STEPS
from gpuprep.untrusted.plaintext import one_line

# What is installed last goes first: nothing loses what it needs while it is there.
ORDER = tuple(reversed(STEPS))
TITLES = {
    "driver": "Take back the NVIDIA driver with its repository, options, pins and holds",
    "agent": "Take back gpuprep's agent and its night check",
    "tuning": "Set clocks, power and compute mode back to the driver's own",
    "cuda": "Take back the CUDA toolkit and its environment",
    "cudnn": "Take back cuDNN",
    "nccl": "Take back NCCL",
    "codec": "Take back FFmpeg with NVENC and its headers",
    "containers": "Take back the container toolkit",
    "extras": "Take back the extras",
    "": "Take back what is left of gpuprep",
}
PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9+._-]{0,199}(:[a-z0-9-]{1,20})?")
VERSION = re.compile(r"[A-Za-z0-9.+:~^_-]{1,200}")
KEY = re.compile(r"gpg-pubkey-[0-9a-f]{8,40}-[0-9a-f]{8}(\.\(none\))?")
UUID = re.compile(r"GPU-[0-9a-f-]{8,60}")
GPU_OF = re.compile(r"-i GPU-\S+ ")  # in words for nvidia-smi
UNIT = re.compile(r"[A-Za-z0-9@_.-]{1,100}\.(service|timer)")
# Where gpuprep's packages are not in the package manager's history: whose() ─► the step.
STEP_OF = {"driver": "driver", "cuda": "cuda", "compiler": "cuda", "containers": "containers"}
FSTAB = "/etc/fstab"
LOCKS, LOCKS_OF = "/etc/dnf/plugins/versionlock.list", re.compile(r"!?(.+?)-[0-9]+:[^-]*-[^-]*")
BLOCK = re.compile(r"(?ms)^// BEGIN gpuprep: (.*?)$.*?^// END gpuprep: \1\n?")
TITLE_OF = {"the driver packages": "driver", "the CUDA toolkit": "cuda", "the container toolkit": "containers"}
# Settings of container runtimes that nvidia-ctk changes and nobody can tell apart from the user's own.
RUNTIMES = {"/etc/containerd/config.toml", "/etc/docker/daemon.json"}
RUNTIME_LINE = re.compile(r"nvidia|^imports|^\[|runtime_|^privileged_without_host_devices|^version|^BinaryName")
SHARED_NAMES = ("ffmpeg", "ffprobe", "ffnvcodec.pc", "nvidia.json")  # names that are not gpuprep's alone
MOST_NAMED = 12
COMPUTE_MODES = {"Default": "0", "Exclusive_Thread": "1", "Prohibited": "2", "Exclusive_Process": "3"}


@dataclass
class Work:
    """What one step takes back. `files` as `put` of the ledger takes them; `settings` are words for nvidia-smi."""

    step: str
    remove: list[str] = field(default_factory=list)
    restore: dict[str, str] = field(default_factory=dict)  # package ► the version that was there before
    unhold: list[str] = field(default_factory=list)
    hold: list[str] = field(default_factory=list)  # as before: an upgrade by gpuprep ended these holds
    auto: list[str] = field(default_factory=list)  # came as dependencies, and are marked as installed by hand now
    rpm_keys: list[str] = field(default_factory=list)
    files: list[dict[str, Any]] = field(default_factory=list)
    units: list[str] = field(default_factory=list)  # to be stopped and disabled
    users: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)
    settings: list[list[str]] = field(default_factory=list)

    def __bool__(self) -> bool:
        return any(value for name, value in vars(self).items() if name != "step")


@dataclass(frozen=True)
class Undo:
    works: tuple[Work, ...]  # in the order in which they are done; none is empty
    kept: tuple[str, ...]  # sentences: what stays, and why
    unknown: tuple[str, ...]  # sentences: what cannot be known
    whole: bool  # no step is left out: the ledger goes, too
    folders: tuple[str, ...]  # that were there before
    driver_loaded: bool
    driver_on_disk: bool
    known: bool  # there is a ledger
    driver_before: bool  # a driver worked there before gpuprep
    gpus: Mapping[str, Mapping[str, str]]  # uuid ► its settings now, as the ledger has them
    texts: Mapping[str, str]  # path ► what a file has now that is removed or changed: somebody may have edited it

    @property
    def stale(self) -> bool:
        """Whether the loaded driver is no more on the disk, as after a run that was killed before its restart."""
        return self.driver_loaded and not self.driver_on_disk

    @property
    def restarts(self) -> bool:
        """Whether the loaded driver will be one that is no more on the disk. State decides, never what this run did."""
        going = any(work.step == "driver" and work.remove for work in self.works)
        return self.driver_loaded and (going or (self.stale and (self.known or bool(self.works))))

    def plan(self, host: str) -> Plan:
        steps = tuple(
            Step(
                f"gpu_{work.step}" if work.step else "gpu_preflight",
                TITLES[work.step],
                tuple(_reasons(work)),
                may_reboot=work.step == "driver" and self.restarts,
            )
            for work in self.works
        )
        return Plan(host, "", steps, (*self.kept, *(f"cannot be known: {one}" for one in self.unknown)))


def _reasons(work: Work) -> Iterable[str]:
    if work.settings:
        yield "nvidia-smi sets: " + _named(sorted({GPU_OF.sub("", " ".join(words)) for words in work.settings}))
    if work.units:
        yield f"stop and disable {_named(work.units)}"
    if work.remove:
        yield f"remove {len(work.remove)} package{'s' * (len(work.remove) > 1)}: {_named(work.remove)}"
    if work.restore:
        yield "install again " + _named([f"{name} {version}" for name, version in work.restore.items()])
    if work.unhold:
        yield f"release the holds of {_named(work.unhold)}"
    if work.hold:
        yield f"hold again {_named(work.hold)}"
    if work.auto:
        yield f"mark again as dependencies {_named(work.auto)}"
    if work.rpm_keys:
        yield f"forget the keys {_named(work.rpm_keys)}"
    gone = [about["path"] for about in work.files if about["kind"] == "absent"]
    back = [about["path"] for about in work.files if about["kind"] != "absent"]
    if gone:
        yield f"remove {_named(gone)}"
    if back:
        yield f"put back {_named(back)}"
    if work.users or work.groups:
        yield f"remove the accounts {_named(sorted({*work.users, *work.groups}))}"


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return one_line(", ".join(names[:MOST_NAMED]), 2000) + more


# ---------------------------------------------------------------- the list


def undo(state: Mapping[str, Any], only: Sequence[str] = ()) -> Undo:
    """The list. `only`: names of steps; none: all of them. Raises HostError if the state has another form."""
    try:
        return _Lister(state, only).undo()
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise HostError(f"what the host says of its state has another form: {type(error).__name__}") from error


class _Lister:
    def __init__(self, state: Mapping[str, Any], only: Sequence[str]) -> None:
        self.state, self.now, self.before = state, state["now"], state["before"]
        self.known = self.before is not None
        self.chosen = [step for step in ORDER if not only or step in only]
        self.whole = len(self.chosen) == len(ORDER)
        self.works = {step: Work(step) for step in (*self.chosen, *([""] if self.whole else []))}
        self.kept: list[str] = []
        self.unknown: list[str] = []

    def undo(self) -> Undo:
        self._ledger()
        leaving = self._packages()
        self._holds(leaving)
        self._files(leaving)
        self._units()
        self._keys(leaving)
        self._accounts()
        self._settings()
        folders = self.before["folders"] if self.known else [one for one in self.now["folders"] if "gpuprep" not in one]
        works = tuple(work for work in self.works.values() if work)
        paths = {about["path"] for work in works for about in work.files}
        return Undo(
            works,
            tuple(self.kept),
            tuple(self.unknown),
            self.whole,
            tuple(map(str, folders)),
            self.state["driver_loaded"] is True,
            self.state["driver_on_disk"] is True,
            self.known,
            self.known and bool(self.before["gpus"]),
            self.now["gpus"],
            {path: _text(about) for path, about in self.now["files"].items() if path in paths and "text" in about},
        )

    def _ledger(self) -> None:
        if self.state["broken_ledger"]:
            self.unknown.append(
                f"{LEDGER} there is damaged or not root's own, so it is not believed: what was before gpuprep"
            )
        elif not self.known and self._was_here():
            since = one_line(str(self.state["since"] or ""), 40)
            told = f", and its package history begins {since}" if since else ", and it has no package history"
            self.unknown.append(
                "what was there before gpuprep: nothing here says it any more, or an older gpuprep set this machine up"
                f" without writing it down{told}; only what is certainly gpuprep's is taken back, files of others stay"
                " as they are"
            )
        if self.whole and (names := [str(one) for one in self.state["unrecorded"]]):
            self.unknown.append(
                f"who installed {_named(names)}: the first provision did not find them, and the package manager's"
                " history does not have them; they stay"
            )
        if self.known and str(self.before["kernel"]).strip() != str(self.now["kernel"]).strip():
            self.kept.append("the kernel's command line is another than before; gpuprep never changes it, so it stays")

    def _was_here(self) -> bool:
        """Whether anything of gpuprep is there. Its history stays after an unprovision, too."""
        packages = any(name in self.now["packages"] for name in self.state["installed"])
        return packages or any("gpuprep" in path for path in self.state["steps"])

    # ------------------------------------------------------------ packages

    def _packages(self) -> set[str]:
        """The packages that go. Their step is the one that installed them."""
        there: Mapping[str, list[str]] = self.now["packages"]
        residual = set(self.now["residual"])
        earlier: Mapping[str, list[str]] = self.before["packages"] if self.known else {}
        earlier_residual = set(self.before["residual"]) if self.known else set()
        auto = set(self.now["auto"])
        held = set(self.now["holds"]) - self._held_by_gpuprep()
        going: dict[str, str] = {}
        for name, about in sorted(self.state["installed"].items()):
            if name not in {*there, *residual} or not PACKAGE.fullmatch(name) or name in earlier:
                continue
            if name in residual and name in earlier_residual:
                continue
            if about["step"] == ledger.BEFORE_IT and not self.known:
                continue  # an unprovision or a rollback put it back
            step = about["step"] if about["step"] in STEPS else STEP_OF.get(str(whose(name.partition(":")[0])), "")
            if name in held:
                self.kept.append(f"kept {name}: somebody holds it")
            elif self.now["manager"] == "apt" and about["auto"] and name in there and name not in auto:
                self.kept.append(f"kept {name}: somebody marked it as installed by hand since then")
            elif step in self.works or (self.whole and not step):
                going[name] = step
        for name, by in _needed(going, there, self.state["needs"]).items():
            del going[name]
            self.kept.append(f"kept {name}, since {one_line(by, 100)} needs it")
        for name in [one for one in going if "-plugin-versionlock." in one and self._locked_by_user(there)]:
            del going[name]
            self.kept.append(f"kept {name}, since locks of {LOCKS} that are not gpuprep's need it")
        for name, step in going.items():
            self.works[step].remove.append(name)
        self._versions(going, there, earlier)
        return set(going)

    def _locked_by_user(self, there: Mapping[str, Any]) -> bool:
        lines = _text(self.now["files"].get(LOCKS, {})).splitlines()
        names = {found[1] for line in lines if (found := LOCKS_OF.fullmatch(_bare(line)))}
        ours = {one.rpartition(".")[0] for one in self.state["installed"] if one in there}
        return any(name not in ours and not whose(name) for name in names)

    def _versions(
        self, going: Mapping[str, str], there: Mapping[str, list[str]], earlier: Mapping[str, list[str]]
    ) -> None:
        # What a run that was killed had put back is installed by gpuprep, and was there before.
        back = {name: about["step"] for name, about in self.state["installed"].items() if name in earlier}
        for name, step in sorted({**back, **self.state["changed"]}.items()):
            place = step if step in STEPS else STEP_OF.get(str(whose(name.partition(":")[0])), "driver")
            if name not in earlier or place not in self.works or not PACKAGE.fullmatch(name):
                continue
            work, old = self.works[place], earlier[name][-1]
            again = name in self.state["changed"] and there.get(name) != earlier[name] and bool(VERSION.fullmatch(old))
            if again:
                work.restore[name] = old
            elif name not in there:
                continue
            # apt ends the hold of what it is told to change, and marks it as installed by hand.
            if name in self.before["holds"] and (again or name not in self.now["holds"]):
                work.hold.append(name)
            if name in self.before["auto"] and (again or name not in self.now["auto"]):
                work.auto.append(name)
        # dnf keeps several kernels' headers beside each other: those that came with gpuprep.
        for name, versions in sorted(there.items()):
            more = [one for one in versions if one not in earlier.get(name, versions)]
            about = self.state["installed"].get(name)
            if more and len(versions) > 1 and name not in going and about and about["step"] in self.works:
                stem, _, arch = name.rpartition(".")
                self.works[about["step"]].remove += [f"{stem}-{one}.{arch}" for one in more if VERSION.fullmatch(one)]

    # ------------------------------------------------------------ holds

    def _held_by_gpuprep(self) -> set[str]:
        text = _text(self.now["files"].get(HOLDS, {}))
        return {name for found in BLOCK.finditer(text) for name in _names(found[0])}

    def _holds(self, leaving: set[str]) -> None:
        """Holds of packages that go end with them. Others were gpuprep's if its own file names them."""
        earlier = set(self.before["holds"]) if self.known else set()
        for path, about in self.now["files"].items():
            if path != HOLDS:
                continue
            text = _text(about)
            for found in BLOCK.finditer(text):
                step = TITLE_OF.get(found[1], "")
                free = [
                    one
                    for one in _names(found[0])
                    if one in self.now["holds"] and one not in earlier and one not in leaving
                ]
                if step in self.works:
                    self.works[step].unhold += [one for one in free if PACKAGE.fullmatch(one)]
            rest = BLOCK.sub(lambda found: "" if TITLE_OF.get(found[1], "") in self.works else found[0], text)
            if rest != text:
                place = next(iter(self.works.values())) if not self.whole else self.works[""]
                place.files.append(_written(path, about, rest) if rest.strip() else _absent(path))
            elif self.whole and not rest.strip():
                self.works[""].files.append(_absent(path))

    # ------------------------------------------------------------ files

    def _files(self, leaving: set[str]) -> None:
        own = {(folder, name) for _, folder, name in ledger.OWN}
        special: dict[str, Callable[[str, Mapping[str, Any]], None]] = {
            ENVIRONMENT: self._environment,
            FSTAB: self._fstab,
        }
        # First: what leads to them goes later, so that a run that was killed finds them again.
        for path, about in sorted(self._trees().items()):
            if about["step"] in self.works and re.fullmatch(r"(/[A-Za-z0-9_][A-Za-z0-9._+-]*){3,20}", path):
                self._own(about["step"], path, about)
        for path, about in sorted(self.now["files"].items()):
            step = self.state["steps"].get(path, "")
            if step not in self.works or path == HOLDS or not _in_tables(path):
                continue
            if path in special:
                special[path](path, about)
            elif path == LOCKS:
                self._locks(path, about, leaving)
            elif path in RUNTIMES or path.endswith("99-nvidia.toml"):
                self._shared(step, path, about)
            elif _is_of(path, own):
                self._own(step, path, about)
            else:
                self._left(step, path, about, leaving)
        options = [path for path in self.now["files"] if path == MODULE_OPTIONS]
        if options and self.state["driver_loaded"] and "driver" in self.works and not self.works["driver"].remove:
            self.kept.append("the loaded driver keeps gpuprep's module options until the machine is restarted")
        earlier = self.before["files"] if self.known else {}
        for path, about in sorted(earlier.items()):
            step = next((one for one, folder, name in (*ledger.OWN, *ledger.SHARED, *ledger.LEFT)
                         if path.startswith(folder + "/") and fits(path, folder, name)), None)  # fmt: skip
            # What somebody else removed since then stays away.
            mine = path not in (ENVIRONMENT, FSTAB, LOCKS, *RUNTIMES)
            if step in self.works and path not in self.now["files"] and "text" in about and mine:
                self.works[step or ""].files.append({"path": path, **about})

    def _trees(self) -> dict[str, Mapping[str, Any]]:
        """What is below a prefix of the user's."""
        return {path: about for path, about in self.state["trees"].items() if path not in self.now["files"]}

    def _was(self, path: str) -> Mapping[str, Any] | None:
        was = self.before["files"].get(path) if self.known else None
        return was if isinstance(was, Mapping) else None

    def _own(self, step: str, path: str, about: Mapping[str, Any]) -> None:
        """gpuprep's file; at the place of one of the user's that one comes back."""
        was = self._was(path)
        if path.rpartition("/")[2] in SHARED_NAMES and not self._ours(path, about):
            if was is None:
                self.kept.append(f"kept {path}: it is not the one that gpuprep made")
        elif "stranger" in about:
            self.kept.append(f"kept {path}: it has {one_line(about['stranger'], 200)}, which is not gpuprep's")
        elif was is None or (was.get("kind") == "file" and "text" not in was):
            self.works[step].files.append(_absent(path))
        elif dict(was) != dict(about) and was.get("kind") != "folder":
            self.works[step].files.append({"path": path, **was})

    def _ours(self, path: str, about: Mapping[str, Any]) -> bool:
        """Whether a file with a name that is not gpuprep's alone is the one that gpuprep wrote."""
        if path.endswith("/nvidia.json"):
            return any(name.startswith("nvidia-container-toolkit") for name in self.state["installed"])
        if path.startswith("/opt/gpuprep/"):
            return True
        places = ("/opt/gpuprep/", *(f"{place.rpartition('/')[0]}/" for place in self._trees()))
        return path in self.state["trees"] or str(about.get("target", "")).startswith(places)

    def _left(self, step: str, path: str, about: Mapping[str, Any], leaving: set[str]) -> None:
        """What packages and their scripts leave; only where it was not there before, and nothing of them stays."""
        there = [one.partition(":")[0] for one in self.now["packages"] if one not in leaving]
        stays = any(whose(one) == step or one.partition(".")[0] == "dkms" for one in there)
        # A toolkit of the user's may stand in the place of the link.
        theirs = path == "/usr/local/cuda" and about.get("target") != "/etc/alternatives/cuda"
        if self.known and self._was(path) is None and not stays and not theirs:
            self.works[step].files.append(_absent(path))

    def _shared(self, step: str, path: str, about: Mapping[str, Any]) -> None:
        """Settings of a container runtime, which nvidia-ctk changed; what else is in them is somebody's."""
        was, text = self._was(path), _text(about)
        if "nvidia" not in text or (was is not None and dict(was) == dict(about)):
            return
        if not self.known:
            self.unknown.append(f"which settings in {path} were there before gpuprep: it stays as it is")
        elif not any(name.startswith("nvidia-container-toolkit") for name in self.state["installed"]):
            return
        elif path.endswith("/99-nvidia.toml") and was is None:
            self.works[step].files.append(_absent(path))
        elif path.endswith(".json") and (less := _less_runtime(text, _text(was or {}))) is not None:
            empty = _absent(path) if was is None else {"path": path, **was}
            self.works[step].files.append(_written(path, about, less) if less else empty)
        elif was is not None and "text" in was and _only_nvidia(text, _text(was)):
            self.works[step].files.append({"path": path, **was})
        else:
            self.kept.append(f"kept {path}: it has NVIDIA's runtime and other changes, so take that out by hand")

    def _environment(self, path: str, about: Mapping[str, Any]) -> None:
        """gpuprep adds to PATH and sets CUDA_HOME; what else the file has, also later lines, stays."""
        was, text = self._was(path), _text(about)
        old = {line.partition("=")[0]: line for line in (_text(was) if was else "").splitlines()}
        lines = []
        for line in text.splitlines():
            name, _, value = line.partition("=")
            if name == "CUDA_HOME" and ("cuda" in value or value.strip('"') == "/usr"):
                line = old.get(name, "") if self.known else ""
            elif name == "PATH":
                line = self._path(line, old.get(name))
            if line or name not in ("CUDA_HOME", "PATH"):
                lines.append(line)
        rest = "".join(f"{line}\n" for line in lines)
        if rest == text:
            return
        if was is not None and rest.split() == _text(was).split():
            self.works["cuda"].files.append({"path": path, **was})
        elif not rest.strip() and self.known and was is None:
            self.works["cuda"].files.append(_absent(path))
        else:
            self.works["cuda"].files.append(_written(path, about, rest))

    def _path(self, line: str, old: str | None) -> str:
        """Without the folders that gpuprep added; those that somebody added later stay."""
        now = line.partition("=")[2].strip('"').split(":")
        earlier = (old or "").partition("=")[2].strip('"').split(":")
        if not self.known:
            kept = [one for one in now if "/cuda" not in one]
            return line if kept == now else f'PATH="{":".join(kept)}"'
        added = [one for one in now if one not in earlier and "/cuda" not in one and one not in BARE_PATH]
        if not added:
            return old or ""
        base = earlier if old else [one for one in now if one in BARE_PATH]
        return f'PATH="{":".join([*base, *added])}"'

    def _fstab(self, path: str, about: Mapping[str, Any]) -> None:
        was = self._was(path)
        if was is None or dict(was) == dict(about):
            return
        more = [line for line in _text(about).splitlines() if line.strip() and line not in _text(was).splitlines()]
        if more:
            self.kept.append(f"kept in {path}: {one_line('; '.join(more), 200)}: what is mounted there may be in use")

    def _locks(self, path: str, about: Mapping[str, Any], leaving: set[str]) -> None:
        """Locks of packages that go, and of NVIDIA's that gpuprep locked and that stay."""
        old = set(_text(self._was(path) or {}).splitlines())
        gone = {one.rpartition(".")[0] for one in leaving}
        lines = _text(about).splitlines()
        rest = [
            line
            for line in lines
            if line in old or not (found := LOCKS_OF.fullmatch(_bare(line))) or not (
                found[1] in gone or (self.known and STEP_OF.get(str(whose(found[1]))) in self.works)
            )
        ]  # fmt: skip
        # dnf writes a comment above each lock; without its lock it goes, too.
        kept = [
            line
            for line, after in zip(rest, [*rest[1:], ""], strict=True)
            if line in old or not line.startswith("# Added lock") or LOCKS_OF.fullmatch(_bare(after))
        ]
        was, place = self._was(path), self.works["driver"]
        if was is None and self.known and not any(LOCKS_OF.fullmatch(_bare(line)) for line in kept):
            # rpm keeps a changed file of a package that goes under the other name.
            place.files += [_absent(path), _absent(f"{path}.rpmsave")]
        elif rest != lines:
            text = "".join(f"{line}\n" for line in kept)
            same = was is not None and text.split() == _text(was).split()
            place.files.append({"path": path, **(was or {})} if same else _written(path, about, text))

    # ------------------------------------------------------------ units, accounts, settings, keys

    def _units(self) -> None:
        earlier = self.before["units"] if self.known else {}
        for unit, enabled in sorted(self.now["units"].items()):
            if not UNIT.fullmatch(unit):
                continue
            step = next(
                (one for one, folder, name in ledger.OWN if folder.endswith("system") and fits(unit, "", name)), None
            )
            if step is not None and step in self.works and enabled != "static":
                self.works[step].units.append(unit)
            elif (
                unit.startswith("nvidia-")
                and earlier.get(unit, "enabled") != "enabled"
                and enabled == "enabled"
                and "tuning" in self.works
            ):
                self.works["tuning"].units.append(unit)

    def _keys(self, leaving: set[str]) -> None:
        """Keys that dnf learned with gpuprep's repositories, by gpuprep's own files of them."""
        if not self.known:
            return
        files = sorted(path for path in self.now["files"] if "/RPM-GPG-KEY-gpuprep-" in path)
        steps = {_key_name(_text(self.now["files"][path])): self.state["steps"].get(path, "") for path in files}
        for name, owner in sorted(self.now["keys"].items()):
            if name in self.before["keys"] or not KEY.fullmatch(name):
                continue
            epel = "epel" in owner.lower() and any(one.startswith("epel-release.") for one in leaving)
            step = steps.get(name.removesuffix(".(none)"), "driver" if epel else "")
            if step in self.works and step:
                self.works[step].rpm_keys.append(name)
            elif self.whole:
                self.kept.append(f"kept the key {name} ({one_line(owner, 80)}): nobody wrote down who imported it")

    def _accounts(self) -> None:
        for kind in ("users", "groups"):
            earlier = self.before["accounts"][kind] if self.known else []
            for name in self.now["accounts"][kind]:
                step = ledger.ACCOUNTS.get(name)
                if step is None or step not in self.works or name in earlier:
                    continue
                if kind == "groups" and self.state["members"].get(name):
                    who = one_line(", ".join(map(str, self.state["members"][name])), 100)
                    self.kept.append(f"kept the group {name}: {who} is in it")
                elif self.known or name.startswith("gpuprep"):
                    getattr(self.works[step], kind).append(name)
                elif kind == "users":
                    self.unknown.append(f"whether the user {name} was there before gpuprep: it stays")

    def _settings(self) -> None:
        """Of a machine whose GPUs gpuprep tuned: what they were set to before, else the driver's own."""
        if "tuning" not in self.works or not any(path.endswith("/tuning.json") for path in self.now["files"]):
            return
        if not self.now["gpus"]:
            self.unknown.append("what the GPUs are set to: nvidia-smi gives no answer; a restart sets them back")
        earlier = self.before["gpus"] if self.known else {}
        for uuid, now in sorted(self.now["gpus"].items()):
            if not UUID.fullmatch(uuid):
                continue
            was = earlier.get(uuid, {})
            words = [["-rgc"], ["-rac"]]
            limit = str(was.get("power.limit") or now["power.default_limit"])
            if re.fullmatch(r"[0-9]+(\.[0-9]+)?", limit):
                words.append(["-pl", limit])
            words.append(["-c", COMPUTE_MODES.get(str(was.get("compute_mode")), "0")])
            ecc = was.get("ecc.mode.pending")
            if ecc in ("Enabled", "Disabled") and ecc != now["ecc.mode.pending"]:
                words.append(["-e", str(int(ecc == "Enabled"))])
            words.append(["-pm", str(int(was.get("persistence_mode") == "Enabled"))])
            if now.get("mig.mode.pending") == "Enabled":
                if was.get("mig.mode.pending") == "Disabled":
                    instances = (["mig", "-i", uuid, "-dci"], ["mig", "-i", uuid, "-dgi"])
                    self.works["tuning"].settings += instances  # a GPU that has some keeps its mode
                    words.append(["-mig", "0"])
                else:
                    self.unknown.append(f"how {uuid} was cut by MIG before gpuprep: it stays as it is")
            self.works["tuning"].settings += [["-i", uuid, *one] for one in words]


# The PATH that gpuprep writes where /etc/environment had none (gpu_cuda_environment_default_path), and what it adds.
BARE_PATH = (
    "/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/games", "/usr/local/games",
    "/snap/bin",
)  # fmt: skip


def refused(listed: Undo, now: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Settings of the list that a GPU does not have now. One whose driver is gone has none."""
    found = []
    for work in listed.works:
        for first, uuid, *words in work.settings:
            if first != "-i":  # instances: their GPU's mode says whether they are gone
                continue
            here = now.get(uuid, {})
            if words[0] == "-pl" and (limit := here.get("power.limit")) not in (None, words[1]):
                found.append(f"{uuid}: its power limit is {one_line(str(limit), 20)} W, not {words[1]} W")
            mode = COMPUTE_MODES.get(str(here.get("compute_mode")), words[-1])
            if words[0] == "-mig" and here.get("mig.mode.pending") == "Enabled":
                found.append(f"{uuid}: MIG is still on: end the programs that use its instances")
            if words[0] == "-c" and mode != words[1]:
                found.append(f"{uuid}: its compute mode is {one_line(str(here['compute_mode']), 40)}")
    return found


def _needed(
    going: Mapping[str, str], there: Mapping[str, list[str]], needs: Mapping[str, Sequence[Sequence[str]]]
) -> dict[str, str]:
    """Packages of `going` that what stays needs ► which one needs it. A package that stays needs its own in turn."""
    kept: dict[str, str] = {}
    waiting = [name for name in there if name not in going]
    while waiting:
        name = waiting.pop()
        for choices in needs.get(name, ()):
            if all(one in going and one not in kept for one in choices) and choices:
                first = str(choices[0])
                kept[first] = name
                waiting.append(first)
    return kept


def _in_tables(path: str) -> bool:
    return any(fits(path, folder, name) for _, folder, name in (*ledger.OWN, *ledger.SHARED, *ledger.LEFT))


def _is_of(path: str, rows: Iterable[tuple[str, str]]) -> bool:
    return any(fits(path, folder, name) for folder, name in rows)


def fits(path: str, folder: str, name: str) -> bool:
    pattern = re.escape(f"{folder}/{name}" if folder else name).replace(r"\*", "[^/]*")
    return re.fullmatch(pattern, path) is not None


def _names(block: str) -> list[str]:
    """The packages of a block of the blacklist of unattended upgrades."""
    return [one.replace("[.]", ".").replace("[+]", "+") for one in re.findall(r'"\^([^"$]+)\$"', block)]


def _bare(line: str) -> str:
    return line.strip().removesuffix(".*")


def _absent(path: str) -> dict[str, Any]:
    return {"path": path, "kind": "absent"}


def _key_name(armored: str) -> str:
    """gpg-pubkey-<id>-<time>, as rpm calls the first key of a file; "" without one. RFC 4880: 4.2 and 12.2."""
    try:
        block = armored.split("-----BEGIN PGP PUBLIC KEY BLOCK-----")[1].partition("\n\n")[2].partition("\n=")[0]
        data = base64.b64decode("".join(block.partition("-----END")[0].split()))
        if data[0] & 0x40:  # the new format
            start, size = (2, data[1]) if data[1] < 192 else (3, (data[1] - 192 << 8) + data[2] + 192)
        else:
            start = 1 + (1 << (data[0] & 3))
            size = int.from_bytes(data[1:start], "big")
        body = data[start : start + size]
        digest = hashlib.new("sha1", b"\x99" + len(body).to_bytes(2, "big") + body, usedforsecurity=False)
    except (ValueError, IndexError, OverflowError):
        return ""
    return f"gpg-pubkey-{digest.hexdigest()[-8:]}-{body[1:5].hex()}" if body[:1] == b"\4" else ""


def _only_nvidia(now: str, before: str) -> bool:
    """Whether nvidia-ctk alone can have changed these settings: nothing is gone, and each new line is one of its."""
    old = {line.strip() for line in before.splitlines()}
    new = {line.strip() for line in now.splitlines()}
    return old <= new and all(not line or RUNTIME_LINE.search(line) for line in new - old)


def _written(path: str, about: Mapping[str, Any], text: str) -> dict[str, Any]:
    content = base64.b64encode(text.encode("utf-8", "surrogateescape")).decode()
    return {"path": path, "kind": "file", "text": content, **{key: about[key] for key in ("mode", "uid", "gid")}}


def _text(about: Mapping[str, Any]) -> str:
    return base64.b64decode(about.get("text", "")).decode("utf-8", "surrogateescape")


def _less_runtime(now: str, before: str) -> str | None:
    """daemon.json without the runtime that nvidia-ctk added; "": that is what it was before; None: it is no JSON."""
    try:
        document, earlier = json.loads(now), json.loads(before or "{}")
        if "nvidia" not in earlier.get("runtimes", {}):
            document.get("runtimes", {}).pop("nvidia", None)
        if not document.get("runtimes", True) and "runtimes" not in earlier:
            del document["runtimes"]
    except (ValueError, RecursionError, AttributeError):
        return None
    return "" if document == earlier else json.dumps(document, indent=4) + "\n"
