"""The plan file: all that a host needs to check itself, with the resolved profile and the data to compare with.

`drift schedule` writes it to /etc/gpuprep/drift.json; gpuprep-drift reads it there. It holds no secret: it names
the file of a token, but does not contain the token.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Optional

from gpuprep.desired.profile import DriftWish, Thresholds, Waiver
from gpuprep.desired.state import Wanted
from gpuprep.records import (
    DecodeError,
    FactsRequest,
    Missing,
    Moment,
    OptMoment,
    OptRunId,
    ProfileRef,
    RunRecord,
    Snapshot,
    to_json,
)
from gpuprep.records.baseline import Baseline, BaselineFigure, BaselineKey
from gpuprep.records.findings import DONE, findings_of
from gpuprep.records.serialize import from_json_value, plain_json, shown
from gpuprep.untrusted.plaintext import one_line

# ---------------------------------------------------------------- plan files of earlier forms


# Part of Wanted ► its field ► the field's name in form 1.
_PARTS = {
    "agent": {"version": "agent_version", "libraries": "agent_libraries"},
    "driver": {
        name: f"driver_{name}"
        for name in ("source", "version", "archive_version", "flavour", "hold", "gpu_firmware", "packages")
    },
    "cuda": {"version": "cuda_version", "major": "cudnn_cuda_major", "hold": "cuda_hold", "packages": "cuda_packages"},
    "cudnn": {"version": "cudnn_version", "sha256": "cudnn_sha256", "prefix": "cudnn_prefix"},
    "codec": {
        "headers": "headers_version",
        "ffmpeg": "ffmpeg_version",
        "prefix": "codec_prefix",
        "npp": "npp",
        "nvenc": "nvenc",
        "parts": "parts",
    },
    "tuning": {
        name: name
        for name in ("persistence", "clocks", "power_limit_watts", "ecc", "compute_mode", "profiling_counters")
    },
    "extras": {name: f"extras_{name}" for name in ("packages", "commands", "python_modules")},
}
_DEFAULTS = {"installs": True, "decisions": [], "agent_libraries": {}, "nvenc": "auto"}


def as_form_3(document: dict[str, Any]) -> dict[str, Any]:
    """A document of form 1, 2 or 3 in form 3. Absent or wrong values are kept, because decoding reports them."""
    if document["schema_version"] == 1:
        document = _as_form_2(document)
    return _as_form_3(document) if document["schema_version"] == 2 else document


def _as_form_3(document: dict[str, Any]) -> dict[str, Any]:
    flat = document.get("thresholds")
    if not isinstance(flat, dict):
        return document
    sources, shipped = flat.get("sources", {}), flat.get("shipped", [])
    if not isinstance(sources, dict) or not isinstance(shipped, list):
        return document
    thresholds = {
        name: {"percent": percent, "source": sources.get(name, ""), "shipped": name in shipped}
        for name, percent in flat.items()
        if name not in ("sources", "shipped")
    }
    return {**document, "thresholds": thresholds, "schema_version": 3}


def _as_form_2(document: dict[str, Any]) -> dict[str, Any]:
    flat = document.get("wanted")
    if not isinstance(flat, dict):
        return document
    flat = {**_DEFAULTS, **flat}
    nested = {part: {name: flat[old] for name, old in names.items() if old in flat} for part, names in _PARTS.items()}
    return {**document, "wanted": {**flat, **nested}, "schema_version": 2}


# ---------------------------------------------------------------- the plan file


SCHEMA_VERSION = 3
NOT_COMPARED = Missing("not_recorded", "left out of the host's copy of the certified run: nothing compares it")


@dataclass(frozen=True)
class BaselineEntry:
    """One figure of the host's own past: a Baseline as a flat list, because JSON's keys are texts."""

    gpu_uuid: str
    probe: str
    versions: str
    figure: str  # "fp16 8192x8192x8192 TN"
    value: float
    run_id: OptRunId
    set_at: OptMoment


@dataclass(frozen=True)
class NightlyPlan:
    """All data of the controller that the night check uses. Use the functions below to make its parts."""

    host: str  # the host's name on the controller
    profile: ProfileRef
    request: FactsRequest
    wanted: Wanted
    thresholds: Thresholds
    waivers: tuple[Waiver, ...]
    drift: DriftWish
    certified: Optional[RunRecord]  # None: no run of this host has passed yet; see certified_part()
    baseline: tuple[BaselineEntry, ...]  # see entries()
    probe_arguments: dict[str, Any]  # as probing.arguments gives them, quick
    made_at: Moment  # UTC, ISO 8601
    made_by: str  # version of gpuprep
    schema_version: int = SCHEMA_VERSION
    # For the commands that the host's alerts and results offer: as typed, with whole paths (records/recorded_options).
    asked: dict[str, Any] = field(default_factory=dict)
    chosen: tuple[str, ...] = ()  # what of `drift` an option of `drift schedule` set, and not the profile


def to_text(plan: NightlyPlan) -> str:
    return to_json(plan, indent=1) + "\n"


def from_text(text: str) -> NightlyPlan:
    """A plan of any form so far. Raises DecodeError that names the field, or says that a newer gpuprep wrote it."""
    document = plain_json(text)
    form = document.get("schema_version") if isinstance(document, dict) else None
    if type(form) is int and form > SCHEMA_VERSION:  # its other fields may mean something else, or be absent
        maker = one_line(str(document.get("made_by")), 40)
        raise DecodeError(f"its form is {shown(form)}, by gpuprep {maker}; this one reads {SCHEMA_VERSION}")
    return from_json_value(NightlyPlan, as_form_3(document) if type(form) is int else document)


def entries(baseline: Baseline) -> tuple[BaselineEntry, ...]:
    return tuple(
        BaselineEntry(key.gpu_uuid, key.probe, key.versions, name, figure.value, figure.run_id, figure.set_at)
        for key, figures in baseline.items()
        for name, figure in figures.items()
    )


def baseline(listed: tuple[BaselineEntry, ...]) -> Baseline:
    """The inverse of entries()."""
    figures: dict[BaselineKey, dict[str, BaselineFigure]] = {}
    for entry in listed:
        key = BaselineKey(entry.gpu_uuid, entry.probe, entry.versions)
        figures.setdefault(key, {})[entry.figure] = BaselineFigure(entry.value, entry.run_id, entry.set_at)
    return figures


def certified_part(record: RunRecord) -> RunRecord:
    """The parts of the certified run that a check needs: its id, its facts without the long list of clocks, and the
    findings that did not pass even then.
    """
    after = record.after
    return dataclasses.replace(
        record,
        plan=None,
        playbook=None,
        before=None,
        after=None if after is None else _without_lists(after),
        measurements=(),
        verdict=None,
        findings=tuple(finding for finding in findings_of(record) if finding.status not in DONE),
        history=None,  # other names of the host are the controller's
    )


def _without_lists(facts: Snapshot) -> Snapshot:
    if isinstance(facts.gpus, Missing):
        return facts
    gpus = tuple(dataclasses.replace(gpu, supported_clocks=NOT_COMPARED) for gpu in facts.gpus)
    return dataclasses.replace(facts, gpus=gpus)
