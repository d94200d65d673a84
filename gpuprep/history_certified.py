"""Which run of a host is "what we certified", inside the caller's transaction. history.py is the door to it.

It is the run that `baseline set` named, until it is cleared or another is named; without one it is the newest run of a
certifying command that passed. Only ids and columns of lists are read here: records are large.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gpuprep.history_schema import certified, runs
from gpuprep.records import Source, Status

# Commands whose PASS certifies a host: what drift compares with.
CERTIFYING = ("provision", "validate")


def chosen(connection: Connection, host: str) -> tuple[str, str] | None:
    """(run_id, set_at) that `baseline set` named; None where it did not."""
    row = connection.execute(sa.select(certified).where(certified.c.host == host)).mappings().one_or_none()
    return (row["run_id"], row["set_at"]) if row else None


def run_of(connection: Connection, host: str) -> str | None:
    """The certified run of a host; None where there is none."""
    named = chosen(connection, host)
    return named[0] if named else newest_passed(connection, host)


def newest_passed(connection: Connection, host: str) -> str | None:
    """The newest run of a certifying command that passed."""
    found = [newest(connection, host, command, runs.c.verdict == Status.PASS.value) for command in CERTIFYING]
    return max((one for one in found if one), key=lambda one: (one[1], one[0]), default=(None,))[0]


def newest(connection: Connection, host: str, command: str, *where: Any) -> tuple[str, str] | None:
    """(run_id, started_at) of the newest run of a command; by the index of them alone."""
    query = (
        sa.select(runs.c.run_id, runs.c.started_at)
        .where(runs.c.host == host, runs.c.command == command, *where)
        .order_by(runs.c.started_at.desc(), runs.c.run_id.desc())
        .limit(1)
    )
    row = connection.execute(query).one_or_none()
    return (row.run_id, row.started_at) if row else None


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
