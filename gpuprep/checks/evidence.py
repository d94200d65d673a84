"""The results of the probes of one host, for the checks of measurements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, Union

from gpuprep.catalogue import Board, board_in
from gpuprep.checks.common import unknown
from gpuprep.desired.profile import Threshold
from gpuprep.desired.state import Wanted
from gpuprep.records import Finding, GpuFacts, Missing, Snapshot, Status
from gpuprep.records.baseline import Baseline
from gpuprep.records.evidence import measured
from gpuprep.records.evidence.shared import NamedGpu

Values = Union[dict[str, Any], Missing]
_T = TypeVar("_T")
NOT_ASSIGNED = "it is not known which GPU a figure belongs to"


@dataclass(frozen=True)
class Evidence:
    """`results` has an entry for each probe that was run; Missing if the probe gave no values.

    docs/records.md describes the values. `thresholds` are the profile's, in per cent.
    """

    wanted: Wanted
    snapshot: Snapshot
    results: Mapping[str, Values]
    thresholds: Mapping[str, Threshold] = field(default_factory=dict)
    baseline: Baseline = field(default_factory=dict)  # of this host; {} if it has none, or is simulated
    # Cached: many judges ask for the same probe, and decoding half a megabyte of products takes 24 ms.
    _decoded: dict[tuple[type, str], Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def of(self, kind: type[_T], probe: str) -> _T | Missing:
        """What `probe` measured; Missing if it gave no values or was not run."""
        if (kind, probe) not in self._decoded:
            self._decoded[kind, probe] = measured(kind, self.results.get(probe))
        decoded: _T | Missing = self._decoded[kind, probe]
        return decoded

    def board(self, gpu: NamedGpu) -> Board | None:
        """The catalogue's board of a measurement's GPU; None if the catalogue lacks it."""
        return board_in(self.snapshot, gpu)

    def facts(self, gpu: NamedGpu) -> GpuFacts | None:
        """NVML's facts of a measurement's GPU; None if the snapshot does not have it."""
        read = () if isinstance(self.snapshot.gpus, Missing) else self.snapshot.gpus
        return next((facts for facts in read if gpu.uuid and facts.uuid == gpu.uuid), None)

    def not_measured(self, gpus: Sequence[NamedGpu]) -> list[str]:
        """GPUs that NVML listed and that are not among `gpus`: ["gpu 1"]; [] if NVML listed none.

        An entry without a UUID is the GPU of its index.
        """
        facts = () if isinstance(self.snapshot.gpus, Missing) else self.snapshot.gpus
        measured = {gpu.uuid or gpu.index for gpu in gpus}
        return [f"gpu {gpu.index}" for gpu in facts if not measured & {gpu.uuid, gpu.index}]


def absent_gpus(evidence: Evidence, subject: str, gpus: Sequence[NamedGpu], unreadable: int = 0) -> list[Finding]:
    """UNKNOWN if a GPU that NVML listed was not measured or its entry cannot be read; else []."""
    absent = evidence.not_measured(gpus)
    if not absent and not unreadable:
        return []
    unmeasured = Missing(
        "not_recorded", f"{', '.join(absent)} was not measured" if absent else "an entry that is not a GPU"
    )
    return [unknown(subject, "gpus", unmeasured, expected="every GPU measured", remedy="measure again")]


def duplicate_gpus(subject: str, gpus: Sequence[NamedGpu | GpuFacts]) -> list[Finding]:
    """UNKNOWN if two entries name the same GPU, or one of several names none; else []."""
    numbers = [gpu.index for gpu in gpus if gpu.index is not None]
    if len(gpus) > 1 and len(numbers) < len(gpus):
        why = f"{len(gpus) - len(numbers)} of {len(gpus)} entries have no GPU index: {NOT_ASSIGNED}"
        return [Finding(subject, "entries", Status.UNKNOWN, "an index for each GPU", "not recorded", why,
                        "measure again")]  # fmt: skip
    places = [gpu.pci_address for gpu in gpus if isinstance(gpu, GpuFacts) and gpu.pci_address]
    duplicates = [f"index {index}" for index, count in Counter(numbers).items() if count > 1]
    duplicates += [uuid for uuid, count in Counter(gpu.uuid for gpu in gpus if gpu.uuid).items() if count > 1]
    duplicates += [address for address, count in Counter(places).items() if count > 1]
    if not duplicates:
        return []
    why = f"several entries name the same GPU ({', '.join(duplicates)}): {NOT_ASSIGNED}"
    return [Finding(subject, "entries", Status.UNKNOWN, "one entry for each GPU", "named twice", why, "measure again")]
