"""nvidia-ml-py against the compiled NVML stand-in, a call a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuprep.sim import driver, gpus, native, nvmlstate

PRELUDE = """
import ctypes, os, sys, warnings
warnings.simplefilter("ignore")
import pynvml as n
n.nvmlLib = ctypes.CDLL(os.environ["LIBRARY"])
n._LoadNvmlLibrary = lambda: None
n.nvmlInit()
def h(i=0): return n.nvmlDeviceGetHandleByIndex(i)
"""


@pytest.fixture(scope="session")
def library() -> Path:
    return native.nvml()


class Machine:
    """A state folder and processes that use it."""

    def __init__(self, folder: Path, library: Path, keys: tuple[str, ...]) -> None:
        self.folder, self.library, self.keys = folder, library, keys
        self.devices = gpus.devices("test", keys)

    def boot(self, version: str = "550.163.01", *, loads: bool = True) -> None:
        drives = tuple(device.bus_id for device in self.devices)
        loaded = driver.Loaded(version, False, drives, {}) if loads else None
        nvmlstate.write_boot(self.folder, loaded, self.devices)

    def ask(self, code: str, **environment: str) -> str:
        """What the code prints; for an NVML error, its number."""
        program = (f"{PRELUDE}\n" if "nvmlInit" not in code else PRELUDE.replace("n.nvmlInit()", "")) + "\n".join(
            [
                "try:",
                *(f"    {line}" for line in code.splitlines()),
                "except n.NVMLError as e: print(f'error {e.value}')",
            ]
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "GPUPREP_SIM_NVML": str(self.folder), "LIBRARY": str(self.library), **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()
