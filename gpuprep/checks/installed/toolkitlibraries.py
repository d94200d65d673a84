"""Do programs get the installed toolkit's libraries, or does an older copy come first on the loader's path?"""

from __future__ import annotations

import posixpath

from gpuprep.checks import byhand
from gpuprep.checks.common import provision, skip, unknown
from gpuprep.checks.installed.toolkit import CUDA_ROLE, OF_ROLE
from gpuprep.records import Finding, Missing, Snapshot, Status

# cuDNN has a check of its own; the driver's libraries do not come with the toolkit.
STEMS = ("libcublas.so.", "libcublasLt.so.", "libcudart.so.", "libnvJitLink.so.", "libnvrtc.so.")
REMEDY = (
    "take the other folder off LD_LIBRARY_PATH and /etc/ld.so.conf.d, run ldconfig, and start programs in a new shell"
)


def toolkit_libraries(snapshot: Snapshot) -> list[Finding]:
    """FAIL for libraries that come from elsewhere; [] without a toolkit (see cuda.*). Unknown libraries are ignored."""
    cuda, expected = snapshot.cuda, "the installed toolkit's"
    if cuda.nvcc_path is None or cuda.nvcc_version is None:
        return []
    if isinstance(cuda.nvcc_version, Missing):
        why = "the toolkit's version is not known: cuda.version reports why"
        return [skip("cuda", "libraries", expected=expected, actual="not compared", reason=why)]
    nowhere = Missing("not_read", f"no folder of libraries belongs to {cuda.nvcc_path}")
    folders = cuda.nvcc_path if isinstance(cuda.nvcc_path, Missing) else cuda.library_folders or nowhere
    if isinstance(folders, Missing):
        what, nvcc = "where the toolkit's libraries are", str(cuda.nvcc_path)
        another = nvcc.startswith("/") and not nvcc.startswith(OF_ROLE)
        remedy = byhand.in_the_way(snapshot, nvcc, "") if another else provision(CUDA_ROLE)
        return [unknown("cuda", "libraries", folders, expected=expected, what=what, remedy=remedy)]
    major = cuda.nvcc_version.split(".")[0]
    names = [name for name in snapshot.libraries if any(_is(name, stem, major) for stem in STEMS)]
    wrong, strangers = [], []
    for name in names:
        path = snapshot.libraries[name]
        if isinstance(path, Missing):
            what = f"where the loader finds {name}"
            return [
                unknown("cuda", "libraries", path, expected=expected, what=what, remedy="`/sbin/ldconfig -p` says why")
            ]
        if path is not None and not any(_inside(path, folder) for folder in folders):
            wrong.append(f"{name} from {path}")
            strangers.append(path)
    shown = " or ".join(folders)
    if not wrong:
        return [Finding("cuda", "libraries", Status.PASS, expected, f"{len(names)} from {shown}")]
    why = f"programs get {', '.join(wrong)}, and the toolkit of {cuda.nvcc_path} keeps its libraries in {shown}"
    return [
        Finding(
            "cuda",
            "libraries",
            Status.FAIL,
            expected,
            ", ".join(wrong),
            why,
            byhand.off_the_loader(snapshot, strangers) or REMEDY,
        )
    ]


def _is(name: str, stem: str, major: str) -> bool:
    return name.startswith(stem) and name[len(stem) :].split(".")[0] == major


def _inside(path: str, folder: str) -> bool:
    return posixpath.normpath(path).startswith(posixpath.normpath(folder).rstrip("/") + "/")
