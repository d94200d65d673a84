"""The helper that looks at pages with a real Chromium sees each kind of fault, and none in a good page."""

from __future__ import annotations

import asyncio
from pathlib import Path

import browser
import pytest

pytestmark = pytest.mark.only_all  # of the helper, not of gpuprep
GOOD = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A page</title>
<meta name="viewport" content="width=device-width"></head><body><main><h1>t4-01</h1><p>PASS</p>BODY
</main></body></html>"""


def page(folder: Path, body: str = "") -> str:
    path = folder / "page.html"
    path.write_text(GOOD.replace("BODY", body), encoding="utf-8")
    return path.as_uri()


@pytest.mark.parametrize(("width", "dark"), browser.LOOKS)
def test_a_good_page_has_no_fault(chromium: browser.Chromium, tmp_path: Path, width: int, dark: bool) -> None:
    picture = tmp_path / "page.png"
    seen = chromium.visit(page(tmp_path), width=width, dark=dark, picture=picture)
    assert seen.faults() == []
    assert (seen.title, seen.text.split()) == ("A page", ["t4-01", "PASS"])
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert int.from_bytes(picture.read_bytes()[16:20], "big") == width


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("console", "<script>console.error('lost')</script>"),
        ("errors", "<script>undefined.x</script>"),
        ("elsewhere", '<img alt="" src="https://example.org/a.png">'),
        ("elsewhere", '<img alt="" src="other.png">'),
        ("wider", '<div style="width: 1500px">wide</div>'),
        ("overlaps", '<p>one text here</p><p style="margin-top: -40px">another text</p>'),
        ("violations", '<p style="color: #ddd; background: #fff">pale</p>'),
        (
            "violations",
            '<div style="height: 30px; overflow: auto"><p style="height: 300px">no key scrolls this</p></div>',
        ),
        ("violations", "<input>"),
    ],
)
def test_each_kind_of_fault_is_seen(chromium: browser.Chromium, tmp_path: Path, kind: str, body: str) -> None:
    assert getattr(chromium.visit(page(tmp_path, body)), kind) != []


def test_a_table_that_scrolls_in_its_own_box_is_not_too_wide(chromium: browser.Chromium, tmp_path: Path) -> None:
    box = '<div style="overflow-x: auto" tabindex="0"><div style="width: 3000px">wide</div></div>'
    assert chromium.visit(page(tmp_path, box)).wider == []


def test_a_page_can_be_worked_with_and_seen_without_scripts(chromium: browser.Chromium, tmp_path: Path) -> None:
    body = "<details><summary>more</summary><p>hidden words</p></details><script>document.title = 'scripted'</script>"
    seen = chromium.visit(page(tmp_path, body), do=lambda shown: shown.get_by_text("more").click())
    assert "hidden words" in seen.text
    assert seen.title == "scripted"
    assert chromium.visit(page(tmp_path, body), javascript=False).title == "A page"


def test_other_tests_keep_their_event_loops(chromium: browser.Chromium, tmp_path: Path) -> None:
    chromium.visit(page(tmp_path), check=False)

    async def nothing() -> int:
        return 1

    assert asyncio.run(nothing()) == 1
