"""Names and inputs that nobody would write: every answer is an answer, none is an exception, none takes long."""

from __future__ import annotations

import math

import amount
from handmade import Op, launched, step, trace
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from gpuprep.catalogue import boards
from gpuprep.trace import columns, model, roofs, tables
from gpuprep.trace.profile import UsesTensorCores
from gpuprep.trace.work import eligible, flops, kernel_alignment, misaligned, optypes, shape, tensor_cores

PIECES = [
    "void ", "cutlass::Kernel<", "cutlass::device_kernel<", "at::native::", "(anonymous namespace)", "<unnamed>", "<",
    ">", "(", ")", "{", "[", ",", " ", "_ZN", "17", "I", "E", "flash_fwd_kernel", "sgemm", "_tensorop_", "nvjet_", "\n",
    "\x00", "é",
]  # fmt: skip
NAMES = some.one_of(some.text(max_size=200), some.lists(some.sampled_from(PIECES), max_size=60).map("".join))
OPS = some.sampled_from([*optypes.data()["ops"], "AddmmBackward0", "aten::add", ""])
SIZES = some.one_of(some.integers(-2, 9), some.sampled_from([64, 4097, 2**31, 2**40, 2**62]))
TENSORS = some.lists(SIZES, max_size=6).map(tuple)
INPUTS = some.one_of(TENSORS, some.lists(TENSORS, max_size=3).map(tuple))
TYPES = some.sampled_from(
    ["float", "c10::Half", "c10::BFloat16", "double", "Scalar", "", "long", "c10::Float8_e4m3fn", "x"]
)
TEXTS = some.one_of(
    some.sampled_from(["", "[1, 1]", "[0, 0]", "True", "False", "[True, False, True]", "1"]), some.text(max_size=20)
)
ARGUMENTS = some.builds(
    columns.Arguments,
    some.lists(INPUTS, max_size=12).map(tuple),
    some.lists(TYPES, max_size=12).map(tuple),
    some.lists(INPUTS, max_size=12).map(tuple),
    some.lists(TEXTS, max_size=12).map(tuple),
)
DEVICES = (columns.Device(0, "NVIDIA H100 80GB HBM3", "9.0", 132, 85_000_000_000),)


@given(NAMES)
@settings(max_examples=amount.examples(500), deadline=None)
def test_names(name: str) -> None:
    answer, rule = tensor_cores(name)
    assert isinstance(answer, UsesTensorCores)
    assert bool(rule) == (answer is not UsesTensorCores.UNKNOWN)
    assert isinstance(kernel_alignment(name), (int, type(None)))


@given(OPS, ARGUMENTS)
@settings(max_examples=amount.examples(500), deadline=None)
def test_inputs(op: str, arguments: columns.Arguments) -> None:
    found, work = flops(op, arguments), shape(op, arguments)
    assert (found is None) == (work is None)
    assert found is None or (math.isfinite(found) and found >= 0)
    assert isinstance(eligible(op, arguments, "9.0")[0], bool)
    assert isinstance(misaligned(op, arguments), tuple)


@given(OPS, ARGUMENTS, NAMES, some.integers(1, 10**9))
@settings(max_examples=amount.examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_roofs(op: str, arguments: columns.Arguments, name: str, ns: int) -> None:
    rows = [step(0, 0, 2 * 10**9), Op(op, 1, 20, arguments=arguments), *launched(name, 2, 30, 30 + ns, 1)]
    profile = model.profile(trace(*rows, devices=DEVICES))
    for found in roofs.with_roofs(profile, tables.document(profile), boards()["h100_sxm5_80"]).roofs:
        assert math.isfinite(found.percent)
        assert found.better_us is None or 0 < found.better_us < found.gpu_us
        assert found.percent <= 103 or found.words.startswith("not possible") or "Winograd or FFT" in found.words
