"""TraceDocument and its columns ► one HTML file that works offline."""

from gpuprep.trace.page.assembly import html

__all__ = ["html"]
