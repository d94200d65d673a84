"""Does a file of somebody else already name a repository of dnf? Changes nothing.

Prints null (none does), "" (one does), or what has dnf install from there without a check of signatures: "gpgcheck=0".
As agent/facts/repositories.py reads it. Argument: the repository's address. Others, for tests: another folder than
/etc/yum.repos.d, another file than /etc/dnf/dnf.conf. Stdlib only, Python 3.9 or newer.
"""

import configparser
import json
import sys
from pathlib import Path

OWN = "gpuprep-nvidia.repo"


OFF = ("0", "no", "false", "off")


def sections(path):
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, configparser.Error):
        return configparser.ConfigParser()  # dnf does not read it either
    return parser


def known(uri, folder, settings):
    default = sections(settings).get("main", "gpgcheck", fallback="0")
    answer = None
    for path in sorted(folder.glob("*.repo")):
        parser = sections(path)
        for name in parser.sections() if path.name != OWN else ():
            addresses = parser.get(name, "baseurl", fallback="").replace(",", " ").split()
            enabled = parser.get(name, "enabled", fallback="1").strip().lower() not in OFF
            if enabled and uri.rstrip("/") in {address.rstrip("/") for address in addresses}:
                checked = parser.get(name, "gpgcheck", fallback=default).strip().lower() not in OFF
                answer = answer or ("" if checked else f"gpgcheck=0 in {path}")
    return answer


uri, *places = sys.argv[1:]
folder, settings = [*places, *("/etc/yum.repos.d", "/etc/dnf/dnf.conf")[len(places) :]]
json.dump(known(uri, Path(folder), Path(settings)), sys.stdout)
