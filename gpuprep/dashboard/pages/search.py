"""Hosts, runs and findings by a few letters."""

from __future__ import annotations

from collections import Counter
from typing import Any
from urllib.parse import quote, urlencode

from gpuprep.dashboard.board import Board
from gpuprep.dashboard.digest import Host
from gpuprep.dashboard.pages.common import Page, Query, fleet_banner, host_path, run_document, run_row
from gpuprep.reports import drifted

FOUND = 20  # of each kind
FEWEST_LETTERS = 2


def search(board: Board, query: Query) -> Page:
    asked = query.text("q")
    matches: dict[str, Any] = {"hosts": [], "runs": [], "findings": []}
    if len(asked) >= FEWEST_LETTERS:
        word = asked.casefold()
        hosts = board.fleet().hosts
        matches["hosts"] = [host for host in hosts if any(word in text.casefold() for text in _texts(host))]
        matches["runs"] = board.store.beginning_with(asked, FOUND)
        keys: dict[str, int] = Counter(
            problem.key
            for host in hosts
            for problem in host.problems
            if word in drifted.words(problem.key).casefold()
            or word in problem.key.casefold()
            or word in problem.actual.casefold()
        )
        matches["findings"] = sorted(keys.items(), key=lambda one: (-one[1], one[0]))
    variables = {
        "asked": asked,
        "few": bool(asked) and len(asked) < FEWEST_LETTERS,
        "hosts": [{"host": host, "path": host_path(host.name)} for host in matches["hosts"][:FOUND]],
        "more_hosts": len(matches["hosts"]) - FOUND,
        "all_hosts": f"/fleet?{urlencode({'name': asked})}",
        "runs": [run_row(run) for run in matches["runs"]],
        "findings": [
            {"name": drifted.words(key), "count": count, "path": f"/findings/{quote(key, safe='')}"}
            for key, count in matches["findings"][:FOUND]
        ],
        "nothing": bool(asked) and not any(matches.values()),
        "banner": fleet_banner(board),
    }
    document = {
        "q": asked,
        "hosts": [host.name for host in matches["hosts"][:FOUND]],
        "runs": [run_document(run) for run in matches["runs"]],
        "findings": [key for key, _ in matches["findings"][:FOUND]],
    }
    return Page("search.html", variables, document)


def _texts(host: Host) -> tuple[str, ...]:
    return (host.name, *host.others, host.gpu, host.driver, host.kernel, host.system, host.record.run_id)
