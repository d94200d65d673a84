"""What every page that gpuprep prints has to keep to."""

from __future__ import annotations


def too_wide(page: str, columns: int = 80) -> list[str]:
    """The lines that do not fit; only a path, which must stay whole to be copied, may be wider."""
    return [line for line in page.splitlines() if len(line) > columns and "/" not in line.split()[-1]]
