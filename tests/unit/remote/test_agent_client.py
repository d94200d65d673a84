"""The agent sent along: it answers, leaves nothing, and what is no answer is told in one line."""

from __future__ import annotations

import importlib.util
import io
import os
import re
import stat
import subprocess
import sys
import zipfile
from datetime import datetime, timedelta, timezone
from pathlib import Path

import fakeprograms
import pytest

import gpuprep
from gpuprep import errors, records, remote
from gpuprep.agent.facts import system
from gpuprep.remote import agent_client

HERE = remote.Target("here", local=True)
NO_FFMPEG = {"path": "/no/such/ffmpeg"}
NOTHING = records.ProbeResult("codec", records.Source.MEASURED, records.Missing("not_installed"), 0.1)


@pytest.fixture
def host() -> remote.Host:
    return remote.Host(HERE)


class ScriptedHost(remote.Host):
    """Gives one prepared answer after the other and keeps what it was asked."""

    def __init__(self, *answers: remote.CommandResult, local: bool = True) -> None:
        super().__init__(remote.Target("box", local=local))
        self.answers = list(answers)
        self.asked: list[tuple[str, bytes]] = []

    def run(
        self, command: str, *, stdin: bytes = b"", become: bool = False, timeout: float | None = None
    ) -> remote.CommandResult:
        assert timeout is not None
        assert not become
        self.asked.append((command, stdin))
        return self.answers.pop(0)


ABSENT = remote.CommandResult(97, "", "")  # there is no agent, or another one


def test_a_streamed_agent_reads_this_machine(host: remote.Host) -> None:
    request = records.FactsRequest(commands=("sh", "no-such-command"), python_modules=("no_such_module",))
    snapshot = agent_client.snapshot(host, request)
    assert snapshot.agent_version == gpuprep.__version__
    assert snapshot.kernel.running == os.uname().release
    assert snapshot.commands["no-such-command"] is None
    shell = snapshot.commands["sh"]
    assert isinstance(shell, str)
    assert shell.endswith("/sh")
    assert snapshot.python_modules["no_such_module"] is None
    assert records.from_json(records.Snapshot, records.to_json(snapshot)) == snapshot


def test_the_hosts_clock_is_compared_with_that_of_who_asks(host: remote.Host) -> None:
    read = agent_client.snapshot(host, records.FactsRequest(asked_at="2020-01-01T00:00:00+00:00"))
    assert not isinstance(read.clock_ahead_seconds, records.Missing)
    assert 0 <= read.clock_ahead_seconds < agent_client.FACTS_TIMEOUT
    yesterday = datetime.now(timezone.utc) - timedelta(days=1)
    asked = records.FactsRequest(asked_at=yesterday.isoformat(timespec="seconds"))
    assert round(float(str(system.snapshot(asked).clock_ahead_seconds)) / 86400) == 1
    assert system.snapshot(records.FactsRequest()).clock_ahead_seconds == records.NOT_READ


@pytest.mark.parametrize("memfd", [True, False])
def test_a_streamed_agent_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memfd: bool) -> None:
    """With memfd nothing is ever written; without, a folder in TMPDIR that is gone at the end."""
    temporary, home = tmp_path / "tmp", tmp_path / "home"
    temporary.mkdir()
    home.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("HOME", str(home))
    if not memfd:
        monkeypatch.setattr(agent_client, "BOOTSTRAP", "import os\ndel os.memfd_create\n" + agent_client.BOOTSTRAP)
    before = temporary.stat().st_mtime_ns
    if memfd:
        agent_client.snapshot(remote.Host(HERE), records.FactsRequest())
    agent_client.probe(remote.Host(HERE), "codec", NO_FFMPEG)
    assert list(temporary.iterdir()) == []
    assert list(home.rglob("*")) == []
    assert (temporary.stat().st_mtime_ns == before) == memfd


def sent(*, local: bool = True) -> zipfile.ZipFile:
    """The agent as a host without one gets it, for a probe."""
    answer = remote.CommandResult(0, records.to_json(NOTHING), "")
    host = ScriptedHost(ABSENT, answer, local=local)
    agent_client.probe(host, "codec", {})
    data = host.asked[1][1]
    return zipfile.ZipFile(io.BytesIO(data[8 : 8 + int.from_bytes(data[:8], "big")]))


def test_the_agent_is_sent_with_what_it_needs_and_nothing_of_the_controller() -> None:
    names = set(sent(local=False).namelist())
    assert {"pynvml.py", "gpuprep/records/__init__.py", "gpuprep/agent/__main__.py"} <= names
    assert {name.split("/")[1] for name in names - {"pynvml.py"}} == {"__init__.py", "agent", "records", "untrusted"}


def test_for_this_computer_it_is_compiled_too() -> None:
    plain, both = sent(local=False), sent()
    names = plain.namelist()
    assert set(both.namelist()) == {*names, *[f"{name}c" for name in names]}
    assert all(plain.read(name) == both.read(name) for name in names)
    assert {both.read(f"{name}c")[:4] for name in names} == {importlib.util.MAGIC_NUMBER}


@pytest.mark.parametrize(("magic", "loaded"), [(importlib.util.MAGIC_NUMBER, "codec.pyc"), (b"old\n", "codec.py")])
def test_bytecode_of_another_python_is_left_for_the_sources(magic: bytes, loaded: str, tmp_path: Path) -> None:
    file = tmp_path / "agent.zip"
    with sent() as ours, zipfile.ZipFile(file, "w") as archive:
        for name in ours.namelist():
            content = ours.read(name)
            archive.writestr(name, magic + content[4:] if name.endswith(".pyc") else content)
    code = "import sys; sys.path.insert(0, sys.argv[1]); import gpuprep.agent.facts.codec as c; "
    code += "print(c.__loader__.get_filename(c.__name__))"
    said = subprocess.run([sys.executable, "-I", "-c", code, str(file)], capture_output=True, text=True, check=True)
    assert Path(said.stdout.strip()).name == loaded


def test_an_installed_agent_of_this_version_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used = tmp_path / "used"
    agent = tmp_path / "gpuprep-agent"
    agent.write_text(f'#!/bin/sh\necho "$@" >> {used}\nexec {sys.executable} -m gpuprep.agent "$@"\n')
    agent.chmod(agent.stat().st_mode | stat.S_IXUSR)
    root = str(Path(gpuprep.__file__).parent.parent)
    monkeypatch.setenv("PYTHONPATH", root)
    monkeypatch.setattr(agent_client, "AGENT_PROGRAM", str(agent))
    python = fakeprograms.program(tmp_path / "bin" / "python3", 'touch "$0.started"; exit 1')
    monkeypatch.setenv("PATH", f"{python.parent}:/usr/bin:/bin")
    agent_client.probe(remote.Host(HERE), "codec", NO_FFMPEG)
    assert not Path(f"{python}.started").exists(), "the agent was sent although it is there"
    assert re.fullmatch(r"probe codec --expect [0-9a-zA-Z.+-]+\n", used.read_text())


@pytest.mark.parametrize("script", ["exit 97", "echo 'unrecognized arguments: --expect' >&2; exit 2", "exit 126"])
def test_another_agent_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    agent = tmp_path / "gpuprep-agent"
    agent.write_text(f"#!/bin/sh\n{script}\n")
    agent.chmod(0o755)
    monkeypatch.setattr(agent_client, "AGENT_PROGRAM", str(agent))
    assert agent_client.probe(remote.Host(HERE), "codec", NO_FFMPEG).probe == "codec"


def test_no_python_on_the_host() -> None:
    host = ScriptedHost(ABSENT, remote.CommandResult(127, "", "/bin/sh: 1: exec: python3: not found\n"))
    with pytest.raises(errors.AgentFailed, match="box: there is no python3") as caught:
        agent_client.snapshot(host, records.FactsRequest())
    assert "install" in caught.value.hint


def test_the_last_lines_of_a_failed_agent_are_shown() -> None:
    said = "".join(f"line {n}\n" for n in range(100))
    with pytest.raises(
        errors.AgentFailed, match=re.escape("exit code 1: line 95 | line 96 | line 97 | line 98 | line 99")
    ):
        agent_client.snapshot(ScriptedHost(ABSENT, remote.CommandResult(1, "", said)), records.FactsRequest())


def test_a_package_manager_that_does_not_answer_is_no_fault_of_python() -> None:
    said = "gpuprep-agent: the package manager does not answer: dpkg-query: end of file after field name 'x'\n"
    with pytest.raises(errors.AgentFailed, match="end of file after field name 'x'") as caught:
        agent_client.snapshot(ScriptedHost(ABSENT, remote.CommandResult(3, "", said)), records.FactsRequest())
    assert "`sudo dpkg --configure -a` on the host" in caught.value.hint


@pytest.mark.parametrize("answer", ["", "garbage\n", '{"half": ', "[]", '{"schema_version": 99}'])
def test_what_is_no_snapshot_is_told(answer: str) -> None:
    with pytest.raises(errors.AgentFailed, match="the agent's answer is no Snapshot"):
        agent_client.snapshot(ScriptedHost(ABSENT, remote.CommandResult(0, answer, "")), records.FactsRequest())


def test_words_before_the_answer_do_not_matter() -> None:
    noisy = remote.CommandResult(0, "Welcome to this machine!\n" + records.to_json(NOTHING) + "\n", "")
    assert agent_client.probe(ScriptedHost(ABSENT, noisy), "codec", {}) == NOTHING


def test_a_python_that_is_too_old_says_so() -> None:
    old = "import sys\nsys.version_info = (3, 6, 8)\nsys.version = '3.6.8 (default)'\n" + agent_client.BOOTSTRAP
    done = subprocess.run([sys.executable, "-I", "-c", old], input=b"", capture_output=True, check=False)
    assert done.returncode == 1
    assert b"needs Python 3.9 or newer on the host, this one is 3.6.8" in done.stderr


def test_a_probe_of_something_that_is_not_there(host: remote.Host) -> None:
    result = agent_client.probe(host, "codec", NO_FFMPEG)
    assert isinstance(result.values, records.Missing)
    assert result.values.reason == "command_not_found"
