"""Reads the machine's apt sources, in both formats, and prints an answer about them as JSON. Changes nothing.

missing CODENAME COMPONENTS   what the machine's own mirrors lack of the components (comma-separated):
                              [{"uri", "suite", "components": [missing ones], "signed_by"}]. Only mirrors that already
                              give `main` count. `signed_by` is repeated from the machine's own entry, because apt
                              refuses two entries of one archive that differ in it.
of URI                        whether a file of somebody else already names this archive: null (none does), "" (one does), or
                              what has apt install from there without a check of signatures: "trusted=yes"

The module apt_sources asks the same; gpuprep also runs this file as a script, on a machine that it only looks at.
Stdlib only, Python 3.9 or newer.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

# As agent/facts/repositories.py, which is not there where a role runs alone: tests compare.
UNVERIFIED = re.compile(
    r"(?im)(?:^|[\[\s])((?:trusted|allow-insecure|allow-weak|allow-downgrade-to-insecure)\s*[=:]\s*(?:yes|true|on|1))\b"
)
OWN = ("gpuprep.sources", "gpuprep-nvidia.sources")


def unverified(text):
    found = UNVERIFIED.search(text)
    return " ".join(found[1].split()) if found else ""


def one_line_entries(text):
    """`deb [signed-by=KEY] URI SUITE COMPONENT...`; a flat repository has the suite `/` and no component."""
    for line in text.splitlines():
        match = re.match(r"\s*deb\s+(?:\[([^]]*)\]\s+)?(\S+)\s+([^\s#]+)([^#]*)", line)
        if match:
            options, uri, suite, components = match.groups()
            signed_by = re.search(r"signed-by=(\S+)", options or "")
            yield (
                uri,
                suite,
                components.split(),
                signed_by.group(1) if signed_by else "",
                unverified(f"[{options or ''}"),
            )


def deb822_entries(text):
    """Stanzas of `Field: value`, with continuation lines; a key may stand in Signed-By itself."""
    for stanza in re.split(r"\n\s*\n", re.sub(r"(?m)^#.*\n?", "", text)):
        found = re.findall(r"(?m)^([\w-]+):[ \t]*((?:.*)(?:\n[ \t].*)*)", stanza)
        fields = {name.lower(): value.strip("\n") for name, value in found}
        off = fields.get("enabled", "yes").strip().lower() in ("no", "false")
        if off or "deb" not in fields.get("types", "").split():
            continue
        for uri in fields.get("uris", "").split():
            for suite in fields.get("suites", "").split():
                yield (
                    uri,
                    suite,
                    fields.get("components", "").split(),
                    fields.get("signed-by", "").rstrip(),
                    unverified(stanza),
                )


def entries(folder):
    parts = sorted((folder / "sources.list.d").glob("*")) if (folder / "sources.list.d").is_dir() else []
    for path in [folder / "sources.list", *parts]:
        if path.name in OWN or not path.is_file():
            continue
        if path.suffix == ".list":
            yield from one_line_entries(path.read_text())
        elif path.suffix == ".sources":
            yield from deb822_entries(path.read_text())


def missing(folder, codename, wanted):
    suites = (codename, codename + "-updates", codename + "-security")
    present = {}
    for uri, suite, components, signed_by, _ in entries(folder):
        if suite in suites:
            known, _ = present.setdefault((uri.rstrip("/"), suite), (set(), signed_by))
            known.update(components)
    return [
        {
            "uri": uri,
            "suite": suite,
            "components": [name for name in wanted if name not in known],
            "signed_by": signed_by,
        }
        for (uri, suite), (known, signed_by) in present.items()
        if "main" in known and not known.issuperset(wanted)
    ]


def known(folder, uri):
    """Whether somebody else's file names this archive: None, "" or what switches the check of signatures off there."""
    found = [how for address, *_, how in entries(folder) if address.rstrip("/") == uri.rstrip("/")]
    return max(found, default=None)


def main():
    question, *words = sys.argv[1:]
    folder = Path("/etc/apt")
    json.dump(
        missing(folder, words[0], words[1].split(",")) if question == "missing" else known(folder, *words), sys.stdout
    )


if __name__ == "__main__":
    main()
