"""How does a browser get the page? Over HTTP, from a WSGI application: for `gpuprep trace serve` and for TensorBoard.

library.py knows the runs and keeps those that were opened last, app.py answers and says who may ask. Addresses are
relative, so that the application works below any prefix.
"""

from gpuprep.trace.web.app import Rules, application, guarded
from gpuprep.trace.web.library import Asked, Library

__all__ = ["Asked", "Library", "Rules", "application", "guarded"]
