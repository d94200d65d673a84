"""One host's record, whatever it holds, hides no other host from the page of the fleet; in every format."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import hostilerecords
import pytest
from nightmetrics import drifted
from parsedformats import parsed, shown
from prometheus_client.parser import text_string_to_metric_families

from gpuprep import records, reports

GOOD = [f"gpu-{number:02d}" for number in range(1, 7)]
MOST_BYTES = 12_000_000


@pytest.mark.parametrize("name", hostilerecords.RECORDS)
def test_no_record_hides_another(name: str) -> None:
    fleet = [*(drifted(host, (), records.Status.PASS) for host in GOOD), hostilerecords.RECORDS[name]()]
    for style in reports.RECORDS:
        text = reports.render_fleet(fleet, style, 0)
        page = parsed(text, style)
        assert all(host in page for host in (*GOOD, "evil")), style
        assert style == "json" or len(text) < MOST_BYTES, style


@pytest.mark.parametrize("name", hostilerecords.RECORDS)
def test_its_own_page_is_one_that_its_format_allows(name: str) -> None:
    record = hostilerecords.RECORDS[name]()
    for style in reports.FORMATS:
        assert "evil" in parsed(reports.render(record, style), style), style


def test_what_cannot_be_shown_is_unknown_and_says_why() -> None:
    fleet = [drifted("gpu-01", (), records.Status.PASS), hostilerecords.RECORDS["findings that are none"]()]
    text = reports.render_fleet(fleet, "text", 0)
    assert "1 PASS, 1 UNKNOWN of 2" in text
    assert "its record cannot be shown: AttributeError" in " ".join(text.split())
    metrics = list(text_string_to_metric_families(reports.render_fleet(fleet, "prometheus", 0)))
    unknown = [
        one.labels["host"] for family in metrics if family.name == "gpuprep_drift_verdict"
        for one in family.samples if one.labels["status"] == "UNKNOWN" and one.value == 1
    ]  # fmt: skip
    assert unknown == ["evil"]


SHOWN: dict[str, dict[str, Any]] = {
    "fleet text": {"fleet": "text"},
    "fleet json": {"fleet": "text", "as_json": True},
    "fleet html": {"fleet": "html"},
    "pages": {},
    "pages, all of them": {"verbose": 1},
    "one json": {"as_json": True},
}


@pytest.mark.parametrize("how", SHOWN)
def test_the_command_goes_on_and_its_exit_code_says_that_a_host_is_unknown(
    how: str, capsys: pytest.CaptureFixture[str]
) -> None:
    kind = "values nested 100 000 deep" if "json" in how else "findings that are none"
    bad = dataclasses.replace(hostilerecords.RECORDS[kind](), exit_code=0)
    code = shown([drifted("gpu-01", (), records.Status.PASS), bad], **SHOWN[how])
    said = capsys.readouterr()
    assert code == 3
    assert "gpu-01" in said.out
    assert "cannot be shown" in " ".join((said.out + said.err).split())


@cache
def very_many() -> records.RunRecord:
    passed = [
        dataclasses.replace(hostilerecords.BAD, property=f"p{n}", status=records.Status.PASS) for n in range(30_000)
    ]
    return hostilerecords.found(*passed, dataclasses.replace(hostilerecords.BAD, property="the_grave_one"))


@pytest.mark.parametrize("style", [style for style in reports.FORMATS if style not in ("json", "sbom")])
def test_of_very_many_findings_the_gravest_are_shown_and_the_rest_counted(style: str) -> None:
    text = reports.render(very_many(), style)
    page = parsed(text, style).replace("_", " ")
    assert "the grave one" in page
    assert len(text) < MOST_BYTES
    if style != "prometheus":
        assert "28001 more: 28001 PASS" in " ".join(page.split())
