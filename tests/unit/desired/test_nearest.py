"""Every way that a refusal of driver, CUDA or source offers must be accepted, with the rest of the profile as it is."""

from __future__ import annotations

import dataclasses
import itertools
import random
import re
from collections.abc import Iterator
from typing import Any

import amount
from builders import bare_snapshot, load

from gpuprep import catalogue, errors, records
from gpuprep.desired import state

LIKE = {"debian": "debian12", "ubuntu": "ubuntu2204"}
WISHES = {
    "system": tuple(catalogue.archives()),
    "gpu": ("t4", "v100", "a100", "a100+nvswitch", "h100", "t4,v100"),
    "source": ("auto", "distribution", "nvidia"),
    "version": ("auto", "470", "535", "550", "570", "580", "590", "595", "615", "620", "580.95.05", "580.99.99"),
    "flavour": ("auto", "auto", "open", "proprietary"),
    "cuda": ("auto", "auto", "none", "11.5", "11.8", "12.2", "12.4", "12.7", "12.8", "13.0", "13.3"),
    "cudnn": ("auto", "auto", "none", "9.10.2.21", "9.11.0.98", "9.14.0.64"),
}
Parts = dict[str, Any]
# The way for an operator, not a wish of a profile: a machine, a disk, or what somebody installed himself.
ABOUT = ("driver.source", "driver.version", "driver.flavour", "cuda.version", "host.nvswitches")


def cells(count: int) -> Iterator[tuple[str, str, Parts]]:
    chance = random.Random(20261124)
    every = list(itertools.product(*WISHES.values()))
    for system, gpu, source, version, flavour, cuda, cudnn in chance.sample(every, count):
        driver = {"source": source, "version": version, "flavour": flavour}
        yield system, gpu, {"driver": driver, "cuda": {"version": cuda}, "cudnn": {"version": cudnn}}


def host(system: str, gpu: str) -> records.Snapshot:
    models, _, switch = gpu.partition("+")
    name, _, release = system.rpartition("-")
    base = bare_snapshot(LIKE.get(name, "rocky9"), tuple(models.split(",")))
    known = dataclasses.replace(base.os, id=name, version_id=release)
    return dataclasses.replace(base, os=known, nvswitches=6 if switch else 0)


def wanted(system: str, gpu: str, parts: Parts) -> state.Wanted:
    """Raises PlanRefused."""
    return state.resolve(load(gpus=tuple(gpu.partition("+")[0].split(",")), **parts), host(system, gpu))


def ways(key: str, works: str) -> Iterator[dict[str, str]]:
    """What a refusal offers: key ► value for each way."""
    for way in re.split(r", or (?=[a-z0-9])", works):
        if found := re.fullmatch(r"driver[.]source: (\w+)(?: with (.*))?", way):
            changes = [part.partition(": ")[::2] for part in (found[2] or "").split(" and ") if part]
            every = [[(name, value) for value in re.split(r", | or ", values)] for name, values in changes]
            for chosen in itertools.product(*every):
                yield {"driver.source": found[1], **dict(chosen)}
        elif found := re.fullmatch(r"([\d.]+) with cudnn.version: (\S+)", way):
            yield {key: found[1], "cudnn.version": found[2]}
        elif found := re.fullmatch(r"(?:(driver[.]\w+) |(branch) )?([\w.]+(?:(?:, | or )[\w.]+)*)", way):
            for value in re.split(r", | or ", found[3]):
                yield {found[1] or ("driver.version" if found[2] else key): value}
        elif way not in ("cuda.version: none", "another release of the operating system"):
            assert "gpuprep validate" in way or "without NVSwitch" in way or "GPUs of one kind" in way, way


def changed(parts: Parts, way: dict[str, str]) -> Parts:
    new = {part: dict(values) for part, values in parts.items()}
    for name, value in way.items():
        part, _, key = name.partition(".")
        new[part][key] = value
    return new


def refused_ways(system: str, gpu: str, parts: Parts) -> tuple[int, list[str]]:
    """(ways that were tried, those that are refused). Only where one thing is refused: each reason has its own way."""
    try:
        wanted(system, gpu, parts)
    except errors.PlanRefused as refused:
        reasons = refused.reasons
    else:
        return 0, []
    assert all("; works: " in reason for reason in reasons)
    key, _, rest = reasons[0].partition(": ")
    if len(reasons) > 1 or key not in ABOUT:
        return 0, []
    tried, wrong = 0, []
    for way in ways(key, rest.partition("; works: ")[2]):
        tried += 1
        try:
            wanted(system, gpu, changed(parts, way))
        except errors.PlanRefused as again:
            wrong.append(f"{system} {gpu} {parts}: {reasons[0]} ► {way} ► {again.reasons[0]}")
    return tried, wrong


def test_every_way_that_a_refusal_offers_is_accepted() -> None:
    found = list(itertools.starmap(refused_ways, cells(20_000 if amount.ALL else 600)))
    assert sum(tried for tried, _ in found) > 300  # the sample has enough of them
    wrong = [line for _, lines in found for line in lines]
    assert wrong == []
