"""Which names are allowed for a HOST, an address, a user or a path of an inventory?

Names of machines become arguments of ssh, file names and Ansible patterns. Names from an inventory need not come from
the user: a dynamic inventory passes on the tags of a cloud. So this module refuses what OpenSSH refuses (the shell of
the user's ProxyCommand would see it), templates, and invisible or misleading characters.
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
    """Check a host name or an address, with or without user@. Raises UsageError with one line."""
    user, at, _ = text.rpartition("@")
    _refuse(what, text, (at and _user_problem(user)) or _word_problem(text[len(user) :]), hint)


def check_user(what: str, text: str, hint: str) -> None:
    _refuse(what, text, _user_problem(text), hint)


def check_text(what: str, text: str, hint: str) -> None:
    """Check a path or an Ansible pattern, which may have blanks and brackets. Raises UsageError, as for a template."""
    _refuse(what, text, _text_problem(text, MOST_TEXT), hint)


def check_variable(what: str, value: Any, hint: str, depth: int = 0) -> None:
    """Check a role variable of an inventory. Raises UsageError if Ansible would evaluate it or cannot write it."""
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
    """What is wrong with a user name, or "". DOMAIN\\user is valid; OpenSSH refuses only a backslash at the end."""
    return "ends in a backslash" if text.endswith("\\") else _word_problem(text.replace("\\", ""))


def _word_problem(text: str) -> str:
    if not text:
        return "is empty"
    if bad_letter := next((letter for letter in text if letter in SHELL_LETTERS or letter.isspace()), None):
        return _template_problem(text) or _text_problem(text, MOST_LETTERS) or f"has {_named(bad_letter)} in it"
    return _text_problem(text, MOST_LETTERS)


def _text_problem(text: str, most: int) -> str:
    if len(text) > most:
        return f"has {len(text)} letters, at most {most} are allowed"
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
