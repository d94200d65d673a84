"""Measures memory and links of each GPU: copy, read and triad; to and from the host; GPU to GPU; links under load."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Sequence, Tuple, Union

from gpuprep.agent import host_paths
from gpuprep.agent.compute import cudacalls, kernels, libraries, streams
from gpuprep.agent.compute.cudacalls import Cuda, CudaFailed, Timer
from gpuprep.agent.compute.sampler import Sampler
from gpuprep.agent.facts import simulation
from gpuprep.agent.gpu.nvml import Gpu, Nvml
from gpuprep.agent.probereports import measured, tell
from gpuprep.agent.probes import simulated
from gpuprep.agent.probes.gpuforms import named, other_processes
from gpuprep.agent.programs.run import read_text
from gpuprep.records import Missing, Source, to_json_value

PCI_DEVICES = Path(host_paths.PCI_DEVICES)
# max_link_speed as the kernel writes it ("16.0 GT/s PCIe") ► generation.
GENERATIONS = {"2.5": 1, "5.0": 2, "5": 2, "8.0": 3, "8": 3, "16.0": 4, "16": 4, "32.0": 5, "32": 5, "64.0": 6, "64": 6}
MOST_LANES = 32
# Seconds of each figure, and MiB of a copy over a link. Thrice the seconds, twice for the host, and the warm-up.
FULL = {"seconds": 0.5, "warm": 0.5, "link": 0.3, "host_mib": 256, "peer_mib": 512}
QUICK = {"seconds": 0.1, "warm": 0.2, "link": 0.15, "host_mib": 128, "peer_mib": 256}


def measure(arguments: Dict[str, Any]) -> Union[Dict[str, Any], Missing]:
    """arguments: quick (bool, default false). Takes about 4 s per GPU, quick about 1.5 s.

    Values: docs/records.md, "bandwidth".
    """
    quick = bool(arguments.get("quick", False))
    with Nvml() as nvml:
        gpus = nvml.gpus()
        if isinstance(gpus, Missing):
            return gpus
        if simulation.source() is Source.SIMULATED:
            entries, peers = _simulated(gpus)
            return {"quick": quick, "libraries": [], "bindings": {}, "gpus": entries, "peers": peers}
        cuda = cudacalls.open_cuda()
        if isinstance(cuda, Missing):
            return cuda
        compiler = cudacalls.load_nvrtc()
        pieces = len(gpus) * 2 + len(gpus) * (len(gpus) - 1)
        plan = QUICK if quick else FULL
        measured(quick, "quick")
        entries = [_gpu(cuda, gpu, compiler, plan, pieces) for gpu in gpus]
        peers = _peers(cuda, gpus, plan, pieces)
        versions = {} if isinstance(compiler, Missing) else compiler
        loaded = libraries.loaded(versions, names=("cuda", "nvrtc"))
    return {
        "quick": quick,
        "libraries": to_json_value(loaded),
        "bindings": cudacalls.versions(cudacalls.BINDINGS),
        "gpus": entries,
        "peers": peers,
    }


def get_ready(_arguments: Dict[str, Any]) -> None:
    """Load the libraries and compile our kernels."""
    if simulation.source() is Source.SIMULATED:
        return
    cuda = cudacalls.open_cuda()
    if not isinstance(cuda, Missing) and not isinstance(cudacalls.load_nvrtc(), Missing):
        kernels.prepare(cuda.core, streams.KERNELS)


def _gpu(
    cuda: Cuda, gpu: Gpu, compiler: Union[Dict[str, str], Missing], plan: Dict[str, float], pieces: int
) -> Dict[str, Any]:
    """The values of one GPU. `pieces`: number of pieces of all GPUs, two per GPU and one per pair and direction."""
    facts = gpu.facts()
    entry: Dict[str, Any] = {**named(facts), "other_processes": other_processes(gpu), "error": None}
    try:
        device = cuda.device(facts.uuid)
        timer = Timer(cuda, device)
        tell(f"memory of GPU {gpu.index}", done=2 * gpu.index, of=pieces, unit="bandwidths")
        entry.update(_memory(cuda, device, timer, gpu, compiler, plan))
        measured(entry, "gpus", gpu.index)
        tell(f"GPU {gpu.index} to and from the host", done=2 * gpu.index + 1, of=pieces, unit="bandwidths")
        entry.update(_host(cuda, timer, gpu, plan))
    except cuda.errors as error:
        entry["error"] = str(error)
    measured(entry, "gpus", gpu.index)
    return entry


def _memory(
    cuda: Cuda,
    device: Any,
    timer: Timer,
    gpu: Gpu,
    compiler: Union[Dict[str, str], Missing],
    plan: Dict[str, float],
) -> Dict[str, Any]:
    seconds = plan["seconds"]
    free, _ = cuda.call("cuMemGetInfo")
    mib = streams.buffer_mib(free // streams.MIB, device.properties.l2_cache_size // streams.MIB)
    if isinstance(mib, Missing):
        return {f"{kind}_gb_per_s": to_json_value(mib) for kind in ("copy", "read", "triad")}
    with streams.DeviceMemory(cuda, device, timer, mib) as memory:
        memory.copy(plan["warm"])  # clocks rise, and power settles
        with Sampler([gpu]) as sampler:
            copy = memory.copy(seconds)
            if isinstance(compiler, Missing):
                read = triad = to_json_value(compiler)
            else:
                read, triad = memory.read_and_triad(seconds)
        return {
            "copy_gb_per_s": copy,
            "read_gb_per_s": read,
            "triad_gb_per_s": triad,
            "buffer_mib": memory.mib,
            **_sampled(sampler, gpu.index),
        }


def _sampled(sampler: Sampler, index: int) -> Dict[str, Any]:
    clocks = {name: sampler.mean(index, name) for name in ("graphics_clock_mhz", "memory_clock_mhz")}
    whole = {name: mean if isinstance(mean, Missing) else round(mean) for name, mean in clocks.items()}
    values = {**whole, "event_reasons": sampler.event_reasons(index), "telemetry": sampler.telemetry(index)}
    document: Dict[str, Any] = to_json_value(values)
    return document


def _host(cuda: Cuda, timer: Timer, gpu: Gpu, plan: Dict[str, float]) -> Dict[str, Any]:
    address = gpu.facts().pci_address
    with streams.HostMemory(cuda, timer, int(plan["host_mib"])) as host:
        link = host.link(gpu.pcie, plan["link"])
        return {
            "pcie": to_json_value({**link, "device_width": device_width(address), **slot(address)}),
            "pinned": True,
            "h2d_gb_per_s": host.measure("h2d", plan["link"]),
            "d2h_gb_per_s": host.measure("d2h", plan["link"]),
        }


def device_width(address: str, folder: Path = PCI_DEVICES) -> Union[int, Missing]:
    """Number of lanes of the device itself, whatever its slot has."""
    text = read_text(folder / address / "max_link_width")
    if isinstance(text, Missing):
        return text
    return int(text) if text and text.strip().isdigit() else Missing("not_supported", "the kernel shows no width")


def slot(address: str, folder: Path = PCI_DEVICES) -> Dict[str, Union[int, Missing]]:
    """Generation and width that the port above the device can do; Missing if a virtual machine hides it."""
    above = folder / address / ".."
    speed, width = read_text(above / "max_link_speed"), read_text(above / "max_link_width")
    if isinstance(speed, Missing) or isinstance(width, Missing) or speed is None or width is None:
        hidden = Missing("not_supported", "the kernel shows no port above the device")
        return {"slot_generation": hidden, "slot_width": hidden}
    generation = GENERATIONS.get(speed.split(" ")[0])
    nothing = Missing("unparsable", f"the port above the device says {speed!r:.40}, {width!r:.20}")
    lanes = int(width) if width.strip().isdigit() and 0 < int(width) <= MOST_LANES else nothing
    return {"slot_generation": nothing if generation is None else generation, "slot_width": lanes}


# ---------------------------------------------------------------- several GPUs


def _peers(cuda: Cuda, gpus: Sequence[Gpu], plan: Dict[str, float], pieces: int) -> List[Dict[str, Any]]:
    pairs = [(gpu, other) for gpu in gpus for other in gpus if gpu.index != other.index]
    rows = []
    for number, (origin, other) in enumerate(pairs):
        tell(f"GPU {origin.index} to GPU {other.index}", done=2 * len(gpus) + number, of=pieces, unit="bandwidths")
        rows.append(_peer(cuda, origin, other, plan))
        measured(rows[-1], "peers", number)
    return rows


def _peer(cuda: Cuda, gpu: Gpu, other: Gpu, plan: Dict[str, float]) -> Dict[str, Any]:
    """Values of one direction between two GPUs. Without peer access CUDA copies through the host: also measured."""
    origin, target = gpu.facts(), other.facts()
    entry: Dict[str, Any] = {
        "from": gpu.index,
        "to": other.index,
        "nvlinks": to_json_value(gpu.nvlinks(target.pci_address)),
        "topology": gpu.path_to(other),
        "error": None,
    }
    try:
        entry.update(_peer_speed(cuda, origin.uuid, target.uuid, plan))
    except cuda.errors as error:
        entry["error"] = str(error)
    return entry


def _peer_speed(cuda: Cuda, origin: str, target: str, plan: Dict[str, float]) -> Dict[str, Any]:
    size = int(plan["peer_mib"]) * streams.MIB
    places: List[Tuple[Any, Any, int]] = []
    for uuid in (target, origin):  # the last one stays current: the copy is pushed by its origin
        device = cuda.device(uuid)
        places.append((device, cuda.call("cuCtxGetCurrent"), cuda.allocate(size)))
    (there, there_context, there_address), (here, here_context, here_address) = places
    try:
        access = bool(cuda.call("cuDeviceCanAccessPeer", here.device_id, there.device_id))
        if access:
            _enable(cuda, there_context)
        timer = Timer(cuda, here)
        contexts = (here_context, there_context)
        work = streams.peer_work(cuda, timer.stream.handle, (here_address, there_address), contexts, size)
        seconds = timer.median(work, seconds=plan["link"])
        return {"can_access": access, "gb_per_s": streams.gb_per_s(size, seconds)}
    finally:
        cuda.free(here_address)
        there.set_current()
        cuda.free(there_address)


def _enable(cuda: Cuda, context: Any) -> None:
    try:
        cuda.call("cuCtxEnablePeerAccess", context, 0)
    except CudaFailed as error:
        if "PEER_ACCESS_ALREADY_ENABLED" not in str(error):
            raise


# ---------------------------------------------------------------- simulated


def _simulated(gpus: Sequence[Gpu]) -> Tuple[List[Dict[str, Any]], List[Dict[str, Any]]]:
    models = simulated.gpus()
    entries = [_simulated_gpu(gpus[model.index], model) for model in models]
    peers = [
        {
            "from": model.index,
            "to": other.index,
            "can_access": True,
            "gb_per_s": round(model.peer_gb_per_s(other), 1),
            "nvlinks": model.nvlinks,
            "error": None,
        }
        for model in models
        for other in models
        if model.index != other.index and not (model.lost or other.lost)
    ]
    return entries, peers


def _simulated_gpu(gpu: Gpu, model: simulated.SimulatedGpu) -> Dict[str, Any]:
    entry: Dict[str, Any] = {**named(model), "other_processes": other_processes(gpu), "error": None}
    if model.lost:
        return {**entry, "error": "the GPU is lost"}
    with model.load("memory"), Sampler([gpu]) as sampler:
        link = gpu.pcie()
    return {
        **entry,
        **{f"{kind}_gb_per_s": round(model.memory_gb_per_s(kind), 1) for kind in ("copy", "read", "triad")},
        **{f"{way}_gb_per_s": round(model.host_gb_per_s(way), 1) for way in ("h2d", "d2h")},
        "buffer_mib": streams.LARGEST_MIB // 4,
        **_sampled(sampler, gpu.index),
        "pcie": {**to_json_value(link), **model.pcie()},
    }
