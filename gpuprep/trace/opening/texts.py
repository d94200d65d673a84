"""Every text of a profile, made safe at the door: no control characters, no folders of the user.

Names, labels and arguments come from whoever made the file. Folders tell who the user is and how he names his projects:
of a path what tells the module is kept ("torch/nn/modules/linear.py(114): forward"), unless the user wants all of it.
"""

from __future__ import annotations

import re
from dataclasses import replace

from gpuprep.trace.columns import Arguments, Trace
from gpuprep.untrusted.plaintext import visible

# Of a path in a name: everything up to the folder that packages are installed in, else up to the file itself.
INSTALLED = re.compile(
    r"(?:[A-Za-z]:)?[\\/](?:[^\s\\/:*?\"<>|]+[\\/])*(?:site-packages|dist-packages|lib/python\d[\d.]*)[\\/]"
)
FOLDERS = re.compile(r"(?<![\w.\\/])(?:[A-Za-z]:)?[\\/](?:[^\\/:*?\"<>|\n]+[\\/])+(?=[^\\/\s]+)")
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
    return FOLDERS.sub("", INSTALLED.sub("", text))


def _arguments(one: Arguments, safe: object) -> Arguments:
    assert callable(safe)
    return replace(
        one,
        dtypes=tuple(map(safe, one.dtypes)),
        concrete=tuple(map(safe, one.concrete)),
        other=tuple((safe(key), safe(value)) for key, value in one.other),
    )
