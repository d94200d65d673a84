"""Attacks from inside a booted simulated machine, by its root, on the computer that runs it; and the other way round,
by an ordinary user of that computer on the machine. Real processes, real kernel; one machine for all of them."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from kernelmodule import module
from machines import GPUPREP, fresh, gpuprep, inside, must
from waiting import until

from gpuprep.sim import cgroup, paths, store

pytestmark = [pytest.mark.e2e, pytest.mark.machines]
NAME, OTHER = "hostile-sim", "hostile-sim-2"
STRANGER = 1000  # an ordinary user of this computer, and the id of `debian` in the machine
ATTACKS = yaml.safe_load(Path(__file__).with_name("sim_attacks.yml").read_text())


@dataclass(frozen=True)
class Stage:
    """`outside` is a folder of this computer with a file `secret`; `user` a process of the machine's user debian and
    `root` one of its root, as this computer numbers them."""

    outside: Path
    user: int
    root: int
    folder: Path

    @property
    def secret(self) -> Path:
        return self.outside / "secret"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with fresh(NAME, "debian13", ("t4",)):
        outside = tmp_path_factory.mktemp("computer")
        (outside / "secret").write_text("of the computer\n")
        (outside / "secret").chmod(0o600)
        inside(
            NAME, "systemd-run --quiet --uid=debian --unit=victim sleep infinity && systemd-run --quiet sleep 9876543"
        )
        yield Stage(outside, _process("sleep infinity"), _process("sleep 9876543"), store.folder(NAME))


def exec_(*command: str) -> list[str]:
    return [GPUPREP, "sim", "exec", NAME, "--", *command]


def _process(command: str) -> int:
    """Of the machine, as this computer numbers it."""
    words = command.replace(" ", "\0").encode() + b"\0"
    found: list[int] = []

    def runs() -> bool:
        for number in cgroup.processes(store.folder(NAME)):
            if (Path("/proc") / str(number) / "cmdline").read_bytes().endswith(words):
                found.append(number)
        return bool(found)

    until(runs, f"{command} does not run")
    return found[0]


@pytest.fixture(scope="module")
def answers(stage: Stage) -> dict[str, str]:
    """What each attack said, all of them in one go, each with mounts and time of its own."""
    disk = stage.outside.stat().st_dev
    words = {"SECRET": stage.secret, "OUTSIDE": stage.outside, "DISK": f"{os.major(disk)} {os.minor(disk)}"}
    script = "exec 2> /dev/null\n" + "".join(f"export {name}='{value}'\n" for name, value in words.items())
    for name, attack in ATTACKS["from_inside"].items():
        one = f"timeout 10 unshare --mount --propagation=private sh -c {shlex.quote(attack)}"
        script += f"echo '== {name}'; {one}\n"
    done = subprocess.run(exec_("sh", "-s"), input=script, capture_output=True, text=True)
    parts = done.stdout.split("== ")[1:]
    return {name: text for name, _, text in (part.partition("\n") for part in parts)}


@pytest.mark.parametrize("attack", ATTACKS["from_inside"])
def test_root_of_the_machine_has_nothing_of_the_computer(answers: dict[str, str], attack: str, stage: Stage) -> None:
    assert "TAKEN" not in answers[attack]
    assert stage.secret.read_text() == "of the computer\n"


@pytest.mark.parametrize("whose", ["user", "root"])
@pytest.mark.parametrize("attack", ATTACKS["from_outside"])
def test_a_user_of_the_computer_has_nothing_of_the_machine(stage: Stage, attack: str, whose: str) -> None:
    words = {"PID": getattr(stage, whose), "FOLDER": stage.folder, "GROUP": cgroup.paths(stage.folder)[-1]}
    environment = {**os.environ, "PYTHON": os.path.realpath(sys.executable), **{k: str(v) for k, v in words.items()}}
    done = subprocess.run(
        ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups", "sh", "-c",
         ATTACKS["from_outside"][attack]],
        capture_output=True, text=True, check=False, cwd="/", env=environment,
    )  # fmt: skip
    assert done.returncode != 0, done.stdout


def test_programs_that_a_machine_makes_setuid_are_in_reach_of_nobody(stage: Stage) -> None:
    """On disk they belong to id 0, the computer's root."""
    inside(NAME, "cp /bin/sleep /var/tmp/taken && chmod 6755 /var/tmp/taken")
    assert (stage.folder / "upper/var/tmp/taken").stat().st_uid == 0
    assert store.machines_dir().parent.stat().st_mode & 0o077 == 0
    base = Path(store.read(NAME).base)
    assert base.parent.stat().st_mode & 0o077 == 0


def test_no_process_of_the_machine_has_an_id_of_the_computer(stage: Stage) -> None:
    first = json.loads((stage.folder / "ids.json").read_text())["first"]
    seen = []
    for number in cgroup.processes(stage.folder):
        status = dict(line.split(":\t", 1) for line in Path(f"/proc/{number}/status").read_text().splitlines())
        if status["Name"] != "systemd-nspawn":
            seen.append(number)
            assert all(
                first <= int(word) < first + 65536 for word in (status["Uid"] + "\t" + status["Gid"]).split("\t")
            )
    assert {stage.user, stage.root} <= set(seen)


def test_what_the_operator_has_set_is_not_the_machines_to_read(stage: Stage) -> None:
    look = "grep -l SECRET_OF_THE_OPERATOR /proc/[0-9]*/environ 2> /dev/null | grep -c . "
    done = gpuprep("sim", "exec", NAME, "--", "sh", "-c", look, environment={"SECRET_OF_THE_OPERATOR": "8d1f"})
    assert done.stdout.strip() == "0", stage


def test_a_program_of_the_machine_does_not_get_the_operators_terminal(stage: Stage) -> None:
    """Of a session of its own, so that it cannot put words into the operator's shell (TIOCSTI)."""
    assert stage.user
    with subprocess.Popen(exec_("sleep", "4567890")) as program:
        sleeping = _process("sleep 4567890")
        session = os.getsid(sleeping)
        os.kill(sleeping, signal.SIGKILL)
    assert session != os.getsid(0), program
    assert "TAKEN" not in inside(NAME, "test -t 0 && echo TAKEN; true").stdout


def test_a_hostname_and_a_clock_of_its_own(stage: Stage) -> None:
    before = os.uname().nodename
    inside(NAME, "hostname taken; hostname")
    assert os.uname().nodename == before, stage
    inside(NAME, f"hostname {NAME}")


@pytest.fixture(scope="module")
def trapped(stage: Stage) -> Path:
    """The machine after a stop and a start for which its root has laid traps; the folder that they lead to."""
    traps = stage.outside / "traps"
    for name in ("modprobe.d", "boot", "lib", "archives", "standins"):
        (traps / name).mkdir(parents=True)
    (traps / "modprobe.d/x.conf").write_text("options nvidia NVreg_EnableMSI=77\n")
    (traps / "boot/vmlinuz-99.9.9-computer").touch()
    (traps / "archives/secret_1_all.deb").write_text("secret")
    (traps / "preload").write_text("of the computer\n")
    release = inside(NAME, "uname -r").stdout.strip()
    (stage.outside / "module").write_bytes(module())
    fill = f"cat > /lib/modules/{release}/updates/dkms/nvidia-current.ko"
    inside(NAME, f"mkdir -p /lib/modules/{release}/updates/dkms")
    subprocess.run(exec_("sh", "-c", fill), input=module(), check=True, capture_output=True)
    inside(NAME, f"""set -e
        rm -rf /etc/modprobe.d && ln -s {traps}/modprobe.d /etc/modprobe.d
        rm -rf /var/cache/apt/archives && ln -s {traps}/archives /var/cache/apt/archives
        rm -f /etc/ld.so.preload && ln -s {traps}/preload /etc/ld.so.preload
        mv /usr/lib/gpuprep-sim /usr/lib/gpuprep-sim-was && ln -s {traps}/standins /usr/lib/gpuprep-sim
        rm -f /usr/sbin/modinfo /usr/bin/modinfo
        printf '#!/bin/sh\\ntouch /modinfo-ran\\necho 550.163.01\\n' > /usr/sbin/modinfo && chmod 755 /usr/sbin/modinfo
        mkdir /root/deep && cd /root/deep && for i in $(seq 1500); do mkdir d && cd -P d; done
        """)  # fmt: skip
    must("sim", "down", "--keep", NAME)
    must("sim", "up", NAME)
    until(_driver_loaded, "the module is not looked at")
    return traps


def test_stand_ins_are_written_nowhere_outside(trapped: Path) -> None:
    assert list((trapped / "standins").iterdir()) == []


def test_the_loaders_file_is_written_nowhere_outside(trapped: Path) -> None:
    assert (trapped / "preload").read_text() == "of the computer\n"


def test_modprobes_files_are_read_nowhere_outside(trapped: Path) -> None:
    assert trapped.is_dir()
    assert "77" not in (store.folder(NAME) / "run/proc/driver/nvidia/params").read_text()


def _driver_loaded() -> bool:
    return (store.folder(NAME) / "run/proc/driver/nvidia/version").exists()


def test_programs_of_the_disk_are_not_run_by_the_computers_root(trapped: Path) -> None:
    assert trapped.is_dir()
    assert _driver_loaded(), "the module was looked at"
    assert not (store.folder(NAME) / "upper/modinfo-ran").exists()


def test_packages_are_taken_from_nowhere_outside(trapped: Path) -> None:
    assert trapped.is_dir()
    assert not list(paths.cache_dir().glob("*/*/secret*"))


def test_a_second_machine_is_a_stranger(stage: Stage) -> None:
    with fresh(OTHER, "debian13", ("none",)):
        mine, other = (json.loads((store.folder(name) / "ids.json").read_text())["first"] for name in (NAME, OTHER))
        assert abs(mine - other) >= 65536
        group = cgroup.paths(store.folder(OTHER))[-1].name
        look = f"find /sys/fs/cgroup/ -name '*{group}*' | grep -q . && echo TAKEN; ls /proc/*/root/etc/hostname"
        seen = inside(NAME, look, check=False).stdout
        assert "TAKEN" not in seen
        names = inside(NAME, "cat /proc/[0-9]*/root/etc/hostname 2> /dev/null | sort -u").stdout.split()
        assert names == [NAME], stage


def test_down_deletes_whatever_a_machine_left(trapped: Path) -> None:
    """Folders deeper than Python can follow, and groups as deep."""
    assert trapped.is_dir()
    inside(
        NAME, "cd /sys/fs/cgroup/systemd && for i in $(seq 1200); do mkdir d && cd -P d || exit 0; done", check=False
    )
    folder = store.folder(NAME)
    must("sim", "down", NAME)
    assert not folder.exists()
    assert not any(group.exists() for group in cgroup.paths(folder))
