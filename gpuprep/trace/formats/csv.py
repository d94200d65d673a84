"""CSV for spreadsheets: one table of the document, the profile's name in each row."""

from __future__ import annotations

from gpuprep.reports.csv import lines
from gpuprep.trace.document import TraceDocument
from gpuprep.trace.formats.sheets import Column, sheet


def render(document: TraceDocument, table: str = "ops") -> str:
    """`table` is one of sheets.NAMES."""
    worksheet = sheet(document, table)
    heads = ("Profile", *map(head, worksheet.columns))
    name = document.file.profile_name
    return "".join(lines([heads, *((name, *row) for row in worksheet.rows)]))


def head(column: Column) -> str:
    return f"{column.title} ({column.unit})" if column.unit else column.title
