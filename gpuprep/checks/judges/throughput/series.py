"""One series of the throughput probe, the GPU it ran on, and that GPU's engines by the catalogue."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpuprep import catalogue
from gpuprep.agent.video.throughputplan import LARGER, clip_of
from gpuprep.catalogue.codecs import EngineRate, engine_rate, most_engines
from gpuprep.catalogue.video import capabilities, is_verified
from gpuprep.records import Missing
from gpuprep.records.evidence import Figure
from gpuprep.records.evidence.throughput import Clip, Series, Step, ThroughputGpu

PARTS = {"decode": ("decode",), "encode": ("encode",), "transcode": ("decode", "encode")}
# Every picture of these is decoded once: that limits them, although no rate says how fast they must be.
DECODING = ("download", "ladder", "software")
FIELDS = {"decode": "nvdec_engines", "encode": "nvenc_engines"}
WORDS = {"decode": "decoder", "encode": "encoder"}
CHIPS = {"decode": "nvdec", "encode": "nvenc"}
ALONE_PERCENT = 85.0  # of one engine's rate: a session that reaches so much keeps one engine busy
OWN_CLIP = re.compile(
    r"(?:^|[\s/'])([a-z0-9-]+?)(?:-x[0-9]+)?\.mp4(?=['\s]|$)"
)  # in a command: "-i …/h264-1080p-x41.mp4"
PIXELS = 1920 * 1080


@dataclass(frozen=True)
class Engines:
    """The engines of one kind. `count` None: neither the catalogue nor the measurement has their number.

    `how` the number is known: "sourced", "recalled" from data sheets, "confirmed" (recalled, and equal to the number
    that one session alone shows), "measured" by one session alone, "" unknown.
    """

    part: str  # "decode" | "encode"
    count: int | None
    how: str
    rate: EngineRate | None

    @property
    def is_sure(self) -> bool:
        """Whether the count is reliable enough for a FAIL."""
        return self.how in ("sourced", "confirmed", "measured")

    def used(self, step: Step) -> Figure:
        return step.decoder_utilization_percent if self.part == "decode" else step.encoder_utilization_percent

    def most(self, clock: float, sessions: int | None) -> float | None:
        """The highest possible fps of `sessions`, of which each can fill one engine; None without a rate."""
        if self.rate is None:
            return None
        engines = most_engines(self.part) if self.count is None else self.count
        return self.rate.most_at(clock) * (engines if sessions is None else min(engines, sessions))

    def in_words(self) -> str:
        words = f"{self.count} {WORDS[self.part]}{'' if self.count == 1 else 's'}"
        if self.how == "recalled":
            return f"{words} (a count remembered from data sheets, not verified)"
        return f"{words} (as one session alone shows)" if self.how in ("confirmed", "measured") else words


class Judged:
    """One series and the GPU it ran on, with their data in the catalogue."""

    def __init__(
        self,
        series: Series,
        gpu: ThroughputGpu,
        several: bool,
        board: catalogue.Board | None = None,
        counted: Mapping[str, int] | None = None,
        published: bool = False,
    ) -> None:
        self.series, self.gpu, self.board, self.published = series, gpu, board, published
        self.kind, self.codec, self.preset = series.kind, series.codec, series.preset
        words = ["throughput", self.kind, self.codec, self.preset, f"gpu {gpu.index}" if several else ""]
        self.subject = " ".join(word for word in words if word)
        self.model = board.model if board else None
        self.decisive = series.decisive_line
        self.steps = series.steps
        self.engines = engines(self.model, self.kind, self.codec, self.preset, counted or {})
        decoding = self.kind in DECODING
        self.bounds = engines(self.model, "decode", "h264", "", counted or {}) if decoding else self.engines

    @property
    def key(self) -> tuple[str, str, str]:
        return self.kind, self.codec, self.preset

    @property
    def base(self) -> str:
        """The codec without the size."""
        return self.codec.removesuffix(LARGER)

    @property
    def delivered(self) -> list[Step]:
        return [step for step in self.steps if positive(step.fps)]

    @property
    def best(self) -> Step | None:
        """The step with the most frames per second; None: nothing was delivered."""
        return max(self.delivered, key=lambda step: positive(step.fps), default=None)

    @property
    def own_clip(self) -> bool:
        """Whether the sessions read the clip that gpuprep makes for this series."""
        wanted = clip_of(self.kind, self.codec)
        clip = self.series.clip
        if isinstance(clip, Clip):
            return clip.name == wanted
        return clip is None and OWN_CLIP.findall(self.series.command) == [wanted]

    @property
    def bit_rate(self) -> str:
        """Bit rate of the decoded clip in words, because it decides the speed; "" if it is not recorded."""
        rate = self.series.clip.bit_rate_kbps if isinstance(self.series.clip, Clip) else 0.0
        decodes = self.kind == "decode" and not isinstance(rate, Missing) and rate > 0
        return f", streams of {positive(rate) / 1000:.1f} Mbit/s" if decodes else ""

    @property
    def lacks_engine(self) -> bool:
        return any(engine.count == 0 for engine in self.engines)

    @property
    def has_rates(self) -> bool:
        return bool(self.engines) and all(engine.rate is not None for engine in self.engines)

    def clock(self, step: Step) -> float:
        """The video clock in MHz; 0 if unknown. For published figures without it, the board's highest."""
        read = positive(step.video_clock_mhz)
        highest = self.board.video_mhz if self.board else None
        return float(highest or 0) if not read and self.published else read

    @property
    def pixels(self) -> float:
        """The size of a picture as a multiple of 1080p, the size for which the rates are given."""
        width, height = self.series.width, self.series.height
        return width * height / PIXELS if width and height else 1.0


def engines(
    model: catalogue.Model | None, kind: str, codec: str, preset: str, counted: Mapping[str, int]
) -> list[Engines]:
    """The engines that this series uses, by kind; [] if the catalogue lacks the GPU."""
    if model is None:
        return []
    engine_kinds = []
    for part in PARTS.get(kind, ()):
        rate = engine_rate(model.compute_capability, part, codec, preset or None)
        count, how = _count(model, part, counted.get(part))
        engine_kinds.append(Engines(part, count, how, rate))
    return engine_kinds


def _count(model: catalogue.Model, part: str, alone: int | None) -> tuple[int | None, str]:
    known: int | None = getattr(model, FIELDS[part])
    if known is None:
        parts, chip = capabilities(model.key), CHIPS[part]
        if parts is not None and not any(name.startswith(f"{chip}.") for name in parts):
            return 0, "sourced" if is_verified(model.key, f"{chip}.h264") else "recalled"
        return alone, "measured" if alone else ""
    if FIELDS[part] not in model.unverified:
        return known, "sourced"
    return known, "confirmed" if known == alone else "recalled"


def counted(model: catalogue.Model | None, every: Iterable[Series]) -> dict[str, int]:
    """Kind ► number of engines, from one session alone: it fills one engine, and NVML reports its share of all."""
    counts: dict[str, int] = {}
    for series in every:
        rates = engines(model, series.kind, series.codec, series.preset, {})
        if len(rates) != 1 or series.outcome != "completed":
            continue
        engine = rates[0]
        for step in series.steps:
            used, clock = positive(engine.used(step)), positive(step.video_clock_mhz)
            full = ALONE_PERCENT / 100 * engine.rate.at(clock) if engine.rate and clock else 0.0
            if step.sessions == 1 and used and full and positive(step.fps) >= full:
                counts.setdefault(engine.part, round(100 / used))
    return {part: count for part, count in counts.items() if 0 < count <= most_engines(part)}


def positive(value: Figure) -> float:
    """The figure; 0 if it is not recorded or negative."""
    return 0.0 if isinstance(value, Missing) else max(0.0, value)
