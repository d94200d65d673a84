"""The JSON of a record in the column `record`, about half as large as the JSON that commands print.

- A member that has its default is left out. So reading it is reading a record of an older gpuprep, which lacks members,
  and a default in gpuprep/records must never change (tests/golden/record_defaults.txt).
- `findings` has, for a finding that the verdict also has, its position there, which is that of the table `findings`.
- `before` has in `same_as_after` the names of its members that are in `after` alone.

Records that an older gpuprep stored whole are read as well.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from gpuprep.records import DecodeError, Finding, Missing, RunRecord, from_json_value, to_json_value
from gpuprep.records.serialize import plain_json

SAME = "same_as_after"


def packed(record: RunRecord) -> str:
    document = to_json_value(record)
    _leave_out(record, document)
    if record.verdict:
        places = {finding: place for place, finding in enumerate(record.verdict.findings)}
        listed = document.get("findings", ())
        document["findings"] = [
            places.get(finding, made) for finding, made in zip(record.findings, listed, strict=True)
        ]
    if (before := document.get("before")) and (after := document.get("after")):
        before[SAME] = [name for name, member in before.items() if name in after and _same(member, after[name])]
        document["before"] = {name: member for name, member in before.items() if name not in before[SAME]}
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


def unpacked(text: str) -> RunRecord:
    """Raises DecodeError."""
    document = plain_json(text)
    if not isinstance(document, dict):
        return from_json_value(RunRecord, document)
    names = _fill_before(document)
    listed = document.get("findings")
    places = listed if isinstance(listed, list) and any(type(one) is int for one in listed) else None
    record = from_json_value(RunRecord, document if places is None else {**document, "findings": []})
    if names and record.before:  # in memory once, too
        once = {name: getattr(record.after, name) for name in names if hasattr(record.before, name)}
        record = dataclasses.replace(record, before=dataclasses.replace(record.before, **once))
    return record if places is None else dataclasses.replace(record, findings=_findings(record, places))


def _fill_before(document: dict[str, Any]) -> list[str]:
    """Put into `before` what is in `after` alone; returns the names."""
    before, after = document.get("before"), document.get("after")
    if not isinstance(before, dict) or SAME not in before:
        return []
    try:
        same = {name: after[name] for name in before.pop(SAME)}  # type: ignore[index]  # of null: TypeError
    except (KeyError, TypeError) as error:
        raise DecodeError(f"RunRecord.before.{SAME}: not in `after`") from error
    before.update(same)
    return list(same)


def _findings(record: RunRecord, listed: list[Any]) -> tuple[Finding, ...]:
    of_verdict = dict(enumerate(record.verdict.findings if record.verdict else ()))
    # Each position once: a few bytes of a damaged row must not become a document without end.
    findings = [of_verdict.pop(one, None) if type(one) is int else from_json_value(Finding, one) for one in listed]
    if None in findings:
        raise DecodeError("RunRecord.findings: no such finding of the verdict, or one of them twice")
    return tuple(filter(None, findings))


def _same(one: Any, other: Any) -> bool:
    return bool(one == other and repr(one) == repr(other))  # 0, 0.0 and False are equal, and do not print the same


def _leave_out(value: Any, made: Any) -> None:
    """Take out of `made`, the JSON of `value`, what reading puts there by itself."""
    if isinstance(value, Missing):
        if not made["detail"]:
            del made["detail"]
    elif dataclasses.is_dataclass(value):
        kind: Any = type(value)
        defaults, opaque = _members(kind)
        for name, member in list(made.items()):
            if name in defaults and _same(member, defaults[name]):
                del made[name]
            elif type(member) in (dict, list) and name not in opaque:
                _leave_out(getattr(value, name), member)
    elif isinstance(value, (tuple, list)) and any(type(member) in (dict, list) for member in made):
        for item, member in zip(value, made, strict=True):
            _leave_out(item, member)
    elif isinstance(value, Mapping) and len(value) == len(made):  # else two of its keys are one in JSON
        for item, member in zip(value.values(), made.values(), strict=True):
            _leave_out(item, member)


@cache
def _members(kind: Any) -> tuple[Mapping[str, Any], frozenset[str]]:
    """The defaults of a dataclass as JSON, and the members whose type does not say what is in them."""
    defaults = {}
    for spec in dataclasses.fields(kind):
        if spec.default is not dataclasses.MISSING:
            defaults[spec.name] = to_json_value(spec.default)
        elif spec.default_factory is not dataclasses.MISSING:
            defaults[spec.name] = to_json_value(spec.default_factory())
    return defaults, frozenset(spec.name for spec in dataclasses.fields(kind) if "Any" in str(spec.type))
