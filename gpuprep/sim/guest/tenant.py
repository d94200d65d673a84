"""Another user's program on a GPU (fault other_process): holds memory and computes until it is ended.

python3 -m gpuprep.sim.guest.tenant GPU
"""

from __future__ import annotations

import os
import signal
import socket
import sys

from gpuprep.agent.gpu import simstate

VALUES = {"utilization": 37, "memory_mib": 4096, "graphics": 900, "power_mw": 45000}


def main(arguments: list[str]) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with simstate.load(int(arguments[0]), VALUES):
        _tell_systemd()
        while True:
            signal.pause()


def _tell_systemd() -> None:
    """Only now is the fault played: sd_notify(3), which is a datagram."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
            notify.sendto(b"READY=1", "\0" + address[1:] if address.startswith("@") else address)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
