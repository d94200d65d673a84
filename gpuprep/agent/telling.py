"""What a probe is doing, told on stderr for whoever waits for its answer: one line of JSON each time, behind MARK.

    gpuprep-doing {"what": "scale-cuda", "done": 12, "of": 30, "unit": "transcodes"}

Only where the arguments of the probe ask for it ("tell": true). To tell costs nothing of what is measured: a line every
EVERY_SECONDS at most, and what cannot be written is left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import time

MARK = "gpuprep-doing "
EVERY_SECONDS = 0.2
STDERR = 2


class _Teller:
    wanted = False
    told = float("-inf")


def begin(wanted: bool) -> None:
    _Teller.wanted, _Teller.told = wanted, float("-inf")


def tell(what: str, *, done: int = 0, of: int = 0, unit: str = "") -> None:
    """`what` is at work; `done` of `of` pieces have ended, called `unit` ("transcodes"); 0 of 0: no number."""
    now = time.monotonic()
    if not _Teller.wanted or now - _Teller.told < EVERY_SECONDS:
        return
    _Teller.told = now
    line = MARK + json.dumps({"what": what, "done": done, "of": of, "unit": unit}) + "\n"
    with contextlib.suppress(OSError):
        os.write(STDERR, line.encode())  # in one piece, between what others write there
