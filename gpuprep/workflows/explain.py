"""Questions that need no machine: a board, the speed of operations on it, the memory of a model.

answer(Question(gpu="a100", shapes=("4096x4096x4096",)))    Answer; UsageError says what is wrong and what is allowed
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from gpuprep.catalogue import Board, boardnames, boards, modelmemory, models
from gpuprep.errors import UsageError
from gpuprep.performance import answers, bettershape, boardsheet, operations, predict, roofline
from gpuprep.performance import modelmemory as memory
from gpuprep.performance.answers import Answer, Attended, ModelAnswer, Product
from gpuprep.records import Missing

AGAIN_DIFFERS = 0.05  # of the time: a smaller gain is not shown
MOST_QUESTIONS = 1000  # shapes, convolutions and attentions, times data types
MOST_PARAMETERS = 1e16
SUFFIXES = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}


@dataclass(frozen=True)
class ModelQuestion:
    """The options of --model as given; None: not given."""

    parameters: str
    precision: str | None = None
    optimizer: str | None = None  # "none": the model is not trained
    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    sequence: int | None = None
    batch: int = 1
    recompute: str = "selective"


@dataclass(frozen=True)
class Question:
    gpu: str | None
    dtypes: tuple[str, ...] = ("fp16",)
    batch: int = 1
    layout: str = "row"
    shapes: tuple[str, ...] = ()
    convolutions: tuple[str, ...] = ()
    attentions: tuple[str, ...] = ()
    model: ModelQuestion | None = None
    given: tuple[str, ...] = ()  # flags that the user typed and that belong to one kind of question


def answer(question: Question) -> Answer:
    count = len(question.shapes) + len(question.convolutions) + len(question.attentions)
    _refuse_foreign_options(question, count)
    for dtype in question.dtypes:
        if dtype not in roofline.UNITS:
            raise UsageError(f"--dtype {dtype[:40]}: no such data type", f"data types: {', '.join(roofline.UNITS)}")
    if count * len(question.dtypes) > MOST_QUESTIONS:
        raise UsageError(f"{count} shapes are too many", f"ask for at most {MOST_QUESTIONS}, data types counted")
    if question.gpu is None and (count or question.model is None):
        raise UsageError("`gpuprep explain` needs --gpu or --model", "for example --gpu t4, or --model 7e9")
    if question.batch > 1 and (question.convolutions or question.attentions):
        raise UsageError(
            f"--batch {question.batch}: is only for products MxNxK and for --model",
            "a convolution has its images in N, and attention its sequences in BATCH",
        )
    candidates = () if question.gpu is None else _boards(question.gpu)
    board = _best(candidates, question.gpu or "")
    model = None if question.model is None else _model(question.model, candidates)
    if board is None or not count:
        return Answer(board, candidates, sheet=boardsheet.sheet(board) if board and not model else None, model=model)
    try:
        wanted = [
            *(operations.product(words, question.batch, question.layout) for words in question.shapes),
            *(operations.convolution(words) for words in question.convolutions),
        ]
        attended = [operations.attention(words) for words in question.attentions]
    except ValueError as error:
        raise UsageError(str(error), "`gpuprep explain --help` has the form of each") from error
    return Answer(
        board,
        candidates,
        tuple(_product(board, product, dtype) for product in wanted for dtype in question.dtypes),
        tuple(
            Attended(attention, dtype, answers.predict_attention(board, attention, dtype))
            for attention in attended
            for dtype in question.dtypes
        ),
        model=model,
    )


def _refuse_foreign_options(question: Question, count: int) -> None:
    """Raises UsageError for options that do not belong to this question: an answer that ignored one would be wrong."""
    of_shapes = [flag for flag in question.given if flag == "--dtype" or (flag == "--batch" and not question.model)]
    if of_shapes and not count:
        instead = "--precision is that of a --model" if question.model else "give one, as 4096x4096x4096"
        raise UsageError(f"{of_shapes[0]} goes with a shape, --conv or --attention", instead)
    if "--layout" in question.given and not question.shapes:
        raise UsageError("--layout goes with a shape MxNxK", "give one, as 4096x4096x4096")
    of_model = [flag for flag in question.given if flag not in ("--dtype", "--batch", "--layout")]
    if of_model and question.model is None:
        raise UsageError(f"{of_model[0]} goes with --model", "give --model with its parameters, as --model 7e9")
    whole = question.model is not None and question.model.layers is not None
    of_layers = [flag for flag in question.given if flag == "--recompute" or (flag == "--batch" and not count)]
    if of_layers and not whole:
        raise UsageError(
            f"{of_layers[0]} concerns activations, which need the shape of the model",
            "add --layers, --hidden, --heads and --sequence",
        )


def _product(board: Board, operation: operations.Operation, dtype: str) -> Product:
    prediction = predict.predict(board, operation, dtype)
    again = predict.predict(board, operation, dtype, warm=True)
    if isinstance(prediction, Missing) or isinstance(again, Missing):
        return Product(operation, dtype, prediction, ())
    differs = abs(again.seconds / prediction.seconds - 1) >= AGAIN_DIFFERS
    return Product(operation, dtype, prediction, bettershape.near(prediction), again.seconds if differs else None)


def _boards(words: str) -> tuple[Board, ...]:
    boards = boardnames.named(words)
    if boards:
        return boards
    if maker := boardnames.other_maker(words):
        problem = f"--gpu {words[:60]}: a GPU of {maker}, and gpuprep's catalogue has only GPUs of NVIDIA"
        raise UsageError(problem, "name a GPU of NVIDIA: `gpuprep explain --gpu t4`")
    near = boardnames.near(words)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise UsageError(f"--gpu {words[:60]}: the catalogue has no such GPU", f"{hint}models: {', '.join(models())}")


def _best(candidates: tuple[Board, ...], words: str) -> Board | None:
    """The board with the key `words`; else the board with the most known figures; None without candidates."""
    own = next((candidate for candidate in candidates if candidate.key == words.strip().lower()), None)
    return own or (max(candidates, key=_known) if candidates else None)


def _known(board: Board) -> int:
    """How many of the figures that a prediction needs are known."""
    return sum(figure is not None for figure in (board.sms, board.boost_mhz, board.memory_gb_per_s, board.memory_mib))


def _model(asked: ModelQuestion, candidates: tuple[Board, ...]) -> ModelAnswer:
    precision = asked.precision or "bf16"
    if precision not in modelmemory.precisions():
        raise UsageError(
            f"--precision {precision[:40]}: no such precision", f"one of {', '.join(modelmemory.precisions())}"
        )
    optimizer = None if asked.optimizer in (None, "none") else asked.optimizer
    if optimizer is not None and optimizer not in modelmemory.optimizers():
        known = ", ".join(modelmemory.optimizers())
        raise UsageError(f"--optimizer {optimizer[:40]}: no such optimizer", f"one of {known}, or none")
    shape = (asked.layers, asked.hidden, asked.heads, asked.sequence)
    transformer = None
    if None not in shape:
        layers, hidden, heads, sequence = (size or 0 for size in shape)
        if hidden % heads or (asked.kv_heads and (asked.kv_heads > heads or heads % asked.kv_heads)):
            raise UsageError(
                "--hidden must be a multiple of --heads, --heads a multiple of --kv-heads", "check the model"
            )
        transformer = memory.Transformer(layers, hidden, heads, sequence, asked.batch, asked.kv_heads, asked.recompute)
    elif any(size is not None for size in (*shape, asked.kv_heads)):
        raise UsageError("--layers, --hidden, --heads and --sequence belong together", "give all four, or none")
    needs = memory.memory(memory.Workload(_parameters(asked.parameters), precision, optimizer, transformer))
    if isinstance(needs, Missing):
        raise UsageError(f"--precision {precision}: {needs.detail}", "leave out --optimizer, or train in bf16")
    return ModelAnswer(
        needs, tuple(memory.fits(needs, candidate) for candidate in candidates or tuple(boards().values()))
    )


def _parameters(words: str) -> float:
    """ "7e9", "7B", "350M", "7,000,000,000" """
    match = re.fullmatch(
        r"(\d{1,18}(?:\.\d{1,9})?(?:e\+?\d{1,2})?)([kmbgt]?)", words.strip().lower().replace(",", "").replace("_", "")
    )
    number = float(match[1]) * SUFFIXES.get(match[2], 1.0) if match else 0.0
    if not 1 <= number <= MOST_PARAMETERS:
        raise UsageError(f"--model {words[:40]!r}: not a number of parameters", "such as 7e9, 7B or 350M, at most 1e16")
    return number
