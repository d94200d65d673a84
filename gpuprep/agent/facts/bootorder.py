"""Which kernel does the next boot start, which file and setting say so, and which kernel is the fallback?

GRUB (its grub.cfg with the environment block, entries of the Boot Loader Specification), systemd-boot, and a kernel
that is loaded with kexec. What cannot be understood has a problem and no kernel: a guess is never an answer.
Stdlib only and without gpuprep's other modules but grubscript, Python 3.9 or newer: the collection's modules have both
by links, and simulated machines start the kernel that this names.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import struct
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import Callable, Dict, List, Optional, Sequence, Tuple

from . import grubscript  # relative: the collection has both files in one folder, too
from .grubscript import Entry, NotUnderstood

MOST_ENTRY = 64 * 1024  # bytes of one entry
MOST_FILES = 200  # entries of a folder
MOST_NAMES = 20_000  # of a folder that are looked at
GRUB_FOLDERS = ("/boot/grub", "/boot/grub2")
FIRMWARE = "/boot/efi/EFI"  # Enterprise Linux 8 with EFI keeps the whole grub.cfg there
BLS = "/boot/loader/entries"
PARTITIONS = ("/efi", "/boot/efi", "/boot")  # where systemd-boot's partition is mounted
EFI = "/sys/firmware/efi"
VARIABLES = EFI + "/efivars"
LOADER_VENDOR = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
FIRMWARE_VENDOR = "8be4df61-93ca-11d2-aa0d-00e098032b8c"
KEXEC = "/sys/kernel/kexec_loaded"  # not kexec_crash_loaded, kdump's
RELEASE = re.compile(r"\d[\w.+~^-]{1,100}")
NAMED = re.compile(r"(?:vmlinuz|vmlinux|kernel|linux)-(\d[\w.+~^-]{1,100})")
GRUB, SYSTEMD_BOOT, NONE = "GRUB", "systemd-boot", "none"
NEWEST = "no boot loader was found: the newest kernel in /boot counts"


class Unreadable(Exception):
    """A file is there and may not be read; `reason` is that of a missing fact."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


@dataclass(frozen=True)
class Answer:
    loader: str
    setting: str  # what decides, and in which file
    kernel: str = ""  # its release; "" if it is not known, and then `problem` says why
    title: str = ""
    image: str = ""  # path of the kernel on this system
    initrds: Tuple[str, ...] = ()
    options: str = ""
    once: bool = False  # chosen for one boot
    fallback: str = ""  # the release to start if this one fails; "" without another kernel
    problem: str = ""
    reason: str = ""  # of the problem, as in a missing fact


class Tree:
    """The files of a system below `root`. A simulated machine's disk has another reader of the same methods."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root

    def read(self, path: str, most: int) -> Optional[bytes]:
        """The first `most` bytes of a regular file; None if there is none."""
        try:
            descriptor = os.open(str(self.root) + path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM):
                raise Unreadable("no_permission", f"{path} may not be read") from error
            return None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            return None
        with open(descriptor, "rb") as file:
            return file.read(most)

    def names(self, path: str) -> List[str]:
        try:
            with os.scandir(str(self.root) + path) as listing:
                return sorted(entry.name for entry in islice(listing, MOST_NAMES))
        except PermissionError as error:
            raise Unreadable("no_permission", f"{path} may not be read") from error
        except OSError:
            return []

    def target(self, path: str) -> str:
        """The path behind a link, itself for a file; "" if it is not there."""
        full = os.path.realpath(str(self.root) + path)
        base = os.path.realpath(str(self.root)).rstrip("/")
        return full[len(base) :] if Path(full).is_file() and full.startswith(base + "/") else ""


def next_boot(tree: Tree, grubby: Callable[[], str] = lambda: "") -> Answer:
    """What the next boot starts. `grubby` answers as `grubby --default-kernel`, "" where there is none."""
    loader, setting = NONE, NEWEST
    try:
        return _read(tree, grubby)
    except NotUnderstood as error:
        problem, reason = str(error), "unparsable"
    except Unreadable as error:
        problem, reason = str(error), error.reason
    except (RecursionError, MemoryError):
        problem, reason = "the boot loader's files are nested without an end", "unparsable"
    if found := _grub_file(tree, quiet=True):
        loader, setting = GRUB, found
    elif _systemd_partition(tree):
        loader, setting = SYSTEMD_BOOT, "loader.conf"
    return Answer(loader, setting, problem=problem, reason=reason)


def _read(tree: Tree, grubby: Callable[[], str]) -> Answer:
    if (tree.read(KEXEC, 8) or b"").strip() == b"1":
        raise NotUnderstood(
            "a kernel is loaded with kexec, which the next restart may start; nothing says which kernel it is"
            " (`sudo kexec -u` unloads it)"
        )
    _firmware(tree)
    if "systemd-boot" in _variable(tree, "LoaderInfo"):
        return _systemd_boot(tree, _systemd_partition(tree))
    if path := _grub_file(tree):
        return _grub(tree, path, grubby)
    if partition := _systemd_partition(tree):
        return _systemd_boot(tree, partition)
    entries = _bls(tree, BLS)
    if entries:  # as on machines whose firmware or host reads the entries itself
        return _of_menu(tree, grubscript.Menu(entries, dict(_environment(tree))), BLS, "saved_entry")
    return _newest(tree, grubby)


# ---------------------------------------------------------------- no boot loader


def _newest(tree: Tree, grubby: Callable[[], str]) -> Answer:
    there = kernels(tree)
    named = grubby().strip().rpartition("/vmlinuz-")[2]
    if named in there:
        others = [name for name in there if name != named]
        return _with_image(tree, Answer(NONE, "grubby --default-kernel", named, fallback=(others or [""])[0]))
    if not there:
        return Answer(NONE, NEWEST, problem="there is no kernel in /boot", reason="not_installed")
    return _with_image(tree, Answer(NONE, NEWEST, there[0], fallback=(there[1:] or [""])[0]))


def _with_image(tree: Tree, answer: Answer) -> Answer:
    image = f"/boot/vmlinuz-{answer.kernel}"
    places = (f"/boot/initrd.img-{answer.kernel}", f"/boot/initramfs-{answer.kernel}.img")
    return replace(answer, image=image, initrds=tuple(place for place in places if tree.target(place))[:1])


def kernels(tree: Tree) -> List[str]:
    """The releases of the kernels in /boot, the newest first."""
    names = [name[len("vmlinuz-") :] for name in tree.names("/boot") if name.startswith("vmlinuz-")]
    return sorted(
        (name for name in names if "rescue" not in name and RELEASE.fullmatch(name)), key=version_order, reverse=True
    )


def version_order(text: str) -> Tuple[Tuple[float, int, str], ...]:
    """Sort key as rpm, systemd and GRUB's blscfg compare versions: numbers by value, `~` before the end."""
    key: List[Tuple[float, int, str]] = []
    for digits, letters, sign in re.findall(r"(\d+)|([A-Za-z]+)|([~^])", text[:400]):
        key.append(
            (2, int(digits), "") if digits else (1, 0, letters) if letters else (-1 if sign == "~" else 0.5, 0, "")
        )
    return (*key, (0, 0, ""))


# ---------------------------------------------------------------- firmware


def _variable(tree: Tree, name: str, vendor: str = LOADER_VENDOR) -> str:
    """The text of a variable of the firmware: 4 bytes of attributes, then UTF-16."""
    content = tree.read(f"{VARIABLES}/{name}-{vendor}", 4096) or b""
    return content[4:].decode("utf-16-le", "replace").rstrip("\0")


def _firmware(tree: Tree) -> None:
    """Raises if the firmware starts another of its entries once."""
    once = (tree.read(f"{VARIABLES}/BootNext-{FIRMWARE_VENDOR}", 64) or b"")[4:6]
    usual = (tree.read(f"{VARIABLES}/BootCurrent-{FIRMWARE_VENDOR}", 64) or b"")[4:6]
    if len(once) == 2 and once != usual:
        number = int.from_bytes(once, "little")
        raise NotUnderstood(
            f"the firmware starts its entry {number:04X} at the next boot (BootNext), not this system's boot loader;"
            " `sudo efibootmgr -N` takes that back"
        )


# ---------------------------------------------------------------- GRUB


def _grub_file(tree: Tree, *, quiet: bool = False) -> str:
    found = [f"{folder}/grub.cfg" for folder in GRUB_FOLDERS if _is_there(tree, f"{folder}/grub.cfg")]
    try:
        if tree.names(EFI):
            for name in tree.names(FIRMWARE)[:20]:
                text = tree.read(f"{FIRMWARE}/{name}/grub.cfg", grubscript.MOST_TEXT) or b""
                if b"menuentry" in text or b"blscfg" in text:  # a file that only reads /boot's has neither
                    return f"{FIRMWARE}/{name}/grub.cfg"
    except Unreadable:
        if not quiet and not found:
            raise
    if len(found) > 1 and not quiet:
        raise NotUnderstood(f"there are {' and '.join(found)}, and nothing says which one GRUB reads")
    return found[0] if found else ""


def _is_there(tree: Tree, path: str) -> bool:
    return path.rpartition("/")[2] in tree.names(path.rpartition("/")[0])


def _text(tree: Tree, path: str) -> Optional[str]:
    content = tree.read(path, grubscript.MOST_TEXT + 1)
    if content is not None and len(content) > grubscript.MOST_TEXT:
        raise NotUnderstood(f"{path} is larger than {grubscript.MOST_TEXT >> 20} MiB")
    return None if content is None else content.decode("utf-8", "replace").replace("\0", " ")


def _environment(tree: Tree, folders: Sequence[str] = GRUB_FOLDERS) -> Dict[str, str]:
    for folder in folders:
        text = _text(tree, f"{folder}/grubenv")
        if text is not None:
            return grubscript.environment(text)
    return {}


def _grub(tree: Tree, path: str, grubby: Callable[[], str]) -> Answer:
    folder = path.rpartition("/")[0]
    platform = "efi" if tree.names(EFI) else "pc"
    try:
        menu = grubscript.Reader(lambda one: _text(tree, one), folder, platform).run(path)
    except NotUnderstood as error:
        raise NotUnderstood(f"{path}: {error}") from error
    if menu.wants_bls:
        menu.entries[menu.bls_at : menu.bls_at] = _bls(tree, BLS, menu.variables)
    saved = _environment(tree, (folder,))
    default = menu.variables.get("default", "")
    if default is None:
        raise NotUnderstood(f"{path}: which entry is the default depends on what only GRUB knows")
    once = bool(saved.get("next_entry")) and default == saved["next_entry"]
    name = "next_entry" if once else "saved_entry" if default and default == saved.get("saved_entry") else ""
    answer = _of_menu(tree, menu, path, name, f"{folder}/grubenv")
    named = "" if once else grubby().strip().rpartition("/vmlinuz-")[2]
    if menu.wants_bls and named and RELEASE.fullmatch(named) and named != answer.kernel:
        raise NotUnderstood(f"{path} starts kernel {answer.kernel}, and grubby says {named}")
    return answer


def _of_menu(tree: Tree, menu: grubscript.Menu, path: str, name: str, environment: str = "grubenv") -> Answer:
    default = menu.variables.get("saved_entry" if path == BLS else "default") or ""
    try:
        entry = grubscript.chosen(menu.entries, default)
    except NotUnderstood as error:
        raise NotUnderstood(f"{path}: {error}") from error
    setting = f"{name}={default} in {environment}" if name and default else f'default="{default or 0}" in {path}'
    if entry.file:
        setting += f", {entry.file}"
    if not entry.linux:
        raise NotUnderstood(
            f"{path}: the default entry {entry.title!r:.80} starts no Linux kernel that this file names"
        )
    kernel, image = release(tree, entry.linux)
    others = [one for one in grubscript.flattened(menu.entries) if one.linux and "rescue" not in one.linux]
    wish = menu.variables.get("fallback") or ""
    if wish:
        others.insert(0, grubscript.chosen(menu.entries, wish.split()[0]))
    return Answer(
        GRUB, setting, kernel, entry.title, image, tuple(_on_system(tree, one) for one in entry.initrds),
        entry.options, once=name == "next_entry", fallback=_fallback(others, kernel),
    )  # fmt: skip


def _fallback(others: Sequence[Entry], kernel: str) -> str:
    """The first other kernel of the menu whose name tells its release."""
    for one in others:
        match = NAMED.fullmatch(one.linux.rpartition("/")[2])
        if match and match[1] != kernel:
            return match[1]
    return ""


def _on_system(tree: Tree, path: str) -> str:
    """A path as the boot loader writes it ─► on the running system: /boot may be a disk or a subvolume of its own."""
    path = _ordinary(re.sub(r"^\([^)]*\)", "", path))
    if ".." in path.split("/"):
        raise NotUnderstood(f"the path {path!r:.80} leads out of its folder")
    inside = path[path.find("/boot/") :] if "/boot/" in path else ""
    places = [place for place in (inside, *(f"{part}{path}" for part in ("/boot", "/efi", "/boot/efi"))) if place]
    return next((place for place in places if tree.target(place)), places[0])


def _ordinary(path: str) -> str:
    if not re.fullmatch(r"[\x20-\x7e]{1,1000}", path):
        raise NotUnderstood(f"{path!r:.80} is no path that a boot loader has")
    return path


def release(tree: Tree, path: str) -> Tuple[str, str]:
    """(the release of a kernel by the boot loader's path of it, its path on this system)."""
    image = _on_system(tree, path)
    for name in (image.rpartition("/")[2], tree.target(image).rpartition("/")[2]):
        match = NAMED.fullmatch(name)
        if match:
            return match[1], image
    folder = image.rpartition("/")[0].rpartition("/")[2]
    if image.endswith(("/linux", "/vmlinuz")) and RELEASE.fullmatch(folder):  # systemd's /<machine>/<release>/linux
        return folder, image
    content = tree.read(image, 64 * 1024)
    if content is None:
        raise NotUnderstood(f"the kernel {image} is not there, and its name does not tell its release")
    found = _of_image(tree, image, content)
    if not found:
        raise NotUnderstood(f"neither the name nor the content of {image} tells its release")
    return found, image


def _of_image(tree: Tree, image: str, content: bytes) -> str:
    """The release inside of a kernel: x86's header has its place, a unified image a section .uname."""
    if content[:2] == b"MZ" and image.endswith(".efi"):
        return _section(tree, image, content, b".uname")
    if content[0x202:0x206] == b"HdrS":
        at = struct.unpack_from("<H", content, 0x20E)[0] + 0x200
        text = content[at : at + 120].split(b"\0")[0].split(b" ")[0].decode("ascii", "replace")
        return text if RELEASE.fullmatch(text) else ""
    return ""


def _section(tree: Tree, image: str, content: bytes, wanted: bytes) -> str:
    """The text of a section of a unified image (PE)."""
    try:
        head = struct.unpack_from("<I", content, 0x3C)[0]
        count, optional = (
            struct.unpack_from("<H", content, head + 6)[0],
            struct.unpack_from("<H", content, head + 20)[0],
        )
        for number in range(min(count, 96)):
            at = head + 24 + optional + 40 * number
            size, _, length, place = struct.unpack_from("<IIII", content, at + 8)
            if content[at : at + 8].rstrip(b"\0") == wanted and place < 1 << 28:
                whole = tree.read(image, place + min(size, length, 4096)) or b""
                return whole[place : place + min(size, length, 4096)].rstrip(b"\0\n ").decode("utf-8", "replace")
    except struct.error:
        pass
    return ""


# ---------------------------------------------------------------- entries of the Boot Loader Specification


def _bls(tree: Tree, folder: str, variables: Optional[Dict[str, Optional[str]]] = None) -> List[Entry]:
    """The entries in GRUB's order: by name, version and release of the file's name, the newest first."""
    names = [name for name in tree.names(folder) if name.endswith(".conf") and not name.startswith(".")]
    if len(names) > MOST_FILES:
        raise NotUnderstood(f"{folder} has more than {MOST_FILES} entries")
    entries = []
    for name in sorted(names, key=_grub_order, reverse=True):
        entry, _ = _type1(tree, folder, name, variables or {})
        if entry.linux:
            entries.append(replace(entry, id=name[: -len(".conf")]))
    return entries


def _grub_order(name: str) -> Tuple[object, ...]:
    parts = name[: -len(".conf")].rsplit("-", 2)
    return tuple(version_order(part) for part in ([""] * (3 - len(parts)) + parts))


def _type1(tree: Tree, folder: str, name: str, variables: Dict[str, Optional[str]]) -> Tuple[Entry, Dict[str, str]]:
    content = tree.read(f"{folder}/{name}", MOST_ENTRY + 1)
    if content is None:
        return Entry("", name), {}
    if len(content) > MOST_ENTRY:
        raise NotUnderstood(f"{folder}/{name} is larger than {MOST_ENTRY >> 10} KiB")
    fields: Dict[str, str] = {}
    for line in content.decode("utf-8", "replace").splitlines():
        key, _, value = line.strip().partition(" ") if " " in line.strip() else line.strip().partition("\t")
        value = value.strip()
        if key in ("initrd", "options") and key in fields:
            fields[key] += " " + value
        elif key and not key.startswith("#"):
            fields[key] = value
    options = re.sub(r"\$(\w+)", lambda match: variables.get(match[1]) or "", fields.get("options", "")[:MOST_ENTRY])
    initrds = tuple(word for word in fields.get("initrd", "").split() if not word.startswith("$"))
    linux = fields.get("linux") or fields.get("efi") or fields.get("uki") or ""
    return Entry(fields.get("title", name), name, None, linux, initrds, options, file=f"{folder}/{name}"), fields


# ---------------------------------------------------------------- systemd-boot


@dataclass
class _Listed:
    id: str
    file: str
    entry: Entry
    key: str = ""  # sort-key
    machine: str = ""
    version: str = ""
    tries: Optional[int] = None  # None: not counted; 0: all were used up
    fields: Dict[str, str] = field(default_factory=dict)


_COUNTED = re.compile(r"(.+)\+(\d{1,4})(?:-\d{1,4})?(\.conf|\.efi)")


def _systemd_partition(tree: Tree) -> str:
    for part in PARTITIONS:
        try:
            if _is_there(tree, f"{part}/loader/loader.conf") or any(
                name.startswith("systemd-boot") for name in tree.names(f"{part}/EFI/systemd")
            ):
                return part
        except Unreadable:
            continue
    return ""


def _systemd_boot(tree: Tree, partition: str) -> Answer:
    if not partition:
        raise NotUnderstood(
            "systemd-boot started this system, and its partition is not mounted at /efi, /boot or /boot/efi"
        )
    listed = _listed(tree, partition)
    if not listed:
        raise NotUnderstood(f"systemd-boot has no entries in {partition}/loader/entries and {partition}/EFI/Linux")
    chosen, setting = _systemd_default(tree, partition, listed)
    once = setting.startswith("LoaderEntryOneShot")
    kernel, image = _systemd_release(tree, chosen)
    others = [_systemd_release(tree, one)[0] for one in listed if one is not chosen and one.tries != 0][:8]
    options = chosen.entry.options
    if chosen.file.endswith(".efi"):
        content = tree.read(image, 64 * 1024) or b""
        options = _section(tree, image, content, b".cmdline")
    return Answer(
        SYSTEMD_BOOT, setting, kernel, chosen.entry.title, image,
        tuple(_on_system(tree, one) for one in chosen.entry.initrds), options, once=once,
        fallback=next((other for other in others if other != kernel), ""),
    )  # fmt: skip


def _systemd_release(tree: Tree, one: _Listed) -> Tuple[str, str]:
    """The release by the entry's version where it is a kernel's, else by its image."""
    if _ordinary(one.file).endswith(".efi"):
        content = tree.read(one.file, 64 * 1024) or b""
        found = _of_image(tree, one.file, content) or one.version
        if not RELEASE.fullmatch(found):
            raise NotUnderstood(f"neither the name nor the content of {one.file} tells its release")
        return found, one.file
    try:
        return release(tree, one.entry.linux)
    except NotUnderstood:
        if RELEASE.fullmatch(one.version):
            return one.version, _on_system(tree, one.entry.linux)
        raise


def _listed(tree: Tree, partition: str) -> List[_Listed]:
    found = []
    for folder in dict.fromkeys((f"{partition}/loader/entries", BLS)):
        names = [name for name in tree.names(folder) if name.endswith(".conf") and not name.startswith(".")]
        if len(names) > MOST_FILES:
            raise NotUnderstood(f"{folder} has more than {MOST_FILES} entries")
        for name in names:
            entry, fields = _type1(tree, folder, name, {})
            if entry.linux:
                own, tries = _counted(name)
                keys = (fields.get("sort-key", ""), fields.get("machine-id", ""), fields.get("version", ""))
                found.append(_Listed(own, f"{folder}/{name}", entry, *keys, tries, fields))
    for part in dict.fromkeys((partition, "/boot")):
        names = [name for name in tree.names(f"{part}/EFI/Linux") if name.endswith(".efi")]
        for name in names[:MOST_FILES]:
            own, tries = _counted(name)
            version = own[: -len(".efi")].partition("-")[2]
            path = f"{part}/EFI/Linux/{name}"
            found.append(_Listed(own, path, Entry(own, own, linux=path), version=version, tries=tries))
    # Those without tries left last; then those with a sort-key; systemd-boot compares in this order.
    ordered = sorted(found, key=lambda one: version_order(one.id), reverse=True)
    ordered.sort(key=lambda one: version_order(one.version), reverse=True)
    ordered.sort(key=lambda one: (one.tries == 0, not one.key, one.key, one.machine))
    return ordered


def _counted(name: str) -> Tuple[str, Optional[int]]:
    match = _COUNTED.fullmatch(name)
    return (match[1] + match[3], int(match[2])) if match else (name, None)


def _systemd_default(tree: Tree, partition: str, listed: List[_Listed]) -> Tuple[_Listed, str]:
    conf = f"{partition}/loader/loader.conf"
    text = (tree.read(conf, MOST_ENTRY) or b"").decode("utf-8", "replace")
    lines = [line.split(None, 1) for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    pattern = next((line[1].strip() for line in reversed(lines) if line[0] == "default" and len(line) > 1), "")
    wishes = [
        (f"{name} of the firmware", _variable(tree, name)) for name in ("LoaderEntryOneShot", "LoaderEntryDefault")
    ]
    wishes.append((f"default in {conf}", pattern))
    for setting, wish in wishes:
        if wish == "@saved":
            setting, wish = "LoaderEntryLastBooted of the firmware", _variable(tree, "LoaderEntryLastBooted")
        if not wish:
            continue
        if len(wish) > 256 or wish.count("*") > 8:
            raise NotUnderstood(f"{setting} is no name of an entry")
        for one in listed:
            if fnmatchcase(one.id.lower(), wish.lower()):
                return one, f"{setting} ({wish})"
        if wish.startswith("auto-"):
            raise NotUnderstood(f"{setting} is {wish}, an entry that systemd-boot makes itself")
    return listed[0], f"the first entry in {partition}/loader"
