"""Runs several FFmpeg processes at once, watches them through `-progress pipe:1`, and ends them after the wanted time.

One loop reads every session's stdout (progress) and stderr (what went wrong); there is no thread, and no pipe fills up.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import time
from dataclasses import dataclass, field
from typing import Callable, ContextManager, Dict, List, Mapping, Optional, Sequence, Tuple

from gpuprep.agent.programs import children

# ---------------------------------------------------------------- progress

# What `ffmpeg -progress` reports, and the steady state of several sessions that run at once. FFmpeg writes blocks of
# `key=value` lines; each ends with `progress=continue`, the last one with `progress=end`. `frame` is the number of
# frames that left the session: decoded ones where the output is null, else encoded ones.

LONGEST_LINE = 4096  # what is longer is no progress line; it is dropped and does not pile up


@dataclass
class Progress:
    """One session's report as it arrives: bytes in any pieces ─► (seconds by the caller's clock, frames) per block."""

    samples: List[Tuple[float, int]] = field(default_factory=list)
    ended: bool = False  # FFmpeg itself reported that it was done
    _rest: bytes = b""
    _frames: Optional[int] = None

    def feed(self, data: bytes, now: float) -> None:
        """Add bytes that came at `now`. An incomplete line waits for its rest; a line without a number is ignored."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > LONGEST_LINE:
            self._rest = b""
        for line in lines:
            key, _, value = line.partition(b"=")
            word = value.strip()
            if key == b"frame":
                self._frames = int(word) if word.isdigit() and len(word) < 19 else None
            elif key == b"progress":
                self._block(now)
                self.ended = self.ended or word == b"end"

    def _block(self, now: float) -> None:
        # A counter that goes back is no counter: a frame is never taken back.
        if self._frames is not None and (not self.samples or self._frames >= self.samples[-1][1]):
            self.samples.append((now, self._frames))
        self._frames = None

    @property
    def began(self) -> Optional[float]:
        """When the first frame was delivered; None: not yet."""
        return next((seconds for seconds, frames in self.samples if frames > 0), None)

    @property
    def frames(self) -> int:
        return self.samples[-1][1] if self.samples else 0

    @property
    def until(self) -> float:
        """When it last delivered: the last report; for a session that ended, the first report with all frames."""
        if not self.ended:
            return self.samples[-1][0]
        return next(seconds for seconds, frames in self.samples if frames == self.frames)

    def frames_at(self, moment: float) -> float:
        """Frames delivered until `moment`, interpolated between two reports."""
        before = (moment, 0)
        for seconds, frames in self.samples:
            if seconds >= moment:
                span = seconds - before[0]
                return frames if span <= 0 else before[1] + (frames - before[1]) * (moment - before[0]) / span
            before = (seconds, frames)
        return before[1]


@dataclass(frozen=True)
class Steady:
    """The time while all sessions delivered: `fps_each` in the order of the sessions, `fps` their sum."""

    seconds: float
    frames: int
    fps_each: Tuple[float, ...]

    @property
    def fps(self) -> float:
        return sum(self.fps_each)


def steady_state(sessions: Sequence[Progress]) -> Optional[Steady]:
    """Speed from the moment when the last session began to deliver until the first session's last report.

    None: there was no such time. Frames before and after do not count, so start-up and the end of a short input do not
    count either.
    """
    starts = [session.began for session in sessions]
    if not sessions or any(start is None for start in starts):
        return None
    start = max(start for start in starts if start is not None)
    end = min(session.until for session in sessions)
    if end <= start:
        return None
    delivered = [session.frames_at(end) - session.frames_at(start) for session in sessions]
    rates = tuple(frames / (end - start) for frames in delivered)
    return Steady(end - start, round(sum(delivered)), rates)


# ---------------------------------------------------------------- sessions

PATIENCE = 20.0  # seconds until a session must have delivered its first frame
STALL = 8.0  # seconds without a further frame, of a session that delivered before
FAREWELL = 4.0  # seconds from asking a session to end until it is killed
ENDED = "it ended"  # by itself; otherwise it was killed, or fell silent
KEPT = 32768  # bytes of stderr kept from its begin, and as many from its end


@dataclass
class Session:
    process: "subprocess.Popen[bytes]"
    progress: Progress = field(default_factory=Progress)
    head: bytes = b""
    tail: bytes = b""
    heard: float = 0.0  # when it last delivered, or was started
    died: str = ""  # how it ended before its time; "": it did not

    def complain(self, data: bytes) -> None:
        room = KEPT - len(self.head)
        self.head += data[:room]
        self.tail = (self.tail + data[room:])[-KEPT:]

    @property
    def error_output(self) -> str:
        return (self.head + self.tail).decode(errors="replace")


@dataclass(frozen=True)
class Together:
    """Result of one run. `steady` is of the surviving sessions; None: they never all delivered at the same time."""

    sessions: int
    died: Tuple[Tuple[str, str], ...]  # of each session that died: ("it ended with exit code 1", its stderr)
    steady: Optional[Steady]
    frames: int  # of all sessions, start-up included
    start_seconds: float  # until the last of them delivered
    seconds: float


def together(
    commands: Sequence[Sequence[str]],
    *,
    seconds: float,
    environment: Mapping[str, str],
    during: Callable[[], ContextManager[object]] = contextlib.nullcontext,
    patience: float = PATIENCE,
    stall: float = STALL,
) -> Together:
    """Runs the commands at once until all have delivered for `seconds`, or the first one ends.

    `during` is entered when all sessions deliver and left before the first is told to end. Raises OSError if the
    program cannot be started. No process is left behind.
    """
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        sessions: List[Session] = []
        stack.callback(_end, sessions)
        for command in commands:
            process = children.start(
                list(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env=dict(environment),
            )  # fmt: skip
            sessions.append(Session(process, heard=started))
        began = _watch(sessions, seconds, during, patience, stall)
    alive = [session for session in sessions if not session.died]
    return Together(
        sessions=len(sessions),
        died=tuple((session.died, session.error_output) for session in sessions if session.died),
        steady=steady_state([session.progress for session in alive]),
        frames=sum(session.progress.frames for session in sessions),
        start_seconds=(began or time.monotonic()) - started,
        seconds=time.monotonic() - started,
    )


def _watch(
    sessions: Sequence[Session],
    seconds: float,
    during: Callable[[], ContextManager[object]],
    patience: float,
    stall: float,
) -> Optional[float]:
    """The moment at which all sessions delivered; None: never."""
    began: Optional[float] = None
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as meanwhile:
        for session in sessions:
            for pipe in (session.process.stdout, session.process.stderr):
                assert pipe is not None
                selector.register(pipe, selectors.EVENT_READ, session)
        while True:
            _read(selector)
            now = time.monotonic()
            for session in sessions:
                _see(session, now, patience if session.progress.began is None else stall)
            alive = [session for session in sessions if not session.died]
            if not alive or any(session.progress.ended for session in alive):
                return began
            if began is None and all(session.progress.began is not None for session in alive):
                began = now
                meanwhile.enter_context(during())
            if began is not None and now - began >= seconds:
                return began


def _read(selector: selectors.BaseSelector) -> None:
    for key, _ in selector.select(timeout=0.05):
        session: Session = key.data
        data = os.read(key.fd, 65536)
        now = time.monotonic()
        if not data:
            selector.unregister(key.fileobj)
        elif key.fileobj is session.process.stdout:
            before = session.progress.frames
            session.progress.feed(data, now)
            if session.progress.frames > before:
                session.heard = now
        else:
            session.complain(data)


def _see(session: Session, now: float, patience: float) -> None:
    """Note whether a session has died: it failed, delivered nothing, or stopped delivering."""
    if session.died:
        return
    if session.progress.ended:
        # FFmpeg says so a moment before it ends, also where it failed: only its exit code tells the two apart.
        with contextlib.suppress(subprocess.TimeoutExpired):
            session.process.wait(FAREWELL)
    code = session.process.poll()
    if code is not None:
        _drain(session)
        if code or not session.progress.ended or not session.progress.frames:
            session.died = f"{ENDED} with exit code {code}" if code >= 0 else f"it was killed by signal {-code}"
    elif now - session.heard > patience:
        session.died = f"no frame for {patience:g} s"


def _drain(session: Session) -> None:
    """Read the rest of a session's output after its end."""
    for pipe, take in (
        (session.process.stdout, lambda data: session.progress.feed(data, time.monotonic())),
        (session.process.stderr, session.complain),
    ):
        assert pipe is not None
        os.set_blocking(pipe.fileno(), False)
        with contextlib.suppress(BlockingIOError):
            while data := os.read(pipe.fileno(), 65536):
                take(data)


def _end(sessions: Sequence[Session]) -> None:
    """Ask all sessions to end, kill those that do not; reap each and close its pipes."""
    for session in sessions:
        session.process.terminate()
    deadline = time.monotonic() + FAREWELL
    for session in sessions:
        with contextlib.suppress(subprocess.TimeoutExpired):
            session.process.wait(timeout=max(0.0, deadline - time.monotonic()))
        children.end(session.process)
        for pipe in (session.process.stdout, session.process.stderr):
            if pipe is not None:
                pipe.close()


def environment(extra: Mapping[str, str]) -> Dict[str, str]:
    """Our environment, with messages in English, and `extra` added."""
    return {**os.environ, "LC_ALL": "C", **extra}
