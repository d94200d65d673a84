"""Shapes of matrix products: tiles and waves, alignment, and the better shape near a bad one.

Sources: NVIDIA's "Matrix Multiplication Background User's Guide": tile quantization, wave quantization, and Table 1
(dimensions should be multiples of 16 bytes, on A100 and newer of 128 bytes).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpuprep.catalogue import parse
from gpuprep.performance.roofline import INPUT_BYTES, OUTPUT_BYTES, intensity
from gpuprep.records import Missing
from gpuprep.records.evidence.gemm import Algorithm

Shape = tuple[int, int, int]

WORTH_NAMING = 0.95  # a factor below this is worth another shape
LARGEST = 2**17  # no better shape is looked for beyond
MOST_RESIDENT = 8.5  # blocks of a tiled product on one SM: registers and shared memory hold no more
ROW_BYTES = 16  # of which rows should be a multiple
ROUNDING = 1e-3  # cuBLASLt tells waves as a float: 4.0001 waves are 4


@dataclass(frozen=True)
class Tiling:
    """`tile` and `wave` are factors, 1 if nothing is lost or nothing is known (then a note says so).

    `waves` is None if no better shape can be predicted.
    """

    tile: float
    wave: float
    waves: float | None
    tile_m: int | None
    tile_n: int | None
    sms: int | None
    tile_words: str
    wave_words: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Wish:
    shape: Shape | None
    advice: tuple[str, ...]


def tiling(algorithm: Algorithm | Missing, m: int, n: int, k: int, sms: int | None) -> Tiling:
    """From the algorithm's tile and wave count (docs/records.md); without a wave count, from the tiles."""
    if isinstance(algorithm, Missing):
        note = "the algorithm was not recorded: the loss by tiles and waves cannot be separated from other causes"
        return Tiling(1.0, 1.0, None, None, None, sms, "partly empty tiles", "a last wave partly full", (note,))
    tile_m, tile_n, tile_k = algorithm.tile_m, algorithm.tile_n, algorithm.tile_k
    notes = []
    tile, tile_words = 1.0, "partly empty tiles"
    if tile_m and tile_n:
        tile = m / _up(m, tile_m) * n / _up(n, tile_n) * (k / _up(k, tile_k) if tile_k else 1.0)
        tile_words = f"partly empty tiles of {tile_m}x{tile_n}"
    else:
        notes.append("the tile was not recorded: the loss by partly empty tiles cannot be separated from other causes")
    read = algorithm.waves
    waves = None if isinstance(read, Missing) or read <= 0 else read
    tiles = None
    if tile_m and tile_n:
        tiles = math.ceil(m / tile_m) * math.ceil(n / tile_n) * (algorithm.split_k or 1)
    if waves is None and tiles and sms:
        waves = tiles / sms
        notes.append(f"waves were counted from the tiles: {tiles} on {sms} SMs")
    if waves is None:
        notes.append("the waves were not recorded: the loss by a last wave cannot be separated from other causes")
        return Tiling(tile, 1.0, None, tile_m, tile_n, sms, tile_words, "a last wave partly full", tuple(notes))
    wave, rounds, wave_words = _waves(waves, tiles, sms)
    return Tiling(tile, wave, rounds, tile_m, tile_n, sms, tile_words, wave_words, tuple(notes))


def _waves(waves: float, tiles: int | None, sms: int | None) -> tuple[float, float | None, str]:
    """(factor, rounds of tiles per SM if a larger shape would fill them, words).

    cuBLASLt counts grids of resident blocks. If an SM holds several blocks at a time, or blocks are persistent and take
    tile after tile, this count says
    little: even with one block each, every SM is at work in the last wave. Then only the
    last round of tiles on the SMs is lost. (A real H200, FP32, 1.29 waves of six blocks per SM: 3 % lost, not 35 %.)
    """
    if not tiles or not sms or tiles <= sms:
        return wave_factor(waves), waves, _wave_words(waves)
    if waves < 1.0 - ROUNDING:
        # Persistent blocks take tile after tile and finish together: there is no last round (H200: 18 rounds of 120
        # blocks would explain 1.02 times of what FP16 reached, 120 of 132 SMs alone 0.97).
        blocks = max(1, round(waves * sms))
        return blocks / sms, None, f"SMs without a tile ({blocks} of {sms} at work)"
    resident = tiles / sms / waves
    several = 1.5 < resident < MOST_RESIDENT and abs(resident - round(resident)) < 0.005 * resident
    if several or waves <= 1.0 + ROUNDING:
        return wave_factor(tiles / sms), tiles / sms, _wave_words(tiles / sms)
    return wave_factor(waves), waves, _wave_words(waves)


def wave_factor(waves: float) -> float:
    return min(1.0, waves / max(1, math.ceil(waves - ROUNDING)))


def _up(size: int, multiple: int) -> int:
    return math.ceil(size / multiple) * multiple


def _wave_words(waves: float) -> str:
    if waves < 1.0:
        return f"SMs without a tile (one wave {full(waves)})"
    return f"a last wave {full(waves - math.floor(waves))}"


def full(share: float) -> str:
    """ "one third full" """
    near = {"one tenth": 0.1, "one fifth": 0.2, "one quarter": 0.25, "one third": 1 / 3, "half": 0.5,
            "two thirds": 2 / 3, "three quarters": 0.75, "nine tenths": 0.9}  # fmt: skip
    word, value = min(near.items(), key=lambda item: abs(item[1] - share))
    return f"{word} full" if abs(value - share) <= 0.02 else f"{100 * share:.0f} % full"


def alignment(dtype: str, compute_capability: str) -> tuple[int, int]:
    """(needed, best) multiples in elements: 16 bytes everywhere, 128 bytes best on GA100 and Hopper."""
    size = INPUT_BYTES[dtype]
    needed = max(1, 16 // size)
    big = parse(compute_capability) == parse("8.0") or parse(compute_capability) >= parse("9.0")
    return needed, max(1, 128 // size) if big else needed


def row_bytes(dtype: str, shape: Shape, rows: str) -> dict[str, int]:
    """Bytes of the rows of A, B and C, by the name of their size (`rows`: operations.LAYOUTS).

    Where two have rows of one size, the fewer bytes. Rows of one element, and those of a vector C, do not count.
    """
    sizes = dict(zip("mnk", shape, strict=True))
    each = (INPUT_BYTES[dtype], INPUT_BYTES[dtype], OUTPUT_BYTES[dtype])
    found: dict[str, int] = {}
    for matrix, name in enumerate(rows):
        if sizes[name] > 1 and not (matrix == 2 and min(sizes["m"], sizes["n"]) == 1):
            length = sizes[name] * each[matrix]
            found[name] = min(length, found.get(name, length))
    return found


def misaligned(dtype: str, shape: Shape, rows: str) -> str:
    """The sizes whose rows are no multiple of 16 bytes: "n 4097 and k 4097"; "" where all are."""
    lengths = row_bytes(dtype, shape, rows)
    return " and ".join(
        f"{name} {size}" for name, size in zip("mnk", shape, strict=True) if lengths.get(name, 0) % ROW_BYTES
    )


def better(dtype: str, shape: Shape, ridge: float, tiles: Tiling, compute_capability: str, rows: str) -> Wish:
    """A near shape that is aligned, not memory-bound and ends in a full wave; None: this shape is best.

    Sizes grow, or shrink where a smaller shape is nearer. For alignment only those change along which rows lie.
    """
    advice: list[str] = []
    needed, best = alignment(dtype, compute_capability)
    wish = shape
    if crooked := misaligned(dtype, shape, rows):
        wish = _nearest(shape, best, rows)
        verb = "are no multiples" if " and " in crooked else "is no multiple"
        advice.append(f"{crooked} {verb} of 16 bytes ({needed} elements of {dtype}): {show(wish)} is")
    elif (nearest := _nearest(shape, best, rows)) != shape:
        wish = nearest
        advice.append(
            f"this GPU is fastest at multiples of 128 bytes ({best} elements of {dtype}): {show(wish)} is one"
        )
    if intensity(dtype, *shape) < ridge:
        density = intensity(dtype, *shape)
        wish = _denser(dtype, wish, ridge, best)
        reached = intensity(dtype, *wish)
        verb = "has" if reached >= ridge else "comes nearer with"
        why = f"memory-bound: {density:.0f} operations a byte, and this GPU needs {ridge:.0f}"
        advice.append(f"{why}; {show(wish)} {verb} {reached:.0f}")
    elif tiles.wave < WORTH_NAMING and (fuller := _fuller(wish, tiles)):
        wish = fuller
        advice.append(f"the last wave of tiles leaves SMs idle; {show(wish)} fills it")
    return Wish(None if wish == shape else wish, tuple(advice))


def show(shape: Shape) -> str:
    return "x".join(str(size) for size in shape)


def _each_up(shape: Shape, multiple: int) -> Shape:
    m, n, k = shape
    return _up(m, multiple), _up(n, multiple), _up(k, multiple)


def _nearest(shape: Shape, multiple: int, rows: str) -> Shape:
    """Each size of `rows` at the nearer multiple: 4097 ► 4096. At half way it grows, and it never becomes nothing."""
    m, n, k = (
        max(multiple, (size + multiple // 2) // multiple * multiple) if name in rows else size
        for name, size in zip("mnk", shape, strict=True)
    )
    return m, n, k


def _denser(dtype: str, shape: Shape, ridge: float, multiple: int) -> Shape:
    """The smallest dimension doubled until calculating takes longer than loading."""
    sizes = list(_each_up(shape, multiple))
    while intensity(dtype, sizes[0], sizes[1], sizes[2]) < ridge and min(sizes) < LARGEST:
        smallest = sizes.index(min(sizes))
        sizes[smallest] = 2 ** math.floor(math.log2(sizes[smallest]) + 1)
    return sizes[0], sizes[1], sizes[2]


def _fuller(shape: Shape, tiles: Tiling) -> Shape | None:
    """n or m changed by the fewest whole tiles that fill the waves; the kernel's tiles per SM stay the same.

    Of a larger and a smaller shape that are as near, the larger: nothing of the work is left out.
    """
    if not (tiles.tile_m and tiles.tile_n and tiles.waves):
        return None
    m, n, k = shape
    rows, columns = math.ceil(m / tiles.tile_m), math.ceil(n / tiles.tile_n)
    a_tile = tiles.waves / (rows * columns)
    for step in range(1, 2 * (tiles.sms or 128)):
        for more in (step, -step):
            for r, c in ((rows, columns + more), (rows + more, columns)):
                waves = a_tile * r * c
                if min(r, c) > 0 and waves > 1.0 - ROUNDING and wave_factor(waves) > 0.98:
                    return (m, c * tiles.tile_n, k) if r == rows else (r * tiles.tile_m, n, k)
    return None
