"""How does a run look as a page? One self-contained HTML file: offline, in print, dark and light, without its script.

page.html is the template of a run and fleet.html that of a fleet; both fill base.html, take common parts from
parts.html and use style.css and script.js. contents.py and fleet.py choose what is shown, headline.py and bars.py the
first screen, the *_chart modules draw. Jinja2 escapes all texts from hosts; drawings are made of escaped parts. The
page forbids every script and style but these two, by their hashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from gpuprep.records import RunRecord
from gpuprep.reports import figures, taking
from gpuprep.reports.html import fleet
from gpuprep.reports.html.contents import contents
from gpuprep.reports.html.words import WORDS
from gpuprep.reports.readings import figure
from gpuprep.reports.templates import environment, policy_hash, with_code


def render(record: RunRecord) -> str:
    return _filled("page.html", contents(record))


def render_fleet(records: Sequence[RunRecord]) -> str:
    """Drift checks of several hosts as one page. `records` has one at least."""
    return _filled("fleet.html", fleet.contents(records))


def _filled(template: str, variables: dict[str, Any]) -> str:
    style, script = _file("style.css"), _file("script.js")
    if variables["banner"]:
        style += _file("simulated.css")
    return (
        _environment()
        .get_template(template)
        .render(
            style=Markup(style),  # our own files, no words of a host in them
            script=Markup(script),
            style_hash=policy_hash(style),
            script_hash=policy_hash(script),
            **variables,
        )
    )


@cache
def _environment() -> jinja2.Environment:
    made = environment(jinja2.FunctionLoader(_file))
    made.filters.update(figure=figure, percent=figures.percent, sentence=_sentence, with_code=with_code)
    made.filters.update(taking=taking.of_step, taking_in_all=taking.whole)
    made.globals.update(words=WORDS)
    return made


@cache
def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _sentence(words: str) -> str:
    """A capital and a full stop; a letter that stands alone is the name of a dimension and stays small."""
    if words[1:2] == " ":
        return words + ("" if words.endswith(".") else ".")
    return words[:1].upper() + words[1:] + ("" if words.endswith(".") else ".")
