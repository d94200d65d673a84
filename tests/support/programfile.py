"""A Python file that is in no package: a filter plugin of a role, or a program of .ci."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def module_of(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = loaded  # where its dataclasses look for their names
    spec.loader.exec_module(loaded)
    return loaded
