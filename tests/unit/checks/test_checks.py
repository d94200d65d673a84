"""Every check: true on a finished host, named when one part is undone, UNKNOWN when it cannot be read."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
from builders import (
    FILES,
    MACHINES,
    NEWER,
    PROFILES,
    bare_snapshot,
    daemon_file,
    finished_snapshot,
    good_probes,
    holds_file,
    load,
    resolved,
    with_driver,
)
from healthkeys import HEALTH
from judgedrecords import of_host
from places import CASES

from gpuprep import checks, records
from gpuprep.agent import host_paths
from gpuprep.agent.facts import managed, parse
from gpuprep.desired import profile, state

WANTED = resolved("t4")
FINISHED = finished_snapshot(WANTED)


def part(name: str, **values: Any) -> Callable[[records.Snapshot], records.Snapshot]:
    return lambda s: dataclasses.replace(s, **{name: dataclasses.replace(getattr(s, name), **values)})


def gpu(**values: Any) -> Callable[[records.Snapshot], records.Snapshot]:
    def change(snapshot: records.Snapshot) -> records.Snapshot:
        assert not isinstance(snapshot.gpus, records.Missing)
        return dataclasses.replace(snapshot, gpus=tuple(dataclasses.replace(g, **values) for g in snapshot.gpus))

    return change


def entry(name: str, key: str, value: Any) -> Callable[[records.Snapshot], records.Snapshot]:
    def change(snapshot: records.Snapshot) -> records.Snapshot:
        changed: Any = {**getattr(snapshot, name), key: value}
        return dataclasses.replace(snapshot, **{name: changed})

    return change


def shell(way: str, tool: str, path: str | None) -> Callable[[records.Snapshot], records.Snapshot]:
    return part("shells", **{way: {"nvcc": "/usr/bin/nvcc", "ffmpeg": "/usr/local/bin/ffmpeg", tool: path}})


def unheld(name: str) -> Callable[[records.Snapshot], records.Snapshot]:
    return entry("packages", name, records.Package("1", False))


def without_package(name: str) -> Callable[[records.Snapshot], records.Snapshot]:
    return lambda s: dataclasses.replace(s, packages={k: v for k, v in s.packages.items() if k != name})


def power(**values: Any) -> Callable[[records.Snapshot], records.Snapshot]:
    def change(snapshot: records.Snapshot) -> records.Snapshot:
        assert not isinstance(snapshot.gpus, records.Missing)
        limits = dataclasses.replace(snapshot.gpus[0].power, **values)
        return gpu(power=limits)(snapshot)

    return change


def bad(
    wanted: state.Wanted, snapshot: records.Snapshot, probes: tuple[records.ProbeResult, ...] = ()
) -> list[records.Finding]:
    return [f for f in checks.compare(wanted, snapshot, probes) if f.status is not records.Status.PASS]


# FFmpeg lists some of the parts that this profile adds by other names than its configure has.
NOT_AS_CONFIGURED = ("video",)


@pytest.mark.parametrize(
    ("name", "os"),
    [*((name, "debian13") for name in PROFILES if name not in NOT_AS_CONFIGURED),
     *(("t4", os) for os in MACHINES.values())],
)  # fmt: skip
def test_a_finished_host_passes(name: str, os: str) -> None:
    wanted = resolved(name, os)
    assert bad(wanted, finished_snapshot(wanted), good_probes(wanted)) == []


UNDONE = {
    "kernel.headers": (part("kernel", headers_running=False), "gpu_driver"),
    "driver.version": (part("driver", module_version="535.309.01"), "gpu_driver"),
    "driver.packages": (without_package("libnvidia-encode1"), "gpu_driver"),
    "driver.held": (unheld("libcuda1"), "gpu_driver"),
    "driver.unattended_upgrades": (entry("files", host_paths.HOLDS, holds_file(WANTED.cuda.packages)), "gpu_driver"),
    "cuda.unattended_upgrades": (entry("files", host_paths.HOLDS, holds_file(WANTED.driver.packages)), "gpu_cuda"),
    "driver.flavour": (part("driver", module_flavour="open"), "gpu_driver"),
    "driver.dkms": (
        part("driver", dkms=(records.DkmsModule("nvidia-current", "550.163.01", None, "added"),)),
        "gpu_driver",
    ),
    "driver.next_boot_module": (part("driver", module_next_boot_version=None), "gpu_driver"),
    "driver.files": (
        lambda s: dataclasses.replace(s, package_files={"nvidia-smi": ("/usr/bin/nvidia-smi is gone",)}),
        "gpu_driver",
    ),
    "cuda.files": (
        lambda s: dataclasses.replace(s, package_files={"libcublas12": ("/usr/lib/libcublas.so.12 was changed",)}),
        "gpu_cuda",
    ),
    "cuda.host_compiler": (
        part("cuda", compiler_refused="ERROR: No supported gcc/g++ host compiler found."),
        "gpu_cuda",
    ),
    "nouveau.initramfs": (part("driver", nouveau_in_initramfs=True), "gpu_driver"),
    "driver.loaded": (part("driver", loaded_version="550.90.07"), "gpu_driver"),
    "driver.library_version": (part("driver", library_version="550.90.07"), "gpu_driver"),
    "driver.nvml_version": (part("driver", nvml_version="550.90.07"), "gpu_driver"),
    "driver.profiling_counters": (part("driver", counters_restricted=True), "gpu_driver"),
    "driver.modprobe_options": (entry("files", "/etc/modprobe.d/gpuprep-nvidia.conf", None), "gpu_driver"),
    "nouveau.loaded": (part("driver", nouveau_loaded=True), "gpu_driver"),
    "nouveau.blacklist": (entry("files", "/etc/modprobe.d/gpuprep-nouveau.conf", "# nothing\n"), "gpu_driver"),
    "libnvidia-encode.so.1.loader": (entry("libraries", "libnvidia-encode.so.1", None), "gpu_driver"),
    "agent.version": (lambda s: dataclasses.replace(s, agent_installed_version="0.0.1"), "gpu_agent"),
    "agent.libraries": (entry("agent_libraries", "nvmath-python", "0.9.0"), "gpu_agent"),
    "provenance.file": (lambda s: dataclasses.replace(s, provenance=None), "gpu_agent"),
    "gpuprep-tune.settings": (entry("files", "/etc/gpuprep/tuning.json", '{"persistence": false}'), "gpu_tuning"),
    "gpuprep-tune.enabled": (
        entry("units", "gpuprep-tune.service", records.UnitFacts("disabled", "active")),
        "gpu_tuning",
    ),
    "gpuprep-tune.active": (
        entry("units", "gpuprep-tune.service", records.UnitFacts("enabled", "failed")),
        "gpu_tuning",
    ),
    "gpuprep-tune.driver_reload": (entry("files", "/etc/udev/rules.d/60-gpuprep-tune.rules", None), "gpu_tuning"),
    "nvidia-persistenced.mode_at_boot": (
        entry("files", "/etc/systemd/system/nvidia-persistenced.service.d/gpuprep.conf", None),
        "gpu_tuning",
    ),
    "nvidia-persistenced.enabled": (
        entry("units", "nvidia-persistenced.service", records.UnitFacts("disabled", "active")),
        "gpu_tuning",
    ),
    "nvidia-persistenced.active": (
        entry("units", "nvidia-persistenced.service", records.UnitFacts("enabled", "inactive")),
        "gpu_tuning",
    ),
    "gpu 0.persistence_mode": (gpu(persistence_mode=False), "gpu_tuning"),
    "gpu 0.clocks": (gpu(application_clocks=records.ClockPair(5001, 585)), "gpu_tuning"),
    "gpu 0.power_limit": (power(current_watts=62.0), "gpu_tuning"),
    "gpu 0.compute_mode": (gpu(compute_mode="exclusive_process"), "gpu_tuning"),
    "cuda.version": (part("cuda", nvcc_version="12.9"), "gpu_cuda"),
    "cuda.packages": (without_package("libcupti-dev"), "gpu_cuda"),
    "cuda.cupti": (part("cuda", cupti_path=None), "gpu_cuda"),
    "cuda.held": (unheld("nvidia-cuda-toolkit"), "gpu_cuda"),
    "cudnn.library": (part("cudnn", library_path="/usr/lib/libcudnn.so.9"), "gpu_cudnn"),
    "cudnn.version": (part("cudnn", wheel_version=None), "gpu_cudnn"),
    "cudnn.header": (part("cudnn", version="9.5.1"), "gpu_cudnn"),
    "cudnn.files": (part("cudnn", manifest_intact=False), "gpu_cudnn"),
    "nv-codec-headers.files": (part("codec", headers_intact=False), "gpu_codec"),
    "nv-codec-headers.version": (part("codec", headers_version=None), "gpu_codec"),
    "ffmpeg.path": (part("codec", ffmpeg_real_path="/usr/bin/ffmpeg"), "gpu_codec"),
    "ffprobe.path": (entry("commands", "ffprobe", None), "gpu_codec"),
    "ffmpeg.version": (part("codec", ffmpeg_version="4.4"), "gpu_codec"),
    "ffmpeg.build": (part("codec", build_key="0123456789ab"), "gpu_codec"),
    "ffmpeg.files": (part("codec", manifest_intact=False), "gpu_codec"),
    "ffmpeg.redistributable": (part("codec", redistributable=False), "gpu_codec"),
    "login_shell.nvcc": (shell("login_shell", "nvcc", None), "gpu_cuda"),
    "non_login_shell.ffmpeg": (shell("non_login_shell", "ffmpeg", "/usr/bin/ffmpeg"), "gpu_codec"),
    "systemd_service.nvcc": (shell("systemd_service", "nvcc", None), "gpu_cuda"),
    "login_shell.environment": (entry("files", "/etc/profile.d/gpuprep.sh", None), "gpu_cuda"),
    "non_login_shell.environment": (entry("files", "/etc/environment", "CUDA_HOME=/usr\n"), "gpu_cuda"),
    "systemd_service.environment": (entry("files", "/etc/systemd/system.conf.d/gpuprep.conf", None), "gpu_cuda"),
    "extras.tmux": (entry("commands", "tmux", None), "gpu_extras"),
    "extras.packages": (without_package("build-essential"), "gpu_extras"),
}


@pytest.mark.parametrize("key", UNDONE)
def test_each_part_undone_is_named(key: str) -> None:
    undo, role = UNDONE[key]
    findings = {f.key: f for f in bad(WANTED, undo(FINISHED))}
    assert key in findings, list(findings)
    finding = findings[key]
    assert finding.status is records.Status.FAIL
    assert finding.role == role
    assert finding.reason
    assert finding.remedy
    assert len(findings) <= 6, list(findings)


@pytest.mark.parametrize(
    ("watts", "says"),
    [(70.0, ""), (69.5, ""), (70.9, ""), (69.0, "it is slower"), (71.0, "draws more than the profile allows")],
)
def test_a_power_limit_may_differ_by_less_than_a_watt(watts: float, says: str) -> None:
    found = checks.compare(WANTED, power(current_watts=watts)(FINISHED))
    (finding,) = [one for one in found if one.key == "gpu 0.power_limit"]
    assert (finding.status is records.Status.FAIL, says in finding.reason) == (bool(says), True), finding


@pytest.mark.parametrize(
    ("ahead", "status", "says"),
    [
        (0, "PASS", ""), (-299, "PASS", ""), (300, "WARN", "5 minutes ahead of this computer's"),
        (-3599, "WARN", "60 minutes behind this computer's"), (-3600, "FAIL", "60 minutes behind this computer's"),
        (86400, "FAIL", "24 hours ahead of this computer's"), (-10**8, "FAIL", "1157 days behind this computer's"),
    ],
)  # fmt: skip
def test_a_clock_that_differs_from_the_controllers(ahead: int, status: str, says: str) -> None:
    found = checks.compare(WANTED, dataclasses.replace(FINISHED, clock_ahead_seconds=ahead))
    (finding,) = [one for one in found if one.key == "host.clock"]
    assert (finding.status, says in finding.reason) == (status, True), finding
    assert ("timedatectl" in finding.remedy) == (status != "PASS")


@pytest.mark.parametrize(("files", "found"), [(0, "as installed"), (1, "f0"), (6, "f5"), (7, "f5"), (9, "f5")])
def test_a_finding_names_the_first_six_and_counts_the_rest(files: int, found: str) -> None:
    gone = {"nvidia-smi": tuple(f"f{number}" for number in range(files))} if files else {}
    there = dataclasses.replace(FINISHED, package_files=gone)
    (finding,) = [one for one in checks.compare(WANTED, there) if one.key == "driver.files"]
    assert (finding.status is records.Status.PASS) is (files == 0)
    more = finding.actual.partition(" and ")[2]
    assert (found in finding.actual, "f6" in finding.actual, more) == (
        True,
        False,
        f"{files - 6} more" if files > 6 else "",
    )
    assert finding.actual in finding.reason or not files


def test_every_check_of_a_finished_host_can_fail() -> None:
    counted_elsewhere = {
        "gpu 0.processes",
        "gpu 0.ecc",
        *(f"gpu 0.{name}" for name in ("temperature", "memory_protection")),  # test_gpulimits.py
        "gpu 0.identity",
        "kernel.next_boot",
        "gpus.count",
        "libcuda.so.1.loader",
        "libnvcuvid.so.1.loader",
    }
    same_by_symmetry = {
        *(f"extras.{name}" for name in ("python3", "gcc", "g++", "make")),
        *(
            f"{way}.{tool}"
            for way in ("login_shell", "non_login_shell", "systemd_service")
            for tool in ("nvcc", "ffmpeg")
        ),
    }
    keys = {f.key for f in checks.compare(WANTED, FINISHED)}
    assert keys - UNDONE.keys() - HEALTH.keys() - counted_elsewhere - same_by_symmetry == set()


# ---------------------------------------------------------------- missing readings


def readings(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of all readings of a snapshot that may be Missing."""
    found: list[tuple[Any, ...]] = []
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            inner = (*path, field.name)
            if "Missing" in str(field.type) or str(field.type) in ("Str", "OptStr", "Int", "Float", "Bool"):
                found.append(inner)
            found += readings(getattr(value, field.name), inner)
    elif isinstance(value, dict) and path and path[-1] in ("files", "commands", "libraries", "nvcc", "ffmpeg"):
        found += [(*path, key) for key in value]
    elif isinstance(value, tuple) and path and path[-1] == "gpus":
        for index, item in enumerate(value):
            found += readings(item, (*path, index))
    return found


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    key, rest = path[0], path[1:]
    if isinstance(value, dict):
        return {**value, key: replaced(value[key], rest, new)}
    if isinstance(value, tuple):
        return tuple(replaced(v, rest, new) if i == key else v for i, v in enumerate(value))
    return dataclasses.replace(value, **{key: replaced(getattr(value, key), rest, new)})


# What no check of this profile reads, or reads only in another state of the host.
NOT_CHECKED = {
    "headers_available", "secure_boot", "headers_next_boot", "serial", "memory_total_mib", "default_application_clocks",
    "max_graphics_clock_mhz", "graphics_clock_mhz", "memory_clock_mhz", "ecc_current", "ecc_pending", "temperature_c",
    "min_watts", "max_watts", "header_path", "cloud_init", "supported_clocks",
    "video_clock_mhz", "max_memory_clock_mhz", "power_watts", "memory_used_mib", "performance_state", "vbios",
    "slowdown_temperature_c", "compute_capability", "utilization", "pcie", "throttled",
    "corrected_volatile", "corrected_aggregate", "uncorrected_aggregate", "digests", "pci_subsystem_id", "other_gpus",
    "cloud",  # without it there is nothing to compare with: tests/unit/checks/test_cloud.py
    "containers",  # of profiles that ask for the container toolkit: tests/unit/checks/test_containers.py
    "identity",  # drift compares it with the certified run's
    "signatures",  # with Secure Boot on: tests/unit/agent/test_signatures.py
    "use",  # asked before a change alone: tests/unit/workflows/test_inuse.py
    "sudo_path",  # a note of the plan: tests/unit/desired/test_desired_state.py
    "nvidia_repositories",  # refused before anything is judged: tests/unit/checks/test_wrongmachines.py
    "blank_disks",  # a note of the plan: tests/unit/agent/test_local_disks.py
    "folders",  # a refusal of the plan: tests/unit/desired/test_desired_state.py
    "login_path", "config_lines", "built", "unlisted",  # what to do about it: tests/unit/checks/test_byhand.py
    # The next boot's: tests/unit/checks/test_nextboot.py
    "module_next_boot_flavour", "module_fallback_version", "initramfs_stale", "boot",
    "cores", "ecc_default",  # the catalogue's word counts where these are not read
    "mig_devices",  # where the profile asks for instances: tests/unit/checks/test_mig.py
}  # fmt: skip


@pytest.mark.parametrize("path", readings(FINISHED), ids=lambda p: ".".join(map(str, p)))
def test_a_missing_reading_is_never_a_pass(path: tuple[Any, ...]) -> None:
    snapshot = replaced(FINISHED, path, records.Missing("command_failed", "it broke"))
    after = {f.key: f for f in checks.compare(WANTED, snapshot)}
    unknown = [f for f in after.values() if f.status is records.Status.UNKNOWN]
    if path[-1] in NOT_CHECKED or path[-1] == "python3" or path[-1] == "/etc/systemd/system/gpuprep-tune.service":
        return
    assert unknown, path
    assert all("it broke" in finding.reason for finding in unknown)
    assert not any("Missing(" in f"{f.actual}{f.expected}{f.reason}" for f in after.values())


def test_missing_readings_are_really_checked() -> None:
    paths = [p for p in readings(FINISHED) if p[-1] not in NOT_CHECKED]
    assert len(paths) >= 40
    assert {p[-1] for p in readings(FINISHED)} >= NOT_CHECKED


def test_no_driver_says_it_once_for_each_gpu() -> None:
    wanted = state.resolve(load("t4"), bare_snapshot(gpus=["t4", "t4"]))
    snapshot = with_driver(bare_snapshot(gpus=["t4", "t4"]), wanted, loaded=False)
    per_gpu = [f for f in checks.compare(wanted, snapshot) if f.subject.startswith("gpu ")]
    assert [(f.key, f.status) for f in per_gpu] == [
        ("gpu 0.settings", records.Status.UNKNOWN),
        ("gpu 1.settings", records.Status.UNKNOWN),
    ]
    assert "no NVIDIA driver is loaded" in per_gpu[0].reason


def test_a_gpu_that_fell_off_the_bus_is_not_a_pass() -> None:
    lost = gpu(persistence_mode=records.Missing("gpu_is_lost", "NVML: GPU is lost"))(FINISHED)
    (finding,) = bad(WANTED, lost)
    assert finding.status is records.Status.UNKNOWN
    assert "stop the machine" in finding.remedy


def test_a_gpu_that_nvml_does_not_show() -> None:
    wanted = state.resolve(load("t4"), bare_snapshot(gpus=["t4", "t4"]))
    finished = finished_snapshot(wanted)
    assert not isinstance(finished.gpus, records.Missing)
    (finding,) = bad(wanted, dataclasses.replace(finished, gpus=finished.gpus[:1]))
    assert finding.key == "gpus.count"
    assert finding.status is records.Status.FAIL


# ---------------------------------------------------------------- kernels


def waiting(module_next_boot: str | None, headers: bool) -> records.Snapshot:
    newer = part("kernel", next_boot=NEWER["debian13"], headers_next_boot=headers)(FINISHED)
    return part("driver", module_next_boot_version=module_next_boot)(newer)


def test_a_newer_kernel_with_a_built_driver_is_a_warning_only() -> None:
    (finding,) = bad(WANTED, waiting("550.163.01", True))
    assert (finding.key, finding.status, finding.role) == ("kernel.next_boot", records.Status.WARN, "")


def test_a_newer_kernel_comes_first_where_no_driver_is_built() -> None:
    newer = part("kernel", next_boot=NEWER["debian13"])(bare_snapshot())
    (finding,) = [f for f in checks.compare(WANTED, newer) if f.key == "kernel.next_boot"]
    assert (finding.status, finding.role) == (records.Status.FAIL, "gpu_driver")


def test_a_newer_kernel_without_a_driver_fails() -> None:
    for headers, following, has in (
        (False, None, "no NVIDIA module and no headers to build one with: the GPU would be gone"),
        (True, None, "no NVIDIA module: the GPU would be gone"),
        (True, "535.309.01", "NVIDIA module 535.309.01: programs would fail"),
    ):
        (finding,) = bad(WANTED, waiting(following, headers))  # one statement, and nothing that asks for a reboot
        assert (finding.key, finding.status, finding.role) == (
            "driver.next_boot_module", records.Status.FAIL, "gpu_driver",
        )  # fmt: skip
        assert f"which the next boot starts, has {has} after a reboot" in finding.reason
        assert "before any reboot" in finding.remedy
        assert not finding.reboot


def test_a_module_without_headers_is_not_said_to_be_gone() -> None:
    """Somebody built it and took the headers away: the next driver is what cannot be built."""
    headers, reboot = bad(WANTED, waiting("550.163.01", False))
    assert "DKMS cannot build a driver for it" in headers.reason
    assert (reboot.key, reboot.status) == ("kernel.next_boot", records.Status.WARN)


# ---------------------------------------------------------------- nouveau


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ((("blacklist", "nouveau"),), None),  # of whichever file: a package's, the kernel's command line
        ((("install", "nouveau", "/bin/false"),), None),
        ((("options", "nouveau", "modeset=0"),), records.Status.FAIL),
        ((("blacklist", "nvidiafb"), ("install", "nouveau", "/sbin/modprobe", "-i", "nouveau")), records.Status.FAIL),
        ((), records.Status.FAIL),
    ],
)
def test_nouveau_is_kept_out_by_what_modprobe_reads(lines: tuple[Any, ...], status: records.Status | None) -> None:
    """Our own file alone is no proof, and its absence no fault."""
    for own_file in (None, "blacklist nouveau\n"):
        read = tuple(records.ModprobeLine("/etc/modprobe.d/nvidia-installer.conf", words) for words in lines)
        host = dataclasses.replace(
            entry("files", "/etc/modprobe.d/gpuprep-nouveau.conf", own_file)(FINISHED), modprobe=read
        )
        assert [f.status for f in bad(WANTED, host) if f.key == "nouveau.blacklist"] == ([status] if status else [])


# ---------------------------------------------------------------- the driver's libraries as programs get them

USR, LIB = "/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu"
OWN, STUBS, CONF = f"{USR}/libcuda.so.550.163.01", "/usr/local/cuda/lib64/stubs", "/etc/ld.so.conf.d"


def libcuda(path: str, place: str, version: records.OptStr, package: records.OptStr) -> list[records.Finding]:
    folder = place.rpartition("/")[0]
    setting = f"{CONF}/000.conf" if "/cuda" in folder else "/etc/profile.d/x.sh"
    line = folder if "/cuda" in folder else f"export LD_LIBRARY_PATH={folder}:$LD_LIBRARY_PATH"
    host = dataclasses.replace(
        FINISHED,
        driver_libraries={"libcuda.so.1": records.LoadedLibrary(path, place, version)},
        owners={path: package, setting: None},
        config_lines=() if folder == LIB else (records.ConfigLine(setting, line, (folder,)),),
    )
    return bad(WANTED, host)


@pytest.mark.parametrize(
    ("path", "place", "version", "package", "why", "remedy"),
    [
        # a copy of the right one in the folder of stubs, as people make it
        (f"{STUBS}/libcuda.so", f"{STUBS}/libcuda.so.1", "550.163.01", None, "a stub, made for linking",
         f"remove the line `{STUBS}` from {CONF}/000.conf, which belongs to no package, then `sudo ldconfig`"),
        ("/opt/x/libcuda.so.1", "/opt/x/libcuda.so.1", None, None, "not of driver 550.163.01",
         "remove the line `export LD_LIBRARY_PATH=/opt/x:$LD_LIBRARY_PATH` from /etc/profile.d/x.sh"),
        ("/usr/local/cuda-12.8/compat/libcuda.so.570.10", "/usr/local/cuda-12.8/compat/libcuda.so.1", "570.10",
         "cuda-compat-12-8", "of driver 570.10, and the kernel module is of 550.163.01",
         f"remove the line `/usr/local/cuda-12.8/compat` from {CONF}/000.conf"),
        (f"{USR}/libcuda.so.580.65.06", f"{LIB}/libcuda.so.1", "580.65.06", None, "of driver 580.65.06",
         f"`sudo mv {USR}/libcuda.so.580.65.06 /root/`, then `sudo ldconfig`"),
        ("/opt/old/libcuda.so.550.163.01", "/opt/old/libcuda.so.1", "550.163.01", None,
         "no file of the driver's packages", "LD_LIBRARY_PATH"),
        (f"{USR}/libcuda.so.535.1", f"{LIB}/libcuda.so.1", "535.1", "other-libcuda", "of driver 535.1",
         "belongs to package other-libcuda: `sudo dnf remove other-libcuda`"),
        (f"{USR}/libcuda.so.535.1", f"{LIB}/libcuda.so.1", "535.1", "libcuda1", "of driver 535.1",
         "`gpuprep provision HOST --profile PROFILE --only driver`"),
    ],
)  # fmt: skip
def test_a_libcuda_that_is_not_the_drivers_fails_and_names_what_to_remove(
    path: str, place: str, version: str | None, package: str | None, why: str, remedy: str
) -> None:
    (finding,) = libcuda(path, place, version, package)
    assert (finding.key, finding.status) == ("libcuda.so.1.driver", records.Status.FAIL)
    assert f"programs get {place}, which is {why}" in finding.reason
    assert "no CUDA program starts" in finding.reason
    assert remedy.replace("dnf", "apt-get") in finding.remedy.replace("dnf", "apt-get")


def test_the_stub_of_a_public_report_is_what_programs_get() -> None:
    listed = (CASES / "public/08-foreign-libcuda/ldconfig.txt").read_text(encoding="utf-8")
    place = parse.ldconfig(listed, "x86_64")["libcuda.so.1"]
    (finding,) = libcuda(place.removesuffix(".1"), place, "550.163.01", None)
    assert "which is a stub" in finding.reason


def test_the_drivers_own_libcuda_passes_and_an_unread_one_is_unknown() -> None:
    assert libcuda(OWN, f"{LIB}/libcuda.so.1", "550.163.01", "libcuda1") == []
    unread = records.Missing("no_permission", "no")
    for version, package in ((unread, "libcuda1"), ("550.163.01", unread)):
        (finding,) = libcuda(OWN, f"{LIB}/libcuda.so.1", version, package)
        assert (finding.key, finding.status) == ("libcuda.so.1.loader", records.Status.UNKNOWN)


# ---------------------------------------------------------------- clocks


def clocks_of(
    wanted: state.Wanted,
    change: Callable[[records.Snapshot], records.Snapshot],
    locked: tuple[records.LockedClocks, ...] = (),
) -> records.Finding:
    snapshot = dataclasses.replace(change(FINISHED), locked_clocks=locked)
    (finding,) = [f for f in checks.compare(wanted, snapshot) if f.key == "gpu 0.clocks"]
    return finding


GONE = gpu(application_clocks=records.Missing("deprecated"), default_application_clocks=records.Missing("deprecated"))


@pytest.mark.parametrize(
    ("locked", "status"),
    [
        ((records.LockedClocks("GPU-0", None, 1590, "boot-1"),), records.Status.PASS),
        ((records.LockedClocks("GPU-0", 5001, 1590, "boot-1"),), records.Status.PASS),
        ((records.LockedClocks("GPU-0", None, 1590, "boot-0"),), records.Status.FAIL),
        ((records.LockedClocks("GPU-1", None, 1590, "boot-1"),), records.Status.FAIL),
        ((records.LockedClocks("GPU-0", None, 585, "boot-1"),), records.Status.FAIL),
        ((records.LockedClocks("GPU-0", 405, 1590, "boot-1"),), records.Status.FAIL),
        ((), records.Status.FAIL),
    ],
)
def test_locked_clocks_count_where_application_clocks_are_gone(
    locked: tuple[records.LockedClocks, ...], status: records.Status
) -> None:
    assert clocks_of(WANTED, GONE, locked).status is status


def test_clocks_that_may_not_be_read_are_unknown() -> None:
    hidden = gpu(application_clocks=records.Missing("no_permission"))
    locked = (records.LockedClocks("GPU-0", None, 1590, "boot-1"),)
    assert clocks_of(WANTED, hidden, locked).status is records.Status.UNKNOWN


def test_max_is_the_highest_pair_where_the_device_lacks_the_catalogues() -> None:
    supported = (records.ClockPair(5001, 1530), records.ClockPair(405, 645), records.ClockPair(5001, 1515))
    top = gpu(supported_clocks=supported, application_clocks=records.ClockPair(5001, 1530))
    assert clocks_of(WANTED, top).status is records.Status.PASS
    assert clocks_of(WANTED, gpu(supported_clocks=supported)).status is records.Status.FAIL


def test_the_catalogues_pair_counts_where_the_device_has_it_and_more() -> None:
    more = (records.ClockPair(5001, 1590), records.ClockPair(5001, 1700))
    assert clocks_of(WANTED, gpu(supported_clocks=more)).status is records.Status.PASS


@pytest.mark.parametrize(("mhz", "says"), [(1000, "every job is slower"), (1700, "it draws more power")])
def test_what_other_clocks_do_is_said(mhz: int, says: str) -> None:
    found = clocks_of(WANTED, gpu(application_clocks=records.ClockPair(5001, mhz)))
    assert (found.status, says in found.reason) == (records.Status.FAIL, True)
    assert found.remedy == "`gpuprep tune HOST --profile PROFILE`"


def test_a_driver_of_which_a_part_is_there_is_looked_for_its_libraries() -> None:
    def libraries(snapshot: records.Snapshot) -> int:
        return len([one for one in checks.compare(WANTED, snapshot) if one.property == "loader"])

    assert libraries(bare_snapshot()) == 0
    for half in ({"module_version": None}, {"library_version": None}):
        assert libraries(part("driver", **half)(FINISHED)) == 3


def test_a_finding_names_the_step_that_repairs_it() -> None:
    (finding,) = bad(WANTED, unheld("libcuda1")(FINISHED))
    assert finding.remedy == "`gpuprep provision HOST --profile PROFILE --only driver`"


def test_default_clocks() -> None:
    wanted = state.resolve(load("t4", tuning={"clocks": "default"}), bare_snapshot())
    usual = FINISHED.gpus[0].default_application_clocks if not isinstance(FINISHED.gpus, records.Missing) else None
    assert clocks_of(wanted, gpu(application_clocks=usual)).status is records.Status.PASS
    assert clocks_of(wanted, gpu()).status is records.Status.FAIL
    assert clocks_of(wanted, GONE).status is records.Status.SKIP
    assert clocks_of(wanted, GONE, (records.LockedClocks("GPU-0", None, 1590, "boot-1"),)).status is records.Status.FAIL


@pytest.mark.parametrize(
    ("current", "pending", "status", "says"),
    [
        (False, False, records.Status.PASS, ""),
        (True, False, records.Status.FAIL, "a reboot changes it"),
        (True, True, records.Status.FAIL, "costs memory and speed"),
        (
            records.Missing("not_supported"),
            records.Missing("not_supported"),
            records.Status.UNKNOWN,
            "does not support",
        ),
    ],
)
def test_ecc(current: Any, pending: Any, status: records.Status, says: str) -> None:
    wanted = state.resolve(load("t4", tuning={"ecc": "disabled"}), bare_snapshot())
    snapshot = gpu(ecc_current=current, ecc_pending=pending)(finished_snapshot(wanted))
    (finding,) = [f for f in checks.compare(wanted, snapshot) if f.property == "ecc"]
    assert finding.status is status
    assert says in finding.reason


@pytest.mark.parametrize(
    ("current", "pending", "status", "says"),
    [
        (True, True, records.Status.PASS, ""),
        (False, False, records.Status.PASS, ""),
        (True, False, records.Status.WARN, "becomes disabled at the next reboot"),
        (False, True, records.Status.WARN, "becomes enabled at the next reboot"),
        (records.Missing("not_supported"), records.Missing("not_supported"), records.Status.SKIP, "has no ECC"),
        (records.Missing("gpu_is_lost"), True, records.Status.UNKNOWN, "fallen off the bus"),
    ],
)
def test_ecc_that_is_to_be_kept(current: Any, pending: Any, status: records.Status, says: str) -> None:
    snapshot = gpu(ecc_current=current, ecc_pending=pending)(FINISHED)
    (finding,) = [f for f in checks.compare(WANTED, snapshot) if f.property == "ecc"]
    assert finding.status is status
    assert says in finding.reason


def loaded(version: str | None) -> records.Snapshot:
    return part("driver", loaded_version=version)(FINISHED)


@pytest.mark.parametrize(
    ("snapshot", "needed"),
    [
        (FINISHED, False),
        (waiting("550.163.01", True), True),  # a kernel waits
        (loaded("535.183.01"), True),
        (loaded(None), True),
        (part("driver", loaded_version="550.163.01", module_version=None)(FINISHED), False),  # first something to load
        (gpu(ecc_current=True, ecc_pending=False)(FINISHED), True),
        (gpu(persistence_mode=False)(FINISHED), False),
        (gpu(recovery_action="reboot")(FINISHED), True),
        (gpu(recovery_action="reset")(FINISHED), False),
    ],
)
def test_who_knows_that_only_a_restart_helps(snapshot: records.Snapshot, needed: bool) -> None:
    assert of_host(snapshot, load("t4")).reboot_needed is needed


def test_what_is_waived_needs_no_restart() -> None:
    waiver = profile.Waiver("kernel.next_boot", "*", "it restarts on Sunday", "2999-12-31")
    host = waiting("550.163.01", True)
    assert of_host(host, load("t4")).reboot_needed
    assert not of_host(host, load("t4", waivers=(waiver,))).reboot_needed


# ---------------------------------------------------------------- the rest


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ("options nvidia-current NVreg_RestrictProfilingToAdminUsers=0 # why", True),
        ("options nvidia A=1\noptions nvidia NVreg_RestrictProfilingToAdminUsers=0 B=2", True),
        ("options nvidia_current_open NVreg_RestrictProfilingToAdminUsers=0", True),
        ("# options nvidia NVreg_RestrictProfilingToAdminUsers=0", False),
        ("options nvidia-current # NVreg_RestrictProfilingToAdminUsers=0", False),
        ("options nvidia-drm NVreg_RestrictProfilingToAdminUsers=0", False),
        ("options nvidia NVreg_RestrictProfilingToAdminUsers=1", False),
    ],
)
def test_options_of_the_module_by_any_of_its_names(line: str, counts: bool) -> None:
    host = entry("files", "/etc/modprobe.d/gpuprep-nvidia.conf", f"{line}\n")(FINISHED)
    assert [one.key for one in bad(WANTED, host)] == ([] if counts else ["driver.modprobe_options"])


def test_gpu_firmware_is_checked_both_ways() -> None:
    off = state.resolve(load("t4", driver={"gpu_firmware": False}), bare_snapshot())
    assert bad(off, finished_snapshot(off)) == []
    assert [f.key for f in bad(off, FINISHED)] == ["driver.modprobe_options"]
    assert [f.key for f in bad(WANTED, finished_snapshot(off))] == ["driver.modprobe_options"]


def test_every_part_of_the_driver_is_kept_from_unattended_upgrades() -> None:
    cuda = WANTED.cuda.packages
    headless = holds_file(WANTED.driver.packages).replace("Unattended-Upgrade::Package-Blacklist {", "")
    texts = (holds_file([*WANTED.driver.packages[1:], *cuda]), holds_file(["(", *cuda]), headless + holds_file(cuda))
    for text in texts:
        snapshot = entry("files", host_paths.HOLDS, text)(FINISHED)
        (finding,) = bad(WANTED, snapshot)
        assert finding.key == "driver.unattended_upgrades"
        assert WANTED.driver.packages[0] in finding.reason
    for gone in (None, "# nothing"):
        found = bad(WANTED, entry("files", host_paths.HOLDS, gone)(FINISHED))
        assert [(one.key, one.role) for one in found] == [
            ("driver.unattended_upgrades", "gpu_driver"), ("cuda.unattended_upgrades", "gpu_cuda"),
        ]  # fmt: skip
    by_family = entry("files", host_paths.HOLDS, holds_file(["(lib)?(nvidia|nv|cu|firmware).*"]))
    assert bad(WANTED, by_family(FINISHED)) == []


def test_a_distributions_unit_that_keeps_the_mode_off() -> None:
    off = state.resolve(load("t4", tuning={"persistence": False}), bare_snapshot())
    assert bad(off, finished_snapshot(off)) == []
    path = "/etc/systemd/system/nvidia-persistenced.service.d/gpuprep.conf"
    (finding,) = bad(WANTED, entry("files", path, daemon_file(off))(FINISHED))
    assert (finding.key, finding.actual) == ("nvidia-persistenced.mode_at_boot", "off")


def test_the_agent_reads_the_files_and_units_that_are_checked() -> None:
    assert set(FILES) <= set(managed.FILES)
    assert {managed.PERSISTENCED, managed.TUNE, managed.FABRIC_MANAGER} <= set(managed.UNITS)


def test_another_drop_in_that_keeps_the_mode_off_is_named() -> None:
    files = ("/usr/lib/systemd/system/nvidia-persistenced.service", "/etc/systemd/system/x.service.d/zz.conf")
    for option, wrong in (("--no-persistence-mode", ["nvidia-persistenced.mode_at_boot"]), ("--verbose", [])):
        unit = records.UnitFacts("enabled", "active", files, f"/usr/bin/nvidia-persistenced {option}")
        found = bad(WANTED, entry("units", "nvidia-persistenced.service", unit)(FINISHED))
        assert [one.key for one in found] == wrong
        assert all("zz.conf" in one.reason for one in found)


def test_gpus_behind_nvswitches_need_fabric_manager() -> None:
    switched = dataclasses.replace(FINISHED, nvswitches=6)
    stopped = entry("units", managed.FABRIC_MANAGER, records.UnitFacts("enabled", "failed"))(switched)
    running = entry("units", managed.FABRIC_MANAGER, records.UnitFacts("enabled", "active"))(switched)
    assert [(f.key, f.status) for f in bad(WANTED, switched)] == [("driver.fabric_manager", records.Status.UNKNOWN)]
    assert [(f.key, f.status) for f in bad(WANTED, stopped)] == [("driver.fabric_manager", records.Status.FAIL)]
    assert bad(WANTED, running) == []


def test_an_agent_that_does_not_look_for_libraries_is_told() -> None:
    found = bad(WANTED, dataclasses.replace(FINISHED, libraries={}))
    assert {(finding.key, finding.status) for finding in found} == {
        ("libcuda.so.1.loader", records.Status.UNKNOWN),
        ("libnvcuvid.so.1.loader", records.Status.UNKNOWN),
        ("libnvidia-encode.so.1.loader", records.Status.UNKNOWN),
    }


def test_what_the_profile_does_not_want_is_skipped_by_name() -> None:
    wishes = load(
        "t4",
        cuda={"version": "none", "hold": False},
        cudnn={"version": "none"},
        codec={"ffmpeg": "none"},
        driver={"hold": False},
    )
    wanted = state.resolve(wishes, bare_snapshot())
    findings = checks.compare(wanted, finished_snapshot(wanted), good_probes(wanted))
    assert {f.key for f in findings if f.status is records.Status.SKIP} == {
        "driver.held", "cuda.version", "cudnn.version", "ffmpeg.version",
    }  # fmt: skip
    assert {f.status for f in findings} == {records.Status.PASS, records.Status.SKIP}


def test_a_mounted_disk() -> None:
    wish = profile.MountWish("/dev/vdb1", "/data", "ext4", "defaults")
    wanted = state.resolve(load("t4", extras={"mount": wish}), bare_snapshot())
    finished = finished_snapshot(wanted)
    assert bad(wanted, finished) == []
    for mounts in ((), (records.Mount("/dev/vdb1", "/data", "xfs"),), (records.Mount("/dev/vdc1", "/data", "ext4"),)):
        (finding,) = bad(wanted, dataclasses.replace(finished, mounts=mounts))
        assert finding.key == "extras.mount"


def test_request_asks_for_the_extras_of_the_profile() -> None:
    asked = checks.request(load("t4", extras={"tools": ("tmux", "opencv"), "framework": "torch"}))
    assert asked.commands == ("tmux", "ffprobe")
    assert checks.request(load("t4", extras={"tools": ()}, codec={"ffmpeg": "none"})).commands == ()
    assert asked.python_modules == ("cv2", "torch")
    assert "python3-opencv" in asked.packages


# ---------------------------------------------------------------- probes


def probe(name: str, values: Any) -> tuple[records.ProbeResult, ...]:
    return (records.ProbeResult(name, records.Source.SIMULATED, values, 1.0),)


def probed(name: str, **changed: Any) -> list[records.Finding]:
    (values,) = [r.values for r in good_probes(WANTED) if r.probe == name]
    assert isinstance(values, dict)
    return bad(WANTED, FINISHED, probe(name, {**values, **changed}))


@pytest.mark.parametrize(
    ("name", "changed", "key", "says"),
    [
        ("toolkit", {"compiles": False, "output": "x\nno cicc"}, "cuda.compiles", "no cicc"),
        ("toolkit", {"version": "11.8"}, "cuda.compiler", "11.8"),
        ("codec", {"encoders": ["h264_nvenc"]}, "ffmpeg.encoders", "hevc_nvenc"),
        ("codec", {"filters": []}, "ffmpeg.filters", "scale_cuda"),
        ("codec", {"hwaccels": []}, "ffmpeg.hwaccels", "h264_nvdec"),
        ("codec", {"decoders": []}, "ffmpeg.decoders", "h264_cuvid"),
    ],
)
def test_probes_that_show_a_fault(name: str, changed: dict[str, Any], key: str, says: str) -> None:
    (finding,) = probed(name, **changed)
    assert (finding.key, finding.status) == (key, records.Status.FAIL)
    assert says in finding.reason


def test_parts_that_ffmpeg_does_not_list_are_read_from_its_configuration() -> None:
    keys = {f.key: f.status for f in probed("codec", buildconf=["--enable-muxer=mp4"])}
    assert keys == dict.fromkeys(
        ["ffmpeg.muxers", "ffmpeg.demuxers", "ffmpeg.parsers", "ffmpeg.bsfs", "ffmpeg.protocols", "ffmpeg.indevs"],
        records.Status.FAIL,
    )


def test_a_probe_that_failed_is_unknown() -> None:
    failed = probe("toolkit", records.Missing("command_failed", "no nvcc")) + probe(
        "codec", records.Missing("not_installed", "no ffmpeg")
    )
    statuses = {f.status for f in bad(WANTED, FINISHED, failed)}
    assert statuses == {records.Status.UNKNOWN}


def test_a_probe_that_was_asked_and_gave_nothing_is_unknown() -> None:
    findings = checks.compare(WANTED, FINISHED, asked=("toolkit",))
    assert [f.key for f in findings if f.status is records.Status.UNKNOWN] == ["cuda.compiles"]
