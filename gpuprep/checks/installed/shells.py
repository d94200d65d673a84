"""nvcc and ffmpeg in the three ways programs are started: login shells, non-login shells, services."""

from __future__ import annotations

import re

from gpuprep.agent.host_paths import ENVIRONMENT, LOGIN_ENVIRONMENT, PROGRAM_LINKS, SERVICE_ENVIRONMENT
from gpuprep.checks import byhand
from gpuprep.checks.common import check, small_file, unknown
from gpuprep.desired.state import Wanted
from gpuprep.records import Finding, Missing, OptStr, Snapshot, Str

# Way of starting ► (field of the snapshot, file that prepares it, what the file must say, in words).
WAYS = {
    "login_shell": (LOGIN_ENVIRONMENT, r"\bCUDA_HOME=", "a login shell"),
    "non_login_shell": (ENVIRONMENT, r"^\s*PATH=", "a non-login shell (ssh HOST COMMAND)"),
    "systemd_service": (SERVICE_ENVIRONMENT, r"\bCUDA_HOME=", "a systemd service"),
}


def findings(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    """Findings for each installed tool; a missing tool is reported by its own check."""
    shell_findings = []
    for way, (path, pattern, words) in WAYS.items():
        tools: dict[str, OptStr] = getattr(snapshot.shells, way)
        if wanted.cuda.version != "none" and snapshot.cuda.nvcc_path is not None:
            nvcc = snapshot.cuda.nvcc_path
            shell_findings.append(_tool(snapshot, way, words, tools, "nvcc", nvcc, "gpu_cuda", exact=False))
            shell_findings.append(_environment(way, words, path, pattern, snapshot))
        if wanted.codec.ffmpeg != "none" and snapshot.codec.ffmpeg_path is not None:
            ffmpeg = snapshot.codec.ffmpeg_path
            shell_findings.append(_tool(snapshot, way, words, tools, "ffmpeg", ffmpeg, "gpu_codec", exact=True))
    return shell_findings


def _tool(
    snapshot: Snapshot,
    way: str,
    words: str,
    tools: dict[str, OptStr],
    name: str,
    expected: Str,
    role: str,
    *,
    exact: bool,
) -> Finding:
    """A finding on one tool. `exact`: it must be the same file everywhere; several nvcc may belong to one toolkit."""
    path = tools.get(name, Missing("command_failed", f"{name} was not looked for"))
    if isinstance(expected, Missing):
        return unknown(way, name, expected, expected=f"a path of {name}", role=role)
    ok = isinstance(path, str) and (path in (expected, f"{PROGRAM_LINKS}/{name}") or not exact)
    other = isinstance(path, str) and not ok and path.rpartition("/")[0] not in byhand.OF_THE_SYSTEM
    by_hand = byhand.in_the_way(snapshot, str(path), PROGRAM_LINKS) if other else ""
    why = (
        (f"{words} starts {path} as {name}, not {expected}: jobs run another version")
        if path
        else f"{words} has no {name}: jobs that call it fail"
    )
    return check(
        way, name, path, ok, expected=expected, why=why, role="" if by_hand else role, remedy=by_hand
    )  # fmt: skip


def _environment(way: str, words: str, path: str, pattern: str, snapshot: Snapshot) -> Finding:
    text = small_file(snapshot, path)
    ok = isinstance(text, str) and re.search(pattern, text, re.MULTILINE) is not None
    return check(
        way,
        "environment",
        text,
        ok,
        expected=f"set by {path}",
        shown=f"set by {path}" if ok else f"{path} does not set it",
        why=f"{words} does not get PATH and CUDA_HOME from {path}: builds there do not find CUDA",
        role="gpu_cuda",
    )
