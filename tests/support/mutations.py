"""Real records with a figure changed, each with the verdicts that it may get (cases/mutations.yml says how).

    python tests/support/mutations.py             how many hold, a line a class
    python tests/support/mutations.py NAME ...    what does not hold of these classes

A path leads into the values of a probe: `gpus[*].gemms[dtype=bf16].tflops`; `[*]` is every entry, `[0]` the first,
`[key=value]` those that have it; `{a,b}` is either key.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, cast

import yaml
from measurements_for_tests import H200
from places import TESTS
from validations_for_tests import snapshot

from gpuprep.desired import loading
from gpuprep.desired.profile import Profile
from gpuprep.errors import GpuprepError
from gpuprep.records import Finding, Missing, RunRecord, Source, Status, to_json_value
from gpuprep.workflows.record_file import Recorded, from_figures
from gpuprep.workflows.rejudge import judge

CASES = TESTS / "cases"
REFUSED = "REFUSED"  # exit code 2: the file, or the GPU that it names, is none for this profile
ANY = frozenset({*(status.value for status in (Status.PASS, Status.WARN, Status.FAIL, Status.UNKNOWN)), REFUSED})
NEVER_PASS = ANY - {"PASS"}
WANTED = {"never PASS": NEVER_PASS, "never FAIL": ANY - {"FAIL"}, "no crash": ANY}
ABSENT = object()
PART = re.compile(r"(?P<keys>\w+|\{[\w,]+\})|\[(?P<index>\*|\d+)\]|\[(?P<key>\w+)=(?P<value>[^\]]*)\]")
SECOND_GPU = "GPU-11111111-2222-3333-4444-555555555555"

Place = tuple[Any, ...]  # keys and indices that lead to a value
Change = tuple[Place, Callable[[Any], Any]]


@dataclass(frozen=True)
class Mutation:
    family: str  # the class in mutations.yml
    record: str
    name: str
    wanted: frozenset[str]
    changes: tuple[Change, ...]
    whole: bool = False  # the GPU itself is changed: the file is read from the start, as `gpuprep judge` does

    def document(self) -> dict[str, Any]:
        made = bases()[self.record].document
        for place, change in self.changes:
            made = put(made, place, change)
        return cast("dict[str, Any]", without_absent(made, [place for place, _ in self.changes]))

    def verdict(self) -> str:
        """The worst status, or REFUSED."""
        try:
            judged = self._judged()
        except GpuprepError:
            return REFUSED
        assert judged.verdict is not None
        return judged.verdict.status.value

    def findings(self) -> tuple[Finding, ...]:
        return self._judged().findings

    def _judged(self) -> RunRecord:
        base, document = bases()[self.record], self.document()
        if self.whole:
            return judge(from_figures(document), base.profile)
        values = [one["values"] for one in document["measurements"]]
        told = base.recorded.record.measurements
        results = tuple(dataclasses.replace(one, values=new) for one, new in zip(told, values, strict=True))
        record = dataclasses.replace(base.recorded.record, measurements=results)
        return judge(dataclasses.replace(base.recorded, record=record), base.profile)


@dataclass(frozen=True)
class Base:
    """A record that passes, and how it is judged."""

    document: dict[str, Any]
    recorded: Recorded
    profile: Profile


# ---------------------------------------------------------------- the records


@cache
def bases() -> dict[str, Base]:
    found = {path.stem: of("h200", json.loads(_text(path.stem))) for path in sorted((CASES / "records").glob(REAL))}
    found["h200x2-gemm"] = of("h200", two_gpus(json.loads(_text("h200-gemm"))))
    found |= {f"t4-{one['probe']}": of("t4", one) for one in json.loads(_text("t4-simulated"))}
    return found


REAL = "h200*.json"  # measured on real GPUs, one or two


def of(profile: str, result: dict[str, Any]) -> Base:
    result = _short(result)
    after: dict[str, Any] = {}
    if result["probe"] == "gemm" and profile == "h200":
        after["gpus"] = [_facts(gpu) for gpu in result["values"]["gpus"]]
    if result["probe"] == "cudnn":
        (library,) = (one for one in result["values"]["libraries"] if one["name"] == "cudnn")
        version = ".".join(library["version"].split(".")[:3])
        nothing = {"missing": "not_recorded", "detail": ""}
        after["cudnn"] = {"library_path": library["path"], "version": version, "header_path": nothing,
                          "wheel_version": nothing, "cuda_major": nothing}  # fmt: skip
    if result["probe"] in ("toolkit", "codec"):  # they name no GPU
        after["pci_gpus"] = [{"address": "0000:00:1e.0", "vendor_id": "10de", "device_id": "2335",
                              "class_code": "030200", "driver": "nvidia"}]  # fmt: skip
    document = {"host": profile, "source": result["source"], "measurements": [result], "after": after}
    return Base(document, from_figures(document), loading.load(profile))


def _facts(gpu: dict[str, Any]) -> dict[str, Any]:
    """What NVML reads of the GPU of a real measurement."""
    read = snapshot({**H200, **gpu}, "580.159.03", Source.MEASURED, 1980, 700.0).gpus
    assert not isinstance(read, Missing)
    return cast("dict[str, Any]", to_json_value(read[0]))


def two_gpus(result: dict[str, Any]) -> dict[str, Any]:
    """The products of one real GPU, as if a second one had measured nearly the same: synthetic."""
    first = result["values"]["gpus"][0]
    second = copy.deepcopy(first) | {"index": 1, "uuid": SECOND_GPU}
    for product in second["gemms"]:
        product["tflops"] *= 1.004
        product["microseconds"] /= 1.004
    result["values"]["gpus"].append(second)
    mean = {"dtype": "bf16", "tflops": first["gemms"][0]["sustained"]["tflops"], "graphics_clock_mhz": 1320.0}
    result["values"]["together"] = [{"index": index, **mean} for index in (0, 1)]
    return result


def _text(name: str) -> str:
    return (CASES / f"records/{name}.json").read_text(encoding="utf-8")


def _short(value: Any) -> Any:
    """Without pictures, and with a few readings of telemetry: to judge it thousands of times."""
    if isinstance(value, dict):
        if "hz" in value and isinstance(value.get("seconds"), list):
            return {key: one[::13] if isinstance(one, list) else one for key, one in value.items()}
        return {key: "" if key in ("first_frame", "last_frame") else _short(one) for key, one in value.items()}
    return [_short(one) for one in value] if isinstance(value, list) else value


# ---------------------------------------------------------------- paths


def places(value: Any, path: str, before: Place = ()) -> Iterator[Place]:
    """Where `path` leads in `value`. A last key that is not there is no place."""
    if not path:
        yield before
        return
    part = PART.match(path)
    assert part, path
    rest = path[part.end() :].removeprefix(".")
    for key in _keys(value, part):
        yield from places(value[key], rest, (*before, key))


def _keys(value: Any, part: re.Match[str]) -> Iterator[Any]:
    if keys := part["keys"]:
        names = keys.strip("{}").split(",")
        yield from (name for name in names if isinstance(value, dict) and name in value)
    elif isinstance(value, list):
        for index, one in enumerate(value):
            named = bool(part["key"]) and isinstance(one, dict) and str(one.get(part["key"])) == part["value"]
            if named or part["index"] in ("*", str(index)):
                yield index


def put(value: Any, place: Place, change: Callable[[Any], Any]) -> Any:
    """`value` with what is at `place` changed. Only what leads there is copied: the rest is shared with the original.

    What is removed from a list goes when all changes are made, so that the places of its neighbours stay right.
    """
    if not place:
        return change(value)
    made = copy.copy(value)
    made[place[0]] = put(value[place[0]], place[1:], change)
    return made


def without_absent(value: Any, changed: Sequence[Place]) -> Any:
    """Removes what is ABSENT at the end of the places that were changed; the deepest first, or places would shift."""
    for holder in sorted({place[:-1] for place in changed}, key=len, reverse=True):
        value = put(value, holder, _kept)
    return value


def _kept(holder: Any) -> Any:
    if isinstance(holder, dict):
        return {key: one for key, one in holder.items() if one is not ABSENT}
    return [one for one in holder if one is not ABSENT] if isinstance(holder, list) else holder


# ---------------------------------------------------------------- what is done to a figure

DAMAGES: Mapping[str, Callable[[Any], Any]] = {
    "absent": lambda _: ABSENT,
    "null": lambda _: None,
    "missing": lambda _: {"missing": "not_read", "detail": ""},
    "nan": lambda _: math.nan,
    "infinity": lambda _: math.inf,
    "negative": lambda old: -abs(old) or -1 if _number(old) else -1,
    "huge": lambda _: 1e15,
    "zero": lambda _: 0,
    "text": lambda _: "fast",
    "bool": lambda _: True,
    "nested": lambda old: {"value": old},
    "listed": lambda old: [old],
}


def change_of(said: Any) -> Callable[[Any], Any]:
    """`absent`, {times: 0.7}, {divide: 0.7}, {set: 345}, {bits: 8}, {add: [...]} or {only: readings}."""
    if isinstance(said, str):
        return DAMAGES[said]
    ((what, by),) = said.items()
    if what in ("times", "divide"):
        factor = float(by) if what == "times" else 1 / float(by)
        return lambda old: _times(old, factor) if _number(old) else old
    if what == "set":
        return lambda _: copy.deepcopy(by)
    if what == "bits":  # of a mask, or of half of the readings of one
        return lambda old: [_bits(one, int(by), place) for place, one in enumerate(old)] if isinstance(old, list) else (
            int(old) | int(by))  # fmt: skip
    assert what == "add", said
    return lambda old: [*old, copy.deepcopy(by)]


def _times(old: Any, factor: float) -> Any:
    return round(old * factor) if isinstance(old, int) else old * factor


def _bits(old: Any, bits: int, place: int) -> Any:
    return old if place % 2 or not _number(old) else int(old) | bits


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


# ---------------------------------------------------------------- from the table to mutations


@cache
def table() -> list[dict[str, Any]]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return cast("list[dict[str, Any]]", yaml.load((CASES / "mutations.yml").read_text(encoding="utf-8"), Loader=loader))


@cache
def families() -> dict[str, list[Mutation]]:
    """By class. Pairs of two classes come last, as a class of their own."""
    found: dict[str, list[Mutation]] = {}
    for entry in table():
        made = [one for record in entry["records"] for one in _of_entry(entry, record)]
        assert made, f"{entry['class']}: no record has such a figure"
        found.setdefault(entry["class"], []).extend(_some(made, entry.get("take", len(made))))
    found["two faults at once"] = list(_pairs([one for listed in found.values() for one in listed], hold=False))
    found["two harmless changes at once"] = list(
        _pairs([one for listed in found.values() for one in listed], hold=True)
    )
    return found


def _of_entry(entry: dict[str, Any], record: str) -> Iterator[Mutation]:
    choices = entry.get("for", {})
    for values in itertools.product(*choices.values()):
        filled = _filled(entry, dict(zip(choices, values, strict=True)))
        named = " ".join(f"{key}={value}" for key, value in zip(choices, values, strict=True))
        yield from _each(filled, record) if "each" in filled else _together(filled, record, named)


def _each(entry: dict[str, Any], record: str) -> Iterator[Mutation]:
    """One figure at a time."""
    document = bases()[record].document
    for path in entry["each"]:
        for place in places(document, _rooted(path)):
            old = _at(document, place)
            for said in entry["do"]:
                change = change_of(said)
                if _same(change(old), old):
                    continue
                name = f"{_named(place)} {said if isinstance(said, str) else json.dumps(said)}"
                yield _mutation(entry, record, name, ((place, change),))


def _together(entry: dict[str, Any], record: str, named: str) -> Iterator[Mutation]:
    """All of `all` as one mutation."""
    document = bases()[record].document
    changes = []
    for one in entry["all"]:
        said = one["do"]
        changes += [(place, change_of(said)) for place in places(document, _rooted(one["at"]))]
        added = _added(document, one)
        changes += [added] if added else []
    if any(not _same(change(_at(document, place)), _at(document, place)) for place, change in changes):
        yield _mutation(entry, record, named or json.dumps([one["do"] for one in entry["all"]]), tuple(changes))


def _added(document: Any, one: dict[str, Any]) -> Change | None:
    """A key that the record does not have yet: `{at: published, do: {set: ...}, new: true}`."""
    if not one.get("new"):
        return None
    holder, _, key = _rooted(one["at"]).rpartition(".")
    (place,) = places(document, holder)

    def put_in(old: Any) -> Any:
        return {**old, key: one["do"]["set"]}

    return place, put_in


def _rooted(path: str) -> str:
    return path.removeprefix("/") if path.startswith("/") else f"measurements[0].values.{path}"


def _filled(value: Any, chosen: Mapping[str, Any]) -> Any:
    """`$dtype` in a text is the chosen one; a text that is `$x` alone is the value itself."""
    if isinstance(value, dict):
        return {key: _filled(one, chosen) for key, one in value.items() if key != "for"}
    if isinstance(value, list):
        return [_filled(one, chosen) for one in value]
    if not isinstance(value, str):
        return value
    if value.startswith("$") and value[1:] in chosen:
        return chosen[value[1:]]
    for key, one in chosen.items():
        value = value.replace(f"${key}", str(one))
    return value


def _mutation(entry: dict[str, Any], record: str, name: str, changes: tuple[Change, ...]) -> Mutation:
    want = entry["want"]
    wanted = frozenset(want) if isinstance(want, list) else WANTED[want]
    return Mutation(entry["class"], record, name, wanted, changes, entry.get("whole", False))


def _some(made: list[Mutation], count: int) -> list[Mutation]:
    """`count` of them, from all over the list."""
    step = max(1.0, len(made) / max(1, count))
    return [made[int(place * step)] for place in range(min(count, len(made)))]


PAIRS = 160


def _pairs(singles: list[Mutation], *, hold: bool) -> Iterator[Mutation]:
    """Of two faults one at least shows; two changes that harm nothing do not harm together."""
    chosen = [one for one in singles if one.wanted == {"PASS"}] if hold else [
        one for one in singles if "PASS" not in one.wanted]  # fmt: skip
    by_record: dict[str, list[Mutation]] = {}
    for one in chosen:
        by_record.setdefault(one.record, []).append(one)
    for record, listed in by_record.items():
        share = max(2, PAIRS * len(listed) // len(chosen) // (3 if hold else 1))
        for first, second in zip(_some(listed, share), _some([*listed[7:], *listed[:7]], share), strict=True):
            if _touch(first, second):
                continue
            name = f"{first.family}: {first.name} + {second.family}: {second.name}"
            wanted = frozenset({"PASS"}) if hold else NEVER_PASS
            changes, whole = (*first.changes, *second.changes), first.whole or second.whole
            family = "two harmless changes at once" if hold else "two faults at once"
            yield Mutation(family, record, name, wanted, changes, whole)


def _touch(first: Mutation, second: Mutation) -> bool:
    """Whether one change undoes the other, or removes what the other needs."""
    return any(
        one[: len(two)] == two or two[: len(one)] == one
        for one, _ in first.changes
        for two, _ in second.changes
    )  # fmt: skip


def _at(document: Any, place: Place) -> Any:
    for key in place:
        document = document[key]
    return document


def _same(one: Any, two: Any) -> bool:
    return type(one) is type(two) and bool(one == two)


def _named(place: Place) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place[3:]).lstrip(".")


# ---------------------------------------------------------------- the runner


def failures(mutations: Sequence[Mutation]) -> list[str]:
    """A line for each that does not hold."""
    found = []
    for one in mutations:
        got = one.verdict()
        if got not in one.wanted:
            found.append(f"{one.record}: {one.name}: {got}, wanted {' or '.join(sorted(one.wanted))}")
    return found


@cache
def of_bases() -> dict[str, list[str]]:
    """What keeps a record from passing as it is; such a record tells nothing of its mutations."""
    found = {}
    for name, base in bases().items():
        judged = judge(base.recorded, base.profile).findings
        found[name] = [
            f"{one.key} {one.status.value}: {one.reason}"
            for one in judged
            if one.status not in (Status.PASS, Status.SKIP)
        ]
    return {name: told for name, told in found.items() if told}


def main(names: Sequence[str]) -> None:
    total = held = 0
    for name, told in of_bases().items():
        print(f"{name} does not pass as it is: {'; '.join(told)}")
    for family, mutations in families().items():
        if names and family not in names:
            continue
        wrong = failures(mutations)
        total, held = total + len(mutations), held + len(mutations) - len(wrong)
        print(f"{len(mutations) - len(wrong):5} of {len(mutations):5} hold  {family}", flush=True)
        for line in wrong if names else ():
            print(f"      {line}")
    print(f"{held:5} of {total:5} hold")


if __name__ == "__main__":
    main(sys.argv[1:])
