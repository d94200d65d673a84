"""Words of a host that mean something in each format."""

from __future__ import annotations

HOSTILE = "</script><b>x & \"q\" 'a' | `c` @all #1\n# HELP \\ \x1b[31m \x00"
