"""The catalogue's facts hold together, and say what NVIDIA's documents say."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from builders import shipped
from places import COLLECTION

from gpuprep import catalogue

NO_VIDEO = ("p100", "b200", "gb200", "b300")  # nobody read what their engines can do
ROLES = COLLECTION / "roles"


@pytest.mark.parametrize(
    ("device_id", "name", "clocks"),
    [
        ("1eb8", "T4", (5001, 1590)),
        ("1db1", "V100 SXM2 16 GB", (877, 1530)),
        ("1db5", "V100 SXM2 32 GB", (877, 1530)),
        ("1db4", "V100 PCIe 16 GB", (877, 1380)),
        ("1db6", "V100 PCIe 32 GB", (877, 1380)),
        ("1df6", "V100S PCIe 32 GB", (1107, 1597)),
        ("20b0", "A100 SXM4 40 GB", (1215, 1410)),
        ("20f1", "A100 PCIe 40 GB", (1215, 1410)),
        ("20b2", "A100 SXM4 80 GB", (1593, 1410)),
        ("20b5", "A100 PCIe 80 GB", (1512, 1410)),
        ("2335", "H200 SXM 141 GB", (3201, 1980)),
    ],
)
def test_every_variant_has_its_clocks(device_id: str, name: str, clocks: tuple[int, int]) -> None:
    gpu = catalogue.board(device_id.upper())
    assert gpu is not None
    assert gpu.name == name
    assert gpu.clocks is not None
    assert (gpu.clocks.memory_mhz, gpu.clocks.graphics_mhz) == clocks


@pytest.mark.parametrize("key", catalogue.models())
def test_every_model_has_its_video_engines_and_its_profile(key: str) -> None:
    profile = catalogue.models()[key].profile
    assert (key not in catalogue_file("video")["models"]) == (key in NO_VIDEO)
    assert key in shipped("base").gpus
    assert key in shipped(profile).gpus  # a refusal proposes --profile PROFILE
    assert profile == "base" or shipped(profile).gpus == (key,)


def test_an_unknown_gpu_is_none() -> None:
    assert catalogue.board("2782") is None


@pytest.mark.parametrize(
    ("device_id", "kind", "tflops"),
    [("1eb8", "tensor_fp16", 65), ("1db1", "tensor_fp16", 125), ("20b0", "tensor_fp16", 312)],
)
def test_peaks_come_out_as_in_the_data_sheets(device_id: str, kind: str, tflops: int) -> None:
    gpu = catalogue.board(device_id)
    assert gpu is not None
    assert gpu.sms is not None
    assert gpu.boost_mhz is not None
    peak = gpu.sms * (gpu.model.fma_per_clock_per_sm[kind] or 0) * 2 * gpu.boost_mhz * 1e6 / 1e12
    assert peak == pytest.approx(tflops, rel=0.01)


@pytest.mark.parametrize(
    ("ffmpeg", "headers", "accepted"),
    [
        ("5.1.9", "11.1.5.2", True),
        ("5.1.9", "12.1.14.0", False),
        ("7.1.5", "11.1.5.2", False),
        ("7.1.5", "11.1.5.3", True),
        ("7.1.5", "12.0.16.0", False),
        ("7.1.5", "12.0.16.1", True),
        ("7.1.5", "12.1.14.0", True),
        ("7.1.5", "13.0.19.0", True),
        ("7.1.5", "11.0.10.3", True),
        ("9.0.2", "11.0.10.3", False),
        ("9.0.2", "11.1.5.2", False),
        ("6.1.2", "12.1.14.0", None),
    ],
)
def test_headers_that_ffmpeg_accepts(ffmpeg: str, headers: str, accepted: bool | None) -> None:
    assert catalogue.ffmpeg_accepts(ffmpeg, headers) is accepted


@pytest.mark.parametrize(
    ("headers", "driver"),
    [("12.1.14.0", "530.41.03"), ("12.2.72.0", "550.54.14"), ("13.1.0.0", "610.00"), ("99.0.0.0", None)],
)
def test_headers_need_a_driver(headers: str, driver: str | None) -> None:
    assert catalogue.headers_minimum_driver(headers) == driver


def test_versions_compare_as_numbers() -> None:
    assert catalogue.parse("550.163.01") < catalogue.parse("550.163.2")
    assert catalogue.parse("9.10.2") > catalogue.parse("9.9.0")
    assert catalogue.matches("550.163.01", "550")
    assert not catalogue.matches("5500.1", "550")
    with pytest.raises(ValueError, match="not a version"):
        catalogue.parse("newest")


def test_every_checksum_is_a_sha256() -> None:
    wheels = [s for majors in catalogue.cudnn_checksums().values() for archs in majors.values() for s in archs.values()]
    tarballs = [s for kind in ("ffmpeg", "nv_codec_headers") for v in catalogue.source(kind).values() for s in v.sha256]
    assert len(set(wheels + tarballs)) == len(wheels + tarballs) > 5
    assert all(re.fullmatch(r"[0-9a-f]{64}", checksum) for checksum in wheels + tarballs)


def test_cudnn_for_every_cuda_that_an_archive_has() -> None:
    known = catalogue.cudnn_checksums()
    for release in [one for name in ("x86_64", "aarch64") for one in catalogue.archives(name).values()]:
        for source in release.sources.values():
            for cuda in source.cuda:
                # The profiles' 9.10.2 is for CUDA 11 and 12; with 13 it is refused, and the message names the other.
                checksums = known["9.14.0.64" if cuda.startswith("13.") else "9.10.2.21"]
                there = release.architecture in checksums[cuda.split(".")[0]]
                assert there != (
                    release.architecture == "aarch64" and cuda.startswith("11.")
                )  # NVIDIA made no such wheel
            # `auto` takes 13 only where there is nothing else.
            assert not source.cuda[0].startswith("13.") or all(cuda.startswith("13.") for cuda in source.cuda)


# No figure of a healthy board was published: only the board's floor and its rates count.
WITHOUT_KERNELS = {"10.0", "10.3", "12.0"}
# NVIDIA's page of precisions has no row for them.
WITHOUT_PRECISIONS = {"6.0", "10.3", "12.0"}


def test_each_capability_has_its_kernels_and_precisions_or_is_known_to_lack_them() -> None:
    """A capability that lacks them by mistake would be judged by a floor that is too low."""
    capabilities = {model.compute_capability for model in catalogue.models().values()}
    known = catalogue_file("capabilities")["capabilities"]
    assert capabilities - {key for key, entry in known.items() if "kernels" in entry} == WITHOUT_KERNELS
    assert capabilities - {key for key, entry in known.items() if "precisions" in entry} == WITHOUT_PRECISIONS


@cache
def catalogue_file(name: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((Path(catalogue.__file__).parent / f"{name}.yml").read_text(encoding="utf-8"))
    return read
