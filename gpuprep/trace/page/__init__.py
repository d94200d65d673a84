"""How does a profile look as a page? TraceDocument and its columns ► one HTML file that works offline.

Template, styles, scripts and the packed profile, with a policy that allows these alone.

template.html is filled by jinja2, which escapes. static/ has the styles and one script per view: each is a file of its
own scope that puts its view into `page.views` (static/core.js). They are joined here, in the order of their names, what
views share first and start.js last: installing gpuprep needs no build step. vendor/ has the table library and the one
that makes .xlsx, unchanged, with their licences; vendor/README.md says which, tests hold their sha256.

Texts of a profile are never part of a script or of markup: the page gets them as packed JSON, and writes them as text
nodes.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata, resources
from types import MappingProxyType
from typing import Any

import jinja2
import msgspec
from markupsafe import Markup

from gpuprep.reports.templates import environment, policy_hash
from gpuprep.trace.document import TraceDocument, plain
from gpuprep.trace.opening import Opened
from gpuprep.trace.page import pack
from gpuprep.trace.page.pack import ROOM, room_of
from gpuprep.trace.profile import Profile
from gpuprep.trace.ranks import RanksDocument
from gpuprep.untrusted.plaintext import one_line

MOST_PROFILES = 256  # of a job in one page: each takes time to make, and a list of thousands is of no use
LEVEL = 6  # of gzip: 9 takes three times as long for 2 % less
VENDOR = ("datatables/dataTables.min.js", "fflate/fflate.js")
STYLE, FIRST, LAST = "page.css", ("core.js", "columns.js", "tabular.js"), ("start.js",)


@dataclass(frozen=True)
class _Part:
    """One profile as a page carries it. `document` without its tables: the page makes them."""

    document: TraceDocument
    packed: bytes


def html(
    profile: Profile, document: TraceDocument, *, room: int | None = None, one_of: Mapping[str, Any] | None = None
) -> str:
    """The page. `document` is of `profile`, with advice and roofs; its tables are made again in the page.

    `room`: as pack() takes it. `one_of`: {job, profiles}, where the server of this page has a page of the job, too.
    """
    job = {"one_of": one_of} if one_of else None
    return _page([_part(profile, document, room)], document.file.profile_name or document.file.name, job)


def html_of_job(
    ranks: RanksDocument,
    opened: Callable[[int], Opened],
    *,
    room: int | None = None,
    runs: Mapping[int, str] = MappingProxyType({}),
) -> str:
    """The page of a job: what its ranks show together, and the profile of each rank to choose.

    `opened(rank)` is called for one rank after the other. There may be no `room` for all, and there is none for more
    than MOST_PROFILES: the lowest rank comes first, then stragglers; the page says which are not in it. `room`: bytes
    of all profiles together; None: as a file may have. `runs`: names of the ranks' own pages on a server.
    """
    files = {line.rank: line.file for line in ranks.ranks}
    left = room or ROOM
    share = max(1, left // min(MOST_PROFILES, len(set(files.values()))))
    order = [*dict.fromkeys((min(files), *(straggler.rank for straggler in ranks.stragglers), *files))]
    parts: dict[str, int] = {}  # a session of Nsight Systems has several ranks in one file
    made: list[_Part] = []
    for rank in order:
        if files[rank] in parts:
            continue
        if len(made) == MOST_PROFILES:
            break
        opened_rank = opened(rank)
        part = _part(
            opened_rank.profile, opened_rank.document, share if room else min(share, room_of(opened_rank.profile))
        )
        left -= len(part.packed)
        if left < 0 and made:
            break
        parts[files[rank]] = len(made)
        made.append(part)
    carried = [{"rank": rank, "part": parts.get(file), "run": runs.get(rank)} for rank, file in files.items()]
    return _page(made, ranks.job, {"ranks": ranks, "carried": carried})


def _part(profile: Profile, document: TraceDocument, room: int | None) -> _Part:
    without = replace(document, iterations=(), op_types=(), ops=(), kernels=(), modules=())
    return _Part(without, pack.pack(profile, room=room).data)


def _page(parts: Sequence[_Part], title: str, job: Mapping[str, Any] | None = None) -> str:
    scripts = [_file("vendor", *name.split("/")) for name in VENDOR] + [_own_script()]
    style = _own_styles()
    document = parts[0].document
    return (
        _environment()
        .get_template("template.html")
        .render(
            document=document,
            title=one_line(title),
            style=Markup(style),  # gpuprep's own files, without text from a profile
            scripts=[Markup(script) for script in scripts],
            style_hash=policy_hash(style),
            script_hashes=[policy_hash(script) for script in scripts],
            job=_squeezed(job) if job else "",
            parts=[(_part_json(part.document), _base64(part.packed)) for part in parts],
            version=metadata.version("gpuprep"),
        )
    )


def _part_json(document: TraceDocument) -> str:
    return _squeezed(
        {
            "file": document.file,
            "summary": document.summary,
            "advice": document.advice,
            "roofs": document.roofs,
            "slowdown": document.slowdown,
        }
    )


def _squeezed(document: Mapping[str, Any]) -> str:
    return _base64(gzip.compress(msgspec.json.encode(document, enc_hook=plain), LEVEL, mtime=0))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _names(ending: str) -> list[str]:
    names = [file.name for file in resources.files(__package__).joinpath("static").iterdir()]
    return sorted(name for name in names if name.endswith(ending) and name not in (STYLE, *FIRST, *LAST))


@cache
def _own_styles() -> str:
    return "\n".join(_file("static", name) for name in (STYLE, *_names(".css")))


@cache
def _own_script() -> str:
    """All files of static/ as one script; a pair of braces keeps the names of one file from the others."""
    names = _names(".js")
    files = "\n".join(f"{{ // {name}\n{_file('static', name)}}}" for name in (*FIRST, *names, *LAST))
    return f'(() => {{\n"use strict";\nconst page = {{ views: {{}} }};\n{files}\n}})();\n'


@cache
def _environment() -> jinja2.Environment:
    return environment(jinja2.FunctionLoader(_file))


@cache
def _file(*name: str) -> str:
    return resources.files(__package__).joinpath(*name).read_text(encoding="utf-8")
