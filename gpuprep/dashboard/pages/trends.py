"""Which hosts get slower from night to night."""

from __future__ import annotations

from collections import Counter

from gpuprep.dashboard.board import Board
from gpuprep.dashboard.pages.common import A_PAGE, Page, Query, banner, cut, falling_row, host_path
from gpuprep.dashboard.speeds import NIGHTS, Falling
from gpuprep.performance.trend import FEWEST_NIGHTS, Direction


def trends(board: Board, query: Query) -> Page:
    now = board.fleet()
    read = [(host, speeds) for host in now.hosts if (speeds := board.speeds(host)) is not None]
    counts = Counter(speeds.direction.value for _, speeds in read)
    # A host that gets slower does so in all figures: its worst stands for them.
    worst = [(host, max(speeds.falling, key=_loss), len(speeds.falling)) for host, speeds in read if speeds.falling]
    falling = sorted(worst, key=lambda each: -_loss(each[1]))
    rows = cut(falling, query)
    few = sorted((speeds.nights, host.name) for host, speeds in read if speeds.direction is Direction.UNKNOWN)
    variables = {
        "cut": rows,
        "rows": [
            {**falling_row(row), "host": host, "path": host_path(host.name), "more": count - 1}
            for host, row, count in rows.rows
        ],
        "counts": [(word.value, counts[word.value]) for word in (Direction.DOWN, Direction.STEADY, Direction.UNKNOWN)],
        "read": len(read),
        "every": len(now.hosts),
        "to_read": board.to_read,
        "few": [{"name": name, "nights": count, "path": host_path(name)} for count, name in reversed(few)][:A_PAGE],
        "few_count": len(few),
        "fewest": FEWEST_NIGHTS,
        "nights": NIGHTS,
        "banner": banner(sum(speeds.simulated for _, speeds in read), len(read)) if read else "",
    }
    document = {
        "counts": dict(counts),
        "read": len(read),
        "hosts": len(now.hosts),
        "trends": [{"host": host.name, **vars(row.trend)} for host, row, _ in rows.rows],
        "page": rows.number,
        "pages": rows.pages,
    }
    return Page("trends.html", variables, document)


def _loss(falling: Falling) -> float:
    return falling.trend.loss_percent or 0.0
