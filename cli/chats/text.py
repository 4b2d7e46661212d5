"""How `retold why` reads: the verdict, who the chat belongs to, what happened, and what mends it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from ...domain.audit import Finding
from ...domain.chats import Candidate
from ...domain.ends import SWITCH, is_compression
from ...domain.keys import describe
from ...infrastructure.reading import View
from ..output import cell_width, plural, visible
from ..paragraphs import NARROW, day, day_and_clock, hanging, ranges, short, text_width, wrap
from .answer import Answer
from .because import because
from .lost import lost
from .timeline import Moment, named
from .verdicts import verdict

UNKNOWN = "(unknown)"
_INDENT = 13
_WIDER = 15
_NAME = 28
_ENDED = {"session_reset": "reset", "session_switch": "left"}
_NARROW_VERDICT = 20
_MOST_MOMENTS = 24
_MOST_PASSED_OVER = 8


def lines(view: View, answer: Answer, home: str = "") -> list[str]:
    """The whole answer, wrapped for this terminal; `home` is what a command needs to find this home."""
    width = text_width()
    names = {each: short(name, _NAME) for each, name in answer.names.items()}
    blocks = (
        _verdicts(answer, names, view.now_us, width),
        [*_sessions(view, answer, width), *_because(view, answer, names, width)],
        list(_timeline(answer, names, view.now_us, width)),
        [
            *_passed_over(answer, names, width),
            *hanging("evidence", _evidence(answer, names), indent=_WIDER, width=width),
            *hanging("lost", lost(view, answer, names), indent=_WIDER, width=width),
            *_commands("remedy", _remedies(answer, home), width),
        ],
    )
    found = list(_headline(answer, width))
    for block in blocks:
        found += block and [*block, ""]
    return found[:-1]


def _headline(answer: Answer, width: int) -> Iterator[str]:
    """Who the chat is with, and its key at the right where both fit."""
    if answer.key is None:
        session = answer.world.sessions[answer.session_id or ""]
        yield from _both(f"{session.source} session", session.id, width)
        return
    bears = [session for session in answer.sessions if session.bears == answer.key]
    user = next((each.user_id for each in reversed(bears) if each.user_id), None)
    thread = next((each.thread_id for each in reversed(bears) if each.thread_id), None)
    yield from _both(describe(answer.key, user_id=user, thread_id=thread), answer.key, width)


def _both(left: str, right: str, width: int) -> Iterator[str]:
    left, right = visible(left), visible(right)
    gap = width - cell_width(left) - cell_width(right)
    if left == right:
        yield left
    elif gap >= 2:
        yield left + " " * gap + right
    else:
        yield from (short(left, width), right)


def _verdicts(answer: Answer, names: dict[str, str], now_us: int, width: int) -> list[str]:
    """One paragraph a finding; what a jump has told of a session is not told again."""
    if not answer.findings:
        return wrap(_sound(answer, now_us), width)
    jumped = {each.session_id for each in answer.findings if each.kind == "jumped_back"}
    told = [each for each in answer.findings if each.kind != "stranded" or each.session_id not in jumped]
    said = [named(verdict(each, answer.world, now_us), names) for each in told]
    return [line for each in said for line in wrap(each, width)]


def _sound(answer: Answer, now_us: int) -> str:
    if answer.key is None:
        session = answer.world.sessions[answer.session_id or ""]
        if answer.by_nature:
            return (
                f"Sound: sessions of {session.source} have no routing key by nature, so no chat leads here"
                " and none can lead past it. It is opened by its id or title."
            )
        if session.message_count == 0:
            return "Sound: it has no key, and no message that could be missed."
        return "Sound: it has no key, and is none that a chat would lead to."
    if answer.undated is not None:
        return f"Unknown: where the chat led on {day_and_clock(now_us, now_us)} is not on record."
    if answer.route is None:
        return "The chat leads nowhere: its next message begins a new session."
    left = [each for each in answer.sessions if each.end_reason == SWITCH and each.ended_us is not None]
    target = answer.world.sessions.get(answer.route.session_id)
    if left and target is not None:
        latest = max(left, key=lambda each: each.ended_us or 0)
        if latest.id != target.id and latest.started_us > target.started_us:
            return (
                "Sound: the chat leads to an older talk, and was led there on purpose: the newer one was"
                f" left by a /resume or a handoff on {day(latest.ended_us, now_us)}."
            )
    return "Sound: nothing on record speaks against where the chat leads."


# --- leads to, belongs to, because -----------------------------------------------------------------


def _sessions(view: View, answer: Answer, width: int) -> list[str]:
    rows: list[tuple[str, str]] = []
    if answer.route is not None:
        rows.append(("leads to", answer.route.session_id))
    elif answer.key is not None:
        rows.append(("leads to", "" if answer.undated is None else UNKNOWN))
    else:
        rows.append(("session", answer.session_id or ""))
    for finding in answer.findings:
        for label, fact in (
            ("belongs to", "belongs_to"),
            ("reset", "fence"),
            ("last known", "last_known"),
            ("used last", "most_recent"),
            ("keyed last", "last_keyed"),
        ):
            session_id = finding.facts.get(fact)
            if isinstance(session_id, str) and session_id not in {each for _, each in rows}:
                rows.append((label, session_id))
    cells = [(label, *_row(view, answer, session_id)) for label, session_id in rows]
    id_width = max(cell_width(each[2]) for each in cells)
    state_width = max(cell_width(each[3]) for each in cells)
    room = width - _INDENT - id_width - state_width - 5
    name_width = max(min(room, max(cell_width(each[1]) for each in cells)), min(12, _NAME))
    found = []
    for label, name, session_id, state in cells:
        if width < NARROW:
            below = (short(name, width - 4), session_id, *wrap(state, width - 4))
            found += [f"  {label}", *(f"    {each}" for each in below if each)]
            continue
        cut = short(name, name_width)
        cut += " " * (name_width - cell_width(cut))
        ids = visible(session_id) + " " * (id_width - cell_width(session_id))
        line = f"  {label}".ljust(_INDENT) + (f"{cut}  " if name_width else "") + ids
        if cell_width(line) + 3 + cell_width(state) <= width:
            found.append(f"{line}   {state}".rstrip())
        else:
            found += [line.rstrip(), *(" " * _INDENT + each for each in wrap(state, width - _INDENT))]
    return found


def _row(view: View, answer: Answer, session_id: str) -> tuple[str, str, str]:
    """Name, id and state."""
    if session_id == UNKNOWN:
        return UNKNOWN, "", ""
    session = answer.world.sessions.get(session_id)
    if session is None:
        return ("", session_id, "does not exist here") if session_id else ("nothing", "", "")
    if session.title:
        name = visible(session.title)
    else:
        found = view.db.execute("SELECT preview FROM sessions WHERE id = ?", (session_id,)).fetchone()
        name = f"“{short(visible(found[0]), _NAME - 2)}”" if found and found[0] else "(untitled)"
    state = plural(session.message_count, "message")
    if is_compression(session.end_reason):
        state += ", compressed"
    elif session.end_reason is not None or session.ended_us is not None:
        state += f", {_ENDED.get(session.end_reason or '', 'ended')}"
    elif session.key is None and not answer.by_nature:
        state += ", no key"
    else:
        state += ", open"
    return name, session.id, state


def _because(view: View, answer: Answer, names: dict[str, str], width: int) -> Iterator[str]:
    said = [visible(each) for each in because(answer, names, view.now_us)]
    yield from hanging("because", said, indent=_INDENT, width=width)


# --- what happened ---------------------------------------------------------------------------------


def _timeline(answer: Answer, names: dict[str, str], now_us: int, width: int) -> Iterator[str]:
    moments, hidden = _chosen(answer)
    if hidden:
        yield f"  … {plural(hidden, 'more moment')}; --json has them all"
    stamps = [day_and_clock(each.at_us, now_us) for each in moments]
    stamp_width = max((len(each) for each in stamps), default=0)
    places = [_place(each) for each in moments]
    place_width = max((len(each) for each in places), default=0)
    text_cells = width - 2 - stamp_width - 2 - 2 - place_width
    for stamp, moment, place in zip(stamps, moments, places, strict=True):
        text = named(moment.text, names)
        if width < NARROW:
            yield from (f"  {stamp}  {place}", *(f"    {line}" for line in wrap(text, width - 4)))
            continue
        first, *rest = wrap(text, text_cells) or [""]
        gap = " " * (text_cells - cell_width(first))
        yield f"  {stamp.rjust(stamp_width)}  {first}{gap}  {place.rjust(place_width)}"
        yield from (" " * (stamp_width + 6) + line for line in rest)


def _place(moment: Moment) -> str:
    if moment.upto is None or moment.upto == moment.position:
        return f"#{moment.position}"
    return f"#{moment.position}-{moment.upto}"


def _chosen(answer: Answer) -> tuple[list[Moment], int]:
    """The moments to show: those of sessions that findings name, then the latest."""
    decided = answer.route.position if answer.route is not None and answer.route.cause == "import" else None
    moments = [each for each in answer.told.moments if each.position != decided]
    if len(moments) <= _MOST_MOMENTS:
        return moments, 0
    about = {answer.session_id}
    for finding in answer.findings:
        about |= {finding.session_id, *(each.session_id for each in finding.weighed)}
    must = [each for each in moments if each.session_id in about]
    rest = [each for each in moments if each.session_id not in about]
    kept = must[-_MOST_MOMENTS:] + rest[len(rest) - max(_MOST_MOMENTS - len(must), 0) :]
    kept.sort(key=lambda each: (each.at_us, each.position))
    return kept, len(moments) - len(kept)


# --- what was weighed ------------------------------------------------------------------------------


def _passed_over(answer: Answer, names: dict[str, str], width: int) -> Iterator[str]:
    target = None if answer.route is None else answer.route.session_id
    others = [each for each in answer.candidates if each.session_id not in (target, answer.session_id)]
    about = {each.session_id for finding in answer.findings for each in finding.weighed}
    about |= {finding.session_id or "" for finding in answer.findings}
    latest = sorted(
        others,
        key=lambda each: (each.session_id in about, each.last_active_us or 0, each.session_id),
        reverse=True,
    )
    chosen = {each.session_id for each in latest[:_MOST_PASSED_OVER]}
    shown = [each for each in others if each.session_id in chosen]
    widest = max((cell_width(names[each.session_id]) for each in shown), default=0)
    name_width = min(widest, width - _WIDER - 3 - _NARROW_VERDICT)
    label = "passed over" if answer.key is not None else "weighed"
    for candidate in shown:
        yield from _candidate(candidate, names, label, name_width, width)
        label = ""
    if len(others) > len(shown):
        yield " " * _WIDER + f"… and {plural(len(others) - len(shown), 'more session')}"


def _candidate(
    candidate: Candidate, names: dict[str, str], label: str, name_width: int, width: int
) -> Iterator[str]:
    if width < NARROW:
        said = f"{names[candidate.session_id]}: {named(candidate.verdict, names)}"
        yield from ([f"  {label}"] if label else [])
        yield from (f"    {line}" for line in wrap(said, width - 4))
        return
    name = short(names[candidate.session_id], name_width)
    indent = _WIDER + name_width + 3
    said = named(candidate.verdict, names)
    text = itertools.chain(wrap(said, width - indent), itertools.repeat(""))
    head = f"  {label}".ljust(_WIDER) + name + " " * (name_width - cell_width(name)) + "   "
    yield head + next(text)
    for line in itertools.takewhile(bool, text):
        yield " " * indent + line


def _evidence(answer: Answer, names: dict[str, str]) -> list[str]:
    if not answer.findings:
        return []
    stranded = (each for each in answer.findings if each.kind == "stranded")
    said = [text for each in stranded if (text := _kinship(each, names)) is not None]
    positions = {position for finding in answer.findings for position in finding.evidence}
    said.append(f"events {ranges(positions)}")
    return said


def _kinship(finding: Finding, names: dict[str, str]) -> str | None:
    """By what a stranded session is known to belong here."""
    evidence = finding.facts.get("evidence")
    owner, donors = finding.session_id or "", [each.session_id for each in finding.candidates]
    if evidence is None or not donors:
        return None
    one, other = names.get(owner, owner), names.get(donors[0], donors[0])
    if evidence == "lineage":
        return f"lineage: {one} names {other} (same platform, keyed) as parent; no other session claims it"
    return f"contiguity: {one} began when only {other} had just fallen quiet; no other session claims it"


def _commands(label: str, paragraphs: Iterable[str], width: int) -> Iterator[str]:
    """As `hanging`, but a command is never broken, however narrow the terminal: it is to be copied."""
    for each in paragraphs:
        if each.startswith("retold ") and width >= NARROW:
            yield f"  {label}".ljust(_WIDER) + visible(each)
        elif each.startswith("retold "):
            yield from ([f"  {label}"] if label else [])
            yield f"    {visible(each)}"
        else:
            yield from hanging(label, [each], indent=_WIDER, width=width)
        label = ""


def _remedies(answer: Answer, home: str) -> list[str]:
    """The commands that mend it, each once."""
    return [each + home for each in dict.fromkeys(each.remedy for each in answer.findings)]
