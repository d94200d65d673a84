"""What did each probe measure? A dataclass for each probe (docs/records.md describes them), and how to read it.

    measured(gemm.Gemm, result.values)    the values of a ProbeResult, decoded; Missing where the probe gave no answer

A record keeps the values as the probe sent them, so that values of another gpuprep version are not lost. They are
decoded here before use: a value that does not fit counts as not recorded, and the other values stay valid. The checks
decide what its absence means.
"""

from __future__ import annotations

from typing import Any, TypeVar, Union

from gpuprep.records import Missing
from gpuprep.records.evidence.decode import UNFIT, decoder, is_missing, missing_of

_T = TypeVar("_T")

NO_ANSWER = Missing("not_read", "the record does not say")


def measured(kind: type[_T], values: object) -> Union[_T, Missing]:
    """`values` as a `kind`; Missing where the probe gave no answer."""
    if is_missing(values):
        return missing_of(values)
    hashable: Any = kind
    decoded: _T = decoder(hashable)(values)
    return NO_ANSWER if decoded is UNFIT else decoded
