"""The rules of sudo in docs/security.md, on a bare machine with real sudo: they are enough, and they give nothing else.

The machine's own user loses its rule for everything: first it provisions with the rule for provisioning, then it asks
for drift with the rules for the agent.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from machines import fresh, gpuprep
from places import ROOT

from gpuprep import errors, records, remote, sim
from gpuprep.remote import agent_client

pytestmark = pytest.mark.e2e

MACHINE = "e2e-sudo"
DOCUMENT = ROOT / "docs/security.md"
AGENT = "/usr/local/bin/gpuprep-agent"
INSTALL = """
set -e
printf '%s\\n' "$1" >/etc/sudoers.d/.new
visudo -c -q -f /etc/sudoers.d/.new
chmod 0440 /etc/sudoers.d/.new
find /etc/sudoers.d -type f ! -name README ! -name .new -delete
mv /etc/sudoers.d/.new /etc/sudoers.d/gpuprep
"""


def inside(command: str, *arguments: str) -> str:
    done = gpuprep("sim", "exec", MACHINE, "--", "sh", "-c", command, "sh", *arguments)
    assert done.exit_code == 0, done.text
    return done.stdout


def only_rules(title: str) -> None:
    """The user of the machine may do what the document's rules called `title` say, and nothing else."""
    blocks = re.findall(r"```sudoers\n# (.*?)\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    inside(INSTALL, dict(blocks)[title].replace("gpuprep ALL", "debian ALL"))


@pytest.fixture(scope="module")
def machine() -> Iterator[remote.Target]:
    """With the agent of this gpuprep, installed by a user with the rule for provisioning."""
    with fresh(MACHINE, "debian13", ["t4"]):
        only_rules("provision, tune, drift schedule")
        done = gpuprep("provision", f"sim:{MACHINE}", "--profile", "t4", "--only", "agent", "--no-validate")
        assert done.exit_code == 0, done.text
        only_rules("drift, validate")
        yield sim.target(MACHINE)


def as_user(target: remote.Target, command: str) -> subprocess.CompletedProcess[str]:
    argv = ["ssh", "-n", "-p", str(target.port), "-i", str(target.identity_file), "-o", "BatchMode=yes"]
    argv += ["-o", f"UserKnownHostsFile={target.known_hosts}", f"{target.user}@{target.address}", command]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.mark.usefixtures("machine")
def test_drift_has_all_facts() -> None:
    done = gpuprep("drift", f"sim:{MACHINE}", "--profile", "t4", "--json")
    assert done.exit_code in (0, 1), done.text
    assert '"is_root": true' in done.stdout


def test_a_probe_answers(machine: remote.Target) -> None:
    with remote.Host(machine) as host:
        assert agent_client.probe(host, "codec", {}, become=True).probe == "codec"


@pytest.mark.usefixtures("machine")
def test_what_needs_more_says_so() -> None:
    done = gpuprep("drift", "schedule", f"sim:{MACHINE}", "--profile", "t4")
    assert done.exit_code != 0
    assert "docs/security.md" in " ".join(done.text.split())


def test_another_agent_is_told_from_a_missing_rule(machine: remote.Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_client, "identity", lambda: "0.0.0+other")
    with remote.Host(machine) as host, pytest.raises(errors.NoPrivilege, match="is not that of this gpuprep") as caught:
        agent_client.snapshot(host, records.FactsRequest(), become=True)
    assert "--only agent" in caught.value.hint


REFUSED = [
    "/bin/sh -c id", "id", "-u nobody id", "-s", "-i", f"{AGENT}", f"{AGENT} tune apply", f"{AGENT} identity",
    f"{AGENT} whole /etc", f"{AGENT} facts", f"{AGENT} facts --expect 1 --help", f"{AGENT} facts --expect '1 2'",
    f"{AGENT} facts --expect 1 /etc/shadow", f"{AGENT} facts --expect '1;id'", f"{AGENT} facts --expect '$(id)'",
    f"{AGENT} facts --expect '1\n2'", f"{AGENT} --version facts --expect 1", f"{AGENT} facts --expect=1",
    f"{AGENT} probe other --expect 1", f"{AGENT} probe codec", f"{AGENT} probe codec codec --expect 1",
    f"{AGENT} probe ../codec --expect 1", f"PYTHONPATH=/tmp {AGENT} facts --expect 1",
    f"LD_PRELOAD=/tmp/x.so {AGENT} facts --expect 1", "/opt/gpuprep/agent/current/bin/python -c 0",
    "/usr/local/bin/gpuprep-drift run", f"-e {AGENT}",
]  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
def test_nothing_else_is_allowed(machine: remote.Target, words: str) -> None:
    done = as_user(machine, f"sudo -n {words}")
    assert done.returncode == 1, done
    assert done.stdout == ""
    assert "sudo: " in done.stderr


@pytest.mark.parametrize("planted", ["json.py", "gpuprep.py", "importlib/metadata.py", "numpy.py", "sitecustomize.py"])
def test_the_users_folder_gives_root_no_code(machine: remote.Target, planted: str) -> None:
    request = '{"python_modules": ["numpy"]}'
    installed = inside(f"{AGENT} identity").strip()
    command = (
        f"mkdir -p ~/x/importlib && cd ~/x && echo \"open('/tmp/ran-{Path(planted).stem}', 'w')\" >{planted} && "
        f"echo '{request}' | sudo -n {AGENT} facts --expect {installed} | tail -c 100; ls /tmp/ran-*"
    )
    done = as_user(machine, command)
    assert "}" in done.stdout, done
    assert "/tmp/ran" not in done.stdout


def test_a_login_script_that_speaks_is_not_taken_for_an_answer(machine: remote.Target) -> None:
    inside("sed -i '1i echo 0; echo root; echo hello' /home/debian/.bashrc")
    with remote.Host(machine) as host, pytest.raises(errors.NoPrivilege, match="debian"):
        host.check_privilege()
