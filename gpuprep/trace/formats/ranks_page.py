"""The ranks of a job as one HTML page without scripts, with links to the page of each rank."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Protocol

import jinja2
from markupsafe import Markup

from gpuprep.trace.formats import ranks
from gpuprep.trace.formats.numbers import cell
from gpuprep.trace.ranks import RanksDocument
from gpuprep.untrusted.plaintext import visible

STYLE = """
:root { color-scheme: light dark; font: 15px/1.45 system-ui, sans-serif; }
body { margin: 0 auto; max-width: 90rem; padding: 1rem; overflow-wrap: anywhere; }
.table { overflow-x: auto; }
table { border-collapse: collapse; }
th, td { padding: .25rem .6rem; text-align: left; border-bottom: 1px solid #8886; white-space: nowrap; }
td.number, th.number { text-align: right; font-variant-numeric: tabular-nums; }
"""
TEMPLATE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src '{{ hash }}'; img-src data:; base-uri
'none'; form-action 'none'"><meta name="referrer" content="no-referrer"><link rel="icon" href="data:,">
<title>{{ job }} - gpuprep trace</title><style>{{ style }}</style></head><body>
<main><h1>{{ job }}</h1>
{% for line in head %}<p>{{ line }}</p>
{% endfor %}{% for one in left_out %}<p>left out: {{ one.file }}: {{ one.why }}</p>
{% endfor %}<h2>Profiles</h2><ul>
{% for name, file in pages %}<li><a href="{{ file }}">{{ name }}</a></li>
{% endfor %}</ul>
{% for sheet in sheets if sheet.rows %}<h2>{{ sheet.title }}</h2>
<div class="table" tabindex="0" role="region" aria-label="{{ sheet.title }}"><table><thead><tr>
{% for title in sheet.heads %}<th scope="col">{{ title }}</th>{% endfor %}</tr></thead><tbody>
{% for row in sheet.rows %}<tr>{% for text, number in row %}<td{% if number %} class="number"{% endif %}>{{ text }}</td>
{%- endfor %}</tr>
{% endfor %}</tbody></table></div>
{% endfor %}</main></body></html>
"""
MOST_ROWS = 500


class LeftOut(Protocol):
    @property
    def file(self) -> str: ...
    @property
    def why(self) -> str: ...


def render(found: RanksDocument, left_out: Sequence[LeftOut], pages: Sequence[tuple[str, str]]) -> str:
    """`pages`: (name, address)."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    return environment.from_string(TEMPLATE).render(
        job=visible(found.job),
        head=[visible(line) for line in ranks.head(found)],
        left_out=left_out,
        pages=[(visible(name), address) for name, address in pages],
        sheets=list(_sheets(found)),
        style=Markup(STYLE),  # our own; no word of a profile is in it
        hash=f"sha256-{digest}",
    )


def _sheets(found: RanksDocument) -> list[dict[str, object]]:
    made = []
    for one in ranks.sheets(found):
        units = [column.unit for column in one.columns]
        rows = [
            [(visible(cell(value, unit)), not isinstance(value, str)) for value, unit in zip(row, units, strict=True)]
            for _, row in zip(range(MOST_ROWS), one.rows, strict=False)
        ]
        heads = [
            f"{column.title} ({'ms' if column.unit == 'us' else column.unit})" if column.unit else column.title
            for column in one.columns
        ]
        made.append({"title": one.title, "heads": heads, "rows": rows})
    return made
