"""What `gpuprep doctor` found: text, JSON, and the files of a bundle for a support ticket."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from gpuprep.doctor import Examined
from gpuprep.records import Source
from gpuprep.records.showable import SIMULATED
from gpuprep.reports.terminal import Page
from gpuprep.untrusted.masking import masked
from gpuprep.untrusted.plaintext import visible

COLORS = {"lost": "FAIL", "unusable": "FAIL", "program": "WARN", "degraded": "WARN", "note": "SKIP"}
# What tells who and where a machine is.
PRIVATE = (
    (re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"), "MAIL"),
    (re.compile(r"\b(?:[\da-f]{2}:){5}[\da-f]{2}\b", re.I), "MAC"),
    (re.compile(r"\b(?:\d{1,3}\.){3}\d{1,3}\b(?!-)"), "ADDRESS"),
    (re.compile(r"\b(?:[\da-f]{1,4}:){3,7}[\da-f]{1,4}\b|\b[\da-f:]+::[\da-f:]*", re.I), "ADDRESS"),
    (re.compile(r"\b(GPU|MIG)-[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}\b", re.I), "UUID"),
    (re.compile(r"(?<=/home/)[^/\s]+"), "USER"),
    (re.compile(r"(?<=serial number: )\S+|(?<=serial number )\S+", re.I), "SERIAL"),
)


def as_text(examined: Sequence[Examined], *, color: bool, width: int) -> str:
    page = Page(color, width)
    for each in examined:
        page.blank()
        _add(page, each)
    return "\n".join(page.lines) + "\n"


def _add(page: Page, examined: Examined) -> None:
    if examined.simulated:
        page.text(SIMULATED)
    about = examined.host or "the log"
    if examined.error:
        page.text(f"{page.paint('UNKNOWN', 'UNKNOWN')}  {about}: {visible(examined.error)}")
    for number, found in enumerate(examined.found, 1):
        page.heading(f"{number}. {found.cause}")
        page.text(f"{found.sure}, {found.id}: {found.source}", "   ")
        page.lines += [f"   | {line}" for line in found.evidence]
        page.text("What to do:", "   ")
        page.lines += [f"     {step}" for step in found.do]
        if found.beware:
            page.text(f"Watch out: {found.beware}", "   ")
    page.blank()
    for name, why in examined.unread.items():
        page.text(f"not read: {name}: {visible(why)}")
    if not examined.error:
        page.text(_last(examined, about))


def _last(examined: Examined, about: str) -> str:
    looked_at = f"looked at: {', '.join(examined.texts)}"
    if examined.found:
        return f"{about}: {len(examined.found)} found, the gravest first; {looked_at}"
    if not examined.host:
        return f"{about}: nothing that gpuprep knows; give the lines around the first error, or a HOST"
    return f"{about}: nothing found; {looked_at}"


def as_json(examined: Sequence[Examined], exit_code: int) -> str:
    from gpuprep.reports.documents import document  # a third of the time that doctor takes

    listed = [
        {
            "host": each.host, "source": (Source.SIMULATED if each.simulated else Source.MEASURED).value,
            "error": each.error or None, "looked_at": list(each.texts), "not_read": dict(each.unread),
            "found": each.found,
        }
        for each in examined
    ]  # fmt: skip
    return document({"examined": listed, "exit_code": exit_code})


def bundle(examined: Sequence[Examined], exit_code: int) -> Iterator[tuple[str, str]]:
    """(name, text) of the files for a support ticket: without passwords, addresses, and names of hosts and users."""
    names = sorted({each.host for each in examined if each.host}, key=len, reverse=True)
    whole = [("report.txt", as_text(examined, color=False, width=100)), ("report.json", as_json(examined, exit_code))]
    for number, each in enumerate(examined, 1):
        whole += [(f"host{number}/{name.replace(' ', '_')}.txt", text) for name, text in each.texts.items()]
    for name, text in whole:
        yield name, _without_names(masked(text), names)


def _without_names(text: str, names: Sequence[str]) -> str:
    for pattern, word in PRIVATE:
        text = pattern.sub(word, text)
    for number, name in enumerate(names, 1):
        for part in dict.fromkeys((name, name.rpartition("@")[2], name.rpartition("@")[2].partition(".")[0])):
            if part not in ("local", "localhost"):
                text = re.sub(rf"(?<![\w.-]){re.escape(part)}(?![\w-])", f"HOST{number}", text)
    return text
