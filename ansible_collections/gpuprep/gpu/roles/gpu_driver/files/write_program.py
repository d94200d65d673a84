"""Writes the program of the way back, which stdin has in base64, to the path given as argument. Says whether it changed it."""

import base64
import os
import sys
from pathlib import Path

path = Path(sys.argv[1])
content = base64.b64decode(sys.stdin.read())
if not path.is_file() or path.read_bytes() != content:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    new = path.with_name(".program.new")
    with new.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    print("changed")
