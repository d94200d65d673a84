"""An ffmpeg command that uses the GPU ─► the software command in its place, and what of the GPU it asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuprep.sim.guest import graph
from gpuprep.sim.guest.commandline import Command, File, Option, words
from gpuprep.sim.guest.graph import Pictures

ENCODERS = {"h264_nvenc": ("h264", "libx264"), "hevc_nvenc": ("hevc", "libx265"), "av1_nvenc": ("av1", "libsvtav1")}
CUVID_ONLY = frozenset({"resize", "crop", "deint", "surfaces", "drop_second_field"})
INPUT_DROPPED = CUVID_ONLY | {"hwaccel", "hwaccel_output_format", "hwaccel_device", "hwaccel_flags", "extra_hw_frames"}
GLOBAL_DROPPED = frozenset({"init_hw_device", "filter_hw_device", "hide_banner"})
# Options of NVENC that no software encoder has, or that mean another thing there.
OUTPUT_DROPPED = words("""
    preset tune rc rc-lookahead rc_lookahead surfaces cbr 2pass gpu no-scenecut forced-idr b_adapt spatial-aq spatial_aq
    temporal-aq temporal_aq aq-strength zerolatency nonref_p strict_gop cq qp aud init_qpP init_qpB init_qpI
    weighted_pred b_ref_mode dpb_size multipass ldkfs extra_sei udu_sei intra-refresh single-slice-intra-refresh
    constrained-encoding lookahead_level tf_level delay tier highbitdepth coder profile level a53cc unidir_b
    split_encode_mode cbr_padding
""")
# What NVENC writes of pictures in a format; None: it takes no such pictures without a conversion.
ENCODED = {
    "yuv420p": "yuv420p", "yuvj420p": "yuv420p", "nv12": "yuv420p", "p010le": "yuv420p10le", "p016le": "yuv420p10le",
    "yuv420p10le": "yuv420p10le", "yuv444p": "yuv444p", "yuv444p10le": "yuv444p10le", "yuv444p16le": "yuv444p10le",
}  # fmt: skip
DEFAULT_BIT_RATE = "2M"  # NVENC's own


@dataclass(frozen=True)
class Media:
    """The video of an input."""

    codec: str
    pixel_format: str
    width: int
    height: int
    fps: float = 25.0
    frames: int = 0
    profile: str = ""


@dataclass(frozen=True)
class Decode:
    """Work for NVDEC. `decoder` is the name in ffmpeg's stream mapping, "" for the native one with -hwaccel cuda."""

    media: Media
    decoder: str
    on_gpu: bool


@dataclass(frozen=True)
class Encode:
    """Work for NVENC."""

    encoder: str
    codec: str
    pixel_format: str  # as written
    width: int
    height: int
    b_frames: int
    options: Mapping[str, str]


@dataclass
class Plan:
    """`words` come after the software ffmpeg's name."""

    words: list[str] = field(default_factory=list)
    decodes: list[Decode] = field(default_factory=list)
    encodes: list[Encode] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def plan(command: Command, media: Sequence[Media | None]) -> Plan:
    """`media` tells of each input; None where it could not be read. Raises graph.CannotConvert where ffmpeg refuses."""
    made = Plan()
    sources: dict[str, Pictures] = {}
    resized: dict[str, str] = {}
    arguments: list[str] = []
    for index, (file, known) in enumerate(zip(command.inputs, media, strict=True)):
        label = f"{index}:v"
        sources[label] = _input(made, file, known)
        if change := _resizing(file):
            resized[label] = change
        kept = [option for option in file.options if not _is_dropped_of_input(option)]
        arguments += [*File("", kept).words(), "-i", file.url]
    general = [(name, value) for name, value in command.general if name not in GLOBAL_DROPPED and name != "vsync"]
    shared = command.value("filter_complex", "lavfi")
    labels: dict[str, Pictures] = {}
    if shared is not None:
        mapped = graph.mapped(shared, sources, resized)
        labels = mapped.outputs
        general = [(n, mapped.text if n in ("filter_complex", "lavfi") else v) for n, v in general]
    arguments = ["-hide_banner", *File("", general).words(), *arguments]
    for file in command.outputs:
        arguments += [*_output(made, command, file, sources, resized, labels), file.url]
    made.words = [*arguments, *File("", command.trailing).words()]
    return made


def cuvid(file: File) -> str:
    """The cuvid decoder that an input names, or ""."""
    named = file.video_codec() or ""
    return named if named.endswith("_cuvid") else ""


def _uses_nvdec(file: File) -> bool:
    return bool(cuvid(file)) or (file.value("hwaccel") or "") in ("cuda", "nvdec", "cuvid")


def _input(made: Plan, file: File, media: Media | None) -> Pictures:
    given = media.pixel_format if media else ""
    unused = [name for name, _ in file.options if name.split(":")[0] in CUVID_ONLY and not cuvid(file)]
    made.warnings += [
        f"Codec AVOption {name} (of the cuvid decoders) has not been used for any stream. The most likely reason is "
        "either wrong type (e.g. a video option with no video streams) or that it is a private option of some decoder "
        "which was not actually used for any stream."
        for name in unused
    ]
    if not _uses_nvdec(file):
        return Pictures(False, given)
    on_gpu = file.value("hwaccel_output_format") == "cuda"
    if media is not None:
        made.decodes.append(Decode(media, cuvid(file), on_gpu))
    return Pictures(on_gpu, graph.SURFACES.get(given, given))


def _resizing(file: File) -> str:
    """The filter in place of a cuvid decoder's -crop (top x bottom x left x right) and -resize, "" for none."""
    if not cuvid(file):
        return ""
    steps = []
    if crop := file.value("crop"):
        top, bottom, left, right = crop.split("x")
        steps.append(f"crop=iw-{left}-{right}:ih-{top}-{bottom}:{left}:{top}")
    if size := file.value("resize"):
        steps.append(f"scale={size.replace('x', ':')}")
    return ",".join(steps)


def _is_dropped_of_input(option: Option) -> bool:
    name, value = option
    base = name.split(":")[0]
    return base in INPUT_DROPPED or (base == "gpu") or (value or "").endswith("_cuvid")


def _output(
    made: Plan, command: Command, file: File, sources: dict[str, Pictures], resized: dict[str, str],
    labels: dict[str, Pictures],
) -> list[str]:  # fmt: skip
    flow, options = _filtered(file, sources, resized, labels)
    encoder = file.video_codec() or ""
    if "passthrough" not in (file.value("fps_mode") or "") and command.value("vsync") in ("0", "passthrough"):
        options = [*options, ("fps_mode", "passthrough")]
    if encoder in ENCODERS:
        return _encoder(made, File(file.url, options), encoder, flow)
    chosen = file.value("pix_fmt")
    if chosen == "cuda":
        options = [option for option in options if option[0].split(":")[0] != "pix_fmt"]
    is_raw = encoder == "rawvideo" or file.value("f") == "rawvideo" or file.url.endswith((".yuv", ".raw"))
    if is_raw and not chosen and flow.pixel_format:
        options = [*options, ("pix_fmt", flow.pixel_format)]
    return File(file.url, options).words()


def _filtered(
    file: File, sources: dict[str, Pictures], resized: dict[str, str], labels: dict[str, Pictures]
) -> tuple[Pictures, list[Option]]:
    """(the pictures that reach the output's encoder, its options with the filters in software)."""
    source = _source(file, sources)
    named = next((v.strip("[]") for n, v in file.options if n == "map" and v and v.startswith("[")), "")
    if named:
        return labels.get(named, Pictures()), list(file.options)
    text = next((v for n, v in reversed(file.options) if n.split(":")[0] in ("vf", "filter") and v is not None), None)
    if text is None and source not in resized:
        return sources.get(source, Pictures()), list(file.options)
    start = {"": sources.get(source, Pictures())}
    mapped = graph.mapped(text or "null", start, {"": resized[source]} if source in resized else {})
    options = [option for option in file.options if option[0].split(":")[0] not in ("vf", "filter")]
    return mapped.outputs.get("", Pictures()), [("vf", mapped.text), *options]


def _source(file: File, sources: dict[str, Pictures]) -> str:
    """The label of the input whose video the output takes: as mapped, else the first."""
    for name, value in file.options:
        if name == "map" and value and value.split(":")[0].isdigit() and not value.endswith((":a", ":a:0", ":s")):
            return f"{value.split(':')[0]}:v"
    return next(iter(sources), "")


def _encoder(made: Plan, file: File, encoder: str, flow: Pictures) -> list[str]:
    codec, software = ENCODERS[encoder]
    asked = file.value("pix_fmt")
    given = asked if asked and asked != "cuda" else flow.pixel_format or "yuv420p"
    written = ENCODED.get(given, "yuv420p")
    decoded = next((item.media for item in made.decodes), None)
    size = (file.value("s") or "").split("x") if "x" in (file.value("s") or "") else []
    b_frames = int(file.value("bf") or 0)
    private = {name.split(":")[0]: value or "" for name, value in file.options}
    width, height = (int(size[0]), int(size[1])) if size else (decoded.width, decoded.height) if decoded else (0, 0)
    made.encodes.append(Encode(encoder, codec, written, width, height, b_frames, private))
    kept = [(n, v) for n, v in file.options if not _is_dropped_of_output(n, v)]
    arguments = File("", kept).words()
    rate = {"cq": "-crf", "qp": "-qp"}
    quality = [word for name, option in rate.items() if (value := file.value(name)) for word in (option, value)]
    if not quality and not any(name.split(":")[0] == "b" and name != "b:a" for name, _ in kept):
        quality = ["-b:v", DEFAULT_BIT_RATE]
    own = {
        # As good as superfast (40.2 and 40.8 dB of a clip of bars), in two thirds of its time.
        "libx264": ["-preset", "ultrafast", "-x264-params", "b-adapt=0:cabac=1:8x8dct=1"],
        "libx265": ["-preset", "ultrafast", "-x265-params", "log-level=none:b-adapt=0"],
        "libsvtav1": ["-preset", "12"],
    }[software]
    return [*arguments, "-c:v", software, *own, *quality, "-bf", str(b_frames), "-pix_fmt", written]


def _is_dropped_of_output(name: str, value: str | None) -> bool:
    base, _, kind = name.partition(":")
    if base in ("c", "codec", "vcodec"):
        return (value or "").endswith("_nvenc")
    audio = kind.startswith("a")  # -profile:a belongs to the sound
    return not audio and (base in OUTPUT_DROPPED or base in ("bf", "pix_fmt"))
