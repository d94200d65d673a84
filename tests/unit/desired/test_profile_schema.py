"""The shipped JSON Schema, which editors and gpuprep read: valid, closed, and of what the catalogue knows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from places import ROOT
from profiletext import write

from gpuprep import catalogue
from gpuprep.desired import loading

# Beside the shipped profiles, which name it in their first line.
SCHEMA_FILE = ROOT / "profiles" / "profile.schema.json"
SCHEMA: dict[str, Any] = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))


def parts(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The schema and every schema inside it."""
    yield schema
    inner = [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values()]
    inner += [schema[key] for key in ("items", "if", "then") if key in schema]
    for part in inner:
        yield from parts(part)


def at(*keys: str) -> dict[str, Any]:
    part = SCHEMA
    for key in keys:
        part = part["properties"][key]
    return part


def test_it_is_a_schema() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("name", sorted(loading.available()))
def test_shipped_profiles_validate_as_any_editor_would(name: str) -> None:
    assert list(Draft202012Validator(SCHEMA).iter_errors(loading.document(name))) == []


@pytest.mark.parametrize("name", sorted(loading.available()))
def test_shipped_profiles_name_the_schema(name: str) -> None:
    path = loading.available()[name]
    first = path.read_text(encoding="utf-8").splitlines()[0]
    start = "# yaml-language-server: $schema="
    assert first.startswith(start)
    named = path.parent / first.removeprefix(start)
    assert json.loads(named.read_text(encoding="utf-8")) == SCHEMA


def test_every_mapping_is_closed() -> None:
    assert all(part["additionalProperties"] is False for part in parts(SCHEMA) if "properties" in part)


def test_models_tools_and_frameworks_are_those_of_the_catalogue(tmp_path: Path) -> None:
    models = ", ".join(catalogue.models())
    assert loading.load(write(tmp_path, f"extends: base\ngpus: [{models}]\n")).gpus == tuple(catalogue.models())
    assert set(at("extras", "tools")["items"]["enum"]) == set(catalogue.tools())
    assert all(catalogue.framework(name) for name in at("extras", "framework")["enum"] if name != "none")


def test_versions_of_the_catalogue_can_be_written() -> None:
    for key, kind in {"ffmpeg": "ffmpeg", "headers": "nv_codec_headers"}.items():
        validator = Draft202012Validator(at("codec", key))
        assert all(validator.is_valid(version) for version in catalogue.source(kind))
    assert all(Draft202012Validator(at("cudnn", "version")).is_valid(v) for v in catalogue.cudnn_checksums())


def test_ffmpeg_components_that_need_other_libraries_are_not_offered() -> None:
    names = {name for key, part in SCHEMA["$defs"].items() if key not in ("percent", "floor") for name in part["enum"]}
    assert {"h264_nvenc", "hevc_cuvid", "av1_nvdec", "scale_cuda", "scale_npp", "lavfi", "libx264"} <= names
    assert not {"libfdk_aac", "h264_vaapi", "scale_vulkan", "hevc_videotoolbox"} & names
