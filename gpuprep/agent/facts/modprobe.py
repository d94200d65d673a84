"""modprobe's configuration of NVIDIA's modules and nouveau, in any file and on the kernel's command line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, List, Tuple, Union

from gpuprep.agent.programs.run import read_text
from gpuprep.records import Missing, ModprobeLine

# A file hides those of the same name in later folders; all that are left are read in the order of their names.
FOLDERS = ("/etc/modprobe.d", "/run/modprobe.d", "/usr/local/lib/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d")
COMMAND_LINE = "/proc/cmdline"
MODULE = re.compile(r"nouveau|nvidia(_current|_tesla|_legacy|_server)?(_\d+\w*)?(_open)?(_uvm)?")


def lines(
    folders: Tuple[str, ...] = FOLDERS, command_line: str = COMMAND_LINE
) -> Union[Tuple[ModprobeLine, ...], Missing]:
    """Lines about the main module, the one that CUDA needs (uvm) and nouveau. Missing if a file may not be read."""
    files: Dict[str, Path] = {}
    for folder in folders:
        for path in Path(folder).glob("*.conf"):
            files.setdefault(path.name, path)
    lines: List[ModprobeLine] = []
    for name in sorted(files):
        text = read_text(files[name])
        if isinstance(text, Missing):
            return text
        lines += of_file(str(files[name]), text or "")
    parameters = read_text(command_line)
    return (*lines, *of_command_line(parameters if isinstance(parameters, str) else "", command_line))


def of_file(file: str, text: str) -> List[ModprobeLine]:
    """Lines of a file as in modprobe.d(5): a backslash at the end joins the next line; # begins a comment line."""
    lines = []
    for line in text.replace("\\\n", " ").splitlines():
        words = line.split()
        if len(words) > 1 and not words[0].startswith("#") and MODULE.fullmatch(words[1].replace("-", "_")):
            lines.append(ModprobeLine(file, (words[0], words[1].replace("-", "_"), *words[2:]), " ".join(words)))
    return lines


def of_command_line(text: str, file: str = COMMAND_LINE) -> List[ModprobeLine]:
    """`modprobe.blacklist=nouveau,...` and `nvidia.NVreg_X=1`, which modprobe obeys, too."""
    lines = []
    for word in text.split():
        name, equals, value = word.partition("=")
        if name in ("modprobe.blacklist", "module_blacklist"):
            modules = [module.replace("-", "_") for module in value.split(",")]
            lines += [ModprobeLine(file, ("blacklist", module), word) for module in modules if MODULE.fullmatch(module)]
        module, dot, option = name.partition(".")
        if dot and MODULE.fullmatch(module.replace("-", "_")):
            lines.append(ModprobeLine(file, ("options", module.replace("-", "_"), option + equals + value), word))
    return lines
