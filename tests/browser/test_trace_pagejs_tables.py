"""All tables of the page are made again in the page: for any range and key op they say what Python says."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import Any

import browser
import handmade
import nsightexports
import publictraces
import pytest
import tracesteps
import viewpages
from places import TESTS

from gpuprep.trace import page, profile

RECORDED = TESTS / "traces" / "recorded"


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
        again: profile.Profile = (
            viewpages.opened(path, key_op=choices[-1]["keyOp"]) if "keyOp" in choices[-1] else linked
        )
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


def test_work_of_an_nvtx_domain(chromium: browser.Chromium, tmp_path: Path) -> None:
    """By domainId and the domain's name, of each process for itself. A domain without a name has its number."""
    other = nsightexports.PID + (1 << 24)
    events = [
        (0, None, 75, "NCCL", None, nsightexports.tid(5), 3), (0, None, 75, None, 4, nsightexports.tid(5, other), 3),
        (1000, 3000, 59, "iteration 1", None, nsightexports.tid(5), 0),
        (1490, 1650, 59, "the same name", None, nsightexports.tid(5), 3),
        (1690, 1850, 59, "the same name", None, nsightexports.tid(5), 7),
        (1880, 1960, 59, "the same name", None, nsightexports.tid(5, other), 3),
    ]  # fmt: skip
    columns = nsightexports.TABLES["NVTX_EVENTS"][0]
    linked = viewpages.opened(nsightexports.export(tmp_path / "a.sqlite", {"NVTX_EVENTS": (columns, events)}))
    script = """() => {
      const { data } = tracePage.state, of = domain => data.aggregate({ domain }).kernels.filter(one => one.calls);
      const time = name => of(name).reduce((sum, one) => sum + one.total_us, 0);
      return data.domains().map(({ name, ranges }) => [name, ranges, time(name)]);
    }"""

    def look(page: Any) -> Any:
        page.wait_for_selector("main > h1")
        return page.evaluate(script)

    seen = chromium.visit(viewpages.write(tmp_path, linked), do=look)
    assert seen.faults() == []
    # The kernel of the other process that has no call (0.5 µs) counts where it ran.
    assert {name: told for name, *told in seen.answer} == {
        "NVTX domain: default": [1, 8.9], "NVTX domain: NCCL": [1, 3.0], "NVTX domain: domain 7": [1, 5.0],
        "NVTX domain: registered range": [1, 0.4], "iteration #": [1, 8.9], "the same name": [3, 8.4],
    }  # fmt: skip


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


GROUPS = """() => {
  const count = 500, pick = limit => Int32Array.from({ length: count }, (_, i) => (i * 7919 + i * i * 31) % limit);
  const major = pick(7).map(one => one - 1), minor = pick(11);
  const values = Float64Array.from({ length: count }, (_, i) => i % 13 + 1);
  const told = minors => {
    const groups = new tracePage.Groups(major, minor, 6, minors), { sum, least, most } = groups.spreads(values);
    const made = [groups.major, groups.minor, groups.of, groups.sizes(), groups.sums(values), sum, least, most];
    return made.map(one => [...one]);
  };
  return [told(11), told(1 << 23), [...major], [...minor], [...values]];
}"""


def test_many_pairs_are_grouped_as_few_are(chromium: browser.Chromium, tmp_path: Path) -> None:
    """A table of all pairs, or sorted rows where there would be too many pairs: the same, and as Python sums them."""
    linked = viewpages.opened(viewpages.training(1).write(tmp_path / "all.pt.trace.json"))
    seen = chromium.visit(
        viewpages.write(tmp_path, linked),
        do=lambda page: (page.wait_for_selector("main > h1"), page.evaluate(GROUPS))[1],
        check=False,
    )
    few, many, major, minor, values = seen.answer
    assert few == many
    pairs = sorted({pair for pair in zip(major, minor, strict=True) if pair[0] >= 0})
    assert list(zip(few[0], few[1], strict=True)) == pairs
    inside = [[value for a, b, value in zip(major, minor, values, strict=True) if (a, b) == pair] for pair in pairs]
    assert few[3:] == [list(map(made, inside)) for made in (len, sum, sum, min, max)]
    assert few[2] == [pairs.index(pair) if pair in pairs else -1 for pair in zip(major, minor, strict=True)]


def test_what_a_key_op_needs_is_made_beforehand_or_then(chromium: browser.Chromium, tmp_path: Path) -> None:
    """The view of iterations prepares it; who is faster than that gets the same tables."""
    linked = viewpages.opened(viewpages.training().write(tmp_path / "all.pt.trace.json"))
    look = """async names => {
      const { data } = tracePage.state, choice = { keyOp: "aten::mm" };
      const before = [...data.made.keys()].includes("kinds");
      const told = () => JSON.stringify(names.map(name => data.aggregate(choice)[name]));
      const first = told();
      data.made = new Map();
      await data.prepare();
      return [before, [...data.made.keys()].includes("kinds"), first === told()];
    }"""

    def iterations(page: Any) -> Any:
        page.wait_for_selector("main > h1")
        made = page.evaluate(look, viewpages.TABLES)
        page.goto(page.url.split("#")[0] + "#/iterations")
        page.reload()
        page.locator("h1", has_text="Iterations").wait_for()
        page.evaluate("tracePage.state.data.made.get('prepared')")  # a promise: awaited
        return [*made, page.evaluate("tracePage.state.data.made.has('kinds')")]

    seen = chromium.visit(viewpages.write(tmp_path, linked), do=iterations, check=False)
    assert seen.faults() == []
    assert seen.answer == [False, True, True, True]


# ---------------------------------------------------------------- what has no room, and odd profiles


def test_the_page_with_the_least_says_so_and_its_tables_are_right(chromium: browser.Chromium, tmp_path: Path) -> None:
    linked = viewpages.opened(viewpages.crowded().write(tmp_path / "all.json"))
    left_out = tracesteps.packed(linked, room=1).left_out
    (tmp_path / "least.html").write_text(page.html(linked, tracesteps.summed(linked), room=1), encoding="utf-8")

    def look(tab: Any) -> Any:
        tab.wait_for_selector("main > h1")
        said = []
        for view in ("timeline", "memory", "iterations", "dashboard"):
            tab.goto(tab.url.split("#")[0] + f"#/{view}")
            tab.locator(f"#navigation a[aria-current][href*='/{view}']").wait_for(state="attached")
            said.append(tab.inner_text("main"))
        choices = [{"start": 3, "stop": 20}]
        return said, tab.evaluate(viewpages.AGGREGATE, [choices, viewpages.TABLES])

    visit = chromium.visit((tmp_path / "least.html").as_uri(), do=look, check=False)
    assert visit.faults() == []
    (timeline, memory, iterations, dashboard), (tables,) = visit.answer
    assert "Single kernels are not in this page" in timeline
    assert "gpuprep trace serve" in timeline
    assert "events of memory" in memory
    assert all(f"Not in this page, for its size: {words}" in dashboard for words in left_out)
    assert "--key-op" in iterations
    assert list(viewpages.differences(viewpages.told(linked, 3, 20), tables)) == []


def test_what_no_page_has_room_for_is_not_promised(
    chromium: browser.Chromium, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server has no room for it either: so no page says that it shows it."""
    linked = viewpages.opened(viewpages.training(steps=2).write(tmp_path / "all.json"))
    tracesteps.room_of_a_server(monkeypatch, 100)
    (tmp_path / "least.html").write_text(page.html(linked, tracesteps.summed(linked), room=100), encoding="utf-8")

    def look(tab: Any) -> Any:
        tab.wait_for_selector("main > h1")
        timeline = tab.inner_text("main")
        tab.goto(tab.url.split("#")[0] + "#/by-iteration?iteration=0")
        tab.locator("h1", has_text="Kernels by iteration").wait_for()
        return timeline, tab.inner_text("main")

    visit = chromium.visit(f"{(tmp_path / 'least.html').as_uri()}#/timeline", do=look, check=False)
    for words in visit.answer:
        assert "Single kernels are not in this page" in words
        assert "No page has room for so many" in words
        assert "gpuprep trace serve` shows them" not in words


def test_invented_sizes_harm_nothing(chromium: browser.Chromium, tmp_path: Path) -> None:
    trace = viewpages.training(2)
    for at, size in ((100, 2**63 - 1), (200, -(2**63)), (300, 10**30), (400, -1)):
        trace.memory(at, size, size, size)
    trace.launch(500_000, "Memcpy HtoD", 600_000, 100, kind="gpu_memcpy", args={"bytes": 2**63 - 1})
    linked = viewpages.opened(trace.write(tmp_path / "all.json"))
    seen = chromium.visit(
        viewpages.write(tmp_path, linked) + "#/memory",
        do=lambda page: page.locator("#content h1").inner_text(),
        check=False,
    )
    assert seen.faults() == []
    assert seen.answer == "Memory"
    assert seen.title.startswith("Memory")


def test_an_empty_profile(chromium: browser.Chromium, tmp_path: Path) -> None:
    trace = handmade.many(1000, 2)
    none = {name: getattr(trace.gpu, name)[:0] for name in vars(trace.gpu)}
    linked = tracesteps.linked(dataclasses.replace(trace, gpu=type(trace.gpu)(**none)))
    seen = chromium.visit(
        viewpages.write(tmp_path, linked) + "#/timeline",
        do=lambda page: page.wait_for_selector("main > h1"),
    )
    assert seen.faults() == []
    assert "no GPU events" in seen.text


# ---------------------------------------------------------------- many kernels

TIMES = """async names => {
  const data = tracePage.state.data;
  const timed = choice => {
    const start = performance.now(), made = data.aggregate(choice);
    names.forEach(name => made[name]);
    return performance.now() - start;
  };
  const ranges = [1, 2, 3, 4, 5].map(start => timed({start, stop: data.iterations.count - start}));
  await data.prepare(); // as the view of iterations does, while the browser has nothing else to do
  const keys = data.keyOps().filter(one => one.calls <= 4 * data.iterations.count).slice(0, 5);
  const {own: {cells}, events} = data;
  return {ranges, cells: cells.op.length, events: events.count, keys: keys.map(one => timed({keyOp: one.name}))};
}"""


@pytest.mark.only_all
def test_a_million_kernels_in_15_mb_and_tables_in_a_fifth_of_a_second(
    chromium: browser.Chromium, tmp_path: Path
) -> None:
    linked = tracesteps.linked(handmade.many(1_000_000, 250))
    begun = time.monotonic()
    text = page.html(linked, tracesteps.summed(linked))
    print(f"page of {len(text) / 1e6:.1f} MB in {time.monotonic() - begun:.1f} s")
    assert len(text) <= 15_000_000
    file = tmp_path / "many.html"
    file.write_text(text, encoding="utf-8")

    def look(tab: Any) -> Any:
        tab.wait_for_selector("main > h1")
        return tab.evaluate(TIMES, viewpages.TABLES)

    seen = chromium.visit(file.as_uri(), do=look, check=False)
    assert seen.faults() == []
    print(seen.answer, tracesteps.packed(linked).left_out)
    assert seen.answer["events"] == 1_000_000
    assert min(seen.answer["ranges"]) <= 200, "ms"
    assert len(seen.answer["keys"]) == 5
    assert min(seen.answer["keys"]) <= 200, "ms"
