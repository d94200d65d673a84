"""Every change by hand is found and named, and nothing else is; what its finding says repairs it; nights are silent."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import amount
import pytest
import yaml
from machines import UNMEASURED, Done, Finished, gpuprep, inside, must
from nvmlbench import FAULTS

pytestmark = pytest.mark.e2e

HERE = Path(__file__).parent
UNDONE = {case["what"]: case for case in yaml.safe_load((HERE / "undo.yml").read_text())}
CASES: list[dict[str, Any]] = [
    {**UNDONE.get(case.get("undone", ""), {}), **case}
    for case in yaml.safe_load((HERE / "drift.yml").read_text())
    if amount.ALL or not case.get("slow")
]
# Changes at a time: each must be found by its own names, and nothing else.
MOST = 8
NIGHTS = 30 if amount.ALL else 6
RESULTS = "/var/lib/gpuprep/drift"


def drift(machine: Finished, *options: str) -> Done:
    return gpuprep("drift", machine.host, "--profile", machine.profile, "--json", *options)


def found(done: Done) -> dict[str, dict[str, Any]]:
    """What neither passed nor was left out, by key."""
    assert done.exit_code in (0, 1, 3), done.text
    (run,) = done.json()["runs"]
    assert run["verdict"], run["error"]
    return of_record(run)


def of_record(run: dict[str, Any]) -> dict[str, dict[str, Any]]:
    findings = run["verdict"]["findings"]
    assert len(findings) > 60, "nothing much was compared"
    return {f"{f['subject']}.{f['property']}": f for f in findings if f["status"] not in ("PASS", "SKIP")}


def certify(machine: Finished) -> Finished:
    must("validate", machine.host, "--profile", machine.profile, *UNMEASURED)
    must("baseline", "set", machine.host, "last", "--reason", "what other tests left")
    assert found(drift(machine)) == {}
    return machine


@pytest.fixture(scope="module")
def one(t4_copy: Finished) -> Finished:
    """The last tests of this machine: what is put back by hand is as good to drift, and not to the letter."""
    return certify(t4_copy)


@pytest.fixture(scope="module")
def two(a100: Finished) -> Finished:
    return certify(a100)


def name_of(case: dict[str, Any]) -> str:
    return case.get("what") or f"fault {case['fault']}"


def batches() -> list[list[dict[str, Any]]]:
    """The cases, those together that touch different files and are found by different names."""
    made: list[list[dict[str, Any]]] = []
    for case in CASES:
        at_hand = (batch for batch in made if len(batch) < MOST and all(apart(case, other) for other in batch))
        batch = next(at_hand, None)
        if batch is None:
            made.append([case])
        else:
            batch.append(case)
    return made


def apart(case: dict[str, Any], other: dict[str, Any]) -> bool:
    if case.get("alone") or other.get("alone") or ("fault" in case) != ("fault" in other):
        return False
    if case.get("exit") != other.get("exit"):
        return False
    return touched(case).isdisjoint(touched(other)) and set(case["found"]).isdisjoint(other["found"])


def touched(case: dict[str, Any]) -> set[str]:
    """The files of a change by hand, the values of a fault."""
    if "fault" in case:
        fault = FAULTS[case["fault"]]
        return {*fault.get("gpu", ()), *fault.get("present", ())}
    return set(re.findall(r"(?<![\w.])/[\w./*-]{4,}", case["undo"])) - {"/dev/null", "/root/"}


BATCHES = batches()
NAMES = [name_of(batch[0]) if len(batch) == 1 else f"{len(batch)} from {name_of(batch[0])}" for batch in BATCHES]


@pytest.fixture
def changed(request: pytest.FixtureRequest, one: Finished) -> Iterator[list[dict[str, Any]]]:
    """The machine with these changes, put back afterwards. The next test sees whether they were: it finds its own."""
    batch: list[dict[str, Any]] = request.param
    try:
        for case in batch:
            if "fault" in case:
                must("sim", "fault", one.machine, case["fault"])
            else:
                inside(one.machine, case["undo"])
        yield batch
    finally:
        for case in batch:
            if "fault" in case:
                must("sim", "fault", one.machine, case["fault"], "--clear")
        if amount.ALL and any(case.get("certifies") for case in batch):
            certify(one)
        left = found(drift(one))  # what its own words did not repair
        for case in reversed(batch):
            if "redo" in case and (not case["found"] or left.keys() & set(case["found"])):
                inside(one.machine, case["redo"])
        inside(one.machine, "rm -rf /root/* /opt/mine")  # what a change had kept to be put back, or its words leave


# ---------------------------------------------------------------- what a finding says, as a person does it

HOST_COMMAND = re.compile(r"`(sudo (?!fuser )[^`]*)`")  # fuser only shows something
OURS = re.compile(r"`gpuprep ([^`]*)`")
LINE_OUT = re.compile(r"remove the line `([^`]*)` from (/[^\s,;]+)")
LINE_IN = re.compile(r"write the line `([^`]*)` into (/[^\s,;]+) again")
WORD_OUT = re.compile(r"remove `([^`]*)` from the line `([^`]*)` of (/[^\s,;]+)")
STANZA_OUT = re.compile(r"remove the stanza `(Package: [^`]*)` from (/[^\s,;]+)")
CORRECT = re.compile(r"correct or remove it; .*?: (/[^\s,;]+)")
# Not where a reset is said to do as well: that is typed.
RESTART = re.compile(r"(?:^|; )(?:then )?reboot(?!, or)|^stop the machine and start it again|, then reboot")
# What no command repairs (`stays` in drift.yml): somebody has to look at the board, or to give another one.
CALL = re.compile(r"provider|server's maker|watch it")
EDIT = r"""
import re, sys
path, kind, what, whole = sys.argv[1:]
text = open(path).read()
if kind == "line":
    text = "".join(line for line in text.splitlines(True) if line.strip() != what)
elif kind == "in":
    text += what + "\n"
elif kind == "word":
    text = "".join(line.replace(what, "") if line.strip() == whole else line for line in text.splitlines(True))
else:
    text = "\n\n".join(stanza for stanza in re.split(r"\n\s*\n", text) if what not in stanza)
open(path, "w").write(text)
"""


def by_hand(machine: Finished, remedy: str, *, edits: bool) -> None:
    """Do on the host what the words ask for, in their order: the files to edit, or the commands to type."""
    steps: list[tuple[int, str]] = []
    kinds = (("line", LINE_OUT), ("in", LINE_IN), ("word", WORD_OUT), ("stanza", STANZA_OUT))
    for kind, pattern in kinds if edits else ():
        for found in pattern.finditer(remedy):
            what, *whole, path = found.groups()
            words = [path, kind, what, whole[0] if whole else ""]
            steps.append((found.start(), shlex.join(["python3", "-c", EDIT, *words])))
    pattern = CORRECT if edits else HOST_COMMAND
    steps += [(found.start(), f"rm {found[1]}" if edits else found[1]) for found in pattern.finditer(remedy)]
    for _, command in sorted(steps):
        inside(machine.machine, command.replace("apt-get ", "apt-get -qq -y "))


def type_what_is_printed(machine: Finished) -> None:
    """The command below "To repair it", typed as it stands."""
    page = gpuprep("drift", machine.host, "--profile", machine.profile).text
    printed = re.search(r"To repair it:\n +gpuprep (.*)\n", page)
    if printed:  # else --fix has repaired what the other findings followed from
        done = gpuprep(*shlex.split(printed[1]))
        assert done.exit_code in (0, 1), done.text[-4000:]


def repair(machine: Finished, seen: dict[str, dict[str, Any]]) -> set[str]:
    """What the findings say, typed as it stands: first what only a person does, then --fix, then the printed command.

    Returns whose words were not typed: a role, a restart or a validation takes minutes, and is for `make test-all`.
    """
    remedies = {
        key: finding["remedy"].partition("; or: ")[0].replace("INDEX", finding["subject"].removeprefix("gpu "))
        for key, finding in seen.items()
    }
    fixed = [key for key, remedy in remedies.items() if remedy.endswith("--fix` puts it back")]
    for edits in (True, False):  # apt installs nothing while its preferences are malformed
        for key, remedy in remedies.items():
            if key not in fixed and not seen[key]["role"]:
                by_hand(machine, remedy, edits=edits)
    if fixed:
        done = gpuprep("drift", machine.host, "--profile", machine.profile, "--fix")
        assert done.exit_code in (0, 1, 3), done.text[-4000:]
        assert "FAILED" not in done.text, done.text
    by_role = {key for key in remedies if seen[key]["role"] and key not in fixed}
    restarted = {key for key, remedy in remedies.items() if RESTART.search(remedy)}
    ours = {
        key: OURS.findall(remedy)
        for key, remedy in remedies.items()
        if key not in {*fixed, *by_role} and not (CALL.search(remedy) or HOST_COMMAND.search(remedy))
    }
    if not amount.ALL:
        return by_role | restarted | {key for key, commands in ours.items() if commands}
    for command in (command for commands in ours.values() for command in commands):
        must(*shlex.split(command.replace("HOST", machine.host).replace("PROFILE", machine.profile)))
    if by_role:
        type_what_is_printed(machine)
    if restarted:
        must("sim", "down", "--keep", machine.machine)
        must("sim", "up", machine.machine)
    return set()


# Faults of `gpuprep sim fault --list` that no drift without a measurement finds, and where they are played.
PLAYED_ELSEWHERE = {
    "test_validate.py": {
        "slow_compute",
        "slow_memory",
        "memory_defect",
        "pcie_gen1",
        "nvenc_sessions",
        "other_process",
    },
    "test_drift_fix.py": {"clocks_stuck"},
    "../unit/sim/test_sim_nvml.py": {"application_clocks_removed"},
    "../unit/sim/test_sim_health.py": {"asks_reboot", "asks_reset"},
    Path(__file__).name: {  # of two A100
        "gpu_order",
        "mig",
        "remap_failure",
        "no_spare_rows",
        "sram_threshold",
        "nvlink_down",
    },
}


def test_every_change_of_the_other_table_is_tried() -> None:
    assert {case["undone"] for case in CASES if "undone" in case} == set(UNDONE)
    elsewhere = {fault: HERE / file for file, faults in PLAYED_ELSEWHERE.items() for fault in faults}
    of_systems = {kind for kind, fault in FAULTS.items() if "met" in fault}  # test_faults.py
    assert set(FAULTS) == {case["fault"] for case in CASES if "fault" in case} | set(elsewhere) | of_systems
    assert all(fault in file.read_text() for fault, file in elsewhere.items())


@pytest.mark.parametrize("changed", BATCHES, ids=NAMES, indirect=True)
def test_a_change_is_found_and_what_is_said_repairs_it(changed: list[dict[str, Any]], one: Finished) -> None:
    done = drift(one)
    seen = found(done)
    assert sorted(seen) == sorted(key for case in changed for key in case["found"]), json.dumps(seen, indent=1)
    assert done.exit_code == changed[0].get("exit", 1)
    for finding in seen.values():
        assert finding["reason"]
        assert finding["remedy"]
        assert finding["since"]
    untyped = repair(one, seen).union(*(case["found"] for case in changed if case.get("backup")))
    left = {key: finding for key, finding in found(drift(one)).items() if key not in untyped}
    # No build has the bytes of the last, but DKMS may still have had that one.
    if amount.ALL and {"driver.dkms", "driver.uvm_module"} & seen.keys() and "libraries.contents" in left:
        assert "`gpuprep baseline set" in left["libraries.contents"]["remedy"]
        certify(one)
        left = {}
    stay = {key for case in changed if "stays" in case for key in case["found"]}
    assert set(left) <= stay.union(*(case.get("then", ()) for case in changed)), json.dumps(left, indent=1)
    assert all(CALL.search(seen[key]["remedy"]) for key in stay)


def test_after_all_that_there_is_nothing_to_say(one: Finished) -> None:
    assert found(drift(one)) == {}


@pytest.mark.parametrize(
    ("fault", "gpu", "keys", "named"),
    amount.third(
        [
            ("gpu_order", 0, ["gpus.order"], "was gpu 0"),
            ("gpu_missing", 0, ["gpus.identity"], "is not there"),
            ("gpu_missing", 1, ["gpus.identity"], "is not there"),
            ("gpu_swapped", 1, ["gpus.identity"], "GPU-5eca9ed0"),
            ("mig", 1, ["gpu 1.mig"], "on"),
            ("remap_failure", 1, ["gpu 1.remapped_rows", "gpu 1.spare_rows"], "one failed"),
            ("no_spare_rows", 1, ["gpu 1.spare_rows", "gpu 1.memory_defects"], "1 with none left"),
            ("sram_threshold", 0, ["gpu 0.ecc_errors"], "0 uncorrected"),
            ("nvlink_down", 0, ["gpu 0.nvlinks"], "1 of 12 up"),
            ("memory_repaired", 1, ["gpu 1.memory_defects"], "rows remapped after uncorrectable errors: was 0, is 1"),
        ]
    ),
)
def test_of_two_gpus(two: Finished, fault: str, gpu: int, keys: list[str], named: str) -> None:
    must("sim", "fault", two.machine, fault, "--gpu", str(gpu))
    try:
        done = drift(two)
    finally:
        must("sim", "fault", two.machine, fault, "--gpu", str(gpu), "--clear")
    seen = found(done)
    assert set(seen) == set(keys), json.dumps(seen, indent=1)
    assert named in seen[keys[0]]["actual"]
    assert all(finding["remedy"] for finding in seen.values())
    assert done.exit_code == 1
    assert found(drift(two)) == {}


def test_nights_are_silent(one: Finished) -> None:
    """The check of the host itself, with the clock a night further each time (libfaketime), a reboot in the middle."""
    inside(one.machine, f"command -v faketime || apt-get install -qq -y faketime; rm -rf {RESULTS}")
    must("drift", "schedule", one.host, "--profile", one.profile)
    try:
        for nights in (range(1, NIGHTS // 2 + 1), range(NIGHTS // 2 + 1, NIGHTS + 1)):
            # Else how long the machine is up would be the time since 1970, which no machine is.
            night = 'FAKETIME_DONT_FAKE_MONOTONIC=1 faketime -f "+$n"d gpuprep-drift run >/dev/null'
            each = f"{night}; cp {RESULTS}/last.json /root/night-$n.json"
            script = f"set -e; for n in {' '.join(map(str, nights))}; do {each}; done"
            inside(one.machine, script)
            must("sim", "down", "--keep", one.machine)
            must("sim", "up", one.machine)
        records = [json.loads(inside(one.machine, f"cat /root/night-{n}.json").stdout) for n in range(1, NIGHTS + 1)]
    finally:
        must("drift", "unschedule", one.host)
        inside(one.machine, f"rm -rf {RESULTS} /root/night-*.json")
    assert [of_record(record) for record in records] == [{}] * NIGHTS
    assert len({record["started_at"][:10] for record in records}) == NIGHTS
    assert len({record["after"]["kernel"]["boot_id"] for record in records}) == 2
    assert all(record["drift"]["certified_run"] for record in records)
    assert [bool(record["drift"]["previous_run"]) for record in records] == [False] + [True] * (NIGHTS - 1)
