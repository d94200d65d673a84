"""The shape of an op's work, its FLOPs and the alignment of its rows, from the recorded inputs.

Formulas as torch/utils/flop_counter.py: a multiply and an add are two, a bias is none, a causal mask saves none. One
exception: of the weight gradient of a convolution in groups torch counts all pairs of channels, groups times too many.
What the inputs do not show is None, never a guess.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from gpuprep.trace.columns import Arguments
from gpuprep.trace.work.optypes import OpType, data_type, op_type, operand_type

Sizes = tuple[int, ...]
LARGEST_SIZE = 2**40  # of a size: a larger one means a damaged or forged file
MOST_DIMENSIONS = 16


class Inputs:
    def __init__(self, known: OpType, arguments: Arguments) -> None:
        self.at, self.arguments = known.at, arguments

    def sizes(self, name: str) -> Sizes | None:
        """Sizes of a tensor; None where there is none."""
        return self._whole(name, self.arguments.shapes)

    def strides(self, name: str) -> Sizes | None:
        return self._whole(name, self.arguments.strides)

    def _whole(self, name: str, every: tuple[object, ...]) -> Sizes | None:
        at = self.at.get(name)
        if at is None or at >= len(every):
            return None
        sizes = every[at]
        if not isinstance(sizes, (tuple, list)) or not 0 < len(sizes) <= MOST_DIMENSIONS:
            return None
        good = all(isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= LARGEST_SIZE for size in sizes)
        return tuple(sizes) if good else None

    def has(self, name: str) -> bool:
        """Whether a tensor was given for an input that may be left out."""
        return self.sizes(name) is not None

    def text(self, name: str) -> str:
        at, concrete = self.at.get(name), self.arguments.concrete
        return "" if at is None or at >= len(concrete) else concrete[at]

    def numbers(self, name: str, many: int, default: int | None = None) -> Sizes | None:
        """ "[1, 2]" as (1, 2), and "1" as (1, 1): one number stands for all. `default`: the op has no such input."""
        if name not in self.at:
            return None if default is None else (default,) * many
        numerals = re.findall(r"-?\d{1,9}", self.text(name)[:200])
        if len(numerals) == 1:
            numerals = numerals * many
        return tuple(map(int, numerals)) if len(numerals) == many else None

    def flag(self, name: str, default: bool) -> bool | None:
        if name not in self.at:
            return default
        return {"true": True, "1": True, "false": False, "0": False}.get(self.text(name).strip().lower())

    def flags(self, name: str) -> tuple[bool, ...]:
        return tuple(word in ("true", "1") for word in re.findall(r"true|false|[01]", self.text(name)[:200].lower()))


MOST = 1e24  # FLOPs of one call: days of the fastest GPU. More is a damaged shape


@dataclass(frozen=True)
class Work:
    """The products that calculate an op: `times` x `batch` products of m x n x k.

    Of a convolution m, n, k are those of its implicit product (m = batch x points, n = channels out, k = channels in x
    filter), of an attention those of its scores (m = queries, n = keys, k = head size).
    """

    kind: str  # "product" | "convolution" | "attention"
    flops: float  # of one call, all of it
    m: int
    n: int
    k: int
    batch: int = 1
    times: float = 1.0
    words: str = ""  # "m=4096 n=4096 k=4097"
    # Sizes along which elements lie side by side in memory, with their names; of a product those of both operands and
    # of the result: (("k", 4097), ("k", 4097), ("n", 4096)). They should be multiples of 16 bytes.
    rows: tuple[tuple[str, int], ...] = ()
    needed: float = 1.0  # share of `flops` that a kernel must calculate: half of them under a causal mask
    filter: Sizes = ()  # of a convolution: channels out, channels in of one group, height, width
    points: Sizes = ()  # of a convolution: batch, then where the filter stands
    image: Sizes = ()  # of a convolution: the tensor that the filter is moved over


def flops(op_type_name: str, arguments: Arguments | None) -> float | None:
    """Of one call; None where the op is none of ops.yml, or its inputs do not tell."""
    work = shape(op_type_name, arguments)
    return None if work is None else work.flops


def shape(op_type_name: str, arguments: Arguments | None) -> Work | None:
    if arguments is None:
        return None
    try:
        return _shape(op_type_name, arguments)
    except TypeError:  # a shape that is a list cannot be cached
        return _shape.__wrapped__(op_type_name, arguments)


@lru_cache(maxsize=4096)
def _shape(op_type_name: str, arguments: Arguments) -> Work | None:
    known = op_type(op_type_name)
    if known is None or not known.kind:
        return None
    work = _KINDS[known.kind](Inputs(known, arguments))
    return work if work is None or work.flops < MOST else None


# ---------------------------------------------------------------- matrix products


def _product(given: Inputs) -> Work | None:
    """(…, m, k) x (…, k, n), with batches as torch.matmul broadcasts them."""
    a, b = given.sizes("a"), given.sizes("b")
    if not a or not b:
        return None
    m, n = (1 if len(a) == 1 else a[-2]), (1 if len(b) == 1 else b[-1])
    if a[-1] != (b[0] if len(b) == 1 else b[-2]):
        return None
    many = _broadcast(a[:-2], b[:-2])
    if many is None:
        return None
    along = _along(given.strides("a"), "m", "k"), _along(given.strides("b"), "k", "n")
    return _multiplied(m, n, a[-1], math.prod(many), along)


def _linear(given: Inputs) -> Work | None:
    """(…, k) x (n, k) transposed: rows of both lie along k."""
    a, weight = given.sizes("a"), given.sizes("b")
    if not a or not weight or a[-1] != weight[-1]:
        return None
    return _multiplied(math.prod(a[:-1]), weight[0] if len(weight) > 1 else 1, a[-1], 1, ("k", "k"))


def _grouped(given: Inputs) -> Work | None:
    """Products of several sizes. Where an operand has two dimensions, the groups share one of them."""
    a, b = given.sizes("a"), given.sizes("b")
    if not a or not b or len(a) not in (2, 3) or len(b) not in (2, 3) or a[-1] != b[-2]:
        return None
    if len(a) == len(b) == 3 and a[0] != b[0]:
        return None
    return _multiplied(a[-2], b[-1], a[-1], a[0] if len(a) == len(b) == 3 else 1, ("k", "k"))


def _multiplied(m: int, n: int, k: int, batch: int, along: tuple[str, str]) -> Work:
    """`along`: the dimension along which rows of the operands lie; "" where the strides do not tell: k, as mostly."""
    size = {"m": m, "n": n, "k": k}
    words = f"m={m} n={n} k={k}" + (f" batch={batch}" if batch != 1 else "")
    rows = tuple((name, size[name]) for name in (along[0] or "k", along[1] or "k", "n"))
    return Work("product", 2.0 * m * n * k * batch, m, n, k, batch, words=words, rows=rows)


def _along(strides: Sizes | None, outer: str, inner: str) -> str:
    if not strides:
        return ""
    if len(strides) == 1 or strides[-1] == 1:
        return inner
    return outer if strides[-2] == 1 else ""


def _broadcast(sizes: Sizes, other: Sizes) -> Sizes | None:
    length = max(len(sizes), len(other))
    padded = zip((1,) * (length - len(sizes)) + sizes, (1,) * (length - len(other)) + other, strict=True)
    broadcast = []
    for left, right in padded:
        if left != right and 1 not in (left, right):
            return None
        broadcast.append(right if left == 1 else left)
    return tuple(broadcast)


# ---------------------------------------------------------------- convolutions


def _convolution(given: Inputs) -> Work | None:
    transposed = given.flag("transposed", False)
    if transposed is None:
        return None
    if transposed:
        return _transposed(given)
    image, weight = _image(given)
    space = len(weight) - 2
    if not image:
        return None
    if given.arguments.output:
        return _convolved((image[0], *given.arguments.output[2:]), image, weight, groups=_groups(image, weight))
    stride, padding = given.numbers("stride", space), given.numbers("padding", space)
    dilation = given.numbers("dilation", space, 1)
    if not stride or not padding or not dilation:
        return None
    out = []
    for size, kernel_size, step, pad, spread in zip(image[2:], weight[2:], stride, padding, dilation, strict=True):
        reach = size + 2 * pad - spread * (kernel_size - 1) - 1
        if step < 1 or reach < 0:
            return None
        out.append(reach // step + 1)
    return _convolved((image[0], *out), image, weight, groups=_groups(image, weight))


def _transposed(given: Inputs) -> Work | None:
    """The filter stands at every point of the input."""
    image, weight = _image(given)
    if not image:
        return None
    recorded = given.numbers("groups", 1)
    groups = recorded[0] if recorded and recorded[0] > 0 else None
    return _convolved((image[0], *image[2:]), image, weight, transposed=True, groups=groups)


def _groups(image: Sizes, weight: Sizes) -> int | None:
    """A weight has the channels of one group."""
    return None if not weight[1] or image[1] % weight[1] else max(1, image[1] // weight[1])


def _image(given: Inputs) -> tuple[Sizes, Sizes]:
    """Input with a batch, and weight; ((), ()) where they do not fit."""
    image, weight = given.sizes("input"), given.sizes("weight")
    if not image or not weight or len(weight) < 3:
        return (), ()
    if len(image) == len(weight) - 1:
        image = (1, *image)
    return (image, weight) if len(image) == len(weight) else ((), ())


def _convolution_backward(given: Inputs) -> Work | None:
    """One convolution for the gradient of the input, one for that of the weight, as far as they are asked for."""
    output, image, weight = given.sizes("output"), given.sizes("input"), given.sizes("weight")
    asked, transposed = given.flags("mask"), given.flag("transposed", False)
    if not output or not image or not weight or len(asked) < 2 or transposed is None:
        return None
    if not len(output) == len(image) == len(weight) > 2:
        return None
    points = image if transposed else output
    recorded = given.numbers("groups", 1)
    groups = (recorded[0] if recorded else None) if transposed else _groups(image, weight)
    at = (points[0], *points[2:])
    return _convolved(at, image, weight, transposed=transposed, groups=groups, times=sum(asked[:2]))


def _input_gradient(given: Inputs) -> Work | None:
    output, weight = given.sizes("output"), given.sizes("weight")
    if not output or not weight or len(output) != len(weight) or len(weight) < 3:
        return None
    return _convolved((output[0], *output[2:]), output, weight)  # the input's channels, and so groups, are not recorded


def _convolved(
    points: Sizes, image: Sizes, weight: Sizes, *, transposed: bool = False, groups: int | None = None, times: int = 1
) -> Work:
    """`points`: batch, then where the filter stands. `groups` None: not known."""
    m, n, k = math.prod(points), weight[0], math.prod(weight[1:])
    channels = (weight[0], weight[1] * (groups or 1)) if transposed else (weight[1] * (groups or 1), weight[0])
    shape = (
        f"batch={points[0]} points={_by(points[1:])} channels={channels[0]} to {channels[1]} filter={_by(weight[2:])}"
    )
    named = (("channels in", channels[0]), ("channels out", channels[1]))
    return Work(
        kind="convolution",
        flops=2.0 * m * n * k * times,
        m=m,
        n=n,
        k=k,
        times=times,
        words=shape if groups == 1 else f"{shape} groups={groups or 'not known'}",
        rows=named if groups == 1 else (),
        filter=weight,
        points=points,
        image=image,
    )


def _by(sizes: Sizes) -> str:
    return "x".join(map(str, sizes))


def with_outputs(ops: Sequence[tuple[str, Arguments]]) -> list[Arguments]:
    """The arguments of distinct ops of one profile. Formats before 2023 lack stride and padding: there a convolution
    gets its output from the backward op with the same input and weight, where all such ops agree."""
    told: dict[tuple[Sizes, Sizes], set[Sizes]] = {}
    for name, arguments in ops:
        known = op_type(name)
        if known is not None and known.kind == "convolution_backward" and not arguments.concrete:
            given = Inputs(known, arguments)
            output, image, weight = given.sizes("output"), given.sizes("input"), given.sizes("weight")
            if output and image and weight and output[:2] == (image[0], weight[0]) and len(output) == len(weight) > 2:
                told.setdefault((image, weight), set()).add(output)
    made = []
    for name, arguments in ops:
        known = op_type(name)
        if told and known is not None and known.kind == "convolution" and not arguments.concrete:
            outputs = told.get(_image(Inputs(known, arguments)), set())
            arguments = replace(arguments, output=next(iter(outputs))) if len(outputs) == 1 else arguments
        made.append(arguments)
    return made


# ---------------------------------------------------------------- attention


def _attention(given: Inputs) -> Work | None:
    return _attended(given, rows=False, backward=False)


def _attention_backward(given: Inputs) -> Work | None:
    return _attended(given, rows=False, backward=True)


def _rows_attention(given: Inputs) -> Work | None:
    return _attended(given, rows=True, backward=False)


def _rows_attention_backward(given: Inputs) -> Work | None:
    return _attended(given, rows=True, backward=True)


def _attended(given: Inputs, *, rows: bool, backward: bool) -> Work | None:
    """Forward: scores, and scores x values. Backward: the scores again, and four gradients.

    `rows`: (batch, sequence, heads, size) in place of (batch, heads, sequence, size). Keys may have fewer heads.
    """
    q, k, v = given.sizes("q"), given.sizes("k"), given.sizes("v")
    if not q or not k or not v or not len(q) == len(k) == len(v) == 4 or given.has("lengths"):
        return None
    if rows:
        q, k, v = ((one[0], one[2], one[1], one[3]) for one in (q, k, v))
    batch, heads, queries, size = q
    keys, width = k[2], v[3]
    if k[3] != size or v[2] != keys or not k[0] == v[0] == batch or k[1] != v[1] or not k[1] or heads % k[1]:
        return None
    of_scores, of_values = (3, 2) if backward else (1, 1)
    causal = "causal" in given.at and given.text("causal").strip().lower() in ("true", "1", "2")
    total = 2.0 * batch * heads * queries * keys * (of_scores * size + of_values * width)
    product = 2.0 * batch * heads * queries * keys * size
    words = f"batch={batch} heads={heads} queries={queries} keys={keys} head size={size}"
    return Work(
        kind="attention",
        flops=total,
        m=queries,
        n=keys,
        k=size,
        batch=batch * heads,
        times=total / product if product else 0.0,
        needed=_below_diagonal(queries, keys) if causal else 1.0,
        words=words,
        rows=(("head size", size),) if size == width else (("head size", size), ("head size of the values", width)),
    )


def _below_diagonal(queries: int, keys: int) -> float:
    """Share of the scores that a causal mask leaves, where the mask begins at the first query and key."""
    if not queries or not keys:
        return 1.0
    short = min(queries, keys)
    return (short * (short + 1) / 2 + (queries - short) * keys) / (queries * keys)


_KINDS: dict[str, Callable[[Inputs], Work | None]] = {
    "product": _product,
    "linear": _linear,
    "grouped": _grouped,
    "convolution": _convolution,
    "transposed": _transposed,
    "convolution_backward": _convolution_backward,
    "input_gradient": _input_gradient,
    "attention": _attention,
    "attention_backward": _attention_backward,
    "rows_attention": _rows_attention,
    "rows_attention_backward": _rows_attention_backward,
}


ROW = 16  # bytes
FIRST_LAYER = 4  # channels: cuDNN has kernels of its own for images


def dtype(op_type: str, arguments: Arguments | None) -> str:
    """Of what is multiplied, as gpuprep's catalogue names it: "fp16"; "" if it is not in the profile."""
    known = data_type(operand_type(op_type, arguments))
    return known.short if known else ""


def multiple(op_type: str, arguments: Arguments | None) -> int | None:
    """Elements of 16 bytes: 8 of FP16 and BF16, 4 of FP32 as TF32, 16 of INT8 and FP8. None: the type is not known."""
    known = data_type(operand_type(op_type, arguments))
    return max(1, ROW // known.bytes) if known else None


def misaligned(op_type: str, arguments: Arguments | None) -> tuple[tuple[str, int], ...]:
    """Sizes of rows that are no multiple of 16 bytes: (("k", 4097),). () where all are, or the profile does not tell.

    Only sizes along which elements lie side by side count. Where the profile has no strides, those of a forward pass.
    """
    work, needed = shape(op_type, arguments), multiple(op_type, arguments)
    if work is None or needed is None:
        return ()
    first = work.kind == "convolution" and work.filter[1] <= FIRST_LAYER
    rows = dict.fromkeys(work.rows)  # operands of a product may share theirs
    return tuple((name, size) for name, size in rows if size % needed and not (first and name == "channels in"))


def kernel_alignment(kernel_name: str) -> int | None:
    """Elements that a CUTLASS kernel loads at once, of `_align8` in its name; the least of several. None: none."""
    alignments = re.findall(r"_align[abc]?(\d{1,3})(?!\d)", kernel_name[:2000])
    return min(map(int, alignments)) if alignments else None
