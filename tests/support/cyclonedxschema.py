"""CycloneDX's own JSON schema, as its Python library brings it."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import cyclonedx.schema
from jsonschema import Draft7Validator, FormatChecker
from referencing import Registry, Resource


@cache
def _validator() -> Draft7Validator:
    folder = Path(next(iter(cyclonedx.schema.__path__))) / "_res"
    names = ("bom-1.6", "spdx", "jsf-0.82")
    schemas = {name: json.loads((folder / f"{name}.SNAPSHOT.schema.json").read_text("utf-8")) for name in names}
    # They name one another by the addresses that they are published under.
    known = [(schema["$id"], Resource.from_contents(schema)) for schema in schemas.values()]
    beside = [
        (f"http://cyclonedx.org/schema/{name}.SNAPSHOT.schema.json", Resource.from_contents(schema))
        for name, schema in schemas.items()
    ]
    return Draft7Validator(
        schemas["bom-1.6"], registry=Registry().with_resources([*known, *beside]), format_checker=FormatChecker()
    )


def mistakes(document: Any) -> list[str]:
    """What the schema finds wrong, each as "path: message"."""
    return [f"{error.json_path}: {error.message[:200]}" for error in _validator().iter_errors(document)]
