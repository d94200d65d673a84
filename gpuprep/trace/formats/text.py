"""Text for a terminal: the first screen, or all tables."""

from __future__ import annotations

from gpuprep.trace.document import TraceDocument


def render(document: TraceDocument, *, full: bool = False) -> str:
    summary = document.summary
    lines = [
        f"{document.file.profile_name}: {summary.iterations} of {summary.total_iterations} iterations,"
        f" {summary.average_iteration_us / 1000:.3f} ms each"
    ]
    if full:
        lines += [f"{line.total_us / 1000:12.3f} ms  {line.calls:8}  {line.name}" for line in document.kernels]
    return "\n".join(lines) + "\n"
