"""Which of a key's routes stand once some were undone, and which of them are a person's word."""

from __future__ import annotations

import pytest

from retold.domain.chats import Chats
from retold.domain.facts import RouteFacts, SessionFacts, World

K = "agent:main:telegram:dm:1001"


class Silent:
    """Nobody said anything."""

    def last_before(self, session_id: str, at_us: int) -> int | None:
        return None

    def first_after(self, session_id: str, at_us: int) -> int | None:
        return None


def led(position: int, to: str | None, cause: str = "resume", undoes: int | None = None) -> RouteFacts:
    return RouteFacts(
        key=K,
        session_id=to or "left",
        position=position,
        at_us=position,
        cause=cause,
        closed=to is None,
        by_person=cause == "resume",
        undoes=undoes,
    )


def world(*routes: RouteFacts) -> World:
    ids = {each.session_id for each in routes}
    sessions = {
        each: SessionFacts(id=each, source="telegram", started_us=1, created_position=1, key=K)
        for each in ids
    }
    return World(sessions=sessions, routes={K: routes}, activity=Silent())


A, B, C = led(1, "a", "import"), led(5, "b"), led(10, "c")


@pytest.mark.parametrize(
    ("routes", "standing"),
    [
        ((A, B, C), (A, B, C)),
        ((A, B, C, led(15, "b", "undo", 10)), (A, B)),
        ((A, B, C, led(15, "b", "undo", 9)), (A, B)),
        ((A, B, C, led(15, "b", "undo", 10), led(20, "a", "undo", 5)), (A,)),
        ((A, B, C, led(15, "b", "undo", 10), led(20, "c", "undo", 15)), (A, B, C)),
        (
            (A, B, C, led(15, "b", "undo", 10), led(20, "a", "undo", 5), led(25, "b", "undo", 20)),
            (A, B),
        ),
        ((A, B, led(10, "a"), led(15, "b", "undo", 10), led(20, "a", "undo", 5)), (A,)),
        # Where it does not say what it undoes: the last that leads where it puts the key back.
        ((A, B, led(10, "a", "undo")), (A,)),
        ((A, B, C, led(15, "b", "undo"), led(20, "a", "undo")), (A,)),
        ((A, led(5, None, "undo")), ()),
        ((A, B, led(10, "a", "undo", 5), led(15, None, "undo")), ()),
        ((A, led(5, None, "repair"), led(9, "b"), led(12, None, "undo")), (A, led(5, None, "repair"))),
        ((A, led(5, "x", "undo")), (A, led(5, "x", "undo"))),
        ((A, led(5, "x", "undo", 99)), (A, led(5, "x", "undo", 99))),
    ],
)
def test_an_undo_puts_back_what_stood_before(
    routes: tuple[RouteFacts, ...], standing: tuple[RouteFacts, ...]
) -> None:
    assert tuple(world(*routes).standing_routes(K)) == standing


@pytest.mark.parametrize(
    ("routes", "chosen"),
    [
        ((A,), None),
        ((A, B), "b"),
        ((A, B, C, led(15, "b", "undo", 10)), "b"),
        ((A, B, led(10, "a", "undo", 5)), None),
        ((A, B, led(10, None, "repair")), None),
        ((A, B, led(10, "d", "first_message")), None),
    ],
)
def test_a_key_leads_to_what_a_person_chose(routes: tuple[RouteFacts, ...], chosen: str | None) -> None:
    found = Chats(world(*routes)).chosen(K)

    assert (found and found.id) == chosen


def test_what_was_compressed_since_is_chosen_still() -> None:
    followed = RouteFacts(key=K, session_id="b2", position=9, at_us=9, cause="compression", previous_id="b")
    of_a = RouteFacts(key=K, session_id="a2", position=9, at_us=9, cause="compression", previous_id="a")
    chosen = Chats(world(A, B, followed)).chosen(K)

    assert chosen is not None
    assert chosen.id == "b2"
    assert Chats(world(A, of_a)).chosen(K) is None
    assert Chats(world()).chosen(None) is None
