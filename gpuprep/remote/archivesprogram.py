"""Tries package archives on a host. Sent as text and run by root's python3; the question is on stdin.

apt or dnf reads the host's own sources and those of the question, without its locks, lists and hooks; nothing is
installed. remote/archives.py has the question's fields. The answer:
{"offers": ["NAME | VERSION"], "said": [a complaint of apt or dnf], "lacking": {NAME of a URL or a wheel: why},
"untried": [NAME of a wheel]}.
"""

from __future__ import annotations

import configparser
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any

UPDATE_SECONDS, EACH_SECONDS = 240, 20
MOST_OFFERS, MOST_SAID, MOST_LETTERS, MOST_BYTES = 4000, 20, 300, 16 << 20
# Hooks of an image (Ubuntu has some) would write outside of the scratch folder.
APT = """\
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "{0}/parts";
Dir::State::Lists "{0}/lists";
Dir::Cache "{0}/cache";
APT::Sandbox::User "root";
Acquire::Retries "1";
Acquire::http::Timeout "{1}";
Acquire::https::Timeout "{1}";
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::CNF::DefaultEnabled "false";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
"""
ENTRY = "Types: deb\nURIs: {0}\nSuites: /\nArchitectures: amd64\nSigned-By: {1}\n"
PIP_CONF = ("/etc/pip.conf", "/etc/xdg/pip/pip.conf")
# pip's own index, in its own words: it is asked where nobody has set another.
OWN_INDEX = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"


def main(question: dict[str, Any]) -> None:
    scratch = Path(tempfile.mkdtemp(prefix="gpuprep-try."))
    try:
        manager = _apt if shutil.which("apt-get") else _dnf
        offers, said = manager(scratch, question) if question["packages"] else ([], [])
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    index = _index() if question["wheels"] else ""
    answer = {
        "offers": [line[:MOST_LETTERS] for line in offers[:MOST_OFFERS]],
        "said": [line[:MOST_LETTERS] for line in said[:MOST_SAID]],
        "lacking": {**_unreachable(question["urls"]), **(_no_wheels(index, question["wheels"]) if index else {})},
        "untried": [] if index else list(question["wheels"]),
    }
    json.dump(answer, sys.stdout)


def _apt(scratch: Path, question: dict[str, Any]) -> tuple[list[str], list[str]]:
    repositories, parts = question["repositories"], scratch / "parts"
    for folder in (parts, scratch / "lists/partial", scratch / "cache/archives/partial"):
        folder.mkdir(parents=True)
    instead = [repository["instead"] for repository in repositories]
    for file in (Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")):
        if file.suffix in (".list", ".sources") and file.is_file() and file.name not in instead:
            shutil.copy(file, parts / f"own-{file.name}")
    for number, repository in enumerate(repositories):
        key = scratch / f"key{number}.asc"
        key.write_text(repository["key"], encoding="utf-8")
        (parts / f"try{number}.sources").write_text(ENTRY.format(repository["uri"], key), encoding="utf-8")
    if question["components"]:
        (parts / "components.sources").write_text(_components(question), encoding="utf-8")
    settings = scratch / "conf"
    settings.write_text(APT.format(scratch, EACH_SECONDS), encoding="utf-8")
    _, complaints = _run(["apt-get", "-c", str(settings), "-q", "update"])
    offers, _ = _run(["apt-cache", "-c", str(settings), "madison", *question["packages"]])
    lines = [" | ".join(word.strip() for word in line.split("|")[:2]) for line in offers.splitlines()]
    return lines, [line for line in complaints.splitlines() if line.startswith(("E: ", "W: "))]


def _components(question: dict[str, Any]) -> str:
    """As the role adds them (templates/components.sources.j2): from the machine's own mirrors."""
    words = ["missing", question["codename"], ",".join(question["components"])]
    missing, _ = _run(["python3", "-I", "-S", "-c", question["reader"], *words])
    entries = []
    for entry in json.loads(missing or "[]"):
        signed = f"Signed-By: {entry['signed_by']}\n" if entry["signed_by"] else ""
        place = f"URIs: {entry['uri']}\nSuites: {entry['suite']}\nComponents: {' '.join(entry['components'])}\n"
        entries.append(f"Types: deb\n{place}{signed}")
    return "\n".join(entries)


def _dnf(scratch: Path, question: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Streams and locks choose among what is offered; here it is asked what is offered at all."""
    words = ["dnf", "-q", "--disableplugin=versionlock", f"--setopt=cachedir={scratch}", "--setopt=retries=2"]
    words += [f"--setopt=timeout={EACH_SECONDS}", "--setopt=*.skip_if_unavailable=true"]
    for number, repository in enumerate(question["repositories"]):
        words.append(f"--repofrompath=gpuprep-try{number},{repository['uri']}")
        if Path(f"/etc/yum.repos.d/{repository['instead']}.repo").exists():
            words.append(f"--disablerepo={repository['instead']}")
    words += ["--setopt=*.module_hotfixes=true", "repoquery", "--qf", "%{name} | %{version}\\n", *question["packages"]]
    offers, complaints = _run(words)
    lines = sorted({line for line in offers.splitlines() if " | " in line})
    return lines, [line for line in complaints.splitlines() if re.search("(?i)error|fail|cannot|curl", line)]


def _run(words: list[str]) -> tuple[str, str]:
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=UPDATE_SECONDS, env=environment
        )
    except subprocess.TimeoutExpired:
        return "", f"E: {words[0]} did not end in {UPDATE_SECONDS} seconds"
    return done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")


def _unreachable(urls: dict[str, str]) -> dict[str, str]:
    said = {name: _read(url, 1)[1] for name, url in urls.items()}
    return {name: why for name, why in said.items() if why}


def _no_wheels(index: str, wheels: dict[str, str]) -> dict[str, str]:
    """As pip finds wheels: by the index that root's pip is set to, which --isolated leaves as it is."""
    lacking = {}
    for name, version in wheels.items():
        url = f"{index}/{name}/"
        if url.startswith("file:"):  # as pip does
            url += "index.html"
        page, why = _read(url, MOST_BYTES)
        if not why and f"{name.replace('-', '_')}-{version}-" not in page:
            why = f"{url} has no {name} {version}"
        if why:
            lacking[name] = why
    return lacking


def _index() -> str:
    """Its address; "" where pip is not there yet and nobody has set one."""
    settings = configparser.RawConfigParser()
    try:
        settings.read(PIP_CONF, encoding="utf-8")
        return settings.get("global", "index-url").strip().rstrip("/")
    except (configparser.Error, UnicodeDecodeError):
        return _run(["python3", "-I", "-c", OWN_INDEX])[0].strip()


def _read(url: str, most: int) -> tuple[str, str]:
    """(at most so many bytes of what is there, why it could not be read)."""
    try:
        with urllib.request.urlopen(url, timeout=EACH_SECONDS) as answer:
            return answer.read(most).decode("utf-8", "replace"), ""
    except (OSError, ValueError) as error:
        return "", f"{url}: {getattr(error, 'reason', error)}"[:MOST_LETTERS]


if __name__ == "__main__":
    main(json.load(sys.stdin))
