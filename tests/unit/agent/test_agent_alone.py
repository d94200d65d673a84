"""What the role installs on a host judges there by itself: its own modules, its few libraries, the standard library."""

from __future__ import annotations

import base64
import importlib.util
import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from builders import bare_snapshot, finished_snapshot, good_probes, measured_t4
from places import COLLECTION, ROOT
from programfile import module_of

from gpuprep import checks, records
from gpuprep.checks import drift
from gpuprep.desired import loading, state
from gpuprep.remote import agent_client

# Import names of gpu_agent_libraries; the CUDA bindings are imported inside probes alone.
LIBRARIES = ("yaml", "_yaml", "pynvml", "prometheus_client", "psutil")
T4 = loading.load("t4")
WANTED = state.resolve(T4, bare_snapshot())

IMPORTS = """
import importlib, pathlib, sys
package = pathlib.Path(sys.argv[1], "gpuprep")
names = sorted(".".join(path.relative_to(package.parent).with_suffix("").parts) for path in package.rglob("*.py"))
for name in names:
    if not name.endswith("__main__") and ".probes." not in name:
        importlib.import_module(name.removesuffix(".__init__"))
from gpuprep import nightly
print(len(names))
"""

JUDGES = """
import json, sys
from gpuprep.checks import drift, judgement
from gpuprep.records import ProbeResult, Snapshot, from_json_value, to_json_value
from gpuprep.desired.profile import Thresholds
from gpuprep.desired.state import Wanted
told = json.load(sys.stdin)
wish = from_json_value(Wanted, told["wanted"])
found = drift.findings(
    wish, from_json_value(Snapshot, told["snapshot"]), drift.Past(None, None),
    [from_json_value(ProbeResult, result) for result in told["probed"]],
    asked=told["asked"], thresholds=from_json_value(Thresholds, told["thresholds"]),
)
print(json.dumps({"findings": to_json_value(found), "status": judgement.verdict_of(wish, found).status.value}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle as the role unpacks it, and beside it links to the libraries of gpu_agent_libraries alone."""
    place = tmp_path_factory.mktemp("agent")
    role = module_of(COLLECTION / "plugins/filter/agent.py")
    bundle = base64.b64decode(role.agent_bundle(str(ROOT / "gpuprep")))
    zipfile.ZipFile(io.BytesIO(bundle)).extractall(place)
    for name in LIBRARIES:
        there = importlib.util.find_spec(name)
        assert there is not None
        assert there.origin is not None
        origin = Path(there.origin)
        found = origin.parent if origin.name == "__init__.py" else origin
        (place / found.name).symlink_to(found)
    return place


def alone(installed: Path, program: str, stdin: str = "") -> str:
    """-I and -S: neither the caller's environment nor site-packages; only `installed` and the standard library."""
    paths = f"import sys; sys.path.insert(0, {str(installed)!r})\n"
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-B", "-c", paths + program, str(installed)],
        input=stdin, capture_output=True, text=True, check=False, cwd="/",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_module_of_it_can_be_imported(installed: Path) -> None:
    assert int(alone(installed, IMPORTS)) > 100


def test_it_judges_as_the_controller_does(installed: Path) -> None:
    snapshot = finished_snapshot(WANTED)
    probed = [*good_probes(WANTED), *measured_t4()]
    asked = [result.probe for result in probed]
    here = drift.findings(WANTED, snapshot, drift.Past(None, None), probed, asked=asked, thresholds=T4.thresholds)
    told = {
        "wanted": records.to_json_value(WANTED),
        "snapshot": records.to_json_value(snapshot),
        "probed": records.to_json_value(probed),
        "asked": asked,
        "thresholds": records.to_json_value(T4.thresholds),
    }
    there = json.loads(alone(installed, JUDGES, json.dumps(told)))
    assert there["findings"] == json.loads(records.to_json(here))
    assert there["status"] == "PASS"


def test_a_host_that_differs_fails_there_too(installed: Path) -> None:
    snapshot = records.to_json_value(finished_snapshot(WANTED))
    snapshot["gpus"][0]["persistence_mode"] = False
    told = {"wanted": records.to_json_value(WANTED), "snapshot": snapshot, "probed": [], "asked": [], "thresholds": {}}
    there = json.loads(alone(installed, JUDGES, json.dumps(told)))
    failed = [f"{f['subject']}.{f['property']}" for f in there["findings"] if f["status"] == "FAIL"]
    assert failed == ["gpu 0.persistence_mode"]


def test_what_is_sent_along_to_a_host_without_an_agent_stays_small() -> None:
    with zipfile.ZipFile(io.BytesIO(agent_client.agent_archive())) as archive:
        names = archive.namelist()
    assert checks.__name__.replace(".", "/") not in {str(Path(name).parent) for name in names}
    assert not [name for name in names if name.endswith(".yml") or "nightly" in name or "catalogue" in name]
