"""The revisions, oldest first. Alembic reads the files; nothing imports them."""
