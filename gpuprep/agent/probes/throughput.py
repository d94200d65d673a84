"""How many frames per second do all video engines deliver together (chapter 6.1 of NVIDIA's FFmpeg guide)?

The number of sessions, each an FFmpeg process, is raised until frames per second no longer grow or NVML reports full
engines. Only the steady state counts (progress.steady_state). Pictures never leave the GPU, and nothing is written:

decode     one clip, read from the page cache, `-f null`. Bound by NVDEC; a session needs little of one CPU core.
encode     a clip is decoded on the GPU and every picture encoded four times (filter fps), so that the decoder works at
           a quarter of the encoder's rate and does not bound it, even on a V100 with three encoders and one decoder.
           A repeated picture takes NVENC's fixed pipeline as long as any other, though it makes few bits.
transcode  every picture decoded once and encoded once: bound by the smaller of the two.

GPUs are measured one after the other: the first with every series, each other with the short list of `quick`.

With `capacity` the first GPU gets all series for planning (throughputplan.capacity_plan), then the picture quality of
its encoders (quality.py) and the time of one picture (latency.py) are measured:

ladder     every picture decoded once, scaled on the GPU to two more sizes, and encoded three times
download   decoded on the GPU and copied to the host's memory
software   the same, and encoded by the CPU
"""

from __future__ import annotations

import contextlib
import functools
import shlex
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from gpuprep.agent import probereports
from gpuprep.agent.compute.cpu import CpuUse
from gpuprep.agent.compute.sampler import Sampler
from gpuprep.agent.facts.codec import ffmpeg_version
from gpuprep.agent.facts.shells import login_path, which
from gpuprep.agent.gpu.nvml import Gpu, Nvml
from gpuprep.agent.probes import latency, quality
from gpuprep.agent.probes.codec import coders
from gpuprep.agent.probes.codec import named as named_ffmpeg
from gpuprep.agent.probes.gpuforms import NAMES, named, other_processes
from gpuprep.agent.programs.run import run
from gpuprep.agent.video.clips import Clip, clip, make_beforehand, prepare
from gpuprep.agent.video.ffmpegerrors import decisive_line
from gpuprep.agent.video.sessions import ENDED, Together, environment, together
from gpuprep.agent.video.throughputplan import (
    Engines,
    Series,
    capacity_plan,
    command,
    engines_from,
    engines_of,
    next_sessions,
    plan,
)
from gpuprep.records import Missing, OptStr

BUDGET_SECONDS = 75.0  # for the first GPU, making the clips included
QUICK_BUDGET_SECONDS = 15.0  # for each further one, and for the first with `quick`; it needs about half of it
WINDOW_SECONDS = 1.5  # of steady state a step
QUICK_WINDOW_SECONDS = 0.8
CAPACITY_BUDGET_SECONDS = 900.0  # for one GPU, with quality and latency
QUALITY_SECONDS = 240.0  # of it, kept for these two
CLIP_SECONDS = 130.0  # 3900 frames: no session comes to the end of its input before a step is over
LARGE_CLIP_SECONDS = 66.0  # 4K takes four times as long, and its file is four times as large
START_SECONDS = 3.0  # what a step's start-up is taken for until one was seen
LAST_WORDS = 500  # characters of a decisive line

TRAFFIC = ("memory_used_mib", "pcie_to_gpu_mb_per_s", "pcie_from_gpu_mb_per_s")
TRAFFIC_HZ = 4.0  # NVML needs 40 ms for what crosses PCIe
SEEN = (
    "encoder_utilization_percent", "decoder_utilization_percent", "video_clock_mhz", "event_reasons", "power_watts",
    "temperature_c", "cpu_percent", "io_wait_percent", "gpu_utilization_percent", *TRAFFIC,
)  # fmt: skip

Values = Dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Position of a GPU among all, and the number of series measured before its own."""

    position: int
    gpus: int
    series: int


@dataclass(frozen=True)
class Job:
    """Settings that every step needs."""

    ffmpeg: str
    encoders: List[str]
    window_seconds: float
    clips: Optional[Path]
    capacity: bool = False


def measure(arguments: Values) -> Union[Values, Missing]:
    """arguments: quick (bool), capacity (bool), gpus (PCI device id ► the catalogue's facts), seconds (the first
    GPU's budget), path (of ffmpeg), clips (a folder that has or gets the clips), clips_only (make these
    and do nothing else).

    Values: docs/records.md, "throughput".
    """
    program = _program(arguments.get("path"))
    if isinstance(program, Missing):
        return program
    quick = bool(arguments.get("quick"))
    folder = arguments.get("clips")
    window = QUICK_WINDOW_SECONDS if quick else WINDOW_SECONDS
    capacity = bool(arguments.get("capacity"))
    ffmpeg = {"path": program.path, "version": program.version}
    job = Job(program.path, list(program.encoders), window, Path(folder) if folder else None, capacity)
    with Nvml() as nvml:
        gpus = nvml.gpus()
        if isinstance(gpus, Missing):
            return gpus
        if not gpus:
            return Missing("not_supported", "NVML counts no GPU on this machine")
        if arguments.get("clips_only"):
            return make_beforehand(_clips_of_all(job, gpus, arguments, quick), within=job.clips)
        probereports.measured_each({"quick": quick, "capacity": capacity, "ffmpeg": ffmpeg})
        measured: List[Tuple[Values, List[Values]]] = []
        for position, gpu in enumerate(gpus):
            short = quick or position > 0
            usual = CAPACITY_BUDGET_SECONDS - QUALITY_SECONDS if capacity else BUDGET_SECONDS
            budget = QUICK_BUDGET_SECONDS if short else float(arguments.get("seconds", usual))
            place = Place(position, len(gpus), sum(len(several) for _, several in measured))
            measured.append(_gpu(job, gpu, arguments, short, time.monotonic() + budget, place))
        uuid = measured[0][0]["uuid"]
        more = _more(job, uuid, [row for _, several in measured for row in several]) if capacity and uuid else {}
    return {
        "quick": quick,
        "ffmpeg": ffmpeg,
        "gpu": {key: measured[0][0][key] for key in NAMES},
        "gpus": [described for described, _ in measured],
        "series": [series for _, several in measured for series in several],
        **more,
    }


def get_ready(arguments: Values) -> None:
    _program(arguments.get("path"))


class Program(NamedTuple):
    """An FFmpeg with its encoders and version."""

    path: str
    encoders: Tuple[str, ...]
    version: OptStr


@functools.lru_cache(maxsize=1)
def _program(asked: Optional[str]) -> Union[Program, Missing]:
    path = named_ffmpeg(asked) if asked else which("ffmpeg", login_path())
    if isinstance(path, Missing):
        return path
    if path is None:
        return Missing("not_installed", "no ffmpeg on the PATH of a login shell")
    listed = run([path, "-hide_banner", "-encoders"])
    if isinstance(listed, Missing):
        return listed
    return Program(path, tuple(coders(listed)), ffmpeg_version(path))


def _more(job: Job, uuid: str, series: List[Values]) -> Values:
    """Picture quality and latency on the first GPU, for the series that succeeded."""
    done = {(row["kind"], row["codec"], row["preset"]) for row in series if row["outcome"] == "completed"}
    until = time.monotonic() + QUALITY_SECONDS
    made = {"CUDA_VISIBLE_DEVICES": uuid}
    return {
        "capacity": True,
        "latency": latency.measure(job.ffmpeg, made, done, until - QUALITY_SECONDS / 2),
        "quality": quality.measure(job.ffmpeg, job.clips, made, done, until),
    }


def _gpu(
    job: Job, gpu: Gpu, arguments: Values, short: bool, deadline: float, place: Place
) -> "tuple[Values, List[Values]]":
    """(values of the GPU, its series). A lost GPU has no series, and the reason in `error`."""
    facts = gpu.facts()
    engines = engines_from(arguments, facts.pci_device_id)
    before = gpu.load()
    described: Values = {
        **named(facts),
        "engines": {"nvenc": engines.nvenc, "nvdec": engines.nvdec},
        "max_video_clock_mhz": gpu.max_video_clock_mhz(),
        "before": {key: before[key] for key in ("encoder_utilization_percent", "decoder_utilization_percent")},
        "other_processes": other_processes(gpu),
        "memory_total_mib": facts.memory_total_mib,
        "pcie": gpu.pcie(),
        "error": None,
    }
    if not facts.uuid:
        described["error"] = f"GPU {gpu.index} has fallen off the bus: NVML gives not even its UUID"
    probereports.measured(described, "gpus", place.position)
    if described["error"]:
        return described, []
    wanted = _plan(job, short, engines)
    where = f"GPU {place.position}: " if place.gpus > 1 else ""
    probereports.tell(f"{where}making the clips")
    prepare(_clips(job, wanted), within=job.clips)
    rows: List[Values] = []
    for number, series in enumerate(wanted):
        name = " ".join(filter(None, (series.kind, series.codec, series.preset)))
        doing = functools.partial(_tell, f"{where}{name}", number, len(wanted))
        doing("")
        at = place.series + number
        rows.append(_series(job, gpu, described, series, engines, deadline, doing, at))
        probereports.measured(rows[-1], "series", at)
    return described, rows


def _plan(job: Job, short: bool, engines: Engines) -> List[Series]:
    return capacity_plan(engines) if job.capacity and not short else plan(short, engines)


def _clips(job: Job, wanted: Sequence[Series]) -> List[Tuple[str, Optional[float]]]:
    """Name and seconds of the clips that these series read."""
    return [(series.clip, _seconds(series)) for series in wanted if series.needs in ("", *job.encoders)]


def _clips_of_all(job: Job, gpus: Sequence[Gpu], arguments: Values, quick: bool) -> List[Tuple[str, Optional[float]]]:
    plans = [
        _plan(job, quick or position > 0, engines_from(arguments, gpu.facts().pci_device_id))
        for position, gpu in enumerate(gpus)
    ]
    return [name_and_seconds for wanted in plans for name_and_seconds in _clips(job, wanted)]


def _tell(series: str, number: int, of: int, more: str) -> None:
    probereports.tell(f"{series}{more}", done=number, of=of, unit="series")


def _seconds(series: Series) -> float:
    """How many seconds the clip of a series must last."""
    return LARGE_CLIP_SECONDS if series.large else CLIP_SECONDS


def _series(
    job: Job,
    gpu: Gpu,
    described: Values,
    series: Series,
    engines: Engines,
    deadline: float,
    doing: Callable[[str], None],
    at: int,
) -> Values:
    """Measure one series; `at` is its number among all series."""
    known = engines_of(series, engines)
    result: Values = {
        "gpu": {key: described[key] for key in NAMES},
        "kind": series.kind,
        "codec": series.codec,
        "preset": series.preset,
        "width": series.size[0],
        "height": series.size[1],
        "engines": known,
        "clip": Missing("not_run", "no clip was read"),
        "outcome": "not_run",
        "decisive_line": "",
        "command": "",
        "steps": [],
    }
    if series.needs and series.needs not in job.encoders:
        return {**result, "outcome": "not_built", "decisive_line": f"this ffmpeg has no encoder {series.needs}"}
    if known != 0 and time.monotonic() + START_SECONDS + job.window_seconds > deadline:
        return {**result, "outcome": "no_time", "decisive_line": "the time of this probe was used up before its turn"}
    source = clip(series.clip, _seconds(series), within=job.clips)
    if isinstance(source, Missing):
        return {**result, "decisive_line": f"no clip to work on: {source.detail}"}
    result["clip"] = _clip(source)
    argv = command(job.ffmpeg, series, source.path, source.fps)
    result["command"] = shlex.join(argv)
    probereports.measured({**result, "outcome": "interrupted"}, "series", at)
    while (count := next_sessions(result["steps"], known, series)) is not None:
        started = result["steps"][-1]["start_seconds"] if result["steps"] else START_SECONDS
        late = time.monotonic() + started + job.window_seconds > deadline
        if result["steps"] and (series.one_step or late):
            break
        doing(f", {count} at once")
        step = _step(job, gpu, described["uuid"], argv, count)
        if isinstance(step, Missing):
            return {**result, "outcome": "failed", "decisive_line": step.detail}
        result["steps"].append(step)
        probereports.measured(step, "series", at, "steps", len(result["steps"]) - 1)
    delivered = any(step["fps"] > 0 for step in result["steps"])
    result["outcome"] = "completed" if delivered else "failed"
    result["decisive_line"] = next((step["died_because"] for step in result["steps"] if step["died"]), "")
    return result


def _clip(source: Clip) -> Values:
    """Values of the clip; its bit rate shows how hard its pictures are to decode."""
    return {
        "name": source.name, "codec": source.codec, "width": source.width, "height": source.height, "fps": source.fps,
        "bit_rate_kbps": source.bit_rate_kbps,
    }  # fmt: skip


def _step(job: Job, gpu: Gpu, uuid: str, argv: List[str], count: int) -> Union[Values, Missing]:
    """Measure `count` sessions at once; Missing if FFmpeg cannot be started."""
    seen: Values = dict.fromkeys(
        SEEN,
        Missing("not_sampled", "the sessions did not all deliver at the same time"),
    )
    try:
        done = together(
            [argv] * count,
            seconds=job.window_seconds,
            environment=environment({"CUDA_VISIBLE_DEVICES": uuid}),
            during=lambda: _watching(gpu, seen),
        )
    except OSError as error:
        return Missing("command_failed", f"{argv[0]}: {error}")
    return {**_figures(done), **seen}


def _figures(done: Together) -> Values:
    steady = done.steady
    return {
        "sessions": done.sessions,
        "died": len(done.died),
        "died_because": _last_words(*done.died[0]) if done.died else "",
        "fps": round(steady.fps, 1) if steady else 0.0,
        "fps_each": [round(fps, 1) for fps in steady.fps_each] if steady else [],
        "frames": steady.frames if steady else 0,
        "seconds": round(steady.seconds, 3) if steady else 0.0,
        "start_seconds": round(done.start_seconds, 3),
    }


def _last_words(how: str, stderr: str) -> str:
    """The line that names the cause of a session's death, with how it ended if it did not end by itself."""
    line = decisive_line(stderr.splitlines())[:LAST_WORDS]
    return line if line and how.startswith(ENDED) else f"{how}: {line}" if line else how


@contextlib.contextmanager
def _watching(gpu: Gpu, seen: Values) -> Iterator[None]:
    with Sampler([gpu]) as sampler, Sampler([Traffic(gpu)], TRAFFIC_HZ) as traffic, CpuUse() as cpu:
        yield
    table = sampler.telemetry(gpu.index)
    for column in SEEN[:3]:
        seen[column] = _settled(table[column])
    seen["event_reasons"] = sampler.event_reasons(gpu.index)
    seen["power_watts"] = sampler.mean(gpu.index, "power_watts")
    seen["temperature_c"] = sampler.highest(gpu.index, "temperature_c")
    seen["cpu_percent"], seen["io_wait_percent"] = cpu.busy_percent, cpu.io_wait_percent
    seen["gpu_utilization_percent"] = _settled(table["gpu_utilization_percent"])
    seen["memory_used_mib"] = traffic.highest(gpu.index, "memory_used_mib")
    for column in TRAFFIC[1:]:
        seen[column] = traffic.mean(gpu.index, column)


class Traffic:
    """Readings that are sampled at a lower rate than the engines: memory in use and PCIe traffic."""

    def __init__(self, gpu: Gpu) -> None:
        self.index, self._gpu = gpu.index, gpu

    def load(self) -> Values:
        return self._gpu.traffic()


def _settled(column: List[Optional[float]]) -> Union[float, Missing]:
    """The median of the later half: NVML's utilisation covers up to a second before the reading."""
    readings = [value for value in column[len(column) // 2 :] if value is not None]
    return (
        statistics.median(readings) if readings else Missing("command_failed", "NVML gave no reading of it meanwhile")
    )
