"""A simulated machine fills its disk and its GPU's state with traps for root of the computer, who reads them.

Held where nothing outside is read or written, nothing on the disk is run, and the reader neither waits nor dies.
"""

from __future__ import annotations

import fcntl
import hashlib
import lzma
import os
import pwd
import shutil
import subprocess
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from kernelmodule import loaded, module, newest_kernel, options, small
from packagearchive import INDEX, Archive, given_to, needs_gpg

from gpuprep import errors
from gpuprep.sim import (
    disk,
    faults,
    ids,
    nvmlstate,
    store,
    supervisor,
)

SECRET = "options nvidia NVreg_Secret=of-the-computer\n"
MODULES = "lib/modules/6.1/updates/dkms"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder of the computer with a file that no machine may see."""
    folder = tmp_path / "computer"
    folder.mkdir()
    (folder / "secret.conf").write_text(SECRET)
    (folder / "vmlinuz-9.9.9-secret").touch()
    (folder / "secret_1_amd64.deb").write_text(SECRET)
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / "root"
    for name in ("etc/modprobe.d", "boot", MODULES, "var/cache/apt/archives"):
        (path / name).mkdir(parents=True)
    return path


def up_to(outside: Path) -> str:
    """A relative link that leaves any folder."""
    return "../" * 40 + str(outside).lstrip("/")


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def replace(path: Path, target: str) -> None:
    path.rmdir()
    path.symlink_to(target)


def two_links(root: Path, out: Path) -> None:
    (root / "x").symlink_to("/..")
    (root / "etc/modprobe.d/a.conf").symlink_to(f"/x/..{out}/secret.conf")


LINKS: dict[str, Callable[[Path, Path], None]] = {
    "file_absolute": lambda root, out: (root / "etc/modprobe.d/a.conf").symlink_to(out / "secret.conf"),
    "file_relative": lambda root, out: (root / "etc/modprobe.d/a.conf").symlink_to(f"{up_to(out)}/secret.conf"),
    "folder_absolute": lambda root, out: replace(root / "etc/modprobe.d", str(out)),
    "folder_relative": lambda root, out: replace(root / "etc/modprobe.d", up_to(out)),
    "by_way_of_proc": lambda root, out: (root / "etc/modprobe.d/a.conf").symlink_to(
        f"/proc/self/root{out}/secret.conf"
    ),
    "two_links": two_links,
    "boot_absolute": lambda root, out: replace(root / "boot", str(out)),
    "boot_relative": lambda root, out: replace(root / "boot", up_to(out)),
}


@pytest.mark.parametrize("plant", LINKS.values(), ids=LINKS.keys())
def test_a_link_leads_nowhere(plant: Callable[[Path, Path], None], root: Path, outside: Path) -> None:
    plant(root, outside)
    assert options(root) == {}
    assert newest_kernel(root) == ""


def deep(path: Path, depth: int) -> None:
    """Folders one in the other, deeper than a path can be long."""
    here = os.open(path, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


def link_to_a_pipe(root: Path) -> None:
    os.mkfifo(root / "p")
    (root / "etc/modprobe.d/a.conf").symlink_to("/p")


def endless(root: Path) -> None:
    with (root / "etc/modprobe.d/a.conf").open("w") as file:
        file.truncate(1 << 40)


TRAPS: dict[str, Callable[[Path], object]] = {
    "pipe_that_nobody_writes": lambda root: os.mkfifo(root / "etc/modprobe.d/a.conf"),
    "link_to_a_pipe": link_to_a_pipe,
    "loop_of_links": lambda root: (root / "etc/modprobe.d/a.conf").symlink_to("a.conf"),
    "folder_named_as_a_file": lambda root: (root / "etc/modprobe.d/a.conf").mkdir(),
    "endless_file": endless,
    "bytes_that_are_no_text": lambda root: (root / "etc/modprobe.d/a.conf").write_bytes(os.urandom(5000)),
    "name_that_is_no_text": lambda root: (root / "etc/modprobe.d" / os.fsdecode(b"\xff\xfe.conf")).touch(),
    "folders_too_deep": lambda root: deep(root / MODULES, 1200),
    "module_is_a_pipe": lambda root: os.mkfifo(root / MODULES / "nvidia-other.ko"),
}


@pytest.mark.parametrize("plant", TRAPS.values(), ids=TRAPS.keys())
def test_a_trap_neither_holds_nor_kills_the_reader(plant: Callable[[Path], object], root: Path) -> None:
    plant(root)
    (root / MODULES / "nvidia.ko").write_bytes(module())
    wanted = loaded(root)
    assert wanted is not None
    assert (wanted.version, wanted.licence, wanted.path) == ("550.163.01", "NVIDIA", f"/{MODULES}/nvidia.ko")
    disk.remove(root)
    assert not root.exists()


@pytest.mark.parametrize(
    "name",
    [
        "vmlinuz-9\nnvidia 1",
        "vmlinuz-" + "9" * 240,
        "vmlinuz-9\x1b[2J",
        "vmlinuz-9\u202e",
        "vmlinuz-9 9",
        "vmlinuz-9$(id)",
    ],
    ids=["newline", "long", "escape", "bidi", "blank", "command"],
)
def test_a_kernel_of_such_a_name_is_none(root: Path, name: str) -> None:
    (root / "boot" / name).touch()
    (root / "boot/vmlinuz-6.1").touch()
    assert newest_kernel(root) == "6.1"


def test_modinfo_of_the_disk_is_not_run(root: Path, tmp_path: Path) -> None:
    """It would run as root of the computer, and a chroot holds nobody who is root."""
    for folder in ("usr/sbin", "sbin", "bin"):
        (root / folder).mkdir(parents=True, exist_ok=True)
        program = root / folder / "modinfo"
        program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        program.chmod(0o755)
    (root / MODULES / "nvidia.ko.xz").write_bytes(lzma.compress(module()))
    wanted = loaded(root)
    assert wanted is not None
    assert wanted.version == "550.163.01"
    assert not (tmp_path / "ran").exists()


GOOD = module()
MODULE_FILES = {
    "empty": ("nvidia.ko", b""),
    "text": ("nvidia.ko", b"#!/bin/sh\n"),
    "cut_off": ("nvidia.ko", GOOD[:-70]),
    "header_only": ("nvidia.ko", GOOD[:64]),
    "sections_far_outside": ("nvidia.ko", GOOD[:0x28] + b"\xff" * 8 + GOOD[0x30:]),
    "sixty_thousand_sections": ("nvidia.ko", GOOD[:0x3C] + b"\xff\xff" + GOOD[0x3E:]),
    "names_outside": ("nvidia.ko", GOOD[:0x3E] + b"\xff\xff"),
    "thirty_two_bits": ("nvidia.ko", b"\x7fELF\x01" + GOOD[5:]),
    "no_xz": ("nvidia.ko.xz", GOOD),
    "no_gz": ("nvidia.ko.gz", GOOD),
    "bad_gz_inside": ("nvidia.ko.gz", b"\x1f\x8b\x08\0\0\0\0\0\0\0" + zlib.compress(GOOD)),
    "no_zst": ("nvidia.ko.zst", GOOD),
    "version_with_a_newline": ("nvidia.ko", module("version=550.1\nnvidia 1\0")),
    "version_is_a_path": ("nvidia.ko", module("version=../../etc/passwd\0")),
    "version_without_end": ("nvidia.ko", module("version=" + "9" * 100_000 + "\0")),
}


@pytest.mark.parametrize(("name", "content"), MODULE_FILES.values(), ids=MODULE_FILES.keys())
def test_a_damaged_module_is_one_plain_error(root: Path, name: str, content: bytes) -> None:
    (root / MODULES / name).write_bytes(content)
    with pytest.raises(errors.SimError) as caught:
        loaded(root)
    assert f"/{MODULES}/{name}" in caught.value.what


def test_a_module_that_unpacks_without_end_is_cut(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small(monkeypatch, 2 << 20)
    (root / MODULES / "nvidia.ko.xz").write_bytes(lzma.compress(bytes(4 << 20), preset=0))
    with pytest.raises(errors.SimError, match="more than 2 MiB"):
        loaded(root)


# What a machine leaves as a downloaded package, and whether the pool of all machines takes it.
PACKAGES: dict[str, Callable[[Path, Path], object]] = {
    "link_absolute": lambda archives, out: (archives / "a_1_all.deb").symlink_to(out / "secret_1_amd64.deb"),
    "link_relative": lambda archives, out: (archives / "a_1_all.deb").symlink_to(f"{up_to(out)}/secret_1_amd64.deb"),
    "pipe": lambda archives, _out: os.mkfifo(archives / "a_1_all.deb"),
    "folder": lambda archives, _out: (archives / "a_1_all.deb").mkdir(),
    "name_with_an_escape": lambda archives, _out: (archives / "a\x1b[2J_1_all.deb").touch(),
    "hidden_name": lambda archives, _out: (archives / ".a_1_all.deb").touch(),
    "name_of_an_option": lambda archives, _out: (archives / "--force_1.deb").touch(),
    "archives_are_a_link": lambda archives, out: replace(archives, str(out)),
    "archives_are_a_link_upwards": lambda archives, out: replace(archives, up_to(out)),
}


@needs_gpg
@pytest.mark.parametrize("plant", PACKAGES.values(), ids=PACKAGES.keys())
def test_what_is_no_package_gets_to_no_other_machine(
    plant: Callable[[Path, Path], object], archive: Archive, outside: Path, tmp_path: Path
) -> None:
    """Though Debian has signed a package of each content."""
    stanzas = (
        f"Package: a\nVersion: 1\nArchitecture: all\nSize: {len(text)}\nSHA256: {sha256(text)}\n\n"
        for text in (SECRET, "")
    )
    (archive.lists / INDEX).write_text("".join(stanzas))
    archive.release("archive")
    (archive.archives / "a_1_all.deb").write_text(SECRET)
    assert archive.harvest() == 1
    for folder in (archive.archives, tmp_path / "cache"):
        shutil.rmtree(folder)
    archive.archives.mkdir()
    plant(archive.archives, outside)
    assert archive.harvest() == 0
    assert given_to(tmp_path / "other") == 0


STATES: dict[str, bytes] = {
    "bus_id_leads_upwards": b"[system]\ndriver = 550.1\n[gpu.0]\nbus_id = 0000../../../../../computer\n",
    "bus_id_is_absolute": b"[system]\ndriver = 550.1\n[gpu.0]\nbus_id = 0000/computer\n",
    "bus_id_is_empty": b"[system]\ndriver = 550.1\n[gpu.0]\nbus_id = \n",
    "no_bus_id": b"[system]\ndriver = 550.1\n[gpu.0]\nname = x\n",
    "no_system": b"[gpu.0]\nbus_id = 00000000:00:04.0\n",
    "no_sections": b"driver = 550.1\n",
    "two_sections_of_a_name": b"[system]\n[system]\n",
    "bytes_that_are_no_text": b"\xff\xfe\0\0[",
    "endless": b"[system]\n" + b"a = b\n" * 400_000,
}


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """It runs, for all that is known of it: a process of this computer has a child, its init."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    store.write(store.Description("m", "debian13", "/base", ("t4",), 2222))
    folder = store.folder("m")
    (folder / "run/nvml").mkdir(parents=True)
    (folder / "sys/bus/pci/devices").mkdir(parents=True)
    store.record_process("m", "nspawn", os.getpid())
    with subprocess.Popen(["sleep", "infinity"]) as init:
        yield folder
        init.kill()


@pytest.mark.parametrize("kind", ["pcie_x4", "gpu_missing"])
@pytest.mark.parametrize("state", STATES.values(), ids=STATES.keys())
def test_a_state_of_the_machines_own_making_moves_nothing_of_the_computer(
    machine: Path, outside: Path, state: bytes, kind: str
) -> None:
    (machine / "run/nvml/state").write_bytes(state)
    with pytest.raises(errors.SimError):
        faults.play("m", kind)
    assert sorted(path.name for path in outside.iterdir()) == [
        "secret.conf", "secret_1_amd64.deb", "vmlinuz-9.9.9-secret",
    ]  # fmt: skip


@pytest.mark.parametrize("state", STATES.values(), ids=STATES.keys())
def test_a_boot_after_it_writes_the_state_anew(machine: Path, state: bytes) -> None:
    (machine / "run/nvml/state").write_bytes(state)
    nvmlstate.write_boot(machine / "run/nvml", None, [])
    with nvmlstate.changed(machine / "run/nvml") as written:
        assert written.sections() == ["system"]


def test_a_lock_that_is_never_let_go_is_one_plain_error(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvmlstate, "LOCK_SECONDS", 0.2)
    (machine / "run/nvml/state").write_bytes(STATES["no_bus_id"])
    with (machine / "run/nvml/state").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(errors.SimError, match="lock"):
            faults.play("m", "pcie_x4")


@contextmanager
def an_account(number: int, _folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    accounts = [*pwd.getpwall(), pwd.struct_passwd(("somebody", "x", number, 100, "", "/", "/bin/sh"))]
    monkeypatch.setattr(pwd, "getpwall", lambda: accounts)
    yield


@contextmanager
def containers_of_an_account(number: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (folder / "subuid").write_text(f"somebody:{number}:1\n")
    monkeypatch.setattr(ids, "SUBORDINATE", (str(folder / "subuid"),))
    yield


@contextmanager
def a_running_container(number: int, _folder: Path, _monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if os.getuid() != 0:
        pytest.skip("only root may become another user")
    with subprocess.Popen(["sleep", "infinity"], user=number) as process:
        yield
        process.kill()


@contextmanager
def another_machine(number: int, _folder: Path, _monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    folder = store.folder("other")
    folder.mkdir()
    store.write_json(folder / "ids.json", {"first": number})
    yield


# Ids of this computer that a machine must not get.
TAKEN = (an_account, containers_of_an_account, a_running_container, another_machine)


@pytest.mark.parametrize("taken", TAKEN)
def test_ids_that_somebody_has_are_nobodys_machine(
    machine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: Callable[..., AbstractContextManager[None]]
) -> None:
    assert machine.is_dir()
    first = ids.of_machine("m")
    assert ids.of_machine("m") == first, "a machine keeps its range"
    with taken(first + 1000, tmp_path, monkeypatch):
        other = ids.of_machine("m")
    assert other % ids.COUNT == 0
    assert abs(other - first) >= ids.COUNT


def test_subordinate_ids_are_read_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "subuid").write_text("me:100000:65536\nbad:line\n\nother:x:y\n# no\n1000:624288:65536\n")
    monkeypatch.setattr(ids, "SUBORDINATE", (str(tmp_path / "subuid"), str(tmp_path / "none")))
    assert ids._subordinate() == [(100000, 65536), (624288, 65536)]


def test_of_what_gpuprep_keeps_a_machine_writes_the_state_of_its_gpus_alone(tmp_path: Path) -> None:
    """Root of the computer reads the rest. The attacks on a machine that runs: test_sim_machine.py."""
    words = supervisor.nspawn_command(store.Description("m", "debian13", "", ("t4",), 2222), tmp_path, 1 << 20)
    writable = [word for word in words if word.startswith("--bind=")]
    assert writable == [f"--bind={tmp_path}/run/nvml:/run/gpuprep-sim/nvml"]
    assert f"--bind-ro={tmp_path}/run:/run/gpuprep-sim" in words
    assert f"--private-users={1 << 20}:65536" in words, "its root is nobody here"


def test_what_a_machine_says_on_its_console_does_not_fill_the_disk(tmp_path: Path) -> None:
    (tmp_path / "said").write_bytes(bytes(3 * supervisor.MOST_CONSOLE))
    with (tmp_path / "said").open("rb") as said:
        supervisor._log(said, tmp_path / "console.log")
        assert said.read() == b"", "read to its end: the machine is never held up"
    assert (tmp_path / "console.log").stat().st_size == supervisor.MOST_CONSOLE
