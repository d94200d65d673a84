"""What does the list show of each run? Its GPU, when it was recorded, how long a step takes.

Each file has to be read for that, which takes up to seconds. So a thread does it, as far as somebody looks at the list;
the list waits a moment, and shows what is known by then.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from gpuprep import errorlog
from gpuprep.errors import GpuprepError
from gpuprep.trace.formats.numbers import gpus
from gpuprep.trace.model import profile as linked
from gpuprep.trace.opening.texts import make_safe
from gpuprep.trace.reading import read
from gpuprep.trace.tables import document as tabulated
from gpuprep.untrusted.plaintext import one_line

Version = tuple[int, ...]  # of a file: what changes with its content
LARGEST = 64 << 20  # bytes of a file that is read for the list alone
MOST = 500  # files that are
PATIENCE_SECONDS = 3.0  # of the list; then the rest is shown as not read yet
LETTERS = 200


@dataclass(frozen=True)
class Card:
    gpus: str = ""
    recorded_at: str = ""  # UTC, ISO 8601; "" where the file does not tell
    steps: int = 0  # 0: the profile is not split into steps
    step_us: float = 0.0
    not_read: str = ""  # why nothing is known of it


class Cards:
    """Of each version of a file one; a thread reads those that are missing, and ends when none is."""

    def __init__(self) -> None:
        self._known: dict[Version, Card] = {}
        self._missing: dict[Version, Path] = {}
        self._reads = False
        self._changed = threading.Condition()

    def of(self, files: Mapping[Version, Path]) -> dict[Version, Card]:
        """What is known of these files, and of no others from now on. It waits PATIENCE_SECONDS for what is not."""
        with self._changed:
            self._known = {version: card for version, card in self._known.items() if version in files}
            missing = [(version, path) for version, path in files.items() if version not in self._known]
            self._missing = dict(missing[: max(0, MOST - len(self._known))])
            self._known.update(
                (version, Card(not_read="too many files")) for version, _ in missing[len(self._missing) :]
            )
            if self._missing and not self._reads:
                self._reads = True
                threading.Thread(target=self._read, name="reads the list", daemon=True).start()
            self._changed.wait_for(lambda: not self._missing, PATIENCE_SECONDS)
            return {version: self._known[version] for version in files if version in self._known}

    def _read(self) -> None:
        while True:
            with self._changed:
                version, path = next(iter(self._missing.items()), (None, None))
                if version is None or path is None:
                    self._reads = False
                    return
            card = _card(path)
            with self._changed:
                if self._missing.pop(version, None) is not None:
                    self._known[version] = card
                self._changed.notify_all()


def _card(path: Path) -> Card:
    try:
        if path.stat().st_size > LARGEST:
            return Card(not_read=f"more than {LARGEST >> 20} MB: read when it is opened")
        trace = read(path, stacks=False)
        make_safe(trace, keep_paths=False)
        document = tabulated(linked(trace))
    except (GpuprepError, OSError) as error:
        return Card(not_read=one_line(str(error), LETTERS))
    except Exception as error:  # noqa: BLE001  one file must not end the thread that reads the others
        with contextlib.suppress(OSError):
            errorlog.keep(errorlog.whole(error, "gpuprep trace, the list of profiles"))
        return Card(not_read=errorlog.named(error))
    summary = document.summary
    steps = 0 if summary.split_by == "one" else summary.iterations
    return Card(one_line(gpus(document), LETTERS), _moment(trace.zero_ns), steps, summary.average_iteration_us)


def _moment(ns: int) -> str:
    try:
        return datetime.fromtimestamp(ns // 10**9, timezone.utc).isoformat() if ns >= 0 else ""
    except (ValueError, OverflowError, OSError):
        return ""
