"""drift --fix on a finished machine: what a hand undid is found, put back and silent afterwards; the rest is left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from machines import UNMEASURED, Done, Finished, gpuprep, inside, must, playing

pytestmark = pytest.mark.e2e

# What a hand undoes, the finding that names it, and what puts it back where --fix did not.
PUT_BACK = [
    ("nvidia-smi -rac", "gpu 0.clocks"),
    ("nvidia-smi -pl 62", "gpu 0.power_limit"),
    ("nvidia-smi -c 3", "gpu 0.compute_mode"),
    ("nvidia-smi -pm 0", "gpu 0.persistence_mode"),
    ("systemctl disable --quiet gpuprep-tune", "gpuprep-tune.enabled"),
    ("apt-mark unhold libcuda1 nvidia-cuda-toolkit", "driver.held"),
    ("rm /usr/local/bin/ffprobe /usr/local/bin/ffmpeg", "ffmpeg.path"),
    ("ln -sfn / /opt/gpuprep/ffmpeg/current", "ffmpeg.path"),
    ("ln -sfn /nowhere /usr/local/lib/pkgconfig/ffnvcodec.pc", "nv-codec-headers.version"),
    ("rm /opt/gpuprep/cudnn/current && ldconfig", "cudnn.library"),
]
REDO = (
    "apt-mark hold libcuda1 nvidia-cuda-toolkit; systemctl unmask nvidia-persistenced;"
    " systemctl enable --now nvidia-persistenced; systemctl enable gpuprep-tune;"
    " cd /opt/gpuprep/ffmpeg; ln -sfn $(ls -d [0-9]*-* | tail -n1) current;"
    " for p in ffmpeg ffprobe; do ln -sfn /opt/gpuprep/ffmpeg/current/bin/$p /usr/local/bin/$p; done;"
    " rm -f /usr/local/bin/*.before-gpuprep;"
    " ln -sfn $(ls /opt/gpuprep/nv-codec-headers/*/lib/pkgconfig/ffnvcodec.pc) /usr/local/lib/pkgconfig/ffnvcodec.pc;"
    " cd /opt/gpuprep/cudnn; ln -sfn $(ls -d [0-9]* | tail -n1) current; ldconfig;"
    " nvidia-smi -c 0; systemctl restart gpuprep-tune"
)


def drift(machine: Finished, *more: str) -> tuple[Done, dict[str, Any]]:
    done = gpuprep("drift", machine.host, "--profile", machine.profile, "--json", *more)
    (run,) = done.json()["runs"]
    return done, run


def differing(run: dict[str, Any]) -> dict[str, dict[str, Any]]:
    found = [one for one in run["findings"] if one["status"] not in ("PASS", "SKIP")]
    return {f"{one['subject']}.{one['property']}": one for one in found}


@pytest.fixture(scope="module")
def once(t4_copy: Finished) -> Finished:
    """The finished T4, certified as it is and silent."""
    inside(t4_copy.machine, REDO)
    must("validate", t4_copy.host, "--profile", t4_copy.profile, *UNMEASURED)
    must("baseline", "set", t4_copy.host, "last", "--reason", "what other tests left")
    assert differing(drift(t4_copy)[1]) == {}
    return t4_copy


@pytest.fixture
def certified(once: Finished) -> Iterator[Finished]:
    """That machine; whole again afterwards, whatever a test did."""
    try:
        yield once
    finally:
        inside(once.machine, REDO)


def test_all_that_can_be_put_back_is_and_the_next_check_is_silent(certified: Finished) -> None:
    for undo, _ in PUT_BACK:
        inside(certified.machine, undo)
    found, seen = drift(certified)
    assert found.exit_code == 1, found.text
    assert {key for _, key in PUT_BACK} <= set(differing(seen))
    fixed, run = drift(certified, "--fix")
    assert fixed.exit_code == 0, fixed.text
    assert differing(run) == {}
    fixes = {fix["finding"]: fix for fix in run["drift"]["fixes"]}
    assert {key for _, key in PUT_BACK} <= set(fixes)
    assert {fix["exit_code"] for fix in fixes.values()} == {0}
    clocks = fixes["gpu 0.clocks"]
    assert "1590" in clocks["after"]
    assert "1590" not in clocks["before"]
    assert fixes["gpu 0.power_limit"]["after"] == "70 W"
    silent, again = drift(certified)
    assert silent.exit_code == 0, silent.text
    assert differing(again) == {}
    assert again["drift"]["previous_run"] == run["run_id"]
    page = must("report", run["run_id"]).text
    assert "Put back" in page
    assert "# systemctl restart gpuprep-tune.service" in page


def test_a_masked_daemon_and_a_program_in_a_link_s_place(certified: Finished) -> None:
    inside(
        certified.machine, "systemctl disable --now --quiet nvidia-persistenced && systemctl mask nvidia-persistenced"
    )
    inside(certified.machine, "rm /usr/local/bin/ffmpeg && printf '#!/bin/sh\\necho mine\\n' >/usr/local/bin/ffmpeg")
    inside(certified.machine, "chmod 755 /usr/local/bin/ffmpeg")
    assert {"nvidia-persistenced.enabled", "ffmpeg.path"} <= set(differing(drift(certified)[1]))
    fixed, run = drift(certified, "--fix")
    assert fixed.exit_code == 0, fixed.text
    assert "mine" in inside(certified.machine, "cat /usr/local/bin/ffmpeg.before-gpuprep").text
    assert (
        inside(certified.machine, "systemctl is-active nvidia-persistenced gpuprep-tune").stdout.split()
        == ["active"] * 2
    )
    assert differing(run) == {}


def test_what_cannot_be_put_back_is_left_with_its_command(certified: Finished) -> None:
    program = inside(certified.machine, "realpath /usr/local/bin/ffmpeg").stdout.strip()
    try:
        inside(certified.machine, "mv /usr/bin/nvcc /root/ && nvidia-smi -rac")
        inside(
            certified.machine, f"cp -a {program} /root/ffmpeg.good && printf x >>{program} && rm /usr/local/bin/ffprobe"
        )
        inside(certified.machine, "rm /usr/local/bin/ffmpeg")
        done, run = drift(certified, "--fix")
        left = differing(run)
        assert done.exit_code == 1
        assert "gpu 0.clocks" not in left
        assert not any(key.startswith("cuda.") for key in left), "its package was installed again"
        assert "ffmpeg.path" in left  # the wanted build is not whole, so nothing is linked to it
        assert all(one["remedy"] for one in left.values() if one["status"] == "FAIL"), left
        failed = [fix for fix in run["drift"]["fixes"] if fix["exit_code"]]
        assert [fix["finding"] for fix in failed] == ["ffmpeg.path"]
        assert "not those that were installed" in failed[0]["said"]
        assert not inside(certified.machine, "ls /usr/local/bin/ffmpeg", check=False).stdout.strip()
    finally:
        inside(certified.machine, f"mv /root/nvcc /usr/bin/; mv /root/ffmpeg.good {program}", check=False)


def test_what_the_gpu_does_not_keep_is_not_done(certified: Finished) -> None:
    with playing(certified, "clocks_stuck"):
        fixed = gpuprep("drift", certified.host, "--profile", certified.profile, "--fix")
        assert fixed.exit_code == 1, fixed.text
        assert "FAILED  set persistence, clocks" in fixed.text
        tuned = gpuprep("tune", certified.host, "--profile", certified.profile)
        assert tuned.exit_code == 4, tuned.text
        assert "The GPUs do not have the settings of the profile" in " ".join(tuned.text.split())


def test_with_nothing_to_put_back_it_says_so_and_changes_nothing(certified: Finished) -> None:
    before = inside(certified.machine, "systemctl show -p ActiveEnterTimestampMonotonic gpuprep-tune").stdout
    done = must("drift", certified.host, "--profile", certified.profile, "--fix")
    assert "there was nothing that --fix can repair" in " ".join(done.text.split())
    assert inside(certified.machine, "systemctl show -p ActiveEnterTimestampMonotonic gpuprep-tune").stdout == before


@pytest.mark.only_all
def test_deep_names_what_check_mode_would_change_and_nothing_else(certified: Finished) -> None:
    rule = "/etc/udev/rules.d/60-gpuprep-tune.rules"
    inside(certified.machine, f"cp -a {rule} /root/ && echo '# more' >>{rule}")
    try:
        done, run = drift(certified, "--deep")
    finally:
        inside(certified.machine, f"mv /root/60-gpuprep-tune.rules {rule}")
    assert done.exit_code == 1, done.text
    assert run["error"] is None
    tasks = [one["property"] for one in differing(run).values() if one["subject"].startswith("gpu_")]
    assert tasks == ["Apply the settings also after a reload of the driver"]
