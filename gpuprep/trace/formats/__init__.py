"""TraceDocument ► str or bytes, one module per format."""
