"""Shows a failure that several hosts have in common once, with the number of hosts.

Two errors are equal if they differ only in the host's name, in addresses and in the run id.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

NAMED = 2  # hosts of a longer list that are named
ALL_NAMED = 4  # hosts of which each is named
ADDRESS = re.compile(r"\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}\b")
PART = r"[\w.-]"  # of a name: web1 is not in web10


def without(name: str, text: str, instead: str = "HOST") -> str:
    """`text` with HOST for the name, so that two hosts have the same."""
    return re.sub(rf"(?<!{PART}){re.escape(name)}(?!\w|[.-]\w)", instead, text) if name else text


@dataclass(frozen=True)
class Failed:
    host: str
    error: str
    run_id: str = ""

    @property
    def plain(self) -> str:
        """The error without what differs between hosts: host name, addresses and run id."""
        text = without(self.run_id, without(self.host, self.error), "RUN")
        lines = ADDRESS.sub("ADDRESS", text).splitlines() or [""]
        return "\n".join([lines[0].removeprefix("HOST: "), *(line for line in lines[1:] if line != "where: HOST")])


@dataclass
class RepeatedErrors:
    """Collects failures as they come in, and finds equal errors."""

    since: float = float("inf")  # when the first of those came that are not yet printed
    _seen: set[str] = field(default_factory=set)
    _others: dict[str, list[str]] = field(default_factory=dict)

    def first(self, failed: Failed, now: float) -> str:
        """The first line of an error that no host had before; "" for a repeated error, which others() will report."""
        if failed.plain in self._seen:
            self._others.setdefault(failed.plain, []).append(failed.host)
            self.since = min(self.since, now)
            return ""
        self._seen.add(failed.plain)
        return failed.error.splitlines()[0].removeprefix(f"{failed.host}: ")

    def others(self) -> list[str]:
        """A line for each error that more hosts had since the last call."""
        lines = []
        for plain, hosts in self._others.items():
            what = plain.splitlines()[0]
            lines.append(f"{len(hosts)} more host{'s' * (len(hosts) > 1)}: {what}: {names(hosts)}")
        self._others.clear()
        self.since = float("inf")
        return lines


def names(hosts: Sequence[str]) -> str:
    """ "web1, web2 and 10 more"."""
    if len(hosts) <= ALL_NAMED:
        return ", ".join(hosts)
    return f"{', '.join(hosts[:NAMED])} and {len(hosts) - NAMED} more"


def groups(failures: Sequence[Failed]) -> list[list[Failed]]:
    """Failures grouped by equal errors, in the order in which each error first came."""
    by_error: dict[str, list[Failed]] = {}
    for failed in failures:
        by_error.setdefault(failed.plain, []).append(failed)
    return list(by_error.values())
