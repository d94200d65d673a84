"""The man pages: those of the commands as they are now, and pages that man and mandoc read without a complaint.

After a change of a command: `make man`, or GPUPREP_UPDATE_GOLDEN=1 pytest tests/unit/cli/test_manpages.py
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator

import click
import pytest
from places import ROOT
from programfile import module_of

from gpuprep.cli import cli

FOLDER = ROOT / "man"


WRITER = module_of(ROOT / ".ci/manpages.py")


def commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from commands(child, (*path, name))


def test_the_pages_are_those_of_the_commands() -> None:
    made = WRITER.pages()
    if os.environ.get("GPUPREP_UPDATE_GOLDEN") == "1":
        WRITER.main(FOLDER)
    kept = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.1")}
    assert kept == made, "`make man` writes them anew"


def test_every_command_and_option_is_on_its_page() -> None:
    for path, command in commands(cli, ("gpuprep",)):
        page = WRITER.pages()["-".join(path[:2]) + ".1"].replace("\\-", "-")
        assert " ".join(path) in page or "-".join(path) in page
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert f"\\fB{parameter.opts[0]}" in page or f", {parameter.opts[0]}" in page, (path, parameter.opts)


def needed(program: str) -> None:
    if shutil.which(program) is None:
        if os.environ.get("GPUPREP_REQUIRE_E2E") == "1" and program == "mandoc":
            raise AssertionError("mandoc is not installed: `make packages` installs it")
        pytest.skip(f"{program} is not installed")


def test_mandoc_has_no_complaint() -> None:
    needed("mandoc")
    done = subprocess.run(
        ["mandoc", "-T", "lint", *sorted(map(str, FOLDER.glob("*.1")))], capture_output=True, text=True, check=False
    )
    # A date would make two builds of one version differ. The length of lines is of interest to authors alone.
    told = [line for line in done.stdout.splitlines() if "missing date" not in line and "longer than 80" not in line]
    assert told == []


def test_man_has_no_warning() -> None:
    needed("man")
    for path in FOLDER.glob("*.1"):
        done = subprocess.run(
            ["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", str(path)],
            capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80"},
        )  # fmt: skip
        assert (done.returncode, done.stderr) == (0, ""), path


def test_a_page_reads_as_the_help_does() -> None:
    needed("man")
    done = subprocess.run(
        ["man", "-P", "cat", "-l", str(FOLDER / "gpuprep-drift.1")],
        capture_output=True, text=True, check=True, env={**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "100"},
    )  # fmt: skip
    text = " ".join(re.sub(".\x08", "", done.stdout).split())
    assert "gpuprep drift COMMAND [ARGS]..." in text
    assert "-i, --inventory PATH Ansible inventory (file, folder or plugin)." in text
    assert "GPUPREP DRIFT SCHEDULE" in text


def test_text_that_roff_would_take_for_a_request_stays_text() -> None:
    @click.command()
    @click.option("--x", help=".sh rm -rf / \\fBnot bold\\fR 'and' `this -x`.")
    def example(x: str) -> None:
        """First.

        .so /etc/passwd

        \b
        'nf
          kept   as it is
        """

    page = WRITER._page(click.Context(example, info_name="example", parent=click.Context(cli, info_name="gpuprep")))
    lines = page.splitlines()
    requests = {line.split()[0] for line in lines if line.startswith((".", "'"))}
    assert requests <= {'.\\"', ".TH", ".SH", ".SS", ".PP", ".TP", ".nf", ".fi", ".br"}
    assert "\\&.so /etc/passwd" in lines
    assert "\\&'nf" in lines
    assert any("\\efBnot bold\\efR" in line and "\\fBthis \\-x\\fR" in line for line in lines)
