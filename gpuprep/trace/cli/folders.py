"""gpuprep trace report, check and compare of a FOLDER: what the profiles of several ranks show together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpuprep.errors import UsageError

if TYPE_CHECKING:
    from gpuprep.cli.console import Steps
    from gpuprep.records import RunRecord
    from gpuprep.trace.checking import Checked
    from gpuprep.trace.comparing import JobComparison
    from gpuprep.trace.opening import Wish
    from gpuprep.trace.ranks import RanksDocument
    from gpuprep.trace.reading import Found

TABLES = ("ranks", "collectives", "steps", "notes")


def rendered(
    folder: Path, files: Found, wish: Wish, form: str, record: RunRecord | None, *, table: str, full: bool, say: Steps
) -> str | bytes:
    """The report of a job in the format `form`: bytes for xlsx, else text.

    Raises UsageError for options that only the report of one profile has.
    """
    _whole_steps(wish)
    if record is not None and form != "html":
        raise UsageError(
            "--record is for the profile of one machine, not for a folder of ranks",
            "use --format html, or name the file of one rank",
        )
    if form == "csv" and table not in TABLES:
        raise UsageError(f"--table {table}: there is no such table of a folder", f"one of {', '.join(TABLES)}")
    from gpuprep.trace.formats import documents, junit, ranks
    from gpuprep.trace.opening.job import now_and_then, open_job, open_rank
    from gpuprep.trace.page import html_of_job

    job = open_job(folder, wish, files, say=say)
    document = job.ranks
    say_step = now_and_then(say, len(job.ranks_by_file))
    if form == "html":
        return html_of_job(document, lambda rank: open_rank(job, rank, wish, record, say=say_step))
    if form == "junit":
        opened = ((rank, open_rank(job, rank, wish, say=say_step).document) for rank in job.ranks_by_file)
        return junit.render_job(document.job, opened)
    say("writing")
    if form == "csv":
        return ranks.csv(document, table)
    if form == "xlsx":
        return ranks.xlsx(document)
    if form == "json":
        return documents.render(document)
    return ranks.markdown(document) if form == "markdown" else ranks.text(document, full=full)


def checked(
    folder: Path,
    files: Found,
    wish: Wish,
    rules: Sequence[str],
    baseline: tuple[Path, Found] | None,
    *,
    within_percent: float,
    say: Steps,
) -> tuple[RanksDocument, Checked]:
    """Check each rank against the same rank of the baseline, and the job. Holds two profiles in memory at a time."""
    _whole_steps(wish)
    from gpuprep.trace import checking
    from gpuprep.trace.opening.job import now_and_then, open_job, open_rank

    before = open_job(baseline[0], wish, baseline[1], say=say) if baseline else None
    job = open_job(folder, wish, files, say=say)
    say_step = now_and_then(say, len(job.ranks_by_file))
    judged = {}
    for rank in job.ranks_by_file:
        if before is not None and rank not in before.files:
            continue
        old = open_rank(before, rank, wish, say=say_step).document if before else None
        now = open_rank(job, rank, wish, say=say_step).document
        judged[rank] = checking.check(now, rules=rules, baseline=old, within_percent=within_percent)
    ranks = before.ranks if before else None
    return job.ranks, checking.check_job(job.ranks, judged, baseline=ranks, within_percent=within_percent)


def compared(before: tuple[Path, Found], after: tuple[Path, Found], wish: Wish, *, say: Steps) -> JobComparison:
    """Compare two jobs, and each rank with the rank of the same number."""
    from gpuprep.trace import comparing
    from gpuprep.trace.opening.job import now_and_then, open_job, open_rank

    old, new = (open_job(folder, wish, files, say=say) for folder, files in (before, after))
    say_step = now_and_then(say, len(new.ranks_by_file))
    by_rank = {}
    for rank in new.ranks_by_file:
        if rank in old.files:
            old_document, new_document = (open_rank(job, rank, wish, say=say_step).document for job in (old, new))
            by_rank[rank] = comparing.compare(old_document, new_document)
    return comparing.compare_jobs(old.ranks, new.ranks, by_rank)


def both_folders(one: tuple[Path, Found], other: tuple[Path, Found]) -> bool:
    """True for two jobs, False for two profiles. Raises UsageError for a job and a profile."""
    several = [len(files.profiles) > 1 for _, files in (one, other)]
    if any(several) and not all(several):
        job, profile = (one, other) if several[0] else (other, one)
        raise UsageError(
            f"{job[0].name} is a folder with several profiles, and {profile[0].name} is one profile",
            "name two folders with a file of each rank, or the files of one rank",
        )
    return all(several)


def _whole_steps(wish: Wish) -> None:
    if wish.start is not None or wish.stop is not None:
        raise UsageError(
            "--iter-start and --iter-stop are for one profile, not for a folder of ranks",
            "leave them out: the iterations that all ranks have are compared; or name the file of one rank",
        )


def no_record(record: RunRecord | None) -> None:
    """Raises UsageError: the ranks of a job may be of several machines."""
    if record is not None:
        raise UsageError(
            "--record is for the profile of one machine, not for a folder of ranks", "name the file of one rank"
        )
