"""What does a profile say? YAML ─► Profile; every error names file, line and key.

    load("t4"), load("./mine.yml")   a whole Profile, or ProfileError with every problem at once
    document("t4")                   the same as plain data, merged with the profiles that it extends
    available()                      all profiles by name

profile.schema.json defines what a profile may contain. This module adds `extends`, the search path and the few rules
that compare two values.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from gpuprep import catalogue
from gpuprep.desired.loading import schema
from gpuprep.desired.loading.files import available, find, read_chain
from gpuprep.desired.profile import (
    ClockPair,
    CodecWish,
    ContainersWish,
    CudaWish,
    CudnnWish,
    DriftWish,
    DriverWish,
    ExtrasWish,
    GemmWish,
    MountWish,
    NcclWish,
    NotifyWish,
    ProbesWish,
    Profile,
    SigningWish,
    Threshold,
    Thresholds,
    TuningWish,
    Waiver,
)
from gpuprep.errors import ProfileError
from gpuprep.paths import shipped_profiles_dir
from gpuprep.yamlfile.nodes import Node, Place, Problem, plain

__all__ = ["Resolved", "available", "build", "document", "find", "load", "resolve"]


@dataclass(frozen=True)
class Resolved:
    """A profile merged with all that it extends, and the file and line of each value."""

    path: Path
    root: Node

    @property
    def data(self) -> dict[str, Any]:
        """Plain data in the schema's order, without `extends`."""
        values: dict[str, Any] = plain(self.root)
        order = schema.schema()["properties"]
        return {name: values[name] for name in order if name in values and name != "extends"}

    def place(self, *keys: str | int) -> Place:
        """File and line of the value at `keys`, for messages; a number is a place in a list."""
        node = self.root
        for key in keys:
            value: Any = node.value
            there = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
            if key not in there:
                break
            node = value[key]
        return node.place


def load(name_or_path: str) -> Profile:
    """The profile of this name or path. Raises UsageError (no such name) or ProfileError (all its problems)."""
    return build(resolve(name_or_path))


def document(name_or_path: str) -> dict[str, Any]:
    """The resolved profile as plain data, every default stated. Raises as load() does."""
    return resolve(name_or_path).data


def resolve(name_or_path: str) -> Resolved:
    """Read, merge and check. Raises as load() does."""
    path = find(name_or_path)
    root, problems = read_chain(path, name_or_path if path == Path(name_or_path) else str(path))
    if root is not None:
        problems += schema.check_complete(root)
        if not problems:
            problems += _compare_values(root)
    if problems or root is None:
        raise ProfileError([str(p) for p in _in_order(problems)])
    return Resolved(path, root)


# ---------------------------------------------------------------- rules between two values


def _compare_values(root: Node) -> list[Problem]:
    """Rules that a schema cannot express. Only for a complete profile without other problems."""
    values = plain(root)
    thresholds = values["thresholds"]
    problems = []
    for kind in ("history", "peers"):
        warn, fail = thresholds[f"{kind}_warn_percent"], thresholds[f"{kind}_fail_percent"]
        if warn > fail:
            place = Resolved(Path(), root).place("thresholds", f"{kind}_warn_percent")
            what = f"is {warn}, more than {kind}_fail_percent ({fail}); allowed: at most {fail}"
            problems.append(Problem(place, f"thresholds.{kind}_warn_percent", what))
    return problems + _any_alone(root) + _days(root)


def _any_alone(root: Node) -> list[Problem]:
    assert isinstance(root.value, dict)
    gpus = root.value["gpus"]
    if schema.ANY not in plain(gpus) or len(plain(gpus)) == 1:
        return []
    return [Problem(gpus.place, "gpus", f"has {schema.ANY} and other models; allowed: [{schema.ANY}], or models")]


def _days(root: Node) -> list[Problem]:
    """Problems with last days of waivers that do not exist, such as 30 February."""
    assert isinstance(root.value, dict)
    listed = root.value["waivers"].value
    problems = []
    for i, waiver in enumerate(listed if isinstance(listed, list) else []):
        assert isinstance(waiver.value, dict)
        expires = waiver.value["expires"]
        try:
            date.fromisoformat(str(expires.value))
        except ValueError:
            what = f"{expires.value} is no day of the calendar; allowed: a day such as '2026-12-31'"
            problems.append(Problem(expires.place, f"waivers[{i}].expires", what))
    return problems


def _in_order(problems: list[Problem]) -> list[Problem]:
    """Problems sorted by file (in reading order) and line, each problem once."""
    files = list(dict.fromkeys(p.place.file for p in problems))
    return sorted(dict.fromkeys(problems), key=lambda p: (files.index(p.place.file), p.place.line))


# ---------------------------------------------------------------- data ─► Profile


def build(resolved: Resolved) -> Profile:
    """The dataclasses of a checked profile."""
    data = resolved.data
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return Profile(
        name=resolved.path.stem,
        description=data["description"],
        gpus=tuple(catalogue.models()) if data["gpus"] == [schema.ANY] else tuple(data["gpus"]),
        driver=_driver(data["driver"]),
        cuda=CudaWish(**data["cuda"]),
        cudnn=CudnnWish(**data["cudnn"]),
        nccl=NcclWish(**data["nccl"]) if "nccl" in data else NcclWish(),
        containers=ContainersWish(**data["containers"]) if "containers" in data else ContainersWish(),
        codec=_codec(data["codec"]),
        tuning=_tuning(data["tuning"]),
        extras=_extras(data["extras"]),
        probes=_probes(data["probes"]),
        thresholds=_thresholds(resolved, data["thresholds"]),
        drift=DriftWish(**{**data["drift"], "notify": NotifyWish(**data["drift"]["notify"])}),
        waivers=tuple(Waiver(**waiver) for waiver in data["waivers"]),
        path=str(resolved.path),
        sha256=hashlib.sha256(canonical.encode()).hexdigest(),
    )


def _driver(data: dict[str, Any]) -> DriverWish:
    signing = data.get("signing")
    return DriverWish(**{**data, "signing": None if signing is None else SigningWish(**signing)})


def _codec(data: dict[str, Any]) -> CodecWish:
    data = {**data, "libraries": tuple(data.get("libraries", ()))}
    return CodecWish(**{**data, "parts": {kind: tuple(names) for kind, names in data["parts"].items()}})


def _tuning(data: dict[str, Any]) -> TuningWish:
    clocks = data["clocks"]
    return TuningWish(**{**data, "clocks": ClockPair(**clocks) if isinstance(clocks, dict) else clocks})


def _probes(data: dict[str, Any]) -> ProbesWish:
    shapes = (tuple(int(size) for size in shape.split("x")) for shape in data["gemm"]["shapes"])
    return ProbesWish(GemmWish(data["gemm"]["main_dtype"], tuple((m, n, k) for m, n, k in shapes)))


def _thresholds(resolved: Resolved, data: dict[str, Any]) -> Thresholds:
    """A profile gives a floor as 75, or as {percent: 75, source: SuperBench}."""
    ours = shipped_profiles_dir().resolve()
    thresholds = {}
    for name, given in data.items():
        fields = given if isinstance(given, dict) else {"percent": given}
        file = Path(resolved.place("thresholds", name, "percent").file)
        thresholds[name] = Threshold(**fields, shipped=file.resolve().parent == ours)
    return thresholds


def _extras(data: dict[str, Any]) -> ExtrasWish:
    mount = data["mount"]
    return ExtrasWish(
        tools=tuple(data["tools"]),
        framework=data["framework"],
        mount=None if mount is None else MountWish(**mount),
    )
