"""The hooks on a finished machine: Debian's own Slurm runs ours by its contract, and an ordinary user may ask.

slurmctld and slurmd run on a clone of the shared T4, which is gone afterwards. What they are told is a real check of
that machine, and the same with another verdict.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any

import finished
import pytest
from machines import UNMEASURED, Finished, gpuprep, inside, must
from waiting import until

pytestmark = pytest.mark.e2e

NAME = "e2e-slurm"
LAST = "/var/lib/gpuprep/drift/last.json"
SLURM_CONF = f"""
ClusterName=simulated
SlurmctldHost={NAME}
SlurmUser=slurm
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
StateSaveLocation=/var/lib/slurm/slurmctld
SlurmdSpoolDir=/var/lib/slurm/slurmd
SlurmdLogFile=/var/log/slurm/slurmd.log
HealthCheckProgram=/etc/slurm/gpuprep-health
HealthCheckInterval=1
HealthCheckNodeState=ANY
NodeName={NAME} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
"""
HEALTH = "#!/bin/sh\nexec /usr/local/bin/gpuprep-drift slurm --resume\n"
# policy-rc.d: without a slurm.conf the start of slurmd lasts until systemd gives it up after 90 seconds.
INSTALL = f"""
printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d && chmod 755 /usr/sbin/policy-rc.d
apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \\
  slurmctld slurmd slurm-client munge >/dev/null
printf %s '{SLURM_CONF}' >/etc/slurm/slurm.conf
printf %s '{HEALTH}' >/etc/slurm/gpuprep-health && chmod 755 /etc/slurm/gpuprep-health
install -d -o slurm -g slurm /var/lib/slurm/slurmctld /var/lib/slurm/slurmd /var/log/slurm
systemctl restart munge slurmctld && systemctl restart slurmd
"""


@pytest.fixture(scope="module")
def node(from_nothing: Finished) -> Iterator[str]:
    """A clone of the T4 that is a node of its own small cluster, with a result of its own."""
    gpuprep("sim", "down", NAME)
    must("sim", "up", NAME, "--clone-of", finished.disk())
    try:
        must("drift", "schedule", f"sim:{NAME}", "--profile", from_nothing.profile)
        inside(NAME, "gpuprep-drift run")
        inside(NAME, INSTALL)
        yield NAME
    finally:
        gpuprep("sim", "down", NAME)


@pytest.fixture(scope="module")
def passed(node: str) -> dict[str, Any]:
    """What the machine's own check said of it."""
    found: dict[str, Any] = json.loads(inside(node, f"cat {LAST}").stdout)
    assert found["verdict"]["status"] == "PASS"
    return found


def leave(record: dict[str, Any], status: str, *keys: str, hours: int = 0) -> None:
    """The same check with another verdict, `hours` ago, in the place of the last one."""
    ended = datetime.now(timezone.utc).timestamp() - hours * 3600
    findings = list(record["verdict"]["findings"])
    for key in keys:
        subject, _, name = key.partition(".")
        findings.insert(0, {**findings[0], "subject": subject, "property": name, "status": status})
    document = {
        **record,
        "ended_at": datetime.fromtimestamp(ended, timezone.utc).isoformat(),
        "verdict": {"status": status, "summary": status, "findings": findings},
    }
    inside(NAME, f"cat >{LAST}.new <<'END' && mv {LAST}.new {LAST}\n{json.dumps(document)}\nEND")


def shown(field: str) -> str:
    """State or Reason of the node, as Slurm shows it."""
    text = inside(NAME, f"scontrol show node {NAME}").stdout
    return next((line.strip() for line in text.splitlines() if line.strip().startswith(f"{field}=")), "")


def wait_for_state(state: str) -> None:
    until(lambda: shown("State").split()[0] == f"State={state}", f"the node did not become {state}: {shown('State')}")


def test_slurm_drains_a_node_that_drifted_and_takes_it_back(node: str, passed: dict[str, Any]) -> None:
    leave(passed, "PASS")
    wait_for_state("IDLE")
    leave(passed, "FAIL", "gpu 0.persistence_mode")
    wait_for_state("IDLE+DRAIN")
    assert shown("Reason").startswith("Reason=gpuprep: (simulated) gpu 0.persistence_mode [root@")
    leave(passed, "FAIL", "gpu 0.persistence_mode", "driver.loaded_version")
    until(lambda: "driver.loaded_version" in shown("Reason"), "the reason did not follow")
    leave(passed, "PASS")
    wait_for_state("IDLE")
    assert not shown("Reason").startswith("Reason=gpuprep:")  # or a later drain of Slurm's own would look like ours
    log = inside(node, "cat /var/log/slurm/slurmd.log").stdout
    assert "rc:1 output:gpuprep FAIL (simulated): " in log


def test_a_repair_from_the_controller_frees_the_node_and_so_does_now(node: str, from_nothing: Finished) -> None:
    host = f"sim:{node}"
    must("validate", host, "--profile", from_nothing.profile, *UNMEASURED)
    for repair in (["--profile", from_nothing.profile, "--fix"], ["--now"]):
        inside(node, "nvidia-smi -rac")
        must("drift", host, "--now", exit_code=1)
        wait_for_state("IDLE+DRAIN")
        if "--now" in repair:
            inside(node, "systemctl restart gpuprep-tune")
        must("drift", host, *repair)
        wait_for_state("IDLE")


def test_under_a_job_no_clock_is_changed(node: str, passed: dict[str, Any], from_nothing: Finished) -> None:
    leave(passed, "PASS")
    wait_for_state("IDLE")
    number = inside(node, "cd /tmp && sbatch --parsable --wrap 'sleep infinity'").stdout.strip()
    wait_for_state("ALLOCATED")
    inside(node, "nvidia-smi -rac")
    tune = ("tune", f"sim:{node}", "--profile", from_nothing.profile)
    done = gpuprep(*tune)
    assert done.exit_code == 2, done.text
    assert f"would change its GPUs: in use by Slurm's job {number} of root" in done.text
    inside(node, f"scancel {number}")
    wait_for_state("IDLE")
    must(*tune)


def test_a_drain_by_hand_stays(node: str, passed: dict[str, Any]) -> None:
    leave(passed, "PASS")
    wait_for_state("IDLE")
    inside(node, f"scontrol update NodeName={node} State=DRAIN Reason='fan of rack 4'")
    done = inside(node, "gpuprep-drift slurm --resume")
    assert "stays drained, not by gpuprep: fan of rack 4" in done.stdout
    assert shown("Reason").startswith("Reason=fan of rack 4")
    inside(node, f"scontrol update NodeName={node} State=RESUME")


def test_a_result_that_is_too_old_drains_only_on_request(node: str, passed: dict[str, Any]) -> None:
    leave(passed, "PASS", hours=60)
    done = inside(node, "gpuprep-drift slurm", check=False)
    assert (done.exit_code, "is over 49 h old" in done.stdout) == (3, True)
    wait_for_state("IDLE")
    inside(node, "gpuprep-drift slurm --drain-unknown", check=False)
    assert shown("Reason").startswith("Reason=gpuprep: (simulated) UNKNOWN: last check")
    leave(passed, "PASS")
    wait_for_state("IDLE")


def test_an_ordinary_user_may_ask_as_node_problem_detector_does(node: str, passed: dict[str, Any]) -> None:
    for status, code in (("PASS", 0), ("FAIL", 1), ("UNKNOWN", 2)):
        leave(passed, status, *(() if status == "PASS" else ("gpu 0.ecc",)))
        done = inside(node, "runuser -u debian -- /usr/local/bin/gpuprep-drift npd", check=False)
        assert done.exit_code == code
        assert done.stdout.startswith(f"gpuprep {status} (simulated): ")
        assert len(done.stdout.encode()) <= 81
    leave(passed, "PASS")
