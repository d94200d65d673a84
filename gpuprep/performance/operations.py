"""Operations as the matrix products that calculate them: shapes, convolutions, attention.

    products("4097x4097x4097", batch=16)          a product, or many of one shape
    convolution("32,56,56,64,64,3,3")             n, h, w, c, k, r, s[, stride, pad]
    attention("8,32,4096,128")                    batch, heads, sequence, head size

A product is C (m x n) = A (m x k) B (k x n); how A, B and C lie in memory is its layout.
A convolution is the implicit product of m = n p q, n = k, k = c r s,
where p and q are height and width of its output (NVIDIA's "Optimizing Convolutional Layers
User's Guide"; forward pass).
Attention is two batches of products, Q K^T and scores x V, with a softmax between them.
Raises ValueError with what is wrong and what is allowed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from gpuprep.performance.roofline import INPUT_BYTES, OUTPUT_BYTES

LARGEST = 2**31 - 1  # cuBLAS counts in 32 bits
# By name: of m, n and k those along which the elements of A, B and C lie side by side. "row" is x @ w.T of PyTorch and
# NumPy, with w (n x k); the others are those of BLAS, whose matrices are column-major: t is a transposed operand.
LAYOUTS = {"row": "kkn", "nn": "mkm", "nt": "mnm", "tn": "kkm", "tt": "knm"}
ROW_MAJOR = LAYOUTS["row"]
SEPARATOR = re.compile(r"\s*[x×X*,;]\s*")
DIGITS = 10


@dataclass(frozen=True)
class Operation:
    """`batch` products of one shape. `bytes_moved` None: each matrix crosses the memory bus once."""

    kind: str  # "product" | "convolution" | "attention"
    words: str  # "4097x4097x4097", "convolution 32,56,56,64,64,3,3"
    m: int
    n: int
    k: int
    batch: int = 1
    read: int | None = None  # elements that must be read and written, where these are not those of the product
    written: int | None = None
    aligned: tuple[int, ...] | None = None  # what must be a multiple of 16 bytes, where it is not what `rows` says
    rows: str = ROW_MAJOR  # as LAYOUTS

    @property
    def operations(self) -> float:
        """A multiply and an add are two."""
        return 2.0 * self.m * self.n * self.k * self.batch

    def bytes_moved(self, dtype: str) -> float:
        read = self.read if self.read is not None else self.batch * (self.m * self.k + self.k * self.n)
        return float(INPUT_BYTES[dtype] * read) + self.bytes_written(dtype)

    def bytes_written(self, dtype: str) -> float:
        written = self.written if self.written is not None else self.batch * self.m * self.n
        return float(OUTPUT_BYTES[dtype] * written)

    def intensity(self, dtype: str) -> float:
        return self.operations / self.bytes_moved(dtype)


@dataclass(frozen=True)
class Attention:
    """Two batches of products, and the bytes of one kernel that keeps the scores on the chip."""

    words: str
    batch: int
    heads: int
    sequence: int
    size: int
    parts: tuple[Operation, Operation]  # Q K^T, scores x V

    @property
    def operations(self) -> float:
        return sum(part.operations for part in self.parts)

    def fused_bytes(self, dtype: str) -> float:
        """Q, K and V read once, the output written once."""
        return 4.0 * self.batch * self.heads * self.sequence * self.size * INPUT_BYTES[dtype]

    def score_bytes(self, dtype: str) -> float:
        """What the softmax of separate kernels reads and writes."""
        return 2.0 * self.batch * self.heads * self.sequence**2 * INPUT_BYTES[dtype]


def product(words: str, batch: int = 1, layout: str = "row") -> Operation:
    m, n, k = _numbers(words, ("m", "n", "k"), "a shape is MxNxK, such as 4096x4096x4096")
    name = f"{m}x{n}x{k}" + (f", {batch} of them" if batch > 1 else "")
    name += "" if layout == "row" else f", layout {layout}"
    return Operation("product", name, m, n, k, batch, rows=LAYOUTS[layout])


def transposed(operation: Operation) -> Operation:
    """The same work as C' (n x m) = B' A': what a library with column-major matrices calculates for row-major ones."""
    turned = operation.rows.translate(str.maketrans("mn", "nm"))
    return replace(operation, m=operation.n, n=operation.m, rows=turned[1] + turned[0] + turned[2])


def convolution(words: str) -> Operation:
    wanted = "a convolution is n,h,w,c,k,r,s[,stride,pad], such as 32,56,56,64,64,3,3,1,1"
    numbers = _numbers(words, ("n", "h", "w", "c", "k", "r", "s"), wanted, optional=("stride", "pad"), zero=("pad",))
    n, h, w, c, k, r, s = numbers[:7]
    stride = numbers[7] if len(numbers) > 7 else 1
    pad = numbers[8] if len(numbers) > 8 else 0
    p, q = (h + 2 * pad - r) // stride + 1, (w + 2 * pad - s) // stride + 1
    if h + 2 * pad < r or w + 2 * pad < s:
        raise ValueError(f"{_short(words)}: the filter of {r}x{s} is larger than the image of {h}x{w}; {wanted}")
    if max(n * p * q, c * r * s) > LARGEST:
        raise ValueError(f"{_short(words)}: the product of this convolution is larger than {LARGEST}")
    return Operation(
        "convolution",
        f"convolution {','.join(map(str, numbers))}",
        n * p * q,
        k,
        c * r * s,
        read=n * h * w * c + k * c * r * s,
        written=n * p * q * k,
        aligned=(c, k),  # channels lie side by side (NHWC)
    )


def attention(words: str) -> Attention:
    wanted = "attention is batch,heads,sequence,head size, such as 8,32,4096,128"
    batch, heads, sequence, size = _numbers(words, ("batch", "heads", "sequence", "head size"), wanted)
    many = batch * heads
    if many > LARGEST:
        raise ValueError(f"{_short(words)}: batch x heads is larger than {LARGEST}")
    scores = Operation("attention", "Q K^T", sequence, sequence, size, many)
    values = Operation("attention", "scores x V", sequence, size, sequence, many)
    name = f"attention {batch},{heads},{sequence},{size}"
    return Attention(name, batch, heads, sequence, size, (scores, values))


def _numbers(
    words: str, names: tuple[str, ...], wanted: str, *, optional: tuple[str, ...] = (), zero: tuple[str, ...] = ()
) -> tuple[int, ...]:
    parts = SEPARATOR.split(words.strip()) if len(words) <= 200 else []
    every = (*names, *optional)
    if not len(names) <= len(parts) <= len(every):
        raise ValueError(f"{_short(words)}: {wanted}")
    numbers = []
    for name, part in zip(every, parts, strict=False):
        least = 0 if name in zero else 1
        if not re.fullmatch(rf"[0-9]{{1,{DIGITS}}}", part) or not least <= int(part) <= LARGEST:
            raise ValueError(f"{_short(words)}: {name} is a whole number from {least} to {LARGEST}; {wanted}")
        numbers.append(int(part))
    return tuple(numbers)


def _short(words: str) -> str:
    return repr(words if len(words) <= 60 else words[:59] + "…")
