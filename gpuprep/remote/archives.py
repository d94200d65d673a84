"""What package archives offer to a host: asked there, because a host's own network and package manager decide it."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

from gpuprep.errors import HostError
from gpuprep.remote.core import Host
from gpuprep.remote.limits import TOLD_LETTERS
from gpuprep.remote.lock import program
from gpuprep.untrusted.plaintext import one_line

SECONDS = 400.0


@dataclass(frozen=True)
class Repository:
    """One that the host does not have yet, or has in the file (with dnf: repository) `instead` of gpuprep's own."""

    uri: str
    key: str = ""  # its text; with a fingerprint the address of the key, or of a package with it
    instead: str = ""
    name: str = ""  # of the caller's
    fingerprint: str = ""  # that the key must have; or the sha256 of its package, or of its file without `Version: ...`
    lists: bool = True  # whether the list is signed; else each package, which dnf then checks


@dataclass(frozen=True)
class Question:
    repositories: tuple[Repository, ...] = ()
    packages: tuple[str, ...] = ()
    components: tuple[str, ...] = ()  # of the system's own archive, as apt has them
    codename: str = ""  # of the system: "bookworm"
    reader: str = ""  # the text of the program that says which of them the host's sources lack
    wheels: Mapping[str, str] = field(default_factory=dict)  # name in the Python index ► version
    versions: Mapping[str, str] = field(default_factory=dict)  # package ► the version, or its beginning, to install
    own: tuple[str, ...] = ()  # packages that the run itself releases and holds
    # Of dnf: the package, or its address, that adds the repository with DKMS; which repositories that are off are
    # switched on for which packages.
    epel: str = ""
    vault: str = ""  # where the headers of a kernel are that the host's repositories have no more
    off: str = ""
    off_packages: tuple[str, ...] = ()


@dataclass(frozen=True)
class Answer:
    offers: Mapping[str, Sequence[str]]  # package ► versions
    said: tuple[str, ...]  # what the package manager complained of
    lacking: Mapping[str, str]  # name of a repository, of "epel" or of a wheel ► why it is not to be had
    untried: tuple[str, ...] = ()  # wheels: the host does not know its Python index yet
    held: tuple[str, ...] = ()  # what somebody holds and the packages would change: a package, or a lock of dnf


def ask(host: Host, question: Question) -> Answer:
    """Changes nothing on the host. Raises HostError if it gives no usable answer."""
    words = " ".join(map(shlex.quote, ["python3", "-I", "-S", "-c", program("archives")]))
    result = host.run(words, stdin=json.dumps(asdict(question)).encode(), become=True, timeout=SECONDS)
    try:
        told = json.loads(result.stdout)
        offers: dict[str, list[str]] = {}
        for name, _, version in (str(line).partition(" | ") for line in told["offers"]):
            offers.setdefault(name, []).append(version)
        said = tuple(one_line(str(line), TOLD_LETTERS) for line in told["said"])
        lacking = {str(name): one_line(str(why), TOLD_LETTERS) for name, why in told["lacking"].items()}
        untried = tuple(one_line(str(name), TOLD_LETTERS) for name in told["untried"])
        held = tuple(one_line(str(name), TOLD_LETTERS) for name in told["held"])
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        lines = (result.stderr.strip() or result.stdout.strip() or "it said nothing").splitlines()
        text = one_line(lines[-1], TOLD_LETTERS)  # of Python's traceback the last line says what was wrong
        hint = "make room in /tmp there (`df -h /tmp; df -i /tmp`), then run again" if "No space left" in text else ""
        what = f"{host.name} was asked what its package archives offer, and gave no answer: {text}"
        raise HostError(what, hint) from None
    return Answer(offers, said, lacking, untried, held)
