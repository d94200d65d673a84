"""The local mirror of FFmpeg's sources: which archive it reads, and that a damaged file does not stay."""

from __future__ import annotations

import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gpuprep.sim import mirror


def apt_names_a_debian_archive() -> bool:
    if shutil.which("apt-get") is None or not mirror.KEYRING.is_file():
        return False
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return any(line.rstrip("/").endswith("/debian") for line in done.stdout.splitlines())


@pytest.mark.e2e
def test_a_damaged_file_is_fetched_again_and_whole_ones_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not apt_names_a_debian_archive():
        pytest.skip("needs a Debian controller with network access")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    said: list[str] = []
    with ThreadPoolExecutor() as pool:  # as machines that start at once
        mirrors, same = pool.map(lambda _: mirror.ensure(said.append), range(2))
    assert mirrors == same
    assert len([line for line in said if line.startswith("fetching")]) == len(mirror.FILES)
    folder = Path(mirrors["ffmpeg"].removeprefix("file://"))
    for file in mirror.FILES:
        assert mirror.sha256_of(folder / file.name) == file.sha256
    headers = folder / "nv-codec-headers-12.1.14.0.tar.gz"
    headers.write_bytes(b"not a tarball")
    said.clear()
    mirror.ensure(said.append)
    assert mirror.sha256_of(headers) == mirror.FILES[2].sha256
    assert [line for line in said if line.startswith("fetching")] == ["fetching nv-codec-headers-12.1.14.0.tar.xz"]
    said.clear()
    mirror.ensure(said.append)
    assert said == []
