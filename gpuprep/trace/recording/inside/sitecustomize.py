"""Runs inside of the program that `gpuprep trace record` records: puts PyTorch's profiler around its steps.

Every Python that the program starts loads this file, because its folder is the first of PYTHONPATH. It is the Python of
the program, not gpuprep's: stdlib alone, Python 3.8 or newer, and torch when the program itself has imported it.
Whatever goes wrong here is written down and must not disturb the program.

A step ends with the first optimizer's step, with the outermost module's forward, or with a function that the user
named. The profiler starts at the end of the first step: so its setup time is in no step.
"""

from __future__ import annotations

import atexit
import functools
import importlib.abc
import importlib.util
import json
import os
import sys
import threading
import time
from typing import Any

SETTING = "GPUPREP_TRACE_RECORD"
CPU_INFO = "/proc/cpuinfo"
DRIVER = "/proc/driver/nvidia/version"


class Recorder:
    def __init__(self, wish: dict[str, Any]) -> None:
        self.wish, self.process = wish, os.getpid()
        self.profiler: Any = None
        self.torch: Any = None
        self.thread = 0
        self.steps = 0  # that ended, the first one too
        self.done = False
        self.marks: list[Any] = []  # on the GPU, at the end of each step before the profiler is on
        self.notes: dict[str, Any] = {"steps": 0, "traces": [], "error": "", "torch": ""}
        atexit.register(self.leave)

    # ------------------------------------------------------------ where a step ends

    def torch_is_there(self, torch: Any) -> None:
        self.torch = torch
        self.notes["torch"] = str(torch.__version__)
        how = self.wish["steps_from"]
        if how == "none":
            self.start()
        elif how == "forward":
            self.watch_forward(torch.nn.modules.module)
        elif how == "optimizer":
            self.watch_optimizers(torch.optim)
        self.tell()

    def watch_optimizers(self, optim: Any) -> None:
        """Around the whole of Optimizer.step: its own hooks run inside the range that the profiler records of it."""
        first: list[int] = []
        running: list[int] = []  # one inside the other, where a class calls the step that it inherits
        init = optim.Optimizer.__init__

        @functools.wraps(init)
        def initialised(optimizer: Any, *args: Any, **kwargs: Any) -> None:
            init(optimizer, *args, **kwargs)  # it puts the profiler's range around `step` of the class
            kind = type(optimizer)
            step = kind.step
            if getattr(step, "gpuprep", False):
                return

            @functools.wraps(step)
            def wrapped(self_: Any, *more: Any, **named: Any) -> Any:
                running.append(id(self_))
                try:
                    result = step(self_, *more, **named)
                finally:
                    running.pop()
                # Only one of several optimizers counts: a training step may call each of them.
                first[:] = first or [id(self_)]
                if not running and first == [id(self_)]:
                    self.step()
                return result

            wrapped.gpuprep = True  # type: ignore[attr-defined]
            kind.step = wrapped

        optim.Optimizer.__init__ = initialised

    def watch_forward(self, module: Any) -> None:
        """The first module that is called is the outermost: the others are called inside of it."""

        def first(root: Any, _inputs: Any) -> None:
            handle.remove()
            root.register_forward_hook(lambda *_: self.step())

        handle = module.register_module_forward_pre_hook(first)

    def watch_function(self, module: Any, name: str) -> None:
        *owners, last = name.split(".")
        owner = functools.reduce(getattr, owners, module)
        function = getattr(owner, last)

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            result = function(*args, **kwargs)
            self.step()
            return result

        setattr(owner, last, wrapped)

    # ------------------------------------------------------------ the profiler

    @property
    def last(self) -> int:
        return int(self.wish["wait"]) + int(self.wish["warmup"]) + int(self.wish["active"])

    def step(self) -> None:
        """Called at the end of each step. No error may reach the program."""
        if self.done or os.getpid() != self.process:
            return
        try:
            if self.profiler is None:
                self.steps = 1
                self.start()
                self.mark()
            elif threading.get_ident() == self.thread:
                self.steps += 1
                if self.steps <= 1 + int(self.wish["wait"]):
                    self.mark()
                self.profiler.step()
                if self.steps > self.last:
                    self.finish()
        except Exception as error:  # noqa: BLE001  the program goes on without a trace, and gpuprep says why
            self.failed(error)

    def start(self) -> None:
        import torch
        from torch import profiler

        self.torch, self.thread = torch, threading.get_ident()
        activities = [profiler.ProfilerActivity.CPU]
        if torch.cuda.is_available():
            activities.append(profiler.ProfilerActivity.CUDA)
        schedule = None
        if self.wish["steps_from"] != "none":
            schedule = profiler.schedule(
                wait=self.wish["wait"], warmup=self.wish["warmup"], active=self.wish["active"], repeat=1
            )
        self.profiler = profiler.profile(
            activities=activities,
            schedule=schedule,
            on_trace_ready=self.ready,
            record_shapes=self.wish["shapes"],
            with_stack=self.wish["stacks"],
            profile_memory=self.wish["memory"],
        )
        self.profiler.start()

    def mark(self) -> None:
        """Steps are timed as the GPU passes their ends, so that nothing waits."""
        cuda = self.torch.cuda
        capturing = getattr(cuda, "is_current_stream_capturing", None)  # PyTorch 1.11 and newer
        if not cuda.is_initialized() or (capturing is not None and capturing()):
            return
        try:
            event = cuda.Event(enable_timing=True)
            event.record()
        except RuntimeError:  # a device that has none: then its steps are not timed
            return
        self.marks.append(event)

    def timed(self) -> list[float]:
        """Milliseconds of each step that ran without the profiler; none where the GPU does not tell."""
        try:
            if self.marks:
                self.marks[-1].synchronize()
            each = range(1, len(self.marks))
            return [round(self.marks[at - 1].elapsed_time(self.marks[at]), 6) for at in each]
        except RuntimeError:  # marks of two GPUs
            return []

    def finish(self) -> None:
        self.done = True
        if self.profiler is not None:
            self.profiler.stop()
        self.tell()

    def ready(self, profile: Any) -> None:
        path = os.path.join(self.wish["folder"], f"{self.name()}.pt.trace.json.gz")
        # The file gets its final name only at the end: a killed program leaves no incomplete trace.
        partial = os.path.join(self.wish["folder"], f".{os.getpid()}.part.json.gz")
        profile.export_chrome_trace(partial)
        os.replace(partial, path)
        with open(f"{path}.gpuprep.json", "w", encoding="utf-8") as file:
            beside = {"schema_version": 1, "machine": self.machine(), "step_ms_without_profiler": self.timed()}
            json.dump(beside, file)
        self.notes["traces"].append(path)
        self.tell()

    def name(self) -> str:
        rank = os.environ.get("RANK", "")
        if rank.isdigit():
            return f"rank{int(rank):04d}"
        return f"{self.wish['name']}.{os.getpid()}" if self.wish.get("several") else str(self.wish["name"])

    def machine(self) -> dict[str, str]:
        """Facts that rules need and a trace lacks. Never the environment."""
        torch = self.torch
        properties = {
            "Framework": f"PyTorch {torch.__version__}",
            "Python": sys.version.partition(" ")[0],
            "CPU model": _line(CPU_INFO, "model name"),
            "GPU driver version": _driver(),
        }
        if torch.version.cuda:
            properties["CUDA version"] = str(torch.version.cuda)
        cudnn = torch.backends.cudnn
        number = cudnn.version() if cudnn.is_available() else None
        if number:
            large, small = (10000, 100) if number >= 10000 else (1000, 100)
            properties["cuDNN version"] = f"{number // large}.{number % large // small}.{number % small}"
            properties["torch.backends.cudnn.benchmark"] = str(cudnn.benchmark)
            properties["torch.backends.cudnn.allow_tf32"] = str(cudnn.allow_tf32)
        matmul = getattr(torch.backends.cuda, "matmul", None)
        if properties.get("CUDA version") and matmul is not None:
            properties["torch.backends.cuda.matmul.allow_tf32"] = str(matmul.allow_tf32)
        return {key: value for key, value in properties.items() if value}

    # ------------------------------------------------------------ the end

    def leave(self) -> None:
        if self.done or os.getpid() != self.process:
            return
        try:
            self.finish()
        except Exception as error:  # noqa: BLE001  the program has ended: gpuprep says why there is no trace
            self.failed(error)

    def failed(self, error: BaseException) -> None:
        self.done = True
        self.notes["error"] = f"{type(error).__name__}: {error}"[:1000]
        self.tell()

    def tell(self) -> None:
        """Report to gpuprep, which waits for the program."""
        self.notes["steps"] = self.steps
        path = os.path.join(self.wish["told"], f"{self.process}.json")
        try:
            with open(f"{path}.part", "w", encoding="utf-8") as file:
                json.dump(self.notes, file)
            os.replace(f"{path}.part", path)
        except OSError:
            self.done = True  # gpuprep has ended


def _line(path: str, name: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                key, _, value = line.partition(":")
                if key.strip() == name:
                    return value.strip()[:200]
    except OSError:
        return ""
    return ""


def _driver() -> str:
    """ "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue ..." """
    words = _line(DRIVER, "NVRM version").split()
    return next((word for word in words if word[:1].isdigit() and "." in word), "")


class _Watch(importlib.abc.MetaPathFinder):
    """Calls `then` with a module once it has been imported."""

    def __init__(self, name: str, then: Any) -> None:
        self.name, self.then = name, then

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self.name:
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self.then)
                return spec
        return None


class _Loader(importlib.abc.Loader):
    def __init__(self, loader: Any, then: Any) -> None:
        self.loader, self.then = loader, then

    def create_module(self, spec: Any) -> Any:
        return self.loader.create_module(spec)

    def exec_module(self, module: Any) -> None:
        module.__spec__.loader = module.__loader__ = self.loader
        self.loader.exec_module(module)
        self.then(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)


def _guarded(recorder: Recorder, what: Any) -> Any:
    def then(module: Any) -> None:
        try:
            what(module)
        except Exception as error:  # noqa: BLE001  the program goes on without a trace, and gpuprep says why
            recorder.failed(error)

    return then


def _begin() -> None:
    text = os.environ.get(SETTING)
    if not text:
        return
    wish = json.loads(text)
    wish["began"] = time.time()
    recorder = Recorder(wish)
    sys.meta_path.insert(0, _Watch("torch", _guarded(recorder, recorder.torch_is_there)))
    module, colon, function = wish["steps_from"].partition(":")
    if colon:
        watch = _Watch(module, _guarded(recorder, lambda found: recorder.watch_function(found, function)))
        sys.meta_path.insert(0, watch)


def _others() -> None:
    """The sitecustomize that this one hides, if there is one."""
    own = os.path.dirname(os.path.abspath(__file__))
    for folder in sys.path:
        path = os.path.join(folder or ".", "sitecustomize.py")
        if os.path.abspath(folder or ".") != own and os.path.isfile(path):
            spec = importlib.util.spec_from_file_location("sitecustomize", path)
            if spec is not None and spec.loader is not None:
                spec.loader.exec_module(importlib.util.module_from_spec(spec))
            return


if __name__ == "sitecustomize":  # not if a tool imports this file to inspect it
    _begin()
    _others()
