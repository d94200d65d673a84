"""The NVML stand-in of simulated machines, compiled for this computer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuprep.records import GpuFacts, from_json_value
from gpuprep.sim import driver, gpus, nvmlstate

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

    def boot(self, *models: str, version: str = "550.163.01") -> None:
        devices = gpus.devices("bench", models)
        loaded = driver.Loaded(version, False, tuple(device.bus_id for device in devices), {})
        nvmlstate.write_boot(self.folder, loaded, devices)

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
