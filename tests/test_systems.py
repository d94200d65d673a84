"""Which driver and CUDA each system, GPU, source and branch gets, or why it is refused: one golden table.

After a wanted change write it anew and read the difference:

    GPUPREP_UPDATE_GOLDEN=1 pytest tests/test_systems.py && git diff tests/golden/systems.txt
"""

from __future__ import annotations

import dataclasses
import itertools
import os
from pathlib import Path

import pytest
from builders import bare_snapshot, finished_snapshot, load

from gpuprep import catalogue, checks
from gpuprep.agent.host_paths import PIN
from gpuprep.desired.state import Wanted, resolve
from gpuprep.errors import PlanRefused
from gpuprep.provisioning.plan import make, role_variables
from gpuprep.records import AptFacts, Finding, Snapshot, Status

GOLDEN = Path(__file__).parent / "golden" / "systems.txt"
UPDATE = os.environ.get("GPUPREP_UPDATE_GOLDEN") == "1"
# Fedora is refused.
SYSTEMS = ("debian12", "debian13", "ubuntu2204", "ubuntu2404", "rocky9", "rhel9", "rocky8", "amzn2023", "fedora42")
GPUS = ("t4", "v100", "a100", "a100+nvswitch")
SOURCES = ("distribution", "nvidia")
VERSIONS = ("auto", "535", "550", "570", "580", "615", "580.95.05", "580.99.99")
CELLS = tuple(itertools.product(SYSTEMS, GPUS, SOURCES, VERSIONS))


def host(system: str, gpu: str) -> Snapshot:
    model, _, switch = gpu.partition("+")
    return dataclasses.replace(bare_snapshot(system, (model,)), nvswitches=6 if switch else 0)


def wanted(system: str, gpu: str, source: str, version: str) -> Wanted:
    """Raises PlanRefused."""
    profile = load(gpu.partition("+")[0], driver={"source": source, "version": version})
    return resolve(profile, host(system, gpu))


def row(system: str, gpu: str, source: str, version: str) -> str:
    cell = f"{system} {gpu} {source} {version}:"
    try:
        wish = wanted(system, gpu, source, version)
    except PlanRefused as refused:
        return "\n  refused ".join([cell, *refused.reasons])
    steps = ", ".join(step.role for step in make("gpu-1", wish, checks.compare(wish, host(system, gpu))).steps)
    packages = " ".join([*wish.driver.packages, *wish.cuda.packages])
    chosen = f"driver {wish.driver.archive_version} {wish.driver.flavour}, CUDA {wish.cuda.version}"
    return f"{cell} {chosen}\n  steps {steps}\n  packages {packages}"


def test_the_golden_table_of_systems() -> None:
    text = "\n".join(itertools.starmap(row, CELLS)) + "\n"
    if UPDATE:
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8"), "see the top of this file for how to write it anew"


@pytest.mark.parametrize("cell", CELLS, ids=" ".join)
def test_what_holds_in_every_cell(cell: tuple[str, str, str, str]) -> None:
    system, gpu, source, version = cell
    try:
        wish = wanted(*cell)
    except PlanRefused as refused:
        reasons = refused.reasons
    else:
        reasons = ()
    if reasons:
        assert not [reason for reason in reasons if "works: " not in reason]
        return
    assert system != "fedora42"
    if gpu == "v100":
        assert wish.driver.flavour == "proprietary"
        assert catalogue.branch(wish.driver.archive_version) <= 580
        assert not [name for name in wish.driver.packages if name.endswith("-open") or "-open-" in name]
        assert catalogue.parse(wish.cuda.version) < (13,)
    fabric = [
        name for name in wish.driver.packages if "fabricmanager" in name.replace("fabric-manager", "fabricmanager")
    ]
    assert bool(fabric) == gpu.endswith("+nvswitch")
    if version != "auto":
        assert catalogue.matches(wish.driver.archive_version, version)
    variables = role_variables(wish)
    assert (variables["gpu_driver_source"], variables["gpu_driver_flavour"]) == (source, wish.driver.flavour)
    assert catalogue.matches(wish.driver.archive_version, variables["gpu_driver_version"])


def pinned(wish: Wanted, text: str | None) -> Finding:
    good = finished_snapshot(wish)
    with_pin = dataclasses.replace(good, apt=AptFacts((), (), (), ()), files={**good.files, PIN: text})
    (finding,) = [found for found in checks.compare(wish, with_pin) if found.key == "driver.pinned"]
    return finding


def test_the_pin_must_be_to_the_installed_version() -> None:
    wish = wanted("ubuntu2404", "t4", "nvidia", "580")
    text = "Package: *nvidia*\nPin: version {}-*\nPin-Priority: 1000\n"
    assert pinned(wish, text.format("580.178.04")).status is Status.PASS
    for wrong in (None, "", text.format("570.211.01"), text.format("580.178.04").replace("-*", "")):
        finding = pinned(wish, wrong)
        assert (finding.status, finding.role) == (Status.FAIL, "gpu_driver")


def test_a_release_that_is_not_known_is_no_neighbour() -> None:
    for version in ("24.10", "24", "24.04.1", "26.04", ""):
        assert catalogue.archive("ubuntu", version) is None
    assert catalogue.archive("debian", "12.5") == catalogue.archive("debian", "12") is not None


def test_ffmpeg_is_not_linked_with_the_distributions_npp_beside_nvidias_toolkit() -> None:
    profile = load("t4", driver={"source": "nvidia"}, codec={"npp": True})
    with pytest.raises(PlanRefused, match=r"codec\.npp: .* works: npp: false with scale_cuda"):
        resolve(profile, bare_snapshot("ubuntu2404"))
