"""A plan tries every source before the first step: what is lacking refuses it, and nothing is started."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import fakeprograms
import pytest
from builders import bare_snapshot, load, on_arm64
from fakehost import all_offered
from finishedt4 import HERE, T4
from workflowstage import Stage, stage

from gpuprep import errors, records
from gpuprep.workflows import provision, runs, sources

__all__ = ["stage"]  # a fixture

Changed = Callable[[dict[str, Any]], None]


def without(name: str) -> Changed:
    def change(answer: dict[str, Any]) -> None:
        answer["offers"] = [line for line in answer["offers"] if not line.startswith(f"{name} ")]

    return change


def in_version(name: str, version: str) -> Changed:
    def change(answer: dict[str, Any]) -> None:
        without(name)(answer)
        answer["offers"].append(f"{name} | {version}")

    return change


def unreachable(answer: dict[str, Any]) -> None:
    answer.update(offers=[], said=["E: Failed to fetch http://deb.example/InRelease  Connection refused"])


def lacking(name: str, why: str) -> Changed:
    return lambda answer: answer["lacking"].update({name: why})


def held(name: str) -> Changed:
    return lambda answer: answer["held"].append(name)


no_wheel = lacking("nvidia-cudnn-cu12", "https://pypi.example/simple/nvidia-cudnn-cu12/: timed out")
WITHOUT_VERSION = "sha256 without the line Version"
HEADERS = "kernel-devel-5.14.0-611.5.1.el9_7.x86_64"


@pytest.mark.parametrize(
    ("system", "change", "said"),
    [
        ("debian13", without("libcupti-dev"), "CUDA 12.4: this host's package archive has no libcupti-dev"),
        (
            "debian13",
            in_version("nvidia-cuda-toolkit", "13.1.0-1"),
            "has no 12.4 of nvidia-cuda-toolkit; it has 13.1.0",
        ),
        (
            "debian13",
            in_version("libnvcuvid1", "550.54.14-1"),
            "with all its parts; it has no version that all parts have",
        ),
        (
            "debian13",
            without("nvidia-modprobe"),
            "the driver's tools: this host's package archive has no nvidia-modprobe",
        ),
        ("debian13", without("clang"), "what builds FFmpeg: this host's package archive has no clang"),
        ("debian13", unreachable, "(apt says: E: Failed to fetch http://deb.example/InRelease Connection refused)"),
        (
            "debian13",
            no_wheel,
            "the Python index, tried from this host: https://pypi.example/simple/nvidia-cudnn-cu12/: timed out",
        ),
        ("debian13", held("gcc-14"), "somebody holds gcc-14, which the packages of this plan would change"),
        ("debian13", held("gcc-14"), "`sudo apt-mark unhold gcc-14`"),
        ("rocky9", without("dkms"), "the driver's tools: this host's package archive has no dkms"),
        ("rocky9", without(HEADERS), f"kernel headers: this host's package archive has no {HEADERS}"),
        ("rocky9", without("nasm"), "what builds FFmpeg: this host's package archive has no nasm"),
        ("amzn2023", without("nasm"), "what builds FFmpeg: this host's package archive has no nasm"),
        (
            "rocky9",
            lacking("epel", "this host's repositories have no epel-release"),
            "EPEL, which has DKMS: this host's",
        ),
        ("rhel9", lacking("epel", "https://dl.example/: refused"), "mirrors.epel: tried from this host: https://dl.ex"),
        (
            "rocky9",
            lacking("nvidia", "x.rpm is not signed with the key"),
            "mirrors.nvidia: tried from this host: x.rpm",
        ),
        ("rocky9", lacking("nvidia", "x.rpm is not signed with the key"), "name that in mirrors.nvidia_key"),
        ("rocky9", held("!dkms-0:3.2.2-1.el9.*"), "a lock of dnf keeps away what this plan installs: !dkms-0:3.2.2-1"),
        ("rocky9", held("!dkms-0:3.2.2-1.el9.*"), "`sudo dnf versionlock delete 'dkms-0:3.2.2-1.el9.*'`"),
    ],
)
@pytest.mark.parametrize("command", [provision.plan, provision.provision])
def test_a_source_that_lacks_something_refuses_the_plan(
    stage: Stage, command: Any, system: str, change: Changed, said: str
) -> None:
    def archives(question: dict[str, Any]) -> str:
        answer = json.loads(all_offered(question))
        change(answer)
        return json.dumps(answer)

    stage.script.snapshots, stage.script.archives = [bare_snapshot(system)], archives
    made = stage(command)
    assert made.exit_code == 2
    assert said in " ".join((made.error or "").split())
    assert "nothing was changed on the host" in (made.error or "")
    assert made.playbook is None


@pytest.mark.parametrize("secure_boot", [False, True])
def test_prebuilt_modules_that_nobody_built_refuse_the_plan(stage: Stage, *, secure_boot: bool) -> None:
    """Canonical builds none for some kernels. DKMS is another way where its modules would load."""
    name = "linux-modules-nvidia-580-server-open-generic"

    def archives(question: dict[str, Any]) -> str:
        answer = json.loads(all_offered(question))
        without(name)(answer)
        return json.dumps(answer)

    bare = bare_snapshot("ubuntu2404")
    stage.script.snapshots = [
        dataclasses.replace(bare, kernel=dataclasses.replace(bare.kernel, secure_boot=secure_boot))
    ]
    stage.script.archives = archives
    wish = load("t4", driver={"source": "distribution", "modules": "prebuilt"})
    made = stage(lambda target, _, options, line: provision.plan(target, wish, options, line))
    said = " ".join((made.error or "").split())
    assert f"prebuilt kernel modules: this host's package archive has no {name}" in said
    assert ("or driver.modules: dkms" in said) == (not secure_boot)


def test_tools_of_the_driver_have_versions_of_their_own(stage: Stage) -> None:
    def archives(question: dict[str, Any]) -> str:
        answer = json.loads(all_offered(question))
        for name in ("nvidia-modprobe", "nvidia-persistenced"):
            in_version(name, "535.171.04-1+b2")(answer)
        return json.dumps(answer)

    stage.script.snapshots, stage.script.archives = [bare_snapshot()], archives
    assert stage(provision.plan).exit_code == 0


@pytest.mark.parametrize(
    "answer", ["", "[]", '{"offers": 1, "said": [], "lacking": {}, "untried": []}', '{"offers": []}', "[" * 9999]
)
def test_an_answer_that_is_none_is_not_taken_for_a_good_one(stage: Stage, answer: str) -> None:
    stage.script.snapshots, stage.script.archives = [bare_snapshot()], lambda _: answer
    made = stage(provision.plan)
    assert (made.exit_code, made.playbook) == (3, None)
    assert "was asked what its package archives offer, and gave no answer" in (made.error or "")


def test_without_root_the_plan_says_that_the_sources_were_not_tried(stage: Stage) -> None:
    def refused(_: object) -> str:
        raise errors.NoPrivilege("sudo wants a password")

    stage.script.snapshots, stage.script.archives = [bare_snapshot()], refused
    made = stage(provision.plan)
    assert made.exit_code == 0
    assert made.plan is not None
    assert made.plan.notes[-1].startswith("the sources of packages were not tried")


def test_a_finished_host_is_asked_for_nothing(stage: Stage) -> None:
    stage(provision.plan)
    assert "archives as root" not in stage.script.events


TARBALLS = dict(sources.TARBALLS)


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ((), ("mirrors.ffmpeg: ", "mirrors.nv_codec_headers: ", "could not be fetched", "config.yml", "--skip codec")),
        (("nv-codec-headers-12.1.14.0.tar.gz",), ("mirrors.nv_codec_headers: ", "has the sha256 ", "works: ")),
    ],
)
def test_a_tarball_that_the_controller_cannot_get_refuses_the_plan(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: tuple[str, ...], said: tuple[str, ...]
) -> None:
    monkeypatch.setattr(sources, "TARBALLS", TARBALLS)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in there:
        (tmp_path / name).write_bytes(b"another")
    mirrors = {"ffmpeg": tmp_path.as_uri(), "nv_codec_headers": tmp_path.as_uri()}
    stage.script.snapshots = [bare_snapshot()]
    made = stage(provision.provision, mirrors=mirrors)
    assert (made.exit_code, made.playbook) == (2, None)
    assert [word for word in said if word not in (made.error or "")] == []
    skipped = stage(provision.plan, mirrors=mirrors, skip=("codec",))
    assert skipped.exit_code == 0, skipped.error


@pytest.mark.parametrize("right", [True, False])
def test_nvidias_key_of_ubuntu_2604_comes_in_a_package_that_its_sha256_names(tmp_path: Path, *, right: bool) -> None:
    """The program that a host gets, with a package of the test and an apt that shows its sources."""
    tree = tmp_path / "tree"
    for name, text in (
        (
            "DEBIAN/control",
            "Package: cuda-keyring\nVersion: 1.1-1\nArchitecture: all\nMaintainer: x <x@x>\nDescription: x\n",
        ),
        ("usr/share/keyrings/cuda-archive-keyring.gpg", "the key"),
    ):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    package = tmp_path / "cuda-keyring_1.1-1_all.deb"
    subprocess.run(
        ["dpkg-deb", "--root-owner-group", "--build", str(tree), str(package)], check=True, capture_output=True
    )
    sha256 = hashlib.sha256(package.read_bytes()).hexdigest() if right else "0" * 64
    repository = {
        "uri": "http://x/",
        "key": package.as_uri(),
        "fingerprint": sha256,
        "name": "nvidia",
        "instead": "",
        "lists": True,
    }
    question = {
        "repositories": [repository], "packages": ["nvidia-open"], "wheels": {}, "components": [], "own": [],
        "versions": {},
    }  # fmt: skip
    fakeprograms.program(tmp_path / "bin/apt-get", 'echo "E: $(cat "${2%/conf}/key0.gpg")" >&2')
    for name in ("apt-cache", "apt-mark"):
        fakeprograms.program(tmp_path / "bin" / name, "exit 0")
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", (resources.files("gpuprep.remote") / "archivesprogram.py").read_text()],
        input=json.dumps(question), capture_output=True, text=True, check=True,
        env={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"},
    )  # fmt: skip
    answer = json.loads(done.stdout)
    assert answer["said"] == ["E: the key" if right else "E: "]
    assert [f"(sha256 {'0' * 64})" in why for why in answer["lacking"].values()] == ([] if right else [True])


@pytest.mark.parametrize(
    ("line", "taken"), [("Version: GnuPG v2", True), ("Version: another", True), ("Other: x", False)]
)
def test_nvidias_key_of_version_10_is_known_by_its_file_without_the_line_of_the_program(
    tmp_path: Path, line: str, *, taken: bool
) -> None:
    """The program that a host gets, with a key of the test and a dnf that has nothing."""
    begin, body = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n", "\nmQINBF\n-----END PGP PUBLIC KEY BLOCK-----\n"
    pin, key = hashlib.sha256((begin + body).encode()).hexdigest(), tmp_path / "CDF6BA43.pub"
    key.write_text(f"{begin}{line}\n{body}")
    repository = {
        "uri": "http://x/", "key": key.as_uri(), "fingerprint": pin, "name": "nvidia", "instead": "x", "lists": True,
    }  # fmt: skip
    question = {
        "repositories": [repository], "packages": ["nvidia-open"], "wheels": {}, "own": [], "versions": {},
        "epel": "", "vault": "", "off": "", "off_packages": [],
    }  # fmt: skip
    fakeprograms.program(tmp_path / "bin/dnf", "exit 0")
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", (resources.files("gpuprep.remote") / "archivesprogram.py").read_text()],
        input=json.dumps(question), capture_output=True, text=True, check=True, env={"PATH": f"{tmp_path}/bin"},
    )  # fmt: skip
    lacking = json.loads(done.stdout)["lacking"]
    assert lacking == ({} if taken else {"nvidia": f"{key.as_uri()} is not NVIDIA's key ({WITHOUT_VERSION} {pin})"})


def test_wheels_are_looked_for_where_pip_takes_them(tmp_path: Path) -> None:
    """The program that a host gets, with an index of the test."""
    page = tmp_path / "simple/nvidia-cudnn-cu12"
    page.mkdir(parents=True)
    (page / "index.html").write_text('<a href="nvidia_cudnn_cu12-9.8.0.87-py3-none-any.whl">')
    program = (resources.files("gpuprep.remote") / "archivesprogram.py").read_text()
    address = tmp_path.as_uri()
    conf = tmp_path / "pip.conf"
    conf.write_text(f"[global]\nindex-url = {address}/simple/\n")
    question: dict[str, Any] = {
        "repositories": [],
        "packages": [],
        "wheels": {"nvidia-cudnn-cu12": "9.8.0.87", "nvidia-nccl-cu12": "2.28.9"},
    }
    for version in ("9.8.0.87", "9.8.0.8"):
        question["wheels"]["nvidia-cudnn-cu12"] = version
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", program.replace("/etc/pip.conf", str(conf))],
            input=json.dumps(question), capture_output=True, text=True, check=True,
        )  # fmt: skip
        lacking = json.loads(done.stdout)["lacking"]
        assert set(lacking) == {"nvidia-nccl-cu12"} | ({"nvidia-cudnn-cu12"} if version == "9.8.0.8" else set())
    conf.unlink()
    fakeprograms.program(tmp_path / "python3", "exit 1")  # no pip
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program.replace("/etc/pip.conf", str(conf))],
        input=json.dumps(question), capture_output=True, text=True, check=True, env={"PATH": str(tmp_path)},
    )  # fmt: skip
    assert json.loads(done.stdout)["untried"] == list(question["wheels"])


@pytest.mark.parametrize(
    ("answer", "is_there"), [("dkms-0:3.2.2-1.el9.noarch", True), ("", False), ("Importing GPG key 0x1:", False)]
)
def test_epel_is_looked_for_unless_dkms_is_offered_whatever_dnf_says_of_keys(
    tmp_path: Path, answer: str, *, is_there: bool
) -> None:
    """The list of another repository (the container toolkit's) is signed: without -y dnf asks, on stdout."""
    fakeprograms.program(
        tmp_path / "dnf", f'case " $* " in *" -y "*) echo "{answer}";; *) echo "Is this ok [y/N]: ";; esac'
    )
    question = {
        "repositories": [], "packages": ["dkms"], "wheels": {}, "epel": "file:///nowhere/epel.rpm", "off": "",
        "off_packages": [], "vault": "", "own": [], "versions": {"dkms": ""},
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", (resources.files("gpuprep.remote") / "archivesprogram.py").read_text()],
        input=json.dumps(question), capture_output=True, text=True, check=True, env={"PATH": str(tmp_path)},
    )  # fmt: skip
    assert set(json.loads(done.stdout)["lacking"]) == (set() if is_there else {"epel"})


def test_what_could_not_be_tried_is_a_note_of_the_plan(stage: Stage) -> None:
    def archives(question: dict[str, Any]) -> str:
        return json.dumps(json.loads(all_offered(question)) | {"untried": ["nvidia-cudnn-cu12"]})

    stage.script.snapshots, stage.script.archives = [bare_snapshot()], archives
    made = stage(provision.plan)
    assert made.exit_code == 0
    assert made.plan is not None
    assert "not tried, as the host has no pip yet: nvidia-cudnn-cu12 in the Python index" in str(made.plan)


def asked_of(stage: Stage, system: str | records.Snapshot, **options: Any) -> dict[str, Any]:
    questions: list[dict[str, Any]] = []

    def archives(question: dict[str, Any]) -> str:
        questions.append(question)
        return all_offered(question)

    stage.script.snapshots = [bare_snapshot(system) if isinstance(system, str) else system]
    stage.script.archives = archives
    assert stage(provision.plan, **options).exit_code == 0
    return questions[0]


@pytest.mark.parametrize(
    ("system", "epel", "vault", "off"),
    [
        ("rocky9", "epel-release", "https://dl.rockylinux.org/vault/rocky/9.7/AppStream/x86_64/os/", "crb"),
        ("rocky8", "epel-release", "https://dl.rockylinux.org/vault/rocky/8.10/BaseOS/x86_64/os/", "powertools"),
        ("rhel9", "/pub/epel/epel-release-latest-9.noarch.rpm", "", "codeready-builder-for-rhel-9-x86_64-rpms"),
        ("amzn2023", "", "", ""),
    ],
)
def test_red_hats_systems_are_asked_for_what_each_step_takes_from_where(
    stage: Stage, system: str, epel: str, vault: str, off: str
) -> None:
    question = asked_of(stage, system)
    (nvidia,) = question["repositories"] or [None]
    assert question["epel"].endswith(epel)
    assert bool(question["epel"]) == bool(epel)
    assert question["vault"] == vault
    assert bool(re.match(question["off"], off))
    assert "nasm" in question["off_packages"]
    assert "dkms" in question["packages"]
    if nvidia:
        assert nvidia["key"].endswith("/x86_64/D42D0685.pub")
        assert (len(nvidia["fingerprint"]), nvidia["lists"]) == (40, False)


@pytest.mark.parametrize(
    ("system", "uri", "key", "vault"),
    [
        ("rocky9", "rhel9/sbsa/", "rhel9/sbsa/D42D0685.pub", "https://dl.rockylinux.org/vault/rocky/9.7/AppStream/aarch64/os/"),
        ("ubuntu2404", "ubuntu2404/sbsa/", "-----BEGIN PGP PUBLIC KEY BLOCK-----", ""),
    ],
)  # fmt: skip
def test_an_arm_machine_is_asked_for_the_packages_of_its_architecture(
    stage: Stage, system: str, uri: str, key: str, vault: str
) -> None:
    profile = load("t4", containers={"toolkit": "auto"})
    question = asked_of(stage, on_arm64(bare_snapshot(system)), profile=profile)
    by_name = {repository["name"]: repository for repository in question["repositories"]}
    assert by_name["nvidia"]["uri"] == f"https://developer.download.nvidia.com/compute/cuda/repos/{uri}"
    assert key in by_name["nvidia"]["key"]
    assert by_name["container_toolkit"]["uri"].endswith("/rpm/aarch64/" if vault else "/deb/arm64/")
    assert question["vault"] == vault
    assert "clang" in question["packages"]
    assert "nasm" not in [*question["packages"], *question["off_packages"]]


def test_the_key_of_ubuntu_26_comes_from_one_package_for_all_machines(stage: Stage) -> None:
    profile = load("t4", driver={"source": "nvidia"}, cudnn={"version": "9.14.0.64"})
    for snapshot, folder in (
        (bare_snapshot("ubuntu2604"), "x86_64"),
        (on_arm64(bare_snapshot("ubuntu2604")), "sbsa"),
    ):
        (nvidia,) = asked_of(stage, snapshot, profile=profile)["repositories"]
        assert nvidia["uri"].endswith(f"/repos/ubuntu2604/{folder}/")
        assert nvidia["key"].endswith("/repos/ubuntu2604/x86_64/cuda-keyring_1.1-1_all.deb")


def test_a_simulated_machine_uses_the_users_mirrors() -> None:
    """Rehearsed is what the real hosts will do. The key of the machine's own archive signs no other."""
    own = {"nvidia": "file:///own", "nvidia_key": "/own/key.asc", "ffmpeg": "file:///own/ffmpeg"}
    target = dataclasses.replace(HERE, name="sim:a", simulated=True, mirrors=own)
    run = runs.ProfileRun(
        "plan", target, T4, runs.Options(mirrors={"nvidia": "https://m.example"}),
        runs.RunContext(lambda *_: None, None, lambda: False),
    )  # fmt: skip
    assert sources.mirrors_of(run) == {"nvidia": "https://m.example", "ffmpeg": "file:///own/ffmpeg"}
    run = runs.ProfileRun("plan", target, T4, runs.Options(), runs.RunContext(lambda *_: None, None, lambda: False))
    assert sources.mirrors_of(run) == own


def test_a_key_of_ones_own_mirror_needs_no_fingerprint(stage: Stage, tmp_path: Path) -> None:
    (tmp_path / "key.asc").write_text("ours")
    mirrors = {"nvidia": "https://mirror.example", "nvidia_key": str(tmp_path / "key.asc")}
    (nvidia, *_) = asked_of(stage, "rocky9", mirrors=mirrors)["repositories"]
    assert (nvidia["key"], nvidia["fingerprint"], nvidia["uri"][:23]) == ("ours", "", "https://mirror.example/")
