"""What `retold why` answers: the chat that is meant, its sessions, its decision and its findings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from ...domain.audit import Finding, audit, concerns, explain
from ...domain.chats import Candidate, Chats
from ...domain.errors import NoSuchChat
from ...domain.facts import RouteFacts, SessionFacts, World, keyless_by_nature
from ...infrastructure.happened import UndatedRoute
from ...infrastructure.reading import View
from ...projections.chat_names import find_chat
from ...projections.world import chat_sources, world
from .timeline import Told, tell


class Answer(Struct, frozen=True, kw_only=True):
    """All that is known of one chat, or of a session that belongs to none.

    Attributes:
        key: None for a session that has no key and that none can be told for.
        session_id: where the key leads; without a key, the session that was asked about.
        route: the decision that holds, None where the key leads nowhere.
        names: how the text calls each session: its title where that is its own, else its id.
        by_nature: the session is of a source that has no keys here.
        undated: the route that an import found later, where it is not on record where the key led at the
            time that was asked about.
    """

    world: World
    key: str | None
    session_id: str | None
    route: RouteFacts | None
    candidates: Sequence[Candidate]
    findings: Sequence[Finding]
    sessions: Sequence[SessionFacts]
    names: dict[str, str]
    told: Told
    by_nature: bool = False
    undated: UndatedRoute | None = None


def answer_for(view: View, chat: str) -> Answer:
    """Find what `chat` means and explain it.

    Raises:
        NoSuchChat, Ambiguous.
    """
    named = find_chat(view.db, chat)
    key = named.key
    sources = chat_sources(view.db, key=key, session_id=named.session_id)
    known = world(view.db, sources=sources)
    if key is None and named.session_id is not None:
        key = Chats(known).key_of(known.sessions[named.session_id])
        more = set() if key is None else chat_sources(view.db, key=key)
        if not more <= sources:
            known = world(view.db, sources=sources | more)
    if key is not None:
        return _of_key(view, known, key)
    if named.session_id is None:
        raise NoSuchChat(f"no session here is named '{chat}'")
    return _of_session(view, known, known.sessions[named.session_id])


def _of_key(view: View, known: World, key: str) -> Answer:
    told = explain(known, key)
    sessions = [known.sessions[each] for each in told.sessions]
    return Answer(
        world=known,
        key=key,
        session_id=None if told.route is None else told.route.session_id,
        route=told.route,
        candidates=told.candidates,
        findings=told.findings,
        sessions=sessions,
        names=_names(sessions),
        told=tell(view, known, key, sessions, told.findings),
        undated=_undated(view, known, key),
    )


def _undated(view: View, known: World, key: str) -> UndatedRoute | None:
    if view.as_of is None or known.routes.get(key):
        return None
    return next((each for each in view.as_of.undated.routes if each.key == key), None)


def _of_session(view: View, known: World, session: SessionFacts) -> Answer:
    """A session without a key of its own, and none to be told from its lineage."""
    chats = Chats(known)
    by_nature = keyless_by_nature(known, session.source)
    lineage = {each.id: each for each in _lineage(known, session)}
    record = chats.records.get(session.id)
    named = [] if record is None else [known.sessions[each] for each in record.donor_ids]
    everyone = {**lineage, **{each.id: each for each in named}}
    sessions = sorted(everyone.values(), key=lambda each: (each.started_us, each.id))
    return Answer(
        world=known,
        key=None,
        session_id=session.id,
        route=None,
        candidates=[
            _keyless(each) if each.id in lineage and by_nature else _weighed(chats, each) for each in sessions
        ],
        findings=[finding for finding in audit(known) if concerns(finding, lineage)],
        sessions=sessions,
        names=_names(sessions),
        told=tell(view, known, None, sessions),
        by_nature=by_nature,
    )


def _lineage(known: World, session: SessionFacts) -> Iterable[SessionFacts]:
    """The session, what it continues, and what continues it."""
    found = {session.id: session}
    at: SessionFacts | None = session
    while at is not None and at.parent_kind == "continuation":
        at = known.sessions.get(at.parent_id or "")
        if at is None or at.id in found:
            break
        found[at.id] = at
    waiting = list(found.values())
    while waiting:
        for child in known.children(waiting.pop().id, "continuation"):
            if child.id not in found:
                found[child.id] = child
                waiting.append(child)
    return found.values()


def _keyless(session: SessionFacts) -> Candidate:
    words = f"a {session.source} session has no key by nature"
    return Candidate(session.id, words, session.last_active_us)


def _weighed(chats: Chats, session: SessionFacts) -> Candidate:
    """Where no key is asked about, whose key leads to the session must be said."""
    found = chats.candidate(session, session.key)
    return replace(found, verdict=found.verdict.replace("the key leads", f"{session.key} leads"))


def _names(sessions: Sequence[SessionFacts]) -> dict[str, str]:
    titles = [session.title for session in sessions]
    return {
        session.id: session.title if session.title and titles.count(session.title) == 1 else session.id
        for session in sessions
    }
