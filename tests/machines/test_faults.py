"""docs/faults.md on machines: fault, command, its words and exit code, the remedy as printed, the same command again.

The rows are the key `met` in sim/faults.yml. Those of FEW are in `make test-machines`, all others in `make test-all`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import finished
import pytest
from compilequickly import compile_quickly
from machines import Done, Finished, changed_files, fresh, gpuprep, inside, must

from gpuprep.sim import faults

pytestmark = pytest.mark.e2e

MET = {kind: fault["met"] for kind, fault in faults.kinds().items() if "met" in fault}
FEW = (
    "half_configured", "dpkg_interrupted", "disk_full", "inodes_full", "no_python", "no_headers", "runfile_driver",
)  # fmt: skip
CODES = {"retried": (0,), "waits": (0,), "repaired": (0,), "goes on": (0,), "refused": (2, 3), "fails": (1, 3, 4)}
PROFILE = """\
extends: base
description: what the faults are met with
cuda: {version: none}
cudnn: {version: none}
codec: {ffmpeg: none}
extras: {tools: [jq]}
"""
WORDS = {
    "plan": ("plan",),
    "extras": ("provision", "--only", "extras"),
    "driver": ("provision", "--only", "driver"),
    "tune": ("tune",),
    "validate": ("validate", "--only", "facts"),
    "reboot": ("provision", "--only", "driver"),
}
# Undoes what the command does, so that the same machine can be asked again.
AGAIN = {"extras": "dpkg --purge --force-depends jq"}
Shared = dict[str, tuple[str, contextlib.ExitStack]]


@pytest.fixture(scope="module")
def shared() -> Iterator[Shared]:
    """Machines that rows share, by their kind."""
    machines: Shared = {}
    yield machines
    for _, ending in machines.values():
        ending.close()


@contextlib.contextmanager
def machine_for(kind: str, shared: Shared, request: pytest.FixtureRequest) -> Iterator[str]:
    """A row that fails takes its machine with it: what it left there is no fault of the next row."""
    if kind not in shared:
        with contextlib.ExitStack() as making:
            shared[kind] = making.enter_context(made(kind, request)), making.pop_all()
    machine = shared[kind][0]
    try:
        yield machine
    except BaseException:
        shared.pop(kind)[1].close()
        raise
    if kind == "new":
        shared.pop(kind)[1].close()


@contextlib.contextmanager
def made(kind: str, request: pytest.FixtureRequest) -> Iterator[str]:
    if kind == "driver":
        from_nothing: Finished = request.getfixturevalue("from_nothing")
        assert from_nothing.machine
        with finished.clone(finished.disk(), "e2e-faults-driver", "t4", ["t4"], validate=False) as copy:
            yield copy.machine
        return
    os_name, gpu = {"rocky9": ("rocky9", "t4"), "v100": ("ubuntu2404", "v100")}.get(kind, ("debian13", "t4"))
    with fresh(f"e2e-faults-{kind}", os_name, [gpu]) as machine:
        if kind == "new":
            compile_quickly(machine)
        yield machine


@contextlib.contextmanager
def playing(machine: str, kind: str) -> Iterator[None]:
    """A remedy may have ended the fault already: then there is nothing to clear."""
    must("sim", "fault", machine, kind)
    try:
        yield
    finally:
        gpuprep("sim", "fault", machine, kind, "--clear")
        if "restart" in faults.kinds()[kind]:
            must("sim", "up", machine)  # it may boot only now: until it answers


def rows() -> Iterator[Any]:
    for kind in MET:
        yield pytest.param(kind, marks=() if kind in FEW else pytest.mark.only_all)


@pytest.mark.parametrize("kind", rows())
def test_a_fault_ends_as_the_table_says(
    kind: str, shared: Shared, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    # "new" for one row alone: it ends with a driver installed.
    where = MET[kind].get("on", "new" if MET[kind]["by"] == "driver" else "bare")
    with machine_for(where, shared, request) as machine:
        ends_as_the_table_says(machine, kind, tmp_path)


def ends_as_the_table_says(machine: str, kind: str, folder: Path) -> None:
    met = MET[kind]
    # A finished machine is judged by its own profile, a bare one is given little to do.
    profile = "t4"
    if met["by"] in ("extras", "driver", "tune"):
        (folder / "few.yml").write_text(PROFILE)
        profile = str(folder / "few.yml")
        inside(machine, AGAIN.get(met["by"], "true"), check=False)
    first, *options = WORDS[met["by"]]
    command = (first, f"sim:{machine}", "--profile", profile, *options)
    with contextlib.ExitStack() as played:
        played.enter_context(playing(machine, kind))
        if met["by"] == "reboot":
            played.enter_context(playing(machine, "driver_mismatch"))
        if "doctor" in met:
            is_diagnosed(machine, met)
        inside(machine, "sleep 0.01; touch /root/before")
        done = gpuprep(*command)
        said(done, met)
        if met["ends"] == "refused":
            if met["by"] == "plan":
                said(gpuprep("provision", *command[1:]), met)
            assert changed_files(machine) == []
        if "log" in met:
            named_by_its_log(done, met, folder)
        if met["ends"] in ("retried", "waits", "repaired", "goes on"):
            return
        for remedy in met.get("remedy", ()):
            inside(machine, remedy.replace("sudo ", ""))
        if "remedy" in met:
            succeeds(gpuprep(*command), met)
    if "remedy" not in met:
        succeeds(gpuprep(*command), met)


def is_diagnosed(machine: str, met: Mapping[str, Any]) -> None:
    """First; on a bare machine the lack of a driver comes before all else."""
    (examined,) = gpuprep("doctor", f"sim:{machine}", "--json").json()["examined"]
    ids = [each["id"] for each in examined["found"] if each["id"] != "driver-not-installed"]
    assert ids[:1] == [met["doctor"]], examined["found"]


def named_by_its_log(done: Done, met: Mapping[str, Any], folder: Path) -> None:
    """What the command printed, and the log that it kept."""
    (folder / "printed").write_text(done.text)
    for log in (folder / "printed", *map(Path, re.findall(r"(?m)^\s*whole log: (/\S+)", done.text))):
        (read,) = gpuprep("doctor", "--log", str(log), "--json").json()["examined"]
        assert met["log"] in [each["id"] for each in read["found"]], (log, read["found"])


def said(done: Done, met: Mapping[str, Any]) -> None:
    assert done.exit_code in CODES[met["ends"]], done.text[-6000:]
    assert "Traceback" not in done.text
    text = " ".join(done.text.split())
    for words in met.get("says", ()):
        assert words in text, done.text[-6000:]


def succeeds(done: Done, met: Mapping[str, Any]) -> None:
    assert done.exit_code == 0, done.text[-6000:]
    assert not any(words in done.text for words in met.get("says", ())[:1])
