"""prometheus, promtool and node_exporter of Debian's packages, unpacked into a folder; no service is installed."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

PACKAGES = ("prometheus", "prometheus-node-exporter")
DOWNLOAD_SECONDS = 300


@dataclass(frozen=True)
class Programs:
    prometheus: str
    promtool: str
    node_exporter: str


def programs(folder: Path) -> Programs:
    """Those of the PATH, else of the packages, which apt downloads into `folder`. Skips the test where it cannot."""
    named = ("prometheus", "promtool", "prometheus-node-exporter")
    installed = [shutil.which(name) for name in named]
    if None not in installed:
        return Programs(*filter(None, installed))
    if shutil.which("apt-get") is None:
        pytest.skip("no Prometheus here, and no apt-get that could download one")
    done = subprocess.run(
        ["apt-get", "download", "-q", *PACKAGES],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=DOWNLOAD_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        pytest.skip(f"no Prometheus here, and apt-get cannot download one: {done.stderr.strip().splitlines()[-1]}")
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", str(package), str(folder)], check=True)
    return Programs(*(str(folder / "usr" / "bin" / name) for name in named))
