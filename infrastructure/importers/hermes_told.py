"""What has no time of its own: titles, archives, prompts, identity, usage. Each session in one save."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from ...domain import events as e
from ...domain import title_claim
from ...domain.events import Odd, Payload, session_stream
from ...domain.source_rows import seen_after, session_created, session_payloads, unpacked
from ...domain.source_values import as_text
from ...domain.title_claim import TitleClaim
from ...projections.sources import usage_digest, usage_key, usage_row_gone
from ..streams import title_stream
from .hermes_plan import Plan
from .hermes_rows import model_usage, plain, session_row
from .hermes_run import Run, SessionPlan, rows, rows_of
from .writer import Told


def tell_sessions(run: Run, plan: Plan) -> None:
    """Read the sessions once more, now for all that their first events do not say."""
    titles = Titles(run, plan)
    told_prompts = {row[0] for row in rows(run.db, "SELECT hash FROM source_prompts")}
    run.begin("taking in the rest", len(run.numbered))
    for raw in run.home.sessions():
        session = run.plans.get(str(raw.get("id")))
        run.advance(1)
        if session is None or session.left_out or run.is_erased("session", session.id):
            continue  # of a row of which something was forgotten here, nothing comes again
        payloads = _payloads(plan, session)
        if not payloads:
            continue
        text = session_row(raw, plan.prompts)[1]
        unit: list[Told] = []
        for payload in payloads:
            if run.is_erased(payload.topic, session.id):
                continue
            match payload:
                case e.SessionTitled():
                    unit += titles.told(session, payload)
                    continue
                case e.PromptChanged(prompt_hash=str() as known) if known not in told_prompts:
                    if text is None:
                        run.findings.note(f"session {session.id}: the text of its prompt is missing")
                    else:
                        told_prompts.add(known)
                        payload = msgspec.structs.replace(payload, text=text)
                case e.SourceRowChanged():
                    _name_conflicts(run, session, payload)
                case _:
                    pass
            unit.append(run.told(session.stream, payload, session.id))
        run.writer.add(*unit)
    for session in run.numbered:
        if session.rowless and session.is_new and not plan.rows_were_lost:
            gone = e.SourceRowGone("session", session.id)
            run.writer.add(run.told(session.stream, gone, session.id))


def _payloads(plan: Plan, session: SessionPlan) -> list[Payload]:
    """What is left to be told of a session after its first event and its end."""
    if session.later is not None:
        return session.later
    if not session.is_new:
        return []
    row = unpacked(session.row)
    created = session_created(row, at_us=0, parent_kind=session.kind)
    begun = seen_after({}, created, 0)
    payloads = session_payloads(begun, row, continuation=plan.continuation(session, row))
    rest = [p for p in payloads if not isinstance(p, e.SessionEnded | e.SessionCompressed)]
    return [
        msgspec.structs.replace(p, row=session.id) if isinstance(p, e.SourceRowChanged) else p for p in rest
    ]


def _name_conflicts(run: Run, session: SessionPlan, payload: e.SourceRowChanged) -> None:
    for column in payload.conflicts:
        run.findings.conflict(
            f"session {session.id}: {column} is {_brief(payload.changes.get(column))} in the source"
            f" and was changed here to {_brief(payload.ours.get(column))}; ours stays"
        )


def _brief(value: object) -> str:
    text = repr(value) if not isinstance(value, str) else f"'{value}'"
    return text if len(text) <= 80 else text[:79] + "…"


def _retitled(session: SessionPlan, title: str) -> bool:
    """Whether this run takes the title from the session, or gives it another."""
    return any(isinstance(p, e.SessionTitled) and p.title != title for p in session.later or ())


class Titles:
    """Claims of titles: each belongs to one session, whoever bears it in the source."""

    def __init__(self, run: Run, plan: Plan) -> None:
        self._run = run
        self._plan = plan
        self._claims: dict[str, TitleClaim] = {}

    def told(self, session: SessionPlan, payload: e.SessionTitled) -> Iterator[Told]:
        """The title as its session's event, and the claims that go with it."""
        run = self._run
        yield from self._released(session)
        claimed = True
        if payload.title:
            claim = self._claim(payload.title)
            if claim.holder is not None and claim.holder != session.id:
                yield from self._given_up(claim, session)
                claim = self._claim(payload.title)
            if claim.holder is None:
                taken = e.TitleClaimed(payload.title, session.id)
                yield self._moved(claim, taken, session.id)
            elif claim.holder != session.id:
                claimed = False
                run.findings.note(
                    f"session {session.id}: its title '{payload.title}' belongs to session"
                    f" {claim.holder}; it came in unclaimed"
                )
        yield run.told(session.stream, e.SessionTitled(payload.title, claimed), session.id)

    def _released(self, session: SessionPlan) -> Iterator[Told]:
        """The title that the session bore until now."""
        seen = unpacked(session.seen) if session.seen is not None else {}
        old = seen.get("title")
        if isinstance(old, str) and old:
            claim = self._claim(old)
            if claim.holder == session.id:
                yield self._moved(claim, e.TitleReleased(old, session.id), session.id)

    def _given_up(self, claim: TitleClaim, to: SessionPlan) -> Iterator[Told]:
        """A title that its holder, another session of this home, does not bear there any more."""
        run, holder_id = self._run, claim.holder or ""
        holder = run.plans.get(holder_id)
        if self._plan.title_left(holder_id) == claim.title:
            yield self._moved(claim, e.TitleReleased(claim.title, holder_id), holder_id)
            yield run.told(session_stream(holder_id), e.SessionTitled(claim.title, claimed=False), holder_id)
            run.findings.note(
                f"session {holder_id}: it is no longer in the source, and its title '{claim.title}'"
                f" is session {to.id}'s now"
            )
        elif holder is not None and _retitled(holder, claim.title):
            yield self._moved(claim, e.TitleReleased(claim.title, holder.id), holder.id)

    def _claim(self, title: str) -> TitleClaim:
        found = self._claims.get(title)
        if found is None:
            run = self._run
            stream = title_stream(run.identity, title)
            found = TitleClaim(title)
            for event in run.log.stream_events(stream):
                found = title_claim.evolve(found, event.version, event.payload)
            run.writer.decided_on(stream, found.version)
            self._claims[title] = found
        return found

    def _moved(self, claim: TitleClaim, payload: Payload, session_id: str) -> Told:
        self._claims[claim.title] = title_claim.evolve(claim, claim.version + 1, payload)
        return self._run.told(title_stream(self._run.identity, claim.title), payload, session_id)


def _named(value: object) -> str:
    """What a row is called in the report."""
    return repr(as_text(value) if isinstance(value, (Odd, bytes)) else value)


def tell_usage(run: Run, plan: Plan) -> None:
    """Each model's share, where it differs from what was last seen or has gone."""
    known: Mapping[tuple[str, bytes], bytes] = {
        (session_id, bytes(key)): bytes(seen)
        for session_id, key, seen in rows_of(
            run.db,
            "SELECT session_id, key, digest FROM source_usage",
            "session_id",
            None if run.home.scope is None else run.home.scope.sessions,
        )
    }
    read: set[tuple[str, bytes]] = set()
    for raw in run.home.model_usage():
        row = plain(raw)
        session_id = str(row.get("session_id"))
        of = f"usage of {_named(row.get('model'))} by session {_named(row.get('session_id'))}"
        payload = model_usage(raw)
        if payload is None:
            run.findings.skip(f"{of}: its key is no valid text")
        elif not plan.knows(session_id):
            run.findings.skip(f"{of}: there is no such session")
        elif (session_id, usage_key(payload)) in read:
            run.findings.skip(f"{of}: a second row with this key (NULL is no other key than none)")
        elif not plan.leaves_out(session_id):
            read.add((session_id, usage_key(payload)))
            if known.get((session_id, usage_key(payload))) == usage_digest(payload):
                run.findings.unchanged["usage"] += 1
            else:
                for column, value in row.items():
                    if isinstance(value, Odd):
                        run.findings.note(f"{of}: {column} is no valid text; it came in as {_named(value)}")
                run.writer.add(run.told(session_stream(session_id), payload, session_id, kind="usage"))
    if run.home.columns("session_model_usage") and not run.home.has_lost("session_model_usage"):
        for session_id, key in sorted(known.keys() - read):
            _tell_usage_gone(run, session_id, key)


def _tell_usage_gone(run: Run, session_id: str, key: bytes) -> None:
    """A share that its session has no more; those of a session that went are told with it."""
    session = run.plans.get(session_id)
    if session is not None and not session.left_out and not session.rowless:
        run.writer.add(run.told(session.stream, usage_row_gone(key), session_id, kind="usage"))
