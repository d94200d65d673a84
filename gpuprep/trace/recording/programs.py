"""A PyTorch program under its own profiler, unchanged."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuprep.records import RunRecord, to_json_value
from gpuprep.trace.recording import children
from gpuprep.untrusted.limits import file_text, json_document
from gpuprep.untrusted.plaintext import one_line

INSIDE = Path(__file__).parent / "inside"
SETTING = "GPUPREP_TRACE_RECORD"
SIDECAR = ".gpuprep.json"  # opening/machine.py reads it
MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Wish:
    folder: Path  # where traces go
    wait: int = 3  # steps that are left alone, after the first
    warmup: int = 2  # steps with the profiler on, whose events are thrown away
    active: int = 5  # steps that are recorded
    steps_from: str = "optimizer"  # "forward", "none", "module:function"
    shapes: bool = True
    stacks: bool = False
    memory: bool = False

    @property
    def steps(self) -> int:
        """That a program needs for all of it; the first one is before."""
        return 1 + self.wait + self.warmup + self.active


@dataclass(frozen=True)
class Recorded:
    exit_code: int  # of the program
    traces: tuple[Path, ...]
    why_none: str = ""


def record(words: Sequence[str], wish: Wish) -> Recorded:
    """Run the program to its end. Raises UsageError where it cannot be started."""
    with tempfile.TemporaryDirectory(prefix="gpuprep-trace-") as folder:
        environment = dict(os.environ)
        folders = [str(INSIDE), *filter(None, [environment.get("PYTHONPATH", "")])]
        environment["PYTHONPATH"] = os.pathsep.join(folders)
        environment[SETTING] = json.dumps(_setting(words, wish, folder))
        code = children.run(words, environment)
        notes = list(map(_notes, sorted(Path(folder).glob("*.json"))))
    traces = tuple(Path(path) for note in notes for path in note.get("traces", ()))
    return Recorded(code, traces, "" if traces else _why(notes, wish))


def put_record(trace: Path, record: RunRecord) -> None:
    """Put the record of the machine beside a trace, to what was noted there while it was recorded."""
    beside = trace.with_name(f"{trace.name}{SIDECAR}")
    noted = _notes(beside) if beside.exists() else {"schema_version": 1, "machine": {}}
    private = json.dumps({**noted, "record": to_json_value(record)}, allow_nan=False)
    beside.write_text(private, encoding="utf-8")


def _setting(words: Sequence[str], wish: Wish, folder: str) -> dict[str, Any]:
    return {
        "folder": str(wish.folder.resolve()),
        "told": folder,
        "name": name_of(words),
        "wait": wish.wait,
        "warmup": wish.warmup,
        "active": wish.active,
        "steps_from": wish.steps_from,
        "shapes": wish.shapes,
        "stacks": wish.stacks,
        "memory": wish.memory,
    }


def name_of(words: Sequence[str]) -> str:
    """Of the program: "train" of `python train.py`."""
    scripts = [Path(word).stem for word in words if word.endswith(".py")]
    name = scripts[0] if scripts else Path(words[0]).stem
    return "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in name)[:60] or "program"


def _notes(path: Path) -> dict[str, Any]:
    try:
        notes = json_document(file_text(path, MOST_BYTES))
    except (OSError, ValueError):
        return {}
    return notes if isinstance(notes, dict) else {}


def _why(notes: Sequence[dict[str, Any]], wish: Wish) -> str:
    """Why there is no trace, in one sentence."""
    errors = [str(note["error"]) for note in notes if note.get("error")]
    if errors:
        return f"PyTorch's profiler failed: {one_line(errors[0], 300)}"
    with_torch = [note for note in notes if note.get("torch")]
    if not with_torch:
        return "no Python of the program imported torch (or it ran with -I, -E or -S, which hides gpuprep from it)"
    steps = max((int(note.get("steps") or 0) for note in with_torch), default=0)
    if not steps:
        return "no step ended: nothing called an optimizer's step (--steps-from says what else is a step)"
    return f"it ended after {steps} steps, before the recording began (--wait, --warmup; now {wish.steps} are needed)"
