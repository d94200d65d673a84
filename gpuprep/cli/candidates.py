"""The values that Tab offers for a word of the command line: hosts, runs, profiles, steps, GPUs.

Runs at every press of Tab, so it reads little and imports little. It writes nothing, runs nothing and contacts
no host: an inventory is read as text and never executed, a store in PostgreSQL is left alone, a store in SQLite is
opened to read, whatever its version is.

Names come from files and from other machines. Only names of harmless characters are offered: the shell puts a name
on the command line as it is.
"""

from __future__ import annotations

import contextlib
import os
import pkgutil
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import sqlite3

    import click

    from gpuprep.yamlfile.nodes import Node

# No character that a shell, a terminal or a reader could take for something else; "-" not at the begin.
SAFE = re.compile(r"[A-Za-z0-9_./~@:%+][A-Za-z0-9_./~@:%+,=-]{0,254}")
MOST = 300  # candidates in one answer: a shell asks before it shows more
MOST_RUNS = 100
LOOKED_AT = 5000  # names, of whatever source
FILE_BYTES = 1 << 20
SSH_FILES = 50
RANGE = re.compile(r"\[(\d{1,9}|[a-z]):(\d{1,9}|[a-z])(?::(\d{1,4}))?\]")
MOST_OF_RANGE = 1000
STORE_SECONDS = 0.5
# Equal to the lists that commands use, whose import takes longer than all of this: test_completion.py compares.
# Each probe has a judge of its name; to load what it declares takes longer than all of this.
PROBES = sorted(judge.name for judge in pkgutil.iter_modules([str(Path(__file__).parents[1] / "checks" / "judges")]))
DTYPES = ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8")
TABLES = (
    "summary", "advice", "ops", "op-types", "kernels", "iterations", "gpus", "modules", "roofs", "machine", "notes",
    "ranks", "collectives", "steps",
)  # fmt: skip
# Files in an inventory folder that Ansible does not read as inventories.
NOT_INVENTORY = ("~", ".orig", ".bak", ".cfg", ".retry", ".pyc", ".pyo", ".py", ".sh", ".rst", ".md")


@dataclass(frozen=True)
class Candidate:
    value: str
    help: str = ""
    kind: str = "plain"  # or "file", "dir": the shell itself completes paths


@dataclass(frozen=True)
class Asked:
    """The values of the options and arguments that precede the word at the cursor."""

    incomplete: str
    values: Mapping[str, Any]

    def text(self, name: str) -> str:
        value = self.values.get(name)
        return value if isinstance(value, str) else ""


Source = Callable[[Asked], Iterable[Candidate]]


def offered(candidates: Iterable[Candidate], incomplete: str) -> list[Candidate]:
    """The candidates that begin with `incomplete` and are safe to insert: each once, at most MOST."""
    chosen: dict[str, Candidate] = {}
    for looked, candidate in enumerate(candidates):
        if looked >= LOOKED_AT or len(chosen) >= MOST:
            break
        if candidate.kind != "plain" or (candidate.value.startswith(incomplete) and SAFE.fullmatch(candidate.value)):
            chosen.setdefault(f"{candidate.kind} {candidate.value}", candidate)
    return list(chosen.values())


def of(parameter: click.Parameter, path: str) -> Source | None:
    """The source of values for a parameter of the command `path` ("history list"); None if this module has none."""
    metavar = (parameter.metavar or "").strip("[].")
    return BY_PLACE.get(f"{path} {parameter.name}") or BY_WORD.get(metavar or parameter.name or "")


# ---------------------------------------------------------------- hosts


def hosts(asked: Asked) -> Iterator[Candidate]:
    """Values for HOST...: hosts and groups of the inventory of -i, else all host names known on this machine."""
    if inventory := asked.text("inventory"):
        yield from _inventory(inventory)
        return
    user, at, _ = asked.incomplete.rpartition("@")
    if at:
        for alias in ssh_aliases():
            yield Candidate(f"{user}@{alias}", "SSH alias")
        return
    yield Candidate("local", "this machine, without SSH")
    for name in _sim_names():
        yield Candidate(f"sim:{name}", "simulated machine")
    for alias in ssh_aliases():
        yield Candidate(alias, "SSH alias")
    yield from known_hosts(asked)


def known_hosts(asked: Asked) -> Iterator[Candidate]:
    """The hosts that have runs in the store, each looked up by the index of hosts."""
    with _store(asked) as store:
        if store is None:
            return
        last = asked.incomplete
        query = "SELECT host FROM runs WHERE host >= ? ORDER BY host LIMIT 1"
        for _ in range(MOST):
            row = store.execute(query, (last,)).fetchone()
            if row is None or not str(row[0]).startswith(asked.incomplete):
                return
            yield Candidate(str(row[0]), "has recorded runs")
            query = query.replace(">=", ">")
            last = str(row[0])


# This and inventories are read by hand: the readers of paramiko and Ansible take longer to import than all of this.
def ssh_aliases() -> Iterator[str]:
    """Names after `Host` in ~/.ssh/config and what it includes, without patterns."""
    folder = Path.home() / ".ssh"
    left, files = [folder / "config"], 0
    while left and files < SSH_FILES:
        path, files = left.pop(0), files + 1
        for line in _lines(path):
            key, _, value = line.strip().replace("=", " ", 1).partition(" ")
            if key.lower() == "host":
                yield from (name.strip('"') for name in value.split() if not set(name) & set("*?!"))
            elif key.lower() == "include":
                for pattern in value.split()[:SSH_FILES]:
                    left += _globbed(folder, pattern.strip('"'))


def _globbed(folder: Path, pattern: str) -> list[Path]:
    whole = folder / Path(pattern).expanduser()
    return sorted(Path(whole.anchor).glob(str(whole.relative_to(whole.anchor))))[:SSH_FILES]


def _sim_names() -> list[str]:
    from gpuprep.paths import state_dir  # not sim's own, whose import takes longer than all of this

    return sorted(path.parent.name for path in (state_dir() / "sim" / "machines").glob("*/machine.json"))


def sim_machines(_asked: Asked) -> Iterator[Candidate]:
    for name in _sim_names():
        yield Candidate(name, "simulated machine")


# ---------------------------------------------------------------- inventories


def _inventory(inventory: str) -> Iterator[Candidate]:
    """Hosts and groups of an inventory, by reading its files. Scripts and plugins are not run: they may ask a cloud."""
    if "," in inventory:
        yield from (Candidate(name.strip(), "host of -i") for name in inventory.split(","))
        return
    path = Path(inventory).expanduser()
    files = sorted(path.iterdir())[:SSH_FILES] if path.is_dir() else [path]
    yield Candidate("all", "every host of the inventory")
    for file in files:
        if file.name.startswith(".") or file.name.endswith(NOT_INVENTORY) or file.is_dir() or os.access(file, os.X_OK):
            continue
        lines = list(_lines(file))
        content = [line for line in lines if line.strip() and not line.lstrip().startswith("#")]
        is_yaml = file.suffix in (".yml", ".yaml") or (content and re.fullmatch(r"(---|\w[\w-]*:)\s*", content[0]))
        yield from _of_yaml("\n".join(lines), str(file)) if is_yaml else _of_ini(content)


def _of_ini(lines: Sequence[str]) -> Iterator[Candidate]:
    group, kind = "", ""
    for line in lines:
        text = line.strip()
        if text.startswith(";"):
            continue
        if text.startswith("[") and text.endswith("]") and not RANGE.match(text):
            group, _, kind = text[1:-1].partition(":")
            yield Candidate(group, "group")
        elif kind == "children":
            yield Candidate(text.split()[0], "group")
        elif kind != "vars":
            for name in _expanded(text.split()[0]):
                yield Candidate(name, f"host of {group}" if SAFE.fullmatch(group) else "host")


def _of_yaml(text: str, name: str) -> Iterator[Candidate]:
    from gpuprep.yamlfile import reader

    root = reader.parse(text.encode(), name).root
    if root is not None and isinstance(root.value, dict):
        yield from _groups(root.value)


def _groups(groups: Mapping[str, Node]) -> Iterator[Candidate]:
    for group, node in groups.items():
        yield Candidate(group, "group")
        members = node.value if isinstance(node.value, dict) else {}
        listed = members["hosts"].value if "hosts" in members else None
        for pattern in listed if isinstance(listed, dict) else {}:
            for name in _expanded(pattern):
                yield Candidate(name, f"host of {group}" if SAFE.fullmatch(group) else "host")
        children = members["children"].value if "children" in members else None
        if isinstance(children, dict):  # yamlfile limits how deep
            yield from _groups(children)


def _expanded(pattern: str) -> Iterator[str]:
    """gpu[01:03] ► gpu01, gpu02, gpu03, as Ansible does."""
    match = RANGE.search(pattern)
    if not match:
        yield pattern
        return
    first, last, step = match[1], match[2], int(match[3] or 1) or 1
    if first.isdigit() != last.isdigit():
        return
    numbers = range(int(first), int(last) + 1, step) if first.isdigit() else range(ord(first), ord(last) + 1, step)
    for number in numbers[:MOST_OF_RANGE]:
        word = f"{number:0{len(first)}d}" if first.isdigit() else chr(number)
        yield f"{pattern[: match.start()]}{word}{pattern[match.end() :]}"


def _lines(path: Path) -> Iterator[str]:
    """The lines of a regular file of at most FILE_BYTES; no lines for any other path."""
    from gpuprep.untrusted.limits import file_text

    with contextlib.suppress(OSError, ValueError):
        yield from file_text(path, FILE_BYTES, errors="replace").split("\n")


# ---------------------------------------------------------------- the store


def runs(asked: Asked) -> Iterator[Candidate]:
    """Run ids in the store, newest first; if the command line names a host, only the runs of this host."""
    yield Candidate("last", "the newest run")
    host = asked.text("host")
    where = " AND host = ?" if host else ""
    query = (
        "SELECT run_id, host, command, verdict FROM runs WHERE run_id >= ? AND run_id < ?"
        f"{where} ORDER BY started_at DESC, run_id DESC LIMIT {MOST_RUNS}"
    )
    for run, where_run, command, verdict in _rows(asked, query, *([host] if host else [])):
        yield Candidate(run, " ".join(word for word in (command, where_run, verdict) if word))


def _rows(asked: Asked, query: str, *more: str) -> Iterator[list[str]]:
    """Rows of the store. The first two values of the query are the bounds of ids that begin with the typed word."""
    begin = asked.incomplete
    with _store(asked) as store:
        if store is not None:
            for row in store.execute(query, (begin, begin + "\U0010ffff", *more)):
                yield ["" if cell is None else str(cell) for cell in row]


@contextlib.contextmanager
def _store(asked: Asked) -> Iterator[sqlite3.Connection | None]:
    """Open the SQLite store of this command line for reading; None if it does not exist or is on a server."""
    path = _store_path(asked)
    if path is None or not path.is_file():
        yield None
        return
    import sqlite3
    from urllib.parse import quote

    # SQLite makes files beside a store that is written ahead, also for a reader, unless it knows that nobody writes.
    # Where both files are there already, somebody writes now, and they are used as they are.
    beside = all(path.with_name(f"{path.name}-{end}").exists() for end in ("wal", "shm"))
    how = "mode=ro" if beside else "mode=ro&immutable=1"
    connection = sqlite3.connect(f"file:{quote(str(path))}?{how}", uri=True, timeout=STORE_SECONDS)
    ends = time.monotonic() + STORE_SECONDS
    connection.set_progress_handler(lambda: time.monotonic() > ends, 10_000)
    try:
        yield connection
    except sqlite3.Error:  # no store of ours, damaged, or in use: then there is nothing to offer
        return
    finally:
        connection.close()


def _store_path(asked: Asked) -> Path | None:
    from gpuprep import paths

    url = asked.text("store") or os.environ.get("GPUPREP_STORE", "")
    if not url and (paths.config_dir() / "config.yml").is_file():
        from gpuprep import settings
        from gpuprep.errors import GpuprepError

        with contextlib.suppress(GpuprepError):
            url = settings.load().store or ""
    if not url:
        return paths.state_dir() / "history.db"
    kind, separator, name = url.partition(":///")
    return Path(name.partition("?")[0]) if separator and kind.partition("+")[0] == "sqlite" and name else None


# ---------------------------------------------------------------- what gpuprep itself knows


def batches(asked: Asked) -> Iterator[Candidate]:
    """Ids of commands on several hosts, newest first."""
    yield Candidate("last", "the newest command on several hosts")
    query = (
        "SELECT batch_id, min(command), count(*) FROM runs WHERE batch_id >= ? AND batch_id < ?"
        f" GROUP BY batch_id ORDER BY batch_id DESC LIMIT {MOST_RUNS}"
    )
    for batch, command, hosts_of in _rows(asked, query):
        yield Candidate(batch, f"{command}, {hosts_of} hosts")


def profiles(asked: Asked) -> Iterator[Candidate]:
    """Names of profiles, and paths of YAML files."""
    from gpuprep.paths import config_dir, shipped_profiles_dir

    for folder, whose in ((shipped_profiles_dir(), "gpuprep's"), (config_dir() / "profiles", "your own")):
        for path in sorted(folder.glob("*.yml")):
            yield Candidate(path.stem, f"{whose} profile")
    yield from _paths(asked.incomplete, (".yml", ".yaml"))


def _paths(incomplete: str, endings: tuple[str, ...]) -> Iterator[Candidate]:
    """Files with these endings, and folders with a slash behind them, as a shell would complete them."""
    head, slash, begin = incomplete.rpartition("/")
    folder = Path(head + slash).expanduser()
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in sorted(list(entries)[:LOOKED_AT], key=lambda path: path.name):
            if entry.name.startswith(".") and not begin.startswith("."):
                continue
            if entry.is_dir():
                yield Candidate(f"{head}{slash}{entry.name}/", "folder")
            elif entry.name.endswith(endings):
                yield Candidate(f"{head}{slash}{entry.name}", "file")


def gpus(_asked: Asked) -> Iterator[Candidate]:
    """Keys of models and boards, read from gpus.yml line by line: a YAML parser is too slow for completion."""
    section = ""
    seen: set[str] = set()
    for line in _lines(Path(__file__).parent.parent / "catalogue" / "gpus.yml"):
        if match := re.match(r"(\w+):", line):
            section = match[1]
        elif section in ("models", "boards") and (match := re.match(r"  (\w+):", line)) and match[1] not in seen:
            seen.add(match[1])
            yield Candidate(match[1], section.removesuffix("s"))


def models(asked: Asked) -> Iterator[Candidate]:
    """Keys of models alone: a profile is for a model."""
    return (gpu for gpu in gpus(asked) if gpu.help == "model")


def sim_models(_asked: Asked) -> Iterator[Candidate]:
    from gpuprep.sim import gpus as simulated

    yield Candidate("none", "no GPU")
    for name in simulated.models():
        yield Candidate(name, "simulated GPU")


def sim_systems(_asked: Asked) -> Iterator[Candidate]:
    from gpuprep.sim.archive import systems

    for name in systems.systems():
        yield Candidate(name)


def fault_kinds(_asked: Asked) -> Iterator[Candidate]:
    from gpuprep.sim import faults

    for name, data in faults.kinds().items():
        yield Candidate(name, str(data["help"]))


def several(words: Sequence[str]) -> Source:
    """An option that takes a,b: the word after the last comma is completed, and no word twice."""

    def found(asked: Asked) -> Iterator[Candidate]:
        before, comma, _ = asked.incomplete.rpartition(",")
        there = {*before.split(",")}
        for word in words:
            if word not in there:
                yield Candidate(f"{before}{comma}{word}")

    return found


def steps(asked: Asked) -> Iterable[Candidate]:
    from gpuprep.records.recorded_options import STEPS

    return several(STEPS)(asked)


def files(_asked: Asked) -> Iterator[Candidate]:
    yield Candidate("", kind="file")


def rules(_asked: Asked) -> Iterator[Candidate]:
    """Rule ids of `gpuprep trace`, read from rules.yml line by line: a YAML parser is too slow for completion."""
    yield Candidate("all", "every problem")
    path = Path(__file__).parents[1] / "trace" / "advice" / "rules.yml"
    title = ""
    for line in _lines(path):
        if re.fullmatch("[a-z0-9-]+:", line):
            title = line[:-1]
        elif title and line.startswith("  title: "):
            yield Candidate(title, line.removeprefix("  title: "))
            title = ""


def tables(_asked: Asked) -> Iterator[Candidate]:
    for name in TABLES:
        yield Candidate(name)


# By the word that help texts have for a value, or the name of a parameter without one.
BY_WORD: dict[str, Source] = {
    "HOST": hosts,
    "host": known_hosts,
    "BATCH": batches,
    "RUN": runs,
    "run": runs,
    "PROFILE": profiles,
    "NAME|PATH": profiles,
    "STEP": steps,
    "PROBE": several((*PROBES, "facts")),
    "TYPE": several(DTYPES),
    "PATH": files,
    "RULE": rules,
    "TABLE": tables,
    "FILE": files,
}
# Where the same word means something else: "COMMAND parameter".
BY_PLACE: dict[str, Source] = {
    "init name": known_hosts,
    "serve names": known_hosts,
    "profiles new gpus": models,
    "baseline clear probe": several(("gemm", "bandwidth", "throughput")),
    "explain gpu": gpus,
    "history join name": known_hosts,
    "history join other": known_hosts,
    "history part name": known_hosts,
    "status hosts": known_hosts,
    "sim up name": sim_machines,
    "sim up os_name": sim_systems,
    "sim up gpu_names": sim_models,
    "sim up clone_of": sim_machines,
    "sim down names": sim_machines,
    "sim exec name": sim_machines,
    "sim fault name": sim_machines,
    "sim fault kind": fault_kinds,
}
