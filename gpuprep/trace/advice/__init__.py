"""What should be changed, and how much time would it save?

    advise(profile, document)     recommendations, those with the largest gain first, and what the profiler cost
    rules()                       all of them, with their texts: rules.yml

A gain is what the step's time would lose if this one thing were changed. Gains of several do not add up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from gpuprep.catalogue import Board
from gpuprep.records import RunRecord
from gpuprep.trace.advice import hostside, layers, machine, optimizers, physics, recorded, tensorcores
from gpuprep.trace.advice.evidence import LETTERS, Evidence
from gpuprep.trace.advice.rulebook import Found, Rule, advice, rules
from gpuprep.trace.columns import Format
from gpuprep.trace.document import Advice, Slowdown, TraceDocument
from gpuprep.trace.profile import Profile

__all__ = ["LOST_KERNELS", "Rule", "advise", "rules"]

RULES: Mapping[str, Callable[[Evidence], Found | None]] = {
    "amp": tensorcores.amp,
    "tf32": tensorcores.tf32,
    "eligible-not-used": tensorcores.eligible_not_used,
    "bad-shape": tensorcores.bad_shape,
    "wave-tail": tensorcores.wave_tail,
    "low-util": hostside.low_util,
    "dataloader": hostside.dataloader,
    "workers0": hostside.workers0,
    "launch-bound": hostside.launch_bound,
    "gaps": hostside.gaps,
    "sync": hostside.sync,
    "pageable": hostside.pageable,
    "h2d-exposed": hostside.h2d_exposed,
    "transposes": layers.transposes,
    "cudnn-bench": layers.cudnn_bench,
    "conv-bias-bn": layers.conv_bias_bn,
    "opt-foreach": optimizers.opt_foreach,
    "zero-grad": optimizers.zero_grad,
    "extra-copy": hostside.extra_copy,
    "elementwise": layers.elementwise,
    "compile": layers.compiled,
    "attention": layers.attention,
    "comm-exposed": machine.comm_exposed,
    "dp-not-ddp": machine.dp_not_ddp,
    "not-nccl": machine.not_nccl,
    "straggler": machine.straggler,
    "alloc": hostside.alloc,
    "mem-high": recorded.mem_high,
    "mem-low": recorded.mem_low,
    "lazy-load": recorded.lazy_load,
    "unstable": recorded.unstable,
    "no-gpu": recorded.no_gpu,
    "lost-kernels": recorded.lost_kernels,
    "no-calls": recorded.no_calls,
    "no-ops": recorded.no_ops,
    "no-steps": recorded.no_steps,
    "no-shapes": recorded.no_shapes,
    "no-memory": recorded.no_memory,
    "no-stacks": recorded.no_stacks,
    "truncated": recorded.truncated,
}
MACHINE = "machine"
PYTORCH = re.compile(r"\bat(en)?::|torch")  # its ops, its kernels, and what torch.compile makes
LOST_KERNELS = "lost-kernels"
NOTHING = 0.002  # of the step
CAUSES, PART = ("opt-foreach", "zero-grad", "sync", "alloc"), 0.25  # of what `launch-bound` tells
SEVERITIES = ("problem", "hint", "missing")


def advise(
    profile: Profile,
    document: TraceDocument,
    *,
    board: Board | None = None,
    record: RunRecord | None = None,
    last_rank: tuple[int, float, float] | None = None,
    timed_step_ns: float | None = None,
) -> tuple[tuple[Advice, ...], Slowdown]:
    """`board`: the GPU of the profile, where it is known better than by its name. `record`: the host's own, beside the
    trace. `last_rank`: of several ranks the one that comes last, ns a step that the others wait for it, and in which
    share of the steps. `timed_step_ns`: a step (ProfilerStep) of the same run without the profiler, ns.
    """
    evidence = Evidence(profile, document, board or _board(profile, document), record)
    evidence.last_rank = last_rank
    if profile.iterations.how == "ProfilerStep":  # otherwise an iteration is not the step that was timed
        evidence.timed_step_ns = timed_step_ns
    nsys = profile.trace.format == Format.NSYS
    native = nsys and not any(PYTORCH.search(name[:LETTERS]) for name in profile.trace.names)
    all_advice = []
    lost = recorded.lost_kernels(evidence) is not None
    for rule, judge in RULES.items():
        # If kernels are missing, a GPU that looks idle may not be idle.
        found_by_rule = None if lost and LOST_KERNELS in rules()[rule].needs else judge(evidence)
        if found_by_rule is not None:
            all_advice.append(_weighed(advice(rules()[rule], found_by_rule, nsys=nsys, native=native), document))
    all_advice += [advice(rules()[MACHINE], finding) for finding in machine.findings(evidence)]
    slowdown = recorded.slowed(evidence)
    # The replay and the evidence refer to each other: breaking the cycle frees 0.4 GB of a large profile at once.
    evidence.replayed = None
    return _ordered(all_advice), slowdown


def _weighed(advice: Advice, document: TraceDocument) -> Advice:
    """A problem whose solution gains nothing in this step is a hint."""
    if advice.severity != "problem" or advice.gain is None:
        return advice
    if advice.gain.us >= NOTHING * document.summary.average_iteration_us:
        return advice
    return replace(advice, severity="hint")


def _board(profile: Profile, document: TraceDocument) -> Board | None:
    used = {device.device for device in document.file.devices if device.kernels}
    boards = [physics.board_of(device) for device in profile.trace.devices if device.index in used]
    return boards[0] if boards else None


def _ordered(all_advice: list[Advice]) -> tuple[Advice, ...]:
    """The largest gain first; those without one, or with nearly the same, by their severity.

    A CPU that cannot launch fast enough is a symptom. What launches at least a quarter of the kernels, or saves a
    quarter of its gain, comes before it: it is the smaller change. So does what a CUDA graph cannot contain.
    """
    launching = next((one for one in all_advice if one.rule == "launch-bound"), None)

    def order(advice: Advice) -> tuple[float, bool, int, float]:
        us = advice.gain.us if advice.gain else 0.0
        if launching is not None and launching.gain is not None and _causes(advice, launching, us):
            us = max(us, launching.gain.us)
        return -float(f"{us:.1e}"), advice is launching, SEVERITIES.index(advice.severity), -us

    return tuple(sorted(all_advice, key=order))


def _causes(advice: Advice, launching: Advice, us: float) -> bool:
    if advice.rule not in CAUSES or advice.severity != "problem" or launching.gain is None:
        return False
    if advice.rule == "sync" and launching.figures["reads"]:
        return True
    launches = advice.figures.get("kernels", 0.0)
    return us >= PART * launching.gain.us or launches >= PART * launching.figures["kernels"]
