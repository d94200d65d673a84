"""The pictures of README and docs/traces.md: the README's show what gpuprep shows of the recorded run today."""

from __future__ import annotations

import struct
from xml.etree import ElementTree as ET

import pictures
import pytest
from places import ROOT

from gpuprep import records

pytestmark = pytest.mark.only_all  # of documents; what a page and a terminal show: tests/unit/reports
AGAIN = "run python tests/support/pictures.py: what the recorded run shows today is not in the picture"


def test_the_run_of_the_pictures_is_a_real_one_that_passed() -> None:
    run = pictures.run()
    assert run.verdict
    assert (run.verdict.status, run.source) == (records.Status.PASS, records.Source.MEASURED)
    assert len(run.measurements) == len(pictures.PROBES)


def test_the_picture_of_the_page_is_of_this_run() -> None:
    noted = (pictures.IMAGES / "report.words").read_text(encoding="utf-8").strip()
    assert noted == pictures.words(pictures.page()), AGAIN
    changed = pictures.page().replace("824", "825", 1)
    assert noted != pictures.words(changed), "a figure that changes is told"


def test_docs_have_the_pictures_of_a_trace() -> None:
    page = (ROOT / "docs/traces.md").read_text(encoding="utf-8")
    for name, (profiles, _) in pictures.TRACES.items():
        assert f"](images/{name})" in page
        assert all((pictures.RECORDED / f"{one}.json.gz").is_file() for one in profiles)


@pytest.mark.parametrize("name", ["report.png", *pictures.TRACES])
def test_the_picture_of_a_page_is_a_png_of_1280_pixels_that_a_readme_can_hold(name: str) -> None:
    image = (pictures.IMAGES / name).read_bytes()
    assert image[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", image[16:24])
    assert width == 1280
    assert 600 < height <= 1600
    assert len(image) < pictures.MOST_BYTES


def test_the_picture_of_the_terminal_says_what_the_terminal_says() -> None:
    svg = (pictures.IMAGES / "terminal.svg").read_text(encoding="utf-8")
    assert pictures.said(svg) == pictures.said(pictures.terminal()), AGAIN
    assert len(svg.encode()) < pictures.MOST_BYTES
    root = ET.fromstring(svg)
    assert root.tag.endswith("svg")
    assert "PASS" in pictures.said(svg)
    assert "http" not in svg.replace("http://www.w3.org/", "").replace("https://www.textualize.io", ""), "it fetches"
