"""`retold sessions repair-routing --apply`: asks, takes a backup, adopts one session after the other."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from ..domain.errors import RepairRefused, RetoldError, TwoHistories
from ..domain.shell import shell_word
from .asking import ask
from .options import with_home
from .output import emit_json
from .stream import put, say

if TYPE_CHECKING:
    from ..infrastructure.commands.repairs import Adopted
    from ..infrastructure.engine import SessionEngine
    from ..infrastructure.exporters.hermes_repair import Carried

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
    """Do what is wished for, and carry it into a Hermes home; the exit code."""
    from .writing import writing

    if wishes:
        question = f"Adopt {len(wishes)} orphaned session(s)?"
        ask(question, yes=yes, as_json=as_json, declined="Aborted — nothing was changed.")
    with writing(home) as engine:
        safe = Safe(home)
        results = []
        for each in wishes:
            result = _adopted(engine, each, gap_seconds, safe)
            results.append(result)
            if not as_json:
                put(*_lines(result, home))
        carried = _carried(engine, into)
    if as_json:
        emit_json(_json(results, safe.backup, carried))
    else:
        if wishes:
            put(
                "",
                f"Repaired {sum(each.adopted is not None for each in results)} of {len(wishes)} session(s).",
            )
        if carried is not None:
            put(*_into_lines(carried))
        if safe.backup is not None:
            say([f"A backup from before lies in {safe.backup}"])
    return EXIT_REFUSED if any(each.error is not None for each in results) else 0


class Safe:
    """A backup beside the home, taken once, before anything is changed; None where nothing was."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.backup: Path | None = None

    def take(self) -> None:
        """Take it, unless that was done."""
        if self.backup is not None:
            return
        from ..infrastructure.backup import BEFORE_REPAIR, back_up, sweep
        from .progress import progress_bar

        sweep(self._home.parent, f"{self._home.name}{BEFORE_REPAIR}")
        stamp = time.strftime("%Y%m%d-%H%M%S")
        to = self._home.with_name(f"{self._home.name}{BEFORE_REPAIR}{stamp}")
        with progress_bar() as report:
            self.backup = Path(back_up(self._home, to, numbered=True, progress=report).path)


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


def _carried(engine: SessionEngine, into: Path | None) -> Carried | None:
    if into is None:
        return None
    from ..infrastructure.exporters.hermes_repair import carry_repairs

    return carry_repairs(engine, into)


def _lines(result: Result, home: Path) -> Iterator[str]:
    if result.adopted is None:
        assert result.error is not None
        yield f"✗ {result.error.message}"
        if isinstance(result.error, TwoHistories):
            again = f"retold sessions repair-routing --apply {shell_word(result.error.session_id)} --choose"
            for each in result.error.candidates:
                yield f"    {again} {shell_word(each)}{with_home(home)}"
        elif result.error.hint:
            yield f"    {result.error.hint}"
        return
    done = result.adopted
    if not done.positions:
        yield f"✓ {done.session_id} owns {done.key} already"
        return
    yield f"✓ {done.session_id} now owns {done.key}"
    yield f"    by {'; '.join(done.evidence)}"
    if done.leads_to is None:
        yield "    it had ended for good, so the chat's next message begins a new session"
    elif done.leads_to != done.session_id:
        yield f"    the chat goes on in {done.leads_to}"
    yield f"    take it back with: retold undo {done.positions[0]}{with_home(home)}"


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


def _json(results: Sequence[Result], backup: Path | None, carried: Carried | None) -> dict[str, Any]:
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
        "backup": None if backup is None else str(backup),
        "into": None
        if carried is None
        else {
            "path": carried.path,
            "done": carried.done,
            "refused": carried.refused,
            "backup": carried.backup,
            "back": carried.back,
        },
    }
