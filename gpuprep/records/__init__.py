"""Which data pass from stage to stage? Frozen dataclasses and their enums. Stdlib only.

This module also runs on the GPU VM (Python 3.9 or newer), so it avoids newer run-time features.
A reading that failed is `Missing`: a value, never None and never an exception. None means "read, and there is none".
GPUs are in records/gpu.py, JSON in records/serialize.py; import the names of all three from here.
"""

from __future__ import annotations

import builtins
import enum
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from gpuprep.records.gpu import (
    NOT_READ,
    RECOVERY_ACTIONS,
    Bool,
    ClockPair,
    EccErrors,
    Float,
    GpuFacts,
    Int,
    MigDevice,
    OptStr,
    PcieErrors,
    PcieLink,
    PowerLimits,
    ProcessOnGpu,
    RemappedRows,
    RetiredPages,
    SpareRows,
    Str,
    Temperatures,
    Throttled,
    Utilization,
)
from gpuprep.records.serialize import (
    DecodeError,
    ExitCode,
    Missing,
    Moment,
    OptDay,
    OptMoment,
    OptRunId,
    RunId,
    from_json,
    from_json_value,
    is_moment,
    plain_json,
    to_json,
    to_json_value,
)

__all__ = [
    "DRIVER_LIBRARIES",
    "LIBRARIES",
    "NOT_READ",
    "RECOVERY_ACTIONS",
    "SCHEMA_VERSION",
    "AptFacts",
    "AptPin",
    "Bool",
    "ClockPair",
    "CloudFacts",
    "CodecFacts",
    "Compared",
    "ConfigLine",
    "CudaFacts",
    "CudnnFacts",
    "DecodeError",
    "DkmsModule",
    "DriftFacts",
    "DriverFacts",
    "EccErrors",
    "Effort",
    "ExitCode",
    "FactsRequest",
    "Finding",
    "Fix",
    "Float",
    "FolderFacts",
    "GpuFacts",
    "HistoryFacts",
    "IdentityFacts",
    "Int",
    "KernelFacts",
    "LoadedLibrary",
    "LocalDisk",
    "LockedClocks",
    "MigDevice",
    "Missing",
    "ModprobeLine",
    "ModuleCertificate",
    "ModuleSignature",
    "Moment",
    "Mount",
    "NightlyFacts",
    "NvidiaRepository",
    "OptDay",
    "OptMoment",
    "OptRunId",
    "OptStr",
    "OsFacts",
    "Package",
    "PackageManagerFacts",
    "PciDevice",
    "PcieErrors",
    "PcieLink",
    "Plan",
    "PlaybookResult",
    "PowerLimits",
    "ProbeResult",
    "ProcessOnGpu",
    "ProfileRef",
    "RemappedRows",
    "RetiredPages",
    "RunId",
    "RunRecord",
    "ShellFacts",
    "SignatureFacts",
    "Snapshot",
    "Source",
    "SpareRows",
    "Status",
    "Step",
    "Str",
    "TaskResult",
    "Temperatures",
    "Throttled",
    "UnitFacts",
    "Unseen",
    "Utilization",
    "Verdict",
    "Xid",
    "from_json",
    "from_json_value",
    "is_moment",
    "plain_json",
    "to_json",
    "to_json_value",
]  # fmt: skip

SCHEMA_VERSION = 1


class Status(str, enum.Enum):
    """The result of a check. Absent evidence is UNKNOWN, never PASS."""

    PASS = "PASS"
    WARN = "WARN"
    FAIL = "FAIL"
    SKIP = "SKIP"
    UNKNOWN = "UNKNOWN"
    WAIVED = "WAIVED"  # did not pass; the profile accepts it for a while. Counts neither for nor against


class Source(str, enum.Enum):
    """Whether a number was read from hardware or from a simulated GPU."""

    MEASURED = "measured"
    SIMULATED = "simulated"


# ---------------------------------------------------------------- snapshot: the facts of one host


@dataclass(frozen=True)
class OsFacts:
    id: str  # "debian", "ubuntu", "rocky": os-release ID
    version_id: str  # "12", "13", "24.04"
    codename: str
    pretty_name: str
    architecture: str  # "x86_64", "aarch64" as of uname -m
    like: tuple[str, ...] = ()  # os-release ID_LIKE


@dataclass(frozen=True)
class BootFault:
    """Something that the next boot needs and that is wrong; agent/facts/nextboot.py has the kinds."""

    kind: str  # "image_gone", "initrd_empty", "blocked", "unlisted"
    what: str  # a path or an option


@dataclass(frozen=True)
class BootFacts:
    """The entry that the boot loader starts next, as its resolved settings say."""

    loader: str  # "GRUB", "systemd-boot", "none": then the newest kernel in /boot counts
    setting: str  # what decides: "saved_entry=... in /boot/grub/grubenv"
    title: str
    image: str  # the kernel's path on this system
    options: str  # the kernel's command line
    once: bool  # chosen for one boot
    fallback: OptStr  # release of the kernel that is left if this one fails; None: there is no other
    faults: tuple[BootFault, ...] = ()


@dataclass(frozen=True)
class KernelFacts:
    running: str  # uname -r
    next_boot: OptStr  # the kernel that a reboot starts; None: no kernel in /boot, as in a container
    headers_running: Bool  # /lib/modules/<running>/build exists
    headers_next_boot: Bool
    headers_available: Bool  # the package manager offers the headers of the running kernel
    secure_boot: Bool
    boot_id: str
    uptime_seconds: float
    boot: Union[BootFacts, Missing, None] = NOT_READ


@dataclass(frozen=True)
class PciDevice:
    address: str  # "0000:00:1e.0"
    vendor_id: str  # "10de"
    device_id: str  # "1eb8", lower case
    class_code: str  # "030200"
    driver: Optional[str] = None  # bound kernel driver
    subsystem_id: Str = NOT_READ  # the device's half: "12a2"
    name: OptStr = NOT_READ  # as lspci has it; None: the host has no database, or it is not in there


@dataclass(frozen=True)
class DkmsModule:
    module: str  # "nvidia-current"
    version: str  # "550.163.01"
    kernel: Optional[str]  # None: only added
    state: str  # "added", "built", "installed"


@dataclass(frozen=True)
class DriverFacts:
    """The four places that show a driver's version, and other facts about the driver."""

    loaded_version: OptStr  # /proc/driver/nvidia/version; None: no module loaded
    loaded_flavour: OptStr  # "open" | "proprietary", from the same file
    module_version: OptStr  # modinfo for the running kernel; None: no module on disk
    module_flavour: OptStr  # by modinfo's licence: "open" (Dual MIT/GPL) | "proprietary"
    module_next_boot_version: OptStr  # the same for the next kernel
    library_version: OptStr  # libnvidia-ml.so.1 resolves to libnvidia-ml.so.<this>
    nvml_version: OptStr  # nvmlSystemGetDriverVersion
    runfile: Optional[str]  # evidence of an installation by NVIDIA's .run file, or None
    nouveau_loaded: bool
    counters_restricted: Union[bool, Missing, None]  # RmProfilingAdminOnly; None: no module loaded
    dkms: tuple[DkmsModule, ...] = ()
    # Whether the next boot's initramfs loads nouveau, having no blacklist of it; None: nouveau is not in there.
    nouveau_in_initramfs: Union[bool, Missing, None] = NOT_READ
    module_next_boot_flavour: OptStr = NOT_READ
    module_fallback_version: OptStr = NOT_READ  # the module's for the kernel that is left if the next one fails
    # A module of the driver in the next boot's initramfs that is older than the one on the disk; None: there is none.
    initramfs_stale: OptStr = NOT_READ


@dataclass(frozen=True)
class DriverChange:
    """A change of the driver that nobody has seen work, or that the host undid; gone once a provision passes."""

    status: str  # "pending" | "failed" | "going-back" | "restarting" | "back" | "stuck" (agent/rollback/saved.py)
    wanted: str  # the driver of the change, "610.43.02"
    before: str  # the driver that is kept for going back; "": none that worked
    began: str  # UTC, ISO 8601
    ended: str = ""
    by: str = ""  # who went back: "itself" | "run" | "user"
    cause: str = ""  # why the new driver does not work
    error: str = ""  # why the way back failed


@dataclass(frozen=True)
class Package:
    version: str
    held: bool


@dataclass(frozen=True)
class LockedClocks:
    """The clocks that gpuprep locked on one GPU, as the tuning unit wrote them (NVML has no getter)."""

    uuid: str
    memory_mhz: Optional[int]
    graphics_mhz: int
    boot_id: str


@dataclass(frozen=True)
class CudaFacts:
    nvcc_path: OptStr  # None: no nvcc on any known path
    nvcc_version: OptStr  # "12.4"
    cupti_path: OptStr  # libcupti.so as the loader finds it
    library_folders: tuple[str, ...] = ()  # where that nvcc's toolkit keeps its libraries, links resolved too
    compiler_refused: OptStr = NOT_READ  # why nvcc takes no compiler of the host; None: it takes one


@dataclass(frozen=True)
class LoadedLibrary:
    """A library of the driver as programs get it."""

    path: str  # links resolved; Snapshot.owners has its package
    place: str  # as the loader found it: "/usr/local/cuda/lib64/stubs/libcuda.so.1"
    version: OptStr  # "550.163.01"; None: it tells none, as a stub of the toolkit


@dataclass(frozen=True)
class CudnnFacts:
    library_path: OptStr  # libcudnn.so.N as the loader finds it, links resolved
    version: OptStr  # "9.10.2" from cudnn_version.h beside that library
    header_path: OptStr
    wheel_version: OptStr  # "9.10.2.21" from gpuprep's manifest beside the library
    cuda_major: OptStr  # "12", likewise
    manifest_intact: Union[bool, Missing, None] = NOT_READ  # as CodecFacts.manifest_intact


@dataclass(frozen=True)
class CodecFacts:
    """nv-codec-headers, and the FFmpeg that a plain `ffmpeg` starts."""

    headers_version: OptStr  # pkg-config --modversion ffnvcodec
    ffmpeg_path: OptStr  # what PATH finds
    ffmpeg_real_path: OptStr  # links resolved
    ffmpeg_version: OptStr
    build_key: OptStr  # from the manifest of that build
    manifest_intact: Union[bool, Missing, None]  # every file of the manifest has its sha256; None: no manifest
    redistributable: Union[bool, Missing, None] = None
    headers_intact: Union[bool, Missing, None] = NOT_READ  # as manifest_intact, of the headers


@dataclass(frozen=True)
class ContainerRuntime:
    name: str  # "docker", "containerd", "crio"
    configured: Bool  # its settings name NVIDIA's runtime


@dataclass(frozen=True)
class ContainerFacts:
    """NVIDIA's container toolkit, and the devices and files that a container with a GPU would get."""

    toolkit: OptStr  # nvidia-ctk's version; None: not installed
    devices: Union[tuple[str, ...], Missing, None]  # names in the CDI specification; None: no specification
    absent: tuple[str, ...] = ()  # paths of the specification that are not on the machine, the first 20
    drivers: tuple[str, ...] = ()  # driver versions in the names of the specification's libraries
    runtimes: tuple[ContainerRuntime, ...] = ()  # those that are installed


@dataclass(frozen=True)
class ShellFacts:
    """Paths of `nvcc` and `ffmpeg` for each way of starting a program; None: not found."""

    login_shell: dict[str, OptStr]
    non_login_shell: dict[str, OptStr]
    systemd_service: dict[str, OptStr]
    sudo_path: OptStr = NOT_READ  # where sudo looks for programs; None: where its user would
    login_path: Str = NOT_READ  # PATH of a login shell


@dataclass(frozen=True)
class UnitFacts:
    enabled: str  # systemctl is-enabled
    active: str  # systemctl is-active
    files: tuple[str, ...] = ()  # the unit's own file, then its drop-ins in the order in which they count
    command: str = ""  # of ExecStart=, all of these files read together


@dataclass(frozen=True)
class ModprobeLine:
    """A line of modprobe's configuration about NVIDIA's modules or nouveau. Later lines override earlier lines."""

    file: str  # "/proc/cmdline" where the kernel's command line says it
    words: tuple[str, ...]  # ("options", "nvidia", "NVreg_EnableGpuFirmware=0"); names with underscores
    text: str = ""  # as it stands in the file; "" in records of older versions


@dataclass(frozen=True)
class ConfigLine:
    """A line that decides where programs or libraries are looked for, or what unattended upgrades leave alone."""

    file: str
    line: str
    folders: tuple[str, ...] = ()  # that it names, as they stand there and with links resolved


@dataclass(frozen=True)
class AptPin:
    """One stanza of apt's preferences."""

    file: str
    packages: str  # names, globs, /expressions/
    pin: str  # "version 550.*", "release a=stable", "origin ..."
    priority: str


@dataclass(frozen=True)
class AptFacts:
    """apt's configuration as apt itself reads it, from all files together."""

    blacklist: Union[tuple[str, ...], Missing]  # Unattended-Upgrade::Package-Blacklist
    pins: tuple[AptPin, ...]  # less those of all packages ("*")
    malformed: tuple[str, ...] = ()  # "FILE: why", of preferences that apt stumbles upon
    passed_over: tuple[str, ...] = ()  # "FILE: why", of files that apt does not read at all


@dataclass(frozen=True)
class LocalDisk:
    """An empty local disk of a cloud machine: it is blank again after each stop of the machine."""

    device: str  # "/dev/nvme1n1"; another one after a reboot
    model: str
    size_bytes: int


@dataclass(frozen=True)
class FolderFacts:
    """Where a folder really is, links followed; of one that does not exist yet, where it would be made."""

    mount: str  # the mount point that holds it
    read_only: bool
    inodes_free: Union[int, Missing, None] = NOT_READ  # how many more files fit; None: the file system has no limit


@dataclass(frozen=True)
class PackageManagerFacts:
    """Unfinished package states, and which program works with the packages now: both must be empty before a change."""

    unfinished: dict[str, str]  # package -> "half-configured", as dpkg says it; of rpm "installed twice"
    journal: tuple[str, ...]  # files of a run of dpkg that was broken off: apt refuses all work
    holders: Union[dict[str, str], Missing]  # lock -> "unattended-upgr (process 812)"
    ours: tuple[str, ...] = ()  # packages of a step of gpuprep that was broken off: provision completes it


@dataclass(frozen=True)
class UseFacts:
    """Who uses the machine now, as sentences: what a restart would take from somebody. gpuprep's own does not count."""

    programs: tuple[str, ...]  # "python3 (process 812, alice) on gpu 0"
    jobs: tuple[str, ...]  # "Slurm's job 71 of alice"
    users: tuple[str, ...]  # "bob on pts/3 since Sun 2026-11-29 10:12:01 UTC from 10.0.0.7"
    unknown: dict[str, str]  # the name of a field above ► why that could not be read


@dataclass(frozen=True)
class NvidiaRepository:
    """An entry of apt's or dnf's sources for one of NVIDIA's repositories of drivers and CUDA."""

    file: str
    system: str  # for which it is: "ubuntu2404", "debian12", "rhel9"
    unverified: str = ""  # what has packages from there installed that no key has signed: "gpgcheck=0"


@dataclass(frozen=True)
class Mount:
    device: str
    path: str
    fstype: str


@dataclass(frozen=True)
class Xid:
    """One error that the driver wrote to the kernel log."""

    code: int  # what it means: catalogue/xids.yml
    pci_address: str  # as PciDevice.address
    message: str  # what follows the code
    time: Union[Moment, Missing]  # UTC, ISO 8601


@dataclass(frozen=True)
class IdentityFacts:
    """What identifies this machine, as digests, because others may read reports (agent/facts/machineidentity.py).

    The host reports all this itself, so it proves nothing: checks/drift/samehost.py explains how it is used.
    """

    machine_id: OptStr  # of /etc/machine-id; None: there is none
    hardware: OptStr  # of the UUID and the serial numbers of the machine and its board; None: it has none of its own
    ssh_host_keys: tuple[str, ...] = ()  # "SHA256:...", as OpenSSH shows them


@dataclass(frozen=True)
class CloudFacts:
    """The machine's cloud, and its type and name in that cloud (agent/facts/cloud.py)."""

    provider: str  # "aws" | "azure" | "gcp"
    instance_type: OptStr  # "g4dn.xlarge", "Standard_NC4as_T4_v3", "a2-highgpu-1g"
    told_by: str  # "DMI" | "cloud-init" | "metadata service"; of the type
    instance: OptStr = NOT_READ  # in a form of records/cloudnames.py: "eu-west-1/i-0123abcd"; None: not known


@dataclass(frozen=True)
class ModuleSignature:
    """One of NVIDIA's kernel modules, and the signature at its end (agent/facts/signatures.py)."""

    path: str
    kernel: str
    signer: OptStr  # the name in it: "DKMS module signing key"; None: the module is not signed
    key_id: OptStr  # as modinfo's sig_key: "21:7D:63"
    fits: Union[bool, Missing, None]  # verified: it is this module's; False: the module or the signature was changed
    verified_by: OptStr  # the certificate that says so; None: no certificate on the host is the signer's


@dataclass(frozen=True)
class ModuleCertificate:
    """A certificate on the host whose key signs modules."""

    path: str
    enrolled: Bool  # as mokutil says: the firmware's list of the owner's keys has it


@dataclass(frozen=True)
class SignatureFacts:
    """Signatures of NVIDIA's modules for the running kernel and for the next boot's kernel."""

    modules: tuple[ModuleSignature, ...]
    certificates: tuple[ModuleCertificate, ...]  # that are there, and that the profile names
    loaded_of_file: Bool  # the loaded module has the source number (srcversion) of the running kernel's file


@dataclass(frozen=True)
class FactsRequest:
    """Facts that a profile needs in addition to those of every snapshot."""

    commands: tuple[str, ...] = ()  # extras: resolve these on the PATH
    python_modules: tuple[str, ...] = ()  # extras: versions of these in the system's python3
    packages: tuple[str, ...] = ()  # further package names to look up
    certificates: tuple[str, ...] = ()  # paths on the host: kernel modules may be signed for these
    folders: tuple[str, ...] = ()  # paths on the host: where something is to be written
    prefixes: tuple[str, ...] = ()  # folders of builds: /opt/gpuprep/ffmpeg
    asked_at: OptMoment = ""  # by the controller's clock; "": no controller asks
    use: bool = False  # who uses the machine: before a change that may disturb somebody


# The driver's libraries that a snapshot looks for: CUDA, decoding, encoding. Headless packages lack the last two.
DRIVER_LIBRARIES = ("libcuda.so.1", "libnvcuvid.so.1", "libnvidia-encode.so.1")
# Besides them, every version of these that the loader knows, each under its own soname.
LIBRARIES = (
    "libcublas.so", "libcublasLt.so", "libcudart.so", "libcudnn.so", "libcupti.so", "libnccl.so",
    "libnvJitLink.so", "libnvidia-ml.so", "libnvrtc.so",
)  # fmt: skip


@dataclass(frozen=True)
class Snapshot:
    """All facts of one host at one moment. `source` is simulated if the GPU is simulated."""

    taken_at: Moment  # UTC, ISO 8601
    source: Source
    agent_version: str
    hostname: str
    os: OsFacts
    kernel: KernelFacts
    virtualization: str
    is_root: bool
    pci_gpus: tuple[PciDevice, ...]
    nvswitches: int
    driver: DriverFacts
    packages: dict[str, Package]  # every installed package of the families of interest
    gpus: Union[tuple[GpuFacts, ...], Missing]
    locked_clocks: tuple[LockedClocks, ...]
    cuda: CudaFacts
    cudnn: CudnnFacts
    codec: CodecFacts
    shells: ShellFacts
    units: dict[str, UnitFacts]
    files: dict[str, OptStr]  # path of each small file gpuprep manages -> its text; None: absent
    commands: dict[str, OptStr]  # extras: command -> path
    python_modules: dict[str, OptStr]  # extras: module -> version
    mounts: tuple[Mount, ...]
    disk_free_mib: dict[str, int]  # folder that a step writes to ("/usr/local") -> MiB
    cloud_init: Str  # "done", "running", "absent", "error"
    provenance: Union[dict[str, Any], Missing, None]  # /etc/gpuprep/provenance.json
    agent_installed_version: OptStr = None
    libraries: dict[str, OptStr] = field(default_factory=dict)  # soname -> path; None: not found (see LIBRARIES)
    schema_version: int = SCHEMA_VERSION
    xids: Union[tuple[Xid, ...], Missing] = NOT_READ  # since boot, oldest first
    agent_libraries: dict[str, OptStr] = field(default_factory=dict)  # in the installed agent's environment: version
    modprobe: Union[tuple[ModprobeLine, ...], Missing] = NOT_READ  # in modprobe's own order
    apt: Union[AptFacts, Missing, None] = NOT_READ  # None: another package manager
    digests: Union[dict[str, Str], Missing] = NOT_READ  # path -> sha256: libraries that programs get, nvcc, module
    other_gpus: Union[tuple[PciDevice, ...], Missing] = NOT_READ  # of other makers than NVIDIA
    identity: Union[IdentityFacts, Missing] = NOT_READ
    cloud: Union[CloudFacts, Missing, None] = NOT_READ  # None: no cloud that gpuprep knows
    containers: Union[ContainerFacts, Missing] = NOT_READ
    signatures: Union[SignatureFacts, Missing] = NOT_READ
    nvidia_repositories: Union[tuple[NvidiaRepository, ...], Missing] = NOT_READ
    blank_disks: Union[tuple[LocalDisk, ...], Missing] = NOT_READ
    package_manager: Union[PackageManagerFacts, Missing] = NOT_READ
    folders: Union[dict[str, FolderFacts], Missing] = NOT_READ  # those of disk_free_mib
    config_lines: Union[tuple[ConfigLine, ...], Missing] = NOT_READ  # of anybody's files
    owners: dict[str, OptStr] = field(default_factory=dict)  # path of a file -> its package; None: of no package
    unlisted: Union[tuple[str, ...], Missing] = NOT_READ  # libraries in the loader's folders, and not in its cache
    built: Union[tuple[str, ...], Missing] = NOT_READ  # folders with a manifest, in use or not: FactsRequest.prefixes
    driver_libraries: Union[dict[str, LoadedLibrary], Missing] = NOT_READ  # soname -> those that are found
    # Package of the driver or CUDA -> "/usr/bin/nvidia-smi is gone"; without those whose files are as installed.
    package_files: Union[dict[str, tuple[str, ...]], Missing] = NOT_READ
    driver_change: Union[DriverChange, Missing, None] = NOT_READ  # None: no change of the driver is open or was undone
    # The host's clock against the controller's when that asked, and what the question took; -86400: a day behind.
    clock_ahead_seconds: Int = NOT_READ
    use: Union[UseFacts, Missing] = NOT_READ  # FactsRequest.use


@dataclass(frozen=True)
class ProbeResult:
    """One probe's evidence. `values` are as the probe sent them, docs/records.md; records/evidence reads them.

    A probe does not judge. A probe that did not end has no values; `partial` has what it had measured by then, in the
    same form. Reports show it as partial; it is neither judged nor compared.
    """

    probe: str
    source: Source
    values: Union[dict[str, Any], Missing]
    seconds: float
    partial: Optional[dict[str, Any]] = None


# ---------------------------------------------------------------- judgement


@dataclass(frozen=True)
class Finding:
    """One check's outcome, for verdict, plan and drift alike."""

    subject: str  # "driver", "gpu 0", "ffmpeg"
    property: str  # "persistence_mode"
    status: Status
    expected: str
    actual: str
    reason: str = ""  # why it matters or why it is so
    remedy: str = ""  # what to do
    role: str = ""  # the role that would put it right; "" where none can
    since: OptMoment = ""  # drift: when it was first seen so, UTC, ISO 8601
    waived: str = ""  # how it would have ended without the waiver: "FAIL"
    waiver_expires: OptDay = ""  # the last day of the waiver that fits it, "2026-12-31", whether it still holds or not
    reboot: bool = False  # only a restart of the machine puts it right

    @builtins.property  # the field above hides the plain name
    def key(self) -> str:
        return f"{self.subject}.{self.property}"


@dataclass(frozen=True)
class Verdict:
    status: Status
    summary: str  # one line
    findings: tuple[Finding, ...]


# ---------------------------------------------------------------- plan and run


@dataclass(frozen=True)
class Step:
    """One role to run and why; `reasons` are sentences."""

    role: str
    title: str
    reasons: tuple[str, ...]
    may_reboot: bool = False
    seconds: Optional[float] = None  # what it takes, an estimate; None: nobody was asked
    megabytes: Optional[int] = None  # 10^6 bytes that the host downloads for it


@dataclass(frozen=True)
class Effort:
    """Estimate of the effort for a plan, including the measurement afterwards."""

    seconds: float
    megabytes: int
    restarts: int  # at most
    basis: str  # where the figures are from


@dataclass(frozen=True)
class Plan:
    host: str
    profile: str
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()  # things worth knowing that change nothing
    effort: Optional[Effort] = None  # None: nothing to do, or nobody was asked


@dataclass(frozen=True)
class TaskResult:
    """One Ansible task as it ended on the host."""

    role: str
    task: str
    outcome: str  # ok | changed | failed | skipped | unreachable
    seconds: float


@dataclass(frozen=True)
class PlaybookResult:
    status: str  # "successful" | "failed" | "unreachable" | "canceled" | "not needed"
    changed: int
    ok: int
    failed: int
    tasks: tuple[TaskResult, ...]
    log: str  # path of the whole log on the controller
    seconds: float


@dataclass(frozen=True)
class ProfileRef:
    name: str
    path: str
    sha256: str  # of the resolved content, so that an edited profile is another profile


@dataclass(frozen=True)
class Fix:
    """One repair that `drift --fix` made, or could not make."""

    finding: str  # key of the finding that it is for
    what: str  # a sentence: "turn persistence mode on"
    command: str  # as it ran on the host, as root
    exit_code: int
    said: str = ""  # the end of what it said where it failed
    before: str = ""  # what the check found before, and afterwards: Finding.actual
    after: str = ""
    stays: bool = False  # the check found it afterwards, too


@dataclass(frozen=True)
class Compared:
    """One figure, and the same figure in the host's baseline; more is better."""

    gpu_uuid: str
    probe: str  # "gemm"
    name: str  # "fp16 8192x8192x8192 TN"
    now: float
    before: float
    run_id: OptRunId  # the run that the baseline's figure was measured in


@dataclass(frozen=True)
class Unseen:
    """A finding of an earlier check that this check could not look at. It keeps its date for a later check."""

    key: str
    status: str  # how it ended then, a waiver aside
    since: OptMoment  # UTC, ISO 8601
    needs: str = ""  # what a check must do to see it: "facts" | "measurement" | "deep"; "": not recorded


@dataclass(frozen=True)
class DriftFacts:
    """What a drift check compared with in addition to the profile, and its repairs."""

    certified_run: OptRunId = ""  # the run whose snapshot is "what we certified"; "": there is none yet
    certified_at: OptMoment = ""
    previous_run: OptRunId = ""  # the check before this one; "": this is the first
    previous_at: OptMoment = ""
    on_host: bool = False  # the host checked itself
    probe: str = "none"  # "none" | "quick"
    probe_skipped: str = ""  # why a probe that was wished for was not made
    probe_asked_since: OptMoment = ""  # at night: since when it is wanted; carried on from night to night
    probe_measured_at: OptMoment = ""  # at night: when all probes last gave figures, this night or an earlier one
    fixes: tuple[Fix, ...] = ()
    compared: tuple[Compared, ...] = ()
    unseen: tuple[Unseen, ...] = ()


@dataclass(frozen=True)
class NightlyFacts:
    """The state of the night check on the host after `drift schedule` or `drift unschedule`."""

    scheduled: bool
    at: str = ""  # "02:30", local time of the host
    random_delay_minutes: int = 0
    probe: str = "none"
    next_at: OptMoment = ""  # UTC, ISO 8601, the random delay included; "": systemd does not say
    changed: tuple[str, ...] = ()  # files that were written or removed
    notes: tuple[str, ...] = ()  # sentences that a reader must know


@dataclass(frozen=True)
class HistoryFacts:
    """What the store has about the host, and what a passed run means for it. Only the controller writes it."""

    also_called: tuple[str, ...] = ()  # other names of the same host that the user has used
    certifies: Optional[bool] = None  # drift may compare the host with this run; None: nobody asked
    held_to: OptRunId = ""  # the run that drift compares with in place of this one; "": this run, or none
    notes: tuple[str, ...] = ()  # sentences that the user must read
    doubts: tuple[str, ...] = ()  # why it does not certify the host: "did not measure gemm"


@dataclass(frozen=True)
class RunRecord:
    """One run of one command on one host: what `history`, `report` and `judge` read."""

    run_id: RunId
    command: str  # "provision", "tune", "validate", "plan", "drift", "schedule", "unschedule"
    host: str
    started_at: Moment
    ended_at: Moment
    source: Source
    exit_code: ExitCode
    gpuprep_version: str
    profile: Optional[ProfileRef] = None
    plan: Optional[Plan] = None
    playbook: Optional[PlaybookResult] = None
    before: Optional[Snapshot] = None
    after: Optional[Snapshot] = None
    measurements: tuple[ProbeResult, ...] = ()
    verdict: Optional[Verdict] = None
    findings: tuple[Finding, ...] = ()
    error: Optional[str] = None
    options: dict[str, Any] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION
    drift: Optional[DriftFacts] = None
    nightly: Optional[NightlyFacts] = None
    history: Optional[HistoryFacts] = None
    batch_id: OptRunId = ""  # the same for all hosts of one command; "": a command on one host
    # The machine must be restarted: a finding says so, or the run stopped because gpuprep may not do that
    # (--no-reboot, or `local`).
    reboot_needed: bool = False
