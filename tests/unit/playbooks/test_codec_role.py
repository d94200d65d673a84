"""gpu_codec without a machine: its build key, its scripts, its key of trust, and the programs it runs on a host."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import hostilebuilds as builds
import pytest
import yaml
from hostilebuilds import CODEC, ROLE
from places import ROOT

from gpuprep import catalogue
from gpuprep.catalogue import roles
from gpuprep.desired import profile, state

PARTS: dict[str, list[str]] = {"encoders": ["hevc_nvenc", "h264_nvenc"], "filters": ["scale_cuda", "scale"], "bsfs": []}


@pytest.fixture
def programs() -> Iterator[dict[str, ModuleType]]:
    with builds.programs() as found:
        yield found


def spec(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    base = {
        "os": "debian-13",
        "arch": "x86_64",
        "ffmpeg": "7.1.5",
        "headers": "12.1.14.0",
        "npp": False,
        "parts": PARTS,
    }
    return {**base, "key": "0123456789ab", "prefix": str(tmp_path), "unit": "no-such-unit-of-gpuprep", **changes}


# ---------------------------------------------------------------- the key


CASES: list[tuple[bool, dict[str, list[str]], list[str]]] = [
    (False, PARTS, []),
    (False, PARTS, ["x264", "gnutls"]),
    (True, {"filters": ["scale_npp", "scale"], "encoders": ["h264_nvenc"]}, []),
    (False, {"muxers": ["null", "mp4", "h264"], "demuxers": [], "protocols": ["a_b", "ab", "a1"]}, []),
]


def keys_of_the_role(folder: Path) -> list[str]:
    """What the role's own variables compute for each case, through Ansible."""
    play = {
        "hosts": "localhost",
        "connection": "local",
        "gather_facts": False,
        "vars_files": [str(ROLE / "defaults" / "main.yml"), str(ROLE / "vars" / "main.yml")],
        "vars": {"gpu_codec_os": "debian-13", "ansible_facts": {"architecture": "x86_64"}},
        "tasks": [
            {
                "name": "Say the key",
                "ansible.builtin.debug": {"msg": "key={{ gpu_codec_key }}="},
                "vars": {"gpu_codec_npp": npp, "gpu_codec_parts": parts, "gpu_codec_libraries": libraries},
            }
            for npp, parts, libraries in CASES
        ],
    }
    (folder / "key.yml").write_text(yaml.safe_dump([play]), encoding="utf-8")
    ansible = Path(sys.executable).parent / "ansible-playbook"
    command = [str(ansible), "-i", "localhost,", str(folder / "key.yml")]
    home = {"ANSIBLE_LOCAL_TEMP": str(folder / "tmp"), "ANSIBLE_HOME": str(folder / "home")}
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **home}, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return re.findall(r"key=([^=]*)=", done.stdout)


def test_role_and_python_compute_the_same_key(tmp_path: Path) -> None:
    expected = []
    for npp, parts, libraries in CASES:
        names = {kind: tuple(listed) for kind, listed in parts.items()}
        codec = profile.CodecWish("12.1.14.0", "7.1.5", "/opt/gpuprep", npp, "auto", names, tuple(libraries))
        expected.append(state.build_key("debian-13", "x86_64", codec))
    assert keys_of_the_role(tmp_path) == expected
    assert {len(key) for key in expected} == {12}
    assert len(set(expected)) == len(CASES)


# ---------------------------------------------------------------- scripts and trust


def put(folder: Path, programs: dict[str, str]) -> str:
    command = [sys.executable, "-c", (CODEC.parent / "put.py").read_text(), str(folder)]
    asked = json.dumps(programs)
    done = subprocess.run(command, input=asked, capture_output=True, text=True, check=True, umask=0o077)
    return done.stdout.strip()


def test_a_host_gets_all_programs_of_the_role() -> None:
    listed = yaml.safe_load((CODEC.parent.parent / "vars" / "main.yml").read_text())["gpu_codec_programs"]
    assert sorted(listed) == sorted(path.name for path in CODEC.iterdir() if path.is_file())


def test_programs_are_put_whole_and_only_where_they_differ(tmp_path: Path) -> None:
    folder, programs = tmp_path / "a" / "codec", {"x.py": "print('x')\n", "y.sh": "é\n"}
    assert put(folder, programs) == "2"
    assert {path.name: path.read_text() for path in folder.iterdir()} == programs
    assert [path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())] == [0o755, 0o644, 0o644]
    assert put(folder, programs) == "0"
    (folder / "x.py").chmod(0o666)
    (tmp_path / "mine").write_text("mine")
    (folder / "y.sh").unlink()
    (folder / "y.sh").symlink_to(tmp_path / "mine")
    assert put(folder, programs) == "2"
    assert (tmp_path / "mine").read_text() == "mine"
    assert {path.name: path.read_text() for path in folder.iterdir()} == programs
    assert not (folder / "y.sh").is_symlink()


@pytest.mark.parametrize(("shell", "script"), [("bash", "build.sh"), ("sh", "progress.sh"), ("sh", "../claim.sh")])
def test_scripts_parse(shell: str, script: str) -> None:
    done = subprocess.run([shell, "-n", str(CODEC / script)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
@pytest.mark.parametrize("script", ["build.sh", "progress.sh", "../claim.sh"])
def test_scripts_pass_shellcheck(script: str) -> None:
    done = subprocess.run(["shellcheck", str(CODEC / script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_shipped_key_is_ffmpegs_release_key() -> None:
    """RFC 4880 12.2: a v4 fingerprint is the SHA-1 of 0x99, the packet's two-byte length, and the key packet's body."""
    lines = (CODEC / "release-key.asc").read_text(encoding="ascii").splitlines()
    body = lines[lines.index("") + 1 :]
    key = base64.b64decode("".join(line for line in body if not line.startswith(("=", "-"))))
    assert key[0] == 0x99  # old format, tag 6 (public key), two-byte length
    length = int.from_bytes(key[1:3], "big")
    fingerprint = hashlib.sha1(key[: 3 + length], usedforsecurity=False).hexdigest().upper()
    assert fingerprint == yaml.safe_load((ROLE / "vars" / "main.yml").read_text())["gpu_codec_release_key"]
    assert fingerprint == "FCF986EA15E6E293A5644F10B4322F04D67658D8"


def test_defaults_are_as_the_specification_says() -> None:
    defaults = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text())
    specified = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text())["argument_specs"]["main"]["options"]
    assert {name: specified[name]["default"] for name in specified if "default" in specified[name]} == {
        name: defaults[name] for name in specified if "default" in specified[name]
    }
    assert set(specified["gpu_codec_parts"]["options"]) == set(defaults["gpu_codec_parts"])


@pytest.mark.parametrize(
    ("result", "code", "line"), [("ok", 0, "built"), ("configure failed: X", 1, "configure failed: X")]
)
def test_progress_tells_how_a_build_ended(tmp_path: Path, result: str, code: int, line: str) -> None:
    (tmp_path / "result").write_text(f"{result}\n", encoding="utf-8")
    command = ["sh", str(CODEC / "progress.sh"), str(tmp_path), "no-such-unit-of-gpuprep"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (code, line)


def test_progress_of_a_folder_that_is_gone_is_a_failure(tmp_path: Path) -> None:
    command = ["sh", str(CODEC / "progress.sh"), str(tmp_path / "gone"), "no-such-unit-of-gpuprep"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "gone" in done.stdout


def claim(action: str, folder: Path, pid: int, host: str) -> tuple[int, str]:
    command = ["sh", str(ROLE / "files" / "claim.sh"), action, str(folder), str(pid), host]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout.strip()


def test_one_run_builds_and_another_one_waits_for_it(tmp_path: Path) -> None:
    folder, mine, theirs = tmp_path / "key.claim", os.getpid(), os.getppid()
    assert claim("take", folder, mine, "a") == (0, "")
    assert claim("take", folder, theirs, "b") == (75, "waiting for a, where the same FFmpeg is being built")
    assert claim("take", folder, mine, "c") == (0, "")  # hosts of one run cannot wait for each other
    claim("release", folder, theirs, "b")
    assert claim("take", folder, theirs, "b")[0] == 75
    claim("release", folder, mine, "a")
    assert claim("take", folder, theirs, "b") == (0, "")


def test_the_claim_of_a_run_that_died_counts_for_nothing(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    assert claim("take", tmp_path / "key.claim", ended.pid, "a") == (0, "")
    assert claim("take", tmp_path / "key.claim", os.getpid(), "b") == (0, "")
    assert (tmp_path / "key.claim" / "owner").read_text(encoding="utf-8") == f"{os.getpid()} b\n"


# ---------------------------------------------------------------- the programs on the host


def finished_build(programs: dict[str, ModuleType], folder: Path, key: str = "0123456789ab") -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "ffmpeg").write_bytes(b"\x7fELF a program")
    (folder / "bin" / "ffmpeg").chmod(0o755)
    programs["sealing"].write_manifest(folder, {"key": key, "version": "7.1.5"})
    return folder


def test_an_intact_build_has_no_flaw(programs: dict[str, ModuleType], tmp_path: Path) -> None:
    build = finished_build(programs, tmp_path / "build")
    assert programs["state"].build_flaw(spec(tmp_path), build) == ""


def test_each_damage_is_named(programs: dict[str, ModuleType], tmp_path: Path) -> None:
    flaw = programs["state"].build_flaw
    assert "does not exist" in flaw(spec(tmp_path), tmp_path / "none")
    changed = finished_build(programs, tmp_path / "changed")
    (changed / "bin" / "ffmpeg").write_bytes(b"\x7fELF another program")
    assert "bin/ffmpeg has the sha256" in flaw(spec(tmp_path), changed)
    missing = finished_build(programs, tmp_path / "missing")
    (missing / "bin" / "ffmpeg").unlink()
    assert "bin/ffmpeg is missing" in flaw(spec(tmp_path), missing)
    other = finished_build(programs, tmp_path / "other", key="ba9876543210")
    assert "'ba9876543210', expected '0123456789ab'" in flaw(spec(tmp_path), other)
    garbled = finished_build(programs, tmp_path / "garbled")
    (garbled / "manifest.json").write_text('{"key": "0123456789ab", "version": "7.1.5", "files": {}}', encoding="utf-8")
    assert "names no files" in flaw(spec(tmp_path), garbled)
    (garbled / "manifest.json").write_text("{", encoding="utf-8")
    assert "cannot be read" in flaw(spec(tmp_path), garbled)


def test_only_builds_older_than_the_previous_one_are_old(programs: dict[str, ModuleType], tmp_path: Path) -> None:
    folder = tmp_path / "ffmpeg"
    for age, name in enumerate(["7.1.5-0123456789ab", "7.1.5-aaaaaaaaaaaa", "6.1-bbbbbbbbbbbb", "5.1.9-cccccccccccc"]):
        (folder / name).mkdir(parents=True)
        os.utime(folder / name, (1000 - age, 1000 - age))
    (folder / "mine").mkdir()
    (folder / "current").symlink_to("7.1.5-0123456789ab")
    old = programs["state"].old_builds(spec(tmp_path))
    assert [path.name for path in old] == ["6.1-bbbbbbbbbbbb", "5.1.9-cccccccccccc"]


def test_flags_name_every_part_and_nothing_nonfree(programs: dict[str, ModuleType], tmp_path: Path) -> None:
    flags = programs["parts"].flags(spec(tmp_path))
    assert "--enable-encoder=h264_nvenc" in flags
    assert "--enable-filter=scale_cuda" in flags
    assert "--enable-nonfree" not in flags
    with_npp = programs["parts"].flags(spec(tmp_path, npp=True))
    assert {"--enable-nonfree", "--enable-libnpp", "--enable-filter=scale_npp"} <= set(with_npp)
    assert "--enable-filter=scale_npp" not in flags
    assert programs["parts"].components(spec(tmp_path))[0] == "HEVC_NVENC_ENCODER"


def test_libraries_bring_their_options_and_say_the_licence(programs: dict[str, ModuleType], tmp_path: Path) -> None:
    parts = programs["parts"]
    flags = parts.flags(spec(tmp_path, libraries=["x264", "gnutls"]))
    assert {"--enable-libx264", "--enable-gnutls", "--enable-gpl"} <= set(flags)
    assert not {"--enable-version3", "--enable-nonfree", "--enable-libx265"} & set(flags)
    assert parts.licence(spec(tmp_path, libraries=["x264", "gnutls"])) == "GPL version 2 or later"
    assert parts.licence(spec(tmp_path, libraries=["openssl"])) == "GPL version 3 or later"
    assert parts.licence(spec(tmp_path, npp=True)).startswith("nonfree")
    assert parts.licence(spec(tmp_path)) == "GPL version 2 or later"
    with pytest.raises(parts.Refused, match="no such library: fdk"):
        parts.flags(spec(tmp_path, libraries=["fdk"]))


def test_the_roles_libraries_are_those_of_the_catalogue(programs: dict[str, ModuleType]) -> None:
    known = set(programs["parts"].LIBRARY_FLAGS)
    schema = json.loads((ROOT / "profiles" / "profile.schema.json").read_text(encoding="utf-8"))
    allowed = schema["properties"]["codec"]["properties"]["libraries"]["items"]["enum"]
    assert set(allowed) == known
    choices = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))
    assert set(choices["argument_specs"]["main"]["options"]["gpu_codec_libraries"]["choices"]) == known
    for release in catalogue.archives().values():  # each has packages, or a reason why not
        assert set(roles.codec_libraries(release)) | set(roles.codec_libraries_absent(release)) == known


def test_an_unknown_kind_of_part_is_refused(programs: dict[str, ModuleType], tmp_path: Path) -> None:
    with pytest.raises(programs["parts"].Refused, match="encoder; kinds are encoders"):
        programs["parts"].components(spec(tmp_path, parts={"encoder": ["h264_nvenc"]}))


def test_listings_of_ffmpeg_are_read(programs: dict[str, ModuleType]) -> None:
    encoders = "Encoders:\n V..... = Video\n ------\n V....D h264_nvenc           NVIDIA NVENC H.264 encoder\n"
    filters = "Filters:\n  T.. = Timeline support\n ..C scale_cuda        V->V       GPU accelerated video resizer\n"
    assert programs["parts"].listed(encoders) == {"h264_nvenc"}
    assert programs["parts"].listed(filters) == {"scale_cuda"}


def test_a_link_moves_in_one_step_and_keeps_what_was_no_link(programs: dict[str, ModuleType], tmp_path: Path) -> None:
    program = tmp_path / "ffmpeg"
    program.write_text("somebody's own", encoding="utf-8")
    programs["install"].link(program, "/opt/new")
    programs["install"].link(program, "/opt/newer")
    assert str(program.readlink()) == "/opt/newer"
    assert (tmp_path / "ffmpeg.before-gpuprep").read_text(encoding="utf-8") == "somebody's own"


def test_a_packed_build_unpacks_to_the_same_and_packs_the_same(programs: dict[str, ModuleType], tmp_path: Path) -> None:
    install, state = programs["install"], programs["state"]
    wish = spec(tmp_path)
    finished_build(programs, state.build_folder(wish))
    first = install.pack(wish, tmp_path / "first.tar.xz")
    os.utime(state.build_folder(wish) / "bin" / "ffmpeg", (1, 1))
    assert install.pack(wish, tmp_path / "second.tar.xz") == first
    (tmp_path / "copy").mkdir()
    install.unpack(tmp_path / "first.tar.xz", tmp_path / "copy")
    assert state.build_flaw(wish, tmp_path / "copy") == ""
    assert (tmp_path / "copy" / "bin" / "ffmpeg").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("name", ["../outside", "/tmp/outside-of-gpuprep"])
def test_an_archive_cannot_write_elsewhere(programs: dict[str, ModuleType], tmp_path: Path, name: str) -> None:
    with tarfile.open(tmp_path / "bad.tar.xz", "w:xz") as tar:
        tar.addfile(tarfile.TarInfo(name))
    (tmp_path / "copy").mkdir()
    with pytest.raises(programs["parts"].Refused, match="no place in a build"):
        programs["install"].unpack(tmp_path / "bad.tar.xz", tmp_path / "copy")
    assert not (tmp_path / "outside").exists()


def test_an_archive_with_a_link_is_refused(programs: dict[str, ModuleType], tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/etc/passwd")
    with tarfile.open(tmp_path / "bad.tar.xz", "w:xz") as tar:
        tar.add(tmp_path / "link", arcname="bin/ffmpeg")
    (tmp_path / "copy").mkdir()
    with pytest.raises(programs["parts"].Refused, match="no place in a build"):
        programs["install"].unpack(tmp_path / "bad.tar.xz", tmp_path / "copy")
