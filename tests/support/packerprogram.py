"""Packer itself, which reads and runs the template of docs/cloud/packer: the fixture `packer` in tests/conftest.py.

It is Debian's package, unpacked into a folder of its own for one session and never installed. Debian 12 has 1.6.6, in
which all builders are parts of the one program. Debian 13 has none, so the Makefile cannot ask for it.

1.6.6 is older than the template: `known` says what it does not know. No cloud is asked: `validate` only reads, and
`on_a_machine` puts Packer's builder `null`, which makes no machine and takes one that is there, in place of a cloud's.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from places import ROOT

from gpuprep.agent import host_paths

FOLDER = ROOT / "docs/cloud/packer"
TEMPLATE = "gpuprep.pkr.hcl"
VERSION = "Packer v1.6.6"
APT = ("apt-get", "-q", "-o", "Acquire::Retries=0", "-o", "Acquire::http::Timeout=10")


class NoPacker(Exception):
    """It is neither here nor to be had; the message is one line."""


@dataclass(frozen=True)
class Packer:
    program: str
    folder: Path

    def run(
        self, where: Path, *words: str, environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """In the folder `where`, as the page says. It asks nobody for a newer version and writes to no home folder."""
        own = {"CHECKPOINT_DISABLE": "1", "PACKER_NO_COLOR": "1", "PACKER_CONFIG_DIR": str(self.folder)}
        return subprocess.run(
            [self.program, *words],
            cwd=where, env={**os.environ, **(environment or {}), **own},
            capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip


@contextmanager
def packer() -> Iterator[Packer]:
    """Raises NoPacker. 107 MB of disk until it is left."""
    with tempfile.TemporaryDirectory(prefix="gpuprep-packer-") as name:
        folder = Path(name)
        found = Packer(shutil.which("packer") or "packer", folder)
        if _version(found) != VERSION:  # a newer one needs plugins, and cracklib has a packer, too
            found = Packer(_unpacked(folder), folder)
        if (version := _version(found)) != VERSION:
            raise NoPacker(f"the tests know {VERSION}, and this is {version or 'none'}")
        yield found


def _version(found: Packer) -> str:
    try:
        return found.run(found.folder, "version").stdout.partition("\n")[0].strip()
    except OSError:
        return ""


def _unpacked(folder: Path) -> str:
    """A download of 17 MB, by the computer's own package lists or, where these are missing or old, by fresh ones."""
    try:
        if _did([*APT, "download", "packer"], folder):
            (folder / "lists/partial").mkdir(parents=True)
            own = [*APT, "-o", f"Dir::State::lists={folder}/lists", "-o", f"Dir::Cache={folder}/cache"]
            why = _did([*own, "update"], folder) or _did([*own, "download", "packer"], folder)
            if why:
                raise NoPacker(f"Packer cannot be had: {why}")
        (package,) = folder.glob("packer_*.deb")
        if why := _did(["dpkg", "-x", str(package), str(folder)], folder):
            raise NoPacker(f"Packer cannot be had: {why}")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoPacker(f"Packer cannot be had: {error}") from error
    return str(folder / "usr/bin/packer")


def _did(command: list[str], folder: Path) -> str:
    """The last line of what went wrong; "" of what went well."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    said = done.stderr.strip().splitlines() or [f"{command[0]} ended with {done.returncode}"]
    return said[-1] if done.returncode else ""


# ---------------------------------------------------------------- the template


def template() -> str:
    return (FOLDER / TEMPLATE).read_text(encoding="utf-8")


def known(text: str) -> str:
    """The template without what 1.6.6 does not know. It also wants what amazon-ebs leaves to AWS today."""
    text = _replaced(text, r"^packer \{\n.*?^\}\n", "")  # required_plugins: 1.7
    text = _replaced(text, r"^  metadata_options \{\n.*?^  \}\n", "")  # amazon-ebs: 1.7
    return _replaced(text, r'^( +)volume_type += "gp3"\n', r"\g<0>\1throughput = 125\n\1iops = 3000\n")


def on_a_machine(text: str, cloud: str, port: int, user: str) -> str:
    """The template for a machine of this computer, which stands for the one that `cloud` would make."""
    text = re.sub(r'^source "[a-z-]+" "builder" \{\n.*?^\}\n', "", known(text), flags=re.MULTILINE | re.DOTALL)
    text = _replaced(text, r"^( +sources += )\[[^\n]*\]$", r'\1["source.null.builder"]')
    text = _replaced(text, rf'^( +only += )\["{cloud}\.builder"\]$', r'\1["null.builder"]')
    return f"""{text}
source "null" "builder" {{
  ssh_host             = "127.0.0.1"
  ssh_port             = {port}
  ssh_username         = "{user}"
  ssh_private_key_file = var.key_file
}}
"""


def written(folder: Path, text: str) -> Path:
    """A folder with this template and the two scripts as they are."""
    shutil.copytree(FOLDER, folder)
    (folder / TEMPLATE).write_text(text, encoding="utf-8")
    return folder


def _replaced(text: str, pattern: str, by: str) -> str:
    text, number = re.subn(pattern, by, text, flags=re.MULTILINE | re.DOTALL)
    assert number == 1, pattern
    return text


def paths_on_a_host() -> set[str]:
    """All that gpuprep writes on a host, or looks at there."""
    return {value for name, value in vars(host_paths).items() if name.isupper()}
