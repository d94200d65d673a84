"""How a GPU is: its link, its memory's errors, what holds its clocks down, who uses it. Asked through nvml.Gpu.get.

A group of readings that are all refused for one reason is that refusal: "no ECC on this card" once, not four times.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Tuple, Type, Union

from gpuprep.records import EccErrors, Missing, PcieLink, RemappedRows, RetiredPages, Throttled, Utilization

# (names of the call, new to old; its arguments after the handle) ─► its answer, or Missing
Get = Callable[..., Any]

VIDEO, MEMORY = 3, 2  # nvmlClockType_t
SLOWDOWN = 1  # nvmlTemperatureThresholds_t
CORRECTED, UNCORRECTED = 0, 1  # nvmlMemoryErrorType_t
VOLATILE, AGGREGATE = 0, 1  # nvmlEccCounterType_t
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
# nvmlValueType_t ─► member of nvmlValue_t
MEMBERS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}


def readings(get: Get, refusal: Callable[[int, str], Missing]) -> Dict[str, Any]:
    """The fields of GpuFacts from `video_clock_mhz` on, less `processes`. `refusal` names an nvmlReturn_t."""
    rates = get("nvmlDeviceGetUtilizationRates")
    mig = get("nvmlDeviceGetMigMode")
    return {
        "video_clock_mhz": get("nvmlDeviceGetClockInfo", VIDEO),
        "max_memory_clock_mhz": get("nvmlDeviceGetMaxClockInfo", MEMORY),
        "power_watts": mapped(get("nvmlDeviceGetPowerUsage"), lambda milliwatts: milliwatts / 1000),
        "memory_used_mib": mapped(get("nvmlDeviceGetMemoryInfo"), lambda info: info.used // 2**20),
        "performance_state": get("nvmlDeviceGetPerformanceState"),
        "slowdown_temperature_c": get("nvmlDeviceGetTemperatureThreshold", SLOWDOWN),
        "compute_capability": mapped(get("nvmlDeviceGetCudaComputeCapability"), lambda pair: f"{pair[0]}.{pair[1]}"),
        "vbios": mapped(get("nvmlDeviceGetVbiosVersion"), as_text),
        "utilization": _together(
            Utilization,
            mapped(rates, lambda both: both.gpu),
            mapped(rates, lambda both: both.memory),
            mapped(get("nvmlDeviceGetEncoderUtilization"), lambda pair: pair[0]),
            mapped(get("nvmlDeviceGetDecoderUtilization"), lambda pair: pair[0]),
        ),
        "pcie": _together(
            PcieLink,
            get("nvmlDeviceGetCurrPcieLinkGeneration"),
            get("nvmlDeviceGetCurrPcieLinkWidth"),
            get("nvmlDeviceGetMaxPcieLinkGeneration"),
            get("nvmlDeviceGetMaxPcieLinkWidth"),
            get("nvmlDeviceGetGpuMaxPcieLinkGeneration"),
            get("nvmlDeviceGetPcieReplayCounter"),
        ),
        "ecc_errors": _together(
            EccErrors,
            *(
                get("nvmlDeviceGetTotalEccErrors", kind, counter)
                for counter in (VOLATILE, AGGREGATE)
                for kind in (CORRECTED, UNCORRECTED)
            ),
        ),
        "retired_pages": _together(
            RetiredPages,
            mapped(get("nvmlDeviceGetRetiredPages", 0), len),
            mapped(get("nvmlDeviceGetRetiredPages", 1), len),
            mapped(get("nvmlDeviceGetRetiredPagesPendingStatus"), bool),
        ),
        "remapped_rows": _remapped(get("nvmlDeviceGetRemappedRows")),
        "mig_current": mapped(mig, lambda both: bool(both[0])),
        "mig_pending": mapped(mig, lambda both: bool(both[1])),
        "nvlinks": _nvlinks(get),
        "throttled": _throttled(get, refusal),
    }


def mapped(reading: Any, convert: Callable[[Any], Any]) -> Any:
    return reading if isinstance(reading, Missing) else convert(reading)


def as_text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _together(record: Type[Any], *parts: Any) -> Any:
    """`record(*parts)`; of parts that are all missing for one reason, the first of them."""
    reasons = {part.reason if isinstance(part, Missing) else "" for part in parts}
    return parts[0] if len(reasons) == 1 and reasons != {""} else record(*parts)


def _remapped(answer: Any) -> Union[RemappedRows, Missing]:
    """NVML gives four numbers: correctable, uncorrectable, pending, failure."""
    if isinstance(answer, Missing):
        return answer
    correctable, uncorrectable, pending, failure = tuple(answer)[:4]
    return RemappedRows(correctable, uncorrectable, bool(pending), bool(failure))


def _nvlinks(get: Get) -> Union[Tuple[bool, ...], Missing]:
    """Until NVML knows no further link. A GPU without any refuses the first."""
    links: List[bool] = []
    for link in range(MOST_LINKS):
        state = get("nvmlDeviceGetNvLinkState", link)
        if isinstance(state, Missing):
            return tuple(links) if links and state.reason != "gpu_is_lost" else state
        links.append(bool(state))
    return tuple(links)


def _throttled(get: Get, refusal: Callable[[int, str], Missing]) -> Union[Throttled, Missing]:
    fields = get("nvmlDeviceGetFieldValues", [field for field, _ in REASON_TIMES.values()])
    times = []
    for i, (field, policy) in enumerate(REASON_TIMES.values()):
        value = fields if isinstance(fields, Missing) else field_value(fields[i], field, refusal)
        if isinstance(value, Missing) and value.reason != "gpu_is_lost" and policy is not None:
            older = get("nvmlDeviceGetViolationStatus", policy)
            value = value if isinstance(older, Missing) else older.violationTime
        times.append(mapped(value, lambda nanoseconds: round(nanoseconds / 1e9, 3)))
    found: Union[Throttled, Missing] = _together(Throttled, *times)
    return found


def field_value(field: Any, number: int, refusal: Callable[[int, str], Missing]) -> Any:
    if field.nvmlReturn != 0:
        return refusal(field.nvmlReturn, f"nvmlDeviceGetFieldValues({number})")
    member = MEMBERS.get(field.valueType)
    return getattr(field.value, member) if member else Missing("unparsable", f"field {number} of an unknown type")
