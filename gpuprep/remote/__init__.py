"""How do we run, put, get and lock on one machine, over SSH or locally? The only room that imports fabric."""

from gpuprep.remote.core import Host
from gpuprep.remote.lock import HostLock
from gpuprep.remote.types import CommandResult, LockOwner, Target

__all__ = ["CommandResult", "Host", "HostLock", "LockOwner", "Target"]
