"""Finds profiles, and reads the chain of files that `extends` forms."""

from __future__ import annotations

from pathlib import Path

from gpuprep.desired.loading import schema
from gpuprep.errors import UsageError
from gpuprep.paths import config_dir, shipped_profiles_dir
from gpuprep.yamlfile import reader
from gpuprep.yamlfile.nodes import Node, Problem, merge, oneline, shorten

REPLACED = ("mig",)  # the instances of a GPU are one wish: those of another profile would not fit beside them


def folders() -> list[Path]:
    """Folders in which a name is looked up, in this order: gpuprep's profiles, then the user's own."""
    try:
        return [shipped_profiles_dir(), config_dir() / "profiles"]
    except RuntimeError:  # no HOME and no passwd entry, as in some containers
        return [shipped_profiles_dir()]


def available() -> dict[str, Path]:
    """All profiles, sorted by name."""
    profiles: dict[str, Path] = {}
    for folder in folders():
        for path in folder.glob("*.yml"):
            if path.is_file():
                profiles.setdefault(path.stem, path)
    return dict(sorted(profiles.items()))


def find(name_or_path: str) -> Path:
    """The profile's file. With a slash or .yml/.yaml it is a path, else a name. UsageError: no such name."""
    if _is_path(name_or_path):
        return Path(name_or_path)
    known = available()
    if name_or_path in known:
        return known[name_or_path]
    hint = schema.nearest(name_or_path, list(known))
    raise UsageError(
        f"there is no profile {shorten(name_or_path)!r}{hint}; profiles: {', '.join(known) or 'none'}",
        "give one of these names, or the path of a .yml file; `gpuprep profiles list` shows what each is for",
    )


def _is_path(text: str) -> bool:
    return "/" in text or text.startswith(".") or text.endswith((".yml", ".yaml"))


def read_chain(path: Path, shown: str) -> tuple[Node | None, list[Problem]]:
    """The file merged with all that it extends, and the problems of these files, which name the first file as `shown`.

    The node is None if a file of the chain could not be read: then missing keys are unknown.
    """
    problems: list[Problem] = []
    roots: list[Node] = []
    seen: list[Path] = []
    current: Path | None = path
    while current is not None:
        seen.append(_real(current))
        source = reader.read(current, str(current) if roots else shown)
        problems += source.problems
        if source.root is None:
            return None, problems
        problems += schema.check_file(source.root)
        roots.append(source.root)
        assert isinstance(source.root.value, dict)
        if "extends" not in source.root.value:
            break
        wish = source.root.value["extends"]
        if not isinstance(wish.value, str) or not wish.value:
            return None, problems  # already reported
        current, what = _parent(current.parent, wish.value, seen)
        if what:
            return None, [*problems, Problem(wish.place, "extends", what)]
    merged = roots.pop()
    while roots:
        merged = merge(merged, roots.pop(), REPLACED)
    return merged, problems


def _parent(folder: Path, wish: str, seen: list[Path]) -> tuple[Path | None, str]:
    """(the file that `extends: wish` means in a file of `folder`, ""), or (None, what is wrong with `wish`)."""
    try:
        parent = folder / wish if _is_path(wish) else find(wish)
        exists = parent.exists()
    except UsageError as error:
        return None, error.what
    except (OSError, ValueError) as error:  # a name too long for the file system, a NUL
        return None, f"cannot be read: {oneline(str(error))}"
    if not exists:
        return None, f"there is no file {parent}"
    if _real(parent) in seen:
        circle = [*seen[seen.index(_real(parent)) :], _real(parent)]
        return None, f"goes in a circle: {' ► '.join(p.name for p in circle)}"
    return parent, ""


def _real(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, ValueError, RuntimeError):  # a loop of links, a NUL: reading it says what is wrong
        return path
