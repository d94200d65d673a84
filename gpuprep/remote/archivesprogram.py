"""Tries package archives on a host. Sent as text and run by root's python3; the question is on stdin.

apt or dnf reads the host's own sources and those of the question, without its locks, lists and hooks; nothing is
installed. remote/archives.py has the question's fields. The answer:
{"offers": ["NAME | VERSION"], "said": [a complaint of apt or dnf], "lacking": {NAME of a repository or a wheel: why},
"untried": [NAME of a wheel, or what else could not be tried], "held": [what somebody holds and the step changes]}.
"""

from __future__ import annotations

import configparser
import hashlib
import http.client
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
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
ENTRY = "Types: deb\nURIs: {0}\nSuites: /\nArchitectures: {2}\nSigned-By: {1}\n"
PIP_CONF = ("/etc/pip.conf", "/etc/xdg/pip/pip.conf")
# pip's own index, in its own words: it is asked where nobody has set another.
OWN_INDEX = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
LOCKS = Path("/etc/dnf/plugins/versionlock.list")
KEYRING = "./usr/share/keyrings/cuda-archive-keyring.gpg"
# A key and its fingerprint, as `gpg --with-colons` prints them.
FINGERPRINT = r"(?m)^pub:.*\n(?:(?!pub:|fpr:).*\n)*fpr:+([0-9A-F]{40}):"
# NAME-EPOCH:VERSION-RELEASE.ARCH, as dnf names what a lock keeps away.
NEVRA = r"([A-Za-z0-9][A-Za-z0-9_.+-]*)-(?:[0-9]+:)?[^-\s]+-[^-\s]+[.](?:noarch|x86_64|aarch64)"


def main(question: dict[str, Any]) -> None:
    answer: dict[str, Any] = {"offers": [], "said": [], "lacking": {}, "untried": [], "held": []}
    # On a disk: the lists of a system have some hundred MB, and /tmp may be memory (Ubuntu 26.04, Debian 13).
    on_disk = "/var/tmp" if os.access("/var/tmp", os.W_OK) else None
    scratch = Path(tempfile.mkdtemp(prefix="gpuprep-try.", dir=os.environ.get("TMPDIR") or on_disk))
    try:
        if question["packages"]:
            (_apt if shutil.which("apt-get") else _dnf)(scratch, question, answer)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    index = _index() if question["wheels"] else ""
    if index:
        answer["lacking"].update(_no_wheels(index, question["wheels"]))
    else:
        answer["untried"] += question["wheels"]
    answer["offers"] = [line[:MOST_LETTERS] for line in answer["offers"][:MOST_OFFERS]]
    for key in ("said", "held", "untried"):
        answer[key] = [line[:MOST_LETTERS] for line in answer[key][:MOST_SAID]]
    json.dump(answer, sys.stdout)


def _apt(scratch: Path, question: dict[str, Any], answer: dict[str, Any]) -> None:
    repositories, parts = question["repositories"], scratch / "parts"
    for folder in (parts, scratch / "lists/partial", scratch / "cache/archives/partial"):
        folder.mkdir(parents=True)
    instead = [repository["instead"] for repository in repositories]
    for file in (Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")):
        if file.suffix in (".list", ".sources") and file.is_file() and file.name not in instead:
            shutil.copy(file, parts / f"own-{file.name}")
    architecture = _run(["dpkg", "--print-architecture"])[0].strip()
    for number, repository in enumerate(repositories):
        key, text = scratch / f"key{number}.asc", repository["key"].encode()
        if repository["fingerprint"]:
            key, (text, why) = scratch / f"key{number}.gpg", _keyring(scratch, repository)
            answer["lacking"].update({repository["name"]: why} if why else {})
        key.write_bytes(text)
        entry = ENTRY.format(repository["uri"], key, architecture)
        (parts / f"try{number}.sources").write_text(entry, encoding="utf-8")
    if question["components"]:
        (parts / "components.sources").write_text(_components(question), encoding="utf-8")
    settings = scratch / "conf"
    settings.write_text(APT.format(scratch, EACH_SECONDS), encoding="utf-8")
    _, complaints = _run(["apt-get", "-c", str(settings), "-q", "update"])
    offers, _ = _run(["apt-cache", "-c", str(settings), "madison", *question["packages"]])
    lines = [" | ".join(word.strip() for word in line.split("|")[:2]) for line in offers.splitlines()]
    held = set(_run(["apt-mark", "-c", str(settings), "showhold"])[0].split()) - set(question["own"])
    if held:
        there = ["dpkg-query", "-W", "-f", "${db:Status-Status} ${Package} | ${Version}\\n"]
        present = [line[len("installed ") :] for line in _run(there)[0].splitlines() if line.startswith("installed ")]
        words = ["-s", "--no-install-recommends", "--allow-downgrades", "--ignore-hold", "install"]
        names = [offer.replace(" | ", "=") for offer in _chosen(question, lines, present).values()]
        steps, _ = _run(["apt-get", "-c", str(settings), *words, *names])
        held &= set(re.findall(r"(?m)^(?:Inst|Remv) (\S+)", steps))
    complaints = complaints.replace(f"{parts}/own-", "/etc/apt/sources.list.d/")  # where its copy is from
    said = [line for line in complaints.splitlines() if line.startswith(("E: ", "W: "))]
    # Last: apt also says so of a list that it could not fetch, before it says that.
    said.sort(key=lambda line: line.endswith(" is not signed."))
    answer.update(offers=lines, said=said, held=sorted(held))


def _chosen(question: dict[str, Any], offers: list[str], present: list[str]) -> dict[str, str]:
    """Package ► its newest offer in the wanted version, without those that are installed so."""

    def fits(line: str) -> bool:
        name, _, version = line.partition(" | ")
        upstream, wanted = _upstream(version), question["versions"].get(name)
        return wanted is not None and (not wanted or upstream == wanted or upstream.startswith(f"{wanted}."))

    there = {line.partition(" | ")[0] for line in present if fits(line)}
    chosen: dict[str, str] = {}
    for line in sorted(filter(fits, offers), key=lambda line: [int(part) for part in re.findall("[0-9]+", line)]):
        name = line.partition(" | ")[0]
        if name not in there:
            chosen[name] = line
    return chosen


def _upstream(version: str) -> str:
    return version.split(":")[-1].split("-")[0].split("~")[0]


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


def _dnf(scratch: Path, question: dict[str, Any], answer: dict[str, Any]) -> None:
    """Asks for all offers, also those that module streams and locks hide."""
    words = ["dnf", f"--setopt=cachedir={scratch}/cache", "--setopt=retries=2", f"--setopt=timeout={EACH_SECONDS}"]
    words += ["--setopt=*.skip_if_unavailable=true", "--setopt=*.module_hotfixes=true"]
    free, lacking = "--disableplugin=versionlock", answer["lacking"]
    for number, repository in enumerate(question["repositories"]):
        name, key, why = f"gpuprep-try{number}", scratch / f"key{number}.asc", ""
        words.append(f"--repofrompath={name},{repository['uri']}")
        if Path(f"/etc/yum.repos.d/{repository['instead']}.repo").exists():
            words.append(f"--disablerepo={repository['instead']}")
        text = repository["key"]
        if repository["fingerprint"]:
            text, why = _key(repository)
        if why:
            lacking[repository["name"]] = why
        key.write_text(text, encoding="utf-8")
        if repository["lists"] and text:
            words += [f"--setopt={name}.repo_gpgcheck=1", f"--setopt={name}.gpgkey=file://{key}"]
    if question["epel"]:
        quiet = [*words, "-y", "-q", free]  # -y: dnf asks on stdout whether a list's key may be accepted
        has_dkms = re.search(r"(?m)^dkms-\d", _run([*quiet, "repoquery", "dkms"])[0])
        text, why = ("", "") if has_dkms else _epel(scratch, question["epel"], quiet)
        lacking.update({"epel": why} if why else {})
        if text:
            (scratch / "repos").mkdir()
            (scratch / "repos/epel.repo").write_text(text, encoding="utf-8")
            words.append(f"--setopt=reposdir=/etc/yum.repos.d,{scratch}/repos")
    off = _run(["dnf", "-q", "-C", "repolist", "--disabled"])[0].split("\n")[1:] if question["off"] else []
    switched = [name for line in off if re.match(question["off"], name := line.partition(" ")[0])]
    words += [f"--enablerepo={name}" for name in switched]
    form = "%{name} | %{version} | %{name}-%{version}-%{release}.%{arch} | %{repoid} | %{size} | %{location}\\n"
    query = ["-y", free, "repoquery", "--qf", form]
    found, complaints = _run([*words, *query, *question["packages"]])
    headers = [name for name in question["packages"] if name.startswith("kernel") and "-devel-" in name]
    if question["vault"] and not any(f" | {name} | " in found for name in headers):
        words.append(f"--repofrompath=gpuprep-vault,{question['vault']}")
        more, complaint = _run([*words, *query, *headers])
        found, complaints = found + more, complaints + complaint
    rows = [row for line in sorted(set(found.splitlines())) if len(row := line.split(" | ")) == 6]
    rows = [row for row in rows if row[3] not in switched or row[0] in question["off_packages"]]
    named = {f"{row[name]} | {row[1]}": row for row in rows for name in (0, 2) if row[name] in question["packages"]}
    for number, repository in enumerate(question["repositories"]):
        own = [row for row in rows if row[3] == f"gpuprep-try{number}" and row[4].isdigit()]
        if own and not repository["lists"] and repository["name"] not in lacking:
            address = f"{repository['uri'].rstrip('/')}/{min(own, key=lambda row: int(row[4]))[5]}"
            package, why = _read(address, MOST_BYTES)
            (scratch / "signed.rpm").write_bytes(package)
            if why:
                answer["untried"].append(f"the signature of {why}")
            elif why := _not_signed(scratch, scratch / f"key{number}.asc"):
                lacking[repository["name"]] = f"{address} {why}"
    said = [line for line in complaints.splitlines() if re.search("(?i)error|fail|cannot|curl|signature", line)]
    answer.update(offers=sorted(named), said=said, held=_locked(words, question, named))


def _keyring(scratch: Path, repository: dict[str, Any]) -> tuple[bytes, str]:
    """(NVIDIA's key, why it is not to be had): it comes in a deb package, which is trusted by its sha256."""
    content, why = _read(repository["key"], MOST_BYTES)
    if not why and hashlib.sha256(content).hexdigest() != repository["fingerprint"]:
        why = f"{repository['key']} is not NVIDIA's package with its key (sha256 {repository['fingerprint']})"
    if why:
        return b"", why
    package = scratch / "keyring.deb"
    package.write_bytes(content)
    tree = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(package)], capture_output=True, check=False).stdout
    with tarfile.open(fileobj=io.BytesIO(tree)) as files:
        member = files.extractfile(KEYRING)
        return (member.read() if member else b""), ""


def _key(repository: dict[str, Any]) -> tuple[str, str]:
    """(NVIDIA's key, why it is not to be had): from the repository, and trusted as the role gpu_driver does."""
    content, why = _read(repository["key"], 1 << 16)
    text, pin = content.decode("utf-8", "replace"), repository["fingerprint"]
    if why:
        return "", why
    by_file = len(pin) == 64
    words = ["gpg", "--batch", "--no-options", "--no-default-keyring", "--with-colons", "--show-keys"]
    without_version = re.sub(rb"(?m)^Version.*\n", b"", content)
    found = [hashlib.sha256(without_version).hexdigest()] if by_file else re.findall(FINGERPRINT, _run(words, text)[0])
    if found == [pin]:
        return text, ""
    kind = "sha256 without the line Version" if by_file else "fingerprint"
    return "", f"{repository['key']} is not NVIDIA's key ({kind} {pin})"


def _epel(scratch: Path, package: str, dnf: list[str]) -> tuple[str, str]:
    """(the text of EPEL's repository as its package has it, why it is not to be had)."""
    address = package
    if "://" not in package:
        places = _run([*dnf, "repoquery", "--location", "--latest-limit=1", package])[0].split()
        if not places:
            return "", f"this host's repositories have no {package}"
        address = places[-1]
    content, why = _read(address, MOST_BYTES)
    if why:
        return "", why
    file = scratch / "epel.rpm"
    file.write_bytes(content)
    _run(["rpm2archive", str(file)])  # what it writes ends in .tgz
    try:
        with tarfile.open(f"{file}.tgz") as archive:
            repositories = [member for member in archive if member.name.endswith("/yum.repos.d/epel.repo")]
            found = archive.extractfile(repositories[0]) if repositories else None
            text = found.read(1 << 16).decode("utf-8", "replace") if found else ""
    except (OSError, tarfile.TarError, EOFError) as error:
        return "", f"{address}: {error}"
    return text, "" if text else f"{address} adds no repository"


def _not_signed(scratch: Path, key: Path) -> str:
    """Why dnf would not take a package of a repository with this key."""
    rpm = ["rpmkeys", "--dbpath", str(scratch / "rpmdb")]
    _run([*rpm, "--import", str(key)])
    said = _run([*rpm, "--checksig", str(scratch / "signed.rpm")])[0].strip()
    if re.search(r"\b(signatures|pgp|gpg)\b.* OK$", said):
        return ""
    return f"is not signed with the key of this repository (rpm says: {said.rpartition(': ')[2]})"


def _locked(dnf: list[str], question: dict[str, Any], named: dict[str, list[str]]) -> list[str]:
    """Lines of dnf's versionlock that are in the way, where the same step without locks would go through."""
    try:
        lines = [line.strip() for line in LOCKS.read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError:
        return []
    names = {line: re.sub(r"-(?:[0-9]+:)?[^-]+-[^-]+$", "", line.lstrip("!")) for line in lines if line[:1] not in "#"}
    own = {name for name in names.values() if name in question["own"]}
    there = _run(
        ["rpm", "-qa", "--qf", "%{NAME} | %{VERSION}\\n%{NAME}-%{VERSION}-%{RELEASE}.%{ARCH} | %{VERSION}\\n"]
    )[0]
    chosen = _chosen(question, list(named), there.splitlines())
    # The run releases its own locks; here they are in force, and would be named for somebody else's.
    wanted = [named[line][2] for name, line in chosen.items() if not (own and name in question["own"])]
    if not names or not wanted:
        return []
    step = ["--assumeno", "--setopt=install_weak_deps=False", "install", *wanted]
    could = "Operation aborted|Nothing to do"  # it was only asked
    if not re.search(could, "".join(_run([*dnf, "--disableplugin=versionlock", *step]))):
        return []
    said = "".join(_run([*dnf, *step]))
    kept_away = "" if re.search(could, said) else "\n".join(re.findall(".*filtered out.*", said))
    meant = re.findall(NEVRA, kept_away)
    return [line for line, name in names.items() if name in meant and name not in own]


def _run(words: list[str], stdin: str = "") -> tuple[str, str]:
    environment = {**os.environ, "LC_ALL": "C"}
    try:
        done = subprocess.run(
            words, input=stdin.encode(), capture_output=True, check=False, timeout=UPDATE_SECONDS, env=environment
        )
    except OSError as error:
        return "", f"E: {words[0]}: {error}"
    except subprocess.TimeoutExpired:
        return "", f"E: {words[0]} did not end in {UPDATE_SECONDS} seconds"
    return done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")


def _no_wheels(index: str, wheels: dict[str, str]) -> dict[str, str]:
    """As pip finds wheels: by the index that root's pip is set to, which --isolated leaves as it is."""
    lacking = {}
    for name, version in wheels.items():
        url = f"{index}/{name}/"
        if url.startswith("file:"):  # as pip does
            url += "index.html"
        page, why = _read(url, MOST_BYTES)
        if not why and f"{name.replace('-', '_')}-{version}-".encode() not in page:
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


def _read(url: str, most: int) -> tuple[bytes, str]:
    """(at most so many bytes of what is there, why it could not be read)."""
    try:
        with urllib.request.urlopen(url, timeout=EACH_SECONDS) as answer:
            return answer.read(most), ""
    except (OSError, ValueError, http.client.HTTPException) as error:
        return b"", f"{url}: {getattr(error, 'reason', error)}"[:MOST_LETTERS]


if __name__ == "__main__":
    main(json.load(sys.stdin))
