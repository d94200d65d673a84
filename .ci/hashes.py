"""Writes the sha256 of every wheel that the pins of requirement files may bring, into the same files.

    python .ci/hashes.py FILE...

Lines "name==version" and comments are kept as they are written by hand. pip is asked, for each Python and machine that
gpuprep serves, which wheel it would take and what its sha256 is; of most packages it downloads nothing for that.
x86_64 must have a wheel of every package for each of PYTHONS; all else may lack some, and is said.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PYTHONS = ("3.11", "3.12", "3.13")
# Where gpuprep itself is built, which is not where its agent runs; and Ubuntu 26.04.
FURTHER = {"requirements-build.txt": ("3.10", "3.14")}
NEWEST = ("3.14",)
MACHINES = ("x86_64", "aarch64")
NEEDED = "x86_64"
# glibc's minor versions: Debian 12 has 2.36, and what runs there runs on all that is newer.
GLIBC = range(36, 4, -1)
_PIN = re.compile(r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[A-Za-z0-9.+!]+)")

Hashes = dict[str, set[str]]  # pin ► hex digits


def normal(name: str) -> str:
    """The one spelling of a package's name."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(text: str) -> list[str]:
    """The lines "name==version" of a requirements file, in its order."""
    return [found[0] for line in text.splitlines() if (found := _PIN.match(line))]


def ask(wanted: list[str], python: str, machine: str) -> Hashes | None:
    """What pip would take of `wanted` there, or None where it lacks one of them."""
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in GLIBC] + [f"manylinux2014_{machine}"]
    command = [
        sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--only-binary=:all:", "--dry-run", "--ignore-installed", "--report=-", "--target=unused",
        "--implementation=cp", f"--python-version={python}", *(f"--platform={name}" for name in platforms), *wanted,
    ]  # fmt: skip
    # Another index or folder of this computer would be asked, too.
    environment = {name: value for name, value in os.environ.items() if name not in ("PIP_FIND_LINKS", "PYTHONPATH")}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**environment, "PIP_EXTRA_INDEX_URL": ""}
    )
    if done.returncode:
        if "No matching distribution" not in done.stderr:
            raise SystemExit(f"pip failed: {done.stderr.strip()}")
        return None
    spelling = {normal(pin.partition("==")[0]): pin for pin in wanted}
    found: Hashes = {}
    for item in json.loads(done.stdout)["install"]:
        pin = spelling[normal(item["metadata"]["name"])]
        found.setdefault(pin, set()).add(item["download_info"]["archive_info"]["hashes"]["sha256"])
    return found


def hashes(wanted: list[str], further: tuple[str, ...]) -> Hashes:
    """The hashes of all wheels of `wanted`, over all machines, PYTHONS and the `further` ones."""
    places = [(python, machine) for machine in MACHINES for python in (*PYTHONS, *further)]
    total: Hashes = {pin: set() for pin in wanted}
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda place: ask(wanted, *place), places))
    for place, answer in zip(places, answers, strict=True):
        parts = [answer] if answer is not None else [ask([pin], *place) for pin in wanted]
        found = {pin: digests for part in parts if part is not None for pin, digests in part.items()}
        lacking = [pin for pin in wanted if pin not in found]
        if lacking and place[1] == NEEDED and place[0] in PYTHONS:
            raise SystemExit(f"no wheel of {', '.join(lacking)} for Python {place[0]} on {place[1]}")
        for pin in lacking:
            print(f"no wheel of {pin} for Python {place[0]} on {place[1]}", file=sys.stderr)
        for pin, digests in found.items():
            total[pin] |= digests
    return total


def written(text: str, known: Hashes) -> str:
    """The file's text with these hashes in place of those that it had."""
    lines: list[str] = []
    for line in text.splitlines():
        if found := _PIN.match(line):
            digests = [f"    --hash=sha256:{digest}" for digest in sorted(known[found[0]])]
            lines += [" \\\n".join([found[0], *digests])]
        elif not line.startswith("    --hash="):
            lines.append(line)
    return "\n".join(lines) + "\n"


def main() -> None:
    for name in sys.argv[1:]:
        path = Path(name)
        text = path.read_text(encoding="utf-8")
        path.write_text(written(text, hashes(pins(text), FURTHER.get(path.name, NEWEST))), encoding="utf-8")
        print(f"{path}: {len(pins(text))} packages")


if __name__ == "__main__":
    main()
