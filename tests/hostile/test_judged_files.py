"""Files with the runs of many hosts, for `gpuprep judge`: taken apart in little memory, or refused at once."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuprep import errors
from gpuprep.workflows import record_file

BEGIN = '{"schema_version": 1, "runs": ['
MIB = 1 << 20

ESCAPES = r"""
import re
from gpuprep import errors
from gpuprep.workflows import record_file
text = '{"schema_version": 1, "runs": [{"a": "' + "\\n" * 4_000_000 + '"}]}'
assert len(record_file._each_run(text)) == 1
print(re.search(r"VmHWM:\s+(\d+)", open("/proc/self/status").read())[1])
"""


def test_a_text_of_escapes_costs_no_memory() -> None:
    """A regular expression kept 60 bytes for each: 256 MiB would have been 15 GB."""
    ran = subprocess.run([sys.executable, "-c", ESCAPES], capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 200 * 1024  # KiB


@pytest.mark.parametrize(
    "text",
    [
        BEGIN + '{"a":' * 2_000_000,
        BEGIN + "{}," * 2_000_000 + "{}]}",
        BEGIN + '{"a": "' + "x" * 8 * MIB,
        BEGIN + '{"a": ' + '"\\\n' * 2_000_000,
        BEGIN + '{"a": "\\u12"}]}',
        BEGIN + "{}{}]}",
        BEGIN + "{},,{}]}",
        BEGIN + "{}",
        BEGIN + "}",
    ],
    ids=lambda text: text[len(BEGIN) : len(BEGIN) + 12],
)
def test_what_no_command_wrote_is_left_to_the_limits_of_one_document(text: str) -> None:
    began = time.process_time()
    assert record_file._each_run(text) == []
    assert time.process_time() - began < 40


def test_brackets_in_texts_are_no_brackets() -> None:
    runs = ['{"a": "}]\\"{["}', '{"b": [{"c": "\\\\"}]}']
    assert record_file._each_run(BEGIN + ", ".join(runs) + "]}") == list(enumerate(runs))


@pytest.mark.parametrize(
    "text",
    [
        "=" * 4 * MIB,
        "\n" * 4 * MIB,
        "#" + " \t" * 2 * MIB,
        "| " * 2 * MIB,
        "Running " + "_memcpy" * MIB,
        "nvbandwidth Version: 1\n" + "0: " + "a:" * 2 * MIB,
        "nvbandwidth Version: 1\nRunning x\n\n" + "0 N/A " * MIB,
        "proc'd: Gflop/s" + "errors:" * MIB,
        "proc'd: " + "(1" * 2 * MIB + " Gflop/s",
        "proc'd: Gflop/s\n" + " GPU 1: " * MIB,
        '{"a/b_flops:1": 1}\n' * 200_000,
        "[MiB" * MIB,
    ],
    ids=lambda text: text[:20],
)
def test_what_looks_like_the_output_of_another_tool_is_looked_at_once(tmp_path: Path, text: str) -> None:
    """A regular expression that begins anew at each letter would take hours."""
    path = tmp_path / "output.log"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(errors.UsageError):
        record_file.read(path, ("gemm", "bandwidth"))
