"""How did a run end, in one word? The same word in every list, report and page."""

from __future__ import annotations

from gpuprep.records import Status

WITHOUT_VERDICT = {0: "DONE", 2: "REFUSED", 4: "FAILED", 130: "STOPPED"}  # by exit code
JUDGED = (0, 1, 3)  # exit codes of a verdict; the others say that a run ended before it or with an error


def word(verdict: Status | None, exit_code: int) -> str:
    """The verdict, or what the exit code says."""
    if verdict is not None and exit_code in JUDGED:
        return verdict.value
    return WITHOUT_VERDICT.get(exit_code, Status.UNKNOWN.value)
