"""gpuprep watch on a finished machine: over its sshd, by sudo, with its NVML; and what status says of it."""

from __future__ import annotations

import pytest
from machines import Finished, gpuprep, inside, must, playing

pytestmark = pytest.mark.e2e


def test_watch_shows_the_gpus_against_what_was_certified(t4: Finished) -> None:
    done = gpuprep("watch", t4.host, "--json")
    assert done.exit_code == 0, done.text
    [host] = done.json()["hosts"]
    assert (host["host"], host["source"], host["error"]) == (t4.host, "simulated", "")
    [gpu] = host["gpus"]
    assert gpu["state"] == "idle"
    assert gpu["certified"]["graphics_mhz"] == gpu["now"]["application_clocks"]["graphics_mhz"]
    assert isinstance(host["xids"], list), "root may read the log"
    page = must("watch", t4.host).stdout
    assert f"{t4.host} SIMULATED" in page
    assert inside(t4.machine, "pgrep -f 'gpuprep-agent[ ]live'; true").stdout.strip() == "", "nothing is left"


@pytest.mark.parametrize(
    ("kind", "state", "said"),
    [("ecc_errors", "ERROR", "uncorrected ECC errors"), ("too_hot", "SLOW", "thermal slowdown")],
)
def test_watch_shows_a_fault_while_it_is_there(t4: Finished, kind: str, state: str, said: str) -> None:
    with playing(t4, kind):
        [host] = gpuprep("watch", t4.host, "--json").json()["hosts"]
        assert host["state"] == state
        assert any(said in note for note in host["gpus"][0]["notes"])
    assert must("status", t4.host).stdout.splitlines()[1].startswith(t4.host)
