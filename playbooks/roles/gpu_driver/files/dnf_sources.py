"""Whether a file of somebody else already names a repository of dnf: prints true or false. Changes nothing.

Argument: the repository's address. Another argument, for tests: another folder than /etc/yum.repos.d.
Stdlib only, Python 3.9 or newer.
"""

import configparser
import json
import sys
from pathlib import Path

OWN = "gpuprep-nvidia.repo"


def known(uri, folder):
    for path in sorted(folder.glob("*.repo")):
        if path.name == OWN:
            continue
        parser = configparser.ConfigParser(interpolation=None, strict=False)
        try:
            parser.read_string(path.read_text(encoding="utf-8", errors="replace"))
        except configparser.Error:
            continue  # dnf does not read it either
        for name in parser.sections():
            addresses = parser.get(name, "baseurl", fallback="").replace(",", " ").split()
            enabled = parser.get(name, "enabled", fallback="1").strip().lower() not in ("0", "no", "false", "off")
            if enabled and uri.rstrip("/") in {address.rstrip("/") for address in addresses}:
                return True
    return False


json.dump(known(sys.argv[1], Path(*sys.argv[2:] or ["/etc/yum.repos.d"])), sys.stdout)
