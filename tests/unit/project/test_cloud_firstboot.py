"""The program of docs/cloud/user-data.yaml as it is. Folders and pause are the test's; gpuprep and systemctl play.

The whole of it, with cloud-init and gpuprep themselves, is in tests/machines/test_first_boot.py.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from places import ROOT

from gpuprep import __version__, records

USER_DATA = ROOT / "docs/cloud/user-data.yaml"
FILES = {file["path"]: file for file in yaml.safe_load(USER_DATA.read_text(encoding="utf-8"))["write_files"]}
PROGRAM, UNIT, CONF = (
    "/usr/local/sbin/gpuprep-first-boot",
    "/etc/systemd/system/gpuprep-first-boot.service",
    "/etc/gpuprep/first-boot.conf",
)
REBOOT = "local: step 'x' failed: A reboot is needed, and is not allowed: the driver is installed and not loaded"
MOST_REPORT = 64 << 10
# Each call takes the first of the answers that are left: its exit code in one line, what it says in the others.
PLAYED = """\
#!/bin/sh
echo "$1" >>"$HOME/called"
answer=$(ls "$HOME/answers" | head -n 1)
[ -n "$answer" ] || exit 99
mv "$HOME/answers/$answer" "$HOME/said"
tail -n +2 "$HOME/said"
exit "$(head -n 1 "$HOME/said")"
"""


class Home(BaseHTTPRequestHandler):
    """Who is phoned: answers with the codes of the server, and keeps what it was told."""

    server: Phone

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        assert length < MOST_REPORT
        self.server.told.append(json.loads(self.rfile.read(length)))
        self.send_response(self.server.codes.pop(0))
        self.send_header("Location", "/elsewhere")
        self.end_headers()

    def do_GET(self) -> None:
        raise AssertionError("a redirect was followed")

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Phone(HTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Home)
        self.codes: list[int] = []
        self.told: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/first-boot?token=s3cret"


@pytest.fixture
def phone() -> Iterator[Phone]:
    with Phone() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


@dataclass
class Machine:
    """A machine after cloud-init, on which gpuprep is installed already."""

    folder: Path
    url: str = ""
    said: str = field(default="", init=False)

    def __post_init__(self) -> None:
        text = FILES[PROGRAM]["content"].replace("PAUSE = 60 ", "PAUSE = 0 ")
        for path in ("/var/lib/gpuprep", "/opt/gpuprep/controller", "/var/lib/cloud/data"):
            assert text.count(f'"{path}') == 1
            text = text.replace(f'"{path}', f'"{self.folder}{path}')
        self._write("program", text)
        self._write("opt/gpuprep/controller/bin/gpuprep", PLAYED)
        self._write("bin/systemctl", '#!/bin/sh\necho "$@" >>"$HOME/systemctl"\nexit $(cat "$HOME/systemctl.code")\n')
        self._write("systemctl.code", "0\n")
        (self.folder / "answers").mkdir()

    def _write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    @property
    def path(self) -> Path:
        return self.folder / "var/lib/gpuprep/first-boot.json"

    def report(self) -> dict[str, Any]:
        assert self.path.stat().st_size < MOST_REPORT
        report = json.loads(self.path.read_text())
        assert isinstance(report, dict)
        return report

    def answers(self, *answers: tuple[int, object]) -> None:
        """What gpuprep is going to answer: exit code, and a text or the record of its run."""
        for code, said in answers:
            number = f"{len(list((self.folder / 'answers').iterdir())):03}"
            text = said if isinstance(said, str) else json.dumps({"runs": [said]})
            (self.folder / "answers" / number).write_text(f"{code}\n{text}\n")

    def boot(self) -> int:
        done = subprocess.run(
            ["/usr/bin/env", "python3", "-I", str(self.folder / "program")],
            env={
                "PATH": f"{self.folder}/bin:{os.environ['PATH']}", "HOME": str(self.folder), "GPUPREP_PROFILE": "t4",
                "GPUPREP_PACKAGE": "gpuprep", "GPUPREP_PHONE_HOME": self.url,
            },
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        self.said = done.stdout + done.stderr
        assert "s3cret" not in self.said + (self.path.read_text() if self.path.is_file() else "")
        return done.returncode

    def lines(self, name: str) -> list[str]:
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []


def verdict(status: str, **more: object) -> dict[str, object]:
    return {"verdict": {"status": status}, "error": None, "findings": [], **more}


BROKEN = {"verdict": None, "error": REBOOT, "reboot_needed": True}


def test_a_machine_that_needs_no_reboot(tmp_path: Path, phone: Phone) -> None:
    machine = Machine(tmp_path, phone.url)
    phone.codes = [204]
    machine.answers((0, verdict("PASS")), (0, verdict("WARN")))
    assert machine.boot() == 0
    assert machine.lines("called") == ["provision", "validate"]
    assert machine.report()["status"] == "certified"
    assert phone.told == [machine.report()]
    assert machine.lines("systemctl") == ["disable gpuprep-first-boot.service"]


def test_a_reboot_is_counted_and_the_next_boot_goes_on(tmp_path: Path, phone: Phone) -> None:
    machine = Machine(tmp_path, phone.url)
    machine.answers((4, BROKEN))
    assert machine.boot() == 0
    assert (machine.report()["status"], machine.report()["reboots"]) == ("rebooting", 1)
    assert machine.lines("systemctl") == ["reboot"]
    assert phone.told == []
    phone.codes = [200]
    machine.answers((0, verdict("PASS")), (0, verdict("PASS")))
    assert machine.boot() == 0
    assert [step["reboot_needed"] for step in machine.report()["steps"]] == [True, False, False]
    assert [(told["status"], told["starts"], told["reboots"]) for told in phone.told] == [("certified", 2, 1)]


def test_reboots_have_an_end(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.answers(*[(4, BROKEN)] * 20)
    codes = [machine.boot() for _ in range(12)]
    assert machine.lines("systemctl").count("reboot") == 4
    assert codes == [0] * 4 + [1] * 8
    assert machine.lines("called") == ["provision"] * 10  # and nothing at the last two starts
    assert "after 10 starts" in machine.report()["why"]
    assert machine.lines("systemctl")[-1] == "disable gpuprep-first-boot.service"


def test_a_reboot_that_cannot_be_counted_or_made_is_none(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.answers((4, BROKEN))
    (tmp_path / "systemctl.code").write_text("1\n")
    assert machine.boot() == 1
    assert machine.report()["status"] == "unknown"
    other = Machine(tmp_path / "other")
    other.answers((4, BROKEN))
    (other.folder / "var/lib").mkdir(parents=True)
    (other.folder / "var/lib/gpuprep").write_text("a file where the folder should be")
    assert other.boot() == 1
    assert other.lines("systemctl") == []


@pytest.mark.parametrize(
    "damaged",
    ["", "[]", "{", "[" * 100_000, '{"steps": []}', '{"steps": [], "starts": "1", "reboots": 0}', "\0"],
    ids=lambda text: repr(text[:20]),
)
def test_counts_that_are_lost_end_all_tries(damaged: str, tmp_path: Path, phone: Phone) -> None:
    machine = Machine(tmp_path, phone.url)
    phone.codes = [200]
    machine.path.parent.mkdir(parents=True)
    machine.path.write_text(damaged)
    machine.answers((4, BROKEN))
    assert machine.boot() == 1
    assert machine.lines("called") == []
    assert machine.lines("systemctl") == ["disable gpuprep-first-boot.service"]
    assert phone.told[0]["status"] == "unknown"
    assert "remove it" in phone.told[0]["why"]


@pytest.mark.parametrize(
    ("answers", "status", "called"),
    [
        ([(0, verdict("PASS")), (1, verdict("FAIL"))], "failed", ["provision", "validate"]),
        ([(0, verdict("PASS")), (3, verdict("UNKNOWN"))], "unknown", ["provision", "validate"]),
        # Validate has the last word, in both directions.
        ([(3, verdict("UNKNOWN")), (0, verdict("PASS"))], "certified", ["provision", "validate"]),
        ([(2, {"error": "profile: no"})], "failed", ["provision"]),
        ([(4, {"error": "a step failed"})] * 3, "failed", ["provision"] * 3),
        ([(3, {"error": "in use"}), (0, verdict("PASS")), (0, verdict("PASS"))], "certified", ["provision"] * 2),
        ([(3, {"error": "in use"})] * 3, "unknown", ["provision"] * 3),
    ],
)
def test_what_gpuprep_says_decides(
    answers: list[tuple[int, object]], status: str, called: list[str], tmp_path: Path
) -> None:
    machine = Machine(tmp_path)
    machine.answers(*answers)
    assert machine.boot() == (0 if status == "certified" else 1)
    assert machine.report()["status"] == status
    assert machine.lines("called")[: len(called)] == called
    assert ("disable gpuprep-first-boot.service" in machine.lines("systemctl")) == (status == "certified")


@pytest.mark.parametrize(
    "answer",
    [
        (0, ""),
        (0, "PASS"),
        (0, "[]"),
        (0, '{"runs": []}'),
        (0, '{"runs": ["PASS"]}'),
        (0, "[" * 100_000),
        (0, {"verdict": "PASS"}),
        (0, {"verdict": {"status": ["PASS"]}}),
        (0, {"verdict": {"status": "pass"}}),
        (0, verdict("FAIL")),
        (0, verdict("UNKNOWN")),
        (1, verdict("PASS")),
        (3, verdict("PASS")),
        (130, verdict("PASS")),
        (0, verdict("PASS", findings=["x"])),
        (139, ""),
    ],
)
def test_nothing_else_is_a_certificate(answer: tuple[int, object], tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.answers((0, verdict("PASS")), *[answer] * 3)
    assert machine.boot() == 1
    assert machine.report()["status"] in ("unknown", "failed")


def test_the_report_is_bounded_and_holds_no_password(tmp_path: Path, phone: Phone) -> None:
    machine = Machine(tmp_path, phone.url)
    phone.codes = [200] * 20
    error = "pip: https://user:s3cret@index.example/simple \x1b[31m" + "x" * 100_000
    findings = [{"status": "FAIL", "subject": "s" * 1000, "property": "p" * 1000}] * 1000
    for _ in range(8):
        machine.answers((3, {"error": error}), (3, {"error": error}), (1, verdict("FAIL", findings=findings)))
        machine.answers(*[(1, verdict("FAIL", findings=findings, error=error))])
        machine.boot()
    assert phone.told
    assert "\x1b" not in machine.path.read_text()
    assert len(machine.report()["steps"]) == 20


def test_a_call_that_is_not_taken_is_made_again_and_the_machine_is_not_done(tmp_path: Path, phone: Phone) -> None:
    machine = Machine(tmp_path, phone.url)
    phone.codes = [503, 302, 204]  # a redirect would lose the report
    machine.answers(*[(0, verdict("PASS"))] * 2)
    assert machine.boot() == 0
    assert len(phone.told) == 3
    other = Machine(tmp_path / "other", phone.url)
    phone.codes = [500, 500, 500, 200]
    other.answers(*[(0, verdict("PASS"))] * 4)
    assert other.boot() == 1
    assert other.lines("systemctl") == []  # the next boot tries again
    assert other.boot() == 0


@pytest.mark.parametrize("url", ["file:///etc/passwd", "ftp://x/", "s3cret", "http://127.0.0.1:1/?token=s3cret"])
def test_an_address_that_cannot_be_called(url: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path, url)
    machine.answers(*[(0, verdict("PASS"))] * 2)
    assert machine.boot() == 1
    assert machine.report()["status"] == "certified"


def test_gpuprep_that_cannot_be_installed(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    (tmp_path / "opt/gpuprep/controller/bin/gpuprep").unlink()
    # A virtual environment is made, whose pip finds nothing.
    python = tmp_path / "python3"
    python.write_text('#!/bin/sh\nmkdir -p "$4/bin" && cp /bin/false "$4/bin/python"\n')
    python.chmod(0o755)
    text = (tmp_path / "program").read_text()
    assert text.count('"/usr/bin/python3"') == 1
    (tmp_path / "program").write_text(text.replace("/usr/bin/python3", str(python)))
    assert machine.boot() == 1
    assert machine.report()["status"] == "unknown"
    assert [step["command"] for step in machine.report()["steps"]] == ["install"] * 4  # a venv, and pip three times


@pytest.mark.parametrize("said", [None, False, "true", 1])
def test_only_the_field_of_the_record_asks_for_a_reboot(said: object, tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.answers(*[(4, {**BROKEN, "reboot_needed": said})] * 3)
    assert machine.boot() == 1
    assert machine.report()["status"] == "failed"
    assert machine.lines("systemctl") == []
    assert "reboot_needed" in {spec.name for spec in dataclasses.fields(records.RunRecord)}


def test_the_user_data_as_a_whole() -> None:
    text = USER_DATA.read_text(encoding="utf-8")
    assert text.startswith("#cloud-config\n")
    assert len(text.encode()) < 16 << 10  # the most that AWS takes
    assert f"GPUPREP_PACKAGE=gpuprep=={__version__}\n" in FILES[CONF]["content"]
    assert FILES[CONF]["permissions"] == "0600"
    unit = FILES[UNIT]["content"]
    # gpuprep waits for cloud-init. If cloud-init waited for the unit, too, neither would end.
    assert "After=cloud-init.target" in unit
    assert "WantedBy=cloud-init.target" in unit
    starts = [command for command in yaml.safe_load(text)["runcmd"] if "start" in command]
    assert starts == [["systemctl", "start", "--no-block", "gpuprep-first-boot.service"]]
