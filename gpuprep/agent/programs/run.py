"""Reading the machine: commands and files. A failed reading is Missing, never an exception."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Dict, Optional, Sequence, Union

from gpuprep.agent.programs import children
from gpuprep.agent.programs.trusted import NotTrusted
from gpuprep.records import Missing, OptStr
from gpuprep.untrusted.limits import FILE_BYTES, file_text

# An ordinary user's PATH lacks the sbin folders, where ldconfig and modinfo live.
SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ReadingFailed(Exception):
    """A reading failed that all other facts depend on."""


def run(
    argv: Sequence[str],
    *,
    timeout: float = 30,
    accept: Sequence[int] = (0,),
    env: Optional[Dict[str, str]] = None,
    stdin: Optional[str] = None,
    cwd: Optional[str] = None,
    merge_stderr: bool = False,
    marked: bool = True,
) -> Union[str, Missing]:
    """The command's stdout. Missing if it does not exist, ends with a code not in `accept`, or takes too long.

    The command ends with the agent (agent/programs/children.py explains `marked`).
    """
    environment = {"PATH": SEARCH_PATH, "LC_ALL": "C", "HOME": os.environ.get("HOME", "/")} if env is None else env
    try:
        done = children.run(
            argv,
            timeout=timeout,
            stdin=b"" if stdin is None else stdin.encode(),
            marked=marked,
            stderr=subprocess.STDOUT if merge_stderr else subprocess.PIPE,
            env=environment,
            cwd=cwd,
        )
    except FileNotFoundError:
        return Missing("command_not_found", argv[0])
    except NotTrusted as error:
        return Missing("not_trusted", str(error))
    except OSError as error:
        return Missing("command_failed", f"{argv[0]}: {error}")
    except subprocess.TimeoutExpired:
        return Missing("command_failed", f"{argv[0]} took longer than {timeout:g} s")
    text = done.stdout.decode(errors="replace")
    if done.returncode not in accept:
        errors = text if merge_stderr else done.stderr.decode(errors="replace")
        last = (errors.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return Missing("command_failed", f"{argv[0]}: {last}")
    return text


def read_text(path: Union[str, Path], most: int = FILE_BYTES, *, follow: bool = True) -> OptStr:
    """The file's text; None if it does not exist; Missing if it may not be read or is too long.

    `most`: bytes. With `follow` False a symbolic link is not read either.
    """
    try:
        return file_text(path, most, errors="replace", follow=follow)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        return Missing("no_permission", str(error))
    except OSError as error:
        return Missing("command_failed", str(error))
