"""Judge a recorded run again, with the same pure functions as `validate`; no host is contacted."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuprep import __version__, catalogue, checks
from gpuprep.catalogue import Model, models
from gpuprep.checks import judgement
from gpuprep.checks.judgement import Terms
from gpuprep.desired import loading, probes
from gpuprep.desired.profile import Profile
from gpuprep.desired.state import Wanted, resolve
from gpuprep.errors import PlanRefused
from gpuprep.records import Finding, Missing, ProbeResult, ProfileRef, RunRecord, Snapshot, Source, Status
from gpuprep.records.baseline import Baseline, Measured
from gpuprep.records.evidence import kinds, measured
from gpuprep.records.evidence.gemm import Gemm
from gpuprep.records.evidence.toolkit import Toolkit
from gpuprep.records.findings import need_reboot
from gpuprep.records.ids import new_run_id, now
from gpuprep.records.recorded_options import STEPS, RecordedOptions
from gpuprep.workflows import figures_csv, provision, record_file
from gpuprep.workflows.record_file import Recorded, read, simulated
from gpuprep.workflows.runs import Options

# ---------------------------------------------------------------- a file to fill in


def text(form: str, profile: str | None) -> str:
    """The file to fill in, as "csv" or "json"; for the GPU of `profile` (a name or a path) if that is one model."""
    model, gpu = _gpu(profile)
    return figures_csv.template(model, gpu) if form == "csv" else record_file.template(model, gpu)


def _gpu(profile: str | None) -> tuple[Model | None, str]:
    """(the model, the name of its board). The name is "" if the model has several boards: only the user knows which."""
    models = loading.load(profile).gpus if profile is not None else ()
    if len(models) != 1:
        return None, ""
    model = catalogue.models()[models[0]]
    names = [board.nvml_names for board in catalogue.boards().values() if board.model.key == model.key]
    return model, names[0][0] if len(names) == 1 and names[0] else ""


# ---------------------------------------------------------------- missing keys

# Which keys of measurements are missing, and where? "measurements[0].values.gpus[0].gemms[1].tflops". Only for the
# reader: the checks decide what a missing key means, so this module never changes a verdict.

MOST = 40  # keys that are listed
# By probe: what a verdict needs, also of `published` figures; then what it needs of others. "a|b": one of them.
ALWAYS: Mapping[str, Sequence[str]] = {
    "gemm": (
        "gpus[].pci_device_id",
        "gpus[].gemms[].dtype",
        "gpus[].gemms[].m",
        "gpus[].gemms[].n",
        "gpus[].gemms[].k",
        "gpus[].gemms[].tflops",
    ),
    "bandwidth": (
        "gpus[].pci_device_id",
        "gpus[].copy_gb_per_s|read_gb_per_s|triad_gb_per_s|write_gb_per_s|h2d_gb_per_s|d2h_gb_per_s",
    ),
    "throughput": ("series[].kind", "series[].codec", "series[].outcome", "series[].steps[].fps"),
}
UNLESS_PUBLISHED: Mapping[str, Sequence[str]] = {
    "gemm": (
        "libraries", "toolkit.version", "toolkit.library_dirs", "gpus[].other_processes",
        "gpus[].gemms[].rel_stdev_percent", "gpus[].gemms[].event_reasons", "gpus[].gemms[].exact|max_relative_error",
    ),
    "bandwidth": (
        "gpus[].copy_gb_per_s", "gpus[].h2d_gb_per_s", "gpus[].d2h_gb_per_s", "gpus[].other_processes",
        "gpus[].event_reasons", "gpus[].memory_clock_mhz", "gpus[].pcie",
    ),
    "throughput": (
        "gpus[].other_processes", "series[].width", "series[].height", "series[].steps[].sessions",
        "series[].steps[].died", "series[].steps[].frames", "series[].steps[].seconds",
        "series[].steps[].video_clock_mhz",
    ),
}  # fmt: skip


def missing(measurements: Sequence[tuple[str, Any]]) -> list[str]:
    """The missing keys of `measurements`, which are (probe, values), in the order of the file; at most MOST."""
    keys: list[str] = []
    for index, (probe, values) in enumerate(measurements):
        if not isinstance(values, Mapping) or "missing" in values:
            continue
        paths = [*ALWAYS.get(probe, ()), *(() if values.get("published") else UNLESS_PUBLISHED.get(probe, ()))]
        for path in paths:
            for key in _missing(values, path.split("."), f"measurements[{index}].values"):
                if key not in keys:
                    keys.append(key)
                if len(keys) >= MOST:
                    return keys
    return keys


def _missing(value: Any, path: Sequence[str], where: str) -> Iterator[str]:
    if not isinstance(value, Mapping) or value.get("error") or "missing" in value:
        return  # it says itself why there is nothing
    if value.get("outcome") not in (None, "completed"):
        return  # the same, of a series that was not measured
    step, rest = path[0], path[1:]
    names = step.removesuffix("[]").split("|")
    if all(value.get(name) is None for name in names):
        yield f"{where}.{' or '.join(names)}"
        return
    inner = value[names[0]] if rest or step.endswith("[]") else None
    if step.endswith("[]"):
        if not isinstance(inner, list) or not inner:
            yield f"{where}.{names[0]}[0]"
            return
        for index, element in enumerate(inner):
            yield from _missing(element, rest, f"{where}.{names[0]}[{index}]")
    elif rest:
        yield from _missing(inner, rest, f"{where}.{names[0]}")


# ---------------------------------------------------------------- rejudge

Past = Callable[[str, Measured], Baseline]  # host, what it measured ─► its baseline

MEASURED = "measurements to judge"
MOST_KEYS = 12  # that one finding names
FILL_IN = "add them; `gpuprep judge --template json` shows where they belong, docs/records.md what they are"


def judge_file(path: Path, profile: Profile, past: Past | None = None) -> list[RunRecord]:
    """A new record for each record of the file. Raises UsageError (the file), PlanRefused (the profile)."""
    gpu = models()[profile.gpus[0]].title if len(profile.gpus) == 1 and profile.gpus[0] in models() else ""
    return [judge(recorded, profile, past, str(path)) for recorded in read(path, probes.NAMES, gpu)]


def judge(recorded: Recorded, profile: Profile, past: Past | None = None, origin: str = "") -> RunRecord:
    """The record with a new verdict. `past` returns the host's baseline; None: compare with no baseline."""
    record, snapshot = recorded.record, _with_toolkit(recorded)
    source = Source.SIMULATED if simulated(recorded) else Source.MEASURED
    started = now()
    try:
        wanted = resolve(profile, snapshot, judging=True)
    except PlanRefused as error:
        raise PlanRefused(error.reasons, "judge it by a profile of its GPU", where=origin) from error
    measured = checks.comparable(dataclasses.replace(snapshot, source=source), record.measurements)
    asked, baseline = _asked(recorded, wanted), past(record.host, measured) if past is not None and measured else {}
    if recorded.whole:
        findings = checks.compare(
            wanted, snapshot, record.measurements, asked=asked, thresholds=profile.thresholds, baseline=baseline,
            before=record.before,
        )  # fmt: skip
    else:
        findings = checks.compare_figures(
            wanted, snapshot, record.measurements, asked=asked, thresholds=profile.thresholds, baseline=baseline
        )
    options = _options(record)
    leave_out = provision.set_aside(options)
    # By today's date, not the record's: what is asked is whether the host would pass now.
    terms = Terms.of(profile, record.host, wanted, started)
    lacking = missing([(measurement.probe, measurement.values) for measurement in record.measurements])
    judged = judgement.judge(
        terms, findings, lambda waived: [*leave_out(waived), *_incomplete(record), *_lacking(waived, lacking)]
    )
    return RunRecord(
        run_id=new_run_id(),
        command="judge",
        host=record.host,
        started_at=started,
        ended_at=now(),
        source=source,
        exit_code=judged.exit_code,
        gpuprep_version=__version__,
        profile=ProfileRef(profile.name, profile.path, profile.sha256),
        before=record.before if recorded.whole else None,
        after=record.after if recorded.whole else None,
        measurements=record.measurements,
        verdict=judged.verdict,
        findings=judged.findings,
        reboot_needed=need_reboot(judged.findings),
        options={
            "judged": record.run_id, "measured_at": record.started_at, "measured_by": record.gpuprep_version,
            "file": origin, "only": list(options.only), "skip": list(options.skip),
        },
    )  # fmt: skip


def _incomplete(record: RunRecord) -> Iterator[Finding]:
    """UNKNOWN findings for a record that cannot be judged as a whole; waivers do not apply to them."""
    if not record.measurements:
        why = "the record has no measurements"
        yield Finding(
            "record",
            "measurements",
            Status.UNKNOWN,
            MEASURED,
            "none",
            why,
            "measure it: `gpuprep validate HOST --profile PROFILE`",
        )
    loads = {kind.name for kind in kinds.PROBES if kind.measures}
    if record.before and record.after is None and loads.intersection(result.probe for result in record.measurements):
        why = "the host's facts were not read again after the load, so errors that appeared under load are not known"
        yield Finding("record", "after", Status.UNKNOWN, "facts from after the load", "none", why, "validate again")
    if record.error:
        why = f"the run ended with an error: {record.error.splitlines()[0]}"
        yield Finding("record", "ended", Status.UNKNOWN, "a run that ended", "an error", why, "validate again")


def _lacking(findings: Sequence[Finding], keys: Sequence[str]) -> Iterator[Finding]:
    """If any finding is UNKNOWN: a finding that lists the missing keys. It never changes the verdict by itself."""
    if keys and any(finding.status is Status.UNKNOWN for finding in findings):
        more = f" and {len(keys) - MOST_KEYS} more" if len(keys) > MOST_KEYS else ""
        why = f"the file does not have {', '.join(keys[:MOST_KEYS])}{more}"
        actual = f"{len(keys)} missing"
        yield Finding("record", "keys", Status.UNKNOWN, "all keys that a verdict needs", actual, why, FILL_IN)


def _asked(recorded: Recorded, wanted: Wanted) -> list[str]:
    """Probes that must have a result: those in the record, and those that this validation should have run."""
    record = recorded.record
    there = [result.probe for result in record.measurements]
    chosen = RecordedOptions.read(record.options).probes
    if not recorded.whole or record.command != "validate" or chosen is None:
        return there
    left_out = set(STEPS) - set(provision.chosen_steps(_options(record)))
    return [*there, *(kind.name for kind in probes.chosen(wanted, probes=chosen, without=left_out))]


def _options(record: RunRecord) -> Options:
    recorded = RecordedOptions.read(record.options)
    return Options(only=_steps(recorded.only), skip=_steps(recorded.skip))


def _steps(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in names if name in STEPS)


def _with_toolkit(recorded: Recorded) -> Snapshot:
    """The facts; for figures from elsewhere with the toolkit's version, if a measurement has it."""
    snapshot = recorded.snapshot
    if recorded.whole:
        return snapshot
    for result in recorded.record.measurements:
        version = _toolkit_version(result)
        if version[:1].isdigit():
            return dataclasses.replace(snapshot, cuda=dataclasses.replace(snapshot.cuda, nvcc_version=version))
    return snapshot


def _toolkit_version(result: ProbeResult) -> str:
    """ "12.4"; "" if the measurement does not have it."""
    if result.probe == "gemm":
        products = measured(Gemm, result.values)
        return "" if isinstance(products, Missing) else products.toolkit.version
    toolkit = measured(Toolkit, result.values if result.probe == "toolkit" else None)
    return "" if isinstance(toolkit, Missing) else toolkit.version
