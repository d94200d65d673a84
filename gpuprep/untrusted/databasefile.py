"""Is a file an SQLite database? By its first bytes."""

from __future__ import annotations

from pathlib import Path

MAGIC = b"SQLite format 3\0"  # https://www.sqlite.org/fileformat.html, 1.3.1


def is_database(path: Path) -> bool:
    """Whether it begins as one does. An empty file does not. Raises OSError where it cannot be read."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC
