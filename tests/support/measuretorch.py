"""Times torch.mm (F.linear without a bias is the same call) on one GPU: random shapes, caches cold and warm.

    python3 measuretorch.py --name learn --seed 7701 --count 1500 --seconds 480   writes $OUT/learn-7701.jsonl
    python3 measuretorch.py --name judge --seed 9902 --count 200 --seconds 300    another seed: never used to learn
    ... --done FILE [FILE ...]      lines of earlier calls: these shapes are skipped
    ... --dtypes fp16,bf16          only these

One JSON object a line, flushed as it goes; a call that is cut off loses one shape. Data types take turns in blocks, so
a call that ends early has about as many of each. The first line of a call (`"event": "start"`) has the versions.

Needs torch only. Changes no setting of the GPU.

Shape: y (M x N) = x (M x K) @ B. `layout` has three letters, the dimension along which the elements of A, B and C
lie side by side: "kkn" is x @ w.T with w (N x K), "knn" is x @ w with w (K x N), "mnn" is x.T @ w, x stored (K x M).

How: products are put on the stream behind a kernel that holds the GPU (torch.cuda._sleep), so that the host is never
what is timed; CUDA events stand around the group. A group that the host could not prepare in time is done again with a
longer hold. Cold: each product of a group has its own operands, together more than twice the L2 cache where 64 sets are
enough, and before each group a buffer of three times the L2 is read. Warm: all products have the same operands.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import os
import random
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

KINDS = ("aligned", "odd", "small", "skinny")
MULTIPLES = (8, 16, 32, 64, 64, 128, 0)  # of which a size is one; 0: a power of two
LAYOUTS = ("kkn",) * 10 + ("knn", "mnn")
MOST_BYTES = 2**30  # of one matrix
INPUT_HEAP_BYTES = 3 * 2**30  # for each type of element; kept, so that types can take turns
OUTPUT_HEAP_BYTES = 2 * 2**30
PAGE = 512  # bytes: where matrices begin, as torch's own allocations
LONGEST_SECONDS = 5e-3  # of one product, by the rough figures below
BLOCK = 50  # shapes of a type in turn
MOST_SETS = 64
SAMPLES = 5
LONG_MS = 18.0  # of work in all samples of one way (cold or warm) of a long product
REST_SECONDS = 0.002  # before a long product: the load of the one before is over
LONG_PRODUCT_MS = 0.2
TRIES = 5
FIRST_WARM_SECONDS = 1.0
WARM_SECONDS = 0.1

Drawn = tuple[str, int, int, int, str]  # kind, m, n, k, layout
Run = Callable[[], Any]

# inputs, output, bytes of an input, bytes of an output, rough TFLOPS of an H200 for drawing
TYPES = {
    "bf16": (torch.bfloat16, torch.bfloat16, 2, 2, 650),
    "fp16": (torch.float16, torch.float16, 2, 2, 650),
    "tf32": (torch.float32, torch.float32, 4, 4, 330),
    "fp32": (torch.float32, torch.float32, 4, 4, 48),
    "fp64": (torch.float64, torch.float64, 8, 8, 55),
    "int8": (torch.int8, torch.int32, 1, 4, 1100),
    "fp8": (getattr(torch, "float8_e4m3fn", None), torch.bfloat16, 1, 2, 1100),
}
ROUGH_BYTES = 3.2e12  # a second


# ---------------------------------------------------------------- shapes


def shapes(seed: int, dtype: str) -> Iterator[Drawn]:
    """Without end; the kinds take turns. Sizes are spread evenly over their logarithms."""
    chance = random.Random(f"{seed} {dtype}")
    while True:
        for kind in KINDS:
            found = None
            while found is None:
                m, n, k = sizes(chance, kind)
                found = fitting(dtype, kind, m, n, k, chance.choice(LAYOUTS))
            yield found


def sizes(chance: random.Random, kind: str) -> list[int]:
    steps = [chance.choice(MULTIPLES) for _ in range(3)]
    if kind == "odd" or chance.random() < 0.25:
        steps = [1, 1, 1]
    if kind == "odd" and chance.random() < 0.5:  # one or two sizes are crooked, not all
        steps = [chance.choice((1, 2, 8, 64)) for _ in range(3)]
    low, high = {"small": (16, 1024), "skinny": (256, 16384)}.get(kind, (64, 16384))
    found = [size(chance, low, high, step) for step in steps]
    if kind == "skinny":
        found[chance.randrange(3)] = size(chance, 1, 128, chance.choice((1, 8, 16)))
    return found


def size(chance: random.Random, low: int, high: int, step: int) -> int:
    value = math.exp(chance.uniform(math.log(low), math.log(high)))
    return int(2 ** round(math.log2(value))) if step == 0 else max(step, round(value / step) * step)


def fitting(dtype: str, kind: str, m: int, n: int, k: int, layout: str) -> Drawn | None:
    """As torch takes it; None where it is too large or would take too long."""
    _, _, each, out, rough = TYPES[dtype]
    if dtype == "fp8":
        k, n, layout = max(16, k // 16 * 16), max(16, n // 16 * 16), "kkn"
    if dtype == "int8":
        k, n, m, layout = max(8, k // 8 * 8), max(8, n // 8 * 8), max(17, m), "kkn"
    if max(m * k, n * k) * each > MOST_BYTES or m * n * out > MOST_BYTES:
        return None
    seconds = 2.0 * m * n * k / (rough * 1e12) + ((m + n) * k * each + m * n * out) / ROUGH_BYTES
    return None if seconds > LONGEST_SECONDS else (kind, m, n, k, layout)


# ---------------------------------------------------------------- the GPU


class Nvml:
    """Clocks, temperature and watts, by NVML's C interface; {} where it does not answer."""

    def __init__(self, uuid: object) -> None:
        try:
            self.library = ctypes.CDLL("libnvidia-ml.so.1")
            self.device = ctypes.c_void_p()
            ok = self.library.nvmlInit_v2() == 0
            names = [f"GPU-{uuid}", str(uuid)] if uuid else []
            found = any(
                self.library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(self.device)) == 0 for name in names
            )
            if not found:
                found = self.library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(self.device)) == 0
            self.works = ok and found
        except (OSError, AttributeError):
            self.works = False

    def read(self) -> dict[str, float]:
        if not self.works:
            return {}
        found: dict[str, float] = {}
        value, large = ctypes.c_uint(), ctypes.c_ulonglong()
        for name, kind in (("sm_mhz", 1), ("memory_mhz", 2)):
            if self.library.nvmlDeviceGetClockInfo(self.device, kind, ctypes.byref(value)) == 0:
                found[name] = value.value
        if self.library.nvmlDeviceGetTemperature(self.device, 0, ctypes.byref(value)) == 0:
            found["temperature_c"] = value.value
        if self.library.nvmlDeviceGetPowerUsage(self.device, ctypes.byref(value)) == 0:
            found["watts"] = value.value / 1000
        if self.library.nvmlDeviceGetCurrentClocksThrottleReasons(self.device, ctypes.byref(large)) == 0:
            found["throttle"] = large.value
        return found


def cublas_version() -> str:
    """ "13.1.0" as the loaded library says; its path where it does not."""
    try:
        with open("/proc/self/maps", encoding="utf-8") as file:
            paths = sorted(set(re.findall(r"(/\S*libcublas\.so\S*)", file.read())))
    except OSError:
        return ""
    try:
        library, numbers = ctypes.CDLL(paths[0]), []
        for place in range(3):
            value = ctypes.c_int()
            library.cublasGetProperty(place, ctypes.byref(value))
            numbers.append(str(value.value))
        return ".".join(numbers)
    except (OSError, AttributeError, IndexError):
        return paths[0] if paths else ""


class Heap:
    """One tensor of elements. The next matrix begins where the last one ended: nothing of it is in a cache."""

    def __init__(self, values: Any, each: int) -> None:
        self.values, self.each, self.at = values, each, 0

    def take(self, rows: int, columns: int) -> Any:
        count = rows * columns
        if self.at + count > self.values.numel():
            self.at = 0
        piece = self.values.narrow(0, self.at, count).view(rows, columns)
        step = PAGE // self.each
        self.at += -(-count // step) * step
        return piece


def filled(dtype: Any, count: int, seed: int) -> Any:
    """Random numbers: the power that a product draws depends on them."""
    generator = torch.Generator(device="cuda")
    generator.manual_seed(seed)
    values = torch.empty(count, dtype=dtype, device="cuda")
    part = 2**27
    for begin in range(0, count, part):
        here = values.narrow(0, begin, min(part, count - begin))
        if dtype == torch.int8:
            here.copy_(torch.randint(-8, 8, here.shape, dtype=torch.int8, device="cuda", generator=generator))
        else:
            wide = dtype if dtype in (torch.float32, torch.float64) else torch.float32
            here.copy_(torch.randn(here.shape, dtype=wide, device="cuda", generator=generator).to(dtype))
    return values


class Bench:
    def __init__(self) -> None:
        self.properties = torch.cuda.get_device_properties(0)
        self.l2 = int(getattr(self.properties, "L2_cache_size", 0) or 60 * 2**20)
        self.flushed = torch.zeros(3 * self.l2 // 4, dtype=torch.float32, device="cuda")
        self.sink = torch.zeros((), dtype=torch.float32, device="cuda")
        self.scale = torch.ones((), dtype=torch.float32, device="cuda")
        self.nvml = Nvml(getattr(self.properties, "uuid", None))
        self.mhz = 1980.0  # corrected by the first hold
        self.pace = 20e-6  # seconds that the host needs to start a product
        self.dtype = ""
        self.input_heaps: dict[Any, Heap] = {}
        self.output_heaps: dict[Any, Heap] = {}
        self.fp8_out = True

    def begin(self, dtype: str, seed: int) -> None:
        """Numbers of this type, and a warm GPU."""
        if self.dtype == dtype:
            return
        inputs, output, each, out, _ = TYPES[dtype]
        self.dtype = dtype
        torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
        first = inputs not in self.input_heaps
        if first:
            self.input_heaps[inputs] = Heap(filled(inputs, INPUT_HEAP_BYTES // each, seed), each)
        if output not in self.output_heaps:
            zeros = torch.zeros(OUTPUT_HEAP_BYTES // out, dtype=output, device="cuda")
            self.output_heaps[output] = Heap(zeros, out)
        self.inputs, self.outputs = self.input_heaps[inputs], self.output_heaps[output]
        run = self.product(4096, 4096, 4096, "kkn")
        until = time.monotonic() + (FIRST_WARM_SECONDS if first else WARM_SECONDS)
        while time.monotonic() < until:
            for _ in range(10):
                run()
            torch.cuda.synchronize()

    def product(self, m: int, n: int, k: int, layout: str) -> Run:
        """A function that puts one product with operands of its own on the stream."""
        a = self.inputs.take(m, k) if layout[0] == "k" else self.inputs.take(k, m).t()
        b = self.inputs.take(n, k).t() if layout[1] == "k" else self.inputs.take(k, n)
        y = self.outputs.take(m, n)
        if self.dtype == "int8":
            return lambda: torch._int_mm(a, b, out=y)
        if self.dtype == "fp8":
            scale, more = self.scale, {"out": y} if self.fp8_out else {}
            return lambda: torch._scaled_mm(a, b, scale, scale, out_dtype=torch.bfloat16, use_fast_accum=True, **more)
        return lambda: torch.mm(a, b, out=y)

    def timed(self, runs: list[Run], cold: bool) -> tuple[float, bool]:
        """Mean milliseconds of one of `runs`, behind a kernel that holds the GPU until all are on the stream."""
        start, end, held = (torch.cuda.Event(enable_timing=True) for _ in range(3))
        mean, late = 0.0, True
        for _ in range(TRIES):
            if cold:
                torch.sum(self.flushed, dim=0, out=self.sink)
            hold = max(30e-6, 2.0 * len(runs) * self.pace)
            cycles = int(hold * self.mhz * 1e6)
            held.record()
            torch.cuda._sleep(cycles)
            start.record()
            begun = time.perf_counter()
            for run in runs:
                run()
            took = time.perf_counter() - begun
            end.record()
            end.synchronize()
            mean = start.elapsed_time(end) / len(runs)
            really = held.elapsed_time(start) / 1e3
            self.mhz = min(3000.0, max(300.0, cycles / really / 1e6)) if really > 0 else self.mhz
            self.pace = min(200e-6, max(5e-6, took / len(runs)))
            late = took + 10e-6 > really  # the hold began after the flush, so this is on the safe side
            if not late:
                break
        return mean, late

    def way(self, product: Callable[[], Run], cold: bool, first_ms: float, own_bytes: int) -> dict[str, float]:
        """Median and spread of the samples of one way."""
        if cold:
            wanted = math.ceil(2.5 * self.l2 / own_bytes)
            most = max(2, int(LONG_MS / SAMPLES / first_ms))
            least = 2 if first_ms > 0.5 else 8
            count = max(least, min(MOST_SETS, wanted, most))
            runs = [product() for _ in range(count)]
        else:
            count = max(2, min(32, int(LONG_MS / SAMPLES / first_ms)))
            runs = [product()] * count
            runs[0]()
        times, late = [], 0
        for _ in range(SAMPLES):
            milliseconds, was_late = self.timed(runs, cold)
            times.append(milliseconds)
            late += was_late
        mean = statistics.fmean(times)
        return {
            "microseconds": round(1e3 * statistics.median(times), 3),
            "least_microseconds": round(1e3 * min(times), 3),
            "spread_percent": round(100 * statistics.pstdev(times) / mean, 1),
            "group": count,
            "late": late,  # samples in which the host may have been timed: leave such lines out
        }

    def measured(self, kind: str, m: int, n: int, k: int, layout: str) -> dict[str, Any]:
        _, _, each, out, _ = TYPES[self.dtype]
        own_bytes = (m + n) * k * each + m * n * out

        def product() -> Run:
            return self.product(m, n, k, layout)

        run = product()
        run()  # loads the kernel
        torch.cuda.synchronize()
        first, _ = self.timed([run, run], False)
        first = max(first, 1e-3)
        if first > LONG_PRODUCT_MS:
            time.sleep(REST_SECONDS)
        cold = self.way(product, True, first, own_bytes)
        warm = self.way(product, False, first, own_bytes)
        for one in (cold, warm):
            one["tflops"] = round(2e-6 * m * n * k / max(1e-6, one["microseconds"]), 4)
        return {
            "event": "product", "dtype": self.dtype, "kind": kind, "m": m, "n": n, "k": k, "layout": layout,
            "cold": cold, "warm": warm, "bytes": own_bytes, "hold_mhz": round(self.mhz), **self.nvml.read(),
        }  # fmt: skip


# ---------------------------------------------------------------- the run


def supported(bench: Bench, dtype: str) -> str:
    """ "" where this torch and GPU have the type, else why not."""
    try:
        if TYPES[dtype][0] is None:
            return "this torch has no float8_e4m3fn"
        try:
            bench.begin(dtype, 1)
        except (TypeError, RuntimeError):
            if dtype != "fp8":
                raise
            bench.fp8_out, bench.dtype = False, ""  # an older torch: it allocates the result itself
            bench.begin(dtype, 1)
        torch.cuda.synchronize()
    except (RuntimeError, TypeError, ValueError) as error:  # one type that does not work must not cost the others
        return f"{type(error).__name__}: {error}"[:300]
    return ""


def key(line: dict[str, Any]) -> tuple[Any, ...]:
    return line["dtype"], line["m"], line["n"], line["k"], line["layout"]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", default="learn")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--count", type=int, default=1500, help="shapes of each data type")
    parser.add_argument("--seconds", type=float, default=480)
    parser.add_argument("--dtypes", default=",".join(TYPES))
    parser.add_argument("--done", nargs="*", default=[])
    asked = parser.parse_args()
    until = time.monotonic() + asked.seconds
    out = Path(os.environ.get("OUT", "."))
    out.mkdir(parents=True, exist_ok=True)
    done = set()
    for path in asked.done:
        with open(path, encoding="utf-8") as file:
            for text in file:
                try:
                    line = json.loads(text)
                except ValueError:
                    continue  # the last line of a call that was cut off
                if line.get("event") in ("product", "failed"):
                    done.add(key(line))
    bench = Bench()
    path = out / f"{asked.name}-{asked.seed}.jsonl"
    with open(path, "a", encoding="utf-8") as file:

        def write(line: dict[str, Any]) -> None:
            file.write(json.dumps(line) + "\n")
            file.flush()

        missing = {}
        wanted = [dtype for dtype in asked.dtypes.split(",") if dtype in TYPES]
        for dtype in wanted:
            why = supported(bench, dtype)
            if why:
                missing[dtype] = why
        try:
            library = str(torch.backends.cuda.preferred_blas_library())
        except (AttributeError, RuntimeError):
            library = ""
        write({
            "event": "start", "name": asked.name, "seed": asked.seed, "gpu": bench.properties.name,
            "sms": bench.properties.multi_processor_count, "l2_bytes": bench.l2, "torch": torch.__version__,
            "cuda": torch.version.cuda, "cublas": cublas_version(), "blas": library, "missing": missing,
            "python": sys.version.split()[0], "time": time.time(), **bench.nvml.read(),
        })  # fmt: skip
        print("start:", torch.__version__, "cublas", cublas_version(), "missing", missing, flush=True)
        drawn = {dtype: shapes(asked.seed, dtype) for dtype in wanted if dtype not in missing}
        left = dict.fromkeys(drawn, asked.count)
        counts = dict.fromkeys(drawn, 0)
        failed = 0
        while any(left.values()) and time.monotonic() < until:
            for dtype in drawn:
                todo: list[Drawn] = []
                while left[dtype] and len(todo) < BLOCK:
                    left[dtype] -= 1
                    one = next(drawn[dtype])
                    if (dtype, *one[1:]) not in done:
                        done.add((dtype, *one[1:]))
                        todo.append(one)
                if not todo or time.monotonic() > until:
                    continue
                bench.begin(dtype, asked.seed)
                for one in todo:
                    if time.monotonic() > until:
                        break
                    try:
                        write(bench.measured(*one))
                        counts[dtype] += 1
                    except (RuntimeError, TypeError, ValueError) as error:  # a shape that torch refuses is written, too
                        kind, m, n, k, layout = one
                        words = f"{type(error).__name__}: {error}"[:300]
                        write({
                            "event": "failed", "dtype": dtype, "kind": kind, "m": m, "n": n, "k": k, "layout": layout,
                            "why": words,
                        })  # fmt: skip
                        failed += 1
                        if "CUDA error" in words and "CUBLAS" not in words:  # the context is gone
                            print("stopped:", words, flush=True)
                            raise SystemExit(1) from error
            print(f"{asked.seconds - (until - time.monotonic()):.0f} s", counts, "failed", failed, flush=True)
        write({"event": "end", "counts": counts, "failed": failed, "time": time.time(), **bench.nvml.read()})


if __name__ == "__main__":
    main()
