"""The page of a fleet: its rows, its counts, what a row opens to, and words of a host that stay words."""

from __future__ import annotations

import dataclasses
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from fleethosts import lost, passed, warned
from hostiletexts import HOSTILE
from nightmetrics import drifted
from pages import without_script
from records_for_tests import record
from reportpages import CLOCKS, FIXES, FLEET, LONG, SINCE, simulated
from validations_for_tests import h200, t4

from gpuprep import records, reports

# Elements without an end, by the HTML standard, section 13.1.2.
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}


class Reader(HTMLParser):
    """Elements that are opened and not closed, or closed and not opened."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self.open.append(tag)
        names = [name for name, _ in attrs]
        if len(names) != len(set(names)):
            self.wrong.append(f"{tag} {names}")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"/{tag} at {self.getpos()}")


def page_of(*runs: records.RunRecord) -> str:
    return reports.render_fleet(runs, "html", 3)


def rows(page: str) -> dict[str, str]:
    """What stands in the summary and in the opened part of each host, in their order."""
    found = re.findall(r'<details class="host.*?</div></details>', page, re.S)
    return {re.search(r'class="name">([^< ]*)', row)[1]: row for row in found}  # type: ignore[index]


def cells(row: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", row.partition("</summary>")[0]).split())


def tiles(page: str) -> list[str]:
    above, _, _ = page.partition("<section ")
    return [
        " ".join(re.sub(r"<[^>]*>", " ", one).split()) for one in re.split('<div class="tile(?: none)?">', above)[1:]
    ]


def test_a_row_a_host_in_the_order_of_the_text_page() -> None:
    page = page_of(*FLEET)
    found = rows(page)
    table, _, _ = reports.render_fleet(FLEET, "text", 3).partition("What did not pass")
    assert list(found) == [word for line in table.splitlines() for word in line.split()[:1] if word.startswith("gpu-")]
    assert list(found)[:3] == ["gpu-02", LONG, "gpu-03"]
    machine = "GPU T4 driver – kernel 6.12.57+deb13-cloud-amd64 TFLOPS –"
    assert cells(found["gpu-05"]) == f"gpu-05 WARN {machine} since 2026-11-21 gpu 0.pcie"
    assert cells(found["gpu-10"]) == f"gpu-10 PASS {machine} since –"
    assert "<dt>checked</dt><dd>2026-11-21 02:30 UTC</dd><dt>profile</dt><dd>t4</dd>" in found["gpu-10"]
    assert cells(found["gpu-06"]).endswith("1 waived")
    assert cells(found["gpu-03"]).endswith(
        "since 2026-11-19 gpu 0.clocks, gpu 1.clocks, gpu 2.clocks, gpu 3.clocks, gpu 4.clocks +3"
    )


def test_counts_are_those_of_the_text_page_and_what_is_waived_stands_apart() -> None:
    page = page_of(*FLEET)
    assert "<title>3 PASS, 1 WARN, 2 FAIL, 3 UNKNOWN of 9: gpuprep drift (SIMULATED)</title>" in page
    assert "6 of 9 did not pass" in page
    waived = "WAIVED 3 findings on 3 hosts"
    assert tiles(page) == ["PASS 3 hosts", "WARN 1 host", waived, "FAIL 2 hosts", "UNKNOWN 3 hosts"]
    assert 'class="head FAIL"' in page
    silent = page_of(passed("gpu-09"), passed("gpu-10"))
    assert "2 of 2 passed" in silent
    assert tiles(silent) == ["PASS 2 hosts", "WARN 0 hosts", "FAIL 0 hosts", "UNKNOWN 0 hosts"]
    assert 'class="head UNKNOWN"' in page_of(passed("gpu-09"), lost())
    refused = dataclasses.replace(lost(), exit_code=2)
    assert tiles(page_of(passed("gpu-09"), refused))[-1] == "REFUSED 1 host"


def test_a_row_opens_to_what_did_not_pass() -> None:
    found = rows(page_of(*FLEET))
    for said in ("1980 MHz", "1095 MHz", "2026-11-19 02:30 UTC, 2 nights", "it is slow", "tune it"):
        assert said in found["gpu-03"]
    assert found["gpu-03"].count("card issue FAIL") == 1, "what is alike on eight GPUs is said once"
    assert "gpu 0: clocks; gpu 1: clocks" in found["gpu-03"]
    assert "gpuprep report 20261121-023000-0aa --format html" in found["gpu-03"]
    bad, _, waived = found["gpu-03"].partition("Waived: 1")
    assert "power limit" not in bad.partition("</summary>")[2]
    assert "until 2026-12-31" in waived
    assert "without the waiver: FAIL" in waived
    assert "exit code 100" in found["gpu-08"]
    assert "the host itself" in found["gpu-08"]
    assert "Nothing differs." in found["gpu-10"]
    assert "card" not in found["gpu-10"]


def test_a_host_that_was_not_reached_says_why_and_what_to_do() -> None:
    row = rows(page_of(*FLEET))["gpu-02"]
    nothing = "GPU – driver – kernel – TFLOPS – since –"
    assert cells(row) == f"gpu-02 UNKNOWN {nothing} gpu-02 port 22 refuses connections"
    assert "<dt>checked</dt><dd>–</dd>" in row
    assert "what to do: is sshd running there, and is this its port?" in row
    assert "gpuprep report 2026" in row
    asked = dataclasses.replace(lost(), command="last")
    assert "gpuprep report 2026" not in page_of(asked), "what was only asked for is not stored"
    old = dataclasses.replace(passed("gpu-09"), error="gpu-09: its last check is 60 hours old", exit_code=3)
    row = rows(page_of(old))["gpu-09"]
    assert cells(row).endswith("its last check is 60 hours old")
    assert "<dt>checked</dt><dd>2026-11-21 02:30 UTC</dd>" in row


def test_the_banner_is_there_where_any_host_is_simulated() -> None:
    mixed = page_of(*FLEET)
    assert "SIMULATED: the GPUs of 1 of these hosts are stand-ins" in mixed
    assert 'class="water"' not in mixed, "not over the hosts that were really measured"
    assert [host for host, row in rows(mixed).items() if ">SIMULATED<" in row] == ["gpu-06"]
    every = page_of(simulated("a"), simulated("b"))
    assert '<aside class="sim" aria-label="Simulated">' in every
    assert "no figure here is of a real GPU" in every
    assert 'class="water"' in every
    assert "simulated" not in page_of(passed("gpu-09"), lost()).lower()


def test_one_host_is_open_and_several_are_not() -> None:
    assert len(re.findall("<details [^>]*open", page_of(drifted("gpu-03")))) == 1
    assert not re.findall("<details [^>]*open", page_of(*FLEET))


def causes(page: str) -> list[str]:
    found = re.findall(r'<article class="cause.*?</article>', page, re.S)
    return [" ".join(re.sub(r"<[^>]*>", " ", one).split()) for one in found]


def test_a_cause_that_hosts_share_is_told_once_with_all_its_hosts() -> None:
    slow = [drifted(f"gpu-{n}", CLOCKS) for n in (20, 21, 22)]
    page = page_of(*slow, lost("gpu-30"), lost("gpu-31"), warned("gpu-05"), passed("gpu-10"))
    assert causes(page) == [
        "FAIL 3 hosts clocks of gpu 0, gpu 1, gpu 2 and 5 more found 1095 MHz, expected 1980 MHz: it is slow"
        " what to do: tune it gpu-20 , gpu-21 , gpu-22",
        "UNKNOWN 2 hosts the host port 22 refuses connections what to do: is sshd running there, and is this its port?"
        " gpu-30 , gpu-31",
        "WARN 1 host gpu 0: pcie found 8 lanes, expected 16 lanes gpu-05",
    ]
    for target, name in re.findall(r'<a href="#in-(host-\d+)">([^<]*)', page):
        assert re.search(rf'id="{target}"[^>]*>\s*<summary class="row">.*?class="name">{name}', page, re.S)
    assert "Causes" not in page_of(passed("gpu-09"), passed("gpu-10"))


def test_many_causes_are_folded_and_none_is_left_out() -> None:
    one = [
        drifted(f"gpu-{n}", (records.Finding("gpu 0", f"x{n}", records.Status.FAIL, "1", "2", f"why {n}"),))
        for n in range(10, 22)
    ]
    page = page_of(*one)
    assert len(causes(page)) == 12
    assert "4 more causes" in page


def test_a_row_names_gpu_driver_kernel_and_speed() -> None:
    row = cells(rows(page_of(h200(), passed("gpu-10")))["h200-1.example"])
    assert "GPU NVIDIA H200 driver 580.159.03 kernel 6.12.57+deb13-cloud-amd64 TFLOPS 763 BF16" in row
    assert re.search(r"TFLOPS 763 BF16 GB/s [34]\d{3} streams \d+ decode since", row), row  # an H200 here had no NVENC


def test_figures_are_those_of_the_slowest_gpu_and_of_whole_probes_alone() -> None:
    def series(gpu: int, kind: str, fps: float, height: int = 1080) -> dict[str, Any]:
        return {"gpu": {"index": gpu}, "kind": kind, "height": height, "steps": [{"fps": fps / 2}, {"fps": fps}]}

    bandwidth = {"gpus": [{"index": 0, "copy_gb_per_s": 250.0}, {"index": 1, "copy_gb_per_s": 240.0}]}
    video = {"series": [
        series(0, "decode", 9000), series(0, "transcode", 600), series(0, "transcode", 630),
        series(1, "transcode", 615), series(0, "transcode", 9999, 2160),
    ]}  # fmt: skip
    given = {"bandwidth": bandwidth, "throughput": video}
    told = [records.ProbeResult(name, records.Source.MEASURED, values, 1.0) for name, values in given.items()]
    whole = dataclasses.replace(passed("gpu-09"), measurements=tuple(told))
    assert "GB/s 240 streams 20 transcode" in cells(rows(page_of(whole, passed("gpu-10")))["gpu-09"])
    assert "GB/s" not in cells(rows(page_of(passed("gpu-10")))["gpu-10"]), "no columns without a figure"
    half = [
        records.ProbeResult(name, records.Source.MEASURED, records.Missing("interrupted"), 0.0, partial=values)
        for name, values in given.items()
    ]
    stopped = dataclasses.replace(whole, host="half", measurements=tuple(half))
    assert "GB/s – streams –" in cells(rows(page_of(stopped, whole))["half"])


def test_hostile_words_of_a_host_stay_words() -> None:
    finding = records.Finding(HOSTILE, HOSTILE, records.Status.FAIL, HOSTILE, HOSTILE, HOSTILE, HOSTILE, since=SINCE)
    waived = dataclasses.replace(finding, status=records.Status.WAIVED, waived=HOSTILE, waiver_expires=HOSTILE)
    base = drifted("<script>alert(1)</script>")
    fix = dataclasses.replace(FIXES[2], what=HOSTILE, command=HOSTILE, said=HOSTILE, before=HOSTILE)
    spoilt = dataclasses.replace(
        base,
        run_id=HOSTILE,
        error=f"{HOSTILE}\n{HOSTILE}",
        profile=records.ProfileRef(HOSTILE, HOSTILE, HOSTILE),
        verdict=records.Verdict(records.Status.FAIL, HOSTILE, (finding, waived)),
        drift=records.DriftFacts(HOSTILE, SINCE, probe_skipped=HOSTILE, fixes=(fix,)),
    )
    page = without_script(page_of(spoilt, passed("gpu-09")))
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert page.count("&lt;/script&gt;&lt;b&gt;x &amp; &#34;q&#34;") > 12
    assert "<script" not in page
    assert "<b>x" not in page
    reader = Reader(page)
    assert (reader.wrong, reader.open) == ([], [])


@pytest.mark.parametrize("name", ["fleet", "h200", "t4", "old"])
def test_every_element_is_closed(name: str) -> None:
    page = (
        page_of(*FLEET)
        if name == "fleet"
        else reports.render({"h200": h200(), "t4": t4(), "old": record()}[name], "html")
    )
    reader = Reader(page)
    assert (reader.wrong, reader.open) == ([], [])
    names = re.findall(r' id="([^"]*)"', page)
    assert len(names) == len(set(names))


def test_the_page_needs_nothing_beside_it() -> None:
    page = page_of(*FLEET)
    assert "default-src 'none'" in page
    links = re.findall(r'(?:src|href)="([^"]*)', page)
    assert [link for link in links if not re.fullmatch(r"#in-host-\d+", link)] == ["data:,"]
    assert not re.search(r"url\(|@import", page)
