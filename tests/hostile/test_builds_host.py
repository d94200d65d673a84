"""FFmpeg builds on the host: what the build user, an archive or a manifest can make root do, read or believe."""

# mypy: disable-error-code="func-returns-value"
# An attack of the tables is a lambda, whose value nobody reads.

from __future__ import annotations

import io
import json
import os
import pwd
import socket
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hostilebuilds import CODEC, KEY, a_build, programs, sh, spec

from gpuprep.agent.facts.manifest import is_intact, read_manifest

NOBODY = pwd.getpwnam("nobody")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to other users")


@pytest.fixture
def role() -> Iterator[dict[str, ModuleType]]:
    with programs() as found:
        yield found


# ---------------------------------------------------------------- a folder and its manifest


def wholeness_by_the_role(role: dict[str, ModuleType], folder: Path) -> bool:
    return bool(role["state"].build_flaw(spec(folder.parent), folder) == "")


def wholeness_by_the_agent(_: dict[str, ModuleType], folder: Path) -> bool:
    manifest = read_manifest(folder)
    return isinstance(manifest, dict) and is_intact(folder, manifest) is True


JUDGES = {"role": wholeness_by_the_role, "agent": wholeness_by_the_agent}


def renamed(folder: Path, name: str) -> Path:
    """bin/ffmpeg is moved away, to be replaced by something of the same content."""
    kept = folder.with_name("kept")
    (folder / name).rename(kept)
    return kept


def device(path: Path) -> None:
    try:
        os.mknod(path, 0o20666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("no devices can be made here")


def socket_at(path: Path) -> None:
    folder = os.open(path.parent, os.O_RDONLY)  # a socket's path may not be long
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


def named(folder: Path, **files: Any) -> None:
    document = json.loads((folder / "manifest.json").read_text())
    document["files"].update(files)
    (folder / "manifest.json").write_text(json.dumps(document))


STRANGERS: dict[str, Callable[[Path], Any]] = {
    "file": lambda f: (f / "bin/ffmpeg-static").write_text("#!/bin/sh"),
    "hidden-file": lambda f: (f / ".profile").write_text("x"),
    "library-beside-the-program": lambda f: (f / "bin/libc.so.6").write_text("x"),
    "folder": lambda f: (f / "lib").mkdir(),
    "folder-of-files": lambda f: ((f / "lib").mkdir(), (f / "lib/libx.so").write_text("x")),
    "file-whose-name-does-not-print": lambda f: (f / "bin/\x1b[2J").write_text("x"),
    "file-whose-name-is-not-text": lambda f: Path(os.fsdecode(os.fsencode(f) + b"/bin/\xff")).write_text("x"),
    "link": lambda f: (f / "bin/ffplay").symlink_to("/bin/sh"),
    "link-to-a-folder": lambda f: (f / "lib").symlink_to("/lib"),
    "link-to-nothing": lambda f: (f / "bin/ffplay").symlink_to("/nowhere"),
    "link-upwards": lambda f: (f / "bin/up").symlink_to(".."),
    "pipe": lambda f: os.mkfifo(f / "bin/pipe"),
    "socket": lambda f: socket_at(f / "bin/socket"),
    "device": lambda f: device(f / "bin/null"),
    "program-is-a-link": lambda f: (f / "bin/ffmpeg").symlink_to(renamed(f, "bin/ffmpeg")),
    "folder-is-a-link": lambda f: (f / "bin").symlink_to(renamed(f, "bin")),
    "program-is-a-pipe": lambda f: (renamed(f, "bin/ffmpeg"), os.mkfifo(f / "bin/ffmpeg")),
    "manifest-is-a-link": lambda f: (f / "manifest.json").symlink_to(renamed(f, "manifest.json")),
    "manifest-is-a-pipe": lambda f: (renamed(f, "manifest.json"), os.mkfifo(f / "manifest.json")),
    "manifest-is-endless": lambda f: (renamed(f, "manifest.json"), (f / "manifest.json").symlink_to("/dev/zero")),
    "manifest-is-huge": lambda f: os.truncate(f / "manifest.json", 1 << 32),
    "manifest-nested-deeply": lambda f: (f / "manifest.json").write_text("[" * 100_000),
    "manifest-with-too-many-files": lambda f: named(f, **{f"f{number}": "0" * 64 for number in range(5000)}),
    "manifest-names-what-is-above": lambda f: (named(f, **{"../x": "0" * 64}), (f.parent / "x").write_text("")),
    "manifest-names-by-a-full-path": lambda f: named(f, **{"/etc/passwd": "0" * 64}),
    "manifest-names-a-detour": lambda f: named(f, **{"bin/../bin/ffmpeg": "0" * 64}),
    "manifest-names-this-folder": lambda f: named(f, **{".": "0" * 64}),
    "manifest-names-nothing": lambda f: named(f, **{"": "0" * 64}),
    "manifest-names-a-line-break": lambda f: (named(f, **{"a\nb": "0" * 64}), (f / "a\nb").write_text("")),
    "manifest-names-a-long-name": lambda f: named(f, **{"x/" * 2000 + "x": "0" * 64}),
    "digest-is-none": lambda f: named(f, **{"bin/ffmpeg": None}),
    "digest-is-a-list": lambda f: named(f, **{"bin/ffmpeg": ["0" * 64]}),
    "files-is-a-list": lambda f: (f / "manifest.json").write_text(
        json.dumps({"key": KEY, "version": "7.1.5", "files": ["bin/ffmpeg"]})
    ),
}


@pytest.mark.parametrize("judge", JUDGES)
def test_an_intact_build_is_whole(role: dict[str, ModuleType], tmp_path: Path, judge: str) -> None:
    assert JUDGES[judge](role, a_build(tmp_path / "build")) is True


@pytest.mark.parametrize("attack", STRANGERS.values(), ids=STRANGERS)
def test_a_folder_with_more_than_its_manifest_says_is_not_whole(
    role: dict[str, ModuleType], tmp_path: Path, attack: Callable[[Path], Any]
) -> None:
    folder = a_build(tmp_path / "build")
    attack(folder)
    assert {judge: whole(role, folder) for judge, whole in JUDGES.items()} == dict.fromkeys(JUDGES, False)


@pytest.mark.parametrize("judge", JUDGES)
def test_a_link_in_place_of_the_folder_is_no_build(role: dict[str, ModuleType], tmp_path: Path, judge: str) -> None:
    """Of the role: the agent is asked about the folder that a program really lies in."""
    (tmp_path / "build").symlink_to(a_build(tmp_path / "other"))
    assert JUDGES[judge](role, tmp_path / "build") is (judge == "agent")


def test_a_library_may_have_the_name_that_the_linker_looks_for(tmp_path: Path) -> None:
    """libcudnn.so ─► libcudnn.so.9, and no other kind of link."""
    folder = a_build(tmp_path / "build")
    (folder / "bin/ff").symlink_to("ffmpeg")
    assert wholeness_by_the_agent({}, folder) is True
    (folder / "bin/ff").unlink()
    (folder / "bin/ff").symlink_to("../bin/ffmpeg")
    assert wholeness_by_the_agent({}, folder) is False


# ---------------------------------------------------------------- archives


def member(name: str, content: bytes = b"", **fields: Any) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for field, value in fields.items():
        setattr(info, field, value)
    return info, content


def pack(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> None:
    with tarfile.open(path, "w:xz", preset=0) as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))


def raw(path: Path, *blocks: bytes) -> None:
    """An archive whose headers are as they are, whatever they say."""
    import lzma

    path.write_bytes(lzma.compress(b"".join(blocks), preset=0))


def huge_name() -> bytes:
    """A GNU long name that says of itself that it has two gigabytes."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 1 << 31
    return info.tobuf(tarfile.GNU_FORMAT)


def pax_chain(length: int) -> bytes:
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 512
    return (info.tobuf(tarfile.USTAR_FORMAT) + b"12 path=abc\n".ljust(512, b"\0")) * length


LINK, HARD = {"type": tarfile.SYMTYPE}, {"type": tarfile.LNKTYPE}
ARCHIVES: dict[str, Callable[[Path], None]] = {
    "file-above": lambda p: pack(p, member("../outside", b"x")),
    "file-above-by-a-detour": lambda p: pack(p, member("bin/../../outside", b"x")),
    "file-by-a-full-path": lambda p: pack(p, member("/tmp/outside-of-gpuprep", b"x")),
    "detour-that-stays-inside": lambda p: pack(p, member("bin/../bin/ffmpeg", b"x")),
    "this-folder": lambda p: pack(p, member(".", type=tarfile.DIRTYPE)),
    "name-of-control-characters": lambda p: pack(p, member("bin/\x1b]0;x\x07", b"x")),
    "name-with-a-line-break": lambda p: pack(p, member("bin/a\nb", b"x")),
    "name-with-a-backslash": lambda p: pack(p, member("bin\\..\\x", b"x")),
    "link": lambda p: pack(p, member("bin/ffmpeg", linkname="/etc/shadow", **LINK)),
    "folder-by-a-link-then-a-file-in-it": lambda p: pack(
        p, member("bin", linkname="/tmp", **LINK), member("bin/x", b"x")
    ),
    "hard-link": lambda p: pack(p, member("bin/ffmpeg", linkname="/etc/shadow", **HARD)),
    "pipe": lambda p: pack(p, member("bin/ffmpeg", type=tarfile.FIFOTYPE)),
    "device": lambda p: pack(p, member("bin/null", type=tarfile.CHRTYPE, devmajor=1, devminor=3)),
    "disk": lambda p: pack(p, member("bin/disk", type=tarfile.BLKTYPE, devmajor=8, devminor=0)),
    "sparse-file": lambda p: pack(p, member("bin/ffmpeg", type=tarfile.GNUTYPE_SPARSE)),
    "same-name-twice": lambda p: pack(p, member("bin/x", b"1"), member("bin/x", b"2")),
    "file-then-a-folder-of-its-name": lambda p: pack(p, member("bin", b"1"), member("bin/x", b"2")),
    "too-deep": lambda p: pack(p, member("a/" * 20 + "x", b"x")),
    "too-many": lambda p: pack(p, *[member(f"f{number}") for number in range(60)]),
    "too-large": lambda p: pack(p, member("bin/ffmpeg", b"\0" * 3_000_000)),
    "too-large-together": lambda p: pack(p, *[member(f"f{number}", b"\0" * 400_000) for number in range(5)]),
    "bomb-behind-the-last-file": lambda p: raw(p, *[tarfile.TarInfo("a").tobuf(), b"\1" * 40_000_000]),
    "name-of-two-gigabytes": lambda p: raw(p, huge_name(), b"\0" * 1024),
    "headers-about-headers": lambda p: raw(p, pax_chain(3000)),
    "torn": lambda p: (pack(p, member("bin/x", os.urandom(50_000))), os.truncate(p, 30_000))[0],
    "not-packed": lambda p: (p.write_bytes(b"\0" * 4096), None)[1],
    "no-manifest": lambda p: pack(p, member("bin/ffmpeg", b"x", mode=0o755)),
}


@pytest.mark.parametrize("attack", ARCHIVES.values(), ids=ARCHIVES)
def test_an_archive_that_is_no_build_leaves_nothing(
    role: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, attack: Callable[[Path], None]
) -> None:
    monkeypatch.setattr(role["copying"], "MOST_BYTES", 1_000_000)
    monkeypatch.setattr(role["copying"], "MOST_FILES", 50)
    archive = tmp_path / "build.tar.xz"
    attack(archive)
    prefix = tmp_path / "deep" / "prefix"
    with pytest.raises(role["install"].NotAsSealed):
        role["install"].build(spec(prefix), archive)
    assert list((prefix / "ffmpeg").iterdir()) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["build.tar.xz", "deep"]
    assert not Path("/tmp/outside-of-gpuprep").exists()


# ---------------------------------------------------------------- what the build user leaves behind


class Scratch:
    """As tasks/start.yml makes it: root's, and in it a folder of the build user, here of nobody."""

    def __init__(self, folder: Path) -> None:
        self.root, self.work, self.out = folder / KEY, folder / KEY / "work", folder / KEY / "work" / "out"
        self.secret = folder / "secret"
        self.secret.write_text("of root")
        self.secret.chmod(0o600)
        (self.out / "bin").mkdir(parents=True)
        (self.out / "bin" / "ffmpeg").write_text("a program")
        self.give()

    def give(self) -> None:
        for path in (self.work, *self.work.rglob("*")):
            os.chown(path, NOBODY.pw_uid, NOBODY.pw_gid, follow_symlinks=False)


def moved_aside(path: Path) -> Path:
    kept = path.with_name("kept")
    path.rename(kept)
    return kept


TRAPS: dict[str, Callable[[Scratch], Any]] = {
    "link-to-a-secret": lambda s: (s.out / "x").symlink_to(s.secret),
    "link-to-shadow": lambda s: (s.out / "bin" / "x").symlink_to("/etc/shadow"),
    "link-to-a-folder-of-roots": lambda s: (s.out / "share").symlink_to("/root"),
    "out-is-a-link": lambda s: s.out.symlink_to(moved_aside(s.out)),
    "out-is-a-link-to-root": lambda s: (moved_aside(s.out), s.out.symlink_to("/root"))[1],
    "out-is-a-file": lambda s: (moved_aside(s.out), s.out.write_text("x"))[1],
    "out-is-not-there": lambda s: moved_aside(s.out),
    "work-is-a-link": lambda s: s.work.symlink_to(moved_aside(s.work)),
    "hard-link-to-a-secret": lambda s: os.link(s.secret, s.out / "x"),
    "pipe": lambda s: os.mkfifo(s.out / "x"),
    "socket": lambda s: socket_at(s.out / "x"),
    "device": lambda s: device(s.out / "x"),
    "file-of-another-user": lambda s: (s.out / "x").write_text("x"),
    "name-that-does-not-print": lambda s: ((s.out / "\x1b[2J").write_text("x"), s.give()),
    "name-with-a-line-break": lambda s: ((s.out / "a\nb").write_text("x"), s.give()),
    "too-deep": lambda s: ((s.out / ("a/" * 20)).mkdir(parents=True), s.give()),
    "too-many": lambda s: ([(s.out / f"f{number}").touch() for number in range(60)], s.give()),
    "too-many-folders": lambda s: ([(s.out / f"f{number}").mkdir() for number in range(60)], s.give()),
    "too-large": lambda s: ((s.out / "x").touch(), os.truncate(s.out / "x", 1 << 40), s.give()),
    "scratch-is-not-ours": lambda s: os.chown(s.root, NOBODY.pw_uid, NOBODY.pw_gid),
    "manifest-of-its-own": lambda s: ((s.out / "manifest.json").symlink_to(s.secret), s.give()),
}


@needs_root
def test_a_build_is_copied_as_it_is(role: dict[str, ModuleType], tmp_path: Path) -> None:
    scratch, target = Scratch(tmp_path), tmp_path / "target"
    (scratch.out / "empty").mkdir()
    (scratch.out / "bin" / "ffmpeg").chmod(0o4755)
    scratch.give()
    target.mkdir()
    role["copying"].copy_out(scratch.root, ("work", "out"), target, NOBODY.pw_uid)
    assert [str(path.relative_to(target)) for path in sorted(target.rglob("*"))] == ["bin", "bin/ffmpeg"]
    info = (target / "bin" / "ffmpeg").stat()
    assert (info.st_mode & 0o7777, info.st_uid) == (0o755, 0)


@needs_root
@pytest.mark.parametrize("trap", TRAPS.values(), ids=TRAPS)
def test_root_copies_no_more_than_plain_files_of_the_build_user(
    role: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trap: Callable[[Scratch], Any]
) -> None:
    monkeypatch.setattr(role["copying"], "MOST_BYTES", 1_000_000)
    monkeypatch.setattr(role["copying"], "MOST_FILES", 50)
    scratch, target = Scratch(tmp_path), tmp_path / "target"
    trap(scratch)
    target.mkdir()
    with pytest.raises(role["parts"].Refused):
        role["copying"].copy_out(scratch.root, ("work", "out"), target, NOBODY.pw_uid)
    assert all(path.read_bytes() != b"of root" for path in target.rglob("*") if path.is_file())


@needs_root
def test_a_folder_that_becomes_a_link_while_it_is_copied_is_not_followed(
    role: dict[str, ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The race itself: between the look at a name and its opening, the build user changes what it is."""
    scratch, target, copying = Scratch(tmp_path), tmp_path / "target", role["copying"]
    target.mkdir()
    open_now = os.open

    def lost_the_race(path: Any, *words: Any, **named: Any) -> int:
        if path == "bin":
            monkeypatch.setattr(os, "open", open_now)
            moved_aside(scratch.out / "bin")
            (scratch.out / "bin").symlink_to(tmp_path)
        return open_now(path, *words, **named)

    monkeypatch.setattr(os, "open", lost_the_race)
    with pytest.raises(role["parts"].Refused, match="is no folder"):
        copying.copy_out(scratch.root, ("work", "out"), target, NOBODY.pw_uid)


@needs_root
def test_nothing_is_copied_while_the_build_user_runs_anything(role: dict[str, ModuleType], tmp_path: Path) -> None:
    import subprocess

    left = subprocess.Popen(["sleep", "infinity"], user=NOBODY.pw_uid)
    try:
        with pytest.raises(role["parts"].Refused, match=f"still runs processes: .*{left.pid}"):
            role["install"].end_build(spec(tmp_path), NOBODY.pw_uid)
    finally:
        left.kill()
        left.wait()


# ---------------------------------------------------------------- a program just received


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that every user may enter. pytest's own are closed to others, by every pytest that starts."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def ffmpeg(folder: Path, script: str) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "ffmpeg").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "bin" / "ffmpeg").chmod(0o755)
    return folder


SEEN = {
    "user": ("id -u", str(NOBODY.pw_uid)),
    "group": ("id -g", str(NOBODY.pw_gid)),
    "further-groups": ("id -G", str(NOBODY.pw_gid)),
    "secrets-in-the-environment": ("env | grep -c SECRET", "0"),
    "home": ("echo ${HOME:-none}", "none"),
    "folder": ("pwd", "/"),
    "input": ("wc -c", "0"),
    "terminal": ("tty <&1 || (exec </dev/tty) 2>&1 | grep -c tty", None),
    "open-files": ("ls /proc/self/fd | wc -l", "4"),
}


@needs_root
@pytest.mark.parametrize("attack", SEEN)
def test_a_new_ffmpeg_is_asked_as_nobody_in_no_group_of_roots(
    role: dict[str, ModuleType], public_folder: Path, monkeypatch: pytest.MonkeyPatch, attack: str
) -> None:
    script, expected = SEEN[attack]
    monkeypatch.setenv("SECRET", "x")
    monkeypatch.setattr(os, "environ", {**os.environ, "HOME": "/root"})
    said = role["parts"].ask(ffmpeg(public_folder / "build", f"{script}; true"), "-encoders", "nobody").strip()
    assert said == expected if expected is not None else "/dev/" not in said


ENDLESS = {
    "prints-without-end": ("yes", "ended with"),
    "complains-without-end": ("yes >&2", "ended with"),
    "works-without-end": ("while :; do :; done", "ended with|timed out"),
    "waits-without-end": ("sleep infinity", "timed out"),
    "leaves-a-process-behind": ("sleep infinity & wait", "timed out"),
    "ends-badly-with-control-characters": ("printf '\\033[2J' >&2; exit 3", r"ended with 3: '\\x1b\[2J'"),
}


@needs_root
@pytest.mark.parametrize("attack", ENDLESS)
def test_a_new_ffmpeg_that_does_not_behave_is_refused(
    role: dict[str, ModuleType], public_folder: Path, monkeypatch: pytest.MonkeyPatch, attack: str
) -> None:
    script, why = ENDLESS[attack]
    monkeypatch.setattr(role["parts"], "LISTING_SECONDS", 1 if "timed out" in why else 300)
    with pytest.raises(role["parts"].Refused, match=why):
        role["parts"].ask(ffmpeg(public_folder / "build", script), "-encoders", "nobody")


# ---------------------------------------------------------------- looking at a build at work


def progress(folder: Path) -> tuple[int, str]:
    done = sh("sh", CODEC / "progress.sh", folder, "no-such-unit-of-gpuprep")
    return done.returncode, done.stdout


LEFT: dict[str, Callable[[Path, Path], Any]] = {
    "result-is-a-link-to-a-secret": lambda w, secret: (w / "result").symlink_to(secret),
    "stage-is-a-link-to-a-secret": lambda w, secret: (w / "stage").symlink_to(secret),
    "result-is-a-pipe": lambda w, _: os.mkfifo(w / "result"),
    "stage-is-a-pipe": lambda w, _: os.mkfifo(w / "stage"),
    "result-is-endless": lambda w, _: (w / "result").symlink_to("/dev/zero"),
    "result-is-a-folder": lambda w, _: (w / "result").mkdir(),
    "result-is-huge": lambda w, _: (w / "result").write_bytes(b"x" * 50_000_000),
    "result-has-control-characters": lambda w, _: (w / "result").write_text("\x1b]0;owned\x07\x1b[2J\r\x00failed"),
    "result-has-many-lines": lambda w, _: (w / "result").write_text("failed\nok\n::set-output x\n"),
    "result-is-an-option": lambda w, _: (w / "result").write_text("-n -e \\033[2J"),
    "result-is-ok-and-more": lambda w, _: (w / "result").write_text("ok\nno"),
}


@pytest.mark.parametrize("attack", LEFT.values(), ids=LEFT)
def test_looking_at_a_build_reads_one_short_line_of_plain_files(
    tmp_path: Path, attack: Callable[[Path, Path], Any]
) -> None:
    work, secret = tmp_path / "work", tmp_path / "secret"
    work.mkdir()
    secret.write_text("root:$6$secret\n")
    attack(work, secret)
    code, said = progress(work)
    assert code == 1
    assert "secret" not in said
    assert len(said) < 2100
    assert said.count("\n") == 1
    assert said.rstrip("\n").isprintable()
