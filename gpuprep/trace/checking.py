"""Does a profile pass? For CI: no rule reports a new problem, and the step is not slower.

    check(document, rules=("all",))                      no problem at all
    check(document, rules=("all",), baseline=before)     no problem that the baseline has not, steps within 5 %
    check_job(ranks, {0: check(…), 1: check(…)})         the same of a job with several ranks

Exit codes: 0 passed · 1 a check failed · 3 nothing failed, but evidence is missing. A rule that could not be judged is
UNKNOWN, and never passes; a WARN where the baseline, too, does not tell. A hint that could not be judged is a SKIP,
even if its id is asked for: it never makes exit code 3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuprep.checks.floors import apart
from gpuprep.errors import UsageError
from gpuprep.records import Status
from gpuprep.records.findings import GRAVEST_FIRST
from gpuprep.trace.advice import LOST_KERNELS, Rule
from gpuprep.trace.advice import rules as rulebook
from gpuprep.trace.document import Advice, TraceDocument, unlike
from gpuprep.trace.ranks import RanksDocument

ALL = "all"
HINT = "hint"
MISSING = "missing"
STRAGGLER = "straggler"
RANKS = "ranks"
MOST_RANKS = 12  # named in a sentence
MACHINE = "machine"
STEP_TIME = "step-time"


@dataclass(frozen=True)
class Line:
    name: str  # a rule's id, "step-time"; of a job also "ranks"
    status: Status  # PASS, WARN, FAIL, UNKNOWN; SKIP: a hint that could not be judged
    text: str
    rank: int | None = None  # None: of a single profile, or of the whole job


@dataclass(frozen=True)
class Checked:
    lines: tuple[Line, ...]  # what failed first
    exit_code: int  # 0 | 1 | 3

    @property
    def status(self) -> Status:
        if all(line.status is Status.SKIP for line in self.lines):
            return Status.SKIP
        return {0: Status.PASS, 1: Status.FAIL, 3: Status.UNKNOWN}[self.exit_code]


def check(
    document: TraceDocument,
    *,
    rules: Sequence[str] = (ALL,),
    baseline: TraceDocument | None = None,
    within_percent: float = 5.0,
) -> Checked:
    """`rules` are ids, or "all": all that are problems; a hint fails only where its id is asked for.

    Raises UsageError for an id that there is not, and for a percentage below 0.
    """
    if not within_percent >= 0:
        raise UsageError(f"step time within {within_percent} %: a percentage is 0 or more")
    chosen, named = _chosen(rules)
    lines = [_rule(rule, document, baseline, named) for rule in chosen]
    if baseline is not None:
        lines.append(_step_time(document, baseline, within_percent))
    return _whole(lines)


def check_job(
    ranks: RanksDocument,
    judged: Mapping[int, Checked],
    *,
    baseline: RanksDocument | None = None,
    within_percent: float = 5.0,
) -> Checked:
    """`judged`: check()'s result of each rank, with that rank of the baseline. The slowest rank's step is the job's.

    A rank without a profile, or that the baseline has not, is UNKNOWN: the others say nothing of it.
    """
    lines = []
    lowest = min(judged, default=0)
    for rank, checked in judged.items():
        # The straggler and the step time are reported once for the job.
        lines += [replace(line, rank=rank) for line in checked.lines if line.name not in (STRAGGLER, STEP_TIME)]
        if rank == lowest:
            lines += [_straggler(line, ranks, baseline) for line in checked.lines if line.name == STRAGGLER]
    lines.append(_ranks(ranks, judged, baseline))
    if baseline is not None:
        lines.append(_job_step_time(ranks, judged, baseline, within_percent))
    return _whole(lines)


def _whole(lines: list[Line]) -> Checked:
    lines.sort(key=lambda line: GRAVEST_FIRST.index(line.status))
    statuses = {line.status for line in lines}
    code = 1 if Status.FAIL in statuses else 3 if Status.UNKNOWN in statuses else 0
    return Checked(tuple(lines), code)


def _chosen(asked: Sequence[str]) -> tuple[list[Rule], frozenset[str]]:
    known = rulebook()
    ids = [rule_id.strip() for word in asked for rule_id in word.split(",") if rule_id.strip()]
    unknown = [rule_id for rule_id in ids if rule_id != ALL and rule_id not in known]
    if unknown or not ids:
        raise UsageError(
            f"no such rule: {', '.join(unknown)}" if unknown else "no rule was named",
            f"the rules are: all, {', '.join(known)}",
        )
    named = frozenset(ids) - {ALL}
    if ALL in ids:
        return [rule for rule in known.values() if rule.severity != MISSING or rule.id in named], named
    return [known[rule_id] for rule_id in dict.fromkeys(ids)], named


def _rule(rule: Rule, document: TraceDocument, baseline: TraceDocument | None, named: frozenset[str]) -> Line:
    advice = _advice_of(rule.id, document)
    fresh = advice if baseline is None else _fresh(advice, _advice_of(rule.id, baseline))
    if fresh:
        text = " ".join(map(_words, fresh))
        if baseline is not None and (missing := _missing(rule, baseline)):
            text = f"{text} The baseline could not be judged: {missing}"
        counts = rule.id in named or any(advice.severity != HINT for advice in fresh)
        if counts and rule.severity != MISSING and (lost := _advice_of(LOST_KERNELS, document)):
            return Line(rule.id, unjudged(rule), f"{text} But not all was recorded: {lost[0].problem}")
        return Line(rule.id, Status.FAIL if counts else Status.WARN, text)
    if advice:
        return Line(rule.id, Status.WARN, f"as in the baseline: {' '.join(map(_words, advice))}")
    if missing := _missing(rule, document):
        if (status := unjudged(rule)) is Status.SKIP:
            return Line(rule.id, status, f"not judged: {missing}")
        if baseline is not None and _missing(rule, baseline):
            # The user chose the baseline: data that the baseline lacks, too, are not reported.
            return Line(rule.id, Status.WARN, f"could not be judged, as in the baseline: {missing}")
        return Line(rule.id, status, missing)
    return Line(rule.id, Status.PASS, "")


def unjudged(rule: Rule) -> Status:
    """The status of a rule for which the profile has no data."""
    return Status.SKIP if rule.severity == HINT else Status.UNKNOWN


def _advice_of(rule: str, document: TraceDocument) -> list[Advice]:
    return [advice for advice in document.advice if advice.rule == rule]


def _fresh(current: list[Advice], before: list[Advice]) -> list[Advice]:
    """Advice that the baseline does not have: none if the rule fired there; of the machine's findings (several for one
    rule), only new ones.
    """
    if before and not any(advice.rule == MACHINE for advice in before):
        return []
    known = {advice.problem for advice in before}
    return [advice for advice in current if advice.problem not in known]


def _words(advice: Advice) -> str:
    saves = advice.gain.saves if advice.gain else ""
    return f"{advice.problem} A change saves about {saves}." if saves else advice.problem


def _missing(rule: Rule, document: TraceDocument) -> str:
    """Why the rule could not be judged; "" where it could."""
    needs = rule.needs if rule.severity == MISSING else (*rule.needs, LOST_KERNELS)  # a rule adds up what kernels took
    reason = next((advice for advice in document.advice if advice.rule in needs), None)
    return f"{reason.problem} {reason.recommendation}" if reason else ""


def _step_time(document: TraceDocument, baseline: TraceDocument, percent: float) -> Line:
    now, before = document.summary, baseline.summary
    for name, summary in (("the profile", now), ("the baseline", before)):
        if summary.split_by == "one" or not summary.iterations or not summary.average_iteration_us > 0:
            return Line(STEP_TIME, Status.UNKNOWN, f"{name} has no steps to compare")
    if reasons := unlike(baseline, document):
        return Line(STEP_TIME, Status.UNKNOWN, " ".join(["the steps cannot be compared.", *reasons]))
    old, new = before.average_iteration_us, now.average_iteration_us
    change = 100.0 * (new - old) / old
    status = Status.FAIL if change > percent else Status.PASS
    text = f"{new / 1e3:.3f} ms a step, {_change(change, percent)} of the baseline's {old / 1e3:.3f} ms"
    return Line(STEP_TIME, status, f"{text} (allowed: +{percent:g} %)")


def _change(change: float, allowed: float) -> str:
    """ "+5.0 %", with more digits if it would look like what is allowed."""
    shown = apart(change, allowed, 1)[0]
    return f"{'' if shown.startswith('-') else '+'}{shown} %"


# ---------------------------------------------------------------- a job


def _straggler(line: Line, ranks: RanksDocument, baseline: RanksDocument | None) -> Line:
    """If no collective was found in all ranks, it is not known which rank comes last."""
    if line.status is not Status.PASS or any(rank.late_us is not None for rank in ranks.ranks):
        return line
    text = "no collective was found in all ranks of its group: it is not known which rank waits for which"
    if baseline is not None and all(rank.late_us is None for rank in baseline.ranks):
        return Line(STRAGGLER, Status.WARN, f"{text}, as in the baseline")
    return Line(STRAGGLER, Status.UNKNOWN, text)


def _ranks(ranks: RanksDocument, judged: Iterable[int], baseline: RanksDocument | None) -> Line:
    here = {rank.rank for rank in ranks.ranks}
    before = {rank.rank for rank in baseline.ranks} if baseline else here
    known = set(baseline.missing) if baseline else set()
    reasons = [
        f"{words}: {_numbers(unjudged)}"
        for words, unjudged in (
            ("no profile of rank", set(ranks.missing) - known),
            ("not in the baseline, so not judged: rank", here - before),
            ("in the baseline alone: rank", before - here - set(ranks.missing)),
        )
        if unjudged
    ]
    reasons += [note.text for note in ranks.notes if note.id == "no_profile"]
    if reasons:
        return Line(RANKS, Status.UNKNOWN, "; ".join(reasons))
    if same := set(ranks.missing) & known:
        return Line(RANKS, Status.WARN, f"no profile of rank: {_numbers(same)}, as in the baseline")
    return Line(RANKS, Status.PASS, f"{len(set(judged))} judged")


def _numbers(ranks: Iterable[int]) -> str:
    numbers = sorted(ranks)
    more = f" and {len(numbers) - MOST_RANKS} more" if len(numbers) > MOST_RANKS else ""
    return f"{', '.join(map(str, numbers[:MOST_RANKS]))}{more}"


def _job_step_time(
    ranks: RanksDocument, judged: Mapping[int, Checked], baseline: RanksDocument, percent: float
) -> Line:
    for rank, checked in judged.items():
        for line in checked.lines:
            if line.name == STEP_TIME and line.status is Status.UNKNOWN:
                return Line(STEP_TIME, Status.UNKNOWN, f"rank {rank}: {line.text}")
    slowest, before = _slowest(ranks), _slowest(baseline)
    if slowest is None or before is None:
        whose = "these profiles" if slowest is None else "those of the baseline"
        return Line(STEP_TIME, Status.UNKNOWN, f"no step is in all of {whose}")
    (new, rank), (old, other) = slowest, before
    change = 100.0 * (new - old) / old
    text = (
        f"{new / 1e3:.3f} ms a step in rank {rank}, the slowest, {_change(change, percent)} of the baseline's"
        f" {old / 1e3:.3f} ms in rank {other} (allowed: +{percent:g} %)"
    )
    return Line(STEP_TIME, Status.FAIL if change > percent else Status.PASS, text)


def _slowest(ranks: RanksDocument) -> tuple[float, int] | None:
    """µs a step, and the rank."""
    steps = [(rank.step_us, -rank.rank) for rank in ranks.ranks if rank.step_us]
    if not steps:
        return None
    us, rank = max(steps)
    return us, -rank
