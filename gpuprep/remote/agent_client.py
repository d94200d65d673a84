"""Runs the agent on a host for facts and probes. Uses the installed agent if it has exactly our version; otherwise
sends our agent through the same connection, to run from memory and leave nothing behind."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import io
import json
import marshal
import shlex
import struct
import threading
import zipfile
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any, TypeVar

from gpuprep.agent.facts.packagestate import NO_ANSWER
from gpuprep.agent.host_paths import AGENT_PROGRAM
from gpuprep.agent.identity import OTHER_AGENT, PACKAGE, identity, sources
from gpuprep.errors import AgentFailed, NoPrivilege
from gpuprep.records import DecodeError, FactsRequest, ProbeResult, Snapshot, to_json
from gpuprep.records.serialize import from_last_line
from gpuprep.remote import CommandResult, Host
from gpuprep.remote.lock import INSTALL_PYTHON, NEWER_PYTHON
from gpuprep.remote.probereports import Doing, SoFar
from gpuprep.untrusted.plaintext import one_line

FACTS_TIMEOUT = 180.0
PROBE_TIMEOUT = 600.0
LAST_LINES = 5
LAST_LETTERS = 5000
# Exit codes of a shell, argparse and gpuprep-agent if the installed agent is missing, too old or another one.
NOT_OURS = (2, 126, 127, OTHER_AGENT)
NO_AGENT, NO_RULE = 127, 98
UNCHECKED = (1).to_bytes(4, "little")  # flags of PEP 552
SUDO_TIMEOUT = 30.0  # sudo can hang on a directory service that does not answer

# Runs on the host before any of our code is there: 8 bytes of length, a zip, then the agent's own input.
BOOTSTRAP = """
import io, os, runpy, struct, sys
if sys.version_info < (3, 9):
    sys.exit("gpuprep needs Python 3.9 or newer on the host, this one is " + sys.version.split()[0])
data = sys.stdin.buffer.read()
size = struct.unpack(">Q", data[:8])[0]
place = None
try:
    fd = os.memfd_create("gpuprep-agent")
    os.write(fd, data[8:8 + size])
    sys.path.insert(0, "/proc/self/fd/%d" % fd)
    import gpuprep
except (AttributeError, OSError, ImportError):
    import atexit, shutil, tempfile
    place = tempfile.mkdtemp(prefix="gpuprep-agent-")
    atexit.register(shutil.rmtree, place, True)
    with open(place + "/agent.zip", "wb") as file:
        file.write(data[8:8 + size])
    sys.path.insert(0, place + "/agent.zip")
sys.dont_write_bytecode = True
sys.stdin = io.TextIOWrapper(io.BytesIO(data[8 + size:]), encoding="utf-8")
sys.argv[0] = "gpuprep-agent"
runpy.run_module("gpuprep.agent", run_name="__main__", alter_sys=False)
"""

_Record = TypeVar("_Record", Snapshot, ProbeResult)
Heard = Callable[[Doing], None]
Run = Callable[..., CommandResult]  # Host.run, or listen


def snapshot(host: Host, request: FactsRequest, *, become: bool = False, alone: bool = False) -> Snapshot:
    """All facts of `host`. `alone`: no probe that measures follows. Raises AgentFailed if the answer is no Snapshot."""
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    asked = to_json(dataclasses.replace(request, asked_at=now))
    return _ask(host, Snapshot, ["facts"], asked, become=become, timeout=FACTS_TIMEOUT, at_once=True, alone=alone)


def probe(
    host: Host,
    name: str,
    arguments: dict[str, Any],
    *,
    become: bool = False,
    timeout: float = PROBE_TIMEOUT,
    heard: Heard | None = None,
    so_far: SoFar | None = None,
    at_once: bool = False,
) -> ProbeResult:
    """The evidence of the probe `name` ("toolkit"), measured on `host`. `heard` is called with progress reports.

    `at_once`: the agent is sent without waiting for its bytecode, which pays for several probes on this computer.
    `so_far` collects what the probe has measured, so it is not lost if this function raises an exception.
    """
    request = json.dumps({**arguments, "tell": heard is not None})
    listening = None if heard is None else functools.partial(host.listen, heard, so_far=so_far)
    return _ask(
        host, ProbeResult, ["probe", name], request, become=become, timeout=timeout, run=listening, at_once=at_once
    )


def _ask(
    host: Host,
    record: type[_Record],
    words: list[str],
    request: str,
    *,
    become: bool,
    timeout: float,
    run: Run | None = None,
    at_once: bool = False,
    alone: bool = True,
) -> _Record:
    asked = f"{AGENT_PROGRAM} {' '.join(shlex.quote(word) for word in [*words, '--expect', identity()])}"
    run = run or host.run
    result = run(_as_root(asked) if become else _as_login_user(asked), stdin=request.encode(), timeout=timeout)
    allowed = not (become and _refused(result))
    try:
        if not allowed:
            result = run(_as_login_user(asked), stdin=request.encode(), become=True, timeout=timeout)
        if result.exit_code in NOT_OURS:
            if host.target.local and not alone:  # compiling takes a third of a second, and probes follow the facts
                threading.Thread(target=agent_archive, kwargs={"compiled": True}, name="compile", daemon=True).start()
            archive = agent_archive(compiled=host.target.local and not at_once)
            result = _stream(run, words, request, archive, become=become, timeout=timeout)
    except NoPrivilege as refused:
        raise _no_sudo_rule(host, refused, words, result.exit_code if allowed else NO_RULE) from refused
    return _decode(host, record, result)


def _as_login_user(asked: str) -> str:
    """A command that runs the installed agent as the login user."""
    return f"test -x {AGENT_PROGRAM} || exit {NO_AGENT}; exec {asked}"


def _as_root(asked: str) -> str:
    """The same as root: if the login user is root, or by a sudo rule for the agent alone, without a root shell.

    `sudo -l` first checks whether a rule exists (also a rule for all commands), without the command's input.
    """
    return (
        f'test -x {AGENT_PROGRAM} || exit {NO_AGENT}; if test "$(id -u)" -eq 0; then exec {asked}; fi; '
        f"timeout {SUDO_TIMEOUT:g} sudo -k -n -l -- {asked} </dev/null >/dev/null 2>&1 || exit {NO_RULE}; "
        f"LC_ALL=C exec sudo -n -- {asked}"
    )


def _refused(result: CommandResult) -> bool:
    """Whether sudo did not start the command: no rule, or a rule that needs a password."""
    last = (result.stderr.strip().splitlines() or [""])[-1]
    return result.exit_code == NO_RULE or (result.exit_code == 1 and last.startswith("sudo: "))


def rule(words: Sequence[str], user: str = "USER") -> str:
    """The sudoers line (sudo 1.9.10 or newer) that lets `user` run the agent with `words` as root, and nothing else."""
    return f"{user} ALL=(root) NOPASSWD: {AGENT_PROGRAM} ^{' '.join(words)} --expect [0-9A-Za-z.+-]+$"


def _no_sudo_rule(host: Host, refused: NoPrivilege, words: Sequence[str], ended: int) -> NoPrivilege:
    """The error if sudo allows no root shell. A sudo rule for the agent is enough where ours is installed."""
    what, hint = refused.what, refused.hint
    if ended == NO_RULE:
        hint += "; or, since the agent alone is enough for drift and validate, a rule of sudo for it: "
        hint += f"`{rule(words)}` (docs/security.md has all of them)"
    elif ended != NO_AGENT:
        what += f", and the agent installed there is not that of this gpuprep ({identity()})"
        hint += f"; or a user who may do all by sudo renews it: gpuprep provision {host.name} --profile P --only agent"
    return NoPrivilege(what, hint, where=host.name)


def _stream(run: Run, words: list[str], request: str, archive: bytes, *, become: bool, timeout: float) -> CommandResult:
    arguments = " ".join(shlex.quote(word) for word in words)
    return run(
        f"exec python3 -I -c {shlex.quote(BOOTSTRAP)} {arguments}",
        stdin=struct.pack(">Q", len(archive)) + archive + request.encode(),
        become=become,
        timeout=timeout,
    )


@functools.cache
def agent_archive(*, compiled: bool = False) -> bytes:
    """A zip of the agent, its shared modules and this controller's pynvml.

    `compiled`: for this computer, with bytecode and not compressed: each probe then begins 0.2 s earlier. Another
    Python does not accept the bytecode and compiles the sources.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED if compiled else zipfile.ZIP_DEFLATED) as archive:
        for name, path in _files().items():
            content = path.read_bytes()
            archive.writestr(name, content)
            if compiled:
                archive.writestr(f"{name}c", _bytecode(path, content))
    return buffer.getvalue()


def _files() -> dict[str, Path]:
    """Name in the archive ─► file. Raises AgentFailed without pynvml on the controller."""
    spec = importlib.util.find_spec("pynvml")
    if spec is None or spec.origin is None:
        raise AgentFailed("the controller has no nvidia-ml-py to send to the host", "pip install nvidia-ml-py")
    return {**{f"gpuprep/{name}": PACKAGE / name for name in sources()}, "pynvml.py": Path(spec.origin)}


def _bytecode(path: Path, content: bytes) -> bytes:
    """The bytecode of a source, marked so that Python does not compare it with the source (PEP 552)."""
    code = SourceFileLoader(path.stem, str(path)).get_code(path.stem)
    return importlib.util.MAGIC_NUMBER + UNCHECKED + importlib.util.source_hash(content) + marshal.dumps(code)


def _decode(host: Host, record: type[_Record], result: CommandResult) -> _Record:
    if result.exit_code == 127 and "python3" in result.stderr:
        raise AgentFailed(
            f"{host.name}: there is no python3 on the host, with which gpuprep reads its facts",
            f"{INSTALL_PYTHON}, then run again",
            where=host.name,
        )
    if result.exit_code != 0 and NO_ANSWER in result.stderr:
        raise AgentFailed(
            f"{host.name}: {_last_lines(result.stderr)}",
            "`sudo dpkg --configure -a` on the host (Red Hat's: `sudo rpm --rebuilddb`) repairs it or says more",
            where=host.name,
        )
    if result.exit_code != 0:
        raise AgentFailed(
            f"{host.name}: the agent ended with exit code {result.exit_code}: {_last_lines(result.stderr)}",
            f"run again with -v; python3 on the host must be 3.9 or newer ({NEWER_PYTHON})",
            where=host.name,
        )
    try:
        return from_last_line(record, result.stdout)
    except DecodeError as error:
        output = _last_lines(result.stderr) or _last_lines(result.stdout) or "nothing"
        raise AgentFailed(
            f"{host.name}: the agent's answer is no {record.__name__} ({error}); its output: {output:.300}",
            "if an older gpuprep-agent is installed there, run `gpuprep provision` to renew it",
            where=host.name,
        ) from error


def _last_lines(text: str) -> str:
    """The last lines of a text as one line; only the end of a long text is read."""
    return " | ".join(map(one_line, text.strip()[-LAST_LETTERS:].splitlines()[-LAST_LINES:]))
