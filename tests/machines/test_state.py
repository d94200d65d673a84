"""The independent suite passes on finished machines, and sees each single part that a hand undoes. So does gpuprep."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import amount
import pytest
import yaml
from machines import UNMEASURED, Finished, gpuprep, inside, must

pytestmark = pytest.mark.e2e

HERE = Path(__file__).parent
UNDO: list[dict[str, Any]] = yaml.safe_load((HERE / "undo.yml").read_text())
TOGETHER = [[case for case in UNDO if case["together"] == number] for number in sorted({c["together"] for c in UNDO})]
# What gpuprep's findings call each of them.
FOUND = {case["undone"]: case["found"] for case in yaml.safe_load((HERE / "drift.yml").read_text()) if "undone" in case}
NO_BRACKETS = str.maketrans("[]", "()")


def suite(finished: Finished) -> tuple[int, str]:
    """Run tests/machines/state against the machine, over its own SSH; exit code and output."""
    (machine,) = [m for m in must("sim", "list", "--json").json()["machines"] if m["name"] == finished.machine]
    # Not pytest's own folder: the path of an SSH control socket may not be longer than about 100 bytes.
    with tempfile.TemporaryDirectory(prefix="state-") as folder:
        scratch = Path(folder)
        profile = scratch / "profile.json"
        profile.write_text(must("profiles", "show", finished.profile, "--json").stdout)
        config = scratch / "ssh_config"
        config.write_text(
            f"Host machine\n  HostName 127.0.0.1\n  Port {machine['port']}\n  User {machine['user']}\n"
            f"  IdentityFile {machine['identity_file']}\n  UserKnownHostsFile {machine['known_hosts']}\n"
            f"  ControlMaster auto\n  ControlPath {scratch}/%C\n  ControlPersist 5\n"
        )
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", "-m", ""]
        command += [f"--ssh-config={config}", "--hosts=ssh://machine", "--sudo", str(HERE / "state")]
        ours = ("PYTEST_ADDOPTS", "GPUPREP_REQUIRE_E2E")  # of this run of pytest
        own = {name: value for name, value in os.environ.items() if name not in ours}
        environment = {**own, "GPUPREP_STATE_PROFILE": str(profile)}
        root = HERE.parent.parent
        done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=root, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("machine", ["t4", "a100", pytest.param("v100", marks=pytest.mark.only_all)])
def test_the_whole_state(machine: str, request: pytest.FixtureRequest) -> None:
    finished: Finished = request.getfixturevalue(machine)
    code, output = suite(finished)
    assert code == 0, output
    assert " passed" in output


@pytest.mark.parametrize("group", TOGETHER, ids=[f"{len(cases)} parts" for cases in TOGETHER])
def test_each_part_undone_is_seen(group: list[dict[str, Any]], t4: Finished) -> None:
    for case in group:
        inside(t4.machine, case["undo"])
    try:
        code, output = suite(t4)
        verdict = gpuprep("validate", t4.host, "--profile", t4.profile, *UNMEASURED, "--json")
    finally:
        for case in reversed(group):
            inside(t4.machine, case["redo"])
    assert code == pytest.ExitCode.TESTS_FAILED, output
    failed = re.findall(r"^FAILED .*::(.*?)(?: - .*)?$", output, re.M)
    unseen = [case["what"] for case in group if not any(fits(name, case["seen_by"]) for name in failed)]
    assert unseen == [], f"the independent suite failed in {failed}\n{output}"
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|error)", output.splitlines()[-1])}
    assert counts.get("passed", 0) > 25, f"the machine cannot be reached, or more is wrong than was undone:\n{output}"
    assert verdict.exit_code in (1, 3), verdict.text
    (run,) = verdict.json()["runs"]
    seen = [f for f in run["verdict"]["findings"] if f["status"] in ("FAIL", "UNKNOWN", "WARN")]
    keys = {f"{finding['subject']}.{finding['property']}" for finding in seen}
    assert [case["what"] for case in group if not keys & set(FOUND[case["what"]])] == [], seen
    assert all(finding["remedy"] for finding in seen if finding["status"] == "FAIL"), seen


def fits(test: str, pattern: str) -> bool:
    """Whether a test, "test_x[ssh://machine-y]", is of the pattern "test_x[*y]", whose brackets are only brackets."""
    return fnmatchcase(test.translate(NO_BRACKETS), pattern.translate(NO_BRACKETS))


# The task that writes provenance.json at the end of each run.
PROVENANCE = ("gpu_agent", "Record what is installed, from where, and by which run")
# Commands that undo a part, and the roles that put it back.
REPAIRED = {
    "apt-mark unhold libcuda1": {"gpu_driver"},
    "rm /etc/modprobe.d/gpuprep-nvidia.conf": {"gpu_driver"},
    "systemctl disable --now nvidia-persistenced": {"gpu_tuning"},
    "rm /etc/ld.so.conf.d/gpuprep.conf && ldconfig": {"gpu_cudnn"},
    "sed -i '/^PATH=/d' /etc/environment": {"gpu_cuda"},
    "rm /etc/gpuprep/provenance.json /etc/apt/apt.conf.d/52gpuprep-holds": {"gpu_driver"},
    "DEBIAN_FRONTEND=noninteractive apt-get remove -qq -y --allow-change-held-packages tmux libnvidia-encode1": {
        "gpu_extras", "gpu_driver"
    },
    # FFmpeg is then built anew, which takes minutes; test_codec.py has the same with a small build.
    **({"printf x >>$(realpath /usr/local/bin/ffmpeg)": {"gpu_codec"}} if amount.ALL else {}),
}  # fmt: skip


def test_provision_repairs_what_was_undone_and_nothing_else(t4: Finished) -> None:
    for command in REPAIRED:
        inside(t4.machine, command)
    done = must("provision", t4.host, "--profile", t4.profile, "--deep", "--no-validate", "--json")
    (run,) = done.json()["runs"]
    tasks, undone = run["playbook"]["tasks"], set().union(*REPAIRED.values())
    assert {task["role"] for task in tasks} >= {*undone, "gpu_agent", "gpu_codec"}
    changed = {(task["role"], task["task"]) for task in tasks if task["outcome"] == "changed"}
    assert {role for role, _ in changed - {PROVENANCE}} == undone, changed
    code, output = suite(t4)
    assert code == 0, output
    must("validate", t4.host, "--profile", t4.profile, *UNMEASURED)
