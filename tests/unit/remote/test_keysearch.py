"""Which user and which key a real sshd lets in, and what is said where it lets nobody in."""

from __future__ import annotations

import os
import pwd
import subprocess
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest
from hostilesshd import HostileSshd
from sshserver import SSHD, Serve, ShownKey, Sshd, make_key, servers
from tokenkey import Token
from waiting import until

from gpuprep import errors, remote
from gpuprep.remote import keysearch

pytestmark = pytest.mark.skipif(SSHD is None, reason="there is no sshd")


@pytest.fixture
def serve(tmp_path: Path, home: Path) -> Iterator[Serve]:
    with servers(tmp_path, home) as start:
        yield start


def never(_shown: ShownKey) -> bool:
    raise AssertionError("the host's key is known")


def quiet(_text: str) -> None:
    pass


def bare(server: Sshd, **changes: object) -> remote.Target:
    return server.target(**{"user": None, "identity_file": None, **changes})


def test_the_likely_users_of_a_system_are_tried_and_one_is_let_in(serve: Serve, home: Path) -> None:
    server = serve()
    server.trust()
    (home / ".ssh/id_ed25519").write_bytes(server.key.read_bytes())
    (home / ".ssh/id_ed25519").chmod(0o600)
    said: list[str] = []
    found = keysearch.find(bare(server), never, said.append)
    assert (found.user, found.key) == (server.user, "~/.ssh/id_ed25519")
    assert found.tried == ("debian with ~/.ssh/id_ed25519", "admin with ~/.ssh/id_ed25519")
    assert said == [f"not let in: {one}" for one in found.tried]
    assert found.target.identity_file == str(home / ".ssh/id_ed25519")
    with remote.Host(found.target) as host:
        assert host.run("echo in").stdout == "in\n"


def give(home: Path, *keys: Path) -> None:
    """The files as ~/.ssh/id_*."""
    for name, key in zip(("id_ed25519", "id_ecdsa", "id_rsa"), keys, strict=False):
        for suffix in ("", ".pub"):
            (home / f".ssh/{name}{suffix}").write_bytes(Path(f"{key}{suffix}").read_bytes())
        (home / f".ssh/{name}").chmod(0o600)


def failed(server: Sshd) -> list[str]:
    """What sshd logged of keys that it refused, and of connections that it ended for that."""
    log = (server.folder / "log").read_text()
    return [line for line in log.splitlines() if "authenticating" in line or "Too many" in line]


def test_a_user_that_is_named_is_the_only_one(serve: Serve, home: Path, tmp_path: Path) -> None:
    server = serve()
    server.trust()
    give(home, make_key(tmp_path / "stranger"))
    with pytest.raises(
        errors.AuthenticationRefused, match=r"refused every login\. Tried: nobody with ~/\.ssh/id_ed25519$"
    ) as caught:
        keysearch.find(bare(server, user="nobody"), never, quiet)
    assert f"`gpuprep init 127.0.0.1:{server.port}` tries the usual users" in caught.value.hint
    assert f"ssh-copy-id -i {home}/.ssh/id_ed25519.pub -p {server.port} nobody@127.0.0.1" in caught.value.hint
    (home / ".ssh/config").write_text("Host 127.0.0.1\n  User nobody\n")
    with pytest.raises(errors.AuthenticationRefused, match=r"Tried: nobody with ~/\.ssh/id_ed25519$"):
        keysearch.find(bare(server), never, quiet)


def test_the_command_that_copies_a_key_makes_its_public_half_where_that_is_missing(serve: Serve, home: Path) -> None:
    server = serve()
    server.trust()
    key = home / ".ssh/id_ed25519"
    give(home, server.key)
    key.with_suffix(".pub").unlink()
    with pytest.raises(errors.AuthenticationRefused) as caught:
        keysearch.find(bare(server, user="nobody"), never, quiet)
    hint = caught.value.hint
    line = f"ssh-keygen -y -f {key} > {key}.pub && ssh-copy-id -i {key}.pub -p {server.port} nobody@127.0.0.1"
    assert f"`{line}`" in hint
    subprocess.run(["bash", "-c", line.partition(" && ")[0]], check=True)
    assert key.with_suffix(".pub").read_text().split()[1] in (server.folder / "authorized_keys").read_text()


@pytest.mark.parametrize("by", ["init", "plan"])
def test_a_key_file_that_holds_no_private_key_is_named(serve: Serve, home: Path, tmp_path: Path, by: str) -> None:
    server = serve()
    server.trust()
    give(home, server.key)
    (home / ".ssh/id_ed25519.pub").unlink()

    def refused(file: Path) -> errors.AuthenticationRefused:
        target = bare(server, user=server.user, identity_file=str(file))
        with remote.Host(target) as host, pytest.raises(errors.AuthenticationRefused) as caught:
            keysearch.find(target, never, quiet) if by == "init" else host.run("true")
        return caught.value

    public = server.key.with_suffix(".pub")
    assert refused(public).what.endswith(f"{public} is the public half of a key")
    assert refused(public).hint == f"name the private half: `--ssh-key {server.key}`"
    other = tmp_path / "notes.txt"
    other.write_text("no key\n")
    assert f"{other} is no private SSH key: " in refused(other).what
    missing = refused(tmp_path / "missing")
    assert missing.what.endswith(f"there is no key file {tmp_path}/missing")
    assert missing.hint.startswith(f"you have {home}/.ssh/id_ed25519; `gpuprep init 127.0.0.1:{server.port}` finds ")


def test_the_next_command_has_the_options_of_this_one(serve: Serve, tmp_path: Path, home: Path) -> None:
    server = serve()
    stranger = make_key(tmp_path / "stranger")
    again = ("gpuprep", "init", "--name", "gpu-1")
    target = bare(server, identity_file=str(stranger))
    known = home / ".ssh/known_hosts"
    known.write_text(f"[127.0.0.1]:{server.port} {' '.join(stranger.with_suffix('.pub').read_text().split()[:2])}\n")
    with pytest.raises(errors.HostKeyRefused, match="THE HOST KEY HAS CHANGED") as changed:
        keysearch.find(target, never, quiet, again=again)
    host = f"127.0.0.1:{server.port}"
    remove = f"ssh-keygen -f {known} -R '[127.0.0.1]:{server.port}'"
    assert f"`{remove}`" in changed.value.hint
    accept = f"gpuprep init {host} --name gpu-1 --ssh-key {stranger} --accept-new-host-key"
    assert f"`{accept}`" in changed.value.hint
    subprocess.run(["bash", "-c", remove], check=True, capture_output=True)
    assert host not in known.read_text()
    server.trust()
    with pytest.raises(errors.AuthenticationRefused) as refused:
        keysearch.find(target, never, quiet, again=again)
    assert f"`gpuprep init USER@{host} --name gpu-1 --ssh-key {stranger}`" in refused.value.hint


@pytest.mark.parametrize("variable", ["HOME", "LOGNAME"])
def test_a_user_whom_nobody_knows_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    """As a container that was started with a number for a user."""

    def unknown(number: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("HOME", "LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(*({"HOME": ("LOGNAME", "me"), "LOGNAME": ("HOME", "/nowhere")}[variable]))
    target = remote.Target("box", address="127.0.0.1", user="root")
    with pytest.raises(errors.UsageError) as searched:
        keysearch.find(target, never, quiet)
    with remote.Host(target) as host, pytest.raises(errors.UsageError) as ran:
        host.run("true")
    assert searched.value.hint.startswith(f"set {variable} ")
    assert ran.value.hint == searched.value.hint


def test_many_keys_do_not_hit_a_hosts_limits(serve: Serve, home: Path) -> None:
    """Nine keys, the eighth of which counts, on a host that is hardened to four tries a connection."""
    server = serve("MaxAuthTries 4", "LogLevel VERBOSE")
    server.trust()
    names = [f"key{place}" for place in range(9)]
    for name in names[:7] + names[8:]:
        make_key(home / f".ssh/{name}")
    (home / ".ssh/key7").write_bytes(server.key.read_bytes())
    (home / ".ssh/key7").chmod(0o600)
    (home / ".ssh/config").write_text("".join(f"IdentityFile ~/.ssh/{name}\n" for name in names))
    found = keysearch.find(bare(server, user=server.user), never, quiet)
    assert found.key == "~/.ssh/key7"
    assert len(found.tried) == 2
    assert not [line for line in failed(server) if "Too many" in line]


def test_no_more_than_three_connections_fail(serve: Serve, home: Path) -> None:
    server = serve("LogLevel VERBOSE")
    server.trust()
    for place in range(12):
        make_key(home / f".ssh/key{place}")
    (home / ".ssh/config").write_text("".join(f"IdentityFile ~/.ssh/key{place}\n" for place in range(12)))
    said: list[str] = []
    with pytest.raises(errors.AuthenticationRefused) as caught:
        keysearch.find(bare(server), never, said.append)
    assert len(said) == 3
    log = (server.folder / "log").read_text()
    assert log.count("Connection from 127.0.0.1") == 3
    assert "no more than 9 keys are tried" in caught.value.what
    assert f"`gpuprep init USER@127.0.0.1:{server.port}`" in caught.value.hint


def test_a_key_of_the_agent(serve: Serve, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serve()
    server.trust()
    socket = str(tmp_path / "agent")
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", socket], stdout=subprocess.DEVNULL)
    try:
        monkeypatch.setenv("SSH_AUTH_SOCK", socket)
        until(Path(socket).exists, "the SSH agent does not listen")
        subprocess.run(["ssh-add", "-q", str(server.key)], check=True)
        found = keysearch.find(bare(server, user=server.user), never, quiet)
        assert found.key.endswith(" of the SSH agent")
        assert found.target.identity_file is None
        stranger = make_key(tmp_path / "stranger")
        with (
            pytest.raises(errors.AuthenticationRefused, match=f"tried {stranger} alone"),
            remote.Host(server.target(identity_file=str(stranger))) as host,
        ):
            host.run("true")
        locked = make_key(tmp_path / "locked", "secret words")  # a file that is locked, and that the agent holds
        give(home, locked)
        (server.folder / "authorized_keys").write_text(locked.with_suffix(".pub").read_text())
        askpass = tmp_path / "askpass"
        askpass.write_text("#!/bin/sh\necho secret words\n")
        askpass.chmod(0o755)
        asking = {**os.environ, "SSH_ASKPASS": str(askpass), "SSH_ASKPASS_REQUIRE": "force"}
        subprocess.run(["ssh-add", "-q", str(home / ".ssh/id_ed25519")], check=True, env=asking)
        found = keysearch.find(bare(server, user=server.user), never, quiet)
        assert (found.key, found.target.identity_file) == ("~/.ssh/id_ed25519", str(home / ".ssh/id_ed25519"))
        with remote.Host(found.target) as host:
            assert host.run("echo in").stdout == "in\n"
    finally:
        agent.terminate()
        agent.wait()


def test_without_a_key_that_can_be_used_nothing_is_shown_to_the_host(serve: Serve, home: Path, tmp_path: Path) -> None:
    server = serve()
    with pytest.raises(errors.AuthenticationRefused, match="you have no SSH key") as caught:
        keysearch.find(bare(server), never, quiet)
    assert f"gpuprep init 127.0.0.1:{server.port} --ssh-key KEYFILE" in caught.value.hint
    give(home, make_key(tmp_path / "locked", "secret words"))
    with pytest.raises(errors.AuthenticationRefused, match="every key is locked") as caught:
        keysearch.find(bare(server), never, quiet)
    assert f"`ssh-add {home}/.ssh/id_ed25519`" in caught.value.hint
    with pytest.raises(errors.AuthenticationRefused, match="there is no key file /no/such/key") as caught:
        keysearch.find(bare(server, identity_file="/no/such/key"), never, quiet)
    assert f"gpuprep init 127.0.0.1:{server.port}" in caught.value.hint


def test_a_key_that_is_named_is_the_only_one(serve: Serve, home: Path, tmp_path: Path) -> None:
    server = serve()
    server.trust()
    give(home, server.key)
    stranger = make_key(tmp_path / "stranger")
    with pytest.raises(errors.AuthenticationRefused, match=f"with {stranger}$"):
        keysearch.find(bare(server, user=server.user, identity_file=str(stranger)), never, quiet)


def test_a_host_that_wants_another_user_says_which(serve: Serve, home: Path) -> None:
    server = serve()
    server.trust()
    give(home, server.key)
    public = server.key.with_suffix(".pub").read_text()
    words = 'echo "Please login as the user \\"someone\\" rather than the user \\"root\\"."; exit 142'
    quoted = words.replace('"', '\\"')
    (server.folder / "authorized_keys").write_text(f'command="{quoted}" {public}')
    with pytest.raises(errors.AuthenticationRefused, match="the host says: log in as someone") as caught:
        keysearch.find(bare(server, user=server.user), never, quiet)
    assert f"gpuprep init someone@127.0.0.1:{server.port}" in caught.value.hint
    with pytest.raises(errors.HostError, match="may not log in there") as other, remote.Host(server.target()) as host:
        host.run("true")
    assert "ansible_user: someone" in other.value.hint


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("AuthenticationMethods publickey,password", "PasswordAuthentication yes"), "asks .* questions after the key"),
        (("PubkeyAuthentication no", "PasswordAuthentication yes"), "accepts no key login, only password"),
    ],
)
def test_where_no_other_user_or_key_would_help_none_is_tried(
    serve: Serve, home: Path, options: tuple[str, ...], said: str
) -> None:
    server = serve(*options, "LogLevel VERBOSE")
    server.trust()
    give(home, server.key)
    with pytest.raises(errors.AuthenticationRefused, match=said):
        keysearch.find(bare(server, user=server.user), never, quiet)
    assert (server.folder / "log").read_text().count("Connection from 127.0.0.1") == 1


def test_a_host_key_is_accepted_only_as_it_was_shown(serve: Serve, home: Path) -> None:
    server = serve()
    give(home, server.key)
    asked: list[ShownKey] = []

    def refuse(shown: ShownKey) -> bool:
        asked.append(shown)
        return False

    def accept(shown: ShownKey) -> bool:
        asked.append(shown)
        return True

    target = bare(server, user=server.user)
    with pytest.raises(errors.HostKeyRefused, match="is not known") as caught:
        keysearch.find(target, refuse, quiet)
    assert f"`gpuprep init {server.user}@127.0.0.1:{server.port} --accept-new-host-key`" in caught.value.hint
    assert not server.known_hosts.exists()
    assert keysearch.find(target, accept, quiet).user == server.user
    line = server.host_key.with_suffix(".pub").read_text().split()[1]
    assert line in server.known_hosts.read_text()
    assert {shown.name for shown in asked} == {f"[127.0.0.1]:{server.port}"}
    assert keysearch.find(target, never, quiet).user == server.user
    server.stop()
    server.host_key.unlink()
    make_key(server.host_key)
    server.start()
    with pytest.raises(errors.HostKeyRefused, match="HAS CHANGED") as changed:
        keysearch.find(target, accept, quiet)
    removal = f"ssh-keygen -f {server.known_hosts} -R '[127.0.0.1]:{server.port}'"
    assert removal in changed.value.hint
    subprocess.run(removal, shell=True, check=True, capture_output=True)  # noqa: S602  as a user pastes it
    assert keysearch.find(target, accept, quiet).user == server.user


@pytest.mark.parametrize(
    ("version", "address", "users"),
    [
        ("OpenSSH_9.6p1 Ubuntu-3ubuntu13", "203.0.113.7", ("ubuntu", "azureuser", "me")),
        ("OpenSSH_9.2p1 Debian-2+deb12u3", "203.0.113.7", ("debian", "admin", "me")),
        ("OpenSSH_8.7", "203.0.113.7", ("rocky", "ec2-user", "me")),
        ("OpenSSH_8.7", "ec2-1.eu-west-1.compute.amazonaws.com", ("ec2-user", "rocky", "me")),
        ("OpenSSH_9.2p1 Debian-2", "EC2-1.compute.AmazonAWS.com", ("admin", "debian", "me")),
        ("OpenSSH_9.6p1 Ubuntu-3", "gpu.westeurope.cloudapp.azure.com", ("azureuser", "ubuntu", "me")),
        ("OpenSSH_9.6p1 Ubuntu-3", "7.113.0.203.bc.googleusercontent.com", ("me", "ubuntu", "azureuser")),
    ],
)
def test_users_by_system_and_cloud(
    home: Path, monkeypatch: pytest.MonkeyPatch, version: str, address: str, users: tuple[str, ...]
) -> None:
    monkeypatch.setenv("LOGNAME", "me")
    server = HostileSshd(home, version=f"SSH-2.0-{version}", auth=paramiko.AUTH_FAILED)
    (home / ".ssh/config").write_text(f"Host *\nHostName 127.0.0.1\nPort {server.port}\n")
    (home / ".ssh/known_hosts").write_text(server.known_hosts.read_text())
    give(home, make_key(home / "key"))
    said: list[str] = []
    with pytest.raises(errors.AuthenticationRefused):
        keysearch.find(remote.Target(address), never, said.append)
    server.stop()
    assert said == [f"not let in: {user} with ~/.ssh/id_ed25519" for user in users]


def test_behind_a_jump_host_both_host_keys_are_shown_and_asked_for(serve: Serve, home: Path) -> None:
    jump, inner = serve(), serve()
    give(home, inner.key)
    (home / ".ssh/config").write_text(
        f"Host inner\nHostName 127.0.0.1\nPort {inner.port}\nProxyJump jump\n"
        f"Host jump\nHostName 127.0.0.1\nPort {jump.port}\nUser {jump.user}\nIdentityFile {jump.key}\n"
    )
    asked: list[str] = []

    def accept(shown: ShownKey) -> bool:
        asked.append(shown.name)
        return True

    found = keysearch.find(remote.Target("inner", user=inner.user), accept, quiet)
    assert asked == [f"[127.0.0.1]:{jump.port}", f"[127.0.0.1]:{inner.port}"]
    with remote.Host(found.target) as host:
        assert host.run("echo in").stdout == "in\n"


# ---------------------------------------------------------------- a key on a security token


@pytest.fixture
def token(serve: Serve, tmp_path: Path) -> tuple[Token, Sshd, Path]:
    """A token, a server that takes its key alone, and the key's file."""
    made, server = Token(), serve()
    server.trust()
    (server.folder / "authorized_keys").write_text(f"{made.public}\n", encoding="ascii")
    made.write(tmp_path / "id_ed25519_sk")
    return made, server, tmp_path / "id_ed25519_sk"


def test_a_key_of_a_token_is_used_through_the_agent(
    token: tuple[Token, Sshd, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, server, file = token
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    with made.serve(tmp_path / "agent", holds=True):
        with remote.Host(server.target(identity_file=str(file))) as host:
            assert host.run("echo in").stdout == "in\n"
        found = keysearch.find(bare(server, user=server.user, identity_file=str(file)), never, quiet)
        assert (found.user, found.target.identity_file) == (server.user, str(file))


@pytest.mark.parametrize("agent", [True, False])
def test_a_key_of_a_token_that_no_agent_holds_names_the_command_that_adds_it(
    token: tuple[Token, Sshd, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent: bool
) -> None:
    made, server, file = token
    if agent:  # without it there is none: the fixture `home` takes the variable away
        monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    with made.serve(tmp_path / "agent", holds=False):
        with (
            pytest.raises(errors.AuthenticationRefused) as caught,
            remote.Host(server.target(identity_file=str(file))) as host,
        ):
            host.run("true")
        assert "is a key on a security token" in caught.value.what
        assert f"`ssh-add {file}`" in caught.value.hint
        with pytest.raises(errors.AuthenticationRefused, match="is a key on a security token"):
            keysearch.find(bare(server, user=server.user, identity_file=str(file)), never, quiet)
