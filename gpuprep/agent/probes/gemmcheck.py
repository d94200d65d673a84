"""Is the product right? Two proofs, of the algorithm that was timed.

exact      Whole-numbered inputs, small enough that every partial sum fits the accumulator and the output, so nothing
           is rounded. All of D is proven by D x = Aᵀ (B x) with a random whole-numbered x (Freivalds), in FP64.
reference  Normal inputs: sampled rows of A times sampled columns of B in FP64 on the host, against those elements of D.
"""

from __future__ import annotations

import random
from typing import Any, List

import numpy as np

from gpuprep.agent.probes.cudadevice import CudaDevice
from gpuprep.agent.probes.gemmkernels import THREADS
from gpuprep.agent.probes.gemmtypes import BYTES, R_8F_E4M3, R_8I, R_16BF, R_16F, R_32F, R_32I, R_64F

SAMPLES = 16  # rows and columns
WIDEST_SUM = 24.0  # standard deviation of a sum where ±1 is all: BF16 holds whole numbers up to 256, ten deviations
STORED = {R_64F: "<f8", R_32F: "<f4", R_16F: "<f2", R_8I: "i1", R_32I: "<i4", R_16BF: "<u2", R_8F_E4M3: "u1"}


def fill(product: Any, seed: int, whole: bool = False) -> None:
    """Write new inputs to every set: normally distributed, or whole numbers for `exact`."""
    kind = product.kind
    kept = min(1.0, WIDEST_SUM / product.shape.k**0.5 * 1.5) if kind.integers == 1 else 1.0
    for number, operands in enumerate(product.operands):
        for side, buffer in enumerate((operands.a, operands.b)):
            count = buffer.size // BYTES[kind.inputs]
            buffer_seed = seed * 1000 + number * 2 + side
            blocks = product.device.sms * 8
            whole_to = kind.integers if whole else 0
            product.device.launch(
                "fill", blocks, THREADS, kind.inputs, buffer, count, buffer_seed, kind.spread, whole_to, float(kept)
            )


def exact(product: Any, candidate: Any) -> bool:
    """Whether every element of D, of the first set, is the exact product."""
    m, n, k = product.shape
    device, kind = product.device, product.kind
    operands = _run(product, candidate)
    chance = np.random.default_rng(m * 31 + n * 17 + k)
    x = device.upload(chance.integers(-4, 5, n).astype(np.float64))
    middle, left, right = (device.allocate(8 * count) for count in (k, m, m))
    device.launch("times", -(-k // THREADS), THREADS, kind.inputs, operands.b, k, n, x, middle)
    device.launch("dots", m, THREADS, kind.inputs, operands.a, k, m, middle, left)
    device.launch("times", -(-m // THREADS), THREADS, kind.output, operands.d, m, n, x, right)
    wanted, got = (device.download(int(vector.handle), m, "<f8") for vector in (left, right))
    for buffer in (x, middle, left, right):
        buffer.close()
    return bool(np.array_equal(wanted, got) and np.any(wanted))


def reference_error(product: Any, candidate: Any) -> float:
    """The largest difference from FP64 among the sampled elements, divided by the largest of them."""
    m, n, k = product.shape
    device, kind = product.device, product.kind
    operands = _run(product, candidate)
    rows, columns = _spots(m), _spots(n)
    a = np.array([_vector(device, operands.a, kind.inputs, row, k) for row in rows])
    b = np.array([_vector(device, operands.b, kind.inputs, column, k) for column in columns])
    got = np.array([_vector(device, operands.d, kind.output, column, m)[rows] for column in columns]).T
    wanted = a @ b.T
    error = float(np.max(np.abs(got - wanted)) / np.max(np.abs(wanted)))
    return error if np.isfinite(error) else 1.0  # NaN: an element was not written


def _run(product: Any, candidate: Any) -> Any:
    """Run the first set; return its operands. D is filled with wrong values before."""
    operands = product.operands[0]
    operands.d.fill(0xFF, stream=product.device.stream)
    product.run(candidate, 0)
    return operands


def _spots(size: int) -> List[int]:
    """The first, the last and random indices below `size`."""
    between = random.Random(size).sample(range(size), min(SAMPLES, size))
    return sorted({0, size - 1, *between})


def _vector(device: CudaDevice, buffer: Any, kind: int, number: int, length: int) -> Any:
    """Vector `number` of a buffer, `length` elements, as FP64."""
    start = int(buffer.handle) + number * length * BYTES[kind]
    return decoded(device.download(start, length, STORED[kind]), kind)


def decoded(stored: Any, kind: int) -> Any:
    """Stored values of a type as FP64: numpy has neither BF16 nor FP8."""
    if kind == R_16BF:
        return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if kind == R_8F_E4M3:
        return E4M3[stored]
    return stored.astype(np.float64)


def _e4m3(code: int) -> float:
    exponent, digits = code >> 3 & 15, code & 7
    size = (8 + digits) * 2.0 ** (exponent - 10) if exponent else digits * 2.0**-9
    if code & 0x7F == 0x7F:
        size = float("nan")
    return -size if code & 0x80 else size


E4M3 = np.array([_e4m3(code) for code in range(256)])
