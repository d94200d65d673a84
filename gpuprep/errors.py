"""Every error that a user of gpuprep can get. Each has a hint: what to do next.

GpuprepError                      exit 3 by default
├── UsageError                    exit 2  the command line or configuration file is wrong
├── ProfileError                  exit 2  a profile is wrong; one line per problem, `file:line: key: what, allowed`
├── PlanRefused                   exit 2  the profile asks for an impossible combination; nothing was changed
├── HostError                     exit 3  the state of the host is unknown
│   ├── HostUnreachable           the name does not resolve, connection refused, time-out
│   ├── HostKeyRefused            unknown or changed host key
│   ├── AuthenticationRefused     wrong user, key or password
│   ├── NoPrivilege               sudo is missing, wants a password, or refuses
│   └── AgentFailed               the agent on the host gave no usable answer
├── HostLocked                    exit 3  another run works on this host; says who
├── ProvisionFailed               exit 4  a step failed: which step, on which host, its last lines, the log
├── Interrupted                   exit 130 the user stopped it; says how to continue
├── StoreError                    exit 3  the store of runs cannot be read or written
└── SimError                      exit 2  simulated VMs cannot run here, or no such machine
"""

from __future__ import annotations

from collections.abc import Sequence

from gpuprep.untrusted.plaintext import visible


class GpuprepError(Exception):
    """Base of all expected errors: `what` failed, and `hint`, what to do; both plain text.

    Both often quote a host, so unsafe characters are escaped here, for all errors.
    """

    exit_code = 3

    def __init__(self, what: str, hint: str = "", *, where: str = "", log: str = "") -> None:
        super().__init__(visible(what))
        self.what = visible(what)
        self.hint = visible(hint)
        self.where = visible(where)
        self.log = log

    def explain(self) -> str:
        """The whole error for a person: what failed, where, what to do next, where the log is."""
        lines = [self.what]
        if self.where and self.where not in self.what:
            lines.append(f"where: {self.where}")
        lines += self.evidence()
        if self.hint:
            lines.append(f"what to do: {self.hint}")
        if self.log:
            lines.append(f"whole log: {self.log}")
        return "\n".join(lines)

    def evidence(self) -> list[str]:
        """Lines that show the failure itself; empty by default."""
        return []


class UsageError(GpuprepError):
    exit_code = 2


class ProfileError(GpuprepError):
    """All problems of a profile at once. `problems` are lines `file:line: key: what, allowed`."""

    exit_code = 2

    def __init__(self, problems: Sequence[str], hint: str = "") -> None:
        super().__init__("\n".join(problems), hint)
        self.problems = tuple(map(visible, problems))


class PlanRefused(GpuprepError):
    """All reasons why the combination is impossible; each suggests the nearest combination that works."""

    exit_code = 2

    def __init__(self, reasons: Sequence[str], hint: str = "", *, where: str = "") -> None:
        super().__init__("\n".join(reasons), hint, where=where)
        self.reasons = tuple(map(visible, reasons))


class HostError(GpuprepError):
    pass


class HostUnreachable(HostError):
    pass


class HostKeyRefused(HostError):
    pass


class AuthenticationRefused(HostError):
    pass


class NoPrivilege(HostError):
    pass


class TookTooLong(HostError):
    """A command exceeded its time limit and was ended; later commands can still run on the host."""


class AgentFailed(HostError):
    pass


class HostLocked(GpuprepError):
    pass


class ProvisionFailed(GpuprepError):
    """A provisioning step failed. `step` is the task's name, `last_lines` the end of its own output."""

    exit_code = 4

    def __init__(
        self,
        what: str,
        hint: str = "",
        *,
        where: str = "",
        log: str = "",
        step: str = "",
        last_lines: Sequence[str] = (),
    ) -> None:
        super().__init__(what, hint, where=where, log=log)
        self.step = visible(step)
        self.last_lines = tuple(map(visible, last_lines))

    def evidence(self) -> list[str]:
        return [f"  | {line}" for line in self.last_lines]


class Interrupted(GpuprepError):
    exit_code = 130


class StoreError(GpuprepError):
    pass


class SimError(GpuprepError):
    exit_code = 2
