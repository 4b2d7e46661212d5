"""How every bulk command goes: select, show, ask, do, and say how it is taken back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from ..domain.errors import BadUsage, ChangedMeanwhile, NoRoom, RetoldError
from ..domain.shell import shell_word
from ..projections.selection import Candidate, Selection, Unit, Verb, alone, named, select, still_open
from .asking import ask
from .filters import described, is_bare, parsed
from .options import with_home
from .output import cell_width, emit_json, fit, iso_us, local_time, plural
from .stream import answering, is_terminal, put, say, terminal_width
from .writing import writing

if TYPE_CHECKING:
    from datetime import tzinfo

    from ..infrastructure.engine import SessionEngine
    from ..infrastructure.held import Held
    from ..projections.base import Connection

SHOWN: Final = 15
_MODEL, _TITLE, _LEAST_TITLE = 24, 36, 10
_BESIDE: Final = 2 + 2 + 16 + 2 + 10 + 1 + 9 + 2
"""Cells of a row beside its id, its model and its title."""
MOST_NAMED: Final = 20
"""Sessions that the command which takes it back names one by one, for a person to copy."""
EXIT_LEFT: Final = 1
EXIT_NO_ROOM: Final = NoRoom.exit_code
EXIT_INTERRUPTED: Final = 130
NOT_TRIED: Final = "not tried, since there is no room"
CHANGED: Final = "changed meanwhile"
"""Why what was shown stays: it was no longer so once the question had its answer."""
_DID: Final[dict[Verb, tuple[str, str]]] = {
    "prune": ("Pruned", "deleted"),
    "delete": ("Deleted", "deleted"),
    "archive": ("Archived", "archived"),
    "unarchive": ("Unarchived", "unarchived"),
    "pin": ("Pinned", "pinned"),
    "unpin": ("Unpinned", "unpinned"),
}
_BACK: Final[dict[Verb, str]] = {
    "prune": "undelete",
    "delete": "undelete",
    "archive": "unarchive",
    "unarchive": "archive",
    "pin": "unpin",
    "unpin": "pin",
}
_TOPICS: Final[dict[Verb, str]] = {
    "prune": "session_deleted",
    "delete": "session_deleted",
    "archive": "session_archived",
    "unarchive": "session_unarchived",
    "pin": "session_pinned",
    "unpin": "session_unpinned",
}


class Wish(Struct, frozen=True):
    """What a bulk command is to do.

    Attributes:
        given: the filters by parameter, as they were given.
        names: sessions named one by one, instead of filters.
        include: what is taken though the verb spares it.
        now: erase at once.
    """

    verb: Verb
    given: dict[str, Any] = {}
    names: tuple[str, ...] = ()
    include: tuple[Any, ...] = ()
    reason: str = ""
    now: bool = False
    dry_run: bool = False
    yes: bool = False


class Done(Struct):
    """What was done: sessions in the order in which undoing goes, events, and what could not be done."""

    units: list[Unit]
    back: list[str]
    positions: list[int]
    left: dict[str, str]
    along: list[str]
    pending: dict[str, None]
    interrupted: bool = False
    no_room: bool = False


def included(*, archived: bool, pinned: bool) -> tuple[str, ...]:
    """What is taken though it would be spared."""
    return tuple(name for name, taken in (("archived", archived), ("pinned", pinned)) if taken)


def carry_out(home: Path, wish: Wish, *, as_json: bool) -> int:
    """Select, show, ask, do, and say how to take it back; the exit code."""
    from ..infrastructure.clock import now_us

    _refuse_everything(wish)
    at_us = now_us()
    if wish.dry_run:
        with answering(home, None) as view:
            chosen, words = _chosen(view.db, wish, at_us, view.config.zone)
            opened = _opened(view.db, wish, at_us, view.config.zone)
        if as_json:
            emit_json(_as_json(wish, words, chosen, None, None) | {"open": opened})
        else:
            put(*_lines(words, chosen, all_of_it=True))
            if chosen.units:
                put(f"Dry run: nothing was {_DID[wish.verb][1]}.")
            _say_opened(opened)
        return 0
    held: Held | None = None
    with writing(home) as engine:
        as_of = engine.head().position
        engine.projector.catch_up()
        chosen, words = _chosen(engine.state.reader(), wish, at_us, engine.config.zone)
        opened = _opened(engine.state.reader(), wish, at_us, engine.config.zone)
        if chosen.units and not wish.names:
            if not wish.yes and not as_json:
                put(*_lines(words, chosen, all_of_it=False))
            ask(_question(wish, chosen), yes=wish.yes, as_json=as_json)
            engine.projector.catch_up()
            chosen = _unchanged(chosen, _chosen(engine.state.reader(), wish, at_us, engine.config.zone)[0])
        done = _done(engine, wish, chosen, as_of)
        if wish.now and done.units:
            from ..infrastructure.held import still_held

            gone = [*(each for unit in done.units for each in unit.ids), *done.along]
            held = still_held(home, engine.state.reader(), gone, names=True)
    if as_json:
        fields = _as_json(wish, words, chosen, done, held)
        emit_json(fields | {"open": opened, "undo": _undo(wish, done, home)})
    else:
        _say_done(wish, words, chosen, done, held, home)
        _say_opened(opened)
    if done.interrupted:
        return EXIT_INTERRUPTED
    if not done.left:
        return 0
    return EXIT_NO_ROOM if done.no_room else EXIT_LEFT


def _refuse_everything(wish: Wish) -> None:
    if wish.names and not is_bare(wish.given):
        raise BadUsage("sessions and filters exclude each other", hint="name sessions, or give filters")
    if not wish.names and is_bare(wish.given):
        whose = "every ended session" if wish.verb in ("archive", "delete") else "every session"
        raise BadUsage(
            f"Refusing to {wish.verb} {whose}",
            hint="name sessions, or pass at least one filter (e.g. --newer-than 5h, --source cli)",
        )


def _chosen(db: Connection, wish: Wish, at_us: int, zone: tzinfo | None) -> tuple[Selection, str]:
    if wish.names:
        from ..projections.find import find_session

        if wish.verb == "delete":
            return alone(db, find_session(db, wish.names[0], exact=True)), "as named"
        return named(db, [find_session(db, each, exact=True) for each in wish.names]), "as named"
    filters = parsed(wish.given, now_us=at_us, zone=zone)
    return select(db, wish.verb, filters, include=wish.include), described(filters)


def _opened(db: Connection, wish: Wish, at_us: int, zone: tzinfo | None) -> int:
    return 0 if wish.names else still_open(db, wish.verb, parsed(wish.given, now_us=at_us, zone=zone))


def _say_opened(count: int) -> None:
    if count:
        which = plural(count, "session that matches", "sessions that match")
        say([f"{which} {'has' if count == 1 else 'have'} not ended and {'stays' if count == 1 else 'stay'}."])


def _unchanged(before: Selection, after: Selection) -> Selection:
    """What was shown and still is so after the answer; nobody said yes to anything else."""
    same = {unit.ids: unit for unit in after.units}
    units = [unit for unit in before.units if unit.ids in same and same[unit.ids].along == unit.along]
    kept = {unit.ids for unit in units}
    changed = [each for unit in before.units if unit.ids not in kept for each in unit.ids]
    return Selection(units, before.skipped | dict.fromkeys(changed, CHANGED))


def _done(engine: SessionEngine, wish: Wish, chosen: Selection, as_of: int) -> Done:
    done = Done([], [], [], {}, [], {})
    for unit in chosen.units:
        try:
            if wish.verb in ("prune", "delete"):
                _delete(engine, wish, unit, done, as_of)
            else:
                _mark(engine, wish.verb, unit, done)
        except ChangedMeanwhile:  # another process was first, or it is in use again
            chosen.skipped.update(dict.fromkeys(unit.ids, CHANGED))
        except RetoldError as error:
            done.left[unit.ids[0]] = error.message
            if isinstance(error, NoRoom):  # nor is there any for the rest
                done.no_room = True
                rest = chosen.units[chosen.units.index(unit) + 1 :]
                done.left |= dict.fromkeys((each.ids[0] for each in rest), NOT_TRIED)
                break
        except KeyboardInterrupt:  # what was done until then is said, with the way back
            done.interrupted = True
            rest = chosen.units[chosen.units.index(unit) :]
            done.left |= dict.fromkeys((each.ids[0] for each in rest), "interrupted")
            break
    return done


def _delete(engine: SessionEngine, wish: Wish, unit: Unit, done: Done, as_of: int) -> None:
    """Delete a conversation as it was shown, in one save."""
    gone = engine.delete_conversation(unit.ids, wish.reason, as_of=as_of, along=unit.along, now=wish.now)
    done.units.append(unit)
    done.back += gone.named
    done.positions += gone.positions
    done.pending |= dict.fromkeys(gone.pending)
    done.along += [each for each in gone.sessions if each not in unit.ids]


def _mark(engine: SessionEngine, verb: Verb, unit: Unit, done: Done) -> None:
    mark = {
        "archive": engine.archive_session,
        "unarchive": engine.unarchive_session,
        "pin": engine.pin_session,
        "unpin": engine.unpin_session,
    }[verb]
    positions = [position for each in unit.ids for position in mark(each).positions]
    if positions:
        done.units.append(unit)
        done.back.append(unit.ids[-1])
        done.positions += positions


# --- in words --------------------------------------------------------------------------------------


def _span(sessions: Sequence[Candidate]) -> str:
    return f"oldest {_minute(sessions[0].started_us)}, newest {_minute(sessions[-1].started_us)}"


def _minute(us: int) -> str:
    return local_time(us)[:-3]


def _lines(words: str, chosen: Selection, *, all_of_it: bool) -> list[str]:
    """What matches, a line each, and what stays though it matches."""
    sessions = chosen.sessions
    lines = [f"No sessions match ({words})."]
    if sessions:
        matches = "session matches" if len(sessions) == 1 else "sessions match"
        lines = _wrapped("", f"{len(sessions):,} {matches} ({words}; {_span(sessions)}):")
        lines += _rows(sessions if all_of_it else sessions[:SHOWN])
        if not all_of_it and len(sessions) > SHOWN:
            lines.append(f"  … and {len(sessions) - SHOWN:,} more")
        if chosen.along:
            lines.append(f"With them: {plural(len(chosen.along), 'delegate')}.")
    return lines + _skipped(chosen.skipped)


def _rows(sessions: Sequence[Candidate]) -> Iterator[str]:
    """A line each; on a terminal the title has what is left, and the model goes where that is too little."""
    named = [(each.model or "—").rpartition("/")[2] for each in sessions]
    widest = max(cell_width(each.id) for each in sessions)
    beside, room = _MODEL, _TITLE + _MODEL + 1
    if is_terminal():
        beside, room = min(_MODEL, max(map(cell_width, named))), terminal_width() - widest - _BESIDE
    models = room >= beside + 1 + _LEAST_TITLE
    title = max(1, min(_TITLE, room - beside - 1 if models else room))
    for each, model in zip(sessions, named, strict=True):
        messages = "1 msg" if each.message_count == 1 else f"{each.message_count} msgs"
        yield (
            f"  {fit(each.id, widest)}  {_minute(each.started_us)}  {fit(each.source, 10)}"
            f"{f' {fit(model, beside)}' if models else ''} {messages:>9}  {fit(each.title or '—', title)}"
        ).rstrip()


def _wrapped(lead: str, words: str) -> list[str]:
    """Words after what leads them; on a terminal no line is broken within a word."""
    if not is_terminal():
        return [lead + words]
    from .paragraphs import wrap

    first, *more = wrap(words, max(20, terminal_width() - cell_width(lead)))
    return [lead + first, *(" " * cell_width(lead) + line for line in more)]


def _skipped(skipped: dict[str, str]) -> list[str]:
    if not skipped:
        return []
    lines = ["Skipped:"]
    for session_id, why in list(skipped.items())[:SHOWN]:
        lines += _wrapped(f"  {session_id}  ", why)
    if len(skipped) > SHOWN:
        lines.append(f"  … and {len(skipped) - SHOWN:,} more (--json names all)")
    return lines


def _question(wish: Wish, chosen: Selection) -> str:
    sessions = chosen.sessions
    these = "this session" if len(sessions) == 1 else f"these {len(sessions):,} sessions"
    verb = "Delete" if wish.verb == "prune" else wish.verb.capitalize()
    along = f" and {plural(len(chosen.along), 'delegate')}" if chosen.along else ""
    return f"{verb} {these}{along} ({_span(sessions)}){', for good' if wish.now else ''}?"


def _say_done(wish: Wish, words: str, chosen: Selection, done: Done, held: Held | None, home: Path) -> None:
    did, done_to = _DID[wish.verb]
    count = sum(len(unit.ids) for unit in done.units)
    stays = {name: why for name, why in chosen.skipped.items() if wish.yes or why == CHANGED}
    if CHANGED in stays.values() and not count and not done.left:
        put(f"Nothing was {done_to}: it {CHANGED}.")
        say(_skipped(stays) if chosen.units else ())
        return
    if not chosen.units:
        put(*_lines(words, chosen, all_of_it=False))
        return
    if not count and not done.left:
        put(f"Nothing to do: all of it is {done_to} already.")
        return
    along = f" with {plural(len(done.along), 'delegate')}" if done.along else ""
    hidden = " Hidden from lists, found by search; nothing was deleted." if wish.verb == "archive" else ""
    put(f"{did} {plural(count, 'session')}{along}.{hidden if count else ''}")
    say(_skipped(stays))
    say([f"Not {done_to}: {session_id}: {why}" for session_id, why in list(done.left.items())[:SHOWN]])
    if len(done.left) > SHOWN:
        say([f"Not {done_to}: {len(done.left) - SHOWN:,} more (--json names all)"])
    if wish.now and done.units:
        from .removal import pending_words, unreached

        say([*(pending_words(tuple(done.pending)) or ["They are erased."]), *unreached(held)])
    back = _undo(wish, done, home)
    if back is not None and len(done.back) > MOST_NAMED:
        log = f"retold log --type {_TOPICS[wish.verb]} --since '#{min(done.positions)}'{with_home(home)}"
        say([f"`retold sessions {_BACK[wish.verb]}` takes it back; this names the sessions: {log}"])
    elif back is not None:
        say([f"This takes it back: {back}"])


def _undo(wish: Wish, done: Done, home: Path) -> str | None:
    """The command that takes it back, however long."""
    if not done.back or wish.now:
        return None
    return f"retold sessions {_BACK[wish.verb]} {' '.join(map(shell_word, done.back))}{with_home(home)}"


def _as_json(
    wish: Wish, words: str, chosen: Selection, done: Done | None, held: Held | None
) -> dict[str, object]:
    from .removal import copies_fields

    sessions = chosen.sessions
    if done is not None:
        did = {each for unit in done.units for each in unit.ids}
        sessions = [each for each in sessions if each.id in did]
    return {
        "dry_run": wish.dry_run,
        "filters": words,
        "sessions": [
            {
                "id": each.id,
                "title": each.title,
                "source": each.source,
                "model": each.model,
                "started_at": iso_us(each.started_us),
                "last_active_at": None if each.last_active_us is None else iso_us(each.last_active_us),
                "message_count": each.message_count,
                "archived": each.archived,
                "pinned": each.pinned,
            }
            for each in sessions
        ],
        "oldest_at": iso_us(sessions[0].started_us) if sessions else None,
        "newest_at": iso_us(sessions[-1].started_us) if sessions else None,
        "along": chosen.along if done is None else done.along,
        "skipped": chosen.skipped,
        "left": {} if done is None else done.left,
        "positions": [] if done is None else done.positions,
        "pending": [] if done is None else list(done.pending),
        **copies_fields(held),
        "undo": None,
    }
