"""What `ffmpeg -progress` reports, and the steady state of several sessions that run at once. Pure.

FFmpeg writes blocks of `key=value` lines; each ends with `progress=continue`, the last one with `progress=end`. `frame`
is the number of frames that left the session: decoded ones where the output is null, else encoded ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import List, Optional, Sequence, Tuple

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
