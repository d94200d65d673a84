"""The pages of `gpuprep serve`: what they show of a store with many hosts, on SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import html
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import quote

import browser
import oldstores
import postgres
import pytest
from commandline import Shell, own_folders
from dashboardserver import SECONDS, Pages, Server, pages, questions, read_only, serving
from fleetstore import Fleet, write
from records_for_tests import record
from waiting import until

from gpuprep import errors, reports
from gpuprep.dashboard.app import application, warm
from gpuprep.dashboard.board import Board
from gpuprep.dashboard.guard import Rules
from gpuprep.records import Finding, Status, Verdict
from gpuprep.store import Store
from gpuprep.store.overview import Run
from gpuprep.store.readonly import ReadOnlyStore

pytestmark = pytest.mark.xdist_group("dashboard")
HOSTS, NIGHTS = 64, 12
LAST = (datetime.now(timezone.utc) - timedelta(hours=30)).replace(hour=2, minute=30, second=0, microsecond=0)
MADE = Fleet(HOSTS, NIGHTS, LAST)


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.machines)])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "sqlite":
        made = f"sqlite:///{tmp_path_factory.mktemp('dashboard')}/history.db"
    else:
        server: postgres.Server = request.getfixturevalue("postgres_server")
        made = server.new_database()
    write(made, HOSTS, NIGHTS, LAST)
    return made


@pytest.fixture(scope="module")
def server(url: str) -> Iterator[Server]:
    with serving(url, "--no-token") as running:
        yield running


def rows(text: str) -> list[str]:
    """Names of hosts in the order of the page."""
    return [part.partition('"')[0] for part in text.split('<th scope="row"><a href="/host/')[1:]]


def test_the_fleet_has_the_worst_host_first_and_all_hosts_by_pages(server: Server) -> None:
    first, second = server.get("/fleet"), server.get("/fleet?page=2")
    assert (first.status, second.status) == (200, 200)
    assert rows(first.text)[:5] == ["gpu-0007", "gpu-0057", "gpu-0003", "gpu-0053", "gpu-0005"]
    assert sorted(rows(first.text) + rows(second.text)) == [MADE.name(host) for host in range(HOSTS)]
    assert "connection refused" in first.text
    assert "gpu 0.persistence_mode" in first.text


@pytest.mark.parametrize(
    ("question", "hosts"),
    [
        ("verdict=FAIL", ["gpu-0003", "gpu-0053"]),
        ("name=GPU-000&verdict=WARN", ["gpu-0005"]),
        ("gpu=NVIDIA+H200&name=000", ["gpu-0005", "gpu-0001", "gpu-0009"]),
        ("name=0011", ["gpu-0011"]),
        ("finding=gpu%200.persistence_mode", ["gpu-0003", "gpu-0053"]),
        ("driver=no.such", []),
        ("verdict=UNKNOWN&sort=name", ["gpu-0007", "gpu-0057"]),
    ],
)
def test_the_fleet_is_filtered(server: Server, question: str, hosts: list[str]) -> None:
    assert rows(server.get(f"/fleet?{question}").text) == hosts
    assert [one["host"] for one in server.get(f"/fleet?{question}&format=json").document["hosts"]] == hosts


def test_the_fleet_as_json_has_what_the_page_shows(server: Server) -> None:
    document = server.get("/fleet?format=json&name=gpu-0003").document
    assert document["schema_version"] == 1
    assert document["counts"] == {"UNKNOWN": 2, "FAIL": 2, "WARN": 3, "PASS": 57}
    (host,) = document["hosts"]
    assert (host["verdict"], host["driver"], host["gpu"]) == ("FAIL", "550.163.01", "NVIDIA A100-SXM4-80GB")
    assert [(one["subject"], one["property"], one["status"]) for one in host["findings"]] == [
        ("gpu 0", "persistence_mode", "FAIL")
    ]
    assert host["since"] == MADE.at(NIGHTS - 5)[:10]


def test_a_host_has_its_runs_certified_run_findings_over_time_and_speed(server: Server) -> None:
    page = server.get("/host/gpu-0003")
    assert page.status == 200
    assert page.text.count('href="/run/') >= 2 * NIGHTS  # in the strip, and in the list
    assert MADE.run_id(3, 0) in page.text.partition("Certified run")[2].partition("</section>")[0]
    assert "did not pass in 5 of 12 checks" in page.text
    assert f"<dt>since</dt><dd>{MADE.at(NIGHTS - 5)[:10]}" in page.text
    assert re.search(r"FP16/BF16: (59|6[01])\.\d TFLOPS", page.text)
    document = server.get("/host/gpu-0003?format=json").document
    assert [one["verdict"] for one in document["runs"]] == ["FAIL"] * 5 + ["PASS"] * (NIGHTS - 5)
    assert document["certified"]["run_id"] == MADE.run_id(3, 0)
    assert document["trend"] == "STEADY"


def test_a_host_that_gets_slower_is_found(server: Server) -> None:
    assert "Figures that fall" in server.get("/host/gpu-0011").text
    document = server.get("/host/gpu-0011?format=json").document
    assert document["trend"] == "DOWN"
    assert {one["figure"].split()[0] for one in document["falling"]} == {"fp32", "tf32", "fp16", "bf16", "fp64", "int8"}


def test_trends_of_all_hosts_come_with_time(server: Server) -> None:
    # it reads while nobody asks
    until(lambda: server.get("/trends?format=json").document["read"] >= HOSTS, "a trend is not read")
    document = server.get("/trends?format=json").document
    assert document["counts"] == {"DOWN": 1, "STEADY": HOSTS - 1}
    assert [one["host"] for one in document["trends"]] == ["gpu-0011"]


def test_nights_count_the_last_run_of_each_host(server: Server) -> None:
    counted = {one["night"]: one["counts"] for one in server.get("/nights?format=json").document["nights"]}
    day = (LAST - timedelta(days=1)).date().isoformat()  # a run at 02:30 belongs to the night that began at noon before
    words = [MADE.word(host, NIGHTS - 1) or "UNKNOWN" for host in range(HOSTS)]
    assert counted[day] == {word: words.count(word) for word in dict.fromkeys(words)}
    assert len(counted) == 30
    night = server.get(f"/nights/{day}?format=json").document
    assert night["total"] == HOSTS
    assert [one["verdict"] for one in night["runs"]][:4] == ["FAIL", "FAIL", "UNKNOWN", "UNKNOWN"]
    assert server.get(f"/nights/{day}?verdict=FAIL").text.count('class="mono" href="/run/') == 2


def test_findings_stand_once_with_all_their_hosts(server: Server) -> None:
    page = server.get("/findings")
    assert page.text.count('<article class="card issue FAIL">') == 1
    assert 'href="/host/gpu-0053"' in page.text
    one = server.get("/findings/gpu%200.persistence_mode?format=json").document
    assert one["hosts"] == ["gpu-0003", "gpu-0053"]
    assert [night["counts"] for night in one["nights"] if night["counts"]] == [{"FAIL": 2}] * 5
    assert server.get("/findings/gpu%200.persistence_mode").status == 200


def judged(store_url: str, **findings: list[Finding]) -> None:
    """A store in which each of these hosts has one run with these findings."""
    store = Store.open(store_url)
    for number, (host, listed) in enumerate(findings.items()):
        verdict = Verdict(Status.FAIL, "FAIL", tuple(listed))
        store.append(record(f"20261121-10000{number}-abc123", host=host, verdict=verdict, findings=(), command="drift"))
    store.close()


def failed(subject: str, name: str, status: Status = Status.FAIL, **more: Any) -> Finding:
    return Finding(subject, name, status, **{"expected": "on", "actual": "off", "reason": f"why {name}", **more})


def titles(page: str) -> list[str]:
    return [re.sub("<[^>]*>", "", title) for title in re.findall(r"<article.*?<h3>(.*?)</h3>", page, re.DOTALL)]


def test_findings_stand_by_cause_the_gravest_first(store_url: str) -> None:
    """By the alphabet the agent's version stood first, and each GPU and each figure made a cause of its own."""
    hot: dict[str, Any] = {"reason": "it is hot: 86 °C is more than 83 °C", "expected": "below 83 °C"}
    judged(
        store_url,
        one=[
            failed("agent", "version"),
            failed("a", "warned", Status.WARN),
            failed("gpu 0", "persistence_mode", role="gpu_tuning"),
            failed("driver", "loaded_version"),
            failed("gpus", "count", reason="GPU 0000:3b:00.0 is lost"),
            *(failed(f"gpu {gpu}", "temperature", actual=f"{86 + gpu} °C", **hot) for gpu in range(8)),
        ],
        two=[
            failed("gpus", "count", reason="GPU 0000:5e:00.0 is lost"),
            failed("gpu 5", "temperature", actual="95 °C", **{**hot, "reason": "it is hot: 95 °C is more than 83 °C"}),
            failed("agent", "version", Status.UNKNOWN),
        ],
        three=[failed("gpus", "count", reason="GPU 0000:af:00.0 is lost")],
    )
    with pages(store_url) as shown:
        page, document = shown.get("/findings").text, shown.get("/findings?format=json").document
    assert titles(page) == [
        "gpus count", "temperature of gpu 0, gpu 1, gpu 2 and 5 more", "driver loaded version", "agent version",
        "gpu 0 persistence mode", "agent version", "a warned",
    ]  # fmt: skip
    assert [(one["status"], len(one["keys"]), len(one["hosts"])) for one in document["findings"]] == [
        ("FAIL", 1, 3), ("FAIL", 8, 2), ("FAIL", 1, 1), ("FAIL", 1, 1), ("FAIL", 1, 1), ("UNKNOWN", 1, 1),
        ("WARN", 1, 1),
    ]  # fmt: skip
    assert "for example: it is hot" in page
    assert page.count('href="/findings/gpu%20') == 9  # eight in the fold, and the mode


def test_a_host_with_a_hundred_findings_shows_the_gravest_and_folds_the_rest(store_url: str) -> None:
    many = [
        failed(f"thing {n}", f"long_{'x' * 200}_{n}", Status.UNKNOWN, reason=f"{'a' * (n + 1)}") for n in range(130)
    ]
    do = "run `gpuprep tune HOST --profile t4`"
    judged(store_url, one=[*many, failed("", "", reason="", actual=""), failed("gpus", "count", remedy=do)])
    with pages(store_url) as shown:
        page = shown.get("/host/one").text
        findings = shown.get("/findings").text
    assert titles(page)[:2] == ["gpus count", "a check without a name"]
    assert len(titles(page)) == 132
    assert page.index("gpus count") < page.index("Last run") < page.index("Findings over time")
    first, _, rest = page.partition("129 more causes")
    assert (len(titles(first)), len(titles(rest))) == (3, 129)
    assert "<code>gpuprep tune one --profile t4</code>" in page, "a command that can be pasted"
    assert 'href="/findings/"' not in page
    assert 'href="/findings/."' not in findings


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("fell off the bus", ["gpus count"]),
        ("XID bus", ["gpus count"]),
        ("83", ["gpu 0 temperature"]),
        ("airflow rack", ["gpu 0 temperature"]),
        ("warn", ["gpu 0 temperature"]),
        ("bus airflow", []),  # of two findings
        ("off", ["gpus count", "gpu 0 temperature"]),
    ],
)
def test_search_finds_what_a_finding_says(store_url: str, asked: str, found: list[str]) -> None:
    judged(
        store_url,
        one=[
            failed("gpu 0", "temperature", Status.WARN, expected="below 83 °C", remedy="see the airflow of the rack"),
            failed("gpus", "count", reason="GPU 0 fell off the bus (Xid 79)"),
        ],
    )
    with pages(store_url) as shown:
        answer = shown.get(f"/search?q={quote(asked)}")
    assert titles(answer.text) == found
    assert ("Nothing was found" in answer.text) == (not found)


def test_search_finds_what_is_said_of_a_host_that_was_not_reached(server: Server) -> None:
    assert 'href="/host/gpu-0007"' in server.get("/search?q=connection+refused").text


def test_a_run_is_the_report_of_the_command_line(server: Server, url: str) -> None:
    run_id = MADE.run_id(3, NIGHTS - 1)
    store = Store.open(url)
    wanted = store.get(run_id)
    store.close()
    page = server.get(f"/run/{run_id}")
    begin = page.text.index('<nav class="above"')
    above = page.text[begin : page.text.index("</nav>", begin) + len("</nav>")]
    assert 'href="/host/gpu-0003"' in above
    # The server says what the report's own page says in a tag, and allows the style of the links above it besides.
    policy = re.search(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', reports.render(wanted, "html"))
    assert policy is not None
    style = '<link rel="stylesheet" href="/static/above.css">'
    assert page.text.replace(above, "").replace(style, policy[0], 1) == reports.render(wanted, "html")
    told = page.headers["content-security-policy"]
    own = html.unescape(policy[1])
    assert told == own.replace("style-src ", "style-src 'self' ", 1) + "; frame-ancestors 'none'"
    assert "'unsafe-inline'" not in told
    for style in reports.FORMATS:
        if style not in ("html", "sbom"):  # a bill of materials has the moment in which it was made
            assert server.get(f"/run/{run_id}?format={style}").text == reports.render(wanted, style), style
    assert server.get(f"/run/{run_id[:-3]}").status == 404  # fits several runs
    assert "fits several runs" in server.get(f"/run/{run_id[:-3]}").text


@pytest.mark.parametrize(
    ("asked", "found"),
    [("0011", "/host/gpu-0011"), ("persist", "/findings/gpu%200.persistence_mode"), ("V100", "/host/gpu-0002")],
)
def test_search_finds_hosts_and_findings(server: Server, asked: str, found: str) -> None:
    assert f'href="{found}"' in server.get(f"/search?q={asked}").text


def test_search_finds_runs_by_the_beginning_of_their_id(server: Server) -> None:
    run_id = MADE.run_id(5, 3)
    assert [run["run_id"] for run in server.get(f"/search?q={run_id}&format=json").document["runs"]] == [run_id]
    assert "Nothing was found" in server.get("/search?q=no-such-thing").text
    assert "two letters" in server.get("/search?q=x").text


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/nope", 404, "no such page"),
        ("/host/nobody", 404, "no runs of nobody"),
        ("/run/nothing", 404, "no run"),
        ("/nights/yesterday", 404, "is no day"),
        ("/nights/0001-01-01", 200, "No run fits"),
        ("/nights/9999-12-31", 404, "is no day"),
        ("/findings/x.y", 404, "no check x.y"),
        ("/fleet?page=0", 400, "this is no page"),
        ("/fleet?page=99", 200, "page 2 of 2"),
        ("/fleet?page=" + "9" * 400, 400, "characters"),
        ("/fleet?sort=x", 400, "not known"),
        ("/fleet?format=exe", 400, "not known"),
        ("/run/last?format=exe", 400, "not known"),
        ("/search?q=" + "x" * 256, 400, "at most 255"),
        ("/static/../app.py", 404, "no such page"),
        ("/static/serve.py", 404, "no such page"),
    ],
)
def test_a_wrong_address_is_a_plain_page(server: Server, path: str, status: int, words: str) -> None:
    answer = server.get(path)
    assert (answer.status, words in answer.text) == (status, True), answer.text
    assert "Traceback" not in answer.text


def hosts(answer: Any) -> list[tuple[str, str]]:
    return [(host["host"], host["verdict"]) for host in answer.document["hosts"]]


def test_a_new_run_is_shown_without_a_new_start(store_url: str) -> None:
    write(store_url, 3, 2, LAST)
    with pages(store_url) as shown:
        assert [word for _, word in hosts(shown.get("/fleet?format=json"))] == ["PASS"] * 3
        writer = Store.open(store_url)
        moment = (LAST + timedelta(hours=1)).isoformat(timespec="seconds")
        writer.append(record("20991231-000000-new000", host="gpu-0001", command="drift", started_at=moment))
        writer.close()
        fleet = shown.get("/fleet?format=json")
        assert hosts(fleet)[0] == ("gpu-0001", "FAIL")
        assert fleet.document["hosts"][0]["simulated"]
        assert "SIMULATED: the GPUs of 1 of these hosts" in shown.get("/fleet").text
        nights = shown.get("/nights?format=json").document["nights"]
        assert sum(one["counts"].get("FAIL", 0) for one in nights) == 1


def test_names_of_one_host_are_one_row(store_url: str) -> None:
    write(store_url, 3, 2, LAST)
    writer = Store.open(store_url)
    writer.join("gpu-0001", "gpu-0002", "2026-11-20T10:00:00+00:00")
    writer.close()
    with pages(store_url) as shown:
        fleet = shown.get("/fleet?format=json").document["hosts"]
        assert {host["host"]: host["also_called"] for host in fleet} == {"gpu-0000": [], "gpu-0002": ["gpu-0001"]}
        one, other = (shown.get(f"/host/{name}?format=json").document["runs"] for name in ("gpu-0001", "gpu-0002"))
        assert one == other


def test_a_host_that_nobody_could_judge_has_not_passed(store_url: str) -> None:
    write(store_url, 3, 2, LAST)
    store = Store.open(store_url)
    lost = {"command": "validate", "verdict": None, "error": "gpu-9: no answer", "exit_code": 3, "findings": ()}
    store.append(record("20261121-100000-abc123", host="gpu-9", **lost))
    store.close()
    with pages(store_url) as shown:
        page = shown.get("/findings").text
    assert "Every check of every host passed" not in page
    assert re.search(r"1 host was not judged, so nothing is known of it: <a [^>]*>gpu-9</a>\.", page)


def test_a_damaged_record_is_an_unknown_host_and_all_others_are_shown(store_url: str) -> None:
    write(store_url, 3, 2, LAST)
    with oldstores.database(store_url) as made, made.begin() as connection:
        connection.exec_driver_sql("UPDATE runs SET record = '{\"x\": 1' WHERE host = 'gpu-0001'")
    with pages(store_url) as shown:
        fleet = hosts(shown.get("/fleet?format=json"))
        assert fleet == [("gpu-0001", "UNKNOWN"), *((host, "PASS") for host in ("gpu-0000", "gpu-0002"))]
        assert "cannot be read" in shown.get("/fleet").text


def test_the_fleet_in_a_real_browser(server: Server, chromium: browser.Chromium) -> None:
    """Of all pages, at all widths: tests/browser/test_dashboard_browser.py."""
    seen = chromium.visit(f"{server.base}/fleet", width=browser.NARROW)
    assert seen.faults() == []
    assert "gpu-0003" in seen.text


# ---------------------------------------------------------------- read-only


def test_the_store_cannot_be_written(store_url: str) -> None:
    write(store_url, 2, 2, LAST)
    with read_only(store_url) as store:
        for change in (
            lambda: store.append(record("20991231-000000-new000")),
            lambda: store.prune([MADE.run_id(0, 0)]),
            lambda: store.join("a", "b", "2026-11-20T10:00:00+00:00"),
        ):
            with pytest.raises(errors.StoreError, match=r"read-?only"):
                change()
        assert len(store.runs(limit=10)) == 4


@pytest.fixture
def serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    own_folders(monkeypatch, tmp_path)
    return lambda *words: Shell(capsys)("serve", *words)


@pytest.mark.parametrize("revision", oldstores.OLDER)
def test_an_older_store_is_told_and_left_as_it_is(
    store_url: str, serve: Callable[..., tuple[int, str, str]], revision: str
) -> None:
    oldstores.make(store_url, "alembic", revision)
    before = oldstores.schema(store_url)
    code, out, err = serve("--store", store_url)
    assert (code != 0, out) == (True, "")
    assert "has an older form" in err
    assert "gpuprep history" in err
    assert oldstores.schema(store_url) == before


def test_no_store_is_made(serve: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    for words, said in {
        (): "there is no store of runs",
        ("--store", f"sqlite:///{tmp_path}/none.db"): "there is no store of runs",
        ("--store", "no url"): "this is no URL",
    }.items():
        code, out, err = serve(*words)
        assert (code != 0, out) == (True, "")
        assert said in err
    assert not list(tmp_path.rglob("*.db"))


def test_a_store_without_runs_is_an_empty_fleet(store_url: str) -> None:
    Store.open(store_url).close()
    with pages(store_url) as shown:
        for path in ("/fleet", "/nights", "/trends", "/findings", "/search?q=xx", "/healthz"):
            assert shown.get(path).status == 200, path
        assert "No run that judges a host" in shown.get("/fleet").text
        assert "No host has been checked yet" in shown.get("/findings").text
        assert shown.get("/run/last").status == 404


def test_a_health_check_is_answered_while_pages_wait_for_the_store(store_url: str) -> None:
    write(store_url, 4, 2)
    going, asked = threading.Event(), threading.Event()

    class Slow(ReadOnlyStore):
        def newest_of_hosts(self, commands: Collection[str]) -> list[Run]:
            asked.set()
            assert going.wait(SECONDS)
            return super().newest_of_hosts(commands)

    board = Board(Slow.open(store_url), fresh_seconds=0)
    shown = Pages(application(board, Rules("")))

    async def together() -> None:
        waiting = [asyncio.create_task(shown.ask("/fleet")) for _ in range(60)]
        while not asked.is_set():
            await asyncio.sleep(0.01)
        health = await asyncio.wait_for(shown.ask("/healthz"), SECONDS)
        assert (health.status, health.text) == (200, "ok\n")
        going.set()
        assert {answer.status for answer in await asyncio.gather(*waiting)} == {200}

    try:
        asyncio.run(together())
    finally:
        going.set()
        board.close()


def test_a_host_whose_clock_is_ahead_is_shown(store_url: str) -> None:
    writer = Store.open(store_url)
    writer.append(record("20991231-000000-new000", host="ahead", started_at="2099-12-31T00:00:00+00:00"))
    writer.close()
    with pages(store_url) as shown:
        fleet = shown.get("/fleet?format=json")
        assert hosts(fleet) == [("ahead", "FAIL")]
        assert fleet.document["hosts"][0]["simulated"]


def test_no_question_reads_all_runs(tmp_path: Path) -> None:
    """SQLite's plan of each question of the pages: by an index, never by all rows of the table of runs."""
    url = f"sqlite:///{tmp_path}/history.db"
    write(url, 3, 2, LAST)
    put = questions(
        url, run_id=MADE.run_id(0, 0), host="gpu-0001", check=("gpu 0", "persistence_mode"),
        nights=(MADE.at(0), MADE.at(1)),
    )  # fmt: skip
    assert len(put) > 8
    for text, plan in put.items():
        assert not [step for step in plan if step.startswith(("SCAN runs", "SCAN findings", "SCAN measurements"))], text


def test_what_the_first_pages_need_can_be_loaded_before() -> None:
    warm()
    assert all(reports.module(style) in sys.modules.values() for style in reports.FORMATS)
