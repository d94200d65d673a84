"""A flat table of figures (CSV) ─► the document that a file of figures in JSON would be.

One line is one product, or figures of memory and links, of one GPU:

    gpu,dtype,m,n,k,tflops
    NVIDIA A100-SXM4-40GB,fp16,8192,8192,8192,275.4

A table has only speeds, so its figures are judged as published figures are: nothing is known about the host. Each
mistake is one line `FILE:LINE: COLUMN: what is wrong, what is allowed`.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuprep.catalogue import Board, Model, boardnames, boards
from gpuprep.catalogue.boards import MASKED
from gpuprep.errors import UsageError
from gpuprep.performance.operations import LAYOUTS
from gpuprep.records import DecodeError
from gpuprep.records.serialize import shown

WHICH = "which GPU it was: a PCI device id as 20b2 (`lspci -n`), or in `name` a name that is one board"
MOST_GPUS_NAMED = 8  # boards that an error lists
UNKNOWN_ID = MASKED[-1]  # of a GPU that the catalogue lacks, or that nobody named: it is UNKNOWN, and no mistake


# ---------------------------------------------------------------- which GPU


def board_named(name: str) -> Board | str | None:
    """The board of this name; None if the catalogue has none; a text that says which boards it may be, if several."""
    candidates = _by_nvml_name(name) or boardnames.named(name)
    if not candidates:
        return None
    if len({board.pci_device_ids for board in candidates}) > 1:
        every = list(dict.fromkeys(board.name for board in candidates))
        more = f" and {len(every) - MOST_GPUS_NAMED} more" if len(every) > MOST_GPUS_NAMED else ""
        return (
            f"{shown(name)} is several boards: give one of {', '.join(every[:MOST_GPUS_NAMED])}{more}, or pci_device_id"
        )
    return candidates[0]


def filled(values: Any, where: str) -> Any:
    """`values` of a measurement, each GPU with its pci_device_id. Raises DecodeError for an unknown GPU."""
    if not isinstance(values, dict):
        return values
    made = dict(values)
    for key, place in _places(values, where):
        part = made[key]
        made[key] = (
            [_gpu(gpu, f"{place}[{index}]") for index, gpu in enumerate(part)] if isinstance(part, list) else part
        )
    if isinstance(values.get("gpu"), dict):
        made["gpu"] = _gpu(values["gpu"], f"{where}.gpu")
    return made


def _places(values: dict[str, Any], where: str) -> Iterator[tuple[str, str]]:
    if isinstance(values.get("gpus"), list):
        yield "gpus", f"{where}.gpus"


def _gpu(gpu: Any, where: str) -> Any:
    # A device id that was given and cannot be read is damage; the name does not stand in for it.
    if not isinstance(gpu, dict) or "missing" in gpu or gpu.get("pci_device_id", "") != "":
        return gpu
    name = gpu.get("name")
    if not isinstance(name, str) or not name.strip():
        raise DecodeError(f"{where}.pci_device_id: missing; say {WHICH}")
    board = board_named(name)
    if isinstance(board, str):
        raise DecodeError(f"{where}.name: {board}")
    if board is None:
        return {**gpu, "pci_device_id": UNKNOWN_ID}
    return {**gpu, "pci_device_id": board.pci_device_ids[0], "pci_subsystem_id": subsystem(board, name)}


def subsystem(board: Board, name: str) -> str:
    """The PCI subsystem id if `name` is only this board; "" if several boards with one device id have the name."""
    candidates = _by_nvml_name(name) or boardnames.named(name)
    return board.subsystem_ids[0] if len(candidates) == 1 and board.subsystem_ids else ""


def _by_nvml_name(name: str) -> tuple[Board, ...]:
    """The boards that nvidia-smi calls exactly `name`: people may use the same words for more boards."""
    wanted = name.strip().lower()
    return tuple(
        board for board in boards().values() if wanted in (nvml_name.lower() for nvml_name in board.nvml_names)
    )


# ---------------------------------------------------------------- the table


DTYPES = ("fp64", "fp32", "tf32", "fp16", "bf16", "int8", "fp8")
PRODUCT = ("dtype", "m", "n", "k", "tflops")
SPEEDS = ("copy_gb_per_s", "read_gb_per_s", "triad_gb_per_s", "write_gb_per_s", "h2d_gb_per_s", "d2h_gb_per_s")
FIGURES = ("tflops", *SPEEDS)
COLUMNS = ("host", "gpu", "index", "source", *PRODUCT, "layout", *SPEEDS)
MOST_LINES = 20_000
MOST_NAMED = 20  # lines in one message
LARGEST = 1e9
HINT = "`gpuprep judge --template csv` prints a table to fill in; docs/records.md describes it"
SQUARE = 8192  # m, n and k of a template: large enough for every GPU

Row = Mapping[str, str]


def document(path: Path, text: str) -> dict[str, Any]:
    """{"runs": [figures of a host, ...]}. Raises UsageError."""
    hosts: dict[str, _Host] = {}
    lines = [_Cells(path, line, row) for line, row in _rows(path, text)]
    if empty := [cells for cells in lines if cells.is_empty]:
        raise _without_figure(empty)
    for cells in lines:
        _take(hosts, cells)
    if not hosts:
        raise UsageError(f"{path}: has no line of figures", HINT)
    return {"runs": [host.document(path) for host in hosts.values()]}


def template(model: Model | None, gpu: str) -> str:
    """A table to fill in: a line for each data type that the model's units have, and one for memory and links."""
    lines = [",".join(column for column in COLUMNS if column not in ("host", "index", "layout"))]
    for dtype in dtypes(model):
        lines.append(",".join([gpu, "", dtype, *[str(SQUARE)] * 3, "", *[""] * len(SPEEDS)]))
    return "\n".join([*lines, ",".join([gpu, "", *[""] * (len(PRODUCT) + len(SPEEDS))])]) + "\n"


def dtypes(model: Model | None) -> list[str]:
    """The data types that the model has units for; all data types without a model."""
    units = set(DTYPES) if model is None else {key.removeprefix("tensor_") for key in model.fma_per_clock_per_sm}
    return [dtype for dtype in DTYPES if dtype in units]


class _Host:
    """The figures of one host, GPU by GPU."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.gpus: dict[int, tuple[str, dict[str, Any]]] = {}  # index ► what the table calls it, how it is identified
        self.products: dict[int, list[dict[str, Any]]] = {}
        self.speeds: dict[int, dict[str, float]] = {}
        self.source = ""

    def document(self, path: Path) -> dict[str, Any]:
        published = self.source or path.name
        gemms = [{**self.gpus[index][1], "gemms": listed} for index, listed in self.products.items()]
        memory = [{**self.gpus[index][1], **figures} for index, figures in self.speeds.items()]
        return {
            **({"host": self.name} if self.name else {}),
            "measurements": [
                {"probe": probe, "source": "measured", "values": {"published": published, "gpus": listed}}
                for probe, listed in (("gemm", gemms), ("bandwidth", memory))
                if listed
            ],
        }


class _Cells:
    """One line of the table."""

    def __init__(self, path: Path, line: int, row: Row) -> None:
        self._path, self.line, self._row = path, line, row

    @property
    def is_empty(self) -> bool:
        """Whether the line has no figure, as in a template."""
        return not any(self.text(column) for column in FIGURES)

    def text(self, column: str) -> str:
        return (self._row.get(column) or "").strip()

    def number(self, column: str) -> float:
        text = self.text(column)
        try:
            value = float(text) if text.isascii() and "_" not in text else math.nan
        except ValueError:
            value = math.nan
        if not 0 < value < LARGEST:
            problem = f"{shown(text)} is no number above 0" if text else "is empty, want a number above 0"
            raise self.wrong(column, f"{problem}, with a point and without a unit, as 275.4")
        return value

    def whole(self, column: str, least: int = 1) -> int:
        text = self.text(column)
        if not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) < least:
            raise self.wrong(column, f"{shown(text) if text else 'is empty'}, want a whole number from {least}")
        return int(text)

    def wrong(self, column: str, what: str) -> UsageError:
        return UsageError(f"{self._path}:{self.line}: {column}: {what}", HINT)


def _take(hosts: dict[str, _Host], cells: _Cells) -> None:
    host = hosts.setdefault(cells.text("host"), _Host(cells.text("host")))
    host.source = host.source or cells.text("source")
    index = cells.whole("index", 0) if cells.text("index") else 0
    named = cells.text("gpu")
    if not named:
        raise cells.wrong("gpu", "is empty, want a GPU's name, as NVIDIA A100-SXM4-40GB, or its PCI device id, as 20b2")
    known = host.gpus.setdefault(index, (named, _identified(cells, named, index)))
    if known[0] != named:
        raise cells.wrong(
            "gpu", f"{shown(named)}, and GPU {index} of this host is {shown(known[0])} above; give `index`"
        )
    if any(cells.text(column) for column in PRODUCT):
        dtype = cells.text("dtype")
        if dtype not in DTYPES:
            raise cells.wrong("dtype", f"{shown(dtype) if dtype else 'is empty'}, want one of {', '.join(DTYPES)}")
        shape = {column: cells.whole(column) for column in ("m", "n", "k")}
        layout = cells.text("layout").lower()
        if layout and layout not in LAYOUTS:
            raise cells.wrong("layout", f"{shown(layout)}, want one of {', '.join(LAYOUTS)}")
        product = {"dtype": dtype, **shape, "layout": layout, "tflops": cells.number("tflops")}
        host.products.setdefault(index, []).append(product)
    for column in SPEEDS:
        if cells.text(column):
            figures = host.speeds.setdefault(index, {})
            if column in figures:
                raise cells.wrong(column, f"appears twice for GPU {index} of this host")
            figures[column] = cells.number(column)


def _without_figure(empty: Sequence[_Cells]) -> UsageError:
    """One error for all lines without a figure: a template that is partly filled in has many."""
    numbers = [str(cells.line) for cells in empty]
    which = f"lines {', '.join(numbers[:MOST_NAMED])}" if len(numbers) > 1 else "the line"
    more = f" and {len(numbers) - MOST_NAMED} more" if len(numbers) > MOST_NAMED else ""
    has, it = ("has", "it") if len(numbers) == 1 else ("have", "them")
    what = f"{which}{more} {has} no figure: write one into a column of {', '.join(FIGURES)}, or remove {it}"
    return empty[0].wrong("tflops", what)


def _identified(cells: _Cells, named: str, index: int) -> dict[str, Any]:
    board = board_named(named)
    if isinstance(board, str):
        raise cells.wrong("gpu", board)
    if board is None:
        return {"index": index, "name": named, "pci_device_id": UNKNOWN_ID}
    name = next((nvml_name for nvml_name in board.nvml_names if nvml_name.lower() == named.lower()), "")
    # A device id may be several boards (A16 and A2); the name says which.
    ids = {"pci_device_id": board.pci_device_ids[0], "pci_subsystem_id": subsystem(board, named)}
    return {"index": index, "name": name, **ids}


def _rows(path: Path, text: str) -> Iterator[tuple[int, Row]]:
    """(line, cells by column) of each line that is not empty."""
    text = text.removeprefix("\ufeff")  # Excel's
    head = text.partition("\n")[0]
    separator = ";" if ";" in head and "," not in head else "\t" if "\t" in head and "," not in head else ","
    reader = csv.reader(io.StringIO(text), delimiter=separator, strict=True)
    columns: list[str] = []
    try:
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            if not columns:
                columns = _columns(path, reader.line_num, cells)
                continue
            if reader.line_num > MOST_LINES:
                raise UsageError(f"{path}: has more than {MOST_LINES} lines", "judge fewer at a time")
            if len(cells) > len(columns):
                raise UsageError(f"{path}:{reader.line_num}: has {len(cells)} cells, and the first line has"
                                 f" {len(columns)}", HINT)  # fmt: skip
            yield reader.line_num, dict(zip(columns, cells, strict=False))
    except csv.Error as error:
        raise UsageError(f"{path}:{reader.line_num}: is no CSV: {error}", HINT) from error


def _columns(path: Path, line: int, cells: list[str]) -> list[str]:
    columns = [cell.strip().lower() for cell in cells]
    for place, column in enumerate(columns):
        if column not in COLUMNS:
            raise UsageError(f"{path}:{line}: {shown(column)}: no such column, allowed: {', '.join(COLUMNS)}", HINT)
        if column in columns[:place]:
            raise UsageError(f"{path}:{line}: {column}: appears twice", HINT)
    if "gpu" not in columns:
        raise UsageError(f"{path}:{line}: gpu: missing; the first line names the columns: {', '.join(COLUMNS)}", HINT)
    return columns
