"""What a profile cannot know: the host against its certified run and against the check before."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import builders
import pytest

from gpuprep import records
from gpuprep.checks import drift

PASS, WARN, FAIL, SKIP, UNKNOWN = (
    records.Status.PASS,
    records.Status.WARN,
    records.Status.FAIL,
    records.Status.SKIP,
    records.Status.UNKNOWN,
)
WANTED = builders.resolved("t4")
TWO = builders.resolved("a100", "debian12", ("a100", "a100"))
TUNE_UNIT = "/etc/systemd/system/gpuprep-tune.service"
LOADER_LIST = "/etc/ld.so.conf.d/gpuprep.conf"
SMI = "/usr/lib/nvidia/current/nvidia-smi"
BLOCKED = ("blacklist", "nvidia")
Change = Callable[[records.Snapshot], records.Snapshot]


def whole(wanted: Any = WANTED) -> records.Snapshot:
    """A finished host of which everything is known that drift compares."""
    made = builders.finished_snapshot(wanted)
    assert not isinstance(made.gpus, records.Missing)
    gpus = tuple(
        dataclasses.replace(
            gpu,
            serial=f"13201{gpu.index}",
            vbios="90.04.38.00.03",
            pcie=records.PcieLink(1, 16, 3, 16, 3, 0),
            throttled=records.Throttled(0.0, 0.0, 0.0, 0.0, 0.0),
        )
        for gpu in made.gpus
    )
    options = records.ModprobeLine(
        "/etc/modprobe.d/gpuprep-nvidia.conf", ("options", "nvidia", "NVreg_RestrictProfilingToAdminUsers=0")
    )
    return dataclasses.replace(
        made,
        gpus=gpus,
        modprobe=(options, records.ModprobeLine("/etc/modprobe.d/gpuprep-nouveau.conf", ("blacklist", "nouveau"))),
        apt=records.AptFacts(tuple(f"^{name}$" for name in (*wanted.driver.packages, *wanted.cuda.packages)), ()),
        digests={SMI: "a1", "/usr/bin/nvcc": "b2"},
        units={
            **made.units,
            "gpuprep-tune.service": records.UnitFacts("enabled", "active", (TUNE_UNIT,), "gpuprep-agent tune"),
        },
        files={
            **made.files,
            TUNE_UNIT: "[Service]\nType=oneshot\n",
            LOADER_LIST: "/opt/gpuprep/cudnn/current/lib\n",
            "/etc/ld.so.preload": None,
        },
    )


def record(snapshot: records.Snapshot, run_id: str = "20261101-100000-0000") -> records.RunRecord:
    at = "2026-11-01T10:00:00+00:00"
    return records.RunRecord(run_id, "validate", "gpu-1", at, at, records.Source.SIMULATED, 0, "0.1.0", after=snapshot)


def since(
    now: records.Snapshot,
    certified: records.Snapshot | None = None,
    previous: records.Snapshot | None = None,
    wanted: Any = WANTED,
) -> dict[str, records.Finding]:
    """What drift finds that is no PASS, by key; profile and past together."""
    past = drift.Past(record(certified) if certified else None, record(previous, "20261102-0") if previous else None)
    found = drift.findings(wanted, now, past)
    assert len({finding.key for finding in found}) == len(found)
    return {finding.key: finding for finding in found if finding.status is not PASS}


def grave(found: dict[str, records.Finding]) -> dict[str, records.Finding]:
    return {key: finding for key, finding in found.items() if finding.status is not SKIP}


def gpu(index: int = 0, **values: Any) -> Change:
    def change(snapshot: records.Snapshot) -> records.Snapshot:
        assert not isinstance(snapshot.gpus, records.Missing)
        gpus = list(snapshot.gpus)
        gpus[index] = dataclasses.replace(gpus[index], **values)
        return dataclasses.replace(snapshot, gpus=tuple(gpus))

    return change


def put(field: str, key: Any, value: Any) -> Change:
    def change(snapshot: records.Snapshot) -> records.Snapshot:
        fields: dict[str, Any] = {field: {**getattr(snapshot, field), key: value}}
        return dataclasses.replace(snapshot, **fields)

    return change


def apt(**values: Any) -> Change:
    def change(snapshot: records.Snapshot) -> records.Snapshot:
        assert isinstance(snapshot.apt, records.AptFacts)
        return dataclasses.replace(snapshot, apt=dataclasses.replace(snapshot.apt, **values))

    return change


def modprobe(*words: str) -> Change:
    """One more line in the modprobe configuration."""

    def change(snapshot: records.Snapshot) -> records.Snapshot:
        assert isinstance(snapshot.modprobe, tuple)
        return dataclasses.replace(snapshot, modprobe=(*snapshot.modprobe, records.ModprobeLine("f", words)))

    return change


def replace(**values: Any) -> Change:
    return lambda snapshot: dataclasses.replace(snapshot, **values)


def test_an_undisturbed_host_has_nothing_to_say_and_a_line_for_each_thing_compared() -> None:
    now = whole()
    past = drift.Past(record(now), record(now, "20261102-0"))
    found = drift.findings(WANTED, now, past)
    assert {finding.status for finding in found} == {PASS}
    keys = {finding.key for finding in found}
    assert keys >= {
        "gpus.identity", "gpus.order", "gpu 0.as_certified", "host.system", "kernel.running", "driver.package_versions",
        "cuda.package_versions", "libraries.paths", "libraries.contents", "files.managed", "units.definition",
        "shells.tools", "driver.module_options", "apt.pins_certified", "gpu 0.since_last_check",
    }  # fmt: skip
    (identity,) = [finding for finding in found if finding.key == "gpus.identity"]
    assert "20261101-100000-0000 at 2026-11-01T10:00:00+00:00" in identity.reason


def test_the_first_check_of_a_host_says_what_it_could_not_compare_and_passes() -> None:
    found = since(whole())
    assert set(found) == {"host.since_certified", "host.since_last_check"}
    assert all(finding.status is SKIP and finding.reason for finding in found.values())


CHANGES: dict[str, tuple[Change, str, records.Status]] = {
    "another board": (gpu(uuid="GPU-x", serial="1"), "gpus.identity", FAIL),
    "another VBIOS": (gpu(vbios="90.04.38.00.FF"), "gpu 0.vbios", FAIL),
    "another serial number": (gpu(serial="2"), "gpu 0.serial", FAIL),
    "fewer lanes": (gpu(pcie=records.PcieLink(1, 8, 3, 16, 3, 0)), "gpu 0.pcie", FAIL),
    "a narrower slot": (gpu(pcie=records.PcieLink(1, 8, 3, 8, 3, 0)), "gpu 0.pcie", FAIL),
    "a slower slot": (gpu(pcie=records.PcieLink(1, 16, 2, 16, 3, 0)), "gpu 0.pcie", FAIL),
    "ECC off": (gpu(ecc_current=False, ecc_pending=False), "gpu 0.ecc_mode", FAIL),
    "pages retired": (gpu(retired_pages=records.RetiredPages(1, 1, False)), "gpu 0.memory_defects", FAIL),
    "VBIOS not readable": (gpu(vbios=records.Missing("command_failed", "no")), "gpu 0.vbios", UNKNOWN),
    "link not readable": (gpu(pcie=records.Missing("command_failed", "no")), "gpu 0.pcie_errors", UNKNOWN),
    "throttling not readable": (gpu(throttled=records.Missing("command_failed", "no")), "gpu 0.held_down", UNKNOWN),
    "another place": (gpu(pci_address="0000:00:05.0"), "gpus.order", FAIL),
    "a patched driver": (
        put("packages", "libcuda1", records.Package("550.163.01-9", True)), "driver.package_versions", FAIL,
    ),
    "a patched toolkit": (
        put("packages", "nvidia-cuda-toolkit", records.Package("12.4.131-9", True)), "cuda.package_versions", FAIL,
    ),
    "a changed library": (put("digests", SMI, "a2"), "libraries.contents", FAIL),
    "a program that is gone": (replace(digests={"/usr/bin/nvcc": "b2"}), "libraries.contents", FAIL),
    "digests not readable": (replace(digests=records.Missing("no_permission", "no")), "libraries.contents", UNKNOWN),
    "another library": (
        put("libraries", "libnvcuvid.so.1", "/opt/mine/libnvcuvid.so.1"), "libraries.paths", FAIL,
    ),
    "an edited unit": (put("files", TUNE_UNIT, "[Service]\nType=simple\n"), "files.managed", FAIL),
    "a preloaded library": (put("files", "/etc/ld.so.preload", "/opt/mine.so\n"), "files.managed", FAIL),
    "a drop-in": (
        put(
            "units", "gpuprep-tune.service",
            records.UnitFacts("enabled", "active", (TUNE_UNIT, "/etc/zz.conf"), "/bin/true"),
        ),
        "units.definition", FAIL,
    ),
    "another command": (
        put("units", "gpuprep-tune.service", records.UnitFacts("enabled", "active", (TUNE_UNIT,), "/bin/true")),
        "units.definition", FAIL,
    ),
    "a new module option": (
        modprobe("options", "nvidia", "NVreg_X=1"),
        "driver.module_options", FAIL,
    ),
    "a blocked module": (
        modprobe(*BLOCKED),
        "driver.module_allowed", FAIL,
    ),
    "an overridden option": (
        modprobe("options", "nvidia_current", "NVreg_RestrictProfilingToAdminUsers=1"),
        "driver.modprobe_options", FAIL,
    ),
    "a pin": (
        apt(pins=(records.AptPin("f", "libcuda1", "release a=sid", "990"),)),
        "apt.pins_certified", FAIL,
    ),
    "a pin to another version": (
        apt(pins=(records.AptPin("f", "/cuda/", "version 535.*", "1001"),)),
        "apt.pins", FAIL,
    ),
    "a malformed pin": (
        apt(malformed=("f: no Pin",)),
        "apt.preferences", FAIL,
    ),
    "a pin without effect": (
        apt(passed_over=("f.txt: why",)),
        "apt.preferences", WARN,
    ),
    "an emptied blacklist": (
        apt(blacklist=()),
        "driver.unattended_upgrades", FAIL,
    ),
    "changed cuDNN": (
        lambda s: dataclasses.replace(s, cudnn=dataclasses.replace(s.cudnn, manifest_intact=False)),
        "cudnn.files", FAIL,
    ),
    "changed headers": (
        lambda s: dataclasses.replace(s, codec=dataclasses.replace(s.codec, headers_intact=False)),
        "nv-codec-headers.files", FAIL,
    ),
    "another kernel": (
        lambda s: dataclasses.replace(
            s,
            kernel=dataclasses.replace(s.kernel, running="6.12.999", next_boot="6.12.999"),
            driver=dataclasses.replace(s.driver, dkms=(dataclasses.replace(s.driver.dkms[0], kernel="6.12.999"),)),
        ),
        "kernel.running", WARN,
    ),
    "another system": (
        lambda s: dataclasses.replace(s, os=dataclasses.replace(s.os, version_id="14", pretty_name="Debian 14")),
        "host.system", FAIL,
    ),
}  # fmt: skip


# What is no change: without ECC the board lacks what it ships with, whatever it was certified with.
BESIDE = {"ECC off": {"gpu 0.memory_protection": WARN}}


@pytest.mark.parametrize("what", CHANGES)
def test_each_change_is_one_finding(what: str) -> None:
    change, key, status = CHANGES[what]
    certified = whole()
    found = grave(since(change(certified), certified, certified))
    assert {k: f.status for k, f in found.items()} == {key: status, **BESIDE.get(what, {})}
    assert found[key].reason
    assert found[key].remedy or status is UNKNOWN


FRAME = ("#", "//", "[", "};")  # comments, and what only frames the lines between


@pytest.mark.parametrize("name", ["t4", "a100", "h100"])
def test_each_part_of_each_file_that_gpuprep_writes_is_missed(name: str) -> None:
    """The CUDA block of 52gpuprep-holds was gone, and drift passed. Also files that are not there."""
    wanted = builders.resolved(name)
    certified = whole(wanted)
    texts = {path: text for path, text in certified.files.items() if isinstance(text, str)}
    assert len(texts) > 10
    for path, text in texts.items():
        lines = text.splitlines(keepends=True)
        told = [at for at, line in enumerate(lines) if line.strip() and not line.strip().startswith(FRAME)]
        for left in (None, *("".join(lines[:at] + lines[at + 1 :]) for at in told)):
            found = grave(since(put("files", path, left)(certified), certified, certified, wanted))
            assert found, f"{path} is {left!r}, and nothing misses it"
            assert all(one.role or one.remedy for one in found.values()), path


def test_what_the_profile_names_already_is_not_said_twice() -> None:
    certified = whole()
    now = put("packages", "libcuda1", records.Package("535.1-1", True))(certified)
    now = dataclasses.replace(now, driver=dataclasses.replace(now.driver, module_version="535.1"))
    found = since(now, certified, certified)
    assert found["driver.version"].status is FAIL
    assert found["driver.package_versions"].status is SKIP
    assert "driver.version reports it:  libcuda1 was 550" in found["driver.package_versions"].reason


def test_another_version_of_a_package_brings_other_files_and_one_finding() -> None:
    certified = whole()
    now = put("packages", "libcuda1", records.Package("550.163.01-9", True))(certified)
    now = put("libraries", "libcuda.so.1", "/usr/lib/x86_64-linux-gnu/libcuda.so.550.999")(now)
    now = put("packages", "nvidia-smi", records.Package("550.163.01-9", True))(put("digests", SMI, "a2")(now))
    assert set(grave(since(now, certified, certified))) == {"driver.package_versions"}


# ---------------------------------------------------------------- one finding silences no other difference

PIN = records.AptPin("/etc/apt/preferences.d/sid", "libcuda1", "release a=sid", "990")
NVCUVID = records.Package("550.163.01-9", True)
DROP_IN = "/etc/systemd/system/nvidia-persistenced.service.d/zz.conf"
ETC_ENVIRONMENT = "/etc/environment"


def shell(way: str, tool: str, path: records.OptStr) -> Change:
    def change(snapshot: records.Snapshot) -> records.Snapshot:
        values: dict[str, Any] = {way: {**getattr(snapshot.shells, way), tool: path}}
        return dataclasses.replace(snapshot, shells=dataclasses.replace(snapshot.shells, **values))

    return change


def freed(snapshot: records.Snapshot) -> records.Snapshot:
    """The hold of the toolkit is gone."""
    return put(
        "packages", "nvidia-cuda-toolkit",
        dataclasses.replace(snapshot.packages["nvidia-cuda-toolkit"], held=False),
    )(snapshot)  # fmt: skip


def no_nvcc(snapshot: records.Snapshot) -> records.Snapshot:
    gone = dataclasses.replace(snapshot.cuda, nvcc_path=None, nvcc_version=None)
    for way in ("login_shell", "non_login_shell", "systemd_service"):
        snapshot = shell(way, "nvcc", None)(snapshot)
    return dataclasses.replace(snapshot, cuda=gone, digests={SMI: "a1"})


def persistenced(enabled: str, *files: str, command: str = "") -> Change:
    return put("units", "nvidia-persistenced.service", records.UnitFacts(enabled, "active", files, command))


def loader_list(snapshot: records.Snapshot) -> records.Snapshot:
    """cuDNN is not found, and where it was listed there is nothing."""
    nothing = dataclasses.replace(snapshot.cudnn, library_path=None)
    return put("files", LOADER_LIST, None)(dataclasses.replace(snapshot, cudnn=nothing))


BOTH: dict[str, tuple[list[Change], set[str]]] = {
    "a stray file and a pin": (
        [apt(passed_over=("/etc/apt/preferences.d/notes.txt: why",), pins=(PIN,))],
        {"apt.preferences", "apt.pins_certified"},
    ),
    "a malformed pin and another one": (
        [apt(malformed=("/etc/apt/preferences: why",), pins=(PIN,))],
        {"apt.preferences", "apt.pins_certified"},
    ),
    "a pin that moves a version and another one": (
        [apt(pins=(records.AptPin("f", "/cuda/", "version 535.*", "1001"), PIN))],
        {"apt.pins", "apt.pins_certified"},
    ),
    "no hold and another nvcc": (
        [freed, shell("non_login_shell", "nvcc", "/opt/other/bin/nvcc")],
        {"cuda.held", "shells.tools"},
    ),
    "no nvcc for one way and another one for the other": (
        [shell("login_shell", "nvcc", None), shell("non_login_shell", "nvcc", "/opt/other/bin/nvcc")],
        {"login_shell.nvcc", "shells.tools"},
    ),
    "a package of the driver and nvidia-smi": (
        [put("packages", "libnvcuvid1", NVCUVID), put("digests", SMI, "a2")],
        {"driver.package_versions", "libraries.contents"},
    ),
    "a package of the driver and another one's library": (
        [put("packages", "libnvcuvid1", NVCUVID), put("libraries", "libcuda.so.1", "/opt/mine/libcuda.so.1")],
        {"driver.package_versions", "libraries.paths"},
    ),
    "a package of the driver and its library elsewhere": (
        [put("packages", "libnvcuvid1", NVCUVID), put("libraries", "libnvcuvid.so.1", "/opt/mine/libnvcuvid.so.1")],
        {"driver.package_versions", "libraries.paths"},
    ),
    "an older module and one package": (
        [
            lambda s: dataclasses.replace(s, driver=dataclasses.replace(s.driver, module_version=None)),
            put("packages", "libnvcuvid1", NVCUVID),
        ],
        {"driver.version", "driver.package_versions"},
    ),
    "an unset option and another one": (
        [
            modprobe("options", "nvidia", "NVreg_RestrictProfilingToAdminUsers=1"),
            modprobe("options", "nvidia", "NVreg_X=1"),
        ],
        {"driver.modprobe_options", "driver.module_options"},
    ),
    "a disabled unit and an edited one": (
        [
            put(
                "units", "gpuprep-tune.service",
                records.UnitFacts("disabled", "active", (TUNE_UNIT,), "gpuprep-agent tune"),
            ),
            put("files", TUNE_UNIT, "[Service]\nType=simple\n"),
        ],
        {"gpuprep-tune.enabled", "files.managed"},
    ),
    "no hold and an edited list of the loader": (
        [freed, put("files", LOADER_LIST, "/opt/mine\n")],
        {"cuda.held", "files.managed"},
    ),
    "no PATH and a preloaded library": (
        [put("files", ETC_ENVIRONMENT, "LD_PRELOAD=/opt/mine.so\n")],
        {"non_login_shell.environment", "files.managed"},
    ),
    "fewer lanes, less in the slot not readable": (
        [gpu(pcie=records.PcieLink(1, 8, records.Missing("command_failed", "no"), 16, 3, 0))],
        {"gpu 0.pcie"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", BOTH)
def test_a_finding_silences_no_other_difference(what: str) -> None:
    changes, keys = BOTH[what]
    certified = now = whole()
    for change in changes:
        now = change(now)
    found = grave(since(now, certified, certified))
    assert keys <= set(found)
    assert found[sorted(keys & {key for key in found if key not in BY_PROFILE})[0]].status is FAIL
    assert set(found) - keys <= FOLLOWS


BY_PROFILE = {
    "apt.preferences", "apt.pins", "cuda.held", "login_shell.nvcc", "driver.version", "driver.modprobe_options",
    "gpuprep-tune.enabled", "non_login_shell.environment",
}  # fmt: skip
# What the profile's own checks say besides.
FOLLOWS = {"driver.dkms", "driver.loaded", "driver.library_version", "driver.nvml_version", "driver.next_boot_module"}


ONE: dict[str, tuple[list[Change], set[str]]] = {
    "a pin that apt cannot read any more": (
        [apt(malformed=(f"{PIN.file}: the stanza at line 1 has no Pin",), pins=())], {"apt.preferences"},
    ),
    "no nvcc": ([no_nvcc], {"cuda.version"}),
    "no nvcc for one way": ([shell("login_shell", "nvcc", None)], {"login_shell.nvcc"}),
    "a masked unit": ([persistenced("masked", "/etc/systemd/x")], {"nvidia-persistenced.enabled"}),
    "a drop-in of the mode": (
        [persistenced("enabled", "u", DROP_IN, command="d --no-persistence-mode")],
        {"nvidia-persistenced.mode_at_boot"},
    ),
    "no PATH": ([put("files", ETC_ENVIRONMENT, "CUDA_HOME=/usr/lib/cuda\n")], {"non_login_shell.environment"}),
    "no profile": ([put("files", "/etc/profile.d/gpuprep.sh", None)], {"login_shell.environment"}),
    "no list of the loader": ([loader_list], {"cudnn.library"}),
    "no tuning unit": (
        [
            put("files", TUNE_UNIT, None),
            put("units", "gpuprep-tune.service", records.UnitFacts("not-found", "inactive")),
        ],
        {"gpuprep-tune.enabled"},
    ),
    "no encoder": ([put("libraries", "libnvidia-encode.so.1", None)], {"libnvidia-encode.so.1.loader"}),
    "an older library first": (
        [put("libraries", "libcudart.so.12", "/opt/mine/libcudart.so.12")], {"cuda.libraries"},
    ),
    "the options gone": (
        [
            replace(modprobe=(records.ModprobeLine("f", ("blacklist", "nouveau")),)),
            put("files", "/etc/modprobe.d/gpuprep-nvidia.conf", None),
        ],
        {"driver.modprobe_options"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", ONE)
def test_what_the_profile_names_stays_one_finding(what: str) -> None:
    changes, keys = ONE[what]
    certified = persistenced("enabled", "u", command="d")(apt(pins=(PIN,))(whole()))
    now = certified
    for change in changes:
        now = change(now)
    found = since(now, certified, certified)
    assert set(grave(found)) == keys
    (key,) = keys
    assert any(f"{key} reports it:  " in finding.reason for finding in found.values() if finding.status is SKIP)


def with_finding(old: records.RunRecord, key: str, status: records.Status) -> records.RunRecord:
    subject, _, prop = key.rpartition(".")
    return dataclasses.replace(old, findings=(records.Finding(subject, prop, status, "", ""),))


@pytest.mark.parametrize(
    ("then", "now"),
    [
        (PASS, SKIP),
        (records.Status.WAIVED, FAIL),
        (WARN, FAIL),
        (FAIL, FAIL),
    ],
)
def test_what_did_not_pass_when_certified_silences_nothing(then: records.Status, now: records.Status) -> None:
    certified = whole()
    old = with_finding(record(certified), "login_shell.nvcc", then)
    found = drift.findings(WANTED, shell("login_shell", "nvcc", None)(certified), drift.Past(old, record(certified)))
    assert [one.status for one in found if one.key == "shells.tools"] == [now]


def test_memory_errors_after_waived_ones_are_said() -> None:
    before = gpu(ecc_errors=records.EccErrors(0, 2, 0, 2))(whole())
    now = gpu(ecc_errors=records.EccErrors(0, 5, 0, 5))(before)
    old = with_finding(record(before), "gpu 0.ecc_errors", records.Status.WAIVED)
    found = {one.key: one for one in drift.findings(WANTED, now, drift.Past(record(whole()), old))}
    assert found["gpu 0.uncorrected_errors"].status is FAIL
    assert "3 more uncorrected memory errors" in found["gpu 0.uncorrected_errors"].actual


def test_the_hardwares_heat_is_said_though_the_driver_holds_it_back_now() -> None:
    before = whole()
    now = gpu(event_reasons=0x20, throttled=records.Throttled(0.0, 0.0, 0.0, 8.0, 0.0))(before)
    found = grave(since(now, before, before))
    assert {key: one.status for key, one in found.items()} == {
        "gpu 0.slowdown_now": WARN, "gpu 0.throttled": FAIL,
    }  # fmt: skip


def test_an_nvcc_that_leads_elsewhere_is_found() -> None:
    """/usr/bin/nvcc is still the one that is found, and is a link to another file."""
    certified = whole()
    found = grave(since(dataclasses.replace(certified, digests={SMI: "a1", "/opt/x/nvcc": "b3"}), certified, certified))
    assert set(found) == {"libraries.contents"}


@pytest.mark.parametrize("now", ["", "c2"], ids=["gone", "another"])
def test_a_module_comes_back_as_dkms_built_it_and_is_not_built_again(now: str) -> None:
    certified = whole()
    built = certified.driver.dkms[0]
    path = f"/usr/lib/modules/{built.kernel}/updates/dkms/nvidia-current.ko"
    was = dataclasses.replace(certified, digests={path: "c1"}, owners={path: None})
    changed = dataclasses.replace(was, digests={path: now} if now else {})
    remedy = grave(since(changed, was, was))["libraries.contents"].remedy
    of = f"{built.module}/{built.version} -k {built.kernel}"
    assert remedy.startswith(f"`sudo dkms uninstall {of}`, then `sudo dkms install {of}`")
    assert "`gpuprep baseline set" in remedy


# ---------------------------------------------------------------- what differs and what cannot be read

TORN = records.Missing("command_failed", "Input/output error")
UNREAD: dict[str, tuple[Change, Change, str, str]] = {
    "contents": (put("digests", "/usr/bin/nvcc", TORN), put("digests", SMI, "a2"), "libraries.contents", "nvcc"),
    "paths": (
        put("libraries", "libcublas.so.12", TORN), put("libraries", "libnvcuvid.so.1", "/opt/mine/libnvcuvid.so.1"),
        "libraries.paths", "where the loader finds libcublas.so.12",
    ),
    "files": (
        put("files", "/etc/ld.so.preload", TORN), put("files", TUNE_UNIT, "[Service]\nType=simple\n"),
        "files.managed", "/etc/ld.so.preload",
    ),
    "tools": (
        shell("login_shell", "ffmpeg", TORN),
        shell("systemd_service", "nvcc", "/opt/other/bin/nvcc"), "shells.tools", "which ffmpeg a login shell finds",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", UNREAD)
def test_what_cannot_be_read_throws_no_difference_away(what: str) -> None:
    torn, other, key, named = UNREAD[what]
    certified = whole()
    alone = since(torn(certified), certified, certified)
    assert alone[key].status in (UNKNOWN, SKIP)
    both = since(other(torn(certified)), certified, certified)
    assert both[key].status is FAIL
    assert both[key].actual == since(other(certified), certified, certified)[key].actual
    assert f"{named} could not be read: the program that shows it failed" in both[key].reason


def test_text_that_means_nothing_is_no_change() -> None:
    certified = whole()
    now = put("files", TUNE_UNIT, "# note\n[Service]\n\n  Type=oneshot\n")(certified)
    now = put("files", "/etc/environment", certified.files["/etc/environment"] + "EDITOR=vi\n")(now)  # type: ignore[operator]
    assert since(now, certified, certified) == {}


def test_a_record_of_an_older_gpuprep_is_compared_as_far_as_it_goes() -> None:
    now = whole()
    old = dataclasses.replace(
        now, digests=records.NOT_READ, apt=records.NOT_READ, modprobe=records.NOT_READ,
        units={name: records.UnitFacts(unit.enabled, unit.active) for name, unit in now.units.items()},
        files={path: text for path, text in now.files.items() if path != "/etc/ld.so.preload"},
    )  # fmt: skip
    found = since(now, old, old)
    assert {finding.status for finding in found.values()} == {SKIP}
    assert set(found) == {"libraries.contents", "apt.pins_certified", "driver.module_options", "units.definition"}


# ---------------------------------------------------------------- two GPUs


def renumbered(gpus: list[records.GpuFacts]) -> tuple[records.GpuFacts, ...]:
    return tuple(dataclasses.replace(one, index=index) for index, one in enumerate(gpus))


def test_another_order_is_named_once() -> None:
    certified = whole(TWO)
    assert not isinstance(certified.gpus, records.Missing)
    now = dataclasses.replace(certified, gpus=renumbered([certified.gpus[1], certified.gpus[0]]))
    found = grave(since(now, certified, certified, TWO))
    assert set(found) == {"gpus.order"}
    assert "GPU-0 was gpu 0 at 0000:00:1e.0, is gpu 1 at 0000:00:1e.0" in found["gpus.order"].actual


@pytest.mark.parametrize("gone", [0, 1])
def test_a_gpu_that_is_gone_is_named_and_the_others_are_not(gone: int) -> None:
    certified = whole(TWO)
    assert not isinstance(certified.gpus, records.Missing)
    left = renumbered([one for one in certified.gpus if one.index != gone])
    bus = tuple(device for device in certified.pci_gpus if device.address != certified.gpus[gone].pci_address)
    now = dataclasses.replace(certified, gpus=left, pci_gpus=bus)
    found = grave(since(now, certified, certified, TWO))
    assert set(found) == {"gpus.identity"}
    assert f"GPU-{gone}, serial 13201{gone}" in found["gpus.identity"].actual
    assert "is not there" in found["gpus.identity"].actual


def test_instances_are_compared_with_the_certified_ones_where_the_profile_does_not_ask_for_any() -> None:
    def cut(*profiles: str) -> records.Snapshot:
        parts = tuple(records.MigDevice(name, f"MIG-{name}", 14, 4864) for name in profiles)
        return gpu(mig_current=True, mig_pending=True, mig_devices=parts)(whole())

    was, now = cut("3g.20gb", "1g.5gb"), cut("3g.20gb")
    found = since(now, was, was)["gpu 0.mig_certified"]
    assert (found.status, found.actual) == (
        FAIL, "the MIG layout of gpu 0 was 1 x 3g.20gb, 1 x 1g.5gb, is 1 x 3g.20gb",
    )  # fmt: skip
    assert "gpu 0.mig_certified" not in since(was, was, was)
    wish = builders.with_parts(WANTED, tuning={"mig": {"3g.20gb": 1}})
    assert "gpu 0.mig_certified" not in since(now, was, was, wish)


@pytest.mark.parametrize("on", [True, False])
def test_ecc_is_set_back_to_what_was_certified(on: bool) -> None:
    was = gpu(ecc_current=on, ecc_pending=on)(whole())
    found = since(gpu(ecc_current=not on, ecc_pending=not on)(was), was, was)["gpu 0.ecc_mode"]
    assert found.remedy.startswith(f"`sudo nvidia-smi -i 0 -e {int(on)}`, then reboot")


def test_a_gpu_that_the_driver_no_longer_shows_is_gpus_counts_to_say() -> None:
    certified = whole(TWO)
    assert not isinstance(certified.gpus, records.Missing)
    found = since(dataclasses.replace(certified, gpus=certified.gpus[:1]), certified, certified, TWO)
    assert set(grave(found)) == {"gpus.count"}
    assert "GPU-1" in found["gpus.identity"].reason


def test_the_only_gpu_gone_from_the_bus_is_named() -> None:
    certified = whole()
    now = dataclasses.replace(certified, gpus=(), pci_gpus=())
    found = grave(since(now, certified, certified))
    assert set(found) == {"gpus.identity"}
    silent = dataclasses.replace(certified, gpus=builders.NO_DRIVER, pci_gpus=())
    (named,) = [
        f for f in drift.findings(WANTED, silent, drift.Past(record(certified), None)) if f.key == "gpus.identity"
    ]
    assert named.status is FAIL
    assert "not on the PCI bus any more" in named.actual


def test_a_lost_gpu_is_not_called_swapped() -> None:
    certified = whole(TWO)
    lost = records.Missing("gpu_is_lost", "NVML: GPU is lost")
    now = gpu(1, uuid="", serial=lost, event_reasons=lost, pci_address="", vbios=lost, pcie=lost)(certified)
    assert not any(key.startswith("gpus.") for key in grave(since(now, certified, certified, TWO)))


# ---------------------------------------------------------------- since the last check


@pytest.mark.parametrize(
    ("was", "now", "same_boot", "told"),
    [
        (3, 5, True, "nothing new (2 PCIe packets sent again)"), (5, 5, True, "nothing new"),
        (5, 2, True, "nothing new (2 PCIe packets sent again)"),
        (5, 7, False, "nothing new (7 PCIe packets sent again)"),
        (records.NOT_READ, 1, True, "nothing new"), (1, records.NOT_READ, True, "nothing new"),
    ],
)  # fmt: skip
def test_a_smaller_counter_began_again_and_never_counts_backwards(
    was: Any, now: Any, same_boot: bool, told: str
) -> None:
    before, after = linked(was, 1), linked(now, 2)
    if not same_boot:
        after = dataclasses.replace(after, kernel=dataclasses.replace(after.kernel, boot_id="boot-2"))
    findings = drift.findings(WANTED, after, drift.Past(record(after), record(before)))
    (line,) = [one for one in findings if one.key == "gpu 0.since_last_check"]
    assert line.actual == told


COUNTED: dict[str, tuple[dict[str, Any], str, records.Status]] = {
    "corrected": ({"ecc_errors": records.EccErrors(2, 0, 2, 0)}, "gpu 0.corrected_errors", WARN),
    "uncorrected before a reset": (
        {"ecc_errors": records.EccErrors(0, 0, 0, 1)},
        "gpu 0.uncorrected_errors",
        FAIL,
    ),
    "replays": ({"pcie": records.PcieLink(1, 16, 3, 16, 3, 9)}, "gpu 0.pcie_replays", WARN),
    "hardware's heat": (
        {"throttled": records.Throttled(0.0, 0.0, 0.0, 8.0, 0.0)},
        "gpu 0.throttled",
        FAIL,
    ),
    "power brake": ({"throttled": records.Throttled(0.0, 0.0, 9.0, 0.0, 8.0)}, "gpu 0.throttled", FAIL),
    "driver's heat": (
        {"throttled": records.Throttled(0.0, 0.0, 8.0, 0.0, 0.0)},
        "gpu 0.throttled",
        WARN,
    ),
}


@pytest.mark.parametrize("what", COUNTED)
def test_what_was_counted_since_the_last_check(what: str) -> None:
    values, key, status = COUNTED[what]
    before = whole()
    found = grave(since(gpu(**values)(before), before, before))
    assert {k: f.status for k, f in found.items()} == {key: status}
    assert since(gpu(**values)(before), before, gpu(**values)(before)) == {}, "the next check has nothing new to say"


@pytest.mark.parametrize(
    ("was", "now", "days", "said"),
    [(14, 16, 6, True), (14, 16, 8, False), (15, 16, 6, False), (13, 15, 6, False), (20, 40, 1, True)],
)
def test_two_more_retired_pages_within_a_week(was: int, now: int, days: int, said: bool) -> None:
    """DCGM's rule for a board with more than fifteen of them."""
    after = dataclasses.replace(gpu(retired_pages=records.RetiredPages(0, now, False))(whole()), taken_at=day(1 + days))
    before = dataclasses.replace(gpu(retired_pages=records.RetiredPages(0, was, False))(whole()), taken_at=day(1))
    found = grave(since(after, after, before))
    assert {key: finding.status for key, finding in found.items()} == ({"gpu 0.pages_retired": FAIL} if said else {})


def test_a_few_packets_a_night_are_normal_life_of_a_link() -> None:
    before = linked(7, 1)
    quiet, ill = linked(5007, 2), linked(12007, 2)
    assert grave(since(quiet, quiet, before)) == {}
    findings = drift.findings(WANTED, quiet, drift.Past(record(quiet), record(before)))
    (line,) = [one for one in findings if one.key == "gpu 0.since_last_check"]
    assert line.actual == "nothing new (5000 PCIe packets sent again)"
    assert "8 a minute" in grave(since(ill, ill, before))["gpu 0.pcie_replays"].reason


def linked(replays: Any, of_day: int) -> records.Snapshot:
    """Up for a month: over that time the packets are few."""
    now = gpu(pcie=records.PcieLink(1, 16, 3, 16, 3, replays))(whole())
    kernel = dataclasses.replace(now.kernel, uptime_seconds=30 * 86400.0)
    return dataclasses.replace(now, kernel=kernel, taken_at=day(of_day))


def day(number: int) -> str:
    return f"2026-11-{number:02}T02:30:00+00:00"


def test_the_power_cap_and_a_moment_of_heat_are_normal_life() -> None:
    before = whole()
    now = gpu(throttled=records.Throttled(3600.0, 0.0, 0.9, 0.0, 0.0))(before)
    (line,) = [
        f
        for f in drift.findings(WANTED, now, drift.Past(record(before), record(before)))
        if f.key == "gpu 0.since_last_check"
    ]
    assert line.status is PASS
    assert line.actual == "nothing new (power cap 3600 s)"


def test_errors_that_health_reports_are_not_said_twice() -> None:
    before = whole()
    now = gpu(ecc_errors=records.EccErrors(1, 2, 1, 2))(before)
    assert set(grave(since(now, before, before))) == {"gpu 0.ecc_errors"}


def test_thirty_nights_of_an_undisturbed_host_are_silent() -> None:
    """Reboots, uptime, work of other programs and what apt does by day are no change."""
    certified = whole()
    before: records.Snapshot | None = None
    for night in range(1, 31):
        now = gpu(
            temperature_c=30 + night % 9, event_reasons=1, graphics_clock_mhz=300, power_watts=9.0 + night,
            pcie=records.PcieLink(1 + night % 3, 16, 3, 16, 3, 0),
            throttled=records.Throttled(60.0 * (night % 8), 0.0, 0.0, 0.0, 0.0),
        )(certified)  # fmt: skip
        now = dataclasses.replace(
            now,
            taken_at=f"2026-11-{night:02}T02:30:00+00:00",
            kernel=dataclasses.replace(now.kernel, boot_id=f"boot-{night // 8}", uptime_seconds=86400.0 * (night % 8)),
            disk_free_mib={**now.disk_free_mib, "/var": 40000 - 100 * night},
            units={**now.units, "apt-daily.timer": records.UnitFacts("enabled", "active" if night % 2 else "inactive")},
            packages={**now.packages, "unattended-upgrades": records.Package(f"2.{night}", False)},
        )
        found = since(now, certified, before)
        assert set(found) == ({"host.since_last_check"} if before is None else set()), night
        before = now


@pytest.mark.parametrize(
    ("part", "key", "finding"),
    [
        ("files", TUNE_UNIT, "files.managed"),
        ("libraries", "libcudart.so.12", "libraries.paths"),
        ("login_shell", "nvcc", "shells.tools"),
    ],
)
def test_what_the_agent_did_not_look_for_is_not_gone(part: str, key: str, finding: str) -> None:
    """Another gpuprep may look for other things; what it looks for and does not find is null."""
    now = whole()
    held = now.shells if part == "login_shell" else now
    assert getattr(held, part)[key] is not None
    less: dict[str, Any] = {part: {name: value for name, value in getattr(held, part).items() if name != key}}
    looked = dataclasses.replace(now, shells=dataclasses.replace(now.shells, **less)) if held is now.shells else None
    found = since(looked or dataclasses.replace(now, **less), whole())
    assert found[finding].status in (SKIP, UNKNOWN), found[finding]
    assert "gone" not in found[finding].reason


def test_a_library_of_which_the_loader_knows_no_version_any_more_is_gone() -> None:
    now = whole()
    less = {name: path for name, path in now.libraries.items() if name != "libcudart.so.12"}
    for there in ({"libcudart.so": None}, {"libcudart.so.11.0": "/usr/lib/libcudart.so.11.8.89"}):
        found = since(dataclasses.replace(now, libraries={**less, **there}), whole())
        assert found["libraries.paths"].status is FAIL
        assert "libcudart.so.12 was" in found["libraries.paths"].reason
