"""What must hold for every profile and every host, tried with many of both."""

from __future__ import annotations

import dataclasses
from typing import Any

import amount
from builders import OS, bare_snapshot, finished_snapshot, load, with_driver
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from roletasks import roles_in_order

from gpuprep import catalogue, checks, errors, records
from gpuprep.desired import profile, state
from gpuprep.provisioning import plan

ORDER = roles_in_order()
BASES = {name: load(name) for name in ("t4", "v100", "a100", "base")}
REASONS = ("not_supported", "no_permission", "command_failed", "driver_not_loaded", "gpu_is_lost", "unparsable")

quick = settings(max_examples=amount.examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def profiles(draw: st.DrawFn) -> profile.Profile:
    base = BASES[draw(st.sampled_from(sorted(BASES)))]
    clocks: Any = draw(
        st.sampled_from(
            ["max", "default", records.ClockPair(5001, 1590), records.ClockPair(877, 1530), records.ClockPair(1, 1)]
        )
    )
    changes: dict[str, dict[str, Any]] = {
        "driver": {
            "flavour": draw(st.sampled_from(["auto", "open", "proprietary"])),
            "version": draw(st.sampled_from(["auto", "535", "550", "580", "590", "620", "550.163.01", "535.261.03"])),
            "source": draw(st.sampled_from(["distribution", "distribution", "distribution", "nvidia"])),
            "hold": draw(st.booleans()),
            "gpu_firmware": draw(st.booleans()),
        },
        "cuda": {"version": draw(st.sampled_from(["auto", "auto", "none", "11.8", "12.4", "12.9", "13.0"]))},
        "cudnn": {"version": draw(st.sampled_from(["none", "9.10.2.21", "9.10.2.21", "9.11.0.98", "9.99.0.0"]))},
        "codec": {
            "ffmpeg": draw(st.sampled_from(["7.1.5", "7.1.5", "none", "5.1.9", "9.0.2"])),
            "headers": draw(st.sampled_from(["12.1.14.0", "12.1.14.0", "11.1.5.2", "13.1.0.0"])),
            "npp": draw(st.booleans()),
            "nvenc": draw(st.sampled_from(["auto", "auto", "required"])),
        },
        "tuning": {
            "clocks": clocks,
            "power_limit_watts": draw(st.sampled_from(["default", "default", 60, 250, 2000])),
            "ecc": draw(st.sampled_from(["keep", "enabled", "disabled"])),
            "persistence": draw(st.booleans()),
            "profiling_counters": draw(st.sampled_from(["open", "restricted"])),
        },
    }
    parts = {name: dataclasses.replace(getattr(base, name), **values) for name, values in changes.items()}
    models = draw(st.sampled_from([base.gpus, ("t4", "v100"), ("t4", "v100", "a100", "h200")]))
    return dataclasses.replace(base, gpus=models, **parts)


@st.composite
def bare_hosts(draw: st.DrawFn) -> records.Snapshot:
    ids = st.sampled_from(["t4", "v100", "a100", "h200", "1df6", "20b5"])
    gpus = draw(st.lists(ids, min_size=1, max_size=3))
    snapshot = bare_snapshot(draw(st.sampled_from(sorted(OS))), gpus)
    kernel = dataclasses.replace(snapshot.kernel, secure_boot=draw(st.sampled_from([False, False, True])))
    return dataclasses.replace(snapshot, kernel=kernel, nvswitches=draw(st.sampled_from([0, 0, 0, 6])))


def resolve_or_none(wish: profile.Profile, snapshot: records.Snapshot) -> state.Wanted | None:
    """None where it is refused; and what is refused is refused well."""
    try:
        return state.resolve(wish, snapshot)
    except errors.PlanRefused as refused:
        reasons = refused.reasons
    assert reasons
    assert len(set(reasons)) == len(reasons)
    for reason in reasons:
        key, _, rest = reason.partition(": ")
        why, _, works = rest.partition("; works: ")
        assert key.replace(".", "").replace("_", "").isalpha(), reason
        assert why.strip(), reason
        assert works.strip() not in ("", "none"), reason
    return None


def has_volta(snapshot: records.Snapshot) -> bool:
    gpus = [catalogue.board(device.device_id) for device in snapshot.pci_gpus]
    return any(gpu is not None and gpu.model.architecture == "volta" for gpu in gpus)


@quick
@given(profiles(), bare_hosts())
def test_what_is_resolved_can_be(wish: profile.Profile, bare: records.Snapshot) -> None:
    wanted = resolve_or_none(wish, bare)
    if wanted is None:
        return
    if has_volta(bare):
        assert wanted.driver.flavour == "proprietary"
        assert catalogue.branch(wanted.driver.archive_version) <= 580
        assert wanted.cuda.version == "none" or catalogue.parse(wanted.cuda.version) < (13,)
        assert wanted.cudnn.version == "none" or catalogue.parse(wanted.cudnn.version)[:3] <= (9, 10, 2)
    if wanted.codec.ffmpeg != "none":
        assert catalogue.ffmpeg_accepts(wanted.codec.ffmpeg, wanted.codec.headers)
    if wish.codec.nvenc == "required":
        assert all(gpu.nvenc_engines for gpu in wanted.gpus)
    assert len(wanted.gpus) == len(bare.pci_gpus)
    assert "auto" not in plan.role_variables(wanted).values()


@quick
@given(profiles())
def test_what_the_profile_alone_rules_out_is_ruled_out_on_every_host_of_its_gpus(wish: profile.Profile) -> None:
    refused = state.check_profile(wish)
    assert all("; works: " in line for line in refused)
    for key in wish.gpus:
        assert resolve_or_none(dataclasses.replace(wish, gpus=(key,)), bare_snapshot(gpus=[key])) is None or not [
            line for line in state.check_profile(dataclasses.replace(wish, gpus=(key,)))
        ]


@quick
@given(profiles(), bare_hosts(), st.sampled_from(["bare", "installed", "loaded"]))
def test_steps_are_in_order_and_a_finished_host_has_none(
    wish: profile.Profile, bare: records.Snapshot, there: str
) -> None:
    wanted = resolve_or_none(wish, bare)
    if wanted is None:
        return
    here = bare if there == "bare" else with_driver(bare, wanted, loaded=there == "loaded")
    made = plan.make("h", wanted, checks.compare(wanted, here))
    order = [ORDER.index(step.role) for step in made.steps]
    assert order == sorted(set(order))
    assert order
    assert all(step.reasons and all(step.reasons) for step in made.steps)
    done = finished_snapshot(wanted, bare)
    assert plan.make("h", wanted, checks.compare(wanted, done)).steps == ()
    again = resolve_or_none(wish, done)
    if wish.tuning.power_limit_watts != "default" or isinstance(wish.tuning.clocks, records.ClockPair):
        return  # the device, once it can be asked, may refuse what the catalogue could not know
    assert again is not None
    assert dataclasses.replace(again, min_free_mib=wanted.min_free_mib) == wanted


@quick
@given(st.data())
def test_missing_readings_never_pass(data: st.DataObject) -> None:
    """Any set of readings of a finished host may be missing: no finding that needed one passes."""
    wanted = state.resolve(BASES["t4"], bare_snapshot())
    snapshot = finished_snapshot(wanted)
    groups = ("driver", "cuda", "cudnn", "codec", "kernel")
    group = data.draw(st.sampled_from(groups))
    part = getattr(snapshot, group)
    optional = [f.name for f in dataclasses.fields(part) if f.name not in NEVER_MISSING]
    chosen = data.draw(st.lists(st.sampled_from(optional), min_size=1, unique=True))
    missing = records.Missing(data.draw(st.sampled_from(REASONS)), "taken away")
    broken = dataclasses.replace(snapshot, **{group: dataclasses.replace(part, **dict.fromkeys(chosen, missing))})
    before = {f.key: f for f in checks.compare(wanted, snapshot)}
    after = {f.key: f for f in checks.compare(wanted, broken)}
    assert not any("taken away" in f.actual and f.status is records.Status.PASS for f in after.values())
    assert len([f for f in after.values() if f.status is records.Status.PASS]) < len(before) or set(chosen) <= UNREAD
    assert after.keys() == before.keys(), "a check vanished with its evidence"


# Those of the next boot's entry are in no older record: tests/unit/checks/test_nextboot.py has them.
NEVER_MISSING = {
    "boot", "module_next_boot_flavour", "module_fallback_version", "initramfs_stale",
    "runfile", "nouveau_loaded", "dkms", "running", "boot_id", "uptime_seconds",
}  # fmt: skip
UNREAD = {"headers_next_boot", "headers_available", "secure_boot", "header_path"}
