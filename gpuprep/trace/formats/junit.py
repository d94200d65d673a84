"""JUnit XML for CI servers: one suite a trace, of a job one a rank; one case a rule.

A problem is a failure. A rule that could not be judged is an error, as UNKNOWN is in other reports; of a hint it is
skipped. A hint passes, with its words in system-out. With `gpuprep trace check` the cases are its lines.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable, Sequence

from gpuprep.records import Status
from gpuprep.trace.advice import rules
from gpuprep.trace.checking import Checked, Line, unjudged
from gpuprep.trace.document import Advice, TraceDocument
from gpuprep.trace.ranks import RanksDocument
from gpuprep.untrusted.plaintext import NOT_XML, visible

KIND = {Status.FAIL: "failure", Status.UNKNOWN: "error"}


def render(document: TraceDocument) -> str:
    return _whole(_name(document), [_suite(_name(document), _properties(document), list(_lines(document)))])


def render_job(job: str, ranks: Iterable[tuple[int, TraceDocument]]) -> str:
    """A suite for each rank. `ranks` are gone through once, so that one profile at a time is in memory."""
    suites = [_suite(f"{job}: rank {rank}", _properties(document), list(_lines(document))) for rank, document in ranks]
    return _whole(job, suites)


def render_checked(document: TraceDocument | RanksDocument, checked: Checked) -> str:
    """Of a job, the name of a case says its rank."""
    if isinstance(document, RanksDocument):
        return _whole(document.job, [_suite(document.job, _properties_of_job(document), checked.lines)])
    return _whole(_name(document), [_suite(_name(document), _properties(document), checked.lines)])


def _name(document: TraceDocument) -> str:
    return document.file.profile_name or document.file.name


def _lines(document: TraceDocument) -> Iterable[Line]:
    advice = {advice.rule: advice for advice in document.advice}
    for rule in rules().values():
        missing = next((advice[need] for need in rule.needs if need in advice), None)
        if rule.id in advice:
            status = Status.FAIL if advice[rule.id].severity == "problem" else Status.WARN
            yield Line(rule.id, status, _words(advice[rule.id]))
        elif missing is not None:
            yield Line(rule.id, unjudged(rule), _words(missing))
        else:
            yield Line(rule.id, Status.PASS, "")


def _words(advice: Advice) -> str:
    words = f"{advice.problem} {advice.recommendation}"
    gain = advice.gain
    return f"{words} That saves about {gain.saves}: {gain.how}." if gain and gain.saves else words


COUNTS = ("tests", "failures", "errors")


def _whole(of: str, suites: Sequence[ET.Element]) -> str:
    totals = {name: str(sum(int(suite.attrib[name]) for suite in suites)) for name in COUNTS}
    root = ET.Element("testsuites", {"name": _clean(f"gpuprep trace {of}"), **totals, "time": "0"})
    root.extend(suites)
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(of: str, settings: Iterable[tuple[str, str]], lines: Sequence[Line]) -> ET.Element:
    counts = {status: sum(line.status is status for line in lines) for status in Status}
    suite = ET.Element(
        "testsuite",
        {
            "name": _clean(f"gpuprep trace {of}"), "tests": str(len(lines)), "failures": str(counts[Status.FAIL]),
            "errors": str(counts[Status.UNKNOWN]), "skipped": str(counts[Status.SKIP]), "time": "0",
            "timestamp": "1970-01-01T00:00:00", "hostname": "trace",
        },
    )  # fmt: skip
    properties = ET.SubElement(suite, "properties")
    for key, value in settings:
        ET.SubElement(properties, "property", {"name": key, "value": _clean(value)})
    for line in lines:
        title = line.name if line.rank is None else f"rank {line.rank}: {line.name}"
        case = ET.SubElement(suite, "testcase", {"name": title, "classname": "gpuprep.trace", "time": "0"})
        text = _clean(line.text)
        if line.status in KIND:
            ET.SubElement(case, KIND[line.status], {"message": text, "type": line.status.value}).text = text
        elif line.status is Status.SKIP:
            ET.SubElement(case, "skipped", {"message": text})
        elif line.status is not Status.PASS or text:
            ET.SubElement(case, "system-out").text = f"{line.status.value}: {text}"
    return suite


def _properties(document: TraceDocument) -> Iterable[tuple[str, str]]:
    summary = document.summary
    yield "file", document.file.name
    yield "gpus", ", ".join(dict.fromkeys(device.name for device in document.file.devices))
    yield "iterations", f"{summary.start_iteration} to {summary.stop_iteration} of {summary.total_iterations}"
    yield "average_iteration_us", f"{summary.average_iteration_us:.3f}"
    if summary.gpu_utilization_percent is not None:
        yield "gpu_utilization_percent", f"{summary.gpu_utilization_percent:.3f}"


def _properties_of_job(document: RanksDocument) -> Iterable[tuple[str, str]]:
    yield "ranks", ", ".join(str(rank.rank) for rank in document.ranks)
    yield "gpus", ", ".join(dict.fromkeys(rank.gpu for rank in document.ranks if rank.gpu))
    yield "steps", str(len(document.steps))


def _clean(text: str) -> str:
    return NOT_XML.sub("", visible(text))
