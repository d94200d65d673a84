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

from gpuprep.trace.columns import NONE, Format, Ints, OpKind, give_back
from gpuprep.trace.model.groups import Groups, joined, narrow, parts
from gpuprep.trace.model.intervals import CHUNK, of_ops, union
from gpuprep.trace.profile import NO_OP, Profile
from gpuprep.trace.reading.nsys import DOMAIN
from gpuprep.untrusted.plaintext import one_line

VERSION = 1
LEVEL = 6  # of deflate
MAGIC = b"GPTR"
# Bytes of the packed data. In the page they grow by a third (base64): with its scripts 3 MB and 15 MB.
ROOM = 10_850_000
SMALL_ROOM = 1_800_000
SERVED_ROOM = 4 * ROOM  # of a page that a server on this machine sends: size matters less than in a mail
SMALL_EVENTS = 100_000  # a profile of fewer events gets the small room
SAMPLE = 1_000_000  # single ops: where these alone do not fit, all are not tried, which takes 1 GB of 10 million
MOST = 2**52  # of sizes in bytes, which a profile may invent: what JavaScript counts exactly
_NAME_LETTERS = 10_000  # of one name
_STACK_FRAMES = 64
_MOST_DOMAINS = 200


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
        # In parts: of ten millions of rows each step in 64 bits has 80 MB.
        begins = range(0, len(values), CHUNK)
        most = [0, *(int(_coded(name, values, begin, coding).max()) for begin in begins)]
        planes = max(1, (max(most).bit_length() + 7) // 8)
        made = np.empty((planes, len(values)), np.uint8)
        for begin in begins:
            numbers = _coded(name, values, begin, coding)
            made[:, begin : begin + CHUNK] = numbers.astype("<u8").view(np.uint8).reshape(-1, 8)[:, :planes].T
        data = made.tobytes()
        del made
        self.places[name] = [self.size, len(values), planes, coding]
        self.pieces.append(data)
        self.size += len(data)


def _coded(name: str, values: Ints, begin: int, coding: str) -> Ints:
    """A part of a column as its coding has it: no number is below 0."""
    numbers: Ints = np.asarray(values[begin : begin + CHUNK], dtype=np.int64)
    if coding == "delta":
        numbers = np.diff(numbers, prepend=np.int64(values[begin - 1] if begin else 0))
    if coding != "raw":
        numbers = (numbers << 1) ^ (numbers >> 63)
    assert numbers.min() >= 0, name
    return numbers


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


def room_of(profile: Profile) -> int:
    """Bytes that a page in a file has for this profile."""
    return SMALL_ROOM if profile.trace.gpu.start.size + profile.trace.ops.start.size < SMALL_EVENTS else ROOM


def pack(profile: Profile, *, room: int | None = None) -> Packed:
    """What fits into `room` bytes: the sums always, then the single events. What does not fit is named in `left_out`.

    The steps are tried in order until one fits. The last has no single events: its figures are complete all the same.
    """
    room = room or room_of(profile)
    rows = _op_rows(profile)
    launching = _launching(profile, rows)
    named = rows[profile.trace.ops.kind[rows] != OpKind.OP]
    packed, squeeze, least = Packed(b"", ()), _Gzip(), 0
    for kernels, ops, memory in (
        (True, rows, True),
        (True, launching, True),
        (True, launching, False),
        (True, named, False),
        (False, named[:0], False),
    ):
        if len(ops) > SAMPLE:
            some = len(_pack(profile, squeeze, kernels, ops[:SAMPLE], memory, len(rows), served=False).data)
            if some > room:
                least = some * len(ops) // SAMPLE  # about
                continue
        packed = _pack(profile, squeeze, kernels, ops, memory, len(rows), served=least <= SERVED_ROOM)
        if len(packed.data) <= room:
            break
        least = len(packed.data)  # each step needs less room than the one before
    return packed


def _pack(
    profile: Profile, squeeze: _Gzip, kernels: bool, ops: Ints, memory: bool, all_ops: int, *, served: bool
) -> Packed:
    """`ops`: rows of Trace.ops, in the order of _op_rows. `served`: a page that a server sends has room for more."""
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
    header |= {"columns": columns.places, "left_out": left_out, "all_ops": all_ops == len(ops), "served": served}
    header["texts"] = texts.safe()
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
    unions = [
        union(gpu.start[mine], gpu.end[mine]) for mine in (gpu.device == device for device in profile.device_order)
    ]
    columns.add("device.busy", np.array([busy.length for busy in unions], np.int64))
    columns.add("device.span", np.array([busy.ends[-1] - busy.starts[0] for busy in unions], np.int64))
    for name, times in (("first", iterations.first), ("until", np.maximum(iterations.first, iterations.until))):
        before = np.array([busy.until(times) for busy in unions], np.int64).reshape(len(unions), times.size)
        columns.add(f"busy.{name}", np.ascontiguousarray(before.T).ravel())


def _op_rows(profile: Profile) -> Ints:
    """Rows of Trace.ops that a page shows, by thread, outer ranges before the ranges inside them."""
    ops = profile.trace.ops
    return of_ops(ops, np.flatnonzero(ops.kind != OpKind.PYTHON).astype(np.int32)).rows


def _launching(profile: Profile, rows: Ints) -> Ints:
    """Of some ranges those with a name of which any launched GPU work, itself or by what is inside, or annotations.

    By name and not by range: of a name either all calls are there or none, so that it can be counted and be a key op.
    """
    ops, parent = profile.trace.ops, profile.ranges.parent
    launching = np.zeros(ops.start.size, np.bool_)
    front = np.unique(profile.gpu.instance)
    front = front[front >= 0]
    while front.size:  # once a level of nesting
        launching[front] = True
        front = np.unique(parent[front])
        front = front[front >= 0]
        front = front[~launching[front]]
    names = np.zeros(len(profile.trace.names), np.bool_)
    names[ops.name[launching]] = True
    return np.asarray(rows[names[ops.name[rows]] | (ops.kind[rows] == OpKind.ANNOTATION)])


def _kernels(profile: Profile, ops: Ints, columns: _Columns, header: dict[str, Any]) -> None:
    """By stream, then by time: so the gap to the event before is small."""
    gpu, calls, links = profile.trace.gpu, profile.trace.calls, profile.gpu
    if not gpu.start.size:
        return
    order = np.lexsort((gpu.end, gpu.start, gpu.stream, gpu.device)).astype(np.int32)
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
    del device, stream, lane, start, end, before  # of millions of events each has tens of MB
    columns.add("kernel.kernel", links.kernel[order])
    columns.add("kernel.iteration", links.iteration[order], "delta")
    call = links.call[order]
    called = call >= 0
    # Without a call the time of the call before: the column stays smooth, "called" says that it means nothing.
    at = np.maximum.accumulate(np.where(called, np.arange(order.size), 0))
    columns.add("kernel.called", called.astype(np.int64))
    columns.add("kernel.call", np.where(called[at], calls.start[call[at]], 0) if calls.start.size else at * 0, "delta")
    del call, called, at
    place = np.full(profile.trace.ops.start.size + 1, NONE, np.int32)
    place[ops] = np.arange(ops.size)
    instance = place[links.instance[order]]
    del place
    columns.add("kernel.instance", instance, "delta")
    # Its op is that of the range around its launch, where that range is in the page.
    of_instance = np.where(instance >= 0, np.append(profile.ranges.op, NONE)[links.instance[order]], NO_OP)
    columns.add("kernel.op", links.op[order] - of_instance, "signed")
    columns.add("kernel.bytes", np.clip(gpu.bytes[order], 0, MOST))
    # The different launches, and which of them each event is.
    shape = (*gpu.grid.T, *gpu.block.T, gpu.registers, gpu.shared)
    launches = Groups(*shape)
    header["launches"] = np.stack([each[launches.first] for each in shape], axis=1).tolist()
    columns.add("kernel.launch", launches.of[order])
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


def _ops(profile: Profile, rows: Ints, columns: _Columns, header: dict[str, Any], texts: _Texts) -> None:
    ops, links = profile.trace.ops, profile.ranges
    header["threads"] = [texts(thread.label) for thread in profile.trace.threads]
    # What it is: a row of the ops, or a name behind them.
    names, inverse = np.unique(ops.name[rows], return_inverse=True)
    header["names"] = [texts(profile.trace.names[name]) for name in names]
    row = links.op[rows]
    columns.add("op.what", np.where(row >= 0, row, len(profile.ops) + inverse))
    del inverse
    columns.add("op.kind", ops.kind[rows])
    columns.add("op.thread", ops.thread[rows])
    columns.add("op.start", ops.start[rows], "delta")
    columns.add("op.duration", ops.end[rows] - ops.start[rows])
    columns.add("op.iteration", links.iteration[rows], "delta")
    _domains(profile, rows, columns, header, texts)
    if links.cpu_self.size:
        give_back()
        inside = _inside(profile, rows)  # first, because it needs the most memory
        children: list[Ints] = []
        calls: list[Ints] = []
        for part in parts(rows.size):
            some, is_op = rows[part], row[part] >= 0
            length = ops.end[some] - ops.start[some]
            cpu_self = np.where(is_op, links.cpu_self[some], length)
            # The page knows the ops inside of an op, as far as it has them: what they take is not written again.
            children.append(narrow(length - cpu_self - inside[part]))
            calls.append(narrow(np.where(is_op, cpu_self - links.overhead[some], 0)))
        del inside
        columns.add("op.children", joined(children), "signed")
        columns.add("op.calls", joined(calls), "signed")  # most ops launch nothing: 0 then
        columns.add("op.gpu_idle", links.gpu_idle[rows], "signed")


def _domains(profile: Profile, rows: Ints, columns: _Columns, header: dict[str, Any], texts: _Texts) -> None:
    """Of each range its NVTX domain, where an export of Nsight Systems has others than the default one."""
    if profile.trace.format is not Format.NSYS:
        return
    of = [dict(argument.other).get(DOMAIN, "") for argument in profile.trace.arguments] + [""]
    names = sorted({*of, ""})[:_MOST_DOMAINS]
    if len(names) == 1:
        return
    place = {name: number for number, name in enumerate(names)}
    header["domains"] = [texts(name) for name in names]
    columns.add("op.domain", np.array([place.get(name, 0) for name in of])[profile.trace.ops.arguments[rows]])


def _inside(profile: Profile, rows: Ints) -> Ints:
    """Of each of some ranges the time of the ops among them that lie directly in it, no longer than it itself."""
    ops, links = profile.trace.ops, profile.ranges
    among = np.zeros(ops.start.size, np.bool_)
    is_op = rows[links.op[rows] >= 0]
    among[is_op] = True
    total = np.zeros(ops.start.size, np.int64)
    for begin in range(0, is_op.size, CHUNK):
        some = is_op[begin : begin + CHUNK]
        # The op around each: the nearest range around it that is an op.
        around = links.parent[some]
        while (wrong := np.flatnonzero((around >= 0) & (links.op[around] < 0))).size:
            around[wrong] = links.parent[around[wrong]]
        inner = np.flatnonzero((around >= 0) & among[around])
        outer = around[inner]
        np.add.at(total, outer, np.minimum(ops.end[some[inner]], ops.end[outer]) - ops.start[some[inner]])
    return joined([narrow(total[rows[part]]) for part in parts(rows.size)])


def _memory(profile: Profile, columns: _Columns) -> None:
    memory = profile.trace.memory
    order = np.lexsort((memory.time, memory.device))
    columns.add("memory.device", memory.device[order], "delta")
    columns.add("memory.time", memory.time[order], "delta")
    for name in ("bytes", "allocated", "reserved"):
        columns.add(f"memory.{name}", np.clip(getattr(memory, name)[order], -MOST, MOST), "delta")
