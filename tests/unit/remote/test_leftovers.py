"""What an interrupted playbook left running on a host ends: real processes, found by the run's id."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from gpuprep import remote
from gpuprep.remote import leftovers

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="asks as root")
RUN = "20261120-100000-00001"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(10**6)"
# A package manager inside of Python, as dnf is, with a program that it runs and one that waits for it.
MANAGER = """
import subprocess, sys, time
database = open("/var/lib/dpkg/status")
child = subprocess.Popen(["sleep", "infinity"])
print("up", child.pid, flush=True)
time.sleep(10**6)
"""
WAITS = "import subprocess, sys; sys.exit(subprocess.call([sys.executable, '-c', sys.argv[1]]))"


class Patient(remote.Host):
    """This machine, however slow it is: the program that looks for what is left has other times."""

    def __init__(self, **seconds: float) -> None:
        super().__init__(remote.Target("here", local=True))
        self.seconds = "".join(f"{name} = {number}\n" for name, number in seconds.items())

    def run(self, command: str, **options: Any) -> remote.CommandResult:
        changed = command.replace("\nif __name__ ==", f"\n{self.seconds}\nif __name__ ==")
        assert changed != command
        return super().run(changed, **{**options, "timeout": 600})


def begin(*words: str, run: str = RUN) -> tuple[psutil.Popen, list[str]]:
    process = psutil.Popen(
        list(words), env={**os.environ, "GPUPREP_RUN": run}, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    return process, process.stdout.readline().split() if words[0] == sys.executable else []


@pytest.fixture
def started() -> Iterator[list[psutil.Popen]]:
    processes: list[psutil.Popen] = []
    yield processes
    for process in processes:
        if process.is_running():
            for one in [*process.children(recursive=True), process]:
                one.kill()
        process.wait()
        process.stdout.close()


def test_compilers_end_and_package_managers_do_not(started: list[psutil.Popen]) -> None:
    if not Path("/var/lib/dpkg/status").exists():
        pytest.skip("no dpkg here")
    sleeper, _ = begin("sleep", "infinity")
    deaf, _ = begin(sys.executable, "-c", DEAF)
    other, _ = begin("sleep", "infinity", run=f"{RUN}0")
    above, said = begin(sys.executable, "-c", WAITS, MANAGER)
    started += [sleeper, deaf, other, above]
    child = psutil.Process(int(said[1]))
    left = leftovers.end(Patient(POLITE_SECONDS=3.0, LAST_SECONDS=600.0), RUN)
    assert left.startswith("python")
    assert "sleep" not in left
    assert sleeper.wait() == -15
    assert deaf.wait() == -9
    assert other.is_running()
    assert above.is_running()
    assert child.is_running()
    assert child.status() != psutil.STATUS_ZOMBIE


def test_a_program_that_is_being_started_is_looked_at_again(started: list[psutil.Popen]) -> None:
    """Its environment is empty until it is: here for as long as a shell waits before it starts one."""
    run = "20261120-100000-00004"
    words = ["sh", "-c", f"read line; GPUPREP_RUN={run} exec sleep infinity"]
    starting = psutil.Popen(words, env={}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    started.append(starting)
    timer = threading.Timer(0.5, starting.stdin.close)
    timer.start()
    assert leftovers.end(Patient(STARTING_SECONDS=60.0, POLITE_SECONDS=60.0), run) == ""
    timer.join()
    assert starting.wait() == -15


def test_a_process_that_never_has_an_environment_is_waited_for_a_moment(started: list[psutil.Popen]) -> None:
    started.append(psutil.Popen(["sleep", "infinity"], env={}, stdout=subprocess.PIPE, text=True))
    assert leftovers.end(Patient(LAST_SECONDS=10**6), "20261120-100000-00003") == ""
    assert started[0].is_running()


def test_where_nothing_is_left_nothing_is_said() -> None:
    with remote.Host(remote.Target("here", local=True)) as host:
        assert leftovers.end(host, "20261120-100000-00002") == ""


def test_a_host_that_is_gone_is_no_error() -> None:
    with remote.Host(remote.Target("nobody.invalid"), connect_timeout=1) as host:
        assert leftovers.end(host, RUN) == ""
