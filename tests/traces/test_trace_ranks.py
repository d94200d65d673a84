"""Several ranks of one job: who waits for whom, against traces whose answers are known."""

from __future__ import annotations

import gzip
import json
import os
import random
import statistics
from pathlib import Path
from typing import Any

import amount
import pytest
import tracesteps
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from manyranks import COMPUTE, EXTRA, STEP, RankTrace, job

from gpuprep.trace import ranks

NEAR = 0.01  # µs
PUBLIC = os.environ.get("GPUPREP_PUBLIC_TRACES", "")
Spans = list[tuple[float, float]]


def document(folder: Path, traces: list[RankTrace]) -> ranks.RanksDocument:
    for trace in traces:
        trace.write(folder)
    return opened(folder)


def opened(folder: Path) -> ranks.RanksDocument:
    return tracesteps.ranks(tracesteps.found(folder), folder.name)


def test_steps_and_overlap_of_each_rank(tmp_path: Path) -> None:
    shown = document(tmp_path, job())
    assert [line.rank for line in shown.ranks] == [0, 1, 2]
    assert (shown.world_size, shown.backend, shown.missing, shown.job) == (3, "nccl", (), tmp_path.name)
    for line, extra in zip(shown.ranks, EXTRA, strict=True):
        assert line.steps == 3
        assert line.step_us == pytest.approx(STEP, abs=NEAR)
        own, beside, whole = 2980 + extra, 1500, 1990 - extra
        assert line.compute_us == pytest.approx(own + beside, abs=NEAR)
        assert line.collective_us == pytest.approx(whole, abs=NEAR)
        assert line.overlapped_us == pytest.approx(500, abs=NEAR)
        assert line.exposed_us == pytest.approx(whole - 500, abs=NEAR)
        assert line.busy_us == pytest.approx(own + whole - 500 + beside, abs=NEAR)
        assert line.busy_percent == pytest.approx((own + whole + 1000) / STEP * 100, abs=NEAR)


def test_who_waits_for_whom(tmp_path: Path) -> None:
    shown = document(tmp_path, job())
    assert [line.waiting_us for line in shown.ranks] == pytest.approx([900, 800, 0], abs=NEAR)
    assert [line.late_us for line in shown.ranks] == pytest.approx([0, 0, 800], abs=NEAR)
    assert [line.last_percent for line in shown.ranks] == [0, 0, 100]
    assert [step.last_rank for step in shown.steps] == [2, 2, 2]
    (straggler,) = shown.stragglers
    assert (straggler.rank, straggler.steps, straggler.of_steps) == (2, 3, 3)
    assert straggler.late_us == pytest.approx(800, abs=NEAR)
    assert straggler.percent == pytest.approx(8, abs=NEAR)
    assert straggler.words == (
        "Rank 2 enters collectives last: in 3 of 3 steps the others waited longest for it, 0.80 ms a step (8 % of it)."
    )


def test_the_bus_bandwidth_is_of_the_time_after_the_last_rank_came(tmp_path: Path) -> None:
    (line,) = document(tmp_path, job()).collectives
    assert (line.name, line.group, line.group_size, line.dtype) == ("all_reduce", "0 [0, 1, 2]", 3, "Float")
    assert (line.bytes, line.calls, line.ranks, line.matched) == (4_000_000, 3, 3, 3)
    assert line.transfer_us == pytest.approx(1090, abs=NEAR)
    assert line.bus_gb_s == pytest.approx(4e6 / 1090e-6 / 1e9 * 4 / 3, rel=1e-4)
    assert line.time_us == pytest.approx((1990 + 1890 + 1090) / 3, abs=NEAR)
    assert line.exposed_us == pytest.approx((1490 + 1390 + 590) / 3, abs=NEAR)


@pytest.mark.parametrize("numbered", [True, False])
def test_clocks_of_several_hosts_are_aligned_by_the_ends_of_collectives(tmp_path: Path, numbered: bool) -> None:
    shown = document(tmp_path, job(clocks=(0.0, 5_000_000.0, -12_345.678), numbered=numbered))
    assert shown.clocks == "aligned by the ends of collectives: 2 moved"
    assert [line.clock_offset_us for line in shown.ranks] == pytest.approx([0, 5_000_000, -12_345.678], abs=NEAR)
    assert shown.clock_error_us == pytest.approx(0, abs=NEAR)
    assert [line.waiting_us for line in shown.ranks] == pytest.approx([900, 800, 0], abs=NEAR)
    assert [one.rank for one in shown.stragglers] == [2]


def test_clocks_of_one_host_are_left_as_they_are(tmp_path: Path) -> None:
    shown = document(tmp_path, job(clocks=(0.0, 30.0, -20.0)))
    assert shown.clocks == "the ranks' own clocks agree"
    assert [line.clock_offset_us for line in shown.ranks] == [0, 0, 0]
    assert shown.clock_error_us == pytest.approx(25, abs=NEAR)


def test_the_order_of_the_files_says_nothing(tmp_path: Path) -> None:
    made = [trace.write(tmp_path) for trace in job()]
    first = tracesteps.ranks(made)
    for seed in range(3):
        random.Random(seed).shuffle(made)
        assert tracesteps.ranks(made) == first


def test_ranks_that_are_missing_are_said_and_nothing_is_told_of_their_waiting(tmp_path: Path) -> None:
    shown = document(tmp_path, job()[:2])
    assert shown.missing == (2,)
    (line,) = shown.collectives
    # Nobody knows when rank 2 entered: no bandwidth.
    assert (line.transfer_us, line.bus_gb_s) == (None, None)
    # Of those that are there, rank 1 is 100 µs behind rank 0: 1 % of a step, no straggler.
    assert [one.late_us for one in shown.ranks] == pytest.approx([0, 100], abs=NEAR)
    assert shown.stragglers == ()


def test_a_file_of_another_job_and_a_rank_that_is_there_twice_are_left_out(tmp_path: Path) -> None:
    stranger = RankTrace(1, 8)
    stranger.step(0, 1000)
    stranger.write(tmp_path, "stranger.json")
    yesterday = job(clocks=(-9e9, -9e9, -9e9))[1]
    yesterday.write(tmp_path, "a-yesterday.json")
    shown = document(tmp_path, job())
    assert [line.file for line in shown.ranks] == ["rank0.json", "rank1.json", "rank2.json"]
    assert [note.text for note in shown.notes] == [
        "stranger.json: of a job of 8 ranks; left out",
        "a-yesterday.json: rank 1 is also in rank1.json; left out",
    ]
    assert [one.rank for one in shown.stragglers] == [2]


def test_a_rank_that_lost_its_first_collectives_is_matched_by_their_numbers(tmp_path: Path) -> None:
    traces = job()
    lost = traces[1]
    cut = next(event for event in lost.events if event["name"].startswith("nccl"))
    lost.events = [event for event in lost.events if event is not cut]
    shown = document(tmp_path, traces)
    (line,) = shown.collectives
    assert (line.calls, line.matched) == (3, 2)
    assert [note.id for note in shown.notes] == ["collectives_not_matched"]
    assert [step.late_us[2] for step in shown.steps] == pytest.approx([0, 800, 800], abs=NEAR)


def test_groups_are_matched_apart(tmp_path: Path) -> None:
    """Two pairs of ranks: 0 waits for 1 and 2 for 3, and nobody for the other pair."""
    traces = [RankTrace(rank, 4) for rank in range(4)]
    for trace, enters in zip(traces, (1000, 1700, 5000, 5900), strict=True):
        pair = (0, 1) if trace.rank < 2 else (2, 3)
        trace.step(0, 0)
        trace.collective(50, enters, 2000 if trace.rank < 2 else 6000, ranks=pair, elements=10)
        trace.collective(90, 8000, 8100)  # of all, to align the clocks by
    shown = document(tmp_path, traces)
    assert [line.waiting_us for line in shown.ranks] == pytest.approx([700, 0, 900, 0], abs=NEAR)
    assert [line.late_us for line in shown.ranks] == pytest.approx([0, 700, 0, 900], abs=NEAR)
    assert {(line.group, line.ranks, line.matched) for line in shown.collectives} == {
        ("0 [0, 1]", 2, 1), ("2 [2, 3]", 2, 1), ("0 [0, 1, 2, 3]", 4, 1)
    }  # fmt: skip


def test_without_a_collective_in_common_nothing_is_said_of_waiting(tmp_path: Path) -> None:
    traces = [RankTrace(0), RankTrace(1)]
    for trace in traces:
        trace.step(0, 0)
        trace.kernel("work", 10, 20, 900)
    shown = document(tmp_path, traces)
    assert shown.clocks == "not aligned: no collective is in two of the profiles"
    assert [(line.waiting_us, line.late_us, line.last_percent) for line in shown.ranks] == [(None, None, None)] * 2
    assert [step.late_us for step in shown.steps] == [(None, None)]
    assert (shown.stragglers, shown.clock_error_us) == ((), None)


def test_collectives_without_their_op_are_counted_and_have_no_bytes(tmp_path: Path) -> None:
    traces = [RankTrace(0), RankTrace(1)]
    for trace in traces:
        trace.step(0, 0)
        trace.collective(50, 100 + 50 * trace.rank, 500, told=False)
    shown = document(tmp_path, traces)
    (line,) = shown.collectives
    assert (line.name, line.bytes, line.bus_gb_s, line.matched) == ("all_reduce", None, None, 1)
    assert [note.text for note in shown.notes] == ["2 collectives without the op that tells its group and size"]


def test_a_trace_without_a_rank_takes_it_from_its_name(tmp_path: Path) -> None:
    for trace, name in zip(job(), ("x_rank2.json", "x_rank0.json", "x_rank1.json"), strict=True):
        trace.world_size = 0
        trace.write(tmp_path, name)
    shown = opened(tmp_path)
    assert [(line.rank, line.file) for line in shown.ranks] == [
        (0, "x_rank0.json"), (1, "x_rank1.json"), (2, "x_rank2.json")
    ]  # fmt: skip
    assert shown.world_size is None
    assert [note.id for note in shown.notes] == ["rank_guessed"]


def test_a_file_with_several_gpus_and_no_rank_is_a_rank_for_each_gpu(tmp_path: Path) -> None:
    """As sessions of Nsight Systems are: here two hosts with two GPUs each."""
    for host in range(2):
        trace = RankTrace(0, 0)
        trace.step(0, 0)
        for device in range(2):
            trace.rank = device
            trace.kernel("work", 10 + device, 20, 900 + 100 * host + 10 * device)
        trace.write(tmp_path, f"host{host}.json")
    shown = opened(tmp_path)
    assert [(line.rank, line.file, line.device) for line in shown.ranks] == [
        (0, "host0.json", 0), (1, "host0.json", 1), (2, "host1.json", 0), (3, "host1.json", 1)
    ]  # fmt: skip
    assert [line.compute_us for line in shown.ranks] == pytest.approx([880, 890, 980, 990], abs=NEAR)


@pytest.mark.skipif(not PUBLIC, reason="GPUPREP_PUBLIC_TRACES names no folder of public traces")
def test_a_public_session_with_two_gpus() -> None:
    shown = tracesteps.ranks([Path(PUBLIC) / "nsys-h100-2gpu-1s.sqlite"])
    assert [(line.rank, line.device) for line in shown.ranks] == [(0, 0), (1, 1)]
    assert all(line.busy_us for line in shown.ranks)


def test_steps_that_a_rank_does_not_have_are_not_compared(tmp_path: Path) -> None:
    traces = job()
    traces[2].events = [event for event in traces[2].events if event["name"] != "ProfilerStep#0"]
    shown = document(tmp_path, traces)
    assert [step.name for step in shown.steps] == ["ProfilerStep#1", "ProfilerStep#2"]
    assert {line.steps for line in shown.ranks} == {2}
    assert "1 step not in every rank; not compared" in [note.text for note in shown.notes]


NCCL = Path(__file__).parent / "recorded_ranks"  # two H200; rank 1 has more rows


def _all_reduces(rank: int) -> list[tuple[float, float, int]]:
    """(start, end, bytes) of the recorded all-reduces in order, microseconds of the file's own clock. By hand."""
    told = json.loads(gzip.decompress((NCCL / f"rank000{rank}.pt.trace.json.gz").read_bytes()))
    found = [one for one in told["traceEvents"] if one.get("cat") == "kernel" and "AllReduce" in one["name"]]
    return sorted(
        (float(one["ts"]), float(one["ts"]) + float(one["dur"]), 4 * int(one["args"]["In msg nelems"])) for one in found
    )


def test_two_recorded_ranks_joined_by_nccl() -> None:
    first, second = _all_reduces(0), _all_reduces(1)
    assert len(first) == len(second) == 40
    by_hand = opened(NCCL)
    assert [(straggler.rank, straggler.steps) for straggler in by_hand.stragglers] == [(1, 5)]
    # Bytes over the time in which both were there: a ring of two sends every byte once.
    for row in by_hand.collectives:
        pairs = [(one, two) for one, two in zip(first, second, strict=True) if one[2] == row.bytes]
        took = sorted(max(one[1], two[1]) - max(one[0], two[0]) for one, two in pairs)
        assert row.calls == len(pairs)
        assert row.time_us == pytest.approx(statistics.fmean(end - start for pair in pairs for start, end, _ in pair))
        assert took[0] <= (row.transfer_us or 0.0) <= took[-1]
        assert row.bus_gb_s == pytest.approx((row.bytes or 0) / (row.transfer_us or 1.0) / 1000, rel=1e-6)
    waited = sum(max(0.0, two[0] - one[0]) for one, two in zip(first, second, strict=True)) / 5
    assert by_hand.ranks[1].late_us == pytest.approx(waited, abs=15)  # the clocks of the two GPUs differ by as much


def test_two_recorded_ranks_joined_by_gloo() -> None:
    """Recorded on a real GPU; its collectives run on the CPU and have no process group in the trace."""
    recorded = Path(__file__).parent / "recorded"
    shown = tracesteps.ranks([recorded / f"ddp-gloo-rank{rank}.json.gz" for rank in (1, 0)])
    assert (shown.backend, shown.world_size, shown.missing, shown.notes) == ("gloo", 2, (), ())
    assert shown.clocks == "the ranks' own clocks agree"
    assert [(line.name, line.bytes, line.calls, line.matched) for line in shown.collectives] == [
        ("all_reduce", 4 * 5 * (1024 * 1024 + 1024), 3, 3),
        ("all_reduce", 4 * (1024 * 1024 + 1024), 3, 3),
    ]  # DDP's two buckets of a model of six layers of 1024 x 1024
    for line in shown.ranks:
        assert line.exposed_us is not None
        assert line.collective_us is not None
        assert line.step_us is not None
        assert 0 < line.exposed_us < line.collective_us < line.step_us


@pytest.mark.skipif(not PUBLIC, reason="GPUPREP_PUBLIC_TRACES names no folder of public traces")
@pytest.mark.parametrize(
    ("file", "world", "steps", "calls"),
    [
        ("hta-nccl-a100.json.gz", 2, 3, {"all_reduce": 15, "broadcast": 6}),
        ("hta-sampled-rank0.json.gz", 128, 2, {"all_to_all": 4, "all_reduce": 4, "all_gather": 2}),
    ],
)
def test_one_rank_of_a_public_job(file: str, world: int, steps: int, calls: dict[str, int]) -> None:
    shown = tracesteps.ranks([Path(PUBLIC) / file])
    (line,) = shown.ranks
    assert (shown.world_size, line.rank, line.steps) == (world, 0, steps)
    assert shown.missing == tuple(range(1, world))
    found: dict[str, int] = {}
    for one in shown.collectives:
        found[one.name] = found.get(one.name, 0) + one.calls
    assert found == calls
    by_hand = _by_hand(Path(PUBLIC) / file)
    assert line.collective_us == pytest.approx(by_hand["collective"], abs=0.3)
    assert line.exposed_us == pytest.approx(by_hand["exposed"], abs=0.3)
    assert line.compute_us == pytest.approx(by_hand["compute"], abs=0.3)


def _by_hand(file: Path) -> dict[str, float]:
    """Means of the steps, by marks on a line of time: no code of gpuprep's."""
    events = [event for event in json.loads(gzip.decompress(file.read_bytes()))["traceEvents"] if "dur" in event]
    steps = [event for event in events if "ProfilerStep" in event["name"] and event["cat"] == "user_annotation"]
    sums = {"collective": 0.0, "exposed": 0.0, "compute": 0.0}
    for step in steps:
        marks: list[tuple[float, int, bool]] = []
        for event in events:
            start = max(event["ts"], step["ts"])
            end = min(event["ts"] + event["dur"], step["ts"] + step["dur"])
            if event.get("cat") == "kernel" and end > start:
                nccl = "nccl" in event["name"]
                marks += [(start, 1, nccl), (end, -1, nccl)]
        running = {True: 0, False: 0}
        before = 0.0
        for time, change, nccl in sorted(marks):
            length = time - before
            sums["collective"] += length if running[True] else 0
            sums["exposed"] += length if running[True] and not running[False] else 0
            sums["compute"] += length if running[False] else 0
            running[nccl] += change
            before = time
    return {key: value / len(steps) for key, value in sums.items()}


def test_steps_of_one_name_are_told_apart_by_their_order(tmp_path: Path) -> None:
    traces = job()
    for trace in traces:
        for event in trace.events:
            if event["name"].startswith("ProfilerStep"):
                event["name"] = "train_step"
    shown = document(tmp_path, traces)
    assert [step.name for step in shown.steps] == ["train_step 0", "train_step 1", "train_step 2"]
    assert [step.last_rank for step in shown.steps] == [2, 2, 2]
    assert [line.step_us for line in shown.ranks] == pytest.approx([STEP] * 3, abs=NEAR)


times = st.floats(0, 5000).map(lambda time: round(time, 3))
spans = st.lists(st.tuples(times, times), max_size=8)


@settings(max_examples=amount.examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(spans, spans), min_size=1, max_size=3))
def test_parts_sum_to_their_whole(tmp_path: Path, drawn: list[tuple[Spans, Spans]]) -> None:
    """Any work and any collectives: unions stay inside the step, exposed and overlapped make the collectives."""
    for old in tmp_path.glob("*.json"):
        old.unlink()
    for number, (work, collectives) in enumerate(drawn):
        trace = RankTrace(number, len(drawn))
        trace.step(0, 0)
        for start, length in work:
            trace.kernel("work", start / 2, start, start + length / 2, COMPUTE)
        for start, length in collectives:
            trace.collective(start / 2, start, start + length / 2)
        trace.kernel("end", 5, 9000, 9001)
        trace.write(tmp_path)
    shown = opened(tmp_path)
    for line, (work, collectives) in zip(shown.ranks, drawn, strict=True):
        assert line.step_us is not None
        assert line.busy_us is not None
        assert line.compute_us is not None
        assert line.collective_us is not None
        assert line.exposed_us is not None
        assert line.overlapped_us is not None
        assert 0 <= line.exposed_us <= line.collective_us + NEAR
        assert line.exposed_us + line.overlapped_us == pytest.approx(line.collective_us)
        assert line.busy_us == pytest.approx(line.compute_us + line.exposed_us, abs=NEAR)
        assert line.busy_us <= line.step_us
        assert line.collective_us <= sum(length / 2 for _, length in collectives) + NEAR
        assert line.compute_us <= sum(length / 2 for _, length in work) + 1 + NEAR
    for column, line in enumerate(shown.ranks):
        if line.late_us is not None:
            assert line.waiting_us is not None
            late = [step.late_us[column] or 0.0 for step in shown.steps]
            assert line.late_us == pytest.approx(sum(late) / len(shown.steps))
            assert (line.late_us == 0) or line.last_percent


def test_no_profile_at_all() -> None:
    shown = tracesteps.ranks([])
    assert (shown.ranks, shown.collectives, shown.steps, shown.world_size) == ((), (), (), None)


# ---------------------------------------------------------------- names, sizes and speeds of collectives


def collective(folder: Path, size: int = 1, *, kernel: str = "", **told: Any) -> ranks.CollectiveLine:
    """One collective of so many ranks, which the last one enters 100 µs before its end. `told`: of its op."""
    traces = [RankTrace(rank, size) for rank in range(size)]
    for trace in traces:
        trace.step(0, 0)
        more: dict[str, Any] = {"kernel": kernel} if kernel else {}
        trace.collective(50, 1000 + trace.rank, 1100 + size - 1, told=not kernel, **more)
        for event in trace.events:
            if event["name"] == "record_param_comms":
                event["args"].update(told)
    (line,) = document(folder, traces).collectives
    return line


def named(folder: Path, name: str, size: int = 1) -> ranks.CollectiveLine:
    told: dict[str, Any] = {"Collective name": name}
    return collective(folder, size, **told)


@pytest.mark.parametrize(
    ("name", "size", "factor"),
    [("all_reduce", 8, 1.75), ("all_gather", 8, 0.875), ("reduce_scatter", 4, 0.75), ("all_to_all", 2, 0.5),
     ("barrier", 8, None)],
)  # fmt: skip
def test_bus_bandwidths_are_those_of_nccl_tests(name: str, size: int, factor: float | None, tmp_path: Path) -> None:
    line = named(tmp_path, name, size)
    assert line.name == name
    assert line.transfer_us == pytest.approx(100, abs=NEAR)
    assert line.bytes == 4_000_000
    assert line.bus_gb_s == (None if factor is None else pytest.approx(4e6 / 100e-6 / 1e9 * factor, rel=1e-3))


@pytest.mark.parametrize("name", ["broadcast", "reduce", "send_recv"])
def test_what_the_ranks_do_not_leave_together_has_no_bandwidth(name: str, tmp_path: Path) -> None:
    line = named(tmp_path, name, 2)
    assert (line.name, line.bytes, line.transfer_us, line.bus_gb_s) == (name, 4_000_000, None, None)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("allreduce", "all_reduce"),
        ("_allgather_base", "all_gather"),
        ("reduce_scatter_tensor_coalesced", "reduce_scatter"),
        ("all_to_allv", "all_to_all"),
        ("gloo:all_reduce", "all_reduce"),
        ("send", "send"),
    ],
)
def test_names_of_collectives(text: str, name: str, tmp_path: Path) -> None:
    assert named(tmp_path, text).name == name


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)", "reduce_scatter"),
        ("ncclKernel_SendRecv_RING_SIMPLE", "send_recv"),
        ("void vllm::cross_device_reduce_1stage<__half, 2>(x)", "all_reduce"),
        ("ncclDevKernel_Reduce_Sum", "reduce"),
        ("ncclDevKernel_Generic", "other"),
    ],
)
def test_names_of_kernels_of_collectives(kernel: str, name: str, tmp_path: Path) -> None:
    assert collective(tmp_path, kernel=kernel).name == name


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        ("Float", 4),
        ("BFloat16", 2),
        ("c10::Half", 2),
        ("signed char", 1),
        ("Float8_e4m3fn", 1),
        ("Long", 8),
        ("", None),
    ],
)
def test_sizes_of_elements(dtype: str, size: int | None, tmp_path: Path) -> None:
    assert collective(tmp_path, dtype=dtype).bytes == (None if size is None else 1_000_000 * size)


@pytest.mark.parametrize(
    ("name", "sent", "received", "dtype", "size"),
    [
        ("all_gather", 10, 80, "Half", 160),
        ("reduce_scatter", 80, 10, "Half", 160),
        ("all_reduce", 80, 80, "Float", 320),
        ("broadcast", 0, 80, "Float", 320),
    ],
)
def test_sizes_of_messages(name: str, sent: int, received: int, dtype: str, size: int, tmp_path: Path) -> None:
    """nccl-tests count the result of an all-gather and what goes into a reduce-scatter."""
    told: dict[str, Any] = {"Collective name": name, "In msg nelems": sent, "Out msg nelems": received, "dtype": dtype}
    assert collective(tmp_path, **told).bytes == size


@pytest.mark.parametrize(
    ("category", "around", "found"),
    [
        ("user_annotation", "nccl:all_to_all", [1]),
        ("cpu_op", "c10d::alltoall_base_", [1]),
        ("cpu_op", "c10d::alltoall_", [1]),
        ("cpu_op", "c10d::send", []),  # a pipeline's neighbour: who waits for whom is not known
    ],
)
def test_an_all_to_all_that_runs_as_send_and_receive_tells_who_is_late(
    category: str, around: str, found: list[int], tmp_path: Path
) -> None:
    traces = [RankTrace(rank) for rank in range(2)]
    for trace in traces:
        for number in range(3):
            at = number * 10_000
            trace.step(number, at, 9_990)
            trace.range(category, around, at + 40, 30)
            begin = at + (5_000 if trace.rank else 3_700)
            trace.collective(at + 50, begin, at + 6_000, told=False, kernel="ncclDevKernel_SendRecv(x)")
    shown = document(tmp_path, traces)
    assert [one.rank for one in shown.stragglers] == found
