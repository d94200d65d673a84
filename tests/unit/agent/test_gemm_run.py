"""Measuring on a GPU, with a device and a library that do as they are told: failures, choices, several GPUs.

The CUDA bindings are not installed where these tests run; in their place stand modules made here.
"""

# ruff: noqa: ARG001, ARG002, ARG005  (the stand-ins take what the real ones take)

from __future__ import annotations

import importlib
import itertools
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from fakegpu import t4
from fakepynvml import FakePynvml
from samplerows import Scripted, loaded_answers, row

from gpuprep import records
from gpuprep.agent import probes
from gpuprep.agent.compute import cudacalls, libraries
from gpuprep.agent.gpu import nvml
from gpuprep.agent.probes import burst, gemm, gemmalgorithm, gemmpace, gemmshapes, gemmtypes, simulated

RUN = "gpuprep.agent.probes.gemmrun"
SHAPES = [[256, 256, 256], [512, 256, 256]]
TOOLKIT = {"nvcc": "/usr/bin/nvcc", "version": "13.0", "library_dirs": ["/usr/lib/x86_64-linux-gnu"]}


class CUDAError(Exception):
    pass


class LtError(Exception):
    pass


@dataclass
class Candidate:
    milliseconds: float
    works: bool = True
    steady: float = 0.0  # ms from the seventh time on; 0: as before
    ran: int = 0
    description: dict[str, Any] = field(default_factory=lambda: {"tile": "TILE_128x128"})


class World:
    """What the stand-ins do. `refuse`: (dtype, m) ─► the error of that product's memory."""

    def __init__(self) -> None:
        self.candidates: Callable[[], list[Candidate]] = lambda: [Candidate(1.0)]
        self.turned_candidates: Callable[[], list[Candidate]] = lambda: [Candidate(1.0)]
        self.turned = 0
        self.refuse: dict[tuple[str, int], Exception] = {}
        self.gone_after: int | None = None
        self.capability = (8, 0)
        self.open_products = 0
        self.products = 0
        self.readings = 0
        self.events: list[str] = []
        self.clock: Callable[[], float] = lambda: 1410.0
        self.milliseconds: Callable[[list[Callable[[], float]]], list[float]] = lambda works: [work() for work in works]
        self.invisible: set[str] = set()


class FakeDevice:
    def __init__(self, world: World, address: str) -> None:
        if address in world.invisible:
            raise LookupError(f"CUDA does not see the GPU at {address}, NVML does")
        self.world, self.sms, self.l2_bytes, self.capability = world, 40, 4 * 2**20, world.capability

    def compile(self, source: str, names: tuple[str, ...]) -> None:
        assert all(f"void {name}(" in source for name in names)

    def use(self) -> None:
        pass

    def sync(self) -> None:
        if self.world.gone_after is not None and self.world.products >= self.world.gone_after:
            raise CUDAError("CUDA_ERROR_DEVICE_UNAVAILABLE")

    def ticks(self) -> float:
        self.world.readings += 1
        self.world.events.append("ticks")
        return self.world.readings

    def milliseconds(self, works: list[Callable[[], float]]) -> list[float]:
        self.world.events.append("work")
        return self.world.milliseconds(works)

    def elapsed_milliseconds(self, works: list[Callable[[], float]]) -> float:
        self.world.events.append(f"{len(works)} together")
        return sum(work() for work in works)

    def launch(self, name: str, grid: int, block: int, nanoseconds: int) -> None:
        self.world.events.append(f"{name} {nanoseconds}")


class FakeProduct:
    def __init__(self, world: World, device: FakeDevice, kind: gemmtypes.DataType, shape: gemmshapes.Shape) -> None:
        self.world, self.device, self.kind, self.shape, self.operands = world, device, kind, shape, [()]

    def allocate(self, sets: int | None = None) -> None:
        self.world.open_products += 1
        error = self.world.refuse.get((self.kind.key, self.shape.m))
        if error:
            raise error

    def turned(self) -> FakeProduct:
        m, n, k = self.shape
        other = FakeProduct(self.world, self.device, self.kind, gemmshapes.Shape(n, m, k))
        self.world.open_products += 1
        self.world.turned += 1
        other.candidates = lambda most: self.world.turned_candidates()[:most]  # type: ignore[method-assign]
        return other

    def close(self) -> None:
        self.world.open_products -= 1

    def candidates(self, most: int) -> list[Candidate]:
        return self.world.candidates()[:most]

    def run(self, candidate: Candidate, turn: int | None = None) -> float:
        if not candidate.works:
            raise LtError("NOT_SUPPORTED")
        candidate.ran += 1
        return candidate.steady if candidate.steady and candidate.ran > 6 else candidate.milliseconds


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World()

    def exact(product: FakeProduct, candidate: Candidate) -> bool:
        world.products += 1
        return True

    modules: dict[str, dict[str, Any]] = {
        "cuda": {},
        "cuda.core": {},
        "cuda.core._utils": {},
        "cuda.core._utils.cuda_utils": {"CUDAError": CUDAError},
        "gpuprep.agent.probes.cublaslt": {
            "Error": LtError,
            "Candidate": Candidate,
            "Product": lambda *arguments: FakeProduct(world, *arguments),
            "version": lambda: "13.1.0",
            "load_kernels": lambda device, kinds, shape: None,
        },
        "gpuprep.agent.probes.cudadevice": {
            "CudaDevice": lambda address: FakeDevice(world, address),
            "clock_mhz": lambda before, after: world.clock(),
        },
        "gpuprep.agent.probes.gemmcheck": {
            "fill": lambda product, seed, whole=False: None,
            "reference_error": lambda product, candidate: 1e-4,
            "exact": exact,
        },
    }
    for name, members in modules.items():
        module = types.ModuleType(name)
        module.__dict__.update(members)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.setattr(probes, "cublaslt", sys.modules["gpuprep.agent.probes.cublaslt"], raising=False)
    monkeypatch.setattr(probes, "cudadevice", sys.modules["gpuprep.agent.probes.cudadevice"], raising=False)
    monkeypatch.setattr(probes, "gemmcheck", sys.modules["gpuprep.agent.probes.gemmcheck"], raising=False)
    monkeypatch.delitem(sys.modules, RUN, raising=False)
    yield world
    sys.modules.pop(RUN, None)
    probes.__dict__.pop("gemmrun", None)


class FakeGpu(Scripted):
    def __init__(self, facts: records.GpuFacts) -> None:
        super().__init__(facts.index, [row(power_watts=69.0, event_reasons=4)])
        self._facts = facts

    def facts(self) -> records.GpuFacts:
        return self._facts

    def processes(self) -> list[Any]:
        return []


SHORT = {
    "warm_seconds": 0.0,
    "pause_seconds": 0.0,
    "rest_seconds": 0.0,
    "load_seconds": 0.0,
    "candidates": 8,
    "finalists": 2,
    "final_seconds": 0.06,
    "final_rounds": 2,
    "sustained_seconds": 0.0,
}


def session(world: World, **settings: Any) -> Any:
    run = importlib.import_module(RUN)
    rule = burst.Rule(most_seconds=0.05)
    given = {**SHORT, "together_seconds": 0.0, "shapes": SHAPES, "main_dtype": None, "one_shape": False, "rule": rule}
    return run.Session(FakeGpu(t4()), "0000:00:04.0", run.Settings(**{**given, **settings}))


def test_every_type_and_shape_is_measured(world: World) -> None:
    gemms: list[dict[str, Any]] = []
    assert session(world).measure(gemms, gemmpace.Pace(0, 1)) is None
    assert [(one["dtype"], one["m"]) for one in gemms[:2]] == [("bf16", 256), ("bf16", 512)]
    assert len(gemms) == 2 * len(gemmtypes.of_gpu((8, 0)))
    assert {one["graphics_clock_mhz"] for one in gemms} == {1410.0}
    assert {one["event_reasons"] for one in gemms} == {4}
    assert world.open_products == 0


def test_the_clock_is_that_of_the_burst_that_counts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three bursts, none steady, the second the fastest: the clock is counted while it runs, and not in the others."""
    tested = session(world, rule=burst.Rule(tries=3))
    bursts = itertools.chain([[1.4, 1.6], [0.9, 1.1], [1.2, 1.4]], itertools.repeat([1.0]))
    durations: list[Iterator[float]] = [itertools.repeat(1.0)]
    rests: list[int] = []

    def rest(_: float) -> None:
        durations.append(itertools.cycle(next(bursts)))
        rests.append(world.readings)

    monkeypatch.setattr("time.sleep", rest)
    world.clock = lambda: 1000.0 * len(rests)
    world.milliseconds = lambda works: list(itertools.islice(durations[-1], len(works)))
    product = FakeProduct(world, FakeDevice(world, "x"), gemmtypes.TYPES[0], gemmshapes.Shape(*SHAPES[0]))
    found = tested.burst(product, Candidate(1.0))
    assert len(rests) == 3
    assert found["microseconds"] == pytest.approx(1000, abs=101)
    assert found["graphics_clock_mhz"] == 2000.0


def test_a_short_product_is_measured_in_groups_that_the_host_prepared(world: World) -> None:
    """Alone each takes 0.02 ms, because the host starts no faster; the GPU needs 0.005."""
    world.milliseconds = lambda works: [0.02 for work in works if work() >= 0]
    tested = session(world)
    product = FakeProduct(world, FakeDevice(world, "x"), gemmtypes.TYPES[0], gemmshapes.Shape(*SHAPES[0]))
    best, milliseconds = tested.best(product, [Candidate(0.005), Candidate(0.004), Candidate(0.006)])
    assert milliseconds == pytest.approx(0.004)
    assert best.milliseconds == 0.004
    world.events.clear()
    found = tested.burst(product, best)
    assert (found["microseconds"], found["rel_stdev_percent"]) == (pytest.approx(4.0), pytest.approx(0.0))
    assert found["iterations"] >= 30
    first = world.events.index("hold 800000")
    assert world.events[first + 1] == "20 together"


def test_a_quick_burst_of_a_short_product_has_several_pulses(world: World) -> None:
    """One pulse would have no spread, whatever the GPU does."""
    world.milliseconds = lambda works: [0.02 for work in works]
    rule = burst.Rule(batch_seconds=0.002, least_samples=16, least_seconds=0.02, tries=1)
    tested = session(world, pause_seconds=1e-9, rule=rule)
    found = tested.burst(
        FakeProduct(world, FakeDevice(world, "x"), gemmtypes.TYPES[0], gemmshapes.Shape(*SHAPES[0])), Candidate(0.004)
    )
    assert found["microseconds"] == pytest.approx(4.0)
    assert world.events.count("ticks") >= 2 * 8


def test_a_product_that_outlasts_the_host_is_timed_alone(world: World) -> None:
    tested = session(world)
    tested.burst(
        FakeProduct(world, FakeDevice(world, "x"), gemmtypes.TYPES[0], gemmshapes.Shape(*SHAPES[0])), Candidate(0.05)
    )
    assert not [event for event in world.events if event.startswith("hold")]


def test_the_main_type_is_also_measured_at_length(world: World) -> None:
    gemms: list[dict[str, Any]] = []
    session(world, main_dtype="tf32", sustained_seconds=0.02).measure(gemms, gemmpace.Pace(0, 1))
    sustained = [(one["dtype"], one["m"]) for one in gemms if one["sustained"]]
    assert sustained == [("tf32", 256)]
    assert gemms[0]["sustained"]["tflops"] == pytest.approx(2 * 256**3 / 1e9, abs=0.01)


def test_no_memory_for_one_product_leaves_the_others(world: World) -> None:
    world.refuse["fp64/fp64", 512] = CUDAError("CUDA_ERROR_OUT_OF_MEMORY")
    gemms: list[dict[str, Any]] = []
    assert session(world).measure(gemms, gemmpace.Pace(0, 1)) is None
    failed = [one for one in gemms if one["error"]]
    assert [(one["dtype"], one["m"], one["error"]) for one in failed] == [
        ("fp64", 512, "CUDAError: CUDA_ERROR_OUT_OF_MEMORY")
    ]
    assert isinstance(failed[0]["tflops"], records.Missing)
    assert len(gemms) == 2 * len(gemmtypes.of_gpu((8, 0)))
    assert world.open_products == 0


def test_a_gpu_that_is_gone_ends_its_measurements(world: World) -> None:
    world.gone_after = 3
    gemms: list[dict[str, Any]] = []
    assert session(world).measure(gemms, gemmpace.Pace(0, 1)) == "CUDAError: CUDA_ERROR_DEVICE_UNAVAILABLE"
    assert len(gemms) == 3


def test_a_type_that_cublaslt_has_nothing_for(world: World) -> None:
    world.candidates = list
    one = session(world).product(gemmtypes.TYPES[0], gemmshapes.Shape(256, 256, 256), sustain=False)
    assert one["error"] == "cuBLASLt has no algorithm for it on this GPU"


def test_the_fastest_candidate_is_taken_and_one_that_fails_is_left_out(world: World) -> None:
    candidates = [Candidate(1.2), Candidate(0.5, works=False), Candidate(0.9), Candidate(1.0)]
    shape = gemmshapes.Shape(*SHAPES[0])
    product = FakeProduct(world, None, gemmtypes.TYPES[0], shape)  # type: ignore[arg-type]
    best, _ = session(world).best(product, candidates)
    assert best is candidates[2]


def test_a_finalist_that_met_a_bad_moment_has_a_second_round(world: World) -> None:
    """The power cap acts more in one trial than in another: with one round the slower algorithm won."""
    good, slower = Candidate(1.0), Candidate(1.05)
    unlucky = iter([1.0] * 3 + [1.1] * 60)  # its glance, then the whole of its first trial

    def times(works: list[Callable[[], float]]) -> list[float]:
        return [next(unlucky, 1.0) if (time := work()) == 1.0 else time for work in works]

    world.milliseconds = times
    product = FakeProduct(world, None, gemmtypes.TYPES[0], gemmshapes.Shape(*SHAPES[0]))  # type: ignore[arg-type]
    assert session(world).best(product, [good, slower])[0] is good
    unlucky = iter([1.0] * 3 + [1.1] * 60)
    assert session(world, final_rounds=1).best(product, [good, slower])[0] is slower
    ran = [good.ran]
    for rounds in (1, 2):  # cuBLASLt's own choice wins at once: no second round
        assert session(world, final_rounds=rounds).best(product, [good, slower])[0] is good
        ran.append(good.ran)
    assert ran[1] - ran[0] == ran[2] - ran[1]


def test_of_a_product_and_its_transpose_the_faster_counts(world: World) -> None:
    """FP64 of 8192x16384x4096 was 6 % faster as its transpose on an H100: PyTorch, with rows in memory, got that."""
    turned = Candidate(0.5, description={"tile": "TILE_64x128"})
    world.turned_candidates = lambda: [turned, Candidate(2.0)]
    fp64 = next(kind for kind in gemmtypes.TYPES if kind.dtype == "fp64")
    found = session(world).product(fp64, gemmshapes.Shape(512, 256, 256), sustain=False)
    assert (found["m"], found["n"], found["microseconds"]) == (512, 256, 500.0)
    assert found["algorithm"] == {"tile": "TILE_64x128", "candidates": 3}
    world.turned_candidates = list
    found = session(world).product(fp64, gemmshapes.Shape(512, 256, 256), sustain=False)
    assert (found["microseconds"], found["algorithm"]["candidates"], world.open_products) == (1000.0, 1, 0)
    session(world).product(fp64, gemmshapes.Shape(256, 256, 256), sustain=False)  # a square product is its own
    session(world).product(gemmtypes.TYPES[0], gemmshapes.Shape(512, 256, 256), sustain=False)
    assert world.turned == 2


def test_the_tile_of_a_transpose_is_in_rows_and_columns_of_d() -> None:
    algorithm = gemmalgorithm.described("TILE_128x64", "STAGES_16x3", 1, 2.0)
    assert gemmalgorithm.mirrored(algorithm) == {**algorithm, "tile": "TILE_64x128", "tile_m": 64, "tile_n": 128}
    unknown = gemmalgorithm.described("TILE_UNDEFINED", "STAGES_16x3", 1, 2.0)
    assert gemmalgorithm.mirrored(unknown) == unknown


def test_cublaslts_own_choice_is_tried_at_length_though_it_looks_slow(world: World) -> None:
    """Under the power cap the one that looked fast is slower in the end."""
    candidates = [Candidate(1.3, steady=1.0), *[Candidate(0.9 + i / 100, steady=1.2) for i in range(4)]]
    shape = gemmshapes.Shape(*SHAPES[0])
    product = FakeProduct(world, None, gemmtypes.TYPES[0], shape)  # type: ignore[arg-type]
    best, _ = session(world).best(product, candidates)
    assert best is candidates[0]


def test_of_pulses_each_counts_with_its_median_and_the_pauses_do_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under a power cap the clock falls within each pulse, in all of them alike: that is no spread."""
    rule = burst.Rule(batch_seconds=0.004, least_samples=16, least_seconds=0.02, tries=1)
    tested = session(world, pause_seconds=0.012, rule=rule)
    events = world.events
    monkeypatch.setattr("time.sleep", lambda seconds: events.append(f"pause {seconds}"))
    world.milliseconds = lambda works: [9.0, 0.8, 1.0, 1.2, 1.0][: len(works)] if len(works) > 2 else [9.0, 1.0]
    product = FakeProduct(world, FakeDevice(world, "x"), gemmtypes.TYPES[0], gemmshapes.Shape(*SHAPES[0]))
    found = tested.burst(product, Candidate(1.0))
    assert (found["microseconds"], found["rel_stdev_percent"], found["iterations"]) == (1000.0, 0.0, 21)
    begun = events.index("pause 0.012")
    assert events[begun : begun + 8] == ["pause 0.012", "ticks", "work", "ticks"] * 2


def test_when_no_candidate_runs_the_product_says_so(world: World) -> None:
    world.candidates = lambda: [Candidate(1.0, works=False)]
    one = session(world).product(gemmtypes.TYPES[0], gemmshapes.Shape(256, 256, 256), sustain=False)
    assert one["error"] == "RuntimeError: none of cuBLASLt's proposals runs"
    assert world.open_products == 0


# ------------------------------------------------------------ the whole probe


@pytest.fixture
def machine(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    def has(count: int) -> None:
        told = {
            **loaded_answers(),
            "nvmlDeviceGetCount": count,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetUUID": lambda index: f"GPU-{index:08d}",
            "nvmlDeviceGetPciInfo": lambda index: types.SimpleNamespace(
                busId=f"00000000:00:{index + 4:02x}.0", pciDeviceId=0x1EB810DE, pciSubSystemId=0x12A210DE
            ),
            **{f"nvmlDeviceGet{kind}RunningProcesses": [] for kind in ("Compute", "Graphics")},
        }
        monkeypatch.setattr(nvml, "pynvml", FakePynvml(told))

    has(1)
    monkeypatch.setattr(gemm, "FULL", {**SHORT, "together_seconds": 0.01})
    monkeypatch.setattr(gemm, "QUICK", {**SHORT, "together_seconds": 0.01})
    monkeypatch.setattr(gemm, "QUICK_RULE", burst.Rule(most_seconds=0.02))
    monkeypatch.setattr(cudacalls, "versions", lambda names: dict.fromkeys(names, "1.0.0"))
    monkeypatch.setattr(libraries, "toolkit", lambda: TOOLKIT)
    monkeypatch.setattr(simulated, "SIMULATION_MARK", tmp_path / "none")
    return has


def test_one_gpu_whole(machine: Callable[[int], None]) -> None:
    values = gemm.measure({"shapes": SHAPES[:1], "quick": True})
    assert isinstance(values, dict)
    assert (values["quick"], values["toolkit"], values["together"]) == (True, TOOLKIT, None)
    assert values["bindings"] == dict.fromkeys(("nvmath-python", "cuda-bindings", "cuda-core"), "1.0.0")
    (gpu,) = values["gpus"]
    assert (gpu["sms"], gpu["l2_mib"], gpu["error"], gpu["other_processes"]) == (40, 4, None, [])
    assert len(gpu["gemms"]) == 7


def test_all_at_once_after_each_alone(machine: Callable[[int], None]) -> None:
    machine(3)
    values = gemm.measure({"shapes": SHAPES[:1], "quick": True, "main_dtype": "fp16"})
    assert isinstance(values, dict)
    assert [gpu["error"] for gpu in values["gpus"]] == [None, None, None]
    assert [(one["index"], one["dtype"]) for one in values["together"]] == [(0, "fp16"), (1, "fp16"), (2, "fp16")]
    assert all(one["tflops"] > 0 for one in values["together"])


def test_of_many_gpus_all_are_measured_rested_and_the_first_in_more_shapes(
    machine: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are compared with each other: a figure from before the power cap and one from under it cannot be."""
    machine(3)
    monkeypatch.setattr(gemm, "BRIEF", {**gemm.BRIEF, "warm_seconds": 0.0, "rest_seconds": 0.0, "load_seconds": 0.0})
    monkeypatch.setattr(gemm, "QUICK", {**gemm.QUICK, "pause_seconds": 0.5})
    monkeypatch.setattr(gemm, "QUICK_RULE", burst.Rule(least_samples=2))
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)
    values = gemm.measure({})
    assert isinstance(values, dict)
    assert [shapes_of_a_type(gpu) for gpu in values["gpus"]] == [4, 1, 1]
    assert set(pauses) == {0.0}  # bursts of pulses are another figure
    assert {one["iterations"] >= burst.Rule().least_samples for gpu in values["gpus"] for one in gpu["gemms"]} == {True}


def shapes_of_a_type(gpu: dict[str, Any]) -> float:
    return len(gpu["gemms"]) / len(gemmtypes.of_gpu((8, 0)))


def test_a_full_measurement_of_another_length_has_all_its_shapes(
    machine: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gemm, "FULL", {**gemm.FULL, "sustained_seconds": 600.0})
    values = gemm.measure({"sustained_seconds": 0})
    assert isinstance(values, dict)
    (gpu,) = values["gpus"]
    assert shapes_of_a_type(gpu) == 4
    assert {one["sustained"] for one in gpu["gemms"]} == {None}


def test_a_gpu_that_cuda_does_not_see_leaves_the_others(world: World, machine: Callable[[int], None]) -> None:
    machine(2)
    world.invisible.add("0000:00:04.0")
    values = gemm.measure({"shapes": SHAPES[:1], "quick": True})
    assert isinstance(values, dict)
    hidden, seen = values["gpus"]
    assert hidden["error"] == "LookupError: CUDA does not see the GPU at 0000:00:04.0, NVML does"
    assert hidden["gemms"] == []
    assert hidden["sms"] == {"missing": "not_measured", "detail": "the GPU was not opened"}
    assert (seen["error"], len(seen["gemms"])) == (None, 7)
    assert values["together"] is None


def test_one_that_fails_when_all_run_does_not_hold_up_the_others(world: World) -> None:
    run = importlib.import_module(RUN)
    world.refuse["fp16/fp32", 256] = CUDAError("CUDA_ERROR_ECC_UNCORRECTABLE")
    well, ill = session(world, together_seconds=0.01), session(world, main_dtype="fp16")
    ill.gpu.index = 1
    rows = run.together([well, ill], 0.01)
    assert rows[0]["tflops"] > 0
    assert rows[1]["tflops"] == records.Missing("command_failed", "CUDAError: CUDA_ERROR_ECC_UNCORRECTABLE")


def test_a_library_that_is_not_found(world: World, machine: Callable[[int], None]) -> None:
    def version() -> str:
        raise RuntimeError("libcublasLt.so.13 was not found")

    sys.modules["gpuprep.agent.probes.cublaslt"].version = version  # type: ignore[attr-defined]
    found = gemm.measure({})
    assert found == records.Missing("library_not_found", "RuntimeError: libcublasLt.so.13 was not found")
