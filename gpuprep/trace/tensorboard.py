"""The same pages in TensorBoard: entry point group `tensorboard_plugins`. The only import of TensorBoard."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensorboard.plugins import base_plugin

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

# What torch.profiler.tensorboard_trace_handler writes, and what `nsys export --type sqlite` is given as a name.
ENDINGS = (".pt.trace.json", ".pt.trace.json.gz", ".nsys.sqlite", ".nsys-rep.sqlite")
MOST_FOLDERS = 20_000  # that are looked into
MOST_RUNS = 2000
DEEPEST = 12
KEPT_SECONDS = 10.0  # TensorBoard asks every few seconds
NAMES = "GPUPREP_TENSORBOARD_NAMES"  # of a proxy before it, say: NAME,NAME
ROUTES = ("/index.js", "/index.html", "/page", "/document.json", "/raw", "/perfetto", "/perfetto.js", "/web.css")


# TensorBoard loads every plugin that is installed: one that lacks a library must not keep it from starting.
READABLE = all(find_spec(name) is not None for name in ("msgspec", "numpy"))


class GpuprepPlugin(base_plugin.TBPlugin):  # type: ignore[misc]  # TensorBoard has no types
    plugin_name = "gpuprep"

    def __init__(self, context: base_plugin.TBContext) -> None:
        self._folders = _folders(context)
        self._names = _names(context)
        self._runs: Mapping[str, Path] = {}
        self._looked = float("-inf")

    def get_plugin_apps(self) -> dict[str, WSGIApplication]:
        if not READABLE:
            return {}
        from gpuprep.trace.web import Library, Rules, application, guarded

        pages = application(Library(self.runs, list(self._folders.values())))
        answer = guarded(pages, Rules(names=self._names, more_names=f"set {NAMES} before TensorBoard is started"))
        return {route: answer for route in ROUTES}

    def is_active(self) -> bool:
        return READABLE and bool(self.runs())

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        return base_plugin.FrontendMetadata(es_module_path="/index.js", tab_name="GPU profile", disable_reload=True)

    def runs(self) -> Mapping[str, Path]:
        """Name ► file: the path below the log folder, as TensorBoard names runs."""
        now = time.monotonic()
        if now - self._looked > KEPT_SECONDS:
            self._runs = dict(_found(self._folders))
            self._looked = now
        return self._runs


def _names(context: Any) -> list[str]:
    """Host names that TensorBoard is opened by, besides addresses: it looks at no Host header itself."""
    given = getattr(getattr(context, "flags", None), "host", None)
    return [*filter(None, (given, socket.gethostname())), *os.environ.get(NAMES, "").split(",")]


def _folders(context: Any) -> dict[str, Path]:
    """Name ► folder, of --logdir or --logdir_spec NAME:FOLDER,... Folders in a cloud are not looked into."""
    logdir = getattr(context, "logdir", None) or ""
    spec = getattr(getattr(context, "flags", None), "logdir_spec", None) or ""
    if not spec:
        return {"": Path(logdir).expanduser()} if logdir and "://" not in logdir else {}
    folders = {}
    for each in spec.split(","):
        name, colon, folder = each.partition(":")
        if "://" not in each:
            folders[name if colon else each] = Path(folder if colon else each).expanduser()
    return folders


def _found(folders: Mapping[str, Path]) -> Iterator[tuple[str, Path]]:
    runs = 0
    for prefix, top in folders.items():
        for folder, inner, files in _bounded(top):
            inner.sort()
            for name in sorted(files):
                if name.endswith(ENDINGS) and runs < MOST_RUNS:
                    path = Path(folder) / name
                    runs += 1
                    yield "/".join(filter(None, (prefix, str(path.relative_to(top))))), path


def _bounded(top: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    for looked, (folder, inner, files) in enumerate(os.walk(top)):
        if looked >= MOST_FOLDERS:
            return
        if len(Path(folder).relative_to(top).parts) >= DEEPEST:
            inner.clear()
        yield folder, inner, files
