"""Every way in which a GPU can be ill is named; what only looks ill (an idle link, the power cap) is not."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from builders import finished_snapshot, resolved
from healthkeys import HEALTH, Change, gpu
from records_for_tests import record

from gpuprep import checks, records
from gpuprep.catalogue import xids as catalogue_xids
from gpuprep.checks import commands

WANTED = resolved("t4", "debian13")
FINISHED = finished_snapshot(WANTED)
NOT_SUPPORTED = records.Missing("not_supported", "Not Supported")
BUS = "0000:00:1e.0"


def xids(*codes: int, address: str = BUS, message: str = "") -> Change:
    seen = tuple(records.Xid(code, address, message, "2026-11-20T10:00:00+00:00") for code in codes)
    return lambda snapshot: dataclasses.replace(snapshot, xids=seen)


def findings(change: Change) -> dict[str, records.Finding]:
    return {finding.key: finding for finding in checks.compare(WANTED, change(FINISHED))}


def named(change: Change) -> dict[str, records.Finding]:
    return {key: finding for key, finding in findings(change).items() if finding.status is not records.Status.PASS}


@pytest.mark.parametrize("key", HEALTH)
def test_each_illness_is_named_alone(key: str) -> None:
    change, status, why, remedy = HEALTH[key]
    found = named(change)
    assert list(found) == [key]
    assert found[key].status is status
    assert why in found[key].reason
    assert remedy in found[key].remedy
    assert found[key].role == ""


@pytest.mark.parametrize(
    ("mask", "status", "word"),
    [
        (0x48, records.Status.FAIL, "thermal"),
        (0x08, records.Status.FAIL, "hardware slowdown"),
        (0x20, records.Status.WARN, "heat at 40 °C"),
        (0x04, records.Status.PASS, ""),  # the power cap: normal life on a 70 W T4
        (0x01, records.Status.PASS, ""),
        (0x02, records.Status.PASS, ""),
        (0x00, records.Status.PASS, ""),
    ],
)
def test_reasons_by_gravity(mask: int, status: records.Status, word: str) -> None:
    finding = findings(gpu(event_reasons=mask))["gpu 0.slowdown_now"]
    assert finding.status is status
    assert word in finding.reason


def test_an_idle_link_is_not_judged() -> None:
    assert named(gpu(pcie=records.PcieLink(1, 4, 3, 16, 3, 9))) == {}


def test_pages_and_rows_by_gravity() -> None:
    assert named(gpu(retired_pages=records.RetiredPages(50, 12, False))) == {}
    worn = named(gpu(retired_pages=records.RetiredPages(50, 13, False)))["gpu 0.retired_pages"]
    assert (worn.status, "63 pages" in worn.reason) == (records.Status.FAIL, True)
    assert named(gpu(remapped_rows=records.RemappedRows(6, 3, False, False))) == {}
    pending = named(gpu(remapped_rows=records.RemappedRows(6, 3, True, False)))["gpu 0.remapped_rows"]
    assert (pending.status, "next reset" in pending.reason) == (records.Status.FAIL, True)


def test_what_a_gpu_does_not_have_is_no_finding() -> None:
    parts = ("mig_current", "mig_pending", "nvlinks", "processes")
    found = findings(gpu(**dict.fromkeys(parts, NOT_SUPPORTED)))
    assert not {f"gpu 0.{name}" for name in (*parts, "mig")} & found.keys()


def test_what_the_board_has_by_the_catalogue_and_nvml_does_not_tell_is_unknown() -> None:
    found = findings(gpu(**dict.fromkeys(("ecc_errors", "retired_pages", "remapped_rows"), NOT_SUPPORTED)))
    statuses = {name: found[f"gpu 0.{name}"].status for name in ("ecc_errors", "retired_pages", "remapped_rows")}
    unknown = records.Status.UNKNOWN
    assert statuses == {"ecc_errors": unknown, "retired_pages": unknown, "remapped_rows": records.Status.SKIP}


def test_links_all_down_matter_where_there_are_several_gpus() -> None:
    one, two = (resolved("a100", "debian13", ("a100",) * count) for count in (1, 2))
    lone, pair = finished_snapshot(one), finished_snapshot(two)
    assert {f.status for f in checks.compare(one, gpu(nvlinks=(False, False))(lone))} <= {
        records.Status.PASS,
        records.Status.SKIP,
    }
    (down,) = [f for f in checks.compare(one, gpu(nvlinks=(True, False))(lone)) if f.status is records.Status.FAIL]
    assert (down.key, down.reason, "nvlink -s" in down.remedy, down.role) == (
        "gpu 0.nvlinks", "1 of 2 NVLinks are down: 1", True, "")  # fmt: skip
    assert not isinstance(pair.gpus, records.Missing)
    neither = dataclasses.replace(
        pair, gpus=tuple(dataclasses.replace(one, nvlinks=(False, False)) for one in pair.gpus)
    )
    warned = [f.key for f in checks.compare(two, neither) if f.status is records.Status.WARN]
    assert warned == ["gpu 0.nvlinks", "gpu 1.nvlinks"]
    alone = [f for f in checks.compare(two, gpu(nvlinks=(False, False))(pair)) if f.status is records.Status.FAIL]
    assert [(f.key, "other GPUs of this machine have some" in f.reason) for f in alone] == [("gpu 0.nvlinks", True)]
    half = [f for f in checks.compare(two, gpu(nvlinks=(False, True))(pair)) if f.status is records.Status.FAIL]
    assert [f.key for f in half] == ["gpu 0.nvlinks"]


def test_mig_that_waits_for_a_reset() -> None:
    finding = named(gpu(mig_pending=True))["gpu 0.mig"]
    assert (finding.status, finding.actual) == (records.Status.WARN, "on after a reset")


def test_another_program_is_a_note_with_its_name() -> None:
    change = gpu(processes=(records.ProcessOnGpu(77, "python3", 300), records.ProcessOnGpu(78, "", NOT_SUPPORTED)))
    finding = findings(change)["gpu 0.processes"]
    assert finding.status is records.Status.PASS
    assert finding.actual == "python3 (pid 77), a program (pid 78)"
    assert "share the GPU with these programs" in finding.reason


def test_the_gravest_xid_speaks() -> None:
    found = findings(xids(13, 79, 13, 63, message="pid=1, GPU has fallen off the bus."))
    finding = found["gpu 0.xids"]
    assert finding.status is records.Status.FAIL
    assert finding.actual == "Xid 79, Xid 13 ×2, Xid 63"
    assert finding.reason == (
        "Xid 79 at 2026-11-20T10:00:00+00:00: the GPU fell off the bus (pid=1, GPU has fallen off the bus.)"
    )
    assert "stop the machine and start it again" in finding.remedy
    assert "driver.xids" not in found


# NVIDIA's catalogue (edition of 2025-10-29): what to do at once.
IGNORE = (37, 38, 43, 44, 63, 66, 67, 92, 93, 106, 107, 121, 137, 141, 152, 153, 157, 160, 161)
RESTART_APP = (
    8, 11, 13, 25, 31, 32, *range(39, 42), 60, *range(68, 73), *range(75, 78), 80, *range(82, 87), 88, 89, 94,
    *range(96, 106), *range(126, 136), 139,
)  # fmt: skip
RESET_GPU = (46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158)
OTHERS = (45, 48, 54, 74, 78, 79, 142, *range(144, 152), 154, 159, *range(162, 173))


def test_each_xid_is_judged_as_nvidia_s_catalogue_does() -> None:
    for code in IGNORE:
        assert findings(xids(code))["gpu 0.xids"].status is records.Status.PASS, code
    for code in RESTART_APP:
        meaning = catalogue_xids.xid(code)
        assert meaning.gravity in ("warn", "note"), code
        assert "start the program again" in meaning.remedy or "find the program" in meaning.remedy, code
    for code in RESET_GPU:
        finding = findings(xids(code))["gpu 0.xids"]
        assert finding.status in (records.Status.FAIL, records.Status.WARN), code
        assert "nvidia-smi -r" in finding.remedy, code
    for code in (*IGNORE, *RESTART_APP, *RESET_GPU, *OTHERS):
        finding = findings(xids(code))["gpu 0.xids"]
        assert "an error that gpuprep does not know" not in finding.reason, code
        assert f"Xid {code}" in finding.actual
        assert bool(finding.remedy) == (finding.status is not records.Status.PASS), code
    unknown = findings(xids(999))["gpu 0.xids"]
    assert (unknown.status, unknown.remedy) == (records.Status.WARN, "look up Xid 999 in NVIDIA's list of Xid errors")
    assert "an error that gpuprep does not know" in unknown.reason


# ---------------------------------------------------------------- one advice for each GPU

CHANGED = "GPU recovery action changed from 0x0 (None) to {} (as the driver says it)"


def advised(action: str | records.Missing, *lines: records.Xid) -> dict[str, records.Finding]:
    seen = dataclasses.replace(FINISHED, xids=lines)
    found = {finding.key: finding for finding in checks.compare(WANTED, gpu(recovery_action=action)(seen))}
    return {key: found[key] for key in ("gpu 0.recovery_action", "gpu 0.xids") if key in found}


def line(code: int, message: str = "") -> records.Xid:
    return records.Xid(code, BUS, message, "2026-11-20T10:00:00+00:00")


@pytest.mark.parametrize(
    ("action", "number", "status", "words"),
    [
        ("none", 0, records.Status.PASS, ""),
        ("reset", 1, records.Status.FAIL, "nvidia-smi -r -i INDEX"),
        ("reboot", 2, records.Status.FAIL, "reboot the machine"),
        ("drain_p2p", 3, records.Status.WARN, "end the programs that use several GPUs"),
        ("drain_and_reset", 4, records.Status.WARN, "let those that run end, then reset it"),
        ("recover_imex_domain", 5, records.Status.FAIL, "restart nvidia-imex"),
        ("bus_reset", 6, records.Status.FAIL, "stop the machine and start it again"),
        ("reboot", 7, records.Status.FAIL, "reboot the machine"),
    ],
)
def test_the_driver_says_it_in_nvml_and_in_the_log_and_means_the_same(
    action: str, number: int, status: records.Status, words: str
) -> None:
    asked = line(154, CHANGED.format(hex(number)))
    both = advised(action, asked)
    log = advised(NOT_SUPPORTED, asked)
    assert [one.status for one in (*both.values(), *log.values())] == [status] * 3
    assert "gpu 0.recovery_action" not in log, "what an older driver does not say is not 'none'"
    for finding in (*both.values(), *log.values()):
        assert words in finding.remedy
    assert len({finding.remedy for finding in both.values()}) == 1


@pytest.mark.parametrize(
    ("action", "codes", "words"),
    [
        ("reboot", (79, 154), "stop the machine and start it again"),  # a reboot keeps the computer
        ("reboot", (31, 154), "reboot the machine"),
        ("reset", (94, 154), "nvidia-smi -r -i INDEX"),
        ("drain_p2p", (48, 154), "nvidia-smi -r -i INDEX"),
        ("reset", (57,), "the GPU is defective"),
    ],
)
def test_of_all_that_a_gpu_needs_one_advice_does_the_rest_too(action: str, codes: tuple[int, ...], words: str) -> None:
    found = advised(action, *(line(code) for code in codes))
    assert len({finding.remedy for finding in found.values()}) == 1
    assert all(words in finding.remedy for finding in found.values())


def test_nvml_counts_more_than_an_older_line() -> None:
    gone = advised("none", line(154, CHANGED.format("0x2")))
    assert {finding.status for finding in gone.values()} == {records.Status.PASS}
    kept = advised("none", line(95), line(154, CHANGED.format("0x1")))["gpu 0.xids"]
    assert kept.status is records.Status.FAIL
    assert kept.reason.endswith("; the driver asks for no recovery now")
    again = advised(NOT_SUPPORTED, line(154, CHANGED.format("0x2")), line(154, CHANGED.format("0x0")))["gpu 0.xids"]
    assert again.status is records.Status.PASS


@pytest.mark.parametrize("message", ["", CHANGED.format("0x63"), "to 0x2", "x" * 9999])
def test_a_line_that_names_no_known_action_is_looked_at(message: str) -> None:
    assert advised(NOT_SUPPORTED, line(154, message))["gpu 0.xids"].status is records.Status.WARN


SHOWN = (13, 31, 48, 62, 63, 64, 74, 79, 92, 94, 95, 119)
CLOUDS = {
    "own machine": None,
    "AWS": records.CloudFacts("aws", "p5en.48xlarge", "DMI", "us-west-2/i-0123abcd"),
    "Google Cloud, A3 High": records.CloudFacts("gcp", "a3-highgpu-8g", "DMI", "team-1/us-west1-b/gpu-7"),
    "Azure": records.CloudFacts(
        "azure",
        "Standard_ND96isr_H200_v5",
        "DMI",
        "/subscriptions/0a/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/gpu-7",
    ),
}


def advice_page() -> Iterator[str]:
    asked = {f"Xid {code}": advised(NOT_SUPPORTED, line(code))["gpu 0.xids"] for code in SHOWN}
    for action in dict.fromkeys(records.RECOVERY_ACTIONS.values()):
        if action != "none":
            asked[f"the driver asks: {action}"] = advised(action)["gpu 0.recovery_action"]
    for remedy in dict.fromkeys(finding.remedy for finding in asked.values()):
        yield ", ".join(f"{name} {one.status.value}" for name, one in asked.items() if one.remedy == remedy)
        for place, rented in CLOUDS.items():
            after = record(after=dataclasses.replace(FINISHED, cloud=rented))
            yield f"  {place}: {commands.expanded(remedy, after, 'gpu 0') or 'nothing'}"


def test_the_advice_of_each_cloud() -> None:
    path, text = Path(__file__).parents[2] / "golden/advice.txt", "\n".join(advice_page()) + "\n"
    if os.environ.get("GPUPREP_UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    again = "run: GPUPREP_UPDATE_GOLDEN=1 pytest tests/unit/checks/test_health.py"
    assert path.read_text(encoding="utf-8") == text, again


def test_an_xid_of_a_gpu_that_is_gone_keeps_its_address() -> None:
    assert named(xids(79, address="0000:81:00.0"))["gpu 0000:81:00.0.xids"].status is records.Status.FAIL


@pytest.mark.parametrize(
    ("code", "address", "command"),
    [
        (48, BUS, "sudo nvidia-smi -r -i 0;"),
        (46, "0000:81:00.0", "sudo nvidia-smi -r -i 0000:81:00.0;"),
        (48, "0;reboot", "sudo nvidia-smi -r -i INDEX;"),
        (74, BUS, "end all programs on all GPUs (`sudo fuser -v /dev/nvidia*` shows them;"),
    ],
)
def test_a_reset_is_of_the_gpu_that_needs_it(code: int, address: str, command: str) -> None:
    """Without -i, nvidia-smi resets the GPUs of everybody."""
    (finding,) = [one for one in named(xids(code, address=address)).values() if one.property == "xids"]
    said = commands.expanded(finding.remedy, record(), finding.subject)
    assert command in said
    assert "sudo fuser -v /dev/nvidia*" in said


def test_a_lost_gpu_is_said_once_by_health() -> None:
    lost = records.Missing("gpu_is_lost", "GPU is lost")
    assert not isinstance(FINISHED.gpus, records.Missing)
    readings = {
        field.name: lost
        for field in dataclasses.fields(records.GpuFacts)
        if "Missing" in str(field.type) or str(field.type) in ("Str", "Int", "Float", "Bool")
    }
    found = named(gpu(**readings, uuid="", name="", pci_address="", pci_device_id=""))
    finding = found["gpu 0.on_the_bus"]
    assert (finding.status, finding.actual) == (records.Status.FAIL, "lost")
    assert "start it again" in finding.remedy
    assert not {"gpu 0.ecc_errors", "gpu 0.slowdown_now", "gpu 0.nvlinks"} & found.keys()


def test_an_old_record_lacks_health_and_says_so_once() -> None:
    parts = ("ecc_errors", "retired_pages", "remapped_rows", "mig_current", "mig_pending", "nvlinks", "processes")
    found = named(gpu(**dict.fromkeys(parts, records.NOT_READ)))
    assert {key: finding.status for key, finding in found.items()} == {"gpus.health": records.Status.UNKNOWN}
    assert "a gpuprep that did not read it yet" in found["gpus.health"].reason


def test_libraries_of_another_major_and_of_nobody_are_no_wrong_ones() -> None:
    extra = {
        "libcublasLt.so.11": "/opt/old/libcublasLt.so.11",
        "libnvrtc.so": None,
        "libcudnn.so.9": "/opt/c/libcudnn.so.9",
    }
    found = named(lambda s: dataclasses.replace(s, libraries={**s.libraries, **extra}))
    assert found == {}
    unknown = named(lambda s: dataclasses.replace(s, cuda=dataclasses.replace(s.cuda, library_folders=())))
    assert {key: finding.status for key, finding in unknown.items()} == {"cuda.libraries": records.Status.UNKNOWN}
    assert unknown["cuda.libraries"].remedy.endswith("--only cuda`")
    mine = dataclasses.replace(FINISHED.cuda, nvcc_path="/opt/mine/nvcc", library_folders=())
    another = findings(lambda s: dataclasses.replace(s, cuda=mine))["cuda.libraries"]
    assert "sudo mv /opt/mine/nvcc /opt/mine/nvcc.off" in another.remedy
    beside = {"libcudart.so.12": "/usr/lib/x86_64-linux-gnu-other/libcudart.so.12"}
    assert "cuda.libraries" in named(lambda s: dataclasses.replace(s, libraries={**s.libraries, **beside}))


def test_health_says_nothing_where_there_is_no_driver() -> None:
    change: Change = lambda s: dataclasses.replace(s, gpus=records.Missing("driver_not_loaded", "NVML"))  # noqa: E731
    assert not {key for key in findings(change) if key.endswith((".xids", ".ecc_errors")) or key == "cuda.libraries"}
