"""An Excel workbook: a sheet a table, with filters. The only import of XlsxWriter."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import xlsxwriter

from gpuprep.trace.document import TraceDocument
from gpuprep.trace.formats.sheets import Cell, Sheet, sheets
from gpuprep.untrusted.plaintext import NOT_XML

MOST_LETTERS = 32_000  # a cell holds 32 767
MOST_ROWS = 1_000_000  # a sheet holds 1 048 576
WIDEST = 60  # columns of text
# A text in a cell never becomes a formula, a link or a number.
OPTIONS = {
    "in_memory": True,
    "strings_to_formulas": False,
    "strings_to_urls": False,
    "strings_to_numbers": False,
    "nan_inf_to_errors": True,
}
FORMATS = {
    "us": "#,##0.000",
    "%": "0.0",
    "bytes": "#,##0",
    "TFLOPS": "0.00",
    "GB/s": "0.00",
    "FLOP": "#,##0",
    "": "General",
}


def render(document: TraceDocument) -> bytes:
    return book(document.file.profile_name, sheets(document))


def book(name: str, tables: Iterable[Sheet]) -> bytes:
    buffer = io.BytesIO()
    with xlsxwriter.Workbook(buffer, OPTIONS) as made:
        # The same document gives the same file.
        made.set_properties({"title": _clean(name), "created": datetime(2000, 1, 1)})
        styles = {unit: made.add_format({"num_format": number_format}) for unit, number_format in FORMATS.items()}
        bold = made.add_format({"bold": True, "text_wrap": True, "valign": "top"})
        for table in tables:
            _fill(made.add_worksheet(table.title), table, name, styles, bold)
    return buffer.getvalue()


def _fill(page: Any, sheet: Sheet, name: str, styles: dict[str, Any], bold: Any) -> None:
    """Row 0 names the profile, row 1 the columns."""
    page.write_string(0, 0, _clean(f"{sheet.title} of {name}"), bold)
    widths = [len(column.head()) // 2 + 4 for column in sheet.columns]
    for place, column in enumerate(sheet.columns):
        page.write_string(1, place, column.head(), bold)
    row = 1
    for row, cells in enumerate(sheet.rows, 2):
        if row >= MOST_ROWS:
            page.write_string(row, 0, "more rows than a sheet holds: --format csv and json have all")
            break
        _write(page, row, cells, sheet, styles, widths)
    for place, width in enumerate(widths):
        page.set_column(place, place, min(width, WIDEST))
    page.freeze_panes(2, 0)
    page.autofilter(1, 0, max(row, 2), len(sheet.columns) - 1)


def _write(page: Any, row: int, cells: Sequence[Cell], sheet: Sheet, styles: dict[str, Any], widths: list[int]) -> None:
    for place, cell in enumerate(cells):
        if cell is None:
            continue
        if isinstance(cell, str):
            page.write_string(row, place, _clean(cell))
            widths[place] = max(widths[place], min(len(cell) + 2, WIDEST))
        else:
            page.write_number(row, place, cell, styles[sheet.columns[place].unit])
            widths[place] = max(widths[place], 12)


def _clean(text: str) -> str:
    text = NOT_XML.sub("", text)
    return text if len(text) <= MOST_LETTERS else f"{text[:MOST_LETTERS]}…"
