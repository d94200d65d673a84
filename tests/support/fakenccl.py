"""Stand-ins for CUDA and NCCL on the CPU: "GPUs" whose memory is this process's, and a libnccl.so.2 that adds for real.

`install` puts the modules in place of NVIDIA's bindings. In the environment, FAKE_NCCL chooses a fault of the library,
and FAKE_NCCL_VERSION its version.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import importlib.metadata
import select
import shutil
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pytest

from gpuprep.agent.compute import cudacalls, libraries
from gpuprep.agent.probes import nccl, ncclrun
from gpuprep.records import Missing

MIB = 2**20

LIBRARY = r"""
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <signal.h>
struct comm { int rank, ranks; };
struct call { int kind; const float *sent; float *got; size_t count; struct comm *comm; };
static struct call calls[16];
static int called;
static int fault(const char *name) { const char *f = getenv("FAKE_NCCL"); return f && !strcmp(f, name); }
static void hang(void) {  /* says so in a file, and answers no more */
    if (getenv("FAKE_NCCL_HANGS")) close(open(getenv("FAKE_NCCL_HANGS"), O_CREAT | O_WRONLY, 0600));
    for (;;) pause();
}
int ncclGetVersion(int *version) {
    *version = getenv("FAKE_NCCL_VERSION") ? atoi(getenv("FAKE_NCCL_VERSION")) : 22809;
    return 0;
}
const char *ncclGetErrorString(int status) { return status == 2 ? "unhandled system error" : "no error"; }
const char *ncclGetLastError(void *comm) { return "a link is down"; }
int ncclCommInitAll(void **comms, int n, const int *devices) {
    if (fault("refuses")) return 2;
    if (fault("dies")) raise(SIGKILL);
    if (fault("hangs")) hang();
    for (int i = 0; i < n; i++) {
        struct comm *comm = malloc(sizeof *comm);
        comm->rank = i; comm->ranks = n; comms[i] = comm;
    }
    return 0;
}
int ncclCommDestroy(void *comm) { free(comm); return 0; }
int ncclGroupStart(void) { called = 0; return 0; }
static int note(int kind, const void *sent, void *got, size_t count, void *comm) {
    calls[called++] = (struct call){kind, sent, got, count, comm};
    return 0;
}
int ncclAllReduce(const void *s, void *g, size_t n, int t, int op, void *c, void *q) { return note(0, s, g, n, c); }
int ncclAllGather(const void *s, void *g, size_t n, int t, void *c, void *q) { return note(1, s, g, n, c); }
int ncclReduceScatter(const void *s, void *g, size_t n, int t, int op, void *c, void *q) { return note(2, s, g, n, c); }
int ncclGroupEnd(void) {
    int ranks = calls[0].comm->ranks, kind = calls[0].kind;
    size_t count = calls[0].count, whole = kind ? count * ranks : count;
    if (kind == 1 && fault("hangs later")) hang();
    float *all = calloc(whole, sizeof *all);
    for (int r = 0; r < called; r++)
        if (kind == 1) memcpy(all + r * count, calls[r].sent, count * sizeof *all);
        else for (size_t i = 0; i < whole; i++) all[i] += calls[r].sent[i];
    if (fault("wrong")) all[whole - 1] += 1;
    if (fault("swaps") && kind == 1) memcpy(all, calls[1].sent, count * sizeof *all);
    for (int r = 0; r < called; r++)
        memcpy(calls[r].got, kind == 2 ? all + r * count : all, (kind == 2 ? count : whole) * sizeof *all);
    free(all);
    return 0;
}
"""


def value(place: Any, rank: Any) -> Any:
    """As the probe's kernels have it."""
    return ((place * 31 + (place >> 12) * 7 + rank * 17) % 1021).astype(numpy.float32)


def floats(address: int, count: int) -> Any:
    return numpy.ctypeslib.as_array((ctypes.c_float * count).from_address(address))


def fill(data: int, first: int, count: int, rank: int) -> None:
    floats(data, first + count)[first:] = value(numpy.arange(first, first + count), rank)


def summed(data: int, first: int, count: int, ranks: int, wrong: int) -> None:
    places = numpy.arange(first, first + count)
    right = sum(value(places, rank) for rank in range(ranks))
    _count(floats(data, first + count)[first:] != right, wrong)


def gathered(data: int, share: int, count: int, wrong: int) -> None:
    places = numpy.arange(count)
    _count(floats(data, count) != value(places, places // share), wrong)


def _count(wrong: Any, counter: int) -> None:
    ctypes.c_uint64.from_address(counter).value += int(wrong.sum())


KERNELS = {"fill": fill, "summed": summed, "gathered": gathered}


class Stream:
    handle = 7

    def sync(self) -> None:
        pass


class Device:
    properties = types.SimpleNamespace(multiprocessor_count=4)
    arch = "90"

    def __init__(self, ordinal: int) -> None:
        self.device_id = ordinal

    def set_current(self) -> None:
        pass

    def create_stream(self) -> Stream:
        return Stream()


class Program:
    def __init__(self, *_: object, **__: object) -> None:
        pass

    def compile(self, _: str) -> Any:
        return types.SimpleNamespace(code=b"cubin")


class ObjectCode:
    @staticmethod
    def from_cubin(code: bytes) -> Any:
        assert code == b"cubin"
        return types.SimpleNamespace(get_kernel=KERNELS.__getitem__)


def driver(gpus: int, free: int, initialised: Callable[[], int]) -> types.ModuleType:
    """cuda.bindings.driver; `free`: bytes of memory of each GPU; `initialised`: status of cuInit."""
    made = types.ModuleType("cuda.bindings.driver")
    kept: list[Any] = []

    def allocate(size: int) -> tuple[int, int]:
        kept.append((ctypes.c_char * size)())
        return 0, ctypes.addressof(kept[-1])

    answers: dict[str, Any] = {
        "CUdeviceptr": int,
        "cuInit": lambda _: (initialised(),),
        "cuDeviceGetCount": lambda: (0, gpus),
        "cuDeviceGet": lambda ordinal: (0, ordinal),
        "cuDeviceGetUuid": lambda device: (0, types.SimpleNamespace(bytes=bytes([device] * 16))),
        "cuMemGetInfo": lambda: (0, free, free),
        "cuMemAlloc": allocate,
        "cuMemsetD8": lambda address, byte, size: (0, ctypes.memset(address, byte, size)),
        "cuMemcpyDtoH": lambda here, there, size: (0, ctypes.memmove(here, there, size)),
        "cuCtxSynchronize": lambda: (0,),
    }
    for name, answer in answers.items():
        setattr(made, name, answer)
    return made


def uuid(index: int) -> str:
    return f"GPU-{index:02x}{index:02x}" + "".join(f"{index:02x}" * 14)


def install(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    *,
    gpus: int = 2,
    free: int = MIB,
    initialised: Callable[[], int] = lambda: 0,
) -> None:
    """Both stand-ins, until the test ends."""
    core = types.ModuleType("cuda.core")
    parts: dict[str, Any] = {
        "Device": Device,
        "Program": Program,
        "ObjectCode": ObjectCode,
        "ProgramOptions": lambda **options: options,
        "LaunchConfig": lambda **config: config,
        "launch": lambda stream, config, kernel, *arguments: kernel(*arguments),  # noqa: ARG005
    }
    for name, part in parts.items():
        setattr(core, name, part)
    errors = types.ModuleType("cuda.core._utils.cuda_utils")
    vars(errors)["CUDAError"] = RuntimeError
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", driver(gpus, free, initialised))
    monkeypatch.setitem(sys.modules, "cuda.core", core)
    monkeypatch.setitem(sys.modules, "cuda.core._utils.cuda_utils", errors)
    monkeypatch.setattr(cudacalls, "versions", lambda _: {"cuda-bindings": "13.0.3"})
    monkeypatch.setattr(libraries, "toolkit", lambda: {"nvcc": "/x/nvcc", "version": "12.9", "library_dirs": []})
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "12.9.1")
    monkeypatch.setattr(ncclrun, "SONAME", str(built(folder)))


@functools.cache
def compiled() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="fake-nccl-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    (folder / "nccl.c").write_text(LIBRARY)
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", "libnccl.so.2", "nccl.c"], cwd=folder, check=True)
    return folder / "libnccl.so.2"


def built(folder: Path) -> Path:
    return Path(shutil.copy(compiled(), folder))


def hangs(monkeypatch: pytest.MonkeyPatch, folder: Path, fault: str) -> None:
    """The library hangs. Once it does and nothing more is to be heard, all time passes that was to be waited."""
    said = folder / "hangs"
    monkeypatch.setenv("FAKE_NCCL", fault)
    monkeypatch.setenv("FAKE_NCCL_HANGS", str(said))
    clock, wait, passed = time.monotonic, select.select, [0.0]

    def waited(reading: Any, writing: Any, failing: Any, seconds: float | None = None) -> Any:
        while True:
            hung = said.exists()
            ready = wait(reading, writing, failing, 0 if hung or seconds == 0 else 0.05)
            if any(ready) or seconds == 0:
                return ready
            if hung and seconds is not None:
                passed[0] += seconds
                return ready

    monkeypatch.setattr("time.monotonic", lambda: clock() + passed[0])
    monkeypatch.setattr("select.select", waited)


def log_told(text: str | Missing) -> dict[str, Any]:
    """What a record keeps of NCCL's own log."""
    return nccl.chosen(text)
