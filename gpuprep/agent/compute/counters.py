"""May an ordinary user read the GPU's performance counters? A process of such a user asks CUPTI."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import sys
from typing import Any, Dict, List, Union

from gpuprep.agent.facts import driver
from gpuprep.agent.facts.loader import Loader
from gpuprep.agent.programs import trusted
from gpuprep.agent.programs.run import run
from gpuprep.records import Missing, to_json_value

ORDINARY_USER = "nobody"
TIMEOUT_SECONDS = 60.0
# CUptiResult in cupti_result.h: INSUFFICIENT_PRIVILEGES, VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES
REFUSED = (35, 40)

# Needs Python alone: no headers, no compiler, and the same calls from CUDA 11.8 to 13. Every profiler first asks for
# the image of available counters, and this is the call that the driver refuses.
SCRIPT = r"""
import ctypes, json, sys
path, with_gpu = sys.argv[1], sys.argv[2] == "gpu"
def tell(**values):
    print(json.dumps(values))
    sys.exit(0)
try:
    cupti = ctypes.CDLL(path)
except OSError as error:
    tell(stage="dlopen", name=str(error), code=-1)
number = ctypes.c_uint32()
if not hasattr(cupti, "cuptiGetVersion"):
    tell(stage="dlopen", name=path + " is no CUPTI", code=-1)
cupti.cuptiGetVersion(ctypes.byref(number))
version = number.value
if not with_gpu:
    tell(version=version, stage="version", name="", code=0)
class Initialize(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("private", ctypes.c_void_p)]
class Availability(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("private", ctypes.c_void_p), ("context", ctypes.c_void_p),
                ("image_size", ctypes.c_size_t), ("image", ctypes.c_void_p)]
def cuda(name, *arguments):
    code = getattr(library, name)(*arguments)
    if code != 0:
        text = ctypes.c_char_p()
        library.cuGetErrorName(code, ctypes.byref(text))
        tell(version=version, stage=name, name=(text.value or b"").decode(), code=-code)
def ask(name, parameters):
    code = getattr(cupti, name)(ctypes.byref(parameters))
    if code != 0:
        text = ctypes.c_char_p()
        cupti.cuptiGetResultString(code, ctypes.byref(text))
        tell(version=version, stage=name, name=(text.value or b"").decode(), code=code)
try:
    library = ctypes.CDLL("libcuda.so.1")
except OSError as error:
    tell(version=version, stage="dlopen", name=str(error), code=-1)
context, device = ctypes.c_void_p(), ctypes.c_int()
cuda("cuInit", 0)
cuda("cuDeviceGet", ctypes.byref(device), 0)
cuda("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
cuda("cuCtxSetCurrent", context)
ask("cuptiProfilerInitialize", Initialize(ctypes.sizeof(Initialize), None))
wanted = Availability(ctypes.sizeof(Availability), None, context, 0, None)
ask("cuptiProfilerGetCounterAvailability", wanted)
image = (ctypes.c_uint8 * wanted.image_size)()
wanted.image = ctypes.cast(image, ctypes.c_void_p)
ask("cuptiProfilerGetCounterAvailability", wanted)
tell(version=version, stage="cuptiProfilerGetCounterAvailability", name="", code=0, bytes=wanted.image_size)
"""


def cupti(*, simulated: bool) -> Union[Dict[str, Any], Missing]:
    """docs/records.md's "cupti": the library that the loader finds, its version, and its answer to an ordinary user.

    A simulated GPU has no counters: then the library is really loaded, and the driver's parameter decides.
    """
    path = Loader().find_newest("libcupti.so")
    if isinstance(path, Missing):
        return path
    if path is None:
        return Missing("not_installed", "the loader finds no libcupti")
    user = ORDINARY_USER if os.getuid() == 0 else pwd.getpwuid(os.getuid()).pw_name
    answer = _ask(path, user, gpu=not simulated)
    if isinstance(answer, Missing):
        return to_json_document({"path": path, "version": answer, "counters": answer, "as_user": user, "detail": ""})
    entry = {"path": path, "version": answer.get("version"), "as_user": user}
    if simulated:
        restricted = driver.counters_restricted()
        if answer["code"] != 0:
            return to_json_document({**entry, **verdict(answer)})
        missing = Missing("driver_not_loaded", "no driver") if restricted is None else restricted
        counters = missing if isinstance(missing, Missing) else not missing
        return to_json_document({**entry, "counters": counters, "detail": "RmProfilingAdminOnly of the driver"})
    entry.update(verdict(answer))
    if entry["counters"] is not True and user == ORDINARY_USER:
        why = trusted.untrusted_reason(path)
        root = Missing("not_trusted", f"root does not load {path}: {why}") if why else _ask(path, "root", gpu=True)
        entry["counters_as_root"] = root if isinstance(root, Missing) else verdict(root)["counters"]
    return to_json_document(entry)


def to_json_document(values: Dict[str, Any]) -> Dict[str, Any]:
    document: Dict[str, Any] = to_json_value(values)
    return document


def verdict(answer: Dict[str, Any]) -> Dict[str, Any]:
    """The script's answer ─► {"counters", "detail"}: False if privileges are lacking, Missing for another error."""
    code, error = int(answer["code"]), f"{answer['stage']}: {answer['name']}"
    if code == 0:
        return {"counters": True, "detail": ""}
    if code in REFUSED:
        return {"counters": False, "detail": f"insufficient privileges ({error})"}
    return {"counters": Missing("command_failed", error), "detail": error}


def _ask(path: str, user: str, *, gpu: bool) -> Union[Dict[str, Any], Missing]:
    """The script's answer from a process of `user`; Missing if it did not answer."""
    answer: Union[Dict[str, Any], Missing] = Missing("command_not_found", "python3")
    for python in dict.fromkeys((sys.executable, shutil.which("python3", path="/usr/bin:/bin") or "")):
        if not python:
            continue
        argv = [*as_user(user), python, "-I", "-S", "-B", "-c", SCRIPT, path, "gpu" if gpu else "no"]
        answer = _parsed(run(argv, timeout=TIMEOUT_SECONDS, cwd="/"))
        if not isinstance(answer, Missing):
            return answer  # else try the system's Python: other users cannot enter /root
    return answer


def as_user(user: str) -> List[str]:
    """The words before a command with which root runs it as `user`; [] for the current user."""
    account = pwd.getpwnam(user)
    if account.pw_uid == os.getuid():
        return []
    return ["setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]


def _parsed(text: Union[str, Missing]) -> Union[Dict[str, Any], Missing]:
    if isinstance(text, Missing):
        return text
    lines = text.strip().splitlines()
    try:
        answer = json.loads(lines[-1]) if lines else None
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or "code" not in answer:
        return Missing("unparsable", f"CUPTI's answer: {text.strip()[-120:]}")
    return answer
