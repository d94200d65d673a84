"""A program under `nsys profile`, and its report as an export that gpuprep reads."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from collections.abc import Sequence
from pathlib import Path

from gpuprep.errors import UsageError
from gpuprep.trace.recording import children
from gpuprep.trace.recording.programs import Recorded, Wish, name_of
from gpuprep.untrusted.plaintext import one_line

EXPORT_SECONDS = 3600


def record_with_nsys(words: Sequence[str], wish: Wish) -> Recorded:
    """Run the program to its end, then export the report. Raises UsageError where nsys is not installed."""
    nsys = shutil.which("nsys")
    if nsys is None:
        raise UsageError("nsys is not installed", "install Nsight Systems, or leave --with nsys out")
    name = name_of(words)
    report, export = wish.folder / f"{name}.nsys-rep", wish.folder / f"{name}.nsys.sqlite"
    code = children.run(
        [nsys, "profile", "--trace=cuda,nvtx", "--cuda-graph-trace=node", "--pytorch=autograd-shapes-nvtx",
         "--force-overwrite=true", f"--output={report}", "--", *words],
        os.environ,
    )  # fmt: skip
    if not report.is_file():
        return Recorded(code, (), "nsys wrote no report: its own words are above")
    made = subprocess.run(
        [nsys, "export", "--type=sqlite", "--force-overwrite=true", f"--output={export}", str(report)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=EXPORT_SECONDS, check=False,
    )  # fmt: skip
    if made.returncode or not export.is_file():
        message = one_line((made.stderr or made.stdout).strip(), 300)
        return Recorded(code, (), f"nsys export failed: {message}")
    without_environment(export)
    report.unlink()  # it holds the environment, and cannot be rid of it
    return Recorded(code, (export,))


def without_environment(export: Path) -> None:
    """nsys writes the whole environment into its report. Raises UsageError where it cannot be taken out."""
    connection = sqlite3.connect(export, isolation_level=None)
    try:
        columns = {row[1] for row in connection.execute("PRAGMA table_info(TARGET_INFO_SYSTEM_ENV)")}
        named = [
            f"{column} LIKE '%Environment%'" for column in ("name", "nameEnum", "devStateName") if column in columns
        ]
        if named:
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute(f"DELETE FROM TARGET_INFO_SYSTEM_ENV WHERE {' OR '.join(named)}")
            connection.execute("VACUUM")
    except sqlite3.Error as error:
        export.unlink(missing_ok=True)
        raise UsageError(f"{export.name}: the recorded environment cannot be taken out: {error}") from error
    finally:
        connection.close()
