"""Every version that a store ever had comes to the newest one, whole or not at all, on SQLite and PostgreSQL."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import amount
import oldstores
import postgres
import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from oldstores import BEFORE_ALEMBIC, VERSIONS
from storewriters import PATIENCE_SECONDS, SPAWN, processes

from gpuprep import errors
from gpuprep.store import Store, migrations, tables

pytestmark = pytest.mark.xdist_group("store")
GPUPREP = str(Path(sys.executable).parent / "gpuprep")


@dataclass(frozen=True)
class Contents:
    url: str
    schema: dict[str, Any]
    rows: dict[str, list[dict[str, Any]]]


def contents(url: str) -> Contents:
    return Contents(url, oldstores.schema(url), oldstores.rows(url))


FILLED: dict[str, Contents] = {}


@pytest.fixture
def new(store_url: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Contents:
    """A store of now with something in each table, on the same database as `store_url`. Made once, only read."""
    backend = store_url.partition(":")[0]
    if backend not in FILLED:
        if backend == "sqlite":
            url = f"sqlite:///{tmp_path_factory.mktemp('new')}/new.db"
        else:
            server: postgres.Server = request.getfixturevalue("postgres_server")
            url = server.new_database()
        oldstores.fill_new(url)
        FILLED[backend] = contents(url)
    return FILLED[backend]


def differences(url: str, wanted: sa.MetaData) -> list[Any]:
    with oldstores.database(url) as made, made.connect() as connection:
        return list(compare_metadata(MigrationContext.configure(connection), wanted))


@pytest.mark.parametrize(("noted", "revision"), amount.third(VERSIONS))
def test_every_version_comes_to_the_newest_with_its_data(
    noted: str, revision: str, store_url: str, new: Contents
) -> None:
    oldstores.make(store_url, noted, revision)
    oldstores.fill(store_url, new.rows)
    before = oldstores.rows(store_url)
    Store.open(store_url).close()
    assert oldstores.schema(store_url) == new.schema
    assert differences(store_url, tables.metadata) == []
    after = oldstores.rows(store_url)
    for name in ("runs", "findings", "measurements"):
        assert len(new.rows[name]) >= 2
        assert after[name] == new.rows[name], name  # also where they came from the records
    for name, count in (("baselines", 1), ("certified", 1), ("host_names", 2)):
        assert len(new.rows[name]) == count
        assert after[name] == (new.rows[name] if name in before else []), name
    assert after["alembic_version"] == [{"version_num": migrations.HEAD}]


def test_a_new_store_has_the_tables_that_the_program_uses(store_url: str) -> None:
    Store.open(store_url).close()
    assert differences(store_url, tables.metadata) == []
    other = sa.MetaData()
    for table in tables.metadata.tables.values():
        table.to_metadata(other)
    other.tables["runs"].append_column(sa.Column("new", sa.Integer))
    other.tables["runs"].indexes.pop()
    other.tables["findings"].c.position.type = sa.Text()
    assert sorted(one[0] if isinstance(one, tuple) else one[0][0] for one in differences(store_url, other)) == [
        "add_column", "modify_type", "remove_index",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("noted", "revision"), [("", ""), BEFORE_ALEMBIC[0], BEFORE_ALEMBIC[4], ("alembic", "create_measurements")]
)
def test_an_upgrade_that_fails_leaves_the_store_as_it_was(
    noted: str, revision: str, store_url: str, new: Contents
) -> None:
    if noted:
        oldstores.make(store_url, noted, revision)
        oldstores.fill(store_url, new.rows)
    with oldstores.database(store_url) as made, made.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE certified (in_the_way INTEGER)")
    before = contents(store_url)
    with pytest.raises(errors.StoreError, match="certified"):
        Store.open(store_url)
    assert contents(store_url) == before
    with oldstores.database(store_url) as made, made.begin() as connection:
        connection.exec_driver_sql("DROP TABLE certified")
    Store.open(store_url).close()
    assert oldstores.schema(store_url) == new.schema


def upgrade_until_killed(url: str, statements: int) -> None:
    left = iter(range(statements))

    @sa.event.listens_for(sa.Engine, "after_cursor_execute")
    def count(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if not statement.startswith(("SELECT", "PRAGMA", "BEGIN")) and next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)

    Store.open(url)


@pytest.mark.parametrize("statements", amount.few([4, 0, 11], 1))
def test_an_upgrade_that_is_killed_leaves_the_store_as_it_was(statements: int, store_url: str, new: Contents) -> None:
    oldstores.make(store_url, "by hand", "create_runs")
    oldstores.fill(store_url, new.rows)
    before = contents(store_url)
    with processes(upgrade_until_killed, (store_url, statements)) as (process,):
        pass
    assert process.exitcode == -signal.SIGKILL
    assert contents(store_url) == before
    Store.open(store_url).close()
    assert oldstores.schema(store_url) == new.schema


def open_together(url: str, together: Any) -> None:
    together.wait(PATIENCE_SECONDS)
    opened = Store.open(url)
    assert len(opened.runs()) == 2
    opened.close()


@pytest.mark.parametrize(("noted", "revision"), amount.few([BEFORE_ALEMBIC[0], ("alembic", "index_runs")], 1))
def test_an_old_store_that_several_processes_open_at_once(
    noted: str, revision: str, store_url: str, new: Contents
) -> None:
    oldstores.make(store_url, noted, revision)
    oldstores.fill(store_url, new.rows)
    together = SPAWN.Barrier(3)
    with processes(open_together, *[(store_url, together)] * 3) as opening:
        pass
    assert [process.exitcode for process in opening] == [0] * 3
    assert oldstores.schema(store_url) == new.schema
    assert oldstores.rows(store_url)["alembic_version"] == [{"version_num": migrations.HEAD}]


def test_threads_may_upgrade_different_stores_at_once(tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path}/{number}.db" for number in range(8)]
    for url in urls[::2]:
        oldstores.make(url, "by hand", "create_baselines")
    with ThreadPoolExecutor(len(urls)) as pool:
        for store in pool.map(Store.open, urls):
            store.close()
    for url in urls:
        assert differences(url, tables.metadata) == []


def alembic_future(url: str) -> None:
    Store.open(url).close()
    with oldstores.database(url) as made, made.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = 'from_the_future'")


def by_hand_future(url: str) -> None:
    oldstores.make(url, *BEFORE_ALEMBIC[-1])
    with oldstores.database(url) as made, made.begin() as connection:
        connection.exec_driver_sql("INSERT INTO migrations VALUES ('from_the_future', '2030')")


@pytest.mark.parametrize("make", [alembic_future, by_hand_future])
def test_a_store_of_a_newer_gpuprep_is_left_alone(make: Callable[[str], None], store_url: str) -> None:
    make(store_url)
    before = contents(store_url)
    with pytest.raises(errors.StoreError, match=r"newer gpuprep \(it has from_the_future\)") as caught:
        Store.open(store_url)
    assert "--store" in caught.value.hint
    assert contents(store_url) == before


def test_a_gpuprep_of_before_alembic_refuses_the_store(store_url: str) -> None:
    """It looks for names in `migrations` that it does not know, and gives them."""
    Store.open(store_url).close()
    names = {row["name"] for row in oldstores.rows(store_url)["migrations"]}
    assert names.difference(oldstores.BY_HAND) == {"alembic_versions"}


def test_the_revisions_are_those_of_alembic(tmp_path: Path) -> None:
    with oldstores.database(f"sqlite:///{tmp_path}/x.db") as made, made.connect() as connection:
        directory = ScriptDirectory.from_config(migrations.configuration(connection))
    found = list(directory.walk_revisions())[::-1]
    assert [revision.revision for revision in found] == list(migrations.REVISIONS)
    assert directory.get_heads() == [migrations.HEAD]
    for number, revision in enumerate(found, 1):
        assert Path(revision.path).name == f"v{number:02}_{revision.revision}.py"
        assert len(revision.revision) <= 32  # the width of Alembic's column
    assert len(list(Path(directory.versions).glob("v*.py"))) == len(found)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False)


def test_only_a_store_that_is_behind_costs_the_import_of_alembic(tmp_path: Path) -> None:
    code = (
        "import sys; from gpuprep.store import Store; Store.open(sys.argv[1]).runs(); print('alembic' in sys.modules)"
    )
    told = [run(sys.executable, "-c", code, f"sqlite:///{tmp_path}/history.db").stdout for _ in range(2)]
    assert told == ["True\n", "False\n"]


def test_an_upgrade_says_nothing(store_url: str, new: Contents) -> None:
    oldstores.make(store_url, "by hand", "create_baselines")
    oldstores.fill(store_url, new.rows)
    upgraded, same = (run(GPUPREP, "history", "--store", url) for url in (store_url, new.url))
    assert (upgraded.returncode, upgraded.stdout, upgraded.stderr) == (0, same.stdout, "")
    assert "gpu-1" in upgraded.stdout
