"""What /proc/self/maps says was loaded, and where the toolkit's own libraries are."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import agentreadings
import pytest

MAPS = """\
7f1c00000000-7f1c00021000 rw-p 00000000 00:00 0
7f1c10000000-7f1c2d000000 r-xp 00000000 08:01 1311 /usr/local/cuda-13.0/targets/x86_64-linux/lib/libcublasLt.so.13.1.0.3
7f1c2d000000-7f1c2e000000 r--p 1d000000 08:01 1311 /usr/local/cuda-13.0/targets/x86_64-linux/lib/libcublasLt.so.13.1.0.3
7f1c30000000-7f1c31000000 r-xp 00000000 08:01 1312 /usr/lib/x86_64-linux-gnu/libnvrtc.so.12.4.127
7f1c40000000-7f1c41000000 r-xp 00000000 08:01 1313 /usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04 (deleted)
7f1c50000000-7f1c51000000 r-xp 00000000 08:01 1314 /usr/lib/x86_64-linux-gnu/libc.so.6
7f1c60000000-7f1c61000000 r-xp 00000000 08:01 1315 /opt/some/libcudart.so
7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0 [stack]
"""


def test_mapped_libraries_once_each_with_the_version_of_their_name() -> None:
    assert agentreadings.mapped_libraries(MAPS) == [
        {"name": "cudart", "path": "/opt/some/libcudart.so", "version": ""},
        {"name": "cuda", "path": "/usr/lib/x86_64-linux-gnu/libcuda.so.580.159.04", "version": "580.159.04"},
        {"name": "nvrtc", "path": "/usr/lib/x86_64-linux-gnu/libnvrtc.so.12.4.127", "version": "12.4.127"},
        {
            "name": "cublasLt",
            "path": "/usr/local/cuda-13.0/targets/x86_64-linux/lib/libcublasLt.so.13.1.0.3",
            "version": "13.1.0.3",
        },
    ]


def test_folders_of_nvidias_own_packages(tmp_path: Path) -> None:
    """/usr/local/cuda is a link, and so is lib64 below it: the loaded file's path is the resolved one."""
    prefix = tmp_path / "cuda-13.0"
    own = prefix / f"targets/{os.uname().machine}-linux/lib"
    own.mkdir(parents=True)
    (prefix / "lib64").symlink_to(own)
    (prefix / "bin").mkdir()
    (prefix / "bin/nvcc").touch()
    (tmp_path / "cuda").symlink_to(prefix)
    found = agentreadings.toolkit_folders(str(tmp_path / "cuda/bin/nvcc"))
    assert str(tmp_path / "cuda/lib64") in found
    assert str(own) in found
    assert len(found) == len(set(found))


def test_folders_of_a_distributions_packages(tmp_path: Path) -> None:
    folder = tmp_path / f"usr/lib/{os.uname().machine}-linux-gnu"
    folder.mkdir(parents=True)
    assert agentreadings.toolkit_folders("/usr/bin/nvcc-of-nobody", tmp_path) == [str(folder)]
    assert agentreadings.toolkit_folders("/usr/lib/nvidia-cuda-toolkit/bin/nvcc-of-nobody", tmp_path) == [str(folder)]


def stand_in(folder: Path, version: int) -> Path:
    """A libcublasLt.so.99 that says it is `version`."""
    folder.mkdir()
    library = folder / "libcublasLt.so.99"
    code = f"unsigned long cublasLtGetVersion(void) {{ return {version}; }}"
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=code.encode(), check=True)
    return library


def test_the_library_that_comes_first_is_the_one_that_is_named(tmp_path: Path) -> None:
    stand_in(tmp_path / "toolkit", 990405)
    wrong = stand_in(tmp_path / "wrong", 990101)
    version, loaded = agentreadings.loaded_cublaslt(f"{tmp_path / 'wrong'}:{tmp_path / 'toolkit'}")
    assert version == "99.1.1"
    assert loaded == [{"name": "cublasLt", "path": str(wrong), "version": "99.1.1"}]


@pytest.mark.parametrize(("number", "version"), [(120405, "12.4.5"), (130100, "13.1.0"), (111103, "11.11.3")])
def test_cublas_version(number: int, version: str, tmp_path: Path) -> None:
    stand_in(tmp_path / "toolkit", number)
    assert agentreadings.loaded_cublaslt(str(tmp_path / "toolkit"))[0] == version
