"""A kernel module as far as its section .modinfo, made by hand."""

from __future__ import annotations

import struct


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
