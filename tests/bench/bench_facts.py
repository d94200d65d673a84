"""CPU seconds of the agent's facts: of its whole process tree, and of NVML's own calls in it.

Beside them those of a Python that only loads the agent's libraries, and of `nvidia-smi -q`.

    python tests/bench/bench_facts.py            on a GPU machine itself, with gpuprep on PYTHONPATH

Standard library alone: the same text runs inside a simulated VM, where it asks the installed agent.
"""

import json
import os
import resource
import statistics
import subprocess
import sys

ROUNDS = 5
# Times the libraries alone: as seen on an H200 in November 2026 (2.8 to 3.1 times 0.14 s), and a quarter more.
LIMIT = 3.9
LIBRARIES = "import psutil, pynvml, yaml"
INSTALLED = "/opt/gpuprep/agent/current/bin/python"
NVML = """
import resource
from gpuprep.agent.gpu.nvml import Nvml
def now():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
before = now()
with Nvml() as nvml:
    gpus = nvml.gpus()
    for gpu in gpus if isinstance(gpus, list) else []:
        gpu.facts()
print(now() - before)
"""


def cpu(command: list) -> float:  # type: ignore[type-arg]
    """User and system seconds of the command and all that it waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, input=b"{}", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def measure() -> dict:  # type: ignore[type-arg]
    """Medians of the agent ("facts"), NVML's calls in it ("nvml"), "libraries", and nvidia-smi -q ("smi", or null)."""
    python = [INSTALLED, "-I"] if os.path.exists(INSTALLED) else [sys.executable]  # noqa: PTH110
    agent, smi = [*python, "-m", "gpuprep.agent", "facts"], ["nvidia-smi", "-q"]
    cpu(agent)  # compiled, and the module's version remembered
    facts, libraries, nvml, theirs = [], [], [], []
    for _ in range(ROUNDS):
        facts.append(cpu(agent))
        libraries.append(cpu([*python, "-c", LIBRARIES]))
        nvml.append(float(subprocess.check_output([*python, "-c", NVML])))
        try:
            theirs.append(cpu(smi))
        except (OSError, subprocess.CalledProcessError):
            theirs = []
    found = {"facts": facts, "libraries": libraries, "nvml": nvml}
    medians = {what: statistics.median(seconds) for what, seconds in found.items()}
    return {**medians, "smi": statistics.median(theirs) if theirs else None}


if __name__ == "__main__":
    print(json.dumps(measure()))
