"""What changed between two profiles of the same program: steps, ops, kernels, recommendations.

Steps are compared by their mean time. Ops are matched by type, name, direction and shapes, kernels by name; times and
calls are those of one step, so that profiles of different length can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from gpuprep.trace.document import Advice, TraceDocument, unlike
from gpuprep.trace.ranks import RankLine, RanksDocument

MACHINE = "machine"
MOST_RANKS = 12  # named in a sentence
SMALLEST_SHARE = 0.001  # of the step's time: a change below that is not listed


@dataclass(frozen=True)
class Figure:
    """A figure of both profiles; None: not in the profile."""

    name: str  # "step time", "GPU busy"
    unit: str  # "ms", "%", ""
    before: float | None
    after: float | None

    @property
    def change_percent(self) -> float | None:
        if self.before is None or self.after is None or self.before == 0:
            return None
        return 100.0 * (self.after - self.before) / self.before


@dataclass(frozen=True)
class Changed:
    """GPU time and calls a step of an op or kernel. None: it is not in that profile."""

    name: str
    type: str  # of an op: "aten::addmm"; of a kernel ""
    shapes: str
    before_us: float | None
    after_us: float | None
    before_calls: float
    after_calls: float

    @property
    def difference_us(self) -> float:
        return (self.after_us or 0.0) - (self.before_us or 0.0)


@dataclass(frozen=True)
class Comparison:
    before: str  # names of the profiles
    after: str
    figures: tuple[Figure, ...]
    ops: tuple[Changed, ...]  # the largest change first
    kernels: tuple[Changed, ...]
    rules_gone: tuple[Advice, ...]  # advice on the first profile alone
    rules_new: tuple[Advice, ...]
    rules_kept: tuple[Advice, ...]  # as the second profile has them
    remarks: tuple[str, ...]  # why the comparison may mislead


@dataclass(frozen=True)
class RankComparison:
    rank: int
    step: Figure  # from the start of a step to that of the next one, of the steps that all ranks have
    comparison: Comparison


@dataclass(frozen=True)
class JobComparison:
    """Two jobs, rank by rank: those with the same number are compared."""

    before: str  # names of the jobs
    after: str
    figures: tuple[Figure, ...]
    ranks: tuple[RankComparison, ...]
    slowest_rank: int | None  # of the second job, among those that are compared
    remarks: tuple[str, ...]


def compare(before: TraceDocument, after: TraceDocument) -> Comparison:
    # The machine's findings are several of one rule.
    old, new = (
        {(advice.rule, advice.problem if advice.rule == MACHINE else ""): advice for advice in document.advice}
        for document in (before, after)
    )
    return Comparison(
        before=before.file.profile_name,
        after=after.file.profile_name,
        figures=_figures(before, after),
        ops=_changed(before, after, _ops(before), _ops(after)),
        kernels=_changed(before, after, _kernels(before), _kernels(after)),
        rules_gone=tuple(advice for rule, advice in old.items() if rule not in new),
        rules_new=tuple(advice for rule, advice in new.items() if rule not in old),
        rules_kept=tuple(advice for rule, advice in new.items() if rule in old),
        remarks=_remarks(before, after),
    )


def compare_jobs(before: RanksDocument, after: RanksDocument, compared: Mapping[int, Comparison]) -> JobComparison:
    """`compared`: of each rank that both jobs have."""
    old, new = ({rank.rank: rank.step_us for rank in job.ranks} for job in (before, after))
    slow = max(
        (rank for rank in after.ranks if rank.rank in compared), key=lambda rank: rank.step_us or 0.0, default=None
    )
    return JobComparison(
        before=before.job,
        after=after.job,
        figures=tuple(Figure(name, unit, of(before), of(after)) for name, unit, of in _OF_JOB),
        ranks=tuple(
            RankComparison(rank, Figure("step", "ms", _ms(old[rank]), _ms(new[rank])), compared[rank])
            for rank in sorted(compared)
        ),
        slowest_rank=slow.rank if slow else None,
        remarks=tuple(_job_remarks(before, after)),
    )


def _ms(us: float | None) -> float | None:
    return None if us is None else us / 1e3


def _mean(of: Callable[[RankLine], float | None]) -> Callable[[RanksDocument], float | None]:
    def mean(job: RanksDocument) -> float | None:
        known = [value for value in map(of, job.ranks) if value is not None]
        return sum(known) / len(known) / 1e3 if known else None

    return mean


def _most(of: Callable[[RankLine], float | None]) -> Callable[[RanksDocument], float | None]:
    def most(job: RanksDocument) -> float | None:
        return max((value / 1e3 for value in map(of, job.ranks) if value is not None), default=None)

    return most


_OF_JOB: tuple[tuple[str, str, Callable[[RanksDocument], float | None]], ...] = (
    ("ranks", "", lambda job: len(job.ranks)),
    ("steps of all ranks", "", lambda job: len(job.steps)),
    ("step of the slowest rank", "ms", _most(lambda rank: rank.step_us)),
    ("GPU busy, mean of ranks", "ms", _mean(lambda rank: rank.busy_us)),
    ("compute, mean of ranks", "ms", _mean(lambda rank: rank.compute_us)),
    ("collectives, mean of ranks", "ms", _mean(lambda rank: rank.collective_us)),
    ("exposed, mean of ranks", "ms", _mean(lambda rank: rank.exposed_us)),
    ("waiting, mean of ranks", "ms", _mean(lambda one: one.waiting_us)),
    ("late, the latest rank", "ms", _most(lambda one: one.late_us)),
)


def _job_remarks(before: RanksDocument, after: RanksDocument) -> Iterator[str]:
    ranks_before, ranks_after = ({line.rank for line in job.ranks} for job in (before, after))
    for which, ranks in (("first", ranks_before - ranks_after), ("second", ranks_after - ranks_before)):
        if ranks:
            listed = ", ".join(map(str, sorted(ranks)[:MOST_RANKS])) + (", ..." if len(ranks) > MOST_RANKS else "")
            yield f"In the {which} job alone, so not compared: rank {listed}."
    if before.world_size != after.world_size and before.world_size and after.world_size:
        yield f"The jobs are of different size: {before.world_size} and {after.world_size} ranks."
    if before.backend != after.backend and before.backend and after.backend:
        yield f"The jobs communicate in different ways: {before.backend} and {after.backend}."
    for which, job in (("first", before), ("second", after)):
        if not job.steps and len(job.ranks) > 1:
            yield f"No step is in all profiles of the {which} job."


def _figures(before: TraceDocument, after: TraceDocument) -> tuple[Figure, ...]:
    old, new = before.summary, after.summary
    a, b = max(1, old.iterations), max(1, new.iterations)
    return (
        Figure("iterations", "", old.iterations, new.iterations),
        Figure("step time", "ms", old.average_iteration_us / 1e3, new.average_iteration_us / 1e3),
        Figure("GPU busy a step", "ms", old.gpu_busy_us / a / 1e3, new.gpu_busy_us / b / 1e3),
        Figure("GPU utilization", "%", old.gpu_utilization_percent, new.gpu_utilization_percent),
        Figure("kernels a step", "", old.kernels / a, new.kernels / b),
        Figure("kernel time a step", "ms", old.kernel_time_us / a / 1e3, new.kernel_time_us / b / 1e3),
        Figure("memory operations a step", "ms", old.memory_time_us / a / 1e3, new.memory_time_us / b / 1e3),
        Figure(
            "Tensor Core kernels a step", "ms",
            old.tensor_core_kernel_time_us / a / 1e3, new.tensor_core_kernel_time_us / b / 1e3,
        ),
        Figure("Tensor Core efficiency", "%", old.tensor_core_efficiency_percent, new.tensor_core_efficiency_percent),
    )  # fmt: skip


_Sums = dict[Hashable, tuple[str, str, str, float, float]]  # key ► name, type, shapes, us, calls of all iterations


def _ops(document: TraceDocument) -> _Sums:
    return _sums(
        ((op.type, op.name, op.direction, op.shapes), op.name, op.type, op.shapes, op.gpu_us, op.calls)
        for op in document.ops
    )


def _kernels(document: TraceDocument) -> _Sums:
    return _sums(
        ((kernel.name, kernel.memory), kernel.name, "", "", kernel.total_us, kernel.calls)
        for kernel in document.kernels
    )


def _sums(lines: Iterable[tuple[Hashable, str, str, str, float, int]]) -> _Sums:
    """Lines of one key are one: some names differ only in what is not compared."""
    sums: _Sums = {}
    for key, name, kind, shapes, us, calls in lines:
        known = sums.get(key)
        sums[key] = (name, kind, shapes, us + (known[3] if known else 0.0), calls + (known[4] if known else 0.0))
    return sums


def _changed(before: TraceDocument, after: TraceDocument, old: _Sums, new: _Sums) -> tuple[Changed, ...]:
    a, b = max(1, before.summary.iterations), max(1, after.summary.iterations)
    smallest = SMALLEST_SHARE * max(before.summary.average_iteration_us, after.summary.average_iteration_us)
    changes = []
    for key in {**old, **new}:
        was, now = old.get(key), new.get(key)
        name, kind, shapes = (now or was or ("", "", ""))[:3]
        line = Changed(
            name, kind, shapes,
            None if was is None else was[3] / a, None if now is None else now[3] / b,
            0.0 if was is None else was[4] / a, 0.0 if now is None else now[4] / b,
        )  # fmt: skip
        if abs(line.difference_us) >= smallest:
            changes.append(line)
    return tuple(sorted(changes, key=lambda line: -abs(line.difference_us)))


def _remarks(before: TraceDocument, after: TraceDocument) -> tuple[str, ...]:
    remarks, split = unlike(before, after), (before.summary.split_by, after.summary.split_by)
    if "one" in split:
        remarks.append("A profile without steps counts as one iteration: only sums of equal work can be compared.")
    switches = [document.file.switches for document in (before, after)]
    if any(
        switches[0].get(name) != switches[1].get(name) for name in ("with_stack", "record_shapes", "profile_memory")
    ):
        remarks.append("The profiles were recorded with different switches, which cost CPU time themselves.")
    return tuple(remarks)
