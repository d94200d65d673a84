"""Before and after a build, as root. `sealing.py plan DIR` writes into the scratch folder DIR what build.sh reads; the
manifest of what came out is written by install.py, over its own copy. The last line on stderr says what is wrong.
"""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from parts import Refused, components, flags, licence
from state import Spec, sha256


def files_of(folder: Path) -> dict[str, str]:
    """Relative path -> sha256 of every file but the manifest itself."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path != folder / "manifest.json")
    return {str(path.relative_to(folder)): sha256(path) for path in files}


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    text = json.dumps({"schema_version": 1, **manifest, "files": files_of(folder)}, indent=1) + "\n"
    (folder / "manifest.json").write_text(text, encoding="utf-8")


def plan(folder: Path, spec: Spec) -> None:
    (folder / "components").write_text("".join(f"{name}\n" for name in components(spec)), encoding="utf-8")
    (folder / "flags").write_text("".join(f"{flag}\n" for flag in flags(spec)), encoding="utf-8")


def about(spec: Spec, scratch: Path, seconds: float) -> dict[str, Any]:
    """What a build's manifest says beside its files."""
    return {
        "name": "ffmpeg",
        "version": str(spec["ffmpeg"]),
        "headers_version": str(spec["headers"]),
        "key": spec["key"],
        "os": spec["os"],
        "arch": spec["arch"],
        "npp": spec["npp"],
        # libnpp makes the build nonfree: it may be used, and not be given to others.
        "redistributable": not spec["npp"],
        "licence": licence(spec),
        "libraries": spec.get("libraries", []),
        "parts": spec["parts"],
        "configure": flags(spec),
        "sources": {"ffmpeg": sha256(scratch / "ffmpeg.tar"), "headers": sha256(scratch / "headers.tar")},
        "compilers": {name: first_line([name, "--version"]) for name in ("gcc", "clang", "nasm", "make")},
        "built_on": platform.node(),
        "build_seconds": seconds,
    }


def first_line(command: list[str]) -> str:
    if shutil.which(command[0]) is None:
        return "not used"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).partition("\n")[0].strip()


if __name__ == "__main__":
    scratch = Path(sys.argv[2])
    try:
        plan(scratch, json.loads((scratch / "spec.json").read_text(encoding="utf-8")))
    except Refused as refusal:
        sys.exit(str(refusal))
