"""What root installs from a package index: attacks by the index, by who calls, and by files that lie around.

Each runs the role's own command, taken from its YAML. The machine's own setting, /etc/pip.conf, is played by pip.conf
in the environment that the command works in: pip reads both alike.
"""

from __future__ import annotations

import functools
import http.server
import io
import os
import shutil
import stat
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import amount
import pytest
import wheelsfortests
from roletasks import Command, command

PINNED = "psutil"
VERSION = "7.2.2"
pytestmark = pytest.mark.xdist_group("wheels")  # one environment for all
EVIL_MODULE = "import os, pathlib\npathlib.Path(os.environ.get('EVIL_MARK', {mark!r})).write_text('ran')\n"


@dataclass
class Machine:
    """A host's folders, the agent's new environment in them, and what an attacker can reach."""

    root: Path
    new: Path  # the agent's new environment
    wheelhouse: str = ""
    environment: dict[str, str] = field(default_factory=dict)
    folder: Path | None = None  # where the caller stands

    @property
    def mark(self) -> Path:
        """What evil code writes when it runs."""
        return self.root / "evil-code-ran"

    def command(self, name: str, role: str = "gpu_agent", file: str = "install.yml") -> Command:
        return command(role, file, name, gpu_agent_new=str(self.new), gpu_agent_wheelhouse=self.wheelhouse)

    def run(self, wanted: Command, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """As Ansible does: from the caller's folder unless the task names another, with the caller's environment."""
        return subprocess.run(
            wanted.argv, cwd=wanted.folder or self.folder or self.root, input=stdin, capture_output=True, text=True,
            check=False, env={"PATH": os.environ["PATH"], "HOME": str(self.root), **self.environment},
        )  # fmt: skip

    def install(self, *lines: str) -> subprocess.CompletedProcess[str]:
        (self.new / "requirements.txt").write_text("\n".join(lines) + "\n")
        return self.run(self.command("Install the agent's libraries"))

    def installed(self) -> str:
        """What the installed module says, "" where none is installed."""
        found = list(self.new.glob(f"lib/python3*/site-packages/{PINNED}.py"))
        return found[0].read_text().split("'")[1] if found else ""

    def index(self, *files: Path) -> str:
        """The machine's index, as its administrator set it."""
        address = wheelsfortests.index(self.root / "index", *files)
        (self.new / "pip.conf").write_text(f"[global]\nindex-url = {address}\n")
        return address


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python environment made by the role's own command."""
    new = tmp_path_factory.mktemp("machine") / "new"
    made = Machine(new.parent, new)
    done = made.run(made.command("Make the agent's Python environment"))
    assert done.returncode == 0, done.stderr
    return new


@pytest.fixture
def machine(environment: Path, tmp_path: Path) -> Iterator[Machine]:
    yield Machine(tmp_path, environment)
    (environment / "pip.conf").unlink(missing_ok=True)
    shutil.rmtree(environment / "wheels", ignore_errors=True)
    for path in environment.glob(f"lib/python3*/site-packages/{PINNED}*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return wheelsfortests.wheel(tmp_path / "good", PINNED, VERSION, says="good")


@pytest.fixture
def evil(tmp_path: Path) -> Path:
    return wheelsfortests.wheel(tmp_path / "evil", PINNED, VERSION, says="evil")


def pin(*wheels: Path) -> str:
    return " ".join([f"{PINNED}=={VERSION}", *(f"--hash=sha256:{wheelsfortests.sha256(wheel)}" for wheel in wheels)])


def refused(done: subprocess.CompletedProcess[str], machine: Machine) -> None:
    assert done.returncode != 0
    assert machine.installed() == ""
    assert not machine.mark.exists()


def test_what_is_pinned_is_installed(machine: Machine, good: Path) -> None:
    machine.index(good)
    done = machine.install(pin(good))
    assert done.returncode == 0, done.stderr
    assert machine.installed() == "good"


# ---------------------------------------------------------------- the index


def test_an_index_with_other_content_under_the_right_name(machine: Machine, good: Path, evil: Path) -> None:
    machine.index(evil)
    done = machine.install(pin(good))
    refused(done, machine)
    assert "HASHES" in done.stderr


@pytest.mark.only_all
def test_an_index_on_the_network_with_other_content(machine: Machine, good: Path, evil: Path) -> None:
    folder = machine.root / "served"
    wheelsfortests.index(folder, evil)
    (folder / PINNED / "index.html").write_text(f'<a href="/{PINNED}/{evil.name}">{evil.name}</a>')
    shutil.copy(evil, folder / PINNED)

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        (machine.new / "pip.conf").write_text(f"[global]\nindex-url = http://127.0.0.1:{server.server_port}\n")
        done = machine.install(pin(good))
        server.shutdown()
    refused(done, machine)
    assert "HASHES" in done.stderr


def test_an_index_that_adds_a_newer_build(machine: Machine, good: Path, tmp_path: Path) -> None:
    newer = wheelsfortests.wheel(tmp_path / "newer", PINNED, VERSION, says="evil", build="9")
    machine.index(good, newer)
    machine.install(pin(good))
    assert machine.installed() != "evil"


@pytest.mark.only_all
def test_an_index_that_claims_the_right_hash_for_another_file(machine: Machine, good: Path, evil: Path) -> None:
    machine.index(evil)
    page = machine.root / "index" / PINNED / "index.html"
    page.write_text(page.read_text().replace('.whl"', f'.whl#sha256={wheelsfortests.sha256(good)}"'))
    refused(machine.install(pin(good)), machine)


@pytest.mark.only_all
def test_an_index_that_claims_another_files_hash_as_its_own(machine: Machine, good: Path, evil: Path) -> None:
    machine.index(evil)
    page = machine.root / "index" / PINNED / "index.html"
    page.write_text(page.read_text().replace('.whl"', f'.whl#sha256={wheelsfortests.sha256(evil)}"'))
    refused(machine.install(pin(good)), machine)


def test_an_sdist_in_place_of_the_wheel(machine: Machine, tmp_path: Path) -> None:
    source = tmp_path / f"{PINNED}-{VERSION}.tar.gz"
    with tarfile.open(source, "w:gz") as archive:
        for name, text in (("setup.py", EVIL_MODULE.format(mark=str(machine.mark))), ("PKG-INFO", "Name: psutil\n")):
            entry = tarfile.TarInfo(f"{PINNED}-{VERSION}/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    machine.index(source)
    refused(machine.install(pin(source)), machine)


def test_a_wheel_that_asks_for_another_package(machine: Machine, tmp_path: Path) -> None:
    asks = wheelsfortests.wheel(tmp_path / "asks", PINNED, VERSION, says="good", requires="psutil_helper")
    helper = wheelsfortests.wheel(tmp_path / "asks", "psutil_helper", "1.0", says="evil")
    machine.index(asks, helper)
    assert machine.install(pin(asks)).returncode == 0
    assert not list(machine.new.glob("lib/python3*/site-packages/psutil_helper*"))


@pytest.mark.parametrize("edit", amount.few(["one line without", "no hash", "another hash", "a weaker algorithm"], 1))
def test_requirements_that_were_edited(machine: Machine, good: Path, evil: Path, tmp_path: Path, edit: str) -> None:
    other = wheelsfortests.wheel(tmp_path / "other", "psutil_other", "1.0", says="evil")
    machine.index(evil, other)
    lines = {
        "no hash": [pin()],
        "another hash": [pin(good)],
        "one line without": [pin(evil), "psutil_other==1.0"],
        "a weaker algorithm": [f"{pin()} --hash=md5:{'0' * 32}"],
    }[edit]
    refused(machine.install(*lines), machine)


# ---------------------------------------------------------------- a folder of wheels


def test_a_wheelhouse_with_another_wheel(machine: Machine, good: Path, evil: Path) -> None:
    shutil.copytree(evil.parent, machine.new / "wheels")
    machine.wheelhouse = "given"
    done = machine.install(pin(good))
    refused(done, machine)
    assert "HASHES" in done.stderr


@pytest.mark.only_all
def test_a_wheelhouse_with_another_wheel_beside_the_right_one(machine: Machine, good: Path) -> None:
    shutil.copytree(good.parent, machine.new / "wheels")
    wheelsfortests.wheel(machine.new / "wheels", PINNED, VERSION, says="evil", build="9")
    machine.wheelhouse = "given"
    machine.install(pin(good))
    assert machine.installed() != "evil"


# ---------------------------------------------------------------- who calls: environment, home, folder, umask

CONFIGURED = (
    "[global]\nindex-url = {evil}\nextra-index-url = {evil}\nfind-links = {files}\n[install]\ntarget = {taken}\n"
)
# What the attacker sets ► its value. Each file config holds CONFIGURED.
VARIABLES = {
    "PIP_INDEX_URL": "{evil}",
    "PIP_TARGET": "{taken}",
    "PIP_PREFIX": "{taken}",
    "PIP_ROOT": "{taken}",
    "PIP_LOG": "{taken}",
    "PIP_REQUIREMENT": "{requirements}",
    "PIP_CONSTRAINT": "{requirements}",
    "PIP_NO_INDEX": "1",
    "PIP_PYTHON": "{program}",
    "PIP_CONFIG_FILE": "{home}/pip/pip.conf",
    "XDG_CONFIG_HOME": "{home}",
    "XDG_CONFIG_DIRS": "{home}",
    "HOME": "{home}",
    "PYTHONPATH": "{modules}",
    "PYTHONHOME": "{modules}",
}
ALONE = pytest.mark.only_all


@pytest.mark.parametrize(
    "names",
    [pytest.param(tuple(VARIABLES), id="all"), *(pytest.param((name,), id=name, marks=ALONE) for name in VARIABLES)],
)
def test_a_variable_of_the_caller(machine: Machine, good: Path, evil: Path, names: tuple[str, ...]) -> None:
    """The right wheel is installed in the right place, and nothing of the attacker's runs or is written.

    All variables at once: one that got through would do what it does alone.
    """
    places = {key: machine.root / key for key in ("home", "modules", "taken", "requirements", "program")}
    (places["home"] / "pip").mkdir(parents=True)
    (places["home"] / ".config").symlink_to(places["home"])
    places["modules"].mkdir()
    for module in ("sitecustomize", "usercustomize", "pip", "encodings"):
        (places["modules"] / f"{module}.py").write_text(EVIL_MODULE.format(mark=str(machine.mark)))
    places["requirements"].write_text("psutil_other==1.0\n")
    places["program"].write_text(f"#!/bin/sh\ntouch {machine.mark}\n")
    places["program"].chmod(0o755)
    values = {
        "evil": wheelsfortests.index(machine.root / "evil-index", evil),
        "files": str(evil.parent),
        **{key: str(path) for key, path in places.items()},
    }
    (places["home"] / "pip/pip.conf").write_text(CONFIGURED.format(**values))
    machine.index(good)
    machine.environment = {name: VARIABLES[name].format(**values) for name in names}
    wanted = machine.command("Install the agent's libraries")
    # Ansible's own Python starts the task: what the caller's variables do to that one is not the role's to say.
    if "PYTHONHOME" in names:
        assert wanted.argv[1] == "-I"
    (machine.new / "requirements.txt").write_text(pin(good) + "\n")
    done = machine.run(wanted)
    assert done.returncode == 0, done.stderr
    assert machine.installed() == "good"
    assert not machine.mark.exists()
    assert not places["taken"].exists()


def test_a_proxy_of_the_caller_is_kept(machine: Machine, good: Path) -> None:
    """The one thing that gets through: without it some machines reach nothing. Hashes hold whatever it answers."""
    (machine.new / "pip.conf").write_text("[global]\nindex-url = http://index.example/simple\nretries = 0\n")
    machine.environment = {"http_proxy": "http://127.0.0.1:9"}
    done = machine.install(pin(good))
    refused(done, machine)
    assert "proxy" in done.stderr.lower() or "No matching distribution" in done.stderr


MODULES = ("pip", "venv", "ensurepip", "base64", "zipfile", "os", "pwd")


@pytest.mark.parametrize(
    "task", ["Make the agent's Python environment", "Install the agent's libraries", "Unpack the agent"]
)
def test_modules_in_the_callers_folder(machine: Machine, task: str) -> None:
    """Only that none is imported: what each command does is tested elsewhere."""
    machine.folder = machine.root / "caller"
    machine.folder.mkdir()
    for module in MODULES:
        (machine.folder / f"{module}.py").write_text(EVIL_MODULE.format(mark=str(machine.mark)))
    (machine.new / "requirements.txt").write_text("")
    wanted = machine.command(task)
    # The environment itself is made once, in a place of its own: what is imported is seen before anything is made.
    argv = [*wanted.argv[:-1], "--help"] if "Make" in task else wanted.argv
    machine.run(Command(argv, wanted.folder))
    assert not machine.mark.exists()


def test_a_umask_of_the_caller(machine: Machine, good: Path) -> None:
    machine.index(good)
    before = os.umask(0)
    try:
        assert machine.install(pin(good)).returncode == 0
    finally:
        os.umask(before)
    rights = [path.stat().st_mode for path in machine.new.glob(f"lib/python3*/site-packages/{PINNED}*")]
    assert rights
    assert not [mode for mode in rights if mode & (stat.S_IWGRP | stat.S_IWOTH)]
