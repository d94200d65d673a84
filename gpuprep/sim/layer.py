"""Writes files to a layer of a machine's disk, with a system's usual modes."""

from __future__ import annotations

from pathlib import Path


def write(upper: Path, name: str, content: str | bytes, mode: int = 0o644) -> None:
    """Writes a file of the disk with folders that have a system's usual mode, whatever this process's umask is."""
    folder = upper
    for part in Path(name).parent.parts:
        folder /= part
        if not folder.is_dir():
            folder.mkdir()
            folder.chmod(0o755)
    path = folder / Path(name).name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    path.chmod(mode)
