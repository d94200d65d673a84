"""Types of cloud machines and the GPUs that each has: clouds.yml.

machine("aws", "g4dn.12xlarge")    four T4; None for a type that the catalogue lacks
machine_of(snapshot)               the same, for the machine of a snapshot
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpuprep.catalogue import datafile
from gpuprep.catalogue.boards import Board, boards
from gpuprep.records import Missing, Snapshot
from gpuprep.records.cloudnames import is_name

# The parts of a machine's name (records/cloudnames.py) as the commands of clouds.yml have them.
WORDS = {"aws": ("REGION", "INSTANCE"), "azure": ("INSTANCE",), "gcp": ("PROJECT", "ZONE", "NAME")}


@dataclass(frozen=True)
class CloudMachine:
    """A type of machine. `boards`: which one it is may differ; all are of one model."""

    cloud: str  # "AWS"
    type: str  # "g4dn.12xlarge"
    gpus: int
    boards: tuple[Board, ...]
    vgpu: bool  # it has a part of a GPU
    source: str
    unverified: tuple[str, ...]
    firmware_off: bool = False  # the cloud's own images turn the GPU's firmware off
    report: bool = False  # its user may report its computer as faulty

    @property
    def title(self) -> str:
        """ "AWS g4dn.12xlarge"."""
        return f"{self.cloud} {self.type}"


def machine(provider: str, type_name: str) -> CloudMachine | None:
    return _machines().get((provider, type_name.lower()))


def machine_of(snapshot: Snapshot) -> CloudMachine | None:
    """None outside a cloud, for a type that was not read, and for a type that the catalogue lacks."""
    cloud = snapshot.cloud
    if cloud is None or isinstance(cloud, Missing) or not isinstance(cloud.instance_type, str):
        return None
    return machine(cloud.provider, cloud.instance_type)


def machines() -> tuple[CloudMachine, ...]:
    return tuple(_machines().values())


def name(provider: str) -> str:
    """ "Google Cloud"."""
    return str(_data()["clouds"].get(provider, provider))


def images(board: str) -> tuple[str, ...]:
    """Which images do not start on which machines with this board, a key of the catalogue, and what to take."""
    return tuple(row["says"] for row in _data()["images"] if board in row["boards"])


def restart(provider: str, instance: str) -> str:
    """The commands that give a machine another computer, in backticks; "" for a cloud that the catalogue lacks."""
    return _command("restart", provider, instance)


def report(provider: str, instance: str) -> str:
    """The command that reports a machine's computer as faulty; "" for a cloud that has none."""
    return _command("report", provider, instance)


def _command(kind: str, provider: str, instance: str) -> str:
    """`instance` is a text of the record: one that is no name there is not put in, and its word stays."""
    words: dict[str, str] = {}
    if is_name(provider, instance):
        parts = [instance] if provider == "azure" else instance.split("/")
        words = dict(zip(reversed(WORDS[provider]), reversed(parts), strict=False))
    text = str(_data()[kind].get(provider, ""))
    return re.sub(r"\b[A-Z]{4,}\b", lambda found: shlex.quote(words.get(found[0], found[0])), text)


@cache
def _machines() -> Mapping[tuple[str, str], CloudMachine]:
    data = _data()
    return {
        (row["cloud"], machine_type.lower()): CloudMachine(
            data["clouds"][row["cloud"]],
            machine_type,
            row["gpus"],
            tuple(boards()[key] for key in row["boards"]),
            row.get("vgpu", False),
            data["sources"][row["source"]],
            tuple(row.get("unverified", ())),
            row.get("firmware_off", False),
            row.get("report", False),
        )
        for row in data["machines"]
        for machine_type in row["types"]
    }


@cache
def _data() -> Mapping[str, Any]:
    return datafile.read(Path(__file__).parent / "clouds.yml")


# ---------------------------------------------------------------- users of images

# Which users may an image let in? logins.yml. Only guesses, few and in order.
#
# image_users("SSH-2.0-OpenSSH_9.6p1 Ubuntu-3ubuntu13", "203.0.113.7", "alice")    ("ubuntu", "azureuser", "alice")


LOCAL = "LOCAL"


def image_users(version: str, address: str, local: str) -> tuple[str, ...]:
    """Users to try, the likeliest first, at most `most` of the file.

    `version` is what sshd says before the login, `address` what the user calls the host, `local` who runs gpuprep.
    """
    data = _logins()
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
def _logins() -> dict[str, Any]:
    return datafile.read(Path(__file__).parent / "logins.yml")
