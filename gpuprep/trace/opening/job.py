"""A folder with a profile of each rank ► what they show together. One profile at a time is in memory."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from gpuprep.errors import UsageError
from gpuprep.records import RunRecord
from gpuprep.trace.advice import replay
from gpuprep.trace.columns import Format
from gpuprep.trace.document import Note, Slowdown
from gpuprep.trace.model import profile as linked
from gpuprep.trace.opening import Opened, Say, Wish, make_safe, open_trace
from gpuprep.trace.opening.machine import beside
from gpuprep.trace.ranks import OneRank, RanksDocument, join, ranks_of
from gpuprep.trace.reading import DEEPEST, Found, look, read
from gpuprep.untrusted.plaintext import one_line

SHOWN = 5  # names in a note
MOST_SAID = 500  # letters of an error: a name alone may have 200
FEW = 16  # files of which each step is reported
# between two steps that are reported seconds between two reported steps of more files, to keep the log short
SECONDS = 2.0


def others(files: Found) -> tuple[Note, ...]:
    """What of a folder was left out: files that are called like profiles and are none, and folders too far below."""
    return (*_no_profiles(files), *_too_deep(files.too_deep))


def _too_deep(count: int) -> Iterator[Note]:
    if count:
        many = "1 folder was" if count == 1 else f"{count} folders were"
        yield Note("too_deep", count, f"{many} not searched: more than {DEEPEST} levels below the given folder")


def _no_profiles(files: Found) -> Iterator[Note]:
    names = [one_line(entry.name, 60) for entry in files.others]
    if not names:
        return
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    many = "1 file of the folder is" if len(names) == 1 else f"{len(names)} files of the folder are"
    yield Note("passed_over", len(names), f"{many} no profile: {', '.join(names[:SHOWN])}{more}")


def now_and_then(say: Say, files: int) -> Say:
    """`say` itself for few files; of many it gets a step every SECONDS."""
    if files <= FEW:
        return say
    due = 0.0

    def say_if_due(step: str) -> None:
        nonlocal due
        now = time.monotonic()
        if now >= due:
            due = now + SECONDS
            say(step)

    return say_if_due


@dataclass(frozen=True)
class Job:
    ranks: RanksDocument
    files: dict[int, Path]  # by rank

    @property
    def ranks_by_file(self) -> list[int]:
        """The lowest rank of each file: a session of Nsight Systems may have several."""
        lowest = {path: rank for rank, path in sorted(self.files.items(), reverse=True)}
        return sorted(lowest.values())

    @property
    def last_rank(self) -> tuple[int, float, float] | None:
        """The worst straggler as advise() takes it: rank, ns a step, share of the steps."""
        if not self.ranks.stragglers:
            return None
        worst = self.ranks.stragglers[0]
        return worst.rank, worst.late_us * 1000, worst.steps / worst.of_steps


def open_job(folder: Path, wish: Wish, files: Found | None = None, *, say: Say = lambda _step: None) -> Job:
    """Files that are no profile are left out and reported; UsageError where none is one.

    Of `wish`, the key op and the paths count, and the iterations are those that all ranks have.
    `files`: what look() has found in the folder, where somebody has looked.
    """
    looked = files or look(folder)
    ranks: list[OneRank] = []
    by_name: dict[str, Path] = {}
    timed: dict[str, float] = {}  # by file: a step without the profiler, µs
    by_torch = True
    failed: list[Note] = []
    first: UsageError | None = None
    many = len(looked.profiles)
    say_step = now_and_then(say, many)
    for number, file in enumerate(looked.profiles, 1):
        say_step(f"reading {file.name} ({number} of {many})")
        try:
            # Python functions are most of a profile with stacks, and say nothing of ranks.
            trace = read(file, stacks=False)
            trace.file = file.relative_to(folder).as_posix()  # files of two folders may have one name
            make_safe(trace, keep_paths=wish.keep_paths)
            if trace.file in by_name:  # names that differ by letters that are no text
                trace.file = f"{trace.file} ({len(by_name)})"
            by_name[trace.file] = file
            profile = linked(trace, key_op=wish.key_op, one_of_a_job=True)
            ranks += ranks_of(profile)
            by_torch = by_torch and trace.format is Format.KINETO
            if profile.iterations.how == "ProfilerStep" and (timed_ns := beside(file).timed_step_ns) is not None:
                timed[trace.file] = timed_ns / 1e3
        except UsageError as error:
            first = first or error
            failed.append(Note("no_profile", 1, f"left out: {one_line(str(error), MOST_SAID)}"))
    if not ranks:
        assert first is not None
        raise first
    say(f"comparing {len(ranks)} ranks")
    joined = join(ranks, wish.profile_name or folder.resolve().name)
    notes = (*joined.notes, *failed, *others(looked))
    joined = replace(joined, notes=notes, slowdown=_slowdown(joined, timed, by_torch))
    return Job(joined, {rank.rank: by_name[rank.file] for rank in joined.ranks})


def _slowdown(joined: RanksDocument, timed: Mapping[str, float], by_torch: bool) -> Slowdown:
    """Of the rank whose step is that of the job."""
    lines = [line for line in joined.ranks if line.step_us is not None]
    if not lines:
        return Slowdown()
    slowest = max(lines, key=lambda line: line.step_us or 0.0)
    told = replay.slowdown(slowest.step_us or 0.0, slowest.busy_us or 0.0, timed.get(slowest.file), by_torch)
    return replace(told, words=f"Rank {slowest.rank}, the slowest: {told.words}")


def open_rank(
    job: Job, rank: int, wish: Wish, record: RunRecord | None = None, *, say: Say = lambda _step: None
) -> Opened:
    """The whole profile of one rank."""
    return open_trace(job.files[rank], wish, record, last_rank=job.last_rank, say=say)
