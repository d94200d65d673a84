"""What `gpuprep explain` answers: predictions, also of an attention, the page of a board, the memory of a model."""

from __future__ import annotations

from dataclasses import dataclass

from gpuprep.catalogue import Board
from gpuprep.catalogue import productmodel as catalogue
from gpuprep.performance import bettershape, boardsheet, operations, predict, roofline
from gpuprep.performance import modelmemory as memory
from gpuprep.performance.operations import Attention
from gpuprep.performance.predict import Prediction
from gpuprep.performance.roofline import Roof
from gpuprep.records import Missing


@dataclass(frozen=True)
class AttentionPrediction:
    operation: Attention
    dtype: str
    board: Board
    peak: Roof
    parts: tuple[Prediction, ...]  # Q K^T, scores x V
    softmax_seconds: float
    separate_seconds: float
    separate_tflops: float
    fused_seconds: float | None  # None: no source says what a fused kernel reaches here
    fused_tflops: float | None
    fused_source: str  # or why it is not known
    intensity: float  # of the fused kernel, operations a byte
    ridge: float
    bound: str  # of the fused kernel: "math" | "memory"


def predict_attention(board: Board, operation: Attention, dtype: str) -> AttentionPrediction | Missing:
    """How fast attention will be on a board, as separate kernels and as one fused kernel.

    Separate: two batches of products (predict.py) and a softmax that reads and writes all scores. Fused (flash
    attention): the scores stay on the chip, so only Q, K, V and the output cross the memory bus; its speed is the share
    of the roof that published fused kernels reach on the architecture (catalogue/productmodel.yml, `attention`).
    """
    peak, memory = roofline.roof(board, dtype), roofline.bandwidth(board)
    if isinstance(peak, Missing):
        return peak
    if isinstance(memory, Missing):
        return memory
    parts = []
    for part in operation.parts:
        prediction = predict.predict(board, part, dtype)
        if isinstance(prediction, Missing):
            return prediction
        parts.append(prediction)
    softmax = operation.score_bytes(dtype) / (memory * 1e9)
    separate = sum(part.seconds for part in parts) + softmax
    loading = operation.fused_bytes(dtype) / (memory * 1e9)
    known = catalogue.attention_share(board.model.architecture) if dtype in ("fp16", "bf16") else None
    fused = None if known is None else max(operation.operations / (known[0] * peak.tflops * 1e12), loading)
    return AttentionPrediction(
        operation=operation,
        dtype=dtype,
        board=board,
        peak=peak,
        parts=tuple(parts),
        softmax_seconds=softmax,
        separate_seconds=separate,
        separate_tflops=operation.operations / separate / 1e12,
        fused_seconds=fused,
        fused_tflops=None if fused is None else operation.operations / fused / 1e12,
        fused_source=known[1]
        if known
        else f"no source says what a fused kernel for {dtype} reaches on this architecture",
        intensity=operation.operations / operation.fused_bytes(dtype),
        ridge=roofline.ridge(peak.tflops, memory),
        bound="memory" if loading * peak.tflops * 1e12 > operation.operations else "math",
    )


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
    prediction: AttentionPrediction | Missing


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
