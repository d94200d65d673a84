"""The whole interface that scripts rely on, in one file: commands, options, exit codes, names in the JSON of a record.

A change of it is a decision. After a wanted one write the file anew, read the difference, and name it in CHANGELOG.md:

    GPUPREP_UPDATE_GOLDEN=1 pytest tests/unit/cli/test_interface.py && git diff tests/golden/interface.txt
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Iterator
from importlib import resources
from typing import Any

import click
from places import TESTS

from gpuprep import errors
from gpuprep.cli import cli
from gpuprep.records import ended

GOLDEN = TESTS / "golden" / "interface.txt"


def commands(command: click.Command, path: str) -> Iterator[str]:
    """A line a command and a parameter, subcommands after it."""
    yield path
    context = click.Context(command, info_name=path)
    for parameter in sorted(command.params, key=lambda each: (each.param_type_name, each.name or "")):
        yield f"    {parameter_line(parameter)}"
    if isinstance(command, click.Group):
        for name in sorted(command.list_commands(context)):
            child = command.get_command(context, name)
            assert child is not None
            yield from commands(child, f"{path} {name}")


def parameter_line(parameter: click.Parameter) -> str:
    kind = parameter.type
    values = ",".join(map(str, kind.choices)) if isinstance(kind, click.Choice) else kind.name
    if isinstance(kind, click.IntRange | click.FloatRange):
        values = f"{kind.name} {kind.min}..{kind.max}"
    words = [" ".join(parameter.opts + parameter.secondary_opts), values]
    if isinstance(parameter, click.Option) and parameter.is_flag:
        words[1] = "flag"
    default = parameter.default
    # Unset is None in click 8.1 and a value of its own in later ones.
    if isinstance(default, str | int | float) and default is not False:
        words.append(f"default={default}")
    for name, told in (
        ("required", parameter.required),
        ("many", parameter.nargs == -1 or getattr(parameter, "multiple", False)),
        ("hidden", getattr(parameter, "hidden", False)),
    ):
        words += [name] if told else []
    words += [f"env={parameter.envvar}"] if isinstance(parameter.envvar, str) else []
    return "  ".join(words)


def exit_codes() -> Iterator[str]:
    for status, code in ended.EXIT_CODES.items():
        yield f"verdict {status.value}: {code}"
    for name, each in sorted(inspect.getmembers(errors, inspect.isclass)):
        if issubclass(each, errors.GpuprepError):
            yield f"error {name}: {each.exit_code}"


def names(schema: Any, root: Any, path: str = "", seen: tuple[str, ...] = ()) -> Iterator[str]:
    """Every name that a record's JSON may have, with its type: "snapshot.gpus[].name: string"."""
    if not isinstance(schema, dict):
        return
    if "$ref" in schema:
        target = str(schema["$ref"])
        if target == "#/$defs/Absent":  # any figure of a probe may be
            return
        if target in seen:
            yield f"{path}: as above"
            return
        inner = root
        for part in target.removeprefix("#/").split("/"):
            inner = inner[part]
        yield from names(inner, root, path, (*seen, target))
        return
    yield from names(schema.get("then"), root, path, seen)
    for word in ("anyOf", "oneOf", "allOf"):
        for each in schema.get(word, ()):
            yield from names(each, root, path, seen)
    kind = schema.get("type")
    if path and (kind or "const" in schema or "enum" in schema):
        values = schema.get("enum", [schema["const"]] if "const" in schema else [])
        told = kind if isinstance(kind, str) else "|".join(kind or ["constant"])
        yield f"{path}: {told}" + (f" {','.join(map(str, values))}" if values else "")
    for name, each in sorted(schema.get("properties", {}).items()):
        yield from names(each, root, f"{path}.{name}" if path else name, seen)
    yield from names(schema.get("items"), root, f"{path}[]", seen)
    yield from names(schema.get("additionalProperties"), root, f"{path}.*", seen)


def interface() -> str:
    schema = json.loads((resources.files("gpuprep") / "records" / "record.schema.json").read_text(encoding="utf-8"))
    parts = {
        "Commands and options": commands(cli, "gpuprep"),
        "Exit codes": exit_codes(),
        "JSON of a record": iter(sorted(set(names(schema, schema)))),
    }
    return "\n".join(f"# {title}\n\n" + "\n".join(lines) + "\n" for title, lines in parts.items())


def test_the_interface_is_the_one_that_was_decided() -> None:
    now = interface()
    if os.environ.get("GPUPREP_UPDATE_GOLDEN") == "1":
        GOLDEN.write_text(now, encoding="utf-8")
    assert now == GOLDEN.read_text(encoding="utf-8"), "see the top of this file for how to write it anew"


def test_a_changed_option_would_be_seen() -> None:
    @click.command()
    @click.option("--often", type=click.IntRange(1, 5), default=2, envvar="OFTEN")
    @click.argument("host", nargs=-1, required=True)
    def example(often: int, host: tuple[str, ...]) -> None:
        """Not run."""

    assert list(commands(example, "x")) == [
        "x",
        "    host  text  required  many",
        "    --often  integer range 1..5  default=2  env=OFTEN",
    ]
