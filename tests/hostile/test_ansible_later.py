"""A host that changes its word: what was checked is what is used, whatever any later answer says of the machine."""

from __future__ import annotations

import base64
import textwrap
from pathlib import Path

import pytest
from scriptedhost import ScriptedHost

from gpuprep.provisioning import ansible_run

pytestmark = pytest.mark.machines
BOOK = """
    - hosts: all
      gather_facts: false
      tasks:
        - name: Read
          ansible.builtin.include_role:
            name: gpuprep.gpu.gpu_codec
            tasks_from: facts
        - name: Result
          ansible.builtin.debug:
            msg: "{{ gpu_from_elsewhere | default('nothing came from elsewhere') }}"
    """
DEBIAN = {
    "distribution": "Debian",
    "distribution_major_version": "13",
    "distribution_version": "13",
    "os_family": "Debian",
    "kernel": "6.12.1-amd64",
    "architecture": "x86_64",
    "python": {"executable": "/usr/bin/python3"},
}
OS_RELEASE = base64.b64encode(b'ID=debian\nVERSION_ID="13"\n').decode()
# Any module's answer may carry facts: these come after the check, with the answer to "read /etc/os-release".
LATER = {
    "distribution": {"distribution": "{folder}/evil"},
    "upwards": {"distribution": "../../../../../../../../../../../..{folder}/evil"},
    "major_version": {
        "distribution": "x",
        "distribution_major_version": "/../../../../../../../../../..{folder}/evil-13",
    },
    "version": {"distribution": "{folder}/evil", "distribution_major_version": "99"},
}


@pytest.mark.parametrize("name", LATER)
def test_a_fact_that_changes_after_its_check_names_no_file(name: str, tmp_path: Path) -> None:
    """gpu_codec reads a file of variables named after the system: templates in it run on the controller."""
    for file in ("evil-13.yml", "evil.yml"):
        (tmp_path / file).write_text("gpu_from_elsewhere: taken\ngpu_codec_build_packages: [evil]\n")
    book = tmp_path / "book.yml"
    book.write_text(textwrap.dedent(BOOK))
    (tmp_path / "host").mkdir()
    later = {key: value.replace("{folder}", str(tmp_path)) for key, value in LATER[name].items()}
    with ScriptedHost(tmp_path / "host") as host:
        host.answer("setup ", {"ansible_facts": DEBIAN})
        answer = {"content": OS_RELEASE, "encoding": "base64", "source": "/etc/os-release", "ansible_facts": later}
        host.answer("slurp ", answer)
        ansible_run.run(
            host.target, roles=(), variables={}, log_dir=tmp_path / "log", on_event=lambda _: None, playbook=book
        )
    log = (tmp_path / "log/ansible.log").read_text()
    assert "taken" not in log
    assert "nothing came from elsewhere" in log
