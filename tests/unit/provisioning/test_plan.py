"""Plans: golden files over OS, GPU and installed state, and what holds for every plan.

After a wanted change write the golden files anew and read the difference:

    GPUPREP_UPDATE_GOLDEN=1 pytest tests/unit/provisioning/test_plan.py && git diff tests/golden/plans
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable

import pytest
import yaml
from builders import (
    NEWER,
    bare_snapshot,
    finished_snapshot,
    good_probes,
    load,
    modprobe_file,
    resolved,
    with_driver,
    with_parts,
)
from places import COLLECTION, TESTS
from roletasks import roles_in_order

from gpuprep import catalogue, checks, records
from gpuprep.desired import state
from gpuprep.provisioning import plan

GOLDEN = TESTS / "golden" / "plans"
UPDATE = os.environ.get("GPUPREP_UPDATE_GOLDEN") == "1"

# Plans of the other systems are in tests/golden/systems.txt, in short.
OSES = tuple(key.replace("-", "") for key in catalogue.archives() if key.startswith("debian-"))
HOSTS = {"t4": ("t4",), "v100": ("v100",), "a100": ("a100",), "t4+t4": ("t4", "t4"), "t4+v100": ("t4", "v100")}

State = Callable[[records.Snapshot, state.Wanted], records.Snapshot]


def finished(bare: records.Snapshot, wanted: state.Wanted) -> records.Snapshot:
    return finished_snapshot(wanted, bare)


def not_rebooted(bare: records.Snapshot, wanted: state.Wanted) -> records.Snapshot:
    return with_driver(bare, wanted, loaded=False)


def driver_only(bare: records.Snapshot, wanted: state.Wanted) -> records.Snapshot:
    return with_driver(bare, wanted, loaded=True)


def kernel_updated(bare: records.Snapshot, wanted: state.Wanted) -> records.Snapshot:
    """A newer kernel was installed, DKMS did not build the driver for it, and the machine was not restarted."""
    done = finished(bare, wanted)
    newer = NEWER[wanted.os_key.replace("-", "")]
    return dataclasses.replace(
        done,
        kernel=dataclasses.replace(done.kernel, next_boot=newer, headers_next_boot=False),
        driver=dataclasses.replace(done.driver, module_next_boot_version=None),
    )


def kernel_updated_and_rebooted(bare: records.Snapshot, wanted: state.Wanted) -> records.Snapshot:
    """The same after the restart: the driver is gone."""
    done = finished(bare, wanted)
    newer = NEWER[wanted.os_key.replace("-", "")]
    gone = records.Missing("driver_not_loaded", "NVML: Driver Not Loaded")
    return dataclasses.replace(
        done,
        kernel=dataclasses.replace(
            done.kernel, running=newer, next_boot=newer, headers_running=False, boot_id="boot-2"
        ),
        driver=dataclasses.replace(
            done.driver,
            loaded_version=None,
            loaded_flavour=None,
            module_version=None,
            module_flavour=None,
            module_next_boot_version=None,
            nvml_version=gone,
            counters_restricted=None,
        ),
        gpus=gone,
        units={**done.units, "gpuprep-tune.service": records.UnitFacts("enabled", "failed")},
    )


def counters_restricted(bare: records.Snapshot, wanted: state.Wanted) -> records.Snapshot:
    done = finished(bare, wanted)
    restricted = modprobe_file(with_parts(wanted, tuning={"profiling_counters": "restricted"}))
    return dataclasses.replace(
        done,
        driver=dataclasses.replace(done.driver, counters_restricted=True),
        files={**done.files, "/etc/modprobe.d/gpuprep-nvidia.conf": restricted},
    )


def hold_missing(bare: records.Snapshot, wanted: state.Wanted) -> records.Snapshot:
    done = finished(bare, wanted)
    free = {name: records.Package(done.packages[name].version, False) for name in ("libcuda1", "nvidia-cuda-toolkit")}
    return dataclasses.replace(done, packages={**done.packages, **free})


def split_by_upgrade(bare: records.Snapshot, wanted: state.Wanted) -> records.Snapshot:
    """An automatic upgrade replaced the libraries under the loaded module."""
    done = finished(bare, wanted)
    other = f"{wanted.driver.version}.999.01"
    mismatch = records.Missing("version_mismatch", "NVML: Driver/library version mismatch")
    return dataclasses.replace(
        done,
        driver=dataclasses.replace(
            done.driver,
            module_version=other,
            module_next_boot_version=other,
            library_version=other,
            nvml_version=mismatch,
        ),
        gpus=mismatch,
    )


STATES: dict[str, State] = {
    "bare": lambda bare, _wanted: bare,
    "driver-not-rebooted": not_rebooted,
    "driver-only": driver_only,
    "finished": finished,
    "kernel-updated": kernel_updated,
    "kernel-updated-and-rebooted": kernel_updated_and_rebooted,
    "counters-restricted": counters_restricted,
    "hold-missing": hold_missing,
    "split-by-upgrade": split_by_upgrade,
}


def plan_of(host: str, os_name: str, there: str) -> tuple[state.Wanted, records.Plan]:
    models = HOSTS[host]
    bare = bare_snapshot(os_name, models)
    wanted = state.resolve(load(models[0], gpus=tuple(dict.fromkeys(models))), bare)
    return wanted, plan.make("gpu-1", wanted, checks.compare(wanted, STATES[there](bare, wanted)))


def text_of(made: records.Plan) -> str:
    lines = [f"plan of profile {made.profile} for {made.host}"]
    for number, step in enumerate(made.steps, 1):
        lines.append(f"{number}. {step.role}: {step.title}{' (may reboot)' if step.may_reboot else ''}")
        lines += [f"   - {reason}" for reason in step.reasons]
    lines += [] if made.steps else ["nothing to do"]
    lines += [f"note: {note}" for note in made.notes]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("there", STATES)
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("os_name", OSES)
def test_golden_plans(os_name: str, host: str, there: str) -> None:
    _, made = plan_of(host, os_name, there)
    path = GOLDEN / f"{os_name}-{host}-{there}.txt"
    if UPDATE:
        path.write_text(text_of(made), encoding="utf-8")
    assert text_of(made) == path.read_text(encoding="utf-8"), "see the top of this file for how to write it anew"


def test_no_golden_file_is_left_over() -> None:
    wanted = {f"{os_name}-{host}-{there}.txt" for os_name in OSES for host in HOSTS for there in STATES}
    assert {path.name for path in GOLDEN.iterdir()} == wanted


@pytest.mark.parametrize("there", STATES)
def test_only_a_finished_host_has_an_empty_plan(there: str) -> None:
    for host in HOSTS:
        _, made = plan_of(host, "debian13", there)
        assert (made.steps == ()) == (there == "finished")


def test_a_bare_host_gets_every_role_in_the_order_of_the_playbook() -> None:
    _, made = plan_of("t4", "debian13", "bare")
    without = ("gpu_preflight", "gpu_nccl", "gpu_containers")  # no shipped profile asks for the last two
    assert [step.role for step in made.steps] == [role for role in roles_in_order() if role not in without]


def test_unknown_leads_to_the_role() -> None:
    wanted = resolved()
    finding = records.Finding(
        "gpu 0", "clocks", records.Status.UNKNOWN, "max", "?", "it could not be read", role="gpu_tuning"
    )
    (step,) = plan.make("h", wanted, [finding]).steps
    assert (step.role, step.reasons, step.may_reboot) == ("gpu_tuning", ("it could not be read",), False)


def test_reasons_are_said_once_and_findings_without_a_role_are_notes() -> None:
    wanted = resolved()
    twice = records.Finding("a", "b", records.Status.FAIL, "1", "2", "the same", role="gpu_cuda")
    bare = records.Finding("a", "b", records.Status.FAIL, "1", "2", role="gpu_cuda")
    stray = records.Finding("kernel", "next_boot", records.Status.WARN, "1", "2", "a kernel waits")
    made = plan.make("h", wanted, [twice, twice, bare, stray])
    assert made.steps[0].reasons == ("the same", "a b: 2, wanted 1")
    assert made.notes[0] == "a kernel waits"


def test_tuning_restarts_for_ecc_only() -> None:
    wanted = state.resolve(load("t4", tuning={"ecc": "disabled"}), bare_snapshot())
    done = finished_snapshot(wanted)
    assert not isinstance(done.gpus, records.Missing)
    on = dataclasses.replace(done, gpus=(dataclasses.replace(done.gpus[0], ecc_current=True),))
    (step,) = plan.make("h", wanted, checks.compare(wanted, on)).steps
    assert (step.role, step.may_reboot) == ("gpu_tuning", True)


def test_probes_add_reasons() -> None:
    wanted = resolved()
    toolkit, codec = good_probes(wanted)
    assert not isinstance(toolkit.values, records.Missing)
    broken = dataclasses.replace(toolkit, values={**toolkit.values, "compiles": False})
    made = plan.make("h", wanted, checks.compare(wanted, finished_snapshot(wanted), (broken, codec)))
    assert [step.role for step in made.steps] == ["gpu_cuda"]


# ---------------------------------------------------------------- variables


def argument_specs() -> dict[str, set[str]]:
    """Variables each role that exists takes."""
    found = {}
    for path in sorted((COLLECTION / "roles").glob("*/meta/argument_specs.yml")):
        specs = yaml.safe_load(path.read_text())["argument_specs"]
        found[path.parent.parent.name] = set(specs["main"]["options"])
    return found


def test_every_variable_belongs_to_the_role_it_is_named_after() -> None:
    specs = argument_specs()
    assert specs
    for name in plan.role_variables(resolved()):
        role = next(role for role in specs if name.startswith(f"{role}_"))
        assert name in specs[role], f"{role} takes no {name}"


def test_variables_of_a_t4() -> None:
    variables = plan.role_variables(resolved())
    assert variables["gpu_driver_version"] == "550"
    assert variables["gpu_driver_flavour"] == "proprietary"
    assert variables["gpu_tuning_models"] == {"1eb8": {"memory_mhz": 5001, "graphics_mhz": 1590}}
    assert variables["gpu_cudnn_sha256"]["x86_64"].startswith("949452be")
    assert variables["gpu_codec_ffmpeg_url"] == "https://ffmpeg.org/releases/ffmpeg-7.1.5.tar.xz"
    assert "0ca1a0c85b149646fa6ce4d600584507fdccf5a23d58e668d8701e89cee0c3fb" in variables["gpu_codec_headers_sha256"]
    assert variables["gpu_codec_build_key"] == resolved().build_key


def test_variables_can_be_sent_as_json() -> None:
    for host in HOSTS:
        wanted, _ = plan_of(host, "debian12", "bare")
        variables = plan.role_variables(wanted)
        assert json.loads(json.dumps(variables)) == variables


def test_no_ffmpeg_needs_no_sources() -> None:
    wanted = state.resolve(load("t4", codec={"ffmpeg": "none"}), bare_snapshot())
    variables = plan.role_variables(wanted)
    assert variables["gpu_codec_ffmpeg_version"] == "none"
    assert "gpu_codec_ffmpeg_url" not in variables


def test_the_profile_says_how_long_a_restart_is_waited_for() -> None:
    """In the role it is 15 minutes, too: restart.yml."""
    wanted = state.resolve(load("t4"), bare_snapshot())
    longer = state.resolve(load("t4", driver={"reboot_minutes": 40}), bare_snapshot())
    name = "gpu_driver_reboot_timeout"
    assert [plan.role_variables(one)[name] for one in (wanted, longer)] == [900, 2400]
