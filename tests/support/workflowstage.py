"""A host on which the commands run, with Ansible real."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakehost import Script, playbooks_of_the_test, store_of_the_test
from finishedt4 import ANSWERS, FINISHED, HERE, T4

from gpuprep.desired.profile import Profile
from gpuprep.provisioning.ansible_run import Progress
from gpuprep.records import RunRecord
from gpuprep.remote import Target
from gpuprep.store import Store
from gpuprep.workflows.runs import Options, RunContext

BOOK = """
- hosts: all
  gather_facts: false
  tasks:
    - name: First
      ansible.builtin.debug:
      when: not ansible_check_mode
      tags: [always]
    - name: The driver of {{ gpuprep_profile }}
      ansible.builtin.assert:
        that: not gpu_driver_allow_reboot and gpu_driver_version is defined and gpu_codec_ffmpeg_url is search('^http')
      tags: [driver]
    - name: Tune
      ansible.builtin.debug:
      when: not ansible_check_mode
      tags: [tuning]
      changed_when: true
    - name: Break
      ansible.builtin.command: sh -c 'echo no compiler >&2; exit 9'
      tags: [codec]
"""


class Stage:
    """A workflow run with everything around it."""

    def __init__(self, store: Store, script: Script) -> None:
        self.store, self.script = store, script
        self.progress: list[tuple[str, Progress]] = []
        self.cancel = threading.Event()

    def __call__(
        self,
        workflow: Callable[[Target, Any, Options, RunContext], RunRecord],
        target: Target = HERE,
        profile: Profile = T4,
        **options: Any,
    ) -> RunRecord:
        line = RunContext(lambda host, event: self.progress.append((host, event)), self.store, self.cancel.is_set)
        return workflow(target, profile, Options(**options), line)

    @property
    def stages(self) -> list[str]:
        return [event.detail for _, event in self.progress if event.kind == "stage"]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    playbooks_of_the_test(tmp_path, monkeypatch, provision=BOOK, tune=BOOK)
    script = Script(snapshots=[FINISHED], probes=ANSWERS)
    with store_of_the_test(tmp_path, monkeypatch, script.host()) as store:
        yield Stage(store, script)
