"""From an empty VM to a finished one, with real packages; and again, which finds nothing to do."""

from __future__ import annotations

import re

import pytest
from machines import UNMEASURED, Finished, inside, must
from pages import too_wide

pytestmark = pytest.mark.e2e


def test_ends_with_a_verdict_marked_simulated(t4: Finished) -> None:
    assert "PASS" in t4.run.stdout
    assert "simulated" in t4.run.stdout
    assert re.search(r"gpuprep report \S+", t4.run.text)


def test_what_the_demo_promises(t4: Finished) -> None:
    kernel = inside(t4.machine, "uname -r").stdout.strip()
    assert re.search(rf"nvidia.*{re.escape(kernel)}.*installed", inside(t4.machine, "dkms status").stdout)
    assert "release 12.4" in inside(t4.machine, "nvcc --version").stdout
    encoders = inside(t4.machine, "ffmpeg -hide_banner -encoders").stdout
    assert "h264_nvenc" in encoders
    assert "hevc_nvenc" in encoders
    assert "cuda" in inside(t4.machine, "ffmpeg -hide_banner -hwaccels").stdout
    assert "scale_cuda" in inside(t4.machine, "ffmpeg -hide_banner -filters").stdout


# Each package, and the source package that it is built from.
SOURCES = "dpkg-query -W -f '${Package} ${source:Package}\\n'"
# Tasks of check mode alone, which stand for what cannot be foreseen task by task: a build, an unpacked wheel.
ANNOUNCEMENTS = ("Say that ", "Would ")
# Check mode cannot know that the driver's package starts its daemon by itself.
DONE_BY_PACKAGES = {("gpu_tuning", "Start the persistence daemon now and at every boot")}


def test_check_mode_foresaw_what_the_run_changed(t4: Finished) -> None:
    """Tasks that changed something, without those that check mode cannot know: what a restart or a build leads to."""
    record = t4.made_by()
    real = {(t["role"], t["task"]) for t in record["playbook"]["tasks"] if t["outcome"] == "changed"}
    (foreseen,) = t4.checked().json()["runs"]
    promised = {(t["role"], t["task"]) for t in foreseen["playbook"]["tasks"] if t["outcome"] == "changed"}
    named = {(role, task) for role, task in promised if not task.startswith(ANNOUNCEMENTS)} - DONE_BY_PACKAGES
    assert named
    assert named <= real, named - real
    assert {role for role, _ in promised} == {role for role, _ in real}


def test_a_finished_host_is_recognised_without_ansible(t4: Finished) -> None:
    again = must("provision", t4.host, "--profile", t4.profile, "--json").json()
    (run,) = again["runs"]
    assert run["plan"]["steps"] == []
    assert run["playbook"]["status"] == "not needed"
    assert run["verdict"]["status"] == "PASS"
    assert run["source"] == "simulated"


def test_plan_of_a_finished_host_is_empty(t4: Finished) -> None:
    (run,) = must("plan", t4.host, "--profile", t4.profile, "--json").json()["runs"]
    assert run["plan"]["steps"] == []


@pytest.mark.only_all  # test_state.py: it changes only what was undone
def test_deep_runs_every_role_and_changes_nothing(t4: Finished) -> None:
    (run,) = must("provision", t4.host, "--profile", t4.profile, "--deep", "--no-validate", "--json").json()["runs"]
    roles = {task["role"] for task in run["playbook"]["tasks"]}
    assert {"gpu_driver", "gpu_agent", "gpu_tuning", "gpu_cuda", "gpu_cudnn", "gpu_codec", "gpu_extras"} <= roles
    changed = [task for task in run["playbook"]["tasks"] if task["outcome"] == "changed"]
    assert (run["playbook"]["changed"], changed) == (0, [])


@pytest.mark.only_all  # that check mode names what differs and nothing else: test_drift_fix.py
def test_deep_check_diff_is_empty(t4: Finished) -> None:
    done = must("provision", t4.host, "--profile", t4.profile, "--check", "--diff", "--deep", "--json")
    (run,) = done.json()["runs"]
    assert run["playbook"]["changed"] == 0
    assert not re.search(r"^(---|\+\+\+|[+-]\S)", done.stderr, re.M), done.stderr


def test_report_and_history_know_the_run(t4: Finished) -> None:
    record = t4.made_by()
    text = must("report", record["run_id"], "--format", "text").stdout
    assert "simulated" in text
    assert too_wide(text) == []
    assert record["after"]["driver"]["loaded_version"].startswith("550.")


def test_everything_outlives_a_reboot(t4: Finished) -> None:
    before = inside(t4.machine, "cat /proc/sys/kernel/random/boot_id; uptime -s").stdout
    inside(t4.machine, "systemctl reboot", check=False)
    # `sim up` of a machine that is there waits until it answers.
    must("sim", "up", t4.machine)
    (run,) = must("validate", t4.host, "--profile", t4.profile, *UNMEASURED, "--json").json()["runs"]
    assert run["verdict"]["status"] == "PASS", run["verdict"]["summary"]
    assert before


def test_tuning_outlives_a_restart_of_the_daemon(t4: Finished) -> None:
    inside(t4.machine, "nvidia-smi -rac && nvidia-smi -pl 62 && systemctl restart nvidia-persistenced")
    (run,) = must("validate", t4.host, "--profile", t4.profile, *UNMEASURED, "--json").json()["runs"]
    assert run["verdict"]["status"] == "PASS", run["verdict"]["summary"]


def test_tune_puts_the_clocks_back(t4: Finished) -> None:
    inside(t4.machine, "nvidia-smi -rac")
    must("validate", t4.host, "--profile", t4.profile, *UNMEASURED, exit_code=1)
    must("tune", t4.host, "--profile", t4.profile)
    must("validate", t4.host, "--profile", t4.profile, *UNMEASURED)


def test_packages_the_profile_does_not_name_are_left_alone(t4: Finished) -> None:
    manual = inside(t4.machine, "apt-mark showmanual").stdout.split()
    assert {"openssh-server", "sudo", "python3"} <= set(manual)
    log = t4.apt_log
    assert "Install:" in log
    assert not re.search(r"^(Remove|Purge|Downgrade):", log, re.M), log
    # A point release after the disk was made: libc6-dev needs the libc6 of its own version. Nothing else may be newer.
    sources = dict(line.split() for line in inside(t4.machine, SOURCES).stdout.splitlines())
    upgraded, brought = packages(log, "Upgrade"), packages(log, "Install")
    assert {sources[name] for name in upgraded} <= {sources[name] for name in brought}, upgraded


def packages(log: str, step: str) -> set[str]:
    """The packages that apt's history names in the lines of a step."""
    lines = re.findall(rf"^{step}: (.*)$", log, re.MULTILINE)
    return {name for line in lines for name in re.findall(r"([^\s:]+):\w+ \(", line)}
