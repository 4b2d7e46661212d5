"""How far each projection has come, and whether what it holds is still a fold of this log."""

from __future__ import annotations

from collections.abc import Iterable

import apsw
import msgspec

from ..domain.errors import LogDamaged, ProjectionDamaged
from ..domain.events import BY_TOPIC
from ..projections.base import Projection
from ..projections.versions import UNICODE, other_tables
from .log import Head, Log
from .past_damage import readable


class Checkpoint(msgspec.Struct, frozen=True):
    """Committed together with the rows that it speaks of."""

    projection: str
    generation: int
    fold_version: int
    log_id: str
    position: int
    chain: bytes
    detached: str | None = None
    unknown_topics: tuple[str, ...] = ()
    passed_over: tuple[tuple[int, int], ...] = ()
    """Damaged events, first to last of each run, that the fold could not see."""
    unicode: str = UNICODE
    """Version of the Unicode tables that it was folded with."""


_topics = msgspec.json.Decoder(tuple[str, ...]).decode
_runs = msgspec.json.Decoder(tuple[tuple[int, int], ...]).decode


def load(db: apsw.Connection) -> dict[str, Checkpoint]:
    """Every checkpoint by projection; a rebuild's own by `new_` + name.

    Raises:
        ProjectionDamaged: what stands there is no checkpoint.
    """
    try:
        return {
            row[0]: Checkpoint(
                projection=row[0],
                generation=row[1],
                fold_version=row[2],
                log_id=row[3],
                position=row[4],
                chain=bytes(row[5]),
                detached=row[6],
                unknown_topics=_topics(row[7]),
                passed_over=_runs(row[8]),
                unicode=row[9],
            )
            for row in db.execute(
                "SELECT projection, generation, fold_version, log_id, position, chain, detached,"
                " unknown_topics, passed_over, unicode FROM checkpoints"
            )
        }
    except (
        apsw.SQLError,
        apsw.CorruptError,
        apsw.NotADBError,
        msgspec.MsgspecError,
        TypeError,
        ValueError,
    ) as error:
        raise ProjectionDamaged(
            f"the checkpoints of the projections cannot be read: {error}",
            hint="the log is untouched; tell them again with: retold projections rebuild",
        ) from error


def store(db: apsw.Connection, checkpoint: Checkpoint) -> None:
    """Write it, in the transaction of the rows."""
    db.execute(
        "INSERT OR REPLACE INTO checkpoints VALUES (?,?,?,?,?,?,?,?,?,?)",
        (
            checkpoint.projection,
            checkpoint.generation,
            checkpoint.fold_version,
            checkpoint.log_id,
            checkpoint.position,
            checkpoint.chain,
            checkpoint.detached,
            msgspec.json.encode(checkpoint.unknown_topics).decode(),
            msgspec.json.encode(checkpoint.passed_over).decode(),
            checkpoint.unicode,
        ),
    )


def move(db: apsw.Connection, names: Iterable[str], head: Head) -> None:
    """All of `names` have come to `head`, where they stood at one checkpoint before."""
    db.executemany(
        "UPDATE checkpoints SET position = ?, chain = ? WHERE projection = ?",
        [(head.position, head.chain, name) for name in names],
    )


def why_tell_again(checkpoint: Checkpoint, projection: type[Projection], log: Log, head: Head) -> str | None:
    """Why the rows are no fold of this log, or None where they are.

    Without the chain value, a log that was restored from a backup would leave the lost events
    visible: their positions are taken again by others.
    """
    if checkpoint.log_id != log.identity.log_id:
        return "it was told from another log"
    if checkpoint.position > head.position:
        if not head.chain:  # the log's end cannot be read; these rows may be all that is left of it
            return None
        return f"it had come to #{checkpoint.position}, and the log ends at #{head.position}"
    try:
        chain = log.chain_at(checkpoint.position)
    except LogDamaged:
        chain = checkpoint.chain  # nothing speaks against the rows; they may be all that is left
    if chain != checkpoint.chain:
        return f"the log holds another event at #{checkpoint.position} than the one it was told from"
    if checkpoint.fold_version < projection.version:
        return (
            f"it was folded by version {checkpoint.fold_version}, and this program's is {projection.version}"
        )
    if other_tables(projection.name, checkpoint.unicode):
        return f"it was folded with Unicode {checkpoint.unicode}, and this Python has {UNICODE}"
    known = [topic for topic in checkpoint.unknown_topics if topic in BY_TOPIC]
    if known:
        return f"it passed over events that this program knows: {', '.join(known)}"
    for first, _ in checkpoint.passed_over:
        if readable(log, first):
            return f"it passed over event #{first}, which was damaged and can be read now"
    return None


def is_newer(checkpoint: Checkpoint, projection: type[Projection]) -> bool:
    """Whether a newer program folded it: then this one neither folds into it nor rebuilds it."""
    return checkpoint.fold_version > projection.version
