"""A trace of PyTorch's profiler whose every text tries to get out of its place; and how any bytes are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpuprep.errors import UsageError
from gpuprep.trace.columns import Trace
from gpuprep.trace.reading import read

SECRET = "hunter2-must-never-be-shown"
FOLDER = "/home/alice/secret-project"
# Control characters, bidirectional and invisible ones, markup, formulas, Markdown, shell, XML, a lone surrogate.
NASTY = (
    "<script>alert(1)</script>",
    "\x1b[2J\x1b]0;owned\x07",
    "\u202egnp.exe\u200b",
    '=HYPERLINK("http://evil.example","x")',
    "+1+cmd|' /C calc'!A0",
    "@SUM(1)",
    "-2+3",
    "a|b `c` [d](http://evil.example) **e** @all #1",
    "line\nbreak\ttab\rreturn",
    "]]></failure>&lt;",
    "\udc80\ufffe\x00\x85",
    "'; rm -rf / #$(touch pwned)",
    "{{ 7*7 }}{% raw %}",
    '"><img src=x onerror=alert(1)>',
    "_x0041_ \u4e2d\u6587",
)


def write(path: Path) -> Path:
    """Steps, ops with stacks, kernels, a memory operation; every name is one of NASTY."""
    events: list[dict[str, Any]] = []
    main: dict[str, Any] = {"pid": 100, "tid": 100}

    def add(cat: str, name: str, ts: float, dur: float, args: dict[str, Any] | None = None, **place: Any) -> None:
        events.append({"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "args": args or {}, **place})

    correlation = 0
    for step in range(3):
        begin = 1000.0 + step * 1000
        add("user_annotation", f"ProfilerStep#{step}", begin, 990, **main)
        add("python_function", f"{FOLDER}/train.py(12): {NASTY[step]}", begin + 1, 980, **main)
        for number, nasty in enumerate(NASTY):
            correlation += 1
            at = begin + 10 + number * 50
            shapes = {"Input Dims": [[4, number + 1]], "Input type": [nasty], "External id": correlation}
            add("cpu_op", f"aten::{nasty}" if number % 2 else nasty, at, 40, shapes, **main)
            add("cuda_runtime", "cudaLaunchKernel", at + 5, 5, {"correlation": correlation}, **main)
            where = {"device": 0, "stream": 7, "correlation": correlation, "grid": [1, 1, 1], "block": [32, 1, 1]}
            cat = "kernel" if number else "gpu_memcpy"
            add(cat, f"{nasty}<{FOLDER}/kernel.cu>" if number else nasty, at + 20, 10, where, pid=0, tid=7)
    document = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": NASTY[0], "computeMajor": 9, "computeMinor": 0, "numSms": 132}],
        "record_shapes": 1,
        "with_stack": 1,
        "env": {"API_TOKEN": SECRET},
        "metadata": {"token": SECRET},
        "traceName": f"{FOLDER}/{NASTY[1]}",
        "traceEvents": events,
    }
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def read_or_refused(path: Path) -> Trace | None:
    """None where the file was refused, which takes one line."""
    try:
        return read(path)
    except UsageError as error:
        refused = error.what
    assert "\n" not in refused
    return None
