"""Findings as rows; those of earlier runs are taken from their records."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "create_findings"
down_revision = "create_runs"

COLUMNS = ("subject", "property", "status", "expected", "actual")
runs = sa.table("runs", sa.column("run_id", sa.String), sa.column("record", sa.String))


def text(width: int) -> sa.types.TypeEngine[str]:
    return sa.String(width).with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    findings = op.create_table(
        "findings",
        sa.Column("run_id", text(64), sa.ForeignKey("runs.run_id", ondelete="CASCADE"), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True),
        sa.Column("subject", text(255), nullable=False),
        sa.Column("property", text(255), nullable=False),
        sa.Column("status", text(16), nullable=False),
        sa.Column("expected", sa.Text, nullable=False),
        sa.Column("actual", sa.Text, nullable=False),
    )
    op.create_index("findings_by_key", "findings", ["subject", "property", "status"])
    connection = op.get_bind()
    for run_id in connection.execute(sa.select(runs.c.run_id)).scalars().all():  # one record in memory at a time
        record = connection.execute(sa.select(runs.c.record).where(runs.c.run_id == run_id)).scalar_one()
        if rows := findings_of(run_id, record):
            connection.execute(findings.insert(), rows)


def findings_of(run_id: str, record: str) -> list[dict[str, Any]]:
    """[] where the record is damaged: it must not keep the other runs from being read."""
    try:
        document = json.loads(record)
        findings = (document.get("verdict") or document).get("findings", [])
        return [
            {"run_id": run_id, "position": position, **{name: str(finding[name]) for name in COLUMNS}}
            for position, finding in enumerate(findings)
        ]
    except (ValueError, KeyError, TypeError, AttributeError):
        return []
