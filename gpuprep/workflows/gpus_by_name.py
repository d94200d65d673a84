"""Figures from elsewhere name their GPU: by its PCI device id, or by a name that is one board."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuprep.catalogue import Board, boardnames, boards
from gpuprep.catalogue.boards import MASKED
from gpuprep.records import DecodeError
from gpuprep.records.serialize import shown

WHICH = "which GPU it was: a PCI device id as 20b2 (`lspci -n`), or in `name` a name that is one board"
MOST_NAMED = 8  # boards that an error lists
UNKNOWN_ID = MASKED[-1]  # of a GPU that the catalogue lacks, or that nobody named: it is UNKNOWN, and no mistake


def board_named(name: str) -> Board | str | None:
    """The board of this name; None if the catalogue has none; a text that says which boards it may be, if several."""
    candidates = _by_nvml_name(name) or boardnames.named(name)
    if not candidates:
        return None
    if len({board.pci_device_ids for board in candidates}) > 1:
        every = list(dict.fromkeys(board.name for board in candidates))
        more = f" and {len(every) - MOST_NAMED} more" if len(every) > MOST_NAMED else ""
        return f"{shown(name)} is several boards: give one of {', '.join(every[:MOST_NAMED])}{more}, or pci_device_id"
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
