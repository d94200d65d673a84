"""Run by Alembic alone, for each of its commands: the caller's connection, and the caller's transaction."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
