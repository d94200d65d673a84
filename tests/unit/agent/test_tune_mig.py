"""MIG as tuning.json wishes it: mode and instances, on the stand-in NVML of simulated machines."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from nvmlbench import Bench

from gpuprep.agent.gpu.mig import MigProfile
from gpuprep.agent.tuning.tunemig import placed
from gpuprep.records import Missing

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux" or shutil.which("gcc") is None, reason="needs Linux and gcc"),
    pytest.mark.skipif(os.geteuid() != 0, reason="NVML lets only root change settings"),
]

SEVEN = {"1g.18gb": 7}


@pytest.fixture
def hopper(tmp_path: Path) -> Bench:
    return booted(tmp_path, "h200")


@pytest.fixture
def ampere(tmp_path: Path) -> Bench:
    return booted(tmp_path, "a100")


def booted(folder: Path, *models: str) -> Bench:
    bench = Bench.made(folder)
    bench.boot(*models, version="580.95.05")
    return bench


def rows(report: Any) -> dict[str, tuple[str, str, bool, str]]:
    """property ► (before, after, as wanted, error) of MIG's rows of the first GPU."""
    return {
        row["property"]: (row["before"], row["after"], row["as_wanted"], row["error"])
        for row in report["rows"]
        if row["property"].startswith("mig") and row["gpu"] == 0
    }


def seen(bench: Bench) -> list[str]:
    """Profiles of the devices that programs see."""
    devices = bench.gpus()[0].mig_devices
    assert not isinstance(devices, Missing)
    return sorted(device.profile for device in devices)


def by_hand(bench: Bench, code: str) -> str:
    """Somebody's own calls of NVML; `make(id, start)` and `take(id)` are a profile's id, and an instance's."""
    return bench.ask(f"""
def make(profile, start):
    place = n.c_nvmlGpuInstancePlacement_t(start, 1)
    made = n.nvmlDeviceCreateGpuInstanceWithPlacement(h(), profile, ctypes.byref(place))
    n.nvmlGpuInstanceCreateComputeInstance(made, 0)
def take(instance):
    gi = n.nvmlDeviceGetGpuInstanceById(h(), instance)
    n.nvmlComputeInstanceDestroy(n.nvmlGpuInstanceGetComputeInstanceById(gi, 0))
    n.nvmlGpuInstanceDestroy(gi)
{code}""")


def test_hopper_is_cut_at_once_and_again_after_a_boot(hopper: Bench) -> None:
    assert hopper.tune("check", mig=SEVEN)["exit_code"] == 1
    report = hopper.tune("apply", mig=SEVEN)
    assert rows(report) == {
        "mig": ("disabled", "enabled", True, ""),
        "mig_instances": ("none", "7 x 1g.18gb", True, ""),
    }
    assert report["exit_code"] == 0
    assert seen(hopper) == ["1g.18gb"] * 7
    assert hopper.tune("check", mig=SEVEN)["exit_code"] == 0
    assert not any(row["changed"] for row in hopper.tune("apply", mig=SEVEN)["rows"])
    hopper.boot("h200", version="580.95.05")  # Hopper forgets the mode, too
    assert hopper.tune("check", mig=SEVEN)["exit_code"] == 1
    assert hopper.tune("apply", mig=SEVEN)["exit_code"] == 0
    assert len(seen(hopper)) == 7


def test_ampere_waits_for_a_reboot_and_is_cut_after_it(ampere: Bench) -> None:
    wish = {"3g.20gb": 1, "2g.10gb": 1, "1g.5gb": 2}
    first = ampere.tune("apply", mig=wish)
    (mode,) = [row for row in first["rows"] if row["property"] == "mig"]
    assert (mode["after"], mode["as_wanted"], mode["reboot_needed"]) == ("disabled, enabled after a reset", False, True)
    assert first["exit_code"] == 0
    assert ampere.gpus()[0].mig_pending is True
    ampere.boot("a100", version="580.95.05")
    assert seen(ampere) == []
    assert ampere.tune("apply", mig=wish)["exit_code"] == 0
    assert seen(ampere) == ["1g.5gb", "1g.5gb", "2g.10gb", "3g.20gb"]
    off = ampere.tune("apply", mig="disabled")
    assert rows(off)["mig"][1] == "enabled, disabled after a reset"
    assert seen(ampere) == []
    ampere.boot("a100", version="580.95.05")
    assert rows(ampere.tune("check", mig="disabled")) == {"mig": ("disabled", "disabled", True, "")}


def test_a_mode_that_somebody_will_have_off_after_the_boot_is_kept_on(ampere: Bench) -> None:
    ampere.put("gpu.0", mig="1", mig_pending="1")
    ampere.tune("apply", mig={"7g.40gb": 1})
    ampere.put("gpu.0", mig_pending="0")
    assert ampere.tune("check", mig={"7g.40gb": 1})["exit_code"] == 1
    assert rows(ampere.tune("apply", mig={"7g.40gb": 1}))["mig"] == (
        "enabled, disabled after a reset", "enabled", True, "",
    )  # fmt: skip
    assert seen(ampere) == ["7g.40gb"]


def test_only_what_lacks_is_made_and_work_beside_it_goes_on(hopper: Bench) -> None:
    hopper.tune("apply", mig=SEVEN)
    by_hand(hopper, "take(3)")
    uuids = {device.uuid for device in devices(hopper)}
    with hopper.load(memory_mib=100):
        report = hopper.tune("apply", mig=SEVEN)
    assert rows(report)["mig_instances"] == ("6 x 1g.18gb", "7 x 1g.18gb", True, "")
    assert uuids < {device.uuid for device in devices(hopper)}


def devices(bench: Bench) -> Any:
    return bench.gpus()[0].mig_devices


def test_what_nobody_wants_is_taken_away_and_not_while_the_gpu_works(hopper: Bench) -> None:
    hopper.tune("apply", mig=SEVEN)
    wish = {"3g.71gb": 2}
    with hopper.load(memory_mib=100):
        busy = hopper.tune("apply", mig=wish)
        off = hopper.tune("apply", mig="disabled")
    assert rows(busy)["mig_instances"][3].startswith("in use by ")
    assert f"(pid {os.getpid()}): end it first" in rows(off)["mig"][3]
    assert busy["exit_code"] == off["exit_code"] == 1
    assert len(seen(hopper)) == 7
    assert hopper.tune("apply", mig=wish)["exit_code"] == 0
    assert seen(hopper) == ["3g.71gb", "3g.71gb"]


def test_instances_that_lie_badly_make_way(hopper: Bench) -> None:
    """Two small ones where the large one must begin: the rest of the GPU is free, and it does not fit beside them."""
    hopper.tune("apply", mig={"1g.18gb": 2})
    by_hand(hopper, "take(1); make(19, 5)")
    wish = {"1g.18gb": 2, "4g.71gb": 1}
    assert hopper.tune("apply", mig=wish)["exit_code"] == 0
    assert seen(hopper) == ["1g.18gb", "1g.18gb", "4g.71gb"]


def test_an_instance_without_its_compute_instance_is_made_anew(hopper: Bench) -> None:
    hopper.tune("apply", mig={"1g.18gb": 1})
    by_hand(
        hopper,
        """
gi = n.nvmlDeviceGetGpuInstanceById(h(), 1)
n.nvmlComputeInstanceDestroy(n.nvmlGpuInstanceGetComputeInstanceById(gi, 0))""",
    )
    assert rows(hopper.tune("check", mig={"1g.18gb": 1}))["mig_instances"][:3] == (
        "1 x 1g.18gb in parts", "1 x 1g.18gb in parts", False,
    )  # fmt: skip
    assert hopper.tune("apply", mig={"1g.18gb": 1})["exit_code"] == 0
    assert seen(hopper) == ["1g.18gb"]


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        ({"1g.5gb": 1}, "this GPU has no profile 1g.5gb; it has 1g.18gb (7), 2g.35gb (3), "),
        ({"1g.18gb": 8}, "8 x 1g.18gb do not fit on this GPU together"),
        ({"4g.71gb": 1, "3g.71gb": 2}, "1 x 4g.71gb, 2 x 3g.71gb do not fit"),
        ({"1g.18gb+me": 2}, "2 x 1g.18gb+me do not fit"),
    ],
)
def test_what_cannot_be_is_said_and_leaves_what_there_is(hopper: Bench, wish: dict[str, int], words: str) -> None:
    hopper.tune("apply", mig={"2g.35gb": 1})
    report = hopper.tune("apply", mig=wish)
    assert words in rows(report)["mig_instances"][3]
    assert report["exit_code"] == 1
    assert seen(hopper) == ["2g.35gb"]


def test_a_gpu_without_mig(tmp_path: Path) -> None:
    bench = booted(tmp_path, "t4")
    assert rows(bench.tune("apply", mig={"1g.5gb": 1}))["mig"][3].startswith("this GPU has no MIG: not_supported")
    assert rows(bench.tune("apply", mig="disabled"))["mig"][2:] == (True, "")
    assert "mig" not in rows(bench.tune("apply"))


def test_keep_leaves_a_cut_gpu_alone(hopper: Bench) -> None:
    hopper.tune("apply", mig={"2g.35gb": 1})
    assert rows(hopper.tune("apply")) == {}
    assert seen(hopper) == ["2g.35gb"]


@pytest.mark.parametrize(("most", "fits"), [(7, True), (8, False)])
def test_equal_profiles_are_placed_without_trying_all_orders(most: int, fits: bool) -> None:
    small = MigProfile("1g.5gb", 19, 1, 8, 1, tuple(range(7)))
    assert (placed([small] * most, frozenset()) is not None) == fits
