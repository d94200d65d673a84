"""Tensor Cores by name: no error on a list that was labelled without the rules; names cut off, mangled, hostile."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gpuprep.trace import profile, work
from gpuprep.trace.work import basename, kernels

LIST = Path(__file__).parent / "kernel_names.tsv"


def labelled() -> list[tuple[str, str]]:
    lines = LIST.read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines if not line.startswith("#")]
    return [(label, name) for label, _family, name in rows]


def test_no_error_on_the_labelled_list() -> None:
    names = labelled()
    assert len({name for _, name in names}) == len(names) >= 700
    wrong = [
        (label, work.tensor_cores(name), name) for label, name in names if work.tensor_cores(name)[0].value != label
    ]
    assert wrong == []


def test_the_list_has_enough_of_each_answer() -> None:
    labels = [label for label, _ in labelled()]
    assert labels.count("yes") >= 200
    assert labels.count("no") >= 400
    assert labels.count("unknown") >= 30


def test_every_rule_has_a_source_and_decides_some_name_of_the_list() -> None:
    told = {work.tensor_cores(name)[1] for _, name in labelled()}
    for rule in kernels.rules():
        assert rule.source in kernels.sources()
        assert rule.say
        assert rule.answer is profile.UsesTensorCores.UNKNOWN or rule.id in told, rule.id
    assert len({rule.id for rule in kernels.rules()}) == len(kernels.rules())


def test_unknown_names_no_rule() -> None:
    assert work.tensor_cores("triton_tem_fused_mm_1") == (profile.UsesTensorCores.UNKNOWN, "")
    assert work.tensor_cores("") == (profile.UsesTensorCores.UNKNOWN, "")


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("void a::b<int>(float)", "a::b"),
        ("void at::native::(anonymous namespace)::f<int, (g)0>(h<3>)", "at::native::anonymous::f"),
        ("void at::native::<unnamed>::f<(int)128>(T3)", "at::native::anonymous::f"),
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int>(P<int>)", "internal::gemvx::kernel"),
        ("void cutlass::Kernel2<x_tensorop<3>>(x_tensorop<3>::Params)", "x_tensorop"),
        ("void cutlass::device_kernel<flash::enable_sm90<flash::F<1> > >(P)", "flash::f"),
        ("_ZN7cutlass7Kernel2I5x_y_zEEvNT_6ParamsE", "cutlass::kernel2::x_y_z::params"),
        ("volta_sgemm_128x64_nn", "volta_sgemm_128x64_nn"),
        ("void f<a, b<c", "f"),
        ("<<<>>>", ""),
        ("_Z", ""),
    ],
)
def test_base_names(name: str, base: str) -> None:
    assert basename.parts(name)[0] == base


def test_only_the_base_name_counts() -> None:
    """Arguments say much that is not the kernel's own: gemv's have GEMM in their types."""
    assert work.tensor_cores("void at::native::f<cutlass_80_tensorop_s1688gemm>(int)")[0] is profile.UsesTensorCores.NO
    assert work.tensor_cores("void at::native::copy(nvjet_hsh_1)")[0] is profile.UsesTensorCores.NO


@pytest.mark.parametrize(
    "name",
    [
        "<" * 300_000,
        "a::" * 100_000,
        "void cutlass::Kernel<" * 20_000,
        "_ZN" + "1a" * 50_000,
        "sm80_xmma" * 30_000,
        "flash_fmha" * 30_000,
        "fmha_cutlassf_f16_" * 15_000,
        "f<" + "mmavolta" * 30_000 + ">",
        "f<" + "attentionkernel<" * 20_000,
        "triton_" * 40_000,
    ],
    ids=lambda name: name[:12],
)
def test_hostile_names_take_no_time(name: str) -> None:
    started = time.process_time()
    work.tensor_cores(name)
    assert time.process_time() - started < 1.0
