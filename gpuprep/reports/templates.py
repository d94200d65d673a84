"""How is a page filled? Jinja2 escapes every value; hashes name the styles and scripts that a page allows."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable
from typing import Any

import jinja2
from markupsafe import Markup

CODE = re.compile(r"`([^`]{1,300})`")


def environment(loader: jinja2.BaseLoader, finalize: Callable[[Any], Any] | None = None) -> jinja2.Environment:
    """Templates from `loader`; a missing variable is an error. `finalize` changes values before they are shown."""
    return jinja2.Environment(
        loader=loader,
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def policy_hash(text: str) -> str:
    """As a Content-Security-Policy names a text that it allows."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def with_code(words: str) -> Markup:
    """Text in backticks, mostly commands, as code."""
    parts = CODE.split(words)  # words, code, words, code, ..., words
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if place % 2 else part for place, part in enumerate(parts)
    )
