"""A next boot that would lose the GPU is FAIL before the restart; a healthy upgrade makes no alarm."""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import lzma
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import boottrees
import pytest
from boottrees import Files
from builders import bare_snapshot, finished_snapshot, load

from gpuprep import checks, records
from gpuprep.agent.facts import bootorder, nextboot, osfacts
from gpuprep.desired import state
from gpuprep.records import Snapshot, Status
from gpuprep.workflows import fixes

NEW = {"debian13": "6.12.120+deb13-cloud-amd64", "rocky9": "5.14.0-611.9.1.el9_7.x86_64"}
OLDER = {"debian13": "6.12.43+deb13-cloud-amd64", "rocky9": "5.14.0-503.11.1.el9_5.x86_64"}
SYSTEMS = ("debian13", "rocky9")
ELF = b"\x7fELF\x02\x01" + b"\0" * 58
CERTIFICATE = records.ModuleCertificate("/var/lib/dkms/mok.pub", True)


def elf(size: int = 4096) -> bytes:
    """A kernel module whose table of sections ends with the file."""
    content = bytearray(ELF.ljust(size, b"\0"))
    struct.pack_into("<Q", content, 0x28, size - 64)
    struct.pack_into("<HH", content, 0x3A, 64, 1)
    return bytes(content)


def menu(os: str, *releases: str, **variables: str) -> Files:
    if os == "rocky9":
        return boottrees.rocky(*releases, **variables)
    files = boottrees.ubuntu(*releases, default="${saved_entry}" if variables else "0")
    return files | {"/boot/grub/grubenv": boottrees.environment(**variables)}


def module_place(os: str) -> str:
    return "extra/nvidia.ko" if os == "rocky9" else "updates/dkms/nvidia-current.ko"


def modules(os: str, *releases: str) -> Files:
    files: Files = {}
    for release in releases:
        files[f"/lib/modules/{release}/{module_place(os)}"] = elf()
        files[f"/lib/modules/{release}/modules.dep"] = f"{module_place(os)}:\nkernel/drivers/gpu/drm/nouveau.ko:\n"
        files[f"/lib/modules/{release}/modules.dep.bin"] = "its index"
    return files


@dataclass
class Host:
    """A machine whose next boot starts a kernel that came today; all is well until a test changes a file or a fact."""

    os: str
    secure: bool
    root: Path
    files: Files
    profile: str = "t4"
    built_for: str = ""  # the kernel in the modules' version magic
    links: dict[str, str] = field(default_factory=dict)

    @property
    def running(self) -> str:
        return bare_snapshot(self.os).kernel.running

    def snapshot(self) -> Snapshot:
        boottrees.write(self.root, self.files)
        for path, target in self.links.items():
            place = self.root / path.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(target)
        answer = bootorder.next_boot(bootorder.Tree(self.root))
        following, boot = osfacts.boot_facts(answer, self.root, lambda _: self.built_for)
        good = finished_snapshot(self.wanted())
        version = good.driver.module_version
        signed = tuple(
            records.ModuleSignature(
                f"/lib/modules/{kernel}/nvidia{part}.ko", kernel, "DKMS", "01", True, CERTIFICATE.path
            )
            for kernel in (self.running, str(following))
            for part in ("", "-uvm")
        )
        return dataclasses.replace(
            good,
            kernel=dataclasses.replace(
                good.kernel, next_boot=following, boot=boot, headers_next_boot=True, secure_boot=self.secure
            ),
            driver=dataclasses.replace(
                good.driver,
                module_next_boot_flavour=good.driver.module_flavour,
                module_fallback_version=version,
                initramfs_stale=None,
            ),
            signatures=records.SignatureFacts(signed, (CERTIFICATE,), True),
        )

    def wanted(self) -> state.Wanted:
        return state.resolve(load(self.profile), bare_snapshot(self.os, (self.profile,)))

    def judged(self, snapshot: Snapshot) -> dict[str, records.Finding]:
        wanted = self.wanted()
        return {one.key: one for one in fixes.offered(wanted, snapshot, checks.compare(wanted, snapshot))}


def host(os: str, secure: bool, root: Path, profile: str = "t4") -> Host:
    running = bare_snapshot(os).kernel.running
    files = menu(os, NEW[os], running) | modules(os, NEW[os], running)
    return Host(os, secure, root, files, profile)


Change = Callable[[Host], None]
Facts = Callable[[Host, Snapshot], Snapshot]


def same(_: Host, snapshot: Snapshot) -> Snapshot:
    return snapshot


def nothing(_: Host) -> None:
    return None


@dataclass(frozen=True)
class Way:
    """One way of losing the GPU at the next boot."""

    name: str
    key: str
    command: dict[str, str]  # a part of the remedy: for apt, for dnf
    files: Change = nothing
    facts: Facts = same
    secure: bool = False  # it is lost with Secure Boot alone
    reason: str = ""
    profile: str = "t4"


def both(text: str) -> dict[str, str]:
    return dict.fromkeys(SYSTEMS, text)


def driver(**changed: object) -> Facts:
    return lambda _, snapshot: dataclasses.replace(
        snapshot, driver=dataclasses.replace(snapshot.driver, **changed)  # type: ignore[arg-type]
    )  # fmt: skip


def change(path: str, content: str | bytes | None) -> Change:
    """Another content of a file of the next boot's kernel; None: it is not there."""

    def changing(one: Host) -> None:
        for initrd in (f"/boot/initrd.img-{NEW[one.os]}", f"/boot/initramfs-{NEW[one.os]}.img"):
            place = {"image": f"/boot/vmlinuz-{NEW[one.os]}", "initrd": initrd}[path]
            if place in one.files:
                if content is None:
                    del one.files[place]
                else:
                    one.files[place] = content

    return changing


def in_options(word: str) -> Change:
    def changing(one: Host) -> None:
        for path, content in one.files.items():
            if isinstance(content, str) and ("grub.cfg" in path or "grubenv" in path):
                one.files[path] = content.replace(" ro console=ttyS0", f" ro {word}", 1)
                if "grub.cfg" in path:
                    one.files[path] = content.replace(" ro console=ttyS0", f" ro {word}")

    return changing


def recovery(one: Host) -> None:
    in_options("single")(one)


def without_initrd(one: Host) -> None:
    for path, content in one.files.items():
        if isinstance(content, str) and ("grub.cfg" in path or "/entries/" in path):
            one.files[path] = re.sub(r"(?m)^\s*initrd\s.*$", "", content)


def saved(name: str) -> Change:
    def changing(one: Host) -> None:
        old = OLDER[one.os]
        entry = f"{boottrees.MACHINE}-{old}" if one.os == "rocky9" else "1>2"
        one.files.update(menu(one.os, NEW[one.os], one.running, old, **{name: entry}))

    return changing


def flavour_first(one: Host) -> None:
    """Another flavour is the first entry: by GRUB_FLAVOUR_ORDER, or by an entry of a cloned image's machine id."""
    other = OLDER[one.os].replace("cloud-amd64", "rt-amd64")
    if one.os == "debian13":
        one.files.update(menu(one.os, other, NEW[one.os], one.running))
    else:
        one.files.update(boottrees.kernels(other))
        one.files[f"/boot/loader/entries/9ff8-{other}.conf"] = boottrees.entry(other)


def no_module(one: Host) -> None:
    del one.files[f"/lib/modules/{NEW[one.os]}/{module_place(one.os)}"]


def module_is(content: bytes) -> Change:
    return lambda one: one.files.update({f"/lib/modules/{NEW[one.os]}/{module_place(one.os)}": content})


def unlisted(one: Host) -> None:
    one.files[f"/lib/modules/{NEW[one.os]}/modules.dep"] = "kernel/fs/ext4.ko:\n"


def marked_built(one: Host, snapshot: Snapshot) -> Snapshot:
    """DKMS says that the module is installed for the next kernel, and the file is gone."""
    made = records.DkmsModule("nvidia-current", str(snapshot.driver.module_version), NEW[one.os], "installed")
    facts = dataclasses.replace(snapshot.driver, dkms=(*snapshot.driver.dkms, made), module_next_boot_version=None)
    return dataclasses.replace(snapshot, driver=facts)


def signed(**changed: object) -> Facts:
    def changing(one: Host, snapshot: Snapshot) -> Snapshot:
        assert isinstance(snapshot.signatures, records.SignatureFacts)
        there = tuple(
            dataclasses.replace(module, **changed) if module.kernel == NEW[one.os] else module  # type: ignore[arg-type]
            for module in snapshot.signatures.modules
        )
        return dataclasses.replace(snapshot, signatures=dataclasses.replace(snapshot.signatures, modules=there))

    return changing


def not_enrolled(one: Host, snapshot: Snapshot) -> Snapshot:
    other = records.ModuleCertificate("/root/other.der", False)
    changed = signed(verified_by=other.path)(one, snapshot)
    assert isinstance(changed.signatures, records.SignatureFacts)
    both = dataclasses.replace(changed.signatures, certificates=(CERTIFICATE, other))
    return dataclasses.replace(changed, signatures=both)


def blacklisted(_: Host, snapshot: Snapshot) -> Snapshot:
    line = records.ModprobeLine("/etc/modprobe.d/zz.conf", ("blacklist", "nvidia"), "blacklist nvidia")
    nouveau = records.ModprobeLine("/etc/modprobe.d/own.conf", ("blacklist", "nouveau"), "blacklist nouveau")
    return dataclasses.replace(snapshot, modprobe=(nouveau, line))


BUILD = both("gpuprep drift HOST --profile PROFILE --fix")
DKMS = both("sudo dkms install --force nvidia-current/")
IMAGE = {
    "debian13": "sudo apt-get install --reinstall linux-image-6.12.120",
    "rocky9": 'sudo dnf reinstall "$(rpm -q --whatprovides "kernel-uname-r = "5.14.0-611.9',
}
INITRD = {
    "debian13": "sudo update-initramfs -c -k 6.12.120",
    "rocky9": "sudo dracut --force /boot/initramfs-5.14.0-611.9",
}
RENEWED = {**INITRD, "debian13": "sudo update-initramfs -u -k 6.12.120"}
MENU = {"debian13": "update-grub", "rocky9": "grubby --update-kernel=ALL --remove-args"}
WAYS = (
    Way("no module", "driver.next_boot_module", BUILD, no_module, driver(module_next_boot_version=None)),
    Way(
        "another version than the libraries",
        "driver.next_boot_module",
        BUILD,
        facts=driver(module_next_boot_version="535.1"),
    ),
    Way(
        "not signed",
        "driver.signature_next_boot",
        both("sudo dkms"),
        facts=signed(signer=None, fits=None, verified_by=None),
        secure=True,
    ),
    Way(
        "changed after it was signed",
        "driver.signature_next_boot",
        both("sudo dkms"),
        facts=signed(fits=False),
        secure=True,
    ),
    Way(
        "a key that is not enrolled",
        "driver.signature_next_boot",
        both("mokutil --import"),
        facts=not_enrolled,
        secure=True,
    ),
    Way(
        "the initramfs has an older module",
        "driver.initramfs",
        {"debian13": "sudo update-initramfs -u -k 6.12.120", "rocky9": "sudo dracut --force /boot/initramfs-5"},
        facts=driver(initramfs_stale="usr/lib/modules/x/nvidia.ko"),
    ),
    Way(
        "the initramfs loads nouveau",
        "nouveau.initramfs",
        both("--only driver"),
        facts=driver(nouveau_in_initramfs=True),
    ),
    Way(
        "open modules for a GPU before Turing",
        "driver.next_boot_flavour",
        both("--only driver"),
        facts=driver(module_next_boot_flavour="open"),
        reason="before Turing",
        profile="v100",
    ),
    Way("the kernel is gone", "kernel.boot_entry", IMAGE, change("image", None)),
    Way("the kernel is empty", "kernel.boot_entry", IMAGE, change("image", "")),
    Way("the initramfs is gone", "kernel.boot_entry", INITRD, change("initrd", None)),
    Way("the initramfs is empty", "kernel.boot_entry", RENEWED, change("initrd", "")),
    Way("the entry names no initramfs", "kernel.boot_entry", INITRD, without_initrd),
    Way(
        "the recovery entry is the default",
        "kernel.boot_entry",
        {"debian13": "sudo grub-set-default 0", "rocky9": "sudo grub2-set-default 0"},
        recovery,
    ),
    Way(
        "an old kernel without a module is saved",
        "driver.next_boot_module",
        BUILD,
        saved("saved_entry"),
        driver(module_next_boot_version=None),
        reason="saved_entry=",
    ),
    Way(
        "an old kernel without a module starts once",
        "driver.next_boot_module",
        BUILD,
        saved("next_entry"),
        driver(module_next_boot_version=None),
        reason="next_entry=",
    ),
    Way(
        "another flavour is first",
        "driver.next_boot_module",
        BUILD,
        flavour_first,
        driver(module_next_boot_version=None),
        reason="default=",
    ),
    Way("DKMS says installed, the file is gone", "driver.next_boot_module", BUILD, no_module, marked_built),
    Way("the module is empty", "driver.next_boot_file", DKMS, module_is(b"")),
    Way("the module is cut off", "driver.next_boot_file", DKMS, module_is(elf()[:-1])),
    Way("depmod was not run", "driver.next_boot_file", both("sudo depmod "), unlisted),
    Way("modprobe blacklists it", "driver.module_allowed", both("zz.conf"), facts=blacklisted),
    Way(
        "module_blacklist on its command line",
        "driver.next_boot_options",
        MENU,
        in_options("module_blacklist=nouveau,nvidia"),
    ),
    Way(
        "modprobe.blacklist on its command line",
        "driver.next_boot_options",
        MENU,
        in_options("modprobe.blacklist=nvidia"),
    ),
)

# ---------------------------------------------------------------- more ways of losing it, and healthy ones


def packed(suffix: str, content: bytes) -> Change:
    """The module as its distribution packs it."""

    def changing(one: Host) -> None:
        folder, name = f"/lib/modules/{NEW[one.os]}", module_place(one.os)
        del one.files[f"{folder}/{name}"]
        one.files |= {f"{folder}/{name}{suffix}": content, f"{folder}/modules.dep": f"{name}{suffix}:\n"}

    return changing


def zst(*blocks: bytes, checksum: bool = True) -> bytes:
    """A frame of raw blocks, and one that is run-length coded at the end."""
    frame = b"(\xb5/\xfd" + bytes([0b10000100 if checksum else 0b10000000, 0x58]) + b"\0\0\0\0"
    body = b"".join((len(block) << 3).to_bytes(3, "little") + block for block in blocks)
    return frame + body + (5000 << 3 | 3).to_bytes(3, "little") + b"\0" + (b"SUM!" if checksum else b"")


ZST, GZ, XZ = zst(elf(), b"x" * 200), gzip.compress(elf()), lzma.compress(elf())


def systemd(default: str, once: str = "") -> Change:
    """systemd-boot in place of GRUB; an old kernel is there, too."""

    def changing(one: Host) -> None:
        here = (NEW[one.os], OLDER[one.os])
        kept = {path: text for path, text in one.files.items() if not path.startswith("/boot")}
        entries = {f"{boottrees.MACHINE}-{release}": boottrees.type1(release) for release in here}
        wishes = [text.replace("OLD", OLDER[one.os]).replace("NEW", NEW[one.os]) for text in (default, once)]
        one.files = kept | boottrees.systemd_boot(wishes[0], **entries) | boottrees.images(*here)
        if once:
            one.files |= boottrees.variable("LoaderEntryOneShot", wishes[1])

    return changing


def grub_default(default: str) -> Change:
    """An entry of the menu by its titles; of Red Hat's by the title or the id of an entry."""

    def changing(one: Host) -> None:
        old = OLDER[one.os]
        titles = {
            "old": f"Advanced options for Ubuntu>Ubuntu, with Linux {old}",
            "new": f"Advanced options for Ubuntu>Ubuntu, with Linux {NEW[one.os]}",
            "gone": "Advanced options for Ubuntu>Ubuntu, with Linux 5.10.0-1-amd64",
        }
        if one.os == "rocky9":
            titles = {
                "old": f"Rocky Linux ({old}) 9.6 (Blue Onyx)",
                "new": f"{boottrees.MACHINE}-{NEW[one.os]}",
                "gone": f"{boottrees.MACHINE}-5.14.0-1.el9.x86_64",
            }
        one.files |= menu(one.os, NEW[one.os], one.running, old, saved_entry=titles[default])

    return changing


def flat(one: Host) -> None:
    """GRUB_DISABLE_SUBMENU=y, and the second entry; Red Hat's menu is always so."""
    old = OLDER[one.os]
    if one.os == "rocky9":
        one.files |= menu(one.os, NEW[one.os], old, saved_entry="1")
        return
    entries = "".join(
        f"menuentry 'Linux {release}' {{\nlinux /boot/vmlinuz-{release} ro\ninitrd /boot/initrd.img-{release}\n}}\n"
        for release in (NEW[one.os], old)
    )
    one.files |= {"/boot/grub/grub.cfg": f"set default=1\n{entries}", **boottrees.kernels(old)}


def own_options(words: str) -> Change:
    """Options of one entry alone, as `grubby --args` and an edited menu have them."""

    def changing(one: Host) -> None:
        if one.os == "rocky9":
            path = f"/boot/loader/entries/{boottrees.MACHINE}-{NEW[one.os]}.conf"
            one.files[path] = boottrees.entry(NEW[one.os], options=f"{boottrees.OPTIONS} {words}")
        else:
            in_options(f"{words} console=ttyS0")(one)

    return changing


def dangling(one: Host) -> None:
    """A link of weak-updates to a module of a kernel that was removed."""
    folder = f"/lib/modules/{NEW[one.os]}"
    del one.files[f"{folder}/{module_place(one.os)}"]
    one.files[f"{folder}/modules.dep"] = "weak-updates/nvidia.ko:\n"
    one.links[f"{folder}/weak-updates/nvidia.ko"] = "/lib/modules/5.14.0-1.el9.x86_64/extra/nvidia.ko"


def weak(one: Host) -> None:
    """The same, and the other kernel is there: its module fits both."""
    dangling(one)
    one.links[f"/lib/modules/{NEW[one.os]}/weak-updates/nvidia.ko"] = f"../../{OLDER[one.os]}/extra/nvidia.ko"
    one.files[f"/lib/modules/{OLDER[one.os]}/extra/nvidia.ko"] = elf()
    one.built_for = OLDER[one.os]


def of_another_kernel(one: Host) -> None:
    one.built_for = OLDER[one.os]


def of_this_kernel(one: Host) -> None:
    one.built_for = NEW[one.os]


def without_index(name: str) -> Change:
    def changing(one: Host) -> None:
        del one.files[f"/lib/modules/{NEW[one.os]}/{name}"]

    return changing


NONE = driver(module_next_boot_version=None)
ONCE = f"{boottrees.MACHINE}-OLD.conf"
MORE_WAYS = (
    Way("saved by titles of a submenu", "driver.next_boot_module", BUILD, grub_default("old"), NONE, reason="saved_"),
    Way("no submenus, the second", "driver.next_boot_module", BUILD, flat, NONE),
    Way("options of one entry", "driver.next_boot_options", MENU, own_options("modprobe.blacklist=nvidia")),
    Way("systemd-boot's default is a pattern of the old one", "driver.next_boot_module", BUILD,
        systemd("*-OLD*"), NONE, reason="default in /efi/loader/loader.conf"),
    Way("systemd-boot starts the old one once", "driver.next_boot_module", BUILD,
        systemd("*", ONCE), NONE, reason="LoaderEntryOneShot"),
    Way("a module of another kernel", "driver.next_boot_file", DKMS, of_another_kernel, reason="another kernel"),
    Way("a weak link that leads nowhere", "driver.next_boot_module", BUILD, dangling, NONE),
    Way("no modules.dep", "driver.next_boot_file", both("sudo depmod "), without_index("modules.dep")),
    Way("no index of modules.dep", "driver.next_boot_file", both("sudo depmod "), without_index("modules.dep.bin")),
    Way("a zst that is cut in a block", "driver.next_boot_file", DKMS, packed(".zst", ZST[:-300])),
    Way("a zst that is cut in its checksum", "driver.next_boot_file", DKMS, packed(".zst", ZST[:-2])),
    Way("a gz that is cut", "driver.next_boot_file", DKMS, packed(".gz", GZ[:-9])),
    Way("an xz that is cut", "driver.next_boot_file", DKMS, packed(".xz", XZ[:-1])),
)  # fmt: skip
HEALTHY: dict[str, Change] = {
    "saved by titles": grub_default("new"),
    "what is saved was removed: the first": grub_default("gone"),
    "an entry's own options, against nouveau": own_options("rd.driver.blacklist=nouveau nvidia-drm.modeset=1"),
    "nvidia_drm alone is kept out": own_options("modprobe.blacklist=nvidia_drm"),
    "systemd-boot's default is a pattern of the new one": systemd("*-NEW*"),
    "systemd-boot starts the new one once": systemd("*-OLD*", ONCE.replace("OLD", "NEW")),
    "a weak link to another kernel's module": weak,
    "a whole zst": packed(".zst", ZST),
    "a zst without a sum, and a frame to skip": packed(".zst", zst(elf(), checksum=False) + b"\x50*M\x18\2\0\0\0ab"),
    "a whole gz": packed(".gz", GZ),
    "a whole xz": packed(".xz", XZ),
    "a module of this kernel": of_this_kernel,
}


@pytest.mark.parametrize("os", SYSTEMS)
@pytest.mark.parametrize("name", HEALTHY)
def test_what_is_healthy_makes_no_alarm(name: str, os: str, tmp_path: Path) -> None:
    one = host(os, False, tmp_path)
    HEALTHY[name](one)
    snapshot = one.snapshot()
    assert snapshot.kernel.next_boot == NEW[os]
    found = one.judged(snapshot)
    assert {key for key, each in found.items() if each.status in (Status.FAIL, Status.UNKNOWN)} == set()


@pytest.mark.parametrize("secure", [False, True], ids=["", "secure-boot"])
@pytest.mark.parametrize("os", SYSTEMS)
@pytest.mark.parametrize("way", [*WAYS, *MORE_WAYS], ids=[way.name for way in (*WAYS, *MORE_WAYS)])
def test_each_way_of_losing_the_gpu_is_told_before_the_restart(way: Way, os: str, secure: bool, tmp_path: Path) -> None:
    well = host(os, secure, tmp_path / "well", way.profile)
    before = well.judged(well.snapshot())
    assert before["kernel.next_boot"].remedy == "reboot when it suits you"
    assert [one for one in before.values() if one.status in (Status.FAIL, Status.UNKNOWN)] == []
    if way.secure and not secure:
        return
    lost = host(os, secure, tmp_path / "lost", way.profile)
    way.files(lost)
    found = lost.judged(way.facts(lost, lost.snapshot()))
    finding = found[way.key]
    assert finding.status is Status.FAIL
    assert way.reason in finding.reason
    assert way.command[os] in finding.remedy
    assert not any("suits you" in one.remedy for one in found.values())
    for one in found.values():
        if one.reboot and one.status is not Status.PASS:
            assert one.remedy.startswith("do not restart before"), one


@pytest.mark.parametrize("kind", [*nextboot.BOOTS, nextboot.BLOCKED])
@pytest.mark.parametrize("apt", [True, False])
def test_systemd_boot_has_commands_of_its_own(kind: str, apt: bool) -> None:
    command = nextboot.said(nextboot.Fault(kind, "x"), "6.1", apt=apt, loader=bootorder.SYSTEMD_BOOT)[1]
    assert "grub" not in command
    assert "kernel-install add 6.1 " in command or "bootctl" in command


def test_a_unified_image_has_its_initramfs_inside() -> None:
    image = bootorder.Answer("systemd-boot", "x", "6.1", image="/efi/EFI/Linux/x-6.1.efi", options="root=UUID=1 ro")
    assert [fault.kind for fault in nextboot.faults(image, Path("/nowhere"))] == [nextboot.IMAGE_GONE]


def test_files_of_a_host_are_data_in_commands() -> None:
    fault = nextboot.Fault(nextboot.BLOCKED, "module_blacklist=nvidia;rm -rf /'`$(x)")
    for apt in (True, False):
        sentence, command = nextboot.said(fault, "6.1;reboot", apt=apt)
        assert "\n" not in sentence + command
        assert "; rm" not in command.replace("';", "")
        kernel = nextboot.said(nextboot.Fault(nextboot.UNLISTED, "x"), "6.1;reboot", apt=apt)[1]
        assert kernel == "sudo depmod '6.1;reboot'"


@pytest.mark.parametrize("os", SYSTEMS)
def test_a_fallback_without_a_module_is_a_warning_with_the_command(os: str, tmp_path: Path) -> None:
    one = host(os, False, tmp_path)
    one.files = menu(os, one.running, OLDER[os]) | modules(os, one.running)
    snapshot = driver(module_fallback_version=None)(one, one.snapshot())
    found = one.judged(snapshot)
    finding = found["driver.fallback_module"]
    assert finding.status is Status.WARN
    assert (
        f"dkms install --force nvidia-current/550.163.01 -k {OLDER[os]}"[:40] in finding.remedy
        or "dkms" in finding.remedy
    )
    assert found["kernel.next_boot"].status is Status.PASS


def test_an_older_kernel_that_is_saved_is_not_called_newer(tmp_path: Path) -> None:
    one = host("debian13", False, tmp_path)
    one.files = menu("debian13", one.running, OLDER["debian13"], saved_entry="1>1") | modules(
        "debian13", one.running, OLDER["debian13"]
    )
    finding = one.judged(one.snapshot())["kernel.next_boot"]
    assert finding.status is Status.WARN
    assert "older than the running one (saved_entry=1>1 in /boot/grub/grubenv)" in finding.reason


@pytest.mark.parametrize("os", SYSTEMS)
def test_settings_that_nobody_can_follow_are_unknown(os: str, tmp_path: Path) -> None:
    one = host(os, False, tmp_path)
    path = "/boot/grub2/grub.cfg" if os == "rocky9" else "/boot/grub/grub.cfg"
    one.files[path] = "source (hd1)/x.cfg\n"
    found = one.judged(one.snapshot())
    assert found["kernel.next_boot"].status is Status.UNKNOWN
    assert "another disk" in found["kernel.next_boot"].reason
    assert found["driver.next_boot_module"].status is Status.UNKNOWN
    assert "kernel.boot_entry" not in found


def test_readings_that_failed_are_unknown(tmp_path: Path) -> None:
    one = host("debian13", False, tmp_path)
    missing = records.Missing("command_failed", "it broke")
    snapshot = driver(module_next_boot_flavour=missing, initramfs_stale=missing)(one, one.snapshot())
    found = one.judged(snapshot)
    assert found["driver.next_boot_flavour"].status is found["driver.initramfs"].status is Status.UNKNOWN
    one.files = menu("debian13", one.running, OLDER["debian13"]) | modules("debian13", one.running)
    found = one.judged(driver(module_fallback_version=missing)(one, one.snapshot()))
    assert found["driver.fallback_module"].status is Status.UNKNOWN


# ---------------------------------------------------------------- healthy upgrades

UPGRADES = [
    (os, secure, kind, number)
    for os, secure, kind in itertools.product(SYSTEMS, (False, True), ("kernel", "driver", "both"))
    for number in range(3)
]


@pytest.mark.parametrize(("os", "secure", "kind", "number"), UPGRADES)
def test_a_healthy_upgrade_makes_no_alarm(os: str, secure: bool, kind: str, number: int, tmp_path: Path) -> None:
    """As snapshots in the order of the nights: before, upgraded, restarted, the old kernel removed."""
    one = Host(os, secure, tmp_path / "0", {})
    running = one.running
    new = NEW[os].replace("120", f"12{number}").replace("611.9", f"611.{9 + number}") if kind != "driver" else running
    nights = [((running,), running), ((new, running), running), ((new, running), new), ((new,), new)]
    for night, (there, runs) in enumerate(nights):
        releases = tuple(dict.fromkeys(there))
        one = Host(os, secure, tmp_path / f"{night}", menu(os, *releases) | modules(os, *releases))
        snapshot = one.snapshot()
        facts = dataclasses.replace(snapshot.kernel, running=runs)
        dkms = tuple(
            records.DkmsModule("nvidia-current", str(snapshot.driver.module_version), release, "installed")
            for release in releases
        )
        snapshot = dataclasses.replace(snapshot, kernel=facts, driver=dataclasses.replace(snapshot.driver, dkms=dkms))
        assert isinstance(snapshot.signatures, records.SignatureFacts)
        signed_for_all = tuple(
            dataclasses.replace(module, kernel=release)
            for release in releases for module in snapshot.signatures.modules[:2]
        )  # fmt: skip
        snapshot = dataclasses.replace(
            snapshot, signatures=dataclasses.replace(snapshot.signatures, modules=signed_for_all)
        )
        found = one.judged(snapshot)
        waits = {"kernel.next_boot"} if kind != "driver" and night == 1 else set()
        assert {
            key for key, each in found.items() if each.status in (Status.FAIL, Status.UNKNOWN, Status.WARN)
        } == waits
        assert found["kernel.boot_entry"].status is Status.PASS


# ---------------------------------------------------------------- before a restart, without the agent


def modinfo(version: str, *, is_signed: bool) -> str:
    return f"filename: x\nversion:        {version}\n{'sig_id:  PKCS#7' if is_signed else ''}\n"


@pytest.mark.parametrize(
    ("version", "is_signed", "secure", "kinds"),
    [
        ("580.1", True, True, []),
        ("580.1", False, False, []),
        ("580.1", False, True, [nextboot.UNSIGNED]),
        ("570.1", True, False, [nextboot.OTHER]),
        ("", True, False, [nextboot.OTHER]),
        (None, True, False, [nextboot.ABSENT]),
    ],
)
def test_what_a_role_asks_before_it_restarts_a_machine(
    version: str | None, is_signed: bool, secure: bool, kinds: list[str], tmp_path: Path
) -> None:
    kernel = NEW["debian13"]
    files: Files = {"/usr/lib64/libnvidia-ml.so.580.1": "x"}
    files |= modules("debian13", kernel) if version is not None else {}
    if secure:
        files[str(nextboot.SECURE_BOOT)] = b"\x06\0\0\0\x01"
    boottrees.write(tmp_path, files)
    (tmp_path / "usr/lib64/libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.1")
    found = nextboot.of_driver(kernel, lambda *_: modinfo(version or "", is_signed=is_signed), tmp_path)
    assert [fault.kind for fault in found] == kinds
    for fault in found:
        for apt in (True, False):
            assert "sudo dkms install" in nextboot.said(fault, kernel, apt=apt, dkms="nvidia/580.1", library="580.1")[1]


@pytest.mark.parametrize(
    ("serial", "mokutil", "kinds"),
    [
        ("0AF122", "/var/lib/dkms/mok.pub is not enrolled\n", [nextboot.UNENROLLED]),
        ("0AF122", "/var/lib/dkms/mok.pub is already in the enrollment request\n", [nextboot.UNENROLLED]),
        ("0AF122", "/var/lib/dkms/mok.pub is already enrolled\n", []),
        ("0AF122", "", []),  # no mokutil: whether it is enrolled is unknown, as `drift` says
        ("0BBBBB", "/var/lib/dkms/mok.pub is not enrolled\n", []),  # the module has another signer
    ],
)
def test_a_role_asks_whether_the_key_is_enrolled(serial: str, mokutil: str, kinds: list[str], tmp_path: Path) -> None:
    files: Files = {"/usr/lib64/libnvidia-ml.so.580.1": "x", str(nextboot.SECURE_BOOT): b"\x06\0\0\0\x01"}
    boottrees.write(tmp_path, files | modules("debian13", "6.1"))
    (tmp_path / "usr/lib64/libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.1")

    def run(*words: str) -> str:
        if words[0] == "openssl":
            return f"serial={serial}\n" if words[-1] == nextboot.MOK_OF_DKMS and "PEM" in words else ""
        return mokutil if words[0] == "mokutil" else modinfo("580.1", is_signed=True) + "sig_key:        0A:F1:22\n"

    found = nextboot.of_driver("6.1", run, tmp_path)
    assert [fault.kind for fault in found] == kinds
    assert all("mokutil --import /var/lib/dkms/mok.pub" in nextboot.said(one, "6.1", apt=True)[1] for one in found)


def test_a_role_does_not_restart_where_nobody_can_tell_what_comes() -> None:
    answer = bootorder.Answer("GRUB", "/boot/grub/grub.cfg", problem="it reads another disk", reason="unparsable")
    for driver_of_it in (True, False):
        (fault,) = nextboot.of_restart(answer, lambda *_: "", driver=driver_of_it)
        sentence, what_to_do = nextboot.said(fault, "", apt=True)
        assert sentence == "nobody can tell which kernel the next boot starts: it reads another disk"
        assert "restart the machine yourself" in what_to_do
    nowhere = bootorder.Answer("none", "x", problem="there is no kernel in /boot", reason="not_installed")
    assert nextboot.of_restart(nowhere, lambda *_: "") == []


@pytest.mark.parametrize(
    ("told", "command_line", "lines"),
    [
        ("blacklist nouveau\ninstall nvidia modprobe -i nvidia-current\ninstall nvidia_drm /bin/false\n", "", []),
        ("blacklist nvidia\n", "", ["blacklist nvidia"]),
        ("options x y=1\ninstall nvidia_uvm /bin/false\n", "", ["install nvidia_uvm /bin/false"]),
        ("install nvidia_current_open /usr/bin/true --x\n", "", ["install nvidia_current_open /usr/bin/true --x"]),
        # The running kernel's command line, which the next boot need not have.
        ("blacklist nvidia\nblacklist nvidia_uvm\n", "quiet modprobe.blacklist=nvidia,nvidia-uvm", []),
    ],
)
def test_a_role_does_not_restart_where_modprobe_keeps_the_module_out(
    told: str, command_line: str, lines: list[str], tmp_path: Path
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cmdline").write_text(command_line)
    found = nextboot.kept_out(lambda *words: told if words == ("modprobe", "--showconfig") else "", tmp_path)
    assert [fault.what for fault in found] == lines
    for fault in found:
        sentence, command = nextboot.said(fault, "6.1", apt=True)
        assert fault.what in sentence
        assert "modprobe.d" in command


def test_a_machine_without_the_driver_has_none_to_lose(tmp_path: Path) -> None:
    assert nextboot.of_driver("6.1", lambda *_: "", tmp_path) == []
