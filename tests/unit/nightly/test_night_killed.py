"""kill -9 at any moment of a check: nothing torn, nothing lost, nobody told twice of what was told, nobody left out.

A process of its own makes it happen (torture): it forks a host that checks itself again and again, kills it somewhere,
looks at every file, and goes on with the next. So each kill costs no start of Python.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import amount
from nightsfortests import ANSWERS, WISH, a_plan, agent_of, answering, facts, write_plan
from prometheus_client.parser import text_string_to_metric_families

from gpuprep import records
from gpuprep.desired import profile
from gpuprep.nightly import notify, run

KILLS = 30 if amount.ALL else 12
KEEP = 5
# The GPU's persistence mode is on and off from check to check, so that every check is a change to be told.
TURNING = f'mv "$0/facts.json" "$0/t"; mv "$0/other.json" "$0/facts.json"; mv "$0/t" "$0/other.json"; {ANSWERS}'
TELL = 'cat > "{0}/telling" && echo >> "{0}/telling" && cat "{0}/telling" >> "{0}/told"'


def torture(folder: Path, seed: int) -> None:
    """Prints what was seen, as JSON."""
    chance = random.Random(seed)
    run.CONTROLLERS_LOCK = folder / "none"
    seen = {"kills": 0, "checks": 0, "leftovers": 0, "unfinished": 0}
    newest = ""
    for _ in range(KILLS):
        said = _killed(folder, chance.uniform(0.0, 1.5))
        seen["kills"] += 1
        seen["checks"] += len(said)
        newest = max([newest, *said])
        seen["leftovers"] += len(list(folder.rglob("*.part")))
        seen["unfinished"] += _look(folder, newest)
    print(json.dumps(seen))


def _killed(folder: Path, after: float) -> list[str]:
    """One host that checks itself until it is killed, `after` so many checks more than one: the runs it said it did."""
    began = time.monotonic()
    ears, mouth = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(mouth, 1)
        agent = agent_of(TURNING, folder / "agent")
        while True:
            run.main(folder / "drift.json", folder / "drift", agent)
    os.close(mouth)
    with os.fdopen(ears, "rb") as stream:
        said = stream.readline()
        select.select([], [], [], after * (time.monotonic() - began))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        said += stream.read()
    return [line.split(b"(run ")[1].split(b")")[0].decode() for line in said.splitlines()]


def _look(folder: Path, newest: str) -> bool:
    """Everything there is whole and as new as was said. Whether the last check had not come to its end."""
    last = records.from_json(records.RunRecord, (folder / "drift" / "last.json").read_text())
    assert last.run_id >= newest, (last.run_id, newest)
    kept = [path for path in (folder / "drift" / "results").iterdir() if not path.name.startswith(".")]
    stored = {path.stem: records.from_json(records.RunRecord, path.read_text()) for path in kept}
    assert all(name == record.run_id for name, record in stored.items())
    assert newest in stored, "a check that said it was done is not among the results"
    assert len(stored) <= KEEP + 1
    records.from_json(notify.State, (folder / "drift" / "state.json").read_text())
    (info,) = [
        family
        for family in text_string_to_metric_families((folder / "textfile" / "gpuprep.prom").read_text())
        if family.name == "gpuprep_drift_info"
    ]
    assert info.samples[0].labels["run"] >= newest
    return last.run_id > newest


def test_a_host_that_is_killed_again_and_again(tmp_path: Path) -> None:
    answering(tmp_path / "agent", facts())
    (tmp_path / "agent" / "facts.json").rename(tmp_path / "agent" / "other.json")
    answering(tmp_path / "agent", facts(persistence_mode=False))
    (tmp_path / "textfile").mkdir()
    told_by = profile.NotifyWish("", "", TELL.format(tmp_path))
    wish = dataclasses.replace(WISH, keep=KEEP, textfile_directory=str(tmp_path / "textfile"), notify=told_by)
    write_plan(tmp_path / "drift.json", a_plan(drift=wish))
    seed = random.randrange(10**6)
    done = subprocess.run(
        [sys.executable, "-c", f"import test_night_killed as t, pathlib as p; t.torture(p.Path.cwd(), {seed})"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])},
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, f"seed {seed}: {done.stderr}"
    seen = json.loads(done.stdout)
    assert seen["kills"] == KILLS
    assert seen["checks"] >= KILLS
    # Of thirty kills some always come in the middle of a check.
    assert seen["unfinished"] + seen["leftovers"] > 0 or not amount.ALL, f"no check was killed in the middle: {seen}"
    told = [json.loads(line) for line in (tmp_path / "told").read_text().splitlines() if line]
    once = {one["run_id"]: one for one in told}
    assert len(told) - len(once) <= KILLS  # only who was killed between the telling and the note of it tells again
    changes = list(once.values())
    for before, after in itertools.pairwise(changes):
        assert before["run_id"] < after["run_id"]
        assert after["previous"] == before["verdict"], "a change was not told"
