"""Was a GPU undisturbed while its video engines were measured, was their clock lowered, is it the right GPU?"""

from __future__ import annotations

from collections.abc import Sequence

from gpuprep import catalogue
from gpuprep.checks import conditions, links
from gpuprep.checks.common import skip
from gpuprep.checks.evidence import Evidence
from gpuprep.checks.floors import percents
from gpuprep.checks.judges.throughput.sense import contradiction
from gpuprep.checks.judges.throughput.series import Judged, positive
from gpuprep.records import Finding, Missing, Status
from gpuprep.records.evidence.throughput import Pcie, ThroughputGpu

CLOCK_FLOOR, CLOCK_FAIL = 90.0, 50.0  # per cent of the engines' highest clock
CLOCK_SLACK = 0.03  # by which the highest clock of a board may differ from the catalogue's
IDLE_PERCENT = 5  # use of an engine before the measurement that does not mean another program
AGAIN = "measure again"
# NVML's nvmlClocksEventReasons, the ones that lower a clock.
LOWERS = {
    0x2: (
        "application clocks are set below the highest",
        "`gpuprep tune HOST --profile PROFILE` sets them (tuning.clocks in the profile)",
    ),
    0x4: (
        "the power limit lowers it",
        (
            "see that the power limit is the card's own (tuning.power_limit_watts: default, then "
            "`gpuprep tune HOST --profile PROFILE`)"
        ),
    ),
    0x8: (
        "hardware slowdown: power supply or temperature",
        "ask the provider: this machine's power or cooling is at fault",
    ),
    0x20: ("it is too warm (software thermal slowdown)", "ask the provider: this machine's cooling is at fault"),
    0x40: ("it is too hot (hardware thermal slowdown)", "ask the provider: this machine's cooling is at fault"),
    0x80: ("an external power brake lowers it", "ask the provider: this machine's power supply is at fault"),
}


def findings(evidence: Evidence, gpu: ThroughputGpu, series: Sequence[Judged], published: bool) -> list[Finding]:
    findings = _identity(evidence, gpu)
    if not published or not isinstance(gpu.other_processes, Missing):
        findings.append(alone(gpu, published)[1])
    steps = [step for one in series for step in one.delivered]
    read = [step.event_reasons for step in steps]
    known = [conditions.mask(one) for one in read]
    if steps and not (published and all(one is None for one in read)):
        findings.append(conditions.slowdowns(f"gpu {gpu.index}", "video_slowdowns", known))
    hot = [(step.temperature_c, mask) for step, mask in zip(steps, known, strict=True)]
    findings += conditions.heat(f"gpu {gpu.index}", "video_temperature", evidence.board(gpu), hot)
    return [*findings, *_link(gpu, evidence.board(gpu)), *_clock(gpu, series)]


def _link(gpu: ThroughputGpu, board: catalogue.Board | None) -> list[Finding]:
    """UNKNOWN for an impossible PCIe link, with which the traffic is compared."""
    link = gpu.pcie if isinstance(gpu.pcie, Pcie) else Pcie()
    read = (links.Way(link.max_generation, link.max_width),)
    wrong = next(links.impossible(links.Way(link.generation, link.width), read, links.generation_of(board)), "")
    if not wrong:
        return []
    why = f"no GPU has {wrong}: so the measurement or its record is damaged"
    return [Finding(f"gpu {gpu.index}", "video_pcie_link", Status.UNKNOWN, "a possible link", wrong, why, AGAIN)]


def alone(gpu: ThroughputGpu, published: bool = False) -> tuple[str, Finding]:
    """(why a low figure does not count, or ""; the finding). Checks other processes, and idle engines before."""
    subject, prop = f"gpu {gpu.index}", "video_alone"
    why, finding = conditions.alone(subject, prop, gpu.other_processes)
    if why and not (published and isinstance(gpu.other_processes, Missing)):
        return why, finding
    used = [gpu.before.encoder_utilization_percent, gpu.before.decoder_utilization_percent]
    known = [percent for percent in used if percent is not None]
    expected = "idle engines before the measurement"
    remedy = "stop what uses the GPU (nvidia-smi dmon -s u shows it), then measure again"
    if len(known) < len(used) and not published:
        why = "how busy its engines were before the measurement is not recorded"
        return why, Finding(subject, prop, Status.UNKNOWN, expected, "not known", why, AGAIN)
    if any(not 0 <= percent <= 100 for percent in known):
        why = "the recorded use of its engines before the measurement is impossible"
        return why, Finding(subject, prop, Status.UNKNOWN, expected, f"{max(known):g} %", why, AGAIN)
    most = max(known, default=0.0)
    if most > IDLE_PERCENT:
        why = f"its engines were {most:.0f} % busy before the measurement"
        return why, Finding(subject, prop, Status.UNKNOWN, expected, f"{most:.0f} % busy", why, remedy)
    return "", Finding(subject, prop, Status.PASS, "no other work on the engines", "none")


def _identity(evidence: Evidence, gpu: ThroughputGpu) -> list[Finding]:
    """UNKNOWN if the record names two different GPUs."""
    board, by_name, facts = evidence.board(gpu), catalogue.board("", name=gpu.name), evidence.facts(gpu)
    why = ""
    if board and by_name and board.model.key != by_name.model.key:
        ids = f"the device id {gpu.pci_device_id} of a {board.model.title}"
        why = f"the name is that of a {by_name.model.title}, and {ids}"
    elif facts and gpu.pci_device_id and facts.pci_device_id.lower() != gpu.pci_device_id.lower():
        why = f"NVML's facts have the device id {facts.pci_device_id} for it, and the measurement {gpu.pci_device_id}"
    if not why:
        return []
    return [Finding(f"gpu {gpu.index}", "video_gpu", Status.UNKNOWN, "one GPU", "two", why, AGAIN)]


def _clock(gpu: ThroughputGpu, series: Sequence[Judged]) -> list[Finding]:
    """The engines' clock under load, compared with the highest; the rates are judged at the measured clock."""
    # Engines that are hardly used may clock lower; a clock that contradicts its series is no reading.
    best = [judged.best for judged in series if not contradiction(judged)]
    steps = [step for step in best if step is not None and positive(step.video_clock_mhz)]
    if not steps:
        return []
    subject, prop = f"gpu {gpu.index}", "video_clock"
    board = next((judged.board for judged in series if judged.board), None)
    lowest = min(steps, key=lambda step: positive(step.video_clock_mhz))
    clock, reported = positive(lowest.video_clock_mhz), positive(gpu.max_video_clock_mhz)
    known = float(board.video_mhz or 0) if board and "video_mhz" not in board.unverified else 0.0
    highest = reported or known
    if not highest:
        reason = "NVML names no highest clock of the video engines on this driver"
        return [skip(subject, prop, expected="near its highest", actual=f"{clock:.0f} MHz", reason=reason)]
    expected = f"at least {CLOCK_FLOOR:g} % of {highest:.0f} MHz"
    if reported and known and abs(reported - known) > CLOCK_SLACK * known:
        why = f"NVML says that its highest video clock is {reported:.0f} MHz, and boards of its kind have {known:.0f}"
        return [Finding(subject, prop, Status.UNKNOWN, expected, f"{clock:.0f} MHz", why, AGAIN)]
    if clock >= highest * CLOCK_FLOOR / 100:
        return [Finding(subject, prop, Status.PASS, expected, f"{clock:.0f} MHz")]
    why, remedy = _low_clock(lowest.event_reasons)
    share = percents(100 * clock / highest, CLOCK_FLOOR)[0]
    reason = f"the video engines ran at {share} % of their clock: {why}"
    status = Status.FAIL if clock < highest * CLOCK_FAIL / 100 else Status.WARN
    return [Finding(subject, prop, status, expected, f"{clock:.0f} MHz", reason, remedy)]


def _low_clock(event_reasons: int | None) -> tuple[str, str]:
    """(why the clock was low, what to do) from NVML's event reasons."""
    if event_reasons is None:
        return "NVML did not say why", "look at `nvidia-smi -q -d PERFORMANCE` under load"
    known = [words for bit, words in LOWERS.items() if event_reasons & bit]
    if not known:
        return f"NVML names no reason (event reasons {event_reasons:#x})", "look at `nvidia-smi -q -d CLOCK` under load"
    return "; ".join(why for why, _ in known), known[-1][1]
