"""Changes of the driver that break at a moment, in a simulated machine: as the role makes them, without Ansible.

    PYTHONPATH=tests/support python tests/support/rollbackrounds.py BASE SYSTEM PROFILE SEED MOMENT... | ROUNDS

BASE is a stopped machine that gpuprep provisioned with PROFILE, which asks for the driver `old` of its system. Each
round is played in a clone of it: the host keeps the driver, loses the network, begins the change, and something breaks;
the round waits until the host says how it ended. It is stranded unless all is as it was, and drift says so.
"""

from __future__ import annotations

import json
import random
import re
import runpy
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from machines import flags, gpuprep, inside, must, only, open_findings
from places import ROOT

PROGRAM = "python3 -I /var/lib/gpuprep/driver-before/program.pyz"
MOMENTS = ("package", "dkms", "initramfs", "restart", "after_boot", "cut_in_back")
# And what nobody orders: the program itself is killed; what is kept is damaged; somebody holds a package meanwhile, or
# has one of his own that needs the new driver; a second change after a good one; the way back typed twice; the clock,
# which was a day ahead, is set right while the machine restarts.
OTHERS = ("killed", "damaged", "foreign_hold", "own_package", "second_change", "twice", "clock")
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
leaving=$(dpkg-query -W -f '${Package} ${db:Status-Status}\n' 'libnvidia-*-BRANCH' 'nvidia-*-BRANCH*' 2>/dev/null |
  awk '$2 == "installed" {print $1 "-"}')
apt-mark unhold $(apt-mark showhold | grep -e nvidia -e libcuda -e libnvcuvid) >/dev/null
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
dnf -y -q -C --setopt=module_stream_switch=true module enable nvidia-driver:BRANCH-open || failed "the stream"
{_DNF} -C --comment=GPUprep::Step=1 --allowerasing install $names || failed "the packages"
left=$(rpm -qa --qf '%{{NAME}} %{{VERSION}}\\n' | awk '/nvidia/ && $2 == "OLD" {{print $1}}')
[ -z "$left" ] || {_DNF} -C --comment=GPUprep::Step=1 --noautoremove remove $left || failed "the packages"
"""


def _apt(old: str, new: str, names: str) -> System:
    exact = _APT_NAMES.replace("NAMES", names).replace("NEW", new)
    change = exact + _APT_CHANGE.replace("NEW", new).replace("BRANCH", old.partition(".")[0])
    return System(
        old, new, exact + _APT_PREPARE, _APT_CUT.replace("OLD", old), change,
        "rm -f /etc/apt/apt.conf.d/00cut", _APT_VERSIONS, _APT_WRITTEN,
    )  # fmt: skip


def _dnf(old: str, new: str) -> System:
    exact = f'names=$(for name in {_EL_NAMES}; do echo "$name-3:{new}"; done)\n'
    return System(
        old,
        new,
        f"{exact}{_DNF} --downloadonly --allowerasing install $names >/dev/null",
        "grep -q 127.0.0.1:9 /etc/dnf/dnf.conf || echo 'proxy=http://127.0.0.1:9' >>/etc/dnf/dnf.conf",
        exact + _DNF_CHANGE.replace("OLD", old).replace("BRANCH", new.partition(".")[0]),
        "sed -i /127.0.0.1:9/d /etc/dnf/dnf.conf",
        r"rpm -qa --qf '%{NAME} %{VERSION}\n' | awk '/nvidia/ && !/dnf-plug/ {print $2}' | sort -u",
        "cat /etc/dnf/modules.d/nvidia-driver.module; grep '^[^#]' /etc/dnf/plugins/versionlock.list | sort",
    )


SYSTEMS = {
    "debian13": _apt("595.71.05", "610.43.02", _DEBIAN_NAMES),
    "ubuntu2404": _apt("580.178.04", "570.211.01", _UBUNTU_NAMES),
    "rocky9": _dnf("580.178.04", "570.211.01"),
}
# The same change the other way round.
BACKWARDS = {
    "debian13": _apt("610.43.02", "595.71.05", _DEBIAN_NAMES),
    "ubuntu2404": _apt("570.211.01", "580.178.04", _UBUNTU_NAMES.replace("570", "580") + " libnvidia-gpucomp-580"),
    "rocky9": _dnf("570.211.01", "580.178.04"),
}
_SCRIPT = """\
export DEBIAN_FRONTEND=noninteractive LC_ALL=C
failed() {{ {program} back --by run --cause "$1 failed"; exit 1; }}
printf '{{"wanted": "{new}", "rollback": "auto"}}' | {program} arm
{change}
{meanwhile}
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
# Once: dates of the future are all that a clock leaves that was set back.
_BREAK["clock"] = (
    _BREAK["after_boot"].replace("[Install]", "ExecStart=/bin/sh /root/clock.sh\\n[Install]")
    + """
cat >/root/clock.sh <<'END'
[ ! -e /root/clock.set ] || exit 0
touch /root/clock.set
find /boot /etc/modprobe.d /lib/modules/*/modules.dep* /usr/src/nvidia-* /var/lib/dkms /var/lib/gpuprep \\
  $(find /lib/modules -name 'nvidia*.ko*') -type f -exec touch -c -d '+1 day' {{}} +
END"""
)
_BREAK.update(dict.fromkeys(("cut_in_back", "killed", "damaged", "foreign_hold", "own_package"), _BREAK["after_boot"]))
# Before the restart, with the packages of the change in place.
_MEANWHILE = {
    "foreign_hold": "apt-mark hold bash || dnf -q -C versionlock add bash",
    "own_package": r"""
if command -v dpkg >/dev/null; then
  mkdir -p /tmp/own/DEBIAN
  part=$(dpkg-query -W -f '${Package} (= ${Version})\n' 'libnvidia-ml1' 'libnvidia-compute-*' | grep -m1 NEW)
  printf '%s\n' 'Package: own-renderer' 'Version: 1' 'Architecture: all' 'Maintainer: x <x@x>' 'Description: x' \
    "Depends: $part" >/tmp/own/DEBIAN/control
  dpkg-deb --build /tmp/own /tmp/own.deb && dpkg -i /tmp/own.deb
else
  printf '%s\n' 'Name: own-renderer' 'Version: 1' 'Release: 1' 'Summary: x' 'License: x' 'BuildArch: noarch' \
    "Requires: libnvidia-ml = $(rpm -q --qf '%{EPOCH}:%{VERSION}' libnvidia-ml)" %description x %files >/tmp/own.spec
  rpmbuild -bb --quiet --define '_rpmdir /tmp' /tmp/own.spec && rpm -i /tmp/noarch/own-renderer-1-1.noarch.rpm
fi
""",
}
_DISOWN = "dpkg -r own-renderer || rpm -e own-renderer"
_REPAIR = (
    "rm -f /etc/dkms/nvidia-*.conf; systemctl disable -q broken 2>/dev/null; rm -f /etc/systemd/system/broken.service;"
    + _INITRAMFS.replace("\n", "; ")
    + "[ ! -e $tool.kept ] || mv $tool.kept $tool; rm -f /root/round.sh"
)
_BEGUN = "until pgrep -f '[G]PUprep::Step' >/dev/null; do systemctl is-active -q round || exit; done"
_KILL = "pkill -9 -f '[G]PUprep::Step'; pkill -9 -x 'dpkg|rpm'"
CUT = "systemctl reboot -ff"  # nothing is ended in order
KILL_UNIT = "systemctl kill --kill-who=main -s KILL gpuprep-driver-check"
# What goes wrong while the host goes back by itself, each once.
BLOWS = {"cut_in_back": [CUT], "killed": [KILL_UNIT, KILL_UNIT]}
# Where the host cannot go back by itself: what it says, and the hand that helps.
STUCK = {
    "damaged": ("has no sound file of", "true"),
    "own_package": ("own-renderer would be removed", _DISOWN),
}
# Why the host goes back, as it says: a round that breaks elsewhere shows nothing.
CAUSES = {
    "package": "the packages failed",
    "dkms": "the packages failed|the module failed",
    "initramfs": "the packages failed|the initramfs failed",
    "twice": "",
    **dict.fromkeys(
        ("after_boot", "cut_in_back", "killed", "damaged", "foreign_hold", "own_package", "clock"), "CUDA|the librar"
    ),
}
_WHY = """\
sed -n 's/^ "cause": "\\(.*\\)",$/\\1/p' /var/lib/gpuprep/driver-before/journal.json ||
  journalctl -u round -o cat --no-pager | sed -n 's/^gpuprep: back: //p'
"""
# The machine is up, and neither the change nor the host's own look is at work.
_IDLE = "systemctl is-system-running | grep -e running -e degraded && ! systemctl is-active round gpuprep-driver-check"
_TRUNCATE = "cd /var/lib/gpuprep/driver-before/packages && set -- $(ls -S) && truncate -s 20000 $1 && rm $2"


def state(machine: str, system: System) -> dict[str, str]:
    """What must be the same after a round, and what it is read from."""
    commands = {
        "versions": system.versions,
        "written": system.written,
        "loaded": "sed -n 's/^NVRM version:.*  \\([0-9.]*\\)  .*/\\1/p' /proc/driver/nvidia/version",
        "on disk": "modinfo -F version nvidia",
        "smi": "nvidia-smi --query-gpu=driver_version --format=csv,noheader",
        "dkms": "dkms status | grep nvidia",
        "modules": "find /lib/modules/ -name 'nvidia*.ko*' | sort",
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
    begin(machine, system, moment)
    if moment in ("package", "restart"):
        inside(machine, _BEGUN, check=False)
        time.sleep(chance.uniform(0, 4))
        inside(machine, _KILL if moment == "package" else CUT, check=False)
    blows = BLOWS.get(moment, []) * chance.choice((1, 1, 2))
    planned = len(blows)
    ended = _wait(machine, chance, blows)
    inside(machine, system.restore_network)
    inside(machine, _REPAIR, check=False)
    why = inside(machine, _WHY, check=False).stdout.strip()
    struck = f", struck {planned - len(blows)} of {planned} times" if planned else ""
    print(f"  {moment}{struck}: {why or ended or 'nothing to go back from'}", flush=True)
    wrong = [] if re.search(CAUSES.get(moment, ""), why) else [f"it broke elsewhere: {why}"]
    if moment in STUCK:
        says, help_ = STUCK[moment]
        said = inside(machine, "cat /var/lib/gpuprep/driver-before/journal.json").stdout
        versions = inside(machine, system.versions).stdout.split()
        if ended != "stuck" or says not in said or system.new not in versions:
            wrong.append(f"ended {ended} with {versions} and said {said}")
        inside(machine, help_)
        ended = back(machine, chance)
    if moment == "twice":
        ended = back(machine, chance) or back(machine, chance)
    if moment == "foreign_hold":
        held = inside(machine, "apt-mark showhold; cat /etc/dnf/plugins/versionlock.list", check=False).stdout
        wrong += [] if "bash" in held else ["the hold of somebody else is gone"]
        inside(machine, "apt-mark unhold bash || dnf -q -C versionlock delete bash")
    after = state(machine, system)
    wrong += [f"{name}: {before[name]!r} ► {after[name]!r}" for name in before if before[name] != after[name]]
    return [*wrong, *([] if ended in ("", "back") else [f"ended {ended}"])]


def begin(machine: str, system: System, moment: str) -> None:
    """The change begins, in a unit of its own."""
    keep(machine)
    inside(machine, system.prepare)
    inside(machine, system.cut)
    if moment == "damaged":
        inside(machine, _TRUNCATE)
    break_at(machine, system, moment)
    meanwhile = _MEANWHILE.get(moment, "").replace("NEW", system.new)
    script = _SCRIPT.format(program=PROGRAM, new=system.new, change=system.change, meanwhile=meanwhile)
    inside(machine, f"cat >/root/round.sh <<'END'\n{script}\nEND")
    inside(machine, "systemd-run -q --unit=round --collect bash /root/round.sh")


def break_at(machine: str, system: System, moment: str) -> None:
    """From now on the change breaks there."""
    if moment in _BREAK:
        inside(machine, _BREAK[moment].format(new=system.new))


def back(machine: str, chance: random.Random) -> str:
    """As `gpuprep rollback` does; the status at the end."""
    inside(machine, f"{PROGRAM} back --by user", check=False)
    return _wait(machine, chance, [])


def _wait(machine: str, chance: random.Random, blows: list[str]) -> str:
    """Until the round is over: the status then."""
    end = time.monotonic() + MOST_SECONDS
    quiet = 0
    while time.monotonic() < end:
        status = _status(machine)
        idle = inside(machine, _IDLE, check=False).exit_code == 0
        if status == "going-back" and blows:
            time.sleep(chance.uniform(0, 15))
            inside(machine, blows.pop(), check=False)
        elif status == "restarting" and idle:
            inside(machine, "systemctl reboot", check=False)
        elif status in ("", "back", "failed", "stuck") and idle:
            quiet += 1
            if quiet > 2:
                return status
        time.sleep(1)
    return f"{_status(machine)} after {MOST_SECONDS} s"


def second_change(machine: str, system: System, other: System, chance: random.Random) -> list[str]:
    """A change that works, then one that does not: the host has the driver of the first, not the oldest."""
    begin(machine, system, "")
    ended = _wait(machine, chance, [])
    inside(machine, system.restore_network)
    if ended or system.new not in inside(machine, "cat /proc/driver/nvidia/version").stdout:
        return [f"the first change ended {ended}"]
    return play(machine, other, "after_boot", chance)


def one(machine: str, base: str, name: str, moment: str, chance: random.Random, profile: str) -> list[str]:
    """A round in a clone of `base`, and what drift says then that it did not say before."""
    with clone(machine, base):
        inside(machine, f"echo '{program()}' | base64 -d >{PROGRAM.split()[-1]}; {PROGRAM} settle")
        if moment == "second_change":
            wrong = second_change(machine, SYSTEMS[name], BACKWARDS[name], chance)
        else:
            wrong = play(machine, SYSTEMS[name], moment, chance)
            said = open_findings(only(gpuprep("drift", f"sim:{machine}", "--profile", profile, "--json")))
            wrong += sorted(said - {"driver.change"})  # that the host went back is said until a run passes
        if wrong:
            print(inside(machine, "journalctl -u gpuprep-driver-check -u round -o cat --no-pager | tail -60").stdout)
        return wrong


@contextmanager
def clone(machine: str, base: str) -> Iterator[None]:
    gpuprep("sim", "down", machine)
    try:
        must("sim", "up", machine, "--clone-of", base, *flags(["t4"]))
        yield
    finally:
        gpuprep("sim", "down", machine)


@cache
def program() -> str:
    collection = ROOT / "ansible_collections/gpuprep/gpu"
    filters = runpy.run_path(str(collection / "plugins/filter/agent.py"))
    return str(filters["rollback_program"](filters["agent_package"](str(collection))))


def main(base: str, name: str, profile: str, seed: int, *moments: str) -> None:
    chance = random.Random(seed)
    if moments[0].isdigit():
        moments = tuple(chance.choice(MOMENTS + OTHERS) for _ in range(int(moments[0])))
    stranded = 0
    for number, moment in enumerate(moments, start=1):
        machine, began = f"{base}-round-{seed}", time.monotonic()
        try:
            wrong = one(machine, base, name, moment, chance, str(Path(profile).resolve()))
        except (AssertionError, ValueError) as error:  # the rounds after it are played
            wrong = [f"it did not end: {error!r}"[:2000]]
        stranded += bool(wrong)
        print(f"{number} {name} {moment}: {'STRANDED ' + '; '.join(wrong) if wrong else 'as before'},"
              f" {time.monotonic() - began:.0f} s", flush=True)  # fmt: skip
    print(f"{len(moments)} rounds on {name} with seed {seed}: {stranded} stranded", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), *sys.argv[5:])
