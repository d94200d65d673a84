"""Figures as rows; those of earlier runs are taken from their records."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from gpuprep.store.measurements import rows_of_text

revision = "create_measurements"
down_revision = "index_runs"

runs = sa.table("runs", sa.column("run_id", sa.String), sa.column("record", sa.String))


def text(width: int) -> sa.types.TypeEngine[str]:
    return sa.String(width).with_variant(sa.Text(collation="C"), "postgresql")


def upgrade() -> None:
    measurements = op.create_table(
        "measurements",
        sa.Column("run_id", text(64), sa.ForeignKey("runs.run_id", ondelete="CASCADE"), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True),
        sa.Column("host", text(255), nullable=False),
        sa.Column("started_at", text(32), nullable=False),
        sa.Column("source", text(16), nullable=False),
        sa.Column("gpu_uuid", text(64), nullable=False),
        sa.Column("probe", text(32), nullable=False),
        sa.Column("versions", text(200), nullable=False),
        sa.Column("figure", text(120), nullable=False),
        sa.Column("value", sa.Float, nullable=False),
    )
    op.create_index("measurements_by_host", "measurements", ["host", "started_at"])
    connection = op.get_bind()
    for run_id in connection.execute(sa.select(runs.c.run_id)).scalars().all():  # one record in memory at a time
        record = connection.execute(sa.select(runs.c.record).where(runs.c.run_id == run_id)).scalar_one()
        # Names of figures are today's, not those of this revision's day: they continue in the same series.
        rows = [{name: row[name] for name in measurements.c.keys()} for row in rows_of_text(record)]  # noqa: SIM118
        if rows:
            connection.execute(measurements.insert(), rows)
