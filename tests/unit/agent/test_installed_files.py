"""Which files are the certified ones: digests, manifests, modprobe's and apt's own reading."""

from __future__ import annotations

import json
import os
from pathlib import Path

import agentreadings
import pytest

from gpuprep import records
from gpuprep.agent.facts import cuda, digests, modprobe
from gpuprep.agent.facts.manifest import is_intact


def test_a_digest_is_read_once_for_each_file_and_again_when_one_byte_changed(tmp_path: Path) -> None:
    library, cache, agent = tmp_path / "libcuda.so.550", tmp_path / "digests.json", tmp_path / "agent"
    agent.mkdir()
    library.write_bytes(b"a" * 100)
    agentreadings.remember_digest(cache, library, "remembered")
    assert digests.Digests(cache, agent).of(library) == "remembered"
    with library.open("r+b") as file:
        file.write(b"b")
    assert digests.Digests(cache, agent).of(library) == digests.sha256(library)


def test_a_torn_cache_is_as_none_and_what_is_not_asked_for_is_forgotten(tmp_path: Path) -> None:
    library, cache, agent = tmp_path / "library", tmp_path / "digests.json", tmp_path / "agent"
    agent.mkdir()
    library.write_text("content")
    cache.write_text('{"/gone:1:2": "ab')
    read = digests.Digests(cache, agent)
    assert read.of(library) == digests.sha256(library)
    read.keep()
    assert [key.split(":")[0] for key in json.loads(cache.read_text())] == [str(library)]


def test_what_is_remembered_is_readable_by_all_and_needs_no_room(tmp_path: Path) -> None:
    """A umask that narrowed the folder is repaired where nothing is to be written; a write that fails costs nothing."""
    library, folder, agent = tmp_path / "library", tmp_path / "gpuprep", tmp_path / "agent"
    agent.mkdir()
    library.write_text("content")
    cache = folder / "digests.json"
    for _ in range(2):
        read = digests.Digests(cache, agent)
        read.of(library)
        read.keep()
        assert folder.stat().st_mode & 0o777 == 0o755
        folder.chmod(0o700)
    cache.unlink()
    cache.mkdir()
    read = digests.Digests(cache, agent)
    assert read.of(library) == digests.sha256(library)
    read.keep()
    assert [path.name for path in folder.iterdir()] == ["digests.json"]


def test_without_an_agent_nothing_is_hashed_and_nothing_is_left_behind(tmp_path: Path) -> None:
    read = digests.Digests(tmp_path / "digests.json", tmp_path / "agent")
    found = read.of_all(["/bin/sh"])
    assert isinstance(found, records.Missing)
    assert found.reason == "not_installed"
    read.of(Path("/bin/sh"))
    read.keep()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_gone_is_a_reading_that_failed(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    found = digests.Digests(tmp_path / "digests.json", tmp_path / "agent").of_all([str(tmp_path / "gone")])
    assert not isinstance(found, records.Missing)
    assert isinstance(found[str(tmp_path / "gone")], records.Missing)


@pytest.mark.parametrize("content", ["other", "contents"], ids=["a changed byte", "another size"])
def test_cudnns_manifest_names_size_and_digest(tmp_path: Path, content: str) -> None:
    path = tmp_path / "libcudnn.so.9"
    path.write_text("cudnn")
    manifest = {"files": {"libcudnn.so.9": {"size": 5, "sha256": digests.sha256(path)}}}
    assert is_intact(tmp_path, manifest) is True
    path.write_text(content)
    assert is_intact(tmp_path, manifest) is False


# ---------------------------------------------------------------- modprobe


def test_modprobe_reads_all_files_by_name_and_the_command_line_last(tmp_path: Path) -> None:
    etc, lib = tmp_path / "etc", tmp_path / "lib"
    etc.mkdir()
    lib.mkdir()
    (etc / "gpuprep-nvidia.conf").write_text("options nvidia-current NVreg_X=0\n# options nvidia NVreg_Y=1\n")
    (etc / "zz.conf").write_text("options nvidia \\\n  NVreg_X=1\nblacklist snd\nalias pci:v0 nvidia\n")
    (lib / "zz.conf").write_text("blacklist nvidia\n")  # hidden by the one of /etc
    (lib / "aa.conf").write_text("install nouveau /bin/false\noptions nvidia-drm modeset=1\n")
    (etc / ".hidden.conf").write_text("blacklist nouveau\n")
    (lib / "off.conf").write_text("blacklist nouveau\n")
    (etc / "off.conf").symlink_to("/dev/null")  # how a file of a package is put out of force
    (tmp_path / "cmdline").write_text("quiet modprobe.blacklist=nouveau,snd nvidia-current.NVreg_Z=2\n")
    found = agentreadings.modprobe_lines((etc, lib), tmp_path / "cmdline")
    assert isinstance(found, tuple)
    assert [(line.file, line.words) for line in found] == [
        (str(lib / "aa.conf"), ("install", "nouveau", "/bin/false")),
        (str(etc / "gpuprep-nvidia.conf"), ("options", "nvidia_current", "NVreg_X=0")),
        (str(etc / "zz.conf"), ("options", "nvidia", "NVreg_X=1")),
        (str(tmp_path / "cmdline"), ("blacklist", "nouveau")),
        (str(tmp_path / "cmdline"), ("options", "nvidia_current", "NVreg_Z=2")),
    ]


NOUVEAU, CONF = "kernel/drivers/gpu/drm/nouveau/nouveau.ko.xz", "etc/modprobe.d/blacklist.conf"


@pytest.mark.parametrize(
    ("index", "listing", "module", "loads"),
    [
        ("kernel/drivers/net/veth.ko", [NOUVEAU], "nouveau", None),
        (NOUVEAU, ["usr/bin/true", CONF], "nouveau", None),
        (NOUVEAU, [NOUVEAU, CONF], "nouveau", False),
        (NOUVEAU, [NOUVEAU, "etc/modprobe.d/other.conf"], "nouveau", True),
        (NOUVEAU, [NOUVEAU, CONF], "nvidia", True),
    ],
)
def test_an_initramfs_loads_nouveau_where_it_has_no_blacklist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, index: str, listing: list[str], module: str, loads: bool | None
) -> None:
    """Red Hat's form of the image and of the list; a blacklist that is newer than the image is not in it."""
    (tmp_path / "lib/modules/6.1").mkdir(parents=True)
    (tmp_path / "lib/modules/6.1/modules.dep").write_text(f"{index}:\n")
    (tmp_path / "boot").mkdir()
    image = tmp_path / "boot/initramfs-6.1.img"
    image.write_bytes(b"image")
    conf = tmp_path / "blacklist.conf"
    conf.write_text("blacklist nouveau\n")
    os.utime(conf, (1e9, 1e9))
    (tmp_path / "lsinitrd").write_text(
        "#!/bin/sh\ncat <<'E'\n" + "\n".join(f"-rw-r--r-- 1 {x}" for x in listing) + "\nE\n"
    )
    (tmp_path / "lsinitrd").chmod(0o755)
    monkeypatch.setattr(modprobe, "IMAGES", (("/boot/initramfs-{kernel}.img", str(tmp_path / "lsinitrd")),))
    lines = (records.ModprobeLine(str(conf), ("blacklist", module)),)
    assert modprobe.nouveau_in_initramfs("6.1", lines, tmp_path) is loads
    if loads is False:
        os.utime(conf, (3e9, 3e9))  # the clock was set back since then
        assert modprobe.nouveau_in_initramfs("6.1", lines, tmp_path) is False
        os.utime(conf, (1e9, 1e9))
        os.utime(image, (1e9 - 1, 1e9 - 1))
        assert modprobe.nouveau_in_initramfs("6.1", lines, tmp_path) is True


@pytest.mark.parametrize(
    ("listing", "size", "module_at", "image_at", "stale"),
    [
        ("usr/bin/true", 9, 20, 10, False),  # the driver is not in there
        ("lib/modules/6.1/updates/dkms/nvidia.ko", 6, 20, 10, True),  # built after it
        ("lib/modules/6.1/updates/dkms/nvidia.ko", 9, 20, None, False),  # made after it
        # A clock that was set back left dates of the future: they tell no order.
        ("lib/modules/6.1/updates/dkms/nvidia.ko", 6, 20, 3e9, False),
        ("lib/modules/6.1/updates/dkms/nvidia.ko", 9, 20, 3e9, True),
        ("lib/modules/6.1/updates/dkms/nvidia.ko", 6, 3e9, None, False),
        ("lib/modules/6.1/updates/dkms/nvidia.ko", 9, 3e9, None, True),
        ("lib/modules/6.1/kernel/nvidia-580/nvidia.ko", 9, 5, 10, True),  # a package's, of another size
        ("lib/modules/6.1/kernel/nvidia-580/nvidia.ko", 6, 5, 10, False),  # a package's, the same
        ("lib/modules/6.1/updates/dkms/nvidia-drm.ko", 9, 20, 10, False),
    ],
)
def test_an_initramfs_with_an_older_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listing: str, size: int, module_at: float,
    image_at: float | None,
    stale: bool,
) -> None:  # fmt: skip
    """Both forms of the list have mode, links, owner, group, size, date and path."""
    (tmp_path / "boot").mkdir()
    image, module = tmp_path / "boot/initrd.img-6.1", tmp_path / "nvidia.ko"
    for path, at in ((module, module_at), (image, image_at)):
        path.write_bytes(b"module")
        if at is not None:
            os.utime(path, (at, at))
    (tmp_path / "list").write_text(f"#!/bin/sh\necho '-rw-r--r--   1 root     root  {size} Nov 29 10:00 {listing}'\n")
    (tmp_path / "list").chmod(0o755)
    monkeypatch.setattr(modprobe, "IMAGES", (("/boot/initrd.img-{kernel}", str(tmp_path / "list")),))
    assert modprobe.stale_in_initramfs("6.1", str(module), tmp_path) == (listing if stale else None)


# ---------------------------------------------------------------- nvcc's compiler


@pytest.mark.parametrize(
    ("says", "code", "refused"),
    [
        ("", 0, None),
        ("In file included from x.h:82:\ncrt/host_config.h:143:2: error: #error -- unsupported GNU version!", 1,
         "crt/host_config.h:143:2: error: #error -- unsupported GNU version!"),
        ("gcc: fatal error: cannot execute 'cc1plus'\ncompilation terminated.", 1,
         "gcc: fatal error: cannot execute 'cc1plus'"),
        ("sh: 1: gcc: not found", 127, "sh: 1: gcc: not found"),
        ("", 1, "it says nothing"),
        ("this nvcc is a stand-in of a simulated machine and compiles nothing", 1, records.NOT_READ),
    ],
)  # fmt: skip
def test_a_compiler_that_nvcc_refuses_is_said_in_its_own_words(
    tmp_path: Path, says: str, code: int, refused: records.OptStr
) -> None:
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(f"#!/bin/sh\ncat >&2 <<'E'\n{says}\nE\nexit {code}\n")
    nvcc.chmod(0o755)
    assert cuda.compiler_refused(str(nvcc), "/usr/bin:/bin") == refused
    unread = cuda.compiler_refused(str(tmp_path / "none"), "/usr/bin:/bin")
    assert isinstance(unread, records.Missing)
    assert unread.reason == "command_not_found"


# ---------------------------------------------------------------- apt


def test_pins_are_read_as_apt_reads_them(tmp_path: Path) -> None:
    folder = tmp_path / "preferences.d"
    folder.mkdir()
    (tmp_path / "preferences").write_text("# all\n\nPackage: *\nPin: release a=stable\nPin-Priority: 500\n")
    (folder / "nvidia.pref").write_text("Package: nvidia-*\n libcuda1\nPin: version 550.*\nPin-Priority: 1001\n")
    (folder / "cuda.txt").write_text("Package: cuda\nPin: version 12.*\nPin-Priority: 1001\n")
    (folder / "old.bak").write_text("nonsense\n")
    found = agentreadings.apt_facts(tmp_path / "preferences", folder)
    assert found.pins == (records.AptPin(str(folder / "nvidia.pref"), "nvidia-* libcuda1", "version 550.*", "1001"),)
    assert found.passed_over == (f"{folder / 'cuda.txt'}: apt reads files that end in .pref or have no ending",)


@pytest.mark.parametrize(
    ("stanza", "why"),
    [
        ("Package: libcuda1\nPin: version 550.*\n", "has no Pin-Priority"),
        ("Pin: version 550.*\nPin-Priority: 1\n", "has no Package"),
        ("Package: libcuda1\nPin: version 550.*\nPin-Priority: high\n", "'high', which is no number"),
        ("Package: libcuda1\nPin: version 550.*\nPin-Priority: 0\n", "'0', which is no number"),
        ("Package: libcuda1\nPin: 550\nPin-Priority: 1\n", "has the Pin '550', which apt does not know"),
    ],
)
def test_malformed_pins_are_named_with_their_line(stanza: str, why: str, tmp_path: Path) -> None:
    file = tmp_path / "preferences"
    file.write_text("# a comment\n\n" + stanza)
    found = agentreadings.apt_facts(file, tmp_path / "preferences.d")
    assert found.pins == ()
    (line,) = found.malformed
    assert line.startswith(f"{file}: the stanza at line 3 ")
    assert why in line
