"""A file of records ─► what can be judged again. Every mistake is a line `FILE: key: what`.

Read are: a record as `gpuprep report RUN --format json` prints it, the document of `--json` with its `runs`, and
figures from elsewhere: an object with `measurements` and nothing of a run (docs/records.md), a table in a file that
ends in .csv, or what another tool wrote (othertools). A record of a run must be complete: a missing key is damage, and
damage must not lead to a better verdict.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuprep.catalogue import Model
from gpuprep.checks import plausible
from gpuprep.errors import UsageError
from gpuprep.records import DecodeError, Missing, ProbeResult, RunRecord, Snapshot, Source, from_json_value
from gpuprep.records.evidence import measured
from gpuprep.records.evidence.shared import AnyProbe, NamedGpu
from gpuprep.records.serialize import shown
from gpuprep.untrusted.limits import MIB, BeyondLimit, file_text, json_document
from gpuprep.workflows import figures_csv, othertools

# An object with any key but these is the record of a run.
OF_FIGURES = {"schema_version", "host", "source", "measurements", "before", "after", "note"}
HINT = "docs/records.md says what a record has; `gpuprep judge --template json` prints figures to fill in"
ABSENT = {"missing": "not_recorded", "detail": ""}
FILE_BYTES = 256 * MIB  # of a file with the runs of many hosts
OWN_DOCUMENT = 4 * MIB  # a file that is larger is taken apart first
DECODER = json.JSONDecoder()
MOST_RUNS = 20_000
DEEPEST = 10_000  # a run that is less deep than this, and too deep, is named
# How a document with runs begins; then what begins texts, which are passed over, and begins and ends objects and lists.
OWN = re.compile(r'\s*\{\s*"schema_version"\s*:\s*\d+\s*,\s*"runs"\s*:\s*\[', re.ASCII)
SIGNS = re.compile(r'["{}\[\]]')
NO_MOMENT = "1970-01-01T00:00:00+00:00"  # stands in for "" while the rest is decoded
# A host of which nothing is known but its measurements.
NOTHING_KNOWN: Mapping[str, Any] = {
    "taken_at": NO_MOMENT, "source": "measured", "agent_version": "", "hostname": "", "virtualization": "",
    "is_root": False,
    "os": {"id": "", "version_id": "", "codename": "", "pretty_name": "not recorded", "architecture": ""},
    "kernel": {"running": "", "next_boot": ABSENT, "headers_running": ABSENT, "headers_next_boot": ABSENT,
               "headers_available": ABSENT, "secure_boot": ABSENT, "boot_id": "", "uptime_seconds": 0.0},
    "pci_gpus": [], "nvswitches": 0, "packages": {}, "gpus": ABSENT, "locked_clocks": [],
    "driver": {"loaded_version": ABSENT, "loaded_flavour": ABSENT, "module_version": ABSENT, "module_flavour": ABSENT,
               "module_next_boot_version": ABSENT, "library_version": ABSENT, "nvml_version": ABSENT, "runfile": None,
               "nouveau_loaded": False, "counters_restricted": ABSENT},
    "cuda": {"nvcc_path": ABSENT, "nvcc_version": ABSENT, "cupti_path": ABSENT},
    "cudnn": {"library_path": ABSENT, "version": ABSENT, "header_path": ABSENT, "wheel_version": ABSENT,
              "cuda_major": ABSENT},
    "codec": {"headers_version": ABSENT, "ffmpeg_path": ABSENT, "ffmpeg_real_path": ABSENT, "ffmpeg_version": ABSENT,
              "build_key": ABSENT, "manifest_intact": ABSENT},
    "shells": {"login_shell": {}, "non_login_shell": {}, "systemd_service": {}},
    "units": {}, "files": {}, "commands": {}, "python_modules": {}, "mounts": [], "disk_free_mib": {},
    "cloud_init": ABSENT, "provenance": ABSENT, "agent_installed_version": ABSENT,
}  # fmt: skip


@dataclass(frozen=True)
class Recorded:
    """One record to judge. `whole`: a run's own, with all facts of the host; else only the figures count."""

    record: RunRecord
    snapshot: Snapshot
    whole: bool


def read(path: Path, probes: tuple[str, ...], gpu: str = "") -> list[Recorded]:
    """The records of a file; `probes` are the names that measurements may have. Raises UsageError (exit 2).

    `gpu`: the model of GPUs that another tool did not name.
    """
    try:
        text = file_text(path, FILE_BYTES)
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: cannot be read: {error.reason} at byte {error.start}", HINT) from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}", HINT) from error
    if path.suffix.lower() == ".csv":
        table = othertools.of_text(path, text, gpu) or figures_csv.document(path, text)
        return [_recorded(path, where, value, probes) for where, value in _entries(path, table)]
    if len(text) > OWN_DOCUMENT and (runs := _each_run(text)):
        return [_recorded(path, f"runs[{at}].", _object(path, run, f"runs[{at}]: "), probes) for at, run in runs]
    document = _json(path, text, gpu=gpu)
    return [_recorded(path, where, value, probes) for where, value in _entries(path, document, gpu)]


def _json(path: Path, text: str, where: str = "", gpu: str = "") -> Any:
    try:
        return json_document(text)
    except BeyondLimit as error:
        problem = f"{path}: {where}is not JSON that gpuprep accepts: {error}"
        raise UsageError(problem, "judge fewer runs at a time") from error
    except ValueError as error:
        if not where and (figures := othertools.of_text(path, text, gpu)):
            return figures
        hint = HINT if path.suffix else f"{HINT}; the name of a table ends in .csv"
        raise UsageError(f"{path}: {where}is not JSON: {error}", hint) from error


def _object(path: Path, text: str, where: str) -> dict[str, Any]:
    document = _json(path, text, where)
    if not isinstance(document, dict):
        raise UsageError(f"{path}: {where}want a record, got {_kind(document)}", HINT)
    return document


def _each_run(text: str) -> list[tuple[int, str]]:
    """(number, text) of each run in a document that a command wrote; [] for a document of another form.

    The document of many hosts may be larger than one document may be, so each run is read as a document of its own.
    json's own function skips over texts: a regular expression would keep 60 bytes for each escape.
    """
    begun = OWN.match(text)
    if begun is None:
        return []
    runs: list[tuple[int, str]] = []
    depth, start, ended = 0, 0, begun.end()
    at = ended
    while depth < DEEPEST and len(runs) < MOST_RUNS and (sign := SIGNS.search(text, at)):
        letter, at = sign[0], sign.end()
        if letter == '"':
            try:
                _, at = DECODER.raw_decode(text, sign.start())
            except ValueError:
                return []
        elif letter in "{[":
            if depth == 0 and text[ended : sign.start()].strip() != ("," if runs else ""):
                return []
            start = sign.start() if depth == 0 else start
            depth += 1
        elif letter in "}]" and depth == 0:
            return runs if letter == "]" and not text[ended : sign.start()].strip() else []
        elif letter in "}]":
            depth -= 1
            if depth == 0:
                ended = sign.end()
                runs.append((len(runs), text[start:ended]))
    return []


def _entries(path: Path, document: object, gpu: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if not isinstance(document, dict):
        raise UsageError(f"{path}: want an object, got {_kind(document)}", HINT)
    if "runs" not in document:
        yield "", document if "measurements" in document else othertools.of_json(path, document, gpu) or document
        return
    runs = document["runs"]
    if not isinstance(runs, list) or not runs:
        raise UsageError(f"{path}: runs: want a list of records, got {_kind(runs)}", HINT)
    for index, run in enumerate(runs):
        if not isinstance(run, dict):
            raise UsageError(f"{path}: runs[{index}]: want a record, got {_kind(run)}", HINT)
        yield f"runs[{index}].", run


def _recorded(path: Path, where: str, document: dict[str, Any], probes: tuple[str, ...]) -> Recorded:
    try:
        if "measurements" not in document:
            raise DecodeError("measurements: missing")
        recorded = from_figures(document) if _is_of_figures(document) else _whole(document)
        _check(recorded.record.measurements, probes)
        if not recorded.whole and not recorded.record.measurements:
            raise DecodeError("measurements: an empty list; there is nothing to judge")
        if not recorded.whole and not recorded.snapshot.pci_gpus:
            raise DecodeError(f"measurements[0].values.gpus[0].pci_device_id: missing; say {figures_csv.WHICH}")
    except DecodeError as error:
        # The codec names fields from the class on: "RunRecord.after.os".
        problem = str(error).removeprefix("RunRecord.").removeprefix("Snapshot.")
        raise UsageError(f"{path}: {where}{problem}", HINT) from error
    return recorded


def _is_of_figures(document: dict[str, Any]) -> bool:
    """Whether the document has figures from elsewhere: as a user gave them, or as `gpuprep judge` wrote them."""
    judged = document.get("command") == "judge" and not document.get("after") and not document.get("before")
    return judged or not set(document) - OF_FIGURES


def _whole(document: dict[str, Any]) -> Recorded:
    record = from_json_value(RunRecord, document)
    seen = record.after or record.before
    if seen is None:
        raise DecodeError("after: missing, and so is before: the run ended before it read the host's facts")
    return Recorded(record, seen, whole=True)


def from_figures(document: dict[str, Any]) -> Recorded:
    """A document of measurements, with what is known of their host. Raises DecodeError."""
    listed = document["measurements"]
    if not isinstance(listed, list):
        raise DecodeError(f"measurements: want a list, got {_kind(listed)}")
    timed = [
        {"seconds": 0.0, **measurement} if isinstance(measurement, dict) else measurement for measurement in listed
    ]
    if not document.get("after") and not document.get("before"):
        timed = [_with_pci_ids(measurement, f"measurements[{index}].values") for index, measurement in enumerate(timed)]
    record = from_json_value(
        RunRecord,
        {
            "run_id": "none", "command": "judge", "host": document.get("host", "elsewhere"),
            "started_at": NO_MOMENT, "ended_at": NO_MOMENT, "source": document.get("source", "measured"),
            "exit_code": 0, "gpuprep_version": "", "measurements": timed,
        },
    )  # fmt: skip
    record = dataclasses.replace(record, run_id="", started_at="", ended_at="")
    given = document.get("after") or document.get("before") or {}
    if not isinstance(given, dict):
        raise DecodeError(f"after: want an object, got {_kind(given)}")
    seen = {**NOTHING_KNOWN, "source": record.source.value, **given}
    seen["taken_at"] = seen["taken_at"] or NO_MOMENT
    if not seen["pci_gpus"]:
        seen["pci_gpus"] = _devices(record.measurements)
    try:
        snapshot = from_json_value(Snapshot, seen)
    except DecodeError as error:
        raise DecodeError(str(error).replace("Snapshot.", "after.", 1)) from error
    if not given.get("taken_at"):
        snapshot = dataclasses.replace(snapshot, taken_at="")
    return Recorded(record, snapshot, whole=False)


def _with_pci_ids(measurement: Any, where: str) -> Any:
    """The measurement with the PCI ids of its GPUs; a GPU that is given only by name gets the ids of its board."""
    if not isinstance(measurement, dict) or "values" not in measurement:
        return measurement
    return {**measurement, "values": figures_csv.filled(measurement["values"], where)}


def _devices(measurements: tuple[ProbeResult, ...]) -> list[dict[str, str | None]]:
    """The GPUs that the measurements name, as the PCI bus would show them."""
    named: dict[tuple[int | None, str], NamedGpu] = {}
    for result in measurements:
        values = measured(AnyProbe, result.values)
        listed = () if isinstance(values, Missing) else (values.gpu, *values.gpus)
        for gpu in listed:
            if gpu is not None and gpu.pci_device_id:
                named.setdefault((gpu.index, gpu.uuid), gpu)
    return [
        {
            "address": f"of record {index}", "vendor_id": "10de", "device_id": gpu.pci_device_id.lower(),
            "class_code": "030200", "subsystem_id": gpu.pci_subsystem_id, "name": gpu.name or None,
        }
        for index, gpu in enumerate(named.values())
    ]  # fmt: skip


def _check(measurements: tuple[ProbeResult, ...], probes: tuple[str, ...]) -> None:
    names = [result.probe for result in measurements]
    for index, result in enumerate(measurements):
        if result.probe in names[:index]:
            raise DecodeError(f"measurements[{index}].probe: {result.probe} appears twice")
        if result.probe not in probes:
            allowed = ", ".join(probes)
            raise DecodeError(f"measurements[{index}].probe: {shown(result.probe)} is none of {allowed}")
        if wrong := plausible.refused(result.probe, result.values):
            raise DecodeError(f"measurements[{index}].values.{wrong}")


def template(model: Model | None, gpu: str) -> str:
    """Figures to fill in, as JSON: the products of a GPU, its memory and its links."""
    named = {"index": 0, "name": gpu, "pci_device_id": ""}
    square = dict.fromkeys(("m", "n", "k"), figures_csv.SQUARE)
    products = [{"dtype": dtype, **square, "tflops": None} for dtype in figures_csv.dtypes(model)]
    values: dict[str, dict[str, Any]] = {
        "gemm": {"gemms": products},
        "bandwidth": dict.fromkeys(figures_csv.SPEEDS),
    }
    document = {
        "host": "elsewhere",
        "measurements": [
            {"probe": probe, "source": "measured", "values": {"published": "where the figures are from",
                                                              "gpus": [{**named, **figures}]}}
            for probe, figures in values.items()
        ],
    }  # fmt: skip
    return json.dumps(document, indent=2) + "\n"


def simulated(recorded: Recorded) -> bool:
    """If any part of a record is simulated, the whole record is."""
    record = recorded.record
    sources = [record.source, recorded.snapshot.source, *(result.source for result in record.measurements)]
    return Source.SIMULATED in sources


def _kind(value: object) -> str:
    return "nothing" if value is None else "an empty list" if value == [] else shown(value)
