"""Starts and removes faults on a running machine; faults.yml says what each fault does."""

from __future__ import annotations

import configparser
import functools
import json
import shutil
import time
from collections.abc import Mapping, MutableMapping
from importlib import resources
from pathlib import Path
from typing import Any

import yaml

from gpuprep.errors import SimError
from gpuprep.sim import driver, inside, machine, modprobe, nvmlstate, store, sysfs
from gpuprep.sim.supervisor import SLOW_BOOT

# The pipe has no name when the script ends: a program that logged to it while nobody reads would wait for ever.
# Each line is waited for: journald takes what it reads at once for one.
KERNEL_LOG = """
rm -f /dev/kmsg && mkfifo -m 600 /dev/kmsg
exec 3<>/dev/kmsg
systemctl restart systemd-journald
rm /dev/kmsg
for record; do
  printf '%s\\n' "$record" >&3
  for _ in $(seq 100); do journalctl --quiet -k --no-pager | grep -qF "${record#*;}" && continue 2; sleep 0.05; done
  echo 'journald did not take the line' >&2
  exit 1
done
"""

CLOCK = "clock"  # in the folder run/: seconds that the machine's programs are ahead of its computer (native/preload.c)

# Another archive, with one empty list, beside those that apt reads. $1: its key. $2: its signed index.
ARCHIVE = """
mkdir -p /srv/acme /etc/apt/keyrings
: > /srv/acme/Packages
printf '%s' "$1" > /etc/apt/keyrings/acme.asc
printf '%s' "$2" > /srv/acme/InRelease
echo 'deb [signed-by=/etc/apt/keyrings/acme.asc] file:/srv/acme ./' > /etc/apt/sources.list.d/acme.list
rm -rf /var/lib/apt/lists/*
"""
NO_ARCHIVE = "rm -rf /srv/acme /etc/apt/keyrings/acme.asc /etc/apt/sources.list.d/acme.list"


@functools.cache
def kinds() -> dict[str, dict[str, Any]]:
    text = (resources.files("gpuprep.sim") / "faults.yml").read_text(encoding="utf-8")
    data: dict[str, dict[str, Any]] = yaml.safe_load(text)
    return data


def play(name: str, kind: str, *, gpu: int = 0, clear: bool = False) -> None:
    """Start a fault on a machine, or remove it. Raises SimError for an unknown kind, GPU or machine."""
    if kind not in kinds():
        raise SimError(f"no fault {kind!r}", f"known: {', '.join(kinds())}")
    fault = kinds()[kind]
    run = store.folder(name) / "run"
    if "restart" in fault:  # of a machine that may be off at this moment
        _restart(run, "" if clear else str(fault["restart"]))
        return
    inside.leader(name)
    if fault.keys() & {"gpu", "present", "system"}:
        _nvml(name, run, fault, gpu, clear)
    if fault.get("away"):
        _away(name, run, gpu, clear)
    if fault.get("exchanged"):
        _exchanged(name, run, gpu)
    for file, text in fault.get("pci", {}).items():
        _pci_file(name, gpu, file, None if clear else text)
    if "kernel_log" in fault and not clear:
        _kernel_log(name, run, fault["kernel_log"], gpu)
    script, *given = [fault.get("clear_run" if clear else "run", "")]
    if archive := fault.get("archive"):
        script, *given = [NO_ARCHIVE] if clear else [ARCHIVE, archive["key"], archive["index"]]
    if script:
        done = inside.output(name, ["env", f"GPU={gpu}", "sh", "-es", "--", *given], stdin=script)
        if done.returncode != 0:
            raise SimError(f"the fault {kind} could not be started on {name}: {done.stderr.strip()}")
    if "clock" in fault:
        (run / CLOCK).write_text(f"{0 if clear else fault['clock']}\n")
    if fault.get("boots"):
        machine.down(name, keep=True)
        machine.up(name)
    if "kernel" in fault:
        _kernel(name, run, "" if clear else fault["kernel"])
    if fault.get("loaded_differs"):
        _mismatch(name, run, clear)
    if fault.get("nouveau"):
        _nouveau(store.folder(name), clear)


def _restart(run: Path, seconds: str) -> None:
    if seconds:
        (run / SLOW_BOOT).write_text(seconds)
    else:
        (run / SLOW_BOOT).unlink(missing_ok=True)


def _section(name: str, state: Mapping[str, Any], section: str) -> Any:
    if section not in state or "driver" not in state["system"]:
        number = section.rpartition(".")[2]
        raise SimError(f"{name} has no GPU {number} that a driver drives", "install the driver and reboot first")
    return state[section]


def _nvml(name: str, run: Path, fault: dict[str, Any], gpu: int, clear: bool) -> None:
    with nvmlstate.changed(run / "nvml") as state:
        values = _section(name, state, "system" if "system" in fault else f"gpu.{gpu}")
        put_gpu(values, fault, clear=clear)


def _away(name: str, run: Path, gpu: int, clear: bool) -> None:
    """Takes GPU `gpu` out of NVML and off the PCI bus, or puts back the one that was taken out."""
    devices, kept = store.folder(name) / "sys/bus/pci/devices", run / "away"
    with nvmlstate.changed(run / "nvml") as state:
        if not clear:
            away = dict(_section(name, state, f"gpu.{gpu}"))
            if kept.exists():
                raise SimError(f"a GPU of {name} is away already", "--clear puts it back")
            kept.mkdir()
            (kept / "section.json").write_text(json.dumps(away))
            (devices / nvmlstate.sys_name(away)).rename(kept / nvmlstate.sys_name(away))
            sections = [section for section in _sections(state) if section["index"] != away["index"]]
        else:
            if not kept.exists():
                raise SimError(f"no GPU of {name} is away", f"gpuprep sim fault {name} gpu_missing")
            away = json.loads((kept / "section.json").read_text())
            sections = _sections(state)
            if not (devices / nvmlstate.sys_name(away)).exists():  # a reboot brings it back
                (kept / nvmlstate.sys_name(away)).rename(devices / nvmlstate.sys_name(away))
                sections = sorted([*sections, away], key=lambda section: section["bus_id"])
            shutil.rmtree(kept)
        _number(state, sections)


def _exchanged(name: str, run: Path, gpu: int) -> None:
    """Exchange two GPUs. Starting the fault again, or clearing it, exchanges them back."""
    with nvmlstate.changed(run / "nvml") as state:
        for index in (gpu, gpu + 1):
            _section(name, state, f"gpu.{index}")
        sections = _sections(state)
        sections[gpu], sections[gpu + 1] = sections[gpu + 1], sections[gpu]
        _number(state, sections)


def _sections(state: configparser.ConfigParser) -> list[dict[str, str]]:
    return [dict(state[f"gpu.{index}"]) for index in range(sum(name.startswith("gpu.") for name in state.sections()))]


def _number(state: configparser.ConfigParser, sections: list[dict[str, str]]) -> None:
    """Write these GPUs to the state, numbered in this order."""
    for name in [name for name in state.sections() if name.startswith("gpu.")]:
        state.remove_section(name)
    for index, section in enumerate(sections):
        state[f"gpu.{index}"] = {**section, "index": str(index)}


def _pci_file(name: str, gpu: int, file: str, text: str | None) -> None:
    """A file of the GPU's folder below /sys; without a text, the one of its other link file (max_ for current_)."""
    folder = store.folder(name) / "sys/bus/pci/devices" / _bus_id(name, store.folder(name) / "run", gpu)
    if text is None:
        text = (folder / file.replace("current_", "max_")).read_text().rstrip("\n")
    (folder / file).write_text(text + "\n")


def _bus_id(name: str, run: Path, gpu: int) -> str:
    """As the kernel writes it. Without a driver the GPUs are counted by their slots."""
    with nvmlstate.changed(run / "nvml") as state:
        slots = sorted(path.name for path in (store.folder(name) / "sys/bus/pci/devices").iterdir())
        if "driver" not in state["system"] and gpu < len(slots):
            return slots[gpu]
        return nvmlstate.sys_name(_section(name, state, f"gpu.{gpu}"))


def _kernel_log(name: str, run: Path, text: str, gpu: int) -> None:
    """Lines of the kernel in the machine's journal: journald is given a pipe for the /dev/kmsg that machines lack."""
    bus = _bus_id(name, run, gpu).partition(".")[0] if "{bus}" in text else ""
    # priority, sequence number (journald drops what is not newer), microseconds since the boot, flags
    stamp = time.monotonic_ns() // 1000
    numbered = enumerate(text.format(bus=bus).splitlines(), stamp)
    records = [f"3,{number},{number},-;{line}" for number, line in numbered]
    done = inside.output(name, ["bash", "-es", "--", *records], stdin=KERNEL_LOG)
    if done.returncode != 0:
        raise SimError(f"the kernel log of {name} could not be written: {done.stderr.strip()}")


def put_gpu(section: MutableMapping[str, str], fault: Mapping[str, Any], *, clear: bool) -> None:
    """Puts a fault into the section of a GPU (or of the system) or takes it out."""
    put(section, fault.get("clear", {}) if clear else fault.get("gpu") or fault.get("system") or {})
    present = fault.get("clear_present" if clear else "present", {})
    put(section, {key: value for key, value in present.items() if key in section})


def put(section: MutableMapping[str, str], values: dict[str, Any]) -> None:
    """Puts a fault's values into a section of the state; null takes a key away, a key's name stands for its value.

    A key "kept_..." that is there stays: a fault that is played twice still knows what was there before it. Where it is
    gone, a boot has put back what it kept.
    """
    for key, value in values.items():
        kept_already = key.startswith("kept_") and key in section
        put_back_already = str(value).startswith("kept_") and value not in section
        if value is None:
            section.pop(key, None)
        elif not (kept_already or put_back_already):
            section[key] = section.get(str(value), str(value))


def _kernel(name: str, run: Path, release: str) -> None:
    """The machine runs a kernel that somebody brought: newer than any of the archive's, so the next boot has it too."""
    description = store.read(name)
    options = {key: value for key, value in description.options.items() if key != "kernel"}
    if release:
        options["kernel"] = release
        inside.output(name, ["sh", "-c", f"mkdir -p /lib/modules/{release} && touch /boot/vmlinuz-{release}"])
    elif was := description.options.get("kernel"):
        inside.output(name, ["sh", "-c", f"rm -rf /lib/modules/{was} /boot/vmlinuz-{was}"])
    store.write(store.Description(**{**description.__dict__, "options": options}))
    before = run / "kernel/release.installed"
    current = run / "kernel/release"
    if release and not before.exists():
        before.write_text(current.read_text())
    current.write_text(f"{release}\n" if release else before.read_text() if before.exists() else current.read_text())
    (run / "proc/osrelease").write_text(current.read_text())
    if not release:
        before.unlink(missing_ok=True)


def _mismatch(name: str, run: Path, clear: bool) -> None:
    """The loaded module gets an older version than the libraries have: what is left of an upgrade without a reboot."""
    with nvmlstate.changed(run / "nvml") as state:
        system = state["system"]
        if "driver" not in system:
            raise SimError(f"no driver is loaded in {name}", "install the driver and reboot first")
        installed = system.get("installed_driver", system["driver"])
        if not modprobe.VERSION.fullmatch(installed):
            raise ValueError(f"driver = {installed!r}")
        branch = int(installed.split(".")[0])
        system["driver"] = installed if clear else f"{branch}.54.14"
        system["installed_driver"] = installed
        version = run / "proc/driver/nvidia/version"
        is_open = "Open Kernel Module" in version.read_text()
        version.write_text(driver.version_text(driver.Loaded(system["driver"], is_open, (), {})))


def _nouveau(folder: Path, clear: bool) -> None:
    """/proc/modules is what a snapshot reads, /sys/module what the roles do."""
    modules, version = folder / "run/proc/modules", folder / "sys/module/nvidia/version"
    others = "".join(line for line in modules.read_text().splitlines(keepends=True) if "nouveau" not in line)
    text = others if clear else driver.modules_text(None, True) + others
    modules.write_text(text)
    sysfs.write_modules(folder / "sys/module", text, version.read_text().strip() if version.exists() else "")
