"""Which run of a host is the certified run? Inside the caller's transaction. Use it through store/__init__.py.

It is the run chosen with `baseline set`, until the choice is cleared or changed. Without a choice it is the newest run
of a certifying command that passed without doubts (checks/drift/certifying.py; the column runs.certifies). Runs of
earlier versions have no value in that column: they count if they left nothing out.

A host may have several names: each query covers all of them. Records are large, so only the options of candidates are
read.
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gpuprep.records import DecodeError, ProfileRef, Source, Status, from_json_value
from gpuprep.records.recorded_options import RecordedOptions
from gpuprep.records.serialize import plain_json
from gpuprep.store import hostnames
from gpuprep.store.tables import certified, latest, runs, storable

# Commands whose PASS certifies a host: what drift compares with.
CERTIFYING = ("provision", "validate")
AT_A_TIME = 20  # rows


@dataclass(frozen=True)
class Chosen:
    """The run chosen with `baseline set`."""

    run_id: str
    set_at: str  # UTC, ISO 8601
    reason: str  # "": none was given


def chosen(connection: Connection, host: str) -> Chosen | None:
    """The newest choice of `baseline set` under any name of the host; None without a choice."""
    mine = certified.c.host.in_(hostnames.of_host(connection, host))
    query = sa.select(certified).where(mine).order_by(certified.c.set_at.desc(), certified.c.host).limit(1)
    row = connection.execute(query).mappings().one_or_none()
    return Chosen(row["run_id"], row["set_at"], row["reason"]) if row else None


def run_of(connection: Connection, host: str) -> str | None:
    """The id of the host's certified run; None without one. What was before an unprovision certifies nothing."""
    named = chosen(connection, host)
    gone = taken_back(connection, host)
    if named and gone and named.set_at < gone[1]:
        named = None
    return named.run_id if named else newest_passed(connection, host)


def taken_back(connection: Connection, host: str) -> tuple[str, str] | None:
    """(run_id, started_at) of the newest unprovision that left nothing of gpuprep; None without one."""
    for run in _newest(connection, host, ("unprovision",), runs.c.exit_code == 0, runs.c.verdict.is_not(None)):
        options = _options(connection, run.run_id)
        if options and options.whole:
            return run.run_id, run.started_at
    return None


def newest_passed(connection: Connection, host: str, *, any_part: bool = False) -> str | None:
    """Id of the newest run of a certifying command that passed and may certify; for a real host, one on its real GPU.

    With `any_part` also a run that does not certify by itself, because the user chooses it.
    """
    where = [runs.c.verdict == Status.PASS.value, runs.c.exit_code == 0]
    if not any_part:
        where.append(runs.c.certifies.is_not(False))
    if not any_part and (gone := taken_back(connection, host)):
        where.append(runs.c.started_at > gone[1])
    one_probe = None  # of an earlier version: passed with few probes; counts only if there is no other run
    real: bool | None = None
    for run in _newest(connection, host, CERTIFYING, *where):
        if run.source == Source.SIMULATED.value:
            real = is_real(connection, host) if real is None else real
            if real:
                continue
        if any_part or run.certifies:
            return str(run.run_id)
        options = _options(connection, run.run_id)
        if options and options.whole:
            if options.every_probe:
                return str(run.run_id)
            one_probe = one_probe or str(run.run_id)
    return one_probe


def _options(connection: Connection, run_id: str) -> RecordedOptions | None:
    """None: the record is damaged."""
    record = _plain(connection, run_id)
    return RecordedOptions.read(record.get("options", {})) if record else None


def _plain(connection: Connection, run_id: str) -> dict[str, Any]:
    """The record as it is stored, for one of its members; {}: it is damaged."""
    text = connection.execute(sa.select(runs.c.record).where(runs.c.run_id == run_id)).scalar()
    try:
        document = plain_json(text or "")
    except DecodeError:
        return {}
    return document if isinstance(document, dict) else {}


def profile_file(connection: Connection, host: str, command: str, profile: ProfileRef) -> str | None:
    """The path of the profile's file in the newest run of `command` with this profile; None without one."""
    for run_id in ids(connection, host, command, AT_A_TIME):
        with contextlib.suppress(DecodeError):  # it has no profile, or is damaged
            used = from_json_value(ProfileRef, _plain(connection, run_id).get("profile"))
            if (used.name, used.sha256) == (profile.name, profile.sha256):
                return used.path
    return None


def newest(connection: Connection, host: str, command: str, *where: Any) -> tuple[str, str] | None:
    """(run_id, started_at) of the newest run of a command."""
    run = next(_newest(connection, host, (command,), *where), None)
    return (run.run_id, run.started_at) if run else None


def ids(connection: Connection, host: str, command: str, limit: int) -> list[str]:
    """Ids of the newest runs of a command."""
    mine = runs.c.host.in_(hostnames.of_host(connection, host))
    query = sa.select(runs.c.run_id).where(mine, runs.c.command == command)
    newest = query.order_by(runs.c.started_at.desc(), runs.c.run_id.desc()).limit(limit)
    return list(connection.execute(newest).scalars())


def _newest(connection: Connection, host: str, commands: Sequence[str], *where: Any) -> Iterator[Any]:
    """Runs under all names of the host, the newest first, without runs dated into the future by a wrong clock."""
    names = hostnames.of_host(connection, host)
    each = [_of_one(connection, name, command, *where) for name in names for command in commands]
    return heapq.merge(*each, key=lambda row: (row.started_at, row.run_id), reverse=True)


def _of_one(connection: Connection, name: str, command: str, *where: Any) -> Iterator[Any]:
    """Runs of one name and command, the newest first; reads only the index, a few rows at a time."""
    columns = sa.select(runs.c.run_id, runs.c.started_at, runs.c.source, runs.c.certifies)
    query = columns.where(runs.c.host == name, runs.c.command == command, runs.c.started_at <= latest(), *where)
    ordered = query.order_by(runs.c.started_at.desc(), runs.c.run_id.desc()).limit(AT_A_TIME)
    after = 0
    while rows := connection.execute(ordered.offset(after)).all():
        yield from rows
        after += len(rows)


def set_run(connection: Connection, host: str, run_id: str, set_at: str, reason: str = "") -> None:
    clear(connection, host)
    row = {"host": storable(host), "run_id": run_id, "set_at": set_at, "reason": storable(reason)}
    connection.execute(certified.insert().values(row))


def clear(connection: Connection, host: str) -> bool:
    """Delete the choice of `baseline set`; False if there was none."""
    mine = certified.c.host.in_(hostnames.of_host(connection, host))
    return connection.execute(certified.delete().where(mine)).rowcount > 0


def is_real(connection: Connection, host: str) -> bool:
    """Whether any run of this host measured a real GPU. A run without a verdict may not have reached the host.

    Records of `gpuprep judge --keep` do not count: a file can name any host.
    """
    mine = runs.c.host.in_(hostnames.of_host(connection, host))
    seen = (runs.c.command != "judge", runs.c.source == Source.MEASURED.value, runs.c.verdict.is_not(None))
    query = sa.select(runs.c.run_id).where(mine, *seen).limit(1)
    return connection.execute(query).scalar() is not None
