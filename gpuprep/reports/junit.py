"""JUnit XML for CI servers: one suite per run, one test case per finding.

FAIL is a failure, UNKNOWN an error, SKIP and WAIVED skipped with their reason; WARN passes, with the reason in
system-out, because the format has no word for it. Elements and attributes are those of the schema of Jenkins' xUnit
plugin (junit-10.xsd). Python's own ElementTree writes these few; junitparser reads them in tests alone.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone

from gpuprep.checks import commands
from gpuprep.records import Finding, RunRecord, Source, Status
from gpuprep.records.findings import findings_of
from gpuprep.records.moments import moment, seconds_between
from gpuprep.reports import drifted
from gpuprep.reports.measured import simulated
from gpuprep.reports.text_findings import seen
from gpuprep.untrusted.plaintext import NOT_XML, visible

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
KIND = {Status.FAIL: "failure", Status.UNKNOWN: "error", Status.SKIP: "skipped"}


def render(record: RunRecord) -> str:
    return render_several([record])


def render_several(records: Sequence[RunRecord]) -> str:
    """One suite per run, in one document. `records` is not empty."""
    suites = [_suite(record) for record in records]
    root = ET.Element("testsuites", {"name": suites[0].attrib["name"] if len(suites) == 1 else _name(records)})
    for key in ("tests", "failures", "errors"):  # Jenkins' schema has no "skipped" on the root
        root.set(key, str(sum(int(suite.attrib[key]) for suite in suites)))
    root.set("time", f"{sum(float(suite.attrib['time']) for suite in suites):.3f}")
    root.extend(suites)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _name(records: Sequence[RunRecord]) -> str:
    commands = " ".join(dict.fromkeys(record.command for record in records))
    note = " (SIMULATED)" if any(simulated(record) for record in records) else ""
    return _clean(f"gpuprep {commands}, {len(records)} hosts{note}")


def _suite(record: RunRecord) -> ET.Element:
    findings = findings_of(record)
    counts = Counter(finding.status for finding in findings)
    started, seconds = _times(record)
    name = f"gpuprep {record.command} {record.host}" + (" (SIMULATED)" if simulated(record) else "")
    suite = ET.Element(
        "testsuite",
        {
            "name": _clean(name),
            "tests": str(len(findings) + bool(record.error)),
            "failures": str(counts[Status.FAIL]),
            "errors": str(counts[Status.UNKNOWN] + bool(record.error)),
            "skipped": str(counts[Status.SKIP] + counts[Status.WAIVED]),
            "time": f"{seconds:.3f}",
            "timestamp": started,
            "hostname": _clean(record.host),
        },
    )
    properties = ET.SubElement(suite, "properties")
    for key, value in _properties(record).items():
        ET.SubElement(properties, "property", {"name": key, "value": _clean(value)})
    if record.error:
        case = ET.SubElement(suite, "testcase", {"name": "run", "classname": _class(record, "run"), "time": "0"})
        first = record.error.splitlines()[0]
        ET.SubElement(case, "error", {"message": _clean(first), "type": "error"}).text = _clean(record.error)
    for finding in findings:
        _case(suite, record, finding)
    return suite


def _case(suite: ET.Element, record: RunRecord, finding: Finding) -> None:
    # No finding has a time of its own: its probe measured once for many.
    attributes = {"name": finding.property, "classname": _class(record, finding.subject), "time": "0"}
    case = ET.SubElement(suite, "testcase", {key: _clean(value) for key, value in attributes.items()})
    if finding.status is Status.PASS:
        return
    line = seen(finding)
    whole = [
        line,
        drifted.since(finding, record.started_at),
        finding.reason,
        f"what to do: {commands.expanded(finding.remedy, record, finding.subject)}" if finding.remedy else "",
    ]
    text = _clean("\n".join(part for part in whole if part))
    if finding.status is Status.WARN:
        ET.SubElement(case, "system-out").text = f"WARN: {text}"
    elif finding.status in (Status.SKIP, Status.WAIVED):
        ET.SubElement(case, "skipped", {"message": _clean(finding.reason or line)})
    else:
        kind = KIND[finding.status]
        ET.SubElement(case, kind, {"message": _clean(line), "type": finding.status.value}).text = text


def _class(record: RunRecord, subject: str) -> str:
    """CI servers group by what stands before the last dot."""
    host = record.host.replace(".", "_")
    return _clean(f"gpuprep.{host}.{subject}")


def _properties(record: RunRecord) -> dict[str, str]:
    return {
        "run": record.run_id,
        "gpuprep": record.gpuprep_version,
        "profile": record.profile.name if record.profile else "",
        "source": (Source.SIMULATED if simulated(record) else record.source).value,
        "verdict": record.verdict.status.value if record.verdict else "",
        "summary": record.verdict.summary if record.verdict else "",
        "exit_code": str(record.exit_code),
        "reboot_needed": str(record.reboot_needed).lower(),
        **dict(drifted.compared_with(record)),
    }


def _times(record: RunRecord) -> tuple[str, float]:
    """When it began, in UTC without a zone as the schema wants it, and how many seconds it took."""
    began = moment(record.started_at) or EPOCH  # the schema wants one
    lasted = seconds_between(record.started_at, record.ended_at)
    return began.replace(tzinfo=None).isoformat(timespec="seconds"), lasted or 0.0


def _clean(text: str) -> str:
    return NOT_XML.sub("\ufffd", visible(text))
