"""All probes, and which dataclass has the values of which: each module of this folder that declares a PROBE."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping
from types import MappingProxyType

from gpuprep.records import evidence
from gpuprep.records.evidence.shared import Probe

SHARED = ("kinds", "shared")  # modules that belong to no probe
_NAMES = [module.name for module in pkgutil.iter_modules(evidence.__path__) if module.name not in SHARED]
_DECLARED: list[Probe] = [importlib.import_module(f"{evidence.__name__}.{name}").PROBE for name in _NAMES]
PROBES = tuple(sorted(_DECLARED, key=lambda probe: probe.place))
OF_PROBE: Mapping[str, type] = MappingProxyType({probe.name: probe.evidence for probe in PROBES})
