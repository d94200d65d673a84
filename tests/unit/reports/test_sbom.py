"""The bill of materials of a host: valid, complete for what a record knows, and the same for the same record."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from builders import bare_snapshot, finished_snapshot, resolved
from cyclonedxschema import mistakes
from packageurl import PackageURL
from records_for_tests import record
from validations_for_tests import h200, real, several, t4

from gpuprep import records, reports

WANTED = resolved()
DIGEST = "949452be657fa16687d0930933f032835951ef0892b37d2d53824d1a84dc97a8"
SOURCES = {"ffmpeg": "a" * 64, "headers": "b" * 64}


def provisioned() -> records.RunRecord:
    snapshot = finished_snapshot(WANTED)
    proof = {
        "packages": {"libcuda1": {"version": "550.163.01-1", "from": "https://deb.example trixie/non-free"}},
        "cudnn": {"version": snapshot.cudnn.wheel_version, "wheel_sha256": DIGEST},
        "ffmpeg": {
            "version": snapshot.codec.ffmpeg_version, "headers_version": "12.2.72.0", "key": snapshot.codec.build_key,
            "sources": SOURCES,
        },
    }  # fmt: skip
    assert isinstance(snapshot.gpus, tuple)
    gpus = tuple(dataclasses.replace(gpu, name="NVIDIA", vbios="90.04.38.00.03") for gpu in snapshot.gpus)
    return dataclasses.replace(record(), after=dataclasses.replace(snapshot, provenance=proof, gpus=gpus))


def document(run: records.RunRecord) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(reports.render(run, "sbom"))
    assert mistakes(made) == []
    return made


def parts(run: records.RunRecord) -> dict[str, Any]:
    return {part["name"]: part for part in document(run)["components"]}


def test_what_was_installed_is_there_with_its_hashes() -> None:
    found = parts(provisioned())
    assert (found["debian"]["type"], found["debian"]["version"]) == ("operating-system", "13")
    assert found["nvidia"]["type"] == "device-driver"
    assert found["libcuda1"]["purl"] == "pkg:deb/debian/libcuda1@550.163.01-1?distro=debian-13"
    assert {"name": "gpuprep:archive", "value": "https://deb.example trixie/non-free"} in found["libcuda1"][
        "properties"
    ]
    assert found["nvidia-cudnn-cu12"]["hashes"] == [{"alg": "SHA-256", "content": DIGEST}]
    assert found["psutil"]["purl"] == "pkg:pypi/psutil@7.2.2"
    sources = {part["name"]: part["hashes"][0]["content"] for part in found["ffmpeg"]["pedigree"]["ancestors"]}
    assert sources == {"sources of ffmpeg": "a" * 64, "sources of nv-codec-headers": "b" * 64}
    assert next(part for part in found.values() if part["type"] == "device")["components"][0] == {
        "type": "firmware", "name": "VBIOS of NVIDIA", "version": "90.04.38.00.03",
    }  # fmt: skip


def test_every_address_can_be_read_back() -> None:
    addressed = [part for part in parts(provisioned()).values() if "purl" in part]
    assert addressed
    for part in addressed:
        assert PackageURL.from_string(part["purl"]).name.lower() == part["name"].lower()


def test_the_same_record_gives_the_same_document_and_another_run_another_number() -> None:
    assert reports.render(provisioned(), "sbom") == reports.render(provisioned(), "sbom")
    other = document(dataclasses.replace(provisioned(), run_id="20261120-100000-000000"))
    assert other["serialNumber"] != document(provisioned())["serialNumber"]
    assert other["metadata"]["timestamp"] == "2026-11-20T10:09:30+00:00"


def test_it_says_what_it_does_not_cover() -> None:
    made = document(provisioned())
    assert made["compositions"] == [{"aggregate": "incomplete", "assemblies": ["host"]}]
    assert any("not every package" in item["value"] for item in made["metadata"]["properties"])


@pytest.mark.parametrize(
    "run", [h200(), t4(), real(), several(), record()], ids=["h200", "t4", "real", "several", "old"]
)
def test_every_kind_of_record_is_valid(run: records.RunRecord) -> None:
    document(run)


def test_a_run_that_never_read_its_host_names_nothing() -> None:
    made = document(dataclasses.replace(record(), before=None, after=None))
    assert made["components"] == []
    assert made["compositions"][0]["aggregate"] == "unknown"


def test_a_bare_host_has_its_system_alone() -> None:
    found = parts(dataclasses.replace(record(), after=bare_snapshot()))
    assert "ffmpeg" not in found
    assert "nvidia" not in found


def test_a_hash_of_another_version_is_not_claimed() -> None:
    run = provisioned()
    assert run.after is not None
    changed = dataclasses.replace(run.after, cudnn=dataclasses.replace(run.after.cudnn, wheel_version="9.1.0.70"))
    found = parts(dataclasses.replace(run, after=changed))
    assert "hashes" not in found["nvidia-cudnn-cu12"]


@pytest.mark.parametrize(
    ("system", "version", "purl"),
    [
        (("debian", "12"), "1:2.3-4+deb12u1", "deb/debian/dkms@1%3A2.3-4%2Bdeb12u1?distro=debian-12"),
        (("mint", "22", "ubuntu", "debian"), "3.0", "deb/mint/dkms@3.0?distro=mint-22"),
        (("rocky", "9", "rhel", "fedora"), "2:3.0-1.el9", "rpm/rocky/dkms@3.0-1.el9?distro=rocky-9&epoch=2"),
        (("plan9", "4"), "1", ""),
    ],
)  # fmt: skip
def test_addresses_of_packages(system: tuple[str, ...], version: str, purl: str) -> None:
    facts = records.OsFacts(system[0], system[1], "", "", "x86_64", system[2:])
    snapshot = dataclasses.replace(bare_snapshot(), os=facts, packages={"dkms": records.Package(version, False)})
    assert parts(dataclasses.replace(record(), after=snapshot))["dkms"].get("purl", "") == (purl and f"pkg:{purl}")


def test_readings_that_failed_are_left_out() -> None:
    failed = records.Missing("command_failed", "?")
    snapshot = dataclasses.replace(
        finished_snapshot(WANTED), gpus=failed, provenance=failed, agent_installed_version=failed
    )
    found = parts(dataclasses.replace(record(), after=snapshot))
    assert "gpuprep-agent" not in found
    assert "pedigree" not in found["ffmpeg"]
