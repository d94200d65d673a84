"""Texts of Nsight Systems: NVTX ranges of operators, names of CUDA calls.

torch.autograd.profiler.emit_nvtx writes `aten::mm, seq = 5, op_id = 17, sizes = [[64, 128], [128, 32]]`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from gpuprep.trace.columns import NONE, Arguments
from gpuprep.trace.reading.arguments import sizes_of
from gpuprep.trace.reading.growing import ArgumentsTable

DOMAIN = "NVTX domain"  # key of Arguments.other
_VERSION = re.compile(r"_v\d{4,}(?:_ptsz|_ptds)?$")
_DETAILS = re.compile(r", (?:seq|op_id|sizes|input_op_ids) = ")
_SEQUENCE = re.compile(r", seq = (\d{1,18})(?=,|$)")
_SIZES = re.compile(r", sizes = (\[.*?\])(?=, input_op_ids|$)")
_OPERATOR = re.compile(r"[a-zA-Z_][\w.]{0,60}::\w|autograd::engine::evaluate_function: ")


class Range(NamedTuple):
    name: str
    is_op: bool
    sequence: int
    sizes: str  # as in the text, "" without
    domain: str


def call(name: str) -> str:
    """cudaLaunchKernel of cudaLaunchKernel_v7000."""
    return _VERSION.sub("", name)


def process(tid: object) -> int | None:
    """Of a global thread id."""
    return tid >> 24 if isinstance(tid, int) else None


def domain(tid: object, number: object, names: Mapping[tuple[object, object], str]) -> str:
    """The name of a range's domain; "" for the default one, and "domain 3" where the export does not name it."""
    if not isinstance(number, int) or not number:
        return ""
    return names.get((process(tid), number)) or names.get((None, number)) or f"domain {number}"


def range_of(text: str, domain: str) -> Range:
    details = _DETAILS.search(text)
    if not details:
        return Range(text, bool(_OPERATOR.match(text)) and not domain, NONE, "", domain)
    sequence, sizes = _SEQUENCE.search(text), _SIZES.search(text)
    return Range(
        text[: details.start()], True, int(sequence[1]) if sequence else NONE, sizes[1] if sizes else "", domain
    )


def arguments_row(push_pop: Range, table: ArgumentsTable) -> int:
    """Index of the range's arguments in `table`, NONE where it has none."""
    if not push_pop.sizes and not push_pop.domain:
        return NONE
    key = (push_pop.sizes, push_pop.domain)
    place = table.find(key)
    if place is not None:
        return place
    other = ((DOMAIN, push_pop.domain),) if push_pop.domain else ()
    return table.add(key, Arguments(shapes=sizes_of(push_pop.sizes.encode()), other=other))
