"""What the throughput probe may have measured, and its judge."""

from __future__ import annotations

import dataclasses
from typing import Any

from builders import finished_snapshot, resolved
from judgedbandwidth import figures

from gpuprep.desired.profile import Threshold
from gpuprep.records import Finding, Missing, Status

DEVICE = {"t4": "1eb8", "v100": "1db1", "a100": "20b0", "h200": "2335", "l4": "27b8", "l40s": "26b9", "b200": "2901"}


CLOCK = {"t4": 1470, "v100": 1372, "a100": 1290, "h200": 1545, "l4": 1770, "l40s": 1965, "b200": 2000}  # the highest


LIMIT = "OpenEncodeSessionEx failed: incompatible client key (21): (no details)"


WANTED = resolved("t4")


def step(sessions: int, fps: float, **seen: Any) -> dict[str, Any]:
    usual = {
        "sessions": sessions,
        "died": 0,
        "died_because": "",
        "fps": fps,
        "frames": round(2.5 * fps),
        "seconds": 2.5,
        "encoder_utilization_percent": 98,
        "decoder_utilization_percent": 98,
        "video_clock_mhz": 1545,
        "event_reasons": 0,
        "cpu_percent": 12.0,
        "io_wait_percent": 0.1,
    }
    return {**usual, **seen}


def series(kind: str, codec: str, *steps: dict[str, Any], preset: str | None = None, **more: Any) -> dict[str, Any]:
    usual = {
        "kind": kind,
        "codec": codec,
        "preset": preset,
        "outcome": "completed",
        "decisive_line": "",
        "command": "ffmpeg -i x",
    }
    return {**usual, "steps": list(steps), **more}


def card(model: str, index: int = 0, **more: Any) -> dict[str, Any]:
    usual = {"index": index, "uuid": f"GPU-{index}", "name": model.upper(), "pci_device_id": DEVICE[model],
             "max_video_clock_mhz": CLOCK[model], "other_processes": [], "error": None,
             "before": {"encoder_utilization_percent": 0, "decoder_utilization_percent": 0}}  # fmt: skip
    return {**usual, **more}


def judged(
    model: str, *every: dict[str, Any], thresholds: dict[str, Threshold] | None = None, **gpu: Any
) -> dict[str, Finding]:
    return judged_values({"gpus": [card(model, **gpu)], "series": list(every)}, thresholds)


def judged_values(values: Any, thresholds: dict[str, Threshold] | None = None) -> dict[str, Finding]:
    floors = {"engine_percent_of_rate": Threshold(85)} if thresholds is None else thresholds
    host = dataclasses.replace(
        finished_snapshot(WANTED), gpus=Missing("not_read"), pci_gpus=()
    )  # these figures are of any host
    found = figures("throughput", values, WANTED, host, floors)
    keys = [finding.key for finding in found]
    assert len(keys) == len(set(keys))
    for finding in found:
        if finding.status is not Status.PASS:
            assert finding.reason
        if finding.status in (Status.FAIL, Status.WARN):
            assert finding.remedy
    return {finding.key: finding for finding in found}
