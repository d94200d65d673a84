"""Roles and variables ─► one Ansible run on one host ─► PlaybookResult. The only import of ansible_runner.

All files of the run are in a private folder that is deleted afterwards, and all its processes are ended (keeper.py).
Only the output in `ansible.log` stays. The sudo password is typed into Ansible's own prompt through the terminal that
ansible-runner gives it: it is never in a file, an argument or an environment variable.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuprep.errors import GpuprepError, HostError, HostUnreachable, Interrupted, ProvisionFailed
from gpuprep.paths import private_folder
from gpuprep.provisioning import ansible_environment
from gpuprep.provisioning.ansible_events import RESTART, Events, Progress
from gpuprep.records import PlaybookResult
from gpuprep.remote.types import Target

__all__ = ["NOT_NEEDED", "Failure", "Progress", "run"]

NOT_NEEDED = PlaybookResult(status="not needed", changed=0, ok=0, failed=0, tasks=(), log="", seconds=0.0)

# What Ansible says of a host where it could make no folder for its files, and that it then calls unreachable.
NO_FOLDER = "Failed to create temporary directory"
# Ansible asks with "BECOME password: " (older releases: "SUDO password: ").
BECOME_PROMPT = r"^(BECOME|SUDO) password.*:\s*?$"
PRIVATE = "gpuprep-r"  # and 8 letters; an earlier gpuprep had no "r", and did not lock its folder
KEEPER_SECONDS = 3.0  # after which a keeper that was told to end is no longer waited for
REPAIR_IT = "repair what the lines above name, then run the same command again: it continues from there"
TAIL_BYTES = 64 << 10


@dataclass(frozen=True)
class Failure:
    """A run that failed: the error to raise, and the result so far.

    `reboot_needed`: it stopped because the machine must be restarted first, which it was not allowed to do.
    """

    error: GpuprepError
    result: PlaybookResult
    reboot_needed: bool = False


def run(
    target: Target,
    *,
    roles: Sequence[str],
    variables: Mapping[str, Any],
    check: bool = False,
    diff: bool = False,
    become_password: str | None = None,
    sudo: str = "",
    accept_new_host_key: bool = False,
    log_dir: Path,
    on_event: Callable[[Progress], None],
    cancelled: Callable[[], bool] = lambda: False,
    on_cancel: Callable[[], None] = lambda: None,
    playbook: str | Path = "provision.yml",
    verbosity: int = 0,
) -> PlaybookResult | Failure:
    """Run `playbook` (a name in the playbooks folder, or a path) on `target`, limited to `roles` by their tags.

    `on_cancel` is called in a thread of its own when the user has cancelled, and waited for: it ends what tasks have
    started on the host.

    A failed task, a lost host and an interruption are returned as a Failure, so that the record can contain what
    was done.
    """
    started = time.monotonic()
    private_folder(log_dir)
    log = log_dir / "ansible.log"
    playbooks = ansible_environment.playbooks_dir()
    path = playbooks / playbook
    if not path.is_file():
        raise GpuprepError(
            f"playbook {path} is missing", "files are missing in this installation of gpuprep: install it again"
        )
    events = Events(on_event, log)
    with contextlib.closing(events), _private() as private:
        status = _execute(
            private,
            target,
            path,
            tags=[role.removeprefix("gpu_") for role in roles],
            variables={**variables, **({"ansible_become_exe": sudo} if sudo else {})},
            flags=[*(["--check"] if check else []), *(["--diff"] if diff else [])],
            become_password=become_password,
            environment=ansible_environment.environment(
                target, private, playbooks, accept_new_host_key=accept_new_host_key, check=check
            ),
            events=events,
            cancelled=cancelled,
            on_cancel=on_cancel,
            verbosity=verbosity,
        )
    result = PlaybookResult(
        status=status,
        changed=events.stat("changed"),
        ok=events.stat("ok"),
        failed=events.stat("failures"),
        tasks=tuple(events.tasks),
        log=str(log),
        seconds=round(time.monotonic() - started, 1),
    )
    if status == "successful":
        return result
    return Failure(_error(status, target, events, log), result, events.reboot_needed and status == "failed")


@contextlib.contextmanager
def _private() -> Iterator[Path]:
    """A folder for one run, locked until it ends. Those of killed runs are removed: the kernel has freed their lock.

    A keeper does that, too, unless it had ended before the run was killed. Not below the run's own folder: the path of
    an SSH control socket may not be longer than about 100 bytes.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{PRIVATE}????????"):
        with contextlib.suppress(OSError), _locked(left, fcntl.LOCK_NB) as its:
            if os.fstat(its).st_uid == os.geteuid():
                shutil.rmtree(left, ignore_errors=True)
    while True:
        private = Path(tempfile.mkdtemp(prefix=PRIVATE))
        try:
            with contextlib.ExitStack() as held:
                with contextlib.suppress(OSError):  # a file system without locks, where nobody's folder is removed
                    held.enter_context(_locked(private))
                if private.exists():  # nobody removed it before it was locked
                    yield private
                    return
        finally:
            shutil.rmtree(private, ignore_errors=True)


@contextlib.contextmanager
def _locked(folder: Path, how: int = 0) -> Iterator[int]:
    """The number of the open folder. Raises OSError."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | how)
        yield opened
    finally:
        os.close(opened)


def _execute(
    private: Path,
    target: Target,
    playbook: Path,
    *,
    tags: Sequence[str],
    variables: Mapping[str, Any],
    flags: list[str],
    become_password: str | None,
    environment: dict[str, str],
    events: Events,
    cancelled: Callable[[], bool],
    on_cancel: Callable[[], None],
    verbosity: int,
) -> str:
    """One ansible-runner run in `private`; returns successful | failed | unreachable | canceled."""
    from ansible_runner.config.runner import RunnerConfig
    from ansible_runner.runner import Runner

    inventory = private / "inventory.yml"
    inventory.touch(mode=0o600)
    inventory.write_text(ansible_environment.inventory_text(target, variables), encoding="utf-8")
    (private / "env").mkdir()
    # How long ansible-runner waits before it asks again whether the user has cancelled; and no output file:
    # Events keeps one.
    settings = {"pexpect_timeout": 0.5, "suppress_output_file": True}
    (private / "env" / "settings").write_text(json.dumps(settings), encoding="utf-8")
    if become_password is not None:
        flags = [*flags, "--ask-become-pass"]
    config = RunnerConfig(
        str(private),
        playbook=str(playbook),
        inventory=str(inventory),
        tags=",".join(tags) or None,
        cmdline=" ".join(flags) or None,
        passwords={BECOME_PROMPT: become_password} if become_password is not None else None,
        envvars=environment,
        verbosity=verbosity or None,
        quiet=True,
        ident="run",
    )
    config.prepare()
    pid_file = private / "keeper"
    config.command[:1] = [
        *ansible_environment.keeper_command(pid_file, target),
        str(ansible_environment.ansible_program("ansible-playbook")),
    ]
    config.env = ansible_environment.without_foreign_settings(config.env, environment)

    def forget_environment(status: dict[str, Any], runner_config: Any) -> None:
        # ansible-runner writes the whole environment, the user's own secrets included, to this file.
        if status["status"] == "running":
            Path(runner_config.artifact_dir, "command").unlink(missing_ok=True)

    asked: list[float] = []
    tidying = threading.Thread(target=on_cancel, daemon=True, name="what tasks left running")

    def end_if_cancelled() -> bool:
        """Tell the keeper to end all processes. True (which kills only the keeper) if the keeper does not do it."""
        if not cancelled():
            return False
        if not asked and _tell_keeper(pid_file) is not None:
            asked.append(time.monotonic())
            tidying.start()
        return bool(asked) and time.monotonic() - asked[0] > KEEPER_SECONDS

    runner = Runner(
        config, event_handler=events.handle, status_handler=forget_environment, cancel_callback=end_if_cancelled
    )
    try:
        runner.run()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, MemoryError) as error:
        # ansible-runner reads the host's answer as JSON inside an event: one that it cannot read is no reason to lose
        # the record.
        _end_keeper(pid_file)
        events.broke(f"what the host answered cannot be read ({type(error).__name__})")
        return "failed"
    except BaseException:
        _end_keeper(pid_file)
        raise
    if asked:
        tidying.join(KEEPER_SECONDS)
        return "canceled"
    if runner.status == "successful" and not events.reached_host:
        return "failed"
    if runner.status == "failed" and events.unreachable:
        return "unreachable"
    return str(runner.status)


def _tell_keeper(pid_file: Path) -> int | None:
    """Send SIGTERM to the keeper, which ends within about two seconds. Its process id; None: not started yet."""
    try:
        pid = int(pid_file.read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        return None
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    return pid


def _end_keeper(pid_file: Path) -> None:
    """End the keeper after an error, because nothing else waits for it then."""
    if (pid := _tell_keeper(pid_file)) is not None:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def _error(status: str, target: Target, events: Events, log: Path) -> GpuprepError:
    if status == "canceled":
        at = f" during {events.current}" if events.current else ""
        return Interrupted(
            f"{target.name}: interrupted{at}",
            "run the same command again: it continues where this run stopped",
            log=str(log),
        )
    if status == "unreachable":
        message = f": {events.failure.message}" if events.failure else ""
        before = events.failed_before
        if before is not None and before.step.endswith(RESTART):
            return HostUnreachable(
                f"{target.name}: the machine did not come back from its restart: {before.message}",
                "look at the machine's console (of a cloud: its serial console); when ssh reaches it again, run the"
                " same command again: it continues from there; driver.reboot_minutes of the profile waits longer",
                log=str(log),
            )
        if NO_FOLDER in message:  # the connection is there
            return HostError(
                f"{target.name}: the home of the login there cannot be written to, where Ansible keeps its files",
                "`df -h ~; df -i ~; findmnt -T ~` as that user shows why: it needs room, and to be mounted for writing;"
                " then run the same command again",
                where=target.name,
                log=str(log),
            )
        message += f"; before that, step {before.step!r} failed: {before.message}" if before else ""
        return HostUnreachable(
            f"{target.name}: the connection was lost or refused during step {events.unreachable_during!r}{message}",
            "see that the host is up and that ssh reaches it, then run the same command again",
            log=str(log),
        )
    failure = events.failure
    if failure is None:
        return ProvisionFailed(
            f"{target.name}: Ansible ended before any step could run",
            "read the lines above; the whole log has the rest",
            where=target.name,
            log=str(log),
            last_lines=_tail(log),
        )
    return ProvisionFailed(
        f"{target.name}: step {failure.step!r} failed: {failure.message}",
        failure.hint or REPAIR_IT,
        where=target.name,
        log=str(log),
        step=failure.step,
        last_lines=failure.last_lines,
    )


def _tail(log: Path, lines: int = 15) -> list[str]:
    if not log.is_file():
        return []
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - TAIL_BYTES))
        return file.read(TAIL_BYTES).decode(errors="replace").rstrip().splitlines()[-lines:]
