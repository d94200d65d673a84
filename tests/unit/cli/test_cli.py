"""The command line as a user meets it: help, exit codes, what goes to stdout and what to stderr."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from builders import bare_snapshot
from commandline import Shell
from fakehost import Script
from pages import too_wide
from places import ROOT
from progresslog import Log
from records_for_tests import record
from scriptedhosts import gpuprep, script
from shellsfortests import PATIENT

from gpuprep import errors, records
from gpuprep.cli import cli
from gpuprep.provisioning import ansible_environment
from gpuprep.store import Store

__all__ = ["gpuprep", "script"]  # fixtures
HEAVY = ("yaml", "fabric", "paramiko", "sqlalchemy", "alembic", "ansible", "ansible_runner", "jsonschema",
         "gpuprep.records")  # fmt: skip


def commands(group: click.Group = cli, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command there is, groups and their members included."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


ALL = dict(commands())


# ---------------------------------------------------------------- help


def test_start_up_imports_nothing_of_weight() -> None:
    program = (
        "import sys; from gpuprep.cli import cli, run_command; run_command.run(cli, ['--help']); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert loaded.isdisjoint(HEAVY)
    commands = cli.list_commands(click.Context(cli))
    assert not any(name.startswith("gpuprep.cli.") and name.split(".")[2] in commands for name in loaded)


def test_the_help_says_of_each_command_what_its_own_help_says() -> None:
    page = cli.get_help(click.Context(cli, terminal_width=300, max_content_width=300))
    for name in cli.list_commands(click.Context(cli)):
        assert re.search(rf"\n  {name} +{re.escape(ALL[(name,)].get_short_help_str(limit=200).rstrip('.'))}", page), (
            name
        )
    for code in ("0", "1", "2", "3", "4", "130"):
        assert f"\n    {code} " in cli.get_help(click.Context(cli))


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_every_command_and_option_has_help(path: tuple[str, ...]) -> None:
    command = ALL[path]
    assert (command.help or "").strip()
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert (parameter.help or "").strip(), f"{path}: {parameter.opts}"
    page = command.get_help(click.Context(command, info_name=" ".join(("gpuprep", *path))))
    assert too_wide(page) == []


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_is_answered_with_exit_code_0(gpuprep: Shell, path: tuple[str, ...]) -> None:
    code, out, err = gpuprep(*path, "--help")
    assert (code, err) == (0, "")
    assert out.startswith("Usage: gpuprep")


def test_version(gpuprep: Shell) -> None:
    assert gpuprep("--version") == (0, "gpuprep 0.1.0\n", "")


def test_the_flags_of_the_contract_are_there() -> None:
    common = {"--inventory", "--limit", "--forks", "--become", "--ask-become-pass", "--ssh-key", "--json", "--output"}
    common |= {"-i", "-v", "-q", "--no-color", "--accept-new-host-key", "--profile"}
    own = {
        "provision": {"--store", "--check", "--diff", "--only", "--skip", "--no-reboot", "--no-validate", "--deep"},
        "plan": set(),
        "tune": {"--store", "--check"},
        "validate": {"--store"},
    }
    for name, flags in own.items():
        have = {opt for parameter in ALL[(name,)].params for opt in parameter.opts}
        assert common | flags <= have, name


# ---------------------------------------------------------------- wrong usage


ASKING = [
    (command, words)
    for command in ("provision", "plan", "tune", "validate")
    for words in ([], ["local"], ["--profile", "t4"], ["local", "--profile", "t5"])
    if (command, words) != ("plan", ["local"])  # it proposes a profile: tests/unit/cli/test_init.py
]


@pytest.mark.parametrize(("command", "words"), ASKING)
def test_without_a_host_or_a_known_profile_it_says_what_exists(gpuprep: Shell, command: str, words: list[str]) -> None:
    code, out, err = gpuprep(command, *words)
    assert (code, out) == (2, "")
    for part in ("t4", "v100", "a100", "simulated machines"):
        assert part in err


def test_the_command_that_a_missing_profile_names_has_the_host_that_was_typed(gpuprep: Shell) -> None:
    _, _, err = gpuprep("validate", "web1")
    assert "gpuprep validate web1 --profile PROFILE" in err
    assert "`gpuprep plan web1` proposes a profile" in err


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["provsion"], "Did you mean 'provision'"),
        (["trend", "web1"], "Did you mean 'history trend'"),  # a subcommand without its group
        (["dashboard"], "Did you mean 'serve'"),
        (["help", "schedule"], "Did you mean 'drift schedule'"),
        (["sim", "stop", "t4"], "Write `gpuprep sim down --keep NAME...` instead"),
        (["sim", "lst"], "Write `gpuprep sim list` instead"),
        (["profiles", "nothing-like-it"], "Commands: list, show"),
        (["provision", "--nope"], "--nope"),
        # what click finds spelt alike is wrong for these: --store, --quiet
        (["serve", "--port", "80"], "Write --listen ADDRESS:PORT instead"),
        (["validate", "web1", "--user", "ubuntu"], "Write USER@HOST instead"),
        (["validate", "web1", "--port", "22"], "Write USER@HOST:PORT instead"),
        (["init", "-i", "key.pem", "web1"], "Write --ssh-key FILE instead"),
        (["history", "--hosts", "web1"], "Did you mean '--host'"),
        (["provision", "local", "-p", "t4", "--only", "drivers"], "no step 'drivers'"),
        (["provision", "a b", "-p", "t4"], "HOST 'a b' has a blank in it"),
        (["provision", "local", "-p", "t4", "--limit", "x"], "--limit needs an inventory"),
        (["provision", "local", "-p", "t4", "--forks", "0"], "--forks"),
        (["provision", "local", "-p", "t4", "--output", "/no/such/folder/x"], "no folder /no/such/folder"),
        (["provision", "local", "-p", "t4", "--store", "nonsense"], "--store nonsense"),
        (["report", "nosuchrun"], "no run 'nosuchrun'"),
        (["report", "x", "--format", "pdf"], "pdf"),
        (["history", "--limit", "0"], "--limit"),
        (["history", "--store", "sqlite:////no/such.db"], "there is no store of runs sqlite:////no/such.db"),
        (["history", "trend", "web1", "--percent", "nan"], "--percent"),
        (["history", "trend", "web1", "--percent", "inf"], "--percent"),
        (["watch", "web1", "--interval", "nan"], "--interval"),
        (["trace", "check", "a.json", "--within", "nan"], "--within"),
        (["trace", "report", "a.json", "--table", "kernels"], "--table goes with --format csv"),
        (["report", ""], "needs a RUN"),
        (["compare", "", "last"], "the run has no name"),
        (["report", "--batch", ""], "the batch has no name"),
        (["history", "--batch", ""], "the batch has no name"),
        (["history", ""], "HOST '' is empty"),
        (["history", "trend", ""], "HOST '' is empty"),
        (["history", "export", ""], "HOST '' is empty"),
        (["history", "export", "web1"], "no run of web1 is recorded"),
        (["history", "part", ""], "NAME '' is empty"),
        (["baseline", "show", ""], "HOST '' is empty"),
        (["status", ""], "'' is empty"),
        (["validate", "-i", "", "all", "-p", "t4"], "-i is empty"),
        (["watch", "-i", " "], "-i is empty"),
        (["history", "--output", "/tmp"], "/tmp"),
        (["explain", "--model", "7e9", "--dtype", "fp32"], "--dtype goes with a shape"),
        (["explain", "--gpu", "t4", "--dtype", "fp32"], "--dtype goes with a shape"),
        (["explain", "--gpu", "t4", "--batch", "4"], "--batch goes with a shape"),
        (["explain", "--gpu", "t4", "--layers", "4"], "--layers goes with --model"),
        (["explain", "--gpu", "t4", "--precision", "fp32", "64x64x64"], "--precision goes with --model"),
        (["explain", "--model", "7e9", "--recompute", "full"], "--recompute concerns activations"),
        (["explain", "--model", "7e9", "--batch", "4"], "--batch concerns activations"),
        (["explain", "--gpu", "t4", "--conv", "1,2"], "`gpuprep explain --help` has the form of each"),
        (["sim", "up", "x", "--gpu", "nosuch"], "no simulated GPU 'nosuch'"),
        (["sim", "up", "x", "--os", "nosuch"], "nosuch"),
        (["serve", "--name", "a b"], "--name a b: this is no host name"),
        (["baseline", "clear", "web1"], "no run of web1 is recorded"),
        (["baseline", "set", "web1"], "`gpuprep history web1` lists the runs"),
        (["provision", "local", "-p", "t4", "--only", "cuda", "--skip", "cuda"], "leave no step"),
        (["sim", "down", "nosuchmachine"], "`gpuprep sim up NAME` makes one"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_names_the_word(gpuprep: Shell, words: list[str], part: str) -> None:
    code, out, err = gpuprep(*words)
    assert (code, out) == (2, "")
    assert part in err


def test_a_result_replaces_no_file_that_the_command_needs(gpuprep: Shell, tmp_path: Path) -> None:
    figures = tmp_path / "figures.csv"
    assert gpuprep("judge", "--template", "csv", "--output", str(figures))[0] == 0
    template = figures.read_text()
    code, out, err = gpuprep("judge", str(figures), "-p", "t4", "--output", str(tmp_path / "." / "figures.csv"))
    assert (code, out) == (2, "")
    assert "a file that the command reads" in err
    assert figures.read_text() == template
    store = tmp_path / "runs.db"
    Store.open(f"sqlite:///{store}").close()
    before = store.read_bytes()
    code, _, err = gpuprep("history", "--store", f"sqlite:///{store}", "--output", str(store))
    assert (code, store.read_bytes()) == (2, before)
    assert "this is a database" in err


def test_a_flag_of_a_group_with_a_default_is_no_mistyped_subcommand(gpuprep: Shell) -> None:
    code, _, err = gpuprep("drift", "--last", "nosuchhost", "--no-color")
    assert "No such command" not in err
    assert code == 3


@pytest.mark.parametrize(
    ("words", "json_wanted"),
    [
        (["history", "export", "--format", "jsonl", "--output", "/no/such/folder"], False),
        (["report", "--format", "json"], True),
        (["report", "--format=json"], True),
        (["trace", "record", "--nonsense", "--", "true", "--json"], False),
    ],
)
def test_an_error_is_a_document_only_where_a_document_was_asked_for(
    gpuprep: Shell, words: list[str], json_wanted: bool
) -> None:
    code, out, err = gpuprep(*words)
    assert (code, bool(out)) == (2, json_wanted)
    assert err


def test_the_sudo_password_is_read_from_a_pipe_and_must_be_there(
    gpuprep: Shell, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("correct-horse\n"))
    code, out, err = gpuprep("provision", "local", "-p", "t4", "-K", "--json", "-v")
    assert code == 0
    assert script.options[-1]["become_password"] == "correct-horse"
    assert "correct-horse" not in out + err
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert gpuprep("provision", "local", "-p", "t4", "-K")[0] == 2


def test_a_bad_profile_is_exit_code_2_with_lines(gpuprep: Shell, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yml"
    bad.write_text("extends: t4\ndrivr: {}\n")
    code, _, err = gpuprep("provision", "local", "-p", str(bad))
    assert code == 2
    assert f"{bad}:2: drivr:" in err


def test_a_bad_settings_file_is_exit_code_2_with_its_line(gpuprep: Shell, tmp_path: Path) -> None:
    (tmp_path / "config/gpuprep").mkdir(parents=True)
    (tmp_path / "config/gpuprep/config.yml").write_text("forks: none\n")
    code, _, err = gpuprep("provision", "local", "-p", "t4")
    assert code == 2
    assert "config.yml:1: forks" in err


# ---------------------------------------------------------------- runs


def test_a_finished_host_gives_the_report_on_stdout_and_progress_on_stderr(gpuprep: Shell) -> None:
    code, out, err = gpuprep("provision", "local", "-p", "t4")
    assert code == 0
    assert "PASS" in out
    assert "gpuprep report 20" in out
    assert "plan: nothing to do" in err
    assert "PASS" not in err


def test_json_is_one_document_and_nothing_else(gpuprep: Shell) -> None:
    code, out, err = gpuprep("provision", "local", "host2", "-p", "t4", "--json")
    document = json.loads(out)
    assert (code, document["schema_version"], document["exit_code"]) == (0, 1, 0)
    made = [records.from_json_value(records.RunRecord, run) for run in document["runs"]]
    assert [run.host for run in made] == ["local", "host2"]
    assert "host2 | " in err
    code, out, err = gpuprep("plan", "local", "-p", "t4", "--json", "-q")
    assert (code, err, len(json.loads(out)["runs"])) == (0, "", 1)


@pytest.mark.parametrize(
    "words", [["provision"], ["provision", "local", "-p", "t5"], ["report", "x"], ["plan", "--zz"]]
)
def test_an_error_with_json_is_a_document_too(gpuprep: Shell, words: list[str]) -> None:
    code, out, err = gpuprep(*words, "--json")
    document = json.loads(out)
    assert code == document["exit_code"] == 2
    assert document["error"]["what"]
    assert err


def test_several_hosts_give_the_gravest_code_and_a_row_each(gpuprep: Shell, script: Script) -> None:
    script.connecting["gone"] = errors.HostUnreachable("gone: no answer", "switch it on", where="gone")
    code, out, err = gpuprep("provision", "local", "gone", "-p", "t4")
    assert code == 3
    rows = [line.split()[:2] for line in out.splitlines() if line.startswith(("local ", "gone "))]
    assert rows == [["gone", "UNKNOWN"], ["local", "(simulated)"]], "the worst first"
    assert "UNKNOWN no answer (gone)" not in err, "the table has it"
    assert "no answer (gone)" in out
    assert "what to do: switch it on" in out


def test_a_refused_plan_is_exit_code_2_on_stderr_and_in_the_history(gpuprep: Shell, script: Script) -> None:
    script.snapshots = [bare_snapshot(gpus=())]
    code, out, err = gpuprep("provision", "local", "-p", "t4")
    assert code == 2
    assert "REFUSED  local (simulated), t4: host.gpus: no NVIDIA GPU" in out
    assert len(out.splitlines()) <= 4
    assert "no NVIDIA GPU" in err
    code, out, _ = gpuprep("history", "local", "-v")
    assert "no NVIDIA GPU" in out


def test_plan_and_check_print_the_same_list(gpuprep: Shell, script: Script) -> None:
    script.snapshots = [bare_snapshot()]
    first = gpuprep("plan", "local", "-p", "t4")
    second = gpuprep("provision", "local", "-p", "t4", "--check")
    assert first[0] == second[0] == 0
    assert "1. driver" in first[1]
    assert first[1] in second[1]


def test_a_failed_step_is_exit_code_4_with_its_last_lines(
    gpuprep: Shell, script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    books = tmp_path / "playbooks"
    books.mkdir()
    (books / "ansible.cfg").write_text("")
    (books / "provision.yml").write_text(
        "- hosts: all\n  gather_facts: false\n  tasks:\n"
        "    - name: Build\n      ansible.builtin.command: sh -c 'echo no compiler >&2; exit 9'\n      tags: [always]\n"
    )
    monkeypatch.setattr(ansible_environment, "COLLECTION", tmp_path)
    script.snapshots = [bare_snapshot()]
    code, out, err = gpuprep("provision", "local", "-p", "t4", "--output", str(tmp_path / "page.txt"))
    assert (code, out) == (4, "")
    for part in ("step 'Build' failed", "  | no compiler", "what to do:", "ansible.log", "gpuprep report 20"):
        assert part in err
    assert "no compiler" in (tmp_path / "page.txt").read_text()


def test_quiet_says_nothing_but_the_result(gpuprep: Shell) -> None:
    code, out, err = gpuprep("validate", "local", "-p", "t4", "-q")
    assert (code, err) == (0, "")
    assert out


def test_history_and_report_know_the_run(gpuprep: Shell) -> None:
    assert gpuprep("history")[1:] == ("", "no runs are recorded yet\n")
    made = json.loads(gpuprep("provision", "local", "-p", "t4", "--json")[1])["runs"][0]
    gpuprep("plan", "local", "-p", "t4")
    code, out, _ = gpuprep("history")
    assert (code, len(out.splitlines())) == (0, 2)
    assert json.loads(gpuprep("history", "--json")[1])["runs"][0]["run_id"] == made["run_id"]
    assert json.loads(gpuprep("report", made["run_id"], "--format", "json")[1]) == made
    code, out, _ = gpuprep("report", "last")
    assert (code, too_wide(out)) == (0, [])
    for style, start in {"html": "<!doctype html>", "junit": "<?xml", "markdown": "# ", "prometheus": "# HELP"}.items():
        code, out, err = gpuprep("report", "last", "--format", style)
        assert (code, out[: len(start)], err) == (0, start, "")
    assert gpuprep("history", "elsewhere")[1:] == ("", "no runs of elsewhere are recorded\n")


def test_store_is_taken_from_flag_environment_and_settings(
    gpuprep: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores = [f"sqlite:///{tmp_path}/{name}.db" for name in ("flag", "environment", "settings")]
    for number, url in enumerate(stores):
        opened = Store.open(url)
        opened.append(record(f"run{number}"))
        opened.close()
    (tmp_path / "config/gpuprep").mkdir(parents=True)
    (tmp_path / "config/gpuprep/config.yml").write_text(f"store: {stores[2]}\n")
    assert "run2" in gpuprep("history")[1]
    monkeypatch.setenv("GPUPREP_STORE", stores[1])
    assert "run1" in gpuprep("history")[1]
    assert "run0" in gpuprep("history", "--store", stores[0])[1]


# ---------------------------------------------------------------- the edge


@pytest.mark.parametrize("words", [("profiles", "list"), ("--help",), ("version", "--json")], ids=" ".join)
@pytest.mark.parametrize("to", ["/dev/full", "&-"])
def test_a_stdout_that_takes_nothing_is_no_inner_error(words: tuple[str, ...], to: str, tmp_path: Path) -> None:
    program = f"from gpuprep.cli import main; main({list(words)!r})"
    command = ["sh", "-c", f'exec "$0" "$@" >{to}', sys.executable, "-c", program]
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, env=environment, check=False)
    assert done.returncode == (0 if to == "&-" else 2), done.stderr
    assert "Traceback" not in done.stderr
    assert ("cannot be written: No space left" in done.stderr) == (to != "&-")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("provision", "192.0.2.1", "-p", "t4", "--only", ","), "--only is empty"),
        (("validate", "192.0.2.1", "-p", "t4", "--only", ""), "--only is empty"),
        (("validate", "192.0.2.1", "-p", "t4", "--ssh-key", "/nowhere/key"), "there is no such file"),
        (("validate", "h/..", "-p", "t4"), "'h/..' is not a valid HOST"),
        (("history", "prune", "--keep-days", "99999999999"), "not in the range"),
        (("history", "--limit", "99999999999999999999"), "not in the range"),
        (("codec", "check", "--profile", "t4", "--", "sudo", "ffmpeg", "-i", "a", "b"), "what is 'sudo'?"),
        (("codec", "check", "--profile", "t4", "--", "ffmpeg", "-i", "a"), "the command has no output"),
        (("codec", "check", "--gpu", "t4", "--", "ffmpeg", "-i", "a", "b.mp4"), "No such option '--gpu'"),
        (("codec", "check", "--profile", "t4", "--gpu=t4", "ffmpeg", "-i", "a", "b.mp4"), "No such option '--gpu'"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else None,
)
def test_wrong_words_are_refused_before_anything_is_done(gpuprep: Shell, words: tuple[str, ...], said: str) -> None:
    code, out, err = gpuprep(*words)
    assert (code, out) == (2, "")
    assert said in err


LONG = "a" * 300


@pytest.mark.parametrize(
    "words",
    [
        ("trace", "report", LONG),
        ("trace", "compare", LONG, LONG),
        ("trace", "check", LONG),
        ("trace", "report", __file__, "--output", LONG),
        ("validate", "--inventory", LONG, "--profile", "t4"),
        ("judge", LONG, "--profile", "t4"),
        ("trace", "report", "a/" * 3000),
    ],
    ids=lambda words: f"{words[0]} {words[1]} {len(words[-1])}",
)
def test_a_name_that_no_file_can_have_is_wrong_usage(gpuprep: Shell, words: tuple[str, ...]) -> None:
    code, out, err = gpuprep(*words)
    assert (code, out) == (2, "")
    assert err.startswith("Error: ")
    assert max(map(len, err.splitlines())) < 500


def test_an_unexpected_error_is_one_line_and_a_log(gpuprep: Shell, script: Script, tmp_path: Path) -> None:
    script.probes = {}
    code, out, err = gpuprep("provision", "local", "-p", "t4", "-q")
    assert code == 3
    assert "UNKNOWN  local (simulated), t4: an error inside gpuprep: AssertionError" in out
    assert len(out.splitlines()) <= 4
    said, where, report = err.splitlines()
    assert said.startswith("Error: an error inside gpuprep: AssertionError: nobody prepared")
    assert report.startswith("  report: gpuprep report ")
    log = Path(where.removeprefix("  whole log: "))
    assert log.stat().st_mode & 0o777 == 0o600
    assert log.is_relative_to(tmp_path / "state/gpuprep/errors")
    assert "Traceback" in log.read_text()
    assert "nobody prepared" in log.read_text()


def run_python(program: str, tmp_path: Path, **options: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    return subprocess.Popen([sys.executable, "-c", program], env=environment, text=True, **options)


@pytest.mark.parametrize(
    ("words", "code"), [(["provision", "--help"], 0), (["profiles", "show", "t4"], 0), (["provision", "--json"], 2)]
)
def test_a_reader_that_goes_away_is_no_error(tmp_path: Path, words: list[str], code: int) -> None:
    program = f"from gpuprep.cli import main; main({words})"
    read, write = os.pipe()
    os.close(read)
    process = run_python(program, tmp_path, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    _, err = process.communicate(timeout=300)
    assert process.returncode == code
    assert "Broken" not in err
    assert bool(err) == bool(code)


@pytest.mark.parametrize("signal_name", ["SIGINT", "SIGTERM"])
def test_an_interruption_says_how_to_go_on(tmp_path: Path, signal_name: str) -> None:
    program = (
        "import os, signal, click; from gpuprep.cli import run_command\n"
        # A shell that starts tests in the background has them ignore SIGINT.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "@click.group()\ndef cli(): pass\n"
        f"@cli.command()\ndef wait(): os.kill(os.getpid(), signal.{signal_name}); signal.pause()\n"
        "raise SystemExit(run_command.run(cli, ['wait']))"
    )
    process = run_python(program, tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (130, "")
    assert "gpuprep wait" in err


# ---------------------------------------------------------------- progress


def test_progress_has_whole_lines_with_the_host_in_front() -> None:
    log = Log("a", "b")
    wait = {"host": "a", "role": "gpu_codec", "task": "Wait for the build"}
    look = {"host": "b", "role": "gpu_driver", "task": "Look"}
    log.tell("stage", "reading facts", host="a")
    log.tell("task_start", **wait)
    log.tell("task_start", **look)
    for _ in range(2):
        log.tell("waiting", "compiled 4 of 9 files", **wait)
    log.tell("task_end", "ok", **look)
    log.tell("task_end", "changed", **wait)
    assert [line.strip() for line in log.said] == [
        "0:00 a | reading facts",
        "0:00 a | codec",
        "0:00 a |   Wait for the build: compiled 4 of 9 files",
        "0:00 a |   Wait for the build: changed",
    ]


def test_a_reader_of_progress_that_goes_away_does_not_stop_a_run() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError(text)

    log = Log("a", stream=Gone())
    with log.console as console:
        log.tell("stage", "reading facts", host="a")
        console.say("still here")


# ---------------------------------------------------------------- the page


@pytest.mark.only_all  # of a document
def test_the_page_of_the_command_line_knows_every_command_and_exit_code() -> None:
    page = (ROOT / "docs/cli.md").read_text()
    for name in cli.list_commands(click.Context(cli)):
        assert f"`gpuprep {name}" in page, name
    for code in (0, 1, 2, 3, 4, 130):
        assert f"\n| {code} |" in page


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion_works_as_documented(shell: str) -> None:
    page = (ROOT / "docs/cli.md").read_text()
    assert f"gpuprep completion {shell}" in page
    environment = {  # as a script asks that an older gpuprep printed; test_completion.py asks as today's do
        **os.environ,
        "_GPUPREP_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": "gpuprep prov",
        "COMP_CWORD": "prov" if shell == "fish" else "1",
    }
    done = subprocess.run([sys.executable, "-c", PATIENT], env=environment, capture_output=True, text=True, check=False)
    assert "provision" in done.stdout


def test_the_commands_that_the_playground_prints_can_be_typed() -> None:
    makefile = (ROOT / "Makefile").read_text()
    recipe = makefile.partition("\nplayground:")[2].partition("\n\n")[0]
    told = re.findall(r'echo "  (gpuprep .*?)(?:  .*)?"', recipe)
    assert len(told) >= 6
    for line in told:
        context = cli.make_context("gpuprep", line.split()[1:])
        while isinstance(context.command, click.Group):
            words = [*context._protected_args, *context.args]
            name, command, rest = context.command.resolve_command(context, words)
            assert command is not None
            context = command.make_context(name, rest, parent=context)


# Words of other programs: where they are typed, and what is to be written there.
OTHERS = {
    "install": "provision", "setup": "provision", "verify": "validate", "bench": "validate", "diagnose": "doctor",
    "ls": "history", "show": "report", "diff": "compare", "top": "watch", "web": "serve",
    "sim start": "sim up", "sim stop": "sim down --keep", "sim rm": "sim down", "sim ssh": "sim exec",
    "sim ps": "sim list", "sim break": "sim fault", "profiles ls": "profiles list", "profiles cat": "profiles show",
    "profiles lint": "profiles check", "profiles create": "profiles new", "baseline get": "baseline show",
    "baseline save": "baseline set", "baseline reset": "baseline clear", "trace open": "trace report",
    "trace capture": "trace record", "codec verify": "codec check", "codec make": "codec build",
    "serve --bind": "--listen", "serve --address": "--listen", "validate --hosts": "HOST", "init --key": "--ssh-key",
    "validate -l": "USER@HOST", "provision --dry-run": "--check", "tune -C": "--check", "drift check --jobs": "--forks",
    "history list --out": "--output", "validate --tags": "--only", "provision --exclude": "--skip",
    "provision --silent": "--quiet", "plan --debug": "--verbose",
}  # fmt: skip


@pytest.mark.parametrize("typed", OTHERS)
def test_a_word_of_another_program_gets_gpupreps_own(gpuprep: Shell, typed: str) -> None:
    """That commands which are printed can be typed is looked at after each test (tests/conftest.py)."""
    code, out, err = gpuprep(*typed.split(), "x")
    assert (code, out) == (2, "")
    said = err.partition("No such ")[2]
    assert re.search(rf"(Write `?(gpuprep )?|Did you mean '){re.escape(OTHERS[typed])}\b", said), err
    if OTHERS[typed].startswith("--"):
        assert f"{OTHERS[typed]} " in gpuprep(*typed.split()[:-1], "--help")[1], "it is an option of this command"
