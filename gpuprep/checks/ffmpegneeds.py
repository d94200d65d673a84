"""Does a build of FFmpeg have what a command needs, and can the GPU do it?

answers(asked, parts, boards)    an Answer for each need: PASS, FAIL with what would add it, or UNKNOWN
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuprep.agent.video.licences import licence
from gpuprep.catalogue import Board, ffmpeg
from gpuprep.catalogue.video import capabilities, encoded_sizes, most_b_frames, takes
from gpuprep.checks import ffmpegframes, ffmpegoptions, ffmpegtries
from gpuprep.checks.ffmpegcommand import SPOKEN, Answer, Asked, Need, graphs, links
from gpuprep.checks.ffmpegfilters import pixel
from gpuprep.checks.judges import codec
from gpuprep.checks.judges.codec import CONFIGURED, configured
from gpuprep.records import Missing, Status
from gpuprep.records.ended import EXIT_CODES
from gpuprep.records.evidence.codec import Codec
from gpuprep.records.findings import PROBLEMS

LISTED = ("encoders", "decoders", "filters", "hwaccels", "muxers", "demuxers", "bsfs", "protocols", "pix_fmts")
# As a profile and configure call it ► as `ffmpeg -protocols` lists it.
LISTED_AS = {"libsrt": "srt", **codec.LISTED_AS}
CONFIGURED_AS = {listed: name for name, listed in LISTED_AS.items()}


# Codecs without an encoder or a decoder of their name, and those that FFmpeg has for them, in its order.
BY_CODEC: Mapping[str, Mapping[str, Sequence[str]]] = {
    "encoders": {
        "h264": ("libx264", "h264_nvenc"), "hevc": ("libx265", "hevc_nvenc"),
        "av1": ("libaom-av1", "librav1e", "libsvtav1", "av1_nvenc"), "vp8": ("libvpx",), "vp9": ("libvpx-vp9",),
        "mp3": ("libmp3lame", "libshine"), "opus": ("libopus",), "vorbis": ("libvorbis",), "theora": ("libtheora",),
        "webp": ("libwebp",),
    },
    "decoders": {"av1": ("libdav1d", "libgav1", "libaom-av1", "av1_cuvid")},
}  # fmt: skip


@dataclass(frozen=True)
class Checked:
    """All answers, and the build and GPU that they are about."""

    about: str  # "run 20261123-...", "profile video"
    version: str
    licence: str
    simulated: bool
    asked: Asked
    answers: tuple[Answer, ...]

    @property
    def exit_code(self) -> int:
        statuses = {answer.status for answer in self.answers}
        return next((EXIT_CODES[status] for status in (Status.FAIL, Status.UNKNOWN) if status in statuses), 0)


def licence_of(parts: Codec) -> str:
    """The licence of a build by configure's options; "" if these are unknown."""
    if parts.licence or isinstance(parts.buildconf, Missing) or not parts.buildconf:
        return parts.licence
    return licence([option for option in parts.buildconf if isinstance(option, str)])


def of_profile(parts: Mapping[str, Sequence[str]], *, npp: bool = False, version: str = "") -> Codec:
    """The parts of a build with these codec.parts, in the form of the codec probe. `npp`: codec.npp, for scale_npp."""
    parts = {**parts, "filters": (*parts.get("filters", ()), *(("scale_npp",) if npp else ()))}
    arguments = [
        f"--enable-{CONFIGURED[kind]}={','.join(names)}" for kind, names in parts.items() if kind in CONFIGURED
    ]
    accelerators = ("cuda",) if parts.get("hwaccels") else ()
    return Codec(
        version=version,
        hwaccels=accelerators,
        buildconf=tuple(arguments),
        encoders=tuple(parts.get("encoders", ())),
        decoders=tuple(parts.get("decoders", ())),
        filters=tuple(parts.get("filters", ())),
    )


def answers(
    asked: Asked,
    parts: Codec | Missing,
    boards: Sequence[Board | None],
    shipped: Mapping[str, Mapping[str, Sequence[str]]],
    allowed: Mapping[str, Collection[str]],
    gpus: int | None = None,
    tried: Sequence[tuple[ffmpegtries.Try, Sequence[tuple[int, str]]]] | None = None,
) -> list[Answer]:
    """The answer for each need, after all that is wrong with the words themselves. `boards`: the machine's GPUs, () if
    unknown; `gpus`: how many it has; `shipped`: codec.parts of gpuprep's profiles, to name one that adds a part;
    `allowed`: kind ► names that codec.parts of a profile may have; `tried`: what FFmpeg itself was asked and how it
    ended, None if it was not asked.
    """
    version = "" if isinstance(parts, Missing) else parts.version
    encoders = None if isinstance(parts, Missing) else _have("encoders", parts)
    ffmpegoptions.check(asked, version, gpus, encoders)
    filters = set() if isinstance(parts, Missing) else _have("filters", parts) or set()
    ffmpegframes.follow(asked, version, encoders, allowed.get("filters", ()), filters)
    if tried is not None:
        ffmpegtries.settle(asked, tried)
    else:
        given = {link.name for text, _ in graphs(asked) for chain in links(text) for link in chain if link.arguments}
        unseen = sorted(given & set(allowed.get("filters", ())) - set(ffmpeg.commands()["filters"]["options"]))
        if unseen:
            those = ", ".join(unseen[:4]) + (", ..." if len(unseen) > 4 else "")
            asked.note(f"the options of {those} are not looked up here: `gpuprep codec check HOST` asks FFmpeg there")
    return [
        *asked.answers,
        *(
            _of_gpu(need, boards) if need.kind == "gpu" else _of_build(need, parts, shipped, allowed)
            for need in asked.needs
        ),
    ]


def _of_build(
    need: Need,
    parts: Codec | Missing,
    shipped: Mapping[str, Mapping[str, Sequence[str]]],
    allowed: Mapping[str, Collection[str]],
) -> Answer:
    if isinstance(parts, Missing):
        return Answer(need, Status.UNKNOWN, f"the parts of this FFmpeg are not known: {parts.detail or parts.reason}")
    have = _have(need.kind, parts)
    if need.kind == "pix_fmts":
        need = replace(need, name=pixel(need.name))
        if have is None and need.name in ffmpeg.commands()["pix_fmts"]:
            return Answer(need, Status.PASS)  # every build has all pixel formats of its version
    release = ffmpeg.version_of(parts.version)
    if have is None and need.kind == "pix_fmts" and release is not None and release <= ffmpegoptions.NEWEST:
        have = set()
    if have is None:
        why = f"the record does not say which {SPOKEN.get(need.kind, need.kind)}s this FFmpeg has"
        return Answer(need, Status.UNKNOWN, why, "gpuprep validate HOST --only codec --profile base")
    of_formats: dict[str, str] = ffmpeg.commands()["configured_as"].get(need.kind, {})
    if {need.name, of_formats.get(need.name)} & have or any(
        one in have for one, configured_name in of_formats.items() if configured_name == need.name
    ):
        return Answer(need, Status.PASS)
    if {LISTED_AS.get(need.name), CONFIGURED_AS.get(need.name)} & have:
        return Answer(need, Status.PASS)
    if need.kind in BY_CODEC and (answer := _by_codec(need, have)) is not None:
        return answer
    return Answer(
        need, Status.FAIL, f"this FFmpeg has no such {SPOKEN.get(need.kind, need.kind)}", _adds(need, shipped, allowed)
    )


def _by_codec(need: Need, have: set[str]) -> Answer | None:
    """The answer for a need that is a codec's name ("-c:v h264"): FFmpeg uses its first coder for that codec."""
    able = [name for name in BY_CODEC[need.kind].get(need.name, ()) if name in have]
    if not able:
        return None
    if able[0].endswith(("_nvenc", "_cuvid")):
        why = f"FFmpeg takes {able[0]} for it: whether the GPU supports it is checked under that name"
        return Answer(need, Status.UNKNOWN, why, f"write {able[0]} in place of {need.name}")
    return Answer(need, Status.PASS, f"FFmpeg takes {able[0]} for it")


def _have(kind: str, parts: Codec) -> set[str] | None:
    """Names of this kind in the build; None if the record does not have them."""
    kind_of_list = "demuxers" if kind == "indevs" else kind  # FFmpeg lists devices among its formats
    listed = getattr(parts, kind_of_list, None) if kind_of_list in LISTED else None
    if listed is not None and not isinstance(listed, Missing):
        return set(listed)
    if kind in CONFIGURED and not isinstance(parts.buildconf, Missing):
        arguments = parts.buildconf
        if "--disable-everything" in arguments or any(
            argument.startswith("--enable-") and "=" in argument for argument in arguments
        ):
            return configured(arguments, CONFIGURED[kind])
    return None


def _adds(
    need: Need, shipped: Mapping[str, Mapping[str, Sequence[str]]], allowed: Mapping[str, Collection[str]]
) -> str:
    """The key of a profile that would add it."""
    if need.kind == "pix_fmts":
        near = difflib.get_close_matches(need.name, ffmpeg.commands()["pix_fmts"], 1)
        return f"write {near[0]}" if near else "no key of a profile adds a pixel format; ffmpeg -pix_fmts lists them"
    part = CONFIGURED_AS.get(need.name, need.name) if need.kind in ("encoders", "decoders") else need.name
    part = ffmpeg.commands()["configured_as"].get(need.kind, {}).get(part, part)
    having = [name for name, parts in shipped.items() if part in parts.get(need.kind, ())]
    libraries = ffmpeg.needed(need.kind, part)
    added = f" and codec.libraries with {libraries[0]}" if libraries else ""
    if need.kind == "hwaccels" and need.name != "cuda":
        return f"write -hwaccel cuda in place of {need.name}: gpuprep builds no other hwaccel"
    if need.kind == "hwaccels":
        return "codec.parts.hwaccels with h264_nvdec and others give cuda; gpuprep builds no other hwaccel"
    instead = _instead(need.kind, need.name)
    if having and not instead:
        return f"codec.parts.{need.kind} with {part}{added}; profile {having[0]} has it"
    if part == "scale_npp":
        return "codec.npp: true, and such a build may not be passed on; scale_cuda does the same work without it"
    if (library := ffmpeg.commands()["libraries"].get(part)) is not None:
        work = f"; {instead} does most of its work" if instead else ""
        return f"no key of a profile adds it: it needs {library}, and gpuprep builds FFmpeg without that{work}"
    if instead and instead in {*(name for parts in shipped.values() for name in parts.get(need.kind, ()))}:
        return f"write {instead} in place of {need.name}"
    if instead := next(iter(BY_CODEC.get(need.kind, {}).get(need.name, ())), ""):
        return f"name an encoder of it, {instead} or another, and add that to codec.parts.{need.kind}"
    if need.kind == "filters" and (since := ffmpeg.commands()["filters"]["gpu"].get(part, {}).get("since")):
        work = f"write hwdownload,format=nv12,{part.removesuffix('_cuda')},hwupload_cuda in place of it"
        return f"FFmpeg has it since {since}, and gpuprep builds none that new: {work}"
    if part in allowed.get(need.kind, ()):
        return f"codec.parts.{need.kind} with {part}{added}"
    names = {*allowed.get(need.kind, ()), *(name for parts in shipped.values() for name in parts.get(need.kind, ()))}
    if near := difflib.get_close_matches(part.lower(), sorted(names), 1, 0.85):
        return f"write {near[0]}"
    return f"no key of a profile adds the {SPOKEN.get(need.kind, need.kind)} {part}: gpuprep builds FFmpeg without it"


def _instead(kind: str, name: str) -> str:
    """What does the same work with NVIDIA's GPU, or is the present name: h264_nvenc for h264_vaapi and nvenc_h264."""
    data = ffmpeg.commands()
    if known := data["instead"].get(kind, {}).get(name, ""):
        return str(known)
    codec, _, maker = name.rpartition("_")
    if maker not in (*data["of_others"], "cuvid"):
        return ""
    return f"{codec}_{'nvenc' if kind == 'encoders' else 'cuvid'}" if kind in ("encoders", "decoders") else ""


def _of_gpu(need: Need, boards: Sequence[Board | None]) -> Answer:
    # Every GPU of NVIDIA: JPEG is decoded by CUDA and the processor together, not by NVDEC (NVDECODE guide, SDK 13).
    if need.name in ("cuda", "nvdec.mjpeg"):
        return Answer(need, Status.PASS)
    if not boards:
        remedy = "ask with a profile for one GPU (gpus: [t4]), or with a HOST that has a run (gpuprep validate HOST)"
        return Answer(need, Status.UNKNOWN, "which GPU it is for is not known", remedy)
    gpu_answers = [_one_gpu(need, board) for board in boards]
    return next(answer for status in (*PROBLEMS, Status.PASS) for answer in gpu_answers if answer.status is status)


def _one_gpu(need: Need, board: Board | None) -> Answer:
    if board is None:
        return Answer(need, Status.UNKNOWN, "gpuprep's catalogue does not know this GPU")
    able = capabilities(board.model.key)
    if able is None:
        return Answer(need, Status.UNKNOWN, f"what the video engines of a {board.model.title} can do is not known")
    side, codec, *feature = need.name.split(".")
    unable = side == "nvenc" and feature and f"nvenc.{codec}" not in able  # a missing codec has an answer of its own
    if need.name in able or unable or takes(board.model.key, need.name):
        return Answer(need, Status.PASS)
    if match := re.fullmatch(r"nvenc\.(\w+)\.b_frames\.(\d+)", need.name):
        most = most_b_frames(board.model.key, match[1])
        if most is None:
            return Answer(need, Status.UNKNOWN, f"how many B-frames in a row a {board.model.title} makes is not known")
        if int(match[2]) <= most:
            return Answer(need, Status.PASS)
        why = f"the encoder (NVENC) of a {board.model.title} makes {most} B-frames in a row of {match[1]} at most"
        return Answer(need, Status.FAIL, why, f"write -bf {most}")
    if match := re.fullmatch(r"nvenc\.(\w+)\.size\.(\d+|\?)x(\d+|\?)", need.name):
        return _size(need, board, match[1], *(int(side) if side.isdigit() else None for side in match.groups()[1:]))
    if side == "nvdec" and codec not in {
        capability.split(".")[1] for capability in able if capability.startswith(side)
    } | {"av1"}:
        return Answer(need, Status.UNKNOWN, f"whether a {board.model.title} decodes it is not in gpuprep's catalogue")
    engine = "encoder (NVENC)" if side == "nvenc" else "decoder (NVDEC)"
    if not any(capability.startswith(f"{side}.") for capability in able):
        return Answer(
            need, Status.FAIL, f"a {board.model.title} has no {engine}", "use a GPU that has one, or work in software"
        )
    why = f"the {engine} of a {board.model.title} cannot do {need.name.partition('.')[2]}"
    remedy = "use what it can, or a GPU that can (gpuprep explain --gpu NAME says what one can)"
    if need.name.endswith(".10bit"):
        deep = " or -c:v hevc_nvenc, which has 10 bits there," if "nvenc.hevc.10bit" in able else ""
        remedy = f"write format=yuv420p (8 bits) for -c:v {need.name.split('.')[1]}_nvenc,{deep} or use another GPU"
    elif need.name.endswith((".422", ".444")) and side == "nvenc":
        remedy = "write -vf format=yuv420p, or use a GPU that can (gpuprep explain --gpu NAME says what one can)"
    return Answer(need, Status.FAIL, why, remedy)


def _size(need: Need, board: Board, codec: str, width: int | None, height: int | None) -> Answer:
    sizes = encoded_sizes(codec, board.model.key)
    if not sizes or sizes[0].fit(width, height):
        return Answer(need, Status.PASS)
    least, most = ("x".join(map(str, sides)) for sides in (sizes[0].least, sizes[0].most))
    why = f"the encoder (NVENC) of a {board.model.title} encodes {codec} of {least} to {most}"
    if (width or 0) <= sizes[0].most[0] and (height or 0) <= sizes[0].most[1]:
        return Answer(need, Status.FAIL, why, "scale it up, or encode it with another encoder (libx264)")
    remedy = "scale it down, or encode hevc (up to 8192x8192)" if codec == "h264" else "scale it down"
    return Answer(need, Status.FAIL, why, remedy)
