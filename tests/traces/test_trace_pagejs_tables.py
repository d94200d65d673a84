"""All tables of the page are made again in the page: for any range and key op they say what Python says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import browser
import publictraces
import pytest
import viewpages

from gpuprep.trace.profile import Profile

RECORDED = Path(__file__).parent / "recorded"


def compare(chromium: browser.Chromium, folder: Path, path: Path, most: int = 4) -> list[str]:
    """What differs between the page of a profile and Python, of four ranges and some key ops."""
    linked = viewpages.opened(path)
    count = len(linked.iterations.names)
    choices: list[dict[str, Any]] = [
        {"start": start, "stop": stop}
        for start, stop in sorted({(0, count - 1), (0, 0), (count // 2, count - 1), (count - 1, count - 1)})
    ]
    python = [viewpages.told(linked, **choice) for choice in choices]
    for name in viewpages.key_ops(linked, most):
        choices.append({"keyOp": name})
        python.append(viewpages.told(viewpages.opened(path, key_op=name)))
    if len(choices) > 3:
        last = len(python[-1]["iterations"]) - 1
        choices.append(choices[-1] | {"start": last // 2, "stop": last})
        again: Profile = viewpages.opened(path, key_op=choices[-1]["keyOp"]) if "keyOp" in choices[-1] else linked
        python.append(viewpages.told(again, last // 2, last))

    seen = chromium.visit(
        viewpages.write(folder, linked),
        do=lambda page: (
            page.wait_for_selector("main > h1"),
            page.evaluate(viewpages.AGGREGATE, [choices, viewpages.TABLES]),
        )[1],
        check=False,
    )
    assert seen.faults() == []
    found = []
    for choice, one, other in zip(choices, python, seen.answer, strict=True):
        found += [f"{choice}: {line}" for line in viewpages.differences(one, other)][:5]
    return found


def test_of_a_profile_with_everything(chromium: browser.Chromium, tmp_path: Path) -> None:
    path = viewpages.training().write(tmp_path / "all.pt.trace.json")
    types = {line["type"] for line in viewpages.told(viewpages.opened(path))["ops"]}
    assert {"cudaGraphLaunch", viewpages.EVIL, "aten::mm"} <= types
    assert compare(chromium, tmp_path, path, 12) == []


FEW = ["launch-graph", "ddp-gloo-rank0", "many-kinds"]
MORE = ["gpt-bf16", "gpt-stacks", "loader-workers4"]


@pytest.mark.parametrize("name", [*FEW, *(pytest.param(name, marks=pytest.mark.only_all) for name in MORE)])
def test_of_recorded_profiles(chromium: browser.Chromium, tmp_path: Path, name: str) -> None:
    assert compare(chromium, tmp_path, RECORDED / f"{name}.json.gz") == []


@publictraces.needed
@pytest.mark.parametrize("path", publictraces.named(".json.gz", ".sqlite"), ids=lambda path: path.name)
def test_of_public_profiles(chromium: browser.Chromium, tmp_path: Path, path: Path) -> None:
    assert compare(chromium, tmp_path, path) == []


def test_work_of_a_domain(chromium: browser.Chromium, tmp_path: Path) -> None:
    """Figures of what was launched inside of annotations of one name: here one kernel a step, of 60 µs."""
    linked = viewpages.opened(viewpages.training(6).write(tmp_path / "all.pt.trace.json"))
    look = """() => {
      const data = tracePage.state.data, range = {start: 1, stop: 4};
      const {summary, kernels, ops} = data.aggregate({...range, domain: "Optimizer.step#SGD.step"});
      return [data.domains(), summary.kernels, summary.kernel_time_us, kernels.map(one => one.name),
        ops.map(one => one.type), summary.wall_us, data.aggregate(range).summary.wall_us];
    }"""
    seen = chromium.visit(
        viewpages.write(tmp_path, linked),
        do=lambda page: (page.wait_for_selector("main > h1"), page.evaluate(look))[1],
        check=False,
    )
    domains, kernels, time, names, ops, wall, whole = seen.answer
    assert {"name": "Optimizer.step#SGD.step", "ranges": 6} in domains
    assert any(one["name"].startswith("phase <img") and one["ranges"] == 6 for one in domains)
    assert (kernels, time, names, ops) == (4, 240.0, ["multi_tensor_apply_kernel"], ["aten::_foreach_add_"])
    assert wall == whole
