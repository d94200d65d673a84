"""How is a recorded run shown? RunRecord ─► text. Reports show the verdict; they never judge.

render(record, "markdown")                one run in one of FORMATS, a module each
several(records, "markdown", code)        runs of any number of hosts in one of RECORDS, one document
render_fleet(records, "markdown", code)   the same, whatever the records hold
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType

    from gpuprep.records import RunRecord

RECORDS = ("text", "json", "junit", "markdown", "html", "prometheus", "csv")  # of every command whose result is records
PLANS = ("text", "json", "markdown", "html", "csv")  # a plan judges nothing and measures nothing
FORMATS = (*RECORDS, "sbom")
PROGRAMS = ("json", "prometheus", "sbom")  # read by programs, with all findings counted
DRIFT = "drift"


def render(record: RunRecord, style: str) -> str:
    """The report of one run in the format `style`, one of FORMATS. Imports a format's libraries only if needed.

    A record that cannot be shown becomes UNKNOWN, with the reason.
    """
    if style not in FORMATS:
        raise ValueError(f"no such format: {style}")
    from gpuprep.records import showable  # not at the top: completion imports this module with every Tab

    form = module(style)
    return showable.document(lambda shown: form.render(shown[0]), [record], whole=style in PROGRAMS)


def module(style: str) -> ModuleType:
    """The module of one of FORMATS."""
    return importlib.import_module(f"gpuprep.reports.{'documents' if style == 'json' else style}")


def render_fleet(records: Sequence[RunRecord], style: str, exit_code: int) -> str:
    """Runs of several hosts in one document of the format `style`; `exit_code` is that of the command.

    A record that cannot be shown becomes UNKNOWN, with the reason; all other records are shown.
    """
    from gpuprep.records import showable

    return showable.document(lambda shown: fleet_page(shown, style, exit_code), records, whole=style in PROGRAMS)


def several(records: Sequence[RunRecord], style: str, exit_code: int) -> str:
    """What a command prints, of records that are safe to show: one host has the page of a run, JSON has one form.

    Of drift checks there is a page of hosts even for one host.
    """
    if len(records) > 1 or style in ("text", "json") or records[0].command == DRIFT:
        return fleet_page(records, style, exit_code)
    made: str = module(style).render(records[0])
    return made


def fleet_page(records: Sequence[RunRecord], style: str, exit_code: int) -> str:
    """A document of hosts, of records that are safe to show (records.showable)."""
    from gpuprep.nightly import metrics
    from gpuprep.reports import csv, documents, fleet, junit, markdown, prometheus, text_hosts

    if style == "json":
        return documents.render_several(records, exit_code)
    if style == "junit":
        return junit.render_several(fleet.order(records))
    if style == "csv":
        return csv.render_several(records)
    if style == "prometheus":
        return (
            metrics.render(records)
            if all(record.command == DRIFT for record in records)
            else prometheus.several(records)
        )
    if style == "markdown":
        return markdown.several(records)
    if style == "html":
        from gpuprep.reports import html

        return html.render_fleet(records)
    if style == "text":
        return text_hosts.fleet_page(records)
    raise ValueError(f"no page of hosts in the format {style}")
