"""The JSON Schema of a run record, made from the dataclasses themselves. record.schema.json is what this returns.

To write the file again: python -m gpuprep.records.schema
"""

from __future__ import annotations

import dataclasses
import enum
import json
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Union

from gpuprep.records import Missing, ProbeResult, RunRecord
from gpuprep.records.evidence import key_of, kinds

Reference = Callable[[Any, dict[str, Any]], dict[str, Any]]
SIMPLE = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
MISSING = {
    "type": "object",
    "description": "A reading that could not be taken.",
    "properties": {"missing": {"type": "string"}, "detail": {"type": "string"}},
    "required": ["missing", "detail"],
    "additionalProperties": False,
}


def schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of `gpuprep report RUN --format json`."""
    return schema_of(RunRecord, "gpuprep run record")


def schema_of(kind: Any, title: str) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a dataclass, which may contain records."""
    definitions: dict[str, Any] = {}
    root = _of(kind, definitions)
    if ProbeResult.__name__ in definitions:
        values = [_values(probe, each, definitions) for probe, each in kinds.OF_PROBE.items()]
        definitions["Absent"] = {"anyOf": [{"type": "null"}, _of(Missing, definitions)]}
        definitions[ProbeResult.__name__]["allOf"] = values
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **root,
        "$defs": dict(sorted(definitions.items())),
    }


def _of(kind: Any, definitions: dict[str, Any], reference: Reference | None = None) -> dict[str, Any]:
    """The schema of a type; of a dataclass what `reference` says, which for a record is a reference to its schema."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return {}
    if kind in SIMPLE:
        return {"type": SIMPLE[kind]}
    if origin is Annotated:
        return _of(arguments[0], definitions, reference)
    if origin is Union or origin is getattr(types, "UnionType", Union):
        # Sorted, because typing caches equal Unions and returns the order of the first one in the process.
        return {"anyOf": sorted((_of(option, definitions, reference) for option in arguments), key=json.dumps)}
    if origin is tuple:
        return {"type": "array", "items": _of(arguments[0], definitions, reference)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _of(arguments[1], definitions, reference)}
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return {"enum": [member.value for member in kind]}
    if not dataclasses.is_dataclass(kind):
        raise TypeError(f"no JSON Schema for {kind}")
    if reference is not None and kind is not Missing:
        return reference(kind, definitions)
    name = kind.__name__  # type: ignore[union-attr]
    if name not in definitions:
        definitions[name] = MISSING if kind is Missing else {}
        if kind is not Missing:
            definitions[name] = _object(kind, definitions)
    return {"$ref": f"#/$defs/{name}"}


def _object(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    properties = {spec.name: _of(hints[spec.name], definitions) for spec in dataclasses.fields(kind)}
    text = (kind.__doc__ or "").strip()
    described = {"description": " ".join(text.split())} if text and not text.startswith(f"{kind.__name__}(") else {}
    return {
        "type": "object",
        **described,
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _values(probe: str, kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    either = {"anyOf": [_evidence(kind, definitions), _of(Missing, definitions)]}
    return {
        "if": {"properties": {"probe": {"const": probe}}},
        "then": {"properties": {"values": either}},
    }


def _evidence(kind: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of a type of records/evidence: each field may be absent, null or Missing; other fields are allowed."""
    name = f"{kind.__module__.rpartition('.')[2]}.{kind.__name__}"
    if name not in definitions:
        hints = typing.get_type_hints(kind, include_extras=True)
        fields = {
            key_of(spec): {"anyOf": [_of(hints[spec.name], definitions, _evidence), {"$ref": "#/$defs/Absent"}]}
            for spec in dataclasses.fields(kind)
        }
        definitions[name] = {"type": "object", "properties": fields}
    return {"$ref": f"#/$defs/{name}"}


def document_schema(kind: Any, title: str, version: int) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a document of a command: a dataclass, with `schema_version` before its fields."""
    made = schema_of(kind, title)
    reference = made.pop("$ref").rpartition("/")[2]
    root = made["$defs"].pop(reference)
    fields = {name: field for name, field in root["properties"].items() if name != "schema_version"}
    root["properties"] = {"schema_version": {"const": version}, **fields}
    root["required"] = ["schema_version", *(name for name in root["required"] if name != "schema_version")]
    return {**{key: made[key] for key in ("$schema", "title")}, **root, "$defs": made["$defs"]}


def text(made: dict[str, Any]) -> str:
    """A JSON Schema as its file contains it."""
    return json.dumps(made, indent=2) + "\n"


def write(folder: Path, schemas: Mapping[str, dict[str, Any]]) -> None:
    """Write NAME.schema.json for each of `schemas` to the folder."""
    folder.mkdir(exist_ok=True)
    for name, made in schemas.items():
        (folder / f"{name}.schema.json").write_text(text(made), encoding="utf-8")


if __name__ == "__main__":
    write(Path(__file__).parent, {"record": schema()})
