"""NVIDIA's container toolkit: is it installed and held, and would a container get this machine's GPUs and driver?"""

from __future__ import annotations

from gpuprep.agent.host_paths import CDI
from gpuprep.checks.common import check, unknown
from gpuprep.checks.installed.driver import holds
from gpuprep.desired.state import Wanted
from gpuprep.records import NOT_READ, ContainerFacts, Finding, Missing, Snapshot

ROLE = "gpu_containers"
GENERATE = f"sudo nvidia-ctk cdi generate --format=json --output={CDI}"
AGAIN = f"`gpuprep provision HOST --profile PROFILE --only containers`; by hand: {GENERATE}"


def findings(wanted: Wanted, snapshot: Snapshot) -> list[Finding]:
    """All findings on containers; [] if the profile asks for no container toolkit."""
    if wanted.containers.toolkit == "none":
        return []
    facts = snapshot.containers
    if isinstance(facts, Missing):
        reading = Missing("not_read", "the agent did not look for it") if facts == NOT_READ else facts
        return [unknown("containers", "toolkit", reading, expected=wanted.containers.toolkit, role=ROLE)]
    ok = facts.toolkit == wanted.containers.toolkit
    expected = wanted.containers.toolkit
    why = (
        f"the container toolkit is {facts.toolkit or 'not installed'}: containers may not get the "
        "GPU as the profile says"
    )
    toolkit = check("containers", "toolkit", facts.toolkit, ok, expected=expected, why=why, role=ROLE)
    if facts.toolkit is None:
        return [toolkit]
    others = wanted.driver.hold or wanted.cuda.hold
    held = holds("containers", wanted.containers.packages, wanted.containers.hold, snapshot, ROLE, emptied=not others)
    return [toolkit, *held, *_specification(snapshot, facts), *_runtimes(facts)]


def _specification(snapshot: Snapshot, facts: ContainerFacts) -> list[Finding]:
    devices = facts.devices
    count = len(snapshot.pci_gpus)
    names = devices if isinstance(devices, tuple) else ()
    wanted = [*map(str, range(count)), *_instances(snapshot), "all"]
    lacking = [name for name in wanted if not _has(names, name)]
    expected, reading = f"{count} GPUs", devices if isinstance(devices, Missing) else len(names)
    shown = f"no {CDI}" if devices is None else f"lacks {', '.join(lacking)}" if lacking else expected
    why = f"a container cannot get these GPUs: {', '.join(lacking)}"
    listed = check(
        "containers", "devices", reading, not lacking, expected=expected, shown=shown, why=why, role=ROLE, remedy=AGAIN
    )
    return [listed, _contents(snapshot, facts)] if isinstance(devices, tuple) else [listed]


def _has(names: tuple[str, ...], name: str) -> bool:
    """Whether a GPU is in the specification; with MIG its parts are: 0:0, 0:1."""
    return name in names or any(device.startswith(f"{name}:") for device in names)


def _instances(snapshot: Snapshot) -> list[str]:
    """The MIG instances that there are, as the toolkit numbers them: GPU and instance."""
    gpus = () if isinstance(snapshot.gpus, Missing) else snapshot.gpus
    return [
        f"{gpu.index}:{number}"
        for gpu in gpus
        if not isinstance(gpu.mig_devices, Missing)
        for number in range(len(gpu.mig_devices))
    ]


def _contents(snapshot: Snapshot, facts: ContainerFacts) -> Finding:
    """Whether the specification fits: its paths exist, and contain the version of the loaded driver."""
    loaded = snapshot.driver.loaded_version
    others = [version for version in facts.drivers if isinstance(loaded, str) and version != loaded]
    if others:
        shown = why = f"libraries of driver {', '.join(others)}, and {loaded} is loaded"
    elif facts.absent:
        more = " and more" if len(facts.absent) > 3 else ""
        shown = why = f"what is not on this machine: {', '.join(facts.absent[:3])}{more}"
    else:
        shown, why = "this machine's", ""
    ok, why = not (others or facts.absent), f"a container with a GPU would be given {why}"
    return check(
        "containers", "specification", len(facts.absent), ok, expected="this machine's", shown=shown, why=why,
        role=ROLE, remedy=AGAIN,
    )  # fmt: skip


def _runtimes(facts: ContainerFacts) -> list[Finding]:
    expected, runtime_findings = "knows NVIDIA's runtime", []
    for runtime in facts.runtimes:
        ok = runtime.configured is True
        shown = expected if ok else "does not know it"
        why = f"{runtime.name} cannot start a container with NVIDIA's runtime: its settings do not name it"
        reading = runtime.configured
        runtime_findings.append(
            check("containers", runtime.name, reading, ok, expected=expected, shown=shown, why=why, role=ROLE)
        )
    return runtime_findings
