"""Carries what was repaired here into the Hermes home that it was imported from."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import apsw
import msgspec

from ...domain import events as e
from ...domain.adoption import is_repair
from ...domain.errors import BadUsage, NoRoom, RetoldError, StoreBusy
from ..carrying import Begun, begin, end, left_of, left_with
from ..importers.hermes_run import readable
from ..sqlite import words
from ..undos import standing_undo, undos
from .carried import Carry, Note, notes_of, record
from .hermes_changes import Repair, make
from .hermes_home import Copies, HermesWriter, copied, held
from .unsaid import as_notes, begun, held_there

if TYPE_CHECKING:
    from ..engine import SessionEngine

_TOPICS = (
    e.IdentityRestored.topic,
    e.SessionRerouted.topic,
    e.RouteClosed.topic,
    e.SessionEnded.topic,
)


class Carried(msgspec.Struct, frozen=True):
    """What came of it.

    Attributes:
        done, refused: a sentence each.
        backup: the copy of the database from before; None where nothing was to be changed.
        back: commands that put everything back.
    """

    path: str
    done: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    backup: str | None = None
    back: tuple[str, ...] = ()


def refuse_unready(engine: SessionEngine, home: Path) -> None:
    """Look whether repairs could be carried into `home` at all, before anything is done here.

    Raises:
        NotAStore, BadUsage, StoreBusy, NoRoom: as `carry_repairs` would.
    """
    home = home.resolve()
    _store_of(engine, home)
    with held(home):
        pass


def plan_carry(engine: SessionEngine, home: Path) -> Carried:
    """What `carry_repairs` would do now: nothing is written there, nothing noted here, no copy made.

    Raises:
        NotAStore, BadUsage, StoreBusy, NoRoom: as `carry_repairs` would.
    """
    home = home.resolve()
    engine.projector.catch_up()
    store = _store_of(engine, home)
    with held(home) as writer:
        _, unsaid = _settled(engine, writer, store, note=False)
        planned, refused = _planned(engine, writer, store, _in_order(engine, store, unsaid), writer.mirror())
    return Carried(str(home), tuple(line for each in planned for line in each.done), tuple(refused))


def carry_repairs(engine: SessionEngine, home: Path, *, shown: tuple[str, ...] | None = None) -> Carried:
    """Make every repair that stands here in `home`, too: one transaction, each repair verified again.

    One that was carried before and was undone here since is taken back there. What is written is noted
    here as last seen in the home, so that the next import finds no change in it.

    What a process that was killed had carried and not noted is noted first, or taken back there where it was
    undone here. A copy of the database, and of the mirror, is made first. A repair that the home has already
    is passed over; one that it contradicts is left out and named.

    Args:
        shown: what somebody was shown that would be done, and agreed to: nothing else is.

    Raises:
        NotAStore: it is no Hermes home. BadUsage: it was never imported here. StoreBusy: a process
        holds it, or it is not as it was shown. NoRoom: it, or the copy, cannot be written. Nothing was
        changed in any of these cases.
    """
    home = home.resolve()
    engine.projector.catch_up()
    store = _store_of(engine, home)
    with held(home) as writer:
        left, unsaid = _settled(engine, writer, store)
        repairs = _in_order(engine, store, unsaid)
        mirrored = writer.mirror()
        planned, refused = _planned(engine, writer, store, repairs, mirrored)
        done = tuple(line for each in planned for line in each.done)
        if shown is not None and done != shown:
            raise StoreBusy(
                f"what is to be written into {home} is not what was shown: it, or the home here, changed"
                " meanwhile; nothing was changed there",
                hint="run it again",
            )
        if not done:
            end(engine.home, store)
            return Carried(str(home), refused=tuple(refused))
        copies = copied(writer)
        begin(engine.home, store, [*left, *begun(planned, engine.identity)])
        mirror = None if mirrored is None else dict(mirrored)
        with _one_transaction(writer, "COMMIT"):
            carries = make(engine, writer, repairs, [], mirror, store)
        if writer.has_routes:
            record(engine, store, carries)
        if mirror is not None and mirror != mirrored:
            _mirrored(writer, mirror, copies)
        if not writer.has_routes:  # then the mirror alone says where a key leads
            record(engine, store, carries)
        end(engine.home, store)
    return Carried(str(home), done, tuple(refused), str(copies.database), copies.back)


def note_left(engine: SessionEngine, position: int) -> list[Path]:
    """Note what a carry of a save that was killed wrote, while the save stands: then an undo stands, too.

    Returns the homes that cannot be looked at now: they are held, or not there.
    """
    engine.projector.catch_up()
    unsure: list[Path] = []
    homes = engine.state.reader().execute("SELECT store, path FROM source_homes ORDER BY path").fetchall()
    for store, path in homes:
        if not isinstance(path, str) or store not in left_with(engine.home, position):
            continue
        try:
            with held(Path(path)) as writer:
                _settled(engine, writer, str(store))
        except RetoldError:
            unsure.append(Path(path))
    return unsure


def _planned(
    engine: SessionEngine,
    writer: HermesWriter,
    store: str,
    repairs: list[Repair],
    mirrored: Mapping[str, Any] | None,
) -> tuple[list[Carry], list[str]]:
    """What would be done, and what refused: it is done, and taken back."""
    refused: list[str] = []
    with _one_transaction(writer, "ROLLBACK"):
        planned = make(engine, writer, repairs, refused, None if mirrored is None else dict(mirrored), store)
    return planned, refused


@contextlib.contextmanager
def _one_transaction(writer: HermesWriter, finish: Literal["COMMIT", "ROLLBACK"]) -> Iterator[None]:
    try:
        writer.db.execute("BEGIN IMMEDIATE")
        yield
        writer.db.execute(finish)
    except apsw.Error as error:
        raise NoRoom(
            f"{writer.home} cannot be written: {words(error)}", hint="nothing was changed there; try again"
        ) from error
    finally:
        if writer.db.in_transaction:
            writer.db.execute("ROLLBACK")


def _in_order(engine: SessionEngine, store: str, unsaid: Mapping[int, tuple[Note, ...]]) -> list[Repair]:
    """What is taken back comes first."""
    return sorted(_repairs(engine, store, unsaid), key=lambda each: each.undo is None)


def _mirrored(writer: HermesWriter, mirror: Mapping[str, Any], copies: Copies) -> None:
    try:
        writer.write_mirror(mirror)
    except OSError as error:
        raise NoRoom(
            f"{writer.mirror_path} cannot be written ({error.strerror}); the database holds the repair, and"
            f" wins over it. A copy from before: {copies.database}",
            hint="remove that file, or make it writable and run this again",
        ) from error


# --- which repairs -----------------------------------------------------------------------------------


def _settled(
    engine: SessionEngine, writer: HermesWriter, store: str, *, note: bool = True
) -> tuple[list[Begun], dict[int, tuple[Note, ...]]]:
    """Note what a killed process had carried and not noted, where it stands here still.

    Returns what it had begun, and by save what the home holds of those that were undone here since.
    """
    left, mirror = left_of(engine.home, store), writer.mirror()
    taken_back = undos(engine.event_log) if left else {}
    unsaid: dict[int, tuple[Note, ...]] = {}
    for each in left:
        there = held_there(engine, writer, each, mirror)
        if not (there.sessions or there.routes):
            continue
        if standing_undo(taken_back, each.position) is None:
            if note:
                record(engine, store, [Carry(each.position, (), there)])
        else:
            unsaid[each.position] = as_notes(there)
    engine.projector.catch_up()
    return left, unsaid


def _store_of(engine: SessionEngine, home: Path) -> str:
    name = readable(home)
    homes = engine.state.reader().execute("SELECT store, path FROM source_homes ORDER BY last_run DESC")
    known = {str(path): str(store) for store, path in homes.fetchall() if path is not None}
    if name not in known:
        raise BadUsage(
            f"{home} was never imported here",
            hint=f"imported homes: {', '.join(sorted(known)) or 'none'}",
        )
    return known[name]


def _repairs(engine: SessionEngine, store: str, unsaid: Mapping[int, tuple[Note, ...]]) -> Iterator[Repair]:
    """The repairs of this store that stand, and those that were carried and undone since, oldest first."""
    log, after = engine.event_log, 0
    taken_back = undos(log)
    saves: dict[int, None] = {}
    while found := log.read(after, topics=_TOPICS):
        saves.update({each.save: None for each in found if is_repair(each)})
        after = found[-1].position
    ours = {
        session_id
        for (session_id,) in engine.state.reader().execute(
            "SELECT s.session_id FROM source_sessions s JOIN source_homes h ON h.id = s.source"
            " WHERE h.store = ?",
            (store,),
        )
    }
    for save in saves:
        saved = tuple(engine.save_of(save))
        if not {each.session_id for each in saved if each.stream.startswith("session:")} <= ours:
            continue
        undo = standing_undo(taken_back, save)
        notes = () if undo is None else unsaid.get(save) or tuple(notes_of(engine, saved, store))
        if undo is None or notes:
            yield Repair(saved, undo, notes)
