"""Reports each change of the verdict once to a webhook and a command.

state.json has what was reported, and what could not be delivered: the service tries that again within the hour, then
each run, oldest first. The
first check of a host is reported only if it did not pass. A new receiver (another address) starts from the beginning.

A change is never reported again once state.json says that it was delivered. If a run is killed between the receiver's
answer and the writing of that file, the next run reports it again: the run id in the document shows that it is the
same. If the file cannot be written (a full disk) the change is still reported, and may be reported again.

A document that a webhook always refuses must not block later documents: it is sent once more with only a few findings,
then given up, which the journal reports.

The bearer token is read from its file at each delivery and is stored nowhere else: not in the state, the record, a
message or an argument of a program. A redirect is a failure and is not followed, so that no other host gets the token,
and because an HTTP client turns a redirected POST into a GET.

urllib sends it: the agent's libraries on a host include no HTTP client.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import http.client
import itertools
import json
import os
import random
import stat
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gpuprep import __version__
from gpuprep.agent.programs import atomicfile, children, trusted
from gpuprep.checks import commands
from gpuprep.desired.profile import NotifyWish
from gpuprep.nightly.results import is_simulated
from gpuprep.records import DecodeError, RunRecord, Source, Status, ended, from_json, showable, to_json, to_json_value
from gpuprep.records.findings import PROBLEMS, in_order
from gpuprep.untrusted.limits import file_text

STATE = "state.json"
WAITS = (1.0, 4.0, 16.0)  # seconds before the second try, the third, ...; each up to a half longer, by chance
TRIES = len(WAITS) + 1  # of one delivery in one run
LONGEST_WAIT = 60.0  # that a receiver can ask for by Retry-After
REQUEST_TIMEOUT = 10.0
COMMAND_TIMEOUT = 60.0
MOST_WAITING = 50  # changes; of more the oldest are given up
MOST_BYTES = 64 * 1024  # of a document, as JSON; a webhook's usual limits are larger
MOST_LETTERS = 1000  # of one text in it
MOST_TOKEN_BYTES = 8 * 1024  # a web server takes no longer header
FEW = 3  # findings, for a webhook that refused them all
TEMPORARY = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
# Errors of the webhook or its settings (the token, the address), which will be repaired; other 4xx refuse the document.
NOT_THE_DOCUMENTS = (*TEMPORARY, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)


@dataclass(frozen=True)
class Channel:
    """One receiver. `status` is the verdict of the newest run that was noted for it."""

    receiver: str  # digest of the URL or the command, which may hold a secret
    status: str
    run_id: str
    waiting: tuple[dict[str, Any], ...] = ()  # documents, oldest first
    trouble: str = ""  # why the last try failed


@dataclass(frozen=True)
class State:
    channels: dict[str, Channel] = field(default_factory=dict)  # "webhook", "command"


@dataclass(frozen=True)
class Failed:
    """A failed delivery. `later`: seconds to wait as the receiver asks; None: do not try again in this run."""

    why: str
    later: float | None
    for_good: bool = False  # this document will never be accepted


Deliver = Callable[[dict[str, Any]], "Failed | None"]


def document(record: RunRecord, previous: str) -> dict[str, Any]:
    """The JSON document for a receiver. `previous` is the verdict before the change; "" for the first report.

    At most MOST_BYTES: it has the worst findings first, and `findings_left_out` is the number of others.
    """
    record = showable.safe(record, whole=True)
    problems = in_order(record.verdict.findings if record.verdict else (), PROBLEMS)
    findings = [_shortened(to_json_value(commands.filled(finding, record))) for finding in problems]
    message = {
        "host": record.host,
        "profile": record.profile.name if record.profile else "",
        "verdict": ended.status(record).value,
        "previous": previous,
        "summary": summary_of(record),
        "findings": findings,
        "run_id": record.run_id,
        "checked_at": record.ended_at,
        "source": (Source.SIMULATED if is_simulated(record) else record.source).value,
        "gpuprep_version": record.gpuprep_version,
    }
    return _with_findings(
        _shortened(message), _fitting(findings, MOST_BYTES - len(json.dumps({**message, "findings": []})))
    )


def _shortened(message: dict[str, Any]) -> dict[str, Any]:
    """The message with texts cut to MOST_LETTERS."""
    return {
        name: f"{value[: MOST_LETTERS - 1]}…" if isinstance(value, str) and len(value) > MOST_LETTERS else value
        for name, value in message.items()
    }


def _fitting(findings: Sequence[dict[str, Any]], room: int) -> int:
    """How many findings, from the first, fit into `room` bytes of JSON."""
    ends = itertools.accumulate(len(json.dumps(finding)) + len(", ") for finding in findings)
    return sum(end <= room for end in ends)


def _with_findings(message: dict[str, Any], most: int) -> dict[str, Any]:
    """The message with at most `most` findings, and the number of findings left out."""
    more = len(message["findings"]) - most
    if more <= 0:
        return message
    return {
        **message,
        "findings": message["findings"][:most],
        "findings_left_out": more + message.get("findings_left_out", 0),
    }


def summary_of(record: RunRecord) -> str:
    if record.error:
        return f"UNKNOWN: {record.error.splitlines()[0]}"
    return record.verdict.summary if record.verdict else "UNKNOWN: no verdict"


class Notifier:
    """The receivers of one host's plan, and what was reported to them."""

    def __init__(
        self,
        wish: NotifyWish,
        folder: Path,
        *,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._path = folder / STATE
        self._sleep, self._chance = sleep, chance
        self._receivers: dict[str, tuple[str, Deliver]] = {}
        if wish.webhook:
            self._receivers["webhook"] = (wish.webhook, lambda message: _post(wish.webhook, wish.token_file, message))
        if wish.command:
            self._receivers["command"] = (wish.command, lambda message: _run(wish.command, message))
        self._state, self.trouble = _load(self._path)
        self.not_kept = ""  # why state.json is older than the state in memory

    def catch_up(self, record: RunRecord) -> None:
        """As note(), for the previous run, which may have been killed before its own note()."""
        late = {
            name: _noted(channel, channel.receiver, record)
            for name, channel in self._state.channels.items()
            if channel.run_id < record.run_id
        }
        self._keep(State({**self._state.channels, **late}))

    def note(self, record: RunRecord) -> None:
        """Store the reports on `record` that must be sent."""
        noted = {
            name: _noted(self._state.channels.get(name), _digest(address), record)
            for name, (address, _) in self._receivers.items()
        }
        self._keep(State(noted))

    @property
    def waits(self) -> bool:
        """Whether a report is still to be sent to a receiver of this plan."""
        return any(self._channel(name).waiting for name in self._receivers)

    def _channel(self, name: str) -> Channel:
        """What was noted for this receiver; nothing of another one that had its place."""
        digest = _digest(self._receivers[name][0])
        channel = self._state.channels.get(name)
        return channel if channel is not None and channel.receiver == digest else Channel(digest, "", "")

    def tell(self) -> list[str]:
        """Send the stored reports. Returns a sentence for each receiver with deliveries, and for each with failures."""
        return [sentence for name in self._receivers for sentence in self._tell(name)]

    def _tell(self, name: str) -> list[str]:
        channel = self._channel(name)
        delivered, given_up, trouble = 0, [], ""
        while channel.waiting and not trouble:
            failed = self._deliver_or_shorten(name, channel.waiting[0])
            if failed is None:
                delivered += 1
            elif failed.for_good:
                given_up.append(f"run {channel.waiting[0]['run_id']} ({failed.why})")
            else:
                trouble = failed.why
            waiting = channel.waiting if trouble else channel.waiting[1:]
            channel = dataclasses.replace(channel, waiting=waiting, trouble=failed.why if failed else "")
            self._keep(State({**self._state.channels, name: channel}))
        sentences = {
            f"{name} notified": delivered,
            f"{name} not notified, given up: {', '.join(given_up)}": given_up,
            f"{name} not notified, it is tried again: {trouble}": trouble,
        }
        return [sentence for sentence, so in sentences.items() if so]

    def _deliver_or_shorten(self, name: str, message: dict[str, Any]) -> Failed | None:
        """Send a message; if it is refused for good, send it once more with FEW findings, or without if it had few."""
        failed = self._deliver(name, message)
        if failed is None or not failed.for_good or not message["findings"]:
            return failed
        return self._deliver(name, _with_findings(message, FEW if len(message["findings"]) > FEW else 0))

    def _deliver(self, name: str, message: dict[str, Any]) -> Failed | None:
        deliver = self._receivers[name][1]
        for wait in (*WAITS, None):
            failed = deliver(message)
            if failed is None or failed.later is None or wait is None:
                return failed
            self._sleep(max(wait * (1 + self._chance() / 2), failed.later))
        raise AssertionError("unreachable")

    def _keep(self, state: State) -> None:
        """Keep the state in memory, and write it to state.json; if that fails, reports can still be sent."""
        if state == self._state and not self.not_kept:
            return
        self._state = state
        try:
            atomicfile.write(self._path, to_json(state) + "\n", mode=0o600)
            self.not_kept = ""
        except OSError as error:
            self.not_kept = f"sent reports could not be noted, and may be sent again: {error}"


def _noted(channel: Channel | None, receiver: str, record: RunRecord) -> Channel:
    status = ended.status(record).value
    if channel is None or channel.receiver != receiver:
        first = () if status == Status.PASS.value else (document(record, ""),)
        return Channel(receiver, status, record.run_id, first)
    waiting = channel.waiting
    if status != channel.status:
        waiting = (*waiting, document(record, channel.status))[-MOST_WAITING:]
    return dataclasses.replace(channel, status=status, run_id=record.run_id, waiting=waiting)


def _load(path: Path) -> tuple[State, str]:
    try:
        return from_json(State, file_text(path)), ""
    except FileNotFoundError:
        return State(), ""
    except (DecodeError, OSError, UnicodeDecodeError) as error:
        return State(), f"{path} counts as absent: {error}"


def _digest(address: str) -> str:
    return hashlib.sha256(address.encode()).hexdigest()


# ---------------------------------------------------------------- the two ways


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def _post(url: str, token_file: str, message: Mapping[str, Any]) -> Failed | None:
    """POST with the standard library: `requests` would be four more packages on every host, for one request a night."""
    where, usable = _shown(url)
    if not usable:
        return Failed("the webhook's URL cannot be used: it has to be http://HOST... or https://HOST...", None)
    headers = {"Content-Type": "application/json", "User-Agent": f"gpuprep/{__version__}"}
    if token_file:
        token = _token(Path(token_file))
        if isinstance(token, Failed):
            return token
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(url, json.dumps(message).encode(), headers, method="POST")
    opener = urllib.request.build_opener(_NoRedirects())
    try:
        with opener.open(request, timeout=REQUEST_TIMEOUT):
            return None
    except urllib.error.HTTPError as error:
        with error:
            return _refused(where, error)
    except urllib.error.URLError as error:
        return Failed(f"{where} cannot be reached: {error.reason}", 0.0)
    except OSError as error:  # a time-out while the answer is read
        return Failed(f"{where} does not answer: {error}", 0.0)
    except (http.client.HTTPException, ValueError) as error:  # whose messages contain the refused value
        return Failed(f"{where} and its answer cannot be used: {type(error).__name__}", 0.0)


def _refused(where: str, error: urllib.error.HTTPError) -> Failed:
    """The failure for an HTTP error, without the receiver's text, which may repeat what it was sent."""
    code = error.code
    known = code in HTTPStatus._value2member_map_
    refusal = f"{where} answered {code}{f' {HTTPStatus(code).phrase}' if known else ''}"
    if 300 <= code < 400:
        return Failed(f"{refusal}, and redirects are not followed: give its own URL (drift.notify.webhook)", None)
    if code in TEMPORARY or code >= 500:
        return Failed(refusal, _retry_after(error.headers.get("Retry-After", "")))
    return Failed(refusal, None, for_good=400 <= code < 500 and code not in NOT_THE_DOCUMENTS)


def _retry_after(header: str) -> float:
    """Seconds to wait by a Retry-After header: seconds or a date (RFC 9110, 10.2.3); 0 without a valid value."""
    seconds = 0.0
    with contextlib.suppress(ValueError):
        seconds = float(header) if header.isdigit() else parsedate_to_datetime(header).timestamp() - time.time()
    return min(max(seconds, 0.0), LONGEST_WAIT)


def _token(path: Path) -> str | Failed:
    if trusted.is_root() and (open_to := trusted.untrusted_reason(str(path))):
        return Failed(f"the token file {path} is not used: {open_to}", None)
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return Failed(f"the token file {path} is no regular file", None)
            content = file.read(MOST_TOKEN_BYTES + 1)
        if len(content) > MOST_TOKEN_BYTES:
            return Failed(f"the token file {path} is longer than {MOST_TOKEN_BYTES} bytes: it holds no token", None)
        token = content.decode("ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror or "it fails") if isinstance(error, OSError) else "it is not ASCII"
        return Failed(f"the token file {path} cannot be read: {why}", None)
    if not token or not token.isprintable() or " " in token:
        return Failed(f"the token file {path} holds {'several words' if token else 'nothing'}", None)
    return token


def _shown(url: str) -> tuple[str, bool]:
    """(scheme and host, whether the URL can be used). Path and user name are left out: they can be secrets (Slack)."""
    try:
        parts = urlsplit(url)
        where = f"{parts.scheme}://{parts.hostname}" + (f":{parts.port}" if parts.port else "")
    except ValueError:
        return "", False
    return where, parts.scheme in ("http", "https") and bool(parts.hostname)


def _run(command: str, message: Mapping[str, Any]) -> Failed | None:
    """Run the command once; it may retry by itself. What it starts ends with it. None, or why it failed."""
    try:
        done = children.run(["/bin/sh", "-c", command], timeout=COMMAND_TIMEOUT, stdin=json.dumps(message).encode())
    except subprocess.TimeoutExpired:
        return Failed(f"the command took longer than {COMMAND_TIMEOUT:g} s", None)
    except OSError as error:
        return Failed(f"the command cannot be started: {error}", None)
    return Failed(f"the command ended with exit code {done.returncode}", None) if done.returncode else None
