"""Tuning: what is set, what is read back, what is refused and how that is told."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakegpu import DEPRECATED, LOST, NOT_SUPPORTED, FakeGpu, persistenced, rows, t4, tuned
from hypothesis import given
from hypothesis import strategies as st

from gpuprep import records
from gpuprep.agent import __main__ as agent
from gpuprep.agent.facts import managed

BEST = records.ClockPair(5001, 1590)
MAX: dict[str, object] = {
    "persistence": True, "clocks": "max", "power_limit_watts": "default", "ecc": "keep", "compute_mode": "default",
    "models": {"1eb8": {"memory_mhz": 5001, "graphics_mhz": 1590}, "20b0": {"memory_mhz": 1215, "graphics_mhz": 1410}},
}  # fmt: skip
DEFAULT = {**MAX, "clocks": "default"}
UNREADABLE: dict[str, Any] = {"application_clocks": DEPRECATED, "default_application_clocks": DEPRECATED}


@pytest.fixture
def locks(tmp_path: Path) -> Path:
    return tmp_path / "run" / "locked-clocks.json"


def row(report: Any, name: str) -> Any:
    (found,) = rows(report, name)
    return found


def apply(gpus: Sequence[FakeGpu], settings: dict[str, object], locks: Path) -> Any:
    return tuned("apply", gpus, settings, locks)


def check(gpus: Sequence[FakeGpu], settings: dict[str, object], locks: Path) -> Any:
    return tuned("check", gpus, settings, locks)


def test_apply_then_check_then_apply_again_changes_nothing(locks: Path) -> None:
    gpu = FakeGpu(t4())
    assert check([gpu], MAX, locks).exit_code == 1
    assert gpu.calls == []
    first = apply([gpu], MAX, locks)
    assert first.exit_code == 0
    clock = row(first, "clocks")
    assert (clock.before, clock.after, clock.wanted) == ("5001,585 MHz", "5001,1590 MHz", "5001,1590 MHz")
    assert (clock.changed, clock.how, clock.error) == (True, "application", "")
    assert check([gpu], MAX, locks).exit_code == 0
    gpu.calls.clear()
    again = apply([gpu], MAX, locks)
    assert not any(row.changed for row in again.rows)
    assert gpu.calls == []


def test_default_clocks_are_reset(locks: Path) -> None:
    gpu = FakeGpu(t4(application_clocks=BEST))
    assert apply([gpu], DEFAULT, locks).exit_code == 0
    assert "reset_application_clocks" in gpu.calls
    assert gpu.state.application_clocks == records.ClockPair(5001, 585)


def test_a_clock_that_does_not_stick_is_seen(locks: Path) -> None:
    gpu = FakeGpu(t4(persistence_mode=True))
    gpu.sticks = False
    report = apply([gpu], MAX, locks)
    clock = row(report, "clocks")
    assert clock.error == ""
    assert not clock.as_wanted
    assert clock.after == "5001,585 MHz"
    assert report.exit_code == 1


def test_locked_clocks_where_application_clocks_are_gone(locks: Path) -> None:
    gpu = FakeGpu(t4(**UNREADABLE), lock_memory_clock=NOT_SUPPORTED)
    report = apply([gpu], MAX, locks)
    clock = row(report, "clocks")
    assert report.exit_code == 0
    assert (clock.how, clock.before, clock.after) == ("locked", "not locked", "graphics 1590 MHz")
    assert managed.read_locked_clocks(locks) == (records.LockedClocks(gpu.state.uuid, None, 1590, report.boot_id),)
    assert locks.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in locks.parent.iterdir()] == [locks.name]
    assert check([gpu], MAX, locks).exit_code == 0
    assert not row(apply([gpu], MAX, locks), "clocks").changed
    assert check([gpu], DEFAULT, locks).exit_code == 1


def test_both_clocks_are_locked_where_the_gpu_can(locks: Path) -> None:
    gpu = FakeGpu(t4(**UNREADABLE))
    assert row(apply([gpu], MAX, locks), "clocks").after == "5001,1590 MHz"
    assert gpu.calls[-2:] == ["lock_graphics_clock", "lock_memory_clock"]


def test_application_clocks_that_can_only_be_read(locks: Path) -> None:
    gpu = FakeGpu(t4(), set_application_clocks=DEPRECATED)
    clock = row(apply([gpu], MAX, locks), "clocks")
    assert (clock.how, clock.as_wanted) == ("locked", True)


def test_locks_are_taken_back_for_default_clocks(locks: Path) -> None:
    gpu = FakeGpu(t4(**UNREADABLE))
    apply([gpu], MAX, locks)
    report = apply([gpu], DEFAULT, locks)
    assert report.exit_code == 0
    assert row(report, "clocks").after == "not locked"
    assert gpu.calls[-2:] == ["unlock_graphics_clock", "unlock_memory_clock"]
    assert managed.read_locked_clocks(locks) == ()


def test_locks_of_an_earlier_boot_do_not_count(locks: Path) -> None:
    gpu = FakeGpu(t4(**UNREADABLE))
    apply([gpu], MAX, locks)
    document = json.loads(locks.read_text())
    document["locked"][0]["boot_id"] = "another"
    locks.write_text(json.dumps(document))
    clock = row(check([gpu], MAX, locks), "clocks")
    assert (clock.before, clock.as_wanted) == ("not locked", False)


def test_a_refused_lock_is_an_error_and_not_written_down(locks: Path) -> None:
    gpu = FakeGpu(t4(**UNREADABLE), lock_graphics_clock=records.Missing("no_permission", "Insufficient Permissions"))
    report = apply([gpu], MAX, locks)
    assert report.exit_code == 1
    assert row(report, "clocks").error == "no_permission: Insufficient Permissions"
    assert managed.read_locked_clocks(locks) == ()


def test_unsupported_pair_names_the_nearest(locks: Path) -> None:
    gpu = FakeGpu(t4())
    report = apply([gpu], {**MAX, "clocks": {"memory_mhz": 5001, "graphics_mhz": 1580}}, locks)
    error = row(report, "clocks").error
    assert error == ("5001,1580 MHz is not supported by this GPU; nearest: 5001,1575 MHz; 5001,1590 MHz; 5001,585 MHz")
    assert "set_application_clocks" not in gpu.calls
    assert report.exit_code == 1


@given(st.integers(0, 6000), st.integers(0, 3000))
def test_nearest_pairs_are_supported_and_a_pair_that_is_supported_is_set(memory: int, graphics: int) -> None:
    supported = {f"{pair.memory_mhz},{pair.graphics_mhz} MHz" for pair in t4().supported_clocks}  # type: ignore[union-attr]
    with tempfile.TemporaryDirectory() as folder:
        wish = {**MAX, "clocks": {"memory_mhz": memory, "graphics_mhz": graphics}}
        clock = row(apply([FakeGpu(t4())], wish, Path(folder) / "run" / "locks"), "clocks")
    asked, _, near = clock.error.partition(" is not supported by this GPU; nearest: ")
    if f"{memory},{graphics} MHz" in supported:
        assert (clock.error, clock.after) == ("", f"{memory},{graphics} MHz")
        return
    assert asked == f"{memory},{graphics} MHz"
    assert len(set(near.split("; ")) & supported) == 3


def test_max_without_a_known_model_takes_the_highest_pair(locks: Path) -> None:
    assert row(apply([FakeGpu(t4())], {**MAX, "models": {}}, locks), "clocks").after == "5001,1590 MHz"
    unusual = t4(supported_clocks=(records.ClockPair(405, 2000), records.ClockPair(5001, 1500)))
    assert row(apply([FakeGpu(unusual)], MAX, locks), "clocks").after == "5001,1500 MHz"


def test_unknown_supported_clocks_are_an_error_not_a_guess(locks: Path) -> None:
    gpu = FakeGpu(t4(supported_clocks=NOT_SUPPORTED))
    clock = row(apply([gpu], MAX, locks), "clocks")
    assert "not_supported" in clock.error
    assert not clock.as_wanted
    assert "set_application_clocks" not in gpu.calls


def test_several_gpus_of_different_models_one_of_them_lost(locks: Path) -> None:
    a100 = t4(
        2,
        name="A100",
        pci_device_id="20b0",
        application_clocks=records.ClockPair(1215, 1095),
        supported_clocks=(records.ClockPair(1215, 1410), records.ClockPair(1215, 1095)),
    )
    lost = replace(t4(1), uuid="", name="", memory_total_mib=LOST)
    gpus = [FakeGpu(t4(0)), FakeGpu(lost), FakeGpu(a100)]
    report = apply(gpus, MAX, locks)
    assert [row.after for row in rows(report, "clocks")] == ["5001,1590 MHz", "1215,1410 MHz"]
    (gone,) = [row for row in report.rows if row.error]
    assert (gone.gpu, gone.error) == (1, "gpu_is_lost: GPU is lost")
    assert report.exit_code == 1


@pytest.mark.parametrize(("watts", "low_high"), [(59, "60 to 70 W"), (71, "60 to 70 W")])
def test_power_limit_outside_of_the_device(locks: Path, watts: int, low_high: str) -> None:
    gpu = FakeGpu(t4())
    report = apply([gpu], {**MAX, "power_limit_watts": watts}, locks)
    assert low_high in row(report, "power_limit").error
    assert "set_power_limit" not in gpu.calls
    assert report.exit_code == 1


def test_power_limit_is_set_and_reset(locks: Path) -> None:
    gpu = FakeGpu(t4())
    assert row(apply([gpu], {**MAX, "power_limit_watts": 62}, locks), "power_limit").after == "62 W"
    back = row(apply([gpu], MAX, locks), "power_limit")
    assert (back.before, back.after, back.changed) == ("62 W", "70 W", True)


def test_a_gpu_without_power_management_is_at_its_default(locks: Path) -> None:
    unmanaged = records.PowerLimits(NOT_SUPPORTED, NOT_SUPPORTED, NOT_SUPPORTED, NOT_SUPPORTED)
    gpu = FakeGpu(t4(power=unmanaged), set_power_limit=NOT_SUPPORTED)
    assert row(apply([gpu], MAX, locks), "power_limit").as_wanted
    wanted = row(apply([gpu], {**MAX, "power_limit_watts": 62}, locks), "power_limit")
    assert (wanted.as_wanted, wanted.error) == (False, "not_supported: Not Supported")


def test_ecc_is_pending_until_the_reboot(locks: Path) -> None:
    gpu = FakeGpu(t4())
    settings = {**MAX, "ecc": "disabled"}
    report = apply([gpu], settings, locks)
    ecc = row(report, "ecc")
    assert (ecc.after, ecc.changed, ecc.reboot_needed, ecc.as_wanted) == ("disabled", True, True, False)
    assert report.exit_code == 0
    assert check([gpu], settings, locks).exit_code == 1
    gpu.state = replace(gpu.state, ecc_current=False)
    assert check([gpu], settings, locks).exit_code == 0


@pytest.mark.parametrize(("wish", "code"), [("keep", 0), ("disabled", 0), ("enabled", 1)])
def test_a_gpu_without_ecc(locks: Path, wish: str, code: int) -> None:
    gpu = FakeGpu(t4(ecc_current=NOT_SUPPORTED, ecc_pending=NOT_SUPPORTED))
    assert apply([gpu], {**MAX, "ecc": wish}, locks).exit_code == code


def test_compute_mode_and_a_refusal(locks: Path) -> None:
    gpu = FakeGpu(t4())
    settings = {**MAX, "compute_mode": "exclusive_process"}
    assert row(apply([gpu], settings, locks), "compute_mode").after == "exclusive_process"
    stubborn = FakeGpu(t4(), set_compute_mode=NOT_SUPPORTED)
    refused = row(apply([stubborn], settings, locks), "compute_mode")
    assert (refused.error, refused.as_wanted) == ("not_supported: Not Supported", False)


@pytest.mark.parametrize(("daemon", "how"), [(True, "daemon"), (False, "legacy")])
def test_persistence_says_how(
    locks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, daemon: bool, how: str
) -> None:
    socket = tmp_path / "socket"
    if daemon:
        socket.touch()
    persistenced(monkeypatch, socket)
    assert row(apply([FakeGpu(t4())], MAX, locks), "persistence").how == how


@pytest.mark.parametrize("gpus", [records.Missing("driver_not_loaded", "Driver Not Loaded"), []])
def test_no_gpu_to_tune(locks: Path, gpus: records.Missing | list[FakeGpu]) -> None:
    for action in ("apply", "check"):
        report = tuned(action, gpus, MAX, locks)
        assert report.exit_code == 1
        assert report.error
    assert not locks.exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"clocks": "fast"}, "clocks"),
        ({"ecc": "on"}, "ecc"),
        ({"compute_mode": "shared"}, "compute_mode"),
        ({"power_limit_watts": "much"}, "power_limit_watts"),
        ({"persistence": "yes"}, "persistence"),
        ({"clocks": {"memory_mhz": 1}}, "clocks"),
        ({"models": {"1eb8": 3}}, "1eb8"),
    ],
)
def test_wrong_settings_name_the_field(
    tmp_path: Path, change: dict[str, object], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tuning.json"
    path.write_text(json.dumps({**MAX, **change}))
    assert agent.main(["tune", "check", "--settings", str(path)]) == 2
    assert said in capsys.readouterr().err
