"""Turns: the order in which what waits is run, against REFERENCE.md 9 written down plainly; and leases."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from retold.domain import events as e
from retold.domain import handoff, session, turns
from retold.domain.errors import BadUsage, QueueFull, RuleBroken, TurnRunning
from retold.domain.handoff import Handoff
from retold.domain.turns import Turns, Waiting
from retold.tests.histories import MINUTE_US, SECOND_US, T0_US

LEASE_US = 2 * MINUTE_US
CAP = 5


def told(state: Turns, payloads: Sequence[e.Payload], at_us: int = T0_US) -> Turns:
    for each in payloads:
        state = turns.evolve(state, each, at_us)
    return state


def queued(state: Turns, turn: str, lane: turns.Lane = "overflow", cap: int = CAP) -> Turns:
    payload = turns.queue(state, turn, f"say {turn}", session_id="s1", lane=lane, cap=cap)
    return told(state, [payload])


def begun(state: Turns, turn: str, at_us: int = T0_US, gateway: str | None = None) -> Turns:
    payloads = turns.begin(state, turn, session_id="s1", at_us=at_us, lease_us=LEASE_US, gateway=gateway)
    return told(state, payloads, at_us)


class Model:
    """REFERENCE.md 9, word for word: a slot, an overflow, and one that is promoted at each drain.

    A /queue prompt that stands in the slot is never overwritten: a plain message has the slot before it.
    """

    def __init__(self) -> None:
        self.slot: tuple[str, bool] | None = None
        self.overflow: list[str] = []

    def __len__(self) -> int:
        return len(self.overflow) + (self.slot is not None)

    def full(self, *, plain: bool) -> bool:
        """A plain message that waits is replaced: that needs no room."""
        replaces = plain and self.slot is not None and not self.slot[1]
        return len(self) >= CAP and not replaces

    def plain(self, turn: str) -> str | None:
        before, self.slot = self.slot, (turn, False)
        if before is not None and before[1]:
            self.overflow.insert(0, before[0])
            return None
        return None if before is None else before[0]

    def queue(self, turn: str) -> None:
        if self.slot is None:
            self.slot = (turn, True)
        else:
            self.overflow.append(turn)

    def drain(self) -> str | None:
        taken = self.slot
        self.slot = (self.overflow.pop(0), True) if self.overflow else None
        return None if taken is None else taken[0]

    def clear(self) -> None:
        self.slot = None
        self.overflow.clear()


@given(st.lists(st.sampled_from(["plain", "queue", "queue", "drain", "clear"]), max_size=40))
@example(["queue", "queue", "plain", "plain", "drain", "plain", "drain", "drain", "drain"])
def test_what_waits_runs_in_the_order_of_the_slot_and_the_overflow(steps: list[str]) -> None:
    state, model = Turns(), Model()
    for number, step in enumerate(steps):
        turn = f"t{number}"
        if step in ("plain", "queue"):
            lane: turns.Lane = "slot" if step == "plain" else "overflow"
            if model.full(plain=step == "plain"):
                with pytest.raises(QueueFull):
                    queued(state, turn, lane)
                continue
            payload = turns.queue(state, turn, "x", session_id="s1", lane=lane, cap=CAP)
            state = told(state, [payload])
            if step == "plain":
                assert payload.replaces == model.plain(turn)
            else:
                assert payload.replaces is None
                model.queue(turn)
        elif step == "drain":
            following = turns.following(state)
            assert (None if following is None else following.turn) == model.drain()
            if following is not None:
                state = begun(state, following.turn)
                state = told(state, [e.TurnFinished(following.turn, "done")])
        else:
            cleared = turns.cleared(state, "person")
            assert (cleared is None) == (len(model) == 0)
            state = told(state, [] if cleared is None else [cleared])
            model.clear()
        assert len(state.waiting) == len(model)
    rest = [each.turn for each in state.waiting]
    assert rest == list(iter(model.drain, None))


def test_a_newer_plain_message_takes_the_place_of_the_one_before() -> None:
    state = queued(queued(Turns(), "p1", "slot"), "p2", "slot")

    assert [(each.turn, each.text) for each in state.waiting] == [("p2", "say p2")]


def test_what_was_queued_on_purpose_is_never_replaced_or_merged() -> None:
    state = queued(queued(queued(Turns(), "q1"), "q2"), "p1", "slot")

    assert [each.turn for each in state.waiting] == ["p1", "q1", "q2"]
    assert [each.turn for each in queued(state, "p2", "slot").waiting] == ["p2", "q1", "q2"]


def test_a_full_queue_says_so_and_a_plain_message_still_replaces_the_one_that_waits() -> None:
    state = queued(queued(Turns(), "p1", "slot", cap=2), "q1", cap=2)

    with pytest.raises(QueueFull, match="queue is full") as refused:
        queued(state, "q2", cap=2)
    assert (refused.value.cap, refused.value.exit_code) == (2, 4)
    assert [each.turn for each in queued(state, "p2", "slot", cap=2).waiting] == ["p2", "q1"]


@pytest.mark.parametrize("text", ["", " \n", None, 5])
def test_nothing_to_be_said_is_not_queued(text: str) -> None:
    with pytest.raises(BadUsage):
        turns.queue(Turns(), "t1", text, session_id="s1", lane="slot", cap=CAP)


def test_a_turn_under_way_refuses_another_and_says_who_runs_it() -> None:
    state = begun(Turns(), "t1", gateway="main")

    with pytest.raises(TurnRunning) as refused:
        begun(state, "t2", T0_US + LEASE_US - 1)
    error = refused.value
    assert (error.turn, error.gateway, error.since_us) == ("t1", "main", T0_US)
    assert error.lease_until_us == T0_US + LEASE_US


def test_past_its_lease_a_turn_counts_as_cut_off_and_the_next_one_begins() -> None:
    state = queued(begun(Turns(), "t1"), "t2")
    payloads = turns.begin(state, "t2", session_id="s1", at_us=T0_US + LEASE_US, lease_us=LEASE_US)

    assert payloads == [
        e.TurnFinished("t1", "lost", turns.LEASE_LAPSED),
        e.TurnStarted("t2", T0_US + 2 * LEASE_US, queued=True),
    ]
    assert told(state, payloads).waiting == ()


def test_a_renewed_lease_is_counted_from_the_renewal_and_the_turn_from_its_start() -> None:
    state = begun(Turns(), "t1", gateway="main")
    at_us = T0_US + LEASE_US + SECOND_US  # late, but nobody has taken its place
    renewed = turns.renew(state, "t1", session_id="s1", at_us=at_us, lease_us=LEASE_US)
    state = told(state, [renewed], at_us)

    assert (state.lease_until_us, state.since_us, state.gateway) == (at_us + LEASE_US, T0_US, "main")
    with pytest.raises(RuleBroken, match="does not run"):
        turns.renew(state, "t2", session_id="s1", at_us=at_us, lease_us=LEASE_US)


def test_what_a_gateway_ran_is_cut_off_by_its_own_start_whatever_the_lease() -> None:
    state = begun(Turns(), "t1", gateway="main")

    assert state.cut_off_at(T0_US, gateway="main")
    assert not state.cut_off_at(T0_US, gateway="other")
    assert not state.cut_off_at(T0_US)
    assert state.cut_off_at(T0_US + LEASE_US)
    assert not Turns().cut_off_at(T0_US, gateway="main")


@pytest.mark.parametrize(
    "end", [e.SessionEnded("agent_close", hard=False), e.SessionReset("person"), e.SessionCompressed("s2")]
)
def test_i16_a_session_that_is_over_is_in_no_turn(end: e.Payload) -> None:
    assert told(begun(Turns(), "t1"), [end]).running is None


def test_what_a_cut_off_turn_was_queued_with_is_kept_until_another_begins() -> None:
    state = begun(queued(Turns(), "q1"), "q1")
    state = told(state, [e.TurnFinished("q1", "lost")])

    assert (state.cut_off, state.asked) == ("q1", Waiting("q1", "say q1", "overflow"))
    assert begun(state, "t2").asked is None
    assert told(begun(state, "t2"), [e.TurnFinished("t2", "done")]).cut_off is None


def test_a_compressed_conversation_carries_its_running_turn_and_its_queue_along() -> None:
    parent = queued(queued(begun(queued(Turns(), "q1"), "q1", gateway="main"), "p1", "slot"), "q2")
    child = told(Turns(), turns.carried(parent, "s1"))

    assert (child.running, child.lease_until_us, child.gateway) == ("q1", parent.lease_until_us, "main")
    assert child.asked == parent.asked
    assert child.waiting == parent.waiting
    assert told(parent, [e.SessionCompressed("s2")]).waiting == ()
    assert turns.carried(Turns(), "s1") == []


@pytest.mark.parametrize(
    "payload",
    [
        e.TurnQueued("t", "hello", "slot"),
        e.TurnStarted("t", 5),
        e.TurnFinished("t", "done"),
        e.TurnFinished("t", "lost"),
        e.QueueCleared(["t"], "reset"),
    ],
)
def test_an_event_of_a_turn_changes_nothing_of_its_session_but_turns_and_marks(payload: e.Payload) -> None:
    whole = session.evolve(None, "s", 1, e.SessionCreated("telegram", session_key="k"))
    assert whole is not None
    whole = msgspec.structs.replace(whole, handoff=Handoff("pending", "telegram", deadline_us=9))
    moved = session.evolve(whole, "s", 2, payload, 7)

    assert handoff.evolve(whole.handoff, payload, 7) == whole.handoff
    assert session._changes(whole, payload) == {}
    assert moved is not None
    assert moved == msgspec.structs.replace(whole, version=2, turns=moved.turns, marks=moved.marks)
    assert moved.turns == turns.evolve(whole.turns, payload, 7)
