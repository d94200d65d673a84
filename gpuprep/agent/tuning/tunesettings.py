"""tuning.json: what the role gpu_tuning wants of every GPU of this machine."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Union

from gpuprep.records import ClockPair, DecodeError, from_json
from gpuprep.untrusted.limits import file_text

ALLOWED = {
    "clocks": ("max", "default"),
    "power_limit_watts": ("default",),
    "ecc": ("keep", "enabled", "disabled"),
    "compute_mode": ("default", "exclusive_process", "prohibited"),
}


@dataclass(frozen=True)
class TuningSettings:
    persistence: bool
    clocks: Union[str, ClockPair]
    power_limit_watts: Union[str, int]
    ecc: str
    compute_mode: str
    models: Dict[str, ClockPair] = field(default_factory=dict)  # PCI device id ("1eb8") ─► the model's best pair


def load(path: Path) -> TuningSettings:
    """Read tuning.json. Raises DecodeError that names the field; OSError if the file does not exist."""
    try:
        settings = from_json(TuningSettings, file_text(path))
    except DecodeError as error:
        raise DecodeError(f"{path}: {error}") from error
    for name, allowed in ALLOWED.items():
        value = getattr(settings, name)
        if isinstance(value, str) and value not in allowed:
            raise DecodeError(f"{path}: {name}: {value!r} is none of {', '.join(allowed)}")
    return settings
