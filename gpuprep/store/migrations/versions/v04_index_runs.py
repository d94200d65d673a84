"""The newest run of a host, or of a host and a command, is found without reading the other runs."""

from __future__ import annotations

from alembic import op

revision = "index_runs"
down_revision = "create_baselines"


def upgrade() -> None:
    op.create_index("runs_newest", "runs", ["started_at", "run_id"])
    op.create_index("runs_newest_of_host", "runs", ["host", "started_at", "run_id"])
    op.create_index("runs_newest_of_command", "runs", ["host", "command", "started_at", "run_id", "verdict"])
    op.create_index("baselines_by_run", "baselines", ["run_id"])
    op.drop_index("runs_by_host")
    op.drop_index("runs_by_time")
