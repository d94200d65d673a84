"""A profile of the user's own: its text, its check, and its file, written whole or not at all."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from gpuprep import catalogue
from gpuprep.catalogue import boardnames
from gpuprep.desired.loading import available, build, find, resolve
from gpuprep.desired.state import check_profile
from gpuprep.errors import ProfileError, UsageError
from gpuprep.paths import config_dir
from gpuprep.untrusted.plaintext import one_line

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
ASK_FORCE = "--force replaces it"


def problems(name: str) -> list[str]:
    """What is wrong with a profile (a name or a path), without a machine; a line `file:line: key: what` each."""
    try:
        resolved = resolve(name)
    except ProfileError as error:
        return list(error.problems)
    except UsageError as error:
        return [error.what]
    lines = []
    for refusal in check_profile(build(resolved)):  # "driver.flavour: reason; works: ..."
        place = resolved.place(*refusal.partition(": ")[0].split("."))
        lines.append(f"{place.file}:{place.line}: {refusal}")
    return lines


def notes(name: str, today: str) -> list[str]:
    """Notes on what is allowed but worth knowing: expired waivers. `today` as "2026-11-21" (UTC)."""
    resolved = resolve(name)
    lines = []
    for index, waiver in enumerate(build(resolved).waivers):
        if waiver.expires < today:
            place = resolved.place("waivers", index)
            expired = f"the waiver of {waiver.finding} expired on {waiver.expires}, and the finding is a FAIL again"
            lines.append(
                f"{place.file}:{place.line}: waivers[{index}]: {expired}; repair the machine, then remove the waiver"
            )
    return lines


def text(extends: str, models: Sequence[str] = (), description: str = "") -> str:
    """The YAML of a profile that extends another one. `models` are keys of the catalogue; () for the parent's."""
    titles = " and ".join(catalogue.models()[key].title for key in models)
    text_of_description = description or (
        f"Our {titles} machines" if titles else f"As {extends}, with changes of our own"
    )
    lines = [
        "# A profile of your own: only what differs from the profile that it extends. docs/profiles.md lists all keys;",
        "# `gpuprep profiles check FILE` checks it, `gpuprep profiles show FILE` shows every value.",
        f"extends: {json.dumps(extends, ensure_ascii=False)}",
        f"description: {json.dumps(text_of_description, ensure_ascii=False)}",
        *([f"gpus: [{', '.join(models)}]"] if models else []),
        "# For example:",
        "# cuda: {version: none}                    # no CUDA toolkit",
        "# tuning: {power_limit_watts: 62}          # watts, within the board's limits",
        "# extras: {tools: [python3, gcc, tmux]}    # a list replaces the list of the extended profile",
    ]
    return "\n".join(lines) + "\n"


def parent_of(models: Sequence[str]) -> str:
    """The shipped profile that serves these models: their own, or base."""
    profiles = {catalogue.models()[key].profile for key in models}
    return profiles.pop() if len(profiles) == 1 and len(models) == 1 else "base"


def parent_named(word: str) -> str:
    """The value of `extends` for a profile: its name, or its absolute path. Raises UsageError if it does not exist."""
    path = find(word)
    if not path.is_file():
        raise UsageError(f"--from {one_line(word, 200)}: there is no such file", "give a profile's name or file")
    return str(path.absolute()) if path == Path(word) else word


def refuse_other_models(parent: str, models: Sequence[str]) -> None:
    """Raises UsageError for models that the parent is not for: its limits are those of its own GPUs."""
    if not find(parent).is_file() or problems(parent):
        return  # the check of the new file says what is wrong there
    own = build(resolve(parent)).gpus
    others = [key for key in models if key not in own]
    if others:
        known = catalogue.models()
        titles = [" and ".join(known[key].title for key in keys) for keys in (own, others)]
        raise UsageError(
            f"--from {one_line(parent, 200)}: this profile and its limits are for {titles[0]}, not for {titles[1]}",
            f"--from {parent_of(models)}",
        )


def as_path(path: Path) -> str:
    """`path` in a form that --profile takes as a file, not as a name."""
    return str(path) if path.suffix in (".yml", ".yaml") or "/" in str(path) else f"./{path}"


def models_named(words: Sequence[str]) -> tuple[str, ...]:
    """Models that the user names: "t4", "A100 PCIe", "10de:20b2". Raises UsageError."""
    model_keys = []
    for word in words:
        models = list(dict.fromkeys(board.model.key for board in boardnames.named(word)))
        if not models:
            near = ", ".join(boardnames.near(word))
            suggestion = f" (did you mean {near}?)" if near else ""
            raise UsageError(
                f"--gpu {one_line(word, 80)}: the catalogue has no such GPU{suggestion}",
                f"models: {', '.join(catalogue.models())}",
            )
        if len(models) > 1:
            raise UsageError(f"--gpu {one_line(word, 80)}: these are several models", f"name one: {', '.join(models)}")
        model_keys.append(models[0])
    return tuple(dict.fromkeys(model_keys))


def place(name: str) -> Path:
    """The file in which --profile finds a profile of this name. Raises UsageError for an invalid name."""
    if not NAME.fullmatch(name):
        raise UsageError(
            f"{one_line(name, 80)!r} is no name of a profile",
            "letters, digits, dots, dashes and underscores, at most 64",
        )
    if Path(name).suffix in (".yml", ".yaml"):  # --profile takes such a word for a path
        raise UsageError(
            f"{name} is a file's name; NAME is without {Path(name).suffix}",
            f"`gpuprep profiles new {Path(name).stem}` with the same options; --output {name} writes it in this folder",
        )
    folder = config_dir() / "profiles"
    taken = available().get(name)
    if taken is not None and taken.parent != folder:
        raise UsageError(
            f"{name} is a profile of gpuprep's own ({taken})",
            "choose another name: gpuprep's own profiles have priority",
        )
    return folder / f"{name}.yml"


def refuse_other(path: Path, content: str, *, force: bool) -> None:
    """Raises UsageError if a file with other content has this name, unless `force` is given."""
    if not force and (path.is_symlink() or path.exists()) and _read(path) != content:
        raise UsageError(f"{path} exists already, with other content", f"{ASK_FORCE}, or name another file")


def write(path: Path, content: str, *, force: bool = False, check: Callable[[str], list[str]] | None = None) -> bool:
    """Write a new file, completely or not at all; False if it already exists with this content.

    A file with other content is replaced only with `force`. `check` returns what is wrong with the new file, before the
    file gets its name. Raises UsageError; ProfileError if `check` returns something.
    """
    refuse_other(path, content, force=force)
    if not force and path.exists():
        return False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".gpuprep-", suffix=".part")
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}", "name another file") from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        if check is not None and (wrong := check(temporary)):
            raise ProfileError([line.replace(temporary, str(path)) for line in wrong], f"{path} was not written")
        if force:
            Path(temporary).replace(path)
        else:
            os.link(temporary, path)  # refuses a file that came meanwhile
    except FileExistsError as error:
        raise UsageError(f"{path} exists already", f"{ASK_FORCE}, or name another file") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}", "name another file") from error
    finally:
        Path(temporary).unlink(missing_ok=True)
    return True


def _read(path: Path) -> str | None:
    from gpuprep.untrusted.limits import file_text

    try:
        return file_text(path)
    except (OSError, ValueError):
        return None
