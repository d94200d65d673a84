"""Boards by what a person calls them: a key, a model, a name, a PCI id.

named("a100")                   the boards of a model, and no guess which of them is meant
named("A100 PCIe 40 GB")        one board, by the catalogue's name or by NVML's
named("10de:20b2:147f")         by PCI device id, and subsystem id where one id is several boards
near("a1000")                   what may have been meant
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from gpuprep.catalogue.boards import Board, boards, models

_PCI = re.compile(r"(?:(?:0x)?10de[:/])?(?:0x)?([0-9a-f]{4})(?:[:/](?:10de[:/])?(?:0x)?([0-9a-f]{4}))?")


SIGNS = re.compile(r"[A-Za-z0-9 ._,:/()+-]*")  # of names and ids; others would be passed over
MAKERS_BY_ID = {"1002": "AMD", "1022": "AMD", "8086": "Intel"}
MAKERS_BY_NAME = {
    "AMD": re.compile(r"\b(amd|ati|radeon|instinct|mi[0-9]{2,3}[a-z]?|gfx[0-9]+[a-z]?)\b"),
    "Intel": re.compile(r"\b(intel|arc|gaudi|data center gpu max)\b"),
}


def named(words: str) -> tuple[Board, ...]:
    """All boards that these words may mean, in the catalogue's order; () where nothing fits. Never raises."""
    every = list(boards().values())
    wanted = plain(words)
    if not wanted or not SIGNS.fullmatch(words):
        return ()
    matches = tuple(one for one in every if wanted in map(plain, _names(one)))
    if matches:  # a board may be called as its model is: then it is the first
        return tuple(sorted(matches, key=lambda one: plain(one.key) != wanted))
    pci = _PCI.fullmatch(words.strip().lower())
    if pci:
        matches = tuple(one for one in every if pci[1] in one.pci_device_ids)
        return tuple(one for one in matches if pci[2] in one.subsystem_ids) or matches
    return _by_words(words, every)


def other_maker(words: str) -> str:
    """The maker of a GPU with such a name, if it is not NVIDIA; else ""."""
    lowercase = words.strip().lower()
    vendor = re.match(r"(?:0x)?([0-9a-f]{4})[:/]", lowercase)
    if vendor and vendor[1] in MAKERS_BY_ID:
        return MAKERS_BY_ID[vendor[1]]
    return next((maker for maker, name in MAKERS_BY_NAME.items() if name.search(lowercase)), "")


def near(words: str) -> tuple[str, ...]:
    """Keys of models whose names are like these words, the nearest first; at most three."""
    if other_maker(words):
        return ()
    titles = {plain(model.title): key for key, model in models().items()}
    return tuple(titles[title] for title in get_close_matches(plain(words)[:40], titles, n=3, cutoff=0.5))


def plain(name: str) -> str:
    """Letters and digits alone, without the maker's name: "NVIDIA A100-SXM4-40GB" and "a100 sxm4 40 gb" are alike."""
    joined = re.sub(r"[^a-z0-9]", "", name.lower())
    return joined.removeprefix("nvidia").removeprefix("geforce").removeprefix("tesla")


def _names(board: Board) -> Iterable[str]:
    return board.key, board.model.key, board.model.title, board.name, *board.nvml_names


def _by_words(words: str, every: list[Board]) -> tuple[Board, ...]:
    """Boards whose name has all of these words: "A100 PCIe", "h100 80gb"."""
    wanted = set(_split(words)) - {"nvidia", "geforce", "tesla", "gb", "w"}
    if not any(map(str.isdigit, "".join(wanted))):  # no GPU is called "PCIe" or "Ada"
        return ()
    return tuple(board for board in every if any(wanted <= set(_split(name)) for name in _names(board)))


def _split(name: str) -> list[str]:
    """Words and figures: "80GB" and "80 GB" are two words."""
    return [part for part in re.findall(r"[a-z]*\d+|[a-z]+", name.lower()) if part]
