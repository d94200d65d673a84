"""What the roles do before and while they change packages: run by Ansible, with stand-ins of a host's programs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fakeprograms import program
from places import COLLECTION
from rolevalues import played, printing

BUSY = {"/var/lib/dpkg/lock-frontend": "unattended-upgr (process 812)"}
SAID = "unattended-upgr (process 812) works with the packages and holds /var/lib/dpkg/lock-frontend"
HALF_DONE = {"acme-agent": "half-configured", "{{ 7 * 191 }}": "unpacked"}
STATES: dict[str, dict[str, Any]] = {
    "sound": {"unfinished": {}, "others": {}, "ours": [], "journal": [], "holders": {}},
    "busy": {"unfinished": {}, "others": {}, "ours": [], "journal": [], "holders": BUSY},
    "broken": {
        "unfinished": HALF_DONE,
        "others": HALF_DONE,
        "ours": [],
        "journal": ["/var/lib/dpkg/updates/0001"],
        "holders": {},
    },
    "unreadable": {"msg": "dpkg-query cannot read which packages are installed"},
}


def step(name: str, tasks_from: str, state: str, **variables: Any) -> dict[str, Any]:
    """A step of gpu_preflight on a host in this state; printed is "done", or the message it fails with."""
    role = {"ansible.builtin.include_role": {"name": "gpu_preflight", "tasks_from": tasks_from}, "vars": variables}
    return {
        "environment": {"STATE": state},
        "block": [role, {"ansible.builtin.debug": printing(name, "'done'")}],
        "rescue": [{"ansible.builtin.debug": printing(name, "ansible_failed_result.msg")}],
    }


# In place of the module package_state: the state that the step's environment names.
PLAYED = """
import json, os
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule(argument_spec={}, supports_check_mode=True)
with open(os.environ["STATE"]) as file:
    answer = json.load(file)
(module.fail_json if "unfinished" not in answer else module.exit_json)(**answer)
"""


def collection_that_is_told(folder: Path) -> Path:
    """The collection, with PLAYED; where Ansible finds it."""
    copy = folder / "ansible_collections/gpuprep/gpu"
    (copy / "plugins/modules").mkdir(parents=True)
    for part in ("roles", "plugins/filter", "plugins/module_utils"):
        (copy / part).symlink_to(COLLECTION / part)
    (copy / "plugins/modules/package_state.py").write_text(PLAYED)
    return folder


def test_a_step_waits_for_others_and_is_not_begun_on_what_is_half_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = {}
    for name, state in STATES.items():
        path = tmp_path / f"{name}.json"
        path.write_text(json.dumps({**state, "msg": SAID if state.get("holders") else state.get("msg", "")}))
        states[name] = str(path)
    folder = tmp_path / "bin"
    folder.mkdir()
    log = tmp_path / "log"
    program(folder / "dpkg-query", 'printf "installed there there=1\\n"')
    holds = tmp_path / "holds"
    program(folder / "apt-mark", f'[ "$1" = showhold ] && echo broken || echo "$@" >>{holds}')
    refuses = 'case "$*" in *refused*|*--reinstall*) echo "E: Unable to fetch it" >&2; exit 100;; esac'
    program(folder / "apt-get", f'printf "%s " "$@" >>{log}; echo >>{log}; {refuses}')
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    packages = {"gpu_preflight_packages_title": "the driver packages", "gpu_preflight_packages": ["there", "new=2"]}
    tasks = [
        step("broken", "check_packages", states["broken"]),
        step("unreadable", "wait", states["unreadable"]),
        step("installed", "packages_apt", states["sound"], **packages, gpu_preflight_packages_leaving=["old"]),
        step("waited", "packages_apt", states["busy"], **packages),
        step("failed", "packages_apt", states["sound"], **{**packages, "gpu_preflight_packages": ["refused=1"]}),
        step("again", "repair_apt", states["sound"], gpu_preflight_broken=["broken", "free"]),
    ]
    variables = {"gpu_preflight_package_manager": "apt", "gpu_preflight_lock_timeout": 0}
    told = collection_that_is_told(tmp_path / "told")
    done, said = played(tmp_path, {"vars": variables, "tasks": tasks}, collections=told)
    assert done.returncode == 0, done.stdout + done.stderr
    assert said["installed"] == "done"
    waited = f"{SAID}, for more than 0 seconds. Wait until it has ended (`ps -fp 812` shows what it is), then run this"
    assert said["waited"] == f"{waited} again."
    assert "acme-agent is half-configured, {{ 7 * 191 }} is unpacked, unfinished work in /var/lib/dp" in said["broken"]
    assert "Nothing was changed. What to do: `sudo dpkg --configure -a`" in said["broken"]
    assert said["unreadable"].endswith("could not be read: dpkg-query cannot read which packages are installed")
    assert said["failed"].startswith("Installing the driver packages failed: E: Unable to fetch it -- What to do:")
    assert said["again"] == "non-zero return code"
    assert holds.read_text() == "hold broken\n"  # apt had released it, and then failed
    calls = [line for line in log.read_text().splitlines() if " update " not in f"{line} "]
    assert [line.split(" install ")[1].strip() for line in calls] == [
        "--no-install-recommends --allow-downgrades new=2 old-",
        "--no-install-recommends --allow-downgrades --no-remove refused=1",
        "--reinstall --no-install-recommends --allow-change-held-packages --no-remove installed there there=1",
    ]
    assert all("-o DPkg::Lock::Timeout=0 " in line for line in log.read_text().splitlines())


def test_what_was_about_to_go_goes_when_a_step_is_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power cut in a removal apt would have to remove packages, and may not."""
    (tmp_path / "sound.json").write_text(json.dumps({**STATES["sound"], "msg": ""}))
    folder, log = tmp_path / "bin", tmp_path / "log"
    folder.mkdir()
    rows = "deinstall half-installed gcc-13", "purge half-installed nvcc:i386", "install half-installed dkms"
    program(folder / "dpkg-query", "printf '%s\\n' '" + "' '".join((*rows, "deinstall config-files old")) + "'")
    program(folder / "dpkg", f'echo "$@" >>{log}')
    program(folder / "apt-get", f"echo apt-get >>{log}")
    monkeypatch.setenv("PATH", str(folder), prepend=":")
    tasks = [step("completed", "complete_apt", str(tmp_path / "sound.json"))]
    variables = {"gpu_preflight_package_manager": "apt", "gpu_preflight_lock_timeout": 0}
    told = collection_that_is_told(tmp_path / "told")
    done, said = played(tmp_path, {"vars": variables, "tasks": tasks}, collections=told)
    assert said == {"completed": "done"}, done.stdout + done.stderr
    configured, removed, installed = log.read_text().splitlines()
    assert (configured.split()[-1], removed, installed) == ("--pending", "--purge gcc-13 nvcc:i386", "apt-get")
