"""How is a profile of GPU work written down? TraceDocument ► str or bytes, one module per format.

text(document, full=True)     a terminal
csv(document, "kernels")      one table
FORMATS["json"](document)     json, junit, markdown, xlsx
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Union

from gpuprep.trace.document import TraceDocument
from gpuprep.trace.formats import documents as _documents
from gpuprep.trace.formats import junit as _junit
from gpuprep.trace.formats import markdown as _markdown
from gpuprep.trace.formats.comparison import markdown as markdown_of_comparison
from gpuprep.trace.formats.comparison import text as text_of_comparison
from gpuprep.trace.formats.documents import checked, compared
from gpuprep.trace.formats.junit import render_checked as junit_of_checked
from gpuprep.trace.formats.sheets import csv
from gpuprep.trace.formats.text import render as text

__all__ = [
    "FORMATS",
    "checked",
    "compared",
    "csv",
    "junit_of_checked",
    "markdown_of_comparison",
    "text",
    "text_of_comparison",
]


def _xlsx(document: TraceDocument) -> bytes:
    from gpuprep.trace.formats import xlsx  # it needs an additional library

    return xlsx.render(document)


FORMATS: Mapping[str, Callable[[TraceDocument], Union[str, bytes]]] = {
    "json": _documents.render,
    "junit": _junit.render,
    "markdown": _markdown.render,
    "xlsx": _xlsx,
}
