"""The nightly check in a booted machine, with the controller gone: it fires, catches up a missed night, and goes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from machines import Finished, gpuprep, inside, must
from waiting import until

pytestmark = pytest.mark.e2e

PLAN, LAST = "/etc/gpuprep/drift.json", "/var/lib/gpuprep/drift/last.json"
UNITS = "/etc/systemd/system/gpuprep-drift.timer /etc/systemd/system/gpuprep-drift.service"
STAMP = "/var/lib/systemd/timers/stamp-gpuprep-drift.timer"
# Every file of the nightly check but its results, and what systemd knows of it.
TRACES = f"""
ls -d {PLAN} {UNITS} {STAMP} /etc/systemd/system/timers.target.wants/gpuprep-drift.timer 2>/dev/null
systemctl list-unit-files --no-legend 'gpuprep-drift*'; systemctl list-units --all --no-legend 'gpuprep-drift*'
"""
CHECKSUMS = f"sha256sum {PLAN} {UNITS} && stat -c '%n %Y %i' {PLAN} {UNITS} {STAMP}"


@pytest.fixture
def machine(a100: Finished) -> Iterator[Finished]:
    """The two A100 without a schedule and without results, before and after."""
    must("drift", "unschedule", a100.host)
    inside(a100.machine, "rm -rf /var/lib/gpuprep/drift")
    try:
        yield a100
    finally:
        gpuprep("sim", "up", a100.machine)
        must("drift", "unschedule", a100.host)
        inside(a100.machine, "rm -rf /var/lib/gpuprep/drift")


def scheduled(machine: Finished, *options: str) -> dict[str, Any]:
    done = must("drift", "schedule", machine.host, "--profile", machine.profile, "--json", *options)
    (record,) = done.json()["runs"]
    left: dict[str, Any] = record["nightly"]
    assert left["scheduled"]
    return left


def at(machine: Finished, when: str) -> str:
    return inside(machine.machine, f"date -d '{when}' +%H:%M").stdout.strip()


def soon(machine: Finished) -> str:
    """Scheduled for a moment that is still to come when the timer stands, however long that takes; the moment."""
    for seconds in (100, 400, 1600):
        begun = datetime.fromisoformat(inside(machine.machine, "date -u +%Y-%m-%dT%H:%M:%S+00:00").stdout.strip())
        left = scheduled(machine, "--at", at(machine, f"+{seconds} seconds"), "--random-delay", "0")
        moment = str(left["next_at"])
        if datetime.fromisoformat(moment) - begun < timedelta(hours=1):
            return moment
    raise AssertionError("to schedule a check takes more than 26 minutes")


def wait_for_a_result(machine: Finished) -> dict[str, Any]:
    """What the machine found, read on the machine: the controller's part is to look."""
    wait = f"timeout 4000 sh -c 'until test -s {LAST}; do sleep 0.2; done'"
    assert inside(machine.machine, wait, check=False).exit_code == 0, "the timer did not fire"
    found: dict[str, Any] = json.loads(inside(machine.machine, f"cat {LAST}").stdout)
    return found


def journal(machine: Finished) -> str:
    return inside(machine.machine, "journalctl -b -u gpuprep-drift --no-pager").stdout


def unit(machine: Finished) -> set[str]:
    """How the newest check ended for systemd."""
    shown = inside(machine.machine, "systemctl show -p Result -p ExecMainStatus gpuprep-drift.service")
    return set(shown.stdout.split())


def runs_of(machine: Finished) -> list[str]:
    listed = must("history", machine.host, "--limit", "1000", "--json").json()["runs"]
    return [run["run_id"] for run in listed]


def test_the_timer_fires_by_itself_and_the_controller_hears_of_it(machine: Finished) -> None:
    left = scheduled(machine)  # what takes its time is done now
    asked = gpuprep("drift", "last", machine.host)
    assert asked.exit_code == 3, "no check yet is no good check"
    assert left["next_at"] in asked.text
    moment = soon(machine)

    found = wait_for_a_result(machine)
    assert found["started_at"] >= datetime.fromisoformat(moment).isoformat(timespec="seconds")
    assert (found["command"], found["host"], found["source"]) == ("drift", machine.host, "simulated")
    assert found["drift"]["on_host"] is True
    assert found["verdict"]["status"] == "PASS", found["verdict"]["summary"]
    assert found["run_id"] not in runs_of(machine)
    until(lambda: found["run_id"] in journal(machine), "the journal has no line of it")

    for _ in range(2):
        shown = must("drift", "last", machine.host, "--json").json()
        assert [run["run_id"] for run in shown["runs"]] == [found["run_id"]]
    assert runs_of(machine).count(found["run_id"]) == 1
    report = must("report", found["run_id"]).stdout
    assert machine.host in report
    assert "SIMULATED" in report


def test_what_the_host_finds_is_the_exit_code_of_last(machine: Finished) -> None:
    scheduled(machine)
    # An ordinary user reads it; a check need not wait for its night.
    inside(machine.machine, "mv /etc/modprobe.d/gpuprep-nvidia.conf /root/")
    try:
        inside(machine.machine, "systemctl start gpuprep-drift.service")
        shown = must("drift", "last", machine.host, exit_code=1)
        assert unit(machine) == {"Result=success", "ExecMainStatus=10"}, "drift is no failure of the unit"
    finally:
        inside(machine.machine, "mv /root/gpuprep-nvidia.conf /etc/modprobe.d/")
    assert "FAIL" in shown.stdout
    assert "gpuprep provision" in shown.stdout, shown.stdout
    lock = "/var/lib/gpuprep/drift/lock"
    inside(machine.machine, f"rm {lock} && mkdir {lock}")
    broken = inside(machine.machine, "systemctl start gpuprep-drift.service", check=False)
    assert broken.exit_code != 0
    assert unit(machine) == {"Result=exit-code", "ExecMainStatus=3"}, "a check that broke is one"
    inside(machine.machine, f"rmdir {lock} && systemctl start gpuprep-drift.service")
    must("drift", "last", machine.host)
    inside(machine.machine, f"sudo -u debian /usr/local/bin/gpuprep-drift last && sudo -u debian cat {PLAN} >/dev/null")


def test_a_night_missed_while_it_was_off_is_caught_up_after_boot(machine: Finished) -> None:
    left = scheduled(machine, "--at", at(machine, "-2 hours"), "--random-delay", "0")
    assert datetime.fromisoformat(left["next_at"]) > datetime.fromisoformat(
        inside(machine.machine, "date -u +%Y-%m-%dT%H:%M:%S+00:00").stdout.strip()
    ), "another hour is no missed night"
    assert inside(machine.machine, f"test -e {LAST}", check=False).exit_code != 0
    # As if systemd had last run it two days ago.
    inside(machine.machine, f"touch -d '2 days ago' {STAMP} && sync && systemctl poweroff", check=False)
    until(lambda: not is_running(machine), "the machine did not go down")
    must("sim", "up", machine.machine)
    found = wait_for_a_result(machine)
    assert found["verdict"]["status"] == "PASS", found["verdict"]["summary"]
    until(lambda: "Finished" in journal(machine), "the service does not end")
    assert journal(machine).count("Starting gpuprep-drift.service") == 1, "once, however many nights were missed"
    must("drift", "last", machine.host)


def is_running(machine: Finished) -> bool:
    machines = must("sim", "list", "--json").json()["machines"]
    (running,) = [one["running"] for one in machines if one["name"] == machine.machine]
    return bool(running)


def test_scheduled_twice_changes_nothing_and_unscheduled_leaves_nothing(machine: Finished) -> None:
    bare = inside(machine.machine, TRACES, check=False).stdout
    assert bare == ""
    first = scheduled(machine)
    assert PLAN in first["changed"]
    before = inside(machine.machine, CHECKSUMS).stdout
    assert scheduled(machine)["changed"] == []
    assert inside(machine.machine, CHECKSUMS).stdout == before
    inside(machine.machine, "systemctl stop gpuprep-drift.timer")
    assert scheduled(machine)["changed"] != []
    inside(machine.machine, "systemctl is-active gpuprep-drift.timer && systemctl is-enabled gpuprep-drift.timer")

    inside(machine.machine, "systemctl start gpuprep-drift.service")
    (record,) = must("drift", "unschedule", machine.host, "--json").json()["runs"]
    assert PLAN in record["nightly"]["changed"]
    assert inside(machine.machine, TRACES, check=False).stdout == bare
    inside(machine.machine, f"test -s {LAST}")
    (record,) = must("drift", "unschedule", machine.host, "--json").json()["runs"]
    assert record["nightly"]["changed"] == []


def test_what_is_wrong_is_refused_and_changes_nothing(machine: Finished) -> None:
    wish = ["drift", "schedule", machine.host, "--profile", machine.profile]
    assert "allowed: 00:00 to 23:59" in must(*wish, "--at", "24:00", exit_code=2).text
    assert "0<=x<=720" in must(*wish, "--random-delay", "721", exit_code=2).text
    must("drift", "schedule", machine.host, exit_code=2)
    must("drift", "shedule", machine.host, exit_code=2)
    must("drift", "last", exit_code=2)
    assert inside(machine.machine, TRACES, check=False).stdout == ""
