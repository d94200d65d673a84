"""What NCCL measured is in every format: sizes, speeds, latency; a wrong result is said beside its size."""

from __future__ import annotations

import ncclrecords
import pytest
from records_for_tests import record

from gpuprep import records, reports


def run(source: records.Source = records.Source.MEASURED, **changes: object) -> records.RunRecord:
    result = records.ProbeResult("nccl", source, {**ncclrecords.machine(), **changes}, 9.0)
    return record(measurements=(result,))


@pytest.mark.parametrize("name", ["text", "html", "markdown", "prometheus", "json", "csv"])
def test_each_format_has_the_figures(name: str) -> None:
    page = reports.render(run(), name)
    if name == "prometheus":
        for metric in ("duration_seconds", "algorithm_bytes_per_second", "bus_bytes_per_second"):
            assert f"nccl_{metric}{{" in page
        assert all(label in page for label in ('operation="reduce_scatter"', 'bytes="4294967296"', 'gpus="2"'))
    elif name == "csv":
        for figure in ("duration", "algorithm bandwidth", "bus bandwidth"):
            for operation in ("all_reduce", "all_gather", "reduce_scatter"):
                assert f"{operation} 4294967296 bytes {figure},," in page
    elif name == "json":
        assert '"busbw_gb_per_s"' in page
    else:
        assert "4 GiB" in page
        assert "busbw GB/s" in page
        assert "all-gather" in page
        assert "362" in page


def test_text_shows_few_sizes_and_the_others_all() -> None:
    text, page = reports.render(run(), "text"), reports.render(run(), "markdown")
    assert "512 MiB" not in text
    assert page.count("512 MiB") == 3


def test_a_wrong_result_is_beside_its_size() -> None:
    points = ncclrecords.points(2, 362.0)
    points[13]["wrong"] = 7
    for name in ("text", "html", "markdown"):
        assert "7 results are wrong" in reports.render(run(points=points), name)


def test_simulated_figures_say_so() -> None:
    assert "(NCCL) (SIMULATED)" in reports.render(run(records.Source.SIMULATED), "text")
