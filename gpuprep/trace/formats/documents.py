"""The JSON documents of `gpuprep trace`: one dataclass each, and a JSON Schema made of it.

To write schemas/*.schema.json again: python -m gpuprep.trace.formats.documents
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from gpuprep.records import Status
from gpuprep.records.schema import document_schema, write
from gpuprep.trace.checking import Checked, Line
from gpuprep.trace.comparing import Comparison, JobComparison
from gpuprep.trace.document import SCHEMA_VERSION, TraceDocument, plain
from gpuprep.trace.ranks import RanksDocument

NOT_ASCII = re.compile("[^\x00-\x7e]")


def render(document: Any) -> str:
    """A dataclass of trace/document as pure ASCII: no name in it can act on a terminal. NaN is null."""
    text = msgspec.json.format(msgspec.json.encode(document, enc_hook=plain), indent=2).decode()
    return text if text.isascii() and "\x7f" not in text else NOT_ASCII.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    """As JSON writes a character: beyond 16 bits as two."""
    units = match[0].encode("utf-16-be")
    return "".join(f"\\u{units[place] << 8 | units[place + 1]:04x}" for place in range(0, len(units), 2))


@dataclass(frozen=True)
class CheckDocument:
    """trace check"""

    schema_version: int
    profile_name: str
    status: Status
    exit_code: int
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class CompareDocument:
    """trace compare"""

    schema_version: int
    comparison: Comparison


@dataclass(frozen=True)
class CompareJobsDocument:
    """trace compare, of two folders with the profiles of several ranks"""

    schema_version: int
    comparison: JobComparison


# Name of the schema's file: what the document is.
DOCUMENTS: dict[str, type] = {
    "trace": TraceDocument,
    "trace-check": CheckDocument,
    "trace-compare": CompareDocument,
    "trace-compare-ranks": CompareJobsDocument,
    "trace-ranks": RanksDocument,
}


def checked(document: TraceDocument | RanksDocument, outcome: Checked) -> str:
    name = document.job if isinstance(document, RanksDocument) else document.file.profile_name or document.file.name
    return render(CheckDocument(SCHEMA_VERSION, name, outcome.status, outcome.exit_code, outcome.lines))


def compared(comparison: Comparison | JobComparison) -> str:
    if isinstance(comparison, JobComparison):
        return render(CompareJobsDocument(SCHEMA_VERSION, comparison))
    return render(CompareDocument(SCHEMA_VERSION, comparison))


def schema(name: str) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of one of DOCUMENTS."""
    return document_schema(DOCUMENTS[name], f"gpuprep {name.replace('-', ' ')}", SCHEMA_VERSION)


if __name__ == "__main__":
    write(Path(__file__).parent / "schemas", {each: schema(each) for each in DOCUMENTS})
