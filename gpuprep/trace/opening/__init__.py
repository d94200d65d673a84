"""In which order is a profile worked on? read ► make safe ► link ► sum ► roofs ► advice.

Every text of a profile is made safe when it is opened: no control characters, no folders of the user. Names, labels and
arguments come from whoever made the file. Folders reveal the user's name and projects: only the part of a path that
identifies the module is kept ("torch/nn/modules/linear.py(114): forward"), unless the user wants all of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from gpuprep.records import RunRecord
from gpuprep.trace.advice import advise
from gpuprep.trace.columns import Arguments, Trace, give_back
from gpuprep.trace.document import Note, TraceDocument
from gpuprep.trace.model import profile as linked
from gpuprep.trace.opening.machine import beside, board_used, system_config
from gpuprep.trace.profile import Profile
from gpuprep.trace.reading import read
from gpuprep.trace.roofs import with_roofs
from gpuprep.trace.tables import document as tabulated
from gpuprep.untrusted.plaintext import visible

# The folders of a path. A name of one does not begin with a blank: so the search takes time in line with the text.
FOLDERS = re.compile(r"(?<![\w.\\/])(?:[A-Za-z]:)?[\\/](?:[^\s\\/:*?\"<>|][^\\/:*?\"<>|\n]*[\\/])+(?=[^\\/\s])")
# In them, up to where packages are installed.
INSTALLED = re.compile(r".*[\\/](?:site-packages|dist-packages|lib/python\d[\d.]*)[\\/]")
NEWLINES = re.compile(r"[\t\n]")


def make_safe(trace: Trace, *, keep_paths: bool) -> None:
    """Sanitise all strings in place."""

    def safe(text: str) -> str:
        text = NEWLINES.sub(" ", visible(text))
        return text if keep_paths else without_folders(text)

    trace.file = safe(trace.file)
    trace.names = [safe(name) for name in trace.names]
    trace.processes = [safe(name) for name in trace.processes]
    trace.threads = [replace(thread, label=safe(thread.label)) for thread in trace.threads]
    trace.devices = [replace(device, name=safe(device.name)) for device in trace.devices]
    trace.machine = {safe(key): safe(value) for key, value in trace.machine.items()}
    trace.arguments = [_arguments(each, safe) for each in trace.arguments]


def without_folders(text: str) -> str:
    if "/" not in text and "\\" not in text:
        return text
    return FOLDERS.sub(_package, text)


def _package(match: re.Match[str]) -> str:
    installed = INSTALLED.match(match[0])
    return match[0][installed.end() :] if installed else ""


def _arguments(arguments: Arguments, safe: object) -> Arguments:
    assert callable(safe)
    return replace(
        arguments,
        dtypes=tuple(map(safe, arguments.dtypes)),
        concrete=tuple(map(safe, arguments.concrete)),
        other=tuple((safe(key), safe(value)) for key, value in arguments.other),
    )


Say = Callable[[str], None]


@dataclass(frozen=True)
class Wish:
    """What of a profile is to be shown, as on the command line."""

    start: int | None = None
    stop: int | None = None
    key_op: str = ""
    profile_name: str = ""
    keep_paths: bool = False


@dataclass(frozen=True)
class Opened:
    profile: Profile
    document: TraceDocument

    def with_notes(self, notes: tuple[Note, ...]) -> Opened:
        """The same, with what is to be reported of the file beside its own notes."""
        file = replace(self.document.file, notes=(*self.document.file.notes, *notes))
        return replace(self, document=replace(self.document, file=file))


def open_trace(
    path: Path,
    wish: Wish = Wish(),
    record: RunRecord | None = None,
    *,
    last_rank: tuple[int, float, float] | None = None,
    say: Say = lambda _step: None,
) -> Opened:
    """One file, as everything shows it. `record` is of the machine that it was recorded on; `say` gets each step.

    `last_rank`: as advise() takes it, where the file is one of several ranks.

    Raises UsageError for what is no profile, and for iterations and a key op that are not in it.
    """
    say(f"reading {path.name}")
    trace = read(path)
    make_safe(trace, keep_paths=wish.keep_paths)
    say(f"linking {trace.gpu.start.size:,} GPU events to {trace.ops.start.size:,} ranges on the CPU")
    profile = linked(trace, key_op=wish.key_op, name=wish.profile_name)
    say("adding up")
    document = tabulated(profile, wish.start, wish.stop)
    noted = beside(path)
    record = record or noted.record
    machine, source = system_config(trace, record, noted.machine)
    document = replace(document, file=replace(document.file, machine=machine, machine_source=source))
    board = board_used(trace, record)
    document = with_roofs(profile, document, board, record)
    say("looking for what to change")
    advice, slowdown = advise(
        profile, document, board=board, record=record, last_rank=last_rank, timed_step_ns=noted.timed_step_ns
    )
    give_back()
    return Opened(profile, replace(document, advice=advice, slowdown=slowdown))
