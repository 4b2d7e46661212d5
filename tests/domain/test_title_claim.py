"""Who holds a title: one session at a time."""

from __future__ import annotations

import pytest

from retold.domain import events as e
from retold.domain.errors import TitleTaken
from retold.domain.title_claim import TitleClaim, evolve


def test_the_first_has_it_and_nobody_else_until_it_is_given_up() -> None:
    free = TitleClaim("plan")
    claimed = free.claim("s1")
    assert claimed == e.TitleClaimed("plan", "s1")
    held = evolve(free, 1, claimed)
    assert held == TitleClaim("plan", 1, "s1")
    assert held.claim("s1") is None
    with pytest.raises(TitleTaken, match="'plan' is already in use by session s1") as taken:
        held.claim("s2")
    assert (taken.value.title, taken.value.holder) == ("plan", "s1")
    assert held.release("s2") is None
    released = held.release("s1")
    assert released == e.TitleReleased("plan", "s1")
    assert evolve(held, 2, released) == TitleClaim("plan", 2, None)
    assert free.release("s1") is None


def test_what_was_erased_of_it_is_nobodys() -> None:
    held = TitleClaim("plan", 1, "s1")

    assert evolve(held, 2, e.ErasedEvent(topic=e.TitleReleased.topic)) == TitleClaim("plan", 2, None)


def test_any_other_event_only_counts() -> None:
    assert evolve(TitleClaim("plan", 1, "s1"), 2, e.PayloadsErased([], "so", [], [])) == TitleClaim(
        "plan", 2, "s1"
    )
