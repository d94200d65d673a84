"""Runs that say nothing of how their host is: refusals and plans. Of stopped runs of before it is not known."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "silent"
down_revision = "batches"

runs = sa.table("runs", *(sa.column(name) for name in ("run_id", "command", "verdict", "exit_code")))


def upgrade() -> None:
    width = sa.String(64).with_variant(sa.Text(collation="C"), "postgresql")
    silent = op.create_table(
        "silent",
        sa.Column("run_id", width, sa.ForeignKey("runs.run_id", ondelete="CASCADE"), primary_key=True),
    )
    planned = runs.c.verdict.is_(None) & (runs.c.exit_code == 0)
    query = sa.select(runs.c.run_id).where((runs.c.exit_code == 2) | planned)
    op.execute(silent.insert().from_select(["run_id"], query))
