"""How slow can the video engines of each board be before PASS ends? Rows for docs/verdicts.md, by the judge itself."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from builders import load, resolved
from judgedbandwidth import any_host, figures
from verdictrows import Row, end_of_pass

from gpuprep import catalogue
from gpuprep.agent.video.clips import SPECS
from gpuprep.agent.video.throughputplan import CLIPS
from gpuprep.catalogue import Board
from gpuprep.catalogue.codecs import engine_rate
from gpuprep.catalogue.video import capabilities
from gpuprep.checks.judges.throughput.series import CHIPS, FIELDS
from gpuprep.desired.state import Wanted
from gpuprep.records import Status

MEASURED = (("decode", "h264", ""), ("decode", "h264-noisy", ""), ("decode", "hevc", ""), ("decode", "hevc10", ""),
            ("decode", "vp9", ""), ("encode", "h264", "p1"), ("encode", "h264", "p3"), ("encode", "h264", "p7"),
            ("encode", "hevc", "p1"), ("encode", "hevc", "p3"), ("encode", "hevc", "p7"))  # fmt: skip
SECONDS = 2.5
ENGINES = 2  # of a board whose number no source gives: one session alone then shows them


@cache
def rows() -> tuple[Row, ...]:
    """Of each board and series of which NVIDIA publishes a rate; sound is the rate, or what gpuprep's clip reached."""
    return tuple(row for board in catalogue.boards().values() for row in _of(board))


def _of(board: Board) -> Iterator[Row]:
    for kind, codec, preset in MEASURED:
        rate = engine_rate(board.model.compute_capability, kind, codec, preset or None)
        if rate is None or not _can(board, kind):
            continue
        percent, status, reason = _ends(board, kind, codec, preset)
        yield Row(board.key, " ".join(filter(None, (kind, codec, preset))), percent, status, reason)


def _can(board: Board, kind: str) -> bool:
    """Whether it has such engines, as far as anything says so."""
    count, known = getattr(board.model, FIELDS[kind]), capabilities(board.model.key)
    listed = known is not None and any(name.startswith(f"{CHIPS[kind]}.") for name in known)
    return count != 0 and (count is not None or listed)


def _ends(board: Board, kind: str, codec: str, preset: str) -> tuple[int, str, str]:
    ends, (status, reason) = end_of_pass(
        lambda percent: _judged(board, kind, codec, preset, percent / 100), lambda found: found[0] is Status.PASS
    )
    return ends, status.value, reason


@cache
def _wanted(profile: str) -> tuple[Wanted, Any]:
    wanted = resolved(profile)
    return wanted, dict(load(profile).thresholds)


def _judged(board: Board, kind: str, codec: str, preset: str, share: float) -> tuple[Status, str]:
    wanted, thresholds = _wanted(board.model.profile if board.model.profile != "base" else "t4")
    found = figures("throughput", record(board, kind, codec, preset, share), wanted, any_host(), thresholds)
    words = " ".join(filter(None, ("throughput", kind, codec, preset)))
    (finding,) = [one for one in found if one.key == f"{words}.fps"]
    return finding.status, finding.reason


def record(board: Board, kind: str, codec: str, preset: str, share: float) -> dict[str, Any]:
    """As the probe writes it of a board whose engines give `share` of what healthy ones give, all of them busy."""
    rate = engine_rate(board.model.compute_capability, kind, codec, preset or None)
    assert rate is not None
    clock = float(board.video_mhz or 1500)
    count = getattr(board.model, FIELDS[kind]) or ENGINES
    sound = rate.at(clock) * (rate.own_clip / rate.share if rate.own_clip else 1.0)
    gpu = {
        "index": 0, "uuid": "GPU-0", "name": "", "pci_device_id": board.pci_device_ids[0],
        "pci_subsystem_id": (*board.subsystem_ids, "")[0], "max_video_clock_mhz": clock, "other_processes": [],
        "before": {"encoder_utilization_percent": 0, "decoder_utilization_percent": 0}, "error": None,
    }  # fmt: skip
    name = CLIPS[codec if kind == "decode" else "h264"]
    clip = {"name": name, "codec": SPECS[name].codec, "width": 1920, "height": 1080, "fps": 30,
            "bit_rate_kbps": 8000 if "noisy" in name else 5000}  # fmt: skip
    steps = [_step(1, share * sound, round(100 / count), clock), _step(2 * count, share * sound * count, 99, clock)]
    series = {"kind": kind, "codec": codec, "preset": preset or None, "outcome": "completed", "decisive_line": "",
              "command": "", "clip": clip, "width": 1920, "height": 1080, "steps": steps}  # fmt: skip
    return {"quick": False, "gpus": [gpu], "series": [series]}


def _step(sessions: int, fps: float, used: int, clock: float) -> dict[str, Any]:
    return {
        "sessions": sessions, "died": 0, "died_because": "", "fps": fps, "fps_each": [fps / sessions] * sessions,
        "frames": round(fps * SECONDS), "seconds": SECONDS, "encoder_utilization_percent": used,
        "decoder_utilization_percent": used, "video_clock_mhz": clock, "event_reasons": 0, "cpu_percent": 10.0,
        "io_wait_percent": 0.0,
    }  # fmt: skip
