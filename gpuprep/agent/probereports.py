"""A probe's progress reports on stderr while it runs: lines of JSON, each behind a mark.

    gpuprep-doing {"what": "scale-cuda", "done": 12, "of": 30, "unit": "transcodes"}
    gpuprep-measured {"at": ["gpus", 0, "gemms", 3], "value": {"dtype": "fp16", ...}}

The second is a piece of the probe's values that has just been measured. From all of them the controller has what was
measured, also if the answer never comes (a Ctrl-C, a lost connection, a time-out).

Only if the arguments of the probe ask for it ("tell": true). Reports are written between measurements, never during
one. What cannot be written is left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from typing import Any, Mapping, Union

from gpuprep.records.codec import to_json_value

MARK = "gpuprep-doing "
MEASURED = "gpuprep-measured "
STDERR = 2


class _Teller:
    wanted = False
    mouth = threading.Lock()  # a long line of one thread must not end in the middle of another's


def begin(wanted: bool) -> None:
    _Teller.wanted = wanted


def tell(what: str, *, done: int = 0, of: int = 0, unit: str = "") -> None:
    """`what` is at work; `done` of `of` pieces have ended, called `unit` ("transcodes"); 0 of 0: no number."""
    _say(MARK, {"what": what, "done": done, "of": of, "unit": unit})


def measured(value: Any, *at: Union[str, int]) -> None:
    """`value` is measured. `at` is its place among the probe's values: keys of objects and numbers in lists.

    A list grows by one where the number is its length; a value that is there already is replaced.
    """
    if _Teller.wanted:
        _say(MEASURED, {"at": at, "value": to_json_value(value)})


def measured_each(values: Mapping[str, Any]) -> None:
    """Values at the top: what was measured with, for example."""
    for key, value in values.items():
        measured(value, key)


def _say(mark: str, words: Mapping[str, Any]) -> None:
    if not _Teller.wanted:
        return
    line = memoryview((mark + json.dumps(words) + "\n").encode())
    with _Teller.mouth, contextlib.suppress(OSError):
        while line:  # nearly always in one piece, between what others write there
            line = line[os.write(STDERR, line) :]
