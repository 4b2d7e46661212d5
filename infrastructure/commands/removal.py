"""Deleting sessions, and taking that back until they are erased."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from ...domain import events as e
from ...domain import removal, turns
from ...domain.errors import BadUsage, ChangedMeanwhile, NoSuchSession, TitleTaken
from ...domain.events import Event, session_stream
from ...domain.removal import DAY_US
from ...domain.requeuing import again, given_up
from ...domain.session import Session
from ...domain.text import scrub
from ...projections.chat_facts import keys_of
from ...projections.deletions import delegates_of, deleted_along, deletion
from ..decisions import Saved, event
from ..log import Condition
from ..sqlite import one
from ..streams import title_stream
from .base import following
from .erasure import ErasureCommands


class Deleted(Saved, frozen=True):
    """What was deleted.

    Attributes:
        sessions: the session, then the delegates that went with it.
        erase_after_us: until then it can be undone; microseconds since the Unix epoch.
        keys: chats that led to one of them and lead nowhere now.
        erased: whether it is gone for good already.
        pending: files that hold the text until their readers leave.
        cleared: turns that waited in one of them, and will not run.
        named: those that have to be named to come back, in the order in which they can; the others come
            along.
    """

    sessions: tuple[str, ...] = ()
    erase_after_us: int = 0
    messages: int = 0
    keys: tuple[str, ...] = ()
    erased: bool = False
    pending: tuple[str, ...] = ()
    cleared: tuple[str, ...] = ()
    named: tuple[str, ...] = ()


class Undeleted(Saved, frozen=True):
    """What is back.

    Attributes:
        sessions: the session, then the delegates that had gone with it.
        keys: chats that lead to one of them again.
        moved_on: chats that had led to one of them and lead elsewhere by now.
        unclaimed: titles that another session claimed meanwhile; theirs stand unclaimed.
    """

    sessions: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    moved_on: tuple[str, ...] = ()
    unclaimed: tuple[str, ...] = ()


class Seen(NamedTuple):
    """What somebody saw before saying that it may go: as of which position, and what would go along."""

    as_of: int
    along: Sequence[str] | None


class RemovalCommands(ErasureCommands):
    """What goes, and may come back."""

    def delete_session(
        self, session_id: str, reason: str = "deleted", *, now: bool = False, at_us: int | None = None
    ) -> Deleted:
        """Delete a session and its delegates: gone from every view at once, erased once its time is up.

        One save: what waits in their queues is cleared, their titles are free, and the chats that led to
        them lead nowhere. Branches and continuations stay and lose nothing.

        Args:
            now: erase it at once; nothing can take that back.

        Raises:
            NoSuchSession: there is none. DeletedSession: it is deleted already (unless `now`).
            TurnRunning: a turn of one of them is under way. VersionConflict, …
        """
        return self._delete((session_id,), reason, now=now, at_us=at_us)

    def delete_conversation(
        self,
        session_ids: Sequence[str],
        reason: str = "deleted",
        *,
        as_of: int,
        along: Sequence[str] | None = None,
        now: bool = False,
        at_us: int | None = None,
    ) -> Deleted:
        """Delete sessions as somebody saw them, with their delegates, in one save: all of them or none.

        Args:
            session_ids: the segments of a conversation, the first one first.
            as_of: the position of the log that they were looked at as of.
            along: what was seen to go with them; None for whatever does.

        Raises:
            ChangedMeanwhile: one of them, or what goes along, is not as it was then; nothing was deleted.
            BadUsage: no session, or a position that the log has not reached.
            TurnRunning, VersionConflict, …
        """
        if not session_ids:
            raise BadUsage("no session is named", hint="give the segments of a conversation")
        if not 0 <= as_of <= self.head().position:
            raise BadUsage(f"as_of may be from 0 to the log's head, not {as_of}", hint="nothing was written")
        return self._delete(tuple(session_ids), reason, now=now, seen=Seen(as_of, along), at_us=at_us)

    def delete_if_empty(
        self, session_id: str, reason: str = "empty", *, at_us: int | None = None
    ) -> Deleted | None:
        """Delete a session in which nothing was ever said; None where it is to stay.

        It stays if it has a title or a child, or ever had a message: one whose messages were all undone
        is not empty (FIELD_CASES B13).

        Raises:
            NoSuchSession, TurnRunning, VersionConflict, …
        """
        done = self._delete((session_id,), reason, if_empty=True, at_us=at_us)
        return done if done.positions else None

    def _delete(
        self,
        session_ids: tuple[str, ...],
        reason: str,
        *,
        now: bool = False,
        if_empty: bool = False,
        seen: Seen | None = None,
        at_us: int | None,
    ) -> Deleted:
        first = session_ids[0]
        kept_us = 0 if now else int(self.config.sessions.erase_after * DAY_US)
        # Whatever time a caller gives, there is that long to take it back.
        until_us = max(self.at(at_us), self.clock()) + kept_us

        def decision() -> Deleted:
            read_at = self.head().position
            self.projector.catch_up()
            if seen is None:
                state = self.session(first, deleted=now)
                if state.deleted:
                    return self._said_before(first)
                if if_empty and not self._is_empty(state):
                    return Deleted(first, ())
            gone = self._going(session_ids, () if seen is None else seen.along or ())
            if seen is not None:
                self._refuse_changed(session_ids, gone, seen)
            events: list[Event] = []
            keys: list[str] = []
            messages = 0
            for each, parent in gone.items():
                messages += self._go(each, parent, reason, self.at(at_us), until_us, events, keys)
            topics = (e.SessionCreated.topic, e.SessionRerouted.topic)
            condition = Condition(read_at, tuple(session_stream(each) for each in gone), topics)
            saved = self.save_events(events, condition=condition)
            waited = [each.payload for each in events if isinstance(each.payload, e.QueueCleared)]
            cleared = tuple(turn for each in waited for turn in each.turns)
            named = tuple(reversed([each for each, parent in gone.items() if parent is None]))
            return Deleted(
                first,
                saved,
                tuple(gone),
                until_us,
                messages,
                tuple(keys),
                cleared=cleared,
                named=named,
            )

        done = self.decide(decision)
        self._due_us = None
        if not now:
            return done
        erased = self.erase_sessions(done.sessions, reason=reason, at_us=at_us)
        return msgspec.structs.replace(
            done, positions=(*done.positions, *erased.positions), erased=True, pending=erased.pending
        )

    def _going(self, session_ids: Sequence[str], along: Sequence[str]) -> dict[str, str | None]:
        """All that goes, the last segment first, a delegate with whose it is."""
        gone: dict[str, str | None] = {}
        for each in (*reversed(session_ids), *along):
            if each not in gone:
                gone[each] = None
                delegates = delegates_of(self.state.reader(), each)
                gone |= {name: parent for name, parent in delegates.items() if name not in gone}
        return gone

    def _refuse_changed(self, session_ids: Sequence[str], gone: Iterable[str], seen: Seen) -> None:
        """Raise ChangedMeanwhile for what is not as it was seen."""
        for each in gone:
            if self.event_log.read(seen.as_of, limit=1, stream=session_stream(each)):
                raise ChangedMeanwhile(each)
        known = None if seen.along is None else {*session_ids, *seen.along}
        if known is not None and known != set(gone):
            raise ChangedMeanwhile(session_ids[0])

    def _go(
        self,
        session_id: str,
        parent: str | None,
        reason: str,
        at_us: int,
        until_us: int,
        events: list[Event],
        keys: list[str],
    ) -> int:
        """The events by which one session goes, and the keys that led to it; how many messages it had."""
        db = self.state.reader()
        count = int(one(db, "SELECT count(*) FROM messages WHERE session_id = ?", (session_id,)))
        state = self.session(session_id)
        deleted = removal.delete(
            state,
            reason=reason,
            at_us=at_us,
            erase_after_us=until_us,
            messages=count,
            with_parent=parent,
        )
        events += self._leaving(state, deleted, at_us)
        for key in keys_of(db, session_id):
            events += self._closing(key, session_id, at_us)
            keys.append(key)
        return count

    def _is_empty(self, state: Session) -> bool:
        said = self.event_log.read(limit=1, stream=session_stream(state.id), topics=[e.MessageAppended.topic])
        child = "SELECT 1 FROM sessions WHERE parent_session_id = ? LIMIT 1"
        return not said and state.title is None and one(self.state.reader(), child, (state.id,)) is None

    def undelete_session(self, session_id: str, *, at_us: int | None = None) -> Undeleted:
        """Bring a deleted session back as it was, with the delegates that went with it.

        What waited in them waits again. Its title is claimed again unless another session has it by now, and
        a chat leads to it again unless it leads elsewhere by now. A continuation of what has gone on without
        it since is a branch.

        Raises:
            NoSuchSession: there is none, or it is erased. RuleBroken: it is not deleted.
        """

        def decision() -> Undeleted:
            read_at = self.head().position
            self.projector.catch_up()
            at = self.at(at_us)
            known = deletion(self.state.reader(), scrub(session_id)[0])
            if known is not None and known.erased_position is not None:
                raise NoSuchSession(
                    f"session {session_id} was erased (#{known.erased_position}): nothing is left of it",
                    hint="a backup from before may hold it: retold restore",
                )
            removal.undelete(self.session(session_id, deleted=True))
            back = deleted_along(self.state.reader(), session_id)
            events: list[Event] = []
            keys: list[str] = []
            moved_on: list[str] = []
            unclaimed: list[str] = []
            before: list[str | None] = []
            for each in back:
                state = self.session(each, deleted=True)
                before.append(state.parent_id)
                titles, left, waited = self._left_with(each)
                events += self._returning(state, state.title in titles, waited, unclaimed, at)
                for key in left:
                    led = self.route(key)
                    again = led.lead_to(each, "undo") if led.session_id is None else None
                    if again is None:
                        moved_on.append(key)
                    else:
                        events.append(self.rerouted(led, again, at))
                        keys.append(key)
            parents = tuple(session_stream(each) for each in before if each is not None)
            saved = self.save_events(events, condition=Condition(read_at, parents))
            return Undeleted(session_id, saved, tuple(back), tuple(keys), tuple(moved_on), tuple(unclaimed))

        done = self.decide(decision)
        self._due_us = None
        return done

    def _said_before(self, session_id: str) -> Deleted:
        """A session that was deleted before, and is to be erased now."""
        db = self.state.reader()
        known = deletion(db, session_id)
        if known is None or known.erased_position is not None:
            raise NoSuchSession(
                f"session {session_id} was erased: nothing is left of it", hint="nothing was written"
            )
        return Deleted(
            session_id, (), tuple(deleted_along(db, session_id)), known.erase_after_us, known.messages
        )

    def _leaving(self, state: Session, deleted: e.SessionDeleted, at_us: int) -> list[Event]:
        events: list[Event] = []
        stream = session_stream(state.id)
        cleared = turns.cleared(state.turns, "deleted")
        if cleared is not None:
            events.append(event(stream, state.version + 1, cleared, at_us))
        events.append(event(stream, state.version + len(events) + 1, deleted, at_us))
        if state.title is not None:
            held = self.claim(state.title)
            released = held.release(state.id)
            if released is not None:
                name = title_stream(self.identity, state.title)
                events.append(event(name, held.version + 1, released, at_us))
        return events

    def _closing(self, key: str, session_id: str, at_us: int) -> list[Event]:
        led = self.route(key)
        if led.session_id != session_id:
            return []
        return [self.rerouted(led, e.RouteClosed(led.key, session_id, "delete"), at_us)]

    def _returning(
        self,
        state: Session,
        had_claim: bool,
        waited: list[e.TurnQueued],
        unclaimed: list[str],
        at_us: int,
    ) -> list[Event]:
        payloads: list[e.Payload] = [removal.undelete(state), *waited]
        claimed: e.TitleClaimed | None = None
        held = None if state.title is None or not had_claim else self.claim(state.title)
        if held is not None:
            try:
                claimed = held.claim(state.id)
            except TitleTaken:
                unclaimed.append(held.title)
                payloads.append(e.SessionTitled(state.title, claimed=False))
        if self.went_on_without(state):
            payloads.append(removal.beside())
        events = following(state, payloads, at_us)
        if held is not None and claimed is not None:
            events.append(event(title_stream(self.identity, held.title), held.version + 1, claimed, at_us))
        return events

    def _left_with(self, session_id: str) -> tuple[set[str], list[str], list[e.TurnQueued]]:
        """The titles that a session held when it was deleted, the keys that led to it, what waited there."""
        known = deletion(self.state.reader(), session_id)
        if known is None:
            return set(), [], []
        titles: set[str] = set()
        keys: list[str] = []
        saved = self._save_of(known.position)
        for told in saved:
            match told.payload:
                case e.TitleReleased(session_id=holder) if holder == session_id:
                    titles.add(told.payload.title)
                case e.RouteClosed(previous=previous, cause="delete") if previous == session_id:
                    keys.append(told.payload.key)
                case _:
                    pass
        return titles, keys, self._waited(session_id, saved)

    def _waited(self, session_id: str, saved: list[e.Recorded]) -> list[e.TurnQueued]:
        stream = session_stream(session_id)
        mine = [each for each in saved if each.stream == stream]
        if not any(isinstance(each.payload, e.QueueCleared) for each in mine):
            return []
        told = self.event_log.stream_events(stream, without_messages=True)
        before = [each for each in told if each.position < mine[0].position]
        return [again(turn) for gone in given_up(mine, {stream: before}) for turn in gone.turns]

    def _save_of(self, position: int) -> list[e.Recorded]:
        """The events that were saved together with one."""
        save = self.event_log.read(position - 1, limit=1)[0].save
        found: list[e.Recorded] = []
        after = save - 1
        while told := self.event_log.read(after, limit=200):
            found += [each for each in told if each.save == save]
            if told[-1].save != save:
                break
            after = told[-1].position
        return found
