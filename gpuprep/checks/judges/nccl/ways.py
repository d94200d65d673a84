"""Which links connect the GPUs of a machine, and how fast are these links? For the checks of NCCL's speed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuprep.catalogue import Board, topologies
from gpuprep.catalogue import topologies as catalogue
from gpuprep.catalogue.topologies import Family
from gpuprep.checks import links as pcie
from gpuprep.checks.evidence import Evidence
from gpuprep.records import Missing
from gpuprep.records.evidence.nccl import Nccl, NcclGpu

MOST_IN_RING = 10  # of GPUs that are linked to each other without a switch; machines have up to eight
Pairs = Mapping[tuple[int, int], int]  # (GPU, GPU) ► NVLinks that are up, by place in the measurement


@dataclass(frozen=True)
class Way:
    """The kind of links that NCCL's rings use, and their GB/s for one GPU in one direction."""

    kind: str  # "switch" | "direct" | "pcie": the floors of catalogue/nccl.yml
    compute_capability: str
    carries: float  # GB/s that floors are shares of
    at_most: float  # GB/s
    words: str  # "18 NVLinks"
    unused_nvlinks: int = 0  # of the board, where none is up
    wired: int = 0  # NVLinks from each GPU to switches, by the catalogue
    up: int = 0  # of the GPU that has the fewest up


def way(evidence: Evidence, values: Nccl, gpus: Sequence[NcclGpu]) -> Way | Missing:
    """The links between these GPUs; Missing if they are unknown."""
    boards = [board for gpu in gpus if (board := evidence.board(gpu)) is not None]
    if len(boards) < len(gpus):
        return Missing("not_in_catalogue", "the catalogue does not have a GPU of this machine")
    if values.published and not values.links:
        return _wired(gpus, boards)
    pairs = _pairs(values, gpus)
    if isinstance(pairs, Missing):
        return pairs
    totals = [sum(pairs[origin, other] for other in range(len(gpus)) if other != origin) for origin in range(len(gpus))]
    switched = _switched(boards)
    if not any(totals):
        return _pcie(gpus, boards, unused=switched)
    speed = catalogue.link_speed(_slowest(boards).model.compute_capability)
    if speed is None:
        return Missing(
            "not_in_catalogue", f"the catalogue does not say what an NVLink of {_slowest(boards).name} carries"
        )
    most = max(pairs.values())
    known = [links for board in boards if (links := _links(board)) is not None]
    if known and most > max(known):
        return Missing("unparsable", f"{most} NVLinks are recorded as up, and {boards[0].name} has {max(known)}")
    through_switch = len(gpus) > 2 and bool(known) and max(totals) > max(known)
    family = topologies.family(_slowest(boards))
    if family and topologies.part_of(family, pairs.values(), len(gpus), evidence.snapshot.nvswitches):
        return _nvlink("direct", boards, max(totals))
    if switched:
        direct = len(gpus) > 2 and not through_switch
        up = min(totals) if direct else min(pairs.values())  # behind switches each pair shows all links of a GPU
        nvlink_way = _nvlink("direct" if direct else "switch", boards, switched)
        if isinstance(nvlink_way, Missing):
            return nvlink_way
        return dataclasses.replace(nvlink_way, at_most=nvlink_way.at_most * up / switched, wired=switched, up=up)
    if through_switch:
        return _nvlink("switch", boards, most)
    if _has_ring(pairs, len(gpus)):
        return _nvlink("direct", boards, max(totals))
    return _pcie(gpus, boards)


def _wired(gpus: Sequence[NcclGpu], boards: Sequence[Board]) -> Way | Missing:
    """The links by the catalogue alone, for published figures."""
    if all(_unlinked(topologies.family(board), len(gpus)) for board in boards):
        return _pcie(gpus, boards)
    if links := _switched(boards):
        return _nvlink("switch", boards, links)
    return Missing("not_recorded", f"how the GPUs ({boards[0].name}) are linked is not recorded (links)")


def _unlinked(family: Family | None, gpus: int) -> bool:
    """Whether no NVLinks can join so many of these boards: they have none, or only bridges of fewer cards."""
    if family is None or family.joined != "bridge":
        return family is not None and family.joined == "none"
    return gpus > max((machine.gpus for machine in family.machines), default=gpus)


def _links(board: Board) -> int | None:
    """The NVLinks of a board; of boards that could not be told apart, those of their family. None: not known."""
    family = topologies.family(board)
    return board.nvlink.links if board.nvlink else family.links if family else None


def _switched(boards: Sequence[Board]) -> int:
    """Number of NVLinks from each GPU to switches, by the catalogue; 0 without switches."""
    each = []
    for board in boards:
        family = topologies.family(board)
        how = board.nvlink.how if board.nvlink else family.joined if family else ""
        each.append(_links(board) or 0 if how == "switch" else 0)
    return min(each)


def _nvlink(kind: str, boards: Sequence[Board], links: int) -> Way | Missing:
    board = _slowest(boards)
    speed = catalogue.link_speed(board.model.compute_capability)
    if speed is None:
        return Missing("not_in_catalogue", f"the catalogue does not say what an NVLink of {board.name} carries")
    carries, most = links * speed.carries, links * speed.at_most
    return Way(kind, board.model.compute_capability, carries, most, f"{links} NVLink{'s' if links > 1 else ''}")


def _slowest(boards: Sequence[Board]) -> Board:
    """The board with the slowest or unknown links."""

    def carries(board: Board) -> float:
        speed = catalogue.link_speed(board.model.compute_capability)
        return speed.carries if speed else 0.0

    return min(boards, key=carries)


def _pcie(gpus: Sequence[NcclGpu], boards: Sequence[Board], unused: int = 0) -> Way | Missing:
    """The slowest GPU's PCIe link under load; the board's maximum if it was not read."""
    rates = []
    for gpu, board in zip(gpus, boards, strict=True):
        own = pcie.Way(board.pcie_generation, board.pcie_width)
        read = (
            own if isinstance(gpu.pcie, Missing) else pcie.capped(pcie.Way(gpu.pcie.generation, gpu.pcie.width), board)
        )
        rate = read.gb_per_s
        if rate is None:
            return Missing("not_recorded", f"generation and width of the PCIe link of gpu {gpu.index} are not recorded")
        rates.append(rate)
    return Way("pcie", boards[0].model.compute_capability, min(rates), min(rates), "PCIe", unused)


def _pairs(values: Nccl, gpus: Sequence[NcclGpu]) -> Pairs | Missing:
    """Number of NVLinks of each pair in both directions; Missing if a count is absent or impossible."""
    places = {gpu.index: place for place, gpu in enumerate(gpus)}
    pairs = {}
    for link in values.links:
        if link.start not in places or link.end not in places or link.start == link.end:
            continue
        count = link.nvlinks
        between = f"from gpu {link.start} to gpu {link.end}"
        if isinstance(count, Missing) and count.reason == "not_recorded":
            return Missing("not_recorded", f"how many NVLinks are up {between} is not recorded (nvlinks)")
        if isinstance(count, Missing):
            return count
        if not (0 <= count <= topologies.NVML_MOST_LINKS and float(count).is_integer()):
            return Missing("unparsable", f"{count:g} NVLinks are recorded as up {between}")
        pairs[places[link.start], places[link.end]] = int(count)
    absent = [(origin, other) for origin in range(len(gpus)) for other in range(len(gpus)) if origin != other]
    for origin, other in absent:
        if (origin, other) not in pairs:
            between = f"from gpu {gpus[origin].index} to gpu {gpus[other].index}"
            return Missing("not_recorded", f"how many NVLinks are up {between} is not recorded (links)")
    return pairs


def _has_ring(pairs: Pairs, gpus: int) -> bool:
    """Whether a ring through all GPUs is possible over NVLinks alone."""
    if gpus == 2:
        return pairs[0, 1] > 0 and pairs[1, 0] > 0
    if gpus > MOST_IN_RING:
        return False
    ends = {(1, 0)}  # (GPUs on the way as bits, where it ends); every way begins at GPU 0
    for _ in range(gpus - 1):
        ends = {
            (seen | 1 << after, after)
            for seen, last in ends
            for after in range(gpus)
            if not seen >> after & 1 and pairs[last, after] > 0
        }
    return any(pairs[last, 0] > 0 for _, last in ends)
