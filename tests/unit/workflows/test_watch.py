"""gpuprep watch: the agent's answers on a real NVML library, over a real sshd, on a terminal and without one."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
import watchedgpus
from builders import finished_snapshot, resolved
from commandline import Shell
from nvmlbench import Bench
from pseudoterminal import INTERRUPT, Program, Screen
from records_for_tests import record
from sshserver import SSHD, Sshd
from waiting import until
from watchedgpus import drawn, gpu, host, one, row, xid

from gpuprep import records
from gpuprep.performance import clock_events
from gpuprep.store import Store

LOST = records.Missing("gpu_is_lost", "GPU is lost")
NO_ECC = records.Missing("not_supported", "Not Supported")


# ---------------------------------------------------------------- what is thought of a GPU


@pytest.mark.parametrize(
    ("changes", "xids", "state", "note"),
    [
        ({}, (), "idle", ""),
        ({"gpu_utilization_percent": 3}, (), "busy", ""),
        ({"encoder_utilization_percent": 9}, (), "busy", ""),
        ({"event_reasons": clock_events.SW_POWER_CAP, "gpu_utilization_percent": 99}, (), "busy", "SW power cap"),
        ({"event_reasons": clock_events.HW_THERMAL}, (), "SLOW", "HW thermal slowdown"),
        ({"event_reasons": clock_events.POWER_BRAKE}, (), "SLOW", "HW power brake"),
        ({"application_clocks": records.ClockPair(5001, 300)}, (), "CHANGED", "SM clock set to 300 MHz, certified 585"),
        ({"power_limit_watts": 60.0}, (), "CHANGED", "power limit 60 W, certified 70"),
        ({"ecc_uncorrected": 2}, (), "ERROR", "2 uncorrected ECC errors"),
        ({"ecc_corrected": 2}, (), "idle", "2 corrected ECC errors"),
        ({"ecc_uncorrected": NO_ECC, "ecc_corrected": NO_ECC}, (), "idle", ""),
        ({"graphics_clock_mhz": LOST, "power_watts": LOST}, (), "ERROR", "the GPU is lost"),
        ({"graphics_clock_mhz": NO_ECC, "power_watts": NO_ECC}, (), "UNKNOWN", ""),
        ({}, (xid(79), xid(79)), "ERROR", "Xid 79 ×2: the GPU fell off the bus"),
        ({}, (xid(13),), "idle", "Xid 13"),
        ({"event_reasons": clock_events.HW_THERMAL, "ecc_uncorrected": 1}, (), "ERROR", "HW thermal slowdown"),
    ],
)
def test_the_state_of_a_gpu(changes: dict[str, Any], xids: tuple[records.Xid, ...], state: str, note: str) -> None:
    found = one(gpu(**changes), xids)
    assert found.state == state
    assert note in "; ".join(found.notes)
    assert bool(found.notes) == bool(note)


def test_nothing_is_changed_that_was_never_certified() -> None:
    limited = gpu(power_limit_watts=60.0)
    assert one(limited, held=None).state == one(limited, held=watchedgpus.only_a_run()).state == "idle"


def test_a_host_by_its_worst_gpu_and_what_is_not_there() -> None:
    first, second = gpu(), gpu(index=1, uuid="GPU-2", pci_address="0000:00:05.0")
    good = host("a", first, second, certified=("GPU-1",))
    assert (good.state, good.notes) == ("idle", ())
    xids = host("b", first, second, xids=(xid(79, "0000:00:05.0"),))
    assert [one.state for one in xids.gpus] == ["idle", "ERROR"]
    gone = host("c", first, certified=("GPU-1", "GPU-2"))
    assert (gone.state, gone.notes) == ("ERROR", ("1 of 2 certified GPUs are not there",))
    fell = host("d", first, xids=(xid(79, "0000:00:09.0"),))
    assert fell.state == "ERROR"
    assert "a GPU that is not there" in fell.notes[0]
    none = host("e", unread=records.Missing("library_not_found", "libnvidia-ml.so.1"))
    assert (none.state, none.error) == ("UNKNOWN", "no GPU can be read: libnvidia-ml.so.1")
    closed = host("f", first, xids=records.Missing("no_permission", "not root"))
    assert closed.notes == ("Xids are not known: not root",)
    assert host("g").state == "UNKNOWN", "no GPU is no good GPU"
    unreachable = watchedgpus.silent("h", "no answer")
    assert watchedgpus.worst_first([good, unreachable, none, fell]) == ["d", "e", "h", "a"]


def test_what_was_certified() -> None:
    seen = finished_snapshot(resolved())
    assert not isinstance(seen.gpus, records.Missing)
    [card] = seen.gpus
    made = dataclasses.replace(record(), run_id="one", before=None, after=seen)
    plain = watchedgpus.certified_by(made)[card.uuid]
    assert isinstance(card.application_clocks, records.ClockPair)
    assert (plain.graphics_mhz, plain.memory_mhz) == (
        card.application_clocks.graphics_mhz, card.application_clocks.memory_mhz
    )  # fmt: skip
    locked = dataclasses.replace(seen, locked_clocks=(records.LockedClocks(card.uuid, None, 1200, "boot"),))
    found = watchedgpus.certified_by(dataclasses.replace(made, after=locked))[card.uuid]
    assert (found.run_id, found.graphics_mhz, found.memory_mhz) == ("one", 1200, plain.memory_mhz)
    assert watchedgpus.certified_by(None) == {}
    assert watchedgpus.certified_by(dataclasses.replace(made, after=dataclasses.replace(seen, gpus=LOST))) == {}


# ---------------------------------------------------------------- what is drawn


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 100, 132, 250])
def test_every_row_fits(columns: int) -> None:
    program = records.ProcessOnGpu(1, "/usr/bin/[red]x[/red]\x1b[2J" + "y" * 90, 1024, "alice")
    hosts = [
        host("a-host-with-a-long-name.example.org", gpu(processes=(program,)), certified=("GPU-1",)),
        watchedgpus.silent("显卡" * 30, "no answer " * 50),
    ]
    lines = drawn(hosts, columns)
    assert all(len(line) <= columns for line in lines)
    assert "\x1b[2J" not in "\n".join(lines)
    assert len(lines) == 5
    if columns == 250:
        (shown,) = [line for line in lines if "585/585" in line]
        assert "alice: red]" in shown, "after the last slash, and no markup"


def test_figures_and_whose_programs() -> None:
    programs = tuple(records.ProcessOnGpu(pid, f"/usr/bin/python{pid}", 100 * pid, "alice") for pid in (9, 8, 7, 6))
    found = row(host("box", gpu(processes=programs, more_processes=5), certified=("GPU-1",)))
    assert found[:11] == ("box", "0 Tesla T4", "idle", "585/585", "5001/5001", "27/70", "41", "0", "0", "0", "0/15360")
    assert found[11] == "alice: python9 900 MiB; alice: python8 800 MiB; alice: python7 700 MiB; 6 more processes"
    assert row(host("box", gpu()))[3:6] == ("585/(585)", "5001/(5001)", "27/(70)")
    assert row(host("box", gpu(graphics_clock_mhz=LOST, power_watts=LOST)))[3] == "?/(585)"


def test_simulated_hosts_say_so() -> None:
    simulated = host("sim:t4", gpu(), source=records.Source.SIMULATED)
    assert row(simulated)[0] == "sim:t4 SIMULATED"
    assert any("SIMULATED" in line for line in drawn([simulated], 100))


def test_of_more_gpus_than_rows_the_grave_ones_are_shown() -> None:
    many = [host(f"box{number:02d}", gpu()) for number in range(60)]
    lines = drawn([*many, host("zz", gpu(ecc_uncorrected=1))], 120, rows=20)
    assert len(lines) <= 20
    assert lines[0].startswith("61 GPUs of 61 hosts: 1 ERROR, 60 idle")
    assert lines[2].startswith("zz ")
    assert "and 46 more" in lines[-2]


def test_screen_reads_what_rich_draws() -> None:
    """The rows of drawn() are what a terminal shows of them."""
    screen = Screen(columns=100)
    lines = drawn([host("box", gpu())], 100)
    screen.feed("\n".join(lines).encode())
    assert screen.shown == [line.rstrip() for line in lines]


# ---------------------------------------------------------------- the agent


def test_the_agent_answers_a_line_for_a_line_and_ends_with_its_input() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "gpuprep.agent", "live"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == b"gpuprep-live 1\n"
    for _ in range(2):
        process.stdin.write(b"\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["source"] == "measured"
    process.stdin.close()
    assert process.wait(300) == 0
    assert process.stdout.read() == b""
    process.stdout.close()


def test_an_agent_whose_reader_is_gone_ends() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "gpuprep.agent", "live"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline()
    process.stdout.close()
    process.wait(300)
    process.stdin.close()


# ---------------------------------------------------------------- over SSH, with NVML


pytest_ssh = pytest.mark.skipif(
    SSHD is None or sys.platform != "linux" or shutil.which("gcc") is None or os.geteuid() != 0,
    reason="needs sshd, gcc and root",
)


class Machine:
    """A sshd whose sessions see the GPUs of a Bench, and an inventory that names it `box`."""

    def __init__(self, folder: Path, home: Path, others: Mapping[str, str] | None = None) -> None:
        """`others`: address ► what answers there in the place of the agent; also the name of that host."""
        self.bench = Bench.made(folder / "bench")
        self.bench.boot("t4", "a100")
        (folder / "sshd").mkdir()
        self.wrapper = folder / "session"
        self.answers(others or {})
        addresses = [f"ListenAddress {address}" for address in others or ()]
        self.sshd = Sshd(folder / "sshd", home, f"ForceCommand {self.wrapper}", *addresses)
        self.sshd.trust("127.0.0.1", *(others or ()))
        self.inventory = folder / "hosts.ini"
        login = (
            f"ansible_port={self.sshd.port} ansible_user={self.sshd.user} ansible_ssh_private_key_file={self.sshd.key}"
        )
        hosts = {"box": "127.0.0.1", **{address: address for address in others or ()}}
        self.inventory.write_text(
            "".join(f"{name} ansible_host={address} {login}\n" for name, address in hosts.items())
        )
        self.store = f"sqlite:///{folder}/history.db"

    def answers(self, instead: Mapping[str, str]) -> None:
        """What a session runs: the command that was asked for, or what is `instead` of the agent at an address."""
        sees = f"GPUPREP_SIM_NVML={self.bench.folder} LD_LIBRARY_PATH={self.bench.folder}/lib"
        # The line that our side waits for before it reads what a command says.
        mark = """echo "gpuprep $(echo "$SSH_ORIGINAL_COMMAND" | grep -om1 '[0-9a-f]\\{32\\}')" """
        lines = ["#!/bin/sh", "set -- $SSH_CONNECTION", 'case "$3 $SSH_ORIGINAL_COMMAND" in']
        lines += [f"'{address} '*gpuprep-live*) {mark}; {program};;" for address, program in instead.items()]
        self.wrapper.write_text("\n".join([*lines, "esac", f'{sees} exec sh -c "$SSH_ORIGINAL_COMMAND"', ""]))
        self.wrapper.chmod(0o755)

    def words(self, *more: str) -> list[str]:
        return ["watch", "-i", str(self.inventory), "--store", self.store, *more]

    def agents(self) -> list[str]:
        """The command lines below the sshd that are an agent's."""
        found = []
        for process in self.sshd.sessions():
            with contextlib.suppress(psutil.NoSuchProcess):
                found.append(" ".join(process.cmdline()))
        return [line for line in found if "python3" in line]


@pytest.fixture
def machine(tmp_path: Path, home: Path) -> Iterator[Machine]:
    made = Machine(tmp_path, home)
    yield made
    made.sshd.stop()


def once(words: list[str], **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", f"from gpuprep.cli import main; main({words!r})"],
        env={**os.environ, **env}, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest_ssh
def test_a_snapshot_of_a_host_over_ssh(machine: Machine) -> None:
    [t4, a100] = machine.bench.gpus()
    t4 = replace(t4, power=replace(t4.power, current_watts=60.0))
    seen = dataclasses.replace(finished_snapshot(resolved()), gpus=(t4, a100))
    store = Store.open(machine.store)
    run = dataclasses.replace(record(), host="box", command="validate", before=None, after=seen, exit_code=0)
    store.append(run)
    store.certify("box", run.run_id, run.ended_at, {})
    store.close()
    with machine.bench.load(memory_mib=100, utilization=80):
        done = once(machine.words("--json"))
    assert (done.returncode, done.stderr) == (0, "")
    [host] = json.loads(done.stdout)["hosts"]
    assert (host["host"], host["source"], host["error"]) == ("box", "measured", "")
    assert [gpu["now"]["name"] for gpu in host["gpus"]] == [t4.name, a100.name]
    assert [gpu["state"] for gpu in host["gpus"]] == ["CHANGED", "idle"]
    assert host["gpus"][0]["notes"][0] == "power limit 70 W, certified 60"
    assert host["gpus"][0]["now"]["processes"][0]["memory_mib"] == 100
    assert host["gpus"][0]["certified"]["run_id"] == run.run_id
    lines = once(machine.words()).stdout.splitlines()
    assert lines[0].split()[:3] == ["HOST", "GPU", "STATE"]
    assert lines[1].startswith("box ")
    assert lines[-2] == "2 GPUs of 1 host: 1 CHANGED, 1 idle"
    assert machine.agents() == []


@pytest.mark.machines
@pytest_ssh
def test_a_host_that_fails_is_unknown_beside_one_that_answers(machine: Machine) -> None:
    with machine.inventory.open("a") as file:
        file.write("gone ansible_host=127.0.0.1 ansible_port=1\n")
    done = once(machine.words("--json"))
    assert done.returncode == 3
    gone, box = json.loads(done.stdout)["hosts"]
    assert (gone["host"], gone["state"], gone["gpus"]) == ("gone", "UNKNOWN", [])
    assert gone["error"]
    assert box["state"] == "idle"


# What answers in the place of the agent ► what the host's error says.
ANSWERS = {
    "echo hello; exit 0": "what answers is no agent: hello",
    "exit 0": "the agent ended; its output: nothing",
    "echo 'no python here' >&2; exit 1": "no python here",
    "head -c 200000 /dev/zero | tr '\\0' x; exit 0": "a line of more than 64 KiB",
    "echo 'gpuprep-live 1'; while read x; do echo '{}'; done; exit 0": "no sample",
    "echo 'gpuprep-live 1'; while read x; do printf '[%.0s' $(seq 9000); echo; done; exit 0": "no sample",
    "echo 'gpuprep-live 1'; printf '\\033[2J\\n'; while read x; do printf '\\033[2J\\n'; done; exit 0": "\\x1b[2J",
    "yes; exit 0": "what answers is no agent: y",
}


@pytest.mark.machines
@pytest_ssh
def test_whatever_answers_it_is_this_host_alone(tmp_path: Path, home: Path) -> None:
    """Each of them at an address of its own, beside a host whose agent answers."""
    by_address = {f"127.0.1.{number}": instead for number, instead in enumerate(ANSWERS, 1)}
    machine = Machine(tmp_path, home, by_address)
    try:
        done = once(machine.words("--json"))
    finally:
        machine.sshd.stop()
    assert done.returncode == 3, done.stderr
    assert "\x1b" not in done.stdout
    hosts = {host["host"]: host for host in json.loads(done.stdout)["hosts"]}
    assert set(hosts) == {"box", *by_address}
    assert hosts["box"]["state"] == "idle"
    for address, instead in by_address.items():
        assert hosts[address]["state"] == "UNKNOWN"
        assert ANSWERS[instead] in hosts[address]["error"], (instead, hosts[address])


@pytest_ssh
def test_an_agent_that_says_nothing_is_not_waited_for(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    watchedgpus.impatient(monkeypatch, 1.0)
    machine.answers({"127.0.0.1": "while read x; do :; done; exit 0"})  # ends with the connection
    code, shown, _ = Shell(capsys)(*machine.words())
    assert code == 3
    assert "did not answer within 1 s" in shown


PROGRAM = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from gpuprep.workflows import watch
watch.RETRY_SECONDS, watch.STALE_SECONDS = (0.5,), {stale}
from gpuprep.cli import main
main({words!r})
"""


def live_view(machine: Machine, stale: float = 600.0) -> str:
    """The program; figures of a host that is silent for so long are shown no more."""
    return PROGRAM.format(words=machine.words("--interval", "0.5"), stale=stale)


def has(*parts: str) -> Any:
    return lambda screen: any(all(part in row for part in parts) for row in screen.rows)


@pytest.mark.machines
@pytest_ssh
def test_the_live_view_follows_its_hosts_and_ends_with_nothing_left(machine: Machine, tmp_path: Path) -> None:
    program = live_view(machine)
    with Program(program, tmp_path / "out", {}, columns=140, lines=20, all_of_it=True) as running:
        screen = running.until(has("box", "0 Tesla T4", "idle"))
        assert screen.rows[1].split()[:3] == ["HOST", "GPU", "STATE"]
        assert len(machine.agents()) >= 1
        with machine.bench.load(memory_mib=100, utilization=80):
            running.until(has("0 Tesla T4", "busy"))
        machine.bench.put("gpu.1", fault_gpu_lost="1")
        running.until(lambda screen: has("ERROR", "the GPU is lost")(screen) and "1 ERROR" in screen.rows[0])
        machine.sshd.stop()
        running.until(has("box", "UNKNOWN"))
        machine.sshd.start()
        running.until(has("box", "0 Tesla T4"))
        assert not screen.cursor_hidden
        running.type(INTERRUPT)
        code, _, screen = running.end()
    assert code == 0
    assert not any("Traceback" in row for row in screen.everything)
    until(lambda: not machine.agents(), "the agent lives on", 300)


@pytest.mark.machines
@pytest_ssh
def test_figures_of_a_host_that_falls_silent_do_not_stay(machine: Machine, tmp_path: Path) -> None:
    program = live_view(machine, stale=3.0)
    with Program(program, tmp_path / "out", {}, columns=140, all_of_it=True) as running:
        running.until(has("box", "0 Tesla T4"))
        stopped = machine.sshd.sessions()
        for session in stopped:
            session.suspend()
        try:
            screen = running.until(has("box", "UNKNOWN", "no answer for"))
            assert not has("Tesla")(screen)
        finally:
            for session in stopped:
                session.resume()
        running.until(has("box", "0 Tesla T4"))
        running.type(INTERRUPT)
        assert running.end()[0] == 0


@pytest.mark.machines
@pytest_ssh
def test_the_agent_ends_where_the_view_is_killed(machine: Machine, tmp_path: Path) -> None:
    program = live_view(machine)
    with Program(program, tmp_path / "out", {}, columns=140, all_of_it=True) as running:
        running.until(has("box", "0 Tesla T4"))
        running._process.kill()
        running._process.wait()
    until(lambda: not machine.agents(), "the agent lives on", 300)


# ---------------------------------------------------------------- wrong usage


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "`gpuprep watch` needs a HOST"),
        (["a b"], "has a blank in it"),
        (["--interval", "0", "x"], "0.5"),
        (["-i", "nothing.ini"], "there is no inventory nothing.ini"),
        ([f"h{number}" for number in range(201)], "at most 200"),
    ],
)
def test_wrong_usage(words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    code, _, complained = Shell(capsys)("watch", *words)
    assert code == 2
    assert said in complained
