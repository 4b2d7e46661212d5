"""Remedies that a person chooses: each cures one kind of finding, in one save that says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ...domain import events as e
from ...domain import turns
from ...domain.adoption import put_aside
from ...domain.errors import NoSuchChat, RepairRefused, SessionOver
from ...domain.events import session_stream
from ...domain.recovery import takes_messages
from ...domain.route import Route
from ...domain.session import Session
from ...domain.source_rows import IDENTITY
from ...projections.base import Connection
from ...projections.lineage import missing_parents
from ..decisions import Saved
from ..log import Condition
from ..streams import route_stream
from .repairs import MOVES, Batch, RepairCommands

_BY_HAND = "a person said so"


class Led(Saved, frozen=True):
    """A key that was led by hand.

    Attributes:
        leads_to, left: the session that it leads to now, and the one before; None where nowhere.
        cleared: turns that waited where it led, and will not run.
    """

    key: str = ""
    leads_to: str | None = None
    left: str | None = None
    cleared: tuple[str, ...] = ()


class Detached(Saved, frozen=True):
    """Sessions that stand alone now; `former` is the parent that each had named."""

    former: Mapping[str, str] = msgspec.field(default_factory=dict)


class RemedyCommands(RepairCommands):
    """What mends a finding where no rule may choose."""

    # --- keys ----------------------------------------------------------------------------------------

    def lead_key(self, key: str, session_id: str, *, at_us: int | None = None) -> Led:
        """Lead a chat's key to a session by a person's word: it is opened again however it ended.

        A session without a key takes this one, with the chat of those that bear it. The session that
        the key led to ends softly. That the key leads there already, and is to stay, goes on record.

        Raises:
            NoSuchSession. SessionOver: it goes on as another, which the error names. RepairRefused: it
            bears another key, or runs by itself and takes no person's messages.
        """

        def decision() -> Led:
            read_at = self.projector.catch_up().position
            state = self.session(session_id)
            self._refuse_to_lead(key, state)
            led = self.named_route(key)
            db = self.state.reader()
            if led.session_id == session_id and not state.ended and _cause(db, key) == "repair":
                return Led(session_id, (), key=key, leads_to=session_id, left=session_id)
            batch = Batch(self.at(at_us))
            streams = [session_stream(session_id), route_stream(self.identity, key)]
            if state.key is None:
                batch.session(state, self._identity_of(db, key, state))
            if state.ended:
                batch.session(state, e.SessionReopened())
            streams += self._put_led_aside(batch, led, state)
            self._settle_by_hand(batch, led, session_id)
            positions = self.save_events(batch.events, condition=Condition(read_at, tuple(streams), MOVES))
            return Led(session_id, positions, key=key, leads_to=session_id, left=led.session_id)

        return self.decide(decision)

    def close_key(self, key: str, *, at_us: int | None = None) -> Led:
        """Let a chat's key lead nowhere: its next message begins a new session.

        The session that it led to ends softly, so that no recovery takes it up again; what waits there
        is cleared in the same save, and named in the answer.

        Raises:
            NoSuchChat: no key of this text was ever led anywhere.
        """

        def decision() -> Led:
            led = self.named_route(key)
            if led.version == 0:
                raise NoSuchChat(f"no chat here has the key '{key}'", hint="retold audit names them")
            batch = Batch(self.at(at_us))
            left = self.known_session(led.session_id)
            cleared = None if left is None else turns.cleared(left.turns, "person")
            if left is not None:
                batch.session(left, cleared)
            self._put_led_aside(batch, led, None)
            batch.add(route_stream(self.identity, key), led.version, led.close("repair"))
            saved = self.save_events(batch.events)
            gone = () if cleared is None else tuple(cleared.turns)
            return Led(led.session_id or "", saved, key=key, left=led.session_id, cleared=gone)

        return self.decide(decision)

    def _refuse_to_lead(self, key: str, state: Session) -> None:
        if not takes_messages(state.source, state.parent_kind):
            raise RepairRefused(
                f"{state.id} runs by itself ({state.parent_kind or state.source}): no chat leads there",
                hint="choose a session of the chat",
            )
        if state.successor is not None:
            raise SessionOver(state.id, successor=self.tip_of(state).id)
        if state.key not in (None, key):
            raise RepairRefused(
                f"{state.id} bears the key {state.key}", hint="choose a session of this chat, or one without"
            )

    def _identity_of(self, db: Connection, key: str, state: Session) -> e.IdentityRestored:
        """The key, and the chat of the session that bears it and was in use last."""
        row = db.execute(
            "SELECT id FROM sessions WHERE session_key = ? AND id <> ?"
            " ORDER BY coalesce(last_active_us, started_us) DESC, id LIMIT 1",
            (key, state.id),
        ).fetchone()
        now: dict[str, Any] = {"session_key": key}
        model = None if row is None else self.known_session(row[0])
        if model is not None:
            theirs = {name: getattr(model, name) for name in IDENTITY if name != "session_key"}
            now |= {n: v for n, v in theirs.items() if v is not None and getattr(state, n) is None}
        return e.IdentityRestored(dict.fromkeys(now), now)

    def _put_led_aside(self, batch: Batch, led: Route, going: Session | None) -> list[str]:
        """End softly what the key led to; what waits there waits on in the session that it goes to."""
        wrong = self.known_session(led.session_id)
        if wrong is None or (going is not None and wrong.id == going.id):
            return []
        batch.session(wrong, put_aside(wrong))
        if going is not None:
            batch.queue(wrong, going)
        return [session_stream(wrong.id)]

    def _settle_by_hand(self, batch: Batch, led: Route, session_id: str) -> None:
        settled_on = led.settle(session_id, "repair", [], [_BY_HAND])
        batch.add(route_stream(self.identity, led.key), led.version, settled_on)

    # --- lineage and identity ------------------------------------------------------------------------

    def choose_continuation(self, session_id: str, *, at_us: int | None = None) -> Saved:
        """Say which of several continuations of a compressed session goes on: this one.

        The others stay, as branches of it, and end softly; the key, where it led to one of them, leads
        to this one, and who still holds the parent is told of it.

        Raises:
            NoSuchSession. RepairRefused: it continues nothing.
        """

        def decision() -> Saved:
            read_at = self.projector.catch_up().position
            child = self.session(session_id)
            parent = self.known_session(child.parent_id)
            if parent is None or child.parent_kind != "continuation":
                raise RepairRefused(
                    f"{session_id} continues no session", hint="see: retold sessions tree SESSION"
                )
            db = self.state.reader()
            batch = Batch(self.at(at_us))
            streams = {session_stream(each) for each in (child.id, parent.id)}
            beside = [self.session(each) for each in _twins(db, parent.id) if each != child.id]
            for twin in beside:
                kept: dict[str, Any] = {"parent_kind": "branch"}
                batch.session(twin, e.IdentityRestored({"parent_kind": "continuation"}, kept))
                batch.session(twin, put_aside(twin))
                streams.add(session_stream(twin.id))
            if beside:
                self._name_successor(batch, db, parent, child)
            key = child.key or parent.key
            led = None if key is None else self.route(key)
            tip = self.tip_of(child)
            for twin in beside:
                batch.queue(twin, tip)
            ends = {each.id for twin in beside for each in (twin, self.tip_of(twin))} | {parent.id}
            if led is not None and led.session_id in ends:
                if tip.hard_end:
                    batch.session(tip, e.SessionReopened())
                self._settle_by_hand(batch, led, tip.id)
                streams |= {route_stream(self.identity, led.key), session_stream(tip.id)}
            moved = Condition(read_at, tuple(sorted(streams)), MOVES)
            return Saved(session_id, self.save_events(batch.events, condition=moved))

        return self.decide(decision)

    def _name_successor(self, batch: Batch, db: Connection, parent: Session, child: Session) -> None:
        if parent.successor == child.id or parent.end_reason != "compression":
            return
        ended_at, ended_us = db.execute(
            "SELECT ended_at, ended_us FROM sessions WHERE id = ?", (parent.id,)
        ).fetchone()
        known = float(ended_at) if isinstance(ended_at, (int, float)) else None
        renamed = e.SessionCompressed(child.id, known)
        batch.add(session_stream(parent.id), parent.version, renamed, at_us=ended_us)

    def restore_identity(self, session_id: str, *, at_us: int | None = None) -> Saved:
        """Give a session the key, chat and user that it should bear: those that it lost, or of a
        continuation those of what it continues.

        A key that it bore by mistake and that led to it leads nowhere then; the right one leads to it
        where it led to what it continues.

        Raises:
            NoSuchSession. RepairRefused: it lost nothing, and bears what it should.
        """

        def decision() -> Saved:
            read_at = self.projector.catch_up().position
            state = self.session(session_id)
            parent = self.known_session(state.parent_id) if state.parent_kind == "continuation" else None
            now = self._lost_identity(state) if state.key is None else _inherited(state, parent)
            if not now:
                raise RepairRefused(
                    f"{session_id} bears the identity that it should", hint="nothing was written"
                )
            batch = Batch(self.at(at_us))
            was = {name: _column(state, name) for name in now}
            batch.session(state, e.IdentityRestored(was, now))
            streams = [session_stream(session_id)]
            key = now.get("session_key")
            if isinstance(key, str) and state.key is not None and parent is not None:
                ours, theirs = self.route(state.key), self.route(key)
                streams += [route_stream(self.identity, each.key) for each in (ours, theirs)]
                if ours.session_id == state.id:
                    batch.add(streams[1], ours.version, ours.close("repair"))
                if theirs.session_id == parent.id:
                    self._settle_by_hand(batch, theirs, self.tip_of(state).id)
            moved = Condition(read_at, tuple(streams), MOVES)
            return Saved(session_id, self.save_events(batch.events, condition=moved))

        return self.decide(decision)

    def _lost_identity(self, state: Session) -> dict[str, Any]:
        """What the session bore when it lost its key, as far as it lacks it."""
        lost: dict[str, Any] = {}
        for each in self.event_log.stream_events(session_stream(state.id), without_messages=True):
            if isinstance(each.payload, e.IdentityLost):
                lost |= each.payload.was
        if lost.get("session_key") is None:
            return {}
        return {n: v for n, v in lost.items() if v is not None and _column(state, n) is None}

    def detach_children(self, *, at_us: int | None = None) -> Detached:
        """Let sessions that name a parent which is not here stand alone; who that was stays on record.

        A parent that was deleted or erased here is known: its children keep it.
        """

        def decision() -> Detached:
            read_at = self.projector.catch_up().position
            batch = Batch(self.at(at_us))
            former: dict[str, str] = {}
            for child, parent, kind in missing_parents(self.state.reader()):
                was: dict[str, Any] = {"parent_session_id": parent, "parent_kind": kind}
                batch.session(self.session(child), e.IdentityRestored(was, dict.fromkeys(was)))
                former[child] = parent
            moved = Condition(read_at, topics=(e.SessionCreated.topic,))
            return Detached("", self.save_events(batch.events, condition=moved), former=former)

        return self.decide(decision)


def _inherited(state: Session, parent: Session | None) -> dict[str, Any]:
    """What a continuation should have of its parent and has otherwise, or not at all."""
    if parent is None:
        return {}
    theirs = {name: _column(parent, name) for name in IDENTITY}
    return {n: v for n, v in theirs.items() if v is not None and v != _column(state, n)}


def _column(state: Session, name: str) -> Any:
    return getattr(state, "key" if name == "session_key" else name)


def _twins(db: Connection, parent: str) -> list[str]:
    rows = db.execute(
        "SELECT child FROM edges WHERE parent = ? AND kind = 'continuation' ORDER BY child", (parent,)
    )
    return [row[0] for row in rows]


def _cause(db: Connection, key: str) -> str | None:
    row = db.execute("SELECT cause FROM routes WHERE key = ?", (key,)).fetchone()
    return None if row is None else str(row[0])
