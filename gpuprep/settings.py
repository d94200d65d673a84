"""The controller's own settings: $XDG_CONFIG_HOME/gpuprep/config.yml. Checked as strictly as profiles.

mirrors:                    # folders or URLs with upstream's files, under the same file names
  ffmpeg: https://mirror.example/ffmpeg
  nv_codec_headers: https://mirror.example/nv-codec-headers
store: sqlite:////srv/gpuprep/history.db
forks: 10
keep_days: 365              # older runs of a host go when a command on it ends: docs/history.md; without this they stay
builds:                     # FFmpeg builds of these hosts go to other hosts; without this each host makes its own build
  from: [gpu-build-01, "sim:builder"]       # HOSTs as you name them to gpuprep
  signers: /etc/gpuprep/allowed_signers     # also builds signed with one of these keys: docs/mirrors.md
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpuprep.agent.programs import atomicfile
from gpuprep.errors import UsageError
from gpuprep.paths import config_dir
from gpuprep.untrusted.masking import masked_url
from gpuprep.yamlfile import editing, reader
from gpuprep.yamlfile.nodes import Node, Problem, join, shorten

MIRRORS = ("ffmpeg", "nv_codec_headers", "nvidia", "epel", "rocky_vault", "almalinux_vault", "container_toolkit")
MIRROR_KEYS = ("nvidia_key", "container_toolkit_key")
BUILDS = ("from", "signers")
KEYS = ("mirrors", "store", "forks", "keep_days", "builds")
MOST_DAYS = 36_500  # as history prune takes
FILE = reader.Kind("settings file", optional=True)
# One word: apt and dnf read addresses of repositories from a line of a file.
MIRROR_URL = re.compile(r"(?:https?|file)://[!-~]+")
# Enough for every HOST, and for no pattern: a build is trusted by whole names.
HOST_NAME = re.compile(r"[^\W_][\w.@:%\[\]-]{0,254}|\[[0-9A-Fa-f:.%]+\](?::[0-9]+)?", re.ASCII)


@dataclass(frozen=True)
class Builds:
    """Which builds may go to other hosts: names of HOSTs, and an OpenSSH allowed_signers file ("": none)."""

    trusted: tuple[str, ...] = ()
    signers: str = ""


@dataclass(frozen=True)
class SiteConfig:
    mirrors: dict[str, str] = field(default_factory=dict)
    store: str | None = None
    forks: int | None = None
    keep_days: int | None = None
    builds: Builds = field(default_factory=Builds)


def file() -> Path:
    """The file of the settings, which need not exist."""
    return config_dir() / "config.yml"


def load(path: Path | None = None) -> SiteConfig:
    """Read the file; without a file the defaults. Raises UsageError with one line per problem."""
    path = path or file()
    return _judged(reader.read(path, kind=FILE), path)


def set_keep_days(days: int) -> None:
    """Write keep_days into the file, whose other lines and comments stay as they are.

    Raises UsageError, and the file is as it was: it has a mistake, it has a form that no line can be put into, it is
    another user's, or it cannot be written.
    """
    path = file()
    wanted = replace(load(path), keep_days=days)
    advice = f"write `keep_days: {days}` into it yourself"
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = path.resolve()  # a link stays one: people keep the files of their settings elsewhere
        there = path.stat() if path.exists() else None
        if there and there.st_uid != os.geteuid():
            raise UsageError(f"{path}: belongs to another user and is not changed", advice)
        changed = editing.with_member(path.read_bytes().decode() if there else "", "keep_days", str(days))
        try:
            held = _judged(reader.parse(changed.encode(), str(path), FILE), path)
        except UsageError:
            held = None
        if held != wanted:
            raise UsageError(f"{path}: keep_days cannot be put into a file of this form", advice)
        atomicfile.write(path, changed, stat.S_IMODE(there.st_mode) if there else 0o600)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}", advice) from error


def _judged(source: reader.Source, path: Path) -> SiteConfig:
    judge = _Judge(source.problems)
    config = judge.config(source.root) if source.root else SiteConfig()
    if judge.problems:
        raise UsageError("\n".join(map(str, sorted(judge.problems, key=lambda p: p.place))), f"correct {path}")
    return config


class _Judge:
    """Converts nodes to values, and collects problems."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = problems

    def config(self, root: Node) -> SiteConfig:
        values = self._members(root, "", KEYS)
        mirrors = {}
        for name, node in self._members(values.get("mirrors"), "mirrors", (*MIRRORS, *MIRROR_KEYS)).items():
            if name in MIRROR_KEYS:
                if isinstance(node.value, str) and node.value.startswith(("/", "~/")) and node.value.isprintable():
                    mirrors[name] = str(Path(node.value).expanduser())
                else:
                    self._wrong(node, f"mirrors.{name}", "the path of a public key on this machine, from / or ~/")
            elif isinstance(node.value, str) and MIRROR_URL.fullmatch(node.value):
                mirrors[name] = node.value.rstrip("/")
            else:
                self._wrong(node, f"mirrors.{name}", "a URL with http, https or file")
        store = None
        if url := values.get("store"):
            if isinstance(url.value, str) and ":" in url.value:
                store = url.value
            else:
                self._wrong(url, "store", "the URL of a database, for example sqlite:////srv/gpuprep.db")
        forks, keep_days = self._number(values, "forks"), self._number(values, "keep_days", MOST_DAYS)
        return SiteConfig(mirrors, store, forks, keep_days, self._builds(values.get("builds")))

    def _number(self, values: dict[str, Node], key: str, most: int | None = None) -> int | None:
        node = values.get(key)
        if node is None:
            return None
        value = node.value
        if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= (most or value):
            return value
        self._wrong(node, key, f"a whole number from 1 to {most}" if most else "a whole number from 1")
        return None

    def _builds(self, node: Node | None) -> Builds:
        values = self._members(node, "builds", BUILDS)
        trusted = []
        hosts = values.get("from")
        if hosts and isinstance(hosts.value, list):
            for place, host in enumerate(hosts.value):
                if isinstance(host.value, str) and HOST_NAME.fullmatch(host.value):
                    trusted.append(host.value)
                else:
                    self._wrong(host, f"builds.from[{place}]", "the name of a HOST, whole and no pattern")
        elif hosts:
            self._wrong(hosts, "builds.from", "a list of HOSTs")
        signers = ""
        if path := values.get("signers"):
            if isinstance(path.value, str) and path.value.startswith(("/", "~/")) and path.value.isprintable():
                signers = str(Path(path.value).expanduser())
            else:
                self._wrong(path, "builds.signers", "the path of an allowed_signers file, from / or ~/")
        return Builds(tuple(trusted), signers)

    def _members(self, node: Node | None, key: str, allowed: tuple[str, ...]) -> dict[str, Node]:
        if node is None:
            return {}
        if not isinstance(node.value, dict):
            self._wrong(node, key, f"keys {', '.join(allowed)}")
            return {}
        for name, member in node.value.items():
            if name not in allowed:
                what = f"unknown key, allowed: {', '.join(allowed)}"
                self.problems.append(Problem(member.place, join(key, name), what))
        return {name: member for name, member in node.value.items() if name in allowed}

    def _wrong(self, node: Node, key: str, allowed: str) -> None:
        if not node.sound:  # the reader reported it already
            return
        text = masked_url(node.text) if key == "store" or key.startswith("mirrors.") else node.text
        shown = "a list or a mapping" if isinstance(node.value, (dict, list)) else repr(shorten(text))
        self.problems.append(Problem(node.place, key, f"{shown} is not allowed, want {allowed}"))
