"""How did a run end, in one word? The same word in every list, report, page, mail and metric; and the exit codes."""

from __future__ import annotations

from gpuprep.records import RunRecord, Status

EXIT_CODES = {Status.PASS: 0, Status.SKIP: 0, Status.WAIVED: 0, Status.WARN: 0, Status.FAIL: 1, Status.UNKNOWN: 3}
COULD_NOT_TELL = EXIT_CODES[Status.UNKNOWN]
# The word of an exit code that is not a verdict's: the run ended before its verdict, or with an error after it.
WITHOUT_VERDICT = {2: "REFUSED", 4: "FAILED", 130: "STOPPED"}
CHANGES = ("provision", "tune", "rollback", "unprovision")  # commands that change a host
ABOUT_HOSTS = (*CHANGES, "validate", "drift")  # commands whose runs may say how a host is
KILLED = "gpuprep was killed, or its computer stopped, before this run ended"  # the error of such a run
GOOD = ("PASS", "WARN", "SKIP")  # verdicts of a host that may be used
# Rows of hosts: a host that could not be checked comes first.
WORST_FIRST = ("FAILED", "FAIL", "UNKNOWN", "STOPPED", "REFUSED", "WARN", "DONE", "PASS", "SKIP")


def word(verdict: Status | None, exit_code: int) -> str:
    """The verdict of a run that ended with 0 or 1. Other exit codes have their own word or mean UNKNOWN.

    A run that passed and then ended with an error has the error's exit code: it is not PASS.
    """
    if exit_code not in (EXIT_CODES[Status.PASS], EXIT_CODES[Status.FAIL]):
        return WITHOUT_VERDICT.get(exit_code, Status.UNKNOWN.value)
    if verdict is None:
        return Status.UNKNOWN.value if exit_code else "DONE"
    return Status.UNKNOWN.value if verdict is Status.WAIVED else verdict.value  # findings are waived, runs are not


def failed(verdict: Status | None, exit_code: int) -> bool:
    """Whether a run of a batch has to be made again: it did not end well."""
    return word(verdict, exit_code) not in (*GOOD, "DONE")


def place(result: str) -> int:
    """The place of a word in rows of hosts, the worst first. A word that is not known counts as UNKNOWN."""
    return WORST_FIRST.index(result if result in WORST_FIRST else Status.UNKNOWN.value)


def status(record: RunRecord) -> Status:
    """The verdict of a check, for mail and metrics. It is UNKNOWN without a verdict or with an error."""
    return Status.UNKNOWN if record.error or record.verdict is None else record.verdict.status


def tells(record: RunRecord) -> bool:
    """Whether a run says how its host is. A plan, a refusal, and a run stopped before it changed anything do not."""
    if record.exit_code == 2 or record.options.get("check"):
        return False
    if record.exit_code == 130 and record.verdict is None:
        begun = record.playbook is not None and record.playbook.status != "not needed"
        return record.command in CHANGES and (begun or (record.error or "").startswith(KILLED))
    return record.verdict is not None or record.exit_code != 0
