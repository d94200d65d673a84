"""A probe's progress reports on stderr while it runs: lines of JSON, each behind a mark.

    gpuprep-doing {"what": "scale-cuda", "done": 12, "of": 30, "unit": "transcodes"}
    gpuprep-measured {"at": ["gpus", 0, "gemms", 3], "value": {"dtype": "fp16", ...}}

The second line is a piece of the probe's values that has just been measured. With these pieces the controller keeps the
measurements even if the final answer never comes (a Ctrl-C, a lost connection, a time-out).

Reports are written only if the arguments of the probe have "tell": true, and only between measurements. A report that
cannot be written is left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from typing import Any, Mapping, Union

from gpuprep.records.serialize import to_json_value

MARK = "gpuprep-doing "
MEASURED = "gpuprep-measured "
STDERR = 2


class _Teller:
    wanted = False
    mouth = threading.Lock()  # a long line of one thread must not end in the middle of another's


def begin(wanted: bool) -> None:
    _Teller.wanted = wanted


def tell(what: str, *, done: int = 0, of: int = 0, unit: str = "") -> None:
    """Report that `what` runs and that `done` of `of` pieces have ended; a piece is a `unit`. 0 of 0: no number."""
    _say(MARK, {"what": what, "done": done, "of": of, "unit": unit})


def measured(value: Any, *at: Union[str, int]) -> None:
    """Report a measured `value`. `at` is its place in the probe's values: keys of objects and numbers in lists.

    A number equal to the length of a list appends to it; an existing value is replaced.
    """
    if _Teller.wanted:
        _say(MEASURED, {"at": at, "value": to_json_value(value)})


def measured_each(values: Mapping[str, Any]) -> None:
    """Report several values at the top level, such as the versions used for measuring."""
    for key, value in values.items():
        measured(value, key)


def _say(mark: str, words: Mapping[str, Any]) -> None:
    if not _Teller.wanted:
        return
    line = memoryview((mark + json.dumps(words) + "\n").encode())
    with _Teller.mouth, contextlib.suppress(OSError):
        while line:  # nearly always in one piece, between what others write there
            line = line[os.write(STDERR, line) :]
