"""What an ffmpeg command line needs from a build and from a GPU. Only reads the words; runs and opens nothing. Pure.

    needs(words)    one Need for each part: encoder, decoder, filter, muxer, ...

FFmpeg has more options than any list: an option that is not known here is taken as one with a value, as nearly all are.
Needs that only a file could show (the codecs of an input) are left out; `notes` say so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gpuprep.errors import UsageError

MOST_WORDS, MOST_LETTERS = 2000, 65536
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}")
# Options of FFmpeg 7.1's programs without a value (fftools/ffmpeg_opt.c, opt_common.h), which a `no` in front turns
# off, and some of older versions.
SWITCHES = frozenset(
    ("accurate_seek", "an", "apply_cropping", "auto_conversion_filters", "autorotate", "autoscale", "benchmark",
     "benchmark_all", "bitexact", "copy_unknown", "copyinkf", "copyts", "debug_ts", "display_hflip", "display_vflip",
     "dn", "dump", "find_stream_info", "fix_sub_duration", "fix_sub_duration_heartbeat", "force_fps", "hex",
     "hide_banner", "ignore_unknown", "intra", "isync", "n", "print_graphs", "psnr", "re", "recast_media",
     "same_quant", "seek_timestamp", "shortest", "sn", "start_at_zero", "stats", "stdin", "vn", "xerror", "y")
)  # fmt: skip
FLAGS = SWITCHES | {f"no{name}" for name in SWITCHES} | {"qphist", "report", "vstats"}
WITHOUT = ("vn", "an", "sn")  # of FLAGS: an output without video, sound, subtitles
CODECS = frozenset(("c", "codec", "vcodec", "acodec", "scodec"))
FILTERS = frozenset(("vf", "af", "filter"))
GRAPHS = frozenset(("filter_complex", "lavfi"))
SCRIPTS = frozenset(("filter_script", "filter_complex_script"))
BSFS = frozenset(("bsf", "vbsf", "absf"))
INNER = ("segment_format", "fifo_format")  # the format that another one writes
# No value looks so: what stands before it is an option without one that is not known here.
NO_VALUE = re.compile(r"-(?:i|f|map|[vas]f|(?:c|codec|filter|b|bsf)(?::.*)?|[vas]codec|filter_complex|pix_fmt|hwaccel)")
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{1,30}):(//)?")
# Written without // after the colon; elsewhere a colon may be a drive's or a device's.
PLAIN_SCHEMES = frozenset(
    ("pipe", "file", "fd", "data", "concat", "crypto", "subfile", "cache", "async", "unix", "md5")
)
# A scheme of a URL that is a demuxer or muxer, with the protocols under it.
FORMAT_SCHEMES = {"rtsp": ("rtsp", ("tcp", "udp", "rtp")), "rtsps": ("rtsp", ("tls", "tcp", "udp", "rtp"))}
TLS = {"https": "tls", "rtmps": "tls"}
SCHEME_NAMES = {"srt": "libsrt"}  # as configure calls it
INPUT_FORMATS = {
    "mp4": "mov", "mov": "mov", "m4a": "mov", "m4v": "mov", "3gp": "mov", "mkv": "matroska", "webm": "matroska",
    "mka": "matroska", "ts": "mpegts", "m2ts": "mpegts", "flv": "flv", "m3u8": "hls", "mpd": "dash", "wav": "wav",
    "mp3": "mp3", "aac": "aac", "ac3": "ac3", "flac": "flac", "ogg": "ogg", "opus": "ogg", "avi": "avi", "mxf": "mxf",
    "h264": "h264", "264": "h264", "hevc": "hevc", "265": "hevc", "ivf": "ivf", "y4m": "yuv4mpegpipe",
    "yuv": "rawvideo", "srt": "srt", "ass": "ass", "vtt": "webvtt", "png": "image2", "jpg": "image2", "jpeg": "image2",
    "sdp": "sdp", "mpg": "mpegps", "vob": "mpegps",
}  # fmt: skip
OUTPUT_FORMATS = {
    "mp4": "mp4", "mov": "mov", "m4a": "ipod", "mkv": "matroska", "webm": "webm", "mka": "matroska", "ts": "mpegts",
    "m2ts": "mpegts", "flv": "flv", "m3u8": "hls", "mpd": "dash", "wav": "wav", "mp3": "mp3", "aac": "adts",
    "ac3": "ac3", "flac": "flac", "ogg": "ogg", "opus": "opus", "avi": "avi", "mxf": "mxf", "h264": "h264",
    "264": "h264", "hevc": "hevc", "265": "hevc", "ivf": "ivf", "y4m": "yuv4mpegpipe", "yuv": "rawvideo",
    "srt": "srt", "ass": "ass", "vtt": "webvtt", "png": "image2", "jpg": "image2", "jpeg": "image2", "gif": "gif",
    "mpg": "mpeg",
}  # fmt: skip
# Formats that a stream's URL gets with -f; a container that holds others.
DEVICES = frozenset(("lavfi", "v4l2", "alsa", "pulse", "x11grab", "xcbgrab", "kmsgrab", "decklink", "fbdev"))
KINDS = ("video", "audio")
MAPPED_KIND = re.compile(r"\d+:([vVasdt])(?![a-zA-Z])")  # "0:v:0" of -map
NVENC, CUVID = "_nvenc", "_cuvid"
ON_GPU = ("_cuda", "_npp")
DEEP = ("p010", "p016", "10le", "10be", "main10")
FULL_CHROMA = ("yuv444", "444p", "gbrp", "rext", "high444")


@dataclass(frozen=True)
class Need:
    """One needed part. `kind` as in a profile's codec.parts, "pix_fmts", or "gpu" with a capability."""

    kind: str
    name: str
    where: str  # the words that ask for it: "-c:v libx264"


@dataclass
class _File:
    url: str
    options: list[tuple[str, str]]


@dataclass
class Asked:
    """All needs of a command, each once, and notes on what cannot be known without opening files."""

    needs: list[Need] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, kind: str, name: str, where: str) -> None:
        if all((need.kind, need.name) != (kind, name) for need in self.needs):
            self.needs.append(Need(kind, name, where))

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def needs(words: Sequence[str]) -> Asked:
    """The needs of a command. `words` begin with the program. Raises UsageError if it is not an ffmpeg command."""
    if sum(len(word) + 1 for word in words) > MOST_LETTERS or len(words) > MOST_WORDS:
        raise UsageError(
            f"the command is longer than {MOST_WORDS} words or {MOST_LETTERS} letters", "check a part of it"
        )
    if not words or not words[0].rpartition("/")[2].startswith("ffmpeg"):
        what = f"the command begins with {words[0][:40]!r}, not with ffmpeg" if words else "no ffmpeg command is given"
        raise UsageError(what, "gpuprep codec check HOST -- ffmpeg -i in.mp4 out.mp4")
    general, inputs, outputs = _split(words[1:])
    if not outputs:
        raise UsageError("the command has no output, and FFmpeg refuses it", "write the whole ffmpeg command after --")
    if any(not file.url for file in inputs):
        raise UsageError("an -i of the command has no file", "write the whole ffmpeg command after --")
    asked = Asked()
    for name, value in general:
        _graph_option(asked, name, value)
    for file in inputs:
        _input(asked, file)
    for file in outputs:
        _output(asked, file)
    if inputs:
        asked.note("which codecs the inputs hold is not known: no file is opened; name decoders with -c:v before -i")
    return asked


def _split(words: Sequence[str]) -> tuple[list[tuple[str, str]], list[_File], list[_File]]:
    """(options that belong to no file, inputs, outputs); each file has the options before it."""
    general: list[tuple[str, str]] = []
    inputs: list[_File] = []
    outputs: list[_File] = []
    pending: list[tuple[str, str]] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not word.startswith("-") or word == "-":
            outputs.append(_File(word, pending))
            pending = []
            continue
        name = word[1:]
        base = name.split(":")[0]
        value = words[at] if at < len(words) else ""
        if base in FLAGS or (base != "i" and NO_VALUE.fullmatch(value)):
            pending += [(name, "")] if base in WITHOUT else []
            continue
        at += 1
        if base == "i":
            inputs.append(_File(value, pending))
            pending = []
        elif base in GRAPHS or base in SCRIPTS or base == "init_hw_device":
            general.append((name, value))
        else:
            pending.append((name, value))
    return general, inputs, outputs


def _input(asked: Asked, file: _File) -> None:
    form = _last(file, "f")
    for name, value in file.options:
        base = name.split(":")[0]
        if base in CODECS and value != "copy":
            _named(asked, "decoders", value, f"-{name} {value}")
            if value.endswith(CUVID):
                codec = value.removesuffix(CUVID)
                asked.add("gpu", f"nvdec.{codec}", f"-{name} {value}")
        if base == "hwaccel" and value not in ("auto", "none"):
            kind = "cuda" if value in ("nvdec", "cuvid") else value
            _named(asked, "hwaccels", kind, f"-hwaccel {value}")
        _common(asked, base, name, value)
    if form in DEVICES:
        _named(asked, "indevs", form, f"-f {form}")
        if form == "lavfi":
            _graph(asked, file.url, "-f lavfi")
        return
    _url(asked, file.url, output=False)
    if form:
        _named(asked, "demuxers", form, f"-f {form}")
    elif guessed := INPUT_FORMATS.get(_extension(file.url)):
        asked.add("demuxers", guessed, f"-i {_short(file.url)}")


def _output(asked: Asked, file: _File) -> None:
    form = _last(file, "f")
    depth = " ".join(value.lower() for name, value in file.options if name.split(":")[0] in ("pix_fmt", "profile"))
    encoders = [
        (name, value)
        for name, value in file.options
        if name.split(":")[0] in CODECS and value not in ("copy", "")
    ]  # fmt: skip
    for name, value in encoders:
        _named(asked, "encoders", value, f"-{name} {value}")
        if value.endswith(NVENC):
            _encoder(asked, file, value.removesuffix(NVENC), f"-{name} {value}", depth)
    for name, value in file.options:
        base = name.split(":")[0]
        if base in FILTERS:
            _graph(asked, value, f"-{name}")
        if name.startswith("/") or base in SCRIPTS:
            asked.note(f"-{name} reads a file, which is not opened")
        if base in INNER:
            _named(asked, "muxers", value, f"-{name} {value}")
        _common(asked, base, name, value)
    for kind in KINDS if form != "null" else ():
        if _may_have(file, kind) and not any(_decides(name, kind) for name, _ in file.options):
            what = f"the output {_short(file.url)} names no {kind} encoder"
            asked.note(f"{what}: FFmpeg takes the first one that its format knows")
    if form == "tee":
        asked.add("muxers", "tee", "-f tee")
        for part in re.split(r"(?<!\\)\|", file.url):
            _tee(asked, part)
        return
    _url(asked, file.url, output=True)
    if form:
        _named(asked, "muxers", form, f"-f {form}")
    elif guessed := OUTPUT_FORMATS.get(_extension(file.url)):
        asked.add("muxers", guessed, _short(file.url))
    elif not SCHEME.match(file.url) or file.url == "-":
        asked.note(f"the format of the output {_short(file.url)} is not known without -f")


def _decides(name: str, kind: str) -> bool:
    """Whether the option names the encoder of the output's video or audio, or leaves that stream out."""
    letter = kind[0]
    base, _, stream = name.partition(":")
    if base in (f"{letter}codec", f"{letter}n"):
        return True
    return base in ("c", "codec") and (not stream or stream.startswith(letter))


def _may_have(file: _File, kind: str) -> bool:
    """Whether the output may have streams of this kind: not if -map chooses only streams of other kinds."""
    chosen = [MAPPED_KIND.match(value) for name, value in file.options if name == "map"]
    return not chosen or any(match is None or match[1].lower() == kind[0] for match in chosen)


def _tee(asked: Asked, part: str) -> None:
    options = re.match(r"\[([^\]]*)\]", part)
    url = part[options.end() :] if options else part
    form = next((option[2:] for option in (options[1].split(":") if options else ()) if option.startswith("f=")), "")
    _url(asked, url, output=True)
    if form:
        _named(asked, "muxers", form, "-f tee")
    elif guessed := OUTPUT_FORMATS.get(_extension(url)):
        asked.add("muxers", guessed, _short(url))


def _encoder(asked: Asked, file: _File, codec: str, where: str, depth: str) -> None:
    """Add the needs of an output's encoder: the encoder itself, and GPU features that its options use."""
    asked.add("gpu", f"nvenc.{codec}", where)
    options = {name.split(":")[0].replace("_", "-"): value for name, value in file.options}
    if any(word in depth for word in DEEP):
        asked.add("gpu", f"nvenc.{codec}.10bit", where)
    if any(word in depth for word in FULL_CHROMA):
        asked.add("gpu", f"nvenc.{codec}.444", where)
    features = {"bf": "b_frames", "rc-lookahead": "lookahead", "temporal-aq": "temporal_aq"}
    for option, feature in features.items():
        if options.get(option, "0") not in ("0", "", "false", "disabled"):
            asked.add("gpu", f"nvenc.{codec}.{feature}", f"-{option} {options[option]}")
    if options.get("b-ref-mode", "disabled") not in ("disabled", "0"):
        asked.add("gpu", f"nvenc.{codec}.b_ref", f"-b_ref_mode {options['b-ref-mode']}")


def _common(asked: Asked, base: str, name: str, value: str) -> None:
    if base in BSFS:
        for bitstream_filter in _parts(value, ","):
            _named(asked, "bsfs", bitstream_filter.partition("=")[0], f"-{name} {value}")
    if base == "pix_fmt":
        _named(asked, "pix_fmts", value.lstrip("+"), f"-{name} {value}")


def _graph_option(asked: Asked, name: str, value: str) -> None:
    base = name.split(":")[0]
    if base in GRAPHS:
        _graph(asked, value, f"-{name}")
    elif base in SCRIPTS:
        asked.note(f"-{name} reads a file, which is not opened")
    elif base == "init_hw_device":
        kind = re.split(r"[=:@,]", value)[0]
        _named(asked, "hwaccels", kind, f"-{name} {value}")


def _graph(asked: Asked, text: str, where: str) -> None:
    for body in _filters(text):
        name, _, arguments = body.partition("=")
        name = name.strip().partition("@")[0]
        if not name:
            continue
        _named(asked, "filters", name, f"{where} {name}")
        if name.endswith(ON_GPU):
            asked.add("gpu", "cuda", f"{where} {name}")
        if name == "format":
            for pix_fmt in re.split(r"[|]", arguments.removeprefix("pix_fmts=").partition(":")[0]):
                if pix_fmt:
                    _named(asked, "pix_fmts", pix_fmt, f"{where} format={pix_fmt}")


def _filters(text: str) -> Iterator[str]:
    """The filters of a graph, without labels."""
    for chain in _parts(text, ";"):
        for step in _parts(chain, ","):
            body = step.strip()
            while body.startswith("["):  # labels in front
                _, closed, rest = body.partition("]")
                body = rest.strip() if closed else ""
            if body.startswith("sws_flags=") or body.startswith("flags="):
                continue
            if body:
                yield re.sub(r"(\[[^\[\]]*\])+\s*$", "", body)


def _parts(text: str, mark: str) -> list[str]:
    """`text` split at `mark`, except within quotes and brackets or after a backslash."""
    parts: list[str] = []
    current: list[str] = []
    quoted = escaped = False
    depth = 0
    for letter in text:
        if escaped:
            escaped = False
        elif letter == "\\":
            escaped = True
        elif letter == "'":
            quoted = not quoted
        elif letter == "[" and not quoted:
            depth += 1
        elif letter == "]" and not quoted:
            depth = max(0, depth - 1)
        elif letter == mark and not quoted and not depth:
            parts.append("".join(current))
            current = []
            continue
        current.append(letter)
    return [*parts, "".join(current)]


def _url(asked: Asked, url: str, *, output: bool) -> None:
    where = _short(url)
    if url == "-":
        asked.add("protocols", "pipe", "-")
        return
    match = SCHEME.match(url)
    if match is None or not (match[2] or match[1].lower() in PLAIN_SCHEMES):
        asked.add("protocols", "file", where)
        return
    scheme = match[1].lower()
    if scheme in FORMAT_SCHEMES:
        form, under = FORMAT_SCHEMES[scheme]
        asked.add("muxers" if output else "demuxers", form, where)
        for name in under:
            asked.add("protocols", name, where)
        return
    _named(asked, "protocols", SCHEME_NAMES.get(scheme, scheme), where)
    if scheme in TLS:
        asked.add("protocols", TLS[scheme], where)
    if scheme in ("crypto", "async", "cache", "subfile") and (inner := url.partition(":")[2]):
        _url(asked, inner, output=output)


def _named(asked: Asked, kind: str, name: str, where: str) -> None:
    if NAME.fullmatch(name):
        asked.add(kind, name, _short(where))
    else:
        asked.note(f"{_short(where)} names nothing that can be looked up")


def _last(file: _File, option: str) -> str:
    return next((value for name, value in reversed(file.options) if name == option), "")


def _extension(url: str) -> str:
    path = re.split(r"[?#]", url)[0].rpartition("/")[2]
    return path.rpartition(".")[2].lower() if "." in path else ""


def _short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
