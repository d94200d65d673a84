"""One finished T4 in `make test`: nothing to do, a verdict, a change that drift names and that is put back, a fault."""

from __future__ import annotations

import pytest
from machines import UNMEASURED, Finished, gpuprep, inside, must, only, playing

pytestmark = [pytest.mark.e2e, pytest.mark.smoke]


def test_a_finished_machine_is_recognised_and_passes(kept_t4: Finished) -> None:
    record = only(must("provision", kept_t4.host, "--profile", "t4", "--no-validate", "--json"))
    assert record["plan"]["steps"] == []
    assert record["playbook"]["status"] == "not needed"
    record = only(must("validate", kept_t4.host, "--profile", "t4", *UNMEASURED, "--json"))
    assert record["source"] == "simulated"
    assert record["verdict"]["status"] == "PASS", record["verdict"]["summary"]
    assert "h264_nvenc" in inside(kept_t4.machine, "ffmpeg -hide_banner -encoders").stdout


def test_drift_names_what_a_hand_changed_and_puts_it_back(kept_t4: Finished) -> None:
    drift = ("drift", kept_t4.host, "--profile", "t4")
    must("validate", kept_t4.host, "--profile", "t4", *UNMEASURED)
    must(*drift)
    inside(kept_t4.machine, "nvidia-smi -rac && apt-mark unhold libcuda1")
    found = must(*drift, exit_code=1).stdout
    assert "libcuda1" in found
    assert "clock" in found
    must(*drift, "--fix")
    must(*drift)


def test_a_slow_gpu_fails_with_its_cause(kept_t4: Finished) -> None:
    with playing(kept_t4, "throttled"):
        done = gpuprep("validate", kept_t4.host, "--profile", "t4", "--quick", "--only", "gemm")
    assert done.exit_code == 1, done.text
    assert "throttled, not defective" in done.stdout
    assert "simulated" in done.stdout.lower()


def test_doctor_finds_nothing_on_a_sound_machine_and_names_a_lost_gpu(kept_t4: Finished) -> None:
    (sound,) = must("doctor", kept_t4.host, "--json").json()["examined"]
    assert (sound["found"], sound["not_read"], sound["source"]) == ([], {}, "simulated")
    with playing(kept_t4, "gpu_lost"):
        (lost,) = must("doctor", kept_t4.host, "--json", exit_code=1).json()["examined"]
    assert lost["found"][0]["gravity"] == "lost"
    assert lost["found"][0]["do"]
