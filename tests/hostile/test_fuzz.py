"""Many hostile inputs, the same each time: no decoder does more than refuse them, within its limits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import amount
from places import SUPPORT

import gpuprep

PROGRAM = SUPPORT / "fuzz.py"
SEED = 20261122
INPUTS = 100_000 if amount.ALL else 6_000


def test_hostile_inputs_do_no_more_than_be_refused() -> None:
    package = str(Path(gpuprep.__file__).parent.parent)
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(SEED), str(INPUTS)],
        env={**os.environ, "PYTHONPATH": package},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout[-5000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["inputs"] >= INPUTS
    assert told["slowest"][0] <= 1
    assert told["grown_mib"] <= 256
