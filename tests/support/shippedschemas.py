"""The schemas that gpuprep ships: of a record, and of each JSON document that a command prints."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from gpuprep.records import schema
from gpuprep.reports import documents

RECORD = "record"
_FOLDER = resources.files("gpuprep")
_FILES = {
    RECORD: _FOLDER / "records/record.schema.json",
    **{name: _FOLDER / f"reports/schemas/{name}.schema.json" for name in documents.DOCUMENTS},
}
NAMES = tuple(_FILES)
DOCUMENTS = tuple(documents.DOCUMENTS)


def shipped(name: str) -> Any:
    return json.loads(_FILES[name].read_text(encoding="utf-8"))


def is_of_the_types(name: str) -> bool:
    """Whether the shipped schema is the one that the dataclasses have."""
    made = schema.schema() if name == RECORD else documents.schema(name)
    return schema.text(made) == _FILES[name].read_text(encoding="utf-8")
