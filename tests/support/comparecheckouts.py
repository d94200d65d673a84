"""Whether two checkouts of gpuprep print the same: golden plans, judgements, reports of records, and of traces.

    python tests/support/comparecheckouts.py OLD NEW [PART ...]     PART: plans judgements reports traces; default: all

Prints the first difference of each text and ends with 1, or with 0 where there is none. Both run with the Python that
runs this, each with its own gpuprep, tests and data. Masked is what is a time or an id of now, and the checkout's path.
"""

from __future__ import annotations

import difflib
import importlib
import io
import itertools
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import Any

TRACES = (
    "gpt-fp32", "gpt-stacks", "resnet-amp", "sync-item", "copies-pageable", "loader-workers0", "launch-graph",
    "many-kinds", "optimizer-single", "zeros-copied", "../recorded_other_models/fed-pageable",
    "../recorded_third_models/llama-eager",
)  # fmt: skip
FORMATS = ("text", "html", "json", "xlsx", "junit", "markdown")
TABLES = ("ops", "op-types", "kernels", "iterations", "modules", "gpus", "roofs", "advice")
NOW = re.compile(rb"20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?(\.\d+)?(\+00:00|Z| UTC)?|\b20\d{6}-\d{6}-[0-9a-f]{5,6}\b")


def plans() -> Iterator[tuple[str, str]]:
    sys.path.insert(0, "tests/unit/provisioning")
    test_plan = importlib.import_module("test_plan")
    for os_name, host, there in itertools.product(test_plan.OSES, test_plan.HOSTS, test_plan.STATES):
        yield f"{os_name}-{host}-{there}", test_plan.text_of(test_plan.plan_of(host, os_name, there)[1])


def judgements() -> Iterator[tuple[str, str]]:
    """What people published, and each tenth changed record."""
    import mutations

    from gpuprep.records import to_json

    for path, profile in itertools.product(sorted(Path("tests/cases/public/judge").iterdir()), ("base", "h200")):
        yield f"{path.name}-{profile}", _typed("judge", path, "--profile", profile, "--json")
    for number, one in enumerate(itertools.islice(itertools.chain(*mutations.families().values()), 0, None, 10)):
        if one.verdict() != mutations.REFUSED:
            yield f"changed-{number}", one.name + "\n" + "\n".join(to_json(finding) for finding in one.findings())


def reports() -> Iterator[tuple[str, str]]:
    """All formats of the records of tests/support and of changed records, forty in all."""
    import mutations
    import validations_for_tests as validations
    from records_for_tests import record

    from gpuprep import reports as formats
    from gpuprep.workflows.record_file import from_figures
    from gpuprep.workflows.rejudge import judge

    records = [record(), validations.h200(), validations.several(), validations.t4(), validations.real()]
    records += [judge(base.recorded, base.profile) for base in mutations.bases().values()]
    for one in itertools.islice(itertools.chain(*mutations.families().values()), 0, None, 50):
        if len(records) < 40 and one.verdict() != mutations.REFUSED:
            records.append(judge(from_figures(one.document()), mutations.bases()[one.record].profile))
    # A page of hosts is sorted by ids.
    then: dict[str, Any] = {"started_at": "2026-11-20T10:00:00+00:00", "ended_at": "2026-11-20T10:20:00+00:00"}
    records = [replace(run, run_id=f"20261120-100000-{number:05x}", **then) for number, run in enumerate(records)]
    for style in formats.FORMATS:
        for number, run in enumerate(records):
            yield f"{number}.{style}", formats.render(run, style)
    for style in formats.RECORDS:
        yield f"fleet.{style}", formats.render_fleet(records, style, 1)


def traces() -> Iterator[tuple[str, str]]:
    folder = Path("tests/traces/recorded")
    for path in (*(folder / f"{name}.json.gz" for name in TRACES), folder.with_name("recorded_ranks")):
        tables = ("ranks", "collectives", "steps", "notes") if path.is_dir() else TABLES
        options = [("--format", form) for form in FORMATS] + [("--full",)]
        for words in (*options, *(("--format", "csv", "--table", table) for table in tables)):
            yield f"{path.name}.{words[-1]}", _typed("trace", "report", path, *words)
    one, two = folder / "sync-item.json.gz", folder / "sync-none.json.gz"
    for form in ("text", "json", "markdown"):
        yield f"compared.{form}", _typed("trace", "compare", one, two, "--format", form)
    for form in ("text", "json", "junit"):
        yield f"checked.{form}", _typed("trace", "check", one, "--baseline", two, "--format", form)


PARTS = {part.__name__: part for part in (plans, judgements, reports, traces)}


def _typed(*words: str | Path) -> str:
    """What one command line says, what it writes into its --output, and its exit code."""
    from gpuprep.cli import main

    said = io.StringIO()
    with tempfile.NamedTemporaryFile() as file, redirect_stdout(said), redirect_stderr(said):
        try:
            main([*map(str, words), "--quiet", "--output", file.name])
        except SystemExit as ended:
            made = Path(file.name).read_bytes().decode("utf-8", "surrogateescape")
            return f"{made}\n{said.getvalue().replace(file.name, 'FILE')}\nexit code {ended.code}\n"
    raise AssertionError("a command ends with an exit code")


def write(part: str, into: Path) -> None:
    for name, text in PARTS[part]():
        plain = text.encode("utf-8", "surrogateescape").replace(os.fsencode(Path.cwd()), b"CHECKOUT")
        (into / name).write_bytes(NOW.sub(b"NOW", plain))


def differences(part: str, old: Path, new: Path) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as made:
        written = [Path(made, "old"), Path(made, "new")]
        running = []
        for checkout, into in zip((old, new), written, strict=True):
            into.mkdir()
            paths = os.pathsep.join(str(path) for path in (checkout, checkout / "tests" / "support"))
            own = {f"XDG_{name}_HOME": made for name in ("STATE", "CACHE", "CONFIG")}
            environment = {**os.environ, **own, "PYTHONPATH": paths, "COLUMNS": "100"}
            words = [sys.executable, __file__, "--write", part, str(into)]
            running.append(subprocess.Popen(words, cwd=checkout, env=environment))
        if any([process.wait() for process in running]):
            raise SystemExit(f"{part}: a checkout could not write it")
        names = sorted({path.name for folder in written for path in folder.iterdir()})
        print(f"{part}: {len(names)} texts")
        for name in names:
            before, after = (
                path.read_text("utf-8", "backslashreplace") if (path := folder / name).exists() else ""
                for folder in written
            )
            if before != after:
                lines = difflib.unified_diff(before.splitlines(), after.splitlines(), "old", "new", lineterm="", n=0)
                yield "\n".join([f"{part} {name}", *(line[:300] for line in itertools.islice(lines, 12))])


if __name__ == "__main__":
    if sys.argv[1] == "--write":
        sys.path.pop(0)  # the folder of this file: each checkout has its own tests/support
        write(sys.argv[2], Path(sys.argv[3]))
        sys.exit()
    checkouts = [Path(word).resolve() for word in sys.argv[1:3]]
    found = [told for part in sys.argv[3:] or PARTS for told in differences(part, *checkouts)]
    print("\n".join(found) or "no difference")
    sys.exit(bool(found))
