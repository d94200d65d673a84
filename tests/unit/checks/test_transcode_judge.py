"""Transcodes, judged: what each GPU skips, what disagrees, what came out wrong."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from builders import with_parts
from places import TESTS
from transcoderecords import NO_NVDEC, NO_NVENC, WANTED, changed, good, judged, machine, with_output

from gpuprep import records
from gpuprep.agent.probes import transcodecases

RECORDS = TESTS / "cases" / "records"
LIMIT = "OpenEncodeSessionEx failed: incompatible client key (21): (no details)"
ENCODES = {case.id for case in transcodecases.CASES if any(name.startswith("nvenc") for name in case.capabilities)}
GUIDE = {case.id for case in transcodecases.CASES if case.number is not None}


def statuses(found: list[records.Finding]) -> dict[str, set[str]]:
    table: dict[str, set[str]] = {}
    for finding in found:
        table.setdefault(finding.status.value, set()).add(finding.subject.removeprefix("transcode "))
    return table


@pytest.mark.parametrize(
    ("model", "skipped"),
    [
        ("t4", {"scale-npp", "decode-av1"}),
        ("v100", {"scale-npp", "decode-av1"}),
        ("a100", ENCODES | {"decode-av1", "chunks"}),
        ("h200", ENCODES | {"decode-av1", "chunks"}),
    ],
)
def test_what_each_gpu_skips(model: str, skipped: set[str]) -> None:
    found = judged(machine(model))
    table = statuses(found)
    assert table["SKIP"] == skipped
    assert set(table) == {"PASS", "SKIP"}
    assert table["PASS"] == ({case.id for case in transcodecases.CASES} | {"chunks"}) - skipped
    for finding in found:
        if finding.status is records.Status.SKIP and finding.subject != "transcode scale-npp":
            assert NO_NVENC in finding.reason or NO_NVDEC in finding.reason


def test_a_real_h200() -> None:
    record = json.loads((RECORDS / "h200-transcode.json").read_text())
    assert record["source"] == "measured"
    table = statuses(judged(record["values"]))
    assert table["SKIP"] == ENCODES | {"decode-av1", "chunks"}
    assert table["PASS"] == {case.id for case in transcodecases.CASES} - ENCODES - {"decode-av1"}
    assert set(table) == {"PASS", "SKIP"}
    resized = next(case for case in record["values"]["cases"] if case["id"] == "decode-resize")["outputs"][0]
    assert (resized["width"], resized["height"]) == (1280, 720)
    cropped = next(case for case in record["values"]["cases"] if case["id"] == "decode-crop")["outputs"][0]
    assert (cropped["width"], cropped["height"], cropped["psnr_db"]) == (1216, 688, 100.0)


def test_the_driver_refuses_what_the_catalogue_promises() -> None:
    (finding,) = changed("temporal-aq", outcome="failed", decisive_line="Temporal AQ not supported")
    assert (finding.status, finding.property) == (records.Status.FAIL, "capability")
    assert "Temporal AQ not supported" in finding.reason
    assert "catalogue" in finding.reason


def test_it_ran_although_the_catalogue_says_it_cannot() -> None:
    case = next(case for case in transcodecases.CASES if case.id == "decode-av1")
    found = changed("decode-av1", **good(case))
    warned = [finding for finding in found if finding.status is records.Status.UNKNOWN]  # a source says so of the T4
    assert [finding.property for finding in warned] == ["capability"]
    assert "AV1" in warned[0].reason
    assert {finding.status for finding in found} == {records.Status.UNKNOWN, records.Status.PASS}


def test_a_failure_of_another_kind_confirms_no_lack() -> None:
    (finding,) = changed("transcode", "a100", decisive_line="Cannot load libnvidia-encode.so.1")
    assert finding.status is records.Status.UNKNOWN
    assert "library is missing" in finding.reason


@pytest.mark.parametrize(
    ("line", "words", "remedy"),
    [
        (LIMIT, "session limit", "fewer"),
        ("Cannot load libcuda.so.1", "no NVIDIA driver", "driver"),
        ("av_interleaved_write_frame(): No space left on device", "disk is full", "room"),
        ("CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected", "lost", "nvidia-smi"),
        ("something new", "something new", "by hand"),
    ],
)
def test_a_failure_is_explained(line: str, words: str, remedy: str) -> None:
    (finding,) = changed("encode", outcome="failed", decisive_line=line, outputs=[])
    assert (finding.status, finding.property) == (records.Status.FAIL, "completed")
    assert words in finding.reason
    assert line in finding.reason
    assert remedy in finding.remedy


def test_not_built_is_a_failure_only_where_the_profile_asks() -> None:
    (finding,) = changed("encode", outcome="not_built", missing_parts=["encoder h264_nvenc"])
    assert (finding.status, finding.role) == (records.Status.FAIL, "gpu_codec")
    (finding,) = changed("encode", outcome="not_built", missing_parts=["hwaccel cuda"])
    assert finding.status is records.Status.FAIL
    (finding,) = changed("scale-npp")
    assert finding.status is records.Status.SKIP
    record = machine("t4")
    npp = with_parts(WANTED, codec={"npp": True})
    (finding,) = [one for one in judged(record, npp) if one.subject == "transcode scale-npp"]
    assert finding.status is records.Status.FAIL


def test_no_input_and_no_end() -> None:
    (finding,) = changed("decode-vp9", outcome="not_run", decisive_line="no ffmpeg here encodes VP9")
    assert finding.status is records.Status.UNKNOWN
    assert "imageio-ffmpeg" in finding.remedy
    (finding,) = changed("decode", outcome="timed_out", decisive_line="ffmpeg was stopped after 60 s")
    assert finding.status is records.Status.FAIL
    (finding,) = changed("decode", outcome="dreamt")
    assert finding.status is records.Status.UNKNOWN


@pytest.mark.parametrize(
    ("name", "seen", "prop"),
    [
        ("resize", {"width": 1920, "height": 1080}, "width"),
        ("crop", {"height": 1080}, "height"),
        ("transcode", {"frames": 479}, "frames"),
        ("transcode", {"audio": None}, "audio"),
        ("transcode", {"bit_rate_kbps": 3900}, "bit_rate_kbps"),
        ("transcode", {"duration_seconds": 15.5}, "duration_seconds"),
        ("transcode", {"codec": "mpeg4"}, "codec"),
        ("yuv-420-10", {"profile": "Main"}, "profile"),
        ("yuv-444", {"pixel_format": "yuv420p"}, "pixel_format"),
        ("yuv-420", {"bit_rate_kbps": 20000}, "bit_rate_kbps"),
        ("decode", {"bytes": 100}, "bytes"),
        ("high-quality-slow", {"b_frames": 0}, "b_frames"),
        ("low-latency-high-quality", {"b_frames": 9}, "b_frames"),
        ("transcode", {"psnr_db": 29.0}, "psnr_db"),
        ("transcode", {"ssim": 0.5}, "ssim"),
        ("decode-hevc", {"psnr_db": 45.0, "xpsnr_db": 44.0, "ssim": 0.9995}, "psnr_db"),
        ("transcode", {"black_seconds": 1.0}, "black_seconds"),
        ("transcode", {"frozen_seconds": 2.0}, "frozen_seconds"),
        ("transcode", {"error": "FFmpeg wrote nothing here"}, "output"),
    ],
)
def test_each_property_of_an_output_is_compared(name: str, seen: dict[str, Any], prop: str) -> None:
    found = with_output(name, **seen)
    assert prop in {finding.property for finding in found}
    assert {finding.status for finding in found} == {records.Status.FAIL}
    assert all(finding.reason and finding.remedy for finding in found)


def test_spatial_aq_may_lower_psnr() -> None:
    assert with_output("spatial-aq", psnr_db=20.0, ssim=0.5) == []


def test_a_bit_rate_within_a_fifth_is_right() -> None:
    assert with_output("transcode", bit_rate_kbps=5900) == []


def test_what_was_not_read_is_unknown() -> None:
    gone = {"missing": "unparsable", "detail": "ffprobe: garbage"}
    found = with_output("transcode", frames=gone, psnr_db=gone)
    assert {(finding.property, finding.status) for finding in found} == {
        ("frames", records.Status.UNKNOWN),
        ("psnr_db", records.Status.UNKNOWN),
    }
    assert all("garbage" in finding.reason for finding in found)


@pytest.mark.parametrize(
    ("proof", "status", "words"),
    [
        ({"nvenc_lines": [], "nvdec_lines": ["format supported: yes"]}, records.Status.FAIL, "NVENC"),
        ({"nvenc_lines": ["Nvenc initialized successfully"], "nvdec_lines": []}, records.Status.FAIL, "NVDEC"),
        (
            {"nvenc_lines": ["Nvenc initialized successfully"],
             "nvdec_lines": ["format supported: yes", "Failed setup for format cuda: …"]},
            records.Status.FAIL, "software",
        ),
        (None, records.Status.UNKNOWN, "not kept"),
    ],
)  # fmt: skip
def test_a_fall_back_to_software_is_found_out(proof: Any, status: records.Status, words: str) -> None:
    (finding,) = [one for one in changed("transcode", gpu_proof=proof) if one.status is not records.Status.PASS]
    assert (finding.property, finding.status) == ("gpu", status)
    assert words in finding.reason


def test_a_feature_must_announce_itself() -> None:
    case = next(case for case in transcodecases.CASES if case.id == "lookahead")
    proof = {**good(case)["gpu_proof"], "nvenc_lines": ["Nvenc initialized successfully"]}
    (finding,) = [one for one in changed("lookahead", gpu_proof=proof) if one.status is not records.Status.PASS]
    assert "Lookahead enabled" in finding.reason


def test_an_option_that_did_nothing_is_a_failure() -> None:
    line = "Codec AVOption resize (Resize (width)x(height)) has not been used for any stream."
    (finding,) = [one for one in changed("resize", warnings=[line]) if one.status is not records.Status.PASS]
    assert (finding.property, finding.status) == ("options", records.Status.FAIL)


def test_a_slower_single_process_is_a_warning() -> None:
    record = machine("t4")
    record["chunks"].update(one_process_seconds=5.0, many_processes_seconds=4.0, saved_seconds=-1.0)
    (finding,) = [one for one in judged(record) if one.subject == "transcode chunks"]
    assert finding.status is records.Status.WARN
    record["chunks"] = {"missing": "command_failed", "detail": LIMIT}
    (finding,) = [one for one in judged(record) if one.subject == "transcode chunks"]
    assert finding.status is records.Status.UNKNOWN


def test_nothing_measured_is_never_a_pass() -> None:
    empty = {**machine("t4"), "cases": []}
    assert {finding.status for finding in judged(empty) if finding.subject != "transcode chunks"} == {
        records.Status.UNKNOWN
    }
    (finding,) = judged(records.Missing("not_installed", "no ffmpeg"))
    assert finding.status is records.Status.UNKNOWN
    record = machine("t4")
    record["cases"] = record["cases"][1:]
    assert ("transcode", records.Status.UNKNOWN) in {(finding.subject, finding.status) for finding in judged(record)}
    for case in record["cases"]:
        case["outputs"] = []
    assert not [f for f in judged(record) if f.property == "output" and f.status is records.Status.PASS]


def test_a_gpu_that_the_catalogue_lacks_is_judged_by_the_drivers_words() -> None:
    record = machine("a100")
    record["gpu"]["pci_device_id"] = "ffff"
    found = [finding for finding in judged(record) if finding.status is records.Status.SKIP]
    assert {finding.subject for finding in found} >= {"transcode transcode", "transcode decode-av1"}
    assert all("does not know this GPU" in f.reason for f in found if f.subject == "transcode transcode")


def test_nothing_is_judged_where_the_profile_wants_no_ffmpeg() -> None:
    assert judged(machine("t4"), with_parts(WANTED, codec={"ffmpeg": "none"})) == []


def test_a_quick_run_is_complete_with_the_quick_cases() -> None:
    record = copy.deepcopy(machine("t4"))
    quick = {case.id for case in transcodecases.CASES if case.quick}
    record.update(quick=True, chunks={"missing": "not_run", "detail": ""})
    record["cases"] = [case for case in record["cases"] if case["id"] in quick]
    assert set(statuses(judged(record))) == {"PASS"}


@pytest.mark.parametrize(
    ("line", "denied"),
    [
        (NO_NVENC, {"yuv-420-10", "encode", "transcode"}),
        ("10 bit encode not supported", {"yuv-420-10"}),
        (NO_NVDEC, {"decode", "decode-hevc-10bit", "transcode"}),
        ("Cannot load libcuda.so.1", set()),
    ],
)
def test_denials_are_matched_by_engine_codec_and_feature(line: str, denied: set[str]) -> None:
    """Of what a T4 has: a denial contradicts the catalogue; any other failure is one of the transcode."""
    for name in ("yuv-420-10", "encode", "decode", "decode-hevc-10bit", "transcode"):
        (found,) = changed(name, outcome="failed", decisive_line=line, outputs=[])
        assert found.property == ("capability" if name in denied else "completed"), name


def test_a_gpu_with_all_engines_skips_only_what_ffmpeg_lacks() -> None:
    """Else the catalogue would not know a capability by the name that a case has for it."""
    assert statuses(judged(machine("l4")))["SKIP"] == {"scale-npp"}


def test_a_refusal_of_what_was_only_inferred_is_a_warning() -> None:
    (finding,) = changed("yuv-444", "v100", outcome="failed", decisive_line="YUV444P not supported", outputs=[])
    assert (finding.status, finding.property) == (records.Status.WARN, "capability")
    (finding,) = changed("yuv-444", "v100", outcome="failed", decisive_line=NO_NVENC, outputs=[])
    assert finding.status is records.Status.FAIL
