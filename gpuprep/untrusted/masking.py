"""Masks the controller's secrets in all texts that are shown or kept. Stdlib only.

remember(text)            from now on masked() masks the passwords of URLs in this text
keep_secret(password)     the same for a password
masked(text)              `text` without passwords
masked_words(words)       each word of a command line
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from urllib.parse import unquote

MASK = "***"
# What a shorter password looks like is found in every other word: such a one is masked in its place alone.
FEWEST_LETTERS = 4
STORE, LIBPQ = "GPUPREP_STORE", "PGPASSWORD"
# A password may hold any character, an "@" among them: it ends at the last one of its word.
_USERINFO = re.compile(r"(://[^\s/:@]*):\S*@")
_USERINFO_OF_WORD = re.compile(r"(://[^:/@]*):(.*)@", re.DOTALL)
# libpq's: ?password=... of a URL, password='...' of a connection string, PGPASSWORD=...
_NAMED_IN_URL = re.compile(r"([?&][^=&\s]*pass[^=&\s]*=)([^&\s]*)", re.IGNORECASE)
_NAMED = re.compile(
    r"""(\b\w*(?:password|passwd|passfile)\s*=\s*)('(?:[^'\\]|\\.)*'|"[^"]*"|[^\s&'"]+)""", re.IGNORECASE
)

_known: set[str] = set()


def remember(text: str) -> None:
    userinfo = _USERINFO_OF_WORD.search(text)
    for password in (userinfo[2] if userinfo else "", *(named[2] for named in _NAMED_IN_URL.finditer(text))):
        keep_secret(password)
        keep_secret(unquote(password))


def keep_secret(password: str) -> None:
    if len(password) >= FEWEST_LETTERS:
        _known.add(password)


def masked(text: str) -> str:
    """`text` without the passwords of URLs and connection strings, and without the remembered passwords."""
    return _in_place(_USERINFO.sub(rf"\1:{MASK}@", _without_known(text)))


def masked_url(url: str) -> str:
    """The same for one URL, which may contain blanks or be impossible to parse."""
    return _in_place(_USERINFO_OF_WORD.sub(rf"\1:{MASK}@", url))


def _in_place(text: str) -> str:
    return _NAMED.sub(rf"\g<1>{MASK}", _NAMED_IN_URL.sub(rf"\g<1>{MASK}", text))


def masked_words(words: Iterable[str]) -> list[str]:
    return [_without_known(masked_url(word)) for word in words]


def without_secret(text: str | None) -> str | None:
    """A word of a command line as it may be shown again; None where there is none, or where it holds a secret."""
    return text if text and masked_words([text])[0] == text else None


def _without_known(text: str) -> str:
    if url := os.environ.get(STORE, ""):
        remember(url)
    if password := os.environ.get(LIBPQ, ""):
        keep_secret(password)
    for secret in sorted(_known, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text
