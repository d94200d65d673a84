"""nv-codec-headers and FFmpeg: is it the wanted build, unchanged, and the one that a plain `ffmpeg` starts?"""

from __future__ import annotations

from pathlib import PurePosixPath

from gpuprep.agent.host_paths import PROGRAM_LINKS
from gpuprep.checks import byhand
from gpuprep.checks.common import check, skip
from gpuprep.desired.state import Wanted
from gpuprep.records import NOT_READ, Finding, Missing, Snapshot

ROLE = "gpu_codec"


def findings(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    if wanted.codec.ffmpeg == "none":
        return [
            skip("ffmpeg", "version", expected="none", actual="not checked", reason="the profile asks for no FFmpeg")
        ]
    facts = snapshot.codec
    installed, wish = facts.headers_version, wanted.codec.headers
    why = f"nv-codec-headers are {installed or 'not installed'}: an FFmpeg that is built here may not fit the driver"
    headers = check("nv-codec-headers", "version", installed, installed == wish, expected=wish, why=why, role=ROLE)
    codec_findings = [headers, *_headers_files(wanted, snapshot)]
    if facts.ffmpeg_path is None:
        why = "no ffmpeg is on the PATH: transcodes cannot start"
        return [
            *codec_findings,
            check("ffmpeg", "path", None, False, expected=wanted.ffmpeg_directory, why=why, role=ROLE),
        ]
    real = facts.ffmpeg_real_path
    ours = isinstance(real, str) and real.startswith(f"{wanted.ffmpeg_directory}/")
    version = f" (version {facts.ffmpeg_version})" if isinstance(facts.ffmpeg_version, str) else ""
    before = (
        "" if ours or not isinstance(facts.ffmpeg_path, str) else _in_the_way(snapshot, facts.ffmpeg_path, "ffmpeg")
    )
    path = check(
        "ffmpeg",
        "path",
        real,
        ours,
        expected=wanted.ffmpeg_directory,
        why=f"a plain ffmpeg starts another build, which may lack NVENC and NVDEC: {real}{version}",
        role="" if before else ROLE,  # a link in a later folder changes nothing
        remedy=before,
    )
    beside = facts.ffmpeg_path if ours and isinstance(facts.ffmpeg_path, str) else ""
    codec_findings += [path, *_ffprobe(snapshot, beside)]
    if not ours and not isinstance(real, Missing):  # the parts of another build do not matter
        return codec_findings
    ok = facts.ffmpeg_version == wanted.codec.ffmpeg
    why = (
        f"ffmpeg on the PATH is {facts.ffmpeg_version or 'of unknown version'}: its options and "
        f"results may differ from {wanted.codec.ffmpeg}"
    )
    codec_findings.append(
        check("ffmpeg", "version", facts.ffmpeg_version, ok, expected=wanted.codec.ffmpeg, why=why, role=ROLE)
    )
    key, ok = facts.build_key, facts.build_key == wanted.build_key
    why = "the FFmpeg on the PATH was built with other parts, versions or flags: jobs may lack a codec or a filter"
    codec_findings.append(check("ffmpeg", "build", key, ok, expected=wanted.build_key, why=why, role=ROLE))
    intact, shown = facts.manifest_intact, "as built" if facts.manifest_intact else "changed since the build"
    why = "files of FFmpeg were changed after the build (sha256 differs from the manifest): results cannot be trusted"
    codec_findings.append(
        check("ffmpeg", "files", intact, intact is True, expected="as built", shown=shown, why=why, role=ROLE)
    )
    free, expected = facts.redistributable, "no" if wanted.codec.npp else "yes"
    why = "the build's mark does not say whether it may be redistributed (npp makes it nonfree)"
    ok = free is (not wanted.codec.npp)
    return [*codec_findings, check("ffmpeg", "redistributable", free, ok, expected=expected, why=why, role=ROLE)]


def _ffprobe(snapshot: Snapshot, ours: str) -> list[Finding]:
    """Whether ffprobe, which programs use to read files, is of the wanted build. `ours`: path of the wanted ffmpeg."""
    if "ffprobe" not in snapshot.commands:  # older versions did not look for it
        return []
    path = snapshot.commands["ffprobe"]
    wanted = f"{PROGRAM_LINKS}/ffprobe"
    why = (
        f"a plain ffprobe starts another build than the wanted ffmpeg: {path}"
        if isinstance(path, str)
        else "no ffprobe is on the PATH: programs that look at a file before they convert it cannot start"
    )
    good = path == wanted or (bool(ours) and path == str(PurePosixPath(ours).with_name("ffprobe")))
    before = "" if good or not isinstance(path, str) else _in_the_way(snapshot, path, "ffprobe")
    role = "" if before else ROLE
    return [check("ffprobe", "path", path, good, expected=wanted, why=why, role=role, remedy=before)]


def _in_the_way(snapshot: Snapshot, path: str, name: str) -> str:
    return byhand.first_on_path(snapshot, path, f"{PROGRAM_LINKS}/{name}")


def _headers_files(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    """Whether the headers' files are intact; [] if unknown, or if other headers are installed (see their version)."""
    facts, expected = snapshot.codec, "as installed"
    if isinstance(facts.headers_version, Missing):
        why = "which headers these are is not known: nv-codec-headers.version reports why"
        return [skip("nv-codec-headers", "files", expected=expected, actual="not compared", reason=why)]
    if facts.headers_version != wanted.codec.headers or facts.headers_intact == NOT_READ:
        return []
    ok = facts.headers_intact is True
    shown = "as installed" if facts.headers_intact else "changed since"
    why = (
        "files of nv-codec-headers were changed after they were installed (sha256 differs from the "
        "manifest): the next build would use them"
    )
    return [
        check("nv-codec-headers", "files", facts.headers_intact, ok, expected=expected, shown=shown, why=why, role=ROLE)
    ]
