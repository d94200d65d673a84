"""A host is one host whatever it is called, and no host takes the history of another by what it says of itself."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import random
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from certifiedhosts import KEYS, LAME, WHOLE, Life, history, identity_of, living, machine, statuses
from finishedt4 import real

from gpuprep import records
from gpuprep.checks.drift import samehost
from gpuprep.store import Store

MINE = machine(WHOLE)
pytestmark = pytest.mark.xdist_group("store")


@pytest.fixture
def life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Life]:
    with living(tmp_path, monkeypatch) as made:
        yield made


# ---------------------------------------------------------------- one host, several names


def test_a_host_has_one_history_under_all_its_names(life: Life) -> None:
    certified = life.validate(MINE, "sim:t4", "a")
    assert history(certified).notes == ()
    fault = life.drift(machine(LAME), "debian@127.0.0.1:59423", "a")
    assert fault.drift is not None
    assert fault.drift.certified_run == certified.run_id
    assert statuses(fault) == {"gpu 0.pcie": records.Status.FAIL}
    assert history(fault).also_called == ("sim:t4",)
    assert "debian@127.0.0.1:59423 is the host that is also called sim:t4" in history(fault).notes[0]
    passed = life.validate(machine(LAME), "node7", "a", probes=("facts",))
    assert history(passed).certifies is False
    assert "whose FAIL is still open: gpu 0.pcie" in history(passed).notes[-1]
    again = life.drift(machine(LAME), "sim:t4", "a")
    assert again.drift is not None
    assert (again.drift.certified_run, again.drift.previous_run) == (certified.run_id, fault.run_id)
    assert history(again).notes == (), "it is told once"
    names = ["sim:t4", "debian@127.0.0.1:59423", "node7"]
    for name in names:
        assert sorted(life.store.names_of(name)) == sorted(names)
        assert life.held_to(name) == certified.run_id
        assert len(life.store.runs(name)) == 4
        assert len(list(life.store.export_records(name))) == 4
    life.choose("last", "node7", reason="it is so")
    assert {life.held_to(name) for name in names} == {passed.run_id}
    life.store.clear_baseline("sim:t4")
    assert {life.held_to(name) for name in names} == {certified.run_id}


def test_figures_and_the_baseline_follow_the_host(life: Life) -> None:
    seen = dataclasses.replace(MINE, source=records.Source.MEASURED)
    life.probes = real(quick=True)
    life.validate(seen, "one", "a", quick=True)
    life.probes = real(0.8, quick=True)
    slow = life.drift(seen, "two", "a", probe="quick")
    assert statuses(slow)["gpu 0.gemm_history"] is records.Status.FAIL
    assert life.store.figures("one", "") == life.store.figures("two", "")
    assert life.store.baseline_of("one") == life.store.baseline_of("two")


def test_keys_of_several_kinds_are_of_one_host(life: Life) -> None:
    """known_hosts may know another of its keys under each name: each answer is proven by another key."""
    life.validate(machine(WHOLE, keys="ab"), "one", "a")
    other = life.validate(machine(WHOLE, keys="ab"), "two", "b")
    assert history(other).also_called == ("one",)


def test_this_computer_itself_is_one_of_the_names(life: Life) -> None:
    life.validate(machine(WHOLE, keys="ab"), "gpu-7", "b")
    here = life.validate(machine(WHOLE, keys="ab"))
    assert history(here).also_called == ("gpu-7",)


def test_a_host_that_gets_its_driver_later_is_joined_then() -> None:
    """A bare machine shows no GPU; machine id, hardware and key are the same."""
    bare = dataclasses.replace(MINE, gpus=records.Missing("driver_not_loaded", "no"))
    one, two, no = (samehost.of(one, KEYS["a"]) for one in (MINE, bare, machine(bare, hardware=None)))
    assert samehost.same_host(one, two)
    assert not samehost.same_host(one, no), "nothing of its hardware is known"


# ---------------------------------------------------------------- told apart


OTHERS: dict[str, tuple[records.Snapshot, str, str]] = {
    "a clone with the keys of the image": (machine(WHOLE, hardware="2" * 32, gpu="GPU-c"), "a", "is other hardware"),
    "a clone of a machine that does not name its hardware": (
        machine(WHOLE, hardware=None, gpu="GPU-c"), "a", "has other GPUs",
    ),
    "a clone with keys of its own": (
        machine(WHOLE, hardware="2" * 32, gpu="GPU-c", keys="b"), "b", "answers with another SSH host key",
    ),
    "a liar that says all that the other says": (machine(WHOLE, keys="a"), "b", "answers with another SSH host key"),
    "a liar with the machine id alone": (
        machine(WHOLE, keys="b", hardware="3" * 32, gpu="GPU-l"), "b", "answers with another SSH host key",
    ),
    "a liar with the GPUs alone": (
        machine(WHOLE, "b" * 32, keys="b", hardware="3" * 32), "b", "answers with another SSH host key",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", OTHERS)
def test_another_host_gets_nothing_of_this_one(what: str, life: Life) -> None:
    snapshot, key, why = OTHERS[what]
    certified = life.validate(MINE, "mine", "a")
    other = life.drift(snapshot, "other", key)
    assert other.drift is not None
    assert other.drift.certified_run == ""
    (note,) = history(other).notes
    assert why in note
    assert "(mine): it counts as another host" in note
    assert "gpuprep history join other mine" in note
    assert history(life.validate(snapshot, "other", key)).also_called == ()
    mine = life.drift(MINE, "mine", "a")
    assert mine.drift is not None
    assert (mine.drift.certified_run, life.store.names_of("mine")) == (certified.run_id, ["mine"])


def test_a_liar_that_came_first_does_not_catch_the_host(life: Life) -> None:
    """It says that all keys, GPUs and ids of the other are its own, and waits until the other is asked."""
    life.validate(machine(WHOLE, keys="ab"), "liar", "b")
    mine = life.validate(MINE, "mine", "a")
    assert history(mine).also_called == ()
    assert life.store.names_of("liar") == ["liar"]


def test_a_simulated_host_is_no_real_one() -> None:
    real = dataclasses.replace(MINE, source=records.Source.MEASURED)
    one, two = samehost.of(MINE, KEYS["a"]), samehost.of(real, KEYS["a"])
    assert not samehost.same_host(one, two)
    assert samehost.not_merged(one, two) == ""


def test_what_a_host_makes_up_is_not_known() -> None:
    facts = records.IdentityFacts("x" * 32, "../../etc", ("SHA256:short", KEYS["a"], "\x1b[31m"))
    assert isinstance(WHOLE.gpus, tuple)
    gpus = tuple(dataclasses.replace(WHOLE.gpus[0], index=n, uuid=f"GPU-{n}" if n else "$(reboot)") for n in range(999))
    made = samehost.of(dataclasses.replace(WHOLE, identity=facts, gpus=gpus), "a key")
    assert (made.machine, made.hardware, made.keys, made.proven) == ("", "", frozenset({KEYS["a"]}), "")
    assert len(made.gpus) == samehost.MOST - 1
    assert not made.is_known


# ---------------------------------------------------------------- the same name


def test_a_host_that_was_installed_anew_says_so_and_keeps_its_history(life: Life) -> None:
    certified = life.validate(MINE, "mine", "a")
    anew = life.drift(machine(WHOLE, "b" * 32, keys="b"), "mine", "b")
    assert anew.drift is not None
    assert anew.drift.certified_run == certified.run_id
    assert history(anew).notes == ("mine was installed anew: another machine id on the same hardware",)
    assert statuses(anew) == {"host.identity": records.Status.WARN}


def test_another_machine_under_a_name_is_a_difference(life: Life) -> None:
    certified = life.validate(MINE, "10.0.0.5", "a")
    life.validate(MINE, "mine", "a")
    other = machine(WHOLE, "b" * 32, hardware="2" * 32, keys="b", gpu="GPU-o")
    found = life.drift(other, "10.0.0.5", "b")
    assert {"host.identity", "gpus.identity"} <= {
        key for key, status in statuses(found).items() if status is records.Status.FAIL
    }
    assert "another machine answers to 10.0.0.5 now" in history(found).notes[0]
    assert "mine: no longer the same host as 10.0.0.5" in history(found).notes[1]
    passed = life.validate(other, "10.0.0.5", "b")
    assert history(passed).certifies is False
    assert life.store.names_of("mine") == ["mine"]
    kept = life.drift(MINE, "mine", "a")
    assert (statuses(kept), life.held_to("mine") != "") == ({}, True)
    assert certified.run_id


def test_gpus_that_were_swapped_are_no_other_host(life: Life) -> None:
    certified = life.validate(MINE, "mine", "a")
    found = life.drift(machine(WHOLE, gpu="GPU-n"), "mine", "a")
    assert found.drift is not None
    assert found.drift.certified_run == certified.run_id
    assert statuses(found) == {"gpus.identity": records.Status.FAIL}


def test_a_record_without_these_facts_keeps_the_history_of_its_name(life: Life) -> None:
    certified = life.validate(WHOLE, "mine", "a")
    found = life.drift(MINE, "mine", "a")
    assert found.drift is not None
    assert (found.drift.certified_run, statuses(found)) == (certified.run_id, {})
    older = life.drift(WHOLE, "mine", "a")
    assert statuses(older) == {}


# ---------------------------------------------------------------- the user's word


def test_the_user_joins_and_parts_names(life: Life) -> None:
    certified = life.validate(WHOLE, "one", "a")
    life.validate(machine(WHOLE, "c" * 32, gpu="GPU-c", keys="c"), "two", "c")
    assert life.store.join("one", "two", "2026-11-21T00:00:00+00:00") == ["one", "two"]
    life.choose(certified.run_id, "two")
    assert life.held_to("one") == life.held_to("two") == certified.run_id
    assert life.store.set_apart("two", "2026-11-22T00:00:00+00:00") == ["one"]
    assert life.store.names_of("two") == ["two"]
    assert life.held_to("one") == certified.run_id
    same = machine(WHOLE, "c" * 32, gpu="GPU-c", keys="c")
    life.validate(same, "three", "c")
    assert life.store.names_of("three") == ["three"], "two was set apart by hand"


def test_names_follow_on_both_databases(store_url: str) -> None:
    opened = Store.open(store_url)
    try:
        here = samehost.of(MINE, KEYS["a"])
        assert opened.know("one", here, "2026-11-01T00:00:00+00:00").notes == ()
        known = opened.know("two", here, "2026-11-02T00:00:00+00:00")
        assert (known.others, len(known.notes)) == (("one",), 1)
        assert opened.know("two", here, "2026-11-03T00:00:00+00:00").notes == ()
        assert [(one.name, one.host, one.identity) for one in opened.names()] == [
            ("one", "one", here), ("two", "one", here),
        ]  # fmt: skip
        other = dataclasses.replace(here, machine="9" * 32, hardware="9" * 32, gpus=frozenset({"GPU-9"}))
        assert len(opened.know("one", other, "2026-11-04T00:00:00+00:00").notes) >= 2
        assert [(one.name, one.host) for one in opened.names()] == [("one", "one"), ("two", "two")]
    finally:
        opened.close()


@pytest.mark.parametrize("seed", range(3))
def test_names_that_come_at_the_same_moment_are_as_many_hosts_as_in_any_order(store_url: str, seed: int) -> None:
    machines = [
        samehost.of(machine(WHOLE, letter * 32, hardware=letter * 32, gpu=f"GPU-{letter}", keys=letter), KEYS[letter])
        for letter in "abcd"
    ]
    names = [f"n{number:02}" for number in range(24)]
    random.Random(seed).shuffle(names)
    opened = Store.open(store_url)
    try:
        with ThreadPoolExecutor(8) as pool:
            moment = "2026-11-01T00:00:00+00:00"
            list(pool.map(lambda name: opened.know(name, machines[int(name[1:]) % 4], moment), names))
        for name in names:
            assert sorted(opened.names_of(name)) == [
                one for one in sorted(names) if int(one[1:]) % 4 == int(name[1:]) % 4
            ]
    finally:
        opened.close()


def test_a_damaged_row_is_a_host_that_is_not_known(tmp_path: Path) -> None:
    import sqlalchemy as sa

    opened = Store.open(f"sqlite:///{tmp_path}/x.db")
    here = samehost.of(MINE, KEYS["a"])
    opened.know("one", here, "2026-11-01T00:00:00+00:00")
    engine = sa.create_engine(f"sqlite:///{tmp_path}/x.db")
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE host_names SET identity = '{'")
    engine.dispose()
    assert [one.identity for one in opened.names()] == [samehost.Identity()]
    assert opened.know("two", here, "2026-11-01T00:00:00+00:00").others == ()
    opened.close()


# ---------------------------------------------------------------- what the agent reads


def put(folder: Path, **texts: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(text)
    return folder


def test_a_machine_id_is_told_as_a_digest(tmp_path: Path) -> None:
    assert identity_of(tmp_path).machine_id is None
    found = set()
    for text in ("0123456789abcdef0123456789abcdef\n", "1123456789abcdef0123456789abcdef\n"):
        put(tmp_path, **{"machine-id": text})
        told = identity_of(tmp_path).machine_id
        assert isinstance(told, str)
        assert re.fullmatch("[0-9a-f]{32}", told)
        assert text.strip() not in told
        found.add(told)
    assert len(found) == 2
    for text in ("", "uninitialized\n", "0" * 32, "x" * 32, "01"):
        put(tmp_path, **{"machine-id": text})
        assert identity_of(tmp_path).machine_id is None


UUID = "4c4c4544-0042-3510-8052-b4c04f4e3132"


def test_hardware_is_what_its_firmware_names(tmp_path: Path) -> None:
    def hardware(name: str, **texts: str) -> object:
        put(tmp_path / name / "dmi", **texts)
        return identity_of(tmp_path / name).hardware

    assert identity_of(tmp_path / "none").hardware is None
    one = hardware("one", product_uuid=f"{UUID.upper()}\n", product_serial="S1")
    same = hardware("same", product_uuid=UUID, product_serial="S1\n")
    other = hardware("other", product_uuid=UUID, product_serial="S1", board_serial="B")
    assert isinstance(one, str)
    assert (one == same, one == other, re.fullmatch("[0-9a-f]{32}", one) is not None) == (True, False, True)
    for nobody in (
        "00000000-0000-0000-0000-000000000000", "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF", "Not Settable",
        "03000200-0400-0500-0006-000700080009",
    ):  # fmt: skip
        assert hardware(nobody, product_uuid=nobody, product_serial="S1") is None


def test_host_keys_are_told_as_openssh_shows_them(tmp_path: Path) -> None:
    assert identity_of(tmp_path).ssh_host_keys == ()
    blob = b"\0\0\0\x0bssh-ed25519" + bytes(36)
    text = f"ssh-ed25519 {base64.b64encode(blob).decode()} root@x\n"
    put(tmp_path / "ssh", **{"ssh_host_ed25519_key.pub": text, "ssh_host_rsa_key.pub": "ssh-rsa ###\n", "other": text})
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")
    assert identity_of(tmp_path).ssh_host_keys == (f"SHA256:{digest}",)


def fields(**values: Any) -> samehost.Identity:
    return dataclasses.replace(samehost.of(MINE, KEYS["a"]), **values)


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({}, ""), ({"gpus": frozenset()}, ""), ({"machine": ""}, ""), ({"machine": "b" * 32}, samehost.REINSTALLED),
        ({"machine": "b" * 32, "gpus": frozenset({"GPU-9"})}, samehost.REINSTALLED),
        ({"machine": "b" * 32, "gpus": frozenset({"GPU-9"}), "hardware": ""}, samehost.ANOTHER),
        ({"machine": "b" * 32, "hardware": "2" * 32, "gpus": frozenset()}, samehost.ANOTHER),
        ({"hardware": "2" * 32, "gpus": frozenset({"GPU-9"})}, samehost.ANOTHER), ({"gpus": frozenset({"GPU-9"})}, ""),
        ({"hardware": "2" * 32}, ""), ({"proven": KEYS["b"]}, ""),
    ],
)  # fmt: skip
def test_what_became_of_the_machine_behind_a_name(changed: dict[str, Any], what: str) -> None:
    assert samehost.change(fields(), fields(**changed)) == what
    assert samehost.change(fields(), samehost.Identity()) == ""
