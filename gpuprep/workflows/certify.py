"""`gpuprep baseline set`: chooses the certified run of a host, and its figures as the baseline."""

from __future__ import annotations

from dataclasses import dataclass

from gpuprep import checks
from gpuprep.errors import UsageError
from gpuprep.records import RunRecord, Source, Status
from gpuprep.records.baseline import Measured
from gpuprep.store import Store
from gpuprep.store.certified import CERTIFYING, is_whole

NEWEST = "gpuprep history HOST lists the runs; `gpuprep validate HOST --profile PROFILE` makes one"


@dataclass(frozen=True)
class Certified:
    """What `baseline set` did."""

    record: RunRecord
    measured: Measured  # the figures that became the baseline; {} where the run measured none, or on a simulated GPU


def certify(store: Store, host: str, run: str | None, now: str) -> Certified:
    """Make a run (None: the newest provision or validate that passed) the certified run of the host.

    The figures that it measured replace those of the same GPU, probe and versions; others stay. `now` is UTC, ISO 8601.
    Raises UsageError for a run that is not of this host, of another command, or of a part of the machine; that did not
    pass, has no facts, or saw a simulated GPU where the host has a real one.
    """
    chosen = run or store.newest_passed(host)
    if chosen is None:
        raise UsageError(f"no provision or validate of {host} that passed is recorded", NEWEST)
    record = store.get(chosen)
    named = f"run {record.run_id}"
    if record.host != host:
        raise UsageError(f"{named} is of {record.host}, not of {host}", NEWEST)
    if record.command not in CERTIFYING:
        raise UsageError(f"{named} is of {record.command}, which certifies nothing", NEWEST)
    if not is_whole(record.options):
        raise UsageError(f"{named} left a part of the machine out (--only, --skip)", NEWEST)
    if record.verdict is None or record.verdict.status is not Status.PASS or record.exit_code != 0:
        how = record.verdict.status.value if record.verdict else "without a verdict"
        raise UsageError(
            f"{named} ended {how}: only a run that passed can be what a host is held to",
            "put the machine right and validate it; what is to stay as it is belongs into the profile's waivers",
        )
    if record.after is None:
        raise UsageError(f"{named} has no facts of the host to compare with", NEWEST)
    if record.source is Source.SIMULATED and store.is_real(host):
        raise UsageError(f"{named} saw a simulated GPU, and {host} has a real one: they cannot be compared", NEWEST)
    measured = checks.comparable(record.after, record.measurements)
    store.certify(host, record.run_id, now, measured)
    return Certified(record, measured)
