"""The tiles of the first screen: half-precision TFLOPS, memory, video streams, checks. What is not known is UNKNOWN."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gpuprep.records import Finding, RunRecord, Status
from gpuprep.records.findings import findings_of
from gpuprep.reports import causes, measured
from gpuprep.reports.html import bars
from gpuprep.reports.html.bars import Bar
from gpuprep.reports.measured import Series
from gpuprep.reports.readings import probe

UNKNOWN = Status.UNKNOWN.value
HALVES = ("BF16", "FP16")  # data types of training and inference, with sums in FP32
COPY = "device copy"
# The work that most hosts with video engines are for comes first.
WORK = ("transcode", "encode", "decode")
JUDGED = ("provision", "validate", "judge")  # commands whose page misses a figure that was not measured


@dataclass(frozen=True)
class Tile:
    name: str
    value: str
    unit: str = ""
    what: tuple[str, ...] = ()
    word: str = ""  # a status: the value is that word
    bar: Bar | None = field(default=None)


def tiles(record: RunRecord) -> list[Tile]:
    """Of a run that judged nothing and measured nothing there are none; a check of drift has those that it measured."""
    if not (record.verdict or record.measurements):
        return []
    figure_tiles = [_halves(record), _memory(record), _streams(record)]
    if record.command not in JUDGED:
        figure_tiles = [tile for tile in figure_tiles if tile.word != UNKNOWN]
    return [*figure_tiles, *_checks(findings_of(record))]


def _halves(record: RunRecord) -> Tile:
    rows = [row for row in bars.products(record).rows if row.name in HALVES]
    name = "half precision"
    if not rows:
        return Tile(name, UNKNOWN, "", (_why(record, "gemm", "no product in FP16 or BF16 was measured"),), UNKNOWN)
    best = max(rows, key=lambda row: float(row.value))
    others = [f"{row.name} {row.value}" for row in rows if row is not best]
    what = (best.comparison, ", ".join(others), best.detail)
    return Tile(f"{best.name}, best product", best.value, best.unit, what, bar=best)


def _memory(record: RunRecord) -> Tile:
    rows = list(bars.memory(record).rows)
    best = next((row for row in rows if row.name == COPY), rows[0] if rows else None)
    if best is None:
        return Tile("memory", UNKNOWN, "", (_why(record, "bandwidth", "no bandwidth was measured"),), UNKNOWN)
    others = [f"{row.name} {row.value}" for row in rows if row is not best and " to " in row.name]
    return Tile(
        f"memory, {best.name}", best.value, best.unit, (best.comparison, ", ".join(others), best.detail), bar=best
    )


def _streams(record: RunRecord) -> Tile:
    every = measured.throughputs(record)
    charts = bars.streams(record)
    if not charts:
        return _no_streams(record, every)
    chart = charts[0]
    best = min(chart.rows, key=_rank)
    others = [f"{row.name} {row.value}" for row in chart.rows if row is not best and row.name.split()[0] in WORK]
    name = f"{best.name}: {chart.title.removeprefix('Video: ')}"
    lacks = _lacks(record, every)
    shown = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
    return Tile(name, best.value, "", (best.comparison, shown, lacks, best.detail), bar=best)


def _rank(row: Bar) -> tuple[int, int]:
    kind = row.name.partition(" ")[0]
    return WORK.index(kind) if kind in WORK else len(WORK), -int(row.value)


def _no_streams(record: RunRecord, every: Sequence[Series]) -> Tile:
    """None, where the GPU has no engine for any series; else nobody knows."""
    if every and all(series.status is Status.SKIP for series in every):
        return Tile("video streams", "none", "", (_lacks(record, every) or "every series was skipped",), "SKIP")
    return Tile("video streams", UNKNOWN, "", (no_series(record),), UNKNOWN)


def _lacks(record: RunRecord, every: Sequence[Series]) -> str:
    """Why the most series were skipped: "encode: this GPU has no NVENC"."""
    of = causes.of_subjects(record)
    reasons: Counter[tuple[str, str]] = Counter()
    for series in every:
        group = of.get(series.subject)
        if group and series.status is Status.SKIP:
            reasons[series.kind, group.cause] += 1
    (most,) = reasons.most_common(1) or [(("", ""), 0)]
    return f"{most[0][0]}: {most[0][1]}" if most[1] else ""


def no_series(record: RunRecord) -> str:
    """Why there is no figure of the video engines."""
    return _why(record, "throughput", "no series gave a figure")


def _why(record: RunRecord, name: str, otherwise: str) -> str:
    """Why there is no figure of this probe."""
    missing = dict(measured.unanswered(record)).get(name)
    if missing:
        return f"{name}: {missing.reason.replace('_', ' ')}" + (f", {missing.detail}" if missing.detail else "")
    return otherwise if probe(record, name) else f"the probe {name} did not run"


def _checks(findings: Iterable[Finding]) -> list[Tile]:
    counts = Counter(finding.status for finding in findings)
    judged = sum(counts.values()) - counts[Status.SKIP] - counts[Status.WAIVED]
    if not judged:
        return []
    rest = [f"{counts[status]} {status.value}" for status in Status if status is not Status.PASS and counts[status]]
    passed = counts[Status.PASS]
    bar = Bar("checks", "", str(passed), "", 100.0 * passed / judged)
    return [Tile("checks passed", str(passed), f"of {judged}", (", ".join(rest),), bar=bar)]
