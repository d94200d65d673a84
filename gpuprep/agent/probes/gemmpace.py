"""How far the matrix products are, for whoever waits: types of numbers that are done, of all GPUs."""

from __future__ import annotations

from gpuprep.agent.telling import tell


class Pace:
    """Of one GPU of several. How many types it has is known once it is open; the others are taken to have as many."""

    def __init__(self, gpu: int, gpus: int) -> None:
        self._gpu, self._gpus = gpu, gpus
        self.types = 0
        self.done = 0

    def tell(self, what: str) -> None:
        where = f"GPU {self._gpu}: " if self._gpus > 1 else ""
        tell(
            f"{where}{what}",
            done=self._gpu * self.types + self.done,
            of=self._gpus * self.types,
            unit="types of matrix products",
        )
