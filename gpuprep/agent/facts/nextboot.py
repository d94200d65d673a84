"""Would the next boot lose the GPU? What is wrong with the kernel, initramfs, options and module that it starts.

faults(...)              what is wrong, as a kind and what it is about
said(fault, ...)         the sentence and the command that repairs it, for a system with apt or with dnf
Stdlib only and without gpuprep's other modules but bootorder, Python 3.9 or newer: the collection's module next_boot
has it by a link, and asks it before each restart; the agent, for each snapshot.
"""

from __future__ import annotations

import os
import re
import shlex
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, List, Optional, Tuple

from .bootorder import RELEASE, SYSTEMD_BOOT, Answer, Tree, Unreadable

IMAGE_GONE, IMAGE_EMPTY = "image_gone", "image_empty"
INITRD_GONE, INITRD_EMPTY, NO_INITRD = "initrd_gone", "initrd_empty", "no_initrd"
RESCUE = "rescue"
BLOCKED, UNLISTED, BROKEN = "blocked", "unlisted", "broken"
ABSENT, OTHER, UNSIGNED = "absent", "other", "unsigned"  # of the module; findings of their own for the agent
BOOTS = (IMAGE_GONE, IMAGE_EMPTY, INITRD_GONE, INITRD_EMPTY, NO_INITRD, RESCUE)  # the machine itself does not come back
MODULE = r"nvidia(?:[-_](?:current|tesla|legacy|open|server|\d\w*))*"  # the main one, as distributions name it
FILE = re.compile(MODULE + r"\.ko(?:\.(?:xz|zst|gz))?")
PLACES = ("updates", "extra", "weak-updates", "kernel")  # folders of /lib/modules/KERNEL in which drivers lie
BLOCKING = ("module_blacklist", "modprobe.blacklist")
# Words of a command line that start a shell instead of the system.
SHELLS = re.compile(
    r"single|recovery|emergency|rescue|[sS1]|init=/(?:usr/)?bin/(?:ba)?sh|rd\.break|systemd\.unit=(?:rescue|emergency)\.target"
)
# Root file systems that only an initramfs can find.
NEEDS_INITRD = re.compile(r"root=(?:UUID=|LABEL=|/dev/mapper/|/dev/disk/|ZFS=)")
MAGIC = {".ko": b"\x7fELF", ".xz": b"\xfd7zXZ\0", ".zst": b"(\xb5/\xfd", ".gz": b"\x1f\x8b"}
MOST_INDEX = 16 << 20
MOST_FOLDERS = 2000  # a kernel has some hundreds


@dataclass(frozen=True)
class Fault:
    kind: str
    what: str  # a path, an option, a version


def faults(answer: Answer, root: Path = Path("/")) -> Tuple[Fault, ...]:
    """What is wrong with the entry of the next boot and with the files that it needs; () without a known kernel."""
    if not answer.kernel:
        return ()
    found = [*_entry(answer, root), *_options(answer.options), *_module(answer.kernel, root)]
    return tuple(found[:16])


def _entry(answer: Answer, root: Path) -> List[Fault]:
    found = []
    for path, gone, empty in (
        (answer.image, IMAGE_GONE, IMAGE_EMPTY),
        *((initrd, INITRD_GONE, INITRD_EMPTY) for initrd in answer.initrds),
    ):
        size = _size(root, path)
        if size is None:
            found.append(Fault(gone, path))
        elif size == 0:
            found.append(Fault(empty, path))
    # A unified image has its initramfs inside.
    if not answer.initrds and not answer.image.endswith(".efi") and (match := NEEDS_INITRD.search(answer.options)):
        found.append(Fault(NO_INITRD, answer.options[match.start() :].split()[0][:80]))
    return found


def _options(options: str) -> List[Fault]:
    found = []
    for word in options.split():
        if SHELLS.fullmatch(word):
            found.append(Fault(RESCUE, word))
        name, _, value = word.partition("=")
        modules = [
            module for module in value.split(",") if re.fullmatch(MODULE + r"(?:_uvm)?", module.replace("-", "_"))
        ]
        if name.replace("-", "_") in BLOCKING and modules:
            found.append(Fault(BLOCKED, word[:200]))
    return found


def _module(kernel: str, root: Path) -> List[Fault]:
    """Files of the module that depmod does not know, or that no kernel can read."""
    folder = root / "lib/modules" / kernel
    there = module_files(folder)
    listed = _listed(folder)
    if there and not any((folder / path).exists() for path in listed):
        return [Fault(UNLISTED, f"/lib/modules/{kernel}/{there[0]}")]
    return [Fault(BROKEN, f"/lib/modules/{kernel}/{path}") for path in listed if _broken(folder / path)]


def module_files(folder: Path) -> List[str]:
    """The files of the main module below a kernel's folder, from there; links to folders are not followed."""
    found: List[str] = []
    seen = 0
    for place in PLACES:
        for path, folders, names in os.walk(folder / place):
            seen += 1
            if seen > MOST_FOLDERS:
                return sorted(found)
            folders.sort()
            inside = os.path.relpath(path, folder)
            found += [f"{inside}/{name}" for name in names if FILE.fullmatch(name)]
    return sorted(found)


def _listed(folder: Path) -> List[str]:
    """The files of the main module that modules.dep names, from the kernel's folder."""
    try:
        text = (Tree(folder).read("/modules.dep", MOST_INDEX) or b"").decode("utf-8", "replace")
    except Unreadable:
        return []
    paths = (line.partition(":")[0] for line in text.splitlines() if "nvidia" in line)
    return [path for path in paths if FILE.fullmatch(path.rpartition("/")[2])]


def _broken(path: Path) -> bool:
    """Whether the file is empty or cut off: it lacks what its kind begins or ends with."""
    try:
        if not path.is_file():
            return False
        size = path.stat().st_size
        with path.open("rb") as file:
            head = file.read(64)
            file.seek(max(0, size - 2))
            tail = file.read(2)
    except OSError:
        return False  # gone in this moment, or not readable: another reading says so
    if not head.startswith(MAGIC.get(path.suffix, b"")):
        return True
    if path.suffix == ".xz":
        return tail != b"YZ"
    if path.suffix == ".ko" and len(head) == 64 and head[4:6] == b"\x02\x01":  # where its table of sections ends
        table, (width, count) = struct.unpack_from("<Q", head, 0x28)[0], struct.unpack_from("<HH", head, 0x3A)
        return bool(table + width * count > size)
    return False


def _size(root: Path, path: str) -> Optional[int]:
    try:
        return (root / path.lstrip("/")).stat().st_size
    except OSError:
        return None


# ---------------------------------------------------------------- without the agent

LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")
TREE = Path("/var/lib/dkms")
SECURE_BOOT = Path("/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c")


def of_driver(kernel: str, run: Callable[..., str], root: Path = Path("/")) -> List[Fault]:
    """What is wrong with the version and the signature of the module for `kernel`: the agent has findings of its own.

    [] without the driver's libraries: nothing can be lost then. `run(*words)` is a program's output.
    """
    library = library_version(root)
    if not kernel or not library:
        return []
    folder = root / "lib/modules" / kernel
    listed = _listed(folder)
    there = [path for path in listed if (folder / path).exists()]
    if not there:
        return [Fault(ABSENT, "")]
    told = {path: run("modinfo", str(folder / path)) for path in there}
    fields = {path: dict(line.partition(":")[::2] for line in text.splitlines()) for path, text in told.items()}
    versions = {path: found.get("version", "").strip() for path, found in fields.items()}
    if library not in versions.values():
        return [Fault(OTHER, next(iter(versions.values())) or "that cannot be read")]
    unsigned = [path for path in there if versions[path] == library and "sig_id" not in fields[path]]
    on = secure_boot(root)
    return [Fault(UNSIGNED, f"/lib/modules/{kernel}/{path}") for path in unsigned if on]


def library_version(root: Path = Path("/")) -> str:
    """The driver's version in the name behind libnvidia-ml.so.1; "" without it."""
    for folder in LIBRARIES:
        path = root / folder.lstrip("/") / "libnvidia-ml.so.1"
        match = re.search(r"\.so\.(\d+\.\d+(?:\.\d+)*)$", os.path.realpath(str(path)))
        if match and path.exists():
            return match[1]
    return ""


def secure_boot(root: Path = Path("/")) -> bool:
    try:
        return (root / str(SECURE_BOOT).lstrip("/")).read_bytes()[-1:] == b"\x01"
    except OSError:
        return False


def dkms_name(library: str, tree: Path = TREE) -> str:
    """ "nvidia-current/550.163.01" of DKMS; "" if it has no module of that version."""
    found = sorted(path for path in tree.glob("nvidia*/*") if path.name == library and not path.is_symlink())
    return f"{found[0].parent.name}/{library}" if found else ""


# ---------------------------------------------------------------- words


def said(
    fault: Fault, kernel: str, *, apt: bool, dkms: str = "", library: str = "", loader: str = ""
) -> Tuple[str, str]:
    """(the sentence, the command that repairs it); `dkms` is "nvidia/580.1" if DKMS builds the module."""
    what, name = one_line(fault.what), one_line(kernel)
    sentence = {
        IMAGE_GONE: f"its file {what} is not there: the machine does not come back",
        IMAGE_EMPTY: f"its file {what} is empty: the machine does not come back",
        INITRD_GONE: f"its initramfs {what} is not there: the machine does not come back",
        INITRD_EMPTY: f"its initramfs {what} is empty: the machine does not come back",
        NO_INITRD: f"its entry names no initramfs, and the kernel alone does not find {what}: the machine does not come"
                   " back",
        RESCUE: f"its entry has `{what}`, which starts a shell instead of the system: the machine does not come back",
        BLOCKED: f"its entry has `{what}`, which keeps NVIDIA's module out: the GPU would be gone",
        UNLISTED: f"modules.dep does not name {what}, so modprobe does not find it: the GPU would be gone",
        BROKEN: f"the module {what} is empty or cut off: the GPU would be gone",
        ABSENT: "it has no NVIDIA module: the GPU would be gone",
        OTHER: f"it has NVIDIA module {what}, and the libraries are {one_line(library)}: programs would fail",
        UNSIGNED: f"Secure Boot is on and {what} is not signed: the GPU would be gone",
    }[fault.kind]  # fmt: skip
    repair = command(fault, kernel, apt=apt, dkms=dkms, loader=loader)
    return f"kernel {name}, which the next boot starts: {sentence}", repair


def command(fault: Fault, kernel: str, *, apt: bool, dkms: str = "", loader: str = "") -> str:
    name = shlex.quote(kernel)
    entry = f"sudo kernel-install add {name} {f'/boot/vmlinuz-{name}' if apt else f'/lib/modules/{name}/vmlinuz'}"
    menu = "sudo update-grub" if apt else "sudo grub2-mkconfig -o /boot/grub2/grub.cfg"
    menu = entry if loader == SYSTEMD_BOOT else menu
    if fault.kind in (IMAGE_GONE, IMAGE_EMPTY):
        # By what the package provides: Amazon's has another name.
        owner = f'"$(rpm -q --whatprovides "kernel-uname-r = "{name})"'
        again = f"apt-get install --reinstall linux-image-{name}" if apt else f"dnf reinstall {owner}"
        return f"sudo {again} && {menu}"
    if fault.kind in (INITRD_GONE, INITRD_EMPTY, NO_INITRD):
        if loader == SYSTEMD_BOOT:
            return entry
        mode = "-u" if fault.kind == INITRD_EMPTY else "-c"
        made = f"sudo update-initramfs {mode} -k {name}" if apt else f"sudo dracut --force {initramfs(kernel)} {name}"
        return f"{made} && {menu}"
    if fault.kind == RESCUE:
        if loader == SYSTEMD_BOOT:
            return "sudo bootctl set-oneshot '' && sudo bootctl set-default ''"
        return f"sudo grub{'' if apt else '2'}-set-default 0"
    if fault.kind == BLOCKED:
        word = shlex.quote(fault.what)
        if loader == SYSTEMD_BOOT:
            return f"sudo sed -i s/{_pattern(fault.what)}// /etc/kernel/cmdline; {menu}"
        if not apt:
            return f"sudo grubby --update-kernel=ALL --remove-args={word}"
        return f"sudo sed -i s/{_pattern(fault.what)}// /etc/default/grub /etc/default/grub.d/*.cfg; {menu}"
    if fault.kind == UNLISTED:
        return f"sudo depmod {name}"
    if not dkms:
        return ""
    return build(kernel, dkms, apt=apt)


def build(kernel: str, dkms: str, *, apt: bool, headers: bool = True) -> str:
    """How DKMS builds a module for a kernel again; without headers they come first."""
    name = shlex.quote(kernel)
    first = "" if headers else f"sudo apt-get install linux-headers-{name} && " if apt else (
        f"sudo dnf install 'kernel-devel-uname-r = '{name} && "
    )  # fmt: skip
    return f"{first}sudo dkms install --force {shlex.quote(dkms)} -k {name}"


def initramfs(kernel: str) -> str:
    return f"/boot/initramfs-{shlex.quote(kernel)}.img"


def quoted(kernel: str) -> str:
    return shlex.quote(kernel)


def _pattern(word: str) -> str:
    """A word as a pattern of sed between slashes, quoted for the shell."""
    return shlex.quote(re.sub(r"([][\\/.*^$])", r"\\\1", word))


def one_line(text: str) -> str:
    return "".join(sign if sign.isprintable() else "?" for sign in text[:300])


def is_release(text: str) -> bool:
    return RELEASE.fullmatch(text) is not None
