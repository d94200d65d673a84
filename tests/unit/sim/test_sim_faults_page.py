"""docs/faults.md says what sim/faults.yml says; tests/machines/test_faults.py shows that it is true.

GPUPREP_UPDATE_GOLDEN=1 writes the table again.
"""

from __future__ import annotations

import os
import re

import pytest
from places import ROOT

from gpuprep import doctor
from gpuprep.sim import faults

PAGE = ROOT / "docs/faults.md"
MET = {kind: fault["met"] for kind, fault in faults.kinds().items() if "met" in fault}
ENDS = ("retried", "waits", "refused", "fails", "repaired", "goes on")
COMMANDS = ("plan", "extras", "driver", "tune", "validate", "reboot")
HEAD = "| fault | command | ends | remedy | doctor |\n|---|---|---|---|---|\n"


def row(kind: str) -> str:
    met = MET[kind]
    remedy = ", ".join(f"`{command}`" for command in met.get("remedy", ())) or met["person"]
    system = f" ({faults.kinds()[kind]['met'].get('on')})" if met.get("on", "driver") != "driver" else ""
    named = f"`{met['doctor']}`" if "doctor" in met else f"log: `{met['log']}`" if "log" in met else "nothing"
    return f"| `{kind}`: {faults.kinds()[kind]['help']}{system} | {met['by']} | {met['ends']} | {remedy} | {named} |"


def test_the_page_has_every_fault_as_the_data_have_it() -> None:
    text = PAGE.read_text(encoding="utf-8")
    table = HEAD + "".join(f"{row(kind)}\n" for kind in MET)
    before, _, rest = text.partition(HEAD)
    after = re.sub(r"\A(\|.*\n)*", "", rest)
    if os.environ.get("GPUPREP_UPDATE_GOLDEN"):
        PAGE.write_text(before + table + after, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == before + table + after, "GPUPREP_UPDATE_GOLDEN=1 pytest " + __file__


@pytest.mark.parametrize("kind", MET)
def test_a_row_is_whole(kind: str) -> None:
    met = MET[kind]
    assert met.keys() <= {"by", "on", "ends", "says", "remedy", "person", "doctor", "log"}
    assert met["ends"] in ENDS
    assert met["by"] in COMMANDS
    assert met.get("remedy") or met.get("person")
    assert met.get("says") or met["ends"] not in ("refused", "fails")
    named = {met[key] for key in ("doctor", "log") if key in met}
    assert named <= {rule.id for rule in doctor.rules()}
    assert named or met["ends"] not in ("refused", "fails")
