"""How far is each matrix product, convolution and attention below the roof of its GPU, and why?

roofs(profile, document, board, record)     a line for each op whose shape the profile tells, the longest first
missing(document, board, lines)             what a profile lacks for it, in a sentence; "" where nothing
with_roofs(...)                             the document with the lines, or with a note of what is missing
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Union

from gpuprep.catalogue import Board, parse
from gpuprep.catalogue import board as catalogue_board
from gpuprep.performance import roofline
from gpuprep.performance.roofline import Roof
from gpuprep.records import Missing, RunRecord, Source
from gpuprep.records.evidence import measured as decoded
from gpuprep.records.evidence.gemm import Gemm, GemmGpu, Product
from gpuprep.trace import work
from gpuprep.trace.columns import OTHER_VENDORS
from gpuprep.trace.document import Note, OpLine, RoofLine, TraceDocument
from gpuprep.trace.profile import Profile, UsesTensorCores
from gpuprep.trace.roofs import faster, reasons
from gpuprep.trace.roofs.reasons import OpKernels, kernels_of_ops
from gpuprep.trace.work.flops import Work
from gpuprep.trace.work.optypes import ABOVE, proves

MeasuredRoofs = Mapping[str, tuple[float, str]]  # data type ► TFLOPS and where they are from


def dtype_of(given: str, board: Board, uses: UsesTensorCores, tflops: float) -> tuple[str, str]:
    """(data type of the roof, what is not sure about it). FP32 on Tensor Cores is TF32: the kernels' names tell.

    Where they do not, a speed that CUDA cores cannot reach does. `tflops` 0: it proves nothing, as of a convolution.
    """
    if given != "fp32" or parse(board.model.compute_capability) < parse("8.0"):
        return given, ""
    if uses is UsesTensorCores.NO:
        return "fp32", ""
    if uses is UsesTensorCores.YES or proves(board, given, tflops):
        return "tf32", ""
    return "tf32", "the kernels' names do not tell whether this was TF32 or FP32"


def roof_of(board: Board, dtype: str) -> Union[Roof, Missing]:
    return roofline.roof(board, dtype) if dtype else Missing("not_recorded", "the profile does not tell the data type")


def impossible(tflops: float, roof: Roof) -> bool:
    """Above this share of the roof, the figure is wrong, not the kernel fast."""
    return tflops > ABOVE * roof.tflops


def measured_roofs(record: RunRecord | None, gpu_names: Collection[str]) -> MeasuredRoofs:
    """The fastest product of each data type that the record has of these GPUs. `gpu_names`: those that worked."""
    fastest: dict[str, tuple[float, str]] = {}
    for result in record.measurements if record else ():
        values = decoded(Gemm, result.values) if result.probe == "gemm" else None
        if record is None or values is None or isinstance(values, Missing):
            continue
        simulated = " (simulated)" if result.source is Source.SIMULATED else ""
        for gemm in _products(values, gpu_names):
            best = fastest.get(gemm.dtype, (0.0, ""))[0]
            if not isinstance(gemm.tflops, Missing) and gemm.tflops > best:
                fastest[gemm.dtype] = (float(gemm.tflops), f"record {record.run_id}{simulated}")
    return fastest


def _products(values: Gemm, gpu_names: Collection[str]) -> list[Product]:
    """Of GPUs with such a name; of all where the profile names none."""
    gpus = [gpu for gpu in values.gpus if isinstance(gpu, GemmGpu) and (not gpu_names or gpu.name in gpu_names)]
    return [gemm for gpu in gpus for gemm in gpu.gemms if isinstance(gemm, Product)]


PREDICTED = 300  # ops for which better shapes are looked for, by GPU time
MOST = 5000  # lines
NO_NAME = "No roofs: the profile does not name its GPU. With a record of the machine (--record RUN) it is known."


def roofs(
    profile: Profile, document: TraceDocument, board: Board | None, record: RunRecord | None = None
) -> tuple[RoofLine, ...]:
    """() where the catalogue does not know the GPU. With a record of the machine, the roof is what was measured there.

    `document` tells the chosen iterations. The times are those of the op's own kernels, also those that only prepare.
    """
    if board is None:
        return ()
    named = {device.name for device in document.file.devices if device.kernels}
    measured = measured_roofs(record, named)
    summary = document.summary
    kernels = kernels_of_ops(profile, summary.start_iteration, summary.stop_iteration)
    model, lines = faster.Model(board), list[RoofLine]()
    for op, shape in _candidates(profile, document):
        if len(lines) < MOST:
            mine = kernels.get(op.id, OpKernels())
            look = model if len(lines) < PREDICTED else None
            line = _line(profile, op, shape, board, mine, measured, look, summary.iterations)
            lines += [line] if line else []
    return tuple(lines)


def with_roofs(
    profile: Profile, document: TraceDocument, board: Board | None, record: RunRecord | None = None
) -> TraceDocument:
    lines = roofs(profile, document, board, record)
    lacks = missing(document, board, lines)
    notes = [Note("no_roofs", 1, lacks)] if lacks else []
    if board is not None and record is None and (other := _another(document, board)):
        notes.append(Note("board_like", 1, other))
    return replace(document, file=replace(document.file, notes=(*document.file.notes, *notes)), roofs=lines)


def _another(document: TraceDocument, board: Board) -> str:
    """Where the GPU's name is not the board's: what the figures are of."""
    named = sorted({device.name for device in document.file.devices if device.name and device.kernels})
    if not named or any(catalogue_board("", name=name) for name in named):
        return ""
    return (
        f"gpuprep's catalogue does not know the {' and the '.join(named)}: roofs and gains are those of {board.name} "
        "boards with as many SMs and as much memory."
    )


def _candidates(profile: Profile, document: TraceDocument) -> Iterator[tuple[OpLine, Work]]:
    for op in sorted(document.ops, key=lambda op: -op.gpu_us):
        given = profile.ops[op.id].arguments
        if op.gpu_us > 0 and op.calls > 0 and given >= 0:
            shape = work.shape(op.type, profile.trace.arguments[given])
            if shape is not None and shape.flops > 0:
                yield op, shape


def _line(
    profile: Profile,
    op: OpLine,
    shape: Work,
    board: Board,
    kernels: OpKernels,
    measured: MeasuredRoofs,
    model: faster.Model | None,
    iterations: int,
) -> RoofLine | None:
    given = profile.trace.arguments[profile.ops[op.id].arguments]
    # Where fewer kernels than calls are in the profile, those of the other calls were lost.
    calls = min(op.calls, kernels.calls) if kernels.calls else op.calls
    tflops = shape.flops * shape.needed * calls / op.gpu_us / 1e6
    proof = 0.0 if shape.kind == "convolution" else tflops
    dtype, doubt = dtype_of(work.dtype(op.type, given), board, kernels.uses_tensor_cores, proof)
    peak = roof_of(board, dtype)
    if isinstance(peak, Missing):
        return None
    top, source = measured.get(dtype, (peak.tflops, "catalogue"))
    case = reasons.Case(op, shape, board, dtype, peak, kernels, tflops, work.misaligned(op.type, given))
    if impossible(tflops, peak) and not kernels.calculates_less:
        words, better = reasons.impossible(case), None
    else:
        quicker = "faster than every product in the record" if top < tflops and source != "catalogue" else ""
        words = "; ".join(part for part in (reasons.words(case), quicker, doubt) if part)
        better = model.padded(shape, dtype, op.gpu_us / calls) if model else None
    return RoofLine(
        op=op.id,
        type=op.type,
        shape=shape.words,
        dtype=dtype,
        calls=op.calls,
        gpu_us=op.gpu_us,
        tflops=tflops,
        roof_tflops=top,
        roof_source=source,
        percent=None if tflops > top and impossible(tflops, peak) else 100.0 * tflops / top,
        words=words,
        better=better.words if better else "",
        better_us=better.saved_us * calls / max(1, iterations) if better else None,
    )


def missing(document: TraceDocument, board: Board | None, lines: tuple[RoofLine, ...]) -> str:
    """Why there is no line, where there is none."""
    if lines or not document.ops or any(note.id in OTHER_VENDORS for note in document.file.notes):
        return ""
    if board is None:
        names = " and the ".join(
            dict.fromkeys(device.name for device in document.file.devices if device.name and device.kernels)
        )
        return f"No roofs: gpuprep's catalogue does not know the {names}." if names else NO_NAME
    if not any(op.shapes for op in document.ops):
        return "No roofs: the profile has no input shapes. Record it with record_shapes=True."
    if not any(op.flops for op in document.ops):
        return "No roofs: the profile has no op whose shapes tell the work, such as a matrix product."
    return f"No roofs: the catalogue has no peak of the {board.name} for the data types of these ops."
