"""Unpacks the agent's bundle, a zip in base64 on stdin, into the site-packages of the environment given as argument.

Compiled here once, because an ordinary user who runs the agent may not write there and would compile it each time.
"""

import base64
import compileall
import io
import sys
import zipfile
from pathlib import Path

bundle = base64.b64decode(sys.stdin.read())
site = next(Path(sys.argv[1]).glob("lib/python3*/site-packages"))
zipfile.ZipFile(io.BytesIO(bundle)).extractall(site)
compileall.compile_dir(str(site / "gpuprep"), quiet=1)
