"""Ends the agent's programs and removes its folders when the agent ends: killed, ^C, or nobody reads its answer.

watch() forks a keeper: a process that does nothing but wait for the agent to end or for its reader to go away. Then it
kills what the agent started and removes its scratch folders. A keeper and not a thread or PR_SET_PDEATHSIG, because it
also outlives `kill -9` of the agent and a call that never returns, and because the latter reaches no grandchildren.

Without watch() (tests) start, run and scratch do the same and clean up after themselves.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from gpuprep.agent.programs import trusted

MARK = "GPUPREP_AGENT"  # in the environment of what the agent starts: whatever that starts in turn has it, too
STARTING_MS, PAUSE_MS = 2000, 20  # for a program to be started, on a busy computer; and between two looks
GRACE_MS = 1500  # for an agent that was told to end: a Ctrl-C at the controller has ended all within 5 s
FAREWELL_MS = 2000  # for a killed process to be gone: one in the middle of writing to a disk takes a moment
PROC = Path("/proc")


class _Agent:
    """The line to the keeper, and the mark of this agent's children; both empty where nobody watches."""

    line: int = -1
    mark: str = ""


def watch() -> None:
    """From now on nothing of this process outlives it, nor does it outlive the reader of its stdout.

    Call it once, from the main thread, before any other thread is there. TERM, HUP and INT end the agent with 128 plus
    their number, by SystemExit: what `with` and `finally` put in order is put in order.
    """
    mark = f"{os.getpid()}-{os.urandom(16).hex()}"
    ears, line = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    agent = os.getpid()
    if os.fork() == 0:
        _be_keeper(agent, ears, line, mark)
    os.close(ears)
    _Agent.line, _Agent.mark = line, mark
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _end)


def _end(number: int, _: Optional[FrameType]) -> None:
    for other in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(other, signal.SIG_IGN)  # a second ^C must not break the tidying up; the keeper has a limit for it
    raise SystemExit(128 + number)


class _Child(subprocess.Popen):  # type: ignore[type-arg]
    """Tells the keeper when it is reaped: from then on its number may be another program's."""

    reaped_noted = False

    def poll(self) -> Optional[int]:
        return self._noted(super().poll())

    def wait(self, timeout: Optional[float] = None) -> int:
        code = super().wait(timeout)
        self._noted(code)
        return code

    def _noted(self, code: Optional[int]) -> Optional[int]:
        if code is not None and not self.reaped_noted:
            self.reaped_noted = True
            _tell(f"-{self.pid}")
        return code


def start(argv: Sequence[str], *, marked: bool = True, **popen: Any) -> "subprocess.Popen[bytes]":
    """subprocess.Popen in a session of its own. Who starts it ends it (end()); the keeper does where that fails.

    `marked` False: what the program leaves running on purpose may live on, as a login shell's profile may start things.
    Raises OSError where it cannot be started; trusted.NotTrusted where root would run what another user can change.
    """
    environment: Optional[Mapping[str, str]] = popen.pop("env", None)
    if trusted.whether_root():
        if environment is not None and "PATH" in environment:
            environment = {**environment, "PATH": trusted.folders(environment["PATH"])}
        search = (os.environ if environment is None else environment).get("PATH", os.defpath)
        popen["executable"] = _that_root_may_run(argv[0], search, popen.get("cwd") or str(Path.cwd()))
    if marked and _Agent.mark:
        environment = {**(os.environ if environment is None else environment), MARK: _Agent.mark}
    process = _Child(
        list(argv), env=None if environment is None else dict(environment), start_new_session=True, **popen
    )
    _tell(f"+{process.pid}")
    return process


def _that_root_may_run(program: str, search: str, cwd: str) -> str:
    """Its file, found as execvp would. What is not there is left to who starts it."""
    places = [program] if "/" in program else [f"{folder}/{program}" for folder in search.split(":") if folder]
    for place in places:
        path = place if place.startswith("/") else f"{cwd}/{place}"
        if os.access(path, os.X_OK) and not Path(path).is_dir():
            if why := trusted.why_not(path):
                raise trusted.NotTrusted(f"root does not run {path}: {why}")
            return path
    return program


def end(process: "subprocess.Popen[bytes]") -> None:
    """Kill the program and what it started and left in its group; reap it. Nothing is done to one that was reaped."""
    if process.returncode is None:
        _kill(os.killpg, process.pid)
    process.wait()


def run(
    argv: Sequence[str], *, timeout: float, stdin: bytes = b"", marked: bool = True, **popen: Any
) -> "subprocess.CompletedProcess[bytes]":
    """subprocess.run with `stdin` as input and both outputs captured. A time-out ends the grandchildren as well.

    Raises OSError where the program cannot be started and subprocess.TimeoutExpired.
    """
    popen.setdefault("stderr", subprocess.PIPE)
    process = start(argv, marked=marked, stdin=subprocess.PIPE, stdout=subprocess.PIPE, **popen)
    with process:
        try:
            output, errors = process.communicate(stdin, timeout)
        except BaseException:
            end(process)
            raise
    return subprocess.CompletedProcess(list(argv), process.returncode, output, errors)


@contextlib.contextmanager
def scratch(name: str, need_mib: int = 16, within: Optional[Path] = None) -> Iterator[Path]:
    """A temporary folder with `need_mib` of room, gone afterwards. Raises OSError that says where no room was.

    `within`: a folder that it is made in, so that a file can be renamed from the one into the other.
    """
    import shutil  # these two cost facts, which need no scratch folder, a tenth of their time
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix=f"gpuprep-{name}-", dir=str(within) if within else _place(need_mib)))
    _tell(f"/{folder}")
    try:
        yield folder
    finally:
        shutil.rmtree(str(folder), ignore_errors=True)


def _place(need_mib: int) -> str:
    """$TMPDIR, /tmp and /var/tmp in this order: /tmp may be memory, and small."""
    import shutil
    import tempfile

    free: Dict[str, int] = {}
    for place in dict.fromkeys([tempfile.gettempdir(), "/tmp", "/var/tmp"]):
        with contextlib.suppress(OSError):
            mib = shutil.disk_usage(place).free // 2**20
            if os.access(place, os.W_OK | os.X_OK):
                free[place] = mib
    for place, mib in free.items():
        if mib >= need_mib:
            return place
    had = ", ".join(f"{mib} MiB in {place}" for place, mib in free.items()) or "none that may be written to"
    raise OSError(f"no room for {need_mib} MiB of temporary files: {had}; free some, or set TMPDIR")


def adopt(pid: int) -> None:
    """A copy of the agent that leads its own process group: it ends with the agent, too."""
    _tell(f"+{pid}")


def release(pid: int) -> None:
    """The same copy is reaped: its number may be another program's."""
    _tell(f"-{pid}")


def be_child() -> None:
    """Called by a copy of the agent: from now on it is a child that `adopt` knows of, and no agent.

    It lets go of what others wait for the end of: the agent's answer, its messages, and the line to the keeper.
    """
    with contextlib.suppress(OSError):  # the agent does the same, and one of the two is first
        os.setpgid(0, 0)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    if _Agent.line >= 0:
        os.close(_Agent.line)
        _Agent.line = -1
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)


def _tell(words: str) -> None:
    if _Agent.line >= 0:
        with contextlib.suppress(OSError):  # without a keeper the agent still does its work
            os.write(_Agent.line, words.encode() + b"\0")


# ---------------------------------------------------------------- the keeper


def _be_keeper(agent: int, ears: int, line: int, mark: str) -> None:
    """Never returns."""
    try:
        os.setsid()  # ^C in a terminal and a lost terminal are the agent's business
        os.close(line)
        for descriptor in (0, 2):  # a reader of stderr must not wait for us
            os.close(descriptor)
        heard = _listen(agent, ears)
        for group in heard[0]:
            _kill(os.killpg, group)
        _kill_marked(f"{MARK}={mark}".encode())
        if heard[1]:
            import shutil
        for folder in heard[1]:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os._exit(0)


def _listen(agent: int, ears: int) -> Tuple[Set[int], List[str]]:
    """Until the agent is gone: the process groups it had running then, and its scratch folders."""
    poll = select.poll()
    poll.register(ears, select.POLLIN)
    poll.register(1, 0)  # POLLERR and POLLHUP come anyhow: nobody reads our stdout any more
    output = b""
    patience: Optional[int] = None
    while True:
        events = dict(poll.poll(patience))
        if not events:
            _kill(os.kill, agent)
            patience = None
        if 1 in events:
            poll.unregister(1)
            _kill(os.kill, agent, signal.SIGTERM)
            patience = GRACE_MS
        if ears in events:
            data = os.read(ears, 65536)
            if not data:
                break
            output += data
    groups: Set[int] = set()
    folders = []
    for word in output.split(b"\0"):
        text = os.fsdecode(word)
        if text[:1] == "/":
            folders.append(text[1:])
        elif text[:1] == "+":
            groups.add(int(text[1:]))
        elif text[:1] == "-":
            groups.discard(int(text[1:]))
    return groups, folders


def _kill(how: Callable[[int, int], None], number: int, with_what: int = signal.SIGKILL) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        how(number, with_what)


def _kill_marked(mark: bytes) -> None:
    """Everything whose environment has the mark, until a look finds nothing: a dying program may start another.

    By hand: this process was forked before anything was imported, and imports nothing from folders that may be gone.
    """
    for _ in range(10):
        pids = _marked(mark)
        if not pids:
            return
        waiter = select.poll()
        for pid in pids:
            with contextlib.suppress(OSError):  # gone already, or a kernel before 5.3
                waiter.register(os.pidfd_open(pid), select.POLLIN)
            _kill(os.kill, pid)
        waiter.poll(FAREWELL_MS)


def _marked(mark: bytes) -> List[int]:
    """While a program is being started (execve) its environment reads as empty: it is looked at again."""
    for _ in range(STARTING_MS // PAUSE_MS):
        pids, starting = [], False
        for path in PROC.iterdir():
            if path.name.isdigit():
                environment = _environment(path)
                if mark in environment.split(b"\0"):
                    pids.append(int(path.name))
                elif not environment and _may_be_starting(path):
                    starting = True
        if pids or not starting:
            return pids
        select.poll().poll(PAUSE_MS)  # the kernel tells nobody when it is done
    return []


def _environment(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:  # gone, or not ours
        return b""


def _may_be_starting(process: Path) -> bool:
    """Whether it has a program, which neither the kernel's own nor dying ones have, and is no older than this one."""
    try:
        os.readlink(str(process / "exe"))  # noqa: PTH115  Path.readlink needs Python 3.9
        return _started(process) >= _started(PROC / "self")
    except (OSError, ValueError, IndexError):  # gone, or not ours
        return False


def _started(process: Path) -> int:
    """Clock ticks since the computer's start: field 22 of its stat, after a name that may have any letter."""
    return int((process / "stat").read_bytes().rpartition(b")")[2].split()[19])
