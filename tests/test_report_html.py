"""The HTML report in a real browser: it fits, is dark where that is wanted, fetches nothing and has no errors."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from records_for_tests import record
from test_fleet_html import FLEET
from validations_for_tests import h200, several, t4

from gpuprep.reports import render, render_fleet

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium; `make packages` does not install one")
WIDTHS = (390, 768, 1280, 1400)
# Reads each frame once all are loaded. A frame's colour scheme is what the page in it sees as preferred.
READ = """<script>onload = () => {
  document.getElementById('seen').textContent = JSON.stringify([...document.querySelectorAll('iframe')].map(frame => {
    const page = frame.contentDocument, view = page.documentElement
    const shown = e => e.getClientRects().length > 0
    const scale = svg => Math.hypot(svg.getScreenCTM().a, svg.getScreenCTM().b)
    const size = e => parseFloat(getComputedStyle(e).fontSize) * (e.ownerSVGElement ? scale(e) : 1)
    const heads = [...page.querySelectorAll('tbody th')].filter(shown)
    const words = [...page.querySelectorAll('main text, main td, main p, main span')].filter(shown)
    return {
      width: view.clientWidth, needs: view.scrollWidth, light: getComputedStyle(page.body).backgroundColor,
      charts: [...page.querySelectorAll('svg.chart')].filter(shown).length,
      smallest: Math.min(...words.map(size)),
      slim: Math.max(0, ...heads.map(head => head.offsetHeight / head.offsetWidth)),
      broken: [...page.images].filter(image => !image.naturalWidth).length,
      unnamed: [...page.querySelectorAll('svg:not([aria-hidden]):not([aria-label])')].length,
      sim: [...page.querySelectorAll('.sim')].filter(shown).length,
    }
  }))
}</script>"""


@dataclass
class Seen:
    frames: list[dict[str, Any]]
    complaints: list[str]


def look(page: str, folder: Path, *, scheme: str = "light") -> Seen:
    """`page` in a frame of each width, and what the browser's console said."""
    frames = "".join(
        f'<iframe style="width:{width}px;height:700px;border:0;color-scheme:{scheme}" '
        f'srcdoc="{html.escape(page)}"></iframe>'
        for width in WIDTHS
    )
    around = folder / "around.html"
    around.write_text(f'<!doctype html><meta charset="utf-8">{frames}<pre id="seen"></pre>{READ}', encoding="utf-8")
    command = [
        str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-dev-shm-usage",
        "--disable-background-networking", "--disable-component-update", "--host-resolver-rules=MAP * ~NOTFOUND",
        "--enable-logging=stderr", f"--user-data-dir={folder / 'browser'}", "--window-size=2600,900", "--dump-dom",
        around.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    found = re.search(r'<pre id="seen">(.+?)</pre>', done.stdout)
    assert found, done.stderr[-2000:]
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return Seen(json.loads(html.unescape(found[1])), complaints)


@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_and_can_be_read(tmp_path: Path, scheme: str) -> None:
    runs = {"h200": h200(), "several": several(), "t4": t4(), "old": record(measurements=())}
    pages = {name: render(run, "html") for name, run in runs.items()}
    opened = render_fleet(FLEET, "html", 3).replace('<details class="host', '<details open class="host')
    for name, page in {**pages, "fleet": render_fleet(FLEET, "html", 3), "opened": opened}.items():
        folder = tmp_path / name
        folder.mkdir()
        seen = look(page, folder, scheme=scheme)
        assert seen.complaints == [], name
        assert len(seen.frames) == len(WIDTHS)
        for frame in seen.frames:
            assert frame["needs"] <= frame["width"], f"{name} scrolls sideways"
            assert frame["slim"] < 2.5, f"{name}: a table whose first column is squeezed"
            assert frame["broken"] == 0
            assert frame["unnamed"] == 0, "a drawing that a screen reader cannot announce"
            assert frame["smallest"] >= 9, frame
            assert frame["sim"] == (name in ("t4", "old", "fleet", "opened"))
            assert bool(frame["charts"]) == (name in ("h200", "several", "t4"))
            red = int(re.findall(r"\d+", frame["light"])[0])
            assert (red < 60) == (scheme == "dark")


@needs_browser
def test_the_browser_would_have_told(tmp_path: Path) -> None:
    """The test above can fail: a page that is too wide, fetches and runs something is seen to do so."""
    squeezed = '<table style="width:40px"><tbody><tr><th>decode h264 p4 1920×1080 GPU 0</th></tr></tbody></table>'
    wrong = f'<img src="https://example.com/x.png"><script>1</script><div style="width:3000px">{squeezed}</div>'
    spoilt = render(t4(), "html").replace("<main>", f"<main>{wrong}", 1)
    seen = look(spoilt, tmp_path)
    assert all(frame["needs"] > frame["width"] for frame in seen.frames)
    assert all(frame["slim"] >= 2.5 for frame in seen.frames)
    complaints = "\n".join(seen.complaints)
    assert "example.com/x.png" in complaints
    assert "script-src" in complaints


def test_the_page_needs_nothing_beside_it() -> None:
    page = render(t4(), "html")
    assert "default-src 'none'" in page
    addresses = set(re.findall(r'(?:src|href)="([^"]{0,12})|url\(([^)]*)|@import', page))
    assert {address for address, _ in addresses} <= {"data:,", "data:image/p"}
    assert {inside for _, inside in addresses} == {""}
