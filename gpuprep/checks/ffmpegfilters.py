"""What does each filter make of the frames that it gets, and which frames does it refuse?

    Filters(asked, ...).step(link, incoming, where)    the Frames that a filter gives

What a filter takes and gives is data: catalogue/ffmpegcommands.yml. FFmpeg converts pixel formats in the computer's
memory by itself; it never moves frames to the GPU or back, and it converts nothing in the GPU's memory.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuprep.catalogue import ffmpeg
from gpuprep.checks.ffmpegcommand import Asked, Link, arguments
from gpuprep.checks.ffmpegoptions import of_another
from gpuprep.records import Status

GPU, MEMORY, SOUND, UNKNOWN = "gpu", "memory", "sound", "unknown"
READ = (9, 0)  # the newest FFmpeg whose handling of CUDA frames is known (from its sources)
DECODER = "decoder"  # the origin of frames that no filter has seen
Size = tuple[int | None, int | None]
SOURCES = frozenset((
    "amovie", "testsrc", "testsrc2", "color", "smptebars", "smptehdbars", "mandelbrot", "movie", "gradients",
    "cellauto", "life", "zoneplate", "sierpinski", "allrgb", "allyuv", "pal75bars", "pal100bars", "colorspectrum",
    "colorchart", "perlin",
))  # fmt: skip


@dataclass(frozen=True)
class Frames:
    """Frames on one link. `formats`: what they may be, None for anything; in the GPU's memory those of the surface."""

    place: str
    formats: tuple[str, ...] | None = None
    size: Size = (None, None)
    origin: str = ""  # the words that put them there: "-hwaccel_output_format cuda"; of a picture its codec
    downloaded: bool = False  # by hwdownload, and no filter has fixed the format yet: `formats` are the surface's
    cropped: bool = False  # in the GPU's memory: only marked, and the next one must look

    @property
    def download(self) -> str:
        """The words that bring frames from the GPU's memory."""
        return f"hwdownload,format={(self.formats or ('nv12',))[0]}"


class Filters:
    """`known`: FFmpeg's filters; `built`: those of the build."""

    def __init__(
        self, asked: Asked, release: tuple[int, int] | None, known: Collection[str], built: Collection[str]
    ) -> None:
        self.asked, self.release, self.known, self.built = asked, release, known, built
        self.data: dict[str, Any] = ffmpeg.commands()["filters"]
        named = {value.partition("=")[0].partition(":")[0] for name, value in asked.general if name == "init_hw_device"}
        used = {file.last("hwaccel") for file in asked.inputs} - {"", "none", "auto"}
        self.has_device = bool({"cuda", "nvdec", "cuvid"} & (named | used))
        self.has_other = bool(named | used) or any(file.last("vaapi_device", "qsv_device") for file in asked.inputs)

    def refuse(self, name: str, where: str, why: str, remedy: str, kind: str = "frames") -> None:
        self.asked.say(kind, name, where, why, remedy)

    def before(self, release: tuple[int, int]) -> bool | None:
        """Whether this FFmpeg is older than `release`; None if its version is unknown, or gpuprep's data do not cover
        it.
        """
        return self.release < release if self.release is not None and self.release <= READ else None

    def step(self, link: Link, incoming: Sequence[Frames], where: str, outputs: int = 1) -> list[Frames]:
        """The frames that a filter gives."""
        name, shown = link.name, f"{where} {link.name}"
        given = arguments(link)
        if name in self.data["audio"] or (incoming and all(one.place == SOUND for one in incoming)):
            return [Frames(SOUND)] * outputs
        if is_source(name):
            return [Frames(MEMORY, None, size_of(given.get("size", given.get("s", given.get("#0", "")))))] * outputs
        main = next((one for one in incoming if one.place != SOUND), Frames(UNKNOWN))
        if name in self.data["through"] and not (name == "select" and "scene" in link.arguments):  # it compares pixels
            return self._through(link, incoming, main, shown, outputs)
        if name in ("format", "noformat"):
            words, excluded = given.get("pix_fmts", ""), name == "noformat"
            return [self.format(main, words, f"{shown}={link.arguments}", excluded=excluded)] * outputs
        if name == "hwdownload":
            return [self._download(main, shown)]
        if given.get("derive_device", "cuda") != "cuda" and name == "hwupload":
            why = f"frames of a device of {given['derive_device'][:20]} are not followed"
            self.asked.say("frames", name, f"{shown}={link.arguments}", why, status=Status.UNKNOWN)
            return [Frames(UNKNOWN)] * outputs
        if name in ("hwupload", "hwupload_cuda"):
            return [self._upload(name, main, shown)]
        if name == "hwmap" and main.place in (GPU, MEMORY) and self.before(READ) is not None:
            why = "FFmpeg maps no frames to CUDA and none from it: it only copies them"
            instead = "hwupload_cuda" if main.place == MEMORY else main.download
            self.refuse(name, shown, why, f"write {instead} in place of hwmap")
            return [Frames(MEMORY if main.place == GPU else GPU)] * outputs
        if name in self.data["unclear"]:
            why, remedy = (
                "what it makes of the frames is not known without running it",
                "write hwupload_cuda or hwdownload",
            )
            self.asked.say("frames", name, shown, why, f"{remedy} in place of hwmap", status=Status.UNKNOWN)
            return [Frames(UNKNOWN)] * outputs
        if of_another(name):
            return [Frames(UNKNOWN)] * outputs
        if name in self.data["gpu"] or name.endswith(("_cuda", "_npp")):
            return [self._on_gpu(link, incoming, given, shown)] * outputs
        if name not in self.known:
            if name in self.built:  # a patched FFmpeg's; one that the build lacks is a finding of its own
                self.asked.say("frames", name, shown, "gpuprep does not know this filter", status=Status.UNKNOWN)
            return [Frames(UNKNOWN)] * outputs
        return [self._in_memory(link, incoming, main, given, shown)] * outputs

    def _through(self, link: Link, incoming: Sequence[Frames], main: Frames, shown: str, outputs: int) -> list[Frames]:
        if len({one.place for one in incoming if one.place in (GPU, MEMORY)}) > 1:
            why = "some of its frames are in the GPU's memory, some in the computer's"
            remedy = "write hwupload_cuda for those in the computer's memory, or hwdownload,format=nv12 for the others"
            self.refuse(link.name, shown, why, remedy)
            main = Frames(UNKNOWN)
        if link.name == "concat":
            given = arguments(link)
            pictures = int(given["v"]) if re.fullmatch("[0-9]{1,3}", given.get("v", "")) else 1
            return [main if at < pictures else Frames(SOUND) for at in range(outputs)]
        return [main] * outputs

    # ------------------------------------------------------------ pixel formats in the computer's memory

    def format(self, frames: Frames, text: str, where: str, *, excluded: bool = False) -> Frames:
        names = tuple(pixel(name) for name in text.split("|") if name)
        memory = tuple(name for name in names if name != "cuda")
        if frames.place == GPU:
            if excluded is ("cuda" in names) and names:
                why = f"the frames are in the GPU's memory ({frames.origin}), where FFmpeg converts nothing by itself"
                remedy = f"write scale_cuda=format={surface_for(memory)} in its place, or {frames.download} before it"
                self.refuse("format", where, why, remedy)
                return Frames(UNKNOWN)
            return frames
        if excluded or not names:
            return frames
        if frames.place != MEMORY:
            return Frames(MEMORY, memory if len(memory) == 1 else (*memory, "")) if memory == names else Frames(UNKNOWN)
        if not memory:
            why = "the frames are in the computer's memory"
            self.refuse("format", where, why, "write hwupload_cuda in place of it")
            return Frames(UNKNOWN)
        if frames.downloaded:
            return self._fixed(frames, memory, where)
        if frames.formats is None:
            return replace(frames, formats=memory if len(memory) == 1 else (*memory, ""))
        kept = tuple(name for name in frames.formats if name in memory)
        return replace(frames, formats=kept or memory)

    def _fixed(self, frames: Frames, memory: tuple[str, ...], where: str) -> Frames:
        """A format right after hwdownload: it must be the one of the surface."""
        possible = frames.formats
        kept = memory if possible is None else tuple(name for name in memory if name in possible)
        if not kept:
            why = f"the surface is {named(possible or ())}, and hwdownload gives nothing else"
            self.refuse("hwdownload", where, why, f"write {frames.download},format={memory[0]}")
            return Frames(MEMORY, memory, frames.size)
        if len(memory) > 1 and possible != kept:
            why, remedy = (
                "FFmpeg may choose another one of these than the surface's format",
                "write only the surface's format: ",
            )
            self.asked.say(
                "frames", "hwdownload", where, why, f"{remedy}hwdownload,format={kept[0]}", status=Status.UNKNOWN
            )
        elif possible is not None and kept[0] != possible[0]:
            note = f"{where}: works only if the decoder gives {kept[0]}; of 8-bit video it gives {possible[0]}"
            self.asked.note(note)
        return Frames(MEMORY, kept, frames.size)

    def unfixed(self, frames: Frames, where: str) -> Frames:
        """Frames after hwdownload that go on without a format: FFmpeg then uses the first format that the next filter
        accepts.
        """
        if not frames.downloaded:
            return frames
        if frames.formats is not None and "yuv420p" not in frames.formats:
            why = "no format= follows hwdownload: FFmpeg takes yuv420p or a smaller one, and the surface is"
            self.refuse("hwdownload", where, f"{why} {named(frames.formats)}", f"write {frames.download}")
            return Frames(MEMORY, None, frames.size)
        return replace(frames, downloaded=False)

    # ------------------------------------------------------------ to the GPU and back

    def _download(self, frames: Frames, where: str) -> Frames:
        if frames.place == MEMORY:
            remedy = "leave it out, or write -hwaccel cuda -hwaccel_output_format cuda before -i"
            self.refuse("hwdownload", where, "the frames are in the computer's memory already", remedy)
        if frames.place != GPU:
            return Frames(MEMORY, None, frames.size)
        self.look(frames, where)
        return Frames(MEMORY, frames.formats, frames.size, downloaded=True)

    def look(self, frames: Frames, where: str) -> None:
        """Report frames in the GPU's memory that crop has marked and that go to a filter that ignores the mark."""
        if frames.cropped:
            why = "crop only marks frames in the GPU's memory, and only scale_cuda applies the mark"
            self.refuse("crop", where, why, "write scale_cuda after crop, or hwdownload,format=nv12 before it")

    def _upload(self, name: str, frames: Frames, where: str) -> Frames:
        if frames.place == GPU:
            if name == "hwupload_cuda":
                why = f"the frames are in the GPU's memory already ({frames.origin})"
                self.refuse(name, where, why, f"leave {name} out")
            return frames
        if name == "hwupload" and not self.has_device and self.has_other:
            return Frames(UNKNOWN)
        if name == "hwupload" and not self.has_device:
            remedy = "write hwupload_cuda, or -init_hw_device cuda=cu -filter_hw_device cu before the inputs"
            self.refuse(name, where, "nothing says which device it uploads to", remedy)
        frames = self.unfixed(frames, where)
        possible = self.data["pictures"].get(frames.origin) if frames.formats is None else frames.formats
        formats = None if possible is None else tuple(dict.fromkeys(self._uploaded(one, name) for one in possible))
        return Frames(GPU, formats if formats and "" not in formats else None, frames.size, name)

    def _uploaded(self, name: str, by: str) -> str:
        """The surface format that FFmpeg converts a pixel format to, "" if that is not known. As 5.1 and 7.1 do it."""
        newer = self.release is None or self.release >= (8, 0)
        if not name or name in self.data["uploads"] or (newer and name in self.data["uploads_newer"]):
            return name
        if newer or (by == "hwupload" and name in ("rgba", "bgra")):
            return ""
        if has_alpha(name) or name in ("rgba", "bgra", "argb", "abgr"):
            return "yuva420p"
        if RGB.match(name) or name.startswith(("gray", "gbrp", "pal8", "mono")):
            return "yuv444p16le" if bits(name) > 8 else "rgb0"
        if bits(name) > 8:
            return "yuv444p16le" if is_full_chroma(name) else "p010le"
        return "yuv444p" if is_full_chroma(name) else "yuv420p"

    # ------------------------------------------------------------ on the GPU

    def _on_gpu(self, link: Link, incoming: Sequence[Frames], given: dict[str, str], where: str) -> Frames:
        name = link.name
        rule = self.data["gpu"].get(name, {})
        for frames in incoming:
            if frames.place == MEMORY:
                why = "it works on frames in the GPU's memory, and gets frames from the computer's memory"
                self.refuse(name, where, why, _to_gpu(frames, name))
            if name != "scale_cuda":
                self.look(frames, where)
        main = incoming[0] if incoming else Frames(UNKNOWN)
        size: Size = main.size
        if "scale" in name or name in ("pad_cuda", "transpose_cuda"):
            size = _scaled(main.size, given) if "scale" in name else (None, None)
        on_gpu = [frames for frames in incoming if frames.place == GPU]
        formats = main.formats if main.place == GPU else None
        newer = rule.get("newer", ()) if self.release is None or self.release >= (8, 0) else ()
        takes = (*rule.get("takes", ()), *newer)
        if takes and formats is not None:
            if not set(formats) & set(takes):
                remedy = "write scale_cuda=format=nv12 before it"
                if name == "scale_cuda":
                    remedy = f"upload one of these: format={takes[0]},hwupload_cuda"
                self.refuse(name, where, f"the surface is {named(formats)}, and it takes {named(takes)}", remedy)
            formats = tuple(one for one in formats if one in takes) or None
        if name == "overlay_cuda" and len(on_gpu) == 2:
            formats = self._overlaid(on_gpu[0], on_gpu[1], where)
        if "scale" in name and re.fullmatch(r"\d+x\d+", given.get("w", "")):
            why, remedy = "it takes width and height as two numbers", f"write {name}={given['w'].replace('x', ':')}"
            self.refuse(name, f"{where}={given['w']}", why, remedy, "filter")
        wanted = pixel(given.get("format", ""))
        if wanted and "scale" in name:
            formats = self._scaled_to(name, wanted, formats, takes, where)
        if "gives" in rule:
            formats = (rule["gives"],)
        return Frames(GPU, formats, size, name)

    def _scaled_to(
        self, name: str, wanted: str, formats: tuple[str, ...] | None, takes: tuple[str, ...], where: str
    ) -> tuple[str, ...] | None:
        if wanted in ("same", "none"):
            return formats
        where = f"{where}=format={wanted}"
        if takes and wanted not in takes:
            status = Status.UNKNOWN if self.before(READ) is None else Status.FAIL
            why, remedy = (
                f"it writes {named(takes)}, not {wanted[:40]}",
                "write one of these: scale_cuda=format=yuv420p",
            )
            self.asked.say("frames", name, where, why, remedy, status=status)
            return None
        if formats and all(bool(RGB.match(one)) is not bool(RGB.match(wanted)) for one in formats):
            why = f"it does not convert {formats[0]} to {wanted}: not between YUV and RGB"
            remedy = f"convert in the computer's memory: hwdownload,format=nv12,format={wanted}"
            self.refuse(name, where, why, remedy)
        return (wanted,)

    def _overlaid(self, main: Frames, over: Frames, where: str) -> tuple[str, ...] | None:
        """overlay_cuda lays surfaces only on surfaces of certain formats."""
        rules: dict[str, list[str]] = self.data["overlays"]
        below = main.formats if main.formats is not None else tuple(rules)
        above = over.formats if over.formats is not None else tuple(one for row in rules.values() for one in row)
        kept = tuple(one for one in below if set(rules.get(one, ())) & set(above))
        if kept:
            return kept if main.formats is not None else None
        remedy = "write scale_cuda=format=yuv420p on the main picture"
        if all(one in rules["yuv420p"] for one in above):
            remedy += " before overlay_cuda"
        else:
            remedy += ", format=yuva420p,hwupload_cuda on the other"
        self.refuse("overlay_cuda", where, f"it cannot lay {named(above)} on {named(below)}", remedy)
        return ("yuv420p",)

    # ------------------------------------------------------------ in the computer's memory

    def _in_memory(
        self, link: Link, incoming: Sequence[Frames], main: Frames, given: dict[str, str], where: str
    ) -> Frames:
        name = link.name
        for frames in incoming:
            if frames.place == GPU:
                return self._off_gpu(name, frames, given, where)
        main = self.unfixed(main, where)
        for frames in incoming[1:]:
            self.unfixed(frames, where)
        if main.place != MEMORY:
            main = Frames(MEMORY)
        if name == "scale":
            return replace(main, size=_scaled(main.size, given))
        if name == "pad":
            sides = {"w": given.get("width", given.get("w", "")), "h": given.get("height", given.get("h", ""))}
            return replace(main, size=_scaled((None, None), sides))
        if name in self.data["keep"]:
            return replace(main, size=main.size if name in ("hflip", "vflip") else (None, None))
        return Frames(MEMORY)

    def _off_gpu(self, name: str, frames: Frames, given: dict[str, str], where: str) -> Frames:
        """A filter of the computer's memory gets frames of the GPU's."""
        on = f"the frames are in the GPU's memory ({frames.origin})"
        # From 8.1 on scale_cuda looks at what crop has marked; up to 7.1 it does not, and 8.0 was not read.
        older = None if self.release == (8, 0) else self.before((8, 1))
        if name == "crop" and older is False:
            return replace(frames, size=(None, None), cropped=True)
        if name == "crop":
            why = f"{on}, where FFmpeg only marks them, and "
            remedy = f"write {frames.download} before it"
            if older:
                why += "NVENC, hwdownload and the CUDA filters do not look"
                remedy += ", or -c:v h264_cuvid -crop TOPxBOTTOMxLEFTxRIGHT before -i"
            else:
                why += "the next one may not look"
            self.asked.say("frames", name, where, why, remedy, status=Status.FAIL if older else Status.UNKNOWN)
            return frames if older else Frames(UNKNOWN)
        if name == "vflip":
            why = f"{on}, where FFmpeg only counts their lines backwards, which NVENC, hwdownload and the CUDA filters"
            self.refuse(name, where, f"{why} cannot read", f"write {frames.download} before it")
            return frames
        why = f"it works in the computer's memory, and the frames are in the GPU's ({frames.origin})"
        self.refuse(name, where, why, self._to_memory(name, frames))
        return Frames(UNKNOWN, None, _scaled(frames.size, given) if name == "scale" else (None, None))

    def _to_memory(self, name: str, frames: Frames) -> str:
        twin = f"{name}_cuda"
        since = ffmpeg.version_of(self.data["gpu"].get(twin, {}).get("since", "")) or (0, 0)
        if twin in self.data["gpu"] and (since == (0, 0) or (self.release is not None and self.release >= since)):
            return f"write {twin} in place of {name}, or {frames.download} before it"
        return f"write {frames.download} before it, and hwupload_cuda after it if the GPU goes on"


# ---------------------------------------------------------------- words


def is_source(name: str) -> bool:
    return name in SOURCES or (name.endswith("src") and not name.startswith(("buffer", "abuffer")))


def size_of(text: str) -> Size:
    """(1280, 720) of "1280x720" and of FFmpeg's names for sizes."""
    if text in (names := ffmpeg.commands()["sizes"]):
        return names[text][0], names[text][1]
    match = re.fullmatch(r"(\d{1,6})x(\d{1,6})", text)
    return (int(match[1]), int(match[2])) if match else (None, None)


def _scaled(size: Size, given: dict[str, str]) -> Size:
    """The size that scale gives: numbers are known, formulas and -1 are not."""
    named_size = given.get("size", given.get("s", ""))
    if named_size or re.fullmatch(r"\d+x\d+|[a-z]+\d+", given.get("w", "")):
        return size_of(named_size or given["w"])
    words = given.get("w", given.get("width", "")), given.get("h", given.get("height", ""))
    if not any(words):
        return size
    if given.get("force_original_aspect_ratio", "disable") not in ("disable", "0"):
        return (None, None)  # one of both becomes another
    width, height = (int(word) if re.fullmatch(r"\d{1,6}", word) and word != "0" else None for word in words)
    return width, height


def _to_gpu(frames: Frames, name: str) -> str:
    if frames.downloaded:
        return f"write hwupload_cuda before {name}, or leave hwdownload out"
    if frames.origin == DECODER:
        return f"write -hwaccel cuda -hwaccel_output_format cuda before its -i, or hwupload_cuda before {name}"
    return f"write hwupload_cuda before {name}"


# ---------------------------------------------------------------- pixel formats

# Surfaces that NVDEC writes: of 8-bit 4:2:0 first, as nearly all videos are.
DECODED = ("nv12", "p010le", "p016le", "yuv444p", "yuv444p16le", "nv16", "p210le", "p216le", "yuv444p10msble")
NATIVE = {"p010": "p010le", "p016": "p016le", "p012": "p012le", "yuv420p10": "yuv420p10le", "yuv444p16": "yuv444p16le",
          "yuv422p10": "yuv422p10le", "yuv444p10": "yuv444p10le", "0rgb32": "bgr0", "0bgr32": "rgb0", "rgb32": "bgra",
          "bgr32": "rgba"}  # fmt: skip
RGB = re.compile(r"0?(?:rgb|bgr)|argb|abgr|x2rgb|x2bgr|rgba|bgra")


def pixel(name: str) -> str:
    """The name that FFmpeg prints for a pixel format: p010le for p010."""
    return NATIVE.get(name.strip(), name.strip())


def bits(name: str) -> int:
    """Bits of one sample: 10 of p010le."""
    if re.fullmatch(r"nv(?:12|16|21|24|42)|yuv4\d\d|.*\d{3}", name):
        return 8
    if re.match(r"(?:rgb|bgr)48|(?:rgba|bgra|ayuv)64", name):
        return 16
    match = re.search(r"(?<!\d)(?:p|nv|y|x2rgb|x2bgr|gray|ya|p\d|y2|xyz)?(9|10|12|14|16|20)(?:msb)?(?:le|be)?$", name)
    if name.startswith(("p0", "p2", "p4", "y2")):
        match = re.search(r"(10|12|16)(?:le|be)?$", name)
    return {20: 10}.get(int(match[1]), int(match[1])) if match else 8


def is_half_chroma(name: str) -> bool:
    """4:2:2."""
    return bool(re.match(r"yuvj?a?422|nv(?:16|20)|p2\d\d|y21|yuyv|uyvy|yvyu", name))


def is_full_chroma(name: str) -> bool:
    """Whether NVENC gets 4:4:4 of it: FFmpeg takes the format that loses nothing, so 4:2:2 becomes 4:4:4, too."""
    # As FFmpeg 7.1 chooses. Gray and planar RGB of 10 bits become x2rgb10, which NVENC makes 4:2:0 of.
    wide = r"yuvj?4(?:44|22|40|11)|nv(?:16|20|24|42)|p[24]1[026]|yuyv|uyvy|y21|(?:gbrp|gray)(?!10)"
    return bool(re.match(wide + "|(?:rgb|bgr)(?:24|48|5)|pal8|mono|xyz", name))


def has_alpha(name: str) -> bool:
    """Transparency: NVENC gets rgba of it, of 8 bits, and makes 4:2:0."""
    return name.startswith(("yuva", "gbrap", "ya"))


def surface_for(formats: Sequence[str]) -> str:
    """The surface format nearest to a pixel format."""
    wanted = formats[0] if formats else "nv12"
    if wanted in ("yuv420p", "nv12", "p010le", "yuv444p", "p016le", "yuv444p16le"):
        return wanted
    if bits(wanted) > 8:
        return "yuv444p16le" if is_full_chroma(wanted) else "p010le"
    return "yuv444p" if wanted.startswith("yuv444") else "yuv420p"


def named(formats: Sequence[str]) -> str:
    """A few of them, to be read."""
    if tuple(formats[:2]) == DECODED[:2]:
        return "nv12 (p010le of 10-bit video)"
    names = [name for name in formats if name]
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")
