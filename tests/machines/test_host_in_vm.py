"""Becoming root, locking and reading facts on a bare simulated VM, over its real sshd and sudo."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
from machines import fresh, gpuprep, inside
from waiting import until

from gpuprep import errors, records, remote, sim
from gpuprep.remote import agent_client

pytestmark = pytest.mark.e2e

MACHINE = "e2e-host"
PASSWORD = 'it\'s a `secret` $HOME "word"'
OWNER = remote.LockOwner("alice", "laptop", "r1", "noon")
SETUP = r"""
set -e
for user in nosudo withpw somecommands needtty; do
  useradd -m -s /bin/bash $user
  mkdir -p /home/$user/.ssh
  cp /home/debian/.ssh/authorized_keys /home/$user/.ssh/
  chown -R $user: /home/$user/.ssh
done
printf '%s' "$1" | sed 's/^/withpw:/' | chpasswd
echo 'withpw ALL=(ALL) ALL' > /etc/sudoers.d/e2e
echo 'somecommands ALL=(ALL) NOPASSWD: /usr/bin/id' >> /etc/sudoers.d/e2e
echo 'Defaults:needtty requiretty' >> /etc/sudoers.d/e2e
echo 'needtty ALL=(ALL) NOPASSWD: ALL' >> /etc/sudoers.d/e2e
"""


@pytest.fixture(scope="module")
def target() -> Iterator[remote.Target]:
    with fresh(MACHINE, "debian13", ["t4"]):
        done = gpuprep("sim", "exec", MACHINE, "--", "sh", "-c", SETUP, "sh", PASSWORD)
        assert done.exit_code == 0, done.text
        yield sim.target(MACHINE)


def as_user(target: remote.Target, user: str, password: str | None = None) -> remote.Host:
    return remote.Host(replace(target, user=user), become_password=password)


def refusal(target: remote.Target, user: str, password: str | None = None) -> errors.NoPrivilege:
    with as_user(target, user, password) as host, pytest.raises(errors.NoPrivilege) as caught:
        host.run("id -un", become=True)
    assert caught.value.hint
    assert PASSWORD not in str(caught.value)
    return caught.value


def test_without_a_password(target: remote.Target) -> None:
    with as_user(target, "debian") as host:
        assert host.run("id -un", become=True).stdout == "root\n"
        assert host.run("id -un").stdout == "debian\n"


def test_with_a_password_that_shows_nowhere(target: remote.Target) -> None:
    """sudo reads the password, the command reads its own input, and `ps` shows only the command."""
    with as_user(target, "withpw", PASSWORD) as host:
        for _ in range(2):
            result = host.run("id -un; cat; ps -ef", stdin=b"its own input\n", become=True)
            assert result.stdout.startswith("root\nits own input\n")
            assert "secret" not in result.stdout
            assert result.stderr == ""
        data = bytes(range(256))
        host.put(data, "/etc/e2e-file", become=True)
        assert host.get("/etc/e2e-file", become=True) == data


def test_each_refusal_of_sudo_has_its_words(target: remote.Target) -> None:
    wants = refusal(target, "withpw")
    assert "sudo wants a password for withpw" in wants.what
    assert "--ask-become-pass" in wants.hint
    assert "does not accept this password" in refusal(target, "withpw", "wrong").what
    assert "does not accept this password" in refusal(target, "withpw", "").what
    assert "insists on a terminal" in refusal(target, "needtty").what
    for user in ("nosudo", "somecommands"):
        assert user in refusal(target, user).what


def test_a_user_who_is_not_in_sudoers(target: remote.Target) -> None:
    inside(MACHINE, "echo nosudo:known | chpasswd")
    assert "may not use sudo here" in refusal(target, "nosudo", "known").what


def test_no_sudo_at_all(target: remote.Target) -> None:
    inside(MACHINE, "mv /usr/bin/sudo /usr/bin/sudo.away")
    try:
        assert "sudo is not installed" in refusal(target, "debian").what
    finally:
        inside(MACHINE, "mv /usr/bin/sudo.away /usr/bin/sudo")


@pytest.mark.parametrize(("user", "password"), [("debian", None), ("withpw", PASSWORD)])
def test_the_lock_through_sudo(target: remote.Target, user: str, password: str | None) -> None:
    with as_user(target, user, password) as first, as_user(target, "debian") as second:
        with first.lock(OWNER), pytest.raises(errors.HostLocked, match="alice from laptop, run r1, since noon"):
            second.lock(OWNER).__enter__()
        with second.lock(OWNER):
            pass


# What any user of a machine can try, without a right to anything.
IN_THE_WAY = """
mkdir -p /run/gpuprep/lock; mkfifo /run/gpuprep; ln -s /tmp /run/gpuprep; touch /run/gpuprep
mkdir /run/lock/gpuprep.lock; cat /run/gpuprep/lock
flock -n /run/gpuprep/lock echo mine; flock -n /run/gpuprep echo mine
"""


def test_no_user_of_the_machine_is_in_the_way_of_the_lock(target: remote.Target) -> None:
    inside(MACHINE, "rm -rf /run/gpuprep")
    with as_user(target, "nosudo") as user, as_user(target, "debian") as first, as_user(target, "debian") as second:
        user.run(IN_THE_WAY)
        with first.lock(OWNER):
            assert user.run(IN_THE_WAY).stdout == ""
            with pytest.raises(errors.HostLocked, match="alice from laptop"):
                second.lock(OWNER).__enter__()
        assert user.run(IN_THE_WAY).stdout == ""
        with second.lock(OWNER):
            ways = inside(MACHINE, "stat -c '%U %a' /run/gpuprep /run/gpuprep/lock").stdout
            assert ways == "root 700\nroot 600\n"


def test_a_shell_that_talks_at_login(target: remote.Target) -> None:
    """bash reads .bashrc for a command over SSH, too."""
    inside(MACHINE, "echo 'echo Welcome; printf \"\\033[2J\"; echo to you >&2' >/home/withpw/.bashrc")
    try:
        with as_user(target, "withpw", PASSWORD) as host:
            assert host.run("echo in", become=True).stdout == "in\n"
            host.put(b"data", "/etc/e2e-file", become=True)
            assert host.get("/etc/e2e-file", become=True) == b"data"
            with host.lock(OWNER):
                pass
    finally:
        inside(MACHINE, "rm /home/withpw/.bashrc")


def test_facts_of_a_bare_machine(target: remote.Target) -> None:
    before = inside(MACHINE, "find / -xdev -newer /proc/1 -name '*gpuprep*' | sort").stdout
    with remote.Host(target) as host:
        facts = agent_client.snapshot(host, records.FactsRequest(commands=("tmux",)))
    assert facts.source is records.Source.SIMULATED
    assert (facts.os.id, facts.os.version_id) == ("debian", "13")
    assert [(gpu.device_id, gpu.vendor_id) for gpu in facts.pci_gpus] == [("1eb8", "10de")]
    assert isinstance(facts.gpus, records.Missing)
    assert facts.driver.loaded_version is None
    assert facts.kernel.next_boot == facts.kernel.running
    assert facts.units["nvidia-persistenced.service"].enabled == "not-found"
    assert facts.commands == {"tmux": None}
    assert not facts.is_root
    assert inside(MACHINE, "find / -xdev -newer /proc/1 -name '*gpuprep*' | sort").stdout == before


# An nvcc that never ends, with a child in its session and one that left it.
HUNG = "#!/bin/sh\n[ $1 != --version ] || exit\nsleep 3001 & setsid sleep 3002 &\ntouch /run/hung; wait\n"
CONTROLLER = """
import sys
from gpuprep.remote import Host, Target, agent_client
agent_client.probe(Host(Target(**{target!r})), "toolkit", {{"timeout_seconds": 3000}}, become=True)
"""
LEFT = "pgrep -xa sleep; pgrep -xa python3; ls -d /tmp/gpuprep-* /var/tmp/gpuprep-* 2>/dev/null; true"


def test_a_controller_that_is_killed_leaves_nothing_behind_sudo(target: remote.Target) -> None:
    with remote.Host(target) as host:
        before = host.run(LEFT, become=True).stdout
        host.put(HUNG.encode(), "/usr/local/bin/nvcc", become=True)
        assert host.run("chmod 755 /usr/local/bin/nvcc; rm -f /run/hung", become=True).exit_code == 0
        try:
            code = CONTROLLER.format(target=vars(target))
            with subprocess.Popen([sys.executable, "-c", code], env=os.environ) as controller:
                until(lambda: host.run("test -e /run/hung").exit_code == 0, "the probe did not start")
                assert "sleep 3002" in host.run(LEFT, become=True).stdout
                controller.kill()
            until(lambda: host.run(LEFT, become=True).stdout == before, "something stays behind")
        finally:
            host.run("rm -f /usr/local/bin/nvcc /run/hung", become=True)
