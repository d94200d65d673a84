"""Root by a rule of sudo for the agent alone: what is asked of sudo, what its rules fit, what login scripts say.

A stand-in for sudo reads rules as sudo does: whole command lines by regular expression. The real one:
tests/machines/test_security_sudo.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hostilesshd import HostileSshd, Session
from places import ROOT

from gpuprep import errors, records, remote
from gpuprep.records.evidence import kinds
from gpuprep.remote import agent_client

HERE = remote.Target("here", local=True)
DOCUMENT = ROOT / "docs/security.md"
BLOCKS = dict(re.findall(r"```sudoers\n# (.*?)\n(.*?)```", DOCUMENT.read_text(), re.DOTALL))
DRIFT, PROVISION = BLOCKS["drift, validate"], BLOCKS["provision, tune, drift schedule"]
AGENT = "/usr/local/bin/gpuprep-agent"
ANSWER = records.to_json(records.ProbeResult("codec", records.Source.MEASURED, records.Missing("not_installed"), 0.1))
# Options away, then the command; what no line of `allowed` (a whole regular expression) fits is refused.
SUDO = """#!/bin/sh
list=
while [ "$1" != -- ]; do [ "$1" = -l ] && list=yes; shift; done; shift
echo "$list $*" >>"$0.asked"
printf '%s' "$*" | grep -qxEf "$0.allowed" || { echo "sudo: a password is required" >&2; exit 1; }
[ -z "$list" ] || exit 0
exec "$@"
"""


def program(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


class Stage:
    """An ordinary user with rules of sudo, and an agent that answers only where sudo started it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sudo = program(folder / "sudo", SUDO)
        program(folder / "id", "#!/bin/sh\ncase $1 in -u) echo 1000;; *) echo bob;; esac\n")
        self.agent = program(
            folder / "gpuprep-agent", f"#!/bin/sh\necho \"$*\" >>{folder}/used\ncat >/dev/null\necho '{ANSWER}'\n"
        )
        monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
        monkeypatch.setattr(agent_client, "AGENT_PROGRAM", str(self.agent))
        program(folder / "python3", f"#!/bin/sh\ntouch {folder}/sent\nexit 1\n")
        self.folder = folder

    def allow(self, *rules: str) -> None:
        Path(f"{self.sudo}.allowed").write_text("".join(f"{rule}\n" for rule in rules))

    @property
    def asked(self) -> list[str]:
        return Path(f"{self.sudo}.asked").read_text().splitlines()

    @property
    def identity(self) -> str:
        """Of the agent that is wanted, by the last question."""
        return self.asked[-1].split()[-1]

    def probe(self) -> records.ProbeResult:
        return agent_client.probe(remote.Host(HERE), "codec", {"quick": True}, become=True)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stage]:
    yield Stage(tmp_path, monkeypatch)
    assert not (tmp_path / "sent").exists(), "the agent was sent although it is there"


def test_a_rule_for_the_agent_alone_is_enough(stage: Stage) -> None:
    stage.allow(f"{stage.agent} probe codec --expect [0-9A-Za-z.+-]+")
    assert stage.probe().probe == "codec"
    words = f"probe codec --expect {stage.identity}"
    assert stage.asked == [f"yes {stage.agent} {words}", f" {stage.agent} {words}"]
    assert (stage.folder / "used").read_text() == f"{words}\n"


def test_a_rule_for_shells_is_enough(stage: Stage) -> None:
    stage.allow("/bin/sh .*")
    assert stage.probe().probe == "codec"


@pytest.mark.parametrize(
    "rule", ["nothing", "/usr/bin/id", "/bin/shx .*", "gpuprep-agent tune .*", "gpuprep-agent facts --expect .*"]
)
def test_what_is_missing_is_named(stage: Stage, rule: str) -> None:
    stage.allow(rule)
    with pytest.raises(errors.NoPrivilege) as caught:
        stage.probe()
    assert f"{stage.agent} ^probe codec --expect [0-9A-Za-z.+-]+$" in caught.value.hint
    assert "docs/security.md" in caught.value.hint
    assert not (stage.folder / "used").exists()


def test_a_rule_that_wants_a_password_after_all(stage: Stage) -> None:
    """`sudo -l` says what is allowed, and not whether a password is wanted: the next way is tried."""
    stage.allow("/bin/sh .*", f"{stage.agent} .*")
    refuses = SUDO.replace(
        'exec "$@"', 'case $1 in */gpuprep-agent) echo "sudo: a password is required" >&2; exit 1; esac; exec "$@"'
    )
    program(stage.sudo, refuses)
    assert stage.probe().probe == "codec"


def rules(text: str) -> list[re.Pattern[str]]:
    """Each rule's command line as sudo compares it: the path, a blank, and the arguments between ^ and $."""
    lines = re.findall(r"^gpuprep ALL=\(root\) NOPASSWD: (\S+)(?: (\^.*\$))?$", text, re.MULTILINE)
    return [
        re.compile(re.escape(path) + (f" {words[1:-1]}" if words else "( .*)?"), re.DOTALL) for path, words in lines
    ]


def allowed(line: str) -> bool:
    return any(rule.fullmatch(line) for rule in rules(DRIFT))


def test_the_documents_rules_fit_what_is_asked(stage: Stage) -> None:
    stage.allow("nothing")
    with pytest.raises(errors.NoPrivilege) as caught:
        agent_client.snapshot(remote.Host(HERE), records.FactsRequest(), become=True)
    (advised,) = re.findall(r"`USER (ALL=.*?)`", caught.value.hint)
    assert f"gpuprep {advised.replace(str(stage.agent), AGENT)}\n" in DRIFT
    identity = stage.asked[0].split()[-1]
    asked = [["facts"], *(["probe", kind.name] for kind in kinds.PROBES)]
    assert all(allowed(f"{AGENT} {' '.join(words)} --expect {identity}") for words in asked)
    assert len(rules(DRIFT)) == 2
    assert [rule.pattern for rule in rules(PROVISION)] == ["/bin/sh( .*)?"]


@pytest.mark.parametrize(
    "line",
    [
        "", "facts", "facts --expect", "facts --expect ", "facts --expect 1 2", "facts --expect 1 --help",
        "facts --expect 1\n2", "facts --expect 1;id", "facts --expect $(id)", "facts  --expect 1", "facts --expect=1",
        "facts --expect 1 /etc/shadow", "facts --expect ../1", "tune apply", "tune apply --expect 1", "identity",
        "whole /etc", "probe --expect 1", "probe codec", "probe other --expect 1", "probe codec --expect 1 codec",
        "probe ../codec --expect 1", "probe codec|gemm --expect 1", "--version", "x facts --expect 1",
    ],
)  # fmt: skip
def test_the_documents_rules_fit_nothing_else(line: str) -> None:
    assert not allowed(f"{AGENT} {line}")


Serve = Callable[..., HostileSshd]


def who(before: str, *, sudo: bool) -> Callable[[Session], None]:
    """bob, whose login scripts speak before, and who may use sudo or not."""

    def answer(session: Session) -> None:
        asked = re.findall(r'echo "([^"]*)"', session.command)
        said = asked[0].replace("$(id -u) $(id -un)", "1000 bob") + "\n" if asked else ""
        session.say((before + said).encode())
        if not sudo:
            session.channel.sendall_stderr(b"not in the sudoers file")
        session.end(0 if sudo else 1)

    return answer


@pytest.mark.parametrize(
    "before",
    [
        "0\n", "0\nroot\n", "Welcome!\n0\nroot\n", "\n\n", "\x1b[2J0\n", "uid=0(root)\n", "no newline, then ",
        "0 root\n" * 100, "gpuprep-user=\n", "gpuprep-user=0 root\n",
    ],
)  # fmt: skip
@pytest.mark.parametrize("sudo", [True, False])
def test_what_a_login_script_says_is_no_user(hostile: Serve, before: str, sudo: bool) -> None:
    server = hostile(script=who(before, sudo=sudo))
    with remote.Host(server.target, connect_timeout=300) as host:
        if sudo:
            host.check_privilege()
            host.run("true", become=True)
            assert "sudo -n -- /bin/sh -c true" in server.commands[-1]
            return
        with pytest.raises(errors.NoPrivilege, match="box: bob may not use sudo here"):
            host.check_privilege()


@pytest.mark.parametrize(
    "said", ["", "bye\n", "gpuprep-user=\n", "gpuprep-user=x y\n", "gpuprep-user=0\n", "\x1b[31m\n"]
)
def test_a_login_that_ends_before_our_line_says_so(hostile: Serve, said: str) -> None:
    server = hostile(script=lambda session: (session.say(said.encode()), session.end()))
    with (
        pytest.raises(errors.NoPrivilege, match="does not say which user logs in there") as caught,
        remote.Host(server.target, connect_timeout=300) as host,
    ):
        host.check_privilege()
    assert caught.value.what.isprintable()


def test_facts_of_an_agent_that_is_another_one(stage: Stage) -> None:
    stage.allow(f"{stage.agent} facts .*")
    program(stage.agent, "#!/bin/sh\nexit 97\n")
    with pytest.raises(errors.NoPrivilege, match="is not that of this gpuprep") as caught:
        agent_client.snapshot(remote.Host(HERE), records.FactsRequest(), become=True)
    assert "--only agent" in caught.value.hint
