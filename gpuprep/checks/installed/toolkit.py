"""CUDA toolkit and cuDNN as a program would find them, in shells and by the loader."""

from __future__ import annotations

import re

from gpuprep import catalogue
from gpuprep.agent.host_paths import CUDA_PIN, ENVIRONMENT, LOGIN_ENVIRONMENT, PROGRAM_LINKS, SERVICE_ENVIRONMENT
from gpuprep.checks import byhand
from gpuprep.checks.common import check, inside, provision, skip, small_file, unknown
from gpuprep.checks.installed.driver import files, holds, pin
from gpuprep.desired.state import Wanted
from gpuprep.records import NOT_READ, Finding, Missing, OptStr, Snapshot, Status, Str

CUDA_ROLE, CUDNN_ROLE = "gpu_cuda", "gpu_cudnn"
OF_ROLE = (*(f"{folder}/" for folder in byhand.OF_THE_SYSTEM), "/usr/local/cuda")  # where a role's nvcc may be


def cuda(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    if wanted.cuda.version == "none":
        return [skip("cuda", "version", expected="none", actual="not checked", reason="the profile asks for no CUDA")]
    version, cupti = found(wanted, snapshot)
    absent = [name for name in wanted.cuda.packages if name not in snapshot.packages]
    if snapshot.cuda.nvcc_version is None and len(absent) == len(wanted.cuda.packages):
        return [version]
    shown = f"not installed: {', '.join(absent)}" if absent else "all installed"
    why = f"parts of the CUDA toolkit are missing, and builds that need them fail: {', '.join(absent)}"
    return [
        version,
        check(
            "cuda", "packages", len(absent), not absent, expected="all installed", shown=shown, why=why, role=CUDA_ROLE
        ),
        *files("cuda", snapshot, CUDA_ROLE),
        *_host_compiler(snapshot),
        cupti,
        *holds("cuda", wanted.cuda.packages, wanted.cuda.hold, snapshot, CUDA_ROLE, emptied=not wanted.driver.hold),
        *_pinned(wanted, snapshot),
    ]


def _host_compiler(snapshot: Snapshot) -> list[Finding]:
    """Whether nvcc accepts a compiler of the host; [] without nvcc, which cuda.version reports."""
    nvcc, refused = snapshot.cuda.nvcc_version, snapshot.cuda.compiler_refused
    if refused == NOT_READ or nvcc is None:
        return []
    if isinstance(nvcc, Missing):  # then it is not known which compilers nvcc accepts
        refused = nvcc
    expected = "one that nvcc accepts"
    shown = expected if refused is None else f"refused: {refused}"
    why = f"nvcc finds no C++ compiler that it accepts, so no CUDA program can be compiled: {refused}"
    ok, role = refused is None, CUDA_ROLE
    return [check("cuda", "host_compiler", refused, ok, expected=expected, shown=shown, why=why, role=role)]


def _pinned(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    """Whether packages are pinned that have one name for all toolkit versions and set the link /usr/local/cuda."""
    if not wanted.cuda.pin or snapshot.apt is None:
        return []
    why = "apt may take parts of another toolkit, and /usr/local/cuda would lead there"
    return [pin("cuda", snapshot, CUDA_PIN, r"(\S{1,40})", wanted.cuda.pin, why, CUDA_ROLE)]


def found(wanted: Wanted, snapshot: Snapshot) -> tuple[Finding, Finding]:
    """Findings on the toolkit that programs get, whoever installed it: nvcc's version and CUPTI."""
    facts = snapshot.cuda
    nvcc_version = catalogue.host_version(facts.nvcc_version)
    good = isinstance(nvcc_version, str) and catalogue.matches(nvcc_version, wanted.cuda.version)
    by_hand = "" if good else _in_the_way(wanted, snapshot)
    why = f"nvcc is of CUDA {facts.nvcc_version}: programs are built for another toolkit than {wanted.cuda.version}"
    if facts.nvcc_version is None:
        why = "no CUDA toolkit is installed (no nvcc): CUDA programs cannot be compiled"
    expected, role = wanted.cuda.version, "" if by_hand else CUDA_ROLE
    version = check("cuda", "version", nvcc_version, good, expected=expected, why=why, role=role, remedy=by_hand)
    ok = isinstance(facts.cupti_path, str)
    why = "the loader does not find libcupti: profilers cannot read the GPU's counters"
    cupti = check("cuda", "cupti", facts.cupti_path, ok, expected="found by the loader", why=why, role=CUDA_ROLE)
    return version, cupti


def _in_the_way(wanted: Wanted, snapshot: Snapshot) -> str:
    """How to make programs find the wanted toolkit's nvcc before another one; no role does that."""
    path = snapshot.cuda.nvcc_path
    absent = not wanted.installs or any(name not in snapshot.packages for name in wanted.cuda.packages)
    if absent or not isinstance(path, str) or path.startswith(OF_ROLE):
        return ""
    return byhand.in_the_way(snapshot, path, "")


def cudnn(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    if wanted.cudnn.version == "none":
        return [skip("cudnn", "version", expected="none", actual="not checked", reason="the profile asks for no cuDNN")]
    facts, role = snapshot.cudnn, CUDNN_ROLE
    path = facts.library_path
    if path is None:
        why = "the loader finds no cuDNN: frameworks that need it do not start"
        return [check("cudnn", "library", path, False, expected=wanted.cudnn_directory, why=why, role=role)]
    home = f"{wanted.cudnn_directory}/"
    wheel, major = facts.wheel_version, facts.cuda_major
    short = ".".join(wanted.cudnn.version.split(".")[:3])
    identity = next((part for part in (wheel, major) if isinstance(part, Missing)), f"{wheel} for CUDA {major}")
    ok = isinstance(path, str) and path.startswith(home)
    why = f"programs get another cuDNN than the profile's: {path}"
    library = check("cudnn", "library", path, ok, expected=wanted.cudnn_directory, why=why, role=role)
    ok = wheel == wanted.cudnn.version and major == wanted.cuda.major
    expected = f"{wanted.cudnn.version} for CUDA {wanted.cuda.major}"
    why = (
        f"programs get a cuDNN that is {wheel or 'of unknown origin'} for CUDA {major or 'unknown'}: speed and results"
        " may differ"
    )
    version = check("cudnn", "version", identity, ok, expected=expected, why=why, role=role)
    compiled = facts.version
    why = f"programs are compiled for cuDNN {compiled or 'none'} (the header) and run with {short} (the library)"
    header = check("cudnn", "header", compiled, compiled == short, expected=short, why=why, role=role)
    return [library, version, header, *_cudnn_files(snapshot)]


def _cudnn_files(snapshot: Snapshot) -> list[Finding]:
    """Whether cuDNN's files are intact; [] if unknown or without a manifest, which cudnn.version reports."""
    intact = snapshot.cudnn.manifest_intact
    if intact is None or intact == NOT_READ:
        return []
    why = "files of cuDNN were changed (sha256 differs from the manifest of NVIDIA's wheel): results cannot be trusted"
    shown = "as unpacked" if intact else "changed since they were unpacked"
    return [
        check(
            "cudnn", "files", intact, intact is True, expected="as unpacked", shown=shown, why=why, role=CUDNN_ROLE,
        )
    ]  # fmt: skip


# ---------------------------------------------------------------- the toolkit in shells

# Way of starting ► (field of the snapshot, file that prepares it, what the file must say, in words).
SHELLS = {
    "login_shell": (LOGIN_ENVIRONMENT, r"\bCUDA_HOME=", "a login shell"),
    "non_login_shell": (ENVIRONMENT, r"(?s)(?=.*^\s*PATH=).*^\s*CUDA_HOME=", "a non-login shell (ssh HOST COMMAND)"),
    "systemd_service": (SERVICE_ENVIRONMENT, r"\bCUDA_HOME=", "a systemd service"),
}


def shells(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    """Findings for each installed tool; a missing tool is reported by its own check."""
    shell_findings = []
    for way, (path, pattern, words) in SHELLS.items():
        tools: dict[str, OptStr] = getattr(snapshot.shells, way)
        if wanted.cuda.version != "none" and snapshot.cuda.nvcc_path is not None:
            nvcc = snapshot.cuda.nvcc_path
            shell_findings.append(_tool_in_shells(snapshot, way, words, tools, "nvcc", nvcc, "gpu_cuda", exact=False))
            shell_findings.append(_shell_environment(way, words, path, pattern, snapshot))
        if wanted.codec.ffmpeg != "none" and snapshot.codec.ffmpeg_path is not None:
            ffmpeg = snapshot.codec.ffmpeg_path
            shell_findings.append(
                _tool_in_shells(snapshot, way, words, tools, "ffmpeg", ffmpeg, "gpu_codec", exact=True)
            )
    return shell_findings


def _tool_in_shells(
    snapshot: Snapshot,
    way: str,
    words: str,
    tools: dict[str, OptStr],
    name: str,
    expected: Str,
    role: str,
    *,
    exact: bool,
) -> Finding:
    """A finding on one tool. `exact`: it must be the same file everywhere; several nvcc may belong to one toolkit."""
    path = tools.get(name, Missing("command_failed", f"{name} was not looked for"))
    if isinstance(expected, Missing):
        return unknown(way, name, expected, expected=f"a path of {name}", role=role)
    ok = isinstance(path, str) and (path in (expected, f"{PROGRAM_LINKS}/{name}") or not exact)
    other = isinstance(path, str) and not ok and path.rpartition("/")[0] not in byhand.OF_THE_SYSTEM
    by_hand = byhand.in_the_way(snapshot, str(path), PROGRAM_LINKS) if other else ""
    why = (
        (f"{words} starts {path} as {name}, not {expected}: jobs run another version")
        if path
        else f"{words} has no {name}: jobs that call it fail"
    )
    return check(
        way, name, path, ok, expected=expected, why=why, role="" if by_hand else role, remedy=by_hand
    )  # fmt: skip


def _shell_environment(way: str, words: str, path: str, pattern: str, snapshot: Snapshot) -> Finding:
    text = small_file(snapshot, path)
    ok = isinstance(text, str) and re.search(pattern, text, re.MULTILINE) is not None
    shown = f"set by {path}" if ok else f"{path} does not set it"
    why = f"{words} does not get PATH and CUDA_HOME from {path}: builds there do not find CUDA"
    return check(way, "environment", text, ok, expected=f"set by {path}", shown=shown, why=why, role="gpu_cuda")


# ---------------------------------------------------------------- libraries of other toolkits

# cuDNN has a check of its own; the driver's libraries do not come with the toolkit.
STEMS = ("libcublas.so.", "libcublasLt.so.", "libcudart.so.", "libnvJitLink.so.", "libnvrtc.so.")
OFF_THE_LOADER = (
    "remove the other folder from LD_LIBRARY_PATH and /etc/ld.so.conf.d, run ldconfig, and start programs in a new "
    "shell"
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
    names = [name for name in snapshot.libraries if any(_is_library(name, stem, major) for stem in STEMS)]
    wrong, strangers = [], []
    for name in names:
        path = snapshot.libraries[name]
        if isinstance(path, Missing):
            what = f"where the loader finds {name}"
            return [
                unknown("cuda", "libraries", path, expected=expected, what=what, remedy="`/sbin/ldconfig -p` says why")
            ]
        if path is not None and not any(inside(path, folder) for folder in folders):
            wrong.append(f"{name} from {path}")
            strangers.append(path)
    shown = " or ".join(folders)
    if not wrong:
        return [Finding("cuda", "libraries", Status.PASS, expected, f"{len(names)} from {shown}")]
    why = f"programs get {', '.join(wrong)}, and the toolkit of {cuda.nvcc_path} keeps its libraries in {shown}"
    remedy = byhand.off_the_loader(snapshot, strangers) or OFF_THE_LOADER
    return [Finding("cuda", "libraries", Status.FAIL, expected, ", ".join(wrong), why, remedy)]


def _is_library(name: str, stem: str, major: str) -> bool:
    return name.startswith(stem) and name[len(stem) :].split(".")[0] == major
