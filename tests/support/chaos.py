"""Disturbs gpuprep's commands at random moments on simulated machines; the same command, typed again, has to end as if
nothing had happened.

    python tests/support/chaos.py [--rounds N] [--seed S] [--round K] [--only COMMAND,...] [--system OS]
        [--disturb KIND] [--jobs J]

A round: a machine in a known state, a command, a moment of it and a disturbance, all four chosen by the seed and the
round's number alone, so `--seed S --round K` is the same round whatever N was. Then the same command again. Its exit
code and all that it leaves on the machine and on this computer are compared with those of an undisturbed run.

The moment is a share of the undisturbed run: the line of its progress that was the last one then, and the time since
that line, at most to the next line. So it is the same step on a machine that is slower or faster now.

A power cut kills every process of the machine at once. Its disk is this computer's, so it forgets nothing by itself:
`power-unwritten` empties the new files of the last seconds that nobody had told the kernel to write (EMPTIED says
which). Torn blocks of one file, and a lost order of two files, are not simulated. A cut network passes no byte on, but
this computer still acknowledges them, so neither side hears from TCP what a router would tell or not tell it.

A round that is lost prints what differs, where its logs are, and the words that repeat it alone.
Exit code: 0 no round was lost, 1 at least one was, 2 wrong words.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import os
import random
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import finished
import psutil
from compilequickly import compile_quickly
from machines import GPUPREP, UNMEASURED, flags, gpuprep, inside, must
from places import ROOT
from systemprofiles import PROFILE

from gpuprep.paths import state_dir
from gpuprep.sim import cgroup, store

LOGS = ROOT / "build/chaos"
MARK = "GPUPREP_CHAOS"  # in the environment of all that a round starts here
# States that a machine begins in: finished, and finished with a driver that came after another; "" is bare.
WHOLE, CHANGED = "whole", "changed"
SHARES = (0.0, 1.0)
ENDS_WITHIN = 1200.0  # a command whose network is gone: it ends by itself; for a restart it waits 15 minutes
WAITS_SECONDS = 600.0  # of the same command, where it says that one has to wait
WAITS = ("is in use by", "works with the packages there")
SETTLED_SECONDS = 60.0
CLOSE_WAIT = 8  # a state of TCP: the other side has closed (linux/tcp_states.h)


# ---------------------------------------------------------------- what is disturbed


@dataclass(frozen=True)
class Command:
    """A command, and the machine that it finds: a state, and what a hand does to it first."""

    words: tuple[str, ...]
    state: str
    systems: tuple[str, ...] = ("debian13",)
    undo: tuple[str, ...] = ()
    packages: bool = False  # a package manager is at work in it
    ansible: bool = True
    profile: bool = True


TUNED = ("nvidia-smi -rac", "nvidia-smi -pl 62", "nvidia-smi -pm 0", "systemctl disable --quiet gpuprep-tune")
STUBS = ("ubuntu2404", "rocky9")
COMMANDS = {
    "driver": Command(("provision", "--only", "driver"), "", ("debian13", *STUBS), packages=True),
    "missing": Command(
        ("provision", "--no-validate"),
        WHOLE,
        undo=(
            *TUNED[:3],
            "apt-mark unhold libcuda1",
            "rm /etc/modprobe.d/gpuprep-nvidia.conf /etc/ld.so.conf.d/gpuprep.conf && ldconfig",
            "rm /etc/gpuprep/provenance.json /etc/apt/apt.conf.d/52gpuprep-holds /usr/local/bin/gpuprep-agent",
            "sed -i '/^PATH=/d' /etc/environment",
            "DEBIAN_FRONTEND=noninteractive apt-get remove -qq -y --allow-change-held-packages tmux libnvidia-encode1",
        ),
        packages=True,
    ),
    "codec": Command(
        ("provision", "--only", "codec", "--no-validate"),
        WHOLE,
        undo=(
            "rm /usr/local/bin/ffprobe",
            "ln -sfn / /opt/gpuprep/ffmpeg/current",
            "ln -sfn /nowhere /usr/local/lib/pkgconfig/ffnvcodec.pc",
        ),
    ),
    "tune": Command(("tune",), WHOLE, undo=(*TUNED, "rm /etc/gpuprep/tuning.json")),
    "validate": Command(("validate", *UNMEASURED), WHOLE, ansible=False),
    "drift": Command(("drift",), WHOLE, ansible=False),
    "schedule": Command(("drift", "schedule"), WHOLE),
    "fix": Command(
        ("drift", "--fix"),
        WHOLE,
        undo=(
            *TUNED,
            "apt-mark unhold libcuda1 nvidia-cuda-toolkit",
            "rm /usr/local/bin/ffprobe /usr/local/bin/ffmpeg",
            "ln -sfn / /opt/gpuprep/ffmpeg/current",
            "ln -sfn /nowhere /usr/local/lib/pkgconfig/ffnvcodec.pc",
            "rm /opt/gpuprep/cudnn/current && ldconfig",
        ),
        ansible=False,
    ),
    "upgrade": Command(("provision",), WHOLE, STUBS, packages=True),
    "rollback": Command(("rollback", "--yes"), CHANGED, STUBS, packages=True, profile=False),
    "unprovision": Command(("unprovision", "--yes"), WHOLE, ("debian13", *STUBS), packages=True, profile=False),
}
# Of systems whose driver is a stub; Debian 13 has its own, and the profile t4.
BRANCHES = {WHOLE: "570", CHANGED: "580"}

# What is cut off, and how: name ► the round's function (Round). `late`: also right after the end of the command.
KINDS = (
    "kill", "kill-group", "kill-ansible", "power", "power-unwritten", "cut", "cut-for-good", "cut-half-open", "stop",
    "stop-packages",
)  # fmt: skip
LATE = ("power", "power-unwritten")


def kinds(command: Command) -> list[str]:
    without = {"kill-ansible"} if not command.ansible else set()
    without |= set() if command.packages else {"stop-packages"}
    return [kind for kind in KINDS if kind not in without]


@dataclass(frozen=True)
class Plan:
    """What a round does; made of the seed and the number alone."""

    seed: int
    number: int
    command: str
    system: str
    kind: str
    share: float  # of the undisturbed run's time
    late: bool
    seconds: float  # that a cut or a stop lasts, or of writes that are lost
    asked: str = ""  # the words that left other rounds out

    @property
    def title(self) -> str:
        when = "right after its end" if self.late else f"at {self.share:.0%}"
        lasts = f" of {self.seconds:.0f} s" if self.kind.startswith(("power", "stop")) or self.kind == "cut" else ""
        return f"{self.command} on {self.system}, {self.kind}{lasts} {when}"

    @property
    def repeat(self) -> str:
        return f"python tests/support/chaos.py --seed {self.seed} --round {self.number}{self.asked}"


def planned(seed: int, number: int, only: str = "", system: str = "", kind: str = "") -> Plan:
    """The first of this number's draws that fits. Raises ValueError where none can."""
    chance = random.Random(f"{seed}:{number}")
    given = {"only": only, "system": system, "disturb": kind}
    asked = "".join(f" --{name} {value}" for name, value in given.items() if value)
    for _ in range(10_000):
        name = chance.choice(sorted(COMMANDS))
        command = COMMANDS[name]
        plan = Plan(
            seed, number, name, chance.choice(command.systems), chance.choice(kinds(command)), chance.uniform(*SHARES),
            chance.random() < 0.15, chance.choice((2.0, 8.0, 20.0, 60.0)), asked,
        )  # fmt: skip
        plan = dataclasses.replace(plan, late=plan.late and plan.kind in LATE)
        if (
            plan.command in (only or plan.command).split(",")
            and system in ("", plan.system)
            and kind in ("", plan.kind)
        ):
            return plan
    raise ValueError(f"there is no such round:{asked}")


# ---------------------------------------------------------------- the state of a machine

# Each line belongs to the section above it. What every boot, login or run writes anew is left out.
STATE = r"""
export LC_ALL=C
echo "## packages"; { dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Version}\n' || rpm -qa; } 2>/dev/null | sort
echo "## holds"; apt-mark showhold 2>/dev/null; grep -v '^#' /etc/dnf/plugins/versionlock.list 2>/dev/null | sort
echo "## package database"
if command -v dpkg >/dev/null; then dpkg --audit; apt-get check -qq 2>&1; else rpm --verifydb 2>&1; fi
echo "## kernel modules"
find /lib/modules /usr/lib/modules -xdev -name 'nvidia*.ko*' -printf '%p %F\n' 2>/dev/null | awk '{print $1}' | sort -u
find /lib/modules/ -xdev -type f -size 0 -newer /etc/hostname -printf 'empty %p\n' | grep -v '/build/' | sort
dkms status 2>/dev/null | sort
some() { # all files of gpuprep and of settings, but those that each machine or run has of its own
  find /etc /usr/local /opt -xdev \( -path /etc/ssh -o -path /etc/dkms -o -name __pycache__ \) -prune -o -not -type d \
    -not -name '*-' -not -name 'ld.so.cache*' -not -name machine-id -not -name hostname -not -name hosts \
    -not -name .pwd.lock -not -name .updated -not -name resolv.conf "$@"
}
echo "## files"; some -printf '%M %u %p %l\n' | sort
echo "## contents"; some -type f -not -path '/opt/gpuprep/*/lib/*' -not -name provenance.json -not -name drift.json \
  -not -name compiled.json -not -name versionlock.list -print0 | xargs -0 sha256sum | sort -k2
for f in $(find /etc/gpuprep /var/lib/gpuprep -name '*.json' 2>/dev/null); do
  python3 -m json.tool $f >/dev/null || echo "$f is no JSON"
done
echo "## what was there before gpuprep"; test ! -e /var/lib/gpuprep/before.json || python3 -c '
import json
for name, value in json.load(open("/var/lib/gpuprep/before.json")).items():
    for part in value.items() if isinstance(value, dict) else [] if name == "written_at" else [("", value)]:
        print(name, *part)
' | sort
echo "## driver of before"; test ! -e /var/lib/gpuprep/driver-before/program.pyz ||
  python3 -I /var/lib/gpuprep/driver-before/program.pyz show | python3 -c '
import json, sys
shown = json.load(sys.stdin)
print((shown["saved"] or {}).get("driver"), shown["journal"]["status"])
for name in ("loaded", "install", "remove"):
    print(name, shown.get(name))
'
echo "## units"
systemctl list-unit-files --no-legend --no-pager --plain | awk '!/^(run|session)-/ {print $1, $2}' | sort
systemctl list-units --failed --no-legend --no-pager --plain | awk '/gpuprep|nvidia|dkms|apt|dnf/ {print "failed", $1}'
systemctl is-active gpuprep-tune nvidia-persistenced gpuprep-drift.timer
systemctl list-units --type=timer --state=active --no-legend --no-pager --plain | awk '{print "timer", $1}' | sort
echo "## GPU"
nvidia-smi --query-gpu=persistence_mode,power.limit,clocks.applications.graphics,compute_mode --format=csv,noheader
head -n1 /proc/driver/nvidia/version
echo "## left files"
find /tmp /var/tmp /root/.ansible /home/debian/.ansible /run/gpuprep /var/lib/gpuprep /opt/gpuprep -xdev \
  \( -name '*ansible-*' -o -name 'gpuprep*' -o -name '.*' -o -name '*.tmp' -o -name '*.new' -o -name '*.partial' \) \
  -not -name '.ansible' -not -path '/tmp/.*-unix' -not -path '/tmp/*/tmp/*' -not -path '/tmp/systemd-private*' \
  2>/dev/null | sort
echo "## left processes"
for p in /proc/[0-9]*; do
  tr '\0' '\n' 2>/dev/null <$p/environ | grep -q ^GPUPREP_RUN= && echo "of a run: $(tr '\0' ' ' <$p/cmdline)"
  tr '\0' ' ' 2>/dev/null <$p/cmdline | grep -q 'gpuprep-[a]gent' && echo "an agent: $(cat $p/comm)"
  case "$(cat $p/comm 2>/dev/null)" in
    gpg-agent|dirmngr|apt|apt-get|dpkg|dnf|rpm|dkms|make|cc1) echo "left: $(tr '\0' ' ' <$p/cmdline)" ;;
  esac
done
test ! -e /run/gpuprep/lock || flock -n /run/gpuprep/lock true || echo "the lock is held"
true
"""


def state(machine: str) -> dict[str, list[str]]:
    """The sections of STATE, once nothing of a run is at work any more."""
    end = time.monotonic() + SETTLED_SECONDS
    while True:
        sections: dict[str, list[str]] = {}
        for line in inside(machine, STATE).stdout.splitlines():
            if line.startswith("## "):
                lines = sections.setdefault(line, [])
            else:
                lines.append(line)
        if not sections["## left processes"] or time.monotonic() > end:
            return sections


def differences(wanted: Mapping[str, Sequence[str]], found: Mapping[str, Sequence[str]]) -> list[str]:
    lines = []
    for section, ones in wanted.items():
        missing, new = Counter(ones) - Counter(found[section]), Counter(found[section]) - Counter(ones)
        lines += [f"{section}: - {line}" for line in missing] + [f"{section}: + {line}" for line in new]
    return lines


# ---------------------------------------------------------------- the network between


class Network:
    """All between this computer and one machine's sshd: open, or cut as a cable is: no byte and no end passes."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._open = threading.Event()
        self._open.set()
        self._lost: set[socket.socket] = set()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._open.clear()

    def heal(self, *, half_open: bool = False) -> None:
        """`half_open`: a router in between forgot the connections of before, so neither side hears of their end."""
        if half_open:
            self._lost.update(one for pair in self._pairs for one in pair)
        self._open.set()

    def close(self) -> None:
        self._open.set()
        self._listener.close()
        for pair in self._pairs:
            for one in pair:
                one.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self._open.wait()
            if near.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == CLOSE_WAIT:
                near.close()  # whoever called while it was cut gave up: its packets never reached the machine
                continue
            try:
                far = socket.create_connection(("127.0.0.1", self._to), timeout=10)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            self._pairs.append((near, far))
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(one, other), daemon=True).start()

    def _pump(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while block := one.recv(1 << 16):
                self._open.wait()
                if one in self._lost:
                    return
                other.sendall(block)
        self._open.wait()
        if one not in self._lost:
            with contextlib.suppress(OSError):
                other.shutdown(socket.SHUT_WR)


# ---------------------------------------------------------------- a machine and a command on it


class Machine:
    """A simulated machine for one command, in the command's first state, reached through a Network."""

    def __init__(self, name: str, command: Command, system: str, disks: Disks) -> None:
        self.name = name
        self.folder = store.folder(name)
        source = disks.of(command.state, system)
        gpuprep("sim", "down", name)
        how = ("--clone-of", source) if source else ("--os", system)
        must("sim", "up", name, *how, *flags(["t4"]))
        if not source and system == "debian13":
            compile_quickly(name)
        for line in command.undo:
            inside(name, line)
        description = store.read(name)
        self.network = Network(description.port)
        known = self.folder / "ssh/known_hosts"
        known.write_text(known.read_text().replace(f":{description.port} ", f":{self.network.port} "))
        store.write(dataclasses.replace(description, port=self.network.port))

    def cut_power(self, unwritten: float = 0.0) -> None:
        # What was written before a restart of the machine itself is on the disk: the shutdown wrote it there.
        nspawn = store.process(self.name, "nspawn")
        boots = psutil.Process(nspawn).children() if nspawn else []
        booted = max((one.create_time() for one in boots), default=time.time())
        for role in ("supervisor", "nspawn"):
            if pid := store.process(self.name, role):
                os.kill(pid, signal.SIGKILL)
        while cgroup.processes(self.folder):
            cgroup.kill(self.folder)
            time.sleep(0.02)  # they are nobody's children here
        if unwritten:
            empty_unwritten(self.name, max(time.time() - unwritten, booted))

    def up(self) -> None:
        must("sim", "up", self.name)

    def down(self) -> None:
        self.network.close()
        gpuprep("sim", "down", self.name)


# New files that were not written to the disk have their name and no content after a power cut (ext4, XFS). Not these:
# packages' own, which dpkg writes before it names them; what gpuprep's agent writes (agent/programs/atomicfile.py) and
# installed builds (os.sync); what the system's own programs write on purpose before they name it, and logs.
EMPTIED = ("etc", "usr/local", "opt", "lib/modules", "usr/lib/modules", "var/lib/dkms", "usr/src", "root", "home")
NOT_EMPTIED = re.compile(
    r"etc/(systemd/system/gpuprep-driver-check\.service|passwd|group|shadow|gshadow|subuid|subgid|machine-id|hostname|ssh/|ld\.so\.cache)"
)


def empty_unwritten(name: str, since: float) -> list[str]:
    """Empties files of the machine, which is off, that are younger than `since` and took no older file's place."""
    upper = store.folder(name) / "upper"
    description = store.read(name)
    below = [*map(Path, description.layers), Path(description.base)]
    lists = [
        path for path in (upper / "var/lib/dpkg/info").glob("*.list") if path.is_file()
    ]  # no mark of a removed one
    packaged = {line for path in lists for line in path.read_text().splitlines()}
    emptied = []
    for top in EMPTIED:
        for folder, _, names in os.walk(upper / top):
            for file in names:
                path = Path(folder, file)
                inner = str(path.relative_to(upper))
                facts = path.lstat()
                replaced = any((layer / inner).is_file() for layer in below)
                if (
                    path.is_symlink() or not path.is_file() or facts.st_ctime < since or replaced
                    or f"/{inner}" in packaged or f"/{inner.removeprefix('usr/')}" in packaged
                    or NOT_EMPTIED.match(inner) or inner.endswith((".dpkg-new", ".dpkg-tmp"))
                ):  # fmt: skip
                    continue
                os.truncate(path, 0)
                emptied.append(inner)
    (store.folder(name) / "emptied").write_text("\n".join(emptied))
    return emptied


class Disks:
    """The disks that machines are copied from, each made when it is first asked for."""

    def __init__(self, given: str) -> None:
        self._given = given  # a stopped machine that is a finished T4
        self._made: dict[tuple[str, str], str] = {}
        self._making = threading.RLock()

    def of(self, kind: str, system: str) -> str:
        """The machine to clone; "" for a bare one."""
        if not kind:
            return ""
        with self._making:
            if (kind, system) not in self._made:
                self._made[kind, system] = self._stub(kind, system) if system in STUBS else self._whole()
            return self._made[kind, system]

    def _whole(self) -> str:
        if self._given:
            return self._given
        with tempfile.TemporaryDirectory() as folder:
            return finished.kept_disk(Path(folder))

    def _stub(self, kind: str, system: str) -> str:
        name = f"chaos-{kind}-{system}-{os.getpid()}"
        gpuprep("sim", "down", name)
        how = ("--clone-of", self.of(WHOLE, system)) if kind == CHANGED else ("--os", system)
        must("sim", "up", name, *how, *flags(["t4"]))
        with tempfile.TemporaryDirectory() as folder:
            wish = profile(Path(folder), BRANCHES[kind])
            must("provision", f"sim:{name}", "--profile", str(wish), "--no-validate")
        must("sim", "down", "--keep", name)
        return name

    def remove(self) -> None:
        for (_, system), name in self._made.items():
            if system in STUBS:
                gpuprep("sim", "down", name)


def profile(folder: Path, branch: str) -> Path:
    path = folder / "chaos.yml"
    path.write_text(PROFILE.format(source="nvidia", version=branch, cuda="none"))
    return path


TIME = re.compile(r"^\s*[\d:]+ ")
# A line that comes again while a step lasts, and how long it took.
STILL = re.compile(r"( \.\.\.|, \d+:\d\d)$")
TOOK = re.compile(r" \(\d+:\d\d\)$")


def step(line: str) -> str:
    """A line of progress without times; "" for one that depends on the speed."""
    text = TOOK.sub("", TIME.sub("", line.rstrip("\n")))
    return "" if STILL.search(text) else text.strip()


class Call:
    """One call of gpuprep: its process, and its progress as it comes."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str]) -> None:
        self.began = time.monotonic()
        self.lines: list[tuple[float, str]] = []
        self._more = threading.Condition()
        self._ended = False
        self.process = subprocess.Popen(
            [GPUPREP, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            errors="replace", env={**os.environ, **environment}, cwd="/", start_new_session=True,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        with self.process.stdout as output:
            for line in output:
                with self._more:
                    self.lines.append((time.monotonic() - self.began, line))
                    self._more.notify_all()
        with self._more:
            self._ended = True
            self._more.notify_all()

    def steps(self) -> list[tuple[float, str]]:
        return [(when, text) for when, line in self.lines if (text := step(line))]

    def reached(self, text: str, times: int) -> bool:
        """Wait until this step was printed so often; False if the command ended before."""
        with self._more:
            while True:
                if sum(one == text for _, one in self.steps()) >= times:
                    return True
                if self._ended:
                    return False
                self._more.wait()

    def within(self, seconds: float) -> bool:
        """Wait in the step of now: for so long, or to its end on a faster machine. False if the command ended."""
        end = time.monotonic() + seconds
        with self._more:
            steps = len(self.steps())
            while not self._ended and len(self.steps()) == steps and time.monotonic() < end:
                self._more.wait(end - time.monotonic())
            return not self._ended

    def pause(self, seconds: float) -> bool:
        """Wait; False if the command ended meanwhile."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
            return False
        return True

    def end(self, seconds: float | None = None) -> int | None:
        """Its exit code; None: it has not ended in time, and is killed."""
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return None
        self._reader.join(5)  # not for ever: what it left alive may have its output
        return code

    @property
    def text(self) -> str:
        return "".join(line for _, line in self.lines)


@dataclass
class Undisturbed:
    """How a command goes and ends when nothing happens to it."""

    code: int
    seconds: float
    steps: list[tuple[float, str]]
    state: dict[str, list[str]]

    def moment(self, share: float) -> tuple[str, int, float]:
        """The last step before this share of the time, how often it was printed by then, and the seconds since it."""
        when = share * self.seconds
        before = [(time_, text) for time_, text in self.steps if time_ <= when]
        if not before:
            return "", 0, when
        at, text = before[-1]
        return text, sum(one == text for _, one in before), when - at


# ---------------------------------------------------------------- a round


@dataclass
class Result:
    plan: Plan
    at: str
    lost: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Home:
    """What one machine's commands have on this computer: a store, a folder for temporary files, their mark."""

    def __init__(self, logs: Path, name: str) -> None:
        self.logs = logs
        self.temporary = Path(tempfile.mkdtemp(prefix="ch-"))  # short: control sockets of ssh are in it
        self.mark = f"{name}-{os.getpid()}"
        self.environment = {
            MARK: self.mark, "TMPDIR": str(self.temporary), "GPUPREP_STORE": f"sqlite:///{logs}/history.db",
        }  # fmt: skip

    def alive(self) -> list[str]:
        """The programs here that a round's commands have left."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                ours = process.environ().get(MARK) == self.mark or str(self.temporary) in " ".join(process.cmdline())
                if ours and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(" ".join(process.cmdline())[:200])
        return found

    def left(self) -> list[str]:
        """What is wrong on this computer once all is done."""
        end = time.monotonic() + 15
        while (alive := self.alive()) and time.monotonic() < end:
            time.sleep(0.1)  # they are nobody's children here
        lines = [f"alive here: {line}" for line in alive]
        lines += [f"left in the temporary folder: {path.name}" for path in self.temporary.iterdir()]
        for words in (("history", "--json"), ("report", "last")):
            done = gpuprep(*words, environment=self.environment)
            if done.exit_code != 0 or "Traceback" in done.text:
                lines.append(f"gpuprep {' '.join(words)}: exit {done.exit_code}: {done.text[-500:]}")
            (self.logs / f"{words[0]}.txt").write_text(done.text)
        runs = state_dir() / "running"
        lines += [f"half a record: {path.name}" for path in runs.glob("*.new")]
        return lines

    def remove(self) -> None:
        shutil.rmtree(self.temporary, ignore_errors=True)


class Chaos:
    def __init__(self, seed: int, disk: str = "") -> None:
        self.seed = seed
        self.disks = Disks(disk)
        self._undisturbed: dict[tuple[str, str], Undisturbed] = {}
        self._measuring = {(name, system): threading.Lock() for name, one in COMMANDS.items() for system in one.systems}

    def words(self, plan: Plan, machine: str, folder: Path) -> list[str]:
        command = COMMANDS[plan.command]
        wish = "t4" if plan.system == "debian13" else str(profile(folder, BRANCHES[CHANGED]))
        first = 2 if command.words[1:2] == ("schedule",) else 1
        more = [*(("--profile", wish) if command.profile else ()), *(("-v",) if command.words[0] != "drift" else ())]
        return [*command.words[:first], f"sim:{machine}", *command.words[first:], *more]

    def undisturbed(self, plan: Plan) -> Undisturbed:
        key = (plan.command, plan.system)
        with self._measuring[key]:
            if key not in self._undisturbed:
                self._undisturbed[key] = self._measured(plan)
        return self._undisturbed[key]

    def _measured(self, plan: Plan) -> Undisturbed:
        name = f"chaos-{self.seed}-{plan.command}-{plan.system}"
        logs = fresh(LOGS / f"{self.seed}-{plan.command}-{plan.system}")
        home = Home(logs, name)
        machine = Machine(name, COMMANDS[plan.command], plan.system, self.disks)
        try:
            call = Call(self.words(plan, name, logs), home.environment)
            code = call.end()
            assert code is not None
            (logs / "undisturbed.txt").write_text(call.text)
            made = Undisturbed(code, call.lines[-1][0], call.steps(), state(name))
            left = home.left()
        finally:
            machine.down()
            home.remove()
        (logs / "state.txt").write_text("\n".join(line for part in made.state.values() for line in part))
        assert code in (0, 1), f"it fails undisturbed, with {code}: {call.text[-1500:]}"
        assert "Traceback" not in call.text, call.text
        assert not left, left
        print(f"  undisturbed {plan.command} on {plan.system}: exit {code}, {made.seconds:.0f} s", flush=True)
        return made

    def play(self, plan: Plan) -> Result:
        wanted = self.undisturbed(plan)
        began = time.monotonic()
        text, times, more = wanted.moment(plan.share)
        result = Result(plan, f"{more:.1f} s after {text!r}" if text else f"{more:.1f} s after its start")
        name = f"chaos-{plan.seed}-{plan.number}"
        logs = fresh(LOGS / f"{plan.seed}-{plan.number}")
        home = Home(logs, name)
        machine = Machine(name, COMMANDS[plan.command], plan.system, self.disks)
        try:
            words = self.words(plan, name, logs)
            (logs / "plan.txt").write_text(f"{plan}\n{result.at}\n{shlex.join(words)}\n{plan.repeat}\n")
            call = Call(words, home.environment)
            if plan.late:
                met, result.at = call.end() is not None, "right after its end"
            else:
                met = (not text or call.reached(text, times)) and call.within(more)
            if met:
                self._disturb(plan, machine, call, result)
            else:
                result.notes.append("it ended before the moment")
            code = call.end(ENDS_WITHIN)
            machine.network.heal(half_open=plan.kind == "cut-half-open")
            (logs / "disturbed.txt").write_text(call.text)
            self._judge_disturbed(call, code, wanted, result)
            again = self._again(words, home, logs, wanted, result)
            found = state(name)
            (logs / "state.txt").write_text("\n".join(line for part in found.values() for line in part))
            if again != wanted.code:
                result.lost.append(f"the same command ended with {again}, undisturbed with {wanted.code}")
            result.lost += differences(wanted.state, found)
            result.lost += home.left()
        finally:
            emptied = machine.folder / "emptied"
            if emptied.exists():
                shutil.copy(emptied, logs / "emptied.txt")
            machine.down()
            home.remove()
        (logs / "lost.txt").write_text("\n".join(result.lost))
        result.seconds = time.monotonic() - began
        return result

    def _disturb(self, plan: Plan, machine: Machine, call: Call, result: Result) -> None:
        pid = call.process.pid
        if plan.kind == "kill":
            call.process.kill()
        elif plan.kind == "kill-group":
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        elif plan.kind == "kill-ansible":
            if (ansible := playing(call)) is None:
                result.notes.append("Ansible did not run any more")
            else:
                with contextlib.suppress(psutil.NoSuchProcess):
                    ansible.kill()
        elif plan.kind in ("power", "power-unwritten"):
            machine.cut_power(plan.seconds if plan.kind == "power-unwritten" else 0.0)
            call.pause(plan.seconds)
            machine.up()
        elif plan.kind == "cut":
            machine.network.cut()
            call.pause(plan.seconds)
            machine.network.heal()
        elif plan.kind in ("cut-for-good", "cut-half-open"):
            machine.network.cut()
        elif plan.kind == "stop":
            os.kill(pid, signal.SIGSTOP)
            time.sleep(plan.seconds)  # the disturbance itself
            os.kill(pid, signal.SIGCONT)
        elif plan.kind == "stop-packages":
            stopped = managers(machine.folder, call)
            result.notes.append(f"stopped {', '.join(one.name() for one in stopped) or 'nothing'}")
            for one in stopped:
                with contextlib.suppress(psutil.Error):
                    one.suspend()
            call.pause(plan.seconds)
            for one in stopped:
                with contextlib.suppress(psutil.Error):
                    one.resume()

    def _judge_disturbed(self, call: Call, code: int | None, wanted: Undisturbed, result: Result) -> None:
        if "Traceback" in call.text or "went wrong inside gpuprep" in call.text:
            result.lost.append(f"a traceback when it was disturbed: {call.text[-600:]}")
        if code is None:
            result.lost.append(f"the disturbed command did not end within {ENDS_WITHIN:.0f} s: {call.text[-600:]}")
        elif code >= 0 and code not in (wanted.code, 3, 4) and "the simulated VM" not in call.text:
            result.lost.append(f"the disturbed command ended with {code}: {call.text[-600:]}")
        result.notes.append(f"disturbed: exit {code}")

    def _again(self, words: Sequence[str], home: Home, logs: Path, wanted: Undisturbed, result: Result) -> int | None:
        """The same command again; once more where it says what of the first one is still at work on the host."""
        end = time.monotonic() + WAITS_SECONDS
        while True:
            call = Call(words, home.environment)
            code = call.end(3 * ENDS_WITHIN)
            (logs / "again.txt").write_text(call.text)
            if "Traceback" in call.text:
                result.lost.append(f"a traceback of the same command: {call.text[-600:]}")
            waits = [words for words in WAITS if words in call.text]
            if code not in (2, 3) or not waits or time.monotonic() > end:
                if code != wanted.code:
                    result.lost.append(call.text[-1500:])
                return code
            note = f"again: {waits[0]}"
            if note not in result.notes:
                result.notes.append(note)
            time.sleep(1)  # as a person would: what is at work tells nobody when it ends


def playing(call: Call) -> psutil.Process | None:
    """Ansible's first process below the call, awaited; None if the call ended before."""
    while call.process.poll() is None:
        with contextlib.suppress(psutil.Error):
            for process in psutil.Process(call.process.pid).children(recursive=True):
                words = process.cmdline()
                if "keeper.py" not in " ".join(words) and any(word.endswith("ansible-playbook") for word in words):
                    return process
        time.sleep(0.05)  # no event tells when a program has started another
    return None


MANAGERS = ("apt-get", "dpkg", "dnf", "rpm")


def managers(folder: Path, call: Call) -> list[psutil.Process]:
    """The machine's package managers at work, awaited; none if the call ended before."""
    while call.process.poll() is None:
        found = []
        for pid in cgroup.processes(folder):
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                if process.name() in MANAGERS:
                    found.append(process)
        if found:
            return found
        time.sleep(0.05)
    return []


def fresh(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


# ---------------------------------------------------------------- all rounds


def played(chaos: Chaos, plan: Plan) -> Result:
    try:
        return chaos.play(plan)
    except (AssertionError, OSError, subprocess.SubprocessError) as error:
        return Result(plan, "", [f"the round could not be played: {error}"])


def told(result: Result) -> str:
    plan = result.plan
    notes = f" ({'; '.join(result.notes)})" if result.notes else ""
    line = (
        f"round {plan.number}: {plan.title}, {result.at}: {'LOST' if result.lost else 'same'}, {result.seconds:.0f} s"
    )
    if not result.lost:
        return line + notes
    lines = "\n".join(f"    {text}" for text in result.lost[:40])
    return f"{line}{notes}\n{lines}\n    logs: {LOGS / f'{plan.seed}-{plan.number}'}\n    again: {plan.repeat}"


def table(results: Sequence[Result], of: Callable[[Plan], str]) -> list[str]:
    played = Counter(of(result.plan) for result in results)
    lost = Counter(of(result.plan) for result in results if result.lost)
    return [f"  {name:16} {count:4} played {lost[name]:4} lost" for name, count in sorted(played.items())]


def end(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=10, metavar="N")
    parser.add_argument("--seed", type=int, help="a number; without one, another in each run")
    parser.add_argument("--round", type=int, metavar="K", help="this round alone")
    parser.add_argument("--only", default="", metavar="COMMAND,...", help=", ".join(COMMANDS))
    parser.add_argument("--system", choices=["debian13", *STUBS], default="", metavar="OS")
    parser.add_argument("--disturb", choices=KINDS, default="", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="so many rounds at a time")
    parser.add_argument("--disk", default="", help="a stopped machine: a finished T4 on Debian 13")
    asked = parser.parse_args(arguments)
    seed = asked.seed if asked.seed is not None else random.SystemRandom().randrange(10_000)
    print(f"seed {seed}", flush=True)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    numbers = [asked.round] if asked.round is not None else range(1, asked.rounds + 1)
    try:
        plans = [planned(seed, number, asked.only, asked.system, asked.disturb) for number in numbers]
    except ValueError as error:
        parser.error(str(error))
    chaos = Chaos(seed, asked.disk)
    results = []
    try:
        with ThreadPoolExecutor(asked.jobs) as pool:
            begun = [pool.submit(played, chaos, plan) for plan in plans]
            try:
                for done in as_completed(begun):
                    results.append(done.result())
                    print(told(results[-1]), flush=True)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
    finally:
        chaos.disks.remove()
    lost = [result for result in results if result.lost]
    print(f"\n{len(results)} rounds, {len(lost)} lost")
    print("\n".join([*table(results, lambda plan: plan.command), *table(results, lambda plan: plan.kind)]))
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
