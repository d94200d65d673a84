"""The transcode probe with stand-ins for FFmpeg, or a real one, and one small clip; and the parts of its proof."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fakeprograms
import pytest
from probereportsfortests import assert_same, listening

from gpuprep.agent.probes import transcode, transcodecases, transcodechunks, transcodeproof, transcoderun
from gpuprep.agent.video import clips
from gpuprep.records import Missing

TINY = {"tiny": clips.Spec("h264", 320, 192, 48, "yuv420p", clips.BARS, 440)}
ALL_PARTS: dict[str, Any] = {"encoders": ["h264_nvenc"], "decoders": ["h264"], "filters": [], "hwaccels": ["cuda"]}
HANGS = 600.0  # seconds; nothing here takes as long
COPY = transcodecases.Case(
    "copy", None, "", "", (transcodecases.Input("input.mp4", "tiny"),), "-i input.mp4 -c copy output.mp4",
    (transcodecases.Output("output.mp4", 320, 192, audio=True),), hwaccels=(), timeout_seconds=HANGS,
)  # fmt: skip
Ran = transcoderun.Ran


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one small clip."""
    monkeypatch.setattr(clips, "SPECS", TINY)
    place = tmp_path_factory.getbasetemp() / "tiny-clips"
    made = clips.clip("tiny", within=place)
    assert isinstance(made, clips.Clip), made
    return place


def stand_in(folder: Path, script: str, name: str = "ffmpeg") -> str:
    return str(fakeprograms.program(folder / name, script))


def runner(ffmpeg: str, scratch: Path, tiny: Path, ffprobe: str = "ffprobe") -> transcode.Runner:
    return transcode.Runner(ffmpeg, ffprobe, ALL_PARTS, scratch, tiny, None)


def run_with(
    tmp_path: Path, tiny: Path, script: str, case: transcodecases.Case = COPY, ffprobe: str = "exit 1"
) -> dict[str, Any]:
    programs = tmp_path / "bin"
    scratch = tmp_path / "scratch"
    programs.mkdir()
    scratch.mkdir()
    ffmpeg = stand_in(programs, script)
    runs = runner(ffmpeg, scratch, tiny, stand_in(programs, ffprobe, "ffprobe"))
    (row,) = runs.run([case])
    assert not list(scratch.iterdir())
    return row


def refusing(tmp_path: Path, tiny: Path, line: str, code: int = 218) -> tuple[list[dict[str, Any]], list[str]]:
    """(rows of six cases, how often FFmpeg was started for which encoder) with a driver that refuses with `line`."""
    programs, scratch = tmp_path / "bin", tmp_path / "scratch"
    programs.mkdir()
    scratch.mkdir()
    begun = f"for word; do case $word in *_nvenc) echo $word >> {tmp_path}/begun;; esac; done"
    script = f'{begun}; echo "{line}" >&2; exit {code}'
    parts = {**ALL_PARTS, "encoders": ["h264_nvenc", "hevc_nvenc"]}
    runs = transcode.Runner(stand_in(programs, script), "ffprobe", parts, scratch, tiny, None)
    cases = []
    for number, encoder in enumerate(("h264_nvenc", "h264_nvenc", "hevc_nvenc", "hevc_nvenc", "h264_nvenc")):
        arguments = f"-i input.mp4 -c:v {encoder} output.mp4"
        cases.append(dataclasses.replace(COPY, id=f"case{number}", arguments=arguments, encoders=(encoder,)))
    with listening() as told:
        rows = runs.run([*cases, COPY])
    assert_same(told, {"cases": rows}, "cases")
    return rows, (tmp_path / "begun").read_text().split()


def at_work(runs: transcode.Runner) -> int:
    """How many programs run now, and end with the probe."""
    return len(runs._running)


def command(case: transcodecases.Case) -> list[str]:
    return transcoderun.command(case)


def execute(argv: Sequence[str], folder: Path, extra: dict[str, str] | None = None) -> transcoderun.Ran:
    return transcoderun.execute(argv, folder, HANGS, extra or {})


def laid_out(ffmpeg: str, folder: Path, kept: Path) -> Any:
    """The inputs of COPY in `folder`, or why there are none."""
    return transcoderun.lay_out(ffmpeg, COPY, folder, kept)


def kept_lines(said: bytes) -> tuple[list[str], int]:
    """(the lines of FFmpeg that are kept, how many bytes may be)."""
    return transcoderun._lines(said), transcoderun.KEPT_BYTES


def guides_environment() -> dict[str, str]:
    return transcodechunks.GUIDE


def chunked(tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch, script: str, *rows: Any) -> Any:
    """The guide's chapter 6.2 with a stand-in, after these rows of cases."""
    monkeypatch.setattr(transcodechunks, "CHUNK", "tiny")
    parts = {**ALL_PARTS, "filters": ["scale_cuda"]}
    return transcodechunks.chunks(stand_in(tmp_path, script), parts, rows, tmp_path, tiny)


def room(monkeypatch: pytest.MonkeyPatch, mib: int) -> None:
    """So much room for temporary files is needed."""
    monkeypatch.setattr(transcode, "ROOM_MIB", mib)


# ---------------------------------------------------------------- the proof


def pictures(folder: Path, tiny: Path, make: str) -> dict[str, Any]:
    """Proof of what a real FFmpeg made of the small clip with the options `make`."""
    ffmpeg = clips.programs()[0]
    found = laid_out(ffmpeg, folder, tiny)
    assert isinstance(found, dict)
    argv = [ffmpeg, "-nostdin", "-y", "-i", "input.mp4", *shlex.split(make), "output.mp4"]
    ran = execute(argv, folder)
    assert ran.outcome == "completed", ran.lines
    # imageio-ffmpeg has no ffprobe: the size is what the case says
    seen = {"width": 320, "height": 192, "pixel_format": "yuv420p"}
    return transcodeproof._pictures(ffmpeg, COPY, COPY.outputs[0], folder, 48, seen)


def ffprobe_said(text: str) -> dict[str, Any]:
    return transcodeproof.parse_probe(text)


def ffmpeg_wrote(file: str, lines: list[str]) -> Any:
    """What FFmpeg said of a raw file that it wrote."""
    return transcodeproof.written_as(file, lines)


def filters_said(lines: list[str], seconds: float) -> dict[str, Any]:
    """What FFmpeg's filters measured in one pass over the pictures."""
    return transcodeproof.parse_pictures(lines, seconds)


def expected(case: transcodecases.Case, output: int, **inputs: clips.Clip) -> dict[str, Any]:
    """What the output of that number must be, from clips by the names of their files, less the ending."""
    ending = {item.file.partition(".")[0]: item.file for item in case.inputs}
    given = {ending[name]: clip for name, clip in inputs.items()}
    return transcodeproof.expected(case.outputs[output], case, given)


def thumbnail(path: Path) -> str | Missing:
    return transcodeproof.thumbnail(path)
