"""Parsers against outputs in tests/cases/<parser>/: NAME.txt is the output, NAME.json its origin and its value.

The origin says "captured" with the machine it was read on, or "synthetic" with the reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from places import TESTS

from gpuprep import records
from gpuprep.agent.facts import parse
from gpuprep.agent.probes import codec

CASES = TESTS / "cases"
PARSERS: dict[str, Callable[[str], Any]] = {
    "cudnn_header": parse.cudnn_header,
    "dpkg": parse.dpkg,
    "driver_modules": parse.driver_modules,
    "ffmpeg_buildconf": codec.buildconf,
    "ffmpeg_coders": codec.coders,
    "ffmpeg_filters": codec.filters,
    "ffmpeg_hwaccels": codec.hwaccels,
    "ffmpeg_version": parse.ffmpeg_version,
    "key_values": parse.key_values,
    "ldconfig": lambda text: parse.ldconfig(text, "x86_64"),
    "modinfo": parse.modinfo,
    "mounts": parse.mounts,
    "nvcc_version": parse.nvcc_version,
    "pkg_config_version": parse.pkg_config_version,
    "proc_params": parse.proc_params,
    "proc_version": parse.proc_version,
    "units": parse.units,
}
FILES = sorted(path for name in PARSERS for path in (CASES / name).glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_case(path: Path) -> None:
    case = json.loads(path.with_suffix(".json").read_text())
    assert case["origin"].startswith(("captured: ", "synthetic: "))
    assert records.to_json_value(PARSERS[path.parent.name](path.read_text())) == case["value"]


def test_every_parser_has_a_case() -> None:
    assert {path.parent.name for path in FILES} == set(PARSERS)


@pytest.mark.parametrize("name", sorted(PARSERS))
@given(text=st.text(max_size=200))
def test_no_text_breaks_a_parser(name: str, text: str) -> None:
    PARSERS[name](text)


def test_rpm_and_its_versionlock() -> None:
    text = "nvidia-driver\t3\t580.95.05-1.el9\ncuda-toolkit-12-9\t0\t12.9.1-1\n"
    locks = "# added by hand\nnvidia-driver-3:580.95.05-1.el9.*\n"
    packages = parse.rpm(text, locks)
    assert packages["nvidia-driver"].version == "580.95.05-1.el9"
    assert packages["nvidia-driver"].held
    assert not packages["cuda-toolkit-12-9"].held


ORDER = [
    "5.10.0-30-cloud-amd64",
    "6.1.0-9-cloud-amd64",
    "6.1.0-25-cloud-amd64",
    "6.12.9~rc1+deb13-cloud-amd64",
    "6.12.9+deb13-cloud-amd64",
    "6.12.117+deb13-cloud-amd64",
]


def test_kernels_in_debians_order() -> None:
    assert sorted(reversed(ORDER), key=parse.debian_order) == ORDER


@pytest.mark.parametrize("older", ORDER[:-1])
def test_dpkg_has_the_same_order(older: str) -> None:
    import shutil
    import subprocess

    if shutil.which("dpkg") is None:
        pytest.skip("no dpkg here")
    for newer in ORDER[ORDER.index(older) + 1 :]:
        assert subprocess.run(["dpkg", "--compare-versions", older, "lt", newer], check=False).returncode == 0


@pytest.mark.parametrize(
    ("path", "version"),
    [
        ("/usr/lib/x86_64-linux-gnu/libcudnn.so.9.14.0", "9.14.0"),
        ("/opt/cudnn/lib/libcudnn.so.9", None),
        ("libcudnn.so", None),
    ],
)
def test_the_version_in_a_librarys_name(path: str, version: str | None) -> None:
    assert parse.soname_version(path) == version
