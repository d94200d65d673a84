"""GPUs as `gpuprep watch` sees them: a sample of a host in, its state and its row on the screen out."""

from __future__ import annotations

import dataclasses
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from gpuprep.cli import watchrows, watchscreen
from gpuprep.performance import clock_events
from gpuprep.records import ClockPair, Missing, RunRecord, Source, Xid, live
from gpuprep.remote import live as agents
from gpuprep.workflows import watch

GPU = live.LiveGpu(
    index=0, uuid="GPU-1", name="Tesla T4", pci_address="0000:00:04.0", graphics_clock_mhz=585, memory_clock_mhz=5001,
    application_clocks=ClockPair(5001, 585), power_watts=27.4, power_limit_watts=70.0, temperature_c=41,
    slowdown_temperature_c=93, event_reasons=clock_events.IDLE, gpu_utilization_percent=0,
    encoder_utilization_percent=0, decoder_utilization_percent=0, memory_used_mib=0, memory_total_mib=15360,
    ecc_corrected=0, ecc_uncorrected=0, processes=(),
)  # fmt: skip
CERTIFIED = watch.Held("run", 585, 5001, 70.0)
Host = watch.Watched


def gpu(**changes: Any) -> live.LiveGpu:
    """The idle T4, with some readings changed."""
    return dataclasses.replace(GPU, **changes)


def xid(code: int, address: str = GPU.pci_address) -> Xid:
    return Xid(code, address, "x", Missing("unparsable", ""))


def host(
    name: str, *gpus: live.LiveGpu, xids: tuple[Xid, ...] | Missing = (), source: Source = Source.MEASURED,
    certified: tuple[str, ...] = (), unread: Missing | None = None,
) -> watch.Watched:  # fmt: skip
    """What is thought of a host that shows these GPUs; those of the uuids `certified` were certified."""
    sample = live.LiveSample(
        "2026-11-23T10:00:00+00:00", source, "550.163.01", gpus if unread is None else unread, xids, "box"
    )
    return watch.watched(name, sample, dict.fromkeys(certified, CERTIFIED))


def silent(name: str, why: str) -> watch.Watched:
    return watch.Watched(name, "UNKNOWN", error=why)


def one(changed: live.LiveGpu, xids: tuple[Xid, ...] = (), held: watch.Held | None = CERTIFIED) -> watch.Seen:
    return watch.seen(changed, held, xids)


def only_a_run() -> watch.Held:
    """Certified by a run that read no clocks and no limits."""
    return watch.Held("run")


def certified_by(run: RunRecord | None) -> dict[str, watch.Held]:
    """GPU ► what it is held to."""
    return dict(watch.held(run))


def worst_first(hosts: list[watch.Watched]) -> list[str]:
    return [each.name for each in watch.order(hosts)]


def row(host: watch.Watched) -> tuple[str, ...]:
    (found,) = watchrows.rows([host])
    return tuple(found)


def drawn(hosts: list[watch.Watched], columns: int, rows: int = 24) -> list[str]:
    """The lines on a terminal of this size, the worst host first."""
    stream = StringIO()
    console = Console(
        file=stream, width=columns, height=rows, force_terminal=True, color_system=None, legacy_windows=False
    )
    console.print(watchscreen.drawn(watch.order(hosts), 2.0, columns=columns, rows=rows))
    return stream.getvalue().splitlines()


def impatient(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """An agent is waited for so long at the beginning."""
    monkeypatch.setattr(agents, "BEGIN_SECONDS", seconds)
