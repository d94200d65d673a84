"""Makes records safe to show, whatever a host wrote into them. Also runs on the GPU VM.

    each(render, records)     one document of all records; a record that `render` cannot show becomes UNKNOWN
    safe(record)              the record with unsafe characters escaped, and cut to what a page can hold
    strict_json(document)     JSON that every parser accepts: no NaN, no half surrogates

One bad record must not prevent the document of all other hosts.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import enum
import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from gpuprep.records import Finding, RunRecord, Source, Status, to_json_value
from gpuprep.records.ended import COULD_NOT_TELL
from gpuprep.records.findings import PROBLEMS
from gpuprep.records.ids import now
from gpuprep.records.moments import moment
from gpuprep.untrusted.plaintext import one_line, visible

MOST_FINDINGS = 2000  # of a record; a machine of 16 GPUs has some hundreds
MOST_LETTERS = 4000  # of one text of a finding
TEXTS = ("subject", "property", "expected", "actual", "reason", "remedy")
MOST_ERROR = 20_000  # letters of an error, which may quote the end of a log
SIMULATED = "SIMULATED: the GPU of this machine is a stand-in; nothing here was measured on a real one."
KEPT_FIRST = (*PROBLEMS, Status.WAIVED, Status.SKIP, Status.PASS)
LARGEST = 2**63 - 1  # Python writes no number of more than 4300 digits, and databases none beyond this

Render = Callable[[Sequence[RunRecord]], str]


def each(render: Render, records: Sequence[RunRecord], *, whole: bool = False) -> tuple[str, list[RunRecord]]:
    """(the document of `records`, the records that it shows). `whole`: with all findings, for programs.

    Only if the document of all records fails, each record is rendered alone to find the bad ones.
    """
    try:
        shown = [safe(record, whole=whole) for record in records]
        return render(shown), shown
    except Exception:  # noqa: BLE001  whatever it is, the next lines find whose record it was, and say so
        shown = [_shown_alone(render, record, whole) for record in records]
        return render(shown), shown


def document(render: Render, records: Sequence[RunRecord], *, whole: bool = False) -> str:
    return each(render, records, whole=whole)[0]


def _shown_alone(render: Render, record: RunRecord, whole: bool) -> RunRecord:
    try:
        made = safe(record, whole=whole)
        render([made])
    except Exception as error:  # noqa: BLE001  it becomes this host's UNKNOWN
        return _unshowable(record, error)
    return made


def _unshowable(record: RunRecord, error: Exception) -> RunRecord:
    """An UNKNOWN record instead of a record that cannot be shown."""
    message = one_line(f"{type(error).__name__}: {error}", 200)
    host = one_line(str(record.host), 255)
    return RunRecord(
        run_id=one_line(str(record.run_id), 64),
        command=one_line(str(record.command), 32),
        host=host,
        started_at=record.started_at if moment(record.started_at) else now(),
        ended_at=record.ended_at if moment(record.ended_at) else now(),
        source=record.source if isinstance(record.source, Source) else Source.MEASURED,
        exit_code=COULD_NOT_TELL,
        gpuprep_version=one_line(str(record.gpuprep_version), 32),
        error=f"{host}: its record cannot be shown: {message}\nwhat to do: look at what its host reported: it is "
        "damaged or forged",
    )


def safe(record: RunRecord, *, whole: bool = False) -> RunRecord:
    """The record with unsafe texts escaped; the same object if nothing is unsafe. `whole`: as in each()."""
    made: RunRecord = _cleaned(record)
    if whole:
        return made
    verdict = made.verdict
    if verdict is not None:
        made = dataclasses.replace(made, verdict=dataclasses.replace(verdict, findings=_bounded(verdict.findings)))
    error = made.error
    if error and len(error) > MOST_ERROR:
        error = f"{error[:MOST_ERROR]}\n… and {len(error) - MOST_ERROR} more letters"
    return dataclasses.replace(made, findings=_bounded(made.findings), error=error)


def _bounded(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """The most severe findings in their order, and a finding with the number of others; long texts are cut."""
    short_findings = tuple(map(_shortened, findings))
    if len(short_findings) <= MOST_FINDINGS:
        return short_findings
    worst = sorted(range(len(short_findings)), key=lambda place: KEPT_FIRST.index(short_findings[place].status))
    kept, left = sorted(worst[:MOST_FINDINGS]), worst[MOST_FINDINGS:]
    counts = Counter(short_findings[place].status for place in left)
    more = ", ".join(f"{counts[status]} {status.value}" for status in KEPT_FIRST if counts[status])
    note = Finding(
        "record", "more findings", Status.UNKNOWN, f"at most {MOST_FINDINGS}", f"{len(left)} more: {more}",
        "a page cannot hold them all: the worst are shown", "--format json has all of them",
    )  # fmt: skip
    return (*(short_findings[place] for place in kept), note)


def _shortened(finding: Finding) -> Finding:
    cut: dict[str, Any] = {
        name: f"{text[:MOST_LETTERS]}… and {len(text) - MOST_LETTERS} more letters"
        for name in TEXTS
        if len(text := getattr(finding, name)) > MOST_LETTERS
    }
    return dataclasses.replace(finding, **cut) if cut else finding


# ---------------------------------------------------------------- every text of a record


def _cleaned(value: Any) -> Any:
    """`value` without unsafe texts; the same object if nothing is unsafe."""
    kind = type(value)
    if kind is str:
        return visible(value)
    if kind is int:
        return max(-LARGEST, min(LARGEST, value))
    if value is None or kind is bool or kind is float:
        return value
    hashable: Any = kind
    return _cleaner(hashable)(value)


@cache
def _cleaner(kind: type) -> Callable[[Any], Any]:
    """The function that cleans a type, made once per type as in records/serialize: a record has thousands of parts."""
    if issubclass(kind, enum.Enum):
        return lambda value: value
    if dataclasses.is_dataclass(kind):
        names = tuple(spec.name for spec in dataclasses.fields(kind))
        return lambda value: _cleaned_fields(value, names)
    if issubclass(kind, collections.abc.Mapping):
        return _cleaned_mapping
    if issubclass(kind, (list, tuple)):
        return lambda value: _cleaned_items(value, tuple if issubclass(kind, tuple) else list)
    return lambda value: value


def _cleaned_fields(value: Any, names: tuple[str, ...]) -> Any:
    changed = {}
    for name in names:
        before = getattr(value, name)
        after = _cleaned(before)
        if after is not before:
            changed[name] = after
    return dataclasses.replace(value, **changed) if changed else value


def _cleaned_mapping(value: Any) -> Any:
    made = {_cleaned(key): _cleaned(entry) for key, entry in value.items()}
    same = all(made.get(key, made) is entry for key, entry in value.items())
    return value if same else made


def _cleaned_items(value: Any, kind: Callable[[list[Any]], Any]) -> Any:
    made = [_cleaned(element) for element in value]
    return value if all(after is before for after, before in zip(made, value)) else kind(made)  # noqa: B905  3.9


# ---------------------------------------------------------------- JSON for every parser


def strict_json(document: Any, indent: int | None = None) -> str:
    """JSON of records and plain values, as to_json_value makes it; NaN becomes a reading that failed."""
    return json.dumps(to_json_value(document), indent=indent, allow_nan=False).replace("\x7f", "\\u007f")
