"""The command line on a terminal: the live display, what stays of it, and where there is no terminal."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import amount
import pytest
from builders import finished_snapshot, good_probes, measured_t4, resolved
from commandline import Shell, own_folders
from places import SUPPORT
from progresslog import Log, folders
from pseudoterminal import INTERRUPT, Program, Screen, Terminal
from records_for_tests import record
from rich.cells import cell_len

from gpuprep import records
from gpuprep.store import Store

# The program itself; hosts are fakehost's, whose probes wait for a byte in the FIFO `gate`, one each.
PROGRAM = """
import os, signal, sys
sys.path.insert(0, {tests!r})
signal.signal(signal.SIGINT, signal.default_int_handler)
from builders import finished_snapshot, good_probes, measured_t4, resolved
from fakehost import FakeHost, Script
from gpuprep.cli import main, run_command
from gpuprep.workflows import runs

runs.ENDING_SECONDS = 600.0  # only a second Ctrl-C ends what waits at the gate
run_command.ONE_WISH_SECONDS = 0.0
WANTED = resolved()
GATE = os.open({gate!r}, os.O_RDONLY) if {gate!r} else None

class Waits(FakeHost):
    def run(self, command, **options):
        if " probe toolkit " in command and GATE is not None:
            os.read(GATE, 1)
        return super().run(command, **options)

probes = {{result.probe: result for result in (*good_probes(WANTED), *measured_t4())}}
script = Script(snapshots=[finished_snapshot(WANTED)], probes=probes)
runs.Host = lambda target, **options: Waits(script, target, options)
main({words!r})
"""
OURS = re.compile(rb"\x1b\[(?:0|1|3[0-7]|90)m")  # colours


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


def program(words: list[str], gate: Path | str = "") -> str:
    return PROGRAM.format(tests=str(SUPPORT), gate=str(gate), words=words)


def earlier(tmp_path: Path, **changed: object) -> None:
    """A run of five minutes in the store: 200 seconds of facts, 100 of compiling."""
    wanted = resolved()
    toolkit = next(result for result in good_probes(wanted) if result.probe == "toolkit")
    others = [result for result in (*good_probes(wanted), *measured_t4()) if result.probe != "toolkit"]
    seen = finished_snapshot(wanted)
    made = dataclasses.replace(
        record(), command="validate", host="gpu-01", exit_code=0, before=seen, after=seen, playbook=None,
        source=seen.source, profile=records.ProfileRef("t4", "/t4.yml", "0" * 64),
        options={"probe": "none", "check": False, "deep": False, "quick": False},
        started_at="2026-11-20T10:00:00+00:00", ended_at="2026-11-20T10:05:00+00:00",
        measurements=(dataclasses.replace(toolkit, seconds=100.0),
                      *(dataclasses.replace(result, seconds=0.0) for result in others)),
    )  # fmt: skip
    store = Store.open(f"sqlite:///{tmp_path}/history.db")
    store.append(dataclasses.replace(made, **changed))  # type: ignore[arg-type]
    store.close()


def validate(tmp_path: Path, *hosts: str) -> list[str]:
    return ["validate", *hosts, "--profile", "t4", "--store", f"sqlite:///{tmp_path}/history.db"]


def test_a_line_says_step_time_and_what_is_left(tmp_path: Path, gate: Path) -> None:
    earlier(tmp_path)
    words = [*validate(tmp_path, "gpu-01"), "--json"]
    with Program(program(words, gate), tmp_path / "out", folders(tmp_path)) as running:
        writer = os.open(gate, os.O_WRONLY)
        screen = running.until(lambda screen: any("left" in row for row in screen.rows))
        [line] = [row for row in screen.rows if "left" in row]
        found = re.fullmatch(
            r"toolkit +━+╸?(?:╺?━+)? +\d:\d\d about (\d):(\d\d) left compiling with nvcc \d:\d\d", line
        )
        assert found, line
        # All of the facts, less a moment, and all of the compiling.
        assert 2 * 60 < int(found[1]) * 60 + int(found[2]) <= 5 * 60
        assert screen.rows.index(line) == len(screen.shown) - 1, "below all lines that stay"
        os.write(writer, b"x")
        os.close(writer)
        code, out, screen = running.end()
    assert json.loads(out)["exit_code"] == code == 0
    assert not any("left" in row for row in screen.everything), "nothing is left of it"
    assert [row.split(None, 1)[1] for row in screen.shown][:2] == ["connecting", "reading facts"]


@pytest.mark.only_all  # test_silence.py has the same words of a log
def test_a_probe_says_how_far_it_is(tmp_path: Path, gate: Path) -> None:
    doing = "probereports.Doing('scale-cuda', 12, 30, 'transcodes')"
    told = f"from gpuprep.remote import probereports\nscript.doing['toolkit'] = [{doing}]\n"
    slow = program(validate(tmp_path, "gpu-01"), gate).replace("runs.Host =", f"{told}runs.Host =")
    with Program(slow, tmp_path / "out", folders(tmp_path)) as running:
        writer = os.open(gate, os.O_WRONLY)
        screen = running.until(lambda screen: any("transcodes" in row for row in screen.rows))
        [line] = [row for row in screen.rows if "transcodes" in row]
        assert re.fullmatch(r"toolkit +━+╸?(?:╺?━+)? +\d:\d\d +transcodes 12/30, scale-cuda \d:\d\d", line), line
        os.write(writer, b"x")
        os.close(writer)
        code, _, screen = running.end()
    assert code == 0
    assert not any("12/30" in row for row in screen.everything), "the next step says nothing of it"


@pytest.mark.parametrize(
    "changed",
    amount.few(
        [{"exit_code": 1}, {"command": "provision"}, {"host": "b", "profile": None}, {"options": {"quick": True}}], 1
    ),
    ids=str,
)
def test_what_is_left_is_not_guessed(tmp_path: Path, gate: Path, changed: dict[str, object]) -> None:
    earlier(tmp_path, **changed)
    with Program(program(validate(tmp_path, "gpu-01"), gate), tmp_path / "out", folders(tmp_path)) as running:
        writer = os.open(gate, os.O_WRONLY)
        running.until(lambda screen: any(row.startswith("toolkit ") for row in screen.rows))
        os.write(writer, b"x")
        os.close(writer)
        code, _, screen = running.end()
    assert code == 0
    assert b" left" not in screen.raw


@pytest.mark.only_all  # tests/unit/workflows has which runs a host goes by
def test_a_new_host_goes_by_others_of_its_profile_and_system(tmp_path: Path, gate: Path) -> None:
    earlier(tmp_path, host="gpu-02")
    with Program(program(validate(tmp_path, "gpu-01"), gate), tmp_path / "out", folders(tmp_path)) as running:
        writer = os.open(gate, os.O_WRONLY)
        running.until(lambda screen: any("left" in row for row in screen.rows))
        os.close(writer)
        assert running.end()[0] == 0


def at_work(screen: Screen) -> int:
    return sum(bool(re.match(r"gpu-\d\d +toolkit ", row)) for row in screen.rows)


def test_sixty_hosts_on_a_small_screen(tmp_path: Path, gate: Path) -> None:
    hosts = [f"gpu-{number:02d}" for number in range(60)]
    words = [*validate(tmp_path, *hosts), "--forks", "30", "--only", "toolkit"]
    with Program(program(words, gate), tmp_path / "out", folders(tmp_path)) as running:
        writer = os.open(gate, os.O_WRONLY)
        # 23 rows at most: the last one is for those that ended, the one above for those that do not fit.
        running.until(lambda screen: at_work(screen) == 21 and screen.shown[-2:] == ["and 9 more at work", "0/60"])
        os.write(writer, b"x" * 17)
        running.until(lambda screen: screen.shown[-1] == "17/60, 17 ok")
        os.write(writer, b"x" * 28)
        running.until(lambda screen: at_work(screen) == 15 and screen.shown[-1] == "45/60, 45 ok")
        os.write(writer, b"x" * 15)
        os.close(writer)
        code, out, screen = running.end()
    assert code == 0
    assert out.splitlines()[-1] == "60 PASS of 60"
    assert len(out.splitlines()) <= 80
    assert set(re.findall(r"gpu-\d\d", out)) == set(hosts)
    # Nothing of the display stays, and it took no line with it: every host has its line of each stage once.
    assert not any("toolkit" in row or "/60" in row for row in screen.everything)
    for what in ("connecting", "reading facts", "compiling with nvcc"):
        said = [row.split("|")[0].split()[1] for row in screen.everything if row.endswith(f"| {what}")]
        assert sorted(said) == hosts, what


def test_few_hosts_have_a_line_each_and_say_how_they_ended(terminal: Terminal) -> None:
    log = Log("a", "b", "c", stream=terminal)

    def rows() -> list[str]:
        log.wait(1.0)
        screen = Screen()
        screen.feed(terminal.getvalue().encode())
        return screen.rows

    with log.console:
        for host in ("a", "b"):
            log.tell("stage", "reading facts", host=host)
        assert any(re.match(r"c +waiting", row) for row in rows())
        log.ended("a", 0)
        log.ended("b", 1)
        shown = rows()
    assert any(re.match(r"a +ok +", row) for row in shown), shown
    assert any(re.match(r"b +failed +", row) for row in shown), shown


def test_an_interruption_leaves_the_terminal_as_it_was(tmp_path: Path, gate: Path) -> None:
    with Program(program(validate(tmp_path, "gpu-01"), gate), tmp_path / "out", folders(tmp_path)) as running:
        writer = os.open(gate, os.O_WRONLY)
        running.until(lambda screen: any(row.startswith("toolkit ") for row in screen.rows))
        running.type(INTERRUPT)
        running.until(lambda screen: any("Interrupted: ending what runs" in row for row in screen.rows))
        os.close(writer)
        code, _, screen = running.end()
    assert code == 130
    assert not any(row.startswith("toolkit ") for row in screen.rows)
    assert b"\x1b[?25l" not in screen.raw, "never hidden: kill -9 leaves it shown, too"


def test_results_on_the_same_terminal_come_after_the_display(tmp_path: Path, gate: Path) -> None:
    words = validate(tmp_path, "gpu-01")
    with Program(program(words, gate), tmp_path / "out", folders(tmp_path), lines=100, all_of_it=True) as running:
        writer = os.open(gate, os.O_WRONLY)
        running.until(lambda screen: any(row.startswith("toolkit ") for row in screen.rows))
        os.close(writer)
        _, _, screen = running.end()
    rows = screen.everything
    verdict = next(place for place, row in enumerate(rows) if row.startswith("PASS  gpu-01"))
    progress = [place for place, row in enumerate(rows) if re.match(r" +\d:\d\d ", row)]
    assert len(progress) > 5
    assert max(progress) < verdict
    assert not any(re.search("━", row) for row in rows)


# ---------------------------------------------------------------- without a display


def drawn(terminal: Terminal, *, no_color: bool = False) -> Screen:
    """What a run draws while a task is at work, and before it is taken away."""
    log = Log("gpu-01", no_color=no_color, stream=terminal)
    with log.console:
        log.tell("task_start", role="gpu_driver", task="Build")
        log.wait(4.0)
        screen = Screen()
        screen.feed(terminal.getvalue().encode())
    return screen


def test_where_no_display_is_wanted_there_is_none(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    assert b"\x1b" in drawn(terminal).raw
    monkeypatch.setenv("TERM", "dumb")
    assert b"\x1b" not in drawn(Terminal()).raw


@pytest.mark.parametrize("how", ["--no-color", "NO_COLOR"])
def test_without_colour_it_is_drawn_all_the_same(terminal: Terminal, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    if how == "NO_COLOR":
        monkeypatch.setenv("NO_COLOR", "1")
    screen = drawn(terminal, no_color=how == "--no-color")
    assert any("Build" in row for row in screen.rows), screen.rows
    assert not re.search(rb"\x1b\[[0-9;]*m", screen.raw)


def test_without_a_terminal_rich_is_not_even_imported(tmp_path: Path) -> None:
    ends = "import atexit, sys\natexit.register(lambda: print('rich' in sys.modules))\n"
    done = subprocess.run(
        [sys.executable, "-c", ends + program(validate(tmp_path, "gpu-01"))],
        env={**os.environ, **folders(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1] == "False"
    assert "\x1b" not in done.stderr + done.stdout
    assert [line.split(None, 1)[1] for line in done.stderr.splitlines()][:2] == ["connecting", "reading facts"]


# ---------------------------------------------------------------- lists


def test_a_list_fits_the_terminal_and_says_nothing_else_than_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own_folders(monkeypatch, tmp_path)
    earlier(tmp_path, host="a-very-long-name-of-a-host.in-a-datacenter.example.org")
    words = ["history", "--store", f"sqlite:///{tmp_path}/history.db"]
    code, page, _ = Shell(capsys).on_terminal(monkeypatch, *words)
    plain = Shell(capsys)(*words)[1]
    screen = Screen()
    screen.feed(page.encode())
    assert code == 0
    heads = plain.splitlines()[0].split()
    assert heads[:7] == ["RUN", "TIME", "(UTC)", "HOST", "COMMAND", "TOOK", "RESULT"]
    assert "\x1b" not in plain
    shown = screen.shown[0].split()
    assert shown == [head for head in heads if head in shown]
    assert {"RUN", "HOST", "COMMAND", "RESULT"} <= set(shown)
    assert screen.shown[1].split()[0] == plain.splitlines()[1].split()[0], "what is copied is in one piece"
    # The widest cell goes on below, no line is broken by the terminal, and figures are left out as a whole.
    assert all(word in plain for line in screen.shown for word in line.split())
    assert "a-very-long-name" in "".join(screen.shown)
    assert "\x1b[31mFAIL" in page


@pytest.mark.parametrize("columns", [60, 80, 300])
def test_a_list_is_drawn_in_the_width_of_the_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int
) -> None:
    own_folders(monkeypatch, tmp_path)
    store = Store.open(None)
    for number, host in enumerate(("显卡" * 40, f"[red]b[/red] {'x' * 100}")):
        store.append(record(f"2026-{number}", host=host))
    store.close()
    code, page, _ = Shell(capsys).on_terminal(monkeypatch, "history", "--no-color", columns=columns)
    assert code == 0
    lines = page.splitlines()
    assert all(cell_len(line) <= columns for line in lines), page
    assert "".join(lines).count("x") == 100
    assert "\x1b" not in page
    assert any("[red]b[/red]" in line for line in lines)


def test_what_is_copied_is_never_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own_folders(monkeypatch, tmp_path)
    store = Store.open(None)
    store.append(record("a" * 100))
    store.close()
    page = Shell(capsys).on_terminal(monkeypatch, "history", "--no-color", columns=40)[1]
    assert "a" * 100 in page


# ---------------------------------------------------------------- a console alone


def test_an_exception_takes_the_display_away(terminal: Terminal) -> None:
    log = Log("a", stream=terminal)

    def breaks() -> None:
        with log.console:
            log.tell("task_start", host="a", role="gpu_driver", task="Build")
            log.wait(1.0)
            assert "Build" in terminal.getvalue()
            raise LookupError

    with pytest.raises(LookupError):
        breaks()
    screen = Screen()
    screen.feed(terminal.getvalue().encode())
    assert screen.shown == []
    assert not screen.cursor_hidden


def test_a_terminal_that_goes_away_does_not_stop_a_run(terminal: Terminal) -> None:
    log = Log("a", stream=terminal)
    with log.console as console:
        log.tell("stage", "reading facts", host="a")
        terminal.gone = True
        log.tell("stage", "reading facts again", host="a")
        log.wait(1.0)
        console.say("still here")


def test_lines_that_stay_are_those_of_a_log(terminal: Terminal) -> None:
    """Coloured, and with the display below; word for word the lines that a file gets."""
    plain = io.StringIO()
    for stream in (plain, terminal):
        log = Log("a", "b", stream=stream)
        with log.console:
            log.tell("stage", "reading facts", host="a")
            for task, how in (("Build", "changed"), ("Look " + "x" * 200, "failed")):
                log.tell("task_start", host="a", role="gpu_codec", task=task)
                if how == "changed":
                    log.tell("diff", "--- a\n+++ b\n\tx", host="a", role="gpu_codec", task=task)
                log.tell("task_end", how, host="a", role="gpu_codec", task=task)
    screen = Screen(columns=300)
    screen.feed(terminal.getvalue().encode())
    assert screen.shown == plain.getvalue().expandtabs(8).splitlines()
    assert OURS.search(terminal.getvalue().encode())


def test_records_of_this_file_are_like_those_of_the_program(tmp_path: Path) -> None:
    earlier(tmp_path)
    store = Store.open(f"sqlite:///{tmp_path}/history.db")
    made: records.RunRecord = store.get("last")
    assert store.ended_well("validate", made.source, host="gpu-01") == [made]
    assert store.ended_well("validate", made.source, profile="t4") == [made]
    store.close()


def test_a_second_ctrl_c_ends_at_once_and_leaves_no_display(tmp_path: Path, gate: Path) -> None:
    with Program(program(validate(tmp_path, "gpu-01"), gate), tmp_path / "out", folders(tmp_path)) as running:
        os.open(gate, os.O_WRONLY)  # nothing is ever written: the host does not end
        running.until(lambda screen: any(row.startswith("toolkit ") for row in screen.rows))
        running.type(INTERRUPT)
        running.until(lambda screen: any("Interrupted: ending what runs" in row for row in screen.everything))
        running.type(INTERRUPT)
        code, _, screen = running.end()
    assert code == 130
    assert any("ended at once" in row for row in screen.everything)
    assert not any(row.startswith("toolkit ") for row in screen.rows)
