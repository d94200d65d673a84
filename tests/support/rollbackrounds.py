"""Changes of the driver that break at a moment, in a simulated machine: as the role makes them, without Ansible.

    PYTHONPATH=tests/support python tests/support/rollbackrounds.py MACHINE ROUNDS SEED SYSTEM

The machine has the driver `old` of its system, and a program of the way back (roles/gpu_driver/tasks/save.yml). A round
keeps the driver, takes the network away, begins the change and breaks it; then it waits until the host says how it
ended. A round is stranded unless all is as it was.
"""

from __future__ import annotations

import json
import random
import sys
import time
from dataclasses import dataclass

from machines import inside

PROGRAM = "python3 -I /var/lib/gpuprep/driver-before/program.pyz"
MOMENTS = ("package", "dkms", "initramfs", "restart", "after_boot", "cut_in_back")
# A killed round ends within minutes; this ends a hang.
MOST_SECONDS = 900


@dataclass(frozen=True)
class System:
    old: str
    new: str
    prepare: str  # with the network: all that the change downloads
    cut: str  # takes the network away
    change: str
    restore_network: str
    versions: str
    written: str


_APT_VERSIONS = "dpkg -l | awk '/^.i/ && /nvidia|libcuda1/ && !/egl-wayland/ {print $3}' | cut -d- -f1 | sort -u"
_APT_WRITTEN = "cd /etc/apt && sha256sum */*gpuprep* && apt-mark showhold"
_APT_NAMES = """\
names=$(for name in NAMES; do echo "$name=$(apt-cache madison $name | awk '{print $3}' | grep -m1 "^NEW-")"; done)
"""
_APT_PREPARE = "cd /var/cache/apt/archives && apt-get -qq -o APT::Sandbox::User=root download $names"
_APT_CUT = """\
echo 'Acquire::http::Proxy "http://127.0.0.1:9";' >/etc/apt/apt.conf.d/00cut
rm -f /var/cache/apt/archives/*_*OLD-*.deb
"""
_APT_CHANGE = """\
leaving=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' 'libnvidia-*-580' 'nvidia-*-580*' 2>/dev/null |
  awk '$2 == "installed" {print $1 "-"}')
apt-mark unhold $(apt-mark showhold | grep -e nvidia -e libcuda) >/dev/null
sed -i 's/^Pin: version.*/Pin: version NEW-*/' /etc/apt/preferences.d/gpuprep-nvidia
apt-get -y -o GPUprep::Step=1 install --no-install-recommends --allow-downgrades $names $leaving ||
  failed "the packages"
"""
_DEBIAN_NAMES = (
    "nvidia-kernel-open-dkms nvidia-kernel-support firmware-nvidia-gsp libcuda1 libnvcuvid1 libnvidia-cfg1"
    " libnvidia-encode1 libnvidia-ml1 libnvidia-nvvm4 libnvidia-pkcs11-openssl3 libnvidia-ptxjitcompiler1"
    " nvidia-driver-cuda nvidia-modprobe nvidia-opencl-icd nvidia-persistenced"
)
_UBUNTU_NAMES = (
    "nvidia-dkms-570-open nvidia-kernel-source-570-open libnvidia-cfg1-570 libnvidia-compute-570 libnvidia-decode-570"
    " libnvidia-encode-570 nvidia-firmware-570 nvidia-kernel-common-570 nvidia-modprobe nvidia-persistenced"
    " nvidia-utils-570"
)
_EL_NAMES = (
    "kmod-nvidia-open-dkms libnvidia-cfg libnvidia-ml nvidia-driver-cuda nvidia-driver-cuda-libs nvidia-kmod-common"
    " nvidia-modprobe nvidia-persistenced"
)
_DNF = "dnf -y -q --setopt=keepcache=1 --setopt=*.module_hotfixes=true --disableplugin=versionlock"
_DNF_CHANGE = f"""\
dnf -q -C versionlock delete $(sed -n 's/-[0-9]:.*//p' /etc/dnf/plugins/versionlock.list | grep nvidia) >/dev/null
dnf -y -q -C --setopt=module_stream_switch=true module enable nvidia-driver:570-open || failed "the stream"
{_DNF} -C --comment=GPUprep::Step=1 --allowerasing install $names || failed "the packages"
"""


def _apt(old: str, new: str, names: str) -> System:
    exact = _APT_NAMES.replace("NAMES", names).replace("NEW", new)
    return System(
        old, new, exact + _APT_PREPARE, _APT_CUT.replace("OLD", old), exact + _APT_CHANGE.replace("NEW", new),
        "rm -f /etc/apt/apt.conf.d/00cut", _APT_VERSIONS, _APT_WRITTEN,
    )  # fmt: skip


_EXACT = f'names=$(for name in {_EL_NAMES}; do echo "$name-3:570.211.01"; done)\n'
SYSTEMS = {
    "debian13": _apt("595.71.05", "610.43.02", _DEBIAN_NAMES),
    "ubuntu2404": _apt("580.178.04", "570.211.01", _UBUNTU_NAMES),
    "rocky9": System(
        "580.178.04",
        "570.211.01",
        f"{_EXACT}{_DNF} --downloadonly --allowerasing install $names >/dev/null",
        "grep -q 127.0.0.1:9 /etc/dnf/dnf.conf || echo 'proxy=http://127.0.0.1:9' >>/etc/dnf/dnf.conf",
        _EXACT + _DNF_CHANGE,
        "sed -i /127.0.0.1:9/d /etc/dnf/dnf.conf",
        r"rpm -qa --qf '%{NAME} %{VERSION}\n' | awk '/nvidia/ && !/dnf-plug/ {print $2}' | sort -u",
        "cat /etc/dnf/modules.d/nvidia-driver.module; grep '^[^#]' /etc/dnf/plugins/versionlock.list | sort",
    ),
}
_SCRIPT = """\
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
failed() {{ {program} back --by run --cause "$1 failed"; exit 1; }}
printf '{{"wanted": "{new}", "rollback": "auto"}}' | {program} arm
{change}
for kernel in $(uname -r); do
  [ "$(modinfo -k $kernel -F version nvidia)" = {new} ] || failed "the module"
done
if command -v update-initramfs >/dev/null; then update-initramfs -u -k all; else dracut -f --regenerate-all; fi ||
  failed "the initramfs"
systemctl reboot
"""
_INITRAMFS = "tool=$(command -v update-initramfs || command -v dracut)\n"
_BREAK = {
    "dkms": "echo 'MAKE[0]=\"false\"' | tee /etc/dkms/nvidia-{new}.conf /etc/dkms/nvidia-open-{new}.conf",
    "initramfs": _INITRAMFS + "mv $tool $tool.kept; printf '#!/bin/sh\\nexit 1\\n' >$tool; chmod 755 $tool",
    # Each boot damages the new library before anybody uses it.
    "after_boot": "printf '[Unit]\\nBefore=multi-user.target\\n[Service]\\nType=oneshot\\nExecStart=/bin/sh -c \"for f"
    ' in /usr/lib/x86_64-linux-gnu/libcuda.so.{new} /usr/lib64/libcuda.so.{new}; do [ ! -f $$f ] || : >$$f; done"\\n'
    "[Install]\\nWantedBy=multi-user.target\\n' >/etc/systemd/system/broken.service; systemctl enable -q broken",
}
_BREAK["cut_in_back"] = _BREAK["after_boot"]
_REPAIR = (
    "rm -f /etc/dkms/nvidia-*.conf; systemctl disable -q broken 2>/dev/null; rm -f /etc/systemd/system/broken.service;"
    + _INITRAMFS.replace("\n", "; ")
    + "[ ! -e $tool.kept ] || mv $tool.kept $tool; rm -f /root/round.sh"
)
# Until one was there to be killed, or the change is through.
_KILL = """\
while systemctl is-active -q round; do
  for process in /proc/[0-9]*; do
    case $(cat $process/comm 2>/dev/null) in apt-get | dpkg | dnf | rpm) kill -9 ${process#/proc/} && killed=yes ;; esac
  done
  [ -z "$killed" ] || break
done
"""
CUT = "systemctl reboot -ff"  # nothing is ended in order


def state(machine: str, system: System) -> dict[str, str]:
    """What must be the same after a round, and what it is read from."""
    commands = {
        "versions": system.versions,
        "written": system.written,
        "loaded": "sed -n 's/^NVRM version:.*  \\([0-9.]*\\)  .*/\\1/p' /proc/driver/nvidia/version",
        "on disk": "modinfo -F version nvidia",
        "smi": "nvidia-smi --query-gpu=driver_version --format=csv,noheader",
        "dkms": "dkms status | grep nvidia | sed 's/ (original_module exists)//'",
        "packages": "dpkg -l 2>/dev/null | awk '/nvidia|libcuda/ {print $1, $2, $3}';"
        " rpm -qa 2>/dev/null | grep nvidia | sort; true",
        "audit": "dpkg --audit 2>/dev/null; true",
        "unit": "ls /etc/systemd/system/multi-user.target.wants | grep gpuprep-driver; true",
    }
    return {name: inside(machine, command, check=False).stdout for name, command in commands.items()}


def _status(machine: str) -> str | None:
    """The journal's status; "" without a journal, None while the machine does not answer."""
    read = "cat /var/lib/gpuprep/driver-before/journal.json 2>/dev/null || echo {}"
    done = inside(machine, read, check=False)
    if done.exit_code != 0:
        return None
    try:
        return str(json.loads(done.stdout).get("status", ""))
    except ValueError:
        return None


def keep(machine: str) -> None:
    """As the role does before a change."""
    names = [*_DEBIAN_NAMES.split(), *_UBUNTU_NAMES.split(), *_UBUNTU_NAMES.replace("570", "580").split()]
    request = {"names": [*names, *_EL_NAMES.split()], "parts": "(kmod-)?(lib)?nvidia-|libcuda", "modules": ["nvidia"]}
    answer = json.loads(inside(machine, f"printf '%s' '{json.dumps(request)}' | {PROGRAM} save").stdout)
    assert answer["offline"], answer


def play(machine: str, system: System, moment: str, chance: random.Random) -> list[str]:
    """One round; what is not as it was before, empty where the machine is as certified."""
    before = state(machine, system)
    inside(machine, f"{PROGRAM} settle")
    keep(machine)
    inside(machine, system.prepare)
    inside(machine, system.cut)
    if moment in _BREAK:
        inside(machine, _BREAK[moment].format(new=system.new))
    script = _SCRIPT.format(program=PROGRAM, new=system.new, change=system.change)
    inside(machine, f"cat >/root/round.sh <<'END'\n{script}\nEND")
    inside(machine, "systemd-run -q --unit=round --collect bash /root/round.sh")
    if moment == "package":
        time.sleep(chance.uniform(0, 2))
        inside(machine, _KILL, check=False)
    if moment == "restart":
        time.sleep(chance.uniform(1, 30))
        inside(machine, CUT, check=False)
    ended = _wait(machine, chance, cuts=chance.choice((1, 1, 2)) if moment == "cut_in_back" else 0)
    inside(machine, system.restore_network)
    inside(machine, _REPAIR, check=False)
    after = state(machine, system)
    wrong = [f"{name}: {before[name]!r} ► {after[name]!r}" for name in before if before[name] != after[name]]
    return [*wrong, *([] if ended in ("", "back") else [f"ended {ended}"])]


def _wait(machine: str, chance: random.Random, cuts: int) -> str:
    """Until the round is over: the status then. `cuts` times the power goes while the host goes back."""
    end = time.monotonic() + MOST_SECONDS
    quiet = 0
    while time.monotonic() < end:
        status = _status(machine)
        active = inside(machine, "systemctl is-active round gpuprep-driver-check", check=False).stdout
        at_work = active.replace("inactive", "")
        if status == "going-back" and cuts:
            cuts -= 1
            time.sleep(chance.uniform(0, 15))
            inside(machine, CUT, check=False)
        elif status == "restarting" and "activ" not in at_work:
            inside(machine, "systemctl reboot", check=False)
        elif status in ("", "back", "failed", "stuck") and "activ" not in at_work:
            quiet += 1
            if quiet > 2:
                return status
        time.sleep(1)
    return f"{_status(machine)} after {MOST_SECONDS} s"


def main(machine: str, rounds: int, seed: int, name: str) -> None:
    chance, system = random.Random(seed), SYSTEMS[name]
    stranded = 0
    for number in range(rounds):
        moment = chance.choice(MOMENTS)
        began = time.monotonic()
        wrong = play(machine, system, moment, chance)
        stranded += bool(wrong)
        print(f"{number + 1} {name} {moment}: {'STRANDED ' + '; '.join(wrong) if wrong else 'as before'},"
              f" {time.monotonic() - began:.0f} s", flush=True)  # fmt: skip
        if wrong:
            print(inside(machine, "journalctl -u gpuprep-driver-check -u round -o cat --no-pager | tail -40").stdout)
            break
    print(f"{rounds} rounds on {name} with seed {seed}: {stranded} stranded", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
