"""known_hosts files and SSH configurations of every kind. Of host keys the verdict is that of a real `ssh`."""

from __future__ import annotations

import base64
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import paramiko
import pytest
import sshserver
from sshserver import SSHD, Sshd, make_key

from gpuprep import errors, remote

needs_sshd = pytest.mark.skipif(SSHD is None, reason="no sshd here (package openssh-server)")


class Keys:
    """The key of a server on a port, and others that are not its own."""

    def __init__(self, folder: Path, port: int, host_key: Path) -> None:
        self.port = port
        self.kind, self.key = host_key.with_suffix(".pub").read_text().split()[:2]
        self.other = make_key(folder / "other").with_suffix(".pub").read_text().split()[1]
        subprocess.run(["ssh-keygen", "-q", "-t", "rsa", "-b", "2048", "-N", "", "-f", f"{folder}/rsa"], check=True)
        self.rsa = (folder / "rsa.pub").read_text().split()[1]
        self.name = f"[127.0.0.1]:{port}"
        self.folder = folder

    def hashed(self, name: str) -> str:
        path = self.folder / "to_hash"
        path.write_text(f"{name} {self.kind} {self.key}\n")
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(path)], check=True, stderr=subprocess.DEVNULL)
        return path.read_text().split()[0]

    def verdict(self, known_hosts: Path, *, accept_new: bool = False) -> str:
        shown = paramiko.PKey.from_type_string(self.kind, base64.b64decode(self.key))
        return sshserver.verdict(known_hosts, "127.0.0.1", self.port, shown, accept_new=accept_new)


class Server(Keys):
    """A real sshd."""

    def __init__(self, folder: Path) -> None:
        (folder / "home").mkdir()
        self.sshd = Sshd(folder, folder / "home", "MaxStartups 100")
        super().__init__(folder, self.sshd.port, self.sshd.host_key)

    def openssh_trusts(self, known_hosts: Path) -> bool:
        options = ["StrictHostKeyChecking=yes", f"UserKnownHostsFile={known_hosts}", "GlobalKnownHostsFile=/dev/null"]
        options += ["BatchMode=yes", "ConnectTimeout=300", "LogLevel=ERROR", "UpdateHostKeys=no"]
        argv = ["ssh", "-F", "/dev/null", *(word for option in options for word in ("-o", option))]
        argv += ["-i", str(self.sshd.key), "-p", str(self.sshd.port), f"{self.sshd.user}@127.0.0.1", "true"]
        done = subprocess.run(argv, check=False, capture_output=True, text=True)
        assert done.returncode == 0 or "Host key verification failed" in done.stderr, done.stderr
        return done.returncode == 0


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    folder = tmp_path_factory.mktemp("keys")
    return Keys(folder, 2222, make_key(folder / "host_key"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    made = Server(tmp_path_factory.mktemp("sshd"))
    yield made
    made.sshd.stop()


# What stands in known_hosts, by Keys.
Lines = Callable[[Keys], str]
LINES: dict[str, tuple[Lines, bool]] = {
    "plain": (lambda s: f"{s.name} {s.kind} {s.key}", True),
    "absent": (lambda s: f"[127.0.0.2]:{s.port} {s.kind} {s.key}", False),
    "another-key": (lambda s: f"{s.name} {s.kind} {s.other}", False),
    "another-key-first": (lambda s: f"{s.name} {s.kind} {s.other}\n{s.name} {s.kind} {s.key}", True),
    "another-key-after": (lambda s: f"{s.name} {s.kind} {s.key}\n{s.name} {s.kind} {s.other}", True),
    "another-type-alone": (lambda s: f"{s.name} ssh-rsa {s.rsa}", False),
    "another-type-first": (lambda s: f"{s.name} ssh-rsa {s.rsa}\n{s.name} {s.kind} {s.key}", True),
    "name-without-port": (lambda s: f"127.0.0.1 {s.kind} {s.key}", True),
    "name-without-port-another-key": (lambda s: f"127.0.0.1 {s.kind} {s.other}", False),
    "with-port-wrong-without-right": (lambda s: f"{s.name} {s.kind} {s.other}\n127.0.0.1 {s.kind} {s.key}", False),
    "another-port": (lambda s: f"[127.0.0.1]:1 {s.kind} {s.key}", False),
    "several-names": (lambda s: f"other,{s.name},[::1]:22 {s.kind} {s.key}", True),
    "star": (lambda s: f"* {s.kind} {s.key}", True),
    "star-inside": (lambda s: f"[127.*]:{s.port} {s.kind} {s.key}", True),
    "question-mark": (lambda s: f"[127.0.0.?]:{s.port} {s.kind} {s.key}", True),
    "question-mark-too-many": (lambda s: f"[127.0.0.??]:{s.port} {s.kind} {s.key}", False),
    "brackets-are-no-class": (lambda s: f"127.0.0.[12] {s.kind} {s.key}", False),
    "negated-alone": (lambda s: f"!{s.name} {s.kind} {s.key}", False),
    "negated-after": (lambda s: f"*,!{s.name},!127.0.0.1 {s.kind} {s.key}", False),
    "negated-before": (lambda s: f"!{s.name},!127.0.0.1,* {s.kind} {s.key}", False),
    "negated-with-port-alone": (lambda s: f"*,!{s.name} {s.kind} {s.key}", True),  # it is asked for without one, too
    "negated-wildcard": (lambda s: f"{s.name},![127.*]:* {s.kind} {s.key}", False),
    "negated-another": (lambda s: f"*,!elsewhere {s.kind} {s.key}", True),
    "negated-in-another-line": (lambda s: f"!{s.name} {s.kind} {s.key}\n{s.name} {s.kind} {s.key}", True),
    "negated-without-port": (lambda s: f"*,!127.0.0.1 {s.kind} {s.key}", True),
    "hashed": (lambda s: f"{s.hashed(s.name)} {s.kind} {s.key}", True),
    "hashed-another": (lambda s: f"{s.hashed('elsewhere')} {s.kind} {s.key}", False),
    "hashed-without-port": (lambda s: f"{s.hashed('127.0.0.1')} {s.kind} {s.key}", True),
    "hashed-and-a-name": (lambda s: f"{s.hashed('elsewhere')},{s.name} {s.kind} {s.key}", False),
    "name-and-a-hash": (lambda s: f"{s.name},{s.hashed('elsewhere')} {s.kind} {s.key}", True),
    "hash-of-another-kind": (lambda s: f"{s.hashed(s.name).replace('|1|', '|2|')} {s.kind} {s.key}", False),
    "hash-negated": (lambda s: f"!{s.hashed(s.name)} {s.kind} {s.key}", False),
    "authority-with-the-hosts-own-key": (lambda s: f"@cert-authority {s.name} {s.kind} {s.key}", False),
    "authority-for-all": (lambda s: f"@cert-authority * {s.kind} {s.other}", False),
    "authority-and-known": (lambda s: f"@cert-authority * {s.kind} {s.other}\n{s.name} {s.kind} {s.key}", True),
    "revoked": (lambda s: f"@revoked {s.name} {s.kind} {s.key}", False),
    "revoked-and-known": (lambda s: f"{s.name} {s.kind} {s.key}\n@revoked * {s.kind} {s.key}", False),
    "another-revoked": (lambda s: f"{s.name} {s.kind} {s.key}\n@revoked * {s.kind} {s.other}", True),
    "marker-unknown": (lambda s: f"@trusted {s.name} {s.kind} {s.key}", False),
    "marker-alone": (lambda s: f"@cert-authority\n{s.name} {s.kind} {s.key}", True),
    "marker-in-capitals": (lambda s: f"@REVOKED {s.name} {s.kind} {s.key}\n{s.name} {s.kind} {s.key}", True),
    "commented": (lambda s: f"#{s.name} {s.kind} {s.key}", False),
    "commented-after-blanks": (lambda s: f"  # {s.name} {s.kind} {s.key}", False),
    "comment-at-the-end": (lambda s: f"{s.name} {s.kind} {s.key} root@box # yes", True),
    "blanks-before": (lambda s: f"  \t{s.name} {s.kind} {s.key}", True),
    "tabs-between": (lambda s: f"{s.name}\t{s.kind}\t{s.key}", True),
    "other-white-space": (lambda s: f"{s.name}\x0b{s.kind}\x0b{s.key}", False),
    "no-break-space": (lambda s: f"{s.name}\xa0{s.kind}\xa0{s.key}", False),
    "form-feed-in-names": (lambda s: f"other\x0c,{s.name} {s.kind} {s.key}", True),
    "carriage-returns": (lambda s: f"{s.name} {s.kind} {s.key}\r", True),
    "carriage-return-and-comment": (lambda s: f"{s.name} {s.kind} {s.key} me\r", True),
    "capitals": (lambda s: f"{s.name.replace('127', '127')},LOCALHOST {s.kind} {s.key}", True),
    "type-in-capitals": (lambda s: f"{s.name} {s.kind.upper()} {s.key}", False),
    "type-of-another": (lambda s: f"{s.name} ssh-rsa {s.key}", False),
    "torn-key": (lambda s: f"{s.name} {s.kind} {s.key[:40]}", False),
    "key-with-more": (lambda s: f"{s.name} {s.kind} {s.key}AAAA", False),
    "no-key": (lambda s: f"{s.name} {s.kind}", False),
    "names-alone": (lambda s: s.name, False),
    "nul-after": (lambda s: f"{s.name} {s.kind} {s.key}\0junk", True),
    "nul-before": (lambda s: f"\0{s.name} {s.kind} {s.key}", False),
    "nul-in-the-name": (lambda s: f"{s.name}\0,x {s.kind} {s.key}", False),
    "empty-names": (lambda s: f",,{s.name},, {s.kind} {s.key}", True),
    "name-in-a-long-list": (lambda s: f"{'a,' * 20_000}{s.name} {s.kind} {s.key}", True),
    "a-pattern-of-1000": (lambda s: f"{'a' * 1000},{s.name} {s.kind} {s.key}", True),
    "a-pattern-of-1022": (lambda s: f"{'a' * 1022},{s.name} {s.kind} {s.key}", True),
    "a-pattern-of-1023": (lambda s: f"{'a' * 1023},{s.name} {s.kind} {s.key}", False),
    "a-pattern-of-1024": (lambda s: f"{'a' * 1024},{s.name} {s.kind} {s.key}", False),
    "a-pattern-of-9000-after": (lambda s: f"{s.name},{'a' * 9000} {s.kind} {s.key}", False),
    "not-utf8": (lambda s: f"\udcff\udcfe,{s.name} {s.kind} {s.key} \udcff", True),
    "no-newline-but-a-comment-before": (lambda s: f"# x\n\n\n{s.name} {s.kind} {s.key}", True),
}


@pytest.mark.parametrize("case", LINES)
def test_the_verdict_on_a_host_key(keys: Keys, tmp_path: Path, case: str) -> None:
    lines, trusted = LINES[case]
    path = tmp_path / "known_hosts"
    path.write_bytes(lines(keys).encode(errors="surrogateescape") + b"\n")
    assert (keys.verdict(path) == "") == trusted


@needs_sshd
@pytest.mark.machines
@pytest.mark.parametrize("case", LINES)
def test_that_verdict_is_the_one_of_openssh(server: Server, tmp_path: Path, case: str) -> None:
    lines, trusted = LINES[case]
    path = tmp_path / "known_hosts"
    path.write_bytes(lines(server).encode(errors="surrogateescape") + b"\n")
    assert server.openssh_trusts(path) == trusted


@needs_sshd
@pytest.mark.parametrize("case", ["negated-after", "another-key-first", "name-without-port", "authority-for-all"])
def test_a_connection_goes_by_that_verdict(server: Server, tmp_path: Path, case: str) -> None:
    lines, trusted = LINES[case]
    path = tmp_path / "known_hosts"
    path.write_text(lines(server) + "\n")
    with remote.Host(server.sshd.target(known_hosts=str(path))) as host:
        if trusted:
            assert host.run("echo in").stdout == "in\n"
            return
        with pytest.raises(errors.HostKeyRefused, match="not known") as caught:
            host.run("true")
    assert ("certificate authority" in caught.value.what) == ("authority" in case)


@needs_sshd
def test_a_key_that_is_revoked_for_another_host_is_judged_as_openssh_judges_it(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_text(f"{server.name} {server.kind} {server.key}\n@revoked elsewhere {server.kind} {server.key}\n")
    assert server.openssh_trusts(path)
    assert server.verdict(path) == ""


def test_a_host_of_which_only_another_type_is_known_has_changed(keys: Keys, tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_text(f"{keys.name} ssh-rsa {keys.rsa}\n")
    assert "HAS CHANGED" in keys.verdict(path, accept_new=True)
    assert path.read_text().count("\n") == 1


# ---------------------------------------------------------------- files that are none


def fifo(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


KEY = paramiko.ECDSAKey.generate()
FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "fifo": (fifo, "no regular file"),
    "folder": (Path.mkdir, "no regular file"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "no regular file"),
    "terabyte-of-nothing": (endless, "more than 16 MiB"),
}


@pytest.mark.parametrize("case", FILES)
def test_a_known_hosts_file_that_is_none(tmp_path: Path, case: str) -> None:
    make, words = FILES[case]
    path = tmp_path / "known_hosts"
    make(path)
    with pytest.raises(errors.UsageError, match=words):
        sshserver.verdict(path, "box", 22, KEY)


LONG: dict[str, bytes] = {
    "one-line-of-15-megabytes": b"a" * (15 << 20),
    "newlines": b"\n" * (2 << 20),
    "nuls": b"\0" * (15 << 20),
    "a-name-list-of-15-megabytes": b"a," * (7 << 20) + b" ssh-ed25519 AAAA\n",
    "stars": b"*a" * 500 + b"b ssh-ed25519 AAAA\n",
    "hashes": b"|1|" + b"A" * 27 + b"=|" + b"A" * 27 + b"= ssh-ed25519 AAAA\n",
    "hash-without-salt": b"|1||= ssh-ed25519 AAAA\n" * 50_000,
    "hash-not-ascii": "|1|é|é ssh-ed25519 AAAA\n".encode() * 1000,
    "torn-keys": b"box ssh-ed25519 AAAA\n" * 10_000,
}


@pytest.mark.parametrize("case", LONG)
def test_a_strange_known_hosts_file_takes_no_time_and_trusts_nobody(tmp_path: Path, case: str) -> None:
    path = tmp_path / "known_hosts"
    path.write_bytes(LONG[case])
    began = time.process_time()
    assert "the host key is not known" in sshserver.verdict(path, "a" * 60 + "c", 22, KEY)
    assert time.process_time() - began < 40  # of the processor, which other programs do not lengthen much


# ---------------------------------------------------------------- the SSH configuration


def config_of(home: Path, **files: str) -> None:
    for name, text in files.items():
        (home / ".ssh" / name).write_text(text)


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({"config": "Include config\n"}, id="itself"),
        pytest.param({"config": "Include a\n", "a": "Include b\n", "b": "Include a\n"}, id="each-other"),
        pytest.param({"config": "Include *\n" * 20, "a": "Include *\n" * 20}, id="all-of-all"),
        pytest.param({"config": "Include config config config\n" * 50}, id="itself-often"),
    ],
)
def test_files_that_include_each_other_come_to_an_end(home: Path, files: dict[str, str]) -> None:
    config_of(home, **files)
    began = time.process_time()
    with pytest.raises(errors.UsageError, match="too much is included") as caught:
        sshserver.user_of("box")
    assert "include itself" in caught.value.hint
    assert time.process_time() - began < 40


def test_a_configuration_of_too_many_bytes(home: Path) -> None:
    with (home / ".ssh" / "config").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(errors.UsageError, match="too much is included"):
        sshserver.user_of("box")


@pytest.mark.parametrize("kind", ["fifo", "folder"])
def test_an_include_that_is_no_file_is_passed_over(home: Path, kind: str) -> None:
    config_of(home, config="Include other\nHost box\n  User me\n")
    os.mkfifo(home / ".ssh" / "other") if kind == "fifo" else (home / ".ssh" / "other").mkdir()
    assert sshserver.user_of("box") == "me"


def test_an_include_sixteen_deep_is_read(home: Path) -> None:
    config_of(home, config="Include f1\n", **{f"f{i}": f"Include f{i + 1}\n" for i in range(1, 16)})
    config_of(home, f16="Host box\n  User me\n")
    assert sshserver.user_of("box") == "me"
