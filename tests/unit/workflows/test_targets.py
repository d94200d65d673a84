"""HOST arguments, and patterns matched by the real ansible."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import amount
import pytest
from places import TESTS

from gpuprep import errors, remote
from gpuprep.workflows import targets


@pytest.mark.parametrize(
    ("text", "address", "port", "user"),
    [
        ("web1", "web1", 22, None),
        ("gpu-1.example.org", "gpu-1.example.org", 22, None),
        ("10.0.0.7:2222", "10.0.0.7", 2222, None),
        ("debian@web1", "web1", 22, "debian"),
        ("debian@web1:2200", "web1", 2200, "debian"),
        ("[2001:db8::1]:2222", "2001:db8::1", 2222, None),
        ("root@[2001:db8::1]", "2001:db8::1", 22, "root"),
        ("[fe80::1%eth0]:22", "fe80::1%eth0", 22, None),
        ("2001:db8::1", "2001:db8::1", 22, None),
        ("debian@::1", "::1", 22, "debian"),
    ],
)
def test_forms_of_a_host(text: str, address: str, port: int, user: str | None) -> None:
    (target,) = targets.parse([text])
    assert (target.name, target.address, target.port, target.user) == (text, address, port, user)
    assert not target.local


@pytest.mark.parametrize(
    "text", ["", "a b", "web1:ssh", "web1:", "@web1", "-oProxyCommand=x", "[::1", "web1:0", "w:65536"]
)
def test_what_is_no_host(text: str) -> None:
    with pytest.raises(errors.UsageError) as caught:
        targets.parse([text])
    assert caught.value.hint


def test_local_and_unknown_simulated_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (target,) = targets.parse(["local"])
    assert target.local
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(errors.SimError):
        targets.parse(["sim:no-such-machine"])


def test_a_host_named_twice_is_one() -> None:
    assert [target.name for target in targets.parse(["a", "b", "a"])] == ["a", "b"]


def test_limit_needs_an_inventory() -> None:
    with pytest.raises(errors.UsageError, match="--limit"):
        targets.parse(["a"], limit="b")


def test_the_key_of_the_command_line_goes_to_all_but_local(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.touch()
    far, near = targets.parse(["a", "local"], ssh_key=str(key))
    assert (far.identity_file, near.identity_file) == (str(key), None)
    with pytest.raises(errors.UsageError, match="--ssh-key /nowhere: there is no such file"):
        targets.parse(["a"], ssh_key="/nowhere")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        amount.case(("tab.yml", "all:\n\thosts: {}\n", "line 2: YAML parsing failed: Tabs"), True),
        amount.case(("list.yml", "all:\n  hosts: [a, b]\n", 'Invalid "hosts" entry for "all" group'), False),
        amount.case(("group.ini", "[gpu:foo]\na\n", "Section [gpu:foo] has unknown type: foo"), False),
    ],
)
def test_what_is_wrong_with_an_inventory_is_in_the_error(name: str, text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(errors.UsageError) as caught:
        targets.parse(["all"], str(tmp_path / name))
    assert caught.value.what.startswith(f"inventory {tmp_path / name}: {said}")


def test_a_pipe_is_no_inventory(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(errors.UsageError, match="is no regular file"):
        targets.parse(["all"], str(tmp_path / "pipe"))


@pytest.fixture
def inventory(tmp_path: Path) -> str:
    (tmp_path / "hosts.yml").write_text(
        textwrap.dedent(
            """
            all:
              children:
                t4s:
                  hosts:
                    gpu1: {ansible_host: 10.0.0.1, ansible_port: 2222, ansible_user: debian}
                    gpu2:
                      ansible_ssh_private_key_file: /keys/gpu2
                      ansible_become_password: hunter2
                      ansible_password: hunter2
                v100s:
                  hosts:
                    gpu3: {ansible_ssh_host: 10.0.0.3, ansible_ssh_user: root, ansible_ssh_common_args: -J bastion}
                    here: {ansible_connection: local}
            """
        )
    )
    (tmp_path / "group_vars").mkdir()
    (tmp_path / "group_vars/t4s.yml").write_text("gpu_profile: t4\nother: 1\n")
    return str(tmp_path / "hosts.yml")


def test_inventory_variables_become_targets(inventory: str) -> None:
    notes: list[str] = []
    gpu1, gpu2, gpu3, here = targets.parse(["all"], inventory, note=notes.append)
    assert gpu1 == remote.Target("gpu1", address="10.0.0.1", port=2222, user="debian", profile="t4")
    assert gpu3.profile == ""
    assert (gpu2.address, gpu2.identity_file) == ("gpu2", "/keys/gpu2")
    assert (gpu3.address, gpu3.user) == ("10.0.0.3", "root")
    assert here.local
    assert "hunter2" not in repr(gpu2)
    assert "hunter2" not in "".join(notes)
    assert [note.split()[:2] for note in notes] == [
        ["gpu2:", "ansible_become_password"], ["gpu2:", "ansible_password"], ["gpu3:", "ansible_ssh_common_args"]
    ]  # fmt: skip
    assert "gpuprep logs in with keys alone" in notes[1]


def test_a_variable_of_gpuprep_that_does_nothing_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "hosts.ini"
    file.write_text("[t4s]\nweb1\nweb2 gpu_tuning_power_limit_watts=60\n[t4s:vars]\ngpu_profile=fleet/t4.yml\n")
    web1, web2 = targets.parse([], str(file))
    assert (web1.profile, web1.refused) == ("fleet/t4.yml", "")
    assert "gpu_tuning_power_limit_watts is no variable of gpuprep; allowed is gpu_profile" in web2.refused
    for wrong in ("gpu_profil", "gpu_driver_version", "gpu_codec_npp"):
        file.write_text(f"web1 {wrong}=1\n")
        with pytest.raises(errors.UsageError, match=f"web1: {wrong} is no variable of gpuprep"):
            targets.parse([], str(file))
    file.write_text("web1 gpu_count=4\nweb2 gpu_count=8\n")
    notes: list[str] = []
    targets.parse([], str(file), note=notes.append)
    assert notes == ["gpu_count of the inventory is not used: gpuprep reads gpu_profile alone"]
    for bad in ('"{{ x }}"', "True"):
        file.write_text(f"web1 gpu_profile={bad}\n")
        with pytest.raises(errors.UsageError, match="web1: gpu_profile"):
            targets.parse([], str(file))


def test_patterns_are_ansibles_own(inventory: str) -> None:
    names = [target.name for target in targets.parse(["t4s", "v100s"], inventory, "all:!here:!gpu1")]
    assert names == ["gpu2", "gpu3"]


def test_a_private_key_is_no_inventory_and_the_option_for_keys_is_named(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"  # `-i` is ssh's option for it
    for begin in ("-----BEGIN OPENSSH PRIVATE KEY-----", "-----BEGIN RSA PRIVATE KEY-----"):
        key.write_text(f"{begin}\nAAAA\n", encoding="ascii")
        with pytest.raises(errors.UsageError) as caught:
            targets.parse(["web1"], str(key))
        assert "is a private SSH key" in caught.value.what
        assert caught.value.hint == f"--ssh-key {key}"


def test_inventories_that_do_not_help(inventory: str, tmp_path: Path) -> None:
    with pytest.raises(errors.UsageError, match=r"no host of .* matches nosuch"):
        targets.parse(["nosuch"], inventory)
    with pytest.raises(errors.UsageError, match="there is no inventory"):
        targets.parse(["all"], str(tmp_path / "nothere.yml"))
    template = tmp_path / "template.yml"
    template.write_text("all: {hosts: {gpu1: {ansible_host: '{{ x }}'}}}\n")
    with pytest.raises(errors.UsageError, match="template"):
        targets.parse(["all"], str(template))


def test_what_is_no_address_is_an_error_of_its_host_alone(tmp_path: Path) -> None:
    """It was an error inside gpuprep: fabric takes an address apart, too."""
    hosts = {
        "gpu1": ("ansible_host: 'sim:h60'", "'sim:h60' is not an address; give a port as ansible_port"),
        "gpu2": ("ansible_host: '192.0.2.7:2222'", "'192.0.2.7:2222' is not an address; give a port as ansible_port"),
        "gpu3": ("ansible_host: ann@192.0.2.7, ansible_user: ben", "names a user, and so does ansible_user"),
        "gpu4": ("ansible_host: 192.0.2.8", ""),
    }
    file = tmp_path / "hosts.yml"
    file.write_text("all:\n  hosts:\n" + "".join(f"    {name}: {{{said}}}\n" for name, (said, _) in hosts.items()))
    *refused, good = targets.parse([], str(file))
    for one, (name, (_, words)) in zip(refused, hosts.items(), strict=False):
        assert one.refused.startswith(f"host {name}: ")
        assert words in one.refused
    assert len(refused) == 3
    assert (good.refused, good.address) == ("", "192.0.2.8")


def test_a_simulated_machine_of_an_inventory_that_does_not_run_is_an_error_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That one which runs is reached is tried with sixty by hand."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    file = tmp_path / "hosts.yml"
    file.write_text("all:\n  hosts:\n    sim:gone: {}\n    gpu2: {ansible_host: 192.0.2.8}\n")
    refused, good = targets.parse([], str(file))
    assert "no simulated VM 'gone'" in refused.refused
    assert (good.refused, good.address) == ("", "192.0.2.8")


# Inventories that people published, hosts replaced: host, port, user, key; what is said of variables that are not used.
PUBLIC = (
    ("deepops-like", {"virtual-login01": (41735, "debian", None), "virtual-gpu01": (41735, "debian", None)},
     ["virtual-gpu01: ansible_password of the inventory is not used; gpuprep logs in with keys alone",
      "virtual-gpu01: ansible_become_password of the inventory is not used; --ask-become-pass does the same"]),
    ("oci-jump", {"hpc-bastion": (41735, "debian", "/keys/id_ed25519"),
                  "inst-abcde-hpc": (41735, "debian", "/keys/id_ed25519")},
     ["inst-abcde-hpc: ansible_ssh_common_args of the inventory is not used; ~/.ssh/config does the same"]),
    ("yaml-like.yml", {"gpu-node-1": (41735, "debian", "/keys/id_ed25519")},
     ["gpu-node-1: ansible_become_password of the inventory is not used"]),
)  # fmt: skip


@pytest.mark.parametrize(("name", "hosts", "says"), PUBLIC, ids=[row[0] for row in PUBLIC])
def test_inventories_that_people_published(
    name: str, hosts: dict[str, tuple[int, str, str | None]], says: list[str]
) -> None:
    notes: list[str] = []
    found = targets.parse([], str(TESTS / "cases" / "public" / "inventories" / name), note=notes.append)
    assert {target.name: (target.port, target.user, target.identity_file) for target in found} == hosts
    assert {target.address for target in found} == {"127.0.0.1"}
    assert [words for words in says if not any(words in note for note in notes)] == [], notes
    assert not any("your_sudo_password" in note or "vagrant" in note for note in notes)
