"""How much GPU memory a model takes, in training or in use, and which boards hold it.

    memory(Workload(7e9, "bf16", "adam"))     parameters, gradients, optimizer states, activations in bytes
    fits(found, board)                        whether one board holds it, and among how many it must be shared

The figures a parameter and their sources are in catalogue/modelmemory.yml. Activations are those of a transformer:
of each layer s b h (34 + 5 a s / h) bytes at 16 bits (Korthikanti et al., arXiv 2205.05198, equation 2).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpuprep.catalogue import Board, modelmemory
from gpuprep.records import Missing

MIB = 2**20
RECOMPUTE = ("none", "selective", "full")


@dataclass(frozen=True)
class Transformer:
    """What activations and the cache of keys and values depend on."""

    layers: int
    hidden: int
    heads: int
    sequence: int
    batch: int = 1  # sequences at a time on one GPU
    kv_heads: int | None = None  # None: as many as `heads`
    recompute: str = "selective"  # one of RECOMPUTE; flash attention keeps no scores either


@dataclass(frozen=True)
class Workload:
    parameters: float
    precision: str  # a key of catalogue.modelmemory.precisions()
    optimizer: str | None = None  # a key of optimizers(); None: the model is used, not trained
    transformer: Transformer | None = None


@dataclass(frozen=True)
class Memory:
    """Bytes. `activations` is Missing without the model's shape."""

    workload: Workload
    weights: float
    gradients: float
    optimizer: float
    activations: float | Missing
    kv_cache: float | Missing | None  # None: training keeps none
    known: float  # the sum of all that is known
    context: float  # what CUDA itself takes, beside that
    formulas: dict[str, str]  # part ► "6 bytes x 7e+09 parameters (…)"
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Fit:
    """One board. `fits` None: its memory, or a part of the model's, is not known."""

    board: str
    name: str
    memory_bytes: float | None
    needed_bytes: float
    free_bytes: float | None  # after all that is known; below zero it does not fit
    fits: bool | None
    tight: bool  # it fits, and leaves less than CUDA itself takes
    gpus_at_least: int | None  # where all states are shared among the GPUs; None: they do not help


def memory(work: Workload) -> Memory | Missing:
    """Missing("no_figure") where no source says how much this precision takes while training."""
    precision = modelmemory.precisions()[work.precision]
    formulas: dict[str, str] = {}
    notes: list[str] = []

    def part(name: str, each: float, words: str) -> float:
        formulas[name] = f"{each:g} bytes x {work.parameters:g} parameters ({words})"
        return each * work.parameters

    gradients = optimizer = 0.0
    if work.optimizer is None:
        weights = part("weights", precision.inference, precision.name.removeprefix("pure-").upper())
    else:
        if precision.weights is None or precision.gradients is None:
            return Missing("no_figure", f"no source says what training in {precision.name} takes: it is for inference")
        chosen = modelmemory.optimizers()[work.optimizer]
        weights = part("weights", precision.weights, precision.words)
        gradients = part("gradients", precision.gradients, "BF16" if precision.pure else "FP32")
        optimizer = part("optimizer", chosen.pure if precision.pure else chosen.bytes, chosen.words)
    activations: float | Missing = Missing("not_given", "layers, hidden, heads and sequence are not given")
    kv_cache: float | Missing | None = None if work.optimizer else activations
    if work.transformer is not None:
        activations = _activations(work, work.transformer, precision, formulas)
        if work.optimizer is None:
            kv_cache = _kv_cache(work.transformer, precision, formulas)
    else:
        notes.append("activations are not counted: their size needs layers, hidden size, heads and sequence length")
    parts = (weights, gradients, optimizer, activations, kv_cache)
    known = sum(part for part in parts if isinstance(part, float))
    return Memory(
        work, weights, gradients, optimizer, activations, kv_cache, known, modelmemory.context_bytes(), formulas,
        tuple(notes),
    )  # fmt: skip


def _activations(
    work: Workload, shape: Transformer, precision: modelmemory.Precision, formulas: dict[str, str]
) -> float:
    kept, size = modelmemory.activations(), precision.activation
    numbers = float(shape.sequence * shape.batch * shape.hidden)
    scores = float(shape.heads * shape.sequence**2 * shape.batch)
    if work.optimizer is None:  # one layer after another: what a layer has calculated is free again
        formulas["activations"] = f"s b h x {kept.values * size + kept.masks:g} bytes of one layer at a time"
        return numbers * (kept.values * size + kept.masks)
    if shape.recompute == "full":
        each = kept.full_values * size
        formulas["activations"] = f"{shape.layers} layers x s b h x {each:g} bytes (the rest is calculated again)"
        return shape.layers * numbers * each
    each = kept.values * size + kept.masks
    formulas["activations"] = f"{shape.layers} layers x s b h x {each:g} bytes"
    if shape.recompute == "selective":
        formulas["activations"] += " (no attention scores are kept)"
        return shape.layers * numbers * each
    score = kept.score_values * size + kept.score_masks
    formulas["activations"] += f", and a s^2 b x {score:g} bytes of attention scores"
    return shape.layers * (numbers * each + scores * score)


def _kv_cache(shape: Transformer, precision: modelmemory.Precision, formulas: dict[str, str]) -> float:
    share = (shape.kv_heads or shape.heads) / shape.heads
    formulas["kv_cache"] = f"2 x {shape.layers} layers x s b h x {precision.activation:g} bytes x {share:g}"
    return 2.0 * shape.layers * shape.sequence * shape.batch * shape.hidden * precision.activation * share


def fits(needs: Memory, board: Board) -> Fit:
    """Whether one such board holds it. What is not known counts as nothing, so `fits` is then None or False."""
    total = None if board.memory_mib is None else float(board.memory_mib * MIB)
    needed = needs.known + needs.context
    if total is None:
        return Fit(board.key, board.name, None, needed, None, None, False, None)
    left = total - needs.known
    unknown = isinstance(needs.activations, Missing) or isinstance(needs.kv_cache, Missing)
    holds = False if left < 0 else None if unknown else True
    return Fit(
        board=board.key,
        name=board.name,
        memory_bytes=total,
        needed_bytes=needed,
        free_bytes=total - needed,
        fits=holds,
        tight=left >= 0 and total < needed,
        gpus_at_least=_share(needs, total),
    )


def _share(needs: Memory, total: float) -> int | None:
    """GPUs among which weights, gradients and optimizer states must be shared (ZeRO's stage 3)."""
    shared = needs.weights + needs.gradients + needs.optimizer
    own = needs.known - shared + needs.context
    return None if total <= own else max(1, math.ceil(shared / (total - own)))
