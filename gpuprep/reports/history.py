"""Rows and lines for commands on the store: a comparison, a host's baseline, its trends. Never judges."""

from __future__ import annotations

from collections.abc import Sequence

from gpuprep.performance.trend import FEWEST_NIGHTS, Direction, Trend
from gpuprep.records import RunRecord, Source, Status
from gpuprep.records.baseline import Baseline
from gpuprep.records.findings import DONE
from gpuprep.records.showable import SIMULATED
from gpuprep.reports.comparison import Comparison, FigureChange
from gpuprep.reports.text import outcome

Rows = list[tuple[str, ...]]

# Columns of a text beside another one.
WIDEST = 60
# Figures that differ by less count as equal: two runs of one machine do.
ALIKE_PERCENT = 1.0
UUID_SHOWN = 12
BARS = "▁▂▃▄▅▆▇█"
LOW = 0.8
NO_FIGURES = "no baseline figures: the first run that passes sets them, on a real GPU"


def trend_table(
    host: str, trends: Sequence[Trend], nights: int, percent: float, *, whole: bool
) -> tuple[str, Rows, list[str]]:
    """A headline, a table, and notes.

    Without `whole`, steady figures are only counted, figures with too few nights share a row for each probe, and of
    superseded figures only those that fell are shown.
    """
    first, last = min(trend.first for trend in trends), max(trend.last for trend in trends)
    current = [trend for trend in trends if not trend.superseded]
    old = len(trends) - len(current)
    count = {direction: sum(trend.direction is direction for trend in current) for direction in Direction}
    counted = [f"{count[direction]} {direction.value}" for direction in Direction if count[direction]]
    counts_text = ", ".join([*counted, f"{old} superseded"] if old else counted)
    head = f"{host}: {len(trends)} figures of the last {nights} nights ({first} to {last}): {counts_text}"
    if current and count[Direction.UNKNOWN] == len(current):
        most = max(trend.nights for trend in current)
        head += f"; {most} of {FEWEST_NIGHTS} nights that a trend needs"
    quiet = {False: [Direction.STEADY], True: [Direction.STEADY, Direction.UNKNOWN]}
    shown = [trend for trend in trends if whole or trend.direction not in quiet[trend.superseded]]
    alone = [trend for trend in shown if whole or trend.direction is not Direction.UNKNOWN]
    rows: Rows = [("RESULT", "GPU", "PROBE", "FIGURE", "NIGHTS", "NEWEST", "LOSS", "A WEEK", "P")] if shown else []
    rows += [
        (
            f"superseded ({trend.direction.value})" if trend.superseded else trend.direction.value,
            trend.gpu_uuid if whole else trend.gpu_uuid[:UUID_SHOWN],
            trend.probe,
            trend.figure,
            _nights(trend),
            f"{trend.newest:.4g}",
            "" if trend.loss_percent is None else f"{trend.loss_percent:.1f} %",
            "" if trend.percent_per_week is None else f"{trend.percent_per_week:+.2f} %",
            "" if trend.p is None else f"{trend.p:.2g}",
        )
        for trend in alone
    ]
    rows += _too_few([trend for trend in shown if trend not in alone])
    notes = []
    if count[Direction.UNKNOWN]:
        notes.append(f"UNKNOWN: measured in fewer than {FEWEST_NIGHTS} nights with the same versions")
    if count[Direction.DOWN]:
        notes.append(f"DOWN: falls by more than {percent:g} %, and the fall is not by chance (p below 0.01)")
    if old:
        notes.append("superseded: its versions were replaced since, or it is no longer measured; does not count")
    if any(trend.source is Source.SIMULATED for trend in trends):
        notes.append(SIMULATED)
    return head, rows, notes


def _nights(trend: Trend) -> str:
    """The number of nights; if there are too few, also how many a trend needs."""
    return f"{trend.nights} of {FEWEST_NIGHTS}" if trend.nights < FEWEST_NIGHTS else str(trend.nights)


def _too_few(trends: Sequence[Trend]) -> Rows:
    """A row for each probe and number of nights: 49 figures without a trend need only one line."""
    groups: dict[tuple[str, str], list[Trend]] = {}
    for trend in trends:
        groups.setdefault((trend.probe, _nights(trend)), []).append(trend)
    rows: Rows = []
    for (probe, nights), of in groups.items():
        gpus = list(dict.fromkeys(trend.gpu_uuid for trend in of))
        gpu = gpus[0][:UUID_SHOWN] if len(gpus) == 1 else f"{len(gpus)} GPUs"
        trend = of[0]
        what, newest = (trend.figure, f"{trend.newest:.4g}") if len(of) == 1 else (f"{len(of)} figures", "")
        rows.append((Direction.UNKNOWN.value, gpu, probe, what, nights, newest, "", "", ""))
    return rows


def trend_summary(trends: Sequence[Trend]) -> str:
    """ "1 DOWN, 2 STEADY of 3 figures", superseded ones not counted."""
    current = [trend for trend in trends if not trend.superseded]
    counts = [(direction.value, sum(trend.direction is direction for trend in current)) for direction in Direction]
    counted = ", ".join(f"{count} {word}" for word, count in counts if count)
    return f"{counted} of {len(current)} figures" if current else "no figures"


def sparkline(values: Sequence[float]) -> str:
    """One character for each figure; "" for fewer than two. The lowest is LOW of the highest figure, or less.

    So a change of a few per cent is visible, and noise is not.
    """
    if len(values) < 2:
        return ""
    high = max(values)
    low = min(*values, LOW * high)
    steps = len(BARS) - 1
    return "".join(BARS[round(steps * (value - low) / (high - low))] if high > low else BARS[-1] for value in values)


def baseline_table(figures: Baseline) -> Rows:
    if not figures:
        return []
    rows: Rows = [("GPU", "PROBE", "FIGURE", "VALUE", "RUN", "SET", "VERSIONS")]
    return rows + [
        (
            key.gpu_uuid[:UUID_SHOWN],
            key.probe,
            name,
            f"{baseline.value:.4g}",
            baseline.run_id,
            baseline.set_at[:10],
            key.versions,
        )
        for key, named in figures.items()
        for name, baseline in named.items()
    ]


# In the words of the page, whose two runs are "first" and "second".
ONLY_IN = {"only in one": "only in the first", "only in two": "only in the second"}


def compared_run(which: str, record: RunRecord) -> tuple[str, ...]:
    word, _ = outcome(record)
    simulated = "simulated" if record.source is Source.SIMULATED else ""
    return (which, record.run_id, record.command, record.host, record.started_at, word, simulated)


def facts_table(comparison: Comparison) -> Rows:
    return [(change.fact, _short(change.one), "►", _short(change.two)) for change in comparison.facts]


def findings_table(comparison: Comparison, *, whole: bool) -> tuple[Rows, int]:
    """The changed findings, and how many are left out: without `whole`, those that only one run had and that passed."""
    quiet = (None, *DONE)
    shown = [
        change
        for change in comparison.findings
        if whole or not change.kind.startswith("only in") or not {change.one, change.two} <= set(quiet)
    ]
    rows: Rows = [
        (
            ONLY_IN.get(change.kind, change.kind),
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
    return rows, len(comparison.findings) - len(shown)


def figures_table(comparison: Comparison, *, whole: bool) -> tuple[Rows, int]:
    """The figures that differ, or with `whole` all figures; and how many are left out."""
    shown = [change for change in comparison.figures if whole or abs(change.percent) >= ALIKE_PERCENT]
    return [_figure(change) for change in shown], len(comparison.figures) - len(shown)


def not_compared(comparison: Comparison) -> list[str]:
    """Sentences: which figures were not compared, and why; GPUs with the same reason together."""
    groups: dict[tuple[str, str], list[str]] = {}
    for reason in comparison.not_compared:
        groups.setdefault((reason.probe, reason.words), []).append(reason.gpu)
    lines = []
    for (probe, words), gpus in groups.items():
        who = ", ".join([gpus[0], *(gpu.removeprefix("gpu ") for gpu in gpus[1:])])
        named = f"{who} {probe}".strip()
        lines.append(f"{named}: {words}" if named else words)
    return lines


def _figure(change: FigureChange) -> tuple[str, ...]:
    percent = f"{change.percent:+.1f} %"
    return (change.gpu, change.probe, change.figure, f"{change.one:.4g}", "►", f"{change.two:.4g}", percent)


def _word(status: Status | None) -> str:
    return status.value if status else "-"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= WIDEST else f"{line[: WIDEST - 1]}…"
