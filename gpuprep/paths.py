"""Where gpuprep finds its own files on the controller; the XDG folders are read from the environment at each call.

All raise UsageError for a user who has no home.
"""

from __future__ import annotations

import getpass
import os
from pathlib import Path

from gpuprep.errors import UsageError
from gpuprep.untrusted.owners import of_others


def state_dir() -> Path:
    """Records and logs: $XDG_STATE_HOME/gpuprep."""
    return _base("XDG_STATE_HOME", ".local/state")


def check_state_dir() -> None:
    """Raises UsageError where another user can change what is in the state folder."""
    if weak := of_others(state_dir()):
        raise UsageError(f"the state folder {state_dir()} is not used: {weak.why}", weak.mend)


def private_folder(path: Path) -> Path:
    """Make the folder `path`, at or below state_dir(), with mode 0700: only its owner may read it.

    Raises OSError, and UsageError where another user can change what is in it.
    """
    check_state_dir()
    top = state_dir()
    ours = [folder for folder in (path, *path.parents) if top in (folder, *folder.parents)]
    missing = [folder for folder in path.parents if not folder.exists()]  # mkdir ignores `mode` for the parents
    for folder in [*reversed(missing), *reversed(ours), path]:
        folder.mkdir(exist_ok=True, mode=0o700)
    if ours:
        there = top.stat()
        if there.st_uid == os.geteuid() and there.st_mode & 0o077:  # made by an older gpuprep
            top.chmod(0o700)
    return path


def private_text(path: Path, text: str) -> None:
    """Write a file that only its owner can read. Raises OSError, also where a link stands there."""
    flags = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    with open(os.open(path, flags, 0o600), "w", encoding="utf-8",
              errors="backslashreplace") as file:  # fmt: skip
        os.fchmod(file.fileno(), 0o600)
        file.write(text)


def cache_dir() -> Path:
    """Files that can be downloaded or built again: $XDG_CACHE_HOME/gpuprep."""
    return _base("XDG_CACHE_HOME", ".cache")


def config_dir() -> Path:
    """Files that the user wrote: $XDG_CONFIG_HOME/gpuprep."""
    return _base("XDG_CONFIG_HOME", ".config")


def shipped_profiles_dir() -> Path:
    """The profiles that gpuprep ships, and their schema: inside the package in a wheel, beside it in a source tree."""
    package = Path(__file__).parent
    inside = package / "profiles"
    return inside if inside.is_dir() else package.parent / "profiles"


def _base(variable: str, default: str) -> Path:
    value = os.environ.get(variable, "")
    # The XDG specification: a relative path in these variables is to be ignored.
    return (Path(value) if value.startswith("/") else home(variable) / default) / "gpuprep"


def home(variable: str = "") -> Path:
    """A user of a container often has neither HOME nor an entry in /etc/passwd: then UsageError."""
    try:
        return Path.home()
    except RuntimeError as error:
        names = f"HOME, or {variable}," if variable else "HOME"
        raise UsageError("this user has no home folder", f"set {names} to a folder that exists") from error


def user_name() -> str:
    """Who runs gpuprep. Raises UsageError for a user without a name, as some containers have."""
    try:
        return getpass.getuser()
    except (KeyError, OSError) as error:  # OSError: from Python 3.13 on
        raise UsageError(
            f"user id {os.getuid()} has no name: /etc/passwd has no line for it",
            "set LOGNAME to a name; commands that run Ansible (provision, tune) need that line, because ssh does",
        ) from error
