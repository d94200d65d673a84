"""Builds the stub RPM archives of a simulated system: packages, signatures, lists, module streams. Once, in the cache.

All by rpm's own tools in a build root, so that this computer needs none of them. One spec file makes many packages: a
process for each would take minutes.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from gpuprep.errors import SimError
from gpuprep.sim import base
from gpuprep.sim.archive import payload, repository, rpmmodules, rpmpayload, rpmspec, stubs
from gpuprep.sim.archive.payload import Payload
from gpuprep.sim.archive.stubs import Archive, Stub
from gpuprep.sim.paths import Progress

# Programs that an RPM system does not have are hidden in its base.
PATH = f"/usr/sbin:/usr/bin:/sbin:/bin:/{rpmpayload.HIDDEN}/usr/bin"


def build_root(progress: Progress = lambda _: None) -> Path:
    """A copy of the base of RPM systems, whatever they are called: it has rpm's tools."""
    return base.copy("rpm-build", "rocky9", progress)


def folder(archives: Sequence[Archive], progress: Progress = lambda _: None) -> Path:
    """These archives, made now if they are not there."""
    name, what = f"{archives[0].dist}-{digest(archives)}", f"the stub packages of {archives[0].dist}"
    return repository.made(name, what, lambda making: build(archives, making, progress), progress)


def digest(archives: Sequence[Archive]) -> str:
    modules = (payload, repository, rpmmodules, rpmpayload, rpmspec, stubs)
    code = [Path(module.__file__ or "").read_text() for module in modules]
    programs = [path.read_text() for path in sorted((Path(stubs.__file__).parent / "programs").iterdir())]
    files = sorted({file for archive in archives for file in (*archive.files, archive.modules) if file})
    parts = [repr(archives), *code, *programs, Path(__file__).read_text()]
    parts += [stubs.path(file).read_text() for file in files]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]


def build(archives: Sequence[Archive], target: Path, progress: Progress = lambda _: None) -> None:
    """Fills `target` with the archives' folders."""
    wanted = {archive: list(stubs.stubs(archive)) for archive in archives}
    with Workshop(progress) as shop:
        every = {rpmspec.file_name(stub): stub for archive_stubs in wanted.values() for stub in archive_stubs}
        made = shop.packages(list(every.values()))
        for archive, archive_stubs in wanted.items():
            folder = made / "repository"
            folder.mkdir()
            names = sorted({rpmspec.file_name(stub) for stub in archive_stubs})
            for name in names:
                os.link(made / name, folder / name)
            shop.run("createrepo_c", "--quiet", "--no-database", "--simple-md-filenames", shop.inside(folder))
            if archive.modules:
                (made / "modules.yaml").write_text(rpmmodules.modules(archive, archive_stubs))
                place = shop.inside(folder / "repodata")
                shop.run("modifyrepo_c", "--mdtype=modules", shop.inside(made / "modules.yaml"), place)
            (target / archive.folder).parent.mkdir(parents=True, exist_ok=True)
            shutil.copytree(folder, target / archive.folder)
            shutil.rmtree(folder)
            repository.sign(target / archive.folder / "repodata/repomd.xml")
    shutil.copyfile(repository.public_key(), target / "key.asc")
    for package in (target / "extras").glob("epel-release-*.rpm"):  # Red Hat's own system installs it from an address
        latest = f"epel-release-latest-{archives[0].dist.removeprefix('el')}.noarch.rpm"
        shutil.copyfile(package, target / "epel" / latest)


def install(root: Path, packages: Iterable[Path], own: Sequence[tuple[Stub, Payload]]) -> None:
    """Fills the folder `root` with packages' files and rpm's database of them; `own` are built for it."""
    with Workshop() as shop:
        made = shop.packages([], own)
        for package in packages:
            shutil.copy(package, made / package.name)
        place = shop.folder / "root"
        place.mkdir()
        files = [shop.inside(file) for file in sorted(made.glob("*.rpm"))]
        options = ["--dbpath", "/var/lib/rpm", "--nodeps", "--noscripts", "--nosignature", "--noplugins"]
        shop.run("rpm", "--root", shop.inside(place), *options, "--install", *files)
        for left in ("rpmdb.sqlite-shm", "rpmdb.sqlite-wal", ".rpm.lock"):
            (place / "var/lib/rpm" / left).unlink(missing_ok=True)
        shutil.copytree(place, root, symlinks=True, dirs_exist_ok=True)


class Workshop:
    """A folder in the build root, which programs there see and which is gone afterwards."""

    def __init__(self, progress: Progress = lambda _: None) -> None:
        self.root = build_root(progress)

    def __enter__(self) -> Workshop:
        place = self.root / "work"
        place.mkdir(exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(dir=place))
        self.folder.chmod(0o755)
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def inside(self, path: Path) -> str:
        return f"/{path.relative_to(self.root)}"

    def run(self, *command: str, home: str = "/root") -> str:
        environment = {"PATH": PATH, "HOME": home, "GNUPGHOME": home, "LC_ALL": "C.UTF-8"}
        done = subprocess.run(
            ["chroot", str(self.root), *command], capture_output=True, text=True, env=environment,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-8:])
            raise SimError(f"{command[0]} could not make the stub archive:\n{last}", "this is a defect of gpuprep")
        return done.stdout

    def packages(self, every: Iterable[Stub], own: Sequence[tuple[Stub, Payload]] = ()) -> Path:
        """Builds and signs packages; returns their folder."""
        made = self.folder / "packages"
        made.mkdir()
        wanted = [*((stub, rpmpayload.rpm_payload(stub)) for stub in every), *own]
        for number, batch in enumerate(rpmspec.batches(wanted)):
            tree = self.folder / f"tree{number}"
            tree.mkdir()
            for _, content in batch.packages:
                repository.write_tree(tree, content)
            spec = self.folder / f"{number}.spec"
            spec.write_text(rpmspec.text(batch, self.inside(tree)))
            top = self.inside(self.folder / f"top{number}")
            defined = [f"_topdir {top}", f"_rpmdir {self.inside(made)}"]
            self.run("rpmbuild", "-bb", "--quiet", *_defines(defined), self.inside(spec))
        self._sign(made)
        return made

    def _sign(self, made: Path) -> None:
        home = self.folder / "key"
        own = repository.public_key().parent
        with repository.alone(own):
            shutil.copytree(own, home, ignore=shutil.ignore_patterns("S.*", "*.lock", ".in-use"))
        home.chmod(0o700)
        files = [self.inside(file) for file in sorted(made.glob("*.rpm"))]
        place = self.inside(home)
        defined = ["__gpg /usr/bin/gpg", f"_gpg_name {repository.KEY_NAME}", f"_gpg_path {place}"]
        try:
            self.run("rpmsign", "--addsign", *_defines(defined), *files, home=place)
        finally:
            self.run("gpgconf", "--kill", "gpg-agent", home=place)


def _defines(values: Iterable[str]) -> list[str]:
    return [word for value in values for word in ("--define", value)]
