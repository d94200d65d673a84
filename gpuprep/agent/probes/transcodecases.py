"""The transcodes as data: NVIDIA's FFmpeg guide in the form that FFmpeg 5.1 to 9 takes, and the expected output.

Commands differ from the guide where the guide's command does not do what the guide says:
-vsync 0 is an output option now (-fps_mode passthrough, one for each output); -resize and -crop belong to the cuvid
decoders and silently do nothing without one; scale_npp needs a build that may not be shared, scale_cuda does the
same; "-map 0:0" takes no sound; "cuda=foo:bar" means GPU 0; 10-bit H.264 is beyond these encoders, so 3.4 uses HEVC
there; 4.4 repeated the flags of 4.3, low latency as the later guide has it. -hwaccel_output_format cuda is always
there: without it a failed hwaccel falls back to software in silence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Optional, Tuple

# Every command begins with this. -v verbose: the lines that prove that the GPU did it are printed at that level.
PREFIX = ("-hide_banner", "-nostdin", "-v", "verbose", "-y")
RAW_FRAMES = 24  # of each raw input: 1080p 4:2:0 is 3 MB a frame
BIT_RATE_SECONDS = 16.0  # a rate is judged on no less than 15 s: control of it needs time to settle


@dataclass(frozen=True)
class Input:
    """An input of a command. `kind`: "clip" unchanged; "stream" only its video, as .264; "raw" decoded pictures."""

    file: str
    clip: str
    kind: str = "clip"
    seconds: Optional[float] = None
    pixel_format: str = ""  # raw
    width: int = 0  # raw
    height: int = 0  # raw


@dataclass(frozen=True)
class Output:
    """An expected output. `source` is the input with the same pictures.

    `picture` is a filter that makes the source's pictures like the output's; a different size is always scaled. `like`
    is another file to compare the pictures with.
    """

    file: str
    width: int
    height: int
    codec: str = "h264"
    pixel_format: str = "yuv420p"
    profile: Optional[str] = None
    source: str = "input.mp4"
    picture: str = ""
    like: str = ""
    audio: bool = False
    b_frames: Optional[str] = None  # "present" | "absent"
    bit_rate_kbps: Optional[int] = None  # asked for, and judged
    asked_kbps: Optional[int] = None  # asked for; the outputs of one case rank as asked
    psnr_db: Optional[float] = 30.0  # no less; None: not to be judged
    ssim: Optional[float] = 0.9


@dataclass(frozen=True)
class Case:
    """One command. `needs` capabilities are of the GPU: nvenc.CODEC[.FEATURE], nvdec.CODEC[.FEATURE]."""

    id: str
    number: Optional[int]  # row of the guide; None: beyond it
    chapter: str
    title: str
    inputs: Tuple[Input, ...]
    arguments: str
    outputs: Tuple[Output, ...]
    encoders: Tuple[str, ...] = ()
    decoders: Tuple[str, ...] = ()
    filters: Tuple[str, ...] = ()
    hwaccels: Tuple[str, ...] = ("cuda",)
    capabilities: Tuple[str, ...] = ()
    announcements: Tuple[str, ...] = ()  # verbose lines that a feature which was asked for announces itself with
    quick: bool = False
    timeout_seconds: float = 60.0


GPU_IN = "-hwaccel cuda -hwaccel_output_format cuda"
KEEP = "-fps_mode passthrough"
CLIP = Input("input.mp4", "h264-1080p")
HD = Output("output.mp4", 1920, 1080, audio=True)
# Decoders of these codecs must agree to the last bit (then PSNR is written as 100).
EXACT_DB, EXACT_SSIM = 60.0, 0.999
# scale_cuda's bicubic leaves 41.9 dB of the clip at 1280x720, 34.6 at 640x480 and 32.5 at 320x240 (its formula, beside
# the `area` of FFmpeg's scaler, with which pictures are compared); one pixel aside they have 28.5, 25.9 and 23.2 dB.
HD720 = Output("output.mp4", 1280, 720, audio=True)
H264 = ("nvenc.h264", "nvdec.h264")
HIGH_QUALITY = (
    "-tune hq -b:v 5M -bufsize 5M -maxrate 10M -qmin 0 -g 250 -bf 3 -b_ref_mode middle -temporal-aq 1 "
    "-rc-lookahead 20 -i_qfactor 0.75 -b_qfactor 1.1"
)
LOW_LATENCY = "-tune ll -b:v 5M -bufsize 167K -maxrate 10M -qmin 0"


def _transcode(options: str) -> str:
    return f"{GPU_IN} -i input.mp4 -c:a copy -c:v h264_nvenc {options} {KEEP} output.mp4"


def _quality(number: int, name: str, preset: str, *, quick: bool = False) -> Case:
    return Case(
        f"high-quality-{name}", number, "4.3", f"Latency-tolerant, high quality, {name} preset {preset}", (CLIP,),
        _transcode(f"-preset {preset} {HIGH_QUALITY}"),
        (Output("output.mp4", 1920, 1080, audio=True, b_frames="present"),),
        encoders=("h264_nvenc",), decoders=("h264",),
        capabilities=(*H264, *(f"nvenc.h264.{name}" for name in ("b_frames", "b_ref", "temporal_aq", "lookahead"))),
        announcements=("Lookahead enabled", "Temporal AQ enabled"), quick=quick,
    )  # fmt: skip


def _latency(number: int, name: str, preset: str) -> Case:
    return Case(
        f"low-latency-{name}", number, "4.4", f"Low latency, {name.replace('-', ' ')}, preset {preset}", (CLIP,),
        _transcode(f"-preset {preset} {LOW_LATENCY}"),
        # A buffer of one frame starves the first pictures: less is asked of them.
        (Output("output.mp4", 1920, 1080, audio=True, b_frames="absent", psnr_db=28.0, ssim=0.85),),
        encoders=("h264_nvenc",), decoders=("h264",), capabilities=H264,
    )  # fmt: skip


def _raw(pixel_format: str, width: int = 1280, height: int = 720, clip: str = "h264-720p") -> Input:
    return Input("input.yuv", clip, "raw", None, pixel_format, width, height)


def _from_yuv(
    number: int, name: str, raw: Input, encoder: str, rates: Tuple[int, ...], made: Tuple[str, str, str], *features: str
) -> Case:
    """Case of chapter 3.4: one read, one upload, one encode per rate. `made`: codec, profile, pixel format."""
    codec, profile, pixel_format = made
    marks = "".join(f"[o{i}]" for i in range(1, len(rates) + 1))
    maps = " ".join(
        f'-map "[o{i}]" -c:v {encoder} -b:v {rate}M {KEEP} output{i}.mp4' for i, rate in enumerate(rates, 1)
    )
    return Case(
        f"yuv-{name}", number, "3.4", f"1:{len(rates)} encode from raw {raw.pixel_format}", (raw,),
        f"-f rawvideo -pix_fmt {raw.pixel_format} -s {raw.width}x{raw.height} -i input.yuv "
        f'-filter_complex "[0:v]hwupload_cuda,split={len(rates)}{marks}" {maps}',
        tuple(
            Output(
                f"output{i}.mp4", raw.width, raw.height, codec, pixel_format, profile or None, "input.yuv",
                asked_kbps=rate * 1000,
            )
            for i, rate in enumerate(rates, 1)
        ),
        encoders=(encoder,), filters=("hwupload_cuda", "split"),
        capabilities=(f"nvenc.{codec}", *(f"nvenc.{codec}.{feature}" for feature in features)),
    )  # fmt: skip


def _pictures(file: str, width: int, height: int, **what: Any) -> Output:
    """An output of decoded, uncompressed pictures."""
    exact = Output(file, width, height, "rawvideo", "nv12", psnr_db=EXACT_DB, ssim=EXACT_SSIM)
    return replace(exact, **what)


def _decode(name: str, codec: str, clip: str, pixel_format: str, capability: str, title: str, like: str = "") -> Case:
    """A case of decoding on the GPU to raw pictures. `like`: the clip to compare with, without software decoder."""
    inputs = (Input("input.mp4", clip), *((Input("like.mp4", like),) if like else ()))
    return Case(
        f"decode-{name}", None, "", title, inputs,
        f"{GPU_IN} -i input.mp4 -vf hwdownload,format={pixel_format} {KEEP} output.yuv",
        (
            _pictures("output.yuv", 1920, 1080, pixel_format=pixel_format, like="like.mp4", psnr_db=28.0, ssim=0.85)
            if like else _pictures("output.yuv", 1920, 1080, pixel_format=pixel_format),
        ),
        decoders=(codec,), filters=("hwdownload", "format"), capabilities=(capability,),
    )  # fmt: skip


def _ladder(decode: str, upload: str, rates: Tuple[str, str, str, str]) -> str:
    """The command of chapters 3.5 and 3.6: two inputs, four sizes, in one process."""
    words = [decode]
    for rung, rate in zip(LADDER, rates):  # noqa: B905 - strict= is newer than the Python of some hosts
        i = rung.source[len("input")] == "2"
        words.append(
            f"-map {i:d}:v:0 -map {i:d}:a:0 -vf {upload}scale_cuda={rung.width}:{rung.height} -c:a copy "
            f"-c:v h264_nvenc -b:v {rate} {KEEP} {rung.file}"
        )
    return " ".join(words)


LADDER = tuple(
    replace(HD720, file=file, width=width, height=height, source=source)
    for file, width, height, source in (
        ("output11.mp4", 640, 480, "input1.mp4"),
        ("output12.mp4", 320, 240, "input1.mp4"),
        ("output21.mp4", 1280, 720, "input2.mp4"),
        ("output22.mp4", 640, 480, "input2.mp4"),
    )
)
TWO = (Input("input1.mp4", "h264-1080p"), Input("input2.mp4", "h264-720p"))
RAW_720 = _raw("yuv420p")
RAW_1080 = _raw("yuv420p", 1920, 1080, "h264-1080p")
DEEP = ("10bit", "444")

CASES: Tuple[Case, ...] = (
    Case(
        "transcode", 1, "3.1", "1:1 transcode without scaling",
        (Input("input.mp4", "h264-1080p", seconds=BIT_RATE_SECONDS),), _transcode("-b:v 5M"),
        (Output("output.mp4", 1920, 1080, audio=True, bit_rate_kbps=5000),),
        encoders=("h264_nvenc",), decoders=("h264",), capabilities=H264, quick=True,
    ),
    Case(
        "resize", 2, "3.2", "1:1 transcode, the decoder's resizer", (CLIP,),
        f"{GPU_IN} -c:v h264_cuvid -resize 1280x720 -i input.mp4 -c:a copy -c:v h264_nvenc -b:v 5M {KEEP} output.mp4",
        (HD720,), encoders=("h264_nvenc",), decoders=("h264_cuvid",), capabilities=H264, quick=True,
    ),
    Case(
        "crop", 3, "3.2", "1:1 transcode, the decoder's cropper", (CLIP,),
        f"{GPU_IN} -c:v h264_cuvid -crop 16x16x32x32 -i input.mp4 -c:a copy -c:v h264_nvenc -b:v 5M {KEEP} output.mp4",
        (Output("output.mp4", 1856, 1048, audio=True, picture="crop=1856:1048:32:16"),),
        encoders=("h264_nvenc",), decoders=("h264_cuvid",), capabilities=H264,
    ),
    Case(
        "scale-cuda", 4, "3.2", "1:1 transcode, scale_cuda", (CLIP,),
        f"{GPU_IN} -i input.mp4 -vf scale_cuda=1280:720 -c:a copy -c:v h264_nvenc -b:v 5M {KEEP} output.mp4",
        (HD720,), encoders=("h264_nvenc",), decoders=("h264",), filters=("scale_cuda",), capabilities=H264,
    ),
    Case(
        "scale-npp", 5, "3.2", "1:1 transcode, scale_npp", (CLIP,),
        f"{GPU_IN} -i input.mp4 -vf scale_npp=1280:720 -c:a copy -c:v h264_nvenc -b:v 5M {KEEP} output.mp4",
        (HD720,), encoders=("h264_nvenc",), decoders=("h264",), filters=("scale_npp",), capabilities=H264,
    ),
    Case(
        "one-to-many", 6, "3.3", "1:N transcode with scaling", (CLIP,),
        f"{GPU_IN} -i input.mp4 "
        f"-vf scale_cuda=1920:1080 -c:a copy -c:v h264_nvenc -b:v 5M {KEEP} output1.mp4 "
        f"-vf scale_cuda=1280:720 -c:a copy -c:v h264_nvenc -b:v 8M {KEEP} output2.mp4",
        (Output("output1.mp4", 1920, 1080, audio=True), replace(HD720, file="output2.mp4")),
        encoders=("h264_nvenc",), decoders=("h264",), filters=("scale_cuda",), capabilities=H264,
    ),
    _from_yuv(7, "420", RAW_1080, "h264_nvenc", (8, 10, 12, 14), ("h264", "", "yuv420p")),
    _from_yuv(8, "444", _raw("yuv444p"), "h264_nvenc", (8, 14), ("h264", "High 4:4:4 Predictive", "yuv444p"), "444"),
    _from_yuv(9, "420-10", _raw("p010le"), "hevc_nvenc", (8, 14), ("hevc", "Main 10", "yuv420p10le"), "10bit"),
    _from_yuv(10, "444-10", _raw("yuv444p16le"), "hevc_nvenc", (8, 14), ("hevc", "Rext", "yuv444p10le"), *DEEP),
    Case(
        "many-to-many", 11, "3.5", "Two inputs, four sizes, one process", TWO,
        _ladder(f"{GPU_IN} -i input1.mp4 {GPU_IN} -i input2.mp4", "", ("1M", "500k", "3M", "2M")),
        LADDER, encoders=("h264_nvenc",), decoders=("h264",), filters=("scale_cuda",), capabilities=H264,
    ),
    Case(
        "software-decode", 12, "3.6", "Software decode, hardware scale and encode", TWO,
        _ladder(
            "-init_hw_device cuda=foo:0 -filter_hw_device foo -i input1.mp4 -i input2.mp4", "hwupload,",
            ("1M", "500k", "2M", "1M"),
        ),
        LADDER, encoders=("h264_nvenc",), decoders=("h264",), filters=("hwupload", "scale_cuda"),
        capabilities=("nvenc.h264",),
    ),
    Case(
        "encode", 13, "4.1", "Encode 720p YUV", (RAW_720,),
        f"-f rawvideo -s 1280x720 -i input.yuv -c:v h264_nvenc {KEEP} output.mp4",
        (Output("output.mp4", 1280, 720, source="input.yuv"),),
        encoders=("h264_nvenc",), capabilities=("nvenc.h264",), quick=True,
    ),
    Case(
        "decode", 14, "4.2", "Decode", (Input("input.mp4", "h264-720p"),),
        f"-c:v h264_cuvid -i input.mp4 {KEEP} output.yuv",
        (_pictures("output.yuv", 1280, 720),),
        decoders=("h264_cuvid",), capabilities=("nvdec.h264",), quick=True,
    ),
    Case(
        "decode-three", 15, "4.2", "Decode three streams in one process",
        (
            Input("input1.264", "h264-720p", "stream"), Input("input2.264", "h264-540p", "stream"),
            Input("input3.264", "h264-720p", "stream"),
        ),
        f"{GPU_IN} -i input1.264 {GPU_IN} -i input2.264 {GPU_IN} -i input3.264 -filter_complex "
        '"[0:v]hwdownload,format=nv12[o0];[1:v]hwdownload,format=nv12[o1];[2:v]hwdownload,format=nv12[o2]" '
        f'-map "[o0]" -f rawvideo {KEEP} output1.yuv -map "[o1]" -f rawvideo {KEEP} output2.yuv '
        f'-map "[o2]" -f rawvideo {KEEP} output3.yuv',
        (
            _pictures("output1.yuv", 1280, 720, source="input1.264"),
            _pictures("output2.yuv", 960, 540, source="input2.264"),
            _pictures("output3.yuv", 1280, 720, source="input3.264"),
        ),
        decoders=("h264",), filters=("hwdownload", "format"), capabilities=("nvdec.h264",),
    ),
    _quality(16, "slow", "p6"),
    _quality(17, "medium", "p4", quick=True),
    _quality(18, "fast", "p2"),
    _latency(19, "high-quality", "p6"),
    _latency(20, "high-performance", "p2"),
    Case(
        "lookahead", 21, "5.1", "Look-ahead of 20 frames", (CLIP,), _transcode("-b:v 5M -rc-lookahead 20"), (HD,),
        encoders=("h264_nvenc",), decoders=("h264",), capabilities=(*H264, "nvenc.h264.lookahead"),
        announcements=("Lookahead enabled",),
    ),
    Case(
        # Moves bits from detail to flat regions, which the eye likes and PSNR does not: no floor.
        "spatial-aq", 22, "5.2", "Spatial adaptive quantization", (CLIP,),
        _transcode("-b:v 5M -spatial-aq 1 -aq-strength 8"),
        (Output("output.mp4", 1920, 1080, audio=True, psnr_db=None, ssim=None),),
        encoders=("h264_nvenc",), decoders=("h264",), capabilities=H264, announcements=("AQ enabled",),
    ),
    Case(
        "temporal-aq", 23, "5.2", "Temporal adaptive quantization", (CLIP,),
        _transcode("-b:v 5M -temporal-aq 1"), (HD,),
        encoders=("h264_nvenc",), decoders=("h264",), capabilities=(*H264, "nvenc.h264.temporal_aq"),
        announcements=("Temporal AQ enabled",),
    ),
    Case(
        "decode-resize", None, "3.2", "Decode with the decoder's resizer", (Input("input.mp4", "h264-1080p"),),
        f"-c:v h264_cuvid -resize 1280x720 -i input.mp4 {KEEP} output.yuv",
        # On an H200 51.6 dB and 0.999.
        (_pictures("output.yuv", 1280, 720, psnr_db=38.0, ssim=0.98),),
        decoders=("h264_cuvid",), capabilities=("nvdec.h264",), quick=True,
    ),
    Case(
        "decode-crop", None, "3.2", "Decode with the decoder's cropper", (Input("input.mp4", "h264-720p"),),
        f"-c:v h264_cuvid -crop 16x16x32x32 -i input.mp4 {KEEP} output.yuv",
        (_pictures("output.yuv", 1216, 688, picture="crop=1216:688:32:16"),),
        decoders=("h264_cuvid",), capabilities=("nvdec.h264",),
    ),
    Case(
        "decode-scale", None, "3.2", "Decode, scale_cuda, download", (CLIP,),
        f"{GPU_IN} -i input.mp4 -vf scale_cuda=640:360,hwdownload,format=nv12 {KEEP} output.yuv",
        # On an H200 33.1 dB and 0.97, as the formula gives; one pixel aside 25.9 dB.
        (_pictures("output.yuv", 640, 360, psnr_db=31.0, ssim=0.95),),
        decoders=("h264",), filters=("scale_cuda", "hwdownload", "format"), capabilities=("nvdec.h264",), quick=True,
    ),
    _decode("hevc", "hevc", "hevc-1080p", "nv12", "nvdec.hevc", "Decode HEVC"),
    _decode("hevc-10bit", "hevc", "hevc10-1080p", "p010le", "nvdec.hevc.10bit", "Decode HEVC Main 10"),
    _decode("vp9", "vp9", "vp9-1080p", "nv12", "nvdec.vp9", "Decode VP9"),
    # FFmpeg's own AV1 decoder has no software part: the pictures are compared with those of the H.264 clip.
    _decode("av1", "av1", "av1-1080p", "nv12", "nvdec.av1", "Decode AV1", like="h264-1080p"),
)  # fmt: skip

BY_ID = {case.id: case for case in CASES}
