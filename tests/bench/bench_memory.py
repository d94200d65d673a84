"""Peak memory of the agent on the host, beside that of a Python that has only loaded the agent's libraries.

    python3 tests/bench/bench_memory.py          on a machine with the agent and a schedule, as root

Standard library alone: the same text runs inside a simulated VM. A peak is that of one process, as the kernel counted
it (ru_maxrss): of the command, or of the largest one that it started.
"""

import json
import os
import subprocess
import sys

PYTHON = "/opt/gpuprep/agent/current/bin/python"
COMMANDS = {
    "libraries": [PYTHON, "-I", "-c", "import pynvml, yaml"],
    "gpuprep-agent facts": ["/usr/local/bin/gpuprep-agent", "facts"],
    "gpuprep-drift run": ["/usr/local/bin/gpuprep-drift", "run"],
    "gpuprep-drift npd": ["/usr/local/bin/gpuprep-drift", "npd"],
}
# Times the libraries alone: as seen in November 2026 (1.6, 2.1 and 1.1 times 16 MiB), and a quarter more.
LIMITS = {"gpuprep-agent facts": 2.0, "gpuprep-drift run": 2.6, "gpuprep-drift npd": 1.4}


def peak(command: list) -> float:  # type: ignore[type-arg]
    """MiB. Ends the program where the command does not come to a verdict."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    process.stdin.write(b"{}")  # type: ignore[union-attr]
    process.stdin.close()  # type: ignore[union-attr]
    _, status, used = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 1):
        sys.exit(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    return used.ru_maxrss / 1024


if __name__ == "__main__":
    print(json.dumps({what: peak(command) for what, command in COMMANDS.items()}))
