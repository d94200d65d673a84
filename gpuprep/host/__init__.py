"""Host: run, put, get and lock on one machine, over SSH or locally. The only room that imports fabric."""

from gpuprep.host.core import Host
from gpuprep.host.lock import HostLock
from gpuprep.host.types import CommandResult, LockOwner, Target

__all__ = ["CommandResult", "Host", "HostLock", "LockOwner", "Target"]
