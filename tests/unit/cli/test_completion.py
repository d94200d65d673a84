"""What Tab offers: by the program alone, and in bash, zsh and fish on a terminal."""

from __future__ import annotations

import dataclasses
import os
import re
import resource
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import amount
import click
import commandline
import pytest
from records_for_tests import record
from shellsfortests import PATIENT, PROMPT, SHELLS, Shell, environment, has_candidates, needed, offered, told

from gpuprep import catalogue
from gpuprep.catalogue import boards
from gpuprep.cli import cli
from gpuprep.store import Store

SAFE = re.compile(r"[A-Za-z0-9_./~@:%+][A-Za-z0-9_./~@:%+,=-]*")  # nothing that a shell would act on
HOSTILE = (
    "$(touch pwned)",
    "`touch pwned`",
    "a b",
    "a;touch pwned",
    "-rf",
    "a\x1b[2Jb",
    "a\nb",
    "a\tb",
    "'q",
    "é",
    "a*",
    "",
)
SSH_CONFIG = (
    'Host web1 "web2" *.example !bad\n  HostName 10.0.0.1\nInclude more/*\nHost=gpu-only\nHost $(touch pwned)\n'
)
INI = "lone ansible_host=10.0.0.9\n[gpus]\ngpu[01:03]\n; no\n# no\n$(touch pwned)\n"
INI += "[racks:children]\ngpus\n[gpus:vars]\nx=1\n"
YAML = "all:\n  children:\n    video:\n      hosts:\n        enc[a:b]: {}\n        dec1:\n  hosts:\n    top: {}\n"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home with an SSH configuration, a simulated machine, inventories and a store."""
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "GPUPREP_STORE"):
        monkeypatch.delenv(name, raising=False)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    ssh = tmp_path / "home" / ".ssh"
    (ssh / "more").mkdir(parents=True)
    (ssh / "config").write_text(SSH_CONFIG)
    (ssh / "more" / "one").write_text("host included\n")
    machine = tmp_path / "home" / ".local/state/gpuprep/sim/machines/t4"
    machine.mkdir(parents=True)
    (machine / "machine.json").write_text("{}")
    (work / "hosts.ini").write_text(INI)
    (work / "hosts.yml").write_text(YAML)
    (work / "mine.yml").write_text("extends: t4\n")
    (work / "cloud").mkdir()
    (work / "cloud" / "ask").write_text("#!/bin/sh\ntouch pwned\necho '{}'\n")
    (work / "cloud" / "ask").chmod(0o755)
    (work / "cloud" / "plain").write_text("static1\n")
    return tmp_path


def fill(*hosts: str, url: str | None = None) -> list[str]:
    """Runs of these hosts in the store, a minute apart; their ids, oldest first."""
    store = Store.open(url)
    made = []
    for number, host in enumerate(hosts):
        run = dataclasses.replace(
            record(),
            run_id=f"20261120-1000{number:02d}-abcdef",
            host=host,
            started_at=f"2026-11-20T10:{number:02d}:00+00:00",
        )
        store.append(run)
        made.append(run.run_id)
    store.close()
    return made


# ---------------------------------------------------------------- what is offered


@pytest.mark.usefixtures("place")
def test_a_default_subcommand_is_completed_as_the_group_takes_it() -> None:
    fill("gpu-01")
    assert offered("drift ")[:4] == ["check", "last", "schedule", "unschedule"]
    assert {"local", "sim:t4", "web1", "gpu-01"} < set(offered("drift "))
    assert offered("drift sch") == ["schedule"]
    assert offered("drift --form") == ["--format"]
    assert "html" in offered("drift --format ")
    assert offered("drift --format=ju") == ["--format=junit"]
    assert offered("drift web1 we") == ["web1", "web2"]
    assert {"list", "trend", "gpu-01"} < set(offered("history "))
    assert offered("profiles ") == ["check", "list", "new", "show"]


@pytest.mark.usefixtures("place")
def test_hosts() -> None:
    fill("gpu-01", "gpu-02", "gpu-01", "other")
    names = {"local", "sim:t4", "web1", "web2", "included", "gpu-only", "gpu-01", "gpu-02", "other"}
    assert set(offered("validate ")) == names
    assert offered("validate gpu-0") == ["gpu-01", "gpu-02"]
    assert offered("validate root@web") == ["root@web1", "root@web2"]
    assert offered("history trend gpu-") == ["gpu-01", "gpu-02"]
    assert offered("history join gpu-01 ot") == ["other"]
    assert offered("sim down ") == ["t4"]


@pytest.mark.parametrize(
    ("inventory", "found"),
    [
        ("hosts.ini", {"all", "lone", "gpus", "gpu01", "gpu02", "gpu03", "racks"}),
        ("hosts.yml", {"all", "video", "enca", "encb", "dec1", "top"}),
        ("cloud", {"all", "static1"}),
        ("a,b,", {"a", "b"}),
        ("nothing", {"all"}),
        ("/dev/zero", {"all"}),
    ],
)
def test_an_inventory_is_read_and_not_run(place: Path, inventory: str, found: set[str]) -> None:
    assert set(offered(f"drift -i {inventory} ")) == found
    assert set(offered(f"validate --inventory={inventory} ")) == found
    assert not (place / "work" / "pwned").exists()


@pytest.mark.usefixtures("place")
def test_runs_newest_first_and_those_of_the_host_that_was_named() -> None:
    old, other, new = fill("gpu-01", "gpu-02", "gpu-01")
    assert offered("report ") == ["last", new, other, old]
    assert offered("report la") == ["last"]
    assert offered(f"compare {old} {new[:15]}") == [new]
    assert offered("baseline set gpu-01 ") == ["last", new, old]
    assert told(f"report {new[:15]}")[new].startswith("provision gpu-01")


def test_the_store_of_the_command_line_the_environment_or_the_settings(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = {name: f"sqlite:///{place}/{name}.db" for name in ("option", "environment", "settings")}
    for name, url in urls.items():
        fill(name, url=url)
    folder = place / "home" / ".config" / "gpuprep"
    folder.mkdir(parents=True)
    (folder / "config.yml").write_text(f"store: {urls['settings']}\n")
    assert offered("history trend ") == ["settings"]
    monkeypatch.setenv("GPUPREP_STORE", urls["environment"])
    assert offered("history trend ") == ["environment"]
    assert offered(f"history trend --store {urls['option']} ") == ["option"]
    assert offered("history trend --store postgresql://nobody@192.0.2.1/x ") == [], "no server is asked"


def test_profiles_steps_probes_and_gpus(place: Path) -> None:
    (place / "work" / "more").mkdir()
    (place / "work" / "more" / "deep.yml").touch()
    assert {"t4", "a100", "mine.yml", "hosts.yml", "more/"} < set(offered("validate x --profile "))
    assert offered("validate x -p more/") == ["more/deep.yml"]
    assert offered("provision x --only driver,cud") == ["driver,cuda", "driver,cudnn"]
    assert "driver,driver" not in offered("provision x --skip driver,")
    assert offered("validate x --only tr") == ["transcode"]
    assert offered("explain --gpu t4") == ["t4", "t4g"]
    assert offered("explain --dtype fp") == ["fp64", "fp32", "fp16", "fp8"]
    assert "debian13" in offered("sim up x --os ")
    assert "gpu_lost" in "".join(offered("sim fault t4 ")).replace("-", "_")


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("provision x --only ", ["provision", "local", "-p", "t4", "--only", "nonsense"]),
        ("validate x --only ", ["validate", "local", "-p", "t4", "--only", "nonsense"]),
        ("explain --dtype ", ["explain", "--gpu", "t4", "--dtype", "nonsense", "1x1x1"]),
        ("trace report --table ", ["trace", "report", "/dev/null", "--format", "csv", "--table", "nonsense"]),
    ],
)
def test_what_is_offered_is_what_the_command_takes(
    place: Path, capsys: pytest.CaptureFixture[str], line: str, wrong: list[str]
) -> None:
    """The command itself says what it takes, where a word is wrong."""
    words = set(re.findall(r"[a-z0-9-]+", commandline.Shell(capsys)(*wrong)[2].partition("what to do: ")[2]))
    assert place
    values = set(offered(line))
    assert values
    if "--table" in line:  # of ranks, those that a trace of one rank has not
        values -= {"ranks", "collectives", "steps"}
    assert values <= words
    assert words - values <= {"steps", "are", "probes", "or", "for", "none", "of", "them", "data", "types", "one"}


def test_every_gpu_of_the_catalogue_is_offered() -> None:
    assert set(offered("explain --gpu ")) == {*catalogue.models(), *boards()}


def parameters(command: click.Command, path: str) -> Iterator[tuple[str, click.Parameter]]:
    context = click.Context(command)
    for parameter in command.params:
        yield path, parameter
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from parameters(child, f"{path} {name}".strip())


# Values that only the user knows: numbers and words.
FREE = {
    "URL", "PATTERN", "HH:MM", "MINUTES", "MxNxK", "N,H,W,C,K,R,S[,STRIDE,PAD", "BATCH,HEADS,SEQUENCE,SIZE",
    "PARAMETERS", "TEXT", "WHEN", "ADDRESS:PORT",
}  # fmt: skip
FREE_NAMES = {
    "explain precision",
    "explain optimizer",
    "sim exec command",
    "completion shell",
    "help command",
    "profiles new name",
    "codec check words",
    "trace record words",
    "trace record steps_from",
    "trace report key_op",
    "trace check key_op",
    "trace compare key_op",
    "trace serve names",
}


def test_every_value_of_every_command_is_known_or_free() -> None:
    unknown = []
    for path, parameter in parameters(cli, ""):
        is_switch = isinstance(parameter, click.Option) and (parameter.is_flag or parameter.count)
        known = isinstance(
            parameter.type, (click.Choice, click.Path, click.types.IntParamType, click.types.FloatParamType)
        )
        metavar = (parameter.metavar or "").strip("[].")
        if is_switch or known or metavar in FREE or f"{path} {parameter.name}" in FREE_NAMES:
            continue
        if not has_candidates(parameter, path):
            unknown.append(f"{path} {parameter.name} ({parameter.metavar})")
    assert unknown == [], "add them to BY_WORD or BY_PLACE of cli/candidates.py, or to FREE here"


# ---------------------------------------------------------------- what it must never do


def answered(place: Path, line: str, shell: str = "zsh") -> subprocess.CompletedProcess[str]:
    *before, word = line.split(" ")
    given = {"GPUPREP_COMP_WORDS": "\n".join(before), "GPUPREP_COMP_WORD": word, "GPUPREP_COMP_LINE": line}
    return subprocess.run(
        [sys.executable, "-c", PATIENT],
        env={**os.environ, **given, "_GPUPREP_COMPLETE": f"{shell}_complete"},
        capture_output=True, text=True, check=False, cwd=place / "work", timeout=300,
    )  # fmt: skip


def everything(folder: Path) -> dict[str, tuple[int, int]]:
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.stat()
        found[str(path)] = (status.st_mtime_ns if path.is_file() else 0, status.st_size if path.is_file() else 0)
    return found


@pytest.mark.parametrize("shell", SHELLS)
def test_names_that_a_shell_would_act_on_are_not_offered(place: Path, shell: str) -> None:
    fill(*(name for name in HOSTILE if name), "good")
    for line in ("gpuprep history trend ", "gpuprep validate ", "gpuprep drift -i hosts.ini "):
        done = answered(place, line, shell)
        assert (done.returncode, done.stderr) == (0, "")
        values = [row.split("\t")[1] for row in done.stdout.splitlines() if row.startswith("plain")]
        assert values
        assert all(SAFE.fullmatch(value) for value in values), values
    done = answered(place, "gpuprep report ", shell)
    assert "\x1b" not in done.stdout
    assert all(row.count("\t") == 2 for row in done.stdout.splitlines()), "a host's name is told in the help only"


def test_nothing_is_written_and_nothing_migrated(place: Path) -> None:
    state = place / "home" / ".local" / "state" / "gpuprep"
    before = everything(place)
    assert answered(place, "gpuprep report ").stdout == "plain\tlast\tthe newest run\n"
    assert everything(place) == before, "without a store none is made"
    fill("gpu-01")
    import sqlite3

    connection = sqlite3.connect(state / "history.db")
    with connection:
        connection.execute("UPDATE alembic_version SET version_num = 'create_certified'")
    connection.close()
    (state / "history.db").chmod(0o644)
    before = everything(place)
    assert "gpu-01" in answered(place, "gpuprep report ").stdout
    assert "gpu-01" in answered(place, "gpuprep drift ").stdout
    assert everything(place) == before
    assert (state / "history.db").stat().st_mode & 0o777 == 0o644


@pytest.mark.usefixtures("place")
def test_a_store_that_is_being_written_is_read() -> None:
    store = Store.open(None)
    store.append(dataclasses.replace(record(), host="newest"))
    assert offered("history trend ") == ["newest"], "it is in the write-ahead log alone"
    store.close()


@pytest.mark.parametrize("damage", ["garbage", "cut", "folder", "fifo", "other tables", "no permission"])
def test_a_damaged_store_is_no_store(place: Path, damage: str) -> None:
    fill("gpu-01")
    path = place / "home" / ".local" / "state" / "gpuprep" / "history.db"
    data = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage == "fifo":
        os.mkfifo(path)
    elif damage == "other tables":
        import sqlite3

        sqlite3.connect(path).close()
    else:
        path.write_bytes(os.urandom(5000) if damage == "garbage" else data[:5000])
        path.chmod(0 if damage == "no permission" else 0o600)
    for line in ("gpuprep report ", "gpuprep drift "):
        done = answered(place, line)
        assert (done.returncode, done.stderr) == (0, "")
    assert "local" in done.stdout


@pytest.mark.parametrize(
    "line",
    ["gpuprep nonsense x ", "gpuprep drift lst ", "gpuprep report --format nonsense ", "gpuprep drift -- ",
     "gpuprep --", "gpuprep drift --forks x --probe ", "gpuprep help drift ", "",
     "gpuprep validate --profile /dev/fd/ ",
     "gpuprep drift -i /proc/self/mem ", "gpuprep validate 'a b "],
)  # fmt: skip
def test_a_line_that_is_wrong_gets_no_error(place: Path, line: str) -> None:
    for shell in amount.few(SHELLS, 1):
        done = answered(place, line, shell)
        assert (done.returncode, done.stderr) == (0, "")


def test_settings_that_are_wrong_and_a_home_that_is_not_there(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = place / "home" / ".config" / "gpuprep"
    folder.mkdir(parents=True)
    (folder / "config.yml").write_text("nonsense: [\n")
    done = answered(place, "gpuprep drift ")
    assert ("local" in done.stdout, done.stderr, done.returncode) == (True, "", 0)
    monkeypatch.setenv("HOME", "/nowhere")
    assert "local" in answered(place, "gpuprep drift ").stdout


def test_what_cannot_answer_is_not_waited_for(place: Path) -> None:
    """A store that another process keeps locked, and one of many hosts."""
    fill("gpu-01")
    import sqlite3

    path = place / "home" / ".local" / "state" / "gpuprep" / "history.db"
    connection = sqlite3.connect(path, isolation_level=None)
    with connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("BEGIN EXCLUSIVE")
        assert "local" in answered(place, "gpuprep drift ").stdout, "it is never unlocked while this waits"
        connection.execute("ROLLBACK")
    connection.close()


HEAVY = (
    "sqlalchemy",
    "alembic",
    "paramiko",
    "fabric",
    "ansible_runner",
    "jinja2",
    "jsonschema",
    "rich",
    "yaml",
    "sqlite3",
)


@pytest.mark.parametrize(
    ("line", "allowed"),
    [("gpuprep ", set()), ("gpuprep drift ", {"sqlite3"}), ("gpuprep report ", {"sqlite3"}),
     ("gpuprep validate x -p ", set()), ("gpuprep explain --gpu ", set()), ("gpuprep drift -i hosts.yml ", {"yaml"})],
)  # fmt: skip
def test_little_is_imported(place: Path, line: str, allowed: set[str]) -> None:
    fill("gpu-01")
    *before, word = line.split(" ")
    asked = {"GPUPREP_COMP_WORDS": "\n".join(before), "GPUPREP_COMP_WORD": word, "_GPUPREP_COMPLETE": "zsh_complete"}
    code = f"import sys\ntry: exec({PATIENT!r})\nfinally: print(*sys.modules, file=sys.stderr)"
    # `make coverage` measures processes that tests start, too, and imports sqlite3 for that.
    unmeasured = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=place / "work",
        env={**unmeasured, **asked},
    )  # fmt: skip
    assert done.stdout
    assert {name for name in done.stderr.split() if name in HEAVY} <= allowed


@pytest.mark.only_all  # a busy machine has its say in it
def test_a_tab_takes_about_as_long_as_help(place: Path) -> None:
    """In time of the processor, the least of five: the others say how busy this computer is."""
    fill(*(f"gpu-{number:03d}" for number in range(50)))

    def seconds(line: str = "") -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        if line:
            assert answered(place, line).stdout
        else:
            program = [sys.executable, "-c", "from gpuprep.cli import main; main(['--help'])"]
            subprocess.run(program, check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    usual = min(seconds() for _ in range(5))
    for line in ("gpuprep drift ", "gpuprep report ", "gpuprep validate --profile "):
        took = min(seconds(line) for _ in range(5))
        print(line, round(took / usual, 2))
        assert took < 2.5 * usual, line


# ---------------------------------------------------------------- the shells


@pytest.fixture(params=amount.few(SHELLS, 1))
def shell(request: pytest.FixtureRequest, place: Path) -> Iterator[Shell]:
    needed(request.param)
    fill("gpu-01", "gpu-02", *(name for name in HOSTILE if name))
    with Shell(request.param, place, environment(place), place / "work") as running:
        yield running


def test_tab_in_a_real_shell(shell: Shell, place: Path) -> None:
    shell.becomes("gpuprep dri", "gpuprep drift")
    shell.becomes("gpuprep drift sched", "gpuprep drift schedule")
    shell.becomes("gpuprep drift --form", "gpuprep drift --format")
    shell.becomes("gpuprep drift --format=mark", "gpuprep drift --format=markdown")
    shell.becomes("gpuprep validate sim:", "gpuprep validate sim:t4")
    shell.becomes("gpuprep validate root@inc", "gpuprep validate root@included")
    shell.becomes("gpuprep validate web1 --only gemm,transc", "gpuprep validate web1 --only gemm,transcode")
    shell.becomes("gpuprep validate -p mi", "gpuprep validate -p mine.yml")
    shell.becomes("gpuprep validate -p clo", "gpuprep validate -p cloud/")
    shell.becomes("gpuprep validate -i hosts.i", "gpuprep validate -i hosts.ini")
    shell.becomes("gpuprep drift -i hosts.ini gpu03", "gpuprep drift -i hosts.ini gpu03")
    shell.becomes("gpuprep report 20261120-100001", "gpuprep report 20261120-100001-abcdef")
    shell.lists("gpuprep explain --gpu a100_pcie_", "100_pcie_40", "100_pcie_80")  # fish shortens its list
    shell.lists("gpuprep history trend gpu-0", "gpu-01", "gpu-02")
    # in gpuprep's order: the newest run first, formats as the help has them
    formats = shell.lists("gpuprep report last --format ", "text", "junit", "sbom")
    below = " ".join(row for row in formats if PROMPT.strip() not in row)  # fish has the first on the line already
    assert re.findall("text|junit|sbom", below) == ["text", "junit", "sbom"]
    screen = shell.lists("gpuprep drift ", "unschedule", "gpu-only", "gpu-01")
    assert not any("touch" in row for row in screen)
    assert not any("pwned" in path.name for path in place.rglob("*"))


@pytest.mark.parametrize("name", SHELLS)
def test_the_scripts_hold_no_surprise(tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    """Each shell reads its own; shellcheck looks closer at bash's."""
    (tmp_path / "script").write_text(commandline.Shell(capsys)("completion", name)[1])
    words = ["shellcheck", "--shell=bash"] if name == "bash" else [name, "-n"]
    subprocess.run([needed(words[0]), *words[1:], str(tmp_path / "script")], check=True)


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_printed_for_each_shell(shell: str) -> None:
    start = [sys.executable, "-c", PATIENT]
    printed = subprocess.run([*start, "completion", shell], capture_output=True, text=True, check=True).stdout
    assert f"{shell}_complete" in printed
