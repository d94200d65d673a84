"""The state of the simulated GPUs of a simulated VM, and what is running on them now.

`state` is an ini file that the stand-in for NVML keeps ([system], [gpu.N]; see docs/simulated-machines.md). `loads` is
a folder: each piece of work that uses a GPU holds a file there, locked with flock(2) for as long as it lives, so a file
that a killed program leaves behind is ignored. Standard library only: the stand-in for ffmpeg uses it too.
"""

from __future__ import annotations

import configparser
import contextlib
import fcntl
import json
import os
import uuid
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional

from gpuprep.agent import host_paths

FOLDER = Path(host_paths.SIMULATED_GPUS)
MIG_EIGHTHS = (1, 1, 2, 2, 4, 4, 8)  # of the memory, by profile in the order of sim/gpus.yml


def read(folder: Path = FOLDER) -> Dict[str, Dict[str, str]]:
    """Sections of the state; {} if there is none (no simulated VM, or no driver was ever loaded)."""
    try:
        with (folder / "state").open(encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            text = file.read()
    except OSError:
        return {}
    state = configparser.ConfigParser(interpolation=None)
    state.read_string(text)
    return {name: dict(state[name]) for name in state.sections()}


def gpu_sections(state: Dict[str, Dict[str, str]]) -> List[Dict[str, str]]:
    """The GPUs that the loaded driver drives, by NVML's index; none when no driver is loaded."""
    if "driver" not in state.get("system", {}):
        return []
    sections: List[Dict[str, str]] = []
    while f"gpu.{len(sections)}" in state:
        sections.append(state[f"gpu.{len(sections)}"])
    return sections


class Load:
    """One piece of work on a GPU. `values` are shown by NVML until it ends (see `loads` in sim/native/loads.c)."""

    def __init__(self, gpu: int, values: Dict[str, Any], folder: Path = FOLDER) -> None:
        self.path = folder / "loads" / f"{gpu}.{os.getpid()}.{uuid.uuid4().hex[:12]}"
        # Under its final name only when it is locked: whoever finds it unlocked takes it for a dead program's.
        temporary = self.path.with_name(f".{self.path.name}")
        self._file = temporary.open("wb")
        self._length = 0
        fcntl.flock(self._file, fcntl.LOCK_EX)
        self.change(values)
        temporary.rename(self.path)

    def change(self, values: Dict[str, Any]) -> None:
        """Replace the values. One write, padded to the old length, so that no reader sees half of it."""
        text = "".join(f"{key} = {value}\n" for key, value in values.items()).encode()
        self._length = max(self._length, len(text))
        os.pwrite(self._file.fileno(), text.ljust(self._length, b"\n"), 0)

    def end(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        self._file.close()


@contextlib.contextmanager
def load(gpu: int, values: Dict[str, Any], folder: Path = FOLDER) -> Iterator[Load]:
    """NVML shows `values` of this GPU while the block runs."""
    held = Load(gpu, values, folder)
    try:
        yield held
    finally:
        held.end()


def loads(gpu: int, folder: Path = FOLDER) -> List[Dict[str, str]]:
    """The values of every living piece of work on a GPU, with its `pid`."""
    living_loads = []
    for path in sorted((folder / "loads").glob(f"{gpu}.*")):
        values = _living(path)
        if values is not None:
            living_loads.append({**values, "pid": path.name.split(".")[1]})
    return living_loads


def _living(path: Path) -> Optional[Dict[str, str]]:
    try:
        with path.open(encoding="utf-8") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                pairs = (line.partition(" = ") for line in file.read().split("\n") if line)
                return {key: value for key, _, value in pairs}
    except OSError:
        return None
    return None


class Instance(NamedTuple):
    """The first MIG instance of a GPU. `eighths`: of the memory."""

    profile: str
    multiprocessors: int
    eighths: int


def instance(section: Dict[str, str]) -> Optional[Instance]:
    """What programs see of a GPU with MIG on; None: the whole GPU. As sim/native/mig.c writes it."""
    names = section.get("mig_names", "").split()
    counts = section.get("mig_multiprocessors", "").split()
    for number in range(16):
        value = section.get(f"instance_{number}", "")
        kind = int(value or 0) // 100
        if value.endswith("1") and kind < len(names):
            return Instance(names[kind], int(counts[kind]), MIG_EIGHTHS[kind])
    return None


def performance(section: Dict[str, str]) -> Dict[str, Any]:
    """The `performance` of a GPU of sim/gpus.yml; {} for a state that an older gpuprep wrote."""
    data: Dict[str, Any] = json.loads(section.get("performance", "{}"))
    return data
