"""MIG: the instances that a GPU is cut into, read and made through NVML.

NVML lists GPU instances to root alone; what programs see is a MIG device, which is a compute instance. gpuprep makes
one compute instance of all slices in each GPU instance, as `nvidia-smi mig -cgi PROFILE -C` does.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Callable, List, Optional, Tuple, Union

from gpuprep.agent.gpu.gpuanswers import Get, as_text
from gpuprep.records import MigDevice, Missing

MOST_PROFILES = 32  # numbers of nvml.h: NVML_GPU_INSTANCE_PROFILE_COUNT is 18
MOST_INSTANCES = 16  # of one profile on one GPU; NVIDIA's most is 7
COMPUTE_PROFILES = 9  # NVML_COMPUTE_INSTANCE_PROFILE_COUNT
# nvmlReturn_t of the activation, which is not that of the call
ACTIVATION = {
    16: "the mode waits for a reset of the GPU",
    19: "a program has the GPU open, and the mode waits for a reset of the GPU",
}

Ask = Callable[..., Any]  # nvml.ask: (name of the call; all its arguments) ─► its answer, or Missing


class Placement(ctypes.Structure):
    """nvmlGpuInstancePlacement_t: memory slices."""

    _fields_ = [("start", ctypes.c_uint), ("size", ctypes.c_uint)]


@dataclass(frozen=True)
class MigProfile:
    name: str  # "1g.10gb"
    id: int
    slices: int  # of computing
    most: int  # that fit on an empty GPU
    size: int  # in slices of memory
    starts: Tuple[int, ...]  # slices of memory at which an instance may begin


@dataclass(frozen=True)
class Instance:
    """A GPU instance. `whole`: one compute instance has all of its slices."""

    id: int
    profile: str
    start: int
    size: int
    whole: bool


def profiles(get: Get) -> Union[List[MigProfile], Missing]:
    """The profiles that this GPU has, whether MIG is on or not; empty where the model has no MIG."""
    found = []
    for number in range(MOST_PROFILES):
        info = get("nvmlDeviceGetGpuInstanceProfileInfo", number)
        if isinstance(info, Missing):
            if info.reason in ("gpu_is_lost", "function_not_found", "no_permission"):
                return info
            continue  # a number that this driver or model does not have
        places = _placements(get, info.id)
        if isinstance(places, Missing):
            return places
        if places:
            words = as_text(info.name).split()  # "MIG 1g.10gb"
            name = words[-1] if words else f"profile {info.id}"
            starts = tuple(place.start for place in places)
            found.append(MigProfile(name, info.id, info.sliceCount, info.instanceCount, places[0].size, starts))
    return found


def _placements(get: Get, profile: int) -> Union[List[Placement], Missing]:
    array, count = (Placement * MOST_INSTANCES)(), ctypes.c_uint(MOST_INSTANCES)
    answer = get("nvmlDeviceGetGpuInstancePossiblePlacements", profile, array, ctypes.byref(count))
    return answer if isinstance(answer, Missing) else list(array[: min(count.value, MOST_INSTANCES)])


def instances(get: Get, ask: Ask) -> Union[List[Instance], Missing]:
    """The GPU instances that are there, by where they lie. Root alone may read them."""
    known = profiles(get)
    if isinstance(known, Missing):
        return known
    found = []
    for profile in known:
        handles = _handles(get, "nvmlDeviceGetGpuInstances", profile.id)
        if isinstance(handles, Missing):
            return handles
        for handle in handles:
            info = ask("nvmlGpuInstanceGetInfo", handle)
            if isinstance(info, Missing):
                return info
            inside = _computing(handle, ask)
            if isinstance(inside, Missing):
                return inside
            whole = [slices for _, slices in inside] == [profile.slices]
            found.append(Instance(info.id, profile.name, info.placement.start, info.placement.size, whole))
    return sorted(found, key=lambda instance: instance.start)


def _handles(get: Get, name: str, profile: int) -> Union[List[ctypes.c_void_p], Missing]:
    array, count = (ctypes.c_void_p * MOST_INSTANCES)(), ctypes.c_uint(MOST_INSTANCES)
    answer = get(name, profile, array, ctypes.byref(count))
    if isinstance(answer, Missing):
        return answer
    return [ctypes.c_void_p(handle) for handle in array[: min(count.value, MOST_INSTANCES)]]


def _computing(instance: ctypes.c_void_p, ask: Ask) -> Union[List[Tuple[ctypes.c_void_p, int]], Missing]:
    """The compute instances of a GPU instance, and the slices of each."""

    def get(name: str, *arguments: Any) -> Any:
        return ask(name, instance, *arguments)

    found: List[Tuple[ctypes.c_void_p, int]] = []
    for info in _compute_profiles(instance, ask):
        handles = _handles(get, "nvmlGpuInstanceGetComputeInstances", info.id)
        if isinstance(handles, Missing):
            return handles
        found += [(handle, info.sliceCount) for handle in handles]
    return found


def _compute_profiles(instance: Any, ask: Ask) -> List[Any]:
    """NVML's nvmlComputeInstanceProfileInfo_t of each profile that this GPU instance has."""
    asked = (ask("nvmlGpuInstanceGetComputeInstanceProfileInfo", instance, n, 0) for n in range(COMPUTE_PROFILES))
    return [info for info in asked if not isinstance(info, Missing)]


def create(get: Get, ask: Ask, profile: MigProfile, start: int) -> Optional[Missing]:
    """A GPU instance at this slice of memory, with one compute instance of all its slices."""
    place = Placement(start, profile.size)
    made = get("nvmlDeviceCreateGpuInstanceWithPlacement", profile.id, ctypes.byref(place))
    if isinstance(made, Missing):
        return made
    refused = Missing("not_supported", f"{profile.name} has no compute instance of {profile.slices} slices")
    for info in _compute_profiles(made, ask):
        if info.sliceCount == profile.slices:
            answer = ask("nvmlGpuInstanceCreateComputeInstance", made, info.id)
            if not isinstance(answer, Missing):
                return None
            refused = answer
    return refused


def destroy(get: Get, ask: Ask, instance: Instance) -> Optional[Missing]:
    """Compute instances first: NVML destroys no GPU instance that has one."""
    handle = get("nvmlDeviceGetGpuInstanceById", instance.id)
    if isinstance(handle, Missing):
        return handle
    inside = _computing(handle, ask)
    if isinstance(inside, Missing):
        return inside
    for compute, _ in inside:
        refused = ask("nvmlComputeInstanceDestroy", compute)
        if isinstance(refused, Missing):
            return refused
    refused = ask("nvmlGpuInstanceDestroy", handle)
    return refused if isinstance(refused, Missing) else None


def set_mode(get: Get, on: bool) -> Optional[Missing]:
    """Turn MIG on or off. Missing("reset_required"): NVML took it, and it waits for a reset or a reboot."""
    activation = get("nvmlDeviceSetMigMode", int(on))
    if isinstance(activation, Missing) or not activation:
        return activation or None
    words = ACTIVATION.get(activation, f"NVML's answer to the activation is {activation}")
    return Missing("reset_required", words)


def devices(get: Get, ask: Ask) -> Union[Tuple[MigDevice, ...], Missing]:
    """What programs see of a GPU with MIG on. Everybody may read them."""
    most = get("nvmlDeviceGetMaxMigDeviceCount")
    if isinstance(most, Missing):
        return most
    found = []
    for index in range(min(most, MOST_INSTANCES)):
        handle = get("nvmlDeviceGetMigDeviceHandleByIndex", index)
        if isinstance(handle, Missing):
            if handle.reason == "gpu_is_lost":
                return handle
            continue  # fewer than the most
        name, uuid, parts = (
            ask(call, handle) for call in ("nvmlDeviceGetName", "nvmlDeviceGetUUID", "nvmlDeviceGetAttributes")
        )
        for answer in (name, uuid):
            if isinstance(answer, Missing):
                return answer
        found.append(
            MigDevice(
                as_text(name).rpartition(" MIG ")[2],
                as_text(uuid),
                parts if isinstance(parts, Missing) else int(parts.multiprocessorCount),
                parts if isinstance(parts, Missing) else int(parts.memorySizeMB),
            )
        )
    return tuple(found)
