"""Who may look, and what a browser may do with a page. Wraps the application; nothing in it knows the store.

- Host header: an address, localhost, or a name that was given. A page of another name that leads to this address (DNS
  rebinding) is refused, and so are two headers. Starlette's TrustedHostMiddleware cannot allow each address, and looks
  at one header.
- Token: once in the address (?token=...), after that in a cookie that scripts cannot read and other sites cannot send;
  programs send it as `Authorization: Bearer TOKEN`. Compared in constant time.
- Nothing but GET and HEAD. No page is kept, framed, sniffed, or fetches anything from elsewhere.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from gpuprep.listening import answers_to, cookie_value, has_cookie, is_token, own_names

METHODS = ("GET", "HEAD")
OPEN = ("/healthz",)  # says nothing but that it answers
MOST_QUERY = 2000  # bytes
NOTHING_ELSE = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; form-action 'self';"
    " base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": NOTHING_ELSE,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cache-Control": "no-store",
}
WHAT_TO_DO = "open the address with ?token=... that `gpuprep serve` printed, or send `Authorization: Bearer TOKEN`"


@dataclass(frozen=True)
class Rules:
    """`token` "": everybody who reaches the address may look. `names`: of this server, besides addresses."""

    token: str
    names: Collection[str] = ()
    cookie: str = "gpuprep"
    secure: bool = False  # the browser speaks TLS with a proxy before us


class Guard:
    def __init__(self, app: ASGIApp, rules: Rules) -> None:
        self._app, self._rules = app, rules
        self._names = own_names(rules.names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refused = self._answer(scope)
        await (refused or self._app)(scope, receive, with_headers)

    def _answer(self, scope: Scope) -> Response | None:
        """The answer to a refused request; None: the request is allowed."""
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not answers_to(hosts[0], self._names):
            return _refusal(421, "this server does not answer to that name", "see --name of `gpuprep serve`")
        if scope["method"] not in METHODS:
            return _refusal(
                405, "nothing can be changed here", "GET and HEAD are answered", {"Allow": ", ".join(METHODS)}
            )
        if len(scope["query_string"]) > MOST_QUERY:
            return _refusal(414, "the query is too long", f"at most {MOST_QUERY} characters are allowed")
        if not self._rules.token or scope["path"] in OPEN:
            return None
        return self._known(scope, headers)

    def _known(self, scope: Scope, headers: Headers) -> Response | None:
        try:
            words = parse_qsl(scope["query_string"].decode("ascii"), keep_blank_values=True, max_num_fields=50)
        except ValueError:
            return _refusal(400, "the query cannot be read", WHAT_TO_DO)
        given = [value for name, value in words if name == "token"]
        if given:
            if not is_token(given[0], self._rules.token):
                return _refusal(401, "this token is not the one of this server", WHAT_TO_DO)
            rest = urlencode([pair for pair in words if pair[0] != "token"])
            return self._let_in(scope["path"], rest)
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.casefold() == "bearer" and is_token(bearer.strip(), self._rules.token):
            return None
        if has_cookie(headers.getlist("cookie"), self._rules.cookie, self._pass):
            return None
        return _refusal(401, "a token is needed", WHAT_TO_DO, {"WWW-Authenticate": "Bearer"})

    def _let_in(self, path: str, rest: str) -> Response:
        """Redirect to the same page without the token: browser history and screens would show it."""
        target = "/" + quote(path.lstrip("/"), safe="/:@%") + (f"?{rest}" if rest else "")  # never "//elsewhere"
        response = RedirectResponse(target, 303)
        response.set_cookie(
            self._rules.cookie, self._pass, path="/", httponly=True, samesite="strict", secure=self._rules.secure
        )
        return response

    @property
    def _pass(self) -> str:
        """The value of the cookie."""
        return cookie_value(self._rules.token, "gpuprep serve")


def _refusal(status: int, what: str, todo: str, headers: dict[str, str] | None = None) -> Response:
    return PlainTextResponse(f"{what}\nwhat to do: {todo}\n", status, headers)
