"""What the fleet's page needs of a host's newest run: a record without its facts and measurements.

A whole record takes some 15 ms to decode, and there are a thousand. So what is not shown is dropped before.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuprep.records import DecodeError, Finding, RunRecord, Source, Status, Verdict, from_json_value
from gpuprep.records.findings import GRAVEST_FIRST, PROBLEMS, findings_of, in_order, weight
from gpuprep.records.showable import safe
from gpuprep.reports import fleet
from gpuprep.reports.text import outcome
from gpuprep.store.overview import Run
from gpuprep.untrusted.plaintext import one_line

HEAVY = ("before", "after", "playbook", "plan", "options")
KEPT = {*(status.value for status in PROBLEMS), Status.WAIVED.value}
MOST_KEPT = 200  # findings of a run that a page of all hosts can use
LETTERS = 120  # of a fact


@dataclass(frozen=True)
class Host:
    """A row of the fleet's page."""

    name: str  # as in its newest run
    others: tuple[str, ...]  # other names of the same host
    record: RunRecord  # of the newest run; with findings that did not pass alone
    word: str  # PASS, FAIL, ... or how a run without a verdict ended
    rank: int  # the smaller the worse
    since: str  # the day of the oldest finding; "–"
    what: str  # one line
    gpu: str  # "8 × NVIDIA H200"; "" where it was not read
    driver: str
    kernel: str
    system: str
    simulated: bool

    @property
    def problems(self) -> list[Finding]:
        return in_order(findings_of(self.record), PROBLEMS)


def host(run: Run, text: str, others: tuple[str, ...]) -> Host:
    """Of a damaged record a row that says so."""
    try:
        document = json.loads(text)
        record, facts = _slim(document), _facts(document)
        simulated = record.source is Source.SIMULATED or any(
            measurement.get("source") == Source.SIMULATED.value for measurement in document.get("measurements", ())
        )
    except (ValueError, DecodeError, KeyError, TypeError, AttributeError, RecursionError) as error:
        record, facts, simulated = _damaged(run, error), {}, run.source is Source.SIMULATED
    word, line = outcome(record)
    return Host(
        run.host, others, record, word, fleet.WORST_FIRST.index(fleet.rank(record)), fleet.since(record),
        fleet.what(record) or (line if word not in ("PASS", "SKIP") else ""), facts.get("gpu", ""),
        facts.get("driver", ""), facts.get("kernel", ""), facts.get("system", ""), simulated,
    )  # fmt: skip


def _slim(document: dict[str, Any]) -> RunRecord:
    slim = {**document, **dict.fromkeys(HEAVY, None), "options": {}, "measurements": []}
    if verdict := document.get("verdict"):
        slim["verdict"] = {**verdict, "findings": _kept(verdict["findings"])}
    slim["findings"] = _kept(document.get("findings", []))
    return safe(from_json_value(RunRecord, slim))


def _kept(findings: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The gravest: of findings that nothing sorted, too."""
    order = [status.value for status in GRAVEST_FIRST]

    def place(finding: dict[str, Any]) -> tuple[int, int]:
        return order.index(finding["status"]), weight(finding["subject"], finding.get("role", ""))

    return sorted((finding for finding in findings if finding["status"] in KEPT), key=place)[:MOST_KEPT]


def _facts(document: Mapping[str, Any]) -> dict[str, str]:
    snapshot = document.get("after") or document.get("before") or {}
    facts = {
        "driver": snapshot.get("driver", {}).get("loaded_version"),
        "kernel": snapshot.get("kernel", {}).get("running"),
        "system": snapshot.get("os", {}).get("pretty_name"),
        "gpu": _gpus(snapshot.get("gpus")),
    }
    return {name: one_line(value, LETTERS) for name, value in facts.items() if isinstance(value, str)}


def _gpus(gpus: Any) -> str:
    """ "8 × NVIDIA H200"; of different GPUs each."""
    named = [str(gpu.get("name")) for gpu in gpus if isinstance(gpu, dict)] if isinstance(gpus, list) else []
    counted = {name: named.count(name) for name in dict.fromkeys(named)}
    return ", ".join(f"{count} × {name}" if count > 1 else name for name, count in counted.items())


def _damaged(run: Run, error: Exception) -> RunRecord:
    message = one_line(f"{type(error).__name__}: {error}", LETTERS)
    return safe(
        RunRecord(
            run_id=run.run_id, command=run.command, host=run.host, started_at=run.started_at, ended_at=run.started_at,
            source=run.source or Source.MEASURED, exit_code=3, gpuprep_version="",
            error=f"{run.host}: the record of run {run.run_id} cannot be read: {message}",
            verdict=Verdict(Status.UNKNOWN, "UNKNOWN", ()),
        )
    )  # fmt: skip
