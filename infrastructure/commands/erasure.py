"""Erasing: a text leaves the log for good, and that it did stays on record."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence

import apsw
import msgspec

from ...domain import events as e
from ...domain.errors import BadUsage, NoSuchMessage, NoSuchSession, RetoldError, RuleBroken
from ...domain.events import session_stream
from ...domain.text import in_one_line, scrub
from ...projections.context import copies
from ...projections.deletions import NEVER, due, next_due
from ..decisions import Saved, as_conflict, event
from ..erasing import (
    begin_sweep,
    erased,
    gone,
    in_place_of,
    is_pending,
    messages_at,
    sweep,
    with_what_quotes,
)
from ..forgetting import Found, emptied, find, is_told_by_its_row, row_edits, to_forget
from ..log import Condition, Draft
from ..log_schema import TITLE
from ..removing import remains
from ..sqlite import one
from .base import Commands

RETRY_S = 1.0
"""Between two tries of a writer to finish a sweep that a reader stood in the way of."""
RETRY_WAIT_MS = 20


class Erased(Saved, frozen=True):
    """What was emptied; `pending` names files that hold the text until their readers leave."""

    pending: tuple[str, ...] = ()


class Forgotten(Erased, frozen=True):
    """What was forgotten.

    Attributes:
        events: how many events held it.
        sessions: those among them that are sessions' own, by id.
    """

    events: int = 0
    sessions: tuple[str, ...] = ()


class SessionsErased(Erased, frozen=True):
    """Deleted sessions whose time was up; `left` are those that could not be erased, with the reason."""

    sessions: tuple[str, ...] = ()
    left: dict[str, str] = msgspec.field(default_factory=dict)


class ErasureCommands(Commands):
    """What is to be gone for good."""

    _tried_s: float = 0.0
    _due_us: int | None = None
    """When the next deleted session is to be erased, as far as this process knows."""
    _is_erasing = False

    def erase_messages(self, positions: Sequence[int], *, reason: str) -> Erased:
        """Empty the payloads of messages for good, and of their edits and copies; their rows leave.

        That they were, and when, stays on record. Backups and exports made before are not reached.

        Raises:
            RuleBroken: a position that is no message.
        """

        def decision() -> Erased:
            read_at = self.head().position
            events = self._wherever_said(positions)
            if not events:
                return Erased("", ())
            by_stream: defaultdict[str, list[e.Recorded]] = defaultdict(list)
            for each in events:
                by_stream[each.stream].append(each)
            at, why = self.at(), in_one_line(reason)
            records = [
                event(stream, self.event_log.stream_version(stream) + 1, erased(told, why), at)
                for stream, told in by_stream.items()
            ]
            moved = Condition(read_at, streams=tuple(by_stream))
            begin_sweep(self.home)
            with as_conflict():
                saved = self.event_log.erase(
                    [each.position for each in events],
                    *[self.draft(record) for record in records],
                    condition=moved,
                )
            return Erased(events[0].session_id, tuple(saved), self.sweep())

        return self.decide(decision)

    # --- forgetting --------------------------------------------------------------------------------

    def forget_message(
        self, session_id: str, message: int | str, *, reason: str = "forgotten", at_us: int | None = None
    ) -> Forgotten:
        """Forget what one message says, with its edits and copies; its place stays, and says `[forgotten]`.

        Calls of tools keep their ids and names, so that their results still belong to them. Where it is
        forgotten already, nothing is written and `events` is 0.

        Args:
            message: its id (a position), or the id that its platform gave it.

        Raises:
            NoSuchSession. NoSuchMessage: the session has no such message.
        """

        def decision() -> Forgotten:
            self.session(session_id)
            position = self._position(session_id, message)
            read_at = self.head().position
            told = self._wherever_said([position])
            emptying = (Found(each, emptied(each.payload)) for each in told)
            found = [each for each in emptying if each.masked != each.event.payload]
            streams = dict.fromkeys([session_stream(session_id), *(each.stream for each in told)])
            return self._forget(found, reason, at_us, Condition(read_at, tuple(streams)))

        return self._forgotten(self.decide(decision))

    def forget_text(self, secret: str, *, reason: str = "forgotten", at_us: int | None = None) -> Forgotten:
        """Forget a text wherever it stands: messages, calls, summaries, titles, prompts, names, notes.

        What it stood in stays and reads `[forgotten]` in its place. It is gone from the log, from all
        that is told of it, and stays so when that is told again, imported again or delivered again.
        Backups and exports made before are not reached.

        Raises:
            BadUsage: it is blank, or shorter than 4 characters.
            RuleBroken: it is part of a chat's key or a session's id, which would lead nowhere without it.
        """
        secret = to_forget(secret)
        done = Forgotten("", ())
        after = 0
        while True:
            upto = self.head().position
            found = find(self.event_log, secret, after=after, upto=upto)
            if found:
                step = self.decide(lambda told=found: self._forget_unchanged(told, reason, at_us))  # type: ignore[misc]
                if step is None:
                    continue
                done = Forgotten(
                    done.session_id or step.session_id,
                    (*done.positions, *step.positions),
                    (),
                    done.events + step.events,
                    tuple(dict.fromkeys((*done.sessions, *step.sessions))),
                )
            after = upto
            if self.head().position == upto or not found:
                break
        return self._forgotten(done)

    def _wherever_said(self, positions: Sequence[int]) -> list[e.Recorded]:
        """Messages with their edits, and every copy of them: compressions and branches carry them along."""
        known = copies(self.caught_up("transcripts"), positions)
        return with_what_quotes(self.event_log, messages_at(self.event_log, {*positions, *known}))

    def _position(self, session_id: str, message: int | str) -> int:
        if isinstance(message, str):
            self.projector.catch_up()
            position = one(
                self.state.reader(),
                "SELECT max(id) FROM messages WHERE session_id = ? AND platform_message_id = ?",
                (scrub(session_id)[0], scrub(message)[0]),
            )
        else:
            position = message
        told = self.event_log.read(position - 1, limit=1, upto=position) if position else []
        is_message = told and told[0].topic == e.MessageAppended.topic
        if not is_message or told[0].stream != session_stream(session_id):
            raise NoSuchMessage(
                f"session {session_id} has no message {message}", hint="retold sessions show prints ids"
            )
        return int(position)

    def _forget_unchanged(self, found: Sequence[Found], reason: str, at_us: int | None) -> Forgotten | None:
        """Put masks in the place of payloads; None where one of them is no longer what was found.

        Another process forgets, too: a mask made from what stood there before would bring its text back.
        """
        read_at = self.head().position
        for each in found:
            now = self.event_log.read(each.event.position - 1, limit=1, upto=each.event.position)
            if not now or now[0].payload != each.event.payload:
                return None
        streams = tuple(dict.fromkeys(each.event.stream for each in found))
        return self._forget(found, reason, at_us, Condition(read_at, streams))

    def _forget(
        self, found: Sequence[Found], reason: str, at_us: int | None, condition: Condition
    ) -> Forgotten:
        """Put masks in the place of payloads, on record in every stream that held them."""
        if not found:
            return Forgotten("", ())
        at = self.at(at_us)
        edits = self._edits(found)
        by_stream: defaultdict[str, list[Found]] = defaultdict(list)
        for each in found:
            by_stream[each.event.stream].append(each)
        masked = {each.event.position: in_place_of(each.masked) for each in found if each.masked is not None}
        drafts: list[Draft] = []
        for stream, told in by_stream.items():
            record = e.PayloadsErased(
                [each.event.position for each in told if each.masked is None],
                in_one_line(reason),
                [each.event.source_ref for each in told],
                [e.ErasedMark(None, None, None) for each in told if each.masked is None],
                masked={
                    each.event.position: masked[each.event.position].payload_hash
                    for each in told
                    if each.masked is not None
                },
                edits={
                    position: edits[position] for each in told if (position := each.event.position) in edits
                },
            )
            version = self.event_log.stream_version(stream) + 1
            drafts.append(self.draft(event(stream, version, record, at)))
        begin_sweep(self.home)
        with as_conflict():
            saved = self.event_log.erase(
                [each.event.position for each in found if each.masked is None],
                *drafts,
                masked=masked,
                titles=[each for each in by_stream if each.startswith(TITLE)],
                condition=condition,
            )
        sessions = tuple(each.removeprefix("session:") for each in by_stream if each.startswith("session:"))
        return Forgotten(sessions[0] if sessions else "", tuple(saved), (), len(found), sessions)

    def _edits(self, found: Sequence[Found]) -> dict[int, dict[str, e.Scalar]]:
        """What the rows of messages say from now on, where that is all that was told of what is forgotten."""
        if not all(is_told_by_its_row(each) for each in found):
            return {}
        self.projector.catch_up()
        return row_edits(self.state.reader(), found)

    def _forgotten(self, done: Forgotten) -> Forgotten:
        if not done.positions and not is_pending(self.home):
            return done
        return Forgotten(
            done.session_id, done.positions, self.sweep(), events=done.events, sessions=done.sessions
        )

    # --- sessions whose time is up -----------------------------------------------------------------

    def erase_due(self, at_us: int | None = None, *, reason: str = "deleted") -> SessionsErased:
        """Erase what was deleted longer ago than it was to be kept, with all that quotes it.

        Branches and continuations stay as they are.

        Args:
            at_us: when that is to have happened. What is due is told by the clock: nothing takes an erasure
                back, so no time that is still to come brings one on.
        """
        self.projector.catch_up()
        found = due(self.state.reader(), min(self.at(at_us), self.clock()))
        return self.erase_sessions(found, reason=reason, at_us=at_us)

    def erase_sessions(
        self, session_ids: Iterable[str], *, reason: str = "deleted", at_us: int | None = None
    ) -> SessionsErased:
        """Erase sessions that were deleted, without waiting for their time.

        Raises:
            VersionConflict, StoreBusy, NoRoom: those before it are erased.
        """
        positions: list[int] = []
        done: list[str] = []
        left: dict[str, str] = {}
        for session_id in session_ids:
            try:
                positions += self.decide(lambda each=session_id: self._erase_session(each, reason, at_us))  # type: ignore[misc]
                done.append(session_id)
            except NoSuchSession:
                done.append(session_id)  # another process was first
            except RuleBroken as error:
                left[session_id] = error.message
        pending = self.sweep() if done or is_pending(self.home) else ()
        self._due_us = None
        return SessionsErased(done[0] if done else "", tuple(positions), pending, tuple(done), left)

    def _erase_session(self, session_id: str, reason: str, at_us: int | None) -> tuple[int, ...]:
        self.projector.catch_up()
        read_at = self.head().position
        if not self.session(session_id, deleted=True).deleted:
            raise RuleBroken(f"session {session_id} is not deleted", hint="delete it first")
        what = remains(self.event_log, self.state.reader(), session_id)
        emptied = [*what.events, *what.titles]
        masked = {each.position: in_place_of(rest) for each, rest in what.quoting}
        record = msgspec.structs.replace(
            gone(session_id, emptied, prompts=what.prompts, reason=in_one_line(reason)),
            masked={position: each.payload_hash for position, each in masked.items()},
        )
        stream = session_stream(session_id)
        version = self.event_log.stream_version(stream) + 1
        streams = (stream, *dict.fromkeys(each.stream for each in what.titles))
        begin_sweep(self.home)
        with as_conflict():
            saved = self.event_log.erase(
                [each.position for each in emptied],
                self.draft(event(stream, version, record, self.at(at_us))),
                masked=masked,
                titles=what.only_its,
                condition=Condition(read_at, streams),
            )
        return tuple(saved)

    # --- what every writer does along the way --------------------------------------------------------

    def sweep(self, *, wait_ms: int | None = None) -> tuple[str, ...]:
        """Let what was erased leave every file; names those that still hold it.

        Args:
            wait_ms: how long to wait for whoever holds one; up to an hour.
        """
        if wait_ms is not None and not 0 <= wait_ms <= 3_600_000:
            raise BadUsage(f"wait_ms may be from 0 to 3600000, not {wait_ms}", hint="milliseconds")
        pending = sweep(self.event_log, self.projector, self.home, wait_ms=wait_ms)
        self.mirror.rewrite(self.state)
        return pending

    def saved(self) -> None:
        """After each save: erase what is due, and finish what a reader stood in the way of."""
        if self._is_erasing:
            return
        self._is_erasing = True
        try:
            # The save has happened: nothing that goes wrong here may make it look failed.
            with contextlib.suppress(RetoldError, apsw.Error, OSError):
                self._keep_up()
        finally:
            self._is_erasing = False

    def _keep_up(self) -> None:
        if self._due_us is None:
            self._due_us = next_due(self.state.reader())
        if self.clock() >= self._due_us:
            self._due_us = NEVER
            self.erase_due()
        elif is_pending(self.home) and time.monotonic() - self._tried_s >= RETRY_S:
            self._tried_s = time.monotonic()
            self.sweep(wait_ms=RETRY_WAIT_MS)
