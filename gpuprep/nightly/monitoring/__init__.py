"""Which alert rules and dashboard fit the metrics of drift? Files for Prometheus and Grafana.

text("rules")        gpuprep.rules.yml, for `rule_files` of prometheus.yml
text("dashboard")    gpuprep-dashboard.json, for Grafana's import or its provisioning
"""

from __future__ import annotations

from pathlib import Path

FILES = {"rules": "gpuprep.rules.yml", "dashboard": "gpuprep-dashboard.json"}


def text(name: str) -> str:
    return (Path(__file__).parent / FILES[name]).read_text(encoding="utf-8")
