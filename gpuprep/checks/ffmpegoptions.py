"""Would FFmpeg accept the options of a command: their names, places and values, and what a file can hold?

check(asked, version, gpus, encoders)    adds to `asked.answers` what is wrong, or cannot be known

What an option may be is data: catalogue/ffmpegcommands.yml. `version` is that of the FFmpeg, `gpus` the number of GPUs
of the host and `encoders` those of the build; None where nobody knows.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator
from functools import cache
from typing import Any

from gpuprep.catalogue import ffmpeg
from gpuprep.checks.ffmpegcommand import (
    BSFS,
    CODECS,
    FILTERS,
    GRAPHS,
    INPUT_FORMATS,
    KINDS,
    WITHOUT,
    Asked,
    File,
    Link,
    arguments,
    decides,
    extension,
    flags_of,
    graphs,
    links,
    may_have,
    output_format,
    pieces,
    short,
)
from gpuprep.records import Status

MOST_NEAR = 20  # answers after which no similar name is looked for: that takes milliseconds
NEWEST = (9, 0)  # the newest FFmpeg whose options the catalogue has
OLDEST = (5, 1)
# Options of encoders that no decoder has: before an input FFmpeg refuses them.
ONLY_ENCODERS = frozenset((
    "preset", "tune", "rc", "cq", "crf", "multipass", "rc-lookahead", "spatial-aq", "temporal-aq", "aq-strength",
    "b_ref_mode",
))  # fmt: skip
ONLY_CUVID = frozenset(("resize", "crop", "deint", "drop_second_field"))
CUVID_VALUES = {
    "resize": (re.compile(r"\d+x\d+"), "width x height, as 1280x720"),
    "crop": (re.compile(r"\d+x\d+x\d+x\d+"), "top x bottom x left x right, as 8x8x0x0"),
    "deint": (re.compile(r"weave|bob|adaptive|[0-2]"), "weave, bob or adaptive"),
}
NUMBER = re.compile(
    r"[-+]?(?:0[xX][0-9a-fA-F]+|\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?:dB|(?:[yzafpnumcdhkKMGTPEZY]i?)?B?)"
)
# How FFmpeg reads the value of an option, in every encoder and format. A value with an operator may be a formula.
SHAPES = {
    "number": (NUMBER, "a number", "a number, as 2 or 48k"),
    "formula": (NUMBER, "a number or a formula", "a number: k, M and G are its units"),
    "duration": (
        re.compile(r"-?(?:(?:\d+:)?[0-5]?\d:[0-5]?\d(?:\.\d*)?|\d+(?:\.\d*)?(?:s|ms|us)?)"),
        "a time",
        "seconds (90 or 1.5), 1:30 or 00:01:30.5",
    ),
    "rate": (
        re.compile(r"(?=.*[1-9])(?:\d+[:/]0*[1-9]\d*|(?:\d+\.?\d*|\.\d+)[kK]?)"),
        "a rate of frames above 0",
        "a rate, as 25, 30000/1001 or ntsc",
    ),
    "size": (re.compile(r"0*[1-9]\d*\D0*[1-9]\d*"), "a size", "width x height, as 1280x720, or hd720"),
    "ratio": (re.compile(r"(?=.*[1-9])(?:\d+:\d+|\d+\.?\d*|\.\d+)"), "a ratio above 0", "a ratio, as 16:9 or 1.78"),
}
FORMULAS = ("formula", "rate", "ratio")
CONSTANTS = frozenset(("PI", "E", "PHI", "QP2LAMBDA", "default", "max", "min", "none", "all"))
UNSEEKABLE = re.compile(r"-$|(?:pipe|fd):|(?:tcp|udp|srt|rtmps?|rtp|tls|https?|unix)://")
IMAGES_WITH_NUMBER = re.compile(r"%\d*d")


def check(asked: Asked, version: str, gpus: int | None, encoders: Collection[str] | None) -> None:
    """Look at each option of each file, and at what the outputs can hold."""
    release = ffmpeg.version_of(version)
    for file in asked.inputs:
        _names(asked, file, release, "input")
        _times(asked, file)
        _input(asked, file)
    for file in asked.outputs:
        _names(asked, file, release, "output")
        _times(asked, file)
        for kind, stream, encoder in encoders_of(file):
            _values(asked, file, kind, stream, encoder, release)
            _container(asked, file, kind, encoder, release)
            _bitstream(asked, file, kind, encoder)
        _unnamed(asked, file, encoders)
        _place(asked, file)
    for name, value in asked.general:
        _one_name(asked, name, value, release, "general")
    _gone_filters(asked, release)
    _gpu_numbers(asked, gpus)


def encoders_of(file: File) -> Iterator[tuple[str, str, str]]:
    """(kind, stream, encoder) of an output's named encoders: ("video", "v:0", "h264_nvenc"). "copy" too."""
    for name, value in file.options:
        base, _, stream = name.partition(":")
        if base not in CODECS or not value:
            continue
        kind = {"v": "video", "V": "video", "a": "audio", "s": "subtitle"}.get(
            base[0] if base[1:] == "codec" else stream[:1], ""
        )
        if not kind and stream.isdigit():
            kind = "audio" if coded(value) in SOUND else "video"
        yield kind or ("audio" if coded(value) in SOUND else "video"), stream, value


SOUND = frozenset((
    "aac", "ac3", "eac3", "mp2", "mp3", "opus", "vorbis", "flac", "alac", "pcm_s16le", "pcm_s24le", "pcm_s32le",
    "pcm_f32le", "pcm_s16be", "pcm_mulaw", "pcm_alaw", "dca", "truehd", "wavpack", "speex", "amr_nb", "amr_wb",
))  # fmt: skip


def coded(encoder: str) -> str:
    """The codec that an encoder writes: "h264" of h264_nvenc and of libx264."""
    special = {
        "libx264": "h264", "libx264rgb": "h264", "libopenh264": "h264", "libx265": "hevc", "libkvazaar": "hevc",
        "libvpx": "vp8", "libvpx-vp9": "vp9", "libaom-av1": "av1", "libsvtav1": "av1", "librav1e": "av1",
        "libmp3lame": "mp3", "libshine": "mp3", "libfdk_aac": "aac", "libopus": "opus", "libvorbis": "vorbis",
        "libtheora": "theora", "libxvid": "mpeg4", "libwebp": "webp", "libtwolame": "mp2", "libopenjpeg": "jpeg2000",
        "libjxl": "jpegxl", "prores_ks": "prores", "prores_aw": "prores", "libspeex": "speex",
    }  # fmt: skip
    makers = "|".join(("nvenc", "cuvid", *ffmpeg.commands()["of_others"]))
    return special.get(encoder, re.sub(rf"_(?:{makers})$", "", encoder))


def of_another(name: str) -> bool:
    """Whether an encoder or a filter works with another maker's engine: h264_vaapi, scale_opencl."""
    return any(name.endswith(f"_{maker}") for maker in (*ffmpeg.commands()["of_others"], "opencl", "vt"))


# ---------------------------------------------------------------- names and places


def _names(asked: Asked, file: File, release: tuple[int, int] | None, side: str) -> None:
    for name, value in file.options:
        _one_name(asked, name, value, release, side)
        _shape(asked, name, value, release)


def _one_name(asked: Asked, name: str, value: str, release: tuple[int, int] | None, side: str) -> None:
    data = ffmpeg.commands()
    program = data["program"]
    base = name.removeprefix("/").split(":")[0]
    where = f"-{name} {value}".strip()
    bare = base.removeprefix("no") if base.removeprefix("no") in program["switches"] else base
    for since, instead in _gone(release, "options"):
        if base in instead:
            remedy = f"write {instead[base]} in place of -{base}" if instead[base] else "leave it out"
            asked.say("option", f"-{base}", where, f"FFmpeg {since} and newer have no such option", remedy)
            return
    after = "write it after the last -i, before the output that it is for"
    for wrong, what, remedy in (
        (bare in program["input"] and side == "output", "inputs, and stands before an output",
         f"write it before the -i that it is for: {where} -i in.mp4"),
        (bare in program["output"] and side == "input", "outputs, and stands before an -i", after),
        (base in ONLY_ENCODERS and side == "input", "encoders, and stands before an -i", after),
    ):  # fmt: skip
        if wrong:
            asked.say("option", f"-{base}", where, f"it is an option of {what}", remedy)
            return
    known = {
        *data["options"],
        *(one for key in ("input", "output", "both", "general", "plain") for one in program[key]),
    }
    # Generic options of codecs may have the letter of a kind of streams in front: -vb, -aprofile.
    generic = {"profile", *data["values"]["formula"], *data["values"]["words"]}
    if name[:1] in ("v", "a", "s") and name[1:] in generic:
        return
    old = {one for entry in data["gone"].values() for one in entry.get("options", {})}
    if bare in known or bare in program["switches"] or bare in old:
        return
    near = _near(asked, base, known, 0.75)
    if release is None or release > NEWEST:
        why = f"gpuprep does not know it, and knows the options of FFmpeg {_dotted(OLDEST)} to {_dotted(NEWEST)} only"
        asked.say(
            "option", f"-{base[:40]}", where, why, f"did you mean -{near}?" if near else "", status=Status.UNKNOWN
        )
        return
    why = "FFmpeg has no such option, and refuses the whole command"
    remedy = f"write -{near}" if near else "leave it out, or look it up: ffmpeg -h full"
    asked.say("option", f"-{base[:40]}", where, why, remedy)


def _gone(release: tuple[int, int] | None, kind: str) -> Iterator[tuple[str, dict[str, str]]]:
    """(since, {name: what to write instead}) of all that this FFmpeg no longer has."""
    for since, entry in ffmpeg.commands()["gone"].items():
        if release is not None and release >= (ffmpeg.version_of(since) or release):
            yield since, entry.get(kind, {})


def _near(asked: Asked, word: str, words: Collection[str], cutoff: float = 0.6) -> str:
    """The most similar of `words`; "" if none is similar, or many answers were given."""
    if len(asked.answers) >= MOST_NEAR:
        return ""
    return next(iter(difflib.get_close_matches(word[:40], sorted(words), 1, cutoff)), "")


def _gone_filters(asked: Asked, release: tuple[int, int] | None) -> None:
    for text, where in graphs(asked):
        for link in (link for chain in links(text) for link in chain):
            _filter(asked, link, where, release)


def _filter(asked: Asked, link: Link, where: str, release: tuple[int, int] | None) -> None:
    data, given, written = ffmpeg.commands()["filters"], arguments(link), f"{where} {link.name}={link.arguments}"
    for since, instead in _gone(release, "filters"):
        if link.name in instead:
            why = f"FFmpeg {since} and newer have no such filter"
            remedy = f"write {instead[link.name]} in place of it" if instead[link.name] else ""
            asked.say("filter", link.name, f"{where} {link.name}", why, remedy)
    if "enable" in given and link.name in data["no_timeline"]:
        why = "this filter has no option enable: it works on all frames or on none"
        asked.say("filter", link.name, written, why, "leave enable out, or split the frames and trim them")
    formulas = data["formulas"].get(link.name, {"of": [], "names": []})
    for value in (given.get(name, "") for name in formulas["of"]):
        if unknown := _names_in(value) - CONSTANTS - {*formulas["names"]}:
            why = f"its formula has the name {min(unknown)[:40]}, which it does not know"
            remedy = f"its names are {', '.join(formulas['names'])}"
            asked.say("filter", link.name, written, why, remedy, status=_status(release))
    for name, words in data["values"].get(link.name, {}).items():
        value = given.get(name, "")
        if value and value not in words and not re.match(r"[-+\d(]", value):
            near = difflib.get_close_matches(value[:40], words, 1, 0.6)
            remedy = f"write {near[0]}" if near else f"one of {', '.join(words)}"
            asked.say(
                "filter", link.name, written, f"its option {name} has no {value[:40]}", remedy, status=_status(release)
            )
    options = data["options"].get(link.name)
    for name in given if options is not None else ():
        if name not in options and name not in data["every"]:
            similar = _near(asked, name, options)
            what = "more values than it has options" if name.startswith("#") else f"{name[:40]}, which it does not have"
            remedy = f"write {similar}" if similar else f"look them up: ffmpeg -h filter={link.name}"
            asked.say("filter", link.name, written, f"this filter is given {what}", remedy, status=_status(release))


def _input(asked: Asked, file: File) -> None:
    decoders = [value for name, value in file.options if name.split(":")[0] in CODECS]
    if any(decoder.endswith("_cuvid") for decoder in decoders):
        for name, value in file.options:
            pattern, write = CUVID_VALUES.get(name.split(":")[0], (None, ""))
            if pattern is not None and not pattern.fullmatch(value):
                why = f"the decoder does not read {value[:40] or 'an empty word'}"
                asked.say("option", f"-{name}", f"-{name} {value}", why, f"write {write}")
        return
    for name, value in file.options:
        if name.split(":")[0] in ONLY_CUVID:
            why = "only the _cuvid decoders have it: without one FFmpeg ignores it, and the pictures stay as they are"
            remedy = "write -c:v h264_cuvid (or the decoder of the input's codec) before -i"
            asked.say("option", f"-{name}", f"-{name} {value}", why, remedy)


# ---------------------------------------------------------------- values


def _shape(asked: Asked, name: str, value: str, release: tuple[int, int] | None) -> None:
    """A value that FFmpeg cannot read at all, whichever encoder or format the option is for."""
    data, base, where = ffmpeg.commands()["values"], name.split(":")[0], f"-{name} {value}"
    for shape, (pattern, what, write) in SHAPES.items():
        read = value.replace(" ", "") if shape == "formula" else value
        names = (*data["names"].get(shape, ()), *data["names"].get(base, ()))
        if base not in data[shape] or pattern.fullmatch(read) or value in names:
            continue
        if (shape in FORMULAS and _formula(read, shape)) or (shape == "number" and not value):
            continue
        unit = re.fullmatch(r"(\d+)([kKMG])[A-Za-z/]+", value)
        if unit and shape in ("number", "formula"):
            write = f"{unit[1]}{unit[2]}: k, M and G are its units"
        why = f"FFmpeg does not read {value[:40] or 'an empty word'} as {what}"
        asked.say("option", f"-{name}", where, why, f"write {write}")
    negative = base in data["duration"] and re.match(r"-[\d:.]*[1-9]", value)  # -0:30
    plain = -1.0 if negative else float(value) if re.fullmatch(r"[-+]?\d{1,15}(?:\.\d*)?", value) else None
    if plain is not None and plain < (least := data["least"].get(base, plain)):
        why = f"FFmpeg takes nothing below {least} here"
        asked.say("option", f"-{name}", where, why, f"write {least} or more, or leave it out")
    if plain is not None and base in data["whole"] and plain % 1:
        why = "FFmpeg takes a whole number here"
        asked.say("option", f"-{name}", where, why, f"write {int(plain)} or {int(plain) + 1}")
    words = data["words"].get(base)
    if words is None or value in words or NUMBER.fullmatch(value):
        return
    known = {*words, *(CONSTANTS if base not in ("fps_mode", "vsync") else ())}
    if wrong := [part for part in re.split(r"[-+]", value) if part and part not in known and not part.isdigit()]:
        near = _near(asked, wrong[0], words)
        why, remedy = (
            f"FFmpeg knows no {wrong[0][:40]} of {base}",
            f"write {near}" if near else f"one of {', '.join(words)}",
        )
        asked.say("option", f"-{name}", where, why, remedy, status=_status(release))


def _formula(value: str, shape: str) -> bool:
    """Whether FFmpeg may calculate the value: it is a formula of names that every option knows."""
    if not re.search(r"[-+*/^();]", value.lstrip("-+")) and value not in (CONSTANTS if shape == "formula" else ("PI",)):
        return False
    return _names_in(value) <= CONSTANTS


def _names_in(formula: str) -> set[str]:
    """Without those of functions."""
    return set(re.findall(r"(?<![\d.\w])[A-Za-z_]\w*(?!\w*\()", formula))


def _values(asked: Asked, file: File, kind: str, stream: str, encoder: str, release: tuple[int, int] | None) -> None:
    """The values that this encoder is given, for its own streams."""
    data = ffmpeg.commands()
    table: dict[str, Any] = data["encoders"].get(encoder, {})
    strings: dict[str, list[str]] = data["others"].get(encoder, {})
    for name, value in file.options:
        base, _, own = name.partition(":")
        where = f"-{name} {value}"
        if own not in ("", stream) and stream not in ("", own[:1]) and own != kind[0]:
            continue
        if own[:1] in ("v", "a", "s") and own[:1] != kind[:1]:
            continue
        if base in strings and value not in strings[base] and not value.isdigit():
            words = [part for part in re.split(r"[,+. -]", value) if part] if base == "tune" else [value]
            if any(word not in strings[base] for word in words):
                why = f"{encoder} has no {base} {value[:40]}"
                asked.say("option", f"-{name}", where, why, f"one of {', '.join(strings[base])}")
        if encoder.endswith("_nvenc") and base in data["not_nvenc"]:
            near = f": -rc vbr -cq {value[:10]} is nearest to it" if base == "crf" else ""
            asked.note(f"{encoder} has no -{base}, and FFmpeg ignores it{near}")
        if base in table:
            _value(asked, encoder, base, value, where, release)


def _value(asked: Asked, encoder: str, option: str, value: str, where: str, release: tuple[int, int] | None) -> None:
    """One value of an option of NVENC: a word of its list, or a number of its range."""
    data = ffmpeg.commands()
    entry: dict[str, Any] = data["encoders"][encoder][option]
    words: list[str] = entry.get("words", [])
    for since, instead in _gone(release, option):
        if value in instead and value in words:
            asked.say(
                "option",
                f"-{option}",
                where,
                f"FFmpeg {since} and newer have no {option} {value}",
                f"write -{option} {instead[value]}",
            )
            return
    if value in words:
        return
    for since, newer in data["since"].items():
        if value in newer["words"].get(encoder, {}).get(option, ()):
            first = ffmpeg.version_of(since)
            if release is not None and first is not None and release >= first:
                return
            status = Status.UNKNOWN if release is None else Status.FAIL
            asked.say(
                "option",
                f"-{option}",
                where,
                f"{encoder} has it since FFmpeg {since}",
                f"one of {_listed(words)}" if words else "",
                status=status,
            )
            return
    if NUMBER.fullmatch(value):
        low, high = entry.get("range") or (None, None)
        plain = re.fullmatch(r"[-+]?\d+(?:\.\d+)?", value)
        if plain and low is not None and high is not None and not low <= float(value) <= high:
            what = f"-{option}"
            asked.say("option", what, where, f"{encoder} takes {low} to {high}", f"write a number from {low} to {high}")
        return
    if re.search(r"[-+*/()]", value):
        return  # a formula
    status = _status(release)
    gone = {word for _, instead in _gone(release, option) for word in instead}
    left = [word for word in words if word not in gone]
    why = f"{encoder} has no {option} {value[:40] or 'without a value'}"
    remedy = f"one of {_listed(left)}" if left else f"write a number from {entry['range'][0]} to {entry['range'][1]}"
    asked.say("option", f"-{option}", where, why, remedy, status=status)


def _listed(words: list[str]) -> str:
    """ "p1 to p7, default, slow"."""
    presets = [word for word in words if re.fullmatch(r"p[1-7]", word)]
    rest = [word for word in words if word not in presets]
    return ", ".join([*([f"{presets[0]} to {presets[-1]}"] if presets else []), *rest])


def _status(release: tuple[int, int] | None) -> Status:
    """The status of a name or a value that the catalogue lacks: it has only those of certain versions."""
    return Status.FAIL if release is not None and OLDEST <= release <= NEWEST else Status.UNKNOWN


def _dotted(release: tuple[int, int]) -> str:
    return f"{release[0]}.{release[1]}"


# ---------------------------------------------------------------- what an output can hold


def _format(file: File) -> str:
    return file.last("f") or output_format(extension(file.url))


def _container(asked: Asked, file: File, kind: str, encoder: str, release: tuple[int, int] | None) -> None:
    form = _format(file)
    entry = ffmpeg.commands()["muxers"].get(form, {})
    for since, newer in ffmpeg.commands()["since"].items():
        if coded(encoder) in newer.get("formats", {}).get(form, ()) and (release or NEWEST) < (
            ffmpeg.version_of(since) or NEWEST
        ):
            why = f"the format {form} holds {coded(encoder)} since FFmpeg {since}"
            remedy = "write another format (out.mkv holds all), or name another encoder"
            asked.say("output", file.url[:60], f"-c:{kind[0]} {encoder}", why, remedy)
    written = coded(encoder)
    pieces_of_mp4 = file.last("hls_segment_type") == "fmp4"
    if form in ("mpegts", "hls") and written in ("av1", "vp9", "vp8", "mjpeg", "prores") and not pieces_of_mp4:
        asked.note(f"MPEG-TS has no number for {written}, and players do not find it there: write MP4")
    allowed = entry.get({"video": "only", "audio": "sound"}.get(kind, "subtitles"))
    if allowed is None or encoder == "copy" or written in allowed or written not in _codecs():
        return
    what = f"only {' or '.join(allowed[:5])}{' or others' * (len(allowed) > 5)}" if allowed else "no pictures"
    where = f"-c:{kind[0]} {encoder}"
    remedy = (
        f"write -c:s {allowed[0]}, or another format"
        if kind == "subtitle" and allowed
        else "write another format (out.mkv holds all), or name another encoder"
    )
    asked.say("output", file.url[:60], where, f"the format {form} holds {what}, not {written}", remedy)


@cache
def _codecs() -> frozenset[str]:
    """All codecs that some container can hold: any other word is no codec."""
    keys = ("video", "audio", "only", "sound", "subtitles")
    return frozenset(
        one for entry in ffmpeg.commands()["muxers"].values() for key in keys for one in entry.get(key, ())
    )


def _bitstream(asked: Asked, file: File, kind: str, encoder: str) -> None:
    """A bitstream filter that works on another codec than the encoder writes."""
    for name, value in file.options:
        base, _, stream = name.partition(":")
        if base not in BSFS or stream[:1] not in ("", kind[0]) or encoder == "copy":
            continue
        for one in pieces(value, ","):
            codec = one.partition("_")[0]
            if codec in ("h264", "hevc", "av1", "vp9", "aac", "vvc") and codec != coded(encoder):
                why = f"it works on {codec}, and {encoder} writes {coded(encoder)}"
                asked.say("bsfs", one[:40], f"-{name} {value}", why, "leave it out")


def _place(asked: Asked, file: File) -> None:
    """What an output cannot be written to: pipes, segments and single pictures need options of their own."""
    form, url, seeking = _format(file), file.url, ffmpeg.commands()["seeking"]
    names = {name.split(":")[0] for name, _ in file.options}
    pieces_of = flags_of(file.last("movflags")) & {*seeking["flags"]} or names & {*seeking["options"]}
    wrong = ("", "")
    if form in seeking["formats"] and UNSEEKABLE.match(url) and not pieces_of:
        wrong = (
            f"{form} is completed by writing to its beginning, which is not possible here",
            "write -movflags frag_keyframe+empty_moov",
        )
    if (
        form == "rtp"
        and {"video", "audio"} <= {kind for kind, _, _ in encoders_of(file)}
        and not names & {"map", *WITHOUT}
    ):
        wrong = "RTP carries one stream", "write -an or -vn, or -f rtp_mpegts for both"
    if form == "tee" and "map" not in names:
        wrong = "FFmpeg chooses no streams for tee by itself", "write -map 0:v -map 0:a before it"
    if form == "segment" and "%" not in url:
        wrong = "each piece needs a name of its own", f"write a number into it: {_numbered(url)}"
    one = names & {"frames", "vframes", "update", "t", "to", "filter_complex", *FILTERS} or any(
        name in GRAPHS for name, _ in asked.general
    )
    if form == "image2" and not re.search(r"[%*]", url) and not one and any(_moves(other) for other in asked.inputs):
        wrong = "it is one picture, and FFmpeg stops at the second", f"write -frames:v 1, or {_numbered(url)} for all"
    if all(wrong):
        asked.say("output", short(url), short(url), *wrong)


def _numbered(url: str) -> str:
    stem, dot, ending = url.rpartition(".")
    return short(f"{stem}%03d{dot}{ending}")


def _moves(file: File) -> bool:
    """Whether an input certainly has more than one picture: an input that is cut may have only one."""
    cut = file.last("f") == "lavfi" and re.search(r"[=:](?:d|duration)=|trim|select|movie", file.url)
    if cut or file.last("t", "to", "sseof"):
        return False
    still = extension(file.url) in ffmpeg.commands()["images"] and "%" not in file.url
    return not still or file.last("loop") in ("1", "true", "yes", "on")


def _times(asked: Asked, file: File) -> None:
    """FFmpeg stops if -to is not after -ss, which is 0 by default."""
    end, start = _seconds(file.last("to")), _seconds(file.last("ss") or "0")
    if end is not None and start is not None and end <= start and not file.last("t"):
        why = f"the end is not after the beginning ({file.last('ss') or 0}), and FFmpeg stops"
        asked.say("option", "-to", f"-to {file.last('to')}", why, "write a later time, or -t and how long")


def _seconds(value: str) -> float | None:
    """Of 1:30, 90 or 1.5s; None if that is not simple."""
    if not (match := re.fullmatch(r"(?:(?:(\d+):)?(\d+):)?(\d+(?:\.\d*)?)s?", value)):
        return None
    hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds


def _unnamed(asked: Asked, file: File, encoders: Collection[str] | None) -> None:
    """What FFmpeg takes if no encoder is named: there must be one of them in the build."""
    form = _format(file)
    entry = ffmpeg.commands()["muxers"].get(form)
    left = [kind for kind in KINDS if may_have(file, kind) and not any(decides(name, kind) for name, _ in file.options)]
    if form and entry is None and left:
        why = f"no {left[0]} encoder is named, and what the format {form[:40]} takes then is not known"
        if form == "tee":
            why = f"no {left[0]} encoder is named, and tee takes none by itself"
        remedy = f"name it: -c:{left[0][0]}, or -{left[0][0]}n for none"
        asked.say("encoder", "", file.url, why, remedy, status=Status.FAIL if form == "tee" else Status.UNKNOWN)
    if not form or entry is None or encoders is None:
        return
    image = ffmpeg.commands()["images"].get(extension(file.url)) if form == "image2" else None
    for kind in left:
        candidates = [image] if image and kind == "video" else entry.get(kind, [])
        if not candidates or default_encoder(candidates, encoders):
            continue
        sure = kind == "video" and (image is not None or _has_pictures(asked, file))
        if kind == "audio" and not _may_sound(asked):
            continue
        why = f"no {kind} encoder is named, {form} takes {candidates[-1]} then, and this FFmpeg has no encoder for it"
        add = "-c:v h264_nvenc" if kind == "video" else "-c:a aac, or -an"
        if image or (kind == "video" and "h264" not in entry.get("only", ("h264",))):
            image = image or candidates[-1]
            add = f"codec.parts.encoders with {image}" + (" and codec.libraries with zlib" if image == "png" else "")
        asked.say(
            "encoder",
            "",
            file.url,
            why if sure else f"{why}: FFmpeg stops if an input has {'sound' if kind == 'audio' else 'pictures'}",
            add if image else f"add {add}",
            status=Status.FAIL if sure else Status.UNKNOWN,
        )


def default_encoder(candidates: list[str], encoders: Collection[str]) -> str:
    """The encoder of the build that FFmpeg takes for the first of these that it has; "" without one."""
    for candidate in candidates:
        if candidate in encoders:
            return candidate
        if candidate.startswith("lib"):
            continue
        software = [one for one in sorted(encoders) if coded(one) == candidate and not one.endswith("_nvenc")]
        if found := [*software, *(one for one in sorted(encoders) if one == f"{candidate}_nvenc")]:
            return found[0]
    return ""


def _has_pictures(asked: Asked, file: File) -> bool:
    """Whether the output surely has a video stream: options for one are named, or an input that is only pictures."""
    if any(name.split(":")[0] in ("vf", "s", "pix_fmt", "r") for name, _ in file.options):
        return True
    if any(name == "map" and value.partition(":")[2][:1] in ("v", "V") for name, value in file.options):
        return True
    return any(
        one.last("hwaccel") or extension(one.url) in ffmpeg.commands()["images"] or one.last("f") == "rawvideo"
        for one in asked.inputs
    )


def _may_sound(asked: Asked) -> bool:
    """Whether an input may have sound: pictures and generators of pictures have none."""
    silent = ("rawvideo", "image2", "image2pipe", "h264", "hevc", "yuv4mpegpipe", "ivf", "x11grab", "v4l2")
    for file in asked.inputs:
        form = file.last("f") or INPUT_FORMATS.get(extension(file.url), "")
        if form == "lavfi":
            audio = ffmpeg.commands()["filters"]["audio"]
            if any(link.name in audio for chain in links(file.url) for link in chain):
                return True
        elif form not in silent and not IMAGES_WITH_NUMBER.search(file.url):
            return True
    return False


# ---------------------------------------------------------------- which GPU


def _gpu_numbers(asked: Asked, gpus: int | None) -> None:
    """Every number of a GPU that a word gives: there must be so many."""
    named: list[tuple[str, str]] = []
    for file in (*asked.inputs, *asked.outputs):
        named += [
            (value, f"-{name} {value}")
            for name, value in file.options
            if name.split(":")[0] in ("gpu", "hwaccel_device")
        ]
    devices = []
    for name, value in asked.general:
        if name == "init_hw_device" and (match := re.match(r"cuda(?:=([^:@,]*))?(?::([^,]*))?", value)):
            devices.append(match[1] or "")
            named.append((match[2] or "", f"-{name} {value}"))
    for text, where in graphs(asked):
        for link in (link for chain in links(text) for link in chain if link.name == "hwupload_cuda"):
            named.append((arguments(link).get("device", ""), f"{where} hwupload_cuda={link.arguments}"))
    for value, where in named:
        if not re.fullmatch(r"\d{1,3}", value) or int(value) == 0:
            continue
        if gpus is None:
            remedy = "ask with HOST or --record in place of --profile; the first GPU is 0"
            asked.say(
                "gpu number", value, where, "how many GPUs the host has is not known", remedy, status=Status.UNKNOWN
            )
        elif int(value) >= gpus:
            have = "one GPU, number 0" if gpus == 1 else f"{gpus} GPUs, numbers 0 to {gpus - 1}"
            asked.say(
                "gpu number", value, where, f"the host has {have}", "write 0" if gpus == 1 else f"write 0 to {gpus - 1}"
            )
    every = [re.match(r"[a-z0-9_]+(?:=([^:@,]*))?", value) for name, value in asked.general if name == "init_hw_device"]
    names = {match[1] for match in every if match and match[1]}
    for name, value in asked.general:
        if name == "filter_hw_device" and value not in names and not re.fullmatch(r"[a-z]+\d+", value):
            why = f"no -init_hw_device names a device {value[:40]}"
            remedy = f"write -init_hw_device cuda={value[:40] if value.isalnum() else 'cu'} before it"
            asked.say("option", f"-{name}", f"-{name} {value}", why, remedy)
