"""Ends the agent's programs and removes its folders when the agent ends: killed, by ^C, or because its reader is gone.

watch() forks a keeper: a process that only waits for the agent to end or for its reader to go away. Then it kills what
the agent started and removes its scratch folders. It is a process because a thread would not survive `kill -9` of the
agent or a call that never returns, and because PR_SET_PDEATHSIG does not reach grandchildren.

Without watch() (tests), start, run and scratch still clean up after themselves.
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
    """The pipe to the keeper, and the mark of this agent's children; both empty without watch()."""

    line: int = -1
    mark: str = ""


def watch() -> None:
    """Start the keeper: programs of this process end with it, and it ends with the reader of its stdout.

    Call it once, from the main thread, before other threads start. TERM, HUP and INT end the agent with 128 plus their
    number, by SystemExit, so `with` and `finally` still clean up.
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
    """Tells the keeper when it is reaped: from then on another program may get its process id."""

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
    """subprocess.Popen in a session of its own. The caller ends it with end(); if the caller fails, the keeper does.

    `marked` False: programs that it leaves running on purpose may live on, such as those of a login shell's profile.
    Raises OSError if it cannot be started; trusted.NotTrusted if root would run a file that another user can change.
    """
    environment: Optional[Mapping[str, str]] = popen.pop("env", None)
    if trusted.is_root():
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
    """The file of the program, searched as execvp does; `program` itself if there is none. Raises NotTrusted."""
    places = [program] if "/" in program else [f"{folder}/{program}" for folder in search.split(":") if folder]
    for place in places:
        path = place if place.startswith("/") else f"{cwd}/{place}"
        if os.access(path, os.X_OK) and not Path(path).is_dir():
            if why := trusted.untrusted_reason(path):
                raise trusted.NotTrusted(f"root does not run {path}: {why}")
            return path
    return program


def end(process: "subprocess.Popen[bytes]") -> None:
    """Kill the program and all processes of its group, and reap it. Does nothing if it was reaped before."""
    if process.returncode is None:
        _kill(os.killpg, process.pid)
    process.wait()


def run(
    argv: Sequence[str], *, timeout: float, stdin: bytes = b"", marked: bool = True, **popen: Any
) -> "subprocess.CompletedProcess[bytes]":
    """subprocess.run with `stdin` as input and both outputs captured. A time-out ends the grandchildren as well.

    Raises OSError if the program cannot be started, and subprocess.TimeoutExpired.
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
    """A temporary folder with `need_mib` MiB of room, removed afterwards. Raises OSError that lists the full places.

    `within`: make it in this folder, so that a file can be renamed from one to the other.
    """
    import shutil  # late imports: facts need no scratch folder, and would take a tenth longer
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix=f"gpuprep-{name}-", dir=str(within) if within else _place(need_mib)))
    _tell(f"/{folder}")
    try:
        yield folder
    finally:
        shutil.rmtree(str(folder), ignore_errors=True)


def _place(need_mib: int) -> str:
    """The first of $TMPDIR, /tmp and /var/tmp with enough room: /tmp may be a small RAM disk. Raises OSError."""
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
    """Tell the keeper of a forked copy of the agent with its own process group: the copy ends with the agent, too."""
    _tell(f"+{pid}")


def release(pid: int) -> None:
    """Tell the keeper that the copy is reaped: another program may get its process id."""
    _tell(f"-{pid}")


def be_child() -> None:
    """Called in a forked copy of the agent: from then on it is a child (see `adopt`), not an agent.

    It closes stdout, stderr and the pipe to the keeper, because others wait for their end.
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
    """Wait for the agent's end, then kill its programs and remove its folders. Never returns."""
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
    """Wait until the agent is gone; returns (process groups that still ran, its scratch folders)."""
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
    """Kill every process with the mark in its environment, until none is left: a dying program may start another.

    Uses only what is already imported: the folders of other modules may be gone by now.
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
    """Ids of processes with the mark. During execve an environment reads as empty: such a process is read again."""
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
        select.poll().poll(PAUSE_MS)  # no event says when execve has ended
    return []


def _environment(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:  # gone, or not ours
        return b""


def _may_be_starting(process: Path) -> bool:
    """Whether a process may be in execve: it has a program (kernel threads have none) and is not older than we are."""
    try:
        os.readlink(str(process / "exe"))  # noqa: PTH115  Path.readlink needs Python 3.9
        return _started(process) >= _started(PROC / "self")
    except (OSError, ValueError, IndexError):  # gone, or not ours
        return False


def _started(process: Path) -> int:
    """Start of a process in clock ticks since boot: field 22 of its stat, after a name with any characters."""
    return int((process / "stat").read_bytes().rpartition(b")")[2].split()[19])
