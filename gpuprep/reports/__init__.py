"""How is a recorded run shown? RunRecord ─► text. Reports show the verdict; they never judge.

render(record, "markdown")                one run in one of FORMATS, a module each
render_fleet(records, "markdown", code)   drift of any number of hosts in one of FLEET_FORMATS, one document
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuprep.records import RunRecord

FORMATS = ("text", "json", "junit", "markdown", "prometheus", "html", "sbom")
PROGRAMS = ("json", "prometheus", "sbom")  # read by programs, with all findings counted
FLEET_FORMATS = ("text", "json", "junit", "prometheus", "markdown", "html")


def render(record: RunRecord, style: str) -> str:
    """The report of one run in the format `style`, one of FORMATS. Imports a format's libraries only if needed.

    A record that cannot be shown becomes UNKNOWN, with the reason.
    """
    if style not in FORMATS:
        raise ValueError(f"no such format: {style}")
    from gpuprep.records import showable  # not above: the command line reads the names of formats with every Tab

    form = importlib.import_module(f"gpuprep.reports.{style}")
    return showable.document(lambda shown: form.render(shown[0]), [record], whole=style in PROGRAMS)


def render_fleet(records: Sequence[RunRecord], style: str, exit_code: int) -> str:
    """Drift checks of several hosts in one document of the format `style`; `exit_code` is that of the command.

    A record that cannot be shown becomes UNKNOWN, with the reason; all other records are shown.
    """
    from gpuprep.records import showable

    return showable.document(lambda shown: fleet_page(shown, style, exit_code), records, whole=style in PROGRAMS)


def fleet_page(records: Sequence[RunRecord], style: str, exit_code: int) -> str:
    """The same for records that are safe to show (records.showable)."""
    from gpuprep.nightly import metrics
    from gpuprep.reports import fleet, json, junit

    if style == "json":
        return json.render_several(records, exit_code)
    if style == "junit":
        return junit.render_several(fleet.order(records))
    if style == "prometheus":
        return metrics.render(records)
    if style == "markdown":
        return fleet.markdown(records)
    if style == "html":
        from gpuprep.reports import html

        return html.render_fleet(records)
    return fleet.text(records)
