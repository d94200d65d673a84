"""What `gpuprep explain` answers: predictions, the page of a board, the memory of a model."""

from __future__ import annotations

from dataclasses import dataclass

from gpuprep.catalogue import Board
from gpuprep.performance import attend, bettershape, boardsheet, operations, predict
from gpuprep.performance import modelmemory as memory
from gpuprep.records import Missing


@dataclass(frozen=True)
class Product:
    """One operation and data type. `prediction` is Missing where the GPU has no units, or a figure is not known."""

    operation: operations.Operation
    dtype: str
    prediction: predict.Prediction | Missing
    better: tuple[bettershape.Better, ...]
    again_seconds: float | None = None  # with operands that were used just before, where that is another time


@dataclass(frozen=True)
class Attended:
    operation: operations.Attention
    dtype: str
    prediction: attend.AttentionPrediction | Missing


@dataclass(frozen=True)
class ModelAnswer:
    needs: memory.Memory
    boards: tuple[memory.Fit, ...]


@dataclass(frozen=True)
class Answer:
    board: Board | None
    candidates: tuple[Board, ...]  # all boards that the words may stand for; `board` is the first that is known well
    products: tuple[Product, ...] = ()
    attentions: tuple[Attended, ...] = ()
    sheet: boardsheet.Sheet | None = None
    model: ModelAnswer | None = None
