"""Records that a hostile host could have made: one bad thing each, the rest as in nightmetrics.py."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any

from nightmetrics import drifted
from records_for_tests import SNAPSHOT
from validations_for_tests import h200

from gpuprep.records import Compared, DriftFacts, Finding, ProbeResult, RunRecord, Source, Status, Verdict

BAD = Finding("gpu 0", "persistence_mode", Status.FAIL, "on", "off", since="2026-11-19T02:30:00+00:00")


def of(**changes: Any) -> RunRecord:
    return dataclasses.replace(drifted("evil"), **changes)


def found(finding: Finding, *more: Finding) -> RunRecord:
    findings = (finding, *more)
    return of(verdict=Verdict(Status.FAIL, "FAIL: profile t4", findings), findings=findings)


def since(moment: str) -> RunRecord:
    return found(dataclasses.replace(BAD, since=moment))


def measured(values: Any, probe: str = "gemm") -> RunRecord:
    return of(measurements=(ProbeResult(probe, Source.MEASURED, values, 1.0),))


def gpu(**changes: Any) -> RunRecord:
    whole = h200()
    assert whole.after is not None
    assert isinstance(whole.after.gpus, tuple)
    one = dataclasses.replace(whole.after.gpus[0], **changes)
    return of(after=dataclasses.replace(whole.after, gpus=(one,)))


def _deep(levels: int = 100_000) -> Any:
    value: Any = {}
    for _ in range(levels):
        value = {"a": value}
    return value


def telemetry(**columns: Any) -> RunRecord:
    gemm = {"dtype": "fp16", "m": 8, "n": 8, "k": 8, "tflops": 1.0, "telemetry": columns}
    return measured({"gpus": [{"index": 0, "uuid": "GPU-0", "pci_device_id": "1eb8", "gemms": [gemm]}]})


HUGE = 10**5000
HALF = "\ud83d"
LONG = "x" * 3_000_000

# What ended the whole page, in one format at least.
RECORDS: dict[str, Callable[[], RunRecord]] = {
    "since that is no date": lambda: since("yesterday"),
    "since in the year 12026": lambda: since("12026-11-19T02:30:00+00:00"),
    "since in the year 1 east of Greenwich": lambda: since("0001-01-01T00:00:00+23:59"),
    "since without a zone": lambda: found(BAD, dataclasses.replace(BAD, property="ecc", since="2026-11-19T02:30:00")),
    "began at no moment": lambda: of(started_at="then"),
    "began without a zone": lambda: of(started_at="2026-11-21T02:30:00"),
    "ended at no moment": lambda: of(ended_at="\x1b[2J"),
    "ended before it began": lambda: of(ended_at="1926-11-21T02:30:00+00:00"),
    "certified at no moment": lambda: of(drift=DriftFacts(certified_run="r", certified_at="NaN")),
    "a verdict that is WAIVED": lambda: of(verdict=Verdict(Status.WAIVED, "WAIVED", (BAD,))),
    "no verdict and no error": lambda: of(verdict=None, findings=()),
    "no findings": lambda: of(verdict=Verdict(Status.PASS, "PASS", ()), findings=()),
    "an error of a newline": lambda: of(verdict=None, error="\n"),
    "half a character": lambda: found(dataclasses.replace(BAD, actual=HALF, subject=HALF)),
    "half a character as host name of its own": lambda: of(after=dataclasses.replace(SNAPSHOT, hostname=HALF)),
    "a run id of half a character": lambda: of(run_id=HALF),
    "a GPU index of 5000 digits": lambda: gpu(index=HUGE),
    "a temperature of 5000 digits": lambda: gpu(temperature_c=HUGE),
    "memory of 5000 digits": lambda: gpu(memory_total_mib=HUGE),
    "an exit code of 5000 digits": lambda: of(exit_code=HUGE),
    "a delay of 5000 digits": lambda: of(options={"random_delay_minutes": HUGE}),
    "a speed of 5000 digits": lambda: measured({"gpus": [{"index": HUGE, "gemms": [{"tflops": HUGE, "m": HUGE}]}]}),
    "telemetry of 5000 digits": lambda: telemetry(seconds=[0, HUGE, 2], power_watts=[HUGE, 1, 2]),
    "telemetry of NaN": lambda: telemetry(seconds=[0, 1, 2], power_watts=[float("nan")] * 3),
    "figures beyond all numbers": lambda: of(
        drift=DriftFacts(compared=(Compared("u", "gemm", "fp16", 1e308, 5e-324, "r"),))
    ),
    "figures that are none": lambda: of(
        drift=DriftFacts(compared=(Compared("u", "gemm", "fp16", float("nan"), float("inf"), "r"),))
    ),
    "values nested 100 000 deep": lambda: measured(_deep()),
    "values that are a list": lambda: measured(["x"]),
    "values of other kinds": lambda: measured({"gpus": {"a": 1}, "together": 5, "libraries": "x"}),
    "GPUs that are a text": lambda: gpu(index="0", uuid=5, name=None),
    "findings that are none": lambda: of(verdict=Verdict(Status.FAIL, "FAIL", (None,))),  # type: ignore[arg-type]
    "a profile that is a text": lambda: of(profile="t4"),
    "fixes that are none": lambda: of(drift=DriftFacts(fixes=(None,))),  # type: ignore[arg-type]
    "a summary that is none": lambda: of(verdict=Verdict(Status.FAIL, None, (BAD,))),  # type: ignore[arg-type]
    "options that are none": lambda: of(options=None),
    "20 000 findings": cache(lambda: found(*[dataclasses.replace(BAD, property=f"p{n}") for n in range(20_000)])),
    "a finding of three megabytes": lambda: found(dataclasses.replace(BAD, actual=LONG)),
}

# What a person must not see done, anywhere: name ► text.
PAYLOADS = {
    "clears the screen": "\x1b[2J\x1b[H",
    "paints as a pass": "\x1b[32mPASS\x1b[0m",
    "sets the title": "\x1b]0;owned\x07",
    "one byte sequences": "\x9b2J\x9d0;owned\x9c",
    "carriage return": "fine\rFAIL",
    "backspaces": "FAIL\x08\x08\x08\x08PASS",
    "turns the line": "\u202eSSAP\u202c \u2066x\u2069",
    "invisible": "PA\u200b\u2060SS\ufeff\u00ad",
    "line separators": "a\u2028gpu-01  PASS\x85gpu-02  PASS\x0bx\x0cx\x1cx",
    "tags": "\U000e0041\U000e007f",
    "newlines": "a\n\ngpu-02  PASS\n# HELP x\n</pre>",
    "markup": "</pre></td><script>alert(1)</script><img src=x onerror=alert(1)>\"' onload=x",
    "markdown": "[a](javascript:x) ![b](http://h/p.png) www.evil.example https://evil.example @all #1 GH-1 :tada: <!-- "
    "| ` ~~x~~ $x^2$ **b** evil@example.com <b>",
    "half a character": "\ud83d",
    "nul": "\x00",
}


def spoiled(value: Any, payload: str) -> Any:
    """A record with `payload` in every text of its own, but for moments and what the controller chose."""
    if isinstance(value, str):
        return value if value[:4].isdigit() or isinstance(value, (Source, Status)) else payload
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        kept = ("host", "command", "status", "source", "probe")
        changed = {
            spec.name: spoiled(getattr(value, spec.name), payload)
            for spec in dataclasses.fields(value)
            if spec.name not in kept
        }
        return dataclasses.replace(value, **changed)
    if isinstance(value, dict):
        keys = ("gpus", "gemms", "cases", "series", "convolutions", "outputs", "steps", "dtype", "peers")
        return {key: one if key == "dtype" else spoiled(one, payload) for key, one in value.items()} | (
            {} if any(key in value for key in keys) else {payload: payload}
        )
    if isinstance(value, (list, tuple)):
        made = [spoiled(one, payload) for one in value]
        return type(value)(made)
    return value
