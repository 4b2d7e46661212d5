"""Upkeep of state.db: the search index in one piece, and free pages given back where there are many.

The log is never vacuumed. Only erasures free pages of it, its next events take them, and rewriting
the one file that nothing can tell again is worth no amount of space. A backup can be restored where
the space matters: it is written without them.
"""

from __future__ import annotations

import apsw

from ..domain.errors import RetoldError
from ..domain.retention import is_worth_a_vacuum
from ..projections.search_index import SearchIndex
from .projector import Projector
from .sqlite import one


def optimise_index(projector: Projector) -> bool:
    """Merge the search index into one piece; False where the lock could not be had."""
    try:
        if not projector.settle(wait_ms=2_000):
            return False
        with projector.transaction(2_000) as db:
            SearchIndex(db, "").optimise()
    except (RetoldError, apsw.Error):
        return False
    return True


def free_share(projector: Projector) -> tuple[int, int]:
    """(free pages, pages) of state.db."""
    db = projector.state.reader()
    return int(one(db, "PRAGMA freelist_count")), int(one(db, "PRAGMA page_count"))


def vacuum(projector: Projector) -> int | None:
    """Rewrite state.db without its free pages, where they are many; the bytes that this gave back.

    None where they are few, or somebody else has the file open in a way that does not let it.
    """
    before, pages = free_share(projector)
    if not is_worth_a_vacuum(before, pages):
        return None
    try:
        with projector.exclusively() as db:
            size = int(one(db, "PRAGMA page_size"))
            db.execute("VACUUM")
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    except (RetoldError, apsw.Error):
        return None
    after = free_share(projector)
    return max(0, (pages - after[1]) * size)
