"""The runs, and the names of the migrations that were done, as gpuprep noted them before Alembic."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "create_runs"
down_revision = None


def text(width: int) -> sa.types.TypeEngine[str]:
    return sa.String(width).with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "migrations",
        sa.Column("name", text(100), primary_key=True),
        sa.Column("applied_at", text(32), nullable=False),
    )
    op.create_table(
        "runs",
        sa.Column("run_id", text(64), primary_key=True),
        sa.Column("command", text(32), nullable=False),
        sa.Column("host", text(255), nullable=False),
        sa.Column("profile", text(255), nullable=False),
        sa.Column("started_at", text(32), nullable=False),
        sa.Column("ended_at", text(32), nullable=False),
        sa.Column("source", text(16), nullable=False),
        sa.Column("verdict", text(16)),
        sa.Column("exit_code", sa.Integer, nullable=False),
        sa.Column("summary", sa.Text, nullable=False),
        sa.Column("record", sa.Text, nullable=False),
    )
    op.create_index("runs_by_host", "runs", ["host", "started_at"])
    op.create_index("runs_by_time", "runs", ["started_at"])
