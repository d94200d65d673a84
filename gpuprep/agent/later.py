"""A call that goes on in a thread of its own while its caller does something else.

concurrent.futures does the same; its import would cost the agent's facts a tenth of their time (it brings logging).
"""

from __future__ import annotations

import threading
from typing import Any, Callable, Generic, List, Optional, TypeVar

Result = TypeVar("Result")


class Later(Generic[Result]):
    """Later(read, "file").result() is read("file"), or raises what that raised.

    A caller that breaks off does not wait for the thread: it is a daemon, and its programs end with the agent.
    """

    def __init__(self, call: Callable[..., Result], *arguments: Any) -> None:
        self._results: List[Result] = []
        self._error: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._do, args=(call, arguments), daemon=True)
        self._thread.start()

    def result(self) -> Result:
        """Waits for it."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._results[0]

    def _do(self, call: Callable[..., Result], arguments: Any) -> None:
        try:
            self._results.append(call(*arguments))
        except BaseException as error:  # noqa: BLE001  raised again by who asks for the result
            self._error = error
