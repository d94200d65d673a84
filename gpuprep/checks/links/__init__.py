"""Is the PCIe link of each GPU as it should be? Compares the link under load with the maximum of device and slot.

Half of the maximum of device and slot together is a fault. A slower slot is no fault: the GPU is healthy, but slower
than it could be. If a virtual machine hides the slot, the link is compared with the catalogue's board and with the
machine's other GPUs of that board. An idle link lowers its generation, so only a reading under load counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from gpuprep.catalogue import Board
from gpuprep.catalogue.topologies import is_chip_to_chip, wired_with
from gpuprep.checks.common import skip, unknown
from gpuprep.checks.evidence import Evidence
from gpuprep.records import Finding, Missing, Status
from gpuprep.records.evidence.bandwidth import BandwidthGpu, Pcie

# GB/s of one lane in one direction, after line coding (PCI-SIG: 2.5, 5, 8, 16, 32, 64 GT/s; 8b/10b, then 128b/130b).
LANE_GB_PER_S = {1: 0.25, 2: 0.5, 3: 0.985, 4: 1.969, 5: 3.938, 6: 7.563}
PCIE_MOST = 0.96  # packets have headers: 24 bytes to at most 512 of data; 91 % were reached at most
HALF = 0.53  # a generation less is 0.50 to 0.52 of the next
GENERATIONS, WIDTHS = tuple(LANE_GB_PER_S), (1, 2, 4, 8, 12, 16, 32)  # that PCIe has
MOST_GB_PER_S = max(LANE_GB_PER_S.values()) * max(WIDTHS)  # of any link
PROP = "pcie_link"
AGAIN = "measure again"
RESEAT = "show the provider this report: the slot, the riser or the host's settings limit the link"
OTHER_SLOT = "nothing is wrong with the GPU; where copies to the host matter, ask for a machine with a wider slot"
BARE_METAL = ("none",)
# If systemd-detect-virt names a container, it does not say whether the machine is virtual.
NOT_SAID = ("", "unknown", "docker", "podman", "lxc", "lxc-libvirt", "systemd-nspawn", "rkt", "container-other")


def named(index: int | None) -> str:
    return f"gpu {'?' if index is None else index}"


def carries(generation: int | None, width: int | None) -> float | None:
    """GB/s in one direction; None if generation or width is unknown."""
    lane = LANE_GB_PER_S.get(generation or 0)
    return lane * width if lane and width else None


def rate(link: Pcie | Missing) -> float | None:
    """GB/s of the link in one direction; None if its generation or width is unknown."""
    return None if isinstance(link, Missing) else carries(link.generation, link.width)


@dataclass(frozen=True)
class Way:
    """Generation and number of lanes. None: unknown."""

    generation: int | None
    width: int | None

    @property
    def gb_per_s(self) -> float | None:
        return carries(self.generation, self.width)

    def __str__(self) -> str:
        return f"generation {self.generation or '?'} x{self.width or '?'}"


def generation_of(board: Board | None) -> Way:
    """The board's generation, without lanes: NVML reports x16 for the GPUs of an A16, which have x4."""
    return Way(board.pcie_generation if board else None, None)


def capped(link: Way, board: Board | None) -> Way:
    """The link, limited to the board's maximum: NVML reports x16 for the GPUs of an A16, which have x4."""
    generation, width = (board.pcie_generation, board.pcie_width) if board else (None, None)
    return Way(
        _lower(link.generation, generation) if link.generation else None,
        _lower(link.width, width) if link.width else None,
    )


def impossible(now: Way, read: Iterable[Way], device: Way) -> Iterator[str]:
    """Why a reading of a link is impossible: "a PCIe link of generation 7". Used for all measurements.

    `read`: the maxima that were read with it; `device`: the maximum of the board.
    """
    highest = tuple(read)
    for words, known, is_now, own, most in (
        ("of generation {}", GENERATIONS, now.generation, device.generation, [way.generation for way in highest]),
        ("with {} lanes", WIDTHS, now.width, device.width, [way.width for way in highest]),
    ):
        named_now = words.format("?" if is_now is None else is_now)
        wrong = [limit for limit in most if limit is not None and (limit not in known or limit < (is_now or 0))]
        if is_now and own and is_now > own:
            yield f"a PCIe link {named_now}, and the device has {own}"
        elif wrong:
            yield f"a PCIe link {named_now} now and {wrong[0]} at most"
        elif is_now is not None and is_now not in known:
            yield f"a PCIe link {named_now}"


@dataclass(frozen=True)
class Link:
    """One link: now, device and slot. `slot` has the slot's values only if they are below the device's."""

    now: Way
    device: Way
    slot: Way
    slot_is_known: bool
    hidden: bool  # by a virtual machine

    @property
    def together(self) -> Way:
        """The maximum of device and slot together, as far as known."""
        return Way(_lower(self.device.generation, self.slot.generation), _lower(self.device.width, self.slot.width))


def _lower(one: int | None, other: int | None) -> int | None:
    return min((value for value in (one, other) if value), default=None)


def read(evidence: Evidence, gpu: BandwidthGpu, board: Board | None) -> Link:
    pcie = gpu.pcie if isinstance(gpu.pcie, Pcie) else Pcie()
    now, device, machine = Way(pcie.generation, pcie.width), device_of(pcie, board), evidence.snapshot.virtualization
    # In a virtual machine the hypervisor invents the port above the device (QEMU's: x1, or x32).
    virtual = machine not in BARE_METAL and machine not in NOT_SAID
    port = Way(None, None) if virtual else Way(pcie.slot_generation, pcie.slot_width)
    slot = Way(
        _less(port.generation or pcie.max_generation, now.generation, device.generation),
        _less(port.width or pcie.max_width, now.width, device.width),
    )
    return Link(now, device, slot, bool(port.generation and port.width), hidden=virtual)


def device_of(pcie: Pcie, board: Board | None) -> Way:
    """The device's maximum, from the catalogue if possible: NVML reports x16 for the GPUs of an A16, which have x4."""
    generation, width = (board.pcie_generation, board.pcie_width) if board else (None, None)
    widest = max(pcie.device_width or 0, pcie.max_width or 0) or None
    return Way(generation or pcie.device_generation or pcie.max_generation, width or widest)


def _less(reading: int | None, now: int | None, device: int | None) -> int | None:
    """The slot's maximum if it is below the device's, else None. NVML's maximum is that of device and slot together.

    A maximum below the present value is a wrong reading: None.
    """
    return reading if reading and device and (now or 0) <= reading < device else None


def finding(evidence: Evidence, subject: str, gpu: BandwidthGpu, kin: Sequence[BandwidthGpu]) -> Finding:
    """The finding on generation and width under load. `kin`: the other GPUs of the same board."""
    board = evidence.board(gpu)
    if is_chip_to_chip(board):
        why = "GPU and CPU are joined by NVLink-C2C: NVML's PCIe link says nothing about its speed"
        return skip(subject, PROP, expected="NVLink-C2C", actual=str(read(evidence, gpu, board).now), reason=why)
    link = read(evidence, gpu, board)
    now, best, together = link.now.gb_per_s, link.device.gb_per_s, link.together.gb_per_s
    if now is None or best is None or together is None:
        detail = gpu.pcie.detail if isinstance(gpu.pcie, Missing) else ""
        lacking = Missing("not_recorded", detail or "no generation or no width under load")
        return unknown(
            subject, PROP, lacking, expected="as wide and fast as the device", what="the PCIe link", remedy=AGAIN
        )
    expected, shown = str(link.together), str(link.now)
    if why := _contradiction(gpu, link, now):
        return Finding(subject, PROP, Status.UNKNOWN, expected, shown, why, AGAIN)
    if now >= together:
        return _full(subject, link, expected, shown)
    faults = _faults(link.now, link.together)
    why = f"the PCIe link runs {faults} under load: {now:.1f} of {together:.1f} GB/s"
    status, more = _gravity(board, link, now, together, kin)
    return Finding(subject, PROP, status, expected, shown, why + more, RESEAT)


def _contradiction(gpu: BandwidthGpu, link: Link, now: float) -> str:
    """Why the reading is impossible; "" if it is possible."""
    pcie = gpu.pcie if isinstance(gpu.pcie, Pcie) else Pcie()
    highest = (Way(pcie.max_generation, pcie.max_width), Way(pcie.device_generation, pcie.device_width))
    if why := next(impossible(link.now, highest, link.device), ""):
        return f"{why}: this is another board, or the reading is wrong"
    fastest = max((speed for speed in gpu.host.values() if isinstance(speed, float)), default=0.0)
    if fastest > PCIE_MOST * now:
        return (
            f"copies of {fastest:.1f} GB/s went over a link that carries {now:.1f}: it was read while it was idle,"
            " or the speed is wrong"
        )
    return ""


def _full(subject: str, link: Link, expected: str, shown: str) -> Finding:
    forbidden = _faults(link.together, link.device)
    if not forbidden:
        return Finding(subject, PROP, Status.PASS, expected, shown)
    most, device = link.together.gb_per_s or 0.0, link.device.gb_per_s or 0.0
    why = f"the slot allows {forbidden}: {most:.1f} of the {device:.1f} GB/s that the GPU could do"
    return Finding(subject, PROP, Status.WARN, str(link.device), shown, why, OTHER_SLOT)


def _faults(now: Way, most: Way) -> str:
    """ "x4 of x16 and generation 1 of 3"; "" if nothing is less."""
    faults = []
    if now.width and most.width and now.width < most.width:
        faults.append(f"x{now.width} of x{most.width}")
    if now.generation and most.generation and now.generation < most.generation:
        faults.append(f"generation {now.generation} of {most.generation}")
    return " and ".join(faults)


def _gravity(
    board: Board | None, link: Link, now: float, together: float, kin: Sequence[BandwidthGpu]
) -> tuple[Status, str]:
    """(status of a link below the maximum of device and slot, more text for its finding)."""
    if now > HALF * together:
        return Status.WARN, ""
    others = [other for gpu in kin if (other := rate(gpu.pcie)) is not None]
    if any(now <= HALF * other for other in others) and not link.slot_is_known:
        return Status.FAIL, f"; another GPU of the same board in this machine has {max(others):.1f} GB/s"
    usual = wired_with(board)
    if usual and not link.slot_is_known and carries(link.device.generation, usual.width) == now:
        return Status.WARN, f"; {usual.where} wires this board so, which is no fault"
    if not link.hidden:
        return Status.FAIL, ""
    if now < 0.49 * together:
        return Status.FAIL, ""
    same = "all GPUs of this board are wired so, and " if others else ""
    return Status.WARN, f"; {same}the virtual machine hides the slot, which may allow no more"
