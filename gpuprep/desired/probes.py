"""Which probes a run makes on a host, in which order, with which arguments. The agent measures, the checks judge."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from gpuprep import catalogue
from gpuprep.agent.turn import ALONE, SHARED
from gpuprep.desired.profile import Profile
from gpuprep.desired.state import Wanted


@dataclass(frozen=True)
class Kind:
    """One probe. `step` is the step that it tests: if the step is left out, the probe does not run."""

    name: str
    step: str
    what: str  # for the progress line
    measures: bool = True  # a figure; the others only say whether something works
    timeout_seconds: float = 600.0
    turn: str = ALONE
    clips: bool = False  # it reads clips, which can be made beforehand


KINDS = (
    Kind("toolkit", "cuda", "compiling with nvcc", measures=False, turn=SHARED),
    Kind("codec", "codec", "asking ffmpeg for its parts", measures=False, turn=SHARED),
    # Medians of thousands of short convolutions: one program that starts beside them moves none.
    Kind("cudnn", "cudnn", "convolutions through cuDNN", turn=SHARED),
    Kind("gemm", "cuda", "matrix products"),
    Kind("bandwidth", "cuda", "memory and link bandwidth"),
    Kind("nccl", "cuda", "collectives over all GPUs (NCCL)"),
    # Whether transcodes work and look right; how fast the engines are is the next one's question.
    Kind("transcode", "codec", "transcodes of NVIDIA's FFmpeg guide", timeout_seconds=1200.0, turn=SHARED),
    Kind("throughput", "codec", "aggregate throughput of the video engines", timeout_seconds=900.0, clips=True),
)
CAPACITY = Kind("throughput", "codec", "streams that the video engines carry", timeout_seconds=2400.0)
NAMES = tuple(kind.name for kind in KINDS)
QUICK = ("gemm", "bandwidth")  # what drift measures with `--probe quick`: at most ten seconds a GPU in all
# Its work is on the GPU alone and lasts: beside it processors may make what later probes read.
LEAVES_PROCESSORS = "gemm"
LONGEST = "cudnn"
TELL_MOST = ("gemm", "bandwidth", "nccl")  # a second: of a GPU that is at fault nearly always one of these is FAIL
FACTS = "facts"  # in place of probes: only what every run reads anyway


def in_turn(kinds: Sequence[Kind], *, first_failure: bool = False) -> tuple[Kind, ...]:
    """The probes in the order in which they begin: first those that share a turn, the longest first.

    `first_failure`: the run ends at a FAIL, so those that tell most are first.
    """
    order = sorted(kinds, key=lambda kind: (kind.turn == ALONE, kind.name != LONGEST))
    return tuple(sorted(order, key=lambda kind: first_failure and kind.name not in TELL_MOST))


def chosen(
    wanted: Wanted, *, probes: Collection[str] = (), without: Collection[str] = (), measure: bool = True
) -> tuple[Kind, ...]:
    """The probes of one run: `probes` (empty: all), minus those of steps that the profile lacks or `without` names."""
    absent = {"cuda": wanted.cuda.version, "cudnn": wanted.cudnn.version, "codec": wanted.codec.ffmpeg}
    # With one GPU NCCL has nothing to measure, and only says so.
    alone = len(wanted.gpus) < 2
    return tuple(
        dataclasses.replace(kind, turn=SHARED) if alone and kind.name == "nccl" else kind
        for kind in KINDS
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
