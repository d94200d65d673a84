"""A report of Nsight Systems (.nsys-rep) ► its SQLite export, by nsys itself: the format of reports is not public."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuprep.errors import UsageError
from gpuprep.trace.reading.finding import shown
from gpuprep.untrusted.plaintext import one_line

ENDINGS = (".nsys-rep", ".qdrep")
_SECONDS = 3600
# Where NVIDIA's packages put it without a link in PATH.
PLACES = (
    "/opt/nvidia/nsight-systems*/*/bin/nsys",
    "/opt/nvidia/nsight-systems*/*/target-linux-*/nsys",
    "/usr/local/cuda*/bin/nsys",
)


@contextmanager
def exported(report: Path) -> Iterator[Path]:
    """The export in a folder of its own, which is removed afterwards. UsageError without nsys, or when it fails."""
    nsys = program()
    if not nsys:
        raise UsageError(
            f"{shown(report)}: a report of Nsight Systems; only nsys can open it, and it is not installed here",
            "where nsys is installed: nsys export --type sqlite --lazy=false FILE.nsys-rep, then give the .sqlite",
        )
    with tempfile.TemporaryDirectory(prefix="gpuprep-nsys-") as folder:
        target = Path(folder) / "export.sqlite"
        command = [nsys, "export", "--type", "sqlite", "--output", str(target), str(report.resolve())]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                stdin=subprocess.DEVNULL,
                timeout=_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise UsageError(f"{shown(report)}: nsys export did not end: {one_line(str(error))}") from error
        if done.returncode or not target.is_file():
            words = one_line((done.stderr or done.stdout)[-2000:], 300)
            raise UsageError(f"{shown(report)}: nsys export failed (exit {done.returncode}): {words}")
        yield target


def program() -> str:
    """Path of nsys, "" where there is none; the newest where there are several outside of PATH."""
    if on_path := shutil.which("nsys"):
        return on_path
    others = [str(path) for pattern in PLACES for path in Path("/").glob(pattern.lstrip("/"))]
    return max(others, default="")
