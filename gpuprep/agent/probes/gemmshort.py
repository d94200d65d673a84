"""Times products that end before the host has started the next product.

The host needs 10 to 25 us to start a product, so timing a product of 5 us alone would measure the host. Short products
are timed in groups: a kernel keeps the GPU waiting until the host has put a whole group on the stream.
"""

from __future__ import annotations

import math
from typing import Callable, List

from gpuprep.agent.probes.burst import Rule
from gpuprep.agent.probes.cudadevice import CudaDevice

SHORT_MS = 0.04  # above this the GPU is slower than the host
GROUP_MS = 0.4  # about as much work in one group
MOST_IN_GROUP = 32
HOST_NS = 40_000  # to start one product, with reserve
SAMPLES = 20  # groups that tell which algorithm is the fastest: no power cap acts on so little work
MOST_SAMPLES = 32  # groups at once


def group_of(milliseconds: float) -> int:
    """How many products make one sample; 1: each product is timed alone."""
    if milliseconds >= SHORT_MS:
        return 1
    return max(4, min(MOST_IN_GROUP, math.ceil(GROUP_MS / max(milliseconds, 1e-6))))


def rule_of(rule: Rule, group: int) -> Rule:
    """The rule for a burst of the same work whose samples are groups."""
    seconds = {name: getattr(rule, name) / group for name in ("short_seconds", "most_seconds", "least_seconds")}
    return rule._replace(**seconds)


def samples(device: CudaDevice, run: Callable[[], None], group: int, count: int) -> List[float]:
    """`count` samples: mean milliseconds of one product in a group."""
    milliseconds: List[float] = []
    for _ in range(min(count, MOST_SAMPLES)):
        device.launch("hold", 1, 1, group * HOST_NS)
        milliseconds.append(device.elapsed_milliseconds([run] * group) / group)
    return milliseconds
