"""Which driver and CUDA each system, GPU, source and branch gets, or why it is refused: one golden table.

After a wanted change write it anew and read the difference:

    GPUPREP_UPDATE_GOLDEN=1 pytest tests/unit/desired/test_systems.py && git diff tests/golden/systems.txt
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
from functools import cache

import pytest
from builders import OS, bare_snapshot, finished_snapshot, load, with_parts
from places import COLLECTION, TESTS
from programfile import module_of

from gpuprep import catalogue, checks, errors, records
from gpuprep.agent import host_paths
from gpuprep.desired import state
from gpuprep.provisioning import plan

GOLDEN = TESTS / "golden" / "systems.txt"
UPDATE = os.environ.get("GPUPREP_UPDATE_GOLDEN") == "1"
UNSERVED = "fedora42"
SYSTEMS = (
    "debian12", "debian13", "ubuntu2204", "ubuntu2404", "ubuntu2604", "rocky9", "rhel9", "rocky8", "amzn2023",
    "fedora42",
)  # fmt: skip
GPUS = ("t4", "v100", "a100", "a100+nvswitch")
SOURCES = ("distribution", "nvidia")
VERSIONS = ("auto", "535", "550", "570", "580", "615", "580.95.05", "580.99.99")
# Red Hat's system of version 10 and those built from its sources differ in what their own archives have.
OF_VERSION_10 = ("rocky10", "rhel10", "almalinux10", "centos10")
CELLS = (
    *itertools.product(SYSTEMS, GPUS, SOURCES, VERSIONS),
    *itertools.product(OF_VERSION_10, (*GPUS, "h100"), SOURCES, ("auto", "570", "580", "595", "580.126.20")),
)


def host(system: str, gpu: str) -> records.Snapshot:
    model, _, switch = gpu.partition("+")
    return dataclasses.replace(bare_snapshot(system, (model,)), nvswitches=6 if switch else 0)


@cache
def outcome(system: str, gpu: str, source: str, version: str) -> state.Wanted | errors.PlanRefused:
    wish: dict[str, object] = {"driver": {"source": source, "version": version}}
    if system in OF_VERSION_10 and gpu == "v100":  # a driver for Volta, and no toolkit: CUDA 13 alone is there
        wish["cuda"] = {"version": "none"}
    try:
        return state.resolve(load(gpu.partition("+")[0], **wish), host(system, gpu))
    except errors.PlanRefused as refused:
        return refused


def wanted(system: str, gpu: str, source: str, version: str) -> state.Wanted:
    """Raises PlanRefused."""
    found = outcome(system, gpu, source, version)
    if isinstance(found, errors.PlanRefused):
        raise found
    return found


def row(system: str, gpu: str, source: str, version: str) -> str:
    cell = f"{system} {gpu} {source} {version}:"
    try:
        wish = wanted(system, gpu, source, version)
    except errors.PlanRefused as refused:
        return "\n  refused ".join([cell, *refused.reasons])
    steps = ", ".join(step.role for step in plan.make("gpu-1", wish, checks.compare(wish, host(system, gpu))).steps)
    packages = " ".join([*wish.driver.packages, *wish.cuda.packages])
    chosen = f"driver {wish.driver.archive_version} {wish.driver.flavour}, CUDA {wish.cuda.version}"
    return f"{cell} {chosen}\n  steps {steps}\n  packages {packages}"


def test_each_release_that_the_roles_serve_has_rows() -> None:
    """By the roles' name: Red Hat's system and those built from its sources are one system to them."""
    found = [catalogue.archive(OS[name].id, OS[name].version_id) for name in (*SYSTEMS, *OF_VERSION_10)]
    assert {release.roles for release in found if release} == {
        release.roles for release in catalogue.archives().values()
    }
    assert catalogue.archive(OS[UNSERVED].id, OS[UNSERVED].version_id) is None


def test_the_golden_table_of_systems() -> None:
    text = "\n".join(itertools.starmap(row, CELLS)) + "\n"
    if UPDATE:
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8"), "see the top of this file for how to write it anew"


def test_what_holds_in_every_cell() -> None:
    for cell in CELLS:
        holds(*cell)


def holds(system: str, gpu: str, source: str, version: str) -> None:
    wish = outcome(system, gpu, source, version)
    if isinstance(wish, errors.PlanRefused):
        assert not [reason for reason in wish.reasons if "works: " not in reason]
        return
    assert system != UNSERVED
    if gpu == "v100":
        assert wish.driver.flavour == "proprietary"
        assert catalogue.branch(wish.driver.archive_version) <= 580
        assert not [name for name in wish.driver.packages if name.endswith("-open") or "-open-" in name]
        assert wish.cuda.version == "none" or catalogue.parse(wish.cuda.version) < (13,)
    fabric = [
        name for name in wish.driver.packages if "fabricmanager" in name.replace("fabric-manager", "fabricmanager")
    ]
    assert bool(fabric) == gpu.endswith("+nvswitch")
    if version != "auto":
        assert catalogue.matches(wish.driver.archive_version, version)
    variables = plan.role_variables(wish)
    assert (variables["gpu_driver_source"], variables["gpu_driver_flavour"]) == (source, wish.driver.flavour)
    assert catalogue.matches(wish.driver.archive_version, variables["gpu_driver_version"])


# What is refused, and what works instead: each of these ways must really be open on that machine.
NEAREST = {
    ("debian13", "v100", "nvidia", "590"): "driver.source: distribution with driver.version: auto or 550",
    ("debian12", "v100", "nvidia", "595"): "branch 580 or 570, or auto",
    ("debian13", "a100+nvswitch", "distribution", "550"): "driver.source: nvidia with driver.version: auto",
    ("debian13", "a100+nvswitch", "nvidia", "550"): "branch 595, 610 or 615, or auto",
    ("rocky9", "v100", "nvidia", "615"): "branch 580 or 570, or auto",
    ("rocky8", "a100", "nvidia", "550"): "branch 570, 580 or 615, or auto",
    ("ubuntu2204", "t4", "distribution", "615"): "driver.source: nvidia",
}


@pytest.mark.parametrize("cell", NEAREST, ids=" ".join)
def test_what_a_refusal_offers_can_be_had_there(cell: tuple[str, str, str, str]) -> None:
    system, gpu, source, version = cell
    with pytest.raises(errors.PlanRefused) as refused:
        wanted(*cell)
    about = ("driver.version:", "host.nvswitches:")
    (works,) = {reason.partition("; works: ")[2] for reason in refused.value.reasons if reason.startswith(about)}
    assert NEAREST[cell] in works
    offered = re.search(r"driver[.]source: (\w+)", works)
    source = offered[1] if offered else source
    branches = re.findall(r"\b\d{3}\b", works)
    for branch in branches if not offered or "with" in works else [version]:
        assert catalogue.matches(wanted(system, gpu, source, branch).driver.archive_version, branch)
    if "auto" in works:
        assert wanted(system, gpu, source, "auto")


@pytest.mark.parametrize(
    ("system", "gpu", "cuda", "works"),
    [
        ("debian13", "t4", "12.2", "or driver.source: distribution with cuda.version: 12.4"),
        ("debian12", "t4", "11.8", "or auto, or driver.source: distribution"),
        ("ubuntu2404", "v100", "13.0", "works: 12.8, 12.9"),
        ("debian13", "v100", "auto", "works: driver.source: distribution with cuda.version: 12.4"),
    ],
)
def test_the_cuda_that_a_refusal_offers(system: str, gpu: str, cuda: str, works: str) -> None:
    profile = load(gpu, driver={"source": "nvidia"}, cuda={"version": cuda}, cudnn={"version": "none"})
    with pytest.raises(errors.PlanRefused) as refused:
        state.resolve(profile, host(system, gpu))
    assert [reason for reason in refused.value.reasons if reason.startswith("cuda.version") and works in reason]


def test_a_branch_that_cannot_be_taken_is_not_said_to_be_absent() -> None:
    offers = [offer for release in catalogue.archives().values() for offer in release.sources.values()]
    assert not [d for offer in offers for d in offer.drivers if str(catalogue.branch(d.version)) in offer.unsuited]
    with pytest.raises(
        errors.PlanRefused, match="has packages of branch 570, and they install branch 580; works: branch 580"
    ):
        wanted("ubuntu2404", "t4", "distribution", "570.211.01")


def test_a_driver_without_fabric_manager_is_not_for_a_machine_with_an_nvswitch() -> None:
    """NVIDIA's repository for Debian 12 has 570.211.01, and Fabric Manager of 570.195.03."""
    exact = ("nvidia", "570.211.01")
    assert wanted("debian12", "a100", *exact).driver.archive_version == "570.211.01"
    assert wanted("debian12", "a100+nvswitch", "nvidia", "570").driver.archive_version == "570.195.03"
    with pytest.raises(
        errors.PlanRefused, match=r"no driver 570\.211\.01 with Fabric Manager .*, only 570\.195\.03 or 570\.172\.08"
    ):
        wanted("debian12", "a100+nvswitch", *exact)


# Systems beside those of the table, and what the plan gives there; g5 of AWS has an A10G, 2237 on the PCI bus.
NEIGHBOURS = {
    ("almalinux", "8.10", "t4", "auto"): "580.178.04 open 580-open",
    ("centos", "9", "a100+nvswitch", "580.95.05"): "580.95.05 open 580-open",
    ("centos", "9", "v100", "570"): "570.211.01 proprietary 570-dkms",
    ("rhel", "8.10", "v100", "auto"): "580.178.04 proprietary 580-dkms",
    ("rhel", "9.4", "t4", "615"): "615.71.09 open open-dkms",
    ("amzn", "2023", "2237", "auto"): "580.178.04 open ",
}
REFUSED_NEIGHBOURS = {
    (
        "almalinux",
        "8.10",
        "v100",
        "590",
    ): "driver.version: R580 is the last driver branch for V100 .*works: branch 580 or 570",
    (
        "rhel",
        "8.10",
        "t4",
        "590",
    ): "driver.version: the catalogue has no driver 590 .*Red Hat Enterprise Linux 8, .*works: branch 580",
    ("ol", "9.6", "t4", "auto"): "host.os: unsupported OS ol 9.6",
}


def neighbour(name: str, release: str, gpu: str, version: str) -> state.Wanted:
    """Raises PlanRefused."""
    base = host("rocky9", gpu)
    machine = dataclasses.replace(base, os=dataclasses.replace(base.os, id=name, version_id=release))
    model = gpu.partition("+")[0]
    profile = load(gpus=("a10g",)) if model == "2237" else load(model)
    return state.resolve(with_parts(profile, driver={"version": version}), machine)


@pytest.mark.parametrize("cell", NEIGHBOURS, ids=" ".join)
def test_a_system_beside_those_of_the_table(cell: tuple[str, str, str, str]) -> None:
    driver = neighbour(*cell).driver
    assert f"{driver.archive_version} {driver.flavour} {driver.stream}" == NEIGHBOURS[cell]
    assert [name for name in driver.packages if "fabric" in name] == ["nvidia-fabricmanager"] * ("+" in cell[2])


@pytest.mark.parametrize("cell", REFUSED_NEIGHBOURS, ids=" ".join)
def test_what_is_refused_on_a_system_beside_those_of_the_table(cell: tuple[str, str, str, str]) -> None:
    with pytest.raises(errors.PlanRefused, match=REFUSED_NEIGHBOURS[cell]):
        neighbour(*cell)


def test_no_cudnn_is_offered_that_the_gpu_cannot_use() -> None:
    with pytest.raises(errors.PlanRefused) as refused:
        state.resolve(load("v100", driver={"source": "nvidia"}, cuda={"version": "13.0"}), host("ubuntu2404", "v100"))
    assert not [reason for reason in refused.value.reasons if "9.14" in reason]
    for system in ("ubuntu2204", "rocky8", "amzn2023", "debian12"):
        with pytest.raises(errors.PlanRefused, match=r"cuDNN 9\.10\.2 is the last one for V100.*works: 9\.10\.2\.21$"):
            state.resolve(
                load("v100", driver={"source": "nvidia"}, cudnn={"version": "9.11.0.98"}), host(system, "v100")
            )


def pinned(wish: state.Wanted, text: str | None) -> records.Finding:
    good = finished_snapshot(wish)
    with_pin = dataclasses.replace(
        good, apt=records.AptFacts((), (), (), ()), files={**good.files, host_paths.PIN: text}
    )
    (finding,) = [found for found in checks.compare(wish, with_pin) if found.key == "driver.pinned"]
    return finding


def test_the_pin_must_be_to_the_installed_version() -> None:
    wish = wanted("ubuntu2404", "t4", "nvidia", "580")
    text = "Package: *nvidia*\nPin: version {}-*\nPin-Priority: 1000\n"
    assert pinned(wish, text.format("580.178.04")).status is records.Status.PASS
    for wrong in (None, "", text.format("570.211.01"), text.format("580.178.04").replace("-*", "")):
        finding = pinned(wish, wrong)
        assert (finding.status, finding.role) == (records.Status.FAIL, "gpu_driver")


def test_a_release_that_is_not_known_is_no_neighbour() -> None:
    for version in ("24.10", "24", "24.04.1", "26.10", ""):
        assert catalogue.archive("ubuntu", version) is None
    assert catalogue.archive("debian", "12.5") == catalogue.archive("debian", "12") is not None


def test_ffmpeg_is_not_linked_with_the_distributions_npp_beside_nvidias_toolkit() -> None:
    profile = load("t4", driver={"source": "nvidia"}, codec={"npp": True})
    with pytest.raises(errors.PlanRefused, match=r"codec\.npp: .* works: npp: false with scale_cuda"):
        state.resolve(profile, bare_snapshot("ubuntu2404"))


def test_a_library_without_a_wheel_for_the_systems_python_is_not_wished() -> None:
    filters = module_of(COLLECTION / "plugins/filter/agent.py")
    role = str(COLLECTION / "roles/gpu_agent")
    for system, lacks in (("ubuntu2404", []), ("ubuntu2604", ["nvidia-cudnn-frontend"])):
        got = wanted(system, "t4", "distribution", "auto")
        pins = filters.agent_pins(filters.agent_requirements(role, got.cuda.major, lacks))
        assert pins == [f"{name}=={version}" for name, version in got.agent.libraries.items()]
        assert ("nvidia-cudnn-frontend" in got.agent.libraries) == (not lacks)


@pytest.mark.parametrize("source", SOURCES)
def test_a_v100_gets_no_595_on_ubuntu_2604(source: str) -> None:
    refused = outcome("ubuntu2604", "v100", source, "595")
    assert isinstance(refused, errors.PlanRefused)
    assert "R580 is the last driver branch for V100 (Volta), not 595" in str(refused)
    assert "driver.source: distribution" in str(refused) if source == "nvidia" else "branch 580" in str(refused)
    got = wanted("ubuntu2604", "v100", "distribution", "auto")
    assert (got.driver.version, got.driver.flavour, got.cuda.version) == ("580", "proprietary", "12.4")
