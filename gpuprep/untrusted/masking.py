"""Masks the controller's secrets in all texts that are shown or kept. Stdlib only.

remember(text)            from now on masked() masks the passwords of URLs in this text
remember_store(url)       the same, also if it is no URL
remember_words(words)     the same for the words of a command line
keep_secret(password)     the same for a password
masked(text)              `text` without passwords
masked_words(words)       each word of a command line
misplaced_password(words) a word of a command line that holds a password where none belongs
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

MASK = "***"
# A shorter password would match parts of other words, so it is masked only in its own place.
FEWEST_LETTERS = 4
STORE, LIBPQ = "GPUPREP_STORE", "PGPASSWORD"
# A password may hold any character, an "@" among them: it ends at the last one of its word.
_USERINFO = re.compile(r"(://[^\s/:@]*):\S*@")
_USERINFO_OF_WORD = re.compile(r"(://[^:@]*):(.*)@", re.DOTALL)
# libpq's: ?password=... of a URL, password='...' of a connection string, PGPASSWORD=...
_NAMED_IN_URL = re.compile(r"([?&][^=&\s]*(?:pass|pw|secret|token)[^=&\s]*=)([^&\s]*)", re.IGNORECASE)
_NAMED = re.compile(
    r"""(\b\w*(?:password|passwd|passfile)\s*=\s*)('(?:[^'\\]|\\.)*'|"[^"]*"|[^\s&'"]+)""", re.IGNORECASE
)
# A well-formed URL: only its password part can be a password. %3A is ":".
_URL = re.compile(
    r"sqlite(?:\+\w+)?://.*"
    r"|[a-z][a-z0-9+.-]*://(?:(?:(?!%3a)[^\s:/@;?#])*(?::.*)?@)?(?:\[[0-9a-f:.%\w]*\]|[^\s:/@;?#\[\]]*)"
    r"(?::(?P<port>[0-9]{0,5}))?(?:/[^\s:@;?#]*)?(?:[?#]\S*)?",
    re.DOTALL | re.IGNORECASE,
)
_DATABASE = r"(?:postgres\w*|mysql|mariadb|mssql|oracle|sqlite)(?:\+\w+)?"
_SCHEME = re.compile(rf"{_DATABASE}(?=[:;/])|[a-z+]+(?=://)", re.IGNORECASE)
_DATABASE_IN_TEXT = re.compile(
    rf"""(?<![\w./-]){_DATABASE}[:;](?:[/\\]|[^\s'"]*[:@])[^\s'"]*[^\s'":;,.)]""", re.IGNORECASE
)
# What may be a password in a malformed URL.
_PIECE = re.compile(r"[^\s:/@?#&=;,'\"\\]+(?=@)")
# A word of a command line that is the URL of a store, well or badly typed, also as the value of a mistyped option.
_STORE_WORD = re.compile(rf"(?:\A|[=-]){_DATABASE}(?:[:;](?=\S)|//)", re.IGNORECASE)
# `user:PASSWORD@`: neither `user@host:22,user@` nor the words of a reason ("fixed: ask me@here").
_LOGIN = re.compile(r"(?:\A|\s)[^@\s]*:(?!//)(?!\d{1,5},)[^\s@]+@")
_NO_PASSWORDS = re.compile(rf"{_DATABASE}|gpuprep|localhost", re.IGNORECASE)

_known: set[str] = set()


def remember(text: str) -> None:
    userinfo = _USERINFO_OF_WORD.search(text)
    for password in (userinfo[2] if userinfo else "", *(named[2] for named in _NAMED_IN_URL.finditer(text))):
        for part in (password, *re.split("[@/?#]", password)):  # SQLAlchemy takes what follows an "@" for the host
            keep_secret(part)
            keep_secret(unquote(part))


def remember_store(text: str) -> None:
    """The same for what was given as the URL of a store. If that is no URL, any part of it may be the password."""
    remember(text)
    if masked_url(text) != text and not is_url(text):
        for piece in (text, *_PIECE.findall(text)):
            if not _NO_PASSWORDS.fullmatch(piece):
                keep_secret(piece)
                keep_secret(unquote(piece))


def remember_words(words: Iterable[str]) -> None:
    """The same for the words of a command line."""
    for word, store in _and_store(words):
        remember(word)
        if store:
            remember_store(store)


def _and_store(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Each word, with the value of --store if the word has it, else ""."""
    before = ""
    for word in words:
        yield word, word if before == "--store" else word[len("--store=") :] if word.startswith("--store=") else ""
        before = word


def keep_secret(password: str) -> None:
    if len(password) >= FEWEST_LETTERS:
        _known.add(password)


def masked(text: str) -> str:
    """`text` without the passwords of URLs and connection strings, and without the remembered passwords."""
    hidden = _USERINFO.sub(rf"\1:{MASK}@", _without_known(text))
    return _in_place(_DATABASE_IN_TEXT.sub(lambda found: masked_url(found[0]), hidden))


def masked_url(url: str) -> str:
    """The same for one URL. Of a text that is no URL only the scheme stays; a plain file name stays whole."""
    if is_url(url):
        return _in_place(_USERINFO_OF_WORD.sub(rf"\1:{MASK}@", url))
    if not any(sign in url for sign in ("@" if url.startswith("sqlite:") else ":@=")):
        return url
    scheme = _SCHEME.match(url)
    return f"{scheme[0]}:{MASK}" if scheme else MASK


def is_url(text: str) -> bool:
    """Whether the parts of a URL can be told from each other."""
    url = _URL.fullmatch(text)
    return url is not None and int(url["port"] or 0) < 65536


def _in_place(text: str) -> str:
    return _NAMED.sub(rf"\g<1>{MASK}", _NAMED_IN_URL.sub(rf"\g<1>{MASK}", text))


def masked_words(words: Iterable[str]) -> list[str]:
    """The words of a command line."""
    return [
        masked(word.replace(store, masked_url(store)) if store else _USERINFO_OF_WORD.sub(rf"\1:{MASK}@", word))
        for word, store in _and_store(words)
    ]


def misplaced_password(words: Iterable[str]) -> str | None:
    """The first word, masked, that holds a password and is not the value of --store; else None.

    In such a word one cannot tell which part is the password: `u:PASSWORD@h/db`, `postgresql:u/PASSWORD@h`.
    """
    for word, store in _and_store(words):
        if not store and (_STORE_WORD.search(word) or _LOGIN.search(word) or _in_place(word) != word):
            scheme = _SCHEME.match(word)
            return f"{scheme[0]}:{MASK}" if scheme else MASK
    return None


def without_secret(store: str | None) -> str | None:
    """The value of --store if it may be shown; None if there is none or it holds a secret."""
    return store if store and _without_known(masked_url(store)) == store else None


def _without_known(text: str) -> str:
    if url := os.environ.get(STORE, ""):
        remember_store(url)
    if password := os.environ.get(LIBPQ, ""):
        keep_secret(password)
    for secret in sorted(_known, key=len, reverse=True):
        text = text.replace(secret, MASK)
    return text
