"""What a probe is doing, told on stderr for whoever waits for its answer: one line of JSON each time, behind MARK.

    gpuprep-doing {"what": "scale-cuda", "done": 12, "of": 30, "unit": "transcodes"}

Only where the arguments of the probe ask for it ("tell": true). It is told between measurements, never in one. What
cannot be written is left out.
"""

from __future__ import annotations

import contextlib
import json
import os

MARK = "gpuprep-doing "
STDERR = 2


class _Teller:
    wanted = False


def begin(wanted: bool) -> None:
    _Teller.wanted = wanted


def tell(what: str, *, done: int = 0, of: int = 0, unit: str = "") -> None:
    """`what` is at work; `done` of `of` pieces have ended, called `unit` ("transcodes"); 0 of 0: no number."""
    if not _Teller.wanted:
        return
    line = MARK + json.dumps({"what": what, "done": done, "of": of, "unit": unit}) + "\n"
    with contextlib.suppress(OSError):
        os.write(STDERR, line.encode())  # in one piece, between what others write there
