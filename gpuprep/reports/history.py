"""Rows and lines for commands on the store: a comparison, a host's baseline, its trends. Never judges."""

from __future__ import annotations

from collections.abc import Sequence

from gpuprep.performance.trend import FEWEST_NIGHTS, Direction, Trend
from gpuprep.records import RunRecord, Source, Status
from gpuprep.records.baseline import Baseline
from gpuprep.records.findings import DONE
from gpuprep.reports.comparison import Comparison, FigureChange
from gpuprep.reports.text import SIMULATED, outcome

Rows = list[tuple[str, ...]]

# Of a text beside another one.
WIDEST = 60
# Figures that differ by less are alike: two runs of one machine do.
ALIKE_PERCENT = 1.0
UUID_SHOWN = 12
NO_FIGURES = "no baseline figures: the first run that passes sets them, on a real GPU"


def trend_table(
    host: str, found: Sequence[Trend], nights: int, percent: float, *, whole: bool
) -> tuple[str, Rows, list[str]]:
    """A headline, a table, and notes.

    Without `whole`, steady figures are only counted, and so are superseded figures that did not fall.
    """
    first, last = min(one.first for one in found), max(one.last for one in found)
    current = [one for one in found if not one.superseded]
    old = len(found) - len(current)
    count = {direction: sum(one.direction is direction for one in current) for direction in Direction}
    counted = [f"{count[direction]} {direction.value}" for direction in Direction if count[direction]]
    told = ", ".join([*counted, f"{old} superseded"] if old else counted)
    head = f"{host}: {len(found)} figures of the last {nights} nights ({first} to {last}): {told}"
    quiet = {False: [Direction.STEADY], True: [Direction.STEADY, Direction.UNKNOWN]}
    shown = [one for one in found if whole or one.direction not in quiet[one.superseded]]
    rows: Rows = [("RESULT", "GPU", "PROBE", "FIGURE", "NIGHTS", "NEWEST", "LOSS", "A WEEK", "P")] if shown else []
    rows += [
        (
            f"superseded ({one.direction.value})" if one.superseded else one.direction.value,
            one.gpu_uuid if whole else one.gpu_uuid[:UUID_SHOWN],
            one.probe,
            one.figure,
            str(one.nights),
            f"{one.newest:.4g}",
            "" if one.loss_percent is None else f"{one.loss_percent:.1f} %",
            "" if one.percent_per_week is None else f"{one.percent_per_week:+.2f} %",
            "" if one.p is None else f"{one.p:.2g}",
        )
        for one in shown
    ]
    notes = []
    if count[Direction.UNKNOWN]:
        notes.append(f"UNKNOWN: measured in fewer than {FEWEST_NIGHTS} nights with the same versions")
    if count[Direction.DOWN]:
        notes.append(f"DOWN: falls in a way that chance makes rarer than 1 in 100, and by more than {percent:g} %")
    if old:
        notes.append("superseded: its versions were replaced since, or it is no longer measured; does not count")
    if any(one.source is Source.SIMULATED for one in found):
        notes.append(SIMULATED)
    return head, rows, notes


def baseline_table(figures: Baseline) -> Rows:
    if not figures:
        return []
    rows: Rows = [("GPU", "PROBE", "FIGURE", "VALUE", "RUN", "SET", "VERSIONS")]
    return rows + [
        (key.gpu_uuid[:UUID_SHOWN], key.probe, name, f"{one.value:.4g}", one.run_id, one.set_at[:10], key.versions)
        for key, named in figures.items()
        for name, one in named.items()
    ]


def compared_run(which: str, record: RunRecord) -> tuple[str, ...]:
    word, _ = outcome(record)
    simulated = "simulated" if record.source is Source.SIMULATED else ""
    return (which, record.run_id, record.command, record.host, record.started_at, word, simulated)


def facts_table(found: Comparison) -> Rows:
    return [(change.fact, _short(change.one), "►", _short(change.two)) for change in found.facts]


def findings_table(found: Comparison, *, whole: bool) -> tuple[Rows, int]:
    """The changed findings, and how many are left out: without `whole`, those that only one run had and that passed."""
    quiet = (None, *DONE)
    shown = [
        change
        for change in found.findings
        if whole or not change.kind.startswith("only in") or not {change.one, change.two} <= set(quiet)
    ]
    rows: Rows = [
        (
            change.kind,
            change.key,
            _word(change.one),
            "►",
            _word(change.two),
            _short(change.actual_one),
            "►" if change.actual_one or change.actual_two else "",
            _short(change.actual_two),
        )
        for change in shown
    ]
    return rows, len(found.findings) - len(shown)


def figures_table(found: Comparison, *, whole: bool) -> tuple[Rows, int]:
    """The figures that differ, or with `whole` all figures; and how many are left out."""
    shown = [change for change in found.figures if whole or abs(change.percent) >= ALIKE_PERCENT]
    return [_figure(change) for change in shown], len(found.figures) - len(shown)


def _figure(change: FigureChange) -> tuple[str, ...]:
    percent = f"{change.percent:+.1f} %"
    return (change.gpu, change.probe, change.figure, f"{change.one:.4g}", "►", f"{change.two:.4g}", percent)


def _word(status: Status | None) -> str:
    return status.value if status else "-"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= WIDEST else f"{line[: WIDEST - 1]}…"
