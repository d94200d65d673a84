"""What the transcode probe may have measured, and its judge."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from builders import DEVICE_IDS, finished_snapshot, resolved
from judgedbandwidth import figures

from gpuprep.agent.probes.transcodecases import CASES, Case
from gpuprep.agent.probes.transcodeproof import expected
from gpuprep.agent.video.clips import SPECS, Clip
from gpuprep.catalogue.video import capabilities
from gpuprep.desired.state import Wanted
from gpuprep.records import Finding, Missing, Status

NO_NVENC = "OpenEncodeSessionEx failed: unsupported device (2): (no details)"


NO_NVDEC = "Hardware is lacking required capabilities"


WANTED = resolved("t4")


def clips_of(case: Case) -> dict[str, Clip]:
    found = {}
    for item in case.inputs:
        spec = SPECS[item.clip]
        frames = 480 if item.seconds else spec.frames
        shape = (spec.codec, spec.width, spec.height, spec.pixel_format, frames, frames / 30)
        found[item.file] = Clip(item.clip, Path("clip.mp4"), *shape)
    return found


def good(case: Case) -> dict[str, Any]:
    """The case as it comes from a GPU that does all of it."""
    outputs = []
    for output in case.outputs:
        want = expected(output, case, clips_of(case))
        exact = (output.psnr_db or 0) >= 60
        alike = {"psnr_db": 100.0, "ssim": 1.0, "xpsnr_db": 100.0} if exact else {
            "psnr_db": 41.0, "ssim": 0.98, "xpsnr_db": 40.0}  # fmt: skip
        seen = {**want, "b_frames": 3 if want["b_frames"] == "present" else 0, **alike}
        seen["bit_rate_kbps"] = want["bit_rate_kbps"] or want["asked_kbps"]
        del seen["asked_kbps"]
        seen.update(black_seconds=0.0, frozen_seconds=0.0)
        judged_too = output.psnr_db is not None
        outputs.append({"name": output.file, "expected": want, **seen, "quality_judged": judged_too, "error": None})
    return {
        "id": case.id, "number": case.number, "title": case.title, "command": "ffmpeg", "exit_code": 0, "seconds": 1.0,
        "needs": {"encoders": case.encoders, "decoders": case.decoders, "filters": case.filters,
                  "capabilities": case.capabilities, "lines": case.announcements},
        "outcome": "completed", "decisive_line": "", "missing_parts": [], "warnings": [], "outputs": outputs,
        "gpu_proof": {"nvenc_lines": ["Nvenc initialized successfully", *case.announcements],
                      "nvdec_lines": ["format supported: yes, max_mb_count: 65536"],
                      "encoder_utilization_percent": 40, "decoder_utilization_percent": 12, "encoder_sessions": 1},
    }  # fmt: skip


def failed(case: Case, line: str, **more: Any) -> dict[str, Any]:
    return {**good(case), "outcome": "failed", "exit_code": 218, "decisive_line": line, "outputs": [], **more}


def machine(model: str) -> dict[str, Any]:
    """The measurement of a healthy GPU of this model, whose driver refuses what the catalogue says it must."""
    known = capabilities(model)
    assert known is not None
    rows = []
    for case in CASES:
        lacks = [name for name in case.capabilities if name not in known]
        if case.id == "scale-npp":
            lacks_part = {"outcome": "not_built", "exit_code": None, "missing_parts": ["filter scale_npp"]}
            rows.append({**good(case), **lacks_part, "outputs": []})
        elif lacks:
            rows.append(failed(case, NO_NVENC if lacks[0].startswith("nvenc") else NO_NVDEC))
        else:
            rows.append(good(case))
    seconds = {"one_process_seconds": 3.0, "many_processes_seconds": 5.0, "saved_seconds": 2.0}
    without = {"missing": "not_supported", "detail": NO_NVENC}
    chunks = {"files": 4, "renditions": 2, **seconds} if "nvenc.h264" in known else without
    gpu = {"index": 0, "uuid": "GPU-0", "name": model, "pci_device_id": {**DEVICE_IDS, "l4": "27b8"}[model]}
    return {"quick": False, "ffmpeg": {"path": "/usr/local/bin/ffmpeg", "version": "7.1.5"}, "gpu": gpu,
            "inputs": [], "cases": rows, "chunks": chunks}  # fmt: skip


def judged(values: Any, wanted: Wanted = WANTED) -> list[Finding]:
    host = dataclasses.replace(finished_snapshot(wanted), gpus=Missing("not_read"), pci_gpus=())  # of any host
    return figures("transcode", values, wanted, host)


def changed(name: str, model: str = "t4", **values: Any) -> list[Finding]:
    """Findings of one case of a healthy machine after `values` were put into it."""
    record = machine(model)
    ended = {"failed": 218, "timed_out": 255, "not_built": None, "not_run": None}
    if values.get("outcome") in ended:
        values = {"exit_code": ended[values["outcome"]], **values}
    next(case for case in record["cases"] if case["id"] == name).update(values)
    return [finding for finding in judged(record) if finding.subject == f"transcode {name}"]


def with_output(name: str, **values: Any) -> list[Finding]:
    record = machine("t4")
    case = next(case for case in record["cases"] if case["id"] == name)
    case["outputs"][0].update(values)
    return [f for f in judged(record) if f.subject == f"transcode {name}" and f.status is not Status.PASS]
