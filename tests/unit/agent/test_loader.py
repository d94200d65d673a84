"""The loader's answers compared with the real one's: dlopen in a process that has the same LD_LIBRARY_PATH."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpuprep import records
from gpuprep.agent.facts import loader as loaders
from gpuprep.agent.facts import shells

DLOPEN = """
import ctypes, re, sys
for name in sys.argv[1:]:
    try:
        ctypes.CDLL(name)
    except OSError:
        print("none")
        continue
    stem = name.partition(".so")[0]
    paths = re.findall(r" (/\\S+)", open("/proc/self/maps").read())
    print(next(path for path in paths if path.rpartition("/")[2].startswith(stem + ".so")))
"""


def really(library_path: str, *names: str) -> list[str]:
    environment = {**os.environ, "LD_LIBRARY_PATH": library_path}
    done = subprocess.run(
        [sys.executable, "-c", DLOPEN, *names], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


@pytest.fixture
def libz() -> Path:
    found = loaders.Loader().find("libz.so.1")
    if not isinstance(found, str):
        pytest.skip("no libz here")
    return Path(found)


def test_what_the_cache_says_is_what_is_loaded(libz: Path) -> None:
    assert really("", "libz.so.1", "libnone.so.7") == [str(libz), "none"]
    assert loaders.Loader().find("libnone.so.7") is None


def test_a_folder_of_the_login_comes_first_and_one_that_does_not_fit_is_passed_over(tmp_path: Path, libz: Path) -> None:
    other, wrong, text = tmp_path / "other", tmp_path / "wrong", tmp_path / "text"
    for folder in (other, wrong, text):
        folder.mkdir()
    shutil.copy(libz, other / "libz.so.1.9.9")
    (other / "libz.so.1").symlink_to("libz.so.1.9.9")
    content = bytearray(libz.read_bytes())
    content[4] = 1  # the mark of a 32-bit file
    (wrong / "libz.so.1").write_bytes(bytes(content))
    (text / "libnone.so.1").write_text("no library")
    path = f"{wrong}:{tmp_path}/absent:{other}"
    assert really(path, "libz.so.1") == [f"{other}/libz.so.1.9.9"]
    assert loaders.Loader(path).find("libz.so.1") == f"{other}/libz.so.1.9.9"
    assert loaders.Loader(str(wrong)).find("libz.so.1") == str(libz) == really(str(wrong), "libz.so.1")[0]
    assert loaders.Loader(str(text)).find("libnone.so.1") is None


def test_every_version_that_a_program_could_ask_for(tmp_path: Path) -> None:
    for name in ("libcublasLt.so.11.1", "libcublasLt.so.12.4"):
        shutil.copy(sys.executable, tmp_path / name)
        (tmp_path / name.rpartition(".")[0]).symlink_to(name)
    (tmp_path / "libcublasLt.so").symlink_to("libcublasLt.so.12")
    loader = loaders.Loader(str(tmp_path))
    loader.paths = {"libcublasLt_static.so.9": "/nowhere"}
    assert loader.libraries(("libcuda-of-nobody.so.1",), ("libcublasLt.so", "libnvrtc-of-nobody.so")) == {
        "libcuda-of-nobody.so.1": None,
        "libcublasLt.so.11": f"{tmp_path}/libcublasLt.so.11.1",
        "libcublasLt.so.12": f"{tmp_path}/libcublasLt.so.12.4",
        "libnvrtc-of-nobody.so": None,
    }
    loader.paths = records.Missing("command_not_found", "ldconfig")
    assert loader.libraries((), ("libcublasLt.so",)) == {
        "libcublasLt.so": records.Missing("command_not_found", "ldconfig")
    }


def test_the_library_path_of_a_login_is_read_with_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    account = type("Account", (), {"pw_dir": str(tmp_path), "pw_name": "somebody"})
    monkeypatch.setattr("pwd.getpwuid", lambda _: account)
    (tmp_path / ".bash_profile").write_text("echo hello; export LD_LIBRARY_PATH=/opt/a:/opt/b PATH=/opt/bin\n")
    assert shells.login_environment() == ("/opt/bin", "/opt/a:/opt/b")
    (tmp_path / ".bash_profile").write_text("unset LD_LIBRARY_PATH; PATH=/opt/bin\n")
    assert shells.login_environment() == ("/opt/bin", "")
    assert loaders.Loader("").first == ()


def test_a_library_that_is_there_and_not_listed_is_told_from_one_that_is_gone(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").touch()
    found: dict[str, records.OptStr] = {"libcuda.so.1": None, "libnvcuvid.so.1": None, "libz.so.1": "/lib/libz.so.1"}
    lines = [
        records.ConfigLine("/etc/ld.so.conf.d/x.conf", str(tmp_path), (str(tmp_path),)),
        records.ConfigLine("/etc/profile.d/x.sh", f"PATH={tmp_path}", (str(tmp_path),)),
    ]
    assert loaders.unlisted(found, lines) == ("libcuda.so.1",)
    assert loaders.unlisted(found, lines[1:]) == ()
