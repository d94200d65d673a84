"""/usr/local/bin/gpuprep-drift as the role writes it: to a scheduler a Python that cannot start is unknown."""

from __future__ import annotations

import shutil
import subprocess
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from places import COLLECTION, ROOT

INSTALL = COLLECTION / "roles" / "gpu_agent" / "tasks" / "install.yml"
AGENT = "/opt/gpuprep/agent/current"
DRIFT = "/usr/local/bin/gpuprep-drift"
PROGRAM = 'import os, sys\nprint(os.environ["SAYS"])\nsys.exit(int(os.environ["ENDS"]))\n'
NPD_BYTES = 80  # node-problem-detector's default max_output_length


@dataclass
class Installed:
    """An agent whose Python is real; what the program says and how it ends is told by the environment."""

    agent: Path
    wrapper: Path

    @property
    def python(self) -> Path:
        return self.agent / "bin" / "python"

    @property
    def package(self) -> Path:
        (site,) = self.agent.glob("lib/python3*/site-packages")
        return site / "gpuprep"

    def run(self, *words: str, says: str = "", ends: int = 0) -> subprocess.CompletedProcess[str]:
        """As slurmd runs it: without a PATH."""
        told = {"SAYS": says, "ENDS": str(ends)}
        return subprocess.run(
            ["/bin/sh", str(self.wrapper), *words], capture_output=True, text=True, check=False, env=told
        )


def text() -> str:
    (block,) = [task["block"] for task in yaml.safe_load(INSTALL.read_text()) if "block" in task]
    copies = [task["ansible.builtin.copy"] for task in block if "ansible.builtin.copy" in task]
    (found,) = [copy["content"] for copy in copies if copy["dest"] == DRIFT]
    return str(found)


@pytest.fixture
def installed(tmp_path: Path) -> Installed:
    agent, wrapper = tmp_path / "agent", tmp_path / "gpuprep-drift"
    venv.create(agent, symlinks=True, with_pip=False)
    assert text().count(AGENT) == 1
    wrapper.write_text(text().replace(AGENT, str(agent)))
    found = Installed(agent, wrapper)
    (found.package / "nightly").mkdir(parents=True)
    (found.package / "__init__.py").touch()
    (found.package / "nightly" / "__init__.py").touch()
    (found.package / "nightly" / "__main__.py").write_text(PROGRAM)
    return found


@pytest.mark.parametrize("verb", ["npd", "slurm"])
@pytest.mark.parametrize("code", [0, 1, 2, 3])
def test_what_the_check_says_is_passed_on(installed: Installed, verb: str, code: int) -> None:
    line = "gpuprep FAIL: gpu 0.clocks, 100 % of \\n"
    done = installed.run(verb, says=line, ends=code)
    assert (done.returncode, done.stdout, done.stderr) == (code, f"{line}\n", "")


def no_python(installed: Installed) -> None:
    installed.python.unlink()


def no_folder(installed: Installed) -> None:
    shutil.rmtree(installed.agent)


def no_package(installed: Installed) -> None:
    shutil.rmtree(installed.package)


def no_import(installed: Installed) -> None:
    (installed.package / "__init__.py").write_text("torn by a full disk (")


def dies(installed: Installed) -> None:
    installed.python.unlink()
    installed.python.write_text("#!/bin/sh\nkill -SEGV $$\n")
    installed.python.chmod(0o755)


BROKEN = [no_python, no_folder, no_package, no_import, dies]


@pytest.mark.parametrize("broken", BROKEN)
@pytest.mark.parametrize(("verb", "unknown"), [("npd", 2), ("slurm", 3)])
def test_a_python_that_cannot_start_is_unknown(
    installed: Installed, broken: Callable[[Installed], None], verb: str, unknown: int
) -> None:
    broken(installed)
    done = installed.run(verb)
    assert done.returncode == unknown
    assert done.stdout.startswith("gpuprep UNKNOWN: its agent does not start; ")
    assert done.stdout.count("\n") == 1
    assert len(done.stdout) <= NPD_BYTES


def test_a_wrong_command_line_says_nothing_of_the_agent(installed: Installed) -> None:
    (installed.package / "nightly" / "__main__.py").write_text("import sys\nsys.exit(2)\n")
    done = installed.run("slurm", "--resum")
    assert (done.returncode, done.stdout) == (2, "")


def test_the_other_verbs_are_the_program_itself(installed: Installed) -> None:
    assert installed.run("run", "--service", says="x", ends=10).returncode == 10
    assert installed.run().returncode == 0
    no_package(installed)
    done = installed.run("last")
    assert (done.returncode, done.stdout) == (1, "")
    assert "No module named" in done.stderr


def test_the_real_program_answers_through_it(installed: Installed) -> None:
    """Whatever it knows of this machine; most have no result at all."""
    no_package(installed)
    (installed.package.parent / "gpuprep.pth").write_text(f"{ROOT}\n")
    done = installed.run("npd")
    assert done.returncode in (0, 1, 2)
    assert done.stdout.startswith("gpuprep ")
    assert "agent does not start" not in done.stdout
    assert installed.run("slurm", "--nonsense").returncode == 2
