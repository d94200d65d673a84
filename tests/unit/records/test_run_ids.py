"""Ids of runs: a sweep begins many within one moment, and no two are alike."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

from gpuprep.nightly import results
from gpuprep.records import ids


def test_runs_of_one_moment_have_different_ids() -> None:
    """20 000 within some tenths of a second. By time and chance alone about one in forty had the id of another."""
    with ThreadPoolExecutor(16) as threads:
        made = list(threads.map(lambda _: ids.new_run_id(), range(20_000)))
    assert len(set(made)) == len(made)
    assert all(re.fullmatch(results.RUN_ID, one) for one in made)


def test_ids_sort_by_time() -> None:
    before = ids.new_run_id()
    made = [ids.new_run_id() for _ in range(200)]
    assert before[:15] <= made[0][:15]
    assert [one[:18] for one in made] == sorted(one[:18] for one in made)
