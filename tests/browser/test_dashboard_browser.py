"""The pages of `gpuprep serve` in a real Chromium: 400 and 1280 px, light and dark, by keyboard, without scripts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import browser
import pytest
from dashboardserver import Server, serving
from fleetstore import write
from records_for_tests import record
from validations_for_tests import h200

from gpuprep.records import Finding, Source, Status, Verdict
from gpuprep.store import Store

pytestmark = pytest.mark.xdist_group("browser")
HOSTS, NIGHTS = 64, 32
MANY = "gpu-9999.with-a-long-name.rack-17.cluster-b.example.org"
SCREEN = 900  # px
PAGES = {
    "fleet": "/fleet",
    "fleet, filtered": "/fleet?verdict=FAIL&finding=gpu%200.persistence_mode",
    "a page of nothing": "/fleet?name=nobody",
    "a host that fails": "/host/gpu-0003",
    "a host that gets slower": "/host/gpu-0011",
    "a host with a hundred findings": f"/host/{MANY}",
    "a host of a stand-in": "/host/" + quote("sim:t4", safe=""),
    "nights": "/nights",
    "trends": "/trends",
    "findings": "/findings",
    "a finding": "/findings/gpu%200.persistence_mode",
    "search": "/search?q=gpu-00",
    "search of what findings say": "/search?q=slower+than",
    "nothing found": "/search?q=nothing-at-all",
    "a report": "/run/last",
}
# What the Tab key has to reach: not what lies in a fold that is closed.
STOPS = """[...document.querySelectorAll('a[href], input:not([type=hidden]), select, button, summary')].filter(
  one => !one.closest('details:not([open]) > :not(summary)')).length"""
# Each stop of the Tab key: what it is, and whether a reader sees that it is there.
STOP = """() => {
  const one = document.activeElement, style = getComputedStyle(one), box = one.getBoundingClientRect();
  const seen = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2 && box.width > 0 && box.height > 0;
  return [one.tagName, (one.getAttribute('href') || one.name || one.textContent || '').trim(), seen, box.left >= 0];
}"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    url = f"sqlite:///{tmp_path_factory.mktemp('browser')}/history.db"
    write(url, HOSTS, NIGHTS)
    store = Store.open(url)
    store.append(record("20261120-100000-abc123"))
    store.append(h200())
    verdict = Verdict(Status.FAIL, "FAIL: profile t4, 131 checks", tuple(many_findings()))
    for day in range(1, 21):
        run_id, at = f"202611{day:02d}-023000-99999", f"2026-11-{day:02d}T02:30:00+00:00"
        store.append(record(run_id, host=MANY, command="drift", started_at=at, verdict=verdict, source=Source.MEASURED))
    store.close()
    with serving(url) as running:
        yield running


def many_findings() -> Iterator[Finding]:
    yield Finding("agent", "version", Status.FAIL, "0.2.0", "0.1.0", "an older agent judges by older rules")
    for number in range(130):
        status = (Status.FAIL, Status.UNKNOWN, Status.WARN)[number % 3]
        why = "the GPU is slower than it can be " * (1 + number % 7) + "x" * (number % 11)
        todo = "run `gpuprep tune HOST --profile t4`" if number % 4 else ""
        yield Finding(
            f"gpu {number % 8}", f"a_long_name_of_a_check_{number}", status, "", "W" * (number % 90), why, todo
        )


@pytest.mark.parametrize("width", [browser.NARROW, browser.WIDE])
@pytest.mark.parametrize("host", [MANY, "gpu-0003", "gpu-0011"])
def test_a_host_is_told_in_three_screens(
    chromium: browser.Chromium, server: Server, cookie: dict[str, str], host: str, width: int
) -> None:
    # As many charts as there are headlines: the fleet of the test measures one.
    tall = """() => {
      const place = document.querySelector('.charts');
      while (place && place.children.length < 5) place.append(place.children[0].cloneNode(true));
      return document.documentElement.scrollHeight;
    }"""
    seen = chromium.visit(
        f"{server.base}/host/{host}", width=width, cookies=cookie, do=lambda page: page.evaluate(tall), check=False
    )
    assert seen.answer <= 3 * SCREEN


@pytest.fixture(scope="module")
def cookie(server: Server) -> dict[str, str]:
    token = server.url.partition("?token=")[2]
    name, _, value = server.get(f"/fleet?token={token}").headers["set-cookie"].partition(";")[0].partition("=")
    return {name: value}


@pytest.mark.parametrize(("name", "width", "dark"), browser.looks_at(PAGES))
def test_a_page_has_no_fault(
    chromium: browser.Chromium, server: Server, cookie: dict[str, str], name: str, width: int, dark: bool
) -> None:
    seen = chromium.visit(server.base + PAGES[name], width=width, dark=dark, cookies=cookie)
    assert seen.status == 200
    assert seen.faults() == []


def test_a_night_has_no_fault(chromium: browser.Chromium, server: Server, cookie: dict[str, str]) -> None:
    def newest(page: Any) -> None:
        page.click("main table a[href^='/nights/']")

    for width, dark in browser.SOME_LOOKS:
        seen = chromium.visit(f"{server.base}/nights", width=width, dark=dark, cookies=cookie, do=newest)
        assert seen.title.startswith("Night of ")
        assert seen.faults() == []


def test_the_token_is_not_left_in_the_address(chromium: browser.Chromium, server: Server) -> None:
    seen = chromium.visit(server.url, check=False)
    assert seen.url == f"{server.base}/fleet"
    assert "gpu-0003" in seen.text
    refused = chromium.visit(f"{server.base}/fleet", check=False)
    assert (refused.status, "a token is needed" in refused.text) == (401, True)


@pytest.mark.parametrize("path", ["/fleet", "/host/gpu-0003", "/findings"])
def test_the_tab_key_reaches_everything_and_shows_where_it_is(
    chromium: browser.Chromium, server: Server, cookie: dict[str, str], path: str
) -> None:
    def walk(page: Any) -> tuple[int, list[Any]]:
        wanted = page.evaluate(STOPS)
        stops = []
        for _ in range(wanted):
            page.keyboard.press("Tab")
            stops.append(page.evaluate(STOP))
        return wanted, stops

    wanted, stops = chromium.visit(server.base + path, cookies=cookie, do=walk, check=False).answer
    assert stops[0][:2] == ["A", "#content"]  # the way past what stands on all pages
    assert all(seen and inside for _, _, seen, inside in stops), [stop for stop in stops if not all(stop[2:])]
    assert "BODY" not in {name for name, *_ in stops}
    assert wanted > 10


def test_a_reader_gets_from_the_fleet_to_a_report_and_back(
    chromium: browser.Chromium, server: Server, cookie: dict[str, str]
) -> None:
    def go(page: Any) -> list[str]:
        titles = []
        page.get_by_role("link", name="gpu-0003", exact=True).click()
        page.wait_for_url("**/host/gpu-0003")
        titles.append(page.title())
        page.locator("#last + p a").click()
        page.wait_for_url("**/run/*")
        titles.append(page.title())
        page.get_by_role("link", name="gpu-0003", exact=True).first.click()
        page.wait_for_url("**/host/gpu-0003")
        titles.append(page.title())
        page.get_by_role("searchbox").fill("0011")
        page.keyboard.press("Enter")
        page.wait_for_url("**/search?q=0011")
        titles.append(page.title())
        return titles

    host, report, again, found = chromium.visit(f"{server.base}/fleet", cookies=cookie, do=go, check=False).answer
    assert host == again == "gpu-0003: FAIL · gpuprep"
    assert report.startswith("FAIL: gpu-0003")
    assert found.startswith("0011: search")


def test_the_pages_are_whole_without_scripts(
    chromium: browser.Chromium, server: Server, cookie: dict[str, str]
) -> None:
    for path in ("/fleet?verdict=FAIL", "/nights", "/host/gpu-0003"):
        scripted = chromium.visit(server.base + path, cookies=cookie, check=False)
        plain = chromium.visit(server.base + path, cookies=cookie, javascript=False)
        # Each page says when it was made: between the two visits a minute may begin.
        words, without = (
            [word for word in seen.text.split() if word != "Live" and not re.fullmatch(r"\d\d:\d\d", word)]
            for seen in (scripted, plain)
        )
        assert without == words


def test_a_live_page_is_loaded_again_until_it_is_held(
    chromium: browser.Chromium, server: Server, cookie: dict[str, str]
) -> None:
    def watch(page: Any) -> tuple[int, int]:
        loads: list[str] = []
        page.on("load", lambda _: loads.append(page.url))
        page.clock.install()
        page.reload()
        with page.expect_event("load"):
            page.clock.run_for(61_000)
        before = len(loads)
        page.get_by_role("button", name="Live").click()
        page.get_by_role("button", name="Held").wait_for()
        page.clock.run_for(300_000)
        return before, len(loads)

    before, after = chromium.visit(f"{server.base}/fleet", cookies=cookie, do=watch, check=False).answer
    assert before == 2  # ours, and the page's own
    assert after == before
