"""Plans and refusals of machines with ARM processors: a golden file for each.

After a wanted change write them anew and read the difference:

    GPUPREP_UPDATE_GOLDEN=1 pytest tests/unit/provisioning/test_plan_arm64.py && git diff tests/golden/arm64
"""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import pytest
from builders import bare_snapshot, finished_snapshot, load, on_arm64, with_driver
from places import TESTS

from gpuprep import catalogue, checks, errors, records
from gpuprep.catalogue import roles
from gpuprep.desired import profile, state
from gpuprep.provisioning import plan

GOLDEN = TESTS / "golden" / "arm64"
UPDATE = os.environ.get("GPUPREP_UPDATE_GOLDEN") == "1"

# Name ► system, GPUs, wishes. The name begins with the system.
PLANNED: dict[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    "ubuntu2204-t4g": ("ubuntu2204", ("t4g",), {}),
    "ubuntu2404-t4g": ("ubuntu2404", ("t4g",), {}),
    "ubuntu2404-two-t4g-with-nccl": ("ubuntu2404", ("t4g", "t4g"), {"nccl": {"version": "auto"}}),
    "ubuntu2404-t4g-with-containers": ("ubuntu2404", ("t4g",), {"containers": {"toolkit": "auto"}}),
    "ubuntu2404-gh200": ("ubuntu2404", ("gh200",), {}),
    "ubuntu2404-gh200-all-libraries": (
        "ubuntu2404", ("gh200",),
        {"driver": {"version": "595", "libraries": "full"}, "cuda": {"version": "13.0"}},
    ),
    "ubuntu2604-t4g": ("ubuntu2604", ("t4g",), {}),
    "ubuntu2604-gh200-all-libraries": ("ubuntu2604", ("gh200",), {"driver": {"libraries": "full"}}),
    "ubuntu2604-gh200-nvidia": ("ubuntu2604", ("gh200",), {"driver": {"source": "nvidia"}}),
    "debian12-t4g": ("debian12", ("t4g",), {"cudnn": {"version": "none"}}),
    "debian13-t4g": ("debian13", ("t4g",), {}),
    "debian13-gh200-nvidia": ("debian13", ("gh200",), {"driver": {"source": "nvidia"}}),
    "rocky8-t4g": ("rocky8", ("t4g",), {}),
    "rocky9-t4g": ("rocky9", ("t4g",), {}),
    "rhel9-gh200": ("rhel9", ("gh200",), {}),
    "rhel10-gh200": ("rhel10", ("gh200",), {}),
    "almalinux10-t4g": ("almalinux10", ("t4g",), {}),
}  # fmt: skip
REFUSED: dict[str, tuple[str, tuple[str, ...], dict[str, Any]]] = {
    "amzn2023-t4g": ("amzn2023", ("t4g",), {}),
    "fedora42-gh200": ("fedora42", ("gh200",), {}),
    "ubuntu2204-own-archive": ("ubuntu2204", ("t4g",), {"driver": {"source": "distribution"}}),
    "ubuntu2604-prebuilt-modules": ("ubuntu2604", ("t4g",), {"driver": {"modules": "prebuilt"}}),
    "ubuntu2404-own-archive": ("ubuntu2404", ("t4g",), {"driver": {"source": "distribution"}}),
    "ubuntu2404-prebuilt-modules": ("ubuntu2404", ("t4g",), {"driver": {"modules": "prebuilt"}}),
    "ubuntu2404-branch-570": ("ubuntu2404", ("t4g",), {"driver": {"version": "570"}}),
    "ubuntu2404-gh200-proprietary": ("ubuntu2404", ("gh200",), {"driver": {"flavour": "proprietary"}}),
    "debian12-nvidia": ("debian12", ("t4g",), {"driver": {"source": "nvidia"}}),
    "debian12-gh200": ("debian12", ("gh200",), {}),
    "debian12-cudnn": ("debian12", ("t4g",), {}),
    "debian13-gh200-own-archive": ("debian13", ("gh200",), {}),
    "almalinux10-own-archive": ("almalinux10", ("t4g",), {"driver": {"source": "distribution"}}),
    "rocky9-branch-595": ("rocky9", ("gh200",), {"driver": {"version": "595"}}),
    "rocky9-large-pages": ("rocky9", ("gh200",), {}),
}


def host(name: str, system: str, gpus: tuple[str, ...]) -> records.Snapshot:
    there = on_arm64(bare_snapshot(system, gpus))
    if not name.endswith("large-pages"):
        return there
    kernel = "5.14.0-611.5.1.el9_7.aarch64+64k"
    return dataclasses.replace(there, kernel=dataclasses.replace(there.kernel, running=kernel, next_boot=kernel))


def wish(gpus: tuple[str, ...], parts: dict[str, Any]) -> profile.Profile:
    return load("base", gpus=tuple(dict.fromkeys(gpus)), **parts)


def planned(name: str) -> tuple[records.Snapshot, state.Wanted]:
    system, gpus, parts = PLANNED[name]
    there = host(name, system, gpus)
    return there, state.resolve(wish(gpus, parts), there)


def text_of(there: records.Snapshot, wanted: state.Wanted) -> str:
    made = plan.make("gpu-1", wanted, checks.compare(wanted, there))
    release = catalogue.archive_of(there.os)
    assert release is not None
    driver, cuda = wanted.driver, wanted.cuda
    source = catalogue.nvidia_path(release) if driver.source == "nvidia" else "the system's own archive"
    lines = [
        f"{release.system}: {', '.join(gpu.name for gpu in wanted.gpus)}",
        f"driver {driver.archive_version} {driver.flavour} from {source}, modules by {driver.modules}"
        + (f", stream {driver.stream}" if driver.stream else ""),
        f"  {' '.join(driver.packages)}",
        f"CUDA {cuda.version}: {' '.join(cuda.packages)}",
        f"cuDNN {wanted.cudnn.version}: {wanted.cudnn.sha256.get('aarch64', 'none')}",
        f"NCCL {wanted.nccl.version}: {wanted.nccl.sha256.get('aarch64', 'none')}",
        f"containers {wanted.containers.toolkit}: {' '.join(wanted.containers.packages)}",
        f"FFmpeg {wanted.build_key}: {' '.join(roles.codec_build_packages(release, (), npp=False))}",
        *(f"{number}. {step.role}" for number, step in enumerate(made.steps, 1)),
        *(f"note: {note}" for note in made.notes),
    ]
    return "\n".join(lines) + "\n"


def same(name: str, text: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if UPDATE:
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), "see the top of this file for how to write it anew"


@pytest.mark.parametrize("name", PLANNED)
def test_golden_plans(name: str) -> None:
    same(name, text_of(*planned(name)))


@pytest.mark.parametrize("name", REFUSED)
def test_golden_refusals(name: str) -> None:
    system, gpus, parts = REFUSED[name]
    with pytest.raises(errors.PlanRefused) as refused:
        state.resolve(wish(gpus, parts), host(name, system, gpus))
    assert all("; works: " in reason for reason in refused.value.reasons)
    same(name, "\n".join(refused.value.reasons) + "\n")


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == {*PLANNED, *REFUSED}


@pytest.mark.parametrize("name", PLANNED)
def test_nothing_of_another_architecture_is_planned(name: str) -> None:
    """And a machine that has all of it has nothing left to do."""
    there, wanted = planned(name)
    said = text_of(there, wanted)
    assert not [word for word in ("x86_64", "amd64", "i386", "nasm", "nvsdm") if word in said]
    assert wanted.driver.modules == "dkms"
    done = finished_snapshot(wanted, with_driver(there, wanted, loaded=True))
    left = [step.role for step in plan.make("gpu-1", wanted, checks.compare(wanted, done)).steps]
    assert not {*left} - {"gpu_nccl", "gpu_containers"}  # which the finished machine of the tests does not have


@pytest.mark.parametrize("name", PLANNED)
def test_the_same_wish_on_x86_has_other_places_and_the_same_names(name: str) -> None:
    system, gpus, parts = PLANNED[name]
    here = bare_snapshot(system, gpus)
    _, wanted = planned(name)
    driver = {"source": wanted.driver.source, "version": wanted.driver.version, **parts.get("driver", {})}
    cuda = {"version": wanted.cuda.version}
    other = state.resolve(wish(gpus, {**parts, "driver": driver, "cuda": cuda}), here)
    absent = (
        {"libnvidia-pkcs11-openssl3", "libnvidia-fbc1-580-server"} if wanted.driver.source == "distribution" else set()
    )
    assert {*other.driver.packages} - {*wanted.driver.packages} == absent & {*other.driver.packages}
    assert other.cuda.packages == wanted.cuda.packages
    assert other.build_key != wanted.build_key
    assert set(wanted.cudnn.sha256) == set(other.cudnn.sha256)
