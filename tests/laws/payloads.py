"""Hypothesis strategies for payloads: any value that the log could hold, by the type of each field."""

from __future__ import annotations

import typing
from typing import Any

import msgspec
from hypothesis import strategies as st

from retold.domain import events as e

TEXTS = (
    "keep the boat dry",
    "Boat, repair & paint: naïve café",
    "厨房的计划 is 明天",
    "日本語とカタカナ、ひらがな",
    "한국어 문장",
    "🚤🚤 emoji👩‍🔧glued",
    "nul\0inside",
    "broken \ufffd once a surrogate",
    '\0json:[{"type":"text","text":"structured 你好"}]',
    "\0json:{broken",
    "[CONTEXT COMPACTION] what came before",
    "   ",
    "",
)
CALLS = (
    '[{"id":"c1","function":{"name":"weather","arguments":"{\\"city\\":\\"Åbo\\"}"}}]',
    "[]",
    "[1,2",
    "{}",
)
I64 = st.integers(-(2**63), 2**63 - 1)
SMALL = st.integers(0, 2**40)
REAL = st.floats(allow_nan=False)
texts = st.sampled_from(TEXTS) | st.text(max_size=24)
scalars: st.SearchStrategy[e.Scalar] = st.none() | st.booleans() | I64 | REAL | texts | st.binary(max_size=8)
odds = st.builds(e.Odd, st.just("text"), st.binary(max_size=8)) | st.builds(e.Odd, st.just("value"), scalars)


def of_type(annotation: str) -> st.SearchStrategy[Any]:
    """Values for a field, by its annotation as it is written in domain/events.py."""
    if annotation.endswith(" | None"):
        return st.none() | of_type(annotation.removesuffix(" | None"))
    if annotation.startswith("list["):
        return st.lists(of_type(annotation[5:-1]), max_size=3)
    if annotation.startswith("dict["):
        key, value = annotation[5:-1].split(", ", 1)
        return st.dictionaries(st.text(max_size=8) if key == "str" else I64, of_type(value), max_size=3)
    if annotation.startswith("Literal["):
        return st.sampled_from([word.strip(" '\"") for word in annotation[8:-1].split(",")])
    known: dict[str, st.SearchStrategy[Any]] = {
        "str": texts,
        "int": I64,
        "float": REAL,
        "bool": st.booleans(),
        "bytes": st.binary(max_size=20),
        "Scalar": scalars,
    }
    if annotation in known:
        return known[annotation]
    named = getattr(e, annotation)
    words = typing.get_args(named)
    return st.sampled_from(words) if words else structs(named)


def structs(cls: type[Any]) -> st.SearchStrategy[Any]:
    """Any value of a Struct."""
    names = [each.name for each in msgspec.structs.fields(cls)]
    return st.builds(cls, **{name: of_type(cls.__annotations__[name]) for name in names})


payloads = st.sampled_from(e.PAYLOADS).flatmap(structs)
