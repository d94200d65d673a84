"""100 000 stored runs: what `history`, `compare`, `history trend` and `baseline show` take, start-up included.

50 hosts of one T4 each, a drift check a night for 2000 nights, written straight into the tables. Of real size are a
host's runs of the first and the last night: whole records, facts of before and after. All others are 2 KiB in place of
some 70 (7 GB of them would measure the disk): what is timed reads whole records of two runs at most. Each run has eight
findings and six figures as rows; a real one has more findings, and these commands read those of twenty runs at most.
One host gets slower by 0.3 % a night.
"""

from __future__ import annotations

import dataclasses
import json
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path

from largestores import STORES, Fill
from ratios import GPUPREP, Ratio, timed

from gpuprep.desired import loading, state
from gpuprep.records import ProbeResult, RunRecord, Source, Status, Verdict, to_json
from gpuprep.store import Store

sys.path.append(str(Path(__file__).parents[1] / "support"))
from builders import bare_snapshot, finished_snapshot
from gemmrecords import gemm, gpu, values
from records_for_tests import FINDINGS, record
from storerows import Row

HOSTS, NIGHTS, FEW_NIGHTS = 50, 2000, 20
LIMIT_SECONDS = 1.0
# Of the largest store over one of 1 000 runs: what an index costs, and no more.
LIMIT_GROWTH = 2.0
# Others work on this machine: the best of these, and of more where they were slow.
ROUNDS, MOST_ROUNDS = 5, 20
FIRST = datetime(2021, 5, 1, 2, 30, tzinfo=timezone.utc)
KINDS = ("fp32", "tf32", "fp16", "bf16", "fp64", "int8")
SLIDING = "gpu-07"


def history() -> Iterator[Ratio]:
    """Seconds on SQLite and PostgreSQL, best of a few: against the limit, and against a store of 1 000 runs."""
    for name, store in STORES.items():
        with store() as (small_url, small_fill), store() as (url, fill):
            _fill(small_url, small_fill, FEW_NIGHTS)
            seconds = timed(partial(_fill, url, fill, NIGHTS))
            print(f"{name}: {HOSTS * NIGHTS} runs written in {seconds:.0f} s", flush=True)
            for what, (words, code) in _commands().items():
                few: list[float] = []
                many: list[float] = []
                while len(many) < ROUNDS or (min(many) > LIMIT_SECONDS and len(many) < MOST_ROUNDS):
                    few.append(_seconds(small_url, words(FEW_NIGHTS), code(FEW_NIGHTS)))
                    many.append(_seconds(url, words(NIGHTS), code(NIGHTS)))
                ours = f"{what} of {HOSTS * NIGHTS} runs on {name}"
                yield Ratio(f"{ours} / {LIMIT_SECONDS:g} s", min(many), LIMIT_SECONDS, 1.0)
                yield Ratio(f"{ours} / of {HOSTS * FEW_NIGHTS}", min(many), min(few), LIMIT_GROWTH)


def _commands() -> dict[str, tuple[Callable[[int], list[str]], Callable[[int], int]]]:
    """Words by the number of nights, and the exit code that they must have: a slide must be found while it is timed."""
    return {
        "history HOST": (lambda _: ["history", SLIDING], lambda _: 0),
        "history": (lambda _: ["history"], lambda _: 0),
        "compare RUN RUN": (lambda nights: ["compare", _id(7, 0), _id(7, nights - 1)], lambda _: 0),
        "history trend HOST": (lambda _: ["history", "trend", SLIDING], lambda nights: 1 if nights >= 30 else 0),
        "baseline show HOST": (lambda _: ["baseline", "show", SLIDING], lambda _: 0),
    }


def _seconds(url: str, words: list[str], code: int) -> float:
    done: list[subprocess.CompletedProcess[str]] = []
    command = [GPUPREP, *words, "--store", url]
    run = lambda: done.append(subprocess.run(command, capture_output=True, text=True, check=False))  # noqa: E731
    seconds = timed(run)
    if done[0].returncode != code or not done[0].stdout:
        sys.exit(f"{' '.join(command)}: exit {done[0].returncode}, not {code}\n{done[0].stdout}{done[0].stderr}")
    return seconds


# ---------------------------------------------------------------- the stores


def _fill(url: str, fill: Fill, nights: int) -> None:
    Store.open(url).close()  # makes the tables
    fill("runs", _runs(nights))
    fill("findings", _findings(nights))
    fill("measurements", _measurements(nights))


# ---------------------------------------------------------------- what is in them


def _id(host: int, night: int) -> str:
    return f"{FIRST + timedelta(days=night):%Y%m%d-%H%M%S}-{host:05x}"


def _at(night: int) -> str:
    return (FIRST + timedelta(days=night)).isoformat(timespec="seconds")


def _each(nights: int) -> Iterator[tuple[str, int, int]]:
    for night in range(nights):
        for host in range(HOSTS):
            yield f"gpu-{host:02d}", host, night


def _speed(host: str, night: int, nights: int, noise: random.Random) -> float:
    """In the share of its first night; the last 30 nights of one host slide."""
    slide = 0.997 ** max(0, night - (nights - 30)) if host == SLIDING and nights > 30 else 1.0
    return slide * (1 + noise.gauss(0, 0.005))


def _whole() -> RunRecord:
    t4 = loading.load("t4")
    wish = state.resolve(t4, bare_snapshot())
    facts = dataclasses.replace(finished_snapshot(wish), source=Source.MEASURED)
    measured = ProbeResult("gemm", Source.MEASURED, values(gpu("1eb8", [gemm(kind, 25.0) for kind in KINDS])), 10.0)
    verdict = Verdict(Status.PASS, "PASS: profile t4, 60 checks", tuple(FINDINGS[:1]) * 60)
    whole = record("RUN_ID", command="validate", host="HOST", started_at="AT", ended_at="AT", exit_code=0, plan=None)
    return dataclasses.replace(
        whole, source=Source.MEASURED, playbook=None, before=facts, after=facts, measurements=(measured,),
        verdict=verdict, findings=verdict.findings,
    )  # fmt: skip


def _runs(nights: int) -> Iterator[Row]:
    whole = _whole()
    large = to_json(whole)
    reduced = dataclasses.replace(
        whole, command="drift", before=None, after=None, measurements=(), verdict=None, findings=FINDINGS * 2
    )
    small = to_json(reduced)
    print(f"a whole record has {len(large)} bytes, a reduced one {len(small)}", flush=True)
    for host, number, night in _each(nights):
        first_or_last = night in (0, nights - 1)
        command = "validate" if first_or_last else "drift"
        run_id, moment = _id(number, night), _at(night)
        text = large if first_or_last else small
        for mark, value in (('"RUN_ID"', run_id), ('"HOST"', host), ('"AT"', moment)):
            text = text.replace(mark, json.dumps(value))
        yield (run_id, command, host, "t4", moment, moment, "measured", "PASS", 0, "PASS: profile t4, 60 checks", text)


def _findings(nights: int) -> Iterator[Row]:
    for _, number, night in _each(nights):
        run_id = _id(number, night)
        for position in range(8):
            yield run_id, position, "gpu 0", f"property_{position}", "PASS", "as it should be", "as it should be"


def _measurements(nights: int) -> Iterator[Row]:
    noise = random.Random(1)
    for host, number, night in _each(nights):
        run_id, moment = _id(number, night), _at(night)
        for position, kind in enumerate(KINDS):
            figure, value = f"{kind} 4096x4096x4096 TN", 25.0 * _speed(host, night, nights, noise)
            of = ("measured", f"GPU-{number:08x}", "gemm", "gpuprep 0.1.0, cublasLt 12.4.5, quick")
            yield run_id, position, host, moment, *of, figure, value
