"""Which command catches each fault of tests/cases/faults.yml? Each is written into the product, one at a time.

    python tests/support/injectfaults.py [ID...] [--command test|test-machines|test-all] [--list]

The tests run the wheel in .venv, and some read the sources, so a fault is written into both. That is why the checkout
must be clean and `make wheel` must have been run. What stays after `kill -9`, `git checkout .` and `make` put right.
Run `make test` before, without a fault: it has to pass, and it makes the disk that its smoke tests clone.

All faults are tried with `make test`, the rest with `make test-machines`, what is left with `make test-all`, up to
--command. The tests nearest to a fault run first, and the whole command when they pass: they are a part of it, chosen
by the same markers, so this changes when a fault is caught, and not whether. A catch counts only if the failing test
passes again without the fault.

On two cores most faults take a minute or two. One that no near test catches takes as long as the command itself: one
to two hours for --command test, and half an hour or more for each fault that is left for machines. After those the
finished disk that the tests keep is removed: a fault may be in it.
Exit code: 0 all were caught, 1 not all, 2 nothing was tried (one line says why).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import yaml
from places import CASES, ROOT, SUPPORT

PYTHON = ROOT / ".venv/bin/python"
INSTALLED = ROOT / ".venv/.installed"  # where it is not there, `make` installs the wheel anew
NEAR = {
    "trace": ["tests/traces"], "ansible_collections": ["tests/unit/playbooks", "tests/unit/provisioning"],
    "profiles": ["tests/unit/desired"],
}  # fmt: skip
# As in the Makefile. Without -m the markers are those of pyproject.toml.
PYTEST = (
    str(ROOT / ".venv/bin/pytest"), "-n", "2", "--dist", "loadgroup", "--no-loadscope-reorder",
    "--max-worker-restart", "0", "-x", "-q", "-p", "no:cacheprovider",
)  # fmt: skip
MARKERS = {"test": [], "test-machines": ["-m", "machines and not only_all"], "test-all": ["-m", ""]}
PASSED, NOT_FOUND, NO_TESTS = 0, 4, 5  # exit codes of pytest
# A test's name, its case in brackets, the group that xdist adds, and the message.
FAILED = re.compile(r"^(?:FAILED|ERROR) ([^\s\[@]+(?:\[.*?\])?)(?:@\S+)?(?: - .*)?$", re.MULTILINE)
FORGET = "import finished\nfor name in finished.kept():\n    finished.gpuprep('sim', 'down', name)"


class Refused(Exception):
    """Nothing can be tried; the text is one line that says why."""


@dataclass(frozen=True)
class Fault:
    id: str
    file: str
    find: str
    replace: str
    breaks: str
    near: list[str] = field(default_factory=list)

    @property
    def copies(self) -> tuple[Path, Path]:
        """The installed file, and that of the checkout."""
        return package() / self.file.removeprefix("gpuprep/"), ROOT / self.file

    @property
    def nearest(self) -> list[str]:
        top, room, *_ = self.file.split("/")
        room = room if top == "gpuprep" else top
        return [path for path in self.near or NEAR.get(room, [f"tests/unit/{room}"]) if (ROOT / path).exists()]


class Outcome(NamedTuple):
    command: str  # that caught it; "": none did
    words: str  # the first test that failed, or why that is no proof; "": none failed


@cache
def package() -> Path:
    find = "import importlib.util as u; print(u.find_spec('gpuprep').submodule_search_locations[0])"
    return Path(subprocess.run([PYTHON, "-I", "-c", find], capture_output=True, text=True, check=True).stdout.strip())


def load(ids: Sequence[str]) -> list[Fault]:
    """The faults with these ids, all without any. Raises Refused."""
    known = [Fault(**entry) for entry in yaml.safe_load((CASES / "faults.yml").read_text(encoding="utf-8"))]
    for fault in known:
        if (times := (ROOT / fault.file).read_text(encoding="utf-8").count(fault.find)) != 1:
            raise Refused(f"{fault.id}: its text is {times} times in {fault.file}, and has to be there once")
    if unknown := set(ids) - {fault.id for fault in known}:
        raise Refused(f"no such fault: {', '.join(sorted(unknown))}")
    return [fault for fault in known if not ids or fault.id in ids]


def changed() -> str:
    git = ["git", "status", "--porcelain"]
    return subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def check(faults: Sequence[Fault]) -> None:
    """Raises Refused where something could be lost, or a fault would not be in all that the tests run."""
    if text := changed():
        raise Refused(f"the checkout is not clean, so nothing is written into it (git status): {text.splitlines()[0]}")
    if not INSTALLED.exists():
        raise Refused("the wheel is not installed in .venv: run `make wheel`")
    for installed, source in (fault.copies for fault in faults):
        if not installed.is_file() or installed.read_bytes() != source.read_bytes():
            raise Refused(f"{installed} is not as {source}: run `make wheel`")


@contextlib.contextmanager
def injected(fault: Fault) -> Iterator[None]:
    _, source = fault.copies
    before = source.read_bytes()
    try:
        write(fault, before.replace(fault.find.encode(), fault.replace.encode()))
        yield
    finally:
        write(fault, before)


def write(fault: Fault, content: bytes) -> None:
    for path in fault.copies:  # the checkout's last: while it differs, git says that not all is back
        path.write_bytes(content)
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()  # Python takes it for new where size and second are the same


def pytest(command: str, paths: Sequence[str]) -> tuple[int, str]:
    """Exit code and output. An interrupt is passed on, and waited for: pytest ends its machines and servers."""
    environment = {**os.environ, "PYTHONNODEBUGRANGES": "1"}
    if command == "test-all":
        environment["GPUPREP_TEST_ALL"] = "1"
    if command != "test" and paths == ["tests"]:  # a part of them need have no machine
        environment["GPUPREP_REQUIRE_E2E"] = "1"
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
        process = subprocess.Popen(
            [*PYTEST, *MARKERS[command], *paths], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            process.wait()
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                process.wait()
        output.seek(0)
        return process.returncode, output.read()


def tried(fault: Fault, command: str) -> Outcome:
    with injected(fault):
        code, output = pytest(command, fault.nearest) if fault.nearest else (NO_TESTS, "")
        if code in (PASSED, NO_TESTS):
            code, output = pytest(command, ["tests"])
    if code in (PASSED, NO_TESTS):
        return Outcome("", "")
    failed = FAILED.search(output.rpartition("short test summary info")[2])
    if failed is None:
        return Outcome("", f"not a proof: pytest ended with {code} and names no test")
    test = failed[1]
    code, _ = pytest(command, [test])
    if code == NOT_FOUND:  # cases that are made of the product: this one is there with the fault alone
        code, _ = pytest(command, [test.partition("[")[0]])
    if code != PASSED:
        return Outcome("", f"not a proof: {test} fails without the fault, too")
    return Outcome(command, test)


def try_all(faults: Sequence[Fault], last: str) -> dict[str, Outcome]:
    """Prints a line as each is tried. Machines come after all of `make test`, whose kept disk they replace."""
    outcomes: dict[str, Outcome] = {fault.id: Outcome("", "") for fault in faults}
    for command in list(MARKERS)[: list(MARKERS).index(last) + 1]:
        for fault in faults:
            if not outcomes[fault.id].words:
                began = time.monotonic()
                outcomes[fault.id] = tried(fault, command)
                words = outcomes[fault.id].words or "NONE"
                print(f"{fault.id}: make {command}: {words} ({time.monotonic() - began:.0f} s)", flush=True)
    return outcomes


def table(faults: Sequence[Fault], outcomes: dict[str, Outcome]) -> str:
    rows = [("fault", "breaks", "caught by", "first test"), ("---",) * 4]
    for fault in faults:
        command, words = outcomes[fault.id]
        rows.append((fault.id, fault.breaks, f"make {command}" if command else "NONE", words))
    counts = {name: sum(outcome.command == name for outcome in outcomes.values()) for name in MARKERS}
    words = ", ".join(f"make {name} {count}" for name, count in counts.items() if count)
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([*lines, "", f"{sum(counts.values())} of {len(faults)} caught: {words or 'none'}"])


def end(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("ids", nargs="*", metavar="ID", help="faults to try; all without any")
    parser.add_argument("--command", choices=list(MARKERS), default="test-machines", help="the last one to try")
    parser.add_argument("--list", action="store_true", help="show the faults and try none")
    asked = parser.parse_args(arguments)
    try:
        faults = load(asked.ids)
        if asked.list:
            print("\n".join(f"{fault.id}: {fault.file}\n    {fault.breaks}" for fault in faults))
            return 0
        check(faults)
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 2
    for number in (signal.SIGINT, signal.SIGTERM):  # a background job has Ctrl-C ignored, and so would pytest
        signal.signal(number, end)
    INSTALLED.unlink()
    try:
        outcomes = try_all(faults, asked.command)
    finally:
        if not changed():
            INSTALLED.touch()
        if asked.command != "test":
            subprocess.run([PYTHON, "-c", FORGET], cwd=SUPPORT, check=False)
    print(f"\n{table(faults, outcomes)}")
    return 0 if all(outcome.command for outcome in outcomes.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
