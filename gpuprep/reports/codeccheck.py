"""What an ffmpeg command lacks, as text and as one JSON document."""

from __future__ import annotations

from collections import Counter

from gpuprep.checks.ffmpegcommand import SPOKEN
from gpuprep.checks.ffmpegneeds import Checked
from gpuprep.records import Status
from gpuprep.reports import documents
from gpuprep.untrusted.plaintext import one_line


def as_text(checked: Checked) -> str:
    """Missing parts first, then unknown ones, then the rest in one line; the verdict is last."""
    build = f"FFmpeg {checked.version}" if checked.version else "FFmpeg"
    licence = f", {checked.licence}" if checked.licence else ""
    lines = [f"{build}{licence}, of {checked.about}{' (SIMULATED)' if checked.simulated else ''}"]
    for status in (Status.FAIL, Status.UNKNOWN):
        for answer in (answer for answer in checked.answers if answer.status is status):
            lines.append(f"{status.value:<8}{one_line(f'{answer.title}: {answer.why} ({answer.need.where})')}")
            if answer.remedy:
                lines.append(f"        -> {one_line(answer.remedy)}")
    passed = [answer for answer in checked.answers if answer.status is Status.PASS]
    if passed:
        kinds: dict[str, list[str]] = {}
        for answer in passed:
            kinds.setdefault(SPOKEN.get(answer.need.kind, answer.need.kind), []).append(answer.need.name)
        passed_checks = "; ".join(f"{kind} {', '.join(names)}" for kind, names in kinds.items())
        lines.append(f"PASS    {passed_checks}")
    lines += [f"note: {one_line(note)}" for note in checked.asked.notes]
    lines.append(_verdict(checked))
    return "\n".join(lines) + "\n"


def _verdict(checked: Checked) -> str:
    """The last line: "FAIL    3 of 8 checks failed: FFmpeg would stop, or not do what the command says"."""
    count = Counter(answer.status for answer in checked.answers)
    total = len(checked.answers)
    if count[Status.FAIL]:
        return (
            f"FAIL    {count[Status.FAIL]} of {total} checks failed: FFmpeg would stop, or not do what the command says"
        )
    if count[Status.UNKNOWN]:
        return f"UNKNOWN {count[Status.UNKNOWN]} of {total} checks could not be made"
    return f"PASS    all {total} parts that the command needs are present and fit together"


def as_json(checked: Checked) -> str:
    document = {
        "about": checked.about,
        "ffmpeg": checked.version or None,
        "licence": checked.licence or None,
        "source": "simulated" if checked.simulated else "measured",
        "needs": [
            {
                "kind": answer.need.kind, "name": answer.need.name, "where": answer.need.where,
                "status": answer.status.value,
                "why": answer.why or None, "remedy": answer.remedy or None,
            }
            for answer in checked.answers
        ],
        "notes": checked.asked.notes,
        "exit_code": checked.exit_code,
    }  # fmt: skip
    return documents.document(document)
