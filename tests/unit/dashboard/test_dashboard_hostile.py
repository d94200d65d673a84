"""Records that a hostile host could have made, on the pages of `gpuprep serve`."""

from __future__ import annotations

import dataclasses
import unicodedata
from collections.abc import Iterator
from html.parser import HTMLParser
from urllib.parse import quote

import browser
import pytest
from dashboardserver import Server, serving
from hostilerecords import PAYLOADS, RECORDS, spoiled

from gpuprep import errors, records
from gpuprep.store import Store

pytestmark = pytest.mark.xdist_group("dashboard")
PAGES = ("/fleet", "/nights", "/trends", "/findings", "/search?q=evil", "/search?q=pass")
TAGS = {"script": ["/static/dashboard.js"]}  # that may run


class Tags(HTMLParser):
    """Scripts, what would be fetched, and attributes that run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        if tag == "script" and given.get("src") not in TAGS["script"]:
            self.found.append(f"script {given}")
        if tag in ("iframe", "object", "embed", "base") or (
            tag == "img" and not (given.get("src") or "").startswith("data:")
        ):
            self.found.append(f"{tag} {given}")
        self.found += [name for name in given if name.startswith("on")]
        if (given.get("href") or "").casefold().lstrip().startswith(("javascript:", "data:text", "vbscript:")):
            self.found.append(str(given))


OWN_SCRIPT = "script {}"  # the report's, which its policy names by hash


def calm(text: str, *allowed: str) -> None:
    assert [found for found in Tags(text).found if found not in allowed] == []
    bad = {letter for letter in text if unicodedata.category(letter) in ("Cc", "Cf", "Cs") and letter not in "\n\t"}
    where = [text[max(0, place - 60) : place + 40] for place in (text.index(one) for one in bad)]
    assert not bad, f"shown as they are: {where!r}"


def numbered(record: records.RunRecord, number: int, host: str) -> records.RunRecord:
    return dataclasses.replace(record, run_id=f"20261120-100000-{number:06x}", host=host, command="drift")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A host for each record, and one for each payload, which is in its name, too."""
    url = f"sqlite:///{tmp_path_factory.mktemp('hostile')}/history.db"
    store = Store.open(url)
    hosts = 0
    for number, make in enumerate(RECORDS.values()):
        try:
            store.append(numbered(make(), number, f"evil-{number}"))
            hosts += 1
        except (errors.GpuprepError, TypeError, ValueError, AttributeError, RecursionError):
            continue  # what the store does not take comes on no page
    assert hosts > 20
    for number, payload in enumerate(PAYLOADS.values()):
        made = spoiled(RECORDS["no findings"](), payload)
        bad = spoiled(RECORDS["since in the year 12026"](), payload)
        store.append(numbered(dataclasses.replace(bad, after=made.after), 1000 + number, f"evil {payload}"))
    store.close()
    with serving(url, "--no-token") as running:
        yield running


def hosts(server: Server) -> list[dict[str, str]]:
    document = server.get("/fleet?format=json").document
    rest = [server.get(f"/fleet?format=json&page={page}").document for page in range(2, document["pages"] + 1)]
    found: list[dict[str, str]] = [host for one in (document, *rest) for host in one["hosts"]]
    return found


@pytest.mark.parametrize("path", PAGES)
def test_pages_of_many_hosts_stay_calm(server: Server, path: str) -> None:
    answer = server.get(path)
    assert answer.status == 200
    calm(answer.text)
    assert len(answer.text) < 1_500_000


def test_every_host_is_a_row(server: Server) -> None:
    assert len(hosts(server)) > 20 + len(PAYLOADS) - 1


def test_pages_of_each_host_and_run_stay_calm(server: Server) -> None:
    listed = hosts(server)
    assert listed
    for host in listed:
        page = server.get(f"/host/{quote(host['host'], safe='')}")
        assert page.status == 200, host["host"]
        calm(page.text)
        run = server.get(f"/run/{quote(host['run_id'], safe='')}")
        # Some are no records any more: then the page says so, as the command line does.
        assert run.status == 200 or "its row is damaged" in run.text, host["host"]
        calm(run.text, OWN_SCRIPT)
        assert Tags(run.text).found.count(OWN_SCRIPT) <= 1


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS.keys())
def test_words_of_an_address_stay_calm(server: Server, payload: str) -> None:
    word = quote(payload.encode("utf-8", "surrogatepass"), safe="")
    questions = [f"/fleet?{name}=" for name in ("name", "finding", "verdict", "page", "sort")]
    for path in ("/host/", "/run/", "/nights/", "/findings/", "/search?q=", "/host/evil-1?before=", "/", *questions):
        answer = server.get(path + word)
        assert answer.status in (200, 400, 404), (path, answer.status)
        calm(answer.text)
        assert server.get("/fleet").status == 200


@pytest.mark.machines
def test_nothing_runs_in_a_real_browser(server: Server, chromium: browser.Chromium) -> None:
    for path in ("/fleet?sort=name", "/findings"):
        seen = chromium.visit(server.base + path, check=False)
        assert (seen.console, seen.errors, seen.elsewhere) == ([], [], [])
