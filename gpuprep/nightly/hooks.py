"""Reports the last night check to a scheduler: is this node still what was certified? Measures nothing.

    gpuprep-drift slurm [--resume] [--drain-unknown | --no-drain]    for Slurm's HealthCheckProgram
    gpuprep-drift npd                                                for a custom plugin of node-problem-detector

Both print one line of ASCII. A result that is absent, damaged, of another machine or too old is UNKNOWN, never PASS.
Every user may run them: every user can read the result.

Slurm (slurm.conf(5), HealthCheckProgram): slurmd runs it as root on the node, in an environment with SLURMD_NODENAME
and without PATH, and kills it after 60 s. Slurm itself ignores the outcome: the program has to drain the node. slurmd
logs the line as an error if the exit code is not 0.

node-problem-detector (docs/custom_plugin_monitor.md): exit code 0 is OK, 1 is NonOK, any other Unknown; the message is
the first `max_output_length` bytes of stdout, 80 unless configured.
"""

from __future__ import annotations

import argparse
import re
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from gpuprep.agent import host_paths, inuse
from gpuprep.nightly import freshness, results
from gpuprep.records import Finding, RunRecord, Status
from gpuprep.records.ended import COULD_NOT_TELL, EXIT_CODES
from gpuprep.untrusted.limits import file_text

LAST = results.FOLDER / results.LAST
PLAN = Path(host_paths.DRIFT_PLAN)
HOSTNAME = Path("/etc/hostname")
BOOT_ID = Path(host_paths.BOOT_ID)
FIT = (Status.PASS, Status.WARN)
NPD_CODES = {Status.PASS: 0, Status.WARN: 0, Status.FAIL: 1, Status.UNKNOWN: 2}
NPD_LENGTH = 80  # bytes; node-problem-detector's default max_output_length
LENGTH = 200  # of a line and of a drain reason; Slurm's accounting keeps 255 bytes of a reason
OURS = "gpuprep:"  # a drain reason that begins so is ours
# slurmctld keeps a reason beyond the drain, and where one is there does not write its own when it drains a node itself
# (node_mgr.c, _drain_node): left as it was, it would make that drain look like ours.
RESUMED = "undrained by gpuprep"
SCONTROL_SECONDS = 20.0  # it may be called twice within slurmd's 60


@dataclass(frozen=True)
class Answer:
    """`status` is PASS, WARN, FAIL or UNKNOWN. `named` are the keys of the findings with this status."""

    status: Status
    detail: str  # more information: which check it was, or why nothing is known
    named: tuple[str, ...] = ()
    simulated: bool = False

    def line(self, length: int) -> str:
        """At most `length` bytes: `gpuprep FAIL: gpu 0.persistence_mode and 2 more`."""
        start = f"gpuprep {self.status.value}{' (simulated)' if self.simulated else ''}: "
        return start + self.words(length - len(start))

    def reason(self) -> str:
        """The answer as a drain reason for Slurm."""
        unknown = "UNKNOWN: " if self.status is Status.UNKNOWN else ""
        start = f"{OURS} {'(simulated) ' if self.simulated else ''}{unknown}"
        return start + self.words(LENGTH - len(start))

    def words(self, length: int) -> str:
        """As many whole keys as fit into `length`; without keys, the detail."""
        if not self.named:
            return _plain(self.detail)[:length]
        for count in range(len(self.named), 0, -1):
            rest = len(self.named) - count
            words = _plain(", ".join(self.named[:count])) + (f" and {rest} more" if rest else "")
            if len(words) <= length:
                return words
        return f"{len(self.named)} findings, of which {_plain(self.named[0])}"[:length]


def answer(now: datetime, last: Path = LAST, plan: Path = PLAN) -> Answer:
    """The result of this machine's last check at `now` (with a time zone)."""
    try:
        record = results.read(last)
    except RecursionError:
        record = results.Damaged(last, "nested too deeply")
    if record is None:
        return Answer(Status.UNKNOWN, f"no nightly check yet (no {last})")
    if isinstance(record, results.Damaged):
        return Answer(Status.UNKNOWN, str(record))
    ended = freshness.moment(record.ended_at)
    if ended is None:
        return Answer(Status.UNKNOWN, f"{last} counts as absent: {record.ended_at!r:.40} is no moment")
    why = _why_unknown(record, freshness.shown(ended), now, fresh_for(plan))
    simulated = results.is_simulated(record)
    verdict = record.verdict
    if why or verdict is None:
        return Answer(Status.UNKNOWN, why, simulated=simulated)
    status = verdict.status
    named = tuple(finding.key for finding in verdict.findings if _counts(finding, status))
    profile = f"profile {record.profile.name}, " if record.profile else ""
    return Answer(status, f"{profile}checked {freshness.shown(ended)}", named, simulated)


def fresh_for(plan: Path = PLAN) -> timedelta:
    """How old a result may be, by the host's plan if it can be read."""
    try:
        return freshness.fresh_for(file_text(plan))
    except (OSError, UnicodeDecodeError):
        return freshness.FRESH


def here() -> freshness.Machine:
    """This machine."""
    names = (socket.gethostname(), _first_line(HOSTNAME))
    return freshness.Machine(tuple(name for name in names if name), _first_line(BOOT_ID))


def _why_unknown(record: RunRecord, ended: str, now: datetime, fresh: timedelta) -> str:
    """Why this record says nothing about the present state; "" if it does."""
    old = freshness.stale_reason(record, now, fresh)
    if old:
        return old
    if record.verdict is None or (record.error and record.verdict.status in FIT):
        error = next(iter((record.error or "").splitlines()), "")
        return f"the check of {ended} came to no verdict" + (f": {error}" if error else "")
    if record.verdict.status not in NPD_CODES:
        return f"the check of {ended} ended with {record.verdict.status.value}"
    if record.after is None:
        return f"the check of {ended} came without facts"
    foreign = freshness.foreign_reason(record, here())
    if foreign:
        return foreign
    if record.verdict.status is Status.UNKNOWN and not record.verdict.findings:
        return record.verdict.summary
    return ""


def _first_line(path: Path) -> str:
    """The first line of a file; "" if it cannot be read."""
    try:
        return file_text(path).partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _counts(finding: Finding, status: Status) -> bool:
    return status is not Status.PASS and finding.status is status


def _plain(text: str) -> str:
    """The text on one line of printable ASCII, without quotes, which Slurm would interpret."""
    return re.sub(r"[\"'`\\]", "", re.sub(r"[^ -~]", "?", " ".join(text.split())))


# ---------------------------------------------------------------- node-problem-detector


def npd(argv: Sequence[str], now: datetime | None = None, last: Path = LAST, plan: Path = PLAN) -> int:
    """Print the line for node-problem-detector; returns 0 OK, 1 NonOK, 2 Unknown."""
    parser = argparse.ArgumentParser(prog="gpuprep-drift npd", description="For node-problem-detector's custom plugin.")
    parser.parse_args(argv)
    health = answer(now or datetime.now(timezone.utc), last, plan)
    sys.stdout.write(health.line(NPD_LENGTH) + "\n")
    return NPD_CODES[health.status]


# ---------------------------------------------------------------- Slurm


class NoSlurm(Exception):
    """scontrol is missing or failed; the message is one line."""


@dataclass(frozen=True)
class Node:
    """This node's state in `scontrol show node`."""

    name: str
    state: frozenset[str]  # "State=IDLE+DRAIN" as {"IDLE", "DRAIN"}
    reason: str

    @property
    def drained(self) -> bool:
        return "DRAIN" in self.state

    @property
    def ours(self) -> bool:
        return self.reason.startswith(OURS)


def slurm(argv: Sequence[str], now: datetime | None = None, last: Path = LAST, plan: Path = PLAN) -> int:
    """Drain this node if it drifted, and print the line; returns 0 fit, 1 drifted, 3 unknown or Slurm failed."""
    options = _slurm_parser().parse_args(argv)
    if options.resume and options.no_drain:
        _slurm_parser().error("argument --resume: not allowed with argument --no-drain, which only reports")
    health = answer(now or datetime.now(timezone.utc), last, plan)
    code = EXIT_CODES[health.status]
    try:
        done = "" if options.no_drain else _act(health, resume=options.resume, unknown=options.drain_unknown)
    except NoSlurm as error:
        done, code = _plain(str(error))[:LENGTH], code or COULD_NOT_TELL
    sys.stdout.write(health.line(LENGTH) + (f"; {done}" if done else "") + "\n")
    return code


def _slurm_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="gpuprep-drift slurm", description="For Slurm's HealthCheckProgram.")
    parser.add_argument(
        "--resume", action="store_true", help="undrain the node when the check passes, if gpuprep drained it"
    )
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--drain-unknown", action="store_true", help="also drain the node if the result is UNKNOWN")
    group.add_argument("--no-drain", action="store_true", help="only report; never drain")
    return parser


def _act(checked: Answer, *, resume: bool, unknown: bool) -> str:
    """Drain or undrain the node, unless it is in that state already; returns what was done, "" for nothing."""
    if checked.status is Status.FAIL or (checked.status is Status.UNKNOWN and unknown):
        return _drain(checked.reason())
    if checked.status in FIT and resume:
        return _undrain()
    return ""


def _drain(reason: str) -> str:
    node = _node()
    if not node.drained:
        _scontrol("update", f"NodeName={node.name}", "State=DRAIN", f"Reason={reason}")
        return f"{node.name} drained"
    if node.ours and node.reason != reason:
        _scontrol("update", f"NodeName={node.name}", f"Reason={reason}")
        return f"{node.name} is drained, its reason now says so"
    return f"{node.name} is drained already" + ("" if node.ours else f": {_plain(node.reason)[:80]}")


def _undrain() -> str:
    """Undrain the node with UNDRAIN, not RESUME: a node that is DOWN for another reason stays DOWN."""
    node = _node()
    if not node.drained:
        return ""
    if not node.ours:
        return f"{node.name} stays drained, not by gpuprep: {_plain(node.reason)[:80]}"
    _scontrol("update", f"NodeName={node.name}", "State=UNDRAIN", f"Reason={RESUMED}")
    return f"{node.name} undrained"


def _node() -> Node:
    name = inuse.slurm_node()
    return parse_node(name, _scontrol("show", "node", name))


def parse_node(name: str, text: str) -> Node:
    """`scontrol show node NAME` ─► Node. Raises NoSlurm if it shows no state."""
    state = re.search(r"^\s*State=(\S+)", text, re.MULTILINE)
    if state is None:
        raise NoSlurm(f"scontrol shows no state of {name}: {text[:80]}")
    reason = re.search(r"^\s*Reason=(.*?)(?: \[[^\[\]]*@[^\[\]]*\])?\s*$", text, re.MULTILINE)
    words = frozenset(word.strip("*~#!%$@^-") for word in state[1].split("+"))
    return Node(name, words, reason[1] if reason else "")


def _scontrol(*words: str) -> str:
    program = inuse.slurm_program("scontrol")
    if program is None:
        raise NoSlurm("scontrol not found; a wrapper script may set PATH")
    try:
        done = subprocess.run(
            [program, *words],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=SCONTROL_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise NoSlurm(f"scontrol {words[0]} gave no answer in {SCONTROL_SECONDS:.0f} s") from None
    except OSError as error:
        raise NoSlurm(f"{program}: {error.strerror}") from error
    if done.returncode != 0:
        raise NoSlurm(f"scontrol {words[0]} failed: {(done.stderr or done.stdout).strip() or done.returncode}")
    return done.stdout


VERBS = {"slurm": slurm, "npd": npd}
