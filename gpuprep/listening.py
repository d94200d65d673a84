"""Where does a server of gpuprep listen, and whom does it answer? For `gpuprep serve` and `trace serve`."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Generic, TypeVar

from gpuprep.errors import UsageError
from gpuprep.untrusted.plaintext import one_line

# More than the browsers of a team open at a time. Each has a thread, so it must be below the limit of a process.
MOST_CONNECTIONS = 200
# For a whole request, and for each part of an answer until the client takes it.
WAIT_SECONDS = 15.0

NAME = re.compile(r"[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")  # RFC 1035, and _ as some use it

_Connection = TypeVar("_Connection")


@dataclass(frozen=True)
class Listen:
    """Where: an address of this machine, or a name that leads to one."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def url(self, port: int, token: str) -> str:
        """What to open in a browser. `port`: the one that the system gave, where 0 was asked for."""
        shown = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{shown}:{port}/{f'?token={token}' if token else ''}"

    def refused(self, error: OSError) -> UsageError:
        """The error to raise where nothing can listen here."""
        where = f"{self.host}:{self.port}"
        return UsageError(f"--listen {where}: nothing can listen there: {error.strerror}", "give another")


class Connections(Generic[_Connection]):
    """The open connections of one server, for several threads: a client that opens hundreds cannot shut out others.

    A server waits for a client that has not yet sent its request, or does not take the answer. It waits WAIT_SECONDS at
    the most, whatever comes in between; if there are more than MOST_CONNECTIONS, it closes the one that it has waited
    for longest. A client that sends its request at once is never closed.
    """

    def __init__(self, close: Callable[[_Connection], None]) -> None:
        self._close = close
        self._waiting: dict[_Connection, float] = {}  # since when; the first one longest
        self._working: set[_Connection] = set()
        self._lock = threading.Lock()

    def waits(self, one: _Connection) -> None:
        """The server waits for this client. Counts from the first time on, until works()."""
        with self._lock:
            self._working.discard(one)
            self._waiting.setdefault(one, time.monotonic())
            full = len(self._waiting) + len(self._working) > MOST_CONNECTIONS
            longest = next(iter(self._waiting)) if full else None
            if longest is not None:
                del self._waiting[longest]
        if longest is not None:
            self._close(longest)

    def works(self, one: _Connection) -> None:
        """The server has the whole request, or its client took a part of the answer."""
        with self._lock:
            if self._waiting.pop(one, None) is not None:  # None: it is being closed
                self._working.add(one)

    def gone(self, one: _Connection) -> None:
        with self._lock:
            self._waiting.pop(one, None)
            self._working.discard(one)

    def end_slow(self) -> None:
        """Close those that the server has waited for too long. To be called every second or so."""
        before = time.monotonic() - WAIT_SECONDS
        with self._lock:
            slow = [one for one, since in self._waiting.items() if since < before]
            for one in slow:
                del self._waiting[one]
        for one in slow:
            self._close(one)


def parse(text: str, example: int) -> Listen:
    """ "127.0.0.1:8765", "[::1]:8765", "8765". `example`: the port that the error names. Raises UsageError."""
    host, _, port = text.rpartition(":")
    wrong = UsageError(
        f"--listen {text}: this is no ADDRESS:PORT", f"for example 127.0.0.1:{example}, [::1]:{example} or {example}"
    )
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise wrong
    bracketed = host.startswith("[") and host.endswith("]")
    if (":" in host and not bracketed) or any(letter.isspace() or letter == "/" for letter in host):
        raise wrong
    return Listen(host[1:-1] if bracketed else host or "127.0.0.1", int(port))


def new_token() -> str:
    return secrets.token_urlsafe(32)


def is_token(given: str, token: str) -> bool:
    """Compares in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), token.encode())


def cookie_value(token: str, server: str) -> str:
    """The cookie of a browser that gave the token; the token cannot be read from it."""
    return hmac.new(token.encode(), f"cookie of {server}".encode(), hashlib.sha256).hexdigest()


def has_cookie(headers: Iterable[str], name: str, value: str) -> bool:
    """Whether one of the Cookie headers of a request has the cookie `name` with this value."""
    for header in headers:
        try:
            cookie = SimpleCookie(header).get(name)
        except CookieError:
            continue
        if cookie is not None and is_token(cookie.value, value):
            return True
    return False


def check_name(name: str) -> None:
    """Raises UsageError for a --name that no browser can send as a host."""
    if not NAME.fullmatch(name):
        hint = "for example gpuprep.example.org, without http:// and port"
        raise UsageError(f"--name {one_line(name, 100)}: this is no host name", hint)


def own_names(given: Iterable[str]) -> frozenset[str]:
    """Names of this server for answers_to()."""
    return frozenset(name.casefold().rstrip(".") for name in ("localhost", *given))


def answers_to(host: str, names: Collection[str]) -> bool:
    """Whether a Host header names this server. Another name that resolves to this server may be a hostile page's (DNS
    rebinding); an IP address cannot be one."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return name.casefold().rstrip(".") in names
    return True
