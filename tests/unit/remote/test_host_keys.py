"""Host keys: in each case of a table gpuprep's verdict is that of a real `ssh`, on a real sshd and an ssh_config.

`make test` asks gpuprep in each case, and ssh in a few; `make test-machines` asks ssh in all.
"""

from __future__ import annotations

import base64
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import amount
import paramiko
import pytest
import sshserver
from hypothesis import given, settings
from hypothesis import strategies as st
from sshserver import SSHD, Sshd, make_key

from gpuprep import errors, remote

pytestmark = pytest.mark.skipif(SSHD is None, reason="no sshd here (package openssh-server)")

STRICT = ["BatchMode=yes", "StrictHostKeyChecking=yes", "UpdateHostKeys=no", "ConnectTimeout=300"]
ACCEPTED, UNKNOWN, CHANGED, REVOKED = "accepted", "unknown", "changed", "revoked"
REFUSED = "refused"  # whatever key the host shows: a file of revoked keys cannot be read

# How each server's certificate is made: options of ssh-keygen. Without a list: a server without a certificate.
SERVERS: dict[str, list[str] | None] = {
    "plain": None,
    "rsa-alone": None,
    "certified": ["-s", "{dir}/ca", "-h", "-n", "127.0.0.1", "-z", "7"],
    "certified-by-rsa": ["-s", "{dir}/ca_rsa", "-h", "-n", "127.0.0.1"],
    "certified-by-sha1": ["-s", "{dir}/ca_rsa", "-t", "ssh-rsa", "-h", "-n", "127.0.0.1"],
    "certified-by-ecdsa": ["-s", "{dir}/ca_ecdsa", "-h", "-n", "127.0.0.1"],
    "certified-for-two": ["-s", "{dir}/ca", "-h", "-n", "other,127.0.0.1"],
    "certified-for-all": ["-s", "{dir}/ca", "-h"],
    "certified-for-alias": ["-s", "{dir}/ca", "-h", "-n", "web1"],
    "certified-for-a-pattern": ["-s", "{dir}/ca", "-h", "-n", "127.*"],
    "certified-as-user": ["-s", "{dir}/ca", "-n", "127.0.0.1"],
    "certified-once": ["-s", "{dir}/ca", "-h", "-n", "127.0.0.1", "-V", "20200101:20200102"],
    "certified-later": ["-s", "{dir}/ca", "-h", "-n", "127.0.0.1", "-V", "20900101:20900102"],
    "certified-with-options": ["-s", "{dir}/ca", "-h", "-n", "127.0.0.1", "-O", "critical:x@example.org=1"],
    "certified-with-extension": ["-s", "{dir}/ca", "-h", "-n", "127.0.0.1", "-O", "extension:x@example.org=1"],
}


@dataclass(frozen=True)
class Case:
    verdict: str
    lines: str = ""
    server: str = "plain"
    config: str = ""
    also: str = ""  # of a second file
    krl: str = ""  # what a KRL shall hold, in the words of `ssh-keygen -k`


FILES = "UserKnownHostsFile {dir}/known {dir}/also\nGlobalKnownHostsFile /dev/null\n"
BOTH = "UserKnownHostsFile {dir}/known\nGlobalKnownHostsFile {dir}/also\n"
REVOKING = "UserKnownHostsFile {dir}/known\nGlobalKnownHostsFile /dev/null\nRevokedHostKeys {dir}/also\n"
KRL = REVOKING.replace("also", "krl")
ALIAS = FILES + "HostKeyAlias web1\n"
CASES: dict[str, Case] = {
    # ---- several keys of a server
    "nothing-known": Case(UNKNOWN),
    "ed25519-known": Case(ACCEPTED, "{name} {ed}"),
    "rsa-alone-known": Case(ACCEPTED, "{name} {rsa}"),
    "ecdsa-alone-known": Case(ACCEPTED, "{name} {ecdsa}"),
    "rsa-known-without-port": Case(UNKNOWN, "127.0.0.1 {rsa}"),  # types are looked up with the port alone
    "ed25519-known-without-port": Case(ACCEPTED, "127.0.0.1 {ed}"),
    "rsa-known-ed25519-another": Case(CHANGED, "{name} {rsa}\n{name} {other}"),
    "ecdsa-known-rsa-another": Case(ACCEPTED, "{name} {ecdsa}\n{name} {other_rsa}"),
    "rsa-known-ecdsa-revoked": Case(ACCEPTED, "{name} {rsa}\n@revoked * {ecdsa}"),
    "rsa-known-and-revoked": Case(CHANGED, "{name} {rsa}\n@revoked * {rsa}"),  # so the server shows its ed25519 key
    "rsa-known-after-a-revoked-one": Case(CHANGED, "{name} {other_rsa}\n{name} {rsa}\n@revoked * {other_rsa}"),
    "rsa-known-before-a-revoked-one": Case(ACCEPTED, "{name} {rsa}\n{name} {other_rsa}\n@revoked * {other_rsa}"),
    "the-server-has-another-type": Case(CHANGED, "{name} {ed}", server="rsa-alone"),
    "the-server-has-that-type": Case(ACCEPTED, "{name} {rsa}", server="rsa-alone"),
    # ---- patterns, hashes, ports; more of them in tests/hostile/test_hostio_known_hosts.py
    "star": Case(ACCEPTED, "* {ed}"),
    "question-marks": Case(ACCEPTED, "[???.0.0.1]:* {ed}"),
    "negated": Case(UNKNOWN, "*,!{name},!127.0.0.1 {ed}"),
    "negated-elsewhere": Case(ACCEPTED, "!other,{name} {ed}"),
    "another-port": Case(UNKNOWN, "[127.0.0.1]:1 {ed}"),
    "without-port-another": Case(UNKNOWN, "127.0.0.1 {other}"),
    "with-port-another-without-right": Case(CHANGED, "{name} {other}\n127.0.0.1 {ed}"),
    "hashed": Case(ACCEPTED, "{hashed} {ed}"),
    "hashed-another-key": Case(CHANGED, "{hashed} {other}"),
    "hashed-revoked": Case(REVOKED, "@revoked {hashed} {ed}"),
    "comments-and-torn-lines": Case(ACCEPTED, "# a\n\nx\n@x y\n{name} ssh-ed25519 AAAA\n{name} {ed} # b"),
    "carriage-returns": Case(ACCEPTED, "# a\r\n{name} {ed}\r"),
    "carriage-returns-another": Case(CHANGED, "{name} {other}\r\n"),
    # ---- revoked
    "revoked": Case(REVOKED, "@revoked {name} {ed}"),
    "revoked-and-known": Case(REVOKED, "{name} {ed}\n@revoked * {ed}"),
    "revoked-for-another-host": Case(ACCEPTED, "{name} {ed}\n@revoked elsewhere {ed}"),
    "revoked-without-port": Case(REVOKED, "@revoked 127.0.0.1 {ed}"),
    "revoked-without-port-known-with": Case(ACCEPTED, "{name} {ed}\n@revoked 127.0.0.1 {ed}"),
    "revoked-another": Case(UNKNOWN, "@revoked * {other}"),
    # ---- certificates
    "authority": Case(ACCEPTED, "@cert-authority * {ca}", "certified"),
    "authority-by-name": Case(ACCEPTED, "@cert-authority {name} {ca}", "certified"),
    "authority-without-port": Case(ACCEPTED, "@cert-authority 127.0.0.1 {ca}", "certified"),
    "authority-of-others": Case(UNKNOWN, "@cert-authority *.example.org {ca}", "certified"),
    "authority-another": Case(UNKNOWN, "@cert-authority * {other}", "certified"),
    "authority-among-others": Case(ACCEPTED, "@cert-authority * {other}\n@cert-authority * {ca}", "certified"),
    "authority-another-with-port": Case(
        ACCEPTED, "@cert-authority {name} {other}\n@cert-authority 127.0.0.1 {ca}", "certified"
    ),
    "authority-another-with-port-key-changed": Case(
        ACCEPTED, "@cert-authority {name} {other}\n{name} {other}\n@cert-authority 127.0.0.1 {ca}", "certified"
    ),
    "authority-right-with-port-wrong-name-known-bare": Case(
        UNKNOWN, "@cert-authority {name} {ca}\n127.0.0.1 {other}", "certified-for-alias"
    ),
    "authority-hashed": Case(ACCEPTED, "@cert-authority {hashed} {ca}", "certified"),
    "authority-rsa": Case(ACCEPTED, "@cert-authority * {ca_rsa}", "certified-by-rsa"),
    "authority-ecdsa": Case(ACCEPTED, "@cert-authority * {ca_ecdsa}", "certified-by-ecdsa"),
    "authority-sha1": Case(UNKNOWN, "@cert-authority * {ca_rsa}", "certified-by-sha1"),
    "authority-for-two-names": Case(ACCEPTED, "@cert-authority * {ca}", "certified-for-two"),
    "authority-for-all-names": Case(ACCEPTED, "@cert-authority * {ca}", "certified-for-all"),
    "authority-for-another-name": Case(UNKNOWN, "@cert-authority * {ca}", "certified-for-alias"),
    "authority-for-a-pattern": Case(UNKNOWN, "@cert-authority * {ca}", "certified-for-a-pattern"),
    "certificate-of-a-user": Case(UNKNOWN, "@cert-authority * {ca}", "certified-as-user"),
    "certificate-expired": Case(UNKNOWN, "@cert-authority * {ca}", "certified-once"),
    "certificate-not-yet": Case(UNKNOWN, "@cert-authority * {ca}", "certified-later"),
    "certificate-with-critical-option": Case(UNKNOWN, "@cert-authority * {ca}", "certified-with-options"),
    "certificate-with-extension": Case(ACCEPTED, "@cert-authority * {ca}", "certified-with-extension"),
    "certificate-expired-key-known": Case(ACCEPTED, "@cert-authority * {ca}\n{name} {ed}", "certified-once"),
    "certificate-expired-other-key": Case(CHANGED, "@cert-authority * {ca}\n{name} {other}", "certified-once"),
    "certificate-right-other-key": Case(ACCEPTED, "@cert-authority * {ca}\n{name} {other}", "certified"),
    "certificate-no-authority-key-known": Case(ACCEPTED, "{name} {ed}", "certified"),
    "certificate-no-authority-rsa-known": Case(ACCEPTED, "{name} {rsa}", "certified"),
    "certificate-no-authority": Case(UNKNOWN, "", "certified"),
    "certificate-but-key-changed-known-bare": Case(ACCEPTED, "{name} {other}\n127.0.0.1 {ed}", "certified"),
    "authority-without-its-marker": Case(CHANGED, "{name} {ca}", "certified"),
    "authority-revoked": Case(REVOKED, "@cert-authority * {ca}\n@revoked * {ca}", "certified"),
    "authority-revoked-key-known": Case(REVOKED, "{name} {ed}\n@revoked * {ca}", "certified"),
    "certified-key-revoked": Case(REVOKED, "@cert-authority * {ca}\n@revoked * {ed}", "certified"),
    "authority-and-no-certificate": Case(UNKNOWN, "@cert-authority * {ca}"),
    "authority-and-no-certificate-key-known": Case(ACCEPTED, "@cert-authority * {ca}\n{name} {rsa}"),
    # ---- several files
    "in-the-second-file": Case(ACCEPTED, "", also="{name} {ed}"),
    "another-in-the-second-file": Case(ACCEPTED, "{name} {ed}", also="{name} {other}"),
    "revoked-in-the-second-file": Case(REVOKED, "{name} {ed}", also="@revoked * {ed}"),
    "in-the-global-file": Case(ACCEPTED, "", also="{name} {ed}", config=BOTH),
    "revoked-in-the-global-file": Case(REVOKED, "{name} {ed}", also="@revoked * {ed}", config=BOTH),
    "authority-in-the-global-file": Case(ACCEPTED, "", "certified", BOTH, "@cert-authority * {ca}"),
    "no-such-file": Case(ACCEPTED, "{name} {ed}", config="UserKnownHostsFile {dir}/none-such {dir}/known\n"),
    "no-file-at-all": Case(UNKNOWN, "{name} {ed}", config="UserKnownHostsFile none\nGlobalKnownHostsFile none\n"),
    "a-file-that-cannot-be-read": Case(ACCEPTED, "{name} {ed}", config="UserKnownHostsFile {dir}/{long} {dir}/known\n"),
    "a-file-by-tokens": Case(ACCEPTED, "", also="{name} {ed}", config="UserKnownHostsFile {dir}/al%%so-%k-%h-%p-%n\n"),
    "a-quoted-file": Case(ACCEPTED, "{name} {ed}", config='UserKnownHostsFile "{dir}/known" {dir}/also\n'),
    # ---- RevokedHostKeys: a list, or a KRL
    "list-has-the-key": Case(REVOKED, "{name} {ed}", config=REVOKING, also="# a\n\n{other}\n{ed} comment"),
    "list-has-another-key": Case(ACCEPTED, "{name} {ed}", config=REVOKING, also="{other}\n{rsa}"),
    "list-is-empty": Case(ACCEPTED, "{name} {ed}", config=REVOKING),
    "list-has-an-unknown-key": Case(REVOKED, "", config=REVOKING, also="{ed}"),
    "list-has-the-key-of-a-certificate": Case(REVOKED, "@cert-authority * {ca}", "certified", REVOKING, "{ed}"),
    "list-has-the-authority": Case(REVOKED, "@cert-authority * {ca}", "certified", REVOKING, "{ca}"),
    "list-has-another-authority": Case(ACCEPTED, "@cert-authority * {ca}", "certified", REVOKING, "{ca_rsa}"),
    "list-is-torn": Case(REFUSED, "{name} {ed}", config=REVOKING, also="ssh-ed25519 AAAA"),
    "list-is-not-there": Case(REFUSED, "{name} {ed}", config=REVOKING.replace("also", "none-such")),
    "list-is-a-folder": Case(REFUSED, "{name} {ed}", config=REVOKING.replace("/also", "")),
    "list-is-the-null-device": Case(ACCEPTED, "{name} {ed}", config=REVOKING.replace("{dir}/also", "/dev/null")),
    "list-is-none": Case(ACCEPTED, "{name} {ed}", config=REVOKING.replace("{dir}/also", "none")),
    "list-by-tokens": Case(REFUSED, "{name} {ed}", config=REVOKING.replace("also", "al%%so-%k-%h-%p-%n"), also="{ed}"),
    "krl-has-the-key": Case(REVOKED, "{name} {ed}", config=KRL, krl="key: {ed}"),
    "krl-has-its-fingerprint": Case(REVOKED, "{name} {ed}", config=KRL, krl="sha256: {ed}"),
    "krl-has-another-key": Case(ACCEPTED, "{name} {ed}", config=KRL, krl="key: {other}"),
    "krl-has-the-serial-number": Case(REVOKED, "@cert-authority * {ca}", "certified", KRL, krl="serial: 7"),
    "krl-has-another-serial-number": Case(ACCEPTED, "@cert-authority * {ca}", "certified", KRL, krl="serial: 8"),
    "krl-has-the-certificates-name": Case(REVOKED, "@cert-authority * {ca}", "certified", KRL, krl="id: certified"),
    "krl-has-the-authority": Case(REVOKED, "@cert-authority * {ca}", "certified", KRL, krl="key: {ca}"),
    # ---- an alias for the keys
    "alias": Case(ACCEPTED, "web1 {ed}", config=ALIAS),
    "alias-in-capitals": Case(ACCEPTED, "web1 {ed}", config=FILES + "HostKeyAlias WEB1\n"),
    "alias-with-port": Case(UNKNOWN, "[web1]:{port} {ed}", config=ALIAS),
    "alias-and-name-known": Case(UNKNOWN, "{name} {ed}", config=ALIAS),
    "alias-another-key": Case(CHANGED, "web1 {other}\n{name} {ed}", config=ALIAS),
    "alias-and-certificate-of-the-alias": Case(ACCEPTED, "@cert-authority web* {ca}", "certified-for-alias", ALIAS),
    "alias-and-certificate-of-the-name": Case(UNKNOWN, "@cert-authority web* {ca}", "certified", ALIAS),
    # ---- algorithms
    "algorithms-rsa-alone": Case(CHANGED, "{name} {ed}", config=FILES + "HostKeyAlgorithms rsa-sha2-512\n"),
    "algorithms-rsa-known": Case(ACCEPTED, "{name} {rsa}", config=FILES + "HostKeyAlgorithms rsa-sha2-256\n"),
    "algorithms-less-ed25519": Case(UNKNOWN, "127.0.0.1 {ed}", config=FILES + "HostKeyAlgorithms -ssh-ed25519*\n"),
    "algorithms-rsa-first": Case(ACCEPTED, "127.0.0.1 {rsa}", config=FILES + "HostKeyAlgorithms ^rsa-*\n"),
    "algorithms-without-certificates": Case(
        UNKNOWN, "@cert-authority * {ca}", "certified", FILES + "HostKeyAlgorithms ssh-ed25519\n"
    ),
    # ---- the address
    "address-not-checked": Case(
        ACCEPTED, "[localhost]:{port} {ed}\n{name} {other}", config=FILES + "HostName localhost\n"
    ),
    "name-in-capitals": Case(ACCEPTED, "[localhost]:{port} {ed}", config=FILES + "HostName LOCALHOST\n"),
}  # fmt: skip


class World:
    """Servers with keys of three types, and all keys by name as known_hosts has them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running: dict[str, Sshd] = {}
        self.home = folder / "home"
        self.home.mkdir()
        for name in ("rsa", "ecdsa", "other_rsa", "ca_rsa", "ca_ecdsa"):
            kind = name.rpartition("_")[2]
            bits = ["-b", "2048"] if kind == "rsa" else []
            subprocess.run(["ssh-keygen", "-q", "-t", kind, *bits, "-N", "", "-f", str(folder / name)], check=True)
        for name in ("ca", "other"):
            make_key(folder / name)

    def server(self, name: str) -> Sshd:
        if name not in self.running:
            folder = self.folder / name
            folder.mkdir()
            more = [f"HostKey {self.folder}/rsa", f"HostKey {self.folder}/ecdsa"]
            more += ["HostKeyAlgorithms rsa-sha2-512,rsa-sha2-256"] if name == "rsa-alone" else []
            sshd = self.running[name] = Sshd(folder, self.home, "MaxStartups 100", *more)
            if certificate := SERVERS[name]:
                words = [word.format(dir=self.folder) for word in certificate]
                subprocess.run(["ssh-keygen", "-q", *words, "-I", name, f"{sshd.host_key}.pub"], check=True)
                sshd.stop()
                with (folder / "sshd_config").open("a") as file:
                    file.write(f"HostCertificate {sshd.host_key}-cert.pub\n")
                sshd.start()
        return self.running[name]

    def words(self, sshd: Sshd, folder: Path) -> dict[str, str]:
        name = f"[127.0.0.1]:{sshd.port}"
        keys = {path.stem: path for path in self.folder.glob("*.pub")}
        public = {key: " ".join(path.read_text().split()[:2]) for key, path in keys.items()}
        public["ed"] = " ".join(sshd.host_key.with_suffix(".pub").read_text().split()[:2])
        hashed = folder / "to_hash"
        hashed.write_text(f"{name} {public['ed']}\n")
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(hashed)], check=True, stderr=subprocess.DEVNULL)
        public["hashed"] = hashed.read_text().split()[0]
        return {**public, "name": name, "port": str(sshd.port), "dir": str(folder), "long": "a" * 300}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    made = World(tmp_path_factory.mktemp("keys"))
    yield made
    for sshd in made.running.values():
        sshd.stop()


def lay_out(case: Case, world: World, folder: Path, home: Path) -> Path:
    """The files of a case; the ssh_config in which it calls the server `box`."""
    sshd = world.server(case.server)
    words = world.words(sshd, folder)
    (folder / "known").write_bytes((case.lines.format(**words) + "\n").encode())
    for also in ("also", f"al%so-box-127.0.0.1-{sshd.port}-box"):
        (folder / also).write_text(case.also.format(**words) + "\n")
    if case.krl:
        (folder / "spec").write_text(case.krl.format(**words) + "\n")
        command = ["ssh-keygen", "-q", "-k", "-f", str(folder / "krl"), "-s", str(world.folder / "ca.pub")]
        subprocess.run([*command, str(folder / "spec")], check=True, capture_output=True)
    options = (case.config or FILES).format(**words)
    address = "" if "HostName" in options else "HostName 127.0.0.1\n"
    config = home / ".ssh" / "config"
    login = f"Port {sshd.port}\nUser {sshd.user}\nIdentityFile {sshd.key}\n"
    config.write_text(f"Host box\n{address}{login}{options}")
    return config


def of_openssh(config: Path) -> str:
    argv = ["ssh", "-F", str(config), *(word for option in STRICT for word in ("-o", option)), "box", "true"]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    if done.returncode == 0:
        return ACCEPTED
    assert "Host key verification failed" in done.stderr, done.stderr
    words = {"REVOKED HOST KEY": REVOKED, "IDENTIFICATION HAS CHANGED": CHANGED}
    words |= {"revoked by file": REVOKED, "Error checking host key": REFUSED}
    return next((verdict for text, verdict in words.items() if text in done.stderr), UNKNOWN)


def of_gpuprep() -> str:
    try:
        with remote.Host(remote.Target("box")) as host:
            assert host.run("echo in").stdout == "in\n"
    except errors.HostKeyRefused as refused:
        words = {"KEY IS REVOKED": REVOKED, "HAS CHANGED": CHANGED, "is not known": UNKNOWN}
        return next(verdict for text, verdict in words.items() if text in refused.what)
    except errors.UsageError as error:
        return REFUSED if "revoked host keys cannot be read" in error.what else error.what
    return ACCEPTED


@pytest.mark.parametrize("name", CASES)
def test_the_verdict_on_a_host_key(world: World, tmp_path: Path, home: Path, name: str) -> None:
    lay_out(CASES[name], world, tmp_path, home)
    assert of_gpuprep() == CASES[name].verdict


ASKED_OF_SSH = ("nothing-known", "hashed-another-key", "authority", "krl-has-the-key")


@pytest.mark.parametrize("name", sshserver.telling(CASES, *ASKED_OF_SSH))
def test_the_verdict_is_that_of_ssh(world: World, tmp_path: Path, home: Path, name: str) -> None:
    assert of_openssh(lay_out(CASES[name], world, tmp_path, home)) == CASES[name].verdict


@pytest.mark.parametrize(
    "setting", ["", "+ssh-rsa", "-ssh-ed25519*,rsa-*", "^rsa-sha2-256,ecdsa-*", "rsa-sha2-*", "-*cert*"]
)
def test_defaults_and_algorithms_are_those_of_ssh(setting: str, tmp_path: Path) -> None:
    """`ssh -G` shows what OpenSSH makes of a configuration. Of algorithms those count that paramiko has."""
    config = tmp_path / "config"
    config.write_text(f"HostKeyAlgorithms {setting}\n" if setting else "")
    done = subprocess.run(["ssh", "-G", "-F", str(config), "box"], check=True, capture_output=True, text=True)
    shown = dict(line.split(" ", 1) for line in done.stdout.splitlines())
    ours, files = sshserver.looked_up({"hostkeyalgorithms": setting} if setting else {})
    known, _ = sshserver.looked_up({})
    assert ours == [name for name in shown["hostkeyalgorithms"].split(",") if name in known], setting
    theirs = f"{shown['userknownhostsfile']} {shown['globalknownhostsfile']}".split()
    assert [path.name for path in files] == [Path(name).name for name in theirs]


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("HostKeyAlgorithms ssh-rsa", "supports none of them"),
        ("HostKeyAlgorithms -*", "supports none of them"),
        ("UserKnownHostsFile ~/a-%Z", "is not known"),
        ("UserKnownHostsFile ${NO_SUCH_VARIABLE}/a", "is not known"),
        ('UserKnownHostsFile "a', "not the names"),
    ],
)
def test_a_setting_that_means_nothing_is_refused(home: Path, setting: str, words: str) -> None:
    (home / ".ssh/config").write_text(f"Host box\nHostName 127.0.0.1\nPort 1\n{setting}\n")
    with pytest.raises(errors.UsageError, match=words), remote.Host(remote.Target("box")) as host:
        host.run("true")


def test_a_file_that_cannot_be_read_is_named_where_the_key_is_not_known(
    world: World, tmp_path: Path, home: Path
) -> None:
    lay_out(
        Case(UNKNOWN, config="UserKnownHostsFile {dir}/{long}\nGlobalKnownHostsFile {dir}/also\n"),
        world,
        tmp_path,
        home,
    )
    with (
        pytest.raises(errors.UsageError, match="File name too long"),
        remote.Host(remote.Target("box"), accept_new_host_key=True) as host,
    ):
        host.run("true")


@pytest.mark.parametrize(
    ("config", "lines"),
    [
        pytest.param(FILES, "[127.0.0.1]:{port} {ed}", id="name"),
        pytest.param(FILES + "HostKeyAlias Web1\n", "web1 {ed}", id="alias"),
        pytest.param(FILES + "HostKeyAlgorithms ecdsa-*\n", "[127.0.0.1]:{port} {ecdsa}", id="algorithm"),
    ],
)
def test_a_new_key_is_added_under_the_name_that_ssh_looks_for(
    world: World, tmp_path: Path, home: Path, config: str, lines: str
) -> None:
    case = Case(UNKNOWN, config=config)
    file = lay_out(case, world, tmp_path, home)
    with remote.Host(remote.Target("box"), accept_new_host_key=True) as host:
        assert host.run("echo in").stdout == "in\n"
    words = world.words(world.server("plain"), tmp_path)
    assert (tmp_path / "known").read_text().strip() == lines.format(**words)
    assert of_openssh(file) == ACCEPTED


@pytest.mark.parametrize("config", [ALIAS.replace("web1", "*"), "UserKnownHostsFile none\nGlobalKnownHostsFile none\n"])
def test_a_new_key_that_no_line_can_hold_is_refused(world: World, tmp_path: Path, home: Path, config: str) -> None:
    lay_out(Case(UNKNOWN, config=config), world, tmp_path, home)
    before = (tmp_path / "known").read_text()
    with (
        pytest.raises(errors.HostKeyRefused, match="not known") as caught,
        remote.Host(remote.Target("box"), accept_new_host_key=True) as host,
    ):
        host.run("true")
    assert "--accept-new" not in caught.value.hint
    assert (tmp_path / "known").read_text() == before


@pytest.mark.parametrize(
    ("server", "words"),
    [
        ("plain", "shows no certificate"),
        ("certified-once", "it has expired"),
        ("certified-for-alias", "it is for other names"),
        ("certified-as-user", "it is not a host certificate"),
        ("certified-by-rsa", "it is of another"),
    ],
)
def test_a_refusal_says_why_a_certificate_does_not_count(
    world: World, tmp_path: Path, home: Path, server: str, words: str
) -> None:
    lay_out(Case(UNKNOWN, "@cert-authority * {ca}", server), world, tmp_path, home)
    with (
        pytest.raises(errors.HostKeyRefused, match="certificate authority") as caught,
        remote.Host(remote.Target("box")) as host,
    ):
        host.run("true")
    assert words in caught.value.what


def test_each_jump_host_is_judged_by_its_own_files(world: World, tmp_path: Path, home: Path) -> None:
    """As OpenSSH does, which runs an `ssh` of its own for it: files of the last host say nothing of the way there."""
    config = lay_out(Case(ACCEPTED, "{name} {ed}"), world, tmp_path, home)
    jump = world.server("certified")
    words = world.words(jump, tmp_path)
    (tmp_path / "jump").write_text("@cert-authority * {ca}\n".format(**words))
    hop = f"Host jump\nHostName 127.0.0.1\nPort {jump.port}\nUser {jump.user}\nIdentityFile {jump.key}\n"
    config.write_text(f"{config.read_text()}ProxyJump jump\n{hop}UserKnownHostsFile {tmp_path}/jump\n")
    assert of_gpuprep() == of_openssh(config) == ACCEPTED
    config.write_text(config.read_text().replace(f"UserKnownHostsFile {tmp_path}/jump\n", ""))
    assert of_gpuprep() == UNKNOWN


# ---------------------------------------------------------------- certificates of a hostile host


SIGNATURE = 4 + 4 + len("ssh-ed25519") + 4 + 64  # bytes at the end of a certificate that an ed25519 key signed


def shown_key(world: World, server: str = "certified", blob: bytes | None = None) -> tuple[paramiko.PKey, bytes]:
    """The key of a server with its certificate, or with `blob` in place of it, as paramiko hands it on."""
    sshd = world.server(server)
    kind, encoded = Path(f"{sshd.host_key}-cert.pub").read_text().split()[:2]
    key = paramiko.Ed25519Key.from_private_key_file(str(sshd.host_key))
    original = base64.b64decode(encoded)
    key.public_blob = paramiko.pkey.PublicBlob(kind, original if blob is None else blob)
    return key, original


@pytest.fixture(scope="module")
def authority(world: World) -> Path:
    """A known_hosts file with the authority of all certificates, and no key."""
    file = world.folder / "authority"
    file.write_text(f"@cert-authority * {' '.join((world.folder / 'ca.pub').read_text().split()[:2])}\n")
    return file


@settings(max_examples=amount.examples(300), deadline=None)
@given(data=st.data())
def test_no_changed_certificate_is_accepted(world: World, authority: Path, data: st.DataObject) -> None:
    key, original = shown_key(world)
    assert sshserver.verdict(authority, "127.0.0.1", 22, key) == ""
    at = data.draw(st.integers(0, len(original) - 1))
    changed = data.draw(
        st.one_of(
            st.binary(max_size=300),
            st.just(original[:at]),
            st.just(original + original[at:]),
            st.integers(1, 255).map(lambda bits: original[:at] + bytes([original[at] ^ bits]) + original[at + 1 :]),
            st.just(original[:at] + b"\xff\xff\xff\xff" + original[at + 4 :]),
        ).filter(lambda blob: blob != original)
    )
    said = sshserver.verdict(authority, "127.0.0.1", 22, shown_key(world, blob=changed)[0])
    # Lengths around the signature, which it does not sign, paramiko reads with lenience, and a signature that ends in a
    # zero byte it reads without it, too; they say nothing else.
    signed = len(original) - SIGNATURE
    assert "the host shows no certificate" in said or (said == "" and changed[:signed] == original[:signed])


def test_the_seconds_in_which_a_certificate_counts(
    world: World, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, _ = shown_key(world, "certified-once")
    described = ["ssh-keygen", "-L", "-f", f"{world.server('certified-once').host_key}-cert.pub"]
    shown = subprocess.run(described, check=True, capture_output=True, text=True).stdout
    from_, to = (datetime.fromisoformat(word).timestamp() for word in re.findall(r"\d{4}-\d\d-\d\dT[\d:]+", shown))
    said = []
    for now in (from_ - 0.1, from_, to - 0.1, to):
        with monkeypatch.context() as patched:
            patched.setattr(time, "time", lambda now=now: now)
            said.append(sshserver.verdict(authority, "127.0.0.1", 22, key).partition("does not count: ")[2])
    assert said == ["it is not valid yet)", "", "", "it has expired)"]


# ---------------------------------------------------------------- lists of patterns

PATTERNS = st.lists(
    st.tuples(st.sampled_from(["", "!"]), st.text(alphabet="ab.*?", min_size=1, max_size=6)), min_size=1, max_size=5
)


def as_openssh(name: str, patterns: list[tuple[str, str]]) -> bool:
    """match.c's rule in other words: letter by letter, and any negated pattern that fits refuses."""

    def fits(text: str, pattern: str) -> bool:
        if not pattern:
            return not text
        if pattern[0] == "*":
            return any(fits(text[skip:], pattern[1:]) for skip in range(len(text) + 1))
        return bool(text) and pattern[0] in (text[0], "?") and fits(text[1:], pattern[1:])

    fitting = {sign for sign, pattern in patterns if fits(name, pattern)}
    return "!" not in fitting and "" in fitting


def fits(name: str, listed: str, world: World) -> bool:
    """Whether a line of known_hosts with this list is of the host."""
    file, key = world.folder / "patterns", world.folder / "ca"
    file.write_text(f"{listed} {' '.join(key.with_suffix('.pub').read_text().split()[:2])}\n")
    return sshserver.verdict(file, name, 22, paramiko.Ed25519Key.from_private_key_file(str(key))) == ""


@given(name=st.text(alphabet="ab.", min_size=1, max_size=8), patterns=PATTERNS)
def test_lists_of_patterns_match_as_in_openssh(world: World, name: str, patterns: list[tuple[str, str]]) -> None:
    listed = ",".join(sign + pattern for sign, pattern in patterns)
    assert fits(name, listed, world) == as_openssh(name, patterns), listed


@pytest.mark.machines
@settings(max_examples=amount.examples(40), deadline=None)
@given(names=st.lists(st.text(alphabet="ab.", min_size=1, max_size=5), min_size=1, max_size=4), patterns=PATTERNS)
def test_lists_of_patterns_match_as_ssh_keygen_finds_them(
    world: World, names: list[str], patterns: list[tuple[str, str]]
) -> None:
    """`ssh-keygen -F` looks a name up by the same function as `ssh` does."""
    listed = ",".join(sign + pattern for sign, pattern in patterns)
    for name in names:
        ours = fits(name, listed, world)
        command = ["ssh-keygen", "-F", name, "-f", str(world.folder / "patterns")]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert ours == ("found: line 1" in done.stdout), (name, listed)
