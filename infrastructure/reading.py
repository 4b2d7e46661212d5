"""What a read command opens: the log, and the projections as they are now or were at a point."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from ..domain.errors import ProjectionDamaged, ProjectionsBegunAnew
from .blame import MET, STRANGE, blaming
from .clock import now_us
from .config import Config, load_config
from .foreign import refuse_no_folder
from .home import Home
from .lag import NOT_THERE, Lag

if TYPE_CHECKING:
    from .happened import AsOf
    from .when import Point


class View:
    """Projections to query, and how they stand to the log."""

    def __init__(
        self,
        home: Home,
        db: apsw.Connection,
        lag: Lag,
        point: Point | None,
        now: int,
        config: Config,
        as_of: AsOf | None = None,
    ) -> None:
        self.home = home
        self.log = home.log
        self.db = db
        self.lag = lag
        self.point = point
        self.config = config
        self.now_us = now
        """The clock when the command began; the point's own time where one was asked for."""
        self.as_of = as_of
        """Where a time was asked for: what had happened by it, and what of that is not on record."""

    @property
    def known_at(self) -> int:
        """The position that the answer rests on."""
        return self.lag.position if self.point is None or self.point.position is None else self.point.position

    def remarks(self) -> list[str]:
        """What a reader must know of the answer, a sentence each: for standard error."""
        said = []
        if self.point is not None and self.point.at_us is not None:
            from datetime import UTC, datetime

            when = datetime.fromtimestamp(self.point.at_us / 1e6, UTC)
            said.append(f"as of {when:%Y-%m-%dT%H:%M:%SZ}, known at position #{self.known_at}")
            said += self._undated_remarks()
        elif self.point is None and self.lag.waiting:
            said.append(f"the answer is {self.lag.waiting} event(s) behind the log; {self.lag.held_up}")
        for name, why in self.lag.detached.items():
            said.append(f"{name} is set aside ({why}); tell it again with: retold projections rebuild {name}")
        for first, last in self.lag.damaged:
            which = (
                f"event #{first} cannot be read and was"
                if first == last
                else f"events #{first}-{last} cannot be read and were"
            )
            said.append(f"{which} passed over; see: retold verify")
        for name, why in self.lag.told_again.items():
            if why != NOT_THERE:
                said.append(f"{name} was told again from the log: {why}")
        return said

    def _undated_remarks(self) -> Iterator[str]:
        """What an import found without a time of its own, as far as it touches what was there then."""
        if self.as_of is None:
            return
        undated = self.as_of.undated
        if undated.shown:
            yield (
                "titles and archived marks are shown as an import found them later: since when they stood is"
                " not on record"
            )
        known = {
            key for (key,) in self.db.execute("SELECT DISTINCT session_key FROM sessions") if key is not None
        }
        unknown = known & {route.key for route in undated.routes}
        if unknown:
            keys = "1 key" if len(unknown) == 1 else f"{len(unknown):,} keys"
            yield (
                f"where {keys} led then is not on record: an import found the routes later, and they may"
                " have moved since"
            )


@contextlib.contextmanager
def reading(home: Path, at: str | None = None, *, settle: bool = False) -> Iterator[View]:
    """Open `home` for a read command; folds what is missing if the lock is had within 50 ms.

    `settle` also lets the search index catch up, which a search needs.

    Raises:
        NoSuchHome: it holds no log. BadUsage: it is no folder, or `at` or the configuration
        cannot be read. ProjectionsBegunAnew: the rows that were asked for turned out damaged; ask
        again. LogDamaged, NeedsUpgrade, …
    """
    now = now_us()
    refuse_no_folder(home)
    config = load_config(home)
    point = None
    if at is not None:
        from .when import parse_point

        point = parse_point(at, now_us=now, zone=config.zone, whole_minutes=True)
    opened = Home(home, read_only=True)
    try:
        if point is None:
            with blaming(opened.log, lambda: opened.projector, sure=(*MET, ProjectionDamaged)):
                lag = opened.catch_up()
                if settle:
                    opened.projector.settle()
                yield View(opened, opened.state.reader(), lag, None, now, config)
        else:
            with _past(opened, point, now, config) as view:
                yield view
    finally:
        opened.close()


@contextlib.contextmanager
def _past(opened: Home, point: Point, now: int, config: Config) -> Iterator[View]:
    """The projections as they were; what was kept of them is dropped where it turns out damaged."""
    from .happened import AsOf
    from .history import forget_cache, past_at

    past = past_at(opened.log, opened.path, point)
    head = opened.log.head().position
    then = now if point.at_us is None else point.at_us
    try:
        as_of = None if point.at_us is None else AsOf(opened.log, point.at_us)
        lag = Lag(head, head, damaged=list(past.damaged))
        yield View(opened, past.db, lag, point, then, config, as_of)
    except MET + STRANGE as error:
        if not past.kept:
            raise
        forget_cache(opened.path)
        raise ProjectionsBegunAnew(f"what was kept of the past was damaged: {error}", saved=False) from error
    finally:
        past.db.close()
