"""The pictures of README and docs/traces.md: `python tests/support/pictures.py` writes them into docs/images.

    report.png     the first screen of the HTML page at 1280 px, by a real Chromium
    terminal.svg   what a terminal shows of the same run
    report.words   the sha256 of what the page in the picture says; tests/unit/project/test_pictures.py compares
    trace-*.png    views of the page of `gpuprep trace`, of the project's own recorded profiles

The run is what the probes measured on a real H200 (tests/cases/records), judged by the profile h200 of today.
"""

from __future__ import annotations

import dataclasses
import hashlib
import html
import io
import json
import re
import sys
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

PROBES = ("gemm", "bandwidth", "transcode", "throughput")
RUN, BEGAN = "20261120-101500-h20000", "2026-11-20T10:15:00+00:00"
COLUMNS, LINES = 100, 36  # of the terminal
COLOURS = 256
MOST_BYTES = 200_000  # of a picture in a README
# Picture ► the profiles that its page is of, and the page's address.
TRACES = {
    "trace-dashboard.png": (("gpt-fp32",), "#/"),
    "trace-timeline.png": (("gpt-fp32",), "#/timeline"),
    "trace-ranks.png": (("ddp-gloo-rank0", "ddp-gloo-rank1"), "#/ranks"),
}
TALL = 860  # pixels of such a picture

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[2]), str(Path(__file__).parent)]

import browser  # noqa: E402
from places import ROOT  # noqa: E402

from gpuprep.desired import loading  # noqa: E402
from gpuprep.records import RunRecord  # noqa: E402
from gpuprep.reports import render  # noqa: E402
from gpuprep.reports.text import render as as_text  # noqa: E402
from gpuprep.workflows.record_file import from_figures  # noqa: E402
from gpuprep.workflows.rejudge import judge  # noqa: E402

IMAGES = ROOT / "docs/images"
RECORDS = ROOT / "tests/cases/records"
RECORDED = ROOT / "tests/traces/recorded"


def run() -> RunRecord:
    """The recorded run, with a name and a time that stay."""
    results = [json.loads((RECORDS / f"h200-{probe}.json").read_text(encoding="utf-8")) for probe in PROBES]
    made = judge(from_figures({"host": "h200-1", "measurements": results}), loading.load("h200"))
    lasted = timedelta(seconds=round(sum(one.seconds for one in made.measurements)))
    ended = (datetime.fromisoformat(BEGAN) + lasted).isoformat()
    return dataclasses.replace(made, run_id=RUN, started_at=BEGAN, ended_at=ended)


def page() -> str:
    return render(run(), "html")


def words(page: str) -> str:
    """The sha256 of the words that the picture shows of an HTML page: from its head to its bars."""
    page = page.partition("</head>")[2].partition('<div class="folds">')[0]
    bare = re.sub(r"<[^>]*>", " ", page, flags=re.S)
    return hashlib.sha256(" ".join(html.unescape(bare).split()).encode()).hexdigest()


def terminal() -> str:
    """The first screen of the text report as SVG; it fetches no font."""
    from rich.console import Console
    from rich.text import Text

    lines = as_text(run(), color=True, width=COLUMNS).splitlines()
    shown = [*lines[:LINES], "…"] if len(lines) > LINES else lines
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="standard")
    console.print(Text.from_ansi("\n".join(["$ gpuprep report last", "", *shown])))
    svg = console.export_svg(title="gpuprep", unique_id="gpuprep")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.S)


def said(svg: str) -> str:
    """The words of an SVG, without what a version of rich decides."""
    bare = re.sub(r"<style>.*?</style>|<[^>]*>", " ", svg, flags=re.S)
    return " ".join(html.unescape(bare).split())


def _first_screen(shown: Any) -> None:
    """The page down to the end of its bars: what follows are closed folds."""
    end = shown.locator("#best").evaluate("one => Math.ceil(one.getBoundingClientRect().bottom)")
    box = {"x": 0, "y": 0, "width": browser.WIDE, "height": end + 20}
    _save(shown.screenshot(full_page=True, clip=box), "report.png")


def _save(screenshot: bytes, name: str) -> None:
    from PIL import Image

    drawn = Image.open(io.BytesIO(screenshot)).convert("RGB")
    drawn.quantize(COLOURS, dither=Image.Dither.NONE).save(IMAGES / name, optimize=True)


def trace_page(profiles: tuple[str, ...], folder: Path) -> Path:
    """The page of one recorded profile, or of several as the ranks of one job."""
    from gpuprep.trace.opening import Wish, open_trace
    from gpuprep.trace.opening.job import open_job, open_rank
    from gpuprep.trace.page import html as one_page
    from gpuprep.trace.page import html_of_job
    from gpuprep.trace.reading import Found

    files = [RECORDED / f"{name}.json.gz" for name in profiles]
    path = folder / f"{profiles[0]}.html"
    if len(files) == 1:
        opened = open_trace(files[0])
        text = one_page(opened.profile, opened.document)
    else:
        job = open_job(RECORDED, Wish(), Found(files, []))
        text = html_of_job(job.ranks, lambda rank: open_rank(job, rank, Wish()))
    path.write_text(text, encoding="utf-8")
    return path


def _trace_views(chromium: browser.Chromium, folder: Path) -> None:
    def look(shown: Any) -> bytes:
        shown.wait_for_selector("#content h1, #content h2, #content h3")
        return bytes(shown.screenshot())

    for name, (profiles, address) in TRACES.items():
        url = f"{trace_page(profiles, folder).as_uri()}{address}"
        _save(chromium.visit(url, height=TALL, do=look, check=False).answer, name)


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    (IMAGES / "terminal.svg").write_text(terminal(), encoding="utf-8")
    with browser.running() as chromium, TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        path.write_text(page(), encoding="utf-8")
        chromium.visit(path.as_uri(), height=800, do=_first_screen, check=False)
        _trace_views(chromium, Path(folder))
    (IMAGES / "report.words").write_text(words(page()) + "\n", encoding="utf-8")
    for image in sorted(IMAGES.iterdir()):
        print(f"{image.relative_to(ROOT)}: {image.stat().st_size} bytes")


if __name__ == "__main__":
    main()
