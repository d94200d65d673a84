"""The shape and the FLOPs of an op, from its recorded inputs. Pure.

Formulas as torch/utils/flop_counter.py counts: a multiply and an add are two, a bias is none, a mask saves none.
What the inputs do not tell is None, never a guess.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from gpuprep.trace.columns import Arguments
from gpuprep.trace.work.optypes import OpType, op_type

Sizes = tuple[int, ...]
LARGEST = 2**53  # of a size; beyond it a double counts no longer exactly


@dataclass(frozen=True)
class Work:
    """The products that calculate an op. Of a convolution m, n, k are those of its implicit product."""

    kind: str  # "product" | "convolution" | "attention"
    flops: float  # of one call
    m: int
    n: int
    k: int
    batch: int = 1
    words: str = ""  # "m=4096 n=4096 k=4097"


def flops(op_type_name: str, arguments: Arguments | None) -> float | None:
    """Of one call; None where the op is none of ops.yml, or its inputs do not tell."""
    work = shape(op_type_name, arguments)
    return None if work is None else work.flops


def shape(op_type_name: str, arguments: Arguments | None) -> Work | None:
    known = op_type(op_type_name)
    if known is None or arguments is None or not known.kind:
        return None
    return _KINDS[known.kind](_Inputs(known, arguments))


class _Inputs:
    """Inputs of one op by their names in ops.yml."""

    def __init__(self, known: OpType, arguments: Arguments) -> None:
        self.at, self.arguments = known.at, arguments

    def sizes(self, name: str) -> Sizes | None:
        """Sizes of a tensor, none of them below 0."""
        at, shapes = self.at.get(name), self.arguments.shapes
        if at is None or at >= len(shapes):
            return None
        found = shapes[at]
        if not isinstance(found, (tuple, list)) or not found:
            return None
        whole = all(isinstance(one, int) and not isinstance(one, bool) and 0 <= one <= LARGEST for one in found)
        return tuple(found) if whole else None

    def text(self, name: str) -> str:
        at, concrete = self.at.get(name), self.arguments.concrete
        return "" if at is None or at >= len(concrete) else concrete[at]

    def numbers(self, name: str, many: int, default: int | None = None) -> Sizes | None:
        """ "[1, 2]" or "1" as (1, 2) or (1, 1); one number stands for all. Default: where the op has no such input."""
        if name not in self.at:
            return None if default is None else (default,) * many
        found = re.findall(r"-?\d{1,9}", self.text(name))
        if len(found) == 1:
            found = found * many
        return tuple(map(int, found)) if len(found) == many else None

    def flag(self, name: str, default: bool | None) -> bool | None:
        if name not in self.at:
            return default
        return {"true": True, "1": True, "false": False, "0": False}.get(self.text(name).strip().lower())


def _product(given: _Inputs) -> Work | None:
    """(…, m, k) x (…, k, n), with batches as torch.matmul broadcasts them."""
    a, b = given.sizes("a"), given.sizes("b")
    if not a or not b:
        return None
    rows, columns = (1 if len(a) == 1 else a[-2]), (1 if len(b) == 1 else b[-1])
    if a[-1] != (b[0] if len(b) == 1 else b[-2]):
        return None
    many = _broadcast(a[:-2], b[:-2])
    return None if many is None else _multiplied(rows, columns, a[-1], math.prod(many))


def _linear(given: _Inputs) -> Work | None:
    a, weight = given.sizes("a"), given.sizes("b")
    if not a or not weight or a[-1] != weight[-1]:
        return None
    return _multiplied(math.prod(a[:-1]), weight[0] if len(weight) > 1 else 1, a[-1], 1)


def _grouped(given: _Inputs) -> Work | None:
    """Rows of a in groups, each with its own matrix: (m, k) x (groups, k, n). Other forms need the groups' sizes."""
    a, b = given.sizes("a"), given.sizes("b")
    if not a or not b or len(a) != 2 or len(b) != 3 or a[-1] != b[1]:
        return None
    return _multiplied(a[0], b[2], a[1], 1)


def _multiplied(m: int, n: int, k: int, batch: int) -> Work:
    words = f"m={m} n={n} k={k}" + (f" batch={batch}" if batch != 1 else "")
    return Work("product", 2.0 * m * n * k * batch, m, n, k, batch, words)


def _broadcast(one: Sizes, other: Sizes) -> Sizes | None:
    length = max(len(one), len(other))
    padded = zip((1,) * (length - len(one)) + one, (1,) * (length - len(other)) + other, strict=True)
    found = []
    for left, right in padded:
        if left != right and 1 not in (left, right):
            return None
        found.append(right if left == 1 else left)
    return tuple(found)


def _convolution(given: _Inputs) -> Work | None:
    if given.flag("transposed", False):
        return _transposed(given)
    image, weight = given.sizes("input"), given.sizes("weight")
    if not image or not weight or len(weight) < 3:
        return None
    if len(image) == len(weight) - 1:
        image = (1, *image)
    space = len(weight) - 2
    stride, padding = given.numbers("stride", space), given.numbers("padding", space)
    dilation = given.numbers("dilation", space, 1)
    if (
        len(image) != len(weight)
        or given.flag("transposed", False) is None
        or not stride
        or not padding
        or not dilation
    ):
        return None
    out = []
    for size, one, step, pad, spread in zip(image[2:], weight[2:], stride, padding, dilation, strict=True):
        if step < 1 or (reach := size + 2 * pad - spread * (one - 1) - 1) < 0:
            return None
        out.append(reach // step + 1)
    return _convolved(image[0], tuple(out), weight, 1)


def _transposed(given: _Inputs) -> Work | None:
    image, weight = given.sizes("input"), given.sizes("weight")
    if not image or not weight or len(weight) < 3:
        return None
    if len(image) == len(weight) - 1:
        image = (1, *image)
    return None if len(image) != len(weight) else _convolved(image[0], image[2:], weight, 1)


def _convolved(batch: int, points: Sizes, weight: Sizes, times: int) -> Work:
    """`times` convolutions of one size. `points` are those at which the filter stands."""
    m, n, k = batch * math.prod(points), weight[0], math.prod(weight[1:])
    filters = "x".join(map(str, weight[2:]))
    words = f"batch={batch} points={'x'.join(map(str, points))} channels={weight[1]} to {weight[0]} filter={filters}"
    return Work("convolution", 2.0 * m * n * k * times, m, n, k, 1, words)


def _convolution_backward(given: _Inputs) -> Work | None:
    """One convolution for the gradient of the input, one for that of the weight, as far as they are asked for."""
    output, image, weight = given.sizes("output"), given.sizes("input"), given.sizes("weight")
    asked = re.findall(r"true|false|[01]", given.text("mask").lower())
    transposed = given.flag("transposed", False)
    if not output or not image or not weight or len(asked) < 2 or transposed is None:
        return None
    times = sum(one in ("true", "1") for one in asked[:2])
    points = image if transposed else output
    return None if len(points) != len(weight) else _convolved(points[0], points[2:], weight, times)


def _convolution_gradient(given: _Inputs) -> Work | None:
    output, weight = given.sizes("output"), given.sizes("weight")
    if not output or not weight or len(output) != len(weight):
        return None
    return _convolved(output[0], output[2:], weight, 1)


def _attention(given: _Inputs) -> Work | None:
    return _attended(given, backward=False)


def _attention_backward(given: _Inputs) -> Work | None:
    return _attended(given, backward=True)


def _attended(given: _Inputs, *, backward: bool) -> Work | None:
    """Forward: scores, and scores x values. Backward: the scores again, and four gradients."""
    q, k, v = given.sizes("q"), given.sizes("k"), given.sizes("v")
    if not q or not k or not v or not len(q) == len(k) == len(v) == 4:
        return None
    batch, heads, queries, size = q
    keys, width = k[2], v[3]
    of_scores, of_values = (3, 2) if backward else (1, 1)
    total = 2.0 * batch * heads * queries * keys * (of_scores * size + of_values * width)
    words = f"batch={batch} heads={heads} queries={queries} keys={keys} size={size}"
    return Work("attention", total, queries, keys, size, batch * heads, words)


_KINDS: dict[str, Callable[[_Inputs], Work | None]] = {
    "product": _product,
    "linear": _linear,
    "grouped": _grouped,
    "convolution": _convolution,
    "transposed": _transposed,
    "convolution_backward": _convolution_backward,
    "convolution_gradient": _convolution_gradient,
    "attention": _attention,
    "attention_backward": _attention_backward,
}
