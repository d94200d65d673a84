"""Reports the progress of the matrix products: which data types are done, with their figures."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from gpuprep.agent.probereports import measured, tell


class Pace:
    """Of one GPU of several. How many types it has is known once it is open; the others are taken to have as many."""

    def __init__(self, gpu: int, gpus: int) -> None:
        self._gpu, self._gpus = gpu, gpus
        self.types = 0
        self.done = 0

    def known(self, row: Dict[str, Any]) -> None:
        """The GPU's values as far as they are known, before its products are there."""
        measured(row, "gpus", self._gpu)

    def ended(self, error: Optional[str]) -> None:
        """After its products: why the rest was given up, if it was."""
        measured(error, "gpus", self._gpu, "error")

    def measured(self, gemms: List[Dict[str, Any]]) -> None:
        """The last of them is new."""
        measured(gemms[-1], "gpus", self._gpu, "gemms", len(gemms) - 1)

    def tell(self, what: str) -> None:
        where = f"GPU {self._gpu}: " if self._gpus > 1 else ""
        tell(
            f"{where}{what}",
            done=self._gpu * self.types + self.done,
            of=self._gpus * self.types,
            unit="types of matrix products",
        )
