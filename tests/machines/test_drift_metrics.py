"""A real Prometheus and a real node_exporter: a clock is undone and the alert fires; it is put back and the alert goes.

The programs are those of Debian's packages, unpacked: no service is installed, nothing listens but on loopback.
"""

from __future__ import annotations

import json
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from machines import GPUPREP, Finished, inside, must
from prometheusprograms import Programs, programs
from sshserver import free_port
from waiting import until

pytestmark = pytest.mark.e2e

FOLDER = "/var/lib/prometheus/node-exporter"  # drift.textfile_directory of the shipped profiles
EXPORTER = "/run/gpuprep-e2e-exporter"
# What a night is in this test: scraped and judged each second, an alert waits for a second. A slow scrape is none that
# failed: its limit is as long as Prometheus allows.
CONFIG = """
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: [gpuprep.rules.yml]
scrape_configs:
  - job_name: node
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""


class Prometheus:
    """A Prometheus that scrapes one node_exporter, asked over its HTTP API."""

    def __init__(self, binaries: Programs, folder: Path, exporter_port: int) -> None:
        self._url = f"http://127.0.0.1:{(port := free_port())}/api/v1/"
        rules = must("monitoring", "rules").stdout
        (folder / "gpuprep.rules.yml").write_text(re.sub(r"for: \w+", "for: 1s", rules))
        (folder / "prometheus.yml").write_text(CONFIG.format(port=exporter_port))
        self._log = (folder / "log").open("wb")
        self._process = subprocess.Popen(
            [
                binaries.prometheus,
                f"--config.file={folder}/prometheus.yml",
                f"--storage.tsdb.path={folder}/data",
                f"--web.listen-address=127.0.0.1:{port}",
            ],
            stdout=self._log,
            stderr=self._log,
            cwd=folder,
        )

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait()
        self._log.close()

    def ask(self, path: str, **parameters: str) -> Any:
        """None while it does not answer."""
        try:
            with urllib.request.urlopen(f"{self._url}{path}?{urllib.parse.urlencode(parameters)}") as answer:
                return json.load(answer)["data"]
        except OSError:
            assert self._process.poll() is None, Path(self._log.name).read_text()
            return None

    def value(self, expression: str) -> float | None:
        """Of the only series that fits; None where there is none."""
        data = self.ask("query", query=expression)
        assert data is None or len(data["result"]) <= 1, data
        return float(data["result"][0]["value"][1]) if data and data["result"] else None

    def alerts(self) -> dict[str, Any]:
        """By name, those that fire."""
        data = self.ask("alerts") or {"alerts": []}
        return {alert["labels"]["alertname"]: alert for alert in data["alerts"] if alert["state"] == "firing"}


@pytest.fixture(scope="module")
def binaries(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    return programs(tmp_path_factory.mktemp("prometheus"))


@pytest.fixture
def exporter(t4_copy: Finished, binaries: Programs) -> Iterator[int]:
    """The port of a node_exporter that runs inside the machine and reads its textfile folder; all of it goes again."""
    port = free_port()
    with open(binaries.node_exporter, "rb") as program:
        write = f"cat > {EXPORTER} && chmod 0755 {EXPORTER}"
        copy = [GPUPREP, "sim", "exec", t4_copy.machine, "--", "sh", "-c", write]
        subprocess.run(copy, stdin=program, check=True)
    inside(
        t4_copy.machine,
        f"mkdir -p {FOLDER} && systemd-run -q --collect --unit=gpuprep-e2e-exporter --property=DynamicUser=yes"
        f" {EXPORTER} --web.listen-address=127.0.0.1:{port} --collector.disable-defaults --collector.textfile"
        f" --collector.textfile.directory={FOLDER}",
    )
    yield port
    inside(t4_copy.machine, f"systemctl stop gpuprep-e2e-exporter; rm -r {EXPORTER} {FOLDER}")


@pytest.fixture
def prometheus(binaries: Programs, exporter: int, tmp_path: Path) -> Iterator[Prometheus]:
    server = Prometheus(binaries, tmp_path, exporter)
    yield server
    server.stop()


@pytest.fixture
def scheduled(t4_copy: Finished, exporter: int) -> Iterator[str]:
    """The machine with a nightly check that writes into the folder of the node_exporter."""
    assert exporter
    must("drift", "schedule", t4_copy.host, "--profile", t4_copy.profile)
    yield t4_copy.machine
    must("drift", "unschedule", t4_copy.host)
    inside(t4_copy.machine, "rm -rf /var/lib/gpuprep/drift; systemctl restart gpuprep-tune")


def dashboard() -> list[str]:
    panels = json.loads(must("monitoring", "dashboard").stdout)["panels"]
    found = [target["expr"] for panel in panels for target in panel["targets"]]
    return [expression.replace("$host", ".*").replace("$profile", ".*") for expression in found]


def test_an_undone_clock_fires_the_alert_and_a_fix_ends_it(
    t4_copy: Finished, scheduled: str, prometheus: Prometheus, binaries: Programs
) -> None:
    verdict = 'gpuprep_drift_verdict{status="%s",source="simulated"}'
    inside(scheduled, "gpuprep-drift run")
    until(lambda: prometheus.value(verdict % "PASS") == 1, "the check's metrics never came to Prometheus")
    until(lambda: not prometheus.alerts(), "an alert fires for a machine that passes")
    assert prometheus.value("node_textfile_scrape_error") == 0
    clock = 'gpuprep_gpu_application_clock_hertz{clock="graphics"}'
    assert prometheus.value(clock) == 1590e6

    inside(scheduled, "nvidia-smi -rac")
    assert inside(scheduled, "gpuprep-drift run", check=False).exit_code == 1
    until(lambda: "GpuDrift" in prometheus.alerts(), "the alert did not fire")
    alert = prometheus.alerts()["GpuDrift"]
    assert alert["labels"]["host"] == t4_copy.host
    assert alert["annotations"]["summary"].startswith(t4_copy.host)
    assert "gpu 0.clocks" in alert["annotations"]["description"]
    assert f"gpuprep drift {t4_copy.host} --profile t4 --fix" in alert["annotations"]["description"]
    assert prometheus.value(clock) == 585e6
    since = prometheus.value('gpuprep_drift_finding_since_timestamp_seconds{property="clocks"}')
    assert since is not None
    assert since == prometheus.value("gpuprep_drift_last_run_timestamp_seconds - gpuprep_drift_duration_seconds")

    text = inside(scheduled, f"cat {FOLDER}/gpuprep.prom").stdout
    linted = subprocess.run(
        [binaries.promtool, "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (linted.returncode, linted.stdout, linted.stderr) == (0, "", "")
    shown = [prometheus.ask("query", query=expression) for expression in dashboard()]
    assert None not in shown, "Prometheus takes every expression of the dashboard"
    assert sum(bool(data["result"]) for data in shown) >= len(shown) - 5, "all but those of probes and of ECC"

    must("drift", t4_copy.host, "--profile", "t4", "--fix")
    inside(scheduled, "gpuprep-drift run")
    until(lambda: not prometheus.alerts(), "the alert did not end")
    assert prometheus.value(verdict % "PASS") == 1
