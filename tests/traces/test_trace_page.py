"""The page as a file: nothing of others in it but what is pinned, and no word of a profile as markup or script."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from html import unescape
from importlib import resources
from pathlib import Path

import pytest
import tracepages
from tracepages import EVIL

from gpuprep.trace.page import html

PAGE = Path(str(resources.files("gpuprep.trace.page")))
SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
# Ways of JavaScript that make a text into markup, a script or a request.
UNSAFE = (
    "innerHTML",
    "outerHTML",
    "insertAdjacentHTML",
    "document.write",
    "eval(",
    "new Function",
    "fetch(",
    "XMLHttp",
    "import(",
)


def test_the_vendored_files_are_those_that_the_readme_names() -> None:
    readme = (PAGE / "vendor/README.md").read_text(encoding="utf-8")
    files = sorted(PAGE.glob("vendor/*/*.js"))
    assert len(files) == 2
    for file in files:
        assert f"`{hashlib.sha256(file.read_bytes()).hexdigest()}`" in readme, file.name
        licence = (file.parent / "LICENSE").read_text(encoding="utf-8")
        assert "Permission is hereby granted, free of charge" in licence


def digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_policy_allows_the_scripts_and_the_style_of_the_page_and_nothing_else() -> None:
    page = tracepages.text()
    policy = unescape(re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1])  # type: ignore[index]
    rules = {rule.split()[0]: rule.split()[1:] for rule in policy.split(";")}
    assert rules["script-src"] == [digest(one) for one in SCRIPT.findall(page)]
    assert rules["style-src"] == [digest(one) for one in re.findall(r"<style>(.*?)</style>", page, re.DOTALL)]
    assert rules["default-src"] == ["'none'"]
    assert set(rules) == {"default-src", "script-src", "style-src", "img-src", "base-uri", "form-action"}
    assert rules["img-src"] == ["data:"]


def test_no_word_of_a_profile_is_markup() -> None:
    page = tracepages.text()
    outside = SCRIPT.sub("", page)
    for name in EVIL:
        assert name not in outside
    assert "My &lt;b&gt;profile&lt;/b&gt;" in outside
    assert (outside.count("<script"), outside.count("</script>")) == (2, 2), "the two packed data"


def test_what_was_told_about_the_file_is_packed_in_the_page() -> None:
    packed = re.search(r'id="document">([^<]*)<', tracepages.text())
    assert packed
    told = json.loads(gzip.decompress(base64.b64decode(packed[1])))
    assert sorted(told) == ["advice", "file", "roofs", "summary"]
    assert told["file"]["profile_name"] == "My <b>profile</b>"


@pytest.mark.parametrize("file", sorted(PAGE.glob("static/*.js")), ids=lambda file: file.name)
def test_the_scripts_make_no_markup_of_texts(file: Path) -> None:
    source = file.read_text(encoding="utf-8")
    assert [word for word in UNSAFE if word in source] == []


def test_the_same_profile_gives_the_same_page() -> None:
    assert html(tracepages.opened().profile, tracepages.opened().document) == tracepages.text()


def test_the_page_without_a_profile_is_small() -> None:
    """What each page has, whatever its profile: libraries, views, styles."""
    assert len(tracepages.text()) < 500_000
