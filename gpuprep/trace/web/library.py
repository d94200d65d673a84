"""Which runs are there? Opens them when they are asked for, and keeps those that were asked for last.

The list shows of each run its GPU, when it was recorded and how long a step takes. Each file has to be read for that,
which takes up to seconds. So a thread reads them while somebody views the list; the list waits a moment, and shows what
is known by then.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath

from gpuprep import errorlog
from gpuprep.errors import GpuprepError, UsageError
from gpuprep.records import RunRecord
from gpuprep.trace.formats import documents
from gpuprep.trace.formats.numbers import gpus
from gpuprep.trace.model import profile as linked
from gpuprep.trace.opening import Wish, make_safe, open_trace
from gpuprep.trace.opening.job import open_job, open_rank
from gpuprep.trace.page import html, html_of_job, pack
from gpuprep.trace.reading import Found, read
from gpuprep.trace.reading.files import is_profile
from gpuprep.trace.tables import document as tabulated
from gpuprep.untrusted.plaintext import one_line

Version = tuple[int, ...]  # of a file: what changes with its content
LARGEST = 64 << 20  # bytes of a file that is read for the list alone
MOST = 500  # files that are
PATIENCE_SECONDS = 3.0  # of the list; then the rest is shown as not read yet
LETTERS = 200


@dataclass(frozen=True)
class Card:
    gpus: str = ""
    recorded_at: str = ""  # UTC, ISO 8601; "" where the file does not tell
    steps: int = 0  # 0: the profile is not split into steps
    step_us: float = 0.0
    not_read: str = ""  # why nothing is known of it


class Cards:
    """Of each version of a file one; a thread reads those that are missing, and ends when none is."""

    def __init__(self) -> None:
        self._known: dict[Version, Card] = {}
        self._missing: dict[Version, Path] = {}
        self._reads = False
        self._changed = threading.Condition()

    def of(self, files: Mapping[Version, Path]) -> dict[Version, Card]:
        """What is known of these files, and of no others from now on. It waits PATIENCE_SECONDS for what is not."""
        with self._changed:
            self._known = {version: card for version, card in self._known.items() if version in files}
            missing = [(version, path) for version, path in files.items() if version not in self._known]
            self._missing = dict(missing[: max(0, MOST - len(self._known))])
            self._known.update(
                (version, Card(not_read="too many files")) for version, _ in missing[len(self._missing) :]
            )
            if self._missing and not self._reads:
                self._reads = True
                threading.Thread(target=self._read, name="reads the list", daemon=True).start()
            self._changed.wait_for(lambda: not self._missing, PATIENCE_SECONDS)
            return {version: self._known[version] for version in files if version in self._known}

    def _read(self) -> None:
        while True:
            with self._changed:
                version, path = next(iter(self._missing.items()), (None, None))
                if version is None or path is None:
                    self._reads = False
                    return
            card = _card(path)
            with self._changed:
                if self._missing.pop(version, None) is not None:
                    self._known[version] = card
                self._changed.notify_all()


def _card(path: Path) -> Card:
    try:
        if path.stat().st_size > LARGEST:
            return Card(not_read=f"more than {LARGEST >> 20} MB: read when it is opened")
        trace = read(path, stacks=False)
        make_safe(trace, keep_paths=False)
        document = tabulated(linked(trace))
    except (GpuprepError, OSError) as error:
        return Card(not_read=one_line(str(error), LETTERS))
    except Exception as error:  # noqa: BLE001  one file must not end the thread that reads the others
        with contextlib.suppress(OSError):
            errorlog.keep(errorlog.whole(error, "gpuprep trace, the list of profiles"))
        return Card(not_read=errorlog.named(error))
    summary = document.summary
    steps = 0 if summary.split_by == "one" else summary.iterations
    return Card(one_line(gpus(document), LETTERS), _moment(trace.zero_ns), steps, summary.average_iteration_us)


def _moment(ns: int) -> str:
    try:
        return datetime.fromtimestamp(ns // 10**9, timezone.utc).isoformat() if ns >= 0 else ""
    except (ValueError, OverflowError, OSError):
        return ""


OneOf = tuple[str, int] | None  # the job that a run may be a rank of, and how many profiles that has
KEPT = 3  # pages: each may need tens of MB
RAW = (".json", ".json.gz")  # what Perfetto takes; an export of Nsight Systems has the recorded environment in it


@dataclass(frozen=True)
class Asked:
    """One run with one choice of iterations, or a job: all runs of a folder as its ranks."""

    run: str = ""
    start: int | None = None
    stop: int | None = None
    key_op: str = ""
    job: str = ""


@dataclass(frozen=True)
class Page:
    html: bytes
    json: bytes


class Library:
    """`list_profiles` gives name ► file, and is asked each time anew; names may be anything, and are never made a path.

    `folders`: a link that leads out of them is no run, for whoever may write there could show any file of this user;
    without folders the caller named each file. `whole`: all runs together may be one job, as `gpuprep trace report
    FOLDER` takes them.
    """

    def __init__(
        self,
        list_profiles: Callable[[], Mapping[str, Path]],
        folders: Collection[Path] = (),
        *,
        whole: bool = False,
        keep_paths: bool = False,
        record: RunRecord | None = None,
    ) -> None:
        self._list, self._folders = list_profiles, folders
        self._whole, self._keep_paths, self._record = whole, keep_paths, record
        self._pages: OrderedDict[tuple[Asked, OneOf, tuple[tuple[int, ...], ...]], Page] = OrderedDict()
        self._cards = Cards()
        self._lock = threading.Lock()  # one is opened at a time: memory is the scarcest resource

    def names(self) -> list[str]:
        return list(self._found())

    def cards(self) -> dict[str, Card | None]:
        """Each run with what the list shows of it. None: not read yet; a single run needs no list."""
        found = self._found()
        if len(found) == 1:
            return dict.fromkeys(found)
        versions: dict[str, Version] = {}
        files: dict[Version, Path] = {}
        for name, path in found.items():
            with contextlib.suppress(UsageError):  # gone meanwhile
                versions[name] = _version(path)
                if self._is_inside(path):
                    files[versions[name]] = path
        known = self._cards.of(files)
        return {name: known.get(version) for name, version in versions.items()}

    def _found(self) -> dict[str, Path]:
        return {name: path for name, path in self._list().items() if not path.is_symlink() or self._is_inside(path)}

    def _is_inside(self, path: Path) -> bool:
        real = path.resolve()
        return not self._folders or any(real.is_relative_to(folder.resolve()) for folder in self._folders)

    def _chosen(self, run: str, profiles: Mapping[str, Path]) -> Path:
        path = profiles.get(run)
        if path is None or not self._is_inside(path):  # a folder on the way may have become a link meanwhile
            raise UsageError("there is no such run", "choose one of the list; a link that leads elsewhere is none")
        return path

    def jobs_of(self, names: list[str]) -> dict[str, list[str]]:
        """Folder ► its runs, of folders with several: they may be the ranks of one job. "." is the whole folder."""
        by_folder: dict[str, list[str]] = {}
        for name in names:
            by_folder.setdefault(str(PurePosixPath(name).parent), []).append(name)
        if self._whole:
            by_folder = {folder: runs for folder, runs in by_folder.items() if len(runs) < len(names)}
            by_folder["."] = names
        return {folder: runs for folder, runs in sorted(by_folder.items()) if len(runs) > 1}

    def _one_of(self, run: str, names: list[str]) -> OneOf:
        jobs = self.jobs_of(names)
        job = next((each for each in (str(PurePosixPath(run).parent), ".") if each in jobs), None)
        return None if job is None else (job, len(jobs[job]))

    def path(self, run: str) -> Path:
        """Raises UsageError."""
        return self._chosen(run, self._found())

    def raw(self, run: str) -> Path | None:
        """The file itself, if it may be sent: a link may lead to any file that this user can read."""
        path = self.path(run)
        return path if path.name.endswith(RAW) and is_profile(path) else None

    def page(self, asked: Asked) -> Page:
        """Raises UsageError for what is no profile, and for a job that there is not."""
        paths = self._found()  # look once: it may open each file of a folder
        runs = self._runs_of(asked, paths)
        one_of = None if asked.job else self._one_of(asked.run, list(paths))
        key = (asked, one_of, tuple(_version(path) for path in runs.values()))  # a file that changed is read again
        with self._lock:
            made = self._pages.get(key)
            if made is None:
                made = self._job(asked, runs) if asked.job else self._profile(asked, runs[asked.run], one_of)
                self._pages[key] = made
                while len(self._pages) > KEPT:
                    self._pages.popitem(last=False)
            self._pages.move_to_end(key)
            return made

    def _runs_of(self, asked: Asked, profiles: Mapping[str, Path]) -> dict[str, Path]:
        if not asked.job:
            return {asked.run: self._chosen(asked.run, profiles)}
        names = self.jobs_of(list(profiles)).get(asked.job)
        if names is None:
            raise UsageError("there is no such job", "choose one of the list")
        return {name: self._chosen(name, profiles) for name in names}

    def _wish(self, asked: Asked) -> Wish:
        return Wish(asked.start, asked.stop, asked.key_op, "", self._keep_paths)

    def _profile(self, asked: Asked, path: Path, one_of: OneOf) -> Page:
        opened = open_trace(path, self._wish(asked), self._record)
        links = dict(zip(("job", "profiles"), one_of, strict=True)) if one_of else None
        text = html(opened.profile, opened.document, room=pack.SERVED_ROOM, one_of=links)
        return Page(text.encode(), documents.render(opened.document).encode())

    def _job(self, asked: Asked, runs: Mapping[str, Path]) -> Page:
        if asked.start is not None or asked.stop is not None:
            raise UsageError("start and stop are of one profile", "leave them out, or choose the run of one rank")
        wish = self._wish(asked)
        folder = os.path.commonpath([path.parent for path in runs.values()])
        job = open_job(Path(folder), wish, Found(list(runs.values()), []))
        run_of = {path: name for name, path in runs.items()}
        text = html_of_job(
            job.ranks,
            lambda rank: open_rank(job, rank, wish, self._record),
            room=pack.SERVED_ROOM,
            runs={rank: run_of[path] for rank, path in job.files.items()},
        )
        return Page(text.encode(), documents.render(job.ranks).encode())


def _version(path: Path) -> Version:
    """Uses ctime: a writer can set back a file's mtime, but not its ctime."""
    try:
        there = path.stat()
    except OSError as error:
        raise UsageError(f"{path.name}: {error.strerror}") from error
    return there.st_dev, there.st_ino, there.st_size, there.st_mtime_ns, there.st_ctime_ns
