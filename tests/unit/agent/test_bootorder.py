"""Which kernel the next boot starts: files of a boot loader in, kernel and the deciding setting out."""

from __future__ import annotations

import os
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path

import boottrees
import pytest
from boottrees import EL_NEW, EL_OLD, IDS, MACHINE, NEW, OLD, Files

from gpuprep import records
from gpuprep.agent.facts import bootorder, osfacts


@dataclass(frozen=True)
class Case:
    name: str
    files: Files
    kernel: str = ""
    setting: str = ""  # a part of it
    fallback: str | None = None
    problem: str = ""  # a part of it, where no kernel is known
    grubby: str = ""
    once: bool = False
    options: str | None = field(default=None)


def grub(text: str, **more: str | bytes) -> Files:
    return {"/boot/grub/grub.cfg": text, **boottrees.kernels(NEW, OLD), **more}


def without(files: Files, *paths: str) -> Files:
    return {path: content for path, content in files.items() if path not in paths}


def plain(name: str) -> str:
    return f"menuentry '{name}' --id {name} {{\nlinux /boot/vmlinuz-{name} ro\ninitrd /boot/initrd.img-{name}\n}}\n"


UBUNTU = ("6.8.0-51-generic", "6.8.0-48-generic")
FLAT = (boottrees.CASES / "debian13-flat.cfg").read_text()
BLS = "/boot/loader/entries"
OTHER_MACHINE = "9ff857a393724b7a981ebb5b8495b9ea"


def header(version: str) -> bytes:
    """The head of an x86 kernel that names its release."""
    content = bytearray(0x400)
    content[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", content, 0x20E, 0x100)
    text = f"{version} (debian-kernel@lists.debian.org) #1 SMP".encode()
    content[0x300 : 0x300 + len(text)] = text
    return bytes(content)


def unified(release: str, command: str) -> bytes:
    """A unified kernel image: a PE file with the sections .uname and .cmdline."""
    texts = [(b".uname", release.encode()), (b".cmdline", command.encode())]
    content = bytearray(0x400)
    content[:2] = b"MZ"
    struct.pack_into("<I", content, 0x3C, 0x80)
    struct.pack_into("<HH", content, 0x84, 0x8664, len(texts))
    struct.pack_into("<H", content, 0x94, 0)
    for at, (name, text) in enumerate(texts):
        place = 0x400 + at * 0x100
        struct.pack_into("<8sIIII", content, 0x98 + at * 40, name, len(text), 0, 0x100, place)
        content += text.ljust(0x100, b"\0")
    return bytes(content)


CASES = (
    # ------------------------------------------------ GRUB of Debian and Ubuntu
    Case("debian: the first entry without a saved one", boottrees.debian(), NEW, 'default="0"', OLD),
    Case("debian: saved by id in a submenu", boottrees.debian(saved_entry=IDS), OLD, f"saved_entry={IDS}", NEW),
    Case("debian: saved by index", boottrees.debian(saved_entry="1>2"), OLD, "saved_entry=1>2", NEW),
    Case(
        "debian: saved by title",
        boottrees.debian(saved_entry=f"Advanced options for Debian GNU/Linux>Debian GNU/Linux, with Linux {OLD}"),
        OLD,
    ),
    Case(
        "debian: a one-shot before the saved one",
        boottrees.debian(next_entry=IDS, saved_entry="0"),
        OLD,
        "next_entry=",
        NEW,
        once=True,
    ),
    Case("debian: what is saved is gone: the first", boottrees.debian(saved_entry="gnulinux-5.0-advanced-x"), NEW),
    Case("debian: an index beyond the menu: the first", boottrees.debian(saved_entry="9"), NEW),
    Case("debian: the submenu alone starts its first", boottrees.debian(saved_entry="1"), NEW),
    Case("debian: no submenus, by index", boottrees.debian(FLAT.replace('set default="0"', 'set default="2"')), OLD),
    Case(
        "debian: an id of a number of letters",
        boottrees.debian(FLAT, next_entry=f"gnulinux-{OLD}-advanced-{boottrees.UUID}"),
        OLD,
        once=True,
    ),
    Case(
        "debian: an environment block without its head counts for nothing",
        {**boottrees.debian(), "/boot/grub/grubenv": f"saved_entry={IDS}\n"},
        NEW,
    ),
    Case("debian: no environment block", without(boottrees.debian(), "/boot/grub/grubenv"), NEW),
    Case(
        "debian: an option of the entry",
        boottrees.debian(),
        NEW,
        options="root=/dev/vda1 ro console=tty0 console=ttyS0,115200",
    ),
    Case("ubuntu: the newest first", boottrees.ubuntu(*UBUNTU), UBUNTU[0], 'default="0"', UBUNTU[1]),
    Case(
        "ubuntu: GRUB_FLAVOUR_ORDER puts realtime before the newer generic",
        boottrees.ubuntu("6.8.1-1015-realtime", *UBUNTU),
        "6.8.1-1015-realtime",
        'default="0"',
        UBUNTU[0],
    ),
    Case("ubuntu: index in a submenu", boottrees.ubuntu(*UBUNTU, default="1>1"), UBUNTU[1]),
    Case(
        "ubuntu: a title with a path",
        boottrees.ubuntu(*UBUNTU, default=f"Advanced options for Ubuntu>Ubuntu, with Linux {UBUNTU[1]}"),
        UBUNTU[1],
    ),
    Case(
        "ubuntu: a boot without initramfs failed before",
        {**boottrees.ubuntu(*UBUNTU), "/boot/grub/grubenv": boottrees.environment(initrdfail="1", prev_entry="1>1")},
        UBUNTU[1],
    ),
    Case(
        "ubuntu cloud: first without an initramfs",
        grub(boottrees.WITHOUT_INITRD),
        "6.8.0-1021-aws",
        options="root=PARTUUID=2f1ee3c5 ro console=tty1 panic=-1",
    ),
    Case(
        "ubuntu cloud: the second attempt",
        grub("load_env\n" + boottrees.WITHOUT_INITRD, **{"/boot/grub/grubenv": boottrees.environment(initrdfail="1")}),
        "6.8.0-1021-aws",
        options="root=PARTUUID=2f1ee3c5 ro console=tty1",
    ),
    Case(
        "an entry of custom.cfg",
        {
            **boottrees.debian(saved_entry="mine"),
            "/boot/grub/custom.cfg": f"menuentry 'mine' {{\nlinux /boot/vmlinuz-{OLD} ro\n}}\n",
        },
        OLD,
    ),
    Case("/boot is a disk of its own", grub(plain(NEW).replace("/boot/", "/")), NEW),
    Case("/boot is in a subvolume", grub(plain(NEW).replace("/boot/", "/@/boot/")), NEW),
    Case("one kernel alone", grub(plain(NEW)), NEW, fallback=""),
    Case(
        "a variable in the title",
        grub(
            f'release={OLD}\nset default="Linux $release"\n{plain(NEW)}'
            f'menuentry "Linux ${{release}}" {{\nlinux /boot/vmlinuz-$release ro\n}}\n'
        ),
        OLD,
    ),
    Case(
        "a title that begins with a digit",
        grub(f'set default="2nd"\n{plain(NEW)}{plain(OLD).replace("--id " + OLD, "--id 2nd")}'),
        OLD,
    ),
    Case(
        "the name tells nothing, the header does",
        grub(plain(NEW).replace(f"vmlinuz-{NEW}", "bzImage"), **{"/boot/bzImage": header("6.9.1-mine")}),
        "6.9.1-mine",
    ),
    Case(
        "grub.cfg of an EFI partition",
        {
            "/boot/efi/EFI/rocky/grub.cfg": boottrees.REDHAT,
            "/boot/efi/EFI/rocky/grubenv": boottrees.environment(saved_entry=f"{MACHINE}-{EL_OLD}"),
            "/sys/firmware/efi/x": "",
            **without(boottrees.rocky(EL_NEW, EL_OLD), "/boot/grub2/grub.cfg"),
        },
        EL_OLD,
    ),
    Case(
        "a file of the EFI partition that only reads /boot's",
        {
            "/boot/efi/EFI/debian/grub.cfg": "search.fs_uuid x root\nconfigfile $prefix/grub.cfg\n",
            "/sys/firmware/efi/x": "",
            **boottrees.debian(saved_entry=IDS),
        },
        OLD,
    ),
    # ------------------------------------------------ entries of the Boot Loader Specification
    Case("rocky: the newest", boottrees.rocky(EL_OLD, EL_NEW), EL_NEW, 'default="0"', EL_OLD),
    Case(
        "rocky: saved",
        boottrees.rocky(EL_OLD, EL_NEW, saved_entry=f"{MACHINE}-{EL_OLD}"),
        EL_OLD,
        f"saved_entry={MACHINE}-{EL_OLD}",
        EL_NEW,
    ),
    Case("rocky: saved by index", boottrees.rocky(EL_OLD, EL_NEW, saved_entry="1"), EL_OLD),
    Case(
        "rocky: one-shot",
        boottrees.rocky(EL_OLD, EL_NEW, next_entry=f"{MACHINE}-{EL_OLD}"),
        EL_OLD,
        "next_entry=",
        once=True,
    ),
    Case(
        "rocky: what is saved is gone: the newest",
        boottrees.rocky(EL_OLD, EL_NEW, saved_entry=f"{MACHINE}-5.1"),
        EL_NEW,
    ),
    Case(
        "rocky: 9 before 10 as versions, not as texts",
        boottrees.rocky("5.14.0-70.9.1.el9_0.x86_64", "5.14.0-70.13.1.el9_0.x86_64"),
        "5.14.0-70.13.1.el9_0.x86_64",
    ),
    Case(
        "rocky: $kernelopts of the environment",
        boottrees.rocky(EL_NEW, kernelopts="root=UUID=x ro module_blacklist=nvidia"),
        EL_NEW,
        options="root=UUID=x ro module_blacklist=nvidia",
    ),
    Case(
        "rocky: entries of a cloned image's other machine id come first",
        {
            **boottrees.rocky(EL_NEW),
            f"{BLS}/{OTHER_MACHINE}-{EL_OLD}.conf": boottrees.entry(EL_OLD),
            **boottrees.kernels(EL_OLD),
        },
        EL_OLD,
    ),
    Case("rocky: grubby agrees", boottrees.rocky(EL_OLD, EL_NEW), EL_NEW, grubby=f"/boot/vmlinuz-{EL_NEW}"),
    Case(
        "rocky: grubby says another kernel",
        boottrees.rocky(EL_OLD, EL_NEW),
        problem="grubby says",
        grubby=f"/boot/vmlinuz-{EL_OLD}",
    ),
    Case(
        "rocky: grubby does not know of a one-shot",
        boottrees.rocky(EL_OLD, EL_NEW, next_entry=f"{MACHINE}-{EL_OLD}"),
        EL_OLD,
        grubby=f"/boot/vmlinuz-{EL_NEW}",
        once=True,
    ),
    Case(
        "rhel 10: a unified image by `efi`",
        {
            **boottrees.rocky(EL_OLD, saved_entry=f"{MACHINE}-{EL_NEW}"),
            f"{BLS}/{MACHINE}-{EL_NEW}.conf": f"title RHEL\nversion {EL_NEW}\nefi /EFI/Linux/{MACHINE}-{EL_NEW}.efi\n",
            f"/boot/efi/EFI/Linux/{MACHINE}-{EL_NEW}.efi": unified(EL_NEW, "ro"),
        },
        EL_NEW,
    ),
    Case(
        "entries without grub.cfg",
        without(boottrees.rocky(EL_OLD, EL_NEW, saved_entry=f"{MACHINE}-{EL_OLD}"), "/boot/grub2/grub.cfg"),
        EL_OLD,
    ),
    # ------------------------------------------------ systemd-boot
    Case(
        "systemd-boot: the newest version",
        {**boottrees.systemd_boot(a=boottrees.type1(OLD), b=boottrees.type1(NEW)), **boottrees.images(OLD, NEW)},
        NEW,
        "the first entry",
        OLD,
    ),
    Case(
        "systemd-boot: a pattern",
        {
            **boottrees.systemd_boot("*43*", **{OLD: boottrees.type1(OLD), NEW: boottrees.type1(NEW)}),
            **boottrees.images(OLD, NEW),
        },
        OLD,
        "default in /efi/loader/loader.conf",
    ),
    Case(
        "systemd-boot: the firmware's default before the file's",
        {
            **boottrees.systemd_boot("b*", a=boottrees.type1(OLD), b=boottrees.type1(NEW)),
            **boottrees.images(OLD, NEW),
            **boottrees.variable("LoaderEntryDefault", "a.conf"),
        },
        OLD,
        "LoaderEntryDefault",
    ),
    Case(
        "systemd-boot: a one-shot before all",
        {
            **boottrees.systemd_boot("b*", a=boottrees.type1(OLD), b=boottrees.type1(NEW)),
            **boottrees.images(OLD, NEW),
            **boottrees.variable("LoaderEntryDefault", "b.conf"),
            **boottrees.variable("LoaderEntryOneShot", "a.conf"),
        },
        OLD,
        "LoaderEntryOneShot",
        once=True,
    ),
    Case(
        "systemd-boot: @saved",
        {
            **boottrees.systemd_boot("@saved", a=boottrees.type1(OLD), b=boottrees.type1(NEW)),
            **boottrees.images(OLD, NEW),
            **boottrees.variable("LoaderEntryLastBooted", "a.conf"),
        },
        OLD,
        "LastBooted",
    ),
    Case(
        "systemd-boot: no tries left",
        {
            **boottrees.systemd_boot(**{"b+0-3": boottrees.type1(NEW), "a": boottrees.type1(OLD)}),
            **boottrees.images(OLD, NEW),
        },
        OLD,
    ),
    Case(
        "systemd-boot: tries left",
        {
            **boottrees.systemd_boot(**{"b+3-0": boottrees.type1(NEW), "a": boottrees.type1(OLD)}),
            **boottrees.images(OLD, NEW),
        },
        NEW,
    ),
    Case(
        "systemd-boot: sort-key before the version",
        {
            **boottrees.systemd_boot(b=boottrees.type1(NEW), a=boottrees.type1(OLD, key="debian")),
            **boottrees.images(OLD, NEW),
        },
        OLD,
    ),
    Case(
        "systemd-boot: a unified image",
        {"/efi/loader/loader.conf": "", f"/efi/EFI/Linux/debian-{NEW}.efi": unified(NEW, "ro quiet")},
        NEW,
        options="ro quiet",
    ),
    Case(
        "systemd-boot started this system, GRUB lies there, too",
        {
            **boottrees.systemd_boot(a=boottrees.type1(OLD)),
            **boottrees.images(OLD),
            **boottrees.debian(),
            **boottrees.variable("LoaderInfo", "systemd-boot 257.9"),
        },
        OLD,
    ),
    Case(
        "GRUB started this system, an old loader.conf lies there, too",
        {
            **boottrees.systemd_boot(a=boottrees.type1(OLD)),
            **boottrees.images(OLD),
            **boottrees.debian(),
            **boottrees.variable("LoaderInfo", "GRUB 2.12"),
        },
        NEW,
    ),
    # ------------------------------------------------ none, kexec, the firmware
    Case(
        "no boot loader: the newest",
        boottrees.kernels("6.1.0-9-amd64", "6.1.0-25-amd64"),
        "6.1.0-25-amd64",
        "no boot loader was found",
        "6.1.0-9-amd64",
    ),
    Case(
        "no boot loader: grubby",
        boottrees.kernels(EL_OLD, EL_NEW),
        EL_OLD,
        "grubby",
        EL_NEW,
        grubby=f"/boot/vmlinuz-{EL_OLD}",
    ),
    Case(
        "no boot loader: a grubby that names nothing there",
        boottrees.kernels(EL_OLD, EL_NEW),
        EL_NEW,
        grubby="/boot/vmlinuz-9.9",
    ),
    Case("a kernel loaded with kexec", {**boottrees.debian(), "/sys/kernel/kexec_loaded": "1\n"}, problem="kexec"),
    Case(
        "kdump's kernel is none",
        {**boottrees.debian(), "/sys/kernel/kexec_loaded": "0\n", "/sys/kernel/kexec_crash_loaded": "1\n"},
        NEW,
    ),
    Case(
        "the firmware starts another entry once",
        {**boottrees.debian(), **boottrees.number("BootNext", 3), **boottrees.number("BootCurrent", 1)},
        problem="BootNext",
    ),
    Case(
        "the firmware starts the same entry once",
        {**boottrees.debian(), **boottrees.number("BootNext", 1), **boottrees.number("BootCurrent", 1)},
        NEW,
    ),
    # ------------------------------------------------ found by cases that the reader had not seen
    Case("a blank after the index", boottrees.debian(saved_entry="1>2 "), OLD),
    Case("a path with GRUB's variable", grub(plain(NEW).replace("/boot/v", "($root)/boot/v")), NEW),
    Case("a loop", grub("for x in a b; do\nset y=$x\ndone\n" + plain(NEW)), NEW),
    Case("a default of a loop", grub("for x in 0 1; do\nset default=$x\ndone\n" + plain(NEW)), problem="only GRUB"),
    Case("eval", grub('eval "set default=1"\n' + plain(NEW) + plain(OLD)), OLD),
    Case("eval that calls itself", grub("a='eval $a'\neval $a\n" + plain(NEW)), problem="without an end"),
    Case(
        "systemd-boot starts an entry that it makes itself",
        {**boottrees.systemd_boot("auto-windows", a=boottrees.type1(NEW)), **boottrees.images(NEW)},
        problem="makes itself",
    ),
    Case(
        "greenboot counted to the end",
        {
            **boottrees.rocky(EL_OLD, EL_NEW, boot_counter="0", boot_success="0"),
            "/boot/grub2/grub.cfg": boottrees.REDHAT.replace("insmod increment\n", boottrees.COUNTING),
        },
        EL_OLD,
    ),
    Case(
        "greenboot counts",
        {
            **boottrees.rocky(EL_OLD, EL_NEW, boot_counter="2", boot_success="0"),
            "/boot/grub2/grub.cfg": boottrees.REDHAT.replace("insmod increment\n", boottrees.COUNTING),
        },
        EL_NEW,
    ),
    Case(
        "a path with a zero byte",
        grub(plain(NEW).replace("/boot/vmlinuz", "/boot/\0vmlinuz")),
        problem="tell its release",
    ),
    Case(
        "an entry with a zero byte",
        {**boottrees.rocky(EL_NEW), f"{BLS}/{MACHINE}-{EL_NEW}.conf": "linux /boot/vm\0\n"},
        problem="no path that a boot loader has",
    ),
    Case(
        "a path that no file can have", grub(plain(NEW).replace("/boot/v", "/" + "b/" * 600 + "v")), problem="no path"
    ),
    Case("an entry on one line", grub(f"menuentry 'x' {{ linux /boot/vmlinuz-{OLD} ro ; initrd /boot/i ; }}\n"), OLD),
    Case("lines of Windows", grub((plain(NEW) + plain(OLD)).replace("\n", "\r\n")), NEW),
    Case(
        "another file takes over",
        grub("configfile ${prefix}/custom.cfg\n", **{"/boot/grub/custom.cfg": plain(OLD)}),
        OLD,
    ),
    # ------------------------------------------------ what cannot be understood, and hostile files
    Case(
        "the default is no Linux",
        grub("set default=0\nmenuentry 'Memory test' {\nlinux16 /boot/memtest86+.bin\n}\n"),
        problem="memtest86+.bin is not there",
    ),
    Case(
        "the default starts Windows",
        grub("menuentry 'Windows' {\nchainloader /EFI/w.efi\n}\n"),
        problem="starts no Linux kernel",
    ),
    Case("an empty menu", grub("set default=0\n"), problem="is empty"),
    Case("two files", {**boottrees.debian(), "/boot/grub2/grub.cfg": plain(NEW)}, problem="nothing says which one"),
    Case(
        "the default under a condition of GRUB's",
        grub(f"if search --file /x; then\nset default=1\nfi\n{plain(NEW)}{plain(OLD)}"),
        problem="only GRUB knows",
    ),
    Case(
        "both branches say the same",
        grub(f"if search --file /x; then\nset default=1\nelse\nset default=1\nfi\n{plain(NEW)}{plain(OLD)}"),
        OLD,
    ),
    Case(
        "an entry before it under a condition",
        grub(f"set default=1\nif search --file /x; then\n{plain(NEW)}\nfi\n{plain(OLD)}"),
        problem="only GRUB knows",
    ),
    Case("a file on another disk", grub("source (hd1,gpt1)/x.cfg\n" + plain(NEW)), problem="another disk"),
    Case("a quote without end", grub("set x='y\n" + plain(NEW)), problem="not closed"),
    Case("an if without end", grub("if true; then\n" + plain(NEW)), problem="missing at its end"),
    Case(
        "files that read each other",
        grub("source $prefix/custom.cfg\n" + plain(NEW), **{"/boot/grub/custom.cfg": "source $prefix/custom.cfg\n"}),
        problem="read each other",
    ),
    Case("a function that calls itself", grub("function a {\na\n}\na\n" + plain(NEW)), problem="without an end"),
    Case(
        "functions that double",
        grub("".join(f"function f{n} {{\nf{n + 1}\nf{n + 1}\n}}\n" for n in range(40)) + "f0\n"),
        problem="more than",
    ),
    Case("a variable that doubles", grub("x=aaaaaaaaaaaaaaaa\n" + 'x="$x$x"\n' * 60 + plain(NEW)), problem="grows"),
    Case("endless submenus", grub("submenu 'a' {\n" * 300 + "}\n" * 300), problem="nested deeper"),
    Case("too many entries", grub(plain(NEW) * 501), problem="more than 500 entries"),
    Case(
        "too many entries of BLS",
        {**boottrees.rocky(EL_NEW), **{f"{BLS}/x-{n}-1.conf": "linux /x\n" for n in range(201)}},
        problem="more than 200",
    ),
    Case(
        "a huge entry",
        {**boottrees.rocky(EL_NEW), f"{BLS}/{MACHINE}-{EL_OLD}.conf": "title x\n" + "#" * 70_000},
        problem="larger than",
    ),
    Case("a huge grub.cfg", grub(plain(NEW) + "#\n" * 600_000), problem="larger than 1 MiB"),
    Case("noise", grub("\x00\xff{{}}}} $ ${ ' \" \\"), problem="/boot/grub/grub.cfg"),
    Case(
        "a path out of its folder",
        grub(plain(NEW).replace("/boot/vmlinuz", "/boot/../etc/vmlinuz")),
        problem="leads out",
    ),
    Case(
        "a pattern of systemd-boot that takes for ever",
        {**boottrees.systemd_boot("*a" * 200, a=boottrees.type1(OLD))},
        problem="no name of an entry",
    ),
    Case(
        "systemd-boot's partition is not there",
        {**boottrees.kernels(NEW), **boottrees.variable("LoaderInfo", "systemd-boot 257")},
        problem="not mounted",
    ),
    Case("systemd-boot without entries", boottrees.systemd_boot(), problem="no entries"),
)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_which_kernel_the_next_boot_starts(case: Case, tmp_path: Path) -> None:
    tree = bootorder.Tree(boottrees.write(tmp_path, case.files))
    found = bootorder.next_boot(tree, lambda: case.grubby)
    assert found.kernel == case.kernel, found
    assert case.problem in found.problem
    assert bool(found.problem) == bool(case.problem)
    assert case.setting in found.setting
    assert found.once == case.once
    if case.fallback is not None:
        assert found.fallback == case.fallback
    if case.options is not None:
        assert found.options == case.options


def test_a_file_that_may_not_be_read_is_no_answer(tmp_path: Path) -> None:
    class Closed(bootorder.Tree):
        def read(self, path: str, most: int) -> bytes | None:
            if path.endswith("grub.cfg"):
                raise bootorder.Unreadable("no_permission", f"{path} may not be read")
            return super().read(path, most)

    found = bootorder.next_boot(Closed(boottrees.write(tmp_path, boottrees.debian())))
    kernel, boot = osfacts.boot_facts(found, tmp_path)
    assert kernel == boot == records.Missing("no_permission", "/boot/grub/grub.cfg may not be read")


def test_pipes_and_links_are_not_followed_for_ever(tmp_path: Path) -> None:
    boottrees.write(tmp_path, boottrees.kernels(NEW))
    folder = tmp_path / "boot/grub"
    folder.mkdir()
    os.mkfifo(folder / "grub.cfg")
    assert bootorder.next_boot(bootorder.Tree(tmp_path)).problem
    (folder / "grub.cfg").unlink()
    (folder / "grub.cfg").symlink_to("grub.cfg")
    assert bootorder.next_boot(bootorder.Tree(tmp_path)).problem
    (folder / "grub.cfg").unlink()
    (folder / "grub.cfg").mkdir()
    assert bootorder.next_boot(bootorder.Tree(tmp_path)).problem


def test_a_container_has_no_kernel(tmp_path: Path) -> None:
    assert osfacts.boot_facts(bootorder.next_boot(bootorder.Tree(tmp_path)), tmp_path) == (None, None)


def test_hostile_files_take_no_more_time_than_real_ones_of_their_size(tmp_path: Path) -> None:
    """Quadratic work shows as a ratio: ten times the text may take thirty times the time, not a hundred times."""

    def seconds(size: int) -> float:
        text = 'if [ x = y ]; then\nset a="$b$c"; # \'\nfi\n' * size
        tree = bootorder.Tree(boottrees.write(tmp_path / str(size), grub(text + plain(NEW))))
        begun = time.monotonic()
        assert bootorder.next_boot(tree).kernel == NEW
        return time.monotonic() - begun

    few = min(seconds(100) for _ in range(3))
    assert min(seconds(1000) for _ in range(3)) < few * 40 + 0.5
