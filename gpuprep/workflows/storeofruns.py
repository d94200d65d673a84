"""The store of runs, for commands that read or change what is recorded."""

from __future__ import annotations

from gpuprep import settings
from gpuprep.errors import UsageError
from gpuprep.store import Store
from gpuprep.untrusted.plaintext import one_line


def existing(named: str | None) -> Store:
    """Open the store of --store, else that of the settings. The caller closes it.

    A file given with --store must exist, so a typing error makes no empty store. The default store of a new user is
    made, empty. Raises UsageError, StoreError.
    """
    return Store.open_existing(named) if named else Store.open(settings.load().store)


def check_known(store: Store, *hosts: str) -> None:
    """Raises UsageError for host names without a run in the store."""
    unknown = [host for host in hosts if not store.has_host(host)]
    if unknown:
        raise UsageError(
            f"no run of {', '.join(map(one_line, unknown))} is recorded", "`gpuprep status` lists the hosts"
        )
