"""Commands on a terminal with a store of their own."""

from __future__ import annotations

from pathlib import Path


def folders(tmp_path: Path) -> dict[str, str]:
    return {f"XDG_{name}_HOME": str(tmp_path / name.lower()) for name in ("STATE", "CACHE", "CONFIG")}
