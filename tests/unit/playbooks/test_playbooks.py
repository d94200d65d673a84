"""The playbooks by themselves: well-formed, documented, clean to their linters; and the pure parts of their roles."""

from __future__ import annotations

import base64
import dataclasses
import io
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from builders import bare_snapshot, finished_snapshot, load
from places import COLLECTION, ROOT
from programfile import MODULES, answer_of, module_of

from gpuprep import __version__, checks, records
from gpuprep.desired import state

ROLES = sorted(path for path in (COLLECTION / "roles").iterdir() if (path / "tasks").is_dir())
BIN = Path(sys.executable).parent


def program(name: str) -> str:
    beside = BIN / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@cache
def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def run(*command: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=env)


def all_tasks(items: Any) -> list[dict[str, Any]]:
    """Every task of a tasks file or play, those inside blocks too."""
    found = []
    for item in items or []:
        found.append(item)
        for key in ("tasks", "pre_tasks", "post_tasks", "block", "rescue", "always"):
            found += all_tasks(item.get(key))
    return found


TASK_FILES = sorted(
    [
        *COLLECTION.glob("playbooks/*.yml"),
        *COLLECTION.glob("roles/*/tasks/*.yml"),
        *COLLECTION.glob("roles/*/handlers/*.yml"),
    ]
)


# provision.yml has all roles; the others only when Ansible runs anyway.
BOOKS = [
    pytest.param(path.name, marks=() if path.stem == "provision" else pytest.mark.machines)
    for path in sorted(COLLECTION.glob("playbooks/*.yml"))
]


@pytest.mark.parametrize("book", BOOKS)
def test_syntax(book: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [program("ansible-playbook"), "--syntax-check", "-i", "host,", book],
        cwd=COLLECTION / "playbooks",
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": f"{BIN}:/usr/bin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8"},
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("role", ROLES, ids=lambda path: path.name)
def test_every_default_is_documented(role: Path) -> None:
    specs = read(role / "meta/argument_specs.yml")["argument_specs"]
    defaults = read(role / "defaults/main.yml") or {}
    assert set(defaults) == set(specs["main"]["options"])
    assert all(option.get("description") and option.get("type") for option in specs["main"]["options"].values())


@pytest.mark.parametrize("role", ROLES, ids=lambda path: path.name)
def test_variables_carry_the_name_of_their_role(role: Path) -> None:
    defaults = read(role / "defaults/main.yml") or {}
    assert all(name.startswith(f"{role.name}_") for name in defaults)


@pytest.mark.parametrize("path", TASK_FILES, ids=lambda path: str(path.relative_to(COLLECTION)))
def test_failures_are_not_ignored(path: Path) -> None:
    for task in all_tasks(read(path)):
        assert "ignore_errors" not in task, task
        assert task.get("name"), task


OURS = ("ansible.builtin.", "gpuprep.gpu.")


def test_only_modules_of_ansible_core_and_our_own() -> None:
    """Nothing but ansible-core is installed with gpuprep: no other collection may creep in."""
    for path in TASK_FILES:
        for task in all_tasks(read(path)):
            assert not [key for key in task if "." in key and not key.startswith(OURS)], (path, task)


def test_refusals_say_what_to_do() -> None:
    refusing = [
        (path, task) for path in TASK_FILES for task in all_tasks(read(path)) if "ansible.builtin.assert" in task
    ]
    assert refusing
    for path, task in refusing:
        assert len(task["ansible.builtin.assert"].get("fail_msg", "")) > 40, (path, task)


def test_the_collection_is_built_whole(tmp_path: Path) -> None:
    """What the agent and the modules share is a link here, and a file in what is built."""
    galaxy = BIN / "ansible-galaxy"
    run(str(galaxy), "collection", "build", str(COLLECTION), "--output-path", str(tmp_path), env={**os.environ})
    with tarfile.open(tmp_path / f"gpuprep-gpu-{__version__}.tar.gz") as built:
        files = {name.name for name in built.getmembers() if name.isfile()}
    assert {"plugins/module_utils/packagestate.py", "plugins/modules/driver_state.py", "CHANGELOG.md"} <= files
    assert {f"roles/{role.name}/README.md" for role in ROLES} <= files
    assert not [name for name in files if name.endswith(".pyc")]


# ---------------------------------------------------------------- choosing the driver's version

DRIVER = module_of(COLLECTION / "plugins/filter/driver.py")

# captured: apt-cache madison on Debian 12, 2026-11, shortened
MADISON = """\
nvidia-kernel-dkms | 535.309.01-0+deb12u1 | bookworm-security/non-free
nvidia-kernel-dkms | 535.261.03-1 | bookworm/non-free
nvidia-open-kernel-dkms | 535.261.03-1 | bookworm/contrib
  libcuda1 | 535.309.01-0+deb12u1 | bookworm-security/non-free
  libcuda1 | 535.261.03-1 | bookworm/non-free
""".splitlines()


def test_newest_driver_that_all_packages_have() -> None:
    offered = DRIVER.driver_offered(MADISON, ["nvidia-kernel-dkms", "libcuda1"], "535")
    assert offered == {"nvidia-kernel-dkms": "535.309.01-0+deb12u1", "libcuda1": "535.309.01-0+deb12u1"}


def test_open_modules_take_the_libraries_to_their_own_version() -> None:
    offered = DRIVER.driver_offered(MADISON, ["nvidia-open-kernel-dkms", "libcuda1"], "535")
    assert offered == {"nvidia-open-kernel-dkms": "535.261.03-1", "libcuda1": "535.261.03-1"}


def test_an_exact_version() -> None:
    offered = DRIVER.driver_offered(MADISON, ["nvidia-kernel-dkms", "libcuda1"], "535.261.03")
    assert set(offered.values()) == {"535.261.03-1"}


def test_a_key_in_armor_is_the_key(tmp_path: Path) -> None:
    """As NVIDIA's keyring package has it, and as apt reads it: gpg checks the checksum."""
    armored = (COLLECTION / "roles/gpu_driver/files/nvidia-repository-key.asc").read_text()
    words = ["gpg", "--homedir", str(tmp_path), "--batch", "--no-options"]
    binary = subprocess.run([*words, "--dearmor"], input=armored.encode(), capture_output=True, check=True).stdout
    again = DRIVER.driver_armored(base64.b64encode(binary).decode())
    shown = [*words, "--with-colons", "--show-keys"]
    said = subprocess.run(shown, input=again, capture_output=True, text=True, check=True)
    assert "EB693B3035CD5710E231E123A4B469963BF863CC" in said.stdout
    assert "CRC" not in said.stderr
    body, line = armored.partition("\n\n")[2].split(), again.splitlines()
    assert [word for word in body if word.startswith("=") and len(word) == 5] == [line[-2]]


@pytest.mark.parametrize("wish", ["550", "53", "535.261", "535.309.02"])
def test_nothing_that_was_not_wished(wish: str) -> None:
    expected = {"nvidia-kernel-dkms": "535.261.03-1", "libcuda1": "535.261.03-1"} if wish == "535.261" else {}
    assert DRIVER.driver_offered(MADISON, ["nvidia-kernel-dkms", "libcuda1"], wish) == expected


def test_a_package_that_nobody_offers() -> None:
    assert DRIVER.driver_offered(MADISON, ["nvidia-kernel-dkms", "nvidia-fabricmanager"], "535") == {}


def test_installed_only_if_whole_and_of_one_version() -> None:
    packages = ["nvidia-kernel-dkms", "libcuda1"]
    both = {"nvidia-kernel-dkms": "535.309.01-0+deb12u1", "libcuda1": "535.309.01-0+deb12u1"}
    assert DRIVER.driver_installed(both, packages, "535") == "535.309.01"
    assert DRIVER.driver_installed(both, packages, "550") == ""
    assert DRIVER.driver_installed({**both, "libcuda1": "535.261.03-1"}, packages, "535") == ""
    assert DRIVER.driver_installed({"libcuda1": "535.261.03-1"}, packages, "535") == ""
    assert DRIVER.driver_installed({}, packages, "535") == ""


# ---------------------------------------------------------------- the options of the driver's module


@pytest.mark.parametrize("system", ["Amazon", "Debian", "EL", "Ubuntu"])
@pytest.mark.parametrize("counters", ["open", "restricted"])
@pytest.mark.parametrize("firmware", [True, False])
def test_what_the_role_writes_for_the_module_is_what_was_wished(system: str, counters: str, firmware: bool) -> None:
    names = read(COLLECTION / f"roles/gpu_driver/vars/{system}.yml")["gpu_driver_module_names"]
    environment = jinja2.Environment(trim_blocks=True)  # as Ansible
    environment.filters["bool"] = bool
    template = (COLLECTION / "roles/gpu_driver/templates/gpuprep-nvidia.conf.j2").read_text()
    for flavour in names:
        text = environment.from_string(template).render(
            gpu_driver_module_names=names, gpu_driver_flavour=flavour, gpu_driver_profiling_counters=counters,
            gpu_driver_gpu_firmware=firmware,
        )  # fmt: skip
        restricts = [line.split()[1] for line in text.splitlines() if "NVreg_RestrictProfilingToAdminUsers=" in line]
        assert sorted(restricts) == sorted(names[flavour]), "by each name that the module is loaded under"
        assert (module_options(text, counters, firmware), module_options(text, counters, not firmware)) == (PASS, FAIL)
        other = "open" if counters == "restricted" else "restricted"
        assert module_options(text, other, firmware) == FAIL


PASS, FAIL = records.Status.PASS, records.Status.FAIL


def module_options(text: str, counters: str, firmware: bool) -> records.Status:
    """What is judged of a host with this file, where this is wished."""
    profile = load(tuning={"profiling_counters": counters}, driver={"gpu_firmware": firmware})
    wanted = state.resolve(profile, bare_snapshot())
    host = finished_snapshot(wanted)
    host = dataclasses.replace(host, files={**host.files, "/etc/modprobe.d/gpuprep-nvidia.conf": text})
    (found,) = [one.status for one in checks.compare(wanted, host) if one.key == "driver.modprobe_options"]
    return found


# ---------------------------------------------------------------- the machine's own package sources

WANTED = "main,contrib,non-free,non-free-firmware"


def missing_components(etc_apt: Path, codename: str = "trixie") -> list[dict[str, Any]]:
    answer = answer_of("apt_sources", codename=codename, components=WANTED.split(","), folder=str(etc_apt))
    result: list[dict[str, Any]] = answer["missing"]
    return result


@pytest.mark.parametrize(
    ("name", "text", "there"),
    [
        ("cuda.list", "deb [signed-by=/k] {}/ /\n", ""),
        ("cuda.list", "deb {} /\n", ""),
        ("cuda.sources", "Types: deb\nURIs: {}/\nSuites: /\n", ""),
        ("cuda.sources", "Types: deb\nURIs: {}/\nSuites: /\nEnabled: no\n", None),
        ("cuda.list", "# deb {}/ /\n", None),
        ("cuda.list", "deb https://up.example/repos/ubuntu2204/x86_64/ /\n", None),
        ("gpuprep-nvidia.sources", "Types: deb\nURIs: {}/\nSuites: /\nTrusted: yes\n", None),
        ("cuda.list", "deb [arch=amd64 trusted=yes] {}/ /\n", "trusted=yes"),
        ("cuda.list", "deb {}/ /\ndeb [allow-insecure=true] {}/ /\n", "allow-insecure=true"),
        ("cuda.sources", "Types: deb\nURIs: {}/\nSuites: /\nTrusted: yes\n", "Trusted: yes"),
        ("cuda.list", "deb [trusted=no] {}/ /\n", ""),
    ],
)
def test_whether_somebody_else_named_this_archive(tmp_path: Path, name: str, text: str, there: str | None) -> None:
    """apt refuses two entries of one archive that differ in their key."""
    uri = "https://up.example/repos/ubuntu2404/x86_64"
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / name).write_text(text.format(*[uri] * text.count("{}")))
    answer = answer_of("apt_sources", uri=f"{uri}/", folder=str(tmp_path))
    assert (answer["known"], answer["unverified"]) == (there is not None, there or "")


@pytest.mark.parametrize(
    ("name", "text", "settings", "there"),
    [
        ("cuda.repo", "gpgcheck=1", "gpgcheck=0", ""),
        ("cuda.repo", "", "gpgcheck=1", ""),
        ("cuda.repo", "gpgcheck = no", "gpgcheck=1", "gpgcheck=0"),
        ("cuda.repo", "", "", "gpgcheck=0"),  # dnf's own default
        ("cuda.repo", "gpgcheck=0\nenabled=0", "", None),
        ("gpuprep-nvidia.repo", "gpgcheck=0", "", None),
    ],
)
def test_whether_somebody_else_named_this_repository_of_dnf(
    tmp_path: Path, name: str, text: str, settings: str, there: str | None
) -> None:
    (tmp_path / "repos").mkdir()
    (tmp_path / "repos" / name).write_text(f"[cuda]\nbaseurl=https://up.example/repos/rhel9/x86_64\n{text}\n")
    (tmp_path / "dnf.conf").write_text(f"[main]\n{settings}\n")
    uri = "https://up.example/repos/rhel9/x86_64/"
    answer = answer_of("dnf_sources", uri=uri, folder=str(tmp_path / "repos"), settings=str(tmp_path / "dnf.conf"))
    assert answer["unverified"].partition(" in ")[0] == (there or "")
    assert answer["known"] is (there is not None)


def test_sources_in_one_line_format(tmp_path: Path) -> None:
    (tmp_path / "sources.list").write_text(
        "# deb http://old.example/debian trixie main\n"
        "deb [arch=amd64 signed-by=/usr/share/keyrings/a.gpg] http://mirror.example/debian trixie main # ours\n"
        "deb http://mirror.example/debian trixie-backports main\n"
        "deb-src http://mirror.example/debian trixie main\n"
        "deb http://other.example/x stable main\n"
    )
    assert missing_components(tmp_path) == [
        {
            "uri": "http://mirror.example/debian",
            "suite": "trixie",
            "components": ["contrib", "non-free", "non-free-firmware"],
            "signed_by": "/usr/share/keyrings/a.gpg",
        }
    ]


def test_sources_in_deb822_format(tmp_path: Path) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d/debian.sources").write_text(
        "# cloud image\nTypes: deb deb-src\nURIs: mirror+file:///etc/apt/mirrors/debian.list\n"
        "Suites: trixie trixie-updates\nComponents: main non-free-firmware\n"
        "Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n\n"
        "Types: deb\nURIs: http://off.example/\nSuites: trixie\nComponents: main\nEnabled: no\n"
    )
    (tmp_path / "sources.list.d/gpuprep.sources").write_text(
        "Types: deb\nURIs: mirror+file:///etc/apt/mirrors/debian.list\nSuites: trixie\nComponents: contrib non-free\n"
    )
    found = missing_components(tmp_path)
    assert [(entry["suite"], entry["components"]) for entry in found] == [
        ("trixie", ["contrib", "non-free"]),
        ("trixie-updates", ["contrib", "non-free"]),
    ]
    assert {entry["signed_by"] for entry in found} == {"/usr/share/keyrings/debian-archive-keyring.gpg"}


def test_sources_that_have_it_all(tmp_path: Path) -> None:
    (tmp_path / "sources.list").write_text(f"deb http://mirror.example/debian/ trixie {WANTED.replace(',', ' ')}\n")
    assert missing_components(tmp_path) == []


def test_components_spread_over_two_entries(tmp_path: Path) -> None:
    (tmp_path / "sources.list").write_text(
        "deb http://mirror.example/debian trixie main\ndeb http://mirror.example/debian/ trixie contrib non-free\n"
    )
    assert [entry["components"] for entry in missing_components(tmp_path)] == [["non-free-firmware"]]


# ---------------------------------------------------------------- the agent's bundle


def test_agent_digest_is_the_same_on_both_sides(tmp_path: Path) -> None:
    agent = module_of(COLLECTION / "plugins/filter/agent.py")
    package = ROOT / "gpuprep"
    zipfile.ZipFile(io.BytesIO(base64.b64decode(agent.agent_bundle(str(package))))).extractall(tmp_path)
    state = module_of(MODULES / "agent_state.py")
    (tmp_path / "gpuprep/checks/__pycache__").mkdir()
    (tmp_path / "gpuprep/checks/__pycache__/driver.cpython-313.pyc").write_text("compiled there")
    assert state.digest(tmp_path) == agent.agent_digest(str(package))
    for name in ("records/__init__.py", "catalogue/gpus.yml"):
        content = (tmp_path / "gpuprep" / name).read_bytes()
        (tmp_path / "gpuprep" / name).write_bytes(content + b"\n")
        assert state.digest(tmp_path) != agent.agent_digest(str(package)), name
        (tmp_path / "gpuprep" / name).write_bytes(content)


def test_the_agent_knows_its_libraries(tmp_path: Path) -> None:
    differ = module_of(COLLECTION / "plugins/filter/agent.py").agent_libraries_differ
    for name in ("nvidia_ml_py-13.615.71", "psutil-7.2.2", "pip-25.1.1", "cuda_core-1.2.2"):
        (tmp_path / f"{name}.dist-info").mkdir()
    installed = module_of(MODULES / "agent_state.py").libraries(tmp_path)
    wanted = ["nvidia-ml-py==13.615.71", "psutil>=5.9", "cuda-core==1.2.2"]
    assert differ(installed, wanted) == []
    assert differ(installed, [*wanted, "numpy==2.3.5"]) == ["numpy"]
    assert differ(installed, wanted[:2]) == ["cuda-core"]
    assert differ(installed, ["nvidia-ml-py==13.1", *wanted[1:]]) == ["nvidia-ml-py"]
    assert differ({}, wanted) == ["cuda-core", "nvidia-ml-py", "psutil"]


def test_no_library_of_the_agent_is_nvidias_own_cuda() -> None:
    """A wheel with libcublas or libcudnn in it would come between a probe and the installed toolkit."""
    wishes: dict[str, tuple[str, dict[str, Any]]] = {
        "": ("debian13", {"cuda": {"version": "none"}, "codec": {"npp": False}}),
        "11": ("debian12", {}),
        "12": ("debian13", {}),
        "13": ("ubuntu2404", {"driver": {"source": "nvidia"}, "cuda": {"version": "13.0"}}),
    }
    found = {}
    for major, (system, wish) in wishes.items():
        wanted = state.resolve(load("t4", cudnn={"version": "none"}, **wish), bare_snapshot(system))
        found[major] = wanted.agent.libraries
        assert wanted.cuda.major == major
        assert not [name for name in found[major] if name.endswith(("-cu11", "-cu12", "-cu13")) or "torch" in name]
        assert ("nvmath-python" in found[major]) == (major in ("12", "13"))
    assert found["12"]["cuda-bindings"].startswith("12.")
    assert found["13"]["cuda-bindings"].startswith("13.")


def test_the_bundle_runs_by_itself(tmp_path: Path) -> None:
    agent = module_of(COLLECTION / "plugins/filter/agent.py")
    zipfile.ZipFile(io.BytesIO(base64.b64decode(agent.agent_bundle(str(ROOT / "gpuprep"))))).extractall(tmp_path)
    done = run(sys.executable, "-m", "gpuprep.agent", "--version", env={"PYTHONPATH": str(tmp_path)})
    assert done.stdout.split() == ["gpuprep-agent", __version__], done.stderr
