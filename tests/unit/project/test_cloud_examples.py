"""The example inventories of docs/cloud and the cleaning of images.

GPUPREP_CLOUD_COLLECTIONS is a folder with the collections of the three clouds and what they import (docs/cloud.md says
how to make it). With it the real plugins ask a server that answers as the clouds do. Without it only what Ansible
itself does is run: expressions and groups, on the variables that these plugins once gave.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import packerprogram
import pytest
import yaml
from cloudanswers import CASES, Clouds, clouds
from places import ROOT

from gpuprep import remote
from gpuprep.workflows import targets

DOCS = ROOT / "docs"
EXAMPLES = DOCS / "cloud/inventories"
PLUGINS = {
    "aws_ec2": "amazon.aws.aws_ec2",
    "gcp_compute": "google.cloud.gcp_compute",
    "azure_rm": "azure.azcollection.azure_rm",
}
HARM = Path("/tmp/harm")  # what the texts in the answers would make if somebody evaluated them
COLLECTIONS = os.environ.get("GPUPREP_CLOUD_COLLECTIONS", "")
UPDATE = os.environ.get("GPUPREP_UPDATE_GOLDEN") == "1"


def by_packer(test: Any) -> Any:
    """Packer itself, of one worker: each would download it."""
    return pytest.mark.machines(pytest.mark.xdist_group("packer")(test))


def with_collections(test: Any) -> Any:
    skip = pytest.mark.skipif(not COLLECTIONS, reason="GPUPREP_CLOUD_COLLECTIONS names no folder")
    return pytest.mark.machines(skip(test))


# What gpuprep shall make of each cloud's answers, by group.
HOSTS = {
    "aws_ec2": {
        "gpuprep_t4": [remote.Target("i-0a1b2c3d4e5f60001", address="198.51.100.11", user="admin")],
        "gpuprep_v100": [remote.Target("i-0a1b2c3d4e5f60002", address="10.0.1.12", user="admin")],
    },
    "gcp_compute": {
        "gpuprep_t4": [remote.Target("render-1", address="203.0.113.11", user="debian")],
        "gpuprep_v100": [remote.Target("render-2", address="10.164.0.12", user="debian")],
    },
    "azure_rm": {
        "gpuprep_t4": [
            remote.Target("render-1_33b0", address="198.51.100.21", user="azureuser"),
            remote.Target("render-3_c175", address="10.1.0.23", user="azureuser"),
        ],
        "gpuprep_v100": [remote.Target("render-2_89de", address="10.1.0.22", user="azureuser")],
    },
}


def example(cloud: str) -> dict[str, Any]:
    found = yaml.safe_load((EXAMPLES / f"{cloud}.yml").read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def read(cloud: str, inventory: Path) -> dict[str, list[remote.Target]]:
    """As gpuprep reads it: each group, and that all hosts together are those of the groups."""
    notes: list[str] = []
    found = {group: targets.parse([group], str(inventory), note=notes.append) for group in HOSTS[cloud]}
    everything = targets.parse(["all"], str(inventory), note=notes.append)
    assert sorted(target.name for target in everything) == sorted(t.name for group in found.values() for t in group)
    assert notes == []
    assert not HARM.exists()
    return found


# ---------------------------------------------------------------- with the real plugins


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Clouds]:
    with clouds(tmp_path) as (running, environment):
        for name, value in {**environment, "PYTHONPATH": COLLECTIONS, "HOME": str(tmp_path)}.items():
            monkeypatch.setenv(name, value)
        yield running


@with_collections
@pytest.mark.parametrize("cloud", PLUGINS)
def test_the_real_plugin_gives_the_hosts(cloud: str, server: Clouds) -> None:
    assert read(cloud, EXAMPLES / f"{cloud}.yml") == HOSTS[cloud]
    asked = [words for _, _, words in server.asked]
    if cloud == "aws_ec2":
        wanted = {"instance-state-name": ["running"], "tag:gpuprep": example(cloud)["filters"]["tag:gpuprep"]}
        assert _filters(asked[0]) == wanted
    if cloud == "gcp_compute":
        ((query,),) = {tuple(words["filter"]) for words in asked if "filter" in words}
        assert query.startswith("(status = RUNNING) (labels.gpuprep = t4 OR labels.gpuprep = v100 OR ")


def _filters(words: dict[str, list[str]]) -> dict[str, list[str]]:
    """EC2's Filter.1.Name, Filter.1.Value.1, Filter.1.Value.2 ..."""
    numbers = sorted(key.split(".")[1] for key in words if re.fullmatch(r"Filter\.\d+\.Name", key))
    return {
        words[f"Filter.{number}.Name"][0]: [
            value for key, values in words.items() if key.startswith(f"Filter.{number}.Value.") for value in values
        ]
        for number in numbers
    }


@with_collections
@pytest.mark.usefixtures("server")
def test_what_was_recorded_of_the_plugins_is_what_they_give() -> None:
    hostvars = {cloud: _hostvars(cloud) for cloud in PLUGINS}
    told = _run("ansible-doc", "-t", "inventory", "-j", *PLUGINS.values())
    options = {cloud: sorted(told[name]["doc"]["options"]) for cloud, name in PLUGINS.items()}
    for name, content in {"hostvars.json": hostvars, "options.json": options}.items():
        if UPDATE:
            (CASES / name).write_text(json.dumps(content, indent=1, sort_keys=True) + "\n")
        assert json.loads((CASES / name).read_text()) == content


def _hostvars(cloud: str) -> Any:
    """Before the example's own expressions, which are what is tested."""
    listed = _run("ansible-inventory", "-i", str(EXAMPLES / f"{cloud}.yml"), "--list")
    plain = _without_marks(listed["_meta"]["hostvars"])
    return {name: {key: of[key] for key in of if key not in example(cloud)["compose"]} for name, of in plain.items()}


def _run(program: str, *arguments: str) -> Any:
    path = Path(sys.executable).parent / program
    done = subprocess.run([str(path), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _without_marks(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"__ansible_unsafe"}:
            return value["__ansible_unsafe"]
        return {key: _without_marks(item) for key, item in value.items()}
    return [_without_marks(item) for item in value] if isinstance(value, list) else value


# ---------------------------------------------------------------- with Ansible alone


class Text(str):
    """A text that is no template: as plugins mark what a cloud says."""


yaml.SafeDumper.add_representer(Text, lambda dumper, text: dumper.represent_scalar("!unsafe", str(text), style='"'))


def _marked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _marked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_marked(item) for item in value]
    return Text(value) if isinstance(value, str) else value


def static(cloud: str, folder: Path, **changed: Any) -> Path:
    """An inventory of the recorded variables, with the example's expressions in Ansible's own plugin `constructed`."""
    hosts = {name: {**of, **changed} for name, of in json.loads((CASES / "hostvars.json").read_text())[cloud].items()}
    text = yaml.safe_dump({"all": {"hosts": _marked(hosts)}}, width=10**6)
    (folder / "1-hosts.yml").write_text(text)
    of = example(cloud)
    own = {"compose": of["compose"], "keyed_groups": of["keyed_groups"]}
    document = {"plugin": "ansible.builtin.constructed", "strict": True, **own}
    for number, condition in enumerate(of.get("include_host_filters", [])):
        document.setdefault("groups", {})[f"included_{number}"] = condition
    (folder / "2-constructed.yml").write_text(yaml.safe_dump(document))
    return folder


@pytest.mark.machines  # Ansible itself, four times
@pytest.mark.parametrize("cloud", PLUGINS)
def test_ansible_evaluates_the_expressions(cloud: str, tmp_path: Path) -> None:
    inventory = static(cloud, tmp_path)
    assert read(cloud, inventory) == HOSTS[cloud]
    if cloud == "azure_rm":  # the others let the cloud compare
        names = {target.name for target in targets.parse(["included_0"], str(inventory))}
        assert names == {target.name for group in HOSTS[cloud].values() for target in group}


@pytest.mark.parametrize(
    "tag",
    [
        "{{ lookup('pipe', 'touch /tmp/harm') }}",
        *(pytest.param(tag, marks=pytest.mark.machines) for tag in ("t4; touch /tmp/harm", "T4", "", None)),
    ],
)
def test_a_tag_that_names_no_profile_is_compared_and_not_evaluated(tag: str | None, tmp_path: Path) -> None:
    """Azure sends every machine, whatever its tags are."""
    tags = {"tags": {"gpuprep": tag}} if tag is not None else {"tags": None}
    inventory = static("azure_rm", tmp_path, **tags)
    document = yaml.safe_load((inventory / "2-constructed.yml").read_text())
    (inventory / "2-constructed.yml").write_text(yaml.safe_dump({**document, "keyed_groups": []}))
    told = json.loads(subprocess.check_output([*LIST, str(inventory), "--list"]))
    assert "included_0" not in told
    assert not HARM.exists()


LIST = [str(Path(sys.executable).parent / "ansible-inventory"), "-i"]


@pytest.mark.parametrize("cloud", PLUGINS)
def test_the_files_say_only_what_the_plugin_knows(cloud: str) -> None:
    of = example(cloud)
    assert of["plugin"] == PLUGINS[cloud]
    assert set(of) - {"plugin"} <= set(json.loads((CASES / "options.json").read_text())[cloud])
    # What a cloud's tags say becomes the name of a group, never a variable, a host name or part of an address.
    assert set(of["compose"]) == {"ansible_host", "ansible_user"}
    assert "tags" not in str(of["compose"])
    assert "labels" not in str(of["compose"])
    assert of["keyed_groups"] == [{"key": of["keyed_groups"][0]["key"], "prefix": "gpuprep"}]


@pytest.mark.parametrize("cloud", PLUGINS)
def test_the_values_that_a_tag_may_have_are_profiles(cloud: str) -> None:
    named = set(re.findall(r"\b[a-z][0-9]+g?\b", str(example(cloud).get("filters") or _azure_filter())))
    assert named
    assert named <= {path.stem for path in (ROOT / "profiles").glob("*.yml")}


def _azure_filter() -> str:
    (condition,) = example("azure_rm")["include_host_filters"]
    return str(condition).partition(" in ")[2]


# ---------------------------------------------------------------- images

PACKER = packerprogram.FOLDER
# Paths on the host that belong to the machine, not to an image of it.
OF_THE_MACHINE = {
    "/var/lib/gpuprep/before.json",
    "/var/lib/gpuprep/modules.json", "/var/lib/gpuprep/digests.json", "/var/lib/gpuprep/signatures.json",
    "/etc/cdi/nvidia.json", "/etc/gpuprep/drift.json", "/var/lib/gpuprep/drift", "/var/lib/gpuprep/drift/last.json",
    "/etc/systemd/system/gpuprep-drift.service", "/etc/systemd/system/gpuprep-drift.timer",
    "/etc/systemd/system/timers.target.wants/gpuprep-drift.timer",
    "/var/lib/systemd/timers/stamp-gpuprep-drift.timer",
    "/var/lib/gpuprep/driver-before", "/var/lib/gpuprep/driver-before/program.pyz",
    "/etc/systemd/system/gpuprep-driver-check.service",
    "/etc/systemd/system/multi-user.target.wants/gpuprep-driver-check.service",
}  # fmt: skip
# Those that an image keeps: software, its settings, what says which software that is, and clips that machines need.
OF_THE_IMAGE = {
    "/var/cache/gpuprep", "/etc/gpuprep/tuning.json", "/etc/gpuprep/provenance.json",
    "/etc/modprobe.d/gpuprep-nvidia.conf", "/etc/modprobe.d/gpuprep-nouveau.conf",
    "/etc/systemd/system/nvidia-persistenced.service.d/gpuprep.conf", "/etc/systemd/system/gpuprep-tune.service",
    "/etc/udev/rules.d/60-gpuprep-tune.rules", "/etc/profile.d/gpuprep.sh", "/etc/environment",
    "/etc/systemd/system.conf.d/gpuprep.conf", "/etc/ld.so.conf.d/gpuprep.conf", "/etc/apt/apt.conf.d/52gpuprep-holds",
    "/etc/apt/preferences.d/gpuprep-nvidia", "/etc/apt/preferences.d/gpuprep-cuda",
    "/etc/dkms/framework.conf.d/gpuprep.conf",
    "/etc/dnf/modules.d/nvidia-driver.module", "/opt/gpuprep/agent", "/opt/gpuprep/agent/current/lib",
    "/usr/local/bin/gpuprep-agent", "/opt/gpuprep/cudnn", "/opt/gpuprep/ffmpeg", "/opt/gpuprep/nccl",
    "/usr/local/bin",
    "/usr/local/lib/pkgconfig/ffnvcodec.pc", "/usr/local/bin/gpuprep-drift", "/etc/gpuprep-sim", "/etc/ld.so.preload",
}  # fmt: skip


def test_each_path_of_gpuprep_stays_in_an_image_or_goes() -> None:
    """A new path on the host needs a decision, and clean.sh needs its line."""
    known = {path for path in packerprogram.paths_on_a_host() if not path.startswith(("/run/", "/sys/", "/proc/"))}
    patterns = [line for line in (PACKER / "clean.sh").read_text().splitlines() if line.startswith("/")]
    removed = {path for path in known if any(fnmatch(path, p) or path.startswith(f"{p}/") for p in patterns)}
    assert removed == OF_THE_MACHINE
    assert known - removed == OF_THE_IMAGE


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As the page makes it. Packer reads it, and one builder makes a public key of it."""
    page = (DOCS / "cloud.md").read_text(encoding="utf-8")
    (command,) = set(re.findall(r"ssh-keygen .* -f build_key\b", packerprogram.template() + page))
    folder = tmp_path_factory.mktemp("key")
    subprocess.run(shlex.split(command), cwd=folder, check=True)
    return folder / "build_key"


def validated(packer: packerprogram.Packer, key: Path, folder: Path, text: str) -> tuple[int, str]:
    own = packerprogram.written(folder / "packer", text)
    for name in (key.name, f"{key.name}.pub"):
        shutil.copy(key.parent / name, own)
    done = packer.run(own, "validate", ".", environment={"HOME": str(folder)})
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@by_packer
def test_packer_takes_the_template(packer: packerprogram.Packer, key: Path, tmp_path: Path) -> None:
    """Its three builders and its provisioners read it; no cloud is asked, and no credentials are there."""
    assert validated(packer, key, tmp_path, packerprogram.known(packerprogram.template())) == (0, "")


@by_packer
@pytest.mark.parametrize("cloud", ["amazon-ebs", "googlecompute", "azure-arm"])
def test_packer_takes_a_machine_in_place_of_the_cloud(
    cloud: str, packer: packerprogram.Packer, key: Path, tmp_path: Path
) -> None:
    """As tests/machines/test_first_boot.py has it."""
    text = packerprogram.on_a_machine(packerprogram.template(), cloud, 22, "me")
    assert text.count("null.builder") == 2
    assert text.count("provisioner ") == packerprogram.template().count("provisioner ")
    assert validated(packer, key, tmp_path, text) == (0, "")


@by_packer
@pytest.mark.parametrize(
    ("right", "wrong", "why"),
    [
        ("ami_name ", "ami_nam ", '"ami_nam" is not expected'),
        ("most_recent ", "newest ", '"newest" is not expected'),
        ("accelerator_count ", "accelerators ", '"accelerators" is not expected'),
        ('"TERMINATE"', '"MIGRATE"', "'on_host_maintenance' must be set to 'TERMINATE'"),
        ("image_sku ", "image_sk ", '"image_sk" is not expected'),
        ("skip_clean ", "skip_cleaning ", '"skip_cleaning"'),
        ("build.Host", "build.Address", "Address"),
    ],
)
def test_packer_knows_mistakes_in_each_part(
    right: str, wrong: str, why: str, packer: packerprogram.Packer, key: Path, tmp_path: Path
) -> None:
    """So what it takes was looked at."""
    text = packerprogram.known(packerprogram.template())
    assert right in text
    code, said = validated(packer, key, tmp_path, text.replace(right, wrong))
    assert (code, why in said) == (1, True), said


@by_packer
def test_the_template_has_the_form_that_packer_writes(packer: packerprogram.Packer) -> None:
    done = packer.run(PACKER, "fmt", "-check", "-diff", packerprogram.TEMPLATE)
    assert (done.returncode, done.stdout) == (0, "")


def test_each_builder_of_the_template_is_cleaned_once() -> None:
    """Packer says nothing of a name that fits no builder: there would be no cleaning, or no build."""
    text = packerprogram.template()
    made = [f"{kind}.{name}" for kind, name in re.findall(r'^source "(\S+)" "(\S+)" \{$', text, re.MULTILINE)]
    assert len(made) == 3
    assert re.findall(r'"source\.(\S+)"', text) == made
    assert re.findall(r'only += \["(\S+)"\]', text) == made
    page = (DOCS / "cloud.md").read_text(encoding="utf-8")
    assert set(re.findall(r"-only='gpuprep\.(\S+)'", text + page)) <= set(made)


@pytest.mark.parametrize("script", ["clean.sh", "provision.sh"])
def test_the_scripts_have_no_mistake_that_shellcheck_knows(script: str) -> None:
    done = subprocess.run(["shellcheck", str(PACKER / script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert os.access(PACKER / script, os.X_OK)  # Packer's shell-local starts it itself


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--chek"], "no option"),
        (["--user"], "needs a name"),
        (["--user", "root"], "is not removed"),
        (["--user", "-r"], "is not removed"),
        (["--user", "a;b"], "is not removed"),
        (["--check"], "only root"),
        ([], "only root"),
    ],
)
def test_clean_refuses_what_it_does_not_know(arguments: list[str], why: str) -> None:
    # In a namespace in which it is nobody: if it did not refuse, it could still change nothing.
    command = ["unshare", "--user", "sh", str(PACKER / "clean.sh"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, why in done.stderr) == (2, True), done.stdout + done.stderr


def test_provision_says_what_it_lacks(tmp_path: Path) -> None:
    for missing in ("BUILD_HOST", "BUILD_USER", "BUILD_KEY", "PROFILE"):
        given = {"BUILD_HOST": "x", "BUILD_USER": "x", "BUILD_KEY": str(tmp_path / "none"), "PROFILE": "t4"}
        del given[missing]
        environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **given}
        done = subprocess.run(
            ["sh", str(PACKER / "provision.sh")], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode != 0
        assert missing in done.stderr


@pytest.mark.machines  # gpuprep and Ansible, to the end
def test_a_builder_that_does_not_answer_has_a_record_and_leaves_nothing_here(home: Path, tmp_path: Path) -> None:
    (home / "key").write_text("none is needed: nobody listens")
    before = sorted(home.rglob("*"))
    given = {
        "BUILD_HOST": "127.0.0.1", "BUILD_PORT": "1", "BUILD_USER": "x", "BUILD_KEY": str(home / "key"),
        "PROFILE": "t4", "RECORD": str(tmp_path / "record.json"), "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }  # fmt: skip
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [str(PACKER / "provision.sh")],
        env={"PATH": path, "HOME": str(home), **given},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert json.loads((tmp_path / "record.json").read_text())["exit_code"] == 3
    assert sorted(home.rglob("*")) == before


@pytest.mark.only_all
def test_the_examples_name_no_computer_of_ours() -> None:
    for path in [DOCS / "cloud.md", *(DOCS / "cloud").rglob("*.*")]:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"/work\b|/root/\.|pypi\.|files\.pythonhosted|/opt/(?!gpuprep)", text), path
