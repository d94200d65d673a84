"""The commands that gpuprep prints for people to paste: collected, and parsed by the command line itself.

written()          every `gpuprep ...` in backticks, or in a block of a page: source, docs, README
printed            every command line that this test run made (untrusted/plaintext.command), from whichever test
problem(line)      why the command line does not take it; "" where it does
"""

from __future__ import annotations

import ast
import functools
import re
import shlex
from collections.abc import Iterator
from typing import Any

import click
from places import ROOT

from gpuprep.untrusted import plaintext

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
IN_BACKTICKS = re.compile(r"`(gpuprep [a-z-][^`]*)`")
# A line of a block in a page, up to what a shell does with it: gpuprep validate web1 --profile t4 || code=$?
IN_A_BLOCK = re.compile(r"^(?: {4}|\$ )(gpuprep [a-z](?:[^|>&;#\n\\ ]| (?! ))*)", re.M)
HOLE = "x"  # stands for what is put into an f-string

printed: dict[str, None] = {}
_make = plaintext.command


@functools.wraps(_make)
def _collected(*words: str, about: str | tuple[str, ...] = "") -> str:
    line = _make(*words, about=about)
    if words[:1] == ("gpuprep",):
        printed[line] = None
    return line


plaintext.command = _collected


def written() -> Iterator[tuple[str, str]]:
    """(file, command)"""
    for file in sorted((ROOT / "gpuprep").rglob("*.py")):
        source = file.read_text(encoding="utf-8")
        if "`gpuprep" not in source:  # every worker reads all of them
            continue
        for text in _texts(ast.parse(source)):
            yield from ((str(file.relative_to(ROOT)), found) for found in IN_BACKTICKS.findall(text))
    for file in PAGES:
        text = file.read_text(encoding="utf-8")
        for pattern in (IN_BACKTICKS, IN_A_BLOCK):
            yield from ((str(file.relative_to(ROOT)), found) for found in pattern.findall(text))


def _texts(tree: ast.AST) -> Iterator[str]:
    """Every string; of an f-string the whole, with HOLE for its values."""
    inner: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inner |= {id(part) for part in node.values}
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else HOLE for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.value


@functools.cache
def problem(line: str) -> str:
    """Parses as Click does, and runs nothing. A line that is a command's name alone need not have its arguments."""
    words = [word.removesuffix("...") for word in shlex.split(re.sub(r"[\[\]]|\.\.\.(?= |$)|…", "", line))]
    words = [word for word in words[1:] if word]
    if words == [HOLE]:  # a command's name that the program puts in
        return ""
    try:
        _parse(words)
    except click.exceptions.Exit:
        return ""
    except click.MissingParameter as error:
        return "" if _is_name(words) else error.format_message()
    except click.exceptions.NoArgsIsHelpError:
        return ""
    except click.UsageError as error:
        return error.format_message()
    return ""


def _parse(words: list[str]) -> None:
    from gpuprep.cli import cli

    command: click.Command = cli
    context = command.make_context("gpuprep", words)
    while isinstance(command, click.Group):
        rest: list[str] = [*_protected(context), *context.args]
        if not rest:
            return
        name, found, rest = command.resolve_command(context, rest)
        if found is None:
            raise click.UsageError(f"no such command: {name}")
        context = found.make_context(name, rest, parent=context)
        command = found


def _protected(context: Any) -> list[str]:
    return list(getattr(context, "_protected_args", None) or getattr(context, "protected_args", None) or [])


def _is_name(words: list[str]) -> bool:
    """Whether the words name a command, without options and arguments."""
    return len(words) <= 2 and all(re.fullmatch("[a-z-]+", word) for word in words)
