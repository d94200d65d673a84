"""What do the sums of a range of iterations say? Profile ► document."""

from gpuprep.trace.tables.tabulating import document

__all__ = ["document"]
