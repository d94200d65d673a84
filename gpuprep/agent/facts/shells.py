"""Reads PATH for the three ways to start programs: login shells, non-login shells (ssh HOST COMMAND), services.

Each PATH comes from the program that really sets it; programs are then looked up on it.
"""

from __future__ import annotations

import json
import os
import pwd
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Sequence, Tuple

from gpuprep.agent import host_paths
from gpuprep.agent.facts import parse
from gpuprep.agent.programs.run import read_text, run
from gpuprep.records import Missing, OptStr, ShellFacts, Str

TOOLS = ("nvcc", "ffmpeg")
# sshd's compiled-in default where /etc/environment (pam_env) says nothing.
SSHD_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/games"
MARK = "gpuprep-path="
LIBRARIES_MARK = "gpuprep-libraries="

VERSIONS_SCRIPT = """
import importlib, importlib.metadata, importlib.util, json, sys
def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
    if importlib.util.find_spec(name) is None:
        return None
    try:
        return str(getattr(importlib.import_module(name), "__version__", "unknown"))
    except Exception as error:
        return {"missing": "command_failed", "detail": "import " + name + ": " + repr(error)[:200]}
print(json.dumps({name: version(name) for name in sys.argv[1:]}))
"""


@dataclass(frozen=True)
class Paths:
    """PATH for each way of starting a program."""

    login: Str
    non_login: Str
    service: Str
    login_libraries: Str = ""  # LD_LIBRARY_PATH, which the loader asks before its own list


def read_paths() -> Paths:
    login, libraries = login_environment()
    return Paths(login, non_login_path(), service_path(), libraries)


def login_path() -> Str:
    return login_environment()[0]


def login_environment() -> Tuple[Str, Str]:
    """(PATH, LD_LIBRARY_PATH) of a real `bash -l` with an empty environment; ignores output of profile scripts."""
    account = pwd.getpwuid(os.getuid())
    environment = {"HOME": account.pw_dir, "USER": account.pw_name, "LOGNAME": account.pw_name, "TERM": "dumb"}
    inherited = non_login_path()  # pam_env comes first in a login, too
    if isinstance(inherited, str):
        environment["PATH"] = inherited
        libraries = parse.key_values(str(read_text(host_paths.ENVIRONMENT) or "")).get("LD_LIBRARY_PATH", "")
        environment.update({"LD_LIBRARY_PATH": libraries} if libraries else {})
    found_bash = which("bash", "/usr/bin:/bin")
    bash = found_bash if isinstance(found_bash, str) else "bash"
    say = f'printf "\\n%s%s\\n%s%s\\n" {MARK} "$PATH" {LIBRARIES_MARK} "$LD_LIBRARY_PATH"'
    text = run([bash, "-lc", say], env=environment, accept=range(256), marked=False)
    if isinstance(text, Missing):
        return text, text
    by_mark: Dict[str, str] = {}
    for line in text.splitlines():
        for mark in (MARK, LIBRARIES_MARK):
            if line.startswith(mark):
                by_mark[mark] = line[len(mark) :]
    if len(by_mark) == 2:
        return by_mark[MARK], by_mark[LIBRARIES_MARK]
    ended = Missing("command_failed", "the profile scripts of a login shell end it before it runs a command")
    return ended, ended


def non_login_path() -> Str:
    """PATH for `ssh HOST COMMAND`: from /etc/environment (pam_env), else sshd's own default."""
    text = read_text(host_paths.ENVIRONMENT)
    if isinstance(text, Missing):
        return text
    return parse.key_values(text or "").get("PATH") or SSHD_PATH


def service_path() -> Str:
    """PATH that the service manager gives to units, including DefaultEnvironment=."""
    text = run(["systemctl", "show-environment"])
    return text if isinstance(text, Missing) else parse.key_values(text).get("PATH", "")


def which(name: str, path: Str) -> OptStr:
    """The program that a shell with this PATH would start; None: no such program. shutil.which is slow to import."""
    if isinstance(path, Missing):
        return path
    for folder in path.split(":"):
        program = f"{folder}/{name}" if folder else name
        if os.access(program, os.X_OK) and not Path(program).is_dir():
            return program
    return None


def shell_facts(paths: Paths) -> ShellFacts:
    return ShellFacts(
        login_shell={name: which(name, paths.login) for name in TOOLS},
        non_login_shell={name: which(name, paths.non_login) for name in TOOLS},
        systemd_service={name: which(name, paths.service) for name in TOOLS},
        sudo_path=sudo_path(),
        login_path=paths.login,
    )


def sudo_path() -> OptStr:
    """sudo's secure_path as sudo itself prints it, which it does only for root; None if it has none."""
    if os.geteuid() != 0:
        return Missing("no_permission", "sudo shows its settings only to root")
    text = run(["sudo", "-V"])
    if isinstance(text, Missing):
        return text
    match = re.search(r"^Value to override user's \$PATH with: (\S+)$", text, re.MULTILINE)
    return match.group(1) if match else None


def python_modules(names: Sequence[str], path: Str) -> Dict[str, OptStr]:
    """Name ► version of Python modules for the python3 of a login shell, from one process; None: not installed.

    With -I, nothing is imported from the working folder or from the user's own packages.
    """
    if not names:
        return {}
    python = which("python3", path)
    if not isinstance(python, str):
        return {name: Missing("command_not_found", "python3") for name in names}
    text = run([python, "-I", "-c", VERSIONS_SCRIPT, *names], timeout=120)
    if isinstance(text, Missing):
        return {name: text for name in names}
    versions: Dict[str, OptStr] = {}
    for name, value in json.loads(text.splitlines()[-1]).items():
        versions[name] = Missing(value["missing"], value["detail"]) if isinstance(value, dict) else value
    return versions
