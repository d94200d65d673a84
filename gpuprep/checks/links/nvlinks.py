"""Are all wired NVLinks up? The wiring depends on the machine: switches, meshes, bridges, or nothing.

A single GPU of an eight-GPU board may show all of its links or none (a lone GH200). Cards for bridges may have no
bridge. So the expected links are those of the machine that fits the readings (catalogue/topologies.yml), and those of
neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuprep import catalogue
from gpuprep.catalogue import Board, topologies
from gpuprep.catalogue.topologies import Family, Machine
from gpuprep.catalogue.xids import RESET_ALL
from gpuprep.checks.common import skip
from gpuprep.records import Finding, GpuFacts, Missing, Status

PROP = "nvlinks"
EXPECTED = "all up, or none in use"
FABRIC = "look at `systemctl status nvidia-fabricmanager` and `nvidia-smi topo -m`"
LOOK = (
    f"`nvidia-smi nvlink -s` shows them; {RESET_ALL}; with NVSwitches {FABRIC}; if that does not help, show the "
    "provider this"
    " report"
)
BRIDGE = "see that each bridge is pushed in fully and is of the right kind; else show the provider this report"
UNBRIDGED = "this card has no NVLink bridge: cards of this kind are sold with and without a bridge"


# ---------------------------------------------------------------- from the snapshot


def of_gpu(gpu: GpuFacts, gpus: Sequence[GpuFacts], nvswitches: int) -> Finding | None:
    """The finding on the links of one GPU; None if NVML reports no links."""
    if isinstance(gpu.nvlinks, Missing):
        return None
    subject, board = f"gpu {gpu.index}", catalogue.board_of(gpu)
    family = topologies.family(board)
    kin = [other for other in gpus if other is not gpu and other.pci_device_id == gpu.pci_device_id]
    links = [other.nvlinks for other in kin if not isinstance(other.nvlinks, Missing)]
    listed, up = len(gpu.nvlinks), sum(gpu.nvlinks)
    total = max(listed, *map(len, links), 0)  # NVML ends its list at the first link that does not answer
    down = [str(link) for link, state in enumerate(gpu.nvlinks) if not state]
    down += [str(link) for link in range(listed, total)]
    if too_many := _beyond(subject, board, family, listed, up):
        return too_many
    shown, several = f"{up} of {total} up", len(gpus) > 1
    if not total or up == total:
        return Finding(subject, PROP, Status.PASS, EXPECTED, shown)
    same = [sum(states) for states in links]
    if up == 0:
        return _none_up(subject, family, total, shown, same, nvswitches, several=several)
    reason = f"{total - up} of {total} NVLinks are down: {', '.join(down)}"
    if family and family.joined == "mesh" and family.machines:
        return _mesh(subject, family, up, total, shown, reason, same)
    if family and family.joined == "bridge":
        return _bridged(subject, family, up, shown, reason)
    lone = not several and not (family and family.joined == "switch")
    return Finding(subject, PROP, Status.WARN if lone else Status.FAIL, EXPECTED, shown, reason, LOOK)


def _beyond(subject: str, board: Board | None, family: Family | None, listed: int, up: int) -> Finding | None:
    """UNKNOWN if more NVLinks are up than the board has, or more are listed than the chip has; else None."""
    chip = topologies.most_links(board)
    if family and family.links is not None and up > family.links:
        return _too_many(subject, up, family.links)
    return _too_many(subject, listed, chip) if listed > chip else None


def _too_many(subject: str, links: float, most: int | None) -> Finding:
    of_board = "no NVLink" if most == 0 else f"{most} NVLinks" if most else "NVLinks"
    why = f"{links:g} NVLinks are recorded, and the board has {of_board}: the record is wrong, or this is another board"
    return Finding(subject, PROP, Status.UNKNOWN, f"at most {most} NVLinks", f"{links:g}", why, "measure again")


def _none_up(
    subject: str, family: Family | None, total: int, shown: str, others: Sequence[int], nvswitches: int, *,
    several: bool,
) -> Finding:  # fmt: skip
    """The finding if all links are down: normal for a single GPU of a board, without a bridge or without switches."""
    if family and family.joined == "bridge":
        if not any(others):
            return skip(subject, PROP, expected=EXPECTED, actual=shown, reason=UNBRIDGED)
        why = f"{UNBRIDGED}; others in this machine are joined"
        return skip(subject, PROP, expected=EXPECTED, actual=shown, reason=why)
    if not several:
        return Finding(subject, PROP, Status.PASS, EXPECTED, shown, "a GPU alone needs none of its NVLinks")
    if any(others):
        why = f"the GPU has {total} NVLinks and none is up, and other GPUs of this machine have some"
        return Finding(subject, PROP, Status.FAIL, EXPECTED, shown, why, LOOK)
    why = f"the GPU has {total} NVLinks and none is up: GPUs reach each other over PCIe only"
    if nvswitches:
        why += f", although the machine has {nvswitches} NVSwitches"
        return Finding(subject, PROP, Status.FAIL, EXPECTED, shown, why, FABRIC)
    return Finding(subject, PROP, Status.WARN, EXPECTED, shown, why, FABRIC)


def _mesh(subject: str, family: Family, up: int, total: int, shown: str, reason: str, others: Sequence[int]) -> Finding:
    """The finding in a mesh, in which links to absent GPUs are down: half of a cube mesh is a valid machine."""
    if others and up < max(others):
        why = f"{reason}; another GPU of this machine has {max(others)}"
        return Finding(subject, PROP, Status.FAIL, EXPECTED, shown, why, LOOK)
    count = len(others) + 1
    machine = next((machine for machine in family.machines if machine.gpus == count and sum(machine.row) == up), None)
    if machine:
        return Finding(subject, PROP, Status.PASS, EXPECTED, shown, f"as in a machine with {machine.name}")
    whole = any(machine.gpus == count and sum(machine.row) == total for machine in family.machines)
    others_name = "a part of a machine may show no more"
    if whole and others:
        return Finding(subject, PROP, Status.FAIL, EXPECTED, shown, reason, LOOK)
    return Finding(subject, PROP, Status.WARN, EXPECTED, shown, f"{reason}; {others_name}", LOOK)


def _bridged(subject: str, family: Family, up: int, shown: str, reason: str) -> Finding:
    """The finding for bridges: a missing bridge is normal; if only some of its links are up, its contact is bad."""
    if family.bridge_links and up % family.bridge_links == 0:
        why = f"{reason}: the cards have fewer bridges than they could have"
        return Finding(subject, PROP, Status.WARN, EXPECTED, shown, why, BRIDGE)
    return Finding(subject, PROP, Status.FAIL, EXPECTED, shown, f"{reason}: a bridge has no full contact", BRIDGE)


def ends(gpus: Sequence[GpuFacts]) -> list[Finding]:
    """WARN if only one of several cards has a bridge: then its other end is not connected to them."""
    joined = [gpu for gpu in gpus if not isinstance(gpu.nvlinks, Missing) and sum(gpu.nvlinks)]
    if len(joined) != 1 or len(gpus) < 2:
        return []
    family = topologies.family(catalogue.board_of(joined[0]))
    if family and family.joined == "bridge":
        subject = f"gpu {joined[0].index}"
        why = (
            "NVLinks of this GPU are up, but no other GPU of this machine has any: the other ends of these links are "
            "not known"
        )
        return [Finding(subject, "nvlink_end", Status.WARN, "a joined pair", "one end", why, BRIDGE)]
    return []


# ---------------------------------------------------------------- from what was measured between pairs


Rows = Mapping[int, Mapping[int, int]]  # from ► to ► links


def wiring(family: Family, rows: Rows, gpus: int, nvswitches: int, *, some: bool) -> Machine | None:
    """The machine that fits the links between the GPUs of one family best. `some`: there may be more GPUs."""
    seen = {start: tuple(row.values()) for start, row in rows.items()}
    return topologies.machine(family, seen, gpus, nvswitches, some=some)


def of_pair(
    subject: str, family: Family, links: float, back: float | None, machine: Machine | None, *, some: bool
) -> Finding | None:
    """The finding on one pair in one direction. `back`: links of the other direction; `some`: another pair has links.

    None if a pair of this machine may have any number: then all links of a GPU are judged together.
    """
    most = family.links
    if links < 0 or links != int(links) or (most is not None and links > most):
        return _too_many(subject, links, most)
    if family.joined == "none":
        return None
    finding = _as_wired(subject, family, int(links), machine, some=some)
    if back is None or links >= back or (finding and finding.status is Status.FAIL):
        return finding
    why = f"{links:.0f} NVLinks are active in this direction and {back:.0f} in the other"
    return Finding(subject, PROP, Status.FAIL, f"{back:.0f} NVLinks active", f"{links:.0f}", why, LOOK)


def _as_wired(subject: str, family: Family, links: int, machine: Machine | None, *, some: bool) -> Finding | None:
    expected, shown = f"{machine.each} NVLinks active" if machine and machine.each else "as wired", f"{links}"
    if family.joined == "bridge":
        return _bridge_between(subject, family, links, machine, expected, shown)
    if machine is None:
        why = "how many NVLinks join two GPUs of this machine is not known"
        return skip(subject, PROP, expected=expected, actual=shown, reason=why) if links else None
    if machine.each is None:
        return None
    return _between(subject, machine, machine.each, links, expected, shown, some=some)


def _between(
    subject: str, machine: Machine, wanted: int, links: int, expected: str, shown: str, *, some: bool
) -> Finding:
    if links >= wanted:
        return Finding(subject, PROP, Status.PASS, expected, shown)
    if links == 0 and not some:
        why = "no NVLink is active: the GPUs communicate over PCIe, which is many times slower"
        remedy = (
            "ask the provider whether this size of machine has NVLink; with NVSwitches see that Fabric Manager runs"
        )
        return Finding(subject, PROP, Status.WARN, expected, "0", why, remedy)
    why = f"{links} of {wanted} NVLinks are active ({machine.name}): copies between GPUs are slower"
    return Finding(subject, PROP, Status.FAIL, expected, shown, why, f"{LOOK}; else show the provider this report")


def _bridge_between(
    subject: str, family: Family, links: int, machine: Machine | None, expected: str, shown: str
) -> Finding:
    if links == 0:
        return skip(subject, PROP, expected="a bridge, or none", actual=shown, reason="no bridge joins these two cards")
    if machine and machine.each:
        return _between(subject, machine, machine.each, links, expected, shown, some=True)
    most = family.links
    if most is None:
        why = "how many links a bridge of these cards has is not known"
        return skip(subject, PROP, expected="a bridge, or none", actual=shown, reason=why)
    expected = f"{most} NVLinks active"
    if links == most:
        return Finding(subject, PROP, Status.PASS, expected, shown)
    why = f"{links} of {most} NVLinks are active: copies between GPUs are slower"
    if family.bridge_links and links % family.bridge_links == 0:
        why += ": the pair has fewer bridges than it could have"
        return Finding(subject, PROP, Status.WARN, expected, shown, why, BRIDGE)
    return Finding(subject, PROP, Status.FAIL, expected, shown, f"{why}: a bridge has no full contact", BRIDGE)


def of_rows(family: Family, rows: Rows, machine: Machine | None, names: Mapping[int, str]) -> list[Finding]:
    """Findings for a mesh with different pairs: the links of each GPU to all others, the most first."""
    if family.joined != "mesh" or machine is None or machine.each is not None:
        return []
    findings, wanted = [], topologies.wired_row(machine, len(rows))
    expected = f"{', '.join(map(str, wanted))} ({machine.name})"
    for start, row in rows.items():
        seen = sorted(row.values(), reverse=True)
        shown = ", ".join(map(str, seen))
        if not sum(seen):
            why = "no NVLink of this GPU is active: it reaches the others over PCIe"
            status = Status.FAIL if any(sum(other.values()) for other in rows.values()) else Status.WARN
            findings.append(Finding(names[start], "nvlink_row", status, expected, shown, why, LOOK))
        elif any(have < want for have, want in zip(seen, wanted, strict=False)):
            why = f"{sum(seen)} of {sum(wanted)} NVLinks to the other GPUs are active: jobs on several GPUs are slower"
            findings.append(Finding(names[start], "nvlink_row", Status.FAIL, expected, shown, why, LOOK))
        else:
            findings.append(Finding(names[start], "nvlink_row", Status.PASS, expected, shown))
    return findings
