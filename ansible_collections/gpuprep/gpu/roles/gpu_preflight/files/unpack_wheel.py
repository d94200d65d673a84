"""Verifies a wheel of NVIDIA's (cuDNN, NCCL) and puts its libraries and headers in place, in one rename.

Arguments: the scratch folder (the wheel is in its folder wheel/), the final folder, the version, CUDA's major version,
the wheel's sha256, and the name of its folder below nvidia/ (cudnn, nccl). Stdlib only, Python 3.9 or newer.
"""

import hashlib
import json
import re
import shutil
import sys
import zipfile
from pathlib import Path


def sha256(path):
    digest = hashlib.sha256()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def main():
    scratch, final, version, major, wanted, library_name = Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]
    wheels = list((scratch / "wheel").glob("*.whl"))
    if len(wheels) != 1:
        sys.exit(f"pip brought {len(wheels)} wheels instead of one")
    found = sha256(wheels[0])
    if found != wanted:
        sys.exit(f"{wheels[0].name} has sha256 {found}, not {wanted}: it is not the file that was published")
    new = scratch / "new"
    files = {}
    with zipfile.ZipFile(wheels[0]) as wheel:
        for name in wheel.namelist():
            match = re.match(rf"nvidia/{library_name}/((?:include|lib)/(?:\w[\w-]*/)*[^/]+\.(?:h|so[.\d]*))$", name)
            if not match:
                continue
            path = new / match.group(1)
            path.parent.mkdir(parents=True, exist_ok=True)
            with wheel.open(name) as source, path.open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
            path.chmod(0o755 if ".so" in path.name else 0o644)
            files[match.group(1)] = {"size": path.stat().st_size, "sha256": sha256(path)}
    if not files:
        sys.exit(f"{wheels[0].name} holds no libraries under nvidia/{library_name}")
    for library in (new / "lib").glob("*.so.*"):
        # What `-lcudnn` and `-lnccl` look for.
        plain = library.with_name(library.name.split(".so.")[0] + ".so")
        if not plain.exists():
            plain.symlink_to(library.name)
    manifest = {
        "version": version,
        "cuda_major": major,
        "wheel": wheels[0].name,
        "wheel_sha256": wanted,
        "files": files,
    }
    (new / "manifest.json").write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
    for folder in (new, *(path for path in new.rglob("*") if path.is_dir())):
        folder.chmod(0o755)
    if final.exists():
        final.rename(scratch / "old")
    new.rename(final)


main()
