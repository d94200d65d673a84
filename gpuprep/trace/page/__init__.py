"""TraceDocument and its columns ► one HTML file that works offline."""
