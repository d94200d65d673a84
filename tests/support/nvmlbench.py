"""The NVML stand-in of simulated machines, compiled for this computer, and a simulated machine's boot."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuprep.agent.gpu import simgpu, simstate
from gpuprep.agent.probes import simulated
from gpuprep.records import GpuFacts, from_json_value
from gpuprep.sim import boot, controller, driver, faults, gpus, native, nvmlstate, store

# nvidia-ml-py, with h(0) the first GPU.
PRELUDE = """
import ctypes, os, sys, warnings
warnings.simplefilter("ignore")
import pynvml as n
n.nvmlLib = ctypes.CDLL(os.environ["LIBRARY"])
n._LoadNvmlLibrary = lambda: None
n.nvmlInit()
def h(i=0): return n.nvmlDeviceGetHandleByIndex(i)
"""
FAULTS = faults.kinds()  # of `gpuprep sim fault`

READ = """
import json
from gpuprep.agent.facts.system import read_gpus
from gpuprep.records import to_json_value
gpus, version = read_gpus()
print(json.dumps([to_json_value(gpus), to_json_value(version)]))
"""


TUNE = """
import json, sys
from pathlib import Path
from gpuprep.agent.gpu.nvml import Nvml
from gpuprep.agent.tuning.tune import tune
from gpuprep.agent.tuning.tunesettings import load
from gpuprep.records import to_json_value
action, settings, locks = sys.argv[1:]
with Nvml() as nvml:
    report = tune(action, nvml.gpus(), load(Path(settings)), Path(locks))
print(json.dumps({**to_json_value(report), "exit_code": report.exit_code}))
"""


@dataclass(frozen=True)
class Bench:
    """A folder with the library and its state, and Python processes that see them."""

    folder: Path

    @classmethod
    def made(cls, folder: Path) -> Bench:
        """With the library as the loader looks for it."""
        (folder / "lib").mkdir(parents=True)
        (folder / "lib" / "libnvidia-ml.so.1").symlink_to(native.nvml())
        return cls(folder)

    @property
    def library(self) -> Path:
        return self.folder / "lib" / "libnvidia-ml.so.1"

    def boot(self, *models: str, version: str = "550.163.01", loads: bool = True) -> None:
        devices = gpus.devices("bench", models)
        drives = tuple(device.bus_id for device in devices)
        nvmlstate.write_boot(self.folder, driver.Loaded(version, False, drives, {}) if loads else None, devices)

    def play(self, kind: str, gpu: int = 0, *, clear: bool = False) -> None:
        """A fault of `gpuprep sim fault`, as far as NVML shows it."""
        fault = FAULTS[kind]
        with nvmlstate.changed(self.folder) as state:
            faults.put_gpu(state["system" if "system" in fault else f"gpu.{gpu}"], fault, clear=clear)

    def load(self, **values: int) -> AbstractContextManager[object]:
        """Work of this process on the first GPU."""
        return simstate.load(0, values, self.folder)

    def loads(self) -> list[dict[str, str]]:
        """What works on the first GPU."""
        return simstate.loads(0, self.folder)

    def environment(self, **more: str) -> dict[str, str]:
        return {**os.environ, "GPUPREP_SIM_NVML": str(self.folder), "LIBRARY": str(self.library), **more}

    def ask(self, code: str, **environment: str) -> str:
        """What code with PRELUDE before it prints; for an NVML error, its number."""
        prelude = PRELUDE.replace("n.nvmlInit()", "") if "nvmlInit" in code else PRELUDE
        lines = "".join(f"    {line}\n" for line in code.splitlines())
        program = f"{prelude}\ntry:\n{lines}except n.NVMLError as e: print(f'error {{e.value}}')"
        done = subprocess.run(
            [sys.executable, "-c", program],
            env=self.environment(**environment), capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def state(self, section: str) -> dict[str, str]:
        with nvmlstate.changed(self.folder) as state:
            return dict(state[section])

    def put(self, section: str, **values: str) -> None:
        with nvmlstate.changed(self.folder) as state:
            state[section].update(values)

    def python(self, code: str, *arguments: str, library: bool = True) -> Any:
        environment = {**os.environ, "GPUPREP_SIM_NVML": str(self.folder)}
        if library:
            environment["LD_LIBRARY_PATH"] = str(self.folder / "lib")
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments], env=environment, capture_output=True, text=True, check=True
        )
        return json.loads(done.stdout)

    def gpus(self) -> list[GpuFacts]:
        return [from_json_value(GpuFacts, gpu) for gpu in self.python(READ)[0]]

    def tune(self, action: str, **settings: object) -> Any:
        path = self.folder / "tuning.json"
        base = {
            "persistence": True, "clocks": "max", "power_limit_watts": "default", "ecc": "keep",
            "compute_mode": "default", "models": {"1eb8": {"memory_mhz": 5001, "graphics_mhz": 1590}},
        }  # fmt: skip
        path.write_text(json.dumps({**base, **settings}))
        return self.python(TUNE, action, str(path), str(self.folder / "locked-clocks.json"))


@dataclass(frozen=True)
class Booted:
    """What a simulated machine shows of a boot: `run` is below its /run, `sys` lies over parts of its /sys."""

    run: Path
    sys: Path

    @property
    def kernel(self) -> str:
        return (self.run / "kernel/release").read_text().strip()

    @property
    def modules(self) -> list[str]:
        """The names in /proc/modules."""
        return [line.split()[0] for line in (self.run / "proc/modules").read_text().splitlines()]

    @property
    def driver(self) -> str:
        """/proc/driver/nvidia/version; "" where no driver loaded."""
        path = self.run / "proc/driver/nvidia/version"
        return path.read_text() if path.exists() else ""

    @property
    def params(self) -> list[str]:
        return (self.run / "proc/driver/nvidia/params").read_text().splitlines()

    def driver_of(self, bus_id: str) -> str:
        """The kernel driver that a device is bound to, "" for none."""
        link = self.sys / "bus/pci/devices" / bus_id / "driver"
        return link.readlink().name if link.is_symlink() else ""

    def driven(self) -> list[str]:
        """The UUIDs that NVML knows."""
        return [section["uuid"] for section in simstate.gpu_sections(simstate.read(self.run / "nvml"))]


def booted(folder: Path, models: Sequence[str], files: Mapping[str, bytes | str], name: str = "bench") -> Booted:
    """Boots, again where it was before, a machine whose disk gets these files: what the boot makes of them."""
    disk = folder / "disk"
    disk.mkdir(exist_ok=True)
    for path, content in files.items():
        (disk / path).parent.mkdir(parents=True, exist_ok=True)
        (disk / path).write_bytes(content if isinstance(content, bytes) else content.encode())
    boot.prepare(store.Description(name, "debian13", "/base", tuple(models), 2222), disk, folder)
    return Booted(folder / "run", folder / "sys")


def compiled(folder: Path, name: str, code: str, *flags: str) -> Path:
    """A library, in `folder` as `name`; raises SimError as for a machine."""
    folder.mkdir(parents=True, exist_ok=True)
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_CACHE_HOME", str(folder / "cache"))  # its text is another in each run of the tests
        made = native.build("any.so", {"any.c": code}, "-shared", "-fPIC", *flags)
    shutil.copyfile(made, folder / name)
    return folder / name


def hook(source: str, folder: Path) -> Path:
    """A library that machines preload, with its folders moved: lib/ and run/ in `folder`."""
    text = native.sources(source)[source].replace("/usr/lib/gpuprep-sim", str(folder / "lib"))
    return compiled(folder, source.replace(".c", ".so"), text, f'-DSIM_RUN="{folder}/run"')


def public_functions() -> list[str]:
    """Every function of NVML that nvidia-ml-py names."""
    return sorted(native.public_functions())


def code_of_faults() -> str:
    """All that can read what a fault writes into the state of a GPU."""
    room = Path(faults.__file__).parent
    readers = [*room.glob("native/*.[ch]"), *room.rglob("*.py"), Path(simgpu.__file__), Path(simulated.__file__)]
    return "".join(path.read_text(encoding="utf-8") for path in readers)


def persistenced() -> Path:
    """The stand-in of nvidia-persistenced's program."""
    return native.persistenced()


def catalogue_of_gpus() -> Mapping[str, Mapping[str, Any]]:
    """The data of each model that `gpuprep sim up --gpu` knows."""
    return {key: model.data for key, model in gpus.models().items()}


@dataclass(frozen=True)
class Inherited:
    """What a machine gets from the computer that it runs on; the mirrors of Debian and of its security archive."""

    mirrors: tuple[str | None, str | None]
    pip: dict[str, str]
    proxies: dict[str, str]


def inherited(apt: Path, environment: Mapping[str, str]) -> Inherited:
    """From a computer with this /etc/apt and this environment."""
    found = controller.mirrors(apt)
    return Inherited(
        (found.debian, found.security), controller.pip_settings(environment), controller.proxies(environment)
    )
