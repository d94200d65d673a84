"""Records of transcodes are judged by gpuprep's own cases, and not at all where their parts contradict each other."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from judgedbandwidth import no_measurement
from places import TESTS
from transcoderecords import NO_NVENC, changed, judged, machine, with_output

from gpuprep import records
from gpuprep.agent.probes import transcodecases

RECORD = TESTS / "cases" / "records" / "h200-transcode.json"


def of(record: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(case for case in record["cases"] if case["id"] == name)
    return found


def problems(record: dict[str, Any]) -> dict[str, records.Finding]:
    return {
        f.key: f
        for f in judged(record)
        if f.status in (records.Status.UNKNOWN, records.Status.FAIL, records.Status.WARN)
    }


def test_what_a_record_expects_of_itself_is_not_believed() -> None:
    record = machine("t4")
    case = of(record, "transcode")
    case["outputs"][0].update(width=640, height=360, psnr_db=20.0, ssim=0.2, audio=None)
    case["outputs"][0]["expected"].update(width=640, height=360, psnr_db=1.0, ssim=0.1, audio=None)
    case["outputs"][0]["quality_judged"] = False
    found = problems(record)
    assert {key.rpartition(".")[2] for key in found} == {"width", "height", "psnr_db", "ssim", "audio"}
    assert {finding.status for finding in found.values()} == {records.Status.FAIL}


def test_what_a_record_needs_is_not_believed() -> None:
    record = machine("t4")
    case = of(record, "lookahead")
    case["needs"] = {"capabilities": ["nvdec.h264"], "lines": []}
    case["gpu_proof"] = {"nvenc_lines": [], "nvdec_lines": ["format supported: yes"]}
    found = problems(record)
    assert found["transcode lookahead.needs"].status is records.Status.UNKNOWN
    finding = found["transcode lookahead.gpu"]
    assert finding.status is records.Status.FAIL
    assert "NVENC encoded" in finding.reason
    assert "Lookahead enabled" in finding.reason
    # And a case that the driver refused is not excused by what it says it needed.
    record = machine("t4")
    of(record, "encode").update(outcome="failed", exit_code=69, outputs=[], needs={"capabilities": ["nvdec.av1"]},
                                decisive_line="Hardware is lacking required capabilities")  # fmt: skip
    assert problems(record)["transcode encode.completed"].status is records.Status.FAIL


def test_a_record_without_expectations_is_judged_all_the_same() -> None:
    record = machine("t4")
    for case in record["cases"]:
        for output in case["outputs"]:
            del output["expected"]
    assert problems(record) == {}


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("transcode", {"exit_code": 1}, "FFmpeg ended with 1"),
        ("transcode", {"exit_code": None}, "no exit code"),
        ("transcode", {"decisive_line": "CUDA_ERROR_UNKNOWN"}, "a reason why not"),
        ("transcode", {"seconds": 0.001}, "FFmpeg needs longer to open the GPU"),
        ("transcode", {"seconds": 4000.0}, "stops a case after 60 s"),
        ("transcode", {"seconds": None}, "how long it took"),
        ("scale-npp", {"exit_code": 0}, "reports that it did not run"),
        ("scale-npp", {"missing_parts": []}, "not which"),
        ("decode-av1", {"exit_code": 0}, "FFmpeg ended with 0"),
        ("decode-av1", {"exit_code": None}, "but not its exit code"),
        ("decode-av1", {"outcome": "refused", "exit_code": None}, "no such refusal"),
        ("decode-av1", {"outcome": "refused", "exit_code": None, "refused_in": "encode"}, "no such refusal"),
        ("transcode", {"id": "transcode-2"}, "no such case"),
    ],
)
def test_endings_that_contradict_each_other(name: str, values: dict[str, Any], words: str) -> None:
    record = machine("t4")
    of(record, name).update(values)
    found = problems(record)
    assert {finding.status for finding in found.values()} == {records.Status.UNKNOWN}
    assert any(words in finding.reason for finding in found.values()), found


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("transcode", {"psnr_db": 140.0}, "0 to 100 can be"),
        ("transcode", {"psnr_db": 100.0}, "identical with the source's"),
        ("decode", {"ssim": 0.7}, "SSIM of 0.7"),
        ("decode", {"xpsnr_db": 30.0}, "XPSNR of 30"),
        ("transcode", {"ssim": 1.4}, "more than 1 is impossible"),
        ("transcode", {"psnr_db": 70.0}, "are of different pictures"),
        ("transcode", {"psnr_db": 55.0, "ssim": 0.91, "xpsnr_db": 50.0}, "are of different pictures"),
        ("transcode", {"bytes": 1000}, "1000 bytes are less than"),
        ("transcode", {"black_seconds": 400.0}, "400 s are reported as black"),
    ],
)
def test_outputs_that_cannot_be(name: str, values: dict[str, Any], words: str) -> None:
    found = with_output(name, **{"bytes": 10_000_000, **values} if name == "transcode" else values)
    assert {finding.status for finding in found} == {records.Status.UNKNOWN}
    assert words in found[0].reason


@pytest.mark.parametrize("value", [math.nan, math.inf, 1e15, -3])
@pytest.mark.parametrize("figure", ["psnr_db", "ssim", "xpsnr_db", "bytes", "frames", "black_seconds", "bit_rate_kbps"])
def test_figures_that_are_none(figure: str, value: float) -> None:
    record = machine("t4")
    of(record, "transcode")["outputs"][0][figure] = value
    (finding,) = no_measurement({"transcode": record})
    assert (finding.key, finding.status) == ("transcode.figures", records.Status.UNKNOWN)


def test_an_exit_code_may_be_negative() -> None:
    """A program that a signal ended."""
    found = changed("decode", outcome="failed", exit_code=-9, decisive_line="ffmpeg was killed by signal 9", outputs=[])
    assert [finding.status for finding in found] == [records.Status.FAIL]


def test_an_output_that_the_case_does_not_make() -> None:
    record = machine("t4")
    of(record, "transcode")["outputs"][0]["name"] = "other.mp4"
    (finding,) = problems(record).values()
    assert finding.status is records.Status.UNKNOWN
    assert "outputs other.mp4 are recorded" in finding.reason


def test_two_entries_of_a_case() -> None:
    record = machine("t4")
    again = copy.deepcopy(of(record, "decode"))
    again["outputs"][0]["psnr_db"] = 10.0
    record["cases"].append(again)
    assert {key: finding.status for key, finding in problems(record).items()} == {
        "transcode.entries": records.Status.UNKNOWN
    }


def test_encodes_without_an_encoder_are_impossible() -> None:
    record = machine("h200")
    sound = of(machine("t4"), "encode")
    record["cases"] = [sound if case["id"] == "encode" else case for case in record["cases"]]
    (finding,) = problems(record).values()
    assert (finding.key, finding.status) == ("transcode encode.capability", records.Status.UNKNOWN)
    record = machine("h200")
    record["chunks"] = machine("t4")["chunks"]
    assert problems(record)["transcode chunks.saved_seconds"].status is records.Status.UNKNOWN


def test_seconds_saved_are_the_difference() -> None:
    record = machine("t4")
    record["chunks"]["saved_seconds"] = 4.0
    assert problems(record)["transcode chunks.saved_seconds"].status is records.Status.UNKNOWN


# ---------------------------------------------------------------- refused as another case was


def after(record: dict[str, Any]) -> dict[str, Any]:
    """As the probe writes it: the first case of each encoder is refused, the others are not run."""
    first: dict[str, str] = {}
    for case in record["cases"]:
        encoders = transcodecases.BY_ID[case["id"]].encoders
        if case["outcome"] == "failed" and encoders:
            if encoders[0] in first:
                case.update(outcome="refused", exit_code=None, seconds=0.0, refused_in=first[encoders[0]], outputs=[])
            else:
                first[encoders[0]] = case["id"]
    return record


def test_cases_refused_as_the_first_was_are_skipped_with_its_reason() -> None:
    whole = {f.key: f.status for f in judged(machine("h200"))}
    short = judged(after(machine("h200")))
    assert {f.key: f.status for f in short} == whole
    refused = [f for f in short if f.subject == "transcode yuv-444-10"]
    assert [(f.status, NO_NVENC in f.reason) for f in refused] == [(records.Status.SKIP, True)]


Change = Callable[[dict[str, Any]], Any]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: of(r, "crop").update(refused_in="yuv-420-10"), "does not need what was refused"),  # another encoder
        (lambda r: of(r, "crop").update(refused_in="decode"), "no such refusal"),
        (lambda r: of(r, "crop").update(refused_in="crop"), "no such refusal"),
        (lambda r: of(r, "crop").update(exit_code=218), "reports that it did not run"),
        (lambda r: of(r, "crop").update(decisive_line="10 bit encode not supported"), "with another line"),
        (
            lambda r: of(r, "transcode").update(decisive_line="10 bit encode not supported"),
            "does not need what was refused",
        ),
        (lambda r: of(r, "transcode").update(exit_code=0), "no such refusal"),
    ],
)
def test_a_refusal_that_the_record_does_not_show(change: Change, words: str) -> None:
    record = after(machine("h200"))
    change(record)
    found = problems(record)
    assert {finding.status for finding in found.values()} == {records.Status.UNKNOWN}
    assert any(words in finding.reason for finding in found.values())


def test_a_gpu_that_has_the_encoder_fails_in_every_case() -> None:
    record = machine("t4")
    for case in record["cases"]:
        if transcodecases.BY_ID[case["id"]].encoders and case["outcome"] == "completed":
            case.update(outcome="failed", exit_code=218, decisive_line=NO_NVENC, outputs=[])
    found = problems(after(record))
    assert {finding.status for key, finding in found.items() if "chunks" not in key} == {records.Status.FAIL}
    assert len(found) > 15


EXACT = ("codec", "width", "height", "pixel_format", "frames")


def test_each_output_of_a_real_gpu_is_held_to_what_its_case_makes() -> None:
    record = json.loads(RECORD.read_text())["values"]
    assert problems(record) == {}
    changes = 0
    for case in record["cases"]:
        assert case["outputs"] or case["outcome"] in ("not_built", "failed", "refused"), case["id"]
        for output in case["outputs"]:
            for name in [name for name in EXACT if output.get(name) is not None]:
                right = output[name]
                output[name] = f"x{right}" if isinstance(right, str) else right + 2
                assert problems(record), (case["id"], output["name"], name)
                output[name] = right
                changes += 1
    assert changes > 20


@pytest.mark.parametrize(
    ("change", "key"),
    [
        (lambda r: of(r, "transcode")["outputs"][0].update(bytes=100_000_000), "transcode transcode.completed"),
        (lambda r: of(r, "transcode")["outputs"][0].update(bytes=0), "transcode transcode.completed"),
        (lambda r: of(r, "resize")["outputs"][0].update(bit_rate_kbps=0), "transcode resize.completed"),
        (lambda r: r["chunks"].update(files=40), "transcode chunks.saved_seconds"),
        (lambda r: r["chunks"].update(renditions=None), "transcode chunks.saved_seconds"),
        (lambda r: r["inputs"][0].update(width=640), "transcode.inputs"),
        (lambda r: r["inputs"][0].update(frames=7), "transcode.inputs"),
        (lambda r: r["inputs"][0].update(name="mine"), "transcode.inputs"),
    ],
)
def test_work_that_is_not_the_probe_s(change: Change, key: str) -> None:
    record = machine("t4")
    row = {
        "name": "h264-1080p",
        "codec": "h264",
        "width": 1920,
        "height": 1080,
        "frames": 480,
        "fps": 30,
        "audio": "aac",
    }
    record["inputs"] = [row]
    assert problems(record) == {}
    change(record)
    assert {name: finding.status for name, finding in problems(record).items()} == {key: records.Status.UNKNOWN}


def test_a_whole_run_that_calls_itself_quick_is_whole() -> None:
    record = {**machine("t4"), "quick": True}
    record["cases"] = [case for case in record["cases"] if case["id"] != "crop"]
    assert "crop" in problems(record)["transcode.cases"].reason
