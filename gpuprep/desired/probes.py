"""Which probes a run makes on a host, in which order, with which arguments. The agent measures, the checks judge."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from typing import Any

from gpuprep import catalogue
from gpuprep.desired.profile import Profile
from gpuprep.desired.state import Wanted
from gpuprep.records.evidence import throughput
from gpuprep.records.evidence.kinds import PROBES
from gpuprep.records.evidence.shared import Probe

CAPACITY = dataclasses.replace(
    throughput.PROBE, what="streams that the video engines carry", timeout_seconds=2400.0, clips=False
)
NAMES = tuple(probe.name for probe in PROBES)
QUICK = ("gemm", "bandwidth")  # what drift measures with `--probe quick`: at most ten seconds a GPU in all
# Runs long and only on the GPU: meanwhile the CPU may make clips for later probes.
LEAVES_PROCESSORS = "gemm"
LONGEST = "cudnn"
TELL_MOST = ("gemm", "bandwidth", "nccl")  # nearly always one of these is FAIL on a faulty GPU
FACTS = "facts"  # in place of probes: only what every run reads anyway


def in_turn(kinds: Sequence[Probe], *, first_failure: bool = False) -> tuple[Probe, ...]:
    """The probes in the order in which they begin: first those that share a turn, the longest first.

    `first_failure`: the run ends at a FAIL, so those that tell most are first.
    """
    order = sorted(kinds, key=lambda kind: (not kind.shares_turn, kind.name != LONGEST))
    return tuple(sorted(order, key=lambda kind: first_failure and kind.name not in TELL_MOST))


def chosen(
    wanted: Wanted, *, probes: Collection[str] = (), without: Collection[str] = (), measure: bool = True
) -> tuple[Probe, ...]:
    """The probes of one run: `probes` (empty: all), minus those of steps that the profile lacks or `without` names."""
    absent = {"cuda": wanted.cuda.version, "cudnn": wanted.cudnn.version, "codec": wanted.codec.ffmpeg}
    # With one GPU NCCL has nothing to measure, and only says so.
    alone = len(wanted.gpus) < 2
    return tuple(
        dataclasses.replace(kind, shares_turn=True) if alone and kind.name == "nccl" else kind
        for kind in PROBES
        if (not probes or kind.name in probes)
        and absent[kind.step] != "none"
        and kind.step not in without
        and (measure or not kind.measures)
    )


def arguments(profile: Profile, wanted: Wanted, *, quick: bool) -> dict[str, Any]:
    """Arguments of every probe: time limit, the catalogue's models of these GPUs, the profile's matrix products."""
    known = {gpu.pci_device_id: _facts(gpu.model) for gpu in wanted.gpus}
    wish = profile.probes.gemm
    main = None if wish.main_dtype == "auto" else wish.main_dtype
    return {"quick": quick, "gpus": known, "shapes": [list(shape) for shape in wish.shapes], "main_dtype": main}


def _facts(key: str) -> dict[str, Any]:
    """The catalogue's entry of the model as plain data; {} if there is none."""
    model = catalogue.models().get(key)
    if model is None:
        return {}
    return {"model": {field.name: _plain(getattr(model, field.name)) for field in dataclasses.fields(model)}}


def _plain(value: Any) -> Any:
    return dict(value) if hasattr(value, "items") else value
