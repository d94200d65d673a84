"""Programs of the system: their output with limits, and what they said where they failed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from typing import Dict, Optional, Sequence

MOST_OUTPUT = 1 << 20
MINUTE = 60.0
HOUR = 60 * MINUTE
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TELLING = re.compile(r"(?i)^E: |error|fatal|cannot|failed|no space|unmet|conflict")


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    errors: str

    @property
    def why(self) -> str:
        """What it said about its failure, in one line."""
        lines = [" ".join(line.split())[:300] for line in (self.errors + "\n" + self.out).splitlines() if line.strip()]
        telling = list(dict.fromkeys(line for line in lines if TELLING.search(line)))
        return " | ".join(telling[:4] or lines[-2:])[:700] or f"exit code {self.code}"


def run(argv: Sequence[str], *, limit: float, environment: Optional[Dict[str, str]] = None) -> Ended:
    """Code 127 where the program is not there, 124 where it took longer than `limit` seconds."""
    env = {
        "PATH": PATH,
        "LC_ALL": "C",
        "HOME": "/root",
        "DEBIAN_FRONTEND": "noninteractive",
        "NEEDRESTART_SUSPEND": "1",
    }
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=errors,
                env={**env, **(environment or {})},
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            return Ended(127, "", f"{argv[0]}: {error.strerror}")
        try:
            code = process.wait(limit)
            late = ""
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            code, late = 124, f"\n{argv[0]} took longer than {limit:g} s"
        return Ended(code, _text(out), _text(errors) + late)


def _text(file) -> str:  # type: ignore[no-untyped-def] # of tempfile, which has no name for its type on Python 3.9
    end = file.seek(0, os.SEEK_END)
    file.seek(max(0, end - MOST_OUTPUT))
    text: str = file.read().decode("utf-8", "replace")
    return text


def tell(text: str) -> None:
    """A line for the journal of systemd and for whoever looks on."""
    sys.stderr.write(f"gpuprep: {text}\n")
    sys.stderr.flush()
