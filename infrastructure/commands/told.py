"""What decisions on messages rest on: a session's rows, and that they are as the log says."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from ...domain.context import compression, copied
from ...domain.errors import ProjectionDamaged, VersionConflict
from ...domain.events import MessageAppended, session_stream
from ...domain.session import Session
from ...projections.base import Connection
from ...projections.context import appended, lines
from .base import Commands


class Tail(msgspec.Struct, frozen=True):
    """What a compression does to a session's context.

    `leaving` are the messages that are in it now, by id; `copies` those that go on after the summary, each
    with when it was said; `upto` is the last message that the summary covers.
    """

    leaving: list[int]
    copies: list[tuple[MessageAppended, int]]
    upto: int | None


class ToldCommands(Commands):
    """Base of the commands that look at messages."""

    def told(self, state: Session) -> Connection:
        """The projections, where a session stands in them exactly as it was loaded.

        Whoever writes at the version after the loaded one rests on this: nothing came in between.

        Raises:
            VersionConflict: the session has moved on meanwhile.
            ProjectionDamaged: its rows are set aside, and cannot be had.
        """
        self.projector.catch_up()
        db = self.state.reader()
        row = db.execute("SELECT version FROM sessions WHERE id = ?", (state.id,)).fetchone()
        if row is not None and row[0] > state.version:
            raise VersionConflict(
                f"session {state.id} has moved on to version {row[0]}", hint="nothing was written; try again"
            )
        if row is None or row[0] < state.version:
            if self.event_log.stream_version(session_stream(state.id)) > state.version:
                raise VersionConflict(f"session {state.id} was deleted just now", hint="try again")
            raise ProjectionDamaged(
                f"the messages of session {state.id} cannot be read as the log has them; nothing was written",
                hint="tell them again with: retold projections rebuild transcripts",
            )
        return db

    def said(self, db: Connection, ids: Sequence[int]) -> dict[int, tuple[MessageAppended, int]]:
        """Messages that were seen a moment ago, as they stand now, each with when it was said.

        Raises:
            VersionConflict: one of them was deleted or erased since, by another process.
        """
        found = appended(db, ids)
        if len(found) < len(ids):
            raise VersionConflict("messages were deleted while they were read", hint="try again")
        return found

    def keeping(
        self, *, keep_last: int, tail: Iterable[int] | None, upto: int | None, or_nothing: bool = False
    ) -> Callable[[Session], Tail]:
        """What a compression keeps of a session, verbatim; `domain.context.compression` has the rules.

        Where it is decided again it covers what it covered first: what was said meanwhile is not in the
        summary, and is kept.

        Args:
            or_nothing: where no more is asked for, keep nothing that was there.

        Raises (once it is asked):
            NothingToDo, NoSuchMessage, BadUsage, VersionConflict, ProjectionDamaged.
        """
        chosen = None if tail is None else list(tail)
        nothing = or_nothing and not keep_last and chosen is None and upto is None
        covered = upto

        def kept(state: Session) -> Tail:
            nonlocal covered
            if nothing:
                found = self._what_came_since(state, covered)
            else:
                found = self._tail_of(state, keep_last, chosen, covered)
            covered = found.upto
            return found

        return kept

    def _what_came_since(self, state: Session, covered: int | None) -> Tail:
        """Nothing is kept, but for what was said after the summary was asked for: it is not in it."""
        db = self.told(state)
        live = {each.id: each for each in lines(db, state.id) if each.visibility == "live"}
        if covered is None:
            return Tail(list(live), [], max(live, default=0))
        since = [each for each in live if each > covered]
        said = self.said(db, since)
        return Tail(
            list(live), [(copied(said[each][0], live[each]), said[each][1]) for each in since], covered
        )

    def _tail_of(self, state: Session, keep_last: int, tail: Iterable[int] | None, upto: int | None) -> Tail:
        db = self.told(state)
        found = lines(db, state.id)
        covered = found[-1].id if upto is None and found else upto
        plan = compression(found, keep_last=keep_last, tail=tail, upto=covered, where=f"session {state.id}")
        line_of = {each.id: each for each in found}
        said = self.said(db, plan.kept)
        copies = [(copied(said[each][0], line_of[each]), said[each][1]) for each in plan.kept]
        return Tail(plan.leaving, copies, covered)
