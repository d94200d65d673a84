"""Builds the stub archives of a simulated OS: packages, lists, signature. Once, in the cache of this computer."""

from __future__ import annotations

import email.utils
import gzip
import hashlib
import os
import re
import select
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from gpuprep.errors import SimError
from gpuprep.sim import native, paths
from gpuprep.sim.archive import debfile, payload, stubs, systems
from gpuprep.sim.archive.stubs import Archive, Stub
from gpuprep.sim.paths import Progress

INSIDE = "usr/lib/gpuprep-sim/archive"  # where a machine has them
KEY_NAME = "gpuprep-sim"
AGENT_ENDS_SECONDS = 10.0


def folder(os_name: str, progress: Progress = lambda _: None) -> Path | None:
    """The archives of this OS, made now if they are not there; None for an OS that needs none."""
    system = systems.systems().get(os_name)
    if system is None or system.rpm or not system.archives:
        return None
    archives = system.archives

    def fill(making: Path) -> None:
        for archive in archives:
            _build(archive, making / archive.folder, public_key().parent)
        shutil.copyfile(public_key(), making / "key.asc")

    try:
        return made(f"{os_name}-{_digest(archives)}", f"the stub packages of {os_name}", fill, progress)
    finally:
        end_agent()


def made(name: str, what: str, fill: Callable[[Path], None], progress: Progress = lambda _: None) -> Path:
    """A folder of the cache, filled now if it is not there. Machines that start at once: one fills it, others wait."""

    def make(root: Path) -> None:
        root.mkdir()
        root.chmod(0o755)
        fill(root)

    folder = paths.cache_dir() / "archives"
    folder.mkdir(parents=True, exist_ok=True)
    return paths.made(folder / name, name, what, make, progress)


def public_key() -> Path:
    """The key that signs the stub archives of this computer; made on first use. Never NVIDIA's."""
    home = paths.cache_dir() / "archives" / "key"
    public = home / "public.asc"
    if public.exists():
        return public
    paths.private(home)
    with alone(home):
        if not public.exists():
            words = ["--quick-generate-key", "--batch", "--passphrase", "", KEY_NAME, "ed25519", "sign", "never"]
            _gpg(home, words)
            text = _gpg(home, ["--armor", "--export", KEY_NAME])
            temporary = home / ".public"
            temporary.write_text(text)
            temporary.rename(public)
    return public


@contextmanager
def alone(home: Path) -> Iterator[None]:
    """One process at a time: all that sign share gpg's agent, and the first to finish would end it for the others."""
    with paths.locked(home / ".in-use"):
        yield


def _digest(archives: Sequence[Archive]) -> str:
    code = [Path(module.__file__ or "").read_text() for module in (debfile, payload, stubs)]
    code.append(payload.program("nvidia-ctk"))
    data = [stubs.path(file).read_text() for archive in archives for file in archive.files]
    parts = [*code, Path(__file__).read_text(), repr(archives), *data]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def sign(file: Path) -> None:
    """Puts the signature of a file beside it, as FILE.asc."""
    home = public_key().parent
    with alone(home):
        _gpg(home, ["--armor", "--output", f"{file}.asc", "--detach-sign", str(file)])


def end_agent() -> None:
    """gpg starts an agent that stays; it is ended when nobody is signing."""
    home = public_key().parent
    with alone(home):
        asked = ["gpg-connect-agent", "--homedir", str(home), "--no-autostart", "GETINFO pid", "/bye"]
        answer = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
        subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "gpg-agent"], check=False)
        # It ends a moment later; until then it accepts calls and does not answer them.
        if match := re.search(r"^D (\d+)$", answer, re.MULTILINE):
            _await_end(int(match[1]))


def _await_end(pid: int) -> None:
    with suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            select.select([handle], [], [], AGENT_ENDS_SECONDS)
        finally:
            os.close(handle)


def _gpg(home: Path, words: Sequence[str], text: str = "") -> str:
    command = ["gpg", "--homedir", str(home), "--batch", "--yes", "--quiet", *words]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SimError(f"gpg could not sign the stub archive: {done.stderr.strip()}", "apt-get install gnupg")
    return done.stdout


def _build(archive: Archive, target: Path, key: Path) -> None:
    pool = target / "pool" if archive.codename else target
    pool.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as scratch:
        entries = [
            (stub.component, _package(stub, pool, Path(scratch), target)) for stub in _distinct(stubs.stubs(archive))
        ]
    if not archive.codename:
        _write(target / "Packages", "\n".join(text for _, text in entries))
        _release(archive, target, [target / "Packages"], key)
        return
    suite = target / "dists" / archive.codename
    lists = []
    for component in archive.components:
        path = suite / component / "binary-amd64" / "Packages"
        _write(path, "\n".join(text for place, text in entries if place == component))
        lists.append(path)
    _release(archive, suite, lists, key)


def _distinct(packages: Iterable[Stub]) -> Iterable[Stub]:
    return {(stub.name, stub.version): stub for stub in packages}.values()


def _package(stub: Stub, pool: Path, scratch: Path, root: Path) -> str:
    """Builds one package; returns its entry in the list of packages."""
    about, tree = scratch / "control", scratch / "data"
    for folder in (about, tree):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    content = payload.payload(stub)
    write_tree(tree, content)
    fields = {
        "Package": stub.name,
        "Source": stub.source,
        "Version": stub.version,
        "Architecture": stub.architecture,
        "Maintainer": "gpuprep sim <root@localhost>",
        "Section": "restricted/misc",
        "Priority": "optional",
        **{name.title(): ", ".join(values) for name, values in stub.relations.items()},
        "Description": "stand-in of a simulated machine (gpuprep sim)",
    }
    control = "".join(f"{name}: {value}\n" for name, value in fields.items() if value)
    _write(about / "control", control)
    for name, text in content.scripts.items():
        _write(about / name, text, 0o755)
    if content.triggers:
        _write(about / "triggers", content.triggers)
    file = pool / f"{stub.name}_{stub.version.replace(':', '%3a')}_{stub.architecture}.deb"
    data = debfile.write(file, about, tree)
    return (
        f"{control}Filename: {file.relative_to(root)}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"
    )


def write_tree(tree: Path, content: payload.Payload) -> None:
    """A package's files below a folder."""
    for name, (text, is_program) in content.texts.items():
        _write(tree / name, text, 0o755 if is_program else 0o644)
    for name, soname in content.libraries.items():
        flags = ("-shared", "-fPIC", f"-Wl,-soname,{soname}")
        text = payload.library_code(soname, name.rpartition(".so.")[2])
        _copy(native.build(soname, {"library.c": text}, *flags), tree / name)
        # The driver's libraries have their version in their content; compiled for each version it would take minutes.
        with (tree / name).open("ab") as file:
            file.write(f"{name.rpartition('.so.')[2]}\0".encode())
    for name, text in content.modules.items():
        _copy(native.build("module.ko", {"module.c": text}, "-c"), tree / name, 0o644)
    for name, to in content.links.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).symlink_to(to)
    if content.smi:
        _copy(native.build("nvidia-smi", native.sources("smi_program.c")), tree / content.smi)


def _release(archive: Archive, target: Path, lists: Sequence[Path], key: Path) -> None:
    sums = []
    for path in lists:
        compressed = path.with_suffix(".gz")
        compressed.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        for file in (path, compressed):
            data = file.read_bytes()
            sums.append(f" {hashlib.sha256(data).hexdigest()} {len(data)} {file.relative_to(target)}")
    head = {
        "Origin": "gpuprep sim",
        "Label": archive.label,
        "Suite": archive.codename,
        "Codename": archive.codename,
        "Date": email.utils.formatdate(usegmt=True),
        "Architectures": "amd64 all",
        "Components": " ".join(archive.components),
    }
    text = "".join(f"{name}: {value}\n" for name, value in head.items() if value) + "SHA256:\n" + "\n".join(sums) + "\n"
    with alone(key):
        signed = _gpg(key, ["--clearsign"], text)
    _write(target / "InRelease", signed)


def _copy(source: Path, to: Path, mode: int = 0o755) -> None:
    to.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, to)
    to.chmod(mode)


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
