"""Every version that a store ever had comes to the newest one, whole or not at all, on SQLite and PostgreSQL."""

from __future__ import annotations

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
from oldstores import BEFORE_ALEMBIC, VERSIONS
from records_for_tests import record
from storewriters import SPAWN, open_together, processes, upgrade_until_killed

from gpuprep import errors, records
from gpuprep.store import Store

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


@pytest.mark.parametrize(("noted", "revision"), amount.third(VERSIONS))
def test_every_version_comes_to_the_newest_with_its_data(
    noted: str, revision: str, store_url: str, new: Contents
) -> None:
    oldstores.make(store_url, noted, revision)
    oldstores.fill(store_url, new.rows)
    before = oldstores.rows(store_url)
    Store.open(store_url).close()
    assert oldstores.schema(store_url) == new.schema
    assert oldstores.differences(store_url) == []
    after = oldstores.rows(store_url)
    for name in ("runs", "findings", "measurements"):
        assert len(new.rows[name]) >= 2
        assert after[name] == new.rows[name], name  # also where they came from the records
    for name, count in (("baselines", 1), ("certified", 1), ("host_names", 2)):
        assert len(new.rows[name]) == count
        assert after[name] == (new.rows[name] if name in before else []), name
    assert after["alembic_version"] == new.rows["alembic_version"]


def test_a_new_store_has_the_tables_that_the_program_uses(store_url: str) -> None:
    Store.open(store_url).close()
    assert oldstores.differences(store_url) == []


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
    assert oldstores.version(store_url) == oldstores.version(new.url)


def test_threads_may_upgrade_different_stores_at_once(tmp_path: Path) -> None:
    urls = [f"sqlite:///{tmp_path}/{number}.db" for number in range(8)]
    for url in urls[::2]:
        oldstores.make(url, "by hand", "create_baselines")
    with ThreadPoolExecutor(len(urls)) as pool:
        for store in pool.map(Store.open, urls):
            store.close()
    for url in urls:
        assert oldstores.differences(url) == []


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


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
def test_a_server_keeps_what_a_file_keeps(store_url: str, new: Contents) -> None:
    """The telling case of PostgreSQL: an old store is upgraded, written to, searched, pruned and exported."""
    oldstores.make(store_url, *BEFORE_ALEMBIC[0])
    oldstores.fill(store_url, new.rows)
    store = Store.open(store_url)
    assert oldstores.schema(store_url) == new.schema
    assert oldstores.differences(store_url) == []
    assert [run.run_id for run in store.runs()] == ["r2", "r1"]
    odd = records.Finding("gpu 0", "x" * 300, records.Status.FAIL, "a\0b", "half \udcff")
    assert store.append_new(record("r-3", findings=(odd,), verdict=None))
    assert not store.append_new(record("r-3", host="another"))
    with pytest.raises(errors.StoreError, match="already in the store"):
        store.append(record("r-3"))
    assert (store.get("r-").run_id, store.host_of("r-3")) == ("r-3", "sim:t4")
    with pytest.raises(errors.UsageError, match="fits several runs"):
        store.get("r")
    assert [one.value for one in store.figures("gpu-1", "")] == [280.0, 270.0]
    assert [len(line) > 100 for line in store.export_records()] == [True] * 3
    assert len(list(store.export_rows("findings"))) == 1 + len(new.rows["findings"]) + 1
    assert store.prune(["r-3"]) == ["r-3"]
    assert {run.run_id for run in store.runs()} == {"r1", "r2"}
    store.close()
