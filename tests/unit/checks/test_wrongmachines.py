"""Machines on which gpuprep must not install anything: it says what and what to do, before it changes anything."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from builders import bare_snapshot, finished_snapshot, load, resolved
from places import CASES

from gpuprep import checks, errors, records
from gpuprep.agent.facts import repositories
from gpuprep.desired import state


def refusals(snapshot: records.Snapshot, **wish: Any) -> tuple[str, ...]:
    with pytest.raises(errors.PlanRefused) as caught:
        state.resolve(load("t4", **wish), snapshot)
    assert all("; works: " in reason for reason in caught.value.reasons)
    return caught.value.reasons


@pytest.mark.parametrize(
    ("kind", "says", "works"),
    [
        ("docker", "this is a container (docker)", "on the machine that runs the container"),
        ("systemd-nspawn", "this is a container (systemd-nspawn)", "`gpuprep validate` in here"),
        ("wsl", "Windows Subsystem for Linux", "NVIDIA's driver for Windows"),
    ],
)
def test_a_container_gets_no_driver(kind: str, says: str, works: str) -> None:
    there = dataclasses.replace(bare_snapshot("ubuntu2404"), virtualization=kind, source=records.Source.MEASURED)
    (reason,) = refusals(there)
    assert reason.startswith("host.kernel: ")
    assert says in reason
    assert works in reason.partition("; works: ")[2]
    state.resolve(load("t4"), there, judging=True)  # it is judged all the same


@pytest.mark.parametrize("kind", ["kvm", "amazon", "microsoft", "google", "xen", "none", "unknown"])
def test_a_virtual_machine_is_a_machine(kind: str) -> None:
    state.resolve(
        load("t4"),
        dataclasses.replace(bare_snapshot("ubuntu2404"), virtualization=kind, source=records.Source.MEASURED),
    )


def test_a_simulated_machine_is_one_although_it_is_a_container() -> None:
    state.resolve(load("t4"), dataclasses.replace(bare_snapshot("ubuntu2404"), virtualization="systemd-nspawn"))


@pytest.mark.parametrize(
    ("name", "is_part"),
    [
        ("GRID T4-16Q", True),
        ("NVIDIA A10-24Q", True),
        ("NVIDIA A100-40C", True),
        ("Tesla T4", False),
        ("NVIDIA A100-PCIE-40GB", False),
        ("Tesla V100-SXM2-16GB", False),
    ],
)
def test_a_part_of_a_gpu_is_refused_by_its_name(name: str, is_part: bool) -> None:
    finished = finished_snapshot(resolved("t4", "ubuntu2404"))
    assert isinstance(finished.gpus, tuple)
    there = dataclasses.replace(finished, gpus=(dataclasses.replace(finished.gpus[0], name=name),))
    if not is_part:
        state.resolve(load("t4"), there)
        return
    (reason,) = refusals(there)
    assert reason.startswith(f"host.gpus: {name} is a part of a GPU (vGPU)")


@pytest.mark.parametrize(
    ("system", "source", "entry", "says"),
    [
        ("ubuntu2404", "nvidia", ("cuda-debian12.list", "debian12"), "for debian12, and this is Ubuntu 24.04"),
        ("ubuntu2404", "auto", ("cuda-ubuntu2204.list", "ubuntu2204"), "for ubuntu2204, and this is Ubuntu 24.04"),
        ("ubuntu2404", "auto", ("cuda-ubuntu2404.list", "ubuntu2404"), "driver.source is distribution"),
        ("rocky9", "nvidia", ("cuda-rhel8.repo", "rhel8"), "for rhel8, and this is Rocky Linux 9"),
        ("amzn2023", "nvidia", ("cuda-rhel9.repo", "rhel9"), "for rhel9, and this is Amazon Linux 2023"),
    ],
)
def test_repositories_that_would_mix_are_refused(system: str, source: str, entry: tuple[str, str], says: str) -> None:
    there = dataclasses.replace(
        bare_snapshot(system), nvidia_repositories=(records.NvidiaRepository(f"/x/{entry[0]}", entry[1]),)
    )
    (reason,) = refusals(there, driver={"source": source})
    assert reason.startswith(f"host.sources: /x/{entry[0]} has NVIDIA's repository")
    assert says in reason
    assert f"that entry of /x/{entry[0]}" in reason


@pytest.mark.parametrize(
    ("system", "source", "entry"),
    [
        ("ubuntu2404", "nvidia", ("cuda-ubuntu2404-x86_64.list", "ubuntu2404")),
        ("rocky9", "nvidia", ("cuda-rhel9.repo", "rhel9")),
        ("almalinux8", "nvidia", ("cuda-rhel8.repo", "rhel8")),
        ("amzn2023", "nvidia", ("cuda-amzn2023.repo", "amzn2023")),
        ("debian12", "distribution", ("gpuprep-nvidia.sources", "debian12")),  # gpuprep takes its own away
    ],
)
def test_the_repository_of_this_system_is_none(system: str, source: str, entry: tuple[str, str]) -> None:
    there = bare_snapshot("rocky8" if system == "almalinux8" else system)
    there = dataclasses.replace(there, nvidia_repositories=(records.NvidiaRepository(f"/x/{entry[0]}", entry[1]),))
    state.resolve(load("t4", driver={"source": source}), there)


@pytest.mark.parametrize(
    ("system", "entry", "how", "off"),
    [
        ("amzn2023", ("/etc/yum.repos.d/cuda-amzn2023.repo", "amzn2023"), "gpgcheck=0", "write `enabled=0` into"),
        ("ubuntu2404", ("/etc/apt/sources.list", "ubuntu2404"), "trusted=yes", "write `#` before"),
        ("debian12", ("/etc/apt/sources.list.d/a.sources", "debian12"), "Trusted: yes", "write `Enabled: no` into"),
    ],
)
def test_a_repository_without_signatures_is_refused_and_found(
    system: str, entry: tuple[str, str], how: str, off: str
) -> None:
    """gpuprep's own entry, if somebody changed it, is written again by the role. No file is taken away."""
    there = dataclasses.replace(bare_snapshot(system), nvidia_repositories=(records.NvidiaRepository(*entry, how),))
    (reason,) = refusals(there, driver={"source": "nvidia"})
    assert reason.startswith(f"host.sources: {entry[0]} has NVIDIA's repository with {how}: ")
    assert f"{off} that entry of {entry[0]}" in reason
    assert "provision adds it with NVIDIA's key" in reason
    own = records.NvidiaRepository("/etc/apt/sources.list.d/gpuprep-nvidia.sources", entry[1], how)
    wanted = state.resolve(load("t4", driver={"source": "nvidia"}), bare_snapshot(system))
    for listed, role in ((there.nvidia_repositories, ""), ((own,), "gpu_driver")):
        found = checks.compare(wanted, dataclasses.replace(there, nvidia_repositories=listed))
        (finding,) = [one for one in found if one.key == "driver.repository"]
        assert (finding.status, finding.role) == (records.Status.FAIL, role)
        assert how in finding.reason
        assert finding.remedy.startswith("`gpuprep provision" if role else f"{off} that entry of {entry[0]}; then")


def test_entries_that_are_in_force_are_read(tmp_path: Path) -> None:
    at = "https://developer.download.nvidia.com/compute/cuda/repos"
    apt, dnf = tmp_path / "apt", tmp_path / "yum"
    texts = {
        "apt/sources.list": f"deb {at}/ubuntu2404/x86_64/ /\n# deb {at}/ubuntu2204/x86_64/ /\n",
        "apt/sources.list.d/a.sources": f"Types: deb\nURIs: {at}/debian12/x86_64/\nSuites: /\n\n"
        f"Enabled: no\nURIs: {at}/debian13/x86_64/\n",
        "apt/sources.list.d/b.list.save": f"deb {at}/debian11/x86_64/ /\n",
        "apt/sources.list.d/c.list": "deb [signed-by=/x] https://own.example/cuda/repos/ubuntu2404/x86_64/ /\n",
        "yum/cuda.repo": f"[a]\nbaseurl={at}/rhel9/x86_64\n[b]\nenabled=0\nbaseurl={at}/rhel8/x86_64\n",
        "yum/broken.repo": f"baseurl={at}/fedora42/x86_64\n",
    }
    for name, text in texts.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = [(Path(entry.file).name, entry.system) for entry in repositories.nvidia(apt, dnf)]
    assert found == [
        ("sources.list", "ubuntu2404"), ("a.sources", "debian12"), ("c.list", "ubuntu2404"), ("cuda.repo", "rhel9"),
    ]  # fmt: skip
    assert repositories.nvidia(tmp_path / "none", tmp_path / "none") == ()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sources.list", "deb [trusted=yes] {at}/{system}/x86_64 /\n# deb-src [trusted=yes] {at}/{system}/x86_64 /\n"),
        ("sources.list.d/archive_uri-https_nvidia-x.list", "deb [trusted=yes] {at}/{system}/x86_64 /\n"),
        ("sources.list.d/x.sources", "Types: deb\nURIs: {at}/{system}/x86_64\nSuites: /\nTrusted: yes\n"),
    ],
)
@pytest.mark.parametrize("system", ["ubuntu2404", "ubuntu2604"])
def test_what_the_guide_of_aws_for_efa_writes_beside_the_keyring_is_found(
    tmp_path: Path, name: str, text: str, system: str
) -> None:
    """add-apt-repository 'deb [trusted=yes] ...': the signed entry of the keyring is worth nothing beside it."""
    at = "https://developer.download.nvidia.com/compute/cuda/repos"
    signed = f"deb [signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg] {at}/{system}/x86_64/ /\n"
    for path, content in ((name, text.format(at=at, system=system)), ("sources.list.d/cuda.list", signed)):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(content)
    entries = repositories.nvidia(tmp_path, tmp_path / "none")
    how = {entry.file: entry.unverified.lower().replace(": ", "=") for entry in entries}
    assert how == {str(tmp_path / name): "trusted=yes", str(tmp_path / "sources.list.d/cuda.list"): ""}
    there = dataclasses.replace(bare_snapshot("ubuntu2404"), nvidia_repositories=entries)
    assert any(f"{tmp_path / name} has NVIDIA's repository with" in reason for reason in refusals(there))


def test_the_hand_made_repository_of_a_public_report_is_refused() -> None:
    (entry,) = repositories.nvidia(CASES / "none", CASES / "public/12-amzn-module-stream")
    assert (entry.system, entry.unverified) == ("amzn2023", "gpgcheck=0")
    there = dataclasses.replace(bare_snapshot("amzn2023"), nvidia_repositories=(entry,))
    (reason,) = refusals(there, driver={"source": "nvidia", "version": "580"})
    assert f"{entry.file} has NVIDIA's repository with gpgcheck=0" in reason


@pytest.mark.parametrize(
    ("name", "text", "settings", "how"),
    [
        ("a.list", "deb [signed-by=/k arch=amd64] {} /", "", ""),
        ("a.list", "deb [ trusted = yes ] {} /", "", "trusted = yes"),
        ("a.list", "deb [allow-downgrade-to-insecure=yes] {} /", "", "allow-downgrade-to-insecure=yes"),
        ("a.list", "deb [trusted=no] {} / # trusted=yes", "", ""),
        ("a.sources", "Types: deb\nURIs: {}\nSuites: /\nAllow-Insecure: true", "", "Allow-Insecure: true"),
        ("a.sources", "Types: deb\nURIs: {}\n\nURIs: http://x/\nTrusted: yes", "", ""),
        ("a.repo", "[a]\nbaseurl={}\ngpgcheck=1", "[main]\ngpgcheck=0", ""),
        ("a.repo", "[a]\nbaseurl={}\ngpgcheck = False", "[main]\ngpgcheck=1", "gpgcheck=0"),
        ("a.repo", "[a]\nbaseurl={}", "[main]\ngpgcheck=1", ""),
        ("a.repo", "[a]\nbaseurl={}", "[main]", "no gpgcheck=1, there or in "),  # dnf's own default
    ],
)  # fmt: skip
def test_how_an_entry_turns_the_check_of_signatures_off(
    tmp_path: Path, name: str, text: str, settings: str, how: str
) -> None:
    path, conf = tmp_path / ("yum" if name.endswith(".repo") else "apt/sources.list.d") / name, tmp_path / "dnf.conf"
    path.parent.mkdir(parents=True)
    path.write_text(text.format("https://mirror.example/compute/cuda/repos/rhel9/x86_64/") + "\n")
    conf.write_text(f"{settings}\n")
    (entry,) = repositories.nvidia(tmp_path / "apt", tmp_path / "yum", conf)
    assert entry.unverified == (f"{how}{conf}" if how.endswith(" in ") else how)


@pytest.mark.parametrize(
    ("os", "says"),
    [
        (
            records.OsFacts("ubuntu", "26.10", "x", "Ubuntu 26.10", "x86_64"),
            "unsupported OS ubuntu 26.10 (Ubuntu 26.10)",
        ),
        (
            records.OsFacts("debian", "", "forky", "Debian GNU/Linux forky/sid", "x86_64"),
            "unsupported OS debian (Debian",
        ),
        (records.OsFacts("rocky", "11.1", "", "Rocky Linux 11.1", "x86_64"), "unsupported OS rocky 11.1"),
        (records.OsFacts("amzn", "2", "", "Amazon Linux 2", "x86_64"), "unsupported OS amzn 2"),
        (records.OsFacts("ubuntu", "24.04", "noble", "Ubuntu 24.04", "ppc64le"), "unsupported architecture ppc64le"),
        (records.OsFacts("amzn", "2023", "", "Amazon Linux 2023", "aarch64"), "unsupported architecture aarch64"),
    ],
)
def test_a_system_that_gpuprep_does_not_know_is_refused_by_its_name(os: records.OsFacts, says: str) -> None:
    reasons = refusals(dataclasses.replace(bare_snapshot("ubuntu2404"), os=os))
    assert [reason for reason in reasons if reason.startswith("host.os: ") and says in reason]


@pytest.mark.parametrize(("free", "is_refused"), [(40, True), (500, False)])
def test_a_boot_disk_without_room_for_an_initramfs_is_refused(free: int, is_refused: bool) -> None:
    bare = bare_snapshot("rocky9")
    mounts = (*bare.mounts, records.Mount("/dev/vda2", "/boot", "ext4"))
    there = dataclasses.replace(bare, mounts=mounts, disk_free_mib={**bare.disk_free_mib, "/boot": free})
    if is_refused:
        (reason,) = refusals(there)
        assert reason.startswith("host.disk: /boot has 40 MiB free, and driver and its initramfs need 100 MiB")
        assert "dnf remove --oldinstallonly" in reason
    else:
        assert state.resolve(load("t4"), there).min_free_mib["/boot"] == 100
    installed = finished_snapshot(state.resolve(load("t4"), bare), there)
    assert "/boot" not in state.resolve(load("t4"), installed).min_free_mib
