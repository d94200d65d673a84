"""What did the kernel, the services and the driver's tools of this machine write? `gpuprep doctor` reads it."""

from __future__ import annotations

import platform
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Dict, Union

from gpuprep.agent.facts import packages, runtimesettings
from gpuprep.agent.facts.simulation import source
from gpuprep.agent.programs.run import ReadingFailed, read_text, run
from gpuprep.records import Missing, Source, to_json_value

Text = Union[str, Missing]
# Lines of the kernel's log: of the driver and of those that hold the GPU, of the bus, of modules, memory and disks.
KERNEL = re.compile(
    r"nvrm|nvidia|nouveau|nova.?core|vfio|sxid|aer:|pcie bus error|pciehp|pcieport|\bbar ?\d|lockdown|\bmodule\b|oom|"
    r"out of memory|i/o error|ext4-fs error|xfs|remount|dmar|amd-vi|lockup|bug:|rip:|thermal",
    re.I,
)
MODPROBE = re.compile(r"^(?:install|blacklist|alias|options) (?:nvidia|nouveau|nova)")
QUERY = re.compile(r"licen|recovery action|infoROM is corrupted", re.I)
UNITS = ("nvidia-persistenced", "nvidia-fabricmanager", "nvidia-gridd", "nvidia-imex", "nvidia-cdi-refresh")
DKMS, MAKE_LOGS = Path("/var/lib/dkms"), "nvidia*/*/build/make.log"  # there only while, or after, a build failed
INSTALLER_LOG = "/var/log/nvidia-installer.log"
MOST_LINES = 2000
MOST_BYTES = 4 << 20
SECONDS = 10.0
KERNEL_LINES = "50000"  # of a boot: those of a machine that logs a lot


def measure(arguments: Dict[str, Any]) -> Dict[str, Any]:  # noqa: ARG001  every probe takes them
    """{"texts": {name: text, or Missing}}, each at most MOST_LINES lines. Read-only; takes a second.

    The names are those of the programs: kernel, nvidia-smi, dkms, holds, modprobe, units, make.log,
    nvidia-installer.log; and containers, which has what is wrong with the settings of their engines.
    """
    readers = {
        "kernel": _kernel,
        "nvidia-smi": lambda: _all("nvidia-smi"),
        "nvidia-smi -q": lambda: _matching(_all("nvidia-smi", "-q"), QUERY),
        "dkms": _dkms,
        "holds": _holds,
        "modprobe": lambda: _matching(_all("modprobe", "-c"), MODPROBE),
        "units": _units,
        "make.log": _make_log,
        "containers": lambda: "\n".join(f"facts: {line}" for line in runtimesettings.wrong()),
        "nvidia-installer.log": lambda: read_text(INSTALLER_LOG, MOST_BYTES, follow=False) or "",
    }
    with ThreadPoolExecutor(len(readers)) as pool:
        asked = {name: pool.submit(read) for name, read in readers.items()}
        return {"texts": {name: to_json_value(_end(answer.result())) for name, answer in asked.items()}}


def _end(text: Text) -> Text:
    return text if isinstance(text, Missing) else "\n".join(text.splitlines()[-MOST_LINES:])


def _all(*argv: str) -> Text:
    """What a program says, on stdout and stderr, whatever its exit code is."""
    return run(argv, timeout=SECONDS, accept=range(256), merge_stderr=True)


def _matching(text: Text, pattern: re.Pattern[str]) -> Text:
    if isinstance(text, Missing):
        return text
    return "\n".join(line for line in text.splitlines() if pattern.search(line))


def _kernel() -> Text:
    """The kernel's lines of this boot: all from the journal, or the last of the ring buffer. A container has none."""
    journal = ("journalctl", "--quiet", "--all", "-k", "-b", "--no-pager", "-n", KERNEL_LINES)
    text = run(journal, timeout=SECONDS)
    if (isinstance(text, Missing) or not text.strip()) and source() is not Source.SIMULATED:
        text = run(("dmesg",), timeout=SECONDS)
    return _matching(text, KERNEL)


def _dkms() -> Text:
    status = _all("dkms", "status")
    return status if isinstance(status, Missing) else f"uname -r\n{platform.release()}\n{status}"


def _holds() -> Text:
    """Packages that somebody holds and that are not installed: gpuprep holds what it has installed."""
    try:
        absent = packages.held_absent()
    except ReadingFailed as error:
        return Missing("command_failed", str(error))
    return "\n".join(f"facts: somebody holds {name}, which is not installed" for name in absent)


def _units() -> Text:
    """The last lines of the driver's services that failed."""
    state = _all("systemctl", "is-failed", *UNITS)
    if isinstance(state, Missing):
        return state
    failed = [unit for unit, said in zip(UNITS, state.splitlines()) if said.strip() == "failed"]  # noqa: B905
    if not failed:
        return ""
    named = [word for unit in failed for word in ("-u", unit)]
    return run(("journalctl", "--quiet", "-b", "--no-pager", "-n", "100", *named), timeout=SECONDS)


def _make_log() -> Text:
    """The end of the logs of builds that failed."""
    logs = [read_text(path, MOST_BYTES, follow=False) for path in sorted(DKMS.glob(MAKE_LOGS))[-2:]]
    return "\n".join(text for text in logs if isinstance(text, str))
