"""Hosts as data for tests: a bare machine, and a machine on which everything wanted is true."""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Sequence
from functools import cache
from typing import Any, TypeVar

from places import ROOT, TESTS

from gpuprep import __version__, catalogue
from gpuprep.agent.facts.managed import FABRIC_MANAGER
from gpuprep.agent.host_paths import CUDA_PIN, DRIVER_STREAM, HOLDS
from gpuprep.catalogue import topologies
from gpuprep.catalogue.agent import agent_libraries
from gpuprep.catalogue.roles import cuda_pin_text
from gpuprep.checks.installed import tuning
from gpuprep.checks.installed.libraries import NEEDED
from gpuprep.desired import loading
from gpuprep.desired.profile import Profile
from gpuprep.desired.state import Wanted, resolve, tuning_document
from gpuprep.records import (
    NOT_READ,
    ClockPair,
    CodecFacts,
    CudaFacts,
    CudnnFacts,
    DkmsModule,
    DriverFacts,
    EccErrors,
    GpuFacts,
    KernelFacts,
    Missing,
    Mount,
    OptStr,
    OsFacts,
    Package,
    PciDevice,
    PowerLimits,
    ProbeResult,
    RemappedRows,
    RetiredPages,
    ShellFacts,
    Snapshot,
    Source,
    UnitFacts,
    UseFacts,
    from_json_value,
)

Nested = TypeVar("Nested", Profile, Wanted)
NO_DRIVER = Missing("driver_not_loaded", "NVML: Driver Not Loaded")
KERNELS = {
    "debian12": "6.1.0-49-cloud-amd64",
    "debian13": "6.12.117+deb13-cloud-amd64",
    "rocky9": "5.14.0-611.5.1.el9_7.x86_64",
    "rhel9": "5.14.0-611.5.1.el9_7.x86_64",
    **dict.fromkeys(("rocky10", "rhel10", "almalinux10", "centos10"), "6.12.0-211.7.4.el10_2.x86_64"),
    "rocky8": "4.18.0-553.22.1.el8_10.x86_64",
    "amzn2023": "6.12.64-87.122.amzn2023.x86_64",
}
NEWER = {"debian12": "6.1.0-50-cloud-amd64", "debian13": "6.12.120+deb13-cloud-amd64"}
DEVICE_IDS = {"t4": "1eb8", "v100": "1db1", "a100": "20b0", "h200": "2335"}
OS = {
    "debian12": OsFacts("debian", "12", "bookworm", "Debian GNU/Linux 12 (bookworm)", "x86_64"),
    "debian13": OsFacts("debian", "13", "trixie", "Debian GNU/Linux 13 (trixie)", "x86_64"),
    "ubuntu2204": OsFacts("ubuntu", "22.04", "jammy", "Ubuntu 22.04.5 LTS", "x86_64", ("debian",)),
    "rocky9": OsFacts("rocky", "9.6", "", "Rocky Linux 9.6 (Blue Onyx)", "x86_64", ("rhel", "centos", "fedora")),
    "ubuntu2404": OsFacts("ubuntu", "24.04", "noble", "Ubuntu 24.04.1 LTS", "x86_64", ("debian",)),
    "ubuntu2604": OsFacts("ubuntu", "26.04", "resolute", "Ubuntu 26.04.1 LTS", "x86_64", ("debian",)),
    "rocky10": OsFacts("rocky", "10.2", "", "Rocky Linux 10.2 (Red Quartz)", "x86_64", ("rhel", "centos", "fedora")),
    "rhel10": OsFacts("rhel", "10.2", "", "Red Hat Enterprise Linux 10.2 (Coughlan)", "x86_64", ("centos", "fedora")),
    "almalinux10": OsFacts(
        "almalinux", "10.2", "", "AlmaLinux 10.2 (Lavender Lion)", "x86_64", ("rhel", "centos", "fedora")
    ),
    "centos10": OsFacts("centos", "10", "", "CentOS Stream 10 (Coughlan)", "x86_64", ("rhel", "fedora")),
    "rhel9": OsFacts("rhel", "9.8", "", "Red Hat Enterprise Linux 9.8 (Plow)", "x86_64", ("fedora",)),
    "amzn2023": OsFacts("amzn", "2023", "", "Amazon Linux 2023.12.20260928", "x86_64", ("fedora",)),
    "fedora42": OsFacts("fedora", "42", "", "Fedora Linux 42 (Cloud Edition)", "x86_64"),  # the roles do not serve it
    "rocky8": OsFacts("rocky", "8.10", "", "Rocky Linux 8.10 (Green Obsidian)", "x86_64", ("rhel", "centos", "fedora")),
}
# A system as the roles name it ─► a machine in OS that has it.
MACHINES = {release.roles: name for name, os in OS.items() if (release := catalogue.archive(os.id, os.version_id))}
PROFILES = sorted(path.stem for path in (ROOT / "profiles").glob("*.yml"))
CUDA_FULL = {"11.8": "11.8.89", "12.4": "12.4.131"}


@cache
def shipped(name: str) -> Profile:
    return loading.load(name)


def load(name: str = "t4", **parts: Any) -> Profile:
    """A shipped profile with some wishes changed: load("t4", driver={"flavour": "open"}, gpus=("t4", "v100"))."""
    return with_parts(shipped(name), **parts)


def with_parts(base: Nested, **parts: Any) -> Nested:
    """`base` with other parts, or with some other fields in a part: with_parts(wanted, cuda={"version": "none"})."""
    new = {
        part: dataclasses.replace(getattr(base, part), **values) if isinstance(values, dict) else values
        for part, values in parts.items()
    }
    return dataclasses.replace(base, **new)


def pci(models: Sequence[str]) -> tuple[PciDevice, ...]:
    """GPUs by model ("t4") or PCI device id ("1eb8"), on consecutive slots."""
    return tuple(
        PciDevice(f"0000:00:{0x1E - i:02x}.0", "10de", device, "030200", None, subsystem)
        for i, (device, subsystem) in enumerate(map(_ids, models))
    )


def _ids(model: str) -> tuple[str, str]:
    """PCI device and subsystem id of a model's first board."""
    if model in DEVICE_IDS or model not in catalogue.models():
        return DEVICE_IDS.get(model, model), ""
    board = next(board for board in catalogue.boards().values() if board.model.key == model)
    return board.pci_device_ids[0], (*board.subsystem_ids, "")[0]


def nowhere() -> dict[str, OptStr]:
    return {"nvcc": None, "ffmpeg": None}


def bare_snapshot(os: str = "debian13", gpus: Sequence[str] = ("t4",)) -> Snapshot:
    """A fresh cloud VM: nothing of NVIDIA's, no gpuprep."""
    kernel = KERNELS.get(os, "6.8.0-50-generic")
    release = catalogue.archive(OS[os].id, OS[os].version_id)
    return Snapshot(
        taken_at="2026-11-20T10:00:00+00:00",
        source=Source.SIMULATED,
        agent_version=__version__,
        hostname="gpu-1",
        os=OS[os],
        kernel=KernelFacts(kernel, kernel, False, False, True, False, "boot-1", 300.0),
        virtualization="kvm",
        is_root=True,
        pci_gpus=pci(gpus),
        nvswitches=0,
        driver=DriverFacts(None, None, None, None, None, None, None, None, False, None),
        packages={},
        gpus=Missing("library_not_found", "libnvidia-ml.so.1"),
        locked_clocks=(),
        cuda=CudaFacts(None, None, None),
        cudnn=CudnnFacts(None, None, None, None, None),
        codec=CodecFacts(None, None, None, None, None, None),
        shells=ShellFacts(nowhere(), nowhere(), nowhere()),
        units={
            "nvidia-persistenced.service": UnitFacts("not-found", "inactive"),
            "gpuprep-tune.service": UnitFacts("not-found", "inactive"),
        },
        files=dict.fromkeys(FILES),
        commands={"python3": "/usr/bin/python3", "gcc": None, "g++": None, "make": None, "tmux": None},
        python_modules={},
        mounts=(Mount("/dev/vda1", "/", "ext4"),),
        disk_free_mib={"/": 40000, "/opt": 40000, "/usr": 40000, "/var": 40000, "/tmp": 40000},
        cloud_init="done",
        provenance=None,
        agent_installed_version=None,
        libraries=dict.fromkeys(NEEDED),
        xids=(),
        apt=None if release is not None and release.rpm else NOT_READ,
        use=UseFacts((), (), (), {}),
    )


def on_arm64(snapshot: Snapshot) -> Snapshot:
    """The same machine with an ARM processor."""
    kernel = snapshot.kernel.running.replace("amd64", "arm64").replace("x86_64", "aarch64")
    return dataclasses.replace(
        snapshot,
        os=dataclasses.replace(snapshot.os, architecture="aarch64"),
        kernel=dataclasses.replace(snapshot.kernel, running=kernel, next_boot=kernel),
    )


FILES = (
    "/etc/gpuprep/tuning.json",
    "/etc/modprobe.d/gpuprep-nvidia.conf",
    "/etc/modprobe.d/gpuprep-nouveau.conf",
    "/etc/systemd/system/nvidia-persistenced.service.d/gpuprep.conf",
    "/etc/udev/rules.d/60-gpuprep-tune.rules",
    "/etc/profile.d/gpuprep.sh",
    "/etc/environment",
    "/etc/systemd/system.conf.d/gpuprep.conf",
    "/etc/apt/apt.conf.d/52gpuprep-holds",
)


def with_driver(snapshot: Snapshot, wanted: Wanted, *, loaded: bool) -> Snapshot:
    """The driver's packages installed and its module built; loaded, as after a reboot, or not yet."""
    version, flavour = wanted.driver.archive_version, wanted.driver.flavour
    kernel, prebuilt = snapshot.kernel.running, wanted.driver.modules == "prebuilt"
    return dataclasses.replace(
        snapshot,
        kernel=dataclasses.replace(snapshot.kernel, headers_running=not prebuilt, headers_next_boot=not prebuilt),
        driver=DriverFacts(
            loaded_version=version if loaded else None,
            loaded_flavour=flavour if loaded else None,
            module_version=version,
            module_flavour=flavour,
            module_next_boot_version=version,
            library_version=version,
            nvml_version=version if loaded else NO_DRIVER,
            runfile=None,
            nouveau_loaded=False,
            nouveau_in_initramfs=False,
            counters_restricted=(wanted.tuning.profiling_counters == "restricted") if loaded else None,
            dkms=() if prebuilt else (DkmsModule("nvidia-current", version, kernel, "installed"),),
        ),
        packages={
            **snapshot.packages,
            **{name: Package(f"{version}-1", wanted.driver.hold) for name in wanted.driver.packages},
            **{name: Package("6.8.0-50.51+1", False) for name in wanted.driver.prebuilt},
        },
        gpus=tuple(gpu_facts(i, d, wanted) for i, d in enumerate(snapshot.pci_gpus)) if loaded else NO_DRIVER,
        files={
            **snapshot.files,
            "/etc/modprobe.d/gpuprep-nvidia.conf": modprobe_file(wanted),
            "/etc/modprobe.d/gpuprep-nouveau.conf": "blacklist nouveau\noptions nouveau modeset=0\n",
            "/etc/apt/apt.conf.d/52gpuprep-holds": holds_file(wanted.driver.packages) if wanted.driver.hold else None,
        },
        libraries={name: f"/usr/lib/x86_64-linux-gnu/{name}" for name in NEEDED},
    )


def holds_file(names: Sequence[str]) -> str:
    patterns = "".join(f'  "^{name}$";\n' for name in names)
    return f"Unattended-Upgrade::Package-Blacklist {{\n{patterns}}};\n"


def modprobe_file(wanted: Wanted) -> str:
    restrict = 0 if wanted.tuning.profiling_counters == "open" else 1
    firmware = "" if wanted.driver.gpu_firmware else " NVreg_EnableGpuFirmware=0"
    return f"options nvidia-current NVreg_RestrictProfilingToAdminUsers={restrict}{firmware}\n"


def gpu_facts(index: int, device: PciDevice, wanted: Wanted) -> GpuFacts:
    """The GPU as NVML shows it once it is tuned as wanted."""
    gpu = catalogue.board(device.device_id)
    assert gpu is not None
    top = gpu.clocks or ClockPair(2619, gpu.boost_mhz or 1980)
    supported = (top, *(ClockPair(top.memory_mhz, top.graphics_mhz - 15 * step) for step in range(1, 40)))
    watts = gpu.power_watts or 400
    limit = wanted.tuning.power_limit_watts
    family = topologies.family(gpu)
    links = family.links if family else None
    facts = GpuFacts(
        index=index,
        uuid=f"GPU-{index}",
        name=gpu.name,
        pci_address=device.address,
        pci_device_id=device.device_id,
        serial="0",
        memory_total_mib=gpu.memory_mib or 16384,
        persistence_mode=wanted.tuning.persistence,
        application_clocks=supported[20],
        default_application_clocks=supported[20],
        supported_clocks=supported,
        max_graphics_clock_mhz=top.graphics_mhz,
        graphics_clock_mhz=top.graphics_mhz,
        memory_clock_mhz=top.memory_mhz,
        power=PowerLimits(float(watts if isinstance(limit, str) else limit), float(watts), watts * 0.5, float(watts)),
        ecc_current=wanted.tuning.ecc != "disabled",
        ecc_pending=wanted.tuning.ecc != "disabled",
        compute_mode=wanted.tuning.compute_mode,
        temperature_c=40,
        event_reasons=0,
        ecc_errors=EccErrors(0, 0, 0, 0),
        retired_pages=RetiredPages(0, 0, False),
        remapped_rows=RemappedRows(0, 0, False, False),
        mig_current=False,
        mig_pending=False,
        nvlinks=(True,) * links if links else Missing("not_supported", "Not Supported"),
        processes=(),
    )
    pair = tuning.wanted_pair(wanted, facts)
    return dataclasses.replace(facts, application_clocks=pair) if isinstance(pair, ClockPair) else facts


def finished_snapshot(wanted: Wanted, base: Snapshot | None = None) -> Snapshot:
    """A host on which all of `wanted` is true. `base` gives its OS, kernel and GPUs (default: of `wanted`)."""
    if base is None:
        base = bare_snapshot(
            wanted.os_key.replace("-", "").replace(".", ""), [gpu.pci_device_id for gpu in wanted.gpus]
        )
    snapshot = with_driver(base, wanted, loaded=True)
    if wanted.driver.source == "nvidia" and snapshot.apt is not None:
        version = snapshot.driver.module_version
        pin = f"Package: *nvidia*\nPin: version {version}-*\nPin-Priority: 1000\n"
        snapshot = dataclasses.replace(snapshot, files={**snapshot.files, "/etc/apt/preferences.d/gpuprep-nvidia": pin})
    if wanted.driver.stream:
        stream = f"[nvidia-driver]\nname=nvidia-driver\nstream={wanted.driver.stream}\nprofiles=\nstate=enabled\n"
        snapshot = dataclasses.replace(snapshot, files={**snapshot.files, DRIVER_STREAM: stream})
    snapshot = _with_tuning(snapshot, wanted)
    snapshot = _with_toolkit(snapshot, wanted)
    return _with_extras(snapshot, wanted)


def daemon_file(wanted: Wanted) -> str:
    option = "" if wanted.tuning.persistence else " --no-persistence-mode"
    return f"[Service]\nExecStart=\nExecStart=/usr/bin/nvidia-persistenced --user nvpd{option}\n"


def _with_tuning(snapshot: Snapshot, wanted: Wanted) -> Snapshot:
    on = UnitFacts("enabled", "active")
    fabric = {FABRIC_MANAGER: on} if snapshot.nvswitches else {}
    return dataclasses.replace(
        snapshot,
        units={**snapshot.units, "nvidia-persistenced.service": on, "gpuprep-tune.service": on, **fabric},
        files={
            **snapshot.files,
            "/etc/gpuprep/tuning.json": json.dumps(tuning_document(wanted)),
            "/etc/systemd/system/nvidia-persistenced.service.d/gpuprep.conf": daemon_file(wanted),
            "/etc/udev/rules.d/60-gpuprep-tune.rules": 'ACTION=="add", ENV{SYSTEMD_WANTS}="gpuprep-tune.service"\n',
        },
        agent_installed_version=wanted.agent.version,
        agent_libraries={"pip": "25.1.1", **agent_libraries(wanted.cuda.major)},
        provenance={"gpuprep_version": wanted.agent.version},
    )


def _with_toolkit(snapshot: Snapshot, wanted: Wanted) -> Snapshot:
    cuda, cudnn, ffmpeg = (v != "none" for v in (wanted.cuda.version, wanted.cudnn.version, wanted.codec.ffmpeg))
    library = f"{wanted.cudnn_directory}/lib/libcudnn.so.9"
    program = f"{wanted.ffmpeg_directory}/bin/ffmpeg"
    tools: dict[str, OptStr] = {
        "nvcc": "/usr/bin/nvcc" if cuda else None,
        "ffmpeg": "/usr/local/bin/ffmpeg" if ffmpeg else None,
    }
    parts = (wanted.driver, wanted.cuda, wanted.containers)
    held = [name for part in parts if part.hold for name in part.packages]
    files = {**snapshot.files, HOLDS: holds_file(held) if held else None}
    if cuda:
        files["/etc/profile.d/gpuprep.sh"] = "export CUDA_HOME=/usr/lib/cuda\n"
        files["/etc/environment"] = 'PATH="/usr/local/bin:/usr/bin:/bin"\nCUDA_HOME=/usr/lib/cuda\n'
        files["/etc/systemd/system.conf.d/gpuprep.conf"] = "[Manager]\nDefaultEnvironment=CUDA_HOME=/usr/lib/cuda\n"
    if wanted.cuda.pin:
        files[CUDA_PIN] = cuda_pin_text(wanted.cuda.pinned, wanted.cuda.pin)
    short = ".".join(wanted.cudnn.version.split(".")[:3])
    return dataclasses.replace(
        snapshot,
        packages={
            **snapshot.packages,
            **{
                name: Package(CUDA_FULL.get(wanted.cuda.version, "0"), wanted.cuda.hold)
                for name in wanted.cuda.packages
            },
        },
        libraries={**snapshot.libraries, **toolkit_libraries(wanted)} if cuda else snapshot.libraries,
        cuda=CudaFacts(
            "/usr/bin/nvcc",
            wanted.cuda.version,
            "/usr/lib/x86_64-linux-gnu/libcupti.so.12",
            ("/usr/lib/x86_64-linux-gnu",),
            compiler_refused=None,
        )
        if cuda
        else snapshot.cuda,
        cudnn=CudnnFacts(
            library,
            short,
            f"{wanted.cudnn_directory}/include/cudnn_version.h",
            wanted.cudnn.version,
            wanted.cuda.major,
            manifest_intact=True,
        )
        if cudnn
        else snapshot.cudnn,
        codec=CodecFacts(
            wanted.codec.headers,
            "/usr/local/bin/ffmpeg",
            program,
            wanted.codec.ffmpeg,
            wanted.build_key,
            True,
            not wanted.codec.npp,
            headers_intact=True,
        )
        if ffmpeg
        else snapshot.codec,
        shells=ShellFacts(dict(tools), dict(tools), dict(tools)),
        commands={**snapshot.commands, "ffprobe": "/usr/local/bin/ffprobe"} if ffmpeg else snapshot.commands,
        files=files,
    )


def toolkit_libraries(wanted: Wanted) -> dict[str, OptStr]:
    major = wanted.cuda.version.split(".")[0]
    names = [f"{stem}{major}" for stem in ("libcublas.so.", "libcublasLt.so.", "libcudart.so.")]
    return {name: f"/usr/lib/x86_64-linux-gnu/{name}.1.2" for name in names}


def _with_extras(snapshot: Snapshot, wanted: Wanted) -> Snapshot:
    mount = wanted.mount
    mounts = (Mount(mount.device, mount.path, mount.fstype),) if mount else ()
    return dataclasses.replace(
        snapshot,
        packages={**snapshot.packages, **{name: Package("1", False) for name in wanted.extras.packages}},
        commands={**snapshot.commands, **{name: f"/usr/bin/{name}" for name in wanted.extras.commands}},
        python_modules={**snapshot.python_modules, **dict.fromkeys(wanted.extras.python_modules, "1.0")},
        mounts=(*snapshot.mounts, *mounts),
    )


def measured_t4() -> tuple[ProbeResult, ...]:
    """What the measuring probes said on a finished simulated T4 (its thumbnails and most of the telemetry left out)."""
    rows = json.loads((TESTS / "cases/records/t4-simulated.json").read_text(encoding="utf-8"))
    return tuple(from_json_value(ProbeResult, row) for row in rows)


def as_measured(result: ProbeResult) -> ProbeResult:
    """As if a real GPU had given these figures of a simulated one, which draws an idle one's watts under load."""
    values = copy.deepcopy(result.values)
    for gpu in values.get("gpus", ()) if isinstance(values, dict) else ():
        for product in gpu.get("gemms", ()):
            for load in (product, product.get("sustained") or {}):
                load.update({"power_watts": 69.0} if "power_watts" in load else {})
    return dataclasses.replace(result, source=Source.MEASURED, values=values)


def good_probes(wanted: Wanted) -> tuple[ProbeResult, ...]:
    """What the probes say on a finished host."""
    singular = {
        "muxers": "muxer",
        "demuxers": "demuxer",
        "parsers": "parser",
        "bsfs": "bsf",
        "protocols": "protocol",
        "indevs": "indev",
    }
    codec = {
        "encoders": list(wanted.codec.parts.get("encoders", ())),
        "decoders": list(wanted.codec.parts.get("decoders", ())),
        "filters": list(wanted.codec.parts.get("filters", ())),
        "hwaccels": ["cuda"],
        "buildconf": [f"--enable-{singular[k]}={n}" for k in singular for n in wanted.codec.parts.get(k, ())],
        "version": wanted.codec.ffmpeg,
        "path": "/usr/local/bin/ffmpeg",
    }
    toolkit = {"compiles": True, "nvcc": "/usr/bin/nvcc", "version": wanted.cuda.version, "output": "", "seconds": 3.0,
               "runs": True, "run_output": "", "host_compiler": "gcc 14.2.0",
               "cupti": {"path": "/usr/lib/x86_64-linux-gnu/libcupti.so.12", "version": 22, "counters": True,
                         "as_user": "nobody", "detail": ""}}  # fmt: skip
    return (
        ProbeResult("toolkit", Source.SIMULATED, toolkit, 3.0),
        ProbeResult("codec", Source.SIMULATED, codec, 0.2),
    )


def resolved(name: str = "t4", os: str = "debian13", gpus: Sequence[str] | None = None) -> Wanted:
    """Of a profile for GPUs of many models the first one, a T4."""
    return _resolved(name, os, tuple(gpus or shipped(name).gpus[:1]))


@cache  # the tables of verdicts ask some thousand times for the same
def _resolved(name: str, os: str, gpus: tuple[str, ...]) -> Wanted:
    return resolve(load(name), bare_snapshot(os, gpus))
