"""Measures matrix products on a real GPU, with the agent's own probe: the figures that `fitshapes.py` learns from.

    python tests/support/measureshapes.py SHAPES.csv SECONDS FOUND.csv [bf16=2 int8=3 ...]

SHAPES.csv is what drawshapes.py writes. Each data type gets its share of the seconds: 1, or the weight that is named.
Of the four algorithms that cuBLASLt's heuristics name the fastest is kept. Operands lie where nothing of them is in the
cache. Needs what the agent's probes need: CUDA's toolkit, nvmath-python, cuda-core, numpy. It changes no setting of the
GPU.
"""

from __future__ import annotations

import csv
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

from gpuprep.agent.gpu.nvml import Nvml
from gpuprep.agent.probes import cublaslt, gemmkernels, gemmoperands, gemmrun
from gpuprep.agent.probes.cudadevice import CudaDevice, clock_mhz
from gpuprep.agent.probes.gemmtypes import BYTES, TYPES, DataType, Shape, sets
from gpuprep.records import Missing

HEAP_BYTES = 5 * 2**30  # of inputs, and of outputs
ALIGNED = 512  # bytes, of each matrix, as CUDA's own allocations
MOST_SETS = 512  # of operands: more products of one shape are never timed
CANDIDATES = 4
NEAR = 1.5  # times the fastest: slower algorithms are not looked at twice
WARM_SECONDS = 1.0
REST_SECONDS = 0.003  # before a long product is timed, so that the load of the one before is over
SURELY_LONG_MS = 0.15  # even with what the host needs to start it
LONG_MS = 12.0  # of work in the samples of one product
PACE_NS = 8_000  # that the host needs at least to start a product; what it needed last is doubled
TRIES = 4

Run = Callable[[], None]


class Found(NamedTuple):
    dtype: str
    kind: str
    m: int
    n: int
    k: int
    microseconds: float  # median of the samples
    spread_percent: float  # standard deviation / mean
    clock_mhz: float  # of the SMs, during the samples
    tile: str
    split_k: int
    candidates: int


class Piece(NamedTuple):
    """A part of the heap, as an operand."""

    handle: int

    def close(self) -> None:
        """The heap stays."""


class Heap:
    """Memory for operands. The next product begins where the last one ended: what it reads is in no cache."""

    def __init__(self, device: CudaDevice) -> None:
        self._memory = device.allocate(HEAP_BYTES)
        self.base = int(self._memory.handle)
        self._at = 0

    def take(self, size: int) -> Piece:
        if self._at + size > HEAP_BYTES:
            self._at = 0
        piece = Piece(self.base + self._at)
        self._at += -(-size // ALIGNED) * ALIGNED
        return piece


class Bench:
    def __init__(self) -> None:
        with Nvml() as nvml:
            gpus = nvml.gpus()
            if isinstance(gpus, Missing):
                raise SystemExit(f"no GPU: {gpus.detail}")
            self.device = CudaDevice(gpus[0].facts().pci_address)
        self.device.compile(gemmkernels.SOURCE, gemmkernels.NAMES)
        self.inputs, self.outputs = Heap(self.device), Heap(self.device)
        self._memory = self.device.allocate(cublaslt.WORKSPACE_BYTES)
        self.workspace = Piece(int(self._memory.handle))  # a product closes its own
        self.pace_ns = PACE_NS

    def product(self, kind: DataType, shape: Shape) -> cublaslt.Product:
        m, n, k = shape
        each, out = BYTES[kind.inputs], BYTES[kind.output]
        sizes = (k * m * each, k * n * each, m * n * out)
        made = cublaslt.Product(self.device, kind, shape)
        made._workspace = self.workspace
        made.operands = [
            gemmoperands.Operands(self.inputs.take(sizes[0]), self.inputs.take(sizes[1]), self.outputs.take(sizes[2]))
            for _ in range(min(MOST_SETS, sets(sum(sizes), self.device.l2_bytes)))
        ]
        return made

    def begin(self, kind: DataType, seed: int) -> None:
        """Numbers of this type everywhere, and a warm GPU."""
        count = HEAP_BYTES // BYTES[kind.inputs]
        values = (kind.inputs, self.inputs.base, count, seed, kind.spread, 0, 1.0)
        self.device.launch("fill", self.device.sms * 8, gemmkernels.THREADS, *values)
        self.device.sync()
        product = self.product(kind, Shape(4096, 4096, 4096))
        best = product.candidates(1)[0]
        until = time.monotonic() + WARM_SECONDS
        while time.monotonic() < until:
            self.device.elapsed_milliseconds([lambda: product.run(best)] * 20)
        product.close()

    def grouped(self, run: Run, group: int) -> float:
        """Mean milliseconds in one group, timed again if the host was slower than the kernel that holds the GPU."""
        found = 0.0
        for _ in range(TRIES):
            held = group * self.pace_ns
            self.device.launch("hold", 1, 1, held)
            begun = time.perf_counter_ns()
            ready: list[int] = []
            found = self.device.elapsed_milliseconds([*[run] * group, _noting(ready)])
            took = ready[0] - begun
            self.pace_ns = min(max(PACE_NS, 2 * took // group), gemmrun.HOST_NS)
            if took < held:
                break
        return found / group

    def samples(self, run: Run, milliseconds: float, most: int) -> list[float]:
        group = gemmrun.group_of(milliseconds)
        if group > 1:
            return [self.grouped(run, group) for _ in range(most)]
        return self.device.milliseconds([run] * max(2, min(60, int(most * LONG_MS / 4 / milliseconds))))

    def measured(self, kind: DataType, name: str, shape: Shape) -> Found | None:
        """None: the library has no algorithm."""
        product = self.product(kind, shape)
        try:
            looks: list[tuple[float, Run, cublaslt.Candidate]] = []
            for candidate in product.candidates(CANDIDATES):
                run = _runs(product, candidate)
                try:
                    run()  # loads the kernel
                    self.device.sync()
                    first = self.device.elapsed_milliseconds([run, run]) / 2
                    look = min(first, self.grouped(run, 6)) if first < SURELY_LONG_MS else first
                    looks.append((look, run, candidate))
                except cublaslt.Error:
                    continue
            if not looks:
                return None
            limit = NEAR * min(look for look, _, _ in looks)
            near = [(min(self.samples(run, look, 1)), run, one) for look, run, one in looks if look <= limit]
            finals = []
            for look, run, candidate in sorted(near, key=lambda entry: entry[0])[:2]:
                if gemmrun.group_of(look) == 1:
                    time.sleep(REST_SECONDS)
                before = self.device.ticks()
                times = self.samples(run, look, 4)
                clock = clock_mhz(before, self.device.ticks())
                finals.append((statistics.median(times), times, clock, candidate.description))
            middle, times, clock, how = min(finals, key=lambda one: one[0])
            spread = 100 * statistics.pstdev(times) / statistics.fmean(times)
            tile = str(how["tile"]).removeprefix("TILE_")
            split = how["split_k"] if isinstance(how["split_k"], int) else 1
            return Found(
                kind.dtype, name, *shape, round(1e3 * middle, 3), round(spread, 1), clock, tile, split, len(looks)
            )
        finally:
            product.close()


def _noting(moments: list[int]) -> Run:
    return lambda: moments.append(time.perf_counter_ns())


def _runs(product: cublaslt.Product, candidate: Any) -> Run:
    return lambda: product.run(candidate)


def main() -> None:
    asked: dict[str, list[tuple[str, Shape]]] = defaultdict(list)
    with open(sys.argv[1], encoding="utf-8") as file:
        for row in csv.DictReader(file):
            asked[row["dtype"]].append((row["kind"], Shape(int(row["m"]), int(row["n"]), int(row["k"]))))
    weights = {name: float(value) for name, _, value in (words.partition("=") for words in sys.argv[4:])}
    share = float(sys.argv[2]) / sum(weights.get(dtype, 1.0) for dtype in asked)
    bench = Bench()
    with open(sys.argv[3], "w", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Found._fields)
        for number, (dtype, rows) in enumerate(asked.items()):
            kind = next(one for one in TYPES if one.dtype == dtype)
            until = time.monotonic() + share * weights.get(dtype, 1.0)
            bench.begin(kind, number)
            count = none = 0
            for name, shape in rows:
                if time.monotonic() > until:
                    break
                try:
                    found = bench.measured(kind, name, shape)
                except cublaslt.Error:
                    found = None
                if found is None:
                    none += 1
                else:
                    writer.writerow(found)
                    count += 1
            file.flush()
            if none and not count:
                raise SystemExit(f"{dtype}: none of {none} products could be measured")
            print(f"{dtype}: {count} measured, {none} refused, the host starts one in {bench.pace_ns} ns", flush=True)


if __name__ == "__main__":
    main()
