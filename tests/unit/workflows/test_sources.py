"""A plan tries every source before the first step: what is lacking refuses it, and nothing is started."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import fakeprograms
import pytest
from builders import bare_snapshot
from fakehost import all_offered
from workflowstage import Stage, stage

from gpuprep import errors
from gpuprep.workflows import provision, sources

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


def no_wheel(answer: dict[str, Any]) -> None:
    answer["lacking"] = {"nvidia-cudnn-cu12": "https://pypi.example/simple/nvidia-cudnn-cu12/: timed out"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (without("libcupti-dev"), "CUDA 12.4: this host's package archive has no libcupti-dev"),
        (in_version("nvidia-cuda-toolkit", "13.1.0-1"), "has no 12.4 of nvidia-cuda-toolkit; it has 13.1.0"),
        (in_version("libnvcuvid1", "550.54.14-1"), "with all its parts; it has no version that all parts have"),
        (without("nvidia-modprobe"), "the driver's tools: this host's package archive has no nvidia-modprobe"),
        (without("clang"), "what builds FFmpeg: this host's package archive has no clang"),
        (unreachable, "(apt says: E: Failed to fetch http://deb.example/InRelease Connection refused)"),
        (no_wheel, "the Python index, tried from this host: https://pypi.example/simple/nvidia-cudnn-cu12/: timed out"),
    ],
)
@pytest.mark.parametrize("command", [provision.plan, provision.provision])
def test_a_source_that_lacks_something_refuses_the_plan(stage: Stage, command: Any, change: Changed, said: str) -> None:
    def archives(question: dict[str, Any]) -> str:
        answer = json.loads(all_offered(question))
        change(answer)
        return json.dumps(answer)

    stage.script.snapshots, stage.script.archives = [bare_snapshot()], archives
    made = stage(command)
    assert made.exit_code == 2
    assert said in " ".join((made.error or "").split())
    assert "nothing was changed on the host" in (made.error or "")
    assert made.playbook is None


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


def test_wheels_and_files_are_looked_for_where_pip_and_the_role_take_them(tmp_path: Path) -> None:
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
        "urls": {"nvidia": f"{address}/pip.conf", "epel": f"{address}/absent.rpm"},
        "wheels": {"nvidia-cudnn-cu12": "9.8.0.87", "nvidia-nccl-cu12": "2.28.9"},
    }
    for version in ("9.8.0.87", "9.8.0.8"):
        question["wheels"]["nvidia-cudnn-cu12"] = version
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", program.replace("/etc/pip.conf", str(conf))],
            input=json.dumps(question), capture_output=True, text=True, check=True,
        )  # fmt: skip
        lacking = json.loads(done.stdout)["lacking"]
        assert set(lacking) == {"epel", "nvidia-nccl-cu12"} | ({"nvidia-cudnn-cu12"} if version == "9.8.0.8" else set())
    conf.unlink()
    fakeprograms.program(tmp_path / "python3", "exit 1")  # no pip
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program.replace("/etc/pip.conf", str(conf))],
        input=json.dumps(question), capture_output=True, text=True, check=True, env={"PATH": str(tmp_path)},
    )  # fmt: skip
    assert json.loads(done.stdout)["untried"] == list(question["wheels"])


def test_what_could_not_be_tried_is_a_note_of_the_plan(stage: Stage) -> None:
    def archives(question: dict[str, Any]) -> str:
        return json.dumps(json.loads(all_offered(question)) | {"untried": ["nvidia-cudnn-cu12"]})

    stage.script.snapshots, stage.script.archives = [bare_snapshot()], archives
    made = stage(provision.plan)
    assert made.exit_code == 0
    assert made.plan is not None
    assert "not tried, as the host has no pip yet: nvidia-cudnn-cu12 in the Python index" in str(made.plan)
