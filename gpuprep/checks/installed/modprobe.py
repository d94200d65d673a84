"""All of modprobe's files together: does a file override an option of NVIDIA's modules, or block a module? Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuprep.agent.facts.modprobe import keeps_out
from gpuprep.checks import byhand
from gpuprep.checks.common import none_of, unknown
from gpuprep.records import NOT_READ, Finding, Missing, ModprobeLine, Snapshot


def options(lines: Sequence[ModprobeLine]) -> dict[str, dict[str, tuple[str, str]]]:
    """Module ─► option ─► (value, file that sets it last), for NVIDIA's modules; later lines override earlier ones."""
    by_module: dict[str, dict[str, tuple[str, str]]] = {}
    for line in lines:
        if line.words[0] == "options" and line.words[1] != "nouveau":
            pairs = (word.partition("=") for word in line.words[2:])
            mine = by_module.setdefault(line.words[1], {})
            mine.update({key: (value.strip("\"'"), line.file) for key, _, value in pairs})
    return by_module


def overriding(snapshot: Snapshot, wishes: Mapping[str, str | None]) -> list[tuple[str, str, str]]:
    """(wish, file with another value, what to do) for each overridden wish. `wishes`: option ─► value; None: anything
    but "0".
    """
    if isinstance(snapshot.modprobe, Missing):
        return []
    wrong = []
    for module, mine in options(snapshot.modprobe).items():
        for key, wish in wishes.items():
            value, file = mine.get(key, (wish or "", ""))
            if (wish is None and value == "0") or (wish is not None and value != wish):
                line = setting(snapshot.modprobe, module, key)
                out = byhand.option_out(snapshot, line, key) if line else ""
                wrong.append((f"{key}={wish}" if wish is not None else f"no {key}=0", file, out))
    return list(dict.fromkeys(wrong))


def setting(lines: Sequence[ModprobeLine], module: str, key: str) -> ModprobeLine | None:
    """The line that sets an option of a module last."""
    return next(
        (
            line
            for line in reversed(lines)
            if line.words[:2] == ("options", module) and any(word.partition("=")[0] == key for word in line.words[2:])
        ),
        None,
    )


def blocked(snapshot: Snapshot) -> list[Finding]:
    """FAIL for lines that keep the driver's module from being loaded; [] if the record lacks them."""
    lines = snapshot.modprobe
    if isinstance(lines, Missing):
        what = "modprobe's configuration"
        return (
            []
            if lines == NOT_READ
            else [unknown("driver", "module_allowed", lines, expected="may be loaded", what=what)]
        )
    against = [line for line in lines if line.words[1] != "nouveau" and keeps_out(line)]
    return [
        none_of(
            "driver",
            "module_allowed",
            [f"{' '.join(line.words)} ({line.file})" for line in against],
            expected="may be loaded",
            why="modprobe is configured not to load the driver's module: the GPU is gone after the next boot",
            remedy="; ".join(dict.fromkeys(byhand.option_out(snapshot, line) for line in against)),
        )
    ]
