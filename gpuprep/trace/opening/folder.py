"""All profiles of a folder: each opened, shown and let go, so that memory for one is enough."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gpuprep.errors import UsageError
from gpuprep.records import RunRecord
from gpuprep.trace.document import TraceDocument
from gpuprep.trace.opening.one import Opened, Say, Wish, open_trace
from gpuprep.trace.ranks import RanksDocument, join, ranks_of
from gpuprep.trace.ranks.condensing import OneRank


@dataclass(frozen=True)
class LeftOut:
    """A file that looks like a profile and is none."""

    file: str
    why: str


@dataclass(frozen=True)
class OpenedFolder:
    documents: tuple[TraceDocument, ...]
    ranks: RanksDocument
    left_out: tuple[LeftOut, ...]


def open_folder(
    paths: Sequence[Path],
    job: str,
    wish: Wish = Wish(),
    record: RunRecord | None = None,
    *,
    say: Say = lambda _step: None,
    each: Callable[[Opened], None] = lambda _opened: None,
) -> OpenedFolder:
    """`each` is given every profile while it is open. Raises UsageError where none of the files is a profile."""
    documents: list[TraceDocument] = []
    condensed: list[OneRank] = []
    left_out: list[LeftOut] = []
    for number, path in enumerate(paths, 1):
        try:
            opened = open_trace(path, wish, record, say=lambda step, at=number: say(f"{at}/{len(paths)} {step}"))  # type: ignore[misc]
        except UsageError as error:
            left_out.append(LeftOut(path.name, error.what))
            continue
        documents.append(opened.document)
        condensed += ranks_of(opened.profile)
        each(opened)
    if not documents:
        raise UsageError(f"{job}: none of {len(paths)} files can be shown: {left_out[0].why}")
    return OpenedFolder(tuple(documents), join(condensed, job), tuple(left_out))
