"""The whole file: totals of each GPU, the machine, what was left out."""

from __future__ import annotations

import numpy as np

from gpuprep.trace.columns import NONE, Device, GpuKind
from gpuprep.trace.document import DeviceTotals, File, Note
from gpuprep.trace.model.intervals import Union, union
from gpuprep.trace.notes import sentence
from gpuprep.trace.profile import NO_OP, OUTSIDE, Profile
from gpuprep.trace.tables.chosen import Chosen, percent, us


def unions(profile: Profile) -> dict[int, Union]:
    """Of each device that did something, the union of all its GPU events."""
    gpu = profile.trace.gpu
    made = {}
    for device in profile.device_order:
        mine = gpu.device == device
        made[device] = union(gpu.start[mine], gpu.end[mine])
    return made


def busy_inside(every: dict[int, Union], window: tuple[int, int]) -> list[int]:
    start, end = np.array([window[0]]), np.array([window[1]])
    return [int(each.inside(start, end)[0]) for each in every.values()]


def devices(chosen: Chosen, every: dict[int, Union], busy: list[int]) -> tuple[DeviceTotals, ...]:
    """GPUs that did something. `busy`: inside the window of the chosen iterations, ns."""
    gpu = chosen.profile.trace.gpu
    known = {device.index: device for device in chosen.profile.trace.devices}
    length, kernel = gpu.end - gpu.start, gpu.kind == GpuKind.KERNEL
    made = []
    for (device, merged), inside in zip(every.items(), busy, strict=True):
        mine = gpu.device == device
        described = known.get(device, Device(device))
        made.append(
            DeviceTotals(
                device=device,
                name=described.name,
                compute_capability=described.compute_capability,
                sms=_known(described.sms),
                memory_bytes=_known(described.memory_bytes),
                kernels=int((mine & kernel).sum()),
                kernel_time_us=us(length[mine & kernel].sum()),
                memory_operations=int((mine & ~kernel).sum()),
                memory_time_us=us(length[mine & ~kernel].sum()),
                busy_us=us(merged.length),
                span_us=us(merged.ends[-1] - merged.starts[0]),
                utilization_percent=percent(inside, chosen.wall),
            )
        )
    return tuple(made)


def file(profile: Profile, totals: tuple[DeviceTotals, ...]) -> File:
    trace = profile.trace
    return File(
        name=trace.file,
        profile_name=profile.name,
        format=trace.format.value,
        generation=trace.generation,
        bytes=trace.size,
        rank=_known(trace.rank),
        world_size=_known(trace.world_size),
        devices=totals,
        machine=dict(trace.machine),
        machine_source="the trace",
        switches=dict(trace.switches),
        notes=notes(profile),
    )


def notes(profile: Profile) -> tuple[Note, ...]:
    """What reading and linking left out, mended or could not tell."""
    gpu, links = profile.gpu, profile.links
    counts = {
        **profile.trace.notes,
        "outside_ops": int(((gpu.call >= 0) & (gpu.op == NO_OP)).sum()),
        "outside_iterations": int((gpu.iteration == OUTSIDE).sum()),
        "external_differs": links.checked - links.agree,
    }
    return tuple(Note(key, count, sentence(key, count)) for key, count in counts.items() if count)


def _known(value: int) -> int | None:
    return None if value == NONE else int(value)
