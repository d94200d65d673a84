"""The form of a machine's name in its cloud: the agent and the controller take no other for a command.

Stdlib only; this module also runs on the GPU VM (Python 3.9 or newer).
"""

from __future__ import annotations

import re

FORMS = {
    "aws": re.compile(r"(?:[a-z]{2,8}(?:-[a-z]{2,16}){1,3}-[0-9]{1,2}/)?i-[0-9a-f]{8,17}"),  # REGION/ID, or ID
    "azure": re.compile(r"/subscriptions/[\w-]{1,64}/resourceGroups/[\w.()-]{1,90}/providers/Microsoft\.Compute/"
                        r"virtualMachines/[\w.-]{1,64}", re.ASCII),
    "gcp": re.compile(r"[a-z][a-z0-9-]{4,28}[a-z0-9](?:/[a-z][a-z0-9-]{0,62}){2}"),  # PROJECT/ZONE/NAME
}  # fmt: skip


def is_name(provider: str, text: str) -> bool:
    form = FORMS.get(provider)
    return form is not None and form.fullmatch(text) is not None
