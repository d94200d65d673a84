"""A Python file that is in no package: a plugin of the collection, or a program of .ci."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from places import COLLECTION, ROOT

MODULES = COLLECTION / "plugins/modules"


def module_of(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = loaded  # where its dataclasses look for their names
    spec.loader.exec_module(loaded)
    return loaded


def answer_of(module: str, _environment: dict[str, str] | None = None, **arguments: Any) -> dict[str, Any]:
    """What a module of the collection answers, run here by itself."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}  # it may be very long
    done = subprocess.run(
        [sys.executable, str(MODULES / f"{module}.py")],
        input=json.dumps({"ANSIBLE_MODULE_ARGS": arguments}),
        capture_output=True,
        text=True,
        check=False,
        env={**kept, "PYTHONPATH": str(ROOT), **(_environment or {})},
    )
    assert done.stdout, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
