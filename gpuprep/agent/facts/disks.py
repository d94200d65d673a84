"""Finds empty local disks of a cloud machine: fast, and blank again after each stop of the machine."""

from __future__ import annotations

import re
from typing import Any, Dict, Tuple, Union

from gpuprep.agent.programs.run import run
from gpuprep.records import LocalDisk, Missing
from gpuprep.untrusted.limits import BeyondLimit, json_document

# What each cloud calls such a disk; the disks that outlive the machine have other names ("nvme_card-pd").
MODELS = re.compile(r"Amazon EC2 NVMe Instance Storage|nvme_card\d*|Microsoft NVMe Direct Disk( v\d)?")
NAME = re.compile(r"nvme\d{1,4}n\d{1,4}")
MOST = 32
LSBLK = ("lsblk", "--json", "--bytes", "--output", "NAME,TYPE,SIZE,MODEL,FSTYPE,MOUNTPOINT")


def blank(*, simulated: bool) -> Union[Tuple[LocalDisk, ...], Missing]:
    """The blank local disks. () if `simulated`: the disks belong to the computer that runs the container."""
    if simulated:
        return ()
    output = run(LSBLK)
    if isinstance(output, Missing):
        return output
    try:
        rows = json_document(output)["blockdevices"]
        disks = [LocalDisk(f"/dev/{row['name']}", _model(row), int(row["size"])) for row in rows if _is_blank(row)]
    except (BeyondLimit, ValueError, KeyError, TypeError) as error:
        return Missing("command_failed", f"lsblk: {type(error).__name__}")
    return tuple(disks[:MOST])


def _is_blank(row: Dict[str, Any]) -> bool:
    """Whether lsblk shows no file system, no partitions or volumes on the disk, and no mount point."""
    if row["type"] != "disk" or not MODELS.fullmatch(_model(row)) or not NAME.fullmatch(row["name"]):
        return False
    return not (row["fstype"] or row["mountpoint"] or row.get("children"))


def _model(row: Dict[str, Any]) -> str:
    return str(row["model"] or "").strip()
