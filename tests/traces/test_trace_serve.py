"""gpuprep trace serve: a real process, plain requests, and a real Chromium."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import browser
import pytest
import tracesteps
from commandline import Shell, nothing_may_listen, own_folders
from manyranks import job
from traceserver import RECORDED, Server, serving
from waiting import until

from gpuprep import listening
from gpuprep.trace import opening, serve, web

ONE = RECORDED / "gpt-stacks.json.gz"
HOSTILE = "<img src=x onerror=alert(1)>&\"'.pt.trace.json.gz"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("served")
    (made / "deep").mkdir()
    shutil.copy(ONE, made / "deep" / "a.pt.trace.json.gz")
    shutil.copy(RECORDED / "attention-sdpa.json.gz", made / HOSTILE)
    (made / "secret.txt").write_text("not to be handed out")
    (made / "x.sqlite").write_bytes(b"SQLite format 3\0" + b"API_TOKEN=hunter2")
    (made / "own").mkdir()
    (made / "own" / "changes.pt.trace.json").write_bytes(gzip.decompress(ONE.read_bytes()))
    return made


@pytest.fixture(scope="module")
def several(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("home"), "--no-token", str(folder)) as server:
        yield server


RUN = quote("deep/a.pt.trace.json.gz", safe="")


@pytest.fixture
def gpuprep(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shell:
    own_folders(monkeypatch, tmp_path)
    return Shell(capsys)


def test_one_profile_is_shown_at_once_and_the_document_is_that_of_report(gpuprep: Shell, tmp_path: Path) -> None:
    code, reported, _ = gpuprep("trace", "report", "-q", "--json", str(ONE))
    assert code == 0
    with serving(tmp_path, "-q", "--no-token", str(ONE)) as server:
        first = server.ask("/")
        assert (first.status, first.headers["location"]) == (303, f"page?run={ONE.name}")
        assert server.ask(f"/document.json?run={ONE.name}").body.decode().strip() == reported.strip()
        page = server.ask(f"/page?run={ONE.name}")
        assert page.status == 200
        assert page.body.startswith(b"<!doctype html>")


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("ranks")
    for trace in job():
        trace.write(folder)
    with serving(tmp_path_factory.mktemp("home"), "--no-token", str(folder)) as server:
        yield server


def test_several_profiles_may_be_the_ranks_of_a_job(ranks: Server, several: Server) -> None:
    assert b'href="page?job=."' in ranks.ask("/").body
    told = json.loads(ranks.ask("/document.json?job=.").body)
    assert [one["file"] for one in told["ranks"]] == ["rank0.json", "rank1.json", "rank2.json"]
    assert told["stragglers"][0]["rank"] == 2
    for wrong in ("job=", "job=nowhere", "job=..", "job=.&start=1", "job=/etc"):
        assert ranks.ask(f"/page?{wrong}").status == 422, wrong
    assert several.ask("/page?job=deep").status == 422, "one profile is no job"


@pytest.mark.parametrize(
    ("names", "whole", "jobs"),
    [
        (["a.json", "b.json"], True, {".": 2}),
        (["a.json"], True, {}),
        (["a/1.json", "a/2.json", "b/1.json"], False, {"a": 2}),
        (["a/1.json", "a/2.json", "b/1.json"], True, {".": 3, "a": 2}),
        (["rank0/x.json", "rank1/x.json"], True, {".": 2}),
        (["rank0/x.json", "rank1/x.json"], False, {}),
        (["deep/er/1.json", "deep/er/2.json"], True, {".": 2}),
    ],
)
def test_which_folders_may_be_jobs(names: list[str], whole: bool, jobs: dict[str, int]) -> None:
    found = web.Library(lambda: {}, whole=whole).jobs_of(names)
    assert {folder: len(runs) for folder, runs in found.items()} == jobs


def test_iterations_are_chosen_in_the_address(several: Server) -> None:
    whole = json.loads(several.ask(f"/document.json?run={RUN}").body)["summary"]
    first = json.loads(several.ask(f"/document.json?run={RUN}&start=0&stop=0").body)["summary"]
    assert whole["iterations"] > first["iterations"] == 1
    assert first["stop_iteration"] == 0
    for wrong in ("start=-1", "start=1e3", "start=99999", "start=%F0%9F", "stop=x", "key_op=nowhere"):
        answer = several.ask(f"/document.json?run={RUN}&{wrong}")
        assert answer.status in (400, 422), wrong
        assert len(answer.body.splitlines()) <= 3


def test_the_raw_trace_is_the_file_itself(several: Server) -> None:
    answer = several.ask(f"/raw?run={RUN}")
    assert answer.body == ONE.read_bytes()
    assert "attachment" in answer.headers["content-disposition"]
    assert several.ask(f"/raw?run={RUN}", method="HEAD").body == b""
    named = several.ask(f"/raw?run={quote(HOSTILE, safe='')}").headers["content-disposition"]
    assert named.count('"') == 2
    assert "<" not in named


def test_an_export_of_nsight_systems_is_not_handed_out(several: Server) -> None:
    """It has the recorded environment in it."""
    assert b"x.sqlite" in several.ask("/").body
    for path in ("/raw?run=x.sqlite", "/perfetto?run=x.sqlite", "/page?run=x.sqlite"):
        answer = several.ask(path)
        assert answer.status in (404, 422)
        assert b"hunter2" not in answer.body


@pytest.mark.parametrize(
    "path",
    [
        "/raw?run=secret.txt", "/raw?run=../secret.txt", "/raw?run=/etc/passwd", "/page?run=", "/page",
        "/document.json?run=deep", "/../../etc/passwd", "/secret.txt", "/static/../app.py", "/app.py", "/raw?run=%00",
        "/page?run=%FF", "/page?" + "a=1&" * 40,
    ],
)  # fmt: skip
def test_nothing_but_profiles_of_the_folder_is_answered(several: Server, path: str) -> None:
    answer = several.ask(path)
    assert answer.status in (400, 404, 422), path
    assert b"not to be handed out" not in answer.body
    assert b"root:" not in answer.body


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:1", 200), ("127.0.0.1", 200), ("[::1]:80", 200), ("192.0.2.1:8766", 200), ("evil.example", 421),
        ("localhost.evil.example:80", 421), ("", 421), ("127.0.0.1.evil.example", 421), ("a b", 421),
    ],
)  # fmt: skip
def test_a_name_that_leads_here_is_refused(several: Server, host: str, status: int) -> None:
    """DNS rebinding."""
    assert several.ask("/index.html", host=host or " ").status == status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_nothing_can_be_changed(several: Server, method: str) -> None:
    assert several.ask("/index.html", method=method).status == 405


def test_a_token_is_asked_for_and_becomes_a_cookie(tmp_path: Path) -> None:
    with serving(tmp_path, "-q", str(ONE)) as server:
        token = urlsplit(server.url).query
        assert server.ask("/").status == 401
        assert server.ask("/?token=wrong").status == 401
        let_in = server.ask(f"/page?{token}&run={ONE.name}")
        assert let_in.status == 303
        assert "token" not in let_in.headers["location"]
        cookie = let_in.headers["set-cookie"].partition(";")[0]
        assert token.partition("=")[2] not in cookie
        assert "HttpOnly" in let_in.headers["set-cookie"]
        assert server.ask(let_in.headers["location"], cookie=cookie).status == 200
        assert server.ask("/document.json?run=x", cookie=cookie.replace("=", "=0")).status == 401


def test_each_answer_says_what_a_browser_may_do(several: Server) -> None:
    for path in ("/index.html", f"/page?run={RUN}", f"/perfetto?run={RUN}"):
        headers = several.ask(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'self'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


def test_a_file_that_changed_is_read_again(several: Server, folder: Path) -> None:
    path, asked = folder / "own" / "changes.pt.trace.json", "/document.json?run=own%2Fchanges.pt.trace.json"
    before = json.loads(several.ask(asked).body)
    other = gzip.decompress((RECORDED / "attention-sdpa.json.gz").read_bytes())
    path.write_bytes(other)
    after = json.loads(several.ask(asked).body)
    assert before["file"]["bytes"] != after["file"]["bytes"] == len(other)


@pytest.mark.parametrize("words", [("--listen", "nonsense"), ("--listen", "127.0.0.1:99999"), ("--listen", "[::1:80")])
def test_where_it_cannot_listen(gpuprep: Shell, words: tuple[str, ...]) -> None:
    code, out, err = gpuprep("trace", "serve", *words, str(ONE))
    assert (code, out) == (2, "")
    assert err.startswith("Error: --listen")


def test_a_port_that_is_taken_and_a_file_that_is_none(gpuprep: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        for words, said in (((str(ONE), "--listen", where), "nothing can listen there"), (("/nowhere",), "no such")):
            code, _, err = gpuprep("trace", "serve", "-q", *words)
            assert code == 2
            assert said in err


@pytest.mark.parametrize("address", ["0.0.0.0", "10.0.0.1"])
def test_others_may_not_look_without_a_token(gpuprep: Shell, monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    nothing_may_listen(monkeypatch)
    code, _, err = gpuprep("trace", "serve", "--no-token", "--listen", f"{address}:0", str(ONE))
    assert code == 2
    assert "could read the pages" in err


# ---------------------------------------------------------------- in a browser


@pytest.mark.machines
def test_the_list_leads_to_each_page(chromium: browser.Chromium, several: Server) -> None:
    alerts: list[str] = []

    def look(page: Any) -> tuple[str, str]:
        def said(dialog: Any) -> None:
            alerts.append(dialog.message)
            dialog.dismiss()

        page.on("dialog", said)
        names = page.locator("nav").inner_text()
        page.get_by_role("link", name="deep/a.pt.trace.json.gz").click()
        frame = page.frame_locator("iframe")
        frame.get_by_text("GPU Utilization").first.wait_for()
        return names, frame.locator("body").inner_text()

    seen = chromium.visit(f"http://{several.place}/", do=look)
    assert (seen.errors, seen.elsewhere, seen.failed, seen.console) == ([], [], [], [])
    names, shown = seen.answer
    assert HOSTILE in names, "a hostile name is text"
    assert alerts == []
    assert "Recommendations" in shown


@pytest.mark.machines
def test_the_page_of_a_job_leads_to_every_rank(chromium: browser.Chromium, ranks: Server) -> None:
    def look(page: Any) -> tuple[str, str, str]:
        page.get_by_role("link", name="3 profiles, as the ranks of one job").click()
        frame = page.frame_locator("iframe")
        frame.get_by_role("link", name="Ranks", exact=True).click()
        frame.get_by_text("Rank 2 enters collectives last").first.wait_for()
        frame.locator("#rank").select_option("2")
        frame.locator("#range", has_text="Rank 2.").wait_for()
        frame.get_by_role("link", name="Timeline", exact=True).click()
        frame.get_by_role("link", name="Open in Perfetto").wait_for()
        return (
            frame.locator("#navigation").inner_text(),
            frame.get_by_role("link", name="Open in Perfetto").get_attribute("href"),
            frame.get_by_role("link", name="The trace itself").get_attribute("href"),
        )

    seen = chromium.visit(f"http://{ranks.place}/", do=look)
    assert (seen.errors, seen.elsewhere, seen.failed, seen.console) == ([], [], [], [])
    navigation, perfetto, raw = seen.answer
    assert "rank2.json" in navigation
    assert (perfetto, raw) == ("perfetto?run=rank2.json", "raw?run=rank2.json")


@pytest.mark.machines
def test_the_page_of_a_rank_leads_to_the_ranks(chromium: browser.Chromium, ranks: Server) -> None:
    def look(page: Any) -> str:
        page.get_by_role("link", name="Ranks (3 profiles)").click()
        page.wait_for_url("**/page?job=.#/ranks?rank=1")
        page.get_by_text("Rank 2 enters collectives last").first.wait_for()
        page.locator("#range", has_text="Rank 1.").wait_for()
        return str(page.locator("#navigation").inner_text())

    seen = chromium.visit(f"http://{ranks.place}/page?run=rank1.json", do=look)
    assert (seen.errors, seen.elsewhere, seen.failed, seen.console) == ([], [], [], [])
    assert "Ranks (3 profiles)" not in seen.answer, "this is the page that the link leads to"


def test_the_page_of_a_profile_that_is_alone_in_its_folder_names_no_job(tmp_path: Path) -> None:
    for place, trace in zip(("a", "b", "b"), job(), strict=True):
        (tmp_path / place).mkdir(exist_ok=True)
        trace.write(tmp_path / place)
    runs = {str(path.relative_to(tmp_path)): path for path in tmp_path.glob("*/*.json")}
    library = web.Library(lambda: runs)
    assert [b'id="job"' in library.page(web.Asked(run)).html for run in sorted(runs)] == [False, True, True]
    del runs["b/rank2.json"]
    assert b'id="job"' not in library.page(web.Asked("b/rank1.json")).html, "made again, for its job is gone"


@pytest.mark.only_all
def test_a_rank_that_has_no_room_in_the_page_of_a_job_has_a_page_of_its_own(
    chromium: browser.Chromium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for trace in job():
        trace.write(tmp_path)
    files = {path.name: path for path in sorted(tmp_path.glob("*.json"))}
    profile = opening.open_trace(files["rank0.json"]).profile
    full, least = (len(tracesteps.packed(profile, room=room).data) for room in (None, 1))
    urls: list[str] = []
    heard = threading.Event()

    def say(url: str) -> None:
        urls.append(url)
        heard.set()

    answering = web.application(web.Library(lambda: files, whole=True))
    where = listening.parse("127.0.0.1:0", 0)
    threading.Thread(target=serve.serve, args=(answering, where, "", [], say), daemon=True).start()
    assert heard.wait(300)

    def look(page: Any) -> tuple[str, ...]:
        page.wait_for_selector("#content h1")
        # Each rank has a third of the room: enough for its sums alone.
        said = page.inner_text("#content")
        page.get_by_role("link", name="The page of this profile alone").click()
        page.wait_for_url("**/page?run=rank0.json")
        page.wait_for_selector("#content h1")
        assert page.evaluate("tracePage.state.data.has.kernels")
        tracesteps.room_of_a_server(monkeypatch, least + 1)  # for one rank alone
        files["rank0.json"].touch()  # so the page is made again
        page.goto(f"{urls[0]}page?job=.&again#/ranks")
        page.wait_for_selector("#rank")
        ranks = page.inner_text("#rank")
        page.select_option("#rank", "1")
        page.wait_for_url("**/page?run=rank1.json")
        return said, ranks

    tracesteps.room_of_a_server(monkeypatch, (full + least) // 2 * 3)
    seen = chromium.visit(f"{urls[0]}page?job=.#/timeline", do=look, check=False)
    said, ranks = seen.answer
    assert "Single kernels are not in this page" in said
    assert ranks.split("\n") == ["Rank 0", "Rank 1 (a page of its own)", "Rank 2, straggler (a page of its own)"]


@pytest.mark.machines
def test_perfetto_gets_the_trace_from_the_browser_alone(chromium: browser.Chromium, several: Server) -> None:
    """Perfetto's own page is played here: it says PONG, and takes what it is sent."""

    def look(page: Any) -> tuple[int, str]:
        page.evaluate(
            """() => { window.open = url => {
                 window.opened = url;
                 return { postMessage(data, origin) {
                   if (data === 'PING') window.dispatchEvent(new MessageEvent('message', { data: 'PONG', origin }));
                   else { window.got = data.perfetto.buffer.byteLength; window.named = data.perfetto.title; }
                 } };
               }; }"""
        )
        page.get_by_role("button", name="Open in Perfetto").click()
        page.get_by_text("Perfetto has the trace").wait_for()
        return page.evaluate("window.got"), page.evaluate("window.opened + ' ' + window.named")

    seen = chromium.visit(f"http://{several.place}/perfetto?run={RUN}", do=look)
    assert seen.faults() == []
    assert seen.answer == (ONE.stat().st_size, "https://ui.perfetto.dev deep/a.pt.trace.json.gz")


# ---------------------------------------------------------------- the list


def listed(library: web.Library) -> str:
    started: list[str] = []
    environ = {"PATH_INFO": "/index.html", "QUERY_STRING": "", "REQUEST_METHOD": "GET"}
    body = web.application(library)(environ, lambda status, *_: started.append(status))  # type: ignore[arg-type]
    assert started == ["200 OK"]
    return b"".join(body).decode()


@pytest.fixture
def served(tmp_path: Path) -> Path:
    for name in ("gpt-bf16", "sync-item"):
        shutil.copy(RECORDED / f"{name}.json.gz", tmp_path)
    stepless = job()[0]
    stepless.events = [event for event in stepless.events if not event["name"].startswith("ProfilerStep")]
    stepless.write(tmp_path)
    (tmp_path / "torn.json").write_text('{"traceEvents": [')
    (tmp_path / "bad.sqlite").write_bytes(b"SQLite format 3\0 <b>")
    return tmp_path


def library_of(folder: Path) -> web.Library:
    return web.Library(lambda: {path.name: path for path in sorted(folder.iterdir())}, [folder])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpt-bf16.json.gz", "NVIDIA H100 80GB HBM3 (9.0) · 2026-11-23 14:12 UTC · 14.70 ms a step, 3 steps"),
        ("sync-item.json.gz", "NVIDIA H100 80GB HBM3 (9.0) · 2026-11-23 14:12 UTC · 20.46 ms a step, 3 steps"),
        ("rank0.json", "no steps"),
        ("torn.json", "torn.json: the file ends before its first event does: its writer was stopped"),
        ("bad.sqlite", "bad.sqlite: "),
        ("large.json", "more than 64 MB: read when it is opened"),
    ],
)
def test_the_list_tells_gpu_date_and_step_of_each_run(
    name: str, words: str, served: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuprep.trace.web.library.PATIENCE_SECONDS", 600.0)
    with (served / "large.json").open("wb") as file:
        file.truncate((64 << 20) + 1)
    page = listed(library_of(served))
    told = page.partition(f">{name}</a><small>")[2].partition("</small>")[0]
    assert words in re.sub("<[^>]*>", "", told)
    assert "<b>" not in page
    assert "still read" not in page


def test_what_is_not_read_yet_is_said_and_is_there_later(served: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuprep.trace.web.library.PATIENCE_SECONDS", 0.0)
    library = library_of(served)
    first = listed(library)
    waiting = re.search(r"<p>(\d) of 5 are still read\.", first)
    assert waiting, "the large ones take longer than no time"
    assert first.count("not read yet") == int(waiting[1])
    until(lambda: "still read" not in listed(library), "a file is not read")
    (served / "torn.json").write_bytes(gzip.decompress((RECORDED / "sync-none.json.gz").read_bytes()))
    until(lambda: "5.682 ms a step" in listed(library), "a file that changed is not read again")
