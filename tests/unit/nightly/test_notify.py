"""Who is told of a change, once: a real HTTP server that fails as servers fail, real commands, a real state file."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shlex
import socket
import threading
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import hints
import psutil
import pytest
from nightsfortests import WISH, a_plan, read_json, result, write_plan
from waiting import until

from gpuprep import records
from gpuprep.desired import profile
from gpuprep.nightly import notify, run

TRIES = 4  # of one delivery in one run
TOKEN = "s3cret-t0ken-of-the-receiver"


@pytest.fixture(autouse=True)
def patient_and_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setattr(notify, "REQUEST_TIMEOUT", 600.0)
    monkeypatch.setattr(notify, "COMMAND_TIMEOUT", 600.0)


def test_the_commands_of_a_document_have_host_and_profile_as_they_were_typed() -> None:
    remedy = "`gpuprep tune HOST --profile PROFILE`; or: `gpuprep drift HOST --profile PROFILE --fix` puts it back"
    found = records.Finding("gpu 0", "persistence_mode", records.Status.FAIL, "on", "off", "why", remedy, "gpu_tuning")
    verdict = records.Verdict(records.Status.FAIL, "FAIL", (found,))
    asked = {"inventory": "/srv/fleet.yml", "profile": "/srv/site.yml"}
    told = notify.document(result(records.Status.FAIL, verdict=verdict, options={"asked": asked}), "PASS")
    commands = re.findall("`([^`]*)`", told["findings"][0]["remedy"])
    where = "-i /srv/fleet.yml gpu-1.example.org --profile /srv/site.yml"
    assert commands == [f"gpuprep tune {where}", f"gpuprep drift {where} --fix"]
    assert [hints.problem(command) for command in commands] == ["", ""]


class Receiver:
    """A webhook. `answers` are given in turn, then 200; each is a status or (status, headers). `got`: what came."""

    def __init__(self) -> None:
        self.answers: list[int | tuple[int, dict[str, str]]] = []
        self.got: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.got.append(json.loads(body))
                receiver.headers.append({name.lower(): value for name, value in self.headers.items()})
                answer = receiver.answers.pop(0) if receiver.answers else 200
                code, headers = answer if isinstance(answer, tuple) else (answer, {})
                self.send_response(code)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)  # a receiver that echoes what it was sent

            def do_GET(self) -> None:
                receiver.got.append({"method": "GET"})
                receiver.headers.append({name.lower(): value for name, value in self.headers.items()})
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook/path-secret"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def verdicts(self) -> list[tuple[str, str]]:
        return [(one["previous"], one["verdict"]) for one in self.got]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


@pytest.fixture
def other() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.close()


@pytest.fixture
def token_file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    return path


class Host:
    """Nights of one host; each makes a Notifier of its own, as a process of its own would."""

    def __init__(self, folder: Path, webhook: str = "", token_file: object = "", command: str = "") -> None:
        self.wish = profile.NotifyWish(webhook, str(token_file), command)
        self.folder = folder
        self.slept: list[float] = []
        self.nights = 0

    def night(self, status: records.Status, **changes: Any) -> list[str]:
        self.nights += 1
        notifier = notify.Notifier(self.wish, self.folder, sleep=self.slept.append, chance=lambda: 0.0)
        notifier.note(result(status, run_id=f"20261121-02{self.nights:02}00-00000", **changes))
        return notifier.tell()

    @property
    def state(self) -> Any:
        return read_json(self.folder / "state.json")


@pytest.fixture
def host(tmp_path: Path, receiver: Receiver, token_file: Path) -> Host:
    folder = tmp_path / "drift"
    folder.mkdir()
    return Host(folder, receiver.url, token_file)


def test_a_change_is_told_once(host: Host, receiver: Receiver) -> None:
    nights = [
        records.Status.PASS,
        records.Status.PASS,
        records.Status.FAIL,
        records.Status.FAIL,
        records.Status.UNKNOWN,
        records.Status.PASS,
        records.Status.PASS,
    ]
    said = [host.night(status) for status in nights]
    assert receiver.verdicts == [("PASS", "FAIL"), ("FAIL", "UNKNOWN"), ("UNKNOWN", "PASS")]
    assert said == [[], [], ["webhook notified"], [], ["webhook notified"], ["webhook notified"], []]
    assert host.slept == []


@pytest.mark.parametrize(
    ("status", "told"),
    [(records.Status.PASS, []), (records.Status.WARN, [("", "WARN")]), (records.Status.FAIL, [("", "FAIL")])],
)
def test_the_first_check_is_told_only_if_it_did_not_pass(
    host: Host, receiver: Receiver, status: records.Status, told: list[tuple[str, str]]
) -> None:
    host.night(status)
    assert receiver.verdicts == told


def test_what_a_receiver_gets(host: Host, receiver: Receiver) -> None:
    host.night(records.Status.FAIL)
    (document,) = receiver.got
    finding = document.pop("findings")
    assert document == {
        "host": "gpu-1.example.org",
        "profile": "t4",
        "verdict": "FAIL",
        "previous": "",
        "summary": "FAIL: profile t4, 1 checks",
        "run_id": "20261121-020100-00000",
        "checked_at": "2026-11-21T02:00:05+00:00",
        "source": "simulated",
        "gpuprep_version": result().gpuprep_version,
    }
    assert [(one["subject"], one["property"], one["reason"], one["remedy"]) for one in finding] == [
        ("gpu 0", "persistence_mode", "a reason", "a remedy")
    ]
    (headers,) = receiver.headers
    assert headers["authorization"] == f"Bearer {TOKEN}"
    assert headers["content-type"] == "application/json"


def test_a_night_without_a_verdict_is_told_as_unknown(host: Host, receiver: Receiver) -> None:
    host.night(records.Status.PASS, source=records.Source.MEASURED)
    host.night(records.Status.UNKNOWN, error="the agent did not answer\nwhat to do: look", verdict=None)
    (document,) = receiver.got
    assert (document["verdict"], document["summary"]) == ("UNKNOWN", "UNKNOWN: the agent did not answer")
    assert document["findings"] == []


def test_a_receiver_that_recovers_is_told_after_a_while(host: Host, receiver: Receiver) -> None:
    receiver.answers = [503, 500, 429]
    assert host.night(records.Status.FAIL) == ["webhook notified"]
    assert [one["run_id"] for one in receiver.got] == ["20261121-020100-00000"] * 4
    assert host.slept == [1.0, 4.0, 16.0]
    assert host.night(records.Status.FAIL) == []


def test_retries_are_bounded_and_the_next_run_goes_on(host: Host, receiver: Receiver) -> None:
    receiver.answers = [503] * 4
    (said,) = host.night(records.Status.FAIL)
    where = receiver.url.removesuffix("/hook/path-secret")
    assert said == f"webhook not notified, it is tried again: {where} answered 503 Service Unavailable"
    assert len(receiver.got) == 4
    assert host.night(records.Status.FAIL) == ["webhook notified"]
    assert {one["run_id"] for one in receiver.got} == {"20261121-020100-00000"}
    assert host.night(records.Status.FAIL) == []
    assert len(receiver.got) == 5


@pytest.mark.parametrize(
    ("answers", "waited"),
    [([403], [300.0]), ([403, 404], [300.0, 600.0]), ([401] * 9, [300.0, 600.0, 900.0, 1500.0]), ([], [])],
)
def test_what_was_refused_is_told_again_within_the_hour(
    host: Host, receiver: Receiver, tmp_path: Path, answers: list[int | tuple[int, dict[str, str]]], waited: list[float]
) -> None:
    plan = write_plan(tmp_path / "drift.json", a_plan(drift=dataclasses.replace(WISH, notify=host.wish)))
    receiver.answers = list(answers)
    host.night(records.Status.FAIL)
    slept: list[float] = []
    run.tell_again(plan, host.folder, slept.append)
    assert slept == waited
    assert len(receiver.got) == min(len(answers), len(waited)) + 1
    assert bool(host.state["channels"]["webhook"]["waiting"]) == (len(answers) > len(waited))


def test_changes_while_nobody_listens_come_in_order(host: Host, receiver: Receiver) -> None:
    nights = (records.Status.FAIL, records.Status.PASS, records.Status.PASS, records.Status.WARN)
    receiver.answers = [503] * (TRIES * len(nights))
    for status in nights:
        host.night(status)
    assert receiver.verdicts == [("", "FAIL")] * TRIES * len(nights)
    assert host.night(records.Status.WARN) == ["webhook notified"]
    assert receiver.verdicts[-3:] == [("", "FAIL"), ("FAIL", "PASS"), ("PASS", "WARN")]


def test_a_receiver_that_is_down(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        host = Host(tmp_path, f"http://127.0.0.1:{closed.getsockname()[1]}/")
        (said,) = host.night(records.Status.FAIL)
    assert "cannot be reached: [Errno 111] Connection refused" in said
    assert host.slept == [1.0, 4.0, 16.0]


def test_what_waits_is_bounded(host: Host, receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "MOST_WAITING", 3)
    receiver.answers = [401] * 6
    for night in range(6):
        host.night((records.Status.FAIL, records.Status.PASS)[night % 2])
    waiting = host.state["channels"]["webhook"]["waiting"]
    assert [one["run_id"] for one in waiting] == [f"20261121-02{night:02}00-00000" for night in (4, 5, 6)]


@pytest.mark.parametrize("code", [401, 403, 404])
def test_a_refusal_of_the_sender_is_not_repeated_within_the_run(host: Host, receiver: Receiver, code: int) -> None:
    receiver.answers = [code]
    (said,) = host.night(records.Status.FAIL)
    assert f"answered {code}" in said
    assert len(receiver.got) == 1
    assert host.slept == []
    assert host.night(records.Status.FAIL) == ["webhook notified"]


def long_night(host: Host, findings: int, status: records.Status = records.Status.FAIL, length: int = 20) -> list[str]:
    """Of so many findings, whose texts are so long."""
    statuses = [records.Status.WARN] * (findings - 1) + [status]
    made = tuple(
        records.Finding(f"gpu {number}", "memory", each, "x", "y" * length, "z" * length)
        for number, each in enumerate(statuses)
    )
    return host.night(status, verdict=records.Verdict(status, f"{status.value}: profile t4", made))


@pytest.mark.parametrize("code", [400, 409, 410, 413, 415, 422])
def test_a_document_that_is_refused_goes_once_more_with_a_few_findings(
    host: Host, receiver: Receiver, code: int
) -> None:
    receiver.answers = [code]
    assert long_night(host, 10) == ["webhook notified"]
    whole, few = receiver.got
    assert [(len(one["findings"]), one.get("findings_left_out")) for one in receiver.got] == [(10, None), (3, 7)]
    assert few["findings"] == whole["findings"][:3]
    assert (few["run_id"], few["findings"][0]["status"]) == (whole["run_id"], "FAIL")
    assert host.slept == []
    assert long_night(host, 10) == []


def test_a_document_that_is_refused_for_good_does_not_keep_back_the_next(host: Host, receiver: Receiver) -> None:
    receiver.answers = [*[503] * TRIES, 413, 413]
    long_night(host, 2)
    where = receiver.url.removesuffix("/hook/path-secret")
    assert host.night(records.Status.PASS) == [
        "webhook notified",
        f"webhook not notified, given up: run 20261121-020100-00000 ({where} answered 413 {HTTPStatus(413).phrase})",
    ]
    assert [len(one["findings"]) for one in receiver.got[TRIES:]] == [2, 0, 0]
    assert receiver.verdicts[-1] == ("FAIL", "PASS")
    assert host.state["channels"]["webhook"]["waiting"] == []
    assert host.night(records.Status.PASS) == []


def test_a_document_without_findings_that_is_refused_is_given_up_at_once(host: Host, receiver: Receiver) -> None:
    host.night(records.Status.PASS)
    receiver.answers = [400]
    (said,) = host.night(records.Status.UNKNOWN, error="the agent did not answer", verdict=None)
    assert said.startswith("webhook not notified, given up: run 20261121-020200-00000 (")
    assert len(receiver.got) == 1


def test_a_webhook_that_is_down_after_its_refusal_is_told_by_the_next_run(host: Host, receiver: Receiver) -> None:
    receiver.answers = [400, *[503] * TRIES]
    (said,) = long_night(host, 5)
    assert said.startswith("webhook not notified, it is tried again: ")
    assert long_night(host, 5) == ["webhook notified"]
    assert len(receiver.got[-1]["findings"]) == 5


def test_a_document_is_bounded_and_the_gravest_findings_stay(host: Host, receiver: Receiver) -> None:
    assert long_night(host, 300, length=10_000) == ["webhook notified"]
    (document,) = receiver.got
    assert len(json.dumps(document)) <= 64 * 1024
    kept = document["findings"]
    assert len(kept) > 10
    assert document["findings_left_out"] == 300 - len(kept)
    assert kept[0]["status"] == "FAIL"
    assert max(len(one["actual"]) for one in kept) == 1000


def test_what_cannot_be_kept_is_told_all_the_same(host: Host, receiver: Receiver) -> None:
    """A state.json that cannot be replaced, as on a full disk."""
    (host.folder / "state.json").mkdir()
    for _ in range(2):
        notifier = notify.Notifier(host.wish, host.folder)
        notifier.catch_up(result(records.Status.FAIL, run_id="20261121-020000-00000"))
        notifier.note(result(records.Status.FAIL, run_id="20261121-020100-00000"))
        assert notifier.tell() == ["webhook notified"]
        assert notifier.not_kept.startswith("sent reports could not be noted, and may be sent again: [Errno ")
    assert {one["run_id"] for one in receiver.got} == {"20261121-020100-00000"}
    (host.folder / "state.json").rmdir()
    assert host.night(records.Status.FAIL) == ["webhook notified"]
    assert host.night(records.Status.FAIL) == []


@pytest.mark.parametrize("code", [408, 429, 500, 502, 503, 504, 599])
def test_a_passing_trouble_is_tried_again(host: Host, receiver: Receiver, code: int) -> None:
    receiver.answers = [code]
    assert host.night(records.Status.FAIL) == ["webhook notified"]
    assert host.slept == [1.0]


def test_a_receiver_says_how_long_to_wait(host: Host, receiver: Receiver) -> None:
    soon = format_datetime(datetime.now(timezone.utc) + timedelta(seconds=55), usegmt=True)
    receiver.answers = [(429, {"Retry-After": "7"}), (503, {"Retry-After": soon}), (503, {"Retry-After": "86400"})]
    assert host.night(records.Status.FAIL) == ["webhook notified"]
    first, second, third = host.slept
    assert (first, third) == (7.0, 60.0)
    assert 4.0 < second <= 55.0


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(host: Host, receiver: Receiver, other: Receiver, code: int) -> None:
    receiver.answers = [(code, {"Location": other.url})]
    (said,) = host.night(records.Status.FAIL)
    assert "redirects are not followed" in said
    assert other.got == []
    assert len(receiver.got) == 1


def test_the_token_is_nowhere_but_in_the_request(
    host: Host, receiver: Receiver, capfd: pytest.CaptureFixture[str]
) -> None:
    receiver.answers = [503, 401, 200]
    said = host.night(records.Status.FAIL) + host.night(records.Status.FAIL)
    everything = [path.read_text() for path in host.folder.rglob("*") if path.is_file()]
    everything += [*said, *capfd.readouterr()]
    assert not any(TOKEN in text for text in everything)
    assert not any("path-secret" in text for text in everything)
    assert [headers["authorization"] for headers in receiver.headers] == [f"Bearer {TOKEN}"] * 3
    assert (host.folder / "state.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "holds nothing"),
        (b"two words\n", "holds several words"),
        (f"{TOKEN}\r\nX-Evil: 1".encode(), "holds several words"),
        ("schlüssel".encode(), "cannot be read: it is not ASCII"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_without_a_usable_token_nothing_is_sent(
    host: Host, receiver: Receiver, token_file: Path, content: bytes | None, said: str
) -> None:
    token_file.unlink()
    if content is not None:
        token_file.write_bytes(content)
    (trouble,) = host.night(records.Status.FAIL)
    assert said in trouble
    assert TOKEN not in trouble
    assert receiver.got == []


def test_a_token_that_is_renewed_is_read_again(host: Host, receiver: Receiver, token_file: Path) -> None:
    receiver.answers = [401]
    host.night(records.Status.FAIL)
    token_file.write_text("renewed")
    assert host.night(records.Status.FAIL) == ["webhook notified"]
    assert receiver.headers[-1]["authorization"] == "Bearer renewed"


def test_a_receiver_that_never_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "REQUEST_TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        host = Host(tmp_path, f"http://127.0.0.1:{deaf.getsockname()[1]}/")
        (said,) = host.night(records.Status.FAIL)
    assert "timed out" in said
    assert host.slept == [1.0, 4.0, 16.0]


def test_a_receiver_that_speaks_no_http(tmp_path: Path) -> None:
    def speak(server: socket.socket) -> None:
        for _ in range(TRIES):
            with server.accept()[0] as connection:
                connection.recv(65536)
                connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=speak, args=(server,))
        thread.start()
        (said,) = Host(tmp_path, f"http://127.0.0.1:{server.getsockname()[1]}/").night(records.Status.FAIL)
        thread.join()
    assert "its answer cannot be used: BadStatusLine" in said


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "ftp://host/", "http://", "http://[::1", "http://h:99999999/", "nonsense"]
)
def test_a_url_that_is_none(tmp_path: Path, url: str) -> None:
    (said,) = Host(tmp_path, url).night(records.Status.FAIL)
    assert "cannot be used" in said


def test_a_password_in_the_url_is_not_shown(tmp_path: Path) -> None:
    (said,) = Host(tmp_path, "http://user:pass-secret@127.0.0.1:1/").night(records.Status.FAIL)
    assert said.startswith("webhook not notified")
    assert "secret" not in said + (tmp_path / "state.json").read_text()


def test_a_receiver_that_is_new_starts_anew(host: Host, other: Receiver) -> None:
    host.night(records.Status.FAIL)
    host.wish = profile.NotifyWish(other.url, "", "")
    assert host.night(records.Status.FAIL) == ["webhook notified"]
    assert other.verdicts == [("", "FAIL")]
    host.wish = profile.NotifyWish("", "", "")
    assert host.night(records.Status.PASS) == []
    assert host.state["channels"] == {}


def test_a_damaged_state_is_named_and_counts_as_absent(host: Host) -> None:
    host.night(records.Status.FAIL)
    for content in (b"{", b"[]", b"\xff", b'{"channels": {"webhook": 1}}'):
        (host.folder / "state.json").write_bytes(content)
        assert "state.json counts as absent: " in notify.Notifier(host.wish, host.folder).trouble
    assert host.night(records.Status.FAIL) == ["webhook notified"]
    assert notify.Notifier(host.wish, host.folder).trouble == ""


def test_a_run_that_was_killed_before_it_could_say_a_word_is_told_by_the_next(host: Host, receiver: Receiver) -> None:
    host.night(records.Status.PASS)
    late = notify.Notifier(host.wish, host.folder)
    late.catch_up(result(records.Status.FAIL, run_id="20261121-020130-00000"))
    late.note(result(records.Status.PASS, run_id="20261121-020200-00000"))
    assert late.tell() == ["webhook notified"]
    assert receiver.verdicts == [("PASS", "FAIL"), ("FAIL", "PASS")]
    again = notify.Notifier(host.wish, host.folder)
    again.catch_up(result(records.Status.FAIL, run_id="20261121-020130-00000"))  # is older than what was told
    assert again.tell() == []


# ---------------------------------------------------------------- a command


def script(tmp_path: Path, text: str) -> Callable[[], str]:
    """A command's output so far."""
    log = tmp_path / "log"
    (tmp_path / "command").write_text(text.replace("LOG", shlex.quote(str(log))))
    return lambda: log.read_text() if log.exists() else ""


def test_a_command_gets_the_document(tmp_path: Path) -> None:
    log = script(tmp_path, "cat >> LOG; echo >> LOG")
    host = Host(tmp_path, command=f"sh {tmp_path}/command")
    assert host.night(records.Status.PASS) == []
    assert host.night(records.Status.FAIL) == ["command notified"]
    assert host.night(records.Status.FAIL) == []
    (line,) = log().splitlines()
    assert json.loads(line)["run_id"] == "20261121-020200-00000"


def test_a_command_that_fails_is_tried_by_the_next_run(tmp_path: Path) -> None:
    log = script(tmp_path, f"cat >> LOG; echo >> LOG; exec test -e {tmp_path}/works")
    host = Host(tmp_path, command=f"sh {tmp_path}/command")
    again = "command not notified, it is tried again: the command ended with exit code 1"
    assert host.night(records.Status.FAIL) == [again]
    (tmp_path / "works").touch()
    assert host.night(records.Status.FAIL) == ["command notified"]
    assert host.night(records.Status.FAIL) == []
    assert [json.loads(line)["run_id"] for line in log().splitlines()] == ["20261121-020100-00000"] * 2
    assert host.slept == []


def test_a_command_that_hangs_is_ended_with_what_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notify, "COMMAND_TIMEOUT", 0.5)
    seconds = f"90000{os.getpid()}"  # no other program sleeps so long
    script(tmp_path, f"sleep {seconds} & wait")
    host = Host(tmp_path, command=f"sh {tmp_path}/command")
    (said,) = host.night(records.Status.FAIL)
    assert "took longer than 0.5 s" in said
    until(lambda: not any(seconds in " ".join(one) for one in command_lines()), "a command's child lives on", 300)


def command_lines() -> list[list[str]]:
    return [process.info["cmdline"] or [] for process in psutil.process_iter(["cmdline"])]


def test_a_command_that_reads_nothing_is_no_failure(tmp_path: Path) -> None:
    assert Host(tmp_path, command="exec <&-; true").night(records.Status.FAIL) == ["command notified"]


def test_webhook_and_command_do_not_depend_on_each_other(tmp_path: Path, receiver: Receiver) -> None:
    receiver.answers = [403]
    log = script(tmp_path, "cat >> LOG; echo >> LOG")
    host = Host(tmp_path, receiver.url, command=f"sh {tmp_path}/command")
    refused, told = host.night(records.Status.FAIL)
    assert refused.startswith("webhook not notified")
    assert told == "command notified"
    assert host.night(records.Status.FAIL) == ["webhook notified"]
    assert len(log().splitlines()) == 1
