"""Who may ask: the same rules as those of the dashboard (dashboard/guard.py), for WSGI.

- Host header: an address, localhost, or a name that was given. A page of another name that leads to this address (DNS
  rebinding) is refused.
- Token, where there is one: once in the address (?token=...), after that in a cookie.
- Nothing but GET and HEAD.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, urlencode

from gpuprep.listening import answers_to, cookie_value, has_cookie, is_token, own_names

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

METHODS = ("GET", "HEAD")
MOST_QUERY = 4000  # bytes
PLAIN = [
    ("Content-Type", "text/plain; charset=utf-8"),
    ("X-Content-Type-Options", "nosniff"),
    ("Cache-Control", "no-store"),
]
WHAT_TO_DO = "open the address with ?token=... that `gpuprep trace serve` printed"


@dataclass(frozen=True)
class Rules:
    """`token` "": everybody who reaches the address may look. `names`: of this server, besides addresses."""

    token: str = ""
    names: Collection[str] = ()
    cookie: str = "gpuprep-trace"
    more_names: str = "see --name of `gpuprep trace serve`"  # how a name is added


def guarded(application: WSGIApplication, rules: Rules) -> WSGIApplication:
    names = own_names(rules.names)
    passed = cookie_value(rules.token, "gpuprep trace serve")

    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        if not answers_to(environ.get("HTTP_HOST", ""), names):
            return _answer(
                start, "421 Misdirected Request", f"this server does not answer to that name\n{rules.more_names}"
            )
        if environ["REQUEST_METHOD"] not in METHODS:
            return _answer(start, "405 Method Not Allowed", "nothing can be changed here", [("Allow", "GET, HEAD")])
        query = environ.get("QUERY_STRING", "")
        if len(query) > MOST_QUERY:
            return _answer(start, "414 URI Too Long", f"at most {MOST_QUERY} letters are taken")
        if not rules.token:
            return application(environ, start)
        words = parse_qsl(query, keep_blank_values=True, max_num_fields=50) if query.count("&") < 50 else []
        given = [value for name, value in words if name == "token"]
        if given:
            if not is_token(given[0], rules.token):
                return _answer(start, "401 Unauthorized", f"this token is not the one of this server\n{WHAT_TO_DO}")
            # To the same page without the token in its address, which history and screens would keep.
            rest = urlencode([word for word in words if word[0] != "token"])
            target = "/" + environ.get("PATH_INFO", "").rpartition("/")[2] + (f"?{rest}" if rest else "")
            cookie = f"{rules.cookie}={passed}; Path=/; HttpOnly; SameSite=Strict"
            return _answer(start, "303 See Other", "", [("Location", target), ("Set-Cookie", cookie)])
        if has_cookie([environ.get("HTTP_COOKIE", "")], rules.cookie, passed):
            return application(environ, start)
        return _answer(start, "401 Unauthorized", f"a token is needed\n{WHAT_TO_DO}")

    return answer


def _answer(start: StartResponse, status: str, what: str, more: Iterable[tuple[str, str]] = ()) -> Iterable[bytes]:
    body = f"{what}\n".encode()
    start(status, [*PLAIN, *more, ("Content-Length", str(len(body)))])
    return [body]
