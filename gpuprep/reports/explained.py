"""Answers of `gpuprep explain` as a page, and as the values of its JSON document (docs/explain.md names them)."""

from __future__ import annotations

from typing import Any

from gpuprep.catalogue import Board
from gpuprep.performance import bettershape, losses
from gpuprep.performance.answers import Answer, Attended, Product
from gpuprep.performance.predict import Prediction
from gpuprep.records import Missing
from gpuprep.reports import explained_board, explained_model, paragraphs
from gpuprep.reports.readings import figure


def page(answer: Answer, width: int, *, whole: bool = False) -> str:
    """Plain text of `width` columns. `whole`: also what nobody asks for first."""
    blocks = []
    if answer.board is not None and (answer.products or answer.attentions):
        blocks.append(_which(answer.board, answer.candidates, width))
    blocks += [_product(product, width) for product in answer.products]
    blocks += [_attention(attention, width) for attention in answer.attentions]
    if answer.sheet is not None:
        blocks.append(explained_board.page(answer.sheet, width, whole=whole))
    if answer.model is not None:
        blocks.append(explained_model.page(answer.model, width))
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def document(answer: Answer) -> dict[str, Any]:
    """The values of the JSON document: always the same names, null or [] where nothing was asked."""
    return {
        "gpu": None if answer.board is None else {"board": answer.board.key, "name": answer.board.name},
        "meant": [candidate.key for candidate in answer.candidates],
        "products": [_product_values(product) for product in answer.products],
        "attentions": [_attention_values(attention) for attention in answer.attentions],
        "board": None if answer.sheet is None else explained_board.values(answer.sheet),
        "model": None if answer.model is None else explained_model.values(answer.model),
    }


def _which(board: Board, candidates: tuple[Board, ...], width: int) -> list[str]:
    others = ", ".join(candidate.key for candidate in candidates if candidate.key != board.key)
    return [board.name, *paragraphs.named([("also meant", others)], width)]


def duration(seconds: float) -> str:
    """ "18.2 us", "3.41 ms", "1.20 s" """
    for least, unit in ((1.0, "s"), (1e-3, "ms"), (0.0, "us")):
        if seconds >= least:
            return f"{figure(seconds / {'s': 1, 'ms': 1e-3, 'us': 1e-6}[unit])} {unit}"
    raise ValueError(f"a time is not negative: {seconds}")


def amount(value: float) -> str:
    """Three figures that count, however small."""
    return figure(value) if value >= 1 else f"{value:.3g}"


def _unit(dtype: str) -> str:
    return "TOPS" if dtype.startswith("int") else "TFLOPS"


def _product(product: Product, width: int) -> list[str]:
    prediction = product.prediction
    head = f"{product.dtype} {product.operation.words}"
    if isinstance(prediction, Missing):
        return [head, *paragraphs.named([("not known", prediction.detail)], width)]
    unit = _unit(prediction.dtype)
    rows = [
        ("expected", f"{amount(prediction.tflops)} {unit} in {duration(prediction.seconds)}, {_band(prediction)}"),
        ("peak", f"{_share(prediction)} of {amount(prediction.peak.tflops)} {unit} ({prediction.peak.formula})"),
        ("bound", _bound(prediction)),
        ("tiles", f"{bettershape.tile_words(prediction)}, {100 * prediction.tile_fill:.0f} % of them wanted"),
        ("waves", _waves(prediction)),
        ("alignment", _alignment(prediction)),
        ("memory", _too_large(prediction)),
        ("lost", losses.words(prediction)),
        ("better", _better(product)),
    ]
    return [head, *paragraphs.named(rows, width)]


def _share(found: Prediction) -> str:
    return f"{100 * found.tflops / found.peak.tflops:.3g} %"


def _band(found: Prediction) -> str:
    error = f"give or take {found.error_percent:.0f} %"
    return f"{error} ({found.error_words})"


def _bound(found: Prediction) -> str:
    density = f"{amount(found.intensity)} operations a byte"
    words = {
        "math": f"math: {density}, {_no_limit(found)}",
        "memory": f"memory: {density}, the peak needs {amount(found.ridge)}",
        "launch": f"launch: the work takes {duration(max(found.math_seconds, found.memory_seconds))}, "
        f"the start of a kernel {duration(found.launch_seconds)}",
    }
    parts = f"math {duration(found.math_seconds)}, memory {duration(found.memory_seconds)}"
    return f"{words[found.bound]} ({parts}, clock {found.clock_mhz:.0f} MHz)"


def _no_limit(found: Prediction) -> str:
    """Why memory does not bind: enough operations a byte, or too few SMs at work to use it up."""
    if found.intensity >= found.ridge:
        return f"memory is no limit above {amount(found.ridge)}"
    few, sms = found.tiled.tiles, found.board.sms
    return (
        f"but {few} of {sms} SMs have work, and memory can feed these"
        if sms and few < sms
        else "memory takes less time"
    )


def _waves(found: Prediction) -> str:
    tiled, sms = found.tiled, found.board.sms
    if tiled.rounds <= 1:
        return f"{tiled.rounds:.2f} on {sms} SMs: {tiled.tiles} of them have work"
    rest = tiled.rounds % 1
    last = "all full" if rest == 0 else f"the last is {100 * rest:.0f} % full"
    return f"{tiled.rounds:.2f} on {sms} SMs, {last}"


def _alignment(found: Prediction) -> str:
    if found.alignment >= 16:
        return "rows are multiples of 16 bytes"
    operation = found.operation
    names = ("c", "k") if operation.kind == "convolution" else ("k", "m")
    gain = (
        f"with multiples of 16 bytes {found.aligned_gain:.1f} times as fast"
        if found.aligned_gain >= 1.05
        else "it costs almost nothing here"
    )
    return f"rows ({' and '.join(names)}) are multiples of {found.alignment} bytes only, not of 16: {gain}"


def _too_large(found: Prediction) -> str:
    """ "" where the matrices fit into the memory."""
    needed, there = found.operation.bytes_moved(found.dtype) / 2**20, found.board.memory_mib
    if there is None or needed <= there:
        return ""
    return f"the matrices take {needed / 1024:.1f} GiB, and the board has {there / 1024:.1f} GiB"


def _better(product: Product) -> str:
    if not product.better:
        return "none near it that is 5 % faster"
    return "; ".join(_better_words(shape) for shape in product.better)


def _better_words(found: bettershape.Better) -> str:
    shape, unit = "x".join(map(str, found.shape)), _unit(found.prediction.dtype)
    sentence = (
        f"{shape} ({found.direction}): {amount(found.prediction.tflops)} {unit}, {found.gain:.2f} times the speed"
    )
    return sentence + (f", done in {100 * found.time_ratio:.0f} % of the time" if found.direction == "larger" else "")


def _attention(attention: Attended, width: int) -> list[str]:
    head = f"{attention.dtype} {attention.operation.words}"
    speeds = attention.prediction
    if isinstance(speeds, Missing):
        return [head, *paragraphs.named([("not known", speeds.detail)], width)]
    density = f"{amount(speeds.intensity)} operations a byte"
    fused = "not known: " + speeds.fused_source
    if speeds.fused_seconds is not None and speeds.fused_tflops is not None:
        fused = f"{amount(speeds.fused_tflops)} TFLOPS in {duration(speeds.fused_seconds)} ({speeds.fused_source})"
    parts = ", ".join(
        f"{part.operation.words} {amount(part.tflops)} TFLOPS {duration(part.seconds)}" for part in speeds.parts
    )
    rows = [
        ("fused", fused),
        ("separate", f"{amount(speeds.separate_tflops)} TFLOPS in {duration(speeds.separate_seconds)}"),
        ("of these", f"{parts}, softmax {duration(speeds.softmax_seconds)} (all its scores cross the memory bus)"),
        ("bound", f"{speeds.bound}: {density} when fused, the peak needs {amount(speeds.ridge)}"),
        ("peak", f"{amount(speeds.peak.tflops)} TFLOPS ({speeds.peak.formula})"),
    ]
    return [head, *paragraphs.named(rows, width)]


def _product_values(product: Product) -> dict[str, Any]:
    operation = product.operation
    asked = {
        "kind": operation.kind, "asked": operation.words, "dtype": product.dtype, "batch": operation.batch,
        "m": operation.m, "n": operation.n, "k": operation.k,
    }  # fmt: skip
    prediction = product.prediction
    if isinstance(prediction, Missing):
        return {**asked, "expected": None, "not_known": prediction.detail}
    return {
        **asked,
        "expected": _expected(prediction),
        "better": list(map(_better_values, product.better)),
        "not_known": None,
    }


def _expected(found: Prediction) -> dict[str, Any]:
    return {
        "tflops": found.tflops,
        "low_tflops": found.low_tflops,
        "high_tflops": found.high_tflops,
        "error_percent": found.error_percent,
        "error_from": {"measured": found.measured, "shapes": found.error_shapes, "words": found.error_words},
        "microseconds": 1e6 * found.seconds,
        "math_microseconds": 1e6 * found.math_seconds,
        "memory_microseconds": 1e6 * found.memory_seconds,
        "launch_microseconds": 1e6 * found.launch_seconds,
        "bound": found.bound,
        "bytes": found.operation.bytes_moved(found.dtype),
        "operations_per_byte": found.intensity,
        "ridge_operations_per_byte": found.ridge,
        "peak_tflops": found.peak.tflops,
        "percent_of_peak": 100 * found.tflops / found.peak.tflops,
        "unit": found.peak.unit,
        "clock_mhz": found.clock_mhz,
        "tile_m": found.tiled.tile_m,
        "tile_n": found.tiled.tile_n,
        "split_k": found.tiled.split_k,
        "tiles": found.tiled.tiles,
        "tile_fill": found.tile_fill,
        "waves": found.tiled.rounds,
        "wave_fill": found.tiled.wave_fill,
        "aligned_bytes": found.alignment,
        "aligned_gain": found.aligned_gain,
        "factors": [
            {"name": loss.name, "value": loss.value, "lost_tflops": loss.lost_tflops, "words": loss.words}
            for loss in losses.losses(found)
        ],
    }


def _better_values(found: bettershape.Better) -> dict[str, Any]:
    m, n, k = found.shape
    return {
        "m": m, "n": n, "k": k, "direction": found.direction, "tflops": found.prediction.tflops,
        "microseconds": 1e6 * found.prediction.seconds, "gain": found.gain, "time_ratio": found.time_ratio,
    }  # fmt: skip


def _attention_values(attention: Attended) -> dict[str, Any]:
    operation, prediction = attention.operation, attention.prediction
    asked = {
        "asked": operation.words, "dtype": attention.dtype, "batch": operation.batch, "heads": operation.heads,
        "sequence": operation.sequence, "size": operation.size,
    }  # fmt: skip
    if isinstance(prediction, Missing):
        return {**asked, "expected": None, "not_known": prediction.detail}
    fused = None
    if prediction.fused_seconds is not None:
        fused = {
            "tflops": prediction.fused_tflops,
            "microseconds": 1e6 * prediction.fused_seconds,
            "source": prediction.fused_source,
        }
    separate = {
        "tflops": prediction.separate_tflops,
        "microseconds": 1e6 * prediction.separate_seconds,
        "softmax_microseconds": 1e6 * prediction.softmax_seconds,
        "products": [{"words": part.operation.words, **_expected(part)} for part in prediction.parts],
    }
    expected = {
        "fused": fused, "separate": separate, "bound": prediction.bound, "operations_per_byte": prediction.intensity,
        "ridge_operations_per_byte": prediction.ridge, "peak_tflops": prediction.peak.tflops,
    }  # fmt: skip
    return {**asked, "expected": expected, "not_known": None if fused else prediction.fused_source}
