"""Are the readings beside NCCL's speeds possible: clock, watts, temperature and PCIe link of a GPU, and NCCL's path?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuprep.catalogue import Board
from gpuprep.checks import conditions
from gpuprep.checks.common import known
from gpuprep.checks.evidence import Evidence
from gpuprep.checks.judges.nccl import ncclways
from gpuprep.checks.links import HALF, RESEAT, Way, capped, generation_of, impossible
from gpuprep.performance.clock_events import IDLE
from gpuprep.records import Finding, Missing, Status
from gpuprep.records.evidence.bandwidth import Pcie
from gpuprep.records.evidence.nccl import Nccl, NcclGpu

CLOCK_SLACK = 1.05  # of the boost clock
IDLE_CLOCK = 0.4  # of the boost
OVER_LINKS = ("P2P", "NVLS")  # what NCCL calls its ways over NVLink
AGAIN = "measure again"


def findings(evidence: Evidence, values: Nccl, gpus: Sequence[NcclGpu], way: ncclways.Way | Missing) -> list[Finding]:
    """UNKNOWN for each GPU with an impossible reading, and if NCCL does not use NVLinks that are up."""
    gpu_findings = []
    for gpu in gpus:
        wrong = list(_wrong(gpu, evidence.board(gpu)))
        if wrong:
            why = f"no GPU has {', '.join(wrong[:3])}: so the measurement or its record is damaged"
            gpu_findings.append(
                Finding(f"gpu {gpu.index}", "nccl_readings", Status.UNKNOWN, "possible figures", wrong[0], why, AGAIN)
            )
    return [*gpu_findings, *_way(values, way)]


def _wrong(gpu: NcclGpu, board: Board | None) -> Iterator[str]:
    boost = board.boost_mhz if board and not board.model.free_clocks else None
    most = boost * CLOCK_SLACK if boost else conditions.ANY_CLOCK_MHZ
    clock, watts, degrees = known(gpu.graphics_clock_mhz), known(gpu.power_watts), known(gpu.temperature_c)
    if clock is not None and not 0 < clock <= most:
        yield f"a clock of {clock:g} MHz"
    own = board.boost_mhz if board else None
    # The highest clock during the run: copies keep a GPU at its boost clock, and what lowers it has a reason.
    if clock is not None and own and 0 < clock < IDLE_CLOCK * own and conditions.mask(gpu.event_reasons) in (0, IDLE):
        yield f"a clock of {clock:g} MHz while it copies, which is an idle GPU's"
    limit = board.power_watts if board else None
    if watts is not None and (watts <= 0 or (limit and watts > conditions.POWER_PEAK * limit)):
        yield f"a power of {watts:g} W"
    if degrees is not None and conditions.no_temperature(degrees, board):
        yield f"a temperature of {degrees:g} °C"
    link = gpu.pcie if isinstance(gpu.pcie, Pcie) else Pcie()
    highest = (Way(link.max_generation, link.max_width), Way(link.device_generation, link.device_width))
    yield from impossible(Way(link.generation, link.width), highest, generation_of(board))


def narrow(evidence: Evidence, gpus: Sequence[NcclGpu]) -> list[Finding]:
    """FAIL for a PCIe link at half of the maximum of GPU and slot. The bandwidth probe checks it more precisely."""
    link_findings = []
    for gpu in gpus:
        link = gpu.pcie if isinstance(gpu.pcie, Pcie) else Pcie()
        board = evidence.board(gpu)
        now, most = (
            capped(Way(*generation_and_width), board)
            for generation_and_width in ((link.generation, link.width), (link.max_generation, link.max_width))
        )
        carries, could = now.gb_per_s, most.gb_per_s
        if carries and could and carries <= HALF * could:
            shown = f"generation {now.generation} x{now.width}"
            why = f"the PCIe link ran at {carries:.1f} of {could:.1f} GB/s while NCCL ran ({shown})"
            expected = f"generation {most.generation} x{most.width}"
            link_findings.append(
                Finding(f"gpu {gpu.index}", "nccl_pcie_link", Status.FAIL, expected, shown, why, RESEAT)
            )
    return link_findings


def _way(values: Nccl, way: ncclways.Way | Missing) -> list[Finding]:
    names = [transport.name for transport in values.chosen.transports] if values.chosen else []
    if isinstance(way, Missing) or way.kind not in ("switch", "direct"):
        return []
    if not any(names) or any(name.startswith(OVER_LINKS) for name in names):
        return []
    shown = ", ".join(names[:3])
    why = f"by its log NCCL uses {shown:.80}, and {way.words} are up: it does not use them, or the record is damaged"
    remedy = "see the NCCL_ variables that are set (NCCL_P2P_DISABLE, NCCL_P2P_LEVEL) and /etc/nccl.conf"
    return [Finding("nccl", "transports", Status.UNKNOWN, "over NVLink", f"{shown:.80}", why, remedy)]
