"""Which series the throughput probe runs, with which commands, and up to how many sessions. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

REPEAT = 4  # `encode`: how often each decoded picture is encoded
GROWTH = 1.03  # more sessions that bring less than this did not help
# NVML's word for engines almost without a pause. On a real H100 more sessions brought 2 % from there, and took 9 s.
FULL_PERCENT = 95
MOST_SESSIONS = 32
CLIPS = {
    "h264": "h264-1080p", "h264-noisy": "h264-1080p-noisy", "hevc": "hevc-1080p", "hevc10": "hevc10-1080p",
    "vp9": "vp9-1080p",
}  # fmt: skip
# Decoding takes as long as a picture has bits: a series with a clip that is harder than the light one beside it.
HARDER = ("h264-noisy",)
# Sessions an engine, and how many more. On a real H100 (7 engines) 8 sessions of H.264 gave 99.6 % of what 14 gave, in
# half the time until all were ready; 7 of HEVC gave 83 % and 14 gave 98 %; VP9 has the longest pauses.
FEW, TWO, MANY = (1, 1), (2, 0), (3, 0)
PAUSING = ("vp9",)
# A preset of NVIDIA's table near the middle, for what is measured with one preset only.
MIDDLE = "p3"


@dataclass(frozen=True)
class Engines:
    """Of one GPU, by the catalogue; None: it does not know this GPU."""

    nvenc: Optional[int]
    nvdec: Optional[int]


@dataclass(frozen=True)
class Series:
    """One kind of work, measured with rising numbers of sessions. `ladder`: from one up, else from full engines.

    `one_step`: no number of sessions but the first. `first`: sessions an engine to begin with, and how many more.
    """

    kind: str  # "decode" | "encode" | "transcode"
    codec: str  # "h264", "h264-noisy" (of the harder clip), "hevc", "hevc10" (Main10), "vp9"
    preset: Optional[str]
    ladder: bool
    one_step: bool = False
    first: Tuple[int, int] = TWO

    @property
    def needs(self) -> str:
        """The part of FFmpeg without which it cannot run: an encoder's name, "" for none."""
        return "" if self.kind == "decode" else f"{self.codec}_nvenc"


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


def engines_of(series: Series, engines: Engines) -> Optional[int]:
    """How many sessions it takes to fill what this series uses; None: not known."""
    if series.kind == "decode":
        return engines.nvdec
    if series.kind == "encode" or engines.nvenc is None or engines.nvdec is None:
        return engines.nvenc
    return max(engines.nvenc, engines.nvdec)


def next_sessions(steps: Sequence[Mapping[str, Any]], engines: Optional[int], series: Series) -> Optional[int]:
    """How many sessions to try after `steps` (records.md's form); None: enough.

    A ladder is one session, half as many as engines, as many, one more, then half as many again; 1, 2, 4, ... where the
    engines are not known. Without a ladder it begins with `series.first`: sessions fill each other's pauses.
    """
    if not steps:
        each, more = series.first
        return 1 if series.ladder or engines == 0 else min(each * (engines or 2) + more, MOST_SESSIONS)
    last = steps[-1]
    if last["died"] or last["fps"] <= 0 or _full(last):
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


def _full(step: Mapping[str, Any]) -> bool:
    used = [step["encoder_utilization_percent"], step["decoder_utilization_percent"]]
    return any(isinstance(percent, (int, float)) and percent >= FULL_PERCENT for percent in used)


def command(ffmpeg: str, series: Series, clip: Path, fps: int) -> List[str]:
    """One session. The GPU is chosen by CUDA_VISIBLE_DEVICES. `fps` is the clip's.

    `-threads 1`: a core of its own for each decoder thread would ask for more surfaces than NVDEC has.
    """
    repeat = ["-vf", f"fps={fps * REPEAT}"] if series.kind == "encode" else []
    encoder = ["-c:v", series.needs, "-preset", str(series.preset), "-b:v", "5M"] if series.needs else []
    return [
        ffmpeg, "-hide_banner", "-nostdin", "-nostats", "-v", "warning", "-progress", "pipe:1", "-stats_period", "0.1",
        "-threads", "1", "-hwaccel", "cuda", "-hwaccel_output_format", "cuda", "-i", str(clip),
        "-map", "0:v:0", *repeat, *encoder, "-fps_mode", "passthrough", "-f", "null", "-",
    ]  # fmt: skip


def engines_from(arguments: Mapping[str, Any], pci_device_id: str) -> Engines:
    """What the controller's catalogue said of this GPU; forms of `gpus` as probing.arguments gives them."""
    known: Any = arguments.get("gpus")
    entry: Dict[str, Any] = known.get(pci_device_id, {}) if isinstance(known, dict) else {}
    model: Any = entry.get("model") or {}
    counts = [model.get(key) for key in ("nvenc_engines", "nvdec_engines")]
    nvenc, nvdec = (count if isinstance(count, int) and count >= 0 else None for count in counts)
    return Engines(nvenc, nvdec)
