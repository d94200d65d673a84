"""The store of runs, for commands that read or change what is recorded."""

from __future__ import annotations

from gpuprep import settings
from gpuprep.errors import UsageError
from gpuprep.store import Store
from gpuprep.untrusted.plaintext import one_line


def existing(named: str | None) -> Store:
    """The store that --store names, else that of the settings; close it.

    A named file must be there: a mistyped name is told, and no empty store is made. The default store of a new user is
    made, and is empty. Raises UsageError, StoreError.
    """
    return Store.open_existing(named) if named else Store.open(settings.load().store)


def check_known(store: Store, *hosts: str) -> None:
    """Raises UsageError for names of which no run is stored."""
    unknown = [host for host in hosts if not store.has_host(host)]
    if unknown:
        raise UsageError(
            f"no run of {', '.join(map(one_line, unknown))} is recorded", "`gpuprep status` lists the hosts"
        )
