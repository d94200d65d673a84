"""Which runs may be deleted? Old runs without references, and all of a host that is to be forgotten, with their log
folders. Use it through store/__init__.py.

Of old runs always kept: a host's newest runs, the newest one that says how it is, its certified run, the runs in which
its baseline was measured, and its last drift check, because the next check compares with it.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gpuprep.errors import StoreError
from gpuprep.store import certified as certified_rows
from gpuprep.store.tables import baselines, certified, host_names, latest, runs, storable, tells

# Runs deleted in one transaction: other writers can write between two of them.
BATCH = 500
RUN_ID = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,63}")


def old(connection: Connection, before: str, keep_last: int, names: Sequence[str] | None = None) -> list[str]:
    """Ids of runs that began before `before` (UTC, ISO 8601) and may be deleted, oldest first.

    `names`: only of these hosts; None: of all.
    """
    query = sa.select(runs.c.run_id).where(runs.c.started_at < before).order_by(runs.c.started_at, runs.c.run_id)
    of_hosts = sa.select(runs.c.host).where(runs.c.started_at < before).distinct()
    if names is not None:
        named = runs.c.host.in_([storable(name) for name in names])
        query, of_hosts = query.where(named), of_hosts.where(named)
    hosts = connection.execute(of_hosts).scalars().all()
    kept = {run_id for host in hosts for run_id in _kept(connection, host, keep_last)}
    kept.update(connection.execute(sa.select(baselines.c.run_id).distinct()).scalars())
    return [run_id for run_id in connection.execute(query).scalars() if run_id not in kept]


def delete(connection: Connection, run_ids: Sequence[str]) -> list[str]:
    """Delete these runs with their findings and measurements, except runs that became a baseline meanwhile.

    Returns the deleted ids.
    """
    referred: set[str] = set()
    for column in (baselines.c.run_id, certified.c.run_id):
        referred.update(connection.execute(sa.select(column).where(column.in_(run_ids))).scalars())
    removed = [run_id for run_id in run_ids if run_id not in referred]
    connection.execute(runs.delete().where(runs.c.run_id.in_(removed)))
    return removed


def forget(connection: Connection, name: str, others: Sequence[str]) -> list[str]:
    """Delete the runs, figures, choices and identity of a name; returns the run ids.

    `others`: names of the same host.
    """
    name = storable(name)
    run_ids = list(connection.execute(sa.select(runs.c.run_id).where(runs.c.host == name)).scalars())
    for start in range(0, len(run_ids), BATCH):
        connection.execute(certified.delete().where(certified.c.run_id.in_(run_ids[start : start + BATCH])))
    for table in (certified, baselines, runs):
        connection.execute(table.delete().where(table.c.host == name))
    connection.execute(host_names.delete().where(host_names.c.name == name))
    if others:
        connection.execute(host_names.update().where(host_names.c.host == name).values(host=min(others)))
    return run_ids


def log_folders(parent: Path, run_ids: Iterable[str]) -> list[Path]:
    """The existing log folders of these runs below `parent`.

    A run id may come from another machine: an id that is not a plain name has no folder.
    """
    named = [parent / run_id for run_id in run_ids if RUN_ID.fullmatch(run_id)]
    return [path for path in named if path.is_dir() and not path.is_symlink()]


def remove(folders: Iterable[Path]) -> None:
    """Remove these folders with their content; a folder that no longer exists is no error. Raises StoreError."""
    for path in folders:
        try:
            shutil.rmtree(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StoreError(f"the log folder {path} cannot be removed: {error}", "remove it by hand") from error


def _kept(connection: Connection, host: str, keep_last: int) -> list[str]:
    newest = sa.select(runs.c.run_id).where(runs.c.host == host, runs.c.started_at <= latest())
    ordered = newest.order_by(runs.c.started_at.desc(), runs.c.run_id.desc()).limit(keep_last)
    telling = newest.where(tells()).order_by(runs.c.started_at.desc(), runs.c.run_id.desc()).limit(min(keep_last, 1))
    last_check = certified_rows.newest(connection, host, "drift", runs.c.verdict.is_not(None))
    return [
        *connection.execute(ordered).scalars(),
        *connection.execute(telling).scalars(),
        *filter(None, [certified_rows.run_of(connection, host)]),
        *([last_check[0]] if last_check else []),
    ]
