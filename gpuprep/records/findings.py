"""The findings of a record, and groups of their statuses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuprep.records import Finding, RunRecord, Status

PROBLEMS = (Status.FAIL, Status.UNKNOWN, Status.WARN)  # what counts against a host, worst first
GRAVEST_FIRST = (*PROBLEMS, Status.PASS, Status.SKIP, Status.WAIVED)  # the order of findings and of their counts
DONE = (Status.PASS, Status.SKIP)  # nothing is to be done about it; WAIVED is in neither
# What findings of one status are about, the gravest first: the GPUs themselves, what makes them usable, how fast they
# are, the software on top. Other subjects (host, agent, apt ...) come last.
SUBJECTS = (
    ("gpus", "gpu"), ("driver", "kernel"), ("speed", "gemm", "bandwidth", "nccl", "transcode", "throughput"),
    ("cuda", "cudnn", "cupti", "ffmpeg", "ffprobe"),
)  # fmt: skip


def of_figures(record: RunRecord) -> bool:
    """Whether the record has judged figures from elsewhere, so that its host cannot be measured again."""
    return record.command == "judge" and record.before is None and record.after is None


def findings_of(record: RunRecord) -> tuple[Finding, ...]:
    """The findings of the verdict, worst first; without a verdict those of the plan."""
    return record.verdict.findings if record.verdict else record.findings


def need_reboot(findings: Iterable[Finding]) -> bool:
    """Whether a finding that is neither passed nor waived needs a restart of the machine."""
    return any(finding.reboot and finding.status in PROBLEMS for finding in findings)


def in_order(findings: Sequence[Finding], statuses: Iterable[Status]) -> list[Finding]:
    """The findings with one of `statuses`, in the order of `statuses`, and of one status the gravest first."""
    gravest_first = sorted(findings, key=lambda finding: weight(finding.subject, finding.role))
    return [finding for status in statuses for finding in gravest_first if finding.status is status]


def weight(subject: str, role: str) -> int:
    """Sort key: a higher weight is read later. Settings of a GPU come after the GPU: it works without them."""
    if role == "gpu_tuning":
        return len(SUBJECTS)
    thing = subject.partition(" ")[0]
    return next((place for place, things in enumerate(SUBJECTS) if thing in things), len(SUBJECTS))
