"""One self-contained HTML page: opens offline, prints, dark and light, no script and nothing fetched.

page.html is the template of a run and fleet.html that of a fleet; both fill base.html, take common parts from
parts.html and use style.css. contents.py and fleet.py choose what is shown, the *_chart modules draw.
Jinja2 escapes all texts from hosts; drawings are made of escaped parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from gpuprep.records import RunRecord
from gpuprep.reports.html import fleet
from gpuprep.reports.html.contents import contents
from gpuprep.reports.readings import figure


def render(record: RunRecord) -> str:
    return _filled("page.html", contents(record))


def render_fleet(records: Sequence[RunRecord]) -> str:
    """Drift checks of several hosts as one page. `records` has one at least."""
    return _filled("fleet.html", fleet.contents(records))


def _filled(template: str, variables: dict[str, Any]) -> str:
    style = Markup(_file("style.css"))  # our own file, no words of a host in it
    return _environment().get_template(template).render(style=style, **variables)


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_file),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(figure=figure, sentence=_sentence)
    return environment


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _sentence(words: str) -> str:
    """A capital and a full stop; a letter that stands alone is the name of a dimension and stays small."""
    if words[1:2] == " ":
        return words + ("" if words.endswith(".") else ".")
    return words[:1].upper() + words[1:] + ("" if words.endswith(".") else ".")
