"""A host that names its software so that the bill of materials breaks, lies or grows without end."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
from builders import finished_snapshot, resolved
from cyclonedxschema import mistakes
from records_for_tests import record

from gpuprep import records, reports

SNAPSHOT = finished_snapshot(resolved())
CLEAR = "\x1b[2J\x9b\u202e\u2066\x00\x7f\u2028"
DEEP: Any = {}
for _ in range(200):
    DEEP = {"sources": [DEEP]}


def packages(*names: str, version: str = "1") -> records.Snapshot:
    return dataclasses.replace(SNAPSHOT, packages={name: records.Package(version, False) for name in names})


def proof(**parts: Any) -> records.Snapshot:
    return dataclasses.replace(SNAPSHOT, provenance=parts)


def codec(**parts: Any) -> records.Snapshot:
    return dataclasses.replace(SNAPSHOT, codec=dataclasses.replace(SNAPSHOT.codec, **parts))


def gpu(**parts: Any) -> records.Snapshot:
    assert isinstance(SNAPSHOT.gpus, tuple)
    return dataclasses.replace(SNAPSHOT, gpus=(dataclasses.replace(SNAPSHOT.gpus[0], **parts),))


KEY = SNAPSHOT.codec.build_key
ATTACKS: dict[str, Callable[[], records.Snapshot]] = {
    "quotes and braces in a name": lambda: packages('x", "bom-ref": "host"}], "components": [{'),
    "control characters in a name": lambda: packages(CLEAR),
    "half a surrogate pair": lambda: packages("\ud800", version="\udfff"),
    "an empty name": lambda: packages(""),
    "names that differ in what cannot be seen": lambda: packages("cuda\u200b", "cuda"),
    "a name that is another address": lambda: packages("cuda@1.0?distro=debian-12#sub/../../x"),
    "a name with slashes": lambda: packages("../../pypi/requests"),
    "a version with a question mark": lambda: packages("cuda", version="1?arch=evil&distro=x#y"),
    "an epoch that is none": lambda: packages("cuda", version="\u0661:2"),
    "a name of a megabyte": lambda: packages("x" * 2**20),
    "more packages than it lists": lambda: packages(*(f"cuda-{number}" for number in range(3000))),
    "a system id with an address in it": lambda: dataclasses.replace(
        SNAPSHOT, os=dataclasses.replace(SNAPSHOT.os, id="debian/../x?y", like=("debian",))
    ),
    "a system version with escapes": lambda: dataclasses.replace(
        SNAPSHOT, os=dataclasses.replace(SNAPSHOT.os, version_id=CLEAR, pretty_name=CLEAR * 1000)
    ),
    "provenance that is lists": lambda: proof(packages=[1], cudnn=[2], ffmpeg=[3]),
    "provenance of numbers": lambda: proof(packages={"libcuda1": 7}, cudnn={"version": 9}, ffmpeg={"key": 1.5}),
    "provenance without end": lambda: proof(ffmpeg={**DEEP, "key": KEY}),
    "a hash that is a script": lambda: proof(
        cudnn={"version": SNAPSHOT.cudnn.wheel_version, "wheel_sha256": "<script>" * 8},
        ffmpeg={"key": KEY, "version": "7", "sources": {"ffmpeg": "A" * 64, "headers": ["b" * 64]}},
    ),
    "a hash with a line behind it": lambda: proof(
        cudnn={"version": SNAPSHOT.cudnn.wheel_version, "wheel_sha256": "a" * 64 + "\n"}
    ),
    "sources of another build": lambda: proof(ffmpeg={"key": "other", "sources": {"ffmpeg": "a" * 64}}),
    "sources with a name in place of hashes": lambda: proof(ffmpeg={"key": KEY, "version": CLEAR, "sources": "abc"}),
    "a version of FFmpeg with escapes": lambda: codec(ffmpeg_version=CLEAR, ffmpeg_real_path=CLEAR),
    "firmware with escapes": lambda: gpu(vbios=CLEAR, name=CLEAR, uuid=CLEAR),
    "an agent's library with escapes": lambda: dataclasses.replace(SNAPSHOT, agent_libraries={CLEAR: CLEAR, "": ""}),
    "a cuDNN of a CUDA with an address in it": lambda: dataclasses.replace(
        SNAPSHOT, cudnn=dataclasses.replace(SNAPSHOT.cudnn, cuda_major="12/../../evil@1", wheel_version="1#2")
    ),
}  # fmt: skip
RECORDS: dict[str, dict[str, str]] = {
    "an end that is no date": {"ended_at": "never"},
    "an end before time began": {"ended_at": "0001-01-01T00:00:00+14:00"},
    "a host with escapes": {"host": CLEAR},
    "a host without a name": {"host": ""},
    "a run's name with a surrogate": {"run_id": "\ud800" * 4},
}


def checked(run: records.RunRecord) -> dict[str, Any]:
    text = reports.render(run, "sbom")
    text.encode("utf-8")
    assert not set(text) & (set(CLEAR) - set("[2J"))
    assert len(text) < 4 * 2**20
    made: dict[str, Any] = json.loads(text)
    # Of two thousand parts alike the schema is asked about a hundred: 4 ms each.
    assert mistakes({**made, "components": [*made["components"][:50], *made["components"][50:][-50:]]}) == []
    references = [part["bom-ref"] for part in made["components"]]
    assert len(references) == len(set(references))
    assert made["metadata"]["component"]["bom-ref"] == "host"
    addresses = [part["purl"] for part in made["components"] if "purl" in part]
    assert not [address for address in addresses if ".." in address.split("/") or address.count("?") > 1]
    return made


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_host_that_names_its_software_with_malice(attack: str) -> None:
    made = checked(dataclasses.replace(record(), after=ATTACKS[attack]()))
    hashes = [part["hashes"] for part in made["components"] if "hashes" in part]
    assert "hash" not in attack or hashes == []


@pytest.mark.parametrize("attack", RECORDS)
def test_a_record_with_malice(attack: str) -> None:
    checked(dataclasses.replace(record(), after=SNAPSHOT, **RECORDS[attack]))  # type: ignore[arg-type]
