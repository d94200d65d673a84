"""The model of a simulated GPU: near the published figures, and moved by what moves a real one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from simulatedboot import KEYS, boot_with, performance

from gpuprep import records
from gpuprep.agent.gpu import simstate
from gpuprep.agent.probes import simulated
from gpuprep.sim import faults

APPLICATION_CLOCKS, SW_POWER_CAP = 2, 4  # of NVML's reasons of a clock
NOISE = 0.006  # of a figure, either way: the most that two samples differ by


def booted(folder: Path, key: str, **values: Any) -> simulated.SimulatedGpu:
    """A GPU right after a boot at its highest clocks, with `values` put into its state."""
    boot_with(folder, key, **values)
    return simulated.gpus(folder)[0]


# Published figures: facts of the GPU's own makers and users, low and high. TFLOPS; GB/s.
@pytest.mark.parametrize(
    ("key", "what", "low", "high"),
    [
        ("t4", "fp32", 4.1, 5.6), ("t4", "fp16", 25, 50), ("t4", "copy", 238, 246),
        ("v100", "fp16", 93, 101), ("v100", "fp32", 13.5, 14.6),
        ("v100", "read", 855, 875), ("v100", "triad", 800, 825),
        ("a100", "fp64", 18.5, 19.2), ("a100", "fp32", 18.0, 18.7), ("a100", "tf32", 125, 131),
        ("a100", "fp16", 273, 284), ("a100", "bf16", 258, 272), ("a100", "int8", 465, 490),
        ("a100-pcie", "bf16", 248, 265), ("h200", "bf16", 736, 804), ("h200", "copy", 4200, 4330),
    ],
)  # fmt: skip
def test_figures_are_near_the_published_ones(tmp_path: Path, key: str, what: str, low: float, high: float) -> None:
    gpu = booted(tmp_path, key)
    figure = gpu.memory_gb_per_s(what) if what in ("copy", "read", "triad") else gpu.tflops(what)
    assert not isinstance(figure, records.Missing)
    assert low <= figure <= high


@pytest.mark.parametrize("key", KEYS)
def test_no_figure_is_above_its_peak(tmp_path: Path, key: str) -> None:
    gpu = booted(tmp_path, key)
    model = performance(key)
    for dtype, rate in model["fma"].items():
        figure = gpu.tflops(dtype)
        peak = gpu.sms * rate * 2 * gpu.max_graphics_clock_mhz * 1e-6
        assert not isinstance(figure, records.Missing)
        assert 0 < figure < peak
        assert gpu.power_watts(dtype) <= gpu.power_limit_watts
    assert set(model["watts"]) >= {*model["fma"], "memory", "video"}
    assert set(model["efficiency"]) >= set(model["fma"])


def test_what_the_gpu_lacks_is_missing(tmp_path: Path) -> None:
    lacks = booted(tmp_path, "t4").tflops("bf16")
    assert isinstance(lacks, records.Missing)
    assert lacks.reason == "not_supported"
    assert "Tesla T4" in lacks.detail


def test_identity_and_link(tmp_path: Path) -> None:
    gpu = booted(tmp_path, "a100")
    assert (gpu.pci_device_id, gpu.architecture, gpu.sms, gpu.l2_mib) == ("20b0", "ampere", 108, 40)
    assert gpu.pcie() == {"generation": 4, "width": 16, "max_generation": 4, "max_width": 16}
    assert not gpu.lost


def test_a_lower_power_limit_lowers_clock_and_figure(tmp_path: Path) -> None:
    full, less = booted(tmp_path / "full", "t4"), booted(tmp_path / "less", "t4", power_limit_mw=60000)
    assert less.graphics_clock_mhz() < full.graphics_clock_mhz() < full.max_graphics_clock_mhz
    assert full.event_reasons() == less.event_reasons() == SW_POWER_CAP
    assert less.power_watts() <= 60
    assert figure(less) / figure(full) == pytest.approx(
        less.graphics_clock_mhz() / full.graphics_clock_mhz(), rel=2 * NOISE
    )


def test_default_application_clocks_hold_a_t4_back(tmp_path: Path) -> None:
    gpu = booted(tmp_path, "t4", app_graphics=585)
    assert gpu.graphics_clock_mhz() == 585
    assert gpu.event_reasons() == APPLICATION_CLOCKS


def test_a_figure_is_the_same_each_time_and_differs_a_little_between_samples(tmp_path: Path) -> None:
    gpu = booted(tmp_path, "v100")
    samples = [figure(gpu, sample) for sample in range(20)]
    assert samples == [figure(gpu, sample) for sample in range(20)]
    assert len(set(samples)) == 20
    assert max(samples) / min(samples) < 1 + 3 * NOISE


def figure(gpu: simulated.SimulatedGpu, sample: int = 0) -> float:
    value = gpu.tflops("fp16", "fp32", sample)
    assert not isinstance(value, records.Missing)
    return value


def test_load_is_seen_while_it_is_held_and_not_after(tmp_path: Path) -> None:
    gpu = booted(tmp_path, "t4")
    with gpu.load("fp16"), gpu.load("memory"):
        seen = simstate.loads(0, tmp_path)
        assert sorted(load["graphics"] for load in seen) == ["1590", str(gpu.graphics_clock_mhz("fp16"))]
        assert simstate.loads(1, tmp_path) == []
    assert simstate.loads(0, tmp_path) == []


def test_what_a_dead_program_left_counts_for_nothing(tmp_path: Path) -> None:
    booted(tmp_path, "t4")
    (tmp_path / "loads/0.4711.abc").write_text("graphics = 1500\n")
    assert simstate.loads(0, tmp_path) == []


def test_values_of_a_load_change_as_a_whole(tmp_path: Path) -> None:
    booted(tmp_path, "t4")
    with simstate.load(0, {"graphics": 1500, "encoder": 100}, tmp_path) as held:
        held.change({"graphics": 300})
        assert [{k: v for k, v in load.items() if k != "pid"} for load in simstate.loads(0, tmp_path)] == [
            {"graphics": "300"}
        ]


def test_without_a_driver_there_are_no_gpus(tmp_path: Path) -> None:
    boot_with(tmp_path, "t4", loaded=False)
    assert simulated.gpus(tmp_path) == []
    assert simulated.gpus(tmp_path / "nowhere") == []


def test_it_is_not_available_on_hardware(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated, "SIMULATION_MARK", tmp_path / "gpuprep-sim")
    assert not simulated.available()


@pytest.mark.parametrize("key", KEYS)
def test_a_lost_gpu_is_in_the_list(tmp_path: Path, key: str) -> None:
    assert booted(tmp_path, key, **faults.kinds()["gpu_lost"]["gpu"]).lost
