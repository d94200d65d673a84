"""Commands to paste, with the options that the run was given.

    again(record, "validate", "--quick")    the command on the host of a record
    repair(records, findings)               the command that repairs the findings on all hosts; "" if none does
    filled(finding, record)                 the finding, with its remedy expanded
    expanded(text, record, "gpu 3")         a text whose commands have HOST, PROFILE and the GPU's INDEX filled in

A run keeps its options as typed in its record (`RecordedOptions.asked`), so a report read later has the same commands.
The values are quoted for a shell, whatever they are. A password is never among them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gpuprep.checks import cloudmachine
from gpuprep.records import Finding, RunRecord, ended
from gpuprep.records.findings import PROBLEMS, findings_of
from gpuprep.records.recorded_options import STEPS, Asked, RecordedOptions
from gpuprep.untrusted import plaintext

MOST_NAMED = 2  # steps that --only names; for more steps, the whole provision is shorter and does the same
MOST_HOSTS = 60  # names in one command; of more, those of the batch that failed, or the pattern that was typed
VALUES = (("ssh_key", "--ssh-key"), ("store", "--store"))
FLAGS = (("accept_new_host_key", "--accept-new-host-key"), ("ask_become_pass", "--ask-become-pass"))
# Commands that a finding's remedy may name: words without a meaning to a shell, in backticks.
QUOTED = re.compile(r"`(gpuprep [\w .,:=/-]+)`")
GPU = re.compile(r"gpu ([0-9]+|[0-9a-f]+:[0-9a-f]+:[0-9a-f]+\.[0-9a-f]+)")
# how a remedy of drift begins if --fix repairs the finding
FIX = "`gpuprep drift HOST --profile PROFILE --fix` puts it back"
DRIVER = ("driver", "gpus")  # subjects of findings that `gpuprep doctor` explains
ON_HOSTS = ("provision", "plan", "tune", "validate", "drift", "rollback", "unprovision")
NO_PROFILE = ("drift last", "drift unschedule", "rollback", "unprovision")
# A run's id may come from another machine: only a plain name becomes the name of a file.
FILE_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,63}")


def again(record: RunRecord, verb: str, *more: str) -> str:
    return _line([record], verb, more)


def repair(records: Sequence[RunRecord], findings: Sequence[Finding]) -> str:
    """`findings` are those of `records` that did not pass."""
    by_role = [finding for finding in findings if finding.role]
    if not records or not by_role:
        return ""
    if all(finding.remedy.startswith(FIX) for finding in by_role):
        return _line(records, "drift", ("--fix",))
    names = {finding.role.removeprefix("gpu_") for finding in by_role}
    steps = [step for step in STEPS if step in names]
    if steps == ["tuning"]:
        return _line(records, "tune", ())
    return _line(records, "provision", _only(records[0], steps, whole=bool(names - set(STEPS))))


def same(records: Sequence[RunRecord]) -> str:
    """The command that made `records` again: for findings that no step of gpuprep repairs."""
    first = records[0]
    verb = "drift last" if first.command == "last" else first.command if first.command in ON_HOSTS else "validate"
    options = RecordedOptions.read(first.options)
    more = _listed("--only", options.probes or ()) if verb == "validate" else []
    if verb in ("provision", "unprovision", "rollback"):
        more = [*_chosen(first), *["--check"] * (options.check is True)]
    if verb == "validate" and first.command == verb:
        more += ["--quick"] * (options.quick is True) + ["--first-failure"] * (options.first_failure is True)
    return _line(records, verb, more)


def carried_out(records: Sequence[RunRecord]) -> str:
    """The command that does what the plans of these records say."""
    verb = records[0].command if records[0].command in ("tune", *NO_PROFILE) else "provision"
    return _line(records, verb, [] if verb == "tune" else _chosen(records[0]))


def report(record: RunRecord) -> str:
    asked = _asked(record)
    store = ["--store", asked.store] if asked.store else []
    return plaintext.command("gpuprep", "report", *store, about=record.run_id)


def expanded(text: str, record: RunRecord, subject: str) -> str:
    """`text` with the host and the options of the run in its commands; a command that names no HOST stays as it is.
    Where `subject` is a GPU, also its index, or its address on the bus if the driver gave it no index.

    Steps that only the machine's owner can take are in the words of the machine's cloud.
    """
    said = cloudmachine.addressed(text, record.after or record.before)
    if gpu := GPU.fullmatch(subject):
        said = said.replace("-i INDEX", f"-i {gpu[1]}")
    return QUOTED.sub(lambda found: f"`{_filled(found[1].split(), record)}`", said)


def filled(finding: Finding, record: RunRecord) -> Finding:
    """The finding with the host and the options of the run in its commands."""
    return replace(finding, remedy=expanded(finding.remedy, record, finding.subject))


@dataclass(frozen=True)
class Command:
    why: str
    line: str


def suggested(record: RunRecord) -> list[Command]:
    """A run of a record file has no host that could be asked again."""
    suggestions = []
    if record.profile and record.command in ON_HOSTS:
        bad = [finding for finding in findings_of(record) if finding.status in PROBLEMS]
        if line := repair([record], bad):
            suggestions.append(Command("repair it", line))
        if any(finding.subject in DRIVER for finding in bad) or (
            record.playbook and record.playbook.status == "failed"
        ):
            inventory = _option("-i", _asked(record).inventory)
            suggestions.append(
                Command(
                    "say what is wrong with the machine",
                    plaintext.command("gpuprep", "doctor", *inventory, about=record.host),
                )
            )
        suggestions.append(Command("measure and judge again", again(record, "validate")))
    suggestions.append(Command("all that was recorded", report_file(record, "json")))
    return suggestions


def report_file(record: RunRecord, style: str) -> str:
    """The command that writes this run into a file of the format `style`."""
    file = f"{record.run_id if FILE_NAME.fullmatch(record.run_id) else 'report'}.{style}"
    return plaintext.command("gpuprep", "report", "--format", style, "--output", file, about=record.run_id)


def _filled(words: list[str], record: RunRecord) -> str:
    if words[1:3] and words[1] in ON_HOSTS and "HOST" in words:
        verb = " ".join(words[1 : words.index("HOST")])
        rest = words[words.index("HOST") + 1 :]
        if rest[:1] == ["--profile"]:
            rest = rest[2:]
        return _line([record], verb, rest)
    named = [record.host if word == "HOST" else word for word in words]
    store = _asked(record).store
    return plaintext.command(*named, *(["--store", store] if store and "HOST" in words else []))


def _line(records: Sequence[RunRecord], verb: str, more: Sequence[str]) -> str:
    first = records[0]
    asked = _asked(first)
    named = list(dict.fromkeys(record.host for record in records))
    chosen: list[str] = []
    if len(named) > MOST_HOSTS and asked.inventory:
        named, chosen = list(asked.hosts), _option("--limit", asked.limit)  # as typed: it finds hosts that pass, too
        ends = [(record.verdict.status if record.verdict else None, record.exit_code) for record in records]
        if first.batch_id and all(ended.failed(*end) for end in ends):
            named, chosen = [], ["--batch", first.batch_id, "--failed"]
    words = ["gpuprep", *verb.split()]
    words += [*_option("-i", asked.inventory), *chosen]
    # A name that looks like an option comes after all options.
    late = any(name.startswith("-") for name in named)
    words += [] if late else named
    if verb not in NO_PROFILE:
        known = {_asked(record).profile or (record.profile.name if record.profile else "") for record in records}
        if len(known) == 1:  # of several, the inventory says which host has which
            words += _option("--profile", known.pop() or (None if verb == "plan" else "PROFILE"))  # `plan` proposes one
    words += more
    for key, flag in VALUES:
        words += _option(flag, getattr(asked, key)) if (verb, key) != ("plan", "store") else []
    words += [flag for key, flag in FLAGS if getattr(asked, key)]
    return plaintext.command(*words, *(["--", *named] if late else []))


def _option(flag: str, value: str | None) -> list[str]:
    if not value:
        return []
    return [f"{flag}{'=' if flag.startswith('--') else ''}{value}"] if value.startswith("-") else [flag, value]


def _only(record: RunRecord, steps: Sequence[str], *, whole: bool) -> list[str]:
    """The steps to run; if there are many, those that the run itself was given."""
    if steps and not whole and len(steps) <= MOST_NAMED:
        return ["--only", ",".join(steps)]
    return _chosen(record) if record.command == "provision" else []


def _chosen(record: RunRecord) -> list[str]:
    options = RecordedOptions.read(record.options)
    return [*_listed("--only", options.only), *_listed("--skip", options.skip)]


def _listed(flag: str, names: Sequence[str]) -> list[str]:
    return [flag, ",".join(names)] if names else []


def _asked(record: RunRecord) -> Asked:
    return RecordedOptions.read(record.options).asked
