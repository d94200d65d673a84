"""Systems other than Debian with its own archive: machines that present Ubuntu or Red Hat's family, by stub packages.

`make test` has a driver of each family, held and put back; `make test-all` has each part undone, a switch of the branch
and the way back on each family, and the rest.
What such a machine cannot show is listed in docs/systems.md.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import rollbackrounds
from machines import GPUPREP, changed_files, fresh, gpuprep, inside, must, only, open_findings
from nvmlbench import inherited
from places import CASES
from systemprofiles import PROFILE

# System, GPUs, source, version ► the driver's version and flavour.
CELLS = {
    ("ubuntu2204", "t4", "nvidia", "auto"): ("580.178.04", "open"),
    ("ubuntu2204", "v100", "nvidia", "auto"): ("580.178.04", "proprietary"),
    ("ubuntu2204", "a100", "nvidia", "570"): ("570.211.01", "open"),
    ("ubuntu2204", "t4", "distribution", "auto"): ("580.178.04", "open"),
    ("ubuntu2204", "v100", "distribution", "535"): ("535.288.01", "proprietary"),
    ("ubuntu2404", "v100", "nvidia", "auto"): ("580.178.04", "proprietary"),
    ("ubuntu2404", "a100", "nvidia", "580.159.04"): ("580.159.04", "open"),
    ("ubuntu2404", "a100+nvswitch", "nvidia", "auto"): ("580.178.04", "open"),
    ("ubuntu2404", "a100+nvswitch", "nvidia", "570"): ("570.211.01", "open"),
    ("ubuntu2404", "t4", "nvidia", "550"): ("550.163.01", "open"),
    ("ubuntu2404", "a100+nvswitch", "nvidia", "615"): ("615.71.09", "open"),
    ("ubuntu2404", "t4", "nvidia", "615"): ("615.71.09", "open"),
    ("ubuntu2404", "t4", "distribution", "auto"): ("580.173.02", "open"),
    ("ubuntu2404", "v100", "distribution", "auto"): ("580.173.02", "proprietary"),
    ("ubuntu2204", "t4", "nvidia", "550"): ("550.163.01", "open"),
    ("ubuntu2204", "v100", "nvidia", "550"): ("550.163.01", "proprietary"),
    ("ubuntu2204", "a100+nvswitch", "distribution", "auto"): ("580.178.04", "open"),
    ("ubuntu2404", "a100", "distribution", "535"): ("535.288.01", "open"),
    ("ubuntu2404", "a100+nvswitch", "distribution", "535"): ("535.288.01", "open"),
    ("ubuntu2404", "v100", "nvidia", "570"): ("570.211.01", "proprietary"),
    ("ubuntu2604", "t4", "nvidia", "auto"): ("595.91.07", "open"),
    ("ubuntu2604", "a100", "nvidia", "610"): ("610.57.04", "open"),
    ("ubuntu2604", "a100+nvswitch", "nvidia", "615"): ("615.71.09", "open"),
    ("ubuntu2604", "t4", "distribution", "595"): ("595.91.07", "open"),
    ("ubuntu2604", "v100", "distribution", "auto"): ("580.178.04", "proprietary"),
    ("ubuntu2604", "a100+nvswitch", "distribution", "auto"): ("580.178.04", "open"),
    ("debian12", "a100", "nvidia", "580.126.20"): ("580.126.20", "open"),
    ("debian12", "t4", "nvidia", "auto"): ("580.178.04", "open"),
    ("debian12", "v100", "nvidia", "570"): ("570.211.01", "proprietary"),
    # Fabric Manager ends at 570.195.03 there, so the driver is that version, too.
    ("debian12", "a100+nvswitch", "nvidia", "570"): ("570.195.03", "open"),
    ("debian12", "a100+nvswitch", "nvidia", "auto"): ("580.178.04", "open"),
    ("debian12", "t4", "nvidia", "615"): ("615.71.09", "open"),
    ("debian13", "t4", "nvidia", "auto"): ("595.71.05", "open"),
    ("debian13", "a100+nvswitch", "nvidia", "610"): ("610.43.02", "open"),
    ("rocky9", "t4", "nvidia", "615"): ("615.71.09", "open"),
    ("rocky9", "v100", "nvidia", "auto"): ("580.178.04", "proprietary"),
    ("rocky9", "a100+nvswitch", "nvidia", "auto"): ("580.178.04", "open"),
    ("rocky9", "a100+nvswitch", "nvidia", "570"): ("570.211.01", "open"),
    ("rocky9", "t4", "nvidia", "580.95.05"): ("580.95.05", "open"),
    ("rhel9", "t4", "nvidia", "auto"): ("580.178.04", "open"),
    ("almalinux9", "a100", "nvidia", "570"): ("570.211.01", "open"),
    ("centos9", "t4", "nvidia", "570.133.20"): ("570.133.20", "open"),
    ("rocky10", "t4", "nvidia", "auto"): ("580.178.04", "open"),
    ("rocky10", "v100", "nvidia", "auto"): ("580.178.04", "proprietary"),
    ("rocky10", "a100+nvswitch", "nvidia", "580.105.08"): ("580.105.08", "open"),
    ("almalinux10", "t4", "nvidia", "595"): ("595.91.07", "open"),
    ("almalinux10", "t4", "distribution", "auto"): ("615.71.09", "open"),
    ("rhel10", "t4", "nvidia", "615"): ("615.71.09", "open"),
    ("centos10", "a100", "nvidia", "610"): ("610.57.04", "open"),
    ("rocky8", "t4", "nvidia", "615"): ("615.71.09", "open"),
    ("almalinux8", "t4", "nvidia", "auto"): ("580.178.04", "open"),
    ("rhel8", "v100", "nvidia", "570"): ("570.211.01", "proprietary"),
    ("centos8", "a100+nvswitch", "nvidia", "580.105.08"): ("580.105.08", "open"),
    ("amzn2023", "t4", "nvidia", "auto"): ("580.178.04", "open"),
    ("amzn2023", "v100", "nvidia", "570"): ("570.211.01", "proprietary"),
    ("amzn2023", "t4", "distribution", "auto"): ("580.178.04", "open"),
    ("amzn2023", "a100", "distribution", "570.195.03"): ("570.195.03", "open"),
}
# What the package manager has of the driver: versions (libnvidia-egl-wayland1 has its own), names; a held library.
VERSIONS = {
    False: "dpkg -l | awk '/^.i/ && /nvidia/ && !/egl-wayland/ {print $3}' | cut -d- -f1 | sort -u",
    True: "rpm -qa --qf '%{NAME} %{VERSION}\\n' |"
    " awk '/nvidia/ && !/dnf-plugin|nvidia-release|release-nvidia/ {print $2}' | sort -u",
}
FABRIC = {
    False: "dpkg -l | awk '/fabricmanager/ {print $1, $3}'; systemctl is-active nvidia-fabricmanager",
    True: "grep -c '^nvidia-fabric' /etc/dnf/plugins/versionlock.list; rpm -qa --qf '%{NAME} %{VERSION}\\n' |"
    " awk '/nvidia-fabric/ {print $2}'; systemctl is-active nvidia-fabricmanager",
}
# NVIDIA's repository, served by HTTP as NVIDIA's is.
SOURCES = {False: "/etc/apt/sources.list.d/gpuprep-nvidia.sources", True: "/etc/yum.repos.d/gpuprep-nvidia.repo"}
UNHOLD = {
    False: "apt-mark unhold $(apt-mark showhold | grep -m1 -e compute -e libcuda1)",
    True: "dnf -q -C versionlock delete libnvidia-ml",
}
# A package of `libraries: full`, held.
FULL = {
    False: "apt-mark showhold | grep -x -e libegl-nvidia0 -e libnvidia-gl-580",
    True: "grep -o '^nvidia-driver-libs-' /etc/dnf/plugins/versionlock.list",
}
PIN = "/etc/apt/preferences.d/gpuprep-nvidia"
# All that the roles write for apt, by its contents; and what is held.
WRITTEN_FOR_APT = "cd /etc/apt && stat -c '%a %U %n' */*gpuprep* && sha256sum */*gpuprep* && apt-mark showhold"
WRITTEN_FOR_DNF = "cat /etc/dnf/modules.d/nvidia-driver.module; grep '^[^#]' /etc/dnf/plugins/versionlock.list | sort"
# Canonical's modules for one kernel, as cloud images have them.
PREBUILT = (
    "mkdir -p /tmp/prebuilt/DEBIAN && printf 'Package: linux-modules-nvidia-580-server-open-6.8.0-1063-azure\\n"
    "Version: 1\\nArchitecture: all\\nMaintainer: x <x@x>\\nDescription: x\\n"
    "Depends: nvidia-kernel-common-580-server (>= 580.126.20)\\n' >/tmp/prebuilt/DEBIAN/control &&"
    " dpkg-deb --build /tmp/prebuilt /tmp/prebuilt.deb && dpkg -i /tmp/prebuilt.deb"
)

pytestmark = pytest.mark.e2e


def profile(folder: Path, source: str, version: str, cuda: str = "none") -> str:
    path = folder / f"cell-{version}.yml"
    path.write_text(PROFILE.format(source=source, version=version, cuda=cuda))
    return str(path)


def is_rpm(machine: str) -> bool:
    return inside(machine, "command -v rpm || true").stdout.strip() != ""


def is_provisioned(machine: str, wish: str, version: str, flavour: str, *, deep: bool = True) -> None:
    """The first run passes, the second finds nothing to do, --deep changes nothing, and drift is silent."""
    host = ("provision", f"sim:{machine}", "--profile", wish)
    must(*host)
    assert only(must(*host, "--json"))["playbook"]["status"] == "not needed"
    if deep:
        assert only(must(*host, "--deep", "--json"))["playbook"]["changed"] == 0
    assert open_findings(only(must("drift", f"sim:{machine}", "--profile", wish, "--json"))) == set()
    has_nothing_for_doctor(machine)
    loaded = inside(machine, "cat /proc/driver/nvidia/version").stdout
    assert version in loaded
    assert ("Open" in loaded) == (flavour == "open")
    foreign = inside(machine, VERSIONS[is_rpm(machine)]).stdout.split()
    assert foreign == [version]  # nothing of another branch, not even of the repository's newest
    repository = inside(machine, f"cat {SOURCES[is_rpm(machine)]} 2>/dev/null || true").stdout
    served = re.search(r"http://127[.]0[.]0[.]1:\d+/\w+/compute/cuda/repos/", repository)
    assert (
        not repository or served or inherited(Path("/etc/apt"), os.environ).proxies
    )  # behind a proxy machines have files


def has_nothing_for_doctor(machine: str) -> None:
    """It is silent, and changes nothing."""
    inside(machine, "sleep 0.01; touch /root/before")
    (sound,) = must("doctor", f"sim:{machine}", "--json").json()["examined"]
    assert sound["found"] == []
    assert changed_files(machine) == []


def fails_and_puts_back(machine: str, folder: Path) -> None:
    """A step of the other branch fails half-way: driver, holds and pin are those of before, and drift is silent."""
    wish = profile(folder, "nvidia", "580")
    must("provision", f"sim:{machine}", "--profile", wish)
    rpm = is_rpm(machine)
    written = WRITTEN_FOR_DNF if rpm else WRITTEN_FOR_APT
    before = inside(machine, written).stdout
    names = "/etc/dkms/nvidia-570.211.01.conf /etc/dkms/nvidia-open-570.211.01.conf"
    inside(machine, f"echo 'MAKE[0]=\"false\"' | tee {names}")  # DKMS does not build the module
    failed = gpuprep("provision", f"sim:{machine}", "--profile", profile(folder, "nvidia", "570"))
    assert failed.exit_code == 4, failed.text
    assert "Driver 580.178.04, with its holds and its pin, is restored" in " ".join(failed.text.split())
    inside(machine, f"rm {names}")
    assert inside(machine, written).stdout == before
    assert inside(machine, VERSIONS[rpm]).stdout.split() == ["580.178.04"]
    names = names.replace("570.211.01", "580.178.04")
    inside(machine, "dkms status | grep -o '^nvidia[^,:]*' | sort -u | xargs -n1 dkms remove --all")
    inside(machine, f"echo 'MAKE[0]=\"false\"' | tee {names}")
    failed = gpuprep("provision", f"sim:{machine}", "--profile", wish)  # the same driver, without its module
    assert failed.exit_code == 4, failed.text
    assert "restored" not in failed.text
    assert inside(machine, written).stdout == before
    inside(machine, f"rm {names}")
    must("provision", f"sim:{machine}", "--profile", wish)
    assert open_findings(only(must("drift", f"sim:{machine}", "--profile", wish, "--json"))) == set()


def unheld_is_found(machine: str, wish: str) -> None:
    inside(machine, UNHOLD[is_rpm(machine)])
    found = only(gpuprep("drift", f"sim:{machine}", "--profile", wish, "--json"))
    assert open_findings(found) == {"driver.held"}


def unheld_is_found_and_put_right(machine: str, wish: str) -> None:
    unheld_is_found(machine, wish)
    fixed = only(must("drift", f"sim:{machine}", "--profile", wish, "--fix", "--json"))
    assert open_findings(fixed) == set()


def nothing_newer_comes(machine: str) -> None:
    """NVIDIA's repository has 615, too: without stream and locks dnf would take it."""
    free = "dnf -q --disableplugin=versionlock --setopt=*.module_hotfixes=true check-update libnvidia-ml"
    assert "615." in inside(machine, free, check=False).stdout
    inside(machine, "dnf -q check-update libnvidia-ml nvidia-modprobe kmod-nvidia-open-dkms")  # nothing to update


@pytest.fixture(scope="module")
def noble() -> Iterator[str]:
    """With a V100, whose modules must be the proprietary ones; `rocky` has a T4, whose modules are open."""
    with fresh("e2e-noble", "ubuntu2404", ["v100"]) as machine:
        yield machine


@pytest.mark.xdist_group("noble")
def test_ubuntu_gets_and_keeps_its_driver(noble: str, tmp_path: Path) -> None:
    """From nothing, while an automatic upgrade works with the packages."""
    lock = (CASES / "public/10-apt-lock/lock.py").read_text(encoding="utf-8")
    inside(noble, f"cat >/root/lock.py <<'END'\n{lock}END\nsystemd-run --unit=upgrade python3 /root/lock.py")
    wish = profile(tmp_path, "nvidia", "580")
    words = [GPUPREP, "provision", f"sim:{noble}", "--profile", wish]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path) as run:
        assert run.stdout
        waits = re.compile(r"unattended-upgr \(process \d+\) works with the packages and holds /var/lib/dpkg/lock")
        assert any(waits.search(line) for line in run.stdout)
        inside(noble, "systemctl stop upgrade")
        said = run.communicate()[0]
    assert run.returncode == 0, said
    is_provisioned(noble, wish, "580.178.04", "proprietary", deep=False)
    unheld_is_found_and_put_right(noble, wish)


@pytest.mark.xdist_group("noble")
def test_a_change_of_branch_that_fails_is_undone(noble: str, tmp_path: Path) -> None:
    fails_and_puts_back(noble, tmp_path)


@pytest.mark.only_all
@pytest.mark.xdist_group("noble")
def test_a_branch_and_the_next(noble: str, tmp_path: Path) -> None:
    """NVIDIA's repository has 615, too; the parts with one name for all branches must not come from there."""
    for version, exact in {"570": "570.211.01", "580": "580.178.04"}.items():
        is_provisioned(noble, profile(tmp_path, "nvidia", version), exact, "proprietary", deep=version == "580")
        policy = inside(noble, "apt-cache policy nvidia-modprobe nvidia-persistenced").stdout
        assert policy.count(f"Candidate: {exact}-") == 2
        upgrade = inside(noble, "apt-get -s dist-upgrade").stdout
        # The machine's own system may have had a point release since its disk was made.
        assert not re.search(r"^(Inst|Remv) \S*(nvidia|cuda|nvml)", upgrade, re.MULTILINE), upgrade
    unpinned = "apt-cache -o Dir::Etc::PreferencesParts=/nowhere policy nvidia-modprobe"
    assert "Candidate: 615." in inside(noble, unpinned).stdout


@pytest.mark.only_all
@pytest.mark.xdist_group("noble")
def test_what_a_hand_undid_is_found_and_put_right(noble: str, tmp_path: Path) -> None:
    wish = profile(tmp_path, "nvidia", "580", cuda="12.8")
    words = ("provision", f"sim:{noble}", "--profile", wish)
    must(*words)
    loaded = inside(noble, "cat /proc/driver/nvidia/version").stdout
    assert ("580.178.04" in loaded, "Open" in loaded) == (True, False)
    assert inside(noble, VERSIONS[False]).stdout.split() == ["580.178.04"]
    assert inside(noble, "readlink -f /usr/local/cuda").stdout.strip() == "/usr/local/cuda-12.8"
    assert only(must("plan", *words[1:], "--json"))["plan"]["steps"] == []
    before = inside(noble, WRITTEN_FOR_APT).stdout
    undo = {
        f"rm {PIN}": "driver.pinned",
        "sed -i 's/12[.]8/13.0/' /etc/apt/preferences.d/gpuprep-cuda": "cuda.pinned",
        "sed -i /libnvidia-compute/d /etc/apt/apt.conf.d/52gpuprep-holds": "driver.unattended_upgrades",
        "apt-mark unhold libnvidia-encode-580": "driver.held",
        "apt-mark unhold cuda-toolkit-12-8": "cuda.held",
    }
    for command in undo:
        inside(noble, command)
    found = only(gpuprep("drift", f"sim:{noble}", "--profile", wish, "--json"))
    # Besides, what differs from the certified run: no run passed yet, or without CUDA.
    assert set(undo.values()) <= open_findings(found)
    gpuprep("drift", f"sim:{noble}", "--profile", wish, "--fix")
    found = only(gpuprep("drift", f"sim:{noble}", "--profile", wish, "--json"))
    assert open_findings(found).isdisjoint({*undo.values(), "apt.pins"})
    # Put back as the roles write it, to the byte: they would change nothing.
    assert inside(noble, WRITTEN_FOR_APT).stdout == before


@pytest.mark.only_all
@pytest.mark.xdist_group("noble")
def test_a_package_that_is_no_drivers_is_not_removed_for_a_driver(noble: str, tmp_path: Path) -> None:
    """What somebody else built on the old branch stays; provisioning says so and changes nothing.

    Branch 570 has no libnvidia-gpucomp: the old branch's stays until the new parts are there, and then goes.
    """
    must("provision", f"sim:{noble}", "--profile", profile(tmp_path, "nvidia", "580"))
    build = (
        "mkdir -p /tmp/own/DEBIAN && printf 'Package: own-renderer\\nVersion: 1\\nArchitecture: all\\n"
        "Maintainer: x <x@x>\\n"
        "Depends: libnvidia-gpucomp-580\\nDescription: of somebody else\\n' >/tmp/own/DEBIAN/control &&"
        " dpkg-deb --build /tmp/own /tmp/own.deb && dpkg -i /tmp/own.deb"
    )
    inside(noble, build)
    refused = gpuprep("provision", f"sim:{noble}", "--profile", profile(tmp_path, "nvidia", "570"))
    assert refused.exit_code != 0
    assert "would remove own-renderer, which gpuprep did not install" in " ".join(refused.text.split())
    assert "580.178.04" in inside(noble, "cat /proc/driver/nvidia/version; dpkg -s own-renderer").stdout
    # What kept the old driver in its place still does.
    assert "Pin: version 580.178.04-*" in inside(noble, f"cat {PIN}").stdout
    assert "libnvidia-compute-580" in inside(noble, "apt-mark showhold").stdout
    inside(noble, "dpkg -r own-renderer")


@pytest.fixture(scope="module")
def rocky() -> Iterator[str]:
    with fresh("e2e-rocky", "rocky9", ["t4"]) as machine:
        yield machine


@pytest.mark.xdist_group("rocky")
def test_rocky_gets_and_keeps_its_driver(rocky: str, tmp_path: Path) -> None:
    wish = profile(tmp_path, "nvidia", "580")
    is_provisioned(rocky, wish, "580.178.04", "open", deep=False)
    unheld_is_found_and_put_right(rocky, wish)
    nothing_newer_comes(rocky)


@pytest.mark.xdist_group("rocky")
def test_a_driver_that_fails_after_its_restart_is_undone_by_the_host_without_network(rocky: str) -> None:
    assert rollbackrounds.play(rocky, rollbackrounds.SYSTEMS["rocky9"], "after_boot", random.Random(1)) == []


@pytest.mark.only_all
@pytest.mark.xdist_group("rocky")
def test_a_change_of_branch_that_fails_is_undone_with_dnf(rocky: str, tmp_path: Path) -> None:
    fails_and_puts_back(rocky, tmp_path)


# Kills gpuprep's dnf as soon as two packages of the driver are there in two versions.
KILLER = (
    'systemd-run -q -p RuntimeMaxSec=600 bash -c \'until [ $(rpm -qa --qf "%{NAME}\\n" | sort | uniq -d |'
    " grep -c nvidia) -gt 1 ]; do sleep 0.02; done; pkill -9 -f dnf.*GPUprep::Step'"
)


@pytest.mark.only_all
@pytest.mark.xdist_group("rocky")
def test_what_a_killed_dnf_left_is_put_back_and_the_same_command_completes_it(rocky: str, tmp_path: Path) -> None:
    must("provision", f"sim:{rocky}", "--profile", profile(tmp_path, "nvidia", "580"))
    before = inside(rocky, WRITTEN_FOR_DNF).stdout
    inside(rocky, KILLER)
    words = ("provision", f"sim:{rocky}", "--profile", profile(tmp_path, "nvidia", "570"))
    assert gpuprep(*words).exit_code == 4
    assert inside(rocky, WRITTEN_FOR_DNF).stdout == before
    assert inside(rocky, VERSIONS[True]).stdout.split() == ["580.178.04"]
    must(*words)
    assert inside(rocky, VERSIONS[True]).stdout.split() == ["570.211.01"]


@pytest.mark.only_all
@pytest.mark.xdist_group("rocky")
def test_a_branch_and_the_next_with_dnf(rocky: str, tmp_path: Path) -> None:
    """NVIDIA's repository has 615, too, and its default stream is another than the wished."""
    for version, exact in {"570": "570.211.01", "580": "580.178.04"}.items():
        is_provisioned(rocky, profile(tmp_path, "nvidia", version), exact, "open", deep=version == "580")
        assert f"stream={version}-open" in inside(rocky, "cat /etc/dnf/modules.d/nvidia-driver.module").stdout
        nothing_newer_comes(rocky)


@pytest.mark.only_all
@pytest.mark.xdist_group("rocky")
def test_what_a_hand_undid_on_an_rpm_system_is_found_and_put_right(rocky: str, tmp_path: Path) -> None:
    wish = profile(tmp_path, "nvidia", "580", cuda="12.8")
    words = ("provision", f"sim:{rocky}", "--profile", wish)
    must(*words)
    assert only(must(*words, "--json"))["playbook"]["status"] == "not needed"
    loaded = inside(rocky, "cat /proc/driver/nvidia/version").stdout
    assert ("580.178.04" in loaded, "Open" in loaded) == (True, True)
    assert inside(rocky, VERSIONS[True]).stdout.split() == ["580.178.04"]
    nothing_newer_comes(rocky)
    assert inside(rocky, "readlink -f /usr/local/cuda").stdout.strip() == "/usr/local/cuda-12.8"
    inside(rocky, "dnf -q versionlock delete libnvidia-ml cuda-toolkit-12-8; dnf -q -y module reset nvidia-driver")
    found = only(gpuprep("drift", f"sim:{rocky}", "--profile", wish, "--json"))
    assert {"driver.held", "driver.stream", "cuda.held"} <= open_findings(found)
    gpuprep("drift", f"sim:{rocky}", "--profile", wish, "--fix")
    found = only(gpuprep("drift", f"sim:{rocky}", "--profile", wish, "--json"))
    assert open_findings(found).isdisjoint({"driver.held", "driver.stream", "cuda.held"})
    assert "stream=580-open" in inside(rocky, "cat /etc/dnf/modules.d/nvidia-driver.module").stdout
    # Locks that dnf is told not to obey are none.
    inside(rocky, "sed -i 's/^enabled.*/enabled = 0/' /etc/dnf/plugins/versionlock.conf")
    found = only(gpuprep("drift", f"sim:{rocky}", "--profile", wish, "--json"))
    assert {"driver.held", "cuda.held"} <= open_findings(found)
    said = gpuprep("drift", f"sim:{rocky}", "--profile", wish, "--fix").text
    assert "enabled=0 in /etc/dnf/plugins/versionlock.conf" in " ".join(said.split())
    inside(rocky, "sed -i 's/^enabled.*/enabled = 1/' /etc/dnf/plugins/versionlock.conf")


@pytest.mark.only_all
@pytest.mark.xdist_group("rocky")
def test_the_other_kernel_modules_of_the_same_version_and_back(rocky: str, tmp_path: Path) -> None:
    """Both have one name in DKMS, and the old package takes the new module away with it when it goes."""
    for flavour in ("proprietary", "open"):
        wish = tmp_path / f"{flavour}.yml"
        wish.write_text(
            PROFILE.format(source="auto", version="580", cuda="none").replace('"580"', f'"580", flavour: {flavour}')
        )
        must("provision", f"sim:{rocky}", "--profile", str(wish))
        loaded = inside(rocky, "cat /proc/driver/nvidia/version; rpm -qa 'kmod-nvidia*'").stdout
        assert ("Open" in loaded, "kmod-nvidia-open-dkms" in loaded) == (flavour == "open",) * 2


# A kernel of an earlier minor release, and where its package is.
OLD_KERNELS = {
    "el9": ("5.14.0-570.12.1.el9_6", "vault/9.6/BaseOS"),
    "el8": ("4.18.0-513.5.1.el8_9", "vault/8.9/BaseOS"),
}


def gets_the_module_of_an_old_kernel(machine: str, dist: str, wish: str) -> None:
    """Somebody chose an old kernel for the next boot: its headers are no longer in the repositories."""
    old, folder = OLD_KERNELS[dist]
    archive = f"file:///usr/lib/gpuprep-sim/archive/{folder}/x86_64/os"
    must("provision", f"sim:{machine}", "--profile", wish)  # it also imports the keys of the repositories
    inside(machine, f"dnf -y -q --repofrompath=old,{archive} install kernel-{old}")
    inside(machine, f"grubby --set-default /boot/vmlinuz-{old}.x86_64")
    found = only(gpuprep("drift", f"sim:{machine}", "--profile", wish, "--json"))
    assert {"driver.next_boot_module"} <= open_findings(found)
    must("provision", f"sim:{machine}", "--profile", wish)
    assert f"{old}.x86_64, x86_64: installed" in inside(machine, "dkms status").stdout
    assert "vault" not in inside(machine, "dnf -q repolist").stdout
    inside(machine, f"dnf -y -q remove kernel-core-{old}")


@pytest.mark.only_all
@pytest.mark.xdist_group("rocky")
def test_a_kernel_that_only_the_vault_has_gets_its_module(rocky: str, tmp_path: Path) -> None:
    gets_the_module_of_an_old_kernel(rocky, "el9", profile(tmp_path, "nvidia", "580"))


@pytest.mark.only_all
def test_a_kernel_that_only_almalinuxs_vault_has_gets_its_module(tmp_path: Path) -> None:
    with fresh("e2e-vault-almalinux8", "almalinux8", ["t4"]) as machine:
        gets_the_module_of_an_old_kernel(machine, "el8", profile(tmp_path, "nvidia", "580"))


@pytest.mark.only_all
@pytest.mark.xdist_group("rocky")
def test_a_package_that_is_no_drivers_is_not_removed_by_dnf(rocky: str, tmp_path: Path) -> None:
    """What somebody else built on the old branch stays; provisioning says so and changes nothing."""
    must("provision", f"sim:{rocky}", "--profile", profile(tmp_path, "nvidia", "580"))
    # Branch 570 has no libnvidia-gpucomp, and a nvidia-driver-cuda of its own.
    for name, needs in {"own-renderer": "libnvidia-gpucomp", "own-tool": "nvidia-driver-cuda"}.items():
        spec = (
            f"Name: {name}\nVersion: 1\nRelease: 1\nSummary: x\nLicense: x\nBuildArch: noarch\n"
            f"Requires: {needs}\n%description\nof somebody else\n%files\n"
        )
        build = "rpmbuild -bb --quiet --define '_rpmdir /tmp' /tmp/own.spec"
        inside(rocky, f"printf '%s' '{spec}' >/tmp/own.spec && {build} && rpm -i /tmp/noarch/{name}-1-1.noarch.rpm")
    refused = gpuprep("provision", f"sim:{rocky}", "--profile", profile(tmp_path, "nvidia", "570"))
    assert refused.exit_code != 0
    assert "would remove own-renderer, which gpuprep did not install" in " ".join(refused.text.split())
    there = inside(
        rocky, "cat /proc/driver/nvidia/version /etc/dnf/plugins/versionlock.list; rpm -q own-renderer"
    ).stdout
    assert "580.178.04" in there
    assert "libnvidia-ml-3:580.178.04-1.el9.*" in there
    inside(rocky, "rpm -e own-renderer")
    must("provision", f"sim:{rocky}", "--profile", profile(tmp_path, "nvidia", "570"))
    assert "own-tool" in inside(rocky, "rpm -q own-tool").stdout


# System, source ► two branches, each with the version that it gets.
SWITCHES = {
    ("debian12", "nvidia"): {"570": "570.211.01", "580": "580.178.04"},
    ("debian13", "nvidia"): {"595": "595.71.05", "610": "610.43.02"},
    ("ubuntu2404", "nvidia"): {"570": "570.211.01", "580": "580.178.04"},
    ("rocky9", "nvidia"): {"570": "570.211.01", "580": "580.178.04"},
    ("ubuntu2604", "nvidia"): {"595": "595.91.07", "610": "610.57.04"},
    ("ubuntu2604", "distribution"): {"580": "580.178.04", "595": "595.91.07"},
    ("ubuntu2204", "distribution"): {"535": "535.288.01", "580": "580.178.04"},
    ("amzn2023", "distribution"): {"570": "570.211.01", "580": "580.178.04"},
    ("amzn2023", "nvidia"): {"570": "570.211.01", "580": "580.178.04"},
    ("rocky8", "nvidia"): {"570": "570.211.01", "580": "580.178.04"},
    ("rocky10", "nvidia"): {"580": "580.178.04", "595": "595.91.07"},
}


@pytest.mark.only_all
@pytest.mark.parametrize("case", SWITCHES, ids=" ".join)
def test_a_branch_and_the_next_and_back_on_each_family(case: tuple[str, str], tmp_path: Path) -> None:
    system, source = case
    branches = SWITCHES[case]
    with fresh(f"e2e-switch-{system}-{source}", system, ["t4"]) as machine:
        apt = not is_rpm(machine)
        if apt:
            inside(machine, "apt-mark hold less")  # somebody else's decision
        for branch in (*branches, *branches):
            is_provisioned(machine, profile(tmp_path, source, branch), branches[branch], "open")
        if apt:
            assert "less" in inside(machine, "apt-mark showhold").stdout.split()


@pytest.mark.only_all
@pytest.mark.parametrize("system", ["debian12", "ubuntu2404", "rocky9"])
def test_all_libraries_of_the_driver(system: str, tmp_path: Path) -> None:
    with fresh(f"e2e-full-{system}", system, ["t4"]) as machine:
        wish = Path(profile(tmp_path, "nvidia", "580"))
        wish.write_text(wish.read_text().replace('version: "580"', 'version: "580", libraries: full'))
        is_provisioned(machine, str(wish), "580.178.04", "open")
        held = inside(machine, FULL[is_rpm(machine)]).stdout.split()
        assert len(held) == 1


@pytest.mark.only_all
def test_a_repository_that_apt_does_not_believe_is_refused_and_not_added(tmp_path: Path) -> None:
    """The archive on the machine itself, as where a proxy is set: what is served by HTTP is that of all machines."""
    proxy = {"http_proxy": "http://127.0.0.1:9"}
    with fresh("e2e-unbelieved", "debian13", ["t4"]) as machine:
        inside(machine, "sed -i s/Origin/0rigin/ /usr/lib/gpuprep-sim/archive/nvidia/debian13/x86_64/InRelease")
        host = ("provision", f"sim:{machine}", "--profile", profile(tmp_path, "nvidia", "595"))
        refused = gpuprep(*host, environment=proxy)
        assert refused.exit_code == 2
        said = " ".join(refused.text.split())
        assert "driver 595: file:///usr/lib/gpuprep-sim/archive/nvidia/debian13/x86_64/ has no" in said
        assert "signature" in said
        assert "gpuprep-nvidia.sources" not in inside(machine, "ls /etc/apt/sources.list.d").stdout


@pytest.mark.parametrize("system", ["ubuntu2404", "rocky9"])
def test_what_somebody_else_holds_is_named_before_anything_is_changed(system: str, tmp_path: Path) -> None:
    """DKMS is held: not installed (apt), or locked in a version that there is not (dnf)."""
    with fresh(f"e2e-held-{system}", system, ["t4"]) as machine:
        rpm = is_rpm(machine)
        lock = "dkms-0:1.0-1.el9.*"
        plugin = "dnf -y -q install python3-dnf-plugin-versionlock"
        hold = f"{plugin}; echo '{lock}' >>/etc/dnf/plugins/versionlock.list"
        inside(machine, hold if rpm else "apt-get -qq update; apt-mark hold dkms; apt-mark showhold | grep -x dkms")
        refused = gpuprep("provision", f"sim:{machine}", "--profile", profile(tmp_path, "nvidia", "580"))
        said = " ".join(refused.text.split())
        assert refused.exit_code == 2
        assert (f"installs: {lock}" if rpm else "somebody holds dkms") in said
        assert (f"sudo dnf versionlock delete '{lock}'" if rpm else "sudo apt-mark unhold dkms") in said
        assert inside(machine, VERSIONS[rpm]).stdout.split() == []


GPG = "-D '__gpg /usr/bin/gpg' -D '_gpg_name other' -D '_gpg_path /root/key'"


def test_packages_that_are_not_signed_as_they_should_be_are_refused_before_anything_is_changed(tmp_path: Path) -> None:
    proxy = {"http_proxy": "http://127.0.0.1:9"}  # the machine then has the repository as files
    packages = "/usr/lib/gpuprep-sim/archive/nvidia/rhel9/x86_64/nvidia-modprobe-*.rpm"
    key = "export GNUPGHOME=/root/key; mkdir -m 700 -p $GNUPGHOME; gpg --batch --passphrase '' --quick-gen-key other"
    another = f"{key}; rpmsign {GPG} --addsign {packages}"
    wish = profile(tmp_path, "nvidia", "580")
    with fresh("e2e-signed-rocky9", "rocky9", ["t4"]) as machine:
        for spoil in (f"rpmsign --delsign {packages}", another):
            inside(machine, spoil)
            inside(machine, "sleep 0.01; touch /root/before")
            refused = gpuprep("provision", f"sim:{machine}", "--profile", wish, environment=proxy)
            assert refused.exit_code == 2
            assert "is not signed with the key of this repository" in " ".join(refused.text.split())
            assert inside(machine, "find /etc /opt /usr -xdev -type f -newer /root/before").stdout == ""


@pytest.mark.only_all
def test_one_source_of_packages_and_the_other_and_back(tmp_path: Path) -> None:
    """Nothing of the source before is left, neither packages nor the pin nor the repository."""
    with fresh("e2e-sources", "ubuntu2404", ["t4"]) as machine:
        for source, exact in (("nvidia", "580.178.04"), ("distribution", "580.173.02"), ("nvidia", "580.178.04")):
            is_provisioned(machine, profile(tmp_path, source, "580"), exact, "open")
            there = inside(machine, f"ls {PIN} /etc/apt/sources.list.d/gpuprep-nvidia.sources 2>/dev/null || true")
            assert len(there.stdout.split()) == (2 if source == "nvidia" else 0)
            own = inside(machine, "dpkg -l | awk '/^.i/ && /nvidia/ {print $2}'").stdout
            assert ("-server" in own) == (source == "distribution")
            if source == "distribution":
                inside(machine, PREBUILT)  # part of a driver: it goes with that driver


# The real compiler of CUDA 13.0, from the Python index, in the place of the stub's. Older ones have no nvcc there.
NVCC = (
    "apt-get -qq update && apt-get -y -qq install g++ python3-venv && python3 -m venv /opt/nvcc &&"
    " /opt/nvcc/bin/pip install --quiet nvidia-cuda-nvcc==13.0.88 nvidia-cuda-crt==13.0.88 nvidia-nvvm==13.0.88"
    " nvidia-cuda-runtime==13.0.96 &&"
    " cp -a /opt/nvcc/lib/python3*/site-packages/nvidia/cu13/. /usr/local/cuda-13.0/ &&"
    " cp -an /usr/local/cuda-13.0/lib/. /usr/local/cuda-13.0/lib64/"
)


@pytest.mark.only_all
def test_a_real_compiler_behind_the_stubs_of_the_toolkit(tmp_path: Path) -> None:
    """In the folders and with the PATH that the roles made for NVIDIA's packages it compiles and links for the GPU."""
    with fresh("e2e-nvcc", "ubuntu2404", ["t4"]) as machine:
        wish = profile(tmp_path, "nvidia", "580", cuda="13.0")
        must("provision", f"sim:{machine}", "--profile", wish)
        question = ("validate", f"sim:{machine}", "--profile", wish, "--only", "toolkit", "--json")

        def compiles() -> str:
            found = only(gpuprep(*question))["findings"]
            (status,) = (f["status"] for f in found if (f["subject"], f["property"]) == ("cuda", "compiles"))
            return str(status)

        assert "stand-in" in inside(machine, "bash -lc 'nvcc --version'").stdout
        inside(machine, NVCC)
        assert compiles() == "PASS"
        assert "V13.0.88" in inside(machine, "bash -lc 'nvcc --version'").stdout


# A driver that is kept, and a change to another one.
CHANGES = rollbackrounds.SYSTEMS
FAMILIES = [pytest.param(name, marks=pytest.mark.xdist_group(f"back-{name}")) for name in CHANGES]


@pytest.fixture(scope="module", params=FAMILIES)
def before(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, str]]:
    """A system, a stopped machine of it with the driver of before, and the profile of that."""
    system = str(request.param)
    with fresh(f"e2e-back-{system}", system, ["t4"]) as machine:
        wish = profile(tmp_path_factory.mktemp("back"), "nvidia", CHANGES[system].old)
        must("provision", f"sim:{machine}", "--profile", wish, "--no-validate")
        must("sim", "down", "--keep", machine)
        yield system, machine, wish


def ends_as_before(before: tuple[str, str, str], moment: str) -> None:
    system, machine, wish = before
    chance = random.Random(f"{system} {moment}")
    assert rollbackrounds.one(f"{machine}-1", machine, system, moment, chance, wish) == []


@pytest.mark.parametrize("before", FAMILIES[:1], indirect=True)
def test_a_change_whose_initramfs_cannot_be_made_ends_as_before(before: tuple[str, str, str]) -> None:
    ends_as_before(before, "initramfs")


@pytest.mark.only_all
@pytest.mark.parametrize("moment", rollbackrounds.MOMENTS + rollbackrounds.OTHERS)
def test_a_change_that_breaks_ends_as_before(before: tuple[str, str, str], moment: str) -> None:
    ends_as_before(before, moment)


@pytest.mark.only_all
@pytest.mark.parametrize("rollback", ["auto", "ask"])
def test_a_driver_that_fails_after_its_restart_is_undone(
    before: tuple[str, str, str], rollback: str, tmp_path: Path
) -> None:
    """With the role: by the host itself, or with `gpuprep rollback`."""
    system, base, old = before
    change, machine = CHANGES[system], f"{base}-2"
    new = tmp_path / "new.yml"
    text = Path(profile(tmp_path, "nvidia", change.new)).read_text()
    new.write_text(text.replace(f'"{change.new}"', f'"{change.new}", rollback: {rollback}'))
    with rollbackrounds.clone(machine, base):
        was = rollbackrounds.state(machine, change)
        rollbackrounds.break_at(machine, change, "after_boot")
        failed = gpuprep("provision", f"sim:{machine}", "--profile", str(new))
        said = " ".join(failed.text.split())
        assert failed.exit_code == 4, said
        assert f"The driver {change.new} does not work after the restart: CUDA does not start" in said
        if rollback == "auto":
            assert f"The host went back to driver {change.old} by itself, and that works." in said
        else:
            assert f"To go back to driver {change.old}: `gpuprep rollback sim:{machine}`" in said
            must("rollback", f"sim:{machine}", "--yes")
        assert rollbackrounds.state(machine, change) == was
        found = only(gpuprep("drift", f"sim:{machine}", "--profile", old, "--json"))
        assert open_findings(found) == ({"driver.change"} if rollback == "auto" else set())
        must("provision", f"sim:{machine}", "--profile", old, "--no-validate")
        assert open_findings(only(must("drift", f"sim:{machine}", "--profile", old, "--json"))) == set()


@pytest.mark.only_all
@pytest.mark.parametrize("cell", CELLS, ids=" ".join)
def test_a_cell_of_the_matrix(cell: tuple[str, str, str, str], tmp_path: Path) -> None:
    system, gpu, source, version = cell
    machine = f"e2e-cell-{list(CELLS).index(cell)}"
    gpus = [gpu.partition("+")[0], *(["nvswitch"] if "+" in gpu else [])]
    with fresh(machine, system, gpus):
        exact, flavour = CELLS[cell]
        wish = profile(tmp_path, source, version)
        is_provisioned(machine, wish, exact, flavour)
        if "+" in gpu:
            fabric = inside(machine, FABRIC[is_rpm(machine)])
            held = "1" if is_rpm(machine) else "hi"
            assert [word.split("-")[0] for word in fabric.stdout.split()] == [held, exact, "active"]
        unheld_is_found(machine, wish)
