"""How does a profile look as a page? TraceDocument and its columns ► one HTML file that works offline."""

from gpuprep.trace.page.assembly import html, html_of_job

__all__ = ["html", "html_of_job"]
