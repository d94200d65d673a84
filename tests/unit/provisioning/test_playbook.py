"""Real ansible-runner runs against this machine, with playbooks of a few tasks."""

from __future__ import annotations

import errno
import fcntl
import os
import pwd
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from waiting import alive, until

from gpuprep import errors, records, remote
from gpuprep.provisioning import ansible_environment, ansible_events, ansible_run

LOCAL = remote.Target("local", local=True)
PASSWORD = "correct-horse-battery"


class Run:
    """One run of a playbook given as text, in a folder of its own."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = tmp_path
        self.logs = tmp_path / "logs"
        self.events: list[ansible_run.Progress] = []

    def __call__(
        self, text: str, target: remote.Target = LOCAL, **options: object
    ) -> records.PlaybookResult | ansible_run.Failure:
        book = self.folder / "book.yml"
        book.write_text(textwrap.dedent(text))
        return ansible_run.run(
            target,
            roles=options.pop("roles", ()),  # type: ignore[arg-type]
            variables=options.pop("variables", {}),  # type: ignore[arg-type]
            log_dir=self.logs,
            on_event=self.events.append,
            playbook=book,
            **options,  # type: ignore[arg-type]
        )


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    return Run(tmp_path)


def test_a_run_counts_changes_and_tells_what_it_waits_for(run: Run) -> None:
    counter = run.folder / "counter"
    counter.touch()
    result = run(
        f"""
        - hosts: all
          gather_facts: false
          tasks:
            - name: Greet
              ansible.builtin.command: echo {{{{ greeting }}}}
              changed_when: true
            - name: Compile
              ansible.builtin.shell: >-
                echo x >> {counter}; n=$(wc -l < {counter}); echo "compiled $n of 2 files"; [ "$n" -ge 2 ]
              register: done
              until: done.rc == 0
              retries: 5
              delay: 0
              changed_when: false
            - name: Not here
              ansible.builtin.command: "false"
              when: false
            - name: Ignored
              ansible.builtin.command: "false"
              changed_when: false
              ignore_errors: true
        """,
        variables={"greeting": "hello"},
    )
    assert isinstance(result, records.PlaybookResult)
    assert (result.status, result.changed, result.failed) == ("successful", 1, 0)
    assert [(task.task, task.outcome) for task in result.tasks] == [
        ("Greet", "changed"),
        ("Compile", "ok"),
        ("Not here", "skipped"),
        ("Ignored", "ok"),
    ]
    assert [event.detail for event in run.events if event.kind == "waiting"] == ["compiled 1 of 2 files"]
    starts = [event.elapsed_seconds for event in run.events if event.kind == "task_start"]
    assert starts == sorted(starts)
    assert len(starts) == 4
    assert "changed: [local]" in Path(result.log).read_text()


def test_a_failed_step_shows_its_own_last_lines(run: Run) -> None:
    outcome = run(
        """
        - hosts: all
          gather_facts: false
          tasks:
            - name: Configure
              ansible.builtin.shell: "seq 100; echo no such header >&2; exit 3"
        """
    )
    assert isinstance(outcome, ansible_run.Failure)
    error = outcome.error
    assert isinstance(error, errors.ProvisionFailed)
    assert error.step == "Configure"
    assert "exit code 3" in error.what
    assert error.last_lines[-2:] == ("100", "no such header")
    assert len(error.last_lines) == 20
    assert Path(error.log).is_file()
    assert (outcome.result.status, outcome.result.failed) == ("failed", 1)
    for part in ("Configure", "no such header", "what to do: ", error.log):
        assert part in error.explain()


def test_a_failed_program_that_was_sent_is_told_by_its_name(run: Run) -> None:
    outcome = run(
        """
        - hosts: all
          gather_facts: false
          tasks:
            - name: Look
              ansible.builtin.command: {argv: [sh, -c, "#!/bin/sh\\nexit 3\\n", look.sh, /opt]}
        """
    )
    assert isinstance(outcome, ansible_run.Failure)
    assert "exit code 3 of `sh -c look.sh /opt`" in outcome.error.what


def test_a_home_where_ansible_can_write_nothing_is_no_lost_connection(run: Run) -> None:
    outcome = run(
        """
        - hosts: all
          gather_facts: false
          tasks:
            - name: Write it
              ansible.builtin.copy: {dest: /tmp/x, content: x, mode: "0644"}
        """,
        variables={"ansible_remote_tmp": "/proc/nobody"},
    )
    assert isinstance(outcome, ansible_run.Failure)
    assert not isinstance(outcome.error, errors.HostUnreachable)
    assert "the home of the login there cannot be written to" in outcome.error.what
    assert "findmnt -T ~" in outcome.error.hint


def test_no_secret_is_left_in_any_file(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "token-of-the-user")
    seen = run.folder / "seen"
    outcome = run(
        f"""
        - hosts: all
          gather_facts: false
          tasks:
            - name: What is visible while it runs
              ansible.builtin.shell: >-
                cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' ' > {seen};
                grep -rsl {PASSWORD[:8]} {run.folder / "scratch"} {run.logs} >> {seen}; true
              changed_when: false
            - name: Fail
              ansible.builtin.command: "false"
        """,
        become_password=PASSWORD,
    )
    assert isinstance(outcome, ansible_run.Failure)
    assert outcome.result.tasks[0].outcome == "ok"
    assert PASSWORD not in seen.read_text()
    seen.unlink()
    left = [path for path in run.folder.rglob("*") if path.is_file()]
    assert run.logs / "ansible.log" in left
    for path in left:
        text = path.read_text(errors="replace")
        assert PASSWORD not in text, path
        assert "token-of-the-user" not in text, path
    assert list((run.folder / "scratch").iterdir()) == []
    assert (run.logs / "ansible.log").stat().st_mode & 0o077 == 0


@pytest.mark.machines
def test_the_users_ansible_settings_do_not_reach_a_run(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANSIBLE_STDOUT_CALLBACK", "no_such_callback")
    monkeypatch.setenv("ANSIBLE_CALLBACK_PLUGINS", "/nonexistent")
    monkeypatch.setenv("ANSIBLE_STRATEGY", "no_such_strategy")
    monkeypatch.setenv("ANSIBLE_CHECK_MODE_MARKERS", "nonsense")
    (run.folder / "ansible.cfg").write_text("[defaults]\nstrategy = neither_this\n")
    monkeypatch.chdir(run.folder)
    result = run("- hosts: all\n  gather_facts: false\n  tasks:\n    - ansible.builtin.command: 'true'\n")
    assert isinstance(result, records.PlaybookResult), result
    assert result.changed == 1


def test_an_interruption_ends_the_run_at_once(run: Run) -> None:
    pid = run.folder / "pid"

    def started() -> bool:
        return pid.exists() and pid.read_text().endswith("\n")

    outcome = run(
        f"""
        - hosts: all
          gather_facts: false
          tasks:
            - name: Build for ever
              ansible.builtin.shell: "echo $$ > {pid}; exec sleep infinity"
        """,
        cancelled=started,
    )
    until(lambda: not alive(int(pid.read_text())), "what the task started lives on", 300)
    assert isinstance(outcome, ansible_run.Failure)
    assert isinstance(outcome.error, errors.Interrupted)
    assert "Build for ever" in outcome.error.what
    assert outcome.result.status == "canceled"
    assert "Build for ever" in (run.logs / "ansible.log").read_text()


@pytest.mark.parametrize("ends", ["by itself", "when it is told to"])
def test_what_does_not_listen_to_an_end_is_killed(tmp_path: Path, ends: str) -> None:
    """A child in a session of its own, whose parent is gone: as an ssh master, or a module that hangs."""
    deaf, keeper = tmp_path / "deaf", tmp_path / "keeper"
    then = "until [ -s $0 ]; do sleep 0.05; done" + ("" if ends == "by itself" else "; sleep infinity")
    script = f"trap '' TERM; (setsid sh -c 'echo $$ >$0; exec sleep infinity' $0 &); {then}"
    process = subprocess.Popen([*ansible_environment.keeper_command(keeper, LOCAL), "sh", "-c", script, str(deaf)])
    until(lambda: deaf.exists() and deaf.read_text().endswith("\n"), "nothing was started", 300)
    child = int(deaf.read_text())
    try:
        if ends != "by itself":
            os.kill(int(keeper.read_text()), signal.SIGTERM)
        assert process.wait() == (0 if ends == "by itself" else 128 + signal.SIGTERM)
        until(lambda: not alive(child), "it goes on, and disturbs the next run", 60)
    finally:
        for left in filter(alive, (child, process.pid)):
            os.kill(left, signal.SIGKILL)


CALLER = """\
import subprocess, sys
from pathlib import Path
from gpuprep.provisioning import ansible_environment
from gpuprep.remote import Target
pid = Path(sys.argv[1], "keeper")
command = ansible_environment.keeper_command(pid, Target("here", local=True))
subprocess.run([*command, "sh", "-c", "echo; sleep infinity"])
"""


def test_a_killed_gpuprep_leaves_no_private_folder(tmp_path: Path) -> None:
    private = tmp_path / "gpuprep-x"
    private.mkdir()
    (private / "inventory.yml").touch()
    with subprocess.Popen([sys.executable, "-c", CALLER, private], stdout=subprocess.PIPE) as caller:
        assert caller.stdout
        caller.stdout.readline()
        caller.kill()
    until(lambda: not private.exists(), lambda: list(private.iterdir()), 60)
    assert tmp_path.exists()


def test_the_next_run_removes_what_a_run_left_that_was_killed_after_its_keeper(run: Run) -> None:
    scratch = Path(tempfile.gettempdir())
    of_an_earlier_gpuprep = "er7qdvzt"  # which locks none
    names = ("rer7qdvzt", "rlives__1", "codec-er7qdvzt", of_an_earlier_gpuprep)
    left, at_work, *others = (scratch / f"gpuprep-{name}" for name in names)
    for folder in (left, at_work, *others):
        folder.mkdir()
        (folder / "inventory.yml").touch()
    opened = os.open(at_work, os.O_RDONLY)
    fcntl.flock(opened, fcntl.LOCK_EX)
    try:
        run("- hosts: all\n  gather_facts: false\n  tasks: []\n")
    finally:
        os.close(opened)
    assert sorted(scratch.glob("gpuprep-*")) == sorted([at_work, *others])


def test_folders_that_cannot_be_locked_are_no_hindrance(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.open

    def opened(path: str | Path, flags: int, *rest: Any, **more: Any) -> int:
        if flags & os.O_DIRECTORY and Path(path).name.startswith("gpuprep-"):
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        return real(path, flags, *rest, **more)

    left = Path(tempfile.gettempdir()) / "gpuprep-rer7qdvzt"
    left.mkdir()
    monkeypatch.setattr(os, "open", opened)
    result = run("- hosts: all\n  gather_facts: false\n  tasks:\n    - ansible.builtin.ping:\n")
    assert isinstance(result, records.PlaybookResult)
    assert (result.status, list(left.parent.glob("gpuprep-*"))) == ("successful", [left])


def test_a_host_that_does_not_answer_is_unreachable(run: Run, tmp_path: Path) -> None:
    known = tmp_path / "known_hosts"
    known.touch()
    gone = remote.Target("gone", address="127.0.0.1", port=9, user="nobody", known_hosts=str(known))
    outcome = run("- hosts: all\n  gather_facts: false\n  tasks:\n    - ansible.builtin.ping:\n", gone)
    assert isinstance(outcome, ansible_run.Failure)
    assert isinstance(outcome.error, errors.HostUnreachable)
    assert "gone" in outcome.error.what
    assert outcome.result.status == "unreachable"


@pytest.mark.machines
def test_a_playbook_that_cannot_start_is_a_failure_with_ansibles_words(run: Run) -> None:
    outcome = run("- hosts: all\n  tasks:\n    - no_such_module_anywhere: {}\n")
    assert isinstance(outcome, ansible_run.Failure)
    assert isinstance(outcome.error, errors.ProvisionFailed)
    assert any("no_such_module_anywhere" in line for line in outcome.error.last_lines)


def test_check_mode_with_diff_changes_nothing_and_shows_the_change(run: Run) -> None:
    wanted = run.folder / "wanted"
    outcome = run(
        f"""
        - hosts: all
          gather_facts: false
          tasks:
            - name: Write it
              ansible.builtin.copy: {{dest: "{wanted}", content: "new line\\n", mode: "0644"}}
              tags: [codec]
            - name: Of another role
              ansible.builtin.command: "false"
              check_mode: false
              tags: [driver]
        """,
        check=True,
        diff=True,
        roles=["gpu_codec"],
    )
    assert isinstance(outcome, records.PlaybookResult)
    assert outcome.changed == 1
    assert not wanted.exists()
    assert [task.task for task in outcome.tasks] == ["Write it"]
    diffs = [event.detail for event in run.events if event.kind == "diff"]
    assert len(diffs) == 1
    assert "+new line" in diffs[0]


def test_inventory_and_ssh_options_follow_the_target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = remote.Target(
        "sim:t4",
        address="127.0.0.1",
        port=2222,
        user="debian",
        identity_file="/keys/id",
        known_hosts="/keys/known_hosts",
    )
    hosts = ansible_environment.inventory(target, {"gpu_cuda_version": "12.4"})["all"]["hosts"]
    assert list(hosts) == ["sim-t4"]
    host = hosts["sim-t4"]
    assert (host["ansible_host"], host["ansible_port"], host["ansible_user"]) == ("127.0.0.1", 2222, "debian")
    assert host["gpu_cuda_version"] == "12.4"
    strict = ansible_environment.ssh_arguments(target, accept_new_host_key=False)
    assert "StrictHostKeyChecking=yes" in strict
    assert "UserKnownHostsFile=/keys/known_hosts" in strict
    assert "BatchMode=yes" in strict
    assert "StrictHostKeyChecking=accept-new" in ansible_environment.ssh_arguments(target, accept_new_host_key=True)
    monkeypatch.setenv("HOME", pwd.getpwuid(os.getuid()).pw_dir)  # OpenSSH's ~; another HOME is shown to it
    assert not any(
        "KnownHosts" in word
        for word in ansible_environment.ssh_arguments(remote.Target("a"), accept_new_host_key=False)
    )
    monkeypatch.setenv("HOME", str(tmp_path))  # OpenSSH itself does not look at it
    elsewhere = ansible_environment.ssh_arguments(remote.Target("a"), accept_new_host_key=False)
    assert f"UserKnownHostsFile={tmp_path}/.ssh/known_hosts" in elsewhere
    plain = ansible_environment.inventory(remote.Target("web1"), {})["all"]["hosts"]["web1"]
    assert "ansible_port" not in plain
    assert "ansible_user" not in plain
    assert ansible_environment.inventory_name(remote.Target("localhost")) != "localhost"


class Unsafe(str):
    """What Ansible takes as it is; in every other text it evaluates templates, on the controller."""


class ReadsAsAnsible(yaml.SafeLoader):
    pass


ReadsAsAnsible.add_constructor("!unsafe", lambda loader, node: Unsafe(loader.construct_scalar(node)))  # type: ignore[arg-type]


def texts(value: Any) -> Iterator[str]:
    """Each text of a value, at any depth, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from (text for pair in value.items() for part in pair for text in texts(part))
    elif isinstance(value, list):
        yield from (text for part in value for text in texts(part))


@pytest.mark.parametrize("template", ["{{ lookup('pipe', 'id') }}", "{% set x = 1 %}", "12.4{{ 1 }}", '{{ "\\n" }}\n#'])
def test_no_word_of_a_host_or_an_inventory_is_a_template(template: str) -> None:
    target = remote.Target("gpu-1", address=template, user=template)
    variables = {
        "tag": {"k": [template], template: 1},
        "gpu_text": template,
        "gpu_list": [template],
        "gpu_version": "12.4",
        "gpu_yes": "yes",
        "gpu_on": True,
    }
    text = ansible_environment.inventory_text(target, variables)
    read = yaml.load(text, ReadsAsAnsible)
    assert read == ansible_environment.inventory(target, variables)
    found = [one for one in texts(read) if "{" in one]
    assert found == [template] * 6
    assert all(isinstance(one, Unsafe) for one in found)
    host = read["all"]["hosts"]["gpu-1"]
    assert [type(host[name]) for name in ("gpu_version", "gpu_yes")] == [str, str], "Ansible reads !unsafe as a number"


@pytest.mark.parametrize(
    ("result", "message", "last", "hint"),
    [
        ({"msg": "Disk is full. -- What to do: free some"}, "Disk is full", (), "free some"),
        ({"msg": "first\nsecond\nthird"}, "first", ("second", "third"), ""),
        (
            {"results": [{"failed": False, "msg": "ok"}, {"failed": True, "msg": "bad item", "stderr": "why"}]},
            "bad item",
            ("why",),
            "",
        ),
        ({"censored": "hidden by no_log"}, "hidden by no_log", (), ""),
        ({}, "no message", (), ""),
    ],
)
def test_what_a_failed_result_says(
    result: dict[str, object], message: str, last: tuple[str, ...], hint: str, tmp_path: Path
) -> None:
    event = {"role": "gpu_driver", "task": "Install", "task_action": "ansible.builtin.assert", "res": result}
    events, _ = heard(tmp_path, "runner_on_failed", event)
    assert events.failure is not None
    assert (events.failure.message, events.failure.last_lines, events.failure.hint) == (message, last, hint)
    assert events.failure.step == "gpu_driver: Install"


def heard(
    folder: Path, kind: str, *data: Mapping[str, Any]
) -> tuple[ansible_events.Events, list[ansible_events.Progress]]:
    """What is kept and what is shown of events of one kind."""
    shown: list[ansible_events.Progress] = []
    events = ansible_events.Events(shown.append, folder / "log")
    for one in data:
        events.handle({"event": kind, "event_data": one})
    events.close()
    return events, shown


def test_waiting_line_and_diff_text(tmp_path: Path) -> None:
    tries = [{"stdout": "one\ntwo \n\n"}, {"stdout": "", "attempts": 2, "retries": 9}]
    _, shown = heard(tmp_path, "runner_retry", *({"task": "t", "res": one} for one in tries))
    assert [(one.kind, one.detail) for one in shown] == [("waiting", "two"), ("waiting", "attempt 2 of 9")]
    diffs = [[{"prepared": "x"}, {"before": "a\n", "after": "a\n"}], None]
    _, shown = heard(tmp_path, "runner_on_ok", *({"task": "t", "res": {"changed": True, "diff": one}} for one in diffs))
    assert [one.detail for one in shown if one.kind == "diff"] == ["x"]


def test_tasks_that_preflight_lends_count_for_the_role_at_work(tmp_path: Path) -> None:
    roles = ("gpu_preflight", "gpu_driver", "gpu_preflight", "gpu_cuda", "gpu_preflight")
    events, _ = heard(tmp_path, "runner_on_ok", *({"role": role, "task": "t", "res": {}} for role in roles))
    assert [task.role for task in events.tasks] == ["gpu_preflight", "gpu_driver", "gpu_driver", "gpu_cuda", "gpu_cuda"]
