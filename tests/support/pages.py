"""What every page that gpuprep prints has to keep to."""

from __future__ import annotations

import re
from importlib import resources
from typing import Any

from gpuprep.records import RunRecord
from gpuprep.reports import text_hosts

SCRIPT = resources.files("gpuprep.reports.html").joinpath("script.js").read_text(encoding="utf-8")


def too_wide(page: str, columns: int = 80) -> list[str]:
    """The lines that do not fit; only a path, which must stay whole to be copied, may be wider."""
    return [line for line in page.splitlines() if len(line) > columns and "/" not in line.split()[-1]]


def without_script(page: str) -> str:
    """An HTML page without its own script, which it must have once and as it is."""
    before, found, after = page.partition(f"<script>{SCRIPT}</script>")
    assert found, "the page's own script is not there, or not as it is in its file"
    return before + after


def printed(*runs: RunRecord, **how: Any) -> str:
    """What a command prints of its runs on a terminal: `width`, `color`, `everything`, `as_plan`."""
    return text_hosts.document(runs, **how)


def fleet(*runs: RunRecord, **how: Any) -> str:
    """What a command on hosts prints of their checks: `width`, `everything`."""
    return text_hosts.fleet_page(runs, **how)


def words_of(html: str) -> str:
    """The words of a part of an HTML page, one blank between them."""
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())
