"""Twenty hosts over real SSH, three of them hostile on the wire or in their words: 17 good rows, three UNKNOWN."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import amount
import pytest
from commandline import Shell, own_folders
from hostilefleet import FACTS, HOSTILE, NIGHT, SAID, TWENTY, verdicts
from hostilesshd import HostileSshd, Session
from nightlymachine import NOW

from gpuprep.agent import host_paths
from gpuprep.workflows import schedule_state

ESCAPES = b"\x1b[2J\x1b]0;owned\x07\x9b31m\xe2\x80\xae gnp\r\n"
NOW_WORDS = ("--profile", "t4")
Tell = Callable[[dict[str, Any]], str]


def answers(name: str, tell: Tell = json.dumps) -> Callable[[Session], None]:
    """The script of a server that tells its facts and its last night in the words of `tell`."""

    def script(session: Session) -> None:
        command = shlex.split(session.command)[-1]  # exec /bin/sh -c COMMAND
        said = tell({**FACTS, "hostname": name})
        if command.endswith(schedule_state.READ):
            mark = re.findall(r"^mark='(.*)'$", command, re.MULTILINE)[0]
            night = tell({**NIGHT, "run_id": f"20261121-0231{name.removeprefix('gpu-')}-0a1b2", "host": name})
            told = {host_paths.DRIFT_LAST: night, "hostname": "t4", "boot": "b", "now": NOW, "timer": ""}
            said = "".join(f"\n{mark} {part}\n{text}\n" for part, text in told.items())
        session.say(said.encode(errors="surrogatepass"))
        session.end()

    return script


def drip_of_banners(connected: Any, server: HostileSshd) -> None:
    while not server.over.wait(0.02):
        connected.sendall(ESCAPES)


# More than all limits of gpuprep/remote/limits.py, and than they are together.
MEGABYTES = 500 if amount.ALL else 80


def flood(session: Session) -> None:
    session.flood(MEGABYTES, rules=False)


def flood_of_errors(session: Session) -> None:
    session.flood(MEGABYTES, stderr=True, rules=False)
    session.end()


def killed(session: Session) -> None:
    session.say(b"{")
    session.transport.close()


# Three ways at once, on the wire and in what is said over it.
FLEETS: dict[str, tuple[dict[str, Any], ...]] = {
    "wire": ({"raw": drip_of_banners}, {"script": flood}, {"script": killed}),
    "errors": ({"script": flood_of_errors}, {"stall": "auth"}, {"raw": lambda connected, _: connected.close()}),
    "words": tuple({"script": answers("x", SAID[name])} for name in ("depth", "a NUL in front", "many values")),
    "bytes": (
        {"script": lambda session: (session.say(ESCAPES * 1000), session.end())},
        {"script": lambda session: (session.say(b"\xff\xfe\x00" * 1000), session.end(255)), "motd": "\x1b[2J" * 100},
        {"script": answers("x", lambda told: json.dumps(told)[:-1] + ', "taken_at": "\ud800"}')},
    ),
}


@pytest.fixture
def fleet(
    home: Path, tmp_path: Path, hostile: Callable[..., HostileSshd], monkeypatch: pytest.MonkeyPatch
) -> Callable[[tuple[dict[str, Any], ...]], None]:
    """Twenty servers with their names in the SSH configuration, of which three are as they are told."""
    own_folders(monkeypatch, tmp_path)

    def start(bad: tuple[dict[str, Any], ...]) -> None:
        servers = {
            name: hostile(**(bad[HOSTILE.index(name)] if name in HOSTILE else {"script": answers(name)}))
            for name in TWENTY
        }
        (home / ".ssh/known_hosts").write_text("".join(s.known_hosts.read_text() for s in servers.values()))
        (home / ".ssh/config").write_text(
            "".join(
                f"Host {name}\nHostName 127.0.0.1\nPort {server.port}\nUser me\n"
                f"IdentityFile {server.target.identity_file}\n"
                for name, server in servers.items()
            )
        )

    return start


@pytest.mark.parametrize(
    ("when", "bad"),
    [
        pytest.param(words, bad, marks=() if (words, bad) == (NOW_WORDS, "words") else pytest.mark.machines)
        for words, bad in [
            *((NOW_WORDS, bad) for bad in FLEETS),
            *amount.few(((("--last",), bad) for bad in FLEETS), 1),
        ]
    ],
    ids=lambda value: value if isinstance(value, str) else value[0].strip("-"),
)
def test_seventeen_rows_are_good(
    fleet: Callable[..., None], capsys: pytest.CaptureFixture[str], bad: str, when: tuple[str, ...]
) -> None:
    fleet(FLEETS[bad])
    words = ("drift", *TWENTY, "-q", "--forks", "10", *when)
    for style in ("json", "text", "prometheus") if bad == "wire" else ("json",):
        code, page, err = Shell(capsys)(*words, "--format", style)
        assert code == 3, err
        if style == "text":  # of more than 16 hosts those with one outcome share a row
            assert "17 PASS, 3 UNKNOWN of 20" in page.splitlines()[-1]
            assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", page + err)
            continue
        found = verdicts(style, page)
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]", page + err)
        assert {found[name] for name in TWENTY if name not in HOSTILE} == {"PASS"}, page + err
        assert {found.get(name, "UNKNOWN") for name in HOSTILE} == {"UNKNOWN"}
        assert all(name in page for name in TWENTY)
