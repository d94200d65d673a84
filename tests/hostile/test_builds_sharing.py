"""Finished FFmpeg builds on the controller: what no trusted builder and no signature vouches for goes nowhere."""

# mypy: disable-error-code="func-returns-value"
# An attack of the tables is a lambda, whose value nobody reads.

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hostilebuilds import KEY, ROLE, sh

ARTIFACT = ROLE / "files" / "artifact.py"
TRUSTED = ["gpu-build-01", "sim:builder"]
CONTENT = b"a packed build"
ROOT = os.geteuid() == 0


class Controller:
    """The folder of builds, with one build of a trusted builder in it, and the keys of the user and of a stranger."""

    def __init__(self, folder: Path) -> None:
        self.home, self.builds = folder, folder / "builds"
        self.builds.mkdir(mode=0o700)
        self.archive, self.json = self.builds / f"{KEY}.tar.xz", self.builds / f"{KEY}.tar.xz.json"
        self.signature = self.builds / f"{KEY}.tar.xz.sig"
        self.signers = folder / "allowed_signers"
        self.archive.write_bytes(CONTENT)
        self.record()
        self.archive.chmod(0o600)

    def record(self, **changes: Any) -> None:
        told = {"build_key": KEY, "builder": TRUSTED[0], "sha256": hashlib.sha256(CONTENT).hexdigest(), **changes}
        self.json.write_text(json.dumps({key: value for key, value in told.items() if value is not None}))
        self.json.chmod(0o600)

    def sign(self, who: str = "user", namespace: str = "gpuprep-ffmpeg", content: bytes = CONTENT) -> None:
        """By the key of `who`, a new one; the user's is the one that the signers' file names."""
        for name in {who, "user"}:
            if not (self.home / name).exists():
                sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", self.home / name)
        self.signers.write_text(f"me@example {(self.home / 'user.pub').read_text()}")
        self.signers.chmod(0o600)
        (self.home / "signed").write_bytes(content)
        done = sh("ssh-keygen", "-q", "-Y", "sign", "-n", namespace, "-f", self.home / who, self.home / "signed")
        assert done.returncode == 0, done.stderr
        (self.home / "signed.sig").rename(self.signature)
        self.signature.chmod(0o600)

    def check(self, trusted: Any = None, *, signed: bool = False, key: str = KEY) -> tuple[int, dict[str, Any], str]:
        names = json.dumps(TRUSTED if trusted is None else trusted)
        arguments: list[str | Path] = ["check", self.builds, key, names, str(self.signers) if signed else ""]
        done = sh(sys.executable, "-I", ARTIFACT, *arguments)
        return done.returncode, json.loads(done.stdout or "{}"), done.stderr

    def accept(self, part: Path, key: str = KEY, builder: str = TRUSTED[0], recipe: str = "{}") -> tuple[int, str]:
        done = sh(sys.executable, "-I", ARTIFACT, "accept", self.builds, key, part, builder, recipe)
        return done.returncode, done.stderr


@pytest.fixture
def controller(tmp_path: Path) -> Controller:
    return Controller(tmp_path)


def test_a_build_of_a_trusted_builder_is_used(controller: Controller) -> None:
    assert controller.check() == (0, {"use": True, "why": ""}, "")


def test_a_signed_build_is_used_whoever_built_it(controller: Controller) -> None:
    controller.record(builder="gpu-17")
    controller.sign()
    assert controller.check(signed=True) == (0, {"use": True, "why": ""}, "")


def replaced(path: Path, kind: str) -> None:
    """The file becomes something else of the same content, as far as it has one."""
    kept = path.with_name("kept")
    path.rename(kept)
    {
        "link": lambda: path.symlink_to(kept),
        "pipe": lambda: os.mkfifo(path, 0o600),
        "folder": lambda: path.mkdir(0o700),
        "device": lambda: path.symlink_to("/dev/zero"),
    }[kind]()


def foreign(path: Path) -> None:
    os.chown(path, 12345, 12345)


FORGED: dict[str, Callable[[Controller], object]] = {
    "another-host-built-it": lambda c: c.record(builder="gpu-17"),
    "name-in-other-letters": lambda c: c.record(builder="GPU-BUILD-01"),
    "name-with-a-blank": lambda c: c.record(builder="gpu-build-01 "),
    "name-with-a-newline": lambda c: c.record(builder="gpu-build-01\n"),
    "beginning-of-a-name": lambda c: c.record(builder="gpu-build"),
    "name-and-more": lambda c: c.record(builder="gpu-build-01.example"),
    "both-names-in-one": lambda c: c.record(builder="gpu-build-01,sim:builder"),
    "empty-name": lambda c: c.record(builder=""),
    "look-alike-name": lambda c: c.record(builder="gpu-buіld-01"),
    "ansibles-name-of-a-simulated-one": lambda c: c.record(builder="sim-builder"),
    "names-as-a-list": lambda c: c.record(builder=["gpu-build-01"]),
    "name-as-an-object": lambda c: c.record(builder={"gpu-build-01": 1}),
    "no-name": lambda c: c.record(builder=None),
    "what-older-releases-wrote": lambda c: c.json.write_text(
        json.dumps({"sha256": hashlib.sha256(CONTENT).hexdigest()})
    ),
    "no-json": lambda c: c.json.unlink(),
    "empty-json": lambda c: c.json.write_text(""),
    "json-is-a-list": lambda c: c.json.write_text('["builder", "sha256"]'),
    "json-is-not-text": lambda c: c.json.write_bytes(b"\xff\xfe\x00"),
    "json-nested-deeply": lambda c: c.json.write_text("[" * 60000),
    "json-too-long": lambda c: c.record(padding="x" * (1 << 17)),
    "json-is-a-pipe": lambda c: replaced(c.json, "pipe"),
    "json-is-a-link": lambda c: replaced(c.json, "link"),
    "json-is-endless": lambda c: replaced(c.json, "device"),
    "json-that-others-write": lambda c: c.json.chmod(0o666),
    "json-of-another-build": lambda c: c.record(build_key="ba9876543210"),
    "no-sha256": lambda c: c.record(sha256=None),
    "sha256-that-is-none": lambda c: c.record(sha256="*"),
    "sha256-of-another-file": lambda c: c.record(sha256="0" * 64),
    "build-changed-afterwards": lambda c: c.archive.write_bytes(b"another build"),
    "build-is-a-link": lambda c: replaced(c.archive, "link"),
    "build-is-a-pipe": lambda c: replaced(c.archive, "pipe"),
    "build-is-a-folder": lambda c: replaced(c.archive, "folder"),
    "build-is-endless": lambda c: replaced(c.archive, "device"),
    "build-too-large": lambda c: os.truncate(c.archive, (1 << 30) + 1),
    "build-that-the-group-writes": lambda c: c.archive.chmod(0o660),
    "build-that-others-write": lambda c: c.archive.chmod(0o602),
    "folder-that-others-write": lambda c: c.builds.chmod(0o777),
    "folder-is-a-link": lambda c: replaced(c.builds, "link"),
}
FORGED_BY_OTHERS: dict[str, Callable[[Controller], object]] = {
    "build-of-another-user": lambda c: foreign(c.archive),
    "json-of-another-user": lambda c: foreign(c.json),
    "folder-of-another-user": lambda c: foreign(c.builds),
}


@pytest.mark.parametrize("attack", FORGED.values(), ids=FORGED)
def test_a_build_that_nobody_trusted_vouches_for_is_not_used(
    controller: Controller, attack: Callable[[Controller], object]
) -> None:
    attack(controller)
    code, told, _ = controller.check()
    assert (code, told["use"]) == (0, False)
    assert told["why"].startswith("the finished build")
    assert "\n" not in told["why"]


@pytest.mark.skipif(not ROOT, reason="only root makes files of other users")
@pytest.mark.parametrize("attack", FORGED_BY_OTHERS.values(), ids=FORGED_BY_OTHERS)
def test_what_others_own_is_not_used(controller: Controller, attack: Callable[[Controller], object]) -> None:
    attack(controller)
    assert controller.check()[1]["use"] is False


@pytest.mark.parametrize("trusted", [[], ["gpu-build-02"], ["*"], ["gpu-build-*"], ["all"], ["GPU-BUILD-01"]], ids=str)
def test_trust_is_by_the_names_of_now(controller: Controller, trusted: list[str]) -> None:
    """The recorded builder was trusted once; what counts is the list of this run, and it holds no patterns."""
    assert controller.check(trusted)[1]["use"] is False


@pytest.mark.parametrize("trusted", ["gpu-build-01", {"gpu-build-01": True}, ["gpu-build-01", 1], None], ids=repr)
def test_a_list_that_is_none_trusts_nobody(controller: Controller, trusted: Any) -> None:
    done = sh(sys.executable, "-I", ARTIFACT, "check", controller.builds, KEY, json.dumps(trusted), "")
    assert done.returncode == 1
    assert "no list of names" in done.stderr


SIGNATURES: dict[str, Callable[[Controller], object]] = {
    "of-a-key-that-is-not-allowed": lambda c: c.sign(who="stranger"),
    "for-another-purpose": lambda c: c.sign(namespace="file"),
    "for-git": lambda c: c.sign(namespace="git"),
    "of-another-file": lambda c: c.sign(content=b"another build"),
    "of-an-older-build": lambda c: (c.sign(), c.archive.write_bytes(b"a newer one"))[0],
    "empty": lambda c: (c.sign(), c.signature.write_text(""))[0],
    "missing": lambda c: (c.sign(), c.signature.unlink())[0],
    "a-link": lambda c: (c.sign(), replaced(c.signature, "link"))[0],
    "a-pipe": lambda c: (c.sign(), replaced(c.signature, "pipe"))[0],
    "endless": lambda c: (c.sign(), os.truncate(c.signature, 1 << 20))[0],
    "that-others-write": lambda c: (c.sign(), c.signature.chmod(0o666))[0],
    "with-signers-that-others-write": lambda c: (c.sign(), c.signers.chmod(0o666))[0],
    "with-signers-that-are-a-link": lambda c: (c.sign(), replaced(c.signers, "link"))[0],
    "with-signers-that-are-a-pipe": lambda c: (c.sign(), replaced(c.signers, "pipe"))[0],
    "with-signers-that-are-gone": lambda c: (c.sign(), c.signers.unlink())[0],
    "by-a-key-for-other-purposes": lambda c: (
        c.sign(),
        c.signers.write_text(f'me@example namespaces="git" {(c.home / "user.pub").read_text()}'),
    )[0],
    "by-a-key-of-earlier-days": lambda c: (
        c.sign(),
        c.signers.write_text(f'me@example valid-before="20200101" {(c.home / "user.pub").read_text()}'),
    )[0],
    "by-the-first-of-two-names-only-negated": lambda c: (
        c.sign(),
        c.signers.write_text(f"!me@example {(c.home / 'user.pub').read_text()}"),
    )[0],
}


@pytest.mark.parametrize("attack", SIGNATURES.values(), ids=SIGNATURES)
def test_a_signature_that_is_none_vouches_for_nothing(
    controller: Controller, attack: Callable[[Controller], object]
) -> None:
    controller.record(builder="gpu-17")
    attack(controller)
    code, told, _ = controller.check(signed=True)
    assert (code, told["use"]) == (0, False)


def test_a_good_signature_counts_for_nothing_where_no_signers_are_set(controller: Controller) -> None:
    controller.record(builder="gpu-17")
    controller.sign()
    assert controller.check()[1]["use"] is False


# ---------------------------------------------------------------- what a host hands over


def handed_over(controller: Controller, content: bytes = b"of the host") -> Path:
    part = controller.builds / ".part"
    part.write_bytes(content)
    return part


def test_the_controller_writes_down_who_built_it_and_what_it_is(controller: Controller) -> None:
    """A recipe with words of the host cannot speak of the builder, nor of the sha256."""
    forged = json.dumps({"os": "x", "builder": "gpu-build-01", "sha256": "0" * 64, "build_key": "f" * 12, "bytes": 0})
    assert controller.accept(handed_over(controller), builder="gpu-17", recipe=forged) == (0, "")
    told = json.loads(controller.json.read_text())
    digest = hashlib.sha256(b"of the host").hexdigest()
    assert (told["builder"], told["sha256"], told["build_key"], told["bytes"]) == ("gpu-17", digest, KEY, 11)
    assert {path.stat().st_mode & 0o777 for path in controller.builds.iterdir()} == {0o600}
    assert sorted(path.name for path in controller.builds.iterdir()) == [controller.archive.name, controller.json.name]
    assert controller.check()[1]["use"] is False


PARTS: dict[str, Callable[[Path, Path], object]] = {
    "link-to-a-private-key": lambda part, secret: part.symlink_to(secret),
    "pipe": lambda part, _: os.mkfifo(part, 0o600),
    "folder": lambda part, _: part.mkdir(),
    "too-large": lambda part, _: (part.touch(0o600), os.truncate(part, (1 << 30) + 1))[0],
    "nothing": lambda _part, _: None,
}


@pytest.mark.parametrize("make", PARTS.values(), ids=PARTS)
def test_what_is_no_build_does_not_take_the_place_of_one(
    controller: Controller, make: Callable[[Path, Path], object]
) -> None:
    (controller.home / "id_ed25519").write_text("secret")
    part = controller.builds / ".part"
    make(part, controller.home / "id_ed25519")
    code, why = controller.accept(part)
    assert code == 1
    assert len(why.splitlines()) == 1
    assert controller.archive.read_bytes() == CONTENT
    assert controller.check()[1]["use"] is True


@pytest.mark.parametrize(
    "key", ["../../../tmp/x", "", "0123456789AB", KEY + "\n", "x" * 12, f"{KEY}/../{KEY}", "{{ 1 }}"]
)
def test_a_key_is_12_hex_digits_and_no_path(controller: Controller, key: str) -> None:
    assert controller.accept(handed_over(controller), key=key)[0] == 1
    assert controller.check(key=key)[0] == 1
    assert controller.archive.read_bytes() == CONTENT


def test_a_folder_that_others_write_takes_no_builds(controller: Controller) -> None:
    controller.builds.chmod(0o777)
    assert controller.accept(handed_over(controller))[0] == 1
    assert controller.archive.read_bytes() == CONTENT


# ---------------------------------------------------------------- who claims a build


def claim(action: str, folder: Path, pid: int, host: str) -> int:
    return sh("sh", ROLE / "files" / "claim.sh", action, folder / "claim", str(pid), host).returncode


def test_a_host_that_is_not_trusted_keeps_nobody_waiting(tmp_path: Path) -> None:
    assert claim("wait", tmp_path, os.getpid(), "hostile") == 0
    assert list(tmp_path.iterdir()) == []
    assert claim("take", tmp_path, os.getppid(), "builder") == 0


def test_it_waits_itself_and_cannot_end_the_claim(tmp_path: Path) -> None:
    claim("take", tmp_path, os.getppid(), "builder")
    assert claim("wait", tmp_path, os.getpid(), "hostile") == 75
    claim("release", tmp_path, os.getpid(), "hostile")
    assert claim("wait", tmp_path, os.getpid(), "hostile") == 75
