"""The controller's own settings: $XDG_CONFIG_HOME/gpuprep/config.yml. Checked as strictly as profiles.

mirrors:                    # folders or URLs with upstream's files, under the same file names
  ffmpeg: https://mirror.example/ffmpeg
  nv_codec_headers: https://mirror.example/nv-codec-headers
store: sqlite:////srv/gpuprep/history.db
forks: 10
builds:                     # FFmpeg builds of these hosts go to other hosts; without this each host makes its own build
  from: [gpu-build-01, "sim:builder"]       # HOSTs as you name them to gpuprep
  signers: /etc/gpuprep/allowed_signers     # also builds signed with one of these keys: docs/mirrors.md
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gpuprep.errors import UsageError
from gpuprep.paths import config_dir
from gpuprep.untrusted.limits import file_text

MIRRORS = ("ffmpeg", "nv_codec_headers")
BUILDS = ("from", "signers")
KEYS = ("mirrors", "store", "forks", "builds")
MOST_BYTES = 64 * 1024
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
    builds: Builds = field(default_factory=Builds)


def load(path: Path | None = None) -> SiteConfig:
    """Read the file; without a file the defaults. Raises UsageError with one line per problem."""
    path = path or config_dir() / "config.yml"
    try:
        text = file_text(path, MOST_BYTES)
    except FileNotFoundError:
        return SiteConfig()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: cannot be read: {error}") from error
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise UsageError(f"{path}:{line}: not YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{path}:1: not YAML: {error}") from error
    except (RecursionError, ValueError, OverflowError) as error:  # PyYAML's, of what is nested too deep or no sign
        raise UsageError(f"{path}:1: not YAML that can be read: {type(error).__name__}") from error
    reader = _Reader(str(path))
    config = reader.read(root) if root is not None else SiteConfig()
    if reader.problems:
        raise UsageError("\n".join(reader.problems), f"correct {path}")
    return config


class _Reader:
    def __init__(self, path: str) -> None:
        self.path = path
        self._problems: list[tuple[int, str]] = []

    def read(self, root: yaml.Node) -> SiteConfig:
        values = self._mapping(root, "", KEYS)
        mirrors = {}
        if "mirrors" in values:
            for name, node in self._mapping(values["mirrors"], "mirrors", MIRRORS).items():
                url = self._scalar(node, f"mirrors.{name}")
                if isinstance(url, str) and url.startswith(("http://", "https://", "file://")):
                    mirrors[name] = url.rstrip("/")
                else:
                    self._wrong(node, f"mirrors.{name}", "a URL with http, https or file")
        store = None
        if "store" in values:
            store = self._scalar(values["store"], "store")
            if not (isinstance(store, str) and ":" in store):
                self._wrong(values["store"], "store", "an SQLAlchemy URL, for example sqlite:////srv/gpuprep.db")
        forks = None
        if "forks" in values:
            forks = self._scalar(values["forks"], "forks")
            if not (type(forks) is int and forks >= 1):
                self._wrong(values["forks"], "forks", "a whole number from 1")
        builds = self._builds(values["builds"]) if "builds" in values else Builds()
        return SiteConfig(mirrors, store, forks, builds)

    def _builds(self, node: yaml.Node) -> Builds:
        values = self._mapping(node, "builds", BUILDS)
        trusted = []
        hosts = values.get("from")
        if isinstance(hosts, yaml.SequenceNode):
            for place, host in enumerate(hosts.value):
                name = self._scalar(host, f"builds.from[{place}]")
                if isinstance(name, str) and HOST_NAME.fullmatch(name):
                    trusted.append(name)
                else:
                    self._wrong(host, f"builds.from[{place}]", "the name of a HOST, whole and no pattern")
        elif hosts is not None:
            self._wrong(hosts, "builds.from", "a list of HOSTs")
        signers = ""
        if "signers" in values:
            found = self._scalar(values["signers"], "builds.signers")
            if isinstance(found, str) and found.startswith(("/", "~/")) and found.isprintable():
                signers = str(Path(found).expanduser())
            else:
                self._wrong(values["signers"], "builds.signers", "the path of an allowed_signers file, from / or ~/")
        return Builds(tuple(trusted), signers)

    def _mapping(self, node: yaml.Node, key: str, allowed: tuple[str, ...]) -> dict[str, yaml.Node]:
        if not isinstance(node, yaml.MappingNode):
            self._wrong(node, key or "(the file)", f"keys {', '.join(allowed)}")
            return {}
        found: dict[str, yaml.Node] = {}
        for name_node, value in node.value:
            name = str(name_node.value)
            full = f"{key}.{name}" if key else name
            if name not in allowed:
                self._problem(name_node, full, f"unknown key, allowed: {', '.join(allowed)}")
            elif name in found:
                self._problem(name_node, full, "given twice")
            else:
                found[name] = value
        return found

    def _scalar(self, node: yaml.Node, key: str) -> Any:  # noqa: ARG002  kept beside _mapping
        if not isinstance(node, yaml.ScalarNode):
            return None
        try:
            return yaml.safe_load(yaml.serialize(node))
        except (yaml.YAMLError, ValueError, OverflowError):  # of a number or a tag that is none
            return None

    def _wrong(self, node: yaml.Node, key: str, allowed: str) -> None:
        shown = repr(node.value) if isinstance(node, yaml.ScalarNode) else "a list or a mapping"
        self._problem(node, key, f"{shown} is not allowed, want {allowed}")

    def _problem(self, node: yaml.Node, key: str, what: str) -> None:
        self._problems.append((node.start_mark.line + 1, f"{key}: {what}"))

    @property
    def problems(self) -> list[str]:
        return [f"{self.path}:{line}: {what}" for line, what in sorted(self._problems)]
