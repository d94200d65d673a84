"""Reads the nightly schedule installed on a host, in one command, and has the host check itself now."""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone

from gpuprep.agent.host_paths import (
    AGENT_PROGRAM,
    BOOT_ID,
    DRIFT_LAST,
    DRIFT_PLAN,
    DRIFT_PROGRAM,
    DRIFT_RESULTS,
    DRIFT_SERVICE_FILE,
    DRIFT_TIMER_FILE,
)
from gpuprep.errors import GpuprepError, HostError, Interrupted
from gpuprep.nightly.freshness import Machine, moment
from gpuprep.nightly.units import SERVICE, TIMER
from gpuprep.records import DecodeError, RunRecord, from_json
from gpuprep.remote import CommandResult, Host
from gpuprep.untrusted.limits import FILE_BYTES, MIB
from gpuprep.untrusted.plaintext import one_line
from gpuprep.workflows.runs import Run

TIMEOUT_SECONDS = 60.0
_LAST_LETTERS = 2000
FILES = (DRIFT_PLAN, DRIFT_SERVICE_FILE, DRIFT_TIMER_FILE)
_TIMER_PROPERTIES = "ActiveState,UnitFileState,NextElapseUSecRealtime,LastTriggerUSec"

# Sections, each after a line of $mark and its name. The mark is another one in each call, so that no file can have it.
_HEAD = f"""
section() {{ printf '\\n%s %s\\n' "$mark" "$1"; }}
file() {{ section "$1"; if test -f "$1"; then head -c {FILE_BYTES + 1} -- "$1"; fi; }}
"""
_MACHINE = f"""
section hostname; cat /proc/sys/kernel/hostname /etc/hostname 2>/dev/null
section boot; cat {BOOT_ID} 2>/dev/null
"""
_TIMER_STATE = f"""
section now; date -u +%Y-%m-%dT%H:%M:%S+00:00
section timer; LC_ALL=C TZ=UTC systemctl show {TIMER} -p {_TIMER_PROPERTIES} 2>/dev/null
"""
LOOK = f"""{_HEAD}
section python; python3 -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null
section systemd; if test -d /run/systemd/system; then echo yes; fi
section agent; {AGENT_PROGRAM} identity 2>/dev/null
section program; if test -x {DRIFT_PROGRAM}; then echo yes; fi
section reload; systemctl show {TIMER} {SERVICE} -p NeedDaemonReload --value 2>/dev/null
{"".join(f"file {path}; " for path in FILES)}
{_TIMER_STATE}
true
"""
# A host may keep thousands of results; what nobody fetched for so many nights stays there.
MOST_KEPT = 100
MOST_KEPT_BYTES = 24 * MIB
# $known: ids of results that the asker has already.
READ = f"""{_HEAD}
file {DRIFT_LAST}
file {DRIFT_PLAN}
set -- {DRIFT_RESULTS}/results/*.json
test $# -le {MOST_KEPT} || shift $(($# - {MOST_KEPT}))
for path in "$@"; do
  id=${{path##*/}} id=${{id%.json}}
  case "$id" in *[!0-9A-Za-z-]*) continue ;; esac
  case " $known " in *" $id "*) ;; *) file "$path" ;; esac
done
{_MACHINE}
{_TIMER_STATE}
true
"""
# The unit may take an hour. A check that runs already began before what it shall see: it is waited for first.
CHECK_SECONDS = 2 * 3600.0 + 60
NOT_SCHEDULED, NO_RESULT = 96, 97
CHECK_NOW = f"""
test -e {DRIFT_SERVICE_FILE} && test -e {DRIFT_PLAN} || exit {NOT_SCHEDULED}
before=$(sha256sum {DRIFT_LAST} 2>/dev/null)
if test "$(systemctl is-active {SERVICE})" = activating; then systemctl start {SERVICE}; fi
systemctl start {SERVICE}
test "$(sha256sum {DRIFT_LAST} 2>/dev/null)" != "$before" || exit {NO_RESULT}
head -c {FILE_BYTES + 1} -- {DRIFT_LAST}
"""


@dataclass(frozen=True)
class Timer:
    active: bool
    enabled: bool
    next_at: str  # UTC, ISO 8601; "": systemd does not say
    last_at: str  # when it fired last; "": never since it was made

    @property
    def runs(self) -> bool:
        return self.active and self.enabled


@dataclass(frozen=True)
class Found:
    """The sections of one answer; an absent section is "". `now` is the time of the host's own clock."""

    sections: Mapping[str, str]
    now: datetime

    def word(self, name: str) -> str:
        return self.sections.get(name, "").strip()

    def text(self, path: str) -> str:
        return self.sections.get(path, "")

    @property
    def kept(self) -> dict[str, str]:
        """Path ─► text of the kept results, oldest first: the newest MOST_KEPT, of at most MOST_KEPT_BYTES together."""
        texts: dict[str, str] = {}
        room = MOST_KEPT_BYTES
        name = re.compile(rf"{re.escape(DRIFT_RESULTS)}/results/[0-9A-Za-z-]{{1,64}}\.json")
        for path in sorted(filter(name.fullmatch, self.sections), reverse=True)[:MOST_KEPT]:
            room -= len(self.sections[path])
            if room < 0:
                break
            texts[path] = self.sections[path]
        return dict(reversed(texts.items()))

    @property
    def machine(self) -> Machine:
        """Host name and boot ID of the host; only after `read`."""
        return Machine(tuple(self.word("hostname").split()), self.word("boot"))

    @property
    def timer(self) -> Timer:
        properties = dict(line.partition("=")[::2] for line in self.word("timer").splitlines())
        return Timer(
            active=properties.get("ActiveState") == "active",
            enabled=properties.get("UnitFileState") == "enabled",
            next_at=_moment(properties.get("NextElapseUSecRealtime", "")),
            last_at=_moment(properties.get("LastTriggerUSec", "")),
        )


def look(host: Host) -> Found:
    """Read, as root, the files that a schedule would change."""
    return _ask(host, LOOK, become=True)


def read(host: Host, known: Collection[str] = ()) -> Found:
    """Read the last result, the kept results whose run ids are not `known`, and the timer; as any user."""
    return _ask(host, f"known={shlex.quote(' '.join(known))}\n{READ}", become=False)


def must(host: Host, command: str, what: str) -> None:
    """Run `command` as root. Raises HostError that begins with `what` if it fails."""
    done = host.run(command, become=True, timeout=TIMEOUT_SECONDS)
    if done.exit_code != 0:
        output = (done.stderr or done.stdout).strip().splitlines()
        raise HostError(
            f"{what}: {output[-1] if output else f'exit code {done.exit_code}'}",
            "repair what the message names, then run the same command again",
            where=host.name,
        )


def check_now(host: Host) -> str | None:
    """Have the host check itself as its timer does. Returns the new result; None where no night check is scheduled.

    Raises HostError if the check left no result.
    """
    done = host.run(CHECK_NOW, become=True, timeout=CHECK_SECONDS)
    if done.exit_code == NOT_SCHEDULED:
        return None
    if done.exit_code != 0:
        said = (done.stderr or "systemd does not say why").strip()[-_LAST_LETTERS:].splitlines()[-1]
        raise HostError(
            f"{host.name}: its own check left no result: {one_line(said)}",
            f"see why on the host: journalctl -u {SERVICE}",
            where=host.name,
        )
    return done.stdout


def renew(run: Run, host: Host) -> None:
    """After a repair: the host checks itself, so that its scheduler does not go by the result from before the repair.

    A note of the record says how that ended, if it did not pass.
    """
    run.stage("renewing the host's own check, if it has one")
    try:
        text = check_now(host)
        record = from_json(RunRecord, text) if text is not None else None
    except Interrupted:
        raise
    except (GpuprepError, DecodeError) as error:
        run.note(f"the host's own check could not be renewed: {one_line(str(error), 300)}")
        return
    if record is None:
        return
    words = record.verdict.summary if record.verdict else f"UNKNOWN: {record.error or 'no verdict'}"
    run.stage(f"the host's own check: {one_line(words, 300)}")
    if record.exit_code:
        run.note(
            f"the host's own check ended otherwise: {one_line(words, 300)}; it compares with the profile of its"
            " schedule, which `gpuprep drift schedule` renews"
        )


def _ask(host: Host, command: str, *, become: bool) -> Found:
    mark = f"== {secrets.token_hex(16)}"
    done = host.run(f"mark='{mark}'\n{command}", become=become, timeout=TIMEOUT_SECONDS)
    _, *parts = done.stdout.split(f"\n{mark} ")
    sections = {name: text for name, _, text in (part.partition("\n") for part in parts)}
    word = sections.get("now", "").strip()
    now = moment(word)
    wrong = _unusable(sections, len(parts), done)
    if wrong or now is None:
        wrong = wrong or f"{one_line(word, 40)!r} is no time of day"
        raise HostError(
            f"{host.name}: the state of its nightly check cannot be read: {wrong}",
            "see that a plain command works there, e.g. `ssh HOST true`",
            where=host.name,
        )
    return Found(sections, now)


def _unusable(sections: Mapping[str, str], parts: int, done: CommandResult) -> str:
    """Why the answer cannot be used; "" if it can. Any user who may log in on the host could have forged it."""
    if not sections:
        output = (done.stderr or done.stdout).strip()[-_LAST_LETTERS:].splitlines()
        return one_line(output[-1]) if output else "it says nothing"
    if parts != len(sections):
        return "it answers twice to one question"
    if large := next((name for name, text in sections.items() if len(text) > FILE_BYTES), ""):
        return f"{one_line(large, 100)} is larger than {FILE_BYTES // MIB} MiB"
    return ""


def _moment(text: str) -> str:
    """systemd's "Sun 2026-11-22 02:53:55 UTC" ─► UTC, ISO 8601; "" for none ("", "n/a")."""
    try:
        moment = datetime.strptime(text, "%a %Y-%m-%d %H:%M:%S UTC").replace(tzinfo=timezone.utc)
    except ValueError:
        return ""
    return moment.isoformat(timespec="seconds")
