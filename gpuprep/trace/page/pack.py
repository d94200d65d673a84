"""Profile ► the bytes that a page carries: all sums, and the single events as far as there is room for them.

The page sums the cells again for another range of iterations, and the single events for another key op; both with the
same result as trace/tables. static/data.js reads what is written here; the layout is this:

    gzip of: "GPTR" + version, uint32 + length of the header, uint32 + header, JSON + columns, one after the other

A column is a list of whole numbers, byte planes after each other: all lowest bytes, then all second bytes ... gzip
finds the pattern that every iteration repeats in them, which it does not in numbers of changing length. `coding`:
"raw", "signed" (zigzag: 0, -1, 1, -2 ...), "delta" (zigzag of the differences to the row before).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import struct
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from gpuprep.trace.columns import NONE, Ints, OpKind
from gpuprep.trace.model.intervals import union
from gpuprep.trace.profile import NO_OP, Profile
from gpuprep.untrusted.plaintext import one_line

VERSION = 1
LEVEL = 6  # of deflate
MAGIC = b"GPTR"
# Bytes of the packed data. In the page they grow by a third (base64): with its scripts 3 MB and 15 MB.
ROOM = 10_850_000
SMALL_ROOM = 1_800_000
SERVED_ROOM = 4 * ROOM  # of a page that a server on this machine sends: nobody mails it
SMALL_EVENTS = 100_000  # a profile of fewer events gets the small room
MOST = 2**52  # of sizes in bytes, which a profile may invent: what JavaScript counts exactly
_NAME_LETTERS = 10_000  # of one name
_STACK_FRAMES = 64


@dataclass
class Packed:
    data: bytes  # gzip
    left_out: tuple[str, ...]  # sentences; they stand in the data, too


class _Columns:
    """Collects columns and says where each stands."""

    def __init__(self) -> None:
        self.places: dict[str, list[Any]] = {}
        self.pieces: list[bytes] = []
        self.size = 0

    def add(self, name: str, values: Ints, coding: str = "raw") -> None:
        numbers = np.asarray(values, dtype=np.int64)
        if coding == "delta":
            numbers = np.diff(numbers, prepend=np.int64(0))
        if coding != "raw":
            numbers = (numbers << 1) ^ (numbers >> 63)
        assert not numbers.size or numbers.min() >= 0, name
        planes = max(1, (int(numbers.max()).bit_length() + 7) // 8) if numbers.size else 1
        data = np.ascontiguousarray(numbers.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :planes].T).tobytes()
        self.places[name] = [self.size, int(numbers.size), planes, coding]
        self.pieces.append(data)
        self.size += len(data)


class _Gzip:
    """gzip of pieces, each deflated for itself: on all cores, and once for all attempts that have the same piece."""

    def __init__(self) -> None:
        self.done: dict[bytes, bytes] = {}  # by the hash of a piece

    def __call__(self, pieces: Sequence[bytes]) -> bytes:
        keys = [hashlib.blake2b(piece, digest_size=16).digest() for piece in pieces]
        new = {key: piece for key, piece in dict(zip(keys, pieces, strict=True)).items() if key not in self.done}
        with ThreadPoolExecutor(os.cpu_count()) as threads:  # zlib works outside of Python's lock
            self.done.update(zip(new, threads.map(_deflated, new.values()), strict=True))
        check, size = 0, sum(map(len, pieces))
        for piece in pieces:
            check = zlib.crc32(piece, check)
        # RFC 1952: no name, no time; at the end an empty last block, the checksum and the length.
        head = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
        return b"".join(
            (head, *map(self.done.__getitem__, keys), b"\x03\x00", struct.pack("<II", check, size & 0xFFFFFFFF))
        )


def _deflated(piece: bytes) -> bytes:
    """Blocks that any others may follow: without a last block, and without a look back beyond the piece."""
    worker = zlib.compressobj(LEVEL, zlib.DEFLATED, -15)
    return worker.compress(piece) + worker.flush(zlib.Z_FULL_FLUSH)


class _Texts:
    """Each text once."""

    def __init__(self) -> None:
        self.index: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.index.setdefault(text, len(self.index))

    def safe(self) -> list[str]:
        return [_safe(text) for text in self.index]


def _safe(text: str) -> str:
    return one_line(text, _NAME_LETTERS)


def pack(profile: Profile, *, room: int | None = None) -> Packed:
    """What fits into `room` bytes: the sums always, then the single events. What does not fit is named in `left_out`.

    The steps are tried in order until one fits. The last has no single events: its figures are complete all the same.
    """
    events = profile.trace.gpu.start.size + profile.trace.ops.start.size
    room = room or (SMALL_ROOM if events < SMALL_EVENTS else ROOM)
    rows = _op_rows(profile)
    launching = _launching(profile, rows)
    named = rows[profile.trace.ops.kind[rows] != OpKind.OP]
    packed, squeeze = Packed(b"", ()), _Gzip()
    for kernels, ops, memory in (
        (True, rows, True),
        (True, launching, True),
        (True, launching, False),
        (True, named, False),
        (False, named[:0], False),
    ):
        packed = _pack(profile, squeeze, kernels, ops, memory, len(rows))
        if len(packed.data) <= room:
            break
    return packed


def _pack(profile: Profile, squeeze: _Gzip, kernels: bool, ops: Ints, memory: bool, all_ops: int) -> Packed:
    """`ops`: rows of Trace.ops, in the order of _op_rows."""
    trace, columns = profile.trace, _Columns()
    texts = _Texts()
    header = _rows(profile, texts)
    _cells(profile, columns)
    left_out = []
    if kernels:
        _kernels(profile, ops, columns, header)
    elif trace.gpu.start.size:
        left_out.append(
            f"the {trace.gpu.start.size:,} single kernels and copies: no timeline, no kernels of one iteration, "
            "no other key op"
        )
    if len(ops):
        _ops(profile, ops, columns, header, texts)
    if len(ops) < all_ops:
        left_out.append(
            f"{all_ops - len(ops):,} of {all_ops:,} single ops on the CPU"
            " (no CPU times for another key op, and fewer rows in the timeline)"
        )
    if memory and trace.memory.time.size:
        _memory(profile, columns)
    elif trace.memory.time.size:
        left_out.append(f"{trace.memory.time.size:,} events of memory: no memory over time")
    header |= {"columns": columns.places, "left_out": left_out, "all_ops": all_ops == len(ops), "texts": texts.safe()}
    text = json.dumps(header, separators=(",", ":"), allow_nan=False).encode()
    parts = [MAGIC, struct.pack("<II", VERSION, len(text)), text]
    return Packed(squeeze((b"".join(parts), *columns.pieces)), tuple(left_out))


def _rows(profile: Profile, texts: _Texts) -> dict[str, Any]:
    trace = profile.trace
    header: dict[str, Any] = {"version": VERSION, "name": _safe(profile.name)}
    header["ops"] = {
        "name": [texts(row.name) for row in profile.ops],
        "type": [texts(row.type) for row in profile.ops],
        "direction": [row.direction.value for row in profile.ops],
        "module": [texts(row.module) for row in profile.ops],
        "dtypes": [texts(row.dtypes) for row in profile.ops],
        "shapes": [texts(row.shapes) for row in profile.ops],
        "stack": [[texts(frame) for frame in row.stack[-_STACK_FRAMES:]] for row in profile.ops],
        "eligible": [int(row.eligible) for row in profile.ops],
        "why": [texts(row.why) for row in profile.ops],
        "flops": [float(row.flops) if np.isfinite(row.flops) else None for row in profile.ops],
    }
    header["kernels"] = {
        "name": [texts(row.name) for row in profile.kernels],
        "memory": [int(row.memory) for row in profile.kernels],
        "tensor_cores": [row.tensor_cores.value for row in profile.kernels],
        "rule": [texts(row.rule) for row in profile.kernels],
        "grid": [texts(row.launch_grid) for row in profile.kernels],
        "block": [texts(row.launch_block) for row in profile.kernels],
    }
    header["iterations"] = {
        "name": [texts(name) for name in profile.iterations.names],
        "how": _safe(profile.iterations.how),
    }
    header["modules"] = [texts(path) for path in profile.modules]
    moments = [int(times.max()) for times in (trace.ops.end, trace.calls.end) if times.size]
    header["last_moment"], header["calls"] = max(moments, default=0), int(trace.calls.start.size)
    header["devices"] = [
        {
            "device": device.index,
            "name": _safe(device.name),
            "compute_capability": _safe(device.compute_capability),
            "sms": None if device.sms == NONE else device.sms,
            "memory_bytes": None if device.memory_bytes == NONE else device.memory_bytes,
        }
        for device in trace.devices
    ]
    header["device_order"] = [int(device) for device in profile.device_order]
    return header


def _cells(profile: Profile, columns: _Columns) -> None:
    iterations = profile.iterations
    columns.add("iteration.start", iterations.start, "delta")
    columns.add("iteration.end", iterations.end, "delta")
    columns.add("iteration.until", iterations.until, "delta")
    columns.add("iteration.first", iterations.first, "delta")
    columns.add("busy.inside", np.rint(profile.busy).astype(np.int64).ravel())
    _busy(profile, columns)
    for group, sums in (
        ("cell", profile.cells),
        ("opcell", profile.op_cells),
        ("modulecell", profile.module_cells),
    ):
        for column in fields(sums):
            values = getattr(sums, column.name)
            if column.name in ("iteration", "op", "kernel", "device", "module"):
                columns.add(f"{group}.{column.name}", values, "delta")
            elif spread := re.fullmatch("(?:(.+)_)?(?:shortest|longest)", column.name):
                # As the distance to the mean: 0 in all cells of one call, and they are many.
                columns.add(
                    f"{group}.{column.name}", values - getattr(sums, spread[1] or "total") // sums.calls, "signed"
                )
            else:
                columns.add(f"{group}.{column.name}", values, "signed")


def _busy(profile: Profile, columns: _Columns) -> None:
    """The busy time of any range of iterations is the difference of two of these."""
    gpu, iterations = profile.trace.gpu, profile.iterations
    unions = [union(gpu.start[mine], gpu.end[mine]) for mine in (gpu.device == one for one in profile.device_order)]
    columns.add("device.busy", np.array([one.length for one in unions], np.int64))
    columns.add("device.span", np.array([one.ends[-1] - one.starts[0] for one in unions], np.int64))
    for name, times in (("first", iterations.first), ("until", np.maximum(iterations.first, iterations.until))):
        before = np.array([one.until(times) for one in unions], np.int64).reshape(len(unions), times.size)
        columns.add(f"busy.{name}", np.ascontiguousarray(before.T).ravel())


def _op_rows(profile: Profile) -> Ints:
    """Rows of Trace.ops that a page shows, by thread, outer ranges before the ranges inside them."""
    ops = profile.trace.ops
    rows = np.flatnonzero(ops.kind != OpKind.PYTHON)
    # Ties as trace/model breaks them: of two ranges with the same times the outer one is what the program named.
    outer = np.array([2, 0, 1, 3], np.int8)[ops.kind[rows]]
    order = np.lexsort((ops.external[rows], outer, -ops.end[rows], ops.start[rows], ops.thread[rows]))
    return np.asarray(rows[order])


def _launching(profile: Profile, rows: Ints) -> Ints:
    """Of some ranges those with a name of which any launched GPU work, itself or by what is inside, or annotations.

    By name and not by range: of a name either all calls are there or none, so that it can be counted and be a key op.
    """
    ops, parent = profile.trace.ops, profile.ranges.parent
    found = np.zeros(ops.start.size, np.bool_)
    front = np.unique(profile.gpu.instance)
    front = front[front >= 0]
    while front.size:  # once a level of nesting
        found[front] = True
        front = np.unique(parent[front])
        front = front[front >= 0]
        front = front[~found[front]]
    names = np.zeros(len(profile.trace.names), np.bool_)
    names[ops.name[found]] = True
    return np.asarray(rows[names[ops.name[rows]] | (ops.kind[rows] == OpKind.ANNOTATION)])


def _kernels(profile: Profile, ops: Ints, columns: _Columns, header: dict[str, Any]) -> None:
    """By stream, then by time: so the gap to the event before is small."""
    gpu, calls, links = profile.trace.gpu, profile.trace.calls, profile.gpu
    if not gpu.start.size:
        return
    order = np.lexsort((gpu.end, gpu.start, gpu.stream, gpu.device))
    device, stream = gpu.device[order], gpu.stream[order]
    new = np.flatnonzero((np.diff(device) != 0) | (np.diff(stream) != 0)) + 1
    first = np.concatenate(([0], new))
    header["lanes"] = [[int(device[row]), int(stream[row])] for row in first]
    lane = np.zeros(order.size, np.int64)
    lane[new] = 1
    start, end = gpu.start[order], gpu.end[order]
    before = np.concatenate(([0], end[:-1]))
    before[first] = 0
    columns.add("kernel.lane", np.cumsum(lane))
    columns.add("kernel.gap", start - before, "signed")
    columns.add("kernel.duration", end - start)
    columns.add("kernel.kernel", links.kernel[order])
    columns.add("kernel.iteration", links.iteration[order], "delta")
    call = links.call[order]
    called = call >= 0
    # Without a call the time of the call before: the column stays smooth, "called" says that it means nothing.
    at = np.maximum.accumulate(np.where(called, np.arange(order.size), 0))
    columns.add("kernel.called", called.astype(np.int64))
    columns.add("kernel.call", np.where(called[at], calls.start[call[at]], 0) if calls.start.size else at * 0, "delta")
    place = np.full(profile.trace.ops.start.size + 1, NONE, np.int64)
    place[ops] = np.arange(ops.size)
    instance = place[links.instance[order]]
    columns.add("kernel.instance", instance, "delta")
    # Its op is that of the range around its launch, where that range is in the page.
    told = np.where(instance >= 0, np.append(profile.ranges.op, NONE)[links.instance[order]], NO_OP)
    columns.add("kernel.op", links.op[order] - told, "signed")
    columns.add("kernel.bytes", np.clip(gpu.bytes[order], 0, MOST))
    shape = np.concatenate((gpu.grid, gpu.block, gpu.registers[:, None], gpu.shared[:, None]), axis=1)[order]
    launches, launch = _distinct(shape)
    header["launches"] = launches.tolist()
    columns.add("kernel.launch", launch)
    _graphs(profile, columns)


def _graphs(profile: Profile, columns: _Columns) -> None:
    """API calls that launched a CUDA graph outside of every op: they are rows of the ops themselves."""
    links, calls = profile.gpu, profile.trace.calls
    events = np.flatnonzero((links.instance < 0) & (links.op != NO_OP) & (links.call >= 0))
    call, first = np.unique(links.call[events], return_index=True)
    if call.size:
        columns.add("graph.op", links.op[events[first]])
        columns.add("graph.start", calls.start[call], "delta")
        columns.add("graph.duration", calls.end[call] - calls.start[call])


def _distinct(rows: Ints) -> tuple[Ints, Ints]:
    """The different rows of a table, and for each row of it which one it is."""
    code = np.zeros(len(rows), np.int64)
    for values in rows.T:
        _, inverse = np.unique(values, return_inverse=True)
        _, code = np.unique(code * (int(inverse.max()) + 1) + inverse, return_inverse=True)
    _, first = np.unique(code, return_index=True)
    return rows[first], code


def _ops(profile: Profile, rows: Ints, columns: _Columns, header: dict[str, Any], texts: _Texts) -> None:
    ops, links = profile.trace.ops, profile.ranges
    header["threads"] = [texts(thread.label) for thread in profile.trace.threads]
    # What it is: a row of the ops, or a name behind them.
    names, inverse = np.unique(ops.name[rows], return_inverse=True)
    header["names"] = [texts(profile.trace.names[name]) for name in names]
    row = links.op[rows]
    columns.add("op.what", np.where(row >= 0, row, len(profile.ops) + inverse))
    columns.add("op.kind", ops.kind[rows])
    columns.add("op.thread", ops.thread[rows])
    columns.add("op.start", ops.start[rows], "delta")
    columns.add("op.duration", ops.end[rows] - ops.start[rows])
    columns.add("op.iteration", links.iteration[rows], "delta")
    if links.cpu_self.size:
        length = ops.end[rows] - ops.start[rows]
        cpu_self = np.where(row >= 0, links.cpu_self[rows], length)
        # The page knows the ops inside of an op, as far as it has them: what they take is not told again.
        columns.add("op.children", length - cpu_self - _inside(profile, rows), "signed")
        # Most ops launch nothing: 0 then.
        columns.add("op.calls", np.where(row >= 0, cpu_self - links.overhead[rows], 0), "signed")
        columns.add("op.gpu_idle", links.gpu_idle[rows], "signed")


def _inside(profile: Profile, rows: Ints) -> Ints:
    """Of each of some ranges the time of the ops among them that lie directly in it, no longer than it itself."""
    ops, links = profile.trace.ops, profile.ranges
    place = np.full(ops.start.size + 1, NONE, np.int64)
    is_op = rows[links.op[rows] >= 0]
    place[is_op] = np.arange(is_op.size)
    # The op around each: the nearest range around it that is an op.
    around = links.parent[is_op]
    while (wrong := np.flatnonzero((around >= 0) & (links.op[around] < 0))).size:
        around[wrong] = links.parent[around[wrong]]
    inner = np.flatnonzero((around >= 0) & (place[around] >= 0))
    outer = around[inner]
    time = np.minimum(ops.end[is_op[inner]], ops.end[outer]) - ops.start[is_op[inner]]
    total = np.zeros(ops.start.size, np.int64)
    np.add.at(total, outer, time)
    return np.asarray(total[rows])


def _memory(profile: Profile, columns: _Columns) -> None:
    memory = profile.trace.memory
    order = np.lexsort((memory.time, memory.device))
    columns.add("memory.device", memory.device[order], "delta")
    columns.add("memory.time", memory.time[order], "delta")
    for name in ("bytes", "allocated", "reserved"):
        columns.add(f"memory.{name}", np.clip(getattr(memory, name)[order], -MOST, MOST), "delta")
