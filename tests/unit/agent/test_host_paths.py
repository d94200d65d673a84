"""Each path on the host stands once in the package, and the roles, which run without it, repeat the same ones."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import COLLECTION, ROOT

from gpuprep.agent import host_paths
from gpuprep.agent.facts import ledger, managed
from gpuprep.nightly import units
from gpuprep.provisioning.undo import fits

PATHS = {name: value for name, value in vars(host_paths).items() if name.isupper()}
OURS = re.compile(r"/(?:etc|opt|run|usr/local|var/lib|var/cache)/(?:[\w.@-]+/)*[\w.@-]*gpuprep[\w.@-]*(?:/[\w.@-]+)*")
# Folders of the simulated machines' own stand-ins, the default prefix of the profile, and what its documentation names.
ELSEWHERE = {"/run/gpuprep-sim", "/run/gpuprep-sim/host-sys-module", "/run/gpuprep-sim/proc", "/opt/gpuprep"}
# What a role alone knows: no Python reads it.
OF_ROLES = {
    "/etc/apt/preferences.d/gpuprep-cuda",
    "/etc/apt/sources.list.d/gpuprep-nvidia.sources",
    "/etc/ld.so.conf.d/gpuprep-cuda.conf",
    "/etc/ld.so.conf.d/gpuprep-nccl.conf",
    "/etc/apt/sources.list.d/gpuprep.sources",
    "/etc/apt/sources.list.d/gpuprep-container-toolkit.sources",
    "/etc/pki/rpm-gpg/RPM-GPG-KEY-gpuprep-container-toolkit",
    "/etc/pki/rpm-gpg/.gpuprep-nvidia.new",
    "/etc/pki/rpm-gpg/RPM-GPG-KEY-gpuprep-nvidia",
    "/etc/yum.repos.d/gpuprep-container-toolkit.repo",
    "/etc/yum.repos.d/gpuprep-nvidia.repo",
    "/etc/modprobe.d/gpuprep-",  # in a sentence
    "/opt/gpuprep",
    "/opt/gpuprep/ffmpeg",
    "/opt/gpuprep/nv-codec-headers",
    "/opt/gpuprep/python",
    "/var/lib/gpuprep/build",
    "/var/lib/gpuprep/codec",
}
# Not written by a role: by the agent, by `drift schedule`, by whoever locks; or by the system's own packages.
NOT_OF_ROLES = {
    "/etc/apt/preferences.d/gpuprep-cuda",
    "/etc/apt/sources.list.d/gpuprep-nvidia.sources",
    "/etc/ld.so.conf.d/gpuprep-cuda.conf",
    "CACHE", "LOCK", "TURN", "LOCKED_CLOCKS", "MODULE_CACHE", "DIGEST_CACHE", "SIGNATURE_CACHE", "SIMULATION_MARK",
    "SIMULATED_GPUS",
    "AGENT_LIBRARIES", "DRIFT_PLAN", "DRIFT_RESULTS", "DRIFT_LAST",
    "DRIFT_SERVICE_FILE", "DRIFT_TIMER_FILE", "DRIFT_TIMER_LINK",
    "DRIFT_TIMER_STAMP", "ROLLBACK_LOCK", "DRIVER_CHECK_UNIT", "DRIVER_CHECK_LINK", "ROLLBACK_PROGRAM",
    "PRELOAD", "PCI_DEVICES", "DMI", "BOOT_ID",
}  # fmt: skip


def literals(source: str) -> Iterator[str]:
    """String literals of a module less its docstrings; of an f-string its fixed parts."""
    tree = ast.parse(source)
    bodies = [node.body for node in ast.walk(tree) if hasattr(node, "body") and isinstance(node.body, list)]
    words = {id(body[0].value) for body in bodies if body and isinstance(body[0], ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in words:
            yield node.value


def roles() -> dict[str, str]:
    """Every text of the roles, by its path below playbooks/."""
    files = [path for path in COLLECTION.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    return {str(path.relative_to(COLLECTION)): path.read_text(encoding="utf-8") for path in files}


def test_a_path_is_written_out_once_in_the_package() -> None:
    known = set(PATHS.values()) - {host_paths.PROGRAM_LINKS}  # a folder of everybody's
    again = [
        (str(path.relative_to(ROOT)), value)
        for path in sorted((ROOT / "gpuprep").rglob("*.py"))
        if path.name not in ("host_paths.py", "ledger.py")  # the latter goes to a host alone; below it is compared
        for text in literals(path.read_text(encoding="utf-8"))
        for value in [*OURS.findall(text), *({text} & known)]
        if value not in ELSEWHERE
    ]
    assert again == []


def test_the_roles_write_no_path_that_nobody_else_knows() -> None:
    known = {*PATHS.values(), *OF_ROLES}
    above = {str(folder) for path in known for folder in Path(path).parents}
    unknown = [
        (file, path)
        for file, text in roles().items()
        for path in (found.rstrip(".") for found in OURS.findall(text))
        if path not in known | above
        and not any(path.startswith(f"{folder}/") for folder in (*OF_ROLES - {"/opt/gpuprep"}, PATHS["AGENT_HOME"]))
        and not path.startswith(f"{PATHS['CUDNN_PREFIX']}/")
    ]
    assert unknown == []


@pytest.mark.parametrize("name", sorted(set(PATHS) - NOT_OF_ROLES))
def test_what_the_package_expects_a_role_writes(name: str) -> None:
    path = re.compile(re.escape(PATHS[name]) + r"(?![\w-])")
    assert [file for file, text in roles().items() if path.search(text)]


def test_unprovision_takes_back_every_path_that_is_gpupreps() -> None:
    gone_with_the_ledger = ("/var/lib/gpuprep/", "/run/gpuprep")
    not_files = {"/etc/modprobe.d/gpuprep-", "/opt/gpuprep", "/etc/gpuprep-sim"}
    unknown = [
        path
        for path in sorted({*PATHS.values(), *OF_ROLES} - not_files)
        if "gpuprep" in path
        and not path.startswith((*gone_with_the_ledger, f"{PATHS['AGENT_HOME']}/"))
        and not any(path == folder or fits(path, folder, name) for _, folder, name in ledger.OWN)
    ]
    assert unknown == []


def test_the_units_files_have_the_units_names() -> None:
    assert f"/etc/systemd/system/{units.SERVICE}" == host_paths.DRIFT_SERVICE_FILE
    assert f"/etc/systemd/system/{units.TIMER}" == host_paths.DRIFT_TIMER_FILE
    assert f"/etc/systemd/system/timers.target.wants/{units.TIMER}" == host_paths.DRIFT_TIMER_LINK
    assert f"/var/lib/systemd/timers/stamp-{units.TIMER}" == host_paths.DRIFT_TIMER_STAMP


def test_paths_are_absolute_and_two_names_are_two_places() -> None:
    assert all(re.fullmatch(r"(/[\w.-]+)+", path) for path in PATHS.values())
    assert len(set(PATHS.values())) == len(PATHS)
    assert set(managed.FILES) - set(PATHS.values()) == set()


def test_they_need_nothing_else() -> None:
    tree = ast.parse(Path(host_paths.__file__).read_text(encoding="utf-8"))
    assert not [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
