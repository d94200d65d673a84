"""Refusals that are not in docs/faults.md: one clear line with what to do, an own exit code, a host as it was."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from machines import GPUPREP, Done, changed_files, fresh, gpuprep, inside, must
from waiting import until

pytestmark = pytest.mark.e2e

MACHINE = "e2e-bare"


@dataclass(frozen=True)
class Refusal:
    what: str
    spoil: str  # as root inside the machine, before
    mend: str  # and after
    exit_code: int
    says: tuple[str, ...]  # words of the message, any case
    profile: str = "t4"


REFUSALS = [
    Refusal(
        "unsupported OS",
        r"cp --remove-destination $(realpath /etc/os-release) /etc/os-release && "
        r"sed -i 's/^ID=.*/ID=arch/; s/^VERSION_ID=.*/VERSION_ID=1/' /etc/os-release",
        "rm /etc/os-release && ln -s ../usr/lib/os-release /etc/os-release",
        2,
        ("arch", "debian 13"),
    ),
    Refusal("the profile of another card", "true", "true", 2, ("a100", "t4"), profile="a100"),
]


@pytest.fixture(scope="module")
def bare() -> Iterator[str]:
    with fresh(MACHINE, "debian13", ["t4"]) as machine:
        yield machine


def one_clear_message(done: Done, refusal_exit: int, *words: str) -> None:
    assert done.exit_code == refusal_exit, done.text
    assert "Traceback" not in done.text
    for word in words:
        assert word.lower() in done.stderr.lower(), f"{word!r} is not in:\n{done.stderr}"


@pytest.mark.parametrize("case", REFUSALS, ids=[case.what for case in REFUSALS])
def test_refused_before_anything_is_touched(bare: str, case: Refusal) -> None:
    inside(bare, case.spoil)
    inside(bare, "sleep 0.01; touch /root/before")
    try:
        done = gpuprep("provision", f"sim:{bare}", "--profile", case.profile)
        assert changed_files(bare) == []
    finally:
        inside(bare, case.mend)
    one_clear_message(done, case.exit_code, *case.says)


def test_plan_and_check_show_the_same_list_and_change_nothing(bare: str) -> None:
    inside(bare, "touch /root/before")
    no_store = {"GPUPREP_STORE": ""}  # a run repeats the store that it was given in its commands; a plan has none
    plan = gpuprep("plan", f"sim:{bare}", "--profile", "t4", environment=no_store)
    check = gpuprep("provision", f"sim:{bare}", "--profile", "t4", "--check", environment=no_store)
    assert (plan.exit_code, check.exit_code) == (0, 0), plan.text + check.text
    assert plan.stdout == check.stdout
    assert "1. driver" in plan.stdout
    assert changed_files(bare) == []


def test_no_gpu() -> None:
    with fresh("e2e-nogpu", "debian13", ["none"]) as machine:
        one_clear_message(gpuprep("provision", f"sim:{machine}", "--profile", "t4"), 2, "no nvidia gpu")


@dataclass(frozen=True)
class Door:
    """How to reach the bare machine by plain SSH."""

    port: int
    key: str
    home: Path

    def try_it(self, user: str, *options: str, key: str | None = None) -> Done:
        host = f"{user}@127.0.0.1:{self.port}"
        arguments = ["provision", host, "--profile", "t4", "--ssh-key", key or self.key, *options]
        return gpuprep(*arguments, environment={"HOME": str(self.home), "SSH_AUTH_SOCK": ""})


@pytest.fixture
def door(bare: str, tmp_path: Path) -> Door:
    (machine,) = [m for m in must("sim", "list", "--json").json()["machines"] if m["name"] == bare]
    return Door(machine["port"], machine["identity_file"], tmp_path)


def test_unknown_host() -> None:
    one_clear_message(gpuprep("provision", "no-such-host.invalid", "--profile", "t4"), 3, "no-such-host.invalid")


def test_unknown_host_key_needs_the_users_word(door: Door) -> None:
    one_clear_message(door.try_it("debian"), 3, "host key", "--accept-new-host-key")


def test_refused_key(door: Door, tmp_path: Path) -> None:
    other = tmp_path / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
    one_clear_message(door.try_it("debian", "--accept-new-host-key", key=str(other)), 3, "debian", "key")


@pytest.mark.parametrize(
    ("user", "sudoers", "words"),
    [
        ("nosudo", "", ("sudo",)),
        ("asksudo", "asksudo ALL=(ALL) ALL", ("password", "--ask-become-pass")),
    ],
)
def test_no_sudo(bare: str, door: Door, user: str, sudoers: str, words: tuple[str, ...]) -> None:
    inside(
        bare,
        f"useradd -m -s /bin/bash {user} && cp -a /home/debian/.ssh /home/{user}/ && chown -R {user}: /home/{user}/.ssh"
        f" && echo {user}:secret | chpasswd && echo '{sudoers}' >/etc/sudoers.d/{user}",
    )
    one_clear_message(door.try_it(user, "--accept-new-host-key"), 3, *words)


def test_without_arguments_it_says_what_exists(bare: str) -> None:
    done = gpuprep("provision")
    one_clear_message(done, 2, "t4", "v100", "a100", f"sim:{bare}")
    done = gpuprep("provision", f"sim:{bare}", "--profile", "t5")
    one_clear_message(done, 2, "t5", "t4", "v100", "a100")


def children(pid: int) -> list[str]:
    return subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False).stdout.split()


def test_two_runs_cannot_overlap_and_a_killed_one_leaves_nothing(bare: str) -> None:
    command = [GPUPREP, "provision", f"sim:{bare}", "--profile", "t4"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd="/") as holder:
        try:
            assert holder.stderr is not None
            # Once Ansible is at work on a role the lock is held, and there is a child to outlive its parent.
            for line in holder.stderr:
                if line.rstrip().endswith(": changed"):
                    break
            second = gpuprep("provision", f"sim:{bare}", "--profile", "t4")
            ansible = children(holder.pid)
        finally:
            holder.kill()
    one_clear_message(second, 3, "since")
    assert ansible
    until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in ansible), "Ansible outlives a killed gpuprep")
    third = gpuprep("provision", f"sim:{bare}", "--profile", "a100")
    one_clear_message(third, 2, "t4")
