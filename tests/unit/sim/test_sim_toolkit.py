"""The stub toolkit of simulated machines, run on this computer: what gpuprep asks nvcc and cuBLASLt for."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from gpuprep import catalogue
from gpuprep.agent.compute import libraries
from gpuprep.agent.probes import toolkit
from gpuprep.sim.archive import payload, stubs, systems

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="c++ is not installed")


@pytest.fixture
def nvcc(tmp_path: Path) -> Path:
    path = tmp_path / "nvcc"
    path.write_text(payload.program("nvcc"))
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("words", "exit_code"),
    [
        (("-E", "-x", "cu", "/dev/null"), 0),  # whether it takes the host's compiler: agent/facts/cuda.py
        (("-E", "-x", "cu", "-ccbin", "no-such-compiler", "/dev/null"), 1),
        (("-E",), 1),
    ],
)
def test_nvcc_says_whether_it_takes_the_compiler_and_leaves_nothing(
    nvcc: Path, tmp_path: Path, words: tuple[str, ...], exit_code: int
) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    assert subprocess.run([nvcc, *words], cwd=folder, capture_output=True, check=False).returncode == exit_code
    assert list(folder.iterdir()) == []


def test_a_program_names_its_compiler_and_finds_no_gpu(nvcc: Path, tmp_path: Path) -> None:
    (tmp_path / "twice.cu").write_text(toolkit.KERNEL)
    subprocess.run([nvcc, "-arch=sm_75", "-o", "twice", "twice.cu"], cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "twice"], capture_output=True, text=True, check=False)
    first, last = done.stdout.splitlines()
    assert first.startswith("host compiler: ")
    assert "cudaErrorNoDevice" in last


@pytest.mark.parametrize(
    ("version", "said"),
    [("12.8.4.1", "12.8.4"), ("13.1.0.3", "13.1.0"), ("12.0.2.224~12.0.1", "12.0.2"), ("11.7.4.6~11.5.1", "11.7.4")],
)
def test_cublaslt_says_its_version(tmp_path: Path, version: str, said: str) -> None:
    (tmp_path / "library.c").write_text(payload.library_code("libcublasLt.so.12", version))
    built = tmp_path / "libcublasLt.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", built, tmp_path / "library.c"], check=True)
    library = ctypes.CDLL(str(built))
    assert libraries.cublas_version(library.cublasLtGetVersion()) == said


@pytest.mark.parametrize("os_name", ["ubuntu2204", "ubuntu2404"])
def test_a_loaded_cublaslt_is_known_by_its_file(os_name: str) -> None:
    found = [stub for archive in systems.systems()[os_name].archives for stub in stubs.stubs(archive)]
    (own,) = (stub for stub in found if stub.name.startswith("libcublaslt1"))
    (file,) = payload.payload(own).libraries
    (read,) = libraries.mapped(f"7f0000000000-7f0000001000 r-xp 00000000 08:01 1 /{file}\n")
    assert read["name"] == "cublasLt"


@pytest.mark.parametrize("os_name", ["ubuntu2204", "ubuntu2404"])
def test_ubuntus_archive_has_every_tool_that_a_profile_may_name(os_name: str) -> None:
    """What is Debian's comes from the Debian below; Nsight is in multiverse, and brings the command."""
    found = {stub.name: stub for archive in systems.systems()[os_name].archives for stub in stubs.stubs(archive)}
    for name in ("nsight-systems", "nsight-compute"):
        tool = catalogue.tools()[name]
        commands = {Path(path).name for package in tool.packages for path in payload.payload(found[package]).texts}
        assert commands == set(tool.commands)
