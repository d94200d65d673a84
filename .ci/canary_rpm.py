"""What a repository of rpm packages has, by its own signed lists: no dnf is needed. For canary.py."""

from __future__ import annotations

import gzip
import hashlib
import re
import subprocess
import urllib.error
import urllib.request
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path

import yaml

MOST = 512 << 20  # bytes of a list; NVIDIA's has some ten million letters
SECONDS = 300
REPO = "{http://linux.duke.edu/metadata/repo}"
COMMON = "{http://linux.duke.edu/metadata/common}"


class NotAsked(Exception):
    """The repository cannot be reached or believed."""


class RpmRoot:
    """The lists of one repository, believed by their signature."""

    def __init__(self, folder: Path, address: str, key: Path | None, pin: str, key_file: str) -> None:
        """`key`: a file with the key that signs; None: the repository's `key_file`, believed by its pin.

        The pin is the key's fingerprint, or the sha256 of its file without the line "Version: ...".
        """
        self.folder, self.address = folder, address.rstrip("/") + "/"
        self.key, self.pin, self.key_file = key, pin, key_file
        self.versions: dict[str, set[str]] = {}
        self.streams: set[str] = set()

    def update(self) -> str:
        """ "" or why the lists cannot be had or believed."""
        try:
            lists = self._lists()
            for package in ET.fromstring(lists["primary"]).iter(f"{COMMON}package"):
                name, version = package.findtext(f"{COMMON}name", ""), package.find(f"{COMMON}version")
                found = {} if version is None else version.attrib
                text = f"{found.get('epoch', '0')}:{found.get('ver', '')}-{found.get('rel', '')}"
                self.versions.setdefault(name, set()).add(text)
            for document in yaml.safe_load_all(lists.get("modules", b"")):
                data = document.get("data", {}) if isinstance(document, dict) else {}
                if document.get("document") == "modulemd" and data.get("name") == "nvidia-driver":
                    self.streams.add(str(data.get("stream")))
        except (NotAsked, ET.ParseError, yaml.YAMLError, OSError, EOFError) as error:
            return str(error) or type(error).__name__
        return ""

    def offers(self, names: Sequence[str]) -> dict[str, set[str]]:
        """Name ► the package versions that are offered."""
        return {name: self.versions.get(name, set()) for name in names}

    def _lists(self) -> dict[str, bytes]:
        """Kind of list ► its content: those that the signed repomd.xml names, by their checksums."""
        signed = self._get("repodata/repomd.xml")
        self._believe(signed, self._get("repodata/repomd.xml.asc"))
        found = {}
        for entry in ET.fromstring(signed).iter(f"{REPO}data"):
            kind, place, sum_ = entry.get("type", ""), entry.find(f"{REPO}location"), entry.find(f"{REPO}checksum")
            if kind not in ("primary", "modules") or place is None or sum_ is None:
                continue
            content = self._get(place.get("href", ""))
            if sum_.get("type") not in ("sha256", "sha512") or (
                hashlib.new(sum_.get("type", ""), content).hexdigest() != (sum_.text or "").strip()
            ):
                raise NotAsked(f"{place.get('href')} is not the file that repomd.xml names")
            found[kind] = gzip.decompress(content) if place.get("href", "").endswith(".gz") else content
        if "primary" not in found:
            raise NotAsked("repomd.xml names no list of packages")
        return found

    def _believe(self, signed: bytes, signature: bytes) -> None:
        home = self.folder / "gpg"
        home.mkdir(mode=0o700)
        key = self.key.read_bytes() if self.key else self._get(self.key_file)
        for name, content in {"key": key, "repomd.xml": signed, "repomd.xml.asc": signature}.items():
            (self.folder / name).write_bytes(content)
        gpg = ["gpg", "--homedir", str(home), "--batch", "--no-options", "--quiet", "--status-fd", "1"]
        gpg.append("--no-autostart")  # no agent is wanted, and none is left at work
        files = [str(self.folder / "repomd.xml.asc"), str(self.folder / "repomd.xml")]
        for words in (["--import", str(self.folder / "key")], ["--verify", *files]):
            done = subprocess.run([*gpg, *words], capture_output=True, text=True, timeout=SECONDS, check=False)
        valid = re.findall(r"(?m)^\[GNUPG:\] VALIDSIG .*?([0-9A-F]{40})$", done.stdout)
        if done.returncode != 0 or not valid:
            raise NotAsked("repomd.xml is not signed with the key")
        found = hashlib.sha256(re.sub(rb"(?m)^Version.*\n", b"", key)).hexdigest() if len(self.pin) == 64 else valid[0]
        if self.key is None and found != self.pin:
            raise NotAsked(f"repomd.xml is signed with {found}, not with {self.pin}")

    def _get(self, name: str) -> bytes:
        try:
            with urllib.request.urlopen(self.address + name, timeout=SECONDS) as answer:
                content: bytes = answer.read(MOST + 1)
        except (urllib.error.URLError, OSError, ValueError) as error:
            raise NotAsked(f"{self.address}{name}: {error}") from error
        if len(content) > MOST:
            raise NotAsked(f"{self.address}{name} has more than {MOST >> 20} MiB")
        return content
