"""How is a profile of a program recorded?

record(("python", "train.py"), Wish(folder=...))     under PyTorch's profiler, by inside/sitecustomize.py
record_with_nsys(...)                                 under `nsys profile`

The program is not changed, and its output, signals and exit code are its own. Its environment is never written down.
"""

from gpuprep.trace.recording.nsys import record_with_nsys
from gpuprep.trace.recording.programs import Recorded, Wish, put_record, record

__all__ = ["Recorded", "Wish", "put_record", "record", "record_with_nsys"]
