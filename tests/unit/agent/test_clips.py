"""Clips are made by a real FFmpeg, once, and whole or not at all."""

from __future__ import annotations

import dataclasses
import itertools
import os
import shutil
import subprocess
import threading
from pathlib import Path

import fakeprograms
import pytest

from gpuprep import records
from gpuprep.agent.video import clips

ALL = clips.SPECS
TINY = {
    "tiny": clips.Spec("h264", 320, 192, 24, "yuv420p", clips.BARS, 440),
    "tiny10": clips.Spec("hevc", 320, 192, 24, "yuv420p10le", clips.BARS, 440),
}


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clips, "SPECS", TINY)


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both short clips."""
    place = tmp_path_factory.mktemp("clips")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clips, "SPECS", TINY)
        for name in TINY:
            assert isinstance(clips.clip(name, within=place), clips.Clip)
    return place


@pytest.fixture
def short(made_once: Path, tmp_path: Path) -> Path:
    """A folder with both short clips."""
    return Path(shutil.copytree(made_once, tmp_path / "made"))


def packets(path: Path) -> list[list[str]]:
    """stream, dts, pts, duration, size, checksum of every packet of the pictures."""
    argv = [clips.programs()[0], "-v", "error", "-i", str(path), "-map", "0:v", "-c", "copy", "-f", "framecrc", "-"]
    text = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    return [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line[:1].isdigit()]


def test_a_clip_is_made_once(tmp_path: Path) -> None:
    made = clips.clip("tiny", within=tmp_path)
    assert isinstance(made, clips.Clip), made
    assert (made.width, made.frames, made.seconds, made.audio) == (320, 24, 0.8, "aac")
    assert len(packets(made.path)) == 24
    first = made.path.stat().st_ino
    again = clips.clip("tiny", within=tmp_path)
    assert isinstance(again, clips.Clip)
    assert again.path.stat().st_ino == first
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.mp4"]


def test_a_clip_says_how_many_bits_it_has(short: Path) -> None:
    made = clips.clip("tiny", within=short)
    assert isinstance(made, clips.Clip)
    assert made.bit_rate_kbps == round(made.path.stat().st_size * 8 / 1000 / 0.8)
    made.path.write_bytes(b"")
    assert isinstance(made.bit_rate_kbps, records.Missing)
    made.path.unlink()
    assert isinstance(made.bit_rate_kbps, records.Missing)


@pytest.mark.only_all
def test_the_noisy_clip_has_more_bits_than_the_light_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both as the throughput probe has them, in small."""
    rates = {}
    for name in ("h264-1080p", "h264-1080p-noisy"):
        spec = ALL[name]
        rate, most, buffer = spec.kbps // 4, spec.most_kbps // 4, spec.buffer_kbit // 4
        small = dataclasses.replace(spec, width=960, height=544, kbps=rate, most_kbps=most, buffer_kbit=buffer)
        monkeypatch.setattr(clips, "SPECS", {name: small})
        made = clips.clip(name, within=tmp_path)
        assert isinstance(made, clips.Clip), made
        assert isinstance(made.bit_rate_kbps, int)
        rates[name] = made.bit_rate_kbps - 96  # its sound
    assert 1000 <= rates["h264-1080p"] <= 1750
    assert 1600 <= rates["h264-1080p-noisy"] <= 2800
    assert rates["h264-1080p-noisy"] > 1.3 * rates["h264-1080p"]


@pytest.mark.parametrize("name", ["tiny", "tiny10"])
def test_a_long_clip_is_the_short_one_again_and_again(short: Path, name: str) -> None:
    made = clips.clip(name, 4.0, within=short)
    assert isinstance(made, clips.Clip), made
    assert (made.frames, made.seconds) == (120, 4.0)
    rows = packets(made.path)
    assert len(rows) == 120
    times = [int(row[1]) for row in rows]
    assert times == sorted(set(times))
    assert [row[5] for row in rows[1:24]] == [row[5] for row in rows[25:48]]  # copied, not encoded anew
    assert sorted(path.name for path in short.iterdir()) == sorted([f"{name}-x5.mp4", "tiny.mp4", "tiny10.mp4"])


def test_a_very_long_clip_is_joined_from_long_pieces(short: Path) -> None:
    made = clips.clip("tiny", 12.0, within=short)
    assert isinstance(made, clips.Clip), made
    assert (made.frames, made.seconds) == (16 * 24, 12.8)
    rows = packets(made.path)
    assert len(rows) == made.frames
    times = [int(row[1]) for row in rows]
    assert {later - earlier for earlier, later in itertools.pairwise(times)} == {times[1] - times[0]}
    for begin in range(24, made.frames, 24):
        assert [row[5] for row in rows[begin + 1 : begin + 24]] == [row[5] for row in rows[1:24]]
    assert sorted(path.name for path in short.iterdir()) == ["tiny-x16.mp4", "tiny-x8.mp4", "tiny.mp4", "tiny10.mp4"]


def test_several_are_prepared_side_by_side_and_what_fails_is_told_later(tmp_path: Path) -> None:
    wanted = [("tiny", None), ("tiny10", 4.0), ("tiny", 12.0), ("tiny10", 4.0)]
    clips.prepare(wanted, within=tmp_path)
    made = sorted(path.name for path in tmp_path.iterdir())
    assert made == ["tiny-x16.mp4", "tiny-x8.mp4", "tiny.mp4", "tiny10-x5.mp4", "tiny10.mp4"]
    (tmp_path / "file").touch()
    clips.prepare(wanted, within=tmp_path / "file" / "no folder")
    assert isinstance(clips.clip("tiny", within=tmp_path / "file" / "no folder"), records.Missing)


def stand_in(folder: Path, script: str) -> Path:
    program = folder / "ffmpeg"
    program.write_text(f"#!/bin/sh\ncase \"$*\" in *-encoders*) echo ' V....D libx264   x'; exit 0;; esac\n{script}\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("script", "words"),
    [
        (
            "for last; do :; done; echo half > $last; echo 'No space left on device' >&2; exit 1",
            "No space left on device",
        ),
        ("exit 0", "wrote nothing"),
        ("kill -9 $$", "exit code -9"),
    ],
)
def test_half_a_clip_is_never_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: str) -> None:
    program = stand_in(tmp_path, script)
    fakeprograms.encoders(monkeypatch, tmp_path, program)
    place = tmp_path / "clips"
    made = clips.clip("tiny", within=place)
    assert isinstance(made, records.Missing)
    assert words in made.detail
    assert not list(place.iterdir())


def test_without_an_encoder_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fakeprograms.encoders(monkeypatch, tmp_path / "home")
    for seconds in (None, 10.0):
        made = clips.clip("tiny", seconds, within=tmp_path)
        assert isinstance(made, records.Missing)
        assert made.reason == "not_installed"
        assert "imageio-ffmpeg" in made.detail


def test_what_failed_is_not_tried_for_each_case_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = tmp_path / "tried"
    program = stand_in(tmp_path, f"echo x >> {tried}; echo 'No capable devices found' >&2; exit 1")
    fakeprograms.encoders(monkeypatch, tmp_path / "home", program)
    place = tmp_path / "clips"
    first = clips.clip("tiny", within=place)
    assert isinstance(first, records.Missing)
    assert clips.clip("tiny", within=place) == first
    assert clips.clip("tiny", 4.0, within=place) == first
    assert tried.read_text() == "x\n"


def test_the_next_encoder_is_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = stand_in(tmp_path, "exit 1")
    real = tmp_path / "real" / "ffmpeg"
    real.parent.mkdir()
    real.symlink_to(clips.programs()[0])
    fakeprograms.encoders(monkeypatch, tmp_path / "home", broken, real)
    assert isinstance(clips.clip("tiny", within=tmp_path / "clips"), clips.Clip)


def test_long_clips_that_nobody_uses_make_room(short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clips, "LIMIT_BYTES", 1)
    assert isinstance(clips.clip("tiny", 3.0, within=short), clips.Clip)
    assert isinstance(clips.clip("tiny", 4.0, within=short), clips.Clip)
    assert sorted(path.name for path in short.iterdir()) == ["tiny-x5.mp4", "tiny.mp4", "tiny10.mp4"]


def test_a_folder_that_cannot_be_written_to_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    made = clips.clip("tiny", within=tmp_path / "file" / "clips")
    assert isinstance(made, records.Missing)
    assert "file" in made.detail


def test_a_cache_folder_with_an_apostrophe(short: Path) -> None:
    mine = short.rename(short.parent / "it's mine")
    assert isinstance(clips.clip("tiny", 3.0, within=mine), clips.Clip)


def test_the_installed_agents_encoder_is_found_by_an_agent_that_was_sent_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "python3.11/site-packages/imageio_ffmpeg/binaries"
    place.mkdir(parents=True)
    program = stand_in(place, "exit 0").rename(place / "ffmpeg-linux-x86_64-v7")
    (place / "ffmpeg-readme").write_text("no program")
    monkeypatch.setattr(clips, "AGENT", tmp_path)
    assert str(program) in clips.programs()
    assert not any("readme" in path for path in clips.programs())


def test_beforehand_clips_are_made_by_processors_that_nobody_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nice: list[int] = []
    made: list[tuple[str, float | None]] = []
    monkeypatch.setattr(os, "nice", nice.append)
    monkeypatch.setattr(clips, "prepare", lambda wanted, within: made.extend(wanted))  # noqa: ARG005
    wanted: list[tuple[str, float | None]] = [("tiny", None), ("tiny10", 3.0)]
    monkeypatch.setattr(os, "cpu_count", lambda: clips.CORES - 1)
    assert clips.make_beforehand(wanted, within=tmp_path) == {"clips": 0}
    assert (nice, made) == ([], [])
    monkeypatch.setattr(os, "cpu_count", lambda: clips.CORES)
    assert clips.make_beforehand(wanted, within=tmp_path) == {"clips": 2}
    assert (nice, made) == ([19], wanted)
    # An encoder of the GPU would disturb what is measured on it.
    ffmpeg = fakeprograms.program(tmp_path / "bin" / "ffmpeg", "echo ' V....D libx264 x'; echo ' V....D hevc_nvenc x'")
    fakeprograms.encoders(monkeypatch, tmp_path, ffmpeg)
    made.clear()
    assert clips.make_beforehand(wanted, within=tmp_path) == {"clips": 1}
    assert made == [("tiny", None)]


def test_one_clip_that_two_want_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generate, begun = clips._generate, threading.Barrier(2, timeout=300)
    count: list[str] = []

    def counted(spec: clips.Spec, path: Path) -> records.Missing | None:
        count.append(path.name)
        return generate(spec, path)

    def want() -> None:
        begun.wait()
        found.append(clips.clip("tiny", within=tmp_path))

    found: list[clips.Clip | records.Missing] = []
    monkeypatch.setattr(clips, "_generate", counted)
    threads = [threading.Thread(target=want) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count == ["tiny.mp4"]
    assert [type(one) for one in found] == [clips.Clip, clips.Clip]
