"""Is the cuDNN in a folder the one of a wheel? Prints "intact", or what is wrong. Changes nothing.

Arguments: the folder, the sha256 of the wheel. Sizes are compared, not digests: 1.3 GiB would take seconds a run.
Stdlib only, Python 3.9 or newer.
"""

import json
import sys
from pathlib import Path


def verdict(folder, digest):
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        if manifest["wheel_sha256"] != digest:
            return "it is of another wheel"
        sizes = {name: entry["size"] for name, entry in manifest["files"].items()}
    except OSError:
        return "it is not there"
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return "its manifest.json is damaged"
    for name, size in sizes.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != size:
            return f"{name} is missing or changed"
    return "intact"


sys.stdout.write(verdict(Path(sys.argv[1]), sys.argv[2]))
