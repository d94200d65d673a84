"""A recorded run, judged by today's rules."""

from __future__ import annotations

import json

from places import CASES

from gpuprep.desired import loading
from gpuprep.records import RunRecord
from gpuprep.workflows.record_file import from_figures
from gpuprep.workflows.rejudge import judge

REAL = CASES / "records"


def judged(*probes: str) -> RunRecord:
    """Real measurements of an H200, judged."""
    results = [json.loads((REAL / f"{probe}.json").read_text(encoding="utf-8")) for probe in probes]
    return judge(from_figures({"host": "h200-1", "measurements": results}), loading.load("h200"))
