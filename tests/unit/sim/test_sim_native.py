"""The preloaded library and the persistence daemon's stand-in, run for real on this computer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from nvmlbench import compiled, hook, persistenced

from gpuprep import errors

pytestmark = [
    pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed"),
    pytest.mark.skipif(sys.platform != "linux", reason="the stand-ins are Linux libraries"),
]


@pytest.fixture(scope="module")
def preload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library as compiled for a machine, with the folders it looks in moved to its own."""
    return hook("preload.c", tmp_path_factory.mktemp("machine"))


def python(preload: Path, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "LD_PRELOAD": str(preload), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_uname_answers_the_machines_kernel(preload: Path) -> None:
    code = "import os; print(os.uname().release)"
    assert python(preload, code).stdout.strip() == os.uname().release
    release = preload.parent / "run/kernel/release"
    release.parent.mkdir(parents=True)
    release.write_text("6.1.0-42-cloud-amd64\n")
    assert python(preload, code).stdout.strip() == "6.1.0-42-cloud-amd64"


def test_the_time_of_day_is_the_machines(preload: Path) -> None:
    tell = """import ctypes, time; libc = ctypes.CDLL(None); both = (ctypes.c_long * 2)(); libc.gettimeofday(both, None)
print(*(round(now) for now in (time.time(), both[0], libc.time(None), time.monotonic(), time.clock_gettime(0))))"""
    moments = [[int(word) for word in python(preload, tell).stdout.split()]]
    clock = preload.parent / "run/clock"
    clock.parent.mkdir(parents=True, exist_ok=True)
    clock.write_text("-86400\n")
    moments.append([int(word) for word in python(preload, tell).stdout.split()])
    clock.unlink()
    was, now = moments
    away = [round((a - b) / 86400) for a, b in zip(now, was, strict=True)]
    assert away == [-1, -1, -1, 0, -1]


def test_proc_modules_is_the_machines(preload: Path) -> None:
    modules = preload.parent / "run/proc/modules"
    modules.parent.mkdir(parents=True)
    modules.write_text("nvidia 1 0 - Live 0x0\n")
    read = "import os; print(open('/proc/modules').read(), os.path.exists('/proc/modules'))"
    assert python(preload, read).stdout == "nvidia 1 0 - Live 0x0\n True\n"


def test_nvml_is_the_stand_in_only_where_the_real_library_is(preload: Path, tmp_path: Path) -> None:
    tell = (
        "static const char *v; void gpuprep_sim_library_version(const char *t) { v = t; static char k[64]; int i = 0;"
    )
    tell += "while ((k[i] = t[i])) i++; v = k; } const char *said(void) { return v; }"
    compiled(preload.parent / "lib", "libnvidia-ml.so.1", tell)
    load = "import ctypes as c; l = c.CDLL('libnvidia-ml.so.1'); l.said.restype = c.c_char_p; print(l.said().decode())"
    absent = python(preload, load, LD_LIBRARY_PATH=str(tmp_path / "real"))
    assert "cannot open shared object file" in absent.stderr
    real = compiled(tmp_path / "real", "libnvidia-ml.so.550.163.01", "int real(void) { return 1; }")
    (tmp_path / "real/libnvidia-ml.so.1").symlink_to(real.name)
    assert python(preload, load, LD_LIBRARY_PATH=str(tmp_path / "real")).stdout.strip() == "550.163.01"


def test_dlopen_still_searches_the_callers_runpath(preload: Path, tmp_path: Path) -> None:
    """glibc looks at the return address of dlopen to find whose RUNPATH counts: the shim must not be in between."""
    hidden = tmp_path / "hidden"
    compiled(hidden, "libhidden.so", "int answer(void) { return 42; }")
    code = '#include <dlfcn.h>\n#include <stddef.h>\nint find(void) { void *l = dlopen("libhidden.so", RTLD_NOW);'
    code += 'return l == NULL ? -1 : ((int (*)(void))dlsym(l, "answer"))(); }'
    caller = compiled(tmp_path, "caller.so", code, f"-Wl,-rpath,{hidden}", "-Wl,--enable-new-dtags")
    assert python(preload, f"import ctypes; print(ctypes.CDLL('{caller}').find())").stdout.strip() == "42"


def test_a_compile_error_is_the_compilers_own_words(tmp_path: Path) -> None:
    with pytest.raises(errors.SimError) as caught:
        compiled(tmp_path, "broken.so", "int f(void) { return nothing; }")
    assert "nothing" in caught.value.what


def test_persistenced_refuses_what_the_real_one_refuses() -> None:
    program = persistenced()
    assert subprocess.run([program, "--no-such-option"], capture_output=True, check=False).returncode == 1
    nobody = subprocess.run([program, "--user", "no-such-user"], capture_output=True, text=True, check=False)
    assert nobody.returncode == 1
    assert "no-such-user" in nobody.stderr
