"""A store of many hosts and nights, written straight into the tables: through gpuprep it would take hours.

Each host has a validate in the first night and a drift check in each later one. Hosts differ by their number:

    3 of 50    a check fails, for the last five nights
    7 of 50    the newest run did not reach the host
    5 of 20    a warning, in two of seven nights
    11 of 100  gets slower by 1 % a night

Of real size are records of the first and the last night; those between are small (2 KB instead of 70), because
pages read whole records of the newest run of each host, and of the run that is asked for.
"""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from functools import cache

from builders import bare_snapshot, finished_snapshot
from gemmrecords import gemm, gpu, values
from records_for_tests import record
from storerows import Row, fill

from gpuprep.desired import loading, state
from gpuprep.records import Finding, ProbeResult, RunRecord, Source, Status, Verdict, to_json
from gpuprep.store import Store

TABLES = {
    "runs": (
        "run_id, command, host, profile, started_at, ended_at, source, verdict, exit_code, summary, record, certifies"
    ),
    "findings": "run_id, position, subject, property, status, expected, actual",
    "measurements": "run_id, position, host, started_at, source, gpu_uuid, probe, versions, figure, value",
}
KINDS = ("fp32", "tf32", "fp16", "bf16", "fp64", "int8")
BOARDS = ("T4", "NVIDIA H200", "Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-80GB")
DRIVERS = ("550.163.01", "570.86.15", "580.95.05")
SINCE = "SINCE"  # of a finding, in the texts below
GOOD = Finding("driver", "loaded_version", Status.PASS, "550.163.01", "550.163.01")
BAD = Finding(
    "gpu 0", "persistence_mode", Status.FAIL, "on", "off", "the driver unloads between jobs, and each start waits",
    "gpuprep tune HOST --profile t4", "gpu_tuning", since="2026-01-01T00:00:00+00:00",
)  # fmt: skip
WARM = Finding(
    "gpu 0", "temperature", Status.WARN, "below 83 °C", "86 °C", "the GPU slows down when it is hot", "see its fans"
)
UNREACHED = "{host}: connection refused\nwhat to do: see that sshd runs there"
WORDS = {"PASS": Status.PASS, "WARN": Status.WARN, "FAIL": Status.FAIL}


def write(url: str, hosts: int, nights: int, last: datetime | None = None) -> None:
    """Make the store and fill it; `last`: when the last night's runs began, by default some hours ago."""
    last = last or datetime.now(timezone.utc).replace(microsecond=0) - timedelta(hours=3)
    Store.open(url).close()  # makes the tables
    made = Fleet(hosts, nights, last)
    for table, rows in (("runs", made.runs), ("findings", made.findings), ("measurements", made.measurements)):
        fill(url, table, TABLES[table], rows())


class Fleet:
    def __init__(self, hosts: int, nights: int, last: datetime) -> None:
        self.hosts, self.nights, self.last = hosts, nights, last

    def name(self, host: int) -> str:
        return f"gpu-{host:04d}"

    def run_id(self, host: int, night: int) -> str:
        return f"{self._moment(night):%Y%m%d-%H%M%S}-{host:05x}"

    def at(self, night: int) -> str:
        return self._moment(night).isoformat(timespec="seconds")

    def word(self, host: int, night: int) -> str:
        """How the run ended; "" without a verdict."""
        left = self.nights - 1 - night
        if host % 50 == 3 and left < 5:
            return "FAIL"
        if host % 50 == 7 and left == 0:
            return ""
        return "WARN" if host % 20 == 5 and left % 7 in (0, 1) else "PASS"

    def _moment(self, night: int) -> datetime:
        return self.last - timedelta(days=self.nights - 1 - night)

    def _each(self) -> Iterator[tuple[int, int]]:
        for night in range(self.nights):
            for host in range(self.hosts):
                yield host, night

    def runs(self) -> Iterator[Row]:
        for host, night in self._each():
            word, first = self.word(host, night), night == 0
            name, at, run_id = self.name(host), self.at(night), self.run_id(host, night)
            small = not first and night != self.nights - 1
            command = "validate" if first else "drift"
            text = _text(word, command, small)
            since = self.at(max(0, self.nights - 5)) if word == "FAIL" else at
            marks = {"HOST": name, "AT": at, "RUN_ID": run_id, SINCE: since, "UUID": f"GPU-{host:08x}"}
            for mark, value in marks.items():
                text = text.replace(f'"{mark}"', json.dumps(value))
            text = text.replace("HOST:", f"{name}:").replace('"T4"', json.dumps(BOARDS[host % 4]))
            text = text.replace('"550.163.01"', json.dumps(DRIVERS[host % 3]))
            summary = f"{word}: profile t4, 60 checks" if word else f"{name}: connection refused"
            yield (
                run_id, command, name, "t4", at, at, "measured", word or None,
                {"FAIL": 1, "": 3}.get(word, 0), summary, text, word == "PASS" and first,
            )  # fmt: skip

    def findings(self) -> Iterator[Row]:
        for host, night in self._each():
            if word := self.word(host, night):
                for position, one in enumerate(_findings(word)):
                    told = (one.subject, one.property, one.status.value, one.expected, one.actual)
                    yield (self.run_id(host, night), position, *told)

    def measurements(self) -> Iterator[Row]:
        noise = random.Random(1)
        for host, night in self._each():
            slide = 0.99 ** max(0, night - (self.nights - 30)) if host % 100 == 11 else 1.0
            of = (f"GPU-{host:08x}", "gemm", "gpuprep 0.1.0, cublasLt 12.4.5, quick")
            for position, kind in enumerate(KINDS):
                value = (60.0 if kind in ("fp16", "bf16") else 25.0) * slide * (1 + noise.gauss(0, 0.005))
                named = (self.run_id(host, night), position, self.name(host), self.at(night), "measured")
                yield (*named, *of, f"{kind} 4096x4096x4096 TN", value)


def _findings(word: str) -> tuple[Finding, ...]:
    others = tuple(dataclasses.replace(GOOD, property=f"property_{number}") for number in range(7))
    return {"FAIL": (BAD,), "WARN": (WARM,)}.get(word, ()) + others


@cache
def _text(word: str, command: str, small: bool) -> str:
    """A record as JSON, with marks in place of what differs from run to run."""
    status = WORDS.get(word)
    found = tuple(dataclasses.replace(one, since=SINCE) if one.since else one for one in _findings(word))
    verdict = Verdict(status, f"{word}: profile t4, 60 checks", found) if status else None
    made = dataclasses.replace(
        _whole(), command=command, verdict=verdict, findings=found if verdict else (),
        exit_code={"FAIL": 1, "": 3}.get(word, 0), error=None if verdict else UNREACHED.format(host="HOST"),
    )  # fmt: skip
    if small or not verdict:
        made = dataclasses.replace(made, before=None, after=None, measurements=())
    return to_json(made)


@cache
def _whole() -> RunRecord:
    t4 = loading.load("t4")
    wish = state.resolve(t4, bare_snapshot())
    facts = dataclasses.replace(finished_snapshot(wish), source=Source.MEASURED)
    measured = ProbeResult("gemm", Source.MEASURED, values(gpu("1eb8", [gemm(kind, 25.0) for kind in KINDS])), 10.0)
    made = record("RUN_ID", command="validate", host="HOST", started_at="AT", ended_at="AT", exit_code=0, plan=None)
    return dataclasses.replace(
        made, source=Source.MEASURED, playbook=None, before=facts, after=facts, measurements=(measured,)
    )
