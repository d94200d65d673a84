"""Names of one host belong together; runs say whether they certify; the user's choice of a run has a reason."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "name_hosts"
down_revision = "alembic_versions"


def text(width: int) -> sa.types.TypeEngine[str]:
    return sa.String(width).with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    op.add_column("runs", sa.Column("certifies", sa.Boolean))
    op.add_column("certified", sa.Column("reason", sa.Text, nullable=False, server_default=""))
    op.create_table(
        "host_names",
        sa.Column("name", text(255), primary_key=True),
        sa.Column("host", text(255), nullable=False),
        sa.Column("identity", sa.Text, nullable=False),
        sa.Column("seen_at", text(32), nullable=False),
        sa.Column("by_hand", text(16), nullable=False),
    )
    op.create_index("host_names_by_host", "host_names", ["host"])
