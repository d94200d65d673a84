"""The JSON documents of commands, beside the record itself: one dataclass each, and a JSON Schema made of it.

document(History(...)) ─► JSON with `schema_version` first. Words and names are those of a record: a verdict is
{"status", "summary"} and a profile {"name"} wherever a run is named.

To write schemas/*.schema.json again: python -m gpuprep.reports.documents
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuprep.performance.trend import Direction, Trend
from gpuprep.records import SCHEMA_VERSION, RunRecord, Source, Status
from gpuprep.records.schema import document_schema, write
from gpuprep.records.showable import strict_json
from gpuprep.reports import capacity
from gpuprep.reports.capacity import StreamLine
from gpuprep.reports.comparison import Comparison
from gpuprep.reports.text import outcome


@dataclass(frozen=True)
class VerdictLine:
    status: Status
    summary: str


@dataclass(frozen=True)
class ProfileName:
    name: str


@dataclass(frozen=True)
class HeadFigures:
    """The figures of a run that lists show; null: not measured. Of several GPUs the highest."""

    fp16_tflops: float | None
    bf16_tflops: float | None
    memory_gb_per_s: float | None
    video_fps: float | None
    video: str  # the series with these frames per second: "transcode h264 p4 1920x1080"


@dataclass(frozen=True)
class RunLine:
    """A run in a list. Names and words are those of a record."""

    run_id: str
    batch_id: str
    command: str
    host: str
    started_at: str
    ended_at: str
    source: Source
    exit_code: int
    profile: ProfileName | None
    verdict: VerdictLine | None
    result: str  # the word in lists and reports: the verdict's status, or REFUSED, FAILED, STOPPED, DONE, UNKNOWN
    error: str | None  # its first line
    failed: int  # findings that failed


@dataclass(frozen=True)
class ListedRun(RunLine):
    figures: HeadFigures | None


@dataclass(frozen=True)
class Point:
    started_at: str
    value: float


@dataclass(frozen=True)
class HostSeries:
    """The newest figures of one host under one name: what its sparkline shows."""

    host: str
    gpu_uuid: str
    probe: str
    versions: str
    figure: str
    points: tuple[Point, ...]  # oldest first


@dataclass(frozen=True)
class Runs:
    """provision, plan, tune, validate, drift, judge, report --batch: the records of all hosts."""

    runs: tuple[RunRecord, ...]
    exit_code: int


@dataclass(frozen=True)
class Capacity(Runs):
    """capacity: the records of all hosts, and the streams that their figures mean."""

    streams: tuple[StreamLine, ...]


@dataclass(frozen=True)
class What:
    what: str
    hint: str


@dataclass(frozen=True)
class Error:
    """Any command, where an error comes before there is a result."""

    error: What
    exit_code: int


@dataclass(frozen=True)
class History:
    """history"""

    runs: tuple[ListedRun, ...]
    series: tuple[HostSeries, ...]


@dataclass(frozen=True)
class HostStatus:
    host: str
    result: str | None  # the word of `run`; null: never checked
    age_seconds: float | None  # since `run` ended; null: never checked, or by a wrong clock
    run: RunLine | None  # the newest run that says how the host is
    last: RunLine | None  # the newest run of any kind: also a plan, a refusal, or one that was stopped
    also_called: tuple[str, ...] = ()  # other names of the same machine


@dataclass(frozen=True)
class Statuses:
    """status"""

    hosts: tuple[HostStatus, ...]  # the worst first
    unknown: tuple[str, ...]  # names that were asked for and have no run
    exit_code: int


@dataclass(frozen=True)
class Trends:
    """history trend"""

    host: str
    nights: int  # that were read
    nights_needed: int  # with figures of the same versions, for a trend
    percent: float
    direction: Direction
    verdict: VerdictLine  # DOWN is FAIL, STEADY is PASS
    trends: tuple[Trend, ...]
    exit_code: int


@dataclass(frozen=True)
class Compared:
    """compare"""

    one: RunLine
    two: RunLine
    comparison: Comparison


@dataclass(frozen=True)
class CertifiedRun:
    run_id: str
    started_at: str
    set_at: str | None  # null: not set by hand
    reason: str


@dataclass(frozen=True)
class BaselineFigure:
    gpu_uuid: str
    probe: str
    versions: str
    figure: str
    value: float
    run_id: str
    set_at: str


@dataclass(frozen=True)
class Baseline:
    """baseline show"""

    host: str
    also_called: tuple[str, ...]
    certified: CertifiedRun | None
    figures: tuple[BaselineFigure, ...]
    exit_code: int


@dataclass(frozen=True)
class BaselineSet:
    """baseline set"""

    host: str
    run_id: str
    before: str | None
    reason: str
    figures: int


@dataclass(frozen=True)
class BaselineCleared:
    """baseline clear"""

    host: str
    figures: int
    certified: bool


@dataclass(frozen=True)
class NameLine:
    name: str
    host: str
    gpu_uuids: tuple[str, ...]
    ssh_host_key: str
    seen_at: str
    by_hand: str


@dataclass(frozen=True)
class Names:
    """history names"""

    names: tuple[NameLine, ...]


@dataclass(frozen=True)
class Joined:
    """history join"""

    host: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Parted:
    """history part"""

    host: str
    apart_from: tuple[str, ...]


@dataclass(frozen=True)
class Pruned:
    """history prune"""

    before: str
    dry_run: bool
    runs: tuple[str, ...]
    log_folders: int


@dataclass(frozen=True)
class Keep:
    """history keep"""

    keep_days: int | None  # null: no run is deleted by itself, and the rest is said of 365 days
    file: str  # of the settings
    before: str
    runs: int
    older: int  # began before
    deletable: int  # of the older ones, those that nothing keeps


@dataclass(frozen=True)
class Forgotten:
    """history forget"""

    host: str
    runs: tuple[str, ...]
    log_folders: int


@dataclass(frozen=True)
class ProfileLine:
    name: str
    gpus: tuple[str, ...]
    description: str
    path: str


@dataclass(frozen=True)
class Profiles:
    """profiles list"""

    profiles: tuple[ProfileLine, ...]


@dataclass(frozen=True)
class Machine:
    name: str
    os: str
    gpus: tuple[str, ...]
    address: str
    port: int
    user: str
    identity_file: str
    known_hosts: str
    running: bool


@dataclass(frozen=True)
class Machines:
    """sim list"""

    machines: tuple[Machine, ...]


@dataclass(frozen=True)
class Explained:
    """explain; docs/explain.md names what is inside."""

    gpu: dict[str, Any] | None
    meant: tuple[str, ...]
    products: tuple[dict[str, Any], ...]
    attentions: tuple[dict[str, Any], ...]
    board: dict[str, Any] | None
    model: dict[str, Any] | None
    exit_code: int


# Name of the schema's file: (what the document is, its version).
DOCUMENTS: dict[str, tuple[Any, int]] = {
    "runs": (Runs, 1),
    "capacity": (Capacity, 1),
    "error": (Error, 1),
    "history": (History, 2),  # 1: verdict and profile were words
    "status": (Statuses, 1),
    "trend": (Trends, 2),  # 1: verdict was a word
    "compare": (Compared, 2),  # 1: verdict was a word
    "baseline-show": (Baseline, 1),
    "baseline-set": (BaselineSet, 1),
    "baseline-clear": (BaselineCleared, 1),
    "history-names": (Names, 1),
    "history-join": (Joined, 1),
    "history-part": (Parted, 1),
    "history-prune": (Pruned, 1),
    "history-keep": (Keep, 1),
    "history-forget": (Forgotten, 1),
    "profiles-list": (Profiles, 1),
    "sim-list": (Machines, 1),
    "explain": (Explained, 1),
}
VERSIONS = {kind: version for kind, version in DOCUMENTS.values()}


def document(made: Any, indent: int | None = 2) -> str:
    """One of these, or fields without a schema, as JSON."""
    if isinstance(made, Mapping):
        return strict_json({"schema_version": SCHEMA_VERSION, **made}, indent=indent)
    fields = {each.name: getattr(made, each.name) for each in dataclasses.fields(made)}
    return strict_json({"schema_version": VERSIONS[type(made)], **fields}, indent=indent)


def render(record: RunRecord) -> str:
    """One run; the document is described by gpuprep/records/record.schema.json."""
    return strict_json(record, indent=2)


def render_several(records: Sequence[RunRecord], exit_code: int) -> str:
    """The output of a command with --json: one form for one host and for many.

    Several hosts are on one line, because Python's encoder with indentation takes ten times as long.
    """
    counted = [record for record in records if record.command == "capacity"]
    streams = tuple(row for record in counted for row in capacity.lines(record))
    made = Capacity(tuple(records), exit_code, streams) if counted else Runs(tuple(records), exit_code)
    if len(records) == 1:
        return document(made)
    # Record by record, and joined once, with the last newline: the text of a fleet has a hundred megabytes, and the
    # plain values of a record take ten times the room of its JSON.
    begun, runs, ended = document(dataclasses.replace(made, runs=()), None).partition('"runs": [')
    pieces = [piece for record in records for piece in (", ", strict_json(record))]
    return "".join([begun, runs, *pieces[1:], ended, "\n"])


def of_record(record: RunRecord) -> RunLine:
    word, line = outcome(record)
    verdict = VerdictLine(record.verdict.status, record.verdict.summary) if record.verdict else None
    findings = record.verdict.findings if record.verdict else record.findings
    return RunLine(
        run_id=record.run_id,
        batch_id=record.batch_id,
        command=record.command,
        host=record.host,
        started_at=record.started_at,
        ended_at=record.ended_at,
        source=record.source,
        exit_code=record.exit_code,
        profile=ProfileName(record.profile.name) if record.profile else None,
        verdict=verdict,
        result=word,
        error=line if record.error else None,
        failed=sum(finding.status is Status.FAIL for finding in findings),
    )


def schema(name: str) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of one of DOCUMENTS."""
    kind, version = DOCUMENTS[name]
    return document_schema(kind, f"gpuprep {name}", version)


if __name__ == "__main__":
    write(Path(__file__).parent / "schemas", {each: schema(each) for each in DOCUMENTS})
