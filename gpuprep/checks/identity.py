"""Does a GPU's own data fit the catalogue's board? If not, one of the two is wrong, and no floor can be used.

Memory size, number of multiprocessors, highest clock, compute capability and name, in the snapshot and in each
measurement; and whether a measurement names a device that the host has. GPUs that the catalogue lacks are set up and
measured like the others, but their expected speed is unknown; GPUs of other makers are only named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from functools import cache
from typing import Any

from gpuprep.catalogue import Board, board_in, board_of, boards
from gpuprep.catalogue.boards import MASKED
from gpuprep.checks.common import COMPARE_IT, MEASURE_AGAIN, NOT_TOLD, skip, unknown
from gpuprep.desired.host_rules import title
from gpuprep.desired.state import Wanted, WantedGpu
from gpuprep.records import Finding, GpuFacts, Missing, ProbeResult, Snapshot, Status
from gpuprep.records.evidence import measured
from gpuprep.records.evidence.bandwidth import Bandwidth
from gpuprep.records.evidence.gemm import Gemm, GemmGpu
from gpuprep.records.evidence.nccl import Nccl
from gpuprep.records.evidence.shared import AnyProbe, NamedGpu
from gpuprep.records.evidence.throughput import Throughput, ThroughputGpu

# NVML's total is without what ECC keeps (1/16 of GDDR6), and before R510 without what the driver reserves (2 %).
MEMORY_DIFFERENCE = 0.08
CLOCK_TOLERANCE = 0.05
KINDS = {"gemm": Gemm, "bandwidth": Bandwidth, "throughput": Throughput, "nccl": Nccl}
# A name that has only these words names no model: drivers print such names for unknown boards.
NAMELESS = frozenset({"nvidia", "corporation", "graphics", "device", "gpu", "board", "vgpu", "grid", ""})
EXPECTED = "as the catalogue's board"
REMEDY = (
    "look at nvidia-smi -q: a virtual machine may show a part of a board or other PCI ids; if the board is what it"
    " says, the catalogue is wrong: tell gpuprep's authors, with this report"
)
Reading = float | Missing | None


def findings(snapshot: Snapshot, probed: Sequence[ProbeResult]) -> list[Finding]:
    """gpu N.identity: UNKNOWN for a GPU that contradicts its board, PASS for one that NVML has read and that fits.

    No finding for a GPU that the catalogue lacks: gpu N.in_catalogue reports that.
    """
    facts = () if isinstance(snapshot.gpus, Missing) else snapshot.gpus
    by_subject: dict[str, list[str]] = {}
    fitting: dict[str, str] = {}
    unread: dict[str, str] = {}  # values that NVML should have read and did not
    on_the_bus = {device.device_id.lower() for device in snapshot.pci_gpus}
    for gpu in facts:
        board = board_of(gpu)
        if board is not None and (gpu.uuid or gpu.name):
            fitting[f"gpu {gpu.index}"] = board.name
            by_subject.setdefault(f"gpu {gpu.index}", []).extend(_of_facts(gpu, board))
            unread[f"gpu {gpu.index}"] = _unread(gpu)
    for measurement, entry in _measured(probed):
        board = board_in(snapshot, entry)
        contradictions_of_entry = _of_entry(entry, board) if board is not None else []
        wrong = [f"{reason} ({measurement})" for reason in [*contradictions_of_entry, *_stranger(entry, on_the_bus)]]
        if wrong or board is not None:
            by_subject.setdefault(f"gpu {'?' if entry.index is None else entry.index}", []).extend(wrong)
    return [
        finding
        for subject, wrong in by_subject.items()
        if (finding := _finding(subject, wrong, fitting.get(subject, ""), unread.get(subject, "")))
    ]


def contradictions(
    board: Board,
    *,
    name: str = "",
    memory_mib: Reading = None,
    sms: Reading = None,
    highest_mhz: Reading = None,
    capability: str = "",
) -> list[str]:
    """Sentences on values that this board cannot have. Unknown values are ignored."""
    sentences = []
    if _known(memory_mib) and board.memory_mib and not _within(memory_mib, board.memory_mib, MEMORY_DIFFERENCE):
        sentences.append(f"memory of {memory_mib:g} MiB, and the {board.name} has {board.memory_mib}")
    if _known(sms) and board.sms and sms != board.sms:
        sentences.append(f"{sms:g} multiprocessors, and the {board.name} has {board.sms}")
    if _known(highest_mhz) and board.boost_mhz:
        low, high = (1 - CLOCK_TOLERANCE) * board.boost_mhz, (1 + CLOCK_TOLERANCE) * board.boost_mhz
        if highest_mhz < low or (highest_mhz > high and not board.model.free_clocks):  # type: ignore[operator]
            sentences.append(f"a highest clock of {highest_mhz:g} MHz, and the {board.name} has {board.boost_mhz}")
    if capability and capability != board.model.compute_capability:
        sentences.append(
            f"compute capability {capability:.20}, and the {board.name} has {board.model.compute_capability}"
        )
    if name and (other := _of_another(name, board)):
        sentences.append(f"the name {name:.60}, {other}")
    return sentences


def _of_facts(gpu: GpuFacts, board: Board) -> list[str]:
    return contradictions(
        board, name=gpu.name, memory_mib=gpu.memory_total_mib, sms=_sms(gpu.cores, board),
        highest_mhz=gpu.max_graphics_clock_mhz,
        capability="" if isinstance(gpu.compute_capability, Missing) else gpu.compute_capability,
    )  # fmt: skip


def _unread(gpu: GpuFacts) -> str:
    """Values that every driver reports for every GPU and that are missing here, in words; "" if none is missing."""
    readings = {"the size of its memory": gpu.memory_total_mib, "its highest clock": gpu.max_graphics_clock_mhz}
    if not isinstance(gpu.cores, Missing) or gpu.cores.reason != "not_read":  # older records do not have it
        readings["its number of cores"] = gpu.cores
    failed = [
        what for what, reading in readings.items() if isinstance(reading, Missing) and reading.reason not in NOT_TOLD
    ]
    return " and ".join(failed)


def _stranger(entry: NamedGpu, on_the_bus: Set[str]) -> list[str]:
    """A sentence on a measured device that the host does not have. A virtual machine may mask the ids of either."""
    device = entry.pci_device_id.lower()
    if device in MASKED or not on_the_bus or device in on_the_bus or on_the_bus & set(MASKED):
        return []
    return [f"the PCI device id {device:.20}, and the host has {', '.join(sorted(on_the_bus)[:5])}"]


def _of_entry(entry: NamedGpu, board: Board) -> list[str]:
    if isinstance(entry, GemmGpu):
        return contradictions(board, name=entry.name, sms=entry.sms, highest_mhz=entry.max_graphics_clock_mhz)
    memory = entry.memory_total_mib if isinstance(entry, ThroughputGpu) else None
    return contradictions(board, name=entry.name, memory_mib=memory)


def _sms(cores: int | Missing, board: Board) -> float | None:
    """CUDA cores ─► multiprocessors: one core is one FP32 multiply-add per clock."""
    each = board.model.fma_per_clock_per_sm.get("fp32")
    return None if isinstance(cores, Missing) or not each else cores / each


def _measured(probed: Sequence[ProbeResult]) -> Iterable[tuple[str, NamedGpu]]:
    for result in probed:
        kind: Any = KINDS.get(result.probe, AnyProbe)
        values = measured(kind, result.values)
        if isinstance(values, Missing):
            continue
        series = values.series if isinstance(values, Throughput) else ()
        for gpu in (*values.gpus, getattr(values, "gpu", None), *(video_series.gpu for video_series in series)):
            if isinstance(gpu, NamedGpu):
                yield result.probe, gpu


def _finding(subject: str, wrong: Sequence[str], board: str, unread: str) -> Finding | None:
    if wrong:
        why = "the GPU reports " + "; ".join(dict.fromkeys(wrong)) + ": one of the two is wrong, so no floor fits it"
        return Finding(subject, "identity", Status.UNKNOWN, EXPECTED, wrong[0], why, REMEDY)
    if unread:
        failed = Missing("command_failed", "so it is not known whether it is the board that it reports")
        return unknown(subject, "identity", failed, expected=EXPECTED, what=unread, remedy=MEASURE_AGAIN)
    return Finding(subject, "identity", Status.PASS, EXPECTED, board) if board else None


def _known(reading: Reading) -> bool:
    return reading is not None and not isinstance(reading, Missing)


def _within(reading: Reading, known: float, tolerance: float) -> bool:
    assert isinstance(reading, (int, float))
    return abs(reading - known) <= tolerance * known


def _of_another(name: str, board: Board) -> str:
    """Why a name cannot be this board's; "" if it can. Makers and clouds vary names, and keep the model's words.

    "NVIDIA Graphics Device" names no model.
    """
    plain = _plain(name)
    if set(re.split(r"[^a-z0-9]+", plain)) <= NAMELESS:
        return ""
    mine = {_plain(name) for name in board.nvml_names}
    if plain in mine or plain == _plain(board.name):
        return ""
    owners = _owners().get(plain, ())
    if owners and mine:
        return f"which is that of the {owners[0]}"
    words = set(re.split(r"[^a-z0-9]+", board.model.title.lower()))
    if words <= set(re.split(r"[^a-z0-9]+", plain)):
        return ""
    return f"and the PCI ids are those of the {board.name}"


@cache
def _owners() -> dict[str, list[str]]:
    """NVML's name ─► the boards with this name."""
    owners: dict[str, list[str]] = {}
    for board in boards().values():
        for name in dict.fromkeys([*board.nvml_names, board.name]):
            owners.setdefault(_plain(name), []).append(board.name)
    return owners


def _plain(name: str) -> str:
    """The name without "NVIDIA", which drivers from R470 on put in front of some names."""
    return name.lower().removeprefix("nvidia ").removeprefix("tesla ").strip()


# ---------------------------------------------------------------- GPUs that the catalogue lacks

IN_CATALOGUE = "a GPU that the catalogue has"
BY_MODEL = "judge it by the profile of its model alone (`gpuprep profiles list` shows them)"
VGA = "0300"  # of another maker most often the board's own, for its console
AMD = "1002"


def unknown_gpus(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    """UNKNOWN for each such GPU: a machine that cannot be judged completely does not pass. SKIP for other makers."""
    unknown = [
        _unknown_gpu(gpu, _nvml_index(snapshot, gpu, place)) for place, gpu in enumerate(wanted.gpus) if not gpu.model
    ]
    return unknown + _of_other_makers(snapshot)


def _nvml_index(snapshot: Snapshot, gpu: WantedGpu, place: int) -> int:
    """NVML's index of the GPU; without a driver, its position on the PCI bus."""
    read = () if isinstance(snapshot.gpus, Missing) else snapshot.gpus
    return next((facts.index for facts in read if facts.pci_address == gpu.pci_address), place)


def _unknown_gpu(gpu: WantedGpu, index: int) -> Finding:
    ids = f"10de:{gpu.pci_device_id}"
    shown = gpu.name if ids in gpu.name else f"{gpu.name} ({ids})"
    why = f"the catalogue does not have {shown}, or cannot tell which board it is: it is measured without floors"
    if gpu.pci_device_id not in MASKED:
        return Finding(f"gpu {index}", "in_catalogue", Status.UNKNOWN, IN_CATALOGUE, shown, why, COMPARE_IT)
    # Figures from elsewhere have no id of such a GPU, and perhaps no name.
    if gpu.pci_device_id in gpu.name:
        why = "which GPU it was is not recorded: no floor is known"
        return Finding(f"gpu {index}", "in_catalogue", Status.UNKNOWN, IN_CATALOGUE, "not named", why, BY_MODEL)
    why = f"the catalogue does not have {gpu.name:.80}: no floor is known"
    return Finding(f"gpu {index}", "in_catalogue", Status.UNKNOWN, IN_CATALOGUE, f"{gpu.name:.80}", why, COMPARE_IT)


def _of_other_makers(snapshot: Snapshot) -> list[Finding]:
    """One SKIP for all GPUs of other makers."""
    devices = () if isinstance(snapshot.other_gpus, Missing) else snapshot.other_gpus
    shown = [
        f"{title(snapshot, device)} at {device.address}"
        for device in devices
        if not device.class_code.startswith(VGA) or device.vendor_id.lower() == AMD
    ]
    if not shown:
        return []
    reason = "gpuprep sets up and measures NVIDIA's GPUs; these were not changed"
    return [skip("gpus", "of_other_makers", expected="NVIDIA's", actual=", ".join(shown), reason=reason)]
