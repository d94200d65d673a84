"""Reports the progress of the matrix products: finished data types, and their figures."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from gpuprep.agent.probereports import measured, tell


class Pace:
    """Progress of one of several GPUs. Other GPUs are assumed to have as many data types as this GPU."""

    def __init__(self, gpu: int, gpus: int) -> None:
        self._gpu, self._gpus = gpu, gpus
        self.types = 0
        self.done = 0

    def known(self, row: Dict[str, Any]) -> None:
        """Report the GPU's values that are known before its products."""
        measured(row, "gpus", self._gpu)

    def ended(self, error: Optional[str]) -> None:
        """Report the end of the GPU's products; `error`: why the rest was given up."""
        measured(error, "gpus", self._gpu, "error")

    def measured(self, gemms: List[Dict[str, Any]]) -> None:
        """Report the last of `gemms`, which is new."""
        measured(gemms[-1], "gpus", self._gpu, "gemms", len(gemms) - 1)

    def tell(self, what: str) -> None:
        where = f"GPU {self._gpu}: " if self._gpus > 1 else ""
        tell(
            f"{where}{what}",
            done=self._gpu * self.types + self.done,
            of=self._gpus * self.types,
            unit="types of matrix products",
        )
