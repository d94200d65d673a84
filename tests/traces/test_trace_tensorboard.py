"""The plugin: which runs it finds, and the page in a real TensorBoard with a real Chromium."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import browser
import pytest
import traceserver
from traceserver import RECORDED, Server

pytest.importorskip("tensorboard")
from places import ROOT

from gpuprep.trace import formats, opening
from gpuprep.trace import tensorboard as plugin

ONE = RECORDED / "gpt-stacks.json.gz"
NAME = "job/worker0.1700000000000.pt.trace.json.gz"


def context(logdir: object = None, spec: str | None = None) -> Any:
    return SimpleNamespace(logdir=logdir, flags=SimpleNamespace(logdir_spec=spec))


def runs(*arguments: Any) -> list[str]:
    return list(plugin.GpuprepPlugin(context(*arguments)).runs())


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    (tmp_path / "job").mkdir()
    shutil.copy(ONE, tmp_path / NAME)
    (tmp_path / "job" / "events.out.tfevents.1").touch()
    (tmp_path / "job" / "config.json").write_text("{}")
    (tmp_path / "b.pt.trace.json").touch()
    (tmp_path / "c.nsys.sqlite").touch()
    return tmp_path


def test_runs_are_named_as_tensorboard_does(logdir: Path) -> None:
    assert runs(str(logdir)) == ["b.pt.trace.json", "c.nsys.sqlite", NAME]
    assert runs("", f"one:{logdir}/job,{logdir}") == [
        f"one/{Path(NAME).name}", f"{logdir}/b.pt.trace.json", f"{logdir}/c.nsys.sqlite", f"{logdir}/{NAME}",
    ]  # fmt: skip


@pytest.mark.parametrize("folder", [None, "", "gs://bucket/runs", "s3://x", "/nowhere"])
def test_where_there_is_nothing_the_plugin_is_not_active(folder: str | None) -> None:
    made = plugin.GpuprepPlugin(context(folder))
    assert not made.is_active()
    assert made.runs() == {}


def test_a_folder_of_everything_is_not_looked_into_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path.joinpath(*["d"] * (plugin.DEEPEST + 1))
    deep.mkdir(parents=True)
    (deep / "a.pt.trace.json").touch()
    assert runs(str(tmp_path)) == []
    for number in range(5):
        (tmp_path / f"{number}.pt.trace.json").touch()
    monkeypatch.setattr(plugin, "MOST_RUNS", 3)
    assert len(runs(str(tmp_path))) == 3
    monkeypatch.setattr(plugin, "MOST_FOLDERS", 0)
    assert runs(str(tmp_path)) == []


def test_a_library_that_lacks_keeps_tensorboard_from_nothing(logdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "READABLE", False)
    made = plugin.GpuprepPlugin(context(str(logdir)))
    assert not made.is_active()
    assert made.get_plugin_apps() == {}


def test_every_address_of_the_pages_has_a_route() -> None:
    names = ("index.html", "page", "document.json", "raw", "perfetto", "index.js", "perfetto.js", "web.css")
    assert {f"/{name}" for name in names} <= set(plugin.GpuprepPlugin(context()).get_plugin_apps())


def test_an_installed_gpuprep_names_the_plugin() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert '[project.entry-points.tensorboard_plugins]\ngpuprep = "gpuprep.trace.tensorboard:GpuprepPlugin"' in text
    for point in metadata.entry_points(group="tensorboard_plugins", name="gpuprep"):
        assert point.load() is plugin.GpuprepPlugin


def asking(logdir: Path) -> Callable[..., str]:
    """As TensorBoard asks the plugin."""
    apps = plugin.GpuprepPlugin(context(str(logdir))).get_plugin_apps()

    def ask(route: str, query: str = "", host: str = "localhost:6006") -> str:
        asked = {"REQUEST_METHOD": "GET", "PATH_INFO": f"/data/plugin/gpuprep{route}", "QUERY_STRING": query}
        asked["HTTP_HOST"] = host
        return b"".join(apps[route](asked, lambda *_: len)).decode()

    return ask


def test_a_run_has_its_page_and_its_document(logdir: Path) -> None:
    ask, run = asking(logdir), f"run={NAME.replace('/', '%2F')}"
    there = json.loads(ask("/document.json", run))
    here = json.loads(formats.FORMATS["json"](opening.open_trace(ONE).document))
    for part in ("summary", "kernels", "ops", "iterations"):
        assert there[part] == here[part], part
    assert ask("/page", run).startswith("<!doctype html>")


def test_the_ranks_of_a_job_are_one_page(tmp_path: Path) -> None:
    """torch.profiler.tensorboard_trace_handler writes the files of all ranks into one folder."""
    (tmp_path / "ddp").mkdir()
    for rank in range(2):
        shutil.copy(RECORDED / f"ddp-gloo-rank{rank}.json.gz", tmp_path / "ddp" / f"host_{rank}.1.pt.trace.json.gz")
    ask = asking(tmp_path)
    assert 'href="page?job=ddp">ddp: 2 profiles, as the ranks of one job</a>' in ask("/index.html")
    assert [one["rank"] for one in json.loads(ask("/document.json", "job=ddp"))["ranks"]] == [0, 1]
    assert all(f'id="{name}"' in ask("/page", "job=ddp") for name in ("job", "profile", "profile-1"))


@pytest.mark.parametrize(
    ("host", "answered"),
    [
        ("localhost:6006", True), ("127.0.0.1:6006", True), ("[::1]", True), ("192.0.2.7:6006", True),
        (socket.gethostname(), True), ("tb.example.org", True), ("TB.example.org.:443", True),
        ("evil.example", False), ("localhost.evil.example:6006", False), ("127.0.0.1.evil.example", False),
        ("", False), ("x.tb.example.org", False),
    ],
)  # fmt: skip
def test_a_foreign_name_that_leads_to_tensorboard_gets_nothing(
    logdir: Path, monkeypatch: pytest.MonkeyPatch, host: str, answered: bool
) -> None:
    """DNS rebinding: a page of another site would read every profile. TensorBoard itself looks at no name."""
    monkeypatch.setenv("GPUPREP_TENSORBOARD_NAMES", "tb.example.org,other.example.org")
    told = asking(logdir)("/index.html", host=host)
    assert (NAME in told) is answered
    assert ("GPUPREP_TENSORBOARD_NAMES" in told) is not answered


# ---------------------------------------------------------------- a real TensorBoard


real = pytest.mark.machines


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    logdir = tmp_path_factory.mktemp("logdir")
    (logdir / "job").mkdir()
    shutil.copy(ONE, logdir / NAME)
    with traceserver.tensorboard(logdir, tmp_path_factory.mktemp("plugins")) as running:
        yield running


@real
def test_tensorboard_lists_the_plugin(board: Server) -> None:
    listed = json.loads(board.ask("/data/plugins_listing").body)["gpuprep"]
    assert listed["enabled"]
    assert listed["tab_name"] == "GPU profile"
    assert listed["loading_mechanism"] == {"type": "IFRAME", "module_path": "/data/plugin/gpuprep/index.js"}


@real
def test_the_page_and_the_document_are_those_of_the_command_line(board: Server) -> None:
    asked = f"/data/plugin/gpuprep/document.json?run={NAME.replace('/', '%2F')}"
    there = json.loads(board.ask(asked).body)
    here = json.loads(formats.FORMATS["json"](opening.open_trace(ONE).document))
    assert there["file"].pop("name") != here["file"].pop("name")
    for part in ("summary", "kernels", "ops", "iterations"):
        assert there[part] == here[part], part


@real
@pytest.mark.parametrize("width", [browser.NARROW, browser.WIDE])
def test_the_tab_shows_the_page(chromium: browser.Chromium, board: Server, width: int) -> None:
    def look(page: Any) -> tuple[str, str]:
        frame = page.frame_locator("iframe")
        frame.get_by_text("GPU Utilization").first.wait_for()
        # A view of its own, by the page's own script: what TensorBoard allows is enough for it.
        link = frame.get_by_role("link", name="Iterations", exact=True).first
        if link.is_visible():
            link.click()
            frame.get_by_text("Key op", exact=True).first.wait_for()
        return page.frames[-1].url, frame.locator("body").inner_text()

    seen = chromium.visit(f"http://{board.place}/#gpuprep", do=look, width=width, check=False)
    url, text = seen.answer
    assert "/data/plugin/gpuprep/page?run=" in url
    assert Path(NAME).name in text
    ours = [line for line in seen.console + seen.errors if "gpuprep" in line or "Content Security Policy" in line]
    assert ours == []
    assert not [line for line in seen.failed if "/data/plugin/gpuprep/" in line]
    assert [line for line in seen.elsewhere if "fonts" not in line and "gstatic" not in line] == []
