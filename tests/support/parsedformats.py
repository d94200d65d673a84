"""Each format of a report, read back by another library."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from html.parser import HTMLParser
from typing import NoReturn
from xml.etree import ElementTree as ET

from pages import without_script
from prometheus_client.parser import text_string_to_metric_families

from gpuprep.cli.work import Request


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


def _request(**changes: object) -> Request:
    plain = Request(
        hosts=(), profile=None, inventory="x", limit=None, forks=None, ssh_key=None, accept_new_host_key=False,
        become=False, ask_become_pass=False, as_json=False, output=None, verbose=0, quiet=False, no_color=True,
    )  # fmt: skip
    return dataclasses.replace(plain, **changes)  # type: ignore[arg-type]
