"""A small convolution: its shape, its inputs, and some of its expected outputs."""

from __future__ import annotations

import itertools
import math
import operator
import random
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Callable, List, Sequence, Tuple

Value = Callable[[int, int, int, int], float]
# Values of all channels at once: reading numpy tables one number at a time took a second.
Channels = Callable[[int, int, int], Sequence[float]]


@dataclass(frozen=True)
class Shape:
    """`images` pictures of `channels` x `height` x `width`, `filters` of `channels` x `kernel`², padded to size."""

    images: int
    channels: int
    height: int
    width: int
    filters: int
    kernel: int

    def __str__(self) -> str:
        picture = f"{self.images}x{self.channels}x{self.height}x{self.width}"
        return f"{picture} * {self.filters}x{self.channels}x{self.kernel}x{self.kernel}"

    @property
    def padding(self) -> int:
        return self.kernel // 2

    @property
    def operations(self) -> int:
        """A multiply and an add each count."""
        outputs = self.images * self.filters * self.height * self.width
        return 2 * outputs * self.channels * self.kernel**2


SHAPE = Shape(images=32, channels=64, height=56, width=56, filters=64, kernel=3)
SAMPLES = 512
# Relative to the largest output. FP16 and TF32 have 11 bits; sums of 576 products are kept in FP32.
TOLERANCE = {"fp16": 0.01, "fp32": 0.01}


def strides(dims: Tuple[int, int, int, int], layout: str) -> List[int]:
    """Strides in elements, for the axes (n, c, h, w), of a tensor in NCHW or NHWC layout."""
    _, c, h, w = dims
    return [c * h * w, h * w, w, 1] if layout == "NCHW" else [c * h * w, 1, w * c, c]


@lru_cache(maxsize=2)
def inputs(numpy: Any, shape: Shape, dtype: str) -> Tuple[Any, Any]:
    """(pictures NCHW, filters KCRS), normal random, from a fixed seed, rounded to `dtype`."""
    normal = numpy.random.default_rng(20261120).standard_normal
    kind = numpy.float16 if dtype == "fp16" else numpy.float32
    pictures = normal((shape.images, shape.channels, shape.height, shape.width))
    filters = normal((shape.filters, shape.channels, shape.kernel, shape.kernel))
    return pictures.astype(kind), (filters / (shape.channels * shape.kernel**2) ** 0.5).astype(kind)


def laid_out(numpy: Any, values: Any, layout: str) -> Any:
    """NCHW values in the memory order of `layout`."""
    return numpy.ascontiguousarray(values if layout == "NCHW" else values.transpose(0, 2, 3, 1))


def sampled_error(shape: Shape, picture: Channels, weight: Channels, got: Value, samples: int = SAMPLES) -> float:
    """The largest difference from FP64 among `samples` outputs and all corners, divided by the largest output.

    picture(n, y, x) and weight(k, row, column) give a value for each channel, got(n, k, y, x) a single one.
    Not-a-numbers give infinity.
    """
    draw = random.Random(1)
    sizes = (shape.images, shape.filters, shape.height, shape.width)
    ends = [(n, k, y, x) for n, k, y, x in itertools.product(*((0, size - 1) for size in sizes))]
    places = [*ends, *(tuple(draw.randrange(size) for size in sizes) for _ in range(samples))]
    largest = worst = 0.0
    for n, k, y, x in places:
        want = _output(shape, picture, weight, (n, k, y, x))
        difference = abs(got(n, k, y, x) - want)
        largest = max(largest, abs(want))
        worst = max(worst, difference if math.isfinite(difference) else math.inf)
    return worst / largest if largest else math.inf


def _output(shape: Shape, picture: Channels, weight: Channels, place: Tuple[int, int, int, int]) -> float:
    n, k, y, x = place
    products: List[float] = []
    for row, column in itertools.product(range(shape.kernel), repeat=2):
        above, left = y + row - shape.padding, x + column - shape.padding
        if 0 <= above < shape.height and 0 <= left < shape.width:
            products += map(operator.mul, picture(n, above, left), weight(k, row, column))
    return math.fsum(products)
