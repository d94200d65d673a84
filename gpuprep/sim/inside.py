"""Runs commands inside a machine as root, through its own systemd and without SSH."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

import psutil

from gpuprep.errors import SimError
from gpuprep.sim import store

MOST_OUTPUT = 4 << 20  # bytes
OUTPUT_SECONDS = 600.0


def leader(name: str) -> int:
    """The process id, on this computer, of a running machine's init. Raises SimError when it does not run."""
    store.read(name)
    nspawn = store.process(name, "nspawn")
    children: list[psutil.Process] = []
    if nspawn is not None:
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(nspawn).children()
    if not children:
        raise SimError(f"the simulated VM {name!r} is not running", f"gpuprep sim up {name}")
    return children[0].pid


def command(name: str, arguments: Sequence[str], *, tty: bool = False) -> list[str]:
    """The command line that runs `arguments` inside the machine.

    The machine's systemd starts it, so it has the rights, limits and groups that things in the machine have: a process
    that was only moved into the machine's namespaces could load modules into this computer's kernel.
    """
    init = leader(name)
    namespaces = ["mount", "uts", "ipc", "pid", "cgroup"]
    if not Path("/proc/self/ns/user").samefile(f"/proc/{init}/ns/user"):
        namespaces.append("user")
    # setsid: otherwise a program of the machine could type into our terminal.
    enter = ["setsid", "--wait", "nsenter", f"--target={init}", *(f"--{kind}" for kind in namespaces)]
    enter += ["--setuid=0", "--setgid=0", "--root", "--wd"]  # both are init's: --wd=/ would be this computer's
    clean = ["env", "-i", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "TERM=xterm-256color"]
    start = [
        "systemd-run", "--quiet", "--collect", "--wait", "--service-type=exec", "--working-directory=/root",
        "--setenv=HOME=/root", "--setenv=LANG=C.UTF-8", "--setenv=TERM=xterm-256color", "--pty" if tty else "--pipe",
        "--property=KillMode=mixed", "--",
    ]  # fmt: skip
    # The machine's systemd replaces "${words}" and reads "$$" as "$".
    return [*enter, *clean, *start, *(word.replace("$", "$$") for word in arguments)]


def run(name: str, arguments: Sequence[str]) -> int:
    """Runs a command with this process's stdin, stdout and stderr; returns its exit code."""
    tty = sys.stdin.isatty() and sys.stdout.isatty()
    return ended(command(name, arguments, tty=tty))


def ended(
    line: Sequence[str],
    seconds: float = threading.TIMEOUT_MAX,
    streams: tuple[IO[bytes] | None, IO[bytes] | None, IO[bytes] | None] = (None, None, None),
) -> int:
    """The exit code of nsenter; that of SIGKILL where it takes longer than `seconds`.

    A machine that shuts down stops all of its programs, then ends them. nsenter stops itself with the one that it
    started, and must be continued: otherwise it never takes that one's end, for which the shutdown waits.
    """
    stdin, stdout, stderr = streams
    with subprocess.Popen(line, stdin=stdin, stdout=stdout, stderr=stderr, env=_environment()) as child:
        late = threading.Timer(seconds, child.kill)
        late.start()
        try:
            while os.WIFSTOPPED(status := os.waitpid(child.pid, os.WUNTRACED)[1]):
                child.send_signal(signal.SIGCONT)
            child.returncode = code = os.waitstatus_to_exitcode(status)
        except BaseException:
            child.kill()
            raise
        finally:
            late.cancel()
        return code


def output(name: str, arguments: Sequence[str], *, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Runs a command and captures what it says; SimError where that is too much or takes too long."""
    line = command(name, arguments)
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin.encode())
        given.seek(0)
        limited = ["prlimit", f"--fsize={MOST_OUTPUT}", "--", *line]
        code = ended(limited, OUTPUT_SECONDS, (given, out, err))
        if code == -signal.SIGKILL:
            raise SimError(f"{arguments[0]} in {name} did not end within {OUTPUT_SECONDS:.0f} s", "reboot it")
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read(MOST_OUTPUT).decode("utf-8", "replace"))
    return subprocess.CompletedProcess(line, code, *texts)


def _environment() -> dict[str, str]:
    """A clean environment: the machine must not read variables of this computer (keys, tokens)."""
    return {"PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")}
