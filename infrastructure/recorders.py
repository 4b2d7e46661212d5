"""The `eventsourcing` library's recorder interfaces over the log.

The library names a stream "originator" and a position "notification id"; a UUID originator is
kept as the stream `uuid:<hex>`, so it comes back as the type it was.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import apsw
from eventsourcing.persistence import (
    AggregateRecorder,
    ApplicationRecorder,
    IntegrityError,
    Notification,
    ProcessRecorder,
    StoredEvent,
    Subscription,
    Tracking,
    TrackingRecorder,
)

from ..domain.errors import BadUsage, LogDamaged
from . import codec
from .log import Condition, Conflict, Draft, Log
from .log_schema import AT_UNSAID
from .mapper import EnvelopedEvent, EnvelopedNotification
from .sqlite import one, translated
from .subscription import LogSubscription

_EVENT = """
SELECT s.name, e.version, e.topic, e.payload, e.at_us, e.at_kind, e.source_ref, e.idempotency_key,
       e.caused_by, e.salt, e.payload_hash, e.position
FROM events e JOIN streams s ON s.id = e.stream
"""


def stream_name(originator_id: UUID | str) -> str:
    """The stream that an originator id names."""
    return f"uuid:{originator_id.hex}" if isinstance(originator_id, UUID) else originator_id


def originator(stream: str) -> UUID | str:
    """The originator id that a stream was named by."""
    return UUID(stream[5:]) if stream.startswith("uuid:") else stream


def draft(stored: StoredEvent) -> Draft:
    """A stored event, of whichever mapper, ready for the log.

    Raises:
        BadUsage: it bears a topic of ours, and is no payload of it.
    """
    stream = stream_name(stored.originator_id)
    if isinstance(stored, EnvelopedEvent):
        return Draft(
            stream,
            stored.originator_version,
            stored.topic,
            stored.state,
            stored.payload_hash,
            stored.salt,
            stored.at_us,
            stored.at_kind,
            stored.source_ref,
            stored.idempotency_key,
            stored.caused_by,
        )
    try:
        codec.decode(stored.topic, stored.state)
    except LogDamaged as error:
        raise BadUsage(f"{error.message}; it was not written", hint="give it a topic of its own") from error
    salt = os.urandom(codec.SALT_BYTES)
    return Draft(
        stream,
        stored.originator_version,
        stored.topic,
        stored.state,
        codec.payload_hash(stored.state, salt),
        salt,
        at_kind=AT_UNSAID,
    )


def _stored(row: tuple[Any, ...]) -> StoredEvent:
    name, version, topic, payload, at_us, at_kind, ref, key, caused_by, salt, payload_hash, _ = row
    if at_kind == AT_UNSAID:
        return StoredEvent(originator(name), version, topic, payload)
    return EnvelopedEvent(
        name, version, topic, payload, at_us, at_kind, ref, key, caused_by, salt, payload_hash
    )


def _notification(row: tuple[Any, ...]) -> Notification:
    name, version, topic, payload, at_us, at_kind, ref, key, caused_by, _, _, position = row
    if at_kind == AT_UNSAID:
        return Notification(originator(name), version, topic, payload, position)
    return EnvelopedNotification(name, version, topic, payload, position, at_us, at_kind, ref, key, caused_by)


class LogAggregateRecorder(AggregateRecorder):
    """Streams of the log, without positions."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """Write them as one save; returns None, as the library asks of this interface."""
        self._insert(stored_events, **kwargs)
        return None

    def _insert(
        self,
        stored_events: Sequence[StoredEvent],
        *,
        tracking: Tracking | None = None,
        actor: str | None = None,
        condition: Condition | None = None,
        **_: Any,
    ) -> list[int]:
        drafts = [draft(each) for each in stored_events]
        try:
            with self.log.transaction() as connection:
                written = self.log.append_within(connection, drafts, actor=actor, condition=condition)
                if tracking is not None:
                    insert_tracking(connection, tracking)
        except Conflict as error:
            raise IntegrityError(str(error)) from error
        self.log.remember(written)
        return list(written.positions)

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        """Events of one stream by version."""
        sql = _EVENT + " WHERE e.stream = (SELECT id FROM streams WHERE name = ?)"
        values: list[Any] = [stream_name(originator_id)]
        for bound, comparison in ((gt, ">"), (lte, "<=")):
            if bound is not None:
                sql += f" AND e.version {comparison} ?"
                values.append(bound)
        sql += f" ORDER BY e.version {'DESC' if desc else 'ASC'}"
        if limit is not None:
            sql += " LIMIT ?"
            values.append(limit)
        with translated(str(self.log.path)):
            return [_stored(row) for row in self.log.reader().execute(sql, values)]


class LogApplicationRecorder(LogAggregateRecorder, ApplicationRecorder):
    """Streams and positions of the log."""

    def insert_events(self, stored_events: Sequence[StoredEvent], **kwargs: Any) -> Sequence[int] | None:
        """Write them as one save and return their positions.

        Keyword arguments that `Application.save` passes on: `actor`, `condition`, `tracking`.

        Raises:
            IntegrityError: a version, an idempotency key or the condition stood in the way.
        """
        positions = self._insert(stored_events, **kwargs)
        self.log.notify()
        return positions

    def select_notifications(
        self,
        start: int | None,
        limit: int,
        stop: int | None = None,
        topics: Sequence[str] = (),
        *,
        inclusive_of_start: bool = True,
    ) -> Sequence[Notification]:
        """Events by position."""
        where: list[str] = []
        values: list[Any] = []
        if start is not None:
            where.append("e.position >= ?" if inclusive_of_start else "e.position > ?")
            values.append(start)
        if stop is not None:
            where.append("e.position <= ?")
            values.append(stop)
        if topics:
            where.append(f"e.topic IN ({','.join('?' * len(topics))})")
            values.extend(topics)
        sql = _EVENT + (f" WHERE {' AND '.join(where)}" if where else "") + " ORDER BY e.position LIMIT ?"
        with translated(str(self.log.path)):
            return [_notification(row) for row in self.log.reader().execute(sql, (*values, limit))]

    def max_notification_id(self) -> int | None:
        """The last position, or None of an empty log."""
        return self.log.head().position or None

    def subscribe(
        self, gt: int | None = None, topics: Sequence[str] = ()
    ) -> Subscription[ApplicationRecorder]:
        """Events as they come, of this process at once and of others within the poll interval."""
        return LogSubscription(recorder=self, gt=gt, topics=topics)


class LogTrackingRecorder(TrackingRecorder):
    """How far each upstream application was processed, in the log's file.

    A view of one's own subclasses this, and writes its rows and `insert_tracking(connection, …)`
    in one `self.log.transaction()`.
    """

    def __init__(self, log: Log) -> None:
        self.log = log

    def insert_tracking(self, tracking: Tracking) -> None:
        """Record `tracking`; it only moves forward.

        Raises:
            IntegrityError: that or a later id was recorded before.
        """
        with self.log.transaction() as connection:
            insert_tracking(connection, tracking)

    def max_tracking_id(self, application_name: str) -> int | None:
        """The last id recorded for the application."""
        with translated(str(self.log.path)):
            found: int | None = one(
                self.log.reader(),
                "SELECT notification_id FROM tracking WHERE application_name = ?",
                (application_name,),
            )
        return found


class LogProcessRecorder(LogTrackingRecorder, LogApplicationRecorder, ProcessRecorder):
    """Events and tracking in one transaction."""


def insert_tracking(connection: apsw.Connection, tracking: Tracking) -> None:
    """Record `tracking` inside an open transaction.

    Raises:
        IntegrityError: that or a later id was recorded before.
    """
    moved = one(
        connection,
        "INSERT INTO tracking VALUES (?, ?) ON CONFLICT (application_name) DO UPDATE"
        " SET notification_id = excluded.notification_id"
        " WHERE tracking.notification_id < excluded.notification_id RETURNING notification_id",
        (tracking.application_name, tracking.notification_id),
    )
    if moved is None:
        raise IntegrityError(
            f"{tracking.application_name} was tracked to {tracking.notification_id} or beyond before"
        )


class SnapshotRecorder(AggregateRecorder):
    """Snapshots: an optimisation, kept apart from the log and never needed."""

    def __init__(self, log: Log) -> None:
        self.log = log

    def insert_events(self, stored_events: Sequence[StoredEvent], **_: Any) -> Sequence[int] | None:
        """Keep them."""
        try:
            with self.log.transaction() as connection:
                connection.executemany(
                    "INSERT INTO snapshots VALUES (?, ?, ?, ?)",
                    [
                        (stream_name(each.originator_id), each.originator_version, each.topic, each.state)
                        for each in stored_events
                    ],
                )
        except Conflict as error:
            raise IntegrityError(str(error)) from error
        return None

    def select_events(
        self,
        originator_id: UUID | str,
        *,
        gt: int | None = None,
        lte: int | None = None,
        desc: bool = False,
        limit: int | None = None,
    ) -> Sequence[StoredEvent]:
        """Snapshots of one originator by version."""
        sql = "SELECT version, topic, state FROM snapshots WHERE originator = ?"
        values: list[Any] = [stream_name(originator_id)]
        for bound, comparison in ((gt, ">"), (lte, "<=")):
            if bound is not None:
                sql += f" AND version {comparison} ?"
                values.append(bound)
        sql += f" ORDER BY version {'DESC' if desc else 'ASC'}"
        if limit is not None:
            sql += " LIMIT ?"
            values.append(limit)
        with translated(str(self.log.path)):
            return [StoredEvent(originator_id, *row) for row in self.log.reader().execute(sql, values)]
