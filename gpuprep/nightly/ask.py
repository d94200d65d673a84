"""Runs this machine's agent for facts and probes, each in its own process with a time limit.

If a driver hangs, or a probe crashes or takes all memory, only a child process ends and the check goes on: a night
without evidence must still leave a result that says so. The controller uses remote/agent_client.py instead.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, TypeVar

from gpuprep.agent.programs import children
from gpuprep.errors import AgentFailed
from gpuprep.records import DecodeError, FactsRequest, ProbeResult, Snapshot, to_json
from gpuprep.records.codec import from_last_line, last_line

FACTS_TIMEOUT = 180.0
FAREWELL = 5.0  # for a killed child to be gone; one that hangs inside of the kernel never is
LAST_LINES = 3

_Record = TypeVar("_Record", Snapshot, ProbeResult)


def agent_program() -> tuple[str, ...]:
    """The command of the agent with this Python, isolated from the environment (-I) if this process is."""
    return (sys.executable, *(["-I"] if sys.flags.isolated else []), "-m", "gpuprep.agent")


class Agent:
    """This machine's agent. Methods raise AgentFailed without a valid answer."""

    def __init__(self, program: Sequence[str] | None = None, facts_timeout: float = FACTS_TIMEOUT) -> None:
        self._program = tuple(program or agent_program())
        self._facts_timeout = facts_timeout

    def facts(self, request: FactsRequest) -> Snapshot:
        return self._ask(Snapshot, ["facts"], to_json(request), self._facts_timeout)

    def probe(self, name: str, arguments: dict[str, Any], timeout: float) -> ProbeResult:
        return self._ask(ProbeResult, ["probe", name], json.dumps(arguments), timeout)

    def _ask(self, record: type[_Record], words: list[str], request: str, timeout: float) -> _Record:
        what = " ".join(words)
        answer = _answer([*self._program, *words], request.encode(), timeout, what).decode(errors="replace")
        try:
            return from_last_line(record, answer)
        except DecodeError as error:
            output = last_line(answer) or "nothing"
            raise AgentFailed(
                f"gpuprep-agent {what} answered no {record.__name__} ({error}); its output: {output:.200}", REPROVISION
            ) from error


REPROVISION = "run `sudo gpuprep-agent facts` on the host to see it; gpuprep provision renews the agent"


def _answer(argv: list[str], request: bytes, timeout: float, what: str) -> bytes:
    try:
        process = children.start(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as error:
        raise AgentFailed(f"gpuprep-agent {what} cannot be started: {error}", REPROVISION) from error
    try:
        output, errors = process.communicate(request, timeout)
    except subprocess.TimeoutExpired:
        _give_up(process)
        raise AgentFailed(
            f"gpuprep-agent {what} took longer than {timeout:g} s",
            "see whether nvidia-smi answers, and what `journalctl -k -g NVRM` says; a driver that hangs needs a reboot",
        ) from None
    except BaseException:
        children.end(process)
        raise
    if process.returncode != 0:
        stderr = " | ".join(errors.decode(errors="replace").strip().splitlines()[-LAST_LINES:]) or "nothing"
        ended = f"exit code {process.returncode}" if process.returncode > 0 else f"signal {-process.returncode}"
        raise AgentFailed(f"gpuprep-agent {what} ended with {ended}; its output: {stderr:.300}", REPROVISION)
    return output


def _give_up(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and wait at most FAREWELL seconds; children.end might wait for ever."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(FAREWELL)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
