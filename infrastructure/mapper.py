"""Our mapper for the `eventsourcing` library: Event values to stored events with an envelope, and back.

The stock mapper reads `vars(event)` and names event classes by module path; it can store neither
Structs nor a topic that outlives a moved file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from eventsourcing.domain import DomainEventProtocol
from eventsourcing.persistence import Mapper, Notification, StoredEvent

from ..domain.errors import NeedsUpgrade
from ..domain.events import Event, Payload, UnknownEvent
from . import codec
from .drafts import draft_of
from .envelope import KINDS
from .log_schema import AT_EXACT, AT_UNSAID


@dataclass(frozen=True)
class EnvelopedEvent(StoredEvent):
    """A stored event with what the log's columns hold beside the payload."""

    at_us: int = 0
    at_kind: int = AT_EXACT
    source_ref: bytes | None = None
    idempotency_key: bytes | None = None
    caused_by: int | None = None
    salt: bytes = b""
    payload_hash: bytes = b""


@dataclass(frozen=True)
class EnvelopedNotification(Notification):
    """A notification that keeps its envelope."""

    at_us: int = 0
    at_kind: int = AT_EXACT
    source_ref: bytes | None = None
    idempotency_key: bytes | None = None
    caused_by: int | None = None


class PayloadMapper(Mapper[str]):
    """Maps domain.events.Event; set as MAPPER_TOPIC by SessionEngine."""

    def __init__(self, transcoder: Any = None, compressor: Any = None, cipher: Any = None) -> None:
        super().__init__(transcoder, compressor, cipher)

    def to_stored_event(self, domain_event: DomainEventProtocol[str]) -> StoredEvent:
        """The event's payload as bytes, hashed with a salt of its own, beside its envelope."""
        event = cast("Event", domain_event)
        draft = draft_of(event)
        return EnvelopedEvent(
            draft.stream,
            draft.version,
            draft.topic,
            draft.payload,
            event.at_us,
            draft.at_kind,
            draft.source_ref,
            draft.idempotency_key,
            draft.caused_by,
            draft.salt,
            draft.payload_hash,
        )

    def to_domain_event(self, stored_event: StoredEvent) -> DomainEventProtocol[str]:
        """The event again; an emptied payload as an ErasedEvent.

        Raises:
            NeedsUpgrade: its topic is not known here, so no decision may rest on its stream.
            LogDamaged: the payload does not decode.
        """
        position = stored_event.id if isinstance(stored_event, Notification) else 0
        decoded = codec.decode(stored_event.topic, stored_event.state, position=position)
        if isinstance(decoded, UnknownEvent):
            raise NeedsUpgrade(
                f"{stored_event.originator_id} holds an event this program cannot read: {stored_event.topic}",
                hint="upgrade retold",
            )
        payload = cast("Payload", decoded)
        if not isinstance(stored_event, EnvelopedEvent | EnvelopedNotification):
            return cast(
                "DomainEventProtocol[str]", _event(stored_event, payload, 0, AT_UNSAID, None, None, None)
            )
        return cast(
            "DomainEventProtocol[str]",
            _event(
                stored_event,
                payload,
                stored_event.at_us,
                stored_event.at_kind,
                stored_event.source_ref,
                stored_event.idempotency_key,
                stored_event.caused_by,
            ),
        )


def _event(
    stored: StoredEvent,
    payload: Payload,
    at_us: int,
    at_kind: int,
    source_ref: bytes | None,
    idempotency_key: bytes | None,
    caused_by: int | None,
) -> Event:
    return Event(
        originator_id=str(stored.originator_id),
        originator_version=stored.originator_version,
        payload=payload,
        at_us=at_us,
        at_kind=KINDS[at_kind],  # type: ignore[arg-type]  # one of AtKind's words
        source_ref=source_ref,
        idempotency_key=idempotency_key,
        caused_by=caused_by,
    )
