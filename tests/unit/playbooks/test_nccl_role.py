"""The role gpu_nccl: the wheel is unpacked as it was published, told from another, and put where the loader looks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import wheelsfortests
import yaml
from programfile import answer_of
from roletasks import ROLES, tasks

UNPACK = ROLES / "gpu_preflight/files/unpack_wheel.py"
HEADER = '#define NCCL_MAJOR 2\n#define NCCL_MINOR 28\n#define NCCL_PATCH 9\n#define NCCL_SUFFIX ""\n'


def wheel(folder: Path, content: str = "library") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "nvidia_nccl_cu12-2.28.9-py3-none-manylinux_2_18_x86_64.whl"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("nvidia/nccl/lib/libnccl.so.2", content)
        made.writestr("nvidia/nccl/include/nccl.h", HEADER)
        made.writestr("nvidia/nccl/include/nccl_device/core.h", "")
        made.writestr("nvidia/nccl/../../evil.h", "")
        made.writestr("nvidia/nccl/include/../../evil.h", "")
        made.writestr("nvidia/nccl/__init__.py", "")
    return path


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-I", *map(str, words)], capture_output=True, text=True, check=False)


def unpack(folder: Path, digest: str) -> subprocess.CompletedProcess[str]:
    return run(UNPACK, folder / "scratch", folder / "2.28.9-cuda12", "2.28.9", "12", digest, "nccl")


def why(folder: Path, digest: str) -> str:
    return str(answer_of("wheel_state", path=str(folder), sha256=digest)["why"])


def test_the_wheel_is_unpacked_and_recognised(tmp_path: Path) -> None:
    digest = wheelsfortests.sha256(wheel(tmp_path / "scratch/wheel"))
    assert unpack(tmp_path, digest).stderr == ""
    folder = tmp_path / "2.28.9-cuda12"
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())
    assert files == [
        "include/nccl.h",
        "include/nccl_device/core.h",
        "lib/libnccl.so",
        "lib/libnccl.so.2",
        "manifest.json",
    ]
    assert (folder / "lib/libnccl.so").readlink() == Path("libnccl.so.2")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert (manifest["version"], manifest["cuda_major"], manifest["wheel_sha256"]) == ("2.28.9", "12", digest)
    assert why(folder, digest) == "intact"
    assert why(folder, "0" * 64) == "it is of another wheel"
    (folder / "lib/libnccl.so.2").write_text("another")  # as long as it was
    assert why(folder, digest) == "lib/libnccl.so.2 was changed"
    (folder / "lib/libnccl.so.2").write_text("library")
    assert why(folder, digest) == "intact"
    (folder / "lib/libnccl.so.2").write_text("longer than it was")
    assert why(folder, digest) == "lib/libnccl.so.2 is missing or changed"


def test_another_wheel_is_refused(tmp_path: Path) -> None:
    wheel(tmp_path / "scratch/wheel", "evil")
    done = unpack(tmp_path, "0" * 64)
    assert done.returncode != 0
    assert "not the file that was published" in done.stderr
    assert not (tmp_path / "2.28.9-cuda12").exists()


def test_a_wheel_of_cudnn_is_no_nccl(tmp_path: Path) -> None:
    folder = tmp_path / "scratch/wheel"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(folder / "x.whl", "w") as made:
        made.writestr("nvidia/cudnn/lib/libcudnn.so.9", "")
    assert "no libraries under nvidia/nccl" in unpack(tmp_path, wheelsfortests.sha256(folder / "x.whl")).stderr


@pytest.mark.parametrize("value", ["2.28.9\n--index-url=http://evil", "2.28.9\n", "2.28.9 --no-deps", "2"])
def test_a_version_is_a_version(value: str) -> None:
    (task, _), *_ = tasks("gpu_nccl", "nccl.yml")
    (expression,) = (line for line in task["ansible.builtin.assert"]["that"] if line.startswith("gpu_nccl_version"))
    pattern = re.search(r"match\('(.*)'\)$", expression)
    assert pattern is not None
    assert re.match(pattern[1], "2.28.9")
    assert not re.match(pattern[1], value)


def test_the_header_tells_the_version(tmp_path: Path) -> None:
    (task, _), *_ = tasks("gpu_nccl", "check.yml")
    program = re.search(r"sed -n '(s/\^#define .*?)' ", task["ansible.builtin.shell"]["cmd"])
    assert program is not None
    (tmp_path / "nccl.h").write_text(HEADER)
    said = subprocess.run(["sed", "-n", program[1], tmp_path / "nccl.h"], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["2", "28", "9"]


def test_nothing_is_installed_unless_it_is_wished() -> None:
    defaults = yaml.safe_load((ROLES / "gpu_nccl/defaults/main.yml").read_text())
    assert defaults["gpu_nccl_version"] == "none"
    for book in ("main.yml", "verify.yml"):
        steps = yaml.safe_load((ROLES / "gpu_nccl/tasks" / book).read_text())
        assert steps[-1]["when"] == "gpu_nccl_version != 'none'"
