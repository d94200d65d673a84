"""Answers over HTTP, and who may ask. The addresses:

    index.html             all runs; with one run the page of that run
    page?job=F             the page of the runs in one folder, as the ranks of one job
    page?run=R             the page. &start=N&stop=M&key_op=NAME choose iterations, as on the command line
    document.json?run=R    the document of `gpuprep trace report PATH --format json`; also ?job=F
    raw?run=R              the file itself, for Perfetto
    perfetto?run=R         hands the file to ui.perfetto.dev inside the browser; nothing is sent to any server
    index.js               what TensorBoard loads

The last part of a path alone counts, so the application needs not know where it is mounted.

Who may ask: the same rules as those of the dashboard (dashboard/guard.py), for WSGI.

- Host header: an address, localhost, or a name that was given. A page of another name that leads to this address (DNS
  rebinding) is refused.
- Token, where there is one: once in the address (?token=...), after that in a cookie.
- Nothing but GET and HEAD.
"""

from __future__ import annotations

import html
import os
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import parse_qs, parse_qsl, quote, urlencode

from gpuprep import errorlog
from gpuprep.errors import GpuprepError, UsageError
from gpuprep.listening import answers_to, cookie_value, has_cookie, is_token, own_names
from gpuprep.records.moments import minute
from gpuprep.trace.formats.numbers import count, milliseconds
from gpuprep.trace.web.library import Asked, Card, Library
from gpuprep.untrusted.limits import open_regular
from gpuprep.untrusted.masking import masked
from gpuprep.untrusted.plaintext import one_line, visible

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
            return _text_answer(
                start, "421 Misdirected Request", f"this server does not answer to that name\n{rules.more_names}"
            )
        if environ["REQUEST_METHOD"] not in METHODS:
            return _text_answer(
                start, "405 Method Not Allowed", "nothing can be changed here", [("Allow", "GET, HEAD")]
            )
        query = environ.get("QUERY_STRING", "")
        if len(query) > MOST_QUERY:
            return _text_answer(start, "414 URI Too Long", f"at most {MOST_QUERY} characters are allowed")
        if not rules.token:
            return application(environ, start)
        words = parse_qsl(query, keep_blank_values=True, max_num_fields=50) if query.count("&") < 50 else []
        given = [value for name, value in words if name == "token"]
        if given:
            if not is_token(given[0], rules.token):
                return _text_answer(
                    start, "401 Unauthorized", f"this token is not the one of this server\n{WHAT_TO_DO}"
                )
            # Redirect to the same page without the token: browser history and screens would show it.
            rest = urlencode([word for word in words if word[0] != "token"])
            target = "/" + environ.get("PATH_INFO", "").rpartition("/")[2] + (f"?{rest}" if rest else "")
            cookie = f"{rules.cookie}={passed}; Path=/; HttpOnly; SameSite=Strict"
            return _text_answer(start, "303 See Other", "", [("Location", target), ("Set-Cookie", cookie)])
        if has_cookie([environ.get("HTTP_COOKIE", "")], rules.cookie, passed):
            return application(environ, start)
        return _text_answer(start, "401 Unauthorized", f"a token is needed\n{WHAT_TO_DO}")

    return answer


def _text_answer(start: StartResponse, status: str, what: str, more: Iterable[tuple[str, str]] = ()) -> Iterable[bytes]:
    body = f"{what}\n".encode()
    start(status, [*PLAIN, *more, ("Content-Length", str(len(body)))])
    return [body]


PIECE = 1 << 20
PERFETTO = "https://ui.perfetto.dev"
ALWAYS = [
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
]
# Of the few pages that are made here.
OURS = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-src 'self';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
META = re.compile(r"""<meta http-equiv="Content-Security-Policy"\s+content="([^"]+)""", re.IGNORECASE)
HEAD = 20_000  # of a page: its policy stands in there
STATIC = {"index.js": "text/javascript", "perfetto.js": "text/javascript", "web.css": "text/css"}
MOST_NAME = 500  # letters of a key op


class _Answer(Exception):
    """An answer that is neither a page nor a file."""

    def __init__(self, status: str, what: str, headers: Iterable[tuple[str, str]] = ()) -> None:
        self.status, self.what, self.headers = status, what, headers


def application(library: Library) -> WSGIApplication:
    def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        try:
            return _answer(library, environ, start)
        except _Answer as given:
            return _plain(start, given.status, given.what, given.headers)
        except GpuprepError as error:
            return _plain(start, "422 Unprocessable Content", masked(error.explain()))
        except Exception as error:  # noqa: BLE001  the edge: whatever is left becomes one line and a log
            return _plain(start, "500 Internal Server Error", _kept(error))

    return answer


def _answer(library: Library, environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
    name = environ.get("PATH_INFO", "").rpartition("/")[2]
    query = _query(environ.get("QUERY_STRING", ""))
    if name in ("", "index.html"):
        return _index(library, start)
    if name in STATIC:
        return _text(start, _file(name), STATIC[name])
    if name == "page":
        page = library.page(_asked(query)).html
        return _send(start, page, "text/html", [("Content-Security-Policy", policy(page))])
    if name == "document.json":
        return _send(start, library.page(_asked(query)).json, "application/json")
    if name == "raw":
        return _raw(library, query, environ, start)
    if name == "perfetto":
        return _perfetto(library, query.get("run", ""), start)
    raise _Answer("404 Not Found", "there is nothing at this address")


def _query(text: str) -> dict[str, str]:
    try:
        parameters = parse_qs(text, keep_blank_values=True, max_num_fields=20, errors="strict")
    except ValueError as error:
        raise _Answer("400 Bad Request", "the query cannot be read") from error
    return {name: values[-1] for name, values in parameters.items()}


def _asked(query: dict[str, str]) -> Asked:
    def number(name: str) -> int | None:
        text = query.get(name, "")
        if not text:
            return None
        if not (text.isascii() and text.isdigit() and len(text) <= 9):
            raise UsageError(f"{name}={one_line(text, 40)}: this is no number of an iteration", "give 0 or more")
        return int(text)

    return Asked(
        query.get("run", ""), number("start"), number("stop"), query.get("key_op", "")[:MOST_NAME], query.get("job", "")
    )


# ---------------------------------------------------------------- pages


def _index(library: Library, start: StartResponse) -> Iterable[bytes]:
    cards = library.cards()
    names = list(cards)
    if len(names) == 1:
        raise _Answer("303 See Other", "", [("Location", f"page?run={quote(names[0], safe='')}")])
    rows = "\n".join(
        f'<li><a target="view" href="page?run={quote(name, safe="")}">{html.escape(visible(name))}</a>'
        f"<small>{' · '.join(f'<span>{html.escape(part)}</span>' for part in _card_words(card))}</small></li>"
        for name, card in cards.items()
    )
    waiting = sum(card is None for card in cards.values())
    more = f'<p>{waiting} of {len(cards)} are still read. <a href="index.html">Look again</a></p>' if waiting else ""
    jobs = "\n".join(
        f'<li><a target="view" href="page?job={quote(folder, safe="")}">{_job_words(folder, len(runs))}</a></li>'
        for folder, runs in library.jobs_of(names).items()
    )
    jobs = f"<h1>Jobs</h1><ul>\n{jobs}\n</ul>" if jobs else ""
    none = "" if names else "<p>No profile was found here. docs/traces.md says how one is recorded.</p>"
    body = (
        f"<nav>{jobs}<h1>Profiles</h1>{none}{more}<ul>\n{rows}\n</ul></nav>"
        '<iframe name="view" title="The profile"></iframe>'
    )
    return _page(start, "gpuprep trace", body)


def _card_words(card: Card | None) -> tuple[str, ...]:
    """No markup."""
    if card is None:
        return ("not read yet",)
    if card.not_read:
        return (card.not_read,)
    steps = f"{milliseconds(card.step_us)} ms a step, {count(card.steps, 'step')}" if card.steps else "no steps"
    recorded = minute(card.recorded_at) if card.recorded_at else "date not in the profile"
    return card.gpus, recorded, steps


def _job_words(folder: str, profiles: int) -> str:
    """Markup."""
    where = "" if folder == "." else f"{html.escape(visible(folder))}: "
    return f"{where}{profiles} profiles, as the ranks of one job"


def _perfetto(library: Library, run: str, start: StartResponse) -> Iterable[bytes]:
    """A tab of its own: Perfetto gets the trace from the window that opened it."""
    if library.raw(run) is None:
        raise UsageError("Perfetto takes traces of PyTorch's profiler alone", "open an export with nsys-ui")
    shown = html.escape(visible(run))
    body = (
        f'<main id="perfetto" data-raw="raw?run={quote(run, safe="")}" data-title="{shown}" data-perfetto="{PERFETTO}">'
        f"<h1>{shown}</h1><p><button>Open in Perfetto</button> <span role=status></span></p>"
        f"<p>This opens {PERFETTO} in a new tab and hands the trace over inside the browser. No server is sent the"
        ' trace.</p></main><script src="perfetto.js"></script>'
    )
    return _page(start, f"{shown} in Perfetto", body)


def _page(start: StartResponse, title: str, body: str) -> Iterable[bytes]:
    """`title` and `body` are markup."""
    text = (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="web.css"></head>'
        f"<body>{body}</body></html>\n"
    )
    return _text(start, text, "text/html", [("Content-Security-Policy", OURS)])


def policy(page: bytes) -> str:
    """The page's own policy, sent by the server, too, with who may frame it: a page itself cannot say that."""
    match = META.search(page[:HEAD].decode("utf-8", "replace"))
    own = html.unescape(match[1]).strip().rstrip(";") if match else "default-src 'none'"
    return f"{own}; frame-ancestors 'self'"


# ---------------------------------------------------------------- files


def _raw(library: Library, query: dict[str, str], environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
    path = library.raw(query.get("run", ""))
    if path is None:
        raise _Answer("404 Not Found", "this file is not handed out: it is no trace of PyTorch's profiler")
    try:
        file = open_regular(path)
    except OSError as error:
        raise UsageError(f"{path.name}: {error.strerror}") from error
    size = os.fstat(file.fileno()).st_size
    kind = "application/gzip" if path.name.endswith(".gz") else "application/json"
    plain = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "_" for letter in path.name
    )
    headers = [("Content-Disposition", f'attachment; filename="{plain}"'), ("Content-Length", str(size))]
    start("200 OK", [*ALWAYS, *headers, ("Content-Type", kind)])
    if environ["REQUEST_METHOD"] == "HEAD":
        file.close()
        return []
    return _Pieces(file, size)


class _Pieces:
    """Not more than was announced, where the file grows meanwhile. The server calls close, whatever happens."""

    def __init__(self, file: BinaryIO, left: int) -> None:
        self._file, self._left = file, left

    def __iter__(self) -> Iterator[bytes]:
        while self._left > 0 and (piece := self._file.read(min(PIECE, self._left))):
            self._left -= len(piece)
            yield piece

    def close(self) -> None:
        self._file.close()


@cache
def _file(name: str) -> str:
    return (resources.files(__package__) / "static" / name).read_text(encoding="utf-8")


# ---------------------------------------------------------------- answers


def _text(start: StartResponse, text: str, kind: str, more: Iterable[tuple[str, str]] = ()) -> Iterable[bytes]:
    return _send(start, text.encode(), kind, more)


def _send(start: StartResponse, body: bytes, kind: str, more: Iterable[tuple[str, str]] = ()) -> Iterable[bytes]:
    start(
        "200 OK",
        [*ALWAYS, *more, ("Content-Type", f"{kind}; charset=utf-8"), ("Content-Length", str(len(body)))],
    )
    return [body]


def _plain(start: StartResponse, status: str, what: str, more: Iterable[tuple[str, str]] = ()) -> Iterable[bytes]:
    body = f"{visible(what)}\n".encode()
    kind = ("Content-Type", "text/plain; charset=utf-8")
    start(status, [*ALWAYS, *more, kind, ("Content-Length", str(len(body)))])
    return [body]


def _kept(error: Exception) -> str:
    what = f"A{errorlog.named(error)[1:]}"
    try:
        errorlog.keep(errorlog.whole(error, "gpuprep trace, in a browser"))
    except OSError:
        return what
    return f"{what}. The full error is in the log of gpuprep"
