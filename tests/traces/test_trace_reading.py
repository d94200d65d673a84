"""Kineto traces of all generations as columns: what is in the file is in the columns, to the nanosecond."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tracesteps
from synthetic import BASE_NS, EPOCH_NS, Kineto, training, union

from gpuprep import errors
from gpuprep.trace import columns

GENERATIONS = ["G1", "G2", "G3", "G4"]


def busy(trace: columns.Trace, device: int) -> int:
    rows = trace.gpu.device == device
    return union(list(zip(trace.gpu.start[rows].tolist(), trace.gpu.end[rows].tolist(), strict=True)))


def names(trace: columns.Trace, ids: Any) -> list[str]:
    return [trace.names[name] for name in ids.tolist()]


@pytest.mark.parametrize("indent", [None, 0, 2])
@pytest.mark.parametrize("ending", [".json", ".json.gz"])
@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_generation_gives_the_same_columns(
    generation: str, ending: str, indent: int | None, tmp_path: Path
) -> None:
    made = training(generation)
    trace = tracesteps.read(made.write(tmp_path / f"trace{ending}", indent=indent))
    assert trace.generation == generation
    assert trace.zero_ns == EPOCH_NS  # the first event, ns since 1970
    assert trace.gpu.start.tolist() == [event.start for event in made.gpu]
    by_start = sorted((event.start, event.end, event.stream, event.name) for event in made.gpu)
    rows_ = (
        trace.gpu.start.tolist(),
        trace.gpu.end.tolist(),
        trace.gpu.stream.tolist(),
        names(trace, trace.gpu.name),
    )
    assert sorted(zip(*rows_, strict=True)) == by_start
    kernels = trace.gpu.kind == columns.GpuKind.KERNEL
    assert int((trace.gpu.end - trace.gpu.start)[kernels].sum()) == made.kernel_time(0)
    assert busy(trace, 0) == made.busy(0)
    assert int(trace.gpu.end.max() - trace.gpu.start.min()) == made.span(0)
    assert len(trace.calls.start) == len(made.gpu)
    assert set(trace.gpu.correlation.tolist()) == set(trace.calls.correlation.tolist())
    assert trace.notes == {}
    assert (trace.rank, trace.world_size) == (0, 2)
    assert [device.compute_capability for device in trace.devices] == ["8.0", "8.0"]


@pytest.mark.parametrize("generation", GENERATIONS)
def test_steps_are_annotations_and_ops_are_ops(generation: str, tmp_path: Path) -> None:
    trace = tracesteps.read(training(generation).write(tmp_path / "t.json"))
    steps = trace.ops.kind == columns.OpKind.ANNOTATION
    assert names(trace, trace.ops.name[steps]) == [f"ProfilerStep#{step}" for step in range(3)]
    assert set(names(trace, trace.ops.name[~steps])) == {
        "aten::copy_", "aten::linear", "aten::addmm", "aten::mm", "aten::_foreach_add_",
        "autograd::engine::evaluate_function: AddmmBackward0",
    }  # fmt: skip


def test_threads_of_calls_and_ops_are_the_same_although_one_is_a_text(tmp_path: Path) -> None:
    trace = tracesteps.read(training("G1").write(tmp_path / "t.json"))
    assert sorted(thread.label for thread in trace.threads) == ["4711", "4799"]
    assert set(trace.calls.thread.tolist()) == set(trace.ops.thread.tolist())


def test_flows_join_forward_and_backward_ops(tmp_path: Path) -> None:
    trace = tracesteps.read(training().write(tmp_path / "t.json"))
    assert trace.backward_of.shape == (12, 2)
    forward, backward = trace.backward_of.T
    assert set(names(trace, trace.ops.name[forward])) == {"aten::addmm"}
    assert set(names(trace, trace.ops.name[backward])) == {"autograd::engine::evaluate_function: AddmmBackward0"}
    assert (trace.ops.sequence[forward] == trace.ops.sequence[backward]).all()


def test_a_flow_without_its_begin_is_no_pair(tmp_path: Path) -> None:
    made = training()
    made.events = [event for event in made.events if not (event["ph"] == "s" and event["id"] == 1000)]
    assert len(tracesteps.read(made.write(tmp_path / "t.json")).backward_of) == 11


def test_arguments_are_kept_once(tmp_path: Path) -> None:
    trace = tracesteps.read(training(steps=5).write(tmp_path / "t.json"))
    assert len(trace.arguments) == 3
    product = next(row for row in trace.arguments if len(row.shapes) == 3)
    assert product.shapes == ((16,), (8, 16), (16, 16))
    assert product.dtypes == ("float", "float", "float")
    steps = trace.ops.kind == columns.OpKind.ANNOTATION
    assert (trace.ops.arguments[steps] == -1).all()


def test_lists_of_tensors_and_values_of_scalars(tmp_path: Path) -> None:
    made = Kineto()
    made.op("aten::cat", 0, 10, shapes=[[[2, 3], [4, 3]], []], dtypes=["TensorList", "Scalar"],
            args={"Concrete Inputs": ["", "0"], "Input Strides": [[[3, 1], [3, 1]], []]})  # fmt: skip
    details = {"Collective name": "allreduce", "In msg nelems": 512, "Group size": 8, "dtype": "Float", "Seq": 3}
    made.op("record_param_comms", 20, 10, args=details)
    trace = tracesteps.read(made.write(tmp_path / "t.json"))
    cat, collective = (trace.arguments[place] for place in trace.ops.arguments)
    assert cat.shapes == (((2, 3), (4, 3)), ())
    assert cat.strides == (((3, 1), (3, 1)), ())
    assert cat.concrete == ("", "0")
    assert dict(collective.other) == {
        "Collective name": "allreduce", "In msg nelems": "512", "Group size": "8", "dtype": "Float", "Seq": "3",
    }  # fmt: skip


def test_an_op_of_triton_with_a_stream_is_no_gpu_event(tmp_path: Path) -> None:
    made = training()
    before = len(made.gpu)
    made.op(
        "triton_poi_fused_add_0",
        990_000,
        2_000,
        args={"stream": 7, "grid": "grid(256,)", "kernel_backend": "triton", "num_warps": 4},
    )
    trace = tracesteps.read(made.write(tmp_path / "t.json"))
    assert len(trace.gpu.start) == before
    assert ("kernel_backend", "triton") in trace.arguments[int(trace.ops.arguments[-1])].other


def test_python_functions_and_modules(tmp_path: Path) -> None:
    made = training()
    made.python("train.py(10): main", 0, 2_000_000)
    made.python("nn.Module: Linear_0", 50_000, 60_000)
    path = made.write(tmp_path / "t.json")
    whole, short = tracesteps.read(path), tracesteps.read(path, stacks=False)
    assert names(whole, whole.ops.name[whole.ops.kind == columns.OpKind.PYTHON]) == ["train.py(10): main"]
    assert names(whole, whole.ops.name[whole.ops.kind == columns.OpKind.MODULE]) == ["nn.Module: Linear_0"]
    assert whole.switches["with_stack"]
    assert not (short.ops.kind == columns.OpKind.PYTHON).any()
    assert (short.ops.kind == columns.OpKind.MODULE).sum() == 1
    assert short.notes == {"stacks_left_out": 1}
    assert len(whole.ops.start) == len(short.ops.start) + 1


def test_memory_events(tmp_path: Path) -> None:
    made = training()
    made.memory(10_000, 512, 1024, 4096)
    made.memory(20_000, -512, 512, 4096)
    made.memory(30_000, 8, 8, 0, device=-1)
    trace = tracesteps.read(made.write(tmp_path / "t.json"))
    assert trace.memory.time.tolist() == [10_000, 20_000, 30_000]
    assert trace.memory.bytes.tolist() == [512, -512, 8]
    assert trace.memory.allocated.tolist() == [1024, 512, 8]
    assert trace.memory.device.tolist() == [0, 0, -1]
    assert trace.switches["profile_memory"]


def test_one_call_with_many_kernels_as_of_a_cuda_graph(tmp_path: Path) -> None:
    made = Kineto()
    graph = made.launch(0, "first", 10_000, 1000, call="cudaGraphLaunch", args={"graph node id": 1})
    made.launch(0, "second", 12_000, 1000, correlation=graph, args={"graph node id": 2})
    trace = tracesteps.read(made.write(tmp_path / "t.json"))
    assert trace.gpu.correlation.tolist() == [graph, graph]
    assert trace.gpu.graph_node.tolist() == [1, 2]
    assert names(trace, trace.calls.name) == ["cudaGraphLaunch"]
    assert trace.notes == {}


def test_kernels_that_were_launched_before_the_recording_stay_and_are_counted(tmp_path: Path) -> None:
    made = training()
    made.launch(None, "earlier", 1_000, 2_000)
    trace = tracesteps.read(made.write(tmp_path / "t.json"))
    assert len(trace.gpu.start) == len(made.gpu)
    assert trace.notes == {"no_launches": 1}


def test_launch_geometry(tmp_path: Path) -> None:
    trace = tracesteps.read(training().write(tmp_path / "t.json"))
    kernels = trace.gpu.kind == columns.GpuKind.KERNEL
    assert (trace.gpu.grid[kernels] == [162, 1, 1]).all()
    assert (trace.gpu.block[kernels] == [256, 1, 1]).all()
    assert (trace.gpu.grid[~kernels] == -1).all()
    assert set(trace.gpu.registers[kernels].tolist()) == {32}
    assert set(trace.gpu.bytes[~kernels].tolist()) == {4096}
    assert np.isnan(trace.gpu.occupancy[~kernels]).all()
    assert set(trace.gpu.occupancy[kernels].tolist()) == {19.0}


def test_blocks_per_sm_may_be_the_text_inf(tmp_path: Path) -> None:
    made = Kineto()
    made.launch(0, "kernel", 5_000, 1_000)
    made.events[-2]["args"]["blocks per SM"] = "inf"
    trace = tracesteps.read(made.write(tmp_path / "t.json"))
    assert trace.gpu.blocks_per_sm.tolist() == [float("inf")]
    assert trace.notes == {}


def test_keys_in_any_order_and_what_stands_before_or_behind_the_events(tmp_path: Path) -> None:
    made = training()
    for event in made.events:
        keys = sorted(event, reverse=True)
        copy = {key: event[key] for key in keys}
        event.clear()
        event.update(copy)
    behind = {"traceEvents": made.events, **made.top, "baseTimeNanoseconds": BASE_NS}
    before = {**made.top, "baseTimeNanoseconds": BASE_NS, "traceEvents": made.events}
    for place, document in enumerate((behind, before)):
        trace = tracesteps.read(made.write(tmp_path / f"{place}.json", document=document))
        assert (trace.generation, trace.rank, trace.zero_ns) == ("G4", 0, EPOCH_NS)
        assert busy(trace, 0) == made.busy(0)
        assert trace.notes == {}


def test_a_piece_may_end_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = training(steps=2)
    made.op(
        "list of objects", 1_990_000, 10, args={"pg_config": [{"name": "a"}, {"name": "b"}, {"ph": "X"}, {"ph": "Y"}]}
    )
    made.op('},{"ph":"X","name":"', 1_995_000, 10)
    for indent in (None, 1):
        path = made.write(tmp_path / "t.json", indent=indent)
        whole = tracesteps.read(path)
        for size in (97, 333, 1000, 4999):
            tracesteps.small_pieces(monkeypatch, size, 64 << 20)
            trace = tracesteps.read(path)
            assert trace.gpu.start.tolist() == whole.gpu.start.tolist()
            assert trace.ops.start.tolist() == whole.ops.start.tolist()
            assert names(trace, trace.ops.name) == names(whole, whole.ops.name)
            assert trace.rank == 0
            assert not trace.notes.keys() - {"slow_pieces"}
        monkeypatch.undo()


def test_traceevents_as_a_text_in_the_head_is_not_the_array(tmp_path: Path) -> None:
    made = training()
    made.top = {"note": 'a "traceEvents": [ in a text', "deep": {"traceEvents": []}, **made.top}
    trace = tracesteps.read(made.write(tmp_path / "t.json"))
    assert len(trace.gpu.start) == len(made.gpu)
    assert trace.rank == 0


def test_bare_list(tmp_path: Path) -> None:
    made = training("G2")
    trace = tracesteps.read(made.write(tmp_path / "t.json", document=made.events))
    assert busy(trace, 0) == made.busy(0)
    assert trace.notes == {"bare_list": 1}
    assert trace.devices == []


def test_times_of_zero_negative_durations_and_the_end_of_the_window(tmp_path: Path) -> None:
    made = training()
    whole = tracesteps.read(made.write(tmp_path / "whole.json"))
    made.event("cpu_op", "lost", 0, 5_000)["ts"] = 0
    made.event("kernel", "lost", 0, 5_000, pid=0, tid=7, args={"device": 0, "stream": 7, "correlation": 9})["ts"] = 0
    made.event("cpu_op", "late", 500_000, 10)["dur"] = -3
    made.events.append(
        {"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": made.time(10**15)}
    )
    trace = tracesteps.read(made.write(tmp_path / "t.json"))
    assert trace.notes == {"impossible_times": 2, "negative_durations": 1}
    assert trace.zero_ns == whole.zero_ns
    assert busy(trace, 0) == made.busy(0)
    assert int(trace.ops.end.max()) == int(whole.ops.end.max())


def test_a_corrupt_duration_is_clipped_at_the_next_event_of_its_stream(tmp_path: Path) -> None:
    made = Kineto()
    for place in range(50):
        made.launch(place * 20_000, "kernel", place * 20_000 + 5_000, 10_000)
    made.events[3 * 4 + 2]["dur"] = made.length(1_600_000_000)  # of the fourth kernel: 1.6 s
    trace = tracesteps.read(made.write(tmp_path / "t.json"))
    assert trace.notes == {"clipped_durations": 1}
    assert int(trace.gpu.end[3]) == int(trace.gpu.start[4])
    assert tracesteps.sentence("clipped_durations", 1).startswith("1 GPU event with a corrupt duration")


def test_overlap_inside_a_stream_stays_as_it_is(tmp_path: Path) -> None:
    """Programmatic dependent launch, and branches of a graph, are no corrupt durations."""
    made = Kineto()
    for place in range(20):
        made.launch(place * 20_000, "nvjet", place * 20_000 + 5_000, 22_000)
    for place in range(20):
        node = {"graph node id": place + 1}
        made.launch(
            500_000 + place * 20_000, "branch", 500_000 + place * 20_000, 9_000_000 if not place else 9_000, args=node
        )
    trace = tracesteps.read(made.write(tmp_path / "t.json"))
    assert trace.notes == {}
    assert busy(trace, 0) == made.busy(0)


def test_what_a_graph_launched_may_overlap_though_its_nodes_have_no_number(tmp_path: Path) -> None:
    """Older profilers write no node: the kernels of one launch share its correlation."""
    made = Kineto()
    graph = made.launch(1_000, "ncclDevKernel_AllReduce", 10_000, 20_000_000, call="cudaGraphLaunch")
    for place in range(150):
        made.launch(None, "gemm", 20_000 + place * 90_000, 90_000, correlation=graph)
    trace = tracesteps.read(made.write(tmp_path / "t.json"))
    assert "clipped_durations" not in trace.notes
    assert busy(trace, 0) == made.busy(0) == 20_000_000


def test_a_kernel_that_the_next_one_does_not_outrun_has_its_own_end(tmp_path: Path) -> None:
    """Programmatic dependent launch: the next kernel begins long before, and ends after."""
    made = Kineto()
    for place in range(50):
        made.launch(place * 20_000, "short", place * 20_000 + 5_000, 10_000)
    made.launch(2_000_000, "long", 2_000_000, 12_000_000)
    made.launch(2_100_000, "short", 12_400_000, 1_700_000)
    trace = tracesteps.read(made.write(tmp_path / "t.json"))
    assert "clipped_durations" not in trace.notes
    assert busy(trace, 0) == made.busy(0)


def test_events_of_no_stream_are_not_compared(tmp_path: Path) -> None:
    made = Kineto()
    made.launch(None, "long", 10_000, 5_000_000)
    for place in range(50):
        made.launch(None, "short", 20_000 + place * 50_000, 10_000)
    for event in made.events:
        event.pop("tid", None)
        event.get("args", {}).pop("stream", None)
    trace = tracesteps.read(made.write(tmp_path / "t.json"))
    assert "clipped_durations" not in trace.notes
    assert busy(trace, 0) == 5_000_000


@pytest.mark.parametrize("stated", [{}, {"ts": None}, {"ts": -(2**63)}, {"ts": 2**63 - 1}, {"ts": "soon"}])
@pytest.mark.parametrize("generation", GENERATIONS)
def test_an_event_without_a_time_that_can_be_is_left_out(
    generation: str, stated: dict[str, Any], tmp_path: Path
) -> None:
    """Where other times are small, a time of 0 would be among them."""
    made = training(generation)
    made.zero = BASE_NS if generation == "G4" else 0
    event = made.event("kernel", "lost", 0, 5_000, pid=0, tid=7, args={"device": 0, "stream": 7, "correlation": 9})
    del event["ts"]
    event.update(stated)
    trace = tracesteps.read(made.write(tmp_path / "t.json"))
    assert "lost" not in names(trace, trace.gpu.name)
    assert busy(trace, 0) == made.busy(0)
    assert trace.notes.get("impossible_times", 0) + trace.notes.get("unreadable_events", 0) == 1


def test_python_functions_as_pairs_are_no_reason_to_stop(tmp_path: Path) -> None:
    made = training()
    made.event("python_function", "nn.Module: Linear_0", 1_000, 5_000)["ph"] = "B"
    path = made.write(tmp_path / "t.json")
    for stacks in (True, False):
        trace = tracesteps.read(path, stacks=stacks)
        assert busy(trace, 0) == made.busy(0)
        assert trace.notes["unknown_phases"] == 1


def test_a_kernel_may_last_longer_than_all_others(tmp_path: Path) -> None:
    """A collective that waits for its peers is long, and nothing else runs on its stream."""
    made = training()
    made.launch(100_000, "ncclDevKernel_AllReduce", 110_000, 5_000_000_000, stream=20)
    trace = tracesteps.read(made.write(tmp_path / "t.json"))
    assert trace.notes == {}
    assert busy(trace, 0) == made.busy(0)


def test_kernels_of_no_duration_are_kept_and_counted(tmp_path: Path) -> None:
    made = Kineto("G2", zero=EPOCH_NS // 1000 * 1000)
    made.launch(0, "tiny", 4_000, 0)
    made.launch(10_000, "other", 14_000, 5_000)
    trace = tracesteps.read(made.write(tmp_path / "t.json"))
    assert len(trace.gpu.start) == 2
    assert trace.notes == {"zero_durations": 1}


def test_what_is_no_gpu_work(tmp_path: Path) -> None:
    made = training()
    before = len(made.gpu)
    made.event("gpu_user_annotation", "ProfilerStep#0", 0, 900_000, pid=0, tid=7)
    made.event("cuda_sync", "Stream Sync", 0, 900_000, pid=0, tid=7, args={"stream": 7, "device": 0})
    made.event("Trace", "PyTorch Profiler (0)", 0, 900_000, pid="Spans", tid="PyTorch Profiler")
    made.event("overhead", "Lazy Function Loading", 0, 900, pid=-1, tid=0)
    trace = tracesteps.read(made.write(tmp_path / "t.json"))
    assert len(trace.gpu.start) == before
    assert trace.notes == {}


def test_unknown_categories_are_counted(tmp_path: Path) -> None:
    made = training()
    made.event("quantum", "spin", 0, 10)
    made.event("quantum", "spin", 0, 10)
    made.events.append({"ph": "B", "name": "begin", "ts": made.time(0), "pid": 1, "tid": 1})
    assert tracesteps.read(made.write(tmp_path / "t.json")).notes == {"unknown_categories": 2, "unknown_phases": 1}


@pytest.mark.parametrize("generation", GENERATIONS)
def test_no_gpu_events(generation: str, tmp_path: Path) -> None:
    made = Kineto(generation)
    made.op("aten::add", 0, 5_000)
    trace = tracesteps.read(made.write(tmp_path / "t.json"))
    assert trace.notes == {"no_gpu_events": 1}
    assert len(trace.ops.start) == 1


@pytest.mark.parametrize("category", ["privateuse1_driver", "mtia_ccp_events", "hpu_op"])
def test_accelerators_of_others_are_said(category: str, tmp_path: Path) -> None:
    made = Kineto()
    made.op("aten::mm", 0, 1000)
    made.event(category, "work", 100, 50)
    assert tracesteps.read(made.write(tmp_path / "t.json")).notes["other_accelerator"] == 1


def test_two_processes_in_one_file_with_the_same_correlations(tmp_path: Path) -> None:
    """Files that were put together: the External id tells the process; where it does not, nobody guesses."""
    made = Kineto()
    for process in (1, 2):
        made.pid = made.tid = process
        made.correlation = 100
        made.op(f"aten::of_{process}", 0, 50_000)
        made.launch(10_000, "told", 20_000, 1_000, device=process - 1)
        made.launch(30_000, "not told", 40_000, 1_000, device=process - 1, args={"External id": None})
    trace = tracesteps.read(made.write(tmp_path / "t.json"))
    names = [trace.names[name] for name in trace.gpu.name]
    found = sorted(zip(names, trace.gpu.device.tolist(), trace.gpu.process.tolist(), strict=True))
    assert found == [("not told", 0, -1), ("not told", 1, -1), ("told", 0, 0), ("told", 1, 1)]
    assert trace.notes == {"several_processes": 2}


def test_amd_and_xpu_are_read_and_said(tmp_path: Path) -> None:
    amd = training()
    amd.top |= {"hip_runtime_version": 70051831, "roctracer_version": 4.1}
    trace = tracesteps.read(amd.write(tmp_path / "amd.json"))
    assert trace.notes == {"amd_gpu": 1}
    assert trace.machine["hip_runtime_version"] == "70051831"
    amd = training()
    for device in amd.top["deviceProperties"]:
        device["name"] = "AMD Instinct MI300X"
    assert tracesteps.read(amd.write(tmp_path / "name.json")).notes == {"amd_gpu": 1}
    amd = training()
    for event in amd.events:
        event["name"] = event["name"].replace("cudaLaunchKernel", "hipLaunchKernel")
    (tmp_path / "list.json").write_text(amd.text(document=amd.events))
    assert tracesteps.read(tmp_path / "list.json").notes == {"amd_gpu": 1, "bare_list": 1}
    xpu = training()
    for event in xpu.events:
        if event.get("cat") == "cuda_runtime":
            event["cat"] = "xpu_runtime"
    trace = tracesteps.read(xpu.write(tmp_path / "xpu.json"))
    assert trace.notes == {"xpu": 1}
    assert len(trace.calls.start) == len(xpu.gpu)


def test_several_devices_and_a_process_number_that_is_a_devices(tmp_path: Path) -> None:
    made = Kineto(pid=1, tid=1)
    made.op("aten::mm", 0, 50_000)
    made.launch(1_000, "a", 5_000, 10_000, device=0)
    made.launch(9_000, "b", 12_000, 10_000, device=1, stream=9)
    trace = tracesteps.read(made.write(tmp_path / "t.json"))
    assert trace.gpu.device.tolist() == [0, 1]
    assert [busy(trace, device) for device in (0, 1)] == [made.busy(0), made.busy(1)]
    assert len(trace.ops.start) == 1


def test_markup_in_names_is_only_text(tmp_path: Path) -> None:
    made = training()
    hostile = "<script>alert(1)</script>\u202e\x1b[2J {{7*7}} ../../etc/passwd"
    made.op(hostile, 990_000, 10)
    trace = tracesteps.read(made.write(tmp_path / "t.json"))
    assert trace.names[int(trace.ops.name[-1])] == hostile
    assert trace.notes == {}


def test_nothing_of_the_environment_or_of_extra_keys_is_kept(tmp_path: Path) -> None:
    made = training()
    secret = "must-never-be-shown"
    made.top |= {"metadata": {"env": {"API_TOKEN": secret}}, "host": secret, "environment": [secret]}
    trace = tracesteps.read(made.write(tmp_path / "t.json"))
    assert secret not in repr((trace.machine, trace.switches, trace.names, trace.arguments, trace.processes))


def test_odd_types_are_read_as_far_as_they_make_sense(tmp_path: Path) -> None:
    made = training()
    calls = [event for event in made.events if event.get("cat") == "cuda_runtime"]
    copy, kernel = calls[:2]
    kernel["args"]["correlation"] = str(kernel["args"]["correlation"])
    copy["args"] = []
    made.op("no time", 0, 10)
    made.events[-1]["ts"] = None
    trace = tracesteps.read(made.write(tmp_path / "t.json"))
    assert len(trace.calls.start) == len(made.gpu)
    assert trace.notes["unreadable_events"] == 1
    assert trace.notes.keys() <= {"unreadable_events", "no_launches"}


def test_numbers_that_are_too_large_are_no_numbers(tmp_path: Path) -> None:
    made = training()
    made.op("aten::mm", 500, 10, args={"Sequence number": 2**64 - 1, "Fwd thread id": 10**30})
    made.launch(600, "kernel", 700, 10, device=0, stream=7, args={"bytes": 10**40})
    trace = tracesteps.read(made.write(tmp_path / "t.json"))
    assert trace.ops.sequence[-1] == -1
    assert trace.ops.forward_thread[-1] == -1
    assert trace.gpu.bytes[-1] == -1


REFUSED = {
    "empty": (b"", "the file is empty"),
    "blank": (b" \n\t ", "the file is empty"),
    "text": (b"hello", "no profile that gpuprep can read"),
    "binary": (bytes(range(256)) * 10, "no profile that gpuprep can read"),
    "object": (b'{"a": 1}', "no profile that gpuprep can read"),
    "number": (b"17", "no profile that gpuprep can read"),
    "no events": (b'{"traceEvents": []}', "holds no events"),
    "empty list": (b"[]", "holds no events"),
    "other program": (
        b'{"traceEvents": [{"ph":"X","cat":"blink","name":"a","ts":1,"dur":2}]}',
        "not of PyTorch's profiler",
    ),
    "list of numbers": (b"[1, 2, 3]", "holds no events"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_refused_with_one_clear_line(kind: str, tmp_path: Path) -> None:
    data, words = REFUSED[kind]
    path = tmp_path / "given.json"
    path.write_bytes(data)
    with pytest.raises(errors.UsageError) as error:
        tracesteps.read(path)
    assert words in error.value.what
    assert "given.json" in error.value.what
    assert "\n" not in error.value.what
    assert str(tmp_path) not in error.value.what
    assert error.value.exit_code == 2


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match="no such file"):
        tracesteps.read(tmp_path / "none.json")
    with pytest.raises(errors.UsageError, match="a folder"):
        tracesteps.read(tmp_path)
    with pytest.raises(errors.UsageError, match="no such file or folder"):
        tracesteps.found(tmp_path / "none")
    with pytest.raises(errors.UsageError, match="no profile in this folder"):
        tracesteps.found(tmp_path)


def test_a_folder_of_mixed_files(tmp_path: Path) -> None:
    made = training()
    for name in ("rank1.pt.trace.json", "rank0.pt.trace.json.gz", "below/rank2.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        made.write(tmp_path / name)
    made.write(tmp_path / "old.json", document=made.events)
    (tmp_path / "config.json").write_text(json.dumps({"model": "resnet50"}))
    (tmp_path / "broken.json.gz").write_bytes(b"\x1f\x8bnothing")
    (tmp_path / "notes.txt").write_text("hello")
    (tmp_path / "run.nsys-rep").write_bytes(b"report")
    (tmp_path / "run.sqlite").write_bytes(b"export")
    (tmp_path / "alone.nsys-rep").write_bytes(b"report")
    assert [str(path.relative_to(tmp_path)) for path in tracesteps.found(tmp_path)] == [
        "alone.nsys-rep", "old.json", "rank0.pt.trace.json.gz", "rank1.pt.trace.json", "run.sqlite", "below/rank2.json",
    ]  # fmt: skip
    assert tracesteps.passed_over(tmp_path) == ["broken.json.gz", "config.json"]
    assert tracesteps.found(tmp_path / "config.json") == [tmp_path / "config.json"]
    assert tracesteps.passed_over(tmp_path / "config.json") == []


def test_every_note_has_a_sentence() -> None:
    for key in tracesteps.note_keys():
        for count in (1, 12):
            sentence = tracesteps.sentence(key, count)
            assert sentence
            assert "{" not in sentence
    assert tracesteps.sentence("impossible_times", 12) == "12 events with corrupt times or durations left out"


@pytest.mark.parametrize("since_base", [2**41, 2**42 - 1, 2**42 + 1, 2**43 - 10**6, 2**43 + 1, 9 * 10**12])
def test_nanoseconds_are_exact_as_far_as_a_base_is_away(since_base: int, tmp_path: Path) -> None:
    """A base of times moves every three months, 8 * 10**12 µs; a product with 1000 in doubles is wrong by then."""
    made = Kineto(zero=BASE_NS + since_base * 1000)
    for place in range(1000):
        made.op("aten::add", place * 1001, 100 + place % 7)
    trace = tracesteps.read(made.write(tmp_path / "t.json"))
    assert trace.ops.start.tolist() == [place * 1001 for place in range(1000)]
    assert (trace.ops.end - trace.ops.start).tolist() == [100 + place % 7 for place in range(1000)]
    assert trace.zero_ns == BASE_NS + since_base * 1000
    assert trace.generation == "G4"


def test_an_odd_event_costs_the_others_no_decimals(tmp_path: Path) -> None:
    """Times of the third generation are finer than a double; an event with a text for a time is read apart."""
    made = training("G3")
    for number in range(100):
        made.launch(3_000_000 + number * 20_003, "kernel", 3_005_000 + number * 20_003, 4_001)
    whole = tracesteps.read(made.write(tmp_path / "whole.json"))
    for event in made.events[5:40:7]:
        event["tid"] = [event["tid"]]
    text = made.text()
    first = text.index('"ts": ') + len('"ts": ')
    end = text.index(",", first)
    path = tmp_path / "odd.json"
    path.write_text(f'{text[:first]}"{text[first:end]}"{text[end:]}')
    odd = tracesteps.read(path)
    assert odd.generation == "G3"
    for table in ("gpu", "calls", "ops"):
        for column in ("start", "end"):
            assert getattr(getattr(odd, table), column).tolist() == getattr(getattr(whole, table), column).tolist()


def test_decimals_are_seen_where_few_of_the_events_have_some(tmp_path: Path) -> None:
    """Names of processes have the time 0."""
    names = [{"ph": "M", "name": "process_name", "ts": 0, "pid": 0, "args": {"name": "x"}} for _ in range(16)]
    row = '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "dur": 0.001, "ts": 1712000000000000.%03d}'
    path = tmp_path / "t.json"
    rows = [json.dumps(names[0]), *(row % number for number in (1, 4, 9)), *map(json.dumps, names[1:])]
    path.write_text(f'{{"traceEvents": [{",".join(rows)}]}}')
    assert tracesteps.read(path).gpu.start.tolist() == [0, 3, 8]


def test_times_do_not_depend_on_stacks(tmp_path: Path) -> None:
    made = training()
    made.python("threading.py(1): run", -50_000, 10**9)
    path = made.write(tmp_path / "t.json")
    assert tracesteps.read(path).zero_ns == tracesteps.read(path, stacks=False).zero_ns == EPOCH_NS - 50_000


def rows(trace: columns.Trace) -> list[Any]:
    """All that is in a trace, whatever the order of names, threads and arguments."""
    key = [(trace.processes[thread.process], thread.label) for thread in trace.threads]
    ops = zip(
        trace.ops.start.tolist(), trace.ops.end.tolist(), names(trace, trace.ops.name), trace.ops.kind.tolist(),
        [key[thread] for thread in trace.ops.thread.tolist()], trace.ops.sequence.tolist(),
        [trace.arguments[place] if place >= 0 else None for place in trace.ops.arguments.tolist()], strict=True,
    )  # fmt: skip
    calls = zip(
        trace.calls.start.tolist(), names(trace, trace.calls.name), trace.calls.correlation.tolist(), strict=True
    )
    gpu = zip(trace.gpu.start.tolist(), names(trace, trace.gpu.name), trace.gpu.grid.tolist(), strict=True)
    pairs = [tuple(trace.ops.start[pair].tolist()) for pair in trace.backward_of]
    outside = (trace.rank, trace.zero_ns, trace.generation, trace.devices, trace.notes, trace.switches, trace.machine)
    return [sorted(map(repr, table)) for table in (ops, calls, gpu, pairs, trace.memory.time.tolist())] + [outside]


@pytest.mark.parametrize("generation", GENERATIONS)
def test_two_halves_are_the_whole(generation: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = training(generation, steps=20)
    made.memory(10_000, 512, 1024, 4096)
    made.events.append({"ph": "B", "name": "begin", "ts": made.time(0), "pid": 1, "tid": 1})
    path = made.write(tmp_path / "t.json")
    whole = tracesteps.read(path)
    tracesteps.two_halves(monkeypatch)
    assert rows(tracesteps.read(path)) == rows(whole)
    # The second process reads another file here, to see that its half counts.
    other = tmp_path / "other.json"
    other.write_text(path.read_text().replace("aten::mm", "aten::MM"))
    tracesteps.two_halves(monkeypatch, f"import sys; sys.argv[2] = {str(other)!r}; {{}}")
    both = tracesteps.read(path)
    assert {"aten::mm", "aten::MM"} <= set(names(both, both.ops.name))


def test_a_cut_inside_an_event_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = training(steps=2)
    made.op("nest", 1_990_000, 10, args={"list": [{"ph": "X", "ts": 1}] * 20_000})
    for _ in range(2):
        made.op("behind", 1_995_000, 10)
    path = made.write(tmp_path / "t.json")
    whole = tracesteps.read(path)
    tracesteps.two_halves(monkeypatch)
    assert rows(tracesteps.read(path)) == rows(whole)
    assert names(whole, whole.ops.name)[-3:] == ["nest", "behind", "behind"]


def test_the_other_process_may_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = training(steps=20).write(tmp_path / "t.json")
    whole = tracesteps.read(path)
    for start in ("raise SystemExit(3)", "print('hello')", "import os; os.kill(os.getpid(), 9)"):
        tracesteps.two_halves(monkeypatch, start)
        assert rows(tracesteps.read(path)) == rows(whole)


@pytest.mark.parametrize(("name", "largest"), [("t.json", 1000), ("t.json.gz", 10_000)])
def test_a_large_profile_gives_its_memory_back(
    name: str, largest: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tracesteps.memory_given_back(monkeypatch)
    path = training(steps=40).write(tmp_path / name)
    tracesteps.read(path)
    assert asked == []
    tracesteps.large_profiles(monkeypatch, largest)
    tracesteps.read(path)
    assert asked == [0, 1 << 16], "before, and of the many small arrays of reading"


def test_limits_of_different_names_threads_and_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = training(steps=1)
    for place in range(100):
        made.op(f"name {place}", place * 1000, 10, tid=5000 + place, shapes=[[place]])
    path = made.write(tmp_path / "t.json")
    whole = tracesteps.read(path)
    assert whole.notes == {}
    tracesteps.few_different(monkeypatch, 50)
    trace = tracesteps.read(path)
    assert trace.notes.keys() == {"long_names", "arguments_left_out", "threads_left_out"}
    assert len(trace.names) == len(trace.threads) == 51
    assert len(trace.arguments) == 50
    assert trace.ops.start.tolist() == whole.ops.start.tolist()
    for key, count in trace.notes.items():
        assert str(count) in tracesteps.sentence(key, count)


def test_a_very_long_name_is_cut(tmp_path: Path) -> None:
    made = training(steps=1)
    made.op("x" * 100_000, 990_000, 10)
    trace = tracesteps.read(made.write(tmp_path / "t.json"))
    assert max(map(len, trace.names)) == 8192
    assert trace.notes == {"long_names": 1}


def test_events_that_stand_in_the_file_twice_are_counted(tmp_path: Path) -> None:
    trace = training()
    once = len(trace.gpu)
    assert "events_twice" not in tracesteps.read(trace.write(tmp_path / "once.json")).notes
    trace.events *= 2
    found = tracesteps.read(trace.write(tmp_path / "twice.json"))
    assert found.notes["events_twice"] == once
    assert len(found.gpu.start) == 2 * once
