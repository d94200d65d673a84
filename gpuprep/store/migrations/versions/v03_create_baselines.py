"""The baseline figures of hosts; earlier runs give none, because their probes measured in another way."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "create_baselines"
down_revision = "create_findings"


def text(width: int) -> sa.types.TypeEngine[str]:
    return sa.String(width).with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.create_table(
        "baselines",
        sa.Column("host", text(255), primary_key=True),
        sa.Column("gpu_uuid", text(64), primary_key=True),
        sa.Column("probe", text(32), primary_key=True),
        sa.Column("versions", text(200), primary_key=True),
        sa.Column("figure", text(120), primary_key=True),
        sa.Column("value", sa.Float, nullable=False),
        sa.Column("run_id", text(64), nullable=False),
        sa.Column("set_at", text(32), nullable=False),
    )
