"""Checks a profile against profile.schema.json and says what is wrong in our own words.

The schema is the only list of keys, types and values: editors read it, and so does this module. Only the names of GPU
models are added here, from the catalogue. A message is made from the keyword that failed; `x-allowed` in the schema
explains in words what a pattern or a choice of types allows.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

from gpuprep import catalogue
from gpuprep.paths import shipped_profiles_dir
from gpuprep.yamlfile.nodes import Node, Problem, describe, join, plain, shorten

ANY = "any"  # in `gpus`: all models of the catalogue
SCHEMA_PATH = shipped_profiles_dir() / "profile.schema.json"

_TYPE_WORDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
    "null": "null",
}


@lru_cache(maxsize=1)
def schema() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(SCHEMA_PATH.read_text(encoding="utf-8"))
    document["properties"]["gpus"]["items"]["enum"] = [ANY, *catalogue.models()]
    return document


def allowed_parts(kind: str) -> list[str]:
    """Allowed names in codec.parts for a kind ("encoders"); [] for an unknown kind."""
    document = schema()
    lists = document["$defs"]
    parts = document["properties"]["codec"]["properties"]["parts"]["properties"]
    if kind not in parts:
        return []
    names: list[str] = lists[parts[kind]["items"]["$ref"].rpartition("/")[2]]["enum"]
    return names


@lru_cache(maxsize=1)
def _validator() -> Any:
    # Imported here: jsonschema takes longer to import than everything else of `gpuprep --help` together.
    from jsonschema import Draft202012Validator, ValidationError, validators

    def pattern(_: Any, wanted: str, instance: Any, __: Any) -> Iterator[Any]:
        # Python's $ also matches before a final newline, JSON Schema's does not.
        if isinstance(instance, str) and not re.search(re.sub(r"\$$", r"\\Z", wanted), instance):
            yield ValidationError("does not match")

    def enum(_: Any, wanted: list[str], instance: Any, __: Any) -> Iterator[Any]:
        # Ours hold only texts, and hundreds of them; the library's own comparison takes ten times the rest of a check.
        if not isinstance(instance, str) or instance not in wanted:
            yield ValidationError("is none of these")

    def unique(_: Any, wanted: bool, instance: Any, __: Any) -> Iterator[Any]:
        # The library compares each with each when types are mixed: minutes for a long list.
        if wanted and isinstance(instance, list) and len({json.dumps(item) for item in instance}) < len(instance):
            yield ValidationError("has an item twice")

    def is_integer(_: Any, instance: Any) -> bool:
        return isinstance(instance, int) and not isinstance(instance, bool)  # 1.0 is no whole number of watts

    checker = Draft202012Validator.TYPE_CHECKER.redefine("integer", is_integer)
    return validators.extend(  # type: ignore[no-untyped-call]
        Draft202012Validator, {"pattern": pattern, "enum": enum, "uniqueItems": unique}, type_checker=checker
    )(schema())


def check_file(root: Node) -> list[Problem]:
    """All problems of one file, except missing keys: the profile that it extends may have them."""
    errors = [e for e in _validator().iter_errors(plain(root)) if e.validator != "required"]
    # A value of the wrong type fails every other rule too: the type says it best.
    mistyped = {tuple(e.absolute_path) for e in errors if e.validator == "type"}
    causes = [e for e in errors if e.validator == "type" or tuple(e.absolute_path) not in mistyped]
    return [p for e in causes for p in _explain(root, e)]


def check_complete(root: Node) -> list[Problem]:
    """All keys that a merged profile lacks."""
    errors = [e for e in _validator().iter_errors(plain(root)) if e.validator == "required"]
    return list(dict.fromkeys(p for e in errors for p in _explain(root, e)))


def nearest(word: str, known: list[str]) -> str:
    """A text with "did you mean" if a known word is similar, else ""."""
    close = difflib.get_close_matches(word.lower(), known, n=1, cutoff=0.7)
    return f" (did you mean {close[0]}?)" if close else ""


def _explain(root: Node, error: Any) -> list[Problem]:
    node, key = _locate(root, error.absolute_path)
    if not node.sound:
        return []
    if error.validator == "additionalProperties":
        return list(_unknown_keys(node, key, error))
    if error.validator == "required":
        return list(_missing_keys(node, key, error))
    if "propertyNames" in error.absolute_schema_path and isinstance(node.value, dict):
        child = node.value[error.instance]
        return [Problem(child.place, join(key, error.instance), f"unknown key; allowed: {_allowed(error.schema)}")]
    if error.validator == "uniqueItems":
        return list(_repeated_items(node, key))
    return [Problem(node.place, key or "file", MESSAGES[error.validator](node, error))]


def _locate(root: Node, path: Any) -> tuple[Node, str]:
    node, key = root, ""
    for step in path:
        if isinstance(step, int):
            assert isinstance(node.value, list)
            node, key = node.value[step], f"{key}[{step}]"
        else:
            assert isinstance(node.value, dict)
            node, key = node.value[step], join(key, step)
    return node, key


def _unknown_keys(node: Node, key: str, error: Any) -> Iterator[Problem]:
    known = list(error.schema["properties"])
    assert isinstance(node.value, dict)
    for name, child in node.value.items():
        if name not in known:
            what = f"unknown key{nearest(name, known)}; allowed: {', '.join(known)}"
            yield Problem(child.place, join(key, name), what)


def _missing_keys(node: Node, key: str, error: Any) -> Iterator[Problem]:
    assert isinstance(node.value, dict)
    for name in error.validator_value:
        if name not in node.value:
            wanted = _allowed(error.schema["properties"][name])
            yield Problem(node.place, join(key, name), f"missing here and in what this extends; allowed: {wanted}")


def _repeated_items(node: Node, key: str) -> Iterator[Problem]:
    assert isinstance(node.value, list)
    seen: set[str] = set()
    for index, item in enumerate(node.value):
        value = json.dumps(plain(item))
        if item.sound and value in seen:
            yield Problem(item.place, f"{key}[{index}]", f"{describe(item)} is in the list twice; allowed: once")
        seen.add(value)


def _allowed(part: dict[str, Any]) -> str:
    """What a part of the schema allows, in words."""
    if "$ref" in part:
        part = schema()["$defs"][part["$ref"].rpartition("/")[2]]
    if "x-allowed" in part:
        return str(part["x-allowed"])
    if "enum" in part:
        return ", ".join(part["enum"])
    words = " or ".join(_TYPE_WORDS[t] for t in _types(part))
    if "required" in part:
        return f"{words} with {', '.join(part['required'])}"
    if "items" in part:
        return f"{words} of: {_allowed(part['items'])}"
    bounds = _bounds(part)
    return f"{words} {bounds}" if bounds else words


def _types(part: dict[str, Any]) -> list[str]:
    types = part.get("type", [])
    return [types] if isinstance(types, str) else list(types)


def _bounds(part: dict[str, Any]) -> str:
    words = {"minimum": "from {}", "exclusiveMinimum": "above {}", "maximum": "to {}"}
    return " ".join(text.format(part[key]) for key, text in words.items() if key in part)


def _wrong_type(node: Node, error: Any) -> str:
    types = _types(error.schema)
    allowed = _allowed(error.schema)
    if types == ["string"] and node.text and re.search(error.schema.get("pattern", "$^"), node.text):
        # YAML reads 12.10 as the number 12.1.
        return f"is {describe(node)}, not text; write it in quotes: '{shorten(node.text)}'; allowed: {allowed}"
    if isinstance(node.value, str) and "string" not in types and _reads_as(node.text, types):
        return f"is {describe(node)} because of its quotes; write it without them; allowed: {allowed}"
    return f"is {describe(node)}; allowed: {allowed}"


def _reads_as(text: str, types: list[str]) -> bool:
    return (text in ("true", "false") and "boolean" in types) or (
        re.fullmatch(r"[0-9]{1,9}(\.[0-9]+)?", text, re.ASCII) is not None and bool({"integer", "number"} & set(types))
    )


def _wrong_choice(node: Node, error: Any) -> str:
    allowed = [str(v) for v in error.validator_value]
    hint = nearest(node.value, allowed) if isinstance(node.value, str) else ""
    return f"is {describe(node)}{hint}; allowed: {_allowed_at(error)}"


def _wrong_form(node: Node, error: Any) -> str:
    return f"is {describe(node)}; allowed: {_allowed(error.schema)}"


def _out_of_range(node: Node, error: Any) -> str:
    return f"is {describe(node)}; allowed: {_bounds(error.schema)}"


def _too_short(_: Node, error: Any) -> str:
    return f"is empty; allowed: {_allowed(error.schema)}"


def _allowed_at(error: Any) -> str:
    """What is allowed where `error` is, in words. An enum inside if/then belongs to the whole key: power_limit_watts is
    `default` or a number.
    """
    if "then" not in error.absolute_schema_path:
        return _allowed(error.schema)
    part: Any = schema()
    for step in error.absolute_schema_path:
        if step == "then":
            break
        part = part[step]
    return _allowed(part)


# Every keyword that the schema uses to refuse a value; a test holds the schema to this list.
MESSAGES: dict[str, Callable[[Node, Any], str]] = {
    "type": _wrong_type,
    "enum": _wrong_choice,
    "pattern": _wrong_form,
    "minimum": _out_of_range,
    "exclusiveMinimum": _out_of_range,
    "maximum": _out_of_range,
    "minItems": _too_short,
    "minLength": _too_short,
    "minProperties": _too_short,
}
