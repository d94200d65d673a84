"""Every text of a profile, made safe at the door: no control characters, no folders of the user.

Names, labels and arguments come from whoever made the file. Folders tell who the user is and how he names his projects:
of a path what tells the module is kept ("torch/nn/modules/linear.py(114): forward"), unless the user wants all of it.
"""

from __future__ import annotations

import re
from dataclasses import replace

from gpuprep.trace.columns import Arguments, Trace
from gpuprep.untrusted.plaintext import visible

# The folders of a path. A name of one does not begin with a blank: so the search takes time in line with the text.
FOLDERS = re.compile(r"(?<![\w.\\/])(?:[A-Za-z]:)?[\\/](?:[^\s\\/:*?\"<>|][^\\/:*?\"<>|\n]*[\\/])+(?=[^\\/\s])")
# In them, up to where packages are installed.
INSTALLED = re.compile(r".*[\\/](?:site-packages|dist-packages|lib/python\d[\d.]*)[\\/]")
NEWLINES = re.compile(r"[\t\n]")


def make_safe(trace: Trace, *, keep_paths: bool) -> None:
    """In place."""

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
