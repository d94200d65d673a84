"""Reads the health of a GPU from NVML, through nvml.Gpu.get: link, memory, temperature, slowdowns.

If all readings of a group fail for the same reason, the group is one Missing: "no ECC on this card" once, not four
times.
"""

from __future__ import annotations

import ctypes
from typing import Any, Dict, List, Tuple, Union

from gpuprep.agent.gpu.gpuanswers import Get, Refusal, as_text, fields, mapped, together
from gpuprep.records import (
    RECOVERY_ACTIONS,
    Bool,
    EccErrors,
    Missing,
    PcieErrors,
    PcieLink,
    RemappedRows,
    RetiredPages,
    SpareRows,
    Str,
    Temperatures,
    Throttled,
    Utilization,
)

# ---------------------------------------------------------------- the health of its memory

# Reads the health of a GPU's memory, through nvml.Gpu.get: errors, retired pages, remapped rows, spare rows.


CORRECTED, UNCORRECTED = 0, 1  # nvmlMemoryErrorType_t
VOLATILE, AGGREGATE = 0, 1  # nvmlEccCounterType_t
DRAM, SRAM = 2, 7  # nvmlMemoryLocation_t


class SramStatus(ctypes.Structure):
    """nvmlEccSramErrorStatus_v1_t of nvml.h; an older nvidia-ml-py has the call, but not this structure."""

    _fields_ = [
        ("version", ctypes.c_uint),
        ("aggregate_parity", ctypes.c_ulonglong),
        ("aggregate_secded", ctypes.c_ulonglong),
        ("aggregate_corrected", ctypes.c_ulonglong),
        ("volatile_parity", ctypes.c_ulonglong),
        ("volatile_secded", ctypes.c_ulonglong),
        ("volatile_corrected", ctypes.c_ulonglong),
        ("buckets", ctypes.c_ulonglong * 5),
        ("threshold_exceeded", ctypes.c_uint),
    ]


def memory_readings(get: Get) -> Dict[str, Any]:
    """The fields of GpuFacts that are about its memory."""
    sram_errors, exceeded = _sram(get)
    return {
        "ecc_default": mapped(get("nvmlDeviceGetDefaultEccMode"), bool),
        "ecc_errors": together(
            EccErrors,
            *(
                get("nvmlDeviceGetTotalEccErrors", kind, counter)
                for counter in (VOLATILE, AGGREGATE)
                for kind in (CORRECTED, UNCORRECTED)
            ),
        ),
        "dram_errors": _errors_in(get, DRAM),
        "sram_errors": sram_errors,
        "sram_threshold_exceeded": exceeded,
        "retired_pages": together(
            RetiredPages,
            mapped(get("nvmlDeviceGetRetiredPages", 0), len),
            mapped(get("nvmlDeviceGetRetiredPages", 1), len),
            mapped(get("nvmlDeviceGetRetiredPagesPendingStatus"), bool),
        ),
        "remapped_rows": _remapped(get("nvmlDeviceGetRemappedRows")),
        "spare_rows": mapped(
            get("nvmlDeviceGetRowRemapperHistogram"),
            lambda banks: SpareRows(banks.max, banks.high, banks.partial, banks.low, banks.none),
        ),
    }


def _errors_in(get: Get, location: int) -> Union[EccErrors, Missing]:
    errors: Union[EccErrors, Missing] = together(
        EccErrors,
        *(
            get("nvmlDeviceGetMemoryErrorCounter", kind, counter, location)
            for counter in (VOLATILE, AGGREGATE)
            for kind in (CORRECTED, UNCORRECTED)
        ),
    )
    return errors


def _sram(get: Get) -> Tuple[Union[EccErrors, Missing], Bool]:
    """(errors, whether they exceed NVIDIA's threshold). Drivers before R550 have the counts, but not the flag."""
    status = SramStatus(version=ctypes.sizeof(SramStatus) | 1 << 24)
    answer = get("nvmlDeviceGetSramEccErrorStatus", ctypes.byref(status))
    if isinstance(answer, Missing):
        return _errors_in(get, SRAM), answer
    errors = EccErrors(
        status.volatile_corrected,
        status.volatile_parity + status.volatile_secded,
        status.aggregate_corrected,
        status.aggregate_parity + status.aggregate_secded,
    )
    return errors, bool(status.threshold_exceeded)


def _remapped(answer: Any) -> Union[RemappedRows, Missing]:
    """NVML returns four numbers: correctable, uncorrectable, pending, failure."""
    if isinstance(answer, Missing):
        return answer
    correctable, uncorrectable, pending, failure = tuple(answer)[:4]
    return RemappedRows(correctable, uncorrectable, bool(pending), bool(failure))


VIDEO, MEMORY = 3, 2  # nvmlClockType_t
SHUTDOWN, SLOWDOWN, MEMORY_MAX, GPU_MAX = 0, 1, 2, 3  # nvmlTemperatureThresholds_t
MOST_LINKS = 36  # NVML_NVLINK_MAX_LINKS
# Field of nvmlDeviceGetFieldValues ─► nanoseconds that a reason held the clocks down. Second is the policy of
# the older nvmlDeviceGetViolationStatus, which counts the same.
REASON_TIMES = {
    "sw_power_cap": (74, 0),
    "sync_boost": (76, 2),
    "sw_thermal": (269, None),
    "hw_thermal": (270, None),
    "power_brake": (271, None),
}
# NVML_FI_DEV_MEMORY_TEMP, ..._SHUTDOWN_TLIMIT, ..._SLOWDOWN_TLIMIT
MEMORY_TEMPERATURE, SHUTDOWN_MARGIN, SLOWDOWN_MARGIN = 82, 193, 194
# NVML_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS, ..._NON_FATAL_ERROR, ..._FATAL_ERROR
PCIE_ERRORS = (173, 179, 180)
RECOVERY_ACTION = 230  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION


def readings(get: Get, refusal: Refusal) -> Dict[str, Any]:
    """The fields of GpuFacts from `video_clock_mhz` on, except `processes`. `refusal`: return code ► Missing."""
    rates = get("nvmlDeviceGetUtilizationRates")
    mig = get("nvmlDeviceGetMigMode")
    values = fields(get, refusal, (MEMORY_TEMPERATURE, SHUTDOWN_MARGIN, SLOWDOWN_MARGIN, *PCIE_ERRORS, RECOVERY_ACTION))
    return {
        "video_clock_mhz": get("nvmlDeviceGetClockInfo", VIDEO),
        "max_memory_clock_mhz": get("nvmlDeviceGetMaxClockInfo", MEMORY),
        "power_watts": mapped(get("nvmlDeviceGetPowerUsage"), lambda milliwatts: milliwatts / 1000),
        "memory_used_mib": mapped(get("nvmlDeviceGetMemoryInfo"), lambda info: info.used // 2**20),
        "performance_state": get("nvmlDeviceGetPerformanceState"),
        "slowdown_temperature_c": get("nvmlDeviceGetTemperatureThreshold", SLOWDOWN),
        "compute_capability": mapped(get("nvmlDeviceGetCudaComputeCapability"), lambda pair: f"{pair[0]}.{pair[1]}"),
        "vbios": mapped(get("nvmlDeviceGetVbiosVersion"), as_text),
        "cores": get("nvmlDeviceGetNumGpuCores"),
        "utilization": together(
            Utilization,
            mapped(rates, lambda both: both.gpu),
            mapped(rates, lambda both: both.memory),
            mapped(get("nvmlDeviceGetEncoderUtilization"), lambda pair: pair[0]),
            mapped(get("nvmlDeviceGetDecoderUtilization"), lambda pair: pair[0]),
        ),
        "pcie": together(
            PcieLink,
            get("nvmlDeviceGetCurrPcieLinkGeneration"),
            get("nvmlDeviceGetCurrPcieLinkWidth"),
            get("nvmlDeviceGetMaxPcieLinkGeneration"),
            get("nvmlDeviceGetMaxPcieLinkWidth"),
            get("nvmlDeviceGetGpuMaxPcieLinkGeneration"),
            get("nvmlDeviceGetPcieReplayCounter"),
        ),
        "pcie_errors": together(PcieErrors, *(values[number] for number in PCIE_ERRORS)),
        "mig_current": mapped(mig, lambda both: bool(both[0])),
        "mig_pending": mapped(mig, lambda both: bool(both[1])),
        "nvlinks": _nvlinks(get),
        "throttled": _throttled(get, refusal),
        "temperatures": _temperatures(get, values),
        "recovery_action": _recovery_action(values[RECOVERY_ACTION]),
        **memory_readings(get),
    }


def _temperatures(get: Get, values: Dict[int, Any]) -> Union[Temperatures, Missing]:
    """Temperatures and margins. For memory without a sensor, NVML either fails or returns 0: Missing."""
    memory = values[MEMORY_TEMPERATURE]
    temperatures: Union[Temperatures, Missing] = together(
        Temperatures,
        Missing("not_supported", "NVML answers 0: the memory has no sensor") if memory == 0 else memory,
        get("nvmlDeviceGetTemperatureThreshold", GPU_MAX),
        get("nvmlDeviceGetTemperatureThreshold", SHUTDOWN),
        get("nvmlDeviceGetTemperatureThreshold", MEMORY_MAX),
        get("nvmlDeviceGetMarginTemperature"),
        values[SLOWDOWN_MARGIN],
        values[SHUTDOWN_MARGIN],
    )
    return temperatures


def _recovery_action(number: Any) -> Str:
    return number if isinstance(number, Missing) else RECOVERY_ACTIONS.get(number, f"unknown {number}")


def _nvlinks(get: Get) -> Union[Tuple[bool, ...], Missing]:
    """Whether each NVLink is up, in order. A GPU without NVLinks fails at the first: Missing."""
    links: List[bool] = []
    for link in range(MOST_LINKS):
        state = get("nvmlDeviceGetNvLinkState", link)
        if isinstance(state, Missing):
            return tuple(links) if links and state.reason != "gpu_is_lost" else state
        links.append(bool(state))
    return tuple(links)


def _throttled(get: Get, refusal: Refusal) -> Union[Throttled, Missing]:
    values = fields(get, refusal, [field for field, _ in REASON_TIMES.values()])
    times = []
    for field, policy in REASON_TIMES.values():
        value = values[field]
        if isinstance(value, Missing) and value.reason != "gpu_is_lost" and policy is not None:
            older = get("nvmlDeviceGetViolationStatus", policy)
            value = value if isinstance(older, Missing) else older.violationTime
        times.append(mapped(value, lambda nanoseconds: round(nanoseconds / 1e9, 3)))
    throttled: Union[Throttled, Missing] = together(Throttled, *times)
    return throttled
