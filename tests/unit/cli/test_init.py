"""gpuprep init: the login over a real sshd, the facts from a scripted Host, the files as later commands read them."""

from __future__ import annotations

import dataclasses
import html
import json
import subprocess
from collections.abc import Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import amount
import pytest
import yaml
from builders import bare_snapshot, finished_snapshot, resolved
from click.testing import CliRunner, Result
from commandline import own_folders
from fakehost import Script
from places import COLLECTION, SUPPORT
from pseudoterminal import Program
from records_for_tests import record
from scriptedhosts import inventory_of
from sshserver import SSHD, Sshd

from gpuprep import errors, records, remote
from gpuprep.cli import cli
from gpuprep.desired import loading
from gpuprep.store import Store
from gpuprep.workflows import runs, targets

PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
from builders import bare_snapshot
from fakehost import Script
from gpuprep.cli import main
from gpuprep.workflows import runs, sources

runs.Host = Script(snapshots=[bare_snapshot()]).host()
sources.TARBALLS = {{}}
main({words!r})
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    (folder / ".ssh").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    own_folders(monkeypatch, tmp_path)
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    return folder


@pytest.fixture
def server(tmp_path: Path, home: Path) -> Iterator[Sshd]:
    if SSHD is None:
        pytest.skip("there is no sshd")
    folder = tmp_path / "sshd"
    folder.mkdir()
    made = Sshd(folder, home)
    (home / ".ssh/id_ed25519").write_bytes(made.key.read_bytes())
    (home / ".ssh/id_ed25519").chmod(0o600)
    yield made
    made.stop()


@pytest.fixture(autouse=True)
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    made = Script(snapshots=[bare_snapshot()])
    monkeypatch.setattr(runs, "Host", made.host())
    return made


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments), standalone_mode=False)


def is_sound(profile: str) -> bool:
    return run("profiles", "check", f"./{profile}").return_value in (0, None)


def fingerprint(server: Sshd) -> str:
    said = subprocess.run(["ssh-keygen", "-lf", str(server.host_key)], capture_output=True, text=True, check=True)
    return said.stdout.split()[1]


def test_from_an_ssh_key_to_the_next_command(server: Sshd, home: Path) -> None:
    host = f"127.0.0.1:{server.port}"
    made = run("init", host, "--yes")
    assert (made.exception, made.return_value) == (None, 0), made.output
    assert fingerprint(server) in made.stderr
    assert "not let in: debian with ~/.ssh/id_ed25519" in made.stderr
    assert f"logged in as {server.user} with ~/.ssh/id_ed25519" in made.stderr
    name = f"127.0.0.1-{server.port}"
    assert made.stdout.endswith(f"Next:\n  gpuprep provision {name} -i inventory --profile my-t4.yml\n")
    assert "Machine: 1 × T4\n" in made.stdout
    told = " ".join(made.stdout.split())
    assert "In all about 18 minutes, downloads about 2.8 GB, restarts the machine at most once" in told
    assert "an estimate from documented figures" in told
    (target,) = targets.parse([name], "inventory")
    assert (target.address, target.port, target.user) == ("127.0.0.1", server.port, server.user)
    assert target.identity_file == str(home / ".ssh/id_ed25519")
    assert is_sound("my-t4.yml")
    assert loading.load("./my-t4.yml").gpus == ("t4",)
    again = run("init", host)  # the key is known now, and both files are there
    assert (again.exception, again.return_value) == (None, 0), again.output
    assert "there already" in again.stdout
    assert "host key" not in again.stderr


def test_without_a_terminal_a_host_key_is_not_accepted(server: Sshd) -> None:
    host = f"127.0.0.1:{server.port}"
    made = run("init", host, "--name", "gpu-1")
    assert isinstance(made.exception, errors.HostKeyRefused)
    assert f"`gpuprep init {host} --name gpu-1 --accept-new-host-key`" in made.exception.hint
    assert fingerprint(server) in made.stderr
    assert not server.known_hosts.exists()
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(("typed", "accepted"), amount.few([(b"\r", False), (b"y\r", True), (b"n\r", False)], 2))
def test_on_a_terminal_the_host_key_is_shown_and_asked_for(
    server: Sshd, tmp_path: Path, typed: bytes, accepted: bool
) -> None:
    program = PROGRAM.format(tests=str(SUPPORT), words=["init", f"127.0.0.1:{server.port}"])
    with Program(program, tmp_path / "out", {}, columns=160) as running:
        screen = running.until(lambda screen: any("[y/N]" in row for row in screen.shown))
        assert any(f"ssh-ed25519 {fingerprint(server)}" in row for row in screen.shown)
        assert any("ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub" in row for row in screen.shown)
        assert not server.known_hosts.exists()
        running.type(typed)
        code, out, screen = running.end()
    assert (code == 0) is accepted, screen.everything
    assert server.known_hosts.exists() is accepted
    assert Path("my-t4.yml").exists() is accepted
    if accepted:
        assert out.splitlines()[-1].startswith("  gpuprep provision 127.0.0.1-")
    else:
        assert code == 3
        assert any("the host key was not accepted" in row for row in screen.everything)


def test_a_wrong_user_says_the_next_command_and_writes_nothing(server: Sshd) -> None:
    server.trust()
    made = run("init", f"nobody@127.0.0.1:{server.port}")
    assert isinstance(made.exception, errors.AuthenticationRefused)
    assert f"`gpuprep init 127.0.0.1:{server.port}`" in made.exception.hint
    assert list(Path().iterdir()) == []


# ---------------------------------------------------------------- what it writes


def test_this_machine_needs_no_login() -> None:
    made = run("init", "local")
    assert (made.exception, made.return_value) == (None, 0), made.output
    written = yaml.safe_load(Path("inventory/local.yml").read_text(encoding="utf-8"))
    assert written["all"]["hosts"]["local"]["ansible_connection"] == "local"
    assert made.stdout.endswith("Next:\n  gpuprep provision local -i inventory --profile my-t4.yml\n")
    assert "restart" not in made.stdout.replace("no restart", "")  # this machine never is


def test_a_finished_machine_is_to_be_validated(script: Script) -> None:
    script.snapshots = [finished_snapshot(resolved())]
    made = run("init", "local")
    assert "nothing to do" in made.stdout
    assert made.stdout.endswith("Next:\n  gpuprep validate local -i inventory --profile my-t4.yml\n")


@pytest.mark.parametrize(
    ("gpus", "profile", "file"),
    [(("t4", "t4"), "t4", "my-t4.yml"), (("v100",), "v100", "my-v100.yml"), (("a100",), "a100", "my-a100.yml")],
)
def test_the_profile_by_the_gpu(script: Script, gpus: tuple[str, ...], profile: str, file: str) -> None:
    script.snapshots = [bare_snapshot(gpus=gpus)]
    made = run("init", "local")
    assert made.return_value == 0, made.output
    assert f"Profile: {file}, written: extends {profile}" in made.stdout
    assert loading.load(f"./{file}").gpus == (profile,)


def test_gpus_of_several_models_get_base(script: Script) -> None:
    script.snapshots = [bare_snapshot(gpus=("t4", "v100"))]
    made = run("init", "local", "--profile-file", "both.yml")
    assert made.return_value == 0, made.output
    assert "Machine: 1 × T4 and 1 × V100\n" in made.stdout
    assert "Profile: both.yml, written: extends base" in made.stdout
    assert is_sound("both.yml")
    assert loading.load("./both.yml").gpus == ("t4", "v100")


def test_a_gpu_that_nobody_knows_gets_base_and_says_what_that_means(script: Script) -> None:
    bare = bare_snapshot()
    device = dataclasses.replace(bare.pci_gpus[0], device_id="ffff", name="\x1b[2J{{ evil }}: [x]\n- y")
    script.snapshots = [dataclasses.replace(bare, pci_gpus=(device,))]
    made = run("init", "local")
    assert made.return_value == 0, made.output
    assert "its speed" in made.stdout
    assert "UNKNOWN" in made.stdout
    assert "\x1b" not in made.output
    assert "evil" not in Path("my-gpu.yml").read_text() + Path("inventory/local.yml").read_text()
    assert is_sound("my-gpu.yml")


def test_a_machine_without_a_gpu_is_said_to_have_none(script: Script) -> None:
    script.snapshots = [dataclasses.replace(bare_snapshot(), pci_gpus=())]
    made = run("init", "local")
    assert made.return_value == 2
    assert "no NVIDIA GPU on the PCI bus" in made.stderr
    assert "No file was written" in made.stderr
    assert list(Path().iterdir()) == []


def test_files_of_the_user_are_kept() -> None:
    own = Path("my-t4.yml")
    own.write_text("extends: t4\ntuning: {power_limit_watts: 62}\n")
    made = run("init", "local")
    assert "Profile: my-t4.yml, there already, used as it is" in made.stdout
    assert "62" in own.read_text()
    inventory = Path("inventory/local.yml")
    written = inventory.read_text()
    inventory.write_text(written + "# mine\n")
    made = run("init", "local")
    assert isinstance(made.exception, errors.UsageError)
    assert "inventory/local.yml exists already" in made.exception.what
    assert "--force" in made.exception.hint
    assert inventory.read_text().endswith("# mine\n")
    assert run("init", "local", "--force").return_value == 0
    assert inventory.read_text() == written
    assert loading.load("./my-t4.yml").tuning.power_limit_watts == "default"
    assert sorted(path.name for path in Path().iterdir()) == ["inventory", "my-t4.yml"]
    assert [path.name for path in Path("inventory").iterdir()] == ["local.yml"]


@pytest.mark.parametrize("content", ["extends: v100\n", "tuning: {x: 1}\n", "[", ""])
def test_a_profile_that_does_not_serve_the_machine_is_not_used(content: str) -> None:
    Path("my-t4.yml").write_text(content)
    made = run("init", "local")
    assert isinstance(made.exception, errors.UsageError)
    assert "my-t4.yml exists already" in made.exception.what
    assert Path("my-t4.yml").read_text() == content
    assert not Path("inventory").exists()


def test_a_name_of_its_own_and_other_places(server: Sshd) -> None:
    server.trust()
    words = ("--name", "gpu-1", "--inventory", "hosts/all", "--profile-file", "site/gpu.yml")
    made = run("init", f"{server.user}@127.0.0.1:{server.port}", *words)
    assert made.return_value == 0, made.output
    assert made.stdout.endswith("Next:\n  gpuprep provision gpu-1 -i hosts/all --profile site/gpu.yml\n")
    (target,) = targets.parse(["gpu-1"], "hosts/all")
    assert (target.name, target.address, target.port) == ("gpu-1", "127.0.0.1", server.port)


@pytest.mark.parametrize("name", ["../x", "a b", "", "all", "-x", "{{ x }}", "a:b", "x" * 300, "a*"])
def test_names_that_no_inventory_can_have(name: str) -> None:
    made = run("init", "local", f"--name={name}")
    assert isinstance(made.exception, errors.UsageError), made.output
    assert made.exception.exit_code == 2
    assert list(Path().iterdir()) == []


def test_a_simulated_machine_that_is_not_there() -> None:
    made = run("init", "sim:nowhere")
    assert isinstance(made.exception, errors.SimError)


# ---------------------------------------------------------------- plan without --profile, and what it takes


def test_a_plan_without_a_profile_proposes_one_and_says_so(script: Script) -> None:
    made = run("plan", "local")
    assert made.return_value == 0, made.output
    told = " ".join(made.stdout.split())
    assert "Plan for local, profile t4" in told
    assert "profile t4 is proposed, for 1 × T4; --profile t4 says the same" in told
    assert "In all about" in told
    document = json.loads(run("plan", "local", "--json").stdout)
    record = document["runs"][0]
    assert record["profile"]["name"] == "t4"
    assert record["plan"]["notes"][0].startswith("profile t4 is proposed")
    script.snapshots = [dataclasses.replace(bare_snapshot(), pci_gpus=())]
    made = run("plan", "local")
    assert made.return_value == 2
    assert "no NVIDIA GPU on the PCI bus" in made.stderr


@pytest.mark.parametrize("style", ["text", "markdown", "html"])
def test_a_plan_says_what_it_takes_in_each_format(style: str) -> None:
    made = run("plan", "local", "--profile", "t4", "--format", style)
    told = html.unescape(" ".join(made.stdout.split())).replace("\\", "")
    assert "6 min, downloads 120 MB" in told  # the driver
    assert "In all about 17 minutes, downloads about 2.8 GB, no restart" in told, "nobody restarts this machine itself"
    assert "an estimate from documented figures" in told


def test_a_plan_says_it_to_programs_and_of_several_hosts() -> None:
    plan = json.loads(run("plan", "local", "--profile", "t4", "--json").stdout)["runs"][0]["plan"]
    assert (plan["steps"][0]["seconds"], plan["steps"][0]["megabytes"]) == (335.0, 120)
    assert (plan["effort"]["megabytes"], plan["effort"]["restarts"]) == (2767, 0)
    assert plan["effort"]["seconds"] > sum(step["seconds"] for step in plan["steps"])
    assert "step,local," in (rows := run("plan", "local", "--profile", "t4", "--format", "csv").stdout)
    assert ",335.0,s," in rows


def test_the_same_steps_as_with_the_profile() -> None:
    by_name = json.loads(run("plan", "local", "--profile", "t4", "--json").stdout)["runs"][0]
    proposed = json.loads(run("plan", "local", "--json").stdout)["runs"][0]
    assert proposed["plan"]["steps"] == by_name["plan"]["steps"]
    assert proposed["findings"] == by_name["findings"]


def earlier(name: str, **changed: Any) -> records.RunRecord:
    seen = finished_snapshot(resolved())
    tasks = (
        records.TaskResult("gpu_driver", "x", "changed", 100.0),
        records.TaskResult("gpu_cuda", "y", "changed", 50.0),
    )
    played = records.PlaybookResult("successful", 2, 0, 0, tasks, "", 150.0)
    fields: dict[str, Any] = {
        "run_id": name, "command": "provision", "host": "gpu-9", "exit_code": 0, "before": seen, "after": seen,
        "source": seen.source, "profile": records.ProfileRef("t4", "/t4.yml", "0" * 64), "playbook": played,
        "measurements": (),
        "options": {"check": False, "deep": False, "quick": False, "probe": "none"},
        "started_at": "2026-11-20T10:00:00+00:00", "ended_at": "2026-11-20T10:05:00+00:00",
    }  # fmt: skip
    return dataclasses.replace(record(), **{**fields, **changed})


def test_earlier_runs_come_from_the_store() -> None:
    """Of the same profile and system, and only of those that ran the steps."""

    def seconds() -> dict[str, float]:
        document = json.loads(run("plan", "local", "--profile", "t4", "--json").stdout)
        return {step["role"]: step["seconds"] for step in document["runs"][0]["plan"]["steps"]}

    documented = seconds()
    slow = records.PlaybookResult(
        "successful", 1, 0, 0, (records.TaskResult("gpu_driver", "x", "changed", 9999.0),), "", 9999.0
    )
    store = Store.open(None)
    store.append(earlier("20261120-100000-aaaaaa"))
    elsewhere = dataclasses.replace(bare_snapshot("ubuntu2404"), source=records.Source.SIMULATED)
    store.append(earlier("20261120-100000-bbbbbb", before=elsewhere, after=elsewhere, playbook=slow))
    store.append(earlier("20261120-100000-cccccc", playbook=None))
    store.close()
    assert seconds() == {**documented, "gpu_driver": 100.0, "gpu_cuda": 50.0}
    for words in (["init"], ["plan"], ["plan", "--profile", "t4"], ["provision", "--check", "--profile", "t4"]):
        made = run(*words, "local")
        told = " ".join(made.stdout.split())
        assert "from earlier runs for facts, preflight, driver, cuda, from documented figures for the rest" in told, (
            words
        )


@pytest.mark.parametrize(
    ("url", "error"), [("nonsense", errors.UsageError), ("sqlite:////no/such/folder/x.db", errors.StoreError)]
)
def test_a_store_that_is_named_must_be_there(url: str, error: type[Exception]) -> None:
    made = run("init", "local", "--store", url)
    assert isinstance(made.exception, error), made.output
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    "target",
    amount.few(
        [
            remote.Target("web1", address="web1", user="me", identity_file="/home/me/a key: #1 'ö' \U0001f511.pem"),
            remote.Target("[2001:db8::1]:2222", address="2001:db8::1", port=2222, user="me"),
            remote.Target("gpu-1.example.org", address="gpu-1.example.org", user="DOMAIN\\me"),
        ],
        1,
    ),
)
def test_an_inventory_says_what_it_was_made_of(target: remote.Target) -> None:
    name, text = inventory_of(target)
    Path("inventory.yml").write_text(text, encoding="utf-8")
    (read,) = targets.parse([name], "inventory.yml")
    assert (read.name, read.address, read.port) == (name, target.address, target.port)
    assert (read.user, read.identity_file) == (target.user, target.identity_file)


@pytest.mark.parametrize("path", ["/home/{{ x }}/id", "/home/a\nb", "/home/\u202eid"])
def test_a_key_file_that_no_inventory_can_name(path: str) -> None:
    with pytest.raises(errors.UsageError):
        inventory_of(remote.Target("web1", address="web1", identity_file=path))


def test_each_step_has_documented_figures_with_a_source() -> None:
    data = yaml.safe_load((resources.files("gpuprep") / "catalogue/effort.yml").read_text(encoding="utf-8"))
    steps = {path.name.removeprefix("gpu_") for path in (COLLECTION / "roles").glob("gpu_*")}
    assert steps | {"facts", "measuring"} == set(data["seconds"])
    assert set(data["megabytes"]) < steps
    for entry in (*data["seconds"].values(), *data["megabytes"].values(), data["restart_seconds"]):
        assert entry["source"] in data["sources"]
        assert all(value > 0 for key, value in entry.items() if key not in ("source", "unverified"))
