"""ffmpeg of a simulated machine: the words of a command go in, what it says and its exit code come out.

What does the work in software there, and ffprobe, are programs of the test. `planned` tells without a machine what
becomes of a command.
"""

from __future__ import annotations

import json
import shlex
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import fakeprograms
import pytest

from gpuprep.agent.gpu import simstate
from gpuprep.agent.probes import transcodecases
from gpuprep.sim import driver, gpus, nvmlstate
from gpuprep.sim.guest import commandline, ffmpeg, machine, mapping, pace
from gpuprep.sim.guest.mapping import Media as Media
from gpuprep.sim.guest.mapping import Plan

HD = Media("h264", "yuv420p", 1920, 1080, 30.0, 96)
HEVC10 = Media("hevc", "yuv420p10le", 1920, 1080)
# Every model that has video engines.
SIMULATED = [key for key, model in gpus.models().items() if not model.is_switch]
LIBRARIES = ("libcuda.so.1", "libnvcuvid.so.1", "libnvidia-encode.so.1")


def planned(words: str, *media: Media) -> Plan:
    command = commandline.parse(shlex.split(words))
    return mapping.plan(command, media or [HD] * len(command.inputs))


def boot(folder: Path, key: str, version: str = "550.163.01", **values: object) -> Path:
    """The state of a machine with one GPU and this driver."""
    devices = gpus.devices("test", [key])
    loaded = driver.Loaded(version, False, tuple(device.bus_id for device in devices), {})
    nvmlstate.write_boot(folder, loaded, devices)
    with nvmlstate.changed(folder) as state:
        state["gpu.0"].update({name: str(value) for name, value in values.items()})
    return folder


def loads(folder: Path) -> list[dict[str, str]]:
    """What works on the GPU."""
    return simstate.loads(0, folder)


def libraries(monkeypatch: pytest.MonkeyPatch, folder: Path, *names: str) -> None:
    """Those of the driver that the loader's list has."""
    rows = "".join(f"\t{name} (libc6,x86-64) => /usr/lib/{name}\n" for name in names)
    ldconfig = fakeprograms.program(folder / "bin" / "ldconfig", f"cat <<'END'\n{rows}END")
    monkeypatch.setattr(machine, "LDCONFIG", str(ldconfig))


def software(monkeypatch: pytest.MonkeyPatch, program: Path) -> None:
    """What encodes in software."""
    monkeypatch.setattr(machine, "SOFTWARE", ((str(program.parent), program.name),))


def run(folder: Path, *words: str, real: str = "/opt/gpuprep/ffmpeg/current/bin/ffmpeg") -> int:
    """Its exit code. It takes the signals of this process, which are as before afterwards."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)}
    try:
        return ffmpeg.main([real, *words], folder)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True)
class Ran:
    """The exit code of a command, what it said, and the words of the software ffmpeg ("" where it was not started)."""

    code: int
    said: str
    software: str


class StandIn:
    """ffmpeg of a machine whose encodes are done by a program of the test: it notes its words and says `says`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self._folder, self._capfd, self._monkeypatch = folder, capfd, monkeypatch
        self.says, self._noted = folder / "says", folder / "words"
        self.says.touch()
        self.libraries(*LIBRARIES)
        self.software(f"cat {self.says} >&2")
        # It answers by the name of the input, its last word.
        probe = f'for word; do last=$word; done\ncat "{folder}/media/${{last##*/}}.json"'
        fakeprograms.program(folder / "build/bin/ffprobe", probe)
        (folder / "media").mkdir()
        self.state = folder / "nvml"

    def libraries(self, *names: str) -> None:
        libraries(self._monkeypatch, self._folder, *names)

    def software(self, script: str) -> None:
        noted = f"printf '%s\\n' \"$@\" >{self._noted}\n{script}"
        software(self._monkeypatch, fakeprograms.program(self._folder / "software/ffmpeg", noted))

    def build(self, **manifest: object) -> None:
        """What the called ffmpeg's manifest says."""
        (self._folder / "build/manifest.json").write_text(json.dumps(manifest))

    def __call__(self, key: str, words: str, *media: Media, version: str = "550.163.01", **values: object) -> Ran:
        """On a machine with this GPU and driver. `media` are the videos of the inputs, each HD unless given."""
        self.boot(key, version, **values)
        return self.again(words, *media)

    def boot(self, key: str, version: str = "550.163.01", **values: object) -> None:
        boot(self.state, key, version, **values)

    def change(self, section: str, **values: object) -> None:
        """Of NVML's state: `system`, or `gpu.0`."""
        with nvmlstate.changed(self.state) as state:
            state[section].update({name: str(value) for name, value in values.items()})

    def load(self, **values: int) -> AbstractContextManager[object]:
        """Work of another program on the GPU."""
        return simstate.load(0, values, self.state)

    def loads(self) -> list[dict[str, str]]:
        return loads(self.state)

    def again(self, words: str, *media: Media) -> Ran:
        """On the same machine, as it is."""
        given = shlex.split(words)
        inputs = [after for word, after in pairwise(given) if word == "-i"]
        for name, one in zip(inputs, media or [HD] * len(inputs), strict=True):
            stream = {
                "codec_name": one.codec, "pix_fmt": one.pixel_format, "width": one.width, "height": one.height,
                "r_frame_rate": f"{one.fps:.0f}/1", "nb_frames": one.frames, "profile": one.profile,
            }  # fmt: skip
            (self._folder / "media" / f"{Path(name).name}.json").write_text(json.dumps({"streams": [stream]}))
        self._noted.unlink(missing_ok=True)
        code = run(self.state, *given, real=str(self._folder / "build/bin/ffmpeg"))
        noted = self._noted.read_text().splitlines() if self._noted.exists() else []
        return Ran(code, self._capfd.readouterr().err, " ".join(noted))


@dataclass(frozen=True)
class Transcode:
    """A command of the probe `transcode`, with the videos of its inputs and what it needs of the GPU."""

    id: str
    words: str
    media: tuple[Media, ...]
    encoders: list[str]
    decodes: bool


def transcodes() -> Iterator[Transcode]:
    """Every command that `gpuprep validate` runs to prove the GPU's video engines."""
    for case in transcodecases.CASES:
        media = []
        for item in (item for item in case.inputs if f"-i {item.file}" in case.arguments):
            codec = item.clip.partition("-")[0]
            if item.kind == "raw":
                media.append(Media("rawvideo", item.pixel_format, item.width, item.height))
            else:
                pixels = "yuv420p10le" if "10" in codec else "yuv420p"
                media.append(Media(codec.removesuffix("10"), pixels, 1920, 1080))
        encoders = [name for name in case.encoders for output in case.outputs if output.codec != "rawvideo"]
        decodes = any(capability.startswith("nvdec.") for capability in case.capabilities)
        words = shlex.join([*transcodecases.PREFIX, *shlex.split(case.arguments)])
        yield Transcode(case.id, words, tuple(media), encoders, decodes)


@dataclass(frozen=True)
class Speed:
    """Frames a second of a session, and its percent of the GPU's engines of each kind."""

    fps: float
    decoder: float
    encoder: float


def speed(key: str, clock_mhz: int, decoding: int, encoding: int, **work: str | float) -> Speed:
    """Of a session with this work, where so many sessions decode and encode, it among them."""
    video = gpus.models()[key].data["performance"]["video"]
    found = pace.rate(pace.Work(**work), video, clock_mhz, decoding, encoding)  # type: ignore[arg-type]
    return Speed(found.fps, found.decoder_percent, found.encoder_percent)
