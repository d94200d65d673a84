"""Which run of a host is the certified run? Inside the caller's transaction. Use it through store/__init__.py.

It is the run that `baseline set` named, until it is cleared or another is named; without one it is the newest run of a
certifying command that passed as a whole. Records are large: of a few candidates the options are read, of others only
columns of lists.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gpuprep.records import Source, Status
from gpuprep.store.tables import certified, latest, runs

# Commands whose PASS certifies a host: what drift compares with.
CERTIFYING = ("provision", "validate")
CANDIDATES = 20  # newest runs that passed; of more in a row, each of a part of the machine, none is looked at


def chosen(connection: Connection, host: str) -> tuple[str, str] | None:
    """(run_id, set_at) that `baseline set` named; None where it did not."""
    row = connection.execute(sa.select(certified).where(certified.c.host == host)).mappings().one_or_none()
    return (row["run_id"], row["set_at"]) if row else None


def run_of(connection: Connection, host: str) -> str | None:
    """The certified run of a host; None where there is none."""
    named = chosen(connection, host)
    return named[0] if named else newest_passed(connection, host)


def newest_passed(connection: Connection, host: str) -> str | None:
    """The newest run of a certifying command that passed, with nothing left out; of a real host one on its real GPU."""
    passed = runs.c.verdict == Status.PASS.value
    found = [one for command in CERTIFYING for one in _newest(connection, host, command, CANDIDATES, passed)]
    real = is_real(connection, host) if any(one.source == Source.SIMULATED.value for one in found) else True
    for one in sorted(found, key=lambda one: (one.started_at, one.run_id), reverse=True):
        text = connection.execute(sa.select(runs.c.record).where(runs.c.run_id == one.run_id)).scalar_one()
        if is_whole(json.loads(text).get("options", {})) and not (real and one.source == Source.SIMULATED.value):
            return str(one.run_id)
    return None


def is_whole(options: Mapping[str, Any]) -> bool:
    """Whether a run judged all of the machine: one with --only or --skip passes with the rest left out."""
    return not options.get("only") and not options.get("skip")


def newest(connection: Connection, host: str, command: str, *where: Any) -> tuple[str, str] | None:
    """(run_id, started_at) of the newest run of a command; by the index of them alone."""
    rows = _newest(connection, host, command, 1, *where)
    return (rows[0].run_id, rows[0].started_at) if rows else None


def _newest(connection: Connection, host: str, command: str, limit: int, *where: Any) -> list[Any]:
    """The newest run, without runs that a wrong clock dated into the future."""
    query = (
        sa.select(runs.c.run_id, runs.c.started_at, runs.c.source)
        .where(runs.c.host == host, runs.c.command == command, runs.c.started_at <= latest(), *where)
        .order_by(runs.c.started_at.desc(), runs.c.run_id.desc())
        .limit(limit)
    )
    return list(connection.execute(query))


def set_run(connection: Connection, host: str, run_id: str, set_at: str) -> None:
    clear(connection, host)
    connection.execute(certified.insert().values(host=host, run_id=run_id, set_at=set_at))


def clear(connection: Connection, host: str) -> bool:
    """Forget what `baseline set` named; False where it named none."""
    return connection.execute(certified.delete().where(certified.c.host == host)).rowcount > 0


def is_real(connection: Connection, host: str) -> bool:
    """Whether any run of this host saw a real GPU."""
    query = sa.select(runs.c.run_id).where(runs.c.host == host, runs.c.source == Source.MEASURED.value).limit(1)
    return connection.execute(query).scalar() is not None
