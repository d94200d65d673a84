"""From a file, or a folder of them, to what is shown of it.

open_trace(path)                    one profile: read ► link ► sum ► roofs ► advice
open_folder(find(folder), name)     all profiles of a job, and what they show together
"""

from gpuprep.trace.opening.folder import LeftOut, OpenedFolder, open_folder
from gpuprep.trace.opening.one import Opened, Wish, open_trace

__all__ = ["LeftOut", "Opened", "OpenedFolder", "Wish", "open_folder", "open_trace"]
