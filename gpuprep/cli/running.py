"""The text of one host's row in the live display: events in, words out. Knows no terminal."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gpuprep.workflows.remaining import FACTS, seconds_left, step_of

if TYPE_CHECKING:
    from gpuprep.provisioning.ansible_events import ExpectedStep, Progress


def clock(seconds: float) -> str:
    """Whole minutes and seconds: 65.9 ─► "1:05"."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}:{rest:02d}"


# How a run ended, by its exit code.
ENDED = {0: "ok", 1: "failed", 2: "refused", 4: "failed", 130: "stopped"}
COUNTED = ("ok", "failed", "unknown", "refused", "stopped")


@dataclass
class Running:
    """One host: what runs on it, since when, and how long it takes. `now` is time.monotonic()."""

    host: str
    began: float | None = None  # None: not started yet
    ended: float | None = None
    outcome: str = ""  # how it ended: a word of COUNTED
    step: str = FACTS
    step_began: float = 0.0
    title: str = ""  # of the stage or the task that runs
    title_began: float = 0.0
    waiting: str = ""  # what the task says it waits for
    pieces: str = ""  # of a probe, those that have ended: "transcodes 12/30"
    pace: float | None = None  # the part of the probe that has ended: 0.4
    pace_at: float = 0.0  # when it was reported
    steps: tuple[ExpectedStep, ...] = ()
    spent: dict[str, float] = field(default_factory=dict)
    silent: str = ""  # the time since which the host gives no answer

    @property
    def at_work(self) -> bool:
        return self.began is not None and self.ended is None

    def take(self, event: Progress, now: float) -> None:
        if self.began is None:
            self.began = self.step_began = now
        if event.kind == "silent":
            self.silent = event.detail
        elif event.kind == "steps":
            self.steps = event.steps
        elif event.kind == "stage":
            self._begin(event.task or FACTS, event.detail, now)
        elif event.kind == "task_start":
            self._begin(step_of(event.role), event.task, now)
        elif event.kind == "waiting":
            self.waiting = event.detail
        elif event.kind == "doing":
            self.waiting = event.detail
            self.pieces = f"{event.unit} {event.done}/{event.of}" if event.of else ""
            self.pace, self.pace_at = (event.done / event.of if event.of else None), now

    def end(self, exit_code: int, now: float) -> None:
        self.began = now if self.began is None else self.began
        self.ended, self.outcome = now, ENDED.get(exit_code, "unknown")

    def elapsed(self, now: float) -> float:
        if self.began is None:
            return 0.0
        return (now if self.ended is None else self.ended) - self.began

    def left(self, now: float) -> float | None:
        """Estimated seconds until the run ends; None if there is no earlier run to estimate from."""
        return seconds_left(self.steps, self._spent(now), self.step) if self.at_work else None

    def fraction(self, now: float) -> float:
        """Progress from 0.0 to 1.0: by time if there are earlier runs to estimate from, else by steps."""
        if self.ended is not None:
            return 1.0
        left, elapsed = self.left(now), self.elapsed(now)
        if left is not None and left + elapsed > 0:
            return elapsed / (elapsed + left)
        begun = max((place for place, (step, _) in enumerate(self.steps) if step in self._spent(now)), default=0)
        return min(1.0, (begun + (self.pace or 0.0)) / len(self.steps)) if self.steps else 0.0

    def what(self, now: float) -> str:
        """The task that runs, for how long, and what it waits for; for a probe, how many pieces have ended."""
        if not self.title or not self.at_work:
            return ""
        since = clock(now - self.title_began)
        if self.pieces:
            return f"{self.pieces}, {self.waiting} {since}"
        return f"{self.title} {since}" + (f": {self.waiting}" if self.waiting else "")

    def line(self, now: float) -> str:
        """As `what`, for a log: what runs, for how long, and the time left for the step and for the run."""
        if not self.at_work:
            return ""
        words = [self.pieces or self.title, self.waiting, clock(now - self.title_began)] if self.title else ["starting"]
        if self.silent:
            return ", ".join(filter(None, [*words, no_answer(self.silent)]))
        step, run = self.step_left(now), self.left(now)
        if step is not None and step >= 1:
            words.append(f"about {clock(step)} left")
        if run is not None and run >= 1 and (step is None or run - step >= 1):
            words.append(f"about {clock(run)} left of the run")
        elif run is not None and run < 1:
            words.append("longer than before")
        return ", ".join(filter(None, words))

    def step_left(self, now: float) -> float | None:
        """Estimated seconds left of the present step: by earlier runs, else by a probe's progress; None if unknown."""
        spent = self._spent(now)[self.step]
        before = dict(self.steps).get(self.step)
        if before is not None and before > spent and self.step != FACTS:
            return before - spent
        if self.pace and self.pace_at > self.step_began:
            return max(0.0, (self.pace_at - self.step_began) / self.pace - spent)
        return None

    def time_left(self, now: float) -> str:
        """ "about 3:10 left"; "" if it cannot be estimated. Of a host that gives no answer, since when."""
        if self.silent:
            return no_answer(self.silent)
        left = self.left(now)
        if left is None:
            return ""
        return f"about {clock(left)} left" if left >= 1 else "longer than before"

    def _spent(self, now: float) -> dict[str, float]:
        return {**self.spent, self.step: self.spent.get(self.step, 0.0) + now - self.step_began}

    def _begin(self, step: str, title: str, now: float) -> None:
        if step != self.step:
            self.spent = self._spent(now)
            self.step, self.step_began = step, now
        self.title, self.title_began, self.waiting = title, now, ""
        self.pieces, self.pace = "", None


def no_answer(since: str) -> str:
    return f"no answer since {since}"


def counted(hosts: list[Running]) -> str:
    """How many of the hosts have ended, and how: "37/60, 34 ok, 2 failed, 1 unknown"."""
    outcomes = [host.outcome for host in hosts if host.ended is not None]
    each = [f"{outcomes.count(word)} {word}" for word in COUNTED if word in outcomes]
    return ", ".join([f"{len(outcomes)}/{len(hosts)}", *each])


def steady(text: str) -> str:
    """`text` with "?" for each letter of which terminals do not agree how wide it is.

    A line that is wider than it was taken for goes on in the next row, and the display is drawn over other lines.
    """
    return text if text.isascii() else "".join(letter if _is_steady(letter) else "?" for letter in text)


def _is_steady(letter: str) -> bool:
    kind = unicodedata.category(letter)
    wide = kind == "Lo" and unicodedata.east_asian_width(letter) == "W"
    return letter.isascii() or letter == "…" or kind in ("Lu", "Ll") or wide
