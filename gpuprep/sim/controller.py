"""Reads what machines inherit from this computer: package mirror, proxies, certificates, pip's settings.

The machine uses the same network: behind an intercepting proxy neither apt, pip nor https work without the
controller's own settings.
"""

from __future__ import annotations

import configparser
import os
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

CODENAMES = ("bullseye", "bookworm", "trixie", "forky", "sid", "stable", "testing", "oldstable", "unstable")
PROXY_VARIABLES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy")
CERTIFICATE_VARIABLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PIP_CERT")
SYSTEM_BUNDLES = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


@dataclass(frozen=True)
class Source:
    """One archive of an apt source: its address and suites."""

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]


@dataclass(frozen=True)
class Mirrors:
    """Debian's archive and its security archive, or None if this computer has none configured."""

    debian: str | None
    security: str | None


def parse_deb822(text: str) -> list[Source]:
    """Sources of a `.sources` file; disabled stanzas and comments are left out."""
    sources = []
    body = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for stanza in re.split(r"\n\s*\n", body):
        fields: dict[str, str] = {}
        key = ""
        for line in stanza.splitlines():
            if line[:1].isspace() and key:
                fields[key] += " " + line.strip()
            elif ":" in line:
                key, value = line.split(":", 1)
                key = key.strip().lower()
                fields[key] = value.strip()
        if "deb" not in fields.get("types", "").split() or fields.get("enabled", "yes").lower() == "no":
            continue
        for uri in fields.get("uris", "").split():
            sources.append(
                Source(uri, tuple(fields.get("suites", "").split()), tuple(fields.get("components", "").split()))
            )
    return sources


def parse_one_line(text: str) -> list[Source]:
    """Sources of a `sources.list` file."""
    sources = []
    for line in text.splitlines():
        match = re.match(r"\s*deb\s+(?:\[[^\]]*\]\s+)?(\S+)\s+(\S+)\s*([^#]*)", line)
        if match:
            sources.append(Source(match[1], (match[2],), tuple(match[3].split())))
    return sources


def read_sources(apt: Path) -> list[Source]:
    """All sources under an `/etc/apt` folder."""
    sources = parse_one_line(_text(apt / "sources.list"))
    for path in sorted((apt / "sources.list.d").glob("*")):
        if path.suffix == ".sources":
            sources += parse_deb822(_text(path))
        elif path.suffix == ".list":
            sources += parse_one_line(_text(path))
    return sources


def find_mirrors(sources: Iterable[Source]) -> Mirrors:
    """The Debian mirror and the security mirror among apt sources."""
    debian = security = None
    for source in sources:
        if "main" not in source.components or not source.uri.startswith(("http://", "https://")):
            continue
        for suite in source.suites:
            codename, _, pocket = suite.partition("-")
            if codename not in CODENAMES:
                codename, _, pocket = suite.partition("/")
            if codename not in CODENAMES:
                continue
            if pocket.startswith(("security", "updates")) and "security" in source.uri + pocket:
                security = security or source.uri
            elif pocket == "":
                debian = debian or source.uri
    return Mirrors(debian, security)


def mirrors(apt: Path = Path("/etc/apt")) -> Mirrors:
    return find_mirrors(read_sources(apt))


def proxies(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Proxy variables in lower case; apt's own proxy setting where the environment has none."""
    variables = {}
    for name in PROXY_VARIABLES:
        value = environment.get(name) or environment.get(name.upper())
        if value:
            variables[name] = value
    for scheme in ("http", "https"):
        if f"{scheme}_proxy" not in variables:
            value = _apt_setting(f"Acquire::{scheme}::Proxy")
            if value and value.upper() != "DIRECT":
                variables[f"{scheme}_proxy"] = value
    return variables


def _apt_setting(name: str) -> str:
    try:
        done = subprocess.run(
            ["apt-config", "dump", "--format=%v%n", name], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return ""
    return done.stdout.strip().splitlines()[0] if done.stdout.strip() else ""


def certificates(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Every certificate this computer trusts, PEM, without repetition."""
    files = [environment.get(name, "") for name in CERTIFICATE_VARIABLES] + list(SYSTEM_BUNDLES)
    pems: dict[str, None] = {}
    for name in files:
        if name and Path(name).is_file():
            for pem in CERTIFICATE.findall(Path(name).read_text(encoding="utf-8", errors="replace")):
                pems.setdefault(pem + "\n")
    return list(pems)


def pip_settings(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """pip's index and time-out of this computer, without local folders and file: addresses, which stay here."""
    settings: dict[str, str] = {}
    home = Path(environment.get("HOME", "/"))
    for path in (Path("/etc/pip.conf"), home / ".pip/pip.conf", home / ".config/pip/pip.conf"):
        parser = configparser.ConfigParser(interpolation=None)
        parser.read_string(_text(path) or "[global]")
        if parser.has_section("global"):
            settings.update(parser.items("global"))
    for key in ("index-url", "extra-index-url", "trusted-host", "default-timeout", "timeout"):
        value = environment.get("PIP_" + key.upper().replace("-", "_"))
        if value:
            settings[key] = value
    kept = {}
    for key in ("index-url", "extra-index-url", "trusted-host", "timeout", "default-timeout"):
        words = [word for word in settings.get(key, "").split() if not word.startswith(("file:", "/"))]
        if words:
            kept["timeout" if key == "default-timeout" else key] = " ".join(words)
    return kept


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, PermissionError, IsADirectoryError):
        return ""
