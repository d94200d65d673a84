"""Answers of `gpuprep explain` as a page, and as the values of its JSON document (docs/explain.md names them)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from gpuprep.catalogue import Board
from gpuprep.performance import bettershape, gemm_shapes, predict
from gpuprep.performance.answers import Answer, Attended, ModelAnswer, Product
from gpuprep.performance.boardsheet import STREAM, PrecisionRow, Sheet, StreamRow
from gpuprep.performance.modelmemory import Fit, Memory
from gpuprep.performance.operations import LAYOUTS
from gpuprep.performance.predict import Prediction
from gpuprep.performance.roofline import speed_unit
from gpuprep.records import Missing
from gpuprep.reports.readings import figure
from gpuprep.reports.terminal import named

# ---------------------------------------------------------------- a board


def board_page(sheet: Sheet, width: int, *, whole: bool = False) -> list[str]:
    board, model = sheet.board, sheet.board.model
    lines = [f"{board.name} ({board.key}), {model.architecture}, compute capability {model.compute_capability}"]
    facts = [
        ("siblings", ", ".join(sheet.siblings)),
        ("SMs", f"{_or(board.sms)} at up to {_or(board.boost_mhz)} MHz"),
        ("memory", f"{_gib_of(board.memory_mib)}, {_or(board.memory_gb_per_s)} GB/s; L2 cache {_or(board.l2_mib)} MiB"),
        ("power", _power(sheet)),
        ("links", _links(sheet)),
        ("temperature", _temperatures(sheet)),
        ("profile", model.profile),
        ("images", "; ".join(sheet.images)),
        ("decoders", f"{_or(model.nvdec_engines)} NVDEC: {_can(sheet.nvdec)}"),
        ("encoders", f"{_or(model.nvenc_engines)} NVENC: {_can(sheet.nvenc)}"),
    ]
    lines += named(facts, width)
    lines += ["", f"  {'TYPE':<6} {'TENSOR':<8} {'CUDA':<8} {'TFLOPS':>8}  {'OPS/BYTE':>8}  {'SOUND':>8}"]
    lines += [_precision(precision) for precision in sheet.precisions]
    lines += ["", *_streams(sheet, whole)]
    gaps = [
        ("not known", ", ".join(sheet.not_known)),
        ("remembered", f"{', '.join(sheet.unverified)} (read in no source)" if sheet.unverified else ""),
    ]
    missing = named(gaps, width)
    return [*lines, "", *missing] if missing else lines


def _or(value: float | None) -> str:
    return "unknown" if value is None else f"{value:g}"


def _gib_of(mib: int | None) -> str:
    return "unknown size" if mib is None else f"{mib / 1024:.1f} GiB"


def _power(sheet: Sheet) -> str:
    board = sheet.board
    if board.power_watts is None:
        return "unknown"
    span = ""
    if board.power_minimum_watts is not None and board.power_maximum_watts is not None:
        span = f", can be set from {board.power_minimum_watts:g} to {board.power_maximum_watts:g} W"
    return f"{board.power_watts:g} W{span}"


def _links(sheet: Sheet) -> str:
    board = sheet.board
    words = "PCIe unknown"
    if board.pcie_generation and board.pcie_width:
        speed = "" if sheet.pcie_gb_per_s is None else f" ({sheet.pcie_gb_per_s:.1f} GB/s each way)"
        words = f"PCIe {board.pcie_generation} x{board.pcie_width}{speed}"
    if board.nvlink is None:
        return f"{words}, NVLink unknown"
    if not board.nvlink.links:
        return f"{words}, no NVLink"
    how = f" by {board.nvlink.how}" if board.nvlink.how else ""
    return f"{words}, {board.nvlink.links} NVLinks{how}"


def _temperatures(sheet: Sheet) -> str:
    temperatures = sheet.board.temperatures_c
    if not temperatures:
        return "unknown"
    return ", ".join(f"{name.replace('_', ' ')} {value} C" for name, value in temperatures.items())


def _precision(row: PrecisionRow) -> str:
    shown = {True: "yes", False: "no", None: "unknown"}
    peak = row.words if row.roof is None else f"{figure(row.roof.tflops)}"
    if row.roof is None:
        return f"  {row.dtype:<6} {shown[row.tensor]:<8} {shown[row.cuda]:<8} {'–':>8}  {peak}"
    ridge = "–" if row.ridge is None else figure(row.ridge)
    floor = "–" if row.floor_percent is None else f"{row.floor_percent:g} %"
    return f"  {row.dtype:<6} {shown[row.tensor]:<8} {shown[row.cuda]:<8} {peak:>8}  {ridge:>8}  {floor:>8}"


def _streams(sheet: Sheet, whole: bool) -> list[str]:
    width, height, rate = STREAM
    if not sheet.streams:
        return ["  streams: none, it has no engine for them"]
    rows = sheet.streams if whole else tuple(stream for stream in sheet.streams if stream.preset in (None, "p1", "p5"))
    head = f"  Streams of {width}x{height} at {rate} fps, estimated by NVIDIA's rates at the highest video clock"
    return [head, *map(_stream, rows)]


def _can(able: tuple[str, ...] | None) -> str:
    return "what they can do is not known" if able is None else ", ".join(able) or "nothing"


def _stream(row: StreamRow) -> str:
    name = f"{row.kind} {row.codec}" + (f" {row.preset}" if row.preset else "")
    if row.streams is None or row.fps is None:
        return f"  {name:<16} not known: {row.words}"
    return f"  {name:<16} {row.streams:>4} streams, {row.fps:.0f} fps = {row.words}"


def board_values(sheet: Sheet) -> dict[str, Any]:
    board, model = sheet.board, sheet.board.model
    return {
        "board": board.key,
        "name": board.name,
        "model": model.key,
        "architecture": model.architecture,
        "compute_capability": model.compute_capability,
        "profile": model.profile,
        "siblings": list(sheet.siblings),
        "pci_device_ids": list(board.pci_device_ids),
        "subsystem_ids": list(board.subsystem_ids),
        "sms": board.sms,
        "boost_mhz": board.boost_mhz,
        "memory": {
            "mib": board.memory_mib, "gb_per_s": board.memory_gb_per_s, "mhz": board.memory_mhz, "l2_mib": board.l2_mib,
        },
        "power_watts": {
            "default": board.power_watts, "minimum": board.power_minimum_watts, "maximum": board.power_maximum_watts,
        },
        "pcie": {"generation": board.pcie_generation, "width": board.pcie_width, "gb_per_s": sheet.pcie_gb_per_s},
        "nvlink": None if board.nvlink is None else {"links": board.nvlink.links, "how": board.nvlink.how},
        "temperatures_c": None if board.temperatures_c is None else dict(board.temperatures_c),
        "precisions": [
            {
                "dtype": precision.dtype, "tensor_cores": precision.tensor, "cuda_cores": precision.cuda,
                "peak_tflops": None if precision.roof is None else precision.roof.tflops,
                "unit": None if precision.roof is None else precision.roof.unit,
                "ridge_operations_per_byte": precision.ridge, "floor_percent": precision.floor_percent,
                "words": precision.words,
            }
            for precision in sheet.precisions
        ],
        "engines": {
            "nvdec": model.nvdec_engines, "nvenc": model.nvenc_engines, "video_mhz": board.video_mhz,
            "nvdec_can": None if sheet.nvdec is None else list(sheet.nvdec),
            "nvenc_can": None if sheet.nvenc is None else list(sheet.nvenc),
        },
        "stream": dict(zip(("width", "height", "fps"), STREAM, strict=True)),
        "streams": [
            {
                "kind": stream.kind, "codec": stream.codec, "preset": stream.preset, "fps": stream.fps,
                "streams": stream.streams,
                "words": stream.words,
            }
            for stream in sheet.streams
        ],
        "images": list(sheet.images),
        "not_known": list(sheet.not_known),
        "unverified": list(sheet.unverified),
    }  # fmt: skip


# ---------------------------------------------------------------- the memory of a model


GIB = 2**30
FEW = 5  # boards with a row each; more are told by whether the model fits, and the rest with -v
NAMED = 2  # of those that are told together
PARTS = ("weights", "gradients", "optimizer", "activations", "kv_cache")


def model_page(answer: ModelAnswer, width: int, *, whole: bool = False) -> list[str]:
    needs, work = answer.needs, answer.needs.workload
    doing = f"trained with {work.optimizer}" if work.optimizer else "used, not trained"
    rows = [(name.replace("_", " "), _part(needs, name)) for name in PARTS]
    rows.append(("together", f"{_gib(needs.known)}, and {_gib(needs.context)} for CUDA itself"))
    rows += [("note", note) for note in needs.notes]
    lines = [f"{work.parameters:g} parameters in {work.precision}, {doing}", *named(rows, width)]
    if len(answer.boards) > FEW and not whole:
        note = "`--gpu NAME` asks for one board, -v shows all"
        return [*lines, "", *named([*_together(answer.boards), ("more", note)], width)]
    lines += ["", f"  {'BOARD':<24} {'MEMORY':>10}  FITS"]
    return lines + [f"  {board.name:<24} {_size(board.memory_bytes):>10}  {_fits(board)}" for board in answer.boards]


def _together(boards: Sequence[Fit]) -> list[tuple[str, str]]:
    """A row for each kind of answer, with the boards nearest to the size that is needed."""
    by_answer = sorted(boards, key=lambda board: (_kind(board), abs(board.free_bytes or 0)))
    rows = []
    for (_, kind), listed in groupby(by_answer, key=_kind):
        every = list(listed)
        names = [f"{board.name}, {_size(board.memory_bytes)} ({_fits(board)})" for board in every[:NAMED]]
        if every[0].memory_bytes is None:
            names = [board.name for board in every[:NAMED]]
        more = [f"and {len(every) - NAMED} more"] if len(every) > NAMED else []
        rows.append((kind, "; ".join([*names, *more])))
    return rows


def _kind(board: Fit) -> tuple[int, str]:
    """Place and name of the row of a board."""
    if board.memory_bytes is None or board.free_bytes is None:
        return 4, "not known"
    if board.fits is False:
        return 3, "too small"
    if board.tight:
        return 2, "hardly"
    return (0, "fits") if board.fits else (1, "may fit")


def _part(needs: Memory, name: str) -> str:
    value = getattr(needs, name)
    if value is None or value == 0:
        return ""
    if isinstance(value, Missing):
        return f"not known: {value.detail}"
    return f"{_gib(value)} = {needs.formulas[name]}"


def _fits(fit: Fit) -> str:
    if fit.memory_bytes is None or fit.free_bytes is None:
        return "not known: the catalogue lacks its memory"
    share = f"; it fits if {fit.gpus_at_least} or more share it" if fit.gpus_at_least and fit.gpus_at_least > 1 else ""
    if fit.fits is False:
        return f"no, {_gib(-fit.free_bytes)} too much{share}"
    if fit.tight:
        return "hardly: the rest is less than CUDA itself needs"
    if fit.fits is None:
        return f"{_gib(fit.free_bytes)} are left for activations"
    return f"yes, {_gib(fit.free_bytes)} are left"


def _size(value: float | None) -> str:
    return "–" if value is None else _gib(value)


def _gib(value: float) -> str:
    return f"{value / GIB:.1f} GiB"


def model_values(answer: ModelAnswer) -> dict[str, Any]:
    needs, work = answer.needs, answer.needs.workload
    return {
        "parameters": work.parameters,
        "precision": work.precision,
        "optimizer": work.optimizer,
        "bytes": {name: _known(getattr(needs, name)) for name in PARTS},
        "together_bytes": needs.known,
        "context_bytes": needs.context,
        "formulas": needs.formulas,
        "notes": list(needs.notes),
        "boards": [
            {
                "board": board.board, "name": board.name, "memory_bytes": board.memory_bytes,
                "needed_bytes": board.needed_bytes, "free_bytes": board.free_bytes, "fits": board.fits,
                "tight": board.tight, "gpus_at_least": board.gpus_at_least,
            }
            for board in answer.boards
        ],
    }  # fmt: skip


def _known(value: float | Missing | None) -> float | None:
    return None if isinstance(value, Missing) else value


def page(answer: Answer, width: int, *, whole: bool = False) -> str:
    """Plain text of `width` columns. `whole`: also what nobody asks for first."""
    blocks = []
    if answer.board is not None and (answer.products or answer.attentions):
        blocks.append(_which(answer.board, answer.candidates, width))
    blocks += [_product(product, width) for product in answer.products]
    blocks += [_attention(attention, width) for attention in answer.attentions]
    if answer.sheet is not None:
        blocks.append(board_page(answer.sheet, width, whole=whole))
    if answer.model is not None:
        blocks.append(model_page(answer.model, width, whole=whole))
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def document(answer: Answer) -> dict[str, Any]:
    """The values of the JSON document: always the same names, null or [] where nothing was asked."""
    return {
        "gpu": None if answer.board is None else {"board": answer.board.key, "name": answer.board.name},
        "meant": [candidate.key for candidate in answer.candidates],
        "products": [_product_values(product) for product in answer.products],
        "attentions": [_attention_values(attention) for attention in answer.attentions],
        "board": None if answer.sheet is None else board_values(answer.sheet),
        "model": None if answer.model is None else model_values(answer.model),
    }


def _which(board: Board, candidates: tuple[Board, ...], width: int) -> list[str]:
    others = ", ".join(candidate.key for candidate in candidates if candidate.key != board.key)
    return [board.name, *named([("also meant", others)], width)]


def duration(seconds: float) -> str:
    """ "18.2 us", "3.41 ms", "1.20 s" """
    for least, unit in ((1.0, "s"), (1e-3, "ms"), (0.0, "us")):
        if seconds >= least:
            return f"{figure(seconds / {'s': 1, 'ms': 1e-3, 'us': 1e-6}[unit])} {unit}"
    raise ValueError(f"a time is not negative: {seconds}")


def amount(value: float) -> str:
    """Three significant digits, also of very small numbers."""
    return figure(value) if value >= 1 else f"{value:.3g}"


def _product(product: Product, width: int) -> list[str]:
    prediction = product.prediction
    head = f"{product.dtype} {product.operation.words}"
    if isinstance(prediction, Missing):
        return [head, *named([("not known", prediction.detail)], width)]
    unit = speed_unit(prediction.dtype)
    rows = [
        ("expected", f"{amount(prediction.tflops)} {unit} in {duration(prediction.seconds)}, {_band(prediction)}"),
        ("again", _again(product, prediction)),
        ("peak", f"{_share(prediction)} of {amount(prediction.peak.tflops)} {unit} ({prediction.peak.formula})"),
        ("bound", _bound(prediction)),
        ("tiles", f"{bettershape.tile_words(prediction)}, {100 * prediction.tile_fill:.0f} % of them wanted"),
        ("waves", _waves(prediction)),
        ("alignment", _alignment(prediction)),
        ("memory", _too_large(prediction)),
        ("lost", predict.words(prediction)),
        ("better", _better(product)),
    ]
    return [head, *named(rows, width)]


def _share(prediction: Prediction) -> str:
    return f"{100 * prediction.tflops / prediction.peak.tflops:.3g} %"


def _again(product: Product, prediction: Prediction) -> str:
    """Of a product whose weights, or all of it, the caches still have."""
    if product.again_seconds is None:
        return ""
    tflops = prediction.tflops * prediction.seconds / product.again_seconds
    unit = speed_unit(prediction.dtype)
    return f"{amount(tflops)} {unit} in {duration(product.again_seconds)} if the caches still hold its operands"


def _band(prediction: Prediction) -> str:
    error = f"give or take {prediction.error_percent:.0f} %"
    if prediction.aligned_gain is None:
        error = f"or between {amount(prediction.low_tflops)} and {amount(prediction.high_tflops)}"
    return f"{error} ({prediction.error_words})"


def _bound(prediction: Prediction) -> str:
    density = f"{amount(prediction.intensity)} operations a byte"
    words = {
        "math": f"math: {density}, {_no_limit(prediction)}",
        "memory": f"memory: {density}, the peak needs {amount(prediction.ridge)}",
        "launch": f"launch: the work takes {duration(max(prediction.math_seconds, prediction.memory_seconds))}, "
        f"the start of a kernel {duration(prediction.launch_seconds)}",
    }
    parts = f"math {duration(prediction.math_seconds)}, memory {duration(prediction.memory_seconds)}"
    return f"{words[prediction.bound]} ({parts}, clock {prediction.clock_mhz:.0f} MHz)"


def _no_limit(prediction: Prediction) -> str:
    """Why memory does not bind: enough operations a byte, or too few SMs at work to use it up."""
    if prediction.intensity >= prediction.ridge:
        return f"memory is no limit above {amount(prediction.ridge)}"
    few, sms = prediction.tiled.tiles, prediction.board.sms
    return (
        f"but {few} of {sms} SMs have work, and memory can feed these"
        if sms and few < sms
        else "memory takes less time"
    )


def _waves(prediction: Prediction) -> str:
    tiled, sms = prediction.tiled, prediction.board.sms
    if tiled.rounds <= 1:
        return f"{tiled.rounds:.2f} on {sms} SMs: {tiled.tiles} of them have work"
    rest = tiled.rounds % 1
    last = "all full" if rest == 0 else f"the last is {100 * rest:.0f} % full"
    return f"{tiled.rounds:.2f} on {sms} SMs, {last}"


def _alignment(prediction: Prediction) -> str:
    if prediction.alignment >= gemm_shapes.ROW_BYTES:
        return "rows are multiples of 16 bytes"
    operation = prediction.operation
    crooked = "channels" if operation.kind == "convolution" else _crooked(prediction)
    if prediction.aligned_gain is None:
        cost = "what that costs was not measured on this board"
    elif prediction.aligned_gain >= 1.05:
        cost = f"with multiples of 16 bytes {prediction.aligned_gain:.1f} times as fast"
    else:
        cost = "it costs almost nothing here"
    return f"{crooked}: rows are multiples of {prediction.alignment} bytes only, not of 16; {cost}"


def _crooked(prediction: Prediction) -> str:
    """ "k 4097 (A and B), n 4099 (C)": sizes whose rows are no multiple of 16 bytes, and whose rows they are"""
    operation = prediction.operation
    shape = operation.m, operation.n, operation.k
    lengths = gemm_shapes.row_bytes(prediction.dtype, shape, operation.rows)
    crooked = [
        (name, size) for name, size in zip("mnk", shape, strict=True) if lengths.get(name, 0) % gemm_shapes.ROW_BYTES
    ]
    matrices = {
        name: [matrix for matrix, row in zip("ABC", operation.rows, strict=True) if row == name] for name in "mnk"
    }
    return ", ".join(f"{name} {size} ({' and '.join(matrices[name])})" for name, size in crooked)


def _too_large(prediction: Prediction) -> str:
    """ "" where the matrices fit into the memory."""
    needed, there = prediction.operation.bytes_moved(prediction.dtype) / 2**20, prediction.board.memory_mib
    if there is None or needed <= there:
        return ""
    return f"the matrices take {needed / 1024:.1f} GiB, and the board has {there / 1024:.1f} GiB"


def _better(product: Product) -> str:
    if not product.better:
        return "none near it that is 5 % faster"
    return "; ".join(_better_words(shape) for shape in product.better)


def _better_words(better: bettershape.Better) -> str:
    shape, unit = "x".join(map(str, better.shape)), speed_unit(better.prediction.dtype)
    sentence = (
        f"{shape} ({better.direction}): {amount(better.prediction.tflops)} {unit}, {better.gain:.2f} times the speed"
    )
    return sentence + (f", done in {100 * better.time_ratio:.0f} % of the time" if better.direction == "larger" else "")


def _attention(attention: Attended, width: int) -> list[str]:
    head = f"{attention.dtype} {attention.operation.words}"
    speeds = attention.prediction
    if isinstance(speeds, Missing):
        return [head, *named([("not known", speeds.detail)], width)]
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
    return [head, *named(rows, width)]


def _product_values(product: Product) -> dict[str, Any]:
    operation = product.operation
    asked = {
        "kind": operation.kind, "asked": operation.words, "dtype": product.dtype, "batch": operation.batch,
        "m": operation.m, "n": operation.n, "k": operation.k,
        "layout": next(name for name, rows in LAYOUTS.items() if rows == operation.rows)
        if operation.kind == "product"
        else None,
    }  # fmt: skip
    prediction = product.prediction
    if isinstance(prediction, Missing):
        return {**asked, "expected": None, "again_seconds": None, "not_known": prediction.detail}
    return {
        **asked,
        "expected": _expected(prediction),
        "again_seconds": product.again_seconds,
        "better": list(map(_better_values, product.better)),
        "not_known": None,
    }


def _expected(prediction: Prediction) -> dict[str, Any]:
    return {
        "tflops": prediction.tflops,
        "low_tflops": prediction.low_tflops,
        "high_tflops": prediction.high_tflops,
        "error_percent": prediction.error_percent,
        "error_from": {
            "measured": prediction.measured,
            "shapes": prediction.error_shapes,
            "words": prediction.error_words,
        },
        "microseconds": 1e6 * prediction.seconds,
        "math_microseconds": 1e6 * prediction.math_seconds,
        "memory_microseconds": 1e6 * prediction.memory_seconds,
        "launch_microseconds": 1e6 * prediction.launch_seconds,
        "bound": prediction.bound,
        "bytes": prediction.operation.bytes_moved(prediction.dtype),
        "operations_per_byte": prediction.intensity,
        "ridge_operations_per_byte": prediction.ridge,
        "peak_tflops": prediction.peak.tflops,
        "percent_of_peak": 100 * prediction.tflops / prediction.peak.tflops,
        "unit": prediction.peak.unit,
        "clock_mhz": prediction.clock_mhz,
        "tile_m": prediction.tiled.tile_m,
        "tile_n": prediction.tiled.tile_n,
        "split_k": prediction.tiled.split_k,
        "tiles": prediction.tiled.tiles,
        "tile_fill": prediction.tile_fill,
        "waves": prediction.tiled.rounds,
        "wave_fill": prediction.tiled.wave_fill,
        "aligned_bytes": prediction.alignment,
        "aligned_gain": prediction.aligned_gain,
        "factors": [
            {"name": loss.name, "value": loss.value, "lost_tflops": loss.lost_tflops, "words": loss.words}
            for loss in predict.losses(prediction)
        ],
    }


def _better_values(better: bettershape.Better) -> dict[str, Any]:
    m, n, k = better.shape
    return {
        "m": m, "n": n, "k": k, "direction": better.direction, "tflops": better.prediction.tflops,
        "microseconds": 1e6 * better.prediction.seconds, "gain": better.gain, "time_ratio": better.time_ratio,
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
