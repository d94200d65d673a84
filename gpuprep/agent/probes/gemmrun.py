"""Measures the matrix products of one GPU. Imported only inside the probe: it needs the CUDA bindings."""

from __future__ import annotations

import contextlib
import math
import statistics
import threading
import time
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple

from cuda.core._utils.cuda_utils import CUDAError

from gpuprep.agent.compute.sampler import Sampler
from gpuprep.agent.gpu.nvml import Gpu
from gpuprep.agent.probes import gemmcheck, gemmkernels
from gpuprep.agent.probes.burst import Rule, batch, best_burst
from gpuprep.agent.probes.cudadevice import CudaDevice, clock_mhz
from gpuprep.agent.probes.gemmtypes import PILOT, DataType, Shape, asked, default, main_type, of_gpu
from gpuprep.agent.probes.gemmvalues import Pace, figures, product_values
from gpuprep.records import Missing

# ---------------------------------------------------------------- short products

# Times products that end before the host has started the next product.
#
# The host needs 10 to 25 us to start a product, so timing a product of 5 us alone would measure the host. Short
# products are timed in groups: a kernel keeps the GPU waiting until the host has put a whole group on the stream.


SHORT_MS = 0.04  # above this the GPU is slower than the host
GROUP_MS = 0.4  # about as much work in one group
MOST_IN_GROUP = 32
HOST_NS = 40_000  # to start one product, with reserve
SAMPLES = 20  # groups that tell which algorithm is the fastest: no power cap acts on so little work
MOST_SAMPLES = 32  # groups at once


def group_of(milliseconds: float) -> int:
    """How many products make one sample; 1: each product is timed alone."""
    if milliseconds >= SHORT_MS:
        return 1
    return max(4, min(MOST_IN_GROUP, math.ceil(GROUP_MS / max(milliseconds, 1e-6))))


def rule_of(rule: Rule, group: int) -> Rule:
    """The rule for a burst of the same work whose samples are groups."""
    seconds = {name: getattr(rule, name) / group for name in ("short_seconds", "most_seconds", "least_seconds")}
    return rule._replace(**seconds)


def samples(device: CudaDevice, run: Callable[[], None], group: int, count: int) -> List[float]:
    """`count` samples: mean milliseconds of one product in a group."""
    milliseconds: List[float] = []
    for _ in range(min(count, MOST_SAMPLES)):
        device.launch("hold", 1, 1, group * HOST_NS)
        milliseconds.append(device.elapsed_milliseconds([run] * group) / group)
    return milliseconds


try:
    from gpuprep.agent.probes import cublaslt as blas
except ModuleNotFoundError:  # no nvmath-python: the environment for CUDA 11 has CuPy in its place
    from gpuprep.agent.probes import cupyblas as blas  # type: ignore[no-redef]

# What CUDA, cuBLASLt and their bindings raise when the device, its memory or the library refuses.
FAILURES = (CUDAError, blas.Error, RuntimeError, MemoryError, OSError)
# cuBLASLt's own choice (the first candidate) and the best of the single runs are timed like the burst: after a rest,
# and as long. The power cap acts differently in each trial: in one round an algorithm that was 7 % slower sometimes
# won. So if cuBLASLt's own choice does not win, all that were near the fastest get a second round.
FINAL_REST_SECONDS, FINAL_SAMPLES, NEAR = 0.1, 8, 1.15
# FP64 of 16384x8192x4096 was 6 % faster as its transpose on an H100, and so PyTorch was. The other types were alike,
# and each trial under the power cap may find the slower of two that are alike the faster.
TURNED = ("fp64",)
LEAD_SECONDS = 0.004  # not timed: the clock falls from its highest to what the power allows
TOGETHER_SECONDS = 120.0  # for the others to be ready; without them a GPU goes on alone
LOAD_BATCH_SECONDS = 0.1  # between looks at the time


class Settings(NamedTuple):
    """Seconds of work, and whether each type is measured only with the smaller square shape."""

    rule: Rule
    warm_seconds: float
    pause_seconds: float  # before each batch of a burst, which then counts with its median; 0: none
    rest_seconds: float
    load_seconds: float
    candidates: int
    finalists: int
    final_seconds: float  # for each of them
    final_rounds: int  # of which its fastest counts
    sustained_seconds: float
    together_seconds: float
    shapes: Any  # arguments["shapes"]
    main_dtype: Any
    one_shape: bool


class Session:
    """One GPU, open for measuring. Call close() to release it."""

    def __init__(self, gpu: Gpu, pci_address: str, settings: Settings) -> None:
        self.gpu, self.settings = gpu, settings
        self.device = CudaDevice(pci_address)
        self.device.compile(gemmkernels.SOURCE, gemmkernels.NAMES)
        self.kinds = of_gpu(self.device.capability)
        self.main = main_type(self.kinds, settings.main_dtype)
        self._seed = 0

    def measure(self, gemms: List[Dict[str, Any]], pace: Pace) -> Optional[str]:
        """Add each finished product to `gemms`. Returns None, or why the rest was given up (the GPU is gone)."""
        pace.types = len(self.kinds)
        pace.tell("warming up")
        blas.load_kernels(self.device, self.kinds, Shape(*PILOT))
        self.warm()
        for done, kind in enumerate(sorted(self.kinds, key=lambda kind: kind.key != self.main.key)):
            pace.done = done
            try:
                shapes = self.shapes(kind)
            except FAILURES as error:
                gemms.append(product_values(kind, Shape(*PILOT), error=words(error)))
                pace.measured(gemms)
                shapes = []
            for number, shape in enumerate(shapes):
                pace.tell(f"{kind.dtype} {shape.m}x{shape.n}x{shape.k}")
                gemms.append(self.product(kind, shape, sustain=number == 0 and kind.key == self.main.key))
                pace.measured(gemms)
                loss = self.gone()
                if loss:
                    return loss
        return None

    def gone(self) -> Optional[str]:
        """Why the device no longer works; None if it does. After some errors nothing works until the process ends."""
        try:
            self.device.sync()
        except FAILURES as error:
            return words(error)
        return None

    def shapes(self, kind: DataType) -> List[Shape]:
        """The shapes of the arguments, else defaults for the speed of a pilot run; [] if cuBLASLt lacks this type."""
        wanted = asked(self.settings.shapes, kind.dtype)
        if not wanted:
            tflops = self.pilot(kind)
            wanted = default(tflops) if tflops is not None else []
            if self.settings.one_shape:
                wanted = wanted[1:2]
        return wanted

    def pilot(self, kind: DataType) -> Optional[float]:
        with opened(self.device, kind, Shape(*PILOT), sets=1) as product:
            candidates = product.candidates(1)
            if not candidates:
                return None
            self._fill(product)
            times = self.device.milliseconds([lambda: product.run(candidates[0])] * 3)
            return product.shape.operations / min(times) / 1e9

    def warm(self) -> None:
        """Load the GPU for some seconds, because a cold GPU is faster than normal."""
        with opened(self.device, self.main, Shape(*PILOT)) as product:
            candidates = product.candidates(1)
            self._fill(product)
            self.work_for(product, candidates[0], self.settings.warm_seconds)

    def product(self, kind: DataType, shape: Shape, sustain: bool) -> Dict[str, Any]:
        """One product's values as in docs/records.md; `error` has the reason of a failure."""
        try:
            with opened(self.device, kind, shape) as given, self.ways(given) as ways:
                asked = [(way, way.candidates(self.settings.candidates)) for way in ways]
                if not asked[0][1]:
                    return product_values(kind, shape, error="cuBLASLt has no algorithm for it on this GPU")
                self._fill(given)
                tried = [(way, *self.best(way, candidates)) for way, candidates in asked if candidates]
                product, best, _ = min(tried, key=lambda way: way[2])
                values = {**self.burst(product, best), "m": shape.m, "n": shape.n}
                values["algorithm"] = {**best.description, "candidates": sum(len(proposals) for _, proposals in asked)}
                if sustain and self.settings.sustained_seconds:
                    values["sustained"] = self.sustained(product, best)
                values["max_relative_error"] = gemmcheck.reference_error(product, best)
                gemmcheck.fill(product, self._seed, whole=True)
                values["exact"] = gemmcheck.exact(product, best)
                return values
        except FAILURES as error:
            return product_values(kind, shape, error=words(error))

    @contextlib.contextmanager
    def ways(self, product: blas.Product) -> Iterator[List[blas.Product]]:
        """The product and, if that may be faster, its transpose, which callers with row-major matrices get."""
        if product.shape.m == product.shape.n or product.kind.dtype not in TURNED:
            yield [product]
            return
        with contextlib.closing(product.turned()) as turned:
            yield [product, turned]

    def burst(self, product: blas.Product, best: blas.Candidate) -> Dict[str, Any]:
        """Speed before the power cap acts. The load continues a little, because NVML updates its readings slowly."""
        tries: List[List[float]] = []  # the clock under each product
        ticks: List[Any] = []
        group = group_of(min(self.times(product, best, 3)))
        rule = rule_of(self.settings.rule, group)

        def begin() -> None:
            time.sleep(self.settings.rest_seconds)
            self.times(product, best, batch(self.times(product, best, 1), LEAD_SECONDS))
            tries.append([])
            ticks.append(self.device.ticks())

        def time_some(count: int) -> List[float]:
            count = count if group == 1 else min(count, MOST_SAMPLES - 1)
            if not self.settings.pause_seconds:
                samples = self.times(product, best, count, group)
            else:
                time.sleep(self.settings.pause_seconds)
                ticks.append(self.device.ticks())  # the clock is that of the work, not of the pause
                # The first one after a pause also waits for its launch. The clock falls within a pulse, in each by as
                # much: what varies is the pulses.
                samples = [statistics.median(self.times(product, best, count + 1, group)[1:])] * count
            ticks.append(self.device.ticks())
            tries[-1].extend([clock_mhz(*ticks[-2:])] * len(samples))
            return samples

        with Sampler([self.gpu]) as sampler:
            chosen_burst = best_burst(begin, time_some, rule)
            clock = statistics.median(tries[chosen_burst.number])
            since = sampler.seconds()
            self.work_for(product, best, self.settings.load_seconds)
        values = product_values(product.kind, product.shape, chosen_burst, {})
        values.update(figures(sampler, self.gpu.index, since), graphics_clock_mhz=clock)
        return values

    def times(self, product: blas.Product, candidate: blas.Candidate, count: int, group: int = 1) -> List[float]:
        if group > 1:
            return samples(self.device, lambda: product.run(candidate), group, count)
        return self.device.milliseconds([lambda: product.run(candidate)] * count)

    def best(self, product: blas.Product, candidates: List[blas.Candidate]) -> Tuple[blas.Candidate, float]:
        """The fastest algorithm and its milliseconds: try all briefly, then the best ones longer.

        Skip algorithms that do not run here.
        """
        glances: Dict[int, float] = {}
        for number, candidate in enumerate(candidates):
            time.sleep(self.settings.pause_seconds)
            try:
                first = self.times(product, candidate, 1)[0]
                group = group_of(first)
                glances[number] = min([first, *self.times(product, candidate, min(10, int(2.0 / first)), group)])
            except blas.Error:
                continue
        if not glances:
            raise RuntimeError("none of cuBLASLt's proposals runs")
        fast = sorted(glances, key=lambda number: glances[number])
        finalists = sorted({min(glances), *fast[: self.settings.finalists]})
        if len(finalists) == 1:
            return candidates[finalists[0]], glances[finalists[0]]
        trials = dict.fromkeys(finalists, math.inf)
        for _ in range(self.settings.final_rounds):
            near = NEAR * min(trials.values())
            for number in [number for number in finalists if trials[number] <= near]:
                trials[number] = min(trials[number], self.trial(product, candidates[number], glances[number]))
            fastest = min(trials, key=lambda number: trials[number])
            if fastest == finalists[0]:
                break
        return candidates[fastest], trials[fastest]

    def trial(self, product: blas.Product, candidate: blas.Candidate, glance: float) -> float:
        """Milliseconds of an algorithm in a short burst. `glance`: its milliseconds in a single run."""
        time.sleep(min(FINAL_REST_SECONDS, self.settings.rest_seconds))
        group = group_of(glance)
        enough = max(FINAL_SAMPLES, int(self.settings.final_seconds * 1000 / glance))
        count = enough if group == 1 else SAMPLES
        self.times(product, candidate, batch([glance], LEAD_SECONDS))
        return statistics.median(self.times(product, candidate, count, group))

    def work_for(self, product: blas.Product, candidate: blas.Candidate, seconds: float) -> Tuple[int, float]:
        """Run the product without pause for `seconds`; returns (number of products, device seconds)."""
        samples = self.times(product, candidate, 1)
        some = batch(samples, min(seconds, LOAD_BATCH_SECONDS))
        done, spent = 0, 0.0
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            spent += self.device.elapsed_milliseconds([lambda: product.run(candidate)] * some) / 1000
            done += some
        return done, spent

    def sustained(self, product: blas.Product, candidate: blas.Candidate) -> Dict[str, Any]:
        with Sampler([self.gpu]) as sampler:
            before = self.device.ticks()
            done, spent = self.work_for(product, candidate, self.settings.sustained_seconds)
            clock = clock_mhz(before, self.device.ticks())
        values = {"seconds": round(spent, 2), "tflops": round(product.shape.operations * done / spent / 1e12, 2)}
        return {**values, **figures(sampler, self.gpu.index), "graphics_clock_mhz": clock}

    def _fill(self, product: blas.Product) -> None:
        self._seed += 1
        gemmcheck.fill(product, self._seed)


class opened:
    """A product with memory, freed at the end, even when the device is gone."""

    def __init__(self, device: CudaDevice, kind: DataType, shape: Shape, sets: Optional[int] = None) -> None:
        self._product = blas.Product(device, kind, shape)
        self._sets = sets

    def __enter__(self) -> blas.Product:
        try:
            self._product.allocate(self._sets)
        except FAILURES:
            self._product.close()
            raise
        return self._product

    def __exit__(self, kind: object, error: Optional[BaseException], traceback: object) -> None:
        try:
            self._product.close()
        except FAILURES:
            if error is None:
                raise


def words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def together(sessions: List[Session], seconds: float) -> List[Dict[str, Any]]:
    """Run the main type on all GPUs at once, one thread each, from a common start; returns values per GPU."""
    start = threading.Barrier(len(sessions), timeout=TOGETHER_SECONDS)
    rows: Dict[int, Dict[str, Any]] = {}
    threads = [threading.Thread(target=_one_of, args=(session, start, seconds, rows)) for session in sessions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [rows[index] for index in sorted(rows)]


def _one_of(session: Session, start: threading.Barrier, seconds: float, rows: Dict[int, Dict[str, Any]]) -> None:
    index, kind = session.gpu.index, session.main
    nothing = Missing("not_measured", "it did not get to the common load")
    row: Dict[str, Any] = {"index": index, "dtype": kind.dtype, "tflops": nothing, "graphics_clock_mhz": nothing}
    rows[index] = row
    try:
        session.device.use()
        with opened(session.device, kind, session.shapes(kind)[0]) as product:
            candidates = product.candidates(session.settings.candidates)
            session._fill(product)
            best, _ = session.best(product, candidates)
            with contextlib.suppress(threading.BrokenBarrierError):  # one failed: the others go on without it
                start.wait()
            before = session.device.ticks()
            done, spent = session.work_for(product, best, seconds)
            row["graphics_clock_mhz"] = clock_mhz(before, session.device.ticks())
        row["tflops"] = round(product.shape.operations * done / spent / 1e12, 2)
    except FAILURES as error:
        start.abort()
        row["tflops"] = Missing("command_failed", words(error))
