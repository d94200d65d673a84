"""A kernel module as far as its section .modinfo, made by hand; what a simulated machine sees of its disk at boot."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from gpuprep.sim import boot, machinedisk, modprobe, moduleinfo


def module(fields: str = "version=550.163.01\0license=NVIDIA\0") -> bytes:
    """An ELF file of 64 bits with two sections: the names of sections, and .modinfo with `fields`."""
    names, info = b"\0.shstrtab\0.modinfo\0", fields.encode()
    head = struct.calcsize("<16sHHIQQQIHHHHHH")
    table = head + len(names) + len(info)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 1, 62, 1, 0, 0, table, 0, head, 0, 0, 64, 3, 1
    )  # fmt: skip
    sections = [(0, 0, 0), (1, head, len(names)), (11, head + len(names), len(info))]
    rows = b"".join(struct.pack("<IIQQQQIIQQ", name, 1, 0, 0, at, size, 0, 0, 1, 0) for name, at, size in sections)
    return header + names + info + rows


def options(root: Path) -> dict[str, Any]:
    """Of the kernel's modules, by the disk's files for modprobe."""
    with machinedisk.Disk(root) as disk:
        return dict(modprobe.read(disk).options)


def newest_kernel(root: Path) -> str:
    with machinedisk.Disk(root) as disk:
        return boot.newest_kernel(disk)


def small(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """A module has at most so many bytes."""
    monkeypatch.setattr(moduleinfo, "MOST_BYTES", most)


def loaded(root: Path, kernel: str = "6.1") -> modprobe.Module | None:
    """The NVIDIA module that modprobe loads. Raises SimError where that is none."""
    with machinedisk.Disk(root) as disk:
        return modprobe.nvidia_module(disk, kernel, modprobe.read(disk))
