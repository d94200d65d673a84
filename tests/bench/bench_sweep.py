"""A sweep of a fleet: `gpuprep drift -i inventory` against `ansible -m ping` of the same hosts with the same forks.

    python tests/bench/bench_sweep.py MACHINE [HOSTS]     MACHINE is a finished simulated VM; the hosts are its clones

Two sweeps: `--last` brings what each host found by itself at night, in one round trip each; the live one has every host
read all its facts now and judges them. ping only shows that Python runs there. Ansible is as it comes:
its default settings, with the hosts' keys known and their user and key in the inventory. Every connection of both is
new, as those of a nightly sweep are: Ansible keeps its own for 60 seconds, so each round has a folder of its own for
them. All hosts share this computer with both controllers; elsewhere the hosts' share of the work is done by the hosts.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path

import psutil
from ratios import BIN, GPUPREP, Ratio, in_turns, run, timed

from gpuprep import sim

HOSTS = 50
SIZES = (5, 10, 25)  # besides all of them: how it grows
FORKS = 10  # gpuprep's default for drift
ROUNDS = 2
LIMIT = 0.33
# All facts are read by the cores that both controllers need: a live sweep shall not cost more than a ping.
LIVE_LIMIT = 1.0
LIVE, LAST = ("--profile", "t4"), ("--last",)
MIB_A_MACHINE = 200  # a booted machine takes about 110
BOOTED_AT_ONCE = 2


@dataclass(frozen=True)
class Fleet:
    """Hosts of an inventory, and a home with their keys, so that both sides know them and nothing of the user's."""

    folder: Path
    machines: tuple[str, ...]
    lines: tuple[str, ...]  # of the inventory, one a host

    def inventory(self, hosts: int) -> str:
        path = self.folder / f"inventory-{hosts}.ini"
        path.write_text("\n".join(self.lines[:hosts]) + "\n")
        return str(path)


def sweep(machine: str, hosts: int = HOSTS) -> list[Ratio]:
    """Both ratios for all hosts; prints the seconds a host for fewer ones, too. `machine` is stopped meanwhile."""
    with tempfile.TemporaryDirectory(prefix="gb-") as name, fleet(machine, hosts, Path(name)) as known:
        folders = (known.folder / f"c{number}" for number in count())  # short: they hold sockets
        night(known, hosts)  # also reads and remembers the digests of a clone's files: once in its life
        for size in (size for size in SIZES if size < hosts):
            last, live = (timed(partial(drift, known, size, what)) for what in (LAST, LIVE))
            grown(size, last, live, timed(partial(ping, known, size, next(folders))))
        pairs = [
            in_turns(partial(drift, known, hosts, what), lambda: ping(known, hosts, next(folders)), ROUNDS)
            for what in (LAST, LIVE)
        ]
        grown(hosts, pairs[0][0], *pairs[1])
    against = f"of {hosts} hosts / ansible -m ping, {FORKS} forks"
    return [Ratio(f"drift --last {against}", *pairs[0], LIMIT), Ratio(f"drift {against}", *pairs[1], LIVE_LIMIT)]


def grown(hosts: int, last: float, live: float, theirs: float) -> None:
    figures = (f"{name} {took / hosts:.3f}" for name, took in (("--last", last), ("live", live), ("ping", theirs)))
    print(f"  {hosts:3} hosts, seconds a host: {', '.join(figures)}", flush=True)


def night(fleet: Fleet, hosts: int) -> None:
    """Every host is scheduled and has checked itself once."""
    command = ["drift", "schedule", "-i", fleet.inventory(hosts), "all", "--profile", "t4", "--forks", str(FORKS), "-q"]
    run(GPUPREP, *command, environment={"HOME": str(fleet.folder)})
    for name in fleet.machines:
        run(GPUPREP, "sim", "exec", name, "--", "systemctl", "start", "gpuprep-drift.service")


def drift(fleet: Fleet, hosts: int, what: Sequence[str]) -> None:
    command = [GPUPREP, "drift", "-i", fleet.inventory(hosts), *what, "--forks", str(FORKS), "--json", "-q"]
    runs = json.loads(run(*command, environment={"HOME": str(fleet.folder)}))["runs"]
    passed = [one for one in runs if one["verdict"] and one["verdict"]["status"] == "PASS"]
    if len(passed) != hosts:
        sys.exit(f"of {hosts} hosts {len(passed)} passed")


def ping(fleet: Fleet, hosts: int, connections: Path) -> None:
    connections.mkdir(mode=0o700)
    environment = {
        "ANSIBLE_CONFIG": str(fleet.folder / "ansible.cfg"),  # empty: nothing of the user's or of this folder
        "ANSIBLE_HOME": str(fleet.folder / "ansible"),
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(connections),
        # Ansible's default, and where the hosts' keys are: OpenSSH does not look at $HOME.
        "ANSIBLE_SSH_ARGS": "-C -o ControlMaster=auto -o ControlPersist=60s"
        f" -o UserKnownHostsFile={fleet.folder}/.ssh/known_hosts",
    }
    command = [str(BIN / "ansible"), "all", "-i", fleet.inventory(hosts), "-m", "ping", "--forks", str(FORKS), "-o"]
    answered = run(*command, environment=environment).count("| SUCCESS")
    if answered != hosts:
        sys.exit(f"of {hosts} hosts {answered} answered")


@contextmanager
def fleet(machine: str, hosts: int, folder: Path) -> Iterator[Fleet]:
    """Clones of `machine`, booted; where the memory does not do for all, the same machine answers to several names."""
    free = psutil.virtual_memory().available // 2**20
    booted = max(1, min(hosts, free // MIB_A_MACHINE))
    names = [f"{machine}-{number:02}" for number in range(booted)]
    run(GPUPREP, "sim", "down", "--keep", machine)
    try:
        took = timed(lambda: _boot(machine, names))
        left = psutil.virtual_memory().available // 2**20
        print(f"  {booted} clones booted in {took:.0f} s, {(free - left) / booted:.0f} MiB each", flush=True)
        if booted < hosts:
            print(f"  {hosts} names of {booted} machines: there is memory for no more")
        targets = [sim.target(name) for name in names]
        (folder / ".ssh").mkdir(mode=0o700)
        keys = "".join(Path(str(target.known_hosts)).read_text() for target in targets)
        (folder / ".ssh" / "known_hosts").write_text(keys)
        (folder / "ansible.cfg").write_text("[defaults]\n")
        chosen = [targets[number % booted] for number in range(hosts)]
        yield Fleet(
            folder,
            tuple(names),
            tuple(
                f"host{number:02} ansible_host={t.address} ansible_port={t.port} ansible_user={t.user}"
                f" ansible_ssh_private_key_file={t.identity_file}"
                for number, t in enumerate(chosen)
            ),
        )
    finally:
        there = {one.name for one in sim.machines()}  # one that did not boot has said why
        _each([name for name in names if name in there], "down")
        run(GPUPREP, "sim", "up", machine)


def _boot(machine: str, names: Sequence[str]) -> None:
    _each(names, "up", "--clone-of", machine)


def _each(names: Sequence[str], verb: str, *options: str) -> None:
    with ThreadPoolExecutor(BOOTED_AT_ONCE) as pool:
        list(pool.map(lambda name: run(GPUPREP, "sim", verb, name, *options), names))


if __name__ == "__main__":
    results = sweep(sys.argv[1], *map(int, sys.argv[2:3]))
    print(*results, sep="\n")
    sys.exit(any(result.value > result.limit for result in results))
