"""Whatever Ansible shows has its control characters as escapes: what a machine answers moves no cursor and hides no line.

gpuprep reads the events of a run from Ansible's output, where ansible-runner puts them between escape sequences: a machine
whose warnings held such sequences could tell of tasks that never ran.
"""

from __future__ import annotations

import re

from ansible.plugins.callback import CallbackBase
from ansible.utils.display import Display

DOCUMENTATION = """
    name: gpuprep_plain
    type: aggregate
    short_description: control characters are shown as escapes
    description: [Shows control characters of anything that Ansible prints as escapes.]
"""

UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text):
    return UNSAFE.sub(lambda found: ascii(found[0])[1:-1], text) if isinstance(text, str) else text


def _patch():
    shown = Display.display
    if getattr(shown, "gpuprep_plain", False):
        return

    def display(self, msg, *arguments, **options):
        return shown(self, plain(msg), *arguments, **options)

    display.gpuprep_plain = True
    Display.display = display


_patch()


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "gpuprep_plain"
