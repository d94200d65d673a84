"""The table of docs/traces.md, "Own traces": what each recommendation gained, and what was estimated from the trace.

To write it again after a rule has changed: PYTHONPATH=.:tests/traces python tests/traces/pairs_table.py
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

from gpuprep.trace.opening import open_trace

RECORDED = Path(__file__).parent / "recorded"
DOCS = Path(__file__).parents[2] / "docs" / "traces.md"
HEAD = (
    "| rule | what was changed | step before | step after | gain, measured | gain, estimated |\n"
    "|---|---|---:|---:|---:|---:|\n"
)


@dataclass(frozen=True)
class Row:
    rule: str
    change: str
    before: float  # ms a step, without a profiler, as the next two
    after: float
    measured: float
    estimated: float | None  # of the trace before; None: the rule is silent or tells no gain

    def __str__(self) -> str:
        told = "–" if self.estimated is None else f"{self.estimated:.2f} ms"
        return (
            f"| `{self.rule}` | {self.change} | {self.before:.2f} ms | {self.after:.2f} ms | {self.measured:.2f} ms |"
            f" {told} |"
        )


def rows() -> list[Row]:
    manifest = json.loads((RECORDED / "manifest.json").read_text())
    found = []
    for pair in manifest["pairs"]:
        before, after = (manifest["cases"][pair[which]] for which in ("before", "after"))
        advice = {one.rule: one for one in open_trace(RECORDED / before["file"]).document.advice}
        said = advice.get(pair["rule"])
        found.append(
            Row(
                rule=pair["rule"],
                change=f"{pair['before']}: {pair['change']}",
                before=before["step_ms"]["median"],
                after=after["step_ms"]["median"],
                measured=pair["gain_ms"],
                estimated=said.gain.us / 1000 if said and said.gain else None,
            )
        )
    return found


def table(found: list[Row]) -> str:
    return HEAD + "".join(f"{row}\n" for row in found)


def in_docs() -> re.Match[str]:
    """The table as it stands there."""
    there = re.search(re.escape(HEAD) + r"(\|.*\|\n)+", DOCS.read_text(encoding="utf-8"))
    assert there, f"no such table in {DOCS.name}"
    return there


if __name__ == "__main__":
    text = DOCS.read_text(encoding="utf-8")
    DOCS.write_text(text.replace(in_docs()[0], table(rows())), encoding="utf-8")
