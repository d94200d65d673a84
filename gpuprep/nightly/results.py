"""The results on the host: the newest as last.json, and the newest `keep` results as results/RUN_ID.json.

A run writes only while it holds the lock, so two runs never write at once; every user may read at any time. The next
run repairs what a killed run left unfinished.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from gpuprep.agent import host_paths
from gpuprep.agent.programs import atomicfile
from gpuprep.errors import GpuprepError, UsageError
from gpuprep.records import DecodeError, RunRecord, Source, from_json, to_json
from gpuprep.untrusted.limits import file_text

FOLDER = Path(host_paths.DRIFT_RESULTS)
LAST = "last.json"
RUN_ID = re.compile(r"\d{8}-\d{6}-[0-9a-f]{5}")


class AlreadyRunning(GpuprepError):
    """Another check of this host is running, which writes its own result."""


@dataclass(frozen=True)
class Damaged:
    """A result file that cannot be read as a result."""

    path: Path
    why: str

    def __str__(self) -> str:
        return f"{self.path} counts as absent: {self.why}"


class Results:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._runs = folder / "results"
        self.trouble = ""  # why the files of a killed run could not be repaired

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock of the results; the kernel releases it when this process ends in any way.

        Makes the folders and repairs what a killed run left. Raises AlreadyRunning, UsageError if this user may not
        write there, and OSError. A full disk raises nothing: the check can still run and be reported.
        """
        try:
            self._make_folders()
            # Readable only by root: a user who can open the file can also lock it, and so stop the checks.
            file = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except PermissionError as error:
            raise UsageError(f"the results cannot be written: {error}", "run it as root") from error
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                who = os.read(file, 32).decode(errors="replace").strip() or "unknown"
                raise AlreadyRunning(
                    f"a check of this host is at work already (process {who})", "wait until it has ended"
                ) from None
            with contextlib.suppress(OSError):  # a full disk: the lock is held, but another run cannot see by whom
                os.ftruncate(file, 0)
                os.write(file, f"{os.getpid()}\n".encode())
            self._put_in_order()
            yield
        finally:
            os.close(file)

    def _make_folders(self) -> None:
        """Make the folders, readable by all. An unusual results folder itself keeps its rights."""
        for folder in (FOLDER.parent, FOLDER) if self.folder == FOLDER else ():
            atomicfile.shared_folder(folder)
        atomicfile.shared_folder(self._runs)

    def keep(self, record: RunRecord, most: int) -> None:
        """Store `record` as the newest result, and keep `most` results in all. Raises OSError.

        last.json is written first: if killed here, last.json is complete and the next run archives it. If it cannot be
        written, the old last.json is removed: it is no longer the newest, and no result means UNKNOWN to every reader.
        """
        text = to_json(record) + "\n"
        try:
            atomicfile.write(self.folder / LAST, text)
        except OSError:
            with contextlib.suppress(OSError):
                (self.folder / LAST).unlink()
            raise
        self._file(record.run_id, text)
        older = [path for path in self._newest_first() if path.stem != record.run_id]
        for path in older[max(0, most - 1) :]:
            path.unlink()

    def newest(self) -> tuple[RunRecord | None, tuple[Damaged, ...]]:
        """(the newest readable result, damaged results that are newer)."""
        return self._find(lambda _: True)

    def previous(self) -> tuple[RunRecord | None, tuple[Damaged, ...]]:
        """(the newest result with a verdict, with which the next check compares; damaged results that are newer)."""
        return self._find(lambda record: record.verdict is not None and not record.error)

    def _find(self, wanted: Callable[[RunRecord], bool]) -> tuple[RunRecord | None, tuple[Damaged, ...]]:
        damaged: list[Damaged] = []
        for path in (self.folder / LAST, *self._newest_first()):
            record = read(path)
            if isinstance(record, Damaged):
                damaged.append(record)
            elif record is not None and wanted(record):
                return record, tuple(damaged)
        return None, tuple(damaged)

    def _put_in_order(self) -> None:
        self.trouble = ""
        try:
            atomicfile.tidy(self.folder)
            atomicfile.tidy(self._runs)
            last = read(self.folder / LAST)
            if isinstance(last, RunRecord) and not (self._runs / f"{last.run_id}.json").exists():
                self._file(last.run_id, file_text(self.folder / LAST, follow=False))
        except OSError as error:
            self.trouble = f"the results of the previous run are damaged: {error}"

    def _file(self, run_id: str, text: str) -> None:
        atomicfile.write(self._runs / f"{run_id}.json", text)

    def _newest_first(self) -> list[Path]:
        """Result files, the newest first (run ids sort by time). Files with other names are ignored."""
        with contextlib.suppress(FileNotFoundError):
            return sorted((p for p in self._runs.iterdir() if RUN_ID.fullmatch(p.stem)), reverse=True)
        return []


def read(path: Path) -> RunRecord | Damaged | None:
    """One result; None if the file does not exist."""
    try:
        return from_json(RunRecord, file_text(path, follow=False))
    except FileNotFoundError:
        return None
    except (DecodeError, OSError, UnicodeDecodeError) as error:
        return Damaged(path, str(error))


def is_simulated(record: RunRecord) -> bool:
    """Whether any part of the record is from a simulated GPU."""
    return Source.SIMULATED in (record.source, *(result.source for result in record.measurements))
