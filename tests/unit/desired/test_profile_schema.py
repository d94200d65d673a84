"""The shipped JSON Schema: valid, equal to the dataclasses and to the catalogue, and with words for all it refuses."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

import gpuprep
from gpuprep import records
from gpuprep.desired import loading, profile
from gpuprep.desired.loading import schema as profileschema

SCHEMA = profileschema.schema()
CATALOGUE = Path(gpuprep.__file__).parent / "catalogue"
# Keywords that describe, hold other schemas, or have a message that names several keys.
STRUCTURE = {"$schema", "title", "description", "x-allowed", "properties", "items", "$defs", "$ref", "if", "then"}
OF_KEYS = {"additionalProperties", "required", "uniqueItems"}


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
    assert (path.parent / first.removeprefix(start)).resolve() == profileschema.SCHEMA_PATH.resolve()


@pytest.mark.parametrize(
    ("keys", "wish"),
    [
        (("driver",), profile.DriverWish),
        (("cuda",), profile.CudaWish),
        (("cudnn",), profile.CudnnWish),
        (("codec",), profile.CodecWish),
        (("tuning",), profile.TuningWish),
        (("tuning", "clocks"), records.ClockPair),
        (("extras",), profile.ExtrasWish),
        (("extras", "mount"), profile.MountWish),
    ],
)
def test_schema_and_dataclass_have_the_same_keys(keys: tuple[str, ...], wish: type) -> None:
    fields = [f.name for f in dataclasses.fields(wish)]
    assert sorted(at(*keys)["properties"]) == sorted(fields)
    later = [f.name for f in dataclasses.fields(wish) if f.default is not dataclasses.MISSING]  # profiles made before
    assert sorted(at(*keys)["required"]) == sorted(set(fields) - set(later))
    assert at(*keys)["additionalProperties"] is False


def test_every_mapping_is_closed() -> None:
    assert all(part["additionalProperties"] is False for part in parts(SCHEMA) if "properties" in part)


def test_every_keyword_has_a_message() -> None:
    used = {key for part in parts(SCHEMA) for key in part}
    assert used - STRUCTURE - OF_KEYS == set(profileschema.MESSAGES)


def test_every_pattern_says_in_words_what_it_allows() -> None:
    told = [part for part in parts(SCHEMA) if "pattern" in part or isinstance(part.get("type"), list)]
    assert told
    assert not [part for part in told if not part.get("x-allowed")]


def test_every_enum_is_of_texts() -> None:
    # The validator's own enum check relies on it.
    assert all(isinstance(v, str) for part in parts(SCHEMA) for v in part.get("enum", []))


def catalogue(name: str) -> dict[str, Any]:
    data: dict[str, Any] = yaml.safe_load((CATALOGUE / f"{name}.yml").read_text(encoding="utf-8"))
    return data


def test_models_tools_and_frameworks_are_those_of_the_catalogue() -> None:
    assert set(at("gpus")["items"]["enum"]) == {"any", *catalogue("gpus")["models"]}
    assert set(at("extras", "tools")["items"]["enum"]) == set(catalogue("extras")["tools"])
    assert set(at("extras", "framework")["enum"]) == {"none", *catalogue("extras")["frameworks"]}


def test_versions_of_the_catalogue_can_be_written() -> None:
    sources = catalogue("sources")
    codec = {"ffmpeg": sources["ffmpeg"]["versions"], "headers": sources["nv_codec_headers"]["versions"]}
    for key, versions in codec.items():
        validator = Draft202012Validator(at("codec", key))
        assert all(validator.is_valid(version) for version in versions)
    assert all(Draft202012Validator(at("cudnn", "version")).is_valid(v) for v in sources["cudnn"])


def test_ffmpeg_components_that_need_other_libraries_are_not_offered() -> None:
    names = {name for key, part in SCHEMA["$defs"].items() if key not in ("percent", "floor") for name in part["enum"]}
    assert {"h264_nvenc", "hevc_cuvid", "av1_nvdec", "scale_cuda", "scale_npp", "lavfi", "libx264"} <= names
    assert not {"libfdk_aac", "h264_vaapi", "scale_vulkan", "hevc_videotoolbox"} & names
