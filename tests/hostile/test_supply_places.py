"""What else root takes from files and folders of a host: cuDNN's wheel, extra packages, places of others, manifests."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import amount
import pip
import pytest
import wheelsfortests
from programfile import MODULES, answer_of, module_of
from roletasks import ROLES, Command, command, tasks

VERSION = "9.10.2.21"
NOBODY = 65534
MINE = ("gpu_agent", "gpu_cudnn", "gpu_extras")


def run(wanted: Command, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        wanted.argv, cwd=wanted.folder or "/", capture_output=True, text=True, check=False,
        env={"PATH": os.environ["PATH"], **environment},
    )  # fmt: skip


# ---------------------------------------------------------------- every start of Python and pip


def commands() -> list[tuple[str, dict[str, Any]]]:
    """All commands of these roles that start Python, by "ROLE: TASK"."""
    found = []
    for role in MINE:
        for file in sorted((ROLES / role / "tasks").glob("*.yml")):
            for task, _ in tasks(role, file.name):
                module = task.get("ansible.builtin.command") or task.get("ansible.builtin.script") or {}
                if "python" in json.dumps(module):
                    found.append((f"{role}: {task['name']}", module))
    return found


@pytest.mark.parametrize(("name", "module"), commands(), ids=[name for name, _ in commands()])
def test_no_python_of_root_takes_modules_from_where_its_caller_stands(name: str, module: dict[str, Any]) -> None:
    """-I: neither the folder, nor PYTHON variables, nor a home count."""
    if "executable" in module:
        assert module["executable"] == "python3 -I"
        return
    words = json.dumps(module["argv"])
    starts = re.findall(r"""(?:python3?["'])(?:, | \+ )["']?([^"',\]]+)""", words)
    assert starts, name
    assert set(starts) == {"-I"}
    assert module["chdir"] == "/"


@pytest.mark.parametrize(
    ("role", "file", "name"),
    [
        ("gpu_agent", "install.yml", "Install the agent's libraries"),
        ("gpu_preflight", "wheel.yml", "Download"),
        ("gpu_extras", "python.yml", "Install the wheels"),
    ],
)
@pytest.mark.parametrize("flag", ["--require-hashes", "--only-binary=:all:", "--isolated", "--no-cache-dir"])
def test_no_pip_of_root_goes_without(role: str, file: str, name: str, flag: str) -> None:
    given = {"gpu_agent_new": "/x", "gpu_agent_wheelhouse": "", "gpu_preflight_wheel_scratch": "/x"}
    wanted = command(role, file, name, **given).argv
    assert flag in wanted
    assert wanted[wanted.index("--requirement") + 1].startswith("/")
    assert not [word for word in wanted if "==" in word]


# ---------------------------------------------------------------- cuDNN


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("cudnn") / "new"
    subprocess.run([sys.executable, "-I", "-m", "venv", "--symlinks", "--without-pip", place], check=True)
    [packages] = place.glob("lib/python3*/site-packages")
    (packages / "pip").symlink_to(Path(pip.__file__).parent)  # to unpack one takes longer than all these tests
    return place


def cudnn_wheel(folder: Path, content: str) -> Path:
    path = wheelsfortests.wheel(folder, "nvidia_cudnn_cu12", VERSION, says=content)
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("nvidia/cudnn/lib/libcudnn.so.9", content)
    return path


def download(scratch: Path, digest: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (scratch / "requirements.txt").write_text(f"nvidia-cudnn-cu12=={VERSION} --hash=sha256:{digest}\n")
    task = command("gpu_preflight", "wheel.yml", "Download", gpu_preflight_wheel_scratch=str(scratch))
    return run(task, **environment)


def served(scratch: Path, folder: Path, wheel: Path) -> str:
    address = wheelsfortests.index(folder, wheel)
    page = folder / "nvidia-cudnn-cu12/index.html"
    assert page.is_file()
    (scratch / "pip.conf").write_text(f"[global]\nindex-url = {address}\n")
    for old in scratch.glob("wheel/*.whl"):
        old.unlink()
    return address


def test_a_cudnn_of_another_content_is_not_kept(scratch: Path, tmp_path: Path) -> None:
    good, evil = cudnn_wheel(tmp_path / "good", "good"), cudnn_wheel(tmp_path / "evil", "evil")
    served(scratch, tmp_path / "index", evil)
    done = download(scratch, wheelsfortests.sha256(good))
    assert done.returncode != 0
    assert "HASHES" in done.stderr
    assert not list(scratch.glob("wheel/*.whl"))


@pytest.mark.parametrize("variable", amount.few(["PIP_CONFIG_FILE", "PIP_INDEX_URL", "XDG_CONFIG_DIRS"], 1))
def test_a_caller_s_index_of_cudnn_is_not_asked(scratch: Path, tmp_path: Path, variable: str) -> None:
    good, evil = cudnn_wheel(tmp_path / "good", "good"), cudnn_wheel(tmp_path / "evil", "evil")
    served(scratch, tmp_path / "index", good)
    other = wheelsfortests.index(tmp_path / "other", evil)
    (tmp_path / "home/pip").mkdir(parents=True)
    (tmp_path / "home/pip/pip.conf").write_text(f"[global]\nindex-url = {other}\n")
    values = {"PIP_INDEX_URL": other, "XDG_CONFIG_DIRS": str(tmp_path / "home")}
    done = download(
        scratch, wheelsfortests.sha256(good), **{variable: values.get(variable, str(tmp_path / "home/pip/pip.conf"))}
    )
    assert done.returncode == 0, done.stderr
    assert [wheelsfortests.sha256(path) for path in scratch.glob("wheel/*.whl")] == [wheelsfortests.sha256(good)]


def test_a_cudnn_that_is_swapped_after_pip_checked_it(tmp_path: Path) -> None:
    good = cudnn_wheel(tmp_path / "good", "good")
    cudnn_wheel(tmp_path / "scratch/wheel", "evil")
    final = tmp_path / "final"
    program = ROLES / "gpu_preflight/files/unpack_wheel.py"
    words = [sys.executable, "-I", str(program), str(tmp_path / "scratch"), str(final), VERSION, "12"]
    done = run(Command([*words, wheelsfortests.sha256(good), "cudnn"], "/"))
    assert done.returncode != 0
    assert not final.exists()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("gpu_cudnn_version", "9.10.2.21\n--index-url=http://evil"),
        ("gpu_cudnn_version", "9.10.2.21\n"),
        ("gpu_cudnn_version", "9.10.2.21 --no-deps"),
        ("gpu_cudnn_digest", "a" * 64 + "\n"),
        ("gpu_cudnn_digest", "a" * 64 + " --hash=sha256:" + "b" * 64),
    ],
)
def test_a_line_of_requirements_cannot_be_smuggled_in(variable: str, value: str) -> None:
    task = next(task for task, _ in tasks("gpu_cudnn", "cudnn.yml") if "digest is known" in task["name"])
    (expression,) = (line for line in task["ansible.builtin.assert"]["that"] if line.startswith(variable))
    pattern = re.search(r"match\('(.*)'\)$", expression)
    assert pattern is not None
    assert not re.match(pattern[1], value)


@pytest.mark.parametrize(
    "text", ["[" * 200_000, "[]", "null", '{"wheel_sha256": "d"}', '{"wheel_sha256": "d", "files": [1]}']
)
def test_a_manifest_of_cudnn_that_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    assert answer_of("wheel_state", path=str(tmp_path), sha256="d")["why"] == "its manifest.json is damaged"


# ---------------------------------------------------------------- extra packages


@pytest.mark.parametrize(
    "line",
    [
        "torch",
        "torch==2.5.1",
        "torch>=2 --hash=sha256:" + "a" * 64,
        "torch @ https://evil.example/torch.whl --hash=sha256:" + "a" * 64,
        "--index-url=https://evil.example",
        "-r /etc/shadow",
        "torch==2.5.1 --hash=md5:" + "a" * 32,
        "torch==2.5.1 --hash=sha256:" + "a" * 64 + "\n--index-url=https://evil.example",
        "torch==2.5.1 --hash=sha256:" + "a" * 64 + " --config-settings=x",
        "./torch.whl --hash=sha256:" + "a" * 64,
    ],
)
def test_an_extra_package_without_hash_is_refused(line: str) -> None:
    task, variables = next(tasks("gpu_extras", "python.yml"))
    assert "reject('match', gpu_extras_pinned)" in task["ansible.builtin.assert"]["that"]
    pattern = variables["gpu_extras_pinned"]
    assert re.match(pattern, "torch==2.5.1 --hash=sha256:" + "a" * 64)
    assert not re.match(pattern, line)


# ---------------------------------------------------------------- whose the folders are


def only_root(folder: Path) -> subprocess.CompletedProcess[str]:
    program = ROLES / "gpu_preflight/files/only_root.py"
    return run(Command([sys.executable, "-I", str(program), str(folder)], "/"))


def others_folder(place: Path) -> Path:
    place.mkdir()
    os.chown(place, NOBODY, NOBODY)
    return place / "agent"


def writable(place: Path) -> Path:
    place.mkdir()
    place.chmod(0o777)
    return place / "agent"


def writable_for_a_group(place: Path) -> Path:
    place.mkdir()
    os.chown(place, 0, NOBODY)
    place.chmod(0o775)
    return place / "agent"


def link_into_a_home(place: Path) -> Path:
    home = place.parent / "home"
    home.mkdir()
    os.chown(home, NOBODY, NOBODY)
    place.symlink_to(home)
    return place / "agent"


def link_of_another(place: Path) -> Path:
    (place.parent / "real").mkdir()
    place.symlink_to(place.parent / "real")
    os.lchown(place, NOBODY, NOBODY)
    return place / "agent"


def link_over_a_link(place: Path) -> Path:
    home = place.parent / "home"
    home.mkdir()
    (place.parent / "real").mkdir()
    (home / "hop").symlink_to(place.parent / "real")
    os.chown(home, NOBODY, NOBODY)
    place.symlink_to(home / "hop")
    return place / "agent"


def links_in_a_circle(place: Path) -> Path:
    place.symlink_to(place)
    return place / "agent"


def a_file(place: Path) -> Path:
    place.write_text("")
    return place / "agent"


PLACES = [
    others_folder, writable, writable_for_a_group, link_into_a_home, link_of_another, link_over_a_link,
    links_in_a_circle, a_file,
]  # fmt: skip


@pytest.fixture
def roots() -> Iterator[Path]:
    """A folder that is root's alone, as /opt is."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to give folders away")
    with tempfile.TemporaryDirectory(prefix="gpuprep-test-", dir="/opt") as place:
        Path(place).chmod(0o755)
        yield Path(place)


@pytest.mark.parametrize("make", PLACES, ids=[make.__name__ for make in PLACES])
def test_a_place_that_another_user_can_change(make: Any, roots: Path) -> None:
    assert only_root(roots / "gpuprep/agent").returncode == 0
    done = only_root(make(roots / "gpuprep"))
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    assert str(roots) in done.stderr


@pytest.mark.parametrize(("role", "file"), [("gpu_agent", "main.yml"), ("gpu_preflight", "wheel.yml")])
def test_the_place_is_looked_at_before_anything_is_made_there(role: str, file: str) -> None:
    names = [task["name"] for task, _ in tasks(role, file)]
    looked = next(number for number, name in enumerate(names) if name.startswith("Check that only root"))
    made = [number for number, name in enumerate(names) if name.startswith(("Make the folder", "Install the agent"))]
    assert looked < min(made)


# ---------------------------------------------------------------- the record of what is installed


def provenance() -> ModuleType:
    return module_of(MODULES / "provenance.py")


@pytest.mark.parametrize("attack", ["deep", "huge", "a pipe", "no text", "a device", "a folder"])
def test_a_manifest_that_is_none_is_left_out(tmp_path: Path, attack: str) -> None:
    path = tmp_path / "manifest.json"
    if attack == "deep":
        path.write_text("[" * 500_000)
    elif attack == "huge":
        path.write_text(json.dumps({"x": "y" * 2**21}))
    elif attack == "a pipe":
        os.mkfifo(path)
    elif attack == "no text":
        path.write_bytes(b"\xff\xfe\x00{")
    elif attack == "a device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    assert provenance().manifest(path) is None


def test_a_program_that_never_ends_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dpkg-query").write_text("#!/bin/sh\nexec sleep infinity\n")
    (tmp_path / "dpkg-query").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    functions = vars(provenance())
    functions["MOST_SECONDS"] = 0.2
    assert functions["packages"]() == {}
