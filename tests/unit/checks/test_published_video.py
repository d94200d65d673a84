"""Video figures that others published, judged: no healthy one fails, and at half its speed none passes.

NVIDIA's tables are of one engine at a clock of the table; a board gives as much with all engines at its own clock.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
from places import TESTS
from throughputrecords import judged_values

from gpuprep import catalogue, records
from gpuprep.desired import profile

yaml = pytest.importorskip("yaml")
PUBLISHED = TESTS / "cases/published/other.yml"
VIDEO = [one for one in yaml.load(PUBLISHED.read_text(), Loader=yaml.CSafeLoader) if one["kind"] == "video"]
FAMILY = {"Turing": "7.5", "Ampere": "8.6", "Ada": "8.9", "Blackwell": "12.0"}
# The clocks with NVIDIA's tables: of decoders and of encoders.
CLOCKS = {"7.5": (1860, 1950), "8.6": (1665, 1950), "8.9": (2160, 2415), "12.0": (2362, None)}
FFMPEG = {"vp9": 0.8}  # what of a rate comes through FFmpeg
ENGINE = re.compile(r"(?P<family>\w+)(?: GA10x)? NV(?P<chip>DEC|ENC) engine")
WORK = re.compile(r"(?:(?P<codec>h264|hevc main10|hevc|vp9|av1) decode|encode (?P<encoded>h264|hevc) (?P<preset>P\d))")
SHIPPED = {"engine_percent_of_rate": profile.Threshold(70, shipped=True)}
ENGINES = [one for one in VIDEO if ENGINE.match(one.get("name", ""))]
BOARDS = [one for one in VIDEO if "board" in one]


def test_each_figure_is_one_of_an_engine_or_of_a_board_or_only_read() -> None:
    assert (len(VIDEO), len(ENGINES), len(BOARDS)) == (42, 31, 5)
    rest = [one for one in VIDEO if one not in ENGINES and one not in BOARDS]
    # No board of the catalogue: nobody read which.
    assert all(one["name"].startswith(("GTX 1050", "GPU ", "RTX 50 series")) for one in rest)


def published(board: catalogue.Board, kind: str, codec: str, preset: str, **step: Any) -> records.Finding:
    series = {"kind": kind, "codec": codec, "preset": preset or None, "outcome": "completed", "steps": [step]}
    gpu = {"index": 0, "pci_device_id": board.pci_device_ids[0], "pci_subsystem_id": (*board.subsystem_ids, "")[0]}
    found = judged_values({"published": "a page", "gpus": [gpu], "series": [series]}, SHIPPED)
    return found[" ".join(filter(None, ("throughput", kind, codec, preset))) + ".fps"]


def of_engine(figure: dict[str, Any]) -> tuple[str, str, str, str]:
    engine, work = ENGINE.match(figure["name"]), WORK.search(figure["what"])
    assert engine
    assert work
    kind = "decode" if engine["chip"] == "DEC" else "encode"
    codec = (work["codec"] or work["encoded"]).replace("hevc main10", "hevc10")
    return FAMILY[engine["family"]], kind, codec, (work["preset"] or "").lower()


@pytest.mark.parametrize("figure", ENGINES, ids=lambda one: f"{one['name']} {one['what'][:24]}")
def test_a_figure_of_one_engine_on_every_board_that_has_it(figure: dict[str, Any]) -> None:
    capability, kind, codec, preset = of_engine(figure)
    clock = CLOCKS[capability][kind == "encode"]
    for board in catalogue.boards().values():
        count = board.model.nvdec_engines if kind == "decode" else board.model.nvenc_engines
        if board.model.compute_capability != capability or not count or not board.video_mhz:
            continue
        busy = {"decoder_utilization_percent" if kind == "decode" else "encoder_utilization_percent": 99}
        if clock is None:  # NVIDIA gives no clock with it
            finding = published(board, kind, codec, preset, sessions=2 * count, fps=figure["value"], **busy)
            assert finding.status is records.Status.SKIP
            continue
        fps = FFMPEG.get(codec, 1.0) * figure["value"] * count * board.video_mhz / clock
        sound = {"sessions": 2 * count, "fps": fps, **busy}
        finding = published(board, kind, codec, preset, **sound)
        assert (finding.status, ", 100 %" in finding.actual) == (records.Status.PASS, True), (board.key, finding.actual)
        half = published(board, kind, codec, preset, **{**sound, "fps": fps / 2}).status
        assert half in (records.Status.FAIL, records.Status.WARN), board.key
        four_times = published(board, kind, codec, preset, **{**sound, "fps": 4 * fps})
        assert four_times.status is records.Status.UNKNOWN, board.key


def of_board(figure: dict[str, Any]) -> tuple[str, str, str, dict[str, Any]]:
    """The series that was published; 4K counts as four pictures of 1080p."""
    what, fps = str(figure["what"]), float(figure["value"])
    if figure["unit"] == "s":
        fps = int(re.findall(r"(\d+) frames", what)[0]) / fps
    sessions = 2 if "two sessions" in what else 1
    encoded = re.search(r"encode (\w+) 4K (P\d)", what)
    step = {"sessions": sessions, "fps": fps * sessions * (4 if encoded else 1)}
    return ("encode", encoded[1], encoded[2].lower(), step) if encoded else ("decode", "h264", "", step)


@pytest.mark.parametrize("figure", BOARDS, ids=lambda one: f"{one['board']} {one['what'][:24]}")
def test_a_healthy_board_never_fails(figure: dict[str, Any]) -> None:
    board = catalogue.boards()[figure["board"]]
    kind, codec, preset, step = of_board(figure)
    assert figure["state"] == "healthy"
    assert published(board, kind, codec, preset, **step).status in (records.Status.PASS, records.Status.UNKNOWN)
    impossible = published(board, kind, codec, preset, **{**step, "fps": 20 * step["fps"]})
    assert impossible.status is records.Status.UNKNOWN
