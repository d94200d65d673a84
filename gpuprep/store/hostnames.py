"""Which names are one host? Inside the caller's transaction. Use it through store/__init__.py.

Rows of runs, figures and choices keep the name that the user gave; a query for one name returns the rows of all names
of its host. The identity of a name is what the host reported when the controller connected to that name;
checks/drift/samehost.py decides when two identities are one host.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gpuprep.checks.drift import samehost
from gpuprep.checks.drift.samehost import Identity
from gpuprep.store.tables import baselines, certified, host_names, insert_missing, insert_new, storable
from gpuprep.untrusted.plaintext import command

JOINED, APART = "joined", "apart"
NAMED = 3  # names in one sentence


@dataclass(frozen=True)
class Named:
    """One name of a host."""

    name: str
    host: str
    identity: Identity
    seen_at: str
    by_hand: str


@dataclass(frozen=True)
class Known:
    """What the store has about the host behind a name."""

    others: tuple[str, ...] = ()  # its other names
    notes: tuple[str, ...] = ()  # sentences for the user: what is new about it


def all_names(connection: Connection) -> list[Named]:
    return _rows(connection, sa.true())


def _rows(connection: Connection, which: sa.ColumnElement[bool]) -> list[Named]:
    query = sa.select(host_names).where(which).order_by(host_names.c.host, host_names.c.name)
    rows = connection.execute(query).mappings().all()
    return [Named(row["name"], row["host"], _identity(row["identity"]), row["seen_at"], row["by_hand"]) for row in rows]


def _one_of_each(connection: Connection) -> list[Named]:
    """One name of each host and identity: a host may have hundreds of names."""
    columns = (host_names.c.host, host_names.c.identity, host_names.c.by_hand)
    first = sa.select(sa.func.min(host_names.c.name)).group_by(*columns)
    return _rows(connection, host_names.c.name.in_(first))


def of_host(connection: Connection, name: str) -> list[str]:
    """All names of the host, the given one first."""
    name = storable(name)
    mine = sa.select(host_names.c.host).where(host_names.c.name == name).scalar_subquery()
    query = sa.select(host_names.c.name).where(host_names.c.host == mine).order_by(host_names.c.name)
    return [name, *(other for other in connection.execute(query).scalars().all() if other != name)]


def first_of(connection: Connection, name: str) -> str:
    """The host's first name, under which its rows are written."""
    name = storable(name)
    host: str | None = connection.execute(sa.select(host_names.c.host).where(host_names.c.name == name)).scalar()
    return host or name


def know(
    connection: Connection, name: str, now: Identity, at: str, held_to: Callable[[], str | None]
) -> Known:  # fmt: skip
    """Store the identity that the host behind `name` reported, and join the name with other names of the same host.

    An unknown identity changes nothing. `held_to` returns the certified run of the host.
    """
    if connection.dialect.name == "postgresql":  # SQLite has one writer at a time: two new names see each other
        connection.exec_driver_sql("LOCK TABLE host_names IN SHARE ROW EXCLUSIVE MODE")
    name = storable(name)
    if not now.is_known:
        return Known(tuple(of_host(connection, name)[1:]))
    everyone = _one_of_each(connection)
    mine = next(iter(_rows(connection, host_names.c.name == name)), None)
    notes: list[str] = []
    is_new, what = mine is None, samehost.change(mine.identity, now) if mine else ""
    if what == samehost.REINSTALLED:
        notes.append(f"{name} was installed anew: another machine id on the same hardware")
    host = mine.host if mine else name
    by_hand = mine.by_hand if mine else ""
    if what == samehost.ANOTHER:
        notes.append(
            f"another machine answers to {name} now: what {name} was certified as was that of the machine before"
        )
        left = of_host(connection, name)[1:]
        if left and by_hand != JOINED:
            leave(connection, name, left, held_to(), at)
            host = name
            notes.append(f"{_few(left)}: no longer the same host as {name}")
    mine = Named(name, host, now, at, by_hand)
    same = _same(everyone, mine, now)
    others = [known for known in everyone if known.name != name and known.host != host]
    _write(connection, mine)
    if same:
        join(connection, name, [known.name for known in same])
        notes.append(
            f"{name} is the host that is also called {_few(of_host(connection, name)[1:])}"
            " (same SSH host key and hardware): they have one history"
        )
    if is_new or what:
        notes += _claims(name, now, [known for known in others if known not in same])
    return Known(tuple(of_host(connection, name)[1:]), tuple(notes))


def nothing_new(connection: Connection, name: str, now: Identity) -> Known | None:
    """The result of `know` if it has nothing to write, which is the usual case; None if it must write."""
    name = storable(name)
    # Of a thousand names those alone that have a proven key in common with it, as samehost.same_host() asks for.
    keys = {now.proven, *(now.keys if now.local else ())} - {""}
    its = [host_names.c.identity.contains(key, autoescape=True) for key in sorted(keys)]
    everyone = _rows(connection, sa.or_(host_names.c.name == name, *its))
    mine = next((known for known in everyone if known.name == name), None)
    if now.is_known and (mine is None or mine.identity != now or _same(everyone, mine, now)):
        return None
    return Known(tuple(of_host(connection, name)[1:]))


def _same(everyone: Iterable[Named], mine: Named, now: Identity) -> list[Named]:
    """Names of the same host that are not yet joined with this one."""
    return [
        known
        for known in everyone
        if known.host != mine.host
        and APART not in (mine.by_hand, known.by_hand)
        and samehost.same_host(known.identity, now)
    ]


def join(connection: Connection, name: str, others: Sequence[str], by_hand: str = "") -> None:
    """Make these names one host; each must have a row in host_names. Other rows keep their names."""
    hosts = {first_of(connection, known_name) for known_name in (name, *others)}
    order = (host_names.c.name != host_names.c.host, host_names.c.seen_at, host_names.c.name)
    known = sa.select(host_names.c.host).where(host_names.c.host.in_(hosts)).order_by(*order).limit(1)
    first = connection.execute(known).scalar_one()
    connection.execute(host_names.update().where(host_names.c.host.in_(hosts - {first})).values(host=first))
    if by_hand:
        connection.execute(host_names.update().where(host_names.c.name.in_([name, *others])).values(by_hand=by_hand))


def leave(connection: Connection, name: str, others: Sequence[str], held_to: str | None, at: str) -> None:
    """Make `name` another host than `others`. Both keep the baseline, and `others` the certified run `held_to`."""
    stay = min(others)
    for host_name, host in ((name, name), *((other, stay) for other in others)):
        connection.execute(host_names.update().where(host_names.c.name == host_name).values(host=host))
    rows = connection.execute(sa.select(baselines).where(baselines.c.host.in_([name, *others]))).mappings().all()
    for host in (name, stay):
        insert_missing(connection, baselines, [{**row, "host": host} for row in rows])
    if held_to is not None:
        row = {"host": stay, "run_id": held_to, "set_at": at, "reason": f"when {name} became another host"}
        insert_missing(connection, certified, [row])


def set_apart(connection: Connection, name: str, at: str, held_to: str | None) -> list[str]:
    """Make `name` a host of its own, as the user asks; returns the names that it was joined with."""
    others = of_host(connection, name)[1:]
    if others:
        leave(connection, name, others, held_to, at)
    if not has_row(connection, name):
        _write(connection, Named(storable(name), storable(name), Identity(), at, ""))
    connection.execute(host_names.update().where(host_names.c.name == storable(name)).values(by_hand=APART))
    return others


def join_by_hand(connection: Connection, name: str, other: str, at: str) -> None:
    """Join two names as one host, as the user asks."""
    for host_name in (storable(name), storable(other)):
        if not has_row(connection, host_name):
            _write(connection, Named(host_name, host_name, Identity(), at, ""))
    join(connection, storable(name), [storable(other)], JOINED)


def has_row(connection: Connection, name: str) -> bool:
    query = sa.select(host_names.c.name).where(host_names.c.name == storable(name))
    return connection.execute(query).scalar() is not None


def _claims(name: str, now: Identity, others: Iterable[Named]) -> list[str]:
    """Notes on a host that reports the identity of another host without proof: such names are never joined."""
    names_by_reason: dict[str, list[str]] = {}
    for other in others:
        if why := samehost.not_merged(other.identity, now):
            names_by_reason.setdefault(why, []).append(other.name)
    return [
        f"{name} {why} ({_few(names)}): it counts as another host; if it is the same host, type:"
        f" {command('gpuprep', 'history', 'join', about=(name, names[0]))}"
        for why, names in names_by_reason.items()
    ]


def _few(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - NAMED} more" if len(listed) > NAMED else ""
    return ", ".join(listed[:NAMED]) + more


def _write(connection: Connection, named: Named) -> None:
    """Write the row of a name if it changed; usually it did not."""
    row = {"name": named.name, "host": named.host, "identity": _text(named.identity), "by_hand": named.by_hand}
    mine = host_names.c.name == named.name
    there = connection.execute(sa.select(host_names).where(mine)).mappings().one_or_none()
    if there is not None and all(there[name] == value for name, value in row.items()):
        return
    if not insert_new(connection, host_names, {**row, "seen_at": named.seen_at}):
        connection.execute(host_names.update().where(mine).values(**row, seen_at=named.seen_at))


def _text(identity: Identity) -> str:
    document = {
        "machine": identity.machine, "hardware": identity.hardware, "gpus": sorted(identity.gpus),
        "keys": sorted(identity.keys), "proven": identity.proven, "local": identity.local,
        "simulated": identity.simulated,
    }  # fmt: skip
    return json.dumps(document, sort_keys=True)


@lru_cache(maxsize=4096)
def _identity(text: str) -> Identity:
    """The identity in a row; an unknown identity for a damaged row."""
    try:
        document = json.loads(text)
        return Identity(
            machine=str(document["machine"]),
            hardware=str(document["hardware"]),
            gpus=frozenset(map(str, document["gpus"])),
            keys=frozenset(map(str, document["keys"])),
            proven=str(document["proven"]),
            local=bool(document["local"]),
            simulated=bool(document["simulated"]),
        )
    except (ValueError, KeyError, TypeError):
        return Identity()
