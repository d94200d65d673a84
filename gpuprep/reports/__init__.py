"""RunRecord ─► text. Reports show what was judged; they never judge.

render(record, "markdown")     one run in one of FORMATS, a module each
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuprep.records import RunRecord

FORMATS = ("text", "json", "junit", "markdown", "prometheus", "html")


def render(record: RunRecord, style: str) -> str:
    """The report of one run in the format `style`, one of FORMATS. A library that only one format needs loads here."""
    if style not in FORMATS:
        raise ValueError(f"no such format: {style}")
    document: str = importlib.import_module(f"gpuprep.reports.{style}").render(record)
    return document
