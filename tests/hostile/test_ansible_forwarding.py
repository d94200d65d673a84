"""What the user's ~/.ssh/config forwards to hosts: gpuprep's Ansible forwards none of it to a host's root."""

from __future__ import annotations

import subprocess
import textwrap
from pathlib import Path

import pytest
from scriptedhost import ScriptedHost
from sshserver import free_port
from waiting import until

from gpuprep.provisioning import ansible_run

pytestmark = pytest.mark.machines
BOOK = """
    - hosts: all
      gather_facts: false
      tasks:
        - name: Look what came along
          ansible.builtin.raw: 'echo "agent=[$SSH_AUTH_SOCK]"; ss -Hltn "sport = :PORT" | wc -l'
          register: said
        - name: Say it
          ansible.builtin.debug: {msg: "{{ said.stdout_lines | join(' ') }}"}
    """


def test_no_agent_and_no_port_comes_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With either, root of a host could log in to other hosts as the user, or speak to services of the controller."""
    (tmp_path / "host").mkdir()
    port = free_port()
    book = tmp_path / "book.yml"
    book.write_text(textwrap.dedent(BOOK).replace("PORT", str(port)))
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(tmp_path / "agent")], stdout=subprocess.DEVNULL)
    try:
        until(lambda: (tmp_path / "agent").exists() or agent.poll() is not None, "the agent does not listen")
        with ScriptedHost(tmp_path / "host") as host:
            home = tmp_path / "host/client"
            (home / ".ssh/config").write_text(f"ForwardAgent yes\nRemoteForward 127.0.0.1:{port} 127.0.0.1:1\n")
            monkeypatch.setenv("HOME", str(home))
            monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
            done = ansible_run.run(
                host.target, roles=(), variables={}, log_dir=tmp_path / "log", on_event=lambda _: None, playbook=book
            )
    finally:
        agent.terminate()
        agent.wait()
    log = (tmp_path / "log/ansible.log").read_text()
    assert not isinstance(done, ansible_run.Failure), log
    assert "agent=[] 0" in log
