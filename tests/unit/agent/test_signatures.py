"""Signatures of kernel modules: really signed, really verified, damaged in each way; and what is made of them."""

from __future__ import annotations

import dataclasses
import gzip
import lzma
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import signedmodules
from builders import bare_snapshot, finished_snapshot
from places import COLLECTION
from programfile import MODULES, module_of
from signedmodules import BODY, MARK, Key, make_key, pkcs7, signed, trailer

from gpuprep import checks, errors, records
from gpuprep.agent.facts import driver as driver_facts
from gpuprep.agent.facts import signatures
from gpuprep.agent.programs import children, run
from gpuprep.desired import loading, profile, state
from gpuprep.provisioning import plan

SCRIPTS = COLLECTION / "roles/gpu_driver/files"
OWN = "/var/lib/dkms/mok.pub"
FLEET = profile.SigningWish("/etc/mok/MOK.priv", "/etc/mok/MOK.der")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> tuple[Key, Key]:
    folder = tmp_path_factory.mktemp("keys")
    return make_key(folder, "own"), make_key(folder, "other", "somebody else")


def looked(tmp_path: Path, data: bytes, *by: Key, name: str = "nvidia.ko") -> records.ModuleSignature:
    module = tmp_path / name
    module.write_bytes(data)
    return signedmodules.looked_at(module, *by)


# ---------------------------------------------------------------- the agent: one module


@pytest.mark.parametrize("digest", ["sha256", "sha512"])
def test_a_signed_module_is_verified(tmp_path: Path, keys: tuple[Key, Key], digest: str) -> None:
    own, other = keys
    found = looked(tmp_path, signed(own, digest=digest), other, own)
    assert (found.signer, found.fits, found.verified_by) == ("DKMS module signing key", True, str(own.certificate))
    assert re.fullmatch(r"([0-9A-F]{2}:){10,}[0-9A-F]{2}", str(found.key_id))


def test_a_signer_that_is_named_by_its_key_alone(tmp_path: Path, keys: tuple[Key, Key]) -> None:
    own, other = keys
    found = looked(tmp_path, signed(own, BODY, "sha256", "-keyid"), other, own)
    assert (found.fits, found.verified_by) == (True, str(own.certificate))


def test_a_certificate_in_letters(tmp_path: Path, keys: tuple[Key, Key]) -> None:
    own = keys[0]
    data = signed(own)  # writes the certificate as PEM beside it
    found = looked(tmp_path, data, dataclasses.replace(own, certificate=own.certificate.with_suffix(".pem")))
    assert found.fits is True


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "nvidia.ko.xz": lzma.compress,
    "nvidia.ko.gz": gzip.compress,
    "nvidia.ko.zst": lambda data: subprocess.run(["zstd", "-qc"], input=data, capture_output=True, check=True).stdout,
}


@pytest.mark.parametrize("name", PACKERS)
def test_a_module_that_is_packed(tmp_path: Path, keys: tuple[Key, Key], name: str) -> None:
    if name.endswith("zst") and not shutil.which("zstd"):
        pytest.skip("needs zstd")
    own = keys[0]
    assert looked(tmp_path, PACKERS[name](signed(own)), own, name=name).fits is True
    assert looked(tmp_path, PACKERS[name](BODY), own, name=name).signer is None
    cut = looked(tmp_path, PACKERS[name](signed(own))[:-40], own, name=name)
    assert isinstance(cut.fits, records.Missing), cut


def test_a_packed_module_that_fills_the_disk_is_not_unpacked(
    tmp_path: Path, keys: tuple[Key, Key], monkeypatch: pytest.MonkeyPatch
) -> None:
    signedmodules.largest_module(monkeypatch, 4 * 1024)
    for name in [name for name in PACKERS if not name.endswith("zst") or shutil.which("zstd")]:
        found = looked(tmp_path, PACKERS[name](signed(keys[0])), keys[0], name=name)
        assert isinstance(found.fits, records.Missing)
        assert found.fits.reason == "impossible"


def test_a_module_that_is_not_signed(tmp_path: Path, keys: tuple[Key, Key]) -> None:
    for data in (BODY, b"", MARK[:-1], BODY + MARK[:-1], signed(keys[0])[:-1]):
        found = looked(tmp_path, data, keys[0])
        assert (found.signer, found.key_id, found.fits, found.verified_by) == (None,) * 4


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


@pytest.mark.parametrize("at", [0, 1000, len(BODY) - 1])
def test_one_byte_of_the_module_was_changed(tmp_path: Path, keys: tuple[Key, Key], at: int) -> None:
    own = keys[0]
    found = looked(tmp_path, flipped(signed(own), at), own)
    assert (found.signer, found.fits, found.verified_by) == (
        "DKMS module signing key", False, str(own.certificate),
    )  # fmt: skip


def test_no_byte_of_the_signature_can_be_changed(tmp_path: Path, keys: tuple[Key, Key]) -> None:
    """Each eleventh, because openssl is asked for most. Nothing raises, and nothing is verified."""
    own = keys[0]
    data = signed(own)
    for at in range(len(BODY), len(data), 11):
        found = looked(tmp_path, flipped(data, at), own)
        assert found.fits is not True or at >= len(data) - len(MARK) - 12, at


def test_another_key_with_the_names_of_ours(tmp_path: Path) -> None:
    ours = make_key(tmp_path / "ours", serial="0x1234")
    theirs = make_key(tmp_path / "theirs", serial="0x1234")
    assert looked(tmp_path, signed(theirs), theirs).fits is True
    found = looked(tmp_path, signed(theirs), ours)
    assert (found.fits, found.verified_by) == (False, str(ours.certificate))
    # With both certificates here, the right one counts.
    assert looked(tmp_path, signed(theirs), ours, theirs).verified_by == str(theirs.certificate)


def test_a_signer_whose_certificate_is_not_here(tmp_path: Path, keys: tuple[Key, Key]) -> None:
    own, other = keys
    found = looked(tmp_path, signed(other), own)
    assert (found.signer, found.verified_by) == ("somebody else", None)
    assert isinstance(found.fits, records.Missing)
    assert str(own.certificate) in found.fits.detail


def damaged(keys: tuple[Key, Key]) -> dict[str, bytes]:
    signature = pkcs7(keys[0])
    return {
        "empty": BODY + trailer(0),
        "nothing before it": trailer(0),
        "larger than the module": BODY + signature + trailer(len(BODY) + len(signature) + 1),
        "the whole file": signature + trailer(len(signature)),
        "giant": BODY + signature + trailer(0xFFFFFFFF),
        "too short": BODY + signature + trailer(len(signature) - 5),
        "too long": BODY + signature + trailer(len(signature) + 5),
        "another kind": BODY + signature + trailer(len(signature), kind=1),
        "padding": BODY + signature + trailer(len(signature), padding=b"\0\1\0"),
        "no trailer": BODY + MARK,
        "no PKCS#7": BODY + b"x" * 400 + trailer(400),
        "endless length": BODY + b"\x30\x84\xff\xff\xff\xff" + trailer(6),
        "lying length": BODY + b"\x30\x88" + b"\xff" * 8 + trailer(10),
        "deep": BODY + b"\x30\x80" * 100 + trailer(200),
        "many parts": BODY + b"\x30\x82\x03\xe8" + b"\x05\x00" * 500 + trailer(1004),
        "no signer": BODY + signature[:-100] + trailer(len(signature) - 100),
    }


def test_a_signature_that_is_broken_is_none(tmp_path: Path, keys: tuple[Key, Key]) -> None:
    for name, data in damaged(keys).items():
        found = looked(tmp_path, data, keys[0])
        assert found.fits is False, name
        assert isinstance(found.signer, records.Missing), name
        assert found.signer.reason == "unparsable"
        assert found.verified_by is None


def test_names_of_a_signer_cannot_write_on_a_screen(tmp_path: Path) -> None:
    key = make_key(tmp_path / "hostile", subject="x\x1b[31mred")
    found = looked(tmp_path, signed(key), key)
    assert found.fits is True
    assert "\x1b" not in str(found.signer)


def test_without_openssl_nothing_is_verified(
    tmp_path: Path, keys: tuple[Key, Key], monkeypatch: pytest.MonkeyPatch
) -> None:
    data = signed(keys[0])
    monkeypatch.setattr(run, "SEARCH_PATH", str(tmp_path / "empty"))
    found = looked(tmp_path, data, keys[0])
    assert found.signer == "DKMS module signing key"
    assert found.fits == records.Missing("command_not_found", "openssl")
    assert found.verified_by == str(keys[0].certificate)


def test_a_module_that_is_gone_or_no_file(tmp_path: Path, keys: tuple[Key, Key]) -> None:
    os.mkfifo(tmp_path / "pipe.ko")
    (tmp_path / "folder.ko").mkdir()
    for name in ("gone.ko", "pipe.ko", "folder.ko"):
        found = signedmodules.looked_at(tmp_path / name, keys[0])
        assert isinstance(found.fits, records.Missing), name


def test_what_is_no_certificate_verifies_nothing(tmp_path: Path) -> None:
    for content in (
        b"",
        b"\x30",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
        b"\x30\x03\x02\x01\x01",
    ):
        (tmp_path / "certificate").write_bytes(content)
        assert not signedmodules.is_certificate(tmp_path / "certificate")


def test_what_is_cut_anywhere_verifies_nothing_and_no_more(tmp_path: Path, keys: tuple[Key, Key]) -> None:
    signature, certificate = pkcs7(keys[0]), keys[0].certificate.read_bytes()
    for length in range(1, len(signature), 11):
        found = looked(tmp_path, BODY + signature[:length] + trailer(length), keys[0])
        assert (found.fits, found.verified_by) == (False, None), length
    cut = tmp_path / "certificate"
    for length in range(len(certificate)):
        cut.write_bytes(certificate[:length])
        assert not signedmodules.is_certificate(cut), length


# ---------------------------------------------------------------- the agent: mokutil, and all modules


MOKUTIL = """#!/bin/sh
[ "$1" = --test-key ] || exit 9
case "$2" in
  *own*) echo "$2 is already enrolled"; exit 1 ;;
  *asked*) echo "$2 is already in the enrollment request"; exit 1 ;;
  *blocked*) echo "$2 is blocked in MokListXRT"; exit 1 ;;
  *bios*) echo "EFI variables are not supported on this system" >&2; exit 1 ;;
  *odd*) echo "something else"; exit 1 ;;
esac
echo "$2 is not enrolled"
"""


def programs(folder: Path, **scripts: str) -> str:
    folder.mkdir(exist_ok=True)
    for name, text in scripts.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return f"{folder}:{run.SEARCH_PATH}"


@pytest.fixture
def not_root(monkeypatch: pytest.MonkeyPatch) -> None:
    signedmodules.programs_of_anybody(monkeypatch)


@pytest.mark.usefixtures("not_root")
def test_mokutils_words_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "SEARCH_PATH", programs(tmp_path / "bin", mokutil=MOKUTIL))
    expected: dict[str, records.Bool] = {
        "own": True, "asked": False, "blocked": False, "new": False,
        "bios": records.Missing("not_supported", "mokutil: EFI variables are not supported on this system"),
        "odd": records.Missing("unparsable", "mokutil: something else"),
    }  # fmt: skip
    for name, wanted in expected.items():
        (tmp_path / name).write_text("")
        assert signedmodules.enrolled(tmp_path / name) == wanted
    assert isinstance(signedmodules.enrolled(tmp_path / "absent"), records.Missing)


def test_certificates_of_dkmss_own_settings_are_known(tmp_path: Path) -> None:
    (tmp_path / "framework.conf.d").mkdir()
    (tmp_path / "framework.conf").write_text('# mok_certificate="/no"\nmok_certificate="/etc/own.der"\nx=1\n')
    (tmp_path / "framework.conf.d" / "a.conf").write_text("mok_certificate=/etc/fleet.der\nmok_signing_key=/k\n")
    (tmp_path / "framework.conf.d" / "b.conf").write_text("mok_certificate=$(reboot)\nmok_certificate=/a b\n")
    assert signedmodules.named_by_dkms(tmp_path) == ["/etc/own.der", "/etc/fleet.der"]
    assert signedmodules.named_by_dkms(tmp_path / "none") == []


def test_without_mokutil_the_firmwares_lists_of_keys_say_it_if_they_can_be_read(
    tmp_path: Path, keys: tuple[Key, Key], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "SEARCH_PATH", str(tmp_path))
    own, other = (key.certificate for key in keys)
    assert signedmodules.enrolled(own, tmp_path) == records.Missing("command_not_found", "mokutil")
    shim, firmware = (tmp_path / name for name in (signatures.MOK_LISTS[1], signatures.KEYS_OF_FIRMWARE))
    shim.parent.mkdir()
    firmware.write_bytes(b"\x27\0\0\0" + own.read_bytes())
    assert isinstance(signedmodules.enrolled(other, tmp_path), records.Missing)
    shim.write_bytes(b"\x06\0\0\0a list" + own.read_bytes())
    assert (signedmodules.enrolled(own, tmp_path), signedmodules.enrolled(other, tmp_path)) == (True, False)
    firmware.write_bytes(other.read_bytes())
    assert signedmodules.enrolled(other, tmp_path) is True


def test_the_profiles_certificate_is_told_even_if_it_is_absent(tmp_path: Path) -> None:
    facts = signedmodules.facts("6.1.0-no-such-kernel", "/nowhere/MOK.der", tmp_path / "cache.json")
    assert facts.modules == ()
    (first, *_) = facts.certificates
    assert first.path == "/nowhere/MOK.der"
    assert isinstance(first.enrolled, records.Missing)
    assert not (tmp_path / "cache.json").exists()


def test_what_was_verified_is_remembered_until_module_or_certificate_change(
    tmp_path: Path, keys: tuple[Key, Key], monkeypatch: pytest.MonkeyPatch
) -> None:
    module, agent, path = tmp_path / "nvidia.ko", tmp_path / "agent", tmp_path / "cache" / "signatures.json"
    agent.mkdir()
    module.write_bytes(signed(keys[0]))

    def ask(*by: Key) -> records.Bool | None:
        return signedmodules.remembered(module, path, agent, *by).fits

    assert ask(keys[0]) is True
    if os.geteuid() == 0:
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        monkeypatch.setattr(run, "SEARCH_PATH", str(tmp_path / "empty"))
        assert ask(keys[0]) is True  # nothing was started
        monkeypatch.undo()
    assert isinstance(ask(keys[1]), records.Missing)  # another certificate
    module.write_bytes(flipped(signed(keys[0]), 5))
    assert ask(keys[0]) is False
    path.parent.mkdir(exist_ok=True)
    path.write_text('{"x": 3}')
    assert ask(keys[0]) is False


def test_nothing_is_left_in_the_temporary_folder(
    tmp_path: Path, keys: tuple[Key, Key], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    with children.scratch("probe") as folder:
        assert folder.parent == tmp_path / "tmp"
    for data in damaged(keys).values():
        looked(tmp_path, data, keys[0])
    assert list((tmp_path / "tmp").iterdir()) == []


# ---------------------------------------------------------------- the role's scripts


def signing_key(key: Path, certificate: Path) -> str:
    done = subprocess.run(
        ["sh", SCRIPTS / "signing_key.sh", key, certificate], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.skipif(os.geteuid() != 0, reason="the key must be root's")
def test_the_role_looks_at_key_and_certificate(tmp_path: Path, keys: tuple[Key, Key]) -> None:
    own, other = keys
    assert signing_key(own.key, own.certificate) == ""
    assert "their public keys differ" in signing_key(own.key, other.certificate)
    assert "there is no file" in signing_key(tmp_path / "gone", own.certificate)
    assert "there is no file" in signing_key(own.key, tmp_path / "gone")
    assert "is no certificate" in signing_key(own.key, own.key)
    no_key = Path(shutil.copy(own.certificate, tmp_path / "key"))
    no_key.chmod(0o600)
    assert "is no private key" in signing_key(no_key, own.certificate)
    readable = Path(shutil.copy(own.key, tmp_path / "readable"))
    readable.chmod(0o640)
    assert "nobody else may read it" in signing_key(readable, own.certificate)
    link = tmp_path / "link"
    link.symlink_to(readable)
    assert "nobody else may read it" in signing_key(link, own.certificate)
    readable.chmod(0o600)
    assert signing_key(link, own.certificate) == ""
    os.chown(readable, 1234, 0)
    assert "must be root's" in signing_key(readable, own.certificate)
    shared = Path(shutil.copy(own.certificate, tmp_path / "shared"))
    shared.chmod(0o666)
    assert "nobody else may change it" in signing_key(own.key, shared)


def test_the_roles_verification_is_the_agents(tmp_path: Path, keys: tuple[Key, Key]) -> None:
    """The role runs without the package, so it has its own; the same modules pass."""
    signatures = module_of(MODULES / "module_signatures.py")
    is_signed, pem = signatures.is_signed, signatures.pem
    own, other = keys
    cases = {**damaged(keys), "good": signed(own), "sha512": signed(own, digest="sha512"), "other": signed(other)}
    cases |= {"unsigned": BODY, "changed": flipped(signed(own), 7)}
    for name, data in cases.items():
        module = tmp_path / "nvidia.ko"
        module.write_bytes(data)
        by_agent = signedmodules.looked_at(module, own).fits is True
        assert is_signed(module, pem(own.certificate)) is by_agent, name
    for name in ("nvidia.ko.xz", "nvidia.ko.gz"):
        (tmp_path / name).write_bytes(PACKERS[name](signed(own)))
        assert is_signed(tmp_path / name, pem(own.certificate))


# ---------------------------------------------------------------- judgement


def module(name: str = "nvidia.ko", **changed: Any) -> records.ModuleSignature:
    good: dict[str, Any] = {
        "path": f"/lib/modules/6.1/updates/dkms/{name}", "kernel": "", "signer": "DKMS module signing key",
        "key_id": "21:7D", "fits": True, "verified_by": OWN,
    }  # fmt: skip
    return records.ModuleSignature(**{**good, **changed})


UNSIGNED: dict[str, Any] = {"signer": None, "key_id": None, "fits": None, "verified_by": None}
FOREIGN: dict[str, Any] = {
    "signer": "Canonical Ltd. Kernel Module Signing",
    "fits": records.Missing("not_installed"),
    "verified_by": None,
}


def t4(signing: profile.SigningWish | None = None) -> profile.Profile:
    base = loading.load("t4")
    return dataclasses.replace(base, driver=dataclasses.replace(base.driver, signing=signing))


def host(
    *modules: records.ModuleSignature,
    on: records.Bool = True,
    enrolled: records.Bool = True,
    path: str = OWN,
    loaded: records.Bool = False,
) -> records.Snapshot:
    wanted = state.resolve(t4(), bare_snapshot())
    snapshot = finished_snapshot(wanted)
    running = snapshot.kernel.running
    there = tuple(dataclasses.replace(one, kernel=one.kernel or running) for one in modules)
    facts = records.SignatureFacts(there, (records.ModuleCertificate(path, enrolled),), loaded)
    return dataclasses.replace(snapshot, kernel=dataclasses.replace(snapshot.kernel, secure_boot=on), signatures=facts)


def judged(snapshot: records.Snapshot, signing: profile.SigningWish | None = None) -> list[records.Finding]:
    wanted = state.resolve(t4(signing), snapshot, judging=True)
    return [one for one in checks.compare(wanted, snapshot) if one.property.startswith("signature")]


@pytest.mark.parametrize(
    ("changed", "enrolled", "on", "status", "says"),
    [
        ({}, True, True, records.Status.PASS, ""),
        ({}, False, True, records.Status.FAIL, f"mokutil --import {OWN}"),
        ({}, records.Missing("command_not_found", "mokutil"), True, records.Status.UNKNOWN, "install mokutil"),
        ({}, records.Missing("command_not_found", "mokutil"), False, records.Status.PASS, ""),
        ({}, False, False, records.Status.PASS, ""),
        (UNSIGNED, True, True, records.Status.FAIL, "dkms install"),
        (UNSIGNED, True, False, records.Status.PASS, ""),
        (UNSIGNED, True, records.Missing("no_permission", "no"), records.Status.UNKNOWN, ""),
        ({"fits": False}, True, True, records.Status.FAIL, "find out who changed it"),
        ({"fits": False}, True, False, records.Status.WARN, "find out who changed it"),
        ({"fits": False}, True, records.Missing("no_permission", "no"), records.Status.FAIL, "find out who changed it"),
        ({"fits": records.Missing("command_not_found", "openssl")}, True, True, records.Status.UNKNOWN, "openssl"),
        ({"fits": records.Missing("command_not_found", "openssl")}, True, False, records.Status.SKIP, ""),
        (FOREIGN, True, True, records.Status.UNKNOWN, "load the module"),
        (FOREIGN, True, False, records.Status.SKIP, ""),
    ],
)
def test_a_module_is_judged(
    changed: dict[str, Any], enrolled: records.Bool, on: records.Bool, status: records.Status, says: str
) -> None:
    (finding,) = judged(host(module(**changed), on=on, enrolled=enrolled))
    assert (finding.key, finding.status) == ("driver.signature", status), finding
    assert says in finding.remedy
    assert finding.role == ""
    if status in (records.Status.FAIL, records.Status.WARN, records.Status.UNKNOWN):
        assert finding.reason
        assert finding.remedy
    if on is False:
        assert "Secure Boot is off" in finding.actual + finding.reason


def test_where_dkms_lost_the_sources_provision_builds() -> None:
    """DKMS's own commands do nothing without them; of a kernel that it knows no build of, the sources say the name."""
    snapshot = host(module(**UNSIGNED), on=True)
    driver = snapshot.driver
    for known, says in (((), "--only driver`"), ((dataclasses.replace(driver.dkms[0], kernel=None, state="added"),),
                                                 "again: `sudo dkms install --force nvidia")):  # fmt: skip
        (finding,) = judged(dataclasses.replace(snapshot, driver=dataclasses.replace(driver, dkms=known)))
        assert says in finding.remedy
        assert "autoinstall" not in finding.remedy


def test_one_bad_module_of_many_counts() -> None:
    for changed, status in (
        (UNSIGNED, records.Status.FAIL),
        ({"fits": False}, records.Status.FAIL),
        (FOREIGN, records.Status.UNKNOWN),
    ):
        (finding,) = judged(host(module(), module("nvidia-uvm.ko", **changed), module("nvidia-drm.ko")))
        assert finding.status is status
        assert "nvidia-uvm.ko" in finding.actual + finding.reason
        assert "nvidia-drm.ko" not in finding.actual + finding.reason


def test_one_module_that_lost_its_signature_is_told_with_secure_boot_off() -> None:
    (finding,) = judged(host(module(), module("nvidia-uvm.ko", **UNSIGNED), on=False))
    assert (finding.status, finding.actual) == (records.Status.WARN, "not signed: nvidia-uvm.ko")


def test_a_foreign_module_that_the_kernel_took_is_not_held_against_the_machine() -> None:
    (finding,) = judged(host(module(**FOREIGN), loaded=True))
    assert (finding.status, finding.actual) == (records.Status.SKIP, "signed by Canonical Ltd. Kernel Module Signing")
    (finding,) = judged(host(module(**FOREIGN), module("nvidia-uvm.ko", **UNSIGNED), loaded=True))
    assert finding.status is records.Status.FAIL


def test_the_next_boots_modules_are_judged_apart() -> None:
    snapshot = host(module(), module(kernel="9.9", **UNSIGNED))
    waiting = dataclasses.replace(snapshot, kernel=dataclasses.replace(snapshot.kernel, next_boot="9.9"))
    here, there = judged(waiting)
    assert (here.key, here.status) == ("driver.signature", records.Status.PASS)
    assert (there.key, there.status) == ("driver.signature_next_boot", records.Status.FAIL)
    assert "9.9" in there.remedy


def test_a_record_of_an_older_gpuprep_is_not_asked_with_secure_boot_off() -> None:
    old = dataclasses.replace(host(module(), on=False), signatures=records.Missing("not_read", "older"))
    assert judged(old) == []
    on = dataclasses.replace(old, kernel=dataclasses.replace(old.kernel, secure_boot=True))
    (finding,) = judged(on)
    assert finding.status is records.Status.UNKNOWN


def test_facts_go_through_json() -> None:
    snapshot = host(module(), module(**UNSIGNED), module(**FOREIGN), module(fits=False))
    assert records.from_json(records.Snapshot, records.to_json(snapshot)).signatures == snapshot.signatures


# ---------------------------------------------------------------- which modules there are


NEXT = "6.1.0-99-cloud-amd64"


@pytest.mark.parametrize(
    ("named", "modules", "lacking"),
    [
        (("nvidia.ko.xz", "nvidia-uvm.ko.xz"), "dkms", ()),
        (("nvidia-current.ko", "nvidia-current-uvm.ko", "nvidia-current-drm.ko"), "dkms", ()),
        (("nvidia-current-open.ko", "nvidia-current-open-modeset.ko"), "dkms", ("running",)),
        (("nvidia.ko", "nvidia-uvm.ko.before"), "dkms", ("running",)),
        (("nvidia.ko",), "prebuilt", ("running",)),
        ((), "dkms", ()),  # driver.version and driver.next_boot_module say that
    ],
)
def test_a_driver_without_the_module_of_cuda_is_found_and_repaired(
    named: tuple[str, ...], modules: str, lacking: tuple[str, ...]
) -> None:
    there = host(*(module(name) for name in named), *(module(name, kernel=NEXT) for name in named), on=False)
    running = there.kernel.running
    package = f"linux-modules-nvidia-580-{running}"
    there = dataclasses.replace(there, packages={**there.packages, package: records.Package("1", held=False)})
    wanted = state.resolve(t4(), there, judging=True)
    wanted = dataclasses.replace(wanted, driver=dataclasses.replace(wanted.driver, modules=modules))
    found = [one for one in checks.compare(wanted, there) if one.key == "driver.uvm_module"]
    assert len(found) == bool(named)
    for finding in found:
        assert finding.status is (records.Status.FAIL if lacking else records.Status.PASS)
        assert (f"none for kernel {running}; none for kernel {NEXT}" in finding.actual) == bool(lacking)
        repair = f"`sudo apt-get install --reinstall {package}`" if modules == "prebuilt" else "--only driver`"
        assert (repair in finding.remedy) == bool(lacking)


def test_a_module_whose_file_is_gone_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """modules.dep still names it until depmod runs."""
    monkeypatch.setattr(driver_facts, "MODULES", tmp_path)
    folder = tmp_path / "6.1/updates/dkms"
    folder.mkdir(parents=True)
    (tmp_path / "6.1/modules.dep").write_text("updates/dkms/nvidia.ko.xz:\nupdates/dkms/nvidia-uvm.ko.xz: nvidia\n")
    assert driver_facts.module_file("6.1") is None
    for name in ("nvidia.ko.xz", "nvidia-uvm.ko.xz"):
        (folder / name).write_bytes(b"module")
    assert driver_facts.module_file("6.1") == str(folder / "nvidia.ko.xz")
    assert [path.name for path in signatures.modules_of("6.1")] == ["nvidia-uvm.ko.xz", "nvidia.ko.xz"]


# ---------------------------------------------------------------- a profile that names a key


WISHED: dict[str, Any] = {"verified_by": FLEET.certificate}


@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize(
    ("changed", "good"),
    [(WISHED, True), ({}, False), (UNSIGNED, False), (FOREIGN, False), ({**WISHED, "fits": False}, False)],
)
def test_modules_must_be_signed_for_the_certificate_of_the_profile(
    on: bool, changed: dict[str, Any], good: bool
) -> None:
    snapshot = host(module(**changed), module("nvidia-uvm.ko", **changed), on=on, path=FLEET.certificate)
    (finding,) = judged(snapshot, FLEET)
    assert finding.status is (records.Status.PASS if good else records.Status.FAIL), finding
    wanted = state.resolve(t4(FLEET), snapshot)
    made = plan.make("host", wanted, checks.compare(wanted, snapshot))
    assert [step.role for step in made.steps] == ([] if good else ["gpu_driver"])
    assert not any(step.may_reboot for step in made.steps)
    variables = plan.role_variables(wanted)
    assert (variables["gpu_driver_signing_key"], variables["gpu_driver_signing_certificate"]) == (
        FLEET.key, FLEET.certificate,
    )  # fmt: skip


def test_the_agent_is_asked_for_the_certificate() -> None:
    assert checks.request(t4(FLEET)).certificates == (FLEET.certificate,)
    assert checks.request(t4()).certificates == ()


@pytest.mark.parametrize("path", ["-x", "MOK.der", "/etc/../x y", "/a\n/b", "/etc/mok/$(id)", "/" + "a/" * 30])
def test_the_agent_takes_no_other_words_for_a_path(path: str) -> None:
    asked = records.to_json(records.FactsRequest(certificates=(path,)))
    command = [sys.executable, "-m", "gpuprep.agent", "facts"]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert "is no path of a certificate" in done.stderr


def bare(enrolled: records.Bool, path: str, *, on: records.Bool = True) -> records.Snapshot:
    snapshot = bare_snapshot()
    facts = records.SignatureFacts((), (records.ModuleCertificate(path, enrolled),), records.Missing("not_read"))
    return dataclasses.replace(snapshot, kernel=dataclasses.replace(snapshot.kernel, secure_boot=on), signatures=facts)


@pytest.mark.parametrize(
    ("signing", "enrolled", "path", "key", "says"),
    [
        (None, True, OWN, "", ""),
        (None, False, OWN, "host.secure_boot", f"mokutil --import {OWN}"),
        (None, True, "/elsewhere.der", "host.secure_boot", f"mokutil --import {OWN}"),
        (FLEET, True, FLEET.certificate, "", ""),
        (FLEET, True, OWN, "driver.signing", "no certificate /etc/mok/MOK.der"),
        (FLEET, False, FLEET.certificate, "driver.signing", "mokutil --import /etc/mok/MOK.der"),
        (FLEET, records.Missing("not_installed"), FLEET.certificate, "driver.signing", "no certificate"),
        (
            FLEET,
            records.Missing("command_not_found", "mokutil"),
            FLEET.certificate,
            "driver.signing",
            "install mokutil",
        ),
    ],
)
def test_secure_boot_is_refused_before_any_change_unless_the_key_is_enrolled(
    signing: profile.SigningWish | None, enrolled: records.Bool, path: str, key: str, says: str
) -> None:
    snapshot = bare(enrolled, path)
    if not key:
        assert state.resolve(t4(signing), snapshot).driver.signing == signing
        return
    with pytest.raises(errors.PlanRefused) as refused:
        state.resolve(t4(signing), snapshot)
    (line,) = refused.value.reasons
    assert line.startswith(f"{key}: Secure Boot is on")
    assert says in line


def test_a_key_that_is_not_enrolled_is_refused_beside_a_driver_that_is_loaded_too() -> None:
    """It would be built again with that key, and gone after a reboot."""
    snapshot = host(module(), enrolled=False, path=FLEET.certificate)
    with pytest.raises(errors.PlanRefused, match=r"."):
        state.resolve(t4(FLEET), snapshot)
    assert state.resolve(t4(), snapshot).driver.signing is None


def test_without_secure_boot_no_key_is_asked_for() -> None:
    assert state.resolve(t4(FLEET), bare(False, FLEET.certificate, on=False)).driver.signing == FLEET
