"""Runs the software ffmpeg instead of the GPU: shows its sessions in NVML, rewrites its output, ends it with us."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from types import FrameType

from gpuprep.agent.gpu import simgpu, simstate
from gpuprep.sim.guest import messages, refusals
from gpuprep.sim.guest.mapping import Plan
from gpuprep.sim.guest.refusals import Refusal

PR_SET_PDEATHSIG = 1
CODECS = {"h264": 0, "hevc": 1, "av1": 2}  # nvmlEncoderType_t
LOOK_SECONDS = 0.2  # between looks at whether the GPU is still there
MEMORY_MIB = 220  # of a session


@contextlib.contextmanager
def sessions(plan: Plan, gpu: simgpu.Gpu, *, busy: bool = True) -> Iterator[Refusal | None]:
    """NVML shows the work while the block runs; the refusal of the session limit, if it is reached.

    Not `busy`: the caller shows by itself how busy the engines are.
    """
    with contextlib.ExitStack() as held:
        yield _open(plan, gpu, held, busy)


def _open(plan: Plan, gpu: simgpu.Gpu, held: contextlib.ExitStack, busy: bool) -> Refusal | None:
    limit = gpu.number("fault_nvenc_sessions", 1 << 16)
    with _alone(gpu):
        opened = sum("encoder_codec" in load for load in simstate.loads(gpu.index, gpu.folder))
        for encode in plan.encodes:
            if opened >= limit:
                return refusals.no_session(encode)
            opened += 1
            use = min(95, 30 + 15 * len(plan.encodes)) // len(plan.encodes) if busy else 0
            session = {"codec": CODECS[encode.codec], "width": encode.width, "height": encode.height}
            values = {**shown(gpu, encoder=use), **{f"encoder_{key}": value for key, value in session.items()}}
            held.enter_context(simstate.load(gpu.index, values, gpu.folder))
        for _ in plan.decodes:
            held.enter_context(simstate.load(gpu.index, shown(gpu, decoder=25 if busy else 0), gpu.folder))
    return None


@contextlib.contextmanager
def _alone(gpu: simgpu.Gpu) -> Iterator[None]:
    """A lock: counting the sessions and opening one are a single step."""
    descriptor = os.open(gpu.folder / "loads", os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def shown(gpu: simgpu.Gpu, *, encoder: int = 0, decoder: int = 0) -> dict[str, int]:
    """What NVML shows of video work: percent of the GPU's engines of a kind."""
    return {
        "graphics": gpu.graphics_clock_mhz("video"),
        "memory": gpu.memory_clock_mhz(),
        "power_mw": round(gpu.power_watts("video") * 1000),
        "temperature": gpu.temperature_c("video"),
        "event_reasons": gpu.event_reasons("video"),
        "utilization": 12,
        "memory_mib": MEMORY_MIB,
        "encoder": encoder,
        "decoder": decoder,
    }


def run(argv: Sequence[str], plan: Plan, gpu: simgpu.Gpu) -> int:
    """Runs the software ffmpeg with our stdin and stdout. Ends it if we are told to end, are killed or lose the GPU."""
    with subprocess.Popen(argv, stderr=subprocess.PIPE, preexec_fn=_die_with_us) as child:

        def pass_on(number: int, _frame: FrameType | None) -> None:
            child.send_signal(number)

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
            signal.signal(number, pass_on)
        if not _listen(child, plan, gpu):
            return _lost(child)
        code = child.wait()
        return _lost(child) if is_lost(gpu) and code else code if code >= 0 else 128 - code


def _listen(child: subprocess.Popen[bytes], plan: Plan, gpu: simgpu.Gpu) -> bool:
    """Print the child's output to its end; False if the GPU was lost before."""
    assert child.stderr is not None
    rest = b""
    looked = time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(child.stderr, selectors.EVENT_READ)
        while True:
            ready = selector.select(LOOK_SECONDS)
            if time.monotonic() - looked >= LOOK_SECONDS:
                looked = time.monotonic()
                if is_lost(gpu):
                    return False
            if not ready:
                continue
            data = os.read(child.stderr.fileno(), 65536)
            if not data:
                break
            rest = _speak(rest + data, plan)
    _speak(rest + b"\n" if rest else b"", plan)
    return True


def is_lost(gpu: simgpu.Gpu) -> bool:
    section = simstate.read(gpu.folder).get(f"gpu.{gpu.index}", {})
    return not section or section.get("fault_gpu_lost", "0") != "0"


def _lost(child: subprocess.Popen[bytes]) -> int:
    child.kill()
    child.wait()
    refusal = refusals.lost_meanwhile()
    for place, text in refusal.lines:
        messages.say(place, text)
    return refusal.exit_code


def _speak(data: bytes, plan: Plan) -> bytes:
    """Prints the complete lines of `data`, returns the rest. The status line ends with a carriage return."""
    *lines, rest = data.replace(b"\r", b"\r\n").split(b"\n")
    for line in lines:
        text = messages.rewritten(line.decode(errors="replace"), plan)
        if text is not None:
            sys.stderr.write(text if text.endswith("\r") else f"{text}\n")
    sys.stderr.flush()
    return rest


def _die_with_us() -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
