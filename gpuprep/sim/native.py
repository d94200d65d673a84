"""Compiles the stand-ins in native/ with the controller's gcc; they are cached under a hash of their source."""

from __future__ import annotations

import hashlib
import re
import subprocess
import tempfile
from collections.abc import Mapping
from importlib import resources, util
from pathlib import Path

from gpuprep.errors import SimError
from gpuprep.sim import paths

FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror")
NVML_SOURCES = ("state.c", "query.c", "health.c", "clocks.c", "control.c", "events.c", "loads.c", "mig.c", "smi.c")
TABLE_SLOTS = 512


def sources(*names: str) -> dict[str, str]:
    folder = resources.files("gpuprep.sim") / "native"
    return {name: (folder / name).read_text(encoding="utf-8") for name in names}


def build(name: str, files: Mapping[str, str], *flags: str) -> Path:
    """Compiles files (the .c ones) to `name`; raises SimError with the compiler's own words."""
    digest = hashlib.sha256(repr((name, sorted(files.items()), FLAGS, flags)).encode()).hexdigest()[:16]
    folder = paths.cache_dir() / "native" / digest
    made = folder / name
    if made.exists():
        return made
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        for file, text in files.items():
            (Path(scratch) / file).write_text(text)
        code = [f"{scratch}/{file}" for file in files if file.endswith(".c")]
        command = ["gcc", *FLAGS, *flags, "-o", f"{scratch}/{name}", *code, "-ldl", "-lpthread"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise SimError(f"gcc could not compile {name}:\n{done.stderr.strip()}", "apt-get install gcc libc6-dev")
        (Path(scratch) / name).rename(made)
    return made


def preload() -> Path:
    """The library preloaded into every process of a machine: uname, dlopen, /proc/modules, exec of ffmpeg."""
    return build("preload.so", sources("preload.c", "exec.c"), "-shared", "-fPIC")


def nvml() -> Path:
    """The stand-in for libnvidia-ml.so.1."""
    files = sources("state.h", *NVML_SOURCES)
    files["stubs.c"] = stubs(public_functions() | set(sources("names.txt")["names.txt"].split()))
    return build("libnvidia-ml-sim.so", files, "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1")


def persistenced() -> Path:
    """The stand-in for nvidia-persistenced's program."""
    return build("nvidia-persistenced", sources("persistenced.c"))


def public_functions() -> set[str]:
    """Every NVML function that nvidia-ml-py names."""
    spec = util.find_spec("pynvml")
    if spec is None or spec.origin is None:
        raise SimError("the Python package nvidia-ml-py is missing", "pip install nvidia-ml-py")
    text = Path(spec.origin).read_text(encoding="utf-8")
    return set(re.findall(r'_nvmlGetFunctionPointer\("(nvml\w+)"\)', text))


def stubs(names: set[str]) -> str:
    """C code with a weak NOT_SUPPORTED for each name, and for its unversioned name, plus the internal table's slots.

    nvidia-smi asks for the versioned and the unversioned names. A function that native/ defines wins over its stub.
    """
    every = sorted(names | {re.sub(r"_v\d+$", "", name) for name in names})
    lines = [f"__attribute__((weak)) int {name}(void) {{ return 3; }}" for name in every]
    lines.append("long internal_call(unsigned int slot, void *first, void *second, void *third);")
    for slot in range(1, TABLE_SLOTS):
        call = f"return internal_call({slot}, a, b, c);"
        lines.append(f"static long slot_{slot}(void *a, void *b, void *c) {{ {call} }}")
    slots = ", ".join(f"(void *)slot_{slot}" for slot in range(1, TABLE_SLOTS))
    # The first word is the table's size in bytes.
    lines.append(f"void *internal_slots[] = {{ (void *){8 * TABLE_SLOTS}, {slots} }};")
    return "\n".join(lines) + "\n"
