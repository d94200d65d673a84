"""Several GPUs of one machine: are the video engines of each GPU as fast as those of the best? Pure."""

from __future__ import annotations

from collections.abc import Sequence

from gpuprep.checks.throughput.throughputsense import contradiction
from gpuprep.checks.throughput.throughputseries import Judged, positive
from gpuprep.records import Finding, Status

# Two healthy GPUs differ by a few per cent, although every further GPU is measured for a shorter time. 10 % is more.
WARN_PERCENT, FAIL_PERCENT = 10.0, 25.0
EXPECTED = f"less than {WARN_PERCENT:g} % below the best of its kind"
REMEDY = (
    "compare clocks and use of the engines of the two; if it stays when measured again, show the provider this report"
)


def findings(every: Sequence[Judged], disturbed: dict[int, str]) -> list[Finding]:
    """A finding for each series that several GPUs of one board have. `disturbed`: by position, why it was disturbed."""
    findings = []
    for place, judged in enumerate(every):
        twins = [other for other in every if _is_twin(judged, other) and _speed(other)]
        if twins and _speed(judged):
            findings.append(_against(judged, max(twins, key=_speed), disturbed.get(place, "")))
    return findings


def _is_twin(judged: Judged, other: Judged) -> bool:
    boards = [each.board.key if each.board else "" for each in (judged, other)]
    same = judged.key == other.key and judged.gpu.pci_device_id == other.gpu.pci_device_id and boards[0] == boards[1]
    named = judged.board is not None or judged.gpu.name == other.gpu.name
    return same and named and judged.gpu is not other.gpu


def _speed(judged: Judged) -> float:
    """The fps of a series; 0 if nothing was delivered or the figures are impossible."""
    best = judged.best
    return positive(best.fps) if best is not None and not contradiction(judged) else 0.0


def _against(judged: Judged, best: Judged, disturbed: str) -> Finding:
    mine, other = _speed(judged), _speed(best)
    percent = max(0.0, 100 * (1 - mine / other))
    prop, shown = "fps_against_best", f"{mine:.0f} fps, gpu {best.gpu.index} {other:.0f}"
    if percent < WARN_PERCENT:
        return Finding(judged.subject, prop, Status.PASS, EXPECTED, shown)
    why = f"these engines give {percent:.0f} % fewer frames than those of gpu {best.gpu.index}, which is the same board"
    if disturbed:
        return Finding(
            judged.subject, prop, Status.UNKNOWN, EXPECTED, shown, f"{why}, but {disturbed}", "measure again"
        )
    status = Status.FAIL if percent >= FAIL_PERCENT else Status.WARN
    return Finding(judged.subject, prop, status, EXPECTED, shown, why, REMEDY)
