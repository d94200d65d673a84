"""A change of the driver that is open, failed or was undone is a finding until a provision passes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from builders import finished_snapshot, resolved

from gpuprep import checks
from gpuprep.provisioning import plan
from gpuprep.records import NOT_READ, DriverChange, Finding, Missing, Status

WANTED = resolved()
BEGAN, ENDED = "2026-11-29T10:00:00Z", "2026-11-30T02:00:00Z"


def findings(change: DriverChange | Missing | None) -> list[Finding]:
    snapshot = dataclasses.replace(finished_snapshot(WANTED), driver_change=change)
    return [finding for finding in checks.compare(WANTED, snapshot) if finding.key == "driver.change"]


def change(status: str, **more: Any) -> DriverChange:
    return DriverChange(status, "610.43.02", "595.71.05", BEGAN, **more)


@pytest.mark.parametrize("nothing", [None, NOT_READ])
def test_without_one_there_is_no_finding(nothing: Missing | None) -> None:
    assert findings(nothing) == []


@pytest.mark.parametrize(
    ("which", "status", "says", "remedy"),
    [
        (change("pending"), Status.UNKNOWN, "nobody has seen it work yet", "restart the machine"),
        (
            dataclasses.replace(change("pending"), before=""),  # the first driver: the host has none to compare with
            Status.UNKNOWN,
            "nobody has seen it work yet",
            "gpuprep provision HOST",
        ),
        (
            change("back", ended=ENDED, by="itself", cause="CUDA does not start"),
            Status.FAIL,
            "driver 610.43.02 was rolled back by the host itself on 2026-11-30: CUDA does not start",
            "driver 595.71.05 works",
        ),
        (
            change("failed", cause="no GPU"),
            Status.FAIL,
            "does not work after its restart: no GPU",
            "gpuprep rollback HOST",
        ),
        (
            change("stuck", cause="no GPU", error="no space left"),
            Status.FAIL,
            "going back to driver 595.71.05 failed: no space left",
            "gpuprep rollback HOST",
        ),
        (change("a status of tomorrow"), Status.FAIL, "does not work", "gpuprep rollback HOST"),
        (Missing("unparsable", "journal.json"), Status.UNKNOWN, "could not be read", ""),
        (Missing("no_permission"), Status.UNKNOWN, "could not be read", "sudo"),
    ],
)
def test_one_is_told_with_what_to_do(which: DriverChange | Missing, status: Status, says: str, remedy: str) -> None:
    (finding,) = findings(which)
    assert finding.status is status
    assert says in finding.reason
    assert remedy in finding.remedy


def test_what_the_host_undid_is_ended_by_a_provision_without_a_restart() -> None:
    snapshot = dataclasses.replace(finished_snapshot(WANTED), driver_change=change("back", ended=ENDED, by="itself"))
    (step,) = plan.make("host", WANTED, checks.compare(WANTED, snapshot)).steps
    assert (step.role, step.may_reboot) == ("gpu_driver", False)
