"""Local disks of cloud machines: which ones hold nothing, and how a plan offers them. lsblk's answers are synthetic."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest
from agentreadings import blank_disks, folders
from builders import bare_snapshot, load

from gpuprep import records
from gpuprep.agent.programs import run
from gpuprep.desired import profile, state

AWS = "Amazon EC2 NVMe Instance Storage"


def disk(name: str = "nvme1n1", model: str | None = AWS, **more: Any) -> dict[str, Any]:
    row = {"name": name, "type": "disk", "size": 125_000_000_000, "model": model, "fstype": None, "mountpoint": None}
    return {**row, **more}


@pytest.fixture
def lsblk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of that name, which says what the file beside it has."""
    program = tmp_path / "lsblk"
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/said\n")
    program.chmod(0o755)
    monkeypatch.setattr(run, "SEARCH_PATH", f"{tmp_path}:{os.defpath}")
    return tmp_path / "said"


def says(lsblk: Path, *rows: Any) -> object:
    lsblk.write_text(json.dumps({"blockdevices": list(rows)}))
    return blank_disks()


@pytest.mark.parametrize("model", [AWS + "      ", "nvme_card", "nvme_card12", "Microsoft NVMe Direct Disk v2"])
def test_a_disk_of_each_cloud_that_holds_nothing(lsblk: Path, model: str) -> None:
    root = disk("nvme0n1", "Amazon Elastic Block Store", children=[disk("nvme0n1p1", None, type="part")])
    assert says(lsblk, root, disk(model=model)) == (records.LocalDisk("/dev/nvme1n1", model.strip(), 125_000_000_000),)


@pytest.mark.parametrize(
    "row",
    [
        disk(model="Amazon Elastic Block Store"),
        disk(model="nvme_card-pd"),
        disk(model=None),
        disk(model="SAMSUNG MZVL21T0HCLR"),
        disk(fstype="ext4"),
        disk(fstype="LVM2_member"),
        disk(mountpoint="/data"),
        disk(children=[disk("nvme1n1p1", None, type="part")]),
        disk(type="loop"),
        disk("../../etc/passwd"),
        disk("nvme1n1; reboot"),
    ],
)
def test_any_other_disk_is_left_alone(lsblk: Path, row: dict[str, Any]) -> None:
    assert says(lsblk, row) == ()


@pytest.mark.parametrize(
    "said", ["", "{}", "[]", '{"blockdevices": 7}', '{"blockdevices": [{"name": "nvme1n1"}]}', "\x00", "[" * 5000]
)
def test_what_lsblk_cannot_say_is_missing(lsblk: Path, said: str) -> None:
    lsblk.write_text(said)
    assert isinstance(blank_disks(), records.Missing)


def test_many_disks_are_bounded_and_a_simulated_machine_has_none_of_its_computers(lsblk: Path) -> None:
    found = says(lsblk, *(disk(f"nvme{number}n1") for number in range(500)))
    assert isinstance(found, tuple)
    assert len(found) == 32
    assert blank_disks(simulated=True) == ()


def machine(**facts: Any) -> records.Snapshot:
    return dataclasses.replace(bare_snapshot("ubuntu2404"), **facts)


def decisions(snapshot: records.Snapshot, **parts: Any) -> str:
    return "\n".join(state.resolve(load("t4", **parts), snapshot).decisions)


def test_a_plan_offers_the_disk_for_the_mount() -> None:
    two = (
        records.LocalDisk("/dev/nvme1n1", AWS, 125_000_000_000),
        records.LocalDisk("/dev/nvme2n1", AWS, 900_000_000_000),
    )
    said = decisions(machine(blank_disks=two))
    assert "empty local NVMe: /dev/nvme1n1 (125 GB), /dev/nvme2n1 (900 GB)" in said
    assert "extras.mount: {device: LABEL=scratch, path: /scratch, fstype: ext4}" in said
    mount = {"mount": profile.MountWish("LABEL=scratch", "/scratch", "ext4", "defaults,nofail")}
    assert "local NVMe" not in decisions(machine(blank_disks=two), extras=mount)
    assert "local NVMe" not in decisions(machine(blank_disks=records.Missing("command_not_found", "lsblk")))
    assert "and 6 more" in decisions(machine(blank_disks=two * 5))


def test_a_plan_says_what_aws_does_with_the_firmware_of_g4dn() -> None:
    aws = records.CloudFacts("aws", "g4dn.xlarge", "DMI")
    assert "AWS's own images for g4dn.xlarge turn it off" in decisions(machine(cloud=aws))
    off = {"gpu_firmware": False, "flavour": "proprietary"}
    assert "firmware" not in decisions(machine(cloud=aws), driver=off)
    assert "firmware" not in decisions(machine(cloud=None))


def test_a_folder_is_where_its_links_lead_and_one_to_come_is_where_it_would_be_made(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/proc")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    link, new, circle = str(tmp_path / "link"), str(tmp_path / "not/yet"), str(tmp_path / "circle/x")
    free, places = folders(link, new, circle, str(tmp_path))
    assert places[link].mount == "/proc"
    assert places[new] == places[circle] == places[str(tmp_path)]
    assert free[new] == pytest.approx(free[str(tmp_path)], rel=0.1)  # others write to the same disk
    assert free[new] > 0
