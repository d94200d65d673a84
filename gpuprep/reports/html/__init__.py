"""How does a run look as a page? One self-contained HTML file: offline, in print, dark and light, without its script.

page.html is the template of a run and fleet.html that of a fleet; both fill base.html, take common parts from
parts.html and use style.css and script.js. contents.py and fleet.py choose what is shown, bars.py the
first screen, charts.py draws. Jinja2 escapes all texts from hosts; drawings are made of escaped parts. The
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
from gpuprep.reports import figures, text
from gpuprep.reports.html import fleet
from gpuprep.reports.html.contents import contents
from gpuprep.reports.readings import figure
from gpuprep.reports.templates import environment, policy_hash, with_code

# Explanations of technical words on the page, as in docs/glossary.md (a test compares them).
WORDS = {
    "peak": "The speed by the data sheet: units × operations a clock × boost clock. No real program reaches it",
    "boost clock": "The highest clock that NVIDIA names for a GPU. Peaks are calculated with it",
    "floor": "The lowest figure that passes, in per cent of the GPU's peak",
    "long run": "The same product for about twenty seconds, until power limit and heat act. Other figures are short",
    "clock": "How fast the GPU's units tick. A power limit, heat or a setting holds it below the boost clock",
    "memory bound": "Loading the matrices takes longer than calculating, so memory sets the speed",
    "tiles": "A product is cut into tiles of a fixed size. Where the matrix ends inside a tile, its rest is wasted",
    "last wave": "The GPU calculates as many tiles at once as it has room for: a wave. In the last one, much of that"
    " room may stay empty",
    "alignment": "Rows that do not begin at multiples of 16 bytes slow the Tensor Cores",
    "kernel": "The program that calculates the product on the GPU; here: lost speed that clock, memory,"
    " tiles and waves do not explain",
    "roofline": "How fast memory and units allow a product to be, by how much it calculates for each loaded byte",
    "session": "One FFmpeg process at work. Several at once fill all video engines",
    "stream": "One video in real time: 1080p30 is 1920×1080 at 30 frames a second",
    "triad": "Reads two arrays and writes a third, as STREAM does",
    "PSNR": "How close a picture is to the original, in dB. More is better; above 40 dB eyes see no difference",
}


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
            style=Markup(style),  # gpuprep's own files, without text from a host
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
    made.filters.update(taking=text.step_costs, taking_in_all=text.whole_effort)
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
