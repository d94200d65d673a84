"""The store of runs, for commands that read or change what is recorded."""

from __future__ import annotations

from gpuprep import settings
from gpuprep.store import Store


def existing(named: str | None) -> Store:
    """The store that --store names, else that of the settings; close it.

    A named file must be there: a mistyped name is told, and no empty store is made. The default store of a new user is
    made, and is empty. Raises UsageError, StoreError.
    """
    return Store.open_existing(named) if named else Store.open(settings.load().store)
