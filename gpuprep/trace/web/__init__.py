"""The page over HTTP, as a WSGI application."""
