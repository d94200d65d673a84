"""Records as runs make them, for tests of the store, the reports and the command line."""

from __future__ import annotations

import dataclasses
from typing import Any

from gemmrecords import gemm, gpu, values

from gpuprep.records import (
    CodecFacts,
    CudaFacts,
    CudnnFacts,
    DkmsModule,
    DriverFacts,
    Finding,
    KernelFacts,
    Missing,
    OsFacts,
    Package,
    PciDevice,
    Plan,
    PlaybookResult,
    ProbeResult,
    ProfileRef,
    RunRecord,
    ShellFacts,
    Snapshot,
    Source,
    Status,
    Step,
    TaskResult,
    UnitFacts,
    Verdict,
)

SNAPSHOT = Snapshot(
    taken_at="2026-11-20T10:00:00+00:00",
    source=Source.SIMULATED,
    agent_version="0.1.0",
    hostname="t4",
    os=OsFacts("debian", "13", "trixie", "Debian GNU/Linux 13 (trixie)", "x86_64"),
    kernel=KernelFacts("6.12.57+deb13-cloud-amd64", "6.12.57+deb13-cloud-amd64", True, True, True, False, "b", 60.0),
    virtualization="kvm",
    is_root=True,
    pci_gpus=(PciDevice("0000:00:1e.0", "10de", "1eb8", "030200", None),),
    nvswitches=0,
    driver=DriverFacts(
        None,
        None,
        None,
        None,
        None,
        None,
        Missing("library_not_found", "libnvidia-ml.so.1"),
        None,
        False,
        None,
        dkms=(DkmsModule("nvidia-current", "550.163.01", None, "added"),),
    ),
    packages={"nvidia-smi": Package("550.163.01-2", True)},
    gpus=Missing("driver_not_loaded"),
    locked_clocks=(),
    cuda=CudaFacts(None, None, None),
    cudnn=CudnnFacts(None, None, None, None, None),
    codec=CodecFacts(None, None, None, None, None, None),
    shells=ShellFacts({}, {}, {}),
    units={"nvidia-persistenced": UnitFacts("enabled", "active")},
    files={"/etc/gpuprep/tuning.json": None},
    commands={},
    python_modules={},
    mounts=(),
    disk_free_mib={"/": 40000},
    cloud_init="absent",
    provenance=None,
)

FINDINGS = (
    Finding("driver", "loaded_version", Status.PASS, "550.163.01", "550.163.01", role="gpu_driver"),
    Finding(
        "gpu 0",
        "persistence_mode",
        Status.FAIL,
        "on",
        "off",
        "without it every start of a program pays for waking the GPU",
        "gpuprep tune HOST --profile t4",
        "gpu_tuning",
    ),
    Finding(
        "ffmpeg", "parts", Status.UNKNOWN, "h264_nvenc", "not read", "the probe did not answer", "run validate again"
    ),
    Finding("gpu 0", "ecc", Status.SKIP, "keep", "enabled", "the profile leaves ECC as it is"),
    Finding("packages", "held", Status.PASS, "yes", "yes"),
)

PLAN = Plan(
    "sim:t4",
    "t4",
    (
        Step("gpu_driver", "Install the NVIDIA driver", ("no module is loaded", "nvidia-smi is missing"), True),
        Step("gpu_codec", "Build FFmpeg with NVENC and NVDEC", ("ffmpeg is not installed",)),
    ),
    ("the driver will be proprietary: the T4 takes either",),
)


def record(run_id: str = "20261120-100000-abc123", **changes: Any) -> RunRecord:
    """A provision run that ended in FAIL on a simulated machine; `changes` replace fields."""
    whole = RunRecord(
        run_id=run_id,
        command="provision",
        host="sim:t4",
        started_at="2026-11-20T10:00:00+00:00",
        ended_at="2026-11-20T10:09:30+00:00",
        source=Source.SIMULATED,
        exit_code=1,
        gpuprep_version="0.1.0",
        profile=ProfileRef("t4", "/profiles/t4.yml", "0123456789abcdef" * 4),
        plan=PLAN,
        playbook=PlaybookResult(
            "successful",
            2,
            5,
            0,
            (
                TaskResult("gpu_driver", "Install packages", "changed", 91.5),
                TaskResult("gpu_codec", "Wait for the build", "changed", 180.2),
                TaskResult("", "Gather", "ok", 0.4),
            ),
            "/logs/ansible.log",
            300.0,
        ),
        before=SNAPSHOT,
        after=SNAPSHOT,
        measurements=(ProbeResult("toolkit", Source.SIMULATED, {"compiles": True, "seconds": 2.5}, 2.6),),
        verdict=Verdict(Status.FAIL, "FAIL: profile t4, 5 checks: 1 FAIL, 1 UNKNOWN", FINDINGS),
        findings=FINDINGS,
        options={"check": False, "only": []},
    )
    passed = {"exit_code": 0} if changes.get("verdict") is PASSED else {}
    return dataclasses.replace(whole, **{**passed, **changes})


PASSED = Verdict(Status.PASS, "PASS: profile a100, 5 checks", FINDINGS[:1])


def measured(
    run_id: str, tflops: float, *, day: int = 1, source: Source = Source.MEASURED, **changes: Any
) -> RunRecord:
    """A validation of host gpu-1 that passed and measured one figure, in the night of 2026-11-`day`."""
    probed = ProbeResult("gemm", source, values(gpu("20b0", [gemm("fp16", tflops)])), 10.0)
    made: dict[str, Any] = {"command": "validate", "host": "gpu-1", "verdict": PASSED, "exit_code": 0}
    moment = f"2026-11-{day:02d}T02:30:00+00:00"
    after = dataclasses.replace(SNAPSHOT, source=source)
    made |= {"started_at": moment, "source": source, "measurements": (probed,), "after": after, **changes}
    return record(run_id, **made)
