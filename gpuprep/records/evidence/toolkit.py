"""What the toolkit probe measured: does nvcc compile, does the program run, may the counters be read.

docs/records.md, toolkit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Union

from gpuprep.records import Missing
from gpuprep.records.evidence import NOT_RECORDED, Figure, Size
from gpuprep.records.evidence.shared import Probe

NO_VERDICT = Missing("unparsable", "no verdict")
NO_RUN = Missing("unparsable", "the probe says nothing of runs")
NO_COUNTERS = Missing("unparsable", "the probe says nothing of counters")


@dataclass(frozen=True)
class Cupti:
    path: str = ""
    version: Size = None
    counters: Union[bool, Missing] = NO_COUNTERS
    as_user: str = "an ordinary user"
    detail: str = ""
    counters_as_root: Optional[bool] = None  # only where that user was refused


@dataclass(frozen=True)
class Toolkit:
    """`output` is the output of nvcc, `run_output` that of the program."""

    compiles: Union[bool, Missing] = NO_VERDICT
    nvcc: str = ""
    version: str = ""
    output: str = ""
    seconds: Figure = NOT_RECORDED
    runs: Union[bool, Missing] = NO_RUN
    run_output: str = ""
    host_compiler: str = ""
    cupti: Union[Cupti, Missing] = NO_COUNTERS


PROBE = Probe("toolkit", Toolkit, 10, "cuda", "compiling with nvcc", measures=False, shares_turn=True)
