"""What a caller may give a command: each argument is held against its annotation before anything is decided.

Annotations are only hints to a caller, and a value of another type would fail deep inside a decision, or be
saved as what no one can read. So every public command is wrapped once (`checked`), and refuses by itself.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import wraps
from math import isfinite
from typing import Any, Final, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from .errors import BadUsage

Given = ParamSpec("Given")
Answer = TypeVar("Answer")
_FEWEST, _MOST = -(1 << 63), (1 << 63) - 1
_USUAL: Final = 64
"""Combinations of types that are remembered a command, since looking at each argument costs 2 us."""
_SELF_CHECKED: Final = frozenset({"at_us", "content", "return"})
"""Times and contents have refusals of their own, which say more of what they may be."""
_PLAIN: Final[dict[Any, str]] = {
    str: "a str",
    int: "a whole number",
    float: "a number",
    bool: "a bool",
    type(None): "None",
}


class Check(msgspec.Struct, frozen=True):
    """What an argument may be.

    Attributes:
        at_once: types whose every value will do.
        may_be: whether any other value will.
        words: the same for people: "a str or None".
    """

    at_once: frozenset[type]
    may_be: Callable[[object], bool]
    words: str


def checked(function: Callable[Given, Answer]) -> Callable[Given, Answer]:
    """A command that refuses arguments of another type than they are annotated with.

    Raises:
        BadUsage: names the argument, and what it may be.
    """
    checks: dict[str, Check] | None = None
    code = function.__code__
    names: tuple[str, ...] = code.co_varnames[: code.co_argcount]
    by_name = names + code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    further = _further(code)
    usual: set[tuple[object, ...]] = set()

    @wraps(function)
    def command(*given: Given.args, **named: Given.kwargs) -> Answer:
        nonlocal checks
        kinds = (*map(type, given), *named, *map(type, named.values()))
        if kinds not in usual:
            checks = checks_of(function) if checks is None else checks
            at_once = True
            for name, value in (*zip(names, given, strict=False), *named.items()):
                check = checks.get(name if name in by_name else further)
                if check is not None and type(value) not in check.at_once:
                    at_once = False
                    if not check.may_be(value):
                        raise _wrong(name, value, check)
            if at_once and len(usual) < _USUAL:
                usual.add(kinds)
        return function(*given, **named)

    return command


def checks_of(function: Callable[..., Any]) -> dict[str, Check]:
    """The checks of a function's arguments by name; of those only that can be told by their annotation."""
    found = {name: check_of(hint) for name, hint in get_type_hints(function).items()}
    return {name: check for name, check in found.items() if check is not None and name not in _SELF_CHECKED}


def check_of(hint: Any) -> Check | None:
    """What a type lets through; None where that is anything."""
    if hint is float:
        return Check(frozenset(), _is_number, _PLAIN[float])
    if hint is int:
        return Check(frozenset(), _is_whole, _PLAIN[int])
    if hint in _PLAIN:
        return Check(frozenset({hint}), lambda value: isinstance(value, hint), _PLAIN[hint])
    origin = get_origin(hint)
    if origin is Literal:
        return _one_of(get_args(hint))
    if origin in (Union, types.UnionType):
        return _any_of([check_of(each) for each in get_args(hint)])
    if origin in (Sequence, list, tuple, Iterable):
        return _several(origin, get_args(hint))
    if origin in (Mapping, dict):
        return Check(frozenset({dict}), lambda value: isinstance(value, Mapping), "a dict")
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        name = f"a retold.{hint.__name__}"
        return Check(frozenset({hint}), lambda value: isinstance(value, hint), name)
    return None


def _one_of(words: tuple[object, ...]) -> Check:
    said = [f"'{each}'" for each in words]
    return Check(
        frozenset(),
        lambda value: isinstance(value, str) and value in words,
        said[0] if len(said) == 1 else f"{', '.join(said[:-1])} or {said[-1]}",
    )


def _any_of(checks: Sequence[Check | None]) -> Check | None:
    known = [each for each in checks if each is not None]
    if len(known) < len(checks):
        return None
    return Check(
        frozenset[type]().union(*(each.at_once for each in known)),
        lambda value: any(type(value) in each.at_once or each.may_be(value) for each in known),
        " or ".join(each.words for each in known),
    )


def _several(kind: Any, of: tuple[Any, ...]) -> Check:
    """A list and its like. What can be gone through only once is left to whoever goes through it."""
    alike = kind is not tuple or of[1:] == (...,)
    inner = check_of(of[0]) if alike else None

    def may_be(value: object) -> bool:
        if isinstance(value, (str, bytes, bytearray, Mapping)) or not isinstance(value, kind):
            return False
        return (
            inner is None
            or not isinstance(value, Collection)
            or all(type(each) in inner.at_once or inner.may_be(each) for each in value)
        )

    words = "a list" if inner is None else f"a list (each {inner.words})"
    return Check(frozenset(), may_be, words)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and _FEWEST <= value <= _MOST


def _further(code: types.CodeType) -> str:
    """The name of a function's `**fields`; "" where it has none."""
    has = code.co_flags & 0x08  # CO_VARKEYWORDS
    place = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 0x04)  # CO_VARARGS
    return code.co_varnames[place] if has else ""


def _wrong(name: str, value: object, check: Check) -> BadUsage:
    is_short = value is None or isinstance(value, (str, int, float))
    shown = repr(value) if is_short else type(value).__name__
    if len(shown) > 60:
        shown = f"{shown[:60]}…"
    hint = "nothing was written"
    if isinstance(value, int) and check.words.startswith("a str"):
        hint = f"pass text, also where a platform has numbers: {name}=str(…); nothing was written"
    return BadUsage(f"{name} may be {check.words}, not {shown}", hint=hint)
