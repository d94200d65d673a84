"""What is wrong with a machine, by what its programs and its kernel wrote? Rules are data: rules/*.yml.

diagnose({"log": text})    what a pasted log says, gravest first
cause(text)                the first cause of it as one line, for the error of a step
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from gpuprep.catalogue import datafile
from gpuprep.catalogue.xids import RECOVERY, xid
from gpuprep.doctor.patterns import Found, Pattern, Text, pattern
from gpuprep.untrusted.plaintext import one_line

GRAVITIES = ("lost", "unusable", "program", "degraded", "note")  # gravest first
SURE = ("confirmed", "likely", "possible")
APT, DNF = "apt", "dnf"
MOST_CHARACTERS = 1 << 20  # of one text; of a longer one its end counts
LONGEST_LINE = 1000
LINES = 3  # of evidence that are quoted
QUOTED = 300  # characters of one of them
NEEDED = ("kernel", "nvidia-smi")  # without one of them "nothing found" says too little
# A line that names an earlier Xid as its cause counts as that one.
XID = re.compile(r"Xid \(PCI:([\da-fA-F:.]{1,20})\): (\d{1,4})\b(?:[^\n]{0,200}caused by previous Xid (\d{1,4}))?")
# As others tell of an Xid: Kubernetes' device plugin, DCGM and its exporter, people.
XID_TOLD = re.compile(
    r"(?:(?<!previous )\bxid(?: (?:critical )?errors?)?(?: code)?[ =:]{1,3}|DCGM_FI_DEV_XID_ERRORS\{[^}\n]{0,900}\} )"
    r"([1-9]\d{0,2})\b(?![.:]\d)",
    re.I,
)
# Lines of the kernel's log that count although the driver works now.
HARDWARE = re.compile(
    r"xid|fallen off|aer:|pcie bus error|link down|dmar|amd-vi|oom|out of memory|lockup|bug:|thermal", re.I
)
NAME = re.compile(r"\{(\w+)\}")
PART = re.compile(r" \([^()]*\{\w+\}[^()]*\)")
OF_GRAVITY = {"fail": "lost", "warn": "degraded", "note": "note"}  # of the catalogue of Xids
SYSTEMS = {
    APT: re.compile(
        r"\b(?:apt(?:-get)?|dpkg|deb|ubuntu|debian|pop!?_os|mint)\b|-(?:generic|amd64|lowlatency)\b|~\d\d\.\d\d\.\d\)",
        re.I,
    ),
    DNF: re.compile(r"\b(?:dnf|yum|rpm|rocky|alma(?:linux)?|centos|fedora|red ?hat|rhel)\b|\.(?:el\d+|fc\d\d)\b", re.I),
}


@dataclass(frozen=True)
class Rule:
    """One cause. Its patterns are regular expressions; a space in them is any white space, also the end of a line.

    any       one of them is there: the evidence
    all       each of them is there, too
    none      none of them is there
    also      one of them makes it confirmed
    do        commands by package manager, "apt" and "dnf", or "any"; {name} is what a pattern found
    symptom   only said where no rule names a cause that is as grave, and after the causes
    """

    id: str
    gravity: str
    sure: str
    any: tuple[Pattern, ...]
    all: tuple[Pattern, ...]
    none: tuple[Pattern, ...]
    also: tuple[Pattern, ...]
    cause: str
    do: Mapping[str, Sequence[str]]
    beware: str
    source: str
    symptom: bool


@dataclass(frozen=True)
class Diagnosis:
    """One thing that is wrong. `evidence` has lines of the texts, quoted and cut; `do` has commands and sentences."""

    id: str
    gravity: str
    sure: str
    cause: str
    evidence: tuple[str, ...]
    do: tuple[str, ...]
    beware: str
    source: str


@dataclass(frozen=True)
class Examined:
    """What was looked at and found on one host, or in one log (then `host` is "")."""

    host: str
    simulated: bool
    texts: Mapping[str, str]
    unread: Mapping[str, str]  # what could not be read: why
    found: tuple[Diagnosis, ...]
    error: str = ""  # why the host could not be examined

    @property
    def exit_code(self) -> int:
        """1: something is wrong. 3: nothing was found, and not all was there to look at. 0: nothing is wrong."""
        if any(each.gravity != GRAVITIES[-1] for each in self.found):
            return 1
        known_too_little = self.error or not self.host or any(name in self.unread for name in NEEDED)
        return 3 if known_too_little else 0


@cache
def rules() -> tuple[Rule, ...]:
    found = []
    for path in sorted((Path(__file__).parent / "rules").glob("*.yml")):
        family = datafile.read(path)
        found += [_rule(row, family["gravity"]) for row in family["rules"]]
    return tuple(found)


def _rule(row: Mapping[str, Any], gravity: str) -> Rule:
    patterns = {name: tuple(map(pattern, row.get(name, ()))) for name in ("any", "all", "none", "also")}
    return Rule(
        row["id"], row.get("gravity", gravity), row.get("sure", "likely"), **patterns, cause=row["cause"], do=row["do"],
        beware=row.get("beware", ""), source=row["source"], symptom=row.get("symptom", False),
    )  # fmt: skip


def diagnose(texts: Mapping[str, str], system: str | None = None) -> list[Diagnosis]:
    """What these texts say, gravest first. `system`: "apt" or "dnf"; None: by the texts themselves."""
    log = "\n".join(_cut(text) for text in texts.values())
    whole = _known_words(log)
    system = system or _system(whole)
    searched = Text.of(whole)
    found = [(rule, matches) for rule in rules() if (matches := _matches(rule, searched))]
    shown = log.split("\n")
    known = [(rule, _diagnosis(rule, matches, whole, shown, system)) for rule, matches in found]
    causes = [diagnosis for rule, diagnosis in known if not rule.symptom]
    causes += _other_xids(whole, shown, causes)
    gravest = min((GRAVITIES.index(each.gravity) for each in causes), default=len(GRAVITIES))
    symptoms = [each for rule, each in known if rule.symptom and GRAVITIES.index(each.gravity) < gravest]
    # What ended a program or the GPU's use explains a symptom, and comes before it; a slower GPU or a note does not.
    explain = [each for each in causes if each.gravity not in GRAVITIES[-2:]]
    others = [each for each in causes if each not in explain]
    return [*sorted(explain, key=rank), *sorted(symptoms, key=rank), *sorted(others, key=rank)]


def cause(text: str, system: str | None = None) -> str:
    """The surest cause that a failed program's output names, with what to do, on one line; "" where none is known."""
    symptoms = {rule.id for rule in rules() if rule.symptom}
    found = diagnose({"log": text}, system)
    known = next((each for each in found if each.sure != SURE[-1] and each.id not in symptoms), None)
    return one_line(f"{known.cause} What helps: {'; '.join(known.do)}") if known else ""


def rank(diagnosis: Diagnosis) -> tuple[int, int]:
    """What comes first: the gravest, and of these the surest."""
    return GRAVITIES.index(diagnosis.gravity), SURE.index(diagnosis.sure)


def _cut(text: str) -> str:
    lines = text[-MOST_CHARACTERS:].replace("\r", "\n").splitlines()
    return "\n".join(line[:LONGEST_LINE] for line in lines)


@cache
def _translations() -> tuple[tuple[str, re.Pattern[str], str], ...]:
    """(a part that is there for sure, the sentence in another language, the sentence that the rules know)."""
    table = datafile.read(Path(__file__).parent / "translations.yml")
    return tuple(
        (max(said.split("%s"), key=len), re.compile(re.escape(said).replace("%s", r"(\S{1,200})"), re.I),
         known.replace("%s", r"\1"))
        for known, others in table.items() for said in others
    )  # fmt: skip


def _known_words(text: str) -> str:
    """In the rules' words: what apt, dpkg, the shell and the C library say in other languages; Xids that are told."""
    for part, said, known in _translations():
        if part in text:
            text = said.sub(known, text)
    return XID_TOLD.sub(r"Xid (PCI:...): \1", text)


def _system(text: str) -> str | None:
    named = [system for system, words in SYSTEMS.items() if words.search(text)]
    return named[0] if len(named) == 1 else None


def _matches(rule: Rule, text: Text) -> list[Found]:
    """Where the rule's evidence stands; [] where the rule does not hold. Confirmed if one of `also` is among them."""
    found = [match for pattern in rule.any if (match := pattern.search(text))]
    if not found or any(pattern.search(text) for pattern in rule.none):
        return []
    others = [pattern.search(text) for pattern in rule.all]
    if not all(others):
        return []
    return found + [match for match in others if match] + [m for pattern in rule.also if (m := pattern.search(text))]


def _diagnosis(rule: Rule, matches: Sequence[Found], text: str, shown: Sequence[str], system: str | None) -> Diagnosis:
    """`shown`: the lines of `text` as the log has them, in its own language."""
    values: dict[str, str] = {}
    for match in matches:
        values = match.groups | values
    second = any(match.pattern in rule.also for match in matches)
    return Diagnosis(
        rule.id, rule.gravity, "confirmed" if second else rule.sure, _filled(rule.cause, values),
        tuple(dict.fromkeys(line for each in matches for line in _quoted(text, shown, each.start, each.end)))[:LINES],
        tuple(_filled(step, values) for step in _steps(rule.do, system)), _filled(rule.beware, values), rule.source,
    )  # fmt: skip


def _quoted(text: str, shown: Sequence[str], start: int, end: int) -> Iterator[str]:
    """The lines of `shown` that stand where text[start:end] does."""
    first = text.count("\n", 0, start)
    for line in shown[first : first + text.count("\n", start, end) + 1]:
        if line.strip():
            yield one_line(line.strip()[:QUOTED])


def _steps(do: Mapping[str, Sequence[str]], system: str | None) -> Iterator[str]:
    if system in do or "any" in do:
        yield from do.get(system or "any", do.get("any", ()))
        return
    for name, steps in do.items():
        yield from (f"{'Debian, Ubuntu' if name == APT else 'RHEL family'}: {step}" for step in steps)


def _filled(text: str, values: Mapping[str, str]) -> str:
    """`text` with what was found. A part in parentheses is left out where something in it is not known."""
    text = PART.sub(lambda part: part[0] if set(NAME.findall(part[0])) <= values.keys() else "", text)
    unknown = {"kernel": "$(uname -r)"}
    return NAME.sub(lambda name: values.get(name[1]) or unknown.get(name[1], name[1].upper()), text)


def _other_xids(text: str, shown: Sequence[str], causes: Sequence[Diagnosis]) -> Iterator[Diagnosis]:
    """Xids for which no rule is written, with the meaning of NVIDIA's catalogue. `shown`: as in _diagnosis."""
    told = {line for each in causes for line in each.evidence}
    codes: dict[int, list[str]] = {}
    for match in XID.finditer(text):
        line = next(_quoted(text, shown, *match.span()))
        if line not in told:
            codes.setdefault(int(match[3] or match[2]), []).append(line)
    covered = {int(known[3] or known[2]) for line in told if (known := XID.search(_known_words(line)))}
    grave = any(xid(code).gravity == "fail" for code in (covered | codes.keys()) - {RECOVERY})
    for code, lines in codes.items():
        if code not in covered:
            meaning = xid(code, lines[-1])
            gravity = "note" if code == RECOVERY and grave else OF_GRAVITY[meaning.gravity]  # it follows that other Xid
            yield Diagnosis(
                f"xid-{code}", gravity, "likely", f"Xid {code}: {meaning.what}.",
                tuple(lines[:LINES]), (meaning.remedy,), "", f"NVIDIA's Xid catalogue, {code}",
            )  # fmt: skip
