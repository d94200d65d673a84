"""How much input from outside gpuprep reads: a host's answer, a file, a row of a store.

Stdlib only; this module also runs on the GPU VM (Python 3.9 or newer).
Real records are a thousandth to a tenth of these limits. Any document within them is read in less than a second and
256 MB. A document beyond a limit is refused as a whole, and the message names the limit.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO, Dict, List, Tuple, Union

MIB = 1 << 20
DOCUMENT_BYTES = 16 * MIB  # of JSON: the record of eight GPUs with all its measurements has about one
DOCUMENT_NODES = 300_000  # values of such a document: memory is proportional to this, ten times as much as to bytes
# Characters that are escaped or not ASCII: making one visible takes a hundred times as long as reading one. gpuprep
# itself writes only ASCII.
DOCUMENT_ESCAPES = 400_000
DEPTH = 64  # objects and lists in each other
PART_DEPTH = 48  # of what becomes a part of a document, as a host's answer does
TEXT_LETTERS = 64 * 1024  # of one text in it; a longer one is cut, and says so
INTEGERS = range(-(2**63), 2**64)  # what any other reader of JSON, a database or C can hold
FILE_BYTES = 16 * MIB  # of a file of text
_NESTING = (dict, list)


class BeyondLimit(ValueError):
    """The input is larger than gpuprep reads; the message names the limit."""


def json_document(text: str, depth: int = DEPTH) -> Any:
    """The value of a JSON text. Raises BeyondLimit, and ValueError if the text is no JSON."""
    if len(text) > DOCUMENT_BYTES:
        raise BeyondLimit(f"it is larger than {DOCUMENT_BYTES // MIB} MiB")
    beyond = 0 if text.isascii() else len(text.encode("utf-8", "surrogatepass")) - len(text)
    if text.count("\\") + text.count("\x7f") + beyond > DOCUMENT_ESCAPES:
        raise BeyondLimit(f"it has more than {DOCUMENT_ESCAPES} characters that are escaped or not ASCII")
    # Counted before anything is built. Those inside of texts count, too: no record comes near.
    if text.count(",") + text.count("[") + text.count("{") > DOCUMENT_NODES:
        raise BeyondLimit(f"it has more than {DOCUMENT_NODES} values")
    try:
        document = json.loads(text, parse_int=_integer, object_pairs_hook=_object)
    except (RecursionError, MemoryError) as error:
        raise BeyondLimit(f"it is nested deeper than {depth} levels") from error
    if not _is_flat(document, depth):
        raise BeyondLimit(f"it is nested deeper than {depth} levels")
    return document


def file_text(path: Union[str, Path], most: int = FILE_BYTES, *, errors: str = "strict", follow: bool = True) -> str:
    """The text of a regular file of at most `most` bytes. Raises OSError, also for a pipe, a device or a larger file.

    With `follow` False a symbolic link is an error too: use it if root reads in a folder that others can write.
    """
    text = file_bytes(path, most, follow=follow).decode("utf-8", errors)
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text  # as open() does


def file_bytes(path: Union[str, Path], most: int = FILE_BYTES, *, follow: bool = True) -> bytes:
    """As file_text."""
    with open_regular(path, follow=follow) as file:
        data = file.read(most + 1)  # not by its size: files of /proc say 0
    if len(data) > most:
        raise OSError(errno.EFBIG, f"is larger than {_shown(most)}", str(path))
    return data


def open_regular(path: Union[str, Path], *, follow: bool = True) -> BinaryIO:
    """Open a regular file for reading. Raises OSError, also for a pipe or device; so it never waits for a pipe."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY | (0 if follow else os.O_NOFOLLOW)
    descriptor = os.open(str(path), flags)
    kind = os.fstat(descriptor).st_mode
    if stat.S_ISREG(kind):
        return open(descriptor, "rb")
    os.close(descriptor)
    code = errno.EISDIR if stat.S_ISDIR(kind) else errno.EINVAL
    raise OSError(code, "is no regular file" if code == errno.EINVAL else os.strerror(code), str(path))


def _shown(size: int) -> str:
    return f"{size // MIB} MiB" if size >= MIB else f"{size // 1024} KiB"


def _object(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    """Refuses a key that stands twice: Python would keep its last value, another reader the first."""
    members = dict(pairs)
    if len(members) < len(pairs):
        times = Counter(key for key, _ in pairs)
        twice = times.most_common(1)[0][0]
        raise ValueError(f"the key {twice[:40]!r} stands twice in one object")
    return members


def _integer(digits: str) -> int:
    # Python takes quadratic time for a number of many digits.
    if len(digits) > 20 or (value := int(digits)) not in INTEGERS:
        raise BeyondLimit(f"{digits[:20]}{'…' if len(digits) > 20 else ''} does not fit in 64 bits")
    return value


def _is_flat(document: Any, depth: int) -> bool:
    """Whether no value is nested deeper than `depth`. Works level by level, so no nesting can overflow the stack."""
    level = [document] if type(document) in _NESTING else []
    while level and depth > 0:
        level = [
            item
            for container in level
            for item in (container.values() if type(container) is dict else container)
            if type(item) in _NESTING
        ]
        depth -= 1
    return not level
