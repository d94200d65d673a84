"""Queries about many hosts at a time, inside the caller's transaction. Use it through store/readonly.py.

Each query uses indexes, so its time grows with its result and not with the store: a record has some 70 KB, so no query
reads rows of runs that it does not return.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gpuprep.records import Source, Status
from gpuprep.records.findings import PROBLEMS
from gpuprep.store.tables import (
    LAST_CHARACTER,
    begins_with,
    findings,
    host_names,
    latest,
    measurements,
    runs,
    storable,
    tells,
)

AT_A_TIME = 200  # ids in one question
RECORDS_AT_A_TIME = 20
MOST = 100_000  # runs of one night
TOLD = (*PROBLEMS, Status.WAIVED)


@dataclass(frozen=True)
class Run:
    """One run as lists show it."""

    run_id: str
    command: str
    host: str
    started_at: str
    verdict: Status | None  # None: the run ended before one
    source: Source | None = None  # None: not asked for
    profile: str = ""
    exit_code: int = 0
    summary: str = ""


@dataclass(frozen=True)
class Finding:
    """One finding of one run as the store has it."""

    run_id: str
    subject: str
    property: str
    status: Status
    expected: str
    actual: str


WHOLE = (
    runs.c.run_id, runs.c.command, runs.c.host, runs.c.started_at, runs.c.verdict, runs.c.source, runs.c.profile,
    runs.c.exit_code, runs.c.summary,
)  # fmt: skip


def newest_of_hosts(connection: Connection, commands: Collection[str]) -> list[Run]:
    names = _names(runs.c.host)
    run, moment = runs.alias("one"), latest()
    mine = sa.select(run.c.run_id).where(run.c.host == names.c.name, run.c.command.in_(sorted(commands)))
    newest = mine.order_by(run.c.started_at.desc(), run.c.run_id.desc()).limit(1)
    telling = newest.where(tells(run))
    # Of a host whose clock was always ahead, the newest of these; of one that was never checked, any run.
    chosen = sa.func.coalesce(
        *(query.scalar_subquery() for query in (telling.where(run.c.started_at <= moment), telling, newest))
    )
    ids = sa.select(chosen.label("run_id")).select_from(names).subquery()
    return _runs(connection, sa.select(*WHOLE).join(ids, ids.c.run_id == runs.c.run_id))


def newest_figures(connection: Connection) -> dict[str, str]:
    names = _names(measurements.c.host)
    measurement = measurements.alias("one")
    newest = sa.select(sa.func.max(measurement.c.started_at)).where(
        measurement.c.host == names.c.name, measurement.c.started_at <= latest()
    )
    query = sa.select(names.c.name, newest.scalar_subquery().label("newest")).select_from(names)
    return {name: moment for name, moment in connection.execute(query) if name is not None and moment is not None}


def _names(column: sa.Column[Any]) -> sa.CTE:
    """All distinct values of the first column of an index, with one index step per value. Ends with a NULL."""
    table = column.table
    every = sa.select(sa.func.min(column).label("name")).select_from(table).cte("every", recursive=True)
    after = sa.select(sa.func.min(column)).select_from(table).where(column > every.c.name).correlate(every)
    return every.union_all(sa.select(after.scalar_subquery()).where(every.c.name.is_not(None)))


def canonical_names(connection: Connection) -> dict[str, str]:
    return {name: host for name, host in connection.execute(sa.select(host_names.c.name, host_names.c.host))}


def texts(connection: Connection, run_ids: Sequence[str]) -> Iterator[tuple[str, str]]:
    for start in range(0, len(run_ids), RECORDS_AT_A_TIME):
        some = run_ids[start : start + RECORDS_AT_A_TIME]
        query = sa.select(runs.c.run_id, runs.c.record).where(runs.c.run_id.in_(some))
        yield from ((run_id, text) for run_id, text in connection.execute(query))


def since(connection: Connection, commands: Collection[str], moment: str) -> list[tuple[str, str, str | None]]:
    names, until = _names(runs.c.host), latest()
    # By the index of hosts, commands and moments alone, which has the verdict, too: tens of thousands of rows.
    mine = (runs.c.host == names.c.name, runs.c.command.in_(sorted(commands)), tells())
    query = sa.select(runs.c.host, runs.c.started_at, runs.c.verdict).select_from(names.join(runs, sa.and_(*mine)))
    rows = connection.execute(query.where(runs.c.started_at >= moment, runs.c.started_at <= until))
    return [(host, started_at, verdict) for host, started_at, verdict in rows]


def between(connection: Connection, first: str, after: str) -> list[Run]:
    when = (runs.c.started_at >= first, runs.c.started_at < after)
    return _runs(connection, sa.select(*WHOLE[:8]).where(*when).order_by(runs.c.started_at, runs.c.run_id).limit(MOST))


def whole(connection: Connection, run_ids: Sequence[str]) -> list[Run]:
    by_id: dict[str, Run] = {}
    for start in range(0, len(run_ids), AT_A_TIME):
        query = sa.select(*WHOLE).where(runs.c.run_id.in_(run_ids[start : start + AT_A_TIME]))
        by_id.update((run.run_id, run) for run in _runs(connection, query))
    return [by_id[run_id] for run_id in run_ids if run_id in by_id]


def of_names(connection: Connection, names: Collection[str], before: str, limit: int) -> list[Run]:
    candidates: list[Run] = []
    for name in names:  # each by its own range of the index
        query = sa.select(*WHOLE).where(runs.c.host == storable(name), runs.c.started_at < (before or LAST_CHARACTER))
        ordered = query.order_by(runs.c.started_at.desc(), runs.c.run_id.desc()).limit(limit)
        candidates += _runs(connection, ordered)
    return sorted(candidates, key=lambda run: (run.started_at, run.run_id), reverse=True)[:limit]


def problems(connection: Connection, run_ids: Sequence[str]) -> list[Finding]:
    problem_findings = []
    columns = (
        findings.c.run_id, findings.c.subject, findings.c.property, findings.c.status, findings.c.expected,
        findings.c.actual,
    )  # fmt: skip
    for start in range(0, len(run_ids), AT_A_TIME):
        some = run_ids[start : start + AT_A_TIME]
        query = sa.select(*columns).where(findings.c.run_id.in_(some), findings.c.status.in_(TOLD))
        for run_id, subject, name, status, expected, actual in connection.execute(query):
            problem_findings.append(Finding(run_id, subject, name, Status(status), expected, actual))
    return problem_findings


def with_problem(connection: Connection, subject: str, name: str, since: str) -> list[tuple[str, str, str]]:
    query = (
        sa.select(runs.c.host, runs.c.started_at, findings.c.status)
        .join(findings, findings.c.run_id == runs.c.run_id)
        .where(findings.c.subject == storable(subject), findings.c.property == storable(name))
        .where(findings.c.status.in_(TOLD), runs.c.started_at >= since, runs.c.started_at <= latest())
    )
    return [(host, moment, status) for host, moment, status in connection.execute(query)]


def beginning_with(connection: Connection, prefix: str, limit: int) -> list[Run]:
    query = sa.select(*WHOLE).where(begins_with(runs.c.run_id, storable(prefix)))
    return _runs(connection, query.order_by(runs.c.run_id).limit(limit))


def _runs(connection: Connection, query: sa.Select[Any]) -> list[Run]:
    return [
        Run(run_id, command, host, started_at, Status(verdict) if verdict else None, *_rest(rest))
        for run_id, command, host, started_at, verdict, *rest in connection.execute(query)
    ]


def _rest(values: Sequence[Any]) -> tuple[Any, ...]:
    return (Source(values[0]), *values[1:]) if values else ()
