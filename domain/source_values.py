"""Single values of another store's rows: exact, whatever type or encoding they have."""

from __future__ import annotations

from typing import TypeAlias

from .events import Odd

Value: TypeAlias = "int | float | str | bytes | Odd | None"
Row: TypeAlias = dict[str, Value]


def same(one: Value, other: Value) -> bool:
    """Equal and of one type: 1 and 1.0 are two values."""
    return type(one) is type(other) and one == other


def time_us(value: object) -> int | None:
    """Seconds as microseconds; None for what is no time that 64 bits can hold."""
    if isinstance(value, (int, float)) and abs(value) < 9.2e12:
        return round(value * 1e6)
    return None


def told_by(at_us: int, value: Value) -> bool:
    """Whether `at_us` alone gives the seconds back."""
    return type(value) is float and at_us / 1e6 == value


def as_text(value: Value) -> str | None:
    """A rendering that a person can read, for a field that can hold text only."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Odd):
        return as_text(value.value)
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def as_odd(value: Value) -> Odd:
    """The exact value, for a column whose field cannot bear it."""
    return value if isinstance(value, Odd) else Odd("value", value)


def value_of(odd: Odd) -> Value:
    """The exact value of a column again."""
    return odd if odd.kind == "text" else odd.value
