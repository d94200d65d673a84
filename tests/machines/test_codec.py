"""gpu_codec by itself, with nothing around it but a playbook of one role, on simulated VMs that compile for real.

The tests of this file stand in the order of one story: a first host whose controller is lost, a second host, a damaged
artifact, a killed build. `make test` compiles FFmpeg once: the first host builds it from the parts of profile t4, and
the machine of finished.py waits for that build and gets it. In `make test-all` each compiles its own, here from few
parts.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import amount
import finished
import psutil
import pytest
from builders import shipped
from compilequickly import compile_quickly
from machines import CODEC_BUILDER
from places import COLLECTION

from gpuprep import paths, remote, sim
from gpuprep.desired import state
from gpuprep.provisioning import ansible_environment
from gpuprep.sim import mirror

pytestmark = pytest.mark.e2e

FIRST, SECOND, OLDER = CODEC_BUILDER, "e2e-codec-second", "e2e-codec-older"
UNIT = "gpuprep-ffmpeg-build"
SELDOM = 5  # seconds from one look at a long build to the next: each look takes a second of the processors
INVOCATION = f"systemctl is-active {UNIT} && systemctl show --property=InvocationID {UNIT}"
FEW: dict[str, list[str]] = {
    "encoders": ["h264_nvenc", "hevc_nvenc", "rawvideo"],
    "decoders": ["h264", "h264_cuvid", "rawvideo", "wrapped_avframe"],
    "hwaccels": ["h264_nvdec"],
    "filters": ["scale_cuda", "testsrc2", "format", "scale", "null"],
    "muxers": ["mp4", "rawvideo"],
    "demuxers": ["mov", "rawvideo"],
    "parsers": ["h264"],
    "bsfs": ["h264_mp4toannexb"],
    "protocols": ["file", "pipe"],
    "indevs": ["lavfi"],
}
MORE = {**FEW, "filters": [*FEW["filters"], "psnr"]}
WISH = shipped(finished.PROFILE).codec
PARTS = FEW if amount.ALL else WISH.parts


@dataclass(frozen=True)
class Stage:
    """The controller's side: one folder for the playbook, its logs and the artifacts."""

    folder: Path
    mirrors: dict[str, str]
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def builds(self) -> Path:
        return self.folder / "artifacts" / "builds"

    def start(self, machine: str, *flags: str, **variables: Any) -> subprocess.Popen[str]:
        target = sim.target(machine)
        settings = {
            "gpu_codec_parts": {kind: list(names) for kind, names in PARTS.items()},
            "gpu_codec_ffmpeg_url": self.mirrors["ffmpeg"],
            "gpu_codec_headers_url": self.mirrors["nv_codec_headers"],
            "gpu_codec_artifact_dir": str(self.folder / "artifacts"),
            "gpu_codec_poll_seconds": 1,
            # By their names in the inventory below: with a plain playbook there are no others.
            "gpu_codec_trusted_builders": [f"sim-{FIRST}", f"sim-{SECOND}"],
            **variables,
        }
        inventory, play = self.folder / f"{machine}.json", self.folder / "codec.yml"
        inventory.write_text(json.dumps(ansible_environment.inventory(target, settings)), encoding="utf-8")
        play.write_text("- hosts: all\n  become: true\n  roles: [gpuprep.gpu.gpu_codec]\n", encoding="utf-8")
        environment = ansible_environment.environment(
            target, self.folder / "ansible", ansible_environment.playbooks_dir(), accept_new_host_key=False
        )
        command = [
            str(ansible_environment.ansible_program("ansible-playbook")),
            "-i",
            str(inventory),
            *flags,
            str(play),
        ]
        process = subprocess.Popen(
            command,
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.folder), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.started.append(process)
        return process

    def play(self, machine: str, *flags: str, **variables: Any) -> Played:
        process = self.start(machine, *flags, **variables)
        text, _ = process.communicate()
        return Played(process.returncode, text)


@dataclass(frozen=True)
class Played:
    exit_code: int
    text: str

    @property
    def changed(self) -> list[str]:
        """Names of the tasks that changed something."""
        blocks = re.split(r"^TASK \[", self.text, flags=re.M)[1:]
        return [block.partition("]")[0].rpartition(" : ")[2] for block in blocks if "\nchanged: " in block]

    def good(self) -> Played:
        assert self.exit_code == 0, self.text[-6000:]
        return self

    def refused(self) -> str:
        """What the failed task said, on one line."""
        assert self.exit_code == 2, self.text[-6000:]
        return " ".join(self.text[self.text.index("fatal: ") :].split())


def wait_for_line(process: subprocess.Popen[str], *words: str) -> None:
    """Until the running play prints a line with all of `words`."""
    assert process.stdout is not None
    printed = []
    for line in process.stdout:
        printed.append(line)
        if all(word in line for word in words):
            return
    raise AssertionError("".join(printed)[-6000:])


def on(machine: str, command: str) -> str:
    """`command` as root on the machine; its output."""
    with remote.Host(sim.target(machine)) as host:
        done = host.run(command, become=True)
    assert done.exit_code == 0, f"{command}: exit {done.exit_code}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


def manifest(machine: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(on(machine, "cat /opt/gpuprep/ffmpeg/current/manifest.json"))
    return document


def wait_until_compiling(machine: str, process: subprocess.Popen[str]) -> None:
    """Until some files are compiled and most are not."""
    # Only a unit at work: the log of a killed build lies there until the next one clears it away.
    ask = (
        f"systemctl --quiet is-active {UNIT} && grep -c ^CC $(ls -t /var/lib/gpuprep/build/*/work/make.log | head -n 1)"
    )
    with remote.Host(sim.target(machine)) as host:
        while int(host.run(ask, become=True).stdout.strip() or 0) < 20:
            assert process.poll() is None, process.communicate()[0][-4000:]
            time.sleep(0.5)  # the poll of a condition on another machine, nothing to wait on


def kill(process: subprocess.Popen[str]) -> str:
    """As a controller that loses its power: Ansible's workers are sessions of their own, and would go on.

    Returns what it had printed.
    """
    for child in psutil.Process(process.pid).children(recursive=True):
        child.kill()
    process.kill()
    text, _ = process.communicate()
    return text


def sim_command(*arguments: str) -> None:
    """A process of its own starts a machine, because the machine outlives whoever started it."""
    command = [sys.executable, "-m", "gpuprep.cli", "sim", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def up(name: str, release: str) -> None:
    sim_command("up", name, "--os", release, "--gpu", "t4")
    compile_quickly(name)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    names = (FIRST, SECOND, OLDER)
    known = {machine.name for machine in sim.machines()}
    for name in names:
        if name in known:
            sim_command("down", name)
    folder = tmp_path_factory.mktemp("codec")
    stage = Stage(folder, mirror.ensure())
    yield stage
    for process in stage.started:  # what an interrupted test left behind
        if process.poll() is None:
            kill(process)
    for machine in sim.machines():
        if machine.name in names:
            sim_command("down", machine.name)
    shutil.rmtree(folder / "artifacts", ignore_errors=True)


@dataclass(frozen=True)
class First:
    """How the first host came to its FFmpeg: the run that began the build and was killed, and the next one."""

    killed: Played
    resumed: Played
    same_build: bool  # the unit that builds was the same before and after


@contextmanager
def others_wait() -> Iterator[Callable[[Path], None]]:
    """Meanwhile runs of gpuprep that want the same build wait for it; the function hands it to them, from a folder.

    Both by the role's own programs. What an earlier session left there stays.
    """
    files = COLLECTION / "roles/gpu_codec/files"
    shared = paths.cache_dir() / "artifacts/builds"
    shared.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = state.build_key("debian-13", platform.machine(), WISH)

    def claim(action: str) -> int:
        command = ["sh", str(files / "claim.sh"), action, str(shared / f"{key}.claim"), str(os.getpid()), FIRST]
        return subprocess.run(command, check=False).returncode

    def hand_on(builds: Path) -> None:
        if (shared / f"{key}.tar.xz").exists():
            return
        part = shutil.copyfile(builds / f"{key}.tar.xz", shared / f".{FIRST}.part")
        accept = [sys.executable, "-I", str(files / "artifact.py"), "accept", str(shared), key, str(part), FIRST, "{}"]
        subprocess.run(accept, check=True)

    if claim("take") != 0:  # the other machine is at it already
        yield lambda _builds: None
        return
    try:
        yield hand_on
    finally:
        claim("release")


@contextmanager
def nobody_waits() -> Iterator[Callable[[Path], None]]:
    yield lambda _builds: None


@pytest.fixture(scope="module")
def first(stage: Stage) -> First:
    with nobody_waits() if amount.ALL else others_wait() as hand_on:
        made = built(stage)
        hand_on(stage.builds)
    return made


def built(stage: Stage) -> First:
    up(FIRST, "debian13")
    before = stage.play(FIRST, "--check", "--diff").good()
    assert before.changed == ["Would install the headers", "Would install FFmpeg", "Would switch to this FFmpeg"]
    assert on(FIRST, "ls /opt/gpuprep /var/lib/gpuprep/codec 2>/dev/null || true") == ""
    process = stage.start(FIRST, gpu_codec_poll_seconds=SELDOM)
    wait_until_compiling(FIRST, process)
    killed = Played(0, kill(process))
    since = on(FIRST, INVOCATION)
    resumed = stage.start(FIRST, "-v", gpu_codec_poll_seconds=SELDOM)
    same_build = on(FIRST, INVOCATION) == since
    text, _ = resumed.communicate()
    return First(killed, Played(resumed.returncode, text).good(), same_build)


@pytest.fixture(scope="module")
def second(stage: Stage, first: First) -> Played:
    assert first.resumed.exit_code == 0
    up(SECOND, "debian13")
    return stage.play(SECOND).good()


def test_a_build_outlives_its_controller_and_the_next_run_goes_on_waiting(first: First) -> None:
    assert "Start the build as a unit of its own" in first.killed.text
    assert first.same_build
    assert "Start the build as a unit of its own" not in first.resumed.changed
    assert "Install the build" in first.resumed.changed
    assert manifest(FIRST)["built_on"] == on(FIRST, "hostname")


def test_a_bare_host_gets_a_build_with_its_parts(first: First) -> None:
    assert first.resumed.exit_code == 0
    assert re.search(r" h264_nvenc .*\n.* hevc_nvenc ", on(FIRST, "ffmpeg -hide_banner -encoders"))
    assert " h264_cuvid " in on(FIRST, "ffmpeg -hide_banner -decoders")
    assert " scale_cuda " in on(FIRST, "ffmpeg -hide_banner -filters")
    assert on(FIRST, "ffmpeg -hide_banner -hwaccels").split()[-1] == "cuda"
    assert on(FIRST, "ffprobe -version").startswith("ffprobe version 7.1.5")
    assert on(FIRST, "pkg-config --modversion ffnvcodec") == "12.1.14.0"
    assert on(FIRST, "ffmpeg -v error -f lavfi -i testsrc2=d=1:s=64x64 -pix_fmt yuv420p -f rawvideo - | wc -c") == str(
        64 * 64 * 3 // 2 * 25
    )


def test_the_manifest_tells_what_was_built(first: First) -> None:
    assert first.resumed.exit_code == 0
    told = manifest(FIRST)
    assert (told["version"], told["headers_version"], told["os"]) == ("7.1.5", "12.1.14.0", "debian-13")
    assert told["redistributable"] is True
    assert "--enable-cuda-llvm" in told["configure"]
    assert "--enable-nonfree" not in on(FIRST, "ffmpeg -hide_banner -buildconf")
    assert set(told["files"]) >= {"bin/ffmpeg", "bin/ffprobe", "share/doc/ffmpeg/COPYING.GPLv2"}
    build = on(FIRST, "readlink -f /opt/gpuprep/ffmpeg/current")
    for name, digest in told["files"].items():
        assert on(FIRST, f"sha256sum {build}/{name}").split()[0] == digest
    assert "clang" in told["compilers"]["clang"].lower()
    assert on(FIRST, f"find {build} ! -user root") == ""


def test_check_mode_has_nothing_to_say_of_a_finished_host(stage: Stage, first: First) -> None:
    """That a second run changes nothing: test_a_second_host_gets_the_same_and_compiles_nothing."""
    assert first.resumed.exit_code == 0
    checked = stage.play(FIRST, "--check", "--diff").good()
    assert checked.changed == []
    assert not re.search(r"^(---|\+\+\+) ", checked.text, re.M)


@pytest.mark.only_all  # the next one stops at the same place
def test_a_name_that_ffmpeg_does_not_know_is_named(stage: Stage, first: First) -> None:
    said = stage.play(FIRST, gpu_codec_parts={**FEW, "encoders": ["h264_nvenk"]}).refused()
    assert first.resumed.exit_code == 0
    assert "does not know: --enable-encoder=h264_nvenk" in said


@pytest.mark.only_all  # test_codec_script.py, with a stand-in of configure
def test_a_part_that_configure_drops_is_named(stage: Stage, first: First) -> None:
    """libx264 is not there, so configure leaves its encoder out, in silence."""
    said = stage.play(FIRST, gpu_codec_parts={**FEW, "encoders": ["libx264"]}).refused()
    assert first.resumed.exit_code == 0
    assert "configure left out, because something they need is missing: libx264_encoder" in said


@pytest.mark.only_all  # test_codec_script.py and hostile/test_builds_role.py
def test_a_forged_tarball_or_signature_is_not_built(stage: Stage, first: First) -> None:
    assert first.resumed.exit_code == 0
    forged = stage.folder / "forged"
    shutil.copytree(stage.mirrors["ffmpeg"].removeprefix("file://"), forged)
    name = "ffmpeg-7.1.5.tar.xz"
    # A tarball of the expected sha256, under a signature that is of something else.
    (forged / f"{name}.asc").write_bytes((forged / f"{name}.asc").read_bytes().replace(b"\n", b"\nA", 3))
    other = {"gpu_codec_artifact_dir": str(stage.folder / "other"), "gpu_codec_ffmpeg_url": str(forged)}
    assert "signature of FFmpeg's tarball is not good" in stage.play(FIRST, gpu_codec_parts=MORE, **other).refused()
    (forged / name).write_bytes(b"not FFmpeg")
    shutil.rmtree(stage.folder / "other")
    said = stage.play(FIRST, gpu_codec_parts=MORE, **other).refused()
    assert "Expected the sha256 de668509caf9e35e3cd162473441fdb29538c6d96ed080292b3cf9e6fc5d558f" in said
    assert re.search(r"got [0-9a-f]{64}", said)


def test_a_second_host_gets_the_same_and_compiles_nothing(stage: Stage, second: Played) -> None:
    assert "Install the finished build" in second.changed
    assert "Start the build as a unit of its own" not in second.changed
    assert on(SECOND, "cd /usr/bin && ls gcc clang make nasm 2>/dev/null || true") == ""
    assert on(SECOND, "ls /var/lib/gpuprep/build 2>/dev/null || true") == ""
    assert manifest(SECOND)["built_on"] == on(FIRST, "hostname")
    assert on(SECOND, "pkg-config --modversion ffnvcodec") == "12.1.14.0"
    assert " hevc_nvenc " in on(SECOND, "ffmpeg -hide_banner -encoders")
    assert stage.play(SECOND).good().changed == []


def test_none_leaves_everything_alone(stage: Stage, second: Played) -> None:
    assert second.exit_code == 0
    assert stage.play(SECOND, gpu_codec_ffmpeg_version="none", gpu_codec_prefix="/opt/elsewhere").good().changed == []


@pytest.mark.only_all  # test_builds_role.py: what the role does with a damaged artifact
def test_a_damaged_build_and_artifact_are_built_again_and_a_killed_build_leaves_the_old_ffmpeg_at_work(
    stage: Stage, second: Played
) -> None:
    assert second.exit_code == 0
    before = manifest(FIRST)
    artifact = damaged_artifact(stage, before["key"])
    damaged = artifact.read_bytes()
    on(FIRST, f"printf x >> /opt/gpuprep/ffmpeg/7.1.5-{before['key']}/bin/ffmpeg")
    checked = stage.play(FIRST, "--check").good()
    assert checked.changed == ["Would install FFmpeg"]
    process = stage.start(FIRST, gpu_codec_poll_seconds=SELDOM)
    wait_until_compiling(FIRST, process)
    on(FIRST, f"systemctl kill --signal=KILL {UNIT}")
    text, _ = process.communicate()
    played = Played(process.returncode, text)
    assert "stopped from outside while compiling" in played.refused()
    assert f"{artifact.name} is corrupted" in " ".join(text.split())
    assert "Start the build as a unit of its own" in played.changed
    assert artifact.with_name(f"{artifact.name}.corrupted").read_bytes() == damaged
    assert manifest(FIRST) == before
    assert on(FIRST, "ffmpeg -version").startswith("ffmpeg version 7.1.5")


def damaged_artifact(stage: Stage, key: str) -> Path:
    artifact = stage.builds / f"{key}.tar.xz"
    damaged = bytearray(artifact.read_bytes())
    damaged[len(damaged) // 2] ^= 0xFF
    artifact.write_bytes(damaged)
    return artifact


@pytest.mark.only_all
def test_other_parts_are_another_build_beside_the_one_before(stage: Stage, second: Played) -> None:
    assert second.exit_code == 0
    before = manifest(SECOND)
    played = stage.play(SECOND, gpu_codec_parts=MORE).good()
    assert "Start the build as a unit of its own" in played.changed
    assert manifest(SECOND)["key"] != before["key"]
    assert manifest(SECOND)["built_on"] == on(SECOND, "hostname")
    assert " psnr " in on(SECOND, "ffmpeg -hide_banner -filters")
    kept = on(SECOND, "ls /opt/gpuprep/ffmpeg").split()
    assert sorted(kept) == sorted([f"7.1.5-{before['key']}", f"7.1.5-{manifest(SECOND)['key']}", "current"])
    assert stage.play(SECOND, gpu_codec_parts=MORE).good().changed == []


@pytest.mark.only_all
def test_a_host_waits_for_another_that_builds_the_same_and_builds_when_that_one_is_killed(
    stage: Stage, second: Played
) -> None:
    assert second.exit_code == 0
    key = manifest(FIRST)["key"]
    for machine in (FIRST, SECOND):
        on(machine, f"rm -f /opt/gpuprep/ffmpeg/7.1.5-{key}/bin/ffmpeg")
    (stage.builds / f"{key}.tar.xz").unlink(missing_ok=True)
    process = stage.start(SECOND)
    wait_until_compiling(SECOND, process)
    waiting = stage.start(FIRST)
    wait_for_line(waiting, "RETRYING", "Wait for a host that builds the same")
    on(SECOND, f"systemctl kill --signal=KILL {UNIT}")
    text, _ = process.communicate()
    assert "stopped from outside while compiling" in Played(process.returncode, text).refused()
    wait_for_line(waiting, "gpu_codec : Wait for the build")
    assert on(FIRST, f"systemctl is-active {UNIT}") == "active"
    kill(waiting)
    on(FIRST, f"systemctl stop {UNIT}")


@pytest.mark.only_all
def test_debian_12_builds_its_own(stage: Stage) -> None:
    up(OLDER, "debian12")
    played = stage.play(OLDER).good()
    assert "Start the build as a unit of its own" in played.changed
    assert manifest(OLDER)["os"] == "debian-12"
    assert " scale_cuda " in on(OLDER, "ffmpeg -hide_banner -filters")
    assert on(OLDER, "pkg-config --modversion ffnvcodec") == "12.1.14.0"
    assert stage.play(OLDER).good().changed == []
