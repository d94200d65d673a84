"""The estimate of a plan as text: minutes, downloads, restarts."""

from __future__ import annotations

from gpuprep.records import Effort, Step


def size(megabytes: int) -> str:
    return f"{megabytes / 1000:.1f} GB" if megabytes >= 1000 else f"{megabytes} MB"


def minutes(seconds: float) -> str:
    """ "about 12 minutes", at least one."""
    took = max(1, round(seconds / 60))
    return f"about {took} minute{'' if took == 1 else 's'}"


def sentence(effort: Effort) -> str:
    """ "about 12 minutes, downloads about 2.7 GB, restarts the machine at most once"."""
    loads = f"downloads about {size(effort.megabytes)}" if effort.megabytes else "downloads nothing large"
    times = {0: "no restart", 1: "restarts the machine at most once"}
    after = times.get(effort.restarts, f"restarts the machine at most {effort.restarts} times")
    return f"{minutes(effort.seconds)}, {loads}, {after}"


def whole(effort: Effort) -> str:
    """The same with where the figures are from."""
    return f"In all {sentence(effort)} ({effort.basis})."


def of_step(step: Step) -> list[str]:
    """["6 min", "120 MB", "may reboot the machine"]; less where nothing is known."""
    costs = [] if step.seconds is None else [f"{step.seconds / 60:.0f} min" if step.seconds >= 60 else "under a minute"]
    costs += [f"downloads {size(step.megabytes)}"] if step.megabytes else []
    return [*costs, *(["may reboot the machine"] if step.may_reboot else [])]
