"""Each format of a report, read back by another library; what commands show of records and of a run's progress."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html.parser import HTMLParser
from typing import NoReturn, TextIO
from xml.etree import ElementTree as ET

from pages import without_script
from prometheus_client.parser import text_string_to_metric_families
from rich.console import Console as RichConsole

from gpuprep import reports
from gpuprep.cli import console, drawing, run_hosts
from gpuprep.cli.output import Output, table_lines
from gpuprep.cli.running import Running
from gpuprep.provisioning.ansible_events import Progress
from gpuprep.records import RunRecord


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON")


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes.update(name for name, _ in attrs)
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action")]


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def parsed(text: str, style: str) -> str:
    """`text` read by a parser of its format; what a reader of it sees."""
    text.encode()
    if style in ("json", "sbom"):
        document = json.loads(text, parse_constant=_no_constant)
        json.dumps(document, ensure_ascii=False).encode()  # no half characters
    elif style == "junit":
        ET.fromstring(text.encode())
    elif style == "prometheus":
        list(text_string_to_metric_families(text))
    elif style == "csv":
        rows = list(csv.reader(io.StringIO(text)))
        assert all(len(row) == len(rows[0]) for row in rows)
        assert not [cell for row in rows for cell in row if cell[:1] in "=+-@\t\r" and cell and not _is_number(cell)]
    elif style == "html":
        page = _Page()
        page.feed(without_script(text))
        assert "script" not in page.tags
        assert not {name for name in page.attributes if name.startswith("on") or name == "style"}
        assert all(link.startswith(("data:", "#")) for link in page.links)
    return text.replace("\\", "").replace("<!-- -->", "")


def shown(records: list[RunRecord], *, fleet: str = "", as_json: bool = False, verbose: int = 0) -> int:
    """What a command shows of its records, in a format of a fleet or as pages; its exit code."""
    output = Output("json" if as_json else fleet or "text", None, verbose, quiet=False, no_color=True, open_page=False)
    return run_hosts.show(records, output, as_table=bool(fleet))


def complained(records: Sequence[RunRecord]) -> None:
    run_hosts.errors_to_stderr(records)


def coloured(record: RunRecord) -> None:
    """A page on a terminal."""
    console.emit(reports.text.render(record, color=True), None)


@contextmanager
def progress(stream: TextIO, *hosts: str, no_color: bool = True) -> Iterator[console.Console]:
    """The progress of a run on these hosts."""
    with console.Console(hosts, verbose=1, quiet=False, no_color=no_color, stream=stream) as made:
        yield made


def listed(rows: Sequence[tuple[str, ...]], *, color: bool = False, columns: int | None = None) -> list[str]:
    """The lines of a list; the last door to a terminal lets all of them through."""
    made = table_lines(rows, color=color, columns=columns)
    assert console.for_terminal("\n".join(made)) == "\n".join(made)
    return made


def drawn(told: Sequence[tuple[str, list[Progress]]], ended: dict[int, int], *, columns: int, rows: int) -> str:
    """The live display of these hosts and what they told, on a terminal of so many columns, in so many rows."""
    hosts = [Running(name) for name, _ in told]
    for number, (host, (_, events)) in enumerate(zip(hosts, told, strict=True)):
        for event in events:
            host.take(event, 1.0)
        if number in ended:
            host.end(ended[number], 2.0)
    stream = io.StringIO()
    terminal = RichConsole(file=stream, width=columns, height=100, force_terminal=True, color_system=None,
                           legacy_windows=False)  # fmt: skip
    terminal.print(drawing.drawn(hosts, 100.0, columns=columns, rows=rows))
    return stream.getvalue()
