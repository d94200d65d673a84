"""Hosts, runs and findings by a few letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlencode

from gpuprep.dashboard.board import Board
from gpuprep.dashboard.digest import Host
from gpuprep.dashboard.pages.common import Page, Query, cause_row, fleet_banner, host_path, run_document, run_row
from gpuprep.dashboard.pages.findings import causes_of
from gpuprep.records import Finding
from gpuprep.reports import drifted

FOUND = 20  # of each kind
FEWEST_LETTERS = 2


def search(board: Board, query: Query) -> Page:
    asked = query.text("q")
    matches: dict[str, Any] = {"hosts": [], "runs": [], "findings": []}
    if len(asked) >= FEWEST_LETTERS:
        words = asked.casefold().split()
        hosts = board.fleet().hosts
        matches["hosts"] = [host for host in hosts if _has(words, *_texts(host))]
        matches["runs"] = board.store.beginning_with(asked, FOUND)
        matches["findings"] = causes_of(hosts, lambda finding: _has(words, *_said(finding)))
    variables = {
        "asked": asked,
        "few": bool(asked) and len(asked) < FEWEST_LETTERS,
        "hosts": [{"host": host, "path": host_path(host.name)} for host in matches["hosts"][:FOUND]],
        "more_hosts": len(matches["hosts"]) - FOUND,
        "all_hosts": f"/fleet?{urlencode({'name': asked})}",
        "runs": [run_row(run) for run in matches["runs"]],
        "findings": [cause_row(group, hosts) for group, hosts in matches["findings"][:FOUND]],
        "more_findings": len(matches["findings"]) - FOUND,
        "nothing": bool(asked) and not any(matches.values()),
        "banner": fleet_banner(board),
    }
    document = {
        "q": asked,
        "hosts": [host.name for host in matches["hosts"][:FOUND]],
        "runs": [run_document(run) for run in matches["runs"]],
        "findings": list(
            dict.fromkeys(finding.key for group, _ in matches["findings"][:FOUND] for finding in group.findings)
        ),
    }
    return Page("search.html", variables, document)


def _has(words: Sequence[str], *texts: str) -> bool:
    """Whether each of the words is in one of the texts."""
    whole = "\n".join(texts).casefold()
    return all(word in whole for word in words)


def _texts(host: Host) -> tuple[str, ...]:
    return (host.name, *host.others, host.gpu, host.driver, host.kernel, host.system, host.record.run_id, host.what)


def _said(finding: Finding) -> tuple[str, ...]:
    """All that a page says of it."""
    return (
        finding.status.value, finding.key, drifted.words(finding.key), finding.expected, finding.actual,
        finding.reason, finding.remedy,
    )  # fmt: skip
