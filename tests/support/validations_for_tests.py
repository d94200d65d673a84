"""Whole records of validations: an H200 without NVENC, a simulated T4 under its power cap, real measurements."""

from __future__ import annotations

import dataclasses
from typing import Any

from measurements_for_tests import (
    H200,
    T4,
    cudnn,
    gemm,
    h200_bandwidth,
    h200_gemm,
    series,
    sustained,
    t4_transcode,
    telemetry,
    throughput,
)
from places import TESTS
from records_for_tests import SNAPSHOT, record

from gpuprep.records import (
    ClockPair,
    CodecFacts,
    CudaFacts,
    CudnnFacts,
    DriverFacts,
    Finding,
    GpuFacts,
    Missing,
    PciDevice,
    PowerLimits,
    ProbeResult,
    ProfileRef,
    RunRecord,
    Snapshot,
    Source,
    Status,
    Verdict,
    from_json,
)

REAL = TESTS / "cases" / "records"


def snapshot(gpu: dict[str, Any], driver: str, source: Source, clock: int, watts: float) -> Snapshot:
    """A host in order, with one `gpu`."""
    no_application_clocks = Missing("not_supported", "nvmlDeviceGetApplicationsClock")
    facts = GpuFacts(
        gpu["index"], gpu["uuid"], gpu["name"], "0000:00:1e.0", gpu["pci_device_id"], Missing("not_supported"), 143771,
        True, no_application_clocks, no_application_clocks, (ClockPair(3201, clock),), clock, 345, 3201,
        PowerLimits(watts, watts, watts / 3, watts), True, True, "default", 34, 1,
    )  # fmt: skip
    return dataclasses.replace(
        SNAPSHOT,
        source=source,
        hostname="gpu",
        pci_gpus=(PciDevice("0000:00:1e.0", "10de", gpu["pci_device_id"], "030200", "nvidia"),),
        driver=DriverFacts(driver, "open", driver, "open", driver, driver, driver, None, False, False, dkms=()),
        gpus=(facts,),
        cuda=CudaFacts("/usr/local/cuda/bin/nvcc", "13.0", "/usr/local/cuda/lib64/libcupti.so.13"),
        cudnn=CudnnFacts("/usr/lib/x86_64-linux-gnu/libcudnn.so.9", "9.14.0", None, None, "13"),
        codec=CodecFacts("13.0.19.0", "/usr/local/bin/ffmpeg", "/opt/ffmpeg/bin/ffmpeg", "7.1.5", "0ade7946d300", True),
    )


def h200() -> RunRecord:
    """All well, but the NVENC cases that this GPU cannot do."""
    unable = series("encode", "h264", "p4", 1, 1)
    unable.update(outcome="failed", steps=[], decisive_line="OpenEncodeSessionEx failed: unsupported device (2)")
    results = {
        "gemm": h200_gemm(),
        "bandwidth": h200_bandwidth(),
        "cudnn": cudnn(H200),
        "throughput": throughput(
            H200,
            [
                series("decode", "h264", None, 7900, 3),
                series("decode", "hevc", None, 11200, 4),
                series("decode", "av1", None, 9100, 3.4),
                unable,
                {**unable, "codec": "hevc"},
            ],
        ),
    }
    findings = (
        Finding("gpu 0", "gemm_bf16", Status.PASS, "≥75 % of 1071 TFLOPS", "763 TFLOPS, 96 % at its clock"),
        Finding("gpu 0", "gemm_fp64", Status.PASS, "≥80 % of peak", "56.4 TFLOPS, 84 %"),
        Finding("gpu 0", "copy", Status.PASS, "≥78 % of 4800 GB/s", "4260 GB/s, 89 %"),
        Finding(
            "gpu 0",
            "pcie",
            Status.WARN,
            "generation 5, width 16",
            "generation 5, width 8",
            "a narrow link halves every copy from the host",
            "reseat the card, or ask the cloud's support",
        ),
        Finding(
            "throughput encode h264",
            "outcome",
            Status.SKIP,
            "",
            "OpenEncodeSessionEx failed: unsupported device",
            "the H200 has no NVENC engine",
        ),
    )
    return record(
        "20261120-101500-h20000",
        command="validate",
        host="h200-1.example",
        source=Source.MEASURED,
        exit_code=0,
        before=None,
        after=snapshot(H200, "580.159.03", Source.MEASURED, 1980, 700.0),
        plan=None,
        playbook=None,
        profile=ProfileRef("h200", "/profiles/h200.yml", "fedcba9876543210" * 4),
        measurements=tuple(ProbeResult(name, Source.MEASURED, values, 30.0) for name, values in results.items()),
        verdict=Verdict(Status.WARN, "WARN: profile h200, 5 checks: 3 PASS, 1 WARN, 1 SKIP", findings),
        findings=findings,
    )


def several(count: int = 8) -> RunRecord:
    """`count` H200s in one host, the last one slower."""
    whole = h200()
    gpus = [{**H200, "index": n, "uuid": H200["uuid"][:-1] + str(n)} for n in range(count)]
    gemms, moved = h200_gemm(), h200_bandwidth()
    gemms["gpus"] = [{**gemms["gpus"][0], **gpu} for gpu in gpus]
    gemms["together"] = [
        {"index": n, "dtype": "bf16", "tflops": 610.0 if n == count - 1 else 700.0 + n, "graphics_clock_mhz": 1500}
        for n in range(count)
    ]
    moved["gpus"] = [{**moved["gpus"][0], **gpu} for gpu in gpus]
    moved["peers"] = [{**moved["peers"][0], "from": 0, "to": n} for n in range(1, count)]
    engines = [{**series("decode", "h264", None, 7900, 3), "gpu": gpu, "engines": 7} for gpu in gpus]
    values = {"gemm": gemms, "bandwidth": moved, "throughput": throughput(H200, engines)}
    answers = tuple(ProbeResult(name, Source.MEASURED, value, 30.0) for name, value in values.items())
    return dataclasses.replace(whole, measurements=answers)


def t4(**changes: Any) -> RunRecord:
    """A simulated T4 that lost speed to its power cap and failed a case."""
    square = (4096, 4096, 4096)
    gpu = {
        **T4,
        "sms": 40,
        "l2_mib": 4,
        "max_graphics_clock_mhz": 1590,
        "power_limit_watts": 70,
        "other_processes": [],
        "error": None,
        "gemms": [
            gemm("fp32", square, 4.6, 930, 70.0, sms=40),
            gemm("fp16", square, 27.4, 930, 70.0, sms=40, sustained=sustained(24.9, 810, 70.0, 1590)),
            gemm("fp16", (4095, 4095, 4095), 15.2, 990, 66.0, sms=40),
            gemm("int8", square, 55.0, 960, 69.0, sms=40),
        ],
    }
    moved = {
        **T4,
        "copy_gb_per_s": 238.0,
        "read_gb_per_s": 243.0,
        "triad_gb_per_s": 236.0,
        "h2d_gb_per_s": 12.1,
        "d2h_gb_per_s": 12.9,
        "buffer_mib": 512,
        "graphics_clock_mhz": 1590,
        "memory_clock_mhz": 5001,
        "event_reasons": 0,
        "pcie": {"generation": 3, "width": 16, "max_generation": 3, "max_width": 16},
        "telemetry": telemetry(1590, 55.0, seconds=2, top=1590),
        "error": None,
    }
    results: dict[str, dict[str, Any]] = {
        "toolkit": {"compiles": True, "nvcc": "/usr/bin/nvcc", "version": "12.4", "output": "", "seconds": 1.2},
        "gemm": {**h200_gemm(), "gpus": [gpu]},
        "bandwidth": {"quick": False, "libraries": [], "gpus": [moved], "peers": []},
        "cudnn": cudnn(T4),
        "transcode": t4_transcode(),
        "throughput": throughput(
            T4,
            [
                series("decode", "h264", None, 1150, 1.6),
                series("encode", "h264", "p4", 520, 1.1),
                series("encode", "h264", "p1", 910, 1.3),
                series("transcode", "h264", "p4", 500, 1.2),
            ],
        ),
    }
    findings = (
        Finding("gpu 0", "gemm_fp16", Status.PASS, "≥30 % of 65 TFLOPS", "27.4 TFLOPS, 42 %"),
        Finding("gpu 0", "persistence_mode", Status.PASS, "on", "on"),
        Finding("gpu 0", "copy", Status.PASS, "≥57 % of 320 GB/s", "238 GB/s, 74 %"),
        Finding("transcode resize", "result", Status.PASS, "completed", "completed"),
        Finding(
            "transcode scale_npp", "result", Status.SKIP, "", "not built", "this FFmpeg was built without scale_npp"
        ),
        Finding("transcode decode_av1", "result", Status.SKIP, "", "unsupported", "the T4's decoder does not know AV1"),
        Finding(
            "transcode one_to_n",
            "size",
            Status.FAIL,
            "1280×720",
            "1920×1080",
            "scale_cuda was not applied to the second output",
            "look at the command and its log; report it",
        ),
        Finding(
            "gpu 0", "xid", Status.UNKNOWN, "none", "not read", "the kernel's log is closed", "add the user to adm"
        ),
    )
    whole: dict[str, Any] = {
        "command": "validate",
        "before": None,
        "after": snapshot(T4, "550.163.01", Source.SIMULATED, 1590, 70.0),
        "measurements": tuple(ProbeResult(name, Source.SIMULATED, values, 12.0) for name, values in results.items()),
        "verdict": Verdict(Status.FAIL, "FAIL: profile t4, 8 checks: 4 PASS, 1 FAIL, 1 UNKNOWN, 2 SKIP", findings),
        "findings": findings,
        "plan": None,
        "playbook": None,
    }
    return record("20261120-102000-t40000", **{**whole, **changes})


def real() -> RunRecord:
    """The probes' own answers on a real H200 (tests/cases/records)."""
    answers = tuple(from_json(ProbeResult, path.read_text()) for path in sorted(REAL.glob("h200-*.json")))
    assert answers
    return dataclasses.replace(h200(), measurements=answers)
