"""Which files of packages are gone or changed, by dpkg's own lists and by rpm's answer."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuprep.agent.facts import packagefiles

CONTENT = b"#! as it was packed"
MD5, SHA256 = hashlib.md5(CONTENT).hexdigest(), hashlib.sha256(CONTENT).hexdigest()


class Reads:
    """The digest of a file, and which files were read for it."""

    def __init__(self) -> None:
        self.paths: list[str] = []

    def __call__(self, path: Path, algorithm: str) -> str:
        self.paths.append(path.name)
        return hashlib.new(algorithm, path.read_bytes()).hexdigest()


def replaced(path: Path) -> None:
    path.write_bytes(CONTENT + b"!")


def linked(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/null")


def moved_away(path: Path) -> None:
    path.unlink()


def same_again(path: Path) -> None:
    path.chmod(0o775)


def closed(path: Path) -> None:
    path.chmod(0o750)


CHANGES: dict[str, tuple[Callable[[Path], None], str]] = {
    "gone": (moved_away, "is gone"),
    "another content": (replaced, "was changed"),
    "a link to a device": (linked, "is no file any more"),
    "the same content": (same_again, ""),
    "closed to users": (closed, "has mode 0750: not everybody can run it"),
}


def installed(root: Path, *, late: bool) -> tuple[Path, Path, float]:
    """(a program, a link, when their package was installed). `late`: the files are changed a minute after that."""
    program, link = root / "usr/bin/nvidia-smi", root / "usr/lib/libnvidia-ml.so.1"
    for path in (program, link):
        path.parent.mkdir(parents=True, exist_ok=True)
    program.write_bytes(CONTENT)
    program.chmod(0o755)
    link.symlink_to("libnvidia-ml.so.550")
    return program, link, program.lstat().st_ctime + (-60 if late else 60)


def dpkg(root: Path, program: Path, link: Path, at: float, name: str = "nvidia-smi") -> Path:
    info = root / "dpkg/info"
    info.mkdir(parents=True)
    settings = root / "etc/nvidia.conf"
    docs = "/usr/share/doc/nvidia-smi/changelog.gz"
    lines = ["/.", str(program.parent), str(program), str(link), str(settings), docs]
    (info / f"{name}.list").write_text("\n".join(lines) + "\n")
    (info / f"{name}.md5sums").write_text(f"{MD5}  {str(program)[1:]}\n{MD5}  {docs[1:]}\n")
    (info / f"{name}.conffiles").write_text(f"{settings}\n")
    os.utime(info / f"{name}.list", (at, at))
    return root / "dpkg"


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["nvidia-smi", "nvidia-smi:amd64"])
def test_dpkgs_files_are_compared_where_they_changed_since_the_installation(
    tmp_path: Path, change: str, name: str
) -> None:
    """Settings, documents and what was not touched since are not read: CUDA has gigabytes."""
    program, link, at = installed(tmp_path, late=True)
    folder, reads = dpkg(tmp_path, program, link, at, name), Reads()
    act, said = CHANGES[change]
    act(program)
    found = packagefiles.wrong(["nvidia-smi", "not-there"], rpm=False, digest=reads, dpkg=folder)
    assert found == ({"nvidia-smi": [f"{program} {said}"]} if said else {})
    os.utime(folder / f"info/{name}.list", (at + 600, at + 600))
    untouched = packagefiles.wrong(["nvidia-smi"], rpm=False, digest=(again := Reads()), dpkg=folder)
    assert untouched == (found if act in (moved_away, closed) else {})
    assert again.paths == []
    if act is closed:  # as who manages the machine wants it
        (folder / "statoverride").write_text(f"root video 0750 {program}\n")
        assert packagefiles.wrong(["nvidia-smi"], rpm=False, digest=Reads(), dpkg=folder) == {}


@pytest.mark.parametrize(("content", "said"), [(b"\x7fELF", "run"), (b"#!/bin/sh", "run"), (b"PATH += x", "")])
def test_only_programs_must_be_allowed_to_run(tmp_path: Path, content: bytes, said: str) -> None:
    """nvcc.profile lies beside nvcc, with mode 0644."""
    program, link, at = installed(tmp_path, late=False)
    program.write_bytes(content)
    program.chmod(0o644)
    found = packagefiles.wrong(["nvidia-smi"], rpm=False, digest=Reads(), dpkg=dpkg(tmp_path, program, link, at))
    assert found == ({"nvidia-smi": [f"{program} has mode 0644: not everybody can {said} it"]} if said else {})


def test_a_link_that_is_gone_is_found_and_a_diverted_file_is_looked_for_where_it_is(tmp_path: Path) -> None:
    program, link, at = installed(tmp_path, late=False)
    folder = dpkg(tmp_path, program, link, at)
    (folder / "diversions").write_text(f"{program}\n{program}.real\nother-package\n")
    link.unlink()
    found = packagefiles.wrong(["nvidia-smi"], rpm=False, digest=Reads(), dpkg=folder)
    assert found == {"nvidia-smi": [f"{program}.real is gone", f"{link} is gone"]}


@pytest.mark.parametrize("change", CHANGES)
def test_rpms_files_are_compared_in_the_same_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    program, link, at = installed(tmp_path, late=True)
    rows = [
        ("cuda-nvcc-12-8", int(at), 8, 0o100755, 0, 0, SHA256, program),
        ("cuda-nvcc-12-8", int(at), 8, 0o120777, 0, 0, "", link),
        ("cuda-nvcc-12-8", int(at), 8, 0o100644, 1, 0, MD5, tmp_path / "etc/settings.conf"),  # %config
        ("cuda-nvcc-12-8", int(at), 8, 0o100644, 64, 0, MD5, tmp_path / "var/made-later"),  # %ghost
        ("cuda-nvcc-12-8", int(at), 8, 0o100644, 0, 1, MD5, tmp_path / "usr/not-installed"),
        ("cuda-nvcc-12-8", int(at), 8, 0o040755, 0, 0, "", tmp_path / "usr/gone"),
    ]
    answer = "".join("\t".join(map(str, row)) + "\n" for row in rows)
    (tmp_path / "rpm").write_text(f"#!/bin/sh\ncat <<'E'\n{answer}E\n")
    (tmp_path / "rpm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    act, said = CHANGES[change]
    act(program)
    found = packagefiles.wrong(["cuda-nvcc-12-8"], rpm=True, digest=Reads())
    assert found == ({"cuda-nvcc-12-8": [f"{program} {said}"]} if said else {})


NEEDS = """\
Unsatisfied dependencies for cuda-compiler-12-8-12.8.1-1.x86_64:
\tcuda-nvcc-12-8 >= 12.8.93 is needed by (installed) cuda-compiler-12-8-12.8.1-1.x86_64
\tcuda-cuobjdump-12-8 is needed by (installed) cuda-compiler-12-8-3:12.8.1-1.x86_64
\tlibc.so.6(GLIBC_9)(64bit) is needed by (installed) cuda-compiler-12-8-12.8.1-1.x86_64
\t--nogpgcheck >= 1 is needed by (installed) x-1-1.noarch
"""


def test_a_package_that_was_removed_by_force_is_named_by_who_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rpm").write_text(f"#!/bin/sh\ncat <<'E'\n{NEEDS}E\nexit 1\n")
    (tmp_path / "rpm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    compiler = "cuda-compiler-12-8"
    lacks = [(compiler, "cuda-cuobjdump-12-8"), (compiler, "cuda-nvcc-12-8")]
    assert packagefiles.absent([compiler], rpm=True) == lacks
    stanzas = [
        f"Package: {compiler}\nStatus: install ok installed\nDepends: cuda-nvcc-12-8 (>= 12.8.93), cuda-cuobjdump-12-8,"
        " g++ | c++-compiler, awk",
        "Package: cuda-nvcc-12-8\nStatus: deinstall ok config-files\nDepends: gone",
        "Package: clang\nStatus: install ok installed\nProvides: c++-compiler (= 14), cc",
        "Package: mawk\nStatus: install ok installed\nProvides: awk",
        "Package: acme\nStatus: install ok installed\nDepends: nothing",
    ]
    (tmp_path / "status").write_text("".join(f"{stanza}\nVersion: 1\nArchitecture: amd64\n\n" for stanza in stanzas))
    assert packagefiles.absent([compiler, "cuda-nvcc-12-8"], rpm=False, dpkg=tmp_path) == lacks


def test_reading_has_a_limit_of_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program, link, at = installed(tmp_path, late=True)
    folder = dpkg(tmp_path, program, link, at)
    monkeypatch.setattr(packagefiles, "SECONDS", -1.0)
    with pytest.raises(packagefiles.TooSlow):
        packagefiles.wrong(["nvidia-smi"], rpm=False, digest=Reads(), dpkg=folder)


@pytest.mark.parametrize(
    ("package", "subject"),
    [("nvidia-smi", "driver"), ("libcuda1", "driver"), ("nvidia-cuda-toolkit", "cuda"), ("libcublas12", "cuda"),
     ("kmod-nvidia-latest-dkms", "driver"), ("cuda-nvcc-12-8", "cuda"), ("linux-image-amd64", ""), ("dkms", "")],
)  # fmt: skip
def test_whose_a_package_is(package: str, subject: str) -> None:
    assert packagefiles.whose(package) == subject
