"""What changed between two profiles, as text and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuprep.reports.markdown import paragraph, plain, table
from gpuprep.trace.comparing import MACHINE, Changed, Comparison, Figure, JobComparison
from gpuprep.trace.document import Advice
from gpuprep.trace.formats.numbers import NOT_TOLD, milliseconds, ranks_in_words
from gpuprep.untrusted.plaintext import one_line

MOST_LINES = 10  # of ops and of kernels; -v and the JSON have all
NAME = 200


def text(comparison: Comparison | JobComparison, *, full: bool = False, width: int = 80) -> str:
    if isinstance(comparison, JobComparison):
        return _job_text(comparison, full, width)
    lines = [*_head(comparison), *_body(comparison, full, width)]
    for title, listed in _advice(comparison):
        lines += ["", title]
        lines += [f"  {one_line(f'{advice.rule}: {advice.problem}')}" for advice in listed]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _job_text(comparison: JobComparison, full: bool, width: int) -> str:
    lines = [*_head(comparison), *_figures(comparison.figures)]
    lines += ["", f"  {'step of each rank (ms)':<28} {'before':>11} {'after':>11} {'change':>9}"]
    lines += [_row(f"rank {rank.rank}", rank.step) for rank in comparison.ranks]
    for title, rows in _job_advice(comparison):
        lines += ["", title]
        lines += [f"  {one_line(f'{advice.rule} ({ranks}): {advice.problem}')}" for ranks, advice in rows]
    for rank in comparison.ranks:
        if not full and rank.rank != comparison.slowest_rank:
            continue
        name = f"Rank {rank.rank}" + (", the slowest" if rank.rank == comparison.slowest_rank else "")
        lines += ["", name, *(f"  note: {one_line(remark)}" for remark in rank.comparison.remarks)]
        lines += _body(rank.comparison, full, width)
        for title, each in _advice(rank.comparison) if full else ():
            lines += ["", f"{title}, rank {rank.rank}"]
            lines += [f"  {one_line(f'{advice.rule}: {advice.problem}')}" for advice in each]
    if not full and len(comparison.ranks) > 1:
        lines += ["", "-v shows each rank"]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _head(comparison: Comparison | JobComparison) -> list[str]:
    lines = [f"before: {one_line(comparison.before)}", f"after:  {one_line(comparison.after)}"]
    return lines + [f"note: {one_line(remark)}" for remark in comparison.remarks]


def _figures(figures: Sequence[Figure]) -> Iterator[str]:
    yield ""
    yield f"  {'':<28} {'before':>11} {'after':>11} {'change':>9}"
    for figure in figures:
        yield _row(_named(figure), figure)


def _row(name: str, figure: Figure) -> str:
    return f"  {name:<28} {_value(figure.before):>11} {_value(figure.after):>11} {_percent(figure.change_percent):>9}"


def _body(comparison: Comparison, full: bool, width: int) -> Iterator[str]:
    yield from _figures(comparison.figures)
    for title, changed in (("Ops", comparison.ops), ("Kernels", comparison.kernels)):
        yield from _changes(title, changed, None if full else MOST_LINES, width)


def _changes(title: str, changed: Sequence[Changed], most: int | None, width: int) -> Iterator[str]:
    if not changed:
        return
    shown = changed[:most]
    left = f", the largest {len(shown)} of {len(changed)} changes" if len(shown) < len(changed) else ""
    yield ""
    yield f"{title}, ms a step{left}"
    for one in shown:
        row = f"  {_sign(one):>10}  {_time(one.before_us):>10} > {_time(one.after_us):<10} {one_line(one.name, NAME)}"
        yield row if most is None or len(row) <= width else f"{row[: width - 1]}…"


def markdown(comparison: Comparison | JobComparison) -> str:
    parts = [f"# {plain(comparison.before)} and {plain(comparison.after)}"]
    parts += [paragraph(remark) for remark in comparison.remarks]
    parts.append(_figure_table([(_named(figure), figure) for figure in comparison.figures]))
    if isinstance(comparison, Comparison):
        parts += _change_tables(comparison)
        for title, listed in _advice(comparison):
            parts.append(f"## {title}")
            parts += [paragraph(f"{advice.problem} {advice.recommendation}") for advice in listed]
        return "\n\n".join(parts) + "\n"
    steps = _figure_table([(f"rank {rank.rank}", rank.step) for rank in comparison.ranks])
    parts.append(f"## Step of each rank (ms)\n\n{steps}")
    for title, rows in _job_advice(comparison):
        parts.append(f"## {title}")
        parts += [paragraph(f"{ranks}: {advice.problem} {advice.recommendation}") for ranks, advice in rows]
    for each in comparison.ranks:
        if each.rank == comparison.slowest_rank:
            parts.append(f"## Rank {each.rank}, the slowest")
            parts += [*map(paragraph, each.comparison.remarks), *_change_tables(each.comparison)]
    return "\n\n".join(parts) + "\n"


def _figure_table(figures: Sequence[tuple[str, Figure]]) -> str:
    rows = [
        (plain(name), _value(figure.before), _value(figure.after), _percent(figure.change_percent))
        for name, figure in figures
    ]
    return table(("", "before", "after", "change"), rows, ("before", "after", "change"))


def _change_tables(comparison: Comparison) -> Iterator[str]:
    for title, changed in (("Ops", comparison.ops), ("Kernels", comparison.kernels)):
        if changed:
            heads = ("change (ms a step)", "before", "after", title)
            rows = [
                (_sign(change), _time(change.before_us), _time(change.after_us), plain(one_line(change.name, NAME)))
                for change in changed[:MOST_LINES]
            ]
            yield f"## {title}\n\n{table(heads, rows, heads[:3])}"


def _advice(comparison: Comparison) -> Iterator[tuple[str, Sequence[Advice]]]:
    for title, advice in (
        ("New recommendations", comparison.rules_new),
        ("Recommendations that are gone", comparison.rules_gone),
        ("Recommendations that stay", comparison.rules_kept),
    ):
        if advice:
            yield title, advice


def _job_advice(comparison: JobComparison) -> Iterator[tuple[str, list[tuple[str, Advice]]]]:
    """Each rule once, with the ranks that it is about, and the words of the first of them."""
    for title, which in (
        ("New recommendations", "rules_new"),
        ("Recommendations that are gone", "rules_gone"),
        ("Recommendations that stay", "rules_kept"),
    ):
        by_text: dict[tuple[str, str], list[tuple[int, Advice]]] = {}
        for each in comparison.ranks:
            for advice in getattr(each.comparison, which):
                # Findings of the machine are several of one rule.
                key = advice.rule, advice.problem if advice.rule == MACHINE else ""
                by_text.setdefault(key, []).append((each.rank, advice))
        if by_text:
            yield title, [(ranks_in_words([rank for rank, _ in rows]), rows[0][1]) for rows in by_text.values()]


def _named(figure: Figure) -> str:
    return f"{figure.name} ({figure.unit})" if figure.unit else figure.name


def _value(value: float | None) -> str:
    return NOT_TOLD if value is None else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def _percent(value: float | None) -> str:
    return NOT_TOLD if value is None else f"{value:+.1f} %"


def _time(us: float | None) -> str:
    return "-" if us is None else milliseconds(us)


def _sign(change: Changed) -> str:
    return f"{'+' if change.difference_us > 0 else ''}{milliseconds(change.difference_us)}"
