"""Exports of Nsight Systems (nsys export --type sqlite) as columns.

Tables are made only where something was recorded, so every one may be missing. Read-only, tables and columns by name,
never a view, and never an environment: of TARGET_INFO_SYSTEM_ENV only the rows named here are asked for.
Source of tables and numbers: SQLite Schema Reference of the Nsight Systems guide, schema 3.28.

torch.autograd.profiler.emit_nvtx writes `aten::mm, seq = 5, op_id = 17, sizes = [[64, 128], [128, 32]]`.
"""

from __future__ import annotations

import re
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gpuprep.errors import UsageError
from gpuprep.trace.columns import (
    NONE,
    Arguments,
    Calls,
    Device,
    Format,
    GpuEvents,
    GpuKind,
    MemoryEvents,
    OpKind,
    Ops,
    Thread,
    Trace,
)
from gpuprep.trace.reading import sanity
from gpuprep.trace.reading.builders import LONGEST_NAME, ArgumentsTable, Names, Table, whole_numbers
from gpuprep.trace.reading.events import sizes_of
from gpuprep.untrusted.plaintext import one_line

DOMAIN = "NVTX domain"  # key of Arguments.other
_VERSION = re.compile(r"_v\d{4,}(?:_ptsz|_ptds)?$")
_DETAILS = re.compile(r", (?:seq|op_id|sizes|input_op_ids) = ")
_SEQUENCE = re.compile(r", seq = (\d{1,18})(?=,|$)")
_SIZES = re.compile(r", sizes = (\[.*?\])(?=, input_op_ids|$)")
_OPERATOR = re.compile(r"[a-zA-Z_][\w.]{0,60}::\w|autograd::engine::evaluate_function: ")


class Range(NamedTuple):
    name: str
    is_op: bool
    sequence: int
    sizes: str  # as in the text, "" without
    domain: str


def call_name(name: str) -> str:
    """cudaLaunchKernel of cudaLaunchKernel_v7000."""
    return _VERSION.sub("", name)


def process_of(tid: object) -> int | None:
    """Of a global thread id."""
    return tid >> 24 if isinstance(tid, int) else None


def domain_name(tid: object, number: object, names: Mapping[tuple[object, object], str]) -> str:
    """The name of a range's domain; "" for the default one, and "domain 3" where the export does not name it."""
    if not isinstance(number, int) or not number:
        return ""
    return names.get((process_of(tid), number)) or names.get((None, number)) or f"domain {number}"


def range_of(text: str, domain: str) -> Range:
    details = _DETAILS.search(text)
    if not details:
        return Range(text, bool(_OPERATOR.match(text)) and not domain, NONE, "", domain)
    sequence, sizes = _SEQUENCE.search(text), _SIZES.search(text)
    return Range(
        text[: details.start()], True, int(sequence[1]) if sequence else NONE, sizes[1] if sizes else "", domain
    )


def arguments_row_of(push_pop: Range, table: ArgumentsTable) -> int:
    """Index of the range's arguments in `table`, NONE where it has none."""
    if not push_pop.sizes and not push_pop.domain:
        return NONE
    key = (push_pop.sizes, push_pop.domain)
    place = table.find(key)
    if place is not None:
        return place
    other = ((DOMAIN, push_pop.domain),) if push_pop.domain else ()
    return table.add(key, Arguments(shapes=sizes_of(push_pop.sizes.encode()), other=other))


KNOWN_SCHEMA = (3, 28)
_ROWS = 50_000  # rows fetched at once
_MOST_VALUE = 200
_MOST_DEVICES = 1024
_MOST_DOMAINS = 1000
_ASKED = 500  # ids in one question
# Property of the machine ► its name here. Others are never asked for: DeviceEnvironment holds secrets.
PROPERTIES = {
    "CpuDescription": "cpu",
    "NvDriverVersion": "driver",
    "CudaDriverVersion": "cuda_driver_version",
    "OsDescription": "os",
}
KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
COPIES = "CUPTI_ACTIVITY_KIND_MEMCPY"
FILLS = "CUPTI_ACTIVITY_KIND_MEMSET"
CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
RANGES = "NVTX_EVENTS"
_COPY = {1: "HtoD", 2: "DtoH", 3: "HtoA", 4: "AtoH", 5: "AtoA", 6: "AtoD", 7: "DtoA", 8: "DtoD", 9: "HtoH", 10: "PtoP"}
_MEMORY = {0: "Pageable", 1: "Pinned", 2: "Device", 3: "Array", 4: "Managed", 5: "Device", 6: "Managed"}
_OTHER = "Unknown"
_PUSH_POP, _START_END, _DOMAIN = 59, 60, 75
_GPU_COLUMNS = ("start", "end", "deviceId", "streamId")

# Of damaged files; sqlite3 cannot even decode what it says of some.
_FAULTS = (sqlite3.Error, UnicodeDecodeError)

Array = np.ndarray[Any, Any]


class Reader:
    """Reads one export. `name` is what errors and Trace.file say."""

    def __init__(self, path: Path, name: str = "") -> None:
        self.path = path
        self.name = name or path.name
        self.notes: Counter[str] = Counter()
        self.names = Names()
        self.arguments = ArgumentsTable()
        self.strings: dict[int, str] = {}
        times = {"start": np.int64, "end": np.int64}
        self.gpu = Table(
            **times, kind=np.uint8, name=np.int32, device=np.int32, stream=np.int64, pid=np.int64, correlation=np.int64,
            external=np.int64, bytes=np.int64, grid=np.int32, block=np.int32, registers=np.int32, shared=np.int32,
            blocks_per_sm=np.float32, occupancy=np.float32, graph_node=np.int64,
        )  # fmt: skip
        self.calls = Table(**times, name=np.int32, tid=np.int64, correlation=np.int64, external=np.int64)
        self.ops = Table(
            **times, kind=np.uint8, name=np.int32, tid=np.int64, external=np.int64, sequence=np.int64,
            forward_thread=np.int64, arguments=np.int32,
        )  # fmt: skip

    def read(self) -> Trace:
        address = self.path.resolve().as_uri() + "?mode=ro&immutable=1"
        try:
            with closing(sqlite3.connect(address, uri=True)) as self.database:
                self.database.text_factory = lambda text: text.decode("utf-8", "replace")
                self.database.execute("PRAGMA trusted_schema = OFF")
                self.database.execute("PRAGMA query_only = ON")
                return self._trace()
        except _FAULTS as error:
            raise UsageError(
                f"{one_line(self.name)}: this SQLite file is damaged or incomplete: {one_line(str(error))}",
                "export it again with nsys export",
            ) from error

    def _trace(self) -> Trace:
        question = "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
        self.tables = {str(name) for (name,) in self.database.execute(question)}
        schema = self._schema()
        if not self.tables & {KERNELS, COPIES, FILLS, CALLS, RANGES, "META_DATA_EXPORT", "StringIds"}:
            raise UsageError(
                f"{one_line(self.name)}: an SQLite file, but no export of Nsight Systems",
                "make one with nsys export --type sqlite FILE.nsys-rep",
            )
        parts = {
            KERNELS: self._kernels,
            COPIES: self._copies,
            FILLS: self._fills,
            CALLS: self._calls,
            RANGES: self._ranges,
        }
        for table, reading in parts.items():
            if table not in self.tables:
                self.notes["nsys_missing_tables"] += 1
                continue
            try:
                reading()
            except (*_FAULTS, _NoColumn):
                self.notes["nsys_unreadable_tables"] += 1
        self._count_others()
        if not self.gpu.rows + self.calls.rows + self.ops.rows:
            raise UsageError(
                f"{one_line(self.name)}: this export of Nsight Systems holds no kernels, CUDA calls or NVTX ranges",
                "record with nsys profile -t cuda,nvtx",
            )
        return self._finished(schema)

    def _schema(self) -> str:
        metadata = dict(self._rows("META_DATA_EXPORT", ("name", "value")))
        self.version = str(metadata.get("EXPORT_PRODUCT_VERSION") or "")[:_MOST_VALUE]
        schema = str(metadata.get("EXPORT_SCHEMA_VERSION") or "")[:_MOST_VALUE]
        numbers = tuple(int(part) for part in schema.split(".")[:2] if part.isdecimal())
        if not numbers:
            self.notes["nsys_no_schema"] += 1
        elif numbers > KNOWN_SCHEMA:
            self.notes["nsys_newer_schema"] += 1
        return schema

    def _columns(self, table: str) -> set[str]:
        """Names of the table's columns; none where it is missing."""
        if table not in self.tables:
            return set()
        return {str(row[1]) for row in self.database.execute(f'PRAGMA table_info("{table}")')}

    def _batches(
        self, table: str, needed: Sequence[str], wanted: Sequence[str], where: str = ""
    ) -> Iterator[list[Any]]:
        """Columns of up to _ROWS rows, those of `wanted` that are missing as NULL; _NoColumn without `needed`."""
        there = self._columns(table)
        if not there.issuperset(needed):
            raise _NoColumn
        # Any value may be a text of any length, in a column of numbers, too; many rows are fetched at once.
        asked = ", ".join(
            f"""CASE WHEN typeof("{column}") IN ('text', 'blob') THEN substr("{column}", 1, {LONGEST_NAME})"""
            f""" ELSE "{column}" END"""
            if column in there
            else "NULL"
            for column in (*needed, *wanted)
        )
        cursor = self.database.execute(f'SELECT {asked} FROM "{table}" {where}')
        while rows := cursor.fetchmany(_ROWS):
            yield list(zip(*rows, strict=True))

    def _rows(self, table: str, columns: Sequence[str], most: int = 10_000, where: str = "") -> list[tuple[Any, ...]]:
        """Rows of a small table; none where it or a column is missing."""
        if not self._columns(table).issuperset(columns):
            return []
        asked = ", ".join(f'substr("{column}", 1, {_MOST_VALUE})' for column in columns)
        return self.database.execute(f'SELECT {asked} FROM "{table}" {where} LIMIT {most}').fetchall()

    def _texts(self, ids: Sequence[Any]) -> list[str]:
        """Texts of StringIds; only those that are asked for, since others hold whole files and outputs of programs."""
        missing = [key for key in set(ids) if isinstance(key, int) and key not in self.strings]
        there = self._columns("StringIds").issuperset(("id", "value"))
        for place in range(0, len(missing), _ASKED):
            some = missing[place : place + _ASKED]
            marks = ",".join("?" * len(some))
            if there:
                question = f"SELECT id, substr(value, 1, {LONGEST_NAME}) FROM StringIds WHERE id IN ({marks})"
                self.strings.update((key, str(text or "")) for key, text in self.database.execute(question, some))
            for key in some:
                self.strings.setdefault(key, f"name {key}")
        return [self.strings[key] if isinstance(key, int) else "" for key in ids]

    def _gpu_rows(self, columns: Sequence[Any], kind: GpuKind, names: Sequence[str], **more: Array) -> None:
        start, end, device, stream, correlation, pid, node = columns
        count = len(start)
        nothing, three = np.full(count, NONE), np.full((count, 3), NONE)
        self.gpu.add(
            **self._times(start, end),
            kind=np.full(count, kind),
            name=self.names.ids(names),
            device=whole_numbers(device, np.int32),
            stream=whole_numbers(stream),
            correlation=whole_numbers(correlation),
            pid=whole_numbers(pid) >> 24,
            external=nothing,
            graph_node=whole_numbers(node),
            blocks_per_sm=np.full(count, np.nan),
            occupancy=np.full(count, np.nan),
            **{
                "bytes": nothing, "grid": three, "block": three, "registers": nothing, "shared": nothing,
                **more,
            },
        )  # fmt: skip

    def _times(self, start: Sequence[Any], end: Sequence[Any]) -> dict[str, Array]:
        begin, until = whole_numbers(start), whole_numbers(end)
        wrong = until < begin
        if wrong.any():
            self.notes["negative_durations"] += int(wrong.sum())
            until = np.maximum(begin, until)
        return {"start": begin, "end": until}

    def _kernels(self) -> None:
        wanted = (
            "correlationId", "globalPid", "graphNodeId", "demangledName", "shortName", "registersPerThread",
            "staticSharedMemory", "dynamicSharedMemory", "gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ",
        )  # fmt: skip
        for columns in self._batches(KERNELS, _GPU_COLUMNS, wanted):
            names, short, registers, static, dynamic = columns[7:12]
            grid = np.stack([whole_numbers(column, np.int32) for column in columns[12:15]], 1)
            block = np.stack([whole_numbers(column, np.int32) for column in columns[15:18]], 1)
            ids = [name if name is not None else other for name, other in zip(names, short, strict=True)]
            shared = np.maximum(whole_numbers(static), 0) + np.maximum(whole_numbers(dynamic), 0)
            if all(value is None for value in static):
                shared = np.full(len(shared), NONE)
            self._gpu_rows(
                columns[:7],
                GpuKind.KERNEL,
                self._texts(ids),
                grid=grid,
                block=block,
                registers=whole_numbers(registers, np.int32),
                shared=np.clip(shared, NONE, 2**31 - 1),
            )

    def _copies(self) -> None:
        wanted = ("correlationId", "globalPid", "graphNodeId", "bytes", "copyKind", "srcKind", "dstKind")
        for columns in self._batches(COPIES, _GPU_COLUMNS, wanted):
            sizes, kinds, sources, targets = columns[7:]
            names = [
                f"Memcpy {_COPY.get(kind, 'other')} ({_MEMORY.get(source, _OTHER)} -> {_MEMORY.get(target, _OTHER)})"
                for kind, source, target in zip(kinds, sources, targets, strict=True)
            ]
            self._gpu_rows(columns[:7], GpuKind.MEMCPY, names, bytes=whole_numbers(sizes))

    def _fills(self) -> None:
        wanted = ("correlationId", "globalPid", "graphNodeId", "bytes", "memKind")
        for columns in self._batches(FILLS, _GPU_COLUMNS, wanted):
            names = [f"Memset ({_MEMORY.get(kind, _OTHER)})" for kind in columns[8]]
            self._gpu_rows(columns[:7], GpuKind.MEMSET, names, bytes=whole_numbers(columns[7]))

    def _calls(self) -> None:
        for columns in self._batches(CALLS, ("start", "end", "globalTid"), ("correlationId", "nameId")):
            start, end, tid, correlation, name = columns
            self.calls.add(
                **self._times(start, end),
                name=self.names.ids([call_name(text) for text in self._texts(name)]),
                tid=whole_numbers(tid),
                correlation=whole_numbers(correlation),
                external=np.full(len(start), NONE),
            )

    def _ranges(self) -> None:
        domains = self._domains()
        where = f"WHERE eventType IN ({_PUSH_POP}, {_START_END})" if "eventType" in self._columns(RANGES) else ""
        for columns in self._batches(RANGES, ("start", "end", "globalTid"), ("text", "textId", "domainId"), where):
            ended = [place for place, end in enumerate(columns[1]) if end is not None]
            if len(ended) < len(columns[1]):
                self.notes["nsys_open_ranges"] += len(columns[1]) - len(ended)
                columns = [[column[place] for place in ended] for column in columns]
                if not ended:
                    continue
            start, end, tid, text, text_id, domain = columns
            registered = self._texts(text_id)
            ranges = [
                range_of(str(own)[:LONGEST_NAME] if own is not None else other, domain_name(thread, number, domains))
                for own, other, thread, number in zip(text, registered, tid, domain, strict=True)
            ]
            self.ops.add(
                **self._times(start, end),
                kind=np.array([OpKind.OP if span.is_op else OpKind.ANNOTATION for span in ranges], np.uint8),
                name=self.names.ids([span.name for span in ranges]),
                tid=whole_numbers(tid),
                external=np.full(len(start), NONE),
                sequence=whole_numbers([span.sequence for span in ranges]),
                forward_thread=np.full(len(start), NONE),
                arguments=np.array([arguments_row_of(span, self.arguments) for span in ranges], np.int32),
            )

    def _domains(self) -> dict[tuple[Any, Any], str]:
        """Names of NVTX domains by process and domainId: each process counts its own domains."""
        if not self._columns(RANGES).issuperset(("eventType", "domainId")):
            return {}
        where = f"WHERE eventType = {_DOMAIN} LIMIT {_MOST_DOMAINS}"
        domains = {}
        for number, text, text_id, tid in (
            row
            for columns in self._batches(RANGES, ("domainId",), ("text", "textId", "globalTid"), where)
            for row in zip(*columns, strict=True)
        ):
            name = str(text)[:_MOST_VALUE] if text is not None else self._texts([text_id])[0][:_MOST_VALUE]
            if number and name:
                domains[process_of(tid), number] = name
        return domains

    def _count_others(self) -> None:
        for table, note in ((GRAPHS, "nsys_graphs_whole"), ("DIAGNOSTIC_EVENT", "nsys_diagnostics")):
            if table in self.tables:
                # Severity 2 is a warning, 3 an error; see ENUM_DIAGNOSTIC_SEVERITY_LEVEL.
                serious = "WHERE severity IN (2, 3)" if table != GRAPHS and "severity" in self._columns(table) else ""
                (count,) = self.database.execute(f'SELECT count(*) FROM "{table}" {serious}').fetchone()
                if count and (serious or table == GRAPHS):
                    self.notes[note] += count

    def _finished(self, schema: str) -> Trace:
        gpu, calls, ops = (table.columns() for table in (self.gpu, self.calls, self.ops))
        memory: dict[str, Array] = {
            "time": np.empty(0, np.int64), "device": np.empty(0, np.int32), "bytes": np.empty(0, np.int64),
            "allocated": np.empty(0, np.int64), "reserved": np.empty(0, np.int64),
        }  # fmt: skip
        threads, processes = _threads(gpu, calls, ops)
        zero = sanity.clean(gpu, calls, ops, memory, self.notes)
        sanity.count_missing(gpu, calls, self.notes)
        if not (ops["kind"] == OpKind.OP).any():
            self.notes["nsys_no_ops"] += 1
        machine = {PROPERTIES[name]: value for name, value in self._properties()}
        if self.version:
            machine["nsys_version"] = self.version
        return Trace(
            file=self.name,
            format=Format.NSYS,
            generation=schema,
            size=self.path.stat().st_size,
            zero_ns=self._begin(zero),
            names=self.names.texts,
            processes=processes,
            threads=threads,
            devices=self._devices(),
            gpu=GpuEvents(**gpu),
            calls=Calls(**calls),
            ops=Ops(**ops),
            memory=MemoryEvents(**memory),
            arguments=self.arguments.rows,
            backward_of=np.empty((0, 2), np.int32),
            switches={"record_shapes": True} if any(row.shapes for row in self.arguments.rows) else {},
            machine=machine,
            notes=dict(self.notes),
        )

    def _properties(self) -> list[tuple[str, str]]:
        names = ", ".join(f"'{name}'" for name in PROPERTIES)
        rows = self._rows("TARGET_INFO_SYSTEM_ENV", ("name", "value"), where=f"WHERE name IN ({names})")
        return [(name, str(value)) for name, value in rows if name in PROPERTIES and value]

    def _begin(self, zero: int) -> int:
        rows = self._rows("TARGET_INFO_SESSION_START_TIME", ("utcEpochNs",), most=1)
        return int(rows[0][0]) + zero if rows and str(rows[0][0]).isdecimal() else NONE

    def _devices(self) -> list[Device]:
        """GPUs by their CUDA number, which TARGET_INFO_CUDA_DEVICE tells, else the order of TARGET_INFO_GPU."""
        cuda = {gpu: number for gpu, number in self._rows("TARGET_INFO_CUDA_DEVICE", ("gpuId", "cudaId")) if gpu}
        wanted = ("name", "smCount", "totalMemory", "computeMajor", "computeMinor")
        if "TARGET_INFO_GPU" not in self.tables:
            return []
        devices = []
        try:
            for columns in self._batches("TARGET_INFO_GPU", ("id",), wanted):
                for key, name, sms, memory, major, minor in zip(*columns, strict=True):
                    known = isinstance(major, int) and isinstance(minor, int)
                    devices.append(
                        Device(
                            index=_number(cuda.get(str(key), key)),
                            name=str(name or "")[:_MOST_VALUE],
                            compute_capability=f"{major}.{minor}" if known else "",
                            sms=_number(sms),
                            memory_bytes=_number(memory),
                        )
                    )
        except (*_FAULTS, _NoColumn):
            self.notes["nsys_unreadable_tables"] += 1
        return devices[:_MOST_DEVICES]


class _NoColumn(Exception):
    """A table has not the columns that it must have."""


def _threads(gpu: dict[str, Array], calls: dict[str, Array], ops: dict[str, Array]) -> tuple[list[Thread], list[str]]:
    """Puts thread and process columns in place of the global ids: process 24 bits from bit 24, thread the lowest 24."""
    tids, pids = (calls.pop("tid"), ops.pop("tid")), gpu.pop("pid")
    callers = np.unique(tids[0] >> 24)
    if len(callers) == 1:  # an export may not tell the process of its kernels; where one process calls, it is that
        pids = np.where(pids < 0, callers[0], pids)
    known, place = np.unique(np.concatenate(tids), return_inverse=True)
    processes, process = np.unique(np.concatenate([known >> 24, pids]), return_inverse=True)
    of_thread = process[: len(known)]
    calls["thread"], ops["thread"] = (part.astype(np.int32) for part in np.split(place, [len(tids[0])]))
    for columns in (calls, ops):
        columns["process"] = of_thread[columns["thread"]].astype(np.int32)
    gpu["process"] = process[len(known) :].astype(np.int32)
    threads = [Thread(int(owner), str(int(number) & 0xFFFFFF)) for number, owner in zip(known, of_thread, strict=True)]
    return threads, [str(int(number) & 0xFFFFFF) for number in processes]


def _number(value: Any) -> int:
    if isinstance(value, str) and value.isdecimal():
        value = int(value[:19])
    return value if isinstance(value, int) and 0 <= value < 2**62 else NONE
