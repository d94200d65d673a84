"""What is known of a board, and the memory that a model needs: pages, and the values of the JSON document."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from gpuprep.performance.answers import ModelAnswer
from gpuprep.performance.boardsheet import STREAM, PrecisionRow, Sheet, StreamRow
from gpuprep.performance.modelmemory import Fit, Memory
from gpuprep.records import Missing
from gpuprep.reports.readings import figure
from gpuprep.reports.terminal import named


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
