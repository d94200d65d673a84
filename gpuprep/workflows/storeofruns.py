"""The store of runs, for commands that read or change what is recorded."""

from __future__ import annotations

from gpuprep import settings
from gpuprep.errors import UsageError
from gpuprep.store import Store
from gpuprep.untrusted.plaintext import one_line
from gpuprep.workflows import killed


def existing(named: str | None) -> Store:
    """Open the store of --store, else that of the settings, with the records of killed runs. The caller closes it.

    A file given with --store must exist, so a typing error makes no empty store. The default store of a new user is
    made, empty. Raises UsageError, StoreError.
    """
    store = Store.open_existing(named) if named else Store.open(settings.load().store)
    killed.store_all(store)
    return store


def check_known(store: Store, *hosts: str) -> None:
    """Raises UsageError for host names without a run in the store."""
    unknown = [host for host in hosts if not store.has_host(host)]
    if unknown:
        raise UsageError(
            f"no run of {', '.join(map(one_line, unknown))} is recorded", "`gpuprep status` lists the hosts"
        )
