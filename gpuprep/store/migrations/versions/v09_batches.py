"""Runs of one command on several hosts have one batch id; runs of before have none."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "batches"
down_revision = "name_hosts"


def text(width: int) -> sa.types.TypeEngine[str]:
    return sa.String(width).with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("runs", sa.Column("batch_id", text(64)))
    op.create_index("runs_by_batch", "runs", ["batch_id", "started_at", "run_id"])
