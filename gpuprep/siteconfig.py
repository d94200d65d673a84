"""The controller's own settings: $XDG_CONFIG_HOME/gpuprep/config.yml. Strict as profiles are.

mirrors:                    # folders with the same file names as upstream's
  ffmpeg: https://mirror.example/ffmpeg
  nv_codec_headers: https://mirror.example/nv-codec-headers
store: sqlite:////srv/gpuprep/history.db
forks: 10
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gpuprep.errors import UsageError
from gpuprep.paths import config_dir

MIRRORS = ("ffmpeg", "nv_codec_headers")
KEYS = ("mirrors", "store", "forks")


@dataclass(frozen=True)
class SiteConfig:
    mirrors: dict[str, str] = field(default_factory=dict)
    store: str | None = None
    forks: int | None = None


def load(path: Path | None = None) -> SiteConfig:
    """Read the file; the defaults where there is none. Raises UsageError with one line per problem."""
    path = path or config_dir() / "config.yml"
    try:
        text = path.read_text(encoding="utf-8")
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
        return SiteConfig(mirrors, store, forks)

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
        return yaml.safe_load(yaml.serialize(node))

    def _wrong(self, node: yaml.Node, key: str, allowed: str) -> None:
        shown = repr(node.value) if isinstance(node, yaml.ScalarNode) else "a list or a mapping"
        self._problem(node, key, f"{shown} is not allowed, want {allowed}")

    def _problem(self, node: yaml.Node, key: str, what: str) -> None:
        self._problems.append((node.start_mark.line + 1, f"{key}: {what}"))

    @property
    def problems(self) -> list[str]:
        return [f"{self.path}:{line}: {what}" for line, what in sorted(self._problems)]
