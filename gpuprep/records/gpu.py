"""NVML's readings of one GPU. Add new fields at the end, with NOT_READ, so that older records can still be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from gpuprep.records.serialize import Missing

Str = Union[str, Missing]
OptStr = Union[str, None, Missing]
Int = Union[int, Missing]
Float = Union[float, Missing]
Bool = Union[bool, Missing]

NOT_READ = Missing("not_read", "this record was made by a gpuprep that did not read it yet")

# What the driver may ask for, by the number of NVML (nvmlDeviceGpuRecoveryAction_t) and of Xid 154.
RECOVERY_ACTIONS = {
    0: "none",
    1: "reset",
    2: "reboot",
    3: "drain_p2p",
    4: "drain_and_reset",
    5: "recover_imex_domain",
    6: "bus_reset",
    7: "reboot",
}


@dataclass(frozen=True)
class ClockPair:
    memory_mhz: int
    graphics_mhz: int


@dataclass(frozen=True)
class PowerLimits:
    current_watts: Float
    default_watts: Float
    min_watts: Float
    max_watts: Float


@dataclass(frozen=True)
class PcieLink:
    """The link at the moment of reading. An idle link may be at generation 1."""

    generation: Int
    width: Int
    max_generation: Int  # that GPU and slot reach together
    max_width: Int
    device_max_generation: Int  # that the GPU alone could
    replays: Int  # packets sent again since the driver was loaded


@dataclass(frozen=True)
class EccErrors:
    """Volatile: since the driver was loaded. Aggregate: over the life of the GPU."""

    corrected_volatile: Int
    uncorrected_volatile: Int
    corrected_aggregate: Int
    uncorrected_aggregate: Int


@dataclass(frozen=True)
class RetiredPages:
    """Pascal, Volta and Turing."""

    single_bit: Int
    double_bit: Int
    pending: Bool  # a page waits for a reset of the GPU


@dataclass(frozen=True)
class RemappedRows:
    """Ampere and newer."""

    correctable: Int
    uncorrectable: Int
    pending: Bool  # a row waits for a reset of the GPU
    failure: Bool  # a defective row could not be replaced


@dataclass(frozen=True)
class SpareRows:
    """Ampere and newer: number of memory banks by the spare rows that they have left."""

    full: Int  # every spare row is left
    high: Int
    partial: Int
    low: Int
    none: Int  # the next defect in such a bank cannot be repaired


@dataclass(frozen=True)
class Temperatures:
    """Degrees Celsius, beside the GPU's own temperature and its slowdown_temperature_c.

    Boards up to Ampere report temperatures. From Ada and Hopper on they report margins (T.Limit): degrees left.
    """

    memory: Int
    max_operating: Int  # above it the driver may lower the clocks below the base clock
    shutdown: Int
    memory_max_operating: Int  # from it on the driver lowers the clocks
    margin: Int  # left until the nearest slowdown, as the driver counts it
    slowdown_margin: Int  # at this margin the hardware lowers the clocks: -2
    shutdown_margin: Int


@dataclass(frozen=True)
class PcieErrors:
    """Errors of the link since the driver was loaded, as the GPU counts them (AER)."""

    correctable: Int
    non_fatal: Int
    fatal: Int


@dataclass(frozen=True)
class ProcessOnGpu:
    pid: int
    name: str  # of the program; empty where it may not be seen
    memory_mib: Int
    owner: Str = NOT_READ  # the user's name, or the id where it has none
    age_seconds: Int = NOT_READ  # since the program was started


@dataclass(frozen=True)
class Utilization:
    """Per cent, over NVML's last sampling period."""

    gpu: Int
    memory: Int
    encoder: Int
    decoder: Int


@dataclass(frozen=True)
class Throttled:
    """Seconds in which each reason lowered the clocks, since the driver was loaded."""

    sw_power_cap: Float
    sync_boost: Float
    sw_thermal: Float
    hw_thermal: Float
    power_brake: Float


@dataclass(frozen=True)
class MigDevice:
    """An instance of a GPU that is cut by MIG, as programs see it."""

    profile: str  # "1g.10gb"; "1c.3g.40gb" for one that has not all of its GPU instance
    uuid: str  # "MIG-..."
    multiprocessors: Int
    memory_mib: Int


@dataclass(frozen=True)
class GpuFacts:
    index: int
    uuid: str
    name: str
    pci_address: str  # as PciDevice.address
    pci_device_id: str  # "1eb8"
    serial: Str
    memory_total_mib: Int
    persistence_mode: Bool
    application_clocks: Union[ClockPair, Missing]
    default_application_clocks: Union[ClockPair, Missing]
    supported_clocks: Union[tuple[ClockPair, ...], Missing]
    max_graphics_clock_mhz: Int
    graphics_clock_mhz: Int
    memory_clock_mhz: Int
    power: PowerLimits
    ecc_current: Bool  # Missing(not_supported) where the card has no ECC
    ecc_pending: Bool
    compute_mode: Str  # "default" | "exclusive_process" | "prohibited"
    temperature_c: Int
    event_reasons: Int  # bit mask of nvmlClocksEventReasons
    video_clock_mhz: Int = NOT_READ
    max_memory_clock_mhz: Int = NOT_READ
    power_watts: Float = NOT_READ
    memory_used_mib: Int = NOT_READ
    performance_state: Int = NOT_READ  # 0 is the fastest
    slowdown_temperature_c: Int = NOT_READ
    compute_capability: Str = NOT_READ  # "7.5"
    vbios: Str = NOT_READ
    utilization: Union[Utilization, Missing] = NOT_READ
    pcie: Union[PcieLink, Missing] = NOT_READ
    ecc_errors: Union[EccErrors, Missing] = NOT_READ
    retired_pages: Union[RetiredPages, Missing] = NOT_READ
    remapped_rows: Union[RemappedRows, Missing] = NOT_READ
    mig_current: Bool = NOT_READ
    mig_pending: Bool = NOT_READ
    nvlinks: Union[tuple[bool, ...], Missing] = NOT_READ  # each link of the GPU: is it up?
    processes: Union[tuple[ProcessOnGpu, ...], Missing] = NOT_READ
    throttled: Union[Throttled, Missing] = NOT_READ
    pci_subsystem_id: Str = NOT_READ  # NVIDIA's half: "12a2"; with the device id it names the board
    temperatures: Union[Temperatures, Missing] = NOT_READ
    spare_rows: Union[SpareRows, Missing] = NOT_READ
    dram_errors: Union[EccErrors, Missing] = NOT_READ  # ecc_errors are those of dram and sram together
    sram_errors: Union[EccErrors, Missing] = NOT_READ  # of caches and registers
    sram_threshold_exceeded: Bool = NOT_READ  # NVIDIA's flag: more uncorrectable errors than a board may have
    ecc_default: Bool = NOT_READ  # as the board ships
    recovery_action: Str = NOT_READ  # a word of RECOVERY_ACTIONS, or "unknown 9"
    pcie_errors: Union[PcieErrors, Missing] = NOT_READ
    cores: Int = NOT_READ  # CUDA cores of all multiprocessors
    mig_devices: Union[tuple[MigDevice, ...], Missing] = NOT_READ  # (): MIG is off, or on without instances
