"""What an ffmpeg command line needs from a build and from a GPU. Only reads the words; runs and opens nothing.

    needs(words)    the files with their options, one Need for each part (encoder, decoder, filter, muxer, ...), and
                    Answers to what the words alone decide
    links(text)     the filters of a graph, with the labels between them

Needs that only a file could show (the codecs of an input) are left out; `notes` say so.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gpuprep.catalogue import ffmpeg
from gpuprep.errors import UsageError
from gpuprep.records import Status

MOST_WORDS, MOST_LETTERS = 2000, 65536
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,63}")
WITHOUT = ("vn", "an", "sn")  # switches: an output without video, sound, subtitles
CODECS = frozenset(("c", "codec", "vcodec", "acodec", "scodec"))
FILTERS = frozenset(("vf", "af", "filter"))
GRAPHS = frozenset(("filter_complex", "lavfi"))
SCRIPTS = frozenset(("filter_script", "filter_complex_script"))
BSFS = frozenset(("bsf", "vbsf", "absf"))
SHORT_FOR = {"codec": "c", "vcodec": "c:v", "acodec": "c:a", "scodec": "c:s", "vf": "filter:v", "af": "filter:a"}
# Each use of these adds one; other options replace the earlier one.
REPEATED = frozenset(("map", "map_channel", "metadata", "attach", "program", "stream_group", "streamid"))
INNER = ("segment_format", "fifo_format")  # the format that this muxer writes into
# No option has such a value. Before one of these words, an unknown option therefore has no value.
NO_VALUE = re.compile(r"-(?:i|f|map|[vas]f|(?:c|codec|filter|b|bsf)(?::.*)?|[vas]codec|filter_complex|pix_fmt|hwaccel)")
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]{1,30}):(//)?")
# These have no // after the colon; with other names, the colon may be that of a drive or a device.
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
# Devices that are named with -f, and their kinds of input.
DEVICES = frozenset(("lavfi", "v4l2", "alsa", "pulse", "x11grab", "xcbgrab", "kmsgrab", "decklink", "fbdev"))
KINDS = ("video", "audio")
MAPPED_KIND = re.compile(r"\d+:([vVasdt])(?![a-zA-Z])")  # "0:v:0" of -map
NVENC, CUVID = "_nvenc", "_cuvid"
ON_GPU = ("_cuda", "_npp")
DEEP = ("p010", "p016", "10le", "10be", "main10", "high10")
FULL_CHROMA = ("yuv444", "444p", "gbrp", "rext", "high444")


SPOKEN = {
    "encoders": "encoder", "decoders": "decoder", "filters": "filter", "hwaccels": "hwaccel",
    "muxers": "format to write", "demuxers": "format to read", "bsfs": "bitstream filter", "protocols": "protocol",
    "indevs": "input device", "pix_fmts": "pixel format", "gpu": "GPU", "gpu number": "GPU number",
}  # fmt: skip


@dataclass(frozen=True)
class Need:
    """One needed part. `kind` as in a profile's codec.parts, "pix_fmts", or "gpu" with a capability."""

    kind: str
    name: str
    where: str  # the words that ask for it: "-c:v libx264"


@dataclass(frozen=True)
class Answer:
    """Whether a need is met; or what is wrong with the command itself, with any build."""

    need: Need
    status: Status
    why: str = ""
    remedy: str = ""

    @property
    def title(self) -> str:
        return f"{SPOKEN.get(self.need.kind, self.need.kind)} {self.need.name}".strip()


@dataclass
class File:
    """An input or an output, and the options before it: ("c:v", "libx264")."""

    url: str
    options: list[tuple[str, str]]

    def last(self, *names: str) -> str:
        """The value of the last option of these names; "" without one."""
        return next((value for name, value in reversed(self.options) if name in names), "")


@dataclass(frozen=True)
class Link:
    """A filter of a graph, and the labels of the frames that it takes and gives; "" for those of its neighbours."""

    name: str
    arguments: str
    takes: tuple[str, ...]
    gives: tuple[str, ...]


@dataclass
class Asked:
    """A command: its files, all its needs, each once, and notes on what cannot be known without opening files."""

    general: list[tuple[str, str]] = field(default_factory=list)
    inputs: list[File] = field(default_factory=list)
    outputs: list[File] = field(default_factory=list)
    needs: list[Need] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, kind: str, name: str, where: str) -> None:
        if all((need.kind, need.name) != (kind, name) for need in self.needs):
            self.needs.append(Need(kind, name, where))

    def say(
        self, kind: str, name: str, where: str, why: str, remedy: str = "", *, status: Status = Status.FAIL
    ) -> None:
        answer = Answer(Need(kind, name, short(where)), status, why, remedy)
        if answer not in self.answers:
            self.answers.append(answer)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def needs(words: Sequence[str], version: str = "") -> Asked:
    """The needs of a command for FFmpeg `version`. Raises UsageError for words that do not begin with ffmpeg."""
    if sum(len(word) + 1 for word in words) > MOST_LETTERS or len(words) > MOST_WORDS:
        raise UsageError(
            f"the command is longer than {MOST_WORDS} words or {MOST_LETTERS} letters", "check a part of it"
        )
    if not words or not words[0].rpartition("/")[2].startswith("ffmpeg"):
        what = f"the command begins with {words[0][:40]!r}, not with ffmpeg" if words else "no ffmpeg command is given"
        raise UsageError(what, "gpuprep codec check HOST -- ffmpeg -i in.mp4 out.mp4")
    asked = Asked()
    release = ffmpeg.version_of(version)
    _split(asked, words[1:], release)
    general, inputs, outputs = asked.general, asked.inputs, asked.outputs
    if not outputs:
        raise UsageError("the command has no output, and FFmpeg refuses it", "write the whole ffmpeg command after --")
    if any(not file.url for file in inputs):
        raise UsageError("an -i of the command has no file", "write the whole ffmpeg command after --")
    if not inputs and not any(name.split(":")[0] in (*GRAPHS, *SCRIPTS) for name, _ in general):
        why = "the command has an output and no input"
        asked.say("input", "", short(outputs[0].url), why, f"write -i before the input: -i {outputs[0].url}")
    for file in outputs:
        if any(file.url == one.url and not SCHEME.match(file.url) and file.url != "-" for one in inputs):
            why = "it is also an input, and FFmpeg never writes to a file that it reads"
            asked.say("output", short(file.url), file.url, why, "name another file, and move it afterwards")
    ends = "" if release is not None and release < (6, 0) else ",; "  # newer ones overlook these at the end
    for text, where in graphs(asked):
        if not text.strip():
            asked.say("filter", "", where, "the graph is empty", f"leave {where} out")
        elif not all(step.strip() for part in pieces(text.rstrip(ends), ";") for step in pieces(part, ",")):
            why = "a comma or a semicolon has no filter on one of its sides"
            asked.say("filter", "", f"{where} {text}", why, "leave it out")
    for name, value in general:
        _graph_option(asked, name, value)
    for file in inputs:
        _input(asked, file)
    for file in outputs:
        _output(asked, file)
    if inputs:
        asked.note("which codecs the inputs hold is not known: no file is opened; name decoders with -c:v before -i")
    return asked


def _split(asked: Asked, words: Sequence[str], version: tuple[int, int] | None) -> None:
    """Sort the words into options that belong to no file, inputs and outputs; each file has the options before it."""
    program = ffmpeg.commands()["program"]
    with_value = ffmpeg.commands()["gone"]["7.0"]["values"]
    pending: list[tuple[str, str]] = []
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not word.startswith("-") or word == "-":
            asked.outputs.append(File(word, _last_ones(asked, pending)))
            pending = []
            continue
        name = word[1:]
        base = name.split(":")[0]
        value = words[at] if at < len(words) else ""
        is_switch = base in program["switches"] or base.removeprefix("no") in program["switches"]
        if is_switch and value in ("0", "1") and at + 1 < len(words):
            at += 1
            _valued_switch(asked, name, value, old=base in with_value, version=version)
            pending.append((name if value == "1" else f"no{name}", ""))
            continue
        if is_switch or base in program["plain"] or (base != "i" and NO_VALUE.fullmatch(value)):
            pending.append((name, ""))
            continue
        if at >= len(words):
            asked.say("option", word[:40], word, "it is the last word, and needs a value", "write its value after it")
        at += 1
        if base == "i":
            asked.inputs.append(File(value, _last_ones(asked, pending)))
            pending = []
        elif base in GRAPHS or base in SCRIPTS or base in ("init_hw_device", "filter_hw_device"):
            asked.general.append((name, value))
        else:
            pending.append((name, value))
    general = {*program["general"], *program["plain"]}
    for name, value in pending:
        base = name.split(":")[0]
        if f"-{name}" != words[-1] and base not in general and base.removeprefix("no") not in general:
            why = "it comes after the last output, and FFmpeg ignores it"
            remedy = "write it before the output (or before the -i) that it is for"
            asked.say("option", f"-{name[:40]}", f"-{name} {value}".strip(), why, remedy)
    asked.general += [(name, value) for name, value in pending if name.split(":")[0] in general]


def _last_ones(asked: Asked, options: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Drop options that are given again later: FFmpeg uses the last one. Flags that begin with a sign are added to the
    earlier ones: `-movflags a -movflags +b` is `-movflags a+b`.
    """
    of_flags = ffmpeg.commands()["of_flags"]
    joined: list[tuple[str, str]] = []
    given: dict[str, int] = {}
    for name, value in options:
        if name in given and name.partition(":")[0] in of_flags and value.startswith(("+", "-")):
            joined[given[name]] = (name, joined[given[name]][1] + value)
            continue
        given[name] = len(joined)
        joined.append((name, value))
    last: dict[str, str] = {}
    kept: list[tuple[str, str]] = []
    for name, value in reversed(joined):
        base, _, stream = name.partition(":")
        key = f"{SHORT_FOR.get(base, base)}:{stream}".rstrip(":")
        if base not in REPEATED and last.setdefault(key, value) != value:
            asked.note(f"-{name} {short(value)} is given again later, and FFmpeg uses the last: {short(last[key])}")
        else:
            kept.append((name, value))
    return kept[::-1]


def flags_of(value: str) -> set[str]:
    """The flags that are set in the end: {"a"} of "+a+b-b"."""
    signs = {name: sign for sign, name in re.findall(r"([+-]?)([^+-]+)", value)}
    return {name for name, sign in signs.items() if sign != "-"}


def _valued_switch(asked: Asked, name: str, value: str, *, old: bool, version: tuple[int, int] | None) -> None:
    """Report how FFmpeg reads the 0 of `-autorotate 0`: as a value up to 6.1, as the name of an output since 7.0."""
    where, right = f"-{name} {value}", f"-no{name}" if value == "0" else f"-{name}"
    if old and version is not None and version < (7, 0):
        return
    if old and version is None:
        why = f"up to FFmpeg 6.1 {value} is its value, since 7.0 an output file; the version here is not known"
        asked.say(
            "option", f"-{name}", where, why, f"write {right}, which works in every version", status=Status.UNKNOWN
        )
        return
    why = f"this option takes no value: FFmpeg reads {value} as the name of an output file"
    asked.say("option", f"-{name}", where, why, f"write {right}")


def _input(asked: Asked, file: File) -> None:
    form = file.last("f")
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
    image: str = ffmpeg.commands()["images"].get(extension(file.url), "") if form in ("", "image2") else ""
    if image and not any(name.split(":")[0] in CODECS for name, _ in file.options):
        asked.add("decoders", image, f"-i {short(file.url)}")
    if form:
        _named(asked, "demuxers", form, f"-f {form}")
    elif guessed := INPUT_FORMATS.get(extension(file.url)):
        asked.add("demuxers", guessed, f"-i {short(file.url)}")


def _output(asked: Asked, file: File) -> None:
    form = file.last("f")
    depth = " ".join(value.lower() for name, value in file.options if name.split(":")[0] in ("pix_fmt", "profile"))
    encoders = [
        (name, value)
        for name, value in file.options
        if name.split(":")[0] in CODECS and value != "copy"
    ]  # fmt: skip
    for name, value in encoders:
        _named(asked, "encoders", value, f"-{name} {value}")
        if value.endswith(NVENC) and value in ffmpeg.commands()["encoders"]:
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
        holds = ffmpeg.commands()["muxers"].get(form or output_format(extension(file.url)), {kind: [""]}).get(kind)
        if holds and may_have(file, kind) and not any(decides(name, kind) for name, _ in file.options):
            what = f"the output {short(file.url)} names no {kind} encoder"
            asked.note(f"{what}: FFmpeg takes the first one that its format knows")
    if form == "tee":
        asked.add("muxers", "tee", "-f tee")
        for part in re.split(r"(?<!\\)\|", file.url):
            _tee(asked, part)
        return
    _url(asked, file.url, output=True)
    if form:
        _named(asked, "muxers", form, f"-f {form}")
    elif guessed := output_format(extension(file.url)):
        asked.add("muxers", guessed, short(file.url))
    else:
        _no_format(asked, file.url)


NEEDED_FORMATS = {"rtmp": "flv", "rtmps": "flv", "rtsp": "rtsp", "rtsps": "rtsp", "rtp": "rtp", "pipe": "matroska"}


def _no_format(asked: Asked, url: str) -> None:
    """Report an output whose format FFmpeg cannot know: FFmpeg uses only the ending, not the scheme of a URL."""
    match = SCHEME.match(url)
    scheme = "pipe" if url == "-" else match[1].lower() if match else ""
    if url.startswith(("\u2013", "\u2014")):
        why = "it begins with a long dash, and FFmpeg reads it as the name of an output file"
        asked.say("option", short(url), url, why, f"write -{short(url.lstrip(chr(0x2013) + chr(0x2014)))}")
    elif scheme:
        form = NEEDED_FORMATS.get(scheme, "mpegts")
        why = "FFmpeg takes the format of an output from -f or from an ending, and this has neither"
        asked.say("output", short(url), url, why, f"write -f {form} before it, or another format")
    else:
        what = f"the ending .{extension(url)}" if extension(url) else "no ending"
        why = f"FFmpeg knows no format of a file with {what}"
        remedy = (
            "name the format with -f (-f mp4), or give the file an ending; if you meant no file: an option before "
            "it takes no value"
        )
        asked.say("output", short(url), url, why, remedy)


def decides(name: str, kind: str) -> bool:
    """Whether the option names the encoder of the output's video or audio, or leaves that stream out."""
    letter = kind[0]
    base, _, stream = name.partition(":")
    if base in (f"{letter}codec", f"{letter}n"):
        return True
    return base in ("c", "codec") and (not stream or stream.startswith(letter))


def may_have(file: File, kind: str) -> bool:
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
    elif guessed := output_format(extension(url)):
        asked.add("muxers", guessed, short(url))


def _encoder(asked: Asked, file: File, codec: str, where: str, depth: str) -> None:
    """Add the needs of an output's encoder: the encoder itself, and GPU features that its options use."""
    asked.add("gpu", f"nvenc.{codec}", where)
    options = {name.split(":")[0].replace("_", "-"): value for name, value in file.options}
    if any(word in depth for word in DEEP):
        asked.add("gpu", f"nvenc.{codec}.10bit", where)
    if any(word in depth for word in FULL_CHROMA):
        asked.add("gpu", f"nvenc.{codec}.444", where)
    if "high422" in depth:
        asked.add("gpu", f"nvenc.{codec}.422", where)
    features = {"bf": "b_frames", "rc-lookahead": "lookahead", "temporal-aq": "temporal_aq", "refs": "refs",
                "weighted-pred": "weighted_pred", "highbitdepth": "10bit"}  # fmt: skip
    for option, feature in features.items():
        if options.get(option, "0") not in ("0", "", "false", "disabled"):
            asked.add("gpu", f"nvenc.{codec}.{feature}", f"-{option} {options[option]}")
    if re.fullmatch(r"[4-9]|[1-9]\d{1,3}", count := options.get("bf", "")):  # "b_frames" means three at least
        asked.add("gpu", f"nvenc.{codec}.b_frames.{count}", f"-bf {count}")
    if "ildct" in flags_of(options.get("flags", "")):
        asked.add("gpu", f"nvenc.{codec}.interlaced", f"-flags {options['flags']}")
    if options.get("tune") == "lossless":
        asked.add("gpu", f"nvenc.{codec}.lossless", "-tune lossless")
    if options.get("b-ref-mode", "disabled") not in ("disabled", "0"):
        asked.add("gpu", f"nvenc.{codec}.b_ref", f"-b_ref_mode {options['b-ref-mode']}")


def _common(asked: Asked, base: str, name: str, value: str) -> None:
    if base in BSFS:
        for bitstream_filter in pieces(value, ","):
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
    for link in (link for chain in links(text) for link in chain):
        _named(asked, "filters", link.name, f"{where} {link.name}")
        if link.name.endswith(ON_GPU):
            asked.add("gpu", "cuda", f"{where} {link.name}")
        if link.name in ("format", "noformat"):
            for pix_fmt in arguments(link).get("pix_fmts", "").split("|"):
                if pix_fmt:
                    _named(asked, "pix_fmts", pix_fmt, f"{where} format={pix_fmt}")


def graphs(asked: Asked) -> Iterator[tuple[str, str]]:
    """Each filter graph of a command, and the words that bring it."""
    for name, value in asked.general:
        if name.split(":")[0] in GRAPHS:
            yield value, f"-{name}"
    for file in asked.inputs:
        if file.last("f") == "lavfi":
            yield file.url, "-f lavfi"
    for file in asked.outputs:
        yield from ((value, f"-{name}") for name, value in file.options if name.split(":")[0] in FILTERS)


def links(text: str) -> list[list[Link]]:
    """The chains of a graph; in one chain each filter gives its frames to the next."""
    chains: list[list[Link]] = []
    for part in pieces(text, ";"):
        chain: list[Link] = []
        for step in pieces(part, ","):
            body = step.strip()
            takes, body = _labels(body)
            gives: list[str] = []
            while body.endswith("]") and "[" in body:
                body, _, label = body[:-1].rpartition("[")
                gives.insert(0, label.strip())
                body = body.rstrip()
            name, _, given = body.strip().partition("=")
            name = name.strip().partition("@")[0]
            if name and name not in ("sws_flags", "flags"):
                chain.append(Link(name, given, tuple(takes), tuple(gives)))
        if chain:
            chains.append(chain)
    return chains


def _labels(body: str) -> tuple[list[str], str]:
    """The labels in front of a filter, and the rest."""
    labels: list[str] = []
    while body.startswith("["):
        label, closed, rest = body[1:].partition("]")
        labels.append(label.strip())
        body = rest.strip() if closed else ""
    return labels, body


def arguments(link: Link) -> dict[str, str]:
    """The options of a filter by name; values without a name by the filter's own order, where that is known."""
    order = ffmpeg.commands()["filters"]["options"].get(link.name, ())
    values: dict[str, str] = {}
    for at, part in enumerate(pieces(link.arguments, ":") if link.arguments else ()):
        match = re.match(r"\s*([A-Za-z][A-Za-z0-9_]*)\s*=", part)
        name = match[1] if match else order[at] if at < len(order) else f"#{at}"
        values[name] = part[match.end() if match else 0 :].strip().strip("'")
    return values


def pieces(text: str, mark: str) -> list[str]:
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
    where = short(url)
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
        asked.add(kind, name, short(where))
        return
    what = "is empty" if not name.strip() else "cannot be the name of an FFmpeg part"
    shown = name if name.isascii() and name.isprintable() and len(name) <= 64 else ascii(name)[:64]
    remedy = "name one; ffmpeg -encoders lists those of a build" if kind == "encoders" else ""
    asked.say(kind, f'"{shown}"', where, f"it {what}", remedy)


def output_format(ending: str) -> str:
    """The format that FFmpeg takes for a file with this ending; "" if it knows none."""
    data = ffmpeg.commands()
    of_ending = {one: name for name, entry in data["muxers"].items() for one in entry.get("endings", ())}
    return str({**data["other_endings"], **of_ending}.get(ending, ""))


def extension(url: str) -> str:
    path = re.split(r"[?#]", url)[0].rpartition("/")[2]
    return path.rpartition(".")[2].lower() if "." in path else ""


def short(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."
