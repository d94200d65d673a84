"""Which runs are there? Opens them when they are asked for, and keeps those that were asked for last."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuprep.errors import UsageError
from gpuprep.trace.formats import json
from gpuprep.trace.opening import Opened
from gpuprep.trace.page import html, pack

KEPT = 3  # opened runs: each may need hundreds of MB
RAW = (".json", ".json.gz")  # what Perfetto takes; an export of Nsight Systems has the recorded environment in it


@dataclass(frozen=True)
class Asked:
    """One run with one choice of iterations."""

    run: str
    start: int | None = None
    stop: int | None = None
    key_op: str = ""


@dataclass(frozen=True)
class Page:
    html: bytes
    json: bytes


Opener = Callable[[Path, Asked], Opened]


class Library:
    """`found` gives name ► file, and is asked again each time; names may be anything, and are never made a path."""

    def __init__(self, found: Callable[[], Mapping[str, Path]], opener: Opener) -> None:
        self._found, self._opener = found, opener
        self._pages: OrderedDict[tuple[Asked, int, int], Page] = OrderedDict()
        self._lock = threading.Lock()  # one is opened at a time: memory is what there is least of

    def names(self) -> list[str]:
        return list(self._found())

    def path(self, run: str) -> Path:
        """Raises UsageError."""
        path = self._found().get(run)
        if path is None:
            raise UsageError("there is no such run", "choose one of the list")
        return path

    def raw(self, run: str) -> Path | None:
        """The file itself, where it is one to hand out."""
        path = self.path(run)
        return path if path.name.endswith(RAW) else None

    def page(self, asked: Asked) -> Page:
        """Raises UsageError for what is no profile."""
        path = self.path(asked.run)
        try:
            there = path.stat()
        except OSError as error:
            raise UsageError(f"{path.name}: {error.strerror}") from error
        key = (asked, there.st_mtime_ns, there.st_size)  # a file that changed is read again
        with self._lock:
            made = self._pages.get(key)
            if made is None:
                opened = self._opener(path, asked)
                text = html(opened.profile, opened.document, room=pack.SERVED_ROOM)
                made = Page(text.encode(), json.render(opened.document).encode())
                self._pages[key] = made
                while len(self._pages) > KEPT:
                    self._pages.popitem(last=False)
            self._pages.move_to_end(key)
            return made
