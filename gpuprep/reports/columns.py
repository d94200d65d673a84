"""Several GPUs side by side: a row a figure, a column a GPU, the lowest of each row marked. Never judges."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from gpuprep.records import RunRecord, Status
from gpuprep.records.evidence import Figure
from gpuprep.records.findings import findings_of
from gpuprep.reports import figures, measured
from gpuprep.reports.figures import Shown
from gpuprep.reports.measured import Gemm, Gpu
from gpuprep.reports.readings import NOTHING, figure, known

MOST = 32  # GPUs; a record with more is shown GPU by GPU
LOWEST = "↓"  # marks the lowest of a row
ALIKE_PERCENT = 99.5  # of the highest: less than what two measurements of one GPU differ by
MARKED = f"{LOWEST}: the lowest of its row"
LEGEND = f"{MARKED}; last column: the lowest in per cent of the highest"


@dataclass(frozen=True)
class Row:
    name: str  # "bf16 8192³"
    unit: str  # "TFLOPS"
    values: tuple[Figure | None, ...]  # a GPU each
    marked: bool = True  # whether less is worse

    @property
    def cells(self) -> list[str]:
        return [figure(value) for value in self.values]

    @property
    def low(self) -> list[bool]:
        """Which are the lowest; none where all are the same to half a per cent."""
        if not self.marked or self.share is None or self.share > ALIKE_PERCENT:
            return [False] * len(self.values)
        return [cell == figure(min(self.read)) for cell in self.cells]

    @property
    def share(self) -> float | None:
        """The lowest in per cent of the highest."""
        read = self.read
        return 100.0 * min(read) / max(read) if len(read) > 1 and max(read) > 0 else None

    @property
    def read(self) -> list[float]:
        return [number for value in self.values if (number := known(value)) is not None]

    @property
    def rank(self) -> tuple[int, float]:
        return len(self.read), max(self.read, default=0.0)

    @property
    def is_empty(self) -> bool:
        """No GPU has anything to show: neither a number nor an impossible figure."""
        return all(cell == NOTHING for cell in self.cells)


@dataclass(frozen=True)
class Part:
    title: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Columns:
    """`labels` is empty where fewer than two GPUs were measured."""

    labels: tuple[str, ...]
    states: tuple[Status | None, ...]  # the worst of the checks' findings on each GPU
    first: tuple[Row, ...]  # what people look for first
    parts: tuple[Part, ...]  # everything


def columns(record: RunRecord) -> Columns:
    gpus = _gpus(record)
    if not 2 <= len(gpus) <= MOST:
        return Columns((), (), (), ())
    labels = tuple(gpu.label for gpu in gpus)
    products, timed = _products(record, labels)
    moved = list(_moved(record, labels))
    video = list(_video(record, labels))
    parts = (
        Part("Matrix products", tuple(products)),
        Part("Clock and power of these", tuple(_load(timed, labels))),
        Part("All GPUs at once", tuple(_together(record, labels))),
        Part("Memory and links", tuple(moved)),
        Part("From the GPU above", tuple(_peers(record, labels))),
        Part("Throughput", tuple(video)),
    )
    best = [row for row in products if row.name in timed]
    first = [*best, *(row for row in moved if row.name in ("device copy", "host to device", "device to host")), *video]
    return Columns(labels, tuple(_state(record, gpu) for gpu in gpus), tuple(first), tuple(p for p in parts if p.rows))


def _gpus(record: RunRecord) -> list[Gpu]:
    """Label ► GPU, each label once, in the order of the indices."""
    rows: list[Gpu] = [row.gpu for row in measured.gemms(record)]
    rows += [row.gpu for row in measured.bandwidths(record) if row.crosses != "peer"]
    rows += [row.gpu for row in measured.throughputs(record)]
    by_label = {gpu.label: gpu for gpu in reversed(rows)}
    return sorted(by_label.values(), key=lambda gpu: (gpu.index is None, gpu.index or 0))


def _state(record: RunRecord, gpu: Gpu) -> Status | None:
    subject, ending = f"gpu {gpu.index}", f" gpu {gpu.index}"
    statuses = {
        finding.status
        for finding in findings_of(record)
        if finding.subject == subject
        or finding.subject.startswith(f"{subject} to ")
        or finding.subject.endswith(ending)
    }
    return next((status for status in measured.GRAVEST if status in statuses), None)


def _row(
    name: str, unit: str, labels: tuple[str, ...], values: Mapping[str, Figure | None], *, marked: bool = True
) -> Row:
    return Row(name, unit, tuple(values.get(label) for label in labels), marked)


def _products(record: RunRecord, labels: tuple[str, ...]) -> tuple[list[Row], dict[str, dict[str, Gemm]]]:
    """(all rows, the row of each data type that most GPUs have, by name and label); of several such rows the
    fastest.
    """
    by_name: dict[str, dict[str, Gemm]] = {}
    for row in measured.gemms(record):
        by_name.setdefault(f"{row.type} {row.shape}", {})[row.gpu.label] = row
    speed = figures.PRODUCT[0]
    rows = [_row(name, next(iter(of.values())).unit, labels, _each(of, speed)) for name, of in by_name.items()]
    best: dict[str, Row] = {}
    for line in rows:
        dtype = line.name.partition(" ")[0]
        if dtype not in best or line.rank > best[dtype].rank:
            best[dtype] = line
    return rows, {line.name: by_name[line.name] for line in best.values()}


def _each(rows: dict[str, Gemm], shown: Shown[Gemm]) -> dict[str, Figure | None]:
    return {label: shown.value(row) for label, row in rows.items()}


def _load(timed: dict[str, dict[str, Gemm]], labels: tuple[str, ...]) -> Iterator[Row]:
    for name, rows in timed.items():
        for shown in figures.PRODUCT:
            if shown.beside is None:
                continue
            unit = figures.product_unit(shown.unit, next(iter(rows.values())))
            title = f"{name}, {shown.beside}" if shown.beside else name
            row = _row(title, unit, labels, _each(rows, shown), marked=shown.marked)
            if not row.is_empty:
                yield row


def _together(record: RunRecord, labels: tuple[str, ...]) -> Iterator[Row]:
    rows = measured.together(record)
    for dtype in dict.fromkeys(row.dtype for row in rows):
        of = [row for row in rows if row.dtype == dtype]
        yield _row(dtype, "TFLOPS", labels, {row.label: row.tflops for row in of})
        yield _row(dtype, "MHz", labels, {row.label: row.graphics_clock_mhz for row in of})


def _moved(record: RunRecord, labels: tuple[str, ...]) -> Iterator[Row]:
    rows = [row for row in measured.bandwidths(record) if row.crosses != "peer"]
    for what in dict.fromkeys(row.what for row in rows):
        of = {row.gpu.label: row.gb_per_s for row in rows if row.what == what}
        yield _row(what, "GB/s", labels, of)


def _peers(record: RunRecord, labels: tuple[str, ...]) -> Iterable[Row]:
    """A row a GPU that is copied to; the columns are the GPUs that are copied from."""
    by_end: dict[str, dict[str, Figure | None]] = {}
    for row in measured.bandwidths(record):
        if row.crosses == "peer":
            by_end.setdefault(row.what.partition(" to ")[2], {})[row.gpu.label] = row.gb_per_s
    order = {label: place for place, label in enumerate(labels)}
    ends = sorted(by_end, key=lambda end: order.get(end, len(order)))
    return [_row(f"to {end}", "GB/s", labels, by_end[end]) for end in ends]


def _video(record: RunRecord, labels: tuple[str, ...]) -> Iterator[Row]:
    """The size of the pictures is named only where there are several."""
    by_series: dict[tuple[str, str], dict[str, Figure | None]] = {}
    for row in measured.throughputs(record):
        if row.best:
            by_series.setdefault((row.name, row.size), {})[row.gpu.label] = row.best.fps
    several = len({size for _, size in by_series}) > 1
    for (name, size), of in by_series.items():
        yield _row(f"{name} {size}".rstrip() if several else name, "fps", labels, of)
