"""A whole validation of simulated GPUs: what it measures, what it skips and why, and the words for each fault."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import amount
import machines
import pytest
from machines import Finished, gpuprep, inside, only, playing
from waiting import until

pytestmark = pytest.mark.e2e

Record = dict[str, Any]


def validated(machine: Finished, *options: str) -> Record:
    """The record of a validation, whatever it found; fails on what is no verdict (0, 1 or 3)."""
    done = gpuprep("validate", machine.host, "--profile", machine.profile, *options, "--json")
    assert done.exit_code in (0, 1, 3), done.text[-6000:]
    record = only(done)
    assert record["source"] == "simulated"
    return record


def values(record: Record, probe: str) -> Record:
    (measurement,) = [m for m in record["measurements"] if m["probe"] == probe]
    assert measurement["source"] == "simulated"
    assert "missing" not in measurement["values"], measurement["values"]
    found: Record = measurement["values"]
    return found


def bad(record: Record) -> list[Record]:
    return [finding for finding in record["findings"] if finding["status"] not in ("PASS", "SKIP")]


def said(findings: list[Record]) -> str:
    """All words of the findings, for a look at which of them name a cause."""
    keys = ("status", "subject", "property", "actual", "reason", "remedy")
    return "\n".join(" | ".join(str(finding.get(key) or "") for key in keys) for finding in findings)


# ---------------------------------------------------------------- whole


def whole(machine: Finished) -> Record:
    return only(machine.validated) if machine.validated else validated(machine)


@pytest.fixture(scope="module")
def whole_t4_copy(t4_copy: Finished) -> Record:
    return whole(t4_copy)


@pytest.fixture(scope="module")
def whole_a100(a100: Finished) -> Record:
    return whole(a100)


@pytest.fixture(scope="module")
def whole_v100(v100: Finished) -> Record:
    return whole(v100)


def cases(record: Record) -> dict[str, Record]:
    return {case["id"]: case for case in values(record, "transcode")["cases"]}


def of_guide(record: Record) -> dict[int, Record]:
    return {case["number"]: case for case in cases(record).values() if case["number"] is not None}


NOT_BUILT = {5}  # scale_npp needs a build that may not be shared
DECODING = {14, 15}


def test_a_t4_passes(whole_t4_copy: Record) -> None:
    assert not bad(whole_t4_copy), said(bad(whole_t4_copy))
    assert whole_t4_copy["verdict"]["status"] == "PASS"


def test_a_t4_does_every_case_of_the_guide_that_its_ffmpeg_has(whole_t4_copy: Record) -> None:
    outcomes = {number: case["outcome"] for number, case in of_guide(whole_t4_copy).items()}
    assert set(outcomes) >= set(range(1, 24))
    assert {number for number, outcome in outcomes.items() if outcome == "not_built"} == NOT_BUILT
    assert {outcome for number, outcome in outcomes.items() if number not in NOT_BUILT} == {"completed"}
    for number, case in of_guide(whole_t4_copy).items():
        if case["outcome"] == "completed" and number not in DECODING:
            proof = case["gpu_proof"]
            assert any("Nvenc initialized successfully" in line for line in proof["nvenc_lines"]), case["id"]
            assert proof["encoder_sessions"] >= 1, case["id"]


@pytest.mark.parametrize("machine", ["t4_copy", "a100", pytest.param("v100", marks=pytest.mark.only_all)])
def test_av1_is_refused_in_the_drivers_words(machine: str, request: pytest.FixtureRequest) -> None:
    record: Record = request.getfixturevalue(f"whole_{machine}")
    case = cases(record)["decode-av1"]
    assert case["outcome"] == "failed"
    assert "Hardware is lacking required capabilities" in case["decisive_line"]
    (finding,) = [f for f in record["findings"] if f["subject"] == "transcode decode-av1"][:1]
    assert finding["status"] == "SKIP"


def test_an_a100_decodes_and_does_not_encode(whole_a100: Record) -> None:
    found = of_guide(whole_a100)
    assert {found[number]["outcome"] for number in DECODING} == {"completed"}
    encoders: dict[str, list[str]] = {}
    for number in sorted(set(found) - DECODING - NOT_BUILT):
        encoders.setdefault(found[number]["needs"]["encoders"][0], []).append(found[number]["outcome"])
        assert found[number]["decisive_line"].startswith("OpenEncodeSessionEx failed: unsupported device (2)")
    # One refused open of each encoder is enough.
    for outcomes in encoders.values():
        assert outcomes == ["failed"] + ["refused"] * (len(outcomes) - 1)
    skipped = [f for f in whole_a100["findings"] if f["status"] == "SKIP" and f["subject"].startswith("transcode")]
    assert len({f["subject"] for f in skipped}) >= 20
    assert not bad(whole_a100), said(bad(whole_a100))


def test_an_a100_measures_both_of_its_gpus_and_their_link(whole_a100: Record) -> None:
    gpus = values(whole_a100, "gemm")["gpus"]
    assert [gpu["index"] for gpu in gpus] == [0, 1]
    best = max(gemm["tflops"] for gemm in gpus[0]["gemms"] if gemm["dtype"] == "bf16")
    assert 240 <= best <= 280
    peers = values(whole_a100, "bandwidth")["peers"]
    assert {(peer["from"], peer["to"]) for peer in peers} >= {(0, 1), (1, 0)}


@pytest.mark.only_all
def test_a_v100_passes(v100: Finished) -> None:
    """What `--quick` leaves in; the whole guide is the next test."""
    record = validated(v100, "--quick")
    assert {case["outcome"] for case in of_guide(record).values()} == {"completed"}
    assert not bad(record), said(bad(record))
    assert record["verdict"]["status"] == "PASS"


@pytest.mark.only_all
def test_a_v100_passes_the_guide(whole_v100: Record) -> None:
    found = of_guide(whole_v100)
    assert {found[number]["outcome"] for number in found if number not in NOT_BUILT} == {"completed"}
    assert not bad(whole_v100), said(bad(whole_v100))


@pytest.mark.parametrize(("kind", "codec"), [("decode", "h264"), ("encode", "h264"), ("encode", "hevc")])
def test_engines_are_filled(whole_t4_copy: Record, kind: str, codec: str) -> None:
    rows = [s for s in values(whole_t4_copy, "throughput")["series"] if (s["kind"], s["codec"]) == (kind, codec)]
    assert rows
    for row in rows:
        assert row["outcome"] == "completed"
        engines = "decoder" if kind == "decode" else "encoder"
        assert max(step[f"{engines}_utilization_percent"] for step in row["steps"]) >= 95


# ---------------------------------------------------------------- faults

# A fault, the probes that meet it, the verdict, and words of which each must be in one of the findings.
FAULTS = [
    ("throttled", "gemm", "FAIL", ["HW slowdown", "throttled, not defective", "SM 52"]),
    ("slow_compute", "gemm", "FAIL", ["a defect, not throttling"]),
    ("slow_memory", "bandwidth", "FAIL", ["the memory clock was 2000 of 5001 MHz"]),
    ("memory_defect", "bandwidth", "FAIL", ["although the memory clock was full"]),
    ("pcie_x4", "bandwidth", "FAIL", ["x4 of x16"]),
    ("pcie_gen1", "bandwidth", "FAIL", ["generation 1 of 3"]),
    ("wrong_library", "gemm", "FAIL", ["/opt/other-cuda/lib64/libcublasLt.so"]),
    ("gpu_lost", "gemm", "FAIL", ["lost"]),
    ("too_hot", "gemm", "FAIL", ["HW thermal slowdown"]),
    ("other_process", "gemm", "UNKNOWN", ["another process", "python3"]),
    ("ecc_errors", "bandwidth", "FAIL", ["uncorrect"]),
    ("remap_pending", "bandwidth", "FAIL", ["retired"]),
    ("xid", "bandwidth", "FAIL", ["Xid 48"]),
]


@pytest.mark.parametrize(("kind", "probes", "verdict", "words"), amount.third(FAULTS))
def test_a_fault_is_named(t4_copy: Finished, kind: str, probes: str, verdict: str, words: list[str]) -> None:
    with playing(t4_copy, kind):
        record = validated(t4_copy, "--quick", "--only", probes)
    text = said(bad(record))
    assert record["verdict"]["status"] == verdict, text
    for word in words:
        assert word in text, text


def test_a_pending_ecc_mode_is_named(t4_copy: Finished) -> None:
    with playing(t4_copy, "ecc_pending"):
        text = said(bad(validated(t4_copy, "--quick", "--only", "bandwidth")))
    assert "ecc" in text.lower()
    assert "reboot" in text


@pytest.mark.only_all
def test_the_session_limit_is_named(t4_copy: Finished) -> None:
    """One session is enough for most cases, and too few for those that encode several outputs."""
    with playing(t4_copy, "nvenc_sessions"):
        record = validated(t4_copy, "--only", "transcode")
    found = of_guide(record)
    assert found[1]["outcome"] == "completed"
    assert found[6]["outcome"] == "failed"
    assert "OpenEncodeSessionEx failed: out of memory (10)" in found[6]["decisive_line"]
    assert record["verdict"]["status"] == "FAIL"
    assert "session" in said(bad(record))


def test_a_gpu_lost_in_the_middle_ends_the_work_and_not_the_validation(t4_copy: Finished) -> None:
    command = [machines.GPUPREP, "validate", t4_copy.host, "--profile", t4_copy.profile]
    command += ["--only", "transcode", "--json", "-q"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/") as process:
        works = "grep -qs encoder_codec /run/gpuprep-sim/nvml/loads/*"
        until(lambda: inside(t4_copy.machine, works, check=False).exit_code == 0, "no transcode began")
        with playing(t4_copy, "gpu_lost"):
            out, _ = process.communicate()
    (record,) = json.loads(out)["runs"]
    lost = [case for case in cases(record).values() if "CUDA_ERROR_" in case["decisive_line"]]
    assert len(lost) >= 20
    assert record["verdict"]["status"] == "FAIL"
    assert "CUDA sees no GPU: it is lost" in said(bad(record))
    assert inside(t4_copy.machine, "pgrep -x ffmpeg", check=False).stdout.strip() == ""


def test_after_the_faults_it_passes_again_and_leaves_nothing_behind(t4_copy: Finished) -> None:
    record = validated(t4_copy, "--quick", *([] if amount.ALL else ["--only", "gemm,bandwidth"]))
    assert not bad(record), said(bad(record))
    assert record["verdict"]["status"] == "PASS"
    left = inside(t4_copy.machine, "pgrep -x ffmpeg; ls /run/gpuprep-sim/nvml/loads", check=False)
    assert left.stdout.strip() == ""
