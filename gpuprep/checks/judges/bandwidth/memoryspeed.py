"""Is the memory of each GPU as fast as that of healthy boards, for each kind of access, and as that of its neighbours?

A copy by the driver is slower than kernels: 1371 and 1769 GB/s on one A100 SXM4 of 80 GB (SuperBench's D2D and
gpu-benches' stream, both correct). So each kind of access has its own figure in catalogue/bandwidths.yml.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from gpuprep.catalogue import Board
from gpuprep.catalogue.boards import MEMORY_TOLERANCE
from gpuprep.catalogue.topologies import Healthy, healthy_memory_percents
from gpuprep.checks import conditions
from gpuprep.checks.common import COMPARE_IT, SET_CLOCKS, unknown
from gpuprep.checks.conditions import ANY_CLOCK_MHZ, ANY_MEMORY_CLOCK_MHZ, ANY_MEMORY_MIB
from gpuprep.checks.evidence import Evidence
from gpuprep.checks.floors import ROUNDING, apart, below, figure, floor, healthy_limits, is_shipped, percents
from gpuprep.records import Finding, GpuFacts, Missing, Status
from gpuprep.records.evidence import Figure
from gpuprep.records.evidence.bandwidth import BandwidthGpu

FLOOR = "memory_percent_of_peak"
COPY_SHARE = 0.8  # of the profile's floor, which is for kernels
FULL_CLOCK = 0.98  # of the highest memory clock; below it the clock explains a slow memory
COMPUTE_STATE = 0.94  # GeForce boards compute in P2, a step below their highest memory clock (4090: 10251 of 10501)
# An SM reads at most this much from the L2 cache in one clock, from Volta to Blackwell.
BYTES_PER_CLOCK = 64
ABOVE_BOOST = 2.05  # RTX 4000 SFF Ada: 3105 of 1560 MHz, the widest known
# Kernels and copies reach 98 % of the bus at most (L40, A40 without ECC); writes alone come nearer (V100: 99.7 %).
BUS_MOST = 0.985
BUFFERS = 3  # of buffer_mib each
BINDINGS = (
    "`gpuprep provision HOST --profile PROFILE --only agent` gives the agent its CUDA "
    "bindings; they need CUDA 12 or newer (driver.source: nvidia offers it)"
)
ALONE = "stop what uses the GPU (nvidia-smi shows it), then measure again"
DEFECT = "see remapped rows and ECC errors (nvidia-smi -q -d ECC,ROW_REMAPPER), and ask for another GPU"


def findings(evidence: Evidence, subject: str, gpu: BandwidthGpu, busy: str, *, published: bool) -> list[Finding]:
    """A finding for each kind of access, and for the memory clock; one for the memory's size if it is impossible."""
    board, facts = evidence.board(gpu), evidence.facts(gpu)
    speed_findings = [
        _speed(evidence, subject, gpu, board, what, reached, busy)
        for what, reached in gpu.memory.items()
        if not (published and isinstance(reached, Missing) and reached.reason == "not_recorded")
    ]
    clocks = [*_clock(subject, gpu, board, facts, published), *_graphics_clock(subject, gpu, board, facts, published)]
    return [*speed_findings, *clocks, *_size(subject, gpu, board, facts)]


def _speed(
    evidence: Evidence, subject: str, gpu: BandwidthGpu, board: Board | None, what: str, reached: Figure, busy: str
) -> Finding:
    prop, kind = what.replace("device ", "memory_"), what.removeprefix("device ")
    peak, least = board.memory_gb_per_s if board else None, floor(evidence, FLOOR, board)
    if isinstance(reached, Missing):
        missing = f"the {what} of {subject}"
        return unknown(subject, prop, reached, expected="measured", what=missing, remedy=BINDINGS)
    if board is None or peak is None or least is None:
        lacks = "the catalogue has no bandwidth of this GPU" if peak is None else "the profile sets no floor"
        if peak is None and board is not None and board.is_several:
            lacks = f"it is not known which variant of the {board.name} this is, and their memory speeds differ"
        remedy = f"say {FLOOR} under thresholds in the profile" if peak is not None else COMPARE_IT
        return Finding(subject, prop, Status.UNKNOWN, "a floor", f"{reached:.0f} GB/s", lacks, remedy)
    if kind == "copy":
        least = dataclasses.replace(least, percent=round(least.percent * COPY_SHARE, 1))
    limit = healthy_limits(
        least, _healthy(evidence, gpu, board, kind) if is_shipped(evidence, FLOOR) else None, board.name
    )
    percent = 100 * reached / peak
    share = percents(percent, limit.passes)[0]
    shown = f"{reached:.0f} GB/s, {share} %"
    if busy:
        return Finding(subject, prop, Status.UNKNOWN, limit.of(peak, percent), shown, busy, ALONE)
    if why := _impossible(gpu, board, peak, kind, reached):
        return Finding(subject, prop, Status.UNKNOWN, limit.of(peak, percent), shown, why, "measure again")
    status = Status(limit.status(percent))
    if status is Status.PASS:
        return Finding(subject, prop, status, limit.of(peak, percent), shown)
    why, remedy = _slow(gpu, board, f"the {what} reaches {figure(reached)} of {figure(peak)} GB/s ({share} %)")
    return Finding(subject, prop, status, limit.of(peak, percent), shown, why + limit.beside(status.value), remedy)


def _healthy(evidence: Evidence, gpu: BandwidthGpu, board: Board, kind: str) -> Healthy | None:
    """What healthy boards reach with this kind of access; None without published figures."""
    healthy, facts = healthy_memory_percents(board), evidence.facts(gpu)
    if healthy is None:
        return None
    bare = facts and facts.ecc_current is False and healthy.without_ecc
    percent = (healthy.without_ecc if bare else healthy.percent).get(kind)
    return None if percent is None else Healthy(percent, healthy.machines)


def _impossible(gpu: BandwidthGpu, board: Board, peak: float, kind: str, reached: float) -> str:
    """Why no memory can be that fast; "" if it can."""
    if reached <= 0:
        return f"{reached:g} GB/s is not a possible speed: nothing was measured"
    reference, clock = healthy_memory_percents(board), gpu.memory_clock_mhz
    bus = max((reference.bus_gb_per_s if reference else None) or 0.0, peak)
    most = ROUNDING if kind == "write" else BUS_MOST
    if reached > most * bus:
        return f"{_beyond_bus(reached, bus, most)}: the measurement or the catalogue is wrong"
    if not isinstance(clock, Missing) and board.memory_mhz and 0 <= clock < board.memory_mhz:
        carries = bus * clock / board.memory_mhz
        if reached > most * carries:
            at = f"at the recorded memory clock of {clock:.0f} of {board.memory_mhz} MHz"
            return f"{_beyond_bus(reached, carries, most)} {at}: speed and clock contradict each other"
    mhz = gpu.graphics_clock_mhz
    if kind == "copy" or isinstance(mhz, Missing) or not board.sms or mhz < 0:
        return ""
    loads = board.sms * BYTES_PER_CLOCK * mhz / 1000
    if reached > ROUNDING * loads:
        sentence = f"{board.sms} SMs at {mhz:.0f} MHz load at most {figure(loads)} GB/s"
        return f"{sentence}: speed and clock contradict each other"
    return ""


def _beyond_bus(reached: float, bus: float, most: float) -> str:
    """ "892 GB/s is more than memory delivers: at most 885 of the 898 that its bus carries"."""
    shown, possible = apart(reached, most * bus)
    return f"{shown} GB/s is more than memory delivers: at most {possible}, where its bus carries {figure(bus)}"


def _slow(gpu: BandwidthGpu, board: Board, sentence: str) -> tuple[str, str]:
    """(why the memory is slow, what to do): its clock, or the memory itself."""
    clock, top = gpu.memory_clock_mhz, board.memory_mhz
    if isinstance(clock, Missing) or top is None:
        return (
            f"{sentence}; its clock is not known",
            "measure again; if the result is the same, show the provider this report",
        )
    if clock < FULL_CLOCK * top:
        why = f"{sentence}, because the memory clock was {clock:.0f} of {top} MHz"
        return why, SET_CLOCKS
    return f"{sentence} although the memory clock was full ({clock:.0f} of {top} MHz)", DEFECT


def _clock(
    subject: str, gpu: BandwidthGpu, board: Board | None, facts: GpuFacts | None, published: bool
) -> list[Finding]:
    """The memory clock under load; if its maximum is unknown, only whether it was read and is possible."""
    read = facts.max_memory_clock_mhz if facts else None
    top = board.memory_mhz if board and board.memory_mhz else read if isinstance(read, int) else None
    clock, prop = gpu.memory_clock_mhz, "memory_clock"
    if published and isinstance(clock, Missing) and clock.reason == "not_recorded":
        return []
    expected = f"{top} MHz under load" if top else "known"
    if isinstance(clock, Missing):
        what = f"the memory clock of {subject} under load"
        return [unknown(subject, prop, clock, expected=expected, what=what, remedy="measure again")]
    shown = f"{clock:.0f} MHz"
    if top is None:
        if 0 < clock <= ANY_MEMORY_CLOCK_MHZ:
            return []
        why = f"no memory runs at {clock:.0f} MHz: the reading is wrong"
        return [Finding(subject, prop, Status.UNKNOWN, expected, shown, why, "measure again")]
    if clock <= 0 or clock > ROUNDING * top:
        why = f"the memory clock was {clock:.0f} MHz, and {top} MHz is the highest of this board: one of them is wrong"
        remedy = "stop overclocking the memory, then measure again; if it is not overclocked, this is another board"
        return [Finding(subject, prop, Status.UNKNOWN, expected, shown, why, remedy)]
    share = COMPUTE_STATE if board and any("GeForce" in name for name in board.nvml_names) else FULL_CLOCK
    if clock >= share * top:
        note = "" if clock >= FULL_CLOCK * top else "GeForce boards compute a step below their highest memory clock"
        return [Finding(subject, prop, Status.PASS, expected, shown, note)]
    why = f"the memory clock was {clock:.0f} of {top} MHz while the memory was measured"
    remedy = SET_CLOCKS
    return [Finding(subject, prop, Status.WARN, expected, shown, why, remedy)]


def _graphics_clock(
    subject: str, gpu: BandwidthGpu, board: Board | None, facts: GpuFacts | None, published: bool
) -> list[Finding]:
    """UNKNOWN if the SM clock was not read or is impossible. A low clock is no finding: memory does not need more."""
    clock, expected = gpu.graphics_clock_mhz, "a clock that the board has"
    read, own = facts.max_graphics_clock_mhz if facts else None, board.boost_mhz if board else None
    most = min(own * ABOVE_BOOST, ANY_CLOCK_MHZ) if own and _is_workstation_card(board) else own
    top = read if isinstance(read, int) and read > 0 else most
    if published and isinstance(clock, Missing) and clock.reason == "not_recorded":
        return []
    if isinstance(clock, Missing):
        what = f"the clock of the SMs of {subject}"
        return [unknown(subject, "graphics_clock", clock, expected=expected, what=what, remedy="measure again")]
    if clock > 0 and (not top or clock <= ROUNDING * top):
        return []
    why = f"the SMs ran at {clock:g} MHz, and the highest clock of this board is {top:.0f}" if top else f"{clock:g} MHz"
    why += ": this is another board, or the reading is wrong"
    return [Finding(subject, "graphics_clock", Status.UNKNOWN, expected, f"{clock:g} MHz", why, "measure again")]


def _is_workstation_card(board: Board | None) -> bool:
    """Whether this is a GeForce, RTX or Quadro card: they exceed their boost clock (an RTX 3090: 2100, not 1695)."""
    return board is not None and any(word in board.name for word in ("RTX", "GeForce", "Quadro"))


def _size(subject: str, gpu: BandwidthGpu, board: Board | None, facts: GpuFacts | None) -> list[Finding]:
    """UNKNOWN if this board cannot have this memory size; else []."""
    own, read = board.memory_mib if board else None, facts.memory_total_mib if facts else None
    prop, cache = "memory_size", board.l2_mib if board else None
    if cache and gpu.buffer_mib and BUFFERS * gpu.buffer_mib <= cache:
        why = (
            f"three buffers of {gpu.buffer_mib} MiB fit into the L2 cache ({cache} MiB): that is not the memory's speed"
        )
        expected = "buffers larger than the cache"
        return [Finding(subject, prop, Status.UNKNOWN, expected, f"3 x {gpu.buffer_mib} MiB", why, "measure again")]
    own = own or (ANY_MEMORY_MIB if gpu.buffer_mib and BUFFERS * gpu.buffer_mib > ANY_MEMORY_MIB else None)
    if own is None:
        return []
    expected = f"{own} MiB ({board.name})" if board else ""
    if isinstance(read, int) and abs(read - own) > MEMORY_TOLERANCE * own:
        why = f"NVML shows {read} MiB of memory, and this board has {own}: this is another board, or a part of a board"
        remedy = "see nvidia-smi -q; ask the provider which board this is"
        return [Finding(subject, prop, Status.UNKNOWN, expected, f"{read} MiB", why, remedy)]
    if gpu.buffer_mib and BUFFERS * gpu.buffer_mib > own:
        why = f"three buffers of {gpu.buffer_mib} MiB do not fit into {own} MiB: the record contradicts itself"
        return [Finding(subject, prop, Status.UNKNOWN, expected, f"3 x {gpu.buffer_mib} MiB", why, "measure again")]
    return []


# ---------------------------------------------------------------- neighbours


def against_best(evidence: Evidence, subject: str, gpu: BandwidthGpu, kin: Sequence[BandwidthGpu]) -> list[Finding]:
    """The kind of access in which this GPU is furthest behind the best GPU of its board here; [] if it is alone."""
    warn, fail = floor(evidence, "peers_warn_percent"), floor(evidence, "peers_fail_percent")
    if not kin or (warn is None and fail is None):
        return []
    expected = f"less than {warn.percent:g} % below the best ({warn.source})" if warn else "as fast as the best"
    behind = [
        (100 * (1 - mine / best), f"{what} {figure(mine)} of {figure(best)} GB/s")
        for what in gpu.memory
        for mine, best in [
            (_credible(evidence, gpu, what), max(_credible(evidence, other, what) or 0.0 for other in kin))
        ]
        if mine and best
    ]
    if not behind:
        return []  # each figure that is absent has its own finding
    percent, shown = max(behind)
    status = Status(below(max(0.0, percent), warn, fail))
    if status is Status.PASS:
        return [Finding(subject, "memory_against_best", status, expected, shown)]
    why = f"the memory is {percent:.1f} % slower than that of the best GPU of its kind in this machine"
    remedy = f"compare memory clocks and other users of the two; if a second measurement shows the same, {DEFECT}"
    return [Finding(subject, "memory_against_best", status, expected, shown, why, remedy)]


def _credible(evidence: Evidence, gpu: BandwidthGpu, what: str) -> float | None:
    """The speed; None if it is impossible: an impossible figure must not make other GPUs look slow."""
    reached, board = speed(gpu.memory.get(what)), evidence.board(gpu)
    if reached is None or board is None or board.memory_gb_per_s is None:
        return reached
    kind = what.removeprefix("device ")
    return None if _impossible(gpu, board, board.memory_gb_per_s, kind, reached) else reached


def speed(reading: Figure | None) -> float | None:
    """The reading if it is a figure above 0, else None."""
    return reading if isinstance(reading, float) and reading > 0 else None


# ---------------------------------------------------------------- other processes, and slowdowns


def occupied(gpu: BandwidthGpu) -> str:
    """Why the figures of this GPU do not count (another process used it); "" if they do."""
    others = gpu.other_processes
    if isinstance(others, Missing):
        return f"whether another process used the GPU is not known{f' ({others.detail})' if others.detail else ''}"
    unread = ["an entry that is not valid"] if any(isinstance(process, Missing) for process in others) else []
    listed = conditions.shown_processes([process for process in others if not isinstance(process, Missing)][:3])
    names = ", ".join([*([listed] if listed else []), *unread])
    return f"another process used the GPU while it was measured: {names}" if names else ""


def slowdowns(subject: str, gpu: BandwidthGpu) -> Finding:
    """As for matrix products: FAIL for hardware slowdowns, WARN for heat; the power cap is normal for these cards."""
    sampled, read = conditions.masks_of(gpu.telemetry), [conditions.mask(gpu.event_reasons)]
    prop, measured = "bandwidth_slowdowns", "the memory"
    return conditions.slowdowns(subject, prop, read, sampled=sampled, measured=measured, clock="clocks")
