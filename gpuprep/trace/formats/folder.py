"""All profiles of a folder in each format: one document, with the ranks first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Union

from gpuprep.reports.csv import lines
from gpuprep.trace.document import SCHEMA_VERSION, TraceDocument
from gpuprep.trace.formats import junit, markdown, ranks, text
from gpuprep.trace.formats.csv import head
from gpuprep.trace.formats.json import render as as_json
from gpuprep.trace.formats.sheets import Cell, Column, Sheet, sheet
from gpuprep.trace.formats.sheets import NAMES as TABLES
from gpuprep.trace.opening import OpenedFolder
from gpuprep.untrusted.plaintext import one_line


def as_text(found: OpenedFolder, *, full: bool = False, width: int = 80) -> str:
    parts = [ranks.text(found.ranks, full=full)]
    parts += ["".join(f"left out: {one_line(one.file)}: {one_line(one.why)}\n" for one in found.left_out)]
    parts += [text.render(one, full=True, width=width) if full else text.head(one) for one in found.documents]
    return "\n".join(filter(None, parts))


def _json(found: OpenedFolder) -> str:
    from gpuprep.trace.formats.documents import FolderDocument

    return as_json(FolderDocument(SCHEMA_VERSION, found.ranks, found.documents, found.left_out))


def _markdown(found: OpenedFolder) -> str:
    return "\n".join([ranks.markdown(found.ranks), *map(markdown.render, found.documents)])


def _junit(found: OpenedFolder) -> str:
    return junit.render_several(found.documents)


def _xlsx(found: OpenedFolder) -> bytes:
    from gpuprep.trace.formats import xlsx

    return xlsx.workbook(found.ranks.job, [*ranks.sheets(found.ranks), *(_joined(found.documents, name) for name in TABLES)])


def as_csv(found: OpenedFolder, table: str) -> str:
    """`table` is one of sheets.NAMES or ranks.NAMES."""
    if table in ranks.NAMES:
        one = next(each for each in ranks.sheets(found.ranks) if each.name == table)
    else:
        one = _joined(found.documents, table)
    return "".join(lines([tuple(map(head, one.columns)), *one.rows]))


def _joined(documents: Sequence[TraceDocument], name: str) -> Sheet:
    """A table of all profiles below each other, with the profile's name in each row."""
    first = sheet(documents[0], name)

    def rows() -> Iterator[tuple[Cell, ...]]:
        for document in documents:
            for row in sheet(document, name).rows:
                yield (document.file.profile_name or document.file.name, *row)

    return Sheet(name, first.title, (Column("Profile"), *first.columns), rows())


FORMATS: Mapping[str, Callable[[OpenedFolder], Union[str, bytes]]] = {
    "json": _json,
    "junit": _junit,
    "markdown": _markdown,
    "xlsx": _xlsx,
}


def index(found: OpenedFolder, pages: Iterable[tuple[str, str]]) -> str:
    """A page that leads to the page of each profile. `pages`: (name, file beside it)."""
    from gpuprep.trace.formats import ranks_page

    return ranks_page.render(found.ranks, found.left_out, list(pages))
