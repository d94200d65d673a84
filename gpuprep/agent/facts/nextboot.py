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
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Callable, List, Optional, Tuple

from .bootorder import FIRMWARE_VENDOR, RELEASE, SYSTEMD_BOOT, VARIABLES, Answer, Tree, Unreadable

IMAGE_GONE, IMAGE_EMPTY = "image_gone", "image_empty"
INITRD_GONE, INITRD_EMPTY, NO_INITRD = "initrd_gone", "initrd_empty", "no_initrd"
RESCUE = "rescue"
BLOCKED, UNLISTED, BROKEN, FOREIGN = "blocked", "unlisted", "broken", "foreign"
# Findings of their own for the agent: of the module and its key, and of a boot loader that nobody can follow.
ABSENT, OTHER, UNSIGNED, UNENROLLED, NOT_UNDERSTOOD = "absent", "other", "unsigned", "unenrolled", "not_understood"
KEPT_OUT = "kept_out"
BOOTS = (IMAGE_GONE, IMAGE_EMPTY, INITRD_GONE, INITRD_EMPTY, NO_INITRD, RESCUE)  # the machine itself does not come back
MODULE = r"nvidia(?:[-_](?:current|tesla|legacy|open|server|\d\w*))*"  # the main one, as distributions name it
FILE = re.compile(MODULE + r"\.ko(?:\.(?:xz|zst|gz))?")
PLACES = ("updates", "extra", "weak-updates", "kernel")  # folders of /lib/modules/KERNEL in which drivers lie
BLOCKING = ("module_blacklist", "modprobe.blacklist")
BLACKLISTS = re.compile(r"(?:module_|modprobe\.)blacklist=(\S+)")
# Lines of modprobe's configuration, as `modprobe --showconfig` prints it, that keep the module from being loaded.
KEEPING_OUT = re.compile(
    rf"^(?:blacklist {MODULE}(?:_uvm)?|install {MODULE}(?:_uvm)? (?:(?:/usr)?/bin/)?(?:true|false|:))(?= |$).*", re.M
)
# Words of a command line that start a shell instead of the system.
SHELLS = re.compile(
    r"single|recovery|emergency|rescue|[sS1]|init=/(?:usr/)?bin/(?:ba)?sh|rd\.break|systemd\.unit=(?:rescue|emergency)\.target"
)
# Root file systems that only an initramfs can find.
NEEDS_INITRD = re.compile(r"root=(?:UUID=|LABEL=|/dev/mapper/|/dev/disk/|ZFS=)")
MAGIC = {".ko": b"\x7fELF", ".xz": b"\xfd7zXZ\0", ".zst": b"(\xb5/\xfd", ".gz": b"\x1f\x8b"}
MOST_INDEX = 16 << 20
MOST_FOLDERS = 2000  # a kernel has some hundreds
MOST_BLOCKS = 1 << 16  # of 128 KiB, in a module that is packed
MOST_MODULE = 1 << 30  # bytes of it, unpacked


@dataclass(frozen=True)
class Fault:
    kind: str
    what: str  # a path, an option, a version


def faults(
    answer: Answer, root: Path = Path("/"), built_for: Callable[[Path], str] = lambda _: ""
) -> Tuple[Fault, ...]:
    """What is wrong with the entry of the next boot and with the files that it needs; () without a known kernel.

    `built_for(module)` is the kernel in its version magic, "" if that cannot be read.
    """
    if not answer.kernel:
        return ()
    found = [*_entry(answer, root), *_options(answer.options), *_module(answer.kernel, root, built_for)]
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


def _module(kernel: str, root: Path, built_for: Callable[[Path], str]) -> List[Fault]:
    """Files of the module that depmod does not know, that no kernel can read, or that are another kernel's."""
    folder = root / "lib/modules" / kernel
    there, listed = module_files(folder), _listed(folder)
    if there and not listed:
        return [Fault(UNLISTED, f"/lib/modules/{kernel}/{there[0]}")]
    broken = [Fault(BROKEN, f"/lib/modules/{kernel}/{path}") for path in listed if _broken(folder / path)]
    # A link of weak-updates leads to another kernel's module, and depmod has looked whether it fits.
    own = [path for path in listed if os.path.realpath(folder / path).startswith(f"{os.path.realpath(folder)}/")]
    others = [(path, made) for path in own if (made := built_for(folder / path)) not in ("", kernel)]
    if broken or not own or len(others) < len(listed):
        return broken
    return [Fault(FOREIGN, f"/lib/modules/{kernel}/{path} (of {made})") for path, made in others]


def module_files(folder: Path) -> List[str]:
    """The files of the main module below a kernel's folder, from there; links to folders are not followed, and a link
    that leads nowhere is no file.
    """
    found: List[str] = []
    seen = 0
    for place in PLACES:
        for path, folders, names in os.walk(folder / place):
            seen += 1
            if seen > MOST_FOLDERS:
                return sorted(found)
            folders.sort()
            inside = os.path.relpath(path, folder)
            found += [f"{inside}/{name}" for name in names if FILE.fullmatch(name) and Path(path, name).exists()]
    return sorted(found)


def _listed(folder: Path) -> List[str]:
    """The files of the main module that modules.dep names, from the kernel's folder. modprobe reads modules.dep.bin,
    which depmod writes after it: without that it finds none.
    """
    if not _size(folder, "modules.dep.bin"):
        return []
    try:
        text = (Tree(folder).read("/modules.dep", MOST_INDEX) or b"").decode("utf-8", "replace")
    except Unreadable:
        return []
    paths = (line.partition(":")[0] for line in text.splitlines() if "nvidia" in line)
    return [path for path in paths if FILE.fullmatch(path.rpartition("/")[2]) and (folder / path).exists()]


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
            file.seek(0)
            if path.suffix in (".zst", ".gz") and head.startswith(MAGIC[path.suffix]):
                return _zst_is_cut(file, size) if path.suffix == ".zst" else _gz_is_cut(file)
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


def _zst_is_cut(file: BinaryIO, size: int) -> bool:
    """By the lengths of its blocks, without unpacking it (RFC 8878, 3.1.1)."""
    at = 0
    for _ in range(MOST_BLOCKS):
        if at >= size:
            return at > size
        file.seek(at)
        head = file.read(8).ljust(8, b"\0")
        if head[1:4] == b"\x2a\x4d\x18":  # a frame to be skipped
            at += 8 + int.from_bytes(head[4:], "little")
            continue
        if not head.startswith(MAGIC[".zst"]):
            return True
        single, width = head[4] >> 5 & 1, head[4] >> 6
        at += 6 - single + (0, 1, 2, 4)[head[4] & 3] + (single, 2, 4, 8)[width]
        last = 0
        for _ in range(MOST_BLOCKS):
            file.seek(at)
            block = int.from_bytes(file.read(3), "little")
            last, kind = block & 1, block >> 1 & 3
            at += 3 + (1 if kind == 1 else block >> 3)
            if last or at > size:
                break
        at += 4 if head[4] & 4 else 0
        if not last:
            return at > size
    return False


def _gz_is_cut(file: BinaryIO) -> bool:
    """By unpacking it: gzip says nowhere how long it is."""
    unpack, made = zlib.decompressobj(31), 0
    try:
        for block in iter(lambda: file.read(1 << 20), b""):
            while block and made < MOST_MODULE:
                made += len(unpack.decompress(block, 1 << 20))
                block = unpack.unconsumed_tail
    except zlib.error:
        return True
    return not unpack.eof and made < MOST_MODULE


def _size(root: Path, path: str) -> Optional[int]:
    try:
        return (root / path.lstrip("/")).stat().st_size
    except OSError:
        return None


# ---------------------------------------------------------------- without the agent

LIBRARIES = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64")
TREE = Path("/var/lib/dkms")
SECURE_BOOT = Path(f"{VARIABLES}/SecureBoot-{FIRMWARE_VENDOR}")
# Keys that DKMS signs modules with. On Ubuntu the package shim-signed makes it (update-secureboot-policy --new-key).
MOK_OF_UBUNTU = "/var/lib/shim-signed/mok/MOK.der"
MOK_OF_DKMS = "/var/lib/dkms/mok.pub"  # everywhere else; DKMS makes it
DKMS_SETTINGS = Path("/etc/dkms")
NAMED = re.compile(r"""^mok_certificate=["']?(/[A-Za-z0-9._+/-]{1,250})["']?\s*$""", re.MULTILINE)
MOST_SETTINGS = 8


def of_restart(answer: Answer, run: Callable[..., str], *, driver: bool = True) -> List[Fault]:
    """What speaks against a restart, as `drift` says it: of the machine, and where it has one of the driver."""
    if answer.problem and answer.reason != "not_installed":
        return [Fault(NOT_UNDERSTOOD, answer.problem)]

    def built_for(path: Path) -> str:
        return "".join(run("modinfo", "-F", "vermagic", str(path)).split()[:1])

    found = list(faults(answer, built_for=built_for))
    if not driver:
        return [fault for fault in found if fault.kind in BOOTS]
    return found + of_driver(answer.kernel, run) + (kept_out(run) if library_version() else [])


def kept_out(run: Callable[..., str], root: Path = Path("/")) -> List[Fault]:
    """Lines of modprobe.d that keep the module out.

    modprobe prints those of this boot's command line with them: they are left out, the next boot has its own.
    """
    found = KEEPING_OUT.findall(run("modprobe", "--showconfig"))
    now = (Tree(root).read("/proc/cmdline", 1 << 16) or b"").decode("utf-8", "replace")
    told = {module.replace("-", "_") for names in BLACKLISTS.findall(now) for module in names.split(",")}
    lines = [
        line for line in found if not (line.startswith("blacklist ") and line.split()[1].replace("-", "_") in told)
    ]
    return [Fault(KEPT_OUT, line[:200]) for line in dict.fromkeys(lines)][:4]


def of_driver(kernel: str, run: Callable[..., str], root: Path = Path("/")) -> List[Fault]:
    """What is wrong with the version and the signature of the module for `kernel`: the agent has findings of its own.

    [] without the driver's libraries: nothing can be lost then. `run(*words)` is a program's output.
    """
    library = library_version(root)
    if not kernel or not library:
        return []
    folder = root / "lib/modules" / kernel
    there = _listed(folder)
    if not there:
        return [] if module_files(folder) else [Fault(ABSENT, "")]  # else it is UNLISTED
    told = {path: run("modinfo", str(folder / path)) for path in there}
    fields = {path: dict(line.partition(":")[::2] for line in text.splitlines()) for path, text in told.items()}
    versions = {path: found.get("version", "").strip() for path, found in fields.items()}
    if library not in versions.values():
        return [Fault(OTHER, next(iter(versions.values())) or "that cannot be read")]
    if not secure_boot(root):
        return []
    loaded = [path for path in there if versions[path] == library]
    unsigned = [path for path in loaded if "sig_id" not in fields[path]]
    keys = {fields[path].get("sig_key", "").replace(":", "").strip().lstrip("0").upper() for path in loaded} - {""}
    refused = [path for path in certificates(root) if _serial(path, run) in keys and _refused(path, run)]
    return [Fault(UNSIGNED, f"/lib/modules/{kernel}/{path}") for path in unsigned] + [
        Fault(UNENROLLED, path) for path in refused
    ]


def certificates(root: Path = Path("/")) -> List[str]:
    """Paths of the certificates that DKMS signs for: its own, Ubuntu's, and those that its settings name."""
    return list(dict.fromkeys([MOK_OF_DKMS, MOK_OF_UBUNTU, *configured(root / str(DKMS_SETTINGS).lstrip("/"))]))


def configured(folder: Path) -> List[str]:
    """Paths of certificates in DKMS's settings; values that a shell would have to expand are ignored."""
    files = ["/framework.conf"]
    found: List[str] = []
    tree = Tree(folder)
    try:
        files += [f"/framework.conf.d/{name}" for name in tree.names("/framework.conf.d") if name.endswith(".conf")]
        for file in files[: MOST_SETTINGS + 1]:
            found += NAMED.findall((tree.read(file, 1 << 16) or b"").decode("utf-8", "replace"))
    except Unreadable:
        pass  # only root asks before a restart; for the agent it is then as if nothing were configured
    return found[:MOST_SETTINGS]


def _serial(path: str, run: Callable[..., str]) -> str:
    """The serial number of a certificate, which is what a module's signature names; "?" without one."""
    for form in ("DER", "PEM"):
        said = run("openssl", "x509", "-noout", "-serial", "-inform", form, "-in", path)
        if said.startswith("serial="):
            return said[7:].strip().lstrip("0").upper()
    return "?"


def _refused(path: str, run: Callable[..., str]) -> bool:
    return enrolled(run("mokutil", "--test-key", path)) is False


def enrolled(said: str) -> Optional[bool]:
    """Whether a key is enrolled, by mokutil's text: one exit code means both "enrolled" and "error". None: unknown."""
    if re.search(r"is not enrolled|enrollment request|is blocked|CA blocked", said):
        return False
    return True if re.search(r"already enrolled|CA enrolled|already in db", said) else None


def library_version(root: Path = Path("/")) -> str:
    """The driver's version in the name behind libnvidia-ml.so.1; "" without it."""
    for folder in LIBRARIES:
        path = root / folder.lstrip("/") / "libnvidia-ml.so.1"
        match = re.search(r"\.so\.(\d+\.\d+(?:\.\d+)*)$", os.path.realpath(str(path)))
        if match and path.exists():
            return match[1]
    return ""


def secure_boot(root: Path = Path("/")) -> bool:
    """Whether Secure Boot is on, by the firmware's variable: 4 bytes of attributes, then 1 if it is on.

    Raises OSError if it may not be read.
    """
    try:
        return (root / str(SECURE_BOOT).lstrip("/")).read_bytes()[-1:] == b"\x01"
    except (FileNotFoundError, NotADirectoryError):
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
        FOREIGN: f"the module {what} is built for another kernel, and this one refuses it: the GPU would be gone",
        UNSIGNED: f"Secure Boot is on and {what} is not signed: the GPU would be gone",
        UNENROLLED: f"Secure Boot is on, and {what}, for which its module is signed, is not enrolled: the GPU would be"
                    " gone",
        KEPT_OUT: f"modprobe is told `{what}`, which keeps NVIDIA's module out: the GPU would be gone",
        NOT_UNDERSTOOD: f"nobody can tell which kernel the next boot starts: {what}",
    }[fault.kind]  # fmt: skip
    repair = command(fault, kernel, apt=apt, dkms=dkms, loader=loader)
    return f"kernel {name}, which the next boot starts: {sentence}" if name else sentence, repair


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
    if fault.kind == NOT_UNDERSTOOD:
        return "if you know that it is the right one, restart the machine yourself, then run this again"
    if fault.kind == KEPT_OUT:
        folders = "/etc/modprobe.d /run/modprobe.d /usr/lib/modprobe.d"
        return f"sudo grep -rE '^ *(blacklist|install) +nvidia' {folders} # take that line out of its file"
    if fault.kind == UNENROLLED:
        return f"sudo mokutil --import {shlex.quote(fault.what)}, then restart and confirm it at the machine's console"
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
