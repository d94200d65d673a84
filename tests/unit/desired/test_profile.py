"""Profiles: what the shipped ones say, how they are found, and how they extend each other."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest
from profiletext import problems, write

from gpuprep import errors, records
from gpuprep.desired import loading, profile

SHIPPED = ("a100", "a10g", "base", "h100", "h200", "l4", "t4", "v100", "video")


@pytest.fixture(autouse=True)
def _own_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


# ---------------------------------------------------------------- what is shipped


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_profiles_load(name: str) -> None:
    wish = loading.load(name)
    assert wish.name == name
    assert Path(wish.path).name == f"{name}.yml"
    assert wish.cudnn.version == "auto"
    assert (wish.codec.ffmpeg, wish.codec.headers) == ("7.1.5", "12.1.14.0")
    assert wish.tuning.profiling_counters == "open"
    assert (wish.driver.hold, wish.cuda.hold, wish.containers.hold) == (True, True, True), "an upgrade splits them"
    assert wish.drift.at == "02:30"


def test_the_models_have_their_own_thresholds() -> None:
    assert loading.load("t4").thresholds["fp16_percent_of_peak"].percent == 30
    assert loading.load("v100").thresholds["fp16_percent_of_peak"].percent == 65
    assert loading.load("a100").thresholds["fp64_tensor_percent_of_peak"] == profile.Threshold(
        87, "SuperBench", shipped=True
    )


def test_a_floor_of_ones_own_does_not_borrow_the_source(tmp_path: Path) -> None:
    own = loading.load(write(tmp_path, "extends: a100\nthresholds: {fp16_percent_of_peak: 80}\n"))
    assert own.thresholds["fp16_percent_of_peak"] == profile.Threshold(80)


def test_shapes_of_matrix_products_are_numbers(tmp_path: Path) -> None:
    own = loading.load(write(tmp_path, "extends: t4\nprobes: {gemm: {main_dtype: fp16, shapes: [4096x2048x1024]}}\n"))
    assert (own.probes.gemm.main_dtype, own.probes.gemm.shapes) == ("fp16", ((4096, 2048, 1024),))
    assert [loading.load(n).gpus for n in ("t4", "v100", "a100")] == [("t4",), ("v100",), ("a100",)]


def test_shipped_is_what_can_be_named() -> None:
    assert tuple(loading.available()) == SHIPPED


def test_every_field_of_a_profile_has_its_type() -> None:
    wish = loading.load("t4")
    assert isinstance(wish.codec.parts["encoders"], tuple)
    assert "h264_nvenc" in wish.codec.parts["encoders"]
    assert wish.tuning.clocks == "max"
    assert wish.extras.mount is None
    hash(wish.driver)  # frozen


# ---------------------------------------------------------------- names and paths


def test_unknown_name_says_what_exists() -> None:
    known = "a100, a10g, base, h100, h200, l4, t4, v100"
    with pytest.raises(errors.UsageError, match=rf"no profile 't44' \(did you mean t4\?\); profiles: {known}"):
        loading.load("t44")


def test_own_profile_by_name(tmp_path: Path) -> None:
    write(tmp_path / "config/gpuprep/profiles", "extends: t4\ndescription: mine\n", "lab.yml")
    assert loading.load("lab").description == "mine"
    assert "lab" in loading.available()


def test_shipped_name_wins_over_own(tmp_path: Path) -> None:
    write(tmp_path / "config/gpuprep/profiles", "extends: a100\n", "t4.yml")
    assert loading.load("t4").gpus == ("t4",)


@pytest.mark.parametrize("name", ["./none.yml", "none.yaml", "no/such"])
def test_missing_file_is_a_named_line(name: str) -> None:
    assert problems(name) == ["1: file: does not exist"]


def test_directory(tmp_path: Path) -> None:
    with pytest.raises(errors.ProfileError, match="is a directory"):
        loading.load(str(tmp_path))


def test_fifo_is_not_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "pipe.yml"
    os.mkfifo(path)
    assert problems(str(path)) == ["1: file: is not a regular file"]


def test_nul_in_a_path() -> None:
    with pytest.raises(errors.ProfileError, match=r"1: file: "):
        loading.load("./a\0b.yml")


# ---------------------------------------------------------------- extends


def test_mappings_merge_and_lists_replace(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "extends: t4\nextras:\n  tools: [git]\ntuning:\n  clocks: {memory_mhz: 5001, graphics_mhz: 1590}\n",
    )
    wish = loading.load(path)
    assert wish.extras.tools == ("git",)
    assert wish.extras.framework == "none"
    assert wish.tuning.clocks == records.ClockPair(5001, 1590)
    assert wish.tuning.persistence is True
    assert wish.name == "mine"


def test_extends_a_path_beside_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "extends: t4\ntuning: {ecc: disabled}\n", "site/common.yml")
    path = write(tmp_path, "extends: ../site/common.yml\ndescription: x\n", "team/mine.yml")
    monkeypatch.chdir("/")
    assert loading.load(path).tuning.ecc == "disabled"


def test_problem_in_a_parent_names_the_parent(tmp_path: Path) -> None:
    parent = write(tmp_path, "extends: t4\n\ntuning: {ecc: maybe}\n", "parent.yml")
    path = write(tmp_path, "extends: ./parent.yml\ncuda: {hold: 1}\n")
    assert [line.split(": is ")[0] for line in problems(path)] == ["2: cuda.hold", f"{parent}:3: tuning.ecc"]


def test_a_child_does_not_hide_what_is_wrong_in_its_parent(tmp_path: Path) -> None:
    parent = write(tmp_path, "extends: t4\ntuning: {ecc: maybe}\n", "parent.yml")
    path = write(tmp_path, "extends: ./parent.yml\ntuning: {ecc: enabled}\n")
    assert problems(path)[0].startswith(f"{parent}:2: tuning.ecc: ")


def test_circle(tmp_path: Path) -> None:
    b = write(tmp_path, "extends: ./a.yml\n", "b.yml")
    a = write(tmp_path, "# first\nextends: ./b.yml\n", "a.yml")
    assert problems(a) == [f"{b}:1: extends: goes in a circle: a.yml ► b.yml ► a.yml"]


def test_circle_of_one(tmp_path: Path) -> None:
    assert problems(write(tmp_path, "extends: ./mine.yml\n")) == ["1: extends: goes in a circle: mine.yml ► mine.yml"]


@pytest.mark.parametrize(
    ("wish", "what"),
    [
        ("nope", "there is no profile 'nope'; profiles: a100, a10g, base, h100, h200, l4, t4, v100"),
        ("./nope.yml", "there is no file"),
        ("'a\\0'", "there is no profile"),
        ('"./a\\0b"', "holds the character U+0000, which is not text"),
        ("./" + "x" * 5000, "cannot be read: "),
        ("[t4]", "is a list; allowed: the name of a profile, or a path relative to this file"),
        ("''", "is empty; allowed: the name of a profile, or a path relative to this file"),
        ("4", "is the number 4; allowed: the name of a profile"),
    ],
)
def test_extends_that_cannot_be(tmp_path: Path, wish: str, what: str) -> None:
    found = problems(write(tmp_path, f"description: x\nextends: {wish}\n"))
    assert [line for line in found if line.startswith(f"2: extends: {what}")] == found


def test_missing_keys_are_one_line_each(tmp_path: Path) -> None:
    found = problems(write(tmp_path, "driver: {source: distribution}\n"))
    assert {line.split(": ")[1] for line in found} == {
        *(
            "description",
            "gpus",
            "cuda",
            "cudnn",
            "codec",
            "tuning",
            "extras",
            "probes",
            "thresholds",
            "drift",
            "waivers",
        ),
        *("driver.version", "driver.flavour", "driver.hold", "driver.gpu_firmware"),
    }
    assert "1: driver.flavour: missing here and in what this extends; allowed: auto, open, proprietary" in found


def test_half_a_clock_pair_over_a_word_is_incomplete(tmp_path: Path) -> None:
    assert problems(write(tmp_path, "extends: t4\ntuning:\n  clocks:\n    memory_mhz: 5001\n")) == [
        "3: tuning.clocks.graphics_mhz: missing here and in what this extends; allowed: a whole number from 100 to 5000"
    ]


def test_a_self_contained_profile_needs_no_parent(tmp_path: Path) -> None:
    path = write(tmp_path, json.dumps(loading.document("t4"), indent=1))  # JSON is YAML
    assert loading.document(path) == loading.document("t4")
    assert loading.load(path).sha256 == loading.load("t4").sha256


# ---------------------------------------------------------------- the hash of the content


def test_sha256_is_of_the_resolved_content(tmp_path: Path) -> None:
    canonical = json.dumps(loading.document("t4"), sort_keys=True, separators=(",", ":"))
    assert loading.load("t4").sha256 == hashlib.sha256(canonical.encode()).hexdigest()
    same = loading.load(write(tmp_path, "extends: t4\n# a comment\n"))
    other = loading.load(write(tmp_path, "extends: t4\ntuning: {ecc: disabled}\n"))
    assert same.sha256 == loading.load("t4").sha256 != other.sha256
