"""What is in a session's context: compressed, taken back, brought back; and what readers see of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from ...domain import events as e
from ...domain.context import last_turns, redoable, rewinding, summarised, taken_back
from ...domain.errors import NothingToDo
from ...domain.events import Recorded, session_stream
from ...domain.session import Session, Why
from ...domain.view import View
from ...projections.context import active_view, display_history, kin, lines
from ..decisions import Saved, event
from .compression import CompressionCommands
from .told import ToldCommands

Chosen: TypeAlias = Callable[[Session], int]
"""Which message a session is taken back to."""


class Compacted(Saved, frozen=True):
    """A compression in place: the summary's position, and those of the kept messages' copies."""

    summary: int
    kept: tuple[int, ...]


class Rewound(Saved, frozen=True):
    """What was taken back: how many messages left the context, from which on, and what it ends with."""

    rewound_count: int
    target_message: int
    new_head_id: int | None


class Restored(Saved, frozen=True):
    """What was brought back: how many messages are in the context again."""

    restored_count: int


class ContextCommands(CompressionCommands, ToldCommands):
    """What a model is given of a session."""

    def compress(
        self,
        session_id: str,
        summary: str,
        *,
        keep_last: int = 0,
        tail: Iterable[int] | None = None,
        upto: int | None = None,
        in_place: bool | None = None,
        why: Why = "context_full",
        continuation_id: str | None = None,
        at_us: int | None = None,
    ) -> Saved:
        """Let a conversation go on shorter: `summary`, and after it what is kept, verbatim.

        In a continuation of its own, or in place where `compression.in_place` says so. Nothing is deleted.

        Args:
            summary: what stands for all that leaves the context; the caller's words.
            keep_last: how many exchanges are kept, from the last one back.
            tail: the messages that are kept, by id, in place of `keep_last`. A tool's result is kept
                with its call, a call with its results.
            upto: the last message that the summary knows of; what was said since is kept too.
            in_place: for this once, whatever the configuration says.
            why: what made a continuation necessary: a full context, or a cap on turns.
            continuation_id: the id of the continuation.

        Raises:
            NoSuchSession. SessionOver: it goes on elsewhere already; the error names where.
            NothingToDo: nothing would leave the context. NoSuchMessage, RuleBroken, BadUsage.
        """
        if self.config.compression.in_place if in_place is None else in_place:
            return self.compact(session_id, summary, keep_last=keep_last, tail=tail, upto=upto, at_us=at_us)
        return self.compress_session(
            session_id,
            summary,
            keep_last=keep_last,
            tail=tail,
            upto=upto,
            why=why,
            continuation_id=continuation_id,
            at_us=at_us,
        )

    def compact(
        self,
        session_id: str,
        summary: str,
        *,
        keep_last: int = 0,
        tail: Iterable[int] | None = None,
        upto: int | None = None,
        at_us: int | None = None,
    ) -> Compacted:
        """`compress` in place: the session keeps its id, and search still finds what left the context."""
        summary_of = summarised(summary, where=f"session {session_id}")
        keeping = self.keeping(keep_last=keep_last, tail=tail, upto=upto)

        def decision() -> Compacted:
            state = self.session(session_id)
            state.refuse_over()
            at = self.at(at_us)
            kept = keeping(state)
            stream, version = session_stream(session_id), state.version + 1
            events = [
                event(stream, version, e.MessagesCompacted(kept.leaving), at),
                event(stream, version + 1, summary_of, at),
            ]
            for payload, said_us in kept.copies:
                events.append(event(stream, version + len(events), payload, said_us))
            positions = self.save_events(events)
            return Compacted(session_id, positions, positions[1], positions[2:])

        return self.decide(decision)

    # --- taking back -------------------------------------------------------------------------------

    def rewind(self, session_id: str, message: int, *, at_us: int | None = None) -> Rewound:
        """Take back a user's message and all that came after it; search and the context leave it out.

        Raises:
            NoSuchSession, SessionOver.
            NoSuchMessage: the session has none of this id, a user did not say it, or it is taken back.
        """
        return self._rewind(session_id, lambda _: message, at_us)

    def undo_turns(self, session_id: str, turns: int = 1, *, at_us: int | None = None) -> Rewound:
        """Take back the last turns: each a user's message and all that came of it.

        Raises:
            NoSuchSession, SessionOver, BadUsage. NothingToDo: there is no turn.
        """
        where = f"session {session_id}"
        return self._rewind(
            session_id,
            lambda state: last_turns(lines(self.told(state), session_id), turns, where=where),
            at_us,
        )

    def redo(self, session_id: str, *, at_us: int | None = None) -> Restored:
        """Bring back what the last undo or rewind took back; again, what the one before took.

        Raises:
            NoSuchSession, SessionOver.
            NothingToDo: nothing was taken back, or something was said since.
        """

        def decision() -> Restored:
            state = self.session(session_id)
            state.refuse_over()
            at = self.at(at_us)
            stream = session_stream(session_id)
            events = self.event_log.stream_events(stream, without_messages=True)
            rewind = redoable(events)
            if rewind is None:
                raise NothingToDo(f"session {session_id}: nothing was undone", hint="nothing was written")
            topic = e.MessageAppended.topic
            if self.event_log.read(rewind.position, limit=1, stream=stream, topics=(topic,)):
                raise NothingToDo(
                    f"session {session_id}: something was said since the undo, which stays undone",
                    hint="search still finds what was undone",
                )
            saved, restored = [], 0
            for each in self._of_save(rewind):
                reverse = taken_back(each.payload)
                restored += len(reverse.messages) if each.stream == stream else 0
                saved.append(event(each.stream, self._version(each.stream, state) + 1, reverse, at))
            return Restored(session_id, self.save_events(saved), restored)

        return self.decide(decision)

    def _rewind(self, session_id: str, choose: Chosen, at_us: int | None) -> Rewound:
        def decision() -> Rewound:
            state = self.session(session_id)
            state.refuse_over()
            at = self.at(at_us)
            message = choose(state)
            db = self.told(state)
            stream = session_stream(session_id)
            compactions = [
                each.payload.messages
                for each in self.event_log.stream_events(stream, without_messages=True)
                if isinstance(each.payload, e.MessagesCompacted)
            ]
            plan = rewinding(lines(db, session_id), message, compactions, where=f"session {session_id}")
            events = [event(stream, state.version + 1, plan.rewound, at)]
            for other, those in kin(db, session_id, plan.elsewhere).items() if plan.elsewhere else ():
                hidden = e.MessagesRewound(
                    [each.id for each in those],
                    compacted=[each.id for each in those if each.visibility == "compacted"],
                )
                events.append(event(session_stream(other), self.session(other).version + 1, hidden, at))
            return Rewound(session_id, self.save_events(events), plan.count, plan.target.id, plan.last)

        return self.decide(decision)

    def _of_save(self, rewind: Recorded) -> list[Recorded]:
        """A rewind, and those of the sessions that were continued, which came with it."""
        found = self.event_log.read(rewind.save - 1, limit=1_000, topics=(e.MessagesRewound.topic,))
        return [each for each in found if each.save == rewind.save]

    def _version(self, stream: str, state: Session) -> int:
        return state.version if stream == session_stream(state.id) else self.event_log.stream_version(stream)

    # --- what readers see --------------------------------------------------------------------------

    def view(self, session_id: str, *, follow: bool = False, acknowledged: int | None = None) -> View:
        """What a model should see of a session: its last summary and all that came later.

        Args:
            follow: go to where the conversation goes on, if it was compressed into another session.
            acknowledged: the last position that this caller was told of the session; where the log
                does not have it, as after a restored backup, the view says so (FIELD_CASES I10).

        Raises:
            NoSuchSession.
        """
        self.session(session_id)
        lag = self.projector.catch_up()
        view = active_view(self.state.reader(), session_id, follow=follow)
        view.warnings.extend(
            f"events #{first}-{last} cannot be read, and may have been of this session: retold verify"
            for first, last in lag.damaged
        )
        if acknowledged is not None and not self._has(session_id, acknowledged):
            view.warnings.append(
                f"#{acknowledged} was acknowledged and is not here: session {session_id} lacks messages"
            )
        return view

    def _has(self, session_id: str, position: int) -> bool:
        found = self.event_log.read(position - 1, limit=1, upto=position)
        return bool(found) and found[0].stream == session_stream(session_id)

    def history(self, session_id: str, *, follow: bool = True) -> View:
        """Everything a person saw of a session, once: what was compressed too, not what was undone.

        Args:
            follow: the whole conversation, from its first segment to its last; else this session alone.

        Raises:
            NoSuchSession.
        """
        self.session(session_id)
        self.projector.catch_up()
        return display_history(self.state.reader(), session_id, follow=follow)
