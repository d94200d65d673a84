"""manifest.json in a folder that gpuprep installed: what it is, and the sha256 of every file of the folder."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any, Callable, Collection, Dict, Iterable, Tuple, Union

from gpuprep.agent.facts.digests import sha256
from gpuprep.agent.programs.run import read_text
from gpuprep.records import Missing

NAME = "manifest.json"
# Of an FFmpeg some 10 files, of the headers 5, of cuDNN 40; 100 bytes each.
MOST_BYTES = 1 << 20
MOST_FILES = 4096
MOST_FOLDERS = 100  # of one prefix
FILE_NAME = re.compile(r"[A-Za-z0-9._+-]+(?:/[A-Za-z0-9._+-]+)*")


def read_manifest(folder: Path) -> Union[Dict[str, Any], Missing, None]:
    """The manifest of `folder`; None if there is none. A link, a pipe or a file above MOST_BYTES is not read."""
    path = folder / NAME
    text = read_text(path, MOST_BYTES, follow=False)
    if not isinstance(text, str):
        return text
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Missing("unparsable", f"{path}: {error}")
    return document if isinstance(document, dict) else Missing("unparsable", f"{path} is not a JSON object")


def folders(prefixes: Iterable[str]) -> Tuple[str, ...]:
    """The folders below the prefixes that have a manifest: what gpuprep installed there, linked or not."""
    return tuple(
        str(path.parent) for prefix in prefixes for path in sorted(Path(prefix).glob(f"*/{NAME}"))[:MOST_FOLDERS]
    )


def is_intact(folder: Path, manifest: Dict[str, Any], digest: Callable[[Path], str] = sha256) -> Union[bool, Missing]:
    """Whether the folder has exactly the files of the manifest, each with its sha256 (and size, if it is given)."""
    files = manifest.get("files")
    if not isinstance(files, dict) or not files:
        return Missing("unparsable", f"{folder / NAME} names no files")
    if len(files) > MOST_FILES or not all(_is_below(name) for name in files):
        return Missing("unparsable", f"{folder / NAME} names files outside of it, or more than {MOST_FILES}")
    try:
        return not _has_unlisted_file(folder, {*files, NAME}) and all(
            _is_as_named(folder / name, entry, digest) for name, entry in files.items()
        )
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return False
    except OSError as error:
        return Missing("no_permission", str(error))


def _is_below(name: str) -> bool:
    return len(name) < 256 and bool(FILE_NAME.fullmatch(name)) and not {".", ".."}.intersection(name.split("/"))


def _has_unlisted_file(folder: Path, named: Collection[str]) -> bool:
    """Whether the folder has anything that is not in the manifest. Enters only folders with files of the manifest.

    A link to a file of the manifest beside it is allowed.
    """
    folders = {f"{parent}/" for name in named for parent in PurePosixPath(name).parents}
    waiting = [""]
    while waiting:
        here = waiting.pop()
        with os.scandir(str(folder / here)) as entries:
            for entry in entries:
                name = here + entry.name
                if entry.is_dir(follow_symlinks=False) and f"{name}/" in folders:
                    waiting.append(f"{name}/")
                elif entry.is_symlink():
                    # What `-lcudnn` looks for: libcudnn.so ─► libcudnn.so.9.
                    target = str(Path(entry.path).readlink())
                    if name in named or here + target not in named or "/" in target:
                        return True
                elif name not in named or not entry.is_file(follow_symlinks=False):
                    return True
    return False


def _is_as_named(path: Path, entry: object, digest: Callable[[Path], str]) -> bool:
    if not isinstance(entry, dict):
        return digest(path) == entry
    return path.stat().st_size == entry.get("size") and digest(path) == entry.get("sha256")
