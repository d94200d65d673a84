"""Builds wheel and sdist of the last commit twice, in copies that differ in all that must not count, and compares.

    python .ci/release.py FOLDER      (make release)

The copies differ in folder, umask, time zone, locale and the files' times. Writes wheel, sdist and the wheel's bill of
materials into FOLDER and prints their sha256; ends with 1 and writes nothing where the two builds differ.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
# umask, environment and time of the files of each build.
PLACES: tuple[tuple[int, dict[str, str], int], ...] = (
    (0o022, {"TZ": "UTC", "LC_ALL": "C.UTF-8"}, 1_600_000_000),
    (0o077, {"TZ": "Pacific/Kiritimati", "LC_ALL": "C", "PYTHONHASHSEED": "7"}, 1_700_000_000),
)


def copied(source: Path, target: Path, umask: int, time: int) -> None:
    """The files of the last commit in a new folder, as a clone with this umask at this time would have them."""
    target.mkdir(parents=True)
    archive = subprocess.run(["git", "-C", source, "archive", "HEAD"], capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", target, "--no-same-permissions"], input=archive, check=True, umask=umask)
    for path in target.rglob("*"):
        os.utime(path, (time, time))


def build(source: Path, target: Path, umask: int, environment: dict[str, str], epoch: str) -> None:
    """Wheel and sdist of the folder `source` in the folder `target`; `epoch` is the time that is written into them."""
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", target],
        cwd=source, capture_output=True, text=True, check=False, umask=umask,
        env={**os.environ, **environment, "SOURCE_DATE_EPOCH": epoch},
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"the build failed: {done.stderr.strip()}")


def digests(folder: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def main() -> int:
    dist = Path(sys.argv[1])
    told = subprocess.run(
        ["git", "-C", ROOT, "log", "-1", "--format=%ct %H"], capture_output=True, text=True, check=True
    )
    epoch, commit = told.stdout.split()
    with tempfile.TemporaryDirectory() as scratch:
        made: list[Path] = []
        for number, (umask, environment, time) in enumerate(PLACES):
            source, target = Path(scratch, "copy" * (number + 1)), Path(scratch, f"dist-{number}")
            copied(ROOT, source, umask, time)
            build(source, target, umask, environment, epoch)
            made.append(target)
        first, second = map(digests, made)
        if first != second:
            print(f"two builds of {commit} differ:\n  {first}\n  {second}", file=sys.stderr)
            return 1
        dist.mkdir(exist_ok=True)
        for path in made[0].iterdir():
            shutil.copyfile(path, dist / path.name)
        (wheel,) = made[0].glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            (bill,) = (name for name in archive.namelist() if name.endswith("/sboms/gpuprep.cdx.json"))
            (dist / "gpuprep.cdx.json").write_bytes(archive.read(bill))
    print(f"Built twice from {commit}, byte for byte the same:")
    for name, digest in {**first, "gpuprep.cdx.json": digests(dist)["gpuprep.cdx.json"]}.items():
        print(f"{digest}  {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
