"""What a terminal shows by default: short, with one command that may be pasted, and the verdict as the last line."""

from __future__ import annotations

import dataclasses
import html
import re
import shlex
from typing import Any

import hints
import pytest
from builders import finished_snapshot, resolved
from commandline import kept_options
from pages import fleet, printed
from places import COLLECTION
from records_for_tests import record
from validations_for_tests import h200, several, t4

from gpuprep import checks, records, reports

ASKED = {
    "hosts": ["gpus"],
    "inventory": "my inv.yml",
    "profile": "./t4 own.yml",
    "ssh_key": "~/k",
    "store": "sqlite:////s",
}
OFF = records.Finding(
    "gpu 0", "persistence_mode", records.Status.FAIL, "on", "off",
    "persistence mode of gpu 0 is off: the driver unloads between jobs; each start waits and settings are lost",
    "`gpuprep tune HOST --profile PROFILE`", "gpu_tuning",
)  # fmt: skip
HELD = records.Finding(
    "driver",
    "held",
    records.Status.FAIL,
    "all held",
    "not held: libcuda1",
    "the next upgrade may change these: libcuda1",
    "`gpuprep provision HOST --profile PROFILE --only driver`",
    "gpu_driver",
)
HOT = records.Finding(
    "gpu 0", "temperature", records.Status.WARN, "below 85 °C", "86 °C", "it is hot", "look at the fans"
)
PASSED = tuple(records.Finding("kernel", f"fact_{n}", records.Status.PASS, "a", "a") for n in range(90))
MISSING = tuple(
    records.Finding(
        f"transcode {n}", "completed", records.Status.SKIP, "it works", "not run", "this GPU has no encoder (NVENC)"
    )
    for n in range(26)
)


def made(*findings: records.Finding, **changes: Any) -> records.RunRecord:
    worst = next(
        (
            s
            for s in (records.Status.FAIL, records.Status.UNKNOWN, records.Status.WARN)
            if s in [f.status for f in findings]
        ),
        records.Status.PASS,
    )
    fields: dict[str, Any] = {
        "command": "validate", "host": "web1", "plan": None, "playbook": None, "source": records.Source.MEASURED,
        "measurements": (), "options": {"asked": ASKED},
    }  # fmt: skip
    judged = records.Verdict(worst, f"{worst.value}: x", findings)
    return dataclasses.replace(record(), **{**fields, **changes}, verdict=judged, findings=findings)


def short(run: records.RunRecord, **options: Any) -> str:
    return printed(run, **options)


@pytest.mark.parametrize("make", [h200, lambda: several(2), lambda: several(8), lambda: several(16), t4])
def test_a_healthy_host_is_no_more_than_25_lines(make: Any) -> None:
    run = make()
    healthy = tuple(
        dataclasses.replace(one, status=records.Status.PASS) if one.status is not records.Status.SKIP else one
        for one in (run.verdict.findings if run.verdict else run.findings)
    )
    healthy += MISSING
    run = dataclasses.replace(run, findings=healthy, verdict=records.Verdict(records.Status.PASS, "PASS: x", healthy))
    page = short(run)
    assert len(page.splitlines()) <= 25, page
    assert "At a glance" in page
    assert "Did not pass" not in page
    assert page.splitlines()[-1].startswith(f"PASS  {run.host}")


def test_the_last_line_is_host_profile_verdict_counts_and_run() -> None:
    run = made(OFF, *PASSED, *MISSING)
    assert short(run).splitlines()[-1] == f"FAIL  web1, t4: 1 FAIL, 90 PASS, 26 SKIP, run {run.run_id}"
    whole = short(run, everything=True)
    assert whole.splitlines()[-1] == short(run).splitlines()[-1]
    assert "Passed (90)" in whole
    assert "Passed" not in short(run)


def test_why_it_matters_stands_below_what_did_not_pass() -> None:
    page = " ".join(short(made(OFF, *PASSED)).split())
    assert (
        "FAIL gpu 0: persistence mode (expected on) why: persistence mode of gpu 0 is off: the driver unloads" in page
    )
    assert "is wanted" not in page


def test_skipped_checks_are_counted_and_are_nothing_that_did_not_pass() -> None:
    page = short(made(*PASSED, *MISSING))
    assert "26 skipped: this GPU has no NVENC" in page
    assert "Did not pass" not in page


def pasted(page: str) -> list[list[str]]:
    return [shlex.split(line) for line in page.splitlines() if line.strip().startswith("gpuprep ")]


def repair(page: str) -> list[str]:
    """The words of the command that a page offers first; the command line takes it."""
    lines = page.splitlines()
    told = [line.partition(":")[2] for line in lines if line.startswith("To repair it: ")]
    (line, *_) = [*told, *(line.strip() for line in lines if line.strip().startswith("gpuprep "))]
    assert line.isprintable()
    assert hints.problem(line.strip()) == ""
    return shlex.split(line)


def test_one_command_repairs_it_with_the_options_of_the_run() -> None:
    (words,) = pasted(short(made(HELD, OFF, HOT, *PASSED)))
    assert words == [
        "gpuprep", "provision", "-i", "my inv.yml", "web1", "--profile", "./t4 own.yml", "--only", "driver,tuning",
        "--ssh-key", "~/k", "--store", "sqlite:////s",
    ]  # fmt: skip
    (words,) = pasted(short(made(OFF)))
    assert words[:2] == ["gpuprep", "tune"]
    assert all(not hints.problem(shlex.join(words)) for words in pasted(short(made(HELD, OFF))))


def test_what_no_step_repairs_is_checked_again_the_same_way() -> None:
    options = {"asked": {"profile": "t4"}, "probes": ["gemm"], "quick": True, "first_failure": True}
    (words,) = pasted(short(made(HOT, options=options)))
    assert words == ["gpuprep", "validate", "web1", "--profile", "t4", "--only", "gemm", "--quick", "--first-failure"]


def test_what_a_ctrl_c_left_unmeasured_is_told_once() -> None:
    kinds = ("gemm", "bandwidth", "transcode", "throughput")
    silent = tuple(
        records.ProbeResult(name, records.Source.MEASURED, records.Missing("interrupted", "x"), 0.0) for name in kinds
    )
    wanted = resolved()
    judged = checks.compare(wanted, finished_snapshot(wanted), silent, asked=kinds)
    found = [one for one in judged if one.status is records.Status.UNKNOWN]
    assert [one.subject for one in found] == list(kinds)
    run = made(*found, *PASSED)
    page = short(run)
    assert page.count("interrupted before it measured them") == 1
    assert "; ".join(f"{one.subject}: {one.property}" for one in found) in " ".join(page.split())
    assert "Run it again:\n    gpuprep validate " in page
    assert short(run, everything=True).count("what to do: ") == 1
    whole = short(dataclasses.replace(run, measurements=silent), everything=True)
    assert "no answer" not in whole
    assert "  gemm, bandwidth, transcode, throughput\n" in whole


def test_what_could_not_be_read_for_another_reason_was_not_interrupted() -> None:
    gone, kinds = records.Missing("command_failed", "out of memory"), ("transcode", "throughput")
    silent = tuple(records.ProbeResult(name, records.Source.MEASURED, gone, 0.0) for name in kinds)
    judged = checks.compare(resolved(), finished_snapshot(resolved()), silent, asked=kinds)
    found = [one for one in judged if one.status is records.Status.UNKNOWN]
    assert [one.subject for one in found] == list(kinds)
    page = " ".join(short(made(*found, *PASSED), everything=True).split())
    assert "they could not be read: the program that shows it failed (out of memory) what to do: " in page
    assert "interrupted" not in page
    assert "Run it again" not in page


def test_the_long_page_has_the_commands_of_the_run_and_breaks_none() -> None:
    run = made(HELD, OFF)
    page = short(run, everything=True)
    assert "HOST" not in page
    line = "gpuprep provision -i 'my inv.yml' web1 --profile './t4 own.yml' --only driver --ssh-key '~/k' --store "
    for form in (page, *(reports.render(run, style) for style in ("junit", "markdown"))):
        assert line in html.unescape(form).replace("\\", "")
    assert not hints.problem(f"{line}sqlite:////s")


def test_a_command_of_many_words_is_whole_on_the_short_page() -> None:
    command = f"sudo apt-get install {' '.join(f'libcublas-{n}=12.4.127-1' for n in range(40))}"
    by_hand = dataclasses.replace(HOT, remedy=f"if the change was not intended: `{command}`")
    assert command in " ".join(short(made(by_hand)).split())


def test_what_drift_puts_back_is_repaired_by_drift() -> None:
    fix = "`gpuprep drift HOST --profile PROFILE --fix` puts it back"
    fixable = dataclasses.replace(OFF, remedy=f"{fix}; or: {OFF.remedy}")
    assert repair(short(made(fixable)))[:2] == ["gpuprep", "drift"]
    assert repair(short(made(fixable, HELD)))[:2] == ["gpuprep", "provision"]


def test_a_record_of_an_older_gpuprep_has_a_command_too() -> None:
    (words,) = pasted(short(made(HELD, options={})))
    assert words == ["gpuprep", "provision", "web1", "--profile", "t4", "--only", "driver"]


HOSTILE = ["a; rm -rf /", "$(id)", "`id`", "-rf", "--output=/etc/x", "a\nb", "x' 'y", "\x1b[2Jx", '"', "é\u202e"]


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("key", ["inventory", "profile", "ssh_key", "store", "host", "role", "asked"])
def test_whatever_a_record_holds_the_command_stays_one(key: str, value: str) -> None:
    finding = dataclasses.replace(HELD, role=value) if key == "role" else HELD
    run = made(finding, options={"asked": value if key == "asked" else {**ASKED, key: value}})
    if key == "host":
        run = dataclasses.replace(run, host=value)
    words = repair(short(run))
    assert words[:2] == ["gpuprep", "provision"]
    if key in ("inventory", "profile", "ssh_key", "store") and value.isprintable():
        assert any(word == value or word.endswith(f"={value}") or word == f"-i{value}" for word in words)


def test_commands_in_a_remedy_get_the_host_and_nothing_else_becomes_one() -> None:
    def told(remedy: str) -> str:
        whole = reports.render(made(dataclasses.replace(HOT, remedy=remedy)), "html")
        return html.unescape(re.sub("</?code>", "`", whole))

    page = told("see `gpuprep validate HOST --profile PROFILE --quick`, or `nvidia-smi`")
    assert "see `gpuprep validate -i 'my inv.yml' web1 --profile './t4 own.yml' --quick" in page
    assert "or `nvidia-smi`" in page
    for evil in ("`gpuprep validate HOST; rm -rf /`", "`gpuprep $(id) HOST`", "`gpuprep x HOST | sh`"):
        assert evil in told(evil)


def test_no_password_is_in_a_command() -> None:
    assert kept_options(hosts=("web1",), store="postgresql://u:se cret@db/x") == {"hosts": ["web1"]}


@pytest.mark.parametrize("role", sorted(path.name for path in (COLLECTION / "roles").glob("gpu_*")))
def test_each_step_that_a_finding_names_can_be_repaired(role: str) -> None:
    """Of a role that --only does not take, the command is the whole of provision."""
    words = repair(short(made(dataclasses.replace(HELD, role=role))))
    alone = [] if role == "gpu_preflight" else ["--only", role.removeprefix("gpu_")]
    assert [word for word in words if word == "--only" or word == role.removeprefix("gpu_")] == (
        [] if role == "gpu_tuning" else alone
    )


def test_statuses_have_their_colours() -> None:
    page = short(made(OFF, HOT, *PASSED, *MISSING), color=True)
    for code, word in (("31", "FAIL"), ("33", "WARN"), ("36", "skipped")):
        assert f"\x1b[{code}m{word}" in page
    assert re.sub(r"\x1b\[\d+m", "", page) == short(made(OFF, HOT, *PASSED, *MISSING))


# ---------------------------------------------------------------- several hosts


def many(count: int, *bad: records.RunRecord) -> list[records.RunRecord]:
    """`count` hosts; every third has one of `bad`."""
    hosts = []
    for number in range(count):
        run = bad[number // 3 % len(bad)] if bad and number % 3 == 0 else made(*PASSED)
        hosts.append(dataclasses.replace(run, host=f"gpu-{number:02d}", run_id=f"20261120-100000-{number:06x}"))
    return hosts


def unlike(count: int) -> list[records.RunRecord]:
    """Each host with faults of its own."""
    made_of = [
        made(*(dataclasses.replace(HOT, property=f"p{number}_{n}", status=records.Status.FAIL) for n in range(9)))
        for number in range(count)
    ]
    return [dataclasses.replace(one, host=f"gpu-{number:02d}") for number, one in enumerate(made_of)]


def lost() -> records.RunRecord:
    return dataclasses.replace(
        made(*PASSED), verdict=None, findings=(), exit_code=3, error="web1: no answer\nwhat to do: x"
    )


@pytest.mark.parametrize(
    "hosts",
    [many(60), many(60, made(OFF), made(HELD, HOT), lost()), unlike(60), [*unlike(55), *many(5)], many(60, lost())],
)
def test_sixty_hosts_are_no_more_than_80_lines(hosts: list[records.RunRecord]) -> None:
    page = printed(*hosts)
    assert len(page.splitlines()) <= 80, page
    assert re.fullmatch(r"(\d+ [A-Z]+, )*\d+ [A-Z]+ of 60", page.splitlines()[-1])


def test_hosts_with_one_cause_are_told_it_once_and_repaired_by_one_command() -> None:
    page = printed(*many(60, made(OFF), made(HELD)))
    assert " ".join(page.split()).count("the driver unloads between jobs") == 1
    assert "(10 hosts: gpu-00, gpu-06, gpu-12, gpu-18, gpu-24, gpu-30 and 4 more)" in " ".join(page.split())
    (line,) = [line for line in page.splitlines() if line.startswith("To repair it: ")]
    words = shlex.split(line)[3:]
    assert words[:4] == ["gpuprep", "provision", "-i", "my inv.yml"]
    assert [word for word in words if word.startswith("gpu-")] == [f"gpu-{number:02d}" for number in range(0, 60, 3)]
    assert hints.problem(shlex.join(words)) == ""


def test_with_everything_the_page_of_each_host_stands_above_the_table() -> None:
    for page in (
        printed(*many(3, made(OFF)), everything=True),
        fleet(*many(3, made(OFF)), everything=True),
    ):
        assert page.count("Passed (90)") == 2
        assert page.splitlines()[-1] == "2 PASS, 1 FAIL of 3"


def test_very_many_hosts_are_named_by_the_pattern_that_was_typed() -> None:
    asked = {**ASKED, "limit": "rack-4:&t4"}
    hosts = [dataclasses.replace(made(OFF, options={"asked": asked}), host=f"gpu-{n}") for n in range(61)]
    words = repair(printed(*hosts, everything=False))
    assert words[:9] == [
        "gpuprep",
        "tune",
        "-i",
        "my inv.yml",
        "--limit",
        "rack-4:&t4",
        "gpus",
        "--profile",
        "./t4 own.yml",
    ]
    assert hints.problem(shlex.join(words)) == ""


def test_the_worst_stand_first_and_an_error_is_one_cause_of_many() -> None:
    page = printed(*many(4, made(HOT)), dataclasses.replace(lost(), host="gone"))
    rows = page[page.index("HOST") :].splitlines()[1:6]
    assert [row.split()[1] for row in rows] == ["UNKNOWN", "WARN", "WARN", "PASS", "PASS"]
    page = printed(*(dataclasses.replace(lost(), host=f"h{n}", error=f"h{n}: no answer") for n in range(9)))
    assert page.count("no answer (9 hosts: ") == 1


def test_a_command_for_one_gpu_names_that_gpu_and_never_one_of_several() -> None:
    remedy = "reset it (`sudo nvidia-smi -r -i INDEX`)"
    one, other = (dataclasses.replace(HOT, subject=f"gpu {index}", remedy=remedy) for index in (3, 5))
    assert "`sudo nvidia-smi -r -i 3`" in short(made(one))
    both = short(made(one, other))
    assert "gpu 3: temperature; gpu 5: temperature" in both
    assert "`sudo nvidia-smi -r -i INDEX`" in both
