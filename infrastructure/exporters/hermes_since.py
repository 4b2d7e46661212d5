"""What became of a chat in its Hermes home since that was imported: a repair that did not see it is not
carried over it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...domain import events as e
from ...domain.shell import shell_word
from ..sqlite import one
from ..streams import route_stream
from .hermes_home import HermesWriter

if TYPE_CHECKING:
    from ..engine import SessionEngine

Move = e.SessionRerouted | e.RouteClosed
_IMPORTING_US: Final = 60_000_000
"""So long an import may have taken: what was said meanwhile may not be among what it took."""


class Chat(NamedTuple):
    """A chat of the home as it was found.

    Attributes:
        led_to: the session that its key leads to there.
        unseen: what happened to it there that is not known here, in words; None where nothing did.
        unjudged: the same, where it is known here, and was not when the key was last led anywhere here.
    """

    led_to: str | None
    unseen: str | None
    unjudged: str | None

    def against(self, wanted: str | None, save: int) -> str | None:
        """Why a save's move of the key, to a session or nowhere, is not carried; None where it may be."""
        if self.led_to == wanted:
            return None
        if self.unseen is None and self.unjudged is not None:
            return f"{self.unjudged}: retold undo {save}, then say anew which session goes on"
        return self.unseen


def chats_of(
    engine: SessionEngine,
    writer: HermesWriter,
    store: str,
    moves: Iterable[Move],
    mirror: Mapping[str, Any] | None,
) -> dict[str, Chat]:
    """The chats that repairs lead anywhere, by key, before any of the repairs is made there."""
    targets: dict[str, set[str | None]] = {}
    for move in moves:
        wanted = move.session_id if isinstance(move, e.SessionRerouted) else None
        targets.setdefault(move.key, set()).add(wanted)
    return {key: _chat(engine, writer, store, key, ours, mirror) for key, ours in targets.items()}


def _chat(
    engine: SessionEngine,
    writer: HermesWriter,
    store: str,
    key: str,
    ours: set[str | None],
    mirror: Mapping[str, Any] | None,
) -> Chat:
    entry = writer.entry(writer.scope(), key) or (mirror or {}).get(key)
    led_to = entry.get("session_id") if isinstance(entry, dict) else None
    led_to = led_to if isinstance(led_to, str) else None
    again = f"import it again: retold import hermes {shell_word(str(writer.home))}"
    unseen = unjudged = None
    seen = one(
        engine.state.reader(),
        "SELECT r.session_id FROM source_routes r JOIN source_homes h ON h.id = r.source"
        " WHERE h.store = ? AND r.key = ? AND NOT r.gone",
        (store, key),
    )
    if led_to != seen and led_to not in ours:
        unseen = f"{key} leads {f'to {led_to}' if led_to else 'nowhere'} there since it was imported; {again}"
    elif led_to is not None and _written_there(engine, writer, store, led_to):
        unseen = f"{led_to}, which {key} leads to there, was written to since it was imported; {again}"
    elif led_to is not None and _written_here(engine, key, led_to):
        unjudged = f"{led_to}, which {key} leads to there, has words that this did not know of"
    return Chat(led_to, unseen, unjudged)


def _written_there(engine: SessionEngine, writer: HermesWriter, store: str, session_id: str) -> bool:
    """Whether the home holds words of a session that no import took.

    The numbers of what was erased here are not known any more, and so the time is looked at, too.
    """
    found = engine.state.reader().execute(
        "SELECT h.last_run_us, max(m.source_id) FROM source_homes h"
        " LEFT JOIN source_messages m ON m.source = h.id WHERE h.store = ?",
        (store,),
    )
    ran_us, last = found.fetchone() or (0, 0)
    written = writer.db.execute(
        "SELECT 1 FROM messages WHERE session_id = ? AND role IN ('user', 'assistant')"
        " AND id > ? AND timestamp > ? LIMIT 1",
        (session_id, last or 0, ((ran_us or 0) - _IMPORTING_US) / 1e6),
    )
    return written.fetchone() is not None


def _written_here(engine: SessionEngine, key: str, session_id: str) -> bool:
    """Whether words of a session came here after somebody last said where the key is to lead, also by
    settling a conflict with the home."""
    said = max(
        (
            each.position
            for each in engine.event_log.stream_events(route_stream(engine.identity, key))
            if isinstance(each.payload, (Move, e.SourceRowChanged)) and each.source_ref is None
        ),
        default=0,
    )
    sql = "SELECT max(id) FROM messages WHERE session_id = ? AND role IN ('user', 'assistant') AND active"
    newest = one(engine.state.reader(), sql, (session_id,))
    return isinstance(newest, int) and newest > said > 0
