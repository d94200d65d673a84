"""Which users may an image let in? logins.yml. Only guesses, few and in order.

users("SSH-2.0-OpenSSH_9.6p1 Ubuntu-3ubuntu13", "203.0.113.7", "alice")    ("ubuntu", "azureuser", "alice")
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from gpuprep.catalogue import datafile

LOCAL = "LOCAL"


def users(version: str, address: str, local: str) -> tuple[str, ...]:
    """Users to try, the likeliest first, at most `most` of the file.

    `version` is what sshd says before the login, `address` what the user calls the host, `local` who runs gpuprep.
    """
    data = _data()
    system = next(key for key, entry in data["systems"].items() if entry["says"] in version)
    of_clouds = [
        name
        for entry in data["clouds"].values()
        if address.lower().endswith(entry["ends"])
        for name in entry["users"][system]
    ]
    named = [local if name == LOCAL else name for name in [*of_clouds, *data["systems"][system]["users"]]]
    return tuple(dict.fromkeys(named))[: int(data["most"])]


@cache
def _data() -> dict[str, Any]:
    return datafile.read(Path(__file__).parent / "logins.yml")
