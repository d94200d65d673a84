"""The store of runs, for commands that read or change what is recorded, and the records of runs that were killed.

While a run is at work, a file holds the record that it leaves if it is killed now, or if the computer loses its power.
The file is locked, and the kernel ends the lock with the process. The next command that opens the store also stores the
records of unlocked files.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from gpuprep import settings
from gpuprep.errors import UsageError
from gpuprep.paths import private_folder, state_dir
from gpuprep.records import DecodeError, RunRecord, ended, from_json, to_json
from gpuprep.store import Store, retention
from gpuprep.untrusted.limits import FILE_BYTES
from gpuprep.untrusted.plaintext import one_line

if TYPE_CHECKING:
    from gpuprep.store import Store


# ---------------------------------------------------------------- runs that were killed


KILLED = (
    f"{ended.KILLED}\n"
    "what to do: run the same command again; what the run had begun on the host may still be at work there"
)
MOST = 1000  # records that one command stores


@contextlib.contextmanager
def left(store: Store, record: RunRecord) -> Iterator[None]:
    """Leave `record` for the next command if this process is killed inside of the context."""
    try:
        path, file = _written(store, record)
    except OSError:  # the run goes on, and its own record names the folder that cannot be written
        yield
        return
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(file)


def store_all(store: Store) -> None:
    """Store the records of the killed runs of this store. Raises StoreError."""
    for path in sorted(_folder().glob(f"{_of(store)}-*"))[:MOST]:
        with contextlib.suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The run was killed, or the computer stopped, while the file was written: it is not whole, or unnamed.
            with contextlib.suppress(DecodeError):
                store.append_new(from_json(RunRecord, file.read(FILE_BYTES).decode("utf-8", "replace")))
            path.unlink(missing_ok=True)


def _written(store: Store, record: RunRecord) -> tuple[Path, int]:
    """The file and its descriptor, locked. Under its name it is locked and whole from the first moment."""
    path = private_folder(_folder()) / f"{_of(store)}-{record.run_id}.json"
    unnamed = path.with_suffix(".new")
    file = os.open(unnamed, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(file, to_json(record).encode())
        unnamed.rename(path)
    except BaseException:
        os.close(file)
        unnamed.unlink(missing_ok=True)
        raise
    return path, file


def _folder() -> Path:
    return state_dir() / "running"


def _of(store: Store) -> str:
    """Which store it is, as a part of a file's name."""
    return hashlib.sha256(store.shown_url.encode()).hexdigest()[:12]


# ---------------------------------------------------------------- the store


def existing(named: str | None) -> Store:
    """Open the store of --store, else that of the settings, with the records of killed runs. The caller closes it.

    A file given with --store must exist, so a typing error makes no empty store. The default store of a new user is
    made, empty. Raises UsageError, StoreError.
    """
    store = Store.open_existing(named) if named else Store.open(settings.load().store)
    store_all(store)
    return store


@dataclass(frozen=True)
class Pruned:
    before: str  # UTC; runs that began earlier went
    run_ids: list[str]
    folders: int  # of their logs, on this machine


def prune(
    store: Store, keep_days: int, keep_last: int, names: Sequence[str] | None = None, *, dry: bool = False
) -> Pruned:
    """Delete the runs that are older than `keep_days` and that nothing refers to, with the folders of their logs.

    `names`: only of these hosts; None: of all. `dry`: delete nothing. Raises StoreError.
    """
    before = _before(keep_days)
    old = store.prunable(before, keep_last, names)
    removed = old if dry else store.prune(old)
    folders = retention.log_folders(state_dir() / "runs", removed)
    if not dry:
        retention.remove(folders)
    return Pruned(before, removed, len(folders))


@dataclass(frozen=True)
class Age:
    before: str  # UTC
    runs: int
    older: int  # of these, began before
    deletable: int  # of the older ones, as `prune` would delete them


def age(store: Store, keep_days: int, keep_last: int) -> Age:
    """How much of the store is older than `keep_days`. Raises StoreError."""
    before = _before(keep_days)
    return Age(before, store.count(), store.count(before), len(store.prunable(before, keep_last)))


def _before(days: int) -> str:
    return (datetime.now(timezone.utc) - timedelta(days=days)).isoformat(timespec="seconds")


def check_known(store: Store, *hosts: str) -> None:
    """Raises UsageError for host names without a run in the store."""
    unknown = [host for host in hosts if not store.has_host(host)]
    if unknown:
        raise UsageError(
            f"no run of {', '.join(map(one_line, unknown))} is recorded", "`gpuprep status` lists the hosts"
        )
