"""A host whose files and systemd are played at the Host, for what `drift schedule` and its kin do there."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from builders import bare_snapshot, finished_snapshot
from fakehost import FakeHost, Script

from gpuprep.agent.host_paths import DRIFT_LAST, DRIFT_PLAN, DRIFT_SERVICE_FILE, DRIFT_TIMER_FILE
from gpuprep.agent.identity import identity
from gpuprep.desired import loading, state
from gpuprep.errors import HostError
from gpuprep.nightly.units import SERVICE, TIMER
from gpuprep.remote import CommandResult, Target
from gpuprep.workflows import schedule_state

T4 = loading.load("t4")
FINISHED = finished_snapshot(state.resolve(T4, bare_snapshot()))
NOW = "2026-11-21T11:00:00+00:00"
UNITS = [DRIFT_SERVICE_FILE, DRIFT_TIMER_FILE]


@dataclass
class Machine:
    """The host: files by path, and what systemd and the agent say."""

    files: dict[str, str] = field(default_factory=dict)
    python: str = "3.13.5"
    systemd: bool = True
    agent: str = field(default_factory=identity)
    active: bool = False
    enabled: bool = False
    loaded: dict[str, str] = field(default_factory=dict)  # the units as systemd has read them
    script: Script = field(default_factory=lambda: Script(snapshots=[FINISHED]))
    done: list[str] = field(default_factory=list)  # commands that changed something, and files that were put
    refuses: str = ""  # part of a command that fails
    now: str = NOW
    hostname: str = "t4"  # that of records_for_tests
    installed: Path | None = None  # a file that makes the agent there ours
    obeys: bool = True  # else commands succeed and do nothing
    says: str = ""  # instead of every answer
    result: str = ""  # what its own check will leave
    known: list[str] = field(default_factory=list)  # what a reader last said to know already

    def host(self) -> Callable[..., PlayedHost]:
        return lambda target, **options: PlayedHost(self, target, options)

    def answer(self, paths: list[str], mark: str) -> str:
        if self.says:
            return self.says
        agent = identity() if self.installed and self.installed.exists() else self.agent
        told = {
            "python": self.python,
            "systemd": "yes" if self.systemd else "",
            "agent": agent,
            "program": "yes" if agent else "",
            "reload": "no\n\n" + ("no" if self.loaded == self.units() else "yes"),
            **{path: self.files.get(path, "") for path in paths},
            "hostname": f"{self.hostname}\n",
            "boot": "b-here\n",
            "now": self.now,
            "timer": "\n".join(
                [
                    "NextElapseUSecRealtime=" + ("Sun 2026-11-22 02:41:07 UTC" if self.active else ""),
                    "LastTriggerUSec=",
                    f"ActiveState={'active' if self.active else 'inactive'}",
                    f"UnitFileState={'enabled' if self.enabled else ''}",
                ]
            ),
        }
        return "".join(f"\n{mark} {name}\n{text}" for name, text in told.items())

    def units(self) -> dict[str, str]:
        return {path: self.files[path] for path in UNITS if path in self.files}

    def check(self) -> CommandResult:
        """Its own check: `result` is what it leaves."""
        if DRIFT_PLAN not in self.files:
            return CommandResult(schedule_state.NOT_SCHEDULED, "", "")
        self.done.append("own check")
        if not self.result:
            return CommandResult(schedule_state.NO_RESULT, "", f"Job for {SERVICE} failed\n")
        self.files[DRIFT_LAST] = self.result
        return CommandResult(0, self.result, "")

    def obey(self, command: str) -> CommandResult:
        if self.refuses and self.refuses in command:
            return CommandResult(1, "", f"Failed: {self.refuses}\n")
        if not self.obeys:
            return CommandResult(0, "", "")
        self.done.append(command)
        if "daemon-reload" in command:
            self.loaded = self.units()
        if "enable -q --now" in command:
            self.active = self.enabled = True
        if f"systemctl stop {TIMER} {SERVICE}" in command:
            self.active = self.enabled = False
        for removed in re.findall(r"rm -f -- ([^&;]*)", command):
            for path in removed.split():
                self.files.pop(path, None)
        return CommandResult(0, "", "")


class PlayedHost(FakeHost):
    def __init__(self, machine: Machine, target: Target, options: dict[str, Any]) -> None:
        super().__init__(machine.script, target, options)
        self.machine = machine

    def run(
        self, command: str, *, stdin: bytes = b"", become: bool = False, timeout: float | None = None
    ) -> CommandResult:
        if stdin:
            return super().run(command, stdin=stdin, become=become, timeout=timeout)
        self._reach()
        assert timeout
        mark = re.match("mark='(== [0-9a-f]{32})'\n", command)
        if mark and command.endswith(schedule_state.LOOK):
            assert become
            return CommandResult(
                0, self.machine.answer([DRIFT_PLAN, DRIFT_SERVICE_FILE, DRIFT_TIMER_FILE], mark[1]), ""
            )
        if mark and command.endswith(schedule_state.READ):
            assert not become, "last asks for no root"
            known = command.removesuffix(schedule_state.READ)
            self.machine.known = re.findall(r"[0-9]{8}-[0-9]{6}-[0-9a-z]+", known)
            kept = [path for path in self.machine.files if "/results/" in path and Path(path).stem not in known]
            return CommandResult(0, self.machine.answer([DRIFT_LAST, DRIFT_PLAN, *kept], mark[1]), "")
        assert become
        if command == schedule_state.CHECK_NOW:
            return self.machine.check()
        return self.machine.obey(command)

    def put(self, data: bytes, remote: str, *, become: bool = False) -> None:
        assert become
        if self.machine.refuses == remote:
            raise HostError(f"cannot write {remote}: No space left on device", where=self.name)
        self.machine.files[remote] = data.decode()
        self.machine.done.append(remote)
