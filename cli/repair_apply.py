"""`retold sessions repair-routing --apply`: asks, takes a backup, adopts one session after the other.

With `--into` it shows what would be written into the Hermes home, and asks for that, too.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..domain.errors import RepairRefused, RetoldError, TwoHistories
from .asking import ask
from .options import with_home
from .output import emit_json
from .stream import put, say

if TYPE_CHECKING:
    from ..infrastructure.commands.repairs import Adopted
    from ..infrastructure.engine import SessionEngine
    from ..infrastructure.exporters.hermes_repair import Carried
    from ..infrastructure.repair_backups import Kept

EXIT_REFUSED = RepairRefused.exit_code


class Wish(Struct, frozen=True):
    """A session that is to be adopted.

    Attributes:
        reported: donor and key as the report had them; None where a person named the donor.
        choose: which session goes on, where there are two histories.
        key: the key that it is to bear, where a plan says it.
    """

    orphan_id: str
    reported: tuple[str | None, str | None] | None = None
    donor: str | None = None
    choose: str | None = None
    key: str | None = None


class Result(Struct, frozen=True):
    """What came of a wish."""

    wish: Wish
    adopted: Adopted | None = None
    error: RetoldError | None = None


def apply(
    home: Path,
    wishes: Sequence[Wish],
    *,
    gap_seconds: float,
    into: Path | None,
    yes: bool,
    as_json: bool,
) -> int:
    """Do what is wished for, and carry it into a Hermes home; the exit code.

    Raises:
        Exit: a question was answered with no. BadUsage: with JSON nothing is asked.
    """
    from .writing import writing

    if as_json:
        ask("", yes=yes, as_json=True)
    with writing(home, upkeep=False) as engine:
        _refuse_unready(engine, into)
        if wishes and not yes:
            say([_wished(each) for each in wishes])
            question = f"Adopt {len(wishes)} orphaned session(s)?"
            ask(question, yes=False, as_json=False, declined="Aborted — nothing was changed.")
        safe = Safe(home, engine)
        results = []
        for each in wishes:
            result = _adopted(engine, each, gap_seconds, safe)
            results.append(result)
            if not as_json:
                put(*_lines(result, home))
        if results and not as_json:
            put(*_counted(results))
            say(safe.remarks())
        carried, failed = _carried(engine, into, yes=yes)
    left_out = carried is not None and bool(carried.refused)
    refused = EXIT_REFUSED if left_out or any(each.error is not None for each in results) else 0
    if as_json:
        emit_json(_json(results, safe.kept, carried, failed))
    else:
        if carried is not None:
            put(*_into_lines(carried))
        if failed is not None:
            raise failed.error
    return refused if failed is None else failed.error.exit_code


def _wished(wish: Wish) -> str:
    """What is asked about: a session, and whose key it is to bear or which one."""
    key = wish.key or (wish.reported[1] if wish.reported else None)
    leads = f" → {key}" if key else ""
    giver = f", from {wish.donor}" if wish.donor else ""
    goes_on = f", {wish.choose} goes on" if wish.choose else ""
    return f"{wish.orphan_id}{leads}{giver}{goes_on}"


class Failed(Struct, frozen=True):
    """What was done here was not carried into a Hermes home, and why."""

    path: Path
    error: RetoldError


class Safe:
    """A backup beside the home, seen to once, before anything is changed; None where nothing was.

    What a kill left of an earlier one is removed, whether or not one is taken now.
    """

    def __init__(self, home: Path, engine: SessionEngine) -> None:
        from ..infrastructure.repair_backups import sweep_backups

        self._home = home
        self._engine = engine
        self.kept: Kept | None = None
        sweep_backups(home)

    def take(self) -> None:
        """See to it, unless that was done."""
        if self.kept is not None:
            return
        from ..infrastructure.repair_backups import keep_backup
        from .progress import progress_bar

        stamp, keep = time.strftime("%Y%m%d-%H%M%S"), self._engine.config.repair.keep_backups
        with progress_bar() as report:
            self.kept = keep_backup(
                self._home, self._engine.event_log, keep=keep, stamp=stamp, progress=report
            )

    def remarks(self) -> list[str]:
        """Where the backup lies, and which older ones are gone."""
        kept = self.kept
        if kept is None:
            return []
        since = (
            ""
            if kept.taken
            else ", and from before the repairs and undos since then: nothing else was written"
        )
        said = [f"A backup from before lies in {kept.path}{since}"]
        if kept.removed:
            keep = self._engine.config.repair.keep_backups
            gone = ", ".join(map(str, kept.removed))
            said.append(f"Removed, since {keep} are kept (repair.keep_backups): {gone}")
        return said


def _adopted(engine: SessionEngine, wish: Wish, gap_seconds: float, safe: Safe) -> Result:
    try:
        done = engine.repair(
            wish.orphan_id,
            donor=wish.donor,
            choose=wish.choose,
            reported=wish.reported,
            key=wish.key,
            before_saving=safe.take,
            gap_seconds=gap_seconds,
        )
    except RetoldError as error:
        if error.exit_code not in (2, EXIT_REFUSED):
            raise
        return Result(wish, error=error)
    return Result(wish, adopted=done)


def _refuse_unready(engine: SessionEngine, into: Path | None) -> None:
    if into is not None:
        from ..infrastructure.exporters.hermes_repair import refuse_unready

        refuse_unready(engine, into)


def _carried(engine: SessionEngine, into: Path | None, *, yes: bool) -> tuple[Carried | None, Failed | None]:
    """What came of carrying; without a yes that is shown first, and asked for."""
    if into is None:
        return None, None
    from ..infrastructure.exporters.hermes_repair import carry_repairs, plan_carry

    try:
        shown = None
        if not yes:
            planned = plan_carry(engine, into)
            if not planned.done:
                return planned, None
            put("", f"This would be written into {planned.path}, after a copy of its database:")
            put(*(f"  {each}" for each in planned.done), *(f"✗ {each}" for each in planned.refused))
            declined = f"Nothing was written into {planned.path}."
            ask(f"Write it into {planned.path}?", yes=False, as_json=False, declined=declined)
            shown = planned.done
        return carry_repairs(engine, into, shown=shown), None
    except RetoldError as error:
        return None, Failed(into, error)


def _lines(result: Result, home: Path) -> Iterator[str]:
    if result.adopted is None:
        assert result.error is not None
        yield f"✗ {result.error.message}"
        if isinstance(result.error, TwoHistories):
            yield from (f"    {each}{with_home(home)}" for each in result.error.ways)
        elif result.error.hint:
            yield f"    {result.error.hint}"
        return
    done = result.adopted
    owns = done.leads_to == done.session_id
    if not done.positions:
        yield f"✓ {done.session_id} {'owns' if owns else 'bears'} {done.key} already"
        yield from () if owns else (f"    {_goes_on(done)}",)
        return
    yield f"✓ {done.session_id} {'now owns' if owns else 'bears'} {done.key}{'' if owns else ' again'}"
    yield from () if owns else (f"    {_goes_on(done)}",)
    yield f"    by {'; '.join(done.evidence)}"
    yield f"    take it back with: retold undo {done.positions[0]}{with_home(home)}"


def _goes_on(done: Adopted) -> str:
    """Where the chat of a session goes on that bears its key and is not led to."""
    if done.leads_to is not None:
        return f"its chat goes on in {done.leads_to}"
    if done.ended is not None:
        return f"it ended for good ({done.ended}), so its chat leads nowhere: the next message begins anew"
    return "its chat leads nowhere: the next message begins a new session"


def _counted(results: Sequence[Result]) -> Iterator[str]:
    repaired = sum(each.adopted is not None and bool(each.adopted.positions) for each in results)
    already = sum(each.adopted is not None for each in results) - repaired
    more = f"; {already} had {'its' if already == 1 else 'their'} key already" if already else ""
    yield ""
    yield f"Repaired {repaired} of {len(results)} session(s){more}."


def _into_lines(carried: Carried) -> Iterator[str]:
    yield ""
    for each in carried.done:
        yield f"✓ {each} in {carried.path}"
    for each in carried.refused:
        yield f"✗ {each}"
    if carried.backup is None:
        yield f"Nothing was to be changed in {carried.path}."
    else:
        yield f"A copy from before lies in {carried.backup}; take it back, with Hermes stopped, by:"
        yield from (f"  {each}" for each in carried.back)


def _json(
    results: Sequence[Result], kept: Kept | None, carried: Carried | None, failed: Failed | None
) -> dict[str, Any]:
    adopted = [each.adopted for each in results if each.adopted is not None]
    return {
        "adopted": [
            {
                "session_id": each.session_id,
                "session_key": each.key,
                "donor_id": each.donor,
                "leads_to": each.leads_to,
                "led_to": each.left,
                "evidence": each.evidence,
                "positions": each.positions,
            }
            for each in adopted
        ],
        "refused": [
            {
                "session_id": each.wish.orphan_id,
                "kind": each.error.kind,
                "message": each.error.message,
                "hint": each.error.hint,
            }
            for each in results
            if each.error is not None
        ],
        "repaired": len(adopted),
        "asked": len(results),
        "backup": None if kept is None else str(kept.path),
        "backup_taken": kept is not None and kept.taken,
        "backups_removed": [] if kept is None else [str(each) for each in kept.removed],
        "into": _into_json(carried, failed),
    }


def _into_json(carried: Carried | None, failed: Failed | None) -> dict[str, Any] | None:
    if failed is not None:
        why = failed.error
        error = {"kind": why.kind, "message": why.message, "hint": why.hint}
        return {
            "path": str(failed.path),
            "done": [],
            "refused": [],
            "backup": None,
            "back": [],
            "error": error,
        }
    if carried is None:
        return None
    return {
        "path": carried.path,
        "done": carried.done,
        "refused": carried.refused,
        "backup": carried.backup,
        "back": carried.back,
    }
