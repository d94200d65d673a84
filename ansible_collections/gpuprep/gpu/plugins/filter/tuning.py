"""Words for a row of the agent's tuning report."""

from __future__ import annotations

from collections.abc import Mapping


def tuning_sentence(row: Mapping[str, object]) -> str:
    """`GPU 0: clocks: wanted 5001,1590 MHz, is 5001,585 MHz (why)`."""
    why = f" ({row['error']})" if row.get("error") else ""
    return f"GPU {row['gpu']}: {row['property']}: wanted {row['wanted']}, is {row['after']}{why}"


class FilterModule:
    def filters(self) -> dict[str, object]:
        return {"tuning_sentence": tuning_sentence}
