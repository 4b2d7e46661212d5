"""Whether anything of a chat is missing here: erased, or not to be read at import."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...domain import events as e
from ...domain.events import Recorded, session_stream
from ...infrastructure.past_damage import ranges, stream_at, told
from ...infrastructure.reading import View
from ...infrastructure.streams import source_stream
from ...projections.world import count_messages
from ..output import plural
from .answer import Answer

_SHOWN = 5


def lost(view: View, answer: Answer, names: Mapping[str, str]) -> Iterator[str]:
    """One line where nothing is lost, else what is."""
    sessions = answer.sessions
    if not sessions:
        return
    here = {each.id: count_messages(view.db, each.id) for each in sessions}
    said = list(_unread(view, [each.id for each in sessions]))
    damaged = _damaged(view)
    for session in sessions:
        unreadable = damaged.get(session_stream(session.id), [])
        if unreadable:
            which = "event" if len(unreadable) == 1 else "events"
            said.append(
                f"{which} {told(ranges(unreadable))} of {names[session.id]} cannot be read: the log is"
                " damaged there; see: retold verify"
            )
        # Versions are counted without gaps, so what is no other event is a message.
        missing = answer.told.messages_in_log[session.id] - here[session.id] - len(unreadable)
        if missing > 0 and (view.point is None or view.point.at_us is None):
            said.append(f"{plural(missing, 'message')} of {names[session.id]}, erased here")
    if damaged.get(None):
        said.append(
            f"perhaps: {told(ranges(damaged[None]))} of the log cannot be read, and may be of these sessions"
            " or of others; see: retold verify"
        )
    total = plural(sum(here.values()), "message")
    of = "the session" if len(sessions) == 1 else f"the {len(sessions)} sessions"
    if said:
        yield from said
        yield f"the other {total} of {of} are here"
    else:
        yield f"nothing: all {total} of {of} are here"


def _damaged(view: View) -> dict[str | None, list[int]]:
    """The events that the answer lacks since the log is damaged there, by stream where that is known."""
    found: dict[str | None, list[int]] = {}
    for first, last in view.lag.damaged:
        for position in range(first, last + 1):
            found.setdefault(stream_at(view.log, position), []).append(position)
    return found


def _unread(view: View, ids: list[str]) -> Iterator[str]:
    """What imports could not read, where it may be of these sessions."""
    there = view.db.execute("SELECT 1 FROM sqlite_master WHERE name = 'source_homes'").fetchone()
    stores = view.db.execute("SELECT store FROM source_homes").fetchall() if there else []
    for (store,) in stores:
        runs = [each for each in view.log.stream_events(source_stream(str(store))) if _ran(each, view)]
        for event in runs[-1:]:
            named = [each for each in event.payload.lost if any(session_id in each for session_id in ids)]
            yield from (f"{each} (import #{event.position})" for each in named[:_SHOWN])
            rest = len(event.payload.lost) - len(named[:_SHOWN])
            if rest:
                yield (
                    f"perhaps: import #{event.position} could not read"
                    f" {plural(rest, 'thing')} of its store that may be of these sessions or of others"
                )


def _ran(event: Recorded, view: View) -> bool:
    return isinstance(event.payload, e.ImportRan) and event.position <= view.known_at
