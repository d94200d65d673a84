"""Which dataclass has the values of which probe? All probes; who reads only some names those that it leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from gpuprep.records.evidence.bandwidth import Bandwidth
from gpuprep.records.evidence.codec import Codec
from gpuprep.records.evidence.cudnn import Cudnn
from gpuprep.records.evidence.gemm import Gemm
from gpuprep.records.evidence.nccl import Nccl
from gpuprep.records.evidence.throughput import Throughput
from gpuprep.records.evidence.toolkit import Toolkit
from gpuprep.records.evidence.transcode import Transcode

OF_PROBE: Mapping[str, type] = MappingProxyType(
    {
        "toolkit": Toolkit,
        "codec": Codec,
        "cudnn": Cudnn,
        "nccl": Nccl,
        "gemm": Gemm,
        "bandwidth": Bandwidth,
        "transcode": Transcode,
        "throughput": Throughput,
    }
)
