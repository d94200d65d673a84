"""Is the cuDNN in a folder the one of a wheel? Prints "intact", or what is wrong. Changes nothing.

Arguments: the folder, the sha256 of the wheel. Sizes are compared, and the digests of files that were changed after the
manifest was written, which is the last file: all of 1.3 GiB would take seconds a run.
Stdlib only, Python 3.9 or newer.
"""

import hashlib
import json
import sys
from pathlib import Path


def verdict(folder, digest):
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        if manifest["wheel_sha256"] != digest:
            return "it is of another wheel"
        files = {name: (entry["size"], entry["sha256"]) for name, entry in manifest["files"].items()}
        written = (folder / "manifest.json").stat().st_ctime_ns
    except OSError:
        return "it is not there"
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return "its manifest.json is damaged"
    for name, (size, right) in files.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != size:
            return f"{name} is missing or changed"
        if path.stat().st_ctime_ns > written and sha256(path) != right:
            return f"{name} was changed"
    return "intact"


def sha256(path):
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


sys.stdout.write(verdict(Path(sys.argv[1]), sys.argv[2]))
