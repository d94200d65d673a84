"""Canonical's prebuilt kernel modules: when they are taken, what is refused and checked, what the role does alike."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import bare_snapshot, finished_snapshot, load
from places import COLLECTION, ROOT
from programfile import answer_of, module_of
from rolevalues import printing, values

from gpuprep import catalogue, checks, errors, records
from gpuprep.catalogue import packagenames, roles
from gpuprep.desired import modules as kernel_modules
from gpuprep.desired import profile, state
from gpuprep.provisioning import plan
from gpuprep.sim.archive import repository

ROLE_FOLDER = COLLECTION / "roles/gpu_driver"
OWN = "/var/lib/shim-signed/mok/MOK.der"


ROLE = module_of(COLLECTION / "plugins/filter/driver.py")


def host(
    system: str = "ubuntu2404", gpu: str = "t4", *, kernel: str = "6.17.0-1019-aws", on: records.Bool = False,
    enrolled: records.Bool = False, metas: tuple[str, ...] = ("linux-image-aws",),
) -> records.Snapshot:  # fmt: skip
    bare = bare_snapshot(system, (gpu,))
    facts = dataclasses.replace(bare.kernel, running=kernel, next_boot=kernel, secure_boot=on)
    signatures = records.SignatureFacts((), (records.ModuleCertificate(OWN, enrolled),), records.Missing("not_read"))
    names = {name: records.Package("1", False) for name in (*metas, f"linux-image-{kernel}")}
    return dataclasses.replace(bare, kernel=facts, signatures=signatures, packages={**bare.packages, **names})


def wish(snapshot: records.Snapshot, gpu: str = "t4", **driver: Any) -> state.Wanted:
    return state.resolve(load(gpu, driver={"source": "distribution", **driver}), snapshot)


def refused(snapshot: records.Snapshot, gpu: str = "t4", **driver: Any) -> list[str]:
    with pytest.raises(errors.PlanRefused) as found:
        wish(snapshot, gpu, **driver)
    return [reason for reason in found.value.reasons if reason.startswith(("driver.", "host."))]


# ---------------------------------------------------------------- when are they taken?


def test_modules_of_somebody_else_that_are_not_built_are_named() -> None:
    bare = bare_snapshot()
    running = bare.kernel.running
    there = [
        records.DkmsModule("acme", "1.0", None, "added"),
        records.DkmsModule("nvidia-current", "550.163.01", None, "added"),
        records.DkmsModule("zfs", "2.3", running, "installed"),
        records.DkmsModule("old; reboot", "1\n", "6.1.0-1", "installed"),
    ]
    acme, old = kernel_modules.not_built(
        dataclasses.replace(bare, driver=dataclasses.replace(bare.driver, dkms=tuple(there)))
    )
    assert acme.startswith(
        f"DKMS has acme/1.0, which is no module of NVIDIA's and not built for {running}: if it cannot"
    )
    assert f"`sudo dkms build acme/1.0 -k {running}`" in acme
    assert "`sudo dkms remove acme/1.0 --all`" in acme
    assert "`sudo dkms remove 'old; reboot/1' --all`" in old


@pytest.mark.parametrize(
    ("system", "source", "on", "enrolled", "kernel", "expected"),
    [
        ("ubuntu2404", "distribution", False, False, "6.17.0-1019-aws", "dkms"),
        ("ubuntu2404", "distribution", True, False, "6.17.0-1019-aws", "prebuilt"),
        ("ubuntu2204", "auto", True, records.Missing("command_not_found"), "6.8.0-1063-aws", "prebuilt"),
        ("ubuntu2404", "distribution", True, True, "6.17.0-1019-aws", "dkms"),  # its own key is enrolled: as ever
        ("ubuntu2404", "distribution", records.Missing("not_supported"), False, "6.17.0-1019-aws", "dkms"),
    ],
)
def test_auto_is_dkms_unless_secure_boot_would_refuse_that(
    system: str, source: str, on: records.Bool, enrolled: records.Bool, kernel: str, expected: str
) -> None:
    wanted = wish(host(system, kernel=kernel, on=on, enrolled=enrolled), source=source)
    assert wanted.driver.modules == expected
    assert plan.role_variables(wanted)["gpu_driver_modules"] == expected
    assert [line for line in wanted.decisions if "Secure Boot" in line] == (
        [line for line in wanted.decisions if line.startswith("prebuilt")] if expected == "prebuilt" else []
    )


ALMA = "6.12.0-211.7.4.el10_2.x86_64"


def alma(gpu: str = "t4", *, on: bool = True, system: str = "almalinux10") -> records.Snapshot:
    return host(system, gpu, kernel=ALMA, on=on, metas=())


def of_alma(snapshot: records.Snapshot, gpu: str = "t4", **driver: Any) -> state.Wanted:
    cuda = {"cuda": {"version": "none"}} if gpu == "v100" else {}
    return state.resolve(load(gpu, driver=driver, **cuda), snapshot)


@pytest.mark.parametrize(
    ("on", "driver", "source"),
    [
        (True, {}, "distribution"),
        (True, {"version": "615"}, "distribution"),
        (False, {}, "nvidia"),
        (False, {"source": "distribution"}, "distribution"),
        (False, {"version": "580"}, "nvidia"),
    ],
)
def test_almalinux_10_signs_modules_itself_which_secure_boot_takes(
    on: bool, driver: dict[str, str], source: str
) -> None:
    wanted = of_alma(alma(on=on), **driver)
    assert (wanted.driver.source, wanted.driver.modules) == (source, "dkms" if source == "nvidia" else "prebuilt")
    if source == "distribution":
        assert (wanted.driver.packages[0], wanted.driver.prebuilt) == ("nvidia-open-kmod", ("kmod-nvidia-open",))
        assert not [name for name in wanted.driver.packages if "dkms" in name]


@pytest.mark.parametrize(
    ("gpu", "driver", "expected"),
    [
        ("v100", {"source": "distribution"}, "works: driver.source: nvidia with driver.version: auto or 580"),
        ("v100", {}, "works: Secure Boot off, or the key enrolled"),
        ("t4", {"version": "580"}, "; or driver.source: distribution with driver.version: auto"),
        ("t4", {"source": "nvidia"}, "; or driver.source: distribution"),
        ("t4", {"source": "distribution", "modules": "dkms"}, "works: prebuilt, or auto, or driver.source: nvidia"),
        (
            "t4",
            {"source": "distribution", "signing": {"key": "/k", "certificate": "/c"}},
            "works: signing: null, or dri",
        ),
    ],
)
def test_what_is_refused_of_almalinuxs_own_driver(gpu: str, driver: dict[str, Any], expected: str) -> None:
    with pytest.raises(errors.PlanRefused) as found:
        of_alma(alma(gpu), gpu, **driver)
    (reason,) = found.value.reasons
    assert expected in reason


def test_red_hats_own_driver_is_named_where_its_open_modules_would_do() -> None:
    for gpu, named in (("t4", True), ("v100", False)):
        with pytest.raises(errors.PlanRefused) as found:
            of_alma(alma(gpu, system="rhel10"), gpu)
        (reason,) = found.value.reasons
        assert reason.startswith("host.secure_boot: ")
        assert ("rhel-drivers install --auto-detect" in reason) == named


@pytest.mark.machines
def test_the_role_takes_almalinuxs_own_packages(tmp_path: Path) -> None:
    known = {"gpu_preflight_system": "EL-10", "gpu_driver_flavour": "open"}
    facts = ("versioned", "prebuilt", "replaced", "release_package")
    names = ", ".join(f"'{fact}': gpu_driver_{fact}" for fact in facts)
    tasks: list[dict[str, Any]] = []
    for source, modules in (("distribution", "prebuilt"), ("nvidia", "dkms")):
        case = {**known, "gpu_driver_source": source, "gpu_driver_modules": modules}
        load_data = {"name": "gpu_driver", "tasks_from": "data", "public": True}
        tasks.append({"name": "Load", "ansible.builtin.include_role": load_data, "vars": case})
        tasks.append({"name": "Print", "ansible.builtin.debug": printing(source, f"{{{names}}}"), "vars": case})
    machine = {"distribution": "AlmaLinux", "distribution_major_version": "10", "kernel": ALMA}
    found = values(tmp_path, {"gpu_preflight_package_manager": "dnf", "ansible_facts": machine}, tasks)
    for source, case in found.items():
        driver = of_alma(alma(on=False), source=source).driver
        assert (case["versioned"], case["prebuilt"]) == (list(driver.packages), list(driver.prebuilt))
        assert case["release_package"] == "almalinux-release-nvidia-driver"
    assert "kmod-nvidia-open-dkms" in found["distribution"]["replaced"]
    assert "nvidia-open-kmod" in found["nvidia"]["replaced"]


def test_where_there_are_no_prebuilt_modules_secure_boot_is_refused_as_ever() -> None:
    for snapshot, driver in (
        (host(on=True, kernel="6.99.0-rc1-own"), {}),  # a kernel of the owner's own
        (host(on=True), {"version": "535"}),
        (host(on=True), {"source": "nvidia"}),
    ):
        (reason,) = refused(snapshot, **driver)
        assert reason.startswith("host.secure_boot: ")
        assert "prebuilt" not in reason
    (reason,) = refused(host(on=True), modules="dkms")
    assert reason.endswith("or driver.modules: prebuilt")
    assert wish(host(on=True), modules="prebuilt").driver.modules == "prebuilt"


def test_a_key_in_the_profile_means_dkms() -> None:
    snapshot, key = host(on=True, enrolled=True), profile.SigningWish("/etc/mok/MOK.priv", OWN)
    assert wish(snapshot, signing=key).driver.modules == "dkms"
    (reason,) = refused(snapshot, signing=key, modules="prebuilt")
    assert reason.startswith("driver.signing: ")


def test_what_auto_chose_is_chosen_again_when_it_is_installed() -> None:
    wanted = wish(host(on=True))
    done = finished_snapshot(wanted, host(on=True))
    assert wish(done).driver.modules == "prebuilt"
    built = dataclasses.replace(
        done.driver, dkms=(records.DkmsModule("nvidia", "580.173.02", done.kernel.running, "installed"),)
    )
    assert wish(dataclasses.replace(done, driver=built)).driver.modules == "dkms"  # loaded in spite of Secure Boot


def test_no_headers_are_needed() -> None:
    snapshot = host(kernel="6.17.0-1019-aws")
    without = dataclasses.replace(snapshot, kernel=dataclasses.replace(snapshot.kernel, headers_available=False))
    assert refused(without, modules="dkms")[0].startswith("host.kernel: ")
    assert wish(without, modules="prebuilt").driver.modules == "prebuilt"


# ---------------------------------------------------------------- what cannot be?


@pytest.mark.parametrize(
    ("system", "gpu", "driver", "says", "works"),
    [
        ("ubuntu2404", "t4", {"source": "nvidia"}, "no prebuilt kernel modules", "or driver.source: distribution"),
        ("debian13", "t4", {}, "no prebuilt kernel modules", "dkms, or auto"),
        (
            "ubuntu2404",
            "t4",
            {"version": "535"},
            "of branch 580 in the archive of Ubuntu 24.04, not of 535.288.01",
            "or driver.version: 580",
        ),
        ("rocky9", "v100", {"source": "nvidia"}, "no prebuilt kernel modules", "dkms, or auto"),
    ],
)
def test_what_cannot_be_is_refused_with_the_nearest_that_can(
    system: str, gpu: str, driver: dict[str, str], says: str, works: str
) -> None:
    snapshot = host(system, gpu) if system.startswith("ubuntu") else bare_snapshot(system, (gpu,))
    (reason,) = refused(snapshot, gpu, modules="prebuilt", **driver)
    assert reason.startswith("driver.modules: ")
    assert says in reason
    assert works in reason.partition("; works: ")[2]
    # Each way is open there.
    assert wish(snapshot, gpu, modules="dkms", **driver).driver.modules == "dkms"
    assert wish(snapshot, gpu, modules="auto", **driver).driver.modules == "dkms"
    if "driver." in works:
        key, _, value = works.removeprefix("or driver.").partition(": ")
        assert wish(snapshot, gpu, modules="prebuilt", **{**driver, key: value}).driver.modules == "prebuilt"


def test_a_kernel_that_is_not_ubuntus_has_none() -> None:
    (reason,) = refused(host(kernel="6.99.0-own"), modules="prebuilt")
    assert "6.99.0-own is none of these" in reason


# ---------------------------------------------------------------- which packages?

KERNELS = {
    ("6.17.0-1019-aws", ("linux-image-aws",)): ["aws"],
    ("6.8.0-1063-aws", ("linux-image-aws-6.8", "linux-image-aws")): ["aws", "aws-6.8"],
    ("6.8.0-136-generic", ("linux-image-virtual",)): ["generic"],
    ("6.17.0-35-generic", ("linux-image-generic-hwe-24.04", "linux-image-aws")): ["generic-hwe-24.04"],
    ("6.17.0-35-generic", ("linux-image-virtual-hwe-24.04",)): ["generic-hwe-24.04"],
    ("6.8.0-1045-gcp", ()): ["gcp"],
    ("6.8.0-1050-azure", ("linux-image-unsigned-azure", "linux-image-azure")): ["azure"],
    ("6.8.0-1004-nvidia-64k", ("linux-image-nvidia",)): ["nvidia-64k"],
    ("6.12.57+deb13-cloud-amd64", ("linux-image-cloud-amd64",)): [],
    ("6.8.0-136-generic; rm -rf /", ()): [],
    ("6.8.0-136-../../x", ()): [],
}


@pytest.mark.parametrize(("kernel", "metas"), KERNELS)
def test_which_kernels_are_followed(kernel: str, metas: tuple[str, ...]) -> None:
    expected = KERNELS[kernel, metas]
    assert list(packagenames.followed(kernel, metas)) == expected
    machine = host(kernel=kernel, metas=metas)
    if expected:
        prebuilt = wish(machine, modules="prebuilt", flavour="proprietary").driver.prebuilt
        assert [name.removeprefix("linux-modules-nvidia-580-server-") for name in prebuilt] == expected
    else:
        assert refused(machine, modules="prebuilt")[0].startswith("driver.modules: ")


@pytest.mark.parametrize("flavour", ["open", "proprietary"])
def test_plan_and_role_name_the_same_packages(flavour: str) -> None:
    release = catalogue.archives()["ubuntu-24.04"]
    variables = yaml.safe_load((ROLE_FOLDER / "vars/Ubuntu.yml").read_text(encoding="utf-8"))
    data = packagenames.of_branch(variables["gpu_driver_sources"]["distribution"], "580")
    names = roles.driver_packages(release, "distribution", flavour, "580.126.20", modules="prebuilt")
    assert list(names) == [*data["prebuilt_packages"][flavour], *data["library_packages"]]
    end = "-open" if flavour == "open" else ""
    assert f"nvidia-headless-no-dkms-580-server{end}" in names
    assert not [name for name in names if "dkms" in name and "no-dkms" not in name]
    metas = roles.prebuilt_packages(release, "distribution", flavour, "580.126.20", ["aws"])
    assert metas == (f"linux-modules-nvidia-580-server{end}-aws",)
    forms = data["prebuilt_modules"][flavour]
    assert tuple(ROLE.driver_prebuilt_names(forms, ["linux-image-aws"], "6.17.0-1019-aws")) == metas
    assert wish(host(), modules="prebuilt", flavour=flavour).driver.prebuilt == metas


def test_prebuilt_modules_of_another_flavour_or_of_none_are_left_over() -> None:
    present = [
        "linux-modules-nvidia-580-server-aws", "linux-modules-nvidia-580-server-6.17.0-1019-aws",
        "linux-modules-nvidia-580-server-open-aws", "linux-objects-nvidia-580-server-6.17.0-1019-aws",
        "linux-signatures-nvidia-6.17.0-1019-aws", "linux-modules-nvidia-535-server-aws", "nvidia-utils-580-server",
    ]  # fmt: skip
    proprietary = ["linux-modules-nvidia-580-server-{kernel}"]
    assert ROLE.driver_prebuilt_left(present, proprietary) == [present[2], present[5]]
    assert ROLE.driver_prebuilt_left(present, ["linux-modules-nvidia-580-server-open-{kernel}"]) == [
        present[0], present[1], present[3], present[5],
    ]  # fmt: skip
    assert ROLE.driver_prebuilt_left(present, []) == present[:6]


@pytest.mark.parametrize("key", sorted(catalogue.archives()))
def test_the_whole_driver_has_more_packages_where_it_is_known(key: str) -> None:
    release = catalogue.archives()[key]
    known = set()
    for source, offer in release.sources.items():
        for driver in offer.drivers:
            if roles.has_full_libraries(release, source, driver.version):
                known.add(source)
                few = roles.driver_packages(release, source, driver.modules[0], driver.version)
                many = roles.driver_packages(release, source, driver.modules[0], driver.version, libraries="full")
                assert set(few) < set(many)
                assert not [name for name in many if "{" in name]
    assert known == (set() if key == "amzn-2023" else set(release.sources))  # Amazon splits off no libraries


def test_the_whole_driver_is_wished_and_refused_where_it_is_not_known() -> None:
    full = wish(host(), libraries="full").driver
    assert {"libnvidia-gl-580-server", "xserver-xorg-video-nvidia-580-server"} < set(full.packages)
    assert "libnvidia-gl-580-server" not in wish(host()).driver.packages
    assert plan.role_variables(wish(host(), libraries="full"))["gpu_driver_libraries"] == "full"
    (reason,) = refused(bare_snapshot("amzn2023"), libraries="full")
    assert reason.startswith("driver.libraries: ")
    assert reason.endswith("; works: compute")


# ---------------------------------------------------------------- what is checked?


def problems(wanted: state.Wanted, snapshot: records.Snapshot) -> dict[str, records.Finding]:
    found = checks.compare(wanted, snapshot)
    return {
        finding.key: finding for finding in found if finding.status not in (records.Status.PASS, records.Status.SKIP)
    }


def finished() -> tuple[state.Wanted, records.Snapshot]:
    wanted = wish(host(), modules="prebuilt")
    return wanted, finished_snapshot(wanted, host())


def test_a_finished_machine_passes_without_headers_and_without_dkms() -> None:
    wanted, snapshot = finished()
    assert problems(wanted, snapshot) == {}
    keys = {finding.key: finding.status for finding in checks.compare(wanted, snapshot)}
    assert keys["driver.prebuilt"] is records.Status.PASS
    assert not {"driver.dkms", "kernel.headers"} & set(keys)


def test_what_a_hand_undid_is_found() -> None:
    wanted, good = finished()
    (brings,) = wanted.driver.prebuilt
    without = dataclasses.replace(good, packages={k: v for k, v in good.packages.items() if k != brings})
    assert (problems(wanted, without)["driver.prebuilt"].status, brings in str(problems(wanted, without))) == (
        records.Status.FAIL, True,
    )  # fmt: skip
    gone = dataclasses.replace(good.driver, module_version=None, module_flavour=None)
    assert {"driver.prebuilt", "driver.version"} <= set(problems(wanted, dataclasses.replace(good, driver=gone)))
    states = (records.DkmsModule("nvidia", "580.173.02", good.kernel.running, "installed"),)
    built = dataclasses.replace(good.driver, dkms=states)
    assert (
        "instead of the prebuilt one"
        in problems(wanted, dataclasses.replace(good, driver=built))["driver.prebuilt"].reason
    )
    unread = dataclasses.replace(good.driver, module_version=records.Missing("not_read"))
    found = problems(wanted, dataclasses.replace(good, driver=unread))["driver.prebuilt"]
    assert found.status is records.Status.UNKNOWN


def test_a_new_kernel_whose_modules_canonical_has_not_built_yet_is_found_before_the_reboot() -> None:
    wanted, good = finished()
    late = dataclasses.replace(
        good,
        kernel=dataclasses.replace(good.kernel, next_boot="6.17.0-1020-aws", headers_next_boot=False),
        driver=dataclasses.replace(good.driver, module_next_boot_version=None),
    )
    finding = problems(wanted, late)["driver.next_boot_module"]
    assert (finding.status, finding.role) == (records.Status.FAIL, "gpu_driver")
    assert "do not reboot before" in finding.remedy
    assert "kernel.headers_next_boot" not in problems(wanted, late)


def test_a_machine_with_modules_of_dkms_is_not_one_with_prebuilt_ones_and_the_other_way_round() -> None:
    wanted, snapshot = finished()
    assert "driver.dkms" in problems(wish(host(), modules="dkms"), snapshot)
    dkms = wish(host(), modules="dkms")
    assert {"driver.prebuilt", "driver.packages"} <= set(problems(wanted, finished_snapshot(dkms, host())))


# ---------------------------------------------------------------- which driver are they built for? The real apt.


@pytest.fixture(scope="module")
def apt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Settings of an apt whose only archive is the stub of Ubuntu 24.04's own."""
    sys.path.append(str(ROOT / ".ci"))
    canary = module_of(ROOT / ".ci/canary.py")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        environment.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        folder = repository.folder("ubuntu2404")
        assert folder is not None
        source = canary.Source(
            f"{(folder / 'ubuntu').as_uri()}/", ("noble",), ("main", "restricted"), folder / "key.asc"
        )
        place = tmp_path_factory.mktemp("root")
        root = canary.AptRoot(place / "apt", [source])
        assert root.update() == ""
        settings = place / "apt.conf"
        lines = (option.removeprefix("-o").partition("=") for option in root.options)
        settings.write_text("".join(f'{name} "{value}";\n' for name, _, value in lines))
        yield settings


def built_for(apt: Path, *names: str) -> dict[str, Any]:
    return answer_of("prebuilt_modules", {"APT_CONFIG": str(apt)}, packages=list(names))


@pytest.mark.xdist_group("archives")
def test_the_driver_that_prebuilt_modules_are_built_for_is_read_from_apt(apt: Path) -> None:
    for kind in ("", "-open"):
        names = [f"linux-modules-nvidia-580-server{kind}-{kernel}" for kernel in ("generic", "aws", "gcp", "azure")]
        answer = built_for(apt, *names)
        assert (answer["drivers"], answer["absent"]) == (["580.126.20"], [])
        assert [package.rpartition("=6.")[0] for package in answer["packages"]] == names
    answer = built_for(apt, "linux-modules-nvidia-580-server-oracle", "linux-modules-nvidia-580-server-aws")
    assert answer["absent"] == ["linux-modules-nvidia-580-server-oracle"]
    assert answer["drivers"] == ["580.126.20"]


@pytest.mark.machines
@pytest.mark.xdist_group("archives")
def test_with_the_newest_driver_apt_would_speak_of_held_broken_packages(apt: Path) -> None:
    """What the role finds before; with the driver that they are built for nothing of the kind is said."""
    modules_of = "linux-modules-nvidia-580-server-open-aws"
    common = "nvidia-kernel-common-580-server"
    places = {**os.environ, "APT_CONFIG": str(apt), "LC_ALL": "C"}
    said = {}
    for version in ("580.173.02-0ubuntu0.24.04.1", "580.126.20-0ubuntu0.24.04.2"):
        command = ["apt-get", "--simulate", "install", modules_of, f"{common}={version}"]
        done = subprocess.run(command, capture_output=True, text=True, env=places, check=False)
        said[version] = done.stdout + done.stderr
    lagging, fitting = said.values()
    assert "held broken packages" in lagging
    assert "held broken packages" not in fitting
    assert "Inst linux-modules-nvidia-580-server-open-6.17.0-1019-aws" in fitting


# ---------------------------------------------------------------- what does the role make of it? Ansible says.


@pytest.fixture(scope="module")
def role(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, list[str]]]:
    """ "dkms", "prebuilt" or "full" ► name of a fact ► what the role makes it, on Ubuntu with AWS's kernel."""
    folder = tmp_path_factory.mktemp("role")
    cases = {
        "dkms": {"gpu_driver_modules": "dkms"},
        "prebuilt": {"gpu_driver_modules": "prebuilt"},
        "full": {"gpu_driver_libraries": "full"},
    }
    facts = ("versioned", "others", "headless", "prebuilt", "replaced")
    names = ", ".join(f"'{fact}': gpu_driver_{fact}" for fact in facts)
    tasks: list[dict[str, Any]] = []
    for name, case in cases.items():
        known = {"gpu_preflight_system": "Ubuntu-24.04", "gpu_driver_flavour": "open", **case}
        load_data = {"name": "gpu_driver", "tasks_from": "data", "public": True}
        tasks.append({"name": "Load", "ansible.builtin.include_role": load_data, "vars": known})
        tasks.append({"name": "Print", "ansible.builtin.debug": printing(name, f"{{{names}}}"), "vars": known})
    variables = {
        "gpu_preflight_package_manager": "apt",
        "gpu_preflight_kernel_metas": ["linux-image-aws", "linux-image-generic"],
        "ansible_facts": {"distribution": "Ubuntu", "distribution_major_version": "24", "kernel": "6.17.0-1019-aws"},
    }
    found = values(folder, variables, tasks)
    assert set(found) == set(cases)
    return found


@pytest.mark.machines
def test_the_role_installs_and_holds_what_is_checked(role: dict[str, dict[str, list[str]]]) -> None:
    for case, wished in (("dkms", {}), ("prebuilt", {"modules": "prebuilt"}), ("full", {"libraries": "full"})):
        driver = wish(host(), flavour="open", **wished).driver
        assert (role[case]["versioned"], role[case]["prebuilt"]) == (list(driver.packages), list(driver.prebuilt))


@pytest.mark.machines
def test_what_belongs_to_the_other_way_goes_and_nothing_of_its_own_does(role: dict[str, dict[str, list[str]]]) -> None:
    prebuilt, dkms = role["prebuilt"], role["dkms"]
    assert "nvidia-dkms-580-server-open" in prebuilt["others"]
    assert "nvidia-headless-no-dkms-580-server-open" in dkms["headless"]
    assert "nvidia-headless-no-dkms-580-server-open" not in dkms["others"]  # with DKMS it does no harm
    for case in role.values():
        for kind in ("others", "headless", "replaced"):
            assert not set(case[kind]) & set(case["versioned"])
        assert "nvidia-dkms-535-server" in case["replaced"]
        assert ("libnvidia-gl-535-server" in case["replaced"]) == (case is role["full"])  # else a desktop's
        assert "libnvidia-gl-580-server" not in case["replaced"]
