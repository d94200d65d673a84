"""NVML's readings and settings. The only import of pynvml. A failed reading is Missing(reason), never None or "N/A".

NVML's errors have different meanings and stay distinct (REASONS). If a call has a successor, the new call is tried
first, and the old call only if this driver does not have the new call.
"""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Tuple, Union

import pynvml

from gpuprep.agent.gpu import gpuhealth, gpuprocess, mig
from gpuprep.agent.gpu.gpuanswers import as_text, fields, mapped
from gpuprep.records import ClockPair, Float, GpuFacts, Int, MigDevice, Missing, PowerLimits, ProcessOnGpu, Str

# nvmlReturn_t in nvml.h 13. What is not here is "command_failed" with NVML's own message.
REASONS = {
    3: "not_supported",  # NVML_ERROR_NOT_SUPPORTED
    4: "no_permission",  # NVML_ERROR_NO_PERMISSION
    9: "driver_not_loaded",  # NVML_ERROR_DRIVER_NOT_LOADED
    12: "library_not_found",  # NVML_ERROR_LIBRARY_NOT_FOUND
    13: "function_not_found",  # NVML_ERROR_FUNCTION_NOT_FOUND
    15: "gpu_is_lost",  # NVML_ERROR_GPU_IS_LOST
    18: "version_mismatch",  # NVML_ERROR_LIB_RM_VERSION_MISMATCH
    25: "version_mismatch",  # NVML_ERROR_ARGUMENT_VERSION_MISMATCH
    26: "deprecated",  # NVML_ERROR_DEPRECATED
}
# Errors that mean that the driver lacks the newer call: the older one is tried.
ASK_PREDECESSOR = ("function_not_found", "deprecated", "not_supported", "version_mismatch")

GRAPHICS, MEMORY, VIDEO = 0, 2, 3  # nvmlClockType_t
PCIE_TX, PCIE_RX = 0, 1  # nvmlPcieUtilCounter_t: what the GPU sends, and what it receives
TEMPERATURE_GPU = 0  # nvmlTemperatureSensors_t
TEMPERATURE = ("nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature")
EVENT_REASONS = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
NVLINK_TO_SWITCH = 2  # NVML_NVLINK_DEVICE_TYPE_SWITCH
POWER_INSTANT = 186  # NVML_FI_DEV_POWER_INSTANT, Ampere and newer
# nvmlGpuTopologyLevel_t. INTERNAL (0) are GPUs of one board: they share its switch.
ANCESTORS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}


def ask(name: str, *arguments: Any) -> Any:
    """Call pynvml's `name`; returns its value, or Missing if NVML returns an error or this pynvml lacks the call."""
    function = getattr(pynvml, name, None)
    if function is None:
        return Missing("function_not_found", f"{name} is not in this nvidia-ml-py")
    try:
        return function(*arguments)
    except pynvml.NVMLError as error:
        return refusal(error.value, name)


def refusal(number: int, name: str) -> Missing:
    """The Missing for NVML's return code `number` of the call `name`."""
    return Missing(REASONS.get(number, "command_failed"), f"{name}: {pynvml.NVMLError(number)}")


def ask_newest(names: Tuple[str, ...], *arguments: Any) -> Any:
    """The result of the first of `names` (new to old) that this driver has; else the Missing of the first."""
    first = ask(names[0], *arguments)
    answer = first
    for name in names[1:]:
        if not (isinstance(answer, Missing) and answer.reason in ASK_PREDECESSOR):
            break
        answer = ask(name, *arguments)
    return first if isinstance(answer, Missing) and answer.reason in ASK_PREDECESSOR else answer


def normal_address(bus_id: str) -> str:
    """NVML's "00000000:00:1E.0" as the kernel writes it: "0000:00:1e.0"."""
    domain, _, rest = bus_id.lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


class Nvml:
    """An open NVML. If it could not be opened, `error` says why and there are no GPUs."""

    def __init__(self) -> None:
        self.error: Optional[Missing] = None

    def __enter__(self) -> Nvml:
        answer = ask("nvmlInit")
        self.error = answer if isinstance(answer, Missing) else None
        return self

    def __exit__(self, *error: object) -> None:
        if self.error is None:
            ask("nvmlShutdown")

    def driver_version(self) -> Str:
        return self.error or mapped(ask("nvmlSystemGetDriverVersion"), as_text)

    def gpus(self) -> Union[List[Gpu], Missing]:
        if self.error is not None:
            return self.error
        count = ask("nvmlDeviceGetCount")
        return count if isinstance(count, Missing) else [Gpu(index) for index in range(count)]


class Gpu:
    """One GPU: its facts and its settings. Setters return None if NVML accepted the setting, else Missing."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.handle = ask("nvmlDeviceGetHandleByIndex", index)

    def _get(self, *names: str, argument: Optional[int] = None) -> Any:
        if isinstance(self.handle, Missing):
            return self.handle
        return ask_newest(names, self.handle, *(() if argument is None else (argument,)))

    def get(self, name: str, *arguments: Any) -> Any:
        """NVML's result of the call `name` for this GPU, or Missing."""
        return self.handle if isinstance(self.handle, Missing) else ask(name, self.handle, *arguments)

    def facts(self) -> GpuFacts:
        """All facts, read once. For a lost GPU, uuid, name and PCI ids are "" and the rest is Missing."""
        processes = self.processes()
        pci = self._get("nvmlDeviceGetPciInfo")
        lost = isinstance(pci, Missing)
        ecc = self._get("nvmlDeviceGetEccMode")
        limits = self._get("nvmlDeviceGetPowerManagementLimitConstraints")
        return GpuFacts(
            index=self.index,
            uuid=self._words("nvmlDeviceGetUUID"),
            name=self._words("nvmlDeviceGetName"),
            pci_address="" if lost else normal_address(as_text(pci.busId)),
            pci_device_id="" if lost else f"{pci.pciDeviceId >> 16:04x}",
            pci_subsystem_id=mapped(pci, lambda ids: f"{ids.pciSubSystemId >> 16:04x}"),
            serial=mapped(self._get("nvmlDeviceGetSerial"), as_text),
            memory_total_mib=mapped(self._get("nvmlDeviceGetMemoryInfo"), lambda info: info.total // 2**20),
            persistence_mode=mapped(self._get("nvmlDeviceGetPersistenceMode"), bool),
            application_clocks=self._clock_pair("nvmlDeviceGetApplicationsClock"),
            default_application_clocks=self._clock_pair("nvmlDeviceGetDefaultApplicationsClock"),
            supported_clocks=self._supported_clocks(),
            max_graphics_clock_mhz=self._get("nvmlDeviceGetMaxClockInfo", argument=GRAPHICS),
            graphics_clock_mhz=self._get("nvmlDeviceGetClockInfo", argument=GRAPHICS),
            memory_clock_mhz=self._get("nvmlDeviceGetClockInfo", argument=MEMORY),
            power=PowerLimits(
                current_watts=mapped(self._get("nvmlDeviceGetPowerManagementLimit"), _watts),
                default_watts=mapped(self._get("nvmlDeviceGetPowerManagementDefaultLimit"), _watts),
                min_watts=mapped(limits, lambda both: _watts(both[0])),
                max_watts=mapped(limits, lambda both: _watts(both[1])),
            ),
            ecc_current=mapped(ecc, lambda both: bool(both[0])),
            ecc_pending=mapped(ecc, lambda both: bool(both[1])),
            compute_mode=mapped(
                self._get("nvmlDeviceGetComputeMode"), lambda mode: COMPUTE_MODES.get(mode, f"unknown {mode}")
            ),
            temperature_c=self._get(*TEMPERATURE, argument=TEMPERATURE_GPU),
            event_reasons=self._get(*EVENT_REASONS),
            processes=mapped(processes, tuple),
            mig_devices=self.mig_devices(),
            **gpuhealth.readings(self.get, refusal),
        )

    def load(self) -> Dict[str, Any]:
        """Readings that change under load; a reading that fails is Missing, the others are still there.

        Units: MHz, watts, degrees Celsius, per cent; event reasons are NVML's mask.
        """
        rates = self._get("nvmlDeviceGetUtilizationRates")
        return {
            "graphics_clock_mhz": self._get("nvmlDeviceGetClockInfo", argument=GRAPHICS),
            "memory_clock_mhz": self._get("nvmlDeviceGetClockInfo", argument=MEMORY),
            "video_clock_mhz": self._get("nvmlDeviceGetClockInfo", argument=VIDEO),
            "power_watts": self._power_now(),
            "temperature_c": self._get(*TEMPERATURE, argument=TEMPERATURE_GPU),
            "event_reasons": self._get(*EVENT_REASONS),
            "gpu_utilization_percent": mapped(rates, lambda both: both.gpu),
            "encoder_utilization_percent": mapped(self._get("nvmlDeviceGetEncoderUtilization"), lambda pair: pair[0]),
            "decoder_utilization_percent": mapped(self._get("nvmlDeviceGetDecoderUtilization"), lambda pair: pair[0]),
        }

    def traffic(self) -> Dict[str, Any]:
        """Memory in use (MiB) and PCIe traffic (MB/s), which NVML counts for 20 ms in each call."""
        memory = self._get("nvmlDeviceGetMemoryInfo")
        return {
            "memory_used_mib": mapped(memory, lambda info: info.used // 2**20),
            "pcie_to_gpu_mb_per_s": mapped(self._get("nvmlDeviceGetPcieThroughput", argument=PCIE_RX), _from_kb),
            "pcie_from_gpu_mb_per_s": mapped(self._get("nvmlDeviceGetPcieThroughput", argument=PCIE_TX), _from_kb),
        }

    def max_video_clock_mhz(self) -> Int:
        """The highest clock of the video engines, MHz."""
        highest: Int = self._get("nvmlDeviceGetMaxClockInfo", argument=VIDEO)
        return highest

    def _power_now(self) -> Float:
        """Present power in watts if the driver reports it, else the usual reading, the mean of the last second."""
        now = fields(self.get, refusal, [POWER_INSTANT])[POWER_INSTANT]
        if isinstance(now, Missing):
            now = self._get("nvmlDeviceGetPowerUsage")
        return now if isinstance(now, Missing) else _watts(now)

    def encoder_sessions(self) -> Union[int, Missing]:
        """NVENC sessions open now, of all processes."""
        stats = self._get("nvmlDeviceGetEncoderStats")
        return stats if isinstance(stats, Missing) else int(stats[0])

    def pcie(self) -> Dict[str, Any]:
        """The link to the host now (its generation falls when idle), and the maximum of device and slot together.

        `device_generation` is the maximum of the device alone.
        """
        return {
            "generation": self._get("nvmlDeviceGetCurrPcieLinkGeneration"),
            "width": self._get("nvmlDeviceGetCurrPcieLinkWidth"),
            "max_generation": self._get("nvmlDeviceGetMaxPcieLinkGeneration"),
            "max_width": self._get("nvmlDeviceGetMaxPcieLinkWidth"),
            "device_generation": self._get("nvmlDeviceGetGpuMaxPcieLinkGeneration"),
        }

    def nvlinks(self, other_address: str) -> Union[int, Missing]:
        """Number of active NVLinks to the GPU at `other_address` ("0000:0a:00.0"); if 0, of NVLinks to switches."""
        direct = switched = 0
        for link in range(gpuhealth.MOST_LINKS):
            state = self._get("nvmlDeviceGetNvLinkState", argument=link)
            if isinstance(state, Missing):
                if link == 0 and state.reason != "not_supported":
                    return state
                break  # this GPU has no more links
            if not state:
                continue
            kind = self._get("nvmlDeviceGetNvLinkRemoteDeviceType", argument=link)
            remote = self._get("nvmlDeviceGetNvLinkRemotePciInfo", argument=link)
            if not isinstance(remote, Missing) and normal_address(as_text(remote.busId)) == other_address:
                direct += 1
            elif isinstance(kind, Missing) or kind == NVLINK_TO_SWITCH:
                switched += 1
        return direct or switched

    def path_to(self, other: Gpu) -> str:
        """The PCIe path between two GPUs, as `nvidia-smi topo -m` names it; "" if NVML does not report it."""
        if isinstance(other.handle, Missing):
            return ""
        level = self.get("nvmlDeviceGetTopologyCommonAncestor", other.handle)
        return "" if isinstance(level, Missing) else ANCESTORS.get(level, "")

    def processes(self) -> Union[List[ProcessOnGpu], Missing]:
        """Processes with a compute or graphics context on this GPU now, sorted by pid."""
        by_pid = {}
        for kind in ("nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetGraphicsRunningProcesses"):
            running = self._get(kind)
            if isinstance(running, Missing):
                if kind.startswith("nvmlDeviceGetCompute"):
                    return running
                continue
            for process in running:
                used = process.usedGpuMemory  # None under WDDM and inside some containers
                name, owner, age = gpuprocess.look(process.pid)
                by_pid[process.pid] = ProcessOnGpu(
                    process.pid,
                    name or _name(process.pid),
                    Missing("not_supported", "NVML names no memory for it") if used is None else used // 2**20,
                    owner,
                    age,
                )
        return [by_pid[pid] for pid in sorted(by_pid)]

    def _words(self, name: str) -> str:
        value = self._get(name)
        return "" if isinstance(value, Missing) else as_text(value)

    def _clock_pair(self, name: str) -> Union[ClockPair, Missing]:
        graphics = self._get(name, argument=GRAPHICS)
        memory = self._get(name, argument=MEMORY)
        for reading in (graphics, memory):
            if isinstance(reading, Missing):
                return reading
        return ClockPair(memory, graphics)

    def _supported_clocks(self) -> Union[Tuple[ClockPair, ...], Missing]:
        memory_clocks = self._get("nvmlDeviceGetSupportedMemoryClocks")
        if isinstance(memory_clocks, Missing):
            return memory_clocks
        pairs = []
        for memory in memory_clocks:
            graphics_clocks = self._get("nvmlDeviceGetSupportedGraphicsClocks", argument=memory)
            if isinstance(graphics_clocks, Missing):
                return graphics_clocks
            pairs += [ClockPair(memory, graphics) for graphics in graphics_clocks]
        return tuple(pairs)

    def _set(self, name: str, *arguments: int) -> Optional[Missing]:
        if isinstance(self.handle, Missing):
            return self.handle
        answer = ask(name, self.handle, *arguments)
        return answer if isinstance(answer, Missing) else None

    def set_persistence(self, on: bool) -> Optional[Missing]:
        return self._set("nvmlDeviceSetPersistenceMode", int(on))

    def set_application_clocks(self, pair: ClockPair) -> Optional[Missing]:
        return self._set("nvmlDeviceSetApplicationsClocks", pair.memory_mhz, pair.graphics_mhz)

    def reset_application_clocks(self) -> Optional[Missing]:
        return self._set("nvmlDeviceResetApplicationsClocks")

    def lock_graphics_clock(self, mhz: int) -> Optional[Missing]:
        """Lock the graphics clock; Volta and newer."""
        return self._set("nvmlDeviceSetGpuLockedClocks", mhz, mhz)

    def lock_memory_clock(self, mhz: int) -> Optional[Missing]:
        """Lock the memory clock; Ampere and newer."""
        return self._set("nvmlDeviceSetMemoryLockedClocks", mhz, mhz)

    def unlock_graphics_clock(self) -> Optional[Missing]:
        return self._set("nvmlDeviceResetGpuLockedClocks")

    def unlock_memory_clock(self) -> Optional[Missing]:
        return self._set("nvmlDeviceResetMemoryLockedClocks")

    def set_power_limit(self, watts: float) -> Optional[Missing]:
        return self._set("nvmlDeviceSetPowerManagementLimit", round(watts * 1000))

    def set_ecc(self, on: bool) -> Optional[Missing]:
        """Turn ECC on or off; takes effect at the next reboot."""
        return self._set("nvmlDeviceSetEccMode", int(on))

    def set_mig(self, on: bool) -> Optional[Missing]:
        """Turn MIG on or off. Missing("reset_required"): NVML took it, and it shows after a reset or a reboot."""
        refused = mig.set_mode(self.get, on)
        self.handle = ask("nvmlDeviceGetHandleByIndex", self.index)  # NVML may have reset it
        return refused

    def mig_devices(self) -> Union[Tuple[MigDevice, ...], Missing]:
        """The instances that programs see; () where MIG is off."""
        return mig.devices(self.get, ask)

    def mig_profiles(self) -> Union[List[mig.MigProfile], Missing]:
        return mig.profiles(self.get)

    def mig_instances(self) -> Union[List[mig.Instance], Missing]:
        return mig.instances(self.get, ask)

    def create_instance(self, profile: mig.MigProfile, start: int) -> Optional[Missing]:
        return mig.create(self.get, ask, profile, start)

    def destroy_instance(self, instance: mig.Instance) -> Optional[Missing]:
        return mig.destroy(self.get, ask, instance)

    def set_compute_mode(self, mode: str) -> Optional[Missing]:
        numbers = {word: number for number, word in COMPUTE_MODES.items()}
        return self._set("nvmlDeviceSetComputeMode", numbers[mode])


def _name(pid: int) -> str:
    """NVML's name for a program that has ended or is in another container; "" if it has none."""
    name = ask("nvmlSystemGetProcessName", pid)
    return "" if isinstance(name, Missing) else as_text(name)


def _from_kb(kilobytes: int) -> float:
    return kilobytes / 1000


def _watts(milliwatts: int) -> float:
    return milliwatts / 1000
