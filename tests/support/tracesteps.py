"""A profile of GPU work on its way to a document, one step at a time.

read(file)                        a file ► columns
linked(columns)                   ► which op launched which kernel, in which iteration
summed(columns or profile, 0, 3)  ► its document, without roofs and recommendations
roofed(profile, board, record)    ► the same with roofs
advised(profile, document)        ► its recommendations

Tests reach the inside of gpuprep.trace here and in handmade.py, so that its parts may move. What small_pieces() and
its like change is a limit: pieces of a few bytes are cut in every place, and a small file counts as a large one.
"""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import handmade
import numpy as np
import pytest

from gpuprep.catalogue import Board
from gpuprep.records import RunRecord
from gpuprep.trace import advice, columns, model, opening, page, reading, tables
from gpuprep.trace.advice import gains, intervals, replay
from gpuprep.trace.advice.evidence import Evidence
from gpuprep.trace.document import Advice, Gain, KernelLine, Slowdown, TraceDocument
from gpuprep.trace.formats import documents
from gpuprep.trace.model import groups, iterations, sums
from gpuprep.trace.model import intervals as nesting
from gpuprep.trace.opening import Wish, job, machine
from gpuprep.trace.page import html_of_job, pack
from gpuprep.trace.profile import OpRow, Profile
from gpuprep.trace.ranks import RanksDocument, summary
from gpuprep.trace.reading import builders, chunks, files, parallel
from gpuprep.trace.roofs import with_roofs

Spans = list[tuple[int, int]]


def read(path: Path, *, stacks: bool = True) -> columns.Trace:
    return reading.read(path, stacks=stacks)


def found(folder: Path) -> list[Path]:
    """The profiles of a folder."""
    return reading.find(folder)


def passed_over(folder: Path) -> list[str]:
    """Files of a folder that are called like profiles and are none."""
    return [path.name for path in reading.look(folder).others]


def linked(trace: columns.Trace, *, key_op: str = "") -> Profile:
    return model.profile(trace, key_op=key_op)


def summed(of: columns.Trace | Profile, start: int | None = None, stop: int | None = None) -> TraceDocument:
    return tables.document(of if isinstance(of, Profile) else linked(of), start, stop)


def roofed(profile: Profile, board: Board | None = None, record: RunRecord | None = None) -> TraceDocument:
    """`board`: else that of the profile's GPU."""
    board = board or machine.board_used(profile.trace, record)
    return with_roofs(profile, summed(profile), board, record)


def advised(profile: Profile, document: TraceDocument, **more: Any) -> tuple[Advice, ...]:
    return advice.advise(profile, document, **more)[0]


def slowdown(profile: Profile) -> Slowdown:
    return advice.recorded.slowed(Evidence(profile, summed(profile)))


def op_row(name: str, arguments: columns.Arguments | None, capability: str = "9.0", note: str = "") -> OpRow:
    """An op alone, which launches a kernel, on a GPU of that compute capability. `note`: of its profile."""
    rows = [handmade.Op(name, 0, 10, arguments=arguments), *handmade.launched("kernel", 2, 20, 30, 1)]
    notes_ = {note: 1} if note else {}
    made = linked(handmade.trace(*rows, devices=(columns.Device(0, "A GPU", capability),), notes=notes_))
    return made.ops[1]


def kernel_lines(names: list[str]) -> dict[str, KernelLine]:
    """What is told of kernels by their names alone."""
    rows = [handmade.Gpu(name, 10 * place, 10 * place + 5) for place, name in enumerate(names)]
    return {line.name: line for line in summed(handmade.trace(*rows)).kernels}


def ranks(traces: list[Path], name: str = "job") -> RanksDocument:
    """What files of several ranks show together."""
    return summary([linked(read(path)) for path in traces], name)


def sentence(key: str, count: int) -> str:
    """A note of a profile in words."""
    return tables.sentence(key, count)


def note_keys() -> list[str]:
    return sorted(tables.note_keys())


def schemas() -> dict[str, dict[str, Any]]:
    """Of each JSON document of gpuprep trace the schema that its dataclass gives, by the name of its file."""
    return {name: documents.schema(name) for name in documents.DOCUMENTS}


def shown(text: str) -> str:
    """A text of a profile as everything shows it."""
    trace = handmade.trace(handmade.Op(text, 0, 1))
    opening.make_safe(trace, keep_paths=False)
    return trace.names[0]


def packed(profile: Profile, room: int | None = None) -> pack.Packed:
    """The data that a page carries."""
    return pack.pack(profile, room=room)


def page_of_ranks(folder: Path, room: int | None = None) -> str:
    """`room`: bytes that the profiles of all ranks may have in it."""
    opened = job.open_job(folder, Wish())
    return html_of_job(opened.ranks, lambda rank: job.open_rank(opened, rank, Wish()), room=room)


def unpacked(data: bytes) -> tuple[dict[str, Any], dict[str, columns.Ints]]:
    """Packed data as the script of a page reads them: what is said of them, and the columns by their names."""
    text = gzip.decompress(data)
    magic, version, length = text[:4], *struct.unpack("<II", text[4:12])
    assert (magic, version) == (pack.MAGIC, pack.VERSION)
    header, body = json.loads(text[12 : 12 + length]), text[12 + length :]
    found = {}
    for name, (at, count, planes, coding) in header["columns"].items():
        raw = np.frombuffer(body[at : at + count * planes], np.uint8).reshape(planes, count).astype(np.int64)
        values = sum((plane << (8 * number) for number, plane in enumerate(raw)), np.zeros(count, np.int64))
        if coding != "raw":
            values = (values >> 1) ^ -(values & 1)
        found[name] = np.cumsum(values) if coding == "delta" else values
    return header, found


def beside(trace: Path) -> machine.Beside:
    """What stands beside a trace."""
    return machine.beside(trace)


# ---------------------------------------------------------------- a step replayed


class Replayed:
    """The step of a profile, which takes another time with something changed."""

    def __init__(self, profile: Profile, document: TraceDocument) -> None:
        self.evidence = Evidence(profile, document)
        self.replay = gains.replay(self.evidence)
        trace = profile.trace
        self.kernels, self.calls = len(trace.gpu.start), len(trace.calls.start)
        self.durations = gains.durations(self.evidence)

    @property
    def refusal(self) -> str:
        """Why the step cannot be replayed; "" where it can."""
        return "" if self.replay.ok else self.replay.refusal or "no reason given"

    @property
    def iterations(self) -> int:
        """That are replayed."""
        return self.replay.count

    @property
    def recorded_step_ns(self) -> float:
        return self.replay.step_ns

    def step_ns(self, cpu: float = 1.0, **changed: Any) -> float:
        """`changed`: gpu_ns, without_gpu, without_calls, no_waits, cut. `cpu`: share of the CPU's work that is left."""
        return self.replay.step(replay.Change(**changed), cpu) if changed else self.replay.unchanged_ns(cpu)

    def calls_of(self, kernels: Any) -> Any:
        return gains.calls_of(self.evidence, kernels)

    def gain(self, most_ns: float = float("inf"), **changed: Any) -> Gain | None:
        return gains.gain(self.evidence, replay.Change(**changed), "with a change", most_ns=most_ns)

    def gain_of_all(self, most_ns: float) -> Gain | None:
        """Where nothing of the step is left."""
        return gains.of_steps(self.replay, lambda _cpu: 0.0, "nothing is left", most_ns=most_ns)

    @property
    def idle_us(self) -> float:
        """Of a step, in which the GPU has nothing to do."""
        return intervals.length(self.evidence.idle) / self.evidence.steps / 1e3


def paced(step_ns: Callable[[float], float], timed_ns: float | None, cpu_ns: float, written: float) -> replay.Pace:
    """How fast the CPU is without the profiler."""
    return replay.paced(step_ns, timed_ns, cpu_ns, written)


class Times:
    """Times of a rule, of (start, end): what is in them, in both, in one alone."""

    def __init__(self, spans: Spans) -> None:
        start, end = (np.array([span[place] for span in spans], np.int64) for place in (0, 1))
        self._of = intervals.union(start, end)

    @property
    def spans(self) -> Spans:
        return [(start, end) for start, end in self._of.tolist()]

    @property
    def length(self) -> int:
        return intervals.length(self._of)

    def both(self, other: Times) -> Spans:
        return self._spans(intervals.both(self._of, other._of))

    def without(self, other: Times) -> Spans:
        return self._spans(intervals.without(self._of, other._of))

    def gaps(self, start: int, end: int) -> Spans:
        return self._spans(intervals.gaps(self._of, start, end))

    def inside(self, start: int, end: int) -> Spans:
        return self._spans(intervals.clipped(self._of, start, end))

    def covered(self, start: int, end: int) -> float:
        return float(intervals.Covered(self._of).between(np.array([start]), np.array([end]))[0])

    @staticmethod
    def _spans(of: Any) -> Spans:
        return [(start, end) for start, end in of.tolist()]


# ---------------------------------------------------------------- limits


def no_profiler(monkeypatch: pytest.MonkeyPatch, cost_ns: float = 0.0) -> None:
    """What the profiler costs for each range and call; nothing, in programs that are invented."""
    monkeypatch.setattr(replay, "RECORDING_NS", cost_ns)


def largest_step(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(replay, "LARGEST_STEP", most)


def fewer_iterations(monkeypatch: pytest.MonkeyPatch, pieces_of_all: int) -> None:
    """So many calls and kernels are replayed, of some iterations."""
    monkeypatch.setattr(replay, "MOST_PIECES", pieces_of_all)


def small_pieces(monkeypatch: pytest.MonkeyPatch, size: int = 1 << 16, event: int = 1 << 20) -> None:
    """A file is read in pieces of that size, and no event is longer than that."""
    monkeypatch.setattr(chunks, "PIECE", size)
    monkeypatch.setattr(chunks, "MOST_EVENT", event)


def few_brackets(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(chunks, "MOST_BRACKETS", most)


def two_halves(monkeypatch: pytest.MonkeyPatch, start: str = "{}") -> None:
    """Files of a kilobyte are read by two processes. `start`: what the second one runs, {} what it should run."""
    monkeypatch.setattr(parallel, "SMALLEST", 1000)
    monkeypatch.setattr(parallel, "START", start.replace("{}", parallel.START))


def memory_given_back(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows with each time that a reader asks for arrays of at least so many bytes to be given back."""
    asked: list[int] = []
    monkeypatch.setattr(parallel, "own_memory_for_arrays", lambda least=0: asked.append(least))
    return asked


def large_profiles(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """From this size on, memory is what matters."""
    monkeypatch.setattr(parallel, "LARGEST", size)


def few_different(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Names, threads and arguments that are kept."""
    monkeypatch.setattr(builders, "MOST_NAMES", most)
    monkeypatch.setattr(builders, "MOST_THREADS", most)
    monkeypatch.setattr(builders, "MOST_ARGUMENTS", most)


def no_nsys(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    """NVIDIA's program is neither on PATH nor where it is usually installed."""
    monkeypatch.setenv("PATH", str(path))
    monkeypatch.setattr(files, "PLACES", ())


def small_parts(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    """Columns are worked on in parts of so many rows."""
    monkeypatch.setattr(groups, "CHUNK", rows)
    monkeypatch.setattr(iterations, "CHUNK", rows)
    monkeypatch.setattr(sums, "CHUNK", rows)
    monkeypatch.setattr(nesting, "CHUNK", rows)
    monkeypatch.setattr(pack, "CHUNK", rows)


def few_ranks_in_a_page(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(page, "MOST_PROFILES", most)


def room_of_a_server(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Bytes of a page that `trace serve` sends."""
    monkeypatch.setattr(pack, "SERVED_ROOM", size)


def sampled_ops(monkeypatch: pytest.MonkeyPatch, count: int) -> list[int]:
    """So many single ops are tried first. Grows with the number of ops of each try."""
    tried: list[int] = []
    inner = pack._pack

    def counted(*args: Any, **more: Any) -> pack.Packed:
        tried.append(len(args[3]))
        return inner(*args, **more)

    monkeypatch.setattr(pack, "_pack", counted)
    monkeypatch.setattr(pack, "SAMPLE", count)
    return tried
