"""Reads the health of a GPU's memory, through nvml.Gpu.get: errors, retired pages, remapped rows, spare rows."""

from __future__ import annotations

import ctypes
from typing import Any, Dict, Tuple, Union

from gpuprep.agent.gpu.gpuanswers import Get, mapped, together
from gpuprep.records import Bool, EccErrors, Missing, RemappedRows, RetiredPages, SpareRows

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


def readings(get: Get) -> Dict[str, Any]:
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
