"""The host's own results: which is the newest, how many stay, what a killed run or a damaged disk left."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from nightsfortests import read_json, result
from records_for_tests import SNAPSHOT

from gpuprep import records
from gpuprep.nightly import last, results

FIRST, SECOND, THIRD = (f"2026112{day}-023000-00000" for day in (1, 2, 3))
MORNING = datetime(2026, 11, 21, 7, 0, tzinfo=timezone.utc)  # after the night of result()


def kept(folder: Path) -> list[str]:
    return sorted(path.stem for path in (folder / "results").iterdir())


@pytest.fixture
def there(tmp_path: Path) -> results.Results:
    made = results.Results(tmp_path / "drift")
    with made.lock():
        return made


def test_the_newest_is_last_and_a_file_of_its_own(there: results.Results) -> None:
    for run_id in (FIRST, SECOND):
        there.keep(result(run_id=run_id), 60)
    assert read_json(there.folder / "last.json")["run_id"] == SECOND
    assert kept(there.folder) == [FIRST, SECOND]
    assert {path.stat().st_mode & 0o777 for path in there.folder.rglob("*.json")} == {0o644}
    record, damaged = there.newest()
    assert record == result(run_id=SECOND)
    assert not damaged


def test_as_many_stay_as_are_wished(there: results.Results) -> None:
    ids = [f"20261121-0{hour}0000-00000" for hour in range(9)]
    for run_id in ids:
        there.keep(result(run_id=run_id), 3)
    assert kept(there.folder) == ids[-3:]
    there.keep(result(run_id=THIRD), 1)
    assert kept(there.folder) == [THIRD]


def test_a_clock_that_went_back_does_not_cost_the_newest_result(there: results.Results) -> None:
    for run_id in (SECOND, THIRD, FIRST):
        there.keep(result(run_id=run_id), 2)
    assert kept(there.folder) == [FIRST, THIRD]
    assert there.newest()[0] == result(run_id=FIRST)


def test_files_of_other_names_are_left_alone(there: results.Results) -> None:
    (there.folder / "results" / "notes.txt").write_text("mine")
    for run_id in (FIRST, SECOND):
        there.keep(result(run_id=run_id), 1)
    assert kept(there.folder) == [SECOND, "notes"]


def test_the_previous_check_is_the_newest_that_came_to_a_verdict(there: results.Results) -> None:
    assert there.previous() == (None, ())
    there.keep(result(records.Status.FAIL, run_id=FIRST), 60)
    there.keep(result(run_id=SECOND, error="the agent did not answer"), 60)
    assert there.previous()[0] == result(records.Status.FAIL, run_id=FIRST)
    assert there.newest()[0] == result(run_id=SECOND, error="the agent did not answer")


@pytest.mark.parametrize("content", [b"", b'{"run_id": "2026', b"[]", b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_last_result_counts_as_absent_and_is_named(there: results.Results, content: bytes) -> None:
    for run_id in (FIRST, SECOND):
        there.keep(result(run_id=run_id), 60)
    (there.folder / "last.json").write_bytes(content)
    record, damaged = there.previous()
    assert record == result(run_id=SECOND)
    assert [one.path.name for one in damaged] == ["last.json"]
    assert "last.json counts as absent: " in str(damaged[0])


def test_everything_damaged_is_as_no_result(there: results.Results) -> None:
    there.keep(result(run_id=FIRST), 60)
    for path in there.folder.rglob("*.json"):
        path.write_text("{}")
    record, damaged = there.previous()
    assert record is None
    assert len(damaged) == 2
    assert all(isinstance(one, results.Damaged) for one in damaged)


def test_the_next_run_puts_in_order_what_a_killed_one_left(there: results.Results) -> None:
    there.keep(result(run_id=FIRST), 60)
    for name in (".last.json.0a1b.part", f"results/.{SECOND}.json.2c3d.part"):
        (there.folder / name).write_text('{"run_id"')
    # killed after last.json and before its file among the results
    (there.folder / "last.json").write_text(records.to_json(result(run_id=SECOND)))
    with there.lock():
        assert kept(there.folder) == [FIRST, SECOND]
        assert not list(there.folder.rglob("*.part"))


HOLDER = """
import sys
from pathlib import Path
from gpuprep.nightly.results import Results
with Results(Path(sys.argv[1])).lock():
    print("held", flush=True)
    sys.stdin.read()
"""


def test_one_run_at_a_time_and_none_is_locked_out_by_a_dead_one(tmp_path: Path) -> None:
    there = results.Results(tmp_path / "drift")
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(there.folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(results.AlreadyRunning, match=f"process {holder.pid}"), there.lock():
            pass
        holder.kill()
        holder.wait()
        with there.lock():
            assert (there.folder / "lock").read_text().strip() != str(holder.pid)


def test_the_folders_are_readable_by_all_whatever_the_umask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those a narrow umask made before, too; and nothing above other folders than the usual ones."""
    usual = tmp_path / "gpuprep" / "drift"
    monkeypatch.setattr("gpuprep.nightly.results.FOLDER", usual)
    before = os.umask(0o077)
    try:
        usual.mkdir(parents=True)
        (usual / "results").mkdir()
        for folder in (usual, tmp_path / "home" / "drift"):
            with results.Results(folder).lock():
                pass
    finally:
        os.umask(before)
    modes = {path: path.stat().st_mode & 0o777 for path in (usual.parent, usual, usual / "results")}
    assert set(modes.values()) == {0o755}, modes
    assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700


def test_the_lock_is_for_the_owner_alone(there: results.Results) -> None:
    """Who may open a file may lock it: any user could keep the checks from running."""
    assert (there.folder / "lock").stat().st_mode & 0o777 == 0o600


def test_a_folder_that_may_not_be_made_is_the_users_mistake() -> None:
    script = (
        "import os; from pathlib import Path; from gpuprep.nightly.results import Results\n"
        "from gpuprep.errors import UsageError\n"
        "if os.getuid() == 0: os.setuid(65534)\n"
        "try: Results(Path('/gpuprep-of-nobody/drift')).lock().__enter__()\n"
        "except UsageError as error: print(error.exit_code, error.hint)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2 run it as root"


# ---------------------------------------------------------------- gpuprep-drift last


def test_last_shows_what_did_not_pass_and_ends_as_the_check_did(
    there: results.Results, capsys: pytest.CaptureFixture[str]
) -> None:
    assert last.main(there.folder) == 3
    assert "what to do: `sudo gpuprep-drift run`" in capsys.readouterr().err
    there.keep(result(records.Status.FAIL), 60)
    assert last.main(there.folder, now=MORNING) == 1
    said = capsys.readouterr().out
    assert said.startswith("gpu-1.example.org: FAIL: profile t4, 1 checks\n")
    assert "SIMULATED" in said
    assert "FAIL gpu 0.persistence_mode: disabled, expected enabled\n     why: a reason\n     do: a remedy" in said


def test_last_as_json_is_the_record(there: results.Results, capsys: pytest.CaptureFixture[str]) -> None:
    there.keep(result(records.Status.UNKNOWN), 60)
    assert last.main(there.folder, as_json=True, now=MORNING) == 3
    shown = capsys.readouterr()
    assert json.loads(shown.out) == json.loads(records.to_json(result(records.Status.UNKNOWN)))
    assert shown.err == ""


def test_last_of_a_damaged_file_says_so_and_shows_the_one_before(
    there: results.Results, capsys: pytest.CaptureFixture[str]
) -> None:
    there.keep(result(), 60)
    (there.folder / "last.json").write_text("{")
    assert last.main(there.folder, now=MORNING) == 3
    shown = capsys.readouterr()
    assert "last.json counts as absent: not JSON" in shown.err
    assert "Error: the present state of this machine is not known: the newest result is damaged" in shown.err
    assert shown.out.startswith("gpu-1.example.org: UNKNOWN: the newest result is damaged")
    assert "its result was: PASS: profile t4" in shown.out


def test_an_older_result_that_is_damaged_changes_nothing(there: results.Results) -> None:
    for run_id in (FIRST, SECOND):
        there.keep(result(run_id=run_id), 60)
    (there.folder / "results" / f"{FIRST}.json").write_text("{")
    assert last.main(there.folder, now=MORNING) == 0


@pytest.mark.parametrize(
    ("age", "code", "why"),
    [
        (timedelta(hours=49), 0, ""),
        (timedelta(hours=49, minutes=1), 3, "last check 2026-11-21 02:00 UTC is over 49 h old"),
        (timedelta(days=81), 3, "last check 2026-11-21 02:00 UTC is over 49 h old"),
        (timedelta(minutes=-4), 0, ""),
        (timedelta(minutes=-6), 3, "last check 2026-11-21 02:00 UTC is later than now: is the clock right?"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_last_of_another_time_says_nothing_of_now(
    age: timedelta, code: int, why: str, as_json: bool, there: results.Results, capsys: pytest.CaptureFixture[str]
) -> None:
    there.keep(result(), 60)
    now = datetime.fromisoformat(result().ended_at) + age
    assert last.main(there.folder, as_json=as_json, plan=there.folder / "none", now=now) == code
    shown = capsys.readouterr()
    assert why in shown.err
    assert ("what to do: `sudo gpuprep-drift run`" in shown.err) == bool(why)
    if not as_json:
        assert shown.out.startswith(f"gpu-1.example.org: UNKNOWN: {why}" if why else "gpu-1.example.org: PASS")


def test_the_delay_of_the_plan_counts_for_last_too(there: results.Results) -> None:
    there.keep(result(), 60)
    plan = there.folder / "plan.json"
    plan.write_text('{"drift": {"random_delay_minutes": 30}}')
    ended = datetime.fromisoformat(result().ended_at)
    assert last.main(there.folder, plan=plan, now=ended + timedelta(hours=49, minutes=29)) == 0
    assert last.main(there.folder, plan=plan, now=ended + timedelta(hours=49, minutes=31)) == 3


def test_last_of_another_machine_is_not_of_this_one(there: results.Results, capsys: pytest.CaptureFixture[str]) -> None:
    """A machine made from the image of one that was checked."""
    there.keep(result(after=dataclasses.replace(SNAPSHOT, hostname="the-image")), 60)
    assert last.main(there.folder, now=MORNING) == 3
    assert "the last result is of another machine, the-image" in capsys.readouterr().err
    there.keep(result(after=dataclasses.replace(SNAPSHOT, hostname=os.uname().nodename)), 60)
    assert last.main(there.folder, now=MORNING) == 0


def test_last_of_a_night_without_evidence() -> None:
    now = datetime(2026, 11, 24, 2, 0, 5, tzinfo=timezone.utc)
    said = last.text(result(error="the agent did not answer\nwhat to do: look"), now)
    assert said.startswith("gpu-1.example.org: UNKNOWN: the agent did not answer\n  what to do: look\n")
    assert "(3 days ago)" in said


@pytest.mark.parametrize(
    ("age", "said"),
    [
        (timedelta(minutes=5), "5 min ago"),
        (timedelta(hours=30), "30 h ago"),
        (timedelta(days=9), "9 days ago"),
        (timedelta(hours=-3), "later than now: is the clock right?"),
    ],
)
def test_last_says_how_old_it_is(age: timedelta, said: str) -> None:
    ended = datetime.fromisoformat(result().ended_at)
    assert f"({said})" in last.text(result(), ended + age)
