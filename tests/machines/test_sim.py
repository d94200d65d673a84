"""Simulated VMs themselves: what they are before a driver is there, and what reboots, faults and clones do to them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from machines import Done, fresh, gpuprep, inside, must

from gpuprep import sim
from gpuprep.sim import cgroup, store

pytestmark = pytest.mark.e2e
NAME = "e2e-sim"


@pytest.fixture(scope="module")
def machine() -> Iterator[str]:
    with fresh(NAME, "debian13", ("t4", "v100")) as name:
        yield name


def over_ssh(name: str, command: str) -> Done:
    where = sim.target(name)
    process = subprocess.run(
        ["ssh", "-F", "none", "-o", "BatchMode=yes", "-o", f"UserKnownHostsFile={where.known_hosts}",
         "-i", str(where.identity_file), "-p", str(where.port), f"{where.user}@{where.address}", command],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return Done(process.returncode, process.stdout, process.stderr)


def test_an_ordinary_user_with_sudo_and_no_root_login(machine: str) -> None:
    assert over_ssh(machine, "id -un; sudo -n id -un").stdout.split() == ["debian", "root"]
    where = sim.target(machine)
    refused = subprocess.run(
        ["ssh", "-F", "none", "-o", "BatchMode=yes", "-o", f"UserKnownHostsFile={where.known_hosts}",
         "-i", str(where.identity_file), "-p", str(where.port), "root@127.0.0.1", "true"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert refused.returncode == 255
    assert "Permission denied" in refused.stderr


def test_it_is_a_bare_debian(machine: str) -> None:
    assert inside(machine, "systemctl is-system-running --wait").stdout.strip() == "running"
    assert inside(machine, "cat /etc/debian_version").stdout.startswith("13.")
    sources = inside(machine, "cat /etc/apt/sources.list.d/debian.sources").stdout
    assert "Components: main\n" in sources
    assert "non-free" not in sources
    assert inside(machine, "test -e /etc/gpuprep-sim", check=False).exit_code == 0


def test_real_lspci_sees_the_gpus(machine: str) -> None:
    seen = inside(machine, "lspci -nn").stdout
    assert "[Tesla T4] [10de:1eb8]" in seen
    assert "[Tesla V100 SXM2 16GB] [10de:1db1]" in seen


def test_kernel_modules_and_headers_agree(machine: str) -> None:
    release = inside(machine, "uname -r").stdout.strip()
    assert release.endswith("-cloud-amd64")
    assert inside(machine, f"test -d /lib/modules/{release}", check=False).exit_code == 0
    assert inside(machine, "python3 -c 'import os; print(os.uname().release)'").stdout.strip() == release


def test_without_a_driver_nothing_pretends(machine: str) -> None:
    assert inside(machine, "test -e /proc/driver/nvidia", check=False).exit_code == 1
    assert inside(machine, "command -v nvidia-smi", check=False).exit_code != 0
    load = "python3 -c \"import ctypes; ctypes.CDLL('libnvidia-ml.so.1')\""
    assert "cannot open shared object file" in inside(machine, load, check=False).stderr


def test_nouveau_is_there_until_it_is_blacklisted(machine: str) -> None:
    assert "nouveau" in inside(machine, "lsmod").stdout
    inside(machine, "echo blacklist nouveau > /etc/modprobe.d/no.conf")
    assert "nouveau" in inside(machine, "cat /proc/modules").stdout
    reboot(machine)
    assert "nouveau" not in inside(machine, "cat /proc/modules").stdout


def reboot(name: str) -> None:
    """Reboots as a user would and waits for the next boot."""
    before = inside(name, "cat /proc/sys/kernel/random/boot_id").stdout
    old = store.process(name, "nspawn")
    over_ssh(name, "sudo systemctl reboot")
    subprocess.run(["tail", f"--pid={old}", "-f", "/dev/null"], check=True)
    must("sim", "up", name)
    assert inside(name, "cat /proc/sys/kernel/random/boot_id").stdout != before


def test_a_reboot_keeps_the_disk(machine: str) -> None:
    inside(machine, "touch /root/kept /run/lost")
    reboot(machine)
    assert inside(machine, "ls /root/kept; ls /run/lost", check=False).stdout.strip() == "/root/kept"


def test_exec_passes_input_output_and_exit_code(machine: str) -> None:
    done = inside(machine, "echo out; echo err >&2; exit 7", check=False)
    assert (done.exit_code, done.stdout, done.stderr) == (7, "out\n", "err\n")
    script = """word=x; echo "${word} $word ${none:-none} ${#word} $(echo $$ | wc -w) %n $1 $HOME" '$$ ${word}'"""
    done = must("sim", "exec", machine, "--", "sh", "-c", script, "sh", "${word} $HOME")
    assert done.stdout == "x x none 1 1 %n ${word} $HOME /root $$ ${word}\n"


def test_up_of_a_running_machine_says_so(machine: str) -> None:
    before = store.process(machine, "supervisor")
    assert "was up already" in must("sim", "up", machine).stdout
    assert store.process(machine, "supervisor") == before


def test_list_as_json(machine: str) -> None:
    rows = json.loads(must("sim", "list", "--json").stdout)["machines"]
    row = next(row for row in rows if row["name"] == machine)
    assert row["running"] is True
    assert row["gpus"] == ["t4", "v100"]


@pytest.mark.parametrize(
    ("kind", "shows"),
    [
        ("runfile_driver", "test -x /usr/bin/nvidia-uninstall && test -s /var/log/nvidia-installer.log"),
        ("no_headers", "uname -r | grep -q '^6.99.0-999-' && test ! -e /lib/modules/$(uname -r)/build"),
        ("nouveau", "grep -q ^nouveau /proc/modules"),
    ],
)
def test_a_fault_shows_and_goes(machine: str, kind: str, shows: str) -> None:
    release = inside(machine, "uname -r").stdout
    must("sim", "fault", machine, kind)
    inside(machine, shows)
    must("sim", "fault", machine, kind, "--clear")
    assert inside(machine, "uname -r").stdout == release
    assert inside(machine, shows, check=False).exit_code != 0


def test_a_fault_of_the_gpu_needs_a_driver(machine: str) -> None:
    done = must("sim", "fault", machine, "gpu_lost", exit_code=2)
    assert "install the driver" in done.stderr


def test_a_clone_has_the_disk_and_not_the_identity() -> None:
    clone = "e2e-clone"
    gpuprep("sim", "down", clone)
    with fresh("e2e-origin", "debian13", ("none",)) as origin, ExitStack() as made:
        made.callback(gpuprep, "sim", "down", clone)
        inside(origin, "echo mine > /root/file")
        assert "lspci" not in inside(origin, "lspci").text
        assert must("sim", "up", clone, "--clone-of", origin, exit_code=2).stderr
        must("sim", "down", "--keep", origin)
        must("sim", "up", clone, "--clone-of", origin, "--gpu", "a100")
        must("sim", "up", origin)
        assert inside(clone, "cat /root/file").stdout == "mine\n"
        assert inside(clone, "hostname").stdout.strip() == clone
        assert "[10de:20b0]" in inside(clone, "lspci -nn").stdout
        identity = "cat /etc/machine-id /etc/ssh/ssh_host_ed25519_key.pub"
        assert inside(clone, identity).stdout != inside(origin, identity).stdout
        inside(clone, "echo other > /root/file")
        assert inside(origin, "cat /root/file").stdout == "mine\n"


def test_five_machines_at_once_and_nothing_left_after_down() -> None:
    names = [f"e2e-many-{number}" for number in range(5)]
    with ExitStack() as made, ThreadPoolExecutor() as pool:
        list(pool.map(lambda name: made.enter_context(fresh(name, "debian13", ("t4",))), names))
        folders = [store.folder(name) for name in names]
        assert len({store.read(name).port for name in names}) == len(names)
        assert [inside(name, "hostname").stdout.strip() for name in names] == names
        list(pool.map(lambda name: must("sim", "down", name), names))
    assert not any(folder.exists() for folder in folders)
    assert not any(cgroup.processes(folder) for folder in folders)
    assert not any(str(folder) in Path("/proc/mounts").read_text() for folder in folders)


def test_a_crashed_supervisor_is_cleaned_up_by_the_next_up() -> None:
    with fresh("e2e-crash", "debian13", ("none",)) as name:
        supervisor = store.process(name, "supervisor")
        assert supervisor
        os.kill(supervisor, signal.SIGKILL)
        assert f"{name} is up" in must("sim", "up", name).stdout
        assert store.process(name, "supervisor") != supervisor
        assert inside(name, "id -u").stdout.strip() == "0"
        must("sim", "down", name)


@pytest.mark.parametrize(
    ("os_name", "lacks"),
    [("debian12", "NVIDIA's repository"), ("ubuntu2404", "Ubuntu's kernels"), ("rhel8", "Python 3.6")],
)
def test_what_a_rehearsal_does_not_show_is_said_before_the_boot(os_name: str, lacks: str) -> None:
    try:
        said = " ".join(must("sim", "up", "e2e-lacks", "--os", os_name, "--gpu", "none").stderr.split())
    finally:
        gpuprep("sim", "down", "e2e-lacks")
    before, booting, _ = said.partition("booting e2e-lacks")
    assert booting
    assert f"not rehearsed on {os_name}: CUDA programs, Secure Boot, " in before
    assert lacks in before


def test_wrong_names_say_what_there_is() -> None:
    assert "t4" in must("sim", "up", "e2e-x", "--gpu", "rtx9", exit_code=2).stderr
    assert "debian13" in must("sim", "up", "e2e-x", "--os", "plan9", exit_code=2).stderr
    assert "e2e-nobody" in must("sim", "down", "e2e-nobody", exit_code=2).stderr
    assert "lower-case" in must("sim", "up", "No_Name", exit_code=2).stderr
