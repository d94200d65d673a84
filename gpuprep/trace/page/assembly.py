"""The page as one file: template, styles, scripts and the packed profile, with a policy that allows these alone.

template.html is filled by jinja2, which escapes. static/ has the styles and one script per view: each is a file of its
own scope that puts its view into `page.views` (static/core.js). They are joined here, in the order of their names, what
views share first and start.js last: who installs gpuprep needs no build step. vendor/ has the table library and the one
that makes .xlsx, unchanged, with their licences; vendor/README.md says which, tests hold their sha256.

Texts of a profile are never part of a script or of markup: the page gets them as packed JSON, and writes them as text
nodes.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from functools import cache
from importlib import metadata, resources
from typing import Any

import jinja2
import msgspec
import numpy as np
from markupsafe import Markup

from gpuprep.trace.document import TraceDocument
from gpuprep.trace.page.pack import pack
from gpuprep.trace.profile import Profile
from gpuprep.trace.ranks import RanksDocument
from gpuprep.untrusted.plaintext import one_line

LEVEL = 6  # of gzip: 9 takes three times as long for 2 % less
VENDOR = ("datatables/dataTables.min.js", "fflate/fflate.js")
STYLE, FIRST, LAST = "page.css", ("core.js", "columns.js", "tabular.js"), ("start.js",)


def html(
    profile: Profile, document: TraceDocument, ranks: RanksDocument | None = None, *, room: int | None = None
) -> str:
    """The page. `document` is of `profile`, with advice and roofs; its tables are made again in the page.

    `ranks`: of the job that the profile is the first rank of. `room`: as pack() takes it.
    """
    scripts = [_file("vendor", *name.split("/")) for name in VENDOR] + [_own_script()]
    style = _own_styles()
    told = {
        "file": document.file, "summary": document.summary, "advice": document.advice, "roofs": document.roofs,
        "ranks": ranks,
    }  # fmt: skip
    return (
        _environment()
        .get_template("template.html")
        .render(
            document=document,
            title=one_line(document.file.profile_name or document.file.name),
            style=Markup(style),  # our own files; no word of a profile is in them
            scripts=[Markup(one) for one in scripts],
            style_hash=_hash(style),
            script_hashes=[_hash(one) for one in scripts],
            told=_base64(gzip.compress(msgspec.json.encode(told, enc_hook=_plain), LEVEL, mtime=0)),
            packed=_base64(pack(profile, room=room).data),
            version=metadata.version("gpuprep"),
        )
    )


def _plain(value: Any) -> Any:
    """A number of numpy as one of Python."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _names(ending: str) -> list[str]:
    names = [one.name for one in resources.files(__package__).joinpath("static").iterdir()]
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


def _hash(text: str) -> str:
    """As a Content-Security-Policy names a text that it allows."""
    return f"sha256-{_base64(hashlib.sha256(text.encode()).digest())}"


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FunctionLoader(_file),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _file(*name: str) -> str:
    return resources.files(__package__).joinpath(*name).read_text(encoding="utf-8")
