"""One long-lived connection to the agent of a host, which answers one request at a time: for `gpuprep watch`.

    with Live(host) as live:
        live.sample()            # again and again

It uses the installed agent if that has our version, else it sends the agent, as agent_client does. It takes no lock and
changes nothing. When it is closed, or when this process dies, the agent's input ends, and so the agent ends.
"""

from __future__ import annotations

import shlex
import struct
from types import TracebackType

from gpuprep.agent.host_paths import AGENT_PROGRAM
from gpuprep.agent.identity import OTHER_AGENT, identity
from gpuprep.agent.live import READY
from gpuprep.errors import AgentFailed, NoPrivilege
from gpuprep.records import DecodeError, from_json
from gpuprep.records.live import LiveSample
from gpuprep.remote.agent_client import BOOTSTRAP, agent_archive
from gpuprep.remote.connection import Process
from gpuprep.remote.core import Host
from gpuprep.untrusted.plaintext import one_line

BEGIN_SECONDS = 60.0  # until an agent that was sent along has begun
ANSWER_SECONDS = 30.0  # a GPU without persistence mode takes seconds to wake up
TOLD = 300  # letters of what the agent printed in place of an answer
SEND = "gpuprep-live: send the agent"
READ_ALL = "data = sys.stdin.buffer.read()"
# As agent_client's bootstrap, but the input goes on after the archive: it must not be read to its end.
READ_ARCHIVE = """data, want = b"", 8
while len(data) < want:
    piece = os.read(0, want - len(data))
    if not piece:
        sys.exit("the agent did not arrive")
    data += piece
    if len(data) == 8:
        want = 8 + struct.unpack(">Q", data)[0]"""


def command() -> str:
    """The shell command that starts the installed agent if it is ours, else one that receives ours.

    An older agent does not know `live` and ends with 2.
    """
    installed = f"{AGENT_PROGRAM} live --expect {identity()}"
    streamed = BOOTSTRAP.replace(READ_ALL, READ_ARCHIVE)
    return (
        f"if test -x {AGENT_PROGRAM}; then {installed} 2>/dev/null; c=$?; "
        f"case $c in 2|126|127|{OTHER_AGENT}) ;; *) exit $c;; esac; fi; "
        f"echo {shlex.quote(SEND)}; exec python3 -I -c {shlex.quote(streamed)} live"
    )


class Live:
    """The agent of one host, as root if sudo allows that without a password or with the password that `host` has.

    Raises HostError and its subclasses as Host does; AgentFailed if the answer is not an agent's.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self.as_root = True
        try:
            host.check_privilege()
        except NoPrivilege:  # then the kernel's log may be unreadable; the rest is read
            self.as_root = False
        self._process: Process = host.start(command(), become=self.as_root)
        try:
            self._begin()
        except BaseException:
            self._process.close()
            raise

    def __enter__(self) -> Live:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.close()

    def sample(self) -> LiveSample:
        self._process.send(b"\n")
        text = self._line(ANSWER_SECONDS)
        try:
            return from_json(LiveSample, text)
        except DecodeError as error:
            raise self._failed(f"the agent's answer is no sample ({error}): {one_line(text, TOLD)}") from error

    def _begin(self) -> None:
        line = self._line(BEGIN_SECONDS)
        if line == SEND:
            archive = agent_archive(compiled=self._host.target.local)
            self._process.send(struct.pack(">Q", len(archive)) + archive)
            line = self._line(BEGIN_SECONDS)
        if line != READY:
            raise self._failed(f"what answers is no agent: {one_line(line, TOLD)}")

    def _line(self, seconds: float) -> str:
        line = self._process.read_line(seconds).decode(errors="backslashreplace")
        if not line:
            output = one_line(self._process.read_error(), TOLD) or "nothing"
            raise self._failed(f"the agent ended; its output: {output}")
        return line

    def _failed(self, what: str) -> AgentFailed:
        return AgentFailed(
            f"{self._host.name}: {what}", "python3 on the host must be 3.9 or newer", where=self._host.name
        )
