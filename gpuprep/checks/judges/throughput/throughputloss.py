"""Why video engines were below their floor, and why their clock was low, from readings during the run. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuprep.checks.common import RESTART, known
from gpuprep.checks.floors import percents
from gpuprep.records import Missing
from gpuprep.records.evidence.throughput import Step

BUSY_PERCENT = 90  # an engine that is used less waits for someone
CPU_FULL_PERCENT = 85
STORAGE_PERCENT = 10  # of all CPUs' time
MISSING_ENGINES = 0.75  # a share of one: so much less than all is an engine that is not there
SLOW = f"{RESTART}; if it stays so, ask the provider for another GPU"
ENGINE = {"decode": "decoders", "encode": "encoders"}
# NVML's nvmlClocksEventReasons, the ones that lower a clock.
LOWERS = {
    0x2: (
        "application clocks are set below the highest",
        "`gpuprep tune HOST --profile PROFILE` sets them (tuning.clocks in the profile)",
    ),
    0x4: (
        "the power limit holds it back",
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
    0x80: ("an external power brake holds it back", "ask the provider: this machine's power supply is at fault"),
}


@dataclass(frozen=True)
class Loss:
    reason: str
    remedy: str
    missing_engines: bool = False


def explain(steps: Sequence[Step], best: Step, bound: str, engines: int, rate: float) -> Loss:
    """Why the step with the most frames per second was slow. `bound`: the limiting engines, `rate`: fps of one."""
    if best.died and not isinstance(best.died, Missing):
        line = best.died_because or "they died"
        return Loss(
            f"{best.died} of {best.sessions} sessions ended early ({line}), so the engines were not filled",
            "repair that first, then measure again",
        )
    used = known(best.decoder_utilization_percent if bound == "decode" else best.encoder_utilization_percent)
    if used is None:
        reason = f"NVML did not say how busy the {ENGINE[bound]} were, so the cause is not known"
        return Loss(reason, "look at `nvidia-smi dmon -s u` while FFmpeg runs")
    if used < BUSY_PERCENT:
        return _waited(best, bound, used)
    alone = next((fps for step in steps if step.sessions == 1 and (fps := known(step.fps))), None)
    works = (known(best.fps) or 0.0) / alone if alone else float(engines)
    if alone is not None and alone >= 0.85 * rate and works < engines - MISSING_ENGINES:
        return Loss(
            f"one session alone reaches {alone:.0f} of {rate:.0f} fps, all together no more than {works:.1f} of them: "
            f"it looks like fewer than {engines} {ENGINE[bound]} at work",
            "ask the provider whether this is a slice of a GPU (MIG, vGPU) or a GPU with engines switched off",
            missing_engines=True,
        )
    return Loss(
        f"the {ENGINE[bound]} were {used:.0f} % busy and yet slow: each gives less than its rate at this clock",
        SLOW,
    )


def _waited(best: Step, bound: str, used: float) -> Loss:
    sentence = f"the {ENGINE[bound]} were only {percents(used, BUSY_PERCENT)[0]} % busy: "
    storage, cpu = known(best.io_wait_percent), known(best.cpu_percent)
    if storage is not None and storage >= STORAGE_PERCENT:
        return Loss(
            f"{sentence}they waited for the storage (the CPUs spent {storage:.0f} % of their time waiting for it)",
            "keep inputs on a faster disk or in memory",
        )
    if cpu is not None and cpu >= CPU_FULL_PERCENT:
        return Loss(
            f"{sentence}they waited for the CPU, which was {cpu:.0f} % busy",
            "use a machine with more CPU cores for this GPU, or end other work on it",
        )
    seen = "how busy its CPU and storage were could not be read"
    if storage is not None and cpu is not None:
        seen = f"though neither CPU nor storage was full (CPU {cpu:.0f} % busy)"
    return Loss(
        f"{sentence}they waited for the host, {seen}; more sessions did not help",
        "look for a slow PCIe link, a CPU in power-saving mode, or limits of the virtual machine",
    )


def low_clock(event_reasons: int | None) -> tuple[str, str]:
    """(why the clock was low, what to do) from NVML's event reasons."""
    if event_reasons is None:
        return "NVML did not say why", "look at `nvidia-smi -q -d PERFORMANCE` under load"
    known = [words for bit, words in LOWERS.items() if event_reasons & bit]
    if not known:
        return f"NVML names no reason (event reasons {event_reasons:#x})", "look at `nvidia-smi -q -d CLOCK` under load"
    return "; ".join(why for why, _ in known), known[-1][1]
