"""Alembic notes the version from here on, in its own table.

A gpuprep of before looks into the table `migrations`: there it finds one name that it does not know, and says that the
store was written by a newer gpuprep.
"""

from __future__ import annotations

from datetime import datetime, timezone

import sqlalchemy as sa
from alembic import op

revision = "alembic_versions"
down_revision = "create_certified"

migrations = sa.table("migrations", sa.column("name", sa.String), sa.column("applied_at", sa.String))


def upgrade() -> None:
    moment = datetime.now(timezone.utc).isoformat(timespec="seconds")
    op.execute(migrations.delete())
    op.execute(migrations.insert().values(name=revision, applied_at=moment))
