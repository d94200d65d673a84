"""JUnit XML for CI servers: one suite a trace, one case a rule.

A problem is a failure. A rule that could not be judged is an error, as UNKNOWN is in other reports. A hint passes, with
its words in system-out. With `gpuprep trace check` the cases are its lines.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence

from gpuprep.records import Status
from gpuprep.trace.advice import rules
from gpuprep.trace.checking import Checked, Line
from gpuprep.trace.document import Advice, TraceDocument
from gpuprep.untrusted.plaintext import visible

# XML 1.0, section 2.2: what no document may hold, however it is escaped.
NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
KIND = {Status.FAIL: "failure", Status.UNKNOWN: "error"}


def render(document: TraceDocument) -> str:
    return _whole(document, list(_lines(document)))


def render_checked(document: TraceDocument, checked: Checked) -> str:
    return _whole(document, checked.lines)


def _lines(document: TraceDocument) -> Iterable[Line]:
    said = {one.rule: one for one in document.advice}
    for rule in rules().values():
        missing = next((said[need] for need in rule.needs if need in said), None)
        if rule.id in said:
            status = Status.FAIL if said[rule.id].severity == "problem" else Status.WARN
            yield Line(rule.id, status, _words(said[rule.id]))
        elif missing is not None:
            yield Line(rule.id, Status.UNKNOWN, _words(missing))
        else:
            yield Line(rule.id, Status.PASS, "")


def _words(one: Advice) -> str:
    gain = f" About {one.gain.us / 1e3:.2f} ms a step: {one.gain.how}." if one.gain else ""
    return f"{one.problem} {one.recommendation}{gain}"


def _whole(document: TraceDocument, lines: Sequence[Line]) -> str:
    counts = {status: sum(line.status is status for line in lines) for status in Status}
    totals = {
        "tests": str(len(lines)), "failures": str(counts[Status.FAIL]), "errors": str(counts[Status.UNKNOWN]),
    }  # fmt: skip
    name = _clean(f"gpuprep trace {document.file.profile_name or document.file.name}")
    root = ET.Element("testsuites", {"name": name, **totals, "time": "0"})
    suite = ET.SubElement(
        root, "testsuite",
        {
            "name": name, **totals, "skipped": "0", "time": "0", "timestamp": "1970-01-01T00:00:00",
            "hostname": "trace",
        },
    )  # fmt: skip
    properties = ET.SubElement(suite, "properties")
    for key, value in _properties(document):
        ET.SubElement(properties, "property", {"name": key, "value": _clean(value)})
    for line in lines:
        case = ET.SubElement(suite, "testcase", {"name": line.name, "classname": "gpuprep.trace", "time": "0"})
        text = _clean(line.text)
        if line.status in KIND:
            ET.SubElement(case, KIND[line.status], {"message": text, "type": line.status.value}).text = text
        elif line.status is not Status.PASS or text:
            ET.SubElement(case, "system-out").text = f"{line.status.value}: {text}"
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _properties(document: TraceDocument) -> Iterable[tuple[str, str]]:
    one = document.summary
    yield "file", document.file.name
    yield "gpus", ", ".join(dict.fromkeys(device.name for device in document.file.devices))
    yield "iterations", f"{one.start_iteration} to {one.stop_iteration} of {one.total_iterations}"
    yield "average_iteration_us", f"{one.average_iteration_us:.3f}"
    if one.gpu_utilization_percent is not None:
        yield "gpu_utilization_percent", f"{one.gpu_utilization_percent:.3f}"


def _clean(text: str) -> str:
    return NOT_XML.sub("", visible(text))
