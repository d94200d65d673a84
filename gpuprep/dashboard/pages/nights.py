"""How each of the last nights ended, and all runs of one night."""

from __future__ import annotations

from collections import Counter
from datetime import date, timedelta

from gpuprep.dashboard import charts
from gpuprep.dashboard.board import JUDGING, Board
from gpuprep.dashboard.pages.common import (
    NotFound,
    Page,
    Query,
    cut,
    fleet_banner,
    run_document,
    run_row,
    word_of,
)
from gpuprep.dashboard.speeds import NIGHTS
from gpuprep.records import ended
from gpuprep.untrusted.plaintext import one_line


def nights(board: Board) -> Page:
    now = board.nights()
    counted = [(str(day), counts) for day, counts in now.counted]
    description = f"How the hosts of each of the last {NIGHTS} nights ended"
    variables = {
        "chart": charts.both(charts.stacked, counted, description),
        "any": any(sum(counts.values()) for _, counts in counted),
        "rows": [
            {"day": day, "counts": counts, "total": sum(counts.values()), "path": f"/nights/{day}"}
            for day, counts in reversed(counted)
        ],
        "words": tuple(reversed(charts.STACK)),
        "legend": charts.STACK,
        "read_at": now.read_at,
        "banner": fleet_banner(board),
    }
    document = {"nights": [{"night": day, "counts": counts} for day, counts in counted], "read_at": now.read_at}
    return Page("nights.html", variables, document)


def night(board: Board, day: str, query: Query) -> Page:
    try:
        wanted = date.fromisoformat(day)
        after = wanted + timedelta(days=1)
    except (ValueError, OverflowError) as error:
        raise NotFound(f"{one_line(day, 40)} is no day", "write it as 2026-11-22") from error
    runs = board.store.between(f"{wanted}T12:00:00+00:00", f"{after}T12:00:00+00:00")
    judged = [run for run in runs if run.command in JUDGING]
    word = query.text("verdict")
    words = Counter(map(word_of, judged))
    chosen = [run for run in judged if not word or word_of(run) == word]
    chosen.sort(key=lambda run: (ended.place(word_of(run)), run.host, run.started_at))
    rows = cut(chosen, query)
    listed = [run_row(run) for run in board.store.whole([run.run_id for run in rows.rows])]
    variables = {
        "day": str(wanted),
        "after": str(after),
        "before_path": f"/nights/{wanted - timedelta(days=1)}" if wanted > date(1, 1, 2) else "",
        "after_path": f"/nights/{after}",
        "words": sorted(words.items(), key=lambda one: ended.place(one[0])),
        "links": {each: query.link(verdict=each, page="") for each in words},
        "wanted": word,
        "cut": rows,
        "rows": listed,
        "total": len(judged),
        "banner": fleet_banner(board),
    }
    document = {"night": str(wanted), "runs": [run_document(row["run"]) for row in listed],
                "page": rows.number, "pages": rows.pages, "total": rows.total, "counts": dict(words)}  # fmt: skip
    return Page("night.html", variables, document)
