"""NVML's answers as readings: a value or Missing, and several of them as one record."""

from __future__ import annotations

from typing import Any, Callable, Dict, Sequence, Type

from gpuprep.records import Missing

# (name of the call; its arguments after the handle) ─► its answer, or Missing
Get = Callable[..., Any]
# (an nvmlReturn_t that is an error, the call's name) ─► Missing
Refusal = Callable[[int, str], Missing]

INVALID_ARGUMENT = 2  # nvmlReturn_t: of a field, that this driver does not know its number
# nvmlValueType_t ─► member of nvmlValue_t
MEMBERS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}


def mapped(reading: Any, convert: Callable[[Any], Any]) -> Any:
    return reading if isinstance(reading, Missing) else convert(reading)


def as_text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def together(record: Type[Any], *parts: Any) -> Any:
    """`record(*parts)`; if all parts are missing for the same reason, the first part instead."""
    reasons = {part.reason if isinstance(part, Missing) else "" for part in parts}
    return parts[0] if len(reasons) == 1 and reasons != {""} else record(*parts)


def fields(get: Get, refusal: Refusal, numbers: Sequence[int]) -> Dict[int, Any]:
    """Number ► value or Missing of these field values (NVML_FI_DEV_...)."""
    answer = get("nvmlDeviceGetFieldValues", list(numbers))
    if isinstance(answer, Missing):
        return dict.fromkeys(numbers, answer)
    return {number: field_value(answer[i], number, refusal) for i, number in enumerate(numbers)}


def field_value(field: Any, number: int, refusal: Refusal) -> Any:
    if field.nvmlReturn == INVALID_ARGUMENT:
        return Missing("function_not_found", f"this driver does not know field {number}")
    if field.nvmlReturn != 0:
        return refusal(field.nvmlReturn, f"nvmlDeviceGetFieldValues({number})")
    member = MEMBERS.get(field.valueType)
    return getattr(field.value, member) if member else Missing("unparsable", f"field {number} of an unknown type")
