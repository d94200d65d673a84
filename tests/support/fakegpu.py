"""GPUs made of facts: a Device whose settings change its facts, and which can refuse; and how they are tuned."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuprep.agent.gpu.mig import Instance, MigProfile
from gpuprep.agent.tuning import tune, tunesettings
from gpuprep.records import ClockPair, GpuFacts, Missing, PowerLimits

DEPRECATED = Missing("deprecated", "NVML_ERROR_DEPRECATED")
NOT_SUPPORTED = Missing("not_supported", "Not Supported")
LOST = Missing("gpu_is_lost", "GPU is lost")
T4_PAIRS = tuple(ClockPair(memory, graphics) for memory in (5001, 405) for graphics in (1590, 1575, 585, 300))


def t4(index: int = 0, **changes: object) -> GpuFacts:
    facts = GpuFacts(
        index=index,
        uuid=f"GPU-{index:08d}",
        name="Tesla T4",
        pci_address=f"0000:00:{index + 4:02x}.0",
        pci_device_id="1eb8",
        serial="132",
        memory_total_mib=15360,
        persistence_mode=False,
        application_clocks=ClockPair(5001, 585),
        default_application_clocks=ClockPair(5001, 585),
        supported_clocks=T4_PAIRS,
        max_graphics_clock_mhz=1590,
        graphics_clock_mhz=300,
        memory_clock_mhz=405,
        power=PowerLimits(70.0, 70.0, 60.0, 70.0),
        ecc_current=True,
        ecc_pending=True,
        compute_mode="default",
        temperature_c=30,
        event_reasons=1,
    )
    return replace(facts, **changes)  # type: ignore[arg-type]


class FakeGpu:
    """`refusals`: method name ─► what it answers instead of doing it. `calls`: what was asked, in order."""

    def __init__(self, facts: GpuFacts, **refusals: Missing) -> None:
        self.index = facts.index
        self.state = facts
        self.refusals = refusals
        self.calls: list[str] = []
        self.sticks = True  # False: NVML agrees and nothing changes

    def facts(self) -> GpuFacts:
        return self.state

    def _do(self, call: str, **changes: object) -> Missing | None:
        self.calls.append(call)
        if call in self.refusals:
            return self.refusals[call]
        if self.sticks:
            self.state = replace(self.state, **changes)  # type: ignore[arg-type]
        return None

    def set_persistence(self, on: bool) -> Missing | None:
        return self._do("set_persistence", persistence_mode=on)

    def set_application_clocks(self, pair: ClockPair) -> Missing | None:
        return self._do("set_application_clocks", application_clocks=pair)

    def reset_application_clocks(self) -> Missing | None:
        return self._do("reset_application_clocks", application_clocks=self.state.default_application_clocks)

    def lock_graphics_clock(self, mhz: int) -> Missing | None:
        return self._do("lock_graphics_clock", graphics_clock_mhz=mhz)

    def lock_memory_clock(self, mhz: int) -> Missing | None:
        return self._do("lock_memory_clock", memory_clock_mhz=mhz)

    def unlock_graphics_clock(self) -> Missing | None:
        return self._do("unlock_graphics_clock")

    def unlock_memory_clock(self) -> Missing | None:
        return self._do("unlock_memory_clock")

    def set_power_limit(self, watts: float) -> Missing | None:
        return self._do("set_power_limit", power=replace(self.state.power, current_watts=watts))

    def set_ecc(self, on: bool) -> Missing | None:
        return self._do("set_ecc", ecc_pending=on)

    def set_compute_mode(self, mode: str) -> Missing | None:
        return self._do("set_compute_mode", compute_mode=mode)

    # MIG is tried on the stand-in NVML (tests/unit/agent/test_tune_mig.py): these GPUs have none.

    def set_mig(self, on: bool) -> Missing | None:
        return self._do("set_mig", mig_pending=on)

    def mig_profiles(self) -> list[MigProfile] | Missing:
        return []

    def mig_instances(self) -> list[Instance] | Missing:
        return []

    def create_instance(self, profile: MigProfile, start: int) -> Missing | None:
        return Missing("not_supported", f"{profile.name} at {start}")

    def destroy_instance(self, instance: Instance) -> Missing | None:
        return Missing("not_supported", instance.profile)


def tuned(action: str, gpus: Sequence[FakeGpu] | Missing, settings: Mapping[str, object], locks: Path) -> tune.Report:
    """The report of `tune ACTION` with these settings, as tuning.json has them; `locks`: where locks are kept."""
    file = locks.parent.parent / "tuning.json"
    file.write_text(json.dumps(settings))
    return tune.tune(action, gpus, tunesettings.load(file), locks)


def rows(report: tune.Report, name: str) -> list[Any]:
    return [row for row in report.rows if row.property == name]


def persistenced(monkeypatch: pytest.MonkeyPatch, socket: Path) -> None:
    """Where the socket of nvidia-persistenced is, if it runs."""
    monkeypatch.setattr(tune, "PERSISTENCED_SOCKET", socket)
