"""What the page of a fleet shows, in the order of fleet.html: the hosts as in reports/fleet.py, the worst first."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from gpuprep import __version__
from gpuprep.records import RunRecord, Status
from gpuprep.records.findings import PROBLEMS, findings_of, in_order
from gpuprep.records.moments import minute, moment
from gpuprep.reports import causes, drifted, fleet
from gpuprep.reports.html.contents import STAND_IN, Pairs
from gpuprep.reports.measured import simulated
from gpuprep.reports.text import outcome
from gpuprep.untrusted.plaintext import command

# An id of a run may come from another machine: one that is no plain name is no name of a file here.
FILE_NAME = re.compile(r"[0-9A-Za-z][0-9A-Za-z._-]{0,63}")


def contents(records: Sequence[RunRecord]) -> dict[str, Any]:
    """The variables of fleet.html. `records` has one at least."""
    ordered = fleet.order(records)
    hosts = [_host(record) for record in ordered]
    stand_ins = sum(host["simulated"] for host in hosts)
    banner = f"SIMULATED: the GPUs of {stand_ins} of these hosts are stand-ins; their rows say so"
    rest = sum(host["word"] != Status.PASS.value for host in hosts)
    return {
        "banner": "" if not stand_ins else STAND_IN if stand_ins == len(hosts) else banner,
        "watermark": stand_ins == len(hosts),
        "version": __version__,
        # Red where anything failed, also below a host that was not reached.
        "word": next((host["word"] for host in hosts if host["word"] == Status.FAIL.value), hosts[0]["word"]),
        "headline": f"{rest} of {len(hosts)} did not pass" if rest else f"{len(hosts)} of {len(hosts)} passed",
        "what": f"drift of {_several(len(hosts), 'host')}",
        "counts": fleet.counts(records),
        "about": _about(records),
        "tiles": _tiles(ordered),
        "hosts": hosts,
    }


def _host(record: RunRecord) -> dict[str, Any]:
    findings = findings_of(record)
    bad = in_order(findings, PROBLEMS)
    waived = [one for one in findings if one.status is Status.WAIVED]
    put_back = drifted.put_back(record)
    return {
        "name": record.host,
        "word": outcome(record)[0],
        "simulated": simulated(record),
        "since": fleet.since(record),
        "profile": fleet.profile_of(record),
        "was_checked": _was_checked(record),
        "checked": minute(record.started_at).removesuffix(" UTC") if _was_checked(record) else "–",
        "what": fleet.what(record),
        "error": record.error or "",
        "bad": [
            (group, drifted.since(group.first, record.started_at)) for group in causes.groups(bad, record.started_at)
        ],
        "waived": waived,
        "dates": {one.key: drifted.since(one, record.started_at) for one in waived},
        "put_back": put_back,
        "silent": not (record.error or bad or waived or put_back),
        "facts": _facts(record),
    }


def _facts(record: RunRecord) -> Pairs:
    found = [("run", f"{record.run_id}, {minute(record.started_at)}")]
    if record.verdict:
        found.append(("verdict", record.verdict.summary))
    found += drifted.compared_with(record)
    if record.command != "last":  # that one is not stored: the host was not reached, or had nothing
        file = f"{record.run_id}.html" if FILE_NAME.fullmatch(record.run_id) else "report.html"
        found.append(
            ("whole page", command("gpuprep", "report", "--format", "html", "--output", file, about=record.run_id))
        )
    return found


def _was_checked(record: RunRecord) -> bool:
    """Whether the host was checked. False if only the attempt failed; a result that is too old counts as a check."""
    return not record.error or record.verdict is not None or bool(record.findings)


def _about(records: Sequence[RunRecord]) -> Pairs:
    read = (moment(record.started_at) for record in records if _was_checked(record))
    moments = sorted(one for one in read if one is not None)
    found = []
    if moments:
        first, last = (minute(one.isoformat()) for one in (moments[0], moments[-1]))
        found.append(("checked", first if first == last else f"{first} to {last}"))
    profiles = sorted({record.profile.name for record in records if record.profile})
    if profiles:
        found.append(("profile" if len(profiles) == 1 else "profiles", ", ".join(profiles)))
    return found


def _tiles(records: Sequence[RunRecord]) -> list[dict[str, str]]:
    """Number of hosts per verdict; waived findings are counted separately, because WAIVED is no verdict."""
    words = Counter(outcome(record)[0] for record in records)
    shown = [*fleet.COUNTED, *sorted(words.keys() - set(fleet.COUNTED))]
    found = [
        {"word": word, "value": str(words[word]), "unit": _noun(words[word], "host"), "what": ""} for word in shown
    ]
    waived = [sum(one.status is Status.WAIVED for one in findings_of(record)) for record in records]
    if total := sum(waived):
        what = f"on {_several(sum(map(bool, waived)), 'host')}"
        tile = {"word": Status.WAIVED.value, "value": str(total), "unit": _noun(total, "finding"), "what": what}
        found.insert(shown.index(Status.WARN.value) + 1, tile)
    return found


def _several(number: int, noun: str) -> str:
    return f"{number} {_noun(number, noun)}"


def _noun(number: int, noun: str) -> str:
    return noun if number == 1 else f"{noun}s"
