"""NVIDIA's NCCL by its C interface (nccl.h 2.x), for one process with all GPUs."""

from __future__ import annotations

import ctypes
from typing import Any, List, Sequence

SONAME = "libnccl.so.2"
FLOAT32, SUM = 7, 0  # ncclDataType_t, ncclRedOp_t
_ADDRESS, _COUNT, _NUMBER = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
ARGUMENTS = {
    "ncclGetVersion": [_ADDRESS],
    "ncclCommInitAll": [_ADDRESS, _NUMBER, _ADDRESS],
    "ncclCommDestroy": [_ADDRESS],
    "ncclGroupStart": [],
    "ncclGroupEnd": [],
    # sent, received, count, type, (operation,) communicator, stream
    "ncclAllReduce": [_ADDRESS, _ADDRESS, _COUNT, _NUMBER, _NUMBER, _ADDRESS, _ADDRESS],
    "ncclAllGather": [_ADDRESS, _ADDRESS, _COUNT, _NUMBER, _ADDRESS, _ADDRESS],
    "ncclReduceScatter": [_ADDRESS, _ADDRESS, _COUNT, _NUMBER, _NUMBER, _ADDRESS, _ADDRESS],
}


class NcclFailed(RuntimeError):
    """A call that NCCL refused: "ncclCommInitAll: unhandled system error (...)"."""


class Nccl:
    """The library that a program on this machine gets for NCCL's soname. Raises OSError without one."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(SONAME)
        for name, kinds in ARGUMENTS.items():
            function = getattr(self._library, name)
            function.argtypes, function.restype = kinds, _NUMBER
        self._library.ncclGetErrorString.restype = ctypes.c_char_p

    def call(self, name: str, *arguments: Any) -> None:
        """Call an NCCL function. Raises NcclFailed for an error."""
        status = getattr(self._library, name)(*arguments)
        if status:
            raise NcclFailed(f"{name}: {self._words(status)}")

    def version(self) -> str:
        number = ctypes.c_int()
        self.call("ncclGetVersion", ctypes.byref(number))
        return version_words(number.value)

    def communicators(self, devices: Sequence[int]) -> List[int]:
        """One communicator per CUDA device ordinal in `devices`; its rank is its position in the list."""
        made = (ctypes.c_void_p * len(devices))()
        self.call("ncclCommInitAll", made, len(devices), (ctypes.c_int * len(devices))(*devices))
        return [int(handle or 0) for handle in made]

    def _words(self, status: int) -> str:
        message = (self._library.ncclGetErrorString(status) or b"").decode(errors="replace")
        last = getattr(self._library, "ncclGetLastError", None)  # from NCCL 2.13 on
        if last is None:
            return message
        last.argtypes, last.restype = [_ADDRESS], ctypes.c_char_p
        more = (last(None) or b"").decode(errors="replace").strip()
        return f"{message} ({more})" if more else message


def version_words(number: int) -> str:
    """ncclGetVersion's number: 22703 is 2.27.3; before 2.9 it was 2708 for 2.7.8."""
    thousands = 10000 if number >= 10000 else 1000
    return f"{number // thousands}.{number % thousands // 100}.{number % 100}"
