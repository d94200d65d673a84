"""Which version does a store have, and how is it migrated to the newest? Alembic runs the revisions in versions/.

A released revision is never changed, and it defines its own tables: every new store goes through all revisions. For a
change, add a file to versions/ and its id to the end of REVISIONS, and update store/tables.py.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gpuprep.errors import StoreError

if TYPE_CHECKING:
    from alembic.config import Config

# The ids of all revisions, oldest first: an up-to-date store opens without Alembic, whose import takes longer than the
# query. Stores made before Alembic have the first six as names in the table `migrations`.
REVISIONS = (
    "create_runs",
    "create_findings",
    "create_baselines",
    "index_runs",
    "create_measurements",
    "create_certified",
    "alembic_versions",
    "name_hosts",
    "batches",
    "silent",
)
HEAD = REVISIONS[-1]
# Where a store notes its version: Alembic's table, and the one of stores made before Alembic.
NOTED = (
    ("alembic_version", sa.table("alembic_version", sa.column("version_num", sa.String)).c.version_num),
    ("migrations", sa.table("migrations", sa.column("name", sa.String)).c.name),
)
# Of pg_advisory_xact_lock: any number, as long as it stays the same. "gpuprep" in ASCII.
MIGRATING = int.from_bytes(b"gpuprep", "big")
# Alembic hands the connection to revisions in a global variable, and threads may open different stores at once.
ALEMBIC = threading.Lock()


def version(connection: Connection) -> str | None:
    """The newest revision that this store has; None: the store is empty.

    Raises StoreError for a store that a newer gpuprep wrote.
    """
    inspector = sa.inspect(connection)
    noted = next((column for table, column in NOTED if inspector.has_table(table)), None)
    names = set() if noted is None else set(connection.execute(sa.select(noted)).scalars())
    if unknown := sorted(names.difference(REVISIONS)):
        raise StoreError(
            f"the store of runs was written by a newer gpuprep (it has {', '.join(unknown)})",
            "upgrade gpuprep, or give another store with --store",
        )
    return max(names, key=REVISIONS.index, default=None)


def migrate(connection: Connection) -> None:
    """Bring the store to the newest version inside the caller's transaction, one process at a time.

    On SQLite the caller's transaction holds the lock of the file; on PostgreSQL a lock is taken here.
    Raises StoreError for a store that a newer gpuprep wrote.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATING)))
    there = version(connection)
    if there == HEAD:
        return
    from alembic import command

    config = configuration(connection)
    with ALEMBIC:
        if there:
            command.stamp(config, there)  # of a store made before Alembic; changes nothing in others
        command.upgrade(config, "head")


def configuration(connection: Connection) -> Config:
    """The settings of an alembic.ini: the folder of the revisions, and the connection that env.py uses."""
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    return config
