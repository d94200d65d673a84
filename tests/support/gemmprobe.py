"""The GEMM probe with a device and a library that do as they are told, and the parts of it that need no GPU.

The CUDA bindings are not installed where tests run; in their place stand modules made here.
"""

# ruff: noqa: ARG001, ARG002, ARG005  (the stand-ins take what the real ones take)

from __future__ import annotations

import ctypes
import importlib
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fakegpu import t4
from fakepynvml import install
from samplerows import Scripted, loaded_answers, row

from gpuprep import records
from gpuprep.agent import probes
from gpuprep.agent.compute import cudacalls, libraries
from gpuprep.agent.probes import burst, gemm, gemmalgorithm, gemmtypes, gemmvalues, simulated

RUN = "gpuprep.agent.probes.gemmrun"
SHAPES = [[256, 256, 256], [512, 256, 256]]
TOOLKIT = {"nvcc": "/usr/bin/nvcc", "version": "13.0", "library_dirs": ["/usr/lib/x86_64-linux-gnu"]}
FIRST = gemmtypes.TYPES[0]  # bf16
Rule = burst.Rule


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
    def __init__(self, world: World, device: FakeDevice, kind: gemmtypes.DataType, shape: gemmtypes.Shape) -> None:
        self.world, self.device, self.kind, self.shape, self.operands = world, device, kind, shape, [()]

    def allocate(self, sets: int | None = None) -> None:
        self.world.open_products += 1
        error = self.world.refuse.get((self.kind.key, self.shape.m))
        if error:
            raise error

    def turned(self) -> FakeProduct:
        m, n, k = self.shape
        other = FakeProduct(self.world, self.device, self.kind, gemmtypes.Shape(n, m, k))
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
    rule = Rule(most_seconds=0.05)
    given = {**SHORT, "together_seconds": 0.0, "shapes": SHAPES, "main_dtype": None, "one_shape": False, "rule": rule}
    return run.Session(FakeGpu(t4()), "0000:00:04.0", run.Settings(**{**given, **settings}))


def product(world: World, device: FakeDevice | None = None) -> FakeProduct:
    """Of the first type and shape."""
    return FakeProduct(world, device or FakeDevice(world, "x"), FIRST, gemmtypes.Shape(*SHAPES[0]))


def one_product(tested: Any, *shape: int, dtype: str = "bf16") -> dict[str, Any]:
    """What a session says of one product."""
    kind = next(kind for kind in gemmtypes.TYPES if kind.dtype == dtype)
    found: dict[str, Any] = tested.product(kind, gemmtypes.Shape(*shape), sustain=False)
    return found


def measured(tested: Any) -> tuple[list[dict[str, Any]], str | None]:
    """(the products of a session, why it ended early)."""
    gemms: list[dict[str, Any]] = []
    why: str | None = tested.measure(gemms, gemmvalues.Pace(0, 1))
    return gemms, why


def all_at_once(*tested: Any, seconds: float) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = importlib.import_module(RUN).together(list(tested), seconds)
    return rows


def shorter(monkeypatch: pytest.MonkeyPatch, rule: Rule, full: dict[str, Any], brief: dict[str, Any]) -> None:
    """Full measurements with these times, and bursts of this rule where it is quick."""
    monkeypatch.setattr(gemm, "FULL", {**gemm.FULL, **full})
    monkeypatch.setattr(gemm, "BRIEF", {**gemm.BRIEF, **brief})
    monkeypatch.setattr(gemm, "QUICK", {**gemm.QUICK, "pause_seconds": 0.5})
    monkeypatch.setattr(gemm, "QUICK_RULE", rule)


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
        install(monkeypatch, told)

    has(1)
    monkeypatch.setattr(gemm, "FULL", {**SHORT, "together_seconds": 0.01})
    monkeypatch.setattr(gemm, "QUICK", {**SHORT, "together_seconds": 0.01})
    monkeypatch.setattr(gemm, "QUICK_RULE", burst.Rule(most_seconds=0.02))
    monkeypatch.setattr(cudacalls, "versions", lambda names: dict.fromkeys(names, "1.0.0"))
    monkeypatch.setattr(libraries, "toolkit", lambda: TOOLKIT)
    monkeypatch.setattr(simulated, "SIMULATION_MARK", tmp_path / "none")
    return has


# ---------------------------------------------------------------- the check of the result, with the host's memory


class Buffer:
    def __init__(self, content: np.ndarray[Any, Any]) -> None:
        self.content, self.size, self.handle = content, content.nbytes, content.ctypes.data

    def fill(self, byte: int, stream: object) -> None:
        self.content.view(np.uint8)[:] = byte

    def close(self) -> None:
        pass


class HostMemory:
    """A device whose memory is the host's, and whose kernels are numpy."""

    stream = None

    def __init__(self, values: Callable[[Buffer, int], np.ndarray[Any, Any]]) -> None:
        self.values = values  # of a buffer and a type, as FP64

    def allocate(self, size: int) -> Buffer:
        return Buffer(np.zeros(size // 8))

    def upload(self, values: np.ndarray[Any, Any]) -> Buffer:
        return Buffer(values)

    def download(self, start: int, count: int, stored: str) -> np.ndarray[Any, Any]:
        return np.frombuffer(ctypes.string_at(start, count * np.dtype(stored).itemsize), stored)

    def launch(self, name: str, blocks: int, threads: int, kind: int, matrix: Buffer, *given: Any) -> None:
        rows, x, result = given[0], given[-2], given[-1]
        vectors = self.values(matrix, kind).reshape(-1, rows)
        result.content[:] = vectors.T @ x.content if name == "times" else vectors @ x.content


# How each type is stored, and the bits of -1, 1, 2 and of the half (of 3 where there are whole numbers alone).
STORED: dict[str, tuple[str, dict[int, float]]] = {
    "bf16": ("<u2", {0xBF80: -1.0, 0x3F80: 1.0, 0x4000: 2.0, 0x3F00: 0.5}),
    "fp16": ("<u2", {0xBC00: -1.0, 0x3C00: 1.0, 0x4000: 2.0, 0x3800: 0.5}),
    "fp8": ("u1", {0xB8: -1.0, 0x38: 1.0, 0x40: 2.0, 0x30: 0.5}),
    "int8": ("u1", {0xFF: -1.0, 0x01: 1.0, 0x02: 2.0, 0x03: 3.0}),
}
Spoil = Callable[[np.ndarray[Any, Any]], None]  # what a wrong algorithm makes of D, columns by rows


def checked(dtype: str, monkeypatch: pytest.MonkeyPatch, spoil: Spoil | None = None) -> tuple[float, bool, float]:
    """(the error that the probe finds in a product, whether it takes it for exact, the error that it allows).

    `spoil` gets the right D and may change it; what it makes NaN is not written at all.
    """
    monkeypatch.setitem(sys.modules, "gpuprep.agent.probes.cudadevice", types.SimpleNamespace(CudaDevice=object))
    monkeypatch.delitem(sys.modules, "gpuprep.agent.probes.gemmcheck", raising=False)
    check = importlib.import_module("gpuprep.agent.probes.gemmcheck")
    monkeypatch.delitem(sys.modules, "gpuprep.agent.probes.gemmcheck")
    monkeypatch.delattr(probes, "gemmcheck")
    kind = next(kind for kind in gemmtypes.TYPES if kind.dtype == dtype)
    m, n, k = 24, 21, 32
    chance = np.random.default_rng(1)
    stored, bits = STORED[dtype]
    a, b = (chance.choice(list(bits), count * k).astype(stored) for count in (m, n))
    d = np.zeros(m * n, {gemmtypes.R_32I: "<i4", gemmtypes.R_16F: "<f2"}.get(kind.output, "<u2"))

    def plain(codes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        return np.array([bits[code] for code in codes.tolist()])

    def values(buffer: Buffer, of: int) -> np.ndarray[Any, Any]:
        if buffer.content is not d:
            return plain(buffer.content)
        bf16 = of == gemmtypes.R_16BF
        return (d.astype("<u4") << 16).view("<f4").astype(float) if bf16 else d.astype(float)

    def run(candidate: object, turn: int) -> None:
        right = plain(b).reshape(n, k) @ plain(a).reshape(m, k).T
        if spoil:
            spoil(right)
        written = ~np.isnan(right.ravel())
        of_bf16 = kind.output == gemmtypes.R_16BF
        found = np.nan_to_num(right.ravel())
        made = (found.astype("<f4").view("<u4") >> 16).astype("<u2") if of_bf16 else found.astype(d.dtype)
        d[written] = made[written]

    operands = types.SimpleNamespace(a=Buffer(a), b=Buffer(b), d=Buffer(d))
    product = types.SimpleNamespace(
        kind=kind, shape=(m, n, k), operands=[operands], device=HostMemory(values), run=run,
    )  # fmt: skip
    return check.reference_error(product, None), check.exact(product, None), kind.tolerance


# ---------------------------------------------------------------- parts that need no GPU


def types_of(capability: tuple[int, int]) -> list[str]:
    """Data types that a GPU of this compute capability has units for, each once with its accumulator."""
    return [kind.key for kind in gemmtypes.of_gpu(capability)]


def main_type(capability: tuple[int, int], wish: str | None) -> str:
    return gemmtypes.main_type(gemmtypes.of_gpu(capability), wish).key


def shapes_of_a_type(gpu: dict[str, Any]) -> float:
    return len(gpu["gemms"]) / len(types_of((8, 0)))


def shapes_asked(shapes: Any, dtype: str) -> list[tuple[int, ...]]:
    return [tuple(shape) for shape in gemmtypes.asked(shapes, dtype)]


def default_shapes(tflops: float) -> list[tuple[int, int, int]]:
    """Of a type with this speed."""
    return [(shape.m, shape.n, shape.k) for shape in gemmtypes.default(tflops)]


def sets_past_the_cache(one_set: int, l2: int) -> int:
    return gemmtypes.sets(one_set, l2)


def tiles(shape: tuple[int, int, int], tile: tuple[int, int]) -> int:
    return gemmtypes.tiles(gemmtypes.Shape(*shape), tile)


def exact_sums() -> Iterator[tuple[str, float, int, bool]]:
    """(type, the largest sum of its whole-numbered check, digits of its accumulator, whether it is stored in BF16)."""
    digits = {
        gemmtypes.COMPUTE_16F: 11, gemmtypes.COMPUTE_32F: 24, gemmtypes.COMPUTE_32F_FAST_TF32: 24,
        gemmtypes.COMPUTE_64F: 53, gemmtypes.COMPUTE_32I: 31,
    }  # fmt: skip
    for kind in gemmtypes.TYPES:
        largest = 16384 * kind.integers**2 if kind.integers > 1 else 8 * 24.0  # eight standard deviations of ±1
        yield kind.key, largest, digits[kind.compute], kind.output == gemmtypes.R_16BF


def algorithm(tile: str, stages: str, split_k: int, waves: float, *, transposed: bool = False) -> dict[str, Any]:
    """What is recorded of an algorithm, by cuBLASLt's names."""
    described = gemmalgorithm.described(tile, stages, split_k, waves)
    return gemmalgorithm.mirrored(described) if transposed else described


def recorded(*shape: int, milliseconds: float | None = None, error: str | None = None) -> dict[str, Any]:
    """A product's values as the record has them."""
    told = burst.Burst(milliseconds, 0.7, 50) if milliseconds is not None else None
    if told is None:
        return gemmvalues.product_values(FIRST, gemmtypes.Shape(*shape), error=error)
    return gemmvalues.product_values(FIRST, gemmtypes.Shape(*shape), told, {})


def without_callers(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """A host with a toolkit whose agent lacks the bindings."""
    toolkit(monkeypatch, "12.4")
    monkeypatch.setattr(simulated, "SIMULATION_MARK", folder / "none")
    monkeypatch.setattr(gemm, "CALLERS", ("nvmath-python-of-nobody",))


def toolkit(monkeypatch: pytest.MonkeyPatch, version: Any) -> None:
    found = {"nvcc": "/usr/bin/nvcc", "version": version, "library_dirs": []}
    monkeypatch.setattr(libraries, "toolkit", lambda: found)
