"""What changed between two profiles, as text and as Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuprep.reports.markdown import paragraph, plain, table
from gpuprep.trace.comparing import Changed, Comparison, Figure
from gpuprep.trace.document import Advice
from gpuprep.trace.formats.numbers import NOT_TOLD, milliseconds
from gpuprep.untrusted.plaintext import one_line

MOST_LINES = 10  # of ops and of kernels; -v and the JSON have all
NAME = 200


def text(found: Comparison, *, full: bool = False, width: int = 80) -> str:
    lines = [f"before: {one_line(found.before)}", f"after:  {one_line(found.after)}"]
    lines += [f"note: {one_line(remark)}" for remark in found.remarks]
    lines += ["", f"  {'':<28} {'before':>11} {'after':>11} {'change':>9}"]
    lines += [
        f"  {_named(one):<28} {_value(one.before):>11} {_value(one.after):>11} {_percent(one.change_percent):>9}"
        for one in found.figures
    ]
    for title, changed in (("Ops", found.ops), ("Kernels", found.kernels)):
        lines += _changes(title, changed, None if full else MOST_LINES, width)
    for title, advice in _advice(found):
        lines += ["", title]
        lines += [one_line(f"  {one.rule}: {one.problem}") for one in advice]
    return "\n".join(line.rstrip() for line in lines) + "\n"


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


def markdown(found: Comparison) -> str:
    parts = [f"# {plain(found.before)} and {plain(found.after)}"]
    parts += [paragraph(remark) for remark in found.remarks]
    rows = [
        (plain(_named(one)), _value(one.before), _value(one.after), _percent(one.change_percent))
        for one in found.figures
    ]
    parts.append(table(("", "before", "after", "change"), rows, ("before", "after", "change")))
    for title, changed in (("Ops", found.ops), ("Kernels", found.kernels)):
        if changed:
            heads = ("change (ms a step)", "before", "after", title)
            rows = [
                (_sign(one), _time(one.before_us), _time(one.after_us), plain(one_line(one.name, NAME)))
                for one in changed[:MOST_LINES]
            ]
            parts.append(f"## {title}\n\n{table(heads, rows, heads[:3])}")
    for title, advice in _advice(found):
        parts.append(f"## {title}")
        parts += [paragraph(f"{one.problem} {one.recommendation}") for one in advice]
    return "\n\n".join(parts) + "\n"


def _advice(found: Comparison) -> Iterator[tuple[str, Sequence[Advice]]]:
    for title, advice in (
        ("New recommendations", found.rules_new),
        ("Recommendations that are gone", found.rules_gone),
        ("Recommendations that stay", found.rules_kept),
    ):
        if advice:
            yield title, advice


def _named(one: Figure) -> str:
    return f"{one.name} ({one.unit})" if one.unit else one.name


def _value(value: float | None) -> str:
    return NOT_TOLD if value is None else f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"


def _percent(value: float | None) -> str:
    return NOT_TOLD if value is None else f"{value:+.1f} %"


def _time(us: float | None) -> str:
    return "-" if us is None else milliseconds(us)


def _sign(one: Changed) -> str:
    return f"{'+' if one.difference_us > 0 else ''}{milliseconds(one.difference_us)}"
