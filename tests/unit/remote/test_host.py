"""Host over a real sshd: commands, files, host keys, and every way in which a connection can fail."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from sshserver import SSHD, Serve, Sshd, free_port, give_up_after, make_key, servers
from waiting import until

from gpuprep import errors, remote

pytestmark = pytest.mark.skipif(SSHD is None, reason="no sshd here (package openssh-server)")
KEPT_OF_ERRORS = 1 << 20  # bytes


@pytest.fixture
def serve(tmp_path: Path, home: Path) -> Iterator[Serve]:
    with servers(tmp_path, home) as start:
        yield start


@pytest.fixture
def trusted(serve: Serve) -> Sshd:
    server = serve()
    server.trust()
    return server


def hosts(kind: str, request: pytest.FixtureRequest) -> remote.Host:
    if kind == "local":
        return remote.Host(remote.Target("here", local=True))
    server: Sshd = request.getfixturevalue("trusted")
    return remote.Host(server.target())


@pytest.fixture(params=["local", "ssh"])
def host(request: pytest.FixtureRequest) -> Iterator[remote.Host]:
    with hosts(request.param, request) as made:
        yield made


# ---------------------------------------------------------------- commands and files


def test_run_gives_exit_code_and_both_outputs(host: remote.Host) -> None:
    result = host.run("echo out; echo err >&2; cat; exit 7", stdin=b"in")
    assert (result.exit_code, result.stdout, result.stderr) == (7, "out\nin", "err\n")


def test_output_that_is_not_utf8_survives(host: remote.Host) -> None:
    assert host.run(r"printf 'a\377b'").stdout == "a\\xffb"


def test_much_on_all_three_streams_at_once_does_not_block(host: remote.Host) -> None:
    data = b"0123456789abcdef" * 200_000  # 3 MB: more than any pipe or SSH window holds
    result = host.run("tee /dev/stderr", stdin=data)
    assert len(result.stdout) == len(data)
    note, _, end = result.stderr.partition("\n")
    assert note == f"[gpuprep: {len(data) - KEPT_OF_ERRORS} bytes of this output are left out]"
    assert end.encode() == data[-KEPT_OF_ERRORS:]


def test_input_that_nobody_reads_is_no_error(host: remote.Host) -> None:
    assert host.run("exit 3", stdin=b"x" * 5_000_000).exit_code == 3


def test_a_command_that_takes_too_long(host: remote.Host) -> None:
    with pytest.raises(errors.HostError, match=r"took longer than 0\.5 s: exec sleep infinity"):
        host.run("exec sleep infinity", timeout=0.5)
    assert host.run("echo alive").stdout == "alive\n"


def test_put_and_get_keep_every_byte(host: remote.Host, tmp_path: Path) -> None:
    data = bytes(range(256)) * 1000
    path = tmp_path / "a file's name"
    host.put(data, str(path))
    assert path.read_bytes() == data
    assert path.stat().st_mode & 0o777 == 0o644
    assert hashlib.sha256(host.get(str(path))).digest() == hashlib.sha256(data).digest()
    assert [entry.name for entry in tmp_path.iterdir() if entry.name.startswith("a file")] == ["a file's name"]


def test_put_and_get_where_it_cannot_be(host: remote.Host, tmp_path: Path) -> None:
    with pytest.raises(errors.HostError, match="cannot write"):
        host.put(b"", f"{tmp_path}/no/such/folder/file")
    with pytest.raises(errors.HostError, match=r"cannot read .*nothing: .*No such file"):
        host.get(f"{tmp_path}/nothing")


def test_a_lost_connection_is_made_again(trusted: Sshd) -> None:
    with remote.Host(trusted.target()) as host:
        assert host.run("echo 1").stdout == "1\n"
        trusted.stop()
        trusted.start()

        def answers() -> bool:
            try:
                return host.run("echo 2").stdout == "2\n"
            except errors.HostUnreachable:
                return False

        until(answers, "no connection was made again")


def test_the_key_with_which_a_host_answered_is_as_ssh_keygen_shows_it(trusted: Sshd) -> None:
    listed = ["ssh-keygen", "-lf", f"{trusted.host_key}.pub"]
    shown = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()[1]
    with remote.Host(trusted.target()) as host:
        assert host.host_key() == ""
        host.run("true")
        assert host.host_key() == shown
    with remote.Host(remote.Target("here", local=True)) as here:
        here.run("true")
        assert here.host_key() == ""


def loses_a_command(host: remote.Host, breaks: Callable[[], None], mark: Path) -> None:
    """`breaks` is called once the command has begun."""

    def once_begun() -> None:
        until(mark.exists, "the command did not begin")
        breaks()

    breaker = threading.Thread(target=once_begun)
    breaker.start()
    with pytest.raises(errors.HostUnreachable, match="connection was lost while a command ran"):
        host.run(f"touch {mark}; exec sleep infinity")
    breaker.join()


def test_a_connection_that_breaks_in_the_middle_of_a_command(trusted: Sshd, tmp_path: Path) -> None:
    with remote.Host(trusted.target()) as host:
        host.run("true")
        loses_a_command(host, trusted.stop, tmp_path / "started")


def test_a_host_that_is_gone_behind_a_machine_that_answers(
    trusted: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a jump host: the kernel's answers come, and sshd's do not. One that is only at work is waited for."""
    give_up_after(monkeypatch, 300)

    def freeze() -> None:
        for process in trusted.sessions():
            process.suspend()

    with remote.Host(trusted.target()) as host:
        assert host.run("sleep 1; echo 1").stdout == "1\n"
        give_up_after(monkeypatch, 1)
        loses_a_command(host, freeze, tmp_path / "started")


# ---------------------------------------------------------------- host keys


def fingerprint(server: Sshd) -> str:
    listed = subprocess.run(
        ["ssh-keygen", "-lf", str(server.host_key)], check=True, capture_output=True, text=True
    ).stdout
    return listed.split()[1]


def test_unknown_host_key_is_refused_by_fingerprint(serve: Serve) -> None:
    server = serve()
    with pytest.raises(errors.HostKeyRefused) as caught, remote.Host(server.target()) as host:
        host.run("true")
    assert fingerprint(server) in caught.value.what
    assert "--accept-new-host-key" in caught.value.hint
    assert not server.known_hosts.exists()


def test_accepted_host_key_is_kept_for_openssh_too(serve: Serve) -> None:
    server = serve()
    server.known_hosts.write_text("# a last line without an end")
    with remote.Host(server.target(), accept_new_host_key=True) as host:
        assert host.run("echo in").stdout == "in\n"
    with remote.Host(server.target()) as host:  # known now, without the option
        assert host.run("echo again").stdout == "again\n"
    argv = ["ssh", "-o", "StrictHostKeyChecking=yes", "-o", f"UserKnownHostsFile={server.known_hosts}"]
    argv += ["-o", "BatchMode=yes", "-i", str(server.key), "-p", str(server.port), f"{server.user}@127.0.0.1", "true"]
    assert subprocess.run(argv, check=False).returncode == 0


@pytest.mark.parametrize("accept", [False, True])
def test_changed_host_key_is_never_accepted(serve: Serve, tmp_path: Path, accept: bool) -> None:
    server = serve()
    other = make_key(tmp_path / "other")
    kind, key = other.with_suffix(".pub").read_text().split()[:2]
    line = f"[127.0.0.1]:{server.port} {kind} {key}\n"
    server.known_hosts.write_text(line)
    with (
        pytest.raises(errors.HostKeyRefused, match="HAS CHANGED") as caught,
        remote.Host(server.target(), accept_new_host_key=accept) as host,
    ):
        host.run("true")
    assert fingerprint(server) in caught.value.what
    assert "ssh-keygen" in caught.value.hint
    assert server.known_hosts.read_text() == line


def test_named_known_hosts_file_counts_alone(serve: Serve, tmp_path: Path) -> None:
    server = serve()
    server.trust()
    elsewhere = tmp_path / "elsewhere"
    with pytest.raises(errors.HostKeyRefused), remote.Host(server.target(known_hosts=str(elsewhere))) as host:
        host.run("true")
    elsewhere.write_text(server.known_hosts.read_text())
    server.known_hosts.unlink()
    with remote.Host(server.target(known_hosts=str(elsewhere))) as host:
        assert host.run("echo in").stdout == "in\n"


@pytest.mark.parametrize("noted", ["hashed", "among others", "with tabs"])
def test_a_key_is_known_however_it_is_noted_and_whatever_stands_beside_it(
    serve: Serve, tmp_path: Path, noted: str
) -> None:
    """Of other lines of a known_hosts file nothing is wanted, not even that they are well-formed."""
    server = serve()
    server.trust()
    line = server.known_hosts.read_text()
    if noted == "hashed":
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(server.known_hosts)], check=True)
        line = server.known_hosts.read_text()
        assert line.startswith("|1|")
    elif noted == "among others":
        line = f"other,[127.0.0.1]:{server.port},[::1]:22{line[line.index(' ') :]}"
    else:
        line = line.replace(" ", "\t")
    kind, key = make_key(tmp_path / "other").with_suffix(".pub").read_text().split()[:2]
    name = f"[127.0.0.1]:{server.port}"
    beside = (
        f"# a comment\n\nlonely\n#gone,{name} {kind} {key}\n|1|no salt|at all {kind} {key}\n"
        f"|1|{'A' * 27}=|é {kind} {key}\nbroken {kind} AAAA%\n{name} {kind} AAAA%\n{name} ssh-rsa {key}\n"
        f"{name} {kind} AAAA\n@cert-authority {name} {kind} {key}\n127.0.0.1 {kind} {key}\n"
    )
    server.known_hosts.write_text(beside + line + beside)
    with remote.Host(server.target()) as host:
        assert host.run("echo in").stdout == "in\n"


@pytest.mark.parametrize("accept", [False, True])
@pytest.mark.parametrize("known", [False, True])
def test_a_revoked_host_key_is_never_accepted(serve: Serve, known: bool, accept: bool) -> None:
    server = serve()
    kind, key = server.host_key.with_suffix(".pub").read_text().split()[:2]
    if known:
        server.trust()
    with server.known_hosts.open("a") as file:
        file.write(f"@revoked * {kind} {key} stolen\n")
    before = server.known_hosts.read_text()
    with (
        pytest.raises(errors.HostKeyRefused, match="REVOKED") as caught,
        remote.Host(server.target(), accept_new_host_key=accept) as host,
    ):
        host.run("true")
    assert fingerprint(server) in caught.value.what
    assert server.known_hosts.read_text() == before


# ---------------------------------------------------------------- who is not let in


def test_refused_key_names_user_and_key(trusted: Sshd, tmp_path: Path) -> None:
    stranger = make_key(tmp_path / "stranger")
    with (
        pytest.raises(errors.AuthenticationRefused, match=f"does not let {trusted.user} in") as caught,
        remote.Host(trusted.target(identity_file=str(stranger))) as host,
    ):
        host.run("true")
    assert str(stranger) in caught.value.what
    assert "--ssh-key" in caught.value.hint
    assert f"`gpuprep init 127.0.0.1:{trusted.port}`" in caught.value.hint
    copy = f"`ssh-copy-id -i {stranger}.pub -p {trusted.port} {trusted.user}@127.0.0.1`"
    assert copy in caught.value.hint


def test_a_named_key_that_is_refused_is_not_replaced_by_another(trusted: Sshd, home: Path, tmp_path: Path) -> None:
    stranger = make_key(tmp_path / "stranger")
    shutil.copy(trusted.key, home / ".ssh/id_ed25519")
    with remote.Host(trusted.target(identity_file=None)) as host:
        assert host.run("echo in").stdout == "in\n"
    with (
        pytest.raises(errors.AuthenticationRefused) as caught,
        remote.Host(trusted.target(identity_file=str(stranger))) as host,
    ):
        host.run("true")
    assert f"(tried {stranger} alone, which you named)" in caught.value.what


def test_no_key_at_all(trusted: Sshd) -> None:
    with (
        pytest.raises(errors.AuthenticationRefused, match="tried no key file"),
        remote.Host(trusted.target(identity_file=None)) as host,
    ):
        host.run("true")


def test_a_server_that_only_takes_passwords_does_not_hang(serve: Serve) -> None:
    server = serve("PasswordAuthentication yes", "PubkeyAuthentication no")
    server.trust()
    with pytest.raises(errors.AuthenticationRefused), remote.Host(server.target()) as host:
        host.run("true")


def test_a_key_locked_by_a_passphrase(trusted: Sshd, tmp_path: Path) -> None:
    locked = make_key(tmp_path / "locked", "secret words")
    with (
        pytest.raises(errors.AuthenticationRefused, match="locked by a passphrase") as caught,
        remote.Host(trusted.target(identity_file=str(locked))) as host,
    ):
        host.run("true")
    assert f"`ssh-add {locked}`" in caught.value.hint


def test_a_key_file_that_is_not_there(trusted: Sshd) -> None:
    with (
        pytest.raises(errors.AuthenticationRefused, match="no key file /no/such/key"),
        remote.Host(trusted.target(identity_file="/no/such/key")) as host,
    ):
        host.run("true")


# ---------------------------------------------------------------- who is not there


def refused(target: remote.Target, **options: float) -> str:
    with pytest.raises(errors.HostUnreachable) as caught, remote.Host(target, **options) as host:  # type: ignore[arg-type]
        host.run("true")
    assert caught.value.hint
    assert caught.value.where == target.name
    return caught.value.what


@pytest.mark.usefixtures("home")
def test_a_name_that_does_not_resolve() -> None:
    assert "the name no-such-host.invalid does not resolve" in refused(remote.Target("no-such-host.invalid"))


@pytest.mark.usefixtures("home")
def test_a_port_where_nobody_listens() -> None:
    port = free_port()
    assert f"refuses connections on port {port}" in refused(remote.Target("box", address="127.0.0.1", port=port))


@pytest.mark.usefixtures("home")
def test_a_host_that_drops_packets() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        waiting = [socket.socket() for _ in range(3)]  # a full backlog: the kernel drops what comes next
        try:
            for client in waiting:
                client.setblocking(False)
                client.connect_ex(address)
            message = refused(remote.Target("box", address="127.0.0.1", port=address[1]), connect_timeout=1)
        finally:
            for client in waiting:
                client.close()
    assert "no answer" in message
    assert "within 1 s" in message


@pytest.mark.usefixtures("home")
def test_a_port_that_is_not_ssh() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            client, _ = server.accept()
            with client:
                client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 200)

        thread = threading.Thread(target=answer)
        thread.start()
        target = remote.Target("box", address="127.0.0.1", port=server.getsockname()[1])
        message = refused(target, connect_timeout=300)
        thread.join()
    assert "answers, but not as an SSH server" in message


@pytest.mark.usefixtures("home")
def test_nothing_of_a_failure_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    test_a_port_that_is_not_ssh()
    captured = capfd.readouterr()
    assert captured.out == ""
    assert captured.err == ""


# ---------------------------------------------------------------- ~/.ssh/config


def write_config(home: Path, server: Sshd) -> None:
    (home / ".ssh" / "config").write_text("Include conf.d/*.conf\n")
    (home / ".ssh" / "conf.d").mkdir()
    (home / ".ssh" / "conf.d" / "lab.conf").write_text(
        f"Host lab\n  HostName 127.0.0.1\n  Port {server.port}\n  User {server.user}\n"
        f"  IdentityFile ~/.ssh/not-there\n  IdentityFile {server.key}\n"
    )


def test_an_sshd_that_allows_one_session_at_a_time(serve: Serve) -> None:
    server = serve("MaxSessions 1")
    server.trust()
    with remote.Host(server.target()) as host:
        first = host.start("cat")
        with pytest.raises(errors.HostError, match="its sshd refuses one more session") as caught:
            host.run("true")
        first.close()
    assert "MaxSessions" in caught.value.hint


def test_an_alias_of_the_ssh_configuration(trusted: Sshd, home: Path) -> None:
    write_config(home, trusted)
    with remote.Host(remote.Target("lab")) as host:
        assert host.run("echo in").stdout == "in\n"


def test_a_broken_ssh_configuration(home: Path) -> None:
    (home / ".ssh" / "config").write_text("what is this\nHost\n")
    with pytest.raises(errors.UsageError, match=r"\.ssh/config"), remote.Host(remote.Target("lab")) as host:
        host.run("true")


def test_through_a_jump_host(serve: Serve, home: Path) -> None:
    jump, inner = serve(), serve()
    jump.trust()
    inner.trust()
    write_config(home, jump)
    with (home / ".ssh" / "config").open("a") as config:
        config.write(f"Host inner\n  HostName localhost\n  Port {inner.port}\n  ProxyJump lab\n")
    inner.known_hosts.write_text(
        inner.known_hosts.read_text().replace(f"[127.0.0.1]:{inner.port}", f"[localhost]:{inner.port}")
    )
    with remote.Host(remote.Target("inner", user=inner.user, identity_file=str(inner.key))) as host:
        assert host.run("echo inside").stdout == "inside\n"


@pytest.mark.parametrize("name", ["lab", "inner"])
def test_small_packets_are_sent_at_once(serve: Serve, home: Path, name: str) -> None:
    server = serve()
    server.trust("127.0.0.1", "localhost")
    write_config(home, server)
    with (home / ".ssh" / "config").open("a") as config:
        config.write(f"Host inner\n  HostName localhost\n  Port {server.port}\n  ProxyJump lab\n")
        config.write(f"  User {server.user}\n  IdentityFile {server.key}\n")
    with remote.Host(remote.Target(name)) as host:
        host.run("true")
        (wire,) = [one.fd for one in psutil.Process().net_connections() if one.raddr and one.raddr.port == server.port]
        with socket.socket(fileno=os.dup(wire)) as ours:
            assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


def test_the_key_of_a_jump_host_is_checked_too(serve: Serve, home: Path) -> None:
    jump, inner = serve(), serve()
    inner.trust()
    write_config(home, jump)
    with (home / ".ssh" / "config").open("a") as config:
        config.write(f"Host inner\n  HostName localhost\n  Port {inner.port}\n  ProxyJump lab\n")
    with pytest.raises(errors.HostKeyRefused) as caught, remote.Host(remote.Target("inner")) as host:
        host.run("true")
    assert fingerprint(jump) in caught.value.what


def test_a_jump_host_that_is_gone_ends_without_a_traceback(
    serve: Serve, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    jump, inner = serve(), serve()
    jump.trust()
    inner.trust()
    write_config(home, jump)
    with (home / ".ssh" / "config").open("a") as config:
        config.write(f"Host inner\n  HostName 127.0.0.1\n  Port {inner.port}\n  ProxyJump lab\n")
    with remote.Host(remote.Target("inner", user=inner.user, identity_file=str(inner.key))) as host:
        assert host.run("echo inside").stdout == "inside\n"
        jump.stop()
        with pytest.raises(errors.HostUnreachable):
            host.run("echo inside")
    assert "Traceback" not in "".join(capfd.readouterr())


def test_the_command_line_does_not_load_paramiko() -> None:
    code = "import sys, gpuprep.remote; sys.exit(any(m in sys.modules for m in ('paramiko', 'fabric', 'invoke')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
