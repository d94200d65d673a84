"""A simulated machine leaves packages for the next one to install as root: only Debian's own get there.

apt compares no more than the size of a package that it finds downloaded. The signatures here are real, by new keys.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from packagearchive import INDEX, NAME, PACKAGE, SUITE, Archive, given_to, needs_gpg

pytestmark = needs_gpg


def test_a_package_of_debians_is_shared(archive: Archive, tmp_path: Path) -> None:
    assert archive.harvest() == 1
    with (archive.archives / NAME).open("wb") as mine:
        mine.write(b"the machine goes on writing to its own")
    given_to(tmp_path / "given")
    assert (tmp_path / "given" / archive.archives.relative_to(archive.root) / NAME).read_bytes() == PACKAGE


EVIL = PACKAGE.replace(b"Debian", b"nobody")


def unsigned(archive: Archive) -> None:
    archive.index(EVIL)
    (archive.lists / f"{SUITE}InRelease").write_text(archive.text())


def signed_by_another(archive: Archive) -> None:
    archive.index(EVIL)
    archive.release("machine")


def text_before_what_is_signed(archive: Archive) -> None:
    file = archive.lists / f"{SUITE}InRelease"
    signed = file.read_text()
    archive.index(EVIL)
    file.write_text(archive.text() + "\n" + signed)


def text_after_what_is_signed(archive: Archive) -> None:
    file = archive.lists / f"{SUITE}InRelease"
    signed = file.read_text()
    archive.index(EVIL)
    file.write_text(signed + "\n" + archive.text())


def signed_text_changed(archive: Archive) -> None:
    file = archive.lists / f"{SUITE}InRelease"
    was = archive.text()
    archive.index(EVIL)
    file.write_text(file.read_text().replace(was, archive.text()))


def signature_of_another_text(archive: Archive) -> None:
    file = archive.lists / f"{SUITE}InRelease"
    tail = file.read_text().partition("-----BEGIN PGP SIGNATURE")
    archive.index(EVIL)
    file.write_text("-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\n" + archive.text() + tail[1] + tail[2])


def index_of_another_archive(archive: Archive) -> None:
    (archive.lists / INDEX).rename(archive.lists / f"other_{INDEX}")
    archive.index(EVIL)


def another_name(archive: Archive) -> None:
    (archive.archives / NAME).rename(archive.archives / NAME.replace("hello", "sudo"))


def another_version(archive: Archive) -> None:
    (archive.archives / NAME).rename(archive.archives / NAME.replace("2.10-5", "2.10-6"))


def endless_package(archive: Archive) -> None:
    """Not even read: it would fill this computer's disk."""
    (archive.archives / NAME).unlink()
    os.mkfifo(archive.archives / NAME)
    with (archive.archives / NAME.replace("hello", "other")).open("wb") as file:
        file.truncate(1 << 42)


def a_hundred_releases(archive: Archive) -> None:
    """Each takes gpgv a while."""
    for number in range(100):
        shutil.copyfile(archive.lists / f"{SUITE}InRelease", archive.lists / f"a{number}_InRelease")


ATTACKS: dict[str, Callable[[Archive], object]] = {
    "package_of_the_same_size": lambda archive: archive.package(EVIL),
    "index_changed": lambda archive: archive.index(EVIL),
    "no_release": lambda archive: (archive.lists / f"{SUITE}InRelease").unlink(),
    "no_index": lambda archive: (archive.lists / INDEX).unlink(),
    "unsigned": unsigned,
    "signed_by_another": signed_by_another,
    "text_before_what_is_signed": text_before_what_is_signed,
    "text_after_what_is_signed": text_after_what_is_signed,
    "signed_text_changed": signed_text_changed,
    "signature_of_another_text": signature_of_another_text,
    "index_of_another_archive": index_of_another_archive,
    "another_name": another_name,
    "another_version": another_version,
    "endless_package": endless_package,
    "a_hundred_releases": a_hundred_releases,
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS.keys())
def test_what_debian_has_not_signed_gets_to_no_other_machine(
    archive: Archive, attack: Callable[[Archive], object], tmp_path: Path
) -> None:
    attack(archive)
    wants = archive.archives / NAME
    if wants.is_file():
        archive.package(EVIL)
    archive.harvest()
    assert given_to(tmp_path / "given") == 0
