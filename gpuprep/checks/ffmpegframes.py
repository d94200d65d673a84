"""Where do the frames of a command live, in which pixel format, and does each filter and encoder take them? Pure.

follow(asked, version, ...)    adds to `asked.answers` what cannot work, and to `asked.needs` what the GPU must do

Frames are followed from each input through each link of each graph to each encoder. What a filter takes and gives is
data: catalogue/ffmpegcommands.yml. FFmpeg converts pixel formats in the computer's memory by itself; it never moves
frames to the GPU or back, and it converts nothing in the GPU's memory. A format that is not known (of a file that is
not opened) fits all.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuprep.catalogue import ffmpeg
from gpuprep.catalogue.video import encoded_sizes
from gpuprep.checks.ffmpegcommand import (
    CODECS,
    FILTERS,
    GRAPHS,
    SCRIPTS,
    Asked,
    File,
    Link,
    arguments,
    extension,
    graphs,
    links,
    output_format,
)
from gpuprep.checks.ffmpegoptions import coded, default_encoder, encoders_of, of_another
from gpuprep.records import Status

GPU, MEMORY, SOUND, UNKNOWN = "gpu", "memory", "sound", "unknown"
READ = (7, 1)  # the newest FFmpeg whose sources were read for what its filters do with CUDA frames
MOST_LINKS = 500  # a file with more is not a graph that people write
DECODER = "decoder"  # the origin of frames that no filter has seen
OTHER = "other"  # a stream by its number: pictures, sound or subtitles
# Surfaces that NVDEC writes: of 8-bit 4:2:0 first, as nearly all videos are.
DECODED = ("nv12", "p010le", "p016le", "yuv444p", "yuv444p16le", "nv16", "p210le", "p216le", "yuv444p10msble")
EIGHT_BIT = ("h264_cuvid", "mpeg1_cuvid", "mpeg2_cuvid", "mpeg4_cuvid", "vp8_cuvid", "mjpeg_cuvid", "vc1_cuvid")
STREAM = re.compile(r"(\d+)(?::([a-zA-Z#]?)[:]?.*)?")
NATIVE = {"p010": "p010le", "p016": "p016le", "p012": "p012le", "yuv420p10": "yuv420p10le", "yuv444p16": "yuv444p16le",
          "yuv422p10": "yuv422p10le", "yuv444p10": "yuv444p10le", "0rgb32": "bgr0", "0bgr32": "rgb0", "rgb32": "bgra",
          "bgr32": "rgba"}  # fmt: skip
RGB = re.compile(r"0?(?:rgb|bgr)|argb|abgr|x2rgb|x2bgr|rgba|bgra")


@dataclass(frozen=True)
class Frames:
    """Frames on one link. `formats`: what they may be, None for anything; in the GPU's memory those of the surface."""

    place: str
    formats: tuple[str, ...] | None = None
    size: tuple[int | None, int | None] = (None, None)
    origin: str = ""  # the words that put them there: "-hwaccel_output_format cuda"
    downloaded: bool = False  # by hwdownload, and no filter has fixed the format yet: `formats` are the surface's


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
    return bool(
        re.match(
            r"yuvj?a?4(?:44|22|40)|gbr|nv(?:16|20|24|42)|p[24]1[026]|yuyv|uyvy|y21|rgb24|bgr24|gray|rgb48|bgr48", name
        )
    )


def follow(
    asked: Asked, version: str, encoders: Collection[str] | None, known: Collection[str], built: Collection[str]
) -> None:
    """Look at all graphs and at all outputs of a command. `known`: FFmpeg's filters, `built`: those of the build."""
    if sum(len(chain) for text, _ in graphs(asked) for chain in links(text)) > MOST_LINKS:
        why = f"the graphs have more than {MOST_LINKS} filters, which are not followed"
        asked.say(Status.UNKNOWN, "frames", "", "-filter_complex", why, "check a part of it")
        return
    _Following(asked, ffmpeg.version_of(version), encoders, frozenset(known), frozenset(built)).all()


class _Following:
    def __init__(
        self,
        asked: Asked,
        release: tuple[int, int] | None,
        encoders: Collection[str] | None,
        known: frozenset[str],
        built: frozenset[str],
    ) -> None:
        self.known, self.built = known, built
        self.asked = asked
        self.release = release
        self.encoders = encoders
        self.data: dict[str, Any] = ffmpeg.commands()["filters"]
        self.scripts = any(name.split(":")[0] in SCRIPTS or name.startswith("/") for name, _ in asked.general)
        self.has_device = any(
            name == "init_hw_device" and value.startswith("cuda") for name, value in asked.general
        ) or any(file.last("hwaccel") in ("cuda", "nvdec", "cuvid") for file in asked.inputs)
        self.decoded = [self._decoded(file) for file in asked.inputs]

    def fail(self, kind: str, name: str, where: str, why: str, remedy: str) -> None:
        self.asked.say(Status.FAIL, kind, name, where, why, remedy)

    # ------------------------------------------------------------ inputs

    def _decoded(self, file: File) -> Frames:
        """The frames of an input's video stream."""
        hwaccel, wanted = file.last("hwaccel"), file.last("hwaccel_output_format")
        decoder = next((value for name, value in reversed(file.options) if name.split(":")[0] in CODECS), "")
        form = file.last("f")
        size = _size(file.last("resize") if decoder.endswith("_cuvid") else file.last("s", "video_size"))
        if form == "lavfi":
            return self._lavfi(file)
        if wanted and pixel(wanted) not in ffmpeg.commands()["pix_fmts"]:
            near = "cuda" if wanted in ("cuvid", "nvdec", "nvenc", "gpu") else "cuda or nv12"
            self.fail(
                "hwaccel output",
                wanted[:40],
                f"-hwaccel_output_format {wanted}",
                "no pixel format has this name",
                f"write -hwaccel_output_format {near}",
            )
        if form == "rawvideo" or extension(file.url) in ("yuv", "y4m"):
            known = (
                (pixel(file.last("pix_fmt", "pixel_format") or "yuv420p"),) if extension(file.url) != "y4m" else None
            )
            return Frames(MEMORY, known, size)
        if hwaccel in ("", "none"):
            image = extension(file.url) in ffmpeg.commands()["images"]
            return Frames(MEMORY, None, size, "" if image else DECODER)
        if hwaccel == "auto" and wanted == "cuda":
            hwaccel = "cuda"  # another one would give other frames, and FFmpeg would stop
        if hwaccel not in ("cuda", "nvdec", "cuvid"):
            return Frames(UNKNOWN if wanted else MEMORY, None, size)
        ending = extension(file.url)
        image = ffmpeg.commands()["images"].get(ending)
        if image is not None and not (image == "mjpeg" and not decoder):
            return Frames(MEMORY, None, size)  # NVDEC decodes no such pictures
        surfaces = ("nv12",) if decoder in EIGHT_BIT else DECODED
        where = f"-hwaccel {hwaccel} -hwaccel_output_format {wanted or 'cuda'}"
        if wanted == "cuda" or (not wanted and hwaccel == "cuvid"):
            return Frames(UNKNOWN if image else GPU, surfaces, size, where if wanted else "-hwaccel cuvid")
        if wanted and pixel(wanted) in ffmpeg.commands()["pix_fmts"] and pixel(wanted) not in surfaces:
            self.fail(
                "hwaccel output",
                wanted,
                where,
                "the GPU's decoder gives nv12 (8 bit) or p010le (10 bit), and FFmpeg copies that as it is",
                "leave out -hwaccel_output_format, or write nv12; a filter format= converts then",
            )
            return Frames(UNKNOWN)
        return Frames(MEMORY, (pixel(wanted),) if wanted else None, size, DECODER)

    def _lavfi(self, file: File) -> Frames:
        chains = links(file.url)
        frames = Frames(MEMORY)
        for link in chains[0] if len(chains) == 1 else ():
            frames = self._step(link, [frames], "-f lavfi")[0]
        return frames if len(chains) == 1 else Frames(UNKNOWN)

    # ------------------------------------------------------------ graphs

    def all(self) -> None:
        labels: dict[str, Frames] = {}
        loose: list[Frames] = []  # outputs without a label: FFmpeg adds them to the first output
        self._complex(labels, loose)
        used: list[str] = []
        for at, file in enumerate(self.asked.outputs):
            used += self._output(file, labels, loose if at == 0 else [])
        for label in labels:
            if label not in used:
                self.fail(
                    "label",
                    f"[{label}]",
                    f"[{label}]",
                    "a filter gives it, and nothing takes it: FFmpeg stops",
                    f'add -map "[{label}]" before an output, or leave the label out',
                )
        for label in sorted({one for one in used if used.count(one) > 1}):
            self.fail(
                "label",
                f"[{label}]",
                f"-map [{label}]",
                "it is mapped twice, and can be used once only",
                f"write split=2[{label}1][{label}2] after it, and map these",
            )

    def _complex(self, labels: dict[str, Frames], loose: list[Frames]) -> None:
        """Follow the frames of all -filter_complex; `labels` gets those that no filter takes."""
        waiting: list[tuple[Link, tuple[str, ...], tuple[str, ...], str]] = []
        ready: dict[str, Frames] = {}
        ends: list[str] = []
        hidden = 0
        for name, value in self.asked.general:
            if name.split(":")[0] not in GRAPHS:
                continue
            for chain in links(value):
                before: tuple[str, ...] = ()
                for at, link in enumerate(chain):
                    gives = link.gives
                    if not gives:
                        hidden += 1
                        gives = (f"\0{hidden}",)
                        if at == len(chain) - 1 and link.name not in ("nullsink", "anullsink"):
                            ends.append(gives[0])
                    waiting.append((link, (*link.takes, *before) if before else link.takes, gives, f"-{name}"))
                    before = () if link.gives else gives
        given = [label for _, _, gives, _ in waiting for label in gives]
        made = set(given)
        for label in sorted(one for one in made if given.count(one) > 1):
            self.fail("label", f"[{label}]", f"[{label}]", "two filters give it", "name one of them otherwise")
        named = {
            int(match[1]) for _, takes, _, _ in waiting for one in takes if (match := re.match(r"(\d{1,5})(?!\d)", one))
        }
        unused = [frames for at, frames in enumerate(self.decoded) if at not in named]
        taken: set[str] = set()
        progress = True
        while waiting and progress:
            progress = False
            for entry in list(waiting):
                link, takes, gives, where = entry
                if any(label in made and label not in ready for label in takes):
                    continue
                incoming = [ready[label] if label in ready else self._stream(label, link) for label in takes]
                if not _is_source(link.name) and link.name not in self.data["audio"]:
                    # Inputs without a label get the first streams that no label names.
                    while len(incoming) < (2 if link.name in self.data["two_inputs"] else 1):
                        incoming.append(unused.pop(0) if unused else Frames(UNKNOWN))
                outgoing = self._step(link, incoming, where, len(gives))
                ready.update(zip(gives, outgoing, strict=True))
                taken |= set(takes)
                waiting.remove(entry)
                progress = True
        for _, _, gives, _ in waiting:  # in a circle: FFmpeg says so
            ready.update((label, Frames(UNKNOWN)) for label in gives)
        labels.update(
            (label, frames) for label, frames in ready.items() if label not in taken and not label.startswith("\0")
        )
        loose += [ready[label] for label in ends if label not in taken]

    def _stream(self, label: str, link: Link) -> Frames:
        """The frames of an input's stream: [0:v], [1:a:0], [0:2]."""
        match = STREAM.fullmatch(label)
        if match is None:
            self.asked.say(
                Status.UNKNOWN,
                "label",
                f"[{label[:40]}]",
                f"[{label}]{link.name}",
                "no filter gives it, and it is no stream of an input: FFmpeg stops, or takes any stream",
                "write a stream ([0:v]) or a label that a filter gives",
            )
            return Frames(UNKNOWN)
        return self._of_input(
            int(match[1]) if len(match[1]) < 6 else 99999, match[2] or "", label, f"[{label}]{link.name}"
        )

    def _of_input(self, number: int, kind: str, text: str, where: str) -> Frames:
        if number >= len(self.decoded):
            have = f"{len(self.decoded)} input{'s' if len(self.decoded) != 1 else ''}, the first is 0"
            self.fail(
                "input",
                str(number),
                where,
                f"the command has {have}",
                "write 0" if len(self.decoded) == 1 else f"write 0 to {len(self.decoded) - 1}",
            )
            return Frames(UNKNOWN)
        if kind in ("a", "s", "d", "t"):
            return Frames(SOUND) if kind == "a" else Frames(MEMORY)
        rest = text.partition(":")[2]
        if rest.isdigit() and rest != "0":
            return Frames(OTHER)
        return self.decoded[number]

    # ------------------------------------------------------------ filters

    def _step(self, link: Link, incoming: Sequence[Frames], where: str, outputs: int = 1) -> list[Frames]:
        """The frames that a filter gives."""
        name, shown = link.name, f"{where} {link.name}"
        given = arguments(link)
        if name in self.data["audio"] or (incoming and all(one.place == SOUND for one in incoming)):
            return [Frames(SOUND)] * outputs
        if _is_source(name):
            return [Frames(MEMORY, None, _size(given.get("size", given.get("s", given.get("#0", "")))))] * outputs
        main = next((one for one in incoming if one.place != SOUND), Frames(UNKNOWN))
        if name in self.data["through"] and not (name == "select" and "scene" in link.arguments):  # it compares pixels
            return self._through(link, incoming, main, shown, outputs)
        if name in ("format", "noformat"):
            return [
                self._format(main, given.get("pix_fmts", ""), f"{shown}={link.arguments}", excluded=name == "noformat")
            ] * outputs
        if name == "hwdownload":
            return [self._download(main, shown)]
        if given.get("derive_device", "cuda") != "cuda" and name == "hwupload":
            why = f"frames of a device of {given['derive_device'][:20]} are not followed"
            self.asked.say(Status.UNKNOWN, "frames", name, f"{shown}={link.arguments}", why)
            return [Frames(UNKNOWN)] * outputs
        if name in ("hwupload", "hwupload_cuda"):
            return [self._upload(name, main, shown)]
        if name == "hwmap" and main.place in (GPU, MEMORY) and self.release is not None and self.release <= READ:
            instead = "hwupload_cuda" if main.place == MEMORY else f"hwdownload,format={(main.formats or ('nv12',))[0]}"
            why = "FFmpeg maps no frames to CUDA and none from it: it only copies them"
            self.fail("frames", name, shown, why, f"write {instead} in place of hwmap")
            return [Frames(MEMORY if main.place == GPU else GPU)] * outputs
        if name in self.data["unclear"]:
            why = "what it makes of the frames is not known without running it"
            self.asked.say(
                Status.UNKNOWN, "frames", name, shown, why, "write hwupload_cuda or hwdownload in place of hwmap"
            )
            return [Frames(UNKNOWN)] * outputs
        if of_another(name):
            return [Frames(UNKNOWN)] * outputs
        if name in self.data["gpu"] or name.endswith(("_cuda", "_npp")):
            return [self._on_gpu(link, incoming, given, shown)] * outputs
        if name not in self.known:
            if name in self.built:  # a patched FFmpeg's; one that the build lacks is a finding of its own
                self.asked.say(Status.UNKNOWN, "frames", name, shown, "gpuprep does not know this filter")
            return [Frames(UNKNOWN)] * outputs
        return [self._in_memory(link, incoming, main, given, shown)] * outputs

    def _through(self, link: Link, incoming: Sequence[Frames], main: Frames, shown: str, outputs: int) -> list[Frames]:
        places = {one.place for one in incoming if one.place in (GPU, MEMORY)}
        if len(places) > 1:
            self.fail(
                "frames",
                link.name,
                shown,
                "some of its frames are in the GPU's memory, some in the computer's",
                "write hwupload_cuda for those in the computer's memory, or hwdownload,format=nv12 for the others",
            )
            main = Frames(UNKNOWN)
        if link.name == "concat":
            given = arguments(link)
            pictures = int(given["v"]) if given.get("v", "").isdigit() else 1
            return [main if at < pictures else Frames(SOUND) for at in range(outputs)]
        return [main] * outputs

    def _format(self, frames: Frames, text: str, where: str, *, excluded: bool = False) -> Frames:
        names = tuple(pixel(name) for name in text.split("|") if name)
        memory = tuple(name for name in names if name != "cuda")
        if frames.place == GPU:
            if excluded is ("cuda" in names) and names:
                self.fail(
                    "frames",
                    "format",
                    where,
                    f"the frames are in the GPU's memory ({frames.origin}), where FFmpeg converts nothing by itself",
                    f"write scale_cuda=format={_surface_for(memory)} in its place, or hwdownload,format=nv12 before it",
                )
                return Frames(UNKNOWN)
            return frames
        if excluded or not names:
            return frames
        if frames.place != MEMORY:
            return Frames(MEMORY, memory if len(memory) == 1 else (*memory, "")) if memory == names else Frames(UNKNOWN)
        if not memory:
            self.fail(
                "frames",
                "format",
                where,
                "the frames are in the computer's memory",
                "write hwupload_cuda in place of it",
            )
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
            self.fail(
                "frames",
                "hwdownload",
                where,
                f"the surface is {_named(possible or ())}, and hwdownload gives nothing else",
                f"write hwdownload,format={(possible or ('nv12',))[0]},format={memory[0]}",
            )
            return Frames(MEMORY, memory, frames.size)
        if len(memory) > 1 and possible != kept:
            self.asked.say(
                Status.UNKNOWN,
                "frames",
                "hwdownload",
                where,
                "FFmpeg may take another one of these than the surface has",
                f"write the one that it has alone: hwdownload,format={kept[0]}",
            )
        elif possible is not None and kept[0] != possible[0]:
            self.asked.note(
                f"{where}: works only if the decoder gives {kept[0]}; of 8-bit video it gives {possible[0]}"
            )
        return Frames(MEMORY, kept, frames.size)

    def _unfixed(self, frames: Frames, where: str) -> Frames:
        """Frames after hwdownload that go on without a format: FFmpeg then takes the first that the next one knows."""
        if not frames.downloaded:
            return frames
        if frames.formats is not None and "yuv420p" not in frames.formats:
            self.fail(
                "frames",
                "hwdownload",
                where,
                f"no format= follows hwdownload: FFmpeg takes yuv420p or a smaller one, and the surface is"
                f" {_named(frames.formats)}",
                f"write hwdownload,format={frames.formats[0]}",
            )
            return Frames(MEMORY, None, frames.size)
        return replace(frames, downloaded=False)

    def _download(self, frames: Frames, where: str) -> Frames:
        if frames.place == MEMORY:
            self.fail(
                "frames",
                "hwdownload",
                where,
                "the frames are in the computer's memory already",
                "leave it out, or write -hwaccel cuda -hwaccel_output_format cuda before -i",
            )
        if frames.place != GPU:
            return Frames(MEMORY, None, frames.size)
        return Frames(MEMORY, frames.formats, frames.size, downloaded=True)

    def _upload(self, name: str, frames: Frames, where: str) -> Frames:
        if frames.place == GPU and name == "hwupload":
            return frames
        if frames.place == GPU:
            self.fail(
                "frames",
                name,
                where,
                f"the frames are in the GPU's memory already ({frames.origin})",
                f"leave {name} out",
            )
            return frames
        if name == "hwupload" and not self.has_device:
            self.fail(
                "frames",
                name,
                where,
                "nothing says which device it uploads to",
                "write hwupload_cuda, or -init_hw_device cuda=cu -filter_hw_device cu before the inputs",
            )
        frames = self._unfixed(frames, where)
        formats = (
            None if frames.formats is None else tuple(dict.fromkeys(self._uploaded(one) for one in frames.formats))
        )
        return Frames(GPU, formats if formats and "" not in formats else None, frames.size, name)

    def _uploaded(self, name: str) -> str:
        """The surface format that FFmpeg converts a pixel format to."""
        if name in self.data["uploads"] or not name:
            return name
        if bits(name) > 8:
            return "yuv444p16le" if is_full_chroma(name) else "p010le"
        if name.startswith("yuva"):
            return "yuva420p"
        return "" if RGB.match(name) else "yuv444p" if is_full_chroma(name) else "yuv420p"

    def _on_gpu(self, link: Link, incoming: Sequence[Frames], given: dict[str, str], where: str) -> Frames:
        name = link.name
        rule = self.data["gpu"].get(name, {})
        for frames in incoming:
            if frames.place == MEMORY:
                self.fail(
                    "frames",
                    name,
                    where,
                    "it works on frames in the GPU's memory, and gets frames from the computer's memory",
                    _to_gpu(frames, name),
                )
        main = incoming[0] if incoming else Frames(UNKNOWN)
        size = (
            _scaled(main.size, given)
            if "scale" in name
            else (None, None)
            if name in ("pad_cuda", "transpose_cuda")
            else main.size
        )
        on_gpu = [frames for frames in incoming if frames.place == GPU]
        formats = main.formats if main.place == GPU else None
        takes = (
            *rule.get("takes", ()),
            *(rule.get("newer", ()) if self.release is None or self.release >= (8, 0) else ()),
        )
        if takes and formats is not None and not set(formats) & set(takes):
            self.fail(
                "frames",
                name,
                where,
                f"the surface is {_named(formats)}, and it takes {_named(takes)}",
                "write scale_cuda=format=nv12 before it"
                if name != "scale_cuda"
                else f"upload one of these: format={takes[0]},hwupload_cuda",
            )
            formats = None
        elif takes and formats is not None:
            formats = tuple(one for one in formats if one in takes)
        if name == "overlay_cuda" and len(on_gpu) == 2:
            formats = self._overlaid(on_gpu[0], on_gpu[1], where)
        if "scale" in name and re.fullmatch(r"\d+x\d+", given.get("w", "")):
            self.fail(
                "filter",
                name,
                f"{where}={given['w']}",
                "it takes width and height as two numbers",
                f"write {name}={given['w'].replace('x', ':')}",
            )
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
        if takes and wanted not in takes:
            newest = self.release is None or self.release > (9, 0)
            self.asked.say(
                Status.UNKNOWN if newest else Status.FAIL,
                "frames",
                name,
                f"{where}=format={wanted}",
                f"it writes {_named(takes)}, not {wanted[:40]}",
                "write one of these: scale_cuda=format=yuv420p",
            )
            return None
        if formats and all(bool(RGB.match(one)) is not bool(RGB.match(wanted)) for one in formats):
            self.fail(
                "frames",
                name,
                f"{where}=format={wanted}",
                f"it does not convert {formats[0]} to {wanted}: not between YUV and RGB",
                "convert in the computer's memory: hwdownload,format=nv12,format=" + wanted,
            )
        return (wanted,)

    def _overlaid(self, main: Frames, over: Frames, where: str) -> tuple[str, ...] | None:
        """overlay_cuda lays surfaces only on surfaces of certain formats."""
        rules: dict[str, list[str]] = self.data["overlays"]
        below = main.formats if main.formats is not None else tuple(rules)
        above = over.formats if over.formats is not None else tuple(one for row in rules.values() for one in row)
        kept = tuple(one for one in below if set(rules.get(one, ())) & set(above))
        if kept:
            return kept if main.formats is not None else None
        if any(one in rules["yuv420p"] for one in above):
            remedy = "write scale_cuda=format=yuv420p on the main picture before overlay_cuda"
        else:
            remedy = "write scale_cuda=format=yuv420p on the main picture, format=yuva420p,hwupload_cuda on the other"
        self.fail("frames", "overlay_cuda", where, f"it cannot lay {_named(above)} on {_named(below)}", remedy)
        return ("yuv420p",)

    def _in_memory(
        self, link: Link, incoming: Sequence[Frames], main: Frames, given: dict[str, str], where: str
    ) -> Frames:
        name = link.name
        for frames in incoming:
            if frames.place != GPU:
                continue
            if name in ("crop", "vflip"):
                read = name == "crop" and self.release is not None and self.release <= READ
                self.asked.say(
                    Status.FAIL if read else Status.UNKNOWN,
                    "frames",
                    name,
                    where,
                    f"the frames are in the GPU's memory ({frames.origin}), where FFmpeg only marks them, and "
                    + ("NVENC, hwdownload and the CUDA filters do not look" if read else "the next one may not look"),
                    f"write hwdownload,format={(frames.formats or ('nv12',))[0]} before it"
                    + (", or -c:v h264_cuvid -crop TOPxBOTTOMxLEFTxRIGHT before -i" if read else ""),
                )
                return frames if read else Frames(UNKNOWN)
            self.fail(
                "frames",
                name,
                where,
                f"it works in the computer's memory, and the frames are in the GPU's ({frames.origin})",
                self._to_memory(name, frames),
            )
            return Frames(UNKNOWN, None, _scaled(frames.size, given) if name == "scale" else (None, None))
        main = self._unfixed(main, where)
        for frames in incoming[1:]:
            self._unfixed(frames, where)
        if main.place != MEMORY:
            main = Frames(MEMORY)
        if name == "scale":
            return replace(main, size=_scaled(main.size, given))
        if name == "pad":
            return replace(
                main,
                size=_scaled(
                    (None, None),
                    {"w": given.get("width", given.get("w", "")), "h": given.get("height", given.get("h", ""))},
                ),
            )
        if name in self.data["keep"]:
            return replace(main, size=main.size if name in ("hflip", "vflip") else (None, None))
        return Frames(MEMORY)

    def _to_memory(self, name: str, frames: Frames) -> str:
        download = f"hwdownload,format={(frames.formats or ('nv12',))[0]}"
        twin = f"{name}_cuda"
        new = {"pad_cuda", "transpose_cuda"} if self.release is None or self.release < (9, 0) else set()
        if twin in self.data["gpu"] and twin not in new:
            return f"write {twin} in place of {name}, or {download} before it"
        return f"write {download} before it, and hwupload_cuda after it if the GPU goes on"

    # ------------------------------------------------------------ outputs

    def _output(self, file: File, labels: dict[str, Frames], loose: Sequence[Frames]) -> list[str]:
        """Look at one output; the labels that it uses."""
        maps = [value for name, value in file.options if name == "map"]
        used = [value.strip("[] ") for value in maps if value.startswith("[")]
        for label in used:
            if label not in labels and not self.scripts:
                self.fail(
                    "label",
                    f"[{label[:40]}]",
                    f"-map [{label}]",
                    "no filter gives it, or a filter takes it already",
                    f"one of {', '.join(f'[{one}]' for one in labels)}"
                    if labels
                    else "write it after a filter of -filter_complex",
                )
        named = [one for one in encoders_of(file) if one[0] == "video"]
        streams: list[tuple[Frames, bool]] = []
        for value in maps:
            if value.startswith("["):
                streams.append((labels.get(value.strip("[] "), Frames(UNKNOWN)), True))
            elif match := re.match(r"(\d{1,5})(?::([a-zA-Z]?))?", value):
                frames = self._of_input(int(match[1]), match[2] or "", value.rstrip("?"), f"-map {value}")
                streams.append((frames if match[2] not in ("s", "d", "t") else Frames(SOUND), False))
        if not maps:
            streams = [(frames, True) for frames in loose] or [(self._chosen(), False)]
        if any(name == "vn" for name, _ in file.options):
            return used
        pictures = [(frames, complex_) for frames, complex_ in streams if frames.place not in (SOUND, OTHER)]
        for at, (frames, is_complex) in enumerate(pictures):
            encoder = next((name for _, stream, name in reversed(named) if stream in ("", "v", f"v:{at}", str(at))), "")
            self._encoded(file, frames, encoder, at, is_complex=is_complex)
        return used

    def _chosen(self) -> Frames:
        """The video stream that FFmpeg takes without -map: the largest of all inputs."""
        first = self.decoded[0] if self.decoded else Frames(UNKNOWN)
        return first if all(one == first for one in self.decoded) else Frames(UNKNOWN)

    def _encoded(self, file: File, frames: Frames, encoder: str, at: int, *, is_complex: bool) -> None:
        graph = next(
            (
                (name, value)
                for name, value in reversed(file.options)
                if name.split(":")[0] in FILTERS and name != "af" and name.partition(":")[2] in ("", "v", f"v:{at}")
            ),
            None,
        )
        where = f"-c:v {encoder}" if encoder else file.url
        if encoder == "copy":
            if graph is not None or is_complex:
                self.fail(
                    "encoder",
                    "copy",
                    f"-{graph[0]} {graph[1]}" if graph else where,
                    "copied pictures go through no filter",
                    "name an encoder (-c:v h264_nvenc), or leave the filter out",
                )
            return
        if graph is not None and is_complex:
            self.fail(
                "filter",
                "",
                f"-{graph[0]} {graph[1]}",
                "these frames come from -filter_complex already, and FFmpeg takes one of both",
                "write the filter at the end of -filter_complex",
            )
            return
        for chain in links(graph[1]) if graph is not None else ():
            for before, link in enumerate(chain):
                if link.name in self.data["two_inputs"] and len(link.takes) + min(before, 1) < 2:
                    why = "it takes two inputs, and a filter of one output gets one"
                    remedy = f"write -filter_complex with both: [0:v][1:v]{link.name}"
                    self.fail("filter", link.name, f"-{graph[0] if graph else ''} {link.name}", why, remedy)
                frames = self._step(link, [frames], f"-{graph[0] if graph else ''}")[0]
        if (size := _of_stream(file, "s", at)) and frames.place == GPU:
            self.fail(
                "frames",
                "-s",
                f"-s {size}",
                f"it scales in the computer's memory, and the frames are in the GPU's ({frames.origin})",
                f"write -filter:v{f':{at}' if at else ''} scale_cuda={size.replace('x', ':')} in place of it",
            )
            frames = Frames(UNKNOWN, None, _size(size))
        if size:
            frames = replace(frames, size=_size(size))
        pix_fmt = pixel(_of_stream(file, "pix_fmt", at).lstrip("+"))
        if not encoder:
            encoder = self._default(file)
        frames = self._last(frames, pix_fmt, encoder, where)
        if encoder.endswith("_nvenc"):
            self._needs(frames, encoder, where)

    def _last(self, frames: Frames, pix_fmt: str, encoder: str, where: str) -> Frames:
        """The frames as the encoder gets them."""
        nvenc = encoder.endswith("_nvenc")
        if frames.place == GPU:
            if pix_fmt and pix_fmt != "cuda":
                self.fail(
                    "frames",
                    "-pix_fmt",
                    f"-pix_fmt {pix_fmt}",
                    f"the frames are in the GPU's memory ({frames.origin}), where FFmpeg converts nothing by itself",
                    f"leave it out, or write -vf scale_cuda=format={_surface_for((pix_fmt,))} in place of it",
                )
                return Frames(UNKNOWN, None, frames.size)
            if encoder and not nvenc and encoder != "wrapped_avframe" and not of_another(encoder):
                twin = f"{coded(encoder)}_nvenc"
                use = f", or -c:v {twin}" if twin in ffmpeg.commands()["encoders"] else ""
                self.fail(
                    "frames",
                    encoder,
                    where,
                    f"it takes frames from the computer's memory, and these are in the GPU's ({frames.origin})",
                    f"write -vf hwdownload,format={(frames.formats or ('nv12',))[0]}{use}",
                )
                return Frames(UNKNOWN, None, frames.size)
            if nvenc and frames.formats == ("yuva420p",):
                self.fail(
                    "frames",
                    encoder,
                    where,
                    "it takes no surface with transparency (yuva420p)",
                    "lay it on a picture with overlay_cuda first",
                )
            return frames
        if frames.place != MEMORY:
            return frames
        if pix_fmt == "cuda":
            self.fail(
                "frames",
                "-pix_fmt",
                "-pix_fmt cuda",
                "the frames are in the computer's memory",
                "leave it out: NVENC takes them from there, too; or write -vf hwupload_cuda",
            )
            return Frames(UNKNOWN, None, frames.size)
        if pix_fmt:
            return (
                self._format(frames, pix_fmt, f"-pix_fmt {pix_fmt}")
                if frames.downloaded
                else replace(frames, formats=(pix_fmt,))
            )
        return self._unfixed(frames, where) if encoder != "wrapped_avframe" or frames.downloaded else frames

    def _needs(self, frames: Frames, encoder: str, where: str) -> None:
        """What the GPU must be able to encode: more than 8 bits, 4:4:4, the size."""
        codec = encoder.removesuffix("_nvenc")
        formats = frames.formats
        if formats and "" not in formats:
            if all(bits(one) > 8 for one in formats):
                self.asked.add("gpu", f"nvenc.{codec}.10bit", f"{where} of {formats[0]}")
            newer = self.release is not None and self.release >= (8, 0)
            half = all(is_half_chroma(one) for one in formats)
            if half and newer:
                self.asked.add("gpu", f"nvenc.{codec}.422", f"{where} of {formats[0]}")
            elif all(is_full_chroma(one) for one in formats):
                self.asked.add("gpu", f"nvenc.{codec}.444", f"{where} of {formats[0]}")
                if half:
                    self.asked.note(
                        f"{where} of {formats[0]}: FFmpeg before 8.0 makes 4:4:4 of 4:2:2 for NVENC, which few players"
                        " decode; format=yuv420p gives what all do"
                    )
        width, height = frames.size
        limits = encoded_sizes(codec)
        if limits is None:
            return
        least_width, least_height, most_width, most_height = limits
        shown = f"{width or '?'}x{height or '?'}"
        if (width or 0) > most_width or (height or 0) > most_height:
            self.fail(
                "picture size",
                shown,
                where,
                f"NVENC encodes {codec} up to {most_width}x{most_height}",
                "scale it down, or encode hevc (up to 8192x8192)" if codec == "h264" else "scale it down",
            )
        if (width is not None and width < least_width) or (height is not None and height < least_height):
            self.fail(
                "picture size",
                shown,
                where,
                f"NVENC encodes {codec} from {least_width}x{least_height}",
                "scale it up, or encode it with another encoder (libx264)",
            )

    def _default(self, file: File) -> str:
        entry = ffmpeg.commands()["muxers"].get(file.last("f") or output_format(extension(file.url)), {})
        if self.encoders is None:
            return ""
        return default_encoder(entry.get("video", []), self.encoders)


# ---------------------------------------------------------------- words


def _is_source(name: str) -> bool:
    sources = (
        "amovie",
        "testsrc",
        "testsrc2",
        "color",
        "smptebars",
        "smptehdbars",
        "mandelbrot",
        "movie",
        "gradients",
        "cellauto",
        "life",
        "zoneplate",
        "sierpinski",
        "allrgb",
        "allyuv",
        "pal75bars",
        "pal100bars",
        "colorspectrum",
        "colorchart",
        "perlin",
    )
    return name in sources or (name.endswith("src") and not name.startswith(("buffer", "abuffer")))


def _size(text: str) -> tuple[int | None, int | None]:
    """(1280, 720) of "1280x720" and of FFmpeg's names for sizes."""
    if text in (names := ffmpeg.commands()["sizes"]):
        return names[text][0], names[text][1]
    match = re.fullmatch(r"(\d{1,6})x(\d{1,6})", text)
    return (int(match[1]), int(match[2])) if match else (None, None)


def _scaled(size: tuple[int | None, int | None], given: dict[str, str]) -> tuple[int | None, int | None]:
    """The size that scale gives: numbers are known, formulas and -1 are not."""
    named = given.get("size", given.get("s", ""))
    if named or re.fullmatch(r"\d+x\d+|[a-z]+\d+", given.get("w", "")):
        return _size(named or given["w"])
    words = given.get("w", given.get("width", "")), given.get("h", given.get("height", ""))
    if not any(words):
        return size
    if given.get("force_original_aspect_ratio", "disable") not in ("disable", "0"):
        return (None, None)  # one of both becomes another
    sides = [int(word) if re.fullmatch(r"\d{1,6}", word) and word != "0" else None for word in words]
    return sides[0], sides[1]


def _of_stream(file: File, option: str, at: int) -> str:
    """The value of an option for the picture stream `at` of an output."""
    return file.last(option, f"{option}:v", f"{option}:v:{at}", f"{option}:{at}")


def _named(formats: Sequence[str]) -> str:
    if tuple(formats[:2]) == DECODED[:2]:
        return "nv12 (p010le of 10-bit video)"
    names = [name for name in formats if name]
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")


def _surface_for(formats: Sequence[str]) -> str:
    """The surface format nearest to a pixel format."""
    wanted = formats[0] if formats else "nv12"
    if wanted in ("yuv420p", "nv12", "p010le", "yuv444p", "p016le", "yuv444p16le"):
        return wanted
    if bits(wanted) > 8:
        return "yuv444p16le" if is_full_chroma(wanted) else "p010le"
    return "yuv444p" if wanted.startswith("yuv444") else "yuv420p"


def _to_gpu(frames: Frames, name: str) -> str:
    if frames.downloaded:
        return f"write hwupload_cuda before {name}, or leave hwdownload out"
    if frames.origin == DECODER:
        return f"write -hwaccel cuda -hwaccel_output_format cuda before its -i, or hwupload_cuda before {name}"
    return f"write hwupload_cuda before {name}"
