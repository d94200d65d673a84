"""Which names are allowed for a HOST, an address, a user or a path of an inventory? Pure.

Names of machines are arguments of ssh, file names and Ansible's patterns. Those of an inventory need not be the user's
own words: a dynamic one passes on what is written in a cloud's tags. So the same is refused that OpenSSH refuses (a
shell of the user's ProxyCommand would see it), and templates, and what cannot be seen or reads as another name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuprep.errors import UsageError

MOST_LETTERS = 255  # of a name
MOST_TEXT = 4096  # of a path or a pattern
TEMPLATE_MARKS = ("{{", "{%", "{#")
# What OpenSSH lets into no host name and no user name.
SHELL_LETTERS = frozenset("'`\"$\\;&<>|(){}")
MOST_DEPTH = 50


def check_word(what: str, text: str, hint: str) -> None:
    """`text` as a host's name or an address, with user@ before it or without. Raises UsageError with one line."""
    user, at, _ = text.rpartition("@")
    _refuse(what, text, (at and _user_problem(user)) or _word_problem(text[len(user) :]), hint)


def check_user(what: str, text: str, hint: str) -> None:
    _refuse(what, text, _user_problem(text), hint)


def check_text(what: str, text: str, hint: str) -> None:
    """A path, or a pattern of Ansible's, in which blanks and brackets have a meaning: no option and no template."""
    _refuse(what, text, _text_problem(text, MOST_TEXT), hint)


def check_variable(what: str, value: Any, hint: str, depth: int = 0) -> None:
    """A variable of the roles from an inventory: data, nothing that Ansible would evaluate or could not write."""
    if depth > MOST_DEPTH:
        raise UsageError(f"{what} is nested more than {MOST_DEPTH} deep", hint)
    if isinstance(value, str):
        _refuse(what, value, _template_problem(value), hint)
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{what} {_shown(value)} contains an incomplete character", hint) from None
    elif isinstance(value, Mapping):
        if "__ansible_vault" in value:
            raise UsageError(f"{what} is encrypted, and gpuprep's variables hold no secrets", hint)
        for key, item in value.items():
            check_variable(what, str(key), hint, depth + 1)
            check_variable(what, item, hint, depth + 1)
    elif isinstance(value, Sequence):
        for item in value:
            check_variable(what, item, hint, depth + 1)


def _refuse(what: str, text: str, problem: str, hint: str) -> None:
    if problem:
        raise UsageError(f"{what} {_shown(text)} {problem}", hint)


def _user_problem(text: str) -> str:
    """DOMAIN\\user is a user; OpenSSH refuses a backslash at the end only."""
    return "ends in a backslash" if text.endswith("\\") else _word_problem(text.replace("\\", ""))


def _word_problem(text: str) -> str:
    if not text:
        return "is empty"
    if bad_letter := next((letter for letter in text if letter in SHELL_LETTERS or letter.isspace()), None):
        return _template_problem(text) or _text_problem(text, MOST_LETTERS) or f"has {_named(bad_letter)} in it"
    return _text_problem(text, MOST_LETTERS)


def _text_problem(text: str, most: int) -> str:
    if len(text) > most:
        return f"has {len(text)} letters, and {most} are the most"
    if text.startswith("-"):
        return "begins with a dash, as an option does"
    if text.startswith("@-"):
        return "has a dash after the @, where an option would begin"
    if not text.isprintable():
        return "has invisible or control characters in it"
    return _template_problem(text)


def _template_problem(text: str) -> str:
    return "is a template, which gpuprep does not evaluate" if any(mark in text for mark in TEMPLATE_MARKS) else ""


def _named(letter: str) -> str:
    return "a blank" if letter == " " else repr(letter)


def _shown(text: str) -> str:
    return repr(text if len(text) <= 80 else f"{text[:79]}…")
