"""What several profiles of one job show together. `gpuprep trace report FOLDER` prints it.

Times are microseconds unless the name ends otherwise; null: not in the profiles. Steps are those that all ranks have.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gpuprep.trace.document import Note, Slowdown

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class RankLine:
    """One rank. Figures are means of a step over the common steps, for one GPU."""

    rank: int
    file: str
    device: int | None  # the GPU's number in the profile; null: the rank used none
    gpu: str  # its name
    steps: int  # the common ones
    step_us: float | None  # from the start of a step to the start of the next one; of the last to its end
    busy_us: float | None  # union of all GPU events
    busy_percent: float | None
    compute_us: float | None  # union of the kernels that are no collectives
    collective_us: float | None  # union of the collectives
    exposed_us: float | None  # of it, while no other kernel runs on this GPU
    overlapped_us: float | None  # collective_us - exposed_us
    waiting_us: float | None  # in collectives, until the last rank enters them: a sum
    late_us: float | None  # as the last one to enter: by how much, a sum. What the others wait for it alone
    last_percent: float | None  # of the collectives that it entered as the last one
    clock_offset_us: float  # taken off its times to align it


@dataclass(frozen=True)
class RankStep:
    """One step of all ranks. Lists are in the order of RanksDocument.ranks."""

    name: str
    wall_us: tuple[float, ...]
    busy_us: tuple[float, ...]
    exposed_us: tuple[float, ...]
    late_us: tuple[float | None, ...]  # null: no collective was found in all ranks of its group
    last_rank: int | None  # the rank that the others waited longest for


@dataclass(frozen=True)
class CollectiveLine:
    """Collectives of one kind, size and group, of all ranks."""

    name: str  # all_reduce
    group: str  # "0 [0, 1]": the process group's name and ranks, as the profile has them
    group_size: int | None
    dtype: str
    bytes: int | None  # of one, as nccl-tests count them
    calls: int  # in one rank
    ranks: int  # that have it
    matched: int  # calls that were found in every rank of these
    time_us: float  # of one, mean over ranks: with waiting for others
    exposed_us: float  # of one, mean over ranks
    overlapped_us: float
    transfer_us: float | None  # of one, from the last rank's start to the last end, median; null: not matched
    bus_gb_s: float | None  # bytes / transfer_us x the factor of nccl-tests
    total_us: float  # of all calls in one rank, mean over ranks: a sum


@dataclass(frozen=True)
class Straggler:
    rank: int
    steps: int  # in which the others waited longest for it
    of_steps: int
    late_us: float  # a step, mean
    percent: float  # of a step
    words: str


@dataclass(frozen=True)
class RanksDocument:
    schema_version: int
    job: str  # the folder's name
    backend: str  # nccl, gloo; "" where the profiles do not tell
    world_size: int | None
    ranks: tuple[RankLine, ...]
    missing: tuple[int, ...]  # ranks of the job without a profile
    clocks: str  # how the ranks' times were aligned
    clock_error_us: float | None  # how far ends of the same collective lie apart after that, median
    steps: tuple[RankStep, ...]
    collectives: tuple[CollectiveLine, ...]
    stragglers: tuple[Straggler, ...]
    notes: tuple[Note, ...]  # files of another job, what was guessed, what could not be matched
    slowdown: Slowdown = field(default_factory=Slowdown)  # of the rank with the longest step
