"""Tests replace parts at the named seams of CONTRIBUTING.md and nowhere else: their own files are read for it."""

from __future__ import annotations

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import PurePath

import pytest
from places import ROOT, SUPPORT, TESTS

CONTRIBUTING = ROOT / "CONTRIBUTING.md"
# Without one of these in it a file replaces nothing, and reading it whole would take its time.
TOUCHES = re.compile(r"(set|del)(attr|item)\(|\bpatch\b|^ *(?!self\b)\w+(\.\w+)+[\[:= ][^=(]*= ?[^=]", re.MULTILINE)
CAPITALS = re.compile("[A-Z][A-Z0-9_]*")
SEAMS = {
    "gpuprep.workflows.codeccheck.Host",
    "gpuprep.workflows.runs.Host",
    "gpuprep.agent.gpu.nvml.pynvml",
    "gpuprep.agent.compute.libraries.toolkit",
    "gpuprep.agent.compute.libraries.load_cublaslt",
    "gpuprep.agent.compute.cudacalls.versions",
    "gpuprep.agent.probes.cublaslt",
    "gpuprep.agent.probes.cudadevice",
    "gpuprep.agent.probes.gemmcheck",
    "gpuprep.nightly.run.now",
}
# The state of this computer and of this process.
LIBRARY = {
    "importlib.metadata.version", "importlib.util.find_spec", "os.access", "os.cpu_count", "os.environ", "os.fsync",
    "os.geteuid", "os.killpg", "os.nice", "os.open", "os.pidfd_open", "os.statvfs", "os.write", "pathlib.Path.home",
    "pathlib.Path.stat", "pwd.getpwall", "pwd.getpwuid", "select.select", "socket.socket.listen",
    "subprocess.Popen", "sys.executable",
    "sys.modules", "sys.path", "sys.platform", "sys.stdin", "sys.stdout", "sys.stdout.isatty", "tempfile.tempdir",
    "time.monotonic", "time.sleep", "time.time", "webbrowser.open",
}  # fmt: skip
# Names in capitals that are no limit, time, size or path.
CONSTANTS = {
    "gpuprep.agent.rollback.working.CUDA": "what CUDA says: there is no GPU",
    "gpuprep.agent.video.clips.SPECS": "fewer and smaller clips",
    "gpuprep.agent.compute.counters.SCRIPT": "what CUPTI says: there is no GPU",
    "gpuprep.agent.facts.containers.CONTAINERD": "its places, in a folder of the test",
    "gpuprep.agent.facts.containers.CRIO": "the same",
    "gpuprep.agent.facts.containers.DOCKER": "the same",
    "gpuprep.agent.probes.gemm.BRIEF": "its times",
    "gpuprep.agent.probes.gemm.FULL": "its times",
    "gpuprep.agent.probes.gemm.QUICK": "its times",
    "gpuprep.agent.probes.gemm.QUICK_RULE": "its times and numbers of samples",
    "gpuprep.agent.probes.transcodecases.BY_ID": "a case of the test",
    "gpuprep.remote.agent_client.BOOTSTRAP": "a host whose Python has no memfd",
    "gpuprep.trace.reading.parallel.START": "a second process that fails",
    "gpuprep.trace.tensorboard.READABLE": "a computer without TensorBoard's library",
    "gpuprep.workflows.schedule_state.READ": "its places, in a folder of the test",
    # Of modules that a test loads from a file:
    "? role['copying'].MOST_BYTES": "a limit",
    "? role['copying'].MOST_FILES": "a limit",
    "? role['parts'].LISTING_SECONDS": "a time",
}
EXCEPTIONS = {
    "gpuprep.workflows.sources.TARBALLS": "upstream's tarballs, which a plan fetches: tests have no upstream",
    "gpuprep.checks.judgement.judge": "an error inside gpuprep that nobody knows of",
    "gpuprep.store.Store.append_new": "the same: the store takes every record that we know",
    "gpuprep.untrusted.masking._known": "what this process remembers: a test begins without the passwords of others",
    "gpuprep.provisioning.ansible_events.Events.handle": "listens to what Ansible says, and passes it on",
    "gpuprep.remote.agent_client.identity": "the agent of the simulated machine is ours, and other tests need it",
    "gpuprep.untrusted.plaintext.command": "listens to the commands that are printed, and passes them on",
    "shutil.rmtree": "a kill in the middle of a removal",
    "gpuprep.sim.inside.command": "stops as nsenter does in a machine that shuts down",
    "gpuprep.agent.probereports._say": "listens to what a probe tells",
    "gpuprep.agent.probereports._Teller.wanted": "the same",
    "gpuprep.remote.agent_client.probe": "the test says when each of several probes begins and ends",
    "gpuprep.agent.video.clips.prepare": "counts the clips that are asked for",
    "gpuprep.agent.video.clips._generate": "counts the clips that are made, and makes them",
    "gpuprep.trace.page.pack._pack": "counts what is packed, and packs it",
    "gpuprep.trace.reading.parallel.own_memory_for_arrays": "a setting of the process that cannot be taken back",
    "torch.backends.cuda.matmul.allow_tf32": "a setting of PyTorch, in the script that records traces",
    "torch.backends.cudnn.allow_tf32": "the same",
    "psycopg.connect": "no server quotes the password that it refuses",
}


def names_of(nodes: list[ast.AST]) -> dict[str, str]:
    """What a name of this file stands for: a module, or what was imported from one. "" for a class of the file."""
    found = {}
    for node in nodes:
        if isinstance(node, ast.Import):
            for one in node.names:
                found[one.asname or one.name.partition(".")[0]] = one.name if one.asname else one.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom):
            found.update({one.asname or one.name: f"{node.module}.{one.name}" for one in node.names})
        elif isinstance(node, ast.ClassDef):
            found[node.name] = ""
    return found


def dotted(target: ast.expr, names: dict[str, str]) -> str:
    """The full name of a part; "" for what is the tests' own; "?" and the source for what cannot be told."""
    if isinstance(target, ast.BoolOp):  # a dictionary or, where there is none, an empty one
        target = target.values[0]
    if isinstance(target, ast.Constant) and isinstance(target.value, str):
        return target.value
    parts: list[str] = []
    inner = target
    while isinstance(inner, ast.Attribute):
        parts.append(inner.attr)
        inner = inner.value
    if not isinstance(inner, ast.Name) or inner.id not in names:
        return f"? {ast.unparse(target)}"
    root = names[inner.id]
    file = f"{root.partition('.')[0]}.py"
    own = not root or (SUPPORT / file).exists()
    return "" if own else ".".join([root, *reversed(parts)])


def replaced(source: str) -> Iterator[tuple[int, str]]:
    """(line, full name) of everything that this file of tests replaces."""
    if not TOUCHES.search(source):
        return
    nodes = list(ast.walk(ast.parse(source)))
    names = names_of(nodes)
    for node in nodes:
        if isinstance(node, ast.Call) and node.args:
            name = by_call(node, names)
            if name:
                yield node.lineno, name
        elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)):
            for place in node.targets if isinstance(node, ast.Assign) else [node.target]:
                inner = place.value if isinstance(place, ast.Subscript) else place
                name = dotted(inner, names) if isinstance(inner, ast.Attribute) else ""
                if name and not name.startswith("?"):  # else it is an object of the test
                    yield node.lineno, name


def by_call(call: ast.Call, names: dict[str, str]) -> str:
    """By setattr and its kin, of pytest, unittest.mock or the language. "" where nothing of ours is replaced."""
    is_method = isinstance(call.func, ast.Attribute)
    called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    if called not in ("setattr", "delattr", "object", "setitem", "delitem", "dict", "patch"):
        return ""
    first, *others = call.args
    target = dotted(first, names)
    if called == "patch" or isinstance(first, ast.Constant):
        return target
    if called in ("setitem", "delitem", "dict"):
        return target if is_method and others else ""
    if not target or not others or (target.startswith("?") and not is_method):  # an object of the test
        return ""
    attribute = others[0].value if isinstance(others[0], ast.Constant) else "?"
    return f"{target}.{attribute!s}"


def is_seam(name: str) -> bool:
    return name in SEAMS | LIBRARY | set(CONSTANTS) or is_limit(name)


@cache
def is_limit(name: str) -> bool:
    """Whether it is a name in capitals of a limit, a time, a size or a path, or of several."""
    module, _, constant = name.rpartition(".")
    if not CAPITALS.fullmatch(constant) or module.partition(".")[0] in sys.stdlib_module_names or "?" in module:
        return False
    return is_plain(getattr(importlib.import_module(module), constant, None))


def is_plain(value: object) -> bool:
    if isinstance(value, tuple):
        return bool(value) and all(is_plain(one) for one in value)
    words = isinstance(value, str) and "\n" not in value  # else it is a program
    return words or (isinstance(value, (int, float, PurePath)) and not isinstance(value, bool))


@cache
def found() -> list[tuple[str, str]]:
    """(file and line, full name) of what all tests replace."""
    return [
        (f"{path.relative_to(TESTS)}:{line}", name)
        for path in sorted(TESTS.rglob("*.py"))
        for line, name in replaced(path.read_text(encoding="utf-8"))
    ]


def test_nothing_is_replaced_but_at_the_named_seams() -> None:
    others = [f"{where}: {name}" for where, name in found() if not is_seam(name) and name not in EXCEPTIONS]
    assert others == [], "see the table of seams in CONTRIBUTING.md"


def test_every_seam_is_in_use_and_in_the_table() -> None:
    table = CONTRIBUTING.read_text(encoding="utf-8")
    used = {name for _, name in found()}
    assert [name for name in SEAMS if name not in used] == []
    assert [name for name in SEAMS if f"`{name.rpartition('.')[2]}`" not in table] == []


@pytest.mark.only_all
def test_every_exception_is_in_use() -> None:
    assert sorted((LIBRARY | set(CONSTANTS) | set(EXCEPTIONS)) - {name for _, name in found()}) == []


IMPORTS = """
import os
from unittest import mock
import gpuprep.store
from gpuprep.store import Store
from gpuprep.workflows import runs, schedule as nightly
from nightlymachine import Machine
"""


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ('monkeypatch.setattr(nightly, "play", None)', "gpuprep.workflows.schedule.play"),
        ('patched.setattr("gpuprep.workflows.schedule.play", None)', "gpuprep.workflows.schedule.play"),
        ('monkeypatch.delattr(Store, "open")', "gpuprep.store.Store.open"),
        ('setattr(gpuprep.store, "engine", None)', "gpuprep.store.engine"),
        ('mock.patch("gpuprep.store.Store.open")', "gpuprep.store.Store.open"),
        ('mock.patch.object(Store, "open")', "gpuprep.store.Store.open"),
        ("Store.open = None", "gpuprep.store.Store.open"),
        ('monkeypatch.setitem(nightly.readers, "x", None)', "gpuprep.workflows.schedule.readers"),
        ("monkeypatch.setattr(nightly, name, None)", "gpuprep.workflows.schedule.?"),
        ('part = nightly\nmonkeypatch.setattr(part, "play", None)', "? part.play"),
        ('monkeypatch.setattr("os.rename", None)', "os.rename"),
        ('monkeypatch.setattr("gpuprep.checks.plausible.FORMS", None)', "gpuprep.checks.plausible.FORMS"),
        ('monkeypatch.setattr("gpuprep.remote.agent_client.NO_SUCH", None)', "gpuprep.remote.agent_client.NO_SUCH"),
    ],
)
def test_another_part_is_seen(line: str, name: str) -> None:
    assert [name for _, name in replaced(IMPORTS + line)] == [name]
    assert not is_seam(name)


@pytest.mark.parametrize(
    "line",
    [
        'monkeypatch.setattr(runs, "Host", None)',
        'monkeypatch.setattr("gpuprep.nightly.notify.MOST_WAITING", 1)',
        'monkeypatch.setattr("gpuprep.nightly.hooks.HOSTNAME", None)',
        'monkeypatch.setattr("os.geteuid", None)',
        "os.environ = {}",
        'monkeypatch.setattr(Machine, "answer", None)',
        "Machine.answer = None",
        "self.folder = None",
    ],
)
def test_a_seam_and_the_tests_own_are_none_of_these(line: str) -> None:
    assert all(is_seam(name) for _, name in replaced(IMPORTS + line))
