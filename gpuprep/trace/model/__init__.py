"""Which op launched which kernel, in which iteration? Trace ► Profile."""

from gpuprep.trace.model.linking import profile

__all__ = ["profile"]
