"""Hostile names: HOST arguments, and what a dynamic inventory passes on from a cloud's tags. One line, exit code 2."""

from __future__ import annotations

import json
import os
import pwd
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fakeprograms
import pytest

from gpuprep import errors
from gpuprep.workflows import runs, schedule, targets

BIDI, ZERO_WIDTH = "\u202e", "\u200b"

HOSTS = {
    "option": "-oProxyCommand=id",
    "option_after_user": "root@-oProxyCommand=id",
    "option_as_user": "-oProxyCommand=id@gpu1",
    "option_in_brackets": "[-oProxyCommand=id]",
    "template": "{{lookup('pipe','id')}}",
    "template_in_user": "{{x}}@gpu1",
    "statement": "{%x%}",
    "newline_at_end": "gpu1\n",
    "newline_inside": "gpu1\ngpu2",
    "newline_after_port": "gpu1:22\n",
    "nul": "gpu1\0",
    "escape": "gpu1\x1b[2J",
    "c1_escape": "gpu1\x9b2J",
    "bidi": f"gpu1{BIDI}moc",
    "zero_width": f"gpu{ZERO_WIDTH}1",
    "no_break_space": "gpu1\u00a0",
    "surrogate": "gpu1\ud800",
    "too_long": "g" * 256,
    "shell_substitution": "$(id)",
    "shell_backticks": "`id`",
    "shell_pipe": "gpu1|id",
    "shell_semicolon": "gpu1;id",
    "quote": "gpu1'",
    "arabic_port": "gpu1:\u0662\u0662",
    "huge_port": "gpu1:" + "9" * 5000,
    "simulated_escape": "sim:\x1b[2J",
    "simulated_shell": "sim:$(id)",
    "v6_newline": "2001:db8::1\n",
}


@pytest.mark.parametrize("text", HOSTS.values(), ids=HOSTS)
def test_a_host_that_is_no_name(text: str) -> None:
    one_clear_line(lambda: targets.parse([text]))


@pytest.mark.parametrize("text", ["CORP\\alice@gpu1", "b\u00fcro-gpu", "gpu_1", "a@b@gpu1:22"[2:]])
def test_names_that_are_unusual_still_work(text: str) -> None:
    assert targets.parse([text])[0].name == text


def one_clear_line(parse: Any) -> errors.UsageError:
    with pytest.raises(errors.UsageError) as caught:
        parse()
    error = caught.value
    assert error.exit_code == 2
    assert error.hint
    assert len(error.what) < 500
    assert error.what.replace("\n", " ").isprintable()
    assert "\n" not in error.what
    return error


HOST_VARIABLES: dict[str, dict[str, Any]] = {
    "address_is_option": {"ansible_host": "-oProxyCommand=id"},
    "old_address_is_option": {"ansible_ssh_host": "-oProxyCommand=id"},
    "address_is_template": {"ansible_host": "{{ lookup('pipe', 'id') }}"},
    "address_is_statement": {"ansible_host": "{% if 1 %}x{% endif %}"},
    "address_is_list": {"ansible_host": ["gpu1"]},
    "address_is_dict": {"ansible_host": {"a": 1}},
    "address_is_true": {"ansible_host": True},
    "address_with_newline": {"ansible_host": "gpu1\ngpu2"},
    "address_with_shell": {"ansible_host": "$(id)"},
    "user_is_option": {"ansible_user": "-oProxyCommand=id"},
    "user_is_template": {"ansible_user": "{{ x }}"},
    "user_with_shell": {"ansible_user": "`id`"},
    "user_ends_in_backslash": {"ansible_user": "root\\"},
    "user_is_bidi": {"ansible_user": f"ro{BIDI}ot"},
    "key_is_option": {"ansible_ssh_private_key_file": "-oProxyCommand=id"},
    "key_is_template": {"ansible_private_key_file": "{{ x }}"},
    "key_with_nul": {"ansible_ssh_private_key_file": "/k\0"},
    "key_is_endless": {"ansible_ssh_private_key_file": "/" + "k" * 5000},
    "port_is_option": {"ansible_port": "22 -oProxyCommand=id"},
    "port_is_negative": {"ansible_port": -1},
    "port_is_zero": {"ansible_port": "0"},
    "port_is_beyond": {"ansible_port": 65536},
    "port_is_superscript": {"ansible_port": "\u00b2\u00b2"},
    "port_is_huge": {"ansible_port": "9" * 5000},
    "port_is_list": {"ansible_port": [22]},
    "variable_is_template": {"gpu_codec_prefix": "{{ lookup('pipe', 'id') }}"},
    "variable_holds_template": {"gpu_tuning_models": {"1eb8": [{"memory_mhz": "{{ lookup('pipe', 'id') }}"}]}},
    "variable_key_is_template": {"gpu_tuning_models": {"{{ lookup('pipe', 'id') }}": 1}},
    "variable_is_statement": {"gpu_codec_prefix": "{% set x = 1 %}"},
    "variable_is_deep": {"gpu_extras_packages": json.loads("[" * 60 + "]" * 60)},
    "variable_is_half_a_letter": {"gpu_codec_prefix": "/opt/\ud800"},
    "variable_is_vaulted": {"gpu_codec_prefix": {"__ansible_vault": "$ANSIBLE_VAULT;1.1;AES256\n00"}},
}


@pytest.mark.parametrize("variables", HOST_VARIABLES.values(), ids=HOST_VARIABLES)
def test_an_inventory_whose_variables_are_hostile(
    variables: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, tmp_path, "gpu1", variables)
    error = one_clear_line(lambda: targets.parse(["all"], "x,"))
    assert "gpu1" in error.what


NAMES = [
    "-oProxyCommand=id",
    "{{lookup('pipe','id')}}",
    "gpu\x1b[2J",
    f"gpu{BIDI}1",
    "g" * 300,
    "gpu;id",
    "$(id)",
    "@-oX",
]


@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_an_inventory_with_a_hostile_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, tmp_path, name, {})
    one_clear_line(lambda: targets.parse(["all"], "x,"))


def answers(monkeypatch: pytest.MonkeyPatch, folder: Path, name: str, variables: dict[str, Any]) -> None:
    """What Ansible's own programs would say of such an inventory."""
    say(monkeypatch, folder, [name], json.dumps({"_meta": {"hostvars": {name: variables}}}))


def say(monkeypatch: pytest.MonkeyPatch, folder: Path, names: list[str], listing: str) -> None:
    """Stand-ins for Ansible's programs lie beside what is now this Python."""
    hosts = f"  hosts ({len(names)}):\n" + "".join(f"    {name}\n" for name in names)
    for name, said in (("ansible", hosts), ("ansible-inventory", listing)):
        (folder / f"{name} says").write_text(said)
        fakeprograms.program(folder / name, 'cat "$0 says"')
    monkeypatch.setattr(sys, "executable", str(folder / "python"))


DOCUMENTS = {
    "no_json": "{",
    "deep": '{"_meta": {"hostvars": ' + "[" * 100_000 + "]" * 100_000 + "}}",
    "list": "[]",
    "no_meta": "{}",
    "hostvars_is_text": '{"_meta": {"hostvars": "x"}}',
    "host_is_number": '{"_meta": {"hostvars": {"gpu1": 1}}}',
    "huge_number": '{"_meta": {"hostvars": {"gpu1": {"ansible_port": ' + "9" * 5000 + "}}}}",
}


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS)
def test_an_inventory_that_is_no_inventory(document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    say(monkeypatch, tmp_path, ["gpu1"], document)
    one_clear_line(lambda: targets.parse(["all"], "x,"))


@pytest.mark.parametrize("key", ["gpu_preflight_package_manager", "gpu_driver_state", "gpu_agent_package"])
def test_what_the_roles_keep_for_themselves_is_not_taken(
    key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers(monkeypatch, tmp_path, "gpu1", {key: "../../../../tmp/evil"})
    with pytest.raises(errors.UsageError, match=f"{key} is no variable of gpuprep"):
        targets.parse(["all"], "x,")


@pytest.mark.parametrize("pattern", ["--ask-pass", "-e@/etc/passwd", "{{ x }}", "a\nb", "a\0b"], ids=ascii)
def test_patterns_are_no_options_of_ansible(pattern: str) -> None:
    one_clear_line(lambda: targets.parse([pattern], "gpu1,"))


def test_an_inventory_without_end_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "MOST_BYTES", 1 << 20)
    fakeprograms.program(tmp_path / "ansible-inventory", "exec yes")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(errors.UsageError, match="larger than 1 MiB"):
        targets._host_variables("x,")


def test_one_hostile_name_of_a_fleet_is_that_hosts_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cloud's tag names one machine; the others must be seen all the same."""
    names = ["gpu1", "-oProxyCommand=id", "gpu2"]
    listing = json.dumps({"_meta": {"hostvars": {"gpu2": {"ansible_host": "{{ lookup('pipe', 'id') }}"}}}})
    say(monkeypatch, tmp_path, names, listing)
    (tmp_path / "hosts").write_text("")
    found = {target.name: target.refused for target in targets.parse(["all"], str(tmp_path / "hosts"))}
    assert list(found) == ["gpu1", "'-oProxyCommand=id'", "'gpu2'"]
    assert found["gpu1"] == ""
    assert "begins with a dash" in found["'-oProxyCommand=id'"]
    assert "template" in found["'gpu2'"]
    bad = next(target for target in targets.parse(["all"], str(tmp_path / "hosts")) if target.refused)
    line = runs.RunContext(lambda *_: None, None, lambda: False)
    record = schedule.last(bad, runs.Options(), line)
    assert record.exit_code == 3
    assert "begins with a dash" in (record.error or "")


# ---------------------------------------------------------------- what Ansible runs of an inventory

PROGRAM = """#!/bin/sh
echo '{"_meta": {"hostvars": {}}, "all": {"hosts": ["gpu1"]}}'
: > "$PROOF"
"""
SETTINGS = "plugin: ansible.builtin.constructed\nstrict: false\ncompose:\n  x: \"lookup('pipe', 'id')\"\n"
NOBODY = pwd.getpwnam("nobody").pw_uid
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user")


def program(path: Path, text: str = PROGRAM) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755 if text == PROGRAM else 0o644)
    return path


def in_an_open_folder(place: Path) -> tuple[Path, str]:
    place.chmod(0o777)
    return program(place / "inventory"), f"everybody may write to {place}"


def below_an_open_folder(place: Path) -> tuple[Path, str]:
    place.chmod(0o777)
    return program(place / "a/b/inventory"), f"everybody may write to {place}"


def open_itself(place: Path) -> tuple[Path, str]:
    made = program(place / "inventory")
    made.chmod(0o757)
    return made, f"everybody may write to {made}"


def an_open_folder(place: Path) -> tuple[Path, str]:
    (place / "hosts").write_text("gpu1\n")
    place.chmod(0o777)
    return place, f"everybody may write to {place}"


def of_a_user(place: Path) -> tuple[Path, str]:
    made = program(place / "inventory")
    os.chown(made, NOBODY, -1)
    return made, f"{made} belongs to nobody"


def below_a_users_folder(place: Path) -> tuple[Path, str]:
    made = program(place / "a/b/inventory")
    os.chown(place / "a", NOBODY, -1)
    return made, f"{place / 'a'} belongs to nobody"


def behind_a_users_link(place: Path) -> tuple[Path, str]:
    (place / "link").symlink_to(program(place / "inventory"))
    os.lchown(place / "link", NOBODY, -1)
    return place / "link", f"the link {place / 'link'} belongs to nobody"


def a_users_program_among_others(place: Path) -> tuple[Path, str]:
    (place / "hosts").write_text("gpu1\n")
    made = program(place / "more/clouds")
    os.chown(made, NOBODY, -1)
    return place, f"{made} belongs to nobody"


def a_users_settings_of_a_plugin(place: Path) -> tuple[Path, str]:
    made = program(place / "cloud.yml", SETTINGS)
    os.chown(made, NOBODY, -1)
    return made, f"{made} belongs to nobody"


@pytest.mark.parametrize(
    "attack",
    [
        in_an_open_folder, below_an_open_folder, open_itself, an_open_folder,
        *[pytest.param(attack, marks=root_only) for attack in (
            of_a_user, below_a_users_folder, behind_a_users_link, a_users_program_among_others,
            a_users_settings_of_a_plugin,
        )],
    ],
)  # fmt: skip
def test_a_program_that_another_user_can_change_is_not_run(
    attack: Callable[[Path], tuple[Path, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PROOF", str(tmp_path / "ran"))
    place = tmp_path / "place"
    place.mkdir()
    inventory, why = attack(place)
    error = one_clear_line(lambda: targets.parse([], str(inventory)))
    assert why in error.what
    assert error.hint.partition("then: ")[2].split()[0] in ("chmod", "chown", "rm")
    assert not (tmp_path / "ran").exists()


def test_ones_own_program_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that a group shares, and hosts that somebody else wrote down: they run nothing."""
    monkeypatch.setenv("PROOF", str(tmp_path / "ran"))
    shared = program(tmp_path / "team/inventory")
    shared.parent.chmod(0o775)
    assert [target.name for target in targets.parse([], str(shared))] == ["gpu1"]
    assert (tmp_path / "ran").exists()
    plain = program(tmp_path / "open/hosts", "gpu2\n")
    plain.parent.chmod(0o777)
    assert [target.name for target in targets.parse([], str(plain))] == ["gpu2"]
