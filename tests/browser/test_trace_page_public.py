"""Pages of public profiles: GPUPREP_PUBLIC_TRACES names a folder with some. They are no part of the project."""

from __future__ import annotations

import base64
import gzip
import os
import re
from pathlib import Path

import browser
import pytest
import tracepages

from gpuprep.trace import opening, page

FOLDER = os.environ.get("GPUPREP_PUBLIC_TRACES", "")
FILES = sorted(one for kind in ("*.json.gz", "*.sqlite") for one in Path(FOLDER).glob(kind)) if FOLDER else []
VIEWS = ("dashboard", "op-types", "ops?op=1", "by-op?iteration=0", "gpus", "modules", "advice", "roofs")

pytestmark = pytest.mark.skipif(not FILES, reason="GPUPREP_PUBLIC_TRACES names no folder with profiles")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_page_of_a_public_profile_has_no_fault(chromium: browser.Chromium, tmp_path: Path, file: Path) -> None:
    opened = opening.open_trace(file)
    content = page.html(opened.profile, opened.document)
    events = opened.profile.trace.gpu.start.size + opened.profile.trace.ops.start.size
    assert events > 100_000 or len(content) <= 3_000_000
    assert len(content) <= 15_000_000
    for packed in re.findall(r'octet-stream" id="[a-z]+">([^<]*)<', content):
        assert b"must-never-be-shown" not in gzip.decompress(base64.b64decode(packed)), "of the recorded environment"
    for view in VIEWS:
        for width in (browser.NARROW, browser.WIDE):
            assert (
                tracepages.look(
                    chromium, tmp_path, view, content=content, width=width, check=width == browser.WIDE
                ).faults()
                == []
            )
