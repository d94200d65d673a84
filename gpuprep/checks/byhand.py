"""What only the user can put right, in words: which line of which file is in the way, and of which package it is.

gpuprep changes only its own files. A finding on another file says exactly what to change there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from gpuprep.records import ConfigLine, Missing, ModprobeLine, Package, Snapshot
from gpuprep.untrusted.plaintext import command, one_line

COMMAND_LINE = "/proc/cmdline"
OF_THE_SYSTEM = ("/bin", "/sbin", "/usr/bin", "/usr/sbin")
LOADER_USUAL = ("/lib", "/usr/lib", "/usr/local/lib")  # and their 64-bit folders
ASIDE = ".off"  # no program and no unit reads a file with this ending
MOST = 5  # steps that a remedy names


def owned(snapshot: Snapshot, path: str) -> str:
    """ "/etc/modprobe.d/zz.conf, which belongs to no package"."""
    owner = snapshot.owners.get(path, Missing("not_read"))
    if isinstance(owner, Missing):
        ask = command("dpkg", "-S", path) if snapshot.apt is not None else command("rpm", "-qf", path)
        return f"{one_line(path)} (`{ask}` names its package)"
    return f"{one_line(path)}, which belongs to {f'package {one_line(owner)}' if owner else 'no package'}"


def without(snapshot: Snapshot, path: str, line: str) -> str:
    """How to remove a line from a file. A package's file below /usr is hidden: the package's next version would restore
    it.
    """
    if path == COMMAND_LINE:
        return (
            f"remove `{one_line(line)}` from the kernel's command line (GRUB_CMDLINE_LINUX in /etc/default/grub, then"
            f" `{'sudo update-grub' if snapshot.apt is not None else 'sudo grub2-mkconfig -o /boot/grub2/grub.cfg'}`)"
        )
    name = path.rpartition("/")[2]
    if snapshot.owners.get(path) and path.startswith(("/usr/lib/modprobe.d/", "/lib/modprobe.d/")):
        copy = command("sudo", "cp", path, f"/etc/modprobe.d/{name}")
        return f"`{copy}` hides {owned(snapshot, path)}; remove the line `{one_line(line)}` from /etc/modprobe.d/{name}"
    return f"remove the line `{one_line(line)}` from {owned(snapshot, path)}"


def aside(snapshot: Snapshot, path: str) -> str:
    """The command that moves a file away, or removes its package."""
    owner = snapshot.owners.get(path)
    if isinstance(owner, str):
        verb = ("apt-get", "remove") if snapshot.apt is not None else ("dnf", "remove")
        return f"{owned(snapshot, path)}: `{command('sudo', *verb, owner)}`, if nobody needs it"
    return f"{owned(snapshot, path)}: `{command('sudo', 'mv', path, path + ASIDE)}`"


def drop_in_aside(snapshot: Snapshot, paths: Sequence[str]) -> str:
    """The same for files of systemd's units, which systemd then reads again."""
    return "; ".join([*(aside(snapshot, path) for path in paths), "then `sudo systemctl daemon-reload`"])


def first_on_path(snapshot: Snapshot, path: str, wanted: str) -> str:
    """How to make a login find `wanted` before the program `path`: its folder comes later on PATH, or is not on it; ""
    if its folder comes first.
    """
    folder, own = path.rpartition("/")[0], wanted.rpartition("/")[0]
    search = snapshot.shells.login_path
    folders = search.split(":") if isinstance(search, str) else []
    if folder not in folders or (own in folders and folders.index(folder) >= folders.index(own)):
        return ""
    return in_the_way(snapshot, path, own)


def in_the_way(snapshot: Snapshot, path: str, own: str) -> str:
    """What to do about a program that is found before the one in the folder `own`."""
    folder = path.rpartition("/")[0]
    setting = [line for line in _lines(snapshot, folder, "PATH") if own not in line.folders]
    if folder in OF_THE_SYSTEM:
        return f"put {own} before {folder} on PATH: see /etc/profile and /etc/environment"
    return _without_folder(snapshot, setting[-1], folder) if setting else aside(snapshot, path)


def off_the_loader(snapshot: Snapshot, paths: Sequence[str]) -> str:
    """How to make the loader ignore these libraries; "" if no file is known that names their folders."""
    steps: list[str] = []
    renew = False
    for path in paths:
        folder = path.rpartition("/")[0]
        listed = [line for line in _lines(snapshot, folder) if line.file.startswith("/etc/ld.so.conf")]
        exported = _lines(snapshot, folder, "LD_LIBRARY_PATH")
        usual = folder.startswith(LOADER_USUAL)  # shared by many programs: its other libraries stay
        renew = renew or usual or bool(listed)
        steps += [_off_usual(snapshot, path)] if usual else [without(snapshot, line.file, line.line) for line in listed]
        steps += [_without_folder(snapshot, line, folder) for line in exported]
    steps = list(dict.fromkeys(steps))[:MOST]
    return ", then ".join([*steps, "`sudo ldconfig`"] if renew else steps)


def _off_usual(snapshot: Snapshot, path: str) -> str:
    """ldconfig uses a library under any file name, so a file that no package owns is moved to another folder."""
    if snapshot.owners.get(path, "") is not None:
        return aside(snapshot, path)
    return f"{owned(snapshot, path)}: `{command('sudo', 'mv', path, '/root/')}`"


def _lines(snapshot: Snapshot, folder: str, variable: str = "") -> list[ConfigLine]:
    """Lines that name the folder; with `variable` those that set it."""
    lines = () if isinstance(snapshot.config_lines, Missing) else snapshot.config_lines
    sets = re.compile(rf"(?<!\w){variable}\+?=" if variable else "")
    return [line for line in lines if folder in line.folders and sets.search(line.line)]


def _without_folder(snapshot: Snapshot, line: ConfigLine, folder: str) -> str:
    """Remove the whole line if it names only this folder."""
    if any(other != folder and other in line.line for other in line.folders) and folder in line.line:
        return f"remove `{one_line(folder)}` from the line `{one_line(line.line)}` of {owned(snapshot, line.file)}"
    return without(snapshot, line.file, line.line)


def option_out(snapshot: Snapshot, line: ModprobeLine, key: str = "") -> str:
    """How to disable a line of modprobe's files; of several options in one line, remove only `key`."""
    text = line.text or " ".join(line.words)
    pairs = [word for word in line.words[2:] if word.partition("=")[0] == key]
    if pairs and len(line.words) > 3 and line.file != COMMAND_LINE:
        return f"remove `{one_line(pairs[-1])}` from the line `{one_line(text)}` of {owned(snapshot, line.file)}"
    return without(snapshot, line.file, text)


def installed_again(snapshot: Snapshot, packages: Mapping[str, Package], *, same: bool) -> str:
    """The command that installs exactly these versions, and holds again what was held, also where it failed. `same`:
    they are installed."""
    if snapshot.apt is None:
        names = [f"{name}-{package.version}" for name, package in packages.items()]
        return f"`{command('sudo', 'dnf', 'reinstall' if same else 'install', *names)}`"
    held = [name for name, package in packages.items() if package.held]
    hold = f"; {command('sudo', 'apt-mark', 'hold', *held)}" if held else ""
    options = ("--reinstall", "--allow-change-held-packages") if same else (
        "--allow-downgrades", "--allow-change-held-packages",
    )  # fmt: skip
    names = [f"{name}={package.version}" for name, package in packages.items()]
    return f"`{command('sudo', 'apt-get', 'install', *options, *names)}{hold}`"


def reinstalled(snapshot: Snapshot, package: str) -> str:
    """The command that brings back a file that was taken out of an installed package, which nobody holds."""
    verb = ("apt-get", "install", "--reinstall") if snapshot.apt is not None else ("dnf", "reinstall")
    return f"`{command('sudo', *verb, package)}`"
