"""Before a role restarts a machine: who uses it. Real Ansible on this computer, which it does not restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from places import COLLECTION
from rolevalues import played, printing

# In place of the modules that look at the machine: a next boot without a driver, and who the file of the step names.
PLAYED = {
    "next_boot": """
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule(argument_spec={"driver": {"type": "bool"}}, supports_check_mode=True)
module.exit_json(faults=["no module"] if module.params["driver"] else [])
""",
    "in_use": """
import json, os
from ansible.module_utils.basic import AnsibleModule
module = AnsibleModule(argument_spec={"own": {"required": True}}, supports_check_mode=True)
assert module.params["own"] == "/run/gpuprep/turn"
with open(os.environ["USED"]) as file:
    module.exit_json(by=json.load(file))
""",
}
ITSELF = "with local connection would reboot the control node"


def step(name: str, used: str, **variables: Any) -> dict[str, Any]:
    restart = {"ansible.builtin.include_role": {"name": "gpu_driver", "tasks_from": "restart"}, "vars": variables}
    return {
        "environment": {"USED": used},
        "block": [restart],
        "rescue": [{"ansible.builtin.debug": printing(name, "ansible_failed_result.msg")}],
    }


def test_a_machine_that_came_into_use_is_not_restarted(tmp_path: Path) -> None:
    copy = tmp_path / "told/ansible_collections/gpuprep/gpu"
    (copy / "plugins/modules").mkdir(parents=True)
    for part in ("roles", "plugins/filter", "plugins/module_utils"):
        (copy / part).symlink_to(COLLECTION / part)
    for name, text in PLAYED.items():
        (copy / f"plugins/modules/{name}.py").write_text(text)
    used, nobody = str(tmp_path / "used"), str(tmp_path / "nobody")
    Path(nobody).write_text("[]")
    Path(used).write_text('["python3 (process 812, alice)", "who is logged in is not known: {{ 7 * 191 }}"]')
    tasks = [
        step("nobody", nobody),
        step("used", used),
        step("go", used, gpu_driver_when_busy="go"),
        step("forbidden", used, gpu_driver_allow_reboot=False),
        step("lost", nobody, gpu_driver_none_after_restart=False),
    ]
    variables = {"gpu_driver_reboot_reasons": ["ECC waits for it"], "gpu_driver_none_after_restart": True}
    done, said = played(tmp_path, {"vars": variables, "tasks": tasks}, collections=tmp_path / "told")
    assert done.returncode == 0, done.stdout + done.stderr
    assert ITSELF in said["nobody"]
    assert ITSELF in said["go"]
    assert said["forbidden"].startswith("A reboot is needed, and is not allowed")
    assert said["lost"].endswith("because the next boot would lose its GPU: no module")
    assert said["used"].startswith(
        "The machine was not restarted (ECC waits for it), because it is in use: python3 (process 812, alice);"
        " who is logged in is not known: {{ 7 * 191 }}. What to do:"
    )
