"""The wish made concrete, or refused: by name, all at once, each with the nearest thing that works."""

from __future__ import annotations

import dataclasses
import json
from contextlib import nullcontext
from typing import Any

import builders
import pytest
from builders import PROFILES, bare_snapshot, finished_snapshot, load, resolved, with_parts
from places import TESTS

from gpuprep import errors, records
from gpuprep.desired import loading, profile, state


def refusals(wish: profile.Profile, snapshot: records.Snapshot | None = None) -> tuple[str, ...]:
    with pytest.raises(errors.PlanRefused) as caught:
        state.resolve(wish, snapshot or bare_snapshot(gpus=[wish.gpus[0]]))
    return caught.value.reasons


def machine(snapshot: records.Snapshot, part: str, **values: Any) -> records.Snapshot:
    return dataclasses.replace(snapshot, **{part: dataclasses.replace(getattr(snapshot, part), **values)})


# ---------------------------------------------------------------- what auto becomes


@pytest.mark.parametrize("gpu", PROFILES)
@pytest.mark.parametrize(
    ("os", "branch", "cuda", "major"), [("debian12", "535", "11.8", "11"), ("debian13", "550", "12.4", "12")]
)
def test_auto_takes_what_the_archive_has(gpu: str, os: str, branch: str, cuda: str, major: str) -> None:
    wanted = resolved(gpu, os)
    assert (wanted.driver.version, wanted.cuda.version, wanted.cuda.major) == (branch, cuda, major)
    assert wanted.driver.flavour == "proprietary"
    assert set(wanted.cudnn.sha256) >= {"x86_64"}


def test_max_clocks_are_the_pair_of_each_variant() -> None:
    wanted = state.resolve(load("v100"), bare_snapshot(gpus=["1db1", "1df6"]))
    models = state.tuning_document(wanted)["models"]
    assert models["1db1"] == {"memory_mhz": 877, "graphics_mhz": 1530}
    assert models["1df6"] == {"memory_mhz": 1107, "graphics_mhz": 1597}


def test_one_volta_decides_for_all_gpus_of_a_host() -> None:
    wish = load("t4", gpus=("t4", "v100"), driver={"flavour": "auto"})
    wanted = state.resolve(wish, bare_snapshot(gpus=["t4", "v100"]))
    assert wanted.driver.flavour == "proprietary"
    assert [gpu.model for gpu in wanted.gpus] == ["t4", "v100"]


def test_an_exact_driver_version_stays_exact() -> None:
    wanted = state.resolve(load("t4", driver={"version": "550.163.01"}), bare_snapshot())
    assert wanted.driver.version == "550.163.01"


@pytest.mark.parametrize("release", ["debian12", "debian13"])
def test_open_modules_that_do_not_compile_are_refused(release: str) -> None:
    (reason,) = refusals(load("a100", driver={"flavour": "open"}), bare_snapshot(release, gpus=["a100"]))
    assert reason.startswith("driver.flavour: the open kernel modules 5")
    assert "does not compile" in reason
    assert "works: driver.flavour proprietary" in reason


def test_nothing_is_left_auto() -> None:
    wanted = with_parts(resolved("a100"), codec={"nvenc": "?"})  # of NVENC `auto` is itself a wish
    words = json.dumps(dataclasses.asdict(wanted), default=str)
    assert '"proprietary"' in words
    assert '"auto"' not in words


def test_a_finished_host_needs_no_more_room() -> None:
    wanted = resolved()
    tight = dataclasses.replace(finished_snapshot(wanted), disk_free_mib={"/": 10})
    assert state.resolve(load(), tight).min_free_mib == {}


# ---------------------------------------------------------------- the build key


def test_the_build_key_names_what_makes_a_build() -> None:
    codec = profile.CodecWish(
        "12.1.14.0", "7.1.5", "/opt/gpuprep", False, "auto", {"encoders": ("b", "a"), "decoders": ("c",)}
    )
    key = state.build_key("debian-13", "x86_64", codec)
    # printf '{"arch":"x86_64","ffmpeg":"7.1.5","headers":"12.1.14.0","npp":false,"os":"debian-13",'\
    #        '"parts":{"decoders":["c"],"encoders":["a","b"]}}' | sha256sum
    assert key == "f5784c1f01bb"
    other_order = {"decoders": ("c",), "encoders": ("a", "b")}
    elsewhere = dataclasses.replace(codec, parts=other_order, prefix="/srv", nvenc="required")
    assert key == state.build_key("debian-13", "x86_64", elsewhere)
    assert key != state.build_key("debian-12", "x86_64", codec)
    assert key != state.build_key("debian-13", "x86_64", dataclasses.replace(codec, npp=True))


# ---------------------------------------------------------------- refused by the profile alone


@pytest.mark.parametrize(
    ("wish", "key", "says", "works"),
    [
        (load("v100", driver={"flavour": "open"}), "driver.flavour", "V100 (Volta) cannot use the open", "proprietary"),
        (load("v100", driver={"version": "590"}), "driver.version", "R580 is the last driver branch", "580"),
        (load("v100", cuda={"version": "13.0"}), "cuda.version", "CUDA 12.9 is the last", "12.9 or older"),
        (load("v100", cudnn={"version": "9.11.0.98"}), "cudnn.version", "cuDNN 9.10.2 is the last", "9.10.2.21"),
        (load("a100", codec={"nvenc": "required"}), "codec.nvenc", "A100 has no NVENC engine", "T4"),
        (load("t4", driver={"version": "550"}, codec={"headers": "13.0.19.0"}), "codec.headers", "driver 570", "12.1"),
        (load("t4", codec={"headers": "11.1.5.2"}), "codec.headers", "FFmpeg 7.1.5 refuses", "with headers 12.1.14.0"),
        (load("t4", codec={"ffmpeg": "8.1.2"}), "codec.ffmpeg", "no FFmpeg 8.1.2", "7.1.5"),
        (load("t4", codec={"npp": True}, cuda={"version": "13.0"}), "codec.npp", "libnpp of CUDA 13", "scale_cuda"),
        (load("t4", codec={"npp": True, "ffmpeg": "9.0.2"}), "codec.npp", "9.0 removed", "scale_cuda"),
        (load("t4", codec={"npp": True}, cuda={"version": "none"}), "codec.npp", "cuda.version is none", "auto"),
        (
            load("t4", cuda={"version": "none"}, cudnn={"version": "9.10.2.21"}),
            "cudnn.version",
            "cuDNN needs CUDA",
            "cuda.version: auto",
        ),
        (load("t4", driver={"version": "550"}, cuda={"version": "13.0"}), "cuda.version", "branch 580", "CUDA 12"),
        (load("t4", driver={"version": "620", "flavour": "proprietary"}), "driver.flavour", "no proprietary", "open"),
        (load("a100", driver={"version": "418"}), "driver.version", "450 or newer", "auto"),
        (load("a100", cuda={"version": "10.2"}), "cuda.version", "first CUDA", "11.0 or newer"),
        (load("t4", gpus=("rtx",)), "gpus", "no GPU model 'rtx'", "t4"),
        (load("t4", codec={"parts": {"filters": ("pad_cuda",)}}), "codec.parts", "pad_cuda since 8.1", "a list"),
        (load("t4", codec={"parts": {"filters": ("scale_npp",)}}), "codec.parts", "needs libnpp", "scale_cuda"),
        (load("t4", codec={"parts": {"encoders": ("libx264",)}}), "codec.parts", "libx264 needs x264", "with x264"),
        (load("t4", codec={"parts": {"protocols": ("https",)}}), "codec.parts", "gnutls or openssl", "with gnutls"),
        (load("t4", codec={"libraries": ("gnutls", "openssl")}), "codec.libraries", "one TLS library", "gnutls alone"),
        (load("t4", codec={"libraries": ("x264",), "npp": True}), "codec.npp", "nonfree and x264", "scale_cuda"),
        (load("t4", codec={"libraries": ("freetype",), "parts": {"filters": ("drawtext",)}}), "codec.libraries",
         "needs harfbuzz", "with harfbuzz"),
    ],
)  # fmt: skip
def test_refused_by_the_profile_alone(wish: profile.Profile, key: str, says: str, works: str) -> None:
    lines = [line for line in state.check_profile(wish) if line.startswith(f"{key}: ") and says in line]
    assert len(lines) == 1, state.check_profile(wish)
    assert works in lines[0].split("; works: ")[1]


@pytest.mark.parametrize("name", ["base", "t4", "v100", "a100"])
def test_shipped_profiles_can_be(name: str) -> None:
    assert state.check_profile(load(name)) == []


def test_all_reasons_at_once() -> None:
    wish = load(
        "v100",
        driver={"flavour": "open", "version": "590"},
        cuda={"version": "13.0"},
        cudnn={"version": "9.11.0.98"},
    )
    reasons = refusals(wish)
    assert {reason.split(":")[0] for reason in reasons} >= {
        "driver.flavour",
        "driver.version",
        "cuda.version",
        "cudnn.version",
    }


# ---------------------------------------------------------------- refused on this host


def broken(name: str) -> records.Snapshot:
    bare = bare_snapshot()
    cases = {
        "no gpu": dataclasses.replace(bare, pci_gpus=()),
        "another model": bare_snapshot(gpus=["v100"]),
        "two models": bare_snapshot(gpus=["t4", "v100"]),
        "os": bare_snapshot("fedora42"),
        "architecture": machine(bare_snapshot("amzn2023"), "os", architecture="aarch64"),
        "runfile": machine(bare, "driver", runfile="/usr/bin/nvidia-uninstall"),
        "secure boot": machine(bare, "kernel", secure_boot=True),
        "no headers": machine(bare, "kernel", headers_available=False),
        "nvswitch": dataclasses.replace(bare, nvswitches=6),
        "clock": dataclasses.replace(bare, clock_ahead_seconds=-7200),
        "disk": dataclasses.replace(bare, disk_free_mib={"/": 5000, "/usr": 5000, "/var": 5000}),
    }
    return cases[name]


@pytest.mark.parametrize(
    ("case", "key", "says", "works"),
    [
        ("no gpu", "host.gpus", "no NVIDIA GPU", "g4dn"),
        ("another model", "gpus", "GPU is V100", "--profile v100"),
        ("two models", "gpus", "GPU is V100", "gpus: [t4, v100]"),
        ("os", "host.os", "unsupported OS fedora 42 (Fedora Linux 42 (Cloud Edition)): the catalogue has no", "Debian"),
        (
            "architecture",
            "host.os",
            "no driver for Amazon Linux on arm64",
            "Amazon Linux 2023 on x86_64, or Debian 12, ",
        ),
        ("runfile", "host.driver", "/usr/bin/nvidia-uninstall", "nvidia-uninstall"),
        ("secure boot", "host.secure_boot", "Secure Boot is on", "mokutil"),
        ("no headers", "host.kernel", "6.12.117", "newest kernel"),
        ("nvswitch", "host.nvswitches", "6 NVSwitches", "driver.source: nvidia"),
        ("clock", "host.clock", "the host's clock is 2 hours behind this computer's", "sudo timedatectl set-ntp true"),
        ("disk", "host.disk", "/ has 5000 MiB free, and driver, cuda, cudnn, codec need 12200 MiB", "7200 MiB more"),
    ],
)
def test_refused_on_this_host(case: str, key: str, says: str, works: str) -> None:
    reasons = refusals(load(), broken(case))
    lines = [line for line in reasons if line.startswith(f"{key}: ") and says in line]
    assert len(lines) == 1, reasons
    assert works in lines[0].split("; works: ")[1]
    assert len(reasons) == 1, reasons


def test_a_clock_that_differs_by_minutes_is_no_reason_to_refuse() -> None:
    assert state.resolve(load(), dataclasses.replace(bare_snapshot(), clock_ahead_seconds=3599))


@pytest.mark.parametrize(
    ("parts", "key", "says", "works"),
    [
        (
            {"driver": {"version": "535"}},
            "driver.version",
            "the catalogue has no driver 535 in the archive of Debian 13, only",
            "branch 550",
        ),
        ({"driver": {"version": "560.35.03"}}, "driver.version", "the catalogue has no driver 560.35.03", "branch 550"),
        (
            {"driver": {"source": "nvidia", "version": "580"}},
            "driver.version",
            "the catalogue has no driver 580",
            "branch 595",
        ),
        ({"cuda": {"version": "12.9"}}, "cuda.version", "the catalogue has no CUDA 12.9", "12.4"),
        ({"cudnn": {"version": "9.99.0.1"}}, "cudnn.version", "no cuDNN 9.99.0.1 for CUDA 12", "9.10.2.21"),
        ({"codec": {"headers": "13.0.19.0"}}, "codec.headers", "need driver 570.0", "12.1.14.0"),
        ({"tuning": {"power_limit_watts": 90}}, "tuning.power_limit_watts", "T4 takes 70 W at most", "70"),
        ({"tuning": {"clocks": records.ClockPair(5001, 1900)}}, "tuning.clocks", "5001,1590 MHz", "5001,1590, or max"),
    ],
)
def test_wishes_that_this_host_cannot_have(parts: dict[str, Any], key: str, says: str, works: str) -> None:
    reasons = refusals(load("t4", **parts))
    lines = [line for line in reasons if line.startswith(f"{key}: ") and says in line]
    assert len(lines) == 1, reasons
    assert works in lines[0].split("; works: ")[1]


def test_no_torch_with_cuda_on_debian_12() -> None:
    reasons = refusals(load("t4", extras={"framework": "torch"}), bare_snapshot("debian12"))
    assert reasons == (
        "extras.framework: the catalogue has no torch built with CUDA in the archive of Debian 12; works: none,"
        " or torch on Debian 13",
    )
    assert (
        "python3-torch-cuda"
        in state.resolve(load("t4", extras={"framework": "torch"}), bare_snapshot()).extras.packages
    )


def test_clocks_are_asked_of_the_device_once_it_can_answer() -> None:
    wish = load("t4", tuning={"clocks": records.ClockPair(5001, 1234)})
    snapshot = finished_snapshot(resolved())
    (reason,) = refusals(wish, snapshot)
    assert "gpu 0 (T4) does not support 5001,1234 MHz" in reason
    assert reason.endswith("works: 5001,1230, 5001,1245 or 5001,1215")
    on_device = state.resolve(load("t4", tuning={"clocks": records.ClockPair(5001, 1245)}), snapshot)
    assert on_device.tuning.clocks == records.ClockPair(5001, 1245)


@pytest.mark.parametrize(("watts", "works"), [(20, "35"), (71, "70")])
def test_power_limits_are_asked_of_the_device(watts: int, works: str) -> None:
    wish = load("t4", tuning={"power_limit_watts": watts})
    (reason,) = refusals(wish, finished_snapshot(resolved()))
    assert "from 35 to 70 W" in reason
    assert reason.endswith(f"works: {works}, or default")


def test_a_key_of_secure_boot_that_was_enrolled_counts() -> None:
    snapshot = machine(finished_snapshot(resolved()), "kernel", secure_boot=True)
    assert state.resolve(load(), snapshot).driver.version == "550"


def test_headers_of_the_next_kernel_are_enough() -> None:
    bare = bare_snapshot()
    waiting = machine(
        bare, "kernel", headers_available=False, next_boot=builders.NEWER["debian13"], headers_next_boot=True
    )
    assert state.resolve(load(), waiting).driver.version == "550"


@pytest.mark.parametrize("system", ["rocky", "almalinux", "centos", "rhel"])
def test_headers_that_only_a_vault_has(system: str) -> None:
    """Rocky Linux and AlmaLinux keep those of earlier minor releases, where the role looks."""
    bare = machine(bare_snapshot("rocky9"), "kernel", headers_available=False)
    host = dataclasses.replace(bare, os=dataclasses.replace(bare.os, id=system))
    if system in ("rocky", "almalinux"):
        assert state.resolve(load("t4"), host).driver.version == "580"
        return
    with pytest.raises(errors.PlanRefused, match=r"host\.kernel: no headers for the running kernel"):
        state.resolve(load("t4"), host)


def test_what_cannot_be_read_is_not_refused() -> None:
    unread = machine(
        bare_snapshot(),
        "kernel",
        headers_available=records.Missing("not_installed"),
        secure_boot=records.Missing("not_supported"),
    )
    image = f"linux-image-{unread.kernel.running}"
    cloud = dataclasses.replace(unread, packages={**unread.packages, image: records.Package("6.12", held=False)})
    assert state.resolve(load(), cloud).driver.version == "550"


def test_a_kernel_of_nobodys_package_has_no_headers_even_before_the_lists_are_fetched() -> None:
    unread = machine(bare_snapshot(), "kernel", headers_available=records.Missing("not_installed"))
    (reason,) = refusals(load(), unread)
    assert reason.startswith("host.kernel: no headers for the running kernel")


def test_room_is_counted_by_mount_point() -> None:
    bare = bare_snapshot()
    split = dataclasses.replace(
        bare,
        mounts=(*bare.mounts, records.Mount("/dev/vdb", "/opt", "ext4")),
        disk_free_mib={"/": 20000, "/usr": 20000, "/var": 20000, "/opt": 800, "/tmp": 20000},
    )
    (reason,) = refusals(load(), split)
    assert reason.startswith("host.disk: /opt has 800 MiB free, and cudnn, codec need 2200 MiB there")
    roomy = dataclasses.replace(split, disk_free_mib={"/": 11000, "/opt": 2300})
    assert state.resolve(load(), roomy).min_free_mib == {"/": 10000, "/opt": 2200}


# The system, its driver, the folders with a mount point of their own and its MiB free, and what is refused.
ROOM: list[tuple[str, dict[str, Any], dict[str, tuple[str, int]], str]] = [
    ("ubuntu2404", {"source": "nvidia"}, {"/usr/local": ("/usr/local", 600)}, "/usr/local has 600 MiB free, and cuda"),
    ("debian12", {"source": "nvidia"}, {"/usr/local": ("/usr/local", 600)}, "/usr/local has 600 MiB free, and cuda"),
    ("rocky9", {"source": "nvidia"}, {"/usr/local": ("/usr/local", 600)}, "/usr/local has 600 MiB free, and cuda"),
    ("debian13", {}, {"/usr/local": ("/usr/local", 600)}, ""),  # Debian's own toolkit goes to /usr/lib/cuda
    ("debian13", {}, {"/lib/modules": ("/usr/lib/modules", 90)}, "/usr/lib/modules has 90 MiB free, and driver"),
    ("rocky9", {}, {"/var/cache": ("/var/cache", 1000)}, "/var/cache has 1000 MiB free, and driver, cuda"),
    ("debian13", {}, {"/opt/gpuprep": ("/data", 1000)}, "/data has 1000 MiB free, and cudnn, codec"),
    ("debian13", {}, {"/usr/src": ("/usr/src", 20)}, "/usr/src has 20 MiB free, and driver"),
    ("debian13", {}, {"/tmp": ("/tmp", 20)}, ""),
]


@pytest.mark.parametrize(("system", "driver", "places", "says"), ROOM)
def test_room_is_asked_of_the_folder_that_gets_it(
    system: str, driver: dict[str, Any], places: dict[str, tuple[str, int]], says: str
) -> None:
    bare = bare_snapshot(system)
    folders = {path: records.FolderFacts("/", read_only=False) for path in ("/", "/usr", "/opt", "/var", "/usr/local")}
    folders |= {path: records.FolderFacts(mount, read_only=False) for path, (mount, _) in places.items()}
    free = {**dict.fromkeys(folders, 40000), **{path: mib for path, (_, mib) in places.items()}}
    there = dataclasses.replace(bare, folders=folders, disk_free_mib=free)
    if not says:
        assert state.resolve(load("t4", driver=driver), there).installs
        return
    (reason,) = refusals(load("t4", driver=driver), there)
    assert reason.startswith(f"host.disk: {says} need ")


def test_a_folder_that_cannot_be_written_and_a_prefix_of_the_profile() -> None:
    bare = bare_snapshot()
    closed = dict.fromkeys(("/usr", "/usr/src", "/lib/modules"), records.FolderFacts("/usr", read_only=True))
    here = {**closed, "/srv/media": records.FolderFacts("/srv", read_only=False)}
    there = dataclasses.replace(bare, folders=here, disk_free_mib={"/": 40000, "/usr": 40000, "/srv/media": 50})
    wish = load("t4", codec={"prefix": "/srv/media"})
    prefix, usr = sorted(refusals(wish, there))
    assert prefix.startswith("host.disk: /srv has 50 MiB free, and codec need 100 MiB there")
    assert usr.startswith("host.disk: /usr is mounted read-only, and driver would be written there; works: the fold")


@pytest.mark.parametrize(
    ("folder", "step"),
    [("/var/lib/dkms", "driver"), ("/etc", "driver"), ("/usr/local", "codec"), ("/var/lib", "driver")],
)
def test_a_folder_alone_that_cannot_be_written_is_refused_before_the_first_change(folder: str, step: str) -> None:
    bare = bare_snapshot()
    there = dataclasses.replace(bare, folders={folder: records.FolderFacts(folder, read_only=True)})
    (reason,) = refusals(load("t4"), there)
    assert reason.startswith(f"host.disk: {folder} is mounted read-only, and {step} would be written there")


@pytest.mark.parametrize(("inodes", "refused"), [(12, True), (5000, False), (None, False)])
def test_a_disk_with_room_and_without_inodes_is_refused(inodes: int | None, refused: bool) -> None:
    bare = bare_snapshot()
    there = dataclasses.replace(bare, folders={"/opt/gpuprep": records.FolderFacts("/opt", False, inodes)})
    if refused:
        (reason,) = refusals(load("t4"), there)
        assert reason.startswith("host.disk: /opt has room for 12 more files (inodes), and cudnn, codec need 5000")
    else:
        assert state.resolve(load("t4"), there).installs


@pytest.mark.parametrize(
    ("wish", "mounts"),
    [
        ({}, set()),  # the same driver and the same toolkit: nothing is written anew
        ({"driver": {"source": "nvidia", "version": "570"}}, {"/", "/boot"}),
        ({"driver": {"source": "nvidia", "flavour": "proprietary"}}, {"/", "/boot"}),
        ({"driver": {"source": "nvidia"}, "cuda": {"version": "12.6"}}, {"/"}),
    ],
)
def test_another_branch_flavour_or_toolkit_needs_its_room_again(wish: dict[str, Any], mounts: set[str]) -> None:
    before = load("t4", driver={"source": "nvidia", "version": "580", "flavour": "open"})
    bare = bare_snapshot("ubuntu2404")
    finished = finished_snapshot(state.resolve(before, bare), bare)
    boot = dataclasses.replace(finished, mounts=(*finished.mounts, records.Mount("/dev/vda2", "/boot", "ext4")))
    parts = {"driver": {"source": "nvidia", "version": "580", "flavour": "open"}, **wish}
    assert set(state.resolve(load("t4", **parts), boot).min_free_mib) == mounts
    if "/boot" in mounts:
        full = dataclasses.replace(boot, disk_free_mib={**boot.disk_free_mib, "/boot": 4})
        (reason,) = refusals(load("t4", **parts), full)
        assert reason.startswith("host.disk: /boot has 4 MiB free, and driver and its initramfs need 100 MiB there")


def without_libraries(wish: profile.Profile, system: str) -> list[str]:
    """What is refused of codec.libraries on a bare host of this system."""
    try:
        state.resolve(wish, bare_snapshot(system))
    except errors.PlanRefused as refused:
        return [reason for reason in refused.reasons if reason.startswith("codec.libraries: ")]
    return []


@pytest.mark.parametrize(
    ("system", "lacks"),
    [
        ("debian12", []),
        ("ubuntu2404", []),
        ("rhel9", ["x264", "x265"]),
        ("amzn2023", ["srt", "ass", "x264", "x265"]),
    ],
)
def test_libraries_that_a_system_lacks_are_refused_with_the_reason(system: str, lacks: list[str]) -> None:
    found = without_libraries(load("video", gpus=("t4",)), system)
    assert [line.split(" has no ")[1].split(":")[0] for line in found] == lacks
    assert all("; works: codec.libraries without" in line for line in found)
    assert without_libraries(load("base", gpus=("t4",)), system) == []


def test_openssl_1_is_refused_where_the_system_has_no_newer() -> None:
    own = load("base", codec={"libraries": ("openssl",)})
    (refusal,) = without_libraries(own, "rocky8")
    assert "OpenSSL 1.1.1" in refusal
    assert without_libraries(own, "rhel9") == []


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/sbin:/bin:/usr/sbin:/usr/bin", 1),
        ("/usr/local/sbin:/usr/local/bin:/usr/sbin", 0),
        (None, 0),
        (records.Missing("no_permission", ""), 0),
    ],
)
def test_sudo_that_will_not_find_ffmpeg_is_said_before(path: Any, said: int) -> None:
    host = machine(bare_snapshot("rocky9"), "shells", sudo_path=path)
    notes = [note for note in state.resolve(load("t4"), host).decisions if note.startswith("`sudo ffmpeg`")]
    assert len(notes) == said
    assert all("/sbin:/bin:/usr/sbin:/usr/bin alone" in note for note in notes)
    without = state.resolve(load("t4", codec={"ffmpeg": "none"}), host).decisions
    assert not any("sudo" in note for note in without)


def test_a_gpu_that_a_source_no_longer_serves_is_not_given_its_newest() -> None:
    """Debian 13's repository of NVIDIA begins above the last branch and the last CUDA for Volta."""
    wish = load("v100", driver={"source": "nvidia"}, cudnn={"version": "none"})
    driver, cuda = refusals(wish, bare_snapshot("debian13", ["v100"]))
    assert driver.endswith("works: driver.source: distribution")
    assert cuda.endswith("works: driver.source: distribution with cuda.version: 12.4")


@pytest.mark.parametrize(
    ("os", "parts", "says"),
    [
        ("debian13", {"driver": {"version": "550.200.01"}}, "driver 550.200.01: the catalogue does not list it"),
        ("ubuntu2404", {"driver": {"source": "nvidia", "version": "580.173.99"}}, "driver 580.173.99: the catalogue"),
        ("ubuntu2404", {"driver": {"source": "nvidia", "version": "590.48.01"}}, "driver 590.48.01: the catalogue"),
        ("debian12", {"driver": {"source": "nvidia", "version": "575.57.08"}}, "driver 575.57.08: the catalogue"),
        ("rocky9", {"driver": {"source": "nvidia", "version": "620.1.1"}}, "driver 620.1.1: the catalogue"),
        ("rocky9", {"driver": {"source": "nvidia", "version": "570.999"}}, "9; it is accepted without a check"),
        ("ubuntu2404", {"driver": {"source": "nvidia"}, "cuda": {"version": "12.5"}}, "CUDA 12.5: the catalogue"),
        ("amzn2023", {"driver": {"source": "nvidia"}, "cuda": {"version": "13.1"}, "cudnn": {"version": "9.14.0.64"}},
         "CUDA 13.1: the catalogue does not list it in NVIDIA's repository"),
        ("ubuntu2404", {"driver": {"source": "nvidia", "version": "580.178.04"}}, ""),
    ],
)  # fmt: skip
def test_an_exact_version_that_the_catalogue_lacks_is_taken_at_the_profiles_word(
    os: str, parts: dict[str, Any], says: str
) -> None:
    wanted = state.resolve(load("t4", **parts), bare_snapshot(os))
    told = [line for line in wanted.decisions if "the catalogue does not list it" in line]
    assert [says in line for line in told] == ([True] if says else [])
    version = parts["driver"].get("version")
    assert version is None or (wanted.driver.version, wanted.driver.archive_version) == (version, version)
    assert "cuda" not in parts or wanted.cuda.version == parts["cuda"]["version"]
    assert wanted.driver.packages


@pytest.mark.parametrize(
    ("os", "parts", "says"),
    [
        ("ubuntu2404", {"driver": {"source": "nvidia", "version": "560.35.05"}}, "has no driver 560.35.05 in NVIDIA's"),
        ("rocky9", {"driver": {"source": "nvidia", "version": "590.48.01"}}, "has no driver 590.48.01 in NVIDIA's"),
        ("debian13", {"driver": {"source": "distribution", "version": "580.1.1"}}, "has no driver 580.1.1 in the"),
        ("ubuntu2404", {"driver": {"source": "distribution", "version": "550.10.01"}}, "they install branch 580"),
        ("ubuntu2404", {"driver": {"source": "distribution"}, "cuda": {"version": "12.8"}}, "no CUDA 12.8 in the"),
        ("debian13", {"driver": {"source": "nvidia"}, "cuda": {"version": "12.2"}}, "no CUDA 12.2 in NVIDIA's"),
        ("ubuntu2404", {"driver": {"source": "nvidia"}, "cuda": {"version": "11.8"}}, "no CUDA 11.8 in NVIDIA's"),
    ],
)  # fmt: skip
def test_what_nobody_knows_the_packages_of_is_no_lack_of_the_source(os: str, parts: dict[str, Any], says: str) -> None:
    (reason,) = [line for line in refusals(load("t4", **parts), bare_snapshot(os)) if says in line]
    assert "the catalogue" in reason or "install branch 580" in reason


# Profiles that people wrote, retyped (each says from where): the system, and what must be said; "": it can be had.
PUBLIC = (
    ("al1054", "amzn2023", ""),
    ("al1054b", "amzn2023", ""),
    ("al316", "amzn2023", ":3: driver.version: is the text 'latest-dkms'; allowed: auto, a branch such as '550'"),
    ("al580", "amzn2023", ""),
    ("cudajl2890", "ubuntu2404", "cuDNN 9.10.2 is the last one for V100 (Volta), not 9.12.0.46; works: 9.10.2.21"),
    ("cudajl3079", "ubuntu2404", "CUDA 12.9 is the last one for V100 (Volta), not 13.0"),
    ("int1", "ubuntu2404", ":4: cuda.version: is the number 12.10, not text; write it in quotes: '12.10'"),
    ("nv5165", "ubuntu2404", ""),
    ("openserver69", "ubuntu2404", "cuDNN 9.10.2 is the last one for V100 (Volta), not 9.13.1.26"),
    ("role33", "ubuntu2404", ":3: driver.version: is the text '460-server'; allowed: auto"),
    ("role81", "ubuntu2404", "the catalogue has no driver 560 in NVIDIA's repository for Ubuntu 24.04, only bra"),
    ("unsloth5876", "ubuntu2404", ""),
    ("x-570", "ubuntu2404", ""),
    ("x-dist", "rocky9", "the catalogue has no packages of source distribution for Rocky Linux 9; works: driver.so"),
    ("x-nv", "rocky9", ""),
    ("x-open", "ubuntu2404", ""),
)  # fmt: skip


@pytest.mark.parametrize(("name", "os", "says"), PUBLIC, ids=[row[0] for row in PUBLIC])
def test_profiles_that_people_wrote(name: str, os: str, says: str) -> None:
    with pytest.raises(errors.GpuprepError) if says else nullcontext() as refused:
        wish = loading.load(str(TESTS / "cases" / "public" / "profiles" / f"{name}.yml"))
        state.resolve(wish, bare_snapshot(os, wish.gpus[:1]))
    assert refused is None or says in str(refused.value)
