"""Which series the throughput probe runs, with which commands, and up to how many sessions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

KINDS = ("decode", "encode", "transcode", "ladder", "download", "software")  # of series, as reports order them
REPEAT = 4  # `encode`: how often each decoded picture is encoded
GROWTH = 1.03  # more sessions that bring less than this did not help
# NVML's utilisation of busy engines. On a real H100 more sessions brought 2 % from there, and took 9 s.
FULL_PERCENT = 95
MOST_SESSIONS = 32
CLIPS = {
    "h264": "h264-1080p", "h264-noisy": "h264-1080p-noisy", "hevc": "hevc-1080p", "hevc10": "hevc10-1080p",
    "vp9": "vp9-1080p",
}  # fmt: skip
# What `capacity` measures besides: more codecs, and 4K.
LARGER = "-2160p"
CAPACITY_CLIPS = {
    "av1": "av1-1080p", "h264-2160p": "h264-2160p", "hevc-2160p": "hevc-2160p", "av1-2160p": "av1-2160p",
}  # fmt: skip
EVERY_CLIP = {**CLIPS, **CAPACITY_CLIPS}
# Decoding takes as long as a picture has bits: a series with a clip that is harder than the light one beside it.
HARDER = ("h264-noisy",)
# Sessions an engine, and how many more. On a real H100 (7 engines) 8 sessions of H.264 gave 99.6 % of what 14 gave, in
# half the time until all were ready; 7 of HEVC gave 83 % and 14 gave 98 %; VP9 has the longest pauses.
FEW, TWO, MANY = (1, 1), (2, 0), (3, 0)
PAUSING = ("vp9",)
# A preset of NVIDIA's table near the middle, for what is measured with one preset only.
MIDDLE = "p3"
PRESETS = ("p1", "p2", "p3", "p4", "p5", "p6", "p7")
ENCODED = ("h264", "hevc", "av1")
# What a ladder makes of each picture: the picture itself, and these sizes scaled on the GPU.
RENDITIONS = ((1280, 720, "3M"), (854, 480, "1500k"))
# Encoders on the CPU, for GPUs without NVENC, with presets that live streams use.
SOFTWARE = {"h264": "libx264", "hevc": "libx265"}
SOFTWARE_SERIES = (("h264", "veryfast"), ("h264", "medium"), ("hevc", "ultrafast"))
DOWNLOAD = "hwdownload,format=nv12"
DISCARDED = ("-fps_mode", "passthrough", "-f", "null", "-")
BIT_RATES = {False: "5M", True: "20M"}  # by whether the pictures are 4K


@dataclass(frozen=True)
class Engines:
    """Number of engines of one GPU, by the catalogue; None: the catalogue lacks this GPU."""

    nvenc: Optional[int]
    nvdec: Optional[int]


@dataclass(frozen=True)
class Series:
    """One kind of work, measured with more and more sessions. `ladder`: begin with one session, else with full engines.

    `one_step`: only the first number of sessions. `first`: (sessions per engine to begin with, how many more).
    """

    kind: str  # "decode" | "encode" | "transcode", of capacity also "ladder" | "download" | "software"
    codec: str  # "h264", "h264-noisy" (the harder clip), "hevc", "hevc10" (Main10), "vp9", "h264-2160p" (4K)
    preset: Optional[str]
    ladder: bool
    one_step: bool = False
    first: Tuple[int, int] = TWO

    @property
    def needs(self) -> str:
        """The encoder that FFmpeg must have for this series; "" for none."""
        if self.kind in ("decode", "download"):
            return ""
        return SOFTWARE.get(self.base, "") if self.kind == "software" else f"{self.base}_nvenc"

    @property
    def base(self) -> str:
        """The codec without the size."""
        return self.codec[: -len(LARGER)] if self.large else self.codec

    @property
    def large(self) -> bool:
        return self.codec.endswith(LARGER)

    @property
    def size(self) -> Tuple[int, int]:
        return (3840, 2160) if self.large else (1920, 1080)

    @property
    def clip(self) -> str:
        """The name of the clip that each session reads."""
        return clip_of(self.kind, self.codec)


def clip_of(kind: str, codec: str) -> str:
    """The clip of a series: for decoding, of that codec; for all other work, H.264 of the same size."""
    if kind == "decode":
        return EVERY_CLIP.get(codec, "")
    return EVERY_CLIP["h264-2160p" if codec.endswith(LARGER) else "h264"]


def plan(quick: bool, engines: Engines) -> List[Series]:
    """The series, the most important first; a time budget leaves out the last ones.

    If the catalogue says that there is no encoder, one session per codec is tried all the same, so that the driver's
    own message confirms it.
    """
    if quick:
        encode = [] if engines.nvenc == 0 else [Series("encode", "h264", MIDDLE, False, one_step=True)]
        return [Series("decode", "h264", None, False, one_step=True, first=FEW), *encode]
    decode = [
        Series("decode", codec, None, codec == "h264", codec in PAUSING, MANY if codec in PAUSING else TWO)
        for codec in CLIPS
        if codec not in HARDER
    ]
    harder = [Series("decode", codec, None, False, one_step=True) for codec in HARDER]
    if engines.nvenc == 0:
        return [
            decode[0],
            Series("encode", "h264", MIDDLE, False),
            Series("encode", "hevc", MIDDLE, False),
            *decode[1:],
            *harder,
        ]
    return [
        decode[0],
        Series("encode", "h264", MIDDLE, True),
        Series("transcode", "h264", MIDDLE, True),
        decode[1],
        Series("encode", "hevc", MIDDLE, False),
        *decode[2:],
        *(Series("encode", codec, preset, False) for preset in ("p1", "p7") for codec in ("h264", "hevc")),
        *harder,
    ]


def capacity_plan(engines: Engines) -> List[Series]:
    """All series of `plan`, then those for planning capacity: 4K, every preset, ladder, work together with the CPU."""
    whole = plan(False, engines)
    decode = [Series("decode", codec, None, False) for codec in ("h264-2160p", "hevc-2160p", "av1", "av1-2160p")]
    if engines.nvenc == 0:
        software = [Series("software", codec, preset, True) for codec, preset in SOFTWARE_SERIES]
        download = [Series("download", codec, None, False) for codec in ("h264", "h264-2160p")]
        return [*whole, *decode, *download, *software]
    work = [
        Series("ladder", "h264", MIDDLE, True),
        Series("transcode", "h264-2160p", MIDDLE, False),
        Series("transcode", "hevc", MIDDLE, False),
    ]
    codecs = [f"{codec}{size}" for size in ("", LARGER) for codec in ENCODED]
    encode = [Series("encode", codec, preset, False) for codec in codecs for preset in PRESETS]
    have = {(series.kind, series.codec, series.preset) for series in whole}
    return [
        *whole,
        *decode,
        *work,
        *(series for series in encode if (series.kind, series.codec, series.preset) not in have),
    ]


def engines_of(series: Series, engines: Engines) -> Optional[int]:
    """The number of engines that this series uses, which is the number of sessions to fill them; None: unknown."""
    if series.kind in ("decode", "download"):
        return engines.nvdec
    if series.kind == "software":  # as many as the CPU can carry
        return None
    if series.kind == "encode" or engines.nvenc is None or engines.nvdec is None:
        return engines.nvenc
    return max(engines.nvenc, engines.nvdec)


def next_sessions(steps: Sequence[Mapping[str, Any]], engines: Optional[int], series: Series) -> Optional[int]:
    """The next number of sessions to measure after `steps` (as in records.md); None: no more.

    With n engines a ladder has 1, n/2, n and n+1 sessions, then each time half as many more; if n is unknown, it has 1,
    2, 4, ... Without a ladder it begins with `series.first`, because sessions fill each other's pauses.
    """
    if not steps:
        each, more = series.first
        return 1 if series.ladder or engines == 0 else min(each * (engines or 2) + more, MOST_SESSIONS)
    last = steps[-1]
    if last["died"] or last["fps"] <= 0 or _full(last, series):
        return None
    best_before = max((step["fps"] for step in steps[:-1]), default=0.0)
    if last["fps"] < GROWTH * best_before:
        return None
    count = int(last["sessions"])
    if engines is None:
        following = count * 2
    elif count < engines:
        half = (engines + 1) // 2
        following = half if count < half else engines
    elif count == engines:
        following = count + 1
    else:
        following = count + (count + 1) // 2
    return following if following <= MOST_SESSIONS else None


def _full(step: Mapping[str, Any], series: Series) -> bool:
    used = [step["encoder_utilization_percent"], step["decoder_utilization_percent"]]
    if series.kind == "software":
        # More sessions share the same cores: 32 of x265 on 16 cores took a minute for nothing.
        used.append(step.get("cpu_percent"))
    return any(isinstance(percent, (int, float)) and percent >= FULL_PERCENT for percent in used)


def command(ffmpeg: str, series: Series, clip: Path, fps: int) -> List[str]:
    """The command line of one session. CUDA_VISIBLE_DEVICES selects the GPU. `fps` is the clip's.

    `-threads 1`: with more threads the decoder would ask for more surfaces than NVDEC has.
    """
    return [
        ffmpeg, "-hide_banner", "-nostdin", "-nostats", "-v", "warning", "-progress", "pipe:1", "-stats_period", "0.1",
        "-threads", "1", "-hwaccel", "cuda", "-hwaccel_output_format", "cuda", "-i", str(clip),
        *(_ladder(series) if series.kind == "ladder" else _one_output(series, fps)),
    ]  # fmt: skip


def _one_output(series: Series, fps: int) -> List[str]:
    graphs = {"encode": f"fps={fps * REPEAT}", "download": DOWNLOAD, "software": DOWNLOAD}
    graph = ["-vf", graphs[series.kind]] if series.kind in graphs else []
    return ["-map", "0:v:0", *graph, *_encoder(series, BIT_RATES[series.large]), *DISCARDED]


def _ladder(series: Series) -> List[str]:
    """Options of the ladder. The first output has the original size: FFmpeg's `frame=` counts the first output."""
    count = len(RENDITIONS) + 1
    labels = "".join(f"[in{number}]" for number in range(1, count))
    scaled = ";".join(
        f"[in{number}]scale_cuda={width}:{height}[out{number}]"
        for number, (width, height, _) in enumerate(RENDITIONS, 1)
    )
    words = ["-filter_complex", f"[0:v:0]split={count}[out0]{labels};{scaled}"]
    for number, rate in enumerate((BIT_RATES[series.large], *(rate for _, _, rate in RENDITIONS))):
        words += ["-map", f"[out{number}]", *_encoder(series, rate), *DISCARDED]
    return words


def _encoder(series: Series, rate: str) -> List[str]:
    return ["-c:v", series.needs, "-preset", str(series.preset), "-b:v", rate] if series.needs else []


def engines_from(arguments: Mapping[str, Any], pci_device_id: str) -> Engines:
    """The engines of this GPU in the catalogue data that the controller sends as `gpus` (desired/probes.py)."""
    known: Any = arguments.get("gpus")
    entry: Dict[str, Any] = known.get(pci_device_id, {}) if isinstance(known, dict) else {}
    model: Any = entry.get("model") or {}
    counts = [model.get(key) for key in ("nvenc_engines", "nvdec_engines")]
    nvenc, nvdec = (count if isinstance(count, int) and count >= 0 else None for count in counts)
    return Engines(nvenc, nvdec)
