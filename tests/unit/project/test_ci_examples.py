"""The workflows that we hand out: .ci/cloud.yml, and those of docs/fleets.md. Readable YAML, sound shell."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from places import ROOT

WORKFLOW = yaml.safe_load((ROOT / ".ci/cloud.yml").read_text(encoding="utf-8"))
EXAMPLES = re.findall(r"^```yaml\n(.*?)^```$", (ROOT / "docs/fleets.md").read_text(encoding="utf-8"), re.M | re.S)


def scripts(data: Any) -> Iterator[str]:
    """What a runner gives to a shell: `run` of GitHub, `script` of GitLab."""
    if isinstance(data, dict):
        for key, value in data.items():
            if key == "run" and isinstance(value, str):
                yield value
            elif key == "script":
                yield "\n".join(value)
            else:
                yield from scripts(value)
    elif isinstance(data, list):
        for value in data:
            yield from scripts(value)


ALL = [text for data in [WORKFLOW, *map(yaml.safe_load, EXAMPLES)] for text in scripts(data)]


def test_there_are_scripts_in_each() -> None:
    assert len(EXAMPLES) == 2
    assert all(list(scripts(yaml.safe_load(text))) for text in EXAMPLES)
    assert len(list(scripts(WORKFLOW))) > 8


@pytest.mark.parametrize("number", range(len(ALL)))
def test_the_shell_is_sound(number: int) -> None:
    if shutil.which("shellcheck") is None:
        pytest.skip("shellcheck is not installed")
    # SC2154, SC2086: variables that the runner sets; options that are several words on purpose.
    command = ["shellcheck", "-s", "bash", "-e", "SC2154,SC2086", "-S", "warning", "-"]
    done = subprocess.run(command, input=ALL[number], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_cloud_workflow_starts_by_hand_alone_and_always_removes_the_machine() -> None:
    triggers = WORKFLOW[True]  # YAML 1.1 reads the key `on` as true
    assert set(triggers) == {"workflow_dispatch"}
    assert not (ROOT / ".github/workflows/cloud.yml").exists()
    steps = WORKFLOW["jobs"]["certify"]["steps"]
    ends = [step for step in steps if re.search(r"terminate-instances|instances delete", step.get("run", ""))]
    assert len(ends) == len(triggers["workflow_dispatch"]["inputs"]["cloud"]["options"])
    assert all(step["if"].startswith("always()") for step in ends)
    # What a person types into a form never becomes a word of a shell.
    assert not [text for text in scripts(WORKFLOW) if "${{" in text]
