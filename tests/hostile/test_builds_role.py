"""gpu_codec by real Ansible on this machine, with hosts that lie: what of a host reaches the controller and others.

One run of plays for all: each host is one attack, and tries it with the tasks of the role as they are. What a host
answers is played by its own programs: `install` in place of install.py, `python` in place of the host's Python.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from hostilebuilds import KEY, ROLE

pytestmark = [pytest.mark.machines, pytest.mark.xdist_group("builds_role")]  # one run of the role for all
GOOD = b"a build of the trusted builder"
FORGED = b"a build of a hostile host"
STATE = {"headers": "", "ffmpeg": "", "links": "", "running": "", "old": []}
FACTS = {"architecture": "x86_64", "distribution": "Debian", "distribution_version": "13",
         "distribution_major_version": "13", "os_family": "Debian", "kernel": "6.12.1-amd64",
         "python": {"executable": sys.executable}}  # fmt: skip
RECORD = {"build_key": KEY, "builder": "builder", "sha256": hashlib.sha256(GOOD).hexdigest()}

# A finished build on these hosts; which of them gets into the controller's folder?
BUILDING: dict[str, dict[str, Any]] = {
    "builder": {"packs": GOOD.decode()},
    "hostile": {},
    "hostile-named-alike": {"gpu_codec_trusted_builders": ["hostile-named", "hostile-named-alike2"]},
    "hostile-where-nobody-is-trusted": {"gpu_codec_trusted_builders": []},
    "hostile-where-only-signatures-count": {"gpu_codec_trusted_builders": [], "gpu_codec_allowed_signers": "/dev/null"},
    "trusted-but-too-large": {"gpu_codec_trusted_builders": ["trusted-but-too-large"], "bytes": (1 << 30) + 1},
}
# What lies in the controller's folder (JSON, file) when these hosts look for a finished build.
LOOKING: dict[str, dict[str, Any]] = {
    "good": {"record": RECORD},
    "good-but-nobody-is-trusted": {"record": RECORD, "gpu_codec_trusted_builders": []},
    "good-but-refused-by-the-host": {"record": RECORD, "answer": 3},
    "of-a-hostile-host": {"record": {**RECORD, "builder": "hostile"}},
    "of-a-hostile-host-with-its-own-sha256": {
        "record": {"sha256": hashlib.sha256(FORGED).hexdigest(), "build_key": KEY},
        "file": FORGED.decode(),
    },
    "changed-since": {"record": RECORD, "file": FORGED.decode()},
}
# What lies where these hosts' controller downloads FFmpeg's sources from.
DOWNLOADING: dict[str, dict[str, Any]] = {
    "another-tarball": {"sources": "not FFmpeg"},
    "tarball-of-a-given-sha256": {
        "sources": "of somebody",
        "gpu_codec_ffmpeg_sha256": hashlib.sha256(b"of somebody").hexdigest(),
    },
}
# What these hosts say of themselves.
SAYING: dict[str, dict[str, Any]] = {
    "a-path-as-distribution": {"facts": {"distribution": "../../../../../../../..{folder}/evil"}},
    "a-path-as-version": {"facts": {"distribution_major_version": "13/../../../../../../../../..{folder}/evil-13"}},
    "dots-as-distribution": {"facts": {"distribution": ".."}},
    "a-list-as-distribution": {"facts": {"distribution": ["Debian"]}},
    "line-break-in-architecture": {"facts": {"architecture": "x86_64\nx"}},
    "key-that-is-a-path": {"gpu_codec_build_key": "../../../x"},
    "names-as-one-text": {"gpu_codec_trusted_builders": "names-as-one-text-and-more"},
    "names-as-a-mapping": {"gpu_codec_trusted_builders": {"names-as-a-mapping": 1}},
    "state-without-end": {"says": "x" * 100_000},
    "state-nested-deeply": {"says": "[" * 60_000},
    "state-of-other-kinds": {"says": json.dumps({**STATE, "headers": {"a": 1}})},
    "state-with-a-list-of-objects": {"says": json.dumps({**STATE, "old": [{"a": 1}]})},
    "state-that-is-text": {"says": '"headers ffmpeg links running old"'},
}


@dataclass(frozen=True)
class Played:
    folder: Path
    output: str

    def failed(self, host: str) -> str:
        """What the failed task of the host said; "" where none failed."""
        found = re.search(
            rf"^fatal: \[{host}(?: -> localhost)?\]: FAILED! => (.*?)(?=^\S|\Z)", self.output, re.M | re.S
        )
        return " ".join(found.group(1).split()) if found else ""

    def builds(self, host: str) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (self.folder / host / "artifacts/builds").glob("*")}

    def installed(self, host: str) -> str:
        log = self.folder / host / "installed"
        return log.read_text() if log.exists() else ""


def program(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def host(folder: Path, name: str, settings: dict[str, Any]) -> dict[str, Any]:
    """The host's own folder with its programs, and its variables."""
    home = folder / name
    (home / "scripts").mkdir(parents=True)
    known = {key: value for key, value in settings.items() if key.startswith("gpu_")}
    program(home / "scripts" / "progress.sh", "echo built")
    (home / "packed").write_text(settings.get("packs", FORGED.decode()))
    if "bytes" in settings:
        os.truncate(home / "packed", settings["bytes"])
    program(
        home / "install",
        f'case $1 in build) cat "$3" >>{home}/installed; echo "lies" >&2; exit {settings.get("answer", 0)};;'
        f' pack) cp --sparse=always {home}/packed "$3"; printf \'{{"sha256": "%064d", "bytes": 1}}\' 0;; esac',
    )
    (home / "lies").write_text(json.dumps({"sha256": "0" * 64, "bytes": 1, "builder": "builder"}))
    (home / "said").write_text(settings.get("says", json.dumps(STATE)))
    program(home / "python", f"cat >/dev/null; cat {home}/said")
    if "record" in settings:
        builds = home / "artifacts" / "builds"
        builds.mkdir(parents=True, mode=0o700)
        (builds / f"{KEY}.tar.xz").write_text(settings.get("file", GOOD.decode()))
        (builds / f"{KEY}.tar.xz.json").write_text(json.dumps(settings["record"]))
        for path in builds.iterdir():
            path.chmod(0o600)
    if "sources" in settings:
        (home / "mirror").mkdir()
        for name in ("ffmpeg-7.1.5.tar.xz", "ffmpeg-7.1.5.tar.xz.asc"):
            (home / "mirror" / name).write_text(settings["sources"])
        known["gpu_codec_ffmpeg_url"] = str(home / "mirror")
    told = {key: value.replace("{folder}", str(folder)) if isinstance(value, str) else value
            for key, value in settings.get("facts", {}).items()}  # fmt: skip
    return {
        "gpu_codec_trusted_builders": ["builder"],
        "gpu_codec_artifact_dir": str(home / "artifacts"),
        **known,
        "home": str(home),
        "told": {**FACTS, **told, "python": {"executable": str(home / "python")}},
    }


def play(hosts: dict[str, Any], tasks_from: str, **variables: Any) -> dict[str, Any]:
    role = {"name": "gpu_codec", "tasks_from": tasks_from}
    return {
        "hosts": ":".join(hosts),
        "gather_facts": False,
        "vars": {"ansible_facts": "{{ told }}", **variables},
        "tasks": [{"ansible.builtin.include_role": role}],
    }


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("role")
    everyone = {**BUILDING, **LOOKING, **DOWNLOADING, **SAYING}
    inventory: dict[str, Any] = {
        "all": {"hosts": {name: host(folder, name, settings) for name, settings in everyone.items()}}
    }
    inventory["all"]["vars"] = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    (folder / "inventory.json").write_text(json.dumps(inventory))
    for file in ("evil-13.yml", "evil.yml"):
        (folder / file).write_text(f"gpu_codec_build_packages: [evil]\ngpu_codec_evil: {folder}\n")
    keyed = {"gpu_codec_build_key": KEY, "gpu_codec_os": "debian-13"}
    plays = [
        play(BUILDING, "ffmpeg.yml", gpu_codec_state={**STATE, "running": KEY}, **keyed),
        play(LOOKING, "artifact.yml", **keyed),
        play(DOWNLOADING, "source.yml", gpu_codec_source="ffmpeg"),
        play(SAYING, "codec.yml"),
    ]
    (folder / "play.yml").write_text(yaml.safe_dump(plays, sort_keys=False))
    # Of the role's own variables only what stands for the host: its programs and its folders.
    instead = {
        "gpu_codec_install": ["{{ home }}/install"],
        "gpu_codec_scripts": "{{ home }}/scripts",
        "gpu_codec_scratch": "{{ home }}/scratch",
    }
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")},
        "ANSIBLE_CONFIG": str(ROLE.parents[1] / "playbooks/ansible.cfg"),
        "ANSIBLE_ROLES_PATH": str(ROLE.parent),
        "ANSIBLE_HOME": str(folder / "home"),
        "ANSIBLE_LOCAL_TEMP": str(folder / "tmp"),
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_FORKS": "4",
    }
    ansible = Path(sys.executable).parent / "ansible-playbook"
    command: list[str | Path] = [
        ansible,
        "-i",
        folder / "inventory.json",
        "-e",
        json.dumps(instead),
        folder / "play.yml",
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    (folder / "output").write_text(done.stdout + done.stderr)
    assert "PLAY RECAP" in done.stdout, done.stdout + done.stderr
    return Played(folder, done.stdout)


def test_the_build_of_a_trusted_builder_is_kept_and_its_builder_written_down(played: Played) -> None:
    kept = played.builds("builder")
    assert played.failed("builder") == ""
    assert sorted(kept) == [f"{KEY}.tar.xz", f"{KEY}.tar.xz.json"]
    record = json.loads(kept[f"{KEY}.tar.xz.json"])
    assert (record["builder"], record["sha256"]) == ("builder", RECORD["sha256"])
    assert (played.folder / "builder/artifacts/builds").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", [name for name in BUILDING if name.startswith("hostile")])
def test_the_build_of_any_other_host_never_reaches_the_controller(played: Played, name: str) -> None:
    assert played.failed(name) == ""
    assert played.builds(name) == {}
    assert not (played.folder / name / "artifacts").exists()


def test_a_build_of_more_than_a_gibibyte_is_not_fetched(played: Played) -> None:
    assert f"The packed build has {(1 << 30) + 1} bytes" in played.failed("trusted-but-too-large")
    assert played.builds("trusted-but-too-large") == {}


def test_a_good_build_is_installed(played: Played) -> None:
    assert played.failed("good") == ""
    assert played.installed("good") == GOOD.decode()


@pytest.mark.parametrize("name", [n for n in LOOKING if n not in ("good", "good-but-refused-by-the-host")])
def test_no_other_build_is_installed(played: Played, name: str) -> None:
    assert played.failed(name) == ""
    assert played.installed(name) == ""


def test_a_host_cannot_take_a_good_build_from_the_others_by_calling_it_broken(played: Played) -> None:
    kept = played.builds("good-but-refused-by-the-host")
    assert played.installed("good-but-refused-by-the-host") == GOOD.decode()
    assert sorted(kept) == [f"{KEY}.tar.xz", f"{KEY}.tar.xz.json"]


def test_a_build_that_changed_is_set_aside(played: Played) -> None:
    assert sorted(played.builds("changed-since")) == [f"{KEY}.tar.xz.corrupted", f"{KEY}.tar.xz.json"]


def test_a_tarball_that_is_not_the_expected_is_not_built(played: Played) -> None:
    expected = "de668509caf9e35e3cd162473441fdb29538c6d96ed080292b3cf9e6fc5d558f"
    got = hashlib.sha256(b"not FFmpeg").hexdigest()
    assert f"Expected the sha256 {expected}, got {got} " in played.failed("another-tarball")
    assert played.failed("tarball-of-a-given-sha256") == ""


@pytest.mark.parametrize("name", SAYING)
def test_what_a_host_says_is_checked_before_it_is_used(played: Played, name: str) -> None:
    said = played.failed(name)
    assert said, f"{name} went through"
    assert re.search(
        r"a name that is not valid|does not say which operating system|answer is not the state of its FFmpeg|"
        r"or leave them as they are by default|This host answered with|recursion|from_json",
        said,
    ), said
