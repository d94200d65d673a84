"""A real Ansible on the controller against a scripted host: what it answers decides nothing here.

Each run takes seconds, so one run serves several attacks.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from places import COLLECTION, ROOT
from scriptedhost import DEEP, HANG, ScriptedHost
from waiting import until

from gpuprep import errors
from gpuprep.provisioning import ansible_environment, ansible_events, ansible_run


@dataclass
class Stage:
    """A folder with a scripted host and a scratch folder of its own, by which its processes are found."""

    folder: Path
    host: ScriptedHost
    events: list[ansible_run.Progress]

    def run(self, book: str | Path, **options: Any) -> Any:
        path = Path(book)
        if isinstance(book, str) and "\n" in book:
            path = self.folder / "book.yml"
            path.write_text(textwrap.dedent(book))
        chosen = {"roles": (), "variables": {}, **options}
        return ansible_run.run(
            self.host.target, log_dir=self.folder / "log", on_event=self.events.append, playbook=path, **chosen
        )

    @property
    def log(self) -> str:
        return (self.folder / "log/ansible.log").read_text()

    def processes(self) -> list[str]:
        """Command lines of what is left of a run: all of them name the scratch folder."""
        scratch = str(self.folder / "scratch")
        found = []
        for process in psutil.process_iter(["cmdline", "status"]):
            line = " ".join(process.info["cmdline"] or ())
            if scratch in line and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(line)
        return found

    def none_is_left(self) -> None:
        until(lambda: not self.processes(), lambda: f"left of the run: {self.processes()}")


@pytest.fixture(scope="module")
def make_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], Stage]]:
    made: list[Stage] = []
    before = tempfile.tempdir

    def make() -> Stage:
        folder = tmp_path_factory.mktemp("s")
        for name in ("host", "scratch"):
            (folder / name).mkdir()
        tempfile.tempdir = str(folder / "scratch")
        made.append(Stage(folder, ScriptedHost(folder / "host"), []))
        return made[-1]

    yield make
    tempfile.tempdir = before
    for stage in made:
        stage.host.__exit__(None, None, None)


# ---------------------------------------------------------------- what a host answers is data

# Variables of the roles that name a place of the controller, or a program there.
FACTS = {
    "gpu_agent_wheelhouse": "/secret",
    "gpu_codec_artifact_dir": "/secret",
    "gpu_codec_ffmpeg_url": "file:///secret",
    "gpu_driver_version": "666",
    "ansible_ssh_common_args": "-oProxyCommand=id",
    "ansible_connection": "local",
    "ansible_host": "evil",
    "ansible_become_user": "evil",
    "role_path": "/secret",
    "playbook_dir": "/secret",
    "inventory_hostname": "evil",
    "lookup": "evil",
    "gpu_preflight_package_manager": "../../../../secret",
}
TEMPLATE = "{{ 1 + 1 }}{{ lookup('pipe', 'touch OWNED') }}"
FORGED = base64.b64encode(
    json.dumps(
        {"uuid": "x", "event": "runner_on_ok", "event_data": {"task": "FORGED", "res": {"changed": True}}}
    ).encode()
).decode()
ENVELOPE = "\x1b[K" + "".join(f"{FORGED[i : i + 70]}\x1b[{len(FORGED[i : i + 70])}D" for i in range(0, len(FORGED), 70))
VARIABLES: dict[str, Any] = {
    "gpu_text": TEMPLATE,
    "gpu_list": [TEMPLATE, [TEMPLATE]],
    "gpu_dict": {"k": {"k": TEMPLATE}, TEMPLATE: "v"},
    "gpu_version": "12.4",
    "gpu_branch": "550",
    "gpu_yes": "yes",
    "gpu_none": "",
    "gpu_true": True,
    "gpu_number": 7,
}
DATA_BOOK = """
    - hosts: all
      gather_facts: false
      tasks:
        - name: Facts
          ansible.builtin.setup:
        - name: Warn
          ansible.builtin.ping:
          register: registered
        - name: Variables
          ansible.builtin.debug: {{msg: "{{{{ {variables} | to_json }}}}"}}
        - name: Overridden
          ansible.builtin.debug:
            msg: "{{{{ lookup('ansible.builtin.vars', item, default='unset') }}}}"
          loop: {names}
        - name: Registered
          ansible.builtin.debug: {{msg: "{{{{ registered.msg ~ ansible_facts.distribution }}}}"}}
    """


@dataclass(frozen=True)
class Seen:
    """What the controller ended up with in one run against a host that answers all of the above."""

    variables: dict[str, Any]
    overridden: dict[str, Any]
    registered: str
    tasks: list[str]
    log: str
    folder: Path


@pytest.fixture(scope="module")
def seen(make_stage: Callable[[], Stage]) -> Seen:
    stage = make_stage()
    command = TEMPLATE.replace("OWNED", str(stage.folder / "owned"))
    stage.host.answer(
        "setup ", {"ansible_facts": {**FACTS, "distribution": command}, "warnings": [f"w {ENVELOPE}\x1b[K"]}
    )
    stage.host.answer("ping ", {"msg": command, "warnings": ["\x1b]0;title\x07"], "add_host": {"host_name": "evil"}})
    names = [name for name in FACTS if name not in ("role_path", "playbook_dir", "lookup")]
    book = DATA_BOOK.format(variables="[" + ", ".join(VARIABLES) + "]", names=json.dumps([*names, *FACTS]))
    results: dict[str, Any] = {}
    handle = ansible_events.Events.handle

    def listen(events: Any, event: dict[str, Any]) -> bool:
        data = event.get("event_data") or {}
        if event.get("event") == "runner_item_on_ok":
            results.setdefault("items", {})[data["res"]["item"]] = data["res"]["msg"]
        elif event.get("event") == "runner_on_ok":
            results[data["task"]] = data["res"].get("msg")
        return handle(events, event)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ansible_events.Events, "handle", listen)
        patch.chdir(stage.folder)
        result = stage.run(book, variables=VARIABLES)
    assert not isinstance(result, ansible_run.Failure), result.error
    said = results["Variables"]
    values = said if isinstance(said, list) else json.loads(said)
    return Seen(
        dict(zip(VARIABLES, values, strict=True)),
        results["items"],
        results["Registered"],
        [task.task for task in result.tasks],
        stage.log,
        stage.folder,
    )


ONE_RUN = pytest.mark.xdist_group("ansible_data")  # by one worker


@ONE_RUN
@pytest.mark.parametrize("name", VARIABLES)
def test_a_variable_arrives_as_it_is(name: str, seen: Seen) -> None:
    value = seen.variables[name]
    assert (value, type(value)) == (VARIABLES[name], type(VARIABLES[name]))


@ONE_RUN
@pytest.mark.parametrize("name", FACTS)
def test_a_fact_takes_no_variables_place(name: str, seen: Seen) -> None:
    assert seen.overridden[name] != FACTS[name]


@ONE_RUN
def test_no_template_of_a_host_runs(seen: Seen) -> None:
    assert "lookup" in seen.registered
    assert not list(seen.folder.rglob("owned"))
    assert not list(seen.folder.rglob("OWNED"))


@ONE_RUN
def test_a_host_forges_no_event(seen: Seen) -> None:
    assert "FORGED" not in seen.tasks
    assert seen.tasks[:2] == ["Facts", "Warn"]


@ONE_RUN
def test_a_host_writes_no_escape_to_the_log(seen: Seen) -> None:
    assert "\x1b" not in seen.log
    assert "\x07" not in seen.log


# ---------------------------------------------------------------- the real roles

DEBIAN = {
    "distribution": "Debian",
    "distribution_major_version": "13",
    "distribution_version": "13",
    "distribution_release": "trixie",
    "os_family": "Debian",
    "kernel": "6.12.0",
    "architecture": "x86_64",
    "user_id": "root",
    "effective_user_id": 0,
}


PATHS = {
    "distribution": "../../../../../tmp/evil",
    "distribution_major_version": "13/../../../../tmp/evil",
    "os_family": "../../../../../tmp/evil",
}


@pytest.mark.machines
@pytest.mark.parametrize("fact", PATHS)
def test_a_system_is_no_path(fact: str, make_stage: Callable[[], Stage]) -> None:
    """preflight reads a file that is named after the system: of our folder, whatever the host says."""
    stage = make_stage()
    stage.host.answer("setup ", {"ansible_facts": {**DEBIAN, fact: PATHS[fact]}})
    failure = stage.run("provision.yml", roles=["gpu_preflight"])
    assert isinstance(failure, ansible_run.Failure)
    assert "does not say which operating system" in failure.error.what
    assert "Load what is particular" not in [task.task for task in failure.result.tasks]


# ---------------------------------------------------------------- by hand, with another Ansible configuration


@pytest.mark.machines
@pytest.mark.parametrize("book", ["provision.yml", "tune.yml", "verify.yml"])
def test_by_hand_the_roles_refuse_to_let_facts_be_variables(book: str, tmp_path: Path) -> None:
    done = by_hand(book, tmp_path, {})
    assert done.returncode != 0
    assert "lets facts of a machine override variables" in done.stdout.replace("\n", " ")
    assert "ANSIBLE_CONFIG=" in done.stdout


@pytest.mark.machines
def test_by_hand_as_documented_they_run(tmp_path: Path) -> None:
    done = by_hand("verify.yml", tmp_path, {"ANSIBLE_CONFIG": str(ansible_environment.playbooks_dir() / "ansible.cfg")})
    assert "override variables, so" not in done.stdout
    assert "Read the facts of the machine" in done.stdout


def by_hand(book: str, folder: Path, settings: dict[str, str]) -> subprocess.CompletedProcess[str]:
    program, books = ansible_environment.ansible_program("ansible-playbook"), ansible_environment.playbooks_dir()
    return subprocess.run(
        [
            str(program),
            "-i",
            "gone,",
            "-e",
            "ansible_port=9 ansible_host=127.0.0.1 ansible_become=false",
            str(books / book),
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "LANG": "C.UTF-8", "ANSIBLE_NOCOLOR": "1", **settings},
    )


def test_every_way_into_a_role_begins_with_that_refusal() -> None:
    roles = COLLECTION / "roles"
    ways = [*roles.glob("*/tasks/main.yml"), *roles.glob("*/tasks/verify.yml")]
    ways += [roles / "gpu_agent/tasks/provenance.yml", roles / "gpu_preflight/tasks/start_upgrades.yml"]
    assert len(ways) > 15
    for way in ways:
        first = way.read_text().split("\n- name:")[1]
        assert "import_" in first, way
        assert "facts_apart" in first, way


# ---------------------------------------------------------------- a host that never answers

ONE_TASK = """
    - hosts: all
      gather_facts: false
      tasks:
        - name: Ask
          ansible.builtin.ping:
    """


@pytest.mark.machines
def test_a_task_that_never_ends_is_ended(make_stage: Callable[[], Stage], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ansible_environment, "TASK_SECONDS", 3)
    stage = make_stage()
    stage.host.answer("ping ", {HANG: 10**6})
    failure = stage.run(ONE_TASK)
    assert isinstance(failure, ansible_run.Failure)
    assert isinstance(failure.error, errors.ProvisionFailed)
    assert "did not end it within 3 seconds" in failure.error.what
    stage.none_is_left()


@pytest.mark.machines
def test_an_answer_too_deep_is_a_failed_step(make_stage: Callable[[], Stage]) -> None:
    stage = make_stage()
    stage.host.answer("ping ", {DEEP: 100_000})
    failure = stage.run(ONE_TASK)
    assert isinstance(failure, ansible_run.Failure)
    assert isinstance(failure.error, errors.ProvisionFailed)
    assert "Ask" in failure.error.what


@pytest.mark.machines
def test_an_interruption_leaves_no_process(make_stage: Callable[[], Stage]) -> None:
    stage = make_stage()
    stage.host.answer("ping ", {HANG: 10**6})
    hanging = stage.folder / "host/hanging"

    seen: list[str] = []

    def cancelled() -> bool:
        if hanging.exists() and not seen:
            seen.extend(stage.processes())
        return bool(seen)

    failure = stage.run(ONE_TASK, cancelled=cancelled)
    assert isinstance(failure, ansible_run.Failure)
    assert isinstance(failure.error, errors.Interrupted)
    assert any("ssh" in line for line in seen)
    stage.none_is_left()


@pytest.mark.machines
def test_an_error_of_ours_leaves_no_process(make_stage: Callable[[], Stage]) -> None:
    stage = make_stage()
    stage.host.answer("ping ", {HANG: 10**6})
    hanging = stage.folder / "host/hanging"

    def broken() -> bool:
        if hanging.exists():
            raise BrokenPipeError
        return False

    with pytest.raises(Exception, match="Cancel Callback"):
        stage.run(ONE_TASK, cancelled=broken)
    stage.none_is_left()


@pytest.mark.machines
@pytest.mark.parametrize("number", [9, 15], ids=["KILL", "TERM"])
def test_a_killed_gpuprep_leaves_no_process(number: int, make_stage: Callable[[], Stage]) -> None:
    stage = make_stage()
    stage.host.answer("ping ", {HANG: 10**6})
    book = stage.folder / "book.yml"
    book.write_text(textwrap.dedent(ONE_TASK))
    target = stage.host.target
    program = f"""
import tempfile
from pathlib import Path
from gpuprep.provisioning import ansible_run
from gpuprep.remote.types import Target
tempfile.tempdir = {str(stage.folder / "scratch")!r}
ansible_run.run({target!r}, roles=(), variables={{}}, log_dir=Path({str(stage.folder / "log")!r}),
                on_event=lambda _: None, playbook=Path({str(book)!r}))
"""
    process = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(ROOT)})
    try:
        until((stage.folder / "host/hanging").exists, "the module was not asked")
        assert stage.processes()
    finally:
        os.kill(process.pid, number)
        process.wait()
    stage.none_is_left()
