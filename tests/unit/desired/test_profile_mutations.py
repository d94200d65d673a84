"""Profiles broken in hundreds of ways: each is refused with named lines and exit code 2, and nothing ever raises.

Every mutation breaks the profile by construction, so that a mutant which passes is a fault of the reader.
"""

from __future__ import annotations

import random
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import amount
import pytest
import yaml
from commandline import Shell
from hypothesis import given, settings
from hypothesis import strategies as st
from profiletext import problems, write

from gpuprep import errors
from gpuprep.desired import loading, profile

SEEDS = 20
Mutant = tuple[bytes, int]  # the file, and the line that must be named; 0 where several could be

BASE = loading.find("base").read_text(encoding="utf-8")
LINES = BASE.splitlines()
# Lines `key: value` whose key is required: all in base.yml but floors of measurements and lines inside lists.
SCALARS = [i for i, line in enumerate(LINES) if re.match(r"^ *[a-z_]+: [^\[#{]", line)]
# Keys that profiles of earlier versions do not have.
LATER = ("  signing:", "  modules:", "  libraries:")
GARBAGE = ["%%%", "@@ what", "}{", "]", "key without colon", "- stray", "`x`", "\t\tx: 1", "= = =", ": :", "{unclosed"]
# Swapped, both values are impossible in the other's place or in the wrong order.
SWAPS = [
    ("source: distribution", "flavour: auto"),
    ("headers: 12.1.14.0", "ffmpeg: 7.1.5"),
    ("prefix: /opt/gpuprep", "npp: false"),
    ("persistence: true", "clocks: max"),
    ("ecc: keep", "compute_mode: default"),
    ("nvenc: auto", "profiling_counters: open"),
    ("framework: none", "mount: null"),
    ("history_warn_percent: 5", "history_fail_percent: 10"),
    ("gpu_firmware: true", "power_limit_watts: default"),
]
IMPOSSIBLE = [
    ("power_limit_watts: default", "power_limit_watts: -70"),
    ("power_limit_watts: default", "power_limit_watts: 1e3"),
    ("clocks: max", "clocks: {memory_mhz: 5001, graphics_mhz: 0}"),
    ("clocks: max", "clocks: {memory_mhz: 5001, graphics_mhz: 1590, sm_mhz: 1}"),
    ("history_fail_percent: 10", "history_fail_percent: 1000"),
    ("history_fail_percent: 10", "history_fail_percent: .inf"),
    ("prefix: /opt/gpuprep", "prefix: ../gpuprep"),
    ("prefix: /opt/gpuprep", "prefix: /etc"),
    ("version: auto # for CUDA 12", "version: 9.10.2 #"),
    ("version: auto # for CUDA 12", "version: 9.10 #"),
    ("ffmpeg: 7.1.5", "ffmpeg: 7.1"),
    ("headers: 12.1.14.0", "headers: newest"),
    ('at: "02:30"', "at: 12:30"),
    ('at: "02:30"', 'at: "2:30"'),
    ("tools: [python3, gcc, tmux]", "tools: [python3, gcc, gcc]"),
    ("tools: [python3, gcc, tmux]", "tools: [python4]"),
    ("mount: null", "mount: {device: /dev/sdb, path: /, fstype: ext4, options: defaults}"),
    ("mount: null", "mount: /dev/sdb"),
    ("indevs: [lavfi]", "indevs: [lavf]"),
    ("framework: none", "framework: tensorflow2"),
]


def text(lines: list[str]) -> bytes:
    return ("\n".join(lines) + "\n").encode()


def replaced(line: int, new: str) -> list[str]:
    return [*LINES[:line], new, *LINES[line + 1 :]]


def delete_line(rng: random.Random) -> Mutant:
    line = rng.choice([i for i in SCALARS if not LINES[i].startswith(LATER)])
    return text(LINES[:line] + LINES[line + 1 :]), 0


def change_type(rng: random.Random) -> Mutant:
    line = rng.choice([i for i in SCALARS if not LINES[i].strip().startswith("mount")])
    value = rng.choice(["[x]", "{x: y}", "null", "", "1.5e3", "[[]]", "2024-01-01", "yes", "0o17", "~"])
    return text(replaced(line, f"{LINES[line].split(':')[0]}: {value}")), line + 1


def typo_key(rng: random.Random) -> Mutant:
    line = rng.choice(SCALARS)
    key = LINES[line].split(":")[0]
    at = rng.randrange(len(key) - len(key.lstrip()), len(key))
    typo = rng.choice(
        [key[:at] + key[at:].replace(key[at], "", 1), key + rng.choice("sx_1"), key[:at] + "q" + key[at:]]
    )
    if not typo.strip():
        typo = key + "x"
    return text(replaced(line, typo + LINES[line][len(key) :])), line + 1


def duplicate(rng: random.Random) -> Mutant:
    line = rng.choice(SCALARS)
    return text([*LINES[: line + 1], LINES[line], *LINES[line + 1 :]]), line + 2


def indent(rng: random.Random) -> Mutant:
    line = rng.choice([i for i in SCALARS if not LINES[i].strip().startswith("at:")])  # alone in its mapping
    return text(replaced(line, " " + LINES[line])), 0


def insert_tab(rng: random.Random) -> Mutant:
    line = rng.choice([i for i in SCALARS if LINES[i].startswith("  ")])
    return text(replaced(line, "\t" + LINES[line].lstrip())), 0


def insert_garbage(rng: random.Random) -> Mutant:
    line = rng.randrange(2, len(LINES))
    return text([*LINES[:line], rng.choice(GARBAGE), *LINES[line:]]), 0


def swap_values(rng: random.Random) -> Mutant:
    one, other = rng.choice(SWAPS)
    (a, left), (b, right) = one.split(": "), other.split(": ")
    lines = [re.sub(rf"^( *){re.escape(one)}\b", rf"\1{a}: {right}", line) for line in LINES]
    lines = [re.sub(rf"^( *){re.escape(other)}\b", rf"\1{b}: {left}", line) for line in lines]
    return text(lines), 0


def impossible_value(rng: random.Random) -> Mutant:
    old, new = rng.choice(IMPOSSIBLE)
    line = next(i for i, content in enumerate(LINES) if content.strip().startswith(old))
    return text(replaced(line, LINES[line].replace(old, new))), line + 1 if new != "ffmpeg: 7.1" else 0


def truncated(rng: random.Random) -> Mutant:
    return BASE.encode()[: rng.randrange(BASE.index("  at:"))], 0


def binary(rng: random.Random) -> Mutant:
    data = BASE.encode()
    at = rng.randrange(len(data))
    bad = rng.choice(
        [b"\0", b"\xff", b"\xc3\x28", b"\x80", b"\x1b[0m", bytes(rng.randrange(256) for _ in range(64)) + b"\0"]
    )
    return data[:at] + bad + data[at:], 0


def yaml_magic(rng: random.Random) -> Mutant:
    line = rng.choice(SCALARS)
    key, _, value = LINES[line].partition(": ")
    return text(
        replaced(line, f"{key}: {rng.choice(['&a ', '!!str ', '!x ', '*a #', '!!python/name:os.system #'])}{value}")
    ), line + 1


def wrong_parent(rng: random.Random) -> Mutant:
    wish = rng.choice(
        ["t5", "./gone.yml", "./mutant.yml", "[t4]", "{t4: t4}", "12", "yes", "/", "''", "/dev/null", "/dev/zero"]
    )
    return f"description: x\nextends: {wish}\n".encode(), 0 if wish.startswith("/") else 2


MUTATORS: list[Callable[[random.Random], Mutant]] = [
    delete_line,
    change_type,
    typo_key,
    duplicate,
    indent,
    insert_tab,
    insert_garbage,
    swap_values,
    impossible_value,
    truncated,
    binary,
    yaml_magic,
    wrong_parent,
]


@pytest.mark.parametrize("seed", amount.third(range(SEEDS)))
@pytest.mark.parametrize("mutate", MUTATORS, ids=lambda m: m.__name__)
def test_mutant(
    tmp_path: Path, mutate: Callable[[random.Random], Mutant], seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    data, line = mutate(random.Random(f"{mutate.__name__} {seed}"))
    if data == BASE.encode():
        pytest.fail(f"{mutate.__name__} with seed {seed} changed nothing")
    path = tmp_path / "mutant.yml"
    path.write_bytes(data)
    code, out, complained = Shell(capsys)("profiles", "check", str(path))
    told = (out + complained).splitlines()
    assert code == 2, told
    assert told
    last = data.count(b"\n") + 1
    for problem in told:
        named = re.match(rf"^(?:{re.escape(str(path))}|/dev/null|/dev/zero|/):(\d+): [^ ]+: \S", problem)
        assert named, problem
        assert 1 <= int(named[1]) <= last
    if line:
        assert any(problem.startswith(f"{path}:{line}: ") for problem in told), (line, told)


def test_the_unbroken_profile_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mutant.yml"
    path.write_text(BASE, encoding="utf-8")
    assert Shell(capsys)("profiles", "check", str(path)) == (0, f"{path}: ok\n", "")


# ---------------------------------------------------------------- anything at all

YAMLISH = st.text(st.sampled_from("ab:-[]{}&*!|>'\"%@`#,?<\\ \n\t\r0159.~_\u2028\ufeff\x85é"), max_size=80)
SCALAR = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
KEYS = st.sampled_from([*loading.document("t4"), "extends", "version", "hold", "parts", "clocks", "mount", "at"])
VALUE = st.recursive(
    SCALAR, lambda v: st.lists(v, max_size=4) | st.dictionaries(KEYS | st.text(max_size=8), v, max_size=4)
)


@settings(deadline=None, max_examples=amount.examples(300), database=None)
@given(YAMLISH | st.text(max_size=200))
def test_any_text_is_read_or_refused(content: str) -> None:
    assert outcome(content.encode("utf-8", "surrogatepass")) == "as it should be"


@settings(deadline=None, max_examples=amount.examples(200), database=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    assert outcome(content) == "as it should be"


@settings(deadline=None, max_examples=amount.examples(80), database=None)
@given(st.dictionaries(KEYS, VALUE, max_size=6))
def test_any_document_is_a_profile_or_a_profile_error(content: dict[str, Any]) -> None:
    text = yaml.safe_dump({"extends": "t4", **content}, allow_unicode=True)
    assert outcome(text.encode("utf-8", "surrogatepass")) == "as it should be"


def outcome(content: bytes) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "any.yml")
        path.write_bytes(content)
        try:
            made = loading.load(str(path))
        except errors.ProfileError as error:
            lines = content.count(b"\n") + 1
            told = [re.fullmatch(r".*any\.yml:(\d+): .+: .+", problem) for problem in error.problems]
            in_file = all(one and 1 <= int(one[1]) <= lines for one in told)
            return "as it should be" if told and in_file else f"odd lines {error.problems}"
    return "as it should be" if isinstance(made, profile.Profile) else f"a {type(made)}"


def test_line_endings_count_as_lines(tmp_path: Path) -> None:
    for ending in ("\n", "\r\n"):
        text = ending.join(["extends: t4", "description: 'a\u2028\x85b'", "", "driver:", "  hold: 1", ""])
        (line,) = [one for one in problems(write(tmp_path, text)) if "driver.hold" in one]
        assert line.startswith("5: ")
