"""A fleet in which some hosts are hostile."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from typing import Any

from builders import bare_snapshot, finished_snapshot
from records_for_tests import PASSED, record

from gpuprep.desired import loading, state
from gpuprep.records import to_json

GOOD = finished_snapshot(state.resolve(loading.load("t4"), bare_snapshot()))


FACTS: dict[str, Any] = json.loads(to_json(GOOD))


NIGHT: dict[str, Any] = json.loads(
    to_json(
        dataclasses.replace(
            record("20261121-023107-0a1b2", command="drift", host="x", verdict=PASSED, findings=PASSED.findings),
            ended_at="2026-11-21T02:31:08+00:00",
            exit_code=0,
        )
    )
)


TWENTY = tuple(f"gpu-{number:02d}" for number in range(1, 21))


HOSTILE = ("gpu-03", "gpu-07", "gpu-20")


def changed(document: dict[str, Any], path: str, value: Any) -> str:
    """`document` with another value at "driver.loaded_version" or so."""
    copy = json.loads(json.dumps(document))
    *way, last = path.split(".")
    here = copy
    for name in way:
        here = here[int(name)] if isinstance(here, list) else here[name]
    here[last] = value
    return json.dumps(copy)


# Each is what a host says in place of its facts, or of its last night.
SAID: dict[str, Callable[[dict[str, Any]], str]] = {
    "nothing": lambda _: "",
    "a page of HTML": lambda _: "<html>\n</html>",
    "a list": lambda _: "[]",
    "a document without its end": lambda told: json.dumps(told)[:-20],
    "depth": lambda _: "[" * 100_000 + "]" * 100_000,
    "depth in a place that is kept": lambda told: '{"provenance": ' + "[" * 900 + "]" * 900 + json.dumps(told)[1:],
    "bulk": lambda _: '{"x": "' + "x" * 17_000_000 + '"}',
    "many values": lambda _: '{"x": [' + "{}," * 400_000 + "{}]}",
    "an integer of 5000 digits": lambda told: json.dumps(told)[:-1] + ', "x": ' + "9" * 5000 + "}",
    "a date that is none": lambda told: changed(told, "taken_at" if "taken_at" in told else "ended_at", "yesterday"),
    "a year that is none": lambda told: changed(
        told, "taken_at" if "taken_at" in told else "started_at", "0001-01-01T00:00:00+00:00"
    ),
    "a schema of another world": lambda told: changed(told, "source", {"missing": "x"}),
    "a NUL in front": lambda told: "\0" + json.dumps(told),
}


def verdicts(style: str, page: str) -> dict[str, str]:
    """Host ─► its verdict, as the document says it."""
    if style == "json":
        return {
            run["host"]: "UNKNOWN" if run["error"] or not run["verdict"] else run["verdict"]["status"]
            for run in json.loads(page)["runs"]
        }
    named = {
        "text": r"^(gpu-\d\d) +([A-Z]+)\b",
        "markdown": r"^\| (gpu-\d\d) \| \W*([A-Z]+)",
        "prometheus": r'^gpuprep_drift_verdict\{host="([^"]+)".*,status="([A-Z]+)"\} 1',
    }
    return dict(re.findall(named[style], page, re.M))
