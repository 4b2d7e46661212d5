"""Maintenance: what a home needs now and then, by hand or by itself when a gateway or a CLI starts."""

from __future__ import annotations

import contextlib
from collections import Counter

import msgspec

from ...domain import events as e
from ...domain.errors import RetoldError, TryAgain
from ...domain.gateway import MAIN
from ...domain.removal import DAY_US
from ...domain.retention import SWEPT_REASON, is_due, refuse_no_retention, why_kept
from ...domain.text import scrub
from ...projections.retention import ghosts, left_open, silent_conversations
from ..backup import BEFORE_REPAIR
from ..backup import sweep as sweep_backups
from ..decisions import event
from ..erasing import is_pending
from ..maintenance import optimise_index, vacuum
from .removal import RemovalCommands

STREAM = f"gateway:{MAIN}"
RAN, TIDIED, VACUUMED = "maintenance", "tidy", "vacuum"
HOUR_US = 3_600_000_000


class Maintained(msgspec.Struct, frozen=True):
    """What one run did.

    Attributes:
        skipped: the last run is too recent; nothing was done.
        pruned: conversations' first sessions, deleted for their age; each can be undeleted for a while.
        named: those that have to be named to undelete all of that.
        ended: sessions that a crash had left open.
        empty: sessions of a terminal in which nothing was ever said; they are deleted.
        erased: sessions whose deletion was due.
        vacuumed_bytes: what a vacuum gave back; None where there was none.
        left: what was left alone, by session or file, with the reason.
        position: the event that says so; 0 for none.
    """

    skipped: bool = False
    pruned: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()
    empty: tuple[str, ...] = ()
    erased: tuple[str, ...] = ()
    optimised: bool = False
    vacuumed_bytes: int | None = None
    left: dict[str, str] = {}
    position: int = 0
    named: tuple[str, ...] = ()


class MaintenanceCommands(RemovalCommands):
    """Upkeep."""

    def maintain_if_due(self, *, reap: bool = True, at_us: int | None = None) -> Maintained:
        """What a start of a gateway or a command runs: at most once in `sessions.min_interval_hours`.

        It never raises: what went wrong is in `left`, and no start fails for it.

        Args:
            reap: as in `maintain`. A run without it does not put off one with it.
        """
        try:
            at = self.at(at_us)
            interval_us = self.config.sessions.min_interval_hours * HOUR_US
            if not all(is_due(self.last_ran(each), at, interval_us) for each in (RAN, TIDIED)[: 2 - reap]):
                return Maintained(skipped=True)
            return self.maintain(prune=self.config.sessions.auto_prune, reap=reap, at_us=at_us)
        except RetoldError as error:
            return Maintained(left={"maintenance": error.message})

    def maintain(
        self, *, prune: bool | None = None, reap: bool = True, at_us: int | None = None
    ) -> Maintained:
        """Erase what is due, end what a crash left open, prune, and tidy the projections' file.

        Args:
            prune: also delete conversations that nobody has used for `sessions.retention_days`; by
                default as `sessions.auto_prune` says.
            reap: end what a crash left open, and delete what a terminal left empty. A command that is
                about something else leaves that to a gateway's start: it changes what it names only.
        """
        at = self.at(at_us)
        settings = self.config.sessions
        left: dict[str, str] = {}
        pruned: tuple[str, ...] = ()
        named: tuple[str, ...] = ()
        ended = self.end_left_open(at_us=at_us) if reap else ()
        emptied = self._delete_ghosts(at) if reap else ()
        if settings.auto_prune if prune is None else prune:
            pruned, named, kept = self._prune(settings.retention_days, include_pinned=False, at_us=at_us)
            left |= kept
        due = self.erase_due(at_us)
        left |= due.left
        pending = due.pending
        if is_pending(self.home):
            pending = self.sweep()
        sweep_backups(self.home.parent, f"{self.home.name}{BEFORE_REPAIR}")
        left |= dict.fromkeys(pending, "another process reads from before an erasure")
        optimised = optimise_index(self.projector)
        freed = self._vacuum(at, bool(pruned or due.sessions))
        position = self._put_on_record(
            RAN if reap else TIDIED,
            {
                "pruned": len(pruned),
                "ended": len(ended),
                "empty": len(emptied),
                "erased": len(due.sessions),
                "optimised": int(optimised),
            },
            left,
            at,
        )
        return Maintained(
            False, pruned, ended, emptied, due.sessions, optimised, freed, left, position, named
        )

    def prune(
        self, *, retention_days: float, include_pinned: bool = False, at_us: int | None = None
    ) -> tuple[tuple[str, ...], dict[str, str]]:
        """Delete conversations without activity for longer than that, each as a whole.

        Returns the first session of each, and what was kept though it is that old, with the reason.
        Archived ones go too; pinned ones only by a person's word, and open ones never.

        Raises:
            BadUsage: it is no number of days above 0, or more than a hundred years.
        """
        pruned, _, left = self._prune(retention_days, include_pinned=include_pinned, at_us=at_us)
        return pruned, left

    def _prune(
        self, retention_days: float, *, include_pinned: bool, at_us: int | None
    ) -> tuple[tuple[str, ...], tuple[str, ...], dict[str, str]]:
        """As `prune`; in the middle, what has to be named to bring all of it back."""
        refuse_no_retention(retention_days)
        at = self.at(at_us)
        cut_us = int(at - retention_days * DAY_US)
        reason = f"pruned: no activity for {retention_days:g} days"
        as_of = self.head().position
        self.projector.catch_up()
        pruned: list[str] = []
        named: list[str] = []
        left: dict[str, str] = {}
        for conversation in list(silent_conversations(self.state.reader(), cut_us)):
            first = conversation[0].session_id
            why = why_kept(conversation, cut_us, include_pinned=include_pinned)
            if why is None:
                segments = [each.session_id for each in conversation]
                try:
                    named += self.delete_conversation(segments, reason, as_of=as_of, at_us=at_us).named
                    pruned.append(first)
                except RetoldError as error:
                    left[first] = error.message
            elif why != "active since":
                left[first] = why
        return tuple(pruned), tuple(named), left

    def end_left_open(self, *, at_us: int | None = None) -> tuple[str, ...]:
        """End, softly, what a crash left open: sessions of a CLI, a job, an API, long silent."""
        at = self.at(at_us)
        self.projector.catch_up()
        before_us = int(at - self.config.sessions.stale_after_days * DAY_US)
        ended = []
        for session_id in left_open(self.state.reader(), before_us):
            with contextlib.suppress(TryAgain):
                if self.decide(lambda each=session_id: self._end(each, at)):  # type: ignore[misc]
                    ended.append(session_id)
        return tuple(ended)

    def _delete_ghosts(self, at_us: int) -> tuple[str, ...]:
        self.projector.catch_up()
        found = ghosts(self.state.reader(), at_us - DAY_US)
        deleted = []
        for session_id in found:
            with contextlib.suppress(RetoldError):
                if self.delete_if_empty(session_id, at_us=at_us) is not None:
                    deleted.append(session_id)
        return tuple(deleted)

    def _end(self, session_id: str, at_us: int) -> bool:
        if self.session(session_id).turns.runs_at(at_us):
            return False
        return bool(self.save_events(self.ending(session_id, SWEPT_REASON, at_us)))

    def last_ran(self, kind: str) -> int | None:
        """When maintenance of a kind ran last; None for never."""
        self.projector.catch_up()
        row = (
            self.state.reader()
            .execute(
                "SELECT at_us FROM maintenance_runs WHERE kind = ? ORDER BY position DESC LIMIT 1",
                (scrub(kind)[0],),
            )
            .fetchone()
        )
        return None if row is None else int(row[0])

    def _vacuum(self, at_us: int, has_freed: bool) -> int | None:
        settings = self.config.sessions
        if not has_freed or not settings.vacuum_after_prune:
            return None
        if not is_due(self.last_ran(VACUUMED), at_us, settings.min_vacuum_interval_days * DAY_US):
            return None
        freed = vacuum(self.projector)
        if freed is not None:
            self._put_on_record(VACUUMED, {"bytes": freed}, {}, at_us)
        return freed

    def _put_on_record(self, kind: str, done: dict[str, int], left: dict[str, str], at_us: int) -> int:
        counted = Counter(left.values())
        payload = e.MaintenanceRan(
            kind,
            {name: count for name, count in done.items() if count},
            left if len(left) <= 100 else {why: str(count) for why, count in counted.items()},
        )

        def decision() -> int:
            version = self.event_log.stream_version(STREAM) + 1
            return self.save_events([event(STREAM, version, payload, at_us)])[-1]

        return self.decide(decision)
