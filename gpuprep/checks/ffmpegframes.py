"""Where do the frames of a command live, from each input through each graph to each encoder?

follow(asked, version, ...)    adds to `asked.answers` what cannot work, and to `asked.needs` what the GPU must do

What each filter makes of them: ffmpegfilters.py. An unknown format (of a file that is not opened) is accepted
everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import replace

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
    extension,
    graphs,
    links,
    output_format,
    short,
)
from gpuprep.checks.ffmpegfilters import (
    DECODED,
    DECODER,
    GPU,
    MEMORY,
    SOUND,
    UNKNOWN,
    Filters,
    Frames,
    bits,
    has_alpha,
    is_full_chroma,
    is_half_chroma,
    is_source,
    pixel,
    size_of,
    surface_for,
)
from gpuprep.checks.ffmpegoptions import coded, default_encoder, encoders_of, of_another
from gpuprep.records import Status

MOST_LINKS = 500  # a file with more is not a graph that people write
OTHER = "other"  # a stream by its number: pictures, sound or subtitles
EIGHT_BIT = ("h264_cuvid", "mpeg1_cuvid", "mpeg2_cuvid", "mpeg4_cuvid", "vp8_cuvid", "mjpeg_cuvid", "vc1_cuvid")
STREAM = re.compile(r"(\d+)(?::([a-zA-Z#]?)[:]?.*)?")


def follow(
    asked: Asked, version: str, encoders: Collection[str] | None, known: Collection[str], built: Collection[str]
) -> None:
    """Look at all graphs and at all outputs of a command. `known`: FFmpeg's filters, `built`: those of the build."""
    if sum(len(chain) for text, _ in graphs(asked) for chain in links(text)) > MOST_LINKS:
        why = f"the graphs have more than {MOST_LINKS} filters, which are not followed"
        asked.say("frames", "", "-filter_complex", why, "check a part of it", status=Status.UNKNOWN)
        return
    _Following(asked, ffmpeg.version_of(version), encoders, known, built).all()


class _Following(Filters):
    def __init__(
        self,
        asked: Asked,
        release: tuple[int, int] | None,
        encoders: Collection[str] | None,
        known: Collection[str],
        built: Collection[str],
    ) -> None:
        super().__init__(asked, release, known, built)
        self.encoders = encoders
        self.scripts = any(name.split(":")[0] in SCRIPTS or name.startswith("/") for name, _ in asked.general)
        self.decoded = [self._decoded(file) for file in asked.inputs]

    # ------------------------------------------------------------ inputs

    def _decoded(self, file: File) -> Frames:
        """The frames of an input's video stream."""
        hwaccel, wanted = file.last("hwaccel"), file.last("hwaccel_output_format")
        decoder = next((value for name, value in reversed(file.options) if name.split(":")[0] in CODECS), "")
        form = file.last("f")
        size = size_of(file.last("resize") if decoder.endswith("_cuvid") else file.last("s", "video_size"))
        if form == "lavfi":
            return self._lavfi(file)
        if wanted and pixel(wanted) not in ffmpeg.commands()["pix_fmts"]:
            near = "cuda" if wanted in ("cuvid", "nvdec", "nvenc", "gpu") else "cuda or nv12"
            why = "no pixel format has this name"
            remedy = f"write -hwaccel_output_format {near}"
            self.refuse(wanted[:40], f"-hwaccel_output_format {wanted}", why, remedy, "hwaccel output")
        if form == "rawvideo" or extension(file.url) in ("yuv", "y4m"):
            known = (
                (pixel(file.last("pix_fmt", "pixel_format") or "yuv420p"),) if extension(file.url) != "y4m" else None
            )
            return Frames(MEMORY, known, size)
        if hwaccel in ("", "none"):
            return Frames(MEMORY, None, size, ffmpeg.commands()["images"].get(extension(file.url), DECODER))
        if hwaccel == "auto" and wanted == "cuda":
            hwaccel = "cuda"  # another decoder would give other frames, and FFmpeg would stop
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
            why = "the GPU's decoder gives nv12 (8 bit) or p010le (10 bit), and FFmpeg copies that as it is"
            remedy = "leave out -hwaccel_output_format, or write nv12; a filter format= converts then"
            self.refuse(wanted, where, why, remedy, "hwaccel output")
            return Frames(UNKNOWN)
        return Frames(MEMORY, (pixel(wanted),) if wanted else None, size, DECODER)

    def _lavfi(self, file: File) -> Frames:
        chains = links(file.url)
        frames = Frames(MEMORY)
        for link in chains[0] if len(chains) == 1 else ():
            frames = self.step(link, [frames], "-f lavfi")[0]
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
                why = "a filter gives it, and nothing takes it: FFmpeg stops"
                remedy = f'add -map "[{label}]" before an output, or leave the label out'
                self.refuse(f"[{label}]", f"[{label}]", why, remedy, "label")
        for label in sorted({one for one in used if used.count(one) > 1}):
            why = "it is mapped twice, and can be used once only"
            remedy = f"write split=2[{label}1][{label}2] after it, and map these"
            self.refuse(f"[{label}]", f"-map [{label}]", why, remedy, "label")

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
            self.refuse(f"[{label}]", f"[{label}]", "two filters give it", "rename one of them", "label")
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
                if not is_source(link.name) and link.name not in self.data["audio"]:
                    # Inputs without a label get the first streams that no label names.
                    while len(incoming) < (2 if link.name in self.data["two_inputs"] else 1):
                        incoming.append(unused.pop(0) if unused else Frames(UNKNOWN))
                outgoing = self.step(link, incoming, where, len(gives))
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
            why = "it is neither a filter's output nor a stream of an input: FFmpeg stops, or uses any stream"
            remedy = "write a stream ([0:v]) or a label that a filter gives"
            self.asked.say("label", f"[{label[:40]}]", f"[{label}]{link.name}", why, remedy, status=Status.UNKNOWN)
            return Frames(UNKNOWN)
        return self._of_input(
            int(match[1]) if len(match[1]) < 6 else 99999, match[2] or "", label, f"[{label}]{link.name}"
        )

    def _of_input(self, number: int, kind: str, text: str, where: str) -> Frames:
        if number >= len(self.decoded):
            have = f"{len(self.decoded)} input{'s' if len(self.decoded) != 1 else ''}, the first is 0"
            why = f"the command has {have}"
            remedy = "write 0" if len(self.decoded) == 1 else f"write 0 to {len(self.decoded) - 1}"
            self.refuse(str(number), where, why, remedy, "input")
            return Frames(UNKNOWN)
        if kind in ("a", "s", "d", "t"):
            return Frames(SOUND) if kind == "a" else Frames(MEMORY)
        rest = text.partition(":")[2]
        if rest.isdigit() and rest != "0":
            return Frames(OTHER)
        return self.decoded[number]

    # ------------------------------------------------------------ outputs

    def _output(self, file: File, labels: dict[str, Frames], loose: Sequence[Frames]) -> list[str]:
        """Look at one output; the labels that it uses."""
        maps = [value for name, value in file.options if name == "map"]
        used = [value.strip("[] ") for value in maps if value.startswith("[")]
        for label in used:
            if label not in labels and not self.scripts:
                why = "no filter gives it, or a filter takes it already"
                remedy = (
                    f"one of {', '.join(f'[{one}]' for one in labels)}"
                    if labels
                    else "write it after a filter of -filter_complex"
                )
                self.refuse(f"[{label[:40]}]", f"-map [{label}]", why, remedy, "label")
        named = [one for one in encoders_of(file) if one[0] == "video"]
        streams: list[tuple[Frames, bool]] = []
        for value in maps:
            if value.startswith("["):
                streams.append((labels.get(value.strip("[] "), Frames(UNKNOWN)), True))
            elif re.match(r"-?\d+:[^\dvVasdtpgimu#:?]", value):
                why = "FFmpeg has no such kind of stream"
                self.refuse(short(value), f"-map {value}", why, "write v, a, s or d after the colon", "stream")
            elif match := re.match(r"(\d{1,5})(?::([a-zA-Z]?))?", value):
                frames = self._of_input(int(match[1]), match[2] or "", value.rstrip("?"), f"-map {value}")
                if re.fullmatch(r"\d+:(?:[sdt](?::\d+)?|[vVa]:[1-9]\d*)", value):
                    self.asked.note(
                        f"-map {value}: FFmpeg stops if the input has no such stream; with {value}? it goes on"
                    )
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
                why = "copied video cannot be filtered"
                remedy = "name an encoder (-c:v h264_nvenc), or leave the filter out"
                self.refuse("copy", f"-{graph[0]} {graph[1]}" if graph else where, why, remedy, "encoder")
            return
        if graph is not None and is_complex:
            why = "these frames come from -filter_complex already, and FFmpeg accepts only one of the two"
            self.refuse("", f"-{graph[0]} {graph[1]}", why, "write the filter at the end of -filter_complex", "filter")
            return
        for chain in links(graph[1]) if graph is not None else ():
            for before, link in enumerate(chain):
                if link.name in self.data["two_inputs"] and len(link.takes) + min(before, 1) < 2:
                    why = "it takes two inputs, and a filter of one output gets one"
                    remedy = f"write -filter_complex with both: [0:v][1:v]{link.name}"
                    self.refuse(link.name, f"-{graph[0] if graph else ''} {link.name}", why, remedy, "filter")
                frames = self.step(link, [frames], f"-{graph[0] if graph else ''}")[0]
        if (size := _of_stream(file, "s", at)) and frames.place == GPU:
            why = f"it scales in the computer's memory, and the frames are in the GPU's ({frames.origin})"
            remedy = f"write -filter:v{f':{at}' if at else ''} scale_cuda={size.replace('x', ':')} in place of it"
            self.refuse("-s", f"-s {size}", why, remedy)
            frames = Frames(UNKNOWN, None, size_of(size))
        if size:
            frames = replace(frames, size=size_of(size))
        self._even(frames, encoder, where)
        pix_fmt = pixel(_of_stream(file, "pix_fmt", at).lstrip("+"))
        if not encoder:
            encoder = self._default(file)
        frames = self._last(frames, pix_fmt, encoder, where)
        if encoder.endswith("_nvenc"):
            self._needs(frames, encoder, where)

    def _even(self, frames: Frames, encoder: str, where: str) -> None:
        """x264 and x265 accept odd sizes only in 4:4:4."""
        odd = "x".join("?" if side is None else str(side) for side in frames.size)
        if encoder in ("libx264", "libx265") and any(side is not None and side % 2 for side in frames.size):
            self.asked.note(f"{where}: it stops at pictures of {odd}, unless they are 4:4:4: write even sides")

    def _last(self, frames: Frames, pix_fmt: str, encoder: str, where: str) -> Frames:
        """The frames as the encoder gets them."""
        nvenc = encoder.endswith("_nvenc")
        if frames.place == GPU:
            if encoder and not nvenc and encoder != "wrapped_avframe" and not of_another(encoder):
                twin = f"{coded(encoder)}_nvenc"
                use = f", or -c:v {twin}" if twin in ffmpeg.commands()["encoders"] else ""
                why = f"it takes frames from the computer's memory, and these are in the GPU's ({frames.origin})"
                self.refuse(encoder, where, why, f"write -vf {frames.download}{use}")
                return Frames(UNKNOWN, None, frames.size)
            if pix_fmt and pix_fmt != "cuda":
                why = f"the frames are in the GPU's memory ({frames.origin}), where FFmpeg converts nothing by itself"
                remedy = f"leave it out, or write -vf scale_cuda=format={surface_for((pix_fmt,))} in place of it"
                self.refuse("-pix_fmt", f"-pix_fmt {pix_fmt}", why, remedy)
                return Frames(UNKNOWN, None, frames.size)
            if encoder and encoder != "wrapped_avframe":
                self.look(frames, where)
            if nvenc and frames.formats == ("yuva420p",):
                why = "it takes no surface with transparency (yuva420p)"
                self.refuse(encoder, where, why, "lay it on a picture with overlay_cuda first")
            return frames
        if frames.place != MEMORY:
            return frames
        if pix_fmt == "cuda":
            why = "the frames are in the computer's memory"
            remedy = "leave it out: NVENC takes them from there, too; or write -vf hwupload_cuda"
            self.refuse("-pix_fmt", "-pix_fmt cuda", why, remedy)
            return Frames(UNKNOWN, None, frames.size)
        if pix_fmt:
            return (
                self.format(frames, pix_fmt, f"-pix_fmt {pix_fmt}")
                if frames.downloaded
                else replace(frames, formats=(pix_fmt,))
            )
        return self.unfixed(frames, where) if encoder != "wrapped_avframe" or frames.downloaded else frames

    def _needs(self, frames: Frames, encoder: str, where: str) -> None:
        """What the GPU must be able to encode: more than 8 bits, 4:4:4, the size."""
        codec = encoder.removesuffix("_nvenc")
        formats = frames.formats
        if formats and "" not in formats:
            if all(bits(one) > 8 and not has_alpha(one) for one in formats):
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
        if codec == "h264" and (
            formats == DECODED if frames.place == GPU else frames.origin == DECODER and not formats
        ):
            words = "scale_cuda=format=yuv420p" if frames.place == GPU else "format=yuv420p"
            self.asked.note(f"{where}: only Blackwell encodes 10-bit H.264; if an input may have them, write {words}")
        if not all(limits.fit(width, height) for limits in encoded_sizes(codec)):
            self.asked.add("gpu", f"nvenc.{codec}.size.{width or '?'}x{height or '?'}", where)

    def _default(self, file: File) -> str:
        entry = ffmpeg.commands()["muxers"].get(file.last("f") or output_format(extension(file.url)), {})
        if self.encoders is None:
            return ""
        return default_encoder(entry.get("video", []), self.encoders)


def _of_stream(file: File, option: str, at: int) -> str:
    """The value of an option for the picture stream `at` of an output."""
    return file.last(option, f"{option}:v", f"{option}:v:{at}", f"{option}:{at}")
