"""modprobe's configuration of NVIDIA's modules and nouveau, in any file and on the kernel's command line."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Tuple, Union

from gpuprep.agent.facts.modulecache import remembered
from gpuprep.agent.facts.nextboot import FILE
from gpuprep.agent.programs.run import read_text, run
from gpuprep.records import Missing, ModprobeLine, OptStr

# A file hides those of the same name in later folders; all that are left are read in the order of their names.
FOLDERS = ("/etc/modprobe.d", "/run/modprobe.d", "/usr/local/lib/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d")
COMMAND_LINE = "/proc/cmdline"
NOTHING = ("/bin/true", "/bin/false", "/usr/bin/true", "/usr/bin/false", "true", "false", ":")
# The initramfs of a kernel and the program that lists it: Debian and Ubuntu, Red Hat and Amazon.
IMAGES = (("/boot/initrd.img-{kernel}", "lsinitramfs"), ("/boot/initramfs-{kernel}.img", "lsinitrd"))
MODULE = re.compile(r"nouveau|nvidia(_current|_tesla|_legacy|_server)?(_\d+\w*)?(_open)?(_uvm)?")


def lines(
    folders: Tuple[str, ...] = FOLDERS, command_line: str = COMMAND_LINE
) -> Union[Tuple[ModprobeLine, ...], Missing]:
    """Lines about the main module, the one that CUDA needs (uvm) and nouveau. Missing if a file may not be read."""
    files: Dict[str, Path] = {}
    for folder in folders:
        for path in Path(folder).glob("[!.]*.conf"):
            files.setdefault(path.name, path)
    lines: List[ModprobeLine] = []
    for name in sorted(files):
        if os.path.realpath(str(files[name])) == os.devnull:  # a link to /dev/null disables a file of a later folder
            continue
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


def keeps_out(line: ModprobeLine) -> bool:
    """Whether this line stops modprobe from loading the module automatically, by its alias."""
    return line.words[0] == "blacklist" or (
        line.words[0] == "install" and line.words[2:3] != () and line.words[2] in NOTHING
    )


def keeps_out_nouveau(lines: Sequence[ModprobeLine]) -> bool:
    return any(line.words[1] == "nouveau" and keeps_out(line) for line in lines)


def nouveau_in_initramfs(
    kernel: str, lines: Union[Tuple[ModprobeLine, ...], Missing], root: Path = Path("/")
) -> Union[bool, Missing, None]:
    """Whether the initramfs of `kernel` loads nouveau; None if nouveau is not in it, as with kernels of clouds.

    It has copies of modprobe's files from when it was made: a file that is newer, or missing in it, does not count.
    """
    index = read_text(root / "lib/modules" / kernel / "modules.dep")
    if not isinstance(index, str) or "/nouveau.ko" not in index:
        return None
    image, program = _image(kernel, root)
    if image is None:
        return None
    listed = remembered(image, lambda path: _listed(program, path))
    if isinstance(listed, Missing):
        return listed
    if isinstance(lines, Missing):
        return lines
    nouveau, names, _ = listed
    if not nouveau:
        return None
    made = image.stat().st_mtime
    inside = [
        line
        for line in lines
        if line.file == COMMAND_LINE
        or (Path(line.file).name in names.split() and not _newer(Path(line.file).stat().st_mtime, made))
    ]
    return not keeps_out_nouveau(inside)


def stale_in_initramfs(kernel: str, module: OptStr, root: Path = Path("/")) -> OptStr:
    """The driver's module in the initramfs of `kernel`, if the one on the disk is newer than the initramfs; else None.

    Such an initramfs loads the older module, whatever is on the disk. A package's module has the date of its build: of
    one that came later than the initramfs by its change alone, the size says whether it is another. So it does where a
    clock that was set back left dates of the future.
    """
    if not isinstance(module, str):
        return module
    image, program = _image(kernel, root)
    if image is None:
        return None
    try:
        disk, made = Path(module).stat(), image.stat().st_mtime
    except OSError as error:
        return Missing("command_failed", str(error))
    if max(disk.st_mtime, disk.st_ctime) <= made <= time.time():
        return None  # and the listing, which takes a second, is not needed
    text = run([program, *(["-l"] if program == "lsinitramfs" else []), str(image)], timeout=60)
    if isinstance(text, Missing):
        return text
    found = re.search(rf"^\S+ +\d+ +\S+ +\S+ +(\d+) .*?(\S*/{FILE.pattern})$", text, re.MULTILINE)
    if found is None:
        return None
    same = Path(found[2]).name == Path(module).name and int(found[1][:20]) == disk.st_size
    return None if same and not _newer(disk.st_mtime, made) else found[2]


def _newer(changed: float, made: float) -> bool:
    """Whether a file came after the initramfs. A date of the future, of a clock that was set back, tells no order."""
    return made < changed <= time.time()


def _image(kernel: str, root: Path) -> Tuple[Optional[Path], str]:
    """The initramfs of `kernel` and the program that lists it."""
    places = [(root / form.format(kernel=kernel).lstrip("/"), program) for form, program in IMAGES]
    return next(((path, program) for path, program in places if path.exists()), (None, ""))


def _listed(program: str, image: Path) -> Union[Tuple[str, str, str], Missing]:
    """(the file of nouveau in an initramfs or "", names of modprobe's files in it with blanks between)."""
    text = run([program, str(image)], timeout=60)
    if isinstance(text, Missing):
        return text
    nouveau = re.search(r"\S*/nouveau\.ko\S*", text)
    return nouveau[0] if nouveau else "", " ".join(re.findall(r"/modprobe\.d/([^\s/]+\.conf)", text)), ""
