"""The run that `baseline set` named as what a host was certified as."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "create_certified"
down_revision = "create_measurements"


def text(width: int) -> sa.types.TypeEngine[str]:
    return sa.String(width).with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "certified",
        sa.Column("host", text(255), primary_key=True),
        sa.Column("run_id", text(64), sa.ForeignKey("runs.run_id"), nullable=False),
        sa.Column("set_at", text(32), nullable=False),
    )
